"""Notebook 07: what causes rejections: every position of greedy text labelled with possible causes
(`label`), how often each is met (`shares`), and what it costs (`gains`).

A position is *rejected* if the draft's best token is not the target's (draft_rank > 0): a chain
that drafts there is cut there. At T = 0 the text does not depend on what is accepted, so the
question 'what if the draft were never wrong at numbers?' has an exact answer: set draft_rank to 0
there and replay the blocks (`counterfactual`, `gains`). A class of positions is no proof of a
cause, and classes of different families overlap: their gains do not add. Every interval resamples
prompts (`speclab.stats`).
"""

import html
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
import torch

from speclab import stats
from speclab.analysis import bins, loops
from speclab.analysis.token_kinds import BEFORE, token_kinds
from speclab.drafts.lookup import lookup_model
from speclab.replay import blocks_by_prompt, replay
from speclab.score import POOLED, Estimator, divide, quotient, require
from speclab.show import figures
from speclab.show.estimates import (
    NUMBERS,
    Estimates,
    direction,
    stack,
    without_interval,
)
from speclab.show.pictures import MARKS, marked
from speclab.tree import Tree

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
    "since": ("right after", "2-3", "4-7", "8 or more", "none yet"),
    "place": ("0", "1-3", "4-15", "16-63", "64 or more"),
    "context": ("under 64", "64-127", "128-255", "256-511", "512 or more"),
    "found": ("rank 1", "rank 2", "ranks 3-4", "ranks 5-8", "ranks 9-64", "beyond 64"),
}
_EDGES = {
    "since": (1, 2, 4, 8),
    "place": (0, 1, 4, 16, 64),
    "context": (0, 64, 128, 256, 512),
    "found": (1, 2, 3, 5, 9, 65),
}
# where nothing of the family applies: named as no cause
REST = ["begins: nothing", "lookup: no match", "since: none yet"]
COMPARED = [
    "kind",
    "begins",
    "state",
    "lookup",
    "since",
]  # families that are drawn together
_ENDS = tuple(".!?\N{HORIZONTAL ELLIPSIS}")
_CLOSERS = "\"')]*\N{RIGHT DOUBLE QUOTATION MARK}"
_INSIDE = tuple(",&-/")

SHUFFLES = 20
# of each quantity that `top_causes` draws, its panel and mark
_OFTEN, _COST = (
    "share of rejections, of all positions",
    "tokens per pass won, as many at random",
)
DRAWN = {
    "share": (_OFTEN, "the class"),
    "positions": (_OFTEN, "compared with"),
    "gain": (_COST, "the class"),
    "random": (_COST, "compared with"),
}
CASE = {  # columns of `as_text`
    "prompt_id": "prompt",
    "position": "position",
    "context": "context",
    "draft_top": "draft proposed",
    "confidence": "its q",
    "top_p": "its p",
    "token": "target wrote",
    "p_token": "p",
    "q_token": "q",
    "draft_rank": "rank",
    "lost": "lost",
}

MORE_REJECTED = (
    "are rejected more often than other positions:",
    "are rejected less often:",
    "cannot be told apart:",
)
COSTS_MORE = (
    "cost more than as many rejections at random:",
    "cost less:",
    "cannot be told apart:",
)
PROMISE = (
    "more often than its confidence says in",
    "less often than its confidence says in",
    "at a rate that cannot be told apart from what it says in",
)
AFTER_ONE = (
    "more often in",
    "less often in",
    "at a rate that cannot be told apart in",
)


# ---- labels --------------------------------------------------------------------------------------


def greedy_trace(run) -> pd.DataFrame:
    """The trace of a T = 0 run, prompts and positions in order.

    ValueError for a run at T > 0, an empty trace, or text that is not greedy: where text is
    sampled, a token that is not the draft's best may still be accepted.
    """
    temperature = run.manifest["profile"]["temperature"]
    if temperature > 0:
        raise ValueError(
            f"run was recorded at temperature={temperature:g}: draft_rank > 0 is a rejection at "
            "T = 0 only; use runs.load_or_record(profile, 'greedy')"
        )
    trace = require(run.trace, ["token", "target_top", "draft_rank"], "trace")
    other = (trace["token"] != trace["target_top"]).sum()
    if other:
        raise ValueError(
            f"trace: {other} of {len(trace)} tokens are not target_top, so its text is not greedy: "
            "record it at T = 0"
        )
    return sampled_trace(run)


