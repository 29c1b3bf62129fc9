"""Sweeps, tuning and the comparison, in the world whose truth is known."""

import csv
import dataclasses
import itertools
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from evaluation import toy
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from tokencritic.errors import InputError
from tokencritic.evaluation import search
from tokencritic.evaluation.comparison import (
    compare,
    comparison_lines,
    comparison_table,
    comparison_text,
    lines_at_passes,
)
from tokencritic.evaluation.evaluate import Meter
from tokencritic.evaluation.reference import ReferenceImages, open_reference
from tokencritic.evaluation.report import write_csv, write_json
from tokencritic.evaluation.samples import SampleSets
from tokencritic.evaluation.search import parse_temperature, rounds, settings_grid, sweep, tune, write_evidence
from tokencritic.evaluation.tuned_settings import Evidence, at_passes, read_evidence, steps_for
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
    reference = open_reference(truth, features, ReferenceImages((6, 6), 1), tmp_path)
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
        ["critic", "confidence", "random"],
        axes,
        lambda sampler: pipe.settings(sampler=sampler, passes_per_level=2 + (sampler == "critic")),
    )
    combinations = [(one.sampler, one.steps, one.temperature, one.selection_noise) for one in found]
    assert len(set(combinations)) == len(combinations) == 8 + 2 + 4
    assert {one.steps for one in found if one.sampler == "confidence"} == {8}
    assert {one.selection_noise for one in found if one.sampler == "random"} == {None}
    assert all(one.passes_per_level == 2 + (one.sampler == "critic") for one in found)  # has no axis
    with pytest.raises(InputError, match="samplers is empty"):
        settings_grid([], axes, lambda sampler: pipe.settings(sampler=sampler))


def test_a_sweep_gives_one_row_for_each_setting_and_goes_on_where_it_was_cut_off(sets, meter, world, tmp_path):
    axes = {"steps": {None: [1, 9]}}
    settings = settings_grid(["random", "critic"], axes, lambda sampler: sets.pipe.settings(sampler=sampler))
    seen = []

    def stop_after_two(rows):
        seen.append(len(rows))
        if len(rows) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(sets, meter, settings, stop_after_two)
    world.__dict__["asked"] = meter.features.seen = 0
    rows = sweep(sets, meter, settings)
    assert seen == [1, 2]
    assert meter.features.seen == 2 * 200  # of four settings, two were there
    assert [(row["sampler"], row["steps"]) for row in rows] == [
        ("random", 1),
        ("random", 9),
        ("critic", 1),
        ("critic", 9),
    ]
    assert [row["passes"] for row in rows] == [1, 9, 1, 17]  # the critic is not asked after the last step
    by_steps = {row["steps"]: row["fid"] for row in rows if row["sampler"] == "random"}
    assert by_steps[9] < 0.5 * by_steps[1]
    write_csv(tmp_path / "out/rows.csv", rows)
    again = list(csv.DictReader((tmp_path / "out/rows.csv").read_text().splitlines()))
    assert [float(row["fid"]) for row in again] == [row["fid"] for row in rows]
    assert (again[0]["selection_noise"], again[0]["noise_on"]) == ("", "")  # a random order has none
    assert again[2]["noise_on"] == "probability"  # the unit of the critic's
    write_json(tmp_path / "out/rows.json", [rows[0] | {"fid_std": math.nan}])
    assert json.loads((tmp_path / "out/rows.json").read_text())[0]["fid_std"] is None


def test_temperatures_are_read_as_numbers_or_falling_ones():
    assert parse_temperature("0.9") == 0.9
    assert parse_temperature("1.1:0.7") == (1.1, 0.7)
    for bad in ("", "1:2:3", "warm"):
        with pytest.raises(InputError, match="is no number and no START:END"):
            parse_temperature(bad)


@given(st.integers(2, 500), st.integers(2, 50))
@limits(max_examples=200, deadline=None)
def test_rounds_halve_the_trials_double_the_images_and_keep_within_the_budget(budget, first):
    def images(plan):
        made = [0, *(count for _, count in plan)]
        return sum(trials * (count - before) for (trials, count), before in zip(plan, made, strict=False))

    if budget < 2 * first:
        with pytest.raises(InputError, match=f"budget is {budget} images; .* need {2 * first}"):
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
    found = tune(sets, meter, bad.defaults, 9, 1000, **options)
    assert meter.features.seen == found.images <= 1000
    assert told == [trials for trials, _ in rounds(1000, 60)]
    start = next(trial for trial in found.trials if trial.settings.temperature == 0.1)
    assert found.trials[0].fids[60] < 0.5 * start.fids[60]
    counts = [max(trial.fids) for trial in found.trials]
    assert counts == sorted(counts, reverse=True)  # the best first: those that came furthest
    assert all(trial.settings.passes(9, True) <= 9 for trial in found.trials)
    seeds = {json.loads(file.read_text())["seed"] for file in tmp_path.glob("tokens/*/facts.json")}
    assert seeds == {search.TUNING_SEED}
    again = tune(sets, meter, bad.defaults, 9, 1000, first=60, seed=1)
    assert again.trials == found.trials
    assert meter.features.seen == found.images  # all from the cache


