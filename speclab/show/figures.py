"""House style of the figures, and the few plots that several notebooks share.

The only module that imports matplotlib.

Sizes in inches: one column 3.4, two columns 7. Colours are Okabe and Ito's
(jfly.uni-koeln.de/color), fixed per domain, each with a marker and a line style of its own, so that
a figure reads in grey too.
"""

import itertools
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from speclab.show.pictures import LOOKS, marked
from speclab.stats import NUMBERS
from speclab.tree import Tree

ONE_COLUMN, TWO_COLUMNS = 3.4, 7.0
WIDEST = 14  # characters of a token in a tree
SERIES: dict[
    str, dict[str, Any]
] = {  # the looks that are fixed: of the domains, and of the paper's numbers
    "code": {"color": "#0072B2", "marker": "o", "linestyle": "-"},
    "math": {"color": "#D55E00", "marker": "s", "linestyle": "--"},
    "reasoning": {"color": "#009E73", "marker": "D", "linestyle": "-."},
    "chat": {"color": "#CC79A7", "marker": "^", "linestyle": ":"},
    "published": {"color": "black", "marker": "x", "linestyle": (0, (1, 2))},
}
SERIES |= {  # SpecDecode-Bench's sets
    "cnn": SERIES["reasoning"],
    "gsm8k": SERIES["math"],
    "instructcoder": SERIES["code"],
    "sharegpt": SERIES["chat"],
}
OTHER_COLOURS = ("#444444", "#E69F00", "#56B4E9", "#8C6D1F", "#7F7F7F")
STYLE = {
    "font.size": 8,
    "axes.titlesize": "medium",
    "figure.titlesize": "medium",
    "figure.labelsize": "medium",
    "font.family": "DejaVu Sans",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.constrained_layout.w_pad": 0.08,
    "figure.dpi": 110,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,
}


def use_style() -> None:
    """Set matplotlib's defaults to the house style."""
    plt.style.use(["default", STYLE])


def subplots(
    rows: int = 1, columns: int = 1, width: float = TWO_COLUMNS, height: float = 2.5, **options: Any
) -> tuple[Figure, Any]:
    """A figure of `width` x `height` inches and its axes (one, or an array), as matplotlib's
    `subplots`.

    pyplot does not know of it, so a notebook shows it where it is saved, and nowhere else.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def save(figure: Figure, name: str, folder: Path) -> Path:
    """Write `folder/name.png` and `.pdf`, byte-stable, and return the PNG's path."""
    folder.mkdir(parents=True, exist_ok=True)
    if layout := figure.get_layout_engine():
        layout.execute(figure)  # once for both files: it takes longer than drawing
        figure.set_layout_engine("none")
    png = folder / f"{name}.png"
    without = dict.fromkeys(["CreationDate", "Creator", "Producer"])
    figure.savefig(png.with_suffix(".pdf"), metadata=without)
    figure.savefig(png, metadata={"Software": None})
    return png


def style_of(name: str, index: int = 0) -> dict[str, Any]:
    """Colour, marker and line style of a series: fixed for a domain and for `published`, else by
    its index among the series.
    """
    return SERIES.get(name) or {
        "color": OTHER_COLOURS[index % 5],
        "marker": "Pv<>h"[index % 5],
        "linestyle": ("-", "--", "-.", ":")[index % 4],
    }


def styles_of(frame: pd.DataFrame, hue: str) -> dict[Any, dict[str, Any]]:
    """Style and label of each value of `hue`, in order of appearance."""
    styles = {}
    for index, name in enumerate(pd.unique(frame[hue])):
        styles[name] = style_of(str(name), index) | {"label": str(name)}
    return styles


def interval_bars(
    frame: pd.DataFrame,
    axes: Axes,
    x: str,
    hue: str = "domain",
    horizontal: bool = False,
    whole: pd.DataFrame | None = None,
) -> None:
    """Points with confidence intervals: one group per value of `x`, one point in it per value of
    `hue`, both in order of appearance.

    NaN ends of an interval draw the point alone. `horizontal` puts the groups on the y axis.
    whole: the frame of all panels that share their ticks, of which this frame may lack some values.
    """
    whole = frame if whole is None else whole
    groups = pd.unique(whole[x])
    styles = styles_of(whole, hue)
    error = "xerr" if horizontal else "yerr"
    step = 0.7 / max(len(styles), 3)
    for index, (name, style) in enumerate(styles.items()):
        rows = frame[frame[hue] == name]
        middle = pd.Index(groups).get_indexer(rows[x])
        offset = (index - (len(styles) - 1) / 2) * step
        place = middle + offset
        value, low, high = rows[NUMBERS].to_numpy(float).T
        reach = np.clip([value - low, high - value], 0, None)
        spots = (value, place) if horizontal else (place, value)
        bars = {} if np.isnan(reach).all() else {error: reach}
        style |= {"linestyle": "none", "capsize": 2, "elinewidth": 1.2}
        axes.errorbar(*spots, **bars, **style)
    ticks = axes.yaxis if horizontal else axes.xaxis
    ticks.set_ticks(range(len(groups)), labels=map(str, groups))
    ticks.grid(False)
    if horizontal:
        for line in range(1, len(groups)):  # no group drifts into the next
            axes.axhline(line - 0.5, color="#cccccc", linewidth=0.6, zorder=0.5)
        axes.set_ylim(len(groups) - 0.5, -0.5)


