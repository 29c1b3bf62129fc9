"""The importer of MaskBit (markweberdev/maskbit): generator and lookup-free tokenizer, each one torch file."""

import math
import re
from collections.abc import Mapping
from typing import Any

import torch

from tokencritic.errors import InputError
from tokencritic.foreign_weights import read_tensors
from tokencritic.interop.checkpoint import Checkpoint, Origin
from tokencritic.interop.family import Family, Imported, Sources
from tokencritic.models.maskbit import MaskBitGenerator, part_bits
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.tokenizers.maskbit import MaskBitTokenizer

_PUBLISHED_WIDTH, _PUBLISHED_HEADS = 1024, 16
_DROPOUT = 0.1  # of all published generators
# Published sampling settings by bits per place: guidance_scale, randomize_temperature, scale_pow. All have 64 steps.
_PUBLISHED_STEPS = 64
_PUBLISHED = {10: (6.4, 10.5, 2.5), 12: (7.1, 8.2, 3.0), 14: (7.1, 7.8, 3.0), 16: (6.5, 7.5, 2.5), 18: (5.7, 8.5, 2.5)}
_GUIDANCE = {"cosine": "cosine", "linear": "linear", "none": "constant"}  # guidance_annealing -> guidance_schedule
_ANNEALED = (1.3, 0.5)  # the temperature with use_sampling_annealing

# Our layers -> theirs.
_GENERATOR = {
    "trunk.bits": "input_proj",
    "trunk.classes": "class_emb",
    "trunk.embedding_norm": "first_layer.0",
    "trunk.readout": "last_layer.0",
    "trunk.readout_norm": "last_layer.2",
    "prediction": "prediction_layer",
}
_IN_LAYER = {
    "out": "0.mha.out_proj",
    "attention_norm": "0.norm",
    "up": "1.net.0",
    "down": "1.net.2",
    "mlp_norm": "1.norm",
}


def read(sources: Sources) -> Imported:
    """Read generator, tokenizer and sampling settings. Settings of the config override the published ones."""
    model, images = _section(sources.config, "model"), _section(sources.config, "dataset", "preprocessing")
    mlm, vq = _section(model, "mlm_model"), _section(model, "vq_model")
    _check_kind(mlm, vq)
    generator = _generator(sources, mlm)
    tokenizer = _tokenizer(sources, generator)
    told = {"token_size": vq, "codebook_splits": mlm, "resolution": images}
    own = {
        "token_size": tokenizer.config.bits,
        "codebook_splits": tokenizer.config.splits,
        "resolution": tokenizer.image_size,
    }
    for name, section in told.items():
        if section.get(name, own[name]) != own[name]:
            raise InputError(f"--config has {name} {section[name]!r}; expected {own[name]}, as in the weights")
    return Imported(generator, tokenizer, _defaults(tokenizer.config.bits, mlm))


FAMILY = Family(
    generator_marks=("bits_to_indices", "prediction_layer.weight"),
    tokenizer_marks=("quantize.bits_to_indices",),
    read=read,
)


def _generator(sources: Sources, mlm: Mapping[str, Any]) -> MaskBitGenerator:
    file = sources.generator
    arrays = read_tensors(file, "a generator")
    if "tok_emb_list.0.weight" in arrays:
        raise InputError(f"--generator {file} is a bert generator; expected an lfq_bert generator")
    if "norm_after_transformer.weight" in arrays:
        raise InputError(f"--generator {file} was trained with use_prenorm; expected a generator without it")
    arrays = {re.sub(r"^token_emb\.", "input_proj.", name): value for name, value in arrays.items()}
    checkpoint = Checkpoint(file, arrays)
    width, bits = checkpoint.shape("input_proj.weight", 2)
    (part,) = checkpoint.shape("bits_to_indices", 1)
    if bits % part:
        raise InputError(f"{file} has {bits} bits per place; expected a multiple of {part}, the bits per part")
    sizes = {
        "places": checkpoint.shape("pos_emb", 3)[1] - 1,
        "splits": bits // part,
        "bits_per_part": part,
        "num_classes": checkpoint.shape("class_emb.weight", 2)[0] - 1,
        "width": width,
        "layers": checkpoint.count(r"transformer\.layers\.(\d+)\."),
        "heads": _heads(sources, mlm, width),
        "mlp_width": checkpoint.shape("transformer.layers.0.1.net.0.weight", 2)[0],
        "dropout": _number(mlm, "dropout", _DROPOUT),
    }
    return _without_buffers(checkpoint, "").build(MaskBitGenerator, sizes, _generator_origin)


def _tokenizer(sources: Sources, generator: MaskBitGenerator) -> MaskBitTokenizer:
    """Read the tokenizer, with the generator's parts and number of places."""
    file, config = sources.tokenizer, generator.config
    checkpoint = Checkpoint(file, read_tensors(file, "a tokenizer"))
    if "quantize.embedding.weight" in checkpoint.arrays:
        raise InputError(
            f"--tokenizer {file} has a codebook, as in VQGAN+; expected a lookup-free tokenizer of MaskBit"
        )
    (bits,) = checkpoint.shape("quantize.bits_to_indices", 1)
    if bits != config.splits * config.bits_per_part:
        expected = f"{config.splits * config.bits_per_part}, as in --generator {sources.generator}"
        raise InputError(f"--tokenizer {file} has {bits} bits per place; expected {expected}")
    side = math.isqrt(config.places)
    if side * side != config.places:
        raise InputError(f"--generator {sources.generator} has {config.places} places; expected a square number")
    filters, channels, _, _ = checkpoint.shape("encoder.conv_in.weight", 4)
    levels = checkpoint.count(r"encoder\.down\.(\d+)\.")
    widths = [checkpoint.shape(f"encoder.down.{i}.res_blocks.0.conv1.weight", 4)[0] for i in range(levels or 1)]
    sizes = {
        "channels": channels,
        "blocks": checkpoint.count(r"encoder\.down\.\d+\.res_blocks\.(\d+)\."),
        "splits": config.splits,
        "bits_per_part": config.bits_per_part,
        **checkpoint.levels(filters, widths, side * 2 ** (len(widths) - 1)),
    }

    def origin(ours: str, shape: tuple[int, ...]) -> Origin:
        return Origin({_tokenizer_name(ours, len(widths)): shape})

    return _without_buffers(checkpoint, "quantize.").build(MaskBitTokenizer, sizes, origin)


