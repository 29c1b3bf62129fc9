"""Readers of JSON and YAML: settings of training, model folders, tuning, runs and token arrays."""

import contextlib
import dataclasses
import hashlib
import io
import json
import shutil

import numpy as np
import pytest
from fuzz.mutation import (
    Case,
    check,
    spoil_bytes,
    spoil_json,
    spoil_npy,
    spoil_npz,
    spoil_safetensors,
    spoil_value,
    spoil_yaml,
)
from studio.toy import toy_pipe
from training.run_task import PatternTask
from training.tiny_tokens import make_arrays

from tokencritic import Critic, Generator, TransformerConfig
from tokencritic.cli.import_model import _class_names
from tokencritic.cli.train import main as train_main
from tokencritic.data.tokens import TokenArrays
from tokencritic.export import export
from tokencritic.files import read_json, read_yaml, write_json
from tokencritic.models.classifier import Classifier, ClassifierConfig
from tokencritic.models.critic import CriticConfig
from tokencritic.models.halton import HaltonConfig, HaltonCritic, HaltonCriticConfig, HaltonGenerator
from tokencritic.models.inline_critic import InlineCritic, InlineCriticConfig
from tokencritic.models.maskbit import MaskBitConfig, MaskBitCritic, MaskBitCriticConfig, MaskBitGenerator
from tokencritic.models.titok import BertConfig, BertCritic, BertCriticConfig, BertGenerator
from tokencritic.models.uvit import UViTConfig, UViTCritic, UViTCriticConfig, UViTGenerator
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.pipeline_folder import KINDS, load_critic, load_part
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.studio.controls import offline_fid
from tokencritic.studio.service import Service
from tokencritic.tokenizers.compact import CompactConfig, CompactTokenizer
from tokencritic.tokenizers.llamagen import LlamaGenConfig, LlamaGenVQ
from tokencritic.tokenizers.maskbit import MaskBitTokenizer, MaskBitTokenizerConfig
from tokencritic.tokenizers.titok import TiTok, TiTokConfig
from tokencritic.tokenizers.vqgan import VQGAN, TamingConfig, TamingVQGAN, VQGANConfig
from tokencritic.training.loop import train
from tokencritic.training.run_folder import best_checkpoint, newest_checkpoint
from tokencritic.training.settings import OptimizerSettings, TrainingSettings

SIZES = {"num_tokens": 4, "codebook_size": 16, "num_classes": 3, "width": 16, "heads": 2, "mlp_width": 32}
BITS = {"places": 2, "splits": 2, "bits_per_part": 3, "num_classes": 3, "width": 16, "layers": 1, "heads": 2}
LEVELS = {"image_size": 4, "filters": 32, "multipliers": (1, 1), "blocks": 1}
CODES = {"codebook_size": 8, "code_width": 4}
VIT = {"encoder_width": 64, "encoder_layers": 1, "decoder_width": 64, "decoder_layers": 1, "num_tokens": 4}
PARTS = {
    "compact": lambda: CompactTokenizer(CompactConfig(image_size=8, width=16, codebook_size=16)),
    "vqgan": lambda: VQGAN(VQGANConfig(**LEVELS, **CODES)),
    "taming": lambda: TamingVQGAN(TamingConfig(**LEVELS, **CODES, attention=(1,), latent_width=4)),
    "llamagen": lambda: LlamaGenVQ(LlamaGenConfig(**LEVELS, **CODES, latent_width=4)),
    "maskbit tokenizer": lambda: MaskBitTokenizer(MaskBitTokenizerConfig(**LEVELS, splits=2, bits_per_part=3)),
    "titok": lambda: TiTok(TiTokConfig(**LEVELS, **CODES, **VIT, pixel_codebook_size=8, pixel_code_width=4)),
    "generator": lambda: Generator(TransformerConfig(**SIZES, layers=1)),
    "halton": lambda: HaltonGenerator(HaltonConfig(**SIZES, layers=1)),
    "maskbit": lambda: MaskBitGenerator(MaskBitConfig(**BITS, mlp_width=16)),
    "bert": lambda: BertGenerator(BertConfig(**SIZES, layers=1)),
    "uvit": lambda: UViTGenerator(UViTConfig(**SIZES, layers=3)),
    "critic": lambda: Critic(CriticConfig(**SIZES, layers=1)),
    "halton critic": lambda: HaltonCritic(HaltonCriticConfig(**SIZES, layers=1)),
    "maskbit critic": lambda: MaskBitCritic(MaskBitCriticConfig(**BITS, mlp_width=16)),
    "bert critic": lambda: BertCritic(BertCriticConfig(**SIZES, layers=1)),
    "uvit critic": lambda: UViTCritic(UViTCriticConfig(**SIZES, layers=3)),
    "inline critic": lambda: InlineCritic(InlineCriticConfig(4, 16, 3, 1, 16, "x", 16, 1, 2, 16)),
    "classifier": lambda: Classifier(ClassifierConfig(image_size=8, num_classes=3, width=8)),
}
CONFIG, STATE, NOTES = "config.json", "checkpoints/000000002/state.safetensors", "checkpoints/000000002/checkpoint.json"
TRAINED = ("tokenizer", "generator", "critic", "inline-critic", "classifier")


