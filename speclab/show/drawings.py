"""Figures that one notebook alone has. None needs a model: each draws a data frame."""

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from speclab.estimates import counted
from speclab.show import figures, style
from speclab.show.figures import Figure, Text
from speclab.show.pictures import LOOKS, visible
from speclab.stats import NUMBERS

# ---- a drafted tree ------------------------------------------------------------------------------

ACCEPTED = LOOKS["accepted"]
# the box of a node and the line that leads to it
ON_PATH: dict[str, Any] = {"color": ACCEPTED.edge, "linewidth": 2.4, "label": "accepted"}
OFF_PATH: dict[str, Any] = {"color": "#8A8A8A", "linewidth": 1.0, "label": "drafted, not accepted"}
IN_BOX = {"ha": "center", "va": "center", "linespacing": 1.2, "family": style.MONOSPACED}
WIDE_BOX, NARROW_BOX = (1.3, 0.46), (0.66, 0.6)  # of a node: inches across and down


def draw_tree(frame: pd.DataFrame) -> Figure:
    """A drafted tree: each node's token with q (draft) and p (target). The accepted path is filled
    and its lines are thick; each line runs from box to box.

    `frame` comes from `redraw.tree_frame`. The draft's best token stands on top. A tree that is too
    deep for the width grows downwards. A tree that is too large loses the branches to which the
    draft gives the lowest probability, and the legend says how many are drawn.
    """
    leaves = _leaves(frame)
    levels = int(frame["depth"].max()) + 1
    across, down = WIDE_BOX if levels * WIDE_BOX[0] <= figures.width() else NARROW_BOX
    grows_down = levels * across > figures.width() + 0.4
    room = figures.width() / across if grows_down else (style.TALLEST - 0.6) / down
    kept = frame[frame["node"].isin(_kept(frame, leaves[: max(int(room), 1)]))]
    count = int(kept["node"].isin(leaves).sum())
    places = _places(kept)
    tall = 0.6 + down * (levels if grows_down else count)
    figure, axes = figures.subplots(height=tall)
    boxes: dict[int, Any] = {}
    for row in kept.itertuples(index=False):
        at = (places[row.node], row.depth) if grows_down else (row.depth, places[row.node])
        above = boxes.get(row.parent)
        boxes[row.node] = _draw_node(axes, row, at, above, grows_down, across == NARROW_BOX[0])
    for look in (ON_PATH, OFF_PATH):
        axes.plot([], [], **look)
    axes.plot([], [], color="none", label="q: draft's probability, p: target's probability")
    if count < len(leaves):
        axes.plot([], [], color="none", label=f"{count} of {len(leaves)} branches are drawn")
    names = [f"depth {level}" if level else "context" for level in range(levels)]
    if grows_down:
        axes.set_yticks(range(levels), names)
        axes.set_xticks([])
        axes.set_xlim(-0.5, count - 0.5)
        axes.set_ylim(levels - 0.5, -0.5)
    else:
        axes.set_xticks(range(levels), names)
        axes.set_yticks([])
        axes.set_xlim(-0.48, levels - 0.52)
        axes.set_ylim(count - 0.5, -0.5)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)
    axes.grid(False)
    figures.legend_above(figure, axes)
    return figure


def _draw_node(
    axes: Any, row: Any, at: tuple, above: Text | None, grows_down: bool, split: bool
) -> Text:
    """A node's box, and the line that joins it to the box `above` (None: the root has no parent);
    split: q and p on two lines.
    """
    is_accepted = row.accepted and above is not None
    look = ON_PATH if is_accepted else OFF_PATH
    outline = {"edgecolor": look["color"], "linewidth": 0.75 * look["linewidth"]}
    face = ACCEPTED.face if is_accepted else "#EEEEEE" if above is None else "white"
    words = IN_BOX | {"weight": "bold" if is_accepted else "normal", "size": 6.5 if split else None}
    words["bbox"] = outline | {"facecolor": face, "boxstyle": "round,pad=0.25"}
    token = visible(row.text, 8 if split else 14) or " "  # a blank has a box too
    if above is None:
        return axes.text(*at, token, **words)
    between = "\n" if split else "  "
    label = f"{token}\nq {row.q:.2f}{between}p {row.p:.2f}"
    own_side, side_above = ((0.5, 1), (0.5, 0)) if grows_down else ((0, 0.5), (1, 0.5))
    line = {"arrowstyle": "-", "color": look["color"], "linewidth": look["linewidth"]}
    line |= {"relpos": own_side, "shrinkA": 0, "shrinkB": 0, "patchB": above.get_bbox_patch()}
    of_above = partial(Text.get_window_extent, above)  # of its words alone, without its own line
    return axes.annotate(
        label, side_above, at, of_above, textcoords="data", arrowprops=line, **words
    )


