"""`token-critic import`: published files become a model folder, and every mistake is one line and writes nothing."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
import safetensors.torch
import torch

from tokencritic import TokenCriticPipeline
from tokencritic.cli.main import main
from tokencritic.errors import InputError
from tokencritic.files import read_yaml
from tokencritic.interop import importing
from tokencritic.interop.families import GENERATORS, TOKENIZERS, load_family, load_tokenizer_family
from tokencritic.interop.importing import find_weights, looks_like
from tokencritic.models import saved
from tokencritic.pipeline_folder import load_part
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.tokenizers.vqgan import VQGAN, TamingConfig, TamingVQGAN, VQGANConfig

OFFICIAL = Path(__file__).parents[1] / "interop/fixtures/maskgit-official"
GENERATOR, TOKENIZER = OFFICIAL / "maskgit_checkpoint", OFFICIAL / "tokenizer_checkpoint"
SMALL = {"image_size": 8, "filters": 32, "multipliers": (1, 1), "blocks": 1, "codebook_size": 8, "code_width": 4}


def published(tokenizer):
    """A tokenizer of ours under the names of its published weights."""
    state = tokenizer.state_dict()
    return {name.replace("quantizer.codebook", "quantize.embedding.weight"): value for name, value in state.items()}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Weights of other kinds: tokenizers of open-muse and taming-transformers, and the generator of maskgit-torch, in part."""
    place = tmp_path_factory.mktemp("files")
    safetensors.torch.save_file(published(VQGAN(VQGANConfig(**SMALL))), place / "muse.safetensors")
    torch.save({"state_dict": published(TamingVQGAN(TamingConfig(**SMALL, attention=(1,))))}, place / "last.ckpt")
    torch.save({"state_dict": {"Token_Prediction.0.weight": torch.zeros(2, 2)}}, place / "maskgit.ckpt")
    (place / "cut").write_bytes(GENERATOR.read_bytes()[:5000])
    with (place / "code.pt").open("wb") as file:
        pickle.dump({"state_dict": {"x": print}}, file)
    (place / "names.txt").write_text("\n".join(f"class {i}" for i in range(10)) + "\n\n")
    (place / "few.txt").write_text("only one\n")
    (place / "deep.yaml").write_text("{a: " * 40 + "1" + "}" * 40)
    (place / "alias.yaml").write_text("a: &a [1]\nb: [*a, *a]\n")
    (place / "list.yaml").write_text("- 1\n")
    (place / "odd.yaml").write_text("a: [1\n")
    (place / "code.yaml").write_text("a: !!python/object/apply:os.system [ls]\n")
    (place / "large.yaml").write_text("a: " + "x" * 2**21)
    return place


def call(*arguments):
    return main(["import", *map(str, arguments)])


@pytest.fixture
def refused(capsys, tmp_path):
    """Call the command, get the one line of its error; nothing is written."""

    def call_it(*arguments, out=None):
        out = out or tmp_path / "out"
        before = sorted(out.rglob("*")) if out.is_dir() else out.exists()
        capsys.readouterr()
        assert call(*arguments, "--out", out) == 2
        said, err = capsys.readouterr()
        assert "wrote" not in said
        assert err.count("\n") == 1, err
        assert (sorted(out.rglob("*")) if out.is_dir() else out.exists()) == before
        return err.removeprefix("token-critic import: ").strip()

    return call_it


def test_the_official_files_become_a_model(tmp_path, files, capsys):
    out = tmp_path / "new/model"
    flags = ("--generator", GENERATOR, "--tokenizer", TOKENIZER, "--class_names", files / "names.txt")
    assert call("maskgit", *flags, "--out", out) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0] == f"read {GENERATOR} and {TOKENIZER}"
    assert said.endswith("16 x 16 images, 16 tokens, 96 codes, 10 classes, 3 layers of width 64\n")
    pipe = TokenCriticPipeline.from_pretrained(out)
    assert pipe.class_names[9] == "class 9"
    assert pipe.defaults == SamplingSettings(sampler="confidence", schedule="maskgit", steps=12, selection_noise=4.5)
    assert pipe(3, output_type="pt").shape == (1, 3, 16, 16)
    assert call("maskgit", *flags, "--out", out) == 0  # the same once more


@pytest.mark.parametrize(
    ("kind", "file", "expected"),
    [
        ("tokenizer-muse", "muse.safetensors", VQGAN),
        ("tokenizer-taming", "last.ckpt", TamingVQGAN),
        ("tokenizer-maskgit", TOKENIZER, VQGAN),
    ],
)
def test_tokenizers_without_a_generator(tmp_path, files, kind, file, expected, capsys):
    assert call(kind, "--tokenizer", files / file, "--image_size", 32, "--out", tmp_path / "t") == 0
    assert "codes, 32 pixels" in capsys.readouterr().out
    assert type(load_part(tmp_path / "t", "tokenizer")) is expected


