"""Notebook 06: does the domain with the highest entropy also have the highest acceptance? Its
contrast with the others, before and after something is held fixed, and the notebook's sentences.

Direct standardisation is explained in any text on epidemiology.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from speclab import runs, score, stats
from speclab.analysis import bins, prompt_sets, published
from speclab.analysis.texts import PAPER, Text
from speclab.analysis.token_kinds import token_kinds
from speclab.estimates import Estimates, named, stack, starting, yes_or_no
from speclab.models.folder import ModelsMissing
from speclab.plain import near
from speclab.profiles import Profile
from speclab.score import ALL, POOLED, Estimator, domains_in
from speclab.stats import NUMBERS

Question = tuple[pd.DataFrame, Estimator]
Pair = tuple[Question, Question]

STAGES = ["before", "after", "change"]
# how the target reads prompts, by a profile's template
FORMATS = {"none": "as plain text", "chat": "in its chat template"}
TEMPLATE = ("rises", "falls", "does not change significantly")
VOCABULARY = "draft vocabulary"
FREQUENT = 0.01  # share of a domain's positions from which a kind of token is drawn
MATCHED = {"entropy": "entropy_bin", "token kind": "kind", "token frequency": "frequency_bin"}


# ---- domains and formats -------------------------------------------------------------------------


def of_domains(text: Text, domains: Sequence[str]) -> Text:
    """The texts of some of the domains."""
    frames = (text.trace, text.nodes)
    trace, nodes = (rows[rows["domain"].isin(domains)].reset_index(drop=True) for rows in frames)
    return replace(text, trace=trace, nodes=nodes)


def asked_domain(wanted: str, text: Text) -> str:
    """The domain that is compared with the others: the wanted one, or for "" the one with the
    highest target entropy. ValueError for a domain that the text does not have.
    """
    means = text.trace.groupby("domain")["target_entropy"].mean()
    domains = domains_in(text.trace)
    if wanted and wanted not in domains:
        raise ValueError(
            f'domain={wanted!r}: {near(wanted, domains)}; "" takes the one with the highest entropy'
        )
    return wanted or str(means[[*domains]].idxmax())


def in_other_format(profile: Profile) -> tuple[Text | None, str]:
    """Greedy texts of the same prompts in the format that the profile does not use; or None and the
    reason, where the target cannot read the prompts in it.
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
    """A domain's value minus the mean of all others' (without `but`), in every draw of
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
    """The domain's `contrast` in the number of each question: its key (or the parts of its key) by
    `names`, estimate, low, high, n_prompts, note, share_highest.
    """
    tables = {}
    for key, question in questions.items():
        draws = stats.jointly({"value": question})
        difference = contrast(draws["value"], domain, but)
        table = draws.table({"value": difference}).frame.drop(columns="name")
        tables[key] = table.assign(share_highest=share_highest(draws["value"], domain))
    return Estimates(stack(tables, names))


def leads(texts: list[Text], domain: str) -> Estimates:
    """`contrasts` in entropy and in acceptance, by view (the paper's measure on the first text,
    then the exact acceptance of one drafted token on each) and quantity.
    """
    views = {PAPER: (texts[0].nodes, score.published_alpha)}
    views |= {text.token: text.accepted() for text in texts}
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
    return Estimates(found.assign(domain=domain))


def is_highest(share: float) -> str:
    """'yes' for the highest in more than 97.5 % of the resamples (`share_highest`), 'no' in fewer
    than 2.5 %, else 'inconclusive'.
    """
    return yes_or_no(stats.verdict(share, share, (0.025, 0.975)))


def entropy_and_acceptance(
    table: pd.DataFrame, sampled: pd.DataFrame, texts: Sequence[Text]
) -> pd.DataFrame:
    """Each domain's mean entropy and acceptance: panel, domain, quantity, estimate, low, high. The
    panels are the paper's pair (where the paper has these domains), this pair by the paper's
    measure, and the exact acceptance on the greedy and on the sampled text. `table` and `sampled`
    are the comparisons of Table I with these two texts.
    """
    exact = published.CORRECTED
    panels = {
        f"paper's pair,\n{PAPER}": (table, ["published"] * 3),
        f"this pair,\n{PAPER}": (table, published.OURS),
    }
    if table["published"].isna().all():
        del panels[f"paper's pair,\n{PAPER}"]
    for text, source in zip(texts, (table, sampled), strict=True):
        panels[f"this pair,\n{text.token}"] = (source, exact)
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


# ---- kinds of token ------------------------------------------------------------------------------


def with_tokens(text: Text, strings: list[str], said: int, count: int) -> Text:
    """The text with four facts about each token: its `kind` (whatever begins a word, a name or a
    keyword is one kind, so that programs and prose can be compared), its `frequency` among the
    tokens of all other prompts, whether it is in the draft's vocabulary of `said` tokens (in the
    column `said`), and the bins of its entropy and frequency (`count` quantile bins each).
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
    """Share of the tokens of all other prompts that are this row's token: how common the token is
    outside the row's own text.
    """
    length, own, every = (
        trace.groupby(keys)["token"].transform("size")
        for keys in ("prompt_id", ["prompt_id", "token"], "token")
    )
    if length.iloc[0] == len(trace):
        raise ValueError("trace holds one prompt: there are no other prompts to count in")
    return (every - own) / (len(trace) - length)


