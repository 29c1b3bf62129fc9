import dataclasses

import pytest
import torch
from models import reference

from tokencritic.errors import InputError
from tokencritic.guidance import guided as guided_by
from tokencritic.models import critic as critic_module
from tokencritic.models import generator as generator_module
from tokencritic.models.critic import Critic, CriticConfig
from tokencritic.models.generator import Generator
from tokencritic.models.transformer import TransformerConfig, gelu

TINY = TransformerConfig(num_tokens=9, codebook_size=20, num_classes=3, width=16, layers=3, heads=2, mlp_width=32)
GUIDED = dataclasses.replace(TINY, null_class=True)


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
    return tokens, tokens.masked_fill(mask, config.mask_id), mask, torch.arange(batch) % 3


def double(model):
    return {name.removeprefix("trunk."): value.double() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_the_generator_is_the_official_architecture(norm_first, grad):
    config = dataclasses.replace(TINY, norm_first=norm_first)
    generator, (_, masked, _, labels) = shaken(Generator(config)), inputs(config)
    ids = torch.cat([labels[:, None] + 20, masked], 1)
    w = double(generator)
    x = reference.trunk(w, ids, layers=3, heads=2, norm_first=norm_first)[:, 1:]
    with torch.set_grad_enabled(grad):
        logits = generator(masked, labels)
    assert logits.shape == (5, 9, 20)
    assert logits.double().allclose(x @ w["words.weight"][:20].T + w["bias"], atol=1e-4)


@pytest.mark.parametrize("reads_mask", [False, True])
def test_the_critic_has_the_same_trunk_and_one_logit_per_token(reads_mask):
    config = CriticConfig(**{**dataclasses.asdict(TINY), "reads_mask": reads_mask})
    critic, (tokens, _, mask, labels) = shaken(Critic(config)), inputs(config)
    w = double(critic)
    extra = torch.nn.functional.pad(w["mask_embedding"][mask.long()], (0, 0, 1, 0)) if reads_mask else 0.0
    ids = torch.cat([labels[:, None] + 20, tokens], 1)
    x = reference.trunk(w, ids, layers=3, heads=2, norm_first=False, extra=extra)[:, 1:]
    logits = critic(tokens, labels, mask) if reads_mask else critic(tokens, labels)
    assert logits.double().allclose((x @ w["head.weight"].T + w["head.bias"])[..., 0], atol=1e-4)


def test_the_vocabulary_is_codes_classes_null_and_mask():
    assert (TINY.mask_id, TINY.vocabulary_size, TINY.num_labels) == (23, 24, 3)
    assert (GUIDED.mask_id, GUIDED.vocabulary_size, GUIDED.num_labels) == (24, 25, 4)
    paper = generator_module.PAPER_256
    assert (paper.vocabulary_size, paper.mask_id) == (2025, 2024)


def test_the_papers_sizes():
    generator, critic = generator_module.PAPER_256, critic_module.PAPER_256
    assert (generator.layers, generator.heads, critic.layers, critic.heads) == (24, 16, 20, 12)
    for config in (generator, critic):
        assert (config.width, config.mlp_width, config.dropout, config.num_tokens) == (768, 3072, 0.1, 256)
    assert (generator_module.PAPER_512.num_tokens, critic_module.PAPER_512.num_tokens) == (1024, 1024)
    with torch.device("meta"):
        count = sum(p.numel() for p in Generator(generator).parameters())
    # The official checkpoint's count, less the bias entries of the classes and the mask.
    embeddings, block, readout = (
        (2025 + 257 + 2) * 768,
        4 * (768**2 + 768) + 2 * 768 * 3072 + 3840 + 4 * 768,
        768**2 + 3 * 768,
    )
    assert count == embeddings + 24 * block + readout + 1024


@pytest.mark.parametrize("norm_first", [False, True])
def test_asking_for_some_positions_gives_their_logits(norm_first):
    config = dataclasses.replace(TINY, norm_first=norm_first)
    generator, (_, masked, mask, labels) = shaken(Generator(config)), inputs(config)
    everything = generator(masked, labels)
    indices = torch.tensor([[0, 8], [3, 3], [5, 1], [7, 2], [8, 0]])
    some = generator(masked, labels, indices)
    assert some.allclose(everything.gather(1, indices[..., None].expand(-1, -1, 20)), atol=1e-5)
    assert generator(masked, labels, mask).allclose(everything[mask], atol=1e-5)


def test_guidance_extrapolates_from_the_null_class_in_one_call():
    generator, (_, masked, mask, labels) = shaken(Generator(GUIDED)), inputs(GUIDED)
    with_class, without = generator(masked, labels), generator(masked, torch.full_like(labels, 3))
    calls = []
    generator.trunk.register_forward_hook(lambda *_: calls.append(1))
    guided = guided_by(generator, 2.5)(masked, labels)
    assert len(calls) == 1
    assert guided.allclose(without + 2.5 * (with_class - without), atol=1e-4)
    assert guided_by(generator, 2.5).logits_at(masked, labels, mask).allclose(guided[mask], atol=1e-4)
    assert guided_by(generator, 1.0) is generator
    with pytest.raises(InputError, match=r"guidance is 2.0; .* null_class"):
        guided_by(Generator(TINY), 2.0)
    with pytest.raises(InputError, match=r"guidance is 2.5 but labels is None"):
        guided_by(generator, 2.5)(masked, None)


def test_a_model_without_classes_takes_no_labels():
    config = dataclasses.replace(TINY, num_classes=0)
    tokens = inputs(config)[0]
    assert Generator(config)(tokens).shape == (5, 9, 20)


def test_weights_start_in_a_cut_off_normal_and_biases_at_0():
    generator = Generator(dataclasses.replace(TINY, width=128, mlp_width=512))
    for name, value in generator.named_parameters():
        if name.endswith("bias"):
            assert (value == 0).all(), name
        elif "norm" in name:
            assert (value == 1).all(), name
        else:
            assert value.abs().max() <= 0.04, name
            # A normal of 0.02 cut at two deviations has a deviation of 0.0176.
            assert value.std().item() == pytest.approx(0.0176, rel=0.1), name


def test_gelu_without_gradients_is_the_same_function():
    x = torch.linspace(-12, 12, 300_001)
    with torch.no_grad():
        assert gelu(x.clone()).allclose(torch.nn.functional.gelu(x, approximate="tanh"), atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 4e-6), (torch.float64, 1e-12)])
