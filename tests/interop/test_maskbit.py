"""MaskBit's checkpoints: parity with the authors' code, other sizes, their sampler, and what does not fit."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from interop import maskbit_files as files
from interop.maskbit_files import Sizes

from tokencritic import ConfidenceScorer, InputError, Proposal, TokenCriticPipeline, sample
from tokencritic.guidance import guided
from tokencritic.interop.families import load_family
from tokencritic.interop.family import Sources
from tokencritic.interop.maskbit import FAMILY, read
from tokencritic.models.maskbit import part_bits
from tokencritic.sampling import propose
from tokencritic.schedules import SCHEDULES

# A small random checkpoint of each model, with inputs and outputs computed by the authors' code.
FOLDER = Path(__file__).parent / "fixtures" / "maskbit"
SHARED = Path(__file__).parents[2] / "../shared/fixtures/maskbit"  # with the tokenizer, of 5 MB
CONFIG = yaml.safe_load((FOLDER / "generator.yaml").read_text())
needs_tokenizer = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the tokenizer's fixture, 5 MB, is not beside the repository"
)
FIXTURE = Sizes(side=4, part=4, classes=10, width=64, layers=3, heads=4, mlp_width=160, multipliers=(1, 1, 1, 2, 2))


@pytest.fixture(scope="module")
def expected():
    with np.load(FOLDER / "expected.npz") as arrays:
        found = {name: torch.from_numpy(arrays[name]) for name in arrays}
    return {name: value if value.is_floating_point() else value.long() for name, value in found.items()}


def write(folder, sizes, **changes):
    """Files of random weights; changes: of the generator's or tokenizer's arrays."""
    arrays = {"generator": files.generator_arrays(sizes), "tokenizer": files.tokenizer_arrays(sizes)}
    for name in arrays:
        torch.save(changes.get(name, lambda same: same)(arrays[name]), folder / f"{name}.bin")
    return Sources(folder / "generator.bin", folder / "tokenizer.bin", sizes.heads)


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """The fixture's generator with a random tokenizer, so that the tests need no large file."""
    sources = write(tmp_path_factory.mktemp("maskbit"), dataclasses.replace(FIXTURE, blocks=1))
    return read(Sources(FOLDER / "maskbit_generator.bin", sources.tokenizer, config=CONFIG))


def test_sizes_are_read_off_the_tensors(imported):
    config = imported.generator.config
    assert (config.places, config.splits, config.bits_per_part, config.num_classes) == (16, 2, 4, 10)
    assert (config.width, config.layers, config.heads, config.mlp_width, config.dropout) == (64, 3, 4, 160, 0.1)
    assert (imported.generator.num_tokens, imported.generator.codebook_size, imported.generator.mask_id) == (32, 16, 16)
    assert (imported.tokenizer.num_tokens, imported.tokenizer.codebook_size, imported.tokenizer.image_size) == (
        32,
        16,
        64,
    )
    assert not imported.generator.training
    assert not imported.tokenizer.training
    assert load_family("maskbit") is FAMILY
    assert FAMILY.read is read


@pytest.mark.parametrize("renamed", [False, True])
def test_logits_equal_the_authors_code(expected, imported, renamed, tmp_path):
    generator = imported.generator
    if renamed:
        arrays = torch.load(FOLDER / "maskbit_generator.bin", weights_only=True)
        theirs = {name.replace("input_proj", "token_emb"): value for name, value in arrays.items()}
        assert theirs.keys() != arrays.keys()
        sources = write(tmp_path, dataclasses.replace(FIXTURE, blocks=1), generator=lambda _: theirs)
        generator = read(sources).generator
    tokens, labels = expected["gen_tokens"].flatten(1), expected["gen_labels"]
    with torch.no_grad():
        with_class, without = generator(tokens, labels), generator(tokens, torch.full_like(labels, 10))
    for logits, name in ((with_class, "gen_logits_cond"), (without, "gen_logits_null")):
        torch.testing.assert_close(logits, expected[name].flatten(1, 2), atol=1e-4, rtol=0)


