"""The sample files of ADM (guided-diffusion), the form in which samples are handed round to be measured.

An .npz with `arr_0`, uint8 (n, h, w, 3), and often `arr_1`, integer labels (n,). Reference files have the same `arr_0`, with
statistics beside it, which `tokencritic.evaluation.read_statistics` reads. Nothing is unpickled.
"""

import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import torch
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.evaluation.features import check_images, to_pixels
from tokencritic.evaluation.moments import image_member, stream_images
from tokencritic.files import write_atomically

# What reading a broken file may raise; the last three: a size beyond reason, packed in an unknown way, encrypted.
_BROKEN = (
    *(OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error),
    *(MemoryError, NotImplementedError, RuntimeError),
)


def write_samples(
    file: str | Path, batches: Iterable[Tensor | np.ndarray], labels: Tensor | np.ndarray | Iterable[int]
) -> None:
    """Write a sample file, whole or not at all; only one batch is in memory at a time.

    batches: images, uint8 (b, h, w, c) or float (b, c, h, w) in [0, 1], all of one size; grey ones are repeated to the three
    channels that ADM's evaluator takes. labels: one integer for each image of all batches together.
    """
    numbers = np.asarray(labels if isinstance(labels, Tensor | np.ndarray) else list(labels))
    if numbers.ndim != 1 or numbers.size == 0 or numbers.dtype.kind not in "iu":
        raise InputError(f"labels is {numbers.dtype} {numbers.shape}; expected integers (n,), one per image")

    def write(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            _write_images(archive, batches, len(numbers))
            with _open_member(archive, "arr_1.npy") as member:
                np.lib.format.write_array(member, numbers.astype("<i8"), allow_pickle=False)

    write_atomically(Path(file), write)


def _write_images(archive: zipfile.ZipFile, batches: Iterable[Tensor | np.ndarray], count: int) -> None:
    """`arr_0.npy`: the header says how many images will come, then they come."""
    done, shape = 0, None
    with _open_member(archive, "arr_0.npy") as member:
        for batch in batches:
            pixels = to_pixels(check_images(batch)).to(torch.uint8).permute(0, 2, 3, 1).contiguous().cpu().numpy()
            if shape is None:
                shape = pixels.shape[1:]
                header = {"descr": "|u1", "fortran_order": False, "shape": (count, *shape)}
                np.lib.format.write_array_header_1_0(member, header)
            if pixels.shape[1:] != shape:
                raise InputError(f"images of {pixels.shape[1:]} follow images of {shape}; a sample file holds one size")
            done += len(pixels)
            if done > count:
                break
            member.write(pixels.data)
    if done != count:
        raise InputError(f"there are {'more than ' * (done > count)}{min(done, count)} images for {count} labels")


def _open_member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """Without a time of writing: the same samples make the same bytes. Its size is not known yet, so room for any is left."""
    return archive.open(zipfile.ZipInfo(name), "w", force_zip64=True)


@dataclass(frozen=True)
class SampleFile:
    """What a sample or reference file holds. shape: (n, h, w, c) of its images. labels: int64 (n,), or None if it has none."""

    file: Path
    shape: tuple[int, ...]
    labels: np.ndarray | None

    def __len__(self) -> int:
        return self.shape[0]

    def batches(self, batch_size: int = 256) -> Iterator[np.ndarray]:
        """The images as uint8 (b, h, w, c), read as they are asked for."""
        return stream_images(self.file, batch_size)


def open_samples(file: str | Path) -> SampleFile:
    """Look at a sample or reference file: its images are not read, its labels are."""
    path = Path(file)
    if not path.is_file():
        raise InputError(f"{path} is no file; expected an .npz of samples")
    try:
        with image_member(path) as (_, shape):
            pass
        with np.load(path, allow_pickle=False) as arrays:
            labels = arrays.get("arr_1")
    except InputError:
        raise
    except _BROKEN as error:
        raise InputError(f"{path} is not a whole .npz without pickles: {error}") from error
    if 0 in shape:
        raise InputError(f"{path} holds arr_0 {shape}; expected at least one image")
    if labels is not None and (labels.shape != shape[:1] or labels.dtype.kind not in "iu"):
        came = f"{labels.dtype} {labels.shape}"
        raise InputError(f"{path} holds labels {came}; expected integers ({shape[0]},), one per image")
    return SampleFile(path, shape, None if labels is None else labels.astype(np.int64))
