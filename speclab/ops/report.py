"""What a reader opens after `make reproduce`: the HTML of each executed notebook, and one page that
says what was found, with every figure. They need no network and no other file.

A light copy of that page, its pictures by link, lies beside the figures.
"""

import base64
import html
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import nbformat
from nbconvert import HTMLExporter

from speclab.plain import brief, read_json
from speclab.profiles import ROOT, Profile
from speclab.prompts import UNEQUAL
from speclab.runs import profile_prompts, written
from speclab.show.notebook import drawn_in

# how a notebook may end
FAILED, NEEDS_MODELS, NEEDS_FILES = "failed", "needs the models", "needs files"
UNKNOWN = "From an earlier run, whose settings are not known here."
STALE = "Out of date: its inputs or its files have changed since this run."
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^()\s]+\.png)\)")  # in Markdown
NETWORK = (  # addresses that nbconvert's page would ask for
    "require_js_url",
    "jquery_url",
    "mermaid_js_url",
    "mermaid_layout_elk_js_url",
    "widget_renderer_url",
    "jupyter_widgets_base_url",
)
HEAD = """<style>
body.jp-Notebook { max-width: 62rem; margin: 0 auto; }
.jp-CodeMirrorEditor pre, .highlight pre { white-space: pre-wrap; overflow-wrap: anywhere; }
.jp-RenderedHTMLCommon table { display: block; overflow-x: auto; }
#show-code:not(:checked) ~ main .jp-CodeCell > .jp-Cell-inputWrapper,
#show-code:not(:checked) ~ main .jp-CodeCell.jp-mod-noOutputs { display: none; }
#show-code { position: absolute; opacity: 0; }
label[for=show-code] { position: sticky; top: .4rem; z-index: 9; float: right; cursor: pointer; }
label[for=show-code] { padding: .2rem .6rem; border: 1px solid #bbb; border-radius: 4px; }
#show-code:checked + label { background: #e3f3ed; }
#show-code:focus-visible + label { outline: 2px solid #00543d; }
@media print { label[for=show-code] { display: none; } }
</style></head>"""
SWITCH = """<input type="checkbox" id="show-code"><label for="show-code">show code</label>
<main>"""


# ---- one notebook --------------------------------------------------------------------------------


def to_html(notebook: Path) -> Path:
    """Write an executed notebook as HTML beside it: its code is hidden behind one switch at the
    top, and its pictures stand in the page.

    Without formulas it asks the network for nothing; with them for MathJax only, and shows their
    source where there is none.
    """
    book = nbformat.read(notebook, as_version=4)
    texts = [cell for cell in book.cells if cell.cell_type == "markdown"]
    options = dict.fromkeys(NETWORK, "")
    if not any("$" in cell.source for cell in texts):
        options["mathjax_url"] = ""
    for cell in texts:
        cell.source = with_pictures(cell.source, notebook.parent)
    resources = {"metadata": {"name": notebook.stem}}
    page, _ = HTMLExporter(**options).from_notebook_node(book, resources=resources)
    page = re.sub(r'<script src="">\s*</script>', "", page)
    page = page.replace("</head>", HEAD, 1).replace("<main>", SWITCH, 1)
    target = notebook.with_suffix(".html")
    target.write_text(page, encoding="utf-8")
    return target


def with_pictures(markdown: str, folder: Path) -> str:
    """Markdown whose pictures, by paths from `folder`, are in the text itself."""

    def embedded(found: re.Match) -> str:
        alt, path = found.groups()
        picture = folder / path
        return f"![{alt}]({encoded(picture)})" if picture.is_file() else found[0]

    return PICTURE.sub(embedded, markdown)


def encoded(picture: Path) -> str:
    """The address of a picture that holds the picture."""
    return "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode()


# ---- the page of a profile -----------------------------------------------------------------------


def write_index(
    build: Path,
    figures: Path,
    profile: Profile,
    outcomes: Sequence[Any],
    remarks: Mapping[str, str],
) -> Path:
    """Write build/index.html (`report.html.j2`): what was measured, the answers of the notebooks,
    then of each its figures with captions, or the error that ended it.

    profile: what the head describes; outcomes: stamps; remarks: `remark` by notebook.
    """
    found = []
    for outcome in outcomes:
        name = outcome.name
        page = build / f"{name}.ipynb"
        if not page.is_file():
            page = ROOT / "notebooks" / f"{name}.ipynb"
        failed = outcome.status == FAILED
        seen = {} if failed else facts_of(page, drawn_in(figures, name), encoded)
        of_run = {"outcome": outcome, "remark": remarks[name]}
        found.append({"title": name} | seen | of_run)
    return _write(build, profile, found, figures)


