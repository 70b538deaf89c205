"""The site of a profile: its pages in a browser without a network, and the report, its first page."""

import base64
import json
from types import SimpleNamespace

import nbformat
import pytest
from browser import chromium
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from speclab.run import report, site
from speclab.study.profiles import ROOT, load_profile

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)
DONE, FAILS, LACKS = "02_gamma_sweep", "07_rejection_causes", "11_paper_audit"


def displayed(data, **metadata):
    """An output that a notebook displays."""
    return new_output("display_data", data, metadata=metadata)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The build folder of a made study: one notebook ran, one failed, one lacks files."""
    place = tmp_path_factory.mktemp("site")
    build, figures = place / "build" / "mine", place / "figures" / "mine"
    folder = figures / "02"
    for one in (build, folder):
        one.mkdir(parents=True)
    for name in ("dots.png", "dots-column.png"):
        (folder / name).write_bytes(PNG + name.encode())
    (folder / "captions.json").write_text(json.dumps({"dots": "Dots."}))
    (folder / "numbers.json").write_text(json.dumps({"answer": "**It** is 2 | 3."}))
    shown = {"image/png": base64.b64encode(PNG + b"dots.png").decode()}
    formula = "The formula $x^2$ and\n\n$$\\frac{a}{b}$$\n\n| a | b |\n| --- | --: |\n| c | 1 |"
    cells = [
        new_markdown_cell("# 2. Does it run?\nIt does."),
        new_code_cell(
            "start()", outputs=[displayed({"text/markdown": "**Answer.** It is 2 | 3."})]
        ),
        new_code_cell(
            "draw()", outputs=[displayed(shown, **{"image/png": {"alt": 'Many "dots".'}})]
        ),
        new_markdown_cell(f"## 1. A part\n{formula}\n\nSee [07](07_rejection_causes.ipynb)."),
        new_code_cell("half = 1 / 2", metadata={"tags": ["by-hand"]}),
    ]
    nbformat.write(new_notebook(cells=cells), build / f"{DONE}.ipynb")
    ended = {
        DONE: (report.DONE, ""),
        FAILS: (report.FAILED, "cell [3]: ValueError: no"),
        LACKS: (report.NEEDS_FILES, "The files are not here."),
    }
    outcomes = [
        SimpleNamespace(name=name, status=status, error=error, given={"changes": {"a": 1}})
        for name, (status, error) in ended.items()
    ]
    profile = load_profile("tiny")
    index = report.write_report(build, figures, profile, outcomes, dict.fromkeys(ended, ""))
    assert index == build / "index.html" and 'url=site/index.html"' in index.read_text("utf-8")
    return build


@pytest.fixture(scope="module")
def pages_of(built):
    """Opens a page of the site at a width; the addresses that it asked for."""
    with chromium() as browser:

        def opened(name, width=1280, scheme="light"):
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            asked = []
            page.on("request", lambda request: asked.append(request.url))
            page.goto((built / "site" / f"{name}.html").as_uri())
            page.wait_for_load_state("networkidle")
            return page, asked

        yield opened


def test_a_page_needs_no_network_and_draws_its_formulas(pages_of):
    page, asked = pages_of(DONE)
    assert asked and all(url.startswith(("file:", "data:")) for url in asked)
    assert page.locator("mjx-container").count() == 2
    assert page.locator("article h1").count() == 1
    assert "2. Does it run?" in page.locator("article h1").inner_text()
    assert page.locator("blockquote").inner_text() == "Answer. It is 2 | 3."
    assert page.locator("table td").all_inner_texts() == ["c", "1"]


def test_code_is_folded_but_what_is_by_hand(pages_of):
    page, _ = pages_of(DONE)
    code = page.locator(".cell_input .highlight")
    seen = [text.strip() for text in code.all_inner_texts() if text.strip()]
    assert seen == ["half = 1 / 2"]
    assert page.locator("details.hide", has_text="Code").count() == 1, "joined with the next"


@pytest.mark.parametrize(("width", "file"), [(1280, "dots.png"), (390, "dots-column.png")])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_figure_has_its_text_and_its_file_at_each_width(pages_of, width, file, scheme):
    page, _ = pages_of(DONE, width, scheme)
    figure = page.locator("picture img")
    assert figure.get_attribute("alt") == "Many dots."
    assert figure.evaluate("one => one.currentSrc").endswith(f"/figures/02/{file}")
    assert figure.evaluate("one => one.naturalWidth") == 1, "the file is there"
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= width, "nothing is wider than the screen"


def test_the_report_says_what_was_found_and_what_is_off(pages_of):
    page, asked = pages_of("index")
    text = page.locator("article").inner_text()
    assert all(url.startswith(("file:", "data:")) for url in asked)
    assert "It is 2 | 3." in text and "Of 3 notebooks 1 failed, 1 lacked files." in text
    assert "failed: cell [3]: ValueError: no" in text
    assert "needs files: The files are not here." in text
    links = page.locator("article a[href$='.html']").evaluate_all("all => all.map(a => a.href)")
    assert {link.rpartition("/")[2] for link in links} == {f"{DONE}.html"}, "no page, no link"
    assert page.locator("article img").evaluate_all("all => all.every(a => a.naturalWidth)")


def test_the_pages_of_a_study_are_built_again_from_nothing(built):
    (built / "site" / f"{DONE}.html").unlink()
    site.write_site(built, built.parents[1] / "figures" / "mine", "# Again", [])
    assert not (built / "site" / f"{DONE}.html").exists(), "a page that is gone is gone"
    assert "Again" in (built / "site" / "index.html").read_text("utf-8")
    assert (ROOT / "speclab/run/report.md.j2").is_file()