def _generator_origin(ours: str, shape: tuple[int, ...]) -> Origin:
    layer, _, tensor = ours.rpartition(".")
    if layer == "trunk.positions":
        return Origin({"pos_emb": (1, *shape)}, lambda embedding: embedding[0])
    if layer in _GENERATOR:
        return Origin({f"{_GENERATOR[layer]}.{tensor}": shape})
    _, _, index, name = layer.split(".")
    theirs = f"0.mha.in_proj_{tensor}" if name == "qkv" else f"{_IN_LAYER[name]}.{tensor}"
    return Origin({f"transformer.layers.{index}.{theirs}": shape})


def _tokenizer_name(ours: str, levels: int) -> str:
    """Return the authors' name of a tensor. Decoder levels are numbered in order of execution, ours from the finest."""
    part, place, *rest = ours.split(".")
    if place == "mid":
        return ".".join([part, "mid.res_blocks", *rest])
    if not place.startswith(("down", "up")):
        return ours
    level, *rest = rest
    if place == "up":
        level = str(levels - 1 - int(level))
    name = ".".join(rest).replace("downsample.conv", "down_conv").replace("block.", "res_blocks.")
    return f"{part}.{place}.{level}.{name}"


def _without_buffers(checkpoint: Checkpoint, prefix: str) -> Checkpoint:
    """Return the checkpoint without its constant buffers. Raises InputError unless the lowest bit comes first."""
    arrays = dict(checkpoint.arrays)
    powers = arrays.pop(f"{prefix}bits_to_indices")
    bits = len(powers)
    right = {"bits_to_indices": (powers, 2 ** torch.arange(bits))}
    if (codebook := arrays.pop(f"{prefix}codebook", None)) is not None:
        right["codebook"] = (codebook, part_bits(torch.arange(2**bits), bits))
    for name, (found, expected) in right.items():
        if found.shape != expected.shape or not found.double().equal(expected.double()):
            raise InputError(
                f"{checkpoint.file} has an unknown {prefix}{name}; expected MaskBit's, whose lowest bit comes first"
            )
    return Checkpoint(checkpoint.file, arrays)


def _check_kind(mlm: Mapping[str, Any], vq: Mapping[str, Any]) -> None:
    imported = {"model_cls": (mlm, "lfq_bert"), "use_prenorm": (mlm, False), "quantizer_type": (vq, "lookup-free")}
    for name, (section, right) in imported.items():
        if section.get(name, right) != right:
            raise InputError(f"--config has {name} {section[name]!r}; expected {right!r}")


def _heads(sources: Sources, mlm: Mapping[str, Any], width: int) -> int:
    if sources.heads is not None:
        return sources.heads
    if "heads" in mlm or width == _PUBLISHED_WIDTH:
        return _number(mlm, "heads", _PUBLISHED_HEADS, whole=True)
    raise InputError(
        f"{sources.generator} does not contain the number of heads; give --heads, or the authors' --config"
    )


def _defaults(bits: int, mlm: Mapping[str, Any]) -> SamplingSettings:
    """Return the settings of the config; missing ones are those published for the nearest number of bits."""
    scale, noise, power = _PUBLISHED[min(_PUBLISHED, key=lambda published: abs(published - bits))]
    annealed = _choice(mlm, "use_sampling_annealing", {False: False, True: True})
    return SamplingSettings(
        sampler="confidence",
        steps=_number(mlm, "num_steps", _PUBLISHED_STEPS, whole=True),
        schedule=_choice(mlm, "gen_mask_schedule_strategy", {"arccos": "maskbit"}),
        temperature=_ANNEALED if annealed else _number(mlm, "softmax_temperature", 1.0),
        selection_noise=_number(mlm, "randomize_temperature", noise),
        guidance=1 + _number(mlm, "guidance_scale", scale),
        guidance_schedule=_choice(mlm, "guidance_annealing", _GUIDANCE),
        guidance_power=_number(mlm, "scale_pow", power),
    )


def _section(config: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Return a section of the config, empty if it is missing."""
    for name in names:
        config = config.get(name, {})
        if not isinstance(config, Mapping):
            raise InputError(f"--config has {name} {config!r}; expected a mapping")
    return config


def _number(section: Mapping[str, Any], name: str, usual: float, whole: bool = False) -> Any:
    value = section.get(name, usual)
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise InputError(f"--config has {name} {value!r}; expected {'a whole number' if whole else 'a number'}")
    return value


def _choice(section: Mapping[str, Any], name: str, known: Mapping[Any, Any]) -> Any:
    """Return the meaning of a value of the config. The default is the first of `known`."""
    value = section.get(name, next(iter(known)))
    if not isinstance(value, str | bool) or value not in known:
        raise InputError(f"--config has {name} {value!r}; expected {' or '.join(map(repr, known))}")
    return known[value]
