"""Notebook 06: is the domain of highest entropy also accepted the most? Its contrast with the
others, before and after something is held fixed.

Source of direct standardisation: any text on epidemiology.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from speclab import runs, score, stats
from speclab.analysis import bins, choose, prompt_sets, published
from speclab.analysis.texts import Text
from speclab.analysis.token_kinds import token_kinds
from speclab.estimates import Estimates, stack, yes_or_no
from speclab.models.folder import ModelsMissing
from speclab.plain import near
from speclab.profiles import Profile
from speclab.score import ALL, POOLED, Estimator, domains_in
from speclab.stats import NUMBERS

Question = tuple[pd.DataFrame, Estimator]
Pair = tuple[Question, Question]

AS_PUBLISHED = "the paper's procedure"
STAGES = ["before", "after", "change"]
# how prompts are given, by a profile's template
FORMATS = {"none": "as plain text", "chat": "in the target's chat template"}
NEVER_SAID = "tokens never said"
MATCHED = {"entropy": "entropy_bin", "token kind": "kind", "token frequency": "frequency_bin"}


# ---- what is asked -------------------------------------------------------------------------------


def of_domains(text: Text, domains: Sequence[str]) -> Text:
    """The texts of some of the domains."""
    frames = (text.trace, text.nodes)
    trace, nodes = (rows[rows["domain"].isin(domains)].reset_index(drop=True) for rows in frames)
    return replace(text, trace=trace, nodes=nodes)


def asked_domain(wanted: str, text: Text) -> str:
    """The domain that is set against the others: the one that is wanted, else ("") that of the
    highest target entropy. ValueError for one that the text does not have.
    """
    means = text.trace.groupby("domain")["target_entropy"].mean()
    domains = domains_in(text.trace)
    if wanted and wanted not in domains:
        raise ValueError(
            f'domain={wanted!r}: {near(wanted, domains)}; "" takes the one of highest entropy'
        )
    return wanted or str(means[[*domains]].idxmax())


def in_other_format(profile: Profile) -> tuple[Text | None, str]:
    """Greedy texts of the same prompts in the other format than the profile's; none, and why, where
    the prompts cannot be given in it.
    """
    kind = runs.other_format(profile)
    if kind is None:
        return None, "some of them are conversations, which only a chat template joins"
    try:
        runs.encoded_prompts(runs.of_kind(profile, kind))
    except ModelsMissing:
        raise
    except ValueError as error:
        return None, str(error)
    return Text.recorded(profile, kind), ""


# ---- contrasts -----------------------------------------------------------------------------------


def contrast(values: pd.DataFrame, domain: str, but: str = "") -> pd.Series:
    """A domain's value minus the mean of all the others' (`but` one), in every draw of
    `stats.Draws`.
    """
    others = values.drop(columns=[ALL, POOLED, domain, but], errors="ignore")
    return values[domain] - others.mean(axis=1, skipna=False)


def share_highest(values: pd.DataFrame, domain: str) -> float:
    """Share of the resamples in which a domain's value is the highest."""
    others = values.drop(columns=[ALL, POOLED, domain])
    is_highest = values[domain] > others.max(axis=1)
    return float(is_highest[1:].mean())


def contrasts(
    questions: Mapping[Any, Question], domain: str, names: str | list[str], but: str = ""
) -> Estimates:
    """The domain's `contrast` in each number asked: its key (or the parts of its key) by `names`,
    estimate, low, high, n_prompts, note, share_highest.
    """
    tables = {}
    for key, question in questions.items():
        draws = stats.jointly({"value": question})
        difference = contrast(draws["value"], domain, but)
        table = draws.table({"value": difference}).drop(columns="name")
        tables[key] = table.assign(share_highest=share_highest(draws["value"], domain))
    return Estimates(stack(tables, names), digits=3)


def leads(texts: list[Text], domain: str) -> Estimates:
    """`contrasts` in entropy and in acceptance, by view (the paper's procedure on the first text,
    then the exact acceptance of one draft token on each) and quantity.
    """
    views = {AS_PUBLISHED: (texts[0].nodes, score.published_alpha)}
    for text in texts:
        views[f"{text.acceptance.name}, on {text.label}"] = text.accepted()
    questions = {}
    for view, (rows, acceptance) in views.items():
        questions[view, "entropy"] = rows, score.mean_of("target_entropy")
        questions[view, "acceptance"] = rows, acceptance
    return contrasts(questions, domain, ["view", "quantity"])


