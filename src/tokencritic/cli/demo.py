"""`token-critic demo`: what the critic does, in pictures, on a model inside the package."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokencritic.cli.arguments import check_device, make_parser, parse
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
    """Images of one sampler. seconds: what all of them took. steps: how the first few came about."""

    name: str
    tokens: "Tensor"
    passes: int
    seconds: float
    steps: "Trace"


def main(arguments: list[str]) -> None:
    parser = make_parser(
        "demo",
        "MaskGIT and Token-Critic from the same seeds and with the same number of network passes, how their images come "
        "about, and MaskGIT's images refined by the critic. Takes less than a minute.",
    )
    parser.add_argument("model", nargs="?", default="fashion-mnist", help="a model with a critic")
    parser.add_argument("--rows", type=int, default=4, help="images of each class")
    parser.add_argument("--seed", type=int, default=0, help="image i has seed + i")
    parser.add_argument("--out", default="out/demo", help="the folder to write")
    parser.add_argument("--device", default="cpu")
    given = parse(parser, arguments)
    if given.rows < 1:
        raise InputError(f"--rows is {given.rows}; it must be at least 1")

    from tokencritic.evaluation.tuned_settings import own_settings
    from tokencritic.pictures import before_and_after, run_of, samples_compared, save, write_steps
    from tokencritic.pipeline import TokenCriticPipeline
    from tokencritic.pretrained import place_of

    pipe = TokenCriticPipeline.from_pretrained(given.model).to(check_device(given.device))
    if pipe.critic is None:
        raise InputError(f"{given.model} has no critic; the demo shows what a critic does")
    place = Path(place_of(given.model))
    maskgit, critic = own_settings(place, pipe, "confidence"), own_settings(place, pipe, "critic")
    classes = list(range(min(_MOST_CLASSES, pipe.generator.num_classes)))
    labels = pipe.labels(classes * given.rows)
    baseline = _sample("MaskGIT", pipe, labels, given.seed, maskgit)
    ours = _sample("Token-Critic", pipe, labels, given.seed, critic)
    refined = _refine("MaskGIT, refined", pipe, labels, given.seed, baseline)

    folder = Path(given.out)
    folder.mkdir(parents=True, exist_ok=True)
    names = [pipe.class_names[label] if pipe.class_names else str(label) for label in classes]
    notes = [f"{made.passes} passes an image" for made in (baseline, ours)]
    picture = samples_compared({made.name: made.tokens for made in (baseline, ours)}, pipe.tokenizer, names, notes)
    save(picture, folder / "samples.png")
    runs = [run_of("confidence", baseline.steps), run_of("critic", ours.steps, critic.probabilities)]
    shown = [names[label] for label in labels[:_SHOWN].tolist()]
    write_steps(folder / "steps.gif", runs, pipe.tokenizer, shown)
    probabilities = pipe.refinement_settings().probabilities
    picture = before_and_after(refined.steps, pipe.tokenizer, shown, probabilities=probabilities)
    save(picture, folder / "refined.png")
    print(_table(pipe, labels, [baseline, ours, refined]))
    print(f"wrote {', '.join(str(folder / name) for name in ('samples.png', 'steps.gif', 'refined.png'))}")


def _sample(name: str, pipe: "TokenCriticPipeline", labels: "Tensor", seed: int, settings: "SamplingSettings") -> Made:
    from tokencritic.sampling.trace import Trace

    trace, start = Trace(_SHOWN), time.perf_counter()
    tokens = pipe.sample_tokens(labels, seed, settings, callback_on_step_end=trace.on_step_end)
    passes = settings.passes(pipe.tokenizer.num_tokens)
    return Made(name, tokens, passes, time.perf_counter() - start, trace)


def _refine(name: str, pipe: "TokenCriticPipeline", labels: "Tensor", seed: int, before: Made) -> Made:
    from tokencritic.sampling.trace import Trace

    settings, ratio = pipe.refinement_settings(candidates=1), 0.6
    trace, start = Trace(_SHOWN), time.perf_counter()
    tokens = pipe.refine_tokens(before.tokens, labels, seed, settings, 64, trace.on_step_end, ratio=ratio)
    passes = before.passes + settings.passes(pipe.tokenizer.num_tokens, refine_ratio=ratio)
    return Made(name, tokens, passes, before.seconds + time.perf_counter() - start, trace)


def _table(pipe: "TokenCriticPipeline", labels: "Tensor", all_made: list[Made]) -> str:
    """Costs, and how many images the classifier takes for what they should be."""
    from tokencritic.evaluation.report import table

    header = ["", "passes", "ms/image"] + [f"right class of {len(labels)}"] * (pipe.classifier is not None)
    rows = []
    for made in all_made:
        row = [made.name, str(made.passes), f"{1000 * made.seconds / len(labels):.0f}"]
        if pipe.classifier is not None:
            row.append(f"{(pipe.classify(made.tokens) == labels).float().mean():.0%}")
        rows.append(row)
    return table(header, rows)
