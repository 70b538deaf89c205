"""Tables as files: comma-separated values for computation, LaTeX for print. And tables on pages."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from speclab.study.runs import written

SIGNS = {  # signs that LaTeX's usual fonts lack, or show as others
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "−": "$-$",
    "≈": r"$\approx$",
    "×": r"$\times$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "→": r"$\to$",
    "…": r"\dots{}",
    "±": r"$\pm$",
    "·": r"$\cdot$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "γ": r"$\gamma$",
    "Δ": r"$\Delta$",
    # of tokens
    "␣": r"\textvisiblespace{}",
    "⏎": r"$\hookleftarrow$",
    "▌": r"\rule{0.3em}{1ex}",
    "\N{REPLACEMENT CHARACTER}": "?",
}
TIMES = re.compile(r"(?<=\d)x(?!\w)")  # the unit of a ratio: 1.35x
# the first cell of a row, if LaTeX would read its beginning as an option of the row before
OPTION = re.compile(r"^[\[*]", re.MULTILINE)
MARKDOWN = re.compile(r"[\\`*_{}\[\]#|$~]")  # characters that Markdown or a hosting site reads
SENTENCE = re.compile(r"[\\`*_{}\[\]#|$~<&]")  # these, and what HTML reads
P_VALUE = re.compile(r"p[_ ](value|holm)")
NUMERIC = re.compile(r"$|(< |[−+])?\d")  # how a cell of a column of numbers begins
OF_NUMBERS = re.compile(rf"--$|undefined$|{NUMERIC.pattern}")
MOST_ROWS = 12  # of a table that stands on one page
SPECIAL = re.compile(r"[&%$#_{}~^\\]")
COMMANDS = {
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
}


def flat(frame: pd.DataFrame) -> pd.DataFrame:
    """The table with its index as columns, unless the index is row numbers."""
    index = frame.index
    is_of_rows = index.names == [None] and pd.api.types.is_integer_dtype(index)
    return frame.reset_index(drop=is_of_rows)


def export_table(
    frame: pd.DataFrame,
    folder: Path,
    name: str,
    caption: str,
    digits: int = 3,
    cells: pd.DataFrame | None = None,
    is_wide: bool = False,
    most: int | None = None,
) -> Path:
    """Write name.csv (full precision) and name.tex (a booktabs table with a caption, and a label of
    the folder's name and its own: what `markdown` shows, a dash for missing values, numbers on the
    right). Returns the path of name.tex.

    cells: shown in name.tex in place of the values. is_wide: across both columns of a paper
    (`table*`). most: this many first rows, at most, are in name.tex. If they are more than
    MOST_ROWS, it is a `longtable`. Files are byte-stable and never partly written. Raises
    ValueError if the frame is empty.
    """
    write_values(frame, folder, name)
    every = flat(frame if cells is None else cells)
    shown = every.head(len(every) if most is None else most)
    # the cells as text, columns of numbers on the right
    columns = [[text or "--" for text in texts] for texts in _columns_of(shown, digits)]
    names = ["" if column == "index" else str(column).replace("_", " ") for column in shown]
    texts = pd.DataFrame(dict(enumerate(columns))).set_axis(names, axis=1)
    sides = ["r" if all(map(OF_NUMBERS.match, column)) else "l" for column in columns]
    is_long = len(shown) > MOST_ROWS
    text = texts.to_latex(
        index=False,
        escape=True,
        column_format="".join(sides),
        longtable=is_long,
        position=None if is_long else "t",
        caption=format_tex(caption),
        label=f"tab:{folder.name}-{name}",
    )
    # what pandas does not write
    text = text.replace("[t]\n", "[t]\n\\centering\\small\n")
    if is_wide:
        text = text.replace("{table}", "{table*}")
    text = OPTION.sub(r"{\g<0>}", TIMES.sub("×", text)).translate(str.maketrans(SIGNS))
    if len(shown) < len(every):
        text = f"% {len(shown)} of {len(every)} rows; all are in {name}.csv\n{text}"
    page = folder / f"{name}.tex"
    written(page, lambda there: there.write_text(text, encoding="utf-8"))
    return page


def write_values(frame: pd.DataFrame, folder: Path, name: str) -> None:
    """Write name.csv alone. Raises ValueError if the frame is empty."""
    if frame.empty:
        raise ValueError(f"table {name!r} is empty: nothing to write")
    values = partial(flat(frame).to_csv, index=False, lineterminator="\n")
    written(folder / f"{name}.csv", values)


def format_tex(text: str) -> str:
    """A sentence of Markdown as LaTeX: special characters are escaped, Markdown's marks are
    removed.
    """
    plain = re.sub(r"[`*]", "", text)
    return SPECIAL.sub(lambda match: COMMANDS.get(match[0], f"\\{match[0]}"), plain)


# ---- on pages ------------------------------------------------------------------------------------


def markdown(frame: pd.DataFrame, digits: int = 3) -> str:
    """A table for a page, in Markdown. Numbers are on the right, with `digits` decimals, a true
    minus and thousands separators. Missing values are blank, booleans are yes or no, and a p-value
    is never 0.
    """
    table = flat(frame)
    names = ["" if name == "index" else format_markdown(str(name)) for name in table]
    columns = _columns_of(table, digits)
    sides = ["--:" if all(map(NUMERIC.match, column)) else ":--" for column in columns]
    rows = [map(format_markdown, row) for row in zip(*columns, strict=True)]
    lines = [names, sides, *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _columns_of(table: pd.DataFrame, digits: int) -> list[list[str]]:
    """The cells of each column as plain text."""
    columns = []
    for name, values in table.items():
        is_p = P_VALUE.fullmatch(str(name))
        decimals = max(digits, 3) if is_p else digits
        columns.append([_in_words(value, decimals, is_p) for value in values])
    return columns


def _in_words(value: Any, digits: int, is_p: Any) -> str:
    if value is None or value != value:
        return ""
    if is_p and value < 0.001:
        return "< 0.001"
    if pd.api.types.is_bool(value):
        return "yes" if value else "no"
    if pd.api.types.is_integer(value):
        return f"{value:,}".replace("-", "−")
    if pd.api.types.is_float(value):
        return f"{float(value):z,.{digits}f}".replace("-", "−")
    return str(value)


def format_sentence(name: str) -> str:
    """A name in a sentence of Markdown, its special characters escaped."""
    return SENTENCE.sub(r"\\\g<0>", name)


def format_markdown(text: str) -> str:
    """A text as one line of Markdown, with special characters escaped."""
    escaped = MARKDOWN.sub(r"\\\g<0>", text)
    return " ".join(escaped.replace("&", "&amp;").replace("<", "&lt;").split())