def _part_of(model):
    return next(part for part, kinds in KINDS.items() if type(model) in kinds.values())


def _case_of_part(name):
    model = PARTS[name]().eval()
    part = _part_of(model)

    def read(folder):
        load_part(folder, part)
        if part in ("critic", "inline_critic"):
            load_critic(folder)

    return Case(model.save_pretrained, {CONFIG: spoil_json, "model.safetensors": spoil_safetensors}, read)


def _save_pipeline(folder):
    pipe = toy_pipe()
    pipe.save_pretrained(folder)
    settings = dataclasses.asdict(SamplingSettings("critic", steps=4))
    trials = [{"settings": settings, "fid": {"100": 1.5}, "seconds": 1.0}]
    write_json(folder / "tuning-critic-7.json", {"best": settings, "models": {}, "trials": trials})
    pictures = np.zeros((3, 10, 10, 1), np.uint8)
    np.savez(folder / "reference.npz", arr_0=pictures, arr_1=np.arange(3))
    file = folder / "pipeline.json"
    facts = json.loads(file.read_text())
    write_json(file, facts | {"published": dataclasses.asdict(SamplingSettings("confidence"))})


def _read_tuned(folder):
    pipe = TokenCriticPipeline.from_pretrained(folder)
    pipe.sampling.tuned("critic", 7)
    pipe.sampling.at_nfe("critic", 7)
    service = Service(pipe, "MODEL")
    try:
        offline_fid(service, pipe.settings(sampler="critic"))
    finally:
        service.close()


def _read_pipeline(folder):
    pipe = TokenCriticPipeline.from_pretrained(folder)
    pipe.names(range(pipe.generator.num_classes))
    pipe.nfe(pipe.settings())


def _train(folder):
    settings = {"steps": 2, "batch_size": 16, "log_every": 1, "held_out": 0.1}
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        train(PatternTask(0.0), folder, OptimizerSettings(), TrainingSettings(**settings))


def _resume(folder):
    _train(folder)
    best_checkpoint(folder)


def _restored(read):
    """A reader that changes its folder: it reads a copy."""

    def read_copy(folder):
        place = folder.with_name("copy")
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(folder, place)
        read(place)

    return read_copy


def _sealed(rng, content):
    """Notes of a checkpoint whose digest is right, as of a stranger's run."""
    notes = json.loads(content)
    notes.pop("digest")
    spoilt = json.loads(json.dumps(_mapping(rng, notes)))
    return json.dumps({**spoilt, "sealed": True}).encode()


def _mapping(rng, values):
    found = spoil_value(rng, values)
    return found if isinstance(found, dict) else {}


def _seal(folder):
    """Write the digest of sealed notes."""
    file = folder / NOTES
    notes = json.loads(file.read_text())
    if notes.pop("sealed", False):
        digest = hashlib.sha256((folder / STATE).read_bytes())
        digest.update(json.dumps(notes, sort_keys=True).encode())
        file.write_text(json.dumps({**notes, "digest": digest.hexdigest()}))


