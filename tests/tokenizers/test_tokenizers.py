"""The contract of every tokenizer: shapes, ranges, gradients, saving and errors."""

from pathlib import Path

import pytest
import torch

from tokencritic.errors import InputError
from tokencritic.tokenizers import tokenizer as tokenizers
from tokencritic.tokenizers.compact import CompactConfig, CompactTokenizer
from tokencritic.tokenizers.tokenizer import Tokenizer
from tokencritic.tokenizers.vqgan import PAPER_512, VQGAN, VQGANConfig


def make(kind: str) -> Tokenizer:
    torch.manual_seed(0)
    if kind == "vqgan":
        return VQGAN(VQGANConfig(8, 3, 32, (1, 2), 1, codebook_size=12, code_width=6)).eval()
    if kind == "compact":
        return CompactTokenizer(CompactConfig(12, 2, width=16, codebook_size=12, code_width=4)).eval()
    return CompactTokenizer(CompactConfig(12, 1, factor=3, width=8, codebook_size=9, code_width=4)).eval()


@pytest.fixture(params=["vqgan", "compact", "thirds"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return make(request.param)


def images_for(tokenizer: Tokenizer, count: int = 3) -> torch.Tensor:
    size = tokenizer.image_size
    return torch.rand(count, tokenizer.channels, size, size, generator=torch.Generator().manual_seed(1))


def test_images_become_tokens_and_images_again(tokenizer: Tokenizer) -> None:
    images = images_for(tokenizer)
    tokens = tokenizer.encode(images)
    assert tokens.shape == (3, tokenizer.num_tokens)
    assert tokens.dtype is torch.int64
    assert tokenizer.grid[0] * tokenizer.grid[1] == tokenizer.num_tokens
    assert 0 <= int(tokens.min()) <= int(tokens.max()) < tokenizer.codebook_size
    assert len(tokens.unique()) > 1
    decoded = tokenizer.decode(tokens)
    assert decoded.shape == images.shape
    assert decoded.min() >= 0
    assert decoded.max() <= 1
    assert tokenizer.encode(images[:0]).shape == (0, tokenizer.num_tokens)
    assert tokenizer.decode(tokens[:0]).shape == images[:0].shape


def test_an_image_gets_the_same_tokens_alone_and_in_a_batch(tokenizer: Tokenizer) -> None:
    images = images_for(tokenizer)
    assert torch.equal(tokenizer.encode(images)[1:2], tokenizer.encode(images[1:2]))


def test_large_batches_are_encoded_and_decoded_in_slices(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    images, sizes = images_for(tokenizer, 5), []
    tokens = tokenizer.encode(images)
    decoded = tokenizer.decode(tokens)
    monkeypatch.setattr(tokenizers, "PIXELS", 2 * tokenizer.image_size**2)
    for name in ("to_latents", "to_images"):
        whole = vars(type(tokenizer))[name]
        monkeypatch.setattr(
            tokenizer, name, lambda part, whole=whole: sizes.append(len(part)) or whole(tokenizer, part)
        )
    assert torch.equal(tokenizer.encode(images), tokens)
    torch.testing.assert_close(tokenizer.decode(tokens), decoded, atol=1e-5, rtol=0)
    assert sizes == [2, 2, 1] * 2
    monkeypatch.setattr(tokenizers, "PIXELS", 1)  # one image is the least
    torch.testing.assert_close(tokenizer.decode(tokens), decoded, atol=1e-5, rtol=0)


def test_forward_gives_what_encode_and_decode_give(tokenizer: Tokenizer) -> None:
    images = images_for(tokenizer)
    output = tokenizer(images)
    assert torch.equal(output.tokens, tokenizer.encode(images))
    torch.testing.assert_close(
        output.reconstruction.clamp(0, 1).detach(), tokenizer.decode(output.tokens), atol=1e-5, rtol=0
    )
    assert output.latents.shape == output.quantized.shape == (3, tokenizer.quantizer.codebook.shape[1], *tokenizer.grid)
    looked_up = tokenizer.quantizer.look_up(output.tokens, tokenizer.grid)
    assert torch.equal(output.quantized, looked_up)


def test_the_reconstruction_moves_the_encoder_and_the_codes_stay_out_of_it(tokenizer: Tokenizer) -> None:
    output = tokenizer(images_for(tokenizer))
    output.reconstruction.square().mean().backward(retain_graph=True)
    assert all(p.grad is not None for name, p in tokenizer.named_parameters() if name != "quantizer.codebook")
    assert tokenizer.quantizer.codebook.grad is None
    (output.quantized - output.latents.detach()).square().mean().backward()
    assert tokenizer.quantizer.codebook.grad is not None


def test_the_gradient_passes_straight_through(tokenizer: Tokenizer) -> None:
    output = tokenizer(images_for(tokenizer))
    quantized = output.quantized.detach().requires_grad_()
    (wanted,) = torch.autograd.grad(tokenizer.to_images(quantized).square().sum(), quantized)
    (given,) = torch.autograd.grad(output.reconstruction.square().sum(), output.latents)
    torch.testing.assert_close(given, wanted, atol=1e-4, rtol=1e-3)


def test_a_saved_tokenizer_gives_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save_pretrained(tmp_path)
    again = type(tokenizer).from_pretrained(tmp_path)
    assert again.config == tokenizer.config
    images = images_for(tokenizer)
    assert torch.equal(again.encode(images), tokenizer.encode(images))
    assert torch.equal(again.decode(again.encode(images)), tokenizer.decode(tokenizer.encode(images)))


def test_bad_images_are_refused(tokenizer: Tokenizer) -> None:
    images = images_for(tokenizer)
    with pytest.raises(InputError, match=r"images has shape \(\d+, \d+, \d+\); expected \(images, "):
        tokenizer.encode(images[0])
    with pytest.raises(InputError, match="images has shape"):
        tokenizer.encode(images[:, :, 1:])
    with pytest.raises(InputError, match="images has shape"):
        tokenizer.encode(images.repeat(1, 2, 1, 1))
    with pytest.raises(InputError, match=r"images is torch.uint8; expected floats"):
        tokenizer.encode((images * 255).byte())
    with pytest.raises(InputError, match=r"images holds values from .*; expected floats in"):
        tokenizer.encode(images * 255)
    with pytest.raises(InputError, match="images holds values from -1"):
        tokenizer((images * 0) - 1)
    images[0, 0, 0, 0] = torch.nan
    with pytest.raises(InputError, match="nan"):
        tokenizer.encode(images)


def test_bad_tokens_are_refused(tokenizer: Tokenizer) -> None:
    tokens = torch.zeros(2, tokenizer.num_tokens, dtype=torch.int64)
    with pytest.raises(InputError, match="tokens has shape"):
        tokenizer.decode(tokens[:, 1:])
    with pytest.raises(InputError, match="tokens has shape"):
        tokenizer.decode(tokens[0])
    with pytest.raises(InputError, match=r"tokens is float32; expected integers"):
        tokenizer.decode(tokens.float())
    with pytest.raises(InputError, match=f"tokens holds {tokenizer.codebook_size}; expected integers from 0"):
        tokenizer.decode(tokens + tokenizer.codebook_size)
    with pytest.raises(InputError, match="tokens holds -1"):
        tokenizer.decode(tokens - 1)


def test_the_image_size_changes_no_weight_of_the_vqgan() -> None:
    with torch.device("meta"):
        small, large = VQGAN(), VQGAN(PAPER_512)
    assert {k: v.shape for k, v in small.state_dict().items()} == {k: v.shape for k, v in large.state_dict().items()}
    assert (small.grid, large.grid, large.num_tokens) == ((16, 16), (32, 32), 1024)
    assert sum(p.numel() for p in small.parameters()) == 54_515_587


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"image_size": 30}, "image_size is 30; it must be a positive multiple of 16"),
        ({"filters": 48}, "filters is 48; it must be a positive multiple of 32"),
        ({"multipliers": ()}, "multipliers is ()"),
        ({"blocks": 0}, "blocks is 0"),
        ({"codebook_size": 0}, "codebook_size is 0"),
    ],
)
def test_impossible_sizes_of_a_vqgan_are_refused(arguments: dict, complaint: str) -> None:
    with pytest.raises(InputError) as error, torch.device("meta"):
        VQGAN(VQGANConfig(**arguments))
    assert complaint in str(error.value)


