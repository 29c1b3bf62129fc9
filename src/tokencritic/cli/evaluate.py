"""`token-critic evaluate`: evaluate a model, or a folder or file of images."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import Namespace

from tokencritic.cli.arguments import (
    MODEL_HELP,
    add_model,
    add_settings,
    check_settings_given,
    load_model,
    make_parser,
    note_untuned,
    parse,
    parse_settings,
    settings_of,
)
from tokencritic.cli.measuring import (
    add_measuring,
    check_measuring,
    command_line,
    joined_ranks,
    make_meter,
    model_meter,
    reference_of,
    sets_and_meter,
)
from tokencritic.cli.outputs import check_file
from tokencritic.errors import InputError

if TYPE_CHECKING:
    from tokencritic.distribution import Ranks
    from tokencritic.evaluation.evaluate import Evaluation

    Found = tuple[dict[str, Evaluation], list[str]]  # evaluations by name, and notes on what was measured

_OF_SAMPLES = {"refine": None, "seed": 0, "seed_sets": 1, "critic": None}


def main(arguments: list[str]) -> None:
    given = _parse(arguments)

    from tokencritic.evaluation.evaluate import METRICS
    from tokencritic.evaluation.report import explain, number, table
    from tokencritic.files import write_json

    with joined_ranks(given) as ranks:
        named, notes = (_of_model if _is_model(given.model) else _of_images)(given, ranks)
        if not ranks.first:
            return
        first, *_ = named.values()
        rows = [
            [METRICS[name].title, *(number(name, one.metrics[name]) for one in named.values()), metric.std_over]
            for name, metric in first.metrics.items()
        ]
        print("\n".join([*notes, explain(first.facts), table(["", *named, "std over"], rows)]))
        if given.out:
            results = {name: found.as_json() for name, found in named.items()}
            write_json(given.out, {"command": command_line("evaluate", arguments), "results": results})
            print(f"wrote {given.out}")


def _parse(arguments: list[str]) -> Namespace:
    parser = make_parser(
        "evaluate",
        "Measure images against a reference. Rerun the command to resume; torchrun distributes the work.",
        "MODEL|FOLDER|FILE.npz [OPTIONS]",
    )
    group = parser.add_argument_group("what is measured")
    add_model(group, help=f"{MODEL_HELP}; or a folder of images, or ADM samples")
    group.add_argument("--out", metavar="FILE", help="a JSON file to write, with all settings and hashes")
    group.add_argument("--refine", type=float, metavar="RATIO", help="measure before and after refinement")
    text = "settings of the refinement, such as steps=4 temperature=1.2:0.5"
    group.add_argument("--refine_settings", nargs="+", default=[], metavar="NAME=VALUE", help=text)
    group.add_argument("--reconstructions", action="store_true", help="measure the reference, encoded and decoded")
    group.add_argument("--classifier", metavar="MODEL", help="another model, whose classifier gives the features")
    add_measuring(parser, None, "; 10,000 by default, or all images that are given")
    add_settings(parser)
    given = parse(parser, arguments)
    if given.out:
        check_file("--out", given.out)
    check_measuring(given)
    check_settings_given(given)
    if given.refine is None and given.refine_settings:
        raise InputError("--refine_settings is given without --refine; give the share to refine with --refine")
    return given


def _is_model(path: str) -> bool:
    """Return False for images: an .npz, or an existing file or folder without a model.

    A path that does not exist may be a model on the Hub.
    """
    from tokencritic.cli.factories import is_factory
    from tokencritic.pretrained import place_of

    if is_factory(path):
        return True
    place = Path(place_of(path))
    return (place / "pipeline.json").is_file() or not (place.exists() or place.suffix == ".npz")


def _check_unused(given: Namespace, why: str) -> None:
    """Raise InputError for a flag that only applies to a model's samples.

    why: the end of the message.
    """
    changed = (name for name, usual in _OF_SAMPLES.items() if given[name] != usual)
    if unused := [*settings_of(given), *changed]:
        raise InputError(f"--{unused[0]} is {why}")


def _of_model(given: Namespace, ranks: "Ranks") -> "Found":
    from tokencritic.evaluation.image_sets import Reconstructions, open_images
    from tokencritic.evaluation.report import settings_text
    from tokencritic.evaluation.samples import Refinement

    pipe = load_model(given)
    if given.reconstructions:
        _check_unused(given, "for samples; --reconstructions measures the tokenizer alone")
        size, num = pipe.tokenizer.image_size, given.num or given.reference_num
        originals = open_images(reference_of(given), num, given.split, (size, size), pipe.tokenizer.channels)
        images = Reconstructions(pipe, originals, given.batch_size)
        found = model_meter(given, ranks, pipe, len(images))([images], "reconstructions")
        return {"value": found}, [f"{len(images)} reconstructions by the tokenizer alone"]
    given.num = 10_000 if given.num is None else given.num
    changes: dict[str, Any] = settings_of(given)
    refinement = None
    if given.refine is not None:
        refined_with = pipe.sampling.for_refinement(**parse_settings("--refine_settings", given.refine_settings))
        refinement = Refinement(given.refine, refined_with)
        changes = {"sampler": "confidence", **changes}  # by default the baseline is refined
    settings = pipe.settings(**changes)
    sets, meter = sets_and_meter(given, ranks, pipe, [settings])
    if ranks.first:
        note_untuned(given, pipe, settings)
    plain = sets.of(settings)
    how = f"{given.num} images, {settings_text(plain[0].facts['settings'])}"
    if refinement is None:
        found = {"value": meter(plain, "samples")}
        return found, [f"{how}, {_spent(found['value'])}"]
    refined = sets.of(settings, refinement)
    found = {"before": meter(plain, "samples"), "after": meter(refined, "refined")}
    again = f"after: {refinement.ratio:g} refined, {settings_text(refined[0].facts['refinement']['settings'])}"
    return found, [f"{how}, {_spent(found['before'])}", f"{again}, {_spent(found['after'])} in all"]


def _spent(found: "Evaluation") -> str:
    facts = found.facts
    return f"{facts['nfe']} NFE, cost {facts['cost']:.2f}, {1000 * facts['seconds_per_image']:.1f} ms/image"


def _of_images(given: Namespace, ranks: "Ranks") -> "Found":
    from tokencritic.evaluation.image_sets import open_images

    if given.reconstructions:
        raise InputError(f"--reconstructions is for models; {given.model} is images")
    _check_unused(given, f"for models; {given.model} is images")
    images = open_images(given.model, given.num)
    # Three channels for all images, so that one grey image does not make the reference grey.
    meter = make_meter(given, ranks, len(images), images.image_size, 3, None)
    return {"value": meter([images], "images")}, [f"{len(images)} images of {given.model}"]
