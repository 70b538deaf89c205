"""House style of the figures, and the few plots that several notebooks share.

The only module that imports matplotlib.

Sizes in inches: one column 3.4, two columns 7. Colours are Okabe and Ito's
(jfly.uni-koeln.de/color), fixed per domain, each with a marker and a line style of its own, so that
a figure reads in grey too.
"""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch, Patch
from matplotlib.ticker import MaxNLocator

from speclab.show.pictures import LOOKS, Box, Layout, counts, marked
from speclab.tree import Tree

ONE_COLUMN, TWO_COLUMNS = 3.4, 7.0
DOMAIN_COLOURS = {
    "code": "#0072B2",
    "math": "#D55E00",
    "reasoning": "#009E73",
    "chat": "#CC79A7",
}
OTHER_COLOURS = ("#444444", "#E69F00", "#56B4E9", "#8C6D1F", "#7F7F7F")
MARKERS = dict(zip(DOMAIN_COLOURS, "osD^", strict=True))
LINES = dict(zip(DOMAIN_COLOURS, ("-", "--", "-.", ":"), strict=True))
PUBLISHED = {"color": "black", "marker": "x", "linestyle": (0, (1, 2))}
SIZES = (
    "font.size",
    "axes.titlesize",
    "axes.labelsize",
    "xtick.labelsize",
    "ytick.labelsize",
    "legend.fontsize",
    "figure.titlesize",
)
STYLE = dict.fromkeys(SIZES, 8) | {
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
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": 0.08,
    "figure.dpi": 110,
    "savefig.dpi": 200,
    "pdf.fonttype": 42,
    "svg.hashsalt": "speclab",
}


def use_style() -> None:
    """Set matplotlib's defaults to the house style."""
    plt.rcParams.update(
        plt.rcParamsDefault | {"backend": plt.rcParams["backend"]} | STYLE
    )


def subplots(
    rows: int = 1,
    columns: int = 1,
    width: float = TWO_COLUMNS,
    height: float = 2.5,
    **options: Any,
) -> tuple[Figure, Any]:
    """A figure of `width` x `height` inches and its axes (one, or an array), as matplotlib's
    `subplots`.

    pyplot does not know of it, so a notebook shows it where it is saved, and nowhere else.
    """
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, **options)


def save(figure: Figure, name: str, folder: Path) -> Path:
    """Write `folder/name.png` and `.pdf`, byte-stable, and return the PNG's path.

    Raises ValueError unless the name is two digits, `_` and a slug of a-z, 0-9, `-` and `_`.
    """
    if not re.fullmatch(r"\d\d_[a-z0-9][a-z0-9_-]*", name):
        raise ValueError(
            f"name={name!r}: a figure is called NN_slug, with a-z, 0-9, - and _, "
            "as 02_tokens-per-pass"
        )
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(
        folder / f"{name}.pdf",
        metadata={"CreationDate": None, "Creator": None, "Producer": None},
    )
    figure.savefig(folder / f"{name}.png", metadata={"Software": None})
    return folder / f"{name}.png"


def style_of(name: str, index: int = 0) -> dict[str, Any]:
    """Colour, marker and line style of a series: fixed for a domain and for `published`, else by
    its index among the series.
    """
    if name in DOMAIN_COLOURS:
        return {
            "color": DOMAIN_COLOURS[name],
            "marker": MARKERS[name],
            "linestyle": LINES[name],
        }
    if name == "published":
        return dict(PUBLISHED)
    order = list(LINES.values())
    return {
        "color": OTHER_COLOURS[index % len(OTHER_COLOURS)],
        "marker": "Pv<>h"[index % 5],
        "linestyle": order[index % len(order)],
    }


def _need(frame: pd.DataFrame, columns: Sequence[str]) -> None:
    missing = [c for c in columns if c not in frame.columns]
    if missing:
        raise ValueError(
            f"frame lacks the columns {missing}; it has {list(frame.columns)}: "
            "rename them or name others"
        )
    if frame.empty:
        raise ValueError("frame has no rows: nothing to draw")


