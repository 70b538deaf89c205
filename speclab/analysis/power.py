"""Power of a study whose unit is the prompt: what so many prompts can show.

The probability that so many prompts find a difference between two domains, and the prompts that a
difference needs, from the spread between the prompts of a recorded run. The spread is that of the
prompts' influence on the estimator (infinitesimal jackknife; Efron 1982, The Jackknife, the
Bootstrap and Other Resampling Plans); the rest is the power of Student's t test of two
sides, by the noncentral t distribution: a permutation test of as many prompts has nearly that,
where the normal approximation promises more than few prompts hold (`tests/test_power.py` runs that
very test on redrawn prompts). Knows no model and no figure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.stats import ncf, t

from speclab.score import Estimator, domains_in
from speclab.stats import MIN_PROMPTS, resampling_of

STEP = 1e-4  # relative change in a derivative: its error is of the order of the square
MOST_ERRORS = 100.0  # standard errors: a difference of so many is always found
PLAN = ["estimator", "first", "second", "difference", "power", "needed"]


@dataclass(frozen=True)
class Design:
    """A comparison of two sides: `sd` / sqrt(prompts) is the standard error of the difference with
    `prompts` prompts a side.
    """

    sd: float

    def prompts_needed(
        self, difference: float, power: float = 0.8, level: float = 0.05, comparisons: int = 1
    ) -> int:
        """Prompts a side that find a true `difference` (not 0) with probability `power`; never
        below the 5 that an interval needs. `comparisons` as in `power`.
        """
        if not 0 < level < power < 1:
            raise ValueError(f"level={level}, power={power}: needed are 0 < level < power < 1")
        most = (MOST_ERRORS * self.sd / difference) ** 2 + MIN_PROMPTS

        def missing(prompts: float) -> float:
            return self.power(difference, prompts, level, comparisons) - power

        if missing(MIN_PROMPTS) >= 0:
            return MIN_PROMPTS
        return int(np.ceil(brentq(missing, MIN_PROMPTS, most)))

    def power(self, difference, prompts, level: float = 0.05, comparisons: int = 1) -> np.ndarray:
        """Probability that the test finds a true `difference` with `prompts` prompts a side; both
        may be arrays. The square of its statistic follows a noncentral F distribution.

        comparisons: tests in the family. The first of Holm's steps asks for level / comparisons
        (Bonferroni), later ones for less, so that Holm finds it with at least this probability.
        """
        errors = np.abs(difference) * np.sqrt(prompts) / self.sd
        errors = np.maximum(errors, 1e-6)  # at 0 itself SciPy's distribution is wrong
        free = 2 * (np.asarray(prompts, float) - 1)
        limit = t.isf(level / comparisons / 2, free)
        return ncf.sf(limit**2, 1, free, errors**2)


# ---- the spread between prompts ------------------------------------------------------------------


def influence(frame: pd.DataFrame, estimator: Estimator) -> dict[str, np.ndarray]:
    """By domain: the influence of each prompt (in the order of the ids) on the domain's estimate of
    one number, of mean 0. Its standard error is their standard deviation over the square root of
    the prompts.

    ValueError: fewer than 5 prompts in a domain, or an estimator that is undefined there.
    """
    assert estimator.scalar
    prompts = resampling_of(frame, 1)
    totals = prompts.totals(estimator.columns(frame))
    found = {}
    for number, domain in enumerate(prompts.domains):
        own = totals[prompts.domain == number]
        more, less = (estimator.value(own.sum(axis=0) + step * own)[:, 0] for step in (STEP, -STEP))
        values = len(own) * (more - less) / (2 * STEP)
        if not np.isfinite(values).all():
            raise ValueError(
                f"{estimator.name} is undefined in {domain}: nothing to divide by there"
            )
        found[domain] = values
    return found


def between(frame: pd.DataFrame, estimator: Estimator, first: str, second: str) -> Design:
    """The design of two domains. ValueError: a domain missing, as `influence`, no spread at all."""
    names = [first, second]
    domains_in(frame, names)
    sides = influence(frame[frame["domain"].isin(names)], estimator)
    variance = sum(values.var(ddof=1) for values in sides.values())
    if variance <= 1e-18:
        raise ValueError(
            "the estimate is the same in every prompt: there is no spread to plan with; "
            "record prompts that differ"
        )
    return Design(float(np.sqrt(variance)))


# ---- plans ---------------------------------------------------------------------------------------


def every_pair(
    frame: pd.DataFrame,
    estimator: Estimator,
    values: Mapping[str, float],
    prompts: int = 50,
    wanted: float = 0.8,
    level: float = 0.05,
) -> pd.DataFrame:
    """Every pair of the domains that `values` (such as published ones) names: the columns PLAN.

    `difference`: of `values`. `power`: the probability that `prompts` prompts per domain find a
    true difference of that size, in the family of all pairs; `needed`: the prompts per domain that
    find it with probability `wanted`, missing where it is 0. Both are missing for a pair whose
    prompts do not differ, or where the number is undefined. ValueError: a domain missing, fewer
    than 5 prompts in one.
    """
    resampling_of(frame, 1)  # refuses what no pair can answer
    domains = domains_in(frame, list(values.keys()))
    domains = [name for name in domains if name in values]
    family = comb(len(domains), 2)
    rows = []
    for first, second in combinations(domains, 2):
        difference = float(values[first] - values[second])
        found, needed = np.nan, pd.NA
        try:
            design = between(frame, estimator, first, second)
        except ValueError:
            design = None  # nothing to plan with
        if design:
            found = float(design.power(difference, prompts, level, family))
        if design and difference:
            needed = design.prompts_needed(difference, wanted, level, family)
        rows.append((estimator.name, first, second, difference, found, needed))
    return pd.DataFrame(rows, columns=PLAN).astype({"needed": "Int64"})
