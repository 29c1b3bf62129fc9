"""The importer of TiTok (bytedance/1d-tokenizer): L-32 and B-64 (BERT), S-128 (U-ViT), and their tokenizers."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.foreign_weights import read_tensors
from tokencritic.interop.checkpoint import Checkpoint, Origin
from tokencritic.interop.family import Family, Imported, Sources
from tokencritic.models.generator import UntiedGenerator
from tokencritic.models.titok import BertGenerator
from tokencritic.models.uvit import UViTGenerator
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.schedules import GuidanceSchedule
from tokencritic.tokenizers.titok import TiTok

_BERT, _UVIT = "model.lm_head.weight", "mid_block.attn.qkv.weight"  # each identifies one kind of generator
_NO_WEIGHTS = ("model.embeddings.position_ids",)
_HEADS = {(BertGenerator, 768): 16, (UViTGenerator, 1024): 16}  # of the published generators, by their width
_HEAD_WIDTHS = range(16, 129)  # plausible sizes of a head
# Our layers -> theirs.
_BERT_ENDS = {"trunk.embedding_norm": "model.embeddings.LayerNorm", "to_logits": "model.lm_head"}
_IN_BERT = {
    "out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "mlp_norm": "output.LayerNorm",
}
_UVIT_ENDS = {"trunk.final_norm": "norm", "to_logits": "lm_head"}
_IN_UVIT = {
    "join": "skip_linear",
    "attention_norm": "norm1",
    "qkv": "attn.qkv",
    "out": "attn.proj",
    "mlp_norm": "norm2",
    "up": "mlp.fc1",
    "down": "mlp.fc2",
}
_IN_TOKENIZER = {
    "patches": "patch_embed",
    "norm_in": "ln_pre",
    "norm_out": "ln_post",
    "to_code": "conv_out",
    "from_code": "decoder_embed",
    "to_logits.0": "ffn.0",
    "to_logits.2": "ffn.2",
}
_IN_TOKENIZER_BLOCK = {
    "attention_norm": "ln_1",
    "out": "attn.out_proj",
    "mlp_norm": "ln_2",
    "up": "mlp.c_fc",
    "down": "mlp.c_proj",
}
# Unsupported variants, by the key of the config and its value.
_REFUSED: dict[str, Any] = {
    "is_legacy": False,
    "finetune_decoder": False,
    "use_l2_norm": False,
    "quantize_mode": "vae",
}
# The authors' settings, by the keys of their config, and their guidance schedules -> ours.
_SETTINGS = ("num_steps", "randomize_temperature", "guidance_scale", "guidance_decay")
_PUBLISHED: dict[tuple[type[UntiedGenerator], int], tuple[int, float, float, str]] = {
    (BertGenerator, 32): (8, 9.5, 4.5, "linear"),
    (BertGenerator, 64): (8, 11.0, 3.0, "linear"),
    (UViTGenerator, 128): (64, 2.8, 6.9, "power-cosine"),
}
_GUIDANCE: dict[str, GuidanceSchedule] = {"constant": "constant", "linear": "linear", "power-cosine": "cosine"}
_SUPPORTED = "TiTok-L-32, B-64 and S-128 can be imported"


def read(sources: Sources) -> Imported:
    """Read generator and tokenizer, with the authors' sampling settings."""
    tokenizer = import_tokenizer(sources.tokenizer, sources.config)
    generator = import_generator(sources.generator, sources.heads, sources.config)
    for name, what in (("num_tokens", "tokens"), ("codebook_size", "codes")):
        ours, theirs = vars(generator)[name], vars(tokenizer)[name]
        if ours != theirs:
            pair = f"{sources.generator} has {ours} {what}, and the tokenizer {sources.tokenizer} has {theirs}"
            raise InputError(f"{pair}; expected the same number")
    return Imported(generator, tokenizer, _defaults(generator, sources.config))


