"""Figures as files: the drawn data (slug.csv), the caption (captions.json) and the pictures, at the
width of two columns and of one. The same data give the same bytes.
"""

import io
import json
import re
import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import pandas as pd

from speclab.plain import notice, read_json
from speclab.show import figures, style, tables
from speclab.show.figures import Figure
from speclab.study.runs import written

CAPTIONS = "captions.json"
TOO_SMALL = "collapsed to zero"  # in matplotlib's warning when text leaves no room for a panel


def save_figure(
    draw: Callable[[], Figure],
    frame: pd.DataFrame,
    folder: Path,
    slug: str,
    caption: str,
    title: str = "",
    stamp: str = "",
    fonts: Sequence[str] = (),
) -> None:
    """Write the data, the caption and the pictures of a figure: slug.png, .pdf and .svg at the
    width of two columns, slug-column.pdf and .png (for small screens) at the width of one.

    title: above the figure; the PDFs, which are for papers, have none. stamp: a warning across it.
    fonts: families before the house font. Raises ValueError for a frame without rows.
    """
    tables.write_values(frame, folder, slug)
    # its caption, among those of the folder
    path = folder / CAPTIONS
    captions = read_json(path, "run its notebook again") if path.is_file() else {}
    captions[slug] = caption
    text = json.dumps(captions, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    written(path, lambda there: there.write_text(text, encoding="utf-8"))
    # the pictures, of which the PDF comes first
    name = title or slug.replace("-", " ")
    said = f"{name} ({folder.name}, {folder.parent.name})"
    for width, end, kinds in (
        (style.TWO_COLUMNS, "", ("pdf", "svg", "png")),
        (style.ONE_COLUMN, "-column", ("pdf", "png")),
    ):
        figure = draw_styled(draw, width, stamp, fonts)
        for kind in kinds:
            content = picture(figure, kind, said, caption)
            written(folder / f"{slug}{end}.{kind}", partial(Path.write_bytes, data=content))
            if kind == "pdf" and title:
                with figures.styled(width, fonts):
                    figures.add_title(figure, title)


def draw_styled(
    draw: Callable[[], Figure],
    width: float = style.TWO_COLUMNS,
    stamp: str = "",
    fonts: Sequence[str] = (),
) -> Figure:
    """Draw a figure in the house style, with its legend; width: in inches; stamp: a warning across
    it; fonts: families before the house font. Characters that no font has, and a figure too small
    for its text, are reported on stderr.
    """
    with (
        warnings.catch_warnings(record=True, action="always") as found,
        figures.styled(width, fonts),
    ):
        figure = draw()
        figures.add_legend(figure)
        figure.text(0.5, 0.5, stamp, **style.STAMP)
        figure.draw_without_rendering()
    said = "\n".join(str(one.message) for one in found)
    if TOO_SMALL in said:
        inches = " x ".join(f"{length:g}" for length in figure.get_size_inches())
        notice(f"figure: at {inches} inches its text leaves no room for the panels; make it larger")
    codes = re.findall(r"Glyph (\d+) .*missing from font", said)
    if codes:
        _report(" ".join(dict.fromkeys(chr(int(code)) for code in codes)))
    return figure


@cache
def _report(glyphs: str) -> None:
    """Say once which characters no font has."""
    notice(
        f"no font of the figures has {glyphs}; install one that has, as Noto Sans of "
        "this script or Noto Sans CJK SC (Chinese, Japanese, Korean), and name it in the "
        "profile (`font: …`)"
    )


def picture(figure: Figure, kind: str, title: str = "", subject: str = "") -> bytes:
    """A figure as the bytes of a PDF, an SVG or a PNG. The same figure gives the same bytes."""
    undated = {"CreationDate": None, "Creator": None, "Producer": None}
    metadata: dict[str, Any] = {
        "pdf": undated | {"Title": title, "Subject": subject},
        "svg": {"Date": None, "Creator": None, "Title": title, "Description": subject},
        "png": {"Software": None},
    }
    file = io.BytesIO()
    # `draw_styled` has reported the warnings
    with warnings.catch_warnings(action="ignore"), figures.styled(figure.get_figwidth()):
        figure.savefig(file, format=kind, metadata=metadata[kind])
    return file.getvalue()
