"""Features of a classifier: exact values for images in any form, and a name with its fingerprint."""

import numpy as np
import pytest
import torch

from tokencritic.errors import InputError
from tokencritic.evaluation.features import ClassifierFeatures
from tokencritic.models.classifier import Classifier, ClassifierConfig

IMAGES = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 1), np.uint8)


def make(seed=0, channels=1):
    torch.manual_seed(seed)
    return Classifier(ClassifierConfig(image_size=8, channels=channels, num_classes=3, width=8)).eval()


def test_features_and_probabilities_are_the_classifiers_own():
    classifier = make()
    found = ClassifierFeatures(classifier)(IMAGES)
    pixels = torch.from_numpy(IMAGES).permute(0, 3, 1, 2).float() / 255
    with torch.no_grad():
        torch.testing.assert_close(found["features"], classifier.features(pixels), rtol=0, atol=1e-5)
        torch.testing.assert_close(found["probabilities"], classifier(pixels).softmax(1), rtol=0, atol=1e-5)
    assert found.keys() == {"features", "probabilities"}


def test_the_form_of_the_images_and_the_batch_do_not_matter():
    features = ClassifierFeatures(make())
    features.batch_size = 2
    whole = ClassifierFeatures(make())(IMAGES)
    floats = torch.from_numpy(IMAGES).permute(0, 3, 1, 2).float() / 255
    torch.testing.assert_close(features(IMAGES)["features"], whole["features"])
    assert ClassifierFeatures(make())(floats)["features"].equal(whole["features"])
    assert ClassifierFeatures(make())(np.repeat(IMAGES, 3, axis=3))["features"].equal(whole["features"])  # ADM's files
    empty = features(IMAGES[:0])
    assert empty["features"].shape == (0, 32)
    assert empty["probabilities"].shape == (0, 3)


def test_a_classifier_of_colour_takes_grey_images():
    features = ClassifierFeatures(make(channels=3))
    assert features(IMAGES)["features"].equal(features(np.repeat(IMAGES, 3, axis=3))["features"])


def test_it_names_itself():
    one, other = ClassifierFeatures(make(0)), ClassifierFeatures(make(1))
    assert one.name == f"classifier:{make(0).fingerprint()[:12]}"
    assert one.dimension == 32
    assert one.facts != other.facts


def test_dropout_like_modes_are_put_back():
    classifier = make().train()
    ClassifierFeatures(classifier)(IMAGES)
    assert classifier.training


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ClassifierFeatures(torch.nn.Identity()), "classifier is a Identity"),
        (lambda: ClassifierFeatures(make())(IMAGES[:, :6]), "images are 6 x 8; the classifier expects 8 x 8"),
        (lambda: ClassifierFeatures(make())(np.zeros((1, 8, 8, 2), np.uint8)), "images are"),
        (lambda: ClassifierFeatures(make())(torch.full((1, 1, 8, 8), torch.nan)), "images hold values from nan"),
        (lambda: ClassifierFeatures(make())(np.eye(8, dtype=np.uint8)[None, ..., None] * [[1, 0, 0]]), "images are"),
        (lambda: ClassifierFeatures(make())(IMAGES * np.array([1, 0, 0], np.uint8)), "images are in colour"),
    ],
)
def test_what_it_cannot_take_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
