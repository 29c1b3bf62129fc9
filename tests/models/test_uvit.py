"""The U-ViT generator: its skips, its positions and features, and critics that are cut out of it symmetrically."""

import dataclasses

import pytest
import torch
from models.test_titok import INDICES, inputs, shaken

from tokencritic.cost import count_flops
from tokencritic.errors import InputError
from tokencritic.models.inline_critic import InlineCritic, InlineCriticConfig
from tokencritic.models.uvit import UViTConfig, UViTCritic, UViTGenerator
from tokencritic.sampling.scorers import InlineScorer
from tokencritic.sampling.starts import sample

TINY = UViTConfig(num_tokens=9, codebook_size=20, num_classes=3, width=16, layers=5, heads=2, mlp_width=32)


@pytest.fixture
def generator():
    return shaken(UViTGenerator(TINY))


def test_asking_for_some_positions_gives_their_logits_for_fewer_flops(generator):
    _, masked, mask, labels = inputs(TINY)
    everything = generator(masked, labels)
    some = generator.logits_at(masked, labels, INDICES)
    assert some.allclose(everything.gather(1, INDICES[..., None].expand(-1, -1, 20)), atol=1e-5)
    assert generator.logits_at(masked, labels, mask).allclose(everything[mask], atol=1e-5)
    whole, part = (count_flops(lambda p=p: generator(masked, labels, p)) for p in (None, INDICES))
    # The original's: all blocks at all places, the head at the tokens.
    block, join = 10 * (4 * 16**2 + 2 * 16 * 32) + 2 * 10 * 10 * 16, 10 * 2 * 16**2
    assert whole == 2 * 5 * (5 * block + 2 * join + 9 * 16 * 20)
    assert part < whole


def test_features_are_what_enters_each_block(generator):
    _, masked, _, labels = inputs(TINY)
    entered = []
    for block in generator.trunk.blocks:
        block.register_forward_pre_hook(lambda _, given: entered.append(given[0][:, 1:]))
    logits, features = generator.logits_with_features(masked, labels, INDICES)
    assert len(features) == generator.num_features == 5
    assert all(a.equal(b) for a, b in zip(entered, features, strict=True))
    assert features[0].shape == (5, 9, 16)
    assert logits.equal(generator.logits_at(masked, labels, INDICES))


def test_each_skip_joins_the_blocks_at_the_same_distance_from_the_middle(generator):
    _, masked, _, labels = inputs(TINY)
    outputs, kept = {}, {}
    for index, block in enumerate(generator.trunk.blocks):
        block.register_forward_hook(
            lambda _, given, out, i=index: outputs.update({i: out}) or kept.update({i: given[2]})
        )
    generator(masked, labels)
    assert kept[0] is kept[1] is kept[2] is None
    assert kept[3] is outputs[1]
    assert kept[4] is outputs[0]


@pytest.mark.parametrize(
    ("layers", "left"), [(5, (0, 1, 2, 3, 4)), (4, (0, 2, 4)), (3, (0, 2, 4)), (2, (2,)), (1, (2,))]
)
def test_a_critic_has_the_first_blocks_the_middle_and_the_last_ones(generator, layers, left):
    tokens, _, mask, labels = inputs(TINY)
    critic = generator.start_critic(layers, dropout=0.0, reads_mask=True).eval()
    assert type(critic) is UViTCritic
    assert critic.config.layers == len(left)
    blocks = [generator.trunk.blocks[index] for index in left]
    for own, theirs in zip(critic.trunk.blocks, blocks, strict=True):
        assert own.state_dict().keys() == theirs.state_dict().keys()
        assert all(own.state_dict()[name].equal(value) for name, value in theirs.state_dict().items())
    if layers == 5:
        assert critic.trunk(tokens, labels).equal(generator.trunk(tokens, labels))
    assert critic(tokens, labels, mask).shape == (5, 9)
    critic.trunk.words.weight.data.zero_()
    assert generator.trunk.words.weight.abs().sum() > 0  # a copy, not a share


def test_layers_that_the_trunk_does_not_have_are_named(generator):
    for layers in (0, 6):
        with pytest.raises(InputError, match=f"layers is {layers}; expected 1 to 5, the layers of the trunk"):
            generator.start_critic(layers)
    with pytest.raises(InputError, match="layers is 4; it must be odd"):
        dataclasses.replace(TINY, layers=4)


def test_an_inline_critic_judges_its_features(generator):
    sizes = {"num_features": 5, "feature_width": 16, "width": 8, "layers": 1, "heads": 2, "mlp_width": 8}
    head = InlineCritic(InlineCriticConfig(9, 20, 3, generator=generator.identity(), **sizes)).eval()
    head.check(generator, weights=True)
    tokens = sample(generator, InlineScorer(head), [0, 2], 1, steps=6)
    assert int(tokens.max()) < 20


@pytest.mark.parametrize("positions", [None, INDICES])
def test_recomputed_activations_give_the_same_gradients(positions):
    config = dataclasses.replace(TINY, dropout=0.3)
    generator, (_, masked, _, labels) = shaken(UViTGenerator(config)).train(), inputs(config)
    runs, gradients, counts = [], [], []
    generator.trunk.blocks[1].register_forward_pre_hook(lambda *_: runs.append(1))
    for recompute in (False, True):
        runs.clear()
        generator.trunk.recompute_activations = recompute
        torch.manual_seed(3)
        logits = generator(masked, labels, positions)
        gradients.append(torch.autograd.grad(logits.square().sum(), list(generator.parameters())))
        counts.append(len(runs))
    assert counts == [1, 2]
    assert all(a.equal(b) for a, b in zip(*gradients, strict=True))


def test_a_new_critic_starts_with_biases_at_0_where_there_are_any():
    critic = UViTCritic(UViTCritic.Config(**dataclasses.asdict(TINY)))
    names = critic.state_dict()
    assert not any(name.endswith("qkv.bias") for name in names)
    assert all((value == 0).all() for name, value in names.items() if name.endswith("bias"))


def test_saving_keeps_every_weight(tmp_path, generator):
    _, masked, _, labels = inputs(TINY)
    generator.save_pretrained(tmp_path)
    again = UViTGenerator.from_pretrained(tmp_path)
    assert again.config == TINY
    assert again(masked, labels).equal(generator(masked, labels))


def test_the_published_size_is_the_default():
    with torch.device("meta"):
        count = sum(p.numel() for p in UViTGenerator(UViTConfig()).parameters())
    block, join = 4 * 1024**2 + 1024 + 2 * 1024 * 4096 + 5120 + 4 * 1024, 2 * 1024**2 + 1024
    assert count == (5098 + 129 + 2) * 1024 + 21 * block + 10 * join + 1025 * 4096
