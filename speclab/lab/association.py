"""Correlations of two columns over rows. Intervals resample prompts."""

import numpy as np
import pandas as pd

from speclab.estimates import NUMBERS
from speclab.score import column_of, divide, domains_in
from speclab.stats import Interval, Resampling, resampling_of


def correlations(frame: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Spearman's correlation of two columns over the rows of each domain (`ratio` is a column,
    too): domain, estimate, low, high, n_prompts and a note.

    Ranks are computed again in every resample, with ties at their mean rank. If a column is
    constant in a domain, the numbers are missing and the note gives the reason.
    """
    rows = []
    for domain in domains_in(frame):
        part = frame[frame["domain"] == domain]
        numbers = dict.fromkeys(NUMBERS, np.nan)
        note = ""
        try:
            columns = [column_of(part, name) for name in (x, y)]
            if 0 in map(np.ptp, columns):
                raise ValueError(
                    f"column {x!r} or {y!r} is constant, so the correlation is undefined: choose "
                    "rows where both vary"
                )
            prompts = resampling_of(part)
            draws = correlation_draws(*columns, prompts)
            numbers = vars(Interval.of(draws, prompts, f"the correlation of {x} and {y}"))
        except ValueError as error:
            note = str(error)
        rows.append({"domain": domain} | numbers | {"note": note})
    return pd.DataFrame(rows)


def correlation_draws(x: np.ndarray, y: np.ndarray, prompts: Resampling) -> np.ndarray:
    """Spearman's correlations (1 + n,) of the sample, then of each resample."""
    levels = [np.unique(values, return_inverse=True)[1] for values in (x, y)]

    def once(weight: np.ndarray) -> float:
        mean = weight.sum() / 2  # of midranks
        x, y = (midranks(level, weight) - mean for level in levels)
        weighted = weight * x
        spread = np.sqrt(weighted @ x * (weight * y @ y))
        return float(divide(weighted @ y, spread))

    return np.array([once(weights[prompts.rows]) for weights in prompts.weights])


def midranks(level: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Rank of each row (rows,) among rows that count `weight` times, with ties at their mean: the
    weight below the row plus half the weight of its ties. level: the index of each row's value
    among the distinct values (rows,).
    """
    tied = np.bincount(level, weight)
    ranks = tied.cumsum() - tied / 2
    return ranks[level]
