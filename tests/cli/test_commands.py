"""The real command line, in real processes."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tokencritic import TokenCriticPipeline
from tokencritic.tokenizers.compact import CompactConfig, CompactTokenizer

COMMAND = Path(sys.executable).with_name("token-critic")
OFFICIAL = Path(__file__).parents[1] / "interop/fixtures/maskgit-official"


def run(*arguments):
    return subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("imported") / "model"
    done = run(
        "import",
        "maskgit",
        *("--generator", OFFICIAL / "maskgit_checkpoint"),
        *("--tokenizer", OFFICIAL / "tokenizer_checkpoint"),
        *("--out", folder),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("16 x 16 images, 16 tokens, 96 codes, 10 classes, 3 layers of width 64\n")
    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "images.npz"
    rng = np.random.default_rng(0)
    np.savez(file, images=rng.integers(0, 256, (9000, 8, 8), np.uint8), labels=rng.integers(0, 3, 9000))
    return file


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    CompactTokenizer(CompactConfig(image_size=8, codebook_size=32)).save_pretrained(folder)
    return folder


def test_official_weights_become_a_model_that_samples(model, tmp_path):
    done = run("sample", model, "--num", 5, "--classes", 3, 7, "--seed", 20, "--steps", 4, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    names = [f"0000{20 + i}_class{(3, 7)[i % 2]}.png" for i in range(5)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [*names, "grid.png"]
    pipe = TokenCriticPipeline.from_pretrained(model)
    again = pipe([3, 7, 3, 7, 3], seed=20, num_inference_steps=4)
    for name, picture in zip(names, again, strict=True):
        assert np.array_equal(np.asarray(Image.open(tmp_path / name)), np.asarray(picture))


def test_tokenizing_is_killed_and_goes_on_to_the_same_bytes(tokenizer, images, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    done = run("tokenize", tokenizer, images, "--out", whole, "--crops_per_image", 2, "--crop", "random", "--flip")
    assert done.returncode == 0, done.stderr
    assert f"wrote {whole}: 18000 images of 4 tokens, 3 classes" in done.stdout
    arguments = [
        "tokenize",
        tokenizer,
        images,
        "--out",
        cut,
        "--crops_per_image",
        2,
        "--crop",
        "random",
        "--flip",
    ]
    first = subprocess.Popen([COMMAND, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while first.poll() is None and len(list(cut.glob(".chunks/*.npz"))) < 2:
        pass
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert not (cut / "tokens.json").exists()
    assert run(*arguments).returncode == 0
    files = sorted(path.name for path in whole.iterdir())
    assert files == sorted(path.name for path in cut.iterdir()) == ["labels.npy", "tokens.json", "tokens.npy"]
    assert all((whole / name).read_bytes() == (cut / name).read_bytes() for name in files)
    facts = json.loads((cut / "tokens.json").read_text())
    assert facts["tokenizer_fingerprint"] == CompactTokenizer.from_pretrained(tokenizer).fingerprint()
