"""Figures in the house style, and the kinds of figure that several notebooks share.

Each figure is a function of a data frame and plain options, and returns a Figure. Its width is that
of `styled`; if it is narrow, its panels are stacked. `figure_files` writes them.
Figures of a single notebook are in `speclab.show.drawings`. Only this module imports matplotlib.
"""

import io
import os
import re
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle, product
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib import font_manager, rc_params_from_file, rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.mathtext import math_to_image
from matplotlib.text import Text
from matplotlib.ticker import (
    FixedLocator,
    Formatter,
    FuncFormatter,
    Locator,
    LogLocator,
    MaxNLocator,
    MultipleLocator,
    NullLocator,
)

from speclab.show import style
from speclab.stats import NUMBERS

READS = ["$SPECLAB_STYLE"]
STYLE = "SPECLAB_STYLE"  # environment variable: a reader's own style file, for all figures
LEAST_PANEL, LEAST_BARS = 1.25, 1.1  # smallest width of a panel, in inches
FORMULA = 13  # points, as large as the text of a page
EACH, EVERY_FOURTH = 8, 24  # largest whole numbers with such ticks
GROUP_LABELS = 1.2  # inches for the names of groups on the y axis


@contextmanager
def styled(width: float = style.TWO_COLUMNS) -> Iterator[None]:
    """Use the house style as matplotlib's defaults inside the context, and after it the style file
    that `make reproduce STYLE=` names; width: of the figures, in inches. Characters that a reader's
    font lacks are drawn in the house font.
    """
    size = style.SMALL_TEXT if width < style.NARROW else style.TEXT
    usual = {"font.family": [style.FONT], "font.size": size}
    of_reader = [os.environ[STYLE]] if os.environ.get(STYLE) else []
    with plt.rc_context():
        plt.style.use(["default", style.STYLE, usual, *of_reader])
        rcParams["figure.figsize"] = (width, style.TALLEST)
        rcParams["font.family"] = list(dict.fromkeys([*rcParams["font.family"], style.FONT]))
        yield


def check_style() -> None:
    """Make the path of the reader's style file absolute. ValueError: it is missing, or sets nothing
    that matplotlib knows.
    """
    path = Path(os.environ[STYLE]).absolute()
    os.environ[STYLE] = str(path)
    try:
        settings = path.is_file() and rc_params_from_file(
            path, fail_on_error=True, use_default_template=False
        )
    except ValueError as error:
        raise ValueError(f"STYLE={path}: {error}") from None
    if not settings:
        raise ValueError(f"STYLE={path}: this is no style file of matplotlib")


def width() -> float:
    """Width in inches of the figures that are drawn in this context."""
    return float(rcParams["figure.figsize"][0])


def is_narrow() -> bool:
    """True if panels have to be stacked."""
    return width() < style.NARROW


def formula(text: str) -> tuple[bytes, float]:
    """A formula in LaTeX (what mathtext knows of it) as an SVG picture, and how far it reaches
    below the line of its text, in points. ValueError: mathtext cannot draw it.
    """
    file = io.BytesIO()
    looks = {"mathtext.fontset": "cm", "svg.hashsalt": "formula", "savefig.transparent": True}
    with plt.rc_context(looks):
        font = font_manager.FontProperties(size=FORMULA)
        depth = math_to_image(f"${text}$", file, font, dpi=72, format="svg")
    picture = re.sub(rb"<metadata>.*?</metadata>", b"", file.getvalue(), flags=re.DOTALL)
    return picture, depth


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
    wide = count if not is_narrow() else 2 if count == 4 else 1
    lines = count // wide
    tall = 0.75 * height * lines if is_narrow() else height
    figure, grid = subplots(lines, wide, height=tall, squeeze=False, **options)
    return figure, list(grid.flat)


# ---- text that fits ------------------------------------------------------------------------------


