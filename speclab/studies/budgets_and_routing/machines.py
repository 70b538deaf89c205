"""What a block costs on a machine, and what should be drafted there for which domain (section 1).

A machine is a `Costs`: measured here, or assumed. Speeds are predicted: replayed tokens over
the price of their blocks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from speclab.analysis import choose
from speclab.analysis.choose import PLAIN, Settings
from speclab.cost import Costs
from speclab.draft import Shape, parse_shape
from speclab.models import timing
from speclab.models.pairs import Pair
from speclab.score import POOLED, domains_in
from speclab.show.estimates import Estimates, stack
from speclab.stats import RESAMPLES, bounds_of, resampling_of
from speclab.tree import Tree

C_GRID = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0)
CHAINS, ALL_SETTINGS = "best chain", "best chain or tree"
LEAST_V = 0.95  # a pass over several tokens cannot cost less than over one


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
        different.setdefault((*shape.parent, *shape.rank), (name, shape))
    return dict(different.values())


def chains_of(settings: Settings) -> dict[str, Tree]:
    """The settings without branches: plain and the chains."""
    return {name: shape for name, shape in settings.items() if shape.is_chain}


def that_draft(settings: Settings) -> dict[str, Tree]:
    """The settings without plain."""
    return {name: shape for name, shape in settings.items() if shape.size}


# ---- the clock -----------------------------------------------------------------------------------


def assumed(c: float) -> Costs:
    """A machine that was not measured: a draft pass of any width costs c, v = 1, o = 0."""
    return Costs.on_a_line(c)


def timed_passes(
    pair: Pair, context: int, repeats: int, tries: int
) -> tuple[pd.DataFrame, int]:
    """`timing.pass_times`, taken again up to `tries` times while the clock is disturbed: the first
    undisturbed round, or else the one of least spread; and how many rounds were taken.

    This looks at the clock only, never at what the prices lead to.
    """
    rounds = []
    while len(rounds) < tries and not any(map(_is_steady, rounds)):
        rounds.append(timing.pass_times(pair, timing.SIZES, context, repeats))
    best = min(rounds, key=lambda times: (not _is_steady(times), timing.spread(times)))
    return best, len(rounds)


def _is_steady(times: pd.DataFrame) -> bool:
    """No v(n) below LEAST_V, and no pass whose quartiles lie further apart than its median."""
    return min(timing.costs_of(times).verify) >= LEAST_V and timing.spread(times) <= 1


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
    each = speeds.groupby(["method", "prompt_id"])[
        ["tokens", "blocks", "time_s"]
    ].median()
    token_s = (each["time_s"] / each["tokens"]).loc[PLAIN]
    block_s = each["time_s"] / each["blocks"]
    bare = replace(costs, overhead=0.0)
    loops: dict[bool, list[float]] = {True: [], False: []}
    for name, shape in shapes.items():
        left = block_s.loc[name] / token_s - bare.of_block(shape.tree)
        loops[shape.tree.is_chain] += left.to_list()
    chain, branched = (
        max(0.0, float(np.median(own))) if own else 0.0 for own in loops.values()
    )
    return replace(costs, overhead=chain, tree_overhead=branched)


def in_words(costs: Costs, times: pd.DataFrame, rounds: int) -> str:
    """The measured prices in a sentence, and a warning where the clock was disturbed."""
    passes = ", ".join(f"v({n}) = {costs.v(n):.2f}" for n in (2, 4, 9))
    said = (
        f"Measured here: c = {costs.c():.3f}, {passes}, o = {costs.overhead:.2f} for a chain and "
        f"{costs.tree_overhead:.2f} for a tree. Largest spread of a timed pass: "
        f"{100 * timing.spread(times):.0f} % (rounds timed: {rounds})."
    )
    if min(costs.verify) >= LEAST_V:
        return said
    return said + (
        f" **Warning**: v falls to {min(costs.verify):.2f}, but a pass over several tokens cannot "
        "cost less than over one: the clock was disturbed; run this again."
    )


# ---- what to draft -------------------------------------------------------------------------------


def recommend(
    counted: pd.DataFrame,
    settings: Settings,
    machines: Mapping[str, Costs],
    n: int = RESAMPLES,
) -> pd.DataFrame:
    """What to draft, by machine and domain, from `choose.block_counts` of settings with plain.

    machine, domain, setting (the fastest of all), share_best (of the resamples of prompts in which
    it is), gamma of the fastest chain and name of the fastest tree (0 and "none" where none is
    faster than plain), speculate ("yes", "no", "cannot be told": where the interval lies to 1), and
    speedup, low, high, each prompt judged by the setting that was fastest on other prompts of its
    domain, which is chosen again in every resample.
    """
    chains, rows = chains_of(settings), []
    for machine, costs in machines.items():
        prices = choose.price(counted, settings, costs)
        sure = choose.best_setting(prices, n)
        own = {"own": choose.cross_fit(prices)}
        again = {"own": choose.refitted(prices, n=n)}
        honest = choose.paired_speeds(own, "own", n, again=again).set_index("domain")
        for domain in domains_in(prices.prompts):
            own = sure[sure["domain"] == domain]
            top = choose.fastest_rows(own).iloc[0]
            is_chain = own["setting"].isin(list(chains))
            speed = honest.loc[domain]
            rows.append(
                {
                    "machine": machine,
                    "domain": domain,
                    "setting": top["setting"],
                    "share_best": top["share_best"],
                    "gamma": settings[_faster_than_plain(own[is_chain])].size,
                    "tree": _faster_than_plain(own[~is_chain]).replace(PLAIN, "none"),
                    "speculate": _speculate(top, speed),
                    "speedup": speed["estimate"],
                    "low": speed["low"],
                    "high": speed["high"],
                }
            )
    return pd.DataFrame(rows)


def _faster_than_plain(rows: pd.DataFrame) -> str:
    """The fastest of these settings, or plain."""
    faster = rows[rows["speedup"] > 1]
    return PLAIN if faster.empty else choose.fastest_rows(faster)["setting"].iloc[0]


def _speculate(top: pd.Series, speed: pd.Series) -> str:
    """ "no" also where plain itself is the fastest in 95 % of the resamples."""
    surely_plain = top["setting"] == PLAIN and top["share_best"] >= 0.95
    if surely_plain or speed["high"] < 1:
        return "no"
    return "yes" if speed["low"] > 1 else "cannot be told"


def predicted(advice: pd.DataFrame) -> Estimates:
    """`recommend`'s speed-ups by machine and domain."""
    return Estimates(
        advice.rename(columns={"speedup": "estimate"})[
            ["machine", "domain", "estimate", "low", "high", "setting", "speculate"]
        ]
    )


