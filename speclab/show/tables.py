"""Tables as files: comma-separated values to compute with, LaTeX to print."""

from functools import partial
from pathlib import Path

import pandas as pd

from speclab.runs import written


def export(
    frame: pd.DataFrame, folder: Path | str, name: str, digits: int = 3
) -> tuple[Path, Path]:
    """Write name.csv (full precision) and name.tex (booktabs, `digits` decimals, missing as a
    dash); returns both paths.

    Files are byte-stable and appear whole. ValueError if the frame is empty.
    """
    if frame.empty:
        raise ValueError(f"table {name!r} is empty: nothing to write")
    table, page = Path(folder) / f"{name}.csv", Path(folder) / f"{name}.tex"
    named = frame if isinstance(frame.index, pd.RangeIndex) else frame.reset_index()
    plain = named.astype(object).where(named.notna(), None)
    latex = plain.rename(columns=lambda column: str(column).replace("_", " "))
    decimals = f"%.{digits}f"
    write_csv = partial(named.to_csv, index=False, lineterminator="\n")
    write_tex = partial(
        latex.to_latex, index=False, escape=True, na_rep="--", float_format=decimals
    )
    written(table, write_csv)
    written(page, write_tex)
    return table, page
