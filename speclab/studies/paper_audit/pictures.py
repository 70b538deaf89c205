"""The picture of the claims: each one's number with its interval, the region in which it holds, and
the verdict.
"""

import textwrap
from collections.abc import Mapping

import numpy as np
import pandas as pd

from speclab import figures
from speclab.studies.paper_audit.claims import (
    AS_PUBLISHED,
    FAILS,
    HOLDS,
    PUBLISHED,
    RIGHT,
    UNKNOWN,
    Claim,
)

GREEN, GREY, RED = "#DDEBD9", "#777777", "#C14A00"
MARKS = {
    HOLDS: ("✓", "#00714F"),
    FAILS: ("✗", RED),
    AS_PUBLISHED: ("◐", "#8F5B00"),
    UNKNOWN: ("?", "#666666"),
}
DOTS = {"linestyle": "none", "markersize": 4}
LOOKS = {  # series: its height in the strip, and how it is drawn
    "the paper": (0.9, {"marker": "x", "color": RED, "zorder": 4}),
    PUBLISHED: (0.9, {"marker": "o", "color": GREY, "markerfacecolor": "white"}),
    RIGHT: (-0.1, {"marker": "o", "color": "black"}),
    "authors' records": (-1.1, {"marker": "+", "color": "#0072B2"}),
}


def from_texts(evidence: pd.DataFrame) -> pd.DataFrame:
    """Rows of `evidence` that were measured on texts: those that the picture shows."""
    return evidence[
        (evidence["note"] == "") & (evidence["estimator"] != "target_entropy")
    ]


def claims_picture(
    claims: Mapping[str, Claim],
    evidence: pd.DataFrame,
    verdicts: Mapping[str, str],
    printed: pd.DataFrame,
    records: pd.DataFrame,
) -> figures.Figure:
    """One strip a claim that was measured on texts: `evidence` as published and by the right
    estimator, the paper's own numbers (`printed`), the authors' `records`; green: the claim holds.
    """
    drawn = from_texts(evidence)
    ids = [name for name in claims if name in set(drawn["claim"])]
    figure, panels = figures.subplots(len(ids), 1, height=0.41 * len(ids) + 0.3)
    of_nodes = records[~records["estimator"].str.contains("best_path")]
    for axes, name in zip(panels, ids, strict=True):
        rows = drawn[drawn["claim"] == name]
        series = {view: rows[rows["view"] == view] for view in (PUBLISHED, RIGHT)}
        series["the paper"] = printed[printed["claim"] == name]
        series["authors' records"] = of_nodes[of_nodes["claim"] == name]
        for label, points in series.items():
            lane, look = LOOKS[label]
            height = np.full(len(points), lane)
            if len(points):
                axes.plot(points["estimate"], height, label=label, **DOTS | look)
            if label in (PUBLISHED, RIGHT):
                axes.hlines(height, points["low"], points["high"], color=look["color"])
        _region(axes, rows)
        text = textwrap.fill(f"{claims[name].where}: {claims[name].claim}", 48)
        mark, colour = MARKS.get(verdicts[name], ("", "black"))
        place = {"transform": axes.transAxes, "verticalalignment": "center"}
        axes.text(-0.02, 0.5, text, horizontalalignment="right", fontsize=7, **place)
        axes.text(
            1.02, 0.5, f"{mark} {verdicts[name]}", color=colour, weight="bold", **place
        )
    figures.legend_above(figure, *panels)
    return figure


def _region(axes, rows: pd.DataFrame) -> None:
    """The region in which a claim holds; its edges alone where domains differ in it."""
    low, high = axes.get_xlim()
    margin = 0.05 * (high - low)
    regions = rows[["least", "most"]].drop_duplicates().to_numpy()
    for edge in np.unique(regions[np.isfinite(regions)]):
        axes.axvline(edge, color="#5B8A52", linewidth=0.8, linestyle="--", zorder=0)
        low, high = min(low, edge), max(high, edge)
    low, high = low - margin, high + margin
    if len(regions) == 1:
        least, most = np.clip(regions[0], low, high)
        axes.axvspan(least, most, color=GREEN, zorder=0, label="claim holds")
    axes.set(xlim=(low, high), ylim=(-1.8, 1.7), yticks=[])
    axes.locator_params(axis="x", nbins=4)
    axes.tick_params(labelsize=6, pad=1, length=2)
