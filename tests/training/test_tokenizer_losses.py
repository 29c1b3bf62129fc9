"""The terms of the VQGAN objective, on cases whose answer is known."""

import math

import pytest
import torch
import torch.nn.functional as F

from tokencritic.errors import InputError
from tokencritic.training.image_tasks import PatchDiscriminator, affinity_entropy, gradient_penalty


def test_entropy_is_lowest_for_sure_choices_spread_evenly() -> None:
    sure_and_even = torch.tensor([[0.0, 100.0], [100.0, 0.0]])
    assert affinity_entropy(sure_and_even).mean().item() == pytest.approx(-math.log(2))
    all_on_one = torch.tensor([[0.0, 100.0], [0.0, 100.0]])
    assert affinity_entropy(all_on_one).mean().item() == pytest.approx(0, abs=1e-6)
    undecided = torch.zeros(3, 4)
    assert affinity_entropy(undecided).mean().item() == pytest.approx(0, abs=1e-6)
    # Shares 3/4 and 1/4 at temperature 2, and the mirror of it: 0.5623 nats each, ln 2 together.
    distances = torch.tensor([[0.0, 2 * math.log(3)], [2 * math.log(3), 0.0]])
    own = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert affinity_entropy(distances, temperature=2.0).tolist() == pytest.approx([own - math.log(2)] * 2, abs=1e-6)


def test_entropy_has_a_finite_gradient_where_codes_are_never_near() -> None:
    distances = torch.tensor([[0.0, 1e4], [0.0, 1e4]], requires_grad=True)
    affinity_entropy(distances).sum().backward()
    assert distances.grad is not None
    assert distances.grad.isfinite().all()


def test_the_penalty_of_a_linear_discriminator_is_its_squared_weight() -> None:
    weight = torch.tensor([1.0, -2.0, 3.0, 0.5], requires_grad=True)
    images = torch.rand(3, 1, 2, 2)
    penalty = gradient_penalty(lambda x: x.flatten(1) @ weight, images)
    assert penalty.tolist() == pytest.approx([1 + 4 + 9 + 0.25] * 3)
    penalty.mean().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == pytest.approx([2.0, -4.0, 6.0, 1.0])


def test_the_penalty_is_of_each_image_alone_and_works_without_gradients_around() -> None:
    images = torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1, 1)
    with torch.no_grad():
        penalty = gradient_penalty(lambda x: x.flatten(1) ** 2, images)
    assert penalty.tolist() == [4.0, 16.0, 36.0]
    assert not images.requires_grad


def test_the_discriminator_gives_one_logit_per_patch() -> None:
    torch.manual_seed(0)
    discriminator = PatchDiscriminator(3, filters=8, levels=2)
    images = torch.rand(2, 3, 16, 16)
    logits = discriminator(images)
    assert logits.shape == (2, 4, 4)
    changed = images.clone()
    changed[:, :, :, -1] = 0  # far from the first patch
    assert torch.equal(discriminator(changed)[:, :, 0], logits[:, :, 0])
    assert not torch.equal(discriminator(changed)[:, :, 3], logits[:, :, 3])
    torch.testing.assert_close(discriminator(images[1:])[0], logits[1])


def logistic_loss(discriminator: PatchDiscriminator, real: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
    return F.softplus(-discriminator(real)).mean() + F.softplus(discriminator(fake)).mean()


def test_the_discriminator_learns_to_tell_apart() -> None:
    torch.manual_seed(0)
    discriminator = PatchDiscriminator(1, filters=8, levels=1)
    optimizer = torch.optim.Adam(discriminator.parameters(), 1e-2)
    real, fake = torch.full((4, 1, 8, 8), 0.8), torch.full((4, 1, 8, 8), 0.2)
    first = logistic_loss(discriminator, real, fake).item()
    for _ in range(40):
        loss = logistic_loss(discriminator, real, fake)
        loss = loss + 0.1 * gradient_penalty(discriminator, real).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert logistic_loss(discriminator, real, fake).item() < 0.9 * first


def test_impossible_discriminators_are_refused() -> None:
    with pytest.raises(InputError, match="levels is 0"):
        PatchDiscriminator(3, levels=0)
