"""The site of a profile, build/<profile>/site: a page for each notebook that ran, and a first page,
the report. It is made by Sphinx (myst-nb, sphinx-book-theme) from sources in build/<profile>/pages
and needs no network. build/<profile>/index.html leads to it.
"""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_markdown_cell, new_output
from sphinx.application import Sphinx

from speclab.plain import Facts
from speclab.run import pages
from speclab.run.report import Reported
from speclab.show.figure_files import COLUMN
from speclab.show.notebook import drawn_in
from speclab.study.runs import written

CONFIGURATION: Facts = {
    "extensions": ["myst_nb", "sphinx-mathjax-offline"],
    "html_theme": "sphinx_book_theme",
    "html_theme_options": {"use_download_button": False, "use_fullscreen_button": False},
    "html_show_sphinx": False,
    "html_copy_source": False,
    "nb_execution_mode": "off",
    "nb_render_markdown_format": "myst",
    "nb_code_prompt_show": "Code",
    "nb_code_prompt_hide": "Code",
    "myst_enable_extensions": ["dollarmath"],
    "suppress_warnings": ["myst.header"],
}
# a small screen shows a figure at the width of one column
FIGURE = (
    '<a href="{0}.png"><picture><source media="(max-width: 40rem)" srcset="{0}-column.png">'
    '<img src="{0}.png" alt="{1}"></picture></a>'
)
LEADS_ON = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={0}">'
LEADS_ON += '<title>speclab</title><a href="{0}">Results</a>'
INSIDE = re.compile(r"\[([^\]]*)\]\((\./[^()\s]+)\)")  # a link to a file of the site


def write_site(build: Path, figures: Path, first_page: str, notebooks: Sequence[Reported]) -> Path:
    """Write the site of a build folder, and build/index.html, which leads to it.

    figures: of the profile; first_page: in Markdown; notebooks: those that have a page. Returns
    build/index.html.
    """
    sources, files = build / "pages", build / "files"
    shutil.rmtree(sources, ignore_errors=True)
    shutil.rmtree(files, ignore_errors=True)
    sources.mkdir(parents=True)
    links = {one.name: f"{one.name}.ipynb" for one in notebooks}
    for one in notebooks:
        folder = drawn_in(figures, one.name)
        page = page_of(build / f"{one.name}.ipynb", folder, links)
        nbformat.write(page, sources / links[one.name])
        shutil.copytree(folder, files / "figures" / one.number)
    for explorer in (build / "explore.html", figures / "explore.png"):
        if explorer.is_file():
            shutil.copy2(explorer, files / explorer.name)
    contents = "\n".join(["```{toctree}", ":hidden:", "", *links, "```"])
    (sources / "index.md").write_text(f"{first_page}\n\n{contents}\n", encoding="utf-8")
    name = f"speclab: {figures.name}"
    titles = {"project": name, "html_title": name, "html_extra_path": [str(files)]}
    site = Sphinx(
        sources,
        None,
        build / "site",
        build / "doctrees",
        "html",
        confoverrides=CONFIGURATION | titles,
        status=None,
    )
    site.build()
    index = build / "index.html"
    written(index, lambda path: path.write_text(LEADS_ON.format("site/index.html"), "utf-8"))
    return index


def page_of(notebook: Path, folder: Path, links: dict[str, str]) -> nbformat.NotebookNode:
    """A notebook's page as a source of the site."""
    book = pages.told(notebook, folder, ".", links)
    facts, book.metadata = book.metadata, {"language_info": {"name": "python"}}
    answer = f"\n\n> {facts['answer']}" if facts["answer"] else ""
    book.cells.insert(0, new_markdown_cell(f"# {facts['title']}{answer}"))
    for cell in book.cells:
        if cell.cell_type == "markdown":
            cell.source = INSIDE.sub(r'<a href="\2">\1</a>', cell.source)
            continue
        cell.metadata["tags"] = ["hide-input"] if cell.metadata["fold"] == "yes" else []
        cell.outputs = [_on_page(output, folder.name) for output in cell.outputs]
    book.cells.append(new_markdown_cell(_runs_on(facts)))
    return book


def _on_page(output: nbformat.NotebookNode, number: str) -> nbformat.NotebookNode:
    """An output of a cell; a figure becomes a link to its file in the site."""
    file = output.get("metadata", {}).get("file", "")
    if not file:
        return output
    caption = output.metadata.get("image/png", {}).get("alt", "")
    address = f"figures/{number}/{Path(file).stem.removesuffix(COLUMN)}"
    shown = FIGURE.format(address, re.sub(r'[`"*$]', "", caption))
    return new_output("display_data", {"text/html": shown})


def _runs_on(facts: Any) -> str:
    """The runs that a page was made from, and the parameters that were changed, folded."""
    lines = [f"* `{name}`, {day}" for name, day in facts["runs"].items()]
    lines += [f"* `{name} = {value}`" for name, value in facts["changed"].items()]
    if not lines:
        return ""
    summary = "<summary>Recorded runs and changed parameters</summary>"
    return "\n".join([f"<details>{summary}", "", *lines, "", "</details>"])
