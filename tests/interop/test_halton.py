"""Halton-MaskGIT's files: parity with the original code, other sizes, and what does not fit."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.interop.families import FAMILIES
from tokencritic.interop.family import Sources
from tokencritic.interop.halton import import_generator, import_tokenizer, read
from tokencritic.pipeline import TokenCriticPipeline

FOLDER = Path(__file__).parent / "fixtures" / "halton-maskgit"
# The same with a larger tokenizer and a file with optimizer state, where it lies beside the repository.
SHARED = Path(__file__).parents[2] / "../shared/fixtures/halton-maskgit"
only_with_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason=f"{SHARED} is not there: it is too large to be kept here"
)
Arrays = dict[str, Tensor]
ATOL = 5e-5


def arrays_of(folder: Path) -> Arrays:
    with np.load(folder / "expected.npz") as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays}


@pytest.fixture(scope="module")
def expected() -> Arrays:
    return arrays_of(FOLDER)


def weights_of(name: str) -> Arrays:
    return torch.load(FOLDER / name, weights_only=True)["model_state_dict"]


def close(found: Tensor, wanted: Tensor, atol: float = ATOL) -> None:
    torch.testing.assert_close(found, wanted, atol=atol, rtol=0)


# Parity


def check_generator(file: Path, heads: int, expected: Arrays, prefix: str) -> None:
    generator = import_generator(file, heads)
    tokens, mask, labels, logits, trace, trace_norm = (
        expected[f"{prefix}{name}"] for name in ("tokens", "mask", "labels", "logits", "trace", "trace_norm")
    )
    masked_tokens = tokens.masked_fill(mask, generator.mask_id).flatten(1)
    assert (labels == generator.num_classes).sum() == 3  # the null class is among them
    everywhere = torch.ones_like(masked_tokens, dtype=torch.bool)
    with torch.no_grad():
        close(generator(masked_tokens, labels), logits[..., :-1])
        at_hidden, features = generator.logits_with_features(masked_tokens, labels, mask.flatten(1))
        close(at_hidden, logits[..., :-1][mask.flatten(1)])
        vectors = generator.trunk(masked_tokens, labels, everywhere).view(*masked_tokens.shape, -1)
    close(torch.stack([feature[2] for feature in features]), trace[:-1, : generator.num_tokens])
    close(vectors[2], trace_norm)


def test_logits_equal_the_original_code(expected: Arrays) -> None:
    check_generator(FOLDER / "generator.pth", 4, expected, "")


def test_logits_equal_the_original_code_where_heads_do_not_divide_the_width(expected: Arrays) -> None:
    check_generator(FOLDER / "generator_odd_heads.pth", 3, expected, "odd_")
    assert import_generator(FOLDER / "generator_odd_heads.pth", 3).config.registers == 2


def test_a_compiled_model_with_optimizer_state_is_read_too(tmp_path: Path, expected: Arrays) -> None:
    state = {f"module._orig_mod.{name}": value for name, value in weights_of("generator_odd_heads.pth").items()}
    moments = {i: {"exp_avg": value, "step": torch.tensor(3.0)} for i, value in enumerate(state.values())}
    optimizer = {"state": moments, "param_groups": [{"lr": 1e-4, "betas": (0.9, 0.999)}]}
    whole = {"iter": 7, "global_epoch": None, "model_state_dict": state, "optimizer_state_dict": optimizer}
    torch.save(whole, tmp_path / "current.pth")
    check_generator(tmp_path / "current.pth", 3, expected, "odd_")


@only_with_shared
def test_the_prefixed_file_of_the_original_code_is_read() -> None:
    check_generator(SHARED / "generator_odd_heads_prefixed.pth", 3, arrays_of(SHARED), "odd_")


def check_tokenizer(file: Path, expected: Arrays, prefix: str) -> None:
    images, latents, encoded, tokens, decoded = (
        expected[f"{prefix}{name}"] for name in ("images", "latents", "encoded", "decode_tokens", "decoded")
    )
    tokenizer = import_tokenizer(file, encoded.shape[1])
    assert tokenizer.image_size == images.shape[-1]
    images = (images + 1) / 2
    assert torch.equal(tokenizer.encode(images), encoded.flatten(1))
    assert encoded.unique().numel() > 15
    with torch.no_grad():
        close(tokenizer.to_latents(images), F.normalize(latents, dim=1))
        made = tokenizer.to_images(tokenizer.quantizer.look_up(tokens.flatten(1), tokenizer.grid))
    close(made * 2 - 1, decoded, atol=1e-4)
    close(tokenizer.decode(tokens.flatten(1)), ((decoded + 1) / 2).clamp(0, 1), atol=1e-4)


def test_tokens_and_images_equal_the_original_code(expected: Arrays) -> None:
    check_tokenizer(FOLDER / "tokenizer_small.pt", expected, "small_")


@only_with_shared
def test_tokens_and_images_of_the_larger_tokenizer_equal_the_original_code() -> None:
    check_tokenizer(SHARED / "tokenizer.pt", arrays_of(SHARED), "")


def test_a_pair_is_a_pipeline_with_the_published_settings(tmp_path: Path, expected: Arrays) -> None:
    made = FAMILIES["halton"].read(Sources(FOLDER / "generator.pth", FOLDER / "tokenizer_small.pt", heads=4))
    assert (made.tokenizer.image_size, made.tokenizer.grid) == (12, (6, 6))
    assert (made.defaults.sampler, made.defaults.steps, made.defaults.guidance) == ("halton", 32, 2.0)
    assert not made.generator.training
    TokenCriticPipeline(made.tokenizer, made.generator, defaults=made.defaults).save_pretrained(tmp_path)
    again = TokenCriticPipeline.from_pretrained(tmp_path)
    masked_tokens = expected["tokens"].masked_fill(expected["mask"], 96).flatten(1)
    with torch.no_grad():
        close(again.generator(masked_tokens, expected["labels"]), expected["logits"][..., :-1])
    images = (expected["small_images"] + 1) / 2
    assert torch.equal(again.tokenizer.encode(images), expected["small_encoded"].flatten(1))
    assert [image.size for image in again([3, 5], num_inference_steps=4, seed=0)] == 2 * [(12, 12)]


def test_marks_are_names_in_the_files() -> None:
    family = FAMILIES["halton"]
    tokenizer = torch.load(FOLDER / "tokenizer_small.pt", weights_only=True)["model"]
    assert set(family.generator_marks) <= weights_of("generator.pth").keys()
    assert set(family.tokenizer_marks) <= tokenizer.keys()


# Other sizes


def random_generator(
    tokens: int = 9,
    codes: int = 20,
    classes: int = 4,
    width: int = 12,
    layers: int = 2,
    heads: int = 2,
    mlp_width: int = 16,
    registers: int = 1,
) -> Arrays:
    rng = torch.Generator().manual_seed(0)
    d, r = width, heads * (width // heads)
    shapes: dict[str, tuple[int, ...]] = {
        "cls_emb.weight": (classes + 1, d),
        "tok_emb.weight": (codes + 1, d),
        "pos_emb.weight": (tokens, d),
        "last_norm.norm_final.weight": (d,),
        "last_norm.norm_final.bias": (d,),
        "last_norm.mlp.1.weight": (2 * d, d),
        "last_norm.mlp.1.bias": (2 * d,),
        "head.bias": (codes + 1,),
    }
    if registers:
        shapes["reg_tokens.weight"] = (registers, d)
    for i in range(layers):
        name = f"transformer.layers.{i}"
        shapes |= {f"{name}.mlp.1.weight": (6 * d, d), f"{name}.mlp.1.bias": (6 * d,)}
        shapes |= {f"{name}.ln{j}.weight": (d,) for j in (1, 2)}
        shapes |= {f"{name}.attn.{part}.weight": (r, d) for part in ("wq", "wk", "wv")}
        shapes |= {f"{name}.attn.wo.weight": (d, r), f"{name}.ff.w2.weight": (d, mlp_width)}
        shapes |= {f"{name}.ff.{part}.weight": (mlp_width, d) for part in ("w1", "w3")}
    arrays = {name: 0.5 * torch.randn(shape, generator=rng) for name, shape in shapes.items()}
    return arrays | {"head.weight": arrays["tok_emb.weight"]}


def reference_logits(arrays: Arrays, heads: int, masked_tokens: Tensor, labels: Tensor) -> Tensor:
    """The transformer as the original computes it, head by head, in float64 from the arrays as they are in the file."""
    w = {name: value.double() for name, value in arrays.items()}

    def rms(x: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()

    def silu(x: Tensor) -> Tensor:
        return x / (1 + (-x).exp())

    c = silu(w["cls_emb.weight"][labels])[:, None]
    h = w["tok_emb.weight"][masked_tokens] + w["pos_emb.weight"]
    if "reg_tokens.weight" in w:
        h = torch.cat([h, w["reg_tokens.weight"].expand(len(h), -1, -1)], 1)
    i = 0
    while f"transformer.layers.{i}.ln1.weight" in w:
        b = {name.split(".", 3)[3]: value for name, value in w.items() if name.startswith(f"transformer.layers.{i}.")}
        shift, scale, gate, shift2, scale2, gate2 = (c @ b["mlp.1.weight"].T + b["mlp.1.bias"]).chunk(6, -1)
        x = rms(h) * b["ln1.weight"] * (1 + scale) + shift
        q, k, v = (x @ b[f"attn.{part}.weight"].T for part in ("wq", "wk", "wv"))
        q, k = rms(q), rms(k)
        size = q.shape[-1] // heads
        parts = [slice(j * size, (j + 1) * size) for j in range(heads)]
        scores = [(q[..., part] @ k[..., part].mT / size**0.5).softmax(-1) @ v[..., part] for part in parts]
        h = h + gate * (torch.cat(scores, -1) @ b["attn.wo.weight"].T)
        x = rms(h) * b["ln2.weight"] * (1 + scale2) + shift2
        h = h + gate2 * ((silu(x @ b["ff.w1.weight"].T) * (x @ b["ff.w3.weight"].T)) @ b["ff.w2.weight"].T)
        i += 1
    shift, scale = (c @ w["last_norm.mlp.1.weight"].T + w["last_norm.mlp.1.bias"]).chunk(2, -1)
    h = rms(h[:, : masked_tokens.shape[1]]) * w["last_norm.norm_final.weight"] + w["last_norm.norm_final.bias"]
    return ((h * (1 + scale) + shift) @ w["tok_emb.weight"].T + w["head.bias"])[..., :-1]


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"registers": 0, "heads": 5, "layers": 1},
        {"registers": 3, "width": 17, "heads": 4, "mlp_width": 7, "layers": 11},
        {"tokens": 25, "codes": 1, "classes": 1, "heads": 1},
    ],
)
def test_a_generator_of_any_size_computes_what_its_arrays_say(tmp_path: Path, sizes: dict[str, int]) -> None:
    arrays = random_generator(**sizes)
    torch.save({"model_state_dict": arrays, "optimizer_state_dict": None}, tmp_path / "g.pth")
    heads = sizes.get("heads", 2)
    generator = import_generator(tmp_path / "g.pth", heads)
    rng = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, generator.codebook_size, (3, generator.num_tokens), generator=rng)
    tokens[torch.rand(tokens.shape, generator=rng) < 0.5] = generator.mask_id
    labels = torch.tensor([0, generator.num_classes, generator.num_classes - 1])
    wanted = reference_logits(arrays, heads, tokens, labels)
    with torch.no_grad():
        torch.testing.assert_close(generator(tokens, labels).double(), wanted, atol=1e-4, rtol=1e-4)


def test_the_published_sizes_know_their_heads(tmp_path: Path) -> None:
    for width, heads, guidance in ((384, 6, 2.5), (512, 6, 2.0), (768, 12, 1.7), (1024, 16, 1.5), (1152, 16, 2.0)):
        arrays = random_generator(tokens=4, codes=96, width=width, layers=1, heads=heads)
        torch.save({"model_state_dict": arrays}, tmp_path / "g.pth")
        made = read(Sources(tmp_path / "g.pth", FOLDER / "tokenizer_small.pt"))
        assert made.generator.config.heads == heads
        assert made.defaults.guidance == guidance
        assert made.tokenizer.image_size == 4


class Weights:
    """Random weights of a tokenizer, under LlamaGen's names."""

    def __init__(self) -> None:
        self.state: Arrays = {}
        self.rng = torch.Generator().manual_seed(0)

    def convolution(self, name: str, old: int, new: int, size: int = 3) -> None:
        self.state[f"{name}.weight"] = torch.randn(new, old, size, size, generator=self.rng) / (size * old**0.5)
        self.state[f"{name}.bias"] = 0.3 * torch.randn(new, generator=self.rng)

    def norm(self, name: str, width: int) -> None:
        self.state[f"{name}.weight"] = 1 + 0.3 * torch.randn(width, generator=self.rng)
        self.state[f"{name}.bias"] = 0.3 * torch.randn(width, generator=self.rng)

    def residual(self, name: str, old: int, new: int) -> None:
        self.norm(f"{name}.norm1", old)
        self.convolution(f"{name}.conv1", old, new)
        self.norm(f"{name}.norm2", new)
        self.convolution(f"{name}.conv2", new, new)
        if old != new:
            self.convolution(f"{name}.nin_shortcut", old, new, 1)

    def attention(self, name: str, width: int) -> None:
        self.norm(f"{name}.norm", width)
        for part in ("q", "k", "v", "proj_out"):
            self.convolution(f"{name}.{part}", width, width, 1)

    def levels(self, part: str, widths: list[int], first: int, blocks: int, deepest: int, resampling: str) -> None:
        width = first
        for i, new in enumerate(widths):
            for j in range(blocks):
                self.residual(f"{part}.conv_blocks.{i}.res.{j}", new if j else width, new)
                if i == deepest:
                    self.attention(f"{part}.conv_blocks.{i}.attn.{j}", new)
            width = new
            if i < len(widths) - 1:
                self.convolution(f"{part}.conv_blocks.{i}.{resampling}.conv", new, new)


