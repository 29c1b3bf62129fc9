"""`token-critic compare`: the paper's tables for a model."""

from functools import partial
from pathlib import Path

from tokencritic.cli.arguments import check_device, make_parser, parse
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
    parser = make_parser(
        "compare",
        "MaskGIT at T and 2T steps, at T Token-Critic and its control, tokens taken back by chance, refinement and, if asked "
        "for, rejection, each with passes, time and standard deviations. Settings are those that `tune` found, if it was run.",
    )
    parser.add_argument("model", help="a model folder or Hub id")
    add_meter(parser)
    add_metrics(parser)
    add_samples(parser, num=10_000)
    parser.add_argument("--steps", type=int, default=18, help="T")
    parser.add_argument(
        "--passes", type=int, nargs="+", help="instead: the samplers at each of these numbers of network passes"
    )
    parser.add_argument(
        "--candidates",
        type=int,
        nargs="+",
        default=[],
        help="with rejection: acceptance rates are 1/n, the paper's 5 and 10",
    )
    parser.add_argument("--out", help="a folder for comparison.json, comparison.csv and comparison.md")
    given = parse(parser, arguments)
    if min(given.passes or [1]) < 1:
        raise InputError(f"--passes holds {min(given.passes)}; each must be at least 1")
    if given.steps < 1 or min(given.candidates, default=2) < 2:
        raise InputError("--steps must be at least 1, and --candidates at least 2 each")
    if given.passes and given.candidates:
        raise InputError("--candidates is for the comparison at --steps; leave out --passes")

    from tokencritic.distribution import joined
    from tokencritic.evaluation.comparison import compare, comparison_lines, comparison_text, lines_at_passes
    from tokencritic.evaluation.report import write_csv, write_json
    from tokencritic.evaluation.tuned_settings import read_evidence
    from tokencritic.files import write_atomically
    from tokencritic.pretrained import place_of

    with joined(check_device(given.device)) as ranks:
        pipe, folder = load_model(given), Path(place_of(given.model))
        tuned = partial(read_evidence, folder)
        if given.passes:
            lines = lines_at_passes(pipe, given.passes, tuned)
        else:
            lines = comparison_lines(pipe, given.steps, tuned, given.candidates)
        sets = sample_sets(given, pipe)
        for line in lines:
            sets.check(line.settings)
        meter = model_meter(given, ranks, pipe, given.num)
        done = compare(sets, meter, lines)
        if not ranks.first:
            return
    text = comparison_text(done)
    print(text)
    if given.out:
        out = Path(given.out)
        results = [{"name": one.line.name, "row": one.row, **one.evaluation.as_json()} for one in done]
        write_json(out / "comparison.json", {"command": command_line("compare", arguments), "results": results})
        write_csv(out / "comparison.csv", [one.row for one in done])
        write_atomically(out / "comparison.md", lambda path: path.write_text(text + "\n", encoding="utf-8"))
        print(f"wrote comparison.json, comparison.csv and comparison.md to {out}")
