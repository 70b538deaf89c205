"""Notebook 05: does uncertainty predict rejection? Correlations with the target's entropy, curves
over it, ROC curves of what is known before verification, and calibration.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np
import pandas as pd
from sklearn.metrics import roc_curve

from speclab import score, stats
from speclab.analysis import association, bins, published
from speclab.score import POOLED, column_of, divide
from speclab.show import figures
from speclab.show.estimates import Estimates, per_domain, stack, without_interval
from speclab.stats import Interval, Resampling, interval_of, resampling_of

SIGNALS = {
    "confidence": "draft confidence",
    "draft_certainty": "draft entropy, reversed",
    "target_certainty": "target entropy, reversed",
}
IN_TIME = ("confidence", "draft_certainty")  # what is known before the target pass
GREY = "#8A8A8A"
OVERLAP, HIT = "overlap (T = 1)", "hit (T = 0)"
RISE_OR_FALL = (
    "rises with entropy in",
    "falls as entropy rises in",
    "shows no direction that can be told in",
)
FORETELLS = (
    "foretells acceptance in",
    "misleads in",
    "cannot be shown to tell anything in",
)
BETTER = (
    "foretells better than",
    "foretells worse than",
    "cannot be told apart from",
)
TOO_SURE = (
    "is too modest in",
    "is too sure in",
    "cannot be shown to be too sure or too modest in",
)


def frames(run) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The nodes of a run with `ratio` = min(1, p/q), and its trace with `bins.signals`."""
    nodes = run.nodes.assign(ratio=score.ratio(run.nodes))
    return nodes, bins.signals(run.trace)


def named(prefix: str, rows: pd.DataFrame, column: str) -> dict[str, float]:
    """A column of numbers by domain, as names for the notebook's record."""
    return dict(zip(prefix + "_" + rows["domain"], rows[column], strict=True))


# ---- correlations --------------------------------------------------------------------------------


def views_of_ranks(nodes: pd.DataFrame) -> dict[str, tuple[pd.DataFrame, str]]:
    """The nodes of each rank and the column that says how acceptable they are."""
    ranks = nodes.groupby("rank")
    return {f"min(1, p/q), rank {rank}": (rows, "ratio") for rank, rows in ranks}


def entropy_correlations(
    nodes: pd.DataFrame, trace: pd.DataFrame, sampled: pd.DataFrame
) -> Estimates:
    """Correlation of the target's entropy with each kind of acceptance: method, acceptance, domain,
    estimate, low, high, note. `trace` (greedy text) and `sampled` (text of T = 1) have
    `bins.signals`; each exact acceptance is of the text of its temperature.
    """
    views = {"min(1, p/q), all nodes": (nodes, "ratio")} | views_of_ranks(nodes)
    views |= {OVERLAP: (sampled, "overlap"), HIT: (trace, "hit")}
    parts = {
        (method, name): _correlated(rows, "target_entropy", outcome, method)
        for method in association.METHODS
        for name, (rows, outcome) in views.items()
    }
    return Estimates(stack(parts, ["method", "acceptance"]))


def signal_correlations(trace: pd.DataFrame, sampled: pd.DataFrame) -> Estimates:
    """Correlation of each signal that is known in time with exact acceptance, `overlap` on sampled
    text (T = 1) and `hit` on greedy (T = 0): signal, correlation (method and outcome), domain and
    pooled, estimate, low, high, note.
    """
    parts = {
        (SIGNALS[signal], f"{method}, {outcome}"): _correlated(
            rows, signal, outcome, method, pooled=True
        )
        for signal in IN_TIME
        for rows, outcome in ((sampled, "overlap"), (trace, "hit"))
        for method in association.METHODS
    }
    return Estimates(stack(parts, ["signal", "correlation"]))


def beside_published(correlations: Estimates) -> Estimates:
    """The correlations with those that the paper printed (`published`, Spearman)."""
    printed = published.published("VI").rename(columns={"published": "estimate"})
    printed = printed.assign(method="spearman", acceptance="published")
    both = Estimates(pd.concat([correlations.frame, printed]))
    return both.at(domain=list(correlations.frame["domain"])).defined()


def _correlated(
    rows: pd.DataFrame, x: str, y: str, method: str, pooled: bool = False
) -> pd.DataFrame:
    measure = partial(association.correlation, x=x, y=y, method=method)
    return per_domain(rows, measure, pooled=pooled)


