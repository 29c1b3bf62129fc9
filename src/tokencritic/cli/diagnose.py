"""`token-critic diagnose`: analyse why and where a model's critic helps."""

import dataclasses
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from tokencritic.cli.arguments import (
    add_model,
    load_model,
    make_parser,
    number_or_pair,
    parse_work,
    say_device,
    settings_of,
)
from tokencritic.cli.measuring import command_line
from tokencritic.errors import InputError
from tokencritic.pretrained import place_of


def main(arguments: list[str]) -> None:
    given = _parse(arguments)

    from tokencritic.data.tokens import PACKED, TokenArrays
    from tokencritic.evaluation.diagnosis import held_out_report, held_out_rows, judge, sampling_report, watch
    from tokencritic.evaluation.report import temperature_text
    from tokencritic.evaluation.samples import check_settings
    from tokencritic.files import write_json
    from tokencritic.pictures.figures import diagnosis_figures
    from tokencritic.randomness import as_seeds
    from tokencritic.training.token_tasks import check_fit

    heat = number_or_pair("--proposal_temperature", given.proposal_temperature)
    about = f"held-out images, filled in at {temperature_text(heat)}; {given.num} sampled; seed {given.seed}"
    seeds = as_seeds(given.seed, given.num)
    pipe = load_model(given)
    if pipe.critic is None:
        raise InputError(f"{given.model} has no critic to diagnose")
    if given.data is None and not (Path(place_of(given.model)) / PACKED).is_file():
        raise InputError(f"--data is missing, and {given.model} includes no {PACKED}; give what `tokenize` wrote")
    arrays = TokenArrays.open(given.data or given.model, pipe.tokenizer.fingerprint())
    for name in ("generator", "critic"):
        check_fit(name, pipe.parts[name], arrays)
    rows = held_out_rows(arrays, given.num, given.held_out)
    changes = settings_of(given)
    # By default both samplers that the paper compares, at equal NFE.
    samplers = [changes.pop("sampler")] if "sampler" in changes else ["critic", "confidence"]
    chosen = {name: dataclasses.replace(pipe.sampling.for_sampler(name), **changes) for name in samplers}
    for settings in chosen.values():
        check_settings(pipe, settings)

    say_device(given)
    held_out = held_out_report(judge(pipe, arrays, rows, given.seed, heat, given.batch_size))
    sampling: dict[str, Any] = {}
    for sampler, settings in chosen.items():
        steps = watch(pipe, pipe.classes.in_turn(given.num), seeds, settings, given.batch_size)
        made = {"settings": settings.in_effect(has_critic=True), "nfe": pipe.nfe(settings)}
        sampling[sampler] = made | sampling_report(steps)
    facts = {
        "command": command_line("diagnose", arguments),
        "models": {name: part.fingerprint() for name, part in pipe.parts.items()},
        "seed": given.seed,
        "held_out": {"share": given.held_out, "proposal_temperature": heat, **held_out},
        "sampling": sampling,
    }
    folder, about = Path(given.out), f"{len(rows)} {about}"
    write_json(folder / "diagnosis.json", facts)
    written = diagnosis_figures(held_out, sampling, folder, about)
    print(f"{about}\n\n{_tables(held_out, sampling)}\n")
    print(f"wrote diagnosis.json, {', '.join(path.name for path in written)} to {folder}")


def _parse(arguments: list[str]) -> Namespace:
    from tokencritic.training.settings import TrainingSettings

    parser = make_parser(
        "diagnose",
        "Analyse why and where the critic helps. On partly resampled held-out images: the critic's scores, AUC and "
        "calibration, and the AUC of the generator's confidence. During sampling, with the critic and with MaskGIT "
        "unless --sampler names one: how often tokens are re-masked, and how they change.",
        "MODEL [OPTIONS]",
    )
    add_model(parser)
    text = "tokens that `tokenize` wrote, or a model that includes some, by default MODEL"
    parser.add_argument("--data", metavar="FOLDER", help=text)
    text = "number of images to sample, and maximum number of held-out images"
    parser.add_argument("--num", type=int, default=2000, metavar="N", help=text)
    text = "share of tokens that training held out; 1 for tokens that training never saw, such as a test set"
    parser.add_argument("--held_out", type=float, default=TrainingSettings().held_out, metavar="X", help=text)
    text = "temperature at which held-out images are filled in, as in training: one number, or a start and an end"
    parser.add_argument("--proposal_temperature", type=float, nargs="+", default=[1.0], metavar="X", help=text)
    given = parse_work(parser, arguments, "out/diagnosis", "seed of masks and samples; sampled image i has seed + i")
    if given.candidates is not None and given.candidates > 1:
        raise InputError(f"--candidates is {given.candidates}; only images made without rejection can be diagnosed")
    if given.sampler is None and given.selection_noise is not None:
        raise InputError("--selection_noise means another thing to each sampler; name one with --sampler")
    return given


def _tables(held_out: dict[str, Any], sampling: dict[str, Any]) -> str:
    from tokencritic.evaluation.report import table

    judged = []
    for part in (held_out["all"], *held_out["by_ratio"]):
        name = "{:.0%} to {:.0%}".format(*part["ratio"]) if "ratio" in part else "all"
        aucs = [part[auc][target] for target in part["auc"] for auc in ("auc", "auc_within_image")]
        aucs += part["auc_of_resampled"].values()
        judged.append([name, part["images"], *aucs, part["calibration"]["masked"]["error"]])
    header = ["tokens hidden", "images", "AUC masked", "in one image", "AUC changed", "in one image"]
    first = table([*header, "of resampled: critic", "confidence", "ECE"], judged)
    watched = [
        [sampler, report["nfe"], report["total"]["mean_score"], *report["total"]["remasked"].values()]
        for sampler, report in sampling.items()
    ]
    header = ["sampler", "NFE", "mean score", "re-masked per image", "resampled the same", "score higher", "change"]
    return f"{first}\n\n{table(header, watched)}"
