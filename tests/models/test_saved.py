import json
import subprocess
import sys

import pytest
import safetensors.torch
import torch
from huggingface_hub.errors import LocalEntryNotFoundError

from tokencritic.errors import InputError
from tokencritic.models.critic import Critic, CriticConfig
from tokencritic.models.generator import Generator
from tokencritic.models.transformer import TransformerConfig

SIZES = {"num_tokens": 4, "codebook_size": 8, "num_classes": 2, "width": 8, "layers": 1, "heads": 2, "mlp_width": 16}


@pytest.fixture
def folder(tmp_path):
    Generator(TransformerConfig(**SIZES)).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize(
    "model", [Generator(TransformerConfig(**SIZES)), Critic(CriticConfig(**SIZES, reads_mask=True, norm_first=True))]
)
def test_a_model_comes_back_as_it_was(model, tmp_path):
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    assert again.config == model.config
    assert not again.training
    for name, value in model.state_dict().items():
        assert again.state_dict()[name].equal(value), name
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    loss = again(
        torch.zeros(1, 4, dtype=torch.int64), torch.tensor([0]), *([torch.ones(1, 4).bool()] * (type(again) is Critic))
    )
    loss.sum().backward()  # what was loaded can be trained on


def test_half_precision_on_disk_becomes_float32(folder):
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    safetensors.torch.save_file({k: v.half() for k, v in weights.items()}, folder / "model.safetensors")
    again = Generator.from_pretrained(folder)
    assert all(value.dtype == torch.float32 for value in again.state_dict().values())


def test_a_truncated_file_is_named(folder):
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    for size in (0, 5, 100, len(whole) - 1):
        file.write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"model\.safetensors is not a whole safetensors file"):
            Generator.from_pretrained(folder)


def test_a_folder_without_a_config_is_named(folder):
    (folder / "config.json").unlink()
    with pytest.raises(InputError, match=r"model has no config\.json"):
        Generator.from_pretrained(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_refused(folder, value):
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    weights["trunk.words.weight"][2, 3] = value
    safetensors.torch.save_file(weights, folder / "model.safetensors")
    with pytest.raises(InputError, match=r"model\.safetensors: trunk\.words\.weight holds NaN or infinity"):
        Generator.from_pretrained(folder)


def test_a_name_that_is_almost_a_bundled_model_is_not_looked_for_on_the_hub(monkeypatch):
    monkeypatch.setattr("tokencritic.models.saved.get_hf_file_metadata", lambda *_, **__: pytest.fail("asked the Hub"))
    for name in ("fashion_mnist", "Fashion-MNIST", "fashionmnist"):
        with pytest.raises(InputError, match=f"{name} is neither .* did you mean fashion-mnist?"):
            Generator.from_pretrained(name)


def test_a_place_that_is_neither_folder_nor_hub_id_is_named():
    with pytest.raises(InputError, match=r"no-such/model is not a folder, and not a Hub id with config\.json"):
        Generator.from_pretrained("no-such/model", local_files_only=True)


@pytest.mark.parametrize("place", ["/no/such/folder", "./model", "../model", "runs/one/model", "model/"])
def test_what_cannot_be_a_hub_id_is_not_looked_for_on_the_hub(place, monkeypatch):
    monkeypatch.setattr("huggingface_hub.utils._http.http_backoff", lambda *_, **__: pytest.fail("asked the Hub"))
    with pytest.raises(InputError, match="is neither a folder nor a Hub id; expected one of them"):
        Generator.from_pretrained(place)


@pytest.mark.parametrize("arguments", [{}, {"local_files_only": False}])
def test_a_hub_that_cannot_be_reached_is_asked_once(folder, monkeypatch, arguments):
    asked = []

    def no_answer(url, **_):
        asked.append(url)
        raise RuntimeError("no route")

    def download(_, name, local_files_only=False):
        assert local_files_only, "would wait for the Hub"
        if there:
            return str(folder / name)
        raise LocalEntryNotFoundError("not in the cache")

    monkeypatch.setattr("tokencritic.models.saved.get_hf_file_metadata", no_answer)
    monkeypatch.setattr("tokencritic.models.saved.hf_hub_download", download)
    there = False
    with pytest.raises(InputError, match=r"a Hub id with config.json: the Hub cannot be reached \(no route\)"):
        Generator.from_pretrained("some/model", **arguments)
    assert len(asked) == 1
    there = True  # downloaded before, it is loaded all the same
    assert Generator.from_pretrained("some/model", **arguments).config == Generator.from_pretrained(folder).config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "holds a list"),
        ({"depth": 3}, r"TransformerConfig\..* unexpected keyword argument 'depth'"),
        ({"layers": 0}, "layers is 0"),
        ({"layers": 1.5}, "layers is 1.5; expected int"),
        ({"null_class": "no"}, "null_class is 'no'; expected bool"),
        ({"layers": 2}, "does not fit its config.json .missing: trunk.blocks.1"),
        ({"width": 16}, r"of another shape: .* instead of"),
    ],
)
def test_a_config_that_does_not_fit_is_named(folder, change, message):
    file = folder / "config.json"
    file.write_text(change if isinstance(change, str) else json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(InputError, match=message):
        Generator.from_pretrained(folder)


def test_what_is_missing_in_a_folder_is_not_looked_for_on_the_hub(folder, monkeypatch):
    monkeypatch.setattr("tokencritic.models.saved.hf_hub_download", lambda *_, **__: pytest.fail("asked the Hub"))
    for place, name in ((folder, {"subfolder": "critic"}), (folder / "config.json", {})):
        with pytest.raises(InputError, match=r"has no config\.json"):
            Generator.from_pretrained(place, **name)


def test_the_weights_can_be_read_by_whom_any_new_file_can(folder, tmp_path):
    plain = tmp_path / "plain"
    plain.touch()
    assert {file.stat().st_mode for file in folder.iterdir()} == {plain.stat().st_mode}


def test_an_interrupted_overwrite_leaves_nothing_that_loads(folder, monkeypatch):
    import tokencritic.models.saved as module

    write = module.write_atomically

    def cut_off(path, how):
        if path.name == "config.json":
            raise KeyboardInterrupt
        write(path, how)

    monkeypatch.setattr(module, "write_atomically", cut_off)
    with pytest.raises(KeyboardInterrupt):
        Generator(TransformerConfig(**{**SIZES, "heads": 4})).save_pretrained(folder)
    with pytest.raises(InputError, match=r"has no config\.json"):  # heads change no shape: the old config would fit
        Generator.from_pretrained(folder)


def test_a_failed_save_leaves_the_old_model(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(OSError, match="No space"):
        Generator(TransformerConfig(**SIZES)).save_pretrained(folder)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before


def test_loading_a_model_does_not_load_the_compiler():
    code = "import sys; from tokencritic import TokenCriticPipeline; TokenCriticPipeline.from_pretrained('fashion-mnist'); "
    code += "print('torch' in sys.modules, 'torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"
