"""Point estimates of acceptance from recorded frames.

Every estimator is a function of sums over rows and is defined once, as an `Estimator`. Call it on a
frame for the number, or pass it to `speclab.stats` for an interval that resamples prompts. This
module uses no model, no figure and no random numbers. The estimators are defined in GLOSSARY.md;
the published ones are Eq. 1-3 of arXiv:2604.14682v1.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from speclab.plain import DOMAINS, Array

ALL, POOLED = "all", "pooled"


def require(frame: pd.DataFrame, columns: Sequence[str], name: str) -> pd.DataFrame:
    """Return `frame` if it has rows and all `columns`. Otherwise raise a ValueError that gives
    `name` and what is missing.
    """
    missing = [column for column in columns if column not in frame]
    if missing:
        raise ValueError(
            f"{name} has no column {missing}: this estimate needs records with these columns"
        )
    if frame.empty:
        raise ValueError(
            f"{name} is empty: nothing to average; record at least one prompt, or widen the filter"
        )
    return frame


def domains_in(frame: pd.DataFrame) -> tuple[str, ...]:
    """Domains of `frame` in order of appearance. If all of them are domains of the kit's own
    prompts, in the order of DOMAINS.
    """
    present = tuple(require(frame, ["domain"], "frame")["domain"].unique())
    if set(present) <= set(DOMAINS):
        return tuple(domain for domain in DOMAINS if domain in present)
    return present


def ratio(nodes: pd.DataFrame) -> Array:
    """min(1, p/q) of each node, float64 (rows,). Raises ValueError if a value is not finite."""
    target, draft = column_of(nodes, "target_prob"), column_of(nodes, "draft_prob")
    bad = (draft <= 0) | (target < 0)
    if bad.any():
        raise ValueError(
            f"target_prob / draft_prob is undefined in {bad.sum()} of {len(nodes)} nodes, "
            f"first in row {bad.argmax()}: drop these nodes or record them again"
        )
    ratios: Array = np.minimum(target / draft, 1.0)
    return ratios


@dataclass(frozen=True)
class Estimator:
    """A number, or a family of numbers, that depends on a frame only through sums over its rows.

    `columns(frame)` returns the values to be summed, float64 (rows, k). `value(totals)` maps sums
    (..., k) to numbers (..., m). Calling the estimator on a frame returns a float if it is
    `scalar`, else a Series indexed from 1 (by depth or by k). A member whose denominator is 0 is
    NaN and is never averaged.
    """

    name: str
    columns: Callable[[pd.DataFrame], Array]
    value: Callable[[Array], Array]
    scalar: bool = True

    def __call__(self, frame: pd.DataFrame) -> float | pd.Series:
        values = self.value(self.columns(frame).sum(axis=0))
        if self.scalar:
            return float(values[0])
        return pd.Series(values, range(1, len(values) + 1), name=self.name)

    def number(self, totals: Array) -> Array:
        """The number from totals (..., k); of a family its first."""
        return self.value(totals)[..., 0]


def divide(numerator: Array, denominator: Array) -> Array:
    """Elementwise quotient; NaN (undefined) where the denominator is 0."""
    shape = np.broadcast_shapes(np.shape(numerator), np.shape(denominator))
    quotients: Array = np.full(shape, np.nan)
    defined = np.not_equal(denominator, 0)
    return np.divide(numerator, denominator, out=quotients, where=defined)


def quotient(totals: Array) -> Array:
    """Means from totals (..., 2m): the first m entries (sums) divided by the last m (counts)."""
    half = totals.shape[-1] // 2
    return divide(totals[..., :half], totals[..., half:])


def _means(
    name: str,
    values: Callable[[pd.DataFrame], Array],
    member: Callable[[pd.DataFrame], Array] | None = None,
    value: Callable[[Array], Array] = quotient,
    scalar: bool = False,
) -> Estimator:
    """An estimator of means of `values` (rows,) or (rows, m), over the rows for which `member`
    (rows, m; default: all) is true.
    """

    def columns(frame: pd.DataFrame) -> Array:
        numbers = values(frame).reshape(len(frame), -1)
        members = member(frame) if member else np.ones(numbers.shape, bool)
        return np.concatenate([np.where(members, numbers, 0.0), members], axis=1)

    return Estimator(name, columns, value, scalar)


def mean_of(column: str, name: str | None = None) -> Estimator:
    """The mean of a column; the mean of a boolean column is a share. If `ratio` is not stored, it
    is computed.
    """
    return _means(name or f"mean_{column}", lambda rows: column_of(rows, column), scalar=True)


def ratio_of(over: str, under: str, name: str | None = None) -> Estimator:
    """The sum of one column divided by the sum of another."""
    return Estimator(name or over, lambda rows: rows[[over, under]].to_numpy(float), quotient)


def column_of(frame: pd.DataFrame, name: str) -> Array:
    """A column as finite float64 (rows,). If `ratio` is not stored, it is computed. Raises
    ValueError for values that are not finite.
    """
    if name == "ratio" and name not in frame:
        return ratio(frame)
    values: Array = require(frame, [name], "frame")[name].to_numpy(np.float64)
    bad = np.count_nonzero(~np.isfinite(values))
    if bad:
        raise ValueError(
            f"column {name!r} has {bad} values that are not finite: drop these rows or record them "
            "again"
        )
    return values


def with_hits(trace: pd.DataFrame) -> pd.DataFrame:
    """The trace with the column `hit`: true if the text's token is the draft's best token. Its mean
    is hit[1].
    """
    return trace.assign(hit=trace["draft_rank"] == 0)


def _at_depth(nodes: pd.DataFrame) -> Array:
    """Membership (rows, m): whether the row is at depth 1, 2, ..., m."""
    depth = column_of(nodes, "depth")
    members: Array = depth[:, None] == np.arange(1, depth.max() + 1)
    return members


def _on_best_path(nodes: pd.DataFrame) -> Array:
    return column_of(nodes, "best_path")[:, None] > 0


def _chain(totals: Array) -> Array:
    return np.cumprod(quotient(totals), axis=-1)


def _chain_length(totals: Array) -> Array:
    length: Array = _chain(totals).sum(-1, keepdims=True)
    return length


published_alpha = _means("published_alpha", ratio, scalar=True)
ratio_by_depth = _means("ratio_by_depth", ratio, _at_depth)
published_chain = _means("published_chain", ratio, _at_depth, _chain)
published_length = _means("published_length", ratio, _at_depth, _chain_length, scalar=True)
best_path_ratio = _means("best_path_ratio", ratio, _on_best_path, scalar=True)
alpha = mean_of("overlap", "alpha")


def reach(nodes: pd.DataFrame, rule: str = "greedy") -> Array:
    """Probability that each node and all its ancestors are accepted, float64 (rows,).

    rule "greedy" (T = 0): 1 if the node and each ancestor are the target's best token, else 0. rule
    "point-mass" (T > 0, children are the draft's best tokens): the product of the target's
    probabilities along the path, which is exact for this rule. Raises ValueError if a node's parent
    is missing.
    """
    column = {"greedy": "target_rank", "point-mass": "target_prob"}[rule]
    require(nodes, ["prompt_id", "position", "node", "parent", "depth"], "nodes")
    values = column_of(nodes, column)
    accepted = values.copy()
    if rule == "greedy":
        accepted = np.equal(values, 0).astype(float)
    # the row of each node's parent; -1 at depth 1
    tree = nodes.groupby(["prompt_id", "position"], sort=False, observed=True).ngroup()
    keys = pd.MultiIndex.from_arrays([tree, nodes["node"]])
    parents = keys.get_indexer(pd.MultiIndex.from_arrays([tree, nodes["parent"]]))
    depth = nodes["depth"].to_numpy()
    orphan = (parents < 0) & (depth > 1)
    if orphan.any():
        raise ValueError(f"the parents of {orphan.sum()} nodes are missing: keep whole trees")
    # level by level: a node is reached if its parent is
    for level in range(2, depth.max() + 1):
        members = np.flatnonzero(depth == level)
        accepted[members] *= accepted[parents[members]]
    return accepted


def block_estimators() -> dict[str, Estimator]:
    """survival_by_depth, accept_by_depth, mean_accepted, block_efficiency and draft_utilisation of
    blocks: of `replay.prompt_sums`, or of `replay.chain_sums`, which has no survival columns and so
    gives the last three only.
    """

    def by_depth(name: str, is_step: bool) -> Estimator:
        """How many blocks reach each depth, of all blocks, or of those that reach the depth
        before.
        """

        def columns(sums: pd.DataFrame) -> Array:
            reached = [column for column in sums if str(column).startswith("survival_")]
            under = ["blocks", *reached[:-1]] if is_step else ["blocks"] * len(reached)
            numbers: Array = sums[reached + under].to_numpy(float)
            return numbers

        return Estimator(name, columns, quotient, scalar=False)

    return {
        "survival_by_depth": by_depth("survival_by_depth", is_step=False),
        "accept_by_depth": by_depth("accept_by_depth", is_step=True),
        "mean_accepted": ratio_of("accepted", "blocks", "mean_accepted"),
        "block_efficiency": ratio_of("emitted", "blocks", "block_efficiency"),
        "draft_utilisation": ratio_of("accepted", "drafted", "draft_utilisation"),
    }


def across(value: Callable[[Array], Array], totals: Array) -> Array:
    """Values (..., D + 2, m) from totals (..., D, k): one per domain, then their mean, then the
    value pooled over all rows.
    """
    each = value(totals)
    mean = each.mean(axis=-2, keepdims=True)
    pooled = value(totals.sum(axis=-2, keepdims=True))
    return np.concatenate([each, mean, pooled], axis=-2)


def change(family: Estimator) -> Estimator:
    """A family's last member minus its first, such as the deepest level minus depth 1. Both come
    from the same resamples, so the difference is paired.
    """

    def value(totals: Array) -> Array:
        members = family.value(totals)
        return members[..., -1:] - members[..., :1]

    return Estimator(f"change of {family.name}", family.columns, value)