def label(
    trace: pd.DataFrame,
    strings: Sequence[str],
    prompt_tokens: Mapping[str, Sequence[int]],
    sure: float = 0.5,
    ngram: int = 3,
) -> pd.DataFrame:
    """The trace (of `greedy_trace`) with `rejected`, `confidence` (the draft's q of its best
    token), `distance` (see `distance`) and one categorical column for each of FAMILIES (`found` is
    missing where accepted).

    strings[id]: the text of token id (`pictures.strings_of`); prompt_tokens: each prompt's token
    ids. `sure`: the probability of its own best token from which a model counts as sure; above 0.5
    no other token can have as much. `ngram`: the longest run of tokens that prompt lookup looks
    for.
    """
    frame = bins.signals(trace)
    frame["rejected"] = (frame["draft_rank"] > 0).astype(float)
    frame["distance"] = distance(frame)
    target, draft = frame["p_token"] >= sure, frame["confidence"] >= sure
    both, only_target, only_draft, neither = FAMILIES["state"]
    states = [both, only_target, only_draft]
    kind, begins = _kinds(frame, strings)
    given = [len(prompt_tokens[name]) for name in frame["prompt_id"]]
    labels = {
        "kind": kind,
        "begins": begins,
        "state": np.select([target & draft, target, draft], states, neither),
        "lookup": lookup(frame, prompt_tokens, ngram),
        "since": _binned(frame["distance"], "since", "none yet"),
        "place": _binned(frame["position"], "place"),
        "context": _binned(frame["position"] + given, "context"),
        "found": _binned(frame["draft_rank"], "found"),
    }
    for name, values in labels.items():
        frame[name] = pd.Categorical(values, FAMILIES[name])
    return frame


def distance(frame: pd.DataFrame) -> np.ndarray:
    """Positions since the last rejection of the same text, int64 (rows,): 1 = right after one, 0 =
    none yet. Rows in order.
    """
    row = pd.Series(np.arange(len(frame)), frame.index)
    last = row.where(frame["rejected"] > 0).groupby(frame["prompt_id"])
    before = last.ffill().groupby(frame["prompt_id"]).shift()
    return (row - before).fillna(0).to_numpy(np.int64)


def lookup(
    frame: pd.DataFrame, prompt_tokens: Mapping[str, Sequence[int]], longest: int = 3
) -> np.ndarray:
    """A label of the family `lookup` for each row (rows in order): would prompt lookup over prompt
    and text so far have had the token?
    """
    labels = []
    for name, text in frame.groupby("prompt_id", sort=False)["token"]:
        sequence = torch.tensor([[*prompt_tokens[name], *text]])
        model = lookup_model(int(sequence.max()) + 1, longest, candidates=1)
        states = model.forward(sequence, model.cache())[0].numpy()
        proposed = states[
            -len(text) - 1 : -1, 0
        ]  # a state holds the proposal for the next token
        right, any_match = proposed == text.to_numpy(), proposed >= 0
        labels.append(np.select([right, any_match], ["right", "wrong"], "no match"))
    return np.concatenate(labels)


def _kinds(frame: pd.DataFrame, strings: Sequence[str]) -> tuple[list[str], list[str]]:
    """Labels of `kind` (a capital letter inside a sentence of prose begins a name; 'I' alone is
    none) and of `begins`.
    """
    kinds, begins = list(token_kinds(frame, strings)), []
    rows = zip(frame["token"], frame["position"], frame["domain"], strict=True)
    before = ""
    for row, (token, position, domain) in enumerate(rows):
        before, text = before if position else "", strings[token]
        core = text.strip()
        seen = core and kinds[row] != "end of text"
        begun = _begins(before, domain) if seen and position else "nothing"
        begins.append(begun if position else "text")
        last = before.rstrip()[-1:]
        inside = begun == "nothing" and (last.isalnum() or last in _INSIDE)
        if kinds[row] == "word start" and inside and core[0].isupper() and core != "I":
            kinds[row] = "name"
        before = (before + text)[-BEFORE:]
    return kinds, begins


