"""Figures in the house style, and the kinds of figure that several notebooks share.

A figure is a function of a data frame and of plain options that returns a Figure. It is drawn at
the width of `styled`, and stacks its panels where that is narrow. `speclab.show.redraw` writes the
files; figures of one notebook stand in `speclab.show.drawings`. The only module that imports
matplotlib.
"""

import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle, product
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib import font_manager, rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from speclab.show import style
from speclab.stats import NUMBERS

LEAST_PANEL, LEAST_BARS = 1.25, 1.1  # inches across
GROUP_LABELS = 1.2  # inches, of the names of groups that lie


@contextmanager
def styled(
    width: float = style.TWO_COLUMNS, font: str = style.FONT, size: float | None = None
) -> Iterator[None]:
    """Matplotlib's defaults are the house style inside; width: of figures, in inches; size: of the
    text, in points (default: by the width). What the font lacks is taken from the house's font.
    """
    usual = style.SMALL_TEXT if width < style.NARROW else style.TEXT
    of_this = {
        "figure.figsize": (width, style.TALLEST),
        "font.family": list(dict.fromkeys([font, style.FONT])),
        "font.size": size or usual,
    }
    with plt.rc_context():
        plt.style.use(["default", style.STYLE, of_this])
        yield


def fonts() -> list[str]:
    """Names of the fonts that are installed."""
    return sorted(set(font_manager.get_font_names()))


def width() -> float:
    """Inches across, of the figures that are drawn now."""
    return float(rcParams["figure.figsize"][0])


def is_narrow() -> bool:
    """Whether panels have to be stacked."""
    return width() < style.NARROW


def subplots(
    rows: int = 1, columns: int = 1, height: float = 2.5, **options: Any
) -> tuple[Figure, Any]:
    """A figure of `height` inches, at most style.TALLEST, and its axes (one, or an array), as
    matplotlib's `subplots`. pyplot does not know of it.
    """
    size = (width(), min(height, style.TALLEST))
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def row_of_panels(count: int, height: float, **options: Any) -> tuple[Figure, Sequence[Axes]]:
    """A figure with panels side by side, stacked where it is narrow."""
    shape = (count, 1) if is_narrow() else (1, count)
    tall = 0.75 * height * count if is_narrow() else height
    figure, grid = subplots(*shape, height=tall, squeeze=False, **options)
    return figure, list(grid.flat)


# ---- text that fits ------------------------------------------------------------------------------


def laid_out(figure: Figure, title: str = "", stamp: str = "", may_grow: bool = True) -> None:
    """Break the lines of titles and labels to the room that they have, and fix the layout.

    title: a sentence above the figure; stamp: a warning across it. may_grow: the figure becomes
    higher, up to style.TALLEST, by its title and by names that have to be turned.
    """
    layout = figure.get_layout_engine()
    above = figure.text(0.01, 1, title, va="top", weight="bold", in_layout=False)
    break_lines(above, 0.98 * figure.bbox.width)
    strip = above.get_window_extent().height / figure.dpi + style.UNDER_TITLE if title else 0
    most = style.TALLEST - strip
    height = figure.get_figheight()
    figure.set_figheight(min(height, most) if may_grow else height - strip)
    names = {axes: _names_under(axes) for axes in figure.axes}
    for axes, texts in names.items():
        if texts:  # long ones would squeeze the panels
            axes.set_xticks(axes.get_xticks(), [""] * len(texts))
    layout.execute(figure)
    inside = figure.bbox
    for axes in figure.axes:
        panel = axes.get_window_extent()
        titles = [text for text in axes.get_children() if isinstance(text, Text)]
        for title in (*titles[len(axes.texts) :], axes.xaxis.label):
            break_lines(title, panel.width)
        break_lines(axes.yaxis.label, panel.height)
        _fit_names(axes, names[axes], panel.width)
        for name in axes.get_yticklabels():
            break_lines(name, 0.36 * inside.width)
    if may_grow and (turned := max(_turned(axes) for axes in figure.axes)):
        figure.set_figheight(min(figure.get_figheight() + turned, most))
    for label in figure.texts:  # of all panels together
        break_lines(label, inside.height if label.get_rotation() == 90 else inside.width)
    layout.execute(figure)
    figure.set_layout_engine("none")
    _add_above(figure, strip)
    above.set_y(1 - 0.03 / figure.get_figheight())
    figure.text(0.5, 0.5, stamp, **style.STAMP)


