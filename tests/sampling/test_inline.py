"""The inline critic's sampler: MaskGIT's, with a few visible tokens re-masked in each step by a head on the generator."""

import math

import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from markov_world import MarkovWorld

from tokencritic.contracts import FeatureCritic
from tokencritic.errors import InputError
from tokencritic.guidance import guided
from tokencritic.models.generator import Generator
from tokencritic.models.inline_critic import InlineCritic, InlineCriticConfig
from tokencritic.models.transformer import TransformerConfig
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.plan import Step
from tokencritic.randomness import as_seeds, resampling_seeds
from tokencritic.sampling.propose import propose
from tokencritic.sampling.scorers import ConfidenceScorer, InlineScorer, Judges, NamedScorer, make_scorer
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.sampling.starts import edit, refine, sample
from tokencritic.sampling.trace import Trace
from tokencritic.schedules import PAPER

WORLD = MarkovWorld.random(num_tokens=6, states=3, classes=2, seed=3)
SIZES = TransformerConfig(
    num_tokens=16, codebook_size=12, num_classes=3, null_class=True, width=32, layers=3, heads=2, mlp_width=64
)
torch.manual_seed(0)
GENERATOR = Generator(SIZES).eval()
for _parameter in GENERATOR.parameters():  # away from the flat start, so that choices differ
    _parameter.data += 0.1 * torch.randn_like(_parameter)
HEAD_SIZES = {"num_tokens": 16, "codebook_size": 12, "num_classes": 3, "num_features": 3, "feature_width": 32}
HEAD_CONFIG = InlineCriticConfig(
    **HEAD_SIZES, generator=GENERATOR.identity(), width=16, layers=1, heads=2, mlp_width=16
)
HEAD = InlineCritic(HEAD_CONFIG).eval()
for _parameter in HEAD.parameters():
    _parameter.data += 0.2 * torch.randn_like(_parameter)


def naive(world, scorer, steps, tokens, mask, free, labels, seeds):
    """The sampler as docs/inline-critic.md states it, in plain Python: every step, both rankings by sorting."""
    for done in range(1, steps + 1):
        step = Step(done, (steps - done + 1) / steps, (steps - done) / steps, (), steps)
        hidden = tokens.masked_fill(mask, world.mask_id)
        made = propose(world, hidden, mask, labels, seeds, step=step)
        noise = made.selection_gumbel()
        trust = scorer.critic(world.features(hidden, labels)) + scorer.remask_noise * noise
        sure = made.confidence() + scorer.confidence.selection_noise * step.time_after * noise
        after = torch.zeros_like(mask)
        for row in range(len(tokens)):
            num_free = int(free[row].sum())
            k = math.ceil(round(num_free * math.cos(math.pi / 2 * done / steps), 8))
            new = [j for j in range(tokens.shape[1]) if mask[row, j]]
            kept = [j for j in range(tokens.shape[1]) if free[row, j] and not mask[row, j]]
            r = round(scorer.quota * len(kept) * k / max(num_free, 1))
            chosen = sorted(kept, key=lambda j: (trust[row, j].item(), j))[:r]
            chosen += sorted(new, key=lambda j: (sure[row, j].item(), j))[: k - r]
            after[row, chosen] = True
        tokens, mask = made.tokens, after
    return tokens


quotas, noises = st.sampled_from([0.0, 0.3, 0.5, 1.0]), st.sampled_from([0.0, 0.5, 100.0])


@settings(deadline=None, max_examples=60)
@given(quotas, noises, st.sampled_from([0.0, 4.5]), st.integers(1, 14), st.integers(0, 2**40))
def test_the_sampler_is_what_the_page_says(quota, noise, confidence, steps, seed):
    scorer = InlineScorer(WORLD.inline_critic, quota, noise, ConfidenceScorer(confidence))
    labels = torch.tensor([0, 1, 1])
    every, seeds = torch.ones(3, 6, dtype=torch.bool), as_seeds(seed, 3)
    expected = naive(WORLD, scorer, steps, torch.zeros(3, 6, dtype=torch.int64), every, every, labels, seeds)
    assert sample(WORLD, scorer, labels, seed, steps=steps).equal(expected)