def _begins(before: str, domain: str) -> str:
    """What a token that can be seen is the first of."""
    if before.rstrip(" \t")[-1:] in ("", "\n"):
        return "line"
    ended = before.rstrip().rstrip(_CLOSERS).endswith(_ENDS)
    return "sentence" if ended and domain != "code" else "nothing"


def _binned(values: pd.Series, family: str, below: str | None = None) -> np.ndarray:
    """The label of FAMILIES whose edge is the last one that a value reaches; `below` under the
    first.
    """
    labels = np.array([below, *FAMILIES[family]], dtype=object)
    return labels[np.searchsorted(_EDGES[family], values.to_numpy(), side="right")]


def flags(frame: pd.DataFrame) -> pd.DataFrame:
    """Is a row of the class? One bool column 'family: class' for each of FAMILIES, met or not."""
    return pd.get_dummies(frame[list(FAMILIES)], prefix_sep=": ", dtype=bool)


# ---- how often -----------------------------------------------------------------------------------


def shares(frame: pd.DataFrame, members: pd.DataFrame) -> pd.DataFrame:
    """How often each class is met: cause, domain (and all, pooled), estimate, low, high, n_prompts,
    quantity.

    quantity: `share` of the rejections that are of the class; `positions`, its share of all
    positions; `rate`, the share of its positions that are rejected (1 - hit[1] there); `excess` =
    share - positions (above 0: the class is rejected more often than the rest). Undefined (NaN)
    where there is no rejection, or no such position.
    """
    size = members.shape[1]
    member, rejected = members.to_numpy(float), frame["rejected"].to_numpy()[:, None]
    table = np.hstack([member * rejected, member, rejected, np.ones_like(rejected)])

    def value(totals: np.ndarray) -> list[np.ndarray]:
        of_class, positions = totals[..., :size], totals[..., size:-2]
        share = divide(of_class, totals[..., -2:-1])
        expected = divide(positions, totals[..., -1:])
        return [share, expected, divide(of_class, positions), share - expected]

    quantities = ["share", "positions", "rate", "excess"]
    return _by_cause(frame, table, value, list(members), quantities)


def _by_cause(
    frame: pd.DataFrame,
    table: np.ndarray,
    value: Callable[[np.ndarray], list[np.ndarray]],
    causes: list,
    quantities: list[str],
) -> pd.DataFrame:
    """`stats.by_domain` of several quantities of every cause. `table` (rows, k) is summed; of the
    sums `value` makes one array (..., causes) a quantity.
    """
    family = Estimator(
        "cause",
        lambda _: table,
        lambda totals: np.concatenate(value(totals), -1),
        scalar=False,
    )
    found = stats.by_domain(frame, family)[["domain", *NUMBERS, "n_prompts"]]
    domains = pd.unique(found["domain"])
    keys = pd.MultiIndex.from_product([domains, range(len(quantities)), causes])
    found.insert(0, "cause", keys.get_level_values(2))
    found["quantity"] = keys.get_level_values(1)
    found = found.sort_values("quantity", kind="stable", ignore_index=True)
    names = [quantities[place] for place in found["quantity"]]
    return found.assign(quantity=names).astype({"quantity": object})


# ---- what it costs -------------------------------------------------------------------------------


def counterfactual(frame: pd.DataFrame, where: np.ndarray) -> pd.DataFrame:
    """The trace as if the draft's best token had been the target's at the rows `where` (bool):
    draft_rank 0 there, all else unchanged.
    """
    return frame.assign(draft_rank=np.where(where, 0, frame["draft_rank"]))


