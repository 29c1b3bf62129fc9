import math

import pytest
import torch
from markov_world import MarkovWorld
from torch.nn.parallel import DistributedDataParallel
from training.process_group import process_group

from tokencritic.adapters import as_generator
from tokencritic.contracts import TokenCritic
from tokencritic.errors import InputError
from tokencritic.models.critic import Critic, CriticConfig
from tokencritic.models.generator import Generator
from tokencritic.models.transformer import TransformerConfig
from tokencritic.randomness import Use, uniforms
from tokencritic.training.losses import critic_auc, critic_loss, generator_loss, training_mask

SIZES = {"num_tokens": 9, "codebook_size": 20, "num_classes": 3, "width": 16, "layers": 2, "heads": 2, "mlp_width": 32}
SEEDS, LABELS = torch.arange(6), torch.arange(6) % 3
TOKENS = torch.randint(0, 20, (6, 9), generator=torch.Generator().manual_seed(0))


def says(logits):
    return lambda tokens, labels: logits.expand(tokens.shape)


def test_training_masks_hide_as_the_cosine_says():
    mask = training_mask(torch.arange(20_000), 16)
    progress = uniforms(torch.arange(20_000), 1, Use.RATIO)[:, 0].double()
    assert mask.sum(1).equal(torch.ceil(16 * torch.cos(math.pi / 2 * progress)).long())
    assert (
        mask.float().mean(0).sub(2 / math.pi + 0.5 / 16).abs().max() < 0.02
    )  # the mean of a cosine, and the rounding up


def test_the_target_is_was_it_hidden_at_every_position():
    loss = critic_loss(says(torch.tensor(0.0)), Generator(TransformerConfig(**SIZES)), TOKENS, LABELS, SEEDS)
    assert loss.originals.equal(~training_mask(SEEDS, 9))
    assert loss.originals.equal(~loss.mask)
    assert loss.values.allclose(torch.full((6, 9), math.log(2)))
    kept_are_originals = critic_loss(
        says(torch.tensor(5.0)), Generator(TransformerConfig(**SIZES)), TOKENS, LABELS, SEEDS
    )
    assert kept_are_originals.values[~loss.mask].allclose(torch.tensor(math.log1p(math.exp(-5))))
    assert kept_are_originals.values[loss.mask].allclose(torch.tensor(math.log1p(math.exp(5))))


def test_a_critic_sees_originals_where_visible_and_fillings_where_hidden():
    seen = []

    def fill(masked_tokens, labels):
        return 99.0 * torch.nn.functional.one_hot(torch.full_like(masked_tokens, 7), 20)

    def critic(tokens, labels):
        seen.append(tokens)
        return torch.zeros(tokens.shape)

    fill = as_generator(fill, num_tokens=9, codebook_size=20, mask_id=20)
    loss = critic_loss(critic, fill, TOKENS, LABELS, SEEDS)
    assert seen[0].equal(TOKENS.masked_fill(loss.mask, 7))
    assert loss.proposal.tokens.equal(seen[0])
    changed = critic_loss(critic, fill, TOKENS, LABELS, SEEDS, target="changed")
    assert changed.originals.equal(~changed.mask | (TOKENS == 7))


def test_the_generator_is_frozen_and_without_dropout():
    generator, critic = Generator(TransformerConfig(**SIZES, dropout=0.5)), Critic(CriticConfig(**SIZES, dropout=0.0))
    for parameter in generator.parameters():  # at the initial weights, dropout hardly changes a sample
        parameter.data += torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0))
    assert generator.training
    losses = [critic_loss(critic, generator, TOKENS, LABELS, SEEDS).values for _ in range(2)]
    assert losses[0].equal(losses[1])
    assert generator.training
    losses[0].sum().backward()
    assert all(parameter.grad is None for parameter in generator.parameters())
    assert all(parameter.grad is not None for name, parameter in critic.named_parameters())


def test_an_example_does_not_depend_on_the_others():
    generator, critic = Generator(TransformerConfig(**SIZES)), Critic(CriticConfig(**SIZES, dropout=0.0))
    together = critic_loss(critic, generator, TOKENS, LABELS, SEEDS)
    alone = critic_loss(critic, generator, TOKENS[4:5], LABELS[4:5], SEEDS[4:5])
    assert alone.mask[0].equal(together.mask[4])
    assert alone.values[0].allclose(together.values[4], atol=1e-5)


