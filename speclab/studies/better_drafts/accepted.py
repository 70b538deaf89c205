"""What the target accepts of each draft: levels, differences, what training changed."""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from speclab import score, stats
from speclab.analysis import significance
from speclab.drafts import quantise
from speclab.drafts.distil import SHIPPED, TrainedDraft
from speclab.models import pairs
from speclab.profiles import ModelSpec
from speclab.show import estimates
from speclab.show.estimates import Estimates
from speclab.stats import RESAMPLES, bounds_of, resampling_of
from speclab.studies.better_drafts import candidates
from speclab.studies.better_drafts.candidates import (
    ESTIMATORS,
    HIT,
    INT4,
    LOOKUP,
    OWN,
    SPECIALIST,
    Tried,
)

MATCHED, RIGHT, EITHER = (
    "something matched",
    "right where it matched",
    "it or the own draft is right",
)


def acceptance(tried: Tried, names: Sequence[str]) -> Estimates:
    """hit[1] at T = 0 and alpha at T = 1 of some drafts: estimator, draft, domain (then `all`,
    `pooled`), estimate, low, high.
    """
    levels = {
        (estimator.name, name): stats.by_domain(tried.trace(name, kind), estimator)
        for kind, estimator in ESTIMATORS.items()
        for name in names
    }
    table = pd.concat(levels, names=["of", "draft"]).reset_index("draft")
    columns = ["estimator", "draft", "domain", "estimate", "low", "high"]
    return Estimates(table[columns].reset_index(drop=True), 3)


def against(
    trace: pd.DataFrame,
    base: pd.DataFrame,
    estimator: score.Estimator = HIT,
    same_text: bool = True,
) -> pd.DataFrame:
    """`trace` minus `base` on the same prompts, per domain and pooled: domain, estimate, low, high,
    n_prompts, p_value.

    same_text: both were judged on the same texts, so that the difference is the draft's.
    """
    if same_text:
        assert trace["token"].tolist() == base["token"].tolist(), (
            "traces of other texts"
        )
    return significance.paired_by_domain(trace, base, estimator)


def _of(frame: pd.DataFrame, domain: str) -> pd.DataFrame:
    return frame if domain == score.POOLED else frame[frame["domain"] == domain]


# ---- 1 and 2. quantised --------------------------------------------------------------------------


def int4_sentence(levels: Estimates, article: float, obstacle: str) -> str:
    """How the 4-bit self-draft compares with the article's acceptance; without one, why."""
    if INT4 not in set(levels.frame["draft"]):
        return f"**No INT4 self-draft here**: {obstacle or 'it was not asked for'}."
    by_domain = levels.at(draft=INT4).without(domain=[score.ALL, score.POOLED])
    verdict = by_domain.sentence(
        "above it in",
        "below it in",
        "not told apart from it in",
        than=article,
        within="estimator",
    )
    return f"Against the article's {article:.0%}, INT4 is: {verdict}."


def rounded_before(folder: Path) -> str:
    """That the target's weights had few bits when they were fetched, by its `source.json`; '' where
    it has none.
    """
    source = folder / "source.json"
    if not source.is_file():
        return ""
    name = json.loads(source.read_text(encoding="utf-8"))["model"]
    return (
        f"This target was rounded before it came here ({name}): in float32 it keeps just those "
        "values, and the self-draft rounds them a second time."
    )


def quantised_target(tried: Tried, folder: str) -> Estimates | None:
    """What quantising the target alone changes, with the pair's own draft: estimator, text (`same`,
    or `each its own`), domain, full_precision, estimate (the change), low, high, p_value.

    folder: of a GPTQ copy beside the target's; None where there is none, or no GPTQModel.
    """
    packed = pairs.model_folder(tried.profile.target).with_name(folder or "none")
    if not (packed / "config.json").is_file() or not quantise.available():
        return None
    plain = quantise.unpacked(packed, candidates.WORK)
    profile = tried.profile.replace(target=ModelSpec(os.path.relpath(plain)))
    own = dataclasses.replace(tried.candidates[OWN], pair=pairs.load_pair(profile))
    agree = score.mean_of("agree", "same best token")
    target = own.pair.target
    changes = []
    for kind in ESTIMATORS:
        texts, asked = tried.texts[kind], None if kind == "greedy" else target
        same = candidates.judged(own, profile, kind, texts, target, "same text")
        its = candidates.judged(own, profile, kind, None, asked, "its own text")
        full, estimator = _with_agreement(tried.trace(OWN, kind)), ESTIMATORS[kind]
        on_same = agree if kind == "greedy" else estimator
        changes.append(_change("same", on_same, full, _with_agreement(same)))
        changes.append(_change("each its own", estimator, full, its))
    return Estimates(pd.concat(changes, ignore_index=True), 3)