def gains(
    frame: pd.DataFrame, members: pd.DataFrame, shape: int | Tree, draws: int = 0
) -> pd.DataFrame:
    """Tokens per target pass that each class costs: block_efficiency if its positions were never
    rejected, minus block_efficiency.

    shape: gamma of a chain, or a static Tree. Columns as of `shares`; both replays are on the same
    resampled prompts. quantity: `gain`; with draws > 0 also `random`, the gain of as many
    rejections of the same domain picked at random (mean of `draws` picks), and `surplus` = gain -
    random. Never below 0 for a chain; a tree's next block may begin worse.
    """
    rng, rank = np.random.default_rng([0, 3]), frame["draft_rank"].to_numpy()
    domains = list(frame.groupby("domain").indices.values())
    never = []  # rows that are taken never to have been rejected
    for name in members:
        where = members[name].to_numpy()
        picks = [_as_many(rank > 0, where, domains, rng) for _ in range(draws)]
        never += [where, *picks]
    ranks = [np.where(rows, 0, rank) for rows in never]
    counts = blocks_by_prompt(frame, shape, ranks)
    counts = counts.reshape(len(counts), -1, 1 + draws)
    blocks = {"gain": counts[..., 0]}
    if draws:
        blocks["random"] = counts[..., 1:].mean(axis=2)
    return _gained(frame, shape, blocks, list(members))


def _blocks(frame: pd.DataFrame, shape: int | Tree) -> np.ndarray:
    """Blocks of each prompt, prompts in order of first appearance."""
    return blocks_by_prompt(frame, shape, [frame["draft_rank"].to_numpy()])[:, 0]


def _gained(
    frame: pd.DataFrame,
    shape: int | Tree,
    blocks: Mapping[str, np.ndarray],
    causes: list,
) -> pd.DataFrame:
    """Emitted / blocks - emitted / blocks now, paired, for each of `blocks` [prompts, causes]; and
    `surplus`, gain - random, where both are there. A text has as many tokens however it is cut.
    """
    texts = frame.groupby("prompt_id", sort=False, as_index=False).agg(
        domain=("domain", "first"), size=("domain", "size")
    )
    table = np.column_stack([*blocks.values(), _blocks(frame, shape), texts["size"]])
    quantities = [*blocks, *(["surplus"] if "random" in blocks else [])]

    def value(totals: np.ndarray) -> list[np.ndarray]:
        efficiency = divide(totals[..., -1:], totals[..., :-1])
        after = np.split(efficiency[..., :-1], len(blocks), axis=-1)
        gained = [each - efficiency[..., -1:] for each in after]
        return [*gained, after[0] - after[1]] if "random" in blocks else gained

    return _by_cause(texts, table, value, causes, quantities)


def _as_many(
    rejected: np.ndarray,
    where: np.ndarray,
    domains: Sequence[np.ndarray],
    rng: np.random.Generator,
) -> np.ndarray:
    """As many rejected rows as `where` holds, picked at random in each domain (its row numbers):
    bool (rows,).
    """
    picked = np.zeros(len(rejected), bool)
    for own in domains:
        rows = own[rejected[own]]
        picked[rng.choice(rows, int(where[rows].sum()), replace=False)] = True
    return picked


def comb(depth: int, width: int) -> Tree:
    """The best path with its siblings: at every depth the `width` best children of the best node,
    depth * width nodes in all.
    """
    level = np.repeat(np.arange(1, depth + 1), width)
    parent = np.where(level == 1, 0, (level - 2) * width + 1)
    rank = np.tile(np.arange(width), depth)
    return Tree(np.r_[-1, parent], np.r_[0, rank], np.r_[0, level])


def wider(
    frame: pd.DataFrame, gamma: int, widths: Sequence[int] = (1, 2, 3, 5, 9, 65)
) -> Estimates:
    """Tokens per target pass that trees of depth gamma gain on the chain: width, domain (and all,
    pooled), estimate, low, high, n_prompts, shape.

    shape: `siblings` (see `comb`) saves one rejection a block, then its path ends; `full` has
    `width` children at every node, which is the same as a chain whose rejections below that rank
    never happen: the ceiling of its width, whatever its size.
    """
    rank = frame["draft_rank"].to_numpy()
    siblings = [_blocks(frame, comb(gamma, width)) for width in widths]
    never = [np.where(rank < width, 0, rank) for width in widths]
    blocks = {
        "siblings": np.array(siblings).T,
        "full": blocks_by_prompt(frame, gamma, never),
    }
    found = _gained(frame, gamma, blocks, list(widths))
    return Estimates(found.rename(columns={"cause": "width", "quantity": "shape"}))