@settings(deadline=None, max_examples=40)
@given(quotas, st.integers(1, 14), st.integers(0, 2**31))
def test_an_edit_remasks_within_its_region_alone(quota, steps, seed):
    rng = torch.Generator().manual_seed(seed)
    tokens, labels = torch.randint(0, 3, (4, 6), generator=rng), torch.tensor([0, 1, 1, 0])
    region = torch.rand(4, 6, generator=rng) < torch.tensor([[0.0], [0.3], [0.8], [1.0]])
    scorer = InlineScorer(WORLD.inline_critic, quota)
    expected = naive(WORLD, scorer, steps, tokens, region, region, labels, resampling_seeds(as_seeds(seed, 4)))
    edited = edit(WORLD, scorer, tokens, region, labels, seed, steps=steps)
    assert edited.equal(expected)
    assert edited[~region].equal(tokens[~region])


def test_without_a_quota_or_outside_of_the_window_it_is_maskgit():
    labels = [0, 1, 2, 1]
    maskgit = sample(GENERATOR, ConfidenceScorer(3.0), labels, 5, steps=9)
    assert sample(GENERATOR, InlineScorer(HEAD, 0.0, 0.5, ConfidenceScorer(3.0)), labels, 5, steps=9).equal(maskgit)
    late = SamplingSettings("inline", 9, selection_noise=3.0, critic_window=(0.5, 0.0))
    early, trace = Trace(), Trace()
    sample(GENERATOR, ConfidenceScorer(3.0), labels, 5, steps=9, on_step=early)
    sample(GENERATOR, make_scorer(late, Judges(inline_critic=HEAD)), labels, 5, steps=9, on_step=trace)
    for one, other in zip(early.steps, trace.steps, strict=True):
        if one.time > 0.5:
            assert one.hidden.equal(other.hidden)
    assert any(step.remasked.any() for step in trace.steps if step.time <= 0.5)


class Counting(Generator):
    """Counts its evaluations by the rows that go through its last block, and the features it is asked for."""

    def __init__(self):
        super().__init__(SIZES)
        self.load_state_dict(GENERATOR.state_dict())
        self.rows, self.with_features = [], 0
        self.trunk.blocks[-1].register_forward_hook(lambda _, args, __: self.rows.append(len(args[0])))

    def logits_with_features(self, *arguments):
        self.with_features += 1
        return super().logits_with_features(*arguments)


def test_a_step_is_one_generator_evaluation_and_its_counts_are_exact():
    generator, trace, steps, quota = Counting().eval(), Trace(), 8, 0.6
    tokens = sample(generator, InlineScorer(HEAD, quota), [1, 1, 2], steps=steps, on_step=trace)
    table = PAPER.table(16, steps)
    assert table[:3] == [16, 16, 15]
    # Step 1 hides all again and is skipped. Step 2 sees two labels and nothing to re-mask. The last re-masks nothing.
    assert generator.rows == [2] + [3] * 6
    assert generator.with_features == 5
    settings = SamplingSettings("inline", steps, remask_quota=quota)
    assert settings.evaluations(16) == (7, 0, 5, 0)
    before = 16
    for step in trace.steps:
        k = table[step.index]
        assert step.hidden.sum(1).tolist() == [k] * 3
        assert step.remasked.sum(1).tolist() == [round(quota * (16 - before) * k / 16)] * 3
        before = k
    assert not trace.steps[-1].hidden.any()
    assert sum(int(step.remasked.sum()) for step in trace.steps) > 10
    assert ((tokens >= 0) & (tokens < 12)).all()


def test_a_large_noise_re_masks_as_many_tokens_without_regard_to_the_head():
    """The control of docs/inline-critic.md."""
    other = InlineCritic(HEAD_CONFIG).eval()
    for parameter in other.parameters():
        parameter.data += 0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(7))
    traces = {}
    for noise in (0.5, 1e6):
        for name, head in {"one": HEAD, "other": other}.items():
            traces[noise, name] = trace = Trace()
            sample(GENERATOR, InlineScorer(head, 0.6, noise), [0, 1, 2, 0], steps=8, on_step=trace)
    remasked = {key: torch.stack([step.remasked for step in trace.steps]) for key, trace in traces.items()}
    assert remasked[1e6, "one"].equal(remasked[1e6, "other"])
    assert not remasked[0.5, "one"].equal(remasked[0.5, "other"])
    assert remasked[1e6, "one"].sum(2).equal(remasked[0.5, "one"].sum(2))


