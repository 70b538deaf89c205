"""Which gamma to try, from the passes of a log.

A log says at most positions of its texts whether the draft's best token was the target's
(`passes.trace_of`). So another gamma has hard bounds: a lower one if every unknown position is a
miss, an upper one if it is a hit. At the log's own draft length both are equal. They hold for
chains of a separate draft model at T = 0 (`why_no_bounds` says what else a log may be). The data
cannot say more than the bounds, however many requests there are; intervals add what the choice of
requests leaves open.

Speed-ups are estimates: tokens per target pass divided by the cost of a block (`cost.Costs`).
"""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pandas as pd

from speclab import score, stats
from speclab.cost import Costs
from speclab.estimates import named
from speclab.lab import choose
from speclab.logs import passes
from speclab.logs.passes import HITS, MISSES
from speclab.score import POOLED
from speclab.stats import BELOW, UNDEFINED, Draws

PER_PASS = score.ratio_of("emitted", "blocks", "block_efficiency")
SPEED = score.ratio_of("emitted", "cost", "speed-up")
LOGGED = "as logged"  # in place of a gamma: the log's own draft lengths, which vary
MODEL, HEADS, COPIES, TREES = "draft model", "heads", "copies", "trees"
NOT_OF_A_CHAIN = {  # why drafts that are not a draft model's chains say nothing about other gammas
    HEADS: "The drafts come from heads, whose guess depends on where a block begins.",
    COPIES: "The drafts are copies, and what is copied depends on where a block begins.",
    TREES: "The drafts are trees, and the log does not say which branch was accepted.",
}
OF_FORMAT = {"specdecode-eagle": HEADS, "specdecode-ngram": COPIES}  # formats that say what drafts
NO_OTHER = "So it decides nothing about another gamma."
NO_PASSES = "The log has totals per request only, and no counts per pass."
# what is said of a gamma compared with the gamma whose lower bound is the highest
BEST, SLOWER = "to try: highest lower bound", "significantly slower"
OPEN, TIED = "undecided: bounds overlap", "no significant difference"
TOO_FEW = "lower, too few requests"
# columns of `bounds`
BOUNDS = ["gamma", "least", "most", "low", "least_high", "high", "verdict"]


def why_no_bounds(log: pd.DataFrame | None, drafts: str = MODEL, temperature: float = 0.0) -> str:
    """Why the passes of a log (None: it has totals only) say nothing about another gamma, as
    sentences; "": they give bounds. drafts: MODEL or a key of NOT_OF_A_CHAIN.
    """
    if log is None:
        return f"{NO_PASSES} {NO_OTHER}"
    if drafts != MODEL:
        return f"{NOT_OF_A_CHAIN[drafts]} {NO_OTHER}"
    if temperature > 0:
        return (
            f"The log was sampled at T = {temperature:g}, where acceptance depends on chance. "
            f"{NO_OTHER}"
        )
    if log["drafted"].isna().any():
        return (
            "The log does not say how many tokens each pass drafted. Name the draft length "
            f"(`drafted`). {NO_OTHER}"
        )
    return ""


def own_gamma(log: pd.DataFrame) -> int | None:
    """The draft length of a log in which every pass drafts the same number of tokens, fewer only
    where the answer ends; None: the length varies. Passes without a draft are left out.
    """
    drafting = log[log["drafted"] > 0]
    longest = drafting["drafted"].max()
    room = np.minimum(longest, drafting["remaining"])
    is_whole = drafting["drafted"] >= room
    return int(longest) if len(drafting) and is_whole.all() else None


