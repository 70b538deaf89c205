"""Acceptance in bins and classes: signals of a trace, bins, means by bin, and calibration: can a
confidence be taken at its word?

The prompt is the unit of every interval (`speclab.stats`). Source of the calibration error: Guo et
al. (arXiv:1706.04599).
"""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from speclab.estimates import Estimates
from speclab.score import POOLED, Estimator, column_of, divide, quotient, require
from speclab.stats import MIN_PROMPTS, by_domain


def signals(trace: pd.DataFrame) -> pd.DataFrame:
    """The trace with, at each position, `hit` (accepted at T = 0: 1.0 or 0.0), `confidence` (q of
    the draft's best token), `top_p` (p of that token: its acceptance at T = 1, point-mass rule),
    and -entropy of both models, so that larger always means surer.
    """
    require(trace, ["draft_rank", "top_draft_q", "top_draft_p"], "trace")
    hit = column_of(trace, "draft_rank") == 0
    draft_q = np.stack(trace["top_draft_q"].to_numpy())
    draft_p = np.stack(trace["top_draft_p"].to_numpy())
    return trace.assign(
        hit=hit.astype(float),
        confidence=draft_q[:, 0],
        top_p=draft_p[:, 0],
        draft_certainty=-trace["draft_entropy"],
        target_certainty=-trace["target_entropy"],
    )


def quantile_bins(frame: pd.DataFrame, column: str, bins: int = 8) -> pd.Series:
    """Bin number of each row: every bin holds as many of all rows, and has the same edges in every
    domain; ties may leave fewer bins. ValueError: fewer than two bins, or a constant column.
    """
    values = column_of(frame, column)
    if bins < 2 or np.ptp(values) == 0:
        raise ValueError(f"{bins} bins of {column!r}: needed are 2 bins and values that differ")
    cut = pd.qcut(values, bins, labels=False, duplicates="drop")
    return pd.Series(cut, index=frame.index, name=f"{column}_bin")


def equal_bins(frame: pd.DataFrame, column: str, bins: int = 10) -> pd.Series:
    """Bin number of each row of a probability: `bins` equal parts of 0..1, the upper end in the
    last.
    """
    values = column_of(frame, column)
    if values.min() < 0 or values.max() > 1 + 1e-6:
        raise ValueError(f"{column!r} holds no probabilities")
    part = (values * bins).astype(int)
    cut = np.minimum(part, bins - 1)
    return pd.Series(cut, index=frame.index, name=f"{column}_bin")


def in_levels(value: str, group: str, levels: Sequence) -> Callable[[pd.DataFrame], np.ndarray]:
    """(rows, 2m) to be summed, for an `Estimator` of m means: `value` where the row's `group` is
    that level, and whether it is.
    """

    def columns(frame: pd.DataFrame) -> np.ndarray:
        level = frame[group].to_numpy()[:, None]
        member = level == np.asarray(levels)
        value_of_row = column_of(frame, value)[:, None]
        values = np.where(member, value_of_row, 0.0)
        return np.concatenate([values, member], axis=1)

    return columns


def group_means(frame: pd.DataFrame, value: str, group: str, x: str | None = None) -> Estimates:
    """Mean of `value` in each level of `group` (a bin, a kind of token), per domain and pooled:
    domain, group, estimate, low, high, rows, n_prompts, [x: its mean there]. Levels with rows of
    fewer than 5 prompts are left out; ValueError if that leaves none.
    """
    require(frame, ["domain", "prompt_id", group], "frame")
    keys = ["domain", group]
    everywhere = frame.assign(domain=POOLED)
    both = pd.concat([frame, everywhere])
    facts = {"rows": ("prompt_id", "size"), "n_prompts": ("prompt_id", "nunique")}
    facts |= {x: (x, "mean")} if x else {}
    counts = both.groupby(keys, observed=True).agg(**facts)
    counts = counts.reset_index().astype({group: object})

    sizes = frame.groupby(group, observed=True).size()
    levels = sizes.index.tolist()
    columns = in_levels(value, group, levels)
    means = Estimator(value, columns, quotient, scalar=False)
    found = by_domain(frame, means)[["domain", "estimate", "low", "high"]]
    found.insert(1, group, levels * (len(found) // len(levels)))

    found = found.merge(counts, on=keys)
    found = found[found["n_prompts"] >= MIN_PROMPTS]
    found = found.reset_index(drop=True)
    if found.empty:
        raise ValueError(
            f"no level of {group!r} has rows of {MIN_PROMPTS} prompts in a domain: "
            "take fewer bins or record more prompts"
        )
    return Estimates(found.astype({group: frame[group].dtype}))


def calibration_error(confidence: str, outcome: str, bins: int = 10) -> Estimator:
    """Expected calibration error: mean over rows of |mean outcome - mean confidence| of the row's
    bin of confidence (equal parts of 0..1; an empty bin counts nothing). Never below 0 and pushed
    up by noise, so its interval is no test of 0: the mean of outcome - confidence is.
    """

    def columns(frame: pd.DataFrame) -> np.ndarray:
        gap = column_of(frame, outcome) - column_of(frame, confidence)
        in_bin = frame.assign(gap=gap, bin=equal_bins(frame, confidence, bins))
        by_bin = in_levels("gap", "bin", range(bins))
        return by_bin(in_bin)

    def value(totals: np.ndarray) -> np.ndarray:
        distance, count = np.split(np.abs(totals), 2, axis=-1)
        whole = distance.sum(-1, keepdims=True)
        rows = count.sum(-1, keepdims=True)
        return divide(whole, rows)

    return Estimator("calibration_error", columns, value)
