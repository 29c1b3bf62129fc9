"""What happened at each step, recorded when asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.sampling.propose import Proposal


@dataclass(frozen=True)
class TraceStep:
    """One step, on the CPU. All tensors are (b, n).

    index: the number of the step, 0 for the tokens that refinement is given. time: the paper's t/T when the step begins.
    proposal: int64, the complete tokens. drawn: bool, those just drawn, which is what was hidden before.
    scores: float, what the scorer thinks, without noise; None after the last step. hidden: bool, what was hidden next.
    """

    index: int
    time: float
    proposal: Tensor
    drawn: Tensor
    scores: Tensor | None
    hidden: Tensor

    @property
    def taken_back(self) -> Tensor:
        """(b, n) bool: tokens that had been kept before and are hidden now."""
        return self.hidden & ~self.drawn


@dataclass
class Trace:
    """Pass one as `on_step=` to a sampler, or its `on_step_end` as `callback_on_step_end=` to a pipeline.

    Used for several batches of images, it holds the images of all. most_images: keep only the first so many.
    """

    most_images: int | None = None
    _batches: list[list[TraceStep]] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.most_images is not None and self.most_images < 1:
            raise InputError(f"most_images is {self.most_images}; it must be at least 1")

    @property
    def steps(self) -> list[TraceStep]:
        """In order, with the images of all batches. Steps that the loop skips because nothing can change are not there."""
        if len(self._batches) < 2:
            return list(self._batches[0]) if self._batches else []
        counts = [len(batch) for batch in self._batches]
        if len(set(counts)) > 1:
            raise InputError(
                f"the trace holds runs of {min(counts)} and of {max(counts)} steps; use one trace for each"
            )
        return [_join(parts) for parts in zip(*self._batches, strict=True)]

    def __call__(self, proposal: Proposal, scores: Tensor | None, mask: Tensor) -> None:
        self._begin_or_go_on(proposal.step.index)
        self._add(proposal.step.index, proposal.step.time, proposal.tokens, proposal.mask, scores, mask)

    def on_step_end(self, _: Any, index: int, time: float, tensors: Mapping[str, Tensor]) -> None:
        """A pipeline's callback: `tensors` holds `tokens`, `hidden` and, but for the last step, `scores`."""
        self._begin_or_go_on(index)
        hidden = tensors["hidden"]
        batch = self._batches[-1]
        drawn = batch[-1].hidden if batch else torch.ones_like(hidden)  # a pipeline begins with everything hidden
        self._add(index, time, tensors["tokens"], drawn, tensors.get("scores"), hidden)

    def _begin_or_go_on(self, index: int) -> None:
        """A step that is not later than the last one is the first of another batch."""
        if not self._batches or (self._batches[-1] and index <= self._batches[-1][-1].index):
            self._batches.append([])

    def _add(
        self, index: int, time: float, tokens: Tensor, drawn: Tensor, scores: Tensor | None, hidden: Tensor
    ) -> None:
        room = None
        if self.most_images is not None:
            room = max(0, self.most_images - sum(len(batch[0].proposal) for batch in self._batches[:-1]))

        def kept(values: Tensor) -> Tensor:
            # Cloned where cut, so that the images left out do not stay in memory.
            return values.cpu() if room is None or room >= len(values) else values[:room].cpu().clone()

        scores = None if scores is None else kept(scores)
        self._batches[-1].append(TraceStep(index, time, kept(tokens), kept(drawn), scores, kept(hidden)))


def _join(parts: Sequence[TraceStep]) -> TraceStep:
    """The same step of several batches as one."""
    first = parts[0]
    if any((part.index, part.scores is None) != (first.index, first.scores is None) for part in parts):
        came = ", ".join(str(part.index) for part in parts)
        raise InputError(f"the trace holds runs with different steps ({came} in one place); use one trace for each")
    scores = None
    if first.scores is not None:
        scores = torch.cat([part.scores for part in parts if part.scores is not None])
    proposal, drawn, hidden = (
        torch.cat([getattr(part, name) for part in parts]) for name in ("proposal", "drawn", "hidden")
    )
    return TraceStep(first.index, first.time, proposal, drawn, scores, hidden)
