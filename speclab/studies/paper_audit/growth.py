"""What becomes of a tree that grows: the paper's E[L] beside what the greedy walk accepts.

The authors' records do not hold the target's argmax; their probabilities and entropies bound it.
"""

import numpy as np
import pandas as pd

from speclab import score, stats
from speclab.show.estimates import Estimates, stack

TREE = ["prompt_id", "position"]
LENGTH, ACCEPTED = "E[L]", "accepted"


def argmax_bounds(nodes: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """`nodes` twice with a `target_rank` of 0 or 1: nodes that are the target's argmax for certain,
    and nodes that can be.

    The records do not hold the target's argmax. A node is it for certain if its p exceeds its
    siblings' and the mass that no sibling has; it cannot be it if a sibling's p is larger, or if p
    < exp(-entropy), which no largest probability is (half-precision: 1 % is allowed).
    """
    p = nodes["target_prob"].astype(np.float64)
    siblings = p.groupby([nodes[name] for name in (*TREE, "parent")])
    largest = p == siblings.transform("max")
    certain = largest & (p > 1 - siblings.transform("sum"))
    possible = largest & (
        p >= 0.99 * np.exp(-nodes["target_entropy"].astype(np.float64))
    )
    low = nodes.assign(target_rank=np.where(certain, 0, 1))
    return low, nodes.assign(target_rank=np.where(possible | certain, 0, 1))


def prune(nodes: pd.DataFrame, branches: int) -> pd.DataFrame:
    """The same trees with at most `branches` (1 or more) children a node: rows whose own and
    ancestors' ranks are below it. Smaller trees are nested in larger ones.
    """
    kept = score.reach(nodes.assign(target_rank=nodes["rank"] // branches)) == 1
    return nodes[kept].reset_index(drop=True)


GROWN = ["branches", "nodes", "published_length", "accepted_low", "accepted_high"]


def growing_trees(nodes: pd.DataFrame) -> pd.DataFrame:
    """What becomes of whole trees cut to 1, 2, … children a node: GROWN (nodes: a tree).

    Where `nodes` has the target's own ranks, low and high are the same number. Nested trees: the
    accepted tokens of the greedy walk cannot fall from row to row.
    """
    bounds = (nodes, nodes) if "target_rank" in nodes else argmax_bounds(nodes)
    walked, trees, rows = (
        score.tree_estimators()["mean_accepted"],
        nodes.groupby(TREE).ngroups,
        [],
    )
    for branches in range(1, int(nodes["rank"].max()) + 2):
        low, high = (prune(bound, branches) for bound in bounds)
        size, length = len(low) / trees, score.published_length(low)
        rows.append((branches, size, length, walked(low), walked(high)))
    return pd.DataFrame(rows, columns=GROWN)


def _best_tokens(trace: pd.DataFrame) -> np.ndarray:
    """min(1, p/q) summed over the draft's k = 1, 2, … best tokens, then the ks: (rows, 2K)."""
    score.require(trace, ["top_draft_p", "top_draft_q"], "trace")
    p, q = (
        np.stack(trace[name]).astype(np.float64)
        for name in ("top_draft_p", "top_draft_q")
    )
    alpha = np.cumsum(np.minimum(1.0, score.divide(p, q)), axis=1)
    ks = np.ones_like(alpha) * np.arange(1, alpha.shape[1] + 1)
    return np.concatenate([alpha, ks], axis=1)


# of trees of depth 1 with the draft's k best tokens, by k: the paper's E[L], and what is accepted
# at T = 0, which cannot fall
ROOT_TREES = {
    LENGTH: score.Estimator(
        "published_length", _best_tokens, score.quotient, scalar=False
    ),
    ACCEPTED: score.hit,
}


def growing_roots(trace: pd.DataFrame) -> pd.DataFrame:
    """ROOT_TREES of a run, mean of domains: name, branches, estimate, low, high."""
    parts = {}
    for name, family in ROOT_TREES.items():
        rows = stats.by_domain(trace, family).query("domain == 'all'")
        parts[name] = rows.assign(branches=range(1, len(rows) + 1))
    return stack(parts, "name")[["name", "branches", "estimate", "low", "high"]]


def growth(grown: pd.DataFrame, roots: pd.DataFrame) -> Estimates:
    """`growing_trees` of several sources and `growing_roots` of pairs, by source, quantity and
    branches.
    """
    accepted = grown.assign(
        quantity=ACCEPTED,
        estimate=grown["accepted_low"],
        low=grown["accepted_low"],
        high=grown["accepted_high"],
    )
    length = grown.assign(quantity=LENGTH, estimate=grown["published_length"])
    ours = roots.rename(columns={"name": "quantity"}).assign(
        source=roots["pair"] + ", depth 1"
    )
    columns = ["source", "quantity", "branches", "estimate", "low", "high"]
    both = pd.concat([accepted, length, ours], ignore_index=True)
    return Estimates(both[columns])


def falls(grown: Estimates) -> tuple[int, int]:
    """In how many steps E[L] falls while trees grow, and the number of steps."""
    steps = grown.at(quantity=LENGTH).steps("branches")
    return int((steps < 0).sum()), len(steps)


def growth_said(grown: Estimates) -> str:
    """One line a source: E[L] and accepted tokens, from the smallest tree to the largest."""
    lines = []
    for source, rows in grown.groups("source"):
        parts = []
        for quantity, values in rows.groups("quantity"):
            first, last = values.frame.iloc[0], values.frame.iloc[-1]
            parts.append(
                f"{quantity} {first['estimate']:.2f} to {last['estimate']:.2f}"
            )
        count, steps = falls(rows)
        lines.append(
            f"* {source}: {', '.join(parts)}; E[L] falls in {count} of {steps} steps."
        )
    return "\n".join(lines)
