"""An executed notebook as its readers see it: a page of HTML beside it, which needs no network and
no other file, and README.md beside its figures, which hosting sites show.

Both say the same (`told`): the answer stands under the title, the runs that were read are one
folded line, a figure is shown once, and code is hidden but for the cells tagged `by-hand`. What a
notebook says on stderr (progress, waiting for another process) is on neither.
"""

import ast
import base64
import html
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from os.path import relpath
from pathlib import Path
from typing import Any

import nbformat
from nbconvert import HTMLExporter, MarkdownExporter
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell, new_output

from speclab.plain import brief, digest_of, sha256_of
from speclab.profiles import ROOT
from speclab.runs import written
from speclab.show import notebook as kit
from speclab.show import pictures

TEMPLATES = Path(__file__).parent
CSS = (TEMPLATES / "page.css").read_text(encoding="utf-8")
PAGE = "README.md"  # beside the figures
SHIPPED = "smollm"  # the profile whose pages come with the kit
BY_HAND, BOOTSTRAP, INJECTED = "by-hand", "bootstrap", "injected-parameters"  # tags
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^()\s]+\.png)\)")  # in Markdown
NOTEBOOK = re.compile(r"\]\((\d\d_\w+)\.ipynb\)")
RUN = re.compile(r"read from (.+) \(recorded (\d{4}-\d\d-\d\d)\)")  # `runs.load_or_record` says so
SHOWN_ABOVE = "*The figure is at the top of this page.*"
# what Markdown takes of an output, the first that is there
PREFERRED = ["text/markdown", "image/png", "text/html", "text/plain"]


@dataclass
class Told:
    """What a page tells: title and answer ("": none), cells as they are shown, and the runs that
    were read: (folder, day).
    """

    title: str
    answer: str = ""
    cells: list[NotebookNode] = field(default_factory=list)
    runs: list[tuple[str, str]] = field(default_factory=list)


# ---- what is told --------------------------------------------------------------------------------


def told(book: NotebookNode, folder: Path) -> Told:
    """What the pages tell of an executed notebook; folder: of its figures."""
    first, *others = book.cells
    heading, _, rest = first.source.partition("\n")
    page = Told(heading.lstrip("# "))
    first.source = rest.strip()
    files = {path.read_bytes(): path.name for path in folder.glob("*.png")}
    leading = [Path(path).name for _, path in PICTURE.findall(rest)]
    for cell in others:
        tags = cell.metadata.get("tags", [])
        if cell.cell_type == "markdown":
            page.cells.append(cell)
        elif INJECTED in tags:
            page.cells += changed(cell.source)
        elif BOOTSTRAP not in tags:
            _add_code(page, cell, files, leading)
    page.cells = [first, *recorded(page.runs), *page.cells]
    return page


def changed(source: str) -> list[NotebookNode]:
    """A cell that says which parameters the profile or the call changed; none where none was."""
    values: dict[str, Any] = {}
    for line in ast.parse(source).body:
        if isinstance(line, ast.Assign):
            values[ast.unparse(line.targets[0])] = ast.literal_eval(line.value)
    values |= values.pop("overrides", {})
    values.pop("profile", None)
    if not values:
        return []
    named = ", ".join(f"`{name}` = {_without_folder(value)}" for name, value in values.items())
    return [new_markdown_cell(f"Changed for this profile: {named}.")]


def _without_folder(value: Any) -> str:
    """A value in words; of a file its name alone."""
    is_path = isinstance(value, str) and Path(value).is_absolute()
    return Path(value).name if is_path else brief(value)


def recorded(runs: Sequence[tuple[str, str]]) -> list[NotebookNode]:
    """A cell of one folded line: how many runs were read, and when they were recorded."""
    if not runs:
        return []
    each = dict(runs)
    days = sorted(set(each.values()))
    span = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    count = f"{len(each)} recorded run{'' if len(each) == 1 else 's'} ({span})"
    lines = "\n".join(f"* `{name}`, {day}" for name, day in each.items())
    return [new_markdown_cell(f"<details><summary>{count}</summary>\n\n{lines}\n\n</details>")]


