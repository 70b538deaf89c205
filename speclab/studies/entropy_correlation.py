"""Notebook 05: does uncertainty predict rejection? Correlations with the target's entropy, curves
over it, what is known before verification, and calibration.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np
import pandas as pd

from speclab import stats
from speclab.analysis import association, bins, published
from speclab.analysis.texts import Text
from speclab.score import POOLED, column_of, divide, mean_of
from speclab.show.estimates import Estimates, per_domain
from speclab.stats import Interval, Resampling, resampling_of

# what may foretell acceptance; the last is known only after the target pass
SIGNALS = {
    "confidence": "draft confidence",
    "draft_certainty": "draft entropy, reversed",
    "target_certainty": "target entropy, reversed",
}
OVERLAP, HIT = "overlap (T = 1)", "hit (T = 0)"
RISE_OR_FALL = ("rises in", "falls in", "no significant trend in")
PREDICTS = (
    "significantly above 0.5 in",
    "below 0.5 in",
    "not significantly different in",
)
BETTER = ("higher than", "lower than", "not significantly different from")
TOO_SURE = ("underconfident in", "overconfident in", "no significant difference in")

Views = Mapping[str, tuple[pd.DataFrame, str]]  # by name: rows, column that is averaged


def acceptances(greedy: Text, sampled: Text) -> Views:
    """Kinds of acceptance: min(1, p/q) of the nodes hung on greedy text, all and by rank, and the
    exact acceptance of one drafted token, each on the text of its own temperature.
    """
    views = {"min(1, p/q), all nodes": (greedy.hung, "ratio")}
    for rank, nodes in greedy.hung.groupby("rank"):
        views[f"min(1, p/q), rank {rank}"] = (nodes, "ratio")
    for name, text in ((OVERLAP, sampled), (HIT, greedy)):
        views[name] = (text.positions, text.value)
    return views


def entropy_correlations(views: Views) -> Estimates:
    """Spearman's correlation of the target's entropy with each kind of acceptance: acceptance,
    domain, estimate, low, high, n_prompts, note.
    """
    parts = {
        name: association.correlations(rows, "target_entropy", column)
        for name, (rows, column) in views.items()
    }
    return Estimates.stacked(parts, "acceptance")


def trend(correlations: Estimates) -> str:
    """What acceptance does as entropy rises, as a predicate: 'falls in all four domains (Spearman
    -0.31 to -0.27)'.
    """
    said = correlations.sentence("rises in", "falls in", "has no significant trend in")
    if correlations.span() == "undefined":
        return "does not vary, so it has no trend"
    return f"{said} (Spearman {correlations.span()})"


def beside_published(correlations: Estimates) -> Estimates:
    """The correlations with those that the paper printed (`published`)."""
    printed = published.published("VI").rename(columns={"published": "estimate"})
    parts = [correlations.frame, printed.assign(acceptance="published")]
    both = Estimates(pd.concat(parts, ignore_index=True))
    return both.at(domain=list(correlations.frame["domain"])).defined()


def acceptance_in_bins(views: Views, count: int) -> Estimates:
    """Mean acceptance in `count` quantile bins of target entropy (of each text its own):
    acceptance, domain and pooled, entropy_bin, estimate, low, high, rows, n_prompts, target_entropy
    (mean of the bin).
    """
    parts = {}
    for name, (rows, column) in views.items():
        level = bins.quantile_bins(rows, "target_entropy", count)
        rows = rows.assign(entropy_bin=level)
        parts[name] = bins.group_means(rows, column, "entropy_bin", "target_entropy")
    return Estimates.stacked(parts, "acceptance")


# ---- what is known beforehand --------------------------------------------------------------------


def auc(frame: pd.DataFrame, signal: str, minus: str | None = None) -> Interval:
    """Area under the ROC curve: P(the signal is larger where `hit` is 1 than where it is 0), ties
    one half; 0.5 = no information. With `minus`, the difference to that signal's area on the same
    resamples. ValueError unless both outcomes occur and the signal varies; for fewer than 5
    prompts.
    """
    prompts = resampling_of(frame)
    draws = auc_draws(frame, signal, prompts)
    if minus:
        draws = draws - auc_draws(frame, minus, prompts)
    return Interval.of(draws, prompts, f"the area under the curve of {signal}")


def auc_draws(frame: pd.DataFrame, signal: str, prompts: Resampling) -> np.ndarray:
    """(1 + n,) areas, of the sample and of each resample (Mann and Whitney's U over all pairs)."""
    values, hit = column_of(frame, signal), column_of(frame, "hit")
    if set(hit) != {0.0, 1.0} or np.ptp(values) == 0:
        raise ValueError(
            f"`hit` is not both 0 and 1 here, or signal {signal!r} is constant: rows of both kinds "
            "are needed, and a signal that varies"
        )
    level = np.unique(values, return_inverse=True)[1]

    def area(weight: np.ndarray) -> float:
        accepted = weight * hit
        pairs_of_accepted = accepted.sum() ** 2 / 2
        above = accepted @ association.midranks(level, weight) - pairs_of_accepted
        return divide(above, accepted.sum() * (weight - accepted).sum())

    return association.of_each(prompts, area)


def areas(trace: pd.DataFrame) -> Estimates:
    """`auc` of every signal for `hit`: signal, domain and pooled, estimate, low, high, note."""
    parts = {}
    for signal, name in SIGNALS.items():
        parts[name] = per_domain(trace, partial(auc, signal=signal), pooled=True)
    return Estimates.stacked(parts, "signal", digits=3)


def lead_of_confidence(trace: pd.DataFrame) -> Estimates:
    """AUC of the draft's confidence minus that of each other signal, all prompts: signal, domain
    (POOLED), estimate, low, high, note.
    """
    first, *others = SIGNALS
    parts = {
        SIGNALS[other]: per_domain(
            trace.assign(domain=POOLED), partial(auc, signal=first, minus=other)
        )
        for other in others
    }
    return Estimates.stacked(parts, "signal", digits=3)


# ---- calibration ---------------------------------------------------------------------------------


def reliability(views: Views, count: int) -> Estimates:
    """Mean outcome in `count` equal bins of the draft's confidence: view, domain and pooled, bin,
    estimate, low, high, rows, n_prompts, confidence (mean of the bin).
    """
    parts = {}
    for view, (rows, outcome) in views.items():
        rows = rows.assign(bin=bins.equal_bins(rows, "confidence", count))
        parts[view] = bins.group_means(rows, outcome, "bin", "confidence")
    return Estimates.stacked(parts, "view")


def calibration(views: Views, count: int) -> Estimates:
    """Calibration error (over `count` bins) and gap, the mean of outcome less confidence, of each
    view: view, estimator, domain, all and pooled, estimate, low, high.
    """
    error = partial(bins.calibration_error, "confidence", bins=count)
    parts = {}
    for view, (rows, outcome) in views.items():
        gap = column_of(rows, outcome) - column_of(rows, "confidence")
        rows = rows.assign(gap=gap)
        asked = (error(outcome), mean_of("gap", "calibration_gap"))
        parts[view] = pd.concat([stats.by_domain(rows, one) for one in asked])
    return Estimates.stacked(parts, "view", digits=3)
