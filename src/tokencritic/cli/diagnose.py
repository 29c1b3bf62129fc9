"""`token-critic diagnose`: why and where a model's critic helps."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import Namespace

from tokencritic.cli.arguments import add_settings, make_parser, parse, settings_of
from tokencritic.cli.measuring import command_line, load_model
from tokencritic.errors import InputError

if TYPE_CHECKING:
    from tokencritic.data.tokens import TokenArrays
    from tokencritic.pipeline import TokenCriticPipeline
    from tokencritic.sampling.settings import Sampler, SamplingSettings


def main(arguments: list[str]) -> None:
    given = _parse(arguments)

    import torch

    from tokencritic.evaluation.diagnosis import held_out_report, held_out_rows, judge, sampling_report, watch
    from tokencritic.evaluation.report import write_json
    from tokencritic.evaluation.samples import effective
    from tokencritic.pictures.figures import diagnosis_figures
    from tokencritic.randomness import as_seeds
    from tokencritic.sampling.loop import temperature_range

    drawn_at = given.proposal_temperature
    temperature_range(drawn_at)
    seeds, labels = as_seeds(given.seed, given.num), torch.arange(given.num)
    pipe = load_model(given)
    if pipe.critic is None:
        raise InputError(f"{given.model} has no critic to diagnose")
    arrays = _open_tokens(given, pipe)
    rows = held_out_rows(arrays, given.num, given.held_out)
    chosen = _settings(given, pipe)

    held_out = held_out_report(judge(pipe, arrays, rows, given.seed, drawn_at, given.batch_size))
    sampling: dict[str, Any] = {}
    for sampler, settings in chosen.items():
        counts = watch(pipe, labels % pipe.generator.num_classes, seeds, settings, given.batch_size)
        about = {"settings": effective(settings, pipe), "passes": settings.passes(pipe.tokenizer.num_tokens)}
        sampling[sampler] = about | sampling_report(counts)

    facts = {
        "command": command_line("diagnose", arguments),
        "models": {name: part.fingerprint() for name, part in pipe.parts.items()},
        "seed": given.seed,
        "held_out": {"share": given.held_out, "proposal_temperature": drawn_at, **held_out},
        "sampling": sampling,
    }
    folder = Path(given.out)
    write_json(folder / "diagnosis.json", facts)
    heat = " to ".join(f"{value:g}" for value in (drawn_at if isinstance(drawn_at, tuple) else (drawn_at,)))
    explained = f"{len(rows)} held-out images, filled in at temperature {heat}; {given.num} sampled; seed {given.seed}"
    written = diagnosis_figures(held_out, sampling, folder, explained)
    print(f"{explained}\n\n{_held_out_table(held_out)}\n\n{_sampling_table(sampling)}\n")
    print(f"wrote diagnosis.json, {', '.join(path.name for path in written)} to {folder}")


def _parse(arguments: list[str]) -> Namespace:
    from tokencritic.training.settings import TrainingSettings

    parser = make_parser(
        "diagnose",
        "Why and where the critic helps. On held-out images, partly drawn again: its scores, how well it tells, beside the "
        "generator's confidence, and its calibration. While sampling, with the critic and as MaskGIT unless --sampler "
        "names one: how often tokens are taken back, and what the next draw makes of them.",
    )
    parser.add_argument("model", help="a model folder or Hub id")
    text = "the tokens: a folder that `tokenize` wrote, or a model that brings them, as the diagnosed one may"
    parser.add_argument("--data", help=text)
    parser.add_argument("--num", type=int, default=2000, help="held-out images at most, and images to sample")
    parser.add_argument("--seed", type=int, default=0, help="of masks and draws; sampled image i has seed + i")
    text = "the share that training held out, to diagnose on; 1 for tokens that it never saw, such as a test set's"
    parser.add_argument("--held_out", type=float, default=TrainingSettings().held_out, help=text)
    text = "of the draws on held-out images, as in the critic's training: one number, or a sampler's start and end"
    parser.add_argument("--proposal_temperature", type=float, nargs="+", default=[1.0], metavar="T", help=text)
    parser.add_argument("--out", default="out/diagnosis", help="the folder to write")
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    add_settings(parser)
    given = parse(parser, arguments)
    for name in ("num", "batch_size"):
        if given[name] < 1:
            raise InputError(f"--{name} is {given[name]}; it must be at least 1")
    if len(given.proposal_temperature) > 2:
        count = len(given.proposal_temperature)
        raise InputError(f"--proposal_temperature has {count} numbers; give one, or a start and an end")
    values = tuple(given.proposal_temperature)
    given.proposal_temperature = values[0] if len(values) == 1 else values
    if Path(given.out).is_file():  # said before the work, not after it
        raise InputError(f"--out is {given.out}, which is a file; expected a folder")
    return given


def _open_tokens(given: Namespace, pipe: "TokenCriticPipeline") -> "TokenArrays":
    from tokencritic.data.tokens import PACKED, TokenArrays
    from tokencritic.pretrained import place_of
    from tokencritic.training.token_rows import check_fit

    if given.data is None and not (Path(place_of(given.model)) / PACKED).is_file():
        raise InputError(f"--data is missing, and {given.model} brings no {PACKED}; give tokens that `tokenize` wrote")
    arrays = TokenArrays.open(given.data or given.model, pipe.tokenizer.fingerprint())
    check_fit("generator", pipe.generator, arrays)
    check_fit("critic", pipe.critic, arrays)
    return arrays


def _settings(given: Namespace, pipe: "TokenCriticPipeline") -> "dict[str, SamplingSettings]":
    """By sampler: the one that is asked for, or both that the paper compares, at equal passes unless told otherwise."""
    from tokencritic.evaluation.tuned_settings import own_settings
    from tokencritic.pretrained import place_of

    changes = settings_of(given)
    if changes.get("candidates", 1) > 1:
        raise InputError(f"--candidates is {given.candidates}; only images made without rejection can be diagnosed")
    if given.sampler is None and given.selection_noise is not None:
        raise InputError("--selection_noise means another thing to each sampler; name one with --sampler")
    samplers: list[Sampler] = [changes.pop("sampler")] if given.sampler else ["critic", "confidence"]
    place = Path(place_of(given.model))
    found = {sampler: dataclasses.replace(own_settings(place, pipe, sampler), **changes) for sampler in samplers}
    for settings in found.values():
        settings.check_critic_chooses(pipe.tokenizer.num_tokens)
        # One image in one step: what the model cannot do shows before the long work.
        pipe.sample_tokens(pipe.labels(0), 0, dataclasses.replace(settings, steps=1))
    return found


def _held_out_table(held_out: Mapping[str, Any]) -> str:
    from tokencritic.evaluation.report import table

    header = ["tokens hidden", "images", "AUC masked", "in one image", "AUC changed", "in one image"]
    header += ["of redrawn: critic", "confidence", "ECE"]
    rows = []
    for section in (held_out["all"], *held_out["by_ratio"]):
        low, high = (f"{100 * edge:.0f}" for edge in section.get("ratio", (0, 1)))
        name = f"{low} to {high} %" if "ratio" in section else "all"
        numbers = [section[measure][target] for target in section["auc"] for measure in ("auc", "auc_within_image")]
        numbers += [*section["auc_of_redrawn"].values(), section["calibration"]["masked"]["error"]]
        rows.append([name, str(section["images"]), *map(_text, numbers)])
    return table(header, rows)


def _sampling_table(sampling: Mapping[str, Any]) -> str:
    from tokencritic.evaluation.report import table

    header = ["sampler", "passes", "mean score", "taken back per image", "came out the same", "score higher", "change"]
    rows = []
    for sampler, report in sampling.items():
        total = report["total"]
        numbers = (total["taken_back"][name] for name in ("per_image", "same", "higher", "gain"))
        rows.append([sampler, str(report["passes"]), _text(total["mean_score"]), *map(_text, numbers)])
    return table(header, rows)


def _text(value: float) -> str:
    return "-" if value != value else f"{value:.3f}"
