"""Notebook 06: is one domain the easiest although its entropy is highest? Its contrast with the
others under every estimator, before and after something is held fixed.

Source of direct standardisation: any text on epidemiology.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from speclab import score
from speclab.analysis import bins, published, rungs, significance, token_kinds
from speclab.score import POOLED, Estimator, domains_in, member, quotient
from speclab.show import figures
from speclab.show.estimates import NUMBERS, Estimates, attempt, stack, without_interval
from speclab.stats import (
    MIN_PROMPTS,
    Interval,
    Resampling,
    interval_of,
    resampling_of,
)

Pair = tuple[tuple[pd.DataFrame, Estimator], tuple[pd.DataFrame, Estimator]]
Tests = Mapping[str, tuple[pd.DataFrame, Callable[[], Pair]]]

AS_PUBLISHED = "the paper's procedure"
AT_0 = "hit[1], on greedy text (T = 0)"
AT_1 = "alpha, on sampled text (T = 1)"
ABOVE_OR_BELOW = (
    "is above the other domains by",
    "is below the other domains by",
    "cannot be told apart from the other domains by",
)
RISES_OR_FALLS = (
    "rises by holding fixed",
    "falls by holding fixed",
    "cannot be told to move by holding fixed",
)
WITH_TEMPLATE = (
    "higher with the template in",
    "lower with the template in",
    "not to be told apart in",
)
# the rungs of the ladder that are drawn
RUNGS = {
    "T = 0": "published_alpha ratio_by_rank[0] ratio_by_rank[1] best_path_ratio hit[1] "
    "hit[2] published_length mean_accepted",
    "T = 1": "alpha top_mass[1] top_mass[2] mean_accepted",
}
IN_TOKENS = ("published_length", "mean_accepted")
# how prompts are given, by a profile's template, and the kind of run that gives them otherwise
FORMATS = {"none": "as plain text", "chat": "in the target's chat template"}
OTHERWISE = {"none": "chat-template", "chat": "plain-template"}
MATCHED = {
    "entropy": "entropy_bin",
    "token kind": "kind",
    "token frequency": "frequency_bin",
}
EXPLANATIONS = {
    "estimator": "the estimator",
    "rank mix": "the rank mix",
    "rank 0 only": "the rank mix",
    "entropy": "the entropy distribution",
    "prompt format": "the prompt format",
    "token kind": "lexical predictability",
    "token frequency": "lexical predictability",
}


# ---- contrasts -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contrast(Interval):
    """One domain minus the mean of the others, as an Interval, and the share of resamples in which
    that domain is the highest.
    """

    share_highest: float


def contrast(frame: pd.DataFrame, estimator: Estimator, domain: str) -> Contrast:
    """`domain` minus the mean of the other domains' values.

    ValueError: a domain missing, undefined, or with fewer than 5 prompts.
    """
    draws, highest, prompts = _contrasts(frame, estimator, domain)
    interval = interval_of(draws, prompts, estimator.name)
    return Contrast(**vars(interval), share_highest=float(highest.mean()))


def contrast_change(before: tuple, after: tuple, domain: str) -> Interval:
    """Contrast of `after` minus contrast of `before`, pairs (frame, estimator) over the same
    prompts, which are resampled together.
    """
    same = set(before[0]["prompt_id"]) == set(after[0]["prompt_id"])
    assert same, "a paired change needs the same prompts"
    (first, _, prompts), (second, *_) = (
        _contrasts(*question, domain) for question in (before, after)
    )
    what = f"the change from {before[1].name} to {after[1].name}"
    return interval_of(second - first, prompts, what)


def _contrasts(
    frame: pd.DataFrame, estimator: Estimator, domain: str
) -> tuple[np.ndarray, np.ndarray, Resampling]:
    """(1 + n,) domain - mean of the others; (n,) is it the highest?; the prompts."""
    domains, prompts = domains_in(frame, [domain]), resampling_of(frame)
    if len(domains) < 2:
        raise ValueError(
            f"there is {domain} only: a contrast needs two domains or more"
        )
    totals = prompts.totals(estimator.columns(frame))
    values = estimator.value(prompts.resampled(totals))[..., 0]
    undefined = [domains[place] for place in np.flatnonzero(np.isnan(values[0]))]
    if undefined:
        raise ValueError(
            f"{estimator.name} is undefined in {undefined} (an empty bin? see matched)"
        )
    place = domains.index(domain)
    own, others = values[:, place], np.delete(values, place, axis=1)
    highest = own[1:] > others[1:].max(axis=1)
    return own - others.mean(axis=1), highest, prompts


def is_highest(share: float) -> str:
    """'yes' where a domain is the highest in more than 97.5 % of the resamples, 'no' where in fewer
    than 2.5 %, else 'cannot be told'.
    """
    if share > 0.975:
        return "yes"
    return "no" if share < 0.025 else "cannot be told"


# ---- is there a paradox? -------------------------------------------------------------------------


def leads(greedy, sampled, domain: str) -> Estimates:
    """The domain's contrast in entropy and in acceptance, by the paper's procedure and by the exact
    acceptance of one draft token at either temperature, on its own text: view, quantity, estimate,
    low, high, n_prompts, share_highest.
    """
    entropy = score.mean_of("target_entropy")
    asked = [
        (AS_PUBLISHED, "entropy", greedy.nodes, entropy),
        (AS_PUBLISHED, "published_alpha", greedy.nodes, score.published_alpha),
        (AT_0, "entropy", greedy.trace, entropy),
        (AT_0, "hit[1]", greedy.trace, member(score.hit, 1)),
        (AT_1, "entropy", sampled.trace, entropy),
        (AT_1, "alpha", sampled.trace, score.alpha),
    ]
    rows = [
        {"view": view, "quantity": name} | vars(contrast(frame, estimator, domain))
        for view, name, frame, estimator in asked
    ]
    return Estimates(pd.DataFrame(rows), digits=3)


def state(leads: Estimates) -> str:
    """What the resamples say: a paradox needs the domain to be highest in entropy and in
    acceptance.
    """
    return {
        "yes": "there is a paradox",
        "no": "there is no paradox",
        "cannot be told": "whether there is a paradox cannot be told",
    }[is_highest(leads.frame["share_highest"].min())]


def lead_sentence(leads: Estimates) -> str:
    """Each contrast of a view, and how often the domain is the highest of all."""
    parts = [
        f"`{name}` {row}, highest in {100 * row.frame['share_highest'].item():.0f} % of resamples"
        for name, row in leads.groups("quantity")
    ]
    return f"**{state(leads)}.** " + "; ".join(parts)


def printed_leads(domain: str, domains: list[str]) -> dict[str, float]:
    """The paper's own contrasts of a domain (Tables I and II), by estimator; `entropy` too."""
    names = {
        "target_entropy_mean": "entropy",
        "alpha_mean": "published_alpha",
        "expected_accepted_length": "published_length",
    }
    table = pd.concat([published.published(name) for name in ("I", "II")])
    table = table.pivot(index="domain", columns="quantity", values="published")
    table = table.loc[domains].rename(columns=names)
    return (table.loc[domain] - table.drop(index=domain).mean()).to_dict()


