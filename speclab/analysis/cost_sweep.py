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

import pandas as pd

from speclab.analysis import choose
from speclab.analysis.choose import UNKNOWN, Prices, Settings
from speclab.cost import Costs
from speclab.show.estimates import Estimates
from speclab.stats import RESAMPLES, Interval, resampling_of

C_GRID = (0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
FREE = "v = 1"
MARGIN = 0.01  # a gain within it is none that anybody would act on
WORTH, LOSS, NO_CASE, OPEN = "is worth it", "loses", "has no case", "cannot be told"
VERDICTS = (WORTH, LOSS, NO_CASE, OPEN)


def gain(prices: Prices, folds: int = 5, n: int = RESAMPLES) -> Interval:
    """How much faster a setting for each domain is than one for all, as a share (0.02: 2 %), by
    cross-fitted choices that are made again in each of n resamples of the prompts.

    ValueError if a domain has fewer prompts than folds.
    """
    for_all = dict.fromkeys(prices.prompts["prompt_id"], UNKNOWN)
    one, each = (
        choose.refitted(prices, routes, folds, n=n).sum(axis=1)
        for routes in (for_all, None)
    )
    return Interval.of(one / each - 1, resampling_of(prices.prompts, 1), "the gain")


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
    rows = {}
    for place, costs in machines.items():
        prices = choose.price(counted, settings, costs)
        chosen = choose.setting_by_domain(prices)
        one = chosen.pop(UNKNOWN)
        each = ", ".join(f"{domain} {name}" for domain, name in chosen.items())
        rows[place] = vars(gain(prices, n=n)) | {"one": one, "each": each}
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis(["v", "c"])
    return Estimates(table.drop(columns="n_prompts").reset_index(), digits=3)


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


def stretches_in_words(found: Estimates, what: str, margin: float = MARGIN) -> str:
    """At which c each verdict of `told` stands, a line a kind of v: '* v = 1: WHAT is worth it at
    c = 0.02 to 0.1, and 0.5; …' (neighbours of the grid joined).
    """
    lines = []
    for v, part in found.groups("v"):
        rows = part.frame.sort_values("c")
        rows["verdict"] = [told(row, margin) for row in rows.itertuples()]
        run = (rows["verdict"] != rows["verdict"].shift()).cumsum()
        ends = rows.groupby([run.rename("run"), "verdict"])["c"].agg(["first", "last"])
        said = []
        for verdict in VERDICTS:
            own = ends[ends.index.get_level_values("verdict") == verdict]
            places = [
                " to ".join(dict.fromkeys(f"{c:.2g}" for c in pair))
                for pair in own.to_numpy()
            ]
            if places:
                said.append(f"{verdict} at c = {', and '.join(places)}")
        lines.append(f"* {v}: {what} {'; '.join(said)}")
    return "\n".join(lines)