def _add_code(
    page: Told, cell: NotebookNode, files: dict[bytes, str], leading: Sequence[str]
) -> None:
    """Add a cell of code with the outputs that are shown. Its label is what folds it: a cell that
    is shown has none. A cell without outputs and the next one become one.
    """
    tags = cell.metadata.get("tags", [])
    cell.metadata["label"] = "" if BY_HAND in tags else "Code"
    outputs = [_shown(page, output, files, leading) for output in cell.outputs]
    cell.outputs = [output for output in outputs if output]
    before = page.cells[-1] if page.cells else None
    label = before.metadata.get("label") if before and not before.get("outputs") else None
    if label == cell.metadata["label"]:
        cell.source = f"{before.source}\n\n{cell.source}"
        page.cells.pop()
    page.cells.append(cell)


def _shown(
    page: Told, output: NotebookNode, files: dict[bytes, str], leading: Sequence[str]
) -> NotebookNode | None:
    """An output as it is shown, None for one that is not: stderr, and the answer, which the page
    has elsewhere. Runs that were read are noted in the page.
    """
    if output.output_type == "stream":
        page.runs += [(_named(name), day) for name, day in RUN.findall(output.text)]
        output.text = RUN.sub("", output.text).strip()
        return output if output.text and output.name == "stdout" else None
    data = output.get("data", {})
    text = data.get("text/markdown", "")
    if text.startswith(kit.ANSWERED):
        page.answer = text
    if text.startswith((kit.ANSWERED, kit.PENDING)):
        return None
    if "image/png" in data:
        output.metadata["file"] = files.get(base64.b64decode(data["image/png"]), "")
        if output.metadata["file"] in leading:
            return new_output("display_data", {"text/markdown": SHOWN_ABOVE})
    return output


def _named(folder: str) -> str:
    """A run's folder; of one outside the repository its last two parts."""
    path = Path(folder)
    return Path(*path.parts[-2:]).as_posix() if path.is_absolute() else path.as_posix()


# ---- HTML ----------------------------------------------------------------------------------------


def to_html(notebook: Path, folder: Path, others: Collection[str] = ()) -> Path:
    """Write an executed notebook as HTML beside it (`page.html.j2`), its pictures in the page, each
    a link to its file in `folder`. others: notebooks whose pages are there soon.
    """
    page = told(nbformat.read(notebook, as_version=4), folder)
    build, figures = notebook.parent, relative(folder, notebook.parent)

    def picture(match: re.Match) -> str:
        alt, file = match[1], build / match[2]
        shown = f"![{alt}]({embedded(file)})" if file.is_file() else ""
        return f"[{shown}]({match[2]})" if shown else ""

    for text, put in _texts(page):
        linked = NOTEBOOK.sub(r"](\1.html)", PICTURE.sub(picture, text))
        put(_with_tables(linked, folder, f"{figures}/"))
    there = {path.stem for path in build.glob("[0-9]*.html")}
    before, after = around(notebook.stem, there.union(others))
    facts = {"before": before, "after": after, "folder": figures, "css": CSS}
    target = notebook.with_suffix(".html")
    _write(target, _exported(html_exporter(), page, facts))
    return target


@cache
def html_exporter() -> HTMLExporter:
    """What fills `page.html.j2`."""
    return HTMLExporter(template_file=str(TEMPLATES / "page.html.j2"), anchor_link_text="")


def embedded(picture: Path) -> str:
    """The address of a picture that holds the picture."""
    return "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode()


# ---- Markdown ------------------------------------------------------------------------------------


def to_markdown(notebook: Path, folder: Path, figures: Path, others: Collection[str] = ()) -> Path:
    """Write an executed notebook as Markdown beside its figures in `folder` (`page.md.j2`);
    figures: of the profile; others: as of `to_html`. Nothing of the machine is in it.
    """
    page = told(nbformat.read(notebook, as_version=4), folder)
    if folder.parent != figures:  # another pair's: the pages around it are those of the kit
        figures = folder.parent.with_name(SHIPPED)

    def address(name: str) -> str:
        return relative(kit.drawn_in(figures, name) / PAGE, folder)

    def picture(match: re.Match) -> str:
        file = Path(match[2]).name
        return f"![{_plain(match[1])}]({file})" if (folder / file).is_file() else ""

    for text, put in _texts(page):
        linked = NOTEBOOK.sub(lambda match: f"]({address(match[1])})", PICTURE.sub(picture, text))
        put(_with_tables(linked, folder, ""))
    there = {source.stem for source in sources() if (folder / address(source.stem)).is_file()}
    before, after = around(notebook.stem, there.union(others))
    facts = {
        "before": before,
        "after": after,
        "before_at": before and address(before),
        "after_at": after and address(after),
        "report_at": relative(figures / "index.html", folder),
        "stamp": stamp(ROOT / "notebooks" / notebook.name, folder),
    }
    text = _exported(markdown_exporter(), page, facts)
    _write(folder / PAGE, re.sub(r"\n{3,}", "\n\n", text))
    return folder / PAGE


