"""Files of random MaskBit models under the authors' names, and what such models compute, once more from their description."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

Arrays = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Sizes:
    side: int = 2
    splits: int = 2
    part: int = 3
    classes: int = 5
    width: int = 24
    layers: int = 2
    heads: int = 3
    mlp_width: int = 40
    filters: int = 32
    multipliers: tuple[int, ...] = (1, 2)
    blocks: int = 1

    @property
    def bits(self):
        return self.splits * self.part


def drawn(shapes, seed):
    rng = torch.Generator().manual_seed(seed)
    return {name: 0.25 * torch.randn(*shape, generator=rng) for name, shape in shapes.items()}


def dense(name, out, into):
    return {f"{name}.weight": (out, into), f"{name}.bias": (out,)}


def norm(name, width):
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def generator_arrays(sizes, seed=0):
    width = sizes.width
    shapes = {"class_emb.weight": (sizes.classes + 1, width), "pos_emb": (1, sizes.side**2 + 1, width)}
    shapes |= dense("input_proj", width, sizes.bits) | norm("first_layer.0", width)
    for i in range(sizes.layers):
        layer = f"transformer.layers.{i}"
        shapes[f"{layer}.0.mha.in_proj_weight"] = (3 * width, width)
        shapes[f"{layer}.0.mha.in_proj_bias"] = (3 * width,)
        shapes |= dense(f"{layer}.0.mha.out_proj", width, width) | norm(f"{layer}.0.norm", width)
        shapes |= dense(f"{layer}.1.net.0", sizes.mlp_width, width) | dense(f"{layer}.1.net.2", width, sizes.mlp_width)
        shapes |= norm(f"{layer}.1.norm", width)
    shapes |= dense("last_layer.0", width, width) | norm("last_layer.2", width)
    shapes |= dense("prediction_layer", sizes.splits * 2**sizes.part, width)
    return drawn(shapes, seed) | {"bits_to_indices": 2 ** torch.arange(sizes.part, dtype=torch.int32)}


def block(name, into, out):
    shapes = norm(f"{name}.norm1", into) | norm(f"{name}.norm2", out)
    shapes |= {f"{name}.conv1.weight": (out, into, 3, 3), f"{name}.conv2.weight": (out, out, 3, 3)}
    return shapes | ({f"{name}.nin_shortcut.weight": (out, out, 1, 1)} if into != out else {})


def convolution(name, out, into, size):
    return {f"{name}.weight": (out, into, size, size), f"{name}.bias": (out,)}


def tokenizer_arrays(sizes, seed=1):
    widths = [sizes.filters * multiplier for multiplier in sizes.multipliers]
    last, numbers = len(widths) - 1, range(sizes.blocks)
    shapes, width = {"encoder.conv_in.weight": (sizes.filters, 3, 3, 3)}, sizes.filters
    for i, new in enumerate(widths):
        for j in numbers:
            shapes |= block(f"encoder.down.{i}.res_blocks.{j}", new if j else width, new)
        shapes |= convolution(f"encoder.down.{i}.down_conv", new, new, 3) if i < last else {}
        width = new
    for part in ("encoder", "decoder"):
        for j in numbers:
            shapes |= block(f"{part}.mid.res_blocks.{j}", width, width)
    shapes |= norm("encoder.norm_out", width) | convolution("encoder.conv_out", sizes.bits, width, 1)
    shapes |= convolution("decoder.conv_in", width, sizes.bits, 3)
    for i, new in enumerate(reversed(widths)):
        for j in numbers:
            shapes |= block(f"decoder.up.{i}.res_blocks.{j}", new if j else width, new)
        shapes |= convolution(f"decoder.up.{i}.upsample_conv", new, new, 3) if i < last else {}
        width = new
    shapes |= norm("decoder.norm_out", width) | convolution("decoder.conv_out", 3, width, 3)
    powers = 2 ** torch.arange(sizes.bits, dtype=torch.int32)
    codebook = torch.tensor(
        [[1.0 if code >> j & 1 else -1.0 for j in range(sizes.bits)] for code in range(2**sizes.bits)]
    )
    return drawn(shapes, seed) | {"quantize.bits_to_indices": powers, "quantize.codebook": codebook}


def logits_of(w: Arrays, sizes, parts, labels):
    """parts: (b, places, splits), codes or 2^part. Returns (b, places, splits, 2^part), head by head and bit by bit."""

    def linear(x, name):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def normed(x, name):
        return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], 1e-12)

    def value(code, bit):
        return 0.0 if code == 2**sizes.part else (1.0 if code >> bit & 1 else -1.0)

    bits = [[[value(c, j) for c in place for j in range(sizes.part)] for place in row] for row in parts.tolist()]
    x = linear(torch.tensor(bits), "input_proj")
    x = normed(torch.cat([x, w["class_emb.weight"][labels][:, None]], 1) + w["pos_emb"], "first_layer.0")
    for i in range(sizes.layers):
        name = f"transformer.layers.{i}"
        weights = zip(w[f"{name}.0.mha.in_proj_weight"].chunk(3), w[f"{name}.0.mha.in_proj_bias"].chunk(3), strict=True)
        q, k, v = ((x @ m.T + c).chunk(sizes.heads, -1) for m, c in weights)
        scale = (sizes.width / sizes.heads) ** -0.5
        heads = [(a @ b.transpose(1, 2) * scale).softmax(-1) @ c for a, b, c in zip(q, k, v, strict=True)]
        x = normed(linear(torch.cat(heads, -1), f"{name}.0.mha.out_proj") + x, f"{name}.0.norm")
        x = normed(linear(F.gelu(linear(x, f"{name}.1.net.0")), f"{name}.1.net.2") + x, f"{name}.1.norm")
    x = normed(F.gelu(linear(x, "last_layer.0")), "last_layer.2")[:, :-1]
    return linear(x, "prediction_layer").unflatten(-1, (sizes.splits, -1))


def _residual(w, x, name):
    y = x
    for i in (1, 2):
        y = F.group_norm(y, 32, w[f"{name}.norm{i}.weight"], w[f"{name}.norm{i}.bias"], 1e-6)
        y = F.conv2d(F.silu(y), w[f"{name}.conv{i}.weight"], padding=1)
    shortcut = w.get(f"{name}.nin_shortcut.weight")
    return y + (x if shortcut is None else F.conv2d(y, shortcut))


def _end(w, x, part, padding):
    x = F.silu(F.group_norm(x, 32, w[f"{part}.norm_out.weight"], w[f"{part}.norm_out.bias"], 1e-6))
    return F.conv2d(x, w[f"{part}.conv_out.weight"], w[f"{part}.conv_out.bias"], padding=padding)


def latents_of(w: Arrays, sizes, images):
    x = F.conv2d(images, w["encoder.conv_in.weight"], padding=1)
    for i in range(len(sizes.multipliers)):
        for j in range(sizes.blocks):
            x = _residual(w, x, f"encoder.down.{i}.res_blocks.{j}")
        if i < len(sizes.multipliers) - 1:
            name = f"encoder.down.{i}.down_conv"
            x = F.conv2d(F.pad(x, (0, 1, 0, 1)), w[f"{name}.weight"], w[f"{name}.bias"], stride=2)
    for j in range(sizes.blocks):
        x = _residual(w, x, f"encoder.mid.res_blocks.{j}")
    return _end(w, x, "encoder", 0)


def images_of(w: Arrays, sizes, bits):
    """bits: (b, bits, h, w), -1 or +1."""
    x = F.conv2d(bits, w["decoder.conv_in.weight"], w["decoder.conv_in.bias"], padding=1)
    for j in range(sizes.blocks):
        x = _residual(w, x, f"decoder.mid.res_blocks.{j}")
    for i in range(len(sizes.multipliers)):
        for j in range(sizes.blocks):
            x = _residual(w, x, f"decoder.up.{i}.res_blocks.{j}")
        if i < len(sizes.multipliers) - 1:
            name = f"decoder.up.{i}.upsample_conv"
            x = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
            x = F.conv2d(x, w[f"{name}.weight"], w[f"{name}.bias"], padding=1)
    return _end(w, x, "decoder", 1)
