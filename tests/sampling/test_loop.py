import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from markov_world import MarkovWorld

from tokencritic.adapters import as_generator
from tokencritic.errors import InputError
from tokencritic.guidance import guided as guided_by
from tokencritic.masking import hide_lowest
from tokencritic.models.generator import Generator
from tokencritic.models.transformer import TransformerConfig
from tokencritic.plan import Step
from tokencritic.randomness import Use, as_seeds, resampling_seeds, uniforms
from tokencritic.sampling.propose import sample_codes
from tokencritic.sampling.scorers import (
    ConfidenceScorer,
    CriticScorer,
    HaltonScorer,
    RandomOrderScorer,
    RandomRemaskScorer,
    WindowScorer,
)
from tokencritic.sampling.starts import edit, refine, sample
from tokencritic.sampling.trace import Trace
from tokencritic.schedules import PAPER
from tokencritic.scoring import Proposal

TINY = TransformerConfig(num_tokens=16, codebook_size=12, num_classes=3, width=32, layers=2, heads=2, mlp_width=64)
torch.manual_seed(0)
GENERATOR = Generator(TINY).eval()
CRITIC = GENERATOR.start_critic().eval()
for _parameter in [*GENERATOR.parameters(), *CRITIC.parameters()]:  # away from the flat start, so that choices differ
    _parameter.data += 0.1 * torch.randn_like(_parameter)
WORLD = MarkovWorld.random(num_tokens=6, states=3, classes=2, seed=3)


def windowed(scorer, start, end):
    return WindowScorer((start, end), scorer, ConfidenceScorer(12.0), ConfidenceScorer())


def revoking(critic):
    """Scorers that may re-mask visible tokens."""
    scorer, control = CriticScorer(critic), RandomRemaskScorer()
    return [
        *(scorer, windowed(scorer, 1.0, 0.6), windowed(scorer, 0.6, 0.0), windowed(scorer, 0.8, 0.3)),
        *(CriticScorer(critic, 1.0, "gumbel"), control, windowed(control, 0.7, 0.2)),
    ]


KEEPING = [ConfidenceScorer(), RandomOrderScorer(), HaltonScorer()]
SCORERS = revoking(CRITIC) + KEEPING
WORLD_KEEPING = [ConfidenceScorer(), RandomOrderScorer(), HaltonScorer((2, 3))]

scorers = st.sampled_from(SCORERS)
steps = st.integers(1, 20)