def entropy_and_acceptance(
    table: pd.DataFrame, sampled: pd.DataFrame, domains: list[str], domain: str
) -> figures.Figure:
    """Each domain's mean entropy and acceptance: in the paper, on this pair as published, and by
    the exact acceptance at either temperature. `table` and `sampled` are the comparisons of Table I
    with the greedy run and, under 'point-mass', with the sampled one.
    """
    corrected = ["corrected", "low", "high"]
    panels = {
        "the paper": (table, ["published"] * 3, "published_alpha"),
        "this pair,\nas published": (table, published.OURS, "published_alpha"),
        "greedy text\n(T = 0)": (table, corrected, "hit[1]"),
        "sampled text\n(T = 1)": (sampled, corrected, "alpha"),
    }
    figure, grid = figures.subplots(1, len(panels), height=2.7)
    for axes, (title, (source, columns, label)) in zip(
        grid, panels.items(), strict=True
    ):
        at = source.set_index(["domain", "quantity"])[columns].astype(float)
        for name in domains:
            rows = at.loc[name].loc[["target_entropy_mean", "alpha_mean"]].to_numpy()
            place, (x_reach, y_reach) = rows[:, 0], abs(rows[:, 1:] - rows[:, :1])
            reach = {"xerr": x_reach[:, None], "yerr": y_reach[:, None]}
            style = figures.style_of(name) | {"linestyle": "none", "label": name}
            axes.errorbar(*place, **reach, elinewidth=1.2, **style)
            if name == domain:
                axes.annotate(
                    name, place, (5, 5), textcoords="offset points", weight="bold"
                )
        axes.margins(0.3, 0.15)
        axes.set(title=title, xlabel="entropy (nats)", ylabel=label)
    figures.legend_above(figure, grid[1])
    return figure


