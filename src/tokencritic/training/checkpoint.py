"""Checkpoints of a run: whole or not there, written while training goes on, readable by any number of ranks.

run/checkpoints/000001200/    `torch.distributed.checkpoint` files, and checkpoint.json, which is written last:
                              the step, whatever else the run notes, and a digest of every other file
"""

import collections
import hashlib
import json
import pathlib
import shutil
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint import filesystem
from torch.distributed.checkpoint import metadata as metadata_module
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save

from tokencritic.distribution import Ranks
from tokencritic.errors import InputError
from tokencritic.files import write_atomically
from tokencritic.foreign_weights import RestrictedUnpickler

NOTES = "checkpoint.json"
_ALL = "run"  # one name above all tensors: torch looks at each name of the top level at length
_NUM_NEWEST = 2  # one more than needed, for the day the newest is damaged


class Checkpoints:
    """The checkpoints of one run. All ranks make the same calls.

    keep_every: steps of which a checkpoint is kept for good, 0 is none. Otherwise the newest two are kept and the one with
    the lowest `validation_loss` in its notes.
    """

    def __init__(self, run: Path, ranks: Ranks, keep_every: int = 0) -> None:
        self.folder, self.ranks, self.keep_every = run / "checkpoints", ranks, keep_every
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def save(self, state: dict[str, Tensor], notes: dict[str, Any]) -> None:
        """Copy the tensors and return; they are written meanwhile. notes: JSON values, `step` among them."""
        self.finish()
        path = self.folder / f"{notes['step']:09}"
        partial = path.with_name(path.name + ".partial")
        if self.ranks.first:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        self.ranks.wait()
        one = self.ranks.size == 1
        _expect_one_process()
        writer = FileSystemWriter(partial, overwrite=False)
        written = async_save({_ALL: state}, storage_writer=writer, process_group=self.ranks.files, no_dist=one)
        self._pending = self._pool.submit(self._complete, written, partial, path, notes)

    def finish(self) -> None:
        """Wait for what is being written. An error in writing it comes out here."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _complete(self, written: Any, partial: Path, path: Path, notes: dict[str, Any]) -> None:
        try:
            written.result()
            if self.ranks.first:
                digests = {file.name: _digest(file) for file in sorted(partial.iterdir())}
                digests[NOTES] = _notes_digest(notes)
                text = json.dumps({**notes, "digests": digests}, indent=1)
                write_atomically(partial / NOTES, lambda file: file.write_text(text, encoding="utf-8"))
                shutil.rmtree(path, ignore_errors=True)  # the same step of a run that was set back by damage
                partial.rename(path)
                self._prune()
        except (Exception, CheckpointException) as error:  # the latter is no Exception
            if self.ranks.first:
                shutil.rmtree(partial, ignore_errors=True)
            last = f"; {self.folder} still has the ones before" if _steps(self.folder) else ""
            raise InputError(f"{path} could not be written: {_first(error)}{last}") from error

    def newest(self) -> dict[str, Any] | None:
        """The notes of the newest checkpoint that is whole, None if there is none. A damaged one is reported and set aside.

        Nothing must be being written: what a killed process left unfinished is removed.
        """
        return self.ranks.told_by_first(self._newest)

    def _newest(self) -> dict[str, Any] | None:
        for partial in self.folder.glob("*.partial"):
            shutil.rmtree(partial, ignore_errors=True)
        for path in _steps(self.folder):
            try:
                return _verified(path)
            except InputError as error:
                print(f"{error}; it is set aside and the one before is looked for", flush=True)
                aside = path.with_name(path.name + ".damaged")
                shutil.rmtree(aside, ignore_errors=True)
                path.rename(aside)
        return None

    def load(self, step: int, state: dict[str, Tensor]) -> None:
        """Fill the tensors in place from the checkpoint of this step."""
        load_tensors(self.folder / f"{step:09}", state, no_dist=self.ranks.size == 1)

    def _prune(self) -> None:
        paths = _steps(self.folder)
        best = _best(paths)
        for path in paths[_NUM_NEWEST:]:
            if path != best and not (self.keep_every and int(path.name) % self.keep_every == 0):
                shutil.rmtree(path)


def best_checkpoint(run: Path) -> Path:
    """The checkpoint of a run with the lowest validation loss."""
    best = _best(_steps(run / "checkpoints"))
    if best is None:
        raise InputError(f"{run} has no checkpoint with a validation loss")
    _verified(best)
    return best


def load_tensors(path: Path, state: dict[str, Tensor], no_dist: bool = True) -> None:
    """Fill the tensors in place from the checkpoint at `path`; they may be some of those it holds."""
    _expect_one_process()
    try:
        load({_ALL: state}, storage_reader=_Reader(path), no_dist=no_dist)
    except CheckpointException as error:
        raise InputError(f"{path} cannot be read: {_first(error)}") from error


def _expect_one_process() -> None:
    """Silence torch's single-process warning, which comes from a thread where no context could catch it."""
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")


