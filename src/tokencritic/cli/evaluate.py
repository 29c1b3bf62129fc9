"""`token-critic evaluate`: how good images are, of a model, a folder or a sample file."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import Namespace

from tokencritic.cli.arguments import add_settings, check_device, make_parser, parse, settings_of
from tokencritic.cli.measuring import (
    add_meter,
    add_metrics,
    add_samples,
    command_line,
    load_model,
    make_meter,
    model_meter,
    reference_of,
    sample_sets,
)
from tokencritic.errors import InputError

if TYPE_CHECKING:
    from tokencritic.distribution import Ranks
    from tokencritic.evaluation.evaluate import Evaluation
    from tokencritic.pipeline import TokenCriticPipeline

_REFINEMENT = ("sampler", "steps", "temperature", "selection_noise", "noise_on", "critic_until")


def main(arguments: list[str]) -> None:
    parser = make_parser(
        "evaluate", "Measure images against a data set. Cut off, the same command goes on; torchrun spreads the work."
    )
    parser.add_argument("model", metavar="MODEL|FOLDER|FILE.npz", help="a model, a folder of images, or ADM samples")
    add_meter(parser)
    add_metrics(parser)
    add_samples(parser, num=None)
    add_settings(parser)
    parser.add_argument(
        "--refine", type=float, metavar="RATIO", help="measure before and after refinement, as the paper does"
    )
    add_settings(parser, _REFINEMENT, prefix="refine_")
    parser.add_argument(
        "--reconstructions", type=bool, default=False, help="the reference's images, encoded and decoded by the model"
    )
    parser.add_argument("--classifier", help="a model folder whose classifier gives features, where MODEL is images")
    parser.add_argument("--labels", help="an .npy of the images' labels, where MODEL is images that do not bring them")
    parser.add_argument("--out", help="a JSON file to write, with all settings and hashes")
    given = parse(parser, arguments)
    if given.out and Path(given.out).is_dir():
        raise InputError(f"--out is {given.out}, which is a folder; expected a JSON file to write")
    if given.refine is None and (unused := settings_of(given, "refine_")):
        raise InputError(
            f"--refine_{next(iter(unused))} is given without --refine; say with --refine how much to refine"
        )

    from tokencritic.distribution import joined
    from tokencritic.evaluation.report import evaluation_table, explain, write_json

    with joined(check_device(given.device)) as ranks:
        named, notes = (_of_model if _is_model(given.model) else _of_images)(given, ranks)
        if not ranks.first:
            return
        facts = next(iter(named.values())).facts
        print("\n".join([*notes, explain(facts), evaluation_table(named)]))
        if given.out:
            results = {name: found.as_json() for name, found in named.items()}
            write_json(given.out, {"command": command_line("evaluate", arguments), "results": results})
            print(f"wrote {given.out}")


def _is_model(path: str) -> bool:
    """Images are a file, or a folder that is there and holds no model; anything else may be a model on the Hub."""
    from tokencritic.pretrained import place_of

    place = Path(place_of(path))
    return (place / "pipeline.json").is_file() or not (place.exists() or place.suffix == ".npz")


def _of_model(given: Namespace, ranks: "Ranks") -> tuple[dict[str, "Evaluation"], list[str]]:
    from tokencritic.evaluation.report import settings_text
    from tokencritic.evaluation.samples import Refinement

    for name in ("classifier", "labels"):
        if given[name]:
            raise InputError(f"--{name} is for folders and files of images; {given.model} is a model")
    pipe = load_model(given)
    if given.reconstructions:
        return _of_reconstructions(given, ranks, pipe)
    given.num = 10_000 if given.num is None else given.num
    changes: dict[str, Any] = settings_of(given)
    refinement = None
    if given.refine is not None:
        refinement = Refinement(given.refine, pipe.refinement_settings(**settings_of(given, "refine_")))
        changes = {"sampler": "confidence", **changes}  # what is refined is the baseline, unless told otherwise
    settings = pipe.settings(**changes)
    sets = sample_sets(given, pipe)
    sets.check(settings)
    plain = sets.of(settings)
    refined = [] if refinement is None else sets.of(settings, refinement)
    meter = model_meter(given, ranks, pipe, given.num)
    notes = [f"{given.num} images, {settings_text(plain[0].facts['settings'])}, {plain[0].passes} passes per image"]
    named = {"value" if refinement is None else "before": meter(plain, "samples")}
    if refinement is not None:
        named["after"] = meter(refined, "refined")
        notes.append(
            f"after: {refinement.ratio:g} refined, {settings_text(refined[0].facts['refinement']['settings'])}, "
            f"{refined[0].passes} passes per image in all"
        )
    return named, notes


def _of_reconstructions(
    given: Namespace, ranks: "Ranks", pipe: "TokenCriticPipeline"
) -> tuple[dict[str, "Evaluation"], list[str]]:
    from tokencritic.evaluation.image_sets import Reconstructions
    from tokencritic.evaluation.reference import ReferenceImages

    size = pipe.tokenizer.image_size
    wanted = ReferenceImages((size, size), pipe.tokenizer.channels, given.split, given.num or given.reference_num)
    images = Reconstructions(pipe, wanted.open(reference_of(given)), given.batch_size)
    meter = model_meter(given, ranks, pipe, len(images))
    return {"value": meter([images], "reconstructions")}, [f"{len(images)} reconstructions by the tokenizer alone"]


def _of_images(given: Namespace, ranks: "Ranks") -> tuple[dict[str, "Evaluation"], list[str]]:
    from tokencritic.evaluation.image_sets import open_images

    usual = {"refine": None, "reconstructions": False, "seed": 0, "seed_sets": 1, "classes": "balanced"}
    if unused := [*settings_of(given), *(name for name, value in usual.items() if given[name] != value)]:
        raise InputError(f"--{unused[0]} is for models; {given.model} is images")
    images = open_images(given.model, given.labels, given.num)
    classifier = None
    if given.classifier:
        from tokencritic.pipeline import TokenCriticPipeline

        classifier = TokenCriticPipeline.from_pretrained(given.classifier).classifier
    # In colour, so that a grey image among coloured ones does not make a grey reference: it is measured as the others are.
    meter = make_meter(given, ranks, len(images), images.image_size, 3, classifier)
    return {"value": meter([images], "images")}, [f"{len(images)} images of {given.model}"]
