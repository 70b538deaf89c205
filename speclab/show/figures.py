"""Figures in the house style, and the kinds of figure that several notebooks share.

Each figure is a function of a data frame and plain options, and returns a Figure. Its width is that
of `styled`; if it is narrow, its panels are stacked. Matplotlib's constrained layout places its
parts, and labels are broken into lines by the mean width of a letter. `figure_files` writes them.
"""

import os
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import cycle
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib import rc_params_from_file, rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from speclab.estimates import NUMBERS
from speclab.plain import notice
from speclab.show import style

STYLE = "SPECLAB_STYLE"  # environment variable: a reader's own style file, for all figures
PANEL = 1.4  # smallest width of a panel, in inches
AXIS_LABELS = {
    "gamma": "gamma (draft tokens proposed)",
    "c": "c, a draft pass in target passes",
    "n": "tokens in one pass, n",
    "batch": "requests per batch",
    "n_prompts": "prompts per domain",
    "factor": "temperature of the draft, as a share of the target's",
}


@contextmanager
def styled(width: float = style.TWO_COLUMNS, fonts: Iterable[str] = ()) -> Iterator[None]:
    """Use the house style as matplotlib's defaults inside the context, and after it the style file
    that `make reproduce STYLE=` names; width: of the figures, in inches; fonts: families before the
    house font. A character that a font lacks is drawn in the next one.
    """
    size = style.SMALL_TEXT if width < style.NARROW else style.TEXT
    families = [*filter(has_font, fonts), style.FONT]
    usual = {"font.family": families, "font.size": size}
    of_reader = [os.environ[STYLE]] if os.environ.get(STYLE) else []
    with plt.rc_context():
        plt.style.use(["default", style.STYLE, usual, *of_reader])
        rcParams["figure.figsize"] = (width, style.TALLEST)
        rcParams["font.family"] = list(dict.fromkeys([*rcParams["font.family"], *families]))
        yield


@cache
def has_font(family: str) -> bool:
    """Whether this machine has a font; if not, a line says so once."""
    try:
        findfont(family, fallback_to_default=False)
    except ValueError:
        notice(f"font: {family!r} is not on this machine; install it, or name another in `font`")
        return False
    return True


def check_style() -> None:
    """OSError or ValueError unless the reader's style file is there and sets something that
    matplotlib knows.
    """
    path = os.environ[STYLE]
    if not rc_params_from_file(path, fail_on_error=True, use_default_template=False):
        raise ValueError(f"STYLE={path}: this is no style file of matplotlib")


def width() -> float:
    """Width in inches of the figures that are drawn in this context."""
    return float(rcParams["figure.figsize"][0])


def is_narrow() -> bool:
    """True if panels have to be stacked."""
    return width() < style.NARROW


# ---- layout --------------------------------------------------------------------------------------


def subplots(
    rows: int = 1, columns: int = 1, height: float = 2.5, **options: Any
) -> tuple[Figure, Any]:
    """A figure and its axes (a single one, or an array), as from matplotlib's `subplots`. `height`
    is in inches and at most style.TALLEST. The figure is not registered with pyplot.
    """
    size = (width(), min(height, style.TALLEST))
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def row_of_panels(count: int, height: float, **options: Any) -> tuple[Figure, Sequence[Axes]]:
    """A figure with panels side by side. If it is narrow, they are stacked, and four of them stand
    two by two.
    """
    wide = count
    if is_narrow():
        wide = 2 if count == 4 else 1
    lines = count // wide
    tall = 0.75 * height * lines if is_narrow() else height
    figure, grid = subplots(lines, wide, height=tall, squeeze=False, **options)
    return figure, list(grid.flat)


def letters(inches: float) -> int:
    """How many letters of the usual text fit into a line of this length."""
    return max(int(120 * inches / rcParams["font.size"]), 1)


def wrapped(text: Any, inches: float) -> str:
    """A text in lines of at most this length. Only longer words are broken, and not "T = 0"."""
    whole = str(text).replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
    return textwrap.fill(whole, letters(inches)).replace("\N{NO-BREAK SPACE}", " ")


