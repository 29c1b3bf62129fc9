"""The official MaskGIT transformer once more, in plain functions over a dictionary of arrays, from its description."""

import math

import torch


def layer_norm(x, scale, bias):
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-12) * scale + bias


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def attention(x, w, name, heads):
    q, k, v = (
        x @ m.T + c for m, c in zip(w[f"{name}.qkv.weight"].chunk(3), w[f"{name}.qkv.bias"].chunk(3), strict=True)
    )
    size = x.shape[-1] // heads
    outputs = []
    for h in range(heads):
        part = slice(h * size, (h + 1) * size)
        weights = (q[..., part] @ k[..., part].transpose(-1, -2) / math.sqrt(size)).softmax(-1)
        outputs.append(weights @ v[..., part])
    return torch.cat(outputs, -1) @ w[f"{name}.out.weight"].T + w[f"{name}.out.bias"]


def mlp(x, w, name):
    return (
        gelu(x @ w[f"{name}.up.weight"].T + w[f"{name}.up.bias"]) @ w[f"{name}.down.weight"].T + w[f"{name}.down.bias"]
    )


def trunk(w, ids, *, layers, heads, norm_first, extra=0.0):
    """w: the trunk's weights by name; ids: (b, s) with the class in front."""
    x = blocks(w, ids, layers=layers, heads=heads, norm_first=norm_first, extra=extra)
    x = gelu(x @ w["readout.weight"].T + w["readout.bias"])
    return layer_norm(x, w["readout_norm.weight"], w["readout_norm.bias"])


def blocks(w, ids, *, layers, heads, norm_first, extra=0.0):
    """The same without the dense read-out."""

    def norm(x, name):
        return layer_norm(x, w[f"{name}.weight"], w[f"{name}.bias"])

    x = norm(w["words.weight"][ids] + w["positions.weight"] + extra, "embedding_norm")
    for i in range(layers):
        name = f"blocks.{i}"
        if norm_first:
            x = x + attention(norm(x, f"{name}.attention_norm"), w, name, heads)
            x = x + mlp(norm(x, f"{name}.mlp_norm"), w, name)
        else:
            x = norm(x + attention(x, w, name, heads), f"{name}.attention_norm")
            x = norm(x + mlp(x, w, name), f"{name}.mlp_norm")
    return norm(x, "final_norm") if norm_first else x
