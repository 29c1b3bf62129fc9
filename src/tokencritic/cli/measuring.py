"""What `evaluate`, `sweep`, `tune` and `compare` share: the flags that say what images are measured with."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, Namespace

from tokencritic.cli.arguments import check_device
from tokencritic.errors import InputError

if TYPE_CHECKING:
    from tokencritic.distribution import Ranks
    from tokencritic.evaluation.evaluate import Meter
    from tokencritic.evaluation.features import Features
    from tokencritic.evaluation.samples import SampleSets
    from tokencritic.pipeline import TokenCriticPipeline

METRICS = "fid,sfid,kid,is,precision,recall,accuracy"


def add_meter(parser: ArgumentParser) -> None:
    """The reference, the features and the cache."""
    parser.add_argument(
        "--reference",
        help="a data set; or an .npz: ADM's reference, mu and sigma, or images; or a model that brings such images, as "
        "the measured one does if this is not given",
    )
    parser.add_argument("--split", choices=["train", "test"], default="train", help="of the reference data set")
    parser.add_argument("--reference_num", type=int, help="only so many of its images, evenly spaced")
    parser.add_argument(
        "--features",
        choices=["inception", "classifier"],
        help="the FID Inception, or the data set's own classifier, which costs a thousandth; the classifier if the "
        "reference is what a model brings, else the Inception",
    )
    parser.add_argument(
        "--inception", help="its weights; if not given, an installed package's, the cache's, or downloaded"
    )
    parser.add_argument("--resize", choices=["tf1", "clean"], default="tf1", help="how images come to Inception's size")
    parser.add_argument("--few_samples", type=bool, default=False, help="allow FID of fewer images than dimensions")
    parser.add_argument(
        "--cache", help="folder of samples and features; else TOKENCRITIC_CACHE, else ~/.cache/token-critic"
    )
    parser.add_argument("--device", default="cpu")


def add_samples(parser: ArgumentParser, num: int | None) -> None:
    """How many images of a model, and which. num: the default, None if the verb has one of its own."""
    parser.add_argument("--num", type=int, default=num, help="images in each set")
    parser.add_argument("--seed", type=int, default=0, help="image i has seed + i")
    parser.add_argument(
        "--seed_sets", type=int, default=1, help="sets of images; of several, mean and standard deviation are given"
    )
    parser.add_argument(
        "--classes", choices=["balanced", "random"], default="balanced", help="take turns, or by chance"
    )
    parser.add_argument("--batch_size", type=int, default=64)


def add_metrics(parser: ArgumentParser) -> None:
    """Which metrics, and how their standard deviation is found."""
    parser.add_argument("--metrics", help=f"with commas between them: {METRICS}; those that are possible if not given")
    text = "bootstrap resamples for the standard deviation of one set; 0: none"
    parser.add_argument("--resamples", type=int, default=20, help=text)


def cache_of(given: Namespace) -> Path:
    from tokencritic.evaluation.cache import default_cache

    return Path(given.cache).expanduser() if given.cache else default_cache()


def load_model(given: Namespace) -> "TokenCriticPipeline":
    from tokencritic.pipeline import TokenCriticPipeline

    return TokenCriticPipeline.from_pretrained(given.model).to(check_device(given.device))


def sample_sets(given: Namespace, pipe: "TokenCriticPipeline") -> "SampleSets":
    """Which images are made, as the flags of `add_samples` say."""
    from tokencritic.evaluation.samples import SampleSets

    names = ("num", "seed", "seed_sets", "classes", "batch_size")
    return SampleSets(pipe, cache_of(given), **{name: given[name] for name in names})


def reference_of(given: Namespace) -> Path:
    """What images are measured against: as given, or as the model brings it."""
    from tokencritic.evaluation.reference import PACKED
    from tokencritic.pretrained import place_of

    place = Path(place_of(given.reference or given.model))
    brought = place / PACKED
    if given.reference is None and not brought.is_file():
        raise InputError(f"--reference is missing, and {given.model} brings no {PACKED}; give a data set")
    return brought if brought.is_file() else place


def chosen_features(given: Namespace) -> str:
    """As asked for; else the classifier's, if the reference is what a model brings."""
    from tokencritic.evaluation.reference import PACKED

    return given.features or ("classifier" if reference_of(given).name == PACKED else "inception")


def make_features(given: Namespace, classifier: Any) -> "Features":
    """classifier: that of the model, or None."""
    from tokencritic.evaluation.features import ClassifierFeatures, InceptionFeatures

    if chosen_features(given) == "classifier":
        if classifier is None:
            raise InputError("--features is classifier, but the model has none; choose inception")
        return ClassifierFeatures(classifier)
    # The spatial features cost nothing beside the others, and sFID may be asked for later.
    return InceptionFeatures.load(given.inception, resize=given.resize, spatial=True, device=given.device)


def make_meter(
    given: Namespace, ranks: "Ranks", count: int, image_size: tuple[int, int], channels: int, classifier: Any = None
) -> "Meter":
    """The meter for so many images of this size, the reference opened."""
    from tokencritic.evaluation.evaluate import Meter, check_count, check_metrics, choose_metrics
    from tokencritic.evaluation.reference import ReferenceImages, open_reference

    metrics: Any = _split(given.metrics) if given.get("metrics") is not None else None
    resamples = given.get("resamples", 0)
    check_metrics(metrics, resamples)
    features = make_features(given, classifier)
    # Before the reference is opened, which may take an hour.
    widths = features.widths(image_size)
    if not given.few_samples:
        check_count("images", count, widths, metrics)
    choose_metrics(metrics, features.name, widths, True, None)
    wanted = ReferenceImages(image_size, channels, given.split, given.reference_num)
    reference = open_reference(reference_of(given), features, wanted, cache_of(given), ranks)
    return Meter(features, reference, cache_of(given), metrics, resamples, given.few_samples, ranks)


def model_meter(given: Namespace, ranks: "Ranks", pipe: "TokenCriticPipeline", count: int) -> "Meter":
    """The meter for so many images of a model."""
    size, channels = pipe.tokenizer.image_size, pipe.tokenizer.channels
    return make_meter(given, ranks, count, (size, size), channels, pipe.classifier)


def command_line(verb: str, arguments: list[str]) -> str:
    """As it can be typed again."""
    return shlex.join(["token-critic", verb, *arguments])


def _split(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
