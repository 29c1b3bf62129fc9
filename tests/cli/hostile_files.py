"""A folder of models, data and hostile files for the table of bad input."""

import gzip
import json
import os
import pickle
import shutil
import zipfile
import zlib
from pathlib import Path

import msgpack
import numpy as np
import safetensors.torch
import torch
from PIL import Image

from tokencritic import Generator, TokenCriticPipeline, TransformerConfig
from tokencritic.data.sources import open_source
from tokencritic.data.tokenizing import TokenizeJob
from tokencritic.data.transforms import Preprocess
from tokencritic.models.classifier import Classifier, ClassifierConfig
from tokencritic.models.inline_critic import InlineCritic, InlineCriticConfig
from tokencritic.tokenizers.compact import CompactConfig, CompactTokenizer

DIGITS = "9" * 5000
OFFICIAL = Path(__file__).parents[1] / "interop/fixtures/maskgit-official"


class Code:
    """A pickle of this class makes the folder `executed` when it is loaded by `pickle.load`."""

    def __reduce__(self):
        return os.mkdir, ("executed",)


def make_files(place: Path) -> None:
    """Write everything that the table of bad input names below `place`."""
    _images(place)
    _models(place)
    _broken_models(place)
    _broken_data(place)
    _configs(place)
    _weights(place)


def _pipeline(num_classes: int, *, critics: bool = True) -> TokenCriticPipeline:
    torch.manual_seed(0)
    sizes = {"num_tokens": 4, "codebook_size": 16, "width": 16, "layers": 1, "heads": 2, "mlp_width": 32}
    generator = Generator(TransformerConfig(**sizes, num_classes=num_classes)).eval()
    tokenizer = CompactTokenizer(CompactConfig(image_size=8, width=16, codebook_size=16)).eval()
    if not critics:
        return TokenCriticPipeline(tokenizer, generator)
    features = {"num_features": generator.num_features, "feature_width": generator.feature_width}
    own = {"num_tokens": 4, "codebook_size": 16, "num_classes": num_classes, "generator": generator.identity()}
    inline = InlineCritic(InlineCriticConfig(**own, **features, width=16, layers=1, heads=2, mlp_width=32)).eval()
    classifier = (
        Classifier(ClassifierConfig(image_size=8, num_classes=num_classes, width=8)) if num_classes > 1 else None
    )
    names = ("cat", "dog", "\x1b[31mred\n")[:num_classes]
    critic = generator.start_critic().eval()
    return TokenCriticPipeline(tokenizer, generator, critic, classifier, names, inline_critic=inline)


def _models(place: Path) -> None:
    pipe = _pipeline(3)
    pipe.save_pretrained(place / "model")
    _pipeline(3, critics=False).save_pretrained(place / "bare")
    _pipeline(1).save_pretrained(place / "single")
    _pipeline(0).save_pretrained(place / "plain")
    source = open_source(place / "images.npz")
    TokenizeJob(source, pipe.tokenizer, place / "tokens", Preprocess(8, 1)).run(progress=False)
    source = open_source(place / "folder")
    TokenizeJob(source, pipe.tokenizer, place / "unlabelled", Preprocess(8, 1)).run(progress=False)


