"""TiTok's files with random weights of any size, and what they compute, in plain functions over the arrays of a file."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

State = dict[str, Tensor]


class _Weights:
    """Random tensors under the names of a checkpoint; none is 0 or 1."""

    def __init__(self, seed: int) -> None:
        self.rng, self.state = torch.Generator().manual_seed(seed), {}

    def draw(self, name: str, *shape: int, scale: float = 0.3, mean: float = 0.0) -> None:
        self.state[name] = mean + scale * torch.randn(*shape, generator=self.rng)

    def linear(self, name: str, new: int, old: int, *kernel: int, bias: bool = True) -> None:
        self.draw(f"{name}.weight", new, old, *kernel, scale=(old * math.prod(kernel)) ** -0.5)
        if bias:
            self.draw(f"{name}.bias", new)

    def norm(self, name: str, width: int) -> None:
        self.draw(f"{name}.weight", width, mean=1.0)
        self.draw(f"{name}.bias", width)


def bert_file(tokens=9, codes=20, classes=3, width=24, layers=2, mlp_width=40, seed=0) -> State:
    w = _Weights(seed)
    for name, rows in (("word", codes + classes + 2), ("position", tokens + 1), ("token_type", 2)):
        w.draw(f"model.embeddings.{name}_embeddings.weight", rows, width, scale=1.0)
    w.norm("model.embeddings.LayerNorm", width)
    for i in range(layers):
        layer = f"model.encoder.layer.{i}"
        for name in ("query", "key", "value"):
            w.linear(f"{layer}.attention.self.{name}", width, width)
        w.linear(f"{layer}.attention.output.dense", width, width)
        w.norm(f"{layer}.attention.output.LayerNorm", width)
        w.linear(f"{layer}.intermediate.dense", mlp_width, width)
        w.linear(f"{layer}.output.dense", width, mlp_width)
        w.norm(f"{layer}.output.LayerNorm", width)
    w.linear("model.lm_head", codes, width)
    return w.state


def uvit_file(tokens=9, codes=20, classes=3, width=24, half=2, mlp_width=40, seed=0) -> State:
    w = _Weights(seed)
    w.draw("embeddings.weight", codes + classes + 2, width, scale=1.0)
    w.draw("pos_embed", 1, tokens + 1, width, scale=1.0)
    ends = [f"{part}_blocks.{i}" for part in ("in", "out") for i in range(half)]
    for block in ("mid_block", *ends):
        w.norm(f"{block}.norm1", width)
        w.linear(f"{block}.attn.qkv", 3 * width, width, bias=False)
        w.linear(f"{block}.attn.proj", width, width)
        w.norm(f"{block}.norm2", width)
        w.linear(f"{block}.mlp.fc1", mlp_width, width)
        w.linear(f"{block}.mlp.fc2", width, mlp_width)
        if block.startswith("out"):
            w.linear(f"{block}.skip_linear", width, 2 * width)
    w.norm("norm", width)
    w.linear("lm_head", codes, width)
    return w.state


def tokenizer_file(
    tokens=9, codes=20, code_width=5, side=2, widths=(32, 64), encoder=(64, 1), decoder=(128, 2), pixel_codes=11, seed=0
) -> State:
    """widths: of the pixel decoder's levels. encoder, decoder: width and layers."""
    w = _Weights(seed)
    patch, (width, _), (decoder_width, _) = 2 ** (len(widths) - 1), encoder, decoder
    w.draw("latent_tokens", tokens, width)
    w.linear("encoder.patch_embed", width, 3, patch, patch)
    w.linear("encoder.conv_out", code_width, width, 1, 1)
    w.draw("quantize.embedding.weight", codes, code_width)
    w.linear("decoder.decoder_embed", decoder_width, code_width)
    w.draw("decoder.mask_token", 1, 1, decoder_width)
    w.linear("decoder.ffn.0", 2 * decoder_width, decoder_width, 1, 1)
    w.linear("decoder.ffn.2", pixel_codes, 2 * decoder_width, 1, 1)
    for part, (size, layers) in (("encoder", encoder), ("decoder", decoder)):
        w.draw(f"{part}.class_embedding", 1, size)
        w.draw(f"{part}.positional_embedding", side * side + 1, size)
        w.draw(f"{part}.latent_token_positional_embedding", tokens, size)
        for i in range(layers):
            block = f"{part}.transformer.{i}"
            w.draw(f"{block}.attn.in_proj_weight", 3 * size, size, scale=size**-0.5)
            w.draw(f"{block}.attn.in_proj_bias", 3 * size)
            w.linear(f"{block}.attn.out_proj", size, size)
            w.linear(f"{block}.mlp.c_fc", 4 * size, size)
            w.linear(f"{block}.mlp.c_proj", size, 4 * size)
            w.norm(f"{block}.ln_1", size)
            w.norm(f"{block}.ln_2", size)
        w.norm(f"{part}.ln_pre", size)
        w.norm(f"{part}.ln_post", size)
    _draw_pixel_decoder(w, widths, pixel_codes)
    return w.state


