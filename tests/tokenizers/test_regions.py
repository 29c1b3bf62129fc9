"""Boxes of pixels and tokens, against a loop over pixels."""

import pytest
import torch

from tokencritic.errors import InputError
from tokencritic.tokenizers.compact import CompactConfig, CompactTokenizer
from tokencritic.tokenizers.regions import move, pixels_in, tokens_touched

PLAIN = CompactTokenizer(CompactConfig(image_size=12, factor=4, width=8, codebook_size=4))
MARGIN = CompactTokenizer(CompactConfig(image_size=10, factor=3, margin=1, width=8, codebook_size=4))


@pytest.mark.parametrize("tokenizer", [PLAIN, MARGIN])
def test_a_token_is_touched_by_any_of_its_pixels(tokenizer):
    size, factor, margin, (_, columns) = tokenizer.image_size, tokenizer.factor, tokenizer.margin, tokenizer.grid
    for y in range(size):
        for x in range(size):
            one = tokens_touched(pixels_in([(x, y, x + 1, y + 1)], size), tokenizer)
            assert one.nonzero().tolist() == [[(y + margin) // factor * columns + (x + margin) // factor]]


def test_boxes_add_up_and_end_before_their_right_and_bottom():
    region = pixels_in([(0, 0, 4, 4), (8, 4, 9, 12)], 12)
    assert region.sum() == 16 + 8
    assert tokens_touched(region, PLAIN).view(3, 3).tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 1]]
    assert not pixels_in([], 12).any()


@pytest.mark.parametrize("box", [(0, 0, 0, 3), (3, 0, 2, 3), (0, 5, 3, 5), (-1, 0, 3, 3), (0, 0, 13, 3), (0, 0, 3, 13)])
def test_an_empty_box_or_one_beyond_the_image_is_refused(box):
    with pytest.raises(InputError, match=rf"region is {','.join(map(str, box))}; expected .* <= 12"):
        pixels_in([(0, 0, 2, 2), box], 12)


@pytest.mark.parametrize(("right", "down"), [(2, 0), (-3, 0), (0, 1), (0, -4), (2, -1), (0, 0)])
def test_what_moves_is_the_image_and_what_is_empty_repeats_its_edge(right, down):
    images = torch.rand(2, 3, 5, 6)
    moved, empty = move(images, right, down)
    for y in range(5):
        for x in range(6):
            from_y, from_x = y - down, x - right
            assert bool(empty[y, x]) == (not (0 <= from_y < 5 and 0 <= from_x < 6))
            nearest = images[:, :, min(max(from_y, 0), 4), min(max(from_x, 0), 5)]
            assert moved[:, :, y, x].equal(nearest)


@pytest.mark.parametrize(("right", "down"), [(6, 0), (0, -5)])
def test_an_image_is_not_moved_out_of_sight(right, down):
    with pytest.raises(InputError, match=f"shift is {right},{down}; it must be smaller than the image of 6 x 5"):
        move(torch.rand(1, 1, 5, 6), right, down)
