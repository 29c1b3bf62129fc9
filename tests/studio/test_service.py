"""The service without a page: what it takes, what it refuses, and that its results are the pipeline's."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from PIL import Image
from studio.toy import SIZES, done, noise_picture, png_bytes, toy_pipe

from tokencritic import Generator
from tokencritic.errors import InputError
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.studio import controls
from tokencritic.studio.controls import offline_fid
from tokencritic.studio.limits import Limits
from tokencritic.studio.requests import Requests
from tokencritic.studio.service import Service
from tokencritic.studio.views import image_set, steps_sheet
from tokencritic.studio.visits import Visits
from tokencritic.studio.work import png
from tokencritic.tokenizers.compact import CompactConfig, CompactTokenizer


def test_images_are_those_of_the_pipeline_and_every_step_is_counted(pipe, service):
    seen = []
    work = service.requests.generate({"classes": ["owl", "cat"], "num": 5, "seed": 7, "temperature": [1.2, 0.5]})
    work.carry_out(pipe, lambda done, total, tokens: seen.append((done, total, tokens is None)))
    result = done(service.submit("me", work))
    expected = pipe([2, 0, 2, 0, 2], seed=7, temperature=(1.2, 0.5))
    assert [np.asarray(image).tolist() for image in result.sets[0].images] == [
        np.asarray(image).tolist() for image in expected
    ]
    assert result.sets[0].labels == (2, 0, 2, 0, 2)
    assert seen[-1] == (4, 4, False)
    assert [step for step, _, _ in seen] == sorted({step for step, _, _ in seen})
    assert 0 < result.sets[0].mean_score < 1
    assert result.sets[0].nfe == pipe.nfe(pipe.defaults)


def test_rejection_counts_all_its_draws_and_has_no_trace(pipe, service):
    seen = []
    work = service.requests.generate({"num": 6, "candidates": 16, "steps": 2})
    work.carry_out(pipe, lambda done, total, tokens: seen.append((done, total)))
    # 64 candidates fit into a batch: 4 images, then 2, of 2 steps each; a batch counts by its share of the images.
    assert seen == [(pytest.approx(done, abs=1e-5), 2) for done in (2 / 3, 4 / 3, 5 / 3, 2)]
    run = service.submit("me", work)
    result = done(run)
    assert result.sets[0].trace is None
    assert image_set(service, run, 0)["trace"] is None
    expected = pipe([0, 1, 2, 0, 1, 2], candidates=16, num_inference_steps=2)
    assert [png(image) for image in result.sets[0].images] == [png(image) for image in expected]


def test_refining_and_editing_are_the_pipelines(pipe, service):
    picture = service.read_upload(png_bytes(noise_picture(30, 20, 3)))
    assert (picture.size, picture.mode) == ((10, 10), pipe_mode(pipe))
    result = done(service.submit("me", service.requests.refine(picture, {"class": 1, "ratio": 0.5, "seed": 3})))
    assert png(result.sets[0].images[0]) == png(pipe.refine(picture, 1, ratio=0.5, seed=3)[0])
    assert torch.equal(result.before.tokens, pipe.encode(picture))
    result = done(service.submit("me", service.requests.refine(picture, {})))
    assert result.sets[0].labels == tuple(pipe.classify(pipe.encode(picture)).tolist())

    region = torch.zeros(16, dtype=torch.bool)
    region[[1, 2, 5]] = True
    work = service.requests.edit(picture, {"class": "owl", "region": [5, 1, 2], "seed": 9, "steps": 3})
    result = done(service.submit("me", work))
    expected = pipe.edit(picture, region, "owl", num_inference_steps=3, seed=9)
    assert png(result.sets[0].images[0]) == png(expected[0])
    assert torch.equal(result.region, region)
    assert torch.equal(result.sets[0].tokens[0, ~region], result.before.tokens[0, ~region])


def pipe_mode(pipe):
    return "L" if pipe.tokenizer.channels == 1 else "RGB"


def moved(service, picture, move, region=()):
    """What an edit makes of a picture that it moves: the tokens before, and which of them it resamples, as rows."""
    values = {"class": 0, "move": list(move), "region": list(region)}
    result = done(service.submit("me", service.requests.edit(picture, values)))
    return result.before.tokens, result.region.view(4, 4).tolist()


def test_moving_a_picture_draws_anew_what_was_not_there(pipe, service):
    picture = noise_picture()
    pixels = np.asarray(picture)
    # A token is 3 pixels wide. The first one shows 2 pixels beside its margin, the second the last that was not there.
    expected = Image.fromarray(np.concatenate([pixels[:, :1].repeat(3, 1), pixels[:, :-3]], axis=1))
    tokens, resampled = moved(service, picture, (1, 0))
    assert torch.equal(tokens, pipe.encode(expected))
    assert resampled == [[True, True, False, False]] * 4
    assert moved(service, picture, (0, -1))[1] == [[False] * 4] * 2 + [[True] * 4] * 2
    tokens, resampled = moved(service, picture, (0, 0), [3])
    assert torch.equal(tokens, pipe.encode(picture))
    assert resampled == [[False, False, False, True]] + [[False] * 4] * 3
    assert moved(service, picture, (1, 0), [3])[1][0] == [True, True, False, True]


def test_the_classifier_is_asked_about_the_picture_before_it_is_moved(pipe, service):
    for seed in range(4):  # of which at least one is taken for something else once it is moved
        picture = noise_picture(seed=seed)
        result = done(service.submit("me", service.requests.edit(picture, {"move": [3, 2]})))
        assert result.before.labels == tuple(pipe.classify(pipe.encode(picture)).tolist())


def test_a_token_is_as_wide_as_the_margin_leaves_it():
    wide = CompactTokenizer(CompactConfig(image_size=28, factor=8, margin=2, width=16, codebook_size=12)).eval()
    pipe, picture = (
        TokenCriticPipeline(wide, Generator(dataclasses.replace(SIZES, num_tokens=16))),
        noise_picture(28, 28),
    )
    service, pixels = Service(pipe, "MODEL"), np.asarray(picture)
    try:
        tokens, resampled = moved(service, picture, (1, 0))
    finally:
        service.close()
    expected = Image.fromarray(np.concatenate([pixels[:, :1].repeat(8, 1), pixels[:, :-8]], axis=1))
    assert torch.equal(tokens, pipe.encode(expected))
    assert resampled[0] == [True, True, False, False]


def test_compare_makes_the_same_seeds_at_one_cost(pipe, service):
    run = service.submit("me", service.requests.compare({"num": 2, "seed": 5, "samplers": ["confidence", "critic"]}))
    result = done(run)
    cost = service.requests.compare_cost
    assert run.work.kind == "compare"
    for made, sampler in zip(result.sets, ("confidence", "critic"), strict=True):
        assert made.settings.sampler == sampler
        assert cost - 1 < made.cost <= cost
        changes = {"sampler": sampler, "num_inference_steps": made.settings.steps}
        assert [png(image) for image in made.images] == [png(image) for image in pipe([0, 1], seed=5, **changes)]
    tight = Requests(pipe, Limits(steps=cost - 1))  # the model's own cost exceeds the limit
    assert tight.compare_cost == cost - 1
    assert len(tight.compare({"samplers": ["confidence", "critic"]}).variants) == 2
    dearer = service.requests.compare({"samplers": ["confidence", "critic"], "cost": 12})
    assert [10 < pipe.cost(settings) <= 12 for settings in dearer.variants] == [True, True]  # a critic step costs 2
    for values, message in (
        ({"samplers": ["confidence"]}, "samplers has 1 entries; expected two"),
        ({"samplers": ["confidence", "best"]}, "sampler is 'best'; choose one of"),
        ({"samplers": ["confidence", "critic"], "cost": 0}, "cost is 0; expected a number from 1"),
        ({"samplers": ["confidence", "critic"], "steps": 3}, "'steps' is not known"),
    ):
        with pytest.raises(InputError, match=message):
            service.requests.compare(values)


def test_the_steps_of_an_image_show_what_its_trace_says(pipe, service):
    run = service.submit("me", service.requests.generate({"num": 2}))
    made = done(run).sets[0]
    told, picture = image_set(service, run, 0)["trace"], np.asarray(steps_sheet(pipe, made, 1))
    steps = made.trace.steps
    assert told["counts"][1] == [[s.index, int(s.hidden[1].sum()), int(s.remasked[1].sum())] for s in steps]
    assert told["rows"] == ["Current guess", "What the critic trusts", "Resampled next", "Changed its mind"]
    side = picture.shape[0] // 4
    assert picture.shape == (4 * side, len(steps) * side, 3)
    guess, _, hidden, changed = (picture[row * side : (row + 1) * side] for row in range(4))
    last = guess[:, -side:][:: side // 12, :: side // 12]  # 10 pixels and a margin of 1 on each side
    assert np.array_equal(last[1:-1, 1:-1], np.asarray(made.images[1].convert("RGB")))
    assert np.array_equal(hidden[:, -side:], guess[:, -side:])  # nothing is hidden at last
    assert not np.array_equal(hidden[:, :side], guess[:, :side])
    for place, step in enumerate(steps):
        here = slice(place * side, (place + 1) * side)
        assert np.array_equal(changed[:, here], guess[:, here]) == (not step.remasked[1].any())


def test_every_image_of_a_full_run_has_its_steps(service):
    run = service.submit("me", service.requests.generate({"num": 64}))
    done(run)
    assert len(image_set(service, run, 0)["trace"]["counts"]) == 64


def test_the_steps_of_a_run_are_bounded_in_memory(pipe):
    service = Service(pipe, "MODEL", Limits(trace_bytes=5 * 4 * 16 * 14))
    try:
        run = service.submit("me", service.requests.generate({"num": 8}))
        done(run)
        assert len(image_set(service, run, 0)["trace"]["counts"]) == 5
    finally:
        service.close()


def test_an_offline_fid_belongs_to_the_model_and_to_all_settings(tmp_path):
    toy_pipe().save_pretrained(tmp_path)
    pipe = TokenCriticPipeline.from_pretrained(tmp_path)
    service = Service(pipe, "MODEL")
    settings = pipe.settings(sampler="confidence", steps=4)
    marks = {name: pipe.parts[name].identity() for name in ("generator", "tokenizer")}
    trial = {"settings": settings.in_effect(True), "fid": {"250": 0.5, "2000": 0.25}}
    file = tmp_path / "tuning-confidence-4.json"
    try:
        file.write_text(json.dumps({"models": marks, "trials": [trial]}))
        assert offline_fid(service, settings) == {250: 0.5, 2000: 0.25}
        assert offline_fid(service, dataclasses.replace(settings, selection_noise=4.6)) == {}
        assert offline_fid(service, dataclasses.replace(settings, steps=5)) == {}
        file.write_text(json.dumps({"models": marks | {"generator": "of another"}, "trials": [trial]}))
        assert offline_fid(service, settings) == {}
    finally:
        service.close()


def test_the_bundled_model_has_an_offline_fid_on_both_sides_of_compare():
    pipe = TokenCriticPipeline.from_pretrained("fashion-mnist")
    service = Service(pipe, "fashion-mnist")
    try:
        work = service.requests.compare({"samplers": controls.about(service)["compared"]})
        found = [offline_fid(service, settings)[2000] for settings in work.variants]
        assert found[1] < found[0]
        assert abs(pipe.cost(work.variants[0]) - pipe.cost(work.variants[1])) < 0.5
    finally:
        service.close()


def test_classes_of_the_same_name_are_told_apart_by_their_numbers(pipe):
    twice = TokenCriticPipeline(pipe.tokenizer, pipe.generator, class_names=("crane", "owl", "crane"))
    assert twice.names([2, 1, 0]) == ["crane (2)", "owl", "crane (0)"]


BAD = {
    "classes holds 'bird'": {"classes": ["bird"]},
    "classes holds 3; expected 0 to 2": {"classes": [3]},
    "classes holds None": {"classes": [None]},
    "classes is [0, 1, 2, 0]; expected a list of at most 3": {"classes": [0, 1, 2, 0]},
    "classes is 'owl'; expected a list": {"classes": "owl"},
    "num is 10000; expected a whole number from 1 to 64": {"num": 10000},
    "num is 0;": {"num": 0},
    "num is True;": {"num": True},
    "num is 2.5;": {"num": 2.5},
    "num is 'many';": {"num": "many"},
    "steps is -3; expected a whole number from 1 to 128": {"steps": -3},
    "steps is 1000;": {"steps": 1000},
    f"seed is {2**80}; expected a whole number from 0 to": {"seed": 2**80},
    "seed is -1;": {"seed": -1},
    f"seed is {2**63 - 1}; expected": {"seed": 2**63 - 1, "num": 2},
    "seed is nan;": {"seed": float("nan")},
    "temperature is -1; expected a number from 0 to 100": {"temperature": -1},
    "temperature is nan;": {"temperature": [1, float("nan")]},
    "temperature is [1, 2, 3]; expected a number from 0 to 100": {"temperature": [1, 2, 3]},
    "selection_noise is 'much';": {"selection_noise": "much"},
    "selection_noise is 1000": {"selection_noise": 10**400},
    "critic_window is (1.0, 1.0); it must be a start and an end": {"critic_window": [1, 1]},
    "critic_window is 2; expected a number from 0 to 1": {"critic_window": [2, 0]},
    "critic_window is 'late'; expected a number from 0 to 1": {"critic_window": "late"},
    "critic_window is 0.5; it must be a start and an end": {"critic_window": 0.5},
    "it contains none of 4 steps": {"critic_window": [0.1, 0]},
    "early_noise is -1; expected a number from 0 to 1000": {"early_noise": -1},
    "remask_quota is 2; expected a number from 0 to 1": {"remask_quota": 2},
    "remask_noise is -1; expected a number from 0 to 1000": {"remask_noise": -1},
    "temperature is None; expected a number from 0 to 100": {"temperature": [None, 1]},
    "guidance is 2.0; expected 1 for a generator without null_class": {"guidance": 2},
    "sampler is 'best'; choose one of": {"sampler": "best"},
    "sampler is ['critic']; expected a word": {"sampler": ["critic"]},
    "'passes' is not known": {"passes": 2},
    "schedule is 'linear'; choose one of paper": {"schedule": "linear"},
    "halton_roll is 'yes'; expected true or false": {"sampler": "halton", "halton_roll": "yes"},
    "guidance_power is 0; expected a number from 0.01 to 100": {"guidance_power": 0},
    "'passes_per_level' is not known": {"passes_per_level": 10**9},
    "candidates is 17; expected a whole number from 1 to 16": {"candidates": 17},
    "network evaluations; at most 50000": {"num": 64, "candidates": 16, "steps": 128},
    "'path' is not known; choose from classes, num": {"path": "/etc/passwd"},
}


@pytest.mark.parametrize("message", BAD)
def test_what_is_wrong_is_said_in_one_line(service, message):
    with pytest.raises(InputError) as error:
        service.requests.generate(BAD[message])
    assert message in str(error.value)
    assert "\n" not in str(error.value)


BAD_EDITS = {
    "region is empty": {},
    "region is 16; expected a whole number from 0 to 15": {"region": [16]},
    "region is {}; expected": {"region": [{}]},
    "region is 'all'; expected a list of at most 16": {"region": "all"},
    "expected a list of at most 16": {"region": [0] * 17},
    "move has 1 entries": {"move": [1]},
    "move is 4; expected a whole number from -3 to 3": {"move": [4, 0]},
    "candidates is 2; an edit is made without": {"region": [0], "candidates": 2},
}


@pytest.mark.parametrize("message", BAD_EDITS)
def test_edits_that_cannot_be(service, message):
    with pytest.raises(InputError) as error:
        service.requests.edit(noise_picture(), BAD_EDITS[message])
    assert message in str(error.value)


def test_models_without_critic_or_classifier_say_so():
    service = Service(toy_pipe(critic=False, classifier=False), "MODEL")
    try:
        for make, message in (
            (lambda: service.requests.refine(noise_picture(), {"class": 0}), "the model has no critic"),
            (lambda: service.requests.edit(noise_picture(), {"region": [0]}), "the model has no classifier"),
            (lambda: service.requests.generate({"sampler": "critic"}), "sampler is critic but"),
            (lambda: service.requests.generate({"candidates": 2}), "reject_by is classifier"),
        ):
            with pytest.raises(InputError, match=message):
                make()
        part = done(service.submit("me", service.requests.generate({"num": 1}))).sets[0]
        assert part.mean_score is None
    finally:
        service.close()


def test_the_inline_critics_settings_reach_its_sampler(service):
    pipe = toy_pipe(inline_critic=True)
    inline, values = Service(pipe, "MODEL"), {"sampler": "inline", "remask_quota": 0.8, "remask_noise": 0.1}
    try:
        part = done(inline.submit("me", inline.requests.generate({"num": 2, "seed": 3} | values))).sets[0]
    finally:
        inline.close()
    assert [png(image) for image in part.images] == [png(image) for image in pipe([0, 1], seed=3, **values)]
    with pytest.raises(InputError, match="sampler is inline but the model has no inline critic"):
        service.requests.generate(values)


def test_settings_in_a_result_can_be_written_as_json(service):
    part = done(service.submit("me", service.requests.generate({"num": 1, "temperature": [1, 0.5]}))).sets[0]
    assert json.loads(json.dumps(dataclasses.asdict(part.settings)))["sampler"] == "critic"


def test_a_model_whose_own_settings_exceed_the_limits_still_has_a_page(pipe):
    service = Service(pipe, "MODEL", Limits(steps=pipe.defaults.steps - 1))
    try:
        assert len(Visits(service).routes()) > 10
        assert service.jobs("me") == []  # no first run for all visitors
    finally:
        service.close()
