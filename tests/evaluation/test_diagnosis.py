"""Diagnosis on held-out images, against values computed by hand and by enumeration of a toy world."""

import math

import numpy as np
import pytest
import torch
from evaluation.toy import Bayes, Painter, make_world, true_tokens
from training.tiny_tokens import SIZES, make_arrays, make_tokenizer

from tokencritic import Generator, TokenCriticPipeline, TransformerConfig
from tokencritic.data.order import hold_out
from tokencritic.data.tokens import TokenArrays
from tokencritic.errors import InputError
from tokencritic.evaluation.diagnosis import (
    Judged,
    held_out_report,
    held_out_rows,
    histogram,
    judge,
    reliability,
)
from tokencritic.training.losses import critic_auc, critic_auc_within_image
from tokencritic.training.token_tasks import CriticObjective, CriticTask

IMAGES = 20_000


def auc(scores, real):
    return critic_auc(scores, real).item()


def auc_within_image(scores, real):
    return critic_auc_within_image(scores, real).item()


def test_scores_are_counted_in_bins_of_equal_width():
    scores = torch.tensor([0.0, 0.1, 0.3, 0.55, 0.99, 1.0])
    assert histogram(scores, 4) == [2, 1, 1, 2]
    assert histogram(scores[:0], 4) == [0, 0, 0, 0]
    assert len(histogram(scores)) == 20


def test_reliability_by_hand():
    scores = torch.tensor([[0.25, 0.375, 0.0], [0.75, 0.875, 0.875]], dtype=torch.float64)
    real = torch.tensor([[True, False, False], [True, False, True]])
    found = reliability(scores, real, bins=4)
    assert found["counts"] == [1, 2, 0, 3]
    assert found["scores"][:2] == [0.0, 0.3125]
    assert found["shares"][:2] == [0.0, 0.5]
    assert math.isnan(found["scores"][2])
    assert math.isnan(found["shares"][2])
    assert found["scores"][3] == pytest.approx(2.5 / 3)
    assert found["shares"][3] == pytest.approx(2 / 3)
    assert found["error"] == pytest.approx((2 * 0.1875 + 3 * (0.5 / 3)) / 6)
    assert math.isnan(reliability(scores[:0], real[:0])["error"])


def test_auc_by_hand():
    assert auc(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([True, False, True])) == 1
    assert auc(torch.tensor([1.0, 1.0, 0.0]), torch.tensor([True, False, True])) == 0.25
    assert math.isnan(auc(torch.tensor([1.0, 2.0]), torch.tensor([True, True])))


def test_within_an_image_only_its_own_tokens_are_compared():
    """The second image has higher scores overall, which must not count. The third has tokens of one kind only."""
    scores = torch.tensor([[1.0, 2.0, 0.0], [9.0, 8.0, 7.0], [5.0, 5.0, 5.0]])
    real = torch.tensor([[True, False, False], [True, True, False], [True, True, True]])
    assert auc_within_image(scores, real) == 0.75
    assert auc(scores, real) == pytest.approx(13 / 18)
    assert math.isnan(auc_within_image(scores[2:], real[2:]))
    assert math.isnan(auc_within_image(scores[:0], real[:0]))
    rng = torch.Generator().manual_seed(0)
    scores, real = torch.randint(0, 9, (50, 12), generator=rng) / 4, torch.rand(50, 12, generator=rng) < 0.2
    each = [auc(*pair) for pair in zip(scores, real, strict=True)]
    assert any(map(math.isnan, each))
    assert auc_within_image(scores, real) == pytest.approx(np.nanmean(each), rel=1e-12)


def hand_made():
    """Four images of eight tokens with 1, 2, 3 and 8 hidden. The last sampled code always differs from the original."""
    hidden = [1, 2, 3, 8]
    mask = torch.tensor([[place < count for place in range(8)] for count in hidden])
    unchanged = torch.tensor([[place != count - 1 for place in range(8)] for count in hidden])
    logits = torch.where(mask, -1.0, 2.0) - 3 * (~unchanged).float()
    log_probs = torch.where(mask, torch.where(unchanged, -2.0, -1.0), torch.inf)  # higher where the code is wrong
    return Judged(logits, mask, unchanged, log_probs)


