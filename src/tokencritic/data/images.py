"""Batches of images for training, each a pure function of the step."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from torch import Tensor

from tokencritic.data.order import ExampleOrder
from tokencritic.data.sources import Source
from tokencritic.data.transforms import Preprocess, to_float
from tokencritic.errors import InputError


class ImageBatches:
    """Call with a step, get its images: float (b, c, h, w) in [0, 1], shuffled anew each epoch and cropped anew each step."""

    def __init__(
        self, source: Source, preprocess: Preprocess, batch_size: int, seed: int = 0, workers: int = 4
    ) -> None:
        self.source, self.preprocess, self.seed = source, preprocess, seed
        self.order = ExampleOrder(len(source), batch_size, seed)
        self._pool = ThreadPoolExecutor(workers)

    def __call__(self, step: int) -> Tensor:
        indices = self.order.batch(step)
        read_batch = getattr(self.source, "batch", None)
        if read_batch is not None:
            images, _ = read_batch(indices)
        else:
            examples = list(self._pool.map(self.source.__getitem__, indices.tolist()))
            whole = [place for place, example in enumerate(examples) if example is not None]
            if not whole:
                raise InputError(
                    f"no image of step {step} can be decoded; the first is {self.source.name(int(indices[0]))}"
                )
            # A corrupt file's place is taken by another image of the batch: the batch keeps its size.
            whole = np.resize(whole, len(examples))
            indices, images = indices[whole], [examples[place][0] for place in whole]  # pyright: ignore[reportOptionalSubscript]
        return to_float(self.preprocess.batch(images, indices, seed=self.seed, pass_number=step))
