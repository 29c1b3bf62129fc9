"""The folder of a training run: facts, log, pictures, checkpoints and the averaged model.

A checkpoint is a folder such as checkpoints/000001200/ and is written atomically. `state.safetensors` has every tensor
of the run. `checkpoint.json` has the step, other notes of the run, and a digest of both. Any number of ranks can load
it.
"""

import fcntl
import hashlib
import importlib.util
import json
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
from PIL import Image
from torch import Tensor

from tokencritic.distribution import Ranks, fill
from tokencritic.errors import InputError, check_at_least
from tokencritic.files import check_fields, read_json, reading, write_text
from tokencritic.models.saved import write_model
from tokencritic.pictures.grids import save
from tokencritic.pipeline_folder import KINDS
from tokencritic.training.settings import TrainingSettings
from tokencritic.training.task import Task

RUN, CHECKPOINTS, NOTES, STATE = "run.json", "checkpoints", "checkpoint.json", "state.safetensors"
_NUM_NEWEST = 2  # the newest checkpoints that are kept; the second one in case the first is damaged
_AVERAGE = "average."  # prefix of the averaged weights in a checkpoint


def read_run(folder: Path) -> tuple[str, dict[str, Any]]:
    """Read the name of the model that a run trains and the facts of its task from `run.json`."""
    file = folder / RUN
    if not file.is_file():
        raise InputError(f"{folder} has no {RUN}; expected the folder of a training run")
    values = read_json(file)
    if (
        not isinstance(values.get("name"), str)
        or values["name"] not in KINDS
        or not isinstance(values.get("facts"), dict)
    ):
        raise InputError(f"{file} has name {values.get('name')!r}; expected facts and one of {', '.join(KINDS)}")
    return values["name"], values["facts"]


