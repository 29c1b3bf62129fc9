"""One loop for every model: it is given a task, and knows nothing of what is learned.

The examples, the masks and the draws of a step are functions of (seed, step), and its dropout of these and the rank. So a run
that is cut off goes on as if it had not been, and one without dropout on any number of ranks; a tokenizer on as many as before,
as dead codes become latents of the first one.
"""

import fcntl
import json
import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from tokencritic.data.order import ExampleOrder, hold_out
from tokencritic.distribution import Ranks, distribute, joined, weights_were_lent, whole
from tokencritic.errors import InputError
from tokencritic.files import write_atomically
from tokencritic.models.saved import write_model
from tokencritic.models.transformer import Block, Trunk
from tokencritic.progress import Progress
from tokencritic.randomness import example_seeds
from tokencritic.training.checkpoint import Checkpoints
from tokencritic.training.log import RunLog, find_tensorboard, finite
from tokencritic.training.optimizer import (
    Average,
    OptimizerSettings,
    learning_rate,
    make_optimizer,
    optimizer_tensors,
    scale_gradients,
)
from tokencritic.training.settings import TrainingSettings
from tokencritic.training.task import Task

_VALIDATED = 512  # held-out examples at most; every rank goes through all of them
_FIRST = 10  # steps whose mean loss later ones are held against


def train(
    task: Task,
    run: Path,
    optimization: OptimizerSettings,
    settings: TrainingSettings,
    device: str = "cpu",
    settings_text: str | None = None,
) -> None:
    """Train until the end, or until SIGTERM or Ctrl-C; the same call goes on from the last checkpoint.

    Writes `run/checkpoints/`, `run/log.jsonl`, `run/pictures/`, `run/run.json`, and the averaged weights as the model folder
    `run/NAME`. Under `torchrun` all ranks call it. settings_text: becomes `run/settings.yaml`, for the reader.
    """
    with joined(device) as ranks, _asked_to_stop() as asked:
        made = _Run(task, run, optimization, settings, ranks)  # what cannot be is refused before anything is written
        with _claimed(run, ranks):
            made.restore(settings_text)
            try:
                made.go(asked)
            finally:  # after an error too: the folder is not left while a thread still writes to it
                made.checkpoints.finish()


