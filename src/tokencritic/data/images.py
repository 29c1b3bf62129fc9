"""Images for training: which ones is the caller's to say, and each is a pure function of (seed, step, row)."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from tokencritic.data.source import Source
from tokencritic.data.transforms import Preprocess, to_float
from tokencritic.errors import InputError


class ImageBatches:
    """Call with rows (the numbers of examples) and a step, get images cropped and flipped anew for that step.

    A file that cannot be decoded is replaced by the next one after it that can, whatever else is in the batch.
    """

    def __init__(self, source: Source, preprocess: Preprocess, seed: int = 0, workers: int = 4) -> None:
        if len(source) == 0:
            raise InputError("source holds no image; there is nothing to train on")
        self.source, self.preprocess, self.seed = source, preprocess, seed
        self._plain = dataclasses.replace(preprocess, crop="center", flip=False)
        self._pool = ThreadPoolExecutor(workers)

    def __len__(self) -> int:
        return len(self.source)

    def __call__(self, rows: Tensor, step: int | None) -> Tensor:
        """rows: (b,) int64. step: None for the middle of each image, unflipped. Returns float (b, c, h, w) in [0, 1]."""
        return self.labelled(rows, step)[0]

    def labelled(self, rows: Tensor, step: int | None) -> tuple[Tensor, Tensor]:
        """As a call, with the labels: (b,) int64."""
        indices = rows.cpu().numpy()
        if self.source.images is not None:
            images, labels = self.source.images[indices], self.source.labels[indices]
        else:
            images, labels = zip(*self._pool.map(self._whole, indices.tolist()), strict=True)
        preprocess = self._plain if step is None else self.preprocess
        pixels = preprocess.batch(images, indices, seed=self.seed, crop_number=step or 0)
        return to_float(pixels), torch.from_numpy(np.asarray(labels, np.int64))

    def facts(self) -> dict[str, Any]:
        """What decides the images, as JSON values: where they come from and how they are cropped."""
        return {"source": self.source.describe(), "preprocess": dataclasses.asdict(self.preprocess)}

    def _whole(self, row: int) -> tuple[Image.Image, int]:
        for place in range(row, row + len(self.source)):
            example = self.source[place % len(self.source)]
            if example is not None:
                return example
        raise InputError(f"no image of the source can be decoded; the first is {self.source.name(row)}")