def add_legend(figure: Figure) -> None:
    """One legend for all panels, above them. Each name appears once. The figure becomes higher."""
    handle_of: dict[str, Any] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        handle_of = dict(zip(labels, handles, strict=True)) | handle_of
    names = [wrapped(label, 0.8 * width()) for label in handle_of]
    # columns of equal width: a name, and room for its sign
    longest = max(map(len, names), default=0)
    columns = letters(width()) // (7 + longest) or 1
    rows = -(-len(names) // columns)
    columns = -(-len(names) // max(rows, 1)) or 1
    figure.legend(handle_of.values(), names, loc="outside upper left", ncols=columns)
    _add_lines(figure, rows)


def add_title(figure: Figure, title: str) -> None:
    """Put a title above the legend. The figure becomes higher."""
    [legend] = figure.legends
    legend.set_alignment("left")
    text = wrapped(title, 0.85 * figure.get_figwidth())
    legend.set_title(text, {"weight": "bold"})
    _add_lines(figure, 1 + text.count("\n"))


def _add_lines(figure: Figure, count: int) -> None:
    """Make a figure higher by some lines of text, up to style.TALLEST."""
    tall = figure.get_figheight() + count * rcParams["font.size"] / 50
    figure.set_figheight(min(tall, style.TALLEST))


# ---- series --------------------------------------------------------------------------------------


def looks_of(names: Iterable[Any], hue: str = "domain") -> dict[Any, dict[str, Any]]:
    """Colour, marker, line style and label of each series.

    Names in style.SERIES have fixed looks. The other names take the remaining looks in order of
    appearance; looks with the colours of tokens (style.OF_TOKENS) come last. Up to twelve series
    look different.
    """
    names = list(names)
    fixed = [style.SERIES.get(str(name)) for name in names]
    ordered = list(style.LOOKS)
    if hue != "domain":
        ordered = [*style.OTHER_LOOKS, *style.DOMAIN_LOOKS]
    ordered.sort(key=lambda look: look in style.OF_TOKENS)
    free = cycle([look for look in ordered if look not in fixed])
    looks = {}
    for name in names:
        label = str(name)
        look = style.SERIES.get(label) or next(free)
        if label.startswith("_"):  # matplotlib would hide it
            label = f"\N{HAIR SPACE}{label}"
        looks[name] = look | {"label": label}
    return looks


def interval_bars(
    frame: pd.DataFrame,
    axes: Axes,
    x: str,
    hue: str,
    horizontal: bool,
    groups: Sequence,
    looks: Mapping[Any, Mapping],
) -> None:
    """Points with confidence intervals: one group per value of `x`, and in it one point per value
    of `hue`, side by side. If the bounds are NaN, only the point is drawn.

    horizontal: groups are on the y axis. groups, looks: all values of `x`, and the `looks_of` all
    series, also of those that the frame lacks.
    """
    # all points of a group stand in half of its row
    gaps = len(looks) - 1
    step = min(0.2, 0.5 / max(gaps, 1))
    for index, (name, look) in enumerate(looks.items()):
        rows = frame[frame[hue] == name]
        offset = (index - gaps / 2) * step
        place = pd.Index(groups).get_indexer(rows[x]) + offset
        value, low, high = rows[NUMBERS].to_numpy(float).T
        reach = np.clip([value - low, high - value], 0, None)
        points = {**look, "linestyle": "none", "capsize": 2, "elinewidth": 1.2}
        if horizontal:
            axes.errorbar(value, place, xerr=reach, **points)
        else:
            axes.errorbar(place, value, yerr=reach, **points)
    # the names of the groups, and lines between neighbours
    ticks = axes.yaxis if horizontal else axes.xaxis
    room = 0.3 * width()
    if not horizontal:
        room = _room_under(axes.get_gridspec().ncols, len(groups))
    labels = [wrapped(name, room) for name in groups]
    ticks.set_ticks(range(len(groups)), labels=labels)
    ticks.grid(False)
    if horizontal:
        for line in range(1, len(groups)):
            axes.axhline(line - 0.5, color="#cccccc", linewidth=0.6, zorder=0.5)
        axes.set_ylim(len(groups) - 0.5, -0.5)


def _room_under(panels: int, groups: int) -> float:
    """Inches for the name of a group under one of several panels side by side."""
    return (width() - 0.5) / panels / (groups + 0.5)


def lines_with_bands(frame: pd.DataFrame, axes: Axes, x: str, hue: str, looks: Mapping) -> None:
    """One line per value of `hue` over a numeric `x`, with its interval as a band. looks: from
    `looks_of`.
    """
    for name, look in looks.items():
        rows = frame[frame[hue] == name].sort_values(x)
        value, low, high = rows[NUMBERS].to_numpy(float).T
        axes.fill_between(rows[x], low, high, color=look["color"], alpha=0.15, linewidth=0)
        axes.plot(rows[x], value, **look)
    if pd.api.types.is_integer_dtype(frame[x]):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


# ---- kinds of figure -----------------------------------------------------------------------------


def facets(
    frame: pd.DataFrame,
    x: str,
    hue: str = "domain",
    columns: str = "",
    kind: str = "lines",
    y: str = "estimate",
    x_label: str = "",
    limits: Sequence[float | None] = (None, None),
    reference: Mapping[str, float] = {},
    only: Mapping[str, Sequence] = {},
) -> Figure:
    """Estimates with their intervals, with one panel per value of `columns` and one colour per
    value of `hue`. All keep their order of appearance.

    kind: "lines" (bands over a numeric x), "log" (the same, both axes logarithmic), "points" (error
    bars over a few values of x) or "bars" (the same, horizontal; also for points whose names are
    too long to stand under them). y: the label of the estimate's axis. One that ends in "(%)" or
    "(points)" shows fractions of 1 in percent. x_label: the label of the other axis; default:
    AXIS_LABELS, or the name of a column of numbers. limits: range of the estimate's axis.
    reference: a line at this value, by its name in the legend. only: for a column, the values to
    draw.
    """
    for name, values in only.items():
        frame = frame[frame[name].isin(list(values))]
    panels = pd.unique(frame[columns]) if columns else [""]
    groups = pd.unique(frame[x])
    series = looks_of(pd.unique(frame[hue]), hue)
    marks = len(groups) * (len(series) if hue != x else 1)
    # panels side by side, as many as have room
    least = max(PANEL, 0.11 * marks) if kind == "points" else PANEL
    room = int((width() - 0.3) / least)
    wide = min(max(room, 1), len(panels))
    lines = -(-len(panels) // wide)
    wide = -(-len(panels) // lines)
    # bars, and points whose names are too long to stand under them, lie on their sides
    words = " ".join(map(str, groups)).split()
    longest = max(map(len, words), default=0)
    is_long = longest > letters(_room_under(wide, len(groups)))
    lying = kind == "bars" or (kind == "points" and is_long)
    each = 1.6 if is_narrow() else 2.2
    if lying:
        each = 0.6 + max(0.14 * marks, 0.35 * len(groups))
    tall = each * lines + 0.3
    figure, grid = subplots(lines, wide, tall, squeeze=False, sharex=True, sharey=True)
    # a panel after the other, and nothing in the last places
    for axes, panel in zip(grid.flat, panels, strict=False):
        part = frame[frame[columns] == panel] if columns else frame
        if lying or kind == "points":
            interval_bars(part, axes, x, hue, lying, groups, series)
        else:
            lines_with_bands(part, axes, x, hue, series)
        room_above = (width() - 0.5) / wide - 0.1
        axes.set_title(wrapped(panel, room_above))
        for name, at in reference.items():
            draw = axes.axvline if lying else axes.axhline
            draw(at, color="black", linewidth=0.7, label=name or "_")
        if kind == "log":
            _logarithmic(axes)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for axes in grid.flat[len(panels) - wide : len(panels)]:  # the last one of each column
        axes.tick_params(axis="x", labelbottom=True)
    # the two axes, after all panels are drawn, so that an open limit fits them all
    first = grid.flat[0]
    first.set(**{"xlim" if lying else "ylim": limits})
    if y.endswith(("(%)", "(points)")):
        axis = first.xaxis if lying else first.yaxis
        axis.set_major_formatter(_in_percent)
    is_number = pd.api.types.is_numeric_dtype(frame[x])
    x_label = x_label or AXIS_LABELS.get(x, x if is_number else "")
    under, beside = (y, x_label) if lying else (x_label, y)
    figure.supxlabel(wrapped(under, 0.9 * width()))
    for axes in grid[:, 0]:
        axes.set_ylabel(wrapped(beside, each - 0.4))
    return figure


def _in_percent(value: float, _: int) -> str:
    return f"{100 * value:.6g}".replace("-", "−")


def _logarithmic(axes: Axes) -> None:
    """Powers of 2 on the x axis; 1, 2, 5, 10, … on the y axis."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")


def strips(frame: pd.DataFrame, label: str) -> Figure:
    """One dot per prompt by domain, and the domain's estimate with its interval. Rows with a
    `prompt_id` are dots; `panel` is the title.
    """
    is_dot = frame["prompt_id"] != ""
    numbers = frame[~is_dot]
    figure, axes = subplots(height=max(2.6, 0.3 * len(numbers)))
    shifts = np.random.default_rng(0)
    for place, (name, look) in enumerate(looks_of(numbers["domain"]).items()):
        values = frame.loc[is_dot & (frame["domain"] == name), "estimate"]
        heights = place + shifts.uniform(-0.25, 0.25, len(values))
        axes.plot(values, heights, ".", color=look["color"], alpha=0.6, markeredgewidth=0)
    dark = looks_of([""], hue="of")
    interval_bars(numbers.assign(of=""), axes, "domain", "of", True, numbers["domain"], dark)
    axes.set(title=frame["panel"].iloc[0], xlabel=label)
    return figure
