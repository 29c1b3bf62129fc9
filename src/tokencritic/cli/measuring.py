"""Flags and set-up of evaluation, shared by `evaluate`, `sweep`, `tune` and `compare`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, Namespace

from tokencritic.cli.arguments import add_machine, add_networks, check_device, check_positive, say_device
from tokencritic.cli.outputs import check_folder
from tokencritic.errors import InputError, check_at_most

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from tokencritic.distribution import Ranks
    from tokencritic.evaluation.evaluate import Meter
    from tokencritic.evaluation.samples import SampleSets
    from tokencritic.pipeline import TokenCriticPipeline
    from tokencritic.sampling.settings import SamplingSettings

METRICS = "fid,kid,is,precision,recall,accuracy"


def add_measuring(parser: ArgumentParser, num: int | None, most: str = "") -> None:
    """Add the flags of images, seeds and metrics.

    num: the default of --num.
    most: the default in words.
    """
    group = parser.add_argument_group("images and seeds")
    group.add_argument("--num", type=int, default=num, metavar="N", help=f"images in each seed set{most}")
    group.add_argument("--seed", type=int, default=0, help="image i has seed + i")
    group.add_argument("--seed_sets", type=int, default=1, metavar="N", help="several give mean and standard deviation")
    group.add_argument("--metrics", metavar="NAMES", help=f"separated by commas: {METRICS}; by default all possible")
    group.add_argument("--resamples", type=int, default=20, metavar="N", help="bootstrap resamples of one set; 0: none")
    add_meter(parser)


def add_meter(parser: ArgumentParser) -> None:
    """Add the flags of reference, features, cache and device."""
    group = parser.add_argument_group("reference and features")
    text = "a data set; an .npz of images, mu and sigma, or both; or a model that includes images, by default MODEL"
    group.add_argument("--reference", metavar="DATA", help=text)
    group.add_argument("--split", choices=["train", "test"], default="train", help="split of the reference data set")
    group.add_argument(
        "--reference_num", type=int, metavar="N", help="N reference images, evenly spaced; by default all"
    )
    text = "the FID Inception, or the model's classifier, which is the default for a reference included in a model"
    group.add_argument("--features", choices=["inception", "classifier"], help=text)
    group.add_argument("--inception", metavar="FILE", help="weights of the FID Inception; downloaded by default")
    group.add_argument("--few_samples", action="store_true", help="allow FID of fewer images than feature dimensions")
    group.add_argument("--cache", metavar="FOLDER", help="by default TOKENCRITIC_CACHE, else ~/.cache/token-critic")
    add_machine(group)
    add_networks(group)


def joined_ranks(given: Namespace) -> "AbstractContextManager[Ranks]":
    """Return a context that joins the processes of torchrun, on `given.device`."""
    from tokencritic.distribution import joined

    return joined(check_device(given.device))


def check_measuring(given: Namespace) -> None:
    """Check the flags of evaluation, before a model is read."""
    from tokencritic.evaluation.cache import cache_folder

    check_positive(given, *(name for name in ("num", "seed_sets", "reference_num", "batch_size") if name in given))
    if not 0 <= given.seed < 2**62:
        raise InputError(f"--seed is {given.seed}; expected an integer from 0 to 2^62 - 1")
    check_at_most(**{"--resamples": (resamples := given.get("resamples", 0))})
    if resamples < 0 or resamples == 1:
        raise InputError(f"--resamples is {resamples}; expected 0 for no standard deviation, or at least 2")
    names = metrics_of(given)
    if names is not None and not (names and set(METRICS.split(",")) >= {*names}):
        unknown = next((f"holds {name!r}" for name in names if name not in METRICS.split(",")), "is empty")
        raise InputError(f"--metrics {unknown}; choose from {METRICS}")
    check_folder("--cache", cache_folder(given.cache))


def metrics_of(given: Namespace) -> tuple[str, ...] | None:
    """Return the names in --metrics; None for all possible ones."""
    text = given.get("metrics")
    return None if text is None else tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))


def sets_and_meter(
    given: Namespace, ranks: "Ranks", pipe: "TokenCriticPipeline", settings: "Iterable[SamplingSettings]"
) -> "tuple[SampleSets, Meter]":
    """Return the sample sets and the meter.

    settings: checked first, because evaluation may take hours.
    """
    from tokencritic.evaluation.cache import cache_folder
    from tokencritic.evaluation.samples import SampleSets, check_settings

    sets = SampleSets(pipe, cache_folder(given.cache), given.num, given.seed, given.seed_sets, given.batch_size)
    for one in settings:
        check_settings(pipe, one)
    return sets, model_meter(given, ranks, pipe, given.num)


def reference_of(given: Namespace) -> Path:
    """Return the place of the reference: --reference, or the images included in the model."""
    from tokencritic.evaluation.reference import PACKED
    from tokencritic.pretrained import place_of

    place = Path(place_of(given.reference or given.model))
    packed = place / PACKED
    if given.reference is None and not packed.is_file():
        raise InputError(f"--reference is missing, and {given.model} includes no {PACKED}; give a data set")
    return packed if packed.is_file() else place


def make_meter(
    given: Namespace, ranks: "Ranks", count: int | None, image_size: tuple[int, int], channels: int, classifier: Any
) -> "Meter":
    """Return the meter for `count` images, with an open reference.

    count: the number of images, None if unknown.
    image_size: (height, width) in pixels.
    classifier: the model's, or None. That of `given.classifier` takes its place.
    """
    from tokencritic.evaluation.cache import cache_folder
    from tokencritic.evaluation.evaluate import Meter, check_plan
    from tokencritic.evaluation.features import ClassifierFeatures, InceptionFeatures
    from tokencritic.evaluation.reference import PACKED, find_reference, measure_reference
    from tokencritic.pipeline import TokenCriticPipeline

    if given.get("classifier"):
        classifier = TokenCriticPipeline.from_pretrained(given.classifier).to(check_device(given.device)).classifier
    cache, place = cache_folder(given.cache), reference_of(given)
    metrics, resamples = metrics_of(given), given.get("resamples", 0)
    chosen = given.features or ("classifier" if place.name == PACKED else "inception")
    if chosen == "classifier" and classifier is None:
        raise InputError("--features is classifier, but the model has none; choose inception")
    # The reference is opened first: a mistyped path must not wait for Inception, which is downloaded.
    reference = find_reference(place, image_size, channels, given.split, given.reference_num)
    if chosen == "inception":
        features = InceptionFeatures.load(given.inception, device=check_device(given.device))
    else:
        features = ClassifierFeatures(classifier)
    # Checked first, because the features of the reference may take an hour.
    features.check_size(*image_size)
    check_plan(features, metrics, resamples, given.few_samples, count)
    if ranks.first:
        say_device(given)
    measured = measure_reference(reference, features, cache, ranks)
    return Meter(features, measured, cache, metrics, resamples, given.few_samples, ranks)


def model_meter(given: Namespace, ranks: "Ranks", pipe: "TokenCriticPipeline", count: int | None) -> "Meter":
    """Return the meter for images of a model.

    count: the number of images, None if unknown.
    """
    size, channels = pipe.tokenizer.image_size, pipe.tokenizer.channels
    return make_meter(given, ranks, count, (size, size), channels, pipe.classifier)


def command_line(command: str, arguments: list[str]) -> str:
    """Return the command line as it can be typed in a shell."""
    return shlex.join(["token-critic", command, *arguments])