def test_bits_and_hidden_vectors_equal_the_authors_code(expected, imported):
    generator, tokens = imported.generator, expected["gen_tokens"].flatten(1)
    bits = []
    with torch.no_grad():
        handle = generator.trunk.bits.register_forward_pre_hook(lambda _, inputs: bits.append(inputs[0]))
        generator(tokens, expected["gen_labels"])
        handle.remove()
        logits, features = generator.logits_with_features(tokens[2:3], expected["gen_labels"][2:3], tokens[2:3] == 16)
        vectors = generator.trunk(tokens[2:3], expected["gen_labels"][2:3])
    assert bits[0].equal(expected["gen_bits"])
    hidden = expected["gen_hidden_row2"][:, :-1]  # without the class token
    for found, right in zip((*features, vectors), (*hidden[:3], hidden[4]), strict=True):
        slots = found[0].view(16, 2, 2, 64)
        for part in (0, 1):
            torch.testing.assert_close(slots[:, part, part], right, atol=1e-4, rtol=0)
            assert not slots[:, part, 1 - part].any()
    right = expected["gen_logits_cond"].flatten(1, 2)[2][tokens[2] == 16]
    torch.testing.assert_close(logits, right, atol=1e-4, rtol=0)


@needs_tokenizer
@pytest.mark.parametrize("name", ["maskbit_generator.bin", "maskbit_generator_token_emb.bin"])
def test_tokens_and_images_equal_the_authors_code(name):
    config = yaml.safe_load((SHARED / "generator.yaml").read_text())
    tokenizer = read(Sources(SHARED / name, SHARED / "maskbit_tokenizer.bin", config=config)).tokenizer
    with np.load(SHARED / "expected.npz") as arrays:
        known = {key: torch.from_numpy(arrays[key]) for key in arrays if key.startswith(("tok_", "det_"))}
    images = known["tok_images_uint8"].float() / 255
    with torch.no_grad():
        torch.testing.assert_close(tokenizer.to_latents(images), known["tok_z"], atol=1e-4, rtol=0)
        torch.testing.assert_close(tokenizer(images).reconstruction, known["tok_recon"], atol=1e-4, rtol=0)
    tokens = tokenizer.encode(images)
    assert tokens.equal(known["tok_split_ids"].flatten(1))
    parts = tokens.view(3, 4, 4, 2)
    assert (parts[..., 0] + 16 * parts[..., 1]).equal(known["tok_ids"])
    ids = known["tok_ids_random"]
    decoded = tokenizer.decode(torch.stack([ids & 15, ids >> 4], -1).flatten(1))
    torch.testing.assert_close(decoded, known["tok_decoded_random"].clamp(0, 1), atol=1e-4, rtol=0)
    shown = (decoded * 255).to(torch.uint8).permute(0, 2, 3, 1).int()
    assert (shown - known["tok_decoded_random_uint8"].int()).abs().max() <= 1
    result = tokenizer.decode(known["det_cosine_predicted_steps"][-1, :1].flatten(1))
    torch.testing.assert_close(result, known["det_cosine_image"].clamp(0, 1), atol=1e-4, rtol=0)


@needs_tokenizer
def test_the_tokenizers_own_config_does_not_matter():
    """Its codebook_size is wrong in three of the published files."""
    config = yaml.safe_load((SHARED / "tokenizer.yaml").read_text())
    assert config["model"]["vq_model"]["codebook_size"] == 4096
    found = read(Sources(SHARED / "maskbit_generator.bin", SHARED / "maskbit_tokenizer.bin", 4, config))
    assert found.tokenizer.config.bits == 8


