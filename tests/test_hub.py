"""Pushing to the Hub, with a stand-in for the two calls of huggingface_hub: what is uploaded, and what is told of errors."""

import json
import re
import shutil

import huggingface_hub
import pytest
import torch
import yaml

from tokencritic import Generator, InputError, TokenCriticPipeline, TransformerConfig, as_generator
from tokencritic.models.classifier import Classifier, ClassifierConfig
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.tokenizers.compact import CompactConfig, CompactTokenizer

SIZES = {"num_tokens": 4, "codebook_size": 16, "width": 16, "layers": 1, "heads": 2, "mlp_width": 32}


class Hub:
    """Keeps a copy of what is uploaded, by repository."""

    def __init__(self, folder):
        self.folder, self.made = folder, {}

    def create_repo(self, repo_id, **options):
        if "/" not in repo_id:
            raise huggingface_hub.errors.HFValidationError(f"{repo_id} is no repository\nread the documentation")
        self.made[repo_id] = options

    def upload_folder(self, *, repo_id, folder_path, ignore_patterns, **options):
        assert repo_id in self.made
        shutil.copytree(folder_path, self.folder / repo_id, ignore=shutil.ignore_patterns(".*"))
        assert ignore_patterns == [".*", "**/.*"]
        self.made[repo_id] |= options


@pytest.fixture
def hub(tmp_path, monkeypatch):
    hub = Hub(tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub, "create_repo", hub.create_repo)
    monkeypatch.setattr(huggingface_hub, "upload_folder", hub.upload_folder)
    return hub


def make(num_classes=3, **options):
    torch.manual_seed(0)
    generator = Generator(TransformerConfig(num_classes=num_classes, **SIZES))
    parts = (
        CompactTokenizer(CompactConfig(image_size=8, width=16, codebook_size=16)),
        generator,
        generator.start_critic(),
    )
    return TokenCriticPipeline(*(part.eval() for part in parts), **options)


def test_the_folder_and_a_card_are_uploaded(hub):
    classifier = Classifier(ClassifierConfig(image_size=8, num_classes=3, width=8)).eval()
    defaults = SamplingSettings(steps=5, selection_noise=0.3)
    pipe = make(classifier=classifier, class_names=("cat", "dog", "owl"), defaults=defaults)
    address = pipe.push_to_hub("owner/pets", licence="mit", private=True, token="secret")
    assert address == "https://huggingface.co/owner/pets"
    options = {"private": True, "exist_ok": True, "token": "secret", "commit_message": "Model by token-critic"}
    assert hub.made == {"owner/pets": options}
    uploaded = hub.folder / "owner/pets"
    files = {path.relative_to(uploaded).as_posix() for path in uploaded.rglob("*") if path.is_file()}
    parts = ("tokenizer", "generator", "critic", "classifier")
    weights = {f"{part}/{name}" for part in parts for name in ("config.json", "model.safetensors")}
    assert files == {"pipeline.json", "README.md"} | weights
    again = TokenCriticPipeline.from_pretrained(uploaded)
    assert again.generator.fingerprint() == pipe.generator.fingerprint()
    card = (uploaded / "README.md").read_text()
    _, front, text = card.split("---\n", 2)
    assert yaml.safe_load(front)["license"] == "mit"
    assert 'TokenCriticPipeline.from_pretrained("owner/pets")\npipe("cat")[0].save' in text
    assert "8 x 8 images, 4 tokens of 16 codes, 3 classes" in text
    count = sum(tensor.numel() for tensor in pipe.generator.parameters())
    assert f"| generator | Generator | {count:,} | predicts hidden tokens |" in text
    settings = json.loads(re.search(r"```json\n(.*?)```", text, re.DOTALL)[1])
    assert (settings["sampler"], settings["steps"], settings["selection_noise"]) == ("critic", 5, 0.3)
    assert "Licence of the weights: mit." in text
    assert "secret" not in card


@pytest.mark.parametrize(("options", "call"), [({"num_classes": 0}, "pipe()[0]"), ({}, "pipe(0)[0]")])
def test_the_card_of_a_model_without_classes_or_without_names(hub, options, call):
    make(**options).push_to_hub("owner/plain")
    card = (hub.folder / "owner/plain/README.md").read_text()
    assert call in card
    assert "license: unknown" in card
    assert ("without classes" in card) == ("num_classes" in options)


def test_what_goes_wrong_is_one_line(hub, monkeypatch):
    with pytest.raises(InputError, match=r"could not be pushed to mine: mine is no repository$"):
        make().push_to_hub("mine")

    def offline(*_, **__):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(huggingface_hub, "create_repo", offline)
    with pytest.raises(InputError, match="could not be pushed to owner/pets: no route to host"):
        make().push_to_hub("owner/pets")
    foreign = as_generator(lambda tokens, _: torch.zeros(*tokens.shape, 16), num_tokens=4, codebook_size=16, mask_id=16)
    with pytest.raises(InputError, match="expected a class of this package to save a pipeline"):
        TokenCriticPipeline(make().tokenizer, foreign).push_to_hub("owner/pets")
    assert not hub.folder.exists()