def _leaves(frame: pd.DataFrame) -> list[int]:
    """The ends of a tree's branches: that of the accepted path, then the likeliest."""
    q = frame.set_index("node")["q"]
    parent = frame.set_index("node")["parent"]
    accepted = frame.set_index("node")["accepted"]
    likely = {0: 1.0}
    for node in parent.index[1:]:
        likely[node] = likely[parent[node]] * q[node]
    ends = [node for node in parent.index if node not in set(parent[1:])]
    return sorted(ends, key=lambda node: (-_taken(node, parent, accepted), -likely[node], node))


def _taken(node: int, parent: pd.Series, accepted: pd.Series) -> int:
    """The accepted nodes on the way to a node."""
    count = 0
    while node:
        count += bool(accepted[node])
        node = parent[node]
    return count


def _kept(frame: pd.DataFrame, leaves: Sequence[int]) -> set[int]:
    """The nodes on the ways to some leaves."""
    parent = frame.set_index("node")["parent"]
    kept = {0}
    for node in leaves:
        while node not in kept:
            kept.add(node)
            node = parent[node]
    return kept


def _places(frame: pd.DataFrame) -> dict[int, float]:
    """A place per node: leaves one apart, in rank order, a parent in the middle of its children."""
    children = frame[frame["node"] > 0].groupby("parent")["node"].agg(list)
    places: dict[int, float] = {}
    leaves = itertools.count()

    def visit(node: int) -> float:
        below = [visit(child) for child in children.get(node, [])]
        places[node] = float(np.mean(below or [next(leaves)]))
        return places[node]

    visit(0)
    return places


# ---- one word, one text --------------------------------------------------------------------------

KEPT, RECOVERED = (
    {"color": LOOKS[kind].face, "edgecolor": LOOKS[kind].edge} for kind in ("accepted", "recovered")
)
REJECTED = {"color": "white", "edgecolor": "#444444", "hatch": "/////"}


def draw_rule(frame: pd.DataFrame) -> Figure:
    """What becomes of one drafted word, in three panels: the draft's words and the kept part of
    them, the residual, and the output. `frame` has one row per word: word, p, q, residual,
    accepted, recovered.
    """
    targets = {"markersize": 24, "markeredgewidth": 2.2, "label": "p, the target"}
    kept = frame["accepted"]
    recovered = frame["recovered"]
    kept_bars = ("accepted: min(p, q)", kept, KEPT)
    rejected_bars = ("rejected: q − min(p, q)", frame["q"] - kept, REJECTED)
    recovered_bars = ("recovered", recovered, RECOVERED)
    panels = {
        "1  Accepted and rejected words": [kept_bars, rejected_bars],
        "2  Residual": [("_", frame["residual"], RECOVERED)],
        "3  Output": [kept_bars, recovered_bars],
    }
    figure, grid = figures.row_of_panels(3, 2.7, sharey=True)
    for axes, (title, bars) in zip(grid, panels.items(), strict=True):
        bottom = 0
        for label, heights, look in bars:
            axes.bar(frame["word"], heights, bottom=bottom, label=label, **look)
            bottom = heights
        axes.set(title=title, ylim=(0, 0.9), xlabel="next word")
        if len(bars) > 1:
            axes.plot(frame["p"], "k_", **targets)
    grid[0].set_ylabel("probability")
    figures.legend_above(figure, *grid)
    return figure


def draw_overlap(frame: pd.DataFrame) -> Figure:
    """The draft's most likely tokens at one position as bars: the probability that both models
    give, and the probability that only one of them gives. `frame`: token, q, p, shared.
    """
    shared = frame["shared"]
    parts = {
        "accepted: min(p, q)": (shared, KEPT),
        "draft's excess: rejected": (frame["q"] - shared, REJECTED),
        "draft's shortfall: recovered": (frame["p"] - shared, RECOVERED),
    }
    figure, axes = figures.subplots(height=1.2 + 0.2 * len(frame))
    places, left = range(len(frame)), np.zeros(len(frame))
    for label, (widths, look) in parts.items():
        axes.barh(places, widths, left=left, height=0.8, linewidth=0.6, label=label, **look)
        left = left + widths
    axes.set_yticks(places, frame["token"], family=style.MONOSPACED)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set(xlim=(0, None), xlabel="probability", ylabel="next token")
    figures.legend_above(figure, axes)
    return figure