@pytest.mark.parametrize("guidance", [1.0, 2.5])
def test_logits_are_bit_identical_with_and_without_features(guidance):
    generator, mask = guided(GENERATOR, guidance), torch.rand(4, 16, generator=torch.Generator().manual_seed(1)) < 0.6
    tokens = torch.randint(0, 12, (4, 16), generator=torch.Generator().manual_seed(2)).masked_fill(mask, SIZES.mask_id)
    labels = torch.tensor([0, 1, 2, 0])
    with torch.no_grad():
        for positions in (mask, torch.arange(7).expand(4, -1), torch.arange(16).expand(4, -1)):
            logits, features = generator.logits_with_features(tokens, labels, positions)
            assert logits.equal(generator.logits_at(tokens, labels, positions))
            assert [tuple(feature.shape) for feature in features] == [(4, 16, 32)] * 3
            alone = GENERATOR.features(tokens, labels)
            assert all(one.allclose(other, atol=1e-5) for one, other in zip(features, alone, strict=True))


def test_refinement_hides_first_what_the_head_trusts_least():
    tokens = torch.randint(0, 12, (3, 16), generator=torch.Generator().manual_seed(0))
    labels, trace = torch.tensor([0, 1, 2]), Trace()
    refine(GENERATOR, InlineScorer(HEAD, remask_noise=0.0), tokens, labels, ratio=0.5, steps=4, on_step=trace)
    with torch.no_grad():
        trust = HEAD(GENERATOR.features(tokens, labels))
    assert trace.steps[0].scores.allclose(trust, atol=1e-5)
    assert trace.steps[0].hidden.sum(1).tolist() == [8] * 3
    for row in range(3):
        hidden = trace.steps[0].hidden[row]
        assert trust[row][hidden].max() <= trust[row][~hidden].min()


def test_a_head_for_another_generator_is_refused():
    other = Generator(SIZES).eval()
    with pytest.raises(
        InputError, match=r"the generator is \w{16}; expected \w{16}, for which the inline critic was trained"
    ):
        HEAD.check(other, weights=True)
    HEAD.check(GENERATOR, weights=True)
    with pytest.raises(InputError, match="critic is a function; expected a FeatureCritic such as InlineCritic"):
        InlineScorer(lambda features: features[0][..., 0])
    narrow = InlineCritic(
        InlineCriticConfig(**HEAD_SIZES | {"feature_width": 8}, width=8, layers=1, heads=1, mlp_width=8)
    )
    with pytest.raises(InputError, match=r"has 3 features of width 32; expected 3 features of width 8"):
        sample(GENERATOR, InlineScorer(narrow), [0])
    for quota in (-0.1, 1.5, float("nan")):
        with pytest.raises(InputError, match=r"remask_quota is .*; it must lie in \[0, 1\]"):
            InlineScorer(HEAD, quota)
        with pytest.raises(InputError, match=r"remask_quota is .*; it must lie in \[0, 1\]"):
            SamplingSettings(remask_quota=quota)
    with pytest.raises(InputError, match="remask_noise is -1"):
        InlineScorer(HEAD, remask_noise=-1)


def test_a_generator_without_features_says_how_to_provide_them():
    class Plain(MarkovWorld):
        def logits_with_features(self, *arguments):
            return super(MarkovWorld, self).logits_with_features(*arguments)

    plain = Plain.random(num_tokens=6, states=3, classes=2, seed=3)
    vars(plain)["num_features"] = 0
    with pytest.raises(
        InputError, match=r"a Plain, has no features for an inline critic; .*override logits_with_features"
    ):
        sample(plain, InlineScorer(WORLD.inline_critic), [0])


def test_a_window_in_which_the_head_judges_nothing_is_refused_or_widened():
    closed = SamplingSettings("inline", 8, critic_window=(1.0, 0.9))
    assert closed.evaluations(196).inline_critic == 0
    with pytest.raises(InputError, match=r"critic_window is 1 0\.9; it contains none of 8 steps of 196 tokens"):
        closed.check_critic_window(196)
    opened = closed.with_open_window(196)
    opened.check_critic_window(196)
    assert opened.evaluations(196).inline_critic > 0
    SamplingSettings("inline", 2).check_critic_window(196)  # two steps leave nothing to judge in any window


