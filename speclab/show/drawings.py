"""Figures that one notebook alone has. None needs a model: each draws a data frame."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from speclab.show import figures, style
from speclab.show.figures import Figure
from speclab.show.pictures import LOOKS, visible

# ---- a drafted tree ------------------------------------------------------------------------------

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
IN_BOX = {"ha": "center", "va": "center", "linespacing": 1.2, "family": style.MONOSPACED}
WIDE_BOX, NARROW_BOX = (1.3, 0.46), (0.66, 0.6)  # of a node: inches across and down


def draw_tree(frame: pd.DataFrame) -> Figure:
    """A drafted tree as a picture: each node's token with q (draft) and p (target), the accepted
    path filled and with thick lines.

    `frame` is of `speclab.show.pictures.tree_frame`. The draft's best stands on top; where the tree
    is too deep for the width it grows downwards. Of a tree that is too large the branches that the
    draft thinks least of are left out, and the legend says how many.
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
    at = {
        node: (places[node], depth) if grows_down else (depth, places[node])
        for node, depth in zip(kept["node"], kept["depth"], strict=True)
    }
    for row in kept.itertuples(index=False):
        _draw_node(axes, row, at, split=across == NARROW_BOX[0])
    axes.plot([], [], color="none", label="q: draft's probability, p: target's")
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


def _draw_node(axes: Any, row: Any, at: Mapping[int, tuple], split: bool) -> None:
    """A node's box, and the line from its parent, under both boxes; split: q and p on two lines."""
    on_path = row.accepted or not row.node
    line = TO_ACCEPTED if on_path else TO_OTHERS
    box = {"edgecolor": line["color"], "linewidth": 0.75 * line["linewidth"]}
    box |= {"facecolor": ACCEPTED.face if on_path else "white", "boxstyle": "round,pad=0.25"}
    text = visible(row.text, 8 if split else 14) or " "  # a blank has a box too
    if row.node:
        ends = zip(at[row.parent], at[row.node], strict=True)
        axes.plot(*ends, zorder=0, **line)
        text += f"\nq {row.q:.2f}{chr(10) if split else '  '}p {row.p:.2f}"
    weight = "bold" if on_path else "normal"
    axes.text(*at[row.node], text, weight=weight, bbox=box, size=6.5 if split else None, **IN_BOX)


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


def draw_rule(frame: pd.DataFrame) -> Figure:
    """What becomes of one drafted word, as three panels: what is drawn from q and kept, the
    residual, what comes out. `frame` has a row a word: word, p, q, residual, accepted, recovered.
    """
    green, orange = (
        {"color": LOOKS[kind].face, "edgecolor": LOOKS[kind].edge}
        for kind in ("accepted", "recovered")
    )
    white = {"color": "white", "edgecolor": "#444444", "hatch": "/////"}
    wanted = {"markersize": 24, "markeredgewidth": 2.2, "label": "p, what is wanted"}
    kept = frame["accepted"]
    recovered = frame["recovered"]
    kept_bars = ("kept: min(p, q)", kept, green)
    rejected_bars = ("rejected: the rest of q", frame["q"] - kept, white)
    recovered_bars = (f"recovered: {recovered.sum():.2f} × residual", recovered, orange)
    panels = {
        "1  Draw, keep with min(1, p/q)": [kept_bars, rejected_bars],
        "2  If rejected: residual": [("_", frame["residual"], orange)],
        "3  What comes out: p": [kept_bars, recovered_bars],
    }
    figure, grid = figures.row_of_panels(3, 2.7, sharey=True)
    for axes, (title, bars) in zip(grid, panels.items(), strict=True):
        bottom = 0
        for label, heights, look in bars:
            axes.bar(frame["word"], heights, bottom=bottom, label=label, **look)
            bottom = heights
        axes.set(title=title, ylim=(0, 0.9), xlabel="next word")
        if len(bars) > 1:
            axes.plot(frame["p"], "k_", **wanted)
    grid[0].set_ylabel("probability")
    figures.legend_above(figure, *grid)
    return figure


