"""Evaluation in a toy world with a known distribution: metrics, cache and errors."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from evaluation import toy

from tokencritic import TokenCriticPipeline
from tokencritic.data.sources import open_source
from tokencritic.errors import InputError
from tokencritic.evaluation.cache import Chunks, chunk_ranges
from tokencritic.evaluation.evaluate import Meter
from tokencritic.evaluation.features import Features
from tokencritic.evaluation.image_sets import SourceImages
from tokencritic.evaluation.metrics import MetricValue, fid, fit_gaussian, inception_score, kid, precision_recall
from tokencritic.evaluation.reference import open_reference
from tokencritic.evaluation.report import number
from tokencritic.evaluation.samples import SEEDS_PER_SET, Refinement, SampleSets
from tokencritic.sampling.settings import SamplingSettings

SIZE = (6, 6)
RANDOM = SamplingSettings("random-order", steps=toy.STEPS)  # one token per step gives exact samples
ALL = ("fid", "kid", "is", "precision", "recall", "accuracy")
SOME = ("fid", "is", "accuracy")


@pytest.fixture(scope="module")
def world():
    return toy.make_world()


@pytest.fixture(scope="module")
def truth(tmp_path_factory, world):
    return toy.write_truth(tmp_path_factory.mktemp("truth") / "truth.npz", world, 1000)


@pytest.fixture
def pipe(world):
    return toy.make_pipe(world)


@pytest.fixture
def make_meter(world, truth, tmp_path):
    def make(features=None, reference=truth, **options):
        features = features or toy.Pairs(world)
        cache = tmp_path / "cache"
        opened = open_reference(reference, features, cache, SIZE, 1)
        return Meter(features, opened, cache, **options)

    return make


def test_the_numbers_are_those_of_the_metrics_on_the_images_themselves(world, pipe, make_meter, tmp_path):
    settings = SamplingSettings("random-order", steps=1)  # bad images: a precision below 1
    sets = SampleSets(pipe, tmp_path / "cache", 300, seed=5)
    found = make_meter(metrics=ALL)(sets.of(settings)).metrics
    labels = torch.arange(300) % 2
    images = pipe.images(pipe.sample_tokens(labels, 5, settings), "pt")
    fake, real = toy.Pairs(world)(images), toy.Pairs(world)(toy.Painter().decode(toy.true_tokens(world, 1000)[0]))
    assert found["fid"].value == pytest.approx(
        fid(fit_gaussian([real["features"]]), fit_gaussian([fake["features"]])), rel=1e-9
    )
    assert found["kid"] == kid(real["features"], fake["features"], subset_size=150)
    assert found["is"].value == pytest.approx(inception_score(fake["probabilities"]), rel=1e-12)
    hits = precision_recall(real["features"], fake["features"])
    assert (found["precision"].value, found["recall"].value) == (hits.fake.mean(), hits.real.mean())
    assert found["accuracy"].value == (fake["probabilities"].argmax(1) == labels).double().mean()
    assert all(found[name].std > 0 for name in found.keys() - {"recall"})
    assert math.isnan(found["recall"].std)  # recall has no bootstrap
    share = found["accuracy"].value
    assert found["accuracy"].std == pytest.approx(math.sqrt(share * (1 - share) / 300))


class Bright(Features):
    """Class probabilities alone: a black image is surely of one class, a white one of the other."""

    name, fingerprint, dimension = "bright", "bright 1", 1
    gives_probabilities = True

    def extract(self, images):
        white = images.float().mean((1, 2)) / 255 if images.dtype == torch.uint8 else images.float().mean((2, 3))
        return {"features": white[:, :1], "probabilities": torch.cat([white[:, :1], 1 - white[:, :1]], 1)}


def test_the_inception_score_does_not_depend_on_images_being_sorted_by_class(tmp_path):
    """Without a shuffle, two splits of 5,000 images would have one class each and a score of 1."""
    black, white = np.zeros((5000, 1, 1, 1), np.uint8), np.full((5000, 1, 1, 1), 255, np.uint8)
    for name, order in {"sorted": slice(None), "mixed": np.arange(10_000).reshape(2, 5000).T.flatten()}.items():
        file = tmp_path / f"{name}.npz"
        np.savez(file, images=np.concatenate([black, white])[order], labels=np.zeros(10_000, np.int64))
        reference = open_reference(file, Bright(), tmp_path, (1, 1), 1)
        meter = Meter(Bright(), reference, tmp_path, ("is",), resamples=0)
        assert meter([SourceImages(open_source(file))]).metrics["is"].value == pytest.approx(2, abs=0.01)


def test_features_without_probabilities_are_measured_by_what_they_have(tmp_path):
    class Means(Features):
        name, fingerprint, dimension = "means", "means 1", 1

        def extract(self, images):
            return {"features": images.float().mean((1, 2))[:, :1]}

    np.savez(tmp_path / "some.npz", images=np.random.default_rng(0).integers(0, 256, (60, 2, 2, 1), np.uint8))
    meter = Meter(Means(), open_reference(tmp_path / "some.npz", Means(), tmp_path, (2, 2), 1), tmp_path, resamples=0)
    assert list(meter([SourceImages(open_source(tmp_path / "some.npz"))]).metrics) == [
        "fid",
        "kid",
        "precision",
        "recall",
    ]


def test_a_refinement_that_rejects_is_kept_under_its_classifier_too(pipe, tmp_path):
    pipe.classifier = pipe.critic  # any part with a fingerprint
    sets = SampleSets(pipe, tmp_path / "cache", 4)
    for candidates, parts in ((1, {"generator", "critic", "tokenizer"}), (2, set(pipe.parts))):
        refinement = Refinement(0.6, SamplingSettings("critic", steps=3, candidates=candidates))
        assert sets.of(RANDOM, refinement)[0].facts["models"].keys() == parts


def test_more_steps_of_an_exact_generator_come_closer_to_the_truth(world, pipe, make_meter, tmp_path):
    sets, meter = SampleSets(pipe, tmp_path / "cache", 1000), make_meter(metrics=("fid",))
    one, two, nine = (
        meter(sets.of(SamplingSettings("random-order", steps=steps))).metrics["fid"] for steps in (1, 2, toy.STEPS)
    )
    assert one.value > two.value + 3 * two.std
    assert two.value > nine.value + 3 * nine.std
    truth = SourceImages(open_source(toy.write_truth(tmp_path / "other.npz", world, 1000, seed=1)))
    assert nine.value < 2 * meter([truth]).metrics["fid"].value  # as close as exact samples


def test_refinement_by_the_critic_brings_bad_images_closer_to_the_truth(pipe, make_meter, tmp_path):
    """The paper's experiment: one step samples all tokens independently, and refinement resamples the worst."""
    sets, meter = SampleSets(pipe, tmp_path / "cache", 800), make_meter(metrics=("fid",))
    bad = SamplingSettings("confidence", steps=1)
    refinement = Refinement(0.6, SamplingSettings("critic", steps=6))
    before, after = meter(sets.of(bad)), meter(sets.of(bad, refinement))
    assert after.metrics["fid"].value < 0.4 * before.metrics["fid"].value
    assert sets.of(bad, refinement)[0].nfe > sets.of(bad)[0].nfe == 1


