"""Power of a study whose unit is the prompt: what so many prompts can show.

The smallest difference between two domains that a number of prompts detects, and the prompts that
a difference needs, from the spread between the prompts of a recorded run. The spread is that of the
prompts' influence on the estimator (infinitesimal jackknife; Efron 1982, The Jackknife, the
Bootstrap and Other Resampling Plans); the rest is the power of Student's t test of two
sides, by the noncentral t distribution: a permutation test of as many prompts has nearly that,
where the normal approximation promises more than few prompts hold (`tests/test_power.py` runs that
very test on redrawn prompts). The interval of a spread is Bonett's (2006, Computational Statistics
& Data Analysis 50: 775), which takes the tails into account. Knows no model and no figure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.stats import ncf, norm, t, trim_mean

from speclab.score import Estimator, domains_in
from speclab.stats import MIN_PROMPTS, resampling_of

NEEDED = ["needed", "needed_low", "needed_high"]
STEP = 1e-4  # relative change in a derivative: its error is of the order of the square
MOST_ERRORS = 100.0  # standard errors: a difference of so many is always found
PLAN = ["estimator", "first", "second", "difference", "detectable", "low", "high"]


@dataclass(frozen=True)
class Design:
    """A comparison of two sides: `sd` / sqrt(prompts) is the standard error of the difference with
    `prompts` prompts a side; float64 [3]: its estimate, and low and high of its 95 % interval.
    """

    sd: np.ndarray

    def detectable(
        self,
        prompts: int = 50,
        power: float = 0.8,
        level: float = 0.05,
        comparisons: int = 1,
    ) -> np.ndarray:
        """Smallest true difference that a two-sided test at `level` finds with probability `power`,
        by `sd`: float64 [3].

        `comparisons`: tests in the family. The first of Holm's steps asks for level / comparisons
        (Bonferroni), later ones for less, so that Holm finds this difference with at least this
        probability.
        """
        _checked(power, level)

        def missing(errors: float) -> float:
            return _found(errors, prompts, level / comparisons) - power

        errors = brentq(missing, 0, MOST_ERRORS)
        return self.sd * errors / np.sqrt(prompts)

    def prompts_needed(
        self,
        difference: float,
        power: float = 0.8,
        level: float = 0.05,
        comparisons: int = 1,
    ) -> np.ndarray:
        """Prompts a side that find a true `difference` (not 0) with probability `power`, by `sd`:
        int64 [3]; never below the 5 that an interval needs.
        """
        _checked(power, level)
        return np.array(
            [
                _fewest(abs(difference) / sd, power, level / comparisons)
                for sd in self.sd
            ]
        )

    def power(
        self, difference, prompts, level: float = 0.05, comparisons: int = 1
    ) -> np.ndarray:
        """Probability that the test finds a true `difference` with `prompts` prompts a side; both
        may be arrays.
        """
        errors = np.abs(difference) * np.sqrt(prompts) / self.sd[0]
        return _found(errors, prompts, level / comparisons)


def _found(errors, prompts, level: float) -> np.ndarray:
    """Power of the two-sided t test of two sides of `prompts` prompts at a difference of `errors`
    standard errors: its square follows a noncentral F distribution.
    """
    free = 2 * (np.asarray(prompts, float) - 1)
    limit = t.isf(level / 2, free)
    errors = np.maximum(errors, 1e-6)  # at 0 itself SciPy's distribution is wrong
    return ncf.sf(limit**2, 1, free, errors**2)


def _fewest(difference: float, power: float, level: float) -> int:
    """Prompts a side that find a difference, in `sd`, with probability `power`."""

    def missing(prompts: float) -> float:
        return _found(difference * np.sqrt(prompts), prompts, level) - power

    if missing(MIN_PROMPTS) >= 0:
        return MIN_PROMPTS
    most = (MOST_ERRORS / difference) ** 2 + MIN_PROMPTS
    return int(np.ceil(brentq(missing, MIN_PROMPTS, most)))


def _checked(power: float, level: float) -> None:
    if not 0 < level < power < 1:
        raise ValueError(
            f"level={level}, power={power}: needed are 0 < level < power < 1"
        )


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
        more, less = (
            estimator.value(own.sum(axis=0) + step * own)[:, 0]
            for step in (STEP, -STEP)
        )
        values = len(own) * (more - less) / (2 * STEP)
        if not np.isfinite(values).all():
            raise ValueError(
                f"{estimator.name} is undefined in {domain}: nothing to divide by there"
            )
        found[domain] = values
    return found


def between(
    frame: pd.DataFrame, estimator: Estimator, first: str, second: str
) -> Design:
    """The design of two domains. ValueError: a domain missing, as `influence`, no spread at all."""
    names = [first, second]
    domains_in(frame, names)
    found = influence(frame[frame["domain"].isin(names)], estimator)
    return design_of([found[name] for name in names])


def design_of(sides: list[np.ndarray]) -> Design:
    """From the prompts' influences on each of two sides, or on one that stands for both."""
    of_sides = [_variance(values) for values in sides]
    variances, centres, errors = np.array(of_sides).T
    if variances.sum() <= 1e-18:
        raise ValueError(
            "the estimate is the same in every prompt: there is no spread to plan with; "
            "record prompts that differ"
        )
    centre = centres.sum()
    squares = ((centres * errors) ** 2).sum()
    error = np.sqrt(squares) / centre
    reach = np.exp(norm.isf(0.025) * error)
    a_side = 2 / len(sides)
    spread = np.array([variances.sum(), centre / reach, centre * reach])
    return Design(np.sqrt(a_side * spread))


