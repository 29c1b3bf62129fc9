"""MaskBit's trunk, generator and critics. That they compute what the authors' code does is tested in interop."""

import dataclasses

import pytest
import torch

from tokencritic import InputError
from tokencritic.cost import count_flops
from tokencritic.masking import random_mask, take
from tokencritic.models.inline_critic import InlineCritic, InlineCriticConfig
from tokencritic.models.maskbit import MaskBitConfig, MaskBitCritic, MaskBitCriticConfig, MaskBitGenerator, part_bits
from tokencritic.models.saved import SavedModel
from tokencritic.pipeline_folder import load_part

TINY = MaskBitConfig(
    places=4, splits=2, bits_per_part=3, num_classes=3, width=16, layers=3, heads=2, mlp_width=24, dropout=0.0
)
INDICES = torch.tensor([[0, 7, 1], [3, 3, 2], [5, 1, 6], [7, 2, 0], [4, 0, 5]])


def shaken(model, seed=0):
    """Every weight and bias away from its start, so that nothing is 0 or 1 by chance."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=rng)
    return model.eval()


def inputs(config=TINY, batch=5):
    rng = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, config.codebook_size, (batch, config.num_tokens), generator=rng)
    mask = torch.rand(batch, config.num_tokens, generator=rng) < 0.6
    return tokens, tokens.masked_fill(mask, config.codebook_size), mask, torch.arange(batch) % (config.num_classes + 1)


def test_the_lowest_bit_comes_first():
    assert part_bits(torch.tensor([[0, 1], [6, 7]]), 3).tolist() == [
        [[-1, -1, -1], [1, -1, -1]],
        [[-1, 1, 1], [1, 1, 1]],
    ]


def test_a_part_is_one_token():
    generator = MaskBitGenerator(TINY)
    assert (generator.num_tokens, generator.codebook_size, generator.mask_id) == (8, 8, 8)
    assert (generator.num_classes, generator.null_class, generator.num_labels) == (3, True, 4)
    assert (generator.num_features, generator.feature_width) == (3, 32)
    assert generator(inputs()[1], inputs()[3]).shape == (5, 8, 8)
    assert MaskBitConfig().num_tokens == 512
    assert MaskBitConfig().codebook_size == 128


def test_parts_of_a_place_are_hidden_by_themselves():
    generator, (tokens, _, _, labels) = shaken(MaskBitGenerator(TINY)), inputs()
    results = [generator(tokens, labels)]
    for hidden in ([2], [3], [2, 3]):
        masked = tokens.clone()
        masked[:, hidden] = generator.mask_id
        results.append(generator(masked, labels))
    for i, one in enumerate(results):
        for other in results[:i]:
            assert (one - other).abs().amax((1, 2)).min() > 1e-2
    other = tokens.clone()
    other[:, 3] = generator.mask_id
    hidden_only = other.clone()
    hidden_only[:, 2] = generator.mask_id
    both = tokens.clone()
    both[:, 2:4] = generator.mask_id
    assert generator(hidden_only, labels).equal(generator(both, labels))  # what is hidden cannot be seen


@pytest.mark.parametrize("splits", [1, 2, 3])
def test_asking_for_some_positions_gives_their_logits(splits):
    config = dataclasses.replace(TINY, splits=splits, places=8 // splits + 1)
    generator, (_, masked, mask, labels) = shaken(MaskBitGenerator(config)), inputs(config)
    everything = generator(masked, labels)
    assert generator.logits_at(masked, labels, INDICES).equal(take(everything, INDICES))
    assert generator.logits_at(masked, labels, mask).equal(everything[mask])
    assert generator.logits_at(masked, labels, INDICES[:, :0]).shape == (5, 0, 8)
    vectors = generator.trunk(masked, labels)
    assert vectors.shape == (5, config.num_tokens, splits * 16)
    for positions in (INDICES, mask):
        assert generator.trunk(masked, labels, positions).equal(take(vectors, positions))
        found, features = generator.trunk.with_features(masked, labels, positions)
        assert found.equal(take(vectors, positions))
        logits, same = generator.logits_with_features(masked, labels, positions)
        assert logits.equal(take(everything, positions))
        for states in (features, same, generator.features(masked, labels)):
            assert [state.shape for state in states] == [(5, config.num_tokens, splits * 16)] * 3
        assert all(a.equal(b) for a, b in zip(features, generator.features(masked, labels), strict=True))


def test_features_are_what_enters_each_block_in_the_slot_of_the_part():
    generator, (_, masked, _, labels) = shaken(MaskBitGenerator(TINY)), inputs()
    seen = []
    for block in generator.trunk.blocks:
        block.register_forward_pre_hook(lambda _, given: seen.append(given[0][:, :-1]))
    _, features = generator.logits_with_features(masked, labels, INDICES)
    for state, feature in zip(seen, features, strict=True):
        slots = feature.view(5, 4, 2, 2, 16)
        assert slots[:, :, 0, 0].equal(state)
        assert slots[:, :, 1, 1].equal(state)
        assert not slots[:, :, 0, 1].any()
        assert not slots[:, :, 1, 0].any()


def test_logits_cost_no_more_than_one_prediction_for_each_place():
    generator, (_, masked, mask, labels) = MaskBitGenerator(TINY), inputs(batch=1)
    place = 2 * TINY.width  # FLOPs of a product are two per weight
    dense = 4 * TINY.width + 2 * TINY.mlp_width
    attention = 4 * 5 * 5 * TINY.width
    block = 5 * place * dense + attention
    right = 4 * 6 * place + 3 * block + 4 * place * TINY.width + 4 * place * 16
    assert count_flops(lambda: generator(masked, labels)) == right
    assert count_flops(lambda: generator.logits_at(masked, labels, mask)) == right
    assert count_flops(lambda: generator.logits_with_features(masked, labels, mask)) == right
    assert count_flops(lambda: generator.features(masked, labels)) == 4 * 6 * place + 2 * block


def test_what_is_extra_is_read_from_the_slot_of_the_part():
    trunk, (tokens, _, _, labels) = shaken(MaskBitGenerator(TINY)).trunk, inputs()
    extra = torch.zeros(5, 8, 32)
    assert trunk(tokens, labels, extra=extra).equal(trunk(tokens, labels))
    extra[:, 0, 16:] = 1.0  # part 0 has the first slot alone
    assert trunk(tokens, labels, extra=extra).equal(trunk(tokens, labels))
    embedded = []
    trunk.embedding_norm.register_forward_pre_hook(lambda _, given: embedded.append(given[0]))
    own = torch.randn(5, 4, 2, 16, generator=torch.Generator().manual_seed(2))
    extra = torch.zeros(5, 4, 2, 2, 16)
    extra[:, :, 0, 0], extra[:, :, 1, 1] = own[:, :, 0], own[:, :, 1]
    trunk(tokens, labels)
    trunk(tokens, labels, extra=extra.view(5, 8, 32))
    torch.testing.assert_close(embedded[1][:, :4] - embedded[0][:, :4], own.sum(2), atol=1e-5, rtol=0)
    assert embedded[1][:, 4].equal(embedded[0][:, 4])  # the class token


@pytest.mark.parametrize("reads_mask", [False, True])
def test_a_critic_from_a_generator_starts_as_its_trunk_and_tells_parts_apart(reads_mask):
    generator, (tokens, _, mask, labels) = shaken(MaskBitGenerator(TINY)), inputs()
    critic = generator.start_critic(reads_mask=reads_mask, ratio_conditioned=True).eval()
    assert isinstance(critic, MaskBitCritic)
    assert (critic.num_tokens, critic.codebook_size, critic.num_classes) == (8, 8, 3)
    assert (critic.reads_mask, critic.ratio_conditioned) == (reads_mask, True)
    assert critic.trunk(tokens, labels).equal(generator.trunk(tokens, labels))
    masks = [mask] if reads_mask else []
    scores = critic(tokens, labels, *masks)
    assert scores.shape == (5, 8)
    assert (scores[:, 0::2] - scores[:, 1::2]).abs().min() > 0
    if reads_mask:
        assert critic(tokens, labels, ~mask).equal(scores)  # the mask's embedding starts at 0
        with torch.no_grad():
            critic.mask_embedding.normal_(generator=torch.Generator().manual_seed(0))
        one = torch.zeros_like(mask)
        one[:, 2] = True
        other = one.roll(1, 1)
        assert (critic(tokens, labels, one) - critic(tokens, labels, other)).abs().amax(1).min() > 1e-3
    assert generator.start_critic(layers=2).config.layers == 2


def test_a_critic_can_learn_about_one_part_alone():
    """Its gradient for the first parts leaves the weights of the second slot alone."""
    critic, (tokens, _, _, labels) = shaken(MaskBitCritic(MaskBitCriticConfig(**dataclasses.asdict(TINY)))), inputs()
    critic(tokens, labels)[:, 0::2].sum().backward()
    first, second = critic.head.weight.grad[0].split(16)
    assert first.abs().min() > 0
    assert not second.any()


def test_an_inline_critic_scores_parts_apart():
    generator, (_, masked, _, labels) = shaken(MaskBitGenerator(TINY)), inputs()
    own = {name: vars(generator)[name] for name in ("num_tokens", "codebook_size", "num_features", "feature_width")}
    config = InlineCriticConfig(**own, num_classes=3, generator=generator.identity(), width=16, heads=2, mlp_width=16)
    critic = InlineCritic(config).eval()
    critic.check(generator, weights=True)
    scores = critic(generator.features(masked, labels))
    assert scores.shape == (5, 8)
    assert (scores[:, 0::2] - scores[:, 1::2]).abs().min() > 0


def test_recomputed_activations_give_the_same_gradients():
    generator, (_, masked, mask, labels) = shaken(MaskBitGenerator(dataclasses.replace(TINY, dropout=0.3))), inputs()
    generator.train()
    runs = []
    generator.trunk.blocks[1].register_forward_pre_hook(lambda *_: runs.append(1))

    def gradients(recompute):
        generator.trunk.recompute_activations = recompute
        torch.manual_seed(3)  # of the dropout
        logits = generator(masked, labels, mask)
        return torch.autograd.grad(logits.square().sum(), list(generator.parameters()))

    plain, again = gradients(False), gradients(True)
    assert len(runs) == 3
    assert all(a.equal(b) for a, b in zip(plain, again, strict=True))
    assert all(gradient.any() for gradient in plain)


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float64])
def test_other_precisions(precision):
    generator, (_, masked, _, labels) = shaken(MaskBitGenerator(TINY)), inputs()
    right = generator(masked, labels)
    logits = generator.to(precision)(masked, labels)
    assert logits.dtype is precision
    assert (logits.float() - right).abs().max() < 0.05 * right.abs().max()


def test_saved_and_loaded_by_its_config(tmp_path):
    generator, (tokens, masked, _, labels) = shaken(MaskBitGenerator(TINY)), inputs()
    critic = generator.start_critic(layers=1).eval()
    models: dict[str, SavedModel] = {"generator": generator, "critic": critic}
    for name, model in models.items():
        model.save_pretrained(tmp_path / name)
        again = load_part(tmp_path, name)
        assert type(again) is type(model)
        assert again.config == model.config
        given = masked if name == "generator" else tokens
        assert again(given, labels).equal(model(given, labels))


def test_random_masks_and_the_null_label():
    generator, (tokens, _, _, _) = shaken(MaskBitGenerator(TINY)), inputs()
    mask = random_mask(3, torch.rand(5, 8, generator=torch.Generator().manual_seed(0)))
    masked = tokens.masked_fill(mask, generator.mask_id)
    null, real = torch.full((5,), 3), torch.zeros(5, dtype=torch.int64)
    assert not generator(masked, null).allclose(generator(masked, real))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"places": 0}, "places is 0"),
        ({"splits": 0}, "splits is 0"),
        ({"bits_per_part": 0}, "bits_per_part is 0"),
        ({"num_classes": 0}, "num_classes is 0"),
        ({"layers": 0}, "layers is 0"),
        ({"heads": 5}, "width is 16; it must be a multiple of heads, 5"),
        ({"dropout": 1.0}, "dropout is 1.0"),
    ],
)
def test_impossible_sizes_are_named(change, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(TINY, **change)


def test_bad_tokens_and_labels_are_named():
    generator, (tokens, _, _, labels) = MaskBitGenerator(TINY), inputs()
    critic = generator.start_critic()
    with pytest.raises(InputError, match="masked_tokens holds 9; expected codes from 0 to 7 or mask_id 8"):
        generator(tokens * 0 + 9, labels)
    with pytest.raises(InputError, match="tokens holds 8; expected integers from 0 to 7"):
        critic(tokens * 0 + 8, labels)
    for model in (generator, critic):
        with pytest.raises(InputError, match="labels holds 4; expected integers from 0 to 3"):
            model(tokens, labels * 0 + 4)
        with pytest.raises(InputError, match="labels is None"):
            model(tokens)
        with pytest.raises(InputError, match=r"tokens has shape \(5, 7\); expected \(images, 8\)"):
            model(tokens[:, :7], labels)