def test_gelu_with_gradients_is_the_same_function_with_the_same_slope(dtype, tolerance):
    x = torch.linspace(-12, 12, 300_002, dtype=dtype).view(2, -1).T.requires_grad_()  # not contiguous, several pieces
    before = x.detach().clone()
    ours, plain = gelu(x), torch.nn.functional.gelu(x, approximate="tanh")
    assert ours.dtype == dtype
    assert ours.allclose(plain, atol=tolerance, rtol=0)
    weights = torch.linspace(-1, 1, x.numel(), dtype=dtype).view_as(x)
    expected = torch.autograd.grad(plain, x, weights)[0]
    for _ in range(2):  # a graph that is kept can be gone through again
        assert torch.autograd.grad(ours, x, weights, retain_graph=True)[0].allclose(expected, atol=tolerance, rtol=0)
    assert x.equal(before)
    with torch.no_grad():  # what is trained is what is sampled with, to the last bit
        assert gelu(before.contiguous()).equal(ours)


def test_the_slope_of_gelu_is_that_of_its_values():
    x = torch.linspace(-4, 4, 41, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(gelu, (x,))
    nothing = torch.empty(0, 8, requires_grad=True)
    assert torch.autograd.grad(gelu(nothing).sum(), nothing)[0].shape == (0, 8)


@pytest.mark.parametrize("grad", [False, True])
def test_gelu_in_half_precision_rounds_once(grad):
    x = torch.linspace(-6, 6, 1001, dtype=torch.bfloat16)
    with torch.set_grad_enabled(grad):
        assert gelu(x.clone()).equal(torch.nn.functional.gelu(x, approximate="tanh"))


@pytest.mark.parametrize("norm_first", [False, True])
def test_recomputed_activations_give_the_same_gradients(norm_first):
    config = dataclasses.replace(TINY, norm_first=norm_first, dropout=0.3)
    generator, (_, masked, mask, labels) = shaken(Generator(config)).train(), inputs(config)
    names = generator.state_dict().keys()
    runs = []
    generator.trunk.blocks[1].register_forward_pre_hook(lambda *_: runs.append(1))

    def gradients(positions):
        torch.manual_seed(3)  # of the dropout, which must be the same when a block runs once more
        logits = generator(masked, labels, positions)
        return torch.autograd.grad(logits.square().sum(), list(generator.parameters()))

    for positions in (None, mask, torch.tensor([[0, 8], [3, 1], [5, 1], [7, 2], [8, 0]])):
        generator.trunk.recompute_activations = False
        plain, once = gradients(positions), len(runs)
        generator.trunk.recompute_activations = True
        again, twice = gradients(positions), len(runs) - once
        assert (once, twice) == (1, 2)
        assert all(a.equal(b) for a, b in zip(plain, again, strict=True))
        runs.clear()
    generator.eval()(masked, labels).sum().backward()
    assert len(runs) == 1  # in training only
    assert generator.state_dict().keys() == names


def test_a_critic_from_a_generator_starts_as_its_trunk():
    generator, (tokens, _, mask, labels) = shaken(Generator(TINY)), inputs(TINY)
    critic = generator.start_critic(dropout=0.0).eval()
    assert critic.trunk(tokens, labels).equal(generator.trunk(tokens, labels))
    two = generator.start_critic(layers=2, reads_mask=True).eval()
    assert two.config.layers == 2
    assert two.trunk.blocks[1].up.weight.equal(generator.trunk.blocks[1].up.weight)
    assert two(tokens, labels, mask).equal(two(tokens, labels, ~mask))  # the mask's embedding starts at 0
    two.trunk.words.weight.data.zero_()
    assert generator.trunk.words.weight.abs().sum() > 0  # a copy, not a share
    for layers, message in ((0, "layers is 0; expected 1 to 3"), (4, "layers is 4; expected 1 to 3")):
        with pytest.raises(InputError, match=message):
            generator.start_critic(layers=layers)
    with pytest.raises(InputError, match="width must be the generator's"):
        generator.start_critic(width=8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": 0}, "layers is 0"),
        ({"heads": 5}, "width is 16; it must be a multiple of heads, 5"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"num_classes": -1}, "num_classes is -1"),
        ({"num_classes": 0, "null_class": True}, "null_class"),
    ],
)
def test_impossible_sizes_are_named(change, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(TINY, **change)


def test_bad_tokens_and_labels_are_named():
    generator, critic = Generator(TINY), Critic(CriticConfig(**dataclasses.asdict(TINY)))
    tokens, labels = torch.zeros(2, 9, dtype=torch.int64), torch.tensor([0, 1])
    for bad, message in ((tokens + 21, "masked_tokens holds 21"), (tokens - 1, "masked_tokens holds -1")):
        with pytest.raises(InputError, match=message):
            generator(bad, labels)
    with pytest.raises(InputError, match="tokens holds 23; expected integers from 0 to 19"):
        critic(tokens + 23, labels)
    for model in (generator, critic):
        with pytest.raises(InputError, match="labels holds 3; expected integers from 0 to 2"):
            model(tokens, labels + 2)
        with pytest.raises(InputError, match="labels is None"):
            model(tokens)
        with pytest.raises(InputError, match=r"tokens has shape \(2, 8\); expected \(images, 9\)"):
            model(tokens[:, :8], labels)
    with pytest.raises(InputError, match="mask is given; expected None, because reads_mask is False"):
        critic(tokens, labels, tokens > 0)
