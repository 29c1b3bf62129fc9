"""`token-critic sample`: new images from a model folder."""

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokencritic.cli.arguments import add_settings, check_device, make_parser, parse, settings_of
from tokencritic.errors import InputError

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor

    from tokencritic.pipeline import OutputType, TokenCriticPipeline
    from tokencritic.sampling.settings import SamplingSettings
    from tokencritic.sampling.trace import Trace

_MOST_IN_GRID = 256


def main(arguments: list[str]) -> None:
    parser = make_parser("sample", "Make images: a PNG of each and a grid of the first 256, or one ADM sample file.")
    parser.add_argument("model", help="a model folder or Hub id")
    parser.add_argument("--classes", nargs="+", help="numbers or names; all classes in turn if not given")
    parser.add_argument("--num", type=int, default=16, help="how many images in all; the classes take turns")
    parser.add_argument("--seed", type=int, default=0, help="image i has seed + i")
    parser.add_argument(
        "--format", choices=["png", "npz"], default="png", help="npz: one samples.npz, as ADM's evaluator reads it"
    )
    parser.add_argument("--out", default="out/samples", help="the folder to write")
    text = "also show how the first 16 images come about: .gif, .webp, or a film strip, .png"
    parser.add_argument("--trace", metavar="FILE", help=text)
    text = "with --trace: MaskGIT above the critic, from the same seeds and with the same number of network passes"
    parser.add_argument("--compare", action="store_true", help=text)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    add_settings(parser)
    given = parse(parser, arguments)
    if given.compare and not given.trace:
        raise InputError("--compare is given without --trace; name the file to write with --trace FILE")
    for name in ("num", "batch_size"):
        if given[name] < 1:
            raise InputError(f"--{name} is {given[name]}; it must be at least 1")

    from tokencritic.interop.adm import write_samples
    from tokencritic.pictures import MOST_IMAGES, check_trace, write_trace
    from tokencritic.pipeline import TokenCriticPipeline
    from tokencritic.randomness import as_seeds
    from tokencritic.sampling.trace import Trace

    pipe = TokenCriticPipeline.from_pretrained(given.model).to(check_device(given.device))
    settings = pipe.settings(**settings_of(given))
    classes = pipe.labels(given.classes or list(range(pipe.generator.num_classes)), called="--classes")
    labels = classes.repeat(-(-given.num // len(classes)))[: given.num]
    seeds = as_seeds(given.seed, given.num)
    trace = Trace(MOST_IMAGES) if given.trace else None
    if trace is not None:
        check_trace(given.trace, settings)
    baseline = _baseline(given.model, pipe, settings) if given.compare else None
    start = time.perf_counter()
    output_type = "pil" if given.format == "png" else "pt"
    batches = _sample(pipe, labels, seeds, settings, given.batch_size, output_type, trace)
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
        write_trace(given.trace, pipe, labels, given.seed, settings, trace=trace, compare=baseline)
        print(f"wrote {given.trace}")


def _baseline(model: str, pipe: "TokenCriticPipeline", settings: "SamplingSettings") -> "SamplingSettings":
    """MaskGIT as tuned for the model, at the network passes of the critic's settings."""
    from tokencritic.evaluation.tuned_settings import settings_at
    from tokencritic.pretrained import place_of

    if pipe.critic is None or settings.chosen_sampler(has_critic=True) != "critic":
        raise InputError(
            "--compare shows the critic beside MaskGIT; choose a model that has one, and no other --sampler"
        )
    return settings_at(Path(place_of(model)), pipe, "confidence", settings.passes(pipe.tokenizer.num_tokens))


def _sample(
    pipe: "TokenCriticPipeline",
    labels: "Tensor",
    seeds: "Tensor",
    settings: "SamplingSettings",
    batch_size: int,
    output_type: "OutputType",
    trace: "Trace | None",
) -> Iterator[Any]:
    """Images in batches, so that memory does not grow with their number; progress is shown where there is more than one."""
    from tokencritic.progress import Progress

    count = max(1, batch_size // settings.candidates)
    with Progress(len(labels), "sampling", "images", shown=len(labels) > count) as progress:
        for part, part_seeds in zip(labels.split(count), seeds.split(count), strict=True):
            watch = None if trace is None else trace.on_step_end
            tokens = pipe.sample_tokens(part, part_seeds, settings, batch_size, watch)
            yield pipe.images(tokens, output_type, batch_size)
            progress.advance(len(part))


def _write_pictures(
    batches: "Iterable[list[Image.Image]]", labels: list[int], first_seed: int, folder: Path, class_names: Sequence[str]
) -> set[str]:
    """Write each image and the grid; returns the names of the images' files."""
    from tokencritic.pictures.grids import grid, save

    shown, written = [], set()
    for index, image in enumerate(itertools.chain.from_iterable(batches)):
        name = f"{first_seed + index:06}_class{labels[index]}.png"
        save(image, folder / name)
        written.add(name)
        if index < _MOST_IN_GRID:
            shown.append(image)
    names = [class_names[label] for label in labels[: len(shown)]] if class_names else None
    save(grid(shown, names=names), folder / "grid.png")
    return written
