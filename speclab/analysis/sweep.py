"""How many tokens to draft: tokens per target pass, wasted drafts and estimated speed-up by gamma,
beside what independence predicts.

All of it is a function of one row a prompt (`per_prompt`): sums over its blocks for each gamma,
whoever made the blocks (a replay, or a real decoder), and sums over its positions. So every
quantity is a `score.Estimator` family whose members are gamma = 1, 2, …, and `speclab.stats` gives
its prompt-clustered intervals. NumPy and pandas only.
"""

from functools import partial

import numpy as np
import pandas as pd

from speclab import replay
from speclab.analysis import choose
from speclab.cost import block_efficiency_iid, speedup_standard
from speclab.score import Estimator, divide, require
from speclab.show.estimates import stack
from speclab.stats import RESAMPLES, by_domain, levels_of, resampling_of

COUNTS = ["blocks", "drafted", "accepted", "emitted"]
POSITIONS = ["positions", "accept", "pairs", "before", "after", "both"]
FAMILIES = (
    "block_efficiency",
    "draft_utilisation",
    "speedup",
    "iid",
    "markov",
    "minus_iid",
    "minus_markov",
    "alpha",
    "lag1",
)


def positions(trace: pd.DataFrame, rule: str = "greedy") -> pd.DataFrame:
    """Per-prompt sums of the acceptance of a first draft token: prompt_id, domain and POSITIONS.

    accept: over positions, its probability given the context (draft_rank 0; rejection rule:
    overlap); pairs: of neighbouring positions; before, after, both: over pairs, the probability
    that the first, the second, both accept their token of the text (rejection rule: min(1, q/p) of
    the token, as in `replay`). ValueError: missing columns.
    """
    names = ["prompt_id", "domain", "position"]
    if rule == "rejection":
        rows = require(
            trace, [*names, "p_token", "q_token", "overlap"], "trace"
        ).sort_values(names)
        own = np.minimum(1.0, rows["q_token"] / rows["p_token"]).astype(float)
        accept = rows["overlap"].astype(float)
    else:
        rows = require(trace, [*names, "draft_rank"], "trace").sort_values(names)
        own = accept = (rows["draft_rank"] == 0).astype(float)
    following = own.shift(-1).where(_followed(rows))
    sums = rows[["prompt_id", "domain"]].assign(
        positions=1.0,
        accept=accept,
        pairs=following.notna().astype(float),
        before=own.where(following.notna(), 0.0),
        after=following.fillna(0.0),
        both=(own * following).fillna(0.0),
    )
    return sums.groupby(["prompt_id", "domain"], observed=True).sum().reset_index()


def _followed(rows: pd.DataFrame) -> pd.Series:
    """Is the next row the next position of the same text? (Rows may have been left out.)"""
    after = rows.shift(-1)
    same_text = rows["prompt_id"] == after["prompt_id"]
    return same_text & (rows["position"] + 1 == after["position"])


def per_prompt(sums: pd.DataFrame, at: pd.DataFrame) -> pd.DataFrame:
    """One row a prompt: the counts of its blocks for every gamma (blocks_1, … emitted_G) and its
    sums of `positions`.

    `sums` has gamma = 1..G without a gap, prompt_id, domain and COUNTS: a `replay.chain_sums`, or
    the same counts from decoding.
    """
    table = sums.pivot(index=["prompt_id", "domain"], columns="gamma", values=COUNTS)
    table.columns = [f"{name}_{gamma}" for name, gamma in table.columns]
    merged = table.reset_index().merge(at, on=["prompt_id", "domain"])
    assert len(merged) == len(table) == len(at), (
        "sums and positions hold different prompts"
    )
    return merged


def replayed(
    trace: pd.DataFrame, largest: int, rule: str = "greedy", starts: str = "visited"
) -> pd.DataFrame:
    """`per_prompt` of the replay of a trace at gamma = 1..largest."""
    sums = replay.chain_sums(trace, range(1, largest + 1), rule, starts)
    return per_prompt(sums, positions(trace, rule))


def block_efficiency_markov(alpha, lag1, gamma, starts: str = "visited"):
    """Tokens per target pass of an endless text in which acceptance is a two-state Markov chain:
    mean `alpha`, lag-1 correlation `lag1`.

    starts: "visited" blocks of a decoder (a block starts behind a rejection, or behind a bonus
    token), or "every" position. At lag1 = 0 both are `cost.block_efficiency_iid`. Arguments
    broadcast. A chain that never changes (lag1 = 1) has no visited average: NaN.
    """
    alpha, lag1, gamma = (
        np.asarray(value, np.float64) for value in (alpha, lag1, gamma)
    )
    after_hit = np.clip(
        alpha + lag1 * (1 - alpha), 0, 1
    )  # P(accepted) behind an acceptance
    after_miss = np.clip(alpha * (1 - lag1), 0, 1)  # and behind a rejection
    # tokens accepted in a row, given that the first is
    run = np.where(
        gamma > 1, block_efficiency_iid(after_hit, np.maximum(gamma - 1, 1)), 1.0
    )
    if starts == "every":
        return (1 + alpha * run)[()]
    # given that the first is: P(all gamma accepted, and the bonus token would have been)
    whole = after_hit**gamma
    # share of blocks that start behind such a bonus token, in the long run
    easy = divide(after_miss * whole, 1 - (after_hit - after_miss) * whole)
    return (1 + (easy * after_hit + (1 - easy) * after_miss) * run)[()]


