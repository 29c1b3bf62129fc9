"""Readers of weights, of published models and their configs, and of models that a factory returns."""

import json
import pickle
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
import yaml
from fuzz.mutation import (
    Case,
    check,
    obey,
    run,
    spoil_bytes,
    spoil_json,
    spoil_safetensors,
    spoil_text,
    spoil_torch,
    spoil_value,
    spoil_yaml,
    spoil_zip,
)
from interop import halton_reference, maskbit_files, titok_files
from interop.test_maskgit_torch import torch_generator

from tokencritic.cli.factories import is_factory, pipeline_of
from tokencritic.evaluation.inception import _TORCHVISION_PARTS, Inception, _names, read_weights
from tokencritic.files import read_json, read_yaml
from tokencritic.foreign_weights import read_flax, read_safetensors, read_tensors
from tokencritic.interop.family import Sources
from tokencritic.interop.importing import import_model, import_tokenizer, looks_like
from tokencritic.tokenizers.vqgan import VQGAN, TamingConfig, TamingVQGAN, VQGANConfig
from tokencritic.training.perceptual import Lpips

FIXTURES = Path(__file__).parents[1] / "interop/fixtures"
TENSORS = {
    "a.weight": torch.arange(6.0).view(2, 3),
    "a.bias": torch.ones(2, dtype=torch.bfloat16),
    "n": torch.tensor(7),
}


def _write_torch(folder):
    torch.save(TENSORS, folder / "a.pt")


def _write_legacy(folder):
    torch.save({"state_dict": TENSORS}, folder / "a.pt", _use_new_zipfile_serialization=False)


def _write_script(folder):
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    with warnings.catch_warnings(action="ignore"):
        torch.jit.script(module).save(str(folder / "a.pt"))


def _write_pickle(folder):
    (folder / "a.pkl").write_bytes(pickle.dumps({"a": np.arange(6.0), "b": {"c": np.ones(2, np.int32)}}, 2))


def _write_flax(folder):
    shutil.copyfile(FIXTURES / "maskgit-official/tokenizer_checkpoint", folder / "a.flax")


def _folded(shapes):
    """Tensors of these shapes that take no place in a torch file: each repeats one number."""
    return {name: torch.ones(1).as_strided(shape, [0] * len(shape)) for name, shape in shapes.items()}


def _write_inception(folder):
    with torch.device("meta"):
        network = Inception()
    shapes = {}
    for (_, name), layer in zip(_names(), network.convolutions(), strict=True):
        shape = tuple(layer.weight.shape)
        shapes |= {f"{name}.{part}": shape[:1] if number else shape for number, part in enumerate(_TORCHVISION_PARTS)}
    torch.save(_folded(shapes | {"fc.weight": (1008, 2048)}), folder / "a.pt")


def _write_lpips(folder):
    shapes = {}
    for name, value in Lpips().state_dict().items():
        part, index, *kind = name.split(".")
        theirs = f"net.slice{int(index) + 1}.0.{kind[0]}" if part == "trunk" else f"lin{index}.model.1.weight"
        shapes[theirs] = tuple(value.shape)
    torch.save(_folded(shapes), folder / "a.pt")


def _pair(folder, generator, tokenizer):
    safetensors.torch.save_file(
        {name: value.clone().contiguous() for name, value in generator.items()}, folder / "g.safetensors"
    )
    safetensors.torch.save_file(
        {name: value.clone().contiguous() for name, value in tokenizer.items()}, folder / "t.safetensors"
    )


def _write_titok(folder):
    shutil.copyfile(FIXTURES / "titok/generator_vit.json", folder / "config.json")
    _pair(folder, titok_files.bert_file(), titok_files.tokenizer_file())


def _write_uvit(folder):
    shutil.copyfile(FIXTURES / "titok/generator_uvit.json", folder / "config.json")
    _pair(folder, titok_files.uvit_file(), titok_files.tokenizer_file())


def _write_maskbit(folder):
    config = yaml.safe_load((FIXTURES / "maskbit/generator.yaml").read_text())
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    sizes = maskbit_files.Sizes(multipliers=(1, 1))
    _pair(folder, maskbit_files.generator_arrays(sizes), maskbit_files.tokenizer_arrays(sizes))


def _write_halton(folder):
    (folder / "config.json").write_text("{}")
    _pair(folder, halton_reference.random_generator(), halton_reference.random_tokenizer((1, 1), 1, 20, 8, 4))


def _write_maskgit_torch(folder):
    (folder / "config.json").write_text("{}")
    _pair(folder, torch_generator(), titok_files.tokenizer_file())


def _write_maskgit(folder):
    for name, file in (("g", "maskgit_checkpoint"), ("t", "tokenizer_checkpoint")):
        shutil.copyfile(FIXTURES / "maskgit-official" / file, folder / f"{name}.flax")


def _read_family(kind, heads=None, suffix="safetensors"):
    def read(folder):
        config = folder / "config.json"
        found = read_json(config) if config.is_file() else {}
        import_model(kind, Sources(folder / f"g.{suffix}", folder / f"t.{suffix}", heads, found))

    return read


