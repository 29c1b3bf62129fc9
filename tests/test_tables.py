"""The numbers of the pages are those of the JSON files, and no other number looks like one of them."""

import json
import re
import shutil
from pathlib import Path

import pytest
import tables
from result_files import Results
from result_tables import Table
from tables import PAGES, Page

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / tables.RESULTS
TEXTS = {name: (ROOT / name).read_text() for name in PAGES}


@pytest.fixture(scope="module")
def results():
    return Results(RESULTS)


@pytest.mark.parametrize("name", PAGES)
def test_pages_and_results_agree(name, results):
    page = Page(TEXTS[name], PAGES[name], results)
    assert page.findings == []
    assert page.text == TEXTS[name], "run `make tables`"


@pytest.mark.parametrize("name", PAGES)
def test_a_changed_digit_is_found_and_mended_wherever_it_is_generated(name, results):
    text = TEXTS[name]
    blocks = [found.span(3) for found in tables.BLOCK.finditer(text) if found[0].startswith("<!-- table")]
    digits = [at.start() for start, end in blocks for at in re.compile(r"\d").finditer(text, start, end)]
    for place in digits[:: max(1, len(digits) // 40)]:
        changed = text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :]
        assert Page(changed, PAGES[name], results).text == text
    # In a sentence: the list of numbers has another one than the text.
    for comment in tables.NUMBERS.finditer(text):
        for shown, _ in tables._listed(comment):
            start = tables._paragraph(text, comment)
            number = tables._pattern(shown).search(text, start, comment.start())
            changed = text[: number.start()] + "9" + text[number.start() :]
            assert Page(changed, PAGES[name], results).findings


@pytest.fixture
def own(tmp_path):
    """Results that a test may change."""
    for name in ("cost_6", "cost_6.6"):
        shutil.copy(RESULTS / f"{name}.json", tmp_path)
    return tmp_path


def page_of(text, folder):
    return Page(text, "", Results(folder))


def test_a_new_result_changes_tables_and_sentences(own):
    sentence = (
        "It has 0.68 of MaskGIT's FID, 32 % less, 0.160.\n<!-- numbers\n0.68 = cost_6.6:inline / cost_6.6:confidence\n"
    )
    sentence += "32 % = 1 - cost_6.6:inline:fid / cost_6.6:confidence\n0.160 = cost_6.6:inline\n-->\n"
    text = f"{sentence}\n<!-- table cost -->\n<!-- end -->\n"
    before = page_of(text, own)
    assert before.text.startswith(sentence)
    assert "| inline critic, 6 steps | 6 | 6.58 | 0.160 ± 0.020 | 0.68 | 0.69 |" in before.text
    content = json.loads((own / "cost_6.6.json").read_text())
    (inline,) = [one for one in content["results"] if one["row"]["sampler"] == "inline"]
    inline["metrics"]["fid"] |= {"value": 0.3, "std": 0.02}
    (own / "cost_6.6.json").write_text(json.dumps(content))
    after = page_of(before.text, own)
    assert after.text.startswith(
        "It has 1.27 of MaskGIT's FID, -27 % less, 0.300.\n<!-- numbers\n1.27 = cost_6.6:inline /"
    )
    assert "| inline critic, 6 steps | 6 | 6.58 | 0.300 ± 0.020 | 1.27 | 1.30 |" in after.text
    assert page_of(after.text, own).text == after.text


def test_what_has_no_result_yet_is_left_alone_and_listed_until_it_has_one(own):
    text = "There 0.50 is typed, and 0.72.\n<!-- numbers\n0.50 = main_27:critic / main_27:confidence\n0.72 = the paper\n-->\n"
    text += "\n<!-- typed cost -->\n| 0.123 |\n|---|\n<!-- end -->\n\n<!-- typed: one trial -->\n0.456\n<!-- end -->\n"
    (own / "cost_6.6.json").rename(own / "later.json")
    page = page_of(text, own)
    assert (page.text, page.findings, page.tables) == (text, [], 0)
    assert [one.split(": ", 1)[1] for one in page.typed] == [
        "table: cost, needs cost_6.6.json",
        "text: one trial",
        "number 0.50: main_27:critic / main_27:confidence",
        "number 0.72: the paper",
    ]
    shutil.copy(own / "cost_6.json", own / "main_27.json")
    (own / "later.json").rename(own / "cost_6.6.json")
    page = page_of(text, own)
    assert page.text.startswith("There 0.93 is typed, and 0.72.\n<!-- numbers\n0.93 = ")
    assert "<!-- table cost -->\n```bash\ntoken-critic compare" in page.text
    assert "0.123" not in page.text
    assert page.tables == 1
    (own / "cost_6.6.json").unlink()
    assert "<!-- typed cost -->\n```bash" in page_of(page.text, own).text


@pytest.mark.parametrize("text", ["FID is 0.123.", "FID is 21.85 here", "| 7 ± 2 |", "It is 12 % less.", "of 0.72: so"])
def test_a_number_that_nobody_accounts_for_is_found(text, own):
    (finding,) = page_of(f"# Page\n\n{text}\n", own).findings
    assert finding.startswith("3: ")


def test_other_numbers_are_no_metrics(own):
    text = "Run `--temperature 1.118 0.769` for 3 sets of 2,000 images, [PRISM, arXiv:2510.01384](https://a.b/2510.01384).\n"
    assert (
        page_of(f"{text}\n```bash\ntoken-critic sample --temperature 1.094\n```\nPython 3.11.7, 2.0.\n", own).findings
        == []
    )


def test_mistakes_are_findings(own):
    assert "there is no table nothing" in page_of("<!-- table nothing -->\n<!-- end -->", own).findings[0]
    twice = "It is 0.16 and 0.16.\n<!-- numbers\n0.16 = cost_6.6:inline\n0.16 = cost_6.6:confidence\n-->\n"
    assert "0.16 stands for 0.16 and 0.24" in page_of(twice, own).findings[0]
    with pytest.raises(ValueError, match="is no expression"):
        page_of("It is 0.12.\n<!-- numbers\n0.12 = cost_6:inline + exit()\n-->\n", own)
    with pytest.raises(
        ValueError, match=r"cost_6.json has no row inlin; it has confidence, critic, inline, random-remask"
    ):
        page_of("It is 0.12.\n<!-- numbers\n0.12 = cost_6:inlin\n-->\n", own)


def result(settings, fid, refined=None):
    images = {"settings": settings, "num": 500, "seed_sets": 1} | (
        {"refinement": {"settings": refined}} if refined else {}
    )
    metrics = {"fid": {"value": fid, "std": None, "std_over": ""}}
    return {"images": images, "metrics": metrics, "nfe": 10, "cost": 9.5, "seconds_per_image": 0.0421}


def test_evaluations_refinement_rejection_and_times_are_rows_too(tmp_path):
    maskgit = {"sampler": "confidence", "steps": 18, "candidates": 1, "reject_by": None}
    control = maskgit | {"sampler": "random-remask"}
    refined = {"before": result(maskgit, 0.4), "after": result(maskgit, 0.2, maskgit | {"sampler": "critic"})}
    at_random = {"before": result(maskgit, 0.4), "after": result(maskgit, 0.3, control)}
    for name, results in {"refined": refined, "refined_at_random": at_random}.items():
        content = {"command": f"token-critic evaluate M --name {name}", "results": results}
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    columns = ("nfe", "cost", "ms", "fid", "/confidence", "precision", "recall", "accuracy")
    table = Table({"": ("refined", "refined_at_random")}, None, columns)
    text = table.text(Results(tmp_path))
    assert text.splitlines()[1:] == [
        "token-critic evaluate M --name refined",
        "token-critic evaluate M --name refined_at_random",
        "```",
        "",
        "| one set of 500 images | NFE | cost | FID | FID / MaskGIT | precision | recall | class accuracy |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| MaskGIT, 18 steps | 10 | 9.50 | 0.400 |  |  |  |  |",
        "| MaskGIT, 18 steps, refined by the critic | 10 | 9.50 | 0.200 | 0.50 |  |  |  |",
        "| MaskGIT, 18 steps, refined at random | 10 | 9.50 | 0.300 | 0.75 |  |  |  |",
    ]
    timed = {"command": "", "results": [*refined.values(), *at_random.values()]}
    (tmp_path / "time_steps.json").write_text(json.dumps(timed))
    assert "| MaskGIT, 18 steps, refined at random | 10 | 9.50 | 42.1 | 0.300 |" in table.text(Results(tmp_path))
    best = result(maskgit | {"candidates": 5, "reject_by": "classifier"}, 0.5)
    (tmp_path / "rejection.json").write_text(json.dumps({"command": "", "results": [result(maskgit, 0.4), best]}))
    rejection = Table({"": ("rejection",)}, None, ("nfe", "cost", "fid"))
    assert "| MaskGIT, 18 steps, best 20 % by the classifier | 10 | 9.50 | 0.500 |" in rejection.text(Results(tmp_path))
    assert Results(tmp_path).value("rejection", "confidence-5-classifier", None) == 0.5
