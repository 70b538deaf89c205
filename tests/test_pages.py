"""What a reader sees of an executed notebook: the HTML page and the Markdown page, their tables and
tokens, the report, and the pages that come with the kit.
"""

import base64
import re
import shutil
from types import SimpleNamespace

import jupytext
import nbformat
import pandas as pd
import pytest
from browser import chromium
from conftest import committed
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from speclab.run import pages, report
from speclab.run.findings import Headline, headlines_of
from speclab.show import pictures, tables
from speclab.show.notebook import drawn_in
from speclab.study.profiles import ROOT, load_profile

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)
TITLE = """# 2. Does it run?
It does.

![a dot](../../figures/tiny/02/first.png)

*Runs on* any machine."""
MINE = "/home/me/mine.jsonl"
SOURCES = sorted((ROOT / "notebooks").glob("[0-9]*.py"))
FOLDERS = [path.parent for path in committed("figures/*/[0-9]*/numbers.json")]


def displayed(data, **metadata):
    """An output that a notebook displays."""
    return new_output("display_data", data, metadata=metadata)


def picture(content, alt):
    """A figure, as `Context.draw` displays it."""
    shown = {"image/png": base64.b64encode(content).decode(), "text/plain": "<IPython Image>"}
    return displayed(shown, **{"image/png": {"alt": alt, "width": 770}})


def code(source, *outputs, tags=()):
    """A cell of code that has run."""
    return new_code_cell(source, outputs=list(outputs), metadata={"tags": list(tags)})


def stream(text, name="stdout"):
    """What a cell printed."""
    return new_output("stream", name=name, text=text)


@pytest.fixture
def executed(tmp_path, monkeypatch):
    """An executed notebook between two others, with two figures and a table, as the runner leaves
    it; its folder of figures.
    """
    build, folder = tmp_path / "build" / "tiny", tmp_path / "figures" / "tiny" / "02"
    for one in (build, folder, tmp_path / "notebooks"):
        one.mkdir(parents=True)
    second = PNG + b"more"
    (folder / "first.png").write_bytes(PNG)
    (folder / "second.png").write_bytes(second)
    (folder / "rows.csv").write_text("a\n1\n")
    runs = "read from data/traces/tiny/greedy (recorded 2026-11-22)\n"
    more = f"read from {tmp_path}/traces/sampled (recorded 2026-11-23)\nsaid\n"
    cells = [
        new_markdown_cell(TITLE),
        code("gamma: int = 4", tags=["parameters"]),
        code("# Parameters\ngamma = 3\noverrides = {}"),
        code("install()", tags=["bootstrap"]),
        code("import this"),
        code("start()", displayed({"text/markdown": "**Answer.** Yes, 2 | 3."}), stream(runs)),
        code("read()", stream(more), stream("tiny is in use: waiting for it", "stderr")),
        new_markdown_cell("## By hand\nSee [03](03_next.ipynb)."),
        code("half = 1 / 2", tags=["by-hand"]),
        code("draw()", picture(PNG, "One `dot`."), picture(second, "Two [dots], $5.")),
        code("ctx.table()", displayed({"text/markdown": "*all of them are in `02/rows.csv`.*"})),
    ]
    cells[2].metadata["tags"] = ["injected-parameters"]
    book = new_notebook(cells=cells)
    book.metadata["papermill"] = {"parameters": {"gamma": 3, "overrides": {"prompts": MINE}}}
    nbformat.write(book, build / "02_it.ipynb")
    for name in ("01_before", "02_it", "03_next"):
        nbformat.write(book, tmp_path / "notebooks" / f"{name}.ipynb")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    pages.publish(build / "02_it.ipynb", folder.parent, ["01_before", "03_next"])
    return folder


def test_both_pages_tell_the_same_in_the_same_order(executed):
    markdown = (executed / pages.PAGE).read_text("utf-8")
    html = (executed.parents[2] / "build" / "tiny" / "02_it.html").read_text("utf-8")
    for page, title in ((markdown, "# 2. Does it run?"), (html, "<h1>2. Does it run?</h1>")):
        parts = (
            *(title, "Yes, 2 | 3.", "It does.", "2 recorded runs (2026-11-22 to 2026-11-23)"),
            *("tiny/greedy", "traces/sampled", "gamma = 3", "said", "By hand", "half"),
            *("The figure is at the top of this page.", "rows.csv"),
        )
        places = [page.index(part) for part in parts]
        assert places == sorted(places), [part for part in parts if part in page]
        for text in ("waiting for it", "install()", "/home/me", str(executed.parents[2])):
            assert text not in page, text
        assert page.count("Answer.") == 1 and page.count("read from") == 0
    assert "<title>2. Does it run?</title>" in html