def _images(place: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (12, 8, 8), np.uint8)
    np.savez(place / "images.npz", images=pixels, labels=np.arange(12) % 3)
    (place / "folder").mkdir()
    (place / "empty").mkdir()
    for number in range(4):
        Image.fromarray(pixels[number]).save(place / "folder" / f"{number}.png")
    shutil.copy(place / "folder/0.png", place / "photo.png")
    (place / "nothing").touch()
    (place / "text").write_text("text\n")
    (place / "text.png").write_text("text\n")
    (place / "cut.png").write_bytes((place / "photo.png").read_bytes()[:60])
    header = b"IHDR" + (10**5).to_bytes(4) * 2 + bytes([8, 0, 0, 0, 0])
    chunk = (13).to_bytes(4) + header + zlib.crc32(header).to_bytes(4)
    (place / "huge.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk + (place / "photo.png").read_bytes()[33:])


def _broken_models(place: Path) -> None:
    def copy(name: str) -> Path:
        shutil.copytree(place / "model", place / name)
        return place / name

    def changed(name: str, file: str, **changes: object) -> None:
        path = copy(name) / file
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    def reweighed(name: str, change) -> None:
        path = copy(name) / "generator/model.safetensors"
        path.write_bytes(safetensors.torch.save(change(safetensors.torch.load(path.read_bytes()))))

    reweighed("nan", lambda tensors: {key: value * float("nan") for key, value in tensors.items()})
    reweighed("shapes", lambda tensors: {key: value[..., :-1].contiguous() for key, value in tensors.items()})
    reweighed("strange", lambda _: {"theirs": torch.ones(2)})
    reweighed("integers", lambda tensors: {key: value.long() for key, value in tensors.items()})
    for part in ("critic", "inline_critic", "classifier", "tokenizer"):
        path = copy(f"nan-{part}") / part / "model.safetensors"
        tensors = safetensors.torch.load(path.read_bytes())
        path.write_bytes(
            safetensors.torch.save({k: v * float("nan") if v.is_floating_point() else v for k, v in tensors.items()})
        )
    changed("layers", "generator/config.json", layers=10**9)
    changed("width", "generator/config.json", width=10**9)
    changed("wide", "generator/config.json", width=2**16, mlp_width=2**18, heads=1, layers=1000)
    changed("heads", "generator/config.json", heads=0)
    changed("negative", "generator/config.json", num_tokens=-4)
    changed("tokens-lot", "generator/config.json", num_tokens=10**12)
    changed("floats", "generator/config.json", layers=1.5)
    changed("lists", "generator/config.json", layers=[1])
    changed("strings", "generator/config.json", layers="1")
    changed("nulls", "generator/config.json", layers=None)
    changed("nan-config", "generator/config.json", dropout=float("nan"))
    changed("blocks", "tokenizer/config.json", decoder_blocks=10**8)
    changed("image", "tokenizer/config.json", image_size=10**9)
    changed("factor", "tokenizer/config.json", factor=0)
    changed("format", "pipeline.json", format=99)
    changed("kinds", "pipeline.json", parts={"generator": ["transformer"]})
    changed("kindless", "pipeline.json", parts={"generator": "their own", "tokenizer": "vqgan"})
    changed("escapes", "pipeline.json", parts={"../model/generator": "transformer"})
    changed("names", "pipeline.json", class_names=["cat", ["dog"], "owl"])
    changed("few", "pipeline.json", class_names=["cat"])
    changed("sampling", "pipeline.json", sampling={"steps": 10**12})
    changed("unsampled", "pipeline.json", sampling={"sampler": ["critic"]})
    changed("unsettled", "pipeline.json", sampling=[1])
    changed("noise-x", "pipeline.json", sampling={"selection_noise": "x"})
    changed("hot", "pipeline.json", sampling={"temperature": [1, "x"]})
    changed("window", "pipeline.json", sampling={"critic_window": 7})
    copy("deep")
    (place / "deep/pipeline.json").write_text('{"a":' * 10**5 + "1" + "}" * 10**5)
    copy("digits")
    (place / "digits/pipeline.json").write_text(f'{{"format": {DIGITS}}}')
    copy("binary")
    (place / "binary/pipeline.json").write_bytes(bytes(range(256)))
    copy("half")
    (place / "half/pipeline.json").write_text('{"format": 1, "par')
    copy("cut")
    (place / "cut/generator/model.safetensors").write_bytes(
        (place / "model/generator/model.safetensors").read_bytes()[:999]
    )
    copy("none")
    (place / "none/generator/model.safetensors").write_bytes(b"")
    copy("header")
    (place / "header/generator/model.safetensors").write_bytes((2**62).to_bytes(8, "little") + b"{}")
    copy("pickled")
    (place / "pickled/generator/model.safetensors").write_bytes(pickle.dumps(Code()))
    copy("tuned")
    (place / "tuned/tuning-critic-18.json").write_text('{"best": {"steps": 1e400}, "models": 3}')
    copy("unreadable")
    (place / "unreadable/generator/model.safetensors").unlink()
    (place / "unreadable/generator/model.safetensors").symlink_to("/proc/self/mem")
    copy("partless")
    shutil.rmtree(place / "partless/generator")


def _broken_data(place: Path) -> None:
    pixels = np.zeros((4, 8, 8), np.uint8)
    whole = (place / "images.npz").read_bytes()
    (place / "cut.npz").write_bytes(whole[: len(whole) // 2])
    np.savez(place / "pickle.npz", images=np.array([Code()], dtype=object), labels=np.arange(1))
    np.savez(place / "labels.npz", images=pixels, labels=np.full(4, 2**40))
    np.savez(place / "below.npz", images=pixels, labels=np.full(4, -7))
    np.savez(place / "counts.npz", images=pixels, labels=np.arange(9))
    np.savez(place / "floats.npz", images=pixels.astype(float), labels=np.arange(4))
    np.savez(place / "flat.npz", images=pixels.reshape(4, 64), labels=np.arange(4))
    np.savez(place / "zero.npz", images=pixels[:0], labels=np.arange(0))
    np.savez(place / "other.npz", pixels=pixels)
    np.savez(place / "samples.npz", arr_0=np.zeros((4, 8, 8, 3), np.uint8))
    np.savez(place / "moments.npz", mu=np.full(7, np.nan), sigma=np.eye(7))
    np.savez(place / "names.npz", images=pixels, labels=np.zeros(4, int), class_names=np.array([["a"]]))
    with zipfile.ZipFile(place / "claims.npz", "w") as archive:
        for name, shape in {"images": (10**9, 64, 64, 3), "labels": (10**9,), "arr_0": (10**9, 64, 64, 3)}.items():
            head = {"descr": "|u1", "fortran_order": False, "shape": shape}
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array_header_1_0(member, head)
                member.write(bytes(100))
    with (
        zipfile.ZipFile(place / "bomb.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("images.npy", "w", force_zip64=True) as member,
    ):
        np.lib.format.write_array_header_1_0(
            member, {"descr": "|u1", "fortran_order": False, "shape": (300, 1000, 1000)}
        )
        for _ in range(300):
            member.write(bytes(10**6))
    (place / "bomb").mkdir()
    # Repeated members expand as one file of a gigabyte.
    member = gzip.compress(bytes(2**24), 1)
    (place / "bomb/train-labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1]) + (2**30).to_bytes(4))
    (place / "bomb/train-images-idx3-ubyte.gz").write_bytes(
        gzip.compress(bytes([0, 0, 8, 3]) + (2**14).to_bytes(4) + (256).to_bytes(4) * 2) + member * 64
    )
    (place / "cut-idx").mkdir()
    (place / "cut-idx/train-images-idx3-ubyte.gz").write_bytes(member[:1000])
    (place / "idx").mkdir()
    (place / "idx/train-images-idx3-ubyte").write_bytes(bytes([0, 0, 8, 3]) + b"\xff" * 12 + bytes(100))
    (place / "cifar").mkdir()
    (place / "cifar/data_batch_1").write_bytes(pickle.dumps(Code()))
    (place / "corrupt").mkdir()
    for number in range(12):
        (place / "corrupt" / f"{number}.png").write_text("text")
    for name, change in {
        "crops-0": {"passes": 0},
        "crops-x": {"passes": "x"},
        "crops-negative": {"passes": -1},
        "rows": {"rows": 10**12},
        "grid": {"grid": [10**6, 10**6]},
        "codes": {"codebook_size": 10**12},
        "listed": {"class_names": [["a"], "b", "c"]},
        "print": {"tokenizer_fingerprint": ["a"]},
        "crops-huge": {"passes": 10**19},
    }.items():
        shutil.copytree(place / "tokens", place / f"tokens-{name}")
        file = place / f"tokens-{name}/tokens.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | change))
    for name, content in {
        "deep": "[" * 10**5,
        "digits": f'{{"rows": {DIGITS}}}',
        "cut": '{"rows": ',
        "list": "[]",
    }.items():
        shutil.copytree(place / "tokens", place / f"tokens-{name}")
        (place / f"tokens-{name}/tokens.json").write_text(content)
    shutil.copytree(place / "tokens", place / "tokens-objects")
    np.save(place / "tokens-objects/tokens.npy", np.array([Code()], dtype=object), allow_pickle=True)
    shutil.copytree(place / "tokens", place / "tokens-short")
    (place / "tokens-short/tokens.npy").write_bytes((place / "tokens/tokens.npy").read_bytes()[:-9])
    shutil.copytree(place / "tokens", place / "tokens-large")
    np.save(place / "tokens-large/tokens.npy", np.full((12, 4), 999, np.uint16))


def _configs(place: Path) -> None:
    laughs = "a: &a [x, x]\n" + "".join(
        f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefghijklmnopqrs", "bcdefghijklmnopqrst", strict=True)
    )
    texts = {
        "seven": "model: 7\n",
        "laughs": laughs,
        "deep": "{a: " * 10**4,
        "number": f"seed: {DIGITS}\n",
        "list": "- 1\n",
        "unknown": "modle: {}\n",
        "code": "seed: !!python/object/apply:os.mkdir [executed]\n",
        "open": "a: [1\n",
        "scalar": "7\n",
        "void": "",
        "layers": "model: {layers: 1000000000}\n",
        "steps": "training: {steps: 1.0e+12}\n",
        "nan": "optimizer: {learning_rate: .nan}\n",
        "betas": "optimizer: {betas: [1, 2, 3]}\n",
        "kind": "model: {layers: [1]}\n",
        "name": "run: [1]\n",
        "batch": "training: {batch_size: 1000000000000}\n",
        "nested": "training: {steps: {a: 1}}\n",
        "crop": "crop: [center]\n",
        "twice": "seed: 1\nseed: 2\n",
        "key": "{[1]: 2}\n",
        "self": "config: self.yaml\n",
    }
    for name, text in texts.items():
        (place / f"{name}.yaml").write_text(text)
    (place / "binary.yaml").write_bytes(bytes(range(128, 256)) * 9)
    (place / "large.yaml").write_text("a: " + "x" * 2**21)
    (place / "names.txt").write_text("one\n")
    (place / "binary.txt").write_bytes(b"\xff\xfe\xff")


def _flax_of_nan(content: bytes) -> bytes:
    """A flax checkpoint with NaN in its first array of several numbers."""
    end = content.index(b"float32") + len(b"float32")
    while content[end] not in (0xC4, 0xC5, 0xC6) or content[end + 1] < 64:  # the head of long content, in msgpack
        end = content.index(b"float32", end) + len(b"float32")
    start = end + {0xC4: 2, 0xC5: 3, 0xC6: 5}[content[end]]
    return content[:start] + b"\xff" * 8 + content[start + 8 :]


def _weights(place: Path) -> None:
    official = (OFFICIAL / "maskgit_checkpoint").read_bytes()
    (place / "whole.flax").write_bytes(official)
    (place / "tokenizer.flax").write_bytes((OFFICIAL / "tokenizer_checkpoint").read_bytes())
    (place / "cut.flax").write_bytes(official[:5000])
    (place / "nan.flax").write_bytes(_flax_of_nan(official))
    (place / "deep.flax").write_bytes(b"\x81\xa1a" * 10**5 + b"\xc0")
    (place / "claims.flax").write_bytes(b"\xdf\xff\xff\xff\xff")
    inner = msgpack.packb(((10**6, 10**6), "float32", b"1234"))
    (place / "array.flax").write_bytes(msgpack.packb({"params": {"a": msgpack.ExtType(1, inner)}}))
    (place / "code.pkl").write_bytes(pickle.dumps({"state_dict": Code()}))
    torch.save({"state_dict": {"weight": torch.ones(2), "trap": Code()}}, place / "code.pt")
    torch.save(torch.nn.Linear(2, 2), place / "module.pt")
    torch.save({"theirs": torch.ones(2)}, place / "stranger.pt")
    torch.save([1, 2], place / "list.pt")
    torch.save({1: torch.ones(1), (2,): {"a": torch.ones(1)}}, place / "keys.pt")
    (place / "cut.pt").write_bytes((place / "stranger.pt").read_bytes()[:300])
    safetensors.torch.save_file({"theirs": torch.ones(2)}, place / "stranger.safetensors")
    (place / "cut.safetensors").write_bytes((place / "stranger.safetensors").read_bytes()[:20])
    (place / "memory.safetensors").symlink_to("/proc/self/mem")
    (place / "memory").symlink_to("/proc/self/mem")
    (place / "loop").symlink_to("loop")
    (place / "memo.pkl").write_bytes(b"\x80\x04]r\xff\xff\xff\xff.")
