"""Compare, Refine and Edit in a real browser."""

import base64

import numpy as np
import torch
from studio.browsing import (
    box,
    drag,
    drawn,
    finished,
    has_colour,
    marked,
    panel,
    picture_of,
    run,
    shown_pixels,
    tab,
    upload,
)
from studio.toy import noise_picture, png_bytes

from tokencritic.pictures.look import HIDDEN


def test_compare_lines_up_pairs_at_one_cost(visit, page_pipe):
    page = visit()
    tab(page, "compare")
    run(page, "compare", How_many_images=8)
    cost = int(box(page, "compare", "Cost of an image").input_value())
    assert cost - 1 < page_pipe.cost(page_pipe.defaults) <= cost
    titles = page.locator("#compare .measures thead th").all_inner_texts()
    assert titles == ["Without critic (MaskGIT)", "With critic (Token-Critic)"]
    rows = dict(row.split("\t", 1) for row in page.locator("#compare .measures tbody tr").all_inner_texts())
    spent = [float(value) for value in rows["Cost of an image, in generator evaluations"].split("\t")]
    assert all(cost - 2 < one <= cost for one in spent)
    assert rows["Recognised as the wanted class, of these images"].count("of 8") == 2
    assert not any("score" in name.lower() for name in rows)
    assert not any("FID" in name for name in rows)  # the toy was never measured
    variants = [page_pipe.sampling.at_nfe(name, cost, page_pipe.cost) for name in ("confidence", "critic")]
    for place, settings in enumerate(variants):
        shown = shown_pixels(page, f"#compare .pair .framed:nth-child({place + 1}) img")
        expected = page_pipe.images(page_pipe.sample_tokens(torch.arange(8) % 3, 0, settings))
        for image, right in zip(shown, expected, strict=True):
            assert np.array_equal(image, np.asarray(right.convert("RGB")))
    above, below = (page.locator("#compare .pair").first.locator(".framed").nth(at).bounding_box() for at in (0, 1))
    assert above["x"] == below["x"]
    assert above["y"] < below["y"]
    page.locator("#compare .pair").nth(3).click()
    drawn(page, "compare")
    assert page.locator("#compare .viewer").count() == 2

    box(page, "compare", "Cost of an image").fill("12")
    page.locator("#compare select").last.select_option(label="Random re-masking")
    run(page, "compare")
    spent = page.locator("#compare .measures tbody tr", has_text="Cost").inner_text().split("\t")[1:]
    assert all(10 < float(value) <= 12 for value in spent)


def test_refine_tells_the_truth_and_goes_on_with_its_result(visit, page_pipe):
    page = visit()
    run(page, "generate", How_many_images=2)
    page.locator("#generate .tile").nth(1).click()
    page.click("text=Refine this")
    page.wait_for_selector("#refine :text('Taken as big dog')")  # the class it was made for, whoever asks
    assert page.locator("#refine .result img[alt='What the critic trusts']").count() == 1
    run(page, "refine")
    said = page.inner_text("#refine .said")
    better = "likes the result better" in said
    assert better != ("likes the original better: keep it" in said)
    assert page.locator("#refine .result .wipe").count() == 2  # the picture, and one panel of scores
    old = page.get_attribute("#refine .thumb", "src")
    after = shown_pixels(page, "#refine .wipe .after")[0]
    page.click("#refine :text('Continue with this result')")
    page.wait_for_selector(f"#refine .thumb:not([src='{old}'])")
    page.wait_for_selector("#refine :text('Taken as')")
    assert page.locator("#refine .wipe").count() == 0  # what was shown belonged to the other picture
    times = after.shape[0] // 12  # 10 pixels and a margin of 1 on each side
    assert np.array_equal(shown_pixels(page, "#refine .thumb")[0], after[::times, ::times][1:-1, 1:-1])


