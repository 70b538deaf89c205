"""Figures as files: the drawn data (slug.csv), the recipe (a function and its options, in
figures.json), and the pictures, which are always drawn from these two.

A figure can therefore be redrawn at another width or in another font without a notebook, a model or
torch. The same data and recipe give the same bytes.
"""

import difflib
import importlib
import inspect
import io
import json
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from speclab.plain import near, notice, read_json
from speclab.show import tables
from speclab.study.runs import written

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from speclab.tree import Tree

RECIPES, CAPTIONS = "figures.json", "captions.json"
FORMATS = ("pdf", "svg", "png")
COLUMN = "-column"  # ends the name of a picture at the width of one column
FUNCTION = re.compile(r"speclab(\.[a-z_0-9]+)+")
AGAIN = "run its notebook again"
TOO_SMALL = "collapsed to zero"  # in matplotlib's warning when text leaves no room for a panel
_said: set[str] = set()  # fonts whose missing characters were reported


# ---- data ----------------------------------------------------------------------------------------


def tree_frame(
    tree: "Tree",
    labels: Sequence[str],
    draft_prob: Sequence[float],
    target_prob: Sequence[float],
    accepted: Sequence[bool],
) -> pd.DataFrame:
    """A drafted tree as data for `drawings.draw_tree`: node, parent, depth, text, q, p, accepted.

    All sequences have N + 1 entries and begin with the root. The root's label is the end of the
    context, and its probabilities are not drawn. Siblings are in rank order.
    """
    return pd.DataFrame(
        {
            "node": range(tree.size + 1),
            "parent": np.maximum(tree.parent, 0),
            "depth": tree.depth,
            "text": list(labels),
            "q": np.asarray(draft_prob, float),
            "p": np.asarray(target_prob, float),
            "accepted": np.asarray(accepted, bool),
        }
    )


def dots_of(panels: Mapping[str, tuple[pd.DataFrame, pd.DataFrame]], value: str) -> pd.DataFrame:
    """Data of `figures.strips`: panel, domain, prompt_id, estimate, low, high. Each panel comes
    from two frames: prompts with the column `value`, and estimates by domain, whose prompt_id is
    "".
    """
    columns = ["panel", "domain", "prompt_id", "estimate", "low", "high"]
    parts = []
    for panel, (prompts, numbers) in panels.items():
        dots = prompts.assign(panel=panel, estimate=prompts[value], low=np.nan, high=np.nan)
        parts += [numbers.assign(panel=panel, prompt_id="")[columns], dots[columns]]
    return pd.concat(parts, ignore_index=True)


def text_columns(frame: pd.DataFrame) -> list[str]:
    """The columns that contain text. They are read back as text, including values such as "NA" and
    "007".
    """
    kinds = frame.infer_objects().dtypes
    return [name for name, kind in kinds.items() if kind.kind not in "biuf"]


def data_of(path: Path, texts: Sequence[str]) -> pd.DataFrame:
    """Read the drawn data as they were written."""
    names = pd.read_csv(path, nrows=0).columns
    numbers = {name: [""] for name in names if name not in texts}
    kinds = dict.fromkeys(texts, str)
    frame: pd.DataFrame = pd.read_csv(
        path,
        dtype=kinds,
        keep_default_na=False,
        na_values=numbers,
        float_precision="round_trip",
    )
    return frame


# ---- recipes -------------------------------------------------------------------------------------


def keep_recipe(
    function: Callable[..., "Figure"],
    frame: pd.DataFrame,
    folder: Path,
    slug: str,
    caption: str,
    options: Mapping[str, Any],
    title: str = "",
    stamp: str = "",
) -> None:
    """Write a figure's data, recipe and caption without drawing it. Raises ValueError for a frame
    without rows.

    title: a sentence above the figure that states its finding. stamp: a warning across the figure.
    """
    name = f"{function.__module__}.{function.__name__}"
    function_named(name)
    flat = tables.flat(frame)
    tables.write_values(flat, folder, slug)
    words = {"title": title, "stamp": stamp}
    recipe = {"function": name, "options": options, "texts": text_columns(flat)} | words
    _add(folder / RECIPES, slug, recipe)
    _add(folder / CAPTIONS, slug, caption)


