"""The codebook: exact nearest codes, straight-through gradients, and re-seeding of dead codes."""

import pytest
import torch

from tokencritic.tokenizers import quantizer as quantizer_module
from tokencritic.tokenizers.quantizer import (
    CodebookUpkeep,
    Quantizer,
    code_counts,
    perplexity,
)


def in_use(quantizer: Quantizer, **settings: float) -> CodebookUpkeep:
    """The upkeep of a codebook with even usage."""
    upkeep = CodebookUpkeep(quantizer, **settings)
    upkeep.counts.fill_(1.0)
    upkeep.sums.copy_(quantizer.codebook.detach())
    return upkeep


def nearest_codes(rows: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """Return the nearest code of each row by a quantizer: rows (m, d) and codes (k, d) -> (m,)."""
    quantizer = Quantizer(*codes.shape)
    quantizer.codebook.data.copy_(codes)
    return quantizer.nearest(rows.T[None, :, :, None])[0]


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_nearest_codes_agree_with_the_definition() -> None:
    rows, codes = torch.randn(50, 7, generator=rng(1)), torch.randn(33, 7, generator=rng(2))
    plain = (rows[:, None] - codes).square().sum(-1)
    assert torch.equal(nearest_codes(rows, codes), plain.argmin(1))


def test_more_rows_than_fit_in_one_part_change_nothing() -> None:
    rows, codes = torch.randn(9001, 3, generator=rng(1)), torch.randn(20, 3, generator=rng(2))
    assert torch.equal(nearest_codes(rows, codes), (rows[:, None] - codes).square().sum(-1).argmin(1))
    assert nearest_codes(rows[:0], codes).shape == (0,)


def test_of_equal_codes_the_lowest_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert nearest_codes(torch.tensor([[0.0]]), torch.tensor([[3.0], [1.0], [-1.0]])).tolist() == [1]
    kinds = [2, 0, 1, 0, 2, 2, 1]
    codes = torch.randn(3, 4, generator=rng(3))[kinds]
    # A matrix product may round copies of a code apart, depending on where its blocks end; here the last is lowest.
    product = torch.addmm
    slope = torch.arange(len(kinds)) * 1e-6
    monkeypatch.setattr(torch, "addmm", lambda *given, alpha: product(*given, alpha=alpha) - slope)
    chosen = nearest_codes(torch.randn(50, 4, generator=rng(4)), codes)
    assert set(chosen.tolist()) == {0, 1, 2}


def test_a_quantizer_returns_codes_to_their_own_places() -> None:
    quantizer = Quantizer(10, 4)
    tokens = torch.randint(0, 10, (2, 6), generator=rng())
    looked_up = quantizer.look_up(tokens, (2, 3))
    assert looked_up.shape == (2, 4, 2, 3)
    assert torch.equal(looked_up[1, :, 1, 2], quantizer.codebook[tokens[1, 5]])
    assert torch.equal(quantizer.nearest(looked_up), tokens)


def test_perplexity_counts_the_codes_in_use() -> None:
    assert perplexity(torch.tensor([5.0, 5.0, 5.0, 5.0])).item() == pytest.approx(4)
    assert perplexity(torch.tensor([9.0, 0.0, 0.0])).item() == pytest.approx(1)
    # Entropy of (1/2, 1/4, 1/4) is 1.5 bits.
    assert perplexity(torch.tensor([2.0, 1.0, 1.0])).item() == pytest.approx(2**1.5)
    assert code_counts(torch.tensor([[0, 2], [2, 2]]), 4).tolist() == [1, 0, 3, 0]


def test_learned_codes_become_the_means_of_the_latents_that_chose_them() -> None:
    quantizer = Quantizer(2, 1)
    with torch.no_grad():
        quantizer.codebook.copy_(torch.tensor([[-1.0], [1.0]]))
    upkeep = in_use(quantizer, decay=0.0)
    latents = torch.tensor([-3.0, -5.0, 2.0, 4.0]).view(1, 1, 2, 2)
    assert upkeep.update(quantizer, latents, quantizer.nearest(latents), rng()) == 0
    torch.testing.assert_close(quantizer.codebook.detach(), torch.tensor([[-4.0], [3.0]]))
    assert perplexity(upkeep.counts).item() == pytest.approx(2)


def test_use_is_counted_relative_to_an_even_one() -> None:
    quantizer = Quantizer(4, 1)
    upkeep = CodebookUpkeep(quantizer, decay=0.0, dead=0.0)
    tokens = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 3]])
    upkeep.update(quantizer, torch.ones(1, 1, 2, 4), tokens, rng())
    assert upkeep.counts.tolist() == [1.5, 1.0, 1.0, 0.5]


