"""What a block costs on a machine, and what should be drafted there for which domain (notebook 09,
sections 1 and 2; notebook 14 serves at the same costs).

Speeds are predicted: replayed tokens over the cost of their blocks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from speclab.analysis import choose
from speclab.analysis.choose import PLAIN_SETTING, Choice, PromptCosts
from speclab.cost import Costs, disturbed
from speclab.estimates import Estimates, yes_or_no
from speclab.score import POOLED
from speclab.shapes import parse_shape
from speclab.stats import BELOW, MIN_PROMPTS, NUMBERS, Draws, Resampling, verdict
from speclab.tree import Tree

REFUSED = "no verdict, timing unreliable"


def settings_up_to(max_gamma: int, budget: int) -> dict[str, Tree]:
    """The settings to choose from: plain, chains of up to `max_gamma` tokens, and static trees of 2
    to 4 levels, 2 or 3 children a node and up to `budget` nodes; of equal trees the first.
    """
    names = [PLAIN_SETTING, *(f"chain:{gamma}" for gamma in range(1, max_gamma + 1))]
    for depth, branches in product((2, 3, 4), (2, 3)):
        sizes = range(branches, budget + 1)
        names += [f"tree:{depth},{branches},{nodes}" for nodes in sizes]
    different: dict[tuple, tuple[str, Tree]] = {}
    for name in names:
        tree = parse_shape(name).tree
        form = (*tree.parent, *tree.rank)
        different.setdefault(form, (name, tree))
    return dict(different.values())


# ---- the clock -----------------------------------------------------------------------------------


def is_trusted(costs: Costs) -> bool:
    """Whether timing was reliable; if not, nothing is concluded about speed."""
    return not disturbed(costs)


def with_clock(
    speeds: Draws, choices: Mapping[str, Choice], clocks: Sequence[PromptCosts]
) -> Draws:
    """`choose.speeds` of these choices, with the uncertainty of timing in their resamples: each
    resample is judged at the costs of one of `clocks` (of `timing.Measured.resampled`), the same
    for every choice.

    The settings of a choice stay as they are while its cost changes.
    """
    settings = {name: choice.settings for name, choice in choices.items()}
    by_clock = []
    for by_prompt in clocks:
        judged = {name: Choice(by_prompt.judged(fixed)) for name, fixed in settings.items()}
        by_clock.append(choose.speeds(judged, n=1).values)
    values = {}
    for name, draws in speeds.values.items():
        sample, resamples = draws[:1], draws[1:]
        ratios = [drawn[name].iloc[0] / draws.iloc[0] for drawn in by_clock]
        factors = np.stack(ratios)
        clock = drawn_clocks(len(resamples), len(clocks))
        values[name] = pd.concat([sample, resamples * factors[clock]])
    return replace(speeds, values=values)


def drawn_clocks(n: int, clocks: int) -> np.ndarray:
    """Which clock's costs judge each of n resamples, int64 (n,): the same in every call."""
    return np.random.default_rng(4).integers(0, clocks, n)


def note_on_few(prompts: Resampling) -> str:
    """That numbers over all domains have no interval, where a domain has too few prompts."""
    if prompts.fewest >= MIN_PROMPTS:
        return ""
    return f" A domain has fewer than {MIN_PROMPTS} prompts, so these numbers have no interval."


# ---- what to draft -------------------------------------------------------------------------------


def recommend(by_prompt: PromptCosts, costs: Costs, speeds: Draws) -> Estimates:
    """What to draft in each domain, from the costs of settings (plain among them) on a machine:
    domain, setting (the fastest of all), share_best (the share of resamples in which it is the
    fastest; missing below 5 prompts), and its speed-up, which `speeds` hold as "own": each prompt
    judged by the setting that was fastest on other prompts of its domain; `speculate`
    (`_speculate`).
    """
    fastest = choose.fastest_rows(choose.best_setting(by_prompt))
    is_few = fastest["n_prompts"] < MIN_PROMPTS
    fastest = fastest.assign(share_best=fastest["share_best"].mask(is_few))
    advice = fastest.loc[fastest["domain"] != POOLED, ["domain", "setting", "share_best"]]
    speedup = speeds.table({"own": speeds["own"]}).frame[["domain", *NUMBERS]]
    table = advice.merge(speedup, on="domain")
    verdicts = [_speculate(row, costs) for row in table.itertuples()]
    return Estimates(table.assign(speculate=verdicts))


def _speculate(row: Any, costs: Costs) -> str:
    """Yes, no or inconclusive, by the interval's verdict on 1 (no also where plain itself is the
    fastest in 95 % of the resamples); REFUSED where timing is unreliable.
    """
    if not is_trusted(costs):
        return REFUSED
    surely_plain = row.setting == PLAIN_SETTING and row.share_best >= 0.95
    return yes_or_no(BELOW if surely_plain else verdict(row.low, row.high, 1))