@cache
def markdown_exporter() -> MarkdownExporter:
    """What fills `page.md.j2`."""
    exporter = MarkdownExporter(template_file=str(TEMPLATES / "page.md.j2"))
    exporter.register_filter("filter_data_type", preferred)
    exporter.register_filter("plain", _plain)
    exporter.register_filter("from_html", from_html)
    return exporter


def preferred(data: dict[str, Any]) -> list[str]:
    """The kind of an output that the page shows."""
    return [kind for kind in PREFERRED if kind in data][:1]


def stamp(source: Path, folder: Path) -> str:
    """What a page in Markdown begins with: the notebook and the numbers that it tells of."""
    cells = digest_of(cells_of(nbformat.read(source, as_version=4)))
    files = [*folder.glob("*.csv"), folder / "numbers.json", folder / "captions.json"]
    numbers = {path.name: sha256_of(path) for path in files if path.is_file()}
    return f"by `make reproduce`: notebook {cells[:12]}, numbers {digest_of(numbers)[:12]}"


def cells_of(book: NotebookNode) -> list[tuple[str, str, list[str]]]:
    """(kind, text, tags) of every cell."""
    return [
        (cell.cell_type, cell.source.strip(), cell.metadata.get("tags", [])) for cell in book.cells
    ]


def from_html(fragment: str) -> str:
    """An output of HTML as hosting sites show it: boxes of tokens as Markdown, else as it is."""
    return pictures.as_markdown(fragment) if pictures.PAGE in fragment else fragment


def _plain(text: str | None) -> str:
    """A caption as the text of a picture, without marks of Markdown."""
    return html.escape(re.sub(r"[\[\]`*$]|\s+", lambda m: " " * m[0].isspace(), text or ""), False)


# ---- both ----------------------------------------------------------------------------------------


def sources() -> list[Path]:
    """The numbered notebooks, in order."""
    return sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))


def around(name: str, there: Collection[str]) -> tuple[str, str]:
    """The notebooks before and after one, of those whose page is there; "" for none."""
    padded = ["", *sorted({name, *there}), ""]
    place = padded.index(name)
    return padded[place - 1], padded[place + 1]


def write_page(notebook: Path, figures: Path, others: Collection[str]) -> None:
    """Write both pages of an executed notebook; figures: of the profile; others: see `to_html`."""
    folder = kit.drawn_in(figures, notebook.stem)
    to_html(notebook, folder, others)
    to_markdown(notebook, folder, figures, others)


def _texts(page: Told) -> Iterable[tuple[str, Callable[[str], None]]]:
    """Every text of Markdown on a page, and what puts another in its place."""
    for cell in page.cells:
        if cell.cell_type == "markdown":
            yield cell.source, lambda text, cell=cell: cell.update(source=text)
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "text/markdown" in data:
                kind = "text/markdown"
                yield data[kind], lambda text, data=data: data.update({"text/markdown": text})


def _with_tables(text: str, folder: Path, before: str) -> str:
    """Markdown in which the names of the notebook's own tables are links."""
    return re.sub(rf"`({folder.name}/([\w-]+\.csv))`", rf"[`\1`]({before}\2)", text)


def relative(path: Path, folder: Path) -> str:
    """The address of a file or folder from a page in `folder`."""
    return Path(relpath(path, folder)).as_posix()


def _exported(exporter: Any, page: Told, facts: dict[str, Any]) -> str:
    book = nbformat.v4.new_notebook(cells=page.cells)
    facts = facts | {"title": page.title, "answer": page.answer}
    text, _ = exporter.from_notebook_node(book, {"page": facts})
    return str(text)


def _write(path: Path, text: str) -> None:
    """Write a page where it says something else."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        written(path, lambda there: there.write_text(text, encoding="utf-8"))
