"""`token-critic sample`: new images from a model folder."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import Namespace

from tokencritic.cli.arguments import (
    MODEL_HELP,
    SETTINGS,
    add_model,
    load_model,
    make_parser,
    note_untuned,
    parse,
    parse_work,
    settings_of,
)
from tokencritic.cli.factories import is_factory
from tokencritic.cli.outputs import check_file
from tokencritic.errors import InputError

if TYPE_CHECKING:
    from tokencritic.pipeline import TokenCriticPipeline
    from tokencritic.sampling.settings import SamplingSettings
    from tokencritic.sampling.trace import Trace

_MOST_IN_GRID = 256


def main(arguments: list[str]) -> None:
    given = _parse(arguments)

    from tokencritic.data.source import OWN_SAMPLE
    from tokencritic.interop.adm import write_samples
    from tokencritic.pictures.grids import image_grid, save
    from tokencritic.pictures.steps import MOST_IMAGES, run_of, write_steps
    from tokencritic.progress import Progress

    pipe = load_model(given)
    settings = pipe.settings(**settings_of(given))
    labels = pipe.classes.in_turn(given.num, given.classes, called="--classes")
    seeds = range(given.seed, given.seed + given.num)
    runs = _traced(given, pipe, settings) if given.trace else []
    hooks: dict[str, Any] = {"batch_size": given.batch_size, "on_step": runs[-1][1] if runs else None}

    def batches() -> Iterator[Any]:
        several = given.num * settings.candidates > given.batch_size
        with Progress(given.num, "sampling", "images", shown=several) as progress:
            for tokens in pipe.token_batches(labels, seeds, settings, **hooks):
                yield pipe.images(tokens, "pil" if given.format == "png" else "pt", given.batch_size)
                progress.advance(len(tokens))

    start, made, folder = time.perf_counter(), batches(), Path(given.out)
    made = itertools.chain([next(made)], made)  # whatever is wrong shows before a folder is made
    folder.mkdir(parents=True, exist_ok=True)
    if given.format == "png":
        files = [f"{seed:06}.png" for seed in seeds]
        if labels is not None:
            files = [f"{seed:06}_class{label}.png" for seed, label in zip(seeds, labels.tolist(), strict=True)]
        in_grid, facts = [], _facts(given, settings.in_effect(pipe.critic is not None))
        for index, image in enumerate(itertools.chain.from_iterable(made)):
            own = {} if labels is None else {"class": int(labels[index])}
            save(image, folder / files[index], facts | own | {"seed": seeds[index]})
            if len(in_grid) < _MOST_IN_GRID:
                in_grid.append(image)
        save(image_grid(in_grid, names=pipe.names(labels)[: len(in_grid)]), folder / "grid.png")
        if others := {path.name for path in folder.glob("*.png") if OWN_SAMPLE.fullmatch(path.name)} - {*files}:
            print(f"note: {folder} holds {len(others)} images of an earlier run too")
        written = f"{given.num} images and grid.png to {folder}"
    else:
        write_samples(folder / "samples.npz", made, labels, given.num)
        written = f"{given.num} images to {folder / 'samples.npz'}"
    print(f"wrote {written} in {time.perf_counter() - start:.1f} s")
    if runs:
        first = None if labels is None else labels[:MOST_IMAGES]
        for baseline, trace in runs[:-1]:
            pipe.sample_tokens(first, seeds[:MOST_IMAGES], baseline, on_step=trace)
        shown = [run_of(one.row(pipe.critic is not None).name, trace, one.probabilities) for one, trace in runs]
        Path(given.trace).parent.mkdir(parents=True, exist_ok=True)
        write_steps(given.trace, shown, pipe.tokenizer, pipe.names(first))
        print(f"wrote {given.trace}")
    note_untuned(given, pipe, settings)


def _parse(arguments: list[str]) -> Namespace:
    parser = make_parser(
        "sample", "Make images: a PNG of each and a grid of the first 256, or one ADM sample file.", "MODEL [OPTIONS]"
    )
    add_model(parser, nargs="?", help=f"{MODEL_HELP}; that of the file with --like")
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
        facts = _like(given.like)
        given = parse(parser, [*_flags(facts), *arguments])
        if given.model is None:
            if is_factory(facts["model"]):  # whose code runs: a file that came from elsewhere must not name it
                raise InputError(f"--like {given.like} was made by {facts['model']}; name it as MODEL to run its code")
            given.model = facts["model"]
        given.critic = given.critic or facts.get("critic")
    if given.model is None:
        raise InputError("the following arguments are required: model, or --like FILE")
    if given.compare and not given.trace:
        raise InputError("--compare is given without --trace; name the file to write with --trace FILE")
    if given.trace:
        check_file("--trace", given.trace)
    return given


def _facts(given: Namespace, settings: dict[str, Any]) -> dict[str, Any]:
    """What decides all images of a run, for their PNG files."""
    named = {name: value for name, value in settings.items() if value is not None}
    critic = {} if given.critic is None else {"critic": given.critic}
    return {"command": "sample", "model": given.model, "settings": named} | critic


def _like(file: str) -> dict[str, Any]:
    """What a PNG that was sampled says of its image."""
    from tokencritic.pictures.grids import read_note

    facts = read_note(file)
    if facts.get("command") != "sample":
        raise InputError(f"--like {file} was made by {facts.get('command')!r}; expected an image that was sampled")
    settings, places = facts.get("settings"), (facts.get("model"), facts.get("critic", ""))
    known = isinstance(settings, dict) and settings.keys() <= set(SETTINGS)
    if not known or not all(isinstance(place, str) for place in places):
        raise InputError(f"--like {file} holds no model and settings that are known here")
    return facts


def _flags(facts: dict[str, Any]) -> list[str]:
    """The flags that make the image of these facts again. A flag with one value comes last."""
    classes = {"classes": facts["class"]} if "class" in facts else {}
    words = []
    for name, value in (facts["settings"] | classes | {"seed": facts.get("seed"), "num": 1}).items():
        words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return words


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