def random_tokenizer(multipliers: tuple[int, ...], blocks: int, codes: int, code_width: int, latent: int) -> Arrays:
    widths, w = [32 * multiplier for multiplier in multipliers], Weights()
    w.convolution("encoder.conv_in", 3, 32)
    w.levels("encoder", widths, 32, blocks, len(widths) - 1, "downsample")
    w.convolution("decoder.conv_in", latent, widths[-1])
    w.levels("decoder", widths[::-1], widths[-1], blocks + 1, 0, "upsample")
    for part, width, out in (("encoder", widths[-1], latent), ("decoder", widths[0], 3)):
        for i in (0, 2):
            w.residual(f"{part}.mid.{i}", widths[-1], widths[-1])
        w.attention(f"{part}.mid.1", widths[-1])
        w.norm(f"{part}.norm_out", width)
        w.convolution(f"{part}.conv_out", width, out)
    w.convolution("quant_conv", latent, code_width, 1)
    w.convolution("post_quant_conv", code_width, latent, 1)
    w.state["quantize.embedding.weight"] = torch.randn(codes, code_width, generator=w.rng)
    w.state["quantize.codebook_used"] = torch.zeros(11)
    return w.state


class Reference:
    """LlamaGen's tokenizer from the arrays as they are in the file. Images in [-1, 1]."""

    def __init__(self, state: Arrays) -> None:
        self.state = state
        codes = state["quantize.embedding.weight"]
        self.codes = codes / codes.square().sum(1, keepdim=True).sqrt()

    def convolve(self, x: Tensor, name: str, padding: int = 0, stride: int = 1) -> Tensor:
        return F.conv2d(x, self.state[f"{name}.weight"], self.state[f"{name}.bias"], stride, padding)

    def norm(self, x: Tensor, name: str) -> Tensor:
        return F.group_norm(x, 32, self.state[f"{name}.weight"], self.state[f"{name}.bias"], 1e-6)

    def residual(self, x: Tensor, name: str) -> Tensor:
        y = self.convolve(F.silu(self.norm(x, f"{name}.norm1")), f"{name}.conv1", 1)
        y = self.convolve(F.silu(self.norm(y, f"{name}.norm2")), f"{name}.conv2", 1)
        shortcut = f"{name}.nin_shortcut"
        return y + (self.convolve(x, shortcut) if f"{shortcut}.weight" in self.state else x)

    def attention(self, x: Tensor, name: str) -> Tensor:
        y = self.norm(x, f"{name}.norm")
        q, k, v = (self.convolve(y, f"{name}.{part}").flatten(2) for part in ("q", "k", "v"))
        weights = (q.mT @ k / x.shape[1] ** 0.5).softmax(2)
        return x + self.convolve((v @ weights.mT).view_as(x), f"{name}.proj_out")

    def level(self, x: Tensor, name: str) -> Tensor:
        j = 0
        while f"{name}.res.{j}.conv1.weight" in self.state:
            x = self.residual(x, f"{name}.res.{j}")
            if f"{name}.attn.{j}.q.weight" in self.state:
                x = self.attention(x, f"{name}.attn.{j}")
            j += 1
        return x

    def middle(self, x: Tensor, part: str) -> Tensor:
        x = self.attention(self.residual(x, f"{part}.mid.0"), f"{part}.mid.1")
        return self.residual(x, f"{part}.mid.2")

    def encode(self, images: Tensor, levels: int) -> Tensor:
        x = self.convolve(images, "encoder.conv_in", 1)
        for i in range(levels):
            x = self.level(x, f"encoder.conv_blocks.{i}")
            if i < levels - 1:
                x = self.convolve(F.pad(x, (0, 1, 0, 1)), f"encoder.conv_blocks.{i}.downsample.conv", stride=2)
        x = F.silu(self.norm(self.middle(x, "encoder"), "encoder.norm_out"))
        x = self.convolve(self.convolve(x, "encoder.conv_out", 1), "quant_conv").permute(0, 2, 3, 1).flatten(1, 2)
        return (x[:, :, None] / x.square().sum(-1)[:, :, None, None].sqrt() - self.codes).square().sum(-1).argmin(-1)

    def decode(self, tokens: Tensor, levels: int) -> Tensor:
        x = self.convolve(self.codes[tokens].permute(0, 3, 1, 2), "post_quant_conv")
        x = self.middle(self.convolve(x, "decoder.conv_in", 1), "decoder")
        for i in range(levels):
            x = self.level(x, f"decoder.conv_blocks.{i}")
            if i < levels - 1:
                x = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
                x = self.convolve(x, f"decoder.conv_blocks.{i}.upsample.conv", 1)
        return self.convolve(F.silu(self.norm(x, "decoder.norm_out")), "decoder.conv_out", 1)


