import numpy as np
import pytest
from PIL import Image

from tokencritic.errors import InputError
from tokencritic.pictures.grids import image_grid


def squares(count, size=4):
    return [Image.new("L", (size, size), 10 * (i + 1)) for i in range(count)]


def test_images_stand_in_reading_order_on_white():
    pixels = np.asarray(image_grid(squares(5), columns=3, scale=2))
    assert pixels.shape == (8 + 2 + 8, 3 * 8 + 4, 3)
    assert [pixels[0, 0, 0], pixels[0, 10, 0], pixels[0, 20, 0], pixels[10, 0, 0], pixels[10, 10, 0]] == [
        10,
        20,
        30,
        40,
        50,
    ]
    assert (pixels[:, 8:10] == 255).all()
    assert (pixels[10:, 20:] == 255).all()


def test_small_images_are_enlarged_and_the_grid_is_square():
    assert image_grid(squares(16, 28)).size == (4 * 84 + 6, 4 * 84 + 6)


def test_nothing_and_unequal_sizes_are_refused():
    with pytest.raises(InputError, match="images is empty"):
        image_grid([])
    with pytest.raises(InputError, match="different sizes"):
        image_grid([*squares(1, 4), *squares(1, 5)])


def test_names_stand_below_their_images_and_the_images_stay_whole():
    names = ["Bag", "", "a name that is much too long for its image"]
    pixels = np.asarray(image_grid(squares(3, 30), columns=3, scale=2, names=names))
    assert pixels.shape == (8 + 60 + 20 + 8, 8 + 3 * (60 + 8), 3)
    for index, written in enumerate((True, False, True)):
        left = 8 + index * 68
        assert (pixels[8:68, left : left + 60] == 10 * (index + 1)).all()
        assert (pixels[68:88, left : left + 60].min() < 128) == written
    assert (pixels[:, [3, 72, 140, 208]] == 255).all()  # nothing is written beyond an image's own width


def test_what_makes_no_grid_is_refused():
    with pytest.raises(InputError, match="names has 1 entries for 2 images"):
        image_grid(squares(2), names=["one"])
    with pytest.raises(InputError, match="columns is 0; it must be at least 1"):
        image_grid(squares(2), columns=0)
    with pytest.raises(InputError, match="scale is -1; it must be at least 1"):
        image_grid(squares(2), scale=-1)