def test_a_report_by_hand():
    report = held_out_report(hand_made())
    assert [section["ratio"] for section in report["by_ratio"]] == [(0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1)]
    assert [section["images"] for section in report["by_ratio"]] == [2, 1, 0, 1]  # a quarter is in the first bin
    assert report["all"]["images"] == 4
    assert report["all"]["tokens"] == {"original": 18, "equal": 10, "changed": 4}
    first, empty = report["by_ratio"][0], report["by_ratio"][2]
    assert first["tokens"] == {"original": 13, "equal": 1, "changed": 2}
    assert first["mean_score"]["changed"] == pytest.approx(1 / (1 + math.exp(4)))
    assert first["histogram"]["original"][17] == 13  # sigmoid(2) = 0.88
    assert sum(first["histogram"]["original"]) == 13
    assert first["auc"] == {"masked": 1.0, "changed": 1.0}
    assert first["auc_within_image"] == {"masked": 1.0, "changed": 1.0}
    assert first["auc_of_resampled"] == {"critic": 1.0, "confidence": 0.0}
    assert report["all"]["calibration"]["masked"]["counts"][8] == 18
    assert report["all"]["calibration"]["masked"]["shares"][8] == 1
    assert report["all"]["calibration"]["changed"]["shares"][2] == 1  # sigmoid(-1): resampled and equal
    assert math.isnan(empty["auc"]["masked"])
    assert math.isnan(empty["calibration"]["masked"]["error"])
    everything_hidden = report["by_ratio"][3]
    assert math.isnan(everything_hidden["auc"]["masked"])  # there are no originals
    assert everything_hidden["auc"]["changed"] == 1


def tiny_pipe(**changes):
    torch.manual_seed(1)
    generator = Generator(TransformerConfig(**SIZES))
    torch.nn.init.normal_(generator.bias)
    critic = generator.start_critic(**changes)
    torch.nn.init.normal_(critic.head.weight)
    if critic.reads_mask:
        torch.nn.init.normal_(critic.mask_embedding)
    return TokenCriticPipeline(make_tokenizer(), generator.eval(), critic.eval())


@pytest.mark.parametrize("reads", [None, "reads_mask", "ratio_conditioned"])
@pytest.mark.parametrize("temperature", [1.0, (1.5, 0.5)])
def test_it_judges_what_validation_in_training_judges(reads, temperature):
    pipe = tiny_pipe(**({reads: True} if reads else {}))
    arrays, rows = make_arrays(), torch.arange(0, 64, 2)
    for target in ("masked", "changed"):
        task = CriticTask(pipe.critic, pipe.generator, arrays, CriticObjective(target, temperature), seed=3)
        expected = task.validate(pipe.critic, rows)
        report = held_out_report(judge(pipe, arrays, rows, 3, temperature, batch_size=64))
        assert report["all"]["auc"][target] == pytest.approx(expected["auc"], abs=1e-9)
        for section in report["by_ratio"]:
            name = "auc_ratio_{:02.0f}_{:.0f}".format(*(100 * edge for edge in section["ratio"]))
            assert section["auc"][target] == pytest.approx(expected.get(name, math.nan), abs=1e-9, nan_ok=True)


def test_the_order_and_the_batches_do_not_matter_and_the_seed_does():
    pipe, arrays, rows = tiny_pipe(), make_arrays(), torch.arange(20)
    whole, parts = (judge(pipe, arrays, rows, 3, batch_size=size) for size in (64, 7))
    back = Judged(*(values.flip(0) for values in judge(pipe, arrays, rows.flip(0), 3)))
    for other in (parts, back):
        assert other.mask.equal(whole.mask)
        assert other.unchanged.equal(whole.unchanged)
        assert other.logits.allclose(whole.logits, atol=1e-5)
    assert not judge(pipe, arrays, rows, 4).mask.equal(whole.mask)


def test_dropout_is_off_while_judging_and_on_again_after():
    pipe, arrays, rows = tiny_pipe(dropout=0.5, reads_mask=True), make_arrays(), torch.arange(20)
    quiet = judge(pipe, arrays, rows)
    pipe.critic.train()
    assert judge(pipe, arrays, rows).logits.equal(quiet.logits)
    assert pipe.critic.training


def test_held_out_rows_are_those_of_training():
    arrays = make_arrays(rows=120, passes=2)
    _, expected = hold_out(120, 60, 0.1)
    assert held_out_rows(arrays, 1000, 0.1).tolist() == expected.tolist()
    assert held_out_rows(arrays, 4, 0.1).tolist() == expected[[0, 3, 6, 9]].tolist()
    assert held_out_rows(arrays, 1000, 1).tolist() == list(range(120))
    for num, share, message in ((0, 0.1, "num is 0"), (5, 0, "held_out is 0"), (5, 0.7, "held_out is 0.7")):
        with pytest.raises(InputError, match=message):
            held_out_rows(arrays, num, share)
    with pytest.raises(InputError, match="leaves one side of 5 images empty"):
        held_out_rows(make_arrays(rows=5), 5, 0.1)


