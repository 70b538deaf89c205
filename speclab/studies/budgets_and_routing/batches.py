"""At which batch size must drafting stop (section 5)?

Whenever a block ends, waiting requests join until `batch` are active; then all make one block
together: a draft pass a level over all their nodes, and one target pass over all their tokens.
`batched` prices a request where batches are always full, so that everything in
`speclab.analysis.choose` can be asked of a batch; `lockstep` simulates a queue that empties.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

import numpy as np
import pandas as pd

from speclab.analysis import choose
from speclab.analysis.choose import PLAIN, Settings
from speclab.cost import Costs
from speclab.score import POOLED
from speclab.show.estimates import Estimates, direction
from speclab.studies.budgets_and_routing.machines import that_draft
from speclab.tree import Tree

SIMULATED = "simulated: a batch that empties"


def flat_until(knee: int, c: float) -> Costs:
    """An assumed accelerator: a pass takes no longer until it holds `knee` tokens, and then grows
    in proportion; a draft pass costs c of it.
    """
    return Costs(1.0, (1, knee, 16 * knee), (c, c, 16 * c), (1.0, 1.0, 16.0))


def extended(costs: Costs, largest: int) -> Costs:
    """`costs` up to passes over `largest` tokens.

    Beyond the last measured size this is an extrapolation: a straight line with the slope from the
    largest size of at most half of it to the last one; it never falls.
    """
    last = costs.sizes[-1]
    if largest <= last or last == 1:
        return costs
    half = max(n for n in costs.sizes if n <= last / 2)

    def onward(ratio: Callable[[int], float]) -> float:
        slope = max(ratio(last) - ratio(half), 0.0) / (last - half)
        return ratio(last) + slope * (largest - last)

    sizes = (*costs.sizes, int(largest))
    draft, verify = (*costs.draft, onward(costs.c)), (*costs.verify, onward(costs.v))
    return replace(costs, sizes=sizes, draft=draft, verify=verify)


def batched(costs: Costs, batch: int, nodes: int) -> Costs:
    """The machine as one request sees it in batches of `batch` that are always full, all drafting
    trees of the same shape.

    Its target pass over one token is its share of one over `batch` tokens (target_ms v(batch) /
    batch), and the others are ratios to it: v(n batch) / v(batch), c(n batch) / v(batch), the
    overhead of a block once a batch. `nodes`: tokens of the largest pass a request needs. Passes
    beyond the measured sizes are `extended`.
    """
    wide, sizes = extended(costs, batch * nodes), tuple(range(1, nodes + 1))
    one = wide.v(batch)
    return Costs(
        costs.target_ms * one / batch,
        sizes,
        tuple(wide.c(n * batch) / one for n in sizes),
        tuple(wide.v(n * batch) / one for n in sizes),
        costs.overhead / one,
        costs.loop(False) / one,
    )


def by_batch(
    counted: pd.DataFrame,
    settings: Settings,
    machines: Mapping[str, Costs],
    batches: Sequence[int],
    n: int = 500,
) -> Estimates:
    """Speed-up of the best drafting setting in full batches: machine, batch, domain (and pooled);
    `setting`, and `pass_tokens` of its target pass over the whole batch.
    """
    shapes, parts = that_draft(settings), []
    largest = 1 + max(shape.size for shape in shapes.values())
    for machine, costs in machines.items():
        for batch in batches:
            prices = choose.price(counted, shapes, batched(costs, batch, largest))
            best = choose.fastest_rows(choose.best_setting(prices, n))
            tokens = [batch * (shapes[name].size + 1) for name in best["setting"]]
            parts.append(best.assign(machine=machine, batch=batch, pass_tokens=tokens))
    table = pd.concat(parts, ignore_index=True).rename(columns={"speedup": "estimate"})
    keys, numbers = ["machine", "batch", "domain"], ["estimate", "low", "high"]
    names = [*keys, *numbers, "setting", "pass_tokens"]
    return Estimates(table[names])


def settings_table(crowd: Estimates) -> pd.DataFrame:
    """The best drafting setting by machine and batch, a column a domain."""
    rows = crowd.without(domain=POOLED).frame
    table = rows.pivot(index=["machine", "batch"], columns="domain", values="setting")
    in_order = table.loc[
        list(pd.unique(rows["machine"])), list(pd.unique(rows["domain"]))
    ]
    return in_order.rename_axis(columns=None).reset_index()


# ---- in lock step --------------------------------------------------------------------------------


def levels_drafted(
    trace: pd.DataFrame, shape: Tree, max_new_tokens: int | None = None
) -> dict[str, np.ndarray]:
    """The levels that are drafted in each block of every recorded text (T = 0), int [blocks], by
    prompt_id; max_new_tokens as of `choose.block_counts`.
    """
    made = choose.blocks_of(trace, shape, max_new_tokens=max_new_tokens)
    by_prompt = made.groupby("prompt_id", sort=False)["levels"]
    return {name: levels.to_numpy() for name, levels in by_prompt}


def lockstep(
    requests: Sequence[np.ndarray], shape: Tree, batch: int, costs: Costs
) -> float:
    """When the last of the requests (`levels_drafted` of each), all waiting from the start, is done
    on a server that makes the blocks of up to `batch` of them together; in target passes.

    A step in which somebody drafts also costs the overhead. Passes over more tokens than were
    measured are refused (`extended`).
    """
    nodes = np.bincount(
        shape.depth
    ).cumsum()  # of a tree cut at each level, the root included
    parents = [
        (shape.width[shape.level(depth)] > 0).sum() for depth in range(shape.max_depth)
    ]
    waiting = [list(levels) for levels in requests]
    active: list[list[int]] = []
    clock = 0.0
    while waiting or active:
        joining = batch - len(active)
        active, waiting = active + waiting[:joining], waiting[joining:]
        levels = np.array([blocks.pop(0) for blocks in active])
        widths = [
            int(count * (levels > depth).sum()) for depth, count in enumerate(parents)
        ]
        clock += sum(costs.c(width) for width in widths if width)
        clock += costs.v(int(nodes[levels].sum()))
        clock += costs.loop(shape.is_chain) if levels.any() else 0.0
        active = [blocks for blocks in active if blocks]
    return clock


def lockstep_speeds(
    crowd: Estimates,
    trace: pd.DataFrame,
    settings: Settings,
    costs: Costs,
    max_new_tokens: int,
) -> Estimates:
    """`lockstep` of the same texts and settings as one machine's rows of `by_batch`, all arriving
    at once: speed-up over plain decoding by machine (which says so), batch and domain; no interval.
    """
    rows = crowd.without(domain=POOLED).frame
    wide = extended(costs, int(rows["pass_tokens"].max()))
    ids = trace.groupby("domain")["prompt_id"].unique()
    levels = {
        name: levels_drafted(trace, settings[name], max_new_tokens)
        for name in {PLAIN, *rows["setting"]}
    }
    speeds = []
    for row in rows.itertuples():
        plain, drafted = (
            lockstep(
                [levels[name][i] for i in ids[row.domain]],
                settings[name],
                row.batch,
                wide,
            )
            for name in (PLAIN, row.setting)
        )
        speeds.append(plain / drafted)
    return Estimates(
        rows.assign(machine=SIMULATED, estimate=speeds, low=np.nan, high=np.nan)
    )


def with_simulation(crowd: Estimates, simulation: Estimates) -> Estimates:
    """The closed form and the simulation in one table, machines named shortly, for a figure."""
    rows = pd.concat(
        [crowd.without(domain=POOLED).frame, simulation.frame], ignore_index=True
    )
    return Estimates(
        rows.assign(machine=rows["machine"].str.replace(", c = .*", "", regex=True))
    )


def largest_priced(crowd: Estimates, costs: Costs) -> int:
    """The largest batch whose target passes were all measured; larger ones are `extended`."""
    largest = crowd.frame.groupby("batch")["pass_tokens"].max()
    return int(largest.index[largest <= costs.sizes[-1]].max())


def one_at_a_time_agrees(crowd: Estimates, simulation: Estimates) -> bool:
    """In batches of one the simulation is the closed form."""
    keys = ["batch", "domain"]
    both = crowd.frame.merge(simulation.frame, on=keys).query("batch == 1")
    return bool(np.allclose(both["estimate_x"], both["estimate_y"], rtol=1e-6))


# ---- where to stop -------------------------------------------------------------------------------


def turning(rows: pd.DataFrame) -> tuple[int | None, int | None, bool]:
    """Up to which batch drafting pays and from which it slows, each holding at every batch before
    or after too (None: at none); and whether it never turns, as batches grow, from losing to
    undecided or paying, nor from undecided to paying. From speed-ups by batch (batch, low, high):
    an interval wholly above 1 pays, one wholly below 1 slows.
    """
    rows = rows.sort_values("batch")
    verdict = [direction(row, 1, -1, 0, than=1) for row in rows.itertuples()]
    batches = rows["batch"].tolist()
    paying = len([*takewhile(lambda one: one == 1, verdict)])
    slowing = len([*takewhile(lambda one: one == -1, reversed(verdict))])
    pays_to = batches[paying - 1] if paying else None
    off_from = batches[-slowing] if slowing else None
    return pays_to, off_from, verdict == sorted(verdict, reverse=True)


def turning_in_words(crowd: Estimates) -> str:
    """Where drafting must stop on one machine, by domain, as a sentence."""
    groups = crowd.without(domain=POOLED).frame.groupby("domain", sort=False)
    said = []
    for domain, rows in groups:
        pays_to, off_from, steady = turning(rows)
        unsteady = "" if steady else ", but not in one direction"
        pays = f"cannot be told to pay at {rows['batch'].min()}"
        slows = f"cannot be told to slow at {rows['batch'].max()}"
        if pays_to:
            pays = f"pays up to {pays_to}"
        if off_from:
            slows = f"slows from {off_from} on"
        said.append(f"in {domain} it {pays}, and {slows}{unsteady}")
    return "; ".join(said)
