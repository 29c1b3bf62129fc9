"""MaskBit's tokenizer: bits to tokens and back, and tokens that share a place of the grid."""

import dataclasses

import numpy as np
import pytest
import torch

from tokencritic import InputError, TokenCriticPipeline
from tokencritic.adapters import as_tokenizer
from tokencritic.data.source import ArraySource
from tokencritic.data.tokenizing import TokenizeJob
from tokencritic.data.transforms import Preprocess
from tokencritic.models.maskbit import MaskBitConfig, MaskBitGenerator
from tokencritic.pictures.panels import decode_for_panels, hidden_panels, score_panels
from tokencritic.pipeline import Given
from tokencritic.pipeline_folder import load_part
from tokencritic.tokenizers.maskbit import BitQuantizer, MaskBitTokenizer, MaskBitTokenizerConfig
from tokencritic.tokenizers.regions import pixels_in, place_grid, place_side, tokens_touched, whole_places

TINY = MaskBitTokenizerConfig(image_size=12, filters=32, multipliers=(1, 1, 1), blocks=1, splits=2, bits_per_part=3)


@pytest.fixture(scope="module")
def tokenizer():
    torch.manual_seed(0)
    return MaskBitTokenizer(TINY).eval()


@pytest.mark.parametrize(("splits", "bits"), [(1, 5), (2, 3), (3, 2)])
def test_bits_become_tokens_place_by_place_and_back(splits, bits):
    quantizer, rng = BitQuantizer(splits, bits), torch.Generator().manual_seed(0)
    latents = torch.randn(2, splits * bits, 3, 4, generator=rng)
    tokens = quantizer.nearest(latents)
    assert tokens.shape == (2, 12 * splits)
    for image in range(2):
        for place in range(12):
            signs = latents[image, :, place // 4, place % 4] > 0
            code = sum(int(sign) << j for j, sign in enumerate(signs))
            for part in range(splits):
                assert tokens[image, place * splits + part] == (code >> (part * bits)) % 2**bits
    found = quantizer.look_up(tokens, (3, 4 * splits))
    assert found.equal(torch.where(latents > 0, 1, -1))
    assert not quantizer.nearest(torch.zeros(1, splits * bits, 1, 1)).any()  # exactly 0 counts as 0


def test_sizes(tokenizer):
    assert (tokenizer.num_tokens, tokenizer.codebook_size, tokenizer.grid, tokenizer.splits) == (18, 8, (3, 6), 2)
    assert (tokenizer.factor, tokenizer.image_size, tokenizer.channels) == (4, 12, 3)
    published = MaskBitTokenizer.without_weights(MaskBitTokenizerConfig())
    assert (published.num_tokens, published.grid, published.config.bits) == (512, (16, 32), 14)


def test_images_to_tokens_and_back(tokenizer):
    images = torch.rand(2, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    tokens = tokenizer.encode(images)
    assert tokens.shape == (2, 18)
    assert 0 <= tokens.min() <= tokens.max() < 8
    decoded = tokenizer.decode(tokens)
    assert decoded.shape == images.shape
    assert decoded.min() >= 0
    assert decoded.max() <= 1
    torch.testing.assert_close(decoded, tokenizer(images).reconstruction.clamp(0, 1))
    assert tokenizer.encode(images[:0]).shape == (0, 18)
    assert tokenizer.decode(tokens[:0]).shape == (0, 3, 12, 12)
    half = MaskBitTokenizer(TINY).to(torch.bfloat16)
    assert half.decode(half.encode(images)).dtype is torch.bfloat16


def test_decoding_uses_every_part(tokenizer):
    tokens = torch.zeros(1, 18, dtype=torch.int64)
    plain = tokenizer.decode(tokens)
    for position in (8, 9):
        for bit in (1, 2, 4):
            changed = tokens.clone()
            changed[0, position] = bit
            assert not tokenizer.decode(changed).equal(plain)


def test_saved_and_loaded_by_its_config(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    again = load_part(tmp_path, "tokenizer")
    assert type(again) is MaskBitTokenizer
    assert again.fingerprint() == tokenizer.fingerprint()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"splits": 0}, "splits is 0"),
        ({"bits_per_part": 0}, "bits_per_part is 0"),
        ({"filters": 33}, "filters is 33"),
        ({"multipliers": ()}, "multipliers is"),
    ],
)
def test_impossible_sizes_are_named(change, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(TINY, **change)


def test_bad_tokens_and_images_are_named(tokenizer):
    with pytest.raises(InputError, match="image_size is 14; it must be a positive multiple of 4"):
        MaskBitTokenizer(dataclasses.replace(TINY, image_size=14))
    with pytest.raises(InputError, match="tokens holds 8; expected integers from 0 to 7"):
        tokenizer.decode(torch.full((1, 18), 8))
    with pytest.raises(InputError, match=r"tokens has shape \(1, 9\); expected \(images, 18\)"):
        tokenizer.decode(torch.zeros(1, 9, dtype=torch.int64))
    with pytest.raises(InputError, match=r"expected floats in \[0, 1\]"):
        tokenizer.encode(torch.full((1, 3, 12, 12), 1.5))


def test_a_region_has_all_parts_of_its_places(tokenizer):
    assert place_grid(tokenizer) == (3, 3)
    assert place_side(tokenizer) == 4
    for y in range(12):
        for x in range(12):
            touched = tokens_touched(pixels_in([(x, y, x + 1, y + 1)], 12), tokenizer)
            place = y // 4 * 3 + x // 4
            assert touched.nonzero().flatten().tolist() == [2 * place, 2 * place + 1]
    one = torch.arange(18) == 7
    assert whole_places(one, tokenizer).nonzero().flatten().tolist() == [6, 7]
    three = MaskBitTokenizer.without_weights(dataclasses.replace(TINY, splits=3))
    assert tokens_touched(pixels_in([(0, 0, 1, 1)], 12), three).sum() == 3  # 12 pixels do not divide into 9 columns


def test_the_adapter_keeps_the_splits(tokenizer):
    class Foreign:
        encode, decode = tokenizer.encode, tokenizer.decode
        num_tokens, codebook_size, image_size, channels, grid, splits = 18, 8, 12, 3, (3, 6), 2

    assert as_tokenizer(Foreign()).splits == 2
    assert as_tokenizer(tokenizer).splits == 2


@pytest.mark.parametrize(("room", "size"), [(12, (12, 12)), (30, (24, 24)), (8, (6, 6)), (2, (6, 6))])
def test_panels_are_square_and_have_whole_pixels_for_each_part(tokenizer, room, size):
    tokens = torch.randint(0, 8, (1, 18), generator=torch.Generator().manual_seed(0))
    pixels, found = decode_for_panels(tokens, tokenizer, room)
    assert found == size
    scores = np.linspace(0, 1, 18)[None]
    heat = score_panels(np.zeros_like(pixels), scores, tokenizer.grid)
    side = pixels.shape[1] // 3
    left, right = heat[0, 0, 0], heat[0, 0, side // 2]
    assert (left != right).any()  # two parts of one place, side by side
    hidden = hidden_panels(np.zeros_like(pixels), np.arange(18)[None] % 2 == 1, None, tokenizer.grid)
    assert (hidden[0, :, :, 0] > 0).mean() == 0.5


def test_token_arrays_and_a_pipeline_that_samples_and_edits(tokenizer, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (3, 12, 12, 3), dtype=np.uint8)
    source = ArraySource(images, np.array([0, 1, 2]), ("a", "b", "c"), "array", "train", "images")
    arrays = TokenizeJob(source, tokenizer, tmp_path / "tokens", Preprocess(12, 3)).run(progress=False)
    assert (arrays.tokens.shape, arrays.codebook_size, arrays.grid) == ((3, 18), 8, (3, 6))
    right = tokenizer.encode(torch.from_numpy(images).permute(0, 3, 1, 2) / 255)
    assert torch.from_numpy(arrays.tokens.astype(np.int64)).equal(right)
    torch.manual_seed(0)
    sizes = {"width": 16, "layers": 2, "heads": 2, "mlp_width": 16}
    generator = MaskBitGenerator(MaskBitConfig(places=9, splits=2, bits_per_part=3, num_classes=3, **sizes)).eval()
    pipe = TokenCriticPipeline(tokenizer, generator, generator.start_critic().eval())
    assert len(pipe([0, 1], steps=3, guidance=2.0, sampler="critic")) == 2
    region = tokens_touched(pixels_in([(0, 0, 1, 1)], 12), tokenizer)
    settings = pipe.settings(steps=2, sampler="confidence")
    given = Given(right[:1].expand(8, -1), region=region)
    edited = pipe.sample_tokens(torch.zeros(8, dtype=torch.int64), 0, settings, given)
    assert edited[:, 2:].equal(right[:1, 2:].expand(8, -1))
    assert all(len(edited[:, part].unique()) > 1 for part in (0, 1))