class _Run:
    def __init__(
        self, task: Task, run: Path, optimization: OptimizerSettings, settings: TrainingSettings, ranks: Ranks
    ) -> None:
        self.task, self.run, self.optimization, self.settings, self.ranks = task, run, optimization, settings, ranks
        parts = ranks.size * settings.accumulation
        if settings.batch_size % parts:
            raise InputError(
                f"batch_size is {settings.batch_size}; it must be a multiple of {parts}, "
                f"{ranks.size} ranks times an accumulation of {settings.accumulation}"
            )
        self.writer = find_tensorboard() if settings.tensorboard and ranks.first else None
        self.train_rows, held_out = hold_out(task.num_rows, task.num_images, settings.held_out)
        chosen = np.linspace(0, len(held_out), min(_VALIDATED, len(held_out)), endpoint=False).astype(int)
        self.held_out = torch.from_numpy(held_out[chosen])
        self.order = ExampleOrder(len(self.train_rows), settings.batch_size, settings.seed)
        self.total = _length(settings, len(self.train_rows))
        task.to(ranks.device)
        model = task.model.train()
        for module in model.modules():
            if isinstance(module, Trunk):
                module.recompute_activations = settings.recompute_activations
            if isinstance(module, Block) and settings.compile:
                module.compile()
        self.network = distribute(model, ranks, settings.distribution)
        self.optimizer = make_optimizer(model, optimization)
        self.average = Average(model, optimization.ema)
        self.checkpoints = Checkpoints(run, ranks, settings.keep_every)
        self.state = _named("model", model.state_dict()) | _named("average", self.average.values)
        self.state |= _named("optimizer", optimizer_tensors(model, self.optimizer)) | _named("task", task.state_dict())
        self.facts = json.loads(json.dumps(task.facts())) | {
            name: getattr(settings, name) for name in ("batch_size", "seed", "held_out")
        }
        self.step, self.seconds, self.first_losses = 0, 0.0, []
        self.saved_step: int | None = None
        self.unchecked: list[tuple[int, Tensor]] = []
        self.validation_loss: float | None = None

    def go(self, asked: list[int]) -> None:
        began = self.step
        self.log = RunLog(self.run, self.step, self.writer) if self.ranks.first else None
        self.saved = self.validated = time.monotonic()
        self.start = self.saved - self.seconds
        unit = "seconds" if self.settings.minutes is not None else "steps"
        with Progress(
            self.total, f"training the {self.task.name}", unit, done=self._done(), shown=self.ranks.first
        ) as progress:
            while True:
                share, stop = self.ranks.largest([self._share(), float(bool(asked))])
                if share >= 1 or stop:
                    break
                loss = self._one_step(share)
                progress.advance(self._done() - progress.done, self._note(loss, began))
                self._write_what_is_due()
        if self.step > began or not (self.run / self.task.name).exists():
            if share >= 1:
                self._validate()
            if share >= 1 or self.step != self.saved_step:  # stopped in a validation, its loss is saved already
                self._save()
        self.checkpoints.finish()
        if self.log is not None:
            self.log.close()
            what = f"wrote {self.run / self.task.name}" if share >= 1 else "stopped; the same command goes on"
            print(f"{self.step} steps in {(time.monotonic() - self.start) / 60:.1f} minutes; {what}", flush=True)

    def _share(self) -> float:
        """Of the run that is done; by the clock of the first rank."""
        if self.settings.minutes is None:
            return self.step / self.total
        return (time.monotonic() - self.start) / (60 * self.settings.minutes) if self.ranks.first else 0.0

    def _done(self) -> int:
        if self.settings.minutes is None:
            return self.step
        return min(int(time.monotonic() - self.start) if self.step else int(self.seconds), self.total)

    def _note(self, loss: float | None, began: int) -> str:
        """For the progress bar; a budget of time shows the rate of steps here."""
        if loss is None or self.settings.minutes is None:
            return "" if loss is None else f"loss {loss:.4g}"
        rate = (self.step - began) / max(time.monotonic() - self.start - self.seconds, 1e-9)
        return f"step {self.step}, {rate:.3g} steps/s, loss {loss:.4g}"

    def _one_step(self, share: float) -> float | None:
        """One update. Returns the loss where it was looked at: on a GPU, looking at each would hold up the queue."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.optimization, share)
        loss, numbers = self._accumulate(self._rows(self.step)[self.ranks.rank :: self.ranks.size])
        norm = scale_gradients(self.network, self.ranks.size / loss[1], self.optimization.clip)
        self.unchecked.append((self.step, torch.stack([loss[0] / loss[1], norm])))
        logged = self.step % self.settings.log_every == 0
        seen = self._check() if logged or self.ranks.device.type == "cpu" else None
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.task.after_step(self.step, share)
        self.average.update(self.step)
        if logged:
            assert seen is not None
            means = self.ranks.total(torch.stack([*numbers.values()])) / self.ranks.size if numbers else []
            if self.log is not None:
                facts = {"loss": seen[0], "norm": seen[1], "rate": learning_rate(self.optimization, share)}
                facts |= {"seconds": round(time.monotonic() - self.start, 1)}
                facts |= {name: float(value) for name, value in zip(numbers, means, strict=True)}
                self.log.numbers("training", self.step, facts)
        self.step += 1
        return seen[0] if seen is not None else None

    def _accumulate(self, rows: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Gradients of the sum of the losses. Returns that sum and how many they were, (2,) over all ranks, and the numbers."""
        place = torch.tensor([self.ranks.rank])
        torch.manual_seed(int(example_seeds(self.settings.seed, self.step, place)))  # for dropout
        total, gathered = torch.zeros(2, device=self.ranks.device), []
        parts = rows.chunk(self.settings.accumulation)
        for place, part in enumerate(parts):
            with self._synchronized(place == len(parts) - 1):
                with self._precision():
                    loss = self.task.loss(self.network, part, self.step)
                value = loss.values.float().sum()
                value.backward()
            total += torch.stack([value.detach(), value.new_tensor(loss.values.numel())])
            gathered.append(loss.numbers)
        numbers = {name: torch.stack([part[name].detach().float() for part in gathered]).mean() for name in gathered[0]}
        return self.ranks.total(total), numbers

    def _synchronized(self, last: bool) -> Any:
        """Gradients go over the network once a step, with the last part."""
        if isinstance(self.network, DistributedDataParallel):
            return nullcontext() if last else self.network.no_sync()
        if hasattr(self.network, "set_requires_gradient_sync"):
            self.network.set_requires_gradient_sync(last)  # pyright: ignore[reportCallIssue]
        return nullcontext()

    def _precision(self) -> Any:
        enabled = self.settings.precision == "bfloat16"
        return torch.autocast(self.ranks.device.type, torch.bfloat16, enabled=enabled)

    def _rows(self, step: int) -> Tensor:
        return torch.from_numpy(self.train_rows[self.order.batch(step)])

    def _check(self) -> list[float]:
        """Look at the losses so far; returns the newest loss and norm of the gradient."""
        pairs = torch.stack([pair for _, pair in self.unchecked]).tolist()
        for (step, _), (loss, norm) in zip(self.unchecked, pairs, strict=True):
            if len(self.first_losses) < _FIRST:
                self.first_losses.append(loss)
            limit = self.settings.explosion * max(1.0, abs(sum(self.first_losses) / len(self.first_losses)))
            if not math.isfinite(loss + norm) or (len(self.first_losses) == _FIRST and loss > limit):
                self._give_up(step, loss, norm)
        self.unchecked.clear()
        return pairs[-1]

    def _give_up(self, step: int, loss: float, norm: float) -> None:
        self.checkpoints.finish()
        rows, found = self._rows(step).tolist(), self.checkpoints.newest()
        last = f"checkpoint {found['step']} is the last good one" if found else "there is no checkpoint yet"
        text = json.dumps({"step": step, "loss": str(loss), "norm": str(norm), "rows": rows})
        if self.ranks.first:
            write_atomically(self.run / "stopped.json", lambda path: path.write_text(text, encoding="utf-8"))
        raise InputError(
            f"the loss is {loss:.4g} and the gradient's norm {norm:.4g} at step {step}, on the rows {rows[:8]} ... (all of "
            f"them in {self.run / 'stopped.json'}); {last}"
        )

    def _write_what_is_due(self) -> None:
        """By the first rank's clock. At the end of the run nothing is due: all of it comes then."""
        now, settings = time.monotonic(), self.settings
        validate = now - self.validated > settings.validate_seconds
        save = now - self.saved > settings.checkpoint_seconds
        save |= bool(settings.keep_every and self.step % settings.keep_every == 0)
        due = self.ranks.first and self._share() < 1
        validate, save = self.ranks.largest([float(due and validate), float(due and save)])
        if validate:
            self._validate()
        if validate or save:
            self._save()

    def _validate(self) -> None:
        """Numbers and pictures of the averaged weights."""
        with self.average.applied(), torch.no_grad(), self._precision():
            self.network.eval()
            numbers = self.task.validate(self.network, self.held_out) if len(self.held_out) else {}
            pictures = self.task.pictures(self.network)
            self.network.train()
        weights_were_lent(self.network)
        self.validation_loss = finite(numbers["loss"]) if numbers else None
        if self.log is not None:
            self.log.numbers("validation", self.step, numbers)
            self.log.pictures(self.step, pictures)
        self.validated = time.monotonic()

    def _save(self) -> None:
        if self.unchecked:
            self._check()
        notes = {"step": self.step, "seconds": time.monotonic() - self.start, "facts": self.facts}
        notes |= {"first_losses": self.first_losses, "validation_loss": self.validation_loss}
        self.validation_loss = None
        averaged = {name: whole(value).cpu() for name, value in self.average.values.items()}
        if self.ranks.first:
            write_model(self.run / self.task.name, self.task.model.config, averaged)
        self.checkpoints.save(self.state, notes)
        self.saved, self.saved_step = time.monotonic(), self.step

    def restore(self, settings_text: str | None) -> None:
        """Go to where the last checkpoint stands, and note what this run is."""
        notes = self.checkpoints.newest()
        if notes is not None:
            for name, now in self.facts.items():
                if (there := notes["facts"].get(name)) != now:
                    pair = f"{_differing(there, now)} there, {_differing(now, there)} now"
                    raise InputError(f"{self.run} has another {name} ({pair}); choose another run folder")
            self.checkpoints.load(notes["step"], self.state)
            self.step, self.seconds, self.first_losses = notes["step"], notes["seconds"], notes["first_losses"]
        if self.ranks.first:
            for place in (self.run, self.run / self.task.name):
                for leftover in place.glob(".*.tmp"):  # of a process that was killed while it wrote
                    leftover.unlink()
            text = json.dumps({"name": self.task.name, "facts": self.facts}, indent=1)
            files = {"run.json": text} | ({} if settings_text is None else {"settings.yaml": settings_text})
            for name, content in files.items():
                write_atomically(self.run / name, lambda path, text=content: path.write_text(text, encoding="utf-8"))
            if notes is not None:
                print(f"going on at step {self.step}", flush=True)