def laid_out(figure: Figure, title: str = "", stamp: str = "") -> None:
    """Wrap titles and labels to the available width, and fix the layout.

    title: above the figure. stamp: a warning across the figure. The figure may become higher, up to
    style.TALLEST, to make room for its title and for rotated names.
    """
    layout = figure.get_layout_engine()
    above = figure.text(0.01, 1, title, va="top", weight="bold", in_layout=False)
    break_lines(above, 0.98 * figure.bbox.width)
    strip = above.get_window_extent().height / figure.dpi + style.UNDER_TITLE if title else 0
    most = style.TALLEST - strip
    figure.set_figheight(min(figure.get_figheight(), most))
    names = {axes: _names_under(axes) for axes in figure.axes}
    for axes, texts in names.items():
        if texts:  # long names would squeeze the panels
            axes.set_xticks(axes.get_xticks(), [""] * len(texts))
    _fit_names_beside(figure)
    layout.execute(figure)
    inside = figure.bbox
    for axes in figure.axes:
        panel = axes.get_window_extent()
        titles = [text for text in axes.get_children() if isinstance(text, Text)]
        for label in (*titles[len(axes.texts) :], axes.xaxis.label):
            break_lines(label, panel.width)
        break_lines(axes.yaxis.label, panel.height)
        _fit_names(axes, names[axes], panel.width)
    if turned := max(_turned(axes) for axes in figure.axes):
        figure.set_figheight(min(figure.get_figheight() + turned, most))
    for label in figure.texts:  # labels shared by all panels
        break_lines(label, inside.height if label.get_rotation() == 90 else inside.width)
    layout.execute(figure)
    figure.set_layout_engine("none")
    _add_above(figure, strip)
    above.set_y(1 - 0.03 / figure.get_figheight())
    figure.text(0.5, 0.5, stamp, **style.STAMP)


def _add_above(figure: Figure, inches: float) -> None:
    """Add empty space above a figure whose layout is fixed."""
    height = figure.get_figheight()
    share = height / (height + inches)
    for axes in figure.axes:
        left, bottom, wide, tall = axes.get_position().bounds
        axes.set_position((left, share * bottom, wide, share * tall))
    for text in figure.texts:
        text.set_y(share * text.get_position()[1])
    for legend in figure.legends:
        legend.set_bbox_to_anchor((0, 0, 1, share), figure.transFigure)
    figure.set_figheight(height + inches)


def break_lines(text: Text, room: float, words: bool = False) -> None:
    """Wrap a text between words if a line is longer than `room` pixels; words: also within words
    that are longer.
    """
    box = text.get_window_extent()
    long = box.height if text.get_rotation() == 90 else box.width
    if text.get_text() and long > room > 0:
        text.set_text(broken(text.get_text(), room / long, words))


def broken(text: str, share: float, words: bool = False) -> str:
    """Wrap the text to lines of at most this share of the longest line's length."""
    lines = text.split("\n")
    most = max(int(share * max(map(len, lines))), 1)
    whole = [line.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}") for line in lines]
    parts = (textwrap.wrap(line, most, break_long_words=words) or [""] for line in whole)
    text = "\n".join(part for line in parts for part in line)
    return text.replace("\N{NO-BREAK SPACE}", " ")


def _names_under(axes: Axes) -> list[str]:
    """The group names on a panel's x axis; [] if the axis has numbers."""
    if not isinstance(axes.xaxis.get_major_formatter(), FuncFormatter):
        return []
    return [name.get_text() for name in axes.get_xticklabels()]


def _turned(axes: Axes) -> float:
    """Height in inches of the rotated names under a panel."""
    names = [name for name in axes.get_xticklabels() if name.get_rotation() == 90]
    return max((name.get_window_extent().height for name in names), default=0) / axes.figure.dpi


def _fit_names(axes: Axes, texts: Sequence[str], room: float) -> None:
    """Restore the group names, wrapped to the width of a group. Names with longer words are
    rotated.
    """
    if not texts:
        return
    of_each = 0.94 * room / len(texts)
    axes.set_xticks(axes.get_xticks(), texts)
    names = axes.get_xticklabels()
    for name in names:
        break_lines(name, of_each)
    are_wider = max(name.get_window_extent().width for name in names) > of_each
    if are_wider:
        axes.tick_params(axis="x", labelrotation=90)
    shown = texts if are_wider else [name.get_text() for name in names]
    axes.set_xticks(axes.get_xticks(), shown)


def _fit_names_beside(figure: Figure) -> None:
    """Wrap the names on the y axes, also within words, if they leave the panels too little room."""
    shown = [axes for axes in figure.axes if axes.yaxis.get_tick_params().get("labelleft")]
    columns = {axes.get_subplotspec().colspan.start for axes in shown}
    for axes in shown:
        names, room = axes.get_yticklabels(), 0.6 * figure.bbox.width / len(columns)
        if max((name.get_window_extent().width for name in names), default=0) > room:
            for name in names:
                break_lines(name, 0.6 * room, words=True)
            axes.set_yticks(axes.get_yticks(), [name.get_text() for name in names])