def test_several_seed_sets_give_their_mean_and_deviation(pipe, make_meter, tmp_path):
    meter = make_meter(metrics=("fid", "is"))
    together = meter(SampleSets(pipe, tmp_path / "cache", 300, seed=9, seed_sets=3).of(RANDOM))
    alone = [
        meter(SampleSets(pipe, tmp_path / "other", 300, seed=9 + number * SEEDS_PER_SET).of(RANDOM))
        for number in range(3)
    ]
    for name in ("fid", "is"):
        values = [one.metrics[name].value for one in alone]
        assert len(set(values)) == 3
        assert together.metrics[name].value == pytest.approx(np.mean(values), rel=1e-12)
        assert together.metrics[name].std == pytest.approx(np.std(values, ddof=1), rel=1e-12)
        assert together.metrics[name].std_over == "3 seed sets"


def test_the_bootstrap_deviation_is_that_of_new_samples(pipe, make_meter, tmp_path):
    """Twelve sets give the standard deviation to a fifth. At FID's floor the bootstrap would overestimate it."""
    meter, settings = make_meter(metrics=("fid", "is"), resamples=40), SamplingSettings("random-order", steps=1)
    once = meter(SampleSets(pipe, tmp_path / "cache", 400).of(settings)).metrics
    often = meter(SampleSets(pipe, tmp_path / "cache", 400, seed_sets=12).of(settings)).metrics
    for name in ("fid", "is"):
        assert 0.5 < once[name].std / often[name].std < 2


