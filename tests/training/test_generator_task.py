import json

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel
from training.process_group import process_group
from training.tiny_tokens import NAMES, SIZES, make_arrays, make_tokenizer

from tokencritic.errors import InputError
from tokencritic.models.generator import Generator
from tokencritic.models.transformer import TransformerConfig
from tokencritic.randomness import example_seeds
from tokencritic.training.losses import generator_loss
from tokencritic.training.token_tasks import GeneratorObjective, GeneratorTask

ROWS = torch.tensor([5, 60, 0, 33, 7, 8])


def make_task(objective=None, tokenizer=None, seed=3, **changes):
    torch.manual_seed(0)
    model = Generator(TransformerConfig(**{**SIZES, "dropout": 0.0, **changes}))
    return GeneratorTask(model, make_arrays(), objective or GeneratorObjective(), tokenizer, seed)


def tokens_of(task, rows):
    arrays = task.arrays
    return torch.tensor(arrays.tokens[rows].astype(int)), torch.tensor(arrays.labels[rows].astype(int))


def test_the_loss_is_the_losses_own_on_the_rows_asked_for():
    objective = GeneratorObjective(label_smoothing=0.2, drop_label=0.5)
    task = make_task(objective, null_class=True)
    loss = task.loss(task.model, ROWS, step=7)
    expected = generator_loss(
        task.model,
        *tokens_of(task, ROWS),
        example_seeds(3, 7, ROWS),
        label_smoothing=0.2,
        drop_label=0.5,
    )
    assert loss.values.equal(expected.values)
    assert loss.values.requires_grad
    assert not task.loss(task.model, ROWS, step=8).values.equal(expected.values)


def test_two_halves_of_a_batch_have_the_losses_of_the_whole():
    task = make_task()
    whole = task.loss(task.model, ROWS, step=2).values
    halves = [task.loss(task.model, ROWS[start::2], step=2).values for start in (0, 1)]
    for start, half in enumerate(halves):
        assert half.allclose(whole[start::2], atol=1e-6)


def test_validation_uses_the_same_masks_each_time_and_shows_every_label():
    task = make_task(GeneratorObjective(label_smoothing=0.0, drop_label=0.9), null_class=True)
    numbers = task.validate(task.model.eval(), torch.arange(64))
    assert numbers == task.validate(task.model, torch.arange(64))
    assert numbers.keys() == {"loss", "accuracy"}
    # An untrained generator predicts at random.
    assert numbers["loss"] == pytest.approx(2.77, abs=0.2)  # ln 16
    assert numbers["accuracy"] < 0.3
    labels_matter = make_task(GeneratorObjective(label_smoothing=0.0))
    optimizer = torch.optim.AdamW(labels_matter.model.parameters(), 1e-2)
    for step in range(40):
        labels_matter.loss(labels_matter.model, torch.arange(64), step).values.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    learned = labels_matter.validate(labels_matter.model.eval(), torch.arange(64))
    assert learned["accuracy"] > 0.7  # three of four tokens follow from the label
    assert learned["loss"] < 1.2


def test_validation_in_parts_is_validation_of_all(monkeypatch):
    task = make_task()
    whole = task.validate(task.model.eval(), torch.arange(64))
    monkeypatch.setattr("tokencritic.training.task.VALIDATION_BATCH", 10)
    assert task.validate(task.model, torch.arange(64)) == pytest.approx(whole, abs=1e-5)


def test_samples_are_shown_where_there_is_a_tokenizer_and_are_the_same_each_time():
    assert make_task().pictures(make_task().model) == {}
    task = make_task(tokenizer=make_tokenizer())
    first, again = (task.pictures(task.model)["samples"] for _ in range(2))
    assert first.tobytes() == again.tobytes()
    assert first.size == (10 * 66 - 2, 2 * 66 - 2)  # 2 rows of 10, each 8 x 8 shown at 64
    with process_group():
        wrapped = DistributedDataParallel(task.model)
        assert task.pictures(wrapped)["samples"].tobytes() == first.tobytes()


def test_facts_tell_runs_apart_and_are_json():
    facts = make_task().facts()
    assert json.loads(json.dumps(facts)) == facts
    assert facts["class_names"] == list(NAMES)
    assert facts["tokenizer_fingerprint"] == make_tokenizer().fingerprint()
    assert facts == make_task().facts()
    for other, name in (
        (make_task(width=32), "config"),
        (make_task(GeneratorObjective(label_smoothing=0.0)), "objective"),
        (make_task(seed=4), "seed"),
    ):
        assert [key for key in facts if facts[key] != other.facts()[key]] == [name]
    cropped = GeneratorTask(make_task().model, make_arrays(seed=5), GeneratorObjective(), None, 3).facts()
    assert [key for key in facts if facts[key] != cropped[key]] == ["tokens"]


def test_rows_of_several_passes_show_fewer_images():
    task = GeneratorTask(Generator(TransformerConfig(**SIZES)), make_arrays(passes=4), GeneratorObjective())
    assert (task.num_rows, task.num_images) == (64, 16)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_task(num_tokens=9), "the generator's num_tokens is 9; expected 4"),
        (lambda: make_task(num_classes=2), "the generator's num_classes is 2; expected 3"),
        (lambda: make_task(tokenizer=make_tokenizer(seed=1)), "which made the tokens"),
        (
            lambda: make_task(GeneratorObjective(drop_label=0.1)),
            "drop_label is 0.1; expected 0",
        ),
        (lambda: GeneratorObjective(label_smoothing=1.0), "label_smoothing is 1.0"),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_a_generator_without_classes_learns_without_labels():
    task = make_task(num_classes=0)
    task.loss(task.model, ROWS, 0).values.mean().backward()
    assert task.validate(task.model, ROWS)["loss"] > 0
