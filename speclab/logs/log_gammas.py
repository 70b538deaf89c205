"""Which gamma to try, from the passes of a log.

A log says at most positions of its texts whether the draft's best token was the target's
(`passes.trace_of`). So another gamma has hard bounds: a lower one if every unknown position is a
miss, an upper one if it is a hit. At the log's own draft length both are equal. They hold for
chains of a separate draft model at T = 0 (`why_no_bounds` says what else a log may be). The data
cannot say more than the bounds, however many requests there are; intervals add what the choice of
requests leaves open.

The bounds of a longer draft are wide, so the highest lower bound is mostly the log's own gamma (in
16 of 24 trials on a recorded run, up to 24 % slower than the fastest). Between its bounds a gamma
has an estimate: what the log's passes accept at each depth, and beyond its last depth what they
accept there (`bounded_speeds`). A gamma is *known* by its lower bound and *to be tried* by its
estimate.

Speed-ups are estimates: tokens per target pass divided by the cost of a block (`cost.Costs`).
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from speclab import score, stats
from speclab.cost import Costs
from speclab.estimates import BELOW, UNDEFINED, named
from speclab.lab import choose
from speclab.logs import passes
from speclab.logs.passes import HITS, MISSES
from speclab.logs.readers import MODEL
from speclab.score import POOLED
from speclab.stats import Draws

PER_PASS = score.ratio_of("emitted", "blocks", "block_efficiency")
SPEED = score.ratio_of("emitted", "cost", "speed-up")
LOGGED = "as logged"  # in place of a gamma: the log's own draft lengths, which vary
NO_OTHER = "So it decides nothing about another gamma."
NO_PASSES = "The log has totals per request only, and no counts per pass."
ESTIMATE = "estimate"  # beside the bounds: by acceptance at the depths of the log
WORTH = 0.005  # a gamma is to be tried if its estimate gains this over what is known
# what is said of a gamma compared with the known one, whose lower bound is the highest
KNOWN, TRY = "known: highest lower bound", "to try: highest estimate"
SLOWER = "significantly slower"
OPEN, TIED = "undecided: bounds overlap", "no significant difference"
TOO_FEW = "lower, too few requests"


def why_no_bounds(log: pd.DataFrame | None, drafts: str = MODEL, temperature: float = 0.0) -> str:
    """Why the passes of a log (None: it has totals only) say nothing about another gamma, as
    sentences; "": they give bounds. drafts: what drafted; only chains of a MODEL have bounds.
    """
    if log is None:
        return f"{NO_PASSES} {NO_OTHER}"
    if drafts != MODEL:
        return f"The drafts are {drafts}, and no chains of a draft model. {NO_OTHER}"
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
    """Draws of the estimated speed-up, named (gamma, MISSES) and (gamma, HITS) for its bounds and
    (gamma, ESTIMATE), on the same resampled requests.

    Gamma 0 is plain decoding, with speed-up 1. If the log's drafts have no fixed length, LOGGED is
    the log itself, at the lengths that it drafted; both bounds are equal, and the estimates are the
    lower bounds. Else an estimate has the log's tokens per target pass, less what it accepts below
    gamma, or more by what a longer draft would: each further depth is accepted as often as the
    log's last depth, if all tokens above were. ValueError: as of `passes.trace_of`, and for a
    target pass that `costs` do not reach.
    """
    gammas, own = list(gammas), own_gamma(log)
    cost_of = {gamma: costs.of_chain(gamma) for gamma in gammas}
    # the bounds
    questions: dict[Any, Any] = {}
    for unknown in (MISSES, HITS):
        sums = passes.sums_at(log, gammas, unknown)
        sums["cost"] = sums["blocks"] * sums["gamma"].map(cost_of)
        questions |= {(gamma, unknown): (rows, SPEED) for gamma, rows in sums.groupby("gamma")}
    if own is None:
        cost = costs.of_chain(log["drafted"].to_numpy())
        logged = passes.sum_counts(log, cost=cost, emitted=log["emitted"])
        questions |= {(LOGGED, unknown): (logged, SPEED) for unknown in (MISSES, HITS)}
    draws = stats.jointly(questions)
    plain = pd.DataFrame(1.0, *draws[gammas[0], MISSES].axes)
    values = {(0, kind): plain for kind in (MISSES, HITS, ESTIMATE)} | draws.values
    if own is None:
        values |= {(gamma, ESTIMATE): draws[gamma, MISSES] for gamma in (*gammas, LOGGED)}
        return replace(draws, values=values)
    # the estimates, on the same resampled requests
    depths = range(1, own + 1)
    reached = np.minimum(log["drafted"], log["remaining"]) >= own
    reached &= log["accepted"] >= own - 1
    by_depth = {str(depth): log["accepted"] >= depth for depth in depths}
    counts = passes.sum_counts(log, emitted=log["emitted"], blocks=1, reached=reached, **by_depth)
    ratios: dict[Any, Any] = {depth: score.ratio_of(str(depth), "blocks") for depth in depths}
    ratios |= {"tokens": PER_PASS, "last": score.ratio_of(str(own), "reached")}
    parts = stats.jointly({name: (counts, ratio) for name, ratio in ratios.items()})
    again = parts["last"].fillna(0)
    for gamma, cost in cost_of.items():
        deeper = sum(again**more for more in range(1, gamma - own + 1))
        tokens = parts["tokens"] + parts[own] * deeper
        below = sum(parts[depth] for depth in depths[gamma:])
        values[gamma, ESTIMATE] = (tokens - below) / cost
    return replace(draws, values=values)


def bounds(speed: Draws, domain: str = POOLED) -> pd.DataFrame:
    """One row per gamma, in the order of `speed` (of `bounded_speeds`).

    least, most: the lower and the upper bound of the speed-up in the sample; estimate: between
    them. low, least_high: the interval of the lower bound; high: the upper end of the upper bound's
    interval (NaN: fewer than 5 requests). verdict: KNOWN for the gamma with the highest lower
    bound; TRY for the one with the highest estimate, if it is higher by WORTH. Any other gamma is
    SLOWER if its upper bound minus the known lower bound is significantly negative, OPEN if its
    upper bound is above that lower bound, else TIED (TOO_FEW: no interval). Unknown positions are
    misses for one gamma and hits for the other, although both have the same text. So OPEN may be
    too cautious, and SLOWER is not.
    """
    gammas = list(dict.fromkeys(key[0] for key in speed.values))
    least, most, guess = (
        np.stack([speed[gamma, kind][domain] for gamma in gammas], axis=1)
        for kind in (MISSES, HITS, ESTIMATE)
    )
    sizes = speed.prompts.sizes
    n_prompts = sizes.get(domain, speed.prompts.fewest)
    known = int(choose.fastest(least[0].round(9)))
    guess = guess[0].clip(least[0], most[0])
    tried = int(choose.fastest(guess.round(9)))
    gap = most - least[:, [known]]
    sides = stats.verdict(*stats.bounds_of(gap[1:], n_prompts))
    cases = [sides == BELOW, gap[0] > 1e-9, sides == UNDEFINED]
    words = np.select(cases, [SLOWER, OPEN, TOO_FEW], TIED).astype(object)
    if guess[tried] >= (1 + WORTH) * least[0, known]:
        words[tried] = TRY
    words[known] = KNOWN
    low, least_high = stats.bounds_of(least[1:], n_prompts)
    return pd.DataFrame(
        {
            "gamma": gammas,
            "least": least[0],
            "most": most[0],
            "estimate": guess,
            "low": low,
            "least_high": least_high,
            "high": stats.bounds_of(most[1:], n_prompts)[1],
            "verdict": words,
        }
    )


def known_and_tried(table: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Of `bounds`, the row of the gamma that is known and of the one to try: the same row if no
    other has an estimate that is worth a try.
    """
    known, tried = (table[table["verdict"] == verdict] for verdict in (KNOWN, TRY))
    return known.iloc[0], (known if tried.empty else tried).iloc[0]


