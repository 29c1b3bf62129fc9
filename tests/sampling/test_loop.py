import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tokencritic.errors import InputError
from tokencritic.exact_world import MarkovWorld
from tokencritic.masking import hide_lowest, num_masked_table
from tokencritic.models.critic import Critic
from tokencritic.models.generator import Generator
from tokencritic.models.transformer import TransformerConfig
from tokencritic.sampling import ConfidenceScorer, CriticScorer, HaltonScorer, RandomScorer, Trace, edit, refine, sample

TINY = TransformerConfig(num_tokens=16, codebook_size=12, num_classes=3, width=32, layers=2, heads=2, mlp_width=64)
torch.manual_seed(0)
GENERATOR = Generator(TINY).eval()
CRITIC = Critic.from_generator(GENERATOR).eval()
for _parameter in [*GENERATOR.parameters(), *CRITIC.parameters()]:  # away from the flat start, so that choices differ
    _parameter.data += 0.1 * torch.randn_like(_parameter)
SCORERS = [
    CriticScorer(CRITIC),
    CriticScorer(CRITIC, critic_until=0.6),
    CriticScorer(CRITIC, critic_from=0.6),
    *(ConfidenceScorer(), RandomScorer(), HaltonScorer()),
]
WORLD = MarkovWorld.random(num_tokens=6, states=3, classes=2, seed=3)

scorers = st.sampled_from(SCORERS)
steps = st.integers(1, 20)


@settings(deadline=None, max_examples=30)
@given(scorers, steps, st.integers(1, 3), st.sampled_from(["cosine", "linear", "sqrt"]))
def test_exactly_k_are_hidden_at_each_step_and_none_at_the_end(scorer, steps, passes, schedule):
    trace = Trace()
    tokens = sample(
        GENERATOR,
        scorer,
        [0, 2],
        steps=steps,
        passes_per_level=passes,
        schedule=schedule,
        on_step=trace,
        save_work=False,
    )
    table = num_masked_table(16, steps, schedule)[1:]
    expected = [k for k in table[:-1] for _ in range(passes)] + [0]
    assert [step.hidden.sum(1).tolist() for step in trace.steps] == [[k, k] for k in expected]
    assert ((tokens >= 0) & (tokens < 12)).all()
    assert tokens.equal(trace.steps[-1].proposal)


@settings(deadline=None, max_examples=30)
@given(scorers, steps, st.integers(1, 2), st.lists(st.integers(0, 2), min_size=1, max_size=5))
def test_saving_work_changes_nothing(scorer, steps, passes, labels):
    runs = [
        sample(
            GENERATOR, scorer, labels, 5, steps=steps, passes_per_level=passes, temperature=(1.2, 0.6), save_work=save
        )
        for save in (True, False)
    ]
    assert runs[0].equal(runs[1])


def counting(model, calls):
    model.register_forward_hook(lambda _, args, __: calls.append(len(args[0])))
    return model


def test_needless_passes_are_not_run():
    generator_calls, critic_calls = [], []
    generator = counting(Generator(TINY).eval(), generator_calls)
    critic = counting(Critic.from_generator(GENERATOR).eval(), critic_calls)
    table = num_masked_table(16, 8)
    assert table[:3] == [16, 16, 15]
    sample(generator, CriticScorer(critic), [1] * 5 + [2], steps=8)
    # Step 1 of 8 hides all again and is skipped; the next pass sees two labels; the last step has no critic.
    assert generator_calls == [2] + [6] * 6
    assert critic_calls == [6] * 6
    generator_calls.clear()
    sample(generator, ConfidenceScorer(), [1], steps=64)  # 16 tokens cannot be kept in more than 16 rounds
    assert len(generator_calls) == 16
    generator_calls.clear()
    critic_calls.clear()
    sample(generator, CriticScorer(critic, critic_until=0.5), [1], steps=64)
    # 14 of the critic's 32 steps hide all 16 tokens again; the 12 that it leaves hidden take 12 rounds at most.
    assert (len(critic_calls), len(generator_calls)) == (18, 18 + 12)


@pytest.mark.parametrize("scorer", SCORERS[3:])
def test_kept_tokens_stay_kept_without_a_critic(scorer):
    trace = Trace()
    tokens = sample(GENERATOR, scorer, [0, 1, 2], steps=7, on_step=trace)
    for step in trace.steps:
        assert not step.taken_back.any()
        assert tokens[~step.hidden].equal(step.proposal[~step.hidden])


