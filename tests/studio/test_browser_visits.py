"""What stays and what goes in a real browser: running, stopping, reloading, expiring, the token, the phone."""

import pytest
from studio.browsing import box, drawn, finished, marked, ready, run, shown_pixels, tab, upload
from studio.live import running
from studio.toy import noise_picture, toy_pipe

TOKEN = "a-long-enough-token"


def start_long(page):
    """Press Generate for a run that takes minutes."""
    box(page, "generate", "Steps").fill("128")
    box(page, "generate", "How many images").fill("64")
    page.click("#generate-go")
    forming(page)


def forming(page):
    page.wait_for_selector("#generate .result[aria-busy=true]:not(.stale) .tile:nth-child(64)")


def test_the_token_form_lets_in_who_has_the_token(visit, model):
    with running(model, TOKENCRITIC_STUDIO_TOKEN=TOKEN) as address:
        page = visit(studio=address, open_page=False)
        visit.expect("401")
        page.goto(address)
        page.fill("#token", "not the token")
        page.click("text=Open")
        page.wait_for_selector("text=That was not the token.")
        page.fill("#token", TOKEN)
        page.keyboard.press("Enter")
        ready(page)
        run(page, "generate", How_many_images=1)
        assert page.url == address


def test_a_run_shows_its_images_as_they_form_and_stops_with_them(visit, slow_studio):
    page = visit(width=390, height=844, studio=slow_studio)
    start_long(page)
    go = page.locator("#generate-go")
    assert go.inner_text() == "Stop"
    for part in ("#generate-go", "#generate progress", "#generate .result .tile >> nth=0"):
        area = page.locator(part).bounding_box()
        assert area["y"] >= 0, part
        assert area["y"] < 844, part
    assert page.locator("#generate .tile").count() == 64
    assert "Step" in page.inner_text("#generate .status")
    assert page.locator("#generate .chosen .large").count() == 1  # in the place where the finished one will be
    box(page, "generate", "Steps").press("Enter")  # which starts a run, but stops none
    assert go.inner_text() == "Stop"
    go.click()  # a second press stops, and starts nothing
    finished(page, "generate")
    assert page.inner_text("#generate .status") == "Stopped"
    assert go.inner_text() == "Generate"
    assert page.locator("#generate .tile").count() == 64
    drawn(page, "generate")
    assert page.locator("#history button").count() > 0


def test_a_reload_in_the_middle_of_a_run_finds_it_again(visit, slow_studio):
    page = visit(studio=slow_studio)
    start_long(page)
    page.reload(wait_until="domcontentloaded")
    ready(page)
    forming(page)
    assert page.inner_text("#generate-go") == "Stop"
    assert box(page, "generate", "Steps").input_value() == "128"
    page.click("#generate-go")
    finished(page, "generate")
    visit.expect("AbortError")


def test_who_waits_is_told_so(visit, slow_studio):
    first, second = visit(studio=slow_studio), visit(studio=slow_studio)
    start_long(first)
    second.click("#generate-go")
    second.wait_for_selector("#generate .status:has-text('Waiting: one run is before this one')")
    first.click("#generate-go")
    finished(second, "generate")


def test_controls_pictures_and_results_are_there_after_a_reload(visit):
    page = visit()
    page.locator("#generate .chip", has_text="owl").click()
    page.locator("#generate").get_by_label("Seed").fill("41")
    run(page, "generate", How_many_images=3)
    tab(page, "refine")
    upload(page, "refine", noise_picture(seed=1))
    run(page, "refine")
    tab(page, "edit")
    upload(page, "edit", noise_picture(seed=2))
    page.locator("#edit .grid").focus()
    page.keyboard.press("Space")
    run(page, "edit")
    runs = {kind: page.get_attribute(f"#{kind} .result", "data-run") for kind in ("generate", "refine", "edit")}
    page.reload(wait_until="domcontentloaded")
    ready(page)
    for kind, shown in runs.items():
        page.wait_for_selector(f"#{kind} .result[data-run='{shown}']", state="attached")
    assert page.locator("#edit").is_visible()
    assert marked(page) == [0]
    assert (shown_pixels(page, "#edit .thumb")[0][..., 0] == noise_picture(seed=2)).all()
    assert page.locator("#generate .chip :checked").count() == 1
    assert page.locator("#generate").get_by_label("Seed").input_value() == "41"
    assert box(page, "generate", "How many images").input_value() == "3"
    page.wait_for_selector("#edit .wipe")
    upload(page, "edit", noise_picture(seed=3))
    assert page.locator("#edit .wipe").count() == 0  # the old result does not stand beside a new picture
    assert "press Resample" in page.inner_text("#edit .result")