def test_a_further_metric_is_free_and_more_images_cost_only_those(world, pipe, make_meter, tmp_path):
    features = toy.Pairs(world)
    meter = make_meter(features, metrics=("fid",))
    sets = SampleSets(pipe, tmp_path / "cache", 300)
    first = meter(sets.of(RANDOM))
    world.__dict__["asked"] = features.seen = 0
    second = make_meter(features, metrics=(*SOME, "precision"))(sets.of(RANDOM))
    assert world.__dict__["asked"] == features.seen == 0
    assert second.metrics["fid"] == first.metrics["fid"]
    more = meter(sets.of(RANDOM, num=700))
    assert features.seen == 400
    fresh = meter(SampleSets(pipe, tmp_path / "fresh", 700).of(RANDOM))
    assert more.metrics["fid"].value == pytest.approx(fresh.metrics["fid"].value, rel=1e-9)


def test_probabilities_of_another_head_are_not_taken_from_the_cache(world, pipe, make_meter, tmp_path):
    sets = SampleSets(pipe, tmp_path / "cache", 300)

    def score(head, doubt):
        class Headed(toy.Pairs):
            head_fingerprint = head

            def extract(self, images):
                found = super().extract(images)
                return found | {"probabilities": (1 - doubt) * found["probabilities"] + doubt / toy.CLASSES}

        found = make_meter(Headed(world), metrics=("fid", "is"))(sets.of(RANDOM))
        assert found.facts["features"]["head"] == head
        return found.metrics

    sure, unsure = score("a", 0), score("b", 0.5)
    assert sure["fid"] == unsure["fid"]
    assert sure["is"].value > unsure["is"].value + 0.1
    assert score("a", 0) == sure


def test_an_interrupted_evaluation_goes_on_to_the_same_numbers(world, pipe, make_meter, tmp_path):
    whole = make_meter(metrics=SOME)(SampleSets(pipe, tmp_path / "whole", 700).of(RANDOM))
    broken = toy.Pairs(world)
    meter = make_meter(broken, metrics=SOME)
    cut = Meter(broken, meter.reference, tmp_path / "cut", SOME)
    sets = SampleSets(pipe, tmp_path / "cut", 700)
    broken.seen, broken.fail_after = 0, 300
    with pytest.raises(KeyboardInterrupt):
        cut(sets.of(RANDOM))
    assert broken.seen == 256  # one chunk is done
    broken.seen, broken.fail_after = 0, None
    assert cut(sets.of(RANDOM)).metrics == whole.metrics
    assert broken.seen == 700 - 256


