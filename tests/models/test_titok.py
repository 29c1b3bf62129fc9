"""TiTok's BERT generator: its architecture, its positions and features, and the critics that start from it."""

import dataclasses
import math

import pytest
import torch
from models import reference

from tokencritic.cost import count_flops
from tokencritic.errors import InputError
from tokencritic.models.inline_critic import InlineCritic, InlineCriticConfig
from tokencritic.models.titok import BertConfig, BertCritic, BertGenerator
from tokencritic.pipeline_folder import KINDS
from tokencritic.sampling.scorers import InlineScorer
from tokencritic.sampling.starts import sample

TINY = BertConfig(num_tokens=9, codebook_size=20, num_classes=3, width=16, layers=3, heads=2, mlp_width=32)
INDICES = torch.tensor([[0, 8], [3, 3], [5, 1], [7, 2], [8, 0]])


def shaken(model, seed=0):
    """Every weight and bias away from its start, so that nothing is 0 or 1 by chance."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=rng)
    return model.eval()


def inputs(config, batch=5):
    rng = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, config.codebook_size, (batch, config.num_tokens), generator=rng)
    mask = torch.rand(batch, config.num_tokens, generator=rng) < 0.6
    return tokens, tokens.masked_fill(mask, config.mask_id), mask, torch.arange(batch) % 4


def exact_gelu(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


@pytest.mark.parametrize("grad", [False, True])
def test_it_is_a_post_norm_transformer_with_the_exact_gelu_and_a_head_of_its_own(monkeypatch, grad):
    generator, (_, masked, _, labels) = shaken(BertGenerator(TINY)), inputs(TINY)
    w = {name.removeprefix("trunk."): value.double() for name, value in generator.state_dict().items()}
    assert not any("readout" in name for name in w)
    monkeypatch.setattr(reference, "gelu", exact_gelu)
    x = reference.blocks(w, torch.cat([labels[:, None] + 20, masked], 1), layers=3, heads=2, norm_first=False)
    with torch.set_grad_enabled(grad):
        logits = generator(masked, labels)
    wanted = x[:, 1:] @ w["to_logits.weight"].T + w["to_logits.bias"]
    assert logits.double().allclose(wanted, atol=1e-4)


def test_asking_for_some_positions_gives_their_logits_for_fewer_flops():
    generator, (_, masked, mask, labels) = shaken(BertGenerator(TINY)), inputs(TINY)
    everything = generator(masked, labels)
    some = generator.logits_at(masked, labels, INDICES)
    assert some.allclose(everything.gather(1, INDICES[..., None].expand(-1, -1, 20)), atol=1e-5)
    assert generator.logits_at(masked, labels, mask).allclose(everything[mask], atol=1e-5)
    logits, features = generator.logits_with_features(masked, labels, INDICES)
    assert logits.equal(some)
    assert [tuple(x.shape) for x in features] == [(5, 9, 16)] * 3
    whole, part = (count_flops(lambda p=p: generator(masked, labels, p)) for p in (None, INDICES))
    # The original's: all blocks at all places, the head at the tokens.
    block = 10 * (4 * 16**2 + 2 * 16 * 32) + 2 * 10 * 10 * 16
    assert whole == 2 * 5 * (3 * block + 9 * 16 * 20)
    assert part < whole


def test_guidance_and_labels_know_the_null_class():
    generator, (_, masked, _, labels) = shaken(BertGenerator(TINY)), inputs(TINY)
    assert (generator.null_class, generator.num_labels, generator.mask_id) == (True, 4, 24)
    assert not generator(masked, labels).equal(generator(masked, torch.full_like(labels, 3)))
    with pytest.raises(InputError, match="labels holds 4; expected integers from 0 to 3"):
        generator(masked, labels + 1)


def test_a_critic_starts_as_the_generators_trunk():
    generator, (tokens, _, mask, labels) = shaken(BertGenerator(TINY)), inputs(TINY)
    critic = generator.start_critic(dropout=0.0).eval()
    assert type(critic) is BertCritic
    assert critic.trunk(tokens, labels).equal(generator.trunk(tokens, labels))
    assert critic(tokens, labels).shape == (5, 9)
    two = generator.start_critic(2, reads_mask=True, ratio_conditioned=True).eval()
    assert (two.config.layers, two.config.reads_mask, two.config.ratio_conditioned) == (2, True, True)
    assert two.trunk.blocks[1].up.weight.equal(generator.trunk.blocks[1].up.weight)
    assert two(tokens, labels, mask).equal(two(tokens, labels, ~mask))  # the mask's embedding starts at 0


def test_an_inline_critic_judges_its_features():
    generator = shaken(BertGenerator(TINY))
    sizes = {"num_features": 3, "feature_width": 16, "width": 8, "layers": 1, "heads": 2, "mlp_width": 8}
    head = InlineCritic(InlineCriticConfig(9, 20, 3, generator=generator.identity(), **sizes)).eval()
    head.check(generator, weights=True)
    tokens = sample(generator, InlineScorer(head), [0, 2], 1, steps=6)
    assert tokens.shape == (2, 9)
    assert int(tokens.max()) < 20


def test_recomputed_activations_give_the_same_gradients():
    config = dataclasses.replace(TINY, dropout=0.3)
    generator, (_, masked, _, labels) = shaken(BertGenerator(config)).train(), inputs(config)
    gradients = []
    for recompute in (False, True):
        generator.trunk.recompute_activations = recompute
        torch.manual_seed(3)
        logits = generator(masked, labels, INDICES)
        gradients.append(torch.autograd.grad(logits.square().sum(), list(generator.parameters())))
    assert all(a.equal(b) for a, b in zip(*gradients, strict=True))


def test_saving_keeps_every_weight_and_the_fields_that_it_has(tmp_path):
    generator, (_, masked, _, labels) = shaken(BertGenerator(TINY)), inputs(TINY)
    generator.save_pretrained(tmp_path)
    again = BertGenerator.from_pretrained(tmp_path)
    assert again.config == TINY
    assert again.fingerprint() == generator.fingerprint()
    assert again(masked, labels).equal(generator(masked, labels))
    assert "norm_first" not in {field.name for field in dataclasses.fields(BertConfig)}
    with pytest.raises(TypeError, match="norm_first"):
        BertConfig(norm_first=True)


def test_the_published_size_is_the_default():
    with torch.device("meta"):
        count = sum(p.numel() for p in BertGenerator(BertConfig()).parameters())
    words, block = 4096 + 1000 + 2, 4 * (768**2 + 768) + 2 * 768 * 3072 + 3840 + 4 * 768
    assert count == (words + 33 + 2) * 768 + 24 * block + 769 * 4096


def test_the_fields_of_a_config_tell_the_kinds_of_a_part_apart():
    for part, kinds in KINDS.items():
        fields = [frozenset(field.name for field in dataclasses.fields(kind.Config)) for kind in kinds.values()]
        assert len(set(fields)) == len(fields), part
