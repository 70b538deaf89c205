"""How robust is the choice (section 6)? Settings chosen from wrong acceptance, or at another
temperature, and judged on the true texts.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from speclab.analysis import choose
from speclab.analysis.choose import PLAIN, Settings
from speclab.cost import Costs
from speclab.show.estimates import Estimates
from speclab.studies.budgets_and_routing.machines import chains_of
from speclab.studies.budgets_and_routing.serving import NEVER

MISESTIMATED, WARM = "acceptance misestimated, T = 0", "served at T = 1"
NEVER_ACCEPTED = np.iinfo(np.int32).max  # a rank that no tree has


def perturb(trace: pd.DataFrame, factor: float, seed: int = 0) -> pd.DataFrame:
    """A trace whose share of positions with draft_rank 0 is `factor` times as large, in
    expectation, in every domain.

    Below 1 some first-rank positions, drawn at random, are missed by every tree; above 1 some
    others become first-rank. T = 0 and point-mass only.
    """
    rank = trace["draft_rank"]
    hit = rank == 0
    drawn = np.random.default_rng(seed).random(len(trace))
    if factor <= 1:
        return trace.assign(
            draft_rank=rank.mask(hit & (drawn >= factor), NEVER_ACCEPTED)
        )
    share = hit.groupby(trace["domain"], observed=True).transform("mean")
    assert (factor * share <= 1).all(), "a domain's acceptance would pass 1"
    gained = (factor - 1) * share / (1 - share).clip(1e-12)
    return trace.assign(draft_rank=rank.mask(~hit & (drawn < gained), 0))


def factors(trace: pd.DataFrame) -> tuple[float, float]:
    """A tenth less, and a tenth more (or as much more as leaves every acceptance at 1)."""
    hit = trace["draft_rank"] == 0
    most = 1 / hit.groupby(trace["domain"], observed=True).mean().max()
    return 0.9, min(1.1, most)


def misestimated(
    trace: pd.DataFrame,
    settings: Settings,
    costs: Costs,
    believed: Sequence[float],
    folds: int = 5,
) -> pd.DataFrame:
    """What it costs to choose per domain from acceptance that is wrong by a factor: `paired_speeds`
    with the choice from the truth (`x1`); all choose again in every resample.
    """
    true = choose.price(choose.block_counts(trace, settings), settings, costs)
    frames = {"x1": choose.cross_fit(true, folds=folds)}
    again = {"x1": choose.refitted(true, folds=folds)}
    for factor in believed:
        counted = choose.block_counts(perturb(trace, factor), settings)
        wrong = choose.price(counted, settings, costs)
        name = f"x{factor:g}"
        frames[name] = choose.cross_fit(wrong, folds=folds, paid=true)
        again[name] = choose.refitted(wrong, folds=folds, paid=true)
    return choose.paired_speeds(frames, "x1", again=again)


def sampled_prices(
    trace: pd.DataFrame, settings: Settings, costs: Costs, max_new_tokens: int
) -> choose.Prices:
    """Prices on sampled text: chains by the rejection rule, trees by point mass."""
    chains = chains_of(settings)
    trees = {name: shape for name, shape in settings.items() if name not in chains}
    counted = [
        choose.block_counts(trace, chains, "rejection", max_new_tokens),
        choose.block_counts(trace, trees, "point-mass", max_new_tokens),
    ]
    return choose.price(pd.concat(counted, ignore_index=True), settings, costs)


def other_temperature(cold: choose.Prices, warm: choose.Prices) -> pd.DataFrame:
    """Settings chosen at T = 1 and at T = 0, serving text sampled at T = 1: `paired_speeds`; both
    choose again in every resample.
    """
    frames = {
        "chosen at T = 1": choose.cross_fit(warm),
        "chosen at T = 0": choose.cross_fit(cold, paid=warm),
        NEVER: warm.judged(PLAIN),
    }
    again = {
        "chosen at T = 1": choose.refitted(warm),
        "chosen at T = 0": choose.refitted(cold, paid=warm),
    }
    return choose.paired_speeds(frames, "chosen at T = 1", again=again)


def together(wrong: pd.DataFrame, warm: pd.DataFrame) -> Estimates:
    """Both questions in one table: question, policy, quantity, domain."""
    found = Estimates.stacked({MISESTIMATED: wrong, WARM: warm}, "question", digits=3)
    return found.without(domain="all")
