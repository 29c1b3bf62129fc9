import dataclasses
import importlib

import pytest
import torch

from tokencritic.errors import InputError
from tokencritic.models.critic import Critic
from tokencritic.models.generator import Generator
from tokencritic.models.inline_critic import InlineCritic
from tokencritic.pipeline_folder import KINDS
from tokencritic.presets import MODELS, NAMES, find_preset
from tokencritic.training.image_tasks import ClassifierObjective, TokenizerObjective
from tokencritic.training.token_tasks import CriticObjective, GeneratorObjective, InlineCriticObjective


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_is_whole_and_its_parts_fit_each_other(name):
    presets = [find_preset(model, name) for model in MODELS]
    tokenizer, generator, critic, inline_critic, classifier = presets
    objectives = [TokenizerObjective, GeneratorObjective, CriticObjective, InlineCriticObjective, ClassifierObjective]
    assert [type(preset.objective) for preset in presets] == objectives
    kind = next(kind for kind in KINDS["tokenizer"].values() if kind.Config is type(tokenizer.model))
    with torch.device("meta"):
        made = kind(tokenizer.model)
    for preset in (generator, critic):
        assert (preset.model.num_tokens, preset.model.codebook_size) == (made.num_tokens, made.codebook_size)
        assert preset.model.num_classes == classifier.model.num_classes
        assert preset.model.width == generator.model.width
    assert critic.model.layers <= generator.model.layers
    assert (classifier.model.image_size, classifier.model.channels) == (made.image_size, made.channels)
    own = {"num_features": generator.model.layers, "feature_width": generator.model.width}
    with torch.device("meta"):
        head, trunk = InlineCritic(dataclasses.replace(inline_critic.model, **own)), Generator(generator.model).trunk
    sizes = [sum(p.numel() for p in part.parameters()) for part in (head, trunk)]
    assert sizes[0] < 0.2 * sizes[1]
    for preset in presets:
        assert [getattr(preset.training, length) for length in ("steps", "epochs", "minutes")].count(None) == 2
        assert dataclasses.replace(preset) == preset


@pytest.mark.parametrize("name", NAMES)
def test_every_preset_says_what_it_costs_and_what_to_expect(name):
    text = importlib.import_module(f"tokencritic.presets.{name.replace('-', '_')}").__doc__
    assert "GFLOP" in text
    assert ("FID 4.69" in text) == (name == "imagenet-256")
    assert ("FID 6.80" in text) == (name == "imagenet-512")


@pytest.mark.parametrize("size", [256, 512])
def test_the_imagenet_presets_are_the_papers(size):
    generator, critic = (find_preset(model, f"imagenet-{size}") for model in ("generator", "critic"))
    assert (generator.model.layers, generator.model.heads, critic.model.layers, critic.model.heads) == (24, 16, 20, 12)
    for preset in (generator, critic):
        model, optimizer, training = preset.model, preset.optimizer, preset.training
        assert (model.width, model.mlp_width, model.dropout, model.num_tokens) == (768, 3072, 0.1, (size // 16) ** 2)
        assert (model.codebook_size, model.num_classes) == (1024, 1000)
        assert (optimizer.betas, optimizer.learning_rate, optimizer.weight_decay) == ((0.9, 0.96), 1e-4, 0.045)
        assert training.batch_size == 256
        assert training.steps * 256 / 1_281_167 == pytest.approx(600, abs=0.01)  # epochs
        assert optimizer.warmup * training.steps == pytest.approx(5000)
        assert training.precision == "bfloat16"
        assert training.recompute_activations == (size == 512)
    assert generator.objective.label_smoothing == 0.1
    assert (critic.objective.target, critic.objective.temperature) == ("masked", 1.0)


@pytest.mark.parametrize(("name", "millions"), [("fashion-mnist", 0.85), ("cifar10", 1.44)])
def test_the_small_presets_are_small(name, millions):
    generator, critic = (find_preset(model, name) for model in ("generator", "critic"))
    with torch.device("meta"):
        sizes = [
            sum(p.numel() for p in made.parameters()) for made in (Generator(generator.model), Critic(critic.model))
        ]
    assert sizes[0] == pytest.approx(millions * 1e6, rel=0.02)
    assert sizes[1] == pytest.approx(sizes[0], rel=0.01)
    assert generator.model.dropout == critic.model.dropout == 0


def test_an_unknown_name_is_refused():
    with pytest.raises(InputError, match="preset is 'mnist'; choose one of fashion-mnist, cifar10"):
        find_preset("generator", "mnist")
    with pytest.raises(InputError, match="model is 'painter'; choose one of tokenizer, generator"):
        find_preset("painter", "cifar10")
