"""`token-critic sample`: new images from a model folder."""

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokencritic.cli.arguments import (
    MODEL_HELP,
    add_settings,
    add_work,
    check_positive,
    load_model,
    make_parser,
    parse,
    settings_of,
)
from tokencritic.errors import InputError

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor

    from tokencritic.pipeline import TokenCriticPipeline
    from tokencritic.sampling.settings import SamplingSettings

_MOST_IN_GRID = 256


def main(arguments: list[str]) -> None:
    parser = make_parser(
        "sample", "Make images: a PNG of each and a grid of the first 256, or one ADM sample file.", "MODEL [OPTIONS]"
    )
    parser.add_argument("model", help=MODEL_HELP)
    parser.add_argument("--classes", nargs="+", metavar="C", help="numbers or names; all classes in turn by default")
    parser.add_argument("--num", type=int, default=16, help="how many images in all; the classes take turns")
    add_work(parser, "out/samples")
    text = "png, or npz: one samples.npz that ADM's evaluator reads"
    parser.add_argument("--format", choices=["png", "npz"], default="png", help=text)
    text = "also show how the first 16 images form: .gif, .webp, or a film strip, .png"
    parser.add_argument("--trace", metavar="FILE", help=text)
    text = "with --trace: MaskGIT above the critic, from the same seeds and at the same NFE"
    parser.add_argument("--compare", action="store_true", help=text)
    add_settings(parser)
    given = parse(parser, arguments)
    if given.compare and not given.trace:
        raise InputError("--compare is given without --trace; name the file to write with --trace FILE")
    check_positive(given, "num", "batch_size")

    from tokencritic.interop.adm import write_samples
    from tokencritic.pictures.steps import MOST_IMAGES, check_trace, write_trace
    from tokencritic.sampling.trace import Trace

    pipe = load_model(given)
    settings = pipe.settings(**settings_of(given))
    classes = pipe.labels(given.classes or list(range(pipe.generator.num_classes)), called="--classes")
    labels = classes.repeat(-(-given.num // len(classes)))[: given.num]
    trace = Trace(MOST_IMAGES) if given.trace else None
    if trace is not None:
        check_trace(given.trace, settings.candidates)
    baseline = _baseline(pipe, settings) if given.compare else None
    start = time.perf_counter()
    tokens = pipe.token_batches(labels, given.seed, settings, batch_size=given.batch_size, on_step=trace)
    output_type = "pil" if given.format == "png" else "pt"
    shown = given.num * settings.candidates > given.batch_size  # more than one batch
    batches = (pipe.images(part, output_type, given.batch_size) for part in _with_progress(tokens, given.num, shown))
    first = next(batches)  # whatever is wrong shows before a folder is made
    batches = itertools.chain([first], batches)
    folder = Path(given.out)
    folder.mkdir(parents=True, exist_ok=True)
    if given.format == "png":
        names = _write_pictures(batches, labels.tolist(), given.seed, folder, pipe.class_names)
        if others := {path.name for path in folder.glob("*_class*.png")} - names:
            print(f"note: {folder} holds {len(others)} images of an earlier run too")
        written = f"{given.num} images and grid.png to {folder}"
    else:
        write_samples(folder / "samples.npz", batches, labels)
        written = f"{given.num} images to {folder / 'samples.npz'}"
    print(f"wrote {written} in {time.perf_counter() - start:.1f} s")
    if trace is not None:
        write_trace(given.trace, pipe, labels, given.seed, settings, trace, baseline)
        print(f"wrote {given.trace}")


def _baseline(pipe: "TokenCriticPipeline", settings: "SamplingSettings") -> "SamplingSettings":
    """MaskGIT as tuned for the model, at the NFE of the critic's settings."""
    if pipe.critic is None or settings.row(has_critic=True).name != "critic":
        raise InputError(
            "--compare shows the critic beside MaskGIT; choose a model that has one, and no other --sampler"
        )
    return pipe.sampling.at_nfe("confidence", pipe.nfe(settings))


def _with_progress(batches: "Iterator[Tensor]", total: int, shown: bool) -> "Iterator[Tensor]":
    from tokencritic.progress import Progress

    with Progress(total, "sampling", "images", shown=shown) as progress:
        for tokens in batches:
            yield tokens
            progress.advance(len(tokens))


def _write_pictures(
    batches: "Iterable[list[Image.Image]]", labels: list[int], first_seed: int, folder: Path, class_names: Sequence[str]
) -> set[str]:
    """Write each image and the grid; returns the names of the images' files."""
    from tokencritic.pictures.grids import image_grid, save

    shown: list[Any] = []
    written = set()
    for index, image in enumerate(itertools.chain.from_iterable(batches)):
        name = f"{first_seed + index:06}_class{labels[index]}.png"
        save(image, folder / name)
        written.add(name)
        if index < _MOST_IN_GRID:
            shown.append(image)
    names = [class_names[label] for label in labels[: len(shown)]] if class_names else None
    save(image_grid(shown, names=names), folder / "grid.png")
    return written
