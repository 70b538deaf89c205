"""The picture of the audit: a few claims drawn large."""

from collections.abc import Mapping
from itertools import chain

import numpy as np
import pandas as pd

from speclab.analysis.claims import KEYS, SIGNS, Claim
from speclab.analysis.published import published
from speclab.show import figures

GREEN, EDGE = "#DDEBD9", "#5B8A52"


def printed() -> pd.DataFrame:
    """The paper's own numbers of its claims, as printed or their differences: claim, row,
    estimate.
    """
    alpha = published("I").query("quantity == 'alpha_mean' and domain != 'all'")
    alpha = alpha.set_index("domain")["published"]
    length = published("II").set_index("domain")["published"]
    depth = published("IV").pivot(index="domain", columns="depth", values="published")
    rho = published("VI").set_index("domain")["published"]
    numbers = {
        "level": alpha,
        "gap": pd.Series({"chat - math": alpha["chat"] - alpha["math"]}),
        "length": length,
        "depth": depth[3] - depth[1],
        "entropy-sign": rho,
    }
    rows = pd.concat(numbers, names=["claim", "row"])
    return rows.rename("estimate").reset_index()


def large(
    shown: Mapping[str, str],
    listed: Mapping[str, Claim],
    evidence: pd.DataFrame,
    verdicts: pd.DataFrame,
) -> figures.Figure:
    """A panel for each claim: the paper's own numbers (`printed`), and those of each pair and way
    to measure, each with its verdict; green: the claim holds. shown: by claim, what its number is
    (the axis).
    """
    measured = evidence.merge(verdicts[[*KEYS, "verdict"]], on=KEYS)
    signs = measured["verdict"].map(SIGNS)
    line = measured["pair"] + ", " + measured["asked"] + " " + signs
    rows = pd.concat([printed().assign(line="the paper"), measured.assign(line=line)])
    figure, panels = figures.subplots(len(shown), height=1.75 * len(shown))
    for (name, number), axes in zip(shown.items(), panels, strict=True):
        of_claim = rows[rows["claim"] == name]
        figures.interval_bars(of_claim, axes, "line", "row", horizontal=True)
        _region(axes, listed[name])
        axes.set_title(f"{name}: {listed[name].claim}", loc="left")
        axes.set_xlabel(number)
    figures.legend_above(figure, *panels)
    return figure


def _region(axes, claim: Claim) -> None:
    """The region in which a claim holds; its edges alone where domains differ in it."""
    limits = axes.get_xlim()
    region = claim.region
    edges = chain(*region.values()) if isinstance(region, Mapping) else region
    for edge in {*edges} - {None}:
        axes.axvline(edge, color=EDGE, linewidth=1, linestyle="--", zorder=0)
    if not isinstance(region, Mapping):
        inside = np.clip(claim.bounds(""), *limits)
        axes.axvspan(*inside, color=GREEN, zorder=0, label="it holds")
    axes.set_xlim(limits)