def interval_bars(
    frame: pd.DataFrame,
    axes: Axes,
    x: str,
    hue: str = "domain",
    y: str = "estimate",
    low: str = "low",
    high: str = "high",
    horizontal: bool = False,
    series: Sequence | None = None,
) -> None:
    """Points with confidence intervals: one group per value of `x`, one point in it per value of
    `hue`, both in order of appearance.

    `low` and `high` are the ends of the interval; NaN ends draw the point alone. `horizontal` puts
    the groups on the y axis. series: all values of `hue`, where this frame may lack some.
    """
    _need(frame, [x, hue, y, low, high])
    groups, series = list(pd.unique(frame[x])), list(series or pd.unique(frame[hue]))
    for index, name in enumerate(series):
        rows = frame[frame[hue] == name]
        if rows.empty:
            continue
        place = rows[x].astype(object).map(groups.index).to_numpy() + (
            index - (len(series) - 1) / 2
        ) * 0.7 / max(len(series), 3)
        value = rows[y].to_numpy(float)
        reach = np.clip(
            [value - rows[low].astype(float), rows[high].astype(float) - value], 0, None
        )
        reach = None if np.isnan(reach).all() else reach
        style = style_of(str(name), index) | {
            "linestyle": "none",
            "capsize": 2,
            "elinewidth": 1.2,
            "label": name,
        }
        if horizontal:
            axes.errorbar(value, place, xerr=reach, **style)
        else:
            axes.errorbar(place, value, yerr=reach, **style)
    ticks = axes.yaxis if horizontal else axes.xaxis
    ticks.set_ticks(range(len(groups)), labels=[str(g) for g in groups])
    ticks.grid(False)
    if horizontal and not axes.yaxis_inverted():
        axes.invert_yaxis()


def lines_with_bands(
    frame: pd.DataFrame,
    axes: Axes,
    x: str,
    hue: str = "domain",
    y: str = "estimate",
    low: str = "low",
    high: str = "high",
    looks: Mapping[str, dict] | None = None,
    dots: Sequence[str] = (),
    series: Sequence | None = None,
) -> None:
    """One line per value of `hue` over a numeric `x`, with its interval as a band; where `low` and
    `high` are missing or NaN there is no band.

    looks: matplotlib's line options by value of `hue`, over those of `style_of`. dots: values of
    `hue` that are drawn as separate points with bars, as counts beside a prediction.
    series: all values of `hue`, where this frame may lack some.
    """
    _need(frame, [x, hue, y])
    for index, name in enumerate(series or pd.unique(frame[hue])):
        rows = frame[frame[hue] == name].sort_values(x)
        if rows.empty:
            continue
        style = style_of(str(name), index) | (looks or {}).get(str(name), {})
        if name in dots:
            style["linestyle"] = "none"
        axes.plot(rows[x], rows[y], label=name, **style)
        if not {low, high} <= set(frame.columns):
            continue
        ends = rows[low].astype(float), rows[high].astype(float)
        if name in dots:
            axes.vlines(rows[x], *ends, color=style["color"], linewidth=1.2)
        else:
            axes.fill_between(
                rows[x], *ends, color=style["color"], alpha=0.15, linewidth=0
            )
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
    width: float = TWO_COLUMNS,
    height: float = 2.4,
    reference: float | None = None,
    limits: tuple[float | None, float | None] | None = None,
    share_y: bool | str = True,
    looks: Mapping[str, dict] | None = None,
    dots: Sequence[str] = (),
    log: bool = False,
) -> Figure:
    """Estimates with their intervals, one panel for each value of `rows` and of `columns`, one
    colour for each value of `hue`.

    kind: "lines" (bands over a numeric x), "points" (bars over a few values of x) or "bars" (the
    same, lying down). `y` names the quantity on the axis (a column of AXIS_LABELS, or the words
    themselves), x_label the other axis. `height` is a panel's, in inches. reference: a line at this
    value. limits: of the estimate's axis. share_y: one scale of it for all panels, or for each
    "row". looks and dots: of lines, as of `lines_with_bands`. log: both axes in powers of 2. Values
    of every key are drawn in order of appearance; the panels are the figure's axes, row by row.
    """
    _need(frame, [x, hue, "estimate"])
    down = list(pd.unique(frame[rows])) if rows else [None]
    across = list(pd.unique(frame[columns])) if columns else [None]
    series = list(pd.unique(frame[hue]))
    lying = kind == "bars"
    figure, grid = subplots(
        len(down),
        len(across),
        width=width,
        height=height * len(down) + 0.3,
        squeeze=False,
        sharex=not lying or share_y,
        sharey=lying or share_y,
    )
    for line, row in zip(grid, down, strict=True):
        for axes, column in zip(line, across, strict=True):
            part = frame
            part = part[part[rows] == row] if rows else part
            part = part[part[columns] == column] if columns else part
            if part.empty:
                axes.set_axis_off()
                continue
            if kind == "lines":
                lines_with_bands(
                    part, axes, x, hue, looks=looks, dots=dots, series=series
                )
            else:
                interval_bars(part, axes, x, hue, horizontal=lying, series=series)
            axes.set_title(
                ", ".join(str(name) for name in (column, row) if name is not None)
            )
            if log:
                _powers_of_two(axes)
    for axes in grid.flat:  # once all is drawn: an open end then fits every panel
        _reference(axes, reference, lying, limits)
    x_text = AXIS_LABELS.get(x, x) if x_label is None else x_label
    y_text = AXIS_LABELS.get(y, y)
    below = y_text if lying else x_text
    if len(across) > 2:
        figure.supxlabel(below, fontsize=8)
    else:
        for axes in grid[-1]:
            axes.set_xlabel(below)
    for axes in grid[:, 0]:
        axes.set_ylabel(x_text if lying else y_text)
    legend_above(figure, *grid.flat)
    return figure


