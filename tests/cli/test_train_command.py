"""`token-critic train`, in this process and on data that take no time."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import yaml

from tokencritic.cli.main import main
from tokencritic.models.critic import Critic
from tokencritic.models.generator import Generator
from tokencritic.presets import find_preset

SHORT = ("--steps", 2, "--training.batch_size", 8, "--training.held_out", 0.1)
SMALL = ("--model.width", 16, "--model.heads", 2, "--model.mlp_width", 32, "--model.layers", 2)
TINY = ("--model.image_size=8", "--model.factor=4", "--model.margin=0", "--model.width=16", "--model.codebook_size=16")


def call(*arguments):
    return main([str(argument) for argument in arguments])


def train(*arguments):
    assert call("train", *arguments) == 0


@pytest.fixture
def refused(capsys):
    """Call `train`, get the one line of its error."""

    def call_it(*arguments):
        capsys.readouterr()
        assert call("train", *arguments) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1, err
        return err.removeprefix("token-critic train: ").strip()

    return call_it


@pytest.fixture
def printed(capsys):
    """Call `train ... --print_config`, get the settings."""

    def call_it(*arguments):
        capsys.readouterr()
        train(*arguments, "--print_config")
        return yaml.safe_load(capsys.readouterr().out)

    return call_it


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Images, a trained tokenizer, its tokens, and a trained generator."""
    place = tmp_path_factory.mktemp("train")
    rng = np.random.default_rng(0)
    np.savez(place / "images.npz", images=rng.integers(0, 256, (40, 8, 8, 3), np.uint8), labels=np.arange(40) % 3)
    data = "--data", place / "images.npz"
    train("tokenizer", "fashion-mnist", *data, "--run", place / "t", *SHORT, *TINY)
    assert call("tokenize", place / "t", place / "images.npz", "--out", place / "tokens") == 0
    data = "--data", place / "tokens"
    train("generator", "fashion-mnist", *data, "--run", place / "g", *SHORT, *SMALL, "--tokenizer", place / "t")
    return place


def test_a_run_leaves_a_model_of_the_datas_sizes_and_its_settings(place):
    generator = Generator.from_pretrained(place / "g/generator")
    tokens = {"num_tokens": 4, "codebook_size": 16, "num_classes": 3}
    sizes = tokens | {"width": 16, "heads": 2, "mlp_width": 32, "layers": 2}
    assert generator.config == replace(find_preset("generator", "fashion-mnist").model, **sizes)
    assert (place / "g/pictures/samples.png").exists()
    settings = yaml.safe_load((place / "g/settings.yaml").read_text())
    assert settings["model"]["num_classes"] == 3
    assert settings["training"]["steps"] == 2
    assert settings["training"]["minutes"] is None
    tokenizer = json.loads((place / "t/tokenizer/config.json").read_text())
    assert tokenizer["channels"] == 3  # the preset's is 1
    assert not list(place.glob("*/.*.tmp"))


def test_the_settings_of_a_run_repeat_it(place, tmp_path):
    train("generator", "fashion-mnist", "--config", place / "g/settings.yaml", "--run", tmp_path / "again")
    first, again = (Generator.from_pretrained(run / "generator") for run in (place / "g", tmp_path / "again"))
    assert first.fingerprint() == again.fingerprint()
    train("generator", "fashion-mnist", "--config", place / "g/settings.yaml", "--run", tmp_path / "o", "--seed", 1)
    assert Generator.from_pretrained(tmp_path / "o/generator").fingerprint() != first.fingerprint()


def test_the_same_command_goes_on_and_another_models_folder_is_refused(place, tmp_path, refused, capsys):
    command = "generator", "fashion-mnist", "--data", place / "tokens", "--run", tmp_path, *SHORT[2:], *SMALL
    train(*command, "--steps", 1)
    train(*command, "--steps", 3)
    assert "resuming at step 1" in capsys.readouterr().out
    before = (tmp_path / "settings.yaml").read_text()
    assert yaml.safe_load(before)["training"]["steps"] == 3
    said = refused(*command, "--steps", 3, "--model.layers", 1)
    assert "has config {'layers': 2}, and this run has {'layers': 1}" in said
    assert "has batch_size 8, and this run has 4" in refused(*command, "--steps", 3, "--training.batch_size", 4)
    assert (tmp_path / "settings.yaml").read_text() == before


