"""One studio for all tests that need one."""

import os

import pytest
from studio.live import running
from studio.toy import toy_pipe


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A folder; TOKENCRITIC_STUDIO_MODEL names another, for pictures of the page."""
    if named := os.environ.get("TOKENCRITIC_STUDIO_MODEL"):
        return named
    folder = tmp_path_factory.mktemp("studio") / "model"
    toy_pipe().save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def studio(model):
    with running(model) as address:
        yield address
