import pytest
import scipy.stats
import torch

from tokencritic.adapters import as_generator
from tokencritic.errors import InputError
from tokencritic.models.generator import Generator
from tokencritic.models.transformer import TransformerConfig
from tokencritic.sampling.propose import propose, sample_codes

TINY = TransformerConfig(num_tokens=9, codebook_size=20, num_classes=3, width=16, layers=2, heads=2, mlp_width=32)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_codes_follow_the_tempered_softmax(temperature):
    logits = torch.tensor([0.0, 1.0, -2.0, 3.0, -torch.inf])
    u = torch.rand(100_000, generator=torch.Generator().manual_seed(0))
    counts = sample_codes(logits.expand(len(u), 5), u, temperature).bincount(minlength=5)
    expected = (logits.double() / temperature).softmax(-1) * len(u)
    assert counts[4] == 0  # a code of probability 0 is never sampled
    assert scipy.stats.chisquare(counts[:4], expected[:4]).pvalue > 1e-4


def test_sampling_is_the_inverse_of_the_distribution_function():
    logits = torch.tensor([0.25, 0.5, 0.0, 0.25]).log().expand(6, 4)
    u = torch.tensor([1e-7, 0.2499, 0.2501, 0.7499, 0.7501, 1 - 2**-24])
    assert sample_codes(logits, u).tolist() == [0, 0, 1, 1, 3, 3]


def test_temperature_0_is_greedy_and_below_it_is_an_error():
    logits = torch.tensor([[0.0, 2.0, 2.0]])
    assert sample_codes(logits, torch.tensor([0.99]), 0.0).tolist() == [1]
    with pytest.raises(InputError, match="temperature is -1"):
        sample_codes(logits, torch.tensor([0.5]), -1.0)


def test_a_temperature_next_to_0_is_next_to_greedy():
    logits = torch.tensor([[3.0, 5.0, 4.0]])
    for temperature in (1e-40, 1e-6, 0.01):
        assert sample_codes(logits, torch.tensor([0.7]), temperature).tolist() == [1]


def test_visible_tokens_are_copied_and_hidden_ones_filled():
    generator = Generator(TINY).eval()
    tokens = torch.randint(0, 20, (4, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.rand(4, 9, generator=torch.Generator().manual_seed(2)) < 0.5
    masked = tokens.masked_fill(mask, generator.mask_id)
    proposals = [
        propose(generator, masked, mask, torch.arange(4) % 3, torch.arange(4), most_masked=most)
        for most in (None, int(mask.sum(1).max()), 9)
    ]
    for proposal in proposals:
        assert proposal.tokens[~mask].equal(tokens[~mask])
        assert (proposal.tokens < 20).all()
        assert proposal.tokens.equal(proposals[0].tokens)
        assert proposal.confidence().isinf().equal(~mask)
        assert proposal.confidence()[mask].allclose(proposals[0].confidence()[mask], atol=1e-5)


def test_log_probs_are_the_softmax_at_temperature_1():
    logits = torch.randn(1, 9, 20, generator=torch.Generator().manual_seed(0))
    hidden = torch.ones(1, 9, dtype=torch.bool)
    masked = torch.full((1, 9), 20)
    generator = as_generator(lambda *_: logits, num_tokens=9, codebook_size=20, mask_id=20)
    for temperature in (0.0, 0.3, 1.0):
        proposal = propose(generator, masked, hidden, None, torch.tensor([1]), temperature=temperature)
        expected = logits.log_softmax(-1).gather(-1, proposal.tokens[..., None])[..., 0]
        assert proposal.confidence().allclose(expected, atol=1e-6)


def test_each_image_may_have_a_temperature_of_its_own():
    config = TransformerConfig(num_tokens=6, codebook_size=8, num_classes=2, width=8, layers=1, heads=1)
    generator = Generator(config).eval()
    tokens = torch.full((3, 6), generator.mask_id)
    mask, labels, seeds = torch.ones(3, 6, dtype=torch.bool), torch.tensor([0, 1, 0]), torch.arange(3)
    mask[:, 0], tokens[:, 0] = False, 2
    temperatures = [0.0, 0.7, 1.3]
    for most_masked in (None, 5):
        together = propose(
            generator, tokens, mask, labels, seeds, temperature=torch.tensor(temperatures), most_masked=most_masked
        )
        for row, temperature in enumerate(temperatures):
            part = slice(row, row + 1)
            alone = propose(generator, tokens[part], mask[part], labels[part], seeds[part], temperature=temperature)
            assert together.tokens[part].equal(alone.tokens)
