import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from tokencritic.data.source import ArraySource, open_class_folders
from tokencritic.data.transforms import ImageBatches, Preprocess
from tokencritic.errors import InputError
from tokencritic.models.classifier import Classifier, ClassifierConfig
from tokencritic.training.image_tasks import ClassifierObjective, ClassifierTask, shifted

ROWS = torch.tensor([5, 39, 0, 33, 7, 8])


def make_source(count=40):
    """Bright on the side that the label names."""
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 60, (count, 8, 8), np.uint8), rng.integers(0, 2, count)
    for image, label in zip(images, labels, strict=True):
        image[:, 4 * label : 4 * label + 4] += 150
    return ArraySource(images, labels, ("left", "right"), "npz", "train", "nowhere")


def make_task(objective=None, flip=False, num_classes=2):
    torch.manual_seed(0)
    images = ImageBatches(make_source(), Preprocess(8, 1, flip=flip), seed=3)
    model = Classifier(ClassifierConfig(image_size=8, num_classes=num_classes, width=8, blocks=1))
    return ClassifierTask(model, images, objective or ClassifierObjective(), seed=3)


def test_the_loss_is_the_cross_entropy_of_the_rows_asked_for():
    task, source = make_task(ClassifierObjective(label_smoothing=0.2)), make_source()
    loss = task.loss(task.model, ROWS, step=7)
    images = torch.tensor(source.images[ROWS]).permute(0, 3, 1, 2) / 255
    labels = torch.tensor(source.labels[ROWS])
    expected = F.cross_entropy(task.model(images), labels, reduction="none", label_smoothing=0.2)
    assert loss.values.allclose(expected)
    assert loss.numbers["accuracy"].equal(task.model(images).argmax(1) == labels)


@pytest.mark.parametrize("objective", [ClassifierObjective(), ClassifierObjective(shift=2)])
def test_two_halves_of_a_batch_have_the_losses_of_the_whole(objective):
    task = make_task(objective, flip=True)
    whole = task.loss(task.model, ROWS, step=2).values
    for start in (0, 1):
        assert task.loss(task.model, ROWS[start::2], step=2).values.allclose(whole[start::2], atol=1e-6)
    assert not task.loss(task.model, ROWS, step=3).values.allclose(whole, atol=1e-4)  # augmented


def test_a_classifier_learns_and_is_validated_without_chance():
    task, rows = make_task(ClassifierObjective(label_smoothing=0.0, shift=1)), torch.arange(40)
    optimizer = torch.optim.AdamW(task.model.parameters(), 3e-3)
    for step in range(25):
        task.loss(task.model, rows, step).values.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    numbers = task.validate(task.model.eval(), rows)
    assert numbers["accuracy"] == 1
    flipping = ClassifierTask(task.model, make_task(flip=True).images, task.objective)
    assert flipping.validate(task.model, rows) == numbers
    assert task.pictures(task.model) == {}
    assert task.state_dict() == {}


def test_images_are_moved_by_up_to_so_many_pixels_and_black_comes_in():
    image = torch.arange(1.0, 26).view(1, 1, 5, 5)
    moved = shifted(image.expand(500, -1, -1, -1), torch.arange(500) * 7919, 2)
    padded = F.pad(image[0, 0], (2, 2, 2, 2))
    places = {(y, x): padded[y : y + 5, x : x + 5] for y in range(5) for x in range(5)}
    found = [[place for place, part in places.items() if part.equal(picture[0])] for picture in moved]
    assert all(len(place) == 1 for place in found)
    assert {place[0] for place in found} == places.keys()


def test_facts_are_json_and_name_the_images():
    facts = make_task().facts()
    assert json.loads(json.dumps(facts))["class_names"] == ["left", "right"]
    assert facts["source"]["content_sha256"]
    other = make_task(flip=True).facts()
    assert [key for key in facts if facts[key] != other[key]] == ["preprocess"]


def test_a_corrupt_file_is_replaced_by_the_next_whatever_the_batch(tmp_path):
    for index in range(4):
        (tmp_path / f"class{index % 2}").mkdir(exist_ok=True)
        Image.new("L", (8, 8), 60 * index).save(tmp_path / f"class{index % 2}/{index}.png")
    (tmp_path / "class0/2.png").write_bytes(b"no image")
    source = open_class_folders(tmp_path, "train", max_corrupt=1)  # 0, 2 of class 0, then 1, 3 of class 1
    images = ImageBatches(source, Preprocess(8, 1))
    pixels, labels = images.labelled(torch.tensor([0, 1, 3]), 0)
    assert pixels[:, 0, 0, 0].mul(255).round().tolist() == [0, 60, 180]
    assert labels.tolist() == [0, 1, 1]
    alone, label = images.labelled(torch.tensor([1]), 0)
    assert alone[0].equal(pixels[1])
    assert label.item() == 1


def test_a_source_has_colours_if_one_of_its_images_has(tmp_path):
    assert make_source().channels == 1
    (tmp_path / "only").mkdir()
    Image.new("L", (8, 8)).save(tmp_path / "only/a.png")
    assert open_class_folders(tmp_path, "train", 0).channels == 1
    Image.new("RGB", (8, 8)).save(tmp_path / "only/b.png")
    assert open_class_folders(tmp_path, "train", 0).channels == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_task(num_classes=3), "the classifier's num_classes is 3; the data set has 2 classes"),
        (lambda: make_task(ClassifierObjective(shift=8)), "shift is 8; expected less than the image size of 8 pixels"),
        (lambda: ClassifierObjective(shift=-1), "shift is -1"),
        (lambda: ClassifierObjective(label_smoothing=-0.1), "label_smoothing is -0.1"),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