@pytest.mark.parametrize("noise_on", ["probability", "logit", "odds"])
def test_a_trace_holds_what_the_critic_thinks_and_noise_decides_what_is_hidden(noise_on):
    trace, quiet, loud = Trace(), CriticScorer(CRITIC, 0.0, noise_on), CriticScorer(CRITIC, 50.0, noise_on)
    sample(GENERATOR, loud, [0, 1, 2], on_step=trace, steps=6)
    by_rank = []
    for step in trace.steps[:-1]:
        logits = CRITIC(step.proposal, torch.tensor([0, 1, 2]))
        assert step.scores.allclose(logits.sigmoid() if noise_on == "probability" else logits, atol=1e-5)
        by_rank.append(hide_lowest(step.scores, step.hidden.sum(1)).equal(step.hidden))
    assert not all(by_rank)
    assert not sample(GENERATOR, quiet, [0, 1, 2], steps=6).equal(trace.steps[-1].proposal)


def test_a_critic_takes_kept_tokens_back():
    trace = Trace()
    sample(GENERATOR, CriticScorer(CRITIC, selection_noise=2.0), [0, 1, 2], steps=10, on_step=trace)
    assert sum(int(step.taken_back.sum()) for step in trace.steps) > 10
    hidden = torch.ones(3, 16, dtype=torch.bool)
    for step in trace.steps:
        assert step.drawn.equal(hidden)
        assert step.taken_back.equal(step.hidden & ~hidden)
        hidden = step.hidden


def test_a_critic_that_comes_later_takes_back_only_then_and_also_what_confidence_has_kept():
    trace, calls = Trace(), []

    def critic(tokens, labels):
        calls.append(len(tokens))
        return CRITIC(tokens, labels)

    sample(GENERATOR, CriticScorer(critic, 2.0, critic_from=0.5), [0, 1, 2], steps=10, on_step=trace)
    early, late = ([step for step in trace.steps if (step.time > 0.5) == before] for before in (True, False))
    assert calls == [3] * 4  # of five late steps all but the last
    assert not any(step.taken_back.any() for step in early)
    kept = ~early[-1].hidden
    assert sum(int(step.taken_back.sum()) for step in late) > 5
    assert any((step.hidden & kept).any() for step in late)


def test_a_critic_that_hands_over_takes_back_only_before_and_is_confidence_after():
    trace = Trace()
    tokens = sample(GENERATOR, CriticScorer(CRITIC, 2.0, critic_until=0.5), [0, 1, 2], steps=10, on_step=trace)
    early, late = ([step for step in trace.steps if (step.time > 0.5) == before] for before in (True, False))
    assert len(late) == 5
    assert sum(int(step.taken_back.sum()) for step in early) > 5
    for step in late:
        assert not step.taken_back.any()
        assert tokens[~step.hidden].equal(step.proposal[~step.hidden])
    to_the_end, trace = trace.steps, Trace()
    sample(GENERATOR, CriticScorer(CRITIC, 2.0), [0, 1, 2], steps=10, on_step=trace)
    assert all(one.proposal.equal(two.proposal) for one, two in zip(early, trace.steps, strict=False))
    assert not all(one.hidden.equal(two.hidden) for one, two in zip(to_the_end, trace.steps, strict=True))


@settings(deadline=None, max_examples=10)
@given(st.sampled_from([CriticScorer(WORLD.critic), ConfidenceScorer(), RandomScorer()]), st.integers(0, 2**40))
def test_an_image_is_the_same_alone_and_in_a_batch(scorer, seed):
    """Bit for bit, in a world whose networks do not round differently with the size of the batch."""
    seeds = [seed + 7 * i for i in range(64)]
    labels = [i % 2 for i in range(64)]
    together = sample(WORLD, scorer, labels, seeds, steps=5, num_tokens=6)
    for i in (0, 17, 63):
        assert sample(WORLD, scorer, [labels[i]], [seeds[i]], steps=5, num_tokens=6)[0].equal(together[i])
    assert len({tuple(row) for row in together.tolist()}) > 10


def test_networks_give_the_same_image_alone_and_in_a_batch_on_one_and_two_threads():
    """Rounding may differ by an ulp between batch sizes; with these weights and seeds no draw is that close."""
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
        in_training = sample(GENERATOR, RandomScorer(), [1, 2], steps=4)
        assert GENERATOR.training
    finally:
        GENERATOR.eval()
    assert in_training.equal(sample(GENERATOR, RandomScorer(), [1, 2], steps=4))


