"""Editing with a tokenizer that has several tokens for each place: whole places are painted, moved and resampled."""

import shlex

import pytest
from PIL import Image
from studio.toy import done, noise_picture, split_pipe

from tokencritic.cli.main import main
from tokencritic.errors import InputError
from tokencritic.studio.controls import about
from tokencritic.studio.service import Service
from tokencritic.studio.views import image_set, steps_sheet
from tokencritic.studio.work import png


@pytest.fixture(scope="module")
def pipe():
    return split_pipe()


@pytest.fixture
def service(pipe):
    service = Service(pipe, "MODEL")
    yield service
    service.close()


def resampled(service, **values):
    work = service.requests.edit(noise_picture(12, 12, 3), {"class": 0, **values})
    return done(service.submit("me", work)).region.nonzero().flatten().tolist()


def test_a_cell_of_the_canvas_is_a_place(service):
    told = about(service)
    assert (told["grid"], told["splits"]) == ((3, 3), 2)


def test_an_edit_resamples_whole_places(service):
    assert resampled(service, region=[4]) == [4, 5]
    assert resampled(service, region=[5, 17]) == [4, 5, 16, 17]
    with pytest.raises(InputError, match="region is 18; expected a whole number from 0 to 17"):
        resampled(service, region=[18])


def test_a_picture_is_moved_by_places(service):
    assert resampled(service, move=[1, 0]) == [0, 1, 6, 7, 12, 13]
    assert resampled(service, move=[0, -2]) == list(range(6, 18))
    with pytest.raises(InputError, match="move is 3; expected a whole number from -2 to 2"):
        resampled(service, move=[3, 0])


@pytest.mark.parametrize(
    "values",
    [{"region": [4, 6, 16]}, {"region": [5], "move": [-1, 0]}, {"move": [0, 1]}],
    ids=["boxes", "both", "move"],
)
def test_the_command_line_edits_to_the_same_pixels(pipe, service, values, tmp_path, capsys):
    pipe.save_pretrained(tmp_path / "model")
    picture = noise_picture(12, 12, 3)
    picture.save(tmp_path / "picture.png")
    run = service.submit("me", service.requests.edit(picture, {"class": 1, "seed": 4} | values))
    (made,) = done(run).sets
    command = shlex.split(run.work.command(pipe, str(tmp_path / "model"), made))[1:]
    command[command.index("picture.png")] = str(tmp_path / "picture.png")
    assert main([*command, "--out", str(tmp_path / "out")]) == 0, capsys.readouterr().err
    assert png(Image.open(tmp_path / "out/000_picture_edited.png")) == png(made.images[0])


def test_the_steps_are_shown_token_by_token(pipe, service):
    run = service.submit("me", service.requests.generate({"num": 1}))
    (made,) = done(run).sets
    told = image_set(service, run, 0)
    assert told["tokens"] == 18
    assert [step[1] for step in told["trace"]["counts"][0]] == [int(step.hidden[0].sum()) for step in made.trace.steps]
    sheet = steps_sheet(pipe, made, 0)
    assert sheet.width // len(made.trace.steps) == sheet.height // 4
