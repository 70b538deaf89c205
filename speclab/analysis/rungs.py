"""Estimators made of others that several notebooks need."""

import numpy as np
import pandas as pd

from speclab import score
from speclab.score import Estimator


def _moments(nodes: pd.DataFrame) -> np.ndarray:
    value = score.ratio(nodes)
    return np.stack([np.ones_like(value), value, value**2], axis=1)


def _sample_sd(totals: np.ndarray) -> np.ndarray:
    count, total, squares = (totals[..., [column]] for column in range(3))
    variance = score.divide(squares - score.divide(total**2, count), count - 1)
    return np.sqrt(np.maximum(variance, 0.0))


# sample sd (n - 1): the authors' files use it
alpha_sd = Estimator("alpha_sd", _moments, _sample_sd)


def change(family: Estimator) -> Estimator:
    """A family's last member less its first, such as from depth 1 to the deepest level: both are of
    the same resamples, so the difference is paired.
    """

    def value(totals: np.ndarray) -> np.ndarray:
        members = family.value(totals)
        return members[..., -1:] - members[..., :1]

    return Estimator(f"change of {family.name}", family.columns, value)
