"""Generate in a real browser: what the page says at first, making images, seeing how they were made, controls."""

import numpy as np
from PIL import Image
from studio.browsing import box, drawn, finished, has_colour, panel, ready, run, shown_pixels, tab, tab_to

from tokencritic.pictures.grids import read_note
from tokencritic.pictures.look import HIDDEN


def same_images(shown, expected):
    return len(shown) == len(expected) and all(
        np.array_equal(image, np.asarray(right.convert("RGB"))) for image, right in zip(shown, expected, strict=True)
    )


def test_the_page_says_what_it_is_and_opens_with_images(visit, page_pipe):
    page = visit()
    first = page.inner_text("#what")
    assert first.startswith("model")
    assert (
        "The generator fills in the picture. The critic marks what looks wrong, and those parts are resampled." in first
    )
    assert not page.locator("#sizes").is_visible()
    page.focus("#model")
    assert page.locator("#sizes").is_visible()
    assert page.inner_text("#sizes") == "10 x 10 pixels in 16 tokens, 3 classes"
    finished(page, "generate")
    assert same_images(shown_pixels(page, "#generate .tile img"), page_pipe([i % 3 for i in range(16)], seed=0))
    assert page.inner_text("#generate-go") == "Generate"


def test_the_page_is_there_while_the_model_is_loading(visit, studio):
    page = visit(open_page=False)
    held = []
    page.route("**/studio/about", lambda route: held.append(route))
    page.goto(studio)
    page.wait_for_selector("text=Loading the model")
    assert page.locator("body[data-ready]").count() == 0
    held[0].continue_()
    ready(page)
    assert "Loading" not in page.inner_text("body")


def test_generate_shows_the_pipelines_images_and_how_they_were_made(visit, page_pipe):
    page = visit()
    run(page, "generate", How_many_images=4)
    expected = page_pipe([0, 1, 2, 0], seed=0)
    assert same_images(shown_pixels(page, "#generate .tile img"), expected)
    assert page.locator("#generate .command[open]").count() == 0
    assert "--num 4 --seed 0" in page.text_content("#generate code")
    assert "recognised as the wanted class" in page.inner_text("#generate .said")

    drawn(page, "generate")
    large = page.locator("#generate .chosen .large").bounding_box()
    assert large["y"] < page.locator("#generate .viewer").bounding_box()["y"]
    assert page.locator("#generate .viewer figcaption").all_inner_texts() == [
        "Current guess",
        "What the critic trusts",
        "Resampled next",
        "Changed its mind",
    ]
    slider, facts = page.locator("#generate .scrub input"), page.locator("#generate .facts")
    slider.focus()
    page.keyboard.press("Home")
    first = [panel(page, "generate", row) for row in range(4)]
    assert "tokens are resampled next" in facts.inner_text()
    assert has_colour(first[2], HIDDEN)
    assert not has_colour(first[0], HIDDEN)
    page.keyboard.press("End")
    last = [panel(page, "generate", row) for row in range(4)]
    assert "all tokens are kept" in facts.inner_text()
    assert not has_colour(last[2], HIDDEN)
    page.click("#generate .scrub button")
    page.wait_for_selector("#generate .scrub button:text('Pause')")
    page.wait_for_selector("#generate .scrub button:text('Play')")
    assert np.array_equal(panel(page, "generate", 0), last[0])

    page.locator("#generate .tile").nth(2).click()
    drawn(page, "generate")
    assert not np.array_equal(panel(page, "generate", 0), last[0])
    assert same_images(shown_pixels(page, "#generate .large"), expected[2:3])
    with page.expect_download() as download:
        page.click("text=Steps as GIF")
    with Image.open(download.value.path()) as animation:
        assert (animation.format, animation.n_frames > 1) == ("GIF", True)
    with page.expect_download() as download:
        page.click("text=Download PNG")
    assert download.value.suggested_filename == "model-owl_seed2.png"
    with Image.open(download.value.path()) as image:
        assert np.array_equal(np.asarray(image), np.asarray(expected[2]))
    facts = read_note(download.value.path())
    assert (facts["seed"], facts["class"], facts["settings"]["steps"]) == (2, 2, 4)


def test_the_last_of_64_images_has_its_steps(visit):
    page = visit()
    run(page, "generate", How_many_images=64)
    page.locator("#generate .tile").nth(63).click()
    drawn(page, "generate")
    assert "Step" in page.inner_text("#generate .facts")