def _add(path: Path, slug: str, value: Any) -> None:
    facts = read_json(path, AGAIN) if path.is_file() else {}
    facts[slug] = value
    text = json.dumps(dict(sorted(facts.items())), indent=1, ensure_ascii=False, default=_plain)
    written(path, lambda there: there.write_text(text + "\n", encoding="utf-8"))


def _plain(value: Any) -> Any:
    """A NumPy number or array as JSON data."""
    return value.tolist()


def function_named(name: str) -> Callable[..., "Figure"]:
    """The function of a recipe. It must be in this package and be annotated to return a Figure.
    Raises ValueError for any other name; nothing outside the package is imported.
    """
    if not FUNCTION.fullmatch(name):
        raise ValueError(f"{name!r} is not a function of speclab: {AGAIN}")
    module, _, own = name.rpartition(".")
    try:
        function = getattr(importlib.import_module(module), own)
        returned = inspect.signature(function).return_annotation
    except (ImportError, AttributeError, TypeError, ValueError):
        returned = None
    if getattr(returned, "__name__", "") != "Figure":
        raise ValueError(f"{name!r} does not draw a figure: {AGAIN}")
    return function


def recipes_in(folder: Path) -> dict[str, dict[str, Any]]:
    """The recipes of a notebook's figures by slug; {} if it draws none."""
    path = folder / RECIPES
    return read_json(path, AGAIN) if path.is_file() else {}


# ---- pictures ------------------------------------------------------------------------------------


def figure_of(
    folder: Path,
    slug: str,
    width: float | None = None,
    height: float | None = None,
    font: str = "",
    size: float | None = None,
    title: str | None = None,
) -> "Figure":
    """Draw a figure from its recipe and its data.

    width, height: in inches. size: of the text, in points. None or "" means the house style's
    value. title: replaces the recipe's title; "" omits it.
    """
    recipe = recipes_in(folder)[slug]
    function = function_named(recipe["function"])
    frame = data_of(folder / f"{slug}.csv", recipe["texts"])
    draw = partial(function, frame, **recipe["options"])
    above = recipe.get("title", "") if title is None else title
    return draw_styled(draw, width, height, font, size, above, recipe.get("stamp", ""))


def draw_styled(
    draw: Callable[[], "Figure"],
    width: float | None = None,
    height: float | None = None,
    font: str = "",
    size: float | None = None,
    title: str = "",
    stamp: str = "",
) -> "Figure":
    """Draw and lay out a figure in the house style. Arguments are those of `figure_of`. Characters
    that no font has are reported once per font on stderr.
    """
    from speclab.show import figures, style

    font = font or style.FONT
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with figures.styled(width or style.TWO_COLUMNS, font, size):
            figure = draw()
            if height:
                figure.set_figheight(height)
            figures.laid_out(figure, title, stamp, may_grow=not height)
    if any(TOO_SMALL in str(one.message) for one in found):
        inches = " x ".join(f"{length:g}" for length in figure.get_size_inches())
        notice(f"figure: at {inches} inches its text leaves no room for the panels; make it larger")
    _say_missing(figures.missing_glyphs(found), font)
    return figure


def _say_missing(glyphs: str, font: str) -> None:
    if glyphs and font not in _said:
        _said.add(font)
        notice(
            f"font: {font} lacks {glyphs}; `python -m speclab figure --font NAME` draws a figure "
            "in a font that has them"
        )


def picture(figure: "Figure", kind: str, title: str = "", subject: str = "") -> bytes:
    """A figure as the bytes of a file in one of FORMATS. The same figure gives the same bytes."""
    metadata: dict[str, Any] = {
        "pdf": dict.fromkeys(["CreationDate", "Creator", "Producer"]),
        "svg": {"Date": None, "Creator": None},
        "png": {"Software": None},
    }[kind]
    described = {"Title": title, "Subject" if kind == "pdf" else "Description": subject}
    metadata |= {name: text for name, text in described.items() if text and kind != "png"}
    from speclab.show import figures

    file = io.BytesIO()
    with warnings.catch_warnings(), figures.styled():
        warnings.simplefilter("ignore")  # `draw_styled` has reported them
        figure.savefig(file, format=kind, metadata=metadata)
    return file.getvalue()


