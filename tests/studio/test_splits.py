"""Editing with a tokenizer that has several tokens for each place: whole places are painted, moved and resampled."""

import re

import pytest
import torch
from studio.toy import done, noise_picture

from tokencritic.errors import InputError
from tokencritic.models.maskbit import MaskBitConfig, MaskBitGenerator
from tokencritic.pipeline import TokenCriticPipeline
from tokencritic.sampling.settings import SamplingSettings
from tokencritic.studio.service import Service
from tokencritic.studio.views import canvas
from tokencritic.tokenizers.maskbit import MaskBitTokenizer, MaskBitTokenizerConfig


@pytest.fixture(scope="module")
def pipe():
    torch.manual_seed(0)
    sizes = MaskBitTokenizerConfig(
        image_size=12, filters=32, multipliers=(1, 1, 1), blocks=1, splits=2, bits_per_part=3
    )
    small = {"width": 16, "layers": 1, "heads": 2, "mlp_width": 16}
    generator = MaskBitGenerator(MaskBitConfig(places=9, splits=2, bits_per_part=3, num_classes=2, **small))
    defaults = SamplingSettings(steps=2, sampler="confidence")
    return TokenCriticPipeline(MaskBitTokenizer(sizes).eval(), generator.eval(), defaults=defaults)


@pytest.fixture
def service(pipe):
    service = Service(pipe, "MODEL")
    yield service
    service.close()


def resampled(service, **values):
    work = service.requests.edit(noise_picture(12, 12, 3), {"class": 0, **values})
    return done(service.submit("me", work)).region.nonzero().flatten().tolist()


def test_a_cell_of_the_canvas_is_a_place(pipe):
    html = canvas(pipe, noise_picture(12, 12, 3))
    assert 'data-rows="3" data-columns="3"' in html
    assert re.findall(r'data-i="(\d+)"', html) == [str(2 * place) for place in range(9)]


def test_an_edit_resamples_whole_places(service):
    assert resampled(service, region=[4]) == [4, 5]
    assert resampled(service, region=[5, 17]) == [4, 5, 16, 17]
    with pytest.raises(InputError, match="region is 18; expected a whole number from 0 to 17"):
        resampled(service, region=[18])


def test_a_picture_is_moved_by_places(service):
    assert resampled(service, move=[1, 0]) == [0, 1, 6, 7, 12, 13]
    assert resampled(service, move=[0, -2]) == list(range(6, 18))
    with pytest.raises(InputError, match="move is 3; expected a whole number from -2 to 2"):
        resampled(service, move=[3, 0])
