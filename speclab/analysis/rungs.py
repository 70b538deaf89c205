"""The ladder of acceptance estimators of a run (GLOSSARY.md), and the published tables' cells."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from speclab import score, stats
from speclab.score import (
    ALL,
    POOLED,
    POSITION_BIN,
    Estimator,
    alpha,
    column_of,
    domains_in,
)
from speclab.stats import RESAMPLES


def _moments(nodes: pd.DataFrame) -> np.ndarray:
    a = alpha(nodes)
    return np.stack([np.ones_like(a), a, a * a], axis=1)


def _sample_sd(totals: np.ndarray) -> np.ndarray:
    n, total, squares = np.moveaxis(totals, -1, 0)[..., None]
    return np.sqrt(
        np.maximum(score.divide(squares - score.divide(total * total, n), n - 1), 0.0)
    )


# sample sd (n - 1): the authors' files use it
alpha_sd = Estimator("alpha_sd", _moments, _sample_sd)


def ladder_estimators(run, rule: str = "greedy") -> list[tuple[str, Estimator]]:
    """(frame name, estimator) of every rung that `run` (with .nodes and .trace; either may be None)
    can answer.
    """
    nodes, trace = [], []
    if run.nodes is not None:
        nodes = [score.published_alpha, score.published_length, score.best_path_alpha]
        nodes.append(score.alpha_by_rank)
        if rule == "point-mass" or "target_rank" in run.nodes:
            nodes += score.tree_estimators(rule).values()
    if run.trace is not None:
        trace = [score.overlap_alpha, score.top_mass, score.hit]
    return [("nodes", one) for one in nodes] + [("trace", one) for one in trace]


def ladder(run, rule: str = "greedy") -> pd.DataFrame:
    """The ladder of acceptance estimators of a run: rows = estimators, columns = domains, `all`,
    `pooled`.
    """
    return pd.concat(
        [
            score.point_estimates(getattr(run, name), estimator)
            for name, estimator in ladder_estimators(run, rule)
        ]
    )


def cells(
    nodes: pd.DataFrame, by: Sequence[str], bin_size: int = POSITION_BIN
) -> pd.DataFrame:
    """Nodes, mean and sample sd (n - 1) of alpha, and mean target entropy (nats) in each cell of
    `by`.

    `by` names columns of `nodes`, or `bin` = position // bin_size (Tables IV, V and the heat maps).
    One row a cell, sorted.
    """
    frame = nodes[[column for column in by if column != "bin"]].assign(
        alpha=alpha(nodes), entropy=column_of(nodes, "target_entropy")
    )
    if "bin" in by:
        frame["bin"] = nodes["position"] // bin_size
    if "domain" in by:
        frame["domain"] = pd.Categorical(
            frame["domain"], domains_in(nodes), ordered=True
        )
    result = frame.groupby(list(by), observed=True).agg(
        nodes=("alpha", "size"),
        alpha_mean=("alpha", "mean"),
        alpha_sd=("alpha", "std"),
        target_entropy_mean=("entropy", "mean"),
    )
    return result.reset_index().astype({"domain": str} if "domain" in by else {})


def domain_table(nodes: pd.DataFrame) -> pd.DataFrame:
    """Table I: per domain prompts, nodes, mean and sd of alpha, mean target entropy; then `all` (of
    the means: the mean of domains, as published; else pooled) and `pooled` (over rows).
    """
    both = pd.concat([nodes, nodes.assign(domain=POOLED)])
    table = cells(both, ["domain"]).set_index("domain")
    table.insert(
        0, "prompts", both.groupby("domain", observed=True)["prompt_id"].nunique()
    )
    each = table.drop(index=POOLED)
    table.loc[ALL] = each.mean()
    table.loc[ALL, ["prompts", "nodes", "alpha_sd"]] = table.loc[
        POOLED, ["prompts", "nodes", "alpha_sd"]
    ]
    return table.loc[[*each.index, ALL, POOLED]].astype({"prompts": int, "nodes": int})


def ladder_intervals(
    run, rule: str = "greedy", n: int = RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """`ladder` with intervals, in the long form of `by_domain`."""
    parts = [
        stats.by_domain(getattr(run, name), estimator, n, seed)
        for name, estimator in ladder_estimators(run, rule)
    ]
    return pd.concat(parts, ignore_index=True)


def change(family: Estimator) -> Estimator:
    """A family's last member less its first, such as from depth 1 to the deepest level: both are of
    the same resamples, so the difference is paired.
    """

    def value(totals: np.ndarray) -> np.ndarray:
        members = family.value(totals)
        return members[..., -1:] - members[..., :1]

    return Estimator(f"change of {family.name}", family.columns, value)
