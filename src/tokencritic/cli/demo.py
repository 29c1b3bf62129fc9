"""`token-critic demo`: show what the critic does, in pictures, on a bundled model."""

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import Namespace

from tokencritic.cli.arguments import (
    MODEL_HELP,
    add_model,
    add_work,
    check_positive,
    check_work,
    load_model,
    make_parser,
    parse,
    say_device,
)
from tokencritic.errors import InputError
from tokencritic.pretrained import place_of

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from tokencritic.pipeline import TokenCriticPipeline

_MOST_CLASSES = 10
_SHOWN = 6  # images in the animation and in the refinement


def main(arguments: list[str]) -> None:
    given = _parse(arguments)

    import numpy as np

    from tokencritic.pictures.grids import save
    from tokencritic.pictures.steps import before_and_after, run_of, samples_compared, write_steps
    from tokencritic.pipeline import Given
    from tokencritic.sampling.samplers import SAMPLERS
    from tokencritic.sampling.trace import Trace

    pipe = load_model(given)
    samplers = [name for name, part in (("critic", pipe.critic), ("inline", pipe.inline_critic)) if part is not None]
    if not samplers:
        raise InputError(f"{given.model} has no critic; the demo shows what a critic does")
    classes = range(min(_MOST_CLASSES, pipe.generator.num_classes))
    columns = len(classes) or _MOST_CLASSES
    shown = given.rows * columns
    count = columns * -(-max(given.num, shown) // columns)
    labels, seeds = pipe.classes.in_turn(count, [*classes] or None), range(given.seed, given.seed + count)
    distance = _distance(given.model, pipe, count)  # before sampling, because the cache may not be writable
    (folder := Path(given.out)).mkdir(parents=True, exist_ok=True)
    plain = {name: pipe.sampling.for_sampler(name, pipe.cost) for name in ("confidence", *samplers)}
    baseline, refined = SAMPLERS["confidence"].title, f"{SAMPLERS['confidence'].title}, refined"
    settings = {SAMPLERS[name].title: chosen for name, chosen in plain.items()}
    settings |= {refined: pipe.sampling.for_refinement(candidates=1)}
    tokens, traces, spent = {}, {name: Trace(_SHOWN) for name in settings}, {}
    say_device(given)
    for name, chosen in settings.items():
        start, began = Given(tokens[baseline]) if name == refined else None, time.perf_counter()
        hooks = {"batch_size": given.batch_size, "on_step": traces[name]}
        tokens[name] = _shown(name, count, pipe.token_batches(labels, seeds, chosen, start, **hooks))
        ratio, milliseconds = start and start.ratio, 1000 * (time.perf_counter() - began) / count
        spent[name] = np.array([pipe.nfe(chosen, ratio), pipe.cost(chosen, ratio), milliseconds])
    spent[refined] += spent[baseline]

    _tell("drawing samples.png, steps.gif and refined.png")
    sheet = {name: tokens[name][:shown] for name in settings if name != refined}
    notes = ["{:.0f} NFE, cost {:.1f}".format(*spent[name][:2]) for name in sheet]
    above = pipe.names(classes) or [""] * columns
    save(samples_compared(sheet, pipe.tokenizer, above, notes), folder / "samples.png")
    runs = [run_of(one, traces[SAMPLERS[one].title], plain[one].probabilities) for one in ("confidence", samplers[-1])]
    write_steps(folder / "steps.gif", runs, pipe.tokenizer, names := pipe.names(labels)[:_SHOWN])
    judged = traces[refined], pipe.tokenizer, names, settings[refined].probabilities
    save(before_and_after(*judged), folder / "refined.png")

    _tell("measuring")
    print(_table(pipe, tokens, spent, labels, distance))
    print(f"wrote samples.png, steps.gif and refined.png to {folder}")


def _parse(arguments: list[str]) -> Namespace:
    parser = make_parser(
        "demo",
        "Sample with MaskGIT and with a critic, from the same seeds and at the same cost. Show how the images form, "
        "and refine MaskGIT's images. Takes less than a minute.",
        "[MODEL] [OPTIONS]",
    )
    add_model(parser, nargs="?", default="fashion-mnist", help=f"{MODEL_HELP}; it needs a critic")
    parser.add_argument("--rows", type=int, default=4, help="images per class to show")
    parser.add_argument("--num", type=int, default=400, metavar="N", help="images per sampler to classify")
    add_work(parser, "out/demo")
    given = parse(parser, arguments)
    check_positive(given, "rows")
    check_work(given)
    return given


def _table(
    pipe: "TokenCriticPipeline",
    tokens: "Mapping[str, Tensor]",
    spent: "Mapping[str, np.ndarray]",
    labels: "Tensor | None",
    distance: "Callable[[Tensor], float] | None",
) -> str:
    """Return a table of the cost and the quality of each sampler's images.

    spent: NFE, cost and milliseconds per image of each sampler.
    distance: a function from tokens to their FID, or None.
    """
    from tokencritic.evaluation.report import table

    count = len(next(iter(tokens.values())))
    header, rows = ["", "NFE", "cost", "ms/image"], [[name, *map("{:.3g}".format, spent[name])] for name in tokens]
    if pipe.classifier is not None and labels is not None:
        header.append(f"right class of {count}")
        for row in rows:
            row.append(f"{(pipe.classify(tokens[row[0]]) == labels).float().mean():.0%}")
    if distance is not None:
        header.append(f"FID of {count}")
        for row in rows:
            row.append(f"{distance(tokens[row[0]]):.3f}")
    return table(header, rows)


def _tell(stage: str) -> None:
    """Print the current stage to stderr at once."""
    print(stage, file=sys.stderr, flush=True)


def _shown(name: str, count: int, batches: "Iterable[Tensor]") -> "Tensor":
    """Return all batches as one tensor and show the progress."""
    import torch

    from tokencritic.progress import Progress

    _tell(f"{name}: {count} images")
    made = []
    with Progress(count, name, "images") as progress:
        for batch in batches:
            made.append(batch)
            progress.advance(len(batch))
    return torch.cat(made)


def _distance(model: str, pipe: "TokenCriticPipeline", count: int) -> "Callable[[Tensor], float] | None":
    """Return a function from tokens (count, n) to their FID with the classifier's features.

    It is None for too few images, and for a model without a `Classifier` or reference images. The features of the
    reference are cached.
    """
    from tokencritic.evaluation.cache import cache_folder
    from tokencritic.evaluation.features import ClassifierFeatures
    from tokencritic.evaluation.metrics import fid, fit_gaussian
    from tokencritic.evaluation.reference import PACKED, open_reference
    from tokencritic.models.classifier import Classifier

    packed, size = Path(place_of(model)) / PACKED, pipe.tokenizer.image_size
    if not isinstance(pipe.classifier, Classifier) or not packed.is_file():
        return None
    features = ClassifierFeatures(pipe.classifier)
    if count <= features.dimension:
        return None
    reference = open_reference(packed, features, cache_folder(), (size, size), pipe.tokenizer.channels)
    return lambda tokens: fid(reference.gaussian, fit_gaussian([features(pipe.images(tokens, "pt"))["features"]]))