def test_the_history_brings_back_runs_with_their_controls(visit):
    page = visit()
    page.locator("#generate").get_by_label("Seed").fill("5")
    run(page, "generate", How_many_images=2)
    first = page.get_attribute("#generate .result", "data-run")
    page.locator("#generate").get_by_label("Seed").fill("6")
    run(page, "generate", How_many_images=1)
    tab(page, "compare")
    run(page, "compare", How_many_images=2)
    shown = page.locator("#history button").all_inner_texts()
    assert shown == ["Compare, seed 0", "Generate, seed 6", "Generate, seed 5", "Generate, seed 0"]
    page.locator("#history button").nth(2).click()
    page.wait_for_selector(f"#generate .result[data-run='{first}']")
    assert page.locator("#generate .tile").count() == 2
    assert page.locator("#generate").get_by_label("Seed").input_value() == "5"
    assert box(page, "generate", "How many images").input_value() == "2"
    page.wait_for_selector("#history [aria-pressed=true]:has-text('Generate, seed 5')")


def test_the_history_brings_back_an_edit_with_its_picture(visit):
    page = visit()
    tab(page, "edit")
    upload(page, "edit", noise_picture(seed=2))
    page.locator("#edit .grid").focus()
    page.keyboard.press("Space")
    run(page, "edit")
    first = page.get_attribute("#edit .result", "data-run")
    upload(page, "edit", noise_picture(seed=3))
    assert marked(page) == []
    page.click("#history button:has-text('Edit')")
    page.wait_for_selector(f"#edit .result[data-run='{first}']")
    assert (shown_pixels(page, "#edit .thumb")[0][..., 0] == noise_picture(seed=2)).all()
    assert marked(page) == [0]


def test_a_run_that_has_expired_says_so(visit):
    page = visit()
    run(page, "generate", How_many_images=2)
    code = """async () => {
        for (let seed = 0; seed < 24; seed += 1) {
            const body = JSON.stringify({kind: "generate", values: {num: 1, seed}});
            const {id} = await (await fetch("/studio/runs", {method: "POST", body})).json();
            let told = {version: "", state: "waiting"};
            while (["waiting", "running"].includes(told.state))
                told = await (await fetch(`/studio/runs/${id}?seen=${encodeURIComponent(told.version)}`)).json();
        }
    }"""
    page.evaluate(code)
    visit.expect("410")
    page.locator("#generate .tile").nth(1).click()
    page.wait_for_selector("#generate :text('This run has expired')")
    page.click("#history button >> nth=-2")
    page.wait_for_selector("#generate .bar [role=alert]:has-text('this run has expired')")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_tab_fits_a_phone_in_light_and_dark(visit, dark):
    page = visit(width=390, height=844, dark=dark)
    finished(page, "generate")
    for kind in ("generate", "compare", "refine", "edit"):
        tab(page, kind)
        if kind in ("refine", "edit"):
            page.locator(f"#{kind} .samples button").first.click()
            page.wait_for_selector(f"#{kind} .thumb[src]")
        if kind == "edit":
            page.locator("#edit .grid").focus()
            page.keyboard.press("Space")
        run(page, kind)
        drawn(page, kind)
        wide = page.evaluate("Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)")
        assert wide <= 390, kind
        go = page.locator(f"#{kind}-go").bounding_box()
        assert 0 <= go["y"] < 844, kind
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    numbers = [float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    assert (sum(numbers) < 200) == dark, colour


def test_a_model_without_critic_and_classifier_has_a_page_too(visit, tmp_path):
    toy_pipe(critic=False, classifier=False).save_pretrained(tmp_path / "bare")
    with running(str(tmp_path / "bare")) as address:
        page = visit(studio=address)
        assert "This model has no critic." in page.inner_text("#what")
        run(page, "generate", How_many_images=2)
        assert "recognised" not in page.inner_text("#generate .result")
        tab(page, "refine")
        assert "needs a critic" in page.inner_text("#refine")
        tab(page, "generate")
        page.click("text=Edit this")
        page.wait_for_selector("#edit .painting")
        page.locator("#edit .grid").focus()
        page.keyboard.press("Space")
        run(page, "edit")
        assert "tokens changed" in page.inner_text("#edit .said")
        tab(page, "compare")
        run(page, "compare", How_many_images=2)
        assert page.locator("#compare thead th").all_inner_texts() == ["Without critic (MaskGIT)", "Halton order"]


def test_the_button_stays_in_view_with_all_settings_open(visit):
    page = visit(width=1200, height=700)
    page.click("#generate .advanced summary")
    go = page.locator("#generate-go").bounding_box()
    assert 0 <= go["y"] <= 700 - go["height"]
    page.evaluate("window.scrollTo(0, 400)")
    go = page.locator("#generate-go").bounding_box()
    assert 0 <= go["y"] <= 700 - go["height"]
