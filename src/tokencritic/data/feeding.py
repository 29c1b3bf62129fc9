"""Reading ahead: the results of a pure function, computed in worker processes before they are asked for.

Workers are started by `spawn`, which torch recommends: a forked copy of a process with threads, such as those of
autograd and OpenMP, may hang. A worker started so imports torch anew, which takes seconds, so few images are read in
the process itself.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from threading import Thread
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from tokencritic.errors import InputError, check_at_least

T = TypeVar("T")
FEW = 1000  # images that are read in about the time in which a worker starts
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def read_ahead(
    read: Callable[..., T], calls: Iterable[tuple[Any, ...]], images: int, workers: int, device: torch.device
) -> Iterator[Iterator[T]]:
    """A context with the results of calls of a function, in the order of the calls. No worker is left behind.

    read: a function that can be pickled and whose result depends on its arguments alone.
    calls: the arguments of each call.
    images: the number of images that all calls read.
    workers: processes that read; 0 reads in this process when a result is asked for, as do fewer images than `FEW`.
    device: where the results will go. Tensors for a GPU are pinned.
    """
    check_at_least(0, workers=workers)
    if workers == 0 or images < FEW:
        yield (read(*call) for call in calls)
        return
    loader: DataLoader[Any] = DataLoader(
        _Calls(read),
        batch_size=None,
        sampler=calls,
        num_workers=workers,
        collate_fn=_unchanged,
        worker_init_fn=_end_with_parent,
        multiprocessing_context="spawn",
        pin_memory=device.type == "cuda",
        generator=torch.Generator(),  # torch's global one would be advanced
    )
    iterator: Any = None
    try:
        with _signals_held():  # workers inherit that these signals are held
            iterator = iter(loader)
        yield map(_checked, iterator)
    except RuntimeError as error:
        if not str(error).startswith("DataLoader worker (pid"):
            raise
        reason = " ".join(str(error).split())
        advice = "it may lack memory, or shared memory in /dev/shm; give fewer workers, or 0"
        raise InputError(f"a process that reads images has ended: {reason:.200}; {advice}") from error
    finally:
        if iterator is not None:
            with _signals_held():
                iterator._shutdown_workers()  # deleting it would wait for tracebacks that refer to it


class _Calls(Dataset[Any]):
    """The calls of a function as a data set, whose indices are arguments."""

    def __init__(self, read: Callable[..., Any]) -> None:
        self.read = read

    def __getitem__(self, index: tuple[Any, ...]) -> Any:
        try:
            return self.read(*index)
        except (InputError, OSError) as error:
            return error  # torch would put the worker's traceback into the message


def _checked(result: Any) -> Any:
    if isinstance(result, Exception):
        raise result
    return result


def _unchanged(result: T) -> T:
    """Replace torch's conversion of arrays to tensors."""
    return result


def _end_with_parent(_worker: int) -> None:
    """End this worker as soon as its parent has ended, even if it was killed and whatever the worker waits for."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()


@contextmanager
def _signals_held() -> Iterator[None]:
    """A context in which Ctrl-C and SIGTERM wait, also for the processes that are started in it.

    These signals often go to all processes of a group. The parent decides what they mean, and may need one more batch.
    """
    resource_tracker.ensure_running()  # its start would let the signals through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