def test_a_guided_generator_samples_without_dropout_too():
    torch.manual_seed(0)
    generator = Generator(dataclasses.replace(TINY, null_class=True)).train()
    generator.trunk.blocks[0].eval()
    guided = generator.guided(2.0)
    assert sample(guided, RandomScorer(), [1, 2], steps=4).equal(sample(guided, RandomScorer(), [1, 2], steps=4))
    assert generator.training
    assert not generator.trunk.blocks[0].training  # every part is left as it was found


def test_refinement_hides_the_critics_60_percent_first_and_fewer_later():
    tokens, trace = sample(GENERATOR, RandomScorer(), [0, 1, 2], steps=2), Trace()
    refined = refine(GENERATOR, CriticScorer(CRITIC, 0.0), tokens, [0, 1, 2], on_step=trace)
    first = trace.steps[0]
    assert first.proposal.equal(tokens)
    assert [int(step.hidden[0].sum()) for step in trace.steps] == [10, 10, 10, 9, 8, 7, 5, 4, 2, 0]
    with torch.no_grad():
        worst = CRITIC(tokens, torch.tensor([0, 1, 2])).argsort(1)[:, :10]
    assert first.hidden.equal(torch.zeros_like(first.hidden).scatter(1, worst, True))
    assert not refined.equal(tokens)
    assert refine(GENERATOR, CriticScorer(CRITIC, 0.0), tokens, [0, 1, 2], save_work=False).equal(refined)


@pytest.mark.parametrize("again", [edit, refine])
def test_images_are_not_drawn_again_by_the_noise_that_drew_them(again):
    """With a generator that knows nothing, a token comes back by chance alone: one in eight."""

    def generator(tokens, _):
        return torch.zeros(*tokens.shape, 8)

    def scorer(proposal):
        return torch.rand(proposal.tokens.shape, generator=torch.Generator().manual_seed(0))

    sizes = {"mask_id": 8, "steps": 1}
    tokens = sample(generator, scorer, None, range(50), num_tokens=100, **sizes)
    how = ({"region": torch.ones(100, dtype=torch.bool)}) if again is edit else {"ratio": 1.0}
    drawn = again(generator, scorer, tokens, labels=None, seeds=range(50), **how, **sizes)
    assert 0.1 < (drawn == tokens).double().mean() < 0.15


def test_refinement_by_confidence_is_refused():
    with pytest.raises(InputError, match="given, not drawn"):
        refine(GENERATOR, ConfidenceScorer(), torch.zeros(1, 16, dtype=torch.int64), [0])


@settings(deadline=None, max_examples=30)
@given(scorers, st.integers(0, 2**31), st.integers(1, 12), st.booleans())
def test_editing_leaves_frozen_tokens_alone(scorer, seed, steps, save_work):
    rng = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 12, (4, 16), generator=rng)
    region = torch.rand(4, 16, generator=rng) < torch.tensor([[0.0], [0.2], [0.7], [1.0]])
    trace = Trace()
    edited = edit(
        GENERATOR, scorer, tokens, region, [0, 1, 2, 0], seed, steps=steps, on_step=trace, save_work=save_work
    )
    assert edited[~region].equal(tokens[~region])
    assert (edited < 12).all()
    assert all(not (step.hidden & ~region).any() for step in trace.steps)
    one = edit(GENERATOR, scorer, tokens[2:3], region[2:3], [2], [seed + 2], steps=steps)
    assert one[0].equal(edited[2])  # its neighbours' regions do not matter


@pytest.mark.parametrize("score", [torch.inf, 0.0])
def test_no_scorer_can_make_editing_hide_a_frozen_token(score):
    tokens, region = sample(GENERATOR, RandomScorer(), [0], steps=2), torch.arange(16) >= 8
    edited = edit(GENERATOR, lambda p: torch.full(p.tokens.shape, score), tokens, region, [1], steps=5)
    assert edited[:, :8].equal(tokens[:, :8])


def test_tokens_and_scores_of_other_integer_types_are_taken():
    tokens = sample(GENERATOR, RandomScorer(), [0, 1], steps=2)
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
    tokens = sample(GENERATOR, RandomScorer(), [0], steps=2)
    region = torch.arange(16) < 8
    inside = tokens.masked_fill(region, GENERATOR.mask_id)
    scorer = CriticScorer(CRITIC)
    assert edit(GENERATOR, scorer, tokens, region, [1]).equal(edit(GENERATOR, scorer, inside, region, [1]))
    nothing = torch.zeros(16, dtype=torch.bool)
    assert edit(GENERATOR, scorer, tokens, nothing, [1]).equal(tokens)


