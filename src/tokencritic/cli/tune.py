"""`token-critic tune`: tune the settings of a sampler for a model."""

import dataclasses
from pathlib import Path

from jsonargparse import Namespace

from tokencritic.cli.arguments import (
    add_model,
    add_settings,
    check_positive,
    check_settings_given,
    load_model,
    make_parser,
    parse,
    settings_of,
)
from tokencritic.cli.factories import is_factory
from tokencritic.cli.measuring import add_meter, check_measuring, joined_ranks, model_meter
from tokencritic.cli.outputs import check_folder
from tokencritic.errors import InputError
from tokencritic.pretrained import place_of

_FIRST = 1000  # images of each trial in the first round, unless the features have as many dimensions


def main(arguments: list[str]) -> None:
    given = _parse(arguments)

    from tokencritic.evaluation.cache import cache_folder
    from tokencritic.evaluation.report import settings_text
    from tokencritic.evaluation.samples import SampleSets, check_settings
    from tokencritic.evaluation.search import Trial, rounds, trial_settings, tune, write_tuning
    from tokencritic.files import read_json, write_json

    def describe(trial: Trial) -> str:
        return settings_text(trial.settings.in_effect(pipe.critic is not None))

    def tell(trials: list[Trial]) -> None:
        count, fid = trials[0].last
        if ranks.first:
            print(f"{len(trials)} trials of {-count} images: FID {fid:.3f} by {describe(trials[0])}", flush=True)

    rounds(given.budget, _FIRST if given.first is None else given.first)  # checked before the reference is opened
    with joined_ranks(given) as ranks:
        pipe, folder = load_model(given), Path(given.out or given.model)
        sampler = "critic" if pipe.critic is not None or given.critic is None else "inline"
        start = pipe.settings(**{"sampler": sampler, **settings_of(given)})
        check_settings(pipe, trial_settings(pipe, start, given.nfe, 1, given.seed)[0])
        meter = model_meter(given, ranks, pipe, given.first)
        first = max(_FIRST, 1 + meter.features.dimension) if given.first is None else given.first
        sets = SampleSets(pipe, cache_folder(given.cache), first, given.seed, batch_size=given.batch_size)
        trials, facts = tune(sets, meter, start, given.nfe, given.budget, first=first, seed=given.seed, on_round=tell)
        if not ranks.first:
            return
        best, images = trials[0], sum(max(trial.fids) for trial in trials)
        print(f"{images} images in {len(best.fids)} rounds; best: {describe(best)}")
        print(f"wrote {write_tuning(folder, pipe, given.nfe, trials, facts)}")
        if not given.keep_defaults:
            file = folder / "pipeline.json"
            write_json(file, read_json(file) | {"sampling": dataclasses.asdict(best.settings)})
            print(f"these are now the defaults of {folder}")


def _parse(arguments: list[str]) -> Namespace:
    parser = make_parser(
        "tune",
        "Tune temperature, selection noise, critic window and guidance for the lowest FID, and make the best settings "
        "the model's defaults. The first trial uses the model's settings, changed by flags. Rerun the command "
        "to resume.",
        "MODEL [OPTIONS]",
    )
    group = parser.add_argument_group("model and trials")
    add_model(group, help="a model folder, or module:factory, a function of yours that makes a model")
    text = "folder for the trials of a module:factory or with --critic, which change no defaults"
    group.add_argument("--out", metavar="FOLDER", help=text)
    group.add_argument("--nfe", type=int, default=36, metavar="N", help="network evaluations per image")
    group.add_argument("--budget", type=int, default=50_000, metavar="N", help="total number of images")
    text = f"images of each trial in the first round; by default {_FIRST} or, if more, one per dimension"
    group.add_argument("--first", type=int, metavar="N", help=text)
    group.add_argument("--seed", type=int, default=0, help="seed of the trials and images, separate from evaluation")
    group.add_argument("--keep_defaults", action="store_true", help="do not change the model's defaults")
    add_meter(parser)
    add_settings(parser)
    given = parse(parser, arguments)
    if is_factory(given.model) or given.critic is not None:
        if not given.out:
            raise InputError("--out is missing; give a folder for the trials of a module:factory, or with --critic")
        given.keep_defaults = True
    elif given.out:
        raise InputError(f"--out is {given.out}; the trials of a model folder are written to it; omit the flag")
    elif place_of(given.model) != given.model or not (Path(given.model) / "pipeline.json").is_file():
        raise InputError(f"{given.model} is not a model folder; expected one that can be written to")
    if given.steps is not None:
        raise InputError(f"--steps is {given.steps}; --nfe fixes the steps of every trial")
    check_folder("--out" if given.out else "MODEL", given.out or given.model)
    check_positive(given, "nfe", "budget", "first")
    check_measuring(given)
    check_settings_given(given)
    return given