def import_generator(
    file: str | Path, heads: int | None = None, config: Mapping[str, Any] | None = None
) -> UntiedGenerator:
    """Read a generator, a BERT or a U-ViT, in evaluation mode.

    heads: attention heads; by default those of the config, else those of the published generators.
    config: the authors' config.
    """
    checkpoint = _read(file, "a TiTok generator")
    if _BERT in checkpoint.arrays:
        kind, origin_of, sizes = BertGenerator, _bert_origin, _bert_sizes(checkpoint)
    elif _UVIT in checkpoint.arrays:
        kind, origin_of, sizes = UViTGenerator, _uvit_origin, _uvit_sizes(checkpoint)
    else:
        raise InputError(f"{file} is not a TiTok generator: it has neither {_BERT} nor {_UVIT}")
    given = _section(config, "generator")
    given_heads = given.get("num_attention_heads") if heads is None else heads
    sizes["heads"] = _heads(file, kind, sizes["width"], given_heads)
    return checkpoint.build(kind, sizes, partial(origin_of, sizes))


def import_tokenizer(file: str | Path, config: Mapping[str, Any] | None = None) -> TiTok:
    """Read a tokenizer in evaluation mode. config: the authors' config, checked for unsupported variants."""
    for name, refused in _REFUSED.items():
        if _section(config, "vq_model").get(name) == refused:
            value = refused if isinstance(refused, str) else str(refused).lower()
            raise InputError(f"{file} is a TiTok tokenizer with {name} {value}; {_SUPPORTED}")
    checkpoint = _read(file, "a TiTok tokenizer")
    checkpoint.shape("latent_tokens", 2)
    for name, variant in (
        ("quantize.embedding.weight", "quantize_mode vae"),
        ("pixel_quantize.embedding.weight", "finetune_decoder false"),
    ):
        if name not in checkpoint.arrays:
            raise InputError(f"{file} has no array {name}: a TiTok tokenizer with {variant}; {_SUPPORTED}")
    sizes = _tokenizer_sizes(checkpoint)
    return checkpoint.build(TiTok, sizes, partial(_tokenizer_origin, sizes))


def _read(file: str | Path, owner: str) -> Checkpoint:
    tensors = read_tensors(file, owner)
    return Checkpoint(file, {name: value for name, value in tensors.items() if name not in _NO_WEIGHTS})


def _section(config: Mapping[str, Any] | None, name: str) -> Mapping[str, Any]:
    """Return the section of the authors' config for the generator or the tokenizer; empty if it is missing."""
    model = (config or {}).get("model")
    section = model.get(name) if isinstance(model, Mapping) else None
    return section if isinstance(section, Mapping) else {}


