"""`token-critic export`: from four runs to a pipeline folder."""

import json
import shutil

import huggingface_hub
import numpy as np
import pytest
import safetensors.torch
import torch

from tokencritic import TokenCriticPipeline
from tokencritic.cli.main import main
from tokencritic.errors import InputError
from tokencritic.export import export
from tokencritic.models.classifier import Classifier
from tokencritic.models.critic import Critic
from tokencritic.models.generator import Generator
from tokencritic.pipeline_folder import load_part
from tokencritic.pretrained import place_of
from tokencritic.sampling.settings import SamplingSettings

SHORT = ("--steps", 2, "--training.batch_size", 8, "--training.held_out", 0.25)
SMALL = ("--model.width", 16, "--model.heads", 2, "--model.mlp_width", 32, "--model.layers", 2)
TINY = ("--model.image_size=8", "--model.factor=4", "--model.margin=0", "--model.width=16", "--model.codebook_size=16")


def call(*arguments):
    return main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each kind, the second tokenizer on the same images, and a classifier that tells fewer classes."""
    place = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(0)
    for name, classes in (("images", 3), ("fewer", 2)):
        pixels = rng.integers(0, 256, (40, 8, 8), np.uint8)
        np.savez(place / f"{name}.npz", images=pixels, labels=np.arange(40) % classes)

    def train(model, run, data, *flags):
        assert call("train", model, "fashion-mnist", "--data", place / data, "--run", place / run, *SHORT, *flags) == 0

    train("tokenizer", "t", "images.npz", *TINY)
    train("tokenizer", "t2", "images.npz", *TINY, "--seed", 1)
    assert call("tokenize", place / "t", place / "images.npz", "--out", place / "tokens") == 0
    train("generator", "g", "tokens", *SMALL)
    train("critic", "c", "tokens", "--generator", place / "g")
    train("inline-critic", "i", "tokens", "--generator", place / "g")
    train("classifier", "k", "images.npz", "--model.image_size", 8, "--model.width", 8)
    train("classifier", "k2", "fewer.npz", "--model.image_size", 8, "--model.width", 8)
    train("classifier", "k16", "images.npz", "--model.image_size", 16, "--model.width", 8)
    return place


@pytest.fixture
def folder(runs, tmp_path):
    """A pipeline of tokenizer and generator."""
    for run in ("t", "g"):
        export(runs / run, tmp_path / "model")
    return tmp_path / "model"


NOW_CRITIC = "the default sampler is now critic; `token-critic tune` finds the best settings of this model"


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_four_runs_become_a_pipeline_that_samples(runs, tmp_path, capsys):
    model = tmp_path / "model"
    capsys.readouterr()
    assert call("export", runs / "k", model) == 0
    assert call("export", runs / "t", model) == 0
    assert f"{model} is not a pipeline yet; it needs a generator" in capsys.readouterr().out
    assert not (model / "pipeline.json").exists()
    assert call("export", runs / "g", model) == 0
    assert TokenCriticPipeline.from_pretrained(model).parts.keys() == {"tokenizer", "generator", "classifier"}
    assert call("export", runs / "c", model) == 0
    assert capsys.readouterr().out.endswith(
        f"wrote the critic to {model}, which has tokenizer, generator, critic, classifier\n"
    )
    pipe = TokenCriticPipeline.from_pretrained(model)
    assert pipe.class_names == ("0", "1", "2")
    trained = load_part(runs / "t", "tokenizer"), Generator.from_pretrained(runs / "g/generator")
    trained += Critic.from_pretrained(runs / "c/critic"), Classifier.from_pretrained(runs / "k/classifier")
    for name, part in zip(("tokenizer", "generator", "critic", "classifier"), trained, strict=True):
        assert getattr(pipe, name).fingerprint() == part.fingerprint()
    assert pipe([0, 2], output_type="pt", num_inference_steps=3, candidates=2).shape == (2, 1, 8, 8)


def test_adding_a_part_leaves_the_others_and_the_defaults(runs, folder):
    pipe = TokenCriticPipeline.from_pretrained(folder)
    pipe.defaults, pipe.class_names = SamplingSettings(sampler="halton", steps=5), ("cat", "dog", "owl")
    pipe.save_pretrained(folder)
    before = contents(folder)
    notes = export(runs / "c", folder)[1]
    assert notes == ["the critic has class names ['0', '1', '2']...; those of the folder are kept"]
    after = contents(folder)
    changed = {path.parts[0] for path in after if after[path] != before.get(path)}
    assert changed == {"critic", "pipeline.json"}
    again = TokenCriticPipeline.from_pretrained(folder)
    assert (again.defaults, again.class_names) == (pipe.defaults, pipe.class_names)


def test_a_new_critic_has_settings_that_suit_a_weak_one(runs, folder):
    pipe = TokenCriticPipeline.from_pretrained(folder)
    pipe.defaults = SamplingSettings(steps=12, selection_noise=4.5)
    pipe.save_pretrained(folder)
    assert export(runs / "c", folder)[1] == [NOW_CRITIC]
    late = {"noise_kind": "gumbel", "selection_noise": 3.4, "critic_window": (0.53, 0.0)}
    fresh = TokenCriticPipeline.from_pretrained(folder).defaults
    assert fresh == SamplingSettings("critic", 12, temperature=(1.1, 0.8), **late)
    tuned = TokenCriticPipeline.from_pretrained(folder)
    tuned.defaults = SamplingSettings(steps=12, selection_noise=0.3)
    tuned.save_pretrained(folder)
    assert export(runs / "c", folder)[1] == []  # a newer critic for the same settings
    assert TokenCriticPipeline.from_pretrained(folder).defaults == tuned.defaults


def test_half_precision_takes_half_the_disk_and_comes_back_as_float32(runs, tmp_path):
    whole, half = tmp_path / "whole", tmp_path / "half"
    for run in ("t", "g", "c"):
        export(runs / run, whole)
        assert export(runs / run, half, half=True)[1] == ([NOW_CRITIC] if run == "c" else [])
    weights = safetensors.torch.load_file(half / "generator/model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float16}
    one, other = (TokenCriticPipeline.from_pretrained(place) for place in (whole, half))
    assert one.tokenizer.fingerprint() == other.tokenizer.fingerprint()
    for name in ("generator", "critic"):
        for a, b in zip(getattr(one, name).parameters(), getattr(other, name).parameters(), strict=True):
            assert b.dtype is torch.float32
            assert a.allclose(b, rtol=1e-3, atol=1e-7)


def test_the_best_checkpoint_can_be_taken(runs, folder, tmp_path):
    run = tmp_path / "g"
    shutil.copytree(runs / "g", run)
    last = Generator.from_pretrained(run / "generator")
    model = Generator.from_pretrained(run / "generator")
    torch.nn.init.zeros_(model.bias)
    model.save_pretrained(run / "generator")  # as if training had gone on for the worse
    export(run, folder)
    assert TokenCriticPipeline.from_pretrained(folder).generator.fingerprint() == model.fingerprint()
    assert call("export", run, folder, "--best") == 0
    assert TokenCriticPipeline.from_pretrained(folder).generator.fingerprint() == last.fingerprint()


def test_a_critic_of_other_weights_is_remarked(runs, folder, tmp_path):
    assert export(changed_generator(runs, tmp_path / "g"), folder)[1] == []
    assert export(runs / "c", folder)[1] == [
        NOW_CRITIC,
        "the critic was trained for another generator than the folder's",
    ]
    assert export(tmp_path / "g", folder)[1] == []
    assert export(runs / "g", folder)[1] == ["the folder's critic was trained for the previous generator"]


def changed_generator(runs, run):
    """A run like `g` with other weights."""
    shutil.copytree(runs / "g", run)
    generator = Generator.from_pretrained(run / "generator")
    torch.nn.init.normal_(generator.bias)
    generator.save_pretrained(run / "generator")
    return run


def test_an_inline_critic_is_the_default_of_a_folder_without_a_critic(runs, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "judged")
    export(runs / "c", tmp_path / "judged")
    pipe = TokenCriticPipeline.from_pretrained(folder)
    pipe.defaults = SamplingSettings(steps=5, selection_noise=2.0)
    pipe.save_pretrained(folder)
    written, notes = export(runs / "i", folder)
    assert written.endswith("which has tokenizer, generator, inline_critic")
    assert notes == [NOW_CRITIC.replace("critic;", "inline;")]
    pipe = TokenCriticPipeline.from_pretrained(folder)
    assert pipe.defaults == SamplingSettings(sampler="inline", steps=5, selection_noise=2.0)
    assert pipe([0, 2], output_type="pt").shape == (2, 1, 8, 8)
    assert export(runs / "i", folder)[1] == []
    assert export(runs / "i", tmp_path / "judged")[1] == []
    assert TokenCriticPipeline.from_pretrained(tmp_path / "judged").defaults.sampler == "critic"


def test_an_inline_critic_may_come_before_its_generator(runs, tmp_path):
    notes = [export(runs / run, tmp_path / "model")[1] for run in ("t", "i", "g")]
    assert notes == [[], [], [NOW_CRITIC.replace("critic;", "inline;")]]
    assert TokenCriticPipeline.from_pretrained(tmp_path / "model").defaults.sampler == "inline"


def test_an_inline_critic_stands_beside_its_own_generator_alone(runs, folder, tmp_path):
    other = changed_generator(runs, tmp_path / "g")
    shutil.copytree(folder, tmp_path / "other")
    export(other, tmp_path / "other")
    with pytest.raises(
        InputError, match=r"the generator is \w+; expected \w+, for which the inline critic was trained"
    ):
        export(runs / "i", tmp_path / "other")
    assert not (tmp_path / "other/inline_critic").exists()
    export(runs / "i", folder)
    before = contents(folder)
    for run, half in ((other, False), (runs / "g", True)):  # half precision rounds, and its weights are other ones
        with pytest.raises(
            InputError, match=r"inline critic .* another generator; delete .*inline_critic, .* train one"
        ):
            export(run, folder, half=half)
    with pytest.raises(InputError, match="has a generator trained on tokens of another tokenizer"):
        export(runs / "t2", folder)
    assert contents(folder) == before
    assert export(runs / "g", folder)[1] == []
    shutil.rmtree(folder / "inline_critic")
    assert export(other, folder)[1] == [NOW_CRITIC.replace("critic;", "confidence;")]
    assert TokenCriticPipeline.from_pretrained(folder).parts.keys() == {"tokenizer", "generator"}
    export(runs / "g", folder)
    export(runs / "i", folder, half=True)
    assert TokenCriticPipeline.from_pretrained(folder).defaults.sampler == "inline"


def test_an_inline_critic_for_the_bundled_model_is_trained_exported_and_samples(tmp_path):
    bundled, run, model = place_of("fashion-mnist"), tmp_path / "run", tmp_path / "model"
    before, short = contents(bundled), ("--steps", 2, "--training.batch_size", 4, "--training.held_out", 0.001)
    parts = ("--generator", "fashion-mnist")
    assert call("train", "inline-critic", "fashion-mnist", *parts, "--run", run, *short) == 0
    assert contents(bundled) == before
    shutil.copytree(bundled, model)
    assert call("export", run, model) == 0
    after = contents(model)
    assert {path.parts[0] for path in after if after[path] != before.get(path)} == {"inline_critic"}
    out = tmp_path / "images"
    assert call("sample", model, "--sampler", "inline", "--steps", 3, "--classes", 8, "--num", 1, "--out", out) == 0
    assert list(out.glob("*.png"))


def test_parts_that_do_not_fit_are_refused_and_nothing_changes(runs, folder, tmp_path, capsys):
    other, unfinished, alien = tmp_path / "other", tmp_path / "unfinished", tmp_path / "alien"
    export(runs / "t2", other)
    unfinished.mkdir()
    shutil.copy(runs / "g/run.json", unfinished)
    alien.mkdir()
    (alien / "run.json").write_text('{"name": "painter", "facts": {}}')
    turned = tmp_path / "turned"
    shutil.copytree(runs / "k", turned)
    facts = json.loads((turned / "run.json").read_text())
    facts["facts"]["class_names"].reverse()
    (turned / "run.json").write_text(json.dumps(facts))
    cases = {
        (runs / "g", tmp_path / "new"): "has no tokenizer; export the tokenizer of the generator's tokens first",
        (runs / "g", other): "was trained on",
        (runs / "c", other): "was trained on",
        (runs / "t2", folder): "has a generator trained on tokens of another tokenizer",
        (runs / "k2", folder): "the classifier has 2 classes; expected 3, as in the generator",
        (runs / "k16", folder): "the classifier's (channels, image_size) is (1, 16); the tokenizer's is (1, 8)",
        (turned, folder): "has classes in the order ['2', '1', '0']",
        (unfinished, folder): "has no generator yet",
        (alien, folder): "'painter'",
        (runs / "tokens", folder): "has no run.json",
        (runs / "k", folder, "--best", "--quickly"): "--quickly",
    }
    before = contents(folder), contents(other)
    for arguments, message in cases.items():
        capsys.readouterr()
        assert call("export", *arguments) == 2
        out, err = capsys.readouterr()
        assert message in err, arguments
        assert err.count("\n") == 1
        assert out == ""
        assert (contents(folder), contents(other)) == before, arguments
        assert not (tmp_path / "new").exists()


def test_weights_beyond_float16_are_refused(runs, folder, tmp_path):
    run = tmp_path / "g"
    shutil.copytree(runs / "g", run)
    generator = Generator.from_pretrained(run / "generator")
    torch.nn.init.constant_(generator.bias, 1e5)
    generator.save_pretrained(run / "generator")
    with pytest.raises(InputError, match="too large for float16"):
        export(run, folder, half=True)


def test_a_folder_is_pushed_as_it_is_with_a_card_of_its_own(runs, folder, tmp_path, monkeypatch, capsys):
    uploaded = {}

    def upload(*, repo_id, folder_path, **_):
        uploaded[repo_id] = {path.as_posix(): content for path, content in contents(folder_path).items()}

    monkeypatch.setattr(
        huggingface_hub, "create_repo", lambda repo_id, **options: uploaded.update({"options": options})
    )
    monkeypatch.setattr(huggingface_hub, "upload_folder", upload)
    (folder / "tuning-critic-36.json").write_text("{}")
    assert call("export", runs / "c", folder, "--push", "owner/model", "--licence", "mit", "--private") == 0
    assert capsys.readouterr().out.endswith(f"pushed {folder} to https://huggingface.co/owner/model\n")
    assert uploaded["options"] == {"private": True, "exist_ok": True, "token": None}
    assert {"README.md", "pipeline.json", "critic/model.safetensors", "tuning-critic-36.json"} <= uploaded[
        "owner/model"
    ].keys()
    assert b"license: mit" in uploaded["owner/model"]["README.md"]
    (folder / "README.md").write_text("my own words")
    assert call("export", runs / "k", folder, "--push", "owner/model") == 0
    assert uploaded["owner/model"]["README.md"] == b"my own words"
    cases = {
        (runs / "t", tmp_path / "new", "--push", "owner/other"): "is not a pipeline yet; nothing is pushed",
        (runs / "t", tmp_path / "never", "--private"): "--licence and --private need --push",
    }
    for arguments, message in cases.items():
        assert call("export", *arguments) == 2
        assert message in capsys.readouterr().err
    assert "owner/other" not in uploaded
    assert not (tmp_path / "never").exists()