class Naive:
    """Algorithm 2 as it stands in the paper: propose everywhere, score at every step, skip nothing.

    It shares the scorers, the noise and the sampling of one code with the package, each of which has tests of its own.
    """

    def __init__(self, generator, scorer, steps, temperature, ratio=1.0):
        self.generator, self.scorer, self.steps, self.ratio = generator, scorer, steps, ratio
        self.hot, self.cold = temperature

    def run(self, tokens, mask, free, labels, seeds):
        for done in range(1, self.steps + 1):
            step = Step(done, (self.steps - done + 1) / self.steps, (self.steps - done) / self.steps, (), self.steps)
            logits = self.generator(tokens.masked_fill(mask, self.generator.mask_id), labels)
            noise = uniforms(seeds, tokens.shape[1], Use.DRAW, done)
            codes = sample_codes(logits, noise, self.cold + (self.hot - self.cold) * step.time)
            tokens = torch.where(mask, codes, tokens)
            everywhere = torch.arange(tokens.shape[1]).expand(tokens.shape)
            mask = self.choose(Proposal(tokens, mask, labels, seeds, step, everywhere, logits), free)
        assert not mask.any()
        return tokens

    def choose(self, proposal, free):
        share = self.ratio * math.cos(math.pi / 2 * proposal.step.index / self.steps)
        values = self.scorer.score(proposal) + self.scorer.noise(proposal)
        mask = torch.zeros_like(free)
        for row, (scores, allowed) in enumerate(zip(values.tolist(), free.tolist(), strict=True)):
            order = sorted((score, j) for j, score in enumerate(scores) if allowed[j])
            for _, j in order[: math.ceil(round(len(order) * share, 8))]:
                mask[row, j] = True
        return mask

    def sample(self, labels, seed):
        shape = len(labels), self.generator.num_tokens
        every = torch.ones(shape, dtype=torch.bool)
        return self.run(torch.zeros(shape, dtype=torch.int64), every, every, labels, as_seeds(seed, len(labels)))

    def refine(self, tokens, labels, seed):
        seeds, every = resampling_seeds(as_seeds(seed, len(labels))), torch.ones_like(tokens, dtype=torch.bool)
        given = Proposal(tokens, every, labels, seeds, Step(0, 1.0, 1.0))
        return self.run(tokens, self.choose(given, every), every, labels, seeds)

    def edit(self, tokens, region, labels, seed):
        return self.run(tokens, region, region, labels, resampling_seeds(as_seeds(seed, len(labels))))


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(revoking(WORLD.critic) + WORLD_KEEPING),
    steps,
    st.lists(st.integers(0, 1), min_size=1, max_size=5),
    st.integers(0, 2**40),
    st.sampled_from([(1.0, 1.0), (1.2, 0.6), (0.0, 0.0)]),
)
def test_the_loop_is_algorithm_2(scorer, steps, labels, seed, temperature):
    """Bit for bit, in a world whose tables round nothing."""
    labels = torch.tensor(labels)
    expected = Naive(as_generator(WORLD), scorer, steps, temperature).sample(labels, seed)
    assert sample(WORLD, scorer, labels, seed, steps=steps, temperature=temperature).equal(expected)


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from([CriticScorer(WORLD.critic), windowed(CriticScorer(WORLD.critic), 1.0, 0.4), RandomRemaskScorer()]),
    st.integers(1, 14),
    st.sampled_from([0.05, 0.3, 0.6, 1.0]),
    st.integers(0, 2**31),
)
def test_refinement_is_algorithm_2_from_given_tokens(scorer, steps, ratio, seed):
    tokens = torch.randint(0, 3, (4, 6), generator=torch.Generator().manual_seed(seed))
    labels = torch.tensor([0, 1, 1, 0])
    expected = Naive(as_generator(WORLD), scorer, steps, (1.1, 0.8), ratio).refine(tokens, labels, seed)
    refined = refine(WORLD, scorer, tokens, labels, seed, ratio=ratio, steps=steps, temperature=(1.1, 0.8))
    assert refined.equal(expected)


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(revoking(WORLD.critic) + WORLD_KEEPING), st.integers(1, 14), st.integers(0, 2**31))
def test_an_edit_is_algorithm_2_within_a_region_of_each_image(scorer, steps, seed):
    rng = torch.Generator().manual_seed(seed)
    tokens, labels = torch.randint(0, 3, (4, 6), generator=rng), torch.tensor([0, 1, 1, 0])
    region = torch.rand(4, 6, generator=rng) < torch.tensor([[0.0], [0.3], [0.8], [1.0]])
    expected = Naive(as_generator(WORLD), scorer, steps, (1.1, 0.8)).edit(tokens, region, labels, seed)
    assert edit(WORLD, scorer, tokens, region, labels, seed, steps=steps, temperature=(1.1, 0.8)).equal(expected)


@pytest.mark.parametrize("steps", [1, 5, 20])
@pytest.mark.parametrize("scorer", SCORERS)
def test_the_loop_with_networks_is_algorithm_2(scorer, steps):
    """Rounding may differ by an ulp between all positions and some; with these weights and seeds no choice is that close."""
    labels = torch.tensor([0, 2, 1, 0])
    with torch.no_grad():
        expected = Naive(GENERATOR, scorer, steps, (1.2, 0.6)).sample(labels, 5)
    assert sample(GENERATOR, scorer, labels, 5, steps=steps, temperature=(1.2, 0.6)).equal(expected)


@settings(deadline=None, max_examples=30)
@given(scorers, steps)
def test_exactly_k_are_hidden_at_each_step_and_none_at_the_end(scorer, steps):
    trace = Trace()
    tokens = sample(GENERATOR, scorer, [0, 2], steps=steps, on_step=trace)
    table = PAPER.table(16, steps)
    hidden = {step.index: step.hidden.sum(1).tolist() for step in trace.steps}
    for index in range(1, steps + 1):  # a step that is left out hides what was hidden before
        assert hidden.get(index, [table[index - 1]] * 2) == [table[index]] * 2
    assert ((tokens >= 0) & (tokens < 12)).all()
    assert tokens.equal(trace.steps[-1].proposal)


def counting(model, calls):
    model.register_forward_hook(lambda _, args, __: calls.append(len(args[0])))
    return model