# ---- the ladder ----------------------------------------------------------------------------------


def ladder_contrasts(run, domain: str, rule: str = "greedy") -> pd.DataFrame:
    """`contrast` of every rung of the ladder (of a family the first two members): estimator,
    Contrast's fields, note.
    """
    rows = []
    for source, family in rungs.ladder_estimators(run, rule):
        first_two = [member(family, family.first + place) for place in (0, 1)]
        for rung in [family] if family.scalar else first_two:
            found = attempt(contrast, getattr(run, source), rung, domain)
            rows.append({"estimator": rung.name} | found)
    return pd.DataFrame(rows)


def ladders(greedy, sampled, domain: str) -> Estimates:
    """`ladder_contrasts` of greedy text (T = 0) and of sampled text (T = 1, point-mass rule):
    estimator, estimate, low, high, n_prompts, share_highest, note, text.
    """
    zero = ladder_contrasts(greedy, domain).assign(text="T = 0")
    one = ladder_contrasts(sampled, domain, "point-mass").assign(text="T = 1")
    return Estimates(pd.concat([zero, one], ignore_index=True), digits=3)


def rungs_drawn(ladder: Estimates, printed: Mapping[str, float]) -> Estimates:
    """The rungs that are drawn, with the paper's own contrasts beside: unit, pair, rung (its share
    of resamples in which the domain is highest), estimate, low, high. Every unit names every rung;
    the numbers are missing under the other.
    """
    parts = [
        ladder.at(text=text, estimator=names.split()).frame
        for text, names in RUNGS.items()
    ]
    ours = pd.concat(parts).dropna(subset="estimate")
    share = ours["share_highest"].map(" ({:.0%})".format)
    ours["rung"] = ours["estimator"] + ", " + ours["text"] + share
    paper = ours[(ours["text"] == "T = 0") & ours["estimator"].isin(printed)]
    paper = without_interval(paper, paper["estimator"].map(printed))
    both = stack({"this pair": ours, "published": paper}, "pair")
    in_tokens = both["estimator"].isin(IN_TOKENS)
    units = {"share of tokens": ~in_tokens, "tokens per target pass": in_tokens}
    parts = {
        unit: both.assign(**both[NUMBERS].where(its)) for unit, its in units.items()
    }
    return Estimates(stack(parts, "unit")[["unit", "pair", "rung", *NUMBERS]])


def rank_parts(nodes: pd.DataFrame, domain: str) -> pd.DataFrame:
    """What `published_alpha`'s contrast is made of: rank, share of nodes, each rank's own contrast,
    and their product `part`.
    """
    share = pd.crosstab(nodes["domain"], nodes["rank"], normalize="index")
    own = [
        contrast(nodes, member(score.ratio_by_rank, r), domain).estimate for r in share
    ]
    table = pd.DataFrame({"share": share.mean(), "contrast": own})
    table["spread_of_share"] = share.max() - share.min()
    return table.assign(part=table["share"] * table["contrast"])