@pytest.mark.parametrize("seed", range(5))
def test_a_dozen_trials_see_every_part_of_the_ranges_and_a_dozen_the_neighbourhood_of_the_first(world, seed):
    pipe = toy.make_pipe(world)
    start = pipe.settings(sampler="critic", temperature=(1.0, 0.8), selection_noise=1.0)
    own, *drawn = search.draw_settings(pipe, start, 9, 25, seed)
    assert own.temperature == (1.0, 0.8)
    near, drawn = drawn[:12], drawn[12:]
    for settings in near:
        hot, end = settings.temperature
        assert abs(end - 0.8) <= 0.11
        assert abs(hot - end - 0.2) <= 0.11
        assert 0.5 < settings.selection_noise < 2
        assert settings.critic_from >= 0.85
        assert settings.critic_until <= 0.15
    assert len({settings.temperature for settings in near}) == 12
    ends = [settings.temperature[1] for settings in drawn]
    falls = [settings.temperature[0] - settings.temperature[1] for settings in drawn]
    noises = [math.log(settings.selection_noise) for settings in drawn]
    for values, low, high in ((ends, 0.4, 1.1), (falls, 0, 0.7), (noises, math.log(0.1), math.log(4))):
        counts, _ = np.histogram(values, 3, (low - 1e-3, high + 1e-3))
        assert counts.sum() == 12
        assert counts.min() >= 2
    times = [(settings.critic_from, settings.critic_until) for settings in drawn]
    assert 1 <= times.count((1, 0)) <= 4
    assert min(sum(since < 1 for since, _ in times), sum(until > 0 for _, until in times)) >= 3
    assert all(since == 1 or until == 0 for since, until in times)
    assert all(since >= 0.15 and until <= 0.85 for since, until in times)


def test_noise_on_logits_is_sought_in_their_own_unit_and_only_a_critic_hands_over(world):
    pipe = toy.make_pipe(world)
    drawn = search.draw_settings(pipe, pipe.settings(sampler="critic", noise_on="logit"), 9, 25, 0)[13:]
    assert {settings.noise_on for settings in drawn} == {"logit"}
    counts, _ = np.histogram([math.log(settings.selection_noise) for settings in drawn], 3, np.log((0.499, 8.01)))
    assert counts.sum() == 12
    assert counts.min() >= 2
    by_chance = search.draw_settings(pipe, pipe.settings(sampler="chance"), 9, 25, 0)
    assert {settings.selection_noise for settings in by_chance} == {None}
    assert len({(settings.critic_from, settings.critic_until) for settings in by_chance}) > 12
    drawn = search.draw_settings(pipe, pipe.settings(sampler="confidence"), 9, 6, 0)
    assert {(settings.critic_from, settings.critic_until) for settings in drawn} == {(1.0, 0.0)}


def test_neighbours_have_the_guidance_of_the_first_trial_and_half_of_the_others_some(world):
    pipe = toy.make_pipe(world)
    pipe.generator.config = SimpleNamespace(null_class=True)
    drawn = search.draw_settings(pipe, pipe.settings(sampler="critic", guidance=1.5), 9, 25, 0)
    assert {settings.guidance for settings in drawn[:13]} == {1.5}
    assert len({settings.guidance for settings in drawn[13:]}) > 4


def test_steps_are_the_fewest_that_come_nearest_to_the_passes(world):
    pipe = toy.make_pipe(world)
    num_tokens = pipe.tokenizer.num_tokens
    for settings in (
        SamplingSettings("critic"),
        SamplingSettings("confidence"),
        SamplingSettings("random", candidates=2),
    ):
        for passes in (4, 11):
            steps = steps_for(pipe, settings, passes)
            of = {n: dataclasses.replace(settings, steps=n).passes(num_tokens) for n in range(1, 2 * passes + 1)}
            nearest = max(value for value in of.values() if value <= passes)
            assert of[steps] == nearest
            assert all(of[n] != nearest for n in range(1, steps))
    with pytest.raises(InputError, match="passes is 3; one step of these settings takes 20 already"):
        steps_for(pipe, SamplingSettings("random", candidates=10), 3)


def test_a_critic_that_would_never_choose_is_refused_and_not_drawn(world):
    pipe, label = toy.make_pipe(world), torch.tensor([0])
    early = pipe.settings(sampler="critic", critic_until=0.95, schedule="cosine")
    with pytest.raises(
        InputError, match=r"0\.95, too early for the critic to choose even once in 18 steps of 9 tokens"
    ):
        pipe.sample_tokens(label, 0, dataclasses.replace(early, steps=18))
    with pytest.raises(InputError, match="too early for chance to choose even once"):
        pipe.sample_tokens(label, 0, dataclasses.replace(early, steps=18, sampler="chance"))
    fitted = at_passes(pipe, early, 9)
    assert 0 < fitted.critic_until < 0.95
    pipe.sample_tokens(label, 0, fitted)