def lines_with_bands(frame: pd.DataFrame, axes: Axes, x: str, hue: str, styles: Mapping) -> None:
    """One line per value of `hue` over a numeric `x`, with its interval as a band; styles: of
    `styles_of`.
    """
    for name, style in styles.items():
        rows = frame[frame[hue] == name].sort_values(x)
        value, low, high = rows[NUMBERS].to_numpy(float).T
        axes.fill_between(rows[x], low, high, color=style["color"], alpha=0.15, linewidth=0)
        axes.plot(rows[x], value, **style)
    if pd.api.types.is_integer_dtype(frame[x]):
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))


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
    limits: tuple[float | None, float | None] | None = None,
    share_y: bool = True,
    looks: Mapping[str, dict] = {},
    log: bool = False,
) -> Figure:
    """Estimates with their intervals, one panel for each value of `rows` and of `columns`, one
    colour for each value of `hue`.

    kind: "lines" (bands over a numeric x), "points" (bars over a few values of x) or "bars" (the
    same, lying down). `y` names the quantity on the axis (a column of AXIS_LABELS, or the words
    themselves), x_label the other axis. `height` is a panel's, in inches. reference: a line at this
    value. limits: of the estimate's axis. share_y: one scale of it for all panels. looks:
    matplotlib's options of lines by value of `hue`, over those of `style_of`. log: both axes
    logarithmic. Values of every key are drawn in order of appearance; the panels are the figure's
    axes, row by row.
    """
    lying = kind == "bars"
    down = pd.unique(frame[rows]) if rows else [""]
    across = pd.unique(frame[columns]) if columns else [""]
    figure, grid = subplots(
        len(down),
        len(across),
        height=height * len(down) + 0.3,
        squeeze=False,
        sharex=share_y or not lying,
        sharey=share_y or lying,
    )
    styles = styles_of(frame, hue)
    styles = {name: style | looks.get(name, {}) for name, style in styles.items()}
    for axes, (row, column) in zip(grid.flat, product(down, across), strict=True):
        wanted = {key: value for key, value in ((columns, column), (rows, row)) if key}
        is_part = frame[[*wanted]].eq([*wanted.values()]).all(axis=1)
        part = frame[is_part]
        if part.empty:
            axes.set_axis_off()
            continue
        if kind == "lines":
            lines_with_bands(part, axes, x, hue, styles)
        else:
            interval_bars(part, axes, x, hue, lying, frame)
        axes.set_title(", ".join(map(str, wanted.values())))
        if log:
            _logarithmic(axes)
    for axes in grid.flat:  # once all is drawn: an open end then fits every panel
        if reference is not None:
            draw = axes.axvline if lying else axes.axhline
            draw(reference, color="black", linewidth=0.7)
        if limits is not None:
            axes.set(**{"xlim" if lying else "ylim": limits})
    x_label = AXIS_LABELS.get(x, x) if x_label is None else x_label
    y_label = AXIS_LABELS.get(y, y)
    figure.supxlabel(y_label if lying else x_label)
    figure.supylabel(x_label if lying else y_label)
    legend_above(figure, *grid.flat)
    return figure


