"""The pictures of the audit: a few claims drawn large, and the verdicts on what depends on cost."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from speclab.analysis.claims import (
    AT_0,
    AT_1,
    FAILS,
    HOLDS,
    PUBLISHED,
    SIGNS,
    UNKNOWN,
    Claim,
    by_cost,
)
from speclab.show import figures

GREEN, EDGE = "#DDEBD9", "#5B8A52"
SHADES = {HOLDS: "#4C9A6A", UNKNOWN: "#DDDDDD", FAILS: "#D98555"}


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
        axes.axvspan(
            *np.clip(claim.bounds(""), *limits), color=GREEN, zorder=0, label="it holds"
        )
    axes.set_xlim(limits)


def by_c(
    listed: Mapping[str, Claim], evidence: pd.DataFrame, slopes: Sequence[float]
) -> figures.Figure:
    """The verdicts on what depends on cost: a panel a slope of v, a row for each claim, pair and
    temperature, a column a c.
    """
    of_cost = [claim.id for claim in listed.values() if claim.decides == "cost"]
    rows = evidence.dropna(subset="estimate")
    keys = ["claim", "pair", "asked"]
    found = {
        ", ".join(names): by_cost(part).set_index(["slope", "c"])["verdict"]
        for name in of_cost
        for names, part in rows[rows["claim"] == name].groupby(keys, sort=False)
    }
    shown = pd.DataFrame(found).T
    figure, panels = figures.subplots(
        1, len(slopes), height=0.15 * len(shown) + 1, sharey=True, squeeze=False
    )
    colours = {
        verdict: [*bytes.fromhex(shade[1:])] for verdict, shade in SHADES.items()
    }
    for slope, axes in zip(slopes, panels[0], strict=True):
        cells = shown[slope]
        pixels = [[colours[verdict] for verdict in row] for row in cells.to_numpy()]
        axes.imshow(np.array(pixels, np.uint8), aspect="auto")
        axes.set_xticks(range(len(cells.T)), [f"{c:g}" for c in cells], rotation=90)
        axes.set_yticks(range(len(cells)), cells.index, fontsize=6.5)
        axes.set_title(f"v(n) = 1 + {slope:g} (n - 1)")
        axes.grid(False)
        for edge in np.arange(len(shown)) + 0.5:
            axes.axhline(edge, color="white", linewidth=1.5)
        for verdict, shade in SHADES.items():
            axes.fill_between([], [], color=shade, label=verdict.removesuffix(" here"))
    figure.supxlabel("c, a draft pass in target passes", fontsize=8)
    figures.legend_above(figure, panels[0, 0])
    return figure