CELLS = {"accepted draft token": LOOKS["accepted"].face, "target's own token": "#444444"}


def draw_text(frame: pd.DataFrame) -> Figure:
    """One text as the blocks of each gamma divide it: one line per gamma, one cell per token.
    `frame`: gamma, passes, kept, drafted, and of every token its position and is_drafted (else it
    is the target's own).
    """
    lines = frame.groupby("gamma", sort=False)
    cells = np.stack([rows["is_drafted"] for _, rows in lines])
    heads = lines[["passes", "kept", "drafted"]].first()
    labels = [
        f"gamma {row.Index}: {counted(row.passes, 'pass')}, {row.kept} of {row.drafted} accepted"
        for row in heads.itertuples()
    ]
    if figures.is_narrow():
        labels = [label.partition(",")[0] for label in labels]
    figure, axes = figures.subplots(height=0.9 + 0.27 * len(labels))
    for is_shown, (label, colour) in zip((cells, ~cells), CELLS.items(), strict=True):
        line, place = np.nonzero(is_shown)
        axes.bar(place + 0.5, 0.84, width=0.9, bottom=line + 0.08, color=colour, label=label)
    axes.set_yticks(np.arange(len(labels)) + 0.5, labels)
    axes.set(xlim=(0, cells.shape[1]), ylim=(len(labels), 0))
    axes.grid(False)
    axes.set_xlabel("position in the text (tokens)")
    figures.legend_above(figure, axes)
    return figure


# ---- domains -------------------------------------------------------------------------------------


def draw_blocks(
    frame: pd.DataFrame,
    percent: Sequence[str] = (),
    limits: Mapping[str, Sequence] = {},
    reference: float | None = None,
    reference_name: str = "",
) -> Figure:
    """Estimates with intervals in blocks of rows, one block below the other: each has its own rows,
    and blocks of one axis have the same scale.

    `frame`: block (the title), axis (noun and unit), row, domain, estimate, low, high. percent: the
    axes whose numbers are fractions of 1, shown in percent. limits: of axes. reference: a vertical
    line at this value, called reference_name.
    """
    blocks = list(frame.groupby(["axis", "block"], sort=False))
    rows = [part["row"].nunique() for _, part in blocks]
    looks = figures.looks_of(pd.unique(frame["domain"]))
    of_row = max(0.26, 0.07 * len(looks))
    tall = of_row * sum(rows) + 0.55 * len(blocks) + 0.4
    figure, grid = figures.subplots(len(blocks), height=tall, squeeze=False, height_ratios=rows)
    first: dict[str, Any] = {}
    for axes, ((axis, block), part) in zip(grid.flat, blocks, strict=True):
        if axis in first:
            axes.sharex(first[axis])
        first.setdefault(axis, axes)
        figures.interval_bars(part, axes, "row", horizontal=True, looks=looks)
        if reference is not None:
            axes.axvline(reference, color="black", linewidth=0.7, label=reference_name or "_")
        axes.set(title=block, xlabel=axis)
        if axis in percent:
            figures.show_percent(axes.xaxis)
    for axis, axes in first.items():
        axes.set_xlim(limits.get(axis))
    figures.legend_above(figure, *grid.flat)
    return figure