def test_a_critic_that_reads_the_mask_is_not_told_the_answer():
    seen = []

    class Reader(TokenCritic):
        reads_mask = True

        def __call__(self, tokens, labels, mask=None):
            seen.append(mask)
            return torch.zeros(tokens.shape)

    seeds = torch.arange(200)
    tokens = torch.zeros(200, 9, dtype=torch.int64)
    generator = as_generator(lambda x, _: torch.zeros(*x.shape, 20), num_tokens=9, codebook_size=20, mask_id=20)
    loss = critic_loss(Reader(), generator, tokens, None, seeds)
    assert not (loss.mask & ~seen[0]).any()  # the previous mask includes this one
    assert (seen[0] & ~loss.mask).float().mean() > 0.1


@pytest.mark.parametrize("fixed_shapes", [False, True])
def test_the_generator_learns_hidden_tokens_only(fixed_shapes):
    generator = Generator(TransformerConfig(**SIZES, dropout=0.0))
    generator.fixed_shapes = fixed_shapes
    loss = generator_loss(generator, TOKENS, LABELS, SEEDS, label_smoothing=0.1)
    masked = TOKENS.masked_fill(loss.mask, generator.mask_id)
    log_p = generator(masked, LABELS).log_softmax(-1)
    expected = -0.9 * log_p.gather(-1, TOKENS[..., None])[..., 0] - 0.1 * log_p.mean(-1)
    assert loss.values.allclose(expected * loss.mask, atol=1e-5)
    assert loss.mean.allclose(expected[loss.mask].mean())
    assert loss.correct.equal((log_p.argmax(-1) == TOKENS)[loss.mask])
    changed = torch.where(loss.mask, TOKENS, (TOKENS + 1) % 20)
    assert not generator_loss(generator, changed, LABELS, SEEDS).values.equal(loss.values)  # visible tokens are context


def test_a_critic_that_is_told_the_ratio_has_nothing_to_gain_from_finding_it_out():
    generator = Generator(TransformerConfig(**SIZES))

    class Told(TokenCritic):
        ratio_conditioned = True

        def __call__(self, tokens, labels, mask=None):
            return self.says.expand(tokens.shape)

    told = Told()
    told.says = torch.zeros(6, 1, requires_grad=True)
    seeds = torch.arange(6) + 40
    loss = critic_loss(told, generator, TOKENS, LABELS, seeds)
    hidden = loss.mask.sum(1, keepdim=True)
    assert loss.logits.allclose(((9 - hidden + 0.5) / (hidden + 0.5)).log().expand(6, 9))
    plain = critic_loss(says(torch.tensor(0.0)), generator, TOKENS, LABELS, seeds)
    assert loss.mask.equal(plain.mask)
    # With logits of 0, the offset alone gives the right share up to half a token. Without the offset it is wrong.
    loss.values.sum().backward()
    assert told.says.grad.abs().max() < 0.5
    assert (plain.logits.sigmoid() - plain.originals.float()).sum(1).abs().max() > 1


def test_losses_see_through_wrappers_for_distributed_training_and_take_token_arrays():
    generator = Generator(TransformerConfig(**SIZES, dropout=0.0))
    critic = Critic(CriticConfig(**SIZES, dropout=0.0, reads_mask=True, ratio_conditioned=True))
    tokens = TOKENS.to(torch.uint16)
    with process_group():
        plain = generator_loss(generator, TOKENS, LABELS, SEEDS).values
        assert generator_loss(DistributedDataParallel(generator), tokens, LABELS, SEEDS).values.equal(plain)
        plain = critic_loss(critic, generator, TOKENS, LABELS, SEEDS).values
        assert critic_loss(DistributedDataParallel(critic), generator, tokens, LABELS, SEEDS).values.equal(plain)


def test_dropped_labels_become_the_null_class():
    generator = Generator(TransformerConfig(**SIZES, null_class=True, dropout=0.0))
    null = torch.full_like(LABELS, 3)
    always = generator_loss(generator, TOKENS, LABELS, SEEDS, drop_label=1.0)
    assert always.values.equal(generator_loss(generator, TOKENS, null, SEEDS).values)
    with pytest.raises(InputError, match=r"drop_label is 0.1; .* without null_class"):
        generator_loss(Generator(TransformerConfig(**SIZES)), TOKENS, LABELS, SEEDS, drop_label=0.1)


