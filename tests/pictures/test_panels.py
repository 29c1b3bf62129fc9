import numpy as np
import pytest
import torch
from pictures.toy import ToyTokenizer, toy_pixels, toy_trace

from tokencritic.errors import InputError
from tokencritic.pictures.look import GROUND, HIDDEN, INK, REMASKED, colour_scale
from tokencritic.pictures.panels import (
    decode,
    decode_for_panels,
    hidden_panels,
    magnify,
    score_panels,
    step_panels,
    trust,
)
from tokencritic.tokenizers.compact import CompactConfig, CompactTokenizer


def lightness(colours):
    return np.asarray(colours, float) @ np.array([0.2126, 0.7152, 0.0722])


def test_the_colour_order_is_monotone_in_the_score_also_in_a_grey_print():
    scores = np.linspace(0, 1, 256)
    black = np.zeros((1, 256, 3), np.uint8)
    pixels = score_panels(black, scores, (1, 256))
    assert (pixels[0] == (0.75 * colour_scale()).round()).all()
    assert (np.diff(lightness(colour_scale()[::4])) < 0).all()


def test_each_token_has_its_square_in_reading_order():
    scores = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    pixels = score_panels(np.zeros((20, 60, 3), np.uint8), np.array(scores), (2, 3))
    squares = pixels.reshape(2, 10, 3, 20, 3).swapaxes(1, 2).reshape(6, -1, 3)
    for square, score in zip(squares, scores, strict=True):
        assert (square == (0.75 * colour_scale()[round(255 * score)]).round()).all()


def test_noise_beyond_0_and_1_is_cut_off():
    assert trust(np.array([-0.3, 0.25, 1.2, np.inf])).tolist() == [0, 0.25, 1, 1]


def test_ranks_know_no_unit_and_what_cannot_be_hidden_is_trusted():
    largest = np.finfo(np.float32).max
    scores = np.array([[-7.0, 40.0, -9.0, largest, np.inf], [5.0, 4.0, 3.0, 2.0, 1.0]])
    assert trust(scores, "rank").tolist() == [[0.25, 0.5, 0.0, 1.0, 1.0], [1.0, 0.75, 0.5, 0.25, 0.0]]


def test_the_scores_colour_the_image_and_its_greys_show_through():
    image = np.full((4, 16, 3), 100, np.uint8)
    image[:2] = 200
    panel = score_panels(image, np.linspace(0, 1, 4), (1, 4))
    for row in (0, 3):
        assert (np.diff(lightness(panel[row, ::4])) < 0).all()
    assert (lightness(panel[0]) > lightness(panel[3])).all()


def test_hidden_tokens_are_grey_and_those_remasked_outlined():
    image = np.random.default_rng(0).integers(0, 100, (24, 24, 3), dtype=np.uint8)
    hidden, remasked = np.array([True, False, True, False]), np.array([False, False, True, False])
    panel = hidden_panels(image, hidden, remasked, (2, 2))
    assert (panel[:12, :12] == HIDDEN).all()
    assert (panel[:, 12:] == image[:, 12:]).all()
    corner = panel[12:, :12]
    assert (corner[2:-2, 2:-2] == HIDDEN).all()
    ring = np.ones((12, 12), bool)
    ring[2:-2, 2:-2] = False
    assert (corner[ring] == REMASKED).all()


def test_an_outline_is_seen_on_the_smallest_tokens():
    panel = hidden_panels(np.zeros((6, 6, 3), np.uint8), np.ones(4, bool), np.eye(4, dtype=bool)[0], (2, 2))
    assert (panel[0, :3] == REMASKED).all()
    assert (panel[1, 1] == HIDDEN).all()
    assert (panel[3:, 3:] == HIDDEN).all()


def runs_of(line):
    """The colours along a line of pixels that are not ground, each once for every run of them."""
    shown = [tuple(pixel) for pixel in line.tolist()]
    return [b for a, b in zip([GROUND, *shown], shown, strict=False) if b not in (a, GROUND)]


@pytest.mark.parametrize(
    ("num_tokens", "width", "lines"), [(32, 160, 1), (32, 87, 2), (64, 87, 4), (128, 243, 3), (128, 56, 10), (9, 20, 2)]
)
def test_tokens_without_a_grid_are_cells_in_reading_order_on_lines_with_gaps(num_tokens, width, lines):
    shares = np.linspace(0, 1, num_tokens)
    image = np.random.default_rng(0).integers(0, 256, (width, width, 3), dtype=np.uint8)
    panel = score_panels(image, shares, None)
    coloured = (panel != np.array(GROUND)).any(-1).any(1)
    starts = np.flatnonzero(coloured & ~np.roll(coloured, 1))
    assert len(starts) == lines
    read = [colour for start in starts for colour in runs_of(panel[start])]
    assert read == [tuple(colour_scale()[round(255 * share)]) for share in shares]


