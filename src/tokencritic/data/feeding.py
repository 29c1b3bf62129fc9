"""Reading ahead: worker processes compute the results of a pure function before they are needed.

Workers are started by `spawn`, as torch recommends. A forked copy of a process with threads, such as those of autograd
and OpenMP, may hang. A spawned worker imports torch again, which takes seconds. Small numbers of images are therefore
read without workers.
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
FEW = 1000  # number of images read in about the time that a worker takes to start
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def read_ahead(
    read: Callable[..., T], calls: Iterable[tuple[Any, ...]], images: int, workers: int, device: torch.device
) -> Iterator[Iterator[T]]:
    """Return a context with the results of calls of a function, in the order of the calls. It ends all workers on exit.

    read: a function that can be pickled and whose result depends only on its arguments.
    calls: the arguments of each call.
    images: the number of images that all calls read.
    workers: processes that read. With 0, or fewer images than `FEW`, this process reads each result on request.
    device: the device that the results will be copied to. Tensors for a GPU are pinned.
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
        generator=torch.Generator(),  # by default the loader would advance torch's global generator
    )
    iterator: Any = None
    try:
        with _signals_held():  # workers inherit the blocked signals
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
                iterator._shutdown_workers()  # tracebacks may refer to the iterator and delay its deletion


class _Calls(Dataset[Any]):
    """The calls of a function as a data set. An index is a tuple of arguments."""

    def __init__(self, read: Callable[..., Any]) -> None:
        self.read = read

    def __getitem__(self, index: tuple[Any, ...]) -> Any:
        try:
            return self.read(*index)
        except (InputError, OSError) as error:
            return error  # if it were raised, torch would add the worker's traceback to the message


def _checked(result: Any) -> Any:
    if isinstance(result, Exception):
        raise result
    return result


def _unchanged(result: T) -> T:
    """Return the result unchanged, instead of torch's conversion of arrays to tensors."""
    return result


def _end_with_parent(_worker: int) -> None:
    """End this worker when its parent ends, even if the parent is killed or the worker waits."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()


@contextmanager
def _signals_held() -> Iterator[None]:
    """Return a context that blocks Ctrl-C and SIGTERM, also in the processes that are started in it.

    These signals often reach all processes of a group. The parent handles them, and may need one more batch.
    """
    resource_tracker.ensure_running()  # starting it later would unblock the signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