def test_needless_evaluations_are_left_out():
    generator_calls, critic_calls = [], []
    generator = counting(Generator(TINY).eval(), generator_calls)
    critic = counting(GENERATOR.start_critic().eval(), critic_calls)
    table = PAPER.table(16, 8)
    assert table[:3] == [16, 16, 15]
    sample(generator, CriticScorer(critic), [1] * 5 + [2], steps=8)
    # Step 1 of 8 hides all again and is skipped; the next one sees two labels; the last step has no critic.
    assert generator_calls == [2] + [6] * 6
    assert critic_calls == [6] * 6
    generator_calls.clear()
    sample(generator, ConfidenceScorer(), [1], steps=64)  # 16 tokens cannot be kept in more than 16 steps
    assert len(generator_calls) == 16
    generator_calls.clear()
    critic_calls.clear()
    sample(generator, windowed(CriticScorer(critic), 1.0, 0.5), [1], steps=64)
    # 14 of the 32 steps in the window hide all 16 tokens again; the 12 hidden at its end take 12 steps at most.
    assert (len(critic_calls), len(generator_calls)) == (18, 18 + 12)


@pytest.mark.parametrize("scorer", KEEPING)
def test_kept_tokens_stay_kept_without_a_critic(scorer):
    trace = Trace()
    tokens = sample(GENERATOR, scorer, [0, 1, 2], steps=7, on_step=trace)
    for step in trace.steps:
        assert not step.remasked.any()
        assert tokens[~step.hidden].equal(step.proposal[~step.hidden])


@pytest.mark.parametrize("kind", ["uniform", "gumbel"])
def test_a_trace_holds_what_the_critic_thinks_and_noise_decides_what_is_hidden(kind):
    trace, quiet, loud = Trace(), CriticScorer(CRITIC, 0.0, kind), CriticScorer(CRITIC, 50.0, kind)
    sample(GENERATOR, loud, [0, 1, 2], on_step=trace, steps=6)
    by_rank = []
    for step in trace.steps[:-1]:
        logits = CRITIC(step.proposal, torch.tensor([0, 1, 2]))
        assert step.scores.allclose(logits.sigmoid() if kind == "uniform" else logits, atol=1e-5)
        by_rank.append(hide_lowest(step.scores, step.hidden.sum(1)).equal(step.hidden))
    assert not all(by_rank)
    assert not sample(GENERATOR, quiet, [0, 1, 2], steps=6).equal(trace.steps[-1].proposal)


def test_a_critic_remasks_kept_tokens():
    trace = Trace()
    sample(GENERATOR, CriticScorer(CRITIC, selection_noise=2.0), [0, 1, 2], steps=10, on_step=trace)
    assert sum(int(step.remasked.sum()) for step in trace.steps) > 10
    hidden = torch.ones(3, 16, dtype=torch.bool)
    for step in trace.steps:
        assert step.sampled.equal(hidden)
        assert step.remasked.equal(step.hidden & ~hidden)
        hidden = step.hidden


def test_a_critic_window_that_opens_late_remasks_only_then_and_also_what_confidence_has_kept():
    trace, calls = Trace(), []

    def critic(tokens, labels):
        calls.append(len(tokens))
        return CRITIC(tokens, labels)

    sample(GENERATOR, windowed(CriticScorer(critic, 2.0), 0.5, 0.0), [0, 1, 2], steps=10, on_step=trace)
    early, late = ([step for step in trace.steps if (step.time > 0.5) == before] for before in (True, False))
    assert calls == [3] * 4  # of five late steps all but the last
    assert not any(step.remasked.any() for step in early)
    kept = ~early[-1].hidden
    assert sum(int(step.remasked.sum()) for step in late) > 5
    assert any((step.hidden & kept).any() for step in late)


def test_a_critic_window_that_closes_early_remasks_only_before_and_is_confidence_after():
    trace = Trace()
    tokens = sample(GENERATOR, windowed(CriticScorer(CRITIC, 2.0), 1.0, 0.5), [0, 1, 2], steps=10, on_step=trace)
    early, late = ([step for step in trace.steps if (step.time > 0.5) == before] for before in (True, False))
    assert len(late) == 5
    assert sum(int(step.remasked.sum()) for step in early) > 5
    for step in late:
        assert not step.remasked.any()
        assert tokens[~step.hidden].equal(step.proposal[~step.hidden])
    to_the_end, trace = trace.steps, Trace()
    sample(GENERATOR, CriticScorer(CRITIC, 2.0), [0, 1, 2], steps=10, on_step=trace)
    assert all(one.proposal.equal(two.proposal) for one, two in zip(early, trace.steps, strict=False))
    assert not all(one.hidden.equal(two.hidden) for one, two in zip(to_the_end, trace.steps, strict=True))