def write_light(figures: Path, profile: Profile, remarks: Mapping[str, str]) -> Path:
    """Write figures/index.html: the same of all figures that are there, by link, for whoever
    browses a clone. Of a notebook without a remark nothing is known but its figures.
    """

    def address(picture: Path) -> str:
        return Path(os.path.relpath(picture, figures)).as_posix()

    notebooks = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    found = [facts_of(one, drawn_in(figures, one.name), address) for one in notebooks]
    drawn = [seen for seen in found if seen["pictures"]]
    for seen in drawn:
        seen["tables"] = {path.name: address(path) for path in seen["tables"]}
        seen["remark"] = remarks.get(seen["name"], UNKNOWN)
    return _write(figures, profile, drawn, figures)


def remark(outcome: Any, described: Mapping[str, Any], is_stale: bool) -> str:
    """What a reader must know of a notebook's figures and answer beside the head, "" if nothing.

    outcome: its stamp; described: what the head describes, by name; is_stale: whether the same call
    would run the notebook again.
    """
    if outcome.status in (FAILED, NEEDS_MODELS, NEEDS_FILES):
        return UNKNOWN
    given = {"profile": outcome.given["profile"]}
    given |= outcome.given["overrides"] | outcome.given["changes"]
    differs = [item for item in given.items() if item not in described.items()]
    settings = ", ".join(f"{name}={brief(value)}" for name, value in differs)
    said = [f"Run with {settings}."] if settings else []
    return " ".join([*said, STALE] if is_stale else said)


def prompts_of(profile: Profile) -> str:
    """How many prompts of each domain a profile has, in words."""
    counts = dict.fromkeys(profile.domains, profile.prompts_per_domain)
    try:
        if profile.prompts in UNEQUAL:
            counts = Counter(prompt.domain for prompt in profile_prompts(profile))
    except ValueError:
        return "Prompts that cannot be read here"
    each = ", ".join(f"{count} {domain}" for domain, count in counts.items())
    return f"{sum(counts.values())} prompts ({each})"


def _write(folder: Path, profile: Profile, notebooks: list[dict], figures: Path) -> Path:
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    pages = jinja2.Environment(loader=loader, trim_blocks=True, lstrip_blocks=True, autoescape=True)
    pages.filters |= {"inline": inline, "plain": plain}
    explore, page = figures / "explore.html", folder / "index.html"
    text = pages.get_template("report.html.j2").render(
        name=folder.name,
        profile=profile,
        prompts=prompts_of(profile),
        explore=explore.is_file() and Path(os.path.relpath(explore, folder)).as_posix(),
        notebooks=notebooks,
        FAILED=FAILED,
        NEEDS=(NEEDS_MODELS, NEEDS_FILES),
    )
    written(page, lambda path: path.write_text(text, encoding="utf-8"))
    return page


def facts_of(notebook: Path, figures: Path, address: Callable[[Path], str]) -> dict[str, Any]:
    """What the page says of a notebook whose figures and tables are in a folder: the question in
    its title, its answer ("": none yet), and its pictures, that of its first cell first.
    """
    is_there = notebook.is_file()
    text = nbformat.read(notebook, as_version=4).cells[0].source if is_there else ""
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    first = [Path(path).stem for _, path in PICTURE.findall(text)]
    captions = _read(figures / "captions.json")
    pictures = [
        {"address": address(path), "caption": captions.get(path.stem, path.stem.replace("-", " "))}
        for path in sorted(figures.glob("*.png"), key=lambda p: p.stem not in first)
    ]
    return {
        "name": notebook.stem,
        "outcome": None,
        "title": title[1] if title else notebook.stem,
        "answer": _read(figures / "numbers.json").get("answer", ""),
        "tables": sorted(figures.glob("*.csv")),
        "pictures": pictures,
    }


def _read(path: Path) -> dict[str, Any]:
    return read_json(path, "run that notebook again") if path.is_file() else {}


def inline(markdown: str) -> str:
    """Bold, italic and code of a paragraph as HTML. Code is shown as it is."""
    text = html.escape(" ".join(markdown.split()), quote=False)
    codes = re.findall(r"`([^`]+)`", text)
    text = re.sub(r"`[^`]+`", "`", text)
    text = re.sub(r"\*\*([^*]+)\*\*", r"<b>\1</b>", text)
    text = re.sub(r"\*([^*]+)\*", r"<i>\1</i>", text)
    for code in codes:
        text = text.replace("`", f"<code>{code}</code>", 1)
    return text


def plain(markdown: str) -> str:
    """A paragraph without marks."""
    return html.unescape(re.sub(r"<[^>]+>", "", inline(markdown)))
