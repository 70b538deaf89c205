"""What a block costs on a machine, and what should be drafted there for which domain (notebook 09,
sections 1 and 2; notebook 14 serves at the same prices).

Speeds are predicted: replayed tokens over the price of their blocks.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from speclab.analysis import choose
from speclab.analysis.choose import PLAIN, Prices
from speclab.cost import Costs, disturbed
from speclab.draft import Shape, parse_shape
from speclab.models import timing
from speclab.models.pairs import Pair
from speclab.prompts import EncodedPrompt
from speclab.score import POOLED
from speclab.show.estimates import NUMBERS, Estimates
from speclab.tree import Tree

REFUSED = "refused: the clock was disturbed"


def settings_up_to(max_gamma: int, budget: int) -> dict[str, Tree]:
    """The settings to choose from: plain, chains of up to `max_gamma` tokens, and static trees of 2
    to 4 levels, 2 or 3 children a node and up to `budget` nodes; of equal trees the first.
    """
    chains = [f"chain:{gamma}" for gamma in range(1, max_gamma + 1)]
    trees = [
        f"tree:{depth},{branches},{nodes}"
        for depth in (2, 3, 4)
        for branches in (2, 3)
        for nodes in range(branches, budget + 1)
    ]
    different: dict[tuple, tuple[str, Tree]] = {}
    for name in (PLAIN, *chains, *trees):
        shape = parse_shape(name).tree
        key = (*shape.parent, *shape.rank)
        different.setdefault(key, (name, shape))
    return dict(different.values())


# ---- the clock -----------------------------------------------------------------------------------


def timed_passes(
    pair: Pair, context: int, repeats: int, tries: int
) -> tuple[pd.DataFrame, int]:
    """`timing.pass_times`, taken again up to `tries` times while the clock is disturbed (v(n) below
    LEAST_V, or quartiles further apart than their median): the first undisturbed round, or else the
    one of least spread; and how many rounds were taken.

    This looks at the clock only, never at what the prices lead to.
    """
    rounds = []
    for number in range(1, tries + 1):
        times = timing.pass_times(pair, timing.SIZES, context, repeats)
        costs = timing.costs_of(times)
        if is_trusted(costs) and timing.spread(times) <= 1:
            return times, number
        rounds.append(times)
    return min(rounds, key=timing.spread), tries


def is_trusted(costs: Costs) -> bool:
    """Whether no v(n) is below LEAST_V: else nothing is concluded about speed."""
    return not disturbed(costs.verify)


def measured(
    pair: Pair,
    encoded: Sequence[EncodedPrompt],
    probed: Sequence[EncodedPrompt],
    probes: Iterable[str],
    new_tokens: int,
    repeats: int,
    tries: int,
) -> tuple[Costs, str]:
    """The prices of this machine, and what is to be said of them: single passes are timed behind a
    median prompt with half a continuation (`timed_passes`), the loop from `probed` prompts that are
    decoded once with the shapes `probes` (`with_measured_loop`).
    """
    lengths = [len(prompt.ids) for prompt in encoded]
    context = int(np.median(lengths)) + new_tokens // 2
    times, rounds = timed_passes(pair, context, repeats, tries)
    shapes = {name: parse_shape(name) for name in probes}
    speeds = timing.decoded_speed(pair, list(probed), shapes, new_tokens, repeats=1)
    costs = with_measured_loop(timing.costs_of(times), speeds, shapes)
    passes = ", ".join(f"v({n}) = {costs.v(n):.2f}" for n in (2, 4, 9))
    loops = f"{costs.overhead:.2f} for a chain and {costs.loop(False):.2f} for a tree"
    return costs, (
        f"Measured here: c = {costs.c():.3f}, {passes}, o = {loops}. Largest spread of a timed "
        f"pass: {timing.spread(times):.0%} (rounds timed: {rounds}). {disturbed(costs.verify)}"
    )


def with_measured_loop(
    costs: Costs, speeds: pd.DataFrame, shapes: Mapping[str, Shape]
) -> Costs:
    """c and v of `costs` with the loop's own time, from texts decoded in turn
    (`timing.decoded_speed`, methods named as the shapes, and plain).

    It is the time of a block over that of a plain token of the same prompt, less the block's
    passes: the median over prompts and shapes, chains and trees apart; 0 where it drowns in the
    noise, and for a kind that was not decoded. So the price of a block is relative to what plain
    decoding takes.
    """
    each = timing.medians(speeds).query("method != @PLAIN")
    token_s = each["plain_s"] / each["tokens"]
    block = each["time_s"] / each["blocks"] / token_s
    bare = replace(costs, overhead=0.0)
    passes = {name: bare.of_block(shape.tree) for name, shape in shapes.items()}
    is_chain = {name: shape.tree.is_chain for name, shape in shapes.items()}
    left = block - each["method"].map(passes)
    kind = each["method"].map(is_chain)
    loops = left.groupby(kind).median().clip(lower=0.0)
    chain, branched = loops.reindex([True, False], fill_value=0.0)
    return replace(costs, overhead=chain, tree_overhead=branched)


# ---- what to draft -------------------------------------------------------------------------------


def recommend(prices: Prices, costs: Costs) -> Estimates:
    """What to draft in each domain, from the prices of settings (plain among them) at `costs`:
    domain, setting (the fastest of all), share_best (of the resamples of prompts in which it is),
    and its speed-up, each prompt judged by the setting that was fastest on other prompts of its
    domain, which is chosen again in every resample; `speculate` (`_speculate`).
    """
    best = choose.fastest_rows(choose.best_setting(prices))
    own = choose.fit(prices)
    judged = choose.speeds({"own": own}).table()
    best = best[best["domain"] != POOLED][["domain", "setting", "share_best"]]
    table = best.merge(judged[["domain", *NUMBERS]], on="domain")
    told = [_speculate(row, costs) for row in table.itertuples()]
    return Estimates(table.assign(speculate=told))


def _speculate(row, costs: Costs) -> str:
    """Yes, no or inconclusive, by the interval's side of 1 (no also where plain itself is the
    fastest in 95 % of the resamples); REFUSED where the prices are not trusted.
    """
    if not is_trusted(costs):
        return REFUSED
    surely_plain = row.setting == PLAIN and row.share_best >= 0.95
    if surely_plain or row.high < 1:
        return "no"
    return "yes" if row.low > 1 else "inconclusive"
