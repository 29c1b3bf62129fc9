"""Half precision: what stays float32, and how far images agree with those of float32.

Agreement is counted on the images as they stand after each of the first 6 of 18 steps: the share of the tokens of 64 images
that are the same code, or hidden in both. One token that differs changes what the generator sees, so runs part from there
on: later steps say little about rounding. Of the tokens proposed at the first step, hidden again or not, more than 97 %
agree too.
"""

import pytest
import torch

from tokencritic import TokenCriticPipeline, Trace

FIRST = 6


class EnoughError(Exception):
    """Ends a run after its first steps."""


def first_steps(pipe, sampler):
    """The proposals and the images after each of the first steps, each (64, n); hidden tokens are -1."""
    trace, labels = Trace(), torch.arange(64) % 10

    def watch(proposal, scores, mask):
        assert scores.dtype == torch.float32
        trace(proposal, scores, mask)
        if len(trace.steps) == FIRST:
            raise EnoughError

    with pytest.raises(EnoughError):
        pipe.sample_tokens(labels, 0, pipe.settings(sampler=sampler, steps=18), on_step=watch)
    return [(step.proposal, step.proposal.masked_fill(step.hidden, -1)) for step in trace.steps]


@pytest.fixture(scope="module")
def pipe():
    return TokenCriticPipeline.from_pretrained("fashion-mnist")


@pytest.mark.parametrize("sampler", ["confidence", "critic"])
def test_bfloat16_agrees_with_float32_over_the_first_steps(pipe, sampler):
    half = TokenCriticPipeline.from_pretrained("fashion-mnist").cast(torch.bfloat16)
    assert half.generator.dtype == half.critic.dtype == half.inline_critic.dtype == torch.bfloat16
    assert half.tokenizer.dtype == half.classifier.dtype == torch.float32
    found, expected = first_steps(half, sampler), first_steps(pipe, sampler)
    agreeing = [(one[1] == other[1]).float().mean() for one, other in zip(found, expected, strict=True)]
    assert min(agreeing) > 0.97
    assert (found[0][0] == expected[0][0]).float().mean() > 0.97
