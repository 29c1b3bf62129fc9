"""Models without classes, with one class, without a grid, with guidance: what the studio leaves out, and what it still does."""

import dataclasses
import io
import shlex
from contextlib import closing

import numpy as np
import pytest
from PIL import Image
from studio.toy import SIZES, done, gridless_pipe, noise_picture, toy_pipe, unlabelled_pipe

from tokencritic import Generator
from tokencritic.cli.main import main
from tokencritic.errors import InputError
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.studio.controls import about, first_values
from tokencritic.studio.service import Service
from tokencritic.studio.views import draw, draw_change, finished, steps_sheet
from tokencritic.studio.visits import sample_pictures
from tokencritic.studio.work import png


def size(content):
    return Image.open(io.BytesIO(content)).size


@pytest.fixture
def plain(tmp_path):
    """A service of a model without classes, in a folder."""
    unlabelled_pipe().save_pretrained(tmp_path / "model")
    model = str(tmp_path / "model")
    with closing(Service(TokenCriticPipeline.from_pretrained(model), model)) as service:
        yield service


def test_a_model_without_classes_generates(plain, tmp_path, capsys):
    pipe = plain.pipe
    job = plain.submit("me", plain.requests.generate({"num": 3, "seed": 5, "steps": 4}))
    made = done(job).sets[0]
    assert list(made.images) == pipe(num_images_per_label=3, seed=5, num_inference_steps=4)
    assert made.recognised is None
    told = finished(plain, job)["sets"][0]
    assert (told["names"], told["files"][1], told["recognised"]) == (["", "", ""], "model_seed6.png", None)
    assert size(draw(plain, job, 0, "images", 0)) == (142, 142)  # without a line for names
    assert "--classes" not in told["command"]
    assert main([*shlex.split(told["command"])[1:], "--out", str(tmp_path / "out")]) == 0
    assert png(Image.open(tmp_path / "out/000006.png")) == png(made.images[1])
    file = tmp_path / "downloaded.png"
    file.write_bytes(draw(plain, job, 0, "image", 1))
    assert main(["sample", "--like", str(file), "--out", str(tmp_path / "again")]) == 0, capsys.readouterr().err
    assert (tmp_path / "again/000006.png").read_bytes() == file.read_bytes()
    assert (tmp_path / "out/000006.png").read_bytes() == file.read_bytes()


def test_a_model_without_classes_changes_pictures(plain):
    pipe, requests, picture = plain.pipe, plain.requests, noise_picture()
    looked = plain.submit("me", requests.look(picture, {"class": None}))
    assert done(looked).before.scores is not None
    assert finished(plain, looked)["verdict"].startswith("The critic's mean score is ")
    job = plain.submit("me", requests.refine(picture, {"seed": 3, "class": None}))
    assert list(done(job).sets[0].images) == pipe.refine(picture, seed=3)
    assert "classifier" not in finished(plain, job)["verdict"]
    edited = done(plain.submit("me", requests.edit(picture, {"region": [0, 1], "seed": 3})))
    assert edited.region.sum() == 2
    compared = plain.submit("me", requests.compare({"num": 2, "samplers": ["confidence", "critic"]}))
    assert [len(made.images) for made in done(compared).sets] == [2, 2]


def test_a_model_without_classes_takes_none(plain):
    with pytest.raises(InputError, match=r"classes is .*; expected a list of at most 0"):
        plain.requests.generate({"classes": [1]})
    with pytest.raises(InputError, match=r"classes is .*, and the model has no classes; leave it out"):
        plain.requests.refine(noise_picture(), {"class": 1})


def test_the_page_of_a_model_without_classes_asks_for_none(plain):
    told = about(plain)
    assert told["classes"] == []
    assert told["tooltip"].endswith("16 tokens, no classes")
    (ranked,) = [form for form in told["forms"] if form["name"] == "reject_by"]
    assert ranked["choices"] == [["critic", "critic"]]  # there is a classifier, and nothing for it to find
    assert {one["settings"]["reject_by"] for one in told["samplers"]} == {"critic"}
    done(plain.submit("me", plain.requests.generate(first_values(plain))))


