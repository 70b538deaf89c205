"""Notebook 10: the cost of a block in measured times, the speed of real decoding and what the
cost predicts, and what limits it.

Costs are in units of a target pass over one token; the times come from `models.timing`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd

from speclab import stats
from speclab.analysis.choose import fastest
from speclab.cost import Costs
from speclab.estimates import Estimates
from speclab.models import timing
from speclab.score import POOLED, ratio_of
from speclab.shapes import Shape
from speclab.stats import NUMBERS
from speclab.tree import Tree, chain

IDEAL = {  # looks of the two ideals beside the measured passes
    "v = 1": {"marker": "", "color": "black", "linestyle": "-", "linewidth": 0.8},
    "v = n": {"marker": "", "color": "black", "linestyle": ":", "linewidth": 0.8},
}
NOW = "as measured"
RIGHT = "draft always right"
DEPTHS = (1, 2, 3, 4, 5, 6, 8)  # of the trees that are tried for speed


# ---- the cost of a block -------------------------------------------------------------------------


def pass_table(times: pd.DataFrame, costs: Costs) -> pd.DataFrame:
    """n, c(n), v(n), and milliseconds of both models' passes over n tokens: median, quartiles."""
    table = pd.DataFrame({"n": costs.sizes, "c(n)": costs.draft, "v(n)": costs.verify})
    by_model = timing.quartiles(times).set_index("model")
    for model in ("target", "draft"):
        found = by_model.loc[model, ["ms", "low", "high"]].add_prefix(f"{model}_")
        table[list(found)] = found.to_numpy()
    return table


def pass_curves(times: pd.DataFrame, costs: Costs) -> Estimates:
    """Times of passes by n and the key `pass`, in two units: ms, and target passes over one token
    (there v(n), c(n), and what v = 1 and v = n would be).
    """
    ms = timing.quartiles(times).rename(columns={"model": "pass", "ms": "estimate"})
    ratios = ms.assign(**(ms[NUMBERS] / costs.target_ms))
    lines = {"v = 1": 1.0, "v = n": np.array(costs.sizes, float)}
    ideal = Estimates.exact("pass", lines, "n", costs.sizes).frame
    in_passes = pd.concat([ratios, ideal])
    units = {"ms": ms, "target passes over one token": in_passes}
    return Estimates.stacked(units, "unit")


def block_costs(
    shapes: Mapping[str, Shape], costs: Costs, counted: Mapping[str, pd.DataFrame] = {}
) -> pd.Series:
    """What a block of each shape costs in target passes.

    counted: sums (blocks, cost) of shapes whose blocks are not alike, as `stopping.totals`: the
    cost is their mean.
    """
    found = {}
    for name, shape in shapes.items():
        if name in counted:
            sums = counted[name]
            found[name] = sums["cost"].sum() / sums["blocks"].sum()
        elif shape.tree is None:
            found[name] = costs.of_dynamic(shape.depth, shape.branches, shape.budget)
        else:
            found[name] = costs.of_block(shape.tree)
    return pd.Series(found)


# ---- the best static tree ------------------------------------------------------------------------
# Sequoia's dynamic programme (arXiv:2402.12374) over size and depth. A child of rank k is accepted
# with probability a[k] wherever its parent is (Sequoia's positional assumption), so a tree's
# expected tokens per target pass are F(T) = sum over its nodes, root included, of the product of a
# along the path.


def best_tree(a: Sequence[float], budget: int, depth: int) -> tuple[Tree, float]:
    """The tree of at most `budget` drafted nodes, and `depth` levels with the largest
    F, and F; a[k]: P(the target's own token has rank k under the draft), at T = 0 the acceptance
    of child k.
    """

    @cache
    def family(rank: int, size: int, levels: int) -> tuple[float, tuple]:
        """The best value of children rank, rank + 1, … with `size` nodes among them, and these
        children, each as the tuple of its own.
        """
        if size == 0 or levels == 0 or rank == len(a):
            return 0.0, ()
        tried = []
        for first in range(1, size + 1):  # nodes that the first child takes
            below, children = family(0, first - 1, levels - 1)
            beside, siblings = family(rank + 1, size - first, levels)
            value = a[rank] * (1 + below) + beside
            these = (children, *siblings)
            tried.append((value, -first, these))
        value, _, best = max(tried)
        return value, best

    value, children = family(0, budget, depth)
    return _breadth_first(children), float(1 + value)


