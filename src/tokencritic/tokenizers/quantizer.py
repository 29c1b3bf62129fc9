"""The codebook: nearest codes, how evenly they are used, and how training moves them and keeps them alive."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

# Rows of latents compared with all codes at a time: the table of distances stays in the cache.
_ROWS = 4096


class Quantizer(nn.Module):
    """codebook_size codes of `width` numbers each."""

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
        """(b, d, gh, gw) -> (b, gh gw) int64: for each place the code at the least squared distance, the lowest of equals."""
        codes, rows = self.codes, latents.permute(0, 2, 3, 1).flatten(0, 2)
        lengths = codes.square().sum(1)  # the row's own length is the same for every code
        chosen = torch.cat([torch.addmm(lengths, part, codes.T, alpha=-2).argmin(1) for part in rows.split(_ROWS)])
        # A matrix product rounds equal columns differently: of each code the lowest index that holds the same.
        kinds = codes.unique(dim=0, return_inverse=True)[1]
        indices = torch.arange(len(codes), device=codes.device)
        first = torch.full_like(indices, len(codes)).scatter_reduce(0, kinds, indices, "amin")[kinds]
        return first[chosen].view(len(latents), latents.shape[2] * latents.shape[3])

    def look_up(self, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        """(b, n) int64 -> (b, d, gh, gw), in the channels-last memory format."""
        return F.embedding(tokens, self.codes).unflatten(1, grid).permute(0, 3, 1, 2)


class UnitQuantizer(Quantizer):
    """Codes of length 1: rows of the codebook, which may have any length, are divided by it at each use."""

    @property
    def codes(self) -> Tensor:
        return F.normalize(self.codebook, dim=1)


def code_counts(tokens: Tensor, codebook_size: int) -> Tensor:
    """tokens of any shape -> (codebook_size,) float: how often each code occurs."""
    return torch.bincount(tokens.flatten(), minlength=codebook_size).float()


def perplexity(counts: Tensor) -> Tensor:
    """(k,) counts or weights -> scalar, e to the entropy of their shares: k when all are used alike, 1 when one is."""
    shares = counts.double() / counts.sum().clamp(min=1e-12)
    return torch.special.entr(shares).sum().exp().float()


class CodebookUpkeep(nn.Module):
    """The state that keeps a codebook in use while it is trained: moving averages of each code's use and of its latents.

    It is part of a training checkpoint, not of the tokenizer. Codes become the moving average of the latents that chose them.
    decay: of the averages, in [0, 1). dead: a code whose use falls below this share of an even one is re-seeded. What the
    first batch leaves unused is re-seeded at once.
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
        """Take in one batch: latents (b, d, gh, gw) and the tokens (b, n) they became. Returns how many codes it re-seeded.

        Call it after the optimizer's step. Under torch.distributed the batch is that of all ranks together, but for
        the latents that dead codes become, which are the first rank's.
        rng: chooses the latents that dead codes become; the same rng state gives the same codebook.
        reseed: False leaves dead codes where they are.
        """
        rows = latents.detach().permute(0, 2, 3, 1).flatten(0, 2)
        chosen = tokens.flatten()
        size = len(quantizer.codebook)
        counts = code_counts(tokens, size)
        sums = torch.zeros_like(self.sums).index_add_(0, chosen, rows.to(self.sums.dtype))
        if dist.is_initialized():
            dist.all_reduce(counts)
            dist.all_reduce(sums)
        # Kept relative to an even use, so that a count of 1 is even whatever the size of the batch.
        share = size / counts.sum().clamp(min=1)
        self.counts.lerp_(counts * share, 1 - self.decay)
        self.sums.lerp_(sums * share, 1 - self.decay)
        used = self.counts > self.dead
        means = self.sums / self.counts.clamp(min=1e-6)[:, None]
        quantizer.codebook[used] = means[used].to(quantizer.codebook.dtype)
        reseeded = self._reseed(quantizer, rows, chosen, rng) if reseed else 0
        if dist.is_initialized():  # each rank drew from its own rows: the first one's are taken
            for tensor in (quantizer.codebook, self.sums, self.counts):
                dist.broadcast(tensor, 0)
        return reseeded

    def _reseed(self, quantizer: Quantizer, rows: Tensor, chosen: Tensor, rng: torch.Generator) -> int:
        """Each dead code becomes a latent of this batch, drawn by its squared error, with the use of an even code to live on.

        Drawn evenly, most would be copies of what there are codes for already, such as an empty background.
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