@pytest.mark.parametrize(
    ("multipliers", "blocks", "codes", "code_width", "latent", "side"),
    [((1, 1, 2), 2, 30, 5, 12, 2), ((2, 1), 1, 7, 8, 8, 3), ((1, 1, 2, 2, 4), 1, 40, 8, 6, 1), ((1,), 1, 9, 3, 4, 4)],
)
def test_a_tokenizer_of_any_size_computes_what_its_arrays_say(
    tmp_path: Path, multipliers: tuple[int, ...], blocks: int, codes: int, code_width: int, latent: int, side: int
) -> None:
    state, levels = random_tokenizer(multipliers, blocks, codes, code_width, latent), len(multipliers)
    torch.save({"model": state}, tmp_path / "t.pt")
    tokenizer = import_tokenizer(tmp_path / "t.pt", side)
    size = side * 2 ** (levels - 1)
    assert (tokenizer.config.multipliers, tokenizer.config.blocks, tokenizer.image_size) == (multipliers, blocks, size)
    rng = torch.Generator().manual_seed(2)
    images = torch.rand(2, 3, size, size, generator=rng)
    assert torch.equal(tokenizer.encode(images), Reference(state).encode(2 * images - 1, levels))
    tokens = torch.randint(0, codes, (2, side * side), generator=rng)
    wanted = (Reference(state).decode(tokens.view(2, side, side), levels) + 1) / 2
    with torch.no_grad():
        made = tokenizer.to_images(tokenizer.quantizer.look_up(tokens, tokenizer.grid))
    torch.testing.assert_close(made, wanted, atol=1e-4, rtol=1e-4)


