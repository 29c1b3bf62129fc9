"""The codebook: nearest codes, perplexity, and updates of the codes in training."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

# The number of latents compared with all codes in parallel. Their distances stay in the CPU cache.
_ROWS = 4096


class Quantizer(nn.Module):
    """A codebook of `codebook_size` codes of dimension `width`."""

    def __init__(self, codebook_size: int, width: int) -> None:
        super().__init__()
        self.codebook = nn.Parameter(torch.empty(codebook_size, width))
        nn.init.normal_(self.codebook, std=width**-0.5)

    @property
    def codes(self) -> Tensor:
        """(codebook_size, width): the codes as they are compared and looked up."""
        return self.codebook

    @torch.no_grad()
    def nearest(self, latents: Tensor) -> Tensor:
        """Return the index of the nearest code at each position: (b, d, gh, gw) -> (b, gh gw) int64.

        Of equal codes, the one with the lowest index is returned.
        """
        codes, rows = self.codes, latents.permute(0, 2, 3, 1).flatten(0, 2)
        lengths = codes.square().sum(1)  # the squared norm of the latent is the same for every code
        chosen = torch.cat([torch.addmm(lengths, part, codes.T, alpha=-2).argmin(1) for part in rows.split(_ROWS)])
        # A matrix product may round equal columns differently, so map each code to the first one equal to it.
        kinds = codes.unique(dim=0, return_inverse=True)[1]
        indices = torch.arange(len(codes), device=codes.device)
        first = torch.full_like(indices, len(codes)).scatter_reduce(0, kinds, indices, "amin")[kinds]
        return first[chosen].view(len(latents), latents.shape[2] * latents.shape[3])

    def look_up(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        """Return the codes of tokens: (b, n) int64 -> (b, d, gh, gw) in the channels-last memory format."""
        return F.embedding(tokens, self.codes).unflatten(1, grid).permute(0, 3, 1, 2)


class UnitQuantizer(Quantizer):
    """Codes of length 1: rows of the codebook, which may have any length, are divided by it at each use."""

    @property
    def codes(self) -> Tensor:
        return F.normalize(self.codebook, dim=1)


def code_counts(tokens: Tensor, codebook_size: int) -> Tensor:
    """Count how often each code occurs in tokens of any shape. Returns (codebook_size,) float."""
    return torch.bincount(tokens.flatten(), minlength=codebook_size).float()


def perplexity(counts: Tensor) -> Tensor:
    """Compute the perplexity of counts or weights (k,): a scalar from 1 (one code used) to k (all used evenly)."""
    shares = counts.double() / counts.sum().clamp(min=1e-12)
    return torch.special.entr(shares).sum().exp().float()


class CodebookUpkeep(nn.Module):
    """Updates of a codebook in training: moving averages (EMA) of codes and re-seeding of dead codes.

    A code becomes the moving average of the latents assigned to it. A dead code, which few latents are assigned to, is
    replaced by a latent of the batch. Codes that the first batch does not use are re-seeded immediately. The state is
    part of a training checkpoint, not of the tokenizer.

    decay: decay of the moving averages, in [0, 1).
    dead: a code is dead if its usage is below this share of even usage.
    """

    counts: Tensor
    sums: Tensor

    def __init__(self, quantizer: Quantizer, decay: float = 0.99, dead: float = 0.03) -> None:
        super().__init__()
        self.decay, self.dead = decay, dead
        codebook = quantizer.codebook.detach()
        self.register_buffer("counts", torch.zeros(len(codebook), device=codebook.device))
        self.register_buffer("sums", torch.zeros_like(codebook))

    @torch.no_grad()
    def update(
        self, quantizer: Quantizer, latents: Tensor, tokens: Tensor, rng: torch.Generator, reseed: bool = True
    ) -> int:
        """Update the codebook with one batch, after the optimizer's step. Returns the number of re-seeded codes.

        latents: (b, d, gh, gw).
        tokens: (b, n) int64, the codes assigned to the latents.
        rng: selects the latents that replace dead codes.
        reseed: whether to replace dead codes.

        Under torch.distributed the averages use the batches of all ranks. Dead codes are replaced by latents of the
        first rank.
        """
        rows = latents.detach().permute(0, 2, 3, 1).flatten(0, 2)
        chosen = tokens.flatten()
        size = len(quantizer.codebook)
        counts = code_counts(tokens, size)
        sums = torch.zeros_like(self.sums).index_add_(0, chosen, rows.to(self.sums.dtype))
        if dist.is_initialized():
            dist.all_reduce(counts)
            dist.all_reduce(sums)
        # Counts are relative to even usage, so that 1 is even usage for any batch size.
        share = size / counts.sum().clamp(min=1)
        self.counts.lerp_(counts * share, 1 - self.decay)
        self.sums.lerp_(sums * share, 1 - self.decay)
        used = self.counts > self.dead
        means = self.sums / self.counts.clamp(min=1e-6)[:, None]
        quantizer.codebook[used] = means[used].to(quantizer.codebook.dtype)
        reseeded = self._reseed(quantizer, rows, chosen, rng) if reseed else 0
        if dist.is_initialized():  # each rank sampled from its own rows; use those of the first rank
            for tensor in (quantizer.codebook, self.sums, self.counts):
                dist.broadcast(tensor, 0)
        return reseeded

    def _reseed(self, quantizer: Quantizer, rows: Tensor, chosen: Tensor, rng: torch.Generator) -> int:
        """Replace each dead code by a latent of this batch and set its usage to even. Returns the number replaced.

        Latents are sampled with probability proportional to their squared error. Uniform sampling would mostly select
        latents that are already well represented, such as an empty background.
        """
        errors = (rows - quantizer.codebook[chosen]).square().sum(1).cpu().double()
        dead = (self.counts < self.dead).nonzero()[:, 0][: int((errors > 0).sum())]
        if len(dead) == 0:
            return 0
        seeds = rows[torch.multinomial(errors, len(dead), generator=rng).to(rows.device)]
        quantizer.codebook[dead] = seeds.to(quantizer.codebook.dtype)
        self.sums[dead] = seeds.to(self.sums.dtype)
        self.counts[dead] = 1.0
        return len(dead)