def test_refine_takes_a_file_and_makes_what_the_pipeline_makes(visit, page_pipe):
    page, picture = visit(), noise_picture(seed=3)
    tab(page, "refine")
    page.click("#refine-go")
    assert page.inner_text("#refine .bar [role=alert]") == "Choose a picture first."
    upload(page, "refine", picture)
    assert "x.png" in page.inner_text("#refine .drop")
    page.wait_for_selector("#refine :text('Taken as')")
    assert page.inner_text("#refine .bar [role=alert]") == ""  # it is there now
    share = box(page, "refine", "Share resampled").input_value()
    run(page, "refine")
    shown = shown_pixels(page, "#refine .wipe .after")[0]
    right = page_pipe.refine(picture, None, ratio=float(share))[0].convert("RGB")
    times = shown.shape[0] // 12
    assert np.array_equal(shown[::times, ::times][1:-1, 1:-1], np.asarray(right))
    page.set_input_files("#refine-file", {"name": "x.png", "mimeType": "image/png", "buffer": b"a text"})
    page.wait_for_selector("#refine :text('the picture is not a readable image')")
    upload(page, "refine", noise_picture(seed=4))
    assert page.inner_text("#refine .picture .alert") == ""


def test_left_of_the_divider_is_before_and_right_of_it_after(visit):
    page = visit()
    tab(page, "refine")
    upload(page, "refine", noise_picture(seed=3))
    run(page, "refine", Share_resampled=0.9)
    slider, area = page.locator("#refine .wipe input").first, page.locator("#refine .wipe").first
    assert slider.bounding_box() == area.bounding_box()  # as wide as the picture
    slider.focus()
    pictures = {}
    for key in ("Home", "End"):
        page.keyboard.press(key)
        pictures[key] = picture_of(page, "#refine .wipe")
    before, after = (
        shown_pixels(page, f"#refine .wipe:first-child img[alt='Picture {word}']")[0] for word in ("before", "after")
    )
    cell, shown = before.shape[0] // 12, pictures["Home"].shape[0] / 12  # the side of a pixel of the image
    centres = [(y + 0.5, x + 0.5) for y in range(2, 10) for x in range(2, 10)]
    there = {at: tuple(int(part * cell) for part in at) for at in centres}
    changed = [at for at in centres if (before[there[at]] != after[there[at]]).any()]
    assert changed
    for y, x in changed:
        left, right = (pictures[key][int(y * shown), int(x * shown)].tolist() for key in ("Home", "End"))
        assert left == after[there[y, x]].tolist()  # the divider is at the left
        assert right == before[there[y, x]].tolist()
    slider.fill("30")
    assert page.locator("#refine .wipe input").nth(1).input_value() == "30"  # one divider for both
    line = page.locator("#refine .divider").first.bounding_box()
    whole = area.bounding_box()
    assert abs((line["x"] + line["width"] / 2 - whole["x"]) / whole["width"] - 0.3) < 0.02


def test_edit_resamples_what_was_painted_and_nothing_else(visit):
    page = visit()
    tab(page, "edit")
    upload(page, "edit", noise_picture(seed=5))
    page.locator("#edit .grid").scroll_into_view_if_needed()
    drag(page, (0, 0), (0, 3))  # in one movement
    assert marked(page) == [0, 1, 2, 3]
    drag(page, (3, 0), (3, 0))
    page.click("#edit :text('Undo')")
    assert marked(page) == [0, 1, 2, 3]
    drag(page, (0, 3), (0, 3))  # erases what is marked
    page.locator("#edit .grid").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    assert marked(page) == [0, 1, 2, 4]
    assert "4 marked" in page.inner_text("#edit .count")
    run(page, "edit")
    region = shown_pixels(page, "#edit img[alt='Resampled']")[0]
    side = region.shape[0] // 4
    grey = [(region[y * side + 2, x * side + 2] == HIDDEN).all() for y in range(4) for x in range(4)]
    assert [place for place, found in enumerate(grey) if found] == [0, 1, 2, 4]
    words = page.text_content("#edit code")
    assert "token-critic edit" in words
    assert "--region 0,0,8,2 --region 0,2,2,5 " in words
    page.click("#edit :text('Clear')")
    box(page, "edit", "Brush").fill("2")
    drag(page, (1, 1), (1, 1))
    assert marked(page) == [5, 6, 9, 10]