@pytest.mark.parametrize(
    ("damage", "kind"), [("flipped", "tokens"), ("flipped", "features"), ("cut", "features"), ("empty", "tokens")]
)
def test_a_damaged_chunk_is_made_again(world, pipe, make_meter, tmp_path, damage, kind):
    features = toy.Pairs(world)
    meter, sets = make_meter(features, metrics=SOME), SampleSets(pipe, tmp_path / "samples", 600)
    meter = Meter(features, meter.reference, tmp_path / "samples", SOME)
    before = meter(sets.of(RANDOM)).metrics
    file = next((tmp_path / "samples" / kind).glob("*/000001.npz"))
    content = file.read_bytes()
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    file.write_bytes({"flipped": flipped, "cut": content[:middle], "empty": b""}[damage])
    if kind == "tokens":  # tokens are only read where features are missing
        next((tmp_path / "samples/features").glob("*/000001.npz")).unlink()
    features.seen = 0
    assert meter(sets.of(RANDOM)).metrics == before
    assert features.seen == 256


def test_no_changed_byte_of_a_chunk_goes_unnoticed(tmp_path):
    chunks = Chunks.open(tmp_path, "kind", {"a": 1}, 3)
    rows = {"tokens": np.arange(12, dtype=np.uint16).reshape(3, 4), "seconds": np.ones(3, np.float32)}
    chunks.complete(range(3), lambda _: rows)
    file = chunks.folder / "000000.npz"
    content = file.read_bytes()
    with np.load(file) as opened:  # NumPy can read it
        assert np.array_equal(opened["tokens"], rows["tokens"])
    for place in range(len(content)):
        file.write_bytes(content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :])
        assert chunks.read(range(3)) == {}
    file.write_bytes(content)
    assert {name: values.tolist() for name, values in chunks.read(range(3)).items()} == {
        n: v.tolist() for n, v in rows.items()
    }


def test_what_decides_the_images_decides_where_they_are_kept(pipe, world, tmp_path):
    def place(pipe=pipe, settings=RANDOM, **options):
        return SampleSets(pipe, tmp_path, **{"num": 4, **options}).of(settings)[0]._chunks.folder

    other = toy.make_pipe(toy.make_world(error=0.1))
    places = [
        place(),
        place(other),
        place(seed=1),
        place(settings=SamplingSettings("random-order", steps=8)),
        place(settings=SamplingSettings("critic", steps=toy.STEPS)),
        place(settings=SamplingSettings("random-order", steps=toy.STEPS, candidates=2, reject_by="critic")),
    ]
    assert len(set(places)) == len(places)
    same = SamplingSettings("random-order", steps=toy.STEPS, reject_by="critic", temperature=(1.0, 1.0))
    assert place(num=9, settings=same) == places[0]  # neither the number of images nor settings without effect count
    critic = SamplingSettings("critic", steps=9)
    named = SamplingSettings("critic", steps=9, selection_noise=0.2)
    assert place(settings=critic) == place(settings=named)  # 0.2 is the critic's default
    assert "pairs" not in (places[0] / "facts.json").read_text()


def test_candidates_are_drawn_once_for_all_who_choose_among_them(tmp_path):
    world = toy.make_world()
    pipe = toy.make_pipe(world)
    sets = SampleSets(pipe, tmp_path, 300, seed=5)
    settings = [dataclasses.replace(RANDOM, candidates=count, reject_by="critic") for count in (3, 2, 1)]
    found, asked = [], []
    for one in settings:
        before = world.__dict__.get("asked", 0)
        [samples] = sets.of(one)
        found.append(np.concatenate([samples.arrays(rows)["tokens"] for rows in chunk_ranges(300)]))
        asked.append(world.__dict__.get("asked", 0) - before)
        assert samples.seconds > sum(source.seconds for source in samples._sources) >= 0
    assert asked[0] > 0
    assert asked[1:] == [0, 0]
    labels = torch.arange(300) % toy.CLASSES
    for one, tokens in zip(settings, found, strict=True):
        assert np.array_equal(tokens, pipe.sample_tokens(labels, 5, one).numpy())