def test_without_features_nothing_is_remasked():
    class Forgetful(InlineScorer, name="forgetful"):
        def needs_features(self, step):
            return False

    try:
        trace = Trace()
        tokens = sample(GENERATOR, Forgetful(HEAD, confidence=ConfidenceScorer(3.0)), [0, 1], 5, steps=9, on_step=trace)
        assert not any(step.remasked.any() for step in trace.steps)
        assert tokens.equal(sample(GENERATOR, ConfidenceScorer(3.0), [0, 1], 5, steps=9))
    finally:
        del NamedScorer.named["forgetful"]


def test_another_precision_keeps_the_head_but_cannot_be_saved_with_it(tmp_path):
    pipe = TokenCriticPipeline.from_pretrained("fashion-mnist").to(dtype=torch.bfloat16)
    tokens = pipe.sample_tokens(torch.tensor([1, 8]), 3, pipe.settings(sampler="inline", steps=3))
    assert ((tokens >= 0) & (tokens < 128)).all()
    with pytest.raises(InputError, match="for which the inline critic was trained"):
        pipe.save_pretrained(tmp_path / "cast")
    assert not (tmp_path / "cast").exists()


def test_a_model_with_an_inline_critic_alone_samples_and_refines_by_it():
    whole = TokenCriticPipeline.from_pretrained("fashion-mnist")
    pipe = TokenCriticPipeline(whole.tokenizer, whole.generator, inline_critic=whole.inline_critic)
    assert pipe.defaults.sampler == "inline"
    for changes in ({}, {"sampler": None}):
        assert pipe.sampling.for_refinement(**changes).sampler == "inline"


def distance(world, scorer, steps, samples=40_000):
    tokens = sample(world, scorer, torch.zeros(samples, dtype=torch.int64), seeds=0, steps=steps)
    return 0.5 * (world.distribution(tokens) - world.truth()).abs().sum().item()


def test_the_exact_head_comes_closer_to_the_truth_than_maskgit():
    """10 tokens in 6 evaluations, each sampler at its best setting: total variation 0.094 against 0.114.

    Another seed has 0.097 and 0.112. With 4 evaluations there is nothing to gain: a token that is re-masked lets another be
    kept one step earlier.
    """
    world, noises = MarkovWorld.random(num_tokens=10, states=2, seed=0), (10, 20)
    maskgit = min(distance(world, ConfidenceScorer(noise), 6) for noise in (*noises, 15))
    inline = min(
        distance(world, InlineScorer(world.inline_critic, 0.5, 1.0, ConfidenceScorer(noise)), 6) for noise in noises
    )
    assert inline < maskgit - 0.01


class TableHead(torch.nn.Module, FeatureCritic):
    """A head with one number for each token of each masked image, which can learn anything."""

    def __init__(self, world):
        super().__init__()
        self.world, self.num_features, self.feature_width = world, world.num_features, world.feature_width
        rows = (world.codebook_size + 1) ** world.num_tokens
        self.table = torch.nn.Parameter(torch.zeros(world.num_classes, rows, world.num_tokens))

    def forward(self, features):
        tokens, labels = features[0].long().unbind(-1)
        return self.world.look_up(self.table, tokens, labels[:, 0])


def test_a_trained_head_converges_to_the_exact_one():
    """Every masked image that is seen often enough: the correlation of what is learned with what enumeration gives."""
    from tokencritic.training.losses import inline_critic_loss

    world = MarkovWorld.random(num_tokens=3, states=2, seed=1)
    head, truth = TableHead(world), world.truth()
    optimizer = torch.optim.Adam(head.parameters(), lr=0.05)
    seen = torch.zeros_like(head.table)
    for step in range(300):
        for group in optimizer.param_groups:
            group["lr"] = 0.05 * (1 - step / 300)
        images = world.sequences[world.complete][
            truth.multinomial(2000, True, generator=torch.Generator().manual_seed(step))
        ]
        seeds = torch.arange(2000) + 2000 * step
        loss = inline_critic_loss(head, world, images, torch.zeros(2000, dtype=torch.int64), seeds)
        optimizer.zero_grad()
        loss.values.sum().backward()
        optimizer.step()
        seen += head.table.grad != 0
    often = seen > 280
    learned, exact = head.table.detach()[often], world.inline_critic_logits[often]
    assert often.sum() > 20
    assert scipy.stats.pearsonr(learned, exact).statistic > 0.99
    assert (learned - exact).abs().max() < 0.2
