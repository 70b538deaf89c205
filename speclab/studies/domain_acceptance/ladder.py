"""What 'acceptance' can mean on one pair: the ladder of estimators, the order of the domains under
each of them, which domains differ, and what breaks even.
"""

from itertools import pairwise

import numpy as np
import pandas as pd

from speclab import score
from speclab.analysis import significance
from speclab.analysis.rungs import ladder_intervals
from speclab.show import figures
from speclab.show.estimates import Estimates, stack

SHARES = (
    "published_alpha, T = 0",
    "best_path_ratio, T = 0",
    "hit[1], T = 0",
    "hit[2], T = 0",
    "published_alpha, T = 1",
    "alpha, T = 1",
    "top_mass[1], T = 1",
    "top_mass[2], T = 1",
)
LENGTHS = (
    "published_length, T = 0",
    "block_efficiency, T = 0",
    "block_efficiency, T = 1",
)
OF_NO_LOSSLESS = ("published_alpha", "best_path_ratio", "published_length")
APART, NOT_APART = "told apart", "not told apart"


# ---- the published tables ------------------------------------------------------------------------


def node_counts(table: pd.DataFrame, trace: pd.DataFrame) -> pd.DataFrame:
    """By domain: nodes in the paper and here (`table`: Table I of `published.comparison`), prompts
    and positions here.
    """
    nodes = table[table["quantity"] == "nodes"].set_index("domain")
    nodes = nodes[["published", "ours_as_published"]].astype(int)
    texts = trace.groupby("domain").agg(
        prompts=("prompt_id", "nunique"), positions=("prompt_id", "size")
    )
    texts.loc[score.ALL] = texts.sum()
    return nodes.set_axis(["nodes_published", "nodes_ours"], axis=1).join(texts)


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """A published table without its counts of nodes and without empty columns."""
    kept = table[table["quantity"] != "nodes"].dropna(axis=1, how="all")
    return kept.reset_index(drop=True).fillna({"estimator": ""})


def alpha_means(table: pd.DataFrame, domains: list[str]) -> pd.DataFrame:
    """Rows alpha_mean of Table I by domain: published, ours_as_published, corrected, …"""
    return table[table["quantity"] == "alpha_mean"].set_index("domain").loc[domains]


def order(values: pd.Series) -> str:
    """Names of a series from the highest value to the lowest; `=` between equal ones, which keep
    their order.
    """
    falling = values.sort_values(ascending=False, kind="stable")
    text = falling.index[0]
    for (_, before), (name, value) in pairwise(falling.items()):
        text += f" = {name}" if value == before else f" > {name}"
    return text


# ---- the ladder ----------------------------------------------------------------------------------


def whole_ladder(greedy, sampled) -> Estimates:
    """Every estimator of both runs by domain, with `name` ('alpha, T = 1'): greedy rule on the
    T = 0 text, point-mass rule on the T = 1 text.
    """
    parts = [
        ladder_intervals(greedy).assign(text="T = 0"),
        ladder_intervals(sampled, "point-mass").assign(text="T = 1"),
    ]
    frame = pd.concat(parts, ignore_index=True)
    return Estimates(
        frame.assign(name=frame["estimator"] + ", " + frame["text"]), digits=3
    )


def rungs(values: Estimates, names: tuple[str, ...] = SHARES + LENGTHS) -> Estimates:
    """The named estimators of a ladder, in this order."""
    return Estimates(
        pd.concat([values.at(name=name).frame for name in names]), values.digits
    )


def point_table(rows: Estimates) -> pd.DataFrame:
    """Point estimates: rows = names, columns = the domains."""
    table = rows.without(domain=[score.ALL, score.POOLED]).frame
    wide = table.pivot(index="name", columns="domain", values="estimate")
    return wide.loc[pd.unique(table["name"]), pd.unique(table["domain"])]


def averages(rows: Estimates) -> pd.DataFrame:
    """One number for all, three ways: mean of domains, pooled over rows, mean of prompts."""
    domains = rows.at(domain=score.ALL).frame.set_index("name")
    pooled = rows.at(domain=score.POOLED).frame.set_index("name")
    return pd.DataFrame(
        {
            "mean_of_domains": domains["estimate"],
            "pooled_over_rows": pooled["estimate"],
            "mean_of_prompts": pooled["per_prompt"],
        }
    )


def orders_said(orders: pd.Series) -> str:
    """Do the estimators agree on the order of the domains (`order` of each, by name)?"""
    if orders.nunique() == 1:
        return f"agree: **{orders.iloc[0]}**"
    groups = orders.groupby(orders, sort=False).groups
    listed = [f"**{text}** (`{'`, `'.join(names)}`)" for text, names in groups.items()]
    return f"do not agree, {len(listed)} orders occur: {'; '.join(listed)}"