def _variance(values: np.ndarray) -> tuple[float, float, float]:
    """A variance, the centre of its interval, and the standard error of its logarithm (Bonett)."""
    n, variance = len(values), values.var(ddof=1)
    if variance == 0:
        return 0.0, 0.0, 0.0
    cut = 1 / (2 * np.sqrt(n - 4))
    middle = trim_mean(values, cut) if cut < 0.5 else np.median(values)
    fourth = ((values - middle) ** 4).sum()
    kurtosis = n * fourth / ((n - 1) * variance) ** 2
    excess = max(kurtosis - (n - 3) / n, 0.0)
    error = np.sqrt(excess / (n - 1))
    centre = variance * n / (n - norm.isf(0.025))
    return variance, centre, error


# ---- plans ---------------------------------------------------------------------------------------


def every_pair(
    frame: pd.DataFrame,
    estimator: Estimator,
    values: Mapping[str, float],
    prompts: int = 50,
    power: float = 0.8,
    level: float = 0.05,
) -> pd.DataFrame:
    """Every pair of the domains that `values` (such as published ones) names: the columns PLAN and
    NEEDED.

    `difference`: of `values`. `detectable` is the smallest difference that `prompts` prompts a
    domain find (interval: of the spread), in the family of all pairs; `needed` the prompts a domain
    that find `difference`, missing where it is 0. All of these are missing for a pair whose prompts
    do not differ, or where the number is undefined. ValueError: a domain missing, fewer than 5
    prompts in one.
    """
    resampling_of(frame, 1)  # refuses what no pair can answer
    domains = domains_in(frame, list(values.keys()))
    domains = [name for name in domains if name in values]
    family = comb(len(domains), 2)
    rows = []
    for first, second in combinations(domains, 2):
        difference = float(values[first] - values[second])
        found, needed = [np.nan] * 3, [pd.NA] * 3
        try:
            design = between(frame, estimator, first, second)
        except ValueError:
            design = None  # nothing to plan with
        if design:
            found = design.detectable(prompts, power, level, family)
        if design and difference:
            needed = design.prompts_needed(difference, power, level, family)
        rows.append((estimator.name, first, second, difference, *found, *needed))
    plans = pd.DataFrame(rows, columns=[*PLAN, *NEEDED])
    return plans.astype(dict.fromkeys(NEEDED, "Int64"))
