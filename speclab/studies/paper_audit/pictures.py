"""The picture of the audit: a few claims drawn large."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from speclab.analysis.claims import AT_0, AT_1, PUBLISHED, SIGNS, Claim
from speclab.show import figures

GREEN, EDGE = "#DDEBD9", "#5B8A52"


def large(
    shown: Mapping[str, str],
    listed: Mapping[str, Claim],
    evidence: pd.DataFrame,
    verdicts: pd.DataFrame,
    printed: pd.DataFrame,
) -> figures.Figure:
    """A panel a claim: the paper's own numbers, and those of each pair and way to ask, each with
    its verdict; green: the claim holds. shown: by claim, what its number is (the axis). printed:
    `claims.printed`.
    """
    ways = evidence["asked"].isin([PUBLISHED, AT_0, AT_1])
    measured = evidence[ways & evidence["claim"].isin(shown)]
    signs = verdicts.set_index(["claim", "pair", "asked"])["verdict"].map(SIGNS)
    lines = [
        f"{row.pair}, {row.asked} {signs[row.claim, row.pair, row.asked]}"
        for row in measured.itertuples()
    ]
    own = printed[printed["claim"].isin(shown)].assign(at="the paper")
    rows = pd.concat([own, measured.assign(at=lines)])
    figure, panels = figures.subplots(len(shown), 1, height=1.75 * len(shown))
    for (name, number), axes in zip(shown.items(), panels, strict=True):
        part = rows[rows["claim"] == name]
        figures.interval_bars(part, axes, "at", "row", horizontal=True)
        _region(axes, listed[name])
        axes.set_title(f"{name}: {listed[name].claim}", loc="left")
        axes.set_xlabel(number)
    figures.legend_above(figure, *panels)
    return figure


def _region(axes, claim: Claim) -> None:
    """The region in which a claim holds; its edges alone where domains differ in it."""
    one = not isinstance(claim.region, Mapping)
    regions = [claim.region] if one else list(claim.region.values())
    limits = axes.get_xlim()
    for edge in {edge for region in regions for edge in region if edge is not None}:
        axes.axvline(edge, color=EDGE, linewidth=1, linestyle="--", zorder=0)
    if one:
        axes.axvspan(*np.clip(claim.bounds(""), *limits), color=GREEN, zorder=0, label="it holds")
    axes.set_xlim(limits)
