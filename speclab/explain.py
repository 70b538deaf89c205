"""What explains acceptance: means in bins and classes, draft confidence as a predictor, and a domain against the others.

Works on recorded frames, with the prompt as the unit of every interval (`speclab.stats`). What is a mean or a ratio of sums is a
`score.Estimator`, so that it can be resampled, contrasted between domains and standardised in the same way. Knows no model and no figure.
Sources: calibration error and reliability diagram, Guo et al. (arXiv:1706.04599); direct standardisation, any text on epidemiology.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn.metrics import roc_curve

from speclab import score
from speclab.score import POOLED, Estimator, column_of, divide, domains_in, ratio, require
from speclab.stats import BOUNDS, MIN_PROMPTS, RESAMPLES, Interval, Prompts, by_domain, prompts_of

# One name for what begins a word, in code and in prose, so that all domains have rows of every kind.
KINDS = {"keyword": "word start", "identifier": "word start", "word_start": "word start", "word_inside": "word inside", "number": "number",
         "operator": "operator", "punctuation": "punctuation", "newline": "white space", "space": "white space", "special": "end of text",
         "other": "other"}


@dataclass(frozen=True)
class Contrast(Interval):
    """One domain minus the mean of the others, as an Interval, and the share of resamples in which that domain is the highest."""

    share_highest: float


def attempt(measure: Callable[..., Interval], *arguments, **options) -> dict:
    """Fields of `measure(...)` and an empty `note`; where it raises ValueError (a constant column, too few prompts) missing numbers and the
    reason in `note`, so that one domain that cannot answer does not hide the others."""
    try:
        return vars(measure(*arguments, **options)) | {"note": ""}
    except ValueError as error:
        return {"estimate": np.nan, "low": np.nan, "high": np.nan, "note": str(error)}


def per_domain(frame: pd.DataFrame, measure: Callable, within: str | None = None, pooled: bool = False) -> pd.DataFrame:
    """`attempt(measure, rows)` per domain, last `pooled` if asked (per value of `within`, such as rank): domain, [within], fields, note."""
    require(frame, ["domain", *([within] if within else [])], "frame")
    rows = []
    for domain in (*domains_in(frame), *([POOLED] if pooled else [])):
        part = frame if domain == POOLED else frame[frame["domain"] == domain]
        groups = part.groupby(within, observed=True) if within else [(None, part)]
        rows += [{"domain": domain} | ({within: level} if within else {}) | attempt(measure, group) for level, group in groups]
    return pd.DataFrame(rows)


def direction(interval, above: str, below: str, unclear: str = "cannot be told apart from") -> str:
    """`above` or `below` if the whole interval (anything with .low and .high) is on that side of 0; else, also if undefined, `unclear`."""
    return above if interval.low > 0 else below if interval.high < 0 else unclear


def by_direction(rows: pd.DataFrame, above: str, below: str, unclear: str, names: str = "domain") -> str:
    """`direction` of every row in one phrase, such as 'falls in code, math; is undefined in chat'; a wording ends before the names."""
    said = [direction(row, above, below, unclear if row.low <= row.high else "is undefined in") for row in rows.itertuples()]
    return "; ".join(f"{word} {', '.join(rows[names][[word == other for other in said]])}" for word in dict.fromkeys(said))


def wide(frame: pd.DataFrame, index: Sequence[str], columns: str, digits: int = 2) -> pd.DataFrame:
    """A long table of intervals as text cells '0.56 [0.55, 0.58]' ('undefined' where missing), rows and columns in order of appearance."""
    form = f"{{0.estimate:.{digits}f}} [{{0.low:.{digits}f}}, {{0.high:.{digits}f}}]"
    text = ["undefined" if np.isnan(row.estimate) else form.format(row) for row in frame.itertuples()]
    table = frame.assign(_text=text).pivot(index=list(index), columns=columns, values="_text")
    table = table[list(pd.unique(frame[columns]))].rename_axis(columns=None).reset_index()
    return frame[list(index)].drop_duplicates().merge(table, on=list(index))


def signals(trace: pd.DataFrame) -> pd.DataFrame:
    """The trace with, at each position, `hit` (accepted at T = 0: 1.0 or 0.0), `confidence` (q of the draft's best token), `top_p` (p of
    that token: its acceptance at T = 1, point-mass rule), and -entropy of both models, so that larger always means surer."""
    require(trace, ["draft_rank", "top_draft_q", "top_draft_p", "draft_entropy", "target_entropy"], "trace")
    first = {name: np.stack(trace[column].to_numpy())[:, 0] for name, column in (("confidence", "top_draft_q"), ("top_p", "top_draft_p"))}
    return trace.assign(hit=(column_of(trace, "draft_rank") == 0).astype(float), **first, draft_certainty=-trace["draft_entropy"],
                        target_certainty=-trace["target_entropy"])


def quantile_bins(frame: pd.DataFrame, column: str, bins: int = 8) -> pd.Series:
    """Bin number of each row: quantiles of all rows, the same edges in every domain; ties may leave fewer. ValueError: constant column."""
    values = column_of(frame, column)
    if bins < 2 or np.ptp(values) == 0:
        raise ValueError(f"bins={bins} of column {column!r}, {values.min():g}..{values.max():g}: needed are 2 bins and values that differ")
    return pd.Series(pd.qcut(values, bins, labels=False, duplicates="drop"), index=frame.index, name=f"{column}_bin")


def equal_bins(frame: pd.DataFrame, column: str, bins: int = 10) -> pd.Series:
    """Bin number of each row of a probability: `bins` equal parts of 0..1, the upper end in the last. ValueError outside 0..1."""
    values = column_of(frame, column)
    if bins < 1 or values.min() < 0 or values.max() > 1 + 1e-6:
        raise ValueError(f"bins={bins} of column {column!r}, {values.min():g}..{values.max():g}: needed are 1 bin and probabilities")
    return pd.Series(np.minimum((values * bins).astype(int), bins - 1), index=frame.index, name=f"{column}_bin")


def _in_levels(value: str, group: str, levels: Sequence) -> Callable[[pd.DataFrame], np.ndarray]:
    """(rows, 2m) to be summed: `value` where the row's `group` is that level, and whether it is."""
    def columns(frame: pd.DataFrame) -> np.ndarray:
        member = require(frame, [group], "frame")[group].to_numpy()[:, None] == np.asarray(levels)
        return np.concatenate([np.where(member, column_of(frame, value)[:, None], 0.0), member], axis=1)

    return columns


