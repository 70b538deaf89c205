"""A drafted tree, drawn from a data frame. It needs no model."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from speclab.show import figures, style
from speclab.show.figures import Figure
from speclab.show.pictures import LOOKS, visible
from speclab.tree import Tree

MOST_NODES = 16  # of a drawn tree
LEVEL = 0.66  # smallest width of a level, in inches
ACCEPTED = LOOKS["accepted"]
# the line that leads to a node, and the box of it
ON_PATH: dict[str, Any] = {"color": ACCEPTED.edge, "linewidth": 2.4, "label": "accepted"}
OFF_PATH: dict[str, Any] = {"color": "#8A8A8A", "linewidth": 1.0, "label": "drafted, not accepted"}
WORDS = {"ha": "center", "va": "center", "linespacing": 1.2, "family": style.MONOSPACED}


def tree_frame(
    tree: Tree,
    labels: Sequence[str],
    draft_prob: Sequence[float],
    target_prob: Sequence[float],
    accepted: Sequence[bool],
) -> pd.DataFrame:
    """A drafted tree as data for `draw_tree`: node, parent, depth, text, q, p, accepted.

    All sequences have N + 1 entries and begin with the root, which is accepted. Its label is the
    end of the context, and its probabilities are not drawn. Siblings are in rank order.
    """
    return pd.DataFrame(
        {
            "node": range(tree.size + 1),
            "parent": np.maximum(tree.parent, 0),
            "depth": tree.depth,
            "text": labels,
            "q": draft_prob,
            "p": target_prob,
            "accepted": accepted,
        }
    )


def draw_tree(frame: pd.DataFrame) -> Figure:
    """A drafted tree: each node's token with q (draft) and p (target). The accepted path is filled
    and its lines are thick. The draft's best token stands on top.

    `frame` comes from `tree_frame`. Of a large tree the accepted path is drawn and the nodes that
    are likeliest under the draft, as deep as the width allows; a line says how many.
    """
    likely = {0: 1.0}
    for row in frame[1:].itertuples():
        likely[row.node] = likely[row.parent] * row.q
    # a node is never likelier than its parent, so every kept node has its parent
    deepest = int(figures.width() / LEVEL)
    shown = frame[frame["depth"] < deepest]
    shown = shown.assign(likely=shown["node"].map(likely))
    shown = shown.sort_values(["accepted", "likely"], ascending=False, kind="stable")
    shown = shown.head(MOST_NODES + 1).sort_index()
    places = _places(shown)
    levels = int(shown["depth"].max()) + 1
    # q and p under each other where a level is narrow
    is_narrow = figures.width() / levels < 2 * LEVEL
    lowest = max(places.values())
    row_height = 0.6 if is_narrow else 0.46
    figure, axes = figures.subplots(height=0.6 + row_height * (lowest + 1))
    # a box for each node, and a line from its parent
    for row in shown.itertuples():
        text = visible(row.text, 8 if is_narrow else 14) or " "
        look = OFF_PATH
        face = "#EEEEEE"
        if row.node:
            face = "white"
            if row.accepted:
                look = ON_PATH
                face = ACCEPTED.face
            between = "\n" if is_narrow else "  "
            text += f"\nq {row.q:.2f}{between}p {row.p:.2f}"
            ends = [places[row.parent], places[row.node]]
            axes.plot([row.depth - 1, row.depth], ends, **look)
        weight = "bold" if look is ON_PATH else "normal"
        box = {"edgecolor": look["color"], "facecolor": face, "boxstyle": "round,pad=0.25"}
        box["linewidth"] = 0.75 * look["linewidth"]
        size = 6.5 if is_narrow else None
        axes.text(row.depth, places[row.node], text, weight=weight, size=size, bbox=box, **WORDS)
    names = [f"depth {level}" if level else "context" for level in range(levels)]
    axes.set_xticks(range(levels), names)
    axes.set(yticks=[], xlim=(-0.5, levels - 0.5), ylim=(lowest + 0.5, -0.5))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.grid(False)
    label = "q: draft's probability, p: target's probability"
    if len(shown) < len(frame):
        label += f"\n{len(shown) - 1} of {len(frame) - 1} tokens are drawn"
    axes.set_xlabel(label)
    return figure


def _places(frame: pd.DataFrame) -> dict[int, float]:
    """A place per node: leaves one apart, in rank order, a parent in the middle of its children."""
    drafted = frame[frame["node"] > 0]
    children = drafted.groupby("parent")["node"].agg(list)
    places: dict[int, float] = {}
    leaves = itertools.count()

    def visit(node: int) -> float:
        below = [visit(child) for child in children.get(node, [])]
        if not below:
            below = [next(leaves)]
        places[node] = float(np.mean(below))
        return places[node]

    visit(0)
    return places