def test_auc():
    originals = torch.tensor([True, True, False, False])
    assert critic_auc(torch.tensor([2.0, 1.0, -1.0, -2.0]), originals) == 1
    assert critic_auc(torch.tensor([-2.0, 1.0, -1.0, 2.0]), originals) == 0.25
    assert critic_auc(torch.tensor([1.0, 1.0, 1.0, 1.0]), originals) == 0.5
    rng = torch.Generator().manual_seed(0)
    logits = torch.randn(40, 30, generator=rng).round(decimals=1)  # many ties
    labels = torch.rand(40, 30, generator=rng) < 0.3
    pairs = logits[labels][:, None] - logits[~labels][None]
    assert critic_auc(logits, labels).item() == pytest.approx(((pairs > 0) + 0.5 * (pairs == 0)).double().mean().item())


def test_bad_settings_are_named():
    with pytest.raises(InputError, match="target is 'wrong'"):
        critic_loss(says(torch.tensor(0.0)), Generator(TransformerConfig(**SIZES)), TOKENS, None, SEEDS, target="wrong")
    with pytest.raises(InputError, match="pass num_tokens= to as_generator"):
        critic_loss(says(torch.tensor(0.0)), lambda *_: None, TOKENS, None, SEEDS)


def test_a_critic_trained_with_the_loss_becomes_the_bayes_critic():
    """Gradient descent on the loss must find the Bayes critic of a toy world with 4 tokens and 3 states.

    The critic is a table with one logit per class, image and token, so that only the loss determines the result.
    """
    world = MarkovWorld.random(num_tokens=4, states=3, classes=2, seed=1)
    images, rng = world.sequences[world.complete], torch.Generator().manual_seed(0)
    table = torch.zeros(2, len(world.sequences), 4, requires_grad=True)
    optimizer = torch.optim.Adam([table], lr=0.3, betas=(0.9, 0.96))
    steps, batch = 150, 8192
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, steps)
    labels = torch.arange(batch) % 2
    for step in range(steps):
        drawn = torch.stack([images[world.truth(c).multinomial(batch, True, generator=rng)] for c in range(2)])
        tokens = drawn[labels, torch.arange(batch)]
        seeds = torch.arange(batch) + batch * step
        loss = critic_loss(lambda x, c: table[c, world.row(x)], world, tokens, labels, seeds).values
        optimizer.zero_grad()
        loss.sum().backward()
        optimizer.step()
        schedule.step()
    for label in range(2):
        learned, best = table[label, world.complete].sigmoid(), world.critic_logits[label, world.complete].sigmoid()
        weight = world.truth(label)[:, None] / 4
        error = ((learned - best).abs() * weight).sum()
        # The error of a critic that only knows the mean mask ratio.
        trivial = ((best - (best * weight).sum()).abs() * weight).sum()
        assert error < min(0.012, trivial / 4)


def test_a_range_of_temperatures_is_what_the_sampler_has_at_each_mask_ratio():
    def generator(masked_tokens, labels):
        return torch.tensor([2.0, 1.0, 0.0, 0.0]).expand(*masked_tokens.shape, 4)

    tokens, labels, seeds = torch.randint(0, 4, (64, 16)), torch.zeros(64, dtype=torch.int64), torch.arange(64)
    seen = {}

    def watch(name):
        def critic(tokens, labels):
            seen[name] = tokens
            return torch.zeros(tokens.shape, requires_grad=True)

        return critic

    for name, temperature in {"range": (1.2, 0.0), "hot": 1.2, "cold": 0.0, "same": (1.2, 1.2)}.items():
        whole = as_generator(generator, num_tokens=16, codebook_size=4, mask_id=4)
        critic_loss(watch(name), whole, tokens, labels, seeds, temperature=temperature)
    progress = uniforms(seeds, 1, Use.RATIO)[:, 0]
    assert seen["same"].equal(seen["hot"])
    # Early in sampling nearly all tokens are hidden and the temperature is high. Near the end samples are nearly
    # greedy.
    hidden = training_mask(seeds, 16)
    differs = (seen["range"] != seen["cold"]) & hidden
    share = [differs[some].sum() / hidden[some].sum() for some in (progress < 0.3, progress > 0.7)]
    assert share[0] > share[1] + 0.2
    assert (seen["range"] != seen["hot"]).any()