# ---- which causes --------------------------------------------------------------------------------


def causes_of(
    often: pd.DataFrame, chain: pd.DataFrame, tree: pd.DataFrame
) -> Estimates:
    """`shares` and `gains` (of a chain, of a tree) as one table: cause, domain, estimate, low,
    high, n_prompts, quantity.
    """
    tree = tree.assign(quantity="gain, tree")
    return Estimates(pd.concat([often, chain, tree], ignore_index=True))


def overview(causes: Estimates) -> pd.DataFrame:
    """The classes that are met, over all domains: a column for each quantity but differences;
    `since` is not compared with random.
    """
    pooled = causes.at(domain=POOLED)
    absent = pooled.at(quantity="positions").frame.query("estimate == 0")["cause"]
    shown = pooled.without(quantity=["excess", "surplus"]).without(cause=list(absent))
    since = shown.frame["cause"].str.startswith("since")
    kept = shown.frame[~since | (shown.frame["quantity"] != "random")]
    return Estimates(kept).wide("cause", "quantity").fillna("")


def ranking(causes: Estimates, smallest: float) -> pd.DataFrame:
    """The classes of COMPARED, by family and gain: index cause, family, a column for each quantity,
    `drawn` (holds `smallest` of the rejections, or the most of its family), `tested` (all but
    `since`) and `is_cause` (tested, and rejected more often than other positions, with its whole
    interval).
    """
    pooled = causes.at(domain=POOLED).frame
    table = pooled.pivot(index="cause", columns="quantity", values="estimate")
    table = table.loc[pd.unique(pooled["cause"])]
    table.insert(0, "family", table.index.str.split(":").str[0])
    table = table[table["family"].isin(COMPARED)].drop(index=REST)
    low = pooled[pooled["quantity"] == "excess"].set_index("cause")["low"]
    top = table.groupby("family")["share"].transform("max")
    table["drawn"] = (table["share"].fillna(1) >= smallest) | (table["share"] == top)
    table["tested"] = table["family"] != "since"
    table["is_cause"] = table["tested"] & (low[table.index] > 0)
    table["family"] = pd.Categorical(table["family"], COMPARED, ordered=True)
    return table.sort_values(["family", "gain"], ascending=[True, False])


def dearest(ranking: pd.DataFrame) -> pd.DataFrame:
    """The causes by what they cost, the dearest first; where there is no cause, the classes that
    are tested.
    """
    tested = ranking[ranking["tested"]]
    chosen = tested[tested["is_cause"]] if tested["is_cause"].any() else tested
    return chosen.sort_values("gain", ascending=False)


def two_of_two_families(ranking: pd.DataFrame) -> list[str]:
    """The dearest class and the dearest of another family, causes first."""
    tested = ranking[ranking["tested"]]
    first = tested.sort_values(["is_cause", "gain"], ascending=False)
    return list(first.drop_duplicates("family").index[:2])


def largest(estimates: Estimates) -> str:
    """The class of the largest number, and those whose intervals overlap with its own."""
    known = estimates.defined().frame.sort_values("estimate", ascending=False)
    near = known[known["high"] >= known["low"].head(1).sum()]
    said = Estimates(near).listed("cause") if len(near) else "undefined"
    return f"{said} (not to be told apart)" if len(near) > 1 else said


def top_causes(causes: Estimates, ranking: pd.DataFrame) -> Estimates:
    """What is drawn of the classes: share of the rejections beside share of all positions, gain
    beside that of as many rejections at random; a star marks a cause.
    """
    drawn = ranking[ranking["drawn"]]
    rows = causes.at(domain=POOLED, quantity=list(DRAWN)).frame.set_index("cause")
    rows = rows.loc[drawn.index].join(drawn[["tested", "is_cause"]]).reset_index()
    rows = rows[rows["tested"] | (rows["quantity"] != "random")]
    looks = pd.DataFrame([DRAWN[name] for name in rows["quantity"]], rows.index)
    rows = rows.assign(panel=looks[0], mark=looks[1])
    star = rows["is_cause"].map({True: " *", False: ""})
    return Estimates(rows.assign(cause=rows["cause"] + star))


