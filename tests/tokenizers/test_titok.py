"""TiTok as a tokenizer by the contract: tokens without a grid. What it computes is tested in tests/interop/test_titok.py."""

import dataclasses

import pytest
import torch

from tokencritic.contracts import ImageTokenizer
from tokencritic.errors import InputError
from tokencritic.tokenizers.titok import TiTok, TiTokConfig

TINY = TiTokConfig(
    image_size=8,
    filters=32,
    multipliers=(1, 2, 1),
    blocks=1,
    codebook_size=30,
    code_width=4,
    num_tokens=5,
    encoder_width=64,
    encoder_layers=2,
    decoder_width=128,
    decoder_layers=1,
    pixel_codebook_size=9,
    pixel_code_width=6,
)


@pytest.fixture(scope="module")
def tokenizer():
    torch.manual_seed(0)
    made = TiTok(TINY).eval()
    for name, parameter in made.named_parameters():
        parameter.data += (0.03 if name.startswith("pixel_decoder") else 0.3) * torch.randn_like(parameter)
    return made


@pytest.fixture
def images():
    return torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def test_it_keeps_the_contract(tokenizer, images):
    assert isinstance(tokenizer, ImageTokenizer)
    assert (tokenizer.num_tokens, tokenizer.codebook_size, tokenizer.image_size, tokenizer.channels) == (5, 30, 8, 3)
    assert tokenizer.grid is None
    assert tokenizer.layout == (1, 5)
    tokens = tokenizer.encode(images)
    assert (tokens.shape, tokens.dtype) == ((4, 5), torch.int64)
    assert tokens.unique().numel() > 5
    decoded = tokenizer.decode(tokens)
    assert decoded.shape == (4, 3, 8, 8)
    assert 0 <= decoded.min() < decoded.max() <= 1
    with torch.no_grad():
        raw = tokenizer.to_images(tokens)
    assert not raw.equal(decoded)
    assert decoded.equal(raw.clamp(0, 1))


def test_an_image_depends_on_itself_alone(tokenizer, images):
    tokens = tokenizer.encode(images)
    assert torch.cat([tokenizer.encode(image[None]) for image in images]).equal(tokens)
    apart = torch.cat([tokenizer.decode(row[None]) for row in tokens])
    assert apart.allclose(tokenizer.decode(tokens), atol=1e-5)


def test_latents_are_compared_by_direction(tokenizer, images):
    tokens = tokenizer.encode(images)
    with torch.no_grad():
        latents = tokenizer.encoder(images)
    codes = tokenizer.quantizer.codebook
    unit = latents / latents.norm(dim=1, keepdim=True)
    assert tokens.equal(torch.cdist(unit.transpose(1, 2), codes.expand(4, -1, -1)).argmin(-1))


def test_no_images_are_no_tokens(tokenizer):
    assert tokenizer.encode(torch.empty(0, 3, 8, 8)).shape == (0, 5)
    assert tokenizer.decode(torch.empty(0, 5, dtype=torch.int64)).shape == (0, 3, 8, 8)


def test_saving_keeps_every_weight(tmp_path, tokenizer, images):
    tokenizer.save_pretrained(tmp_path)
    again = TiTok.from_pretrained(tmp_path)
    assert again.config == TINY
    assert again.fingerprint() == tokenizer.fingerprint()
    assert again.encode(images).equal(tokenizer.encode(images))


def test_half_precision_is_possible(tokenizer, images):
    half = TiTok(TINY).eval()
    half.load_state_dict(tokenizer.state_dict())
    half.to(torch.bfloat16)
    tokens = tokenizer.encode(images)
    assert (half.encode(images) == tokens).float().mean() > 0.5
    assert (half.decode(tokens).float() - tokenizer.decode(tokens)).abs().mean() < 0.02


def test_bad_input_is_named(tokenizer, images):
    tokens = torch.zeros(2, 5, dtype=torch.int64)
    for bad, message in (
        (images[:, :1], r"images has shape \(4, 1, 8, 8\); expected \(images, 3, 8, 8\)"),
        (images * 2, "images holds values from"),
        ((images * 255).byte(), "images is torch.uint8"),
    ):
        with pytest.raises(InputError, match=message):
            tokenizer.encode(bad)
    for bad, message in (
        (tokens[:, :4], r"tokens has shape \(2, 4\); expected \(images, 5\)"),
        (tokens + 30, "tokens holds 30; expected integers from 0 to 29"),
        (tokens.float(), "tokens is float32; expected integers"),
    ):
        with pytest.raises(InputError, match=message):
            tokenizer.decode(bad)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoder_width": 96}, "encoder_width is 96; it must be a positive multiple of 64"),
        ({"decoder_layers": 0}, "decoder_layers is 0"),
        ({"num_tokens": 0}, "num_tokens is 0"),
        ({"image_size": 10}, "image_size is 10; it must be a multiple of 4"),
        ({"filters": 20}, "filters is 20"),
    ],
)
def test_impossible_sizes_are_named(change, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(TINY, **change)


def test_the_published_size_is_the_default():
    with torch.device("meta"):
        tokenizer = TiTok()
    assert (tokenizer.num_tokens, tokenizer.image_size, tokenizer.side) == (32, 256, 16)
    blocks = [block for part in (tokenizer.encoder, tokenizer.decoder) for block in part.blocks]
    assert [(len(part.blocks), part.blocks[0].heads) for part in (tokenizer.encoder, tokenizer.decoder)] == [
        (24, 16)
    ] * 2
    assert sum(p.numel() for block in blocks for p in block.parameters()) == 48 * (12 * 1024**2 + 13 * 1024)