def legend_above(figure: Figure, *panels: Axes) -> None:
    """One legend for one or several panels, above the figure, in as few rows as its width allows.
    Each name appears once.
    """
    handle_of: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        handle_of |= dict(zip(labels, handles, strict=True)) | handle_of
    count, room = len(handle_of), figure.bbox.width
    for rows in range(1, count + 1):
        figure.legends.clear()
        place = {"loc": "outside upper center", "ncols": -(-count // rows)}
        legend = figure.legend(handle_of.values(), handle_of, **place)
        if legend.get_window_extent().width <= room:
            return
    for label in legend.get_texts() if handle_of else ():
        break_lines(label, 0.8 * room)


# ---- series --------------------------------------------------------------------------------------


def looks_of(names: Iterable[Any], hue: str = "domain") -> dict[Any, dict[str, Any]]:
    """Colour, marker, line style and label of each series.

    Names in style.SERIES have fixed looks. The other names take the remaining looks in order of
    appearance; looks with the colours of tokens (style.OF_TOKENS) come last. Up to twelve series
    look different.
    """
    names = list(names)
    fixed = [style.SERIES[str(name)] for name in names if str(name) in style.SERIES]
    ordered = [*style.DOMAIN_LOOKS, *style.OTHER_LOOKS]
    if hue != "domain":
        ordered = [*style.OTHER_LOOKS, *style.DOMAIN_LOOKS]
    ordered.sort(key=lambda look: look in style.OF_TOKENS)
    free = cycle([look for look in ordered if look not in fixed])
    return {
        name: (style.SERIES.get(str(name)) or next(free)) | {"label": label_of(name)}
        for name in names
    }


def label_of(name: Any) -> str:
    """A name as a legend label. Matplotlib hides labels that start with an underscore, so a space
    is put before it.
    """
    text = str(name)
    return f"\N{HAIR SPACE}{text}" if text.startswith("_") else text


def interval_bars(
    frame: pd.DataFrame,
    axes: Axes,
    x: str,
    hue: str = "domain",
    horizontal: bool = False,
    whole: pd.DataFrame | None = None,
    looks: Mapping[Any, Mapping] = {},
    apart: bool = True,
) -> None:
    """Points with confidence intervals: one group per value of `x`, and in it one point per value
    of `hue`. Both keep their order of appearance. apart: the points of a group are side by side.

    If the bounds are NaN, only the point is drawn. horizontal: groups are on the y axis. whole: the
    frame of all panels that share the ticks, if `frame` may lack some of their values. looks: from
    `looks_of` (default: computed here).
    """
    whole = frame if whole is None else whole
    groups = pd.unique(whole[x])
    looks = looks or looks_of(pd.unique(whole[hue]), hue)
    error = "xerr" if horizontal else "yerr"
    # all points of a group stand in half of its row
    step = min(0.2, 0.5 / max(len(looks) - 1, 1)) if apart else 0
    for index, (name, look) in enumerate(looks.items()):
        rows = frame[frame[hue] == name]
        middle = pd.Index(groups).get_indexer(rows[x])
        offset = (index - (len(looks) - 1) / 2) * step
        place = middle + offset
        value, low, high = rows[NUMBERS].to_numpy(float).T
        reach = np.clip([value - low, high - value], 0, None)
        spots = (value, place) if horizontal else (place, value)
        bars = {} if np.isnan(reach).all() else {error: reach}
        points = {"linestyle": "none", "capsize": 2, "elinewidth": 1.2}
        axes.errorbar(*spots, **bars, **{**look, **points})
    ticks = axes.yaxis if horizontal else axes.xaxis
    ticks.set_ticks(range(len(groups)), labels=map(str, groups))
    ticks.grid(False)
    if horizontal:
        for line in range(1, len(groups)):  # separate neighbouring groups
            axes.axhline(line - 0.5, color="#cccccc", linewidth=0.6, zorder=0.5)
        axes.set_ylim(len(groups) - 0.5, -0.5)


def lines_with_bands(frame: pd.DataFrame, axes: Axes, x: str, hue: str, looks: Mapping) -> None:
    """One line per value of `hue` over a numeric `x`, with its interval as a band. looks: from
    `looks_of`.
    """
    for name, look in looks.items():
        rows = frame[frame[hue] == name].sort_values(x)
        value, low, high = rows[NUMBERS].to_numpy(float).T
        if not np.isnan([low, high]).all():
            axes.fill_between(rows[x], low, high, color=look["color"], alpha=0.15, linewidth=0)
        axes.plot(rows[x], value, **look)
    if pd.api.types.is_integer_dtype(frame[x]):
        axes.xaxis.set_major_locator(whole_ticks(frame[x]))
    elif x == "c" and frame[x].max() <= 2:
        axes.xaxis.set_major_locator(MultipleLocator(0.2))


def whole_ticks(values: pd.Series) -> Locator:
    """The ticks of whole numbers from 1, such as gamma and depth, the same in panels of any width:
    each up to EACH, above it the first and every fourth. Others: what fits.
    """
    low, high = values.min(), values.max()
    if low not in (0, 1) or high > EVERY_FOURTH:
        return MaxNLocator("auto", integer=True)
    known = range(low, high + 1) if high <= EACH else [low, *range(4, high + 1, 4)]
    return FixedLocator([*known])


# ---- kinds of figure -----------------------------------------------------------------------------

AXIS_LABELS = {
    "gamma": "gamma (draft tokens proposed)",
    "position": "position in the target's text (tokens)",
    "target_entropy": "target entropy (nats)",
    "c": "c (draft pass / target pass)",
}


def facets(
    frame: pd.DataFrame,
    x: str,
    hue: str = "domain",
    rows: str | None = None,
    columns: str | None = None,
    kind: str = "lines",
    y: str = "estimate",
    x_label: str | None = None,
    height: float = 2.4,
    reference: float | Mapping[str, float] | None = None,
    reference_name: str = "",
    limits: Sequence[float | None] | None = None,
    share_y: bool = True,
    looks: Mapping[str, dict] = {},
    log: bool = False,
    percent: bool = False,
    only: Mapping[str, Sequence] = {},
    apart: bool = True,
) -> Figure:
    """Estimates with their intervals, with one panel per value of `rows` and `columns` and one
    colour per value of `hue`.

    kind: "lines" (bands over a numeric x), "points" (error bars over a few values of x) or "bars"
    (the same, horizontal). y: the quantity on the estimate's axis, a key of AXIS_LABELS or the
    label itself; x_label: the label of the other axis. height: of a panel, in inches. reference:
    draws a line at this value (or at one value per value of `columns`), called reference_name in
    the legend. limits: range of the estimate's axis. share_y: one scale for all panels. looks:
    matplotlib's options for lines and points by value of `hue`, merged into `looks_of`. log: both
    axes are logarithmic. percent: estimates are fractions of 1 and shown in percent. only: for a
    column, the values to draw. apart: the points of a group are side by side. Values of every key
    keep their order of appearance. The panels are the figure's axes, row by row.
    """
    for name, values in only.items():
        frame = frame[frame[name].isin(list(values))]
    lying = kind == "bars"
    down = pd.unique(frame[rows]) if rows else [""]
    across = pd.unique(frame[columns]) if columns else [""]
    panels = list(product(down, across))
    series = looks_of(pd.unique(frame[hue]), hue)
    groups = frame[x].nunique()
    marks = groups * (len(series) if hue != x else 1)
    beside = _panels_beside(kind, groups, marks)
    wide = len(across) if beside >= len(across) else min(beside, len(panels))
    each = _panel_height(kind, height, groups, marks)
    if lying and each * -(-len(panels) // wide) > style.TALLEST and len(panels) > wide:
        wide += 1
    lines = -(-len(panels) // wide)
    tall = each * lines + 0.3
    figure, grid = subplots(
        lines,
        wide,
        height=tall,
        squeeze=False,
        sharex=share_y or not lying,
        sharey=share_y or lying,
    )
    series = {name: _changed(look, looks.get(str(name), {})) for name, look in series.items()}
    for axes, (row, column) in zip(grid.flat, panels, strict=False):
        wanted = {key: value for key, value in ((columns, column), (rows, row)) if key}
        is_part = frame[[*wanted]].eq([*wanted.values()]).all(axis=1)
        part = frame[is_part]
        if part.empty:
            axes.set_axis_off()
            continue
        if kind == "lines":
            lines_with_bands(part, axes, x, hue, series)
        else:
            interval_bars(part, axes, x, hue, lying, frame, series, apart)
        axes.set_title(", ".join(map(str, wanted.values())))
        if log:
            _logarithmic(axes)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for column in grid.T:  # the last panel of each column has the tick labels
        shown = [axes for axes in column if axes.axison]
        for axes in shown[-1:]:
            axes.tick_params(axis="x", labelbottom=True)
    drawn = [axes for axes in grid.flat if axes.axison]
    for axes, (_, column) in zip(grid.flat, panels, strict=False):
        at = reference.get(column) if isinstance(reference, Mapping) else reference
        if axes.axison and at is not None:
            draw = axes.axvline if lying else axes.axhline
            draw(at, color="black", linewidth=0.7, label=reference_name or "_")
    for axes in drawn:  # after all panels are drawn, so that an open limit fits them all
        if limits is not None:
            axes.set(**{"xlim" if lying else "ylim": limits})
        if percent:
            show_percent(axes.xaxis if lying else axes.yaxis)
    x_label = AXIS_LABELS.get(x, x) if x_label is None else x_label
    y_label = AXIS_LABELS.get(y, y)
    figure.supxlabel(y_label if lying else x_label)
    figure.supylabel(x_label if lying else y_label)
    legend_above(figure, *drawn)
    return figure


def _changed(look: Mapping, own: Mapping) -> dict[str, Any]:
    """A look with its own options; another marker is filled."""
    kept = {key: look[key] for key in look if key != "markerfacecolor" or "marker" not in own}
    return {**kept, **own}


class _Percent(Formatter):
    def __call__(self, value: float, position: int | None = None) -> str:
        return self.fix_minus(f"{100 * value:.6g}")


def show_percent(axis: Any) -> None:
    """Show the fractions of 1 on an axis in percent; its label names the unit."""
    axis.set_major_formatter(_Percent())


def _panels_beside(kind: str, groups: int, marks: int) -> int:
    """How many panels fit side by side. marks: points with intervals in a panel."""
    if kind == "bars":
        least = LEAST_PANEL if is_narrow() else LEAST_BARS
        return max(int((width() - GROUP_LABELS) / least), 1)
    least = max(LEAST_PANEL, 0.11 * marks, 0.17 * groups) if kind == "points" else LEAST_PANEL
    return max(int((width() - 0.3) / least), 1)


def _panel_height(kind: str, height: float, groups: int, marks: int) -> float:
    """The height that a panel needs, given the height requested."""
    if kind == "bars":
        needed = max(0.1 * marks, 0.22 * groups, 0.5) + 0.4
        return needed if is_narrow() else max(height, needed)
    return min(height, 1.7) if is_narrow() else height


def _logarithmic(axes: Axes) -> None:
    """Powers of 2 on the x axis; 1, 2, 5, 10, … on the y axis."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")


def dots_of(panels: Mapping[str, tuple[pd.DataFrame, pd.DataFrame]], value: str) -> pd.DataFrame:
    """Data of `strips`: panel, domain, prompt_id, estimate, low, high. Each panel comes from two
    frames: prompts with the column `value`, and estimates by domain, whose prompt_id is "".
    """
    columns = ["panel", "domain", "prompt_id", *NUMBERS]
    parts = []
    for panel, (prompts, numbers) in panels.items():
        dots = prompts.assign(panel=panel, estimate=prompts[value], low=np.nan, high=np.nan)
        parts += [numbers.assign(panel=panel, prompt_id="")[columns], dots[columns]]
    return pd.concat(parts, ignore_index=True)


def strips(frame: pd.DataFrame, label: str) -> Figure:
    """One dot per prompt by domain, and the domain's estimate with its interval, in one panel per
    value of `panel`. Rows with a `prompt_id` are dots (`dots_of`).
    """
    import seaborn.objects as so  # lazy: the import takes two seconds, and few notebooks need it

    titles = pd.unique(frame["panel"])
    domains = list(pd.unique(frame["domain"]))
    colours = {domain: look["color"] for domain, look in looks_of(domains).items()}
    figure, grid = row_of_panels(len(titles), max(2.6, 0.3 * len(domains)), sharex=True)
    dot, apart = so.Dot(pointsize=3, alpha=0.6, edgewidth=0), so.Jitter(0.5, seed=0)
    is_dot = frame["prompt_id"] != ""
    for axes, title in zip(grid, titles, strict=True):
        is_here = frame["panel"] == title
        prompts, numbers = frame[is_here & is_dot], frame[is_here & ~is_dot]
        dots = so.Plot(prompts, x="estimate", y="domain", color="domain")
        dots = dots.add(dot, apart, legend=False)
        order = so.Nominal(order=list(numbers["domain"]))
        dots.scale(y=order, color=colours).on(axes).plot()
        interval_bars(numbers.assign(of=""), axes, "domain", "of", horizontal=True)
        axes.set(title=title, xlabel=label, ylabel="")
    return figure


def missing_glyphs(found: Iterable[warnings.WarningMessage]) -> str:
    """The characters that no font has, from the warnings of a drawing."""
    parts = [str(one.message).partition(" missing from font")[0] for one in found]
    return ", ".join(dict.fromkeys(part for part in parts if part.startswith("Glyph")))
