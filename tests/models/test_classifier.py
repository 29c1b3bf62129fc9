import pytest
import torch

from tokencritic.errors import InputError
from tokencritic.models.classifier import Classifier, ClassifierConfig


def test_it_learns_which_corner_is_bright():
    torch.manual_seed(0)
    classifier = Classifier(ClassifierConfig(image_size=12, num_classes=4, width=8, blocks=1))
    labels = torch.arange(64) % 4
    images = 0.2 * torch.rand(64, 1, 12, 12)
    for image, label in zip(images, labels.tolist(), strict=True):
        image[0, 6 * (label // 2) :, 6 * (label % 2) :][:6, :6] += 0.7
    optimizer = torch.optim.AdamW(classifier.parameters(), lr=3e-3)
    for _ in range(60):
        loss = torch.nn.functional.cross_entropy(classifier(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (classifier(images).argmax(1) == labels).all()


def test_features_carry_the_logits_and_sizes_are_checked():
    classifier = Classifier(ClassifierConfig(image_size=28, channels=3, width=16))
    images = torch.rand(2, 3, 28, 28)
    features = classifier.features(images)
    assert features.shape == (2, 64)
    assert classifier.head(features).equal(classifier(images))
    with pytest.raises(InputError, match=r"images has shape \(2, 1, 28, 28\); expected \(images, 3, 28, 28\)"):
        classifier(images[:, :1])
    for change, message in (
        ({"width": 12}, "width is 12"),
        ({"image_size": 4}, "image_size is 4"),
        ({"blocks": 0}, "blocks is 0"),
    ):
        with pytest.raises(InputError, match=message):
            ClassifierConfig(**change)
