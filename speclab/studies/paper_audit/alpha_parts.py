"""What alpha is made of: the share of its variance between the levels of each factor, its
correlation with entropy over all nodes and within each rank, and what the domain explains at each
level of the variance.
"""

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from speclab import score, stats
from speclab.analysis import association, levels, published
from speclab.analysis.levels import Measured
from speclab.analysis.published import AuthorRecords
from speclab.show import figures
from speclab.show.estimates import Estimates, stack
from speclab.studies.paper_audit.author_records import whole_runs
from speclab.studies.paper_audit.estimators import shares_alone, sums_in_cells
from speclab.studies.paper_audit.side import PairRuns

FACTORS = {
    "rank": "rank",
    "prompt": "prompt_id",
    "task": "domain",
    "depth": "depth",
    "position bin": "bin",
}
IN_CELLS = {"task": "task_type", "depth": "depth", "position bin": "position_bin"}
PAPER, EVERY = "published", "all nodes"


def sources(
    pairs: Mapping[str, PairRuns], records: Mapping[str, AuthorRecords]
) -> dict[str, pd.DataFrame]:
    """Nodes of the pairs (T = 0) and of the authors' runs, with their alpha and bin."""
    found = {name: runs.greedy.nodes for name, runs in pairs.items()}
    found |= {f"authors' {run}": one.nodes for run, one in records.items()}
    for source, nodes in found.items():
        ratio, place = score.ratio(nodes), nodes["position"] // score.POSITION_BIN
        found[source] = nodes.assign(ratio=ratio, bin=place)
    return found


def shares_by_source(asked: Mapping[str, pd.DataFrame]) -> Estimates:
    """Shares of alpha's variance between the levels of FACTORS by factor and source, the paper's
    run last (from its cells); an interval where each domain has prompts enough
    (`stats.FEW_PROMPTS`). Factors of one level are left out.
    """
    parts = []
    for source, nodes in asked.items():
        cells = sums_in_cells(nodes, "ratio", FACTORS.values())
        estimator = shares_alone(cells, FACTORS.values())
        prompts = cells.groupby("domain", observed=True)["prompt_id"].nunique()
        if prompts.min() >= stats.FEW_PROMPTS:
            rows = stats.by_domain(cells, estimator).query("domain == 'pooled'")
        else:
            point = estimator(cells).to_numpy()
            rows = pd.DataFrame({"estimate": point, "low": np.nan, "high": np.nan})
        parts.append(rows.assign(factor=list(FACTORS), source=source))
    cells = pd.read_csv(published.DATA / "run_alpha_depth_task_position.csv")
    of_paper = [published_shares(cells, column) for column in IN_CELLS.values()]
    paper = pd.DataFrame({"factor": list(IN_CELLS), "estimate": of_paper})
    parts.append(paper.assign(source=PAPER))
    frame = pd.concat(parts)[["factor", "source", "estimate", "low", "high"]]
    return Estimates(frame[frame["estimate"] > 1e-9].reset_index(drop=True))


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
    0, 1, …), estimate, low, high; from fewer prompts than `stats.FEW_PROMPTS` without interval.
    """
    nodes, rows = nodes.assign(ratio=score.ratio(nodes)), []
    for rank, part in [("all", nodes), *nodes.groupby("rank")]:
        if part["prompt_id"].nunique() < stats.FEW_PROMPTS:
            point = part["ratio"].corr(part["target_entropy"], "spearman")
            rows.append((rank, point, np.nan, np.nan))
        else:
            found = association.correlation(
                part, "target_entropy", "ratio", n=stats.RESAMPLES // 4
            )
            rows.append((rank, found.estimate, found.low, found.high))
    return pd.DataFrame(rows, columns=["rank", "estimate", "low", "high"])


def by_rank(asked: Mapping[str, pd.DataFrame]) -> Estimates:
    """`rank_correlations` by source and rank."""
    return Estimates(
        stack(
            {name: rank_correlations(nodes) for name, nodes in asked.items()}, "source"
        )
    )


def means_by_rank(asked: Mapping[str, pd.DataFrame]) -> str:
    """The mean of alpha over all nodes and by rank, in words: a list by source."""
    found = []
    for source, nodes in asked.items():
        means = " and ".join(f"{mean:.3f}" for mean in score.ratio_by_rank(nodes))
        found.append(f"{source} {score.published_alpha(nodes):.3f} ({means})")
    return ", ".join(found)


def opposed_said(ranks: Estimates, pairs: Iterable[str]) -> str:
    """Is a weak number over all nodes two strong opposite ones, by the intervals of each pair?"""
    lines = []
    for name in pairs:
        rows = ranks.at(source=name).without(rank="all").frame
        opposed = (rows["low"] > 0).any() and (rows["high"] < 0).any()
        said = (
            "a weak number over all nodes is two strong opposite ones"
            if opposed
            else "no two ranks are shown to be opposite"
        )
        lines.append(f"On {name} {said}.")
    return " ".join(lines)


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


def records_said(facts: pd.DataFrame, percent: Estimates, pairs: Iterable[str]) -> str:
    """Best and second children in the authors' runs, and what rank explains there."""
    first, second = facts["rank_0"], facts["rank_1"]
    share = percent.at(factor="rank").without(source=list(pairs)).frame["estimate"]
    return (
        f"In the authors' records best children have {first.min():.2f} to {first.max():.2f}, "
        f"second ones {second.min():.2f} to {second.max():.2f}, and rank explains "
        f"{share.min():.0f} to {share.max():.0f} % of the variance."
    )


# ---- what the domain explains, by level ----------------------------------------------------------


def levels_of_pairs(
    pairs: Mapping[str, PairRuns], records: Mapping[str, AuthorRecords]
) -> Measured:
    """`levels.measure` of each pair, and as published of each of the authors' runs that holds all
    domains (their records have neither prompts' lengths nor loops): told apart by the key `pair`.
    """
    found = {}
    for name, runs in pairs.items():
        lengths = levels.characters_of_prompts(runs.profile)
        asked = levels.questions(runs.greedy, runs.sampled, lengths)
        found[name] = levels.measure(asked)
    for run, one in whole_runs(records).items():
        asked = {levels.PUBLISHED: levels.of_nodes(one.nodes)}
        found[f"authors' {run}"] = levels.measure(asked)
    return Measured.stacked(found, "pair")


def numbers_of_parts(found: Measured, pair: str) -> dict[str, float]:
    """What the domain explains of the variance of rows and between prompts, by estimator."""
    rows = found.shares.at(pair=pair, level=[levels.ROWS, levels.PROMPTS]).rows()
    of = {levels.ROWS: "of_rows", levels.PROMPTS: "between_prompts"}
    return {
        f"domain_share_{of[row.level]}_{levels.SHORT[row.estimator]}": float(
            row.estimate
        )
        for row in rows
    }
