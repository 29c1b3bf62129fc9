"""`token-critic compare`: compute the paper's tables for a model."""

from pathlib import Path

from tokencritic.bounds import MOST
from tokencritic.cli.arguments import add_model, load_model, make_parser, parse
from tokencritic.cli.measuring import add_measuring, check_measuring, command_line, joined_ranks, sets_and_meter
from tokencritic.cli.outputs import check_folder
from tokencritic.errors import InputError, check_at_least


def main(arguments: list[str]) -> None:
    parser = make_parser(
        "compare",
        "Evaluate MaskGIT, Token-Critic, the inline critic and random re-masking (the control) at T steps, then "
        "refinement, MaskGIT at 2T steps and, with --candidates, rejection. Reports metrics with standard deviation, "
        "NFE and cost. Uses the settings that `tune` found.",
        "MODEL [OPTIONS]",
    )
    group = parser.add_argument_group("what is compared")
    add_model(group)
    group.add_argument("--steps", type=int, default=18, metavar="T", help="number of steps T")
    text = "compare the samplers at these numbers of network evaluations per image instead"
    group.add_argument("--nfe", type=int, nargs="+", default=[], metavar="N", help=text)
    text = "compare the samplers at these costs instead, in FLOPs of one generator evaluation"
    group.add_argument("--cost", type=float, nargs="+", default=[], metavar="X", help=text)
    text = "also evaluate rejection with these numbers of candidates; 5 10 in the paper"
    group.add_argument("--candidates", type=int, nargs="+", default=[], metavar="N", help=text)
    group.add_argument("--out", metavar="FOLDER", help="folder for comparison.json and comparison.md")
    add_measuring(parser, num=10_000)
    given = parse(parser, arguments)
    for flag, least in {"steps": 1, "nfe": 1, "cost": 1, "candidates": 2}.items():
        for value in [given.steps] if flag == "steps" else given[flag]:
            check_at_least(least, **{f"--{flag}": value})
    if given.steps > (most := MOST["steps"] // 2):
        raise InputError(f"--steps is {given.steps}; it must be at most {most}, because MaskGIT takes twice as many")
    if bool(given.nfe) + bool(given.cost) + bool(given.candidates) > 1:
        raise InputError("--nfe, --cost and --candidates are given together; give one of them")
    if given.out:
        check_folder("--out", given.out)
    check_measuring(given)

    from tokencritic.evaluation import comparison
    from tokencritic.files import write_json, write_text

    with joined_ranks(given) as ranks:
        pipe = load_model(given)
        if given.nfe or given.cost:
            lines = comparison.lines_at_nfe(pipe, given.nfe or given.cost, None if given.nfe else pipe.cost)
        else:
            lines = comparison.comparison_lines(pipe, given.steps, given.candidates)
        sets, meter = sets_and_meter(given, ranks, pipe, (line.settings for line in lines))
        done, results, out = [], [], Path(given.out or "")
        for one in comparison.compare(sets, meter, lines):
            done.append(one)
            results.append({"name": one.line.name, "row": one.row, **one.evaluation.as_json()})
            if given.out and ranks.first:  # after every line, as all of them may take hours
                write_json(out / "comparison.json", {"command": command_line("compare", arguments), "results": results})
        if not ranks.first:
            return
    text = comparison.comparison_text(done)
    print(text)
    if given.out:
        write_text(out / "comparison.md", f"{text}\n")
        print(f"wrote comparison.json and comparison.md to {out}")