@settings(deadline=None, max_examples=10)
@given(st.sampled_from([CriticScorer(WORLD.critic), ConfidenceScorer(), RandomOrderScorer()]), st.integers(0, 2**40))
def test_an_image_is_the_same_alone_and_in_a_batch(scorer, seed):
    """Bit for bit, in a world whose networks do not round differently with the size of the batch."""
    seeds = [seed + 7 * i for i in range(64)]
    labels = [i % 2 for i in range(64)]
    together = sample(WORLD, scorer, labels, seeds, steps=5)
    for i in (0, 17, 63):
        assert sample(WORLD, scorer, [labels[i]], [seeds[i]], steps=5)[0].equal(together[i])
    assert len({tuple(row) for row in together.tolist()}) > 10


def test_networks_give_the_same_image_alone_and_in_a_batch_on_one_and_two_threads():
    """Rounding may differ by an ulp between batch sizes; with these weights and seeds no choice is that close."""
    labels, threads = [i % 3 for i in range(64)], torch.get_num_threads()
    together = sample(GENERATOR, CriticScorer(CRITIC), labels, 100, steps=8)
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            for i in (0, 31, 63):
                assert sample(GENERATOR, CriticScorer(CRITIC), [labels[i]], 100 + i, steps=8)[0].equal(together[i])
    finally:
        torch.set_num_threads(threads)


def test_temperature_0_is_greedy_and_needs_no_luck():
    runs = [sample(GENERATOR, ConfidenceScorer(0.0), [1], seed, steps=4, temperature=0.0) for seed in (1, 2)]
    assert runs[0].equal(runs[1])
    assert not sample(GENERATOR, ConfidenceScorer(0.0), [1], 1, steps=4).equal(runs[0])


def test_a_model_left_in_training_mode_samples_without_dropout():
    GENERATOR.train()
    try:
        in_training = sample(GENERATOR, RandomOrderScorer(), [1, 2], steps=4)
        assert GENERATOR.training
    finally:
        GENERATOR.eval()
    assert in_training.equal(sample(GENERATOR, RandomOrderScorer(), [1, 2], steps=4))


def test_a_guided_generator_samples_without_dropout_too():
    torch.manual_seed(0)
    generator = Generator(dataclasses.replace(TINY, null_class=True)).train()
    generator.trunk.blocks[0].eval()
    guided = guided_by(generator, 2.0)
    assert sample(guided, RandomOrderScorer(), [1, 2], steps=4).equal(
        sample(guided, RandomOrderScorer(), [1, 2], steps=4)
    )
    assert generator.training
    assert not generator.trunk.blocks[0].training  # every part is left as it was found


def test_refinement_hides_the_critics_60_percent_first_and_fewer_later():
    tokens, trace = sample(GENERATOR, RandomOrderScorer(), [0, 1, 2], steps=2), Trace()
    refined = refine(GENERATOR, CriticScorer(CRITIC, 0.0), tokens, [0, 1, 2], on_step=trace)
    first = trace.steps[0]
    assert first.proposal.equal(tokens)
    assert [int(step.hidden[0].sum()) for step in trace.steps] == [10, 10, 10, 9, 8, 7, 5, 4, 2, 0]
    with torch.no_grad():
        worst = CRITIC(tokens, torch.tensor([0, 1, 2])).argsort(1)[:, :10]
    assert first.hidden.equal(torch.zeros_like(first.hidden).scatter(1, worst, True))
    assert not refined.equal(tokens)


@pytest.mark.parametrize("again", [edit, refine])
def test_images_are_not_resampled_by_the_noise_that_sampled_them(again):
    """With a generator that knows nothing, a token comes back by chance alone: one in eight."""

    def blind(tokens, _):
        return torch.zeros(*tokens.shape, 8)

    def scorer(proposal):
        return torch.rand(proposal.tokens.shape, generator=torch.Generator().manual_seed(0))

    generator = as_generator(blind, num_tokens=100, codebook_size=8, mask_id=8)
    tokens = sample(generator, scorer, None, range(50), steps=1)
    how = ({"region": torch.ones(100, dtype=torch.bool)}) if again is edit else {"ratio": 1.0}
    resampled = again(generator, scorer, tokens, labels=None, seeds=range(50), steps=1, **how)
    assert 0.1 < (resampled == tokens).double().mean() < 0.15


