"""A service for each test, one studio for all that need one, and visitors with a real browser.

Browser tests need playwright and Chromium (Debian's package `chromium`, or the file that TOKENCRITIC_CHROMIUM names).
"""

import os
import shutil

import numpy as np
import pytest
from studio.browsing import FLAGS, WAIT, is_elsewhere, ready
from studio.live import running
from studio.toy import noise_picture, toy_pipe

from tokencritic import TokenCriticPipeline
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
    """A folder of the toy, with real pictures in it."""
    folder = tmp_path_factory.mktemp("studio") / "model"
    toy_pipe().save_pretrained(folder)
    pictures = np.stack([np.asarray(noise_picture(seed=seed))[..., None] for seed in range(4)])
    np.savez(folder / "reference.npz", pictures, np.array([0, 0, 1, 2]))
    return str(folder)


@pytest.fixture(scope="session")
def studio(model):
    with running(model) as address:
        yield address


@pytest.fixture(scope="session")
def slow_studio(tmp_path_factory):
    """One whose longest runs take minutes."""
    folder = tmp_path_factory.mktemp("slow") / "model"
    toy_pipe(side=24).save_pretrained(folder)
    with running(str(folder)) as address:
        yield address


@pytest.fixture(scope="module")
def page_pipe(model):
    """The pipeline that the page's model is."""
    return TokenCriticPipeline.from_pretrained(model)


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    chromium = os.environ.get("TOKENCRITIC_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no Chromium: apt-get install chromium, or name one in TOKENCRITIC_CHROMIUM")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium, args=FLAGS, timeout=WAIT)
        yield opened
        opened.close()


@pytest.fixture
def visit(browser, studio):
    """A function that opens the page as a new visitor; nothing may go to another host, and nothing may be wrong in the
    console. `visit.expect(text)` allows what a test provokes.
    """
    wrong, expected, contexts = [], [], []

    def visiting(width=1200, height=900, dark=False, studio=studio, open_page=True):
        scheme = "dark" if dark else "light"
        size = {"width": width, "height": height}
        context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(WAIT)
        page.on("console", lambda said: said.type in ("error", "warning") and wrong.append((said.type, said.text)))
        page.on("pageerror", lambda error: wrong.append(("page", str(error))))
        page.on("request", lambda request: is_elsewhere(request.url, studio) and wrong.append(("sent", request.url)))
        page.on("response", lambda answer: answer.status >= 400 and wrong.append((answer.status, answer.url)))
        if open_page:
            page.goto(studio, wait_until="domcontentloaded")
            ready(page)
        return page

    visiting.expect = expected.append
    yield visiting
    for context in contexts:
        context.close()
    assert [found for found in wrong if not any(text in str(found) for text in expected)] == []