def test_a_critic_starts_from_the_generator_unless_told(place, tmp_path):
    command = "critic", "fashion-mnist", "--data", place / "tokens", *SHORT, "--optimizer.learning_rate", 1e-9
    train(*command, "--run", tmp_path / "one", "--generator", place / "g")
    train(*command, "--run", tmp_path / "two", "--generator", place / "g/generator", "--model.layers", 1)
    trunk = Generator.from_pretrained(place / "g/generator").trunk.state_dict()
    for run, layers in (("one", 2), ("two", 1)):
        critic = Critic.from_pretrained(tmp_path / run / "critic")
        assert (critic.config.width, critic.config.layers) == (16, layers)
        for name, value in critic.trunk.state_dict().items():
            assert value.allclose(trunk[name], atol=1e-6), name
    train(*command, "--run", tmp_path / "r", "--generator", place / "g", "--start", "random", "--model.layers", 1)
    random = Critic.from_pretrained(tmp_path / "r/critic")
    sizes = {"num_tokens": 4, "codebook_size": 16, "num_classes": 3, "layers": 1}
    assert random.config == replace(find_preset("critic", "fashion-mnist").model, **sizes)
    log = [json.loads(line) for line in (tmp_path / "r/log.jsonl").read_text().splitlines()]
    assert {"loss", "accuracy", "auc"} <= log[-1].keys()


def test_what_is_printed_is_taken_back(printed, tmp_path):
    preset = "critic", "cifar10"
    changed = printed(*preset, "--model.layers", 3, "--optimizer.betas", "[0.8, 0.9]", "--steps", 7, "--data", "here")
    assert (changed["model"]["layers"], changed["optimizer"]["betas"], changed["data"]) == (3, [0.8, 0.9], "here")
    assert [changed["training"][name] for name in ("steps", "epochs", "minutes")] == [7, None, None]
    file = tmp_path / "settings.yaml"
    file.write_text(yaml.safe_dump(changed))
    assert printed(*preset, "--config", file) == changed
    assert printed(*preset, "--config", file, "--model.layers", 4)["model"]["layers"] == 4
    file.write_text("objective: {target: changed}\n")
    assert printed(*preset, "--config", file)["objective"]["target"] == "changed"
    assert printed(*preset)["training"]["minutes"] == find_preset(*preset).training.minutes


def test_one_length_takes_the_place_of_the_presets(printed, tmp_path):
    preset = "generator", "fashion-mnist"
    for flags, expected in (
        (("--epochs", 2), {"steps": None, "epochs": 2.0, "minutes": None}),
        (("--training.steps", 5), {"steps": 5, "epochs": None, "minutes": None}),
        (("--training.steps", 5, "--minutes", 3), {"steps": None, "epochs": None, "minutes": 3.0}),
    ):
        training = printed(*preset, *flags)["training"]
        assert {name: training[name] for name in expected} == expected
    assert printed(*preset, "--seed", 9)["training"]["seed"] == 9