def test_the_evidence_comes_back_as_settings_of_the_nearest_passes(sets, meter, tmp_path):
    folder = tmp_path / "model"
    assert read_evidence(folder, "random", 9) is None
    for passes in (3, 9):
        found = tune(sets, meter, sets.pipe.settings(sampler="random"), passes, 400, first=100)
        write_evidence(folder, sets.pipe, passes, found)
    at_9, at_3 = read_evidence(folder, "random", 8), read_evidence(folder, "random", 4)
    assert (at_9.settings, at_9.passes, at_3.settings.steps) == (found.best, 9, 3)
    assert at_9.worth(sets.pipe, 9) == "tuned"
    assert at_9.worth(sets.pipe, 8) == "tuned at 9 passes"
    other = dataclasses.replace(at_9, models=at_9.models | {"generator": "f" * 64})
    assert other.worth(sets.pipe, 9) == "tuned for another generator"
    assert read_evidence(folder, "critic", 9) is None
    evidence = json.loads((folder / "tuning-random-9.json").read_text())
    assert len(evidence["trials"]) == 2
    assert evidence["models"].keys() == {"generator", "tokenizer"}
    (folder / "tuning-random-9.json").write_text("{}")
    with pytest.raises(InputError, match=r"tuning-random-9.json is not what tuning wrote"):
        read_evidence(folder, "random", 9)


def test_the_comparison_has_the_rows_of_the_papers_tables(sets, meter):
    best = SamplingSettings("confidence", steps=5, temperature=0.8, selection_noise=2.0)
    passes = sets.pipe.settings(sampler="confidence", steps=4).passes(sets.pipe.tokenizer.num_tokens)
    tuned = {"confidence": Evidence(best, passes, {})}
    lines = comparison_lines(sets.pipe, 4, lambda sampler, passes: tuned.get(sampler), [2])
    assert [line.name for line in lines] == [
        "MaskGIT, 4 steps",
        "MaskGIT, 8 steps",
        "Token-Critic, 4 steps",
        "Taken back by chance, 4 steps",
        "MaskGIT, 4 steps, refined by the critic",
        "MaskGIT, 4 steps, best 50 % by the critic",
        "Token-Critic, 4 steps, best 50 % by the critic",
    ]
    assert {line.settings.temperature for line in lines if line.settings.sampler == "confidence"} == {0.8}
    assert {line.settings.temperature for line in lines if line.settings.sampler == "critic"} == {1.0}
    done = compare(sets, meter, lines)
    rows = {one.line.name: one.row for one in done}
    assert rows["MaskGIT, 8 steps"]["passes"] <= 2 * rows["MaskGIT, 4 steps"]["passes"]
    plain, best = rows["Token-Critic, 4 steps"], rows["Token-Critic, 4 steps, best 50 % by the critic"]
    assert best["passes"] == 2 * (plain["passes"] + 1)
    assert rows["MaskGIT, 4 steps, refined by the critic"]["refined"] == 0.6
    assert [not one.line.tuned.startswith("not tuned") for one in done] == ["MaskGIT" in name for name in rows]
    assert done[1].line.tuned == f"tuned at {passes} passes"
    assert "MaskGIT, 4 steps: confidence, 4 steps, temperature 0.8, noise 2, tuned\n" in comparison_text(done)
    assert "Token-Critic, 4 steps: critic, 4 steps, temperature 1, noise 0.2, not tuned\n" in comparison_text(done)
    assert "Not all samplers are tuned" in comparison_text(done)
    assert "Not all samplers are tuned" not in comparison_text(done[:2])
    lines = comparison_table(done).splitlines()
    assert lines[0].split("|")[2].strip() == "passes"
    assert len({len(line) for line in lines}) == 1
    assert len(lines) == 9
    # The control takes the generator's passes alone, so at equal passes it has more steps.
    assert rows["Taken back by chance, 4 steps"]["passes"] < plain["passes"]
    at_equal = {line.settings.sampler: line for line in lines_at_passes(sets.pipe, [6], lambda *_: None)}
    assert list(at_equal) == ["confidence", "critic", "chance"]
    assert at_equal["chance"].settings.steps > at_equal["critic"].settings.steps
    # Without a search of its own the control has what was found for the critic, there and at equal steps.
    best = SamplingSettings("critic", steps=5, temperature=0.6, selection_noise=2.0, critic_from=0.7)
    tuned = {"critic": Evidence(best, 6, {})}
    for lines in (
        comparison_lines(sets.pipe, 4, lambda sampler, passes: tuned.get(sampler)),
        lines_at_passes(sets.pipe, [6], lambda sampler, passes: tuned.get(sampler)),
    ):
        control = next(line for line in lines if line.settings.sampler == "chance")
        assert control.tuned == "not tuned: the critic's settings"
        assert control.settings == dataclasses.replace(best.by_chance(), steps=control.settings.steps)
    sets.pipe.critic = None
    assert len(comparison_lines(sets.pipe, 4, lambda *_: None)) == 2