def test_the_page_in_markdown_links_to_what_lies_beside_it(executed):
    page = (executed / pages.PAGE).read_text("utf-8")
    assert page.count("![") == 2 and "![a dot](first.png)" in page
    assert "![Two dots, 5.](second.png)" in page, "no mark of Markdown in a picture's text"
    assert "[`02/rows.csv`](rows.csv)" in page
    ways = "[← 01](../01/README.md) · [03 →](../03/README.md) · [report](../index.html)"
    assert page.count(ways) == 2 and "[03](../03/README.md)" in page
    folds = re.findall(r"<details>.*?</details>", page, re.DOTALL)
    assert not any("half = 1 / 2" in fold for fold in folds), "by hand: shown"
    folded = [text for text in ("gamma: int", "import this", "draw()") if text in "".join(folds)]
    assert len(folded) == 3 and all("\n\n```python\n" in fold for fold in folds[1:])


def test_the_same_numbers_make_the_same_page_and_others_another_stamp(executed):
    book = executed.parents[2] / "build" / "tiny" / "02_it.ipynb"
    around = ["01_before", "03_next"]

    def again():
        return pages.to_markdown(book, executed, executed.parent, around).read_bytes()

    before = (executed / pages.PAGE).read_bytes()
    assert again() == before
    (executed / "second.svg").write_text("drawn in another style")
    assert again() == before
    (executed / "rows.csv").write_text("a\n2\n")
    first, _, rest = again().partition(b"\n")
    assert not before.startswith(first) and before.endswith(rest)


def test_the_page_of_html_hides_its_code_and_asks_for_nothing(executed):
    file = executed.parents[2] / "build" / "tiny" / "02_it.html"
    with chromium() as browser:
        page = browser.new_page()
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri())
        assert [url for url in asked if not url.startswith("data:")] == [file.as_uri()]
        alts = page.eval_on_selector_all("img", "all => all.map(one => one.alt)")
        assert alts == ["a dot", "Two [dots], $5."]
        links = page.eval_on_selector_all("a:has(img)", "all => all.map(one => one.href)")
        assert all(link.endswith(".png") and "/figures/tiny/02/" in link for link in links)
        seen = "all => all.filter(one => one.offsetParent).map(one => one.innerText.trim())"
        assert page.eval_on_selector_all(".highlight", seen) == ["half = 1 / 2"]
        page.click("label[for=show-code]")
        assert len(page.eval_on_selector_all(".highlight", seen)) == 4
        assert page.locator("pre", has_text="waiting").count() == 0


# ---- tables and tokens ---------------------------------------------------------------------------


def test_a_table_aligns_text_and_writes_numbers_as_a_reader_does():
    frame = pd.DataFrame(
        {
            "what": ["a|b", None],
            "count": [12345, -1],
            "gain": [-0.25, -0.0001],
            "p_holm": [0.0, 0.25],
            "p": [0.0, 1.0],
            "accepted": [True, False],
        }
    )
    assert tables.markdown(frame, 2).splitlines() == [
        r"| what | count | gain | p\_holm | p | accepted |",
        "| :-- | --: | --: | --: | --: | :-- |",
        r"| a\|b | 12,345 | −0.25 | &lt; 0.001 | 0.00 | yes |",
        "|  | −1 | 0.00 | 0.25 | 1.00 | no |",
    ]


def test_tokens_in_markdown_are_those_of_the_colours():
    steps = [
        SimpleNamespace(tokens=[0, 1], accepted=1, drafted=2, kind="recovered"),
        SimpleNamespace(tokens=[2], accepted=0, drafted=0, kind="bonus"),
    ]
    page = pictures.as_html(steps, ["<a", "`", "\n"])
    said = pictures.as_markdown(page)
    assert said.startswith("┃ `<a` **`` ` ``** ┃ *`⏎`*")
    assert said.endswith(
        "begins a block. 3 tokens in 2 target passes · 1.50 tokens per target pass."
    )
    assert pictures.as_markdown("<b>else</b>") == "<b>else</b>"