@pytest.mark.parametrize(
    "sizes",
    [
        Sizes(splits=1, part=5),
        Sizes(splits=3, part=2, side=3, blocks=2, multipliers=(2, 1, 1)),
        Sizes(splits=2, part=6, heads=1, layers=11, width=8, multipliers=(1,), classes=1),
    ],
)
def test_models_of_any_size_compute_what_their_arrays_say(tmp_path, sizes):
    found = read(write(tmp_path, sizes))
    rng = torch.Generator().manual_seed(1)
    parts = torch.randint(0, 2**sizes.part + 1, (4, sizes.side**2, sizes.splits), generator=rng)
    parts[0], parts[1, 0, 0] = 2**sizes.part, 2**sizes.part  # all hidden, and at least one part of a place alone
    labels = torch.randint(0, sizes.classes + 1, (4,), generator=rng)
    arrays = files.generator_arrays(sizes)
    with torch.no_grad():
        logits = found.generator(parts.flatten(1), labels)
    right = files.logits_of(arrays, sizes, parts, labels)
    torch.testing.assert_close(logits, right.flatten(1, 2), atol=1e-4, rtol=1e-4)
    arrays, tokenizer, size = files.tokenizer_arrays(sizes), found.tokenizer, found.tokenizer.image_size
    assert size == sizes.side * 2 ** (len(sizes.multipliers) - 1)
    images = torch.rand(2, 3, size, size, generator=rng)
    latents = files.latents_of(arrays, sizes, images)
    with torch.no_grad():
        torch.testing.assert_close(tokenizer.to_latents(images), latents, atol=1e-4, rtol=1e-4)
        output = tokenizer(images)
    bits = (latents > 0).long()
    ids = sum(bits[:, j] << j for j in range(sizes.bits)).flatten(1)
    cut = [(ids >> (i * sizes.part)) & (2**sizes.part - 1) for i in range(sizes.splits)]
    assert output.tokens.equal(torch.stack(cut, -1).flatten(1))
    right = files.images_of(arrays, sizes, bits * 2.0 - 1)
    torch.testing.assert_close(output.reconstruction, right, atol=1e-4, rtol=1e-4)


RUNS = json.loads((FOLDER / "samplers.json").read_text())["runs"]


@pytest.mark.parametrize("name", RUNS)
def test_the_authors_sampler_runs_token_for_token(expected, tmp_path, monkeypatch, name):
    """Their draws take the place of ours; all else is what the imported defaults say."""
    run = RUNS[name]
    settings = {"use_sampling_annealing", "softmax_temperature", "scale_pow", "guidance_scale", "guidance_annealing"}
    mlm = {key: run[key] for key in settings | {"randomize_temperature", "num_steps"}}
    config = {"model": {"mlm_model": mlm | {"heads": 4, "gen_mask_schedule_strategy": run["mask_schedule_strategy"]}}}
    sources = write(tmp_path, dataclasses.replace(FIXTURE, blocks=1))
    found = read(Sources(FOLDER / "maskbit_generator.bin", sources.tokenizer, config=config))
    defaults = found.defaults
    if name.startswith("det"):
        monkeypatch.setattr(propose, "sample_codes", lambda logits, *_: logits.argmax(-1))
    else:
        drawn, gumbel = (expected[f"{name}_{what}"].flatten(2) for what in ("drawn", "gumbel"))
        monkeypatch.setattr(propose, "uniforms", lambda seeds, count, use, index: drawn[index - 1].float())
        monkeypatch.setattr(propose, "sample_codes", lambda _, uniforms, *__: uniforms.long())
        monkeypatch.setattr(Proposal, "selection_gumbel", lambda self: gumbel[self.step.index - 1])
    predicted, masked = [], []

    def on_step(proposal, scores, mask):
        predicted.append(proposal.tokens)
        masked.append(proposal.tokens.masked_fill(mask, 16))

    generator = guided(found.generator, defaults.guidance_over_steps(), SCHEDULES[defaults.schedule])
    scorer = ConfidenceScorer(defaults.selection_noise, defaults.schedule)
    options = {"steps": defaults.steps, "temperature": defaults.temperature, "schedule": defaults.schedule}
    tokens = sample(generator, scorer, run["labels"], on_step=on_step, **options)
    assert torch.stack(predicted).equal(expected[f"{name}_predicted_steps"].flatten(2))
    assert torch.stack(masked)[:-1].equal(expected[f"{name}_masked_steps"].flatten(2)[:-1])
    parts = tokens.view(len(tokens), 16, 2)
    assert (parts[..., 0] + 16 * parts[..., 1]).equal(expected[f"{name}_final_ids"])
    assert (parts[..., 0] + 16 * parts[..., 1]).tolist() == run["final_ids"]