def _logarithmic(axes: Axes) -> None:
    """Powers of 2 across; 1, 2, 5, 10, … upwards."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")


def strips(
    panels: Mapping[str, tuple[pd.DataFrame, pd.DataFrame]], value: str, label: str
) -> Figure:
    """A dot per prompt by domain, and the domain's own number with its interval: a panel for each
    pair of frames (prompts with `value`; one row per domain with NUMBERS).
    """
    import seaborn.objects as so  # takes two seconds, and few notebooks draw dots

    figure, grid = subplots(1, len(panels), height=2.6, sharex=True)
    dot, apart = so.Dot(pointsize=3, alpha=0.6, edgewidth=0), so.Jitter(0.5, seed=0)
    for axes, (title, (prompts, numbers)) in zip(grid, panels.items(), strict=True):
        domains = list(numbers["domain"])
        colours = {domain: style_of(domain)["color"] for domain in domains}
        dots = so.Plot(prompts, x=value, y="domain", color="domain").add(dot, apart, legend=False)
        dots.scale(y=so.Nominal(order=domains), color=colours).on(axes).plot()
        numbers = numbers.assign(of="")
        interval_bars(numbers, axes, "domain", "of", horizontal=True)
        axes.set(title=title, xlabel=label, ylabel="")
    return figure


def legend_above(figure: Figure, *panels: Axes) -> None:
    """What is named in one or several panels, each name once, above the whole figure: in one row if
    that fits into its width.
    """
    handle_of: dict[str, Any] = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        handle_of |= dict(zip(labels, handles, strict=True)) | handle_of
    for columns in range(len(handle_of), 0, -1):
        figure.legends.clear()
        place = {"loc": "outside upper center", "ncols": columns}
        legend = figure.legend(handle_of.values(), handle_of, **place)
        if legend.get_window_extent().width <= figure.bbox.width:
            break


def visible(text: str) -> str:
    """A token or a piece of text as a reader can see it: spaces, tabs and line ends marked, cut
    from the left to WIDEST characters.
    """
    text = marked(text)
    return text if len(text) <= WIDEST else "…" + text[1 - WIDEST :]


ACCEPTED = LOOKS["accepted"]
# lines to the nodes of a tree
TO_ACCEPTED: dict[str, Any] = {
    "color": ACCEPTED.edge,
    "linewidth": 2.4,
    "label": "accepted by the target",
}
TO_OTHERS: dict[str, Any] = {
    "color": "#8A8A8A",
    "linewidth": 0.8,
    "linestyle": "--",
    "label": "drafted, not accepted",
}
IN_BOX = {
    "ha": "center",
    "va": "center",
    "linespacing": 1.3,
    "parse_math": False,
    "family": "DejaVu Sans Mono",
}


def draw_tree(
    tree: Tree,
    labels: Sequence[str],
    draft_prob: Sequence[float],
    target_prob: Sequence[float],
    accepted: Sequence[bool],
) -> Figure:
    """A drafted tree as a picture: each node's token with q (draft) and p (target), the accepted
    path filled and with thick lines.

    All sequences have N + 1 entries, the root first (its label is the end of the context, its
    probabilities are not drawn); siblings stand in rank order, the draft's best on top.
    """
    depth, deepest = tree.depth, int(tree.depth.max())
    y = _heights(tree)
    leaves = int(y.max()) + 1
    width = max(TWO_COLUMNS, 1.4 * (deepest + 1))
    figure, axes = subplots(width=width, height=0.55 + 0.46 * leaves)
    nodes = zip(tree.parent, labels, draft_prob, target_prob, accepted, strict=True)
    for node, (parent, label, q, p, taken) in enumerate(nodes):
        on_path = taken or not node
        line = TO_ACCEPTED if on_path else TO_OTHERS
        box = {"edgecolor": line["color"], "linewidth": 0.75 * line["linewidth"]}
        box |= {"facecolor": ACCEPTED.face if on_path else "white", "boxstyle": "round,pad=0.25"}
        text = visible(label) or " "  # a blank has a box too
        if node:
            ends = [depth[parent] + 0.25, depth[node] - 0.25]
            axes.plot(ends, [y[parent], y[node]], zorder=0, **line)
            text += f"\nq {q:.2f}  p {p:.2f}"
        weight = "bold" if on_path else "normal"
        axes.text(depth[node], y[node], text, weight=weight, bbox=box, **IN_BOX)
    axes.plot([], [], color="none", label="q: draft's probability, p: target's")
    names = [f"depth {d}" if d else "context" for d in range(deepest + 1)]
    axes.set_xticks(range(deepest + 1), names)
    axes.set_yticks([])
    axes.set_xlim(-0.42, deepest + 0.42)
    axes.set_ylim(leaves - 0.5, -0.5)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)
    axes.grid(False)
    legend_above(figure, axes)
    return figure


def _heights(tree: Tree) -> np.ndarray:
    """A vertical place per node: leaves one apart from the top, in rank order, a parent in the
    middle of its children.
    """
    heights = np.zeros(len(tree.parent))
    leaves = itertools.count()

    def visit(node: int) -> float:
        below = [visit(child) for child in tree.children(node)]
        heights[node] = np.mean(below or [next(leaves)])
        return heights[node]

    visit(0)
    return heights
