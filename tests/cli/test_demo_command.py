"""`token-critic demo` on a small model."""

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
    lines = capsys.readouterr().out.splitlines()
    nfe = {name.strip(): int(count) for name, count, *_ in (line.strip("|").split("|") for line in lines[2:5])}
    assert list(nfe) == ["MaskGIT", "Token-Critic", "MaskGIT, refined"]
    assert nfe["MaskGIT"] <= nfe["Token-Critic"] == SamplingSettings(steps=3).nfe(4)
    assert nfe["MaskGIT, refined"] > nfe["MaskGIT"]
    for name in ("samples.png", "steps.gif", "refined.png"):
        assert name in lines[-1]
        with Image.open(tmp_path / "out" / name) as picture:
            assert min(picture.size) > 100
    with Image.open(tmp_path / "out" / "steps.gif") as animation:
        assert animation.n_frames >= 3


def test_a_model_without_a_critic_and_bad_rows_are_refused(parts, tmp_path, capsys):
    save(tmp_path / "model", *parts[:2])
    out = tmp_path / "out"
    assert main(["demo", str(tmp_path / "model"), "--out", str(out)]) == 2
    assert "has no critic" in capsys.readouterr().err
    assert main(["demo", "--rows", "0", "--out", str(out)]) == 2
    assert capsys.readouterr().err == "token-critic demo: --rows is 0; it must be at least 1\n"
    assert not out.exists()
