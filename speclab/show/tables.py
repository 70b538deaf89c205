"""Tables as files: comma-separated values for computation, LaTeX for print."""

import re
from functools import partial
from pathlib import Path

import pandas as pd

from speclab.runs import written

SIGNS = {  # signs that LaTeX's usual fonts lack
    "−": "$-$",
    "≈": r"$\approx$",
    "×": r"$\times$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "→": r"$\to$",
    "…": r"\dots{}",
}
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