def draw_mixture(frame: pd.DataFrame, whole: str, weighted: str) -> Figure:
    """The mean over all nodes of a depth (`whole`) as a point between the means of two groups of
    nodes, relative to depth 1; beside it the share of the nodes that are `weighted`. A panel per
    tree. The other panels repeat the `whole` of the first tree as a dashed line.

    `frame`: tree, name, depth, estimate, share.
    """
    trees = pd.unique(frame["tree"])
    looks = {"color": "#8C6D1F", "marker": "o"}, {"color": "#7F7F7F", "marker": "s"}
    groups = [name for name in pd.unique(frame["name"]) if name != whole]
    look_of = dict(zip(groups, looks, strict=False))
    look_of[whole] = {"color": "#332288", "marker": "D", "markersize": 7, "linestyle": "-"}
    figure, grid = figures.row_of_panels(len(trees), 2.8, sharey=True)
    for axes, tree in zip(grid, trees, strict=True):
        means = frame[frame["tree"] == tree]
        values = means.pivot(index="depth", columns="name", values="estimate")
        values -= values[whole].iloc[0]
        if tree == trees[0]:
            of_first = values[whole]
        else:
            axes.plot(of_first, "--", color="#332288", label=f"{whole}, {trees[0]}")
        axes.vlines(values.index, values.min(axis=1), values.max(axis=1), color="#BBBBBB")
        for name, look in look_of.items():
            if name in values:
                axes.plot(values[name], **{"linestyle": "none", "label": name} | look)
        for row in means[means["name"] == weighted].itertuples():
            place = row.depth, values.loc[row.depth, whole]
            beside = {"textcoords": "offset points", "va": "center"}
            behind = {"facecolor": "white", "edgecolor": "none", "pad": 1}
            axes.annotate(f"{100 * row.share:.0f} %", place, (7, -11), bbox=behind, **beside)
        axes.axhline(0, color="black", linewidth=0.7, label="as at depth 1", zorder=0.5)
        axes.plot([], [], color="none", label=f"%: share {weighted}")
        axes.set(title=tree, xticks=values.index, xlabel="depth")
        axes.margins(0.2, 0.12)
        figures.show_percent(axes.yaxis)
    grid[0].set_ylabel("change of the mean (points)")
    figures.legend_above(figure, *grid)
    return figure


def draw_entropy_and_acceptance(frame: pd.DataFrame, domain: str) -> Figure:
    """Each domain's mean entropy and acceptance, all panels on one scale; the name of `domain`
    stands at its point. `frame`: panel, domain, quantity (entropy, acceptance), estimate, low,
    high.
    """
    titles = pd.unique(frame["panel"])
    looks = figures.looks_of(pd.unique(frame["domain"]))
    figure, grid = figures.row_of_panels(len(titles), 2.7, sharex=True, sharey=True)
    numbers = frame.set_index(["panel", "domain", "quantity"])[["estimate", "low", "high"]]
    entropies = numbers["estimate"].xs("entropy", level="quantity")
    middle = (entropies.min() + entropies.max()) / 2
    for axes, title in zip(grid, titles, strict=True):
        for name, look in looks.items():
            x, y = (numbers.loc[title, name, what] for what in ("entropy", "acceptance"))
            axes.plot(x[1:], [y["estimate"]] * 2, color=look["color"])
            axes.plot([x["estimate"]] * 2, y[1:], color=look["color"])
            axes.plot(x["estimate"], y["estimate"], **look | {"linestyle": "none"})
            if name == domain:
                is_right = x["estimate"] > middle
                place = {"textcoords": "offset points", "weight": "bold"}
                place["ha"] = "right" if is_right else "left"
                shift = (-5, 5) if is_right else (5, 5)
                lines = textwrap.fill(name, 20)
                axes.annotate(lines, (x["estimate"], y["estimate"]), shift, **place)
        axes.set(title=title)
    grid[0].margins(0.2, 0.1)
    figure.supxlabel("target entropy (nats)")
    figure.supylabel("acceptance")
    figures.legend_above(figure, grid[0])
    return figure


MEAN = {"color": "black", "marker": "d", "markersize": 5}


def draw_causes(frame: pd.DataFrame, families: Mapping[str, str], whole: str) -> Figure:
    """The excess of classes of positions, a panel for each family: the mean of the domains with its
    interval, and each domain as a small point. `frame`: family, name, domain, estimate, low, high.

    families: their titles; whole: the mean in the column `domain`, or the only domain.
    """
    parts = {title: frame[frame["family"] == name] for name, title in families.items()}
    parts = {title: part for title, part in parts.items() if len(part)}
    sizes = [part["name"].nunique() for part in parts.values()]
    tall = 0.21 * sum(sizes) + 0.4 * len(sizes) + 0.8
    figure, grid = figures.subplots(
        len(sizes), 1, height=tall, sharex=True, height_ratios=sizes, squeeze=False
    )
    domains = [name for name in pd.unique(frame["domain"]) if name != whole]
    mean = MEAN | {"label": "mean of the domains" if domains else whole}
    for axes, (title, rows) in zip(grid.flat, parts.items(), strict=True):
        figures.interval_bars(rows, axes, "name", horizontal=True, looks={whole: mean})
        places = pd.Index(pd.unique(rows["name"]))
        for domain, look in figures.looks_of(domains).items():
            of_domain = rows[rows["domain"] == domain]
            spots = places.get_indexer(of_domain["name"])
            small = {"linestyle": "none", "markersize": 3, "alpha": 0.8}
            axes.plot(of_domain["estimate"], spots, **look | small)
        axes.axvline(0, color="black", linewidth=0.7, label="equally many random positions")
        axes.set_title(title)
    axes.set_xlabel("excess (tokens per target pass)")
    figures.legend_above(figure, grid[0, 0])
    return figure