def of_family(estimates: Estimates, family: str) -> Estimates:
    """The classes of one family, with the class alone as `name`."""
    frame = estimates.frame[estimates.frame["cause"].str.startswith(f"{family}: ")]
    names = frame["cause"].str.removeprefix(f"{family}: ")
    return Estimates(frame.assign(name=names))


def rejected_by(frame: pd.DataFrame, family: str) -> Estimates:
    """Share rejected of each class of a family that is met, by domain, classes in order."""
    found = bins.group_means(frame, "rejected", family).without(domain=POOLED).frame
    return Estimates(found.sort_values(family, kind="stable"))


# ---- who was sure --------------------------------------------------------------------------------


def promises(frame: pd.DataFrame) -> Estimates:
    """Of the positions of each state: share `rejected`, what the draft's confidence `promised` (1 -
    q), and their `gap`: what, domain, state, estimate, low, high.
    """
    promised = 1 - frame["confidence"]
    frame = frame.assign(promised=promised, gap=frame["rejected"] - promised)
    names = ("rejected", "promised", "gap")
    parts = {name: bins.group_means(frame, name, "state") for name in names}
    return Estimates.stacked(parts, "what")


def who_was_sure(frame: pd.DataFrame, sure: float) -> figures.Figure:
    """Each rejection by what the two models gave their own best tokens."""
    missed = frame[frame["rejected"] > 0]
    figure, axes = figures.subplots(width=figures.ONE_COLUMN, height=3)
    axes.plot(
        missed["confidence"], missed["p_token"], ".", color="#444444", alpha=0.35, ms=2
    )
    for line in (axes.axvline, axes.axhline):
        line(sure, color="black", linewidth=0.8)
    axes.set(
        xlabel="draft's q of its own best token",
        ylabel="target's p of its own best token",
        xlim=(0, 1),
        ylim=(0, 1),
    )
    return figure


# ---- bursts --------------------------------------------------------------------------------------


def hazard(frame: pd.DataFrame, longest: int) -> Estimates:
    """Chance of a rejection by distance since the last one: domain (and pooled), distance,
    estimate, low, high, rows, n_prompts, geometric, shuffled.

    `geometric`: the constant hazard of a geometric distribution of the same mean: rejections over
    positions, of those that follow one in their text. `shuffled`: the mean hazard when each text's
    positions are put in random order (SHUFFLES times): what is left is that some texts are harder
    than others. A distance met in fewer than 5 prompts has no row. ValueError without any
    rejection.
    """
    later = frame[frame["distance"] > 0]
    near = later[later["distance"] <= longest]
    found = bins.group_means(near, "rejected", "distance").frame
    rate = _with_pooled(later).groupby("domain")["rejected"].mean()
    found["geometric"] = found["domain"].map(rate)

    rng, prompt = np.random.default_rng([0, 4]), pd.factorize(frame["prompt_id"])[0]
    parts = []
    for _ in range(SHUFFLES):
        order = np.lexsort((rng.random(len(frame)), prompt))
        mixed = frame.assign(rejected=frame["rejected"].to_numpy()[order])
        parts.append(mixed.assign(distance=distance(mixed)))
    both = _with_pooled(pd.concat(parts)).groupby(["domain", "distance"])["rejected"]
    return Estimates(found.join(both.mean().rename("shuffled"), ["domain", "distance"]))


