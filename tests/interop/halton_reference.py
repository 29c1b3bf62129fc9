"""Halton-MaskGIT's transformer and LlamaGen's tokenizer in plain functions, over random arrays with the names of the files."""

import torch
import torch.nn.functional as F
from torch import Tensor

Arrays = dict[str, Tensor]


def random_generator(
    tokens: int = 9,
    codes: int = 20,
    classes: int = 4,
    width: int = 12,
    layers: int = 2,
    heads: int = 2,
    mlp_width: int = 16,
    registers: int = 1,
) -> Arrays:
    rng = torch.Generator().manual_seed(0)
    d, r = width, heads * (width // heads)
    shapes: dict[str, tuple[int, ...]] = {
        "cls_emb.weight": (classes + 1, d),
        "tok_emb.weight": (codes + 1, d),
        "pos_emb.weight": (tokens, d),
        "last_norm.norm_final.weight": (d,),
        "last_norm.norm_final.bias": (d,),
        "last_norm.mlp.1.weight": (2 * d, d),
        "last_norm.mlp.1.bias": (2 * d,),
        "head.bias": (codes + 1,),
    }
    if registers:
        shapes["reg_tokens.weight"] = (registers, d)
    for i in range(layers):
        name = f"transformer.layers.{i}"
        shapes |= {f"{name}.mlp.1.weight": (6 * d, d), f"{name}.mlp.1.bias": (6 * d,)}
        shapes |= {f"{name}.ln{j}.weight": (d,) for j in (1, 2)}
        shapes |= {f"{name}.attn.{part}.weight": (r, d) for part in ("wq", "wk", "wv")}
        shapes |= {f"{name}.attn.wo.weight": (d, r), f"{name}.ff.w2.weight": (d, mlp_width)}
        shapes |= {f"{name}.ff.{part}.weight": (mlp_width, d) for part in ("w1", "w3")}
    arrays = {name: 0.5 * torch.randn(shape, generator=rng) for name, shape in shapes.items()}
    return arrays | {"head.weight": arrays["tok_emb.weight"]}


def reference_logits(arrays: Arrays, heads: int, masked_tokens: Tensor, labels: Tensor) -> Tensor:
    """The transformer as the original computes it, head by head, in float64 from the arrays as they are in the file."""
    w = {name: value.double() for name, value in arrays.items()}

    def rms(x: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()

    def silu(x: Tensor) -> Tensor:
        return x / (1 + (-x).exp())

    c = silu(w["cls_emb.weight"][labels])[:, None]
    h = w["tok_emb.weight"][masked_tokens] + w["pos_emb.weight"]
    if "reg_tokens.weight" in w:
        h = torch.cat([h, w["reg_tokens.weight"].expand(len(h), -1, -1)], 1)
    i = 0
    while f"transformer.layers.{i}.ln1.weight" in w:
        b = {name.split(".", 3)[3]: value for name, value in w.items() if name.startswith(f"transformer.layers.{i}.")}
        shift, scale, gate, shift2, scale2, gate2 = (c @ b["mlp.1.weight"].T + b["mlp.1.bias"]).chunk(6, -1)
        x = rms(h) * b["ln1.weight"] * (1 + scale) + shift
        q, k, v = (x @ b[f"attn.{part}.weight"].T for part in ("wq", "wk", "wv"))
        q, k = rms(q), rms(k)
        size = q.shape[-1] // heads
        parts = [slice(j * size, (j + 1) * size) for j in range(heads)]
        scores = [(q[..., part] @ k[..., part].mT / size**0.5).softmax(-1) @ v[..., part] for part in parts]
        h = h + gate * (torch.cat(scores, -1) @ b["attn.wo.weight"].T)
        x = rms(h) * b["ln2.weight"] * (1 + scale2) + shift2
        h = h + gate2 * ((silu(x @ b["ff.w1.weight"].T) * (x @ b["ff.w3.weight"].T)) @ b["ff.w2.weight"].T)
        i += 1
    shift, scale = (c @ w["last_norm.mlp.1.weight"].T + w["last_norm.mlp.1.bias"]).chunk(2, -1)
    h = rms(h[:, : masked_tokens.shape[1]]) * w["last_norm.norm_final.weight"] + w["last_norm.norm_final.bias"]
    return ((h * (1 + scale) + shift) @ w["tok_emb.weight"].T + w["head.bias"])[..., :-1]


class Weights:
    """Random weights of a tokenizer, under LlamaGen's names."""

    def __init__(self) -> None:
        self.state: Arrays = {}
        self.rng = torch.Generator().manual_seed(0)

    def convolution(self, name: str, old: int, new: int, size: int = 3) -> None:
        self.state[f"{name}.weight"] = torch.randn(new, old, size, size, generator=self.rng) / (size * old**0.5)
        self.state[f"{name}.bias"] = 0.3 * torch.randn(new, generator=self.rng)

    def norm(self, name: str, width: int) -> None:
        self.state[f"{name}.weight"] = 1 + 0.3 * torch.randn(width, generator=self.rng)
        self.state[f"{name}.bias"] = 0.3 * torch.randn(width, generator=self.rng)

    def residual(self, name: str, old: int, new: int) -> None:
        self.norm(f"{name}.norm1", old)
        self.convolution(f"{name}.conv1", old, new)
        self.norm(f"{name}.norm2", new)
        self.convolution(f"{name}.conv2", new, new)
        if old != new:
            self.convolution(f"{name}.nin_shortcut", old, new, 1)

    def attention(self, name: str, width: int) -> None:
        self.norm(f"{name}.norm", width)
        for part in ("q", "k", "v", "proj_out"):
            self.convolution(f"{name}.{part}", width, width, 1)

    def levels(self, part: str, widths: list[int], first: int, blocks: int, deepest: int, resampling: str) -> None:
        width = first
        for i, new in enumerate(widths):
            for j in range(blocks):
                self.residual(f"{part}.conv_blocks.{i}.res.{j}", new if j else width, new)
                if i == deepest:
                    self.attention(f"{part}.conv_blocks.{i}.attn.{j}", new)
            width = new
            if i < len(widths) - 1:
                self.convolution(f"{part}.conv_blocks.{i}.{resampling}.conv", new, new)


def random_tokenizer(multipliers: tuple[int, ...], blocks: int, codes: int, code_width: int, latent: int) -> Arrays:
    widths, w = [32 * multiplier for multiplier in multipliers], Weights()
    w.convolution("encoder.conv_in", 3, 32)
    w.levels("encoder", widths, 32, blocks, len(widths) - 1, "downsample")
    w.convolution("decoder.conv_in", latent, widths[-1])
    w.levels("decoder", widths[::-1], widths[-1], blocks + 1, 0, "upsample")
    for part, width, out in (("encoder", widths[-1], latent), ("decoder", widths[0], 3)):
        for i in (0, 2):
            w.residual(f"{part}.mid.{i}", widths[-1], widths[-1])
        w.attention(f"{part}.mid.1", widths[-1])
        w.norm(f"{part}.norm_out", width)
        w.convolution(f"{part}.conv_out", width, out)
    w.convolution("quant_conv", latent, code_width, 1)
    w.convolution("post_quant_conv", code_width, latent, 1)
    w.state["quantize.embedding.weight"] = torch.randn(codes, code_width, generator=w.rng)
    w.state["quantize.codebook_used"] = torch.zeros(11)
    return w.state


class Reference:
    """LlamaGen's tokenizer from the arrays as they are in the file. Images in [-1, 1]."""

    def __init__(self, state: Arrays) -> None:
        self.state = state
        codes = state["quantize.embedding.weight"]
        self.codes = codes / codes.square().sum(1, keepdim=True).sqrt()

    def convolve(self, x: Tensor, name: str, padding: int = 0, stride: int = 1) -> Tensor:
        return F.conv2d(x, self.state[f"{name}.weight"], self.state[f"{name}.bias"], stride, padding)

    def norm(self, x: Tensor, name: str) -> Tensor:
        return F.group_norm(x, 32, self.state[f"{name}.weight"], self.state[f"{name}.bias"], 1e-6)

    def residual(self, x: Tensor, name: str) -> Tensor:
        y = self.convolve(F.silu(self.norm(x, f"{name}.norm1")), f"{name}.conv1", 1)
        y = self.convolve(F.silu(self.norm(y, f"{name}.norm2")), f"{name}.conv2", 1)
        shortcut = f"{name}.nin_shortcut"
        return y + (self.convolve(x, shortcut) if f"{shortcut}.weight" in self.state else x)

    def attention(self, x: Tensor, name: str) -> Tensor:
        y = self.norm(x, f"{name}.norm")
        q, k, v = (self.convolve(y, f"{name}.{part}").flatten(2) for part in ("q", "k", "v"))
        weights = (q.mT @ k / x.shape[1] ** 0.5).softmax(2)
        return x + self.convolve((v @ weights.mT).view_as(x), f"{name}.proj_out")

    def level(self, x: Tensor, name: str) -> Tensor:
        j = 0
        while f"{name}.res.{j}.conv1.weight" in self.state:
            x = self.residual(x, f"{name}.res.{j}")
            if f"{name}.attn.{j}.q.weight" in self.state:
                x = self.attention(x, f"{name}.attn.{j}")
            j += 1
        return x

    def middle(self, x: Tensor, part: str) -> Tensor:
        x = self.attention(self.residual(x, f"{part}.mid.0"), f"{part}.mid.1")
        return self.residual(x, f"{part}.mid.2")

    def encode(self, images: Tensor, levels: int) -> Tensor:
        x = self.convolve(images, "encoder.conv_in", 1)
        for i in range(levels):
            x = self.level(x, f"encoder.conv_blocks.{i}")
            if i < levels - 1:
                x = self.convolve(F.pad(x, (0, 1, 0, 1)), f"encoder.conv_blocks.{i}.downsample.conv", stride=2)
        x = F.silu(self.norm(self.middle(x, "encoder"), "encoder.norm_out"))
        x = self.convolve(self.convolve(x, "encoder.conv_out", 1), "quant_conv").permute(0, 2, 3, 1).flatten(1, 2)
        return (x[:, :, None] / x.square().sum(-1)[:, :, None, None].sqrt() - self.codes).square().sum(-1).argmin(-1)

    def decode(self, tokens: Tensor, levels: int) -> Tensor:
        x = self.convolve(self.codes[tokens].permute(0, 3, 1, 2), "post_quant_conv")
        x = self.middle(self.convolve(x, "decoder.conv_in", 1), "decoder")
        for i in range(levels):
            x = self.level(x, f"decoder.conv_blocks.{i}")
            if i < levels - 1:
                x = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
                x = self.convolve(x, f"decoder.conv_blocks.{i}.upsample.conv", 1)
        return self.convolve(F.silu(self.norm(x, "decoder.norm_out")), "decoder.conv_out", 1)
