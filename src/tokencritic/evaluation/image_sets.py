"""Sets of images to evaluate or to use as a reference: folders, data sets, sample files and reconstructions."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from tokencritic.data.npz import array_names
from tokencritic.data.source import FolderSource, Source, Split, open_flat_folder
from tokencritic.data.sources import has_known_files, open_source
from tokencritic.data.transforms import Preprocess
from tokencritic.errors import InputError
from tokencritic.evaluation.cache import file_digest
from tokencritic.interop.adm import SampleFile
from tokencritic.pipeline import TokenCriticPipeline

_WORKERS = 4  # threads that decode images


class ImageSet:
    """The base class of image sets, whose images are read by index.

    facts: JSON values that determine the images. They are recorded in results and are part of cache keys.
    image_size: (height, width).
    labels: (n,) int64, or None if unknown.
    """

    facts: dict[str, Any]
    image_size: tuple[int, int]
    labels: np.ndarray | None = None

    def __len__(self) -> int:
        raise NotImplementedError

    def batch(self, start: int, stop: int) -> Tensor | np.ndarray:
        """Return images [start, stop) in a form that `Features` accepts."""
        raise NotImplementedError

    @property
    def costs(self) -> dict[str, float]:
        """The cost of sampling an image, as JSON values; empty for images that were not sampled here."""
        return {}


class SourceImages(ImageSet):
    """The images of a data set.

    size: the side to which images are cropped and resized; None keeps them as they are, and all must have the same
    size.
    channels: 1 or 3; unused without a size.
    num: the number of images, evenly spaced; None for all.
    """

    def __init__(self, source: Source, size: int | None = None, channels: int = 3, num: int | None = None) -> None:
        if num is not None and not 1 <= num <= len(source):
            raise InputError(f"num is {num}; the data set has {len(source)} images")
        self.source, self._crop = source, None if size is None else Preprocess(size, channels)
        count = len(source) if num is None else num
        self.indices = np.arange(count) * len(source) // count
        self.facts = source.describe() | {"size": size, "channels": channels if size else None, "num": count}
        if isinstance(source, FolderSource):
            self.facts["state"] = _state(source)
        self._pool = ThreadPoolExecutor(_WORKERS)
        source.check()
        width, height = (size, size) if size else self._read(0).size
        self.image_size = (height, width)
        self.labels = source.labels[self.indices] if (source.labels >= 0).all() else None

    def __len__(self) -> int:
        return len(self.indices)

    def batch(self, start: int, stop: int) -> np.ndarray:
        """Return images [start, stop): uint8 (b, h, w, c)."""
        indices, images = self.indices[start:stop], self.source.images
        images = list(self._pool.map(self._read, indices.tolist())) if images is None else images[indices]
        if self._crop is not None:
            return self._crop.batch(images, indices).permute(0, 2, 3, 1).numpy()
        if isinstance(images, np.ndarray):
            return images
        height, width = self.image_size
        for image, index in zip(images, indices.tolist(), strict=True):
            if image.size != (width, height):
                sizes = f"{image.width} x {image.height}, others are {width} x {height}"
                raise InputError(f"{self.source.name(index)} is {sizes}; expected images of one size")
        mode = "L" if all(image.mode == "L" for image in images) else "RGB"
        return np.stack([np.atleast_3d(np.asarray(image.convert(mode))) for image in images])

    def _read(self, index: int) -> Image.Image:
        example = self.source[index]
        if example is None:
            raise InputError(f"{self.source.name(index)} cannot be decoded")
        return example[0]


class SampleImages(SampleFile, ImageSet):
    """The images of an .npz file in ADM's format, read on demand.

    The file has images `arr_0`, uint8 (n, h, w, c), and optionally labels `arr_1`.
    """

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self.image_size, shape = (self.shape[1], self.shape[2]), list(self.shape[1:])
        self.facts = {"kind": "npz", "num": len(self), "image_shape": shape, "sha256": file_digest(file)}


class Reconstructions(ImageSet):
    """Images after encoding and decoding by the tokenizer. Their metrics bound those of generated images."""

    def __init__(self, pipe: TokenCriticPipeline, images: ImageSet, batch_size: int = 64) -> None:
        self.pipe, self.images, self.batch_size = pipe, images, batch_size
        self.image_size, self.labels = images.image_size, images.labels
        models = {"tokenizer": pipe.tokenizer.fingerprint()}
        self.facts = {"kind": "reconstructions", "of": images.facts, "models": models}

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, start: int, stop: int) -> Tensor:
        """Return images [start, stop): float (b, c, h, w) in [0, 1]."""
        tokens = self.pipe.encode(self.images.batch(start, stop), self.batch_size)
        return self.pipe.images(tokens, "pt", self.batch_size)


def open_images(
    path: str | Path,
    num: int | None = None,
    split: Split = "train",
    image_size: tuple[int, int] | None = None,
    channels: int = 3,
) -> ImageSet:
    """Open the images at a path.

    path: an .npz with `arr_0`, a data set that `open_source` knows or, without `image_size`, a folder of images.
    num: the number of images, evenly spaced; not allowed for an .npz with `arr_0`.
    image_size: (height, width) to which a data set is cropped and resized; None keeps images as they are.
    channels: 1 or 3, for a data set with `image_size`.
    """
    path = Path(path)
    if "arr_0" in array_names(path):
        check_whole(path, num, split)
        images = SampleImages(path)
        if image_size is not None and images.image_size != image_size:
            found, wanted = (" x ".join(map(str, size)) for size in (images.image_size, image_size))
            raise InputError(f"{path} has images of {found} pixels; expected {wanted}")
        return images
    height, width = image_size or (None, None)
    if height != width:
        raise InputError(f"images are {height} x {width}; a data set can only be cropped to squares")
    flat = path.is_dir() and not any(child.is_dir() and not child.name.startswith(".") for child in path.iterdir())
    if flat and height is None and not has_known_files(path):
        return SourceImages(open_flat_folder(path), num=num)
    return SourceImages(open_source(path, split, max_corrupt=0), height, channels, num)


def check_whole(path: Path, num: int | None, split: Split) -> None:
    """Raise InputError if a number of images or a split is requested of a file that is only read as a whole."""
    if num is not None or split != "train":
        raise InputError(f"{path} is used as a whole; it has no splits, and no number of images can be selected")


def _state(source: FolderSource) -> str:
    """Return a hash of the names, sizes and modification times of the files, which changes if a file changes."""
    digest = hashlib.sha256()
    for name in map(source.name, range(len(source))):
        facts = (source.folder / name).stat()
        digest.update(f"{name}\0{facts.st_size}\0{facts.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