def advice_numbers(advice: pd.DataFrame) -> dict[str, float | str]:
    """The main numbers of one machine's recommendations, as `code_speedup`, for ctx.record."""
    rows = advice.set_index("domain")[
        ["setting", "speedup", "low", "high", "speculate"]
    ]
    return {f"{domain}_{name}": value for (domain, name), value in rows.stack().items()}


# ---- other hardware ------------------------------------------------------------------------------


def best_by_c(
    counted: pd.DataFrame,
    settings: Settings,
    cs: Iterable[float] = C_GRID,
    n: int = RESAMPLES // 4,
) -> pd.DataFrame:
    """The fastest setting by c, for a user with other hardware (`assumed`: v = 1, o = 0): c, domain
    (and pooled), setting, levels and the columns of `choose.how_sure`.
    """
    parts = []
    for c in cs:
        best = choose.best_setting(choose.price(counted, settings, assumed(c)), n)
        parts.append(choose.fastest_rows(best).assign(c=c))
    table = pd.concat(parts, ignore_index=True)
    return table.assign(levels=[settings[name].max_depth for name in table["setting"]])


def curves_by_kind(counted: pd.DataFrame, settings: Settings) -> pd.DataFrame:
    """`best_by_c` of the chains alone and of all settings; `allowed` says which."""
    kinds = {CHAINS: chains_of(settings), ALL_SETTINGS: settings}
    parts = {name: best_by_c(counted, allowed) for name, allowed in kinds.items()}
    return stack(parts, "allowed")


def cells_by_c(by_c: pd.DataFrame) -> pd.DataFrame:
    """The table of `curves_by_kind`: a row a kind and c, cells such as 'chain:4 1.56'."""
    cells = by_c["setting"] + " " + by_c["speedup"].map("{:.2f}".format)
    wide = by_c.assign(cell=cells).pivot(
        index=["allowed", "c"], columns="domain", values="cell"
    )
    return wide[list(pd.unique(by_c["domain"]))].rename_axis(columns=None).reset_index()


def panels_by_c(by_c: pd.DataFrame) -> Estimates:
    """What to draw of `curves_by_kind`: the gamma of the best chain (0: do not speculate), and the
    speed-ups; panel, c, domain.
    """
    rows = by_c[by_c["domain"] != POOLED].rename(columns={"speedup": "estimate"})
    chain = rows[rows["allowed"] == CHAINS]
    gamma = chain.assign(estimate=chain["levels"], low=np.nan, high=np.nan)
    parts = {"gamma of the best chain": gamma} | {
        f"speed-up of the {name}": rows[rows["allowed"] == name]
        for name in (CHAINS, ALL_SETTINGS)
    }
    table = Estimates.stacked(parts, "panel").frame
    return Estimates(table[["panel", "c", "domain", "estimate", "low", "high"]])


def break_even(
    counted: pd.DataFrame, settings: Settings, n: int = RESAMPLES
) -> Estimates:
    """The c above which no setting is faster than plain decoding (v = 1, o = 0), by domain (and
    pooled); `setting`: the last that pays.

    Exact: a cost is linear in c. A bound at 0 or below says that not even a free draft helps.
    """
    free, paid = (
        choose.price(counted, that_draft(settings), assumed(c)) for c in (0.0, 1.0)
    )
    prompts = resampling_of(free.prompts, n)
    emitted = choose.domain_sums(prompts, free.prompts[["emitted"]].to_numpy(float))
    fixed = choose.domain_sums(prompts, free.cost)
    passes = choose.domain_sums(prompts, paid.cost - free.cost)
    even = (emitted - fixed) / passes
    low, high = bounds_of(even[1:].max(axis=-1), prompts.fewest)
    return Estimates(
        pd.DataFrame(
            {
                "domain": [*prompts.domains, POOLED],
                "estimate": even[0].max(axis=-1),
                "low": low,
                "high": high,
                "setting": free.settings[even[0].argmax(axis=-1)],
            }
        )
    )