def test_safetensors_are_read_too(tmp_path: Path) -> None:
    state = {name: value.clone() for name, value in weights_of("generator_odd_heads.pth").items()}  # not shared
    safetensors.torch.save_file(state, tmp_path / "g.safetensors")
    generator = import_generator(tmp_path / "g.safetensors", 3)
    assert generator.fingerprint() == import_generator(FOLDER / "generator_odd_heads.pth", 3).fingerprint()


# What does not fit


def refusal(**given: object) -> str:
    """The one line with which a pair is refused."""
    sources = {"generator": FOLDER / "generator.pth", "tokenizer": FOLDER / "tokenizer_small.pt", "heads": 4}
    with pytest.raises(InputError) as error:
        read(Sources(**{**sources, **given}))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_heads_that_do_not_fit_are_refused_with_those_that_do() -> None:
    message = refusal(heads=None)
    assert "generator.pth does not tell the number of heads; give --heads with one of 1, 2, 4, 8, 16, 32, 64" in message
    assert "--heads is 3, which does not fit" in refusal(heads=3)
    assert "--heads is 0, which does not fit" in refusal(heads=0)
    assert refusal(generator=FOLDER / "generator_odd_heads.pth", heads=2).endswith("give --heads with one of 3, 9, 27")


def test_a_published_width_with_other_heads_asks_for_them(tmp_path: Path) -> None:
    arrays = random_generator(tokens=4, codes=96, width=512, layers=1, heads=8)  # r is 512; the published 6 give 510
    torch.save({"model_state_dict": arrays}, tmp_path / "g.pth")
    assert "give --heads with one of 1, 2, 4, 8, 16" in refusal(generator=tmp_path / "g.pth", heads=None)
    assert read(Sources(tmp_path / "g.pth", FOLDER / "tokenizer_small.pt", 8)).generator.config.heads == 8