def bounded_speeds(log: pd.DataFrame, gammas: Iterable[int], costs: Costs) -> Draws:
    """Draws of the bounds of the estimated speed-up, named (gamma, MISSES) and (gamma, HITS), on
    the same resampled requests.

    Gamma 0 is plain decoding, with speed-up 1. If the log's drafts have no fixed length, LOGGED is
    the log itself, at the lengths that it drafted; both bounds are equal. ValueError: as of
    `passes.trace_of`, and for a target pass that `costs` do not reach.
    """
    gammas = list(gammas)
    questions = {}
    for unknown in (MISSES, HITS):
        sums = passes.sums_at(log, gammas, unknown)
        for gamma, rows in sums.groupby("gamma"):
            cost = rows["blocks"] * costs.of_chain(gamma)
            questions[gamma, unknown] = rows.assign(cost=cost), SPEED
    if own_gamma(log) is None:
        logged = log.assign(cost=costs.of_chain(log["drafted"].to_numpy()))
        questions |= {(LOGGED, unknown): (logged, SPEED) for unknown in (MISSES, HITS)}
    draws = stats.jointly(questions)
    any_draws = draws[gammas[0], MISSES]
    plain = pd.DataFrame(1.0, any_draws.index, any_draws.columns)
    return replace(draws, values={(0, MISSES): plain, (0, HITS): plain} | draws.values)


def bounds(speed: Draws, domain: str = POOLED) -> pd.DataFrame:
    """One row per gamma: the columns BOUNDS, in the order of `speed` (of `bounded_speeds`).

    least, most: the lower and the upper bound of the speed-up in the sample. low, least_high: the
    interval of the lower bound; high: the upper end of the upper bound's interval (NaN: fewer than
    5 requests). verdict: BEST for the gamma with the highest lower bound. Any other gamma is SLOWER
    if its upper bound minus that lower bound is significantly negative, OPEN if its upper bound is
    above that lower bound, else TIED (TOO_FEW: no interval). Unknown positions are misses for one
    gamma and hits for the other, although both have the same text. So OPEN may be too cautious, and
    SLOWER is not.
    """
    gammas = list(dict.fromkeys(key[0] for key in speed.values))
    least, most = (
        np.stack([speed[gamma, unknown][domain] for gamma in gammas], axis=1)
        for unknown in (MISSES, HITS)
    )
    sizes = speed.prompts.sizes
    n_prompts = sizes.get(domain, speed.prompts.fewest)
    best = int(choose.fastest(least[0].round(9)))
    gap = most - least[:, [best]]
    sides = stats.verdict(*stats.bounds_of(gap[1:], n_prompts))
    cases = [sides == BELOW, gap[0] > 1e-9, sides == UNDEFINED]
    words = np.select(cases, [SLOWER, OPEN, TOO_FEW], TIED).astype(object)
    words[best] = BEST
    of_least = stats.bounds_of(least[1:], n_prompts)
    high = stats.bounds_of(most[1:], n_prompts)[1]
    columns = [gammas, least[0], most[0], *of_least, high, words]
    return pd.DataFrame(dict(zip(BOUNDS, columns, strict=True)))


def gamma_to_try(log: pd.DataFrame, costs: Costs, longest: int = 8) -> tuple[int, str]:
    """The gamma with the highest lower bound of the estimated speed-up (0: plain), of 0 to
    `longest` and the log's own, and sentences that explain it. Conditions and errors as of
    `bounded_speeds`.
    """
    gammas = sorted({*range(1, longest + 1), own_gamma(log) or 1})
    speed = bounded_speeds(choose.of_all_prompts(log), gammas, costs)
    numbers = {key: draws for key, draws in speed.values.items() if key[0] != LOGGED}
    table = bounds(replace(speed, values=numbers))
    best = table[table["verdict"] == BEST].iloc[0]
    gamma = int(best["gamma"])
    said = (
        f"Use gamma = {gamma}. Of 0 (plain) to {gammas[-1]} it has the highest lower bound of the "
        f"estimated speed-up, {best['least']:.2f}x (upper bound {best['most']:.2f}x)."
    )
    others = table.loc[table["verdict"] == OPEN, "gamma"].astype(str).tolist()
    if others:
        noun = "Gamma" if len(others) == 1 else "Gammas"
        said += f" {noun} {named(others)} may be faster: the log cannot decide."
    return gamma, said
