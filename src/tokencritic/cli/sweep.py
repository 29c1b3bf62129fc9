"""`token-critic sweep`: a model measured at many settings."""

from functools import partial
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from tokencritic.cli.arguments import SAMPLERS, check_device, make_parser, parse
from tokencritic.cli.measuring import (
    add_meter,
    add_metrics,
    add_samples,
    command_line,
    load_model,
    model_meter,
    sample_sets,
)
from tokencritic.errors import InputError


def main(arguments: list[str]) -> None:
    given = _parse(arguments)

    from tokencritic.distribution import joined
    from tokencritic.evaluation.report import explain, write_csv, write_json
    from tokencritic.evaluation.search import parse_temperature, settings_grid, sweep
    from tokencritic.evaluation.tuned_settings import own_settings
    from tokencritic.pictures.figures import tradeoff_figures
    from tokencritic.pretrained import place_of

    axes = {
        "steps": _axis("steps", given, int),
        "temperature": _axis("temperatures", given, parse_temperature),
        "selection_noise": _axis("noises", given, float),
        "guidance": _axis("guidances", given, float),
        "candidates": _axis("candidates", given, int),
        "reject_by": {None: [given.reject_by]},
    }
    with joined(check_device(given.device)) as ranks:
        pipe = load_model(given)
        settings = settings_grid(given.samplers, axes, partial(own_settings, Path(place_of(given.model)), pipe))
        sets = sample_sets(given, pipe)
        for one in settings:
            sets.check(one)
        meter = model_meter(given, ranks, pipe, given.num)
        folder = Path(given.out)
        write = (lambda rows: write_csv(folder / "sweep.csv", rows)) if ranks.first else None
        rows = sweep(sets, meter, settings, write)
        if not ranks.first:
            return
        facts = meter.facts(sets.of(settings[0]))
        about = {name: facts[name] for name in ("features", "reference", "versions")}
        command = command_line("sweep", arguments)
        write_json(folder / "sweep.json", {"command": command, **about, "models": sets.fingerprints, "rows": rows})
        written = tradeoff_figures(rows, folder, f"{given.num} samples; {explain(facts)}")
    names = ", ".join(["sweep.csv", "sweep.json", *(path.name for path in written)])
    print(f"wrote {names} to {folder}: {len(rows)} settings")
    if len(written) < 2:
        print("a figure is missing: its metrics were not asked for, or the features or the reference do not allow them")


def _parse(arguments: list[str]) -> Namespace:
    parser = make_parser(
        "sweep",
        "Measure all combinations of some settings; write a CSV and the trade-off curves. What is not given is as it suits "
        "each sampler, at equal network passes: tuned, where `tune` was run. Cut off, it goes on. "
        "Any value may be for one sampler alone: --noises critic=0.2 confidence=4.5.",
    )
    parser.add_argument("model", help="a model folder or Hub id")
    add_meter(parser)
    add_metrics(parser)
    add_samples(parser, num=5000)
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=["critic", "confidence"])
    parser.add_argument("--steps", nargs="+", default=[], metavar="T")
    parser.add_argument("--temperatures", nargs="+", default=[], metavar="T|START:END")
    parser.add_argument("--noises", nargs="+", default=[], metavar="K")
    parser.add_argument("--guidances", nargs="+", default=[], metavar="W")
    parser.add_argument("--candidates", nargs="+", default=[], metavar="N", help="of which the best is kept")
    parser.add_argument("--reject_by", choices=["classifier", "critic"], default="classifier")
    parser.add_argument("--out", default="out/sweep", help="the folder to write")
    return parse(parser, arguments)


def _axis(name: str, given: Namespace, convert: Any) -> dict[Any, list[Any]]:
    """ "0.2" is for every sampler, "critic=0.2" for one."""
    found: dict[Any, list[Any]] = {}
    for value in given[name]:
        sampler, equals, text = value.rpartition("=")
        if equals and sampler not in SAMPLERS:
            raise InputError(f"--{name} holds {value!r}; expected a value, or SAMPLER=VALUE of {', '.join(SAMPLERS)}")
        if equals and sampler not in given.samplers:
            raise InputError(f"--{name} holds {value!r}; --samplers has no {sampler}")
        try:
            found.setdefault(sampler if equals else None, []).append(convert(text))
        except ValueError as error:
            reason = f"; {error}" if isinstance(error, InputError) else f", which is no {convert.__name__}"
            raise InputError(f"--{name} holds {value!r}{reason}") from error
    return found
