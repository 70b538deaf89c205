"""Do several methods put the same domains in the same order? Kendall's W, and what it and the
spread between domains would be if the domains did not matter.

The methods ran on the same prompts, so a prompt that is easy for one is often easy for another.
Permutations therefore move whole prompts, with all their methods, between the domains.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from speclab.analysis.significance import holm
from speclab.plain import Array
from speclab.score import ALL, POOLED, Estimator
from speclab.stats import Draws, Interval, jointly, resampling_of

PERMUTATIONS = 2000


def kendalls_w(values: Array) -> Array:
    """Kendall's W of the orders of D domains by m methods, values (..., m, D): 1 if all methods
    agree, near 1/m if they share no order. Ties have their mean rank.
    """
    methods, domains = values.shape[-2:]
    ranks = rankdata(values, axis=-1)
    sums = ranks.sum(axis=-2)
    spread = ((sums - sums.mean(axis=-1, keepdims=True)) ** 2).sum(axis=-1)
    most = methods**2 * (domains**3 - domains) / 12
    w: Array = spread / most
    return w


def best_over_worst(values: Array) -> Array:
    """The largest of D values divided by the smallest, (..., D) to (...)."""
    ratios: Array = values.max(axis=-1) / values.min(axis=-1)
    return ratios


@dataclass(frozen=True)
class Orders:
    """Values of methods in domains: `draws` of the sample and its resamples, one entry per method,
    and `by_chance` (n, methods, domains), with prompts permuted between the domains.
    """

    draws: Draws
    by_chance: Array

    @classmethod
    def of(
        cls, frames: Mapping[str, pd.DataFrame], estimator: Estimator, n: int = PERMUTATIONS
    ) -> "Orders":
        """Frames of the methods, with the same prompts. ValueError if the prompts differ."""
        draws = jointly({name: (frame, estimator) for name, frame in frames.items()})
        each = [resampling_of(frame, 1) for frame in frames.values()]
        totals = [
            prompts.totals(estimator.columns(frame))
            for prompts, frame in zip(each, frames.values(), strict=True)
        ]
        domain = each[0].domain
        rng = np.random.default_rng([0, 3])
        moved = rng.permuted(np.tile(domain, (n, 1)), axis=1)
        is_in = moved[..., None] == np.arange(domain.max() + 1)
        sums = [np.einsum("npd,pk->ndk", is_in, total, optimize=True) for total in totals]
        return cls(draws, np.stack([estimator.number(one) for one in sums], axis=1))

    @property
    def values(self) -> Array:
        """Values (1 + n, methods, domains) of the sample and its resamples."""
        each = [frame.drop(columns=[ALL, POOLED]) for frame in self.draws.values.values()]
        return np.stack([frame.to_numpy() for frame in each], axis=1)

    def agreement(self) -> dict[str, float]:
        """Kendall's W: estimate, low, high and n_prompts; `unrelated`, its mean for orders that are
        drawn at random, and p_value (one-sided: how often these agree as much); `shared` and
        p_shared, the same where the domains do not matter and the methods share only the prompts.
        """
        prompts = self.draws.prompts
        interval = Interval.of(kendalls_w(self.values), prompts, "Kendall's W")
        size, *shape = self.by_chance.shape
        drawn = np.random.default_rng([0, 4]).random((max(size, PERMUTATIONS), *shape))
        unrelated, shared = kendalls_w(drawn), kendalls_w(self.by_chance)
        facts = {
            "unrelated": unrelated.mean(),
            "p_value": share_as_high(interval.estimate, unrelated),
            "shared": shared.mean(),
            "p_shared": share_as_high(interval.estimate, shared),
        }
        return vars(interval) | facts

    def spreads(self) -> pd.DataFrame:
        """How much the domains differ, one row per method: method, highest and lowest (domains),
        estimate (the value in the highest over the value in the lowest), low, high (these two
        domains, resampled), by_chance (the mean ratio of the extremes of permuted domains), p_value
        (one-sided), p_holm (over the methods).
        """
        rows = []
        for index, (name, draws) in enumerate(self.draws.values.items()):
            of_domains = draws.drop(columns=[ALL, POOLED]).iloc[0]
            first, last = of_domains.idxmax(), of_domains.idxmin()
            ratio = (draws[first] / draws[last]).to_numpy()
            interval = Interval.of(ratio, self.draws.prompts, name)
            chance = best_over_worst(self.by_chance[:, index])
            facts = {"by_chance": chance.mean(), "p_value": share_as_high(ratio[0], chance)}
            rows.append({"method": name, "highest": first, "lowest": last} | vars(interval) | facts)
        table = pd.DataFrame(rows)
        return table.assign(p_holm=holm(table["p_value"]))


def share_as_high(observed: float, by_chance: Array) -> float:
    """One-sided p-value of a permutation test. The sample itself counts."""
    as_high = by_chance >= observed - 1e-12
    return float((1 + as_high.sum()) / (1 + len(by_chance)))
