"""What alpha is made of: the share of its variance between the levels of each factor, and its
correlation with entropy over all nodes and within each rank.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from speclab import figures, score, stats
from speclab.analysis import association, published
from speclab.analysis.published import AuthorRecords
from speclab.estimates import Estimates, stack
from speclab.studies.paper_audit.estimators import shares_alone

FACTORS = {
    "rank": "rank",
    "prompt": "prompt_id",
    "task": "domain",
    "depth": "depth",
    "position bin": "bin",
}
IN_CELLS = {"task": "task_type", "depth": "depth", "position bin": "position_bin"}
HERE, PAPER, EVERY = "this pair", "the paper's run", "all nodes"


def sources(greedy, records: Mapping[str, AuthorRecords]) -> dict[str, pd.DataFrame]:
    """Nodes of this pair and of the authors' runs, with their alpha and bin."""
    found = {HERE: greedy.nodes} | {
        f"authors' {run}": one.nodes for run, one in records.items()
    }
    for source, nodes in found.items():
        alpha, place = score.alpha(nodes), nodes["position"] // score.POSITION_BIN
        found[source] = nodes.assign(alpha=alpha, bin=place)
    return found


def shares_by_source(asked: Mapping[str, pd.DataFrame]) -> Estimates:
    """Shares of alpha's variance between the levels of FACTORS by factor and source, the paper's
    run last (from its cells); an interval for this pair alone. Factors of one level are left out.
    """
    parts = []
    for source, nodes in asked.items():
        estimator = shares_alone(nodes, "alpha", FACTORS.values())
        rows = pd.DataFrame(
            {"estimate": estimator(nodes).to_numpy(), "low": np.nan, "high": np.nan}
        )
        if source == HERE:
            rows = stats.by_domain(nodes, estimator).query("domain == 'pooled'")
        parts.append(rows.assign(factor=list(FACTORS), source=source))
    cells = pd.read_csv(published.DATA / "run_alpha_depth_task_position.csv")
    paper = {
        factor: published_shares(cells, column) for factor, column in IN_CELLS.items()
    }
    paper = pd.Series(paper, name="estimate").rename_axis("factor").reset_index()
    parts.append(paper.assign(source=PAPER, low=np.nan, high=np.nan))
    frame = pd.concat(parts)[["factor", "source", "estimate", "low", "high"]]
    return Estimates(frame[frame["estimate"] > 1e-9].reset_index(drop=True))


def times_100(found: Estimates) -> Estimates:
    """The same times 100."""
    scaled = 100 * found.frame[["estimate", "low", "high"]]
    return Estimates(found.frame.assign(**scaled))


def published_shares(cells: pd.DataFrame, factor: str) -> float:
    """Share of alpha's variance between the levels of a factor, from the published run's cells:
    count, alpha_mean, alpha_std (n - 1).
    """
    n, mean, sd = (cells[name] for name in ("count", "alpha_mean", "alpha_std"))
    grand = np.average(mean, weights=n)
    levels = cells.assign(total=n * mean).groupby(factor)[["total", "count"]].sum()
    between = (levels["count"] * (levels["total"] / levels["count"] - grand) ** 2).sum()
    return float(between / ((n - 1) * sd**2 + n * (mean - grand) ** 2).sum())


def rank_correlations(nodes: pd.DataFrame) -> pd.DataFrame:
    """Spearman of min(1, p/q) and target entropy over all nodes and within each rank: rank ('all',
    0, 1, …), estimate, low, high; from fewer than 5 prompts a point without interval.
    """
    nodes, rows = nodes.assign(alpha=score.alpha(nodes)), []
    for rank, part in [("all", nodes), *nodes.groupby("rank")]:
        if part["prompt_id"].nunique() < stats.MIN_PROMPTS:
            point = part["alpha"].corr(part["target_entropy"], "spearman")
            rows.append((rank, point, np.nan, np.nan))
        else:
            found = association.correlation(part, "target_entropy", "alpha")
            rows.append((rank, found.estimate, found.low, found.high))
    return pd.DataFrame(rows, columns=["rank", "estimate", "low", "high"])


def by_rank(asked: Mapping[str, pd.DataFrame]) -> Estimates:
    """`rank_correlations` by source and rank."""
    return Estimates(
        stack(
            {name: rank_correlations(nodes) for name, nodes in asked.items()}, "source"
        )
    )


def opposed_said(ranks: Estimates) -> str:
    """Is a weak number over all nodes two strong opposite ones, by the intervals of this pair?"""
    rows = ranks.at(source=HERE).without(rank="all").frame
    if (rows["low"] > 0).any() and (rows["high"] < 0).any():
        return "On this pair a weak number over all nodes is two strong opposite ones."
    return "On this pair no two ranks are shown to be opposite."


def shares_picture(percent: Estimates) -> figures.Figure:
    """Shares of variance in percent by factor and source, on a logarithmic scale."""
    figure = figures.facets(
        percent.frame,
        "factor",
        hue="source",
        kind="bars",
        y="share of the variance of min(1, p/q), % (logarithmic)",
        x_label="",
    )
    ticks = [0.01, 0.1, 1, 10, 100]
    figure.axes[0].set(
        xscale="log", xlim=(0.005, 100), xticks=ticks, xticklabels=map(str, ticks)
    )
    return figure


def records_said(facts: pd.DataFrame, percent: Estimates) -> str:
    """Best and second children in the authors' runs, and what rank explains there."""
    first, second = facts["rank_0"], facts["rank_1"]
    share = percent.at(factor="rank").without(source=HERE).frame["estimate"]
    return (
        f"In the authors' records best children have {first.min():.2f} to {first.max():.2f}, "
        f"second ones {second.min():.2f} to {second.max():.2f}, and rank explains "
        f"{share.min():.0f} to {share.max():.0f} % of the variance."
    )
