"""The sample files of ADM (guided-diffusion), a common exchange format for evaluation.

A sample file is an .npz with `arr_0`, uint8 (n, h, w, 3), and optionally `arr_1`, integer labels (n,). Reference files
also hold statistics, which `tokencritic.evaluation.reference.read_statistics` reads. Nothing is unpickled.
"""

import math
import weakref
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from tokencritic.data.npz import NPZ, arrays_of
from tokencritic.data.source import check_arrays
from tokencritic.errors import InputError
from tokencritic.files import reading, write_atomically
from tokencritic.image_forms import check_images, to_pixels


def write_samples(
    file: str | Path,
    batches: Iterable[Tensor | np.ndarray],
    labels: Tensor | np.ndarray | Iterable[int] | None,
    count: int | None = None,
) -> None:
    """Write a sample file atomically, with one batch in memory at a time.

    batches: images of one size, uint8 (b, h, w, c) or float (b, c, h, w) in [0, 1]. Grey images are repeated to the
    three channels that ADM's evaluator expects.
    labels: one integer per image of all batches; None for images without classes.
    count: the number of images; required without labels.
    """
    numbers = None
    if labels is not None:
        numbers = np.asarray(labels if isinstance(labels, Tensor | np.ndarray) else list(labels))
        if numbers.ndim != 1 or numbers.size == 0 or numbers.dtype.kind not in "iu":
            raise InputError(f"labels is {numbers.dtype} {numbers.shape}; expected integers (n,), one per image")
        count = len(numbers)
    elif count is None:
        raise InputError("labels and count are both None; give one of them")

    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            _write_images(archive, batches, count)
            if numbers is not None:
                with _open_member(archive, "arr_1.npy") as member:
                    np.lib.format.write_array(member, numbers.astype("<i8"), allow_pickle=False)

    write_atomically(Path(file), write)


def _write_images(archive: zipfile.ZipFile, batches: Iterable[Tensor | np.ndarray], count: int) -> None:
    """Write `arr_0.npy`: a header with the number of images, then the images."""
    done, shape = 0, None
    with _open_member(archive, "arr_0.npy") as member:
        for batch in batches:
            pixels = to_pixels(check_images(batch)).to(torch.uint8).permute(0, 2, 3, 1).contiguous().cpu().numpy()
            if shape is None:
                shape = pixels.shape[1:]
                header = {"descr": "|u1", "fortran_order": False, "shape": (count, *shape)}
                np.lib.format.write_array_header_1_0(member, header)
            if pixels.shape[1:] != shape:
                raise InputError(f"images are {pixels.shape[1:]} after images of {shape}; expected one size")
            done += len(pixels)
            if done > count:
                break
            member.write(pixels.data)
    if done != count:
        raise InputError(f"there are {'more than ' * (done > count)}{min(done, count)} images; expected {count}")


def _open_member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """Open a member without a timestamp, so that files are reproducible. Zip64 allows any size."""
    return archive.open(zipfile.ZipInfo(name), "w", force_zip64=True)


class SampleFile:
    """A sample or reference file, which stays open. Images are read on demand; in order, the file is read once.

    shape: (n, h, w, c) of the images.
    labels: int64 (n,), or None without labels.
    """

    def __init__(self, file: str | Path) -> None:
        self.file = Path(file)
        with reading(self.file, NPZ):
            with zipfile.ZipFile(self.file) as archive:
                if "arr_0.npy" not in archive.namelist():
                    raise InputError(f"{file} has no arr_0; expected the images")
                packed = archive.getinfo("arr_0.npy")
                self._member = archive.open("arr_0.npy")  # stays open when the archive is closed
            weakref.finalize(self, self._member.close)
            form = np.lib.format
            old = form.read_magic(self._member) == (1, 0)
            read_header = form.read_array_header_1_0 if old else form.read_array_header_2_0
            self.shape, fortran_order, dtype = read_header(self._member)
            self._first = self._member.tell()
        if fortran_order:
            raise InputError(f"{file} holds arr_0 in Fortran order; expected C order")
        with arrays_of(self.file) as arrays:
            labels = arrays.get("arr_1")
        check_arrays(file, dtype, self.shape, labels)
        if packed.file_size != (size := self._first + math.prod(self.shape)):
            raise InputError(f"{file} holds {packed.file_size} bytes in arr_0; its header {self.shape} requires {size}")
        self.labels = None if labels is None else labels.astype(np.int64)

    def __len__(self) -> int:
        return self.shape[0]

    def batch(self, start: int, stop: int) -> np.ndarray:
        """Return the images from start to stop: uint8 (b, h, w, c)."""
        size = math.prod(self.shape[1:])
        with reading(self.file, NPZ):
            self._member.seek(self._first + start * size)
            content = self._member.read((stop - start) * size)
            return np.frombuffer(bytearray(content), np.uint8).reshape(stop - start, *self.shape[1:])
