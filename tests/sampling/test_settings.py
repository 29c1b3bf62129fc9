"""The settings: what they cost, how a model's own resolve, and that they can be read without torch."""

import dataclasses
import json
import subprocess
import sys
from collections import Counter
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tokencritic.adapters import as_classifier
from tokencritic.errors import InputError
from tokencritic.guidance import guided
from tokencritic.models.generator import Generator
from tokencritic.models.inline_critic import InlineCritic, InlineCriticConfig
from tokencritic.models.transformer import TransformerConfig
from tokencritic.plan import Plan, Step, in_window
from tokencritic.sampling.model_settings import ModelSettings, tuning_file
from tokencritic.sampling.rejection import best_of, choose_ranker
from tokencritic.sampling.samplers import SAMPLERS
from tokencritic.sampling.scorers import Judges, make_scorer
from tokencritic.sampling.settings import Evaluations, SamplingSettings
from tokencritic.sampling.starts import refine, sample
from tokencritic.schedules import SCHEDULES, GuidanceSchedule

SIZES = TransformerConfig(num_tokens=16, codebook_size=12, num_classes=3, null_class=True, width=16, layers=1, heads=2)
WINDOWS = [(1.0, 0.0), (1.0, 0.6), (0.6, 0.0), (0.9, 0.2), (0.5, 0.45), (0.1, 0.0), (1.0, 0.97)]


