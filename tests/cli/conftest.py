"""A small model with every part, of random weights, for tests that bring none of their own."""

import pytest
import torch

from tokencritic import Generator, TokenCriticPipeline, TransformerConfig
from tokencritic.cli import arguments
from tokencritic.models.classifier import Classifier, ClassifierConfig
from tokencritic.tokenizers.compact import CompactConfig, CompactTokenizer

SIZES = TransformerConfig(num_tokens=4, codebook_size=16, num_classes=3, width=16, layers=1, heads=2, mlp_width=32)


@pytest.fixture(autouse=True)
def device_is_known(monkeypatch):
    """As if an earlier command had named the device: a process does so once, in whichever test comes first."""
    monkeypatch.setattr(arguments, "_SAID", {"cpu"})


@pytest.fixture(scope="module")
def pipe():
    torch.manual_seed(0)
    generator = Generator(SIZES)
    parts = (
        CompactTokenizer(CompactConfig(image_size=8, width=16, codebook_size=16)),
        generator,
        generator.start_critic(),
        Classifier(ClassifierConfig(image_size=8, num_classes=3, width=8)),
    )
    return TokenCriticPipeline(*(part.eval() for part in parts), class_names=("cat", "dog", "owl"))


@pytest.fixture(scope="module")
def model(pipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    pipe.save_pretrained(folder)
    return folder
