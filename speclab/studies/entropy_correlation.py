"""Notebook 05: does uncertainty predict rejection? Correlation of acceptance with the target's
entropy, acceptance in bins of entropy, signals that are known before the target pass, and
calibration of the draft.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from speclab import stats
from speclab.analysis import association, bins, published
from speclab.analysis.texts import PAPER, Text
from speclab.estimates import Estimates, counted, named, yes_or_no
from speclab.score import POOLED, Estimator, column_of, divide, mean_of, ratio_of
from speclab.stats import ABOVE, BELOW, INCONCLUSIVE, UNDEFINED, verdict

CONFIDENCE = "draft confidence"
# signals that may predict acceptance; the last one is known only after the target pass
SIGNALS = {
    "confidence": CONFIDENCE,
    "draft_certainty": "draft entropy (negated)",
    "target_certainty": "target entropy (negated)",
}
TREND = ("rises", "falls", "has no significant trend")
HIGHER = ("has a higher AUC", "has a lower AUC", "has no significantly different AUC")
PREDICTS = ("predicts acceptance", "misleads", "does not predict acceptance")
# kinds of acceptance: min(1, p/q) over the nodes of the trees, and as the paper prints it
ALL_NODES, PUBLISHED = f"{PAPER}, all nodes", f"{PAPER}, as published"
# what the calibration gap says of a draft, in all domains or not in all
OF_GAP = {
    ABOVE: "underconfident",
    BELOW: "overconfident",
    INCONCLUSIVE: "without significant gap",
    UNDEFINED: "without intervals",
}

Views = Mapping[str, tuple[pd.DataFrame, str]]  # by name: rows, column that is averaged


def acceptances(greedy: Text, sampled: Text) -> Views:
    """Kinds of acceptance: the exact acceptance of one drafted token, on each text, then min(1,
    p/q) of the nodes on greedy text, by rank and of all nodes (ALL_NODES).
    """
    views = {text.token: (text.trace, text.value) for text in (greedy, sampled)}
    for rank, nodes in greedy.nodes.groupby("rank"):
        views[f"{PAPER}, rank {rank}"] = (nodes, "ratio")
    views[ALL_NODES] = (greedy.nodes, "ratio")
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


def uncertainty_in_words(
    area: Estimates, correlations: Estimates, elsewhere: Estimates | None
) -> str:
    """The notebook's answer, at T = 0: the mean AUC of the draft's confidence as a share of
    comparisons, and what acceptance does as the target's entropy rises; elsewhere: correlations on
    other prompts, where there are any.
    """
    text = (
        f"{yes_or_no(area.verdict(0.5)).capitalize()}. The draft is surer of an accepted than a "
        f"rejected token in {area.in_units('%')} of pairs (T = 0)."
    )
    if area.known.empty:
        text = "Not tested: no text has both accepted and rejected tokens."
    text += f" As target entropy rises, acceptance {correlations.tally(*TREND)}."
    if elsewhere is None:
        return text
    falls = verdict(elsewhere.frame["low"], elsewhere.frame["high"]) == BELOW
    domains = counted(len(falls), "domain")
    return f"{text} On other prompts it falls in {falls.sum()} of {domains}."


def beside_published(correlations: Estimates) -> Estimates:
    """The correlations and, last, those that the paper printed (PUBLISHED). These belong to the
    paper's domains: where there is another domain, they are left out.
    """
    printed = published.published("VI").rename(columns={"published": "estimate"})
    domains = list(pd.unique(correlations.frame["domain"]))
    if not set(domains) <= set(printed["domain"]):
        return correlations.defined()
    parts = [correlations.frame, printed.assign(acceptance=PUBLISHED)]
    both = Estimates(pd.concat(parts, ignore_index=True))
    return both.at(domain=domains).defined()


def acceptance_in_bins(views: Views, count: int) -> Estimates:
    """Mean acceptance in `count` quantile bins of target entropy, which each view has of its own:
    acceptance, domain and pooled, entropy_bin, estimate, low, high, rows, n_prompts, target_entropy
    (mean of the bin).
    """
    parts = {}
    for name, (rows, column) in views.items():
        rows = rows.assign(entropy_bin=bins.quantile_bins(rows, "target_entropy", count))
        parts[name] = bins.group_means(rows, column, "entropy_bin", "target_entropy")
    return Estimates.stacked(parts, "acceptance")


# ---- signals that are known before the target pass -----------------------------------------------


def pairs_within_texts(trace: pd.DataFrame) -> pd.DataFrame:
    """One row per text: domain, prompt_id, seed, its `pairs` of an accepted and a rejected
    position, and for each of SIGNALS the pairs in which the signal is larger at the accepted
    position. A tie counts one half, so this is the area under the text's ROC curve times its pairs.
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

    Pairs are of one text, because across texts a signal also gets credit for knowing which text is
    easy.
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
    """Calibration error (over `count` bins) and gap (mean of outcome minus confidence) of each
    view: view, estimator, domain, all and pooled, estimate, low, high.
    """
    parts = {}
    for view, (positions, outcome) in views.items():
        rows, gap = calibration_gap(positions, outcome)
        rows = rows.assign(bin=bins.equal_bins(rows, "confidence", count))
        tables = [stats.by_domain(rows, of).frame for of in (calibration_error(count), gap)]
        parts[view] = pd.concat(tables)
    return Estimates.stacked(parts, "view")


def calibration_table(calibration: Estimates) -> pd.DataFrame:
    """A table to show of `calibration_measures`: by domain, and the mean of the domains."""
    table = calibration.without(domain=POOLED).wide(["view", "domain"], "estimator")
    return table.rename(columns=lambda name: name.replace("_", " "))


def calibrated_in_words(gaps: Estimates) -> str:
    """What the gaps say about the draft, as a title: 'The draft is underconfident at T = 0 and
    overconfident at T = 1'; gaps: of `calibration_measures`, by domain. Domains without an interval
    are left out if others have one.
    """
    parts = []
    for view, rows in gaps.groups("view"):
        sides = {*verdict(rows.frame["low"], rows.frame["high"])}
        sides = sides - {UNDEFINED} or sides
        word = OF_GAP[sides.pop()] if len(sides) == 1 else "partly miscalibrated"
        parts.append(f"{word} at {view}")
    return f"The draft is {named(parts)}"


def calibration_gap(rows: pd.DataFrame, outcome: str) -> tuple[pd.DataFrame, Estimator]:
    """The mean of outcome minus the draft's confidence, as a question."""
    gap = column_of(rows, outcome) - column_of(rows, "confidence")
    return rows.assign(gap=gap), mean_of("gap", "calibration_gap")


def calibration_error(count: int) -> Estimator:
    """Expected calibration error over `count` bins of confidence: the mean over rows of |mean
    `gap`| of the row's `bin`. It is never below 0 and noise raises it, so its interval does not
    test 0; that of the mean gap does. Source: Guo et al. (arXiv:1706.04599).
    """

    def value(totals: np.ndarray) -> np.ndarray:
        by_bin = np.split(np.abs(totals), 2, axis=-1)
        distance, rows = (sums.sum(-1, keepdims=True) for sums in by_bin)
        return divide(distance, rows)

    columns = bins.in_levels("gap", "bin", range(count))
    return Estimator("calibration_error", columns, value)
