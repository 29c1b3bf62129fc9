"""The page in a real browser: buttons pressed, sliders moved, tokens painted, and the pixels that come of it.

Needs gradio, playwright and Chromium (Debian's package `chromium`, or the file that TOKENCRITIC_CHROMIUM names). With
TOKENCRITIC_SCREENSHOTS naming a folder, pictures of every tab are written into it, of the model that
TOKENCRITIC_STUDIO_MODEL names.
"""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from studio.browsing import (
    FLAGS,
    WAIT,
    fill,
    generate,
    has_colour,
    is_elsewhere,
    picture_of,
    shot,
    shown_pixels,
    tab,
    tab_to,
)
from studio.live import running
from studio.toy import noise_picture, png_bytes, toy_pipe

from tokencritic import TokenCriticPipeline
from tokencritic.pictures.look import HIDDEN

SCREENSHOTS = os.environ.get("TOKENCRITIC_SCREENSHOTS")
shows_pictures = pytest.mark.skipif(not SCREENSHOTS, reason="TOKENCRITIC_SCREENSHOTS names no folder")
of_the_toy = pytest.mark.skipif(
    bool(os.environ.get("TOKENCRITIC_STUDIO_MODEL")), reason="made for a model that takes no time"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A function that makes a fresh visitor; what each does wrong is asserted at the end of the test."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    chromium = os.environ.get("TOKENCRITIC_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no Chromium: apt-get install chromium, or name one in TOKENCRITIC_CHROMIUM")
    with playwright.sync_playwright() as started:
        folder = tmp_path_factory.mktemp("profile")
        context = started.chromium.launch_persistent_context(
            folder, executable_path=chromium, headless=True, args=FLAGS, timeout=WAIT
        )
        yield context
        context.close()


@pytest.fixture
def visit(browser, studio):
    """A function that opens the page; nothing may go to another host, and nothing may be wrong in the console."""
    wrong, pages = [], []

    def visiting(width=1200, height=900, dark=False, fresh=True, studio=studio):
        if fresh:
            browser.clear_cookies()
        page = browser.new_page()
        pages.append(page)
        page.set_default_timeout(WAIT)
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme="dark" if dark else "light", reduced_motion="reduce")
        page.on("console", lambda said: said.type in ("error", "warning") and wrong.append((said.type, said.text)))
        page.on("pageerror", lambda error: wrong.append(("page", str(error))))
        page.on("request", lambda request: is_elsewhere(request.url, studio) and wrong.append(("sent", request.url)))
        page.on("response", lambda answer: answer.status >= 400 and wrong.append((answer.status, answer.url)))
        page.goto(studio, wait_until="domcontentloaded")
        page.wait_for_selector("body[data-ready] #generate-go")
        return page

    visiting.wrong = wrong
    yield visiting
    for page in pages:
        page.close()
    assert wrong == []


@pytest.fixture(scope="module")
def pipe(model):
    return TokenCriticPipeline.from_pretrained(model)


@of_the_toy
def test_generate_shows_the_pipelines_images_and_their_steps(visit, pipe):
    page = visit()
    generate(page, 4)
    shown = shown_pixels(page, "#generate-result .tc-thumb img")
    expected = pipe([0, 1, 2, 0], seed=0)
    assert len(shown) == 4
    for image, right in zip(shown, expected, strict=True):
        assert np.array_equal(image, np.asarray(right.convert("RGB")))
    assert "--num 4 --seed 0" in page.inner_text("#generate-result code")

    slider, facts = page.locator("#generate-result .tc-slide input"), page.locator("#generate-result .tc-facts")
    slider.focus()
    page.keyboard.press("Home")
    first = [picture_of(page, f"#generate-result .tc-panel[data-row='{row}']") for row in range(3)]
    assert "tokens hidden next" in facts.inner_text()
    assert has_colour(first[2], HIDDEN)
    assert not has_colour(first[0], HIDDEN)
    page.keyboard.press("End")
    last = [picture_of(page, f"#generate-result .tc-panel[data-row='{row}']") for row in range(3)]
    assert "nothing hidden any more" in facts.inner_text()
    assert not has_colour(last[2], HIDDEN)
    assert all(not np.array_equal(one, other) for one, other in zip(first, last, strict=True))

    page.locator("#generate-result .tc-thumb").nth(2).click()
    assert not np.array_equal(picture_of(page, "#generate-result .tc-panel[data-row='0']"), last[0])
    with page.expect_download() as download:
        page.click("text=GIF of the steps")
    with Image.open(download.value.path()) as animation:
        assert animation.format == "GIF"
        assert animation.n_frames > 1
    with page.expect_download() as download:
        page.click("text=PNG of the chosen one")
    with Image.open(download.value.path()) as image:
        assert np.array_equal(np.asarray(image), np.asarray(expected[2]))


