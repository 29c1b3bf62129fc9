"""The effect of re-masking during sampling, against values computed by hand and invariants of both samplers."""

import itertools
import math

import pytest
import torch
from evaluation import toy

from tokencritic import TokenCriticPipeline
from tokencritic.evaluation.diagnosis import sampling_report, step_sums, watch
from tokencritic.sampling.trace import TraceStep
from tokencritic.schedules import PAPER

PIPE = toy.make_pipe(sampler="critic", selection_noise=0.0)
LABELS, SEEDS = torch.arange(40) % 2, torch.arange(40)


def step(index, proposal, drawn, hidden):
    proposal, drawn, hidden = torch.tensor([proposal]), torch.tensor([drawn]).bool(), torch.tensor([hidden]).bool()
    return TraceStep(index, 1.0, proposal, drawn, None, hidden)


# Four tokens in three steps. The second step re-masks token 0, which the first had kept, and hides token 2 again.
STEPS = [
    step(2, [5, 6, 7, 8], [1, 1, 1, 1], [0, 0, 1, 1]),
    step(3, [5, 6, 1, 2], [0, 0, 1, 1], [1, 0, 1, 0]),
    step(4, [5, 6, 3, 2], [1, 0, 1, 0], [0, 0, 0, 0]),
]
SCORES = [torch.tensor([[0.5, 0.5, 0.25, 0.0]]), torch.tensor([[0.25, 0.75, 0.5, 0.5]]), torch.tensor([[0.75] * 4])]


NONE = [0, 0, 0, 0]


def test_sums_by_hand():
    """For each group: tokens, tokens with the same code, tokens with a higher score, sum of the gains."""
    first, second, last = step_sums(STEPS, SCORES)
    assert (first.images, first.tokens, first.score, first.hidden, first.visible) == (1, 4, 1.25, 2, 0)
    assert first.outcomes.tolist() == [NONE, [2, 0, 2, 0.75], [2, 2, 1, 0]]
    assert (second.hidden, second.visible) == (2, 2)
    assert second.outcomes.tolist() == [[1, 1, 1, 0.5], [1, 0, 1, 0.25], [2, 2, 1, 0.25]]
    assert last.outcomes.tolist() == [NONE, NONE, NONE]
    assert (last.score, last.hidden, last.visible) == (3.0, 0, 2)


def test_a_report_by_hand():
    twice = [type(one)(*(2 * value for value in one)) for one in step_sums(STEPS, SCORES)]  # two images alike
    report = sampling_report(dict(zip((2, 3, 4), twice, strict=True)))
    assert report["images"] == 2
    first, second, last = report["steps"]
    assert (first["step"], first["mean_score"], first["hidden_per_image"]) == (2, 0.3125, 2)
    assert math.isnan(first["of_visible"])
    assert first["remasked"]["per_image"] == 0
    assert math.isnan(first["remasked"]["same"])
    assert second["of_visible"] == 0.5
    assert second["remasked"] == {"per_image": 1, "same": 1, "higher": 1, "gain": 0.5}
    assert second["kept"] == {"per_image": 2, "same": 1, "higher": 0.5, "gain": 0.125}
    assert last == {"step": 4, "mean_score": 0.75, "hidden_per_image": 0}
    assert report["total"]["resampled"] == {"per_image": 3, "same": 0, "higher": 1, "gain": pytest.approx(1 / 3)}
    assert report["total"]["mean_score"] == 0.75


def test_as_many_are_hidden_as_the_schedule_says_and_the_last_score_is_that_of_the_images():
    settings = PIPE.settings()
    counts = watch(PIPE, LABELS, SEEDS, settings, batch_size=16)
    table = PAPER.table(9, settings.steps)
    report = sampling_report(counts)
    assert [one["hidden_per_image"] for one in report["steps"]] == [table[one["step"]] for one in report["steps"]]
    for before, after in itertools.pairwise(counts.values()):
        remasked, resampled, kept = before.outcomes
        assert after.visible == before.tokens - before.hidden
        assert remasked[0] + resampled[0] == before.hidden
        assert kept[1] == kept[0] == before.tokens - before.hidden
    tokens = PIPE.sample_tokens(LABELS, SEEDS, settings)
    expected = PIPE.critic(tokens, LABELS).double().sigmoid().mean()
    assert report["total"]["mean_score"] == pytest.approx(expected.item(), abs=1e-6)


def test_the_critic_takes_tokens_back_and_maskgit_never_does():
    critic = sampling_report(watch(PIPE, LABELS, SEEDS, PIPE.settings()))["total"]
    maskgit = sampling_report(watch(PIPE, LABELS, SEEDS, PIPE.settings(sampler="confidence")))["total"]
    assert critic["remasked"]["per_image"] > 0.1
    assert maskgit["remasked"]["per_image"] == 0
    assert math.isnan(maskgit["remasked"]["same"])
    assert maskgit["resampled"]["per_image"] > 1


def test_selection_noise_is_no_part_of_the_scores():
    counts = watch(PIPE, LABELS, SEEDS, PIPE.settings(selection_noise=50.0))
    assert all(0 <= one.score <= one.tokens for one in counts.values())


class Reader:
    """A critic that trusts only the tokens that were visible before sampling."""

    reads_mask = True

    def __call__(self, tokens, labels, mask):
        return torch.where(mask, -100.0, 100.0)


def test_a_critic_that_reads_the_mask_is_told_what_was_drawn():
    pipe = TokenCriticPipeline(PIPE.tokenizer, PIPE.generator, Reader())
    counts = watch(pipe, LABELS, SEEDS, pipe.settings(sampler="random-order", steps=toy.STEPS))
    sums = list(counts.values())
    assert [one.score for one in sums] == pytest.approx([one.visible for one in sums], abs=1e-6)
    assert sums[-1].visible == 8 * 40


def test_batches_do_not_matter():
    whole, parts = (watch(PIPE, LABELS, SEEDS, PIPE.settings(), batch_size=size) for size in (40, 7))
    assert whole.keys() == parts.keys()
    for one, other in zip(whole.values(), parts.values(), strict=True):
        assert other.score == pytest.approx(one.score)
        assert (other.images, other.hidden, other.visible) == (one.images, one.hidden, one.visible)
        assert other.outcomes[:, :3].equal(one.outcomes[:, :3])
        torch.testing.assert_close(other.outcomes, one.outcomes)