# ---- the report ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """The report of the figures that come with the kit, none of which ran here: one notebook
    failed, one lacks its files.
    """
    place = tmp_path_factory.mktemp("reported")
    unused = shutil.ignore_patterns("*.pdf", "*.svg", "*.tex")
    for name in ("smollm", "public"):
        shutil.copytree(ROOT / "figures" / name, place / "figures" / name, ignore=unused)
    build = place / "build" / "smollm"
    build.mkdir(parents=True)
    ended = dict.fromkeys(
        [path.stem for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")], (report.DONE, "")
    )
    ended["07_rejection_causes"] = report.FAILED, "cell [3]: no"
    ended["13_public_runs"] = report.NEEDS_FILES, "The files are not here."
    outcomes = [
        SimpleNamespace(name=name, status=status, error=error, given={})
        for name, (status, error) in ended.items()
    ]
    remarks = dict.fromkeys(ended, "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "embedded", lambda path: path.as_uri())
        figures, profile = place / "figures" / "smollm", load_profile("smollm")
        report.write_index(build, figures, profile, outcomes, remarks)
    return build / "index.html"


def numbers_of(page):
    """The notebooks whose findings a report prints, in order, and what it prints of all."""
    findings, rest = page.read_text("utf-8").split("All notebooks")
    order = re.findall(r"quiet>\s*(?:<a [^>]*>)?(\d+)\. ", findings)
    return [f"{int(number):02d}" for number in order], rest


def test_the_report_has_the_headlines_in_order_and_says_what_is_off(reported):
    order, rest = numbers_of(reported)
    true = [one.notebook for one in headlines_of("smollm") if told(one)]
    assert order == true and len(order) > 5
    page = reported.read_text("utf-8")
    assert "Of 15 notebooks 1 failed, 1 lacked files." in page
    assert "Failed: cell [3]: no" in rest and "here.." not in page
    assert rest.count(report.COMMITTED) == 1 and rest.count("<img") == 1, "its figures, labelled"


def told(headline):
    """A headline of the committed tables."""
    folder = drawn_in(ROOT / "figures" / "smollm", headline.notebook)
    [said] = report.headlined([shown(headline.notebook, folder)], [headline]) or [None]
    return said and said.finding


def shown(number, folder):
    """What the report knows of a notebook with figures in a folder."""
    return report.Reported(f"{number}_a", "?", {"answer": "It is 5."}, [folder / "a.png"], {})


def test_a_headline_that_is_not_true_in_a_run_is_left_out(tmp_path):
    """Also one whose table or row is missing; the others stay."""
    rows = "domain,estimate,low\nmath,2.5,{low}\n"
    headline = Headline(
        "02",
        "a",
        "It gives {math:.1f}.",
        {
            "math": {"table": "t", "row": {"domain": "math"}, "column": "estimate"},
            "low": {"table": "t", "row": {"domain": "math"}, "column": "low"},
        },
        "low > 1",
    )
    for low, said in ((1.2, ["It gives 2.5."]), (0.9, []), ("", [])):
        (tmp_path / "t.csv").write_text(rows.format(low=low))
        found = report.headlined([shown("02", tmp_path)], [headline])
        assert [one.finding for one in found] == said and all(one.is_drawn for one in found)
    (tmp_path / "t.csv").write_text("domain,estimate,low\ncode,2.5,2\n")
    assert report.headlined([shown("02", tmp_path)], [headline]) == []
    assert report.headlined([shown("03", tmp_path)], [headline]) == []


def test_a_finding_that_no_figure_shows_has_no_picture(reported):
    alone = [one.says[:20] for one in headlines_of("smollm") if not one.figure]
    findings = reported.read_text("utf-8").split("All notebooks")[0].split("<li>")
    without = [item for item in findings if any(words in item for words in alone)]
    assert len(without) == len(alone) > 0 and not any("<img" in item for item in without)


@pytest.mark.parametrize(
    ("profile", "changes", "given", "is_used"),
    [
        ("smollm", {}, {}, True),
        ("smollm", {}, {"overrides": {}, "changes": {"gamma": 2}}, False),
        ("smollm", {"prompts_per_domain": 10}, {}, False),
        ("data/examples/support_tickets/study.yaml", {}, {}, False),
        ("data/examples/support_tickets/study.yaml", {"name": "smollm"}, {}, False),
    ],
)
def test_headlines_are_for_the_projects_prompts_and_settings(profile, changes, given, is_used):
    settings = load_profile(ROOT / profile if "/" in profile else profile, changes)
    assert report.is_as_shipped(settings, [SimpleNamespace(given=given)]) == is_used


def test_a_study_without_headlines_reports_each_answer(tmp_path):
    found = [shown("13", tmp_path), shown("07", tmp_path)]
    found.append(report.Reported("08_c", "?", {"answer": ""}, [], {}))
    answers = [(one.number, one.finding) for one in report.with_answers(found)]
    assert answers == [("13", "It is 5."), ("07", "It is 5.")]
    assert headlines_of("tiny") == []


# ---- what comes with the kit ---------------------------------------------------------------------


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_every_formula_of_a_notebook_is_drawn(source):
    for cell in jupytext.read(source).cells:
        if cell.cell_type == "markdown":
            shown = re.sub(r'<img class="formula.*?>|`[^`]*`', "", pages.with_formulas(cell.source))
            assert "$" not in shown


def test_a_formula_is_a_picture_with_its_latex_as_text():
    text = r"An $x^2$ costs \$5, `$HOME` and"
    shown = pages.with_formulas(text)
    [picture] = re.findall(r"<img .*?>", shown)
    assert 'alt="x^2"' in picture and "data:image/svg+xml;base64," in picture
    assert shown.replace(picture, "$x^2$") == text
    assert 'class="formula alone"' in pages.with_formulas("$$\\frac{1}{2}$$")
    assert pages.with_formulas(r"$\unknown$") == r"$\unknown$"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: "/".join(path.parts[-2:]))
def test_a_committed_page_is_of_the_committed_notebook_and_numbers(folder):
    page = folder / pages.PAGE
    (source,) = (ROOT / "notebooks").glob(f"{folder.name}_*.ipynb")
    text = page.read_text("utf-8")
    assert text.startswith(f"<!-- {pages.stamp_of(source, folder)} -->"), "`make reproduce` again"
    assert len(text.encode()) <= 60_000
    for wrong in ("/home/", "/tmp/", str(ROOT), "object at 0x", "Traceback", "|it/s"):
        assert wrong not in text
    links = re.findall(r"\]\(([^)\s#]+)\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    missing = [link for link in links if "://" not in link and not (folder / link).exists()]
    assert missing == []
