"""`token-critic sample`: new images from a model folder."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import Namespace

from tokencritic.cli.arguments import MODEL_HELP, SETTINGS, load_model, make_parser, parse, parse_work, settings_of
from tokencritic.errors import InputError

if TYPE_CHECKING:
    from tokencritic.pipeline import TokenCriticPipeline
    from tokencritic.sampling.settings import SamplingSettings
    from tokencritic.sampling.trace import Trace

_MOST_IN_GRID = 256


def main(arguments: list[str]) -> None:
    given = _parse(arguments)

    from tokencritic.interop.adm import write_samples
    from tokencritic.pictures.grids import image_grid, save
    from tokencritic.pictures.steps import MOST_IMAGES, run_of, write_steps
    from tokencritic.progress import Progress

    pipe = load_model(given)
    settings = pipe.settings(**settings_of(given))
    classes = pipe.labels(given.classes or list(range(pipe.generator.num_classes)), called="--classes")
    labels = classes.repeat(-(-given.num // len(classes)))[: given.num]
    runs = _traced(given, pipe, settings) if given.trace else []
    hooks: dict[str, Any] = {"batch_size": given.batch_size, "on_step": runs[-1][1] if runs else None}

    def batches() -> Iterator[Any]:
        several = given.num * settings.candidates > given.batch_size
        with Progress(given.num, "sampling", "images", shown=several) as progress:
            for tokens in pipe.token_batches(labels, given.seed, settings, **hooks):
                yield pipe.images(tokens, "pil" if given.format == "png" else "pt", given.batch_size)
                progress.advance(len(tokens))

    start, made, folder = time.perf_counter(), batches(), Path(given.out)
    made = itertools.chain([next(made)], made)  # whatever is wrong shows before a folder is made
    folder.mkdir(parents=True, exist_ok=True)
    if given.format == "png":
        files = [f"{given.seed + index:06}_class{label}.png" for index, label in enumerate(labels.tolist())]
        in_grid = []
        named = {
            name: value for name, value in settings.in_effect(pipe.critic is not None).items() if value is not None
        }
        facts = {"command": "sample", "model": given.model, "settings": named}
        for index, image in enumerate(itertools.chain.from_iterable(made)):
            own = {"class": int(labels[index]), "seed": given.seed + index}
            save(image, folder / files[index], facts | own)
            if len(in_grid) < _MOST_IN_GRID:
                in_grid.append(image)
        save(image_grid(in_grid, names=pipe.names(labels[: len(in_grid)].tolist())), folder / "grid.png")
        if others := {path.name for path in folder.glob("*_class*.png")} - {*files}:
            print(f"note: {folder} holds {len(others)} images of an earlier run too")
        written = f"{given.num} images and grid.png to {folder}"
    else:
        write_samples(folder / "samples.npz", made, labels)
        written = f"{given.num} images to {folder / 'samples.npz'}"
    print(f"wrote {written} in {time.perf_counter() - start:.1f} s")
    if runs:
        first = labels[:MOST_IMAGES]
        for baseline, trace in runs[:-1]:
            pipe.sample_tokens(first, given.seed, baseline, on_step=trace)
        shown = [run_of(one.row(pipe.critic is not None).name, trace, one.probabilities) for one, trace in runs]
        Path(given.trace).parent.mkdir(parents=True, exist_ok=True)
        write_steps(given.trace, shown, pipe.tokenizer, pipe.names(first.tolist()))
        print(f"wrote {given.trace}")


def _parse(arguments: list[str]) -> Namespace:
    parser = make_parser(
        "sample", "Make images: a PNG of each and a grid of the first 256, or one ADM sample file.", "MODEL [OPTIONS]"
    )
    parser.add_argument("model", nargs="?", help=f"{MODEL_HELP}; that of the file with --like")
    text = "make the image of this PNG again, which sample or the studio wrote; other flags change what it says"
    parser.add_argument("--like", metavar="FILE", help=text)
    parser.add_argument("--classes", nargs="+", metavar="C", help="numbers or names; all classes in turn by default")
    parser.add_argument("--num", type=int, default=16, help="how many images in all; the classes take turns")
    text = "png, or npz: one samples.npz that ADM's evaluator reads"
    parser.add_argument("--format", choices=["png", "npz"], default="png", help=text)
    text = "also show how the first 16 images form: .gif, or a film strip, .png"
    parser.add_argument("--trace", metavar="FILE", help=text)
    text = "with --trace: MaskGIT above it, from the same seeds and at the same NFE"
    parser.add_argument("--compare", action="store_true", help=text)
    given = parse_work(parser, arguments, "out/samples")
    if given.like:
        model, words = _like(given.like)
        given = parse(parser, [*words, *arguments])
        given.model = given.model or model
    if given.model is None:
        raise InputError("the following arguments are required: model, or --like FILE")
    if given.compare and not given.trace:
        raise InputError("--compare is given without --trace; name the file to write with --trace FILE")
    return given


def _like(file: str) -> tuple[str, list[str]]:
    """The model of a PNG that was sampled, and the flags that make its image again. A flag with one value comes last."""
    from tokencritic.pictures.grids import read_note

    facts = read_note(file)
    if facts.get("command") != "sample":
        raise InputError(f"--like {file} was made by {facts.get('command')!r}; expected an image that was sampled")
    settings, flags = facts.get("settings"), {"classes": facts.get("class"), "seed": facts.get("seed")}
    if (
        not isinstance(settings, dict)
        or not settings.keys() <= set(SETTINGS)
        or not isinstance(facts.get("model"), str)
    ):
        raise InputError(f"--like {file} holds no model and settings that are known here")
    words = []
    for name, value in (settings | flags | {"num": 1}).items():
        words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return facts["model"], words


def _traced(
    given: Namespace, pipe: "TokenCriticPipeline", settings: "SamplingSettings"
) -> "list[tuple[SamplingSettings, Trace]]":
    """The runs whose steps are shown, from top to bottom, each with its trace; the images that are made are the last one's.

    Above them may stand MaskGIT as tuned for the model, at the NFE of the critic's settings.
    """
    from tokencritic.pictures.steps import MOST_IMAGES, check_ending
    from tokencritic.sampling.trace import Trace

    check_ending(given.trace)
    if settings.candidates > 1:
        raise InputError(f"candidates is {settings.candidates}; steps can be shown of images made without rejection")
    runs = [(settings, Trace(MOST_IMAGES))]
    if given.compare:
        if not settings.row(pipe.critic is not None).revokes:
            raise InputError("--compare is for a sampler that re-masks visible tokens, such as critic or inline")
        runs.insert(0, (pipe.sampling.at_nfe("confidence", pipe.nfe(settings)), Trace()))
    return runs
