import numpy as np
import pytest
from PIL import Image

from tokencritic.errors import InputError
from tokencritic.pictures.grids import grid


def squares(count, size=4):
    return [Image.new("L", (size, size), 10 * (i + 1)) for i in range(count)]


def test_images_stand_in_reading_order_on_white():
    pixels = np.asarray(grid(squares(5), columns=3, gap=1, scale=2))
    assert pixels.shape == (8 + 1 + 8, 3 * 8 + 2, 3)
    assert [pixels[0, 0, 0], pixels[0, 9, 0], pixels[0, 18, 0], pixels[9, 0, 0], pixels[9, 9, 0]] == [
        10,
        20,
        30,
        40,
        50,
    ]
    assert (pixels[:, 8] == 255).all()
    assert (pixels[9:, 18:] == 255).all()


def test_small_images_are_enlarged_and_the_grid_is_square():
    assert grid(squares(16, 28), gap=0).size == (4 * 84, 4 * 84)


def test_nothing_and_unequal_sizes_are_refused():
    with pytest.raises(InputError, match="images is empty"):
        grid([])
    with pytest.raises(InputError, match="different sizes"):
        grid([*squares(1, 4), *squares(1, 5)])
