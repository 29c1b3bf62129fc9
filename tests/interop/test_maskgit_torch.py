"""The checkpoints of hmorimitsu/maskgit-torch: the official fixture in that layout gives the official numbers."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.foreign_weights import read_flax
from tokencritic.interop.family import Imported, Sources
from tokencritic.interop.maskgit_torch import read
from tokencritic.sampling.settings import SamplingSettings

FOLDER = Path(__file__).parent / "fixtures" / "maskgit-official"
Arrays = dict[str, Tensor]


def torch_generator() -> Arrays:
    """The official generator as a torch module of theirs would hold it, layer by layer."""
    flax = read_flax(FOLDER / "maskgit_checkpoint")
    width = flax["Embed_0.word_embeddings.embedding"].shape[1]
    found = {
        "tok_emb.weight": flax["Embed_0.word_embeddings.embedding"],
        "pos_emb": flax["Embed_0.position_embeddings.embedding"],
        "bias": flax["MlmLayer_0.mlm_bias.bias"],
    }

    def linear(ours: str, theirs: str) -> None:
        found[f"{theirs}.weight"], found[f"{theirs}.bias"] = flax[f"{ours}.kernel"].T, flax[f"{ours}.bias"]

    def norm(ours: str, theirs: str) -> None:
        found[f"{theirs}.weight"], found[f"{theirs}.bias"] = flax[f"{ours}.scale"], flax[f"{ours}.bias"]

    norm("Embed_0.embeddings_ln", "emb_ln")
    linear("MlmLayer_0.mlm_dense", "Token_Prediction.0")
    norm("MlmLayer_0.mlm_ln", "Token_Prediction.2")
    for i in range(3):
        ours, theirs = f"TransformerLayer_{i}", f"blocks.{i}"
        attention = f"{ours}.Attention_0.self_attention"
        kernels = [flax[f"{attention}.{part}.kernel"].reshape(width, width).T for part in ("query", "key", "value")]
        biases = [flax[f"{attention}.{part}.bias"].flatten() for part in ("query", "key", "value")]
        found[f"{theirs}.MultiHeadAttention.in_proj_weight"] = torch.cat(kernels)
        found[f"{theirs}.MultiHeadAttention.in_proj_bias"] = torch.cat(biases)
        found[f"{theirs}.MultiHeadAttention.out_proj.weight"] = flax[f"{attention}.out.kernel"].reshape(width, width).T
        found[f"{theirs}.MultiHeadAttention.out_proj.bias"] = flax[f"{attention}.out.bias"]
        norm(f"{ours}.Attention_0.attention_output_ln", f"{theirs}.AttentionLN")
        linear(f"{ours}.Mlp_0.intermediate_output", f"{theirs}.MLP.0")
        linear(f"{ours}.Mlp_0.layer_output", f"{theirs}.MLP.2")
        norm(f"{ours}.Mlp_0.layer_output_ln", f"{theirs}.MlpLN")
    return found


def torch_tokenizer() -> Arrays:
    """The official tokenizer in theirs: blocks in groups of one resolution, convolutions with the output channels first."""
    flax = read_flax(FOLDER / "tokenizer_checkpoint")
    groups = len({name.split(".")[1] for name in flax if name.startswith("decoder.Conv_")}) - 1
    blocks = len({name.split(".")[1] for name in flax if name.startswith("encoder.ResBlock_")}) // (groups + 1)
    layers = {
        "GroupNorm_0": "norm0",
        "GroupNorm_1": "norm1",
        "Conv_0": "conv0",
        "Conv_1": "conv1",
        "Conv_2": "conv_res",
    }
    found = {}
    for name, value in flax.items():
        if name == "quantizer.codebook":
            found["quantizer.codebook.weight"] = value
            continue
        part, layer, *inside = name.split(".")
        tensor = "bias" if inside[-1] == "bias" else "weight"
        kind, number = layer.split("_")
        if kind == "ResBlock":
            group, block = divmod(int(number), blocks)
            place = f"res_blocks.{group}.{block}.{layers[inside[0]]}"
        elif kind == "GroupNorm":
            place = "norm_out"
        elif number == "0":
            place = "conv_in"
        elif (part, int(number)) in (("encoder", 1), ("decoder", groups)):
            place = "conv_out"
        else:
            place = f"res_blocks.{number}.{blocks + 1}"
        found[f"{part}.{place}.{tensor}"] = value.permute(3, 2, 0, 1) if value.ndim == 4 else value
    return found


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    for name, arrays in (("maskgit", torch_generator()), ("tokenizer", torch_tokenizer())):
        torch.save({"state_dict": arrays}, tmp_path / f"{name}.ckpt")
    return Sources(tmp_path / "maskgit.ckpt", tmp_path / "tokenizer.ckpt", heads=4)


@pytest.fixture
def found(sources: Sources) -> Imported:
    return read(sources)


@pytest.fixture(scope="module")
def expected() -> Arrays:
    with np.load(FOLDER / "expected.npz") as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays}


@torch.no_grad()
def test_logits_tokens_and_images_equal_the_official_code(found: Imported, expected: Arrays) -> None:
    generator, tokenizer = found.generator, found.tokenizer
    assert (generator.num_tokens, generator.num_classes, tokenizer.image_size) == (16, 10, 16)
    masked_tokens = expected["tokens"].masked_fill(expected["mask"], generator.mask_id)
    torch.testing.assert_close(generator(masked_tokens, expected["labels"]), expected["logits"], atol=1e-4, rtol=0)
    tokens = tokenizer.encode(expected["images"].permute(0, 3, 1, 2))
    assert torch.equal(tokens, expected["encoded"].flatten(1).long())
    decoded = tokenizer.decode(expected["decode_tokens"].flatten(1))
    torch.testing.assert_close(decoded.permute(0, 2, 3, 1), expected["decoded"].clamp(0, 1), atol=1e-4, rtol=0)


def test_the_settings_are_the_official_ones(found: Imported) -> None:
    assert found.defaults == SamplingSettings(sampler="confidence", schedule="maskgit", steps=12, selection_noise=4.5)
    assert not found.generator.training
    assert not found.tokenizer.training


def test_heads_must_be_given_where_the_width_is_not_the_published_one(sources: Sources) -> None:
    with pytest.raises(InputError, match=r"--heads is missing; .*maskgit\.ckpt of width 64 does not contain"):
        read(Sources(sources.generator, sources.tokenizer))
    with pytest.raises(InputError, match=r"maskgit\.ckpt: width is 64; it must be a multiple of heads, 5"):
        read(Sources(sources.generator, sources.tokenizer, heads=5))


def test_what_is_missing_or_extra_is_listed(sources: Sources) -> None:
    arrays = torch_generator()
    del arrays["blocks.1.AttentionLN.bias"]
    arrays["blocks.1.rotary"] = torch.zeros(2)
    torch.save({"state_dict": arrays}, sources.generator)
    with pytest.raises(InputError, match=r"missing: blocks\.1\.AttentionLN\.bias; unexpected: blocks\.1\.rotary"):
        read(sources)
