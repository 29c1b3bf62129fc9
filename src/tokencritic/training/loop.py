"""The training loop. One loop trains every model; the task defines the model and its loss.

Examples, masks and samples of a step are functions of (seed, step). Dropout also depends on the rank. A resumed run
therefore ends with the same weights as an uninterrupted one. Without dropout this also holds for another number of
ranks. A tokenizer must be resumed with the same number of ranks, because dead codes are replaced by latents of the
first rank.
"""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from tokencritic.bounds import TRAINING_STEPS
from tokencritic.data.order import ExampleOrder, hold_out, spaced
from tokencritic.distribution import Ranks, joined
from tokencritic.errors import InputError
from tokencritic.progress import Progress
from tokencritic.training.learner import Learner
from tokencritic.training.run_folder import RunFolder, finite
from tokencritic.training.settings import OptimizerSettings, TrainingSettings
from tokencritic.training.task import Task

_MOST_VALIDATED = 512  # the maximum number of held-out examples; every rank evaluates all of them
_FIRST_STEPS = 10  # the steps whose mean loss defines an exploding loss


def train(
    task: Task,
    run: Path,
    optimization: OptimizerSettings,
    settings: TrainingSettings,
    device: str = "cpu",
    settings_text: str | None = None,
    on_start: Callable[[], object] = lambda: None,
) -> None:
    """Train until the end, or until SIGTERM or Ctrl-C. The same call resumes from the last checkpoint.

    Writes `run/checkpoints/`, `run/log.jsonl`, `run/pictures/`, `run/run.json`, and the averaged weights as the model
    folder `run/NAME`. Under `torchrun` all ranks call this function.

    task: the model and its loss.
    run: the run folder.
    settings_text: written to `run/settings.yaml` for people to read.
    on_start: called when all settings are checked, before anything is written.
    """
    with joined(device) as ranks, _asked_to_stop() as asked:
        made = _Run(task, run, optimization, settings, ranks)  # invalid settings raise before anything is written
        on_start()
        with made.folder.claimed():
            made.restore(settings_text)
            made.end(made.go(asked))
        # DDP must be deleted before its process group, because its destructor waits for the group with the GIL held.
        del made


