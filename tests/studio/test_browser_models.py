"""Other models in a real browser: without classes, without a grid, with several tokens at a place."""

from contextlib import ExitStack

import numpy as np
import pytest
from studio.browsing import drawn, finished, marked, run, shown_pixels, tab, upload
from studio.live import running
from studio.toy import gridless_pipe, noise_picture, split_pipe, unlabelled_pipe

from tokencritic import TokenCriticPipeline


@pytest.fixture
def opened(tmp_path, visit):
    """A function that starts a studio of a pipeline, and opens its page: the page, and the pipeline that it is."""
    with ExitStack() as closing:

        def opening(pipe):
            pipe.save_pretrained(tmp_path / "model")
            page = visit(studio=closing.enter_context(running(str(tmp_path / "model"))))
            closing.callback(page.close)  # before its studio ends
            return page, TokenCriticPipeline.from_pretrained(tmp_path / "model")

        yield opening


def same(shown, image):
    return np.array_equal(shown, np.asarray(image.convert("RGB")))


def test_a_model_without_classes_has_no_control_for_them(opened):
    page, pipe = opened(unlabelled_pipe())
    finished(page, "generate")
    assert page.locator(".chips").count() == 0
    assert page.get_by_label("Class of the picture").count() == page.get_by_label("Class to sample").count() == 0
    run(page, "generate", How_many_images=2)
    made = pipe(num_images_per_label=2, seed=0)
    shown = shown_pixels(page, "#generate .tile img")
    assert all(same(one, image) for one, image in zip(shown, made, strict=True))
    assert page.locator("#generate .tile").first.get_attribute("title") == "seed 0"
    assert page.inner_text("#generate .chosen .beside h2") == "seed 0"
    assert "recognised" not in page.inner_text("#generate .said")
    page.click("text=Refine this")
    page.wait_for_selector("#refine .said")
    assert page.inner_text("#refine .said").startswith("The critic's mean score is")
    run(page, "refine")
    tab(page, "compare")
    run(page, "compare", How_many_images=2)
    assert page.locator("#compare .pair").first.get_attribute("title") == "seed 0"
    tab(page, "generate")
    page.click("text=Edit this")
    page.wait_for_selector("#edit .painting:not([hidden])")
    page.focus("#edit .grid")
    page.keyboard.press(" ")
    run(page, "edit")
    assert "--classes" not in page.text_content("#edit code")


def test_tokens_without_a_grid_have_steps_and_a_refinement_and_no_edit(opened):
    page, pipe = opened(gridless_pipe())
    finished(page, "generate")
    drawn(page, "generate")
    assert page.locator("#generate .viewer canvas").count() == 4
    assert page.locator("text=Edit this").count() == 0
    tab(page, "edit")
    assert "have no grid" in page.inner_text("#edit")
    tab(page, "refine")
    upload(page, "refine", noise_picture())
    page.wait_for_selector("#refine .said")
    page.get_by_label("Class of the picture").select_option("owl")
    run(page, "refine")
    after = pipe.refine(noise_picture(), 2, ratio=0.3)[0]
    shown = shown_pixels(page, "#refine .wipe:first-child img[alt='Picture after']")[0]
    times = len(shown) // 10
    assert same(shown[::times, ::times], after)


def test_a_place_with_several_tokens_is_painted_as_one(opened):
    page, _ = opened(split_pipe())
    finished(page, "generate")
    tab(page, "edit")
    upload(page, "edit", noise_picture(12, 12, 3))
    page.wait_for_selector("#edit .painting:not([hidden])")
    assert page.locator("#edit .grid div").count() == 9
    page.focus("#edit .grid")
    for key in ("ArrowRight", "ArrowDown", " "):
        page.keyboard.press(key)
    assert marked(page) == [4]
    run(page, "edit")
    assert "--region 4,4,8,8" in page.text_content("#edit code")
    page.click("#edit .painting button:has-text('Clear')")
    assert marked(page) == []
    page.click("#history .strip button:has-text('Edit')")
    page.wait_for_selector("#edit .grid .marked")
    assert marked(page) == [4]
