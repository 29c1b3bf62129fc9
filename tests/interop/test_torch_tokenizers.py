"""Published torch tokenizers: parity with plain code written from their descriptions, and files that do not fit."""

from pathlib import Path

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.interop.torch_tokenizers import import_muse_tokenizer, import_taming_tokenizer
from tokencritic.tokenizers.vqgan import TamingVQGAN

State = dict[str, Tensor]
CODEBOOK = "quantize.embedding.weight"


class Weights:
    """Random tensors under the names of a checkpoint."""

    def __init__(self) -> None:
        self.rng = torch.Generator().manual_seed(0)
        self.state: State = {}

    def convolution(self, name: str, old: int, new: int, size: int = 3, bias: bool = True) -> None:
        self.state[f"{name}.weight"] = torch.randn(new, old, size, size, generator=self.rng) / (size * old**0.5)
        if bias:
            self.state[f"{name}.bias"] = torch.randn(new, generator=self.rng)

    def norm(self, name: str, width: int) -> None:
        self.state[f"{name}.weight"] = 1 + 0.3 * torch.randn(width, generator=self.rng)
        self.state[f"{name}.bias"] = 0.3 * torch.randn(width, generator=self.rng)

    def block(self, name: str, old: int, new: int, quirk: bool) -> None:
        self.norm(f"{name}.norm1", old)
        self.convolution(f"{name}.conv1", old, new, bias=not quirk)
        self.norm(f"{name}.norm2", new)
        self.convolution(f"{name}.conv2", new, new, bias=not quirk)
        if old != new:
            self.convolution(f"{name}.nin_shortcut", new if quirk else old, new, 1, bias=not quirk)

    def attention(self, name: str, width: int) -> None:
        self.norm(f"{name}.norm", width)
        for layer in ("q", "k", "v", "proj_out"):
            self.convolution(f"{name}.{layer}", width, width, 1)


