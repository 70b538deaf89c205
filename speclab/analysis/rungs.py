"""The ladder of acceptance estimators of a run (GLOSSARY.md)."""

import numpy as np
import pandas as pd

from speclab import score, stats
from speclab.score import Estimator
from speclab.stats import RESAMPLES


def _moments(nodes: pd.DataFrame) -> np.ndarray:
    value = score.ratio(nodes)
    return np.stack([np.ones_like(value), value, value**2], axis=1)


def _sample_sd(totals: np.ndarray) -> np.ndarray:
    count, total, squares = (totals[..., [column]] for column in range(3))
    variance = score.divide(squares - score.divide(total**2, count), count - 1)
    return np.sqrt(np.maximum(variance, 0.0))


# sample sd (n - 1): the authors' files use it
alpha_sd = Estimator("alpha_sd", _moments, _sample_sd)


def ladder_estimators(run, rule: str = "greedy") -> list[tuple[str, Estimator]]:
    """(frame name, estimator) of every rung that `run` (with .nodes and .trace; either may be None)
    can answer.
    """
    nodes, trace = [], []
    if run.nodes is not None:
        nodes += [score.published_alpha, score.published_length, score.best_path_ratio]
        nodes.append(score.ratio_by_rank)
        if rule == "point-mass" or "target_rank" in run.nodes:
            nodes += score.tree_estimators(rule).values()
    if run.trace is not None:
        trace = [score.alpha, score.top_mass, score.hit]
    return [("nodes", one) for one in nodes] + [("trace", one) for one in trace]


def ladder_intervals(run, rule: str = "greedy", n: int = RESAMPLES) -> pd.DataFrame:
    """The ladder of acceptance estimators of a run, in the long form of `by_domain`."""
    parts = [
        stats.by_domain(getattr(run, name), estimator, n)
        for name, estimator in ladder_estimators(run, rule)
    ]
    return pd.concat(parts, ignore_index=True)


def change(family: Estimator) -> Estimator:
    """A family's last member less its first, such as from depth 1 to the deepest level: both are of
    the same resamples, so the difference is paired.
    """

    def value(totals: np.ndarray) -> np.ndarray:
        members = family.value(totals)
        return members[..., -1:] - members[..., :1]

    return Estimator(f"change of {family.name}", family.columns, value)