def _with_pooled(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows, and once more under the domain `pooled`."""
    return pd.concat([frame, frame.assign(domain=POOLED)])


def hazard_lines(hazard: Estimates) -> Estimates:
    """What was measured, and the two references without their own intervals, by domain."""
    measured = hazard.without(domain=POOLED).frame
    lines = {
        "measured": measured,
        "texts shuffled": without_interval(measured, measured["shuffled"]),
        "geometric, same mean": without_interval(measured, measured["geometric"]),
    }
    return Estimates.stacked(lines, "line")


def after_one(hazard: Estimates, reference: str) -> Estimates:
    """The hazard right after a rejection less that of a reference column, by domain and pooled."""
    frame = hazard.at(distance=1).frame
    frame[NUMBERS] = frame[NUMBERS].sub(frame[reference], axis=0)
    return Estimates(frame)


# ---- single cases --------------------------------------------------------------------------------


def met(frame: pd.DataFrame, gamma: int) -> pd.DataFrame:
    """The rejections that a chain of gamma really meets (the others fall where the bonus token
    stands): rows of `frame`, with `kept` draft tokens before it in its block and `lost`, the draft
    tokens more that the block would have kept had this one been right (1..gamma).
    """
    blocks = replay(frame, gamma)
    cut = blocks[blocks["accepted"] < np.minimum(gamma, blocks["remaining"])]
    at = cut[["prompt_id"]].assign(
        position=cut["start"] + cut["accepted"], kept=cut["accepted"]
    )
    every = replay(frame, gamma, "every").set_index(["prompt_id", "start"])["accepted"]
    behind = pd.MultiIndex.from_arrays([at["prompt_id"], at["position"] + 1])
    after = every.reindex(behind, fill_value=0).to_numpy()
    at["lost"] = np.minimum(1 + after, gamma - at["kept"])
    return frame.merge(at, on=["prompt_id", "position"])


def worst(frame: pd.DataFrame, gamma: int, count: int = 3) -> pd.DataFrame:
    """The `count` most expensive rejections of each domain, one a text at most: most `lost` first
    (see `met`), among equals those where the target was surest of what the draft thought least
    likely: `shock` = p log(p / q) of the token, its part of KL(p‖q).
    """
    found = met(frame, gamma)
    ratio = found["p_token"] / found["q_token"].clip(np.finfo(np.float32).tiny)
    found["shock"] = found["p_token"] * np.log(ratio)
    found = found.sort_values(["lost", "shock"], ascending=False, kind="stable")
    found = found.drop_duplicates("prompt_id")
    return found.groupby("domain", sort=False).head(count).reset_index(drop=True)


def as_text(
    cases: pd.DataFrame,
    frame: pd.DataFrame,
    strings: Sequence[str],
    prompt_tokens: Mapping[str, Sequence[int]],
    tail: int = 80,
) -> pd.DataFrame:
    """`worst` as a table of texts: the last `tail` characters of the context, its end marked ▮, the
    two tokens, p, q and rank.
    """
    texts, contexts = frame.groupby("prompt_id")["token"].agg(list), []
    for name, position in zip(cases["prompt_id"], cases["position"], strict=True):
        tokens = [*prompt_tokens[name], *texts[name][:position]]
        text = "".join(strings[token] for token in tokens)[-tail:]
        contexts.append(text.replace("\n", MARKS["\n"]) + "▮")
    draft, target = (
        [marked(strings[token]) for token in cases[name]]
        for name in ("draft_top", "token")
    )
    shown = cases.assign(context=contexts, draft_top=draft, token=target)
    return shown[[*CASE]].rename(columns=CASE)


def cases_as_html(table: pd.DataFrame) -> str:
    """`as_text` as HTML: texts escaped, and in code elements so that no page takes a dollar sign
    for the start of a formula.
    """
    shown = table.assign(prompt=table["prompt"].map(html.escape))
    for name in ("context", "draft proposed", "target wrote"):
        shown[name] = "<code>" + table[name].map(html.escape) + "</code>"
    return shown.to_html(
        escape=False, index=False, border=0, float_format="{:.3f}".format
    )


# ---- loops ---------------------------------------------------------------------------------------


def sampled_trace(run) -> pd.DataFrame:
    """The trace of a T > 0 run, prompts and positions in order. `label` then says where the draft's
    best token is not the one that was sampled: rejected by the point-mass rule. Its `state` has no
    meaning there: p_token is no longer p of the target's best token.
    """
    return run.trace.sort_values(
        ["prompt_id", "position"], kind="stable", ignore_index=True
    )


def in_loops(frame: pd.DataFrame, gamma: int, draws: int) -> Estimates:
    """`shares` and `gains` of one class, the positions that repeat (`loops.repeats`)."""
    member = loops.repeats(frame).to_frame("in a loop")
    parts = [shares(frame, member), gains(frame, member, gamma, draws)]
    return Estimates(pd.concat(parts, ignore_index=True))


def in_loops_said(found: Estimates) -> str:
    """What the positions in loops hold and cost, in words, from `in_loops`."""
    pooled = found.at(domain=POOLED)
    of = dict(pooled.groups("quantity"))
    excess = next(of["excess"].rows())
    often = direction(
        excess,
        "more often than",
        "less often than",
        "at a rate that cannot be told apart from that of",
    )
    return (
        f"Positions in a loop are {of['positions']} of all positions and hold {of['share']} of the "
        f"rejections: they are rejected {often} the others. A draft that was never wrong there "
        f"would gain {of['gain']} tokens per target pass; as many rejections at random, "
        f"{of['random']}."
    )


def gains_outside(
    frame: pd.DataFrame, members: pd.DataFrame, gamma: int
) -> pd.DataFrame:
    """`gains` of a chain, counted over the blocks whose first token lies outside loops, in both
    replays. May be below 0: with fewer rejections other blocks begin there.
    """
    replays = [counterfactual(frame, members[name]) for name in members] + [frame]
    sums = [loops.outside_sums(one, [gamma]) for one in replays]
    table = np.column_stack([one[n] for n in ("emitted", "blocks") for one in sums])

    def value(totals: np.ndarray) -> list[np.ndarray]:
        per_pass = quotient(totals)
        return [per_pass[..., :-1] - per_pass[..., -1:]]

    return _by_cause(sums[-1], table, value, list(members), ["gain"])


def causes_beside_loops(
    causes: Estimates,
    frame: pd.DataFrame,
    drawn: pd.DataFrame,
    classes: Sequence[str],
    gamma: int,
) -> Estimates:
    """`share` and `gain` of some classes in the whole greedy texts (from `causes_of`), outside
    loops there (`gains_outside`), and in the sampled texts (`label` of `sampled_trace`; the classes
    of `state` are left out): quantity, text, cause, domain, estimate, low, high, n_prompts.
    """
    out, members = ~loops.repeats(frame), flags(frame)[list(classes)]
    there = [name for name in classes if not name.startswith("state: ")]
    sampled = flags(drawn)[there]
    parts = {
        (loops.WHOLE, 0): causes.at(cause=list(classes)).frame,
        (loops.OUTSIDE, 0): shares(frame[out], members[out]),
        (loops.OUTSIDE, 1): gains_outside(frame, members, gamma),
        (loops.SAMPLED, 0): shares(drawn, sampled),
        (loops.SAMPLED, 1): gains(drawn, sampled, gamma),
    }
    rows = stack(parts, ["text", "part"])
    keys = ["quantity", "text", "cause", "domain", *NUMBERS, "n_prompts"]
    return Estimates(rows[keys]).at(quantity=["share", "gain"])


def largest_by_text(found: Estimates, classes: Sequence[str]) -> str:
    """`largest` of some classes in each text, in words."""
    some = found.at(cause=list(classes))
    return "; ".join(f"{text}: {largest(part)}" for text, part in some.groups("text"))


# ---- verdict -------------------------------------------------------------------------------------


def cost_verdict(causes: Estimates, ranking: pd.DataFrame) -> str:
    """Which cause costs most, and whether more than as many rejections at random; or that no cause
    can be named.
    """
    if not ranking["is_cause"].any():
        return "No class is rejected more often than other positions: no cause can be named."
    order = list(dearest(ranking).index)
    pooled = causes.at(domain=POOLED)
    surplus = pooled.at(cause=order[0], quantity="surplus")
    far = surplus.sentence(
        "more than", "less than", "not to be told apart from", names="domain"
    )
    return (
        "The cause that costs most, in tokens per target pass, is "
        f"{largest(pooled.at(cause=order, quantity='gain'))}; that is "
        f"{far.removesuffix(' ' + POOLED)} what as many rejections at random cost."
    )
