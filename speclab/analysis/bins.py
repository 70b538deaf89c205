"""Acceptance in bins and classes: means by bin, direct standardisation, calibration of the draft's
confidence.

Works on recorded frames, with the prompt as the unit of every interval (`speclab.stats`). Knows no
model and no figure. Sources: calibration error, Guo et al. (arXiv:1706.04599); direct
standardisation, any text on epidemiology.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from speclab import score
from speclab.score import POOLED, Estimator, column_of, divide, domains_in, quotient, require
from speclab.stats import MIN_PROMPTS, RESAMPLES, by_domain


def signals(trace: pd.DataFrame) -> pd.DataFrame:
    """The trace with, at each position, `hit` (accepted at T = 0: 1.0 or 0.0), `confidence` (q of
    the draft's best token), `top_p` (p of that token: its acceptance at T = 1, point-mass rule),
    and -entropy of both models, so that larger always means surer.
    """
    require(
        trace,
        ["draft_rank", "top_draft_q", "top_draft_p", "draft_entropy", "target_entropy"],
        "trace",
    )
    first = {
        name: np.stack(trace[column].to_numpy())[:, 0]
        for name, column in (("confidence", "top_draft_q"), ("top_p", "top_draft_p"))
    }
    return trace.assign(
        hit=(column_of(trace, "draft_rank") == 0).astype(float),
        **first,
        draft_certainty=-trace["draft_entropy"],
        target_certainty=-trace["target_entropy"],
    )


def quantile_bins(frame: pd.DataFrame, column: str, bins: int = 8) -> pd.Series:
    """Bin number of each row: quantiles of all rows, the same edges in every domain; ties may leave
    fewer. ValueError: constant column.
    """
    values = column_of(frame, column)
    if bins < 2 or np.ptp(values) == 0:
        raise ValueError(
            f"bins={bins} of column {column!r}, {values.min():g}..{values.max():g}: needed are 2 bins and values that differ"
        )
    return pd.Series(
        pd.qcut(values, bins, labels=False, duplicates="drop"),
        index=frame.index,
        name=f"{column}_bin",
    )


def equal_bins(frame: pd.DataFrame, column: str, bins: int = 10) -> pd.Series:
    """Bin number of each row of a probability: `bins` equal parts of 0..1, the upper end in the
    last. ValueError outside 0..1.
    """
    values = column_of(frame, column)
    if bins < 1 or values.min() < 0 or values.max() > 1 + 1e-6:
        raise ValueError(
            f"bins={bins} of column {column!r}, {values.min():g}..{values.max():g}: needed are 1 bin and probabilities"
        )
    return pd.Series(
        np.minimum((values * bins).astype(int), bins - 1), index=frame.index, name=f"{column}_bin"
    )


def _in_levels(value: str, group: str, levels: Sequence) -> Callable[[pd.DataFrame], np.ndarray]:
    """(rows, 2m) to be summed: `value` where the row's `group` is that level, and whether it is."""

    def columns(frame: pd.DataFrame) -> np.ndarray:
        member = require(frame, [group], "frame")[group].to_numpy()[:, None] == np.asarray(levels)
        return np.concatenate(
            [np.where(member, column_of(frame, value)[:, None], 0.0), member], axis=1
        )

    return columns


def group_means(
    frame: pd.DataFrame,
    value: str,
    group: str,
    x: str | None = None,
    n: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Mean of `value` in each level of `group` (a bin, a token kind), per domain and pooled:
    domain, group, estimate, low, high, rows, n_prompts, [x: its mean there]. Levels with rows of
    fewer than 5 prompts are left out; ValueError if that leaves none.
    """
    levels = (
        require(frame, ["domain", "prompt_id", group], "frame")
        .groupby(group, observed=True)
        .size()
        .index.tolist()
    )
    found = by_domain(
        frame, Estimator(value, _in_levels(value, group, levels), quotient, scalar=False), n, seed
    )
    found[group] = levels * (len(found) // len(levels))
    both = pd.concat([frame, frame.assign(domain=POOLED)]).groupby(["domain", group], observed=True)
    counts = both.agg(
        rows=("prompt_id", "size"),
        n_prompts=("prompt_id", "nunique"),
        **({x: (x, "mean")} if x else {}),
    ).reset_index()
    result = found[["domain", group, "estimate", "low", "high"]].merge(
        counts.astype({group: object}), on=["domain", group]
    )
    result = result[result["n_prompts"] >= MIN_PROMPTS].reset_index(drop=True)
    if result.empty:
        raise ValueError(
            f"no level of {group!r} has rows of {MIN_PROMPTS} prompts in a domain: take fewer bins or record more prompts"
        )
    return result.astype({group: frame[group].dtype})


def calibration_error(confidence: str, outcome: str, bins: int = 10) -> Estimator:
    """Expected calibration error: mean over rows of |mean outcome - mean confidence| of the row's
    bin of confidence (equal parts of 0..1; an empty bin counts nothing). Never below 0 and pushed
    up by noise, so its interval is no test of 0: see `calibration_gap`.
    """

    def columns(frame: pd.DataFrame) -> np.ndarray:
        member = equal_bins(frame, confidence, bins).to_numpy()[:, None] == np.arange(bins)
        gap = column_of(frame, outcome) - column_of(frame, confidence)
        return np.column_stack([gap[:, None] * member, np.ones(len(frame))])

    return Estimator(
        "calibration_error",
        columns,
        lambda t: divide(np.abs(t[..., :-1]).sum(-1, keepdims=True), t[..., -1:]),
    )


def calibration_gap(confidence: str, outcome: str) -> Estimator:
    """Mean of outcome - confidence: below 0 the draft is too sure of itself, above 0 not sure
    enough.
    """
    return Estimator(
        "calibration_gap",
        lambda frame: np.column_stack(
            [column_of(frame, outcome) - column_of(frame, confidence), np.ones(len(frame))]
        ),
        quotient,
    )


def standardised_mean(value: str, group: str, reference: pd.DataFrame) -> Estimator:
    """Direct standardisation: the mean of `value` if the levels of `group` had the shares that they
    have among the rows of `reference` (taken as fixed). Undefined for rows that lack one of its
    levels: see `matched`.
    """
    shares = require(reference, [group], "reference")[group].value_counts(normalize=True)
    shares = shares[shares > 0]
    return Estimator(
        f"{value} at equal {group}",
        _in_levels(value, group, shares.index.tolist()),
        lambda totals: quotient(totals) @ shares.to_numpy()[:, None],
    )


def matched(frame: pd.DataFrame, value: str, group: str) -> tuple[tuple, tuple]:
    """Before and after matching the domains on `group`: (rows, mean of `value`) and (rows, its
    standardised mean). The rows, the reference too, are those in levels with rows of 5 prompts or
    more in every domain (common support). ValueError if that is one level or none.
    """
    domains = domains_in(require(frame, ["prompt_id", group], "frame"))
    prompts = (
        frame.groupby([group, "domain"], observed=True)["prompt_id"]
        .nunique()
        .unstack(fill_value=0)[list(domains)]
    )
    shared = prompts.index[(prompts >= MIN_PROMPTS).all(axis=1)]
    if len(shared) < 2:
        raise ValueError(
            f"{len(shared)} level of {group!r} has rows of {MIN_PROMPTS} prompts in every domain: matching needs two or more"
        )
    kept = frame[frame[group].isin(shared)]
    return (kept, score.mean_of(value)), (kept, standardised_mean(value, group, kept))


def frequency_elsewhere(trace: pd.DataFrame) -> pd.Series:
    """Share of the tokens of all other prompts that are this row's token: how common it is, without
    the row's own text.
    """
    require(trace, ["prompt_id", "token"], "trace")
    own, size = (
        trace.groupby(["prompt_id", "token"])["token"].transform("size"),
        trace.groupby("prompt_id")["token"].transform("size"),
    )
    if (size == len(trace)).any():
        raise ValueError(
            "trace holds one prompt: there are no other prompts to count in; record two or more"
        )
    return ((trace.groupby("token")["token"].transform("size") - own) / (len(trace) - size)).rename(
        "frequency_elsewhere"
    )
