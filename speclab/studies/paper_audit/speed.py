"""The claims about speed at every cost of a grid: c, the cost of a draft pass in target passes, and
the slope of v(n) = 1 + slope (n - 1). Both depend on the machine and the pair, and the paper names
neither (0.29, often quoted for its models, is for both in f16, but the paper's target is in 4 bit).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from speclab import replay, score
from speclab.analysis import choose
from speclab.analysis.claims import Evidence, attempt, from_draws, rows_of
from speclab.analysis.texts import Text
from speclab.cost import block_cost
from speclab.stats import Draws, jointly

GAMMAS = range(1, 17)  # from which the best gamma is chosen
PAPER_DEPTH, ARTICLE_GAMMA = 3, 4
Grid = Sequence[tuple[float, float]]


def speed_claims(text: Text, grid: Grid) -> Evidence:
    """Evidence for the claims that depend on the cost, at every (c, slope) of the grid, from
    replayed chains. The best gamma is chosen again in every resample.
    """
    sums = {gamma: replay.prompt_sums(text.chain(gamma)) for gamma in GAMMAS}
    per_pass = score.ratio_of("emitted", "blocks")
    chains = {gamma: (rows, per_pass) for gamma, rows in sums.items()}
    draws = jointly(chains | {"acceptance": (text.trace, text.acceptance)})
    parts = defaultdict(list)
    for c, slope in grid:
        for claim, (name, numbers) in at_cost(draws, c, slope).items():
            rows = from_draws(f"{name}, {text.chain_rule} rule", draws, numbers)
            parts[claim].append(rows.assign(c=c, slope=slope))
    evidence = {(claim, text.name): pd.concat(rows) for claim, rows in parts.items()}
    evidence["budgets", text.name] = attempt(budget_gains, sums, grid, text.chain_rule)
    return evidence


def at_cost(draws: Draws, c: float, slope: float) -> dict[str, tuple[str, Any]]:
    """By claim at one cost: the name of its number, and the number's draws. draws: tokens per
    target pass of each gamma, and `acceptance`.
    """
    cost = {gamma: block_cost(gamma, c, 1 + slope * gamma) for gamma in GAMMAS}
    speed = {gamma: draws[gamma] / cost[gamma] for gamma in GAMMAS}

    def best_gamma(domain: str) -> pd.Series:
        speedups = pd.DataFrame({gamma: own[domain] for gamma, own in speed.items()})
        speedups.insert(0, 0, 1.0)  # plain decoding
        return pd.Series(choose.fastest(speedups))

    math = best_gamma("math")
    chat = best_gamma("chat")
    pays = speed[PAPER_DEPTH][["math", "code"]]
    accepted = ARTICLE_GAMMA * draws["acceptance"]
    by_rule = accepted / (accepted * c + 1)
    ratio = by_rule / speed[ARTICLE_GAMMA]
    return {
        "routing": (f"speed-up, chain of {PAPER_DEPTH}", pays.to_dict("series")),
        "gamma-contrast": ("best gamma, difference", {"math - chat": math - chat}),
        "gamma-proofs": ("best gamma", {"math": math}),
        "gamma-open": ("best gamma", {"chat": chat}),
        "rule": (f"rule / replay, chain of {ARTICLE_GAMMA}", ratio),
    }


def budget_gains(chains: Mapping[int, pd.DataFrame], grid: Grid, rule: str) -> pd.DataFrame:
    """How much faster one gamma per domain is than one gamma for all, as a share, by cost
    (`choose.gain`: cross-fitted, and chosen again in every resample). chains: for each gamma, the
    sums of its blocks by prompt.
    """
    by_prompt = {gamma: rows.set_index(["prompt_id", "domain"]) for gamma, rows in chains.items()}
    sums = pd.concat(by_prompt, names=["setting"]).sort_index()
    gamma = sums.index.get_level_values("setting")
    gains = []
    for c, slope in grid:
        cost = block_cost(gamma, c, 1 + slope * gamma)
        table = sums.assign(cost=cost * sums["blocks"])
        gain = choose.gain(choose.PromptCosts(table))
        gains.append(vars(gain) | {"c": c, "slope": slope, "domain": "all"})
    return rows_of(f"gain of one gamma per domain, {rule} rule", pd.DataFrame(gains))
