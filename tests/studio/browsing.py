"""What a visitor does with the page, and how its pixels are read."""

import base64
import io
from urllib.parse import urlsplit

import numpy as np
from PIL import Image
from studio.toy import png_bytes

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WAIT = 90_000  # milliseconds; on a machine that is busy with other work all is slow


def is_elsewhere(url, studio):
    parts = urlsplit(url)
    return parts.scheme not in ("data", "blob") and parts.netloc != urlsplit(studio).netloc


def ready(page):
    page.wait_for_selector("body[data-ready]")
    return page


def tab(page, name):
    page.click(f"#tab-{name}")


def box(page, kind, label):
    """The number of a control."""
    return page.locator(f"#{kind} input[type=number][aria-label='{label}']")


def run(page, kind, **numbers):
    """Fill in controls, press the button, and wait for the result of that. numbers: by label, with _ for a space."""
    for label, value in numbers.items():
        box(page, kind, label.replace("_", " ")).fill(str(value))
    old = page.get_attribute(f"#{kind} .result", "data-run") or ""
    page.click(f"#{kind}-go")
    finished(page, kind, old)


def finished(page, kind, old=""):
    """Wait for a result that is another one than the old."""
    page.wait_for_selector(f"#{kind} .result[data-run]:not([data-run='{old}'])")


def drawn(page, kind):
    """Wait until the steps are drawn."""
    page.wait_for_selector(f"#{kind} .viewer[data-drawn]")


def upload(page, kind, image):
    """Choose a file, and wait until the page shows it."""
    old = page.get_attribute(f"#{kind} .thumb", "src") or ""
    page.set_input_files(f"#{kind}-file", {"name": "x.png", "mimeType": "image/png", "buffer": png_bytes(image)})
    page.wait_for_selector(f"#{kind} .thumb[src]:not([src='{old}'])")


def drag(page, start, end):
    """Paint from one token of the toy's grid to another, in one movement of the mouse."""
    area = page.locator("#edit .grid").bounding_box()
    first, last = (
        (area["x"] + (column + 0.5) * area["width"] / 4, area["y"] + (row + 0.5) * area["height"] / 4)
        for row, column in (start, end)
    )
    page.mouse.move(*first)
    page.mouse.down()
    page.mouse.move(*last)
    page.mouse.up()


def marked(page):
    code = "cells => cells.flatMap((cell, at) => cell.classList.contains('marked') ? [at] : [])"
    return page.locator("#edit .grid div").evaluate_all(code)


def shown_pixels(page, selector):
    """The pixels of the images that a selector finds, at their own size."""
    code = """images => Promise.all(images.map(async image => {
        await image.decode();
        const canvas = document.createElement("canvas");
        [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
        canvas.getContext("2d").drawImage(image, 0, 0);
        return canvas.toDataURL("image/png");
    }))"""
    return [as_pixels(text) for text in page.locator(selector).evaluate_all(code)]


def as_pixels(text):
    """The pixels of a data URI."""
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text.partition(",")[2]))).convert("RGB"))


def panel(page, kind, row):
    """The pixels of a panel of the step viewer."""
    return as_pixels(
        page.locator(f"#{kind} .viewer canvas").nth(row).evaluate("canvas => canvas.toDataURL('image/png')")
    )


def picture_of(page, selector):
    return np.asarray(Image.open(io.BytesIO(page.locator(selector).first.screenshot())).convert("RGB"))


def has_colour(picture, colour):
    return bool((np.abs(picture.astype(int) - np.array(colour)).max(-1) <= 3).any())


def tab_to(page, condition, most=80):
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate(condition):
            return True
    return False


def shot(page, folder, name):
    """A picture of the whole page, with every image on it there, in 256 colours."""
    code = """async () => {
        const visible = [...document.images].filter(image => image.offsetParent !== null);
        await Promise.all(visible.map(image => image.decode()));
        return visible.length;
    }"""
    assert page.evaluate(code) > 0
    page.set_viewport_size(page.viewport_size | {"height": page.evaluate("document.documentElement.scrollHeight")})
    picture = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
    picture.quantize(256, kmeans=3, dither=Image.Dither.NONE).save(folder / f"studio_{name}.png", optimize=True)