class _Run:
    """The state of one run.

    total: the length of the run in steps or, if `timed`, in seconds.
    step, seconds: steps and seconds done, including those before a resume.
    validated, saved: the `time.monotonic` of the last validation and of the last checkpoint.
    validation_loss: the validation loss after the last step, None if that step was not validated.
    """

    def __init__(
        self, task: Task, run: Path, optimization: OptimizerSettings, settings: TrainingSettings, ranks: Ranks
    ) -> None:
        self.task, self.optimization, self.settings, self.ranks = task, optimization, settings, ranks
        parts = ranks.size * settings.accumulation
        if settings.batch_size % parts:
            why = f"{ranks.size} ranks times an accumulation of {settings.accumulation}"
            raise InputError(f"batch_size is {settings.batch_size}; it must be a multiple of {parts}, {why}")
        self.train_rows, held_out = hold_out(task.num_rows, task.num_images, settings.held_out)
        self.held_out = torch.from_numpy(spaced(held_out, _MOST_VALIDATED))
        self.order = ExampleOrder(len(self.train_rows), settings.batch_size, settings.seed)
        self.total, self.timed = settings.length(len(self.train_rows)), settings.minutes is not None
        self.folder = RunFolder(run, task, settings, ranks)
        self.learner = Learner(task, optimization, settings, ranks)
        self.unchecked: list[tuple[int, Tensor]] = []
        self.validation_loss: float | None = None

    def restore(self, settings_text: str | None) -> None:
        """Load the newest checkpoint, if any."""
        notes = self.folder.restore(self.learner.state, settings_text)
        self.step = self.first_step = notes["step"]
        self.first_losses: list[float] = notes["first_losses"]
        self.saved = self.validated = time.monotonic()
        self.start = self.saved - notes["seconds"]

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.start

    def go(self, asked: list[int]) -> bool:
        """Train until the end, or until `asked` is not empty. Returns whether the end was reached."""
        what, unit = f"training the {self.task.name}", "seconds" if self.timed else "steps"
        images = len(self._steps()) * self.settings.batch_size // self.ranks.size
        with (
            self.task.reading_ahead(self._parts(), images),
            Progress(math.ceil(self.total), what, unit, done=self._done(), shown=self.ranks.first) as progress,
        ):
            while True:
                share, stop = self.ranks.largest([self._share(), float(bool(asked))])
                if share >= 1 or stop:
                    return share >= 1
                loss = self._one_step(share)
                pace = f"step {self.step}, {self.step / self.seconds:.3g} steps/s, " if self.timed else ""
                progress.advance(self._done() - progress.done, "" if loss is None else f"{pace}loss {loss:.4g}")
                self._validate_and_save()

    def _steps(self) -> range:
        """Return the remaining steps; more than enough for a run with a time budget."""
        return range(self.step, self.step + TRAINING_STEPS if self.timed else math.ceil(self.total))

    def _parts(self) -> Iterator[tuple[Tensor, int]]:
        """Return the rows and the step of each call of the task's loss on this rank."""
        return ((part, step) for step in self._steps() for part in self.learner.parts(self._rows(step)))

    def end(self, ended: bool) -> None:
        """Write the last checkpoint, after a validation if the run ended.

        ended: whether the run reached its end.
        """
        if self.step > self.first_step or not self.folder.model.exists():
            if ended:
                self._validate()
            self._save()
        what = f"wrote {self.folder.model}" if ended else "stopped; rerun the command to resume"
        self.folder.close(f"{self.step} steps in {self.seconds / 60:.1f} minutes; {what}")

    def _done(self) -> int:
        return int(min(self.seconds, math.ceil(self.total))) if self.timed else self.step

    def _share(self) -> float:
        """Return the share of the run that is done, by the clock of the first rank; 0 on other ranks."""
        return (self.seconds if self.timed else self.step) / self.total if self.ranks.first else 0.0

    def _validate_and_save(self) -> None:
        """Validate and save if due. All ranks take the same decision. Nothing is due at the end; `end` does both."""
        now, settings = time.monotonic(), self.settings
        validate = now - self.validated > settings.validate_seconds
        save = validate or now - self.saved > settings.checkpoint_seconds
        save |= bool(settings.keep_every and self.step % settings.keep_every == 0)
        going = self.ranks.first and self._share() < 1
        validate, save = self.ranks.largest([float(going and validate), float(going and save)])
        if validate:
            self._validate()
        if save:
            self._save()

    def _one_step(self, share: float) -> float | None:
        """Perform one update. Returns its loss, or None if it was not read from the device."""
        step, logged = self.step, self.step % self.settings.log_every == 0
        pair, numbers = self.learner.backward(self._rows(step), step)
        self.unchecked.append((step, pair))
        seen = self._check() if logged or self.ranks.device.type == "cpu" else None
        self.learner.update(step, share)
        self.step, self.validation_loss = step + 1, None
        if logged and seen:
            means = self.ranks.total(torch.stack([*numbers.values()])) / self.ranks.size if numbers else []
            facts = {"loss": seen[0], "norm": seen[1], "rate": self.optimization.rate(share)}
            facts |= {"seconds": round(self.seconds, 1), **dict(zip(numbers, map(float, means), strict=True))}
            self.folder.log("training", step, facts, {})
        return seen[0] if seen else None

    def _rows(self, step: int) -> Tensor:
        return torch.from_numpy(self.train_rows[self.order.batch(step)])

    def _check(self) -> list[float]:
        """Check the losses since the last call. Returns the newest loss and gradient norm."""
        pairs = torch.stack([pair for _, pair in self.unchecked]).tolist()
        for (step, _), (loss, norm) in zip(self.unchecked, pairs, strict=True):
            if len(self.first_losses) < _FIRST_STEPS:
                self.first_losses.append(loss)
            limit = self.settings.explosion * max(1.0, abs(sum(self.first_losses) / len(self.first_losses)))
            if not math.isfinite(loss + norm) or (len(self.first_losses) == _FIRST_STEPS and loss > limit):
                self.folder.refuse(step, loss, norm, self._rows(step).tolist())
        self.unchecked.clear()
        return pairs[-1]

    def _validate(self) -> None:
        """Validate the averaged weights, and log the values and pictures."""
        network = self.learner.network
        with self.learner.averaged():
            numbers = self.task.validate(network, self.held_out) if len(self.held_out) else {}
            pictures = self.task.pictures(network)
        self.validation_loss = finite(numbers["loss"]) if numbers else None
        self.folder.log("validation", self.step, numbers, pictures)
        self.validated = time.monotonic()

    def _save(self) -> None:
        if self.unchecked:
            self._check()
        notes = {"step": self.step, "seconds": self.seconds, "validation_loss": self.validation_loss}
        self.folder.save(self.learner.gathered(), notes | {"first_losses": list(self.first_losses)})
        self.saved = time.monotonic()


@contextmanager
def _asked_to_stop() -> Iterator[list[int]]:
    """Return a context with a list that is empty until SIGTERM or Ctrl-C is received. Only works in the main thread."""
    asked: list[int] = []
    numbers = (signal.SIGTERM, signal.SIGINT) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, lambda got, _: asked.append(got)) for number in numbers}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
