"""Figures as files: the drawn data (slug.csv), the caption (captions.json) and the pictures, at the
width of two columns and of one. The same data give the same bytes.
"""

import io
import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from speclab.plain import notice, read_json
from speclab.show import tables
from speclab.study.runs import written

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CAPTIONS = "captions.json"
FORMATS = ("pdf", "svg", "png")
COLUMN = "-column"  # ends the name of a picture at the width of one column
AGAIN = "run its notebook again"
TOO_SMALL = "collapsed to zero"  # in matplotlib's warning when text leaves no room for a panel
_reported: set[str] = set()  # missing characters


def save_figure(
    draw: Callable[[], "Figure"],
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
    from speclab.show import figures, style

    tables.write_values(tables.flat(frame), folder, slug)
    _add_caption(folder / CAPTIONS, slug, caption)
    name = title or slug.replace("-", " ")
    said = f"{name} ({folder.name}, {folder.parent.name})"
    for width, end in ((style.TWO_COLUMNS, ""), (style.ONE_COLUMN, COLUMN)):
        figure = draw_styled(draw, width, stamp, fonts)
        kinds = FORMATS if not end else ("pdf", "png")
        for kind in kinds:  # the PDF comes first
            path = folder / f"{slug}{end}.{kind}"
            content = picture(figure, kind, said, caption)
            written(path, lambda there, got=content: there.write_bytes(got))
            if kind == "pdf" and title:
                with figures.styled(width, fonts):
                    figures.add_title(figure, title)


def _add_caption(path: Path, slug: str, caption: str) -> None:
    captions = read_json(path, AGAIN) if path.is_file() else {}
    captions[slug] = caption
    text = json.dumps(dict(sorted(captions.items())), indent=1, ensure_ascii=False)
    written(path, lambda there: there.write_text(text + "\n", encoding="utf-8"))


def draw_styled(
    draw: Callable[[], "Figure"],
    width: float | None = None,
    stamp: str = "",
    fonts: Sequence[str] = (),
) -> "Figure":
    """Draw a figure in the house style, with its legend; width: in inches; stamp: a warning across
    it; fonts: families before the house font. Characters that no font has, and a figure too small
    for its text, are reported on stderr.
    """
    from speclab.show import figures, style

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with figures.styled(width or style.TWO_COLUMNS, fonts):
            figure = draw()
            figures.add_legend(figure)
            figure.text(0.5, 0.5, stamp, **style.STAMP)
            figure.draw_without_rendering()
    if any(TOO_SMALL in str(one.message) for one in found):
        inches = " x ".join(f"{length:g}" for length in figure.get_size_inches())
        notice(f"figure: at {inches} inches its text leaves no room for the panels; make it larger")
    glyphs = figures.missing_glyphs(found)
    if glyphs and glyphs not in _reported:
        _reported.add(glyphs)
        notice(
            f"no font of the figures has {' '.join(glyphs)}; install one that has, as Noto Sans of "
            "this script or Noto Sans CJK SC (Chinese, Japanese, Korean), and name it in the "
            "profile (`font: …`)"
        )
    return figure


def picture(figure: "Figure", kind: str, title: str = "", subject: str = "") -> bytes:
    """A figure as the bytes of a file in one of FORMATS. The same figure gives the same bytes."""
    from speclab.show import figures

    metadata: dict[str, Any] = {
        "pdf": dict.fromkeys(["CreationDate", "Creator", "Producer"]),
        "svg": {"Date": None, "Creator": None},
        "png": {"Software": None},
    }[kind]
    if kind != "png":
        described = {"Title": title, "Subject" if kind == "pdf" else "Description": subject}
        metadata |= {name: text for name, text in described.items() if text}
    file = io.BytesIO()
    with warnings.catch_warnings(), figures.styled(figure.get_figwidth()):
        warnings.simplefilter("ignore")  # `draw_styled` has reported them
        figure.savefig(file, format=kind, metadata=metadata)
    return file.getvalue()