def test_the_moving_average_takes_the_stated_share() -> None:
    quantizer = Quantizer(1, 1)
    with torch.no_grad():
        quantizer.codebook.fill_(2.0)
    upkeep = in_use(quantizer, decay=0.75)
    latents = torch.tensor([10.0]).view(1, 1, 1, 1)
    upkeep.update(quantizer, latents, torch.zeros(1, 1, dtype=torch.long), rng())
    assert quantizer.codebook.item() == pytest.approx(0.75 * 2 + 0.25 * 10)


def test_dead_codes_are_reseeded_from_the_batch_the_same_way_each_time() -> None:
    latents = torch.randn(4, 3, 5, 5, generator=rng(1))
    books = []
    for run in range(2):
        quantizer = Quantizer(8, 3)
        torch.manual_seed(run)  # the global stream must not matter
        with torch.no_grad():
            quantizer.codebook[0] = 0.0
            quantizer.codebook[1:] = 100.0 + torch.arange(7.0)[:, None]  # only the first is ever near
        upkeep = in_use(quantizer, decay=0.0)
        assert upkeep.update(quantizer, latents, quantizer.nearest(latents), rng(5)) == 7
        books.append(quantizer.codebook.detach().clone())
    assert torch.equal(*books)
    rows = latents.permute(0, 2, 3, 1).flatten(0, 2)
    for code in books[0][1:]:
        assert (rows == code).all(1).any()
    assert len(books[0].unique(dim=0)) == 8


def test_a_fresh_codebook_is_seeded_from_the_first_batch_and_a_trained_one_is_not() -> None:
    latents = torch.randn(4, 3, 5, 5, generator=rng(1))
    for fresh in (True, False):
        quantizer = Quantizer(16, 3)
        with torch.no_grad():
            quantizer.codebook[1:] = 100.0 + torch.arange(15.0)[:, None]
        upkeep = (CodebookUpkeep if fresh else in_use)(quantizer, decay=0.9)
        assert upkeep.update(quantizer, latents, quantizer.nearest(latents), rng(5)) == (15 if fresh else 0)
        assert len(quantizer.nearest(latents).unique()) == (16 if fresh else 1)


def test_training_with_upkeep_brings_every_code_into_use() -> None:
    torch.manual_seed(0)
    quantizer = Quantizer(64, 2)
    with torch.no_grad():
        quantizer.codebook.mul_(0.01).add_(5.0)  # a bad initialisation far from all latents
    upkeep = CodebookUpkeep(quantizer, decay=0.9)
    stream = rng(1)
    for _ in range(60):
        latents = torch.randn(8, 2, 8, 8, generator=stream)
        upkeep.update(quantizer, latents, quantizer.nearest(latents), stream)
    tokens = quantizer.nearest(torch.randn(64, 2, 8, 8, generator=stream))
    assert perplexity(code_counts(tokens, 64)) > 45
    assert perplexity(upkeep.counts).item() > 45


def test_ranks_share_one_codebook(monkeypatch: pytest.MonkeyPatch) -> None:
    latents = torch.randn(4, 3, 5, 5, generator=rng(1))

    def updated(parts: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(7)
        quantizer = Quantizer(8, 3)
        in_use(quantizer, decay=0.5, dead=0.0).update(quantizer, parts, quantizer.nearest(parts), rng(5))
        return quantizer.codebook.detach()

    alone = updated(torch.cat([latents, latents]))
    # Two ranks with the same batch: sums over ranks are twice those of each rank.
    broadcast = []
    monkeypatch.setattr(quantizer_module.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(quantizer_module.dist, "all_reduce", lambda tensor: tensor.mul_(2))
    monkeypatch.setattr(quantizer_module.dist, "broadcast", lambda tensor, source: broadcast.append(source))
    torch.testing.assert_close(updated(latents), alone)
    assert broadcast == [0, 0, 0]


def test_a_batch_of_copies_reseeds_only_what_it_can() -> None:
    quantizer = Quantizer(4, 2)
    with torch.no_grad():
        quantizer.codebook[0] = 1.0
    upkeep = in_use(quantizer, decay=0.0)
    latents = torch.ones(1, 2, 3, 3)  # all equal to the first code, so that no latent has an error
    assert upkeep.update(quantizer, latents, torch.zeros(1, 9, dtype=torch.long), rng()) == 0