def _verified(path: Path) -> dict[str, Any]:
    """The notes of a checkpoint whose every file is as it was written."""
    try:
        notes = json.loads((path / NOTES).read_text(encoding="utf-8"))
        digests = dict(notes.pop("digests"))
        if digests.pop(NOTES) != _notes_digest(notes):
            raise ValueError("it is not as it was written")
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged ({NOTES}: {error})") from error
    for name, digest in digests.items():
        if not (path / name).is_file():
            raise InputError(f"{path} is damaged ({name} is missing)")
        if _digest(path / name) != digest:
            raise InputError(f"{path} is damaged ({name} is not as it was written)")
    return notes


def _steps(folder: Path) -> list[Path]:
    """The checkpoints in a folder, newest first."""
    return sorted((path for path in folder.glob("*") if path.name.isdecimal()), reverse=True)


def _best(paths: list[Path]) -> Path | None:
    """The one with the lowest validation loss, if any has one; of equals the newest. Damaged ones have none."""
    losses: dict[Path, float] = {}
    for path in paths:
        with suppress(OSError, ValueError, LookupError, TypeError):
            if (loss := json.loads((path / NOTES).read_text(encoding="utf-8"))["validation_loss"]) is not None:
                losses[path] = loss
    return min(losses, key=losses.__getitem__, default=None)


def _notes_digest(notes: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(notes, sort_keys=True).encode()).hexdigest()


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _first(error: BaseException) -> BaseException:
    """The error of the first rank that had one, which `torch.distributed.checkpoint` wraps in its own."""
    if isinstance(error, CheckpointException) and error.failures:
        return next(iter(error.failures.values()))[0]
    return error


class _Reader(FileSystemReader):
    """Reads tensors alone. The usual reader unpickles whatever the metadata file holds; this one knows a handful of names."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        with (Path(self.path) / ".metadata").open("rb") as file:
            metadata = RestrictedUnpickler(file, _METADATA_NAMES).load()
        if not isinstance(metadata, Metadata):
            raise InputError(f"{self.path}/.metadata holds a {type(metadata).__name__}; expected Metadata")
        if not all(isinstance(entry, TensorStorageMetadata) for entry in metadata.state_dict_metadata.values()):
            raise InputError(f"{self.path} holds something else than tensors; it is not a checkpoint of ours")
        metadata.storage_meta = metadata.storage_meta or StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


_METADATA_CLASSES = (
    *("Metadata", "TensorStorageMetadata", "TensorProperties", "ChunkStorageMetadata", "MetadataIndex", "StorageMeta"),
    "_MEM_FORMAT_ENCODING",
)
# What the metadata of tensors is made of. Dtypes are known by what they are: a name such as `bool.__class__` leads anywhere.
_METADATA_NAMES = {("torch", name): value for name, value in vars(torch).items() if isinstance(value, torch.dtype)} | {
    (module.__name__, name): vars(module)[name]
    for module, names in (
        (torch, ("Size",)),
        (torch.serialization, ("_get_layout",)),
        (metadata_module, _METADATA_CLASSES),
        (filesystem, ("_StorageInfo",)),
        (pathlib, ("PosixPath", "WindowsPath")),
        (collections, ("OrderedDict",)),
    )
    for name in names
    if name in vars(module)
}
