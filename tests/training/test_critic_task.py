import json

import pytest
import torch
from training.tiny_tokens import SIZES, make_arrays, make_tokenizer

from tokencritic.adapters import as_generator
from tokencritic.errors import InputError
from tokencritic.models.critic import Critic, CriticConfig
from tokencritic.models.generator import Generator
from tokencritic.models.transformer import TransformerConfig
from tokencritic.randomness import example_seeds
from tokencritic.training.losses import critic_auc, critic_loss
from tokencritic.training.token_tasks import CriticObjective, CriticTask

ROWS = torch.tensor([5, 60, 0, 33, 7, 8])


def make_generator(**changes):
    torch.manual_seed(1)
    return Generator(TransformerConfig(**{**SIZES, "layers": 3, **changes}))


def make_task(objective=None, tokenizer=None, generator=None, **changes):
    torch.manual_seed(0)
    model = Critic(CriticConfig(**{**SIZES, "dropout": 0.0, **changes}))
    generator = generator or make_generator()
    return CriticTask(model, generator, make_arrays(), objective or CriticObjective(), tokenizer, seed=3)


class Foreign:
    """A foreign generator: a callable with the sizes of the contract."""

    num_tokens, codebook_size, mask_id = 4, 16, 99

    def __call__(self, masked_tokens, labels):
        assert bool((masked_tokens == 99).any())
        return torch.nn.functional.one_hot(labels, 16).float()[:, None].expand(-1, 4, -1) * 50


def test_the_loss_is_the_losses_own_on_the_rows_asked_for():
    objective = CriticObjective(target="changed", temperature=0.5)
    task = make_task(objective)
    loss = task.loss(task.model, ROWS, step=7)
    arrays = make_arrays()
    tokens, labels = (torch.tensor(values[ROWS].astype(int)) for values in (arrays.tokens, arrays.labels))
    seeds = example_seeds(3, 7, ROWS)
    options = {"target": "changed", "temperature": 0.5}
    expected = critic_loss(task.model, make_generator(), tokens, labels, seeds, **options)
    assert loss.values.equal(expected.values)
    assert loss.numbers["accuracy"].equal((expected.logits > 0) == expected.originals)


def test_two_halves_of_a_batch_have_the_losses_of_the_whole():
    task = make_task()
    whole = task.loss(task.model, ROWS, step=2).values
    for start in (0, 1):
        assert task.loss(task.model, ROWS[start::2], step=2).values.allclose(whole[start::2], atol=1e-6)


def test_the_generator_is_frozen():
    generator = make_generator(dropout=0.5).train()
    before = generator.fingerprint()
    task = make_task(generator=generator)
    one, other = (task.loss(task.model, ROWS, step=1).values for _ in range(2))
    assert one.equal(other)  # no dropout in it
    one.mean().backward()
    assert not generator.training
    assert all(not p.requires_grad and p.grad is None for p in generator.parameters())
    assert all(p.grad is not None for p in task.model.parameters())
    assert generator.fingerprint() == before
    assert task.state_dict() == {}