def changed(tmp_path: Path, **changes: Tensor | None) -> Path:
    """The small generator's file with some tensors changed; None removes one."""
    state = {**random_generator(codes=96), **{name.replace("__", "."): value for name, value in changes.items()}}
    file = tmp_path / "changed.pth"
    torch.save({"model_state_dict": {name: value for name, value in state.items() if value is not None}}, file)
    return file


def test_tensors_that_do_not_fit_are_listed(tmp_path: Path) -> None:
    file = changed(
        tmp_path,
        last_norm__mlp__1__bias=None,
        teacher__weight=torch.zeros(2),
        transformer__layers__1__attn__wk__weight=torch.zeros(11, 12),
    )
    message = refusal(generator=file, heads=2)
    assert "missing: last_norm.mlp.1.bias" in message
    assert "unexpected: teacher.weight" in message
    assert "transformer.layers.1.attn.wk.weight (11, 12) instead of (12, 12)" in message


def test_what_the_model_cannot_be_is_refused(tmp_path: Path) -> None:
    proj = changed(tmp_path, in_proj__weight=torch.zeros(12, 12, 2, 2))
    assert "was trained with proj 2" in refusal(generator=proj, heads=2)
    untied = changed(tmp_path, head__weight=torch.zeros(97, 12))
    assert "head.weight that differs from tok_emb.weight" in refusal(generator=untied, heads=2)
    query = changed(tmp_path, transformer__layers__0__attn__wq__weight=torch.zeros(5, 12))
    assert "of shape (5, 12), which no number of heads gives" in refusal(generator=query, heads=2)
    row = changed(tmp_path, pos_emb__weight=torch.zeros(8, 12))
    assert "is for 8 tokens, which make no square image" in refusal(generator=row, heads=2)