def levels_said(values: pd.DataFrame) -> str:
    """Least and greatest estimate of each domain, with the estimator's name."""
    parts = []
    for domain, column in values.items():
        low, high = column.idxmin(), column.idxmax()
        parts.append(
            f"{domain}: from {column[low]:.2f} (`{low}`) to {column[high]:.2f} (`{high}`)"
        )
    return "; ".join(parts)


def ladder_picture(rows: Estimates) -> figures.Figure:
    """Levels with their intervals (left) and places among the domains (right), shares above tokens
    per pass; grey: not the acceptance of any lossless algorithm.
    """
    figure, grid = figures.subplots(
        2, 2, height=4.6, sharey="row", width_ratios=[2.4, 1], height_ratios=[8, 3]
    )
    for (left, right), names in zip(grid, (SHARES, LENGTHS), strict=True):
        part = rungs(rows, names)
        domains = part.without(domain=[score.ALL, score.POOLED]).frame
        figures.interval_bars(domains, left, x="name", horizontal=True)
        _places(point_table(part), right)
        for row, name in enumerate(names):
            if name.startswith(OF_NO_LOSSLESS):
                left.axhspan(row - 0.5, row + 0.5, color="#efefef", zorder=0)
                right.axhspan(row - 0.5, row + 0.5, color="#efefef", zorder=0)
    grid[0, 0].set(
        title="level (grey: of no lossless algorithm)",
        xlabel="share of tokens",
        xlim=(0, 1),
    )
    grid[0, 1].set(title="place among the domains")
    grid[1, 0].set(xlabel="tokens per target pass (published_length: E[L])")
    grid[1, 1].set(xlabel="1 = highest")
    figures.legend_above(figure, grid[0, 0])
    return figure


def _places(values: pd.DataFrame, axes) -> None:
    """The rank of each domain in each row, joined by lines within a temperature."""
    places = values.rank(axis=1, ascending=False).assign(row=np.arange(len(values)))
    for domain in values:
        for text in ("T = 0", "T = 1"):
            line = places[places.index.str.endswith(text)]
            axes.plot(line[domain], line["row"], **figures.style_of(domain))
    last = len(values.columns)
    axes.set(
        xlim=(0.5, last + 0.5),
        xticks=range(1, last + 1),
        ylim=(len(values) - 0.5, -0.5),
    )
    axes.tick_params(left=False)


# ---- which domains differ ------------------------------------------------------------------------


def domain_differences(greedy, sampled) -> pd.DataFrame:
    """Every pair of domains under four estimators: estimator, then the columns of
    `significance.differences`.
    """
    per_pass = score.tree_estimators()["block_efficiency"]
    asked = {
        "published_alpha, T = 0": (greedy.nodes, score.published_alpha),
        "hit[1], T = 0": (greedy.trace, score.member(score.hit, 1)),
        "alpha, T = 1": (sampled.trace, score.alpha),
        "block_efficiency, T = 0": (greedy.nodes, per_pass),
    }
    parts = {name: significance.differences(*one) for name, one in asked.items()}
    return stack(parts, "estimator")


def with_verdicts(found: pd.DataFrame, level: float) -> Estimates:
    """`domain_differences` as estimates by estimator, pair ('code − math') and verdict: APART where
    Holm's p is below `level`, else NOT_APART.
    """
    rows = found.assign(
        pair=found["first"] + " − " + found["second"],
        verdict=np.where(found["p_holm"] < level, APART, NOT_APART),
        estimate=found["difference"],
    )
    columns = ["estimator", "pair", "verdict", "estimate", "low", "high"]
    return Estimates(rows[columns], digits=3)


def told_apart(verdicts: Estimates) -> pd.Series:
    """Pairs of domains told apart, by estimator."""
    apart = verdicts.frame["verdict"] == APART
    return apart.groupby(verdicts.frame["estimator"], sort=False).sum()


def turned(verdicts: Estimates, against: str = "published_alpha, T = 0") -> str:
    """Which pairs are told apart under another estimator with the opposite sign?"""
    sure = verdicts.frame[verdicts.frame["verdict"] == APART]
    signs = np.sign(sure.set_index(["estimator", "pair"])["estimate"])
    opposite = [
        f"{pair} (`{name}`)"
        for (name, pair), sign in signs.items()
        if sign * signs.get((against, pair), 0.0) < 0
    ]
    if not opposite:
        return f"no pair is told apart with opposite signs by `{against}` and by another estimator"
    return f"told apart with the opposite sign to `{against}`: {'; '.join(opposite)}"


# ---- break-even ----------------------------------------------------------------------------------


def break_even_said(tokens: Estimates, limit: float) -> str:
    """In which domains tokens per pass lie above or below `limit` with their whole interval."""
    return tokens.sentence(
        "the whole interval is above it in",
        "below it in",
        "it cannot be told in",
        than=limit,
    )