def group_means(frame: pd.DataFrame, value: str, group: str, x: str | None = None, n: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """Mean of `value` in each level of `group` (a bin, a token kind), per domain and pooled: domain, group, estimate, low, high, rows,
    n_prompts, [x: its mean there]. Levels with rows of fewer than 5 prompts are left out; ValueError if that leaves none."""
    levels = require(frame, ["domain", "prompt_id", group], "frame").groupby(group, observed=True).size().index.tolist()
    found = by_domain(frame, Estimator(value, _in_levels(value, group, levels), ratio, scalar=False), n, seed)
    found[group] = levels * (len(found) // len(levels))
    both = pd.concat([frame, frame.assign(domain=POOLED)]).groupby(["domain", group], observed=True)
    counts = both.agg(rows=("prompt_id", "size"), n_prompts=("prompt_id", "nunique"), **({x: (x, "mean")} if x else {})).reset_index()
    result = found[["domain", group, "estimate", "low", "high"]].merge(counts.astype({group: object}), on=["domain", group])
    result = result[result["n_prompts"] >= MIN_PROMPTS].reset_index(drop=True)
    if result.empty:
        raise ValueError(f"no level of {group!r} has rows of {MIN_PROMPTS} prompts in a domain: take fewer bins or record more prompts")
    return result.astype({group: frame[group].dtype})


def calibration_error(confidence: str, outcome: str, bins: int = 10) -> Estimator:
    """Expected calibration error: mean over rows of |mean outcome - mean confidence| of the row's bin of confidence (equal parts of 0..1;
    an empty bin counts nothing). Never below 0 and pushed up by noise, so its interval is no test of 0: see `calibration_gap`."""
    def columns(frame: pd.DataFrame) -> np.ndarray:
        member = equal_bins(frame, confidence, bins).to_numpy()[:, None] == np.arange(bins)
        gap = column_of(frame, outcome) - column_of(frame, confidence)
        return np.column_stack([gap[:, None] * member, np.ones(len(frame))])

    return Estimator("calibration_error", columns, lambda t: divide(np.abs(t[..., :-1]).sum(-1, keepdims=True), t[..., -1:]))


def calibration_gap(confidence: str, outcome: str) -> Estimator:
    """Mean of outcome - confidence: below 0 the draft is too sure of itself, above 0 not sure enough."""
    return Estimator("calibration_gap", lambda frame: np.column_stack([column_of(frame, outcome) - column_of(frame, confidence),
                                                                       np.ones(len(frame))]), ratio)


def _interval(draws: np.ndarray, n_prompts: int, what: str) -> Interval:
    """draws (1 + n,): the estimate, then its resamples."""
    if np.isnan(draws[0]) or np.isnan(draws).mean() > 0.05:
        raise ValueError(f"{what} is undefined here, or in over 5 % of the resamples: too few rows; record more prompts or take fewer bins")
    return Interval(float(draws[0]), *map(float, np.nanquantile(draws[1:], BOUNDS)), n_prompts)


def _two_outcomes(frame: pd.DataFrame, signal: str, outcome: str) -> tuple[np.ndarray, np.ndarray]:
    values, yes = column_of(frame, signal), column_of(frame, outcome)
    if np.ptp(values) == 0 or sorted(set(yes)) != [0.0, 1.0]:
        held = [float(value) for value in sorted(set(yes))[:3]]
        wrong = f"outcome {outcome!r} holds {held}, not both 0 and 1" if np.ptp(values) else f"signal {signal!r} is constant"
        raise ValueError(f"{wrong}: an ROC curve is undefined; choose rows where it varies")
    return values, yes == 1


def roc(frame: pd.DataFrame, signal: str, outcome: str) -> pd.DataFrame:
    """ROC curve over rows: false_positive, true_positive (rates), threshold. ValueError unless both outcomes occur, the signal varies."""
    values, yes = _two_outcomes(frame, signal, outcome)
    return pd.DataFrame(dict(zip(("false_positive", "true_positive", "threshold"), roc_curve(yes, values), strict=True)))


def _auc_draws(frame: pd.DataFrame, signal: str, outcome: str, prompts: Prompts) -> np.ndarray:
    """(1 + n,): a quadratic form in the weights of the prompts, so the rows are compared once and a resample costs no pass over them."""
    values, yes = _two_outcomes(frame, signal, outcome)
    rows, size, order = prompts.rows, prompts.weights.shape[1], np.argsort(values)
    seen = np.zeros((len(values) + 1, size))  # negatives of each prompt among the lowest 0, 1, 2, … values
    seen[np.arange(1, len(values) + 1), rows[order]] = ~yes[order]
    np.cumsum(seen, axis=0, out=seen)
    ends = (np.searchsorted(values[order], values[yes], side) for side in ("left", "right"))
    pairs = np.zeros((size, size))  # [prompt of the positive, prompt of the negative]: pairs in the right order, ties one half
    np.add.at(pairs, rows[yes], sum(seen[end] for end in ends) / 2)
    counts = [prompts.weights @ np.bincount(rows[which], minlength=size) for which in (yes, ~yes)]
    return divide(((prompts.weights @ pairs) * prompts.weights).sum(axis=1), counts[0] * counts[1])


def auc(frame: pd.DataFrame, signal: str, outcome: str, minus: str | None = None, n: int = RESAMPLES, seed: int = 0) -> Interval:
    """Area under the ROC curve: P(the signal is larger at an accepted than at a rejected row), ties one half; 0.5 = no information.
    With `minus`, the difference to that signal's area on the same resamples. ValueError as in `roc`, and for fewer than 5 prompts."""
    prompts = prompts_of(frame, n, seed)
    draws = _auc_draws(frame, signal, outcome, prompts) - (_auc_draws(frame, minus, outcome, prompts) if minus else 0.0)
    return _interval(draws, prompts.weights.shape[1], f"the area under the curve of {signal}")


def standardised_mean(value: str, group: str, reference: pd.DataFrame) -> Estimator:
    """Direct standardisation: the mean of `value` if the levels of `group` had the shares that they have among the rows of `reference`
    (taken as fixed). Undefined for rows that lack one of its levels: see `matched`."""
    shares = require(reference, [group], "reference")[group].value_counts(normalize=True)
    shares = shares[shares > 0]
    return Estimator(f"{value} at equal {group}", _in_levels(value, group, shares.index.tolist()),
                     lambda totals: ratio(totals) @ shares.to_numpy()[:, None])


def matched(frame: pd.DataFrame, value: str, group: str) -> tuple[tuple, tuple]:
    """Before and after matching the domains on `group`: (rows, mean of `value`) and (rows, its standardised mean). The rows, the reference
    too, are those in levels with rows of 5 prompts or more in every domain (common support). ValueError if that is one level or none."""
    domains = domains_in(require(frame, ["prompt_id", group], "frame"))
    prompts = frame.groupby([group, "domain"], observed=True)["prompt_id"].nunique().unstack(fill_value=0)[list(domains)]
    shared = prompts.index[(prompts >= MIN_PROMPTS).all(axis=1)]
    if len(shared) < 2:
        raise ValueError(f"{len(shared)} level of {group!r} has rows of {MIN_PROMPTS} prompts in every domain: matching needs two or more")
    kept = frame[frame[group].isin(shared)]
    return (kept, score.mean_of(value)), (kept, standardised_mean(value, group, kept))


def pick(estimator: Estimator, index: int) -> Estimator:
    """One member of a family, such as hit[1], as an estimator of one number. ValueError (when called) if there is no such member."""
    def value(totals: np.ndarray) -> np.ndarray:
        members = estimator.value(totals)
        if not 0 <= index - estimator.first < members.shape[-1]:
            last = estimator.first + members.shape[-1] - 1
            raise ValueError(f"{estimator.name} has members {estimator.first} to {last}; {index} was asked for")
        return members[..., [index - estimator.first]]

    return Estimator(f"{estimator.name}[{index}]", estimator.columns, value)


def _contrasts(frame: pd.DataFrame, estimator: Estimator, domain: str, n: int, seed: int) -> tuple[np.ndarray, np.ndarray, tuple]:
    """(1 + n,) domain - mean of the others; (n,) is it the highest?; the ids of the prompts."""
    domains = domains_in(frame, [domain])
    if len(domains) < 2 or not estimator.scalar:
        raise ValueError(f"{estimator.name} in {domains}: a contrast needs two domains or more, and an estimator of one number (see pick)")
    prompts = prompts_of(frame, n, seed)
    values = estimator.value(prompts.resampled(prompts.totals(estimator.columns(frame))))[..., 0]
    undefined = [name for name, first in zip(domains, values[0], strict=True) if np.isnan(first)]
    if undefined:
        raise ValueError(f"{estimator.name} is undefined in {undefined}: nothing to divide by there (an empty bin? see matched)")
    own, others = values[:, domains.index(domain)], np.delete(values, domains.index(domain), axis=1)
    return own - others.mean(axis=1), own[1:] > others[1:].max(axis=1), tuple(sorted(set(frame["prompt_id"])))


def contrast(frame: pd.DataFrame, estimator: Estimator, domain: str = "chat", n: int = RESAMPLES, seed: int = 0) -> Contrast:
    """`domain` minus the mean of the other domains' values. ValueError: a domain missing, undefined, or with fewer than 5 prompts."""
    draws, highest, prompts = _contrasts(frame, estimator, domain, n, seed)
    return Contrast(**vars(_interval(draws, len(prompts), estimator.name)), share_highest=float(highest.mean()))


def contrast_change(before: tuple, after: tuple, domain: str = "chat", n: int = RESAMPLES, seed: int = 0) -> Interval:
    """Contrast of `after` minus contrast of `before`, pairs (frame, estimator) over the same prompts, which are resampled together."""
    (first, _, prompts), (second, _, others) = (_contrasts(*pair, domain, n, seed) for pair in (before, after))
    if prompts != others:
        raise ValueError(f"{len(set(prompts) ^ set(others))} prompts are in one frame only; a paired change needs the same prompts")
    return _interval(second - first, len(prompts), f"the change from {before[1].name} to {after[1].name}")


def _stage(stage: str, pairs: Callable, domain: str, n: int, seed: int) -> Interval:
    both = pairs()
    return contrast_change(*both, domain, n, seed) if stage == "change" else contrast(*both[stage == "after"], domain, n, seed)


def explained(pairs: Callable[[], tuple], domain: str = "chat", n: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """The contrast `before` and `after` something is held fixed, and its `change`: stage, Interval's fields, note. `pairs()` gives the two
    (frame, estimator), as `matched` does; where it or a contrast cannot be made, the note says why."""
    return pd.DataFrame([{"stage": stage} | attempt(_stage, stage, pairs, domain, n, seed) for stage in ("before", "after", "change")])


def least_kept(pairs: Callable[[], tuple], whole: pd.DataFrame) -> float:
    """Smallest share of a domain's rows of `whole` that a pair's first frame holds; NaN where the pair cannot be made."""
    try:
        kept = pairs()[0][0]
    except ValueError:
        return np.nan
    return float((kept["domain"].value_counts() / whole["domain"].value_counts()).fillna(0.0).min())


def ladder_contrasts(run, domain: str = "chat", rule: str = "greedy", members: int = 2, n: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """`contrast` of every rung of the ladder (of a family the first `members`): estimator, Contrast's fields, note."""
    rungs = [(getattr(run, name), one) for name, family in score.ladder_estimators(run, rule)
             for one in ([family] if family.scalar else [pick(family, family.first + i) for i in range(members)])]
    return pd.DataFrame([{"estimator": one.name} | attempt(contrast, frame, one, domain, n, seed) for frame, one in rungs])


def token_kinds(token_class: pd.Series) -> pd.Series:
    """`tokens.classify`'s classes as KINDS, the same in code and in prose. ValueError for a class that has no kind."""
    unknown = sorted(set(token_class.astype(str)) - set(KINDS))
    if unknown:
        raise ValueError(f"token_class holds {unknown}; known are {', '.join(KINDS)}")
    return token_class.astype(str).map(KINDS).rename("token_kind")


def frequency_elsewhere(trace: pd.DataFrame) -> pd.Series:
    """Share of the tokens of all other prompts that are this row's token: how common it is, without the row's own text."""
    require(trace, ["prompt_id", "token"], "trace")
    own, size = trace.groupby(["prompt_id", "token"])["token"].transform("size"), trace.groupby("prompt_id")["token"].transform("size")
    if (size == len(trace)).any():
        raise ValueError("trace holds one prompt: there are no other prompts to count in; record two or more")
    return ((trace.groupby("token")["token"].transform("size") - own) / (len(trace) - size)).rename("frequency_elsewhere")