# ---- what each domain is made of -----------------------------------------------------------------


def with_tokens(trace: pd.DataFrame, strings: list[str]) -> pd.DataFrame:
    """The trace with each token's `kind` (what begins a word, a name or a keyword is one kind, so
    that code and prose can be compared), `frequency` among the other prompts' tokens, and `hit`.
    """
    same = {"keyword": "word start", "identifier": "word start"}
    kinds = token_kinds.token_kinds(trace, strings).astype(str).replace(same)
    frequency = frequency_elsewhere(trace)
    return score.with_hits(trace).assign(kind=kinds, frequency=frequency)


def frequency_elsewhere(trace: pd.DataFrame) -> pd.Series:
    """Share of the tokens of all other prompts that are this row's token: how common it is, without
    the row's own text.
    """
    length, own, every = (
        trace.groupby(keys)["token"].transform("size")
        for keys in ("prompt_id", ["prompt_id", "token"], "token")
    )
    if (length == len(trace)).any():
        raise ValueError(
            "trace holds one prompt: there are no other prompts to count in"
        )
    return (every - own) / (len(trace) - length)


def by_kind(trace: pd.DataFrame, acceptance: str) -> Estimates:
    """Mean of a column that says what is accepted (`hit`, `overlap`) for each kind of token, with
    its share of the positions: domain, kind, estimate, low, high, rows, n_prompts, share.
    """
    frame = bins.group_means(trace, acceptance, "kind").frame
    frame["share"] = frame["rows"] / frame["domain"].map(trace.value_counts("domain"))
    order = [*domains_in(trace), POOLED, *trace["kind"].value_counts().index]
    in_order = frame.sort_values(
        ["domain", "kind"], key=lambda names: names.map(order.index), ignore_index=True
    )
    return Estimates(in_order)


def kinds_drawn(at_0: Estimates, at_1: Estimates) -> Estimates:
    """Acceptance of each kind at T = 0 and T = 1, and its frequency in the greedy text, for one
    panel each.
    """
    zero, one = (kinds.without(domain=POOLED).frame for kinds in (at_0, at_1))
    panels = {
        "hit[1] (T = 0)": zero,
        "alpha (T = 1)": one,
        "share of positions": without_interval(zero, zero["share"]),
    }
    return Estimates.stacked(panels, "panel")


# ---- what explains the contrast ------------------------------------------------------------------


def standardised_mean(value: str, group: str, reference: pd.DataFrame) -> Estimator:
    """Direct standardisation: the mean of `value` if the levels of `group` had the shares that they
    have among the rows of `reference` (taken as fixed). Undefined for rows that lack one of its
    levels: see `matched`.
    """
    shares = reference[group].value_counts(normalize=True)
    shares = shares[shares > 0]
    weights = shares.to_numpy()[:, None]
    columns = bins.in_levels(value, group, shares.index.tolist())
    return Estimator(
        f"{value} at equal {group}", columns, lambda totals: quotient(totals) @ weights
    )


def matched(frame: pd.DataFrame, value: str, group: str) -> Pair:
    """Before and after matching the domains on `group`: (rows, mean of `value`) and (rows, its
    standardised mean). The rows, the reference too, are those in levels with rows of 5 prompts or
    more in every domain (common support). ValueError if that is one level or none.
    """
    prompts = frame.groupby([group, "domain"], observed=True)["prompt_id"].nunique()
    everywhere = (prompts.unstack(fill_value=0) >= MIN_PROMPTS).all(axis=1)
    shared = everywhere.index[everywhere]
    if len(shared) < 2:
        raise ValueError(
            f"{len(shared)} level of {group!r} has rows of {MIN_PROMPTS} prompts in every domain: "
            "matching needs two or more"
        )
    kept = frame[frame[group].isin(shared)]
    return (kept, score.mean_of(value)), (kept, standardised_mean(value, group, kept))


