import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tokencritic.errors import InputError
from tokencritic.masking import count_masked, hide_lowest, mask_ratio, put, random_mask, take
from tokencritic.plan import Plan
from tokencritic.schedules import PAPER


def test_the_papers_table_for_256_tokens_in_18_steps():
    # Step 12 of 18 is cos(60 degrees) = 1/2 exactly: 128 tokens, although float64 puts the cosine a hair above 0.5.
    table = PAPER.table(256, 18)
    assert table == [256, 256, 253, 248, 241, 233, 222, 210, 197, 182, 165, 147, 128, 109, 88, 67, 45, 23, 0]


def test_refinement_starts_at_its_ratio():
    assert PAPER.table(256, 9, first_ratio=0.6)[0] == math.ceil(0.6 * 256)
    assert PAPER.table(10, 2, first_ratio=0.6) == [6, 5, 0]  # 6 cos(45 degrees) = 4.24


@given(st.integers(1, 1100), st.integers(1, 80), st.floats(0.01, 1))
def test_tables_fall_from_the_first_count_to_zero(num_tokens, steps, first_ratio):
    table = PAPER.table(num_tokens, steps, first_ratio)
    assert len(table) == steps + 1
    assert table[-1] == 0
    assert all(1 <= count <= num_tokens for count in table[:-1])
    assert table == sorted(table, reverse=True)


def test_the_ratio_is_the_papers_cosine():
    ratio = mask_ratio(torch.tensor([0.0, 0.25, 1.0]))
    assert ratio.tolist() == pytest.approx([1, math.cos(math.pi / 8), 0], abs=1e-12)


@given(st.integers(1, 600), st.integers(1, 40), st.floats(0.01, 1))
def test_the_plan_and_the_training_masks_count_alike(num_tokens, steps, first_ratio):
    ratios = first_ratio * mask_ratio(torch.arange(steps + 1, dtype=torch.float64) / steps)
    assert PAPER.table(num_tokens, steps, first_ratio) == count_masked(num_tokens, ratios).tolist()


def test_a_plan_has_one_table_for_each_image():
    plan = Plan.make([16, 0, 9, 16], 5, first_ratio=0.6)
    assert plan.start.num_masked == (10, 0, 6, 10)
    tables = [PAPER.table(count, 5, 0.6) for count in plan.num_free]
    for step, *counts in zip(plan.steps, *(table[1:] for table in tables), strict=True):
        assert step.num_masked == tuple(counts)
    assert [step.index for step in plan.steps] == [1, 2, 3, 4, 5]
    assert [step.time for step in plan.steps] == [1.0, 0.8, 0.6, 0.4, 0.2]
    assert [step.time_after for step in plan.steps] == [0.8, 0.6, 0.4, 0.2, 0.0]
    assert [step.is_last for step in plan.steps] == [False] * 4 + [True]


def test_a_plan_leaves_out_steps_that_change_nothing():
    plan = Plan.make([4], 12)
    hidden = [step.num_masked[0] for step in plan.steps]
    assert hidden == [4, 4, 4, 4, 4, 3, 3, 2, 2, 2, 1, 0]

    def run(revokes):
        return [(step.index, before) for step, before in plan.with_effect(revokes)]

    # While all tokens are hidden, nothing can change; later, a step that hides as many matters only if it may revoke.
    assert run(lambda _: False) == [(6, (4,)), (8, (3,)), (11, (2,)), (12, (1,))]
    assert run(lambda _: True) == [(6, (4,)), (7, (3,)), (8, (3,)), (9, (2,)), (10, (2,)), (11, (2,)), (12, (1,))]
    assert run(lambda step: step.time <= 0.4) == [(6, (4,)), (8, (3,)), (9, (2,)), (10, (2,)), (11, (2,)), (12, (1,))]


def test_counts_round_up():
    assert count_masked(10, torch.tensor([0.0, 0.01, 0.1, 0.11, 1.0], dtype=torch.float64)).tolist() == [0, 1, 1, 2, 10]


def test_ties_go_by_position_and_the_count_is_exact():
    scores = torch.tensor([[1.0, 0.0, 0.0, 0.0, 1.0]])
    assert hide_lowest(scores, 2).tolist() == [[False, True, True, False, False]]
    assert hide_lowest(torch.zeros(1, 5), 3).tolist() == [[True, True, True, False, False]]


@given(st.lists(st.integers(0, 12), min_size=1, max_size=9), st.integers(0, 2**32))
def test_each_image_has_its_own_exact_count(counts, seed):
    uniforms = torch.rand(len(counts), 12, generator=torch.Generator().manual_seed(seed))
    mask = random_mask(counts, uniforms)
    assert mask.sum(1).tolist() == counts
    for row, values in zip(mask, uniforms, strict=True):
        assert not row.any() or row.all() or values[row].max() <= values[~row].min()


def test_every_mask_of_a_count_is_equally_likely():
    mask = random_mask(2, torch.rand(60_000, 4, generator=torch.Generator().manual_seed(0)))
    counts = (mask * 2 ** torch.arange(4)).sum(1).bincount(minlength=16)
    assert (counts > 0).sum() == 6
    assert counts[counts > 0].float().sub(10_000).abs().max() < 450  # five standard deviations


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PAPER.table(16, 0), "steps is 0"),
        (lambda: PAPER.table(16, 4, first_ratio=0), r"first_ratio is 0; it must lie in \(0, 1\]"),
        (lambda: PAPER.table(16, 4, first_ratio=1.5), "first_ratio is 1.5"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_put_is_the_inverse_of_take():
    values = torch.arange(12).reshape(3, 4)
    indices = torch.tensor([[0, 3], [1, 2], [3, 0]])
    mask = torch.zeros(3, 4, dtype=torch.bool).scatter(1, indices, True)
    assert take(values, indices).tolist() == [[0, 3], [5, 6], [11, 8]]
    assert take(values, mask).tolist() == [0, 3, 5, 6, 8, 11]
    for positions in (indices, mask):
        assert put(torch.zeros_like(values), positions, take(values, positions)).equal(values * mask)
