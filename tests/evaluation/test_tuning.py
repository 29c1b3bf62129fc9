"""Sweeps, tuning and comparison in a toy world with a known distribution."""

import csv
import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
from evaluation import toy
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from tokencritic.errors import InputError
from tokencritic.evaluation import search
from tokencritic.evaluation.comparison import (
    _worth,
    compare,
    comparison_lines,
    comparison_text,
    lines_at_nfe,
)
from tokencritic.evaluation.evaluate import Meter
from tokencritic.evaluation.reference import open_reference
from tokencritic.evaluation.report import write_csv
from tokencritic.evaluation.samples import SampleSets
from tokencritic.evaluation.search import rounds, settings_grid, sweep, tune, write_tuning
from tokencritic.files import write_json
from tokencritic.sampling.samplers import SAMPLERS
from tokencritic.sampling.settings import SamplingSettings


@pytest.fixture(scope="module")
def world():
    return toy.make_world()


@pytest.fixture(scope="module")
def truth(tmp_path_factory, world):
    return toy.write_truth(tmp_path_factory.mktemp("truth") / "truth.npz", world, 1000)


@pytest.fixture
def meter(world, truth, tmp_path):
    features = toy.Pairs(world)
    reference = open_reference(truth, features, tmp_path, (6, 6), 1)
    return Meter(features, reference, tmp_path, ("fid", "is"), resamples=4)


@pytest.fixture
def sets(world, tmp_path):
    return SampleSets(toy.make_pipe(world, steps=3), tmp_path, 200)


def test_a_grid_holds_every_combination_once_and_values_of_a_sampler_are_its_own(world):
    axes = {
        "steps": {None: [2, 4], "confidence": [8]},
        "temperature": {None: [1.0, (1.1, 0.7)]},
        "selection_noise": {"critic": [0.1, 0.2], "confidence": [4.5]},
        "guidance": {},
    }
    pipe = toy.make_pipe(world)
    found = settings_grid(
        ["critic", "confidence", "random-order"],
        axes,
        lambda sampler: pipe.settings(sampler=sampler, early_noise=2 + (sampler == "critic")),
    )
    combinations = [(one.sampler, one.steps, one.temperature, one.selection_noise) for one in found]
    assert len(set(combinations)) == len(combinations) == 8 + 2 + 4
    assert {one.steps for one in found if one.sampler == "confidence"} == {8}
    assert {one.selection_noise for one in found if one.sampler == "random-order"} == {None}
    assert all(one.early_noise == 2 + (one.sampler == "critic") for one in found)  # has no axis


def test_a_sweep_gives_one_row_for_each_setting_and_goes_on_where_it_was_cut_off(sets, meter, world, tmp_path):
    axes = {"steps": {None: [1, toy.STEPS]}}
    settings = settings_grid(["random-order", "critic"], axes, lambda sampler: sets.pipe.settings(sampler=sampler))
    cut_off = list(itertools.islice(sweep(sets, meter, settings), 2))
    world.__dict__["asked"] = meter.features.seen = 0
    rows = list(sweep(sets, meter, settings))
    assert rows[:2] == cut_off
    assert meter.features.seen == 2 * 200  # two of the four settings were cached
    assert [(row["sampler"], row["steps"]) for row in rows] == [
        ("random-order", 1),
        ("random-order", toy.STEPS),
        ("critic", 1),
        ("critic", toy.STEPS),
    ]
    assert [row["nfe"] for row in rows] == [1, 9, 1, 21]  # the critic is not evaluated after the last step
    by_steps = {row["steps"]: row["fid"] for row in rows if row["sampler"] == "random-order"}
    assert by_steps[toy.STEPS] < 0.5 * by_steps[1]
    write_csv(tmp_path / "out/rows.csv", rows)
    again = list(csv.DictReader((tmp_path / "out/rows.csv").read_text().splitlines()))
    assert [float(row["fid"]) for row in again] == [row["fid"] for row in rows]
    assert (again[0]["selection_noise"], again[0]["noise_kind"]) == ("", "")  # a random order has none
    assert again[2]["noise_kind"] == "uniform"  # the unit of the critic's
    write_json(tmp_path / "out/rows.json", [rows[0] | {"fid_std": math.nan}])
    assert json.loads((tmp_path / "out/rows.json").read_text())[0]["fid_std"] is None