def write_checkpoint(run: Path, state: dict[str, Tensor], notes: dict[str, Any], keep_every: int) -> None:
    """Write a checkpoint atomically and remove old ones.

    state: the tensors, gathered from all ranks.
    notes: JSON values, including `step`.
    keep_every: checkpoints of multiples of this step are kept; 0 for none.

    The two newest checkpoints and the one with the lowest `validation_loss` are also kept.
    """
    path = run / CHECKPOINTS / f"{notes['step']:09}"
    partial = path.with_name(path.name + ".partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        safetensors.torch.save_file(state, partial / STATE)
        text = json.dumps({**notes, "digest": _digest(partial / STATE, notes)}, indent=1)
        (partial / NOTES).write_text(text, encoding="utf-8")
        shutil.rmtree(path, ignore_errors=True)  # exists if the run restarted from an older checkpoint
        partial.rename(path)
        for old in set(_steps(run)[_NUM_NEWEST:]) - {_best(run)}:
            if not (keep_every and int(old.name) % keep_every == 0):
                shutil.rmtree(old)
    except (OSError, safetensors.SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        last = f"; {path.parent} still has earlier checkpoints" if _steps(run) else ""
        raise InputError(f"{path} could not be written: {error}{last}") from error


def newest_checkpoint(run: Path) -> dict[str, Any] | None:
    """Return the notes of the newest intact checkpoint, or None without any.

    Damaged checkpoints are reported and renamed. Unfinished ones of a killed process are removed.
    """
    for partial in (run / CHECKPOINTS).glob("*.partial"):
        shutil.rmtree(partial, ignore_errors=True)
    for path in _steps(run):
        try:
            return _verified(path)
        except InputError as error:
            aside = path.with_name(path.name + ".damaged")
            print(f"{path} is damaged: {error}; renamed to {aside.name}, trying the previous checkpoint", flush=True)
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)
    return None


def best_checkpoint(run: Path) -> Path:
    """Return the checkpoint of a run with the lowest validation loss."""
    if (best := _best(run)) is None:
        raise InputError(f"{run} has no checkpoint with a validation loss; expected at least one")
    _verified(best)
    return best


def load_tensors(path: Path, state: dict[str, Tensor]) -> None:
    """Fill tensors in place from the checkpoint at `path`. The checkpoint may have other tensors too."""
    with reading(path, "a checkpoint of this model"), safetensors.safe_open(path / STATE, "pt") as file:
        for name, tensor in state.items():
            fill(tensor, file.get_tensor(name))


def _verified(path: Path) -> dict[str, Any]:
    """Return the notes of a checkpoint after comparing its digest."""
    notes = read_json(path / NOTES)
    with reading(path, "as it was written"):
        if notes.pop("digest") != _digest(path / STATE, notes):
            raise ValueError("the digest differs")
    kinds = {"step": int, "facts": dict, "log_size": int, "first_losses": list, "seconds": float}
    check_fields(path / NOTES, notes, kinds)
    check_at_least(0, **{name: notes[name] for name in ("step", "log_size", "seconds")})
    if not all(isinstance(loss, float) for loss in notes["first_losses"]):
        raise InputError(f"{path / NOTES}: first_losses is {notes['first_losses']!r:.60}; expected numbers")
    return notes


def _digest(file: Path, notes: dict[str, Any]) -> str:
    """Return the SHA-256 of a file and the notes."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
    digest.update(json.dumps(notes, sort_keys=True).encode())
    return digest.hexdigest()


def _steps(run: Path) -> list[Path]:
    """Return the checkpoints of a run, newest first."""
    return sorted((path for path in (run / CHECKPOINTS).glob("*") if path.name.isdecimal()), reverse=True)


def _best(run: Path) -> Path | None:
    """Return the checkpoint with the lowest validation loss, the newest in case of a tie, or None.

    Checkpoints without a validation loss or with damaged notes are ignored.
    """
    losses: dict[Path, float] = {}
    for path in _steps(run):
        with suppress(InputError):
            if isinstance(loss := read_json(path / NOTES).get("validation_loss"), int | float):
                losses[path] = loss
    return min(losses, key=losses.__getitem__, default=None)


class RunFolder:
    """The folder of one run. All ranks make the same calls, and the first rank writes.

    Nothing is written before `claimed`.

    model: the folder of the averaged model.
    """

    def __init__(self, path: Path, task: Task, settings: TrainingSettings, ranks: Ranks) -> None:
        self.path, self.task, self.ranks, self.model = path, task, ranks, path / task.name
        self._keep_every = settings.keep_every
        own = {"batch_size": settings.batch_size, "seed": settings.seed, "held_out": settings.held_out}
        self.facts: dict[str, Any] = json.loads(json.dumps(task.facts())) | own
        self._log, self._writer, self._tensorboard = path / "log.jsonl", None, settings.tensorboard
        if self._tensorboard and importlib.util.find_spec("tensorboard") is None:
            raise InputError("tensorboard is true, but TensorBoard is not installed; pip install tensorboard")

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Return a context that locks the folder for this run. Raises InputError if another run has locked it."""
        with ExitStack() as stack:

            def lock() -> None:
                self.path.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context((self.path / ".lock").open("w"))
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    raise InputError(f"{self.path} is in use by another run; choose another folder") from error

            self.ranks.from_first(lock)
            yield

    def restore(self, state: dict[str, Tensor], settings_text: str | None) -> dict[str, Any]:
        """Fill the tensors from the newest checkpoint, if any, and write `run.json`. Returns the checkpoint's notes.

        The notes of a new run have step 0. Lines that an interrupted run logged after its last checkpoint are removed,
        because their steps are repeated.
        """
        found = self.ranks.from_first(lambda: newest_checkpoint(self.path))
        if found is not None:
            for name, now in self.facts.items():
                if (there := found["facts"].get(name)) != now:
                    pair = f"{name} {_differing(there, now)}, and this run has {_differing(now, there)}"
                    raise InputError(f"{self.path} has {pair}; choose another run folder")
            load_tensors(self.path / CHECKPOINTS / f"{found['step']:09}", state)
        notes = found or {"step": 0, "seconds": 0.0, "first_losses": [], "log_size": 0}
        if self.ranks.first:
            for place in (self.path, self.model):
                for leftover in place.glob(".*.tmp"):  # left by a process that was killed while writing
                    leftover.unlink()
            write_text(self.path / RUN, json.dumps({"name": self.task.name, "facts": self.facts}, indent=1))
            if settings_text is not None:
                write_text(self.path / "settings.yaml", settings_text)
            if found is not None:
                print(f"resuming at step {found['step']}", flush=True)
            self._log.touch()
            os.truncate(self._log, min(notes["log_size"], self._log.stat().st_size))
        if self._tensorboard and self.ranks.first:
            from torch.utils.tensorboard.writer import SummaryWriter

            self._writer = SummaryWriter(str(self.path / "tensorboard"), purge_step=notes["step"])
        return notes

    def log(self, kind: str, step: int, numbers: dict[str, float], pictures: dict[str, Image.Image]) -> None:
        """Append a line to the log, and write each picture as a PNG that replaces the previous one of its name.

        kind: `training` or `validation`.
        step: the index of the training step, or the number of steps done before the validation.
        """
        if not self.ranks.first:
            return
        known = {name: finite(value) for name, value in numbers.items()}
        try:
            with self._log.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"kind": kind, "step": step, **known}) + "\n")
        except OSError as error:  # a full disk
            raise InputError(f"{self._log} could not be written: {error.strerror or error}") from error
        if self._writer is not None:
            for name, value in numbers.items():
                self._writer.add_scalar(f"{kind}/{name}", value, step)
        for name, picture in pictures.items():
            (self.path / "pictures").mkdir(exist_ok=True)
            save(picture, self.path / "pictures" / f"{name}.png")
            if self._writer is not None:
                self._writer.add_image(name, np.asarray(picture.convert("RGB")), step, dataformats="HWC")

    def save(self, state: dict[str, Tensor], notes: dict[str, Any]) -> None:
        """Write the averaged model and a checkpoint.

        state: as returned by `Learner.gathered`.
        """
        averaged = {name.removeprefix(_AVERAGE): state[name] for name in state if name.startswith(_AVERAGE)}

        def write() -> None:
            write_model(self.model, self.task.model.config, averaged)
            own = {"facts": self.facts, "log_size": self._log.stat().st_size}
            write_checkpoint(self.path, state, notes | own, self._keep_every)

        self.ranks.from_first(write)

    def close(self, what: str) -> None:
        """Close the logs and print how the run ended."""
        if self._writer is not None:
            self._writer.close()
        if self.ranks.first:
            print(what, flush=True)

    def refuse(self, step: int, loss: float, norm: float, rows: list[int]) -> None:
        """Raise InputError for a loss that is not finite or explodes, after writing its batch to `stopped.json`."""
        found = self.ranks.from_first(lambda: newest_checkpoint(self.path))
        last = f"the last checkpoint is of step {found['step']}" if found else "there is no checkpoint yet"
        file, seen = self.path / "stopped.json", {"step": step, "loss": str(loss), "norm": str(norm), "rows": rows}
        if self.ranks.first:
            write_text(file, json.dumps(seen))
        about = f"the loss is {loss:.4g} and the gradient norm is {norm:.4g} at step {step}"
        raise InputError(f"{about}, on rows {rows[:8]} ... (all rows are in {file}); {last}")


def finite(value: float) -> float | None:
    """Return the value, or None for NaN and infinity, which JSON does not have."""
    return value if math.isfinite(value) else None


def _differing(fact: Any, other: Any) -> Any:
    """Return a fact or, if both are dictionaries, only the entries that differ from the other's."""
    if not (isinstance(fact, dict) and isinstance(other, dict)):
        return fact
    return {name: value for name, value in fact.items() if name not in other or other[name] != value}