def _draw_pixel_decoder(w: _Weights, widths: tuple[int, ...], pixel_codes: int) -> None:
    w.draw("pixel_quantize.embedding.weight", pixel_codes, 6)
    w.linear("pixel_decoder.conv_in", widths[-1], 6, 3, 3)
    blocks = {f"pixel_decoder.mid.{j}": (widths[-1], widths[-1]) for j in range(2)}
    for u, width in enumerate(widths):
        before = widths[min(u + 1, len(widths) - 1)]
        blocks |= {f"pixel_decoder.up.{u}.block.{j}": (width if j else before, width) for j in range(2)}
        if u:
            w.linear(f"pixel_decoder.up.{u}.upsample_conv", width, width, 3, 3)
    for name, (old, new) in blocks.items():
        w.norm(f"{name}.norm1", old)
        w.linear(f"{name}.conv1", new, old, 3, 3, bias=False)
        w.norm(f"{name}.norm2", new)
        w.linear(f"{name}.conv2", new, new, 3, 3, bias=False)
        if old != new:
            w.linear(f"{name}.nin_shortcut", new, new, 1, 1, bias=False)
    w.norm("pixel_decoder.norm_out", widths[0])
    w.linear("pixel_decoder.conv_out", 3, widths[0], 3, 3)


# What the files compute, in float64.


def dense(w: State, name: str, x: Tensor) -> Tensor:
    return F.linear(x, w[f"{name}.weight"].flatten(1), w.get(f"{name}.bias"))


def normed(w: State, name: str, x: Tensor, epsilon: float = 1e-5) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], epsilon)


