"""What a setting for each domain is worth over one for all, by what a pass costs.

The gain is cost of one / cost of each - 1, over the prompts as they were recorded: of two policies
that emit the same tokens, how much faster the second is. Both choose by the same rule
(`choose.fastest`), each prompt on other folds' prompts, and both choose again in every resample of
the prompts, so that an interval covers the choice as well as the judgement. (Simulated with 50
prompts a domain, drawn from the recorded ones of `smollm` and `tiny`: it holds the mean of such
gains in 94 to 97 % where the domains' settings differ clearly, in all where they are nearly tied.)
NumPy and pandas only.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise

import numpy as np
import pandas as pd

from speclab.analysis import choose
from speclab.analysis.choose import UNKNOWN, Prices, Settings
from speclab.cost import Costs
from speclab.show.estimates import Estimates
from speclab.stats import RESAMPLES, Interval, prompts_of

C_GRID = (0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
FREE = "v = 1"
MARGIN = 0.01  # a gain within it is none that anybody would act on
WORTH, NO_CASE, LOSS, OPEN = (
    "is worth it",
    "has no case",
    "loses",
    "cannot be told",
)


def gain(prices: Prices, folds: int = 5, n: int = RESAMPLES) -> Interval:
    """How much faster a setting for each domain is than one for all, as a share (0.02: 2 %), by
    cross-fitted choices that are made again in each of n resamples of the prompts.

    ValueError if a domain has fewer prompts than folds.
    """
    for_all = dict.fromkeys(prices.prompts["prompt_id"], UNKNOWN)
    spent = choose.refitted_each(prices, [for_all, None], folds, n=n)
    one, each = (costs.sum(axis=1) for costs in spent)
    return Interval.of(one / each - 1, prompts_of(prices.prompts, 1), "the gain")


def lines(
    cs: Iterable[float] = C_GRID, slopes: Iterable[float] = (0.0,)
) -> dict[tuple[str, float], Costs]:
    """Machines by (v in words, c): v(n) = 1 + s (n - 1) for each slope s, and no overhead."""
    named = {FREE if s == 0 else f"v(n) = 1 + {s:g} (n - 1)": s for s in slopes}
    cs = list(cs)
    return {(v, c): Costs.on_a_line(c, s) for v, s in named.items() for c in cs}


def gain_by_cost(
    counted: pd.DataFrame,
    settings: Settings,
    machines: Mapping[tuple[str, float], Costs],
    n: int = RESAMPLES,
) -> Estimates:
    """`gain` on each machine: v, c, estimate, low, high (shares), and the settings chosen on all
    prompts: `one`, and `each` ('code chain:4, chat plain').

    counted: `choose.block_counts` of settings. machines: by (v in words, c), such as `lines`.
    """
    rows = []
    for (v, c), costs in machines.items():
        prices = choose.price(counted, settings, costs)
        found = gain(prices, n=n)
        chosen = choose.setting_by_domain(prices)
        one = chosen.pop(UNKNOWN)
        each = ", ".join(f"{domain} {name}" for domain, name in chosen.items())
        numbers = found.estimate, found.low, found.high
        rows.append((v, c, *numbers, one, each))
    names = ["v", "c", "estimate", "low", "high", "one", "each"]
    return Estimates(pd.DataFrame(rows, columns=names), digits=3)


def told(interval: Interval | pd.Series, margin: float = MARGIN) -> str:
    """What an interval of a gain says of a margin that was named beforehand: WORTH (all of it lies
    above the margin), NO_CASE (all of it within the margin, either side), LOSS (all of it below),
    else OPEN.
    """
    if interval.low > margin:
        return WORTH
    if interval.high < -margin:
        return LOSS
    if -margin <= interval.low and interval.high <= margin:
        return NO_CASE
    return OPEN


def stretches(found: Estimates, margin: float = MARGIN) -> dict[str, str]:
    """At which c of one kind of v each verdict of `told` stands, in words, by verdict: 'c = 0.02 to
    0.1, and 0.5' (neighbours of the grid joined).
    """
    rows = found.frame.sort_values("c")
    verdicts = [told(row, margin) for row in rows.itertuples()]
    run = np.cumsum([True, *(a != b for a, b in pairwise(verdicts))])
    said: dict[str, list[str]] = {}
    for _, own in rows.assign(verdict=verdicts).groupby(run, sort=False):
        ends = dict.fromkeys(f"{c:.2g}" for c in (own["c"].iloc[0], own["c"].iloc[-1]))
        said.setdefault(own["verdict"].iloc[0], []).append(" to ".join(ends))
    in_order = [v for v in (WORTH, LOSS, NO_CASE, OPEN) if v in said]
    return {verdict: "c = " + ", and ".join(said[verdict]) for verdict in in_order}


def stretches_in_words(found: Estimates, what: str, margin: float = MARGIN) -> str:
    """`stretches` of every kind of v, a line each: '* v = 1: WHAT is worth it at c = …'."""
    said = []
    for v, part in found.groups("v"):
        each = stretches(part, margin).items()
        said.append(f"* {v}: {what} " + "; ".join(f"{w} at {at}" for w, at in each))
    return "\n".join(said)
