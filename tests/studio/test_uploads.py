"""Pictures as strangers send them."""

import io

import numpy as np
import pytest
from PIL import Image
from studio.toy import bomb, noise_picture, png_bytes

from tokencritic.errors import InputError
from tokencritic.image_forms import read_picture
from tokencritic.studio.service import FORMATS

PIXELS = 2**22


def read(data):
    return read_picture(io.BytesIO(data), "the picture", PIXELS, FORMATS)


def test_every_mode_becomes_grey_or_colour():
    rgb = noise_picture(8, 6, 3)
    for form in ("PNG", "BMP", "WEBP"):
        options = {"lossless": True} if form == "WEBP" else {}
        assert np.array_equal(np.asarray(read(png_bytes(rgb, form, **options))), np.asarray(rgb))
    grey = noise_picture()
    assert read(png_bytes(grey)).mode == "L"
    clear = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    assert (
        np.asarray(read(png_bytes(clear))).tolist() == np.full((4, 4, 3), 255).tolist()
    )  # what shines through is white
    cmyk = read(png_bytes(Image.new("CMYK", (4, 4), (0, 255, 255, 0)), "JPEG", quality=100))
    assert cmyk.mode == "RGB"
    red, green, blue = np.asarray(cmyk)[0, 0].tolist()
    assert red > 200
    assert max(green, blue) < 60


def test_of_an_animation_the_first_frame_is_taken():
    frames = [Image.new("RGB", (5, 5), colour) for colour in ("red", "green", "blue")]
    read_back = read(png_bytes(frames[0], "GIF", save_all=True, append_images=frames[1:]))
    assert np.asarray(read_back)[2, 2].tolist() == [255, 0, 0]


def test_a_photograph_stands_upright():
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned
    assert read(png_bytes(noise_picture(12, 8, 3), "JPEG", exif=exif)).size == (8, 12)


@pytest.mark.filterwarnings("default")  # as for a user, whom a warning does not stop
def test_what_cannot_be_is_refused_in_words():
    cases = {
        b"": "the picture is not a readable image",
        b"this is a text, whatever it is named": "the picture is not a readable image: cannot identify",
        bomb(20000): "the picture is too large; expected at most 4194304 pixels",
        bomb(5000): "the picture is too large; expected at most 4194304 pixels",
        png_bytes(noise_picture(64, 64, 3))[:2000]: "the picture is not a readable image",
        png_bytes(noise_picture(), "TIFF"): "the picture is not a readable image",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n": "the picture is not a readable image",
    }
    for data, message in cases.items():
        with pytest.raises(InputError) as error:
            read(data)
        assert message in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.filterwarnings("ignore")
def test_a_size_that_pillow_only_warns_of_is_refused_too():
    with pytest.raises(InputError, match="too large; expected at most"):
        read(bomb(10000))


def test_the_bytes_of_a_picture_are_bounded(service):
    for data in (b"", b"\x00" * (service.limits.upload_bytes + 1)):
        with pytest.raises(InputError, match=f"the picture has {len(data)} bytes; expected 1 to 16777216"):
            service.read_upload(data)
