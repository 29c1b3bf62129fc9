"""`package.module:factory` in place of a model, and `--critic`: a generator of the user's own from the command line."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tokencritic.cli.factories import is_factory
from tokencritic.cli.main import main
from tokencritic.pictures.grids import read_note

OWN = '''
import torch
from torch import nn
from tokencritic import TokenCriticPipeline, as_generator
from tokencritic.models.classifier import Classifier, ClassifierConfig
from tokencritic.tokenizers.compact import CompactConfig, CompactTokenizer


class Net(nn.Module):
    """No classes; 0 means hidden, the codes are 1 to 16; logits over the whole vocabulary."""

    num_tokens, codebook_size, mask_id, first_code = 4, 16, 0, 1

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(17, 17)

    def forward(self, tokens, labels):
        assert labels is None
        return self.table(tokens)


def alone():
    torch.manual_seed(0)
    return Net()


def make():
    generator = alone()
    return generator, CompactTokenizer(CompactConfig(image_size=8, width=16, codebook_size=16)).eval()


def pipeline():
    generator, tokenizer = make()
    return TokenCriticPipeline(tokenizer, generator)


class Nested:
    make = staticmethod(make)


def judged():
    generator, tokenizer = make()
    classifier = Classifier(ClassifierConfig(image_size=8, num_classes=3, width=8)).eval()
    return TokenCriticPipeline(tokenizer, generator, classifier=classifier)


def plain_function():
    function = as_generator(
        lambda tokens, labels: torch.zeros(*tokens.shape, 16), num_tokens=4, codebook_size=16, mask_id=16
    )
    return TokenCriticPipeline(make()[1], function, classifier=judged().classifier)


def unsized():
    return lambda tokens, labels: tokens


def odd():
    return make()[0], object()


def larger():
    return make()[0], CompactTokenizer(CompactConfig(image_size=12, width=16, codebook_size=16))


def three():
    return 1, 2, 3


def number():
    return 3


def broken():
    raise KeyError("weights.pt")


def needs(argument):
    return argument


def leaves():
    raise SystemExit("no GPU")


constant = 4
'''
SMALL = ("--model.width", 16, "--model.heads", 2, "--model.mlp_width", 32, "--model.layers", 1)
SHORT = ("--steps", 2, "--training.batch_size", 8, "--training.held_out", 0.25)


def call(*arguments):
    return main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the user's module and images without classes."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_model_of_the_test.py").write_text(OWN)
    images = np.random.default_rng(0).integers(0, 256, (60, 8, 8), np.uint8)
    np.savez(folder / "images.npz", images=images)
    Image.fromarray(images[0]).save(folder / "image.png")
    return folder


@pytest.fixture(autouse=True)
def _here(folder, monkeypatch):
    monkeypatch.chdir(folder)


@pytest.fixture(scope="module")
def run(folder):
    """A critic for it, trained from the command line."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert call("tokenize", "own_model_of_the_test:make", "images.npz", "--out", "tokens") == 0
        how = ("--data", "tokens", "--generator", "own_model_of_the_test:make", "--start", "random", *SHORT, *SMALL)
        assert call("train", "critic", "fashion-mnist", "--run", "run", *how) == 0
    return folder / "run"


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def test_what_is_a_factory():
    assert is_factory("model:make")
    assert is_factory("my_package.models:Factory.make")
    for text in ("owner/name", "model", "C:\\models", "/a:b", "./model:make", "a b:c", "model:", ":make", "1x:make"):
        assert not is_factory(text), text


@pytest.mark.parametrize("factory", ["make", "pipeline", "Nested.make"])
def test_a_factory_samples(factory, tmp_path):
    assert call("sample", f"own_model_of_the_test:{factory}", "--num", 3, "--steps", 3, "--out", tmp_path) == 0
    assert names(tmp_path) == ["000000.png", "000001.png", "000002.png", "grid.png"]


def test_an_image_is_made_again_only_if_its_code_is_named(run, tmp_path, capsys):
    own, flags = "own_model_of_the_test:make", ("--num", 2, "--steps", 3, "--seed", 4, "--critic", run)
    assert call("sample", own, *flags, "--out", tmp_path / "first") == 0
    file = tmp_path / "first/000005.png"
    assert call("sample", own, "--like", file, "--out", tmp_path / "again") == 0
    assert (tmp_path / "again/000005.png").read_bytes() == file.read_bytes()  # the critic is the file's
    assert call("sample", own, "--like", file, "--paper", "--out", tmp_path / "printed") == 0
    assert read_note(tmp_path / "printed/000005.png")["settings"]["steps"] == 18  # not the file's
    capsys.readouterr()
    assert call("sample", "--like", file, "--out", tmp_path / "never") == 2
    assert f"was made by {own}; name it as MODEL to run its code" in capsys.readouterr().err
    assert not (tmp_path / "never").exists()


