"""What happened at each step, recorded when asked."""

from dataclasses import dataclass, field

from torch import Tensor

from tokencritic.sampling.propose import Proposal, Step


@dataclass(frozen=True)
class TraceStep:
    """One step, on the CPU. All are (b, n).

    proposal: the complete tokens. drawn: bool, those just drawn. scores: what the scorer gave, None after the last step.
    hidden: bool, what was hidden next. taken_back: bool, tokens that had been kept before and are hidden now.
    """

    step: Step
    proposal: Tensor
    drawn: Tensor
    scores: Tensor | None
    hidden: Tensor
    taken_back: Tensor


@dataclass
class Trace:
    """Pass one as `on_step=`. Steps that the loop skips because nothing can change in them are not there."""

    steps: list[TraceStep] = field(default_factory=list)

    def __call__(self, proposal: Proposal, scores: Tensor | None, mask: Tensor) -> None:
        self.steps.append(
            TraceStep(
                proposal.step,
                proposal.tokens.cpu(),
                proposal.mask.cpu(),
                None if scores is None else scores.cpu(),
                mask.cpu(),
                (mask & ~proposal.mask).cpu(),
            )
        )
