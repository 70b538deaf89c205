"""An executed notebook as its readers see it: README.md beside its figures, which hosting sites
show, and a page of the site (`speclab.run.site`).

Both are made from the same cells (`told`). The answer stands under the title. The runs that were
read are one folded line. The figure of the title is shown once. Code is hidden except in cells
tagged `by-hand`. What a notebook prints on stderr (progress, waiting for another process) is left
out.
"""

import base64
import re
from collections.abc import Collection, Mapping
from functools import cache
from os.path import relpath
from pathlib import Path
from typing import Any

import nbformat
from nbconvert import MarkdownExporter
from nbformat import NotebookNode

from speclab.plain import Facts, digest_of, sha256_of
from speclab.show import notebook as kit
from speclab.show import pictures
from speclab.study.profiles import ROOT
from speclab.study.runs import written

TEMPLATES = Path(__file__).parent
PAGE = "README.md"  # beside the figures
SHIPPED = "smollm"  # the profile whose pages come with the kit
BY_HAND, BOOTSTRAP, INJECTED = "by-hand", "bootstrap", "injected-parameters"  # tags
FIGURE = re.compile(r"\]\([^()\s]*/([\w-]+\.png)\)")  # the address of a picture in a folder
NOTEBOOK = re.compile(r"\[([^\]]*)\]\((\d\d_\w+)\.ipynb\)")  # a link to another one
RUN = re.compile(r"read from (.+) \(recorded (\d{4}-\d\d-\d\d)\)")  # see `runs.load_or_record`
# what Markdown takes of an output: the first that is there
PREFERRED = ["text/markdown", "image/png", "text/html", "text/plain"]


# ---- what both pages tell ------------------------------------------------------------------------


def told(notebook: Path, folder: Path, root: str, links: Mapping[str, str]) -> NotebookNode:
    """An executed notebook as its pages show it; folder: of its figures; root: address of the
    repository from the page; links: addresses of the pages that are there, by notebook (others are
    named without a link). Its metadata are what stands above the cells: title, answer, runs (day by
    folder), changed (values of parameters).
    """
    book = nbformat.read(notebook, as_version=4)
    first = book.cells[0]
    heading, _, rest = first.source.partition("\n")
    first.source = rest.strip()
    files = {path.read_bytes(): path.name for path in folder.glob("*.png")}

    def to_page(match: re.Match) -> str:
        address = links.get(match[2])
        return f"[{match[1]}]({address})" if address else match[1]

    given = book.metadata.get("papermill", {}).get("parameters", {})
    changed = {**given, **given.get("overrides", {})}
    names = changed.keys() - {"profile", "overrides"}
    page = {
        "title": heading.lstrip("# "),
        "answer": "",
        "runs": {},
        "changed": {name: _without_folder(changed[name]) for name in sorted(names)},
    }
    cells: list[NotebookNode] = []
    for cell in book.cells:
        tags = cell.metadata.get("tags", [])
        if {BOOTSTRAP, INJECTED} & {*tags}:
            continue
        if cell.cell_type == "code":
            cell.metadata["fold"] = "yes" if BY_HAND not in tags else "no"
            shown = [_shown(output, page, files) for output in cell.outputs]
            cell.outputs = [output for output in shown if output]
            _join(cells, cell)
        else:
            cell.source = NOTEBOOK.sub(to_page, cell.source.replace("](../", f"]({root}/"))
        cells.append(cell)
    return nbformat.v4.new_notebook(cells=cells, metadata=page)


def _without_folder(value: Any) -> Any:
    """The value of a parameter; of a file only its name."""
    return Path(value).name if str(value).startswith("/") else value


def _join(cells: list[NotebookNode], cell: NotebookNode) -> None:
    """Take the cell before, if it shows nothing, into one of the same kind."""
    before = cells[-1]
    fold = before.metadata.get("fold")
    if fold == cell.metadata["fold"] and not before.outputs:
        cell.source = f"{before.source}\n\n{cell.source}"
        cells.pop()


