import itertools

import pytest
import torch

from tokencritic.errors import InputError
from tokencritic.models.generator import Generator
from tokencritic.models.transformer import TransformerConfig
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.sampling.scorers import ConfidenceScorer, CriticScorer
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.sampling.starts import refine, sample
from tokencritic.sampling.trace import Trace
from tokencritic.tokenizers.compact import CompactConfig, CompactTokenizer

TINY = TransformerConfig(num_tokens=16, codebook_size=12, num_classes=3, width=32, layers=1, heads=2, mlp_width=64)
LABELS = torch.tensor([0, 1, 2, 1, 0])


@pytest.fixture(scope="module")
def pipe():
    torch.manual_seed(0)
    generator = Generator(TINY).eval()
    critic = generator.start_critic().eval()
    for parameter in [*generator.parameters(), *critic.parameters()]:  # away from the flat start
        parameter.data += 0.1 * torch.randn_like(parameter)
    tokenizer = CompactTokenizer(CompactConfig(image_size=16, codebook_size=12)).eval()
    return TokenCriticPipeline(tokenizer, generator, critic, defaults=SamplingSettings(steps=7, selection_noise=1.0))


def by_pipeline(pipe, trace, batch_size=64, **changes):
    tokens = pipe.sample_tokens(LABELS, 3, pipe.settings(**changes), batch_size=batch_size, on_step=trace)
    return tokens, trace.steps


def assert_same(steps, others):
    assert [(step.index, step.time) for step in steps] == [(step.index, step.time) for step in others]
    for step, other in zip(steps, others, strict=True):
        for name in ("proposal", "sampled", "hidden", "remasked"):
            assert getattr(step, name).equal(getattr(other, name)), (step.index, name)
        assert (step.scores is None) == (other.scores is None)
        if step.scores is not None:
            torch.testing.assert_close(step.scores, other.scores)


@pytest.mark.parametrize("sampler", ["critic", "confidence"])
def test_a_trace_of_a_pipeline_records_what_a_sampler_does(pipe, sampler):
    scorer = CriticScorer(pipe.critic, 1.0) if sampler == "critic" else ConfidenceScorer()
    trace = Trace()
    tokens = sample(pipe.generator, scorer, LABELS, 3, steps=7, on_step=trace)
    from_pipeline, steps = by_pipeline(pipe, Trace(), sampler=sampler, selection_noise=scorer.selection_noise)
    assert from_pipeline.equal(tokens)
    assert_same(steps, trace.steps)
    assert any(step.remasked.any() for step in steps) == (sampler == "critic")


def test_a_step_samples_what_the_one_before_had_hidden(pipe):
    _, steps = by_pipeline(pipe, Trace())
    assert steps[0].sampled.all()
    assert all(later.sampled.equal(step.hidden) for step, later in itertools.pairwise(steps))
    assert [step.scores is None for step in steps] == [False] * (len(steps) - 1) + [True]
    assert not steps[-1].hidden.any()


def test_several_batches_are_one_trace(pipe):
    _, whole = by_pipeline(pipe, Trace())
    _, parts = by_pipeline(pipe, Trace(), batch_size=2)
    assert_same(parts, whole)
    by_sampler = Trace()
    scorer = CriticScorer(pipe.critic, 1.0)
    for rows in (slice(0, 2), slice(2, 5)):
        seeds = range(3, 8)[rows]
        sample(pipe.generator, scorer, LABELS[rows], seeds, steps=7, on_step=by_sampler)
    assert_same(by_sampler.steps, whole)


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_only_the_first_images_are_kept(pipe, batch_size):
    _, whole = by_pipeline(pipe, Trace())
    _, steps = by_pipeline(pipe, Trace(most_images=3), batch_size)
    for step, other in zip(steps, whole, strict=True):
        for name in ("proposal", "sampled", "hidden", "remasked"):
            assert getattr(step, name).equal(getattr(other, name)[:3])


def test_refinement_begins_with_the_tokens_given(pipe):
    tokens = torch.arange(16)[None] % 12
    trace = Trace()
    refined = refine(pipe.generator, CriticScorer(pipe.critic), tokens, [1], steps=4, on_step=trace)
    assert trace.steps[0].index == 0
    assert trace.steps[0].proposal.equal(tokens)
    assert not trace.steps[0].remasked.any()
    assert trace.steps[-1].proposal.equal(refined)


def test_an_empty_trace_has_no_steps():
    assert Trace().steps == []


def test_runs_that_do_not_belong_together_are_refused(pipe):
    trace = Trace()
    by_pipeline(pipe, trace)
    pipe.sample_tokens(LABELS, 0, pipe.settings(steps=4), on_step=trace)
    with pytest.raises(InputError, match="runs with different steps; use one trace for each"):
        _ = trace.steps


def test_keeping_no_image_is_refused():
    with pytest.raises(InputError, match="most_images is 0; it must be at least 1"):
        Trace(most_images=0)
