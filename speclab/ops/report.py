"""What a reader opens after `make reproduce`: the HTML of each executed notebook, and one page with
every question, answer and figure.

The files need no network and no other file.
"""

import base64
import html
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import nbformat
from nbconvert import HTMLExporter

from speclab.plain import read_json
from speclab.profiles import ROOT

FAILED, NEEDS_MODELS = "failed", "needs the models"  # how a notebook may end
CALL = "call.json"  # beside the stamps: seconds of a call that ran all it was asked for
NETWORK = (  # addresses that nbconvert's page would ask for
    "require_js_url",
    "jquery_url",
    "mermaid_js_url",
    "mermaid_layout_elk_js_url",
    "widget_renderer_url",
    "jupyter_widgets_base_url",
)
NOTEBOOK_STYLE = """<style>
body.jp-Notebook { max-width: 62rem; margin: 0 auto; }
.jp-CodeMirrorEditor pre, .highlight pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.jp-RenderedHTMLCommon table { display: block; overflow-x: auto; }
details.folded summary { color: #777; cursor: pointer; }
</style></head>"""


# ---- one notebook --------------------------------------------------------------------------------


def to_html(notebook: Path) -> Path:
    """Write an executed notebook as HTML beside it; code wraps inside the page, cells tagged
    `hide-input` are folded.

    Without formulas it asks the network for nothing; with them for MathJax only, and shows their
    source where there is none.
    """
    book = nbformat.read(notebook, as_version=4)
    book.cells = [
        folded(cell) if "hide-input" in cell.metadata.get("tags", []) else cell
        for cell in book.cells
    ]
    options = dict.fromkeys(NETWORK, "")
    if not any(
        "$" in cell.source for cell in book.cells if cell.cell_type == "markdown"
    ):
        options["mathjax_url"] = ""
    page, _ = HTMLExporter(**options).from_notebook_node(
        book, resources={"metadata": {"name": notebook.stem}}
    )
    page = re.sub(r'<script src="">\s*</script>', "", page)
    page = page.replace("</head>", NOTEBOOK_STYLE, 1)
    target = notebook.with_suffix(".html")
    target.write_text(page, encoding="utf-8")
    return target


def folded(cell: Any) -> Any:
    """A code cell as text that opens when it is clicked; its outputs are dropped."""
    code = html.escape(cell.source)
    summary = "<summary>set-up (folded)</summary>"
    source = f'<details class="folded">{summary}<pre>{code}</pre></details>'
    return nbformat.v4.new_markdown_cell(source)


# ---- the page of a profile -----------------------------------------------------------------------


def write_index(
    build: Path, figures: Path, profile: str, outcomes: Sequence[Any]
) -> Path:
    """Write build/index.html: for each notebook its question, its answer, links and figures with
    captions, or the error that ended it (`report.html.j2`).
    """
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    pages = jinja2.Environment(loader=loader, trim_blocks=True, autoescape=True)
    pages.filters["inline"] = inline
    explore = Path(os.path.relpath(figures / "explore.html", build)).as_posix()
    text = pages.get_template("report.html.j2").render(
        profile=profile,
        explore=explore,
        notebooks=[facts_of(outcome, build, figures) for outcome in outcomes],
        FAILED=FAILED,
        NEEDS_MODELS=NEEDS_MODELS,
    )
    page = build / "index.html"
    page.write_text(text, encoding="utf-8")
    return page


def facts_of(outcome: Any, build: Path, figures: Path) -> dict[str, Any]:
    """What the page says of a notebook: of one without its models the figures that it left before,
    of a failed one neither its question nor figures.
    """
    name = outcome.name
    facts = {"outcome": outcome, "title": name, "status": outcome.status}
    if outcome.status == FAILED:
        return facts
    folder = ROOT / "notebooks" if outcome.status == NEEDS_MODELS else build
    title, answer = title_and_answer(folder / f"{name}.ipynb")
    own = figures / name[:2]
    pictures = [own / file for file in outcome.files if file.endswith(".png")]
    return facts | {
        "title": title or name,
        "answer": answer,
        "tables": sum(file.endswith(".csv") for file in outcome.files),
        "captions": read_captions(own),
        "pictures": {path.stem: encoded(path) for path in pictures},
    }


def title_and_answer(notebook: Path) -> tuple[str, str]:
    """The question in a notebook's first heading, and the paragraph that answers it, empty where
    there is none.
    """
    if not notebook.is_file():
        return "", ""
    cells = nbformat.read(notebook, as_version=4).cells
    text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    answer = re.search(r"^\*\*Answer\.\*\*\s+((?:.+\n?)+)", text, re.MULTILINE)
    return (title[1] if title else "", answer[1] if answer else "")


def inline(markdown: str) -> str:
    """Bold, italic and code of a paragraph as HTML."""
    text = html.escape(" ".join(markdown.split()), quote=False)
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    text = re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", text)
    return re.sub(r"\*([^*]+)\*", r"<i>\1</i>", text)


def read_captions(figures: Path) -> dict[str, str]:
    """The captions of one notebook's figures, by slug."""
    path = figures / "captions.json"
    return read_json(path, "run that notebook again") if path.is_file() else {}


def encoded(picture: Path) -> str:
    """A picture in text, to stand in a page."""
    return base64.b64encode(picture.read_bytes()).decode()
