"""An estimator made of another that several notebooks need."""

import numpy as np

from speclab.score import Estimator


def change(family: Estimator) -> Estimator:
    """A family's last member less its first, such as from depth 1 to the deepest level: both are of
    the same resamples, so the difference is paired.
    """

    def value(totals: np.ndarray) -> np.ndarray:
        members = family.value(totals)
        return members[..., -1:] - members[..., :1]

    return Estimator(f"change of {family.name}", family.columns, value)
