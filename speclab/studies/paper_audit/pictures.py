"""The pictures of the audit: each claim's number by pair and temperature with the region in which
it holds; and the verdicts on what depends on cost, by c.
"""

import textwrap
from collections.abc import Mapping

import numpy as np
import pandas as pd

from speclab.show import figures
from speclab.studies.paper_audit.claims import (
    ASKED,
    AT_0,
    AT_1,
    FAILS,
    HOLDS,
    NO_CONDITION,
    NOT_TESTED,
    PUBLISHED,
    SIGNS,
    SOURCES,
    TOO_FEW,
    UNKNOWN,
    Claim,
    by_cost,
)

GREEN, GREY, RED, BLUE = "#DDEBD9", "#777777", "#C14A00", "#0072B2"
COLOURS = {HOLDS: "#00714F", FAILS: RED, NO_CONDITION: RED}  # of marks, others grey
LANES = {  # way to ask: its height in a strip, and how it is drawn
    PUBLISHED: (1.0, {"marker": "o", "color": GREY, "markerfacecolor": "white"}),
    AT_0: (0.0, {"marker": "o", "color": "black"}),
    AT_1: (-1.0, {"marker": "D", "color": BLUE}),
}
DOTS = {"linestyle": "none", "markersize": 3.5}
SHADES = {HOLDS: "#4C9A6A", FAILS: "#D98555", UNKNOWN: "#DDDDDD", TOO_FEW: "#F2F2F2"}


def drawn(evidence: pd.DataFrame, listed: Mapping[str, Claim]) -> pd.DataFrame:
    """The rows of a claims picture: bound to a pair, with an interval, and not a matter of cost."""
    of_cost = [claim.id for claim in listed.values() if claim.decides == "cost"]
    kept = evidence["low"].notna() & evidence["asked"].isin(ASKED)
    kept &= (evidence["pair"] != SOURCES) & ~evidence["claim"].isin(of_cost)
    return evidence[kept & (evidence["estimator"] != "target_entropy")]


def claims_picture(
    listed: Mapping[str, Claim],
    evidence: pd.DataFrame,
    verdicts: pd.DataFrame,
    printed: pd.DataFrame,
    caveat: str,
) -> figures.Figure:
    """One row of panels a claim, a column a pair: its numbers as published (beside the paper's own,
    crosses) and by what is exact at T = 0 and T = 1, each with its verdict; green: the claim holds.

    caveat: what the picture is not about, written into it.
    """
    rows = drawn(evidence, listed)
    pairs = list(dict.fromkeys(rows["pair"]))
    ids = [name for name in listed if name in set(rows["claim"])]
    figure, grid = figures.subplots(
        len(ids), len(pairs), height=0.52 * len(ids) + 0.7, squeeze=False
    )
    marks = verdicts.set_index(["claim", "pair", "asked"])["verdict"]
    for panels, name in zip(grid, ids, strict=True):
        of_claim = rows[rows["claim"] == name]
        limits = _limits(of_claim, printed[printed["claim"] == name])
        for axes, pair in zip(panels, pairs, strict=True):
            own = of_claim[of_claim["pair"] == pair]
            _region(axes, of_claim, limits)
            for asked, (lane, look) in LANES.items():
                _lane(axes, own[own["asked"] == asked], lane, look, asked)
                _mark(axes, marks.get((name, pair, asked), ""), lane)
            paper = printed[printed["claim"] == name]["estimate"]
            cross = {"marker": "x", "color": RED, "label": "the paper's own"}
            axes.plot(paper, np.full(len(paper), 1.0), **DOTS | cross)
        text = textwrap.fill(f"{name}: {listed[name].claim}", 40)
        panels[0].text(
            -0.03,
            0.5,
            text,
            transform=panels[0].transAxes,
            horizontalalignment="right",
            verticalalignment="center",
            fontsize=6.5,
        )
    for axes, pair in zip(grid[0], pairs, strict=True):
        axes.set_title(f"{pair} only", fontsize=9)
    figures.legend_above(figure, *grid.ravel())
    figure.supxlabel(caveat, fontsize=7.5, color=RED)
    return figure


def _lane(axes, rows: pd.DataFrame, lane: float, look: dict, label: str) -> None:
    if rows.empty:
        return
    spread = np.linspace(0.25, -0.25, len(rows)) if len(rows) > 1 else np.zeros(1)
    height = lane + spread
    axes.plot(rows["estimate"], height, label=label, **DOTS | look)
    axes.hlines(height, rows["low"], rows["high"], color=look["color"], linewidth=1)