def _with_agreement(trace: pd.DataFrame) -> pd.DataFrame:
    return trace.assign(agree=trace["target_top"] == trace["draft_top"])


def _change(
    text: str, estimator: score.Estimator, full: pd.DataFrame, rounded: pd.DataFrame
) -> pd.DataFrame:
    change = against(rounded, full, estimator, same_text=text == "same")
    before = [estimator(_of(full, domain)) for domain in change["domain"]]
    change = change.assign(estimator=estimator.name, text=text, full_precision=before)
    keys = ["estimator", "text", "domain", "full_precision"]
    return change[[*keys, "estimate", "low", "high", "p_value"]]


def shift_sentence(shift: Estimates | None) -> str:
    """What `quantised_target` says, all domains pooled."""
    if shift is None:
        return (
            "**Not measured here**: there is no quantised target beside this one, or GPTQModel is "
            "not installed."
        )
    said = []
    for row in shift.at(domain=score.POOLED).rows():
        verdict = estimates.direction(
            row,
            "more is accepted",
            "less is accepted",
            "no difference that these prompts can tell",
        )
        said.append(
            f"{row.estimator} ({row.text} text) {row.full_precision:.3f} **{row.estimate:+.3f}** "
            f"[{row.low:+.3f}, {row.high:+.3f}], {verdict}"
        )
    return f"Quantising the target alone, all domains pooled: {'; '.join(said)}."


# ---- 3. trained ----------------------------------------------------------------------------------


def trained_on(trained: Mapping[str, Mapping[str, TrainedDraft]]) -> str:
    """How many drafts there are, how many of these come with the kit, and from how much text each
    was trained.
    """
    drafts = [made for family in trained.values() for made in family.values()]
    shipped = sum(made.folder.is_relative_to(SHIPPED) for made in drafts)
    minutes = sum(made.facts["minutes"] for made in drafts)
    most = max((made.facts for made in drafts), key=lambda facts: facts["tokens"])
    return (
        f"{len(drafts)} drafts, {shipped} of them as they come with the kit; all were trained in "
        f"{minutes:.0f} minutes together, each on up to {most['texts']} continuations of "
        f"{most['tokens']} tokens."
    )


def learning_curves(trained: Mapping[str, Mapping[str, TrainedDraft]]) -> Estimates:
    """Acceptance on held-out training prompts by training steps: estimator, draft, step, estimate
    (mean of the seeds), low, high (the least and the greatest seed).
    """
    curves = [
        made.curve.assign(draft=family)
        for family, drafts in trained.items()
        for made in drafts.values()
    ]
    curve = pd.concat(curves).groupby(["draft", "step"], sort=False)
    columns = {"mean": "estimate", "min": "low", "max": "high"}
    parts = {}
    for estimator, column in (("hit[1]", "hit[1]"), ("alpha", "overlap")):
        parts[estimator] = (
            curve[column].agg(list(columns)).rename(columns=columns).reset_index()
        )
    return Estimates.stacked(parts, "estimator", digits=3)


def training_table(
    trained: Mapping[str, Mapping[str, TrainedDraft]], curves: Estimates
) -> pd.DataFrame:
    """A row a family: draft, seeds, minutes (of one training), and acceptance on held-out training
    prompts before and after.
    """
    rows = []
    for family, drafts in trained.items():
        minutes = np.mean([made.facts["minutes"] for made in drafts.values()])
        row = {"draft": family, "seeds": len(drafts), "minutes": minutes}
        for estimator, part in curves.at(draft=family).groups("estimator"):
            first, *_, last = part.frame["estimate"]
            row |= {f"{estimator} before": first, f"{estimator} after": last}
        rows.append(row)
    return pd.DataFrame(rows)