def test_a_tokenizer_of_another_generator_is_refused(tmp_path: Path) -> None:
    torch.save({"model": random_tokenizer((1, 1), 1, 30, 4, 8)}, tmp_path / "t.pt")
    message = refusal(tokenizer=tmp_path / "t.pt")
    assert "is for 96 codes, but the tokenizer" in message
    assert "t.pt has 30; give the tokenizer it was trained with" in message


def test_the_two_files_the_wrong_way_round_are_named() -> None:
    assert "tokenizer_small.pt is not a checkpoint of this kind" in refusal(generator=FOLDER / "tokenizer_small.pt")
    assert "generator.pth is not a checkpoint of this kind" in refusal(tokenizer=FOLDER / "generator.pth")


class Code:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("run",))


def test_broken_files_and_files_with_code_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = tmp_path / "cut.pth"
    cut.write_bytes((FOLDER / "generator_odd_heads.pth").read_bytes()[:200_000])
    torch.save({"model_state_dict": {"tok_emb.weight": torch.zeros(2, 2)}, "args": Code()}, tmp_path / "code.pth")
    (tmp_path / "pickle.pth").write_bytes(pickle.dumps({"model": Code()}))
    for name in ("cut.pth", "code.pth", "pickle.pth", "absent.pth"):
        assert name in refusal(generator=tmp_path / name)
        assert name in refusal(tokenizer=tmp_path / name)
    assert capsys.readouterr().out == ""