# ---- the paper's claims --------------------------------------------------------------------------

OF_SIGNS = {  # colours of cells, by the sign of the verdict
    "✓": "#A9CFA0",
    "(✓)": "#DDEBD9",
    "c": "#D8D3EA",
    "?": "#EEEEEE",
    "✗": "#E8BDB5",
}
WORD_INCHES = 0.55  # a cell that is wider holds a word


def draw_verdicts(
    frame: pd.DataFrame,
    column: str,
    panel: str,
    label: str = "",
    mark: float | None = None,
    mark_name: str = "",
    order: Sequence = (),
) -> Figure:
    """A row for each claim (`said`), a coloured cell for each value of `column`, a panel for each
    value of `panel`. Cells hold the verdict's `word`; narrow ones its `sign`, and a legend explains
    the signs.

    label: what the columns are. mark: a line at this value of numeric columns, on a logarithmic
    scale; mark_name: its name in the legend. order: of the columns (default: of appearance).
    """
    said, titles = pd.Index(frame["said"].unique()), frame[panel].unique()
    columns = pd.Index(list(order) or frame[column].unique())
    narrow = figures.is_narrow()
    is_stacked = narrow and len(columns) > 4
    shape = (len(titles), 1) if is_stacked else (1, len(titles))
    height = (0.27 if narrow else 0.25) * len(said) * shape[0] + 0.6 * shape[0] + 0.4
    figure, grid = figures.subplots(*shape, height=height, squeeze=False)
    cell_inches = 0.5 * figures.width() / (shape[1] * len(columns))
    text, size = ("word", "small") if cell_inches > WORD_INCHES else ("sign", "medium")
    for title, axes in zip(titles, grid.flat, strict=True):
        rows = frame[frame[panel] == title]
        x, y = columns.get_indexer(rows[column]), said.get_indexer(rows["said"])
        colours = rows["sign"].map(OF_SIGNS).fillna("white")
        axes.bar(x, 1, width=1, bottom=y - 0.5, color=colours, edgecolor="white")
        for cell in zip(x, y, rows[text], strict=True):
            axes.text(*cell, size=size, ha="center", va="center")
        axes.set(title=title, ylim=(len(said) - 0.5, -0.5), yticks=[])
        axes.set(xlim=(-0.5, len(columns) - 0.5))
        axes.set_xticks(range(len(columns)), map(str, columns))
        axes.tick_params(length=0)
        axes.grid(False)
        axes.spines[:].set_visible(False)
        if mark is not None:
            at = np.interp(np.log(mark), np.log(columns), range(len(columns)))
            edges = np.arange(len(said) + 1) - 0.5  # between the rows, so that no sign is covered
            look = {"colors": "black", "linewidth": 1.4, "label": mark_name}
            axes.vlines([at] * len(edges), edges - 0.22, edges + 0.22, **look)
    for axes in grid[:, 0]:
        _name_rows(axes, said, 42 if narrow else 46)
    if text == "sign":
        for sign, word in frame[["sign", "word"]].drop_duplicates().itertuples(index=False):
            look = {"color": OF_SIGNS.get(sign, "white"), "label": f"{sign} {word}"}
            grid[0, 0].scatter([], [], marker="s", s=60, **look)
        figures.legend_above(figure, *grid.flat)
    figure.supxlabel(label)
    return figure


def _name_rows(axes: Any, names: Sequence[str], most: int) -> None:
    """Write a name beside each row of cells, in lines of at most `most` characters."""
    look = {"ha": "right", "va": "center", "linespacing": 1.0}
    for row, name in enumerate(names):
        lines = "\n".join(textwrap.wrap(name, most, break_on_hyphens=False))
        axes.text(-0.02, row, lines, transform=axes.get_yaxis_transform(), **look)


# ---- at scale ------------------------------------------------------------------------------------

# a new block at all positions, a new block at the same ones, the token at this depth
OF_DEPTH: tuple[dict[str, Any], ...] = (
    {"color": "black", "linewidth": 0.8},
    {"color": "#444444", "marker": "s"},
    {"color": "#882255", "marker": "o"},
)