def _shown(output: NotebookNode, page: Facts, files: dict[bytes, str]) -> NotebookNode | None:
    """An output as the pages show it; None for stderr, and for runs and the answer, which go to
    the top of the page.
    """
    if output.output_type == "stream":
        page["runs"] |= {_last_parts(name): day for name, day in RUN.findall(output.text)}
        output.text = RUN.sub("", output.text).strip()
        return output if output.text and output.name == "stdout" else None
    text = output.data.get("text/markdown", "")
    if text.startswith(kit.ANSWERED):
        page["answer"] = text
    if text.startswith((kit.ANSWERED, kit.PENDING)):
        return None
    if "image/png" in output.data:
        content = base64.b64decode(output.data["image/png"])
        output.metadata["file"] = files.get(content, "")
    return output


def _last_parts(folder: str) -> str:
    """A run's folder; of one outside the repository its last two parts."""
    return "/".join(folder.split("/")[-2:]) if folder.startswith("/") else folder


def around(name: str, there: Collection[str]) -> tuple[str, str]:
    """The notebooks before and after one, of those whose page is there; "" for none."""
    padded = ["", *sorted({name, *there}), ""]
    place = padded.index(name)
    return padded[place - 1], padded[place + 1]


def cells_of(book: NotebookNode) -> list[tuple[str, str, list[str]]]:
    """(kind, text, tags) of every cell."""
    return [
        (cell.cell_type, cell.source.strip(), cell.metadata.get("tags", [])) for cell in book.cells
    ]


def relative(path: Path, folder: Path) -> str:
    """The address of a file or folder from a page in `folder`."""
    return Path(relpath(path, folder)).as_posix()


# ---- Markdown ------------------------------------------------------------------------------------


@cache
def markdown_exporter() -> MarkdownExporter:
    """What fills `page.md.j2`."""
    exporter = MarkdownExporter(template_file=str(TEMPLATES / "page.md.j2"))
    exporter.register_filter("filter_data_type", preferred)
    exporter.register_filter("from_html", pictures.as_markdown)
    exporter.register_filter("plain", lambda text: re.sub(r"[\[\]`*$]", "", text or ""))
    return exporter


def preferred(data: Facts) -> list[str]:
    """The kind of an output that the page shows."""
    return [kind for kind in PREFERRED if kind in data][:1]


def to_markdown(notebook: Path, folder: Path, figures: Path, others: Collection[str] = ()) -> Path:
    """Write an executed notebook as Markdown beside its figures in `folder` (`page.md.j2`).
    Nothing of the machine is in it. figures: of the profile; others: notebooks whose pages this
    call writes too.
    """
    if folder.parent != figures:  # another pair's: the pages around it are those of the kit
        figures = folder.parent.with_name(SHIPPED)
    names = sorted(path.stem for path in (ROOT / "notebooks").glob("[0-9]*.ipynb"))
    pages = {name: kit.drawn_in(figures, name) / PAGE for name in names}
    there = {name for name, page in pages.items() if page.is_file() or name in others}
    links = {name: relative(pages[name], folder) for name in there}
    facts = {
        "around": around(notebook.stem, there),
        "addresses": links,
        "stamp": stamp_of(ROOT / "notebooks" / notebook.name, folder),
    }
    book = told(notebook, folder, relative(ROOT, folder), links)
    text, _ = markdown_exporter().from_notebook_node(book, {"page": facts | book.metadata})
    text = FIGURE.sub(r"](\1)", text)
    text = re.sub(rf"`({folder.name}/([\w-]+\.csv))`", r"[`\1`](\2)", text)
    text = re.sub(r"\n{3,}", "\n\n", text)
    page = folder / PAGE
    written(page, lambda there: there.write_text(text, encoding="utf-8"))
    return page


def stamp_of(source: Path, folder: Path) -> str:
    """The first line of a page in Markdown: of which notebook and of which numbers it is."""
    cells = digest_of(cells_of(nbformat.read(source, as_version=4)))
    files = [*folder.glob("*.csv"), folder / "numbers.json", folder / "captions.json"]
    numbers = {path.name: sha256_of(path) for path in files if path.is_file()}
    return f"by `make reproduce`: notebook {cells[:12]}, numbers {digest_of(numbers)[:12]}"
