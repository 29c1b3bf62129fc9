"""A service for each test, and one studio for all that need one."""

import os

import pytest
from studio.live import running
from studio.toy import toy_pipe

from tokencritic.studio.service import Service


@pytest.fixture(scope="module")
def pipe():
    return toy_pipe()


@pytest.fixture
def service(pipe):
    service = Service(pipe, "MODEL")
    yield service
    service.close()


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