def test_classes_are_chosen_by_name_and_mistakes_are_told_in_view(visit):
    page = visit(width=390, height=700)
    page.locator("#generate .chip", has_text="owl").click()
    run(page, "generate", How_many_images=2)
    assert page.locator("#generate .tile").all_inner_texts() == ["owl", "owl"]
    page.locator("#generate").get_by_label("Seed").fill(str(2**80))
    page.click("#generate-go")
    alert = page.locator("#generate .bar [role=alert]")
    alert.wait_for()
    assert f"seed is {2**80}; expected a whole number" in alert.inner_text()
    assert alert.evaluate("alert => alert.getBoundingClientRect().bottom <= innerHeight")
    page.locator("#generate").get_by_label("Seed").fill("3")
    run(page, "generate")
    assert alert.inner_text() == ""


def test_choosing_a_sampler_fills_in_what_suits_it(visit, page_pipe):
    page = visit()
    box(page, "generate", "Steps").fill("30")
    chosen = page.locator("#generate select").first
    assert chosen.locator("option").all_inner_texts()[0] == "With critic (Token-Critic)"
    chosen.select_option(label="Without critic (MaskGIT)")
    suited = page_pipe.sampling.for_sampler("confidence", page_pipe.cost)
    assert box(page, "generate", "Steps").input_value() == str(suited.steps)
    assert "decided by the generator's confidence" in page.inner_text("#generate .explained")
    slider = page.locator("#generate input[aria-label='Steps, slider']")
    assert slider.input_value() == str(suited.steps)
    slider.fill("6")
    assert box(page, "generate", "Steps").input_value() == "6"
    box(page, "generate", "Steps").fill("")
    box(page, "generate", "Steps").blur()
    assert box(page, "generate", "Steps").input_value() == "6"
    page.click("#generate .advanced summary")
    assert page.locator("#generate .window").count() == 0  # which only a critic has


def test_when_the_critic_is_active_is_one_control_with_two_ends(visit, page_pipe):
    page = visit()
    assert not page.locator("#generate .window").is_visible()
    page.click("#generate .advanced summary")
    start, end = (page.locator(f"#generate [aria-label^='Critic active {word}']") for word in ("from", "until"))
    assert page.inner_text("#generate .says") == "0 % to 100 %"
    start.fill("20")
    end.fill("50")
    assert page.inner_text("#generate .says") == "20 % to 50 %"
    start.fill("80")  # the ends do not pass each other
    assert page.inner_text("#generate .says") == "49 % to 50 %"
    start.fill("20")
    page.locator("#generate").get_by_label("Kind of noise").select_option("gumbel")
    run(page, "generate", How_many_images=4)
    assert "--noise_kind gumbel --critic_window 0.8 0.5 " in page.text_content("#generate code") + " "
    expected = page_pipe([0, 1, 2, 0], noise_kind="gumbel", critic_window=(0.8, 0.5))
    assert same_images(shown_pixels(page, "#generate .tile img"), expected)


def test_the_keyboard_alone_is_enough(visit):
    page = visit()
    finished(page, "generate")
    old = page.get_attribute("#generate .result", "data-run")
    assert tab_to(page, "document.activeElement.id === 'tab-generate'")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.id") == "tab-compare"
    assert page.locator("#compare").is_visible()
    page.keyboard.press("ArrowLeft")
    assert tab_to(page, "document.activeElement.matches('.chip input')")
    page.keyboard.press("Space")
    assert page.locator("#generate .chip :checked").count() == 1
    assert tab_to(page, "document.activeElement.id === 'generate-go'")
    page.keyboard.press("Enter")
    finished(page, "generate", old)
    assert tab_to(page, "document.activeElement.matches('.tile')")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert page.locator("#generate .tile").nth(1).get_attribute("aria-pressed") == "true"
    drawn(page, "generate")
    assert tab_to(page, "document.activeElement.matches('.scrub input')")
    before = page.inner_text("#generate .facts")
    page.keyboard.press("End")
    assert page.inner_text("#generate .facts") != before
    assert tab_to(page, "document.activeElement.matches('.command summary')")
    page.keyboard.press("Enter")
    assert page.locator("#generate .command code").is_visible()
    tab(page, "generate")