def gamma_to_try(log: pd.DataFrame, costs: Costs, longest: int = 8) -> tuple[int, str]:
    """The gamma to try (0: plain), of 0 to `longest` and the log's own, and sentences that explain
    it and name the gamma that is known. Conditions and errors as of `bounded_speeds`.
    """
    gammas = sorted({*range(1, longest + 1), own_gamma(log) or 1})
    speed = bounded_speeds(choose.choose_for_all(log), gammas, costs)
    numbers = {key: draws for key, draws in speed.values.items() if key[0] != LOGGED}
    table = bounds(replace(speed, values=numbers))
    known, tried = known_and_tried(table)
    verb, gain = "Use", ""
    if tried["gamma"] != known["gamma"]:
        verb, gain = "Try", f": {tried['estimate']:.2f}x is expected"
    said = (
        f"{verb} gamma = {tried['gamma']}{gain}. Of 0 (plain) to {gammas[-1]}, gamma = "
        f"{known['gamma']} has the highest lower bound of the estimated speed-up, "
        f"{known['least']:.2f}x (upper bound {known['most']:.2f}x)."
    )
    others = table.loc[table["verdict"] == OPEN, "gamma"].astype(str).tolist()
    if others:
        said += f" The log cannot decide whether gamma {named(others)} is faster."
    return int(tried["gamma"]), said
