"""Acceptance in bins and classes: signals of a trace, bins, and sums by bin."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from speclab.score import column_of


def signals(trace: pd.DataFrame) -> pd.DataFrame:
    """The trace with, at each position, `hit` (accepted at T = 0: 1.0 or 0.0), `confidence` (q of
    the draft's best token), and the negated entropy of both models, so that larger always means
    surer.
    """
    return trace.assign(
        hit=(trace["draft_rank"] == 0).astype(float),
        confidence=np.stack(trace["top_draft_q"])[:, 0],
        draft_certainty=-trace["draft_entropy"],
        target_certainty=-trace["target_entropy"],
    )


def surer_pairs(positions: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """By text: `pairs` of an accepted and a rejected position, and for each of the signals `names`
    in how many of them the accepted one has the higher value. A tie counts half (Mann and Whitney).

    positions: of `signals`. The columns are prompt_id, domain, pairs and `names`.
    """
    by = ["prompt_id", "domain"]
    texts = positions.groupby(by, sort=False)
    ranks = {name: positions["hit"] * texts[name].rank() for name in names}
    sums = positions[[*by, "hit"]].assign(size=1, **ranks).groupby(by, sort=False).sum()
    # a rank counts the positions that are less sure; of these, the accepted ones make no pair
    accepted = sums["hit"]
    right = sums[[*names]].sub(accepted * (accepted + 1) / 2, axis=0)
    return right.assign(pairs=accepted * (sums["size"] - accepted)).reset_index()


def quantile_bins(frame: pd.DataFrame, column: str, bins: int = 8) -> np.ndarray:
    """Bin number of each row (rows,). All bins hold equally many rows of all domains together, and
    have the same edges in every domain. Ties may leave fewer bins. ValueError: a constant column.
    """
    values = column_of(frame, column)
    if np.ptp(values) == 0:
        raise ValueError(f"{bins} bins of {column!r}: use a column that varies")
    return pd.qcut(values, bins, labels=False, duplicates="drop")


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