def _read_yaml_config(folder):
    sources = Sources(folder / "g.safetensors", folder / "t.safetensors", 3, read_yaml(folder / "config.yaml"))
    import_model("maskbit", sources)


def _tokenizer_case(kind):
    levels = {"image_size": 4, "filters": 32, "multipliers": (1, 1), "blocks": 1, "codebook_size": 8, "code_width": 4}

    def write(folder):
        model = VQGAN(VQGANConfig(**levels)) if kind == "tokenizer-muse" else TamingVQGAN(
            TamingConfig(**levels, attention=(1,), latent_width=4)
        )  # fmt: skip
        renamed = {
            name.replace("quantizer.codebook", "quantize.embedding.weight"): value
            for name, value in model.state_dict().items()
        }
        safetensors.torch.save_file(renamed, folder / "t.safetensors")

    def read(folder):
        import_tokenizer(kind, folder / "t.safetensors")

    return Case(write, {"t.safetensors": spoil_safetensors}, read, valid=False)


def _read_flax(folder):
    looks_like(folder / "a.flax")
    read_flax(folder / "a.flax")


BOTH = {"g.safetensors": spoil_safetensors, "t.safetensors": spoil_safetensors}
CASES = {
    "safetensors": Case(lambda folder: safetensors.torch.save_file(TENSORS, folder / "a.safetensors"),
                        {"a.safetensors": spoil_safetensors}, lambda folder: read_safetensors(folder / "a.safetensors")),
    **{name: Case(write, {"a.pt": spoil}, lambda folder: read_tensors(folder / "a.pt", "a model"))
       for name, write, spoil in (("torch", _write_torch, spoil_torch), ("old torch", _write_legacy, spoil_bytes),
                                  ("TorchScript", _write_script, spoil_zip))},
    "pickle": Case(_write_pickle, {"a.pkl": spoil_bytes}, lambda folder: read_tensors(folder / "a.pkl", "a model")),
    "flax": Case(_write_flax, {"a.flax": spoil_bytes}, _read_flax),
    "Inception": Case(_write_inception, {"a.pt": spoil_torch}, lambda folder: read_weights(folder / "a.pt")),
    "LPIPS": Case(_write_lpips, {"a.pt": spoil_torch}, lambda folder: Lpips.from_file(folder / "a.pt")),
    "titok": Case(_write_titok, BOTH | {"config.json": spoil_json}, _read_family("titok", 2), valid=False),
    "titok, U-ViT": Case(_write_uvit, BOTH | {"config.json": spoil_json}, _read_family("titok"), valid=False),
    "maskbit": Case(_write_maskbit, BOTH | {"config.json": spoil_json}, _read_family("maskbit", 3), valid=False),
    "maskbit, YAML": Case(_write_maskbit, {"config.yaml": spoil_yaml}, _read_yaml_config, valid=False),
    "halton": Case(_write_halton, BOTH, _read_family("halton", 2), valid=False),
    "maskgit-torch": Case(_write_maskgit_torch, BOTH, _read_family("maskgit-torch"), valid=False),
    "maskgit": Case(_write_maskgit, {"g.flax": spoil_bytes, "t.flax": spoil_bytes}, _read_family("maskgit", suffix="flax")),
    **{kind: _tokenizer_case(kind) for kind in ("tokenizer-muse", "tokenizer-taming")},
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_spoilt_file_is_refused_in_one_line(tmp_path, name):
    check(name, CASES[name], tmp_path)


MODULE = """
import json
from pathlib import Path
import torch

class Own:
    def __call__(self, *inputs):
        return torch.zeros(1, 4, 5)

def make():
    facts = json.loads((Path(__file__).parent / "facts.json").read_text())
    made = []
    for one in facts if isinstance(facts, list) else [facts]:
        if not isinstance(one, dict):
            made.append(one)
            continue
        own = Own()
        vars(own).update({str(name): value for name, value in one.items()})
        made.append(own)
    return tuple(made) if isinstance(facts, list) else made[0]

class Nested:
    text = "x"
    def fails():
        raise ValueError("a\\nb")
"""


def test_factories_of_any_kind(tmp_path, monkeypatch):
    """A name that names nothing, and objects whose attributes are of any kind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "fuzzed_factory.py").write_text(MODULE)
    generator = {"num_tokens": 4, "codebook_size": 5, "num_classes": 3, "mask_id": 5}
    tokenizer = {
        "num_tokens": 4,
        "codebook_size": 5,
        "image_size": 8,
        "channels": 3,
        "grid": [2, 2],
        "encode": 1,
        "decode": 1,
    }
    places = [
        "fuzzed_factory:make",
        "fuzzed_factory:Nested.fails",
        "fuzzed_factory:Nested.text",
        "fuzzed_factory:Nested",
    ]

    def example(rng):
        (tmp_path / "facts.json").write_text(json.dumps(spoil_value(rng, [generator, tokenizer])))
        place = rng.choice(places)
        if rng.random() < 0.3:
            place = "fuzzed_factory" + spoil_text(rng, place.removeprefix("fuzzed_factory"))
        if is_factory(place):
            obey(lambda: pipeline_of(place))

    run("factories", example)
