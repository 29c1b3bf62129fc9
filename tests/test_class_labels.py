"""Classes by number and by name, and models that have one class or none."""

import pytest
import torch

from tokencritic.class_labels import Classes
from tokencritic.errors import InputError

PETS = Classes(3, ("cat", "Dog", "cat"))


def test_labels_are_numbers_or_names():
    assert PETS.labels("dog").tolist() == [1]
    assert PETS.labels(["cat", 2, "1"]).tolist() == [0, 2, 1]
    assert PETS.labels(range(3)).dtype == torch.int64
    assert PETS.names_of(torch.tensor([2, 1])) == ["cat (2)", "Dog"]
    assert Classes(2).names_of([1, 0]) == ["class 1", "class 0"]


def test_classes_take_turns():
    assert PETS.in_turn(5).tolist() == [0, 1, 2, 0, 1]
    assert PETS.in_turn(3, ["dog", 0]).tolist() == [1, 0, 1]
    assert Classes(1).in_turn(2).tolist() == [0, 0]


def test_one_class_need_not_be_named():
    assert Classes(1).labels(None).tolist() == [0]
    assert Classes(1).labels(0).tolist() == [0]


def test_a_model_without_classes_has_no_labels():
    none = Classes(0)
    assert none.labels(None) is None
    assert none.in_turn(5) is None
    assert none.names_of(None) == []
    assert none.names_of([0, 0]) == ["", ""]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PETS.labels(None), "class_labels is missing; the model has 3 classes, give one or several"),
        (lambda: PETS.labels([], "--classes"), "--classes is empty"),
        (lambda: PETS.labels(3), "class_labels holds 3; expected 0 to 2"),
        (
            lambda: Classes(0).labels([1], "--classes"),
            r"--classes is \[1\], and the model has no classes; leave it out",
        ),
        (lambda: Classes(0).in_turn(2, "cat"), "class_labels is 'cat', and the model has no classes"),
        (lambda: Classes(2, ("a",)), "class_names has 1 entries for 2 classes"),
        (lambda: Classes(0, ("a",)), "class_names has 1 entries for 0 classes"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
