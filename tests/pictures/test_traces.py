import numpy as np
import pytest
import torch
from pictures.toy import places
from PIL import Image

from tokencritic.models.generator import Generator
from tokencritic.models.transformer import TransformerConfig
from tokencritic.pictures.steps import MOST_IMAGES, film_strip, run_of, step_frames
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
    critic = generator.start_critic().eval()
    for parameter in [*tokenizer.parameters(), *generator.parameters(), *critic.parameters()]:
        parameter.data += 0.1 * torch.randn_like(parameter)
    return TokenCriticPipeline(
        tokenizer, generator, critic, class_names=["cat", "dog", "owl"], defaults=SamplingSettings(steps=6)
    )


def final_images(pipe, times, **changes):
    tokens = pipe.sample_tokens(LABELS, 7, pipe.settings(**changes))
    images = pipe.images(tokens)
    side = 16 * times
    return [np.asarray(image.convert("RGB").resize((side, side), Image.Resampling.NEAREST)) for image in images]


def traced(pipe, labels=LABELS, sampler="critic", **changes):
    trace = Trace(MOST_IMAGES)
    pipe.sample_tokens(labels, 7, pipe.settings(sampler=sampler, **changes), on_step=trace)
    return run_of(sampler, trace)


def test_the_frames_end_with_the_images_that_the_pipeline_makes(pipe):
    run = traced(pipe)
    frames = step_frames(run, pipe.tokenizer)
    assert len(frames) == len(run.steps)
    for image in final_images(pipe, 15):
        assert len(places(frames[-1], image)) == 2  # as the proposal, and with nothing hidden


def test_side_by_side_shows_maskgit_above_the_critic_from_the_same_seed(pipe):
    last = step_frames([traced(pipe, sampler="confidence", steps=3), traced(pipe)], pipe.tokenizer)[-1]
    upper = [places(last, image) for image in final_images(pipe, 15, sampler="confidence", steps=3)]
    lower = [places(last, image) for image in final_images(pipe, 15, sampler="critic")]
    assert all(len(found) == 2 for found in [*upper, *lower])
    assert max(y for found in upper for _, y in found) < min(y for found in lower for _, y in found)


def test_only_the_first_images_are_shown(pipe):
    few, many = (traced(pipe, torch.cat([LABELS] * times)) for times in (6, 40))
    assert few.num_images == many.num_images == 16
    assert film_strip(few, pipe.tokenizer) == film_strip(many, pipe.tokenizer)
