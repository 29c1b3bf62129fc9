"""What a visitor does with the page, and how its pixels are read."""

import base64
import io
from urllib.parse import urlsplit

import numpy as np
from PIL import Image

FLAGS = [
    "--headless",
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


def generate(page, num=4):
    fill(page, "How many images", num)
    page.click("#generate-go")
    page.wait_for_selector("#generate-result .tc-thumb")


def fill(page, label, value):
    """The number beside a slider of the tab that is shown; once more if the page, still setting up, puts its own back."""
    box = page.locator(f'input[type=number][aria-label*="{label}"]:visible').first
    two_frames_later = (
        "box => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(box.value))))"
    )
    for _ in range(10):
        box.fill(str(value))
        box.press("Tab")
        if box.evaluate(two_frames_later) == str(value):
            return
    raise AssertionError(f"{label} does not stay at {value}")


def tab(page, name):
    page.get_by_role("tab", name=name).click()


def shown_pixels(page, selector):
    """The pixels of the images that a selector finds, at their own size."""
    code = """images => Promise.all(images.map(async image => {
        await image.decode();
        const canvas = document.createElement("canvas");
        [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
        canvas.getContext("2d").drawImage(image, 0, 0);
        return canvas.toDataURL("image/png");
    }))"""
    found = page.locator(selector).evaluate_all(code)
    return [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(text.partition(",")[2]))).convert("RGB")) for text in found
    ]


def picture_of(page, selector):
    return np.asarray(Image.open(io.BytesIO(page.locator(selector).first.screenshot())).convert("RGB"))


def has_colour(picture, colour):
    return bool((np.abs(picture.astype(int) - np.array(colour)).max(-1) <= 3).any())


def tab_to(page, condition, most=60):
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate(condition):
            return True
    return False


def shot(page, folder, name):
    """A picture of the whole page, with every image on it there."""
    code = """async () => {
        const behind = [...document.querySelectorAll(".tc-panel")].map(panel => {
            const image = new Image();
            image.src = panel.style.backgroundImage.slice(5, -2);
            return image;
        });
        const visible = [...document.images].filter(image => image.offsetParent !== null);
        await Promise.all([...behind, ...visible].map(image => image.decode()));
        return visible.length;
    }"""
    assert page.evaluate(code) > 0
    page.screenshot(path=folder / f"studio_{name}.png", full_page=True)
