"""Power of a study whose unit is the prompt: what a number of prompts can show.

From the spread between the prompts of a recorded run follow the probability that a study finds a
difference between two domains, and the number of prompts that a difference needs. The spread is the
standard deviation of the prompts' influence on the estimator (infinitesimal jackknife; Efron 1982,
The Jackknife, the Bootstrap and Other Resampling Plans). The power is that of Student's two-sided t
test, whose squared statistic is the F statistic of two groups. A permutation test with as many
prompts has nearly the same power (`tests/test_power.py` runs it on redrawn prompts). The normal
approximation would promise too much for few prompts. This module knows no model and no figure.
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
NO_SPREAD = 1e-18  # variance of prompts that are all alike, except for rounding
LEAST_SPREAD = 1e-200  # for prompts that are all alike: any difference is then found
MOST_ERRORS = 30.0  # standard errors: such a difference is always found, and larger ones overflow
F_TEST = FTestAnovaPower()
PLAN = ["estimator", "first", "second", "difference", "power", "needed"]
LEAST = ["estimator", "first", "second", "prompts", "least"]


@dataclass(frozen=True)
class Design:
    """A comparison of two sides: `sd` / sqrt(prompts) is the standard error of the difference with
    `prompts` prompts per side.

    In a family of tests Holm's first step has the level / tests (Bonferroni) and later steps have
    larger levels. So Holm's method finds a difference with at least the power at the first level.
    """

    sd: Any

    def _effect(self, difference: Any, prompts: Any) -> Any:
        """Cohen's f of two groups."""
        errors = np.abs(difference) * np.sqrt(prompts) / np.maximum(self.sd, LEAST_SPREAD)
        return np.minimum(errors, MOST_ERRORS) / np.sqrt(2 * prompts)

    def power(self, difference: Any, prompts: Any, level: float = 0.05) -> Any:
        """Probability that the test finds a true `difference` with `prompts` prompts per side; both
        may be arrays.
        """
        effect = self._effect(difference, prompts)
        return F_TEST.power(effect, 2 * prompts, level, k_groups=2)

    def prompts_needed(self, difference: float, power: float = 0.8, level: float = 0.05) -> int:
        """Prompts per side that find a true `difference` (not 0) with probability `power`; never
        below the 5 that an interval needs.
        """
        if not 0 < level < power < 1:
            raise ValueError(f"level={level}, power={power}: use 0 < level < power < 1")
        if self.power(difference, MIN_PROMPTS, level) >= power:
            return MIN_PROMPTS
        effect = self._effect(difference, MIN_PROMPTS)
        both_sides = F_TEST.solve_power(effect, alpha=level, power=power, k_groups=2)
        return int(np.ceil(np.squeeze(both_sides) / 2))

    def least_difference(self, prompts: int, power: float = 0.8, level: float = 0.05) -> float:
        """The smallest true difference that `prompts` prompts per side find with probability
        `power`.
        """
        error = self.sd / np.sqrt(prompts)

        def missing(errors: float) -> float:
            return power - float(self.power(errors * error, prompts, level))

        return float(error * brentq(missing, 0, MOST_ERRORS))


# ---- the spread between prompts ------------------------------------------------------------------


def influence(frame: pd.DataFrame, estimator: Estimator) -> dict[str, np.ndarray]:
    """By domain: the influence of each prompt (in the order of the ids) on the domain's estimate of
    one number, with mean 0. The standard error of the estimate is the standard deviation of the
    influences divided by the square root of the number of prompts.

    ValueError: the estimator is undefined in a domain.
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
                f"{estimator.name} is undefined in {domain}, because its denominator is 0"
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
    """Every pair of the domains that `values` (e.g. published numbers) names: the columns PLAN.

    `difference`: between the two values. `power`: the probability that `prompts` prompts per domain
    find a true difference of that size, in the family of all pairs. `needed`: the prompts per
    domain that find it with probability `wanted`, missing for a difference of 0. Both are missing
    for a pair whose prompts are all alike or fewer than 5 in a domain, and if the estimator is
    undefined. ValueError: a domain is missing.
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
    `wanted`, in the family of all pairs. The standard error uses the prompts of both sides. The
    test has the degrees of freedom of `prompts` prompts per side, the number of the smaller side,
    so `least` is slightly too large. It is missing if the prompts are all alike, or if the
    estimator is undefined.
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
