"""What a run writes: its facts, checkpoints, log and pictures, and the averaged model."""

import fcntl
import importlib.util
import json
import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from tokencritic.distribution import Ranks
from tokencritic.errors import InputError
from tokencritic.files import read_json, write_atomically
from tokencritic.models.saved import write_model
from tokencritic.pictures.grids import save
from tokencritic.pipeline_folder import KINDS
from tokencritic.training.checkpoint import Checkpoints, load_tensors
from tokencritic.training.settings import TrainingSettings
from tokencritic.training.task import Task

RUN = "run.json"
_AVERAGE = "average."  # before the names of the averaged weights in a checkpoint


def read_run(folder: Path) -> tuple[str, dict[str, Any]]:
    """The name of the part that a run trains, and the facts of its task."""
    file = folder / RUN
    if not file.is_file():
        raise InputError(f"{folder} has no {RUN}; expected the folder of a training run")
    values = read_json(file)
    if values.get("name") not in KINDS or not isinstance(values.get("facts"), dict):
        raise InputError(f"{file} has name {values.get('name')!r}; expected one of {', '.join(KINDS)}, and facts")
    return values["name"], values["facts"]


class RunFolder:
    """The folder of one run; nothing is written before `claimed`. All ranks make the same calls, and the first one writes.

    model: where the averaged weights are.
    """

    def __init__(self, path: Path, task: Task[Any], settings: TrainingSettings, ranks: Ranks) -> None:
        self.path, self.task, self.ranks, self.model = path, task, ranks, path / task.name
        self.checkpoints = Checkpoints(path, settings.keep_every)
        own = {"batch_size": settings.batch_size, "seed": settings.seed, "held_out": settings.held_out}
        self.facts: dict[str, Any] = json.loads(json.dumps(task.facts())) | own
        self._log, self._writer, self._tensorboard = path / "log.jsonl", None, settings.tensorboard and ranks.first
        if self._tensorboard and importlib.util.find_spec("tensorboard") is None:
            raise InputError("tensorboard is true but it is not installed; pip install tensorboard")

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """The folder, for this run alone: two that write into one would spoil both."""
        with ExitStack() as stack:
            self.ranks.told_by_first(lambda: self._lock(stack))
            try:
                yield
            finally:  # after an error too: the folder is not left while a thread still writes to it
                self.checkpoints.wait()

    def _lock(self, stack: ExitStack) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        lock = stack.enter_context((self.path / ".lock").open("w"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                f"{self.path} is in use by another training; wait for its end, or choose another run folder"
            ) from error

    def restore(self, state: dict[str, Tensor], settings_text: str | None) -> dict[str, Any]:
        """Fill the tensors from the newest checkpoint, and note what this run is. Returns its notes, of a new run step 0.

        What an interrupted run logged after its last checkpoint is removed, because it happens again.
        """
        found = self.ranks.told_by_first(self.checkpoints.newest)
        if found is not None:
            for name, now in self.facts.items():
                if (there := found["facts"].get(name)) != now:
                    pair = f"{_differing(there, now)} there, {_differing(now, there)} now"
                    raise InputError(f"{self.path} has another {name} ({pair}); choose another run folder")
            load_tensors(self.checkpoints.folder / f"{found['step']:09}", state)
        notes = found or {"step": 0, "seconds": 0.0, "first_losses": []}
        if self.ranks.first:
            for place in (self.path, self.model):
                for leftover in place.glob(".*.tmp"):  # of a process that was killed while it wrote
                    leftover.unlink()
            self._write(RUN, json.dumps({"name": self.task.name, "facts": self.facts}, indent=1))
            if settings_text is not None:
                self._write("settings.yaml", settings_text)
            if found is not None:
                print(f"going on at step {found['step']}", flush=True)
            self._open_log(notes["step"])
        return notes

    def _open_log(self, step: int) -> None:
        if self._log.exists():
            lines = [line for line in self._log.read_text(encoding="utf-8").splitlines(True) if _before(line, step)]
            self._write(self._log.name, "".join(lines))
        if self._tensorboard:
            from torch.utils.tensorboard.writer import SummaryWriter

            self._writer = SummaryWriter(str(self.path / "tensorboard"), purge_step=step)

    def log(self, kind: str, step: int, numbers: dict[str, float], pictures: dict[str, Image.Image]) -> None:
        """Add a line to the log, and keep the newest picture of each name as a PNG.

        kind: `training`, after this step's update, or `validation`, after so many steps.
        """
        if not self.ranks.first:
            return
        known = {name: finite(value) for name, value in numbers.items()}
        with self._log.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "step": step, **known}) + "\n")
        for name, picture in pictures.items():
            (self.path / "pictures").mkdir(exist_ok=True)
            save(picture, self.path / "pictures" / f"{name}.png")
        if self._writer is not None:
            for name, value in numbers.items():
                self._writer.add_scalar(f"{kind}/{name}", value, step)
            for name, picture in pictures.items():
                self._writer.add_image(name, np.asarray(picture.convert("RGB")), step, dataformats="HWC")

    def save(self, state: dict[str, Tensor], notes: dict[str, Any]) -> None:
        """Write the averaged model and start to write a checkpoint. state: as `Learner.gathered` returns it."""
        averaged = {name.removeprefix(_AVERAGE): state[name] for name in state if name.startswith(_AVERAGE)}

        def write() -> None:
            write_model(self.model, self.task.model.config, averaged)
            self.checkpoints.save(state, notes | {"facts": self.facts})

        self.ranks.told_by_first(write)

    def close(self, what: str) -> None:
        """Wait for the last checkpoint and say what became of the run."""
        self.ranks.told_by_first(self.checkpoints.wait)
        if self._writer is not None:
            self._writer.close()
        if self.ranks.first:
            print(what, flush=True)

    def refuse(self, step: int, loss: float, norm: float, rows: list[int]) -> None:
        """Stop the run for a loss that is not finite or explodes: note what it saw, and raise InputError."""
        found = self.ranks.told_by_first(self.checkpoints.newest)
        last = f"checkpoint {found['step']} is the last good one" if found else "there is no checkpoint yet"
        if self.ranks.first:
            seen = {"step": step, "loss": str(loss), "norm": str(norm), "rows": rows}
            self._write("stopped.json", json.dumps(seen))
        raise InputError(
            f"the loss is {loss:.4g} and the gradient's norm {norm:.4g} at step {step}, on the rows {rows[:8]} ... (all of "
            f"them in {self.path / 'stopped.json'}); {last}"
        )

    def _write(self, name: str, text: str) -> None:
        write_atomically(self.path / name, lambda path: path.write_text(text, encoding="utf-8"))


def finite(value: float) -> float | None:
    """JSON has no nan: None instead."""
    return value if math.isfinite(value) else None


def _before(line: str, step: int) -> bool:
    """Whether a line was written before the checkpoint of this step; a half-written last line was not."""
    try:
        found = json.loads(line)
        return found["step"] < step + (found["kind"] == "validation")
    except (ValueError, KeyError, TypeError):
        return False


def _differing(fact: Any, other: Any) -> Any:
    """A fact, or of a group of them those that the other has not."""
    if not (isinstance(fact, dict) and isinstance(other, dict)):
        return fact
    return {name: value for name, value in fact.items() if name not in other or other[name] != value}
