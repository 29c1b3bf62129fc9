import numpy as np
import pytest
from pictures.toy import ToyTokenizer, count, toy_trace
from PIL import Image, ImageSequence

from tokencritic.errors import InputError
from tokencritic.pictures import film_strip, run_of, step_frames, write_steps
from tokencritic.pictures.look import GROUND, HIDDEN, REMASKED

RUN = run_of("critic", toy_trace(3))
FRAMES = step_frames(RUN, ToyTokenizer())


def read(file):
    with Image.open(file) as animation:
        frames = [
            (np.asarray(frame.convert("RGB")), frame.info["duration"]) for frame in ImageSequence.Iterator(animation)
        ]
        return [pixels for pixels, _ in frames], [milliseconds for _, milliseconds in frames], animation.info["loop"]


def test_a_gif_holds_every_frame_in_nearly_its_colours_and_flat_colours_exactly(tmp_path):
    write_steps(tmp_path / "steps.GIF", RUN, ToyTokenizer())
    frames, milliseconds, loop = read(tmp_path / "steps.GIF")
    assert milliseconds == [400, 400, 400, 3000]
    assert loop == 0
    for pixels, frame in zip(frames, FRAMES, strict=True):
        assert np.abs(pixels.astype(int) - np.asarray(frame)).mean() < 2
        for colour in (GROUND, HIDDEN, REMASKED):
            exact = (np.asarray(frame) == colour).all(-1)
            assert exact.any()
            assert (pixels[exact] == colour).all()


def test_the_ending_of_the_name_says_what_is_written(tmp_path):
    for ending, form in ((".gif", "GIF"), (".png", "PNG")):
        file = tmp_path / f"steps{ending}"
        write_steps(file, RUN, ToyTokenizer(), ["Bag", "Coat", "Dress"])
        with Image.open(file) as image:
            assert image.format == form
            assert getattr(image, "n_frames", 1) == (1 if form == "PNG" else 4)
    with Image.open(tmp_path / "steps.png") as strip:
        expected = film_strip(RUN, ToyTokenizer(), ["Bag", "Coat", "Dress"])
        assert (np.asarray(strip) == np.asarray(expected)).all()
        assert count(strip, HIDDEN) > 0


@pytest.mark.parametrize("ending", ["gif", "png"])
def test_the_same_steps_give_the_same_bytes(tmp_path, ending):
    for name in ("a", "b"):
        write_steps(tmp_path / f"{name}.{ending}", run_of("critic", toy_trace(3)), ToyTokenizer())
    assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    file = tmp_path / "steps.gif"
    file.write_bytes(b"old")

    def fail(self, path, *_, **__):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", fail)
    with pytest.raises(OSError, match="No space left"):
        write_steps(file, RUN, ToyTokenizer())
    assert [path.name for path in tmp_path.iterdir()] == ["steps.gif"]
    assert file.read_bytes() == b"old"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda folder: write_steps(folder / "a.jpg", RUN, ToyTokenizer()), "ends in '.jpg'; expected .gif"),
        (lambda folder: write_steps(folder / "a", RUN, ToyTokenizer()), "ends in ''"),
        (lambda folder: write_steps(folder / "a.png", [], ToyTokenizer()), "expected one or more runs"),
        (lambda folder: write_steps(folder / "a.gif", [], ToyTokenizer()), "expected one or more runs"),
    ],
)
def test_bad_input_is_named_and_nothing_is_written(tmp_path, call, message):
    with pytest.raises(InputError, match=message):
        call(tmp_path)
    assert list(tmp_path.iterdir()) == []
