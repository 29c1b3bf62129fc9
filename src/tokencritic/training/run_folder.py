"""What a run writes: its facts, checkpoints, log and pictures, and the averaged model."""

import fcntl
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from tokencritic.distribution import Ranks
from tokencritic.errors import InputError
from tokencritic.files import write_atomically
from tokencritic.models.saved import write_model
from tokencritic.training.checkpoint import Checkpoints
from tokencritic.training.log import RunLog, find_tensorboard
from tokencritic.training.settings import TrainingSettings
from tokencritic.training.task import Task


class RunFolder:
    """The folder of one run; nothing is written before `claimed`. All ranks make the same calls, and the first one writes."""

    def __init__(self, path: Path, task: Task[Any], settings: TrainingSettings, ranks: Ranks) -> None:
        self.path, self.task, self.ranks = path, task, ranks
        self.checkpoints = Checkpoints(path, ranks, settings.keep_every)
        own = {"batch_size": settings.batch_size, "seed": settings.seed, "held_out": settings.held_out}
        self.facts: dict[str, Any] = json.loads(json.dumps(task.facts())) | own
        self._writer = find_tensorboard() if settings.tensorboard and ranks.first else None
        self.log: RunLog | None = None

    @property
    def model(self) -> Path:
        """Where the averaged weights are."""
        return self.path / self.task.name

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """The folder, for this run alone: two that write into one would spoil both."""
        with ExitStack() as stack:
            taken = False
            if self.ranks.first:
                self.path.mkdir(parents=True, exist_ok=True)
                lock = stack.enter_context((self.path / ".lock").open("w"))
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    taken = True
            if self.ranks.told(taken):
                raise InputError(
                    f"{self.path} is in use by another training; wait for its end, or choose another run folder"
                )
            try:
                yield
            finally:  # after an error too: the folder is not left while a thread still writes to it
                self.checkpoints.finish()

    def restore(self, state: dict[str, Tensor], settings_text: str | None) -> dict[str, Any] | None:
        """Fill the tensors from the newest checkpoint, and note what this run is. Returns its notes, None without any."""
        notes = self.checkpoints.newest()
        if notes is not None:
            for name, now in self.facts.items():
                if (there := notes["facts"].get(name)) != now:
                    pair = f"{_differing(there, now)} there, {_differing(now, there)} now"
                    raise InputError(f"{self.path} has another {name} ({pair}); choose another run folder")
            self.checkpoints.load(notes["step"], state)
        if self.ranks.first:
            for place in (self.path, self.model):
                for leftover in place.glob(".*.tmp"):  # of a process that was killed while it wrote
                    leftover.unlink()
            self._write("run.json", json.dumps({"name": self.task.name, "facts": self.facts}, indent=1))
            if settings_text is not None:
                self._write("settings.yaml", settings_text)
            if notes is not None:
                print(f"going on at step {notes['step']}", flush=True)
            self.log = RunLog(self.path, notes["step"] if notes else 0, self._writer)
        return notes

    def save(self, averaged: dict[str, Tensor], state: dict[str, Tensor], notes: dict[str, Any]) -> None:
        """Write the averaged model and start to write a checkpoint."""
        if self.ranks.first:
            write_model(self.model, self.task.model.config, averaged)
        self.checkpoints.save(state, notes | {"facts": self.facts})

    def refuse(self, step: int, loss: float, norm: float, rows: list[int]) -> None:
        """Stop the run for a loss that is not finite or explodes: note what it saw, and raise InputError."""
        self.checkpoints.finish()
        found = self.checkpoints.newest()
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


def _differing(fact: Any, other: Any) -> Any:
    """A fact, or of a group of them those that the other has not."""
    if not (isinstance(fact, dict) and isinstance(other, dict)):
        return fact
    return {name: value for name, value in fact.items() if name not in other or other[name] != value}