def draw_depth(frame: pd.DataFrame, sets: Sequence[str], names: Sequence[str]) -> Figure:
    """EAGLE's acceptance in percent by depth, a panel for each prompt set. names: of the series, in
    the order of OF_DEPTH; the gap between the last two is the cost of depth.
    """
    looks = {name: look | {"label": name} for name, look in zip(names, OF_DEPTH, strict=True)}
    of_eagle = frame[frame["proposer"] == "EAGLE"].copy()
    of_eagle[NUMBERS] *= 100
    figure, panels = figures.row_of_panels(len(sets), 2.4, sharex=True, sharey=True)
    for domain, axes in zip(sets, panels, strict=True):
        rows = of_eagle[of_eagle["domain"] == domain]
        shares = rows.pivot(index="depth", columns="name", values="estimate")
        gap = (shares[name] for name in names[1:])
        look = {"color": "#882255", "alpha": 0.18, "linewidth": 0, "label": "cost of depth"}
        axes.fill_between(shares.index, *gap, **look)
        figures.lines_with_bands(rows, axes, "depth", "name", looks)
        axes.set(title=domain)
    panels[0].set_ylim(top=100)
    figure.supxlabel("depth (drafted tokens)")
    figure.supylabel("accepted tokens (%)")
    figures.legend_above(figure, panels[0])
    return figure


# ---- your log ------------------------------------------------------------------------------------

# the gamma to try, undecided gammas, no significant difference, no interval, slower gammas
OF_BOUNDS = ("#009E73", "#E69F00", "#56B4E9", "#56B4E9", "#8A8A8A")


def draw_bounds(frame: pd.DataFrame, verdicts: Sequence[str], own: int | None = None) -> Figure:
    """The bounds of the speed-up by gamma as thick bars, with their interval as thin lines. A bar
    of no height is a number that the log decides exactly. `frame`: gamma, least, most, low, high,
    verdict.

    verdicts: words in the order of OF_BOUNDS; own: the log's own gamma, marked under the axis.
    """
    figure, axes = figures.subplots(height=2.9)
    for verdict, colour in zip(verdicts, OF_BOUNDS, strict=True):
        rows = frame[frame["verdict"] == verdict]
        if rows.empty:
            continue
        look = {"color": colour, "linestyle": "none", "marker": "_", "markersize": 11}
        axes.vlines(rows.index, rows["low"], rows["high"], color=colour, linewidth=1.2)
        axes.vlines(rows.index, rows["least"], rows["most"], color=colour, linewidth=7, alpha=0.45)
        for end in ("least", "most"):
            axes.plot(rows.index, rows[end], markeredgewidth=2, **look)
        axes.plot([], [], color=colour, linewidth=7, alpha=0.6, label=verdict)
    axes.axhline(1, color="black", linewidth=0.7, label="plain decoding")
    names = {"0": "plain", str(own): f"{own}\n(log)"}
    axes.set_xticks(frame.index, [names.get(gamma, gamma) for gamma in frame["gamma"].astype(str)])
    axes.grid(axis="x", visible=False)
    axes.set(xlabel="gamma (draft tokens proposed)", ylabel="estimated speed-up (x)")
    figures.legend_above(figure, axes)
    return figure


# ---- the atlas -----------------------------------------------------------------------------------


def draw_relative(frame: pd.DataFrame, rows: str, columns: str, label: str) -> Figure:
    """A cell for each value of `rows` and `columns` with the estimate, under it its interval.
    Colours: blue above 1, red below 1. label: what the numbers are.
    """
    down, across = (list(pd.unique(frame[key])) for key in (rows, columns))
    narrow = figures.is_narrow()
    tall = 0.42 * len(down) + 1.1
    figure, axes = figures.subplots(height=tall)
    wide = frame.pivot(index=rows, columns=columns, values="estimate").loc[down, across]
    reach = np.abs(np.log(wide.to_numpy())).max()
    cells = axes.imshow(np.log(wide), cmap="RdBu", vmin=-reach, vmax=reach, aspect="auto")
    cells.set_alpha(0.5)
    for row in frame.itertuples(index=False):
        at = (across.index(getattr(row, columns)), down.index(getattr(row, rows)))
        text = f"{row.estimate:.2f}"
        if not narrow:
            text += f"\n[{row.low:.2f}, {row.high:.2f}]"
        axes.text(*at, text, ha="center", va="center", size="small" if narrow else "x-small")
    axes.set_xticks(range(len(across)), across)
    axes.set_yticks(range(len(down)), down)
    axes.tick_params(length=0, axis="x", labelrotation=60 if narrow else 0)
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    figure.supxlabel(label)
    return figure
