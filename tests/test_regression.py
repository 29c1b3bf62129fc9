"""Recorded tokens of the bundled model: the result of a seed does not change between versions.

`regression.npz` has the tokens of three images for each run, uint8 (3, 196). Another CPU may round differently, so one
token in a thousand may differ.
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from tokencritic import Given, TokenCriticPipeline
from tokencritic.sampling.settings import SamplingSettings

RECORDED = {
    name: torch.from_numpy(tokens) for name, tokens in np.load(Path(__file__).with_name("regression.npz")).items()
}
SETTINGS = {
    "critic_default": SamplingSettings("critic", 19, (1.094, 0.799), 3.405, "gumbel", (0.53, 0.0)),
    "critic_window": SamplingSettings("critic", 10, (1.1, 0.7), 0.5, critic_window=(0.8, 0.35)),
    "remask_b": SamplingSettings("random-remask", 12, (1.0, 0.8), critic_window=(0.6, 0.2)),
    "confidence_a": SamplingSettings("confidence", 8),
    "confidence_b": SamplingSettings("confidence", 18, (1.0, 0.77), 17.0),
    "random_a": SamplingSettings("random-order", 8),
    "halton_a": SamplingSettings("halton", 8),
    "reject_classifier": SamplingSettings("confidence", 6, candidates=3),
    "reject_critic": SamplingSettings("critic", 6, candidates=3, reject_by="critic"),
}


@pytest.fixture(scope="module")
def pipe():
    return TokenCriticPipeline.from_pretrained("fashion-mnist")


def assert_recorded(name, tokens):
    differing = int((tokens != RECORDED[name]).sum())
    assert differing <= tokens.numel() / 1000, f"{differing} of {tokens.numel()} tokens differ"


@pytest.mark.parametrize("name", SETTINGS)
def test_a_seed_samples_the_recorded_tokens(pipe, name):
    assert_recorded(name, pipe.sample_tokens(torch.arange(3), 100, SETTINGS[name]))


def test_a_seed_refines_to_the_recorded_tokens(pipe):
    assert_recorded("refine", pipe.sample_tokens(torch.arange(3), 5, given=Given(RECORDED["confidence_a"].long())))


def test_a_seed_edits_to_the_recorded_tokens(pipe):
    box = torch.zeros(14, 14, dtype=torch.bool)
    box[3:9, 2:11] = True
    regions = torch.stack([box.roll(i, 1).flatten() & (torch.arange(196) % (i + 2) != 0) for i in range(3)])
    given, settings = Given(RECORDED["confidence_a"].long(), region=regions), SETTINGS["critic_default"]
    assert_recorded("edit", pipe.sample_tokens(torch.tensor([1, 2, 3]), 9, settings, given))


def test_every_run_is_recorded():
    assert RECORDED.keys() == {*SETTINGS, "refine", "edit"}