def test_a_move_is_shown_before_it_is_made(visit):
    page = visit()
    tab(page, "edit")
    upload(page, "edit", noise_picture(seed=5))
    before = picture_of(page, "#edit .board")
    page.click("#edit summary:text('Move the picture')")
    box(page, "edit", "Right").fill("1")
    assert not np.array_equal(picture_of(page, "#edit .board"), before)
    assert "0 marked, 8 uncovered" in page.inner_text("#edit .count")
    run(page, "edit")
    region = shown_pixels(page, "#edit img[alt='Resampled']")[0]
    side = region.shape[0] // 4
    assert [bool((region[2, x * side + 2] == HIDDEN).all()) for x in range(4)] == [True, True, False, False]
    assert "--shift=3,0" in page.text_content("#edit code")


def test_pictures_are_dropped_pasted_sampled_and_inverted(visit):
    page = visit()
    tab(page, "edit")
    data = base64.b64encode(png_bytes(noise_picture(seed=6))).decode()
    code = """([kind, data]) => {
        const bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0)), carried = new DataTransfer();
        carried.items.add(new File([bytes], `${kind}.png`, {type: "image/png"}));
        const event = kind === "drop" ? new DragEvent("drop", {dataTransfer: carried, cancelable: true})
            : new ClipboardEvent("paste", {clipboardData: carried, bubbles: true});
        (kind === "drop" ? document.querySelector("#edit .drop") : document.body).dispatchEvent(event);
    }"""
    shown = {}
    for kind in ("drop", "paste"):
        page.evaluate(code, [kind, data])
        page.wait_for_selector(f"#edit .drop:has-text('{kind}.png')")
        shown[kind] = shown_pixels(page, "#edit .thumb")[0]
        data = base64.b64encode(png_bytes(noise_picture(seed=7))).decode()
    for kind, seed in (("drop", 6), ("paste", 7)):
        assert np.array_equal(shown[kind][..., 0], np.asarray(noise_picture(seed=seed)))
    assert page.locator("#edit .samples button").count() == 3  # one of each class
    page.locator("#edit .samples button").nth(1).click()
    page.wait_for_selector("#edit .drop:has-text('sample 2')")
    assert np.array_equal(shown_pixels(page, "#edit .thumb")[0][..., 0], np.asarray(noise_picture(seed=2)))
    old = page.get_attribute("#edit .thumb", "src")
    page.click("#edit :text('Invert light and dark')")
    page.wait_for_selector(f"#edit .thumb:not([src='{old}'])")
    assert np.array_equal(shown_pixels(page, "#edit .thumb")[0][..., 0], 255 - np.asarray(noise_picture(seed=2)))


def test_an_edit_continues_with_its_result_and_shows_its_steps(visit):
    page = visit()
    tab(page, "edit")
    upload(page, "edit", noise_picture(seed=5))
    drag(page, (0, 0), (3, 3))
    run(page, "edit", Steps=4)
    drawn(page, "edit")
    page.locator("#edit .scrub input").focus()
    page.keyboard.press("Home")
    assert has_colour(panel(page, "edit", 2), HIDDEN)
    old = page.get_attribute("#edit .thumb", "src")
    page.click("#edit :text('Continue with this result')")
    page.wait_for_selector(f"#edit .thumb:not([src='{old}'])")
    assert marked(page) == []
    assert page.locator("#edit .wipe").count() == 0
    run_id = page.get_attribute("#edit .result", "data-run")
    assert run_id is None
    page.click("#edit-go")
    page.wait_for_selector("#edit .bar [role=alert]:has-text('region is empty')")
    drag(page, (1, 1), (1, 2))
    page.click("#edit-go")
    finished(page, "edit")