def test_a_margin_fits_an_image_to_the_grid_and_is_cut_off_again() -> None:
    tokenizer = CompactTokenizer(CompactConfig(factor=3, margin=1, width=16, codebook_size=16))
    assert tokenizer.grid == (10, 10)
    images = torch.rand(2, 1, 28, 28)
    tokens = tokenizer.encode(images)
    assert tokens.shape == (2, 100)
    assert tokenizer.decode(tokens).shape == images.shape
    plain = CompactTokenizer(CompactConfig(image_size=30, factor=3, width=16, codebook_size=16))
    plain.load_state_dict(tokenizer.state_dict())
    assert plain.encode(torch.nn.functional.pad(images, (1, 1, 1, 1))).equal(tokens)
    assert plain.decode(tokens)[..., 1:-1, 1:-1].equal(tokenizer.decode(tokens))


@pytest.mark.parametrize(("kernel", "alone"), [(1, True), (3, False)])
def test_with_an_encoder_kernel_of_1_a_token_tells_of_its_own_pixels_alone(kernel: int, alone: bool) -> None:
    tokenizer = CompactTokenizer(CompactConfig(image_size=12, width=16, codebook_size=16, encoder_kernel=kernel))
    images = torch.rand(1, 1, 12, 12)
    changed = images.clone()
    changed[..., 4:8, 4:8] = torch.rand(4, 4)  # the middle one of 3 x 3 patches
    same = (tokenizer.to_latents(images) == tokenizer.to_latents(changed)).all(1).flatten()
    assert same.tolist() == [place != 4 and alone for place in range(9)]


def test_impossible_sizes_of_a_compact_tokenizer_are_refused() -> None:
    with pytest.raises(InputError, match="image_size is 30; it must be a positive multiple of 4"):
        CompactTokenizer(CompactConfig(image_size=30))
    with pytest.raises(InputError, match=r"image_size is 28 with a margin of 2 on each side; .* multiple of 3"):
        CompactTokenizer(CompactConfig(factor=3, margin=2))
    with pytest.raises(InputError, match="decoder_blocks is -1"):
        CompactConfig(decoder_blocks=-1)
    with pytest.raises(InputError, match="encoder_kernel is 2; it must be odd"):
        CompactConfig(encoder_kernel=2)