def on_sets(
    questions: Mapping[str, tuple[Mapping[str, Text], Estimator, str]], domain: str
) -> Estimates:
    """`contrasts` on the profile's own prompts and on every set that can be compared with them, by
    set and quantity; `highest` is their share_highest. questions: by quantity the sets, what is
    asked of their positions, and which domain is left out ("": none).
    """
    parts = []
    for quantity, (sets, number, but) in questions.items():
        asked = prompt_sets.comparable(sets, lambda text, of=number: (text.trace, of))
        by_key = {(name, quantity): question for name, question in asked.items()}
        parts.append(contrasts(by_key, domain, ["set", "quantity"], but).frame)
    found = pd.concat(parts, ignore_index=True).rename(columns={"share_highest": "highest"})
    return Estimates(found.assign(domain=domain), digits=3)


def is_highest(share: float) -> str:
    """'yes' where it is the highest in more than 97.5 % of the resamples (`share_highest`), 'no'
    where in fewer than 2.5 %, else 'inconclusive'.
    """
    return yes_or_no(stats.verdict(share, share, (0.025, 0.975)))


def entropy_and_acceptance(
    table: pd.DataFrame, sampled: pd.DataFrame, texts: Sequence[Text]
) -> pd.DataFrame:
    """Each domain's mean entropy and acceptance: panel, domain, quantity, estimate, low, high. The
    panels are the paper (where it has these domains), this pair as published, and the exact
    acceptance on the greedy and on the sampled text. `table` and `sampled` are the comparisons of
    Table I with these two.
    """
    exact = published.CORRECTED
    panels = {
        "the paper,\npublished_alpha": (table, ["published"] * 3),
        "this pair,\npublished_alpha": (table, published.OURS),
    }
    if table["published"].isna().all():
        del panels["the paper,\npublished_alpha"]
    for text, source in zip(texts, (table, sampled), strict=True):
        panels[f"{text.label},\n{text.acceptance.name}"] = (source, exact)
    order = domains_in(texts[0].trace)
    names = {"target_entropy_mean": "entropy", "alpha_mean": "acceptance"}
    parts = {}
    for panel, (source, columns) in panels.items():
        rows = source[source["quantity"].isin(names) & source["domain"].isin(order)]
        rows = rows.replace({"quantity": names}).sort_values("domain", key=order_of(order))
        numbers = pd.DataFrame(rows[columns].astype(float).to_numpy(), rows.index, NUMBERS)
        parts[panel] = rows[["domain", "quantity"]].join(numbers)
    return stack(parts, "panel")


def order_of(names: Sequence[str]) -> Callable[[pd.Series], pd.Series]:
    """The key that sorts a column of names as these are."""
    places = {name: place for place, name in enumerate(names)}
    return lambda column: column.map(places)


# ---- what each domain is made of -----------------------------------------------------------------


def with_tokens(text: Text, strings: list[str], said: int, count: int) -> Text:
    """The text with each token's `kind` (what begins a word, a name or a keyword is one kind, so
    that programs and prose can be compared), its `frequency` among the tokens of all other prompts,
    whether it is one of the tokens that the draft can say (`said`, so many), and the quantile bins,
    `count`, of its entropy and frequency.
    """
    rows = text.trace
    begins_a_word = {"keyword": "word start", "identifier": "word start"}
    kinds = token_kinds(rows, strings).astype(str)
    rows = rows.assign(frequency=frequency_elsewhere(rows))
    is_said = rows["draft_rank"] < said
    entropy_bin = bins.quantile_bins(rows, "target_entropy", count)
    frequency_bin = bins.quantile_bins(rows, "frequency", count)
    return replace(text, trace=rows).with_columns(
        kind=kinds.replace(begins_a_word),
        said=is_said.astype(float),
        entropy_bin=entropy_bin,
        frequency_bin=frequency_bin,
    )


def frequency_elsewhere(trace: pd.DataFrame) -> pd.Series:
    """Share of the tokens of all other prompts that are this row's token: how common it is, without
    the row's own text.
    """
    length, own, every = (
        trace.groupby(keys)["token"].transform("size")
        for keys in ("prompt_id", ["prompt_id", "token"], "token")
    )
    if length.iloc[0] == len(trace):
        raise ValueError("trace holds one prompt: there are no other prompts to count in")
    return (every - own) / (len(trace) - length)


def by_kind(text: Text) -> Estimates:
    """Acceptance of each kind of token, with its share of the positions: domain, kind, estimate,
    low, high, rows, n_prompts, share.
    """
    rows = text.trace
    frame = bins.group_means(rows, text.value, "kind").frame
    frame["share"] = frame["rows"] / frame["domain"].map(rows.value_counts("domain"))
    order = [*domains_in(rows), POOLED, *rows["kind"].value_counts().index]
    in_order = frame.sort_values(
        ["domain", "kind"], key=lambda names: names.map(order.index), ignore_index=True
    )
    return Estimates(in_order)


# ---- what explains the contrast ------------------------------------------------------------------