@of_the_toy
def test_classes_are_chosen_by_name_and_mistakes_are_told(visit):
    page = visit()
    page.get_by_label("Classes").first.click()
    page.get_by_role("option", name="owl").first.click()
    page.keyboard.press("Escape")
    generate(page, 2)
    assert page.locator("#generate-result .tc-thumb").all_inner_texts() == ["owl", "owl"]
    page.get_by_label("Seed").first.fill(str(2**80))
    page.click("#generate-go")
    page.wait_for_selector("#generate-result [role=alert]")
    assert f"seed is {2**80}; expected a whole number" in page.inner_text("#generate-result")


@of_the_toy
def test_when_the_critic_chooses_is_a_control(visit, pipe):
    page = visit()
    page.click("text=More settings >> visible=true")
    page.get_by_label("Kind of noise").first.click()
    page.get_by_role("option", name="gumbel").first.click()
    fill(page, "Critic window, start", 0.8)
    fill(page, "Critic window, end", 0.5)
    generate(page, 4)
    assert "--noise_kind gumbel --critic_window 0.8 0.5 " in page.inner_text("#generate-result code") + " "
    captions = page.locator("#generate-result figcaption").all_inner_texts()
    assert captions == ["proposal", "rank of score", "hidden next"]  # not the critic's alone, and no probabilities
    shown = shown_pixels(page, "#generate-result .tc-thumb img")
    expected = pipe([0, 1, 2, 0], noise_kind="gumbel", critic_window=(0.8, 0.5))
    assert all(
        np.array_equal(image, np.asarray(right.convert("RGB"))) for image, right in zip(shown, expected, strict=True)
    )


@of_the_toy
def test_compare_shows_two_ways_side_by_side(visit, pipe):
    page = visit()
    tab(page, "Compare")
    page.click("#compare-go")
    page.wait_for_selector("#compare-result .tc-columns")
    shown = shown_pixels(page, "#compare-result .tc-columns > div:nth-child(1) .tc-thumb img")
    nfe = pipe.nfe(pipe.defaults)
    steps = pipe.sampling.for_sampler("confidence").steps
    expected = pipe([0, 1, 2, 0, 1, 2, 0, 1], num_inference_steps=steps, sampler="confidence")
    assert all(
        np.array_equal(image, np.asarray(right.convert("RGB"))) for image, right in zip(shown, expected, strict=True)
    )
    headings = page.locator("#compare-result h3").all_inner_texts()
    assert headings == [f"A: confidence, {steps} steps", "B: critic, 4 steps"]
    told = page.inner_text("#compare-result")
    assert (told.count("mean score"), told.count(f"{nfe} NFE")) == (2, 2)


@of_the_toy
def test_refine_takes_an_image_from_the_gallery_or_a_file(visit, pipe):
    page = visit()
    generate(page, 2)
    page.click("text=Refine the chosen one")
    page.wait_for_selector("text=Taken as")
    page.click("#refine-go")
    page.wait_for_selector("#refine-result .tc-wipe")
    before = picture_of(page, "#refine-result .tc-wipe > div")
    slider = page.locator("#refine-result .tc-wipe input")
    slider.focus()
    page.keyboard.press("Home")
    after = picture_of(page, "#refine-result .tc-wipe > div")
    assert not np.array_equal(before, after)

    picture, old = noise_picture(seed=3), page.locator("#refine-result .tc-result").get_attribute("data-run")
    seen = page.locator(".tc-still:visible").first.get_attribute("src")
    page.set_input_files("#refine-file", {"name": "x.png", "mimeType": "image/png", "buffer": png_bytes(picture)})
    page.wait_for_function("seen => document.querySelector('.tc-still')?.src !== seen", arg=seen)
    page.wait_for_selector("text=Taken as")
    page.click("#refine-go")
    page.wait_for_selector(f"#refine-result .tc-result:not([data-run='{old}'])")
    shown = shown_pixels(page, "#refine-result .tc-after")[0]
    right = pipe.refine(picture, None, ratio=0.6)[0].convert("RGB")
    times = shown.shape[0] // 12  # 10 pixels and a margin of 1 on each side
    assert np.array_equal(shown[::times, ::times][1:-1, 1:-1], np.asarray(right))
    page.set_input_files("#refine-file", {"name": "x.png", "mimeType": "image/png", "buffer": b"a text"})
    page.wait_for_selector("text=the picture is not a readable image")
    visit.wrong[:] = [found for found in visit.wrong if "400" not in str(found) and found[0] != 400]