def test_the_facts_tell_all_and_are_json(pipe, make_meter, tmp_path):
    found = make_meter(metrics=("fid", "is"))(SampleSets(pipe, tmp_path, 64, seed=2).of(RANDOM))
    facts = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert facts["metrics"]["fid"]["std_over"] == "20 bootstrap resamples"
    assert facts["images"]["settings"]["sampler"] == "random-order"
    assert facts["images"]["models"].keys() == {"generator", "tokenizer"}  # the critic is not used
    assert (facts["images"]["seed"], facts["images"]["num"]) == (2, 64)
    assert facts["features"]["fingerprint"] == "pairs 1"
    assert facts["reference"]["num"] == 1000
    assert len(facts["reference"]["content_sha256"]) == 64
    assert facts["nfe"] == 9
    assert facts["cost"] == 9  # of the generator alone
    assert facts["seconds_per_image"] > 0
    assert facts["versions"].keys() == {"token-critic", "torch", "numpy", "python"}


def test_statistics_of_the_reference_are_kept_and_made_again_if_damaged(world, truth, tmp_path):
    features = toy.Pairs(world)
    first = open_reference(truth, features, tmp_path, SIZE, 1)
    assert features.seen == 1000
    file = next((tmp_path / "statistics").glob("*/*.npz"))
    kept = file.read_bytes()
    file.write_bytes(kept[:100])
    again = open_reference(truth, features, tmp_path, SIZE, 1)
    assert features.seen == 1000
    assert again.gaussian.covariance.equal(first.gaussian.covariance)
    assert file.read_bytes() == kept
    some = open_reference(truth, features, tmp_path, SIZE, 1, num=500)
    assert some.gaussian.count == 500


def test_a_file_of_statistics_gives_fid_and_refuses_what_needs_images(pipe, make_meter, tmp_path, monkeypatch):
    sets = SampleSets(pipe, tmp_path / "cache", 300)
    meter = make_meter(metrics=("fid",))
    gaussian = meter.reference.gaussian
    np.savez(tmp_path / "statistics.npz", mu=gaussian.mean.numpy(), sigma=gaussian.covariance.numpy())
    monkeypatch.setattr(toy.Pairs, "name", "inception-v3")  # such files are Inception's
    alone = make_meter(reference=tmp_path / "statistics.npz")
    assert alone(sets.of(RANDOM)).metrics["fid"].value == meter(sets.of(RANDOM)).metrics["fid"].value
    assert alone(sets.of(RANDOM)).metrics.keys() == {"fid", "is"}
    with pytest.raises(InputError, match="metrics holds kid, which needs reference images"):
        make_meter(reference=tmp_path / "statistics.npz", metrics=("kid",))(sets.of(RANDOM))


def test_a_reference_that_does_not_fit_is_refused(world, truth, tmp_path):
    features = toy.Pairs(world)
    np.savez(tmp_path / "foreign.npz", mu=np.zeros(17), sigma=np.eye(17))
    with pytest.raises(InputError, match=r"foreign.npz has statistics of inception-v3; .* with pairs"):
        open_reference(tmp_path / "foreign.npz", features, tmp_path, SIZE, 1)
    other = toy.Pairs(world)
    other.name, other.dimension = "inception-v3", 2048
    with pytest.raises(InputError, match="has statistics of 17 dimensions; inception-v3 has 2048"):
        open_reference(tmp_path / "foreign.npz", other, tmp_path, SIZE, 1)
    np.savez(tmp_path / "pickled.npz", mu=np.array([{}], dtype=object), sigma=np.eye(2))
    with pytest.raises(InputError, match=r"pickled.npz is not a whole .npz without pickles"):
        open_reference(tmp_path / "pickled.npz", other, tmp_path, SIZE, 1)
    np.savez(tmp_path / "large.npz", arr_0=np.zeros((4, 8, 8, 3), np.uint8))
    with pytest.raises(InputError, match=r"large.npz has images of 8 x 8 pixels; expected 6 x 6"):
        open_reference(tmp_path / "large.npz", features, tmp_path, SIZE, 1)
    with pytest.raises(InputError, match=r"large.npz is used as a whole"):
        open_reference(tmp_path / "large.npz", features, tmp_path, (8, 8), 3, num=2)
    with pytest.raises(InputError, match="num is 3000; the data set has 1000"):
        open_reference(truth, features, tmp_path, SIZE, 1, num=3000)


