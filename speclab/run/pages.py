"""An executed notebook as its readers see it: README.md beside its figures, which code hosts show,
and a page of the site (`speclab.run.site`). Both are made from the same cells (`page_of`).
"""

import html
import re
from collections.abc import Mapping
from os.path import relpath
from pathlib import Path

import nbformat
from nbconvert import MarkdownExporter
from nbconvert.preprocessors.coalescestreams import CoalesceStreamsPreprocessor
from nbformat import NotebookNode
from nbformat.v4 import new_notebook, new_output

from speclab.show import notebook as kit
from speclab.show import pictures
from speclab.study.profiles import ROOT

PAGE = "README.md"  # beside the figures
SHIPPED = "smollm"  # the profile whose pages come with the kit
NOTEBOOK = re.compile(r"\[([^\[\]]*)\]\((\d\d_\w+)\.ipynb\)")  # a link to another one
# a small screen shows a figure at the width of one column
FIGURE = (
    '<a href="{0}.png"><picture><source media="(max-width: 40rem)" srcset="{0}-column.png">'
    '<img src="{0}.png" alt="{1}"></picture></a>'
)
RUN = "read from "  # how `runs.load_or_record` begins the line of a run
RUNS = "<details><summary>Recorded runs</summary><pre>{}</pre></details>"
HEADING = re.compile(r"^#+ (?:\d+\. )?(.+)$", re.MULTILINE)


def page_of(notebook: Path, links: Mapping[str, str], site: str = "") -> NotebookNode:
    """An executed notebook as its pages show it. The answer stands under the title. Code is folded
    (tag `hide-input`), but for cells tagged `by-hand`.

    links: addresses of the pages that are there, by notebook (others are named without a link);
    site: address of its figures in the site, where tables have captions; "": a page in Markdown
    beside them.
    """
    text = NOTEBOOK.sub(
        lambda found: f"[{found[1]}]({links[found[2]]})" if found[2] in links else found[1],
        notebook.read_text(encoding="utf-8"),
    )
    cells: list[NotebookNode] = []
    heading = ""
    book, _ = CoalesceStreamsPreprocessor().preprocess(nbformat.reads(text, as_version=4), {})
    for cell in book.cells:
        tags = cell.metadata.get("tags", [])
        if "bootstrap" in tags:
            continue
        if cell.cell_type == "markdown":
            heading = [heading, *HEADING.findall(cell.source)][-1]
        else:
            cell.metadata["tags"] = [] if "by-hand" in tags else ["hide-input"]
            outputs, cell.outputs = cell.outputs, []
            for output in outputs:
                said = output.get("text", output.get("data", {}).get("text/markdown", ""))
                if said.startswith(kit.ANSWERED):
                    title, _, rest = cells[0].source.partition("\n")
                    cells[0].source = f"{title}\n\n> {said}\n\n{rest}"
                elif output.get("name") != "stderr" and said != kit.PENDING:
                    cell.outputs.append(_shown(output, said, heading, site))
            # code that shows nothing goes into the cell after it
            before = cells[-1]
            if before.get("outputs") == [] and before.metadata["tags"] == cell.metadata["tags"]:
                cell.source = f"{cells.pop().source}\n\n{cell.source}"
        cells.append(cell)
    return new_notebook(cells=cells, metadata={"language_info": {"name": "python"}})


def _shown(output: NotebookNode, text: str, heading: str, site: str) -> NotebookNode:
    """An output as a page shows it; text: of it; heading: above it, for a table without caption."""
    facts = output.get("metadata", {})
    if text.startswith(RUN):
        text = RUNS.format(html.escape(text))
    elif "figure" in facts:
        text = FIGURE.format(site + facts["figure"], html.escape(facts["image/png"]["alt"]))
    elif site and "caption" in facts:
        text = f"```{{table}} {facts['caption'] or heading}\n{text}\n```"
    else:
        return output
    return new_output("display_data", {"text/markdown": text})


# ---- Markdown ------------------------------------------------------------------------------------


def to_markdown(notebook: Path, figures: Path) -> None:
    """Write an executed notebook as Markdown beside its figures; figures: the folder of the
    profile's. It links to the pages of all notebooks that have figures.
    """
    folder = kit.drawn_in(figures, notebook.stem)
    if folder.parent != figures:  # another pair's: the pages around it are those of the kit
        figures = folder.parent.with_name(SHIPPED)
    links = {}
    for source in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        if (there := kit.drawn_in(figures, source.stem)).is_dir():
            links[source.stem] = Path(relpath(there, folder), PAGE).as_posix()
    facts = {"links": links, "render_markdown": pictures.render_markdown}
    exporter = MarkdownExporter(template_file=str(Path(__file__).with_name("page.md.j2")))
    text, _ = exporter.from_notebook_node(page_of(notebook, links), facts)
    (folder / PAGE).write_text(text, encoding="utf-8")
