"""Preprocessing: exact pixels where they are known, and randomness that depends only on three integers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tokencritic.data.transforms import Preprocess, center_crop, random_boxes, to_float
from tokencritic.errors import InputError
from tokencritic.randomness import crop_uniforms


def picture(width: int, height: int, mode: str = "RGB", seed: int = 0) -> Image.Image:
    shape = (height, width) if mode == "L" else (height, width, 3)
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, np.uint8))


def cropped(preprocess: Preprocess, image: Image.Image, index: int = 0, **chance: int) -> torch.Tensor:
    """Preprocess one image: float (c, size, size)."""
    return to_float(preprocess.batch([image], [index], **chance))[0]


def test_an_image_of_the_right_size_is_only_scaled_to_one() -> None:
    image = picture(8, 8)
    pixels = cropped(Preprocess(8, 3), image)
    assert pixels.dtype == torch.float32
    torch.testing.assert_close(pixels, torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255, rtol=0, atol=0)


def test_center_crop_takes_the_middle() -> None:
    image = picture(12, 8)
    np.testing.assert_array_equal(np.asarray(center_crop(image, 8)), np.asarray(image)[:, 2:10])


def test_center_crop_halves_by_averages() -> None:
    image = picture(16, 8, "L")
    means = np.asarray(image, np.float64).reshape(4, 2, 8, 2).mean(axis=(1, 3))[:, 2:6]
    assert np.abs(np.asarray(center_crop(image, 4)) - means).max() <= 1  # rows and columns are rounded one by one


@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 40), st.sampled_from([1, 3]), st.sampled_from("LR"))
def test_every_size_and_mode_gives_the_wanted_shape(
    width: int, height: int, size: int, channels: int, mode: str
) -> None:
    image = picture(width, height, "L" if mode == "L" else "RGB")
    for crop in ("center", "random"):
        pixels = cropped(Preprocess(size, channels, crop, flip=True), image, index=3)
        assert pixels.shape == (channels, size, size)
        assert 0 <= pixels.min() <= pixels.max() <= 1


def test_channels() -> None:
    grey, colour = picture(8, 8, "L"), picture(8, 8)
    as_colour = cropped(Preprocess(8, 3), grey)
    assert torch.equal(as_colour[0], as_colour[1])
    assert torch.equal(as_colour[:1], cropped(Preprocess(8, 1), grey))
    torch.testing.assert_close(
        cropped(Preprocess(8, 1), colour)[0], torch.from_numpy(np.array(colour.convert("L"))) / 255
    )


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("stored", [1, 3])
@pytest.mark.parametrize("crop", ["center", "random"])
@pytest.mark.parametrize("size", [8, 6])
def test_an_array_gives_the_same_as_its_images(channels: int, stored: int, crop, size: int) -> None:
    array = np.random.default_rng(0).integers(0, 256, (5, 8, 8, stored), np.uint8)
    images = [Image.fromarray(image[..., 0] if stored == 1 else image) for image in array]
    preprocess = Preprocess(size, channels, crop, flip=True)
    indices = [4, 9, 2, 11, 0]
    batch = preprocess.batch(array, indices, seed=5, crop_number=1)
    assert torch.equal(batch, preprocess.batch(images, indices, seed=5, crop_number=1))
    singles = [
        cropped(preprocess, image, seed=5, crop_number=1, index=index)
        for image, index in zip(images, indices, strict=True)
    ]
    assert torch.equal(to_float(batch), torch.stack(singles))


def test_chance_depends_on_each_of_its_three_integers() -> None:
    image, preprocess = picture(40, 40), Preprocess(16, 3, "random", flip=True)
    base = {"seed": 1, "crop_number": 2, "index": 3}
    assert torch.equal(cropped(preprocess, image, **base), cropped(preprocess, image, **base))
    for name in base:
        assert not torch.equal(cropped(preprocess, image, **base), cropped(preprocess, image, **(base | {name: 7})))
    assert not torch.equal(cropped(preprocess, image, seed=2**40), cropped(preprocess, image, seed=0))


def test_uniforms_are_uniform() -> None:
    draws = crop_uniforms(np.arange(4000), 3, 0)
    assert draws.shape == (4000, 24)
    assert 0 < draws.min() < draws.max() < 1
    np.testing.assert_allclose(draws.mean(axis=0), 0.5, atol=0.02)
    np.testing.assert_allclose(np.corrcoef(draws.T), np.eye(24), atol=0.08)


def test_half_of_the_images_are_mirrored() -> None:
    array = np.arange(4, dtype=np.uint8).reshape(1, 1, 4, 1).repeat(4, axis=1).repeat(1000, axis=0)
    pixels = Preprocess(4, 1, flip=True).batch(array, np.arange(1000))
    first = pixels[:, 0, 0, 0]
    assert set(first.tolist()) == {0, 3}
    assert 440 < (first == 3).sum() < 560
    assert torch.equal(pixels[first == 3].flip(3)[0], pixels[first == 0][0])


def test_random_boxes_lie_inside_with_the_areas_and_ratios_asked_for() -> None:
    sizes = np.tile([300, 200], (3000, 1))
    left, top, right, bottom = random_boxes(sizes, crop_uniforms(np.arange(3000), 0, 0), (0.25, 0.5), (0.75, 4 / 3)).T
    assert left.min() >= 0
    assert top.min() >= 0
    assert right.max() <= 300
    assert bottom.max() <= 200
    shares, ratios = (right - left) * (bottom - top) / 60000, (right - left) / (bottom - top)
    assert 0.245 < shares.min() < 0.26
    assert 0.49 < shares.max() < 0.505
    assert 0.74 < ratios.min() < 0.78
    assert 1.29 < ratios.max() < 1.35
    # Every position is possible, including the edges.
    assert left.min() == 0
    assert right.max() == 300


def test_a_strip_too_thin_for_any_box_is_cut_in_the_middle() -> None:
    boxes = random_boxes(np.array([[1000, 10], [10, 1000]]), crop_uniforms([0, 1], 0, 0), (0.9, 1.0), (0.75, 4 / 3))
    np.testing.assert_allclose(boxes, [[493, 0, 506, 10], [0, 493, 10, 506]], atol=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "size is 0"),
        ({"size": 8, "channels": 4}, "channels is 4"),
        ({"size": 8, "crop": "middle"}, "crop is 'middle'"),
    ],
)
def test_wrong_arguments(arguments: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Preprocess(**arguments)