def test_refinement_by_confidence_is_refused():
    with pytest.raises(InputError, match="only defined for sampled tokens"):
        refine(GENERATOR, ConfidenceScorer(), torch.zeros(1, 16, dtype=torch.int64), [0])


@settings(deadline=None, max_examples=30)
@given(scorers, st.integers(0, 2**31), st.integers(1, 12))
def test_editing_leaves_frozen_tokens_alone(scorer, seed, steps):
    rng = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 12, (4, 16), generator=rng)
    region = torch.rand(4, 16, generator=rng) < torch.tensor([[0.0], [0.2], [0.7], [1.0]])
    trace = Trace()
    edited = edit(GENERATOR, scorer, tokens, region, [0, 1, 2, 0], seed, steps=steps, on_step=trace)
    assert edited[~region].equal(tokens[~region])
    assert (edited < 12).all()
    assert all(not (step.hidden & ~region).any() for step in trace.steps)
    one = edit(GENERATOR, scorer, tokens[2:3], region[2:3], [2], [seed + 2], steps=steps)
    assert one[0].equal(edited[2])  # its neighbours' regions do not matter


@pytest.mark.parametrize("score", [torch.inf, 0.0])
def test_no_scorer_can_make_editing_hide_a_frozen_token(score):
    tokens, region = sample(GENERATOR, RandomOrderScorer(), [0], steps=2), torch.arange(16) >= 8
    edited = edit(GENERATOR, lambda p: torch.full(p.tokens.shape, score), tokens, region, [1], steps=5)
    assert edited[:, :8].equal(tokens[:, :8])


def test_tokens_and_scores_of_other_integer_types_are_taken():
    tokens = sample(GENERATOR, RandomOrderScorer(), [0, 1], steps=2)
    scorer = CriticScorer(CRITIC)
    for other in (torch.int32, torch.uint16):
        assert refine(GENERATOR, scorer, tokens.to(other), [0, 1]).equal(refine(GENERATOR, scorer, tokens, [0, 1]))
        region = torch.arange(16) < 5
        assert edit(GENERATOR, scorer, tokens.to(other), region, [0, 1]).equal(
            edit(GENERATOR, scorer, tokens, region, [0, 1])
        )
    by_code = [sample(GENERATOR, lambda p, t=t: p.tokens.to(t), [0], steps=4) for t in (torch.int64, torch.float32)]
    assert by_code[0].equal(by_code[1])


def test_what_stands_inside_the_region_does_not_matter():
    tokens = sample(GENERATOR, RandomOrderScorer(), [0], steps=2)
    region = torch.arange(16) < 8
    inside = tokens.masked_fill(region, GENERATOR.mask_id)
    scorer = CriticScorer(CRITIC)
    assert edit(GENERATOR, scorer, tokens, region, [1]).equal(edit(GENERATOR, scorer, inside, region, [1]))
    nothing = torch.zeros(16, dtype=torch.bool)
    assert edit(GENERATOR, scorer, tokens, nothing, [1]).equal(tokens)


def test_somebody_elses_models_plug_in():
    def by_label(masked_tokens, labels):
        """Always the label's code."""
        return 50.0 * torch.nn.functional.one_hot(labels, 5)[:, None].expand(-1, masked_tokens.shape[1], -1)

    generator = as_generator(by_label, num_tokens=7, codebook_size=5, mask_id=5)
    tokens = sample(generator, lambda proposal: -proposal.tokens.float(), [3, 1], steps=3)
    assert tokens.tolist() == [[3] * 7, [1] * 7]
    assert refine(generator, lambda p: p.tokens.float(), tokens, [3, 2]).tolist()[0] == [3] * 7