def directions(correlations: Estimates) -> str:
    """A line for each kind of acceptance: least to greatest correlation, and where it rises and
    falls.
    """
    lines = [
        f"* `{name}`, {mine.span()}: acceptance {mine.sentence(*RISE_OR_FALL)}."
        for name, mine in correlations.groups("acceptance")
    ]
    return "\n".join(lines)


def opposed(correlations: Estimates) -> str:
    """The domains in which acceptance rises with entropy at one rank and falls at another, or
    'no domain'.
    """
    frame = correlations.frame
    ranks = frame[frame["acceptance"].str.contains("rank")]
    ends = ranks.groupby("domain", sort=False).agg({"low": "max", "high": "min"})
    both = ends.index[(ends["low"] > 0) & (ends["high"] < 0)]
    return ", ".join(both) or "no domain"


def methods_compared(correlations: Estimates) -> str:
    """What Spearman and Pearson say that the other does not."""
    frame = correlations.frame
    side = (frame["low"] > 0).astype(int) - (frame["high"] < 0).astype(int)
    table = frame.assign(side=side).pivot(
        index=["acceptance", "domain"], columns="method", values="side"
    )
    unlike = table.index[table.prod(axis=1) < 0].map(" in ".join)
    alone = ((table == 0).sum(axis=1) == 1).sum()
    return (
        f"Of {len(table)} correlations the two point in opposite directions for "
        f"{', '.join(unlike) or 'none'}; for {alone} only one of the two shows a direction "
        "that can be told."
    )


# ---- curves over entropy -------------------------------------------------------------------------


def curves(
    nodes: pd.DataFrame, trace: pd.DataFrame, sampled: pd.DataFrame, count: int
) -> Estimates:
    """Mean acceptance in `count` quantile bins of target entropy (of each text its own): domain and
    pooled, entropy_bin, estimate, low, high, rows, n_prompts, target_entropy (mean of the bin),
    acceptance. `trace` is of greedy text, `sampled` of T = 1.
    """
    nodes, trace, sampled = (
        rows.assign(entropy_bin=bins.quantile_bins(rows, "target_entropy", count))
        for rows in (nodes, trace, sampled)
    )
    views = dict(list(views_of_ranks(nodes).items())[:2])
    views |= {
        "alpha = mean overlap (T = 1)": (sampled, "overlap"),
        "hit[1] (T = 0)": (trace, "hit"),
    }
    parts = []
    for name, (rows, outcome) in views.items():
        means = bins.group_means(rows, outcome, "entropy_bin", x="target_entropy")
        parts.append(means.frame.assign(acceptance=name))
    return Estimates(pd.concat(parts, ignore_index=True))


def panels(curves: Estimates) -> Estimates:
    """The curves of the domains, under names that fit over a panel."""
    frame = curves.frame.replace({"alpha = mean overlap (T = 1)": "alpha (T = 1)"})
    return Estimates(frame).without(domain=POOLED)


# ---- ROC -----------------------------------------------------------------------------------------


def roc(frame: pd.DataFrame, signal: str, outcome: str) -> pd.DataFrame:
    """ROC curve over rows: false_positive, true_positive (rates), threshold.

    ValueError unless both outcomes occur and the signal varies.
    """
    values, yes = _two_outcomes(frame, signal, outcome)
    columns = ("false_positive", "true_positive", "threshold")
    return pd.DataFrame(dict(zip(columns, roc_curve(yes, values), strict=True)))


def auc(
    frame: pd.DataFrame, signal: str, outcome: str, minus: str | None = None
) -> Interval:
    """Area under the ROC curve: P(the signal is larger at an accepted than at a rejected row), ties
    one half; 0.5 = no information. With `minus`, the difference to that signal's area on the same
    resamples. ValueError as in `roc`, and for fewer than 5 prompts.
    """
    prompts = resampling_of(frame)
    draws = auc_draws(frame, signal, outcome, prompts)
    if minus:
        draws = draws - auc_draws(frame, minus, outcome, prompts)
    return interval_of(draws, prompts, f"the area under the curve of {signal}")


def auc_draws(
    frame: pd.DataFrame, signal: str, outcome: str, prompts: Resampling
) -> np.ndarray:
    """(1 + n,) areas, of the sample and of each resample."""
    values, yes = _two_outcomes(frame, signal, outcome)
    level = np.unique(values, return_inverse=True)[1]
    draws = []
    for weight in prompts.weights:
        weight = weight[prompts.rows]
        accepted = np.bincount(level, weight * yes)
        rejected = np.bincount(level, weight * ~yes)
        below = rejected.cumsum() - rejected / 2  # ties count one half
        draws.append(divide(accepted @ below, accepted.sum() * rejected.sum()))
    return np.array(draws)