def _add_above(figure: Figure, inches: float) -> None:
    """Make a figure that is laid out higher, with nothing in what it gains."""
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


def break_lines(text: Text, room: float) -> None:
    """Break the lines of a text that are longer than `room` pixels, between words."""
    box = text.get_window_extent()
    long = box.height if text.get_rotation() == 90 else box.width
    if text.get_text() and long > room > 0:
        text.set_text(broken(text.get_text(), room / long))


def broken(text: str, share: float) -> str:
    """The text with its lines broken to a share of the length of the longest one."""
    lines = text.split("\n")
    most = max(int(share * max(map(len, lines))), 1)
    whole = [line.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}") for line in lines]
    parts = (textwrap.wrap(line, most, break_long_words=False) or [""] for line in whole)
    text = "\n".join(part for line in parts for part in line)
    return text.replace("\N{NO-BREAK SPACE}", " ")


def _names_under(axes: Axes) -> list[str]:
    """The names of groups on the axis under a panel; [] where it has numbers."""
    if not isinstance(axes.xaxis.get_major_formatter(), FuncFormatter):
        return []
    return [name.get_text() for name in axes.get_xticklabels()]


def _turned(axes: Axes) -> float:
    """Inches that turned names take under a panel."""
    names = [name for name in axes.get_xticklabels() if name.get_rotation() == 90]
    return max((name.get_window_extent().height for name in names), default=0) / axes.figure.dpi


def _fit_names(axes: Axes, texts: Sequence[str], room: float) -> None:
    """Put the names of groups back, broken to the room of a group; turned where words are longer
    than that.
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


def legend_above(figure: Figure, *panels: Axes) -> None:
    """What is named in one or several panels, each name once, above the whole figure: in as few
    rows as fit into its width.
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
    """Colour, marker, line style and label of each series: fixed for the names of style.SERIES,
    else in order of appearance, without those that the fixed names among them have. Twelve differ.
    """
    names = list(names)
    fixed = [style.SERIES[str(name)] for name in names if str(name) in style.SERIES]
    ordered = [*style.DOMAIN_LOOKS, *style.OTHER_LOOKS]
    if hue != "domain":
        ordered = [*style.OTHER_LOOKS, *style.DOMAIN_LOOKS]
    free = cycle([look for look in ordered if look not in fixed])
    return {
        name: (style.SERIES.get(str(name)) or next(free)) | {"label": label_of(name)}
        for name in names
    }


def label_of(name: Any) -> str:
    """A name in a legend, where matplotlib leaves out those that begin with an underscore."""
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
) -> None:
    """Points with confidence intervals: one group per value of `x`, one point in it per value of
    `hue`, both in order of appearance.

    NaN ends of an interval draw the point alone. `horizontal` puts the groups on the y axis.
    whole: the frame of all panels that share their ticks, of which this frame may lack some values.
    looks: as of `looks_of`, which is asked for them otherwise.
    """
    whole = frame if whole is None else whole
    groups = pd.unique(whole[x])
    looks = looks or looks_of(pd.unique(whole[hue]), hue)
    error = "xerr" if horizontal else "yerr"
    step = 0.7 / max(len(looks), 3)
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
        axes.errorbar(*spots, **bars, **look | points)
    ticks = axes.yaxis if horizontal else axes.xaxis
    ticks.set_ticks(range(len(groups)), labels=map(str, groups))
    ticks.grid(False)
    if horizontal:
        for line in range(1, len(groups)):  # no group drifts into the next
            axes.axhline(line - 0.5, color="#cccccc", linewidth=0.6, zorder=0.5)
        axes.set_ylim(len(groups) - 0.5, -0.5)


def lines_with_bands(frame: pd.DataFrame, axes: Axes, x: str, hue: str, looks: Mapping) -> None:
    """One line per value of `hue` over a numeric `x`, with its interval as a band; looks: of
    `looks_of`.
    """
    for name, look in looks.items():
        rows = frame[frame[hue] == name].sort_values(x)
        value, low, high = rows[NUMBERS].to_numpy(float).T
        if not np.isnan([low, high]).all():
            axes.fill_between(rows[x], low, high, color=look["color"], alpha=0.15, linewidth=0)
        axes.plot(rows[x], value, **look)
    if pd.api.types.is_integer_dtype(frame[x]):
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))