def test_validation_gives_accuracy_and_auc_by_mask_ratio():
    sizes, rows = {**SIZES, "num_tokens": 8}, torch.arange(64)
    generator = Generator(TransformerConfig(**sizes)).eval()
    task = CriticTask(Critic(CriticConfig(**sizes)).eval(), generator, make_arrays(repeat=2), CriticObjective(), seed=3)
    numbers = task.validate(task.model, rows)
    assert numbers == task.validate(task.model, rows)
    tokens, labels, seeds = task.batch(rows, None)
    assert seeds.equal(example_seeds(3, 2**62, rows))  # a step that no run reaches
    found = critic_loss(task.model, generator, tokens, labels, seeds)
    assert numbers["loss"] == pytest.approx(found.values.mean().item())
    assert numbers["auc"] == pytest.approx(critic_auc(found.logits, found.originals).item())
    hidden = found.mask.sum(1)
    bins = {"00_25": (1, 2), "25_50": (3, 4), "50_75": (5, 6), "75_100": (7, 8)}  # of eight tokens
    for edges, (low, high) in bins.items():
        chosen = (hidden >= low) & (hidden <= high)
        expected = critic_auc(found.logits[chosen], found.originals[chosen]).item()
        assert numbers[f"auc_ratio_{edges}"] == pytest.approx(expected)
        hits = (found.logits[chosen] > 0) == found.originals[chosen]
        assert numbers[f"accuracy_ratio_{edges}"] == pytest.approx(hits.float().mean().item())
    names = ("accuracy", "auc")
    each = [critic_auc(*pair).item() for pair in zip(found.logits, found.originals, strict=True)]
    assert numbers["auc_within_image"] == pytest.approx(torch.tensor(each).nanmean().item())
    assert numbers.keys() == {
        "loss",
        "auc_within_image",
        *names,
        *(f"{name}_ratio_{edges}" for name in names for edges in bins),
    }


def test_what_cannot_be_told_is_left_out():
    task = make_task()
    one = task.validate(task.model.eval(), ROWS[:1])
    assert all(value == value for value in one.values())
    assert len([name for name in one if name.startswith("auc_ratio")]) <= 1


def test_a_foreign_generator_trains_a_critic():
    task = make_task(generator=Foreign(), tokenizer=make_tokenizer())
    optimizer = torch.optim.AdamW(task.model.parameters(), 1e-2)
    for step in range(60):
        task.loss(task.model, torch.arange(64), step).values.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    # It fills in the label as a code, which is right in the first place alone.
    assert task.validate(task.model.eval(), torch.arange(64))["auc"] > 0.8
    assert task.facts()["generator"] == "Foreign"


def test_samples_by_the_critic_are_shown():
    assert make_task().pictures(make_task().model) == {}
    task = make_task(tokenizer=make_tokenizer())
    first, again = (task.pictures(task.model.eval())["samples"] for _ in range(2))
    assert first.tobytes() == again.tobytes()
    torch.nn.init.normal_(task.model.head.weight, std=10)
    assert task.pictures(task.model)["samples"].tobytes() != first.tobytes()


def test_the_critic_starts_as_the_generators_trunk():
    generator = make_generator(heads=4, null_class=True)
    sizes = {**SIZES, "heads": 4, "null_class": True}
    config = CriticConfig(**sizes, dropout=0.25, reads_mask=True, ratio_conditioned=True)
    own = {name: vars(config)[name] for name in ("dropout", "reads_mask", "ratio_conditioned")}
    critic = generator.start_critic(config.layers, **own)
    assert (critic.config.layers, critic.config.heads, critic.config.null_class) == (2, 4, True)
    assert (critic.config.dropout, critic.config.reads_mask, critic.config.ratio_conditioned) == (0.25, True, True)
    trunk = generator.trunk.state_dict()
    assert all(value.equal(trunk[name]) for name, value in critic.trunk.state_dict().items())
    assert as_generator(Foreign()).start_critic(2) is None


def test_facts_tell_generators_apart_and_are_json():
    facts = make_task().facts()
    assert json.loads(json.dumps(facts)) == facts
    other = make_task(generator=Generator(TransformerConfig(**SIZES))).facts()
    assert [key for key in facts if facts[key] != other[key]] == ["generator"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_task(generator=lambda tokens, labels: None), "the generator has no attribute num_tokens"),
        (lambda: make_task(generator=make_generator(codebook_size=9)), "the generator's codebook_size is 9"),
        (lambda: make_task(num_tokens=9), "the critic's num_tokens is 9; expected 4"),
        (lambda: make_task(tokenizer=make_tokenizer(seed=1)), "which made the tokens"),
        (lambda: CriticObjective(temperature=-1), "temperature is -1"),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
