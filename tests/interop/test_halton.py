"""Halton-MaskGIT's files: parity with the original code, other sizes, and what does not fit."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from interop.halton_reference import Arrays, Reference, random_generator, random_tokenizer, reference_logits
from torch import Tensor

from tokencritic.errors import InputError
from tokencritic.guidance import guided
from tokencritic.interop.families import load_family
from tokencritic.interop.family import Sources
from tokencritic.interop.halton import import_generator, import_tokenizer, read
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.sampling.scorers import HaltonScorer
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.sampling.starts import sample

FOLDER = Path(__file__).parent / "fixtures" / "halton-maskgit"
# The same with a larger tokenizer and a file with optimizer state, where it lies beside the repository.
SHARED = Path(__file__).parents[2] / "../shared/fixtures/halton-maskgit"
only_with_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason=f"{SHARED} is not there: it is too large to be kept here"
)
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
    made = load_family("halton").read(Sources(FOLDER / "generator.pth", FOLDER / "tokenizer_small.pt", heads=4))
    assert (made.tokenizer.image_size, made.tokenizer.grid) == (12, (6, 6))
    assert made.defaults == SamplingSettings(sampler="halton", schedule="halton", steps=32, guidance=2.0)
    assert not made.generator.training
    TokenCriticPipeline(made.tokenizer, made.generator, defaults=made.defaults).save_pretrained(tmp_path)
    again = TokenCriticPipeline.from_pretrained(tmp_path)
    masked_tokens = expected["tokens"].masked_fill(expected["mask"], 96).flatten(1)
    with torch.no_grad():
        close(again.generator(masked_tokens, expected["labels"]), expected["logits"][..., :-1])
    images = (expected["small_images"] + 1) / 2
    assert torch.equal(again.tokenizer.encode(images), expected["small_encoded"].flatten(1))
    assert [image.size for image in again([3, 5], num_inference_steps=4, seed=0)] == 2 * [(12, 12)]


@pytest.mark.parametrize(("run", "guidance"), [("run_plain", 1.0), ("run_guided", 3.0)])
def test_the_sampler_without_noise_gives_the_tokens_of_the_original_code(
    expected: Arrays, run: str, guidance: float
) -> None:
    made = read(Sources(FOLDER / "generator.pth", FOLDER / "tokenizer_small.pt", heads=4))
    pipe = TokenCriticPipeline(made.tokenizer, made.generator, defaults=made.defaults)
    settings = pipe.settings(steps=8, temperature=0.0, guidance=guidance)
    tokens = pipe.sample_tokens(expected[f"{run}_labels"], torch.arange(4), settings)
    assert torch.equal(tokens, expected[f"{run}_tokens"].flatten(1))


@pytest.mark.parametrize(("run", "guidance"), [("odd_run_plain", 1.0), ("odd_run_guided", 2.5)])
def test_the_sampler_gives_the_tokens_of_the_original_code_where_heads_do_not_divide_the_width(
    expected: Arrays, run: str, guidance: float
) -> None:
    generator = guided(import_generator(FOLDER / "generator_odd_heads.pth", 3), guidance)
    options = {"steps": 6, "temperature": 0.0, "schedule": "halton"}
    tokens = sample(generator, HaltonScorer((5, 5)), expected[f"{run}_labels"], **options)
    assert torch.equal(tokens, expected[f"{run}_tokens"].flatten(1))


def test_marks_are_names_in_the_files() -> None:
    family = load_family("halton")
    tokenizer = torch.load(FOLDER / "tokenizer_small.pt", weights_only=True)["model"]
    assert set(family.generator_marks) <= weights_of("generator.pth").keys()
    assert set(family.tokenizer_marks) <= tokenizer.keys()


# Other sizes


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
    assert (
        "generator.pth does not contain the number of heads; give --heads with one of 1, 2, 4, 8, 16, 32, 64" in message
    )
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
    assert "of shape (5, 12), which fits no number of heads" in refusal(generator=query, heads=2)
    row = changed(tmp_path, pos_emb__weight=torch.zeros(8, 12))
    assert "has 8 tokens per image; expected a square number" in refusal(generator=row, heads=2)


def test_a_tokenizer_of_another_generator_is_refused(tmp_path: Path) -> None:
    torch.save({"model": random_tokenizer((1, 1), 1, 30, 4, 8)}, tmp_path / "t.pt")
    message = refusal(tokenizer=tmp_path / "t.pt")
    assert "has 96 codes, but the tokenizer" in message
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