# ---- kinds of figure -----------------------------------------------------------------------------

AXIS_LABELS = {
    "gamma": "gamma (draft tokens proposed)",
    "block_efficiency": "block_efficiency\n(tokens per target pass)",
    "draft_utilisation": "draft_utilisation\n(accepted / drafted)",
    "speedup": "estimated speed-up",
    "position": "position in the target's text (tokens)",
    "target_entropy": "target entropy (nats)",
    "draft_entropy": "draft entropy (nats)",
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
    reference: float | None = None,
    reference_name: str = "",
    limits: Sequence[float | None] | None = None,
    share_y: bool = True,
    looks: Mapping[str, dict] = {},
    log: bool = False,
    only: Mapping[str, Sequence] = {},
) -> Figure:
    """Estimates with their intervals, one panel for each value of `rows` and of `columns`, one
    colour for each value of `hue`.

    kind: "lines" (bands over a numeric x), "points" (bars over a few values of x) or "bars" (the
    same, lying down). `y` names the quantity on the axis (a column of AXIS_LABELS, or the words
    themselves), x_label the other axis. `height` is a panel's, in inches. reference: a line at this
    value, reference_name: what the legend calls it. limits: of the estimate's axis. share_y: one
    scale of it for all panels. looks: matplotlib's options of lines and points by value of `hue`,
    over those of `looks_of`. log: both axes logarithmic. only: the values of a column that are
    drawn, of those in the frame. Values of every key are drawn in order of appearance; the panels
    are the figure's axes, row by row.
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
    series = {name: look | looks.get(str(name), {}) for name, look in series.items()}
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
            interval_bars(part, axes, x, hue, lying, frame, series)
        axes.set_title(", ".join(map(str, wanted.values())))
        if log:
            _logarithmic(axes)
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    for column in grid.T:  # the last panel of each column names the values
        shown = [axes for axes in column if axes.axison]
        for axes in shown[-1:]:
            axes.tick_params(axis="x", labelbottom=True)
    drawn = [axes for axes in grid.flat if axes.axison]
    for axes in drawn:  # once all is drawn: an open end then fits every panel
        if reference is not None:
            draw = axes.axvline if lying else axes.axhline
            draw(reference, color="black", linewidth=0.7, label=reference_name or "_")
        if limits is not None:
            axes.set(**{"xlim" if lying else "ylim": limits})
    x_label = AXIS_LABELS.get(x, x) if x_label is None else x_label
    y_label = AXIS_LABELS.get(y, y)
    figure.supxlabel(y_label if lying else x_label)
    figure.supylabel(x_label if lying else y_label)
    legend_above(figure, *drawn)
    return figure


def _panels_beside(kind: str, groups: int, marks: int) -> int:
    """How many panels stand side by side; marks: points with intervals in one of them."""
    if kind == "bars":
        least = LEAST_PANEL if is_narrow() else LEAST_BARS
        return max(int((width() - GROUP_LABELS) / least), 1)
    least = max(LEAST_PANEL, 0.11 * marks, 0.17 * groups) if kind == "points" else LEAST_PANEL
    return max(int((width() - 0.3) / least), 1)


def _panel_height(kind: str, height: float, groups: int, marks: int) -> float:
    """Of the height that is asked for, what a panel of this width needs."""
    if kind == "bars":
        needed = max(0.1 * marks, 0.22 * groups, 0.5) + 0.4
        return needed if is_narrow() else max(height, needed)
    return min(height, 1.7) if is_narrow() else height


def _logarithmic(axes: Axes) -> None:
    """Powers of 2 across; 1, 2, 5, 10, … upwards."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")


def strips(frame: pd.DataFrame, label: str) -> Figure:
    """A dot per prompt by domain, and the domain's own number with its interval: a panel for each
    value of `panel`; rows with a `prompt_id` are dots (`dots_of`).
    """
    import seaborn.objects as so  # takes two seconds, and few notebooks draw dots

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
    """The characters that no font has, of the warnings of a drawing."""
    parts = [str(one.message).partition(" missing from font")[0] for one in found]
    return ", ".join(dict.fromkeys(part for part in parts if part.startswith("Glyph")))