def convolve(state: State, name: str, x: Tensor, stride: int = 1) -> Tensor:
    weight = state[f"{name}.weight"]
    return F.conv2d(x, weight, state.get(f"{name}.bias"), stride, 0 if stride > 1 else weight.shape[-1] // 2)


def active(state: State, name: str, x: Tensor) -> Tensor:
    x = F.group_norm(x, 32, state[f"{name}.weight"], state[f"{name}.bias"], 1e-6)
    return x * x.sigmoid()


def residual(state: State, name: str, x: Tensor, quirk: bool) -> Tensor:
    y = convolve(state, f"{name}.conv1", active(state, f"{name}.norm1", x))
    y = convolve(state, f"{name}.conv2", active(state, f"{name}.norm2", y))
    if f"{name}.nin_shortcut.weight" in state:
        x = convolve(state, f"{name}.nin_shortcut", y if quirk else x)
    return x + y


def attend(state: State, name: str, x: Tensor) -> Tensor:
    y = F.group_norm(x, 32, state[f"{name}.norm.weight"], state[f"{name}.norm.bias"], 1e-6)
    q, k, v = (convolve(state, f"{name}.{layer}", y).flatten(2) for layer in "qkv")
    weights = (torch.einsum("bci,bcj->bij", q, k) / q.shape[1] ** 0.5).softmax(2)
    return x + convolve(state, f"{name}.proj_out", torch.einsum("bij,bcj->bci", weights, v).view_as(x))


def nearest(state: State, x: Tensor) -> Tensor:
    rows = x.permute(0, 2, 3, 1).flatten(1, 2)
    return (rows[:, :, None] - state[CODEBOOK]).square().sum(-1).argmin(-1)


def codes(state: State, tokens: Tensor) -> Tensor:
    side = int(tokens.shape[1] ** 0.5)
    return state[CODEBOOK][tokens].transpose(1, 2).unflatten(2, (side, side))


def double(x: Tensor) -> Tensor:
    return x.repeat_interleave(2, 2).repeat_interleave(2, 3)


# open-muse and TiTok: MaskGIT's VQGAN


def muse_weights(widths: list[int], blocks: int, size: int, code_width: int) -> State:
    w = Weights()
    w.state[CODEBOOK] = torch.randn(size, code_width, generator=w.rng)
    w.convolution("encoder.conv_in", 3, widths[0], bias=False)
    w.convolution("decoder.conv_in", code_width, widths[-1])
    for level, width in enumerate(widths):
        before, after = widths[max(level - 1, 0)], widths[min(level + 1, len(widths) - 1)]
        for i in range(blocks):
            w.block(f"encoder.down.{level}.block.{i}", width if i else before, width, quirk=True)
            w.block(f"decoder.up.{level}.block.{i}", width if i else after, width, quirk=True)
        if level:
            w.convolution(f"decoder.up.{level}.upsample_conv", width, width)
    for i in range(blocks):
        w.block(f"encoder.mid.{i}", widths[-1], widths[-1], quirk=True)
        w.block(f"decoder.mid.{i}", widths[-1], widths[-1], quirk=True)
    w.norm("encoder.norm_out", widths[-1])
    w.convolution("encoder.conv_out", widths[-1], code_width, 1)
    w.norm("decoder.norm_out", widths[0])
    w.convolution("decoder.conv_out", widths[0], 3)
    return w.state


def muse_encode(state: State, x: Tensor, levels: int, blocks: int) -> Tensor:
    x = convolve(state, "encoder.conv_in", x)
    for level in range(levels):
        for i in range(blocks):
            x = residual(state, f"encoder.down.{level}.block.{i}", x, quirk=True)
        if level < levels - 1:
            x = F.avg_pool2d(x, 2)
    for i in range(blocks):
        x = residual(state, f"encoder.mid.{i}", x, quirk=True)
    return nearest(state, convolve(state, "encoder.conv_out", active(state, "encoder.norm_out", x)))


def muse_decode(state: State, tokens: Tensor, levels: int, blocks: int) -> Tensor:
    x = convolve(state, "decoder.conv_in", codes(state, tokens))
    for i in range(blocks):
        x = residual(state, f"decoder.mid.{i}", x, quirk=True)
    for level in reversed(range(levels)):
        for i in range(blocks):
            x = residual(state, f"decoder.up.{level}.block.{i}", x, quirk=True)
        if level:
            x = convolve(state, f"decoder.up.{level}.upsample_conv", double(x))
    return convolve(state, "decoder.conv_out", active(state, "decoder.norm_out", x))


@pytest.mark.parametrize(("widths", "blocks"), [([32, 32, 64], 2), ([32, 64, 32, 96], 1)])
@pytest.mark.parametrize("suffix", [".safetensors", ".bin"])
def test_a_muse_tokenizer_computes_what_its_weights_say(
    tmp_path: Path, widths: list[int], blocks: int, suffix: str
) -> None:
    state = muse_weights(widths, blocks, 40, 8)
    file = tmp_path / f"maskgit-vqgan{suffix}"
    (safetensors.torch.save_file if suffix == ".safetensors" else torch.save)(state, file)
    size = 2 ** (len(widths) - 1) * 3
    tokenizer = import_muse_tokenizer(file, image_size=size)
    assert tokenizer.config.widths == tuple(widths)
    rng = torch.Generator().manual_seed(1)
    images = torch.rand(2, 3, size, size, generator=rng)
    assert torch.equal(tokenizer.encode(images), muse_encode(state, images, len(widths), blocks))
    tokens = torch.randint(0, 40, (2, 9), generator=rng)
    with torch.no_grad():
        made = tokenizer.to_images(tokenizer.quantizer.look_up(tokens, tokenizer.grid))
    torch.testing.assert_close(made, muse_decode(state, tokens, len(widths), blocks), atol=1e-4, rtol=1e-4)


def test_a_muse_tokenizer_is_for_256_pixels_unless_told(tmp_path: Path) -> None:
    safetensors.torch.save_file(muse_weights([32, 64], 1, 6, 4), tmp_path / "m.safetensors")
    assert import_muse_tokenizer(tmp_path / "m.safetensors").image_size == 256


# taming-transformers


def taming_weights(widths: list[int], blocks: int, attention: tuple[int, ...], latent: int, code_width: int) -> State:
    w = Weights()
    w.state[CODEBOOK] = torch.randn(30, code_width, generator=w.rng)
    w.convolution("quant_conv", latent, code_width, 1)
    w.convolution("post_quant_conv", code_width, latent, 1)
    w.convolution("encoder.conv_in", 3, 32)
    w.convolution("decoder.conv_in", latent, widths[-1])
    for level, width in enumerate(widths):
        before, after = ([32, *widths])[level], ([*widths, widths[-1]])[level + 1]
        for i in range(blocks + 1):
            if i < blocks:
                w.block(f"encoder.down.{level}.block.{i}", width if i else before, width, quirk=False)
            w.block(f"decoder.up.{level}.block.{i}", width if i else after, width, quirk=False)
            if level in attention:
                if i < blocks:
                    w.attention(f"encoder.down.{level}.attn.{i}", width)
                w.attention(f"decoder.up.{level}.attn.{i}", width)
        if level < len(widths) - 1:
            w.convolution(f"encoder.down.{level}.downsample.conv", width, width)
        if level:
            w.convolution(f"decoder.up.{level}.upsample.conv", width, width)
    for part, width, out in (("encoder", widths[-1], latent), ("decoder", widths[0], 3)):
        for name in ("block_1", "block_2"):
            w.block(f"{part}.mid.{name}", widths[-1], widths[-1], quirk=False)
        w.attention(f"{part}.mid.attn_1", widths[-1])
        w.norm(f"{part}.norm_out", width)
        w.convolution(f"{part}.conv_out", width, out)
    return w.state


def taming_middle(state: State, part: str, x: Tensor) -> Tensor:
    x = residual(state, f"{part}.mid.block_1", x, quirk=False)
    return residual(state, f"{part}.mid.block_2", attend(state, f"{part}.mid.attn_1", x), quirk=False)


def taming_level(state: State, name: str, x: Tensor) -> Tensor:
    i = 0
    while f"{name}.block.{i}.conv1.weight" in state:
        x = residual(state, f"{name}.block.{i}", x, quirk=False)
        if f"{name}.attn.{i}.q.weight" in state:
            x = attend(state, f"{name}.attn.{i}", x)
        i += 1
    return x


def taming_encode(state: State, images: Tensor, levels: int) -> Tensor:
    x = convolve(state, "encoder.conv_in", images * 2 - 1)
    for level in range(levels):
        x = taming_level(state, f"encoder.down.{level}", x)
        if level < levels - 1:
            x = convolve(state, f"encoder.down.{level}.downsample.conv", F.pad(x, (0, 1, 0, 1)), stride=2)
    x = active(state, "encoder.norm_out", taming_middle(state, "encoder", x))
    return nearest(state, convolve(state, "quant_conv", convolve(state, "encoder.conv_out", x)))


def taming_decode(state: State, tokens: Tensor, levels: int) -> Tensor:
    x = convolve(state, "decoder.conv_in", convolve(state, "post_quant_conv", codes(state, tokens)))
    x = taming_middle(state, "decoder", x)
    for level in reversed(range(levels)):
        x = taming_level(state, f"decoder.up.{level}", x)
        if level:
            x = convolve(state, f"decoder.up.{level}.upsample.conv", double(x))
    return (convolve(state, "decoder.conv_out", active(state, "decoder.norm_out", x)) + 1) / 2


@pytest.mark.parametrize(
    ("widths", "blocks", "attention", "latent", "code_width"),
    [([32, 64], 2, (1,), 12, 5), ([64, 32, 32], 1, (), 8, 8), ([32, 32, 64], 1, (1, 2), 6, 9)],
)
def test_a_taming_tokenizer_computes_what_its_weights_say(
    tmp_path: Path, widths: list[int], blocks: int, attention: tuple[int, ...], latent: int, code_width: int
) -> None:
    state = taming_weights(widths, blocks, attention, latent, code_width)
    # As Lightning saves it: more around, and the discriminator's weights among the rest.
    extra = {"loss.discriminator.main.0.weight": torch.zeros(3), "loss.logvar": torch.zeros(())}
    torch.save({"epoch": 3, "state_dict": {**state, **extra}, "lr_schedulers": []}, tmp_path / "last.ckpt")
    size = 2 ** (len(widths) - 1) * 3
    tokenizer = import_taming_tokenizer(tmp_path / "last.ckpt", image_size=size)
    assert tokenizer.config.attention == attention
    assert (tokenizer.num_tokens, tokenizer.codebook_size) == (9, 30)
    rng = torch.Generator().manual_seed(1)
    images = torch.rand(2, 3, size, size, generator=rng)
    assert torch.equal(tokenizer.encode(images), taming_encode(state, images, len(widths)))
    tokens = torch.randint(0, 30, (2, 9), generator=rng)
    with torch.no_grad():
        made = tokenizer.to_images(tokenizer.quantizer.look_up(tokens, tokenizer.grid))
    torch.testing.assert_close(made, taming_decode(state, tokens, len(widths)), atol=1e-4, rtol=1e-4)
    tokenizer.save_pretrained(tmp_path / "saved")
    again = TamingVQGAN.from_pretrained(tmp_path / "saved")
    assert again.config == tokenizer.config
    assert torch.equal(again.decode(tokens), tokenizer.decode(tokens))


def test_safetensors_of_a_taming_tokenizer_are_read_too(tmp_path: Path) -> None:
    state = taming_weights([32, 32], 1, (), 8, 8)
    safetensors.torch.save_file(state, tmp_path / "v.safetensors")
    tokenizer = import_taming_tokenizer(tmp_path / "v.safetensors")
    assert torch.equal(tokenizer.quantizer.codebook, state[CODEBOOK])
    assert tokenizer.image_size == 256


# Files that do not fit


def test_a_checkpoint_with_more_than_tensors_tells_how_to_convert_it(tmp_path: Path) -> None:
    file = tmp_path / "last.ckpt"
    torch.save({"state_dict": {}, "callbacks": {Path: 1}}, file)
    with pytest.raises(InputError, match=r"holds more than tensors.*weights_only=False.*save_file") as error:
        import_taming_tokenizer(file)
    assert "\n" not in str(error.value)


def test_files_that_are_no_weights_are_named(tmp_path: Path) -> None:
    state = muse_weights([32], 1, 6, 4)
    torch.save(state, tmp_path / "whole.pt")
    (tmp_path / "cut.pt").write_bytes((tmp_path / "whole.pt").read_bytes()[:4000])
    safetensors.torch.save_file(state, tmp_path / "whole.safetensors")
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "whole.safetensors").read_bytes()[:4000])
    (tmp_path / "text.ckpt").write_text("hello\n")
    (tmp_path / "empty.ckpt").write_bytes(b"")
    torch.save([1, 2], tmp_path / "list.pt")
    for name in ("cut.pt", "cut.safetensors", "text.ckpt", "empty.ckpt", "list.pt", "absent.pt"):
        with pytest.raises(InputError, match=name) as error:
            import_muse_tokenizer(tmp_path / name)
        assert "\n" not in str(error.value)