def _powers_of_two(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")


def _reference(
    axes: Axes, value: float | None, lying: bool, limits: tuple | None
) -> None:
    if value is not None:
        draw = axes.axvline if lying else axes.axhline
        draw(value, color="black", linewidth=0.7)
    if limits is not None:
        (axes.set_xlim if lying else axes.set_ylim)(*limits)


def heatmap(
    frame: pd.DataFrame,
    axes: Axes,
    label: str,
    digits: int = 2,
    low: float | None = None,
    high: float | None = None,
) -> None:
    """A table of numbers as colours with the numbers written in; NaN cells stay blank.

    `label` names the quantity on the scale.
    """
    import seaborn as sns  # takes a second, and few notebooks draw one

    sns.heatmap(
        frame,
        ax=axes,
        annot=True,
        fmt=f".{digits}f",
        cmap="cividis",
        vmin=low,
        vmax=high,
        linewidths=0.5,
        cbar_kws={"label": label},
        annot_kws={"size": 8},
    )
    mesh = axes.collections[0]
    shown = mesh.get_facecolors()[~np.ma.getmaskarray(mesh.get_array()).ravel()]
    for text, colour in zip(
        axes.texts, shown, strict=True
    ):  # seaborn takes white also on middle tones, where it is hard to read
        text.set_color("black" if _luminance(colour) > 0.18 else "white")
    axes.tick_params(length=0, labelrotation=0)
    axes.grid(False)


def _luminance(colour: Sequence[float]) -> float:
    """Relative luminance of an RGB colour, 0 to 1 (WCAG 2)."""
    linear = [
        c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]
    ]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def legend_above(figure: Figure, *panels: Axes) -> None:
    """What is named in one or several panels, each name once, above the whole figure: in one row if
    that fits into its width.
    """
    found = {}
    for axes in panels:
        handles, labels = axes.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True)) | found
    inches = sum(0.45 + 0.065 * len(label) for label in found)
    fewest = max(1, math.ceil(inches / figure.get_size_inches()[0]))
    for rows in range(fewest, max(len(found), fewest) + 1):  # the guess may be too few
        columns = math.ceil(len(found) / rows)
        legend = figure.legend(
            found.values(), found, loc="outside upper center", ncols=columns
        )
        wide = legend.get_window_extent().width
        if wide <= figure.bbox.width or columns <= 1:
            break
        legend.remove()


def visible(text: str, width: int = 14) -> str:
    """A token or a piece of text as a reader can see it: spaces, tabs and line ends marked, cut
    from the left to `width` characters.
    """
    text = marked(text)
    return text if len(text) <= width else "…" + text[len(text) - width + 1 :]


def _rows(tree: Tree) -> np.ndarray:
    """A vertical place per node: leaves one apart from the top, in rank order, a parent in the
    middle of its children.
    """
    place, leaves = np.zeros(len(tree.parent)), iter(range(len(tree.parent)))

    def visit(node: int) -> float:
        children = np.flatnonzero(tree.parent == node)
        children = children[np.argsort(tree.rank[children])]
        place[node] = (
            np.mean([visit(child) for child in children])
            if len(children)
            else next(leaves)
        )
        return place[node]

    visit(0)
    return place


