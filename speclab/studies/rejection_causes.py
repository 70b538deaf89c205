"""Notebook 07: what causes rejections. Every position of a text is labelled with possible causes
(`label`); `frequencies` says how often each occurs, `costs` what it costs.

A position is *rejected* if the draft's best token is not the target's best (draft_rank > 0): a
chain that is drafted over it ends there. At T = 0 the text does not depend on what is accepted, so
the question 'what if the draft were never wrong at numbers?' has an exact answer: set draft_rank to
0 at these positions and replay the blocks. A large class gains much for its size alone, so a class
is judged by its excess: its gain minus the gain of correcting equally many random positions. A
class of positions does not prove a cause, and classes of different families overlap, so their gains
do not add up. Every interval resamples prompts (`speclab.stats`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from speclab import stats
from speclab.analysis import bins, choose
from speclab.analysis.texts import PLACE, Text
from speclab.analysis.token_kinds import BEFORE, token_kinds
from speclab.copying import replayed
from speclab.estimates import Estimates, named, stack
from speclab.replay import prompt_sums, replay, replay_sampled
from speclab.score import Estimator, divide
from speclab.stats import NUMBERS

NEVER = "found: never"  # a certain cause: the token is outside the draft's vocabulary
# each family divides the positions (`found`: the rejected ones), so its shares sum to 1
FAMILIES = {
    "kind": (
        "number",
        "operator",
        "identifier",
        "keyword",
        "name",
        "word start",
        "word inside",
        "punctuation",
        "white space",
        "end of text",
        "other",
    ),
    "begins": ("text", "line", "sentence", "nothing"),
    "state": ("both sure", "only target sure", "only draft sure", "both unsure"),
    "lookup": ("right", "wrong", "no match"),
    "found": ("rank 1", "rank 2", "ranks 3-4", "ranks 5-8", "ranks 9-64", "beyond 64", "never"),
}
_FOUND_FROM = (1, 2, 3, 5, 9, 65)
PICTURED = {  # families in the figure, with their titles
    "kind": "kind: what the token is",
    "state": "state: which models are sure",
    "found": "found: never (the token is outside the draft's vocabulary)",
}
STATES = {  # in a sentence, after 'where'
    "both sure": "both models are sure",
    "only target sure": "only the target is sure",
    "only draft sure": "only the draft is sure",
    "both unsure": "both models are unsure",
}
HELPS = ("helps", "hurts", "has no significant effect")
# no causes: labels that say that nothing of the family applies
NO_CAUSE = ["begins: nothing", "lookup: no match"]
_ENDS = tuple(".!?\N{HORIZONTAL ELLIPSIS}")
_CLOSERS = "\"')]*\N{RIGHT DOUBLE QUOTATION MARK}"
_INSIDE = tuple(",&-/")
# shares of positions that are corrected at random; blocks are interpolated between two of them
CORRECTED_SHARES = np.linspace(0, 1, 41)

Question = tuple[pd.DataFrame, Estimator]

# ---- labels --------------------------------------------------------------------------------------


def label(
    text: Text,
    strings: Sequence[str],
    prompt_tokens: Mapping[str, Sequence[int]],
    said: int,
    sure: float = 0.5,
    ngram: int = 3,
) -> pd.DataFrame:
    """The text's trace, in order, with `rejected`, `confidence` (the draft's q of its best token)
    and one categorical column for each of FAMILIES (`found` is missing where accepted).

    strings[id]: the text of token id (`pictures.strings_of`); prompt_tokens: each prompt's token
    ids; said: the size of the draft's vocabulary. A model counts as sure if its own best token has
    the probability `sure` or more; above 0.5 no other token can have as much. `ngram`: the longest
    run of tokens that prompt lookup looks for. On sampled text the point-mass rule decides what is
    rejected, and `state` has no meaning: p_token is not p of the target's best token there.
    """
    signals = bins.signals(text.trace)
    order = signals.groupby(PLACE[:2], sort=False).ngroup()
    frame = signals.iloc[np.lexsort([signals["position"], order])].reset_index(drop=True)
    rank = frame["draft_rank"]
    target_sure = frame["p_token"] >= sure
    draft_sure = frame["confidence"] >= sure
    *states, neither = FAMILIES["state"]
    certainty = [target_sure & draft_sure, target_sure, draft_sure]
    edges = [*_FOUND_FROM, np.inf]
    ranks = pd.cut(rank, edges, right=False, labels=FAMILIES["found"][:-1])
    found = ranks.astype(object).mask(rank >= said, "never")
    state = np.select(certainty, states, neither)
    copied = lookup(frame, prompt_tokens, ngram)
    labels = (*_kinds(frame, strings), state, copied, found)
    for (family, classes), label in zip(FAMILIES.items(), labels, strict=True):
        frame[family] = pd.Categorical(label, classes)
    return frame.assign(rejected=(rank > 0).astype(float))


def lookup(
    frame: pd.DataFrame, prompt_tokens: Mapping[str, Sequence[int]], longest: int = 3
) -> np.ndarray:
    """The label of the family `lookup` for each row (rows in order): does prompt lookup over prompt
    and text so far propose the token?
    """
    labels = []
    for (name, _), text in frame.groupby(["prompt_id", "seed"], sort=False)["token"]:
        matched, copied = replayed(prompt_tokens[name], text, longest, most=1)
        found = [copied > 0, matched > 0]
        labels.append(np.select(found, ["right", "wrong"], "no match"))
    return np.concatenate(labels)


def _kinds(frame: pd.DataFrame, strings: Sequence[str]) -> tuple[list[str], list[str]]:
    """Labels of `kind` and of `begins`. A capital letter inside a sentence of prose begins a name,
    except in 'I'.
    """
    kinds = list(token_kinds(frame, strings))
    begins = []
    rows = zip(frame["token"], frame["position"], frame["domain"], strict=True)
    before = ""
    for row, (token, position, domain) in enumerate(rows):
        before = before if position else ""
        text = strings[token]
        word = text.strip()
        visible = word and kinds[row] != "end of text"
        begun = _begins(before, domain) if visible and position else "nothing"
        begins.append(begun if position else "text")
        last = before.rstrip()[-1:]
        inside = begun == "nothing" and (last.isalnum() or last in _INSIDE)
        begins_word = inside and kinds[row] == "word start"
        if begins_word and word[0].isupper() and word != "I":
            kinds[row] = "name"
        before = (before + text)[-BEFORE:]
    return kinds, begins


def _begins(before: str, domain: str) -> str:
    """Whether a visible token is the first of a line or a sentence."""
    last = before.rstrip(" \t")[-1:]
    if last in ("", "\n"):
        return "line"
    sentence = before.rstrip().rstrip(_CLOSERS)
    ended = sentence.endswith(_ENDS) and domain != "code"
    return "sentence" if ended else "nothing"


def flags(frame: pd.DataFrame) -> pd.DataFrame:
    """Whether a row is in the class: one bool column 'family: class' for each class of FAMILIES."""
    return pd.get_dummies(frame[list(FAMILIES)], prefix_sep=": ", dtype=bool)


# ---- how often -----------------------------------------------------------------------------------


def frequencies(frame: pd.DataFrame, members: pd.DataFrame) -> Estimates:
    """How often each class occurs: quantity, cause, domain (and all, pooled), estimate, low, high,
    n_prompts.

    quantity: `share`, the class's share of the rejections; `positions`, its share of all positions
    (the base rate); `rate`, the share of its positions that are rejected (1 - hit[1]); `ratio`,
    this rate divided by the rate of all positions. Undefined (NaN) without rejections or without
    such positions.
    """
    member = members.to_numpy(float)
    rejected = frame["rejected"].to_numpy()[:, None]
    table = np.hstack([member * rejected, member, rejected, np.ones_like(rejected)])
    causes = list(members)
    ends = np.cumsum([len(causes), len(causes), 1])

    def value(quantity: str, totals: np.ndarray) -> np.ndarray:
        both, positions, rejections, rows = np.split(totals, ends, axis=-1)
        share = divide(both, rejections)
        base_rate = divide(positions, rows)
        return {
            "share": share,
            "positions": base_rate,
            "rate": divide(both, positions),
            "ratio": divide(share, base_rate),
        }[quantity]

    parts = {}
    for quantity in ("share", "positions", "rate", "ratio"):
        family = Estimator(quantity, lambda _: table, partial(value, quantity), scalar=False)
        numbers = stats.by_domain(frame, family).frame
        rows = numbers[["domain", *NUMBERS, "n_prompts"]]
        rows.insert(0, "cause", causes * (len(rows) // len(causes)))
        parts[quantity] = rows
    return Estimates.stacked(parts, "quantity")


# ---- what it costs -------------------------------------------------------------------------------


def gains_of_ranks(frame: pd.DataFrame, gamma: int, ranks: Mapping[Any, np.ndarray]) -> stats.Draws:
    """Tokens per target pass that a chain of gamma gains with other draft ranks (rows,), compared
    with the ranks as they are: draws by the names of `ranks`.
    """
    columns = ["emitted", "blocks", "blocks_before"]
    before = prompt_sums(replay(frame, gamma))["blocks"]

    def value(totals: np.ndarray) -> np.ndarray:
        tokens, passes, passes_before = np.split(totals, 3, axis=-1)
        return tokens / passes - tokens / passes_before

    gain = Estimator("gain", lambda sums: sums[columns].to_numpy(float), value)
    questions = {}
    for name, rank in ranks.items():
        sums = prompt_sums(replay(frame.assign(draft_rank=rank), gamma))
        questions[name] = (sums.assign(blocks_before=before), gain)
    return stats.jointly(questions)


def corrected_at_random(frame: pd.DataFrame, gamma: int, share: float) -> pd.Series:
    """Expected visited blocks of a chain of gamma, by prompt_id, if each position, rejected or not,
    is corrected independently with the probability `share`.

    Exact, without drawing: a decoder looks at a position once, so these are the blocks of
    `replay_sampled` where a wrong draft is accepted with this probability and a right one always.
    """
    rows = frame[["prompt_id", "domain", "position"]]
    chance = np.where(frame["draft_rank"] > 0, share, 1.0)
    walked = replay_sampled(rows.assign(p_token=1.0, q_token=chance), gamma)
    return walked.groupby("prompt_id", sort=False)["weight"].sum()


def random_gains(frame: pd.DataFrame, gamma: int, members: pd.DataFrame) -> stats.Draws:
    """What a chain of gamma gains by correcting as many random positions of the domain (`pooled`:
    of all prompts) as each class has: draws by class.
    """
    texts = frame.groupby("prompt_id", sort=False)
    prompts = texts["domain"].first().reset_index()
    blocks = [corrected_at_random(frame, gamma, share) for share in CORRECTED_SHARES]
    positions = members.groupby(frame["prompt_id"], sort=False).sum()
    steps = len(CORRECTED_SHARES) - 1

    def value(totals: np.ndarray) -> np.ndarray:
        tokens, corrected, blocks = np.split(totals, [1, 2], axis=-1)
        place = steps * corrected / tokens
        step = np.minimum(place.astype(int), steps - 1)
        fewer = np.take_along_axis(blocks, step, -1)
        more = np.take_along_axis(blocks, step + 1, -1)
        expected = fewer + (place - step) * (more - fewer)
        return tokens / expected - tokens / blocks[..., :1]

    def question(cause: str) -> Question:
        table = np.column_stack([texts.size(), positions[cause], *blocks])
        return prompts, Estimator("random", lambda _: table, value)

    return stats.jointly({cause: question(cause) for cause in members})


def costs(frame: pd.DataFrame, gamma: int, members: pd.DataFrame) -> dict[str, stats.Draws]:
    """What the draft's errors in each class cost a chain of gamma, in tokens per target pass, by
    quantity: draws by class, all on the same resampled prompts. `gain`: of a draft that is never
    wrong in the class (`gains_of_ranks`); `random`: of as many random positions (`random_gains`);
    `excess`: gain - random.
    """
    rank = frame["draft_rank"]
    never_wrong = {cause: np.where(members[cause], 0, rank) for cause in members}
    gain = gains_of_ranks(frame, gamma, never_wrong)
    random = random_gains(frame, gamma, members)
    excess = {cause: gain[cause] - random[cause] for cause in members}
    return {"gain": gain, "random": random, "excess": replace(gain, values=excess)}


def in_one_table(draws: Mapping[str, stats.Draws]) -> Estimates:
    """`costs` with intervals: quantity, cause, domain, estimate, low, high, n_prompts."""
    parts = {
        quantity: of_classes.table(key="cause").frame for quantity, of_classes in draws.items()
    }
    return Estimates(stack(parts, "quantity").drop(columns="note"))


# ---- which causes --------------------------------------------------------------------------------


def of_family(estimates: Estimates, family: str) -> Estimates:
    """The classes of one family, with the class alone as `name`."""
    frame = estimates.frame.rename(columns={"cause": "name"})
    is_member = frame["name"].str.startswith(f"{family}: ")
    rows = frame[is_member]
    names = rows["name"].map(alone)
    return Estimates(rows.assign(name=names))


def alone(cause: str) -> str:
    """The class without its family."""
    return cause.partition(": ")[2]


def may_be_causes(positions: Estimates, smallest: float) -> pd.DataFrame:
    """The classes that may be causes in each domain: domain, family, cause, in the order of
    FAMILIES. They have at least the share `smallest` of the domain's positions; NO_CAUSE and all of
    `found` but NEVER are left out.
    """
    frame = positions.frame
    family = frame["cause"].str.split(":").str[0]
    may_be = (family != "found") | (frame["cause"] == NEVER)
    may_be &= ~frame["cause"].isin(NO_CAUSE)
    may_be &= frame["estimate"] >= smallest
    return frame.assign(family=family).loc[may_be, ["domain", "family", "cause"]]


def by_size(excess: Estimates) -> list[str]:
    """The classes of one domain by family, in each the largest excess first."""
    rows = excess.frame.sort_values("estimate", ascending=False)
    of_families = [rows["cause"].str.startswith(f"{family}: ") for family in FAMILIES]
    return [cause for members in of_families for cause in rows.loc[members, "cause"]]


def pictured(excess: Estimates, causes: pd.DataFrame, order: Sequence[str]) -> Estimates:
    """The data of `drawings.draw_causes`: for each domain (and the mean) the classes of PICTURED
    that may be causes there, in this order: family, name, domain, estimate, low, high.
    """
    rows = excess.frame.merge(causes)
    rows = rows[rows["family"].isin(PICTURED)]
    rows = rows.sort_values("cause", key=lambda names: names.map(order.index), kind="stable")
    names = rows["cause"].map(alone)
    columns = ["family", "name", "domain", *NUMBERS]
    return Estimates(rows.assign(name=names)[columns].reset_index(drop=True))


def first_causes(excess: stats.Draws, causes: pd.DataFrame) -> Estimates:
    """The class with the largest excess in each domain and family of `causes`: domain, family,
    cause, estimate, low, high, n_prompts, first, lead. Being the largest of several partly by
    chance, it is `first` only if its excess is significant and `lead` is "all others".
    """
    rows = []
    for (domain, family), members in causes.groupby(["domain", "family"], sort=False):
        draws = {cause: excess[cause][domain] for cause in members["cause"]}
        n_prompts = excess.prompts.sizes.get(domain, excess.prompts.fewest)
        best, tied = choose.best_and_tied(pd.DataFrame(draws), n_prompts)
        row = excess.table({best: excess[best][[domain]]}, "cause").frame
        lead = "all others"
        if tied is None:
            lead = "no interval"
        elif tied:
            lead = f"all but {named([alone(cause) for cause in tied])}"
        is_more = stats.verdict(row["low"], row["high"]) == stats.ABOVE
        first = "yes" if is_more.all() and tied == [] else "no"
        rows.append(row.assign(family=family, first=first, lead=lead))
    columns = ["domain", "family", "cause", *NUMBERS, "n_prompts", "first", "lead"]
    return Estimates(pd.concat(rows, ignore_index=True)[columns])


# ---- tables and sentences ------------------------------------------------------------------------


def overview(numbers: Estimates) -> pd.DataFrame:
    """A table to show of all classes: shares in %, gain and excess in tokens per target pass."""
    headings = {"positions": "share of positions", "rate": "rejection rate"}
    shares = numbers.at(quantity=list(headings)).in_units("%")
    costs = numbers.at(quantity=["gain", "excess"])
    parts = [part.wide("cause", "quantity") for part in (shares, costs)]
    return parts[0].merge(parts[1], on="cause").rename(columns={"cause": "class"} | headings)


def kinds_and_states(first: Estimates, *keys: str) -> pd.DataFrame:
    """A table to show of `first_causes`: of the families `kind` and `state`."""
    rows = first.at(family=["kind", "state"]).frame
    shown = Estimates(rows.assign(quantity="excess"))
    table = shown.wide(["family", *keys, "cause", "first", "lead"], "quantity")
    table["cause"] = table["cause"].map(alone)
    return table.rename(columns={"cause": "class", "lead": "costs significantly more than"})


def cost_where(row: Any) -> str:
    """Where rejections cost most, or may cost most; row: of `first_causes`."""
    verb = "cost" if row.first == "yes" else "may cost"
    return f"Rejections {verb} most where {STATES[alone(row.cause)]}"


def most_rejected(ratios: Estimates) -> str:
    """The rate ratio of the kind of token that is rejected most often, as a title; ratios: by text
    and cause.
    """
    kinds = of_family(ratios, "kind").known
    if kinds.empty:
        return "No kind of token is rejected"
    top = kinds["name"][kinds["estimate"].idxmax()]
    of_top = replace(ratios, frame=kinds[kinds["name"] == top])
    return f"The kind '{top}' is rejected at {of_top.span()} the average rate, by text"


def cost_in_words(best: Estimates, elsewhere: Estimates | None) -> str:
    """The notebook's answer. best: the state that costs most, in the mean of the domains;
    elsewhere: the state that costs most on each set of other prompts, where there are any.
    """
    text = (
        f"{cost_where(best.row)}. Correcting the draft there gains {best} tokens per target pass "
        "more than at as many random positions (T = 0)."
    )
    if elsewhere is None:
        return f"{text} No other prompts were tested."
    rows = elsewhere.frame
    least_sure = rows.sort_values("first").iloc[0]  # "no" comes before "yes"
    if rows["cause"].nunique() > 1:
        return f"{text} The other prompt sets differ in where rejections cost most."
    return f"{text} On other prompts {cost_where(least_sure).lower()}."
