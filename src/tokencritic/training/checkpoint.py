"""Checkpoints of a run: whole or not there, written while training goes on, readable by any number of ranks.

run/checkpoints/000001200/    state.safetensors, every tensor of the run, and checkpoint.json: the step, whatever else the
                              run notes, and a digest of both
"""

import hashlib
import json
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from tokencritic.distribution import fill
from tokencritic.errors import InputError

NOTES, STATE = "checkpoint.json", "state.safetensors"
_NUM_NEWEST = 2  # one more than needed, in case the newest is damaged


class Checkpoints:
    """The checkpoints of one run, for the one process that writes them.

    keep_every: steps of which a checkpoint is kept for good, 0 is none. Otherwise the newest two are kept and the one with
    the lowest `validation_loss` in its notes.
    """

    def __init__(self, run: Path, keep_every: int) -> None:
        self.folder, self.keep_every = run / "checkpoints", keep_every
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None

    def save(self, state: dict[str, Tensor], notes: dict[str, Any]) -> None:
        """Start to write a checkpoint. state: whole tensors that nobody changes. notes: JSON values, `step` among them."""
        self.wait()
        self._pending = self._pool.submit(self._write, self.folder / f"{notes['step']:09}", state, notes)

    def wait(self) -> None:
        """Wait for what is being written. An error in writing it is raised here."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _write(self, path: Path, state: dict[str, Tensor], notes: dict[str, Any]) -> None:
        partial = path.with_name(path.name + ".partial")
        try:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
            safetensors.torch.save_file(state, partial / STATE)
            text = json.dumps({**notes, "digest": _digest(partial / STATE, notes)}, indent=1)
            (partial / NOTES).write_text(text, encoding="utf-8")
            shutil.rmtree(path, ignore_errors=True)  # the same step of a run that was set back by damage
            partial.rename(path)
            self._prune()
        except (OSError, safetensors.SafetensorError) as error:
            shutil.rmtree(partial, ignore_errors=True)
            last = f"; {self.folder} still has the ones before" if _steps(self.folder) else ""
            raise InputError(f"{path} could not be written: {error}{last}") from error

    def newest(self) -> dict[str, Any] | None:
        """The notes of the newest checkpoint that is whole, None if there is none. A damaged one is reported and set aside.

        What a killed process left unfinished is removed.
        """
        self.wait()
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


def load_tensors(path: Path, state: dict[str, Tensor]) -> None:
    """Fill the tensors in place from the checkpoint at `path`; they may be some of those it holds."""
    try:
        with safetensors.safe_open(path / STATE, "pt") as file:
            for name, tensor in state.items():
                fill(tensor, file.get_tensor(name))
    except (OSError, RuntimeError, safetensors.SafetensorError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _verified(path: Path) -> dict[str, Any]:
    """The notes of a checkpoint whose files are as they were written."""
    try:
        notes = json.loads((path / NOTES).read_text(encoding="utf-8"))
        if notes.pop("digest") != _digest(path / STATE, notes):
            raise ValueError("its digest is another")
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is damaged ({error})") from error
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


def _digest(file: Path, notes: dict[str, Any]) -> str:
    """A sha256 of the file and the notes."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
    digest.update(json.dumps(notes, sort_keys=True).encode())
    return digest.hexdigest()
