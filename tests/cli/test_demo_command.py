"""`token-critic demo` on a small model."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from tokencritic import Generator, TokenCriticPipeline, TransformerConfig
from tokencritic.cli.main import main
from tokencritic.models.classifier import Classifier, ClassifierConfig
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.tokenizers.compact import CompactConfig, CompactTokenizer

SIZES = TransformerConfig(num_tokens=4, codebook_size=16, num_classes=3, width=16, layers=1, heads=2, mlp_width=32)


@pytest.fixture
def parts():
    torch.manual_seed(0)
    generator = Generator(SIZES)
    tokenizer = CompactTokenizer(CompactConfig(image_size=8, width=16, codebook_size=16))
    classifier = Classifier(ClassifierConfig(image_size=8, num_classes=3, width=8))
    return [part.eval() for part in (tokenizer, generator, generator.start_critic(), classifier)]


def save(folder, *parts):
    TokenCriticPipeline(*parts, class_names=("cat", "dog", "owl"), defaults=SamplingSettings(steps=3)).save_pretrained(
        folder
    )


def test_the_demo_writes_its_pictures_and_compares_at_equal_nfe(parts, tmp_path, capsys):
    save(tmp_path / "model", *parts)
    assert main(["demo", str(tmp_path / "model"), "--rows", "2", "--out", str(tmp_path / "out")]) == 0
    out, said = capsys.readouterr()
    lines = out.splitlines()
    nfe = {name.strip(): int(count) for name, count, *_ in (line.strip("|").split("|") for line in lines[2:5])}
    assert list(nfe) == ["MaskGIT", "Token-Critic", "MaskGIT, refined"]
    assert nfe["MaskGIT"] <= nfe["Token-Critic"] == SamplingSettings(steps=3).nfe(4)
    assert nfe["MaskGIT, refined"] > nfe["MaskGIT"]
    stages = ["MaskGIT: ", "Token-Critic: ", "MaskGIT, refined: ", "drawing"]
    place = 0
    for stage in stages:  # in this order
        place = said.index(stage, place) + 1
    for name in ("samples.png", "steps.gif", "refined.png"):
        assert name in lines[-1]
        with Image.open(tmp_path / "out" / name) as picture:
            assert min(picture.size) > 100
    with Image.open(tmp_path / "out" / "steps.gif") as animation:
        assert animation.n_frames >= 3


def test_the_fid_is_shown_where_reference_images_are_included(parts, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TOKENCRITIC_CACHE", str(tmp_path / "cache"))
    save(tmp_path / "model", *parts)

    def columns(num):
        out = ["--rows", "1", "--num", str(num), "--out", str(tmp_path / "out")]
        assert main(["demo", str(tmp_path / "model"), *out]) == 0
        head, _, *rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[:-1]]
        return [name.strip() for name in head], [row[-1] for row in rows]

    assert columns(60)[0][-1] == "right class of 60"
    images = np.random.default_rng(0).integers(0, 256, (100, 8, 8, 1), np.uint8)
    np.savez(tmp_path / "model/reference.npz", arr_0=images, arr_1=np.zeros(100, np.int64))
    head, values = columns(60)
    assert head[-2:] == ["right class of 60", "FID of 60"]
    assert len({*map(float, values)}) == 3
    found = tmp_path / "found.json"
    same = ("--num", "60", "--sampler", "critic", "--metrics", "fid", "--resamples", "0", "--out", str(found))
    assert main(["evaluate", str(tmp_path / "model"), *same]) == 0
    assert float(values[1]) == pytest.approx(
        json.loads(found.read_text())["results"]["value"]["metrics"]["fid"]["value"], abs=1e-3
    )
    capsys.readouterr()
    assert columns(30)[0][-1] == "right class of 30"  # fewer images than the features have dimensions


def test_a_model_without_a_critic_and_bad_rows_are_refused(parts, tmp_path, capsys):
    save(tmp_path / "model", *parts[:2])
    out = tmp_path / "out"
    assert main(["demo", str(tmp_path / "model"), "--out", str(out)]) == 2
    assert "has no critic" in capsys.readouterr().err
    assert main(["demo", "--rows", "0", "--out", str(out)]) == 2
    assert capsys.readouterr().err == "token-critic demo: --rows is 0; it must be at least 1\n"
    assert not out.exists()