@given(st.integers(2, 500), st.integers(2, 50))
@limits(max_examples=200, deadline=None)
def test_rounds_halve_the_trials_double_the_images_and_keep_within_the_budget(budget, first):
    def images(plan):
        made = [0, *(count for _, count in plan)]
        return sum(trials * (count - before) for (trials, count), before in zip(plan, made, strict=False))

    if budget < 2 * first:
        with pytest.raises(InputError, match=f"budget is {budget} images; .* at least {2 * first}"):
            rounds(budget, first)
        return
    plan = rounds(budget, first)
    assert plan[0][1] == first
    assert plan[-1][0] == 2
    for (many, few), (half, twice) in itertools.pairwise(plan):
        assert (half, twice) == (-(-many // 2), 2 * few)
    assert images(plan) <= budget


def test_tuning_beats_bad_settings_within_its_budget_and_keeps_away_from_the_seeds_of_evaluations(
    meter, world, tmp_path
):
    bad = toy.make_pipe(world, sampler="critic", temperature=0.1, selection_noise=0.0)
    sets = SampleSets(bad, tmp_path, 50)
    meter.features.seen = 0
    told = []
    options = {"first": 60, "seed": 1, "on_round": lambda trials: told.append(len(trials))}
    trials, _ = tune(sets, meter, bad.defaults, 9, 1000, **options)
    images = sum(max(trial.fids) for trial in trials)
    assert meter.features.seen == images <= 1000
    assert told == [trials for trials, _ in rounds(1000, 60)]
    start = next(trial for trial in trials if trial.settings.temperature == 0.1)
    assert trials[0].fids[60] < 0.5 * start.fids[60]
    counts = [max(trial.fids) for trial in trials]
    assert counts == sorted(counts, reverse=True)  # the best first, which have the most images
    assert all(trial.settings.nfe(9) <= 9 for trial in trials)
    seeds = {json.loads(file.read_text())["seed"] for file in tmp_path.glob("tokens/*/facts.json")}
    assert seeds == {search.TUNING_SEED}
    again, _ = tune(sets, meter, bad.defaults, 9, 1000, first=60, seed=1)
    assert again == trials
    assert meter.features.seen == images  # all from the cache


@pytest.mark.parametrize("seed", range(5))
def test_a_dozen_trials_see_every_part_of_the_ranges_and_a_dozen_the_neighbourhood_of_the_first(world, seed):
    pipe = toy.make_pipe(world)
    start = pipe.settings(sampler="critic", temperature=(1.0, 0.8), selection_noise=1.0)
    own, *drawn = search.trial_settings(pipe, start, 9, 25, seed)
    assert own.temperature == (1.0, 0.8)
    near, drawn = drawn[:12], drawn[12:]
    for settings in near:
        hot, end = settings.temperature
        assert abs(end - 0.8) <= 0.11
        assert abs(hot - end - 0.2) <= 0.11
        assert 0.5 < settings.selection_noise < 2
        start, end = settings.critic_window
        assert start >= 0.85
        assert end <= 0.15
    assert len({settings.temperature for settings in near}) == 12
    ends = [settings.temperature[1] for settings in drawn]
    falls = [settings.temperature[0] - settings.temperature[1] for settings in drawn]
    noises = [math.log(settings.selection_noise) for settings in drawn]
    for values, low, high in ((ends, 0.4, 1.1), (falls, 0, 0.7), (noises, math.log(0.1), math.log(4))):
        counts, _ = np.histogram(values, 3, (low - 1e-3, high + 1e-3))
        assert counts.sum() == 12
        assert counts.min() >= 2
    times = [settings.critic_window for settings in drawn]
    assert 1 <= times.count((1, 0)) <= 4
    assert min(sum(since < 1 for since, _ in times), sum(until > 0 for _, until in times)) >= 3
    assert all(since == 1 or until == 0 for since, until in times)
    assert all(since >= 0.15 and until <= 0.85 for since, until in times)


def test_gumbel_noise_is_sought_in_its_own_unit_and_only_samplers_that_revoke_have_a_window(world):
    pipe = toy.make_pipe(world)
    drawn = search.trial_settings(pipe, pipe.settings(sampler="critic", noise_kind="gumbel"), 9, 25, 0)[13:]
    assert {settings.noise_kind for settings in drawn} == {"gumbel"}
    counts, _ = np.histogram([math.log(settings.selection_noise) for settings in drawn], 3, np.log((0.499, 6.01)))
    assert counts.sum() == 12
    assert counts.min() >= 2
    by_chance = search.trial_settings(pipe, pipe.settings(sampler="random-remask"), 9, 25, 0)
    assert {settings.selection_noise for settings in by_chance} == {None}
    assert len({settings.critic_window for settings in by_chance}) > 12
    drawn = search.trial_settings(pipe, pipe.settings(sampler="confidence"), 9, 6, 0)
    assert {settings.critic_window for settings in drawn} == {(1.0, 0.0)}


def test_the_inline_critics_quota_and_noise_are_searched(world):
    pipe = toy.make_pipe(world)
    pipe.inline_critic = world.inline_critic
    start = pipe.settings(sampler="inline", remask_quota=0.5, remask_noise=0.5)
    found = search.trial_settings(pipe, start, 9, 25, 0)
    assert (found[0].remask_quota, found[0].remask_noise) == (0.5, 0.5)
    for name, low, high in (("remask_quota", 0.2, 1.0), ("remask_noise", 0.1, 2.0)):
        near, anywhere = ([vars(one)[name] for one in some] for some in (found[1:13], found[13:]))
        assert max(abs(value - 0.5) for value in near) <= 0.15 * (high - low) + 1e-3
        counts, _ = np.histogram(anywhere, 3, (low, high))
        assert counts.sum() == 12
        assert counts.min() >= 2
    assert max(one.nfe(9) for one in found) <= 9


def test_the_samplers_are_compared_at_equal_cost(world):
    pipe = toy.make_pipe(world)
    pipe.inline_critic = world.inline_critic
    vars(pipe)["relative_costs"] = {"generator": 1.0, "critic": 0.5, "inline_critic": 0.25}
    lines = {line.settings.sampler: line.settings for line in lines_at_nfe(pipe, [5], pipe.cost)}
    assert list(lines) == ["confidence", "critic", "inline", "random-remask"]
    for sampler, chosen in lines.items():
        more = dataclasses.replace(chosen, steps=chosen.steps + 1)
        assert pipe.cost(chosen) <= 5 < max(pipe.cost(more), pipe.cost(dataclasses.replace(more, steps=more.steps + 1)))
        evaluations = chosen.evaluations(9)
        extra = {"critic": 0.5 * evaluations.critic, "inline": 0.25 * evaluations.inline_critic}.get(sampler, 0)
        assert pipe.cost(chosen) == evaluations.generator + extra
        assert bool(extra) == (sampler in ("critic", "inline"))
    pipe.critic = pipe.inline_critic = None
    assert [line.settings.sampler for line in lines_at_nfe(pipe, [5], pipe.cost)] == ["confidence"]


def test_neighbours_have_the_guidance_of_the_first_trial_and_half_of_the_others_some(world):
    pipe = toy.make_pipe(world)
    pipe.generator.null_class = True
    drawn = search.trial_settings(pipe, pipe.settings(sampler="critic", guidance=1.5), 9, 25, 0)
    assert {settings.guidance for settings in drawn[:13]} == {1.5}
    assert len({settings.guidance for settings in drawn[13:]}) > 4


def test_the_trials_come_back_as_settings_of_the_nearest_nfe(sets, meter, tmp_path):
    sets.pipe.folder = folder = tmp_path / "model"
    assert sets.pipe.sampling.tuned("random-order", 9) is None
    for nfe in (3, 9):
        trials, facts = tune(sets, meter, sets.pipe.settings(sampler="random-order"), nfe, 400, first=100)
        write_tuning(folder, sets.pipe, nfe, trials, facts)
    at_9, at_3 = (sets.pipe.sampling.tuned("random-order", nfe) for nfe in (8, 4))
    assert (at_9.settings, at_9.nfe, at_3.settings.nfe(9)) == (trials[0].settings, 9, 3)
    assert _worth(at_9, sets.pipe, 9) == "tuned"
    assert _worth(at_9, sets.pipe, 8) == "tuned at 9 NFE"
    other = dataclasses.replace(at_9, models=at_9.models | {"generator": "f" * 64})
    assert _worth(other, sets.pipe, 9) == "tuned for another generator"
    assert sets.pipe.sampling.tuned("critic", 9) is None
    written = json.loads((folder / "tuning-random-order-9.json").read_text())
    assert len(written["trials"]) == 2
    assert written["models"].keys() == {"generator", "tokenizer"}


def write_best(folder, settings, nfe):
    """A model folder with tuned settings."""
    write_json(folder / f"tuning-{settings.sampler}-{nfe}.json", {"best": dataclasses.asdict(settings), "models": {}})
    return folder


def test_the_comparison_has_the_rows_of_the_papers_tables(sets, meter, tmp_path):
    best = SamplingSettings("confidence", steps=5, temperature=0.8, selection_noise=2.0)
    nfe = sets.pipe.nfe(sets.pipe.settings(sampler="confidence", steps=4))
    sets.pipe.folder = write_best(tmp_path / "one", best, nfe)
    lines = comparison_lines(sets.pipe, 4, [2])
    assert [line.name for line in lines] == [
        "MaskGIT, 4 steps",
        "Token-Critic, 4 steps",
        "Random re-masking, 4 steps",
        "MaskGIT, 4 steps, refined by the critic",
        "MaskGIT, 4 steps, refined at random",
        "MaskGIT, 8 steps",
        "MaskGIT, 4 steps, best 50 % by the critic",
        "Token-Critic, 4 steps, best 50 % by the critic",
    ]
    assert {line.settings.temperature for line in lines if line.settings.sampler == "confidence"} == {0.8}
    assert {line.settings.temperature for line in lines if line.settings.sampler == "critic"} == {1.0}
    done = list(compare(sets, meter, lines))
    rows = {one.line.name: one.row for one in done}
    assert rows["MaskGIT, 8 steps"]["nfe"] <= 2 * rows["MaskGIT, 4 steps"]["nfe"]
    plain, best = rows["Token-Critic, 4 steps"], rows["Token-Critic, 4 steps, best 50 % by the critic"]
    assert best["nfe"] == 2 * (plain["nfe"] + 1)
    by_critic, at_random = (rows[f"MaskGIT, 4 steps, refined {how}"] for how in ("by the critic", "at random"))
    assert by_critic["refined"] == at_random["refined"] == 0.6
    assert by_critic["nfe"] > at_random["nfe"] > rows["MaskGIT, 4 steps"]["nfe"]
    assert by_critic["fid"] != at_random["fid"]
    assert [not one.line.tuned.startswith("not tuned") for one in done] == ["MaskGIT" in name for name in rows]
    assert done[5].line.tuned == f"tuned at {nfe} NFE"
    assert "MaskGIT, 4 steps: confidence, 4 steps, temperature 0.8, noise 2, tuned\n" in comparison_text(done)
    assert "Token-Critic, 4 steps: critic, 4 steps, temperature 1, noise 0.2, not tuned\n" in comparison_text(done)
    assert "Not all samplers are tuned" in comparison_text(done)
    assert "Not all samplers are tuned" not in comparison_text([done[0], done[5]])
    lines = [line for line in comparison_text(done).splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in lines[0].split("|")[2:5]] == ["NFE", "cost", "ms/image"]
    assert len({len(line) for line in lines}) == 1
    assert len(lines) == 10
    # The control evaluates the generator alone, so at equal NFE it has more steps.
    assert rows["Random re-masking, 4 steps"]["nfe"] < plain["nfe"]
    at_equal = {line.settings.sampler: line for line in lines_at_nfe(sets.pipe, [6])}
    assert list(at_equal) == ["confidence", "critic", "random-remask"]
    assert at_equal["random-remask"].settings.steps > at_equal["critic"].settings.steps
    # An untuned control uses the critic's tuned settings, at equal NFE and at equal steps.
    best = SamplingSettings("critic", steps=5, temperature=0.6, selection_noise=2.0, critic_window=(0.7, 0.0))
    sets.pipe.folder = write_best(tmp_path / "other", best, 6)
    for lines in (comparison_lines(sets.pipe, 4), lines_at_nfe(sets.pipe, [6])):
        control = next(line for line in lines if line.settings.sampler == "random-remask")
        assert control.tuned == "not tuned: the critic's settings"
        assert control.settings == dataclasses.replace(best.with_random_remasking(), steps=control.settings.steps)
    sets.pipe.critic = None
    assert len(comparison_lines(sets.pipe, 4)) == 2


def test_a_new_row_of_the_table_of_samplers_is_compared(world, monkeypatch):
    monkeypatch.setitem(SAMPLERS, "halton", dataclasses.replace(SAMPLERS["halton"], compared=True))
    pipe = toy.make_pipe(world)
    lines = [line.settings.sampler for line in lines_at_nfe(pipe, [6])]
    assert lines == ["confidence", "halton", "critic", "random-remask"]
    assert "Halton order, 4 steps" in [line.name for line in comparison_lines(pipe, 4)]
