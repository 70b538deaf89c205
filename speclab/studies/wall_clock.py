"""Notebook 10: the cost of a block in measured times, the measured and the predicted speed of
decoding, and what limits it.

Costs are in units of a target pass over one token; the times come from `models.timing`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd

from speclab import stats
from speclab.analysis.choose import fastest
from speclab.cost import Costs, loop_in_words
from speclab.estimates import Estimates, counted, named, starting
from speclab.models import timing
from speclab.score import POOLED, ratio_of
from speclab.shapes import Shape, parse_shape
from speclab.stats import ABOVE, BELOW, NUMBERS, cell, verdict
from speclab.tree import Tree, chain

IDEAL = {  # looks of the two ideal curves
    "v = 1": {"marker": "", "color": "black", "linestyle": "-", "linewidth": 0.8},
    "v = n": {"marker": "", "color": "black", "linestyle": ":", "linewidth": 0.8},
}
NOW = "as measured"
ALL_THREE = "all three"
RIGHT = "draft always right"
DEPTHS = (1, 2, 3, 4, 5, 6, 8)  # of the trees that are tried for speed
COPYING = {  # what is compared where copies are added, as the subject of a sentence
    "tokens per target pass": "Tokens per target pass are",
    "outside loops": "Outside loops, tokens per target pass are",
    "speed-up, predicted": "The predicted speed-up is",
}
TERMS = {  # of the cost of a block: what makes it ideal, and its name in a sentence
    "free draft (c = 0)": "drafting (c)",
    "free verification (v = 1)": "verification (v)",
    "lean loop (o = 0)": "the loop (o)",
}


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
    shapes: Mapping[str, Shape], costs: Costs, sums_of: Mapping[str, pd.DataFrame] = {}
) -> pd.Series:
    """What a block of each shape costs in target passes.

    sums_of: sums (blocks, cost) of shapes whose blocks are not alike, as `stopping.totals`: the
    cost is their mean.
    """
    found = {}
    for name, shape in shapes.items():
        if name in sums_of:
            sums = sums_of[name]
            found[name] = sums["cost"].sum() / sums["blocks"].sum()
        elif shape.tree is None:
            found[name] = costs.of_dynamic(shape.depth, shape.branches, shape.budget)
        else:
            found[name] = costs.of_block(shape.tree)
    return pd.Series(found)


# ---- the best static tree ------------------------------------------------------------------------
# Sequoia's dynamic programme (arXiv:2402.12374) over size and depth. A child of rank k is accepted
# with probability a[k] wherever its parent is accepted (Sequoia's positional assumption), so a
# tree's expected tokens per target pass are F(T) = sum over its nodes, root included, of the
# product of a along the path.


def best_tree(a: Sequence[float], budget: int, depth: int) -> tuple[Tree, float]:
    """The tree of at most `budget` drafted nodes and `depth` levels with the largest F, and F;
    a[k]: P(the target's own token has rank k under the draft), at T = 0 the acceptance of child k.
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
    """The ratio of the sums of two columns, one column per value of `key`: row 0 the sample, then
    resamples of its prompts, all domains together (one domain has too few).
    """
    whole = frame.drop(columns="domain", errors="ignore")
    ratio = ratio_of(over, under)
    groups = whole.groupby(key, sort=False)
    asked = {name: (rows, ratio) for name, rows in groups}
    draws = stats.jointly(asked)
    return pd.DataFrame({name: draws[name][POOLED] for name in asked})


def rates(speeds: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tokens per target pass, and the speed-up over plain decoding, of `timing.decoded_speed`, one
    column per method: row 0 the sample, then resamples of prompts and, for speeds, of repeats.
    """
    tau = drawn(timing.medians(speeds), "method", "tokens", "blocks")
    seconds = timing.drawn_seconds(speeds)[tau.columns]
    return tau, 1 / seconds.div(seconds["plain"], axis=0)


# ---- what limits speed -----------------------------------------------------------------------


def counterfactuals(costs: Costs) -> dict[str, Costs]:
    """The measured costs, and the same with one term made ideal: c = 0, v = 1 (or the measured v,
    where it is less), o = 0, then all three.
    """
    free = {"draft": (0.0,) * len(costs.sizes)}
    flat = {"verify": tuple(np.minimum(costs.verify, 1.0).tolist())}
    lean = {"overhead": 0.0}
    terms = zip(TERMS, (free, flat, lean), strict=True)
    ideal = {name: replace(costs, **term) for name, term in terms}
    return {NOW: costs} | ideal | {ALL_THREE: replace(costs, **free, **flat, **lean)}


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


def shown_limits(table: pd.DataFrame) -> pd.DataFrame:
    """`limits` as cells of the page."""
    rows = table[["same gamma", "low", "high"]].itertuples(index=False, name=None)
    columns = {
        "made ideal": table["made ideal"],
        "speed-up at the same gamma": [cell(*row, 2, "x") for row in rows],
        "speed-up at the best gamma": table["own best"].map("{:.2f}x".format),
        "best gamma": table["gamma"],
    }
    return pd.DataFrame(columns)


def limit_in_words(table: pd.DataFrame) -> str:
    """Whether acceptance or the cost of a block limits speed most, and which of the three costs, by
    `limits`, as a sentence.
    """
    same = table.set_index("made ideal")["same gamma"]
    term = TERMS[same[list(TERMS)].idxmax()]
    if same[RIGHT] > same[ALL_THREE]:
        return f"Acceptance limits speed most, then {term}."
    return f"Costs limit speed more than acceptance, above all {term}."


# ---- in words ------------------------------------------------------------------------------------


def costs_in_words(costs: Costs, context: int) -> str:
    """The measured costs, as sentences."""
    return (
        f"With {context} tokens in the cache, a target pass over one token takes "
        f"{costs.target_ms:.1f} ms. A draft pass takes **c = {costs.c():.3f}** of it. Verifying a "
        f"chain of 4 takes **v(5) = {costs.v(5):.2f}**. {loop_in_words(costs)}"
    )


def copying_name(gamma: int, setting: str) -> str:
    """What the shape of a `combined.setting` is called."""
    if not gamma:
        return "lookup"
    return f"chain of {gamma} + lookup" if parse_shape(setting).lookup else f"chain of {gamma}"


def copying_in_words(settings: Mapping[int, str]) -> str:
    """How many matching tokens a copy needs, by the fitted setting for each gamma, as sentences."""
    said = []
    for gamma, setting in settings.items():
        name, least = starting(copying_name(gamma, setting)), parse_shape(setting).lookup
        needs = (
            f"copies after {counted(least, 'matching token')} or more" if least else "never copies"
        )
        said.append(f"{name} {needs}.")
    return " ".join(said)


def compared_in_words(numbers: Estimates, what: str) -> str:
    """With which methods decoding is significantly faster and slower than something, whose number
    is 1, as a sentence.
    """
    rows = numbers.frame
    sides = verdict(rows["low"], rows["high"], 1)
    if (sides == ABOVE).all():
        return f"Every method is significantly faster than {what}."
    faster, slower = (named(rows["method"][sides == side].to_list()) for side in (ABOVE, BELOW))
    return (
        f"Methods that are significantly faster than {what}: {faster}. Methods that are "
        f"significantly slower: {slower}."
    )


def speed_in_words(number: Estimates, there: Estimates | None, place: str, prompts: int) -> str:
    """The fastest method's speed-up on the timed prompts and on other prompts, as an answer's first
    sentences; there: of all methods that were timed on these, as `place` names them (None: no other
    prompts).
    """
    method = number.row.method
    said = (
        f"On {prompts} prompts '{method}' decodes {number.in_units('')} times as fast as plain "
        "decoding."
    )
    if there is None:
        return said
    best = there.highest("set").row
    if best.method == method:
        return f"{said} {starting(place)} it reaches {there.at(method=method)}."
    reached = f"{best.estimate:.2f}x against {there.at(method=method).value:.2f}x"
    return f"{said} {starting(place)} '{best.method}' is faster ({reached})."


def unreliable(most: Estimates) -> str:
    """The answer without a verdict on speed; most: of the method with the most tokens per pass."""
    return (
        "Timing was unreliable, so there is no verdict on speed. "
        f"{starting(most.row.method)} emits the most tokens per target pass ({most})."
    )
