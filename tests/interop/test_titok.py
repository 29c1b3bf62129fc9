"""TiTok's files: parity with the original code, other sizes, pipelines made of them, and what does not fit."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from interop import titok_files as files
from torch import Tensor

from tokencritic import InputError, Proposal, TokenCriticPipeline, sample
from tokencritic.foreign_weights import read_tensors
from tokencritic.guidance import guided
from tokencritic.interop.family import Sources
from tokencritic.interop.titok import FAMILY, import_generator, import_tokenizer, read
from tokencritic.masking import take
from tokencritic.models.titok import BertGenerator
from tokencritic.models.uvit import UViTGenerator
from tokencritic.pipeline_folder import load_part
from tokencritic.randomness import Use
from tokencritic.sampling import propose
from tokencritic.sampling.scorers import Judges, make_scorer
from tokencritic.sampling.trace import Trace
from tokencritic.schedules import SCHEDULES
from tokencritic.tokenizers.titok import TiTok

# Small random checkpoints in the published layout, with outputs of the original code.
FOLDER = Path(__file__).parent / "fixtures" / "titok"
SHARED = Path(__file__).parents[2] / "../shared/fixtures/titok"  # with the tokenizer, which is larger
CONFIGS = {kind: json.loads((FOLDER / f"generator_{kind}.json").read_text()) for kind in ("vit", "uvit")}
KINDS = pytest.mark.parametrize("kind", ["vit", "uvit"])
with_tokenizer = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the tokenizer's fixture (4 MB) lies beside the repository, in ../shared/fixtures/titok"
)
Arrays = dict[str, Tensor]


def arrays_of(file: Path) -> Arrays:
    with np.load(file) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays}


@pytest.fixture(scope="module")
def expected() -> Arrays:
    return arrays_of(FOLDER / "expected.npz")


@pytest.fixture(scope="module")
def generators() -> dict[str, Any]:
    return {kind: import_generator(FOLDER / f"generator_{kind}.bin", config=CONFIGS[kind]) for kind in CONFIGS}


def saved(folder: Path, name: str, state: Arrays) -> Path:
    file = folder / f"{name}.safetensors"
    safetensors.torch.save_file(state, file)
    return file


def close(made: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(made, wanted, atol=1e-4, rtol=0)


# Parity with the original code


@KINDS
def test_logits_and_hidden_vectors_equal_the_originals(generators: dict[str, Any], expected: Arrays, kind: str) -> None:
    generator, labels = generators[kind], expected["gen_labels"]
    assert (generator.num_tokens, generator.codebook_size, generator.num_classes) == (16, 64, 10)
    assert type(generator) is {"vit": BertGenerator, "uvit": UViTGenerator}[kind]
    assert generator.config.heads == 4
    tokens = expected["gen_tokens"].masked_fill(expected["gen_tokens"] == 64, generator.mask_id)
    with torch.no_grad():
        close(generator(tokens, labels), expected[f"{kind}_logits_cond"])
        close(generator(tokens, torch.full_like(labels, 10)), expected[f"{kind}_logits_null"])
        vectors = generator.trunk(tokens[2:3], labels[2:3])
        features = generator.features(tokens[2:3], labels[2:3])
    hidden = expected[f"{kind}_hidden_row2"][:, 1:]
    close(vectors[0], hidden[-1])
    assert len(features) == generator.config.layers == {"vit": 3, "uvit": 5}[kind]
    for made, wanted in zip(features, hidden, strict=False):  # the last of them is not what enters a block
        close(made[0], wanted)


RUNS = json.loads((FOLDER / "samplers.json").read_text())["runs"]


def steps_of_run(run: str, generators: dict[str, Any], folder: Path) -> list[Tensor]:
    """The tokens after each step of our sampler with the settings of a recorded run, 64 where hidden."""
    facts, kind = RUNS[run], run.split("_")[0]
    section = {name: facts[name] for name in ("guidance_scale", "guidance_decay", "randomize_temperature")}
    section["num_steps"] = facts["num_sample_steps"]
    tokenizer = saved(folder, "t", files.tokenizer_file(tokens=16, codes=64))
    config = {"model": {"generator": CONFIGS[kind]["model"]["generator"] | section}}
    made = read(Sources(FOLDER / f"generator_{kind}.bin", tokenizer, config=config)).defaults
    settings = made if facts["softmax_temperature_annealing"] else replace(made, temperature=1.0)
    trace, scorer = Trace(), make_scorer(settings, Judges())
    generator = guided(generators[kind], settings.guidance_over_steps(), SCHEDULES[settings.schedule])
    options: dict[str, Any] = {"schedule": settings.schedule, "temperature": settings.temperature, "on_step": trace}
    sample(generator, scorer, facts["labels"], steps=settings.steps, **options)
    return [step.proposal.masked_fill(step.hidden, 64) for step in trace.steps]


@pytest.mark.parametrize("run", ["vit_det_linear", "vit_det_constant", "uvit_det_power_cosine"])
def test_the_original_sampler_without_noise_is_ours_token_for_token(
    tmp_path: Path, generators: dict[str, Any], expected: Arrays, run: str
) -> None:
    assert torch.stack(steps_of_run(run, generators, tmp_path)).equal(expected[f"{run}_ids_steps"])


@pytest.mark.parametrize("run", ["vit_noise_linear", "uvit_noise_power_cosine"])
def test_with_the_originals_random_numbers_its_sampler_is_ours_token_for_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, generators: dict[str, Any], expected: Arrays, run: str
) -> None:
    step = 0

    def places(seeds: Tensor, num_tokens: int, use: Use, index: int) -> Tensor:
        """In place of the uniforms: the place of each token, by which its recorded noise is found."""
        nonlocal step
        step = index - 1
        return torch.arange(num_tokens).expand(len(seeds), -1)

    def argmax_of_noisy_logits(logits: Tensor, places: Tensor, heat: float) -> Tensor:
        if heat == 0:
            return logits.argmax(-1)
        drawn = take(expected[f"{run}_u_sample"][step], places)
        return (logits / heat - (-drawn.log()).log()).argmax(-1)

    def recorded(proposal: Proposal) -> Tensor:
        return expected[f"{run}_u_confidence"][proposal.step.index - 1]

    monkeypatch.setattr(propose, "uniforms", places)
    monkeypatch.setattr(propose, "sample_codes", argmax_of_noisy_logits)
    monkeypatch.setattr(Proposal, "selection_uniforms", recorded)
    assert torch.stack(steps_of_run(run, generators, tmp_path)).equal(expected[f"{run}_ids_steps"])


@with_tokenizer
def test_the_tokenizer_equals_the_original() -> None:
    wanted, tokenizer = arrays_of(SHARED / "expected.npz"), import_tokenizer(SHARED / "tokenizer/model.safetensors")
    images = wanted["tok_images_uint8"].float() / 255
    with torch.no_grad():
        close(tokenizer.encoder(images), wanted["tok_z"][:, :, 0])
        tokens = tokenizer.encode(images)
        assert tokens.equal(wanted["tok_ids"])
        codes = tokenizer.quantizer.codebook[tokens]
        close(codes.transpose(1, 2), wanted["tok_zq"][:, :, 0])
        close(tokenizer.decoder(codes).transpose(1, 2).unflatten(2, (4, 4)), wanted["tok_decoder_logits"])
        close(tokenizer.to_images(tokens), wanted["tok_recon"])
        close(tokenizer.to_images(wanted["tok_ids_random"]), wanted["tok_decoded_random"])
    decoded = tokenizer.decode(wanted["tok_ids_random"])
    shown = (decoded * 255).byte().permute(0, 2, 3, 1)
    assert (shown.int() - wanted["tok_decoded_random_uint8"].int()).abs().max() <= 1


@with_tokenizer
@KINDS
def test_folders_and_files_give_the_same_pipeline_and_it_survives_saving(tmp_path: Path, kind: str) -> None:
    config = json.loads((SHARED / f"generator_{kind}/config.json").read_text())
    tokenizer_file = SHARED / "tokenizer/model.safetensors"
    first = read(Sources(SHARED / f"generator_{kind}/model.safetensors", tokenizer_file, config=config))
    torch.save(safetensors.torch.load_file(tokenizer_file), tmp_path / "tokenizer.bin")
    second = read(Sources(SHARED / f"generator_{kind}.bin", tmp_path / "tokenizer.bin", heads=4))
    assert first.generator.fingerprint() == second.generator.fingerprint()
    assert first.tokenizer.fingerprint() == second.tokenizer.fingerprint()

    critic = first.generator.start_critic()
    TokenCriticPipeline(first.tokenizer, first.generator, critic, defaults=first.defaults).save_pretrained(tmp_path)
    pipe = TokenCriticPipeline.from_pretrained(tmp_path)
    assert pipe.defaults == first.defaults
    assert pipe.tokenizer.grid is None
    for name, part in (("generator", first.generator), ("tokenizer", first.tokenizer), ("critic", critic)):
        alone = load_part(tmp_path / name, name)
        assert type(alone) is type(pipe.parts[name]) is type(part)
        assert alone.fingerprint() == pipe.parts[name].fingerprint() == part.fingerprint()
    images = pipe([3, 7], seed=5, output_type="pt")
    assert images.shape == (2, 3, 64, 64)
    assert images.equal(pipe([3, 7], seed=5, output_type="pt"))


# Other sizes


@pytest.mark.parametrize(
    "sizes",
    [
        {"tokens": 9, "codes": 20, "classes": 3, "width": 24, "mlp_width": 40},
        {"tokens": 4, "codes": 7, "classes": 1, "width": 32, "mlp_width": 16},
    ],
)
@pytest.mark.parametrize(
    ("make", "logits", "layers"),
    [
        (files.bert_file, files.bert_logits, {"layers": 2}),
        (files.bert_file, files.bert_logits, {"layers": 11}),
        (files.uvit_file, files.uvit_logits, {"half": 0}),
        (files.uvit_file, files.uvit_logits, {"half": 3}),
    ],
)
def test_a_generator_of_any_size_computes_what_its_arrays_say(
    tmp_path: Path, sizes: dict[str, int], make: Any, logits: Any, layers: dict[str, int]
) -> None:
    state, heads, codes = make(**sizes, **layers), sizes["width"] // 8, sizes["codes"]
    generator = import_generator(saved(tmp_path, "g", state), heads)
    rng = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, codes, (5, sizes["tokens"]), generator=rng)
    hidden = torch.rand(tokens.shape, generator=rng) < 0.5
    labels = torch.arange(5) % (sizes["classes"] + 1)  # the last one is the null class
    with torch.no_grad():
        made = generator(tokens.masked_fill(hidden, generator.mask_id), labels)
    wanted = logits(state, files.sequence(hidden, tokens, labels, codes), heads)
    torch.testing.assert_close(made.double(), wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"tokens": 5, "codes": 7, "side": 3, "widths": (32, 32, 96), "encoder": (128, 2), "decoder": (64, 1)},
        {"widths": (32,), "side": 4, "code_width": 2, "pixel_codes": 3},
    ],
)
def test_a_tokenizer_of_any_size_computes_what_its_arrays_say(tmp_path: Path, sizes: dict[str, Any]) -> None:
    state = files.tokenizer_file(**sizes)
    tokenizer = import_tokenizer(saved(tmp_path, "t", state))
    size = sizes.get("side", 2) * 2 ** (len(sizes.get("widths", (32, 64))) - 1)
    assert (tokenizer.image_size, tokenizer.grid, tokenizer.num_tokens) == (size, None, sizes.get("tokens", 9))
    rng = torch.Generator().manual_seed(1)
    images = torch.rand(4, 3, size, size, generator=rng)
    assert tokenizer.encode(images).equal(files.encode(state, images))
    tokens = torch.randint(0, tokenizer.codebook_size, (3, tokenizer.num_tokens), generator=rng)
    with torch.no_grad():
        made = tokenizer.to_images(tokens)
    wanted = files.decode(state, tokens)
    torch.testing.assert_close(made.double(), wanted, atol=1e-4, rtol=1e-4)
    assert tokenizer.decode(tokens).double().allclose(wanted.clamp(0, 1), atol=1e-4)


# What comes with the files, and what they do not tell


def pair(folder: Path, **sizes: Any) -> Sources:
    generator = saved(folder, "generator", files.bert_file(**sizes))
    return Sources(generator, saved(folder, "tokenizer", files.tokenizer_file()), heads=3)


def test_each_kind_of_file_has_a_mark_of_its_own() -> None:
    bert, uvit, tokenizer = files.bert_file(), files.uvit_file(), files.tokenizer_file()
    for state in (bert, uvit):
        assert any(mark in state for mark in FAMILY.generator_marks)
        assert not any(mark in state for mark in FAMILY.tokenizer_marks)
    assert any(mark in tokenizer for mark in FAMILY.tokenizer_marks)
    assert not any(mark in tokenizer for mark in FAMILY.generator_marks)


def test_a_pair_is_read_with_and_without_a_config(tmp_path: Path) -> None:
    sources = pair(tmp_path)
    imported = FAMILY.read(sources)
    assert isinstance(imported.tokenizer, TiTok)
    assert not imported.generator.training
    settings = imported.defaults
    assert (settings.sampler, settings.schedule, settings.temperature) == ("confidence", "titok", (1.3, 0.5))
    assert (settings.steps, settings.selection_noise, settings.guidance) == (8, 9.5, 5.5)
    generator = {"image_seq_len": "${model.vq_model.num_latent_tokens}", "num_attention_heads": 3, "num_steps": 5}
    generator |= {"guidance_decay": "power-cosine", "guidance_scale": 2.5, "randomize_temperature": 1}
    config = {"model": {"vq_model": {"finetune_decoder": True}, "generator": generator}}
    settings = read(replace(sources, heads=None, config=config)).defaults
    assert (settings.steps, settings.selection_noise, settings.guidance) == (5, 1, 2.5)
    assert (settings.guidance_schedule, settings.guidance_power) == ("cosine", 3.0)


@pytest.mark.parametrize(
    ("make", "tokens", "settings"),
    [
        (files.bert_file, 32, (8, 9.5, 5.5, "linear")),
        (files.bert_file, 64, (8, 11.0, 4.0, "linear")),
        (files.uvit_file, 128, (64, 2.8, 6.9, "cosine")),
        (files.uvit_file, 64, (8, 9.5, 5.5, "linear")),  # not published: those of L-32
    ],
)
def test_published_sizes_have_the_authors_settings(
    tmp_path: Path, make: Any, tokens: int, settings: tuple[Any, ...]
) -> None:
    generator = saved(tmp_path, "g", make(tokens=tokens))
    sources = Sources(generator, saved(tmp_path, "t", files.tokenizer_file(tokens=tokens)), heads=3)
    found = read(sources).defaults
    assert (found.steps, found.selection_noise, found.guidance, found.guidance_schedule) == settings
    assert found.guidance_power == (3.0 if settings[-1] == "cosine" else 1.0)


def test_the_published_widths_have_their_heads(tmp_path: Path) -> None:
    for make, width in ((files.bert_file, 768), (files.uvit_file, 1024)):
        layers = {"layers": 1} if make is files.bert_file else {"half": 0}
        state = make(width=width, tokens=1, codes=2, classes=1, mlp_width=1, **layers)
        file = saved(tmp_path, f"{width}", state)
        assert import_generator(file).config.heads == 16
        config = {"model": {"generator": {"num_attention_heads": 8}}}
        assert import_generator(file, config=config).config.heads == 8
        assert import_generator(file, heads=4, config=config).config.heads == 4


def test_position_ids_are_no_weights(tmp_path: Path) -> None:
    state = files.bert_file()
    plain = import_generator(saved(tmp_path, "g", state), heads=3)
    old = saved(tmp_path, "old", state | {"model.embeddings.position_ids": torch.arange(10)[None]})
    assert import_generator(old, heads=3).fingerprint() == plain.fingerprint()


# What is wrong is said in one line


def says(message: str, call: Any, *given: Any, **options: Any) -> None:
    with pytest.raises(InputError, match=message) as error:
        call(*given, **options)
    assert "\n" not in str(error.value)


def test_heads_that_are_missing_or_wrong_are_asked_for(tmp_path: Path) -> None:
    file = saved(tmp_path, "g", files.bert_file(width=96))
    says(
        r"--heads is missing; .*g.safetensors does not contain.*width is 96: give one of 1, 2, 3, 4, 6$",
        import_generator,
        file,
    )
    says(r"--heads is 5 for .*g.safetensors; its width is 96", import_generator, file, heads=5)
    says(r"--heads is 0 for", import_generator, file, heads=0)
    config = {"model": {"generator": {"num_attention_heads": "many"}}}
    says(r"--heads is many for", import_generator, file, config=config)


def test_a_pair_that_does_not_belong_together_is_named(tmp_path: Path) -> None:
    says(
        r"generator.safetensors has 8 tokens, and the tokenizer .* has 9; expected",
        read,
        pair(tmp_path, tokens=8),
    )
    says(r"has 21 codes, and the tokenizer .* has 20", read, pair(tmp_path, codes=21))


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("is_legacy", False, "is_legacy false"),
        ("finetune_decoder", False, "finetune_decoder false"),
        ("use_l2_norm", False, "use_l2_norm false"),
        ("quantize_mode", "vae", "quantize_mode vae"),
    ],
)
def test_variants_of_another_layout_are_refused(tmp_path: Path, key: str, value: Any, shown: str) -> None:
    sources = replace(pair(tmp_path), config={"model": {"vq_model": {key: value}}})
    says(f"tokenizer.safetensors is a TiTok tokenizer with {shown}; TiTok-L-32, B-64", read, sources)


def test_variants_are_also_told_by_missing_tensors(tmp_path: Path) -> None:
    state = files.tokenizer_file()
    for gone, variant in (("pixel_", "finetune_decoder false"), ("quantize.", "quantize_mode vae")):
        file = saved(tmp_path, "t", {name: value for name, value in state.items() if not name.startswith(gone)})
        says(f"has no array .*: a TiTok tokenizer with {variant}; TiTok-L-32", import_tokenizer, file)


@pytest.mark.parametrize(
    ("make", "prefix"), [(files.bert_file, "model.encoder.layer.0."), (files.uvit_file, "out_blocks.1.")]
)
def test_missing_and_extra_arrays_of_a_generator_are_listed(tmp_path: Path, make: Any, prefix: str) -> None:
    state = make()
    name = next(name for name in state if name.startswith(prefix) and name.endswith("bias"))
    wrong = {key: value for key, value in state.items() if key != name} | {"ema.decay": torch.ones(1)}
    says(
        f"g.safetensors does not hold the arrays of a .* \\(missing: {name}; unexpected: ema.decay",
        import_generator,
        saved(tmp_path, "g", wrong),
        heads=3,
    )
    blocks = {key: value for key, value in state.items() if not key.startswith(prefix)}
    says("does not hold the arrays|it has no array", import_generator, saved(tmp_path, "g", blocks), heads=3)


def test_missing_and_extra_arrays_of_a_tokenizer_are_listed(tmp_path: Path) -> None:
    state = files.tokenizer_file()
    wrong = {name: value for name, value in state.items() if name != "decoder.ln_post.bias"}
    wrong["loss.weight"] = torch.ones(1)
    file = saved(tmp_path, "t", wrong)
    says(r"arrays of a TiTok \(missing: decoder.ln_post.bias; unexpected: loss.weight", import_tokenizer, file)
    square = state | {"encoder.positional_embedding": torch.zeros(7, 64)}
    says(r"has 6 patches .*; expected a square", import_tokenizer, saved(tmp_path, "t", square))
    patch = state | {"encoder.patch_embed.weight": torch.zeros(64, 3, 8, 8)}
    says(r"patches of 8 pixels and 2 levels", import_tokenizer, saved(tmp_path, "t", patch))
    width = files.tokenizer_file(encoder=(96, 1))
    says(r"encoder_width is 96; it must be a positive multiple of 64", import_tokenizer, saved(tmp_path, "t", width))


def test_files_of_another_kind_and_cut_short_are_named(tmp_path: Path) -> None:
    generator, tokenizer = saved(tmp_path, "g", files.bert_file()), saved(tmp_path, "t", files.tokenizer_file())
    says(
        r"t.safetensors is not a TiTok generator: it has neither model.lm_head.weight nor", import_generator, tokenizer
    )
    says(r"g.safetensors is not a checkpoint of this kind: it has no array latent_tokens", import_tokenizer, generator)
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(generator.read_bytes()[:3000])
    says("cut.safetensors is not a whole safetensors file", import_generator, cut, heads=3)
    cut = tmp_path / "cut.bin"
    cut.write_bytes((FOLDER / "generator_vit.bin").read_bytes()[:3000])
    says("cut.bin holds no weights of a TiTok generator", import_generator, cut, heads=3)
    says("cut.bin holds no weights of a TiTok tokenizer", import_tokenizer, cut)
    says("absent.bin holds no weights of a TiTok generator: .*No such file", import_generator, tmp_path / "absent.bin")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"guidance_decay": "cubic"},
            "guidance_decay in the config is 'cubic'; expected one of constant, linear, power",
        ),
        ({"guidance_decay": ["linear"]}, r"guidance_decay in the config is \['linear'\]; expected one of constant"),
        ({"guidance_scale": "4"}, "guidance_scale in the config is '4'; expected a number"),
        ({"num_steps": 0}, "steps is 0"),
    ],
)
def test_settings_of_the_config_that_mean_nothing_are_named(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    says(message, read, replace(pair(tmp_path), config={"model": {"generator": change}}))


def test_a_safetensors_file_and_a_bin_file_are_the_same_generator(tmp_path: Path) -> None:
    for kind in CONFIGS:
        file = FOLDER / f"generator_{kind}.bin"
        copy = saved(tmp_path, kind, read_tensors(file, "a test"))
        assert import_generator(file, heads=4).fingerprint() == import_generator(copy, heads=4).fingerprint()
