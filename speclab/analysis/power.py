"""Power of a study whose unit is the prompt: what a number of prompts can show.

The probability that so many prompts find a difference between two domains, and the prompts that a
difference needs, from the spread between the prompts of a recorded run. The spread is that of the
prompts' influence on the estimator (infinitesimal jackknife; Efron 1982, The Jackknife, the
Bootstrap and Other Resampling Plans). The rest is the power of Student's t test of two sides, whose
squared statistic is the F statistic of two groups: a permutation test of as many prompts has nearly
that, where the normal approximation promises more than few prompts hold (`tests/test_power.py` runs
that very test on redrawn prompts). Knows no model and no figure.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from statsmodels.stats.power import FTestAnovaPower

from speclab.estimates import named
from speclab.score import Estimator, domains_in
from speclab.stats import MIN_PROMPTS, judged_domains, resampling_of

STEP = 1e-4  # relative change in a derivative: its error is of the order of the square
NO_SPREAD = 1e-18  # variance of prompts that are all alike, but for rounding
LEAST_SPREAD = 1e-200  # of prompts that are all alike: any difference is then found
MOST_ERRORS = 30.0  # standard errors: such a difference is always found, and larger ones overflow
F_TEST = FTestAnovaPower()
PLAN = ["estimator", "first", "second", "difference", "power", "needed"]
LEAST = ["estimator", "first", "second", "prompts", "least"]


@dataclass(frozen=True)
class Design:
    """A comparison of two sides: `sd` / sqrt(prompts) is the standard error of the difference with
    `prompts` prompts a side.

    Of a family of tests, the first of Holm's steps asks for level / tests (Bonferroni), later ones
    for less, so that Holm finds a difference with at least its power at that level.
    """

    sd: Any

    def _effect(self, difference: Any, prompts: Any) -> Any:
        """Cohen's f of two groups."""
        errors = np.abs(difference) * np.sqrt(prompts) / np.maximum(self.sd, LEAST_SPREAD)
        return np.minimum(errors, MOST_ERRORS) / np.sqrt(2 * prompts)

    def power(self, difference: Any, prompts: Any, level: float = 0.05) -> Any:
        """Probability that the test finds a true `difference` with `prompts` prompts a side; both
        may be arrays.
        """
        effect = self._effect(difference, prompts)
        return F_TEST.power(effect, 2 * prompts, level, k_groups=2)

    def prompts_needed(self, difference: float, power: float = 0.8, level: float = 0.05) -> int:
        """Prompts a side that find a true `difference` (not 0) with probability `power`; never
        below the 5 that an interval needs.
        """
        if not 0 < level < power < 1:
            raise ValueError(f"level={level}, power={power}: needed are 0 < level < power < 1")
        if self.power(difference, MIN_PROMPTS, level) >= power:
            return MIN_PROMPTS
        effect = self._effect(difference, MIN_PROMPTS)
        both_sides = F_TEST.solve_power(effect, alpha=level, power=power, k_groups=2)
        return int(np.ceil(np.squeeze(both_sides) / 2))

    def least_difference(self, prompts: int, power: float = 0.8, level: float = 0.05) -> float:
        """The smallest true difference that `prompts` prompts a side find with probability
        `power`.
        """
        error = self.sd / np.sqrt(prompts)

        def missing(errors: float) -> float:
            return power - float(self.power(errors * error, prompts, level))

        return float(error * brentq(missing, 0, MOST_ERRORS))


# ---- the spread between prompts ------------------------------------------------------------------


def influence(frame: pd.DataFrame, estimator: Estimator) -> dict[str, np.ndarray]:
    """By domain: the influence of each prompt (in the order of the ids) on the domain's estimate of
    one number, of mean 0. Its standard error is their standard deviation over the square root of
    the prompts.

    ValueError: an estimator that is undefined in a domain.
    """
    prompts = resampling_of(frame, 1)
    totals = prompts.totals(estimator.columns(frame))
    influences = {}
    for number, domain in enumerate(prompts.domains):
        of_prompts = totals[prompts.domain == number]
        whole, step = of_prompts.sum(axis=0), STEP * of_prompts
        change = estimator.number(whole + step) - estimator.number(whole - step)
        influences[domain] = len(of_prompts) * change / (2 * STEP)
        if not np.isfinite(change).all():
            raise ValueError(
                f"{estimator.name} is undefined in {domain}: nothing to divide by there"
            )
    return influences


def between(frame: pd.DataFrame, estimator: Estimator, first: str, second: str) -> Design:
    """The design of two domains. ValueError: a domain missing or with fewer than 5 prompts, as
    `influence`, no spread at all.
    """
    names = [first, second]
    domains_in(frame, names)
    sides = influence(frame[frame["domain"].isin(names)], estimator)
    if few := [name for name, values in sides.items() if len(values) < MIN_PROMPTS]:
        raise ValueError(f"fewer than {MIN_PROMPTS} prompts in {named(few)}: record more")
    variance = sum(values.var(ddof=1) for values in sides.values())
    if variance <= NO_SPREAD:
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
    prompts do not differ or are fewer than 5 in a domain, or where the number is undefined.
    ValueError: a domain missing.
    """
    domains = [name for name in domains_in(frame, list(values.keys())) if name in values]
    first_step = level / comb(len(domains), 2)
    plans = []
    for first, second in combinations(domains, 2):
        difference = float(values[first] - values[second])
        plan: dict[str, Any] = dict.fromkeys(PLAN, np.nan)
        plan |= {"estimator": estimator.name, "first": first, "second": second}
        plan["difference"] = difference
        plans.append(plan)
        try:
            design = between(frame, estimator, first, second)
        except ValueError:
            continue  # nothing to plan with
        plan["power"] = float(design.power(difference, prompts, first_step))
        if difference:
            plan["needed"] = design.prompts_needed(difference, wanted, first_step)
    return pd.DataFrame(plans, columns=PLAN).astype({"needed": "Int64"})


def detectable(
    frame: pd.DataFrame, estimator: Estimator, wanted: float = 0.8, level: float = 0.05
) -> pd.DataFrame:
    """Every pair of the domains with 5 prompts or more: the columns LEAST.

    `least`: the smallest true difference that the prompts of the frame find with probability
    `wanted`, in the family of all pairs. The standard error is that of both sides; the test counts
    as one of `prompts` prompts a side, as many as the smaller side has, and so promises slightly
    less. It is missing where the prompts do not differ, or where the number is undefined.
    """
    domains = judged_domains(frame)
    pairs = list(combinations(domains, 2))
    rows = []
    for first, second in pairs:
        both = frame[frame["domain"].isin([first, second])]
        fewest = int(both.groupby("domain")["prompt_id"].nunique().min())
        of_means = 0.0
        with suppress(ValueError):  # undefined there
            sides = influence(both, estimator).values()
            of_means = sum(values.var(ddof=1) / len(values) for values in sides)
        design = Design(float(np.sqrt(of_means * fewest)))
        is_spread = of_means > NO_SPREAD
        least = design.least_difference(fewest, wanted, level / len(pairs)) if is_spread else np.nan
        rows.append((estimator.name, first, second, fewest, least))
    return pd.DataFrame(rows, columns=LEAST)
