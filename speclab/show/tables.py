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
}
MARKDOWN = re.compile(r"[\\`*_{}\[\]#|$~]")  # characters that Markdown or a hosting site reads
SENTENCE = re.compile(r"[\\`*_{}\[\]#|$~<&]")  # these, and what HTML reads
P_VALUE = re.compile(r"p[_ ](value|holm)")
NUMERIC = re.compile(r"$|(&lt; |[−+])?\d")  # how a cell of a column of numbers begins
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


def export(
    frame: pd.DataFrame,
    folder: Path | str,
    name: str,
    digits: int = 3,
    cells: pd.DataFrame | None = None,
    caption: str = "",
    label: str = "",
) -> tuple[Path, Path]:
    """Write name.csv (full precision) and name.tex (a booktabs table with caption and label,
    `digits` decimals, a dash for missing values). Returns both paths.

    cells: shown in name.tex in place of the values. Default caption and label come from the name.
    Files are byte-stable and never partly written. Raises ValueError if the frame is empty.
    """
    page = Path(folder) / f"{name}.tex"
    table = write_values(frame, folder, name)
    shown = flat(frame if cells is None else cells)
    plain = shown.astype(object).where(shown.notna(), None)
    text = plain.rename(columns=lambda column: str(column).replace("_", " ")).to_latex(
        index=False,
        escape=True,
        na_rep="--",
        float_format=f"%.{digits}f",
        position="t",
        caption=in_tex(caption or name.replace("-", " ")),
        label=f"tab:{label or name}",
    )
    for sign, command in SIGNS.items():
        text = text.replace(sign, command)
    written(page, lambda there: there.write_text(text, encoding="utf-8"))
    return table, page


def write_values(frame: pd.DataFrame, folder: Path | str, name: str) -> Path:
    """Write name.csv alone. Raises ValueError if the frame is empty."""
    if frame.empty:
        raise ValueError(f"table {name!r} is empty: nothing to write")
    path = Path(folder) / f"{name}.csv"
    written(path, partial(flat(frame).to_csv, index=False, lineterminator="\n"))
    return path


def in_tex(text: str) -> str:
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
    names = ["" if name == "index" else in_markdown(str(name)) for name in table]
    columns = [_cells(table.iloc[:, place], digits) for place in range(len(names))]
    sides = ["--:" if all(map(NUMERIC.match, column)) else ":--" for column in columns]
    lines = [names, sides, *zip(*columns, strict=True)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _cells(values: pd.Series, digits: int) -> list[str]:
    is_p = P_VALUE.fullmatch(str(values.name))
    return [
        "&lt; 0.001" if is_p and value < 0.001 else in_markdown(_in_words(value, digits))
        for value in values
    ]


def _in_words(value: Any, digits: int) -> str:
    if value is None or value != value:
        return ""
    if pd.api.types.is_bool(value):
        return "yes" if value else "no"
    if pd.api.types.is_integer(value):
        return f"{value:,}".replace("-", "−")
    if pd.api.types.is_float(value):
        return f"{float(value):z,.{digits}f}".replace("-", "−")
    return str(value)


def in_sentence(name: str) -> str:
    """A name in a sentence of Markdown, its special characters escaped."""
    return SENTENCE.sub(r"\\\g<0>", name)


def in_markdown(text: str) -> str:
    """A text as one line of Markdown, with special characters escaped."""
    escaped = MARKDOWN.sub(r"\\\g<0>", text)
    return " ".join(escaped.replace("&", "&amp;").replace("<", "&lt;").split())