def test_somebody_elses_models_plug_in():
    def generator(masked_tokens, labels):
        """Always the label's code."""
        return 50.0 * torch.nn.functional.one_hot(labels, 5)[:, None].expand(-1, masked_tokens.shape[1], -1)

    tokens = sample(generator, lambda proposal: -proposal.tokens.float(), [3, 1], steps=3, num_tokens=7, mask_id=5)
    assert tokens.tolist() == [[3] * 7, [1] * 7]
    assert refine(generator, lambda p: p.tokens.float(), tokens, [3, 2], mask_id=5).tolist()[0] == [3] * 7


ZEROS = torch.zeros(1, 16, dtype=torch.int64)
HALF = torch.arange(16) < 8
OTHER = Critic.from_generator(Generator(dataclasses.replace(TINY, codebook_size=13)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sample(GENERATOR, RandomScorer(), [0, 3]), "labels holds 3; expected integers from 0 to 2"),
        (lambda: sample(GENERATOR, RandomScorer(), [-1]), "labels holds -1"),
        (lambda: sample(GENERATOR, RandomScorer(), [[0]]), r"labels has shape \(1, 1\)"),
        (lambda: sample(GENERATOR, RandomScorer(), []), "labels is empty"),
        (lambda: sample(GENERATOR, RandomScorer(), [0.7]), "labels is float32; expected integers"),
        (lambda: refine(GENERATOR, CriticScorer(CRITIC), ZEROS.float(), [0]), "tokens is float32; expected integers"),
        (lambda: edit(GENERATOR, RandomScorer(), ZEROS.float(), HALF, [0]), "tokens is float32; expected integers"),
        (
            lambda: sample(GENERATOR, lambda p: torch.zeros(16), [0]),
            r"scores of shape \(16,\) for tokens of shape \(1, 16\)",
        ),
        (lambda: sample(GENERATOR, RandomScorer(), [0], temperature=(1.0, 2.0, 3.0)), "give one number, or a pair"),
        (lambda: sample(GENERATOR, RandomScorer(), None), "labels is None but the generator has classes"),
        (lambda: sample(GENERATOR, RandomScorer(), [0], [1, 2]), "seeds has 2 entries for 1 images"),
        (lambda: sample(GENERATOR, RandomScorer(), [0], steps=0), "steps is 0"),
        (lambda: sample(GENERATOR, RandomScorer(), [0], passes_per_level=0), "passes_per_level is 0"),
        (
            lambda: sample(GENERATOR, RandomScorer(), [0], temperature=-0.5),
            "temperature is -0.5; it must be 0 .greedy.",
        ),
        (lambda: sample(GENERATOR, RandomScorer(), [0], temperature=(1.0, -0.1)), r"temperature is \(1.0, -0.1\)"),
        (lambda: sample(GENERATOR, RandomScorer(), [0], mask_id=3), "mask_id is 3 but the generator's is 15"),
        (lambda: sample(lambda *_: None, RandomScorer(), [0], mask_id=3), "pass num_tokens="),
        (lambda: sample(GENERATOR, CriticScorer(OTHER), [0]), "critic's codebook_size is 13 but the generator's is 12"),
        (lambda: refine(GENERATOR, CriticScorer(CRITIC), ZEROS, [0], ratio=0), r"ratio is 0; it must lie in \(0, 1\]"),
        (lambda: refine(GENERATOR, CriticScorer(CRITIC), ZEROS, [0], ratio=1.1), "ratio is 1.1"),
        (
            lambda: refine(GENERATOR, CriticScorer(CRITIC), ZEROS + 12, [0]),
            "tokens holds 12; expected integers from 0 to 11",
        ),
        (lambda: refine(GENERATOR, CriticScorer(CRITIC), ZEROS[:, :5], [0]), r"tokens has shape \(1, 5\)"),
        (lambda: refine(GENERATOR, CriticScorer(CRITIC), ZEROS, [0, 1]), "2 labels for 1 rows of tokens"),
        (lambda: edit(GENERATOR, RandomScorer(), ZEROS, HALF.long(), [0]), "region is int64"),
        (lambda: edit(GENERATOR, RandomScorer(), ZEROS, HALF[:5], [0]), r"region is bool of shape \(5,\)"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