def _differing(fact: Any, other: Any) -> Any:
    """A fact, or of a group of them those that the other has not."""
    if not (isinstance(fact, dict) and isinstance(other, dict)):
        return fact
    return {name: value for name, value in fact.items() if name not in other or other[name] != value}


def _length(settings: TrainingSettings, num_rows: int) -> int:
    """Of the run, in steps, or in seconds for a budget of time."""
    if settings.steps is not None:
        return settings.steps
    if settings.epochs is not None:
        return math.ceil(settings.epochs * num_rows / settings.batch_size)
    if settings.minutes is not None:
        return math.ceil(60 * settings.minutes)
    raise InputError("none of steps, epochs and minutes is given; give one of them")


def _named(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


@contextmanager
def _claimed(run: Path, ranks: Ranks) -> Iterator[None]:
    """The folder, for this run alone: two that write into one would spoil both."""
    with ExitStack() as stack:
        taken = False
        if ranks.first:
            run.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context((run / ".lock").open("w"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                taken = True
        if ranks.told(taken):
            raise InputError(f"{run} is in use by another training; wait for its end, or choose another run folder")
        yield


@contextmanager
def _asked_to_stop() -> Iterator[list[int]]:
    """A list that is empty until SIGTERM or Ctrl-C comes. Only the main thread can listen."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, lambda got, _: asked.append(got)) for number in numbers}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