def draw_overlap(frame: pd.DataFrame) -> Figure:
    """The draft's favourite tokens at one position as bars: what both models give, and what only
    one of them gives. `frame`: token, q, p, shared, the best on top.
    """
    shared = frame["shared"]
    parts = {
        "both: min(p, q), the overlap": (shared, "#999999"),
        "draft alone: rejected": (frame["q"] - shared, LOOKS["bonus"].face),
        "target alone: recovered": (frame["p"] - shared, LOOKS["recovered"].face),
    }
    figure, axes = figures.subplots(height=2.8)
    places, left = range(len(frame)), np.zeros(len(frame))
    for label, (widths, colour) in parts.items():
        axes.barh(places, widths, left=left, color=colour, height=0.8, label=label)
        left = left + widths
    axes.set_yticks(places, frame["token"], family=style.MONOSPACED)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set(
        xlim=(0, None),
        xlabel="probability of the next token",
        ylabel="the draft's favourites, best on top",
    )
    figures.legend_above(figure, axes)
    return figure


CELLS = {"a draft that was kept": "#BDD7E7", "the target's own, which ends a pass": "#08519C"}


def draw_text(frame: pd.DataFrame) -> Figure:
    """One text as the blocks of each gamma cut it: a line a gamma, a cell a token. `frame`: gamma,
    passes, kept, drafted, position and is_drafted (else the target's own) of every token.
    """
    lines = frame.groupby("gamma", sort=False)
    cells = np.stack([rows["is_drafted"] for _, rows in lines])
    heads = lines[["passes", "kept", "drafted"]].first()
    labels = [f"gamma {row.Index}: {row.passes} passes" for row in heads.itertuples()]
    if not figures.is_narrow():
        counts = heads.itertuples()
        labels = [
            f"{label}, {row.kept} of {row.drafted} drafts kept"
            for label, row in zip(labels, counts, strict=True)
        ]
    figure, axes = figures.subplots(height=0.9 + 0.27 * len(labels))
    place = np.arange(len(labels))
    width = cells.shape[1]
    for line, own in enumerate(cells):
        starts = np.flatnonzero(own), np.flatnonzero(~own)
        for at, (label, colour) in zip(starts, CELLS.items(), strict=True):
            spans = [(cell + 0.05, 0.9) for cell in at]
            name = label if line == 0 else "_"
            axes.broken_barh(spans, (line + 0.08, 0.84), facecolors=colour, lw=0, label=name)
    axes.set_yticks(place + 0.5, labels)
    axes.set(xlim=(0, width), ylim=(len(labels), 0))
    axes.grid(False)
    axes.set_xlabel(figures.AXIS_LABELS["position"])
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
    panels: dict[str, list] = {}
    for axes, ((axis, block), part) in zip(grid.flat, blocks, strict=True):
        figures.interval_bars(part, axes, "row", horizontal=True, looks=looks)
        if reference is not None:
            axes.axvline(reference, color="black", linewidth=0.7, label=reference_name or "_")
        axes.set(title=block, xlabel=axis)
        if axis in percent:
            figures.show_percent(axes.xaxis)
        panels.setdefault(axis, []).append(axes)
    for axis, of_axis in panels.items():
        ends = np.array([axes.get_xlim() for axes in of_axis])
        least, most = ends.min(), ends.max()
        for axes in of_axis:
            axes.set_xlim(least, most)
            axes.set_xlim(limits.get(axis))
    figures.legend_above(figure, *grid.flat)
    return figure