def test_adm_reference_files_give_fid_from_their_statistics_and_neighbours_from_their_images(world, truth, tmp_path):
    features = toy.Pairs(world)
    whole = open_reference(truth, features, tmp_path, SIZE, 1)
    features.name, features.dimension = "inception-v3", 17  # such files are Inception's
    with np.load(truth) as opened:
        some = opened["images"][:500].repeat(3, axis=3)
    gaussian = whole.gaussian
    np.savez(tmp_path / "adm.npz", arr_0=some, mu=gaussian.mean.numpy(), sigma=gaussian.covariance.numpy())
    opened = open_reference(tmp_path / "adm.npz", features, tmp_path, SIZE, 1)
    assert opened.gaussian.mean.equal(gaussian.mean)
    assert len(opened.features) == 500
    assert opened.features.whole("features").equal(whole.features.whole("features")[:500])


def test_bad_input_is_named(world, pipe, make_meter, tmp_path):
    sets = SampleSets(pipe, tmp_path, 10)
    with pytest.raises(InputError, match="10 images are too few for FID with features of 17 dimensions"):
        make_meter()(sets.of(RANDOM))
    few = toy.write_truth(tmp_path / "few.npz", world, 17)
    with pytest.raises(InputError, match="17 images of the reference are too few for FID"):  # before any is sampled
        make_meter(reference=few)
    assert make_meter(reference=few, metrics=("recall",))(sets.of(RANDOM)).metrics.keys() == {"recall"}
    allowed = make_meter(metrics=("fid",), few_samples=True)(sets.of(RANDOM))
    assert math.isfinite(allowed.metrics["fid"].value)
    with pytest.raises(InputError, match="metrics holds 'fidd'; choose from fid"):
        make_meter(metrics=("fidd",))
    with pytest.raises(InputError, match="metrics is empty"):
        make_meter(metrics=())
    with pytest.raises(InputError, match="resamples is 1"):
        make_meter(resamples=1)
    for options, message in (
        ({"num": 0}, "num is 0"),
        ({"seed_sets": 0}, "seed_sets is 0"),
        ({"seed": -1}, "seed is -1"),
    ):
        with pytest.raises(InputError, match=message):
            SampleSets(pipe, tmp_path, **{"num": 4, **options})
    with pytest.raises(InputError, match=r"refinement ratio is 1.5"):
        Refinement(1.5, RANDOM)
    nameless = TokenCriticPipeline(toy.Painter(), world, lambda tokens, labels: tokens)
    with pytest.raises(InputError, match="has no fingerprint, so its results cannot be cached"):
        SampleSets(nameless, tmp_path, 4).of(RANDOM)


def test_images_that_are_not_numbers_are_refused(world, make_meter, tmp_path):
    pipe = toy.make_pipe(world)
    pipe.tokenizer.decode = lambda tokens: toy.Painter.decode(pipe.tokenizer, tokens) * torch.nan
    with pytest.raises(InputError, match="the tokenizer decodes to values that are not finite"):
        make_meter()(SampleSets(pipe, tmp_path, 64).of(RANDOM))


@pytest.mark.parametrize(
    ("value", "std", "shown"),
    [(23.456, 0.5, "23.46 ± 0.50"), (0.1042, 0.0119, "0.104 ± 0.012"), (0.1, math.nan, "0.100")],
)
def test_a_small_fid_is_shown_as_closely_as_a_large_one(value, std, shown):
    assert number("fid", MetricValue(value, std)) == shown
