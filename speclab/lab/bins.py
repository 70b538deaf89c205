"""Acceptance in bins and classes: signals of a trace, bins, and means by bin. Intervals resample
prompts (`speclab.stats`).
"""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from speclab.estimates import NUMBERS, Estimates
from speclab.score import POOLED, Estimator, column_of, quotient, require
from speclab.stats import MIN_PROMPTS, by_domain


def signals(trace: pd.DataFrame) -> pd.DataFrame:
    """The trace with, at each position, `hit` (accepted at T = 0: 1.0 or 0.0), `confidence` (q of
    the draft's best token), `top_p` (p of that token: its acceptance at T = 1, point-mass rule),
    and the negated entropy of both models, so that larger always means surer.
    """
    require(trace, ["draft_rank", "top_draft_q", "top_draft_p"], "trace")
    known = trace.copy()
    hit = column_of(trace, "draft_rank") == 0
    known["hit"] = hit.astype(float)
    known["confidence"] = np.stack(trace["top_draft_q"])[:, 0]
    known["top_p"] = np.stack(trace["top_draft_p"])[:, 0]
    known["draft_certainty"] = -trace["draft_entropy"]
    known["target_certainty"] = -trace["target_entropy"]
    return known


def quantile_bins(frame: pd.DataFrame, column: str, bins: int = 8) -> np.ndarray:
    """Bin number of each row (rows,). All bins hold equally many rows of all domains together, and
    have the same edges in every domain. Ties may leave fewer bins. ValueError: a constant column.
    """
    values = column_of(frame, column)
    if np.ptp(values) == 0:
        raise ValueError(f"{bins} bins of {column!r}: use a column that varies")
    return pd.qcut(values, bins, labels=False, duplicates="drop")


def equal_bins(frame: pd.DataFrame, column: str, bins: int = 10) -> np.ndarray:
    """Bin number of each row of a probability (rows,): `bins` equal parts of 0 to 1, where 1
    belongs to the last part.
    """
    values = column_of(frame, column)
    part = (values * bins).astype(int)
    return np.minimum(part, bins - 1)


def cut_levels(value: str, group: str, levels: Sequence) -> Callable[[pd.DataFrame], np.ndarray]:
    """Columns (rows, 2m) for an `Estimator` of m means: for each level `value` if the row's `group`
    is this level (else 0), then whether it is.
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
    domain, group, estimate, low, high, rows, n_prompts, [x: its mean in the level]. Levels with
    rows of fewer than 5 prompts are left out. ValueError: no level is left.
    """
    require(frame, ["domain", "prompt_id", group], "frame")
    sizes = frame.groupby(group, observed=True).size()
    levels = sizes.index.tolist()
    columns = cut_levels(value, group, levels)
    means = by_domain(frame, Estimator(value, columns, quotient, scalar=False)).frame
    means = means[["domain", *NUMBERS]]
    means.insert(1, group, levels * (len(means) // len(levels)))

    facts = {"rows": ("prompt_id", "size"), "n_prompts": ("prompt_id", "nunique")}
    facts |= {x: (x, "mean")} if x else {}
    both = pd.concat([frame, frame.assign(domain=POOLED)])
    counts = both.groupby(["domain", group], observed=True).agg(**facts)
    known = means.join(counts, on=["domain", group], how="inner")
    known = known[known["n_prompts"] >= MIN_PROMPTS].reset_index(drop=True)
    if known.empty:
        raise ValueError(
            f"no level of {group!r} has rows of {MIN_PROMPTS} prompts in a domain: use fewer bins "
            "or record more prompts"
        )
    return Estimates(known.astype({group: frame[group].dtype}))