def _mark(axes, verdict: str, lane: float) -> None:
    mark = SIGNS.get(verdict, "") if verdict != NOT_TESTED else ""
    colour = COLOURS.get(verdict, "#666666")
    place = {"transform": axes.get_yaxis_transform(), "verticalalignment": "center"}
    axes.text(1.02, 1.15 * lane, mark, color=colour, fontsize=6, **place)


def _limits(rows: pd.DataFrame, printed: pd.DataFrame) -> tuple[float, float]:
    """Of the axis: all numbers of the claim and the edges of its region, and a margin."""
    edges = rows[["least", "most"]].to_numpy().ravel()
    numbers = rows[["estimate", "low", "high"]].to_numpy().ravel()
    everything = [*edges[np.isfinite(edges)], *numbers, *printed["estimate"]]
    low, high = min(everything), max(everything)
    margin = 0.05 * (high - low)
    return low - margin, high + margin


def _region(axes, rows: pd.DataFrame, limits: tuple[float, float]) -> None:
    """The region in which a claim holds; its edges alone where domains differ in it."""
    regions = rows[["least", "most"]].drop_duplicates().to_numpy()
    for edge in np.unique(regions[np.isfinite(regions)]):
        axes.axvline(edge, color="#5B8A52", linewidth=0.8, linestyle="--", zorder=0)
    if len(regions) == 1:
        least, most = np.clip(regions[0], *limits)
        axes.axvspan(least, most, color=GREEN, zorder=0, label="claim holds")
    axes.set(xlim=limits, ylim=(-1.6, 1.6), yticks=[])
    axes.locator_params(axis="x", nbins=4)
    axes.tick_params(labelsize=6, pad=1, length=2)


def costs_picture(
    listed: Mapping[str, Claim],
    evidence: pd.DataFrame,
    marked: Mapping[str, float],
    caveat: str,
) -> figures.Figure:
    """Verdicts by c: a panel a claim about cost, a bar for each pair, temperature and slope of v,
    coloured by its verdict along c (logarithmic).

    marked: c by what it is of, drawn as lines.
    """
    ids = [claim.id for claim in listed.values() if claim.decides == "cost"]
    rows = evidence[evidence["claim"].isin(ids) & evidence["asked"].isin([AT_0, AT_1])]
    ids = [name for name in ids if name in set(rows["claim"])]
    bars = list(rows.groupby(["pair", "asked", "slope"], sort=False).groups)
    figure, panels = figures.subplots(
        len(ids), 1, height=(0.13 * len(bars) + 0.33) * len(ids) + 0.5, sharex=True
    )
    for axes, name in zip(panels, ids, strict=True):
        of_claim = rows[rows["claim"] == name]
        groups = dict(list(of_claim.groupby(["pair", "asked", "slope"])))
        for height, bar in enumerate(reversed(bars)):
            if bar in groups:
                _bar(axes, groups[bar], height)
        for (what, c), line in zip(marked.items(), (":", "--", "-."), strict=False):
            axes.axvline(c, color="black", linewidth=0.8, linestyle=line, label=what)
        names = [f"{pair}, {way}, v slope {slope:g}" for pair, way, slope in bars[::-1]]
        axes.set(xscale="log", yticks=range(len(bars)), yticklabels=names)
        axes.tick_params(axis="y", labelsize=5.5, length=0)
        axes.set_title(f"{name}: {listed[name].claim}", fontsize=7.5, loc="left")
    ticks = sorted(rows["c"].unique())
    panels[-1].set(xticks=ticks, xticklabels=[f"{c:g}" for c in ticks])
    panels[-1].tick_params(axis="x", labelsize=6.5)
    panels[-1].set_xlabel("c, a draft pass in target passes (logarithmic)")
    figures.legend_above(figure, *panels)
    figure.supxlabel(caveat, fontsize=7.5, color=RED)
    return figure


def _bar(axes, rows: pd.DataFrame, height: int) -> None:
    """One bar: from each c of the grid half-way (in logarithms) to its neighbours."""
    found = by_cost(rows)
    logs = np.log(found["c"].to_numpy())
    middles = (logs[1:] + logs[:-1]) / 2
    edges = np.exp([2 * logs[0] - middles[0], *middles, 2 * logs[-1] - middles[-1]])
    for verdict, left, right in zip(found["verdict"], edges, edges[1:], strict=False):
        axes.barh(
            height,
            right - left,
            left=left,
            height=0.8,
            color=SHADES[verdict],
            label=verdict,
        )
