"""At which c is a setting for each domain worth having (section 3)? The sweep of
`speclab.analysis.cost_sweep` on assumed machines and on this one, and its picture.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pandas as pd

from speclab.analysis import cost_sweep
from speclab.analysis.choose import Settings
from speclab.cost import Costs
from speclab.show import figures
from speclab.show.estimates import Estimates
from speclab.studies.budgets_and_routing.machines import chains_of

MEASURED = "v and o measured here"
TICKS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def with_its_c(costs: Costs, c: float) -> Costs:
    """A machine with every draft pass made dearer or cheaper by one factor, so that a pass over one
    token costs c.
    """
    dearer = c / costs.c()
    return replace(costs, draft=tuple(each * dearer for each in costs.draft))


def machines(
    costs: Costs, cs: Iterable[float], slopes: Iterable[float], *marked: float
) -> dict[tuple[str, float], Costs]:
    """`cost_sweep.lines` for each slope, and this machine's v and o with other c (MEASURED), at the
    c of `cs`, at this machine's own and at those `marked`.
    """
    grid = sorted({*cs, costs.c(), *marked})
    measured = {(MEASURED, c): with_its_c(costs, c) for c in grid}
    return cost_sweep.lines(grid, slopes) | measured


def by_settings(
    counted: pd.DataFrame, settings: Settings, places: Mapping[tuple[str, float], Costs]
) -> Estimates:
    """`cost_sweep.gain_by_cost` among the chains alone and among all settings: settings, v, c."""
    allowed = {"chains": chains_of(settings), "chains and trees": settings}
    parts = {
        name: cost_sweep.gain_by_cost(counted, some, places)
        for name, some in allowed.items()
    }
    return Estimates.stacked(parts, "settings", digits=3)


def gains_told(found: Estimates, margin: float) -> pd.DataFrame:
    """The table of `by_settings` with what is told of the margin."""
    verdicts = [cost_sweep.told(row, margin) for row in found.rows()]
    return found.frame.assign(told=verdicts)


def at_in_words(found: Estimates, margin: float) -> str:
    """Gain and verdict at one machine, in words, for each kind of settings."""
    return "; ".join(
        f"{row.settings} {row.estimate:+.1%} [{row.low:+.1%}, {row.high:+.1%}], "
        f"a setting for each domain {cost_sweep.told(row, margin)}"
        for row in found.rows()
    )


def draw_gains(
    found: Estimates, margin: float, marked: Mapping[str, float]
) -> figures.Figure:
    """The gain in % by c, a panel for each v; grey: within the margin; dotted: the c of `marked`,
    named in the first panel.
    """
    percent = found.frame.copy()
    percent[["estimate", "low", "high"]] *= 100
    figure = figures.facets(
        percent,
        "c",
        hue="settings",
        columns="v",
        y="gain of a setting for each domain, %",
        reference=0,
    )
    for axes in figure.axes:
        axes.set_xscale("log")
        axes.set_xticks(TICKS, [f"{c:g}" for c in TICKS])
        axes.minorticks_off()
        axes.axhspan(-100 * margin, 100 * margin, color="#dddddd", zorder=0)
        for c in marked.values():
            axes.axvline(c, color="black", linewidth=0.8, linestyle=":")
    first, look = figure.axes[0], {"rotation": 90, "ha": "right", "va": "top"}
    for name, c in marked.items():
        first.text(c, first.get_ylim()[1], name, fontsize=6, **look)
    return figure