def test_a_critic_is_trained_for_it_and_samples_with_it(run, tmp_path, capsys):
    assert (run / "pictures/samples.png").exists()
    facts = json.loads((run / "run.json").read_text())["facts"]
    assert facts["class_names"] == []
    assert re.fullmatch("[0-9a-f]{64}", facts["generator"])
    own = "own_model_of_the_test:make"
    made = {}
    for name, flags in {"plain": (), "run": ("--critic", run), "alone": ("--critic", run / "critic")}.items():
        how = ("--num", 5, "--steps", 3, "--format", "npz", "--out", tmp_path / name)
        assert call("sample", own, *how, *flags) == 0
        with np.load(tmp_path / name / "samples.npz") as arrays:
            assert arrays.files == ["arr_0"]
            made[name] = arrays["arr_0"]
    assert np.array_equal(made["run"], made["alone"])
    assert not np.array_equal(made["run"], made["plain"])
    capsys.readouterr()
    assert call("export", run, tmp_path / "critic") == 0
    said = capsys.readouterr().out
    assert "is not a pipeline yet; it needs a tokenizer and a generator\nwith a model of your own: token-critic" in said
    assert call("sample", own, "--num", 5, "--critic", tmp_path / "critic", *how[2:6], "--out", tmp_path / "again") == 0
    with np.load(tmp_path / "again/samples.npz") as arrays:
        assert np.array_equal(made["run"], arrays["arr_0"])
    assert (
        call(
            "train",
            "critic",
            "fashion-mnist",
            "--data",
            "tokens",
            "--generator",
            own,
            "--run",
            run,
            *SHORT,
            *SMALL,
            "--start",
            "random",
        )
        == 0
    )  # the run is finished: a factory makes the same generator each time


def test_every_command_takes_it(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TOKENCRITIC_CACHE", str(tmp_path / "cache"))
    own = ("own_model_of_the_test:make", "--critic", run)
    assert call("refine", own[0], "image.png", *own[1:], "--out", tmp_path / "refined") == 0
    assert names(tmp_path / "refined") == [
        "000_image_reconstructed.png",
        "000_image_refined.png",
        "before_after.png",
        "critic.png",
    ]
    assert (
        call("edit", own[0], "image.png", *own[1:], "--region", "0,0,4,8", "--num", 2, "--out", tmp_path / "edited")
        == 0
    )
    assert names(tmp_path / "edited") == ["000_image_edited.png", "001_image_edited.png", "before_after.png"]
    assert (
        call("diagnose", *own, "--data", "tokens", "--held_out", 1, "--num", 10, "--out", tmp_path / "diagnosis") == 0
    )
    assert call("demo", *own, "--rows", 1, "--num", 10, "--out", tmp_path / "demo") == 0
    assert names(tmp_path / "demo") == ["refined.png", "samples.png", "steps.gif"]
    trace = tmp_path / "steps.gif"
    assert call("sample", *own, "--num", 2, "--steps", 3, "--trace", trace, "--compare", "--out", tmp_path / "s") == 0
    assert trace.exists()
    own = ("own_model_of_the_test:judged", "--critic", run, "--reference", "images.npz", "--features", "classifier")
    own += ("--few_samples", "--batch_size", 30)
    assert call("evaluate", *own, "--num", 30, "--steps", 2, "--out", tmp_path / "e.json") == 0
    found = json.loads((tmp_path / "e.json").read_text())["results"]["value"]
    assert found["images"]["models"].keys() == {"generator", "critic", "tokenizer"}
    assert found["metrics"].keys() == {"fid", "kid", "is", "precision", "recall"}  # accuracy needs classes
    assert call("compare", *own, "--num", 30, "--steps", 2, "--out", tmp_path / "compared") == 0
    assert call("sweep", *own, "--num", 30, "--steps", 2, "--out", tmp_path / "sweep") == 0
    assert call("tune", *own, "--nfe", 4, "--budget", 60, "--first", 30, "--out", tmp_path / "tuned") == 0
    assert names(tmp_path / "tuned") == ["tuning-critic-4.json"]
    assert "these are now the defaults" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("own_model_of_the_test:alone", "returned only a generator; expected (generator, tokenizer) to make images"),
        (
            "own_model_of_the_test:unsized",
            ": the generator has no attribute num_tokens; pass num_tokens= to as_generator",
        ),
        ("own_model_of_the_test:odd", ": the tokenizer, a object, has no encode"),
        (
            "own_model_of_the_test:larger",
            ": the generator's num_tokens is 4 but the tokenizer's is 9; they must be equal",
        ),
        ("own_model_of_the_test:three", "returned 3 objects; expected a MaskedGenerator, a callable with the sizes"),
        (
            "own_model_of_the_test:number",
            "returned a int; expected a MaskedGenerator, a callable with the sizes of one,",
        ),
        ("own_model_of_the_test:broken", ": broken() raised KeyError: 'weights.pt' ("),
        ("own_model_of_the_test:needs", ": needs() raised TypeError: needs() missing 1 required positional argument"),
        ("own_model_of_the_test:leaves", ": leaves() raised SystemExit: no GPU ("),
        ("own_model_of_the_test:constant", ": constant is a int; expected a function without arguments"),
        ("own_model_of_the_test:nothing", ": the module own_model_of_the_test has no nothing"),
        (
            "no_such_module_here:make",
            ": there is no module no_such_module_here, neither in the current folder nor installed",
        ),
        ("tokencritic.no_such:make", ": there is no module tokencritic.no_such, neither in"),
        (
            "imports_the_missing:make",
            ": importing imports_the_missing raised ModuleNotFoundError: No module named 'nowh",
        ),
        ("has_a_typo:make", ": importing has_a_typo raised SyntaxError: "),
    ],
)
def test_what_is_wrong_with_a_factory_is_one_line(folder, tmp_path, capsys, factory, message):
    (folder / "imports_the_missing.py").write_text("import nowhere_to_be_found\n")
    (folder / "has_a_typo.py").write_text("def make(:\n")
    assert call("sample", factory, "--out", tmp_path / "out") == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"token-critic sample: {factory}")
    assert message in err
    assert not (tmp_path / "out").exists()


