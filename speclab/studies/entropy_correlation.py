"""Notebook 05: how well a signal known before verification tells accepted from rejected positions
(ROC curves and their areas).
"""

import numpy as np
import pandas as pd
from sklearn.metrics import roc_curve

from speclab.score import column_of, divide
from speclab.stats import RESAMPLES, Interval, Prompts, interval_of, prompts_of


def _two_outcomes(frame: pd.DataFrame, signal: str, outcome: str) -> tuple[np.ndarray, np.ndarray]:
    values, yes = column_of(frame, signal), column_of(frame, outcome)
    if np.ptp(values) == 0 or sorted(set(yes)) != [0.0, 1.0]:
        held = [float(value) for value in sorted(set(yes))[:3]]
        wrong = (
            f"outcome {outcome!r} holds {held}, not both 0 and 1"
            if np.ptp(values)
            else f"signal {signal!r} is constant"
        )
        raise ValueError(f"{wrong}: an ROC curve is undefined; choose rows where it varies")
    return values, yes == 1


def roc(frame: pd.DataFrame, signal: str, outcome: str) -> pd.DataFrame:
    """ROC curve over rows: false_positive, true_positive (rates), threshold.

    ValueError unless both outcomes occur, the signal varies.
    """
    values, yes = _two_outcomes(frame, signal, outcome)
    return pd.DataFrame(
        dict(
            zip(
                ("false_positive", "true_positive", "threshold"),
                roc_curve(yes, values),
                strict=True,
            )
        )
    )


def _auc_draws(frame: pd.DataFrame, signal: str, outcome: str, prompts: Prompts) -> np.ndarray:
    """(1 + n,): a quadratic form in the weights of the prompts, so the rows are compared once and a
    resample costs no pass over them.
    """
    values, yes = _two_outcomes(frame, signal, outcome)
    rows, size, order = prompts.rows, prompts.weights.shape[1], np.argsort(values)
    seen = np.zeros(
        (len(values) + 1, size)
    )  # negatives of each prompt among the lowest 0, 1, 2, … values
    seen[np.arange(1, len(values) + 1), rows[order]] = ~yes[order]
    np.cumsum(seen, axis=0, out=seen)
    ends = (np.searchsorted(values[order], values[yes], side) for side in ("left", "right"))
    pairs = np.zeros(
        (size, size)
    )  # [prompt of the positive, prompt of the negative]: pairs in the right order, ties one half
    np.add.at(pairs, rows[yes], sum(seen[end] for end in ends) / 2)
    counts = [prompts.weights @ np.bincount(rows[which], minlength=size) for which in (yes, ~yes)]
    return divide(((prompts.weights @ pairs) * prompts.weights).sum(axis=1), counts[0] * counts[1])


def auc(
    frame: pd.DataFrame,
    signal: str,
    outcome: str,
    minus: str | None = None,
    n: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """Area under the ROC curve: P(the signal is larger at an accepted than at a rejected row), ties
    one half; 0.5 = no information. With `minus`, the difference to that signal's area on the same
    resamples. ValueError as in `roc`, and for fewer than 5 prompts.
    """
    prompts = prompts_of(frame, n, seed)
    draws = _auc_draws(frame, signal, outcome, prompts) - (
        _auc_draws(frame, minus, outcome, prompts) if minus else 0.0
    )
    return interval_of(draws, prompts.weights.shape[1], f"the area under the curve of {signal}")
