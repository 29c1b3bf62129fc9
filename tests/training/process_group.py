"""A process group of one, for wrappers that need a group."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist


@contextmanager
def process_group() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=0, world_size=1)
        try:
            yield
        finally:
            dist.destroy_process_group()
