"""Distributed work: the ranks of a run, their communication, and the distribution of a model over them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from tokencritic.contracts import Trunk
from tokencritic.errors import InputError
from tokencritic.launch import read_launch

T = TypeVar("T")
_PATIENCE = timedelta(hours=6)  # other ranks wait while the first one computes metrics or hashes a checkpoint


@dataclass(frozen=True)
class Ranks:
    """The ranks of a run.

    rank: the index of this process.
    size: the number of processes.
    device: the device of this process.
    """

    rank: int
    size: int
    device: torch.device

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, count: int, group: int = 1) -> list[int]:
        """Return this rank's part of the numbers 0 to count - 1. Ranks take groups of consecutive numbers in turn."""
        return [number for number in range(count) if number // group % self.size == self.rank]

    def largest(self, values: list[float]) -> list[float]:
        """Return the elementwise maximum over all ranks. Ranks use it to agree on values that one of them knows."""
        if self.size == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return tensor.tolist()

    def total(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all ranks in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def from_first(self, work: Callable[[], T]) -> T:
        """Run `work` on the first rank, and return its result on all ranks.

        An InputError is raised on all ranks, so that no rank keeps waiting.
        """
        box: list[Any] = [None, None]
        if self.first:
            try:
                box[0] = work()
            except InputError as error:
                box[1] = error
        if self.size > 1:
            dist.broadcast_object_list(box, 0)
        if box[1] is not None:
            raise box[1]
        return box[0]

    def spread(self, count: int, work: Callable[[int], T]) -> list[T]:
        """Run `work` for the numbers 0 to count - 1, each on one rank, and return all results in order on all ranks.

        An InputError is raised on all ranks, so that no rank keeps waiting.
        """
        mine: dict[int, Any] = {}
        for number in self.share(count):
            try:
                mine[number] = work(number)
            except InputError as error:
                mine[number] = error
        parts: list[Any] = [mine]
        if self.size > 1:
            parts = [None] * self.size
            dist.all_gather_object(parts, mine)
        results = {number: result for part in parts for number, result in part.items()}
        for number in range(count):
            if isinstance(results[number], InputError):
                raise results[number]
        return [results[number] for number in range(count)]

    def gathered(self, value: T) -> list[T]:
        """Return the values of all ranks in their order on the first rank, and an empty list on the others."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size if self.first else []
        dist.gather_object(value, values if self.first else None)
        return values

    def wait(self) -> None:
        """Wait until all ranks have called this method."""
        if self.size > 1:
            dist.barrier()


ALONE = Ranks(0, 1, torch.device("cpu"))


@contextmanager
def joined(device: str = "cpu") -> Iterator[Ranks]:
    """Return a context with the ranks of `torchrun`, or with one rank. Each process of a machine uses its own GPU."""
    rank, size, local_rank = read_launch()
    place = torch.device(device)
    if place.type == "cuda" and place.index is None:
        place = torch.device("cuda", local_rank)
        torch.cuda.set_device(place)
    if size > 1:
        # Ranks exchange decisions on the CPU and gradients on the device.
        backend = "cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=_PATIENCE)
    try:
        yield Ranks(rank, size, place)
    finally:
        if size > 1:
            dist.destroy_process_group()


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a CPU tensor on a device, without waiting for the copy."""
    if device.type == "cuda":
        tensor = tensor.pin_memory()  # from pageable memory the copy would not be asynchronous
    return tensor.to(device, non_blocking=True)


def distribute(model: nn.Module, ranks: Ranks, how: Literal["ddp", "fsdp"]) -> nn.Module:
    """Prepare a model for training on several ranks. ddp wraps the model, fsdp shards it in place, block by block."""
    if ranks.size == 1:
        return model
    if how == "ddp":
        return DistributedDataParallel(model)
    blocks = [block for module in model.modules() if isinstance(module, Trunk) for block in module.blocks]
    if not blocks:
        raise InputError(f"distribution is fsdp; choose ddp, because a {type(model).__name__} has no trunk")
    mesh = dist.device_mesh.init_device_mesh(ranks.device.type, (ranks.size,))
    for block in blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def unwrapped(network: Any) -> Any:
    """Return the model that a DDP wrapper contains, or the network itself. The wrapper hides the model's attributes."""
    return network.module if isinstance(network, DistributedDataParallel) else network


def local(tensor: Tensor) -> Tensor:
    """Return this rank's shard of a tensor, or the tensor itself if it is not sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """Return the full tensor, gathered from all ranks if it is sharded. Every rank must call this function."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def fill(tensor: Tensor, values: Tensor) -> None:
    """Copy the values of a full tensor into a tensor. A sharded tensor receives this rank's part."""
    if isinstance(tensor, DTensor):
        values = values.to(tensor.device)
        values = distribute_tensor(values, tensor.device_mesh, tensor.placements, src_data_rank=None)
    tensor.copy_(values)