def shared(frame: pd.DataFrame, group: str) -> pd.DataFrame:
    """The rows in levels of `group` that have rows of 5 prompts or more in every domain (common
    support). ValueError if that is one level or none.
    """
    prompts = frame.groupby([group, "domain"], observed=True)["prompt_id"].nunique()
    fewest = prompts.unstack(fill_value=0).min(axis=1)
    everywhere = fewest >= stats.MIN_PROMPTS
    if everywhere.sum() < 2:
        raise ValueError(
            f"levels of {group!r} with rows of {stats.MIN_PROMPTS} prompts in every domain: "
            f"{everywhere.sum()}; matching needs two or more"
        )
    return frame[frame[group].map(everywhere)]


def matched(frame: pd.DataFrame, value: str, group: str) -> Pair:
    """Before and after direct standardisation: the mean of `value`, and what it would be if the
    levels of `group` had in each domain the shares that they have in all rows (taken as fixed);
    both over the `shared` rows.
    """
    kept = shared(frame, group)
    shares = kept[group].value_counts(normalize=True)
    weights = shares.to_numpy()[:, None]
    columns = bins.in_levels(value, group, shares.index.tolist())
    fixed = Estimator(
        f"{value} at equal {group}", columns, lambda totals: score.quotient(totals) @ weights
    )
    return (kept, score.mean_of(value)), (kept, fixed)


def held_fixed(greedy: Text, sampled: Text, count: int) -> dict[tuple, Callable[[], Pair]]:
    """What is held fixed, one at a time: (estimator, held_fixed) -> what gives (rows, estimator)
    before and after it is. The texts are of `with_tokens`.

    Tokens that the draft can never say are taken out of the count of tokens; at T = 1 too, since
    alpha is the mean of min(1, q/p) over the tokens of sampled text, and 0 of those.
    """
    entropy_bin = bins.quantile_bins(greedy.nodes, "target_entropy", count)
    nodes = greedy.nodes.assign(entropy_bin=entropy_bin)
    name = score.published_alpha.name
    published = (nodes, score.published_alpha)
    exact = greedy.accepted()
    best = (nodes[nodes["rank"] == 0], score.published_alpha)
    tests: dict[tuple, Any] = {
        (name, "estimator"): lambda: (published, exact),
        (name, "rank 0 only"): lambda: (published, best),
        (name, "entropy"): partial(matched, nodes, "ratio", "entropy_bin"),
    }
    for text in (greedy, sampled):
        rows, name = text.trace, text.acceptance.name
        for what, group in MATCHED.items():
            tests[name, what] = partial(matched, rows, text.value, group)
        if not rows["said"].all():
            tests[name, NEVER_SAID] = partial(without_unsaid, text)
    return tests


def without_unsaid(text: Text) -> Pair:
    """Before and after tokens that the draft cannot say are left out of the count of tokens."""
    of_said = score.ratio_of(text.value, "said")
    return text.accepted(), (text.trace, of_said)


def explanations(tests: Mapping[tuple, Callable[[], Pair]], domain: str) -> Estimates:
    """The contrast `before` and `after` something is held fixed, and its `change`: estimator,
    held_fixed, stage, estimate, low, high, n_prompts, note. Where there is no such pair, the note
    says why.
    """
    parts = {}
    for name, pair in tests.items():
        try:
            draws, stages = staged(pair, domain)
        except ValueError as error:
            rows = {"stage": STAGES, "note": str(error)}
            parts[name] = pd.DataFrame(rows, columns=["stage", *NUMBERS, "n_prompts", "note"])
            continue
        parts[name] = draws.table(stages, "stage")
    return Estimates(stack(parts, ["estimator", "held_fixed"]), digits=3)


def staged(pair: Callable[[], Pair], domain: str) -> tuple[stats.Draws, dict[str, pd.Series]]:
    """The contrast in every draw: before, after and change."""
    draws = stats.jointly(dict(zip(STAGES[:2], pair(), strict=True)))
    before, after = (contrast(values, domain) for values in draws.values.values())
    return draws, dict(zip(STAGES, (before, after, after - before), strict=True))


def moves_most(changes: pd.DataFrame, n_prompts: int) -> str:
    """What moves the contrast most of all that was held fixed (a column each: the change in every
    draw), and whether its lead is significant, as sentences.
    """
    if changes.empty:
        return "Nothing could be held fixed: the domains share too few kinds of position."
    sizes = changes * np.sign(changes.iloc[0])
    most, lead = choose.leader(sizes, n_prompts)
    points = 100 * changes[most].to_numpy()
    bounds = stats.bounds_of(points[1:], n_prompts)
    lead = f"; {lead}" if len(sizes.columns) > 1 else ""
    changed = stats.cell(points[0], *bounds, digits=0)
    return f"Holding {most} fixed changes it by {changed} points{lead}."
