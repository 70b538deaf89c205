"""The run that the paper reports, asked by its own node records: are the published numbers theirs,
and what do they say with the prompt as the unit?

Any run with all four domains can be asked (`author_records.whole_runs`); whether it is the paper's
is the first question.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from speclab import score
from speclab.analysis import published, significance
from speclab.analysis.levels import percent as in_percent
from speclab.analysis.published import AuthorRecords
from speclab.show.estimates import Estimates
from speclab.studies.paper_audit import alpha_parts

TOLERANCE = 1e-6  # ours are float32
LEVEL = 0.05
SHARE, CORRELATION = "share of the variance", "correlation with entropy"
ALPHA = {
    "alpha_mean": ("ratio", "mean"),
    "alpha_std": ("ratio", "std"),
    "count": ("ratio", "count"),
}
SUMMARY = {
    "n_samples": ("prompt_id", "nunique"),
    "n_nodes": ("ratio", "count"),
    "mean_alpha": ("ratio", "mean"),
    "std_alpha": ("ratio", "std"),
    "mean_entropy": ("target_entropy", "mean"),
}
# the authors' files of the run: their keys, and how their numbers come from the nodes
PUBLISHED_CELLS = {
    "run_summary_by_task": (["task_type"], SUMMARY),
    "run_alpha_by_depth_task": (["depth", "task_type"], ALPHA),
    "run_alpha_by_depth_position": (["depth", "position_bin"], ALPHA),
    "run_alpha_depth_task_position": (["depth", "task_type", "position_bin"], ALPHA),
}


# ---- is it the run? ------------------------------------------------------------------------------


def against_published(
    one: AuthorRecords, folder: Path = published.DATA
) -> pd.DataFrame:
    """The authors' aggregate files in `folder` beside the same numbers of the records, averaged as
    theirs were (NaN as accepted).

    One row a file and column: file, quantity, cells, same (cells that differ by TOLERANCE at most),
    largest (difference; missing where a cell is on one side only).
    """
    nodes = one.with_nan_as_accepted
    nodes = nodes.assign(
        ratio=score.ratio(nodes),
        task_type=nodes["domain"],
        position_bin=nodes["position"] // score.POSITION_BIN,
    )
    rows = []
    for file, (keys, numbers) in PUBLISHED_CELLS.items():
        theirs = pd.read_csv(folder / f"{file}.csv").set_index(keys)
        from_nodes = nodes.groupby(keys).agg(**numbers)
        for quantity in numbers:
            gap = theirs[quantity].sub(from_nodes[quantity]).abs()
            same = int((gap <= TOLERANCE).sum())
            rows.append((file, quantity, len(gap), same, gap.max(skipna=False)))
    return pd.DataFrame(rows, columns=["file", "quantity", "cells", "same", "largest"])


def identity_said(run: str, rows: pd.DataFrame) -> str:
    """Is it the run that the paper reports? By `against_published`."""
    cells, same = rows["cells"].sum(), rows["same"].sum()
    if same == cells:
        return (
            f"**The published numbers are those of run {run}**: all {cells} counts, means and "
            f"standard deviations follow from its records (by {rows['largest'].max():.0e} at most)."
        )
    return (
        f"**Run {run} is not the run that was published**: {same} of {cells} counts, means and "
        "standard deviations follow from its records. What is said of it below is not said of the "
        "paper."
    )


# ---- what it says, with the prompt as the unit ---------------------------------------------------


def tables(one: AuthorRecords) -> pd.DataFrame:
    """Tables I to VI: `published.comparison` of the usable rows, behind a column `table`."""
    parts = [
        published.comparison(name, one).assign(table=name) for name in published.TABLES
    ]
    both = pd.concat(parts, ignore_index=True)
    return both[["table", *published.COLUMNS]]


def levels(found: pd.DataFrame) -> Estimates:
    """Mean alpha and E[L] by domain, with what the paper printed: quantity, domain, estimate, low,
    high, published.
    """
    of_both = found["quantity"].isin(["alpha_mean", "expected_accepted_length"])
    rows = found[of_both & found["table"].isin(["I", "II"])]
    names = {ours: name for name, ours in published.AS_OURS.items()}
    columns = ["quantity", "domain", "estimate", "low", "high", "published"]
    return Estimates(rows.rename(columns=names)[columns], digits=3)


def tables_said(one: AuthorRecords, found: pd.DataFrame) -> str:
    """What the tables' intervals leave of the order of the domains and of E[L] above 1, and which
    correlation Table VI holds.
    """
    lengths = levels(found).at(quantity="expected_accepted_length")
    pairs = significance.differences(one.nodes, score.published_alpha)
    apart = pairs[pairs["p_holm"] < LEVEL]
    names = ", ".join(f"{row.first} - {row.second}" for row in apart.itertuples())
    over = lengths.sentence(
        "is above 1 in", "is below 1 in", "is not told from 1 in", than=1
    )
    return (
        f"**Order**: of {len(pairs)} differences between domains, {len(apart)} are told apart "
        f"(prompts permuted, Holm, {LEVEL:g}){': ' if names else ''}{names}. **E[L]** {over}. "
        f"{_printed_correlation(found)}"
    )


def _printed_correlation(found: pd.DataFrame) -> str:
    rows = found[found["table"] == "VI"]
    ours = rows.pivot(index="domain", columns="quantity", values="ours_as_published")
    printed = rows.dropna(subset="published").set_index("domain")["published"]
    gap = ours.sub(printed, axis=0).abs().max()
    return (
        "**Table VI** is called Spearman's: its numbers are within "
        f"{gap['spearman_entropy_alpha']:.3f} of Spearman's correlations of these records, and "
        f"within {gap['pearson_entropy_alpha']:.3f} of Pearson's."
    )


def parts(one: AuthorRecords) -> Estimates:
    """What alpha is made of in the usable rows: quantity ('share of the variance',
    'correlation with entropy'), of (the factor; all nodes or one rank), estimate, low, high.
    """
    nodes_of = alpha_parts.sources({}, {"run": one})
    shares = alpha_parts.shares_by_source(nodes_of).without(source=alpha_parts.PAPER)
    ranks = alpha_parts.by_rank(nodes_of).frame
    rank_names = np.where(
        ranks["rank"] == "all", alpha_parts.EVERY, "rank " + ranks["rank"].astype(str)
    )
    both = {
        SHARE: shares.frame.rename(columns={"factor": "of"}),
        CORRELATION: ranks.assign(of=rank_names),
    }
    found = Estimates.stacked(both, "quantity")
    columns = ["quantity", "of", "estimate", "low", "high"]
    return Estimates(found.frame[columns])


def parts_said(found: Estimates) -> str:
    """`parts` in two lines."""
    percent = in_percent(found.at(quantity=SHARE), digits=2)
    return (
        f"**Shares of the variance of min(1, p/q)**, in %: {percent.listed('of')}.\n\n"
        "**Spearman's correlation with target entropy**: "
        f"{found.at(quantity=CORRELATION).listed('of')}."
    )
