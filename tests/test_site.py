"""The site of a profile, in a browser without a network, and the report, its first page."""

import base64
import json
import re
from types import SimpleNamespace

import jupytext
import nbformat
import pytest
from browser import chromium
from conftest import committed
from nbformat.v4 import new_markdown_cell, new_notebook
from test_pages import code, displayed

from speclab.run import DONE, FAILED, NEEDS_MODELS, pages, report, site
from speclab.run.findings import Headline, headlines_of
from speclab.show.notebook import drawn_in
from speclab.study.profiles import ROOT, load_profile

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)
RUNS, FORMULAS = "02_gamma_sweep", "12_how_sure"
FAILS, LACKS = "07_rejection_causes", "11_paper_audit"
SOURCES = sorted((ROOT / "notebooks").glob("[0-9]*.py"))
WIDE = " | ".join(["a long name of a column"] * 12)


def outcome(name, status=DONE, error="", **given):
    """How a notebook ended, as its stamp says it."""
    given = {"profile": "smollm", "overrides": {}, "changes": {}} | given
    return SimpleNamespace(name=name, status=status, error=error, given=given)


def formulas():
    """The text cells of all notebooks that have formulas."""
    cells = [cell.source for source in SOURCES for cell in jupytext.read(source).cells]
    return [text for text in cells if text.count("$") > 1]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The build folder of a made study: two notebooks ran, one failed, one lacks files. Its figures
    are a new study's.
    """
    place = tmp_path_factory.mktemp("site")
    build, figures = place / "build" / "mine", place / "figures" / "mine"
    for folder in (build, figures / "02", figures / "12"):
        folder.mkdir(parents=True)
    for name in ("dots.png", "dots-column.png"):
        (figures / "02" / name).write_bytes(PNG)
    (figures / "explore.html").write_text(
        "".join(f'<a data-page="{page}">any</a>' for page in ("02", "07", "index"))
    )
    picture = {"image/png": base64.b64encode(PNG).decode()}
    table = f"| {WIDE} |\n|{' --: |' * 12}\n|{' 1 |' * 12}"
    cells = [
        new_markdown_cell("# 2. Does it run?\nIt does."),
        code("install()", tags=["bootstrap"]),
        code("import this"),
        code("start()", displayed({"text/markdown": "**Answer.** It is 2 | 3."})),
        code("draw()", displayed(picture, **{"figure": "dots", "image/png": {"alt": 'A "dot"'}})),
        new_markdown_cell("## 1. A part\nSee [07](07_rejection_causes.ipynb)."),
        code("half = 1 / 2", tags=["by-hand"]),
        code("t()", *(displayed({"text/markdown": table}, caption=one) for one in ("Said", ""))),
    ]
    nbformat.write(new_notebook(cells=cells), build / f"{RUNS}.ipynb")
    texts = [new_markdown_cell(text) for text in ("# 12. Which formulas?", *formulas())]
    nbformat.write(new_notebook(cells=texts), build / f"{FORMULAS}.ipynb")
    for name in (RUNS, FORMULAS):
        pages.to_markdown(build / f"{name}.ipynb", figures)
    ended = [
        outcome(RUNS, changes={"gamma": 8}),
        outcome(FAILS, FAILED, "cell [3]: ValueError: no"),
        outcome(LACKS, NEEDS_MODELS, "The files are not here."),
        outcome(FORMULAS),
    ]
    (build / "site").mkdir()
    (build / "site" / f"{FAILS}.html").touch()  # of an earlier call
    report.write_report(build, figures, load_profile("tiny"), ended)
    return build


@pytest.fixture(scope="module")
def opened(built):
    """Opens a page of the site at a width; the addresses that it asked for."""
    with chromium() as browser:

        def page_at(name, width=1280, scheme="light"):
            page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page.set_default_timeout(120_000)  # a busy machine is no failure
            asked = []
            page.on("request", lambda request: asked.append(request.url))
            page.goto((built / f"{name}.html").as_uri())
            assert asked and all(url.startswith(("file:", "data:")) for url in asked)
            return page

        yield page_at


def test_a_page_has_its_answer_its_tables_and_its_code_by_hand(opened):
    page = opened(f"site/{RUNS}")
    assert "2. Does it run?" in page.locator("article h1").inner_text()
    assert page.locator("blockquote").inner_text() == "Answer. It is 2 | 3."
    assert page.locator("caption .caption-text").all_inner_texts() == ["Said", "A part"]
    assert page.locator("table td").count() == page.locator("th[scope=col]").count() == 24
    shown = [text.strip() for text in page.locator(".cell_input .highlight").all_inner_texts()]
    assert [*filter(None, shown)] == ["half = 1 / 2"], "other code is folded"
    hidden = page.locator("details .highlight").all_text_contents()
    assert [text.split() for text in hidden[:2]] == [
        ["import", "this", "start()", "draw()"],
        ["t()"],
    ]
    assert page.locator("article a", has_text="07").count() == 0, "no page, no link"
    assert page.locator("#pst-page-toc-nav a, .page-toc a").first.inner_text() == "1. A part"


@pytest.mark.parametrize(("width", "file"), [(1280, "dots.png"), (390, "dots-column.png")])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_figure_has_its_text_and_its_file_at_each_width(opened, width, file, scheme):
    page = opened(f"site/{RUNS}", width, scheme)
    figure = page.locator("picture img")
    assert figure.get_attribute("alt") == 'A "dot"'
    assert figure.evaluate("one => one.currentSrc").endswith(f"/02/{file}")
    assert figure.evaluate("one => one.naturalWidth") == 1, "the file is there"
    assert page.evaluate("document.documentElement.scrollWidth") <= width, "no sideways scrolling"


def test_every_formula_of_the_notebooks_is_drawn(opened):
    page = opened(f"site/{FORMULAS}")
    written = page.locator(".math").count()
    counted = "count => document.querySelectorAll('mjx-container').length == count"
    page.wait_for_function(counted, arg=written)
    assert written > 50 and page.locator("mjx-merror").count() == 0


def test_the_first_page_says_what_was_found_and_what_is_off(built, opened):
    page = opened("index")  # leads to the site's first page
    page.wait_for_url("**/site/index.html")
    text = page.locator("article").inner_text()
    assert "2. Does it run?" in text and "It is 2 | 3. Run with gamma=8." in text
    assert f"{FAILS} failed: cell [3]: ValueError: no" in text
    assert f"{LACKS} needs the models: The files are not here." in text
    links = page.locator("article a[href]").evaluate_all("all => all.map(a => a.href)")
    names = {link.rpartition("/")[2].partition("#")[0] for link in links} - {"index.html"}
    assert names >= {f"{RUNS}.html", "explore.html"} and not names & {f"{FAILS}.html"}
    assert all((built / "site" / name).is_file() for name in names)
    assert not (built / "site" / f"{FAILS}.html").exists(), "a page that is gone is gone"
    assert page.locator("article img").evaluate_all("all => all.every(a => a.naturalWidth)")
    explorer = (built / "site/explore.html").read_text("utf-8")
    assert re.findall('href="(.*?)"', explorer) == [f"{RUNS}.html", "index.html"]


# ---- headlines -----------------------------------------------------------------------------------


@pytest.fixture
def first_page(monkeypatch, tmp_path):
    """The first page, in Markdown, of the figures that come with the kit."""
    found = []
    monkeypatch.setattr(site, "write_site", lambda build, figures, text, names: found.append(text))

    def written(profile, changes, given):
        ended = [outcome(source.stem, **given) for source in SOURCES]
        settings = load_profile(ROOT / profile if "/" in profile else profile, changes)
        report.write_report(tmp_path, ROOT / "figures" / "smollm", settings, ended)
        return found.pop()

    return written


def test_the_report_has_the_true_headlines_in_order(first_page):
    if not committed("figures/*/*/numbers.json"):
        pytest.skip("the figures have changed")
    true = [(one, one.told(drawn_in(ROOT / "figures/smollm", one.notebook))) for one in HEADLINES]
    items = re.split(r"^\d+\. ", first_page("smollm", {}, {}).split("## Notebooks")[0], flags=re.M)[
        1:
    ]
    assert len(items) == len(true) > 5
    for item, (headline, said) in zip(items, true, strict=True):
        assert item.startswith(said) and f"[{headline.notebook}](" in item
        assert headline.figure or "<img" not in item, "no figure shows it"


HEADLINES = headlines_of("smollm")
EXAMPLE = "data/examples/support_tickets/study.yaml"


@pytest.mark.parametrize(
    ("profile", "changes", "given"),
    [
        ("smollm", {}, {"changes": {"gamma": 2}}),
        ("smollm", {}, {"overrides": {"prompts_per_domain": 10}}),
        (EXAMPLE, {}, {"profile": EXAMPLE}),
        (EXAMPLE, {"name": "smollm"}, {"profile": EXAMPLE}),
    ],
)
def test_headlines_are_for_the_projects_prompts_and_settings(first_page, profile, changes, given):
    text = first_page(profile, changes, given)
    assert "## Notebooks" not in text and HEADLINES[0].says[:20] not in text
    answer = json.loads((ROOT / "figures/smollm/03/numbers.json").read_text("utf-8"))["answer"]
    assert answer in text, "each notebook's answer instead"


def test_a_headline_that_is_not_true_in_a_run_is_left_out(tmp_path):
    """Also one whose table or row is missing; the others stay."""
    slot = {"table": "t", "row": {"domain": "math"}}
    values = {name: slot | {"column": name} for name in ("estimate", "low")}
    headline = Headline("02", "a", "It gives {estimate:.1f}.", values, "low > 1")
    known = {"02": {"name": "02_a", "folder": tmp_path}}
    for low, said in ((1.2, ["It gives 2.5."]), (0.9, []), ("", [])):
        (tmp_path / "t.csv").write_text(f"domain,estimate,low\nmath,2.5,{low}\n")
        assert [one["finding"] for one in report.headlined(known, [headline])] == said
    (tmp_path / "t.csv").write_text("domain,estimate,low\ncode,2.5,2\n")
    assert report.headlined(known, [headline]) == report.headlined({}, [headline]) == []