def trained_change(
    before: pd.DataFrame,
    after: Sequence[pd.DataFrame],
    estimator: score.Estimator,
    n: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """What training changed, by domain, with intervals over prompts and training seeds.

    before: a trace; after: one trace a seed, over the same prompts. estimator: of the trace, as
    `score.mean_of("overlap", "alpha")`; a family gives its first member (`score.hit`: hit[1]).

    Columns: domain (and `all`, `pooled`), before, after, difference (mean over seeds), low, high,
    seed_low, seed_high (the smallest and largest difference of a single seed), n_prompts, n_seeds.
    The bootstrap has two levels: each resample draws prompts within the domain (the same for all
    runs, so that they are paired) and seeds. Three seeds show their spread; they do not measure it
    well.
    """
    ids = set(before["prompt_id"])
    assert after and all(set(trace["prompt_id"]) == ids for trace in after), (
        "other prompts"
    )
    prompts = resampling_of(before, n, seed)

    def values(trace: pd.DataFrame) -> np.ndarray:  # (1 + n, domains + 2)
        totals = resampling_of(trace, 1).totals(estimator.columns(trace))
        return score.across(estimator.value, prompts.resampled(totals))[..., 0]

    at_first, at_last = values(before), np.stack([values(trace) for trace in after])
    difference = at_last - at_first  # (seeds, 1 + n, domains + 2)
    seeds, each = len(after), difference[:, 0]
    times = np.random.default_rng([seed, 3]).multinomial(
        seeds, np.full(seeds, 1 / seeds), size=n
    )
    drawn = np.einsum("ns,snd->nd", times / seeds, difference[:, 1:])
    low, high = bounds_of(drawn, prompts.by_row)
    counts = np.bincount(prompts.domain)
    return pd.DataFrame(
        {
            "domain": [*prompts.domains, score.ALL, score.POOLED],
            "before": at_first[0],
            "after": at_last[:, 0].mean(axis=0),
            "difference": each.mean(axis=0),
            "low": low,
            "high": high,
            "seed_low": each.min(axis=0),
            "seed_high": each.max(axis=0),
            "n_prompts": [*counts, counts.sum(), counts.sum()],
            "n_seeds": seeds,
        }
    )


def gained(
    tried: Tried, trained: Mapping[str, Mapping[str, TrainedDraft]]
) -> Estimates:
    """`trained_change` of every family at T = 0 and T = 1: estimator, draft, domain, before, after,
    estimate (the difference), and its other columns.
    """
    parts = [
        trained_change(
            tried.trace(OWN, kind),
            [tried.trace(name, kind) for name in drafts],
            estimator,
        ).assign(estimator=estimator.name, draft=family)
        for kind, estimator in ESTIMATORS.items()
        for family, drafts in trained.items()
    ]
    table = pd.concat(parts, ignore_index=True).rename(
        columns={"difference": "estimate"}
    )
    first = ["estimator", "draft", "domain"]
    return Estimates(table[first + [c for c in table if c not in first]], 3)


def split_sentence(gains: Estimates) -> str:
    """Which families are better at T = 0 and worse at T = 1, mean of the domains."""
    hit, alpha = (
        gains.at(domain=score.ALL, estimator=e.name).frame for e in ESTIMATORS.values()
    )
    both = hit["draft"][(hit["low"] > 0) & (alpha["high"] < 0)]
    return f"Better at T = 0 and worse at T = 1: {', '.join(both) or 'none of them'}."


def specialist_against(
    tried: Tried, trained: Mapping[str, Mapping[str, TrainedDraft]], family: str
) -> Estimates:
    """The specialist minus a family that learnt every domain, seeds averaged: estimator, domain,
    estimate, low, high, p_value.
    """
    parts = {}
    for kind, estimator in ESTIMATORS.items():
        mine, its = (
            pd.concat(
                [tried.trace(name, kind) for name in trained[of]], ignore_index=True
            )
            for of in (SPECIALIST, family)
        )
        parts[estimator.name] = against(mine, its, estimator).drop(columns="n_prompts")
    return Estimates.stacked(parts, "estimator", digits=3)


# ---- 4. copying ----------------------------------------------------------------------------------


def copying(tried: Tried) -> Estimates:
    """Where prompt lookup found something, how often it was right there, and how often it or the
    own draft was: estimator, domain, estimate, low, high.
    """
    trace, own = tried.trace(LOOKUP, "greedy"), tried.trace(OWN, "greedy")
    right = trace["draft_rank"] == 0
    matched = (trace["confidence"] > 0.5).astype(float)
    either = right | (own["draft_rank"] == 0)
    trace = trace.assign(matched=matched, copied=right * matched, either=either)
    where = score.ratio_of("copied", "matched", RIGHT)
    asked = (score.mean_of("matched", MATCHED), where, score.mean_of("either", EITHER))
    return Estimates(
        pd.concat([stats.by_domain(trace, estimator) for estimator in asked])
    )


def lookup_against_own(tried: Tried) -> Estimates:
    """Prompt lookup minus the own draft at T = 0: domain, estimate, low, high."""
    return Estimates(
        against(tried.trace(LOOKUP, "greedy"), tried.trace(OWN, "greedy")), 3
    )
