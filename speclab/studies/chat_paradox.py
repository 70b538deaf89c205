"""Notebook 06: one domain against the others under every estimator, before and after something is
held fixed.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from speclab.analysis import rungs
from speclab.estimates import attempt
from speclab.score import Estimator, domains_in, member
from speclab.stats import RESAMPLES, Interval, interval_of, prompts_of


@dataclass(frozen=True)
class Contrast(Interval):
    """One domain minus the mean of the others, as an Interval, and the share of resamples in which
    that domain is the highest.
    """

    share_highest: float


def _contrasts(
    frame: pd.DataFrame, estimator: Estimator, domain: str, n: int, seed: int
) -> tuple[np.ndarray, np.ndarray, tuple]:
    """(1 + n,) domain - mean of the others; (n,) is it the highest?; the ids of the prompts."""
    domains = domains_in(frame, [domain])
    if len(domains) < 2 or not estimator.scalar:
        raise ValueError(
            f"{estimator.name} in {domains}: a contrast needs two domains or more, and an estimator of one number (see pick)"
        )
    prompts = prompts_of(frame, n, seed)
    values = estimator.value(prompts.resampled(prompts.totals(estimator.columns(frame))))[..., 0]
    undefined = [name for name, first in zip(domains, values[0], strict=True) if np.isnan(first)]
    if undefined:
        raise ValueError(
            f"{estimator.name} is undefined in {undefined}: nothing to divide by there (an empty bin? see matched)"
        )
    own, others = values[:, domains.index(domain)], np.delete(values, domains.index(domain), axis=1)
    return (
        own - others.mean(axis=1),
        own[1:] > others[1:].max(axis=1),
        tuple(sorted(set(frame["prompt_id"]))),
    )


def contrast(
    frame: pd.DataFrame,
    estimator: Estimator,
    domain: str = "chat",
    n: int = RESAMPLES,
    seed: int = 0,
) -> Contrast:
    """`domain` minus the mean of the other domains' values.

    ValueError: a domain missing, undefined, or with fewer than 5 prompts.
    """
    draws, highest, prompts = _contrasts(frame, estimator, domain, n, seed)
    return Contrast(
        **vars(interval_of(draws, len(prompts), estimator.name)),
        share_highest=float(highest.mean()),
    )


def contrast_change(
    before: tuple, after: tuple, domain: str = "chat", n: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Contrast of `after` minus contrast of `before`, pairs (frame, estimator) over the same
    prompts, which are resampled together.
    """
    (first, _, prompts), (second, _, others) = (
        _contrasts(*pair, domain, n, seed) for pair in (before, after)
    )
    if prompts != others:
        raise ValueError(
            f"{len(set(prompts) ^ set(others))} prompts are in one frame only; a paired change needs the same prompts"
        )
    return interval_of(
        second - first, len(prompts), f"the change from {before[1].name} to {after[1].name}"
    )


def _stage(stage: str, pairs: Callable, domain: str, n: int, seed: int) -> Interval:
    both = pairs()
    return (
        contrast_change(*both, domain, n, seed)
        if stage == "change"
        else contrast(*both[stage == "after"], domain, n, seed)
    )


def explained(
    pairs: Callable[[], tuple], domain: str = "chat", n: int = RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """The contrast `before` and `after` something is held fixed, and its `change`: stage,
    Interval's fields, note. `pairs()` gives the two (frame, estimator), as `matched` does; where it
    or a contrast cannot be made, the note says why.
    """
    return pd.DataFrame(
        [
            {"stage": stage} | attempt(_stage, stage, pairs, domain, n, seed)
            for stage in ("before", "after", "change")
        ]
    )


def least_kept(pairs: Callable[[], tuple], whole: pd.DataFrame) -> float:
    """Smallest share of a domain's rows of `whole` that a pair's first frame holds; NaN where the
    pair cannot be made.
    """
    try:
        kept = pairs()[0][0]
    except ValueError:
        return np.nan
    return float((kept["domain"].value_counts() / whole["domain"].value_counts()).fillna(0.0).min())


def ladder_contrasts(
    run,
    domain: str = "chat",
    rule: str = "greedy",
    members: int = 2,
    n: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """`contrast` of every rung of the ladder (of a family the first `members`): estimator,
    Contrast's fields, note.
    """
    asked = [
        (getattr(run, name), one)
        for name, family in rungs.ladder_estimators(run, rule)
        for one in (
            [family]
            if family.scalar
            else [member(family, family.first + i) for i in range(members)]
        )
    ]
    return pd.DataFrame(
        [
            {"estimator": one.name} | attempt(contrast, frame, one, domain, n, seed)
            for frame, one in asked
        ]
    )