def _breadth_first(children: tuple) -> Tree:
    """Nested tuples of children, in rank order, as a tree."""
    nodes = [(-1, 0, 0)]  # parent, rank, depth
    queue = [(0, children)]
    for parent, below in queue:
        depth = nodes[parent][2] + 1
        for rank, own in enumerate(below):
            queue.append((len(nodes), own))
            nodes.append((parent, rank, depth))
    parents, ranks, depths = np.array(nodes, np.int64).T
    return Tree(parents, ranks, depths)


def best_tree_for_speed(a: Sequence[float], costs: Costs, budgets: Iterable[int]) -> Tree:
    """The tree with the largest predicted speed-up under measured costs: maximise S, not F."""
    tried = [best_tree(a, budget, depth) for budget in budgets for depth in DEPTHS]
    speeds = [expected / costs.of_block(tree) for tree, expected in tried]
    tree, _ = tried[fastest(speeds)]
    return tree


# ---- decoded for real ----------------------------------------------------------------------------


def drawn(frame: pd.DataFrame, key: str, over: str, under: str) -> pd.DataFrame:
    """The ratio of the sums of two columns, a column a value of `key`: row 0 the sample, then
    resamples of its prompts, those of all domains together (of one domain there are too few).
    """
    whole = frame.drop(columns="domain", errors="ignore")
    ratio = ratio_of(over, under)
    groups = whole.groupby(key, sort=False)
    asked = {name: (rows, ratio) for name, rows in groups}
    draws = stats.jointly(asked)
    return pd.DataFrame({name: draws[name][POOLED] for name in asked})


def rates(speeds: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Of `timing.decoded_speed`: tokens per target pass, and the speed-up over plain decoding, a
    column a method: row 0 the sample, then resamples of prompts and, for speeds, of repeats.
    """
    tau = drawn(timing.medians(speeds), "method", "tokens", "blocks")
    seconds = timing.drawn_seconds(speeds)[tau.columns]
    return tau, 1 / seconds.div(seconds["plain"], axis=0)


# ---- what limits speed -----------------------------------------------------------------------


def counterfactuals(costs: Costs) -> dict[str, Costs]:
    """The measured costs, and the same with one term of the model made ideal: c = 0, v = 1 (or what
    it is, where that is less), o = 0, then all three.
    """
    free = {"draft": (0.0,) * len(costs.sizes)}
    flat = {"verify": tuple(np.minimum(costs.verify, 1.0).tolist())}
    lean = {"overhead": 0.0}
    return {
        NOW: costs,
        "free draft (c = 0)": replace(costs, **free),
        "free verification (v = 1)": replace(costs, **flat),
        "lean loop (o = 0)": replace(costs, **lean),
        "all three": replace(costs, **free, **flat, **lean),
    }


def limits(taus: pd.DataFrame, costs: Costs) -> pd.DataFrame:
    """Predicted speed-up of chains with one term made ideal at a time: made ideal, same gamma (the
    one that is best as measured; low, high), own best, gamma (the one that is best then).

    taus: tokens per target pass with low and high, index gamma.
    """
    block = {}
    for name, used in counterfactuals(costs).items():
        block[name] = [used.of_block(chain(gamma)) for gamma in taus.index]
    grid = pd.DataFrame(block, taus.index).rdiv(taus["estimate"], axis=0)
    grid[RIGHT] = (taus.index + 1) / block[NOW]
    best = taus.index[fastest(grid.T)]
    now = best[0]
    same = grid.loc[now]
    table = pd.DataFrame({"same gamma": same, "own best": grid.max(), "gamma": best})
    for bound in ("low", "high"):
        share = taus.loc[now, bound] / taus.loc[now, "estimate"]
        table[bound] = (same * share).drop(RIGHT)
    return table.rename_axis("made ideal").reset_index()
