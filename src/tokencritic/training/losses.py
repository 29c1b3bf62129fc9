"""Losses of generator, critic and inline critic, and AUC. Losses are unreduced; the training loop reduces them.

All randomness comes from one seed per example, so a loss does not depend on how examples are distributed over ranks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tokencritic.adapters import as_critic, as_generator
from tokencritic.contracts import MaskedGenerator, TokenCritic, evaluating
from tokencritic.distribution import unwrapped
from tokencritic.errors import InputError, as_integers, check_at_least
from tokencritic.masking import count_masked, hidden_positions, mask_ratio, random_mask
from tokencritic.plan import Step
from tokencritic.randomness import Use, uniforms
from tokencritic.sampling.propose import propose
from tokencritic.sampling.settings import Temperature, temperature_range
from tokencritic.scoring import Proposal


@dataclass(frozen=True)
class CriticLoss:
    """The critic's loss on a batch of proposals.

    values: (b, n) float, the unreduced loss.
    logits: (b, n) float, the critic's logits.
    originals: (b, n) bool, the targets: True where the token is an original.
    proposal: the proposal that the critic scored.
    """

    values: Tensor
    logits: Tensor
    originals: Tensor
    proposal: Proposal

    @property
    def mask(self) -> Tensor:
        """The mask (b, n) bool, True where the token was hidden and filled in."""
        return self.proposal.mask


@dataclass(frozen=True)
class InlineCriticLoss:
    """The inline critic's loss on a batch of partly hidden images.

    values: (b, n) float, the unreduced loss, 0 at hidden tokens.
    logits: (b, n) float, the critic's logits.
    originals: (b, n) bool, the targets: True where the token is an original.
    visible: (b, n) bool, True where the loss applies.
    """

    values: Tensor
    logits: Tensor
    originals: Tensor
    visible: Tensor

    @property
    def mean(self) -> Tensor:
        """Return the mean loss of the visible tokens, a scalar."""
        return self.values.sum() / self.visible.sum()


@dataclass(frozen=True)
class GeneratorLoss:
    """The generator's loss on a batch of partly hidden images.

    values: (b, n) float, the unreduced loss, 0 at visible tokens.
    logits: (m, codebook_size) float at the m hidden tokens in row-major order, or (b, n, codebook_size) at all tokens.
    targets: (b, n) int64, the codes.
    mask: (b, n) bool, True at the hidden tokens, where the loss applies.
    """

    values: Tensor
    logits: Tensor
    targets: Tensor
    mask: Tensor

    @property
    def mean(self) -> Tensor:
        """Return the mean loss of the hidden tokens, a scalar."""
        return self.values.sum() / self.mask.sum()

    @property
    def correct(self) -> Tensor:
        """Return whether the likeliest code is the target, at the m hidden tokens in row-major order: (m,) bool."""
        likeliest = self.logits.argmax(-1)
        return (likeliest if likeliest.ndim == 1 else likeliest[self.mask]) == self.targets[self.mask]


def training_mask(seeds: Tensor, num_tokens: int) -> Tensor:
    """Sample training masks (b, n) bool: t ~ U(0, 1), then ceil(gamma(t) N) random tokens (Algorithm 1, lines 3-4).

    seeds: (b,) int64.
    """
    return _mask_at(uniforms(seeds, 1, Use.RATIO)[:, 0], seeds, num_tokens)


def _mask_at(progress: Tensor, seeds: Tensor, num_tokens: int) -> Tensor:
    """Sample masks that hide ceil(gamma(progress) N) tokens. Masks of one seed are nested: later ones are subsets."""
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
    """Compute the critic's loss (Algorithm 1, lines 3-7).

    Random tokens are hidden, the frozen generator fills them in, and the critic predicts which tokens are originals.

    critic, generator: objects of the contract, callables that `as_critic` and `as_generator` accept, or DDP wrappers.
    tokens: (b, n) int64, tokens of real images.
    labels: (b,) int64 or None.
    seeds: (b,) int64.
    temperature: sampling temperature of the generator. A pair (start, end) gives each example the temperature that a
    sampler has at the example's mask ratio.
    target: "masked" labels every token that was hidden as 0, as in the paper. "changed" labels a hidden token as 1 if
    the generator sampled the original code.

    For a ratio-conditioned critic, log((n - k) / k) is added to the logits of an image with k of n tokens hidden. The
    returned logits include this offset. The critic then only learns which tokens were hidden, not how many.

    A critic that reads the mask gets another mask, like the one before a sampling step. It hides these k tokens and a
    random number of others. The training mask itself would reveal the targets.
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
    # Call the critic as it was passed, not the unwrapped one: wrappers for distributed training hook into the call.
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
    """Compute the inline critic's loss: predict which visible tokens of a partly hidden image are originals.

    1. Hide random tokens as in Algorithm 1, and let the frozen generator fill them in.
    2. Repeat this `fills` - 1 times with a shrinking subset of the same tokens, as a sampler does.
    3. Hide random tokens at a later progress. The critic reads the generator's features of this partly hidden image.

    The log-odds of originals among the visible tokens are added to the logits. The returned logits include this offset.

    tokens: (b, n) int64, tokens of real images.
    labels: (b,) int64 or None.
    seeds: (b,) int64.
    temperature: sampling temperature of the generator, as in `critic_loss`.
    fills: how many times the generator fills in tokens.
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
    """Return the temperature of a sampler at this progress, where t/T = 1 - progress. progress: (b,)."""
    start, end = temperature_range(temperature)
    return start if start == end else end + (start - end) * (1 - progress)


def _log_odds(originals: Tensor, fillings: Tensor) -> Tensor:
    """Return the log-odds of originals against filled-in tokens in each image: two (b, n) bool -> (b, 1) float.

    Half a token is added to both counts to keep the log-odds finite.
    """
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
    """Compute MaskGIT's loss, equation 1 of the paper: the cross-entropy at the hidden tokens.

    tokens: (b, n) int64.
    labels: (b,) int64 or None.
    seeds: (b,) int64.
    drop_label: the share of examples whose label is replaced by the null class, for classifier-free guidance.
    """
    tokens, own = as_integers("tokens", tokens), unwrapped(generator)
    mask = training_mask(seeds, tokens.shape[1])
    if drop_label:
        if labels is None or not own.null_class:
            raise InputError(f"drop_label is {drop_label}; expected 0 for a generator without null_class")
        labels = labels.masked_fill(uniforms(seeds, 1, Use.DROP_LABEL)[:, 0] < drop_label, own.num_classes)
    positions = hidden_positions(mask, own.fixed_shapes)
    # `__call__` instead of `logits_at`, because wrappers for distributed training hook into the call.
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
    """Compute the AUC of originals against filled-in tokens: the probability that the original has the higher logit.

    logits, originals: any shape. Returns a scalar, NaN if all tokens are of one kind. Ties count half.
    """
    return critic_auc_within_image(logits.reshape(1, -1), originals.reshape(1, -1))


def critic_auc_within_image(logits: Tensor, originals: Tensor, among: Tensor | None = None) -> Tensor:
    """Compute the mean AUC within images, because a sampler only ranks tokens of the same image.

    logits, originals: (b, n).
    among: (b, n) bool, the tokens to compare; all by default.

    Returns a scalar, the mean over images that have tokens of both kinds, or NaN without any. A critic that only
    detects how much of an image was filled in has a high `critic_auc`, but 0.5 here.
    """
    if among is not None:
        originals, logits = originals & among, logits.masked_fill(~among, torch.inf)  # ranked last
    images, num_tokens = torch.arange(len(logits), device=logits.device)[:, None], logits.shape[1]
    # These numbers sort by image first and by score second, so that one ranking serves all images.
    numbers = images * logits.numel() + logits.unique(return_inverse=True)[1]
    _, index, counts = numbers.unique(return_inverse=True, return_counts=True)
    counts = counts.double()
    ranks = (counts.cumsum(0) - (counts - 1) / 2)[index] - images * num_tokens  # from 1; ties get their mean rank
    positive = originals.sum(1).double()
    above = (ranks * originals).sum(1) - positive * (positive + 1) / 2
    counted = num_tokens if among is None else among.sum(1)
    return (above / (positive * (counted - positive))).nanmean()
