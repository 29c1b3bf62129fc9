"""`token-critic demo`: what the critic does, in pictures, on a bundled model."""

import time
from pathlib import Path

from tokencritic.cli.arguments import MODEL_HELP, add_work, check_positive, load_model, make_parser, parse
from tokencritic.errors import InputError

_MOST_CLASSES = 10
_SHOWN = 6  # images in the animation and in the refinement
_BASELINE, _OURS, _REFINED = "MaskGIT", "Token-Critic", "MaskGIT, refined"


def main(arguments: list[str]) -> None:
    parser = make_parser(
        "demo",
        "MaskGIT and Token-Critic from the same seeds and at the same NFE, how their images form, and MaskGIT's images refined "
        "by the critic. Takes less than a minute.",
        "[MODEL] [OPTIONS]",
    )
    parser.add_argument("model", nargs="?", default="fashion-mnist", help=f"{MODEL_HELP}; it needs a critic")
    parser.add_argument("--rows", type=int, default=4, help="images of each class")
    add_work(parser, "out/demo")
    given = parse(parser, arguments)
    check_positive(given, "rows", "batch_size")

    from tokencritic.evaluation.report import table
    from tokencritic.pictures.grids import save
    from tokencritic.pictures.steps import before_and_after, run_of, samples_compared, write_steps
    from tokencritic.pipeline import Given
    from tokencritic.sampling.trace import Trace

    pipe = load_model(given)
    if pipe.critic is None:
        raise InputError(f"{given.model} has no critic; the demo shows what a critic does")
    classes = range(min(_MOST_CLASSES, pipe.generator.num_classes))
    labels = pipe.labels([*classes] * given.rows)
    plain = {name: pipe.sampling.for_sampler(row) for name, row in ((_BASELINE, "confidence"), (_OURS, "critic"))}
    settings = {**plain, _REFINED: pipe.sampling.for_refinement(candidates=1)}
    tokens, traces, nfe, seconds = {}, {name: Trace(_SHOWN) for name in settings}, {}, {}
    for name, chosen in settings.items():
        start, began = Given(tokens[_BASELINE]) if name == _REFINED else None, time.perf_counter()
        hooks = {"batch_size": given.batch_size, "on_step": traces[name]}
        tokens[name] = pipe.sample_tokens(labels, given.seed, chosen, start, **hooks)
        seconds[name] = time.perf_counter() - began
        nfe[name] = pipe.nfe(chosen, None if start is None else start.ratio)
    for cost in (nfe, seconds):
        cost[_REFINED] += cost[_BASELINE]

    folder = Path(given.out)
    folder.mkdir(parents=True, exist_ok=True)
    shown = {name: tokens[name] for name in plain}
    notes = [f"{nfe[name]} NFE" for name in plain]
    save(samples_compared(shown, pipe.tokenizer, pipe.names(classes), notes), folder / "samples.png")
    runs = [run_of(str(one.sampler), traces[name], one.probabilities) for name, one in plain.items()]
    names = pipe.names(labels[:_SHOWN].tolist())
    write_steps(folder / "steps.gif", runs, pipe.tokenizer, names)
    picture = before_and_after(traces[_REFINED], pipe.tokenizer, names, settings[_REFINED].probabilities)
    save(picture, folder / "refined.png")

    header = ["", "NFE", "ms/image"] + [f"right class of {len(labels)}"] * (pipe.classifier is not None)
    rows = [[name, str(nfe[name]), f"{1000 * seconds[name] / len(labels):.0f}"] for name in settings]
    for row in rows if pipe.classifier is not None else ():
        row.append(f"{(pipe.classify(tokens[row[0]]) == labels).float().mean():.0%}")
    print(table(header, rows))
    print(f"wrote {', '.join(str(folder / name) for name in ('samples.png', 'steps.gif', 'refined.png'))}")
