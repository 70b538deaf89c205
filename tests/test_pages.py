"""What a reader sees of an executed notebook: the page in Markdown, its tables and tokens, and the
pages that come with the kit. (The site: test_site.)
"""

import base64
import re
from types import SimpleNamespace

import nbformat
import pandas as pd
import pytest
from conftest import committed
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from speclab.run import pages
from speclab.show import pictures, tables
from speclab.study.profiles import ROOT

FOLDERS = [path.parent for path in committed("figures/*/[0-9]*/numbers.json")]


def displayed(data, **metadata):
    """An output that a notebook displays."""
    return new_output("display_data", data, metadata=metadata)


def code(source, *outputs, tags=()):
    """A cell of code that has run."""
    return new_code_cell(source, outputs=list(outputs), metadata={"tags": list(tags)})


@pytest.fixture
def page(tmp_path):
    """The page in Markdown of an executed notebook, beside which 13 has figures and 03 has none."""
    figures = tmp_path / "figures" / "tiny"
    for folder in (figures / "02", figures.with_name("public") / "13"):
        folder.mkdir(parents=True)
    picture = {"image/png": base64.b64encode(b"any").decode(), "text/plain": "<IPython Image>"}
    runs = "read from data/traces/tiny/greedy (recorded 2026-11-22)\n"
    cells = [
        new_markdown_cell("# 2. Does it run?\nIt does."),
        code("gamma: int = 4", tags=["parameters"]),
        code("# Parameters\ngamma = 3", tags=["injected-parameters"]),
        code("install()", tags=["bootstrap"]),
        code("start()", displayed({"text/markdown": "**Answer.** Yes, 2 | 3."})),
        code("read()", new_output("stream", text=runs)),
        code("wait()", new_output("stream", name="stderr", text="tiny is in use")),
        new_markdown_cell(
            "## By hand\nSee [03](03_domain_acceptance.ipynb) and [13](13_public_runs.ipynb)."
        ),
        code("half = 1 / 2", new_output("stream", text="0.5"), tags=["by-hand"]),
        code("draw()", displayed(picture, **{"figure": "dots", "image/png": {"alt": '"a" < b'}})),
        code("ctx.table()", displayed({"text/markdown": "| a |\n| - |\n| 1 |"}, caption="Said")),
    ]
    notebook = tmp_path / "02_gamma_sweep.ipynb"
    nbformat.write(new_notebook(cells=cells), notebook)
    pages.to_markdown(notebook, figures)
    return (figures / "02" / pages.PAGE).read_text("utf-8")


def test_the_page_in_markdown_tells_all_in_order(page):
    parts = (
        *("# 2. Does it run?", "> **Answer.** Yes, 2 | 3.", "It does.", "<details>", "gamma: int"),
        *("gamma = 3", "start()", "<summary>Recorded runs", "tiny/greedy", "wait()", "By hand"),
        *("See 03 and [13](../../public/13/README.md).", "half", "0.5", "draw()"),
        *('<img src="dots.png" alt="&quot;a&quot; &lt; b">', "| 1 |", "Notebooks: [02](README.md)"),
    )
    places = [page.find(part) for part in parts]
    assert places == sorted(places) and places[0] == page.find("#") and -1 not in places, places
    for text in ("tiny is in use", "install()", "image/png", "Said"):
        assert text not in page, text
    assert page.count("Answer.") == 1
    folds = "".join(re.findall(r"<details>.*?</details>", page, re.DOTALL))
    assert "draw()" in folds and "half" not in folds, "by hand: shown"


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
        "|  | −1 | 0.00 | 0.250 | 1.00 | no |",
    ]


def test_tokens_in_markdown_are_those_of_the_colours():
    steps = [
        SimpleNamespace(tokens=[0, 1], accepted=1, drafted=2, kind="recovered"),
        SimpleNamespace(tokens=[2], accepted=0, drafted=0, kind="bonus"),
    ]
    page = pictures.render_html(steps, ["<a", "`", "\n"])
    said = pictures.render_markdown(page)
    assert said.startswith("┃ `<a` **`` ` ``** ┃ *`⏎`*")
    assert said.endswith(
        "begins a block. 3 tokens in 2 target passes · 1.50 tokens per target pass."
    )
    assert pictures.render_markdown("<b>else</b>") == "<b>else</b>"


# ---- what comes with the kit ---------------------------------------------------------------------


def without_links(text):
    """A text of Markdown, its links' words only, with single spaces."""
    return " ".join(re.sub(r"\[([^\[\]]*)\]\([^()]*\)", r"\1", text).split())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: "/".join(path.parts[-2:]))
def test_a_committed_page_is_of_the_committed_notebook_and_links_to_what_is_there(folder):
    (source,) = (ROOT / "notebooks").glob(f"{folder.name}_*.ipynb")
    text = (folder / pages.PAGE).read_text("utf-8")
    said = without_links(text)
    for cell in nbformat.read(source, as_version=4).cells:
        is_shown = "bootstrap" not in cell.metadata.get("tags", [])
        _, _, rest = cell.source.partition("\n")  # the answer stands under the title
        assert not is_shown or without_links(rest) in said, "`make reproduce` again"
    assert len(text.encode()) <= 60_000
    for wrong in ("/home/", "/tmp/", str(ROOT), "object at 0x", "Traceback", "|it/s"):
        assert wrong not in text
    shown = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    links = re.findall(r"\]\(([^)\s#]+)\)|(?:src|srcset|href)=\"([^\"]+)\"", shown)
    missing = [a or b for a, b in links if "://" not in a + b and not (folder / (a or b)).exists()]
    assert missing == []
