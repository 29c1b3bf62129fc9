"""One loop for every model: it is given a task, and knows nothing of what is learned."""

import json
import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from tokencritic.errors import InputError
from tokencritic.files import write_atomically
from tokencritic.models.saved import SavedModel
from tokencritic.progress import Progress
from tokencritic.training.checkpoint import load_checkpoint, save_checkpoint
from tokencritic.training.optimizer import Average, OptimizerSettings, learning_rate, make_optimizer


class Task(Protocol):
    """What is learned. `model` is what is kept; the task's own state is whatever else belongs to the run."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> SavedModel: ...

    def loss(self, step: int) -> tuple[Tensor, dict[str, float]]:
        """The loss of a step's batch, a scalar, and numbers for the log. A pure function of the step and the weights."""
        ...

    def after_step(self, step: int, progress: float) -> None:
        """Whatever else moves, such as a codebook or a discriminator. progress: the share of the run that is done."""
        ...

    def facts(self) -> dict[str, Any]:
        """What must be the same when a run goes on, as JSON values by name."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any], /) -> None: ...


@dataclass(frozen=True)
class RunSettings:
    """How long, and what is written when.

    steps: how many; None with `minutes`, a wall-clock budget that the schedule is fitted to (time before a resume counts).
    """

    steps: int | None = None
    minutes: float | None = None
    checkpoint_seconds: float = 60.0
    log_every: int = 50

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.minutes is None):
            raise InputError(f"steps is {self.steps} and minutes is {self.minutes}; give one of them")
        length = self.minutes if self.steps is None else self.steps
        if not (length and math.isfinite(length) and length > 0):
            raise InputError(f"steps is {self.steps} and minutes is {self.minutes}; it must be positive")


def train(task: Task, run: Path, optimization: OptimizerSettings, settings: RunSettings) -> None:
    """Train until the end, or until SIGTERM or Ctrl-C; the same call goes on from the last checkpoint.

    Writes `run/checkpoint-*.pt`, `run/log.jsonl`, and the averaged weights as the model folder `run/NAME`.
    """
    run.mkdir(parents=True, exist_ok=True)
    optimizer, average = make_optimizer(task.model, optimization), Average(task.model, optimization.ema)
    parts = {"model": task.model, "average": average, "optimizer": optimizer, "task": task}
    step, seconds = _restore(run, task, parts)
    saved = time.monotonic()
    start = saved - seconds
    total = settings.steps if settings.steps is not None else math.ceil((settings.minutes or 0) * 60)
    done = step if settings.steps is not None else min(int(seconds), total)
    unit = "steps" if settings.steps is not None else "seconds"
    task.model.train()
    with _asked_to_stop() as asked, Progress(total, f"training the {task.name}", unit, done=done) as progress:
        while True:
            seconds = time.monotonic() - start
            share = step / total if settings.steps is not None else seconds / total
            if share >= 1 or asked:
                break
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(optimization, share)
            loss, numbers = task.loss(step)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(task.model.parameters(), optimization.clip)
            if not torch.isfinite(norm):
                raise InputError(f"the loss is {loss.item()} at step {step}; {run} still has the last good checkpoint")
            optimizer.step()
            optimizer.zero_grad()
            task.after_step(step, share)
            average.update(task.model, step)
            if step % settings.log_every == 0:
                _log(run, {"step": step, "seconds": round(seconds, 1), "loss": loss.item(), **numbers})
            step += 1
            progress.advance((step if settings.steps is not None else min(int(seconds), total)) - progress.done)
            if time.monotonic() - saved > settings.checkpoint_seconds:
                _save(run, task, parts, step, time.monotonic() - start)
                saved = time.monotonic()
    _save(run, task, parts, step, time.monotonic() - start)
    what = "stopped; the same command goes on" if share < 1 else f"wrote {run / task.name}"
    print(f"{step} steps in {(time.monotonic() - start) / 60:.1f} minutes; {what}", flush=True)


def _restore(run: Path, task: Task, parts: dict[str, Any]) -> tuple[int, float]:
    state = load_checkpoint(run)
    if state is None:
        return 0, 0.0
    now = json.loads(json.dumps(task.facts()))
    if other := [name for name in now if state["facts"].get(name) != now[name]]:
        there = state["facts"].get(other[0])
        raise InputError(
            f"{run} has another {other[0]} ({there} there, {now[other[0]]} now); choose another run folder"
        )
    log = run / "log.jsonl"
    if log.exists():  # what a cut-off run logged after its last checkpoint is done again
        lines = [line for line in log.read_text(encoding="utf-8").splitlines(True) if _step_of(line) < state["step"]]
        write_atomically(log, lambda path: path.write_text("".join(lines), encoding="utf-8"))
    for name, part in parts.items():
        part.load_state_dict(state[name])
    torch.set_rng_state(state["random"])
    print(f"going on at step {state['step']}", flush=True)
    return state["step"], state["seconds"]


def _save(run: Path, task: Task, parts: dict[str, Any], step: int, seconds: float) -> None:
    state = {name: part.state_dict() for name, part in parts.items()}
    facts = json.loads(json.dumps(task.facts()))
    random = torch.get_rng_state()
    save_checkpoint(run, step, {**state, "facts": facts, "step": step, "seconds": seconds, "random": random})
    own = {name: value.clone() for name, value in task.model.state_dict().items()}
    task.model.load_state_dict(parts["average"].state_dict())
    task.model.save_pretrained(run / task.name)
    task.model.load_state_dict(own)


def _step_of(line: str) -> float:
    """The step of a log line; a half-written last one is after all."""
    try:
        return json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return math.inf


def _log(run: Path, numbers: dict[str, Any]) -> None:
    with (run / "log.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(numbers) + "\n")


@contextmanager
def _asked_to_stop() -> Iterator[list[int]]:
    """A list that is empty until SIGTERM or Ctrl-C comes."""
    asked: list[int] = []
    before = {
        number: signal.signal(number, lambda got, _: asked.append(got)) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