def _box(axes: Axes, x: float, y: float, lines: Sequence[str], taken: bool) -> None:
    edge, face, weight = (
        ("#00543D", "#BFE6D9", "bold") if taken else ("#8A8A8A", "white", "normal")
    )
    half = 0.36
    shape = FancyBboxPatch(
        (x - half, y - half),
        2 * half,
        2 * half,
        boxstyle="round,pad=0,rounding_size=0.08",
        edgecolor=edge,
        facecolor=face,
        linewidth=1.8 if taken else 0.8,
        zorder=2,
    )
    axes.add_patch(shape)
    spots = (y,) if len(lines) == 1 else (y - 0.15, y + 0.17)
    for line, spot, kind in zip(
        lines,
        spots,
        ({"family": "DejaVu Sans Mono", "weight": weight}, {"fontsize": 7}),
        strict=False,
    ):
        axes.text(
            x, spot, line, ha="center", va="center", parse_math=False, zorder=3, **kind
        )


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
    probabilities are not drawn); siblings stand in rank order, the draft's best on top. Raises
    ValueError when a length differs from the tree's.
    """
    size = len(tree.parent)
    for name, values in (
        ("labels", labels),
        ("draft_prob", draft_prob),
        ("target_prob", target_prob),
        ("accepted", accepted),
    ):
        if len(values) != size:
            raise ValueError(
                f"{name} has {len(values)} entries: the tree has {size} nodes, the root included"
            )
    y, leaves, deepest = (
        _rows(tree),
        int(np.sum(~np.isin(np.arange(size), tree.parent))),
        int(tree.depth.max()),
    )
    figure, axes = subplots(
        width=max(TWO_COLUMNS, 1.4 * (deepest + 1)), height=0.55 + 0.46 * leaves
    )
    taken = np.asarray(accepted, dtype=bool) | (np.arange(size) == 0)
    for node in range(1, size):
        up = tree.parent[node]
        style = (
            {"color": "#00543D", "linewidth": 2.4}
            if taken[node]
            else {"color": "#8A8A8A", "linewidth": 0.8, "linestyle": "--"}
        )
        axes.plot(
            [tree.depth[up] + 0.36, tree.depth[node] - 0.36],
            [y[up], y[node]],
            zorder=1,
            **style,
        )
    for node in range(size):
        numbers = (
            [f"q {draft_prob[node]:.2f}   p {target_prob[node]:.2f}"] if node else []
        )
        _box(
            axes,
            tree.depth[node],
            y[node],
            [visible(labels[node]), *numbers],
            bool(taken[node]),
        )
    axes.set(
        xlim=(-0.42, deepest + 0.42),
        ylim=(leaves - 0.5, -0.5),
        yticks=[],
        xticks=range(deepest + 1),
    )
    axes.set_xticklabels(["context", *(f"depth {d}" for d in range(1, deepest + 1))])
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)
    axes.grid(False)
    keys = [
        Line2D([], [], color="#00543D", linewidth=2.4, label="accepted by the target"),
        Line2D(
            [],
            [],
            color="#8A8A8A",
            linewidth=0.8,
            linestyle="--",
            label="drafted, not accepted",
        ),
        Line2D([], [], color="none", label="q: draft's probability, p: target's"),
    ]
    figure.legend(handles=keys, loc="outside lower center", ncols=3)
    return figure


def _token_box(axes: Axes, box: Box) -> None:
    """One token in cells of 1 x 1, with a bar before the first of a block."""
    look = LOOKS[box.piece.kind]
    x, wide = box.column + 0.1, box.width - 0.2
    axes.add_patch(
        FancyBboxPatch(
            (x, box.row + 0.1),
            wide,
            0.8,
            boxstyle="round,pad=0,rounding_size=0.3",
            mutation_aspect=0.4,
            facecolor=look.face,
            edgecolor=look.edge,
            linewidth=look.width,
            linestyle=look.line,
        )
    )
    axes.text(
        x + wide / 2,
        box.row + 0.64,
        box.text,
        ha="center",
        va="baseline",
        parse_math=False,
        family="DejaVu Sans Mono",
        fontsize=axes.figure.get_size_inches()[0] * 72 / axes.get_xlim()[1] / 0.64,
        weight=look.weight,
    )
    if not box.piece.place:
        axes.plot(
            [box.column - 0.4] * 2,
            [box.row + 0.05, box.row + 0.95],
            color="#444444",
            linewidth=1.6,
            clip_on=False,
        )


def draw_tokens(layout: Layout, width: float = TWO_COLUMNS) -> Figure:
    """The token view as a picture: a box per token in the look of its kind, a bar before each
    block, counts in the legend.

    `layout` is that of `tokenview.layout`; its columns fill `width` inches, and the type takes the
    size that fits.
    """
    figure, axes = subplots(width=width, height=0.4 + 0.21 * layout.rows)
    axes.set(xlim=(-0.8, layout.columns), ylim=(layout.rows, 0))
    axes.set_axis_off()
    for box in layout.boxes:
        _token_box(axes, box)
    kinds = counts([box.piece for box in layout.boxes]).items()
    keys = [
        Patch(
            facecolor=LOOKS[k].face,
            edgecolor=LOOKS[k].edge,
            linewidth=LOOKS[k].width,
            linestyle=LOOKS[k].line,
            label=f"{k} {n}",
        )
        for k, n in kinds
    ]
    blocks = layout.boxes[-1].piece.block + 1
    keys.append(
        Line2D(
            [],
            [],
            color="#444444",
            linewidth=1.4,
            marker="|",
            linestyle="none",
            markersize=8,
            markeredgewidth=1.4,
            label=f"blocks (target passes) {blocks}",
        )
    )
    figure.legend(
        handles=keys,
        loc="outside lower left",
        ncols=4 if width > 5 else 2,
        handlelength=1.6,
    )
    return figure
