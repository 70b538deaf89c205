"""Notebook 07: what causes rejections: every position of a text labelled with possible causes
(`label`), how often each is met (`shares`), and what it costs (`gains`).

A position is *rejected* if the draft's best token is not the target's (draft_rank > 0): a chain
that drafts there is cut there. At T = 0 the text does not depend on what is accepted, so the
question 'what if the draft were never wrong at numbers?' has an exact answer: set draft_rank to 0
there and replay the blocks. A class of positions is no proof of a cause, and classes of different
families overlap: their gains do not add. Every interval resamples prompts (`speclab.stats`).
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from speclab import stats
from speclab.analysis import bins
from speclab.analysis.texts import PLACE, Text
from speclab.analysis.token_kinds import BEFORE, token_kinds
from speclab.copying import replayed
from speclab.replay import blocks_by_prompt
from speclab.score import Estimator, divide
from speclab.show.estimates import NUMBERS, Estimates, stack

NEVER = "found: never"  # the one class that is a cause for certain: the draft cannot say the token
# each a partition of the positions (`found`: of the rejected ones), so that its shares sum to 1
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
    "found": (
        "rank 1",
        "rank 2",
        "ranks 3-4",
        "ranks 5-8",
        "ranks 9-64",
        "beyond 64",
        "never",
    ),
}
_FOUND_FROM = (1, 2, 3, 5, 9, 65)
# where nothing of the family applies, and ranks that depend on how wide a tree is: no causes
NO_CAUSE = ["begins: nothing", "lookup: no match"]
_ENDS = tuple(".!?\N{HORIZONTAL ELLIPSIS}")
_CLOSERS = "\"')]*\N{RIGHT DOUBLE QUOTATION MARK}"
_INSIDE = tuple(",&-/")
# ---- labels --------------------------------------------------------------------------------------


def label(
    text: Text,
    strings: Sequence[str],
    prompt_tokens: Mapping[str, Sequence[int]],
    said: int,
    sure: float = 0.5,
    ngram: int = 3,
) -> pd.DataFrame:
    """The text's trace, in order, with `rejected`, `confidence` (the draft's q of its best token),
    and one categorical column for each of FAMILIES (`found` is missing where accepted).

    strings[id]: the text of token id (`pictures.strings_of`); prompt_tokens: each prompt's token
    ids; said: how many tokens the draft can say. `sure`: the probability of its own best token from
    which a model counts as sure; above 0.5 no other token can have as much. `ngram`: the longest
    run of tokens that prompt lookup looks for. At T = 1 rejected means by the point-mass rule, and
    `state` has no meaning: p_token is no longer p of the target's best token.
    """
    frame = bins.signals(text.trace).sort_values(PLACE, ignore_index=True)
    rank = frame["draft_rank"]
    states = FAMILIES["state"]
    target = frame["p_token"] >= sure
    draft = frame["confidence"] >= sure
    kind, begins = _kinds(frame, strings)
    ranks = FAMILIES["found"][:-1]
    found = pd.cut(rank, [*_FOUND_FROM, np.inf], right=False, labels=ranks)
    cases = [target & draft, target, draft]
    labels = {
        "kind": kind,
        "begins": begins,
        "state": np.select(cases, states[:3], states[3]),
        "lookup": lookup(frame, prompt_tokens, ngram),
        "found": found.astype(object).mask(rank >= said, "never"),
    }
    return frame.assign(
        rejected=(rank > 0).astype(float),
        **{
            name: pd.Categorical(values, FAMILIES[name])
            for name, values in labels.items()
        },
    )


def lookup(
    frame: pd.DataFrame, prompt_tokens: Mapping[str, Sequence[int]], longest: int = 3
) -> np.ndarray:
    """A label of the family `lookup` for each row (rows in order): would prompt lookup over prompt
    and text so far have had the token?
    """
    labels = []
    for (name, _), text in frame.groupby(["prompt_id", "seed"], sort=False)["token"]:
        matched, copied = replayed(prompt_tokens[name], text, longest, most=1)
        found = [copied > 0, matched > 0]
        labels.append(np.select(found, ["right", "wrong"], "no match"))
    return np.concatenate(labels)


def _kinds(frame: pd.DataFrame, strings: Sequence[str]) -> tuple[list[str], list[str]]:
    """Labels of `kind` (a capital letter inside a sentence of prose begins a name; 'I' alone is
    none) and of `begins`.
    """
    kinds = list(token_kinds(frame, strings))
    begins = []
    rows = zip(frame["token"], frame["position"], frame["domain"], strict=True)
    before = ""
    for row, (token, position, domain) in enumerate(rows):
        before = before if position else ""
        text = strings[token]
        core = text.strip()
        seen = core and kinds[row] != "end of text"
        begun = _begins(before, domain) if seen and position else "nothing"
        begins.append(begun if position else "text")
        last = before.rstrip()[-1:]
        inside = begun == "nothing" and (last.isalnum() or last in _INSIDE)
        begins_word = inside and kinds[row] == "word start"
        if begins_word and core[0].isupper() and core != "I":
            kinds[row] = "name"
        before = (before + text)[-BEFORE:]
    return kinds, begins


def _begins(before: str, domain: str) -> str:
    """What a token that can be seen is the first of."""
    last = before.rstrip(" \t")[-1:]
    if last in ("", "\n"):
        return "line"
    said = before.rstrip().rstrip(_CLOSERS)
    ended = said.endswith(_ENDS)
    if ended and domain != "code":
        return "sentence"
    return "nothing"


def flags(frame: pd.DataFrame) -> pd.DataFrame:
    """Is a row of the class? One bool column 'family: class' for each of FAMILIES, met or not."""
    return pd.get_dummies(frame[list(FAMILIES)], prefix_sep=": ", dtype=bool)


# ---- how often, and what it costs ----------------------------------------------------------------


def shares(frame: pd.DataFrame, members: pd.DataFrame) -> pd.DataFrame:
    """How often each class is met: quantity, cause, domain (and all, pooled), estimate, low, high,
    n_prompts.

    quantity: `share` of the rejections that are of the class; `positions`, its share of all
    positions; `rate`, the share of its positions that are rejected (1 - hit[1] there); `excess` =
    share - positions (above 0: the class is rejected more often than the rest). Undefined (NaN)
    where there is no rejection, or no such position.
    """
    member = members.to_numpy(float)
    rejected = frame["rejected"].to_numpy()[:, None]
    table = np.hstack([member * rejected, member, rejected, np.ones_like(rejected)])
    size = members.shape[1]

    def share(totals: np.ndarray) -> np.ndarray:
        return divide(totals[..., :size], totals[..., -2:-1])

    def positions(totals: np.ndarray) -> np.ndarray:
        return divide(totals[..., size:-2], totals[..., -1:])

    values = {
        "share": share,
        "positions": positions,
        "rate": lambda totals: divide(totals[..., :size], totals[..., size:-2]),
        "excess": lambda totals: share(totals) - positions(totals),
    }
    return _by_cause(frame, table, values, list(members))


def _by_cause(
    frame: pd.DataFrame,
    table: np.ndarray,
    values: Mapping[str, Callable[[np.ndarray], np.ndarray]],
    causes: list,
) -> pd.DataFrame:
    """`stats.by_domain` of each quantity of `values`, which makes of the sums of `table` (rows, k)
    a number for each cause.
    """
    parts = {}
    for quantity, value in values.items():
        family = Estimator(quantity, lambda _: table, value, scalar=False)
        found = stats.by_domain(frame, family)[["domain", *NUMBERS, "n_prompts"]]
        found.insert(0, "cause", causes * (len(found) // len(causes)))
        parts[quantity] = found
    return stack(parts, "quantity")


def tokens_gained(
    frame: pd.DataFrame, gamma: int, ranks: Mapping[str, np.ndarray]
) -> pd.DataFrame:
    """Tokens per target pass of a chain of gamma if the draft ranks were others, less those of the
    ranks that they are: columns as of `shares`, `cause` the name of the ranks (rows,), quantity
    `gain`. Both are emitted tokens over visited blocks, on the same resampled prompts.
    """
    asked = [*ranks.values(), frame["draft_rank"].to_numpy()]
    prompts = frame.groupby("prompt_id", sort=False, as_index=False)
    texts = prompts.agg(domain=("domain", "first"), size=("domain", "size"))
    blocks = blocks_by_prompt(frame, gamma, asked)
    table = np.column_stack([blocks, texts["size"]])

    def gain(totals: np.ndarray) -> np.ndarray:
        # a text has as many tokens however it is cut into blocks
        efficiency = divide(totals[..., -1:], totals[..., :-1])
        return efficiency[..., :-1] - efficiency[..., -1:]

    return _by_cause(texts, table, {"gain": gain}, list(ranks))


def gains(frame: pd.DataFrame, members: pd.DataFrame, gamma: int) -> pd.DataFrame:
    """What each class costs: `tokens_gained` if its positions were never rejected (draft_rank 0),
    all else unchanged. Never below 0.
    """
    rank = frame["draft_rank"]
    ranks = {name: np.where(members[name], 0, rank) for name in members}
    return tokens_gained(frame, gamma, ranks)


# ---- which causes --------------------------------------------------------------------------------


def ranking(causes: Estimates, smallest: float) -> pd.DataFrame:
    """The classes that may be causes (NEVER of `found`), of all prompts, by family and gain: index
    cause, family, a column for each quantity, `drawn` (holds `smallest` of the rejections, or the
    most of its family) and `is_cause` (rejected more often than other positions, with its whole
    interval).
    """
    pooled = causes.frame
    table = pooled.pivot(index="cause", columns="quantity", values="estimate")
    table = table.loc[pd.unique(pooled["cause"])].drop(index=NO_CAUSE)
    table.insert(0, "family", table.index.str.split(":").str[0])
    may_be = (table["family"] != "found") | (table.index == NEVER)
    table = table[may_be]
    table = table[table["positions"] > 0]
    excess = pooled[pooled["quantity"] == "excess"]
    low = excess.set_index("cause")["low"]
    top = table.groupby("family")["share"].transform("max")
    large = table["share"].fillna(1) >= smallest
    table["drawn"] = large | (table["share"] == top)
    table["is_cause"] = low[table.index] > 0
    table["family"] = pd.Categorical(table["family"], list(FAMILIES))
    return table.sort_values(["family", "gain"], ascending=[True, False])


def of_family(estimates: Estimates, family: str) -> Estimates:
    """The classes of one family, with the class alone as `name`."""
    frame = estimates.frame
    prefix = f"{family}: "
    frame = frame[frame["cause"].str.startswith(prefix)]
    names = frame["cause"].str.removeprefix(prefix)
    frame = frame.drop(columns="cause")
    frame.insert(0, "name", names)
    return Estimates(frame)


def largest(estimates: Estimates, count: int = 2) -> str:
    """The classes with the largest numbers, as a list; 'none' where no number is defined."""
    top = estimates.frame.nlargest(count, "estimate").dropna(subset="estimate")
    return "none" if top.empty else Estimates(top).listed("name")


def dearest(share: Estimates, gain: Estimates, causes: Sequence[str]) -> str:
    """Which classes of position cost most, as sentences. share, gain: by cause, over all prompts;
    causes: those that are rejected more often than other positions, the most costly first.
    """
    if not len(causes):
        return "no class is rejected significantly more often than other positions."
    first, *others = causes[:2]
    said = (
        f"`{first}` costs most: it has {share.at(cause=first)} of the rejections, and a draft that "
        f"is never wrong there would gain {gain.at(cause=first)} tokens per target pass."
    )
    if others:
        said += f" The next class is {gain.at(cause=others).listed('cause')}."
    return f"{said} A perfect draft would gain {gain.at(cause='every')}."