ZEROS = torch.zeros(1, 16, dtype=torch.int64)
HALF = torch.arange(16) < 8
UNLABELLED = as_generator(lambda *_: None, num_tokens=4, codebook_size=3, mask_id=3)
OTHER = Generator(dataclasses.replace(TINY, codebook_size=13)).start_critic()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sample(GENERATOR, RandomOrderScorer(), [0, 3]), "labels holds 3; expected integers from 0 to 2"),
        (lambda: sample(GENERATOR, RandomOrderScorer(), [-1]), "labels holds -1"),
        (lambda: sample(GENERATOR, RandomOrderScorer(), [[0]]), r"labels has shape \(1, 1\)"),
        (lambda: sample(GENERATOR, RandomOrderScorer(), []), "labels is empty"),
        (lambda: sample(GENERATOR, RandomOrderScorer(), [0.7]), "labels is float32; expected integers"),
        (lambda: refine(GENERATOR, CriticScorer(CRITIC), ZEROS.float(), [0]), "tokens is float32; expected integers"),
        (
            lambda: edit(GENERATOR, RandomOrderScorer(), ZEROS.float(), HALF, [0]),
            "tokens is float32; expected integers",
        ),
        (
            lambda: sample(GENERATOR, lambda p: torch.zeros(16), [0]),
            r"scores of shape \(16,\) for tokens of shape \(1, 16\)",
        ),
        (
            lambda: sample(GENERATOR, RandomOrderScorer(), [0], temperature=(1.0, 2.0, 3.0)),
            "give one number, or a pair",
        ),
        (lambda: sample(GENERATOR, RandomOrderScorer(), None), "labels is None but the generator has classes"),
        (lambda: sample(GENERATOR, RandomOrderScorer(), [0], [1, 2]), "seeds has 2 entries for 1 images"),
        (lambda: sample(GENERATOR, RandomOrderScorer(), [0], steps=0), "steps is 0"),
        (
            lambda: sample(GENERATOR, RandomOrderScorer(), [0], temperature=-0.5),
            "temperature is -0.5; it must be 0 .greedy.",
        ),
        (lambda: sample(GENERATOR, RandomOrderScorer(), [0], temperature=(1.0, -0.1)), r"temperature is \(1.0, -0.1\)"),
        (lambda: sample(lambda *_: None, RandomOrderScorer(), [0]), "no attribute num_tokens; pass num_tokens= to"),
        (lambda: sample(UNLABELLED, RandomOrderScorer(), None, 3), "seeds is one integer; give one seed per image"),
        (lambda: sample(UNLABELLED, RandomOrderScorer(), None, []), "seeds is empty"),
        (lambda: refine(UNLABELLED, RandomRemaskScorer(), ZEROS[:0, :4], None), "tokens is empty"),
        (lambda: sample(GENERATOR, CriticScorer(OTHER), [0]), "critic's codebook_size is 13 but the generator's is 12"),
        (lambda: refine(GENERATOR, CriticScorer(CRITIC), ZEROS, [0], ratio=0), r"ratio is 0; it must lie in \(0, 1\]"),
        (lambda: refine(GENERATOR, CriticScorer(CRITIC), ZEROS, [0], ratio=1.1), "ratio is 1.1"),
        (
            lambda: refine(GENERATOR, CriticScorer(CRITIC), ZEROS + 12, [0]),
            "tokens holds 12; expected integers from 0 to 11",
        ),
        (lambda: refine(GENERATOR, CriticScorer(CRITIC), ZEROS[:, :5], [0]), r"tokens has shape \(1, 5\)"),
        (lambda: refine(GENERATOR, CriticScorer(CRITIC), ZEROS, [0, 1]), "2 labels for 1 rows of tokens"),
        (lambda: edit(GENERATOR, RandomOrderScorer(), ZEROS, HALF.long(), [0]), "region is int64"),
        (lambda: edit(GENERATOR, RandomOrderScorer(), ZEROS, HALF[:5], [0]), r"region is bool of shape \(5,\)"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [1.0, 0.0])
def test_logits_that_are_not_finite_are_an_error_that_names_the_step(value, temperature):
    calls = []

    def network(tokens, labels):
        calls.append(1)
        logits = torch.zeros(*tokens.shape, 12)
        if len(calls) == 2:
            logits[-1, :, 3] = value
        return logits

    generator = as_generator(network, num_tokens=16, codebook_size=12, mask_id=12)
    with pytest.raises(InputError, match="the generator's logits at step 2 are not finite"):
        sample(generator, ConfidenceScorer(), None, [1, 2], steps=4, temperature=temperature)


def test_scores_of_nan_are_an_error_that_names_the_scorer_and_the_step():
    scorer = CriticScorer(lambda tokens, labels: torch.full(tokens.shape, torch.nan))
    with pytest.raises(InputError, match="the scores of CriticScorer at step 1 are not finite"):
        sample(GENERATOR, scorer, [0, 1], 0, steps=4)


def test_scores_of_nan_at_the_start_of_a_refinement_are_an_error():
    scores = iter([torch.nan, 0.0])
    scorer = CriticScorer(lambda tokens, labels: torch.full(tokens.shape, next(scores)))
    with pytest.raises(InputError, match="the scores of CriticScorer at step 0 are not finite"):
        refine(GENERATOR, scorer, ZEROS, [0], steps=2)