def attend(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    outputs = []
    for a, b, c in zip(*(y.chunk(heads, -1) for y in (q, k, v)), strict=True):
        outputs.append((a @ b.transpose(1, 2) / math.sqrt(a.shape[-1])).softmax(-1) @ c)
    return torch.cat(outputs, -1)


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def doubled(state: State) -> State:
    return {name: value.double() for name, value in state.items()}


def sequence(hidden: Tensor, tokens: Tensor, labels: Tensor, codes: int) -> Tensor:
    """The file's own ids: codes, the mask, the classes, the null class; the class first. hidden: (b, n) bool."""
    return torch.cat([labels[:, None] + codes + 1, tokens.masked_fill(hidden, codes)], 1)


def bert_logits(state: State, ids: Tensor, heads: int) -> Tensor:
    w = doubled(state)
    x = w["model.embeddings.word_embeddings.weight"][ids] + w["model.embeddings.position_embeddings.weight"]
    x = normed(w, "model.embeddings.LayerNorm", x + w["model.embeddings.token_type_embeddings.weight"][0], 1e-12)
    layers = {name.split(".")[3] for name in w if name.startswith("model.encoder.layer.")}
    for i in range(len(layers)):
        layer = f"model.encoder.layer.{i}"
        qkv = (dense(w, f"{layer}.attention.self.{name}", x) for name in ("query", "key", "value"))
        y = dense(w, f"{layer}.attention.output.dense", attend(*qkv, heads))
        x = normed(w, f"{layer}.attention.output.LayerNorm", x + y, 1e-12)
        y = dense(w, f"{layer}.output.dense", gelu(dense(w, f"{layer}.intermediate.dense", x)))
        x = normed(w, f"{layer}.output.LayerNorm", x + y, 1e-12)
    return dense(w, "model.lm_head", x[:, 1:])


def uvit_logits(state: State, ids: Tensor, heads: int) -> Tensor:
    w = doubled(state)

    def block(name: str, x: Tensor) -> Tensor:
        qkv = dense(w, f"{name}.attn.qkv", normed(w, f"{name}.norm1", x)).chunk(3, -1)
        x = x + dense(w, f"{name}.attn.proj", attend(*qkv, heads))
        return x + dense(w, f"{name}.mlp.fc2", gelu(dense(w, f"{name}.mlp.fc1", normed(w, f"{name}.norm2", x))))

    x, kept = w["embeddings.weight"][ids] + w["pos_embed"], []
    half = len({name.split(".")[1] for name in w if name.startswith("in_blocks.")})
    for i in range(half):
        x = block(f"in_blocks.{i}", x)
        kept.append(x)
    x = block("mid_block", x)
    for i in range(half):
        joined = dense(w, f"out_blocks.{i}.skip_linear", torch.cat([x, kept[half - 1 - i]], -1))
        x = block(f"out_blocks.{i}", joined)
    return dense(w, "lm_head", normed(w, "norm", x[:, 1:]))


def _transformed(w: State, part: str, x: Tensor) -> Tensor:
    x = normed(w, f"{part}.ln_pre", x)
    layers = {name.split(".")[2] for name in w if name.startswith(f"{part}.transformer.")}
    for i in range(len(layers)):
        name = f"{part}.transformer.{i}"
        y = normed(w, f"{name}.ln_1", x)
        qkv = F.linear(y, w[f"{name}.attn.in_proj_weight"], w[f"{name}.attn.in_proj_bias"]).chunk(3, -1)
        x = x + dense(w, f"{name}.attn.out_proj", attend(*qkv, x.shape[-1] // 64))
        x = x + dense(w, f"{name}.mlp.c_proj", gelu(dense(w, f"{name}.mlp.c_fc", normed(w, f"{name}.ln_2", x))))
    return x


def encode(state: State, images: Tensor) -> Tensor:
    """Images in [0, 1] -> ids (b, n)."""
    w, batch = doubled(state), len(images)
    patch = w["encoder.patch_embed.weight"].shape[-1]
    x = F.conv2d(images.double(), w["encoder.patch_embed.weight"], w["encoder.patch_embed.bias"], patch)
    x = x.permute(0, 2, 3, 1).flatten(1, 2)
    x = torch.cat([w["encoder.class_embedding"].expand(batch, 1, -1), x], 1) + w["encoder.positional_embedding"]
    latents = w["latent_tokens"] + w["encoder.latent_token_positional_embedding"]
    x = _transformed(w, "encoder", torch.cat([x, latents.expand(batch, -1, -1)], 1))
    x = normed(w, "encoder.ln_post", x[:, -len(latents) :])
    z = F.normalize(dense(w, "encoder.conv_out", x.reshape(batch, -1, len(latents)).transpose(1, 2)), dim=-1)
    return (z @ F.normalize(w["quantize.embedding.weight"], dim=-1).T).argmax(-1)


def decode(state: State, ids: Tensor) -> Tensor:
    """ids (b, n) -> images, not clamped."""
    w, batch = doubled(state), len(ids)
    x = dense(w, "decoder.decoder_embed", F.normalize(w["quantize.embedding.weight"], dim=-1)[ids])
    x = x + w["decoder.latent_token_positional_embedding"]
    positions = w["decoder.positional_embedding"]
    masks = w["decoder.mask_token"].expand(batch, len(positions) - 1, -1)
    front = torch.cat([w["decoder.class_embedding"].expand(batch, 1, -1), masks], 1) + positions
    x = _transformed(w, "decoder", torch.cat([front, x], 1))
    x = normed(w, "decoder.ln_post", x[:, 1 : len(positions)])
    shares = dense(w, "decoder.ffn.2", dense(w, "decoder.ffn.0", x).tanh()).softmax(-1)
    side = math.isqrt(len(positions) - 1)
    x = (shares @ w["pixel_quantize.embedding.weight"]).transpose(1, 2).unflatten(2, (side, side))
    return _pixels(w, x)


def _pixels(w: State, x: Tensor) -> Tensor:
    def convolve(name: str, x: Tensor) -> Tensor:
        weight = w[f"{name}.weight"]
        return F.conv2d(x, weight, w.get(f"{name}.bias"), padding=weight.shape[-1] // 2)

    def active(name: str, x: Tensor) -> Tensor:
        return F.silu(F.group_norm(x, 32, w[f"{name}.weight"], w[f"{name}.bias"], 1e-6))

    def block(name: str, x: Tensor) -> Tensor:
        y = convolve(f"{name}.conv1", active(f"{name}.norm1", x))
        y = convolve(f"{name}.conv2", active(f"{name}.norm2", y))
        return y + (convolve(f"{name}.nin_shortcut", y) if f"{name}.nin_shortcut.weight" in w else x)

    x = convolve("pixel_decoder.conv_in", x)
    for j in range(2):
        x = block(f"pixel_decoder.mid.{j}", x)
    levels = len({name.split(".")[2] for name in w if name.startswith("pixel_decoder.up.")})
    for u in reversed(range(levels)):
        for j in range(2):
            x = block(f"pixel_decoder.up.{u}.block.{j}", x)
        if u:
            x = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
            x = convolve(f"pixel_decoder.up.{u}.upsample_conv", x)
    return convolve("pixel_decoder.conv_out", active("pixel_decoder.norm_out", x))