def estimators(largest: int, c: float, starts: str = "visited") -> dict[str, Estimator]:
    """Estimators on a `per_prompt` frame of gamma = 1..largest, by name (FAMILIES).

    Families by gamma: block_efficiency, draft_utilisation, speedup (standard model at `c`), iid and
    markov (block efficiency as predicted from alpha; from alpha and lag1), minus_iid and
    minus_markov (measured minus predicted). Numbers: alpha, lag1 (undefined without spread).
    """
    gammas = np.arange(1, largest + 1)
    wanted = [f"{name}_{gamma}" for name in COUNTS for gamma in gammas] + POSITIONS

    def columns(frame: pd.DataFrame) -> np.ndarray:
        return require(frame, wanted, "per_prompt frame")[wanted].to_numpy(np.float64)

    def value(name: str, totals: np.ndarray) -> np.ndarray:
        return _quantities(totals, gammas, c, starts)[name]

    return {
        name: Estimator(
            name, columns, partial(value, name), scalar=name in ("alpha", "lag1")
        )
        for name in FAMILIES
    }


def _quantities(
    totals: np.ndarray, gammas: np.ndarray, c: float, starts: str
) -> dict[str, np.ndarray]:
    """All that follows from sums (..., 4 G + 6) over prompts: COUNTS, each for every gamma, then
    POSITIONS; by name, (..., G) or (..., 1).
    """
    counts = len(COUNTS) * len(gammas)
    blocks, drafted, accepted, emitted = np.split(totals[..., :counts], 4, axis=-1)
    at = dict(
        zip(POSITIONS, np.moveaxis(totals[..., counts:, None], -2, 0), strict=True)
    )
    alpha = divide(at["accept"], at["positions"])
    before, after, both = (
        divide(at[name], at["pairs"]) for name in ("before", "after", "both")
    )
    spread = np.sqrt(np.maximum(before * (1 - before) * after * (1 - after), 0.0))
    lag1 = divide(both - before * after, spread)
    tau = divide(emitted, blocks)
    iid = block_efficiency_iid(alpha, gammas)
    markov = block_efficiency_markov(alpha, np.nan_to_num(lag1), gammas, starts)
    return {
        "block_efficiency": tau,
        "draft_utilisation": divide(accepted, drafted),
        # an expectation of one token a pass may come out a rounding error below it
        "speedup": speedup_standard(np.maximum(tau, 1.0), gammas, c),
        "iid": iid,
        "markov": markov,
        "minus_iid": tau - iid,
        "minus_markov": tau - markov,
        "alpha": alpha,
        "lag1": lag1,
    }


def by_gamma(
    frame: pd.DataFrame, known: dict[str, Estimator], n: int = RESAMPLES
) -> pd.DataFrame:
    """Every family of `estimators` with prompt-clustered intervals: quantity, domain (and all,
    pooled), gamma, estimate, low, high, …
    """
    parts = {
        name: by_domain(frame, family, n)
        for name, family in known.items()
        if not family.scalar
    }
    table = stack(parts, "quantity")
    gamma = table.pop("estimator").str.extract(r"\[(\d+)\]")[0].astype(int)
    table.insert(2, "gamma", gamma)
    return table


def best_gamma(
    frame: pd.DataFrame, speedup: Estimator, n: int = RESAMPLES
) -> pd.DataFrame:
    """How sure the best gamma is, for each domain: domain, gamma, and the rest of
    `choose.how_sure`. gamma 0 is plain decoding, speed-up 1.
    """
    prompts = resampling_of(frame, n)
    sums = prompts.resampled(
        prompts.totals(speedup.columns(frame))
    )  # [1 + n, domains, columns]
    draws = np.insert(speedup.value(sums), 0, 1.0, axis=-1)
    best = choose.sure_by_domain(draws, range(draws.shape[-1]), prompts)
    return best.rename(columns={"setting": "gamma"})


def choices(best: pd.DataFrame) -> pd.DataFrame:
    """Each domain's choice from `best_gamma`: domain, best, best_low, best_high (95 % of the
    resamples' choices, `stats.levels_of`), share, speedup, as_good_low, as_good_high: the
    least and the largest gamma that cannot be told apart from the best (the interval of `behind`
    reaches 0).
    """
    rows = []
    for domain, table in best.groupby("domain", sort=False):
        top = table.iloc[choose.fastest(table["speedup"])]
        reached = table["share_best"].cumsum() + 1e-12
        levels = levels_of(table["n_prompts"].iloc[0])
        low, high = (table["gamma"][reached >= level].iloc[0] for level in levels)
        as_good = table["gamma"][table["behind_low"] <= 0]
        rows.append(
            {
                "domain": domain,
                "best": int(top["gamma"]),
                "best_low": int(low),
                "best_high": int(high),
                "share": top["share_best"],
                "speedup": top["speedup"],
                "as_good_low": int(as_good.min()),
                "as_good_high": int(as_good.max()),
            }
        )
    return pd.DataFrame(rows)
