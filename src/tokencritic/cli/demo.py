"""`token-critic demo`: what the critic does, in pictures, on a bundled model."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tokencritic.cli.arguments import MODEL_HELP, check_positive, load_model, make_parser, parse
from tokencritic.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from tokencritic.pipeline import TokenCriticPipeline
    from tokencritic.sampling.settings import SamplingSettings
    from tokencritic.sampling.trace import Trace

_MOST_CLASSES = 10
_SHOWN = 6  # images in the animation and in the refinement


@dataclass(frozen=True)
class Made:
    """Images of one sampler. seconds: what all of them took. steps: how the first few formed."""

    name: str
    tokens: "Tensor"
    nfe: int
    seconds: float
    steps: "Trace"


def main(arguments: list[str]) -> None:
    parser = make_parser(
        "demo",
        "MaskGIT and Token-Critic from the same seeds and at the same NFE, how their images form, and MaskGIT's images refined "
        "by the critic. Takes less than a minute.",
        "[MODEL] [OPTIONS]",
    )
    parser.add_argument("model", nargs="?", default="fashion-mnist", help=f"{MODEL_HELP}; it needs a critic")
    parser.add_argument("--rows", type=int, default=4, help="images of each class")
    parser.add_argument("--seed", type=int, default=0, help="image i has seed + i")
    parser.add_argument("--out", default="out/demo", help="the folder to write")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or the like")
    given = parse(parser, arguments)
    check_positive(given, "rows")

    from tokencritic.pictures.grids import save
    from tokencritic.pictures.steps import before_and_after, run_of, samples_compared, write_steps
    from tokencritic.pipeline import Given
    from tokencritic.sampling.trace import Trace

    pipe = load_model(given)
    if pipe.critic is None:
        raise InputError(f"{given.model} has no critic; the demo shows what a critic does")
    maskgit, critic = (pipe.sampling.for_sampler(name) for name in ("confidence", "critic"))
    classes = list(range(min(_MOST_CLASSES, pipe.generator.num_classes)))
    labels = pipe.labels(classes * given.rows)

    def make(name: str, settings: "SamplingSettings", start: Given | None = None) -> Made:
        trace, began = Trace(_SHOWN), time.perf_counter()
        tokens = pipe.sample_tokens(labels, given.seed, settings, start, on_step=trace)
        nfe = pipe.nfe(settings, None if start is None else start.ratio)
        return Made(name, tokens, nfe, time.perf_counter() - began, trace)

    baseline, ours = make("MaskGIT", maskgit), make("Token-Critic", critic)
    refining = pipe.sampling.for_refinement(candidates=1)
    refined = make("MaskGIT, refined", refining, Given(baseline.tokens))
    refined = replace(refined, nfe=refined.nfe + baseline.nfe, seconds=refined.seconds + baseline.seconds)

    folder = Path(given.out)
    folder.mkdir(parents=True, exist_ok=True)
    names = [pipe.class_names[label] if pipe.class_names else str(label) for label in classes]
    notes = [f"{made.nfe} passes an image" for made in (baseline, ours)]
    picture = samples_compared({made.name: made.tokens for made in (baseline, ours)}, pipe.tokenizer, names, notes)
    save(picture, folder / "samples.png")
    runs = [run_of("confidence", baseline.steps), run_of("critic", ours.steps, critic.probabilities)]
    shown = [names[label] for label in labels[:_SHOWN].tolist()]
    write_steps(folder / "steps.gif", runs, pipe.tokenizer, shown)
    picture = before_and_after(refined.steps, pipe.tokenizer, shown, probabilities=refining.probabilities)
    save(picture, folder / "refined.png")
    print(_table(pipe, labels, [baseline, ours, refined]))
    print(f"wrote {', '.join(str(folder / name) for name in ('samples.png', 'steps.gif', 'refined.png'))}")


def _table(pipe: "TokenCriticPipeline", labels: "Tensor", all_made: list[Made]) -> str:
    """Costs, and how many images the classifier takes for what they should be."""
    from tokencritic.evaluation.report import table

    header = ["", "NFE", "ms/image"] + [f"right class of {len(labels)}"] * (pipe.classifier is not None)
    rows = []
    for made in all_made:
        row = [made.name, str(made.nfe), f"{1000 * made.seconds / len(labels):.0f}"]
        if pipe.classifier is not None:
            row.append(f"{(pipe.classify(made.tokens) == labels).float().mean():.0%}")
        rows.append(row)
    return table(header, rows)