def _heads(file: str | Path, kind: type[UntiedGenerator], width: int, given: Any) -> int:
    heads = _HEADS.get((kind, width)) if given is None else given
    if isinstance(heads, int) and heads > 0 and width % heads == 0:
        return heads
    plausible = [n for n in range(1, width + 1) if width % n == 0 and width // n in _HEAD_WIDTHS] or [1]
    choice = f"its width is {width}: give one of {', '.join(map(str, plausible))}"
    if heads is None:
        raise InputError(f"--heads is missing; {file} does not contain the number of heads; {choice}")
    raise InputError(f"--heads is {heads} for {file}; {choice}")


def _bert_sizes(checkpoint: Checkpoint) -> dict[str, Any]:
    words, width = checkpoint.shape("model.embeddings.word_embeddings.weight", 2)
    codes, _ = checkpoint.shape(_BERT, 2)
    return {
        "num_tokens": checkpoint.shape("model.embeddings.position_embeddings.weight", 2)[0] - 1,
        "codebook_size": codes,
        "num_classes": words - codes - 2,  # the null class and the mask
        "width": width,
        "layers": checkpoint.count(r"model\.encoder\.layer\.(\d+)\."),
        "mlp_width": checkpoint.shape("model.encoder.layer.0.intermediate.dense.weight", 2)[0],
    }


def _uvit_sizes(checkpoint: Checkpoint) -> dict[str, Any]:
    words, width = checkpoint.shape("embeddings.weight", 2)
    codes, _ = checkpoint.shape("lm_head.weight", 2)
    return {
        "num_tokens": checkpoint.shape("pos_embed", 3)[1] - 1,
        "codebook_size": codes,
        "num_classes": words - codes - 2,
        "width": width,
        "layers": 2 * checkpoint.count(r"in_blocks\.(\d+)\.") + 1,
        "mlp_width": checkpoint.shape("mid_block.mlp.fc1.weight", 2)[0],
    }


def _tokenizer_sizes(checkpoint: Checkpoint) -> dict[str, Any]:
    num_tokens, encoder_width = checkpoint.shape("latent_tokens", 2)
    _, channels, patch, _ = checkpoint.shape("encoder.patch_embed.weight", 4)
    rows, _ = checkpoint.shape("encoder.positional_embedding", 2)
    side = math.isqrt(rows - 1)
    if side * side != rows - 1 or not side:
        raise InputError(f"{checkpoint.file} has {rows - 1} patches in encoder.positional_embedding; expected a square")
    codes, code_width = checkpoint.shape("quantize.embedding.weight", 2)
    pixel_codes, pixel_width = checkpoint.shape("pixel_quantize.embedding.weight", 2)
    levels = checkpoint.count(r"pixel_decoder\.up\.(\d+)\.block\.")
    widths = [checkpoint.shape(f"pixel_decoder.up.{i}.block.0.conv1.weight", 4)[0] for i in range(levels or 1)]
    if patch != 2 ** (len(widths) - 1):
        sizes = f"patches of {patch} pixels and {len(widths)} levels of pixel decoder"
        raise InputError(f"{checkpoint.file} has {sizes}; expected patches of {2 ** (len(widths) - 1)} pixels")
    return checkpoint.levels(widths[0], widths, side * patch) | {
        "channels": channels,
        "blocks": checkpoint.count(r"pixel_decoder\.up\.\d+\.block\.(\d+)\."),
        "codebook_size": codes,
        "code_width": code_width,
        "num_tokens": num_tokens,
        "encoder_width": encoder_width,
        "encoder_layers": checkpoint.count(r"encoder\.transformer\.(\d+)\."),
        "decoder_width": checkpoint.shape("decoder.decoder_embed.weight", 2)[0],
        "decoder_layers": checkpoint.count(r"decoder\.transformer\.(\d+)\."),
        "pixel_codebook_size": pixel_codes,
        "pixel_code_width": pixel_width,
    }


def _bert_origin(sizes: dict[str, Any], ours: str, shape: tuple[int, ...]) -> Origin:
    layer, _, tensor = ours.rpartition(".")
    if layer == "trunk.words":
        return Origin({"model.embeddings.word_embeddings.weight": shape}, _reordered(sizes["codebook_size"]))
    if layer == "trunk.positions":  # every token is of type 0
        names = {
            "model.embeddings.position_embeddings.weight": shape,
            "model.embeddings.token_type_embeddings.weight": (2, sizes["width"]),
        }
        return Origin(names, lambda positions, types: positions + types[0])
    if layer in _BERT_ENDS:
        return Origin({f"{_BERT_ENDS[layer]}.{tensor}": shape})
    _, _, index, name = layer.split(".")
    theirs = f"model.encoder.layer.{index}"
    if name == "qkv":
        third = (shape[0] // 3, *shape[1:])
        names = {f"{theirs}.attention.self.{part}.{tensor}": third for part in ("query", "key", "value")}
        return Origin(names, lambda *parts: torch.cat(parts))
    return Origin({f"{theirs}.{_IN_BERT[name]}.{tensor}": shape})


def _uvit_origin(sizes: dict[str, Any], ours: str, shape: tuple[int, ...]) -> Origin:
    layer, _, tensor = ours.rpartition(".")
    if layer == "trunk.words":
        return Origin({"embeddings.weight": shape}, _reordered(sizes["codebook_size"]))
    if layer == "trunk.positions":
        return Origin({"pos_embed": (1, *shape)}, lambda positions: positions[0])
    if layer in _UVIT_ENDS:
        return Origin({f"{_UVIT_ENDS[layer]}.{tensor}": shape})
    _, _, index, name = layer.split(".")
    middle, block = sizes["layers"] // 2, int(index)
    theirs = "mid_block" if block == middle else f"in_blocks.{block}"
    theirs = f"out_blocks.{block - middle - 1}" if block > middle else theirs
    return Origin({f"{theirs}.{_IN_UVIT[name]}.{tensor}": shape})


def _reordered(codes: int) -> Callable[[Tensor], Tensor]:
    """Return a function that reorders codes, mask, classes and null class to our order, with the mask last."""
    return lambda words: torch.cat([words[:codes], words[codes + 1 :], words[codes : codes + 1]])


def _tokenizer_origin(sizes: dict[str, Any], ours: str, shape: tuple[int, ...]) -> Origin:
    part, _, rest = ours.partition(".")
    layer, _, tensor = rest.rpartition(".")
    if ours == "quantizer.codebook":
        return Origin({"quantize.embedding.weight": shape}, lambda codes: F.normalize(codes, dim=1))
    if ours == "pixel_codebook":
        return Origin({"pixel_quantize.embedding.weight": shape})
    if part == "pixel_decoder":
        return Origin({ours: shape})
    if ours == "encoder.sequence":
        return _encoder_sequence(sizes["num_tokens"], shape)
    if ours == "decoder.sequence":
        names = {"positional_embedding": shape, "class_embedding": (1, shape[1]), "mask_token": (1, 1, shape[1])}
        return Origin(
            {f"decoder.{name}": size for name, size in names.items()},
            lambda positions, first, mask: positions + torch.cat([first, mask[0].expand(len(positions) - 1, -1)]),
        )
    if ours == "decoder.positions":
        return Origin({"decoder.latent_token_positional_embedding": shape})
    if not layer.startswith("blocks."):
        place = f"{part}.{_IN_TOKENIZER[layer]}.{tensor}"
        flat = tensor == "bias" or layer not in ("to_code", "to_logits.0", "to_logits.2")
        # Theirs are 1 x 1 convolutions.
        return Origin({place: shape if flat else (*shape[:2], 1, 1)}, lambda weight: weight.reshape(shape))
    _, index, name = layer.split(".")
    theirs = f"{part}.transformer.{index}"
    if name == "qkv":
        return Origin({f"{theirs}.attn.in_proj_{tensor}": shape})
    return Origin({f"{theirs}.{_IN_TOKENIZER_BLOCK[name]}.{tensor}": shape})


def _encoder_sequence(num_tokens: int, shape: tuple[int, ...]) -> Origin:
    """Return the origin of the encoder's sequence: class token, positions and latent tokens."""
    length, width = shape
    names = {
        "encoder.class_embedding": (1, width),
        "encoder.positional_embedding": (length - num_tokens, width),
        "latent_tokens": (num_tokens, width),
        "encoder.latent_token_positional_embedding": (num_tokens, width),
    }
    return Origin(
        names,
        lambda first, positions, latents, latent_positions: torch.cat(
            [positions[:1] + first, positions[1:], latents + latent_positions]
        ),
    )


def _defaults(generator: UntiedGenerator, config: Mapping[str, Any]) -> SamplingSettings:
    """Return the authors' settings for a published size, else those of the config. Missing ones are those of L-32."""
    published = _PUBLISHED.get((type(generator), generator.num_tokens))
    usual = dict(zip(_SETTINGS, published or _PUBLISHED[BertGenerator, 32], strict=True))
    given = {} if published else _section(config, "generator")
    steps, noise, scale, decay = (given.get(name, usual[name]) for name in _SETTINGS)
    for name, value in zip(_SETTINGS, (steps, noise, scale), strict=False):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{name} in the config is {value!r}; expected a number")
    if not isinstance(decay, str) or decay not in _GUIDANCE:
        raise InputError(f"guidance_decay in the config is {decay!r}; expected one of {', '.join(_GUIDANCE)}")
    cosine = _GUIDANCE[decay] == "cosine"
    return SamplingSettings(
        sampler="confidence",
        steps=steps,
        temperature=(1.3, 0.5),
        selection_noise=noise,
        schedule="titok",
        guidance=scale if cosine else 1 + scale,  # other schedules define the scale relative to the class logits
        guidance_schedule=_GUIDANCE[decay],
        guidance_power=3.0 if cosine else 1.0,
    )


FAMILY = Family(
    generator_marks=(_BERT, _UVIT),
    tokenizer_marks=("latent_tokens",),
    read=read,
)
