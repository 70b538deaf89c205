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
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>speclab: {profile}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; color: #222; }}
body {{ max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }}
img {{ max-width: 100%; display: block; }}
section {{ border-top: 1px solid #ddd; margin-top: 2rem; }}
figure {{ margin: 1.4rem 0; }}
figcaption {{ font-style: italic; color: #444; }}
.facts {{ color: #555; font-size: .85rem; }}
.failed {{ color: #a00; font-weight: bold; }}
</style></head>
<body><h1>Profile {profile}</h1><p>{summary}</p>{sections}</body></html>
"""


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
    captions, or the error that ended it.
    """
    failed = sum(outcome.status == FAILED for outcome in outcomes)
    missing = sum(outcome.status == NEEDS_MODELS for outcome in outcomes)
    counts = f"{len(outcomes)} notebooks, {failed} failed"
    if missing:
        counts += f", {missing} without the models they need"
    files = "Each figure is there as PDF too, each table as CSV and LaTeX."
    summary = f"{counts}. {files}{_explore(build, figures)}"
    sections = "".join(_section(build, figures, outcome) for outcome in outcomes)
    page = build / "index.html"
    text = PAGE.format(profile=html.escape(profile), summary=summary, sections=sections)
    page.write_text(text, encoding="utf-8")
    return page


def _explore(build: Path, figures: Path) -> str:
    """A link to the page that replays the runs, where there is one."""
    page = figures / "explore.html"
    if not page.is_file():
        return ""
    place = html.escape(os.path.relpath(page, build).replace(os.sep, "/"))
    return f' <a href="{place}">Explore the recorded texts by hand</a>.'


def _section(build: Path, figures: Path, outcome: Any) -> str:
    name = outcome.name
    if outcome.status == FAILED:
        link = f'<a href="{name}.failed.ipynb">how far it came</a>'
        facts = f"failed after {outcome.seconds:.0f} s · {link}"
        error = f'<p class="failed">{html.escape(outcome.error)}</p>'
        return f"<section><h2>{name}</h2><p class=facts>{facts}</p>{error}</section>"
    if outcome.status == NEEDS_MODELS:
        return _left_out(figures, outcome)
    title, answer = title_and_answer(build / f"{name}.ipynb")
    tables = sum(file.endswith(".csv") for file in outcome.files)
    links = f'<a href="{name}.html">read it</a> · <a href="{name}.ipynb">notebook</a>'
    facts = f"{links} · {tables} tables · {outcome.seconds:.0f} s"
    pictures = _pictures(figures, outcome)
    heading = html.escape(title or name)
    head = f"<h2>{heading}</h2><p>{answer}</p><p class=facts>{facts}</p>"
    return f"<section>{head}{pictures}</section>"


def _left_out(figures: Path, outcome: Any) -> str:
    """A notebook that needs models which are not there, with the figures that it left before."""
    title, _ = title_and_answer(ROOT / "notebooks" / f"{outcome.name}.ipynb")
    pictures = _pictures(figures, outcome)
    why = f"<b>Needs the models</b>: {_inline(outcome.error)}."
    earlier = " The figures are those of an earlier run." if pictures else ""
    heading = html.escape(title or outcome.name)
    return f"<section><h2>{heading}</h2><p>{why}{earlier}</p>{pictures}</section>"


def _pictures(figures: Path, outcome: Any) -> str:
    captions = read_captions(figures, outcome.name.split("_")[0])
    names = [file for file in outcome.files if file.endswith(".png")]
    return "".join(_figure(figures / file, captions) for file in names)


def title_and_answer(notebook: Path) -> tuple[str, str]:
    """The question in a notebook's first heading, and the paragraph that answers it (as HTML),
    empty where there is none.
    """
    try:
        cells = nbformat.read(notebook, as_version=4).cells
    except FileNotFoundError:
        return "", ""
    except Exception:  # nbformat and its schema have many kinds
        return "", f"<b>{notebook.name} is damaged: run it again.</b>"
    text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    answer = re.search(r"^\*\*Answer\.\*\*\s+((?:.+\n?)+)", text, re.MULTILINE)
    return (title[1] if title else "", _inline(answer[1]) if answer else "")


def _inline(markdown: str) -> str:
    """Bold, italic and code of a paragraph as HTML."""
    text = html.escape(" ".join(markdown.split()), quote=False)
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    text = re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", text)
    return re.sub(r"\*([^*]+)\*", r"<i>\1</i>", text)


def read_captions(figures: Path, number: str) -> dict[str, str]:
    """The captions of one notebook's figures, by slug."""
    path = figures / f"{number}_captions.json"
    return read_json(path, "run that notebook again") if path.is_file() else {}


def _figure(path: Path, captions: dict[str, str]) -> str:
    slug = path.stem.partition("_")[2]
    caption = html.escape(captions.get(slug) or slug.replace("-", " "))
    picture = base64.b64encode(path.read_bytes()).decode()
    image = f'<img alt="{caption}" src="data:image/png;base64,{picture}">'
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"
