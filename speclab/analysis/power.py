"""Power of a study whose unit is the prompt: what a number of prompts can show.

From the spread between the prompts of a recorded run follows the probability that a study finds a
difference between two domains. The spread is the standard deviation of the prompts' influence on
the estimator (infinitesimal jackknife; Efron 1982, The Jackknife, the Bootstrap and Other
Resampling Plans). The power is that of Student's two-sided t test, whose squared statistic is the F
statistic of two groups. A permutation test with as many prompts has nearly the same power. The
normal approximation would promise too much for few prompts. This module knows no model and no
figure.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from statsmodels.stats.power import FTestAnovaPower

from speclab.score import Estimator
from speclab.stats import resampling_of

STEP = 1e-4  # relative change in a derivative: its error is of the order of the square
LEAST_SPREAD = 1e-200  # for prompts that are all alike: any difference is then found
MOST_ERRORS = 30.0  # standard errors: such a difference is always found, and larger ones overflow
F_TEST = FTestAnovaPower()


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
