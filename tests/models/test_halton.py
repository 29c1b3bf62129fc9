"""Halton-MaskGIT's transformer: its contract as a trunk, a generator and a critic. Parity is tested in tests/interop."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from tokencritic.cost import count_flops
from tokencritic.errors import InputError
from tokencritic.guidance import guided
from tokencritic.models.halton import HaltonConfig, HaltonCritic, HaltonCriticConfig, HaltonGenerator
from tokencritic.models.inline_critic import InlineCritic, InlineCriticConfig
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.pipeline_folder import load_part
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.tokenizers.llamagen import LlamaGenConfig, LlamaGenVQ

TINY = HaltonConfig(
    num_tokens=9, codebook_size=20, num_classes=3, width=16, layers=3, heads=3, mlp_width=24, registers=2
)
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
    mask[1] = False  # an image of which nothing is hidden
    return tokens, tokens.masked_fill(mask, config.mask_id), mask, torch.arange(batch) % 4


def test_the_mask_follows_the_codes_and_the_null_class_the_classes():
    generator = HaltonGenerator(TINY)
    assert (generator.mask_id, generator.num_classes, generator.null_class, generator.num_labels) == (20, 3, True, 4)
    assert (TINY.attention_width, generator.trunk.blocks[0].qkv.weight.shape) == (15, (45, 16))
    _, masked, _, labels = inputs(TINY)
    assert generator(masked, labels).shape == (5, 9, 20)  # no logit of the mask


@pytest.mark.parametrize("registers", [0, 1, 2])
def test_asking_for_some_positions_gives_their_logits(registers):
    config = dataclasses.replace(TINY, registers=registers)
    generator, (_, masked, mask, labels) = shaken(HaltonGenerator(config)), inputs(config)
    with torch.no_grad():
        everything = generator(masked, labels)
        some = generator.logits_at(masked, labels, INDICES)
        hidden = generator.logits_at(masked, labels, mask)
    assert everything.std() > 1
    torch.testing.assert_close(some, everything.gather(1, INDICES[..., None].expand(-1, -1, 20)), atol=1e-4, rtol=0)
    torch.testing.assert_close(hidden, everything[mask], atol=1e-4, rtol=0)


def test_features_are_what_enters_each_block_without_the_registers():
    generator, (_, masked, mask, labels) = shaken(HaltonGenerator(TINY)), inputs(TINY)
    entered = []
    for block in generator.trunk.blocks:
        block.register_forward_pre_hook(lambda _, arguments: entered.append(arguments[0]))
    with torch.no_grad():
        logits, features = generator.logits_with_features(masked, labels, mask)
        assert logits.equal(generator(masked, labels, mask))
        alone = generator.features(masked, labels)
    assert [x.shape for x in entered[:3]] == 3 * [(5, 11, 16)]
    assert (len(features), generator.num_features, generator.feature_width) == (3, 3, 16)
    for feature, again, x in zip(features, alone, entered[:3], strict=True):
        assert feature.equal(x[:, :9])
        assert feature.equal(again)


def test_an_inline_critic_reads_the_features():
    generator, (_, masked, _, labels) = shaken(HaltonGenerator(TINY)), inputs(TINY)
    sizes = {name: vars(generator)[name] for name in ("num_tokens", "codebook_size", "num_classes")}
    sizes |= {"num_features": 3, "feature_width": 16, "generator": generator.identity()}
    head = InlineCritic(InlineCriticConfig(**sizes, width=16, layers=1, heads=2, mlp_width=16)).eval()
    head.check(generator, weights=True)
    with torch.no_grad():
        logits = head(generator.features(masked, labels))
    assert logits.shape == (5, 9)
    assert logits.isfinite().all()


def test_guidance_extrapolates_from_the_null_class():
    generator, (_, masked, mask, _) = shaken(HaltonGenerator(TINY)), inputs(TINY)
    labels = torch.tensor([0, 1, 2, 0, 1])
    with torch.no_grad():
        with_class, without = generator(masked, labels), generator(masked, torch.full_like(labels, 3))
        found = guided(generator, 2.5).logits_at(masked, labels, mask)
    torch.testing.assert_close(found, (without + 2.5 * (with_class - without))[mask], atol=2e-4, rtol=0)


def test_no_more_flops_than_the_original_needs():
    config = dataclasses.replace(TINY, registers=1)
    generator, (_, masked, mask, labels) = HaltonGenerator(config).eval(), inputs(config)
    b, n, s, d, r, f, k = 5, 9, 10, 16, 15, 24, 20
    block = b * (2 * d * 6 * d + s * (2 * d * 4 * r + 2 * d * 3 * f) + 4 * s * s * r)
    ends = b * (2 * d * 2 * d + n * 2 * d * k)
    assert count_flops(lambda: generator(masked, labels)) == 3 * block + ends
    # At two of ten places the last block needs all keys and values, and the rest there alone.
    saved = b * (8 * (2 * d * 2 * r + 2 * d * 3 * f + 4 * s * r) + 7 * 2 * d * k)
    assert count_flops(lambda: generator.logits_at(masked, labels, INDICES)) == 3 * block + ends - saved
    assert count_flops(lambda: generator.logits_with_features(masked, labels, INDICES)) == 3 * block + ends - saved
    assert count_flops(lambda: generator.logits_at(masked, labels, mask)) < 3 * block + ends


def test_recomputed_activations_give_the_same_gradients():
    config = dataclasses.replace(TINY, dropout=0.3)
    generator, (_, masked, mask, labels) = shaken(HaltonGenerator(config)).train(), inputs(config)
    runs = []
    generator.trunk.blocks[1].register_forward_pre_hook(lambda *_: runs.append(1))

    def gradients(positions):
        torch.manual_seed(3)  # of the dropout, which must be the same when a block runs once more
        logits = generator(masked, labels, positions)
        return torch.autograd.grad(logits.square().sum(), list(generator.parameters()))

    for positions in (None, mask, INDICES):
        generator.trunk.recompute_activations = False
        plain, once = gradients(positions), len(runs)
        generator.trunk.recompute_activations = True
        again, twice = gradients(positions), len(runs) - once
        assert (once, twice) == (1, 2)
        assert all(a.equal(b) for a, b in zip(plain, again, strict=True))
        runs.clear()


def test_dropout_is_of_training_only():
    generator, (_, masked, _, labels) = shaken(HaltonGenerator(dataclasses.replace(TINY, dropout=0.5))), inputs(TINY)
    assert generator(masked, labels).equal(generator(masked, labels))
    generator.train()
    assert not generator(masked, labels).equal(generator(masked, labels))


def test_a_critic_from_a_generator_starts_as_its_trunk():
    generator, (tokens, _, mask, labels) = shaken(HaltonGenerator(TINY)), inputs(TINY)
    critic = generator.start_critic(dropout=0.0).eval()
    assert isinstance(critic, HaltonCritic)
    assert critic.trunk(tokens, labels).equal(generator.trunk(tokens, labels))
    assert critic(tokens, labels).isfinite().all()
    two = generator.start_critic(layers=2, reads_mask=True, ratio_conditioned=True).eval()
    assert (two.config.layers, two.config.ratio_conditioned) == (2, True)
    assert two.trunk.blocks[1].up.weight.equal(generator.trunk.blocks[1].up.weight)
    assert two(tokens, labels, mask).equal(two(tokens, labels, ~mask))  # the mask's embedding starts at 0
    two.mask_embedding.data.normal_(generator=torch.Generator().manual_seed(0))
    assert not two(tokens, labels, mask).equal(two(tokens, labels, ~mask))


def test_every_weight_of_a_critic_learns():
    tokens, _, mask, labels = inputs(TINY)
    critic = shaken(HaltonGenerator(TINY)).start_critic(reads_mask=True)
    F.binary_cross_entropy_with_logits(critic(tokens, labels, mask), mask.float()).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in critic.parameters())


def test_a_random_start_is_finite_and_close_to_no_judgement():
    critic = HaltonCritic(HaltonCriticConfig(**dataclasses.asdict(TINY))).eval()
    tokens, _, _, labels = inputs(TINY)
    assert critic(tokens, labels).abs().max() < 1


def test_norms_are_computed_in_float32():
    generator, (_, masked, _, labels) = shaken(HaltonGenerator(TINY)).bfloat16(), inputs(TINY)
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(0)).mul(30).bfloat16()
    wide = x.float()
    norm = generator.trunk.final_norm
    normed = wide * (wide.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * norm.weight.float()
    assert norm(x).equal(normed.bfloat16())
    logits = generator(masked, labels)
    assert logits.dtype is torch.float32
    assert logits.isfinite().all()


def test_a_pipeline_folder_keeps_all_parts(tmp_path):
    generator, (tokens, masked, _, labels) = shaken(HaltonGenerator(TINY)), inputs(TINY)
    critic = shaken(generator.start_critic(layers=2))
    tokenizer = LlamaGenVQ(
        LlamaGenConfig(image_size=6, filters=32, multipliers=(1, 1), blocks=1, codebook_size=20, latent_width=8)
    ).eval()
    defaults = SamplingSettings(sampler="halton", steps=4, guidance=1.5)
    pipe = TokenCriticPipeline(tokenizer, generator, critic, class_names=["a", "b", "c"], defaults=defaults)
    pipe.save_pretrained(tmp_path)
    again = TokenCriticPipeline.from_pretrained(tmp_path)
    assert again.settings() == defaults
    parts = {"tokenizer": tokenizer, "generator": generator, "critic": critic}
    for name, part in parts.items():
        loaded = load_part(tmp_path, name)  # the fields of its config tell what it is
        assert type(loaded) is type(part)
        assert loaded.config == part.config
        assert loaded.fingerprint() == part.fingerprint()
    assert again.generator(masked, labels).allclose(generator(masked, labels), atol=1e-4)
    assert again.critic(tokens, labels).allclose(critic(tokens, labels), atol=1e-4)
    assert again.tokenizer.decode(tokens).allclose(tokenizer.decode(tokens), atol=1e-4)
    assert len(again(["a", "b"], seed=0)) == 2
    assert len(again(["a", "b"], sampler="critic", seed=0)) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": 0}, "layers is 0"),
        ({"heads": 17}, "heads is 17; it must be at most the width, 16"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"num_classes": 0}, "num_classes is 0"),
        ({"registers": -1}, "registers is -1"),
        ({"codebook_size": 0}, "codebook_size is 0"),
    ],
)
def test_impossible_sizes_are_named(change, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(TINY, **change)


def test_bad_tokens_and_labels_are_named():
    generator = HaltonGenerator(TINY)
    tokens, labels = torch.zeros(2, 9, dtype=torch.int64), torch.tensor([0, 1])
    for given, message in (
        ((tokens + 21, labels), "masked_tokens holds 21"),
        ((tokens - 1, labels), "masked_tokens holds -1"),
        ((tokens, labels + 3), "labels holds 4; expected integers from 0 to 3"),
        ((tokens, None), "labels is None; expected one label for each of 2 images"),
        ((tokens, labels[:1]), r"labels is of shape \(1,\)"),
        ((tokens[:, :8], labels), r"tokens has shape \(2, 8\); expected \(images, 9\)"),
    ):
        with pytest.raises(InputError, match=message):
            generator(*given)
