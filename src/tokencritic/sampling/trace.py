"""Recording of the sampling steps."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tokencritic.errors import InputError, check_at_least
from tokencritic.scoring import Proposal


@dataclass(frozen=True)
class TraceStep:
    """A recorded step. All tensors are (b, n), on the CPU.

    index: the number of the step; 0 for tokens given to refinement.
    time: t/T in the paper, before the step.
    proposal: int64, the complete tokens.
    sampled: bool, True where the token was hidden before the step and is sampled in it.
    scores: float, scores without noise; None after the last step.
    hidden: bool, True where the token is hidden after the step.
    """

    index: int
    time: float
    proposal: Tensor
    sampled: Tensor
    scores: Tensor | None
    hidden: Tensor

    @property
    def remasked(self) -> Tensor:
        """The re-masked tokens: (b, n) bool, True where a visible token is hidden by the step."""
        return self.hidden & ~self.sampled


@dataclass
class Trace:
    """A recorder of steps, passed as `on_step=` to a sampler or a pipeline. Batches are concatenated.

    most_images: record only this many images, at least 1; all by default.
    """

    most_images: int | None = None
    _batches: dict[int, list[TraceStep]] = field(default_factory=dict, init=False, repr=False)  # by the step's index

    def __post_init__(self) -> None:
        if self.most_images is not None:
            check_at_least(1, most_images=self.most_images)

    @property
    def steps(self) -> list[TraceStep]:
        """The recorded steps in order, with the images of all batches. Steps that the loop skips are not recorded.

        Tensors are copied to the CPU only on this access, so that recording does not stall the device's queue.
        """
        if len({len(batches) for batches in self._batches.values()}) > 1:
            raise InputError("the trace holds runs with different steps; use one trace for each")
        return [_join([_on_cpu(batch) for batch in self._batches[index]]) for index in sorted(self._batches)]

    def __call__(self, proposal: Proposal, scores: Tensor | None, mask: Tensor) -> None:
        step, batches = proposal.step, self._batches.setdefault(proposal.step.index, [])
        room = None if self.most_images is None else self.most_images - sum(len(batch.proposal) for batch in batches)

        def kept(values: Tensor) -> Tensor:
            return values[:room].clone()  # a view would keep the other images in memory

        scores = None if scores is None else kept(scores)
        batches.append(TraceStep(step.index, step.time, kept(proposal.tokens), kept(proposal.mask), scores, kept(mask)))


def _on_cpu(batch: TraceStep) -> TraceStep:
    tensors = {name: value.cpu() for name, value in vars(batch).items() if isinstance(value, Tensor)}
    return replace(batch, **tensors)


def _join(batches: list[TraceStep]) -> TraceStep:
    """Concatenate the same step of several batches."""
    first = batches[0]
    if len(batches) == 1:
        return first
    tensors = [name for name in ("proposal", "sampled", "scores", "hidden") if vars(first)[name] is not None]
    return replace(first, **{name: torch.cat([vars(batch)[name] for batch in batches]) for name in tensors})
