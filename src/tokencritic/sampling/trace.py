"""What happened at each step, recorded on demand."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tokencritic.contracts import Proposal
from tokencritic.errors import InputError


@dataclass(frozen=True)
class TraceStep:
    """One step, on the CPU. All tensors are (b, n).

    index: the number of the step, 0 for the tokens that refinement is given. time: the paper's t/T when the step begins.
    proposal: int64, the complete tokens. sampled: bool, those just sampled, which is what was hidden before.
    scores: float, what the scorer thinks, without noise; None after the last step. hidden: bool, what is hidden next.
    """

    index: int
    time: float
    proposal: Tensor
    sampled: Tensor
    scores: Tensor | None
    hidden: Tensor

    @property
    def remasked(self) -> Tensor:
        """(b, n) bool: tokens that had been kept before and are hidden now."""
        return self.hidden & ~self.sampled


@dataclass
class Trace:
    """Pass one as `on_step=` to a sampler or a pipeline.

    Used for several batches of images, it holds the images of all. most_images: keep only the first so many.
    """

    most_images: int | None = None
    _batches: list[list[TraceStep]] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.most_images is not None and self.most_images < 1:
            raise InputError(f"most_images is {self.most_images}; it must be at least 1")

    @property
    def steps(self) -> list[TraceStep]:
        """In order, with the images of all batches. Steps that the loop skips because nothing can change are left out."""
        if len(self._batches) < 2:
            return list(self._batches[0]) if self._batches else []
        counts = [len(batch) for batch in self._batches]
        if len(set(counts)) > 1:
            raise InputError(
                f"the trace holds runs of {min(counts)} and of {max(counts)} steps; use one trace for each"
            )
        return [_join(parts) for parts in zip(*self._batches, strict=True)]

    def __call__(self, proposal: Proposal, scores: Tensor | None, mask: Tensor) -> None:
        step = proposal.step
        if not self._batches or (self._batches[-1] and step.index <= self._batches[-1][-1].index):
            self._batches.append([])  # a step that is not later than the last one is the first of another batch
        room = None
        if self.most_images is not None:
            room = max(0, self.most_images - sum(len(batch[0].proposal) for batch in self._batches[:-1]))

        def kept(values: Tensor) -> Tensor:
            # Cloned where cut, so that the images left out do not stay in memory.
            return values.cpu() if room is None or room >= len(values) else values[:room].cpu().clone()

        scores = None if scores is None else kept(scores)
        made = TraceStep(step.index, step.time, kept(proposal.tokens), kept(proposal.mask), scores, kept(mask))
        self._batches[-1].append(made)


def _join(parts: Sequence[TraceStep]) -> TraceStep:
    """The same step of several batches as one."""
    first = parts[0]
    if any((part.index, part.scores is None) != (first.index, first.scores is None) for part in parts):
        got = ", ".join(str(part.index) for part in parts)
        raise InputError(f"the trace holds runs with different steps ({got} in one place); use one trace for each")
    scores = [part.scores for part in parts if part.scores is not None]
    return TraceStep(
        first.index,
        first.time,
        torch.cat([part.proposal for part in parts]),
        torch.cat([part.sampled for part in parts]),
        torch.cat(scores) if scores else None,
        torch.cat([part.hidden for part in parts]),
    )