@of_the_toy
def test_edit_draws_anew_what_was_painted_and_nothing_else(visit):
    page = visit()
    tab(page, "Edit")
    given = {"name": "x.png", "mimeType": "image/png", "buffer": png_bytes(noise_picture(seed=5))}
    page.set_input_files("#edit-file", given)
    canvas = page.wait_for_selector(".tc-canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 8, box["y"] + box["height"] / 8)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 5 / 8, box["y"] + box["height"] / 8, steps=8)
    page.mouse.up()
    assert "3 tokens marked" in page.inner_text("#canvas")
    canvas.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    assert "4 tokens marked" in page.inner_text("#canvas")
    assert page.evaluate("studio.region()") == "0 1 2 4"
    page.click("#edit-go")
    page.wait_for_selector("#edit-result .tc-wipe")
    region = shown_pixels(page, "#edit-result img[alt='resampled']")[0]
    side = region.shape[0] // 4
    grey = [(region[y * side + 2, x * side + 2] == HIDDEN).all() for y in range(4) for x in range(4)]
    assert [place for place, found in enumerate(grey) if found] == [0, 1, 2, 4]


@pytest.fixture
def slow_studio(tmp_path):
    """One whose longest runs take minutes."""
    toy_pipe(side=24).save_pretrained(tmp_path / "model")
    with running(str(tmp_path / "model")) as address:
        yield address


@of_the_toy
def test_a_reload_in_the_middle_of_a_run_finds_it_again(visit, slow_studio):
    page = visit(studio=slow_studio)
    fill(page, "Steps", 128)
    fill(page, "How many images", 64)
    page.click("#generate-go")
    page.wait_for_selector("#generate-result progress")
    page.reload(wait_until="domcontentloaded")
    page.wait_for_selector("#generate-result progress")
    page.click("#generate-cancel")
    page.wait_for_selector("#generate-result :text('Cancelled')")
    page.reload(wait_until="domcontentloaded")
    page.wait_for_selector("body[data-ready] #generate-go")
    generate(page, 2)
    page.reload(wait_until="domcontentloaded")
    page.wait_for_selector("#generate-result .tc-thumb")
    assert page.locator("#generate-result .tc-thumb").count() == 2
    # The page that was left says so itself when its stream is cut; nothing else may be wrong.
    cut = "AbortError", "Connection errored out"
    visit.wrong[:] = [found for found in visit.wrong if not any(text in str(found) for text in cut)]


@of_the_toy
def test_the_keyboard_alone_is_enough(visit):
    page = visit()
    assert tab_to(page, "document.activeElement.id === 'generate-go'")
    page.keyboard.press("Enter")
    page.wait_for_selector("#generate-result .tc-thumb")
    assert tab_to(page, "document.activeElement.classList.contains('tc-thumb')")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert page.locator("#generate-result .tc-thumb").nth(1).get_attribute("aria-pressed") == "true"
    assert tab_to(page, "document.activeElement.matches('.tc-slide input')")
    before = page.inner_text("#generate-result .tc-facts")
    page.keyboard.press("End")
    assert page.inner_text("#generate-result .tc-facts") != before


@of_the_toy
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_tab_fits_a_phone_in_light_and_dark(visit, dark):
    page = visit(width=390, height=844, dark=dark)
    generate(page, 3)
    for name in ("Generate", "Compare", "Refine", "Edit"):
        tab(page, name)
        wide = page.evaluate("Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)")
        assert wide <= 390, name
    colour = page.evaluate("getComputedStyle(document.querySelector('gradio-app')).backgroundColor")
    numbers = [float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    assert (sum(numbers) < 200) == dark, colour


@shows_pictures
def test_pictures_of_every_tab(visit):
    folder = Path(SCREENSHOTS)
    folder.mkdir(parents=True, exist_ok=True)
    page = visit(width=1200, height=900)
    generate(page, 8)
    shot(page, folder, "generate")
    page.click("text=Refine the chosen one")
    page.wait_for_selector("text=Taken as")
    page.click("#refine-go")
    page.wait_for_selector("#refine-result .tc-wipe")
    shot(page, folder, "refine")
    tab(page, "Generate")
    page.click("text=Edit the chosen one")
    canvas = page.wait_for_selector(".tc-canvas")
    box = canvas.bounding_box()
    for share in (0.18, 0.25, 0.32, 0.39, 0.46):
        page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + box["height"] * share)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + box["height"] * share, steps=12)
        page.mouse.up()
    page.click("#edit-go")
    page.wait_for_selector("#edit-result .tc-wipe")
    shot(page, folder, "edit")
    tab(page, "Compare")
    fill(page, "How many images", 4)
    page.click("#compare-go")
    page.wait_for_selector("#compare-result .tc-columns")
    shot(page, folder, "compare")
    phone = visit(width=390, height=844, dark=True, fresh=False)
    phone.wait_for_selector("#generate-result .tc-thumb")
    shot(phone, folder, "phone")