def test_a_model_with_one_class_needs_no_class():
    pipe = toy_pipe(classifier=False)
    generator = Generator(dataclasses.replace(SIZES, num_classes=1)).eval()
    pipe = TokenCriticPipeline(pipe.tokenizer, generator, generator.start_critic().eval())
    with closing(Service(pipe, "MODEL")) as service:
        job = service.submit("me", service.requests.refine(noise_picture(), {"seed": 3}))
        assert list(done(job).sets[0].images) == pipe.refine(noise_picture(), 0, seed=3)


def test_tokens_without_a_grid_cannot_be_edited_and_show_their_steps_in_a_row():
    pipe = gridless_pipe()
    with closing(Service(pipe, "MODEL")) as service:
        told = about(service)
        assert (told["grid"], told["refines"]) == (None, True)
        with pytest.raises(InputError, match="have no grid"):
            service.requests.edit(noise_picture(), {"region": [0], "class": 0})
        job = service.submit("me", service.requests.generate({"num": 2}))
        (made,) = done(job).sets
        counts = finished(service, job)["sets"][0]["trace"]["counts"]
        assert [len(image) for image in counts] == [len(made.trace.steps)] * 2
        side = 160  # pixels of a panel
        sheet = steps_sheet(pipe, made, 0)
        assert sheet.size == (side * len(made.trace.steps), 4 * side)
        rows = np.asarray(sheet)[2 * side : 3 * side]
        assert len(np.unique(rows[:, :side].reshape(-1, 3), axis=0)) > 1  # kept and hidden cells
        assert draw(service, job, 0, "gif", 0).startswith(b"GIF")
        job = service.submit("me", service.requests.refine(noise_picture(), {"class": 1}))
        assert done(job).before.tokens.shape == (1, 16)
        assert finished(service, job)["scored"]
        assert size(draw_change(service, job, "after_score")) == (2 * side, 2 * side)


def test_settings_of_guidance_schedule_and_order_reach_the_sampler():
    pipe = toy_pipe(critic=False)
    pipe = TokenCriticPipeline(pipe.tokenizer, Generator(dataclasses.replace(SIZES, null_class=True)).eval())
    values = {
        "sampler": "halton",
        "halton_roll": True,
        "schedule": "maskgit",
        "guidance": 3.0,
        "guidance_schedule": "cosine",
        "guidance_power": 2.0,
    }
    with closing(Service(pipe, "MODEL")) as service:
        told = about(service)
        (halton,) = [one["settings"] for one in told["samplers"] if one["name"] == "halton"]
        assert values.keys() - {"sampler"} <= halton.keys() & {form["name"] for form in told["forms"]}
        made = done(service.submit("me", service.requests.generate({"num": 3, "seed": 2} | values))).sets[0]
    assert list(made.images) == pipe([0, 1, 2], seed=2, **values)
    assert list(made.images) != pipe([0, 1, 2], seed=2, sampler="halton")


def test_a_page_offers_no_guidance_to_a_model_without_a_null_class(service):
    assert all(not name.startswith("guidance") for one in about(service)["samplers"] for name in one["settings"])


def test_sample_pictures_need_no_classes(tmp_path):
    pipe = unlabelled_pipe()
    pipe.folder, pictures = tmp_path, np.stack([np.asarray(noise_picture(seed=seed))[..., None] for seed in range(12)])
    np.savez(tmp_path / "reference.npz", pictures)
    found = sample_pictures(pipe)
    assert [np.asarray(image).tolist() for image in found] == pictures[:10, ..., 0].tolist()
    np.savez(tmp_path / "reference.npz", mu=np.zeros(3), sigma=np.eye(3))
    assert sample_pictures(pipe) == []
