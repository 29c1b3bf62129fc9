import subprocess
import sys

import pytest

import tokencritic


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_importing_the_package_does_not_import_torch():
    done = python(
        "import sys, tokencritic; assert 'torch' not in sys.modules; tokencritic.sample; assert 'torch' in sys.modules"
    )
    assert done.returncode == 0, done.stderr


def test_the_first_use_under_another_default_device_does_no_harm():
    done = python(
        "import torch, tokencritic\n"
        "with torch.device('meta'): tokencritic.Generator\n"
        "small = dict(num_tokens=4, codebook_size=8, num_classes=2, width=8, layers=1, heads=2, mlp_width=16)\n"
        "generator = tokencritic.Generator(tokencritic.TransformerConfig(**small))\n"
        "with torch.no_grad(): generator(torch.zeros(1, 4, dtype=torch.int64), torch.tensor([0]))"
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", tokencritic.__all__)
def test_every_public_name_is_there_and_documented(name):
    assert getattr(tokencritic, name).__doc__
    assert name in dir(tokencritic)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'samples'"):
        tokencritic.samples  # noqa: B018