def draw_mixture(frame: pd.DataFrame, whole: str, weighted: str) -> Figure:
    """The mean over all nodes of a depth (`whole`) as a point between the means of two groups of
    nodes, relative to depth 1; beside it the share of the nodes that are `weighted`. A panel per
    tree.

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
        axes.vlines(values.index, values.min(axis=1), values.max(axis=1), color="#BBBBBB")
        for name, look in look_of.items():
            if name in values:
                axes.plot(values[name], **{"linestyle": "none", "label": name} | look)
        for row in means[means["name"] == weighted].itertuples():
            place = row.depth, values.loc[row.depth, whole]
            below = {"textcoords": "offset points", "ha": "right", "va": "top"}
            axes.annotate(f"{100 * row.share:.0f} %", place, (-5, -4), **below)
        axes.axhline(0, color="black", linewidth=0.7, label="as at depth 1", zorder=0.5)
        axes.plot([], [], color="none", label=f"%: share {weighted}")
        axes.set(title=tree, xticks=values.index, xlabel="depth")
        axes.margins(0.15, 0.12)
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
    shape = (2, -(-len(titles) // 2)) if figures.is_narrow() else (1, len(titles))
    options = {"sharex": True, "sharey": True, "squeeze": False}
    figure, grid = figures.subplots(*shape, height=1.9 * shape[0] + 0.8, **options)
    numbers = frame.set_index(["panel", "domain", "quantity"])[["estimate", "low", "high"]]
    for axes, title in zip(grid.flat, titles, strict=False):
        for name, look in looks.items():
            x, y = (numbers.loc[title, name, what] for what in ("entropy", "acceptance"))
            axes.plot(x[1:], [y["estimate"]] * 2, color=look["color"])
            axes.plot([x["estimate"]] * 2, y[1:], color=look["color"])
            axes.plot(x["estimate"], y["estimate"], **look | {"linestyle": "none"})
            if name == domain:
                place = {"textcoords": "offset points", "weight": "bold"}
                axes.annotate(name, (x["estimate"], y["estimate"]), (5, 5), **place)
        axes.set(title=title)
    for axes in grid.flat[len(titles) :]:
        axes.set_axis_off()
    grid[0, 0].margins(0.2, 0.1)
    figure.supxlabel("target entropy (nats)")
    figure.supylabel("acceptance")
    figures.legend_above(figure, grid[0, 0])
    return figure


def draw_check(frame: pd.DataFrame) -> Figure:
    """Measured against predicted speed-up, a point a prompt: domain, promised, plain_s, policy_s.
    On the line both are equal.
    """
    figure, axes = figures.subplots(height=3.0)
    for domain, look in figures.looks_of(pd.unique(frame["domain"])).items():
        rows = frame[frame["domain"] == domain]
        look |= {"linestyle": "none"}
        axes.plot(1 / rows["promised"], rows["plain_s"] / rows["policy_s"], **look)
    axes.axline((1, 1), slope=1, color="black", linewidth=0.8, zorder=1)
    axes.set(xlabel="predicted speed-up (T = 0)", ylabel="measured speed-up")
    figures.legend_above(figure, axes)
    return figure


# ---- the paper's claims --------------------------------------------------------------------------

GREEN, EDGE = "#DDEBD9", "#5B8A52"


def draw_claims(
    frame: pd.DataFrame, labels: Mapping[str, Sequence[str]], regions: Mapping[str, Sequence]
) -> Figure:
    """A panel for each claim: `frame` has claim, line (who measured it, how, the verdict's sign),
    row, estimate, low, high. labels: by claim, what it says and what its number is. regions: by
    claim, whether it holds in one region for all rows, and its edges.
    """
    figure, panels = figures.subplots(len(labels), height=1.75 * len(labels), squeeze=False)
    for (name, (said, number)), axes in zip(labels.items(), panels.flat, strict=True):
        of_claim = frame[frame["claim"] == name]
        figures.interval_bars(of_claim, axes, "line", "row", horizontal=True)
        _draw_region(axes, *regions[name])
        axes.set_title(f"{name}: {said}")
        axes.set_xlabel(number)
    figures.legend_above(figure, *panels.flat)
    return figure


def _draw_region(axes: Any, is_one: bool, edges: Sequence[float | None]) -> None:
    """The region in which a claim holds; its edges alone where domains differ in it."""
    limits = axes.get_xlim()
    for edge in {*edges} - {None}:
        axes.axvline(edge, color=EDGE, linewidth=1, linestyle="--", zorder=0)
    if is_one:
        ends = zip(edges, limits, strict=True)
        inside = [limit if edge is None else edge for edge, limit in ends]
        axes.axvspan(*np.clip(inside, *limits), color=GREEN, zorder=0, label="it holds")
    axes.set_xlim(limits)
