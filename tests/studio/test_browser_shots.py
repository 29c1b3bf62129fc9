"""Pictures of every tab for the documentation, of the bundled model, in light, in dark and on a phone.

TOKENCRITIC_SCREENSHOTS=docs/pictures pytest tests/studio/test_browser_shots.py
"""

import os
from pathlib import Path

import pytest
from studio.browsing import drawn, finished, run, shot, tab
from studio.live import running

SCREENSHOTS = os.environ.get("TOKENCRITIC_SCREENSHOTS")


def paint(page):
    """Mark the middle of the picture."""
    page.wait_for_selector("#edit .painting")
    page.locator("#edit input[type=number][aria-label=Brush]").fill("4")
    area = page.locator("#edit .grid").bounding_box()
    for down in (0.35, 0.6):
        page.mouse.move(area["x"] + area["width"] * 0.3, area["y"] + area["height"] * down)
        page.mouse.down()
        page.mouse.move(area["x"] + area["width"] * 0.7, area["y"] + area["height"] * down)
        page.mouse.up()


def pictures(page, folder, ending):
    finished(page, "generate")
    drawn(page, "generate")
    shot(page, folder, f"generate{ending}")
    tab(page, "compare")
    run(page, "compare")
    drawn(page, "compare")
    shot(page, folder, f"compare{ending}")
    tab(page, "generate")
    page.locator("#generate .tile").nth(8).click()
    page.click("text=Refine this")
    page.wait_for_selector("#refine :text('Taken as')")
    run(page, "refine")
    drawn(page, "refine")
    shot(page, folder, f"refine{ending}")
    tab(page, "edit")
    page.locator("#edit .samples button").first.click()
    paint(page)
    run(page, "edit")
    drawn(page, "edit")
    shot(page, folder, f"edit{ending}")


@pytest.mark.skipif(not SCREENSHOTS, reason="TOKENCRITIC_SCREENSHOTS names no folder")
def test_pictures_of_every_tab(visit):
    folder = Path(SCREENSHOTS)
    folder.mkdir(parents=True, exist_ok=True)
    with running("fashion-mnist") as address:
        for ending, look in (
            ("", {"width": 1200}),
            ("_dark", {"width": 1200, "dark": True}),
            ("_phone", {"width": 390}),
        ):
            pictures(visit(studio=address, **look), folder, ending)