def _two_outcomes(
    frame: pd.DataFrame, signal: str, outcome: str
) -> tuple[np.ndarray, np.ndarray]:
    values, yes = column_of(frame, signal), column_of(frame, outcome)
    held = sorted(set(yes.tolist()))[:3]
    if held != [0.0, 1.0] or np.ptp(values) == 0:
        raise ValueError(
            f"outcome {outcome!r} holds {held}, not both 0 and 1, or signal {signal!r} is constant"
        )
    return values, yes == 1


def areas(trace: pd.DataFrame) -> Estimates:
    """`auc` of every signal for `hit`: signal, domain and pooled, estimate, low, high, note."""
    parts = {}
    for signal, name in SIGNALS.items():
        measure = partial(auc, signal=signal, outcome="hit")
        parts[name] = per_domain(trace, measure, pooled=True)
    return Estimates.stacked(parts, "signal")


def lead_of_confidence(trace: pd.DataFrame) -> Estimates:
    """AUC of the draft's confidence less that of each other signal, all domains: signal, estimate,
    low, high.
    """
    first, *others = SIGNALS
    rows = [
        {"signal": SIGNALS[other]} | vars(auc(trace, first, "hit", minus=other))
        for other in others
    ]
    return Estimates(pd.DataFrame(rows), digits=3)


def roc_figure(trace: pd.DataFrame, areas: Estimates) -> figures.Figure:
    """Left the ROC curves over all domains, right the areas of each domain."""
    figure, (left, right) = figures.subplots(1, 2, height=3.1, width_ratios=[1, 1.35])
    left.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    for index, (signal, name) in enumerate(SIGNALS.items()):
        curve = roc(trace, signal, "hit")
        style = figures.style_of(name, index) | {"marker": ""}
        left.plot(curve["false_positive"], curve["true_positive"], **style)
    left.set_aspect("equal")
    left.set_title("ROC, all domains")
    left.set(
        xlabel="share of rejected positions above",
        ylabel="share of accepted positions above",
    )
    figures.interval_bars(areas.defined().frame, right, "domain", hue="signal")
    right.axhline(0.5, color=GREY, linewidth=0.8)
    right.set(
        title="area under the curve", ylabel="AUC (line: tells nothing)", ylim=(None, 1)
    )
    figures.legend_above(figure, right)
    return figure


# ---- calibration ---------------------------------------------------------------------------------

Views = Mapping[
    str, tuple[pd.DataFrame, str]
]  # name: trace with `bins.signals`, outcome


def reliability(views: Views, count: int) -> Estimates:
    """Mean outcome in `count` equal bins of the draft's confidence: domain and pooled, bin,
    estimate, low, high, rows, n_prompts, confidence (mean of the bin), view.
    """
    parts = []
    for view, (trace, outcome) in views.items():
        trace = trace.assign(bin=bins.equal_bins(trace, "confidence", count))
        means = bins.group_means(trace, outcome, "bin", x="confidence")
        parts.append(means.frame.assign(view=view))
    return Estimates(pd.concat(parts, ignore_index=True))


def calibration(views: Views, count: int) -> Estimates:
    """Calibration error (over `count` bins) and gap of each view: view, estimator, domain, all and
    pooled, estimate, low, high.
    """
    parts = {}
    for view, (trace, outcome) in views.items():
        error = bins.calibration_error("confidence", outcome, count)
        gap = bins.calibration_gap("confidence", outcome)
        found = [stats.by_domain(trace, estimator) for estimator in (error, gap)]
        parts[view] = pd.concat(found)
    return Estimates.stacked(parts, "view", digits=3)


def reliability_figure(reliability: Estimates) -> figures.Figure:
    """What came of a confidence (above) and how often it is met (below), one column a view."""
    came = reliability.without(domain=POOLED).frame
    total = came.groupby(["view", "domain"])["rows"].transform("sum")
    met = without_interval(came, came["rows"] / total)
    figure = figures.facets(
        stack({"what came of it": came, "share of positions": met}, "panel"),
        "confidence",
        rows="panel",
        columns="view",
        y="",
        x_label="draft confidence q",
        height=2,
        share_y=False,
    )
    for axes in figure.axes[:2]:
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
        axes.set_ylim(0, 1)
    for axes in figure.axes[2:4]:
        axes.set_ylim(0, 1.1 * met["estimate"].max())
    return figure