def test_tensors_that_do_not_fit_are_listed(tmp_path: Path) -> None:
    state = taming_weights([32, 32], 1, (), 8, 8)
    del state["decoder.mid.attn_1.q.bias"]
    state["decoder.norm_out.weight"] = torch.zeros(7)
    state["teacher.weight"] = torch.zeros(7)
    torch.save({"state_dict": state}, tmp_path / "t.ckpt")
    with pytest.raises(InputError) as error:
        import_taming_tokenizer(tmp_path / "t.ckpt")
    text = str(error.value)
    assert "missing: decoder.mid.attn_1.q.bias" in text
    assert "unexpected: teacher.weight" in text
    assert "decoder.norm_out.weight (7,) instead of (32,)" in text


def test_each_kind_of_tokenizer_is_refused_as_the_other(tmp_path: Path) -> None:
    torch.save(muse_weights([32, 32], 1, 6, 4), tmp_path / "muse.pt")
    torch.save(taming_weights([32, 32], 1, (), 8, 8), tmp_path / "taming.pt")
    with pytest.raises(InputError, match=r"no array quant_conv\.weight"):
        import_taming_tokenizer(tmp_path / "muse.pt")
    with pytest.raises(InputError, match=r"taming\.pt does not hold the arrays of a VQGAN"):
        import_muse_tokenizer(tmp_path / "taming.pt")