def tests_of(
    nodes: pd.DataFrame, trace: pd.DataFrame, sampled: pd.DataFrame, other, count: int
) -> Tests:
    """What is held fixed, one at a time: name -> (all rows, before and after it is). `trace` and
    `sampled` (greedy and sampled text) are of `with_tokens`; hit[1] is asked of the first, alpha of
    the second. `other` is the greedy run of the same prompts in the other format; `count`: quantile
    bins that are matched.
    """
    nodes = nodes.assign(entropy_bin=bins.quantile_bins(nodes, "target_entropy", count))
    trace, sampled = (
        rows.assign(
            entropy_bin=bins.quantile_bins(rows, "target_entropy", count),
            frequency_bin=bins.quantile_bins(rows, "frequency", count),
        )
        for rows in (trace, sampled)
    )
    as_published, hit = (nodes, score.published_alpha), member(score.hit, 1)
    rank_0 = (nodes, member(score.ratio_by_rank, 0))
    otherwise = (other.nodes, score.published_alpha)
    tests = {
        "published_alpha: estimator": (nodes, lambda: (as_published, (trace, hit))),
        "published_alpha: rank mix": (nodes, lambda: matched(nodes, "ratio", "rank")),
        "published_alpha: rank 0 only": (nodes, lambda: (as_published, rank_0)),
        "published_alpha: entropy": (
            nodes,
            lambda: matched(nodes, "ratio", "entropy_bin"),
        ),
        "published_alpha: prompt format": (nodes, lambda: (as_published, otherwise)),
    }
    for estimator, rows, outcome in (
        ("hit[1]", trace, "hit"),
        ("alpha", sampled, "overlap"),
    ):
        for name, group in MATCHED.items():
            pair = partial(matched, rows, outcome, group)
            tests[f"{estimator}: {name}"] = (rows, pair)
    formats = ((trace, hit), (other.trace, hit))
    return tests | {"hit[1]: prompt format": (trace, lambda: formats)}


def explained(pair: Callable[[], Pair], domain: str) -> pd.DataFrame:
    """The contrast `before` and `after` something is held fixed, and its `change`: stage,
    Interval's fields, note. `pair()` gives the two (frame, estimator), as `matched` does; where it
    or a contrast cannot be made, the note says why.
    """
    stages = {
        "before": lambda: contrast(*pair()[0], domain),
        "after": lambda: contrast(*pair()[1], domain),
        "change": lambda: contrast_change(*pair(), domain),
    }
    return pd.DataFrame(
        [{"stage": name} | attempt(stage) for name, stage in stages.items()]
    )


def explanations(tests: Tests, domain: str) -> Estimates:
    """`explained` of every test: stage, estimate, low, high, n_prompts, share_highest, note,
    held_fixed.

    A change that cannot be (equal rank mixes) is 0, not a rounding error with a sign.
    """
    parts = [
        explained(pair, domain).assign(held_fixed=name)
        for name, (_, pair) in tests.items()
    ]
    frame = pd.concat(parts, ignore_index=True).round(9).replace(-0.0, 0.0)
    return Estimates(frame, digits=3)


def least_kept(pair: Callable[[], Pair], whole: pd.DataFrame) -> float:
    """Smallest share of a domain's rows of `whole` that a pair's first frame holds; NaN where the
    pair cannot be made.
    """
    try:
        kept = pair()[0][0]
    except ValueError:
        return np.nan
    share = kept["domain"].value_counts() / whole["domain"].value_counts()
    return float(share.fillna(0.0).min())


