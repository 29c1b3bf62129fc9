"""`token-critic sweep`: evaluate a model at many settings."""

from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from tokencritic.cli.arguments import add_model, load_model, make_parser, parse, parse_settings
from tokencritic.cli.measuring import add_measuring, check_measuring, command_line, joined_ranks, sets_and_meter
from tokencritic.cli.outputs import check_folder
from tokencritic.errors import InputError
from tokencritic.sampling.samplers import SAMPLERS

# flag -> setting
_FLAGS = {
    "steps": "steps",
    "temperatures": "temperature",
    "noises": "selection_noise",
    "guidances": "guidance",
    "candidates": "candidates",
}


def main(arguments: list[str]) -> None:
    given = _parse(arguments)

    from tokencritic.evaluation.report import explain, write_csv
    from tokencritic.evaluation.search import settings_grid, sweep
    from tokencritic.files import write_json
    from tokencritic.pictures.figures import tradeoff_figures

    axes = {setting: _axis(flag, setting, given) for flag, setting in _FLAGS.items()}
    axes["reject_by"] = {None: [given.reject_by]}
    with joined_ranks(given) as ranks:
        pipe = load_model(given)
        settings = [pipe.sampling.opened(one) for one in settings_grid(given.samplers, axes, pipe.sampling.for_sampler)]
        sets, meter = sets_and_meter(given, ranks, pipe, settings)
        folder, rows = Path(given.out), []
        for row in sweep(sets, meter, settings):
            rows.append(row)
            if ranks.first:
                write_csv(folder / "sweep.csv", rows)
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
        print("a figure is missing: its metrics are not in --metrics, or features or reference do not support them")


def _parse(arguments: list[str]) -> Namespace:
    parser = make_parser(
        "sweep",
        "Evaluate all combinations of some settings, and write a CSV and trade-off curves. Other settings are those of "
        "each sampler at equal NFE, tuned if `tune` was run. Rerun the command to resume. "
        "A value can apply to one sampler only: --noises critic=0.2 confidence=4.5.",
        "MODEL [OPTIONS]",
    )
    group = parser.add_argument_group("model and settings")
    add_model(group)
    usual = ["critic", "confidence"]
    text = f"samplers to evaluate, of {', '.join(SAMPLERS)}; by default {' and '.join(usual)}"
    group.add_argument("--samplers", nargs="+", choices=tuple(SAMPLERS), default=usual, metavar="NAME", help=text)
    axes = {
        "--steps": ("T", "numbers of steps"),
        "--temperatures": ("T|START:END", "sampling temperatures"),
        "--noises": ("K", "scales of the selection noise"),
        "--guidances": ("W", "scales of classifier-free guidance"),
        "--candidates": ("N", "candidates per image for rejection"),
    }
    for flag, (letter, text) in axes.items():
        group.add_argument(flag, nargs="+", default=[], metavar=letter, help=f"{text}; by default the sampler's own")
    text = "with several candidates: what chooses among them"
    group.add_argument("--reject_by", choices=["classifier", "critic"], default="classifier", help=text)
    group.add_argument("--out", default="out/sweep", metavar="FOLDER", help="the folder to write")
    add_measuring(parser, num=5000)
    given = parse(parser, arguments)
    check_folder("--out", given.out)
    check_measuring(given)
    return given


def _axis(flag: str, setting: str, given: Namespace) -> dict[Any, list[Any]]:
    """Parse the values of a flag by sampler: "0.2" applies to all (None), "critic=0.2" to one."""
    found: dict[Any, list[Any]] = {}
    for value in given[flag]:
        sampler, equals, text = value.rpartition("=")
        if equals and sampler not in SAMPLERS:
            raise InputError(f"--{flag} holds {value!r}; expected a value, or SAMPLER=VALUE of {', '.join(SAMPLERS)}")
        if equals and sampler not in given.samplers:
            raise InputError(f"--{flag} holds {value!r}; --samplers has no {sampler}")
        found.setdefault(sampler or None, []).append(parse_settings(f"--{flag}", [f"{setting}={text}"])[setting])
    return found