def test_in_a_row_of_tokens_kept_ones_are_dark_hidden_ones_grey_and_remasked_ones_outlined():
    hidden, remasked = np.array([True, False, True, False]), np.array([False, False, True, False])
    panel = hidden_panels(np.zeros((60, 60, 3), np.uint8), hidden, remasked, None)
    assert runs_of(panel[30]) == [HIDDEN, INK, REMASKED, HIDDEN, REMASKED, INK]
    first = np.flatnonzero((panel != np.array(GROUND)).any(-1).any(1))[0]
    assert runs_of(panel[first]) == [HIDDEN, INK, REMASKED, INK]
    assert (hidden_panels(np.zeros((60, 60, 3), np.uint8), hidden, None, None) != np.array(REMASKED)).any(-1).all()


def test_a_row_of_tokens_that_fits_no_panel_is_named():
    with pytest.raises(InputError, match="a panel of 8 x 8 pixels has no room for a row of 40 tokens"):
        score_panels(np.zeros((8, 8, 3), np.uint8), np.zeros(40), None)


@pytest.mark.parametrize(("room", "size"), [(50, (36, 48)), (15, (11, 15))])
def test_steps_of_tokens_without_a_grid_show_the_image_and_two_rows(room, size):
    trace, tokenizer = toy_trace(2), ToyTokenizer()
    tokenizer.grid = None
    panels = step_panels(trace.steps, [0, 1], tokenizer, room, "probability")
    assert panels.shape == (3, 4, 2, *size, 3)
    step = trace.steps[1]
    image = panels[0, 1, 1]
    if room == 50:
        assert (image == magnify(toy_pixels(step.proposal[1].numpy()), size)).all()
    assert (panels[1, 1, 1] == score_panels(image, step.scores[1].numpy(), None)).all()
    wanted = hidden_panels(image, step.hidden[1].numpy(), step.remasked[1].numpy(), None)
    assert (panels[2, 1, 1] == wanted).all()


def test_all_steps_are_decoded_in_few_batches():
    trace, tokenizer = toy_trace(num_images=5), ToyTokenizer()
    tokens = torch.stack([step.proposal[[4, 1]] for step in trace.steps])
    pixels = decode(tokens, tokenizer)
    assert pixels.shape == (4, 2, 12, 16, 3)
    assert tokenizer.batches == [8]
    tokenizer.image_size = 256  # large images: few at a time
    assert (decode(tokens, tokenizer) == pixels).all()
    assert tokenizer.batches == [8, 4, 4]
    for step, images in zip(trace.steps, pixels, strict=True):
        assert (images[0] == toy_pixels(step.proposal[4].numpy())).all()
        assert (images[1] == toy_pixels(step.proposal[1].numpy())).all()


def test_small_images_are_magnified_whole_times_and_large_ones_keep_whole_tokens():
    tokens, tokenizer = toy_trace(2).steps[0].proposal, ToyTokenizer()  # 12 x 16 pixels, 3 x 4 tokens
    for room, panel, decoded in ((50, (36, 48), (12, 16)), (16, (12, 16), (12, 16)), (15, (9, 12), (9, 12))):
        pixels, size = decode_for_panels(tokens, tokenizer, room)
        assert size == panel
        assert pixels.shape == (2, *decoded, 3)
    image = np.random.default_rng(0).integers(0, 256, (2, 3, 3), dtype=np.uint8)
    large = magnify(image, (4, 9))
    assert (large[1::2, 2::3] == image).all()


def test_bad_input_is_named():
    with pytest.raises(InputError, match="scores holds nan"):
        trust(np.array([0.5, np.nan]))
    with pytest.raises(InputError, match="5 x 6 pixels; expected a multiple of 2 x 3 tokens"):
        score_panels(np.zeros((5, 6, 3), np.uint8), np.zeros(6), (2, 3))


def test_a_tokenizers_margin_is_shown_so_that_tokens_have_whole_pixels():
    torch.manual_seed(0)
    tokenizer = CompactTokenizer(CompactConfig(factor=3, margin=1, width=16, codebook_size=16)).eval()
    tokens = torch.randint(0, 16, (2, 100))
    pixels = decode(tokens, tokenizer)
    assert pixels.shape == (2, 30, 30, 3)
    inside = (tokenizer.decode(tokens)[:, 0] * 255).round().byte().numpy()
    assert (pixels[:, 1:-1, 1:-1, 0] == inside).all()
    assert pixels.sum() == 3 * inside.astype(int).sum()
