"""Notebook 05: does uncertainty predict rejection? Correlations with the target's entropy, curves
over it, what is known before verification, and calibration.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from speclab import stats
from speclab.analysis import association, bins, published
from speclab.analysis.texts import Text
from speclab.estimates import Estimates
from speclab.score import Estimator, column_of, divide, mean_of, ratio_of
from speclab.stats import ABOVE, BELOW, NUMBERS, verdict

# what may predict acceptance; the last is known only after the target pass
SIGNALS = {
    "confidence": "draft confidence",
    "draft_certainty": "draft entropy, negated",
    "target_certainty": "target entropy, negated",
}
RISE_OR_FALL = ("rises in", "falls in", "no significant trend in")
PREDICTS = ("significantly above 0.5 in", "below 0.5 in", "not significantly different in")
BETTER = ("higher than", "lower than", "not significantly different from")
MOST_NAMED = 6  # domains in a sentence of the answer
TOO_SURE = ("underconfident in", "overconfident in", "no significant difference in")

Views = Mapping[str, tuple[pd.DataFrame, str]]  # by name: rows, column that is averaged


def name_of_acceptance(text: Text) -> str:
    """What the acceptance of one drafted token is called: 'hit (T = 0)', 'overlap (T = 1)'."""
    return f"{text.value} ({text.name})"


def acceptances(greedy: Text, sampled: Text) -> Views:
    """Kinds of acceptance: min(1, p/q) of the nodes hung on greedy text, all and by rank, and the
    exact acceptance of one drafted token, each on the text of its own temperature.
    """
    views = {"min(1, p/q), all nodes": (greedy.nodes, "ratio")}
    for rank, nodes in greedy.nodes.groupby("rank"):
        views[f"min(1, p/q), rank {rank}"] = (nodes, "ratio")
    for text in (sampled, greedy):
        views[name_of_acceptance(text)] = (text.trace, text.value)
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
    -0.31 to -0.27)'; of more than MOST_NAMED domains how many. It is said where some have no
    interval: these are left out.
    """
    if correlations.span() == "undefined":
        return "does not vary, so it has no trend"
    is_known = correlations.frame[NUMBERS].notna().all(axis=1)
    if not is_known.any():
        return "has no interval in any domain"
    known = Estimates(correlations.frame[is_known].reset_index(drop=True), correlations.digits)
    said = known.sentence("rises in", "falls in", "has no significant trend in")
    if len(known.frame) > MOST_NAMED:
        sides = list(verdict(known.frame["low"], known.frame["high"]))
        falling, rising = sides.count(BELOW), sides.count(ABOVE)
        said = f"falls in {falling} and rises in {rising} of {len(sides)} domains"
    if not is_known.all() and said.endswith(" domains"):
        said += " with an interval"
    return f"{said} (Spearman {known.span()})"


def beside_published(correlations: Estimates) -> Estimates:
    """The correlations with those that the paper printed (`published`), which are of its own
    domains: where there is another one, without them.
    """
    printed = published.published("VI").rename(columns={"published": "estimate"})
    domains = list(pd.unique(correlations.frame["domain"]))
    if not set(domains) <= set(printed["domain"]):
        return correlations.defined()
    parts = [correlations.frame, printed.assign(acceptance="published")]
    both = Estimates(pd.concat(parts, ignore_index=True))
    return both.at(domain=domains).defined()


def acceptance_in_bins(views: Views, count: int) -> Estimates:
    """Mean acceptance in `count` quantile bins of target entropy (of each text its own):
    acceptance, domain and pooled, entropy_bin, estimate, low, high, rows, n_prompts, target_entropy
    (mean of the bin).
    """
    parts = {}
    for name, (rows, column) in views.items():
        rows = rows.assign(entropy_bin=bins.quantile_bins(rows, "target_entropy", count))
        parts[name] = bins.group_means(rows, column, "entropy_bin", "target_entropy")
    return Estimates.stacked(parts, "acceptance")


# ---- what is known beforehand --------------------------------------------------------------------


def pairs_within_texts(trace: pd.DataFrame) -> pd.DataFrame:
    """Of each text: domain, prompt_id, seed, `pairs` of an accepted and a rejected position, and a
    column for each of SIGNALS: the pairs in which the signal is larger at the accepted position,
    ties one half (the text's area under the ROC curve, times its pairs).
    """
    rows = []
    texts = trace.groupby(["domain", "prompt_id", "seed"], sort=False)
    for (domain, prompt, seed), positions in texts:
        hit = positions["hit"]
        pairs = hit.sum() * (1 - hit).sum()
        text = {"domain": domain, "prompt_id": prompt, "seed": seed, "pairs": pairs}
        for name in SIGNALS:
            area = roc_auc_score(hit, positions[name]) if pairs else 0.0
            text[name] = pairs * area
        rows.append(text)
    return pd.DataFrame(rows)


def within_texts(trace: pd.DataFrame) -> stats.Draws:
    """The area under the ROC curve (AUC) over all pairs of positions of the same text: draws by the
    names of SIGNALS, undefined where no text has both an accepted and a rejected position.

    Within texts, since over several sets or texts a signal is also credited for knowing which of
    them is easy.
    """
    pairs = pairs_within_texts(trace)
    areas = {of: (pairs, ratio_of(name, "pairs")) for name, of in SIGNALS.items()}
    return stats.jointly(areas)


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


def calibration_measures(views: Views, count: int) -> Estimates:
    """Calibration error (over `count` bins) and gap, the mean of outcome less confidence, of each
    view: view, estimator, domain, all and pooled, estimate, low, high.
    """
    parts = {}
    for view, (positions, outcome) in views.items():
        rows, gap = calibration_gap(positions, outcome)
        rows = rows.assign(bin=bins.equal_bins(rows, "confidence", count))
        tables = [stats.by_domain(rows, of) for of in (calibration_error(count), gap)]
        parts[view] = pd.concat(tables)
    return Estimates.stacked(parts, "view", digits=3)


def calibration_gap(rows: pd.DataFrame, outcome: str) -> tuple[pd.DataFrame, Estimator]:
    """The mean of outcome minus the draft's confidence, as a question."""
    gap = column_of(rows, outcome) - column_of(rows, "confidence")
    return rows.assign(gap=gap), mean_of("gap", "calibration_gap")


def calibration_error(count: int) -> Estimator:
    """Expected calibration error over `count` bins: the mean over rows of |mean `gap`| of the row's
    `bin` of confidence (an empty bin counts nothing). Never below 0 and pushed up by noise, so its
    interval is no test of 0: the mean gap is. Source: Guo et al. (arXiv:1706.04599).
    """

    def value(totals: np.ndarray) -> np.ndarray:
        by_bin = np.split(np.abs(totals), 2, axis=-1)
        distance, rows = (sums.sum(-1, keepdims=True) for sums in by_bin)
        return divide(distance, rows)

    columns = bins.in_levels("gap", "bin", range(count))
    return Estimator("calibration_error", columns, value)
