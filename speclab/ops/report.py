"""The HTML of executed notebooks and the page that shows all figures of a profile: files that need
no network and no other file.
"""

import base64
import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbconvert import HTMLExporter

SCRIPTS = (
    "require_js_url",
    "jquery_url",
    "mermaid_js_url",
    "mermaid_layout_elk_js_url",
    "widget_renderer_url",
    "jupyter_widgets_base_url",
)
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>speclab: {profile}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}}
img{{max-width:100%;display:block}}
section{{border-top:1px solid #ddd;margin-top:2rem}}figure{{margin:1.2rem 0}}figcaption,.facts{{color:#555;font-size:.85rem}}
.failed{{color:#a00;font-weight:bold}}</style>
<h1>Profile {profile}</h1><p>{summary}</p>{sections}</html>
"""


def to_html(notebook: Path) -> Path:
    """Write an executed notebook as HTML beside it.

    Without formulas it asks the network for nothing; with them it asks for MathJax only, and shows
    their source where there is none.
    """
    book = nbformat.read(notebook, as_version=4)
    formulas = any("$" in cell.source for cell in book.cells if cell.cell_type == "markdown")
    exporter = HTMLExporter(
        **dict.fromkeys(SCRIPTS, ""), **({} if formulas else {"mathjax_url": ""})
    )
    body, _ = exporter.from_notebook_node(book, resources={"metadata": {"name": notebook.stem}})
    notebook.with_suffix(".html").write_text(
        re.sub(r'<script src="">\s*</script>', "", body), encoding="utf-8"
    )
    return notebook.with_suffix(".html")


def _title(notebook: Path) -> str:
    cells = nbformat.read(notebook, as_version=4).cells if notebook.is_file() else []
    lines = [
        line
        for cell in cells
        if cell.cell_type == "markdown"
        for line in cell.source.splitlines()
        if line.startswith("# ")
    ]
    return lines[0].lstrip("# ") if lines else notebook.stem


def _figure(path: Path) -> str:
    picture = base64.b64encode(path.read_bytes()).decode()
    return f'<figure><img alt="{path.stem}" src="data:image/png;base64,{picture}"><figcaption>{path.stem}</figcaption></figure>'


def _section(build: Path, figures: Path, outcome: Any) -> str:
    name = outcome.name
    if outcome.status == "failed":
        link, state = (
            f'<a href="{name}.failed.ipynb">{name}.failed.ipynb</a>',
            f'<p class="failed">{html.escape(outcome.error)}</p>',
        )
        return f"<section><h2>{name}</h2><p class=facts>failed after {outcome.seconds:.0f} s · {link}</p>{state}</section>"
    tables = ", ".join(f for f in outcome.files if f.endswith(".csv"))
    facts = f'{outcome.seconds:.0f} s · <a href="{name}.html">read it</a> · <a href="{name}.ipynb">notebook</a>'
    pictures = "".join(_figure(figures / f) for f in outcome.files if f.endswith(".png"))
    heading = html.escape(_title(build / f"{name}.ipynb"))
    return f"<section><h2>{heading}</h2><p class=facts>{facts}{' · tables: ' + tables if tables else ''}</p>{pictures}</section>"


def write_index(build: Path, figures: Path, profile: str, outcomes: Sequence[Any]) -> Path:
    """Write build/index.html: a section per notebook with its question, links, figures (embedded),
    or the error that ended it.
    """
    failed = sum(o.status == "failed" for o in outcomes)
    summary = f"{len(outcomes)} notebooks, {failed} failed. Figures as PDF and tables as CSV and LaTeX: {html.escape(str(figures))}."
    sections = "".join(_section(build, figures, o) for o in outcomes)
    page = build / "index.html"
    page.write_text(
        PAGE.format(profile=html.escape(profile), summary=summary, sections=sections),
        encoding="utf-8",
    )
    return page