def effects(found: Estimates) -> pd.DataFrame:
    """What each test says of its explanation: explanation, test, verdict, change, low, high; tests
    of one explanation together.
    """
    size = found.frame.pivot(index="held_fixed", columns="stage", values="estimate")
    names = {"held_fixed": "test", "estimate": "change"}
    table = found.at(stage="change").frame.rename(columns=names)
    nearer = (size["after"].abs() < size["before"].abs())[table["test"]].to_numpy()
    cases = {
        "cannot be tested": table["change"].isna(),
        "cannot be told from no effect": (table["low"] <= 0) & (table["high"] >= 0),
        "moves it towards 0": nearer,
    }
    away = "moves it away from 0"
    table["verdict"] = np.select(list(cases.values()), list(cases), away)
    table["explanation"] = table["test"].str.split(": ").str[1].map(EXPLANATIONS)
    order = list(EXPLANATIONS.values())
    by_place = table["explanation"].map(order.index).argsort(kind="stable")
    columns = ["explanation", "test", "verdict", "change", "low", "high"]
    return table.iloc[by_place][columns].reset_index(drop=True)


def about(found: Estimates, estimator: str) -> Estimates:
    """What is held fixed under one estimator, without its name before each."""
    names = found.frame["held_fixed"].str.split(": ", expand=True)
    frame = found.frame.assign(held_fixed=names[1])[names[0] == estimator]
    return Estimates(frame, found.digits)


def stages_drawn(found: Estimates) -> Estimates:
    """Before, after and change, in two panels."""
    frame = found.defined().frame
    panel = np.where(frame["stage"] == "change", "change", "before and after")
    return Estimates(frame.assign(panel=panel))


# ---- prompt format -------------------------------------------------------------------------------


def formats_said(template: str) -> str:
    """How the profile's own prompts are given, and how those of the other run."""
    own = FORMATS[template]
    (other,) = set(FORMATS.values()) - {own}
    return (
        f"The prompts of this profile are given {own}; in the run `{OTHERWISE[template]}` the same "
        f"prompts are given {other}."
    )


def plain_first(template: str, own, other) -> tuple:
    """The two runs, the one of plain prompts before the one in the chat template: `own` is that of
    the profile's `template`.
    """
    return (own, other) if template == "none" else (other, own)


def formats(plain, template) -> Estimates:
    """Template minus plain of two greedy runs, paired by prompt: domain, estimator, estimate, low,
    high, n_prompts, p_value, note, tokens_plain, tokens_template (a text's mean length).
    """
    asked = {"nodes": score.published_alpha, "trace": member(score.hit, 1)}
    rows = []
    for source, estimator in asked.items():
        new, old = getattr(template, source), getattr(plain, source)
        for domain in domains_in(plain.trace):
            pair = new[new["domain"] == domain], old[old["domain"] == domain]
            found = attempt(significance.paired_difference, *pair, estimator)
            rows.append({"domain": domain, "estimator": estimator.name} | found)
    frame = pd.DataFrame(rows)
    for name, run in (("tokens_plain", plain), ("tokens_template", template)):
        lengths = run.trace.groupby(["domain", "prompt_id"]).size()
        frame[name] = frame["domain"].map(lengths.groupby("domain").mean())
    return Estimates(frame)


def lengths_said(formats: Estimates) -> str:
    """How long the texts are in either format, and what that means where they differ."""
    rows = formats.frame.drop_duplicates("domain").itertuples()
    lengths = [
        f"{row.domain} {row.tokens_plain:.0f} and {row.tokens_template:.0f}"
        for row in rows
    ]
    return (
        f"Mean tokens of a text, as plain text and in the template: {', '.join(lengths)}. (A "
        "chat-tuned target may end a plain text at once. Where the two lengths are far apart, few "
        "positions stand behind the shorter, and mostly first ones.)"
    )


def without_empty_notes(formats: Estimates) -> pd.DataFrame:
    """The table of formats, its notes left out where there are none."""
    frame = formats.frame
    return frame if frame["note"].any() else frame.drop(columns="note")