def test_bad_input_is_one_line_that_names_it(place, refused, tmp_path):
    strict, model, run = tmp_path / "strict.yaml", ("generator", "fashion-mnist"), tmp_path / "run"
    strict.write_text("model: {layerz: 3}\n")
    stray = tmp_path / "stray.yaml"
    stray.write_text("layers: 3\n")
    broken = tmp_path / "broken.yaml"
    broken.write_text("model: {layers: [\n")
    generator = *model, "--data", place / "tokens", "--run", run
    critic = "critic", "fashion-mnist", "--data", place / "tokens", "--run", run
    cases = {
        (*generator, "--config", strict): "strict.yaml: Option 'model.layerz' is not accepted",
        (*generator, f"--config={stray}"): "stray.yaml: Option 'layers' is not accepted",
        (*generator, "--config", broken): "broken.yaml",
        (*generator, "--config", tmp_path / "none.yaml"): "none.yaml",
        (*generator, "--model.layerz", 3): "--model.layerz",
        (*generator, "--model.layers", "many"): "--model.layers",
        (*generator, "--model.layers", 0): "layers is 0",
        (*generator, "--steps", 1, "--minutes", 1): "steps is 1 and minutes is 1.0; give one of them",
        (*generator, "--training.steps", 1, "--training.epochs", 1): "steps is 1 and epochs is 1",
        (*generator, "--minutes", -1): "minutes is -1.0; it must be positive",
        (*generator, "--model.num_tokens", 9): "--model.num_tokens is 9 but the tokens' is 4",
        (*generator, "--training.accumulation", 3): "batch_size is 32; it must be a multiple of 3",
        (*generator, "--training.held_out", 0.01): "held_out is 0.01, which leaves one side of 40 images empty",
        (*generator, "--tokenizer", place / "nowhere"): "nowhere",
        (*generator, "--device", "cuda:9"): "--device is cuda:9",
        (*model, "--run", run): "--data is missing",
        (*model, "--data", place / "tokens"): "--run is missing",
        (*model, "--data", place / "images.npz", "--run", run): "images.npz holds no packed tokens",
        critic: "--generator is missing",
        (*critic, "--generator", place / "t"): "has no config.json",
        (*critic, "--generator", place / "t/tokenizer"): "expected those of a generator",
        (*critic, "--generator", place / "g", "--model.width", 96): "--model.width is 96 but that of the generator",
        (*critic, "--generator", place / "g", "--model.layers", 3): "--model.layers is 3 but the generator",
        (*critic, "--generator", place / "g", "--start", "middle"): "middle",
        ("tokenizer", "fashion-mnist", "--data", place / "images.npz", "--run", run, "--lpips", "x"): "perceptual",
        ("tokenizer", "fashion-mnist", "--data", tmp_path / "no", "--run", run): "no does not exist",
        ("generator", "mnist"): "mnist",
        ("painter", "cifar10"): "painter",
        (): "required: model, preset",
    }
    for arguments, message in cases.items():
        assert message in refused(*arguments), arguments
        assert not run.exists(), arguments


def test_tokens_of_another_tokenizer_are_refused(place, refused, tmp_path):
    data, run = ("--data", place / "images.npz"), ("--run", tmp_path / "t")
    train("tokenizer", "fashion-mnist", *data, *run, *SHORT, *TINY, "--seed", 5)
    assert call("tokenize", tmp_path / "t", place / "images.npz", "--out", tmp_path / "tokens") == 0
    preset, data = ("critic", "fashion-mnist"), ("--data", tmp_path / "tokens", "--run", tmp_path / "run")
    for generator in (place / "g", place / "g/generator"):
        assert "learned tokens of tokenizer" in refused(*preset, *data, "--generator", generator)
    other = "generator", "fashion-mnist", *data, "--tokenizer", place / "t"
    assert "which made the tokens" in refused(*other)


@pytest.mark.parametrize("preset", [("tokenizer", "imagenet-256"), ("critic", "cifar10"), ("classifier", "cifar10")])
def test_help_explains_every_setting_on_a_page(capsys, preset):
    with pytest.raises(SystemExit) as end:
        call("train", *preset, "--help")
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert out.count("\n") <= 60
    common, *groups = out.split(".KEY VALUE")
    for flag in ("--data", "--run", "--device", "--minutes", "--steps", "--epochs", "--seed", "--print_config"):
        assert f"  {flag} " in common
    assert ("  --crop " in common) == (preset[0] != "critic")
    settings = find_preset(*preset)
    for name, text in zip(("model", "objective", "optimizer", "training"), groups, strict=True):
        for key in vars(getattr(settings, name)):
            assert re.search(rf"\b{key}(,\s+\w+)*:", text), key


def test_a_list_of_presets_does_not_wait_for_torch():
    code = (
        "import sys; from tokencritic.cli.main import main\ntry: main(['train', '--help'])\nexcept SystemExit: pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code + "print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    assert "fashion-mnist, cifar10, imagenet-256, imagenet-512" in " ".join(done.stdout.split())
    assert "torch" not in done.stdout.split()