def _resume_sealed(folder):
    _seal(folder)
    _resume(folder)


def _export(folder):
    with contextlib.redirect_stdout(io.StringIO()):
        export(folder, folder / "out", best=True)
        newest_checkpoint(folder)


def _write_config(model):
    def write(folder):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            train_main([model, "fashion-mnist", "--print_config"])
        (folder / "a.yaml").write_text(text.getvalue())

    return write


def _read_config(model):
    def read(folder):
        for flag in ("--print_config",) if model in ("tokenizer", "classifier") else ("--print_config", "--dry_run"):
            with contextlib.redirect_stdout(io.StringIO()):
                train_main([model, "fashion-mnist", "--config", str(folder / "a.yaml"), flag])

    return read


def _write_tokens(folder):
    arrays = make_arrays()
    facts = {"tokenizer_fingerprint": arrays.tokenizer_fingerprint, "codebook_size": 16, "grid": [2, 2], "rows": 64}
    facts |= {"class_names": list(arrays.class_names), "passes": 1, "corrupt": {}}
    (folder / "tokens.json").write_text(json.dumps(facts))
    np.save(folder / "tokens.npy", arrays.tokens)
    np.save(folder / "labels.npy", arrays.labels)


def _pack_tokens(folder):
    _write_tokens(folder)
    TokenArrays.open(folder).pack(folder / "packed.npz")


def _read_tokens(name):
    def read(folder):
        arrays = TokenArrays.open(folder / name)
        assert arrays.num_images <= len(arrays)
        assert arrays.tokens.max(initial=0) < arrays.codebook_size

    return read


CASES = {
    "json": Case(lambda folder: write_json(folder / "a.json", {"a": [1, 2.5, {"b": "x"}]}), {"a.json": spoil_json},
                 lambda folder: read_json(folder / "a.json")),
    "yaml": Case(lambda folder: (folder / "a.yaml").write_text("a: [1, 2.5]\nb: {c: x, d: null}\n"), {"a.yaml": spoil_yaml},
                 lambda folder: read_yaml(folder / "a.yaml")),
    **{f"config of {model}": Case(_write_config(model), {"a.yaml": spoil_yaml}, _read_config(model)) for model in TRAINED},
    **{f"part {name}": _case_of_part(name) for name in PARTS},
    "pipeline": Case(_save_pipeline, {"pipeline.json": spoil_json}, _read_pipeline),
    "tuning": Case(_save_pipeline, {"tuning-critic-7.json": spoil_json}, _read_tuned),
    "token arrays": Case(_write_tokens, {"tokens.json": spoil_json, "tokens.npy": spoil_npy, "labels.npy": spoil_npy},
                         _read_tokens(".")),
    "packed tokens": Case(_pack_tokens, {"packed.npz": spoil_npz}, _read_tokens("packed.npz")),
    "run": Case(lambda folder: _train(folder / "run"),
                {f"run/{file}": spoil for file, spoil in {"run.json": spoil_json, "log.jsonl": spoil_bytes, NOTES: spoil_json,
                 STATE: spoil_safetensors}.items()}, lambda folder: _restored(_resume)(folder / "run")),
    "run of a stranger": Case(lambda folder: _train(folder / "run"), {f"run/{NOTES}": _sealed},
                              lambda folder: _restored(_resume_sealed)(folder / "run")),
    "exported run": Case(
        lambda folder: _train(folder / "run"), {f"run/{file}": spoil_json for file in ("run.json", "generator/config.json")},
        lambda folder: _restored(_export)(folder / "run"), valid=False),
    "class names": Case(lambda folder: (folder / "a.txt").write_text("cat\ndog\n"), {"a.txt": spoil_yaml},
                        lambda folder: _class_names(str(folder / "a.txt"))),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_spoilt_file_is_refused_in_one_line(tmp_path, name):
    check(name, CASES[name], tmp_path)
