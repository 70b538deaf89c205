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

from speclab.analysis.significance import paired_difference
from speclab.cost import block_efficiency_iid, speedup_standard
from speclab.replay import RULES, STARTS, chain_sums, rates
from speclab.score import Estimator, divide, domains_in, quotient, require
from speclab.stats import BOUNDS, RESAMPLES, bootstrap, by_domain, prompts_of

COUNTS = ["blocks", "drafted", "accepted", "emitted"]
POSITIONS = ["positions", "accept", "pairs", "before", "after", "both"]
TAU = Estimator(
    "block_efficiency", lambda frame: frame[["emitted", "blocks"]].to_numpy(np.float64), quotient
)
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
    the token, as in `replay`). ValueError: unknown rule, missing columns.
    """
    if rule not in RULES:
        raise ValueError(f"rule = {rule!r} is unknown; allowed: {', '.join(RULES)}")
    sampled, names = rule == "rejection", ["prompt_id", "domain", "position"]
    rows = require(
        trace,
        [*names, *(["p_token", "q_token", "overlap"] if sampled else ["draft_rank"])],
        "trace",
    ).sort_values(names)
    own = (
        np.minimum(1.0, rows["q_token"] / rows["p_token"]) if sampled else rows["draft_rank"] == 0
    ).astype(float)
    following = own.shift(-1).where(rows["prompt_id"] == rows["prompt_id"].shift(-1))
    sums = rows[["prompt_id", "domain"]].assign(
        positions=1.0,
        accept=rows["overlap"].astype(float) if sampled else own,
        pairs=following.notna().astype(float),
        before=own.where(following.notna(), 0.0),
        after=following.fillna(0.0),
        both=(own * following).fillna(0.0),
    )
    return sums.groupby(["prompt_id", "domain"], observed=True).sum().reset_index()


def per_prompt(sums: pd.DataFrame, at: pd.DataFrame) -> pd.DataFrame:
    """One row a prompt: the counts of its blocks for every gamma (blocks_1, … emitted_G) and its
    sums of `positions`.

    `sums` has gamma = 1..G without a gap, prompt_id, domain and COUNTS: a `replay.chain_sums`, or the
    same counts from decoding. ValueError if a gamma is left out, or the prompts of both differ.
    """
    require(sums, ["gamma", "prompt_id", "domain", *COUNTS], "sums")
    gammas = sorted(sums["gamma"].unique())
    if gammas != list(range(1, len(gammas) + 1)):
        raise ValueError(
            f"sums has gamma = {[int(g) for g in gammas]}: give every gamma from 1 on, none left out"
        )
    table = sums.pivot(index=["prompt_id", "domain"], columns="gamma", values=COUNTS)
    table.columns = [f"{name}_{gamma}" for name, gamma in table.columns]
    merged = table.reset_index().merge(at, on=["prompt_id", "domain"])
    if table.isna().any(axis=None) or not len(merged) == len(table) == len(at):
        raise ValueError("sums and positions hold different prompts: make both from one trace")
    return merged


def block_efficiency_markov(alpha, lag1, gamma, starts: str = "visited"):
    """Tokens per target pass of an endless text in which acceptance is a two-state Markov chain:
    mean `alpha`, lag-1 correlation `lag1`.

    starts: "visited" blocks of a decoder (a block starts behind a rejection, or behind a bonus
    token), or "every" position. At lag1 = 0 both are `cost.block_efficiency_iid`. Arguments
    broadcast. A chain that never changes (lag1 = 1) has no visited average: NaN.
    """
    if starts not in STARTS:
        raise ValueError(f"starts = {starts!r} is unknown; allowed: {', '.join(STARTS)}")
    alpha, lag1, gamma = (np.asarray(value, np.float64) for value in (alpha, lag1, gamma))
    hit = np.clip(alpha + lag1 * (1 - alpha), 0, 1)  # P(accepted) right behind an acceptance,
    miss = np.clip(alpha * (1 - lag1), 0, 1)  # and right behind a rejection
    run = np.where(
        gamma > 1, block_efficiency_iid(hit, np.maximum(gamma - 1, 1)), 1.0
    )  # accepted in all, given that the first is
    if starts == "every":
        return (1 + alpha * run)[()]
    whole = (
        hit**gamma
    )  # P(all gamma accepted, and the bonus token would have been, given that the first is)
    easy = divide(
        miss * whole, 1 - (hit - miss) * whole
    )  # share of blocks behind such a bonus token, in the long run
    return (1 + (easy * hit + (1 - easy) * miss) * run)[()]


def estimators(
    largest: int, c: float, starts: str = "visited", verify: float = 1.0, overhead: float = 0.0
) -> dict[str, Estimator]:
    """Estimators on a `per_prompt` frame of gamma = 1..largest; `c`, verify and overhead as in
    `cost.speedup_standard`.

    Families by gamma: block_efficiency, draft_utilisation, speedup (standard model), iid and markov
    (block efficiency as predicted from alpha; from alpha and lag1), minus_iid and minus_markov
    (measured minus predicted). Numbers: alpha, lag1 (undefined without spread).
    """
    gammas = np.arange(1, largest + 1)
    wanted = [f"{name}_{gamma}" for name in COUNTS for gamma in gammas] + POSITIONS

    def columns(frame: pd.DataFrame) -> np.ndarray:
        return require(frame, wanted, "per_prompt frame")[wanted].to_numpy(np.float64)

    def value(name: str, totals: np.ndarray) -> np.ndarray:
        if (
            name == "speedup"
        ):  # expectations of one token a pass may come out a rounding error below it
            return speedup_standard(
                np.maximum(_quantities(totals, gammas, starts)["block_efficiency"], 1.0),
                gammas,
                c,
                verify,
                overhead,
            )
        return _quantities(totals, gammas, starts)[name]

    return {
        name: Estimator(name, columns, partial(value, name), scalar=name in ("alpha", "lag1"))
        for name in FAMILIES
    }


def _quantities(totals: np.ndarray, gammas: np.ndarray, starts: str) -> dict[str, np.ndarray]:
    """All that follows from sums (..., 4 G + 6) over prompts: COUNTS, each for every gamma, then
    POSITIONS.
    """
    parts = np.split(
        totals, np.cumsum([len(gammas)] * len(COUNTS) + [1] * len(POSITIONS))[:-1], axis=-1
    )
    blocks, drafted, accepted, emitted, count, accept, pairs, before, after, both = parts
    tau, alpha = divide(emitted, blocks), divide(accept, count)
    first, second = divide(before, pairs), divide(after, pairs)
    spread = np.sqrt(np.maximum(first * (1 - first) * second * (1 - second), 0.0))
    lag1 = divide(
        divide(both, pairs) - first * second, spread
    )  # of 0 and 1, from sums of their probabilities
    iid, markov = (
        block_efficiency_iid(alpha, gammas),
        block_efficiency_markov(alpha, np.nan_to_num(lag1), gammas, starts),
    )
    return {
        "block_efficiency": tau,
        "draft_utilisation": divide(accepted, drafted),
        "iid": iid,
        "markov": markov,
        "minus_iid": tau - iid,
        "minus_markov": tau - markov,
        "alpha": alpha,
        "lag1": lag1,
    }


def by_gamma(
    frame: pd.DataFrame, known: dict[str, Estimator], n: int = RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """Every family of `estimators` with prompt-clustered intervals: quantity, domain (and all,
    pooled), gamma, estimate, low, high, …
    """
    parts = [
        by_domain(frame, family, n, seed).assign(quantity=name)
        for name, family in known.items()
        if not family.scalar
    ]
    table = pd.concat(parts, ignore_index=True)
    table["gamma"] = table.pop("estimator").str.extract(r"\[(\d+)\]")[0].astype(int)
    return table[
        [
            "quantity",
            "domain",
            "gamma",
            *(c for c in table if c not in ("quantity", "domain", "gamma")),
        ]
    ]


def gap_parts(
    frame: pd.DataFrame, known: dict[str, Estimator], trace: pd.DataFrame, gamma: int
) -> pd.DataFrame:
    """Why block efficiency is not what the i.i.d.

    formula says, by domain, at one gamma; `frame` and `known` of visited blocks.

    replay_minus_iid (low, high) = from_text_end (i.i.d. acceptance replayed over texts of the
    trace's lengths, minus the formula) + from_lag1 (formula of the Markov chain minus i.i.d.) +
    rest (prompts that differ, longer memory). Beside them alpha and lag1.
    """
    tables = {
        name: by_domain(frame, known[name])
        for name in ("alpha", "lag1", "iid", "markov", "minus_iid")
    }
    members = {
        name: t if known[name].scalar else t[t["estimator"] == f"{name}[{gamma}]"]
        for name, t in tables.items()
    }
    alpha, lag1, iid, markov, gap = (
        table.set_index("domain").loc[list(domains_in(frame))] for table in members.values()
    )
    alike = trace.assign(
        p_token=1.0, q_token=trace["domain"].map(alpha["estimate"])
    )  # accepted with alpha everywhere
    ends = rates(chain_sums(alike, [gamma], "rejection")).set_index("domain")["block_efficiency"]
    table = pd.DataFrame(
        {
            "alpha": alpha["estimate"],
            "alpha_low": alpha["low"],
            "alpha_high": alpha["high"],
            "lag1": lag1["estimate"],
            "lag1_low": lag1["low"],
            "lag1_high": lag1["high"],
            "replay_minus_iid": gap["estimate"],
            "low": gap["low"],
            "high": gap["high"],
            "from_text_end": ends - iid["estimate"],
            "from_lag1": markov["estimate"] - iid["estimate"],
        }
    ).loc[alpha.index]
    return table.assign(
        rest=table["replay_minus_iid"] - table["from_text_end"] - table["from_lag1"]
    ).reset_index()


def beside(decoded: pd.DataFrame, replayed: pd.DataFrame) -> pd.DataFrame:
    """Block efficiency counted by a decoder beside the replay's on the same prompts, one row a
    gamma, prompts of all domains together.

    Both have gamma, prompt_id and COUNTS (`decoded_sweep`, `replay.chain_sums`). Columns: gamma, decoded
    (low, high), replayed, difference = decoded - replayed (difference_low, difference_high; prompts
    paired), prompts, unequal (prompts whose blocks or tokens differ). ValueError if the gammas or
    prompts differ.
    """
    rows, keys = [], ["gamma", "prompt_id", *COUNTS]
    if set(decoded["gamma"]) != set(replayed["gamma"]):
        raise ValueError(
            f"decoded gammas {sorted(set(decoded['gamma']))} are not the replayed {sorted(set(replayed['gamma']))}"
        )
    for gamma, real in require(decoded, keys, "decoded").groupby("gamma"):
        real, read = (
            frame.drop(columns="domain", errors="ignore").sort_values(
                "prompt_id", ignore_index=True
            )
            for frame in (real, require(replayed, keys, "replayed").query("gamma == @gamma"))
        )
        own, gap = bootstrap(real, TAU), paired_difference(real, read, TAU)
        unequal = int(
            (real[["blocks", "emitted"]] - read[["blocks", "emitted"]])
            .abs()
            .gt(1e-9)
            .any(axis=1)
            .sum()
        )
        rows.append(
            (
                gamma,
                own.estimate,
                own.low,
                own.high,
                TAU(read),
                gap.estimate,
                gap.low,
                gap.high,
                len(real),
                unequal,
            )
        )
    return pd.DataFrame(
        rows,
        columns=[
            "gamma",
            "decoded",
            "low",
            "high",
            "replayed",
            "difference",
            "difference_low",
            "difference_high",
            "prompts",
            "unequal",
        ],
    )


def best_gamma(
    frame: pd.DataFrame, speedup: Estimator, n: int = RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """How sure the best gamma is: domain, gamma, speedup, share_best, behind, behind_low,
    behind_high; one row a domain and gamma.

    gamma 0 is plain decoding, speed-up 1. share_best: share of the resamples (of prompts) in which
    this gamma is the fastest (the smallest of equals); behind: speed-up of the sample's fastest
    gamma minus this one's, its 95 % interval from the same resamples.
    """
    prompts = prompts_of(frame, n, seed)
    draws = speedup.value(
        prompts.resampled(prompts.totals(speedup.columns(frame)))
    )  # (1 + n, domains, G)
    draws = np.concatenate([np.ones_like(draws[..., :1]), draws], axis=-1)
    parts = []
    for domain, values in zip(prompts.domains, np.moveaxis(draws, 1, 0), strict=True):
        fastest, size = values.argmax(axis=-1), values.shape[-1]
        behind = values[:, fastest[0], None] - values
        low, high = np.quantile(behind[1:], BOUNDS, axis=0)
        share = np.bincount(fastest[1:], minlength=size) / n
        parts.append(
            pd.DataFrame(
                {
                    "domain": domain,
                    "gamma": range(size),
                    "speedup": values[0],
                    "share_best": share,
                    "behind": behind[0],
                    "behind_low": low,
                    "behind_high": high,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def choices(best: pd.DataFrame) -> pd.DataFrame:
    """Each domain's choice from `best_gamma`: domain, best, best_low, best_high (the resamples'
    central 95 %), share, speedup, as_good_low, as_good_high: the least and the largest gamma that
    cannot be told apart from the best (the interval of `behind` reaches 0).
    """
    rows = []
    for domain, table in best.groupby("domain", sort=False):
        top, share = table.loc[table["speedup"].idxmax()], table["share_best"].cumsum()
        low, high = (int(table["gamma"][share >= bound - 1e-12].iloc[0]) for bound in BOUNDS)
        good = table["gamma"][table["behind_low"] <= 0]
        rows.append(
            (
                domain,
                int(top["gamma"]),
                low,
                high,
                top["share_best"],
                top["speedup"],
                int(good.min()),
                int(good.max()),
            )
        )
    return pd.DataFrame(
        rows,
        columns=[
            "domain",
            "best",
            "best_low",
            "best_high",
            "share",
            "speedup",
            "as_good_low",
            "as_good_high",
        ],
    )
