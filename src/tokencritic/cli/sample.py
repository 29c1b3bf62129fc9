"""`token-critic sample`: sample images from a model."""

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
    check_device,
    load_model,
    make_parser,
    note_untuned,
    parse,
    parse_work,
    say_device,
    settings_of,
)
from tokencritic.cli.factories import is_factory
from tokencritic.cli.outputs import check_file
from tokencritic.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from tokencritic.pipeline import TokenCriticPipeline
    from tokencritic.sampling.settings import SamplingSettings
    from tokencritic.sampling.trace import Trace

_MOST_IN_GRID = 256


def main(arguments: list[str]) -> None:
    given = _parse(arguments)

    from tokencritic.distribution import joined
    from tokencritic.interop.adm import write_samples
    from tokencritic.pictures.grids import save
    from tokencritic.progress import Progress

    with joined(check_device(given.device)) as ranks:
        pipe = load_model(given)
        settings = pipe.settings(**settings_of(given))
        labels = pipe.classes.in_turn(given.num, given.classes, called="--classes")
        seeds = range(given.seed, given.seed + given.num)
        runs = _traced(given, pipe, settings) if given.trace else []
        # Ranks take whole batches in turn. One rank alone has the same batches, so that its rounding is the same.
        group = max(1, given.batch_size // settings.candidates)
        mine = ranks.share(given.num, group)

        def batches() -> Iterator[Any]:
            own = None if labels is None else labels[mine], [seeds[index] for index in mine]
            several = ranks.first and given.num * settings.candidates > given.batch_size
            with Progress(len(mine), "sampling", "images", shown=several) as progress:
                for tokens in pipe.token_batches(*own, settings, batch_size=given.batch_size):
                    yield pipe.images(tokens, "pil" if given.format == "png" else "pt", given.batch_size)
                    progress.advance(len(tokens))

        start, made, folder = time.perf_counter(), batches() if mine else iter(()), Path(given.out)
        made = itertools.chain([*itertools.islice(made, 1)], made)  # errors appear before the folder is created
        say_device(given)
        folder.mkdir(parents=True, exist_ok=True)
        if given.format == "png":
            names = _names(seeds, labels)
            facts = _facts(given, settings.in_effect(pipe.critic is not None))
            for index, image in zip(mine, itertools.chain.from_iterable(made), strict=True):
                save(image, folder / names[index], facts | _own_facts(seeds, labels, index))
            ranks.wait()
            written = f"{given.num} images and grid.png to {folder}"
            if ranks.first:
                _finish_folder(folder, names, pipe.names(labels))
        else:
            rounds = range(-(-given.num // (group * ranks.size)) + 1)  # the last round exhausts `made` on every rank
            parts = (batch for _ in rounds for batch in ranks.gathered(next(made, None)) if batch is not None)
            written = f"{given.num} images to {folder / 'samples.npz'}"
            if ranks.first:
                write_samples(folder / "samples.npz", parts, labels, given.num)
            else:
                list(parts)  # sends the batches of this rank
        if ranks.first:
            print(f"wrote {written} in {time.perf_counter() - start:.1f} s")
            if runs:
                _write_trace(given, pipe, runs, labels, seeds)
            note_untuned(given, pipe, settings)


def _names(seeds: range, labels: "Tensor | None") -> list[str]:
    """Return the file names of all images."""
    if labels is None:
        return [f"{seed:06}.png" for seed in seeds]
    return [f"{seed:06}_class{label}.png" for seed, label in zip(seeds, labels.tolist(), strict=True)]


def _own_facts(seeds: range, labels: "Tensor | None", index: int) -> dict[str, Any]:
    return ({} if labels is None else {"class": int(labels[index])}) | {"seed": seeds[index]}


def _finish_folder(folder: Path, files: list[str], classes: list[str]) -> None:
    """Write the grid of the first images. Print a note if the folder holds images of an earlier run."""
    from tokencritic.data.source import OWN_SAMPLE, read_image
    from tokencritic.pictures.grids import image_grid, save

    in_grid = [read_image(folder / file) for file in files[:_MOST_IN_GRID]]
    save(image_grid(in_grid, names=classes[: len(in_grid)]), folder / "grid.png")
    if others := {path.name for path in folder.glob("*.png") if OWN_SAMPLE.fullmatch(path.name)} - {*files}:
        print(f"note: {folder} holds {len(others)} images of an earlier run too")


def _write_trace(
    given: Namespace,
    pipe: "TokenCriticPipeline",
    runs: "list[tuple[SamplingSettings, Trace]]",
    labels: "Tensor | None",
    seeds: range,
) -> None:
    """Sample the first images again and write a picture of their steps."""
    from tokencritic.pictures.steps import MOST_IMAGES, run_of, write_steps

    first = None if labels is None else labels[:MOST_IMAGES]
    for one, trace in runs:
        pipe.sample_tokens(first, seeds[:MOST_IMAGES], one, batch_size=given.batch_size, on_step=trace)
    shown = [run_of(one.row(pipe.critic is not None).name, trace, one.probabilities) for one, trace in runs]
    Path(given.trace).parent.mkdir(parents=True, exist_ok=True)
    write_steps(given.trace, shown, pipe.tokenizer, pipe.names(first))
    print(f"wrote {given.trace}")


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
        kept = facts | {"settings": {}} if given.paper else facts  # the settings of --paper replace those of the file
        given = parse(parser, [*_flags(kept), *arguments])
        if given.model is None:
            if is_factory(facts["model"]):  # a file from elsewhere must not choose code to run
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
    """Return the facts that all images of a run share, for their PNG files."""
    named = {name: value for name, value in settings.items() if value is not None}
    critic = {} if given.critic is None else {"critic": given.critic}
    return {"command": "sample", "model": given.model, "settings": named} | critic


def _like(file: str) -> dict[str, Any]:
    """Return the facts in the PNG file of a sampled image."""
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
    """Return the flags that reproduce an image. The last flag takes one value, so that arguments can follow."""
    classes = {"classes": facts["class"]} if "class" in facts else {}
    words = []
    for name, value in (facts["settings"] | classes | {"seed": facts.get("seed"), "num": 1}).items():
        words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return words


def _traced(
    given: Namespace, pipe: "TokenCriticPipeline", settings: "SamplingSettings"
) -> "list[tuple[SamplingSettings, Trace]]":
    """Return the runs whose steps are shown, from top to bottom: the settings and the trace of each.

    The last run has the given settings. With --compare, the first one is MaskGIT at the same NFE, as tuned for the
    model.
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
