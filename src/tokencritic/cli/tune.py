"""`token-critic tune`: the best settings of a sampler for a model."""

from pathlib import Path

from jsonargparse import Namespace

from tokencritic.cli.arguments import add_settings, check_device, make_parser, parse, settings_of
from tokencritic.cli.measuring import add_meter, cache_of, chosen_features, load_model, model_meter
from tokencritic.errors import InputError
from tokencritic.pretrained import place_of


def main(arguments: list[str]) -> None:
    given = _parse(arguments)

    from tokencritic.distribution import joined
    from tokencritic.evaluation.report import settings_text
    from tokencritic.evaluation.samples import SampleSets, effective
    from tokencritic.evaluation.search import Trial, draw_settings, rounds, tune, write_defaults, write_evidence

    with joined(check_device(given.device)) as ranks:
        pipe, folder = load_model(given), Path(given.model)
        dimension = (
            pipe.classifier.feature_width if chosen_features(given) == "classifier" and pipe.classifier else 2048
        )
        first = given.first or max(1000, dimension + 1)
        plan = rounds(given.budget, first)
        sets = SampleSets(pipe, cache_of(given), first, given.seed, batch_size=given.batch_size)
        start = pipe.settings(**{"sampler": "critic", **settings_of(given)})
        sets.check(draw_settings(pipe, start, given.passes, 1, given.seed)[0])
        meter = model_meter(given, ranks, pipe, first)

        def tell(trials: list[Trial]) -> None:
            count, fid = trials[0].last
            best = settings_text(effective(trials[0].settings, pipe))
            print(f"{len(trials)} trials of {-count} images: FID {fid:.3f} by {best}", flush=True)

        search = {"first": first, "seed": given.seed, "on_round": tell if ranks.first else None}
        found = tune(sets, meter, start, given.passes, given.budget, **search)
        if not ranks.first:
            return
        print(f"{found.images} images in {len(plan)} rounds; best: {settings_text(effective(found.best, pipe))}")
        if given.dry_run:
            return
        print(f"wrote {write_evidence(folder, pipe, given.passes, found)}")
        if given.set_defaults:
            write_defaults(folder, found.best)
            print(f"these are the defaults of {folder} now")


def _parse(arguments: list[str]) -> Namespace:
    parser = make_parser(
        "tune",
        "Search temperature, selection noise, when the critic (or chance) chooses, and guidance for the lowest FID, and make "
        "the best the model's defaults. The first trial is what the model has, or the settings that are given here. "
        "Cut off, the same command goes on.",
    )
    parser.add_argument("model", help="a model folder")
    add_meter(parser)
    add_settings(parser)
    parser.add_argument("--passes", type=int, default=36, help="network passes per image, which fix the steps")
    parser.add_argument("--budget", type=int, default=50_000, help="images to make in all")
    parser.add_argument(
        "--first",
        type=int,
        help="images of each trial in the first round; 1000 or, if those are more, one per dimension",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the search and of its images, which no evaluation uses")
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument(
        "--set_defaults", type=bool, default=True, help="false: keep the evidence, but not as the defaults"
    )
    parser.add_argument("--dry_run", type=bool, default=False, help="write nothing")
    given = parse(parser, arguments)
    inside = place_of(given.model) != given.model
    if not given.dry_run and (inside or not (Path(given.model) / "pipeline.json").is_file()):
        raise InputError(f"{given.model} is no model folder that can be written to; --dry_run true only searches")
    if given.steps is not None:
        raise InputError(f"--steps is {given.steps}; --passes fixes the steps of every trial")
    for name in ("passes", "budget"):
        if given[name] < 1:
            raise InputError(f"--{name} is {given[name]}; it must be at least 1")
    return given
