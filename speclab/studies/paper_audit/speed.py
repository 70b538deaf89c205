"""The claims about speed, at every cost of a grid: c, a draft pass in target passes, and the slope of
v(n) = 1 + slope (n - 1). Both are the machine's and the pair's, and the paper names neither (0.29,
often quoted for its models, is for both in f16, where its target is in 4 bit).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd

from speclab import replay, score
from speclab.analysis import choose
from speclab.analysis.claims import Answer, from_draws, rows_of
from speclab.analysis.texts import Text
from speclab.stats import Draws, jointly

GAMMAS = range(1, 17)  # where the best gamma is looked for
PAPER_DEPTH, ARTICLE_GAMMA = 3, 4
Grid = Sequence[tuple[float, float]]


def chain_cost(gamma: int, c: float, slope: float) -> float:
    """Target passes that a block of gamma drafted tokens costs: gamma c + v(gamma + 1)."""
    return gamma * c + 1 + slope * gamma


def speed_claims(text: Text, grid: Grid) -> dict[str, Answer]:
    """The claims that depend on the cost, by id, each with its rows at every (c, slope) of the
    grid: replayed chains, the best gamma chosen again in every resample.
    """
    sums = {gamma: replay.prompt_sums(text.chain(gamma)) for gamma in GAMMAS}
    per_pass = score.ratio_of("emitted", "blocks")
    asked = {gamma: (rows, per_pass) for gamma, rows in sums.items()}
    draws = jointly(asked | {"acceptance": (text.trace, text.acceptance)})
    parts = defaultdict(list)
    for c, slope in grid:
        for claim, table in at_cost(draws, c, slope, text.chain_rule).items():
            parts[claim].append(table.assign(c=c, slope=slope))
    answers = {claim: partial(pd.concat, tables) for claim, tables in parts.items()}
    answers["budgets"] = partial(budget_gains, sums, grid, text.chain_rule)
    return answers


def at_cost(draws: Draws, c: float, slope: float, rule: str) -> dict[str, pd.DataFrame]:
    """Evidence at one cost, by claim, from the draws of each gamma's tokens per target pass and of
    `acceptance`; rule: of the chains.
    """
    speed = {gamma: draws[gamma] / chain_cost(gamma, c, slope) for gamma in GAMMAS}

    def best_gamma(domain: str) -> pd.Series:
        plain = np.ones(len(draws[1]))
        speedups = [plain, *(numbers[domain] for numbers in speed.values())]
        return pd.Series(choose.fastest(np.stack(speedups, axis=1)))

    math, chat = best_gamma("math"), best_gamma("chat")
    pays = speed[PAPER_DEPTH][["math", "code"]].to_dict("series")
    accepted = ARTICLE_GAMMA * draws["acceptance"]
    by_rule = accepted / (accepted * c + 1)
    ratio = by_rule / speed[ARTICLE_GAMMA]
    numbers = {
        "routing": (f"speed-up, chain of {PAPER_DEPTH}", pays),
        "gamma-contrast": ("best gamma, difference", {"math - chat": math - chat}),
        "gamma-proofs": ("best gamma", {"math": math}),
        "gamma-open": ("best gamma", {"chat": chat}),
        "rule": (f"rule / replay, chain of {ARTICLE_GAMMA}", ratio),
    }
    return {claim: from_draws(f"{name}, {rule} rule", draws, found) for claim, (name, found) in numbers.items()}


def budget_gains(chains: Mapping[int, pd.DataFrame], grid: Grid, rule: str) -> pd.DataFrame:
    """How much faster a gamma for each domain is than one for all, as a share, by cost
    (`choose.gain`: cross-fitted, and chosen again in every resample). chains: the sums of each
    gamma's blocks by prompt.
    """
    sums = pd.concat(chains, names=["setting"]).set_index(["prompt_id", "domain"], append=True)
    sums = sums.droplevel(1).sort_index()
    gamma = sums.index.get_level_values("setting")
    gains = []
    for c, slope in grid:
        cost = sums["blocks"] * chain_cost(gamma, c, slope)
        table = pd.DataFrame({"emitted": sums["emitted"], "cost": cost})
        gain = choose.gain(choose.Prices(table))
        gains.append(vars(gain) | {"c": c, "slope": slope, "row": "all"})
    return rows_of(f"gain of a gamma a domain, {rule} rule", pd.DataFrame(gains), "row")