def by_kind(text: Text) -> Estimates:
    """Acceptance of each kind of token, the most frequent kind first: domain and pooled, kind,
    estimate, low, high, rows, n_prompts.
    """
    return _in_order(bins.group_means(text.trace, text.value, "kind").frame, text)


def shares_of_kinds(text: Text) -> Estimates:
    """Share of the positions of each kind of token, the most frequent kind first: domain and
    pooled, kind, estimate, low, high. A domain has rows for the kinds that occur in it.
    """
    rows = text.trace
    kinds = list(rows["kind"].unique())

    def value(totals: np.ndarray) -> np.ndarray:
        _, positions = np.split(totals, 2, axis=-1)
        return positions / positions.sum(axis=-1, keepdims=True)

    columns = bins.in_levels(text.value, "kind", kinds)
    shares = stats.by_domain(rows, Estimator("share", columns, value, scalar=False)).frame
    shares = shares[["domain", *NUMBERS]]
    shares.insert(1, "kind", kinds * (len(shares) // len(kinds)))
    is_met = (shares["estimate"] > 0) & (shares["domain"] != ALL)
    return _in_order(shares[is_met], text)


def _in_order(frame: pd.DataFrame, text: Text) -> Estimates:
    """The rows by domain, then by kind, the most frequent kind of the text first."""
    rows = text.trace
    order = [*domains_in(rows), POOLED, *rows["kind"].value_counts().index]
    return Estimates(frame.sort_values(["domain", "kind"], key=order_of(order), ignore_index=True))


def frequent(shares: Estimates) -> list[str]:
    """The kinds that are at least FREQUENT in a domain."""
    rows = shares.frame[shares.frame["estimate"] >= FREQUENT]
    return list(rows["kind"].unique())


# ---- what explains the contrast ------------------------------------------------------------------


def shared(frame: pd.DataFrame, group: str) -> pd.DataFrame:
    """The rows in levels of `group` that have rows of 5 prompts or more in every domain (common
    support). ValueError for one such level or none.
    """
    prompts = frame.groupby([group, "domain"], observed=True)["prompt_id"].nunique()
    fewest = prompts.unstack(fill_value=0).min(axis=1)
    everywhere = fewest >= stats.MIN_PROMPTS
    if everywhere.sum() < 2:
        raise ValueError(
            f"matching needs two levels of {group!r} with rows of {stats.MIN_PROMPTS} prompts in "
            f"every domain, and there are {everywhere.sum()}"
        )
    return frame[frame[group].map(everywhere)]


def matched(frame: pd.DataFrame, value: str, group: str) -> Pair:
    """Before and after direct standardisation: the mean of `value`, and the mean that it would have
    if the levels of `group` had in each domain the shares that they have in all rows (which are
    taken as fixed); both over the `shared` rows.
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
    """What is held fixed, one factor at a time: (measure, held_fixed) -> a function that returns
    (rows, estimator) before and after. The texts come from `with_tokens`.

    Tokens outside the draft's vocabulary are taken out of the count of tokens. At T = 1 too: alpha
    is the mean of min(1, q/p) over the tokens of sampled text, which is 0 at these tokens.
    """
    entropy_bin = bins.quantile_bins(greedy.nodes, "target_entropy", count)
    nodes = greedy.nodes.assign(entropy_bin=entropy_bin)
    published = (nodes, score.published_alpha)
    exact = greedy.accepted()
    best = (nodes[nodes["rank"] == 0], score.published_alpha)
    tests: dict[tuple, Any] = {
        (PAPER, "exact measure"): lambda: (published, exact),
        (PAPER, "rank 0 only"): lambda: (published, best),
        (PAPER, "entropy"): partial(matched, nodes, "ratio", "entropy_bin"),
    }
    for text in (greedy, sampled):
        rows = text.trace
        for what, group in MATCHED.items():
            tests[text.token, what] = partial(matched, rows, text.value, group)
        if not rows["said"].all():
            tests[text.token, VOCABULARY] = partial(in_vocabulary, text)
    return tests


def in_vocabulary(text: Text) -> Pair:
    """Before and after tokens outside the draft's vocabulary are taken out of the count."""
    of_said = score.ratio_of(text.value, "said")
    return text.accepted(), (text.trace, of_said)


def explanations(tests: Mapping[tuple, Callable[[], Pair]], domain: str) -> Estimates:
    """The contrast `before` and `after` a factor is held fixed, and its `change`: measure,
    held_fixed, stage, estimate, low, high, n_prompts, note. Where the factor cannot be held fixed,
    the note says why.
    """
    parts = {}
    for name, pair in tests.items():
        try:
            draws, stages = staged(pair, domain)
        except ValueError as error:
            rows = {"stage": STAGES, "note": str(error)}
            parts[name] = pd.DataFrame(rows, columns=["stage", *NUMBERS, "n_prompts", "note"])
            continue
        parts[name] = draws.table(stages, "stage").frame
    return Estimates(stack(parts, ["measure", "held_fixed"]))


def staged(pair: Callable[[], Pair], domain: str) -> tuple[stats.Draws, dict[str, pd.Series]]:
    """The contrast in every draw: before, after and change."""
    draws = stats.jointly(dict(zip(STAGES[:2], pair(), strict=True)))
    before, after = (contrast(values, domain) for values in draws.values.values())
    return draws, dict(zip(STAGES, (before, after, after - before), strict=True))


def leads_of_change(changes: pd.DataFrame) -> tuple[str, dict[str, pd.Series]]:
    """The factor with the largest change, and by how much its change is larger than each other's,
    in every draw; changes: a column for each factor.
    """
    sizes = changes * np.sign(changes.iloc[0])
    most = sizes.iloc[0].idxmax()
    leads = sizes.drop(columns=most).rsub(sizes[most], axis=0)
    return most, dict(leads.sort_values(0, axis=1).items())


# ---- sentences -----------------------------------------------------------------------------------


def paradox_in_words(lead: Estimates, entropy: Estimates, domain: str, where: str) -> str:
    """The first sentences of the answer: 'No. Chat's target entropy is the highest. Its
    acceptance differs by −30 points [−33, −27] from the others' mean (T = 0).'; lead, entropy: the
    contrasts in acceptance and entropy, each with its share_highest.
    """
    share = entropy.row.share_highest
    word = is_highest(min(lead.row.share_highest, share))
    verb = {"yes": "is", "no": "is not", "inconclusive": "may be"}[is_highest(share)]
    return (
        f"{word.capitalize()}. {starting(domain)}'s target entropy {verb} the highest. Its "
        f"acceptance differs by {lead} from the others' mean ({where})."
    )


def elsewhere_in_words(contrasts: Estimates) -> str:
    """Whether the contrast is significant on the last set; contrasts: by set, own prompts first."""
    last = Estimates(contrasts.frame.iloc[-1:])
    if last.row.set == prompt_sets.OWN:
        return "No other set has enough prompts."
    how = last.tally("is positive", "is negative", "is not significant")
    return f"On {prompt_sets.after_on(last.row.set)} this {how}."


def moved_most(found: Estimates) -> tuple[str, Estimates, Estimates]:
    """The factor that changes the contrast most when it is held fixed, the contrast after, and its
    change; found: of `explanations`, for one measure, with a change that is known.
    """
    changes = found.at(stage="change").known
    largest = changes["estimate"].abs().idxmax()
    most = changes["held_fixed"][largest]
    stages = found.at(held_fixed=most).in_units("points")
    return most, stages.at(stage="after"), stages.at(stage="change")


def moves_in_words(found: Estimates) -> str:
    """The contrast if the factor of `moved_most` is held fixed, as a sentence."""
    if found.at(stage="change").known.empty:
        return "Nothing could be held fixed."
    most, after, _ = moved_most(found)
    return f"With {most} held fixed, the difference is {after.span()}."


def moves_in_title(found: Estimates, domain: str) -> str:
    """The change by the factor of `moved_most`, as a title."""
    if found.at(stage="change").known.empty:
        return "For the best token, nothing could be held fixed"
    most, _, change = moved_most(found)
    return f"Holding {most} fixed changes the contrast of {domain} by {change}"


def compared_changes(most: str, leads: Estimates) -> str:
    """By which factors the contrast changes significantly less than by `most`; leads: how much more
    it changes by `most` than by each other factor.
    """
    more, less = "significantly more than", "significantly less than"
    others = leads.sentence(more, less, "not significantly more than", names="held_fixed")
    changes = others.replace("; ", ", and ")
    return f"Holding {most} fixed changes the contrast of the best token {changes}."


def without_comparison(domain: str, template: Estimates | None) -> str:
    """The answer where one domain alone is judged; template: what the chat template changes in its
    acceptance, where it can be asked.
    """
    text = f"There is nothing to compare, because only the domain {domain} can be judged."
    if template is None:
        return text
    return f"{text} The chat template changes its acceptance by {template} (T = 0)."


def highest_in_title(text: Text) -> str:
    """Which domain has the highest entropy and which the highest acceptance, as a title."""
    means = text.trace.groupby("domain")[["target_entropy", text.value]].mean()
    entropy, acceptance = means.idxmax()
    if len(means) == 1:
        accepted = 100 * means[text.value].iloc[0]
        return f"At {text.name}, {accepted:.0f} % of the best tokens are accepted"
    return f"At {text.name}, {entropy} has the highest entropy, {acceptance} the highest acceptance"


def most_frequent(shares: Estimates, domain: str) -> str:
    """The most frequent kind of token of a domain, as a title; shares: of `shares_of_kinds`."""
    top = shares.at(domain=domain).highest().row.kind
    of_top = shares.at(kind=top).in_units("%")
    share = of_top.at(domain=domain).span()
    return f"In {domain}, {share} of the tokens are of the kind '{top}' (all: {of_top.span()})"


def paradoxes(verdicts: pd.Series) -> str:
    """On which sets of prompts there is a paradox; verdicts: of `is_highest`, by set."""
    by_set = named([f"{verdict} ({name})" for name, verdict in verdicts.items()])
    return f"Is there a paradox on each set of prompts? {starting(by_set)}."