def write_pictures(folder: Path, slug: str) -> None:
    """Write the pictures of a figure: slug.png, slug.pdf and slug.svg at the width of two columns,
    and slug-column.pdf and slug-column.png (for small screens) at the width of one.
    """
    from speclab.show import style

    widths = (style.TWO_COLUMNS, style.ONE_COLUMN)
    two, one = (figure_of(folder, slug, width) for width in widths)
    _save(two, one, folder, slug, title_of(folder, slug))


def draw_once(
    draw: Callable[[], "Figure"],
    frame: pd.DataFrame,
    folder: Path,
    slug: str,
    caption: str,
    title: str = "",
    stamp: str = "",
) -> None:
    """Write the data, the caption and the pictures of a figure that a notebook draws itself."""
    from speclab.show import style

    tables.write_values(tables.flat(frame), folder, slug)
    _add(folder / CAPTIONS, slug, caption)
    widths = (style.TWO_COLUMNS, style.ONE_COLUMN)
    two, one = (draw_styled(draw, width, title=title, stamp=stamp) for width in widths)
    _save(two, one, folder, slug, f"{title} ({folder.name}, {folder.parent.name})")


def _save(two: "Figure", one: "Figure", folder: Path, slug: str, title: str) -> None:
    """Write the pictures of a figure that is drawn at both widths."""
    wide = [(two, f".{kind}") for kind in FORMATS]
    for figure, end in (*wide, (one, f"{COLUMN}.pdf"), (one, f"{COLUMN}.png")):
        content = picture(figure, end[-3:], title, caption_of(folder, slug))
        written(folder / f"{slug}{end}", lambda path, content=content: path.write_bytes(content))


def caption_of(folder: Path, slug: str) -> str:
    """The caption of a figure."""
    return str(read_json(folder / CAPTIONS, AGAIN).get(slug, ""))


def title_of(folder: Path, slug: str) -> str:
    """A figure's title with its notebook and profile, 'speed-up (02, smollm)'. Without a title, its
    slug in words.
    """
    title = recipes_in(folder)[slug].get("title", "") or slug.replace("-", " ")
    return f"{title} ({folder.name}, {folder.parent.name})"


# ---- redraw --------------------------------------------------------------------------------------


def redraw(
    figures_folder: Path,
    name: str,
    kind: str,
    width: float | None = None,
    height: float | None = None,
    font: str = "",
    size: float | None = None,
    title: str | None = None,
) -> bytes:
    """Redraw a figure of a notebook and return the bytes of a file.

    figures_folder: of a profile. name: such as '02/speed-up'. Raises ValueError for an unknown
    notebook, figure or font.
    """
    from speclab.show import figures
    from speclab.show.notebook import drawn_in

    number, _, slug = name.partition("/")
    folder = drawn_in(figures_folder, number.zfill(2))
    recipes = recipes_in(folder)
    if not recipes:
        there = [path.parent.name for path in figures_folder.glob(f"*/{RECIPES}")]
        raise ValueError(
            f"notebook {number!r} has no figures in {figures_folder}: "
            f"{near(number, sorted(there)) if there else 'there are none; run `make reproduce`'}"
        )
    if slug not in recipes:
        raise ValueError(f"notebook {number} draws no figure {slug!r}: {near(slug, recipes)}")
    installed = figures.fonts()
    if font and font not in installed:
        alike = difflib.get_close_matches(font, installed, 5, cutoff=0.3) or installed[:5]
        raise ValueError(
            f"font {font!r} is not installed; similar names among the {len(installed)} installed "
            f"fonts: {', '.join(alike)}"
        )
    figure = figure_of(folder, slug, width, height, font, size, title)
    return picture(figure, kind, title_of(folder, slug), caption_of(folder, slug))


def redraw_all(folder: Path, slugs: Iterable[str] = ()) -> dict[bytes, bytes]:
    """Redraw all figures of a notebook. Returns the new PNG for each earlier PNG."""
    changed = {}
    for slug in slugs or recipes_in(folder):
        png = folder / f"{slug}.png"
        before = png.read_bytes() if png.is_file() else b""
        write_pictures(folder, slug)
        changed[before] = png.read_bytes()
    return changed