def test_what_is_wrong_with_the_rest_is_one_line(run, tmp_path, capsys):
    own, out = "own_model_of_the_test:make", tmp_path / "out"
    train = ("train", "critic", "fashion-mnist", "--generator", own, "--run", out, *SHORT)
    inline = ("train", "inline-critic", "fashion-mnist", "--generator", own, "--data", "tokens", "--run", out, *SHORT)
    typo = (
        "train",
        "critic",
        "fashion-mnist",
        "--generator",
        "own_model_of_the_test:mkae",
        "--data",
        "tokens",
        "--run",
        out,
    )
    cases = {
        train: "--data is missing",
        (*train, "--data", "tokens"): "--start is generator, but this generator has no trunk to start from",
        inline: "--generator own_model_of_the_test:make gives no features for an inline critic; train a critic for it",
        typo: "--generator own_model_of_the_test:mkae: the module own_model_of_the_test has no mkae",
        ("sample", own, "--critic", tmp_path): "has no critic; expected a run of a critic",
        ("sample", own, "--critic", run / "pictures"): "has no critic; expected a run of a critic",
        ("sample", own, "--critic", "fashion-mnist"): "the critic's num_tokens is 196 but the tokenizer's is 4",
        ("sample", own, "--classes", 3): "--classes is ['3'], and the model has no classes; leave it out",
        ("refine", own, "image.png"): "the model has no critic for refinement",
        ("diagnose", own): "has no critic to diagnose",
        ("evaluate", own): "--reference is missing, and own_model_of_the_test:make includes no reference.npz",
        (
            "tune",
            own,
            "--reference",
            "images.npz",
        ): "--out is missing; give a folder for the trials of a module:factory",
        ("tune", "fashion-mnist", "--out", "x"): "--out is x; the trials of a model folder are written to it",
        ("tokenize", "own_model_of_the_test:alone", "images.npz", "--out", out): "returned only a generator",
        ("train", "classifier", "fashion-mnist", "--data", "images.npz", "--run", out): "holds images without classes",
    }
    for arguments, message in cases.items():
        assert call(*arguments) == 2, arguments
        said, err = capsys.readouterr()
        assert (said, err.count("\n")) == ("", 1), err
        assert message in err, err
        assert not out.exists(), arguments


def test_a_function_has_no_fingerprint_to_keep_results_by(tmp_path, capsys):
    own = ("own_model_of_the_test:plain_function", "--reference", "images.npz", "--few_samples")
    assert call("sample", own[0], "--num", 2, "--steps", 2, "--out", tmp_path / "s") == 0
    capsys.readouterr()
    assert call("evaluate", *own, "--num", 30, "--features", "classifier") == 2
    assert "the function has no fingerprint, so its results cannot be cached" in capsys.readouterr().err
