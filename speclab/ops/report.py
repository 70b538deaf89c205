"""What a reader opens after `make reproduce`: the HTML of each executed notebook, and one page with
all answers and figures. They need no network and no other file.

A light copy of that page, its pictures by link, lies beside the figures.
"""

import base64
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import nbformat
from nbconvert import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

from speclab.plain import brief, read_json
from speclab.profiles import ROOT, Profile
from speclab.runs import sizes_of, written
from speclab.show.notebook import drawn_in

# how a notebook may end
DONE, FAILED = "done", "failed"
NEEDS_MODELS, NEEDS_FILES = "needs the models", "needs files"
UNKNOWN = "From an earlier run, whose settings are not known here."
STALE = "Out of date: its inputs or its files have changed since this run."
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^()\s]+\.png)\)")  # in Markdown
TEMPLATES = Path(__file__).parent


# ---- one notebook --------------------------------------------------------------------------------


def to_html(notebook: Path) -> Path:
    """Write an executed notebook as HTML beside it (`notebook.html.j2`), its pictures in the page.

    Formulas are shown by MathJax, which is asked of the network; without it as their source.
    """
    book = nbformat.read(notebook, as_version=4)
    for cell in book.cells:
        if cell.cell_type == "markdown":
            cell.source = with_pictures(cell.source, notebook.parent)
    exporter = HTMLExporter(template_file=str(TEMPLATES / "notebook.html.j2"))
    page, _ = exporter.from_notebook_node(book, {"metadata": {"name": notebook.stem}})
    target = notebook.with_suffix(".html")
    target.write_text(page, encoding="utf-8")
    return target


def with_pictures(markdown: str, folder: Path) -> str:
    """Markdown whose pictures, by paths from `folder`, are in the text itself."""

    def embed(match: re.Match) -> str:
        alt, path = match.groups()
        picture = folder / path
        return f"![{alt}]({embedded(picture)})" if picture.is_file() else match[0]

    return PICTURE.sub(embed, markdown)


def embedded(picture: Path) -> str:
    """The address of a picture that holds the picture."""
    return "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode()


# ---- the page of a profile -----------------------------------------------------------------------


def write_pages(
    build: Path,
    figures: Path,
    profile: Profile,
    outcomes: Sequence[Any],
    remarks: Mapping[str, str],
) -> Path:
    """Write build/index.html (`report.html.j2`): what was measured, the answers of the notebooks,
    then for each its figures with captions, or the error that ended it. Write figures/index.html,
    the same for all figures that are there, by link, for whoever browses a clone.

    profile: what the head describes; outcomes: stamps; remarks: `remark` by notebook. Of a notebook
    without a remark nothing is known but its figures.
    """

    def link(path: Path) -> str:
        return Path(os.path.relpath(path, figures)).as_posix()

    loader = jinja2.FileSystemLoader(TEMPLATES)
    pages = jinja2.Environment(loader=loader, trim_blocks=True, lstrip_blocks=True, autoescape=True)
    pages.filters["inline"] = inline
    template = pages.get_template("report.html.j2")
    ran = [facts_of(outcome.name, figures) | {"outcome": outcome} for outcome in outcomes]
    sources = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    known = [facts_of(source.stem, figures) for source in sources]
    drawn = [facts for facts in known if facts["pictures"]]
    for folder, notebooks, address in ((build, ran, embedded), (figures, drawn, link)):
        text = template.render(
            profile=profile,
            prompts=prompts_of(profile),
            explore=(figures / "explore.html").is_file(),
            name=figures.name,
            notebooks=notebooks,
            address=address,
            remarks=remarks,
            UNKNOWN=UNKNOWN,
        )
        written(folder / "index.html", lambda path, text=text: path.write_text(text, "utf-8"))
    return build / "index.html"


def facts_of(name: str, figures: Path) -> dict[str, Any]:
    """What the page says of a notebook: the question in its title, its answer ("": none yet), its
    tables, its pictures, that of its first cell first, and their captions.
    """
    source, folder = ROOT / "notebooks" / f"{name}.ipynb", drawn_in(figures, name)
    text = nbformat.read(source, as_version=4).cells[0].source if source.is_file() else ""
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    leading = [Path(path).stem for _, path in PICTURE.findall(text)]
    pictures = sorted(folder.glob("*.png"), key=lambda path: path.stem not in leading)
    numbers = _read(folder / "numbers.json")
    return {
        "name": name,
        "title": title[1] if title else name,
        "answer": numbers.get("answer", ""),
        "tables": sorted(folder.glob("*.csv")),
        "pictures": pictures,
        "captions": _read(folder / "captions.json"),
    }


def _read(path: Path) -> dict[str, Any]:
    return read_json(path, "run that notebook again") if path.is_file() else {}


def remark(outcome: Any, described: Mapping[str, Any], is_stale: bool) -> str:
    """What a reader must know of a notebook's figures and answer beside the head, "" if nothing.

    outcome: its stamp; described: what the head describes, by name; is_stale: whether the same call
    would run the notebook again.
    """
    if outcome.status != DONE:
        return UNKNOWN
    given = {"profile": outcome.given["profile"]}
    given |= outcome.given["overrides"] | outcome.given["changes"]
    differs = [item for item in given.items() if item not in described.items()]
    settings = ", ".join(f"{name}={brief(value)}" for name, value in differs)
    sentences = [f"Run with {settings}."] if settings else []
    return " ".join([*sentences, STALE] if is_stale else sentences)


def prompts_of(profile: Profile) -> str:
    """How many prompts of each domain a profile has, in words."""
    try:
        counts = sizes_of(profile)
    except ValueError:
        return "Prompts that cannot be read here"
    each = ", ".join(f"{count} {domain}" for domain, count in counts.items())
    return f"{sum(counts.values())} prompts ({each})"


def inline(markdown: str) -> str:
    """A paragraph of Markdown as HTML, its own HTML shown as text."""
    return MarkdownWithMath(renderer=IPythonRenderer(escape=True)).render(markdown)
