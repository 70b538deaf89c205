"""Figures that one notebook alone has. None needs a model: each draws a data frame."""

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from speclab.show import figures, style
from speclab.show.figures import Figure, Text
from speclab.show.pictures import LOOKS, visible
from speclab.tree import Tree

# ---- a drafted tree ------------------------------------------------------------------------------

ACCEPTED = LOOKS["accepted"]
# the box of a node and the line that leads to it
ON_PATH: dict[str, Any] = {"color": ACCEPTED.edge, "linewidth": 2.4, "label": "accepted"}
OFF_PATH: dict[str, Any] = {"color": "#8A8A8A", "linewidth": 1.0, "label": "drafted, not accepted"}
IN_BOX = {"ha": "center", "va": "center", "linespacing": 1.2, "family": style.MONOSPACED}
WIDE_BOX, NARROW_BOX = (1.3, 0.46), (0.66, 0.6)  # of a node: inches across and down


def tree_frame(
    tree: Tree,
    labels: Sequence[str],
    draft_prob: Sequence[float],
    target_prob: Sequence[float],
    accepted: Sequence[bool],
) -> pd.DataFrame:
    """A drafted tree as data for `draw_tree`: node, parent, depth, text, q, p, accepted.

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


def draw_tree(frame: pd.DataFrame) -> Figure:
    """A drafted tree: each node's token with q (draft) and p (target). The accepted path is filled
    and its lines are thick; each line runs from box to box.

    `frame` comes from `tree_frame`. The draft's best token stands on top. A tree that is too
    deep for the width grows downwards. A tree that is too large loses the branches to which the
    draft gives the lowest probability, and the legend says how many are drawn.
    """
    leaves = _leaves(frame)
    levels = int(frame["depth"].max()) + 1
    across, down = WIDE_BOX if levels * WIDE_BOX[0] <= figures.width() else NARROW_BOX
    grows_down = levels * across > figures.width() + 0.4
    room = figures.width() / across if grows_down else (style.TALLEST - 0.6) / down
    # a tree with too many branches for the page loses those that were not accepted
    kept = frame[frame["node"].isin(_kept(frame, leaves[: max(int(room), 1)]))]
    count = int(kept["node"].isin(leaves).sum())
    places = _places(kept)
    tall = 0.6 + down * (levels if grows_down else count)
    figure, axes = figures.subplots(height=tall)
    # parents come before their children, so the box above is there
    boxes: dict[int, Any] = {}
    for row in kept.itertuples(index=False):
        at = (places[row.node], row.depth) if grows_down else (row.depth, places[row.node])
        above = boxes.get(row.parent)
        boxes[row.node] = _draw_node(axes, row, at, above, grows_down, across == NARROW_BOX[0])
    # entries of the legend that have no line of their own
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


# a new block at all positions, a new block at the same ones, the token at this depth


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
