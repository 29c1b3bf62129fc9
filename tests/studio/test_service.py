"""The service without a page: what it takes, what it refuses, and that its results are the pipeline's."""

import dataclasses
import json
import shlex
from contextlib import closing

import numpy as np
import pytest
import torch
from PIL import Image
from studio.toy import SIZES, done, noise_picture, png_bytes, toy_pipe

from tokencritic import Generator
from tokencritic.cli.main import main
from tokencritic.errors import InputError
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.studio.service import Service
from tokencritic.studio.views import finished, step_facts, steps_sheet
from tokencritic.studio.work import png
from tokencritic.tokenizers.compact import CompactConfig, CompactTokenizer
from tokencritic.tokenizers.titok import TiTok, TiTokConfig


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
    result = done(service.submit("me", work))
    assert result.sets[0].trace is None
    assert step_facts(result.sets[0], 0) == []
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


def test_two_ways_from_the_same_seeds(pipe, service):
    variants = [{"sampler": "confidence", "steps": 3}, {"sampler": "critic", "selection_noise": 0.5}]
    run = service.submit("me", service.requests.compare({"num": 2, "seed": 5}, variants))
    result = done(run)
    assert run.work.kind == "compare"
    assert (run.done, run.total) == (3 + 4, 3 + 4)
    for part, changes in zip(
        result.sets, ({"sampler": "confidence", "num_inference_steps": 3}, variants[1]), strict=True
    ):
        assert [png(image) for image in part.images] == [png(image) for image in pipe([0, 1], seed=5, **changes)]


def test_the_steps_of_an_image_show_what_its_trace_says(pipe, service):
    part = done(service.submit("me", service.requests.generate({"num": 2}))).sets[0]
    facts, picture = step_facts(part, 1), np.asarray(steps_sheet(pipe, part, 1))
    steps = part.trace.steps
    told = [f"step {step.index}: {int(step.hidden[1].sum())} of 16 tokens hidden next" for step in steps[:-1]]
    assert [text.partition(",")[0] for text in facts] == [*told, f"step {steps[-1].index}: nothing hidden any more"]
    side = picture.shape[0] // 3
    assert picture.shape == (3 * side, len(steps) * side, 3)
    last = picture[:side, -side:][:: side // 12, :: side // 12]  # 10 pixels and a margin of 1 on each side
    expected = np.asarray(part.images[1].convert("RGB"))
    assert np.array_equal(last[1:-1, 1:-1], expected)
    assert np.array_equal(picture[2 * side :, -side:], picture[:side, -side:])  # nothing is hidden at last
    assert not np.array_equal(picture[2 * side :, :side], picture[:side, :side])


COMMANDS = [
    {"num": 3, "seed": 4, "classes": ["big dog", "cat"], "sampler": "confidence", "steps": 3, "selection_noise": 2.5},
    {"num": 5, "seed": 2**40, "temperature": [1.1, 0.30000000000000004]},
    {"num": 2, "candidates": 3, "reject_by": "critic", "steps": 2},
]


@pytest.mark.parametrize("values", COMMANDS)
def test_the_command_line_makes_the_same_pixels(pipe, service, values, tmp_path, capsys):
    pipe.save_pretrained(tmp_path / "a model")
    work = service.requests.generate(values)
    result = done(service.submit("me", work))
    words = shlex.split(work.command(pipe, str(tmp_path / "a model"), result.sets[0]))
    assert words.pop(0) == "token-critic"
    assert main([*words, "--out", str(tmp_path / "out")]) == 0, capsys.readouterr().err
    files = sorted((tmp_path / "out").glob("*_class*.png"))
    assert len(files) == values["num"]
    for file, image in zip(files, result.sets[0].images, strict=True):
        with Image.open(file) as made:
            assert np.array_equal(np.asarray(made), np.asarray(image))


def test_the_command_line_refines_to_the_same_pixels(pipe, service, tmp_path, capsys):
    pipe.save_pretrained(tmp_path / "model")
    picture = service.read_upload(png_bytes(noise_picture(40, 30, 3)))
    (tmp_path / "picture.png").write_bytes(png(picture))
    work = service.requests.refine(picture, {"ratio": 0.7, "seed": 11, "steps": 5, "class": "big dog"})
    result = done(service.submit("me", work))
    words = shlex.split(work.command(pipe, str(tmp_path / "model"), result.sets[0]))
    words[words.index("picture.png")] = str(tmp_path / "picture.png")
    assert main([*words[1:], "--out", str(tmp_path / "out")]) == 0, capsys.readouterr().err
    assert (tmp_path / "out" / "000_picture_refined.png").read_bytes() == png(result.sets[0].images[0])


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


def test_a_model_without_classes_needs_no_class(tmp_path):
    pipe = toy_pipe()
    generator = Generator(dataclasses.replace(SIZES, num_classes=0)).eval()
    pipe = TokenCriticPipeline(pipe.tokenizer, generator, generator.start_critic().eval(), pipe.classifier)
    pipe.save_pretrained(tmp_path / "model")
    model = str(tmp_path / "model")
    with closing(Service(pipe, model)) as service:
        job = service.submit("me", service.requests.generate({"num": 3, "seed": 5, "steps": 4}))
        made = done(job).sets[0]
        assert list(made.images) == pipe(num_images_per_label=3, seed=5, num_inference_steps=4)
        assert 'title="seed 6"' in finished(service, job)
        command = shlex.split(job.work.command(pipe, model, made))[1:]
        assert "--classes" not in command
        assert main([*command, "--out", str(tmp_path / "out")]) == 0
        assert png(Image.open(tmp_path / "out/000006.png")) == png(made.images[1])
        picture = made.images[0]
        looked = service.submit("me", service.requests.look(picture, {}))
        assert done(looked).before.scores is not None
        assert "Taken as" not in finished(service, looked)
        refined = done(service.submit("me", service.requests.refine(picture, {"seed": 3}))).sets[0]
        assert list(refined.images) == pipe.refine(picture, seed=3)
        edited = done(service.submit("me", service.requests.edit(picture, {"region": [0, 1], "seed": 3})))
        assert edited.region.sum() == 2
        with pytest.raises(InputError, match=r"classes is .*; expected a list of at most 0"):
            service.requests.generate({"classes": [1]})
        with pytest.raises(InputError, match=r"classes is .*, and the model has no classes; leave it out"):
            service.requests.refine(picture, {"class": 1})


def test_tokens_without_a_grid_cannot_be_edited_and_show_their_steps_in_a_row():
    pipe, vit = toy_pipe(), {"encoder_width": 64, "encoder_layers": 1, "decoder_width": 64, "decoder_layers": 1}
    config = TiTokConfig(10, 1, 32, (1, 1), 1, codebook_size=12, code_width=4, num_tokens=16, **vit)
    pipe.tokenizer = TiTok(config).eval()
    service = Service(pipe, "MODEL")
    try:
        with pytest.raises(InputError, match="have no grid"):
            service.requests.edit(noise_picture(), {"region": [0], "class": 0})
        job = service.submit("me", service.requests.generate({"num": 2}))
        (made,) = done(job).sets
        assert len(step_facts(made, 0)) == len(made.trace.steps)
        assert steps_sheet(pipe, made, 0).height > 300
        assert "tc-viewer" in finished(service, job)
        job = service.submit("me", service.requests.refine(noise_picture(), {"class": 1}))
        assert done(job).before.tokens.shape == (1, 16)
        assert "score after" in finished(service, job)
    finally:
        service.close()
