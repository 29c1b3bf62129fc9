import dataclasses

import numpy as np
import pytest
import torch
from pictures.toy import places
from PIL import Image

from tokencritic.errors import InputError
from tokencritic.models.critic import Critic
from tokencritic.models.generator import Generator
from tokencritic.models.transformer import TransformerConfig
from tokencritic.pictures.steps import MOST_IMAGES, write_trace
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.sampling.trace import Trace
from tokencritic.tokenizers.compact import CompactConfig, CompactTokenizer

TINY = TransformerConfig(num_tokens=16, codebook_size=12, num_classes=3, width=32, layers=1, heads=2, mlp_width=64)
LABELS = torch.tensor([0, 1, 2])


@pytest.fixture(scope="module")
def pipe():
    torch.manual_seed(0)
    tokenizer = CompactTokenizer(CompactConfig(image_size=16, codebook_size=12)).eval()
    generator = Generator(TINY).eval()
    critic = Critic.from_generator(generator).eval()
    for parameter in [*tokenizer.parameters(), *generator.parameters(), *critic.parameters()]:
        parameter.data += 0.1 * torch.randn_like(parameter)
    return TokenCriticPipeline(
        tokenizer, generator, critic, class_names=["cat", "dog", "owl"], defaults=SamplingSettings(steps=6)
    )


def last_frame(file):
    with Image.open(file) as animation:
        animation.seek(animation.n_frames - 1)
        return animation.n_frames, animation.convert("RGB")


def final_images(pipe, times, **changes):
    tokens = pipe.sample_tokens(LABELS, 7, pipe.settings(**changes))
    images = pipe.images(tokens)
    side = 16 * times
    return [np.asarray(image.convert("RGB").resize((side, side), Image.Resampling.NEAREST)) for image in images]


def written(file, pipe, labels=LABELS, compare=None):
    """Sample, and write how; returns the trace."""
    trace = Trace(MOST_IMAGES)
    pipe.sample_tokens(labels, 7, pipe.defaults, on_step=trace)
    write_trace(file, pipe, labels, 7, pipe.defaults, trace, compare)
    return trace


def test_the_animation_ends_with_the_images_that_the_pipeline_makes(pipe, tmp_path):
    file = tmp_path / "new folder" / "steps.webp"
    trace = written(file, pipe)
    frames, last = last_frame(file)
    assert frames == len(trace.steps)
    for image in final_images(pipe, 15):
        assert len(places(last, image)) == 2  # as the proposal, and with nothing hidden


def test_side_by_side_shows_maskgit_above_the_critic_from_the_same_seed(pipe, tmp_path):
    written(tmp_path / "steps.webp", pipe, compare=pipe.settings(sampler="confidence", steps=3))
    _, last = last_frame(tmp_path / "steps.webp")
    upper = [places(last, image) for image in final_images(pipe, 15, sampler="confidence", steps=3)]
    lower = [places(last, image) for image in final_images(pipe, 15, sampler="critic")]
    assert all(len(found) == 2 for found in [*upper, *lower])
    assert max(y for found in upper for _, y in found) < min(y for found in lower for _, y in found)


def test_a_film_strip_is_written_too_and_only_the_first_images_are_shown(pipe, tmp_path):
    maskgit = pipe.settings(sampler="confidence")
    written(tmp_path / "few.png", pipe, compare=maskgit)
    written(tmp_path / "many.png", pipe, torch.cat([LABELS] * 40), maskgit)
    assert (tmp_path / "few.png").read_bytes() == (tmp_path / "many.png").read_bytes()


def test_what_cannot_be_shown_is_refused(pipe, tmp_path):
    rejecting = dataclasses.replace(pipe.defaults, candidates=2)
    for settings, file, message in (
        (pipe.defaults, "steps.avi", "ends in '.avi'"),
        (rejecting, "steps.gif", "candidates is 2"),
    ):
        with pytest.raises(InputError, match=message):
            write_trace(tmp_path / "folder" / file, pipe, LABELS, 7, settings, Trace())
    assert list(tmp_path.iterdir()) == []