def test_the_kinds_are_listed_without_torch():
    done = subprocess.run([sys.executable, "-c", LIST_KINDS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    for kind, title in (GENERATORS | TOKENIZERS).items():
        assert f"{kind}: {title}" in text.replace("- ", "-")
    assert text.endswith("torch imported: False")


LIST_KINDS = """
import sys
from tokencritic.cli.main import main
try:
    main(["import", "--help"])
except SystemExit:
    print("torch imported:", "torch" in sys.modules)
"""


def test_every_row_has_its_importer():
    for family in map(load_family, GENERATORS):
        assert family.generator_marks
        assert family.tokenizer_marks
    assert all(load_tokenizer_family(kind).marks for kind in TOKENIZERS)


def test_files_are_known_by_their_tensors(files, tmp_path):
    assert looks_like(GENERATOR) == ("maskgit", "generator")
    assert looks_like(TOKENIZER) == ("maskgit", "tokenizer")
    assert looks_like(files / "maskgit.ckpt") == ("maskgit-torch", "generator")
    assert looks_like(files / "last.ckpt") == ("tokenizer-taming", "tokenizer")
    assert looks_like(files / "muse.safetensors") == ("tokenizer-muse", "tokenizer")
    for file in ("cut", "code.pt", "names.txt"):
        assert looks_like(files / file) is None


def test_what_is_wrong_with_the_files_is_one_line(refused, files):
    generator, tokenizer = ("--generator", GENERATOR), ("--tokenizer", TOKENIZER)
    cases = {
        ("painter", *generator, *tokenizer): "KIND is 'painter'; choose one of maskgit, maskgit-torch, ",
        ("maskgit", *tokenizer): "--generator is missing; kind maskgit needs it",
        ("maskgit", *generator): "required",
        ("maskgit", *generator, *tokenizer, "--heads", 0): "--heads is 0; it must be at least 1",
        ("maskgit", *generator, *tokenizer, "--heads", 8): "--heads is 8; ",
        ("maskgit", *generator, *tokenizer, "--image_size", 8): "--image_size is 8; kind maskgit does not use it",
        ("tokenizer-maskgit", *generator, *tokenizer): "kind tokenizer-maskgit does not use it; omit the flag",
        ("maskgit", "--generator", "/no/such", *tokenizer): "--generator /no/such does not exist; expected a file, a",
        ("maskgit", *generator, "--tokenizer", "nowhere"): "--tokenizer nowhere does not exist; expected a file",
        ("maskgit", "--generator", TOKENIZER, "--tokenizer", GENERATOR): "--generator and --tokenizer are swapped: ",
        (
            "maskgit",
            *generator,
            "--tokenizer",
            GENERATOR,
        ): "is not a tokenizer of kind maskgit: it looks like a generator of",
        (
            "maskgit-torch",
            *generator,
            *tokenizer,
        ): "it looks like a generator of kind maskgit, MaskGIT, the official flax",
        (
            "maskgit",
            "--generator",
            files / "maskgit.ckpt",
            *tokenizer,
        ): "a generator of kind maskgit-torch, MaskGIT, the",
        (
            "maskgit",
            *generator,
            "--tokenizer",
            files / "last.ckpt",
        ): "it looks like a tokenizer of kind tokenizer-taming, a",
        ("tokenizer-muse", *tokenizer): "is not of kind tokenizer-muse: it looks like a tokenizer of kind maskgit, ",
        ("maskgit", "--generator", files / "cut", *tokenizer): "cut is not a whole flax checkpoint (msgpack)",
        (
            "maskgit-torch",
            "--generator",
            files / "code.pt",
            "--tokenizer",
            files / "code.pt",
        ): "it refers to builtins.print",
        (
            "maskgit",
            *generator,
            *tokenizer,
            "--class_names",
            files / "few.txt",
        ): "class_names has 1 entries for 10 classes",
        (
            "maskgit",
            *generator,
            *tokenizer,
            "--class_names",
            files / "none.txt",
        ): "none.txt cannot be read: No such file",
        ("maskgit", *generator, *tokenizer, "--config", files / "none.yaml"): "none.yaml cannot be read: No such file",
        (
            "maskgit",
            *generator,
            *tokenizer,
            "--config",
            files / "deep.yaml",
        ): "deep.yaml is nested deeper than 32 levels",
        (
            "maskgit",
            *generator,
            *tokenizer,
            "--config",
            files / "alias.yaml",
        ): "alias.yaml has the alias *a; expected a conf",
        (
            "maskgit",
            *generator,
            *tokenizer,
            "--config",
            files / "list.yaml",
        ): "list.yaml holds a list; expected a mapping",
        ("maskgit", *generator, *tokenizer, "--config", files / "odd.yaml"): "odd.yaml is not a YAML config: ",
        (
            "maskgit",
            *generator,
            *tokenizer,
            "--config",
            files / "code.yaml",
        ): "code.yaml is not a YAML config: could not det",
        (
            "maskgit",
            *generator,
            *tokenizer,
            "--config",
            files / "large.yaml",
        ): "large.yaml has more than 131072 bytes",
        (
            "maskgit",
            *generator,
            "--tokenizer",
            files,
        ): "should hold one file of weights, such as model.safetensors, and has s",
        (
            "maskgit",
            *generator,
            "--tokenizer",
            OFFICIAL,
        ): "should hold one file of weights, such as model.safetensors, and h",
    }
    for arguments, message in cases.items():
        assert message in refused(*arguments), arguments


def test_weights_that_are_not_finite_are_not_imported(refused, tmp_path):
    weights = published(VQGAN(VQGANConfig(**SMALL)))
    weights["encoder.conv_in.weight"][0] = torch.nan
    safetensors.torch.save_file(weights, tmp_path / "nan.safetensors")
    message = refused("tokenizer-muse", "--tokenizer", tmp_path / "nan.safetensors", "--image_size", 8)
    assert "encoder.conv_in.weight holds NaN or infinity" in message


def test_a_folder_that_is_not_ours_is_not_written_to(refused, files, tmp_path, pipe, monkeypatch):
    flags = ("maskgit", "--generator", GENERATOR, "--tokenizer", TOKENIZER)
    assert "which is a file; expected a folder" in refused(*flags, out=files / "names.txt")
    assert "which holds other files; choose a new or empty folder" in refused(*flags, out=files)
    pipe.save_pretrained(tmp_path / "model")
    assert "a model that already has a classifier; choose another" in refused(*flags, out=tmp_path / "model")
    monkeypatch.setattr("os.access", lambda *_: False)
    assert f"and {tmp_path} cannot be written to" in refused(*flags, out=tmp_path / "a/b")
    monkeypatch.setattr(importing, "import_model", lambda *_: pytest.fail("the work began"))
    assert "cannot be written to" in refused(*flags, out=tmp_path / "a/b")


def test_a_folder_brings_its_config(tmp_path):
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "other.bin").write_bytes(b"")
    assert find_weights("--generator", str(folder)) == importing.Weights(folder / "other.bin", {})
    (folder / "model.safetensors").write_bytes(b"")
    (folder / "config.json").write_text('{"model": {"heads": 4}}')
    found = find_weights("--generator", str(folder))
    assert (found.file, found.config) == (folder / "model.safetensors", {"model": {"heads": 4}})
    (tmp_path / "own.yaml").write_text("model:\n  heads: 4\n  image_seq_len: ${model.n}\n")
    assert read_yaml(tmp_path / "own.yaml") == {"model": {"heads": 4, "image_seq_len": "${model.n}"}}
    (tmp_path / "own.json").write_text(json.dumps({"a": [1, {"b": None}]}))
    assert read_yaml(tmp_path / "own.json") == {"a": [1, {"b": None}]}


def test_the_hub_is_asked_for_what_is_not_here(tmp_path, monkeypatch, refused):
    """A stand-in for the Hub: repositories are folders."""
    hub = tmp_path / "hub"
    for name in ("owner/generator", "owner/both"):
        (hub / name).mkdir(parents=True)
    (hub / "owner/both/files").mkdir()
    (hub / "owner/generator/model.safetensors").write_bytes(GENERATOR.read_bytes())
    (hub / "owner/generator/config.json").write_text('{"a": 1}')
    (hub / "owner/both/pytorch_model.bin").write_bytes(TOKENIZER.read_bytes())
    (hub / "owner/both/files/t").write_bytes(TOKENIZER.read_bytes())

    def download(place, name, **_):
        if not (hub / place / name).is_file():
            raise OSError(f"404 for {place}/{name}")
        return str(hub / place / name)

    monkeypatch.setattr(saved, "get_hf_file_metadata", lambda *_, **__: None)
    monkeypatch.setattr(saved, "hf_hub_download", download)
    found = find_weights("--generator", "owner/generator")
    assert (found.file, found.config) == (hub / "owner/generator/model.safetensors", {"a": 1})
    assert find_weights("--tokenizer", "owner/both").file == hub / "owner/both/pytorch_model.bin"
    assert find_weights("--tokenizer", "owner/both/files/t").file == hub / "owner/both/files/t"
    for place in ("owner/none", "owner/both/files/g"):
        with pytest.raises(InputError, match=r"--tokenizer: owner/.* not a Hub id with .*: 404 for owner"):
            find_weights("--tokenizer", place)
    assert call("maskgit", "--generator", GENERATOR, "--tokenizer", "owner/both/files/t", "--out", tmp_path / "m") == 0

    def offline(*_, **__):
        raise ConnectionError("no route to host")

    def only_cached(place, name, **options):
        assert options["local_files_only"]
        raise huggingface_hub.errors.LocalEntryNotFoundError(f"{name} is not cached")

    monkeypatch.setattr(saved, "get_hf_file_metadata", offline)
    monkeypatch.setattr(saved, "hf_hub_download", only_cached)
    error = refused("maskgit", "--generator", GENERATOR, "--tokenizer", "owner/both")
    assert error.startswith("--tokenizer: owner/both is not a folder, and not a Hub id with model.safetensors: ")
    assert error.endswith("the Hub cannot be reached (no route to host)")