def test_settings_plans_and_the_table_of_samplers_need_no_torch():
    code = (
        "import sys\n"
        "from tokencritic.sampling.model_settings import SAMPLERS, ModelSettings, SamplingSettings\n"
        "model = ModelSettings(SamplingSettings(), 256, True)\n"
        "model.at_nfe('confidence', model.defaults.nfe(256))\n"
        "assert not {'torch', 'numpy'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Counted:
    """Networks that count the rows which go through them."""

    def __init__(self):
        torch.manual_seed(0)
        self.generator = Generator(SIZES).eval()
        self.critic = self.generator.start_critic().eval()
        sizes = {"num_tokens": 16, "codebook_size": 12, "num_classes": 3, "num_features": 1, "feature_width": 16}
        own = {"generator": self.generator.identity(), "width": 8, "layers": 1, "heads": 1, "mlp_width": 8}
        self.inline_critic = InlineCritic(InlineCriticConfig(**sizes, **own)).eval()
        # The last block is where every evaluation goes through: guidance doubles its rows.
        for name in ("generator", "critic"):
            self.count(name, vars(self)[name].trunk.blocks[-1])
        self.count("inline_critic", self.inline_critic.blocks[-1])
        self.classifier = as_classifier(self.classify)

    def count(self, name, module):
        module.register_forward_hook(lambda _, args, __: self.rows.update({name: len(args[0])}))

    def classify(self, images):
        self.rows.update(classifier=len(images))
        return torch.zeros(len(images), 3)

    def evaluations(self, chosen, refine_ratio=None):
        """How many rows go through each network for one image."""
        self.rows = Counter(dict.fromkeys(Evaluations._fields, 0))
        labels, tokens = torch.tensor([1]), torch.zeros(1, 16, dtype=torch.int64)
        generator = guided(self.generator, chosen.guidance_over_steps(), SCHEDULES[chosen.schedule])
        parts = generator, make_scorer(chosen, Judges(self.critic, self.inline_critic))
        loop = {"steps": chosen.steps, "temperature": chosen.temperature, "schedule": chosen.schedule}

        def make(_, numbers):
            if refine_ratio is None:
                return sample(*parts, labels, numbers, **loop)
            return refine(*parts, tokens, labels, numbers, ratio=refine_ratio, **loop)

        ranker = choose_ranker(chosen, self.critic, self.classifier, torch.clone)
        rank = None if ranker is None else (lambda some, rows: ranker(some, labels[rows]))
        list(best_of(make, rank, 1, chosen.candidates, batch_size=1))
        return Evaluations(**self.rows)


COUNTED = Counted()
every_setting = st.builds(
    SamplingSettings,
    sampler=st.sampled_from([None, *SAMPLERS]),
    steps=st.integers(1, 40),
    critic_window=st.sampled_from(WINDOWS),
    guidance=st.sampled_from([1.0, 2.0, 0.5]),
    guidance_schedule=st.sampled_from(get_args(GuidanceSchedule)),
    schedule=st.sampled_from([*SCHEDULES]),
    remask_quota=st.sampled_from([0.0, 0.5]),
    candidates=st.sampled_from([1, 1, 2, 3]),
    reject_by=st.sampled_from(["classifier", "critic"]),
    noise_kind=st.sampled_from(["uniform", "gumbel"]),
)


@settings(deadline=None, max_examples=60)
@given(every_setting)
def test_evaluations_are_what_goes_through_the_networks_for_one_image(chosen):
    assert COUNTED.evaluations(chosen) == chosen.evaluations(16)


@settings(deadline=None, max_examples=40)
@given(every_setting, st.sampled_from([0.05, 0.3, 0.6, 1.0]))
def test_evaluations_of_a_refinement_are_what_goes_through_the_networks(chosen, ratio):
    if not chosen.row(True).refines:
        chosen = dataclasses.replace(chosen, sampler="critic")
    chosen = dataclasses.replace(chosen, critic_window=(1.0, chosen.critic_window[1]))  # it starts with the critic
    assert COUNTED.evaluations(chosen, ratio) == chosen.evaluations(16, refine_ratio=ratio)


def test_nfe_by_hand():
    # 256 tokens, 18 steps: the first hides all again; 17 generator evaluations, 16 of the critic, none after the last step.
    assert SamplingSettings(steps=18).nfe(256) == 33
    assert SamplingSettings(steps=18).nfe(256, has_critic=False) == 17
    assert SamplingSettings("confidence", steps=18).nfe(256) == 17
    assert SamplingSettings("confidence", steps=18, guidance=3.0).nfe(256) == 34
    assert SamplingSettings(steps=18, candidates=10).nfe(256) == 10 * 33 + 10
    # Random re-masking needs no network.
    assert SamplingSettings("random-remask", steps=18).nfe(256) == 17
    # The inline critic is part of the generator's evaluations.
    assert SamplingSettings("inline", steps=18).nfe(256) == 17
    # 9 steps from 60 %: the critic scores first, and after all but the last of 9 generator evaluations.
    assert SamplingSettings(steps=9).nfe(256, refine_ratio=0.6) == 1 + 9 + 8


def test_a_critic_window_without_a_step_is_refused():
    for sampler in (None, "critic", "random-remask"):
        closed = SamplingSettings(sampler, steps=8, critic_window=(0.2, 0.15))  # times are eighths
        with pytest.raises(
            InputError, match=r"critic_window is 0\.2 0\.15; it contains none of 8 steps of 256 tokens at which"
        ):
            closed.check_critic_window(256)
        dataclasses.replace(closed, steps=1).check_critic_window(256)  # nothing to choose in any window
        dataclasses.replace(closed, critic_window=(0.25, 0.15)).check_critic_window(256)
    # The last step hides nothing, so a window that contains no other is as good as none.
    with pytest.raises(InputError, match="contains none"):
        SamplingSettings(steps=8, critic_window=(0.125, 0.0)).check_critic_window(256)
    # So does one whose steps hide all tokens again.
    with pytest.raises(InputError, match="contains none"):
        SamplingSettings(steps=18, critic_window=(1.0, 0.97)).check_critic_window(256)
    for sampler in ("confidence", "random-order", "halton"):
        SamplingSettings(sampler, steps=8, critic_window=(0.2, 0.15)).check_critic_window(256)
    SamplingSettings(steps=8, critic_window=(0.2, 0.15)).check_critic_window(256, has_critic=False)


@given(st.integers(2, 60), st.sampled_from([(1.0, 0.97), (0.01, 0.0), (0.5, 0.45), (0.3, 0.1)]), st.integers(2, 300))
def test_an_opened_window_contains_a_step_wherever_there_is_one(steps, window, num_tokens):
    chosen = SamplingSettings("critic", steps, critic_window=window)
    opened = chosen.with_open_window(num_tokens)
    assert opened.critic_window[0] >= window[0]
    assert opened.critic_window[1] <= window[1]
    always = dataclasses.replace(chosen, critic_window=(1.0, 0.0))
    confidence = dataclasses.replace(chosen, sampler="confidence").nfe(num_tokens)
    if always.nfe(num_tokens) > confidence:
        opened.check_critic_window(num_tokens)
    if chosen.nfe(num_tokens) > confidence and window[0] >= 2 / steps:
        assert opened == chosen


@pytest.mark.parametrize("steps", [2, 3, 5, 18])
def test_a_window_that_opens_late_is_opened_for_the_last_choice(steps):
    late = SamplingSettings("critic", steps, critic_window=(0.01, 0.0)).with_open_window(196)
    assert late.nfe(196) == SamplingSettings("confidence", steps).nfe(196) + 1
    assert make_scorer(late.with_random_remasking(), Judges()).revokes(Step(time=2 / steps))


def test_settings_in_effect_leave_nothing_open_and_omit_what_the_sampler_has_not():
    critic = SamplingSettings(temperature=0.9).in_effect(has_critic=True)
    assert critic == {
        "sampler": "critic",
        "steps": 18,
        "temperature": [0.9, 0.9],
        "selection_noise": 0.2,
        "noise_kind": "uniform",
        "critic_window": [1.0, 0.0],
        "early_noise": 12.0,
        "remask_quota": None,
        "remask_noise": None,
        "schedule": "paper",
        "halton_roll": None,
        "guidance": 1.0,
        "guidance_schedule": None,
        "guidance_power": None,
        "candidates": 1,
        "reject_by": None,
    }
    confidence = SamplingSettings(candidates=2).in_effect(has_critic=False)
    assert confidence["sampler"] == "confidence"
    assert confidence["selection_noise"] == 4.5
    assert confidence["reject_by"] == "classifier"
    assert all(confidence[name] is None for name in ("noise_kind", "critic_window", "early_noise"))
    remask = SamplingSettings("random-remask", critic_window=(0.5, 0.1)).in_effect(has_critic=True)
    assert (remask["selection_noise"], remask["noise_kind"], remask["critic_window"]) == (None, None, [0.5, 0.1])
    for sampler in ("random-order", "halton"):
        values = SamplingSettings(sampler, selection_noise=3.0).in_effect(has_critic=True)
        assert values["selection_noise"] is None
    for sampler in SAMPLERS:
        values = SamplingSettings(sampler).in_effect(has_critic=True)
        assert json.loads(json.dumps(values)) == values
        assert values.keys() == {field.name for field in dataclasses.fields(SamplingSettings)}


def test_scores_are_probabilities_with_the_papers_noise_and_no_window():
    assert SamplingSettings().probabilities
    assert not SamplingSettings(noise_kind="gumbel").probabilities
    assert not SamplingSettings(critic_window=(0.6, 0.0)).probabilities


def test_settings_come_back_from_json():
    chosen = SamplingSettings("critic", 7, (1.1, 0.8), 3.0, "gumbel", (0.6, 0.1))
    assert SamplingSettings(**json.loads(json.dumps(dataclasses.asdict(chosen)))) == chosen


DEFAULTS = SamplingSettings("critic", 11, (1.1, 0.8), 3.0, "gumbel", (0.6, 0.0), candidates=2, reject_by="critic")
MODEL = ModelSettings(DEFAULTS, num_tokens=196, has_critic=True)


def test_changes_join_the_defaults_of_a_model():
    assert MODEL.changed() == DEFAULTS
    assert MODEL.changed(steps=5) == dataclasses.replace(DEFAULTS, steps=5)
    # Another sampler keeps how many steps and candidates, and nothing that was made for the default one.
    assert MODEL.changed(sampler="confidence", temperature=0.7) == SamplingSettings(
        "confidence", 11, 0.7, candidates=2, reject_by="critic"
    )
    # The control keeps all but the noise, which it does not have.
    control = dataclasses.replace(DEFAULTS, sampler="random-remask", selection_noise=None, noise_kind="uniform")
    assert MODEL.changed(sampler="random-remask") == control
    assert MODEL.changed(sampler="random-remask", steps=4).steps == 4
    with pytest.raises(InputError, match="unknown setting 'stepz'; choose from candidates, critic_window"):
        MODEL.changed(stepz=3)


def test_fitted_settings_are_the_fewest_steps_that_come_nearest_from_below():
    for sampler in SAMPLERS:
        base = SamplingSettings(sampler, critic_window=(0.6, 0.0))
        for nfe in (3, 9, 20, 27):
            fitted = MODEL.fitted(base, nfe)
            others = [dataclasses.replace(base, steps=steps) for steps in range(1, 80)]
            if base.row(True).revokes:
                others = [other.with_open_window(196) for other in others]
                fitted.check_critic_window(196)
            possible = {other.steps: other.nfe(196) for other in others if other.nfe(196) <= nfe}
            assert fitted.nfe(196) == max(possible.values())
            assert fitted.steps == min(steps for steps, needed in possible.items() if needed == fitted.nfe(196))
    with pytest.raises(InputError, match="nfe is 1; expected at least 2, which one step"):
        MODEL.fitted(SamplingSettings("confidence", guidance=2.0), 1)


@pytest.fixture
def tuned_model(tmp_path):
    """A model whose folder holds what tuning found at 9 and 27 NFE for confidence, and at 27 for the control."""

    def write(sampler, nfe, **best):
        best = dataclasses.asdict(SamplingSettings(sampler, **best))
        tuning_file(tmp_path, sampler, nfe).write_text(json.dumps({"best": best, "models": {"generator": "abc"}}))

    write("confidence", 9, steps=9, temperature=0.5)
    write("confidence", 27, steps=27, temperature=0.7)
    write("random-remask", 27, steps=27, critic_window=(0.3, 0.1))
    (tmp_path / "tuning-confidence-old.json").write_text("{}")  # not a number of evaluations
    return dataclasses.replace(MODEL, folder=tmp_path)


def test_what_tuning_found_is_taken_at_the_nearest_nfe(tuned_model):
    for nfe, nearest in ((1, 9), (9, 9), (18, 9), (19, 27), (27, 27), (100, 27)):
        assert tuned_model.tuned("confidence", nfe).nfe == nearest
    found = tuned_model.tuned("confidence", 27)
    assert found.settings == SamplingSettings("confidence", 27, 0.7)
    assert found.models == {"generator": "abc"}
    assert tuned_model.tuned("halton", 27) is None
    assert MODEL.tuned("confidence", 27) is None  # it has no folder


def test_rejection_keeps_the_settings_of_the_images_that_it_chooses_from(tuned_model):
    for steps, temperature in ((9, 0.5), (27, 0.7)):
        plain = tuned_model.changed(sampler="confidence", steps=steps, candidates=1)
        chosen = tuned_model.changed(sampler="confidence", steps=steps, candidates=5, reject_by="classifier")
        assert plain.temperature == temperature
        assert dataclasses.replace(chosen, candidates=1, reject_by=plain.reject_by) == plain
    # The default sampler has 5 candidates here: another sampler's tuning is looked up at the NFE of one.
    often = dataclasses.replace(tuned_model, defaults=dataclasses.replace(DEFAULTS, candidates=5))
    assert often.changed(sampler="confidence").temperature == 0.5


def test_a_damaged_tuning_is_named(tuned_model):
    file = tuning_file(tuned_model.folder, "confidence", 27)
    for content in ({"best": {"stepz": 1}, "models": {}}, {"best": {"steps": 0}, "models": {}}, {"models": {}}):
        file.write_text(json.dumps(content))
        with pytest.raises(InputError, match=r"tuning-confidence-27\.json is not a tuning file"):
            tuned_model.tuned("confidence", 27)


def test_a_sampler_has_its_defaults_or_what_tuning_found_at_their_nfe(tuned_model):
    own = dataclasses.replace(DEFAULTS, candidates=1)
    assert tuned_model.for_sampler("critic") == own
    nfe = own.nfe(196)
    assert nfe == 11 + 6 - 1
    confidence = tuned_model.for_sampler("confidence")
    assert confidence.temperature == 0.5  # of 9, the nearest
    assert (confidence.nfe(196), confidence.candidates) == (nfe, 1)
    control = tuned_model.for_sampler("random-remask")
    assert control.critic_window[0] == 0.3
    assert control.nfe(196) == nfe
    # A budget of cost is rounded up: a baseline of whole evaluations would lose the rest.
    cost = tuned_model.for_sampler("confidence", lambda one: one.nfe(tuned_model.num_tokens) - 0.2 * (one == own))
    assert cost == confidence
    halton = tuned_model.for_sampler("halton")  # never tuned
    assert halton == tuned_model.fitted(SamplingSettings("halton", reject_by="critic"), nfe)
    untuned = MODEL.for_sampler("random-remask")  # the control keeps the critic's settings
    assert (untuned.temperature, untuned.critic_window) == ((1.1, 0.8), (0.6, 0.0))
    without = ModelSettings(SamplingSettings(steps=11), 196, has_critic=False)
    assert without.for_sampler("confidence") == SamplingSettings("confidence", 11)


def test_refinement_can_be_judged_by_few():
    assert MODEL.for_refinement(candidates=1) == dataclasses.replace(
        DEFAULTS, steps=9, critic_window=(1.0, 0.0), candidates=1
    )
    with pytest.raises(InputError, match="sampler is confidence, which cannot score given tokens; refine with"):
        MODEL.for_refinement(sampler="confidence")
    without = dataclasses.replace(MODEL, defaults=SamplingSettings(), has_critic=False)
    with pytest.raises(InputError, match="the model has no critic for refinement"):
        without.for_refinement()
    assert without.for_refinement(sampler="halton").steps == 9


def test_the_plan_of_settings_has_one_step_in_the_window_for_each_choice():
    chosen = SamplingSettings(steps=12, critic_window=(0.75, 0.25))
    inside = [step.index for step in Plan.make([196], 12).steps if in_window(chosen.critic_window, step)]
    assert inside == [4, 5, 6, 7, 8, 9]  # t/T from 9/12 to 4/12


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"sampler": "best"},
            "sampler is 'best'; choose one of critic, inline, random-remask, confidence, random-order, halton",
        ),
        ({"noise_kind": "normal"}, "noise_kind is 'normal'; choose one of uniform, gumbel"),
        ({"reject_by": "taste"}, "reject_by is 'taste'; choose one of classifier, critic"),
        ({"steps": 0}, "steps is 0; it must be an integer, at least 1"),
        ({"steps": 2.5}, "steps is 2.5"),
        ({"candidates": 0}, "candidates is 0"),
        ({"guidance": float("inf")}, "guidance is inf"),
        ({"selection_noise": -1}, "selection_noise is -1; it must be a number of 0 or more"),
        ({"early_noise": float("nan")}, "early_noise is nan"),
        ({"temperature": (1, 2, 3)}, "temperature is .*; give one number, or a pair"),
        ({"temperature": (1, -1)}, r"temperature is \(1, -1\); it must be 0"),
    ],
)
def test_bad_settings_are_named(change, message):
    with pytest.raises(InputError, match=message):
        SamplingSettings(**change)


def test_a_default_window_is_widened_for_few_steps_and_a_given_one_is_not():
    model = ModelSettings(SamplingSettings(sampler="critic", steps=19, critic_window=(0.2, 0.0)), 196, has_critic=True)
    few = model.changed(steps=3)
    assert few.critic_window == (2 / 3, 0.0)
    few.check_critic_window(196)
    assert model.changed(steps=12).critic_window == (0.2, 0.0)
    given = model.changed(steps=3, critic_window=(0.2, 0.0))
    with pytest.raises(InputError, match=r"critic_window is 0\.2 0; it contains none of 3 steps"):
        given.check_critic_window(196)


@pytest.mark.parametrize("window", [0.5, None, (1.0,), ("a", "b"), (0.2, 0.8), (1.2, 0.0)])
def test_a_critic_window_is_a_start_and_an_end(window):
    model = ModelSettings(SamplingSettings(sampler="critic"), 196, has_critic=True)
    for resolve in (lambda **change: SamplingSettings(**change), model.changed, model.for_refinement):
        with pytest.raises(InputError, match=r"critic_window is .*; it must be a start and an end"):
            resolve(critic_window=window)
