"""What the models learn: losses are unreduced, the training loop reduces them.

All randomness comes from one seed per example, so a loss does not depend on how examples are distributed over ranks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokencritic.adapters import as_critic, as_generator
from tokencritic.contracts import MaskedGenerator, Proposal, TokenCritic, evaluating
from tokencritic.distribution import unwrapped
from tokencritic.errors import InputError, as_integers, check_at_least
from tokencritic.masking import count_masked, hidden_positions, mask_ratio, random_mask
from tokencritic.plan import Step
from tokencritic.randomness import Use, uniforms
from tokencritic.sampling.propose import propose
from tokencritic.sampling.settings import Temperature, temperature_range


@dataclass(frozen=True)
class CriticLoss:
    """What the critic said of a batch of proposals, and what it should have said.

    values, logits: (b, n) float. originals: (b, n) bool, what the critic should say. proposal: what it was shown.
    """

    values: Tensor
    logits: Tensor
    originals: Tensor
    proposal: Proposal

    @property
    def mask(self) -> Tensor:
        """What was hidden and filled in: (b, n) bool."""
        return self.proposal.mask


@dataclass(frozen=True)
class InlineCriticLoss:
    """What the inline critic said of partly hidden images, and what it should have said.

    values: (b, n) float, 0 at hidden tokens, which do not count. logits: (b, n) float. originals, visible: (b, n) bool.
    """

    values: Tensor
    logits: Tensor
    originals: Tensor
    visible: Tensor

    @property
    def mean(self) -> Tensor:
        """The mean loss of a visible token: a scalar."""
        return self.values.sum() / self.visible.sum()


@dataclass(frozen=True)
class GeneratorLoss:
    """What the generator predicted at the hidden tokens.

    values: (b, n) float, 0 at visible tokens, which do not count. mask: (b, n) bool. targets: (b, n) int64.
    logits: at the hidden tokens in row-major order, (m, codebook_size); or at all, (b, n, codebook_size).
    """

    values: Tensor
    logits: Tensor
    targets: Tensor
    mask: Tensor

    @property
    def mean(self) -> Tensor:
        """The mean loss of a hidden token: a scalar."""
        return self.values.sum() / self.mask.sum()

    @property
    def correct(self) -> Tensor:
        """Whether the likeliest code is the right one, at the hidden tokens in row-major order: (m,) bool."""
        likeliest = self.logits.argmax(-1)
        return (likeliest if likeliest.ndim == 1 else likeliest[self.mask]) == self.targets[self.mask]


def training_mask(seeds: Tensor, num_tokens: int) -> Tensor:
    """Algorithm 1 lines 3-4: t ~ U(0, 1) and ceil(gamma(t) N) random tokens hidden. seeds: (b,). Returns (b, n) bool."""
    return _mask_at(uniforms(seeds, 1, Use.RATIO)[:, 0], seeds, num_tokens)


def _mask_at(progress: Tensor, seeds: Tensor, num_tokens: int) -> Tensor:
    """Of one image, a mask at a later progress hides a subset of what an earlier one hides."""
    return random_mask(count_masked(num_tokens, mask_ratio(progress)), uniforms(seeds, num_tokens, Use.MASK))


def critic_loss(
    critic: TokenCritic | Callable[..., Tensor],
    generator: MaskedGenerator | Callable[..., Tensor],
    tokens: Tensor,
    labels: Tensor | None,
    seeds: Tensor,
    *,
    temperature: Temperature = 1.0,
    target: Literal["masked", "changed"] = "masked",
) -> CriticLoss:
    """Algorithm 1 lines 3-7: hide, let the frozen generator fill in, and ask the critic which tokens are originals.

    tokens: (b, n) int64, real images; labels: (b,) or None; seeds: (b,) int64.
    critic, generator: by the contract, perhaps in DDP's wrapper, or as `as_critic` and `as_generator` make them whole.
    temperature: of the generator's samples; (start, end) is what a sampler with these has at each mask ratio.
    target: "masked" is the paper's, every token that was hidden counts as a filling even where the generator sampled the very
        code that had been there; "changed" counts such a token as an original.
    A ratio-conditioned critic has the log-odds of its image, (n - k) / k for k hidden tokens of n, added to its logits, here
    and in what is returned: what is left to learn is which tokens, and not how many.
    A critic that reads the previous mask is shown one that hides the tokens of this mask and a random number more, as it
    stands before a step of sampling; showing it this very mask would give the answer away.
    """
    if target not in ("masked", "changed"):
        raise InputError(f"target is {target!r}; choose masked or changed")
    generator, own = as_generator(generator), as_critic(unwrapped(critic))
    tokens = as_integers("tokens", tokens)
    mask = training_mask(seeds, tokens.shape[1])
    heat = _heat(temperature, uniforms(seeds, 1, Use.RATIO)[:, 0])
    with evaluating(*generator.networks):
        hidden = tokens.masked_fill(mask, generator.mask_id)
        proposal = propose(generator, hidden, mask, labels, seeds, temperature=heat)
    originals = ~mask if target == "masked" else proposal.tokens == tokens
    # Through `__call__` of what was given, and not of what is inside: wrappers for distributed training hook into the call.
    if own.reads_mask:
        progress = uniforms(seeds, 1, Use.RATIO)[:, 0] * uniforms(seeds, 1, Use.PREVIOUS)[:, 0]
        previous = _mask_at(progress, seeds, tokens.shape[1])
        logits = critic(proposal.tokens, labels, previous)
    else:
        logits = critic(proposal.tokens, labels)
    if own.ratio_conditioned:
        logits = logits + _log_odds(~mask, mask)
    values = F.binary_cross_entropy_with_logits(logits.float(), originals.float(), reduction="none")
    return CriticLoss(values, logits, originals, proposal)


def inline_critic_loss(
    critic: Callable[[Any], Tensor],
    generator: MaskedGenerator,
    tokens: Tensor,
    labels: Tensor | None,
    seeds: Tensor,
    *,
    temperature: Temperature = 1.0,
    fills: int = 1,
) -> InlineCriticLoss:
    """Which visible tokens of a partly hidden image are originals, and which were filled in by the frozen generator?

    Hide as in Algorithm 1 and let the generator fill in; with several `fills`, hide fewer and fewer of the same tokens and fill
    in again, as a sampler does. Then hide some random tokens at a later time still. The critic reads the generator's features
    of this image. The log-odds of originals among the visible tokens are added to its logits, here and in what is returned.
    tokens: (b, n) int64; labels: (b,) or None; seeds: (b,) int64. temperature: of the generator's samples, as in `critic_loss`.
    """
    check_at_least(1, fills=fills)
    generator, tokens, num_tokens = as_generator(generator), as_integers("tokens", tokens), tokens.shape[1]
    progress, originals = uniforms(seeds, 1, Use.RATIO)[:, 0], ~training_mask(seeds, num_tokens)
    with evaluating(*generator.networks), torch.no_grad():
        for step, later in enumerate(uniforms(seeds, fills, Use.LATER).unbind(1)):
            mask, heat = _mask_at(progress, seeds, num_tokens), _heat(temperature, progress)
            hidden = tokens.masked_fill(mask, generator.mask_id)
            tokens = propose(generator, hidden, mask, labels, seeds, step=Step(step), temperature=heat).tokens
            progress = progress + (1 - progress) * later
        num_masked = count_masked(num_tokens, mask_ratio(progress)).clamp(max=num_tokens - 1)
        mask = random_mask(num_masked, uniforms(seeds, num_tokens, Use.REMASK))
        features = generator.features(tokens.masked_fill(mask, generator.mask_id), labels)
    logits = critic(features) + _log_odds(originals & ~mask, ~originals & ~mask)
    values = F.binary_cross_entropy_with_logits(logits.float(), originals.float(), reduction="none")
    return InlineCriticLoss(values.masked_fill(mask, 0), logits, originals, ~mask)


def _heat(temperature: Temperature, progress: Tensor) -> float | Tensor:
    """The temperature of a sampler that hides gamma(progress), whose t/T is 1 - progress. progress: (b,)."""
    start, end = temperature_range(temperature)
    return start if start == end else end + (start - end) * (1 - progress)


def _log_odds(originals: Tensor, fillings: Tensor) -> Tensor:
    """Of originals against fillings in each image, (b, n) bool -> (b, 1); half a token is added to both, as either may miss."""
    first, second = (kind.sum(1, keepdim=True) for kind in (originals, fillings))
    return ((first + 0.5) / (second + 0.5)).log()


def generator_loss(
    generator: nn.Module,
    tokens: Tensor,
    labels: Tensor | None,
    seeds: Tensor,
    *,
    label_smoothing: float = 0.1,
    drop_label: float = 0.0,
) -> GeneratorLoss:
    """The paper's equation 1, MaskGIT's objective: cross-entropy of the hidden tokens, and of no other.

    drop_label: the share of examples whose label becomes the null class, so that guidance can be used later.
    """
    tokens, own = as_integers("tokens", tokens), unwrapped(generator)
    mask = training_mask(seeds, tokens.shape[1])
    if drop_label:
        if labels is None or not own.null_class:
            raise InputError(f"drop_label is {drop_label} but the generator was made without null_class")
        labels = labels.masked_fill(uniforms(seeds, 1, Use.DROP_LABEL)[:, 0] < drop_label, own.num_classes)
    positions = hidden_positions(mask, own.fixed_shapes)
    # Through `__call__`, not `logits_at`: wrappers for distributed training hook into the call.
    logits = generator(tokens.masked_fill(mask, own.mask_id), labels, positions)
    targets = tokens.flatten() if positions is None else tokens[mask]
    predicted = logits.float().flatten(0, -2)
    values = F.cross_entropy(predicted, targets, reduction="none", label_smoothing=label_smoothing)
    if positions is None:
        values = values.view(mask.shape).masked_fill(~mask, 0)
    else:
        values = values.new_zeros(mask.shape).masked_scatter(mask, values)
    return GeneratorLoss(values, logits, tokens, mask)


def critic_auc(logits: Tensor, originals: Tensor) -> Tensor:
    """The probability that an original scores above a filling, ties counted half. Any shape; scalar, nan with one kind only."""
    return critic_auc_within_image(logits.reshape(1, -1), originals.reshape(1, -1))


def critic_auc_within_image(logits: Tensor, originals: Tensor, among: Tensor | None = None) -> Tensor:
    """The probability that an original of an image scores above a filling of it: a sampler ranks within an image.

    logits, originals: (b, n). among: (b, n) bool, the tokens that count; all by default. Returns the mean over images that have
    both kinds; nan without such. A critic that tells only how much of an image was filled in has a high `critic_auc`, and 0.5
    here.
    """
    if among is not None:
        originals, logits = originals & among, logits.masked_fill(~among, torch.inf)  # ranked behind all that count
    images, num_tokens = torch.arange(len(logits), device=logits.device)[:, None], logits.shape[1]
    # Numbered so that all images are ranked at once: by the image first, then by the score.
    numbers = images * logits.numel() + logits.unique(return_inverse=True)[1]
    _, index, counts = numbers.unique(return_inverse=True, return_counts=True)
    counts = counts.double()
    ranks = (counts.cumsum(0) - (counts - 1) / 2)[index] - images * num_tokens  # from 1; equals have their mean
    positive = originals.sum(1).double()
    above = (ranks * originals).sum(1) - positive * (positive + 1) / 2
    counted = num_tokens if among is None else among.sum(1)
    return (above / (positive * (counted - positive))).nanmean()