WORLD = make_world()


class Shifted(Bayes):
    """The Bayes critic with overconfident logits."""

    def __call__(self, tokens, labels):
        return 2 * super().__call__(tokens, labels)


@pytest.fixture(scope="module")
def arrays():
    tokens, labels = true_tokens(WORLD, IMAGES)
    tokens, labels = tokens.numpy().astype(np.uint16), labels.numpy().astype(np.int32)
    return TokenArrays(tokens, labels, "painter", 2, (3, 3), ("a", "b"), {"rows": IMAGES})


@pytest.fixture(scope="module")
def judged(arrays):
    return judge(TokenCriticPipeline(Painter(), WORLD, Bayes(WORLD)), arrays, torch.arange(IMAGES), batch_size=4000)


@pytest.fixture(scope="module")
def report(judged):
    return held_out_report(judged)


def weighted_auc(scores, real, other):
    """The AUC by sorting, where each score has a weight of either kind."""
    _, index = scores.unique(return_inverse=True)
    real, other = (index.bincount(weights) / weights.sum() for weights in (real, other))
    return float((real * (other.cumsum(0) - other / 2)).sum())


def row_weights():
    """The probability of each masked sequence in training, (classes, rows), and its hidden tokens."""
    hidden, known = WORLD.sequences == WORLD.mask_id, WORLD.mask_probabilities()
    chances = torch.tensor([known.get(tuple(mask), 0.0) for mask in hidden.tolist()], dtype=torch.float64)
    return chances * WORLD.probabilities / WORLD.num_classes, hidden


def test_the_bayes_critic_is_calibrated_and_one_too_sure_is_not(arrays, report):
    assert report["all"]["calibration"]["masked"]["error"] < 0.005
    pipe = TokenCriticPipeline(Painter(), WORLD, Shifted(WORLD))
    sure = judge(pipe, arrays, torch.arange(0, IMAGES, 4), batch_size=4000)
    assert held_out_report(sure)["all"]["calibration"]["masked"]["error"] > 0.05


def test_redrawn_tokens_equal_the_original_as_often_as_they_must(judged):
    weights, hidden = row_weights()
    both = WORLD.log_marginals.double().exp().square().sum(-1)  # c rows n: original and sample are equal
    expected = (weights[..., None] * both * hidden).sum() / (weights[..., None] * hidden).sum()
    assert judged.unchanged[judged.mask].double().mean().item() == pytest.approx(expected.item(), abs=0.005)


def test_confidence_judges_as_well_as_it_must(report):
    weights, hidden = row_weights()
    log_p = WORLD.log_marginals.double()  # c rows n s: of each code that may be sampled
    drawn = weights[..., None, None] * hidden[..., None] * log_p.exp()
    flat = [values.flatten() for values in (log_p, drawn * log_p.exp(), drawn * (1 - log_p.exp()))]
    assert report["all"]["auc_of_resampled"]["confidence"] == pytest.approx(weighted_auc(*flat), abs=0.005)


def test_the_critic_judges_as_well_as_the_best_can(report):
    images, log_p = WORLD.sequences[WORLD.complete], WORLD.log_marginals.double()
    seen = torch.zeros(WORLD.num_classes, len(images), dtype=torch.float64)
    for bits, chance in WORLD.mask_probabilities().items():
        mask = torch.tensor(bits)
        rows = WORLD.row(images.masked_fill(mask, WORLD.mask_id))
        drawn = log_p[:, rows].gather(-1, images[None, ..., None].expand(WORLD.num_classes, -1, -1, 1))[..., 0]
        seen += chance * WORLD.probabilities[:, rows] * drawn[..., mask].sum(-1).exp()
    assert seen.sum(1).tolist() == pytest.approx([1, 1])
    logits = WORLD.critic_logits[:, WORLD.complete]
    original = seen[..., None] * logits.double().sigmoid()
    expected = weighted_auc(logits.flatten(), original.flatten(), (seen[..., None] - original).flatten())
    assert report["all"]["auc"]["masked"] == pytest.approx(expected, abs=0.005)


def test_confidence_is_known_of_drawn_tokens_alone(judged):
    assert judged.log_probs[~judged.mask].eq(torch.inf).all()
    assert judged.log_probs[judged.mask].le(0).all()