def test_a_pipeline_folder_gives_the_same_back(imported, tmp_path):
    pipe = TokenCriticPipeline(imported.tokenizer, imported.generator, defaults=imported.defaults)
    pipe.save_pretrained(tmp_path / "model")
    again = TokenCriticPipeline.from_pretrained(tmp_path / "model")
    assert type(again.generator) is type(imported.generator)
    assert type(again.tokenizer) is type(imported.tokenizer)
    assert again.generator.fingerprint() == imported.generator.fingerprint()
    assert again.tokenizer.fingerprint() == imported.tokenizer.fingerprint()
    assert again.defaults == imported.defaults
    labels, changes = torch.tensor([3, 7]), {"steps": 3}
    tokens = pipe.sample_tokens(labels, 5, pipe.settings(**changes))
    assert again.sample_tokens(labels, 5, again.settings(**changes)).equal(tokens)
    assert tokens.max() < 16


PUBLISHED = json.loads((FOLDER / "samplers.json").read_text())["settings"]


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name.endswith("bit")])
def test_the_defaults_are_the_published_settings(tmp_path, name):
    row = PUBLISHED[name]
    defaults = read(write(tmp_path, Sizes(part=row["bits"] // 2, side=1, multipliers=(1,)))).defaults
    assert (defaults.sampler, defaults.schedule, defaults.steps) == ("confidence", "maskbit", row["steps"])
    assert (defaults.selection_noise, defaults.temperature) == (
        row["randomize_temperature"],
        row["softmax_temperature"],
    )
    assert defaults.guidance == 1 + row["guidance_scale"]
    assert (defaults.guidance_schedule, defaults.guidance_power) == (row["guidance_annealing"], row["scale_pow"])


def test_the_config_wins_over_the_published_settings(imported, tmp_path):
    defaults = imported.defaults
    assert (defaults.steps, defaults.selection_noise, defaults.guidance, defaults.guidance_power) == (12, 7.8, 8.1, 3.0)
    mlm = {"guidance_annealing": "none", "use_sampling_annealing": True, "num_steps": 256, "dropout": 0.0}
    found = read(dataclasses.replace(write(tmp_path, Sizes()), config={"model": {"mlm_model": mlm}}))
    assert (found.defaults.steps, found.defaults.temperature) == (256, (1.3, 0.5))
    assert found.defaults.guidance_schedule == "constant"
    assert found.generator.config.dropout == 0


def test_heads_come_from_the_flag_the_config_or_the_published_width(tmp_path):
    config = {"model": {"mlm_model": {"heads": 2}}}
    sources = write(tmp_path, Sizes())
    assert read(dataclasses.replace(sources, heads=6, config=config)).generator.config.heads == 6
    assert read(dataclasses.replace(sources, heads=None, config=config)).generator.config.heads == 2
    with pytest.raises(InputError, match=r"generator\.bin does not contain the number of heads; give --heads"):
        read(dataclasses.replace(sources, heads=None))
    wide = write(tmp_path, Sizes(width=1024, layers=1, mlp_width=8, side=1, multipliers=(1,)))
    assert read(dataclasses.replace(wide, heads=None)).generator.config.heads == 16


def without(*names):
    return lambda arrays: {name: value for name, value in arrays.items() if name not in names}


def plus(**changes):
    return lambda arrays: arrays | {name.replace("__", "."): value for name, value in changes.items()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"generator": plus(tok_emb_list__0__weight=torch.ones(9, 24))}, "is a bert generator"),
        ({"generator": plus(norm_after_transformer__weight=torch.ones(24))}, "use_prenorm"),
        ({"generator": without("pos_emb")}, "is not a checkpoint of this kind: it has no array pos_emb"),
        ({"generator": without("bits_to_indices")}, "it has no array bits_to_indices"),
        ({"generator": without("prediction_layer.bias")}, r"missing: prediction_layer\.bias"),
        ({"generator": plus(extra=torch.ones(2))}, "unexpected: extra"),
        ({"generator": plus(prediction_layer__weight=torch.ones(8, 24))}, "of another shape: prediction_layer"),
        ({"generator": plus(bits_to_indices=torch.tensor([4, 2, 1]))}, "unknown bits_to_indices; expected MaskBit's"),
        ({"generator": plus(bits_to_indices=2 ** torch.arange(4))}, "6 bits per place; expected a multiple of 4"),
        ({"generator": plus(pos_emb=torch.ones(1, 4, 24))}, "has 3 places; expected a square number"),
        ({"generator": files.tokenizer_arrays}, "it has no array"),
        ({"tokenizer": plus(quantize__embedding__weight=torch.ones(64, 6))}, "has a codebook, as in VQGAN"),
        ({"tokenizer": without("quantize.bits_to_indices")}, r"it has no array quantize\.bits_to_indices"),
        ({"tokenizer": plus(quantize__bits_to_indices=2 ** torch.arange(5))}, "has 5 bits per place; expected 6"),
        ({"tokenizer": plus(quantize__codebook=part_bits(torch.arange(64), 6).flip(1))}, "unknown quantize.codebook"),
        ({"tokenizer": without("decoder.up.0.upsample_conv.bias")}, r"missing: decoder\.up\.0\.upsample_conv\.bias"),
    ],
)
def test_files_of_something_else_are_refused_in_one_line(tmp_path, changes, message):
    if changes.get("generator") is files.tokenizer_arrays:
        changes = {"generator": lambda _: files.tokenizer_arrays(Sizes())}
    with pytest.raises(InputError, match=message) as caught:
        read(write(tmp_path, Sizes(), **changes))
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model": {"mlm_model": {"model_cls": "bert"}}}, "--config has model_cls 'bert'; expected 'lfq_bert'"),
        ({"model": {"mlm_model": {"use_prenorm": True}}}, "--config has use_prenorm True"),
        ({"model": {"vq_model": {"quantizer_type": "lookup"}}}, "--config has quantizer_type 'lookup'"),
        ({"model": {"vq_model": {"token_size": 10}}}, "--config has token_size 10; expected 6"),
        ({"model": {"mlm_model": {"codebook_splits": 1}}}, "--config has codebook_splits 1; expected 2"),
        ({"dataset": {"preprocessing": {"resolution": 256}}}, "--config has resolution 256; expected 4"),
        ({"model": 3}, "--config has model 3; expected a mapping"),
        ({"model": {"mlm_model": {"num_steps": 2.5}}}, "--config has num_steps 2.5; expected a whole number"),
        ({"model": {"mlm_model": {"guidance_scale": "high"}}}, "--config has guidance_scale 'high'; expected a number"),
        (
            {"model": {"mlm_model": {"guidance_annealing": "square"}}},
            "--config has guidance_annealing 'square'; expected",
        ),
        ({"model": {"mlm_model": {"gen_mask_schedule_strategy": "cosine"}}}, "gen_mask_schedule_strategy 'cosine'"),
        ({"model": {"mlm_model": {"num_steps": 0}}}, "steps is 0"),
        ({"model": {"mlm_model": {"heads": 5}}}, "width is 24; it must be a multiple of heads, 5"),
    ],
)
def test_a_config_that_does_not_fit_is_refused_in_one_line(tmp_path, config, message):
    sources = write(tmp_path, Sizes())
    heads = None if "heads" in message else sources.heads
    with pytest.raises(InputError, match=message) as caught:
        read(dataclasses.replace(sources, heads=heads, config=config))
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    sources = write(tmp_path, Sizes())
    for name in ("generator", "tokenizer"):
        with pytest.raises(InputError, match=r"nowhere\.bin"):
            read(dataclasses.replace(sources, **{name: tmp_path / "nowhere.bin"}))
