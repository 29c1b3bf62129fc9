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


@pytest.mark.parametrize("name", tokencritic.__all__)
def test_every_public_name_is_there_and_documented(name):
    assert getattr(tokencritic, name).__doc__
    assert name in dir(tokencritic)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'samples'"):
        tokencritic.samples  # noqa: B018
