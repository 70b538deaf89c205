"""What causes rejections: every position of greedy text labelled with possible causes, how often
each is met, and what it costs.

A position is *rejected* if the draft's best token is not the target's (draft_rank > 0): a chain
that drafts there is cut there. At T = 0 the text does not depend on what is accepted, so the
question 'what if the draft were never wrong at numbers?' has an exact answer: set draft_rank to 0
there and replay the blocks (`counterfactual`, `gains`). A class of positions is no proof of a
cause, and classes of different families overlap: their gains do not add. Knows no model and no
figure; every interval resamples prompts (`speclab.stats`).
"""

import difflib
import html
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd

from speclab import stats
from speclab.analysis import bins
from speclab.analysis import token_kinds as tokens
from speclab.pictures import MARKS, marked
from speclab.replay import prompt_sums, replay
from speclab.score import POOLED, Estimator, divide, require
from speclab.tree import Tree, check_limit

KINDS = {
    "newline": "white space",
    "space": "white space",
    "word_start": "word start",
    "word_inside": "word inside",
    "special": "end of text",
} | {name: name for name in ("keyword", "identifier", "number", "operator", "punctuation", "other")}
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
REST = (
    "begins: nothing",
    "lookup: no match",
    "since: none yet",
)  # where nothing of the family applies: named as no cause
_EDGES = {
    "since": (1, 2, 4, 8),
    "place": (0, 1, 4, 16, 64),
    "context": (0, 64, 128, 256, 512),
    "found": (1, 2, 3, 5, 9, 65),
}
_BEFORE = 32  # characters before a token that can matter to what it begins
_ENDS, _CLOSERS, _INSIDE = (
    tuple(".!?\N{HORIZONTAL ELLIPSIS}"),
    "\"')]*\N{RIGHT DOUBLE QUOTATION MARK}",
    tuple(",&-/"),
)


def greedy_trace(run) -> pd.DataFrame:
    """The trace of a T = 0 run, prompts and positions in order.

    ValueError for a run at T > 0, an empty trace, or text that is not greedy.

    Where text is sampled, a token that is not the draft's best may still be accepted: draft_rank >
    0 is then no rejection.
    """
    temperature = run.manifest["profile"]["temperature"]
    if temperature > 0:
        raise ValueError(
            f"run was recorded at temperature={temperature:g}: draft_rank > 0 is a rejection at T = 0 only; "
            "use runs.load_or_record(profile, 'greedy')"
        )
    trace = require(
        run.trace, ["prompt_id", "domain", "position", "token", "target_top", "draft_rank"], "trace"
    )
    if other := (trace["token"] != trace["target_top"]).sum():
        raise ValueError(
            f"trace: {other} of {len(trace)} tokens are not target_top, so its text is not greedy: record it at T = 0"
        )
    return trace.sort_values(["prompt_id", "position"], kind="stable", ignore_index=True)


def strings_of(tokenizer) -> list[str]:
    """The text of every token id, white space kept: decoded, or the pieces of a SentencePiece
    vocabulary, whose decoder drops spaces.
    """
    pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    if sum(piece.startswith("\u2581") for piece in pieces) > len(pieces) // 10:
        return tokens.plain(pieces)
    return [tokenizer.decode([token]) for token in range(len(tokenizer))]


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

    strings[id]: the text of token id (`strings_of`); prompt_tokens: each prompt's token ids.
    `sure`: the probability of its own best token from which a model counts as sure; above 0.5 no
    other token can have as much. `ngram`: see `ngram_next`. Raises ValueError for sure outside (0,
    1], a prompt without ids, and whatever `tokens.classify` refuses.
    """
    if not 0 < sure <= 1:
        raise ValueError(
            f"sure={sure!r}: allowed are probabilities above 0, up to 1; above 0.5 no other token can have as much"
        )
    frame = bins.signals(trace)
    frame["rejected"] = (frame["draft_rank"] > 0).astype(float)
    frame["distance"] = distance(frame)
    looked_up = lookup(frame, prompt_tokens, ngram)
    target, draft = frame["p_token"].to_numpy() >= sure, frame["confidence"].to_numpy() >= sure
    kind, begins = _kinds(frame, strings)
    context = frame["position"] + frame["prompt_id"].map(
        {name: len(ids) for name, ids in prompt_tokens.items()}
    )
    labels = {
        "kind": kind,
        "begins": begins,
        "lookup": looked_up,
        "state": np.select(
            [target & draft, target, draft], FAMILIES["state"][:3], FAMILIES["state"][3]
        ),
        "since": _binned(frame["distance"], "since", "none yet"),
        "place": _binned(frame["position"], "place"),
        "context": _binned(context, "context"),
        "found": _binned(frame["draft_rank"], "found"),
    }
    return frame.assign(
        **{name: pd.Categorical(values, FAMILIES[name]) for name, values in labels.items()}
    )


def distance(frame: pd.DataFrame) -> np.ndarray:
    """Positions since the last rejection of the same text, int64 (rows,): 1 = right after one, 0 =
    none yet. Rows in order.
    """
    prompt, row = frame["prompt_id"].to_numpy(), np.arange(len(frame))
    first = np.maximum.accumulate(np.where(np.r_[True, prompt[1:] != prompt[:-1]], row, 0))
    last = np.r_[
        -1, np.maximum.accumulate(np.where(frame["rejected"].to_numpy() > 0, row, -1))[:-1]
    ]
    return np.where(last >= first, row - last, 0)


def ngram_next(sequence: Sequence[int], n: int) -> np.ndarray:
    """What prompt lookup would propose for each token of `sequence`, int64 [len]; -1 = no match.

    For token t the last k tokens before it are looked for earlier in the sequence, k = n first,
    then shorter down to 1; the proposal is the token that followed their most recent occurrence.
    Source: prompt lookup decoding (A. Saxena, 2023).
    """
    if not 1 <= n <= 64:
        raise ValueError(f"n={n!r}: allowed are n-grams of 1 to 64 tokens; 3 is usual")
    followed: dict[
        tuple, int
    ] = {}  # n-grams of every length -> the token after their latest occurrence
    proposed = np.full(len(sequence), -1)
    for t, token in enumerate(sequence):
        grams = [tuple(sequence[t - k : t]) for k in range(min(n, t), 0, -1)]
        proposed[t] = next((followed[gram] for gram in grams if gram in followed), -1)
        followed |= dict.fromkeys(grams, token)
    return proposed


def lookup(
    frame: pd.DataFrame, prompt_tokens: Mapping[str, Sequence[int]], n: int = 3
) -> np.ndarray:
    """A label of the family `lookup` for each row (rows in order): would an n-gram draft over
    prompt and text so far have had the token?
    """
    if absent := sorted(set(frame["prompt_id"]) - set(prompt_tokens)):
        raise ValueError(
            f"prompt_tokens lacks {len(absent)} prompts of the trace, such as {absent[0]!r}: encode the profile's own prompts"
        )
    groups = frame.groupby("prompt_id", sort=False)["token"]
    proposed = np.concatenate(
        [ngram_next([*prompt_tokens[name], *text], n)[-len(text) :] for name, text in groups]
    )
    return np.select(
        [proposed == frame["token"].to_numpy(), proposed >= 0],
        FAMILIES["lookup"][:2],
        FAMILIES["lookup"][2],
    )


def _kinds(frame: pd.DataFrame, strings: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """Labels of `kind` (a capital letter inside a sentence of prose begins a name; 'I' alone is
    none) and of `begins`.
    """
    kind, begins, before = tokens.classify(frame, strings).astype(str).map(KINDS).to_numpy(), [], ""
    for row, (token, position, domain) in enumerate(
        zip(frame["token"], frame["position"], frame["domain"], strict=True)
    ):
        before, core = before if position else "", strings[token].strip()
        seen = core and kind[row] != "end of text"  # what begins something can be seen
        begins.append(_begins(before, position, domain) if seen or not position else "nothing")
        last = before.rstrip()[-1:]
        inside = begins[row] == "nothing" and (last.isalnum() or last in _INSIDE)
        if kind[row] == "word start" and inside and core[0].isupper() and core != "I":
            kind[row] = "name"
        before = (before + strings[token])[-_BEFORE:]
    return kind, begins


def _begins(before: str, position: int, domain: str) -> str:
    if position == 0:
        return "text"
    ended = before.rstrip().rstrip(_CLOSERS).endswith(_ENDS) and domain != "code"
    return "line" if before.rstrip(" \t")[-1:] in ("", "\n") else "sentence" if ended else "nothing"


def _binned(values: pd.Series, family: str, below: str | None = None) -> np.ndarray:
    """The label of FAMILIES whose edge is the last one that a value reaches; `below` under the
    first.
    """
    return np.array([below, *FAMILIES[family]], dtype=object)[
        np.searchsorted(_EDGES[family], values.to_numpy(), side="right")
    ]


def flags(frame: pd.DataFrame) -> pd.DataFrame:
    """Is a row of the class?

    One bool column 'family: class' for each class of FAMILIES, met or not.
    """
    return pd.get_dummies(
        require(frame, list(FAMILIES), "frame")[list(FAMILIES)], prefix_sep=": ", dtype=bool
    )


def pick(members: pd.DataFrame, causes: Iterable[str]) -> np.ndarray:
    """Rows of any of `causes` (columns of `flags`), bool (rows,). ValueError for an unknown class."""
    causes = list(causes)
    for cause in causes:
        if cause not in members:
            near = difflib.get_close_matches(str(cause), members.columns, n=1)
            raise ValueError(
                f"cause {cause!r} is unknown: {f'did you mean {near[0]!r}? ' if near else ''}"
                f"allowed are {', '.join(members)}"
            )
    return members[causes].any(axis=1).to_numpy(bool)


def shares(
    frame: pd.DataFrame, members: pd.DataFrame, n: int = stats.RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """How often each class is met, with intervals: cause, quantity, domain (and all, pooled),
    estimate, low, high.

    quantity: `share` of the rejections that are of the class; `positions`, its share of all
    positions; `excess` = share - positions (above 0: the class is rejected more often than the
    rest); `rate`, the share of its positions that are rejected (1 - hit[1] there). Undefined (NaN)
    where there is no rejection, or no such position.
    """
    size, member, rejected = (
        members.shape[1],
        members.to_numpy(float),
        frame["rejected"].to_numpy()[:, None],
    )
    table = np.concatenate([member * rejected, member, rejected, np.ones_like(rejected)], axis=1)
    values = {
        "share": lambda t: divide(t[..., :size], t[..., -2:-1]),
        "positions": lambda t: divide(t[..., size:-2], t[..., -1:]),
        "rate": lambda t: divide(t[..., :size], t[..., size:-2]),
    }
    values["excess"] = lambda t: values["share"](t) - values["positions"](t)
    parts = [
        _long(frame, table, value, list(members), n, seed).assign(quantity=name)
        for name, value in values.items()
    ]
    return pd.concat(parts, ignore_index=True)


def _long(
    frame: pd.DataFrame, table: np.ndarray, value: Callable, causes: list, n: int, seed: int
) -> pd.DataFrame:
    """`stats.by_domain` of a family of numbers, one a cause."""
    found = stats.by_domain(
        frame, Estimator("cause", lambda _: table, value, scalar=False), n, seed
    )
    found.insert(0, "cause", causes * (len(found) // len(causes)))
    return found.drop(columns=["estimator", "per_prompt"])


def counterfactual(frame: pd.DataFrame, where: np.ndarray) -> pd.DataFrame:
    """The trace as if the draft's best token had been the target's at the rows `where` (bool):
    draft_rank 0 there, all else unchanged.
    """
    return frame.assign(draft_rank=np.where(where, 0, frame["draft_rank"]))


def _blocks(frame: pd.DataFrame, shape: int | Tree) -> np.ndarray:
    """Blocks of each prompt, prompts in order of first appearance."""
    return prompt_sums(replay(frame, shape))["blocks"].to_numpy()


def _gains(
    frame: pd.DataFrame, base: np.ndarray, blocks: Mapping, n: int, seed: int
) -> pd.DataFrame:
    """Emitted / blocks - emitted / base, paired. base: [prompts] or [prompts, causes].

    A text has as many tokens however it is cut.
    """
    texts = (
        frame.groupby("prompt_id", sort=False)
        .agg(domain=("domain", "first"), emitted=("position", "size"))
        .reset_index()
    )
    after = np.column_stack(list(blocks.values()))
    table = np.column_stack(
        [np.broadcast_to(base.reshape(len(base), -1), after.shape), after, texts["emitted"]]
    )
    size = after.shape[1]
    return _long(
        texts,
        table,
        lambda t: divide(t[..., -1:], t[..., size:-1]) - divide(t[..., -1:], t[..., :size]),
        list(blocks),
        n,
        seed,
    )


def gains(
    frame: pd.DataFrame,
    members: pd.DataFrame,
    shape: int | Tree,
    draws: int = 0,
    n: int = stats.RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Tokens per target pass that each class costs: block_efficiency if its positions were never
    rejected, minus block_efficiency.

    shape: gamma of a chain, or a static Tree. Columns cause, quantity, domain (and all, pooled),
    estimate, low, high; both replays are on the same resampled prompts. quantity: `gain`; with
    draws > 0 also `random`, the gain of as many rejections of the same domain picked at random
    (mean of `draws` picks), and `surplus` = gain - random. Never below 0 for a chain; a tree's next
    block may begin worse.
    """
    base, rng = _blocks(frame, shape), np.random.default_rng([seed, 3])
    saved = {
        cause: _blocks(counterfactual(frame, rows.to_numpy()), shape)
        for cause, rows in members.items()
    }
    parts = [_gains(frame, base, saved, n, seed).assign(quantity="gain")]
    if draws:
        picked = {
            cause: np.mean(
                [
                    _blocks(counterfactual(frame, _as_many(frame, rows.to_numpy(), rng)), shape)
                    for _ in range(draws)
                ],
                0,
            )
            for cause, rows in members.items()
        }
        parts.append(_gains(frame, base, picked, n, seed).assign(quantity="random"))
        parts.append(
            _gains(frame, np.column_stack(list(picked.values())), saved, n, seed).assign(
                quantity="surplus"
            )
        )
    return pd.concat(parts, ignore_index=True)


def _as_many(frame: pd.DataFrame, where: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """As many rejected rows as `where` holds, picked at random in each domain: bool (rows,)."""
    picked, rejected = np.zeros(len(frame), bool), frame["rejected"].to_numpy() > 0
    for rows in frame.groupby("domain").indices.values():
        rows = rows[rejected[rows]]
        picked[rng.choice(rows, int(where[rows].sum()), replace=False)] = True
    return picked


def comb(depth: int, width: int) -> Tree:
    """The best path with its siblings: at every depth the `width` best children of the best node,
    depth * width nodes in all.
    """
    level = np.repeat(np.arange(1, check_limit("depth", depth) + 1), check_limit("branches", width))
    parent = np.where(level == 1, 0, (level - 2) * width + 1)
    return Tree(np.r_[-1, parent], np.r_[0, np.tile(np.arange(width), depth)], np.r_[0, level])


def wider(
    frame: pd.DataFrame,
    gamma: int,
    widths: Sequence[int] = (1, 2, 3, 5, 9, 65),
    n: int = stats.RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Tokens per target pass that trees of depth gamma gain on the chain: shape, width, domain (and
    all, pooled), estimate, low, high.

    shape: `siblings` (see `comb`) saves one rejection a block, then its path ends; `full` has
    `width` children at every node, which is the same as a chain whose rejections below that rank
    never happen: the ceiling of its width, whatever its size.
    """
    base, rank = _blocks(frame, gamma), frame["draft_rank"].to_numpy()
    blocks = {
        "siblings": {k: _blocks(frame, comb(gamma, k)) for k in widths},
        "full": {k: _blocks(counterfactual(frame, rank < k), gamma) for k in widths},
    }
    parts = [
        _gains(frame, base, saved, n, seed).rename(columns={"cause": "width"}).assign(shape=shape)
        for shape, saved in blocks.items()
    ]
    return pd.concat(parts, ignore_index=True)


def hazard(
    frame: pd.DataFrame, longest: int = 12, shuffles: int = 20, seed: int = 0
) -> pd.DataFrame:
    """Chance of a rejection by distance since the last one: domain (and pooled), distance,
    estimate, low, high, geometric, shuffled.

    `geometric`: the constant hazard of a geometric distribution of the same mean: rejections over
    positions, of those that follow one in their text. `shuffled`: the mean hazard when each text's
    positions are put in random order: what is left is that some texts are harder than others. A
    distance met in fewer than 5 prompts has no row; without any rejection there is none at all.
    """
    later = frame[frame["distance"] > 0]
    if later.empty:
        return pd.DataFrame(
            columns=["domain", "distance", "estimate", "low", "high", "geometric", "shuffled"]
        )
    found = bins.group_means(later[later["distance"] <= longest], "rejected", "distance", seed=seed)
    rate = {**later.groupby("domain")["rejected"].mean(), POOLED: later["rejected"].mean()}
    rng, prompt, rejected = (
        np.random.default_rng([seed, 4]),
        pd.factorize(frame["prompt_id"])[0],
        frame["rejected"].to_numpy(),
    )
    mixed = (
        frame.assign(rejected=rejected[np.lexsort((rng.random(len(frame)), prompt))])
        for _ in range(shuffles)
    )
    mixed = pd.concat([part.assign(distance=distance(part)) for part in mixed])
    groups = pd.concat([mixed, mixed.assign(domain=POOLED)]).groupby(["domain", "distance"])
    shuffled = groups["rejected"].mean().rename("shuffled").reset_index()
    return found.assign(geometric=found["domain"].map(rate)).merge(
        shuffled, on=["domain", "distance"], how="left"
    )


def met(frame: pd.DataFrame, gamma: int) -> pd.DataFrame:
    """The rejections that a chain of gamma really meets (the others fall where the bonus token
    stands): rows of `frame`, with `kept` draft tokens before it in its block and `lost`, the draft
    tokens more that the block would have kept had this one been right (1..gamma).
    """
    blocks, every = (
        replay(frame, gamma),
        replay(frame, gamma, "every").set_index(["prompt_id", "start"])["accepted"],
    )
    blocks = blocks[blocks["accepted"] < np.minimum(gamma, blocks["remaining"])]
    at = pd.DataFrame(
        {
            "prompt_id": blocks["prompt_id"],
            "position": blocks["start"] + blocks["accepted"],
            "kept": blocks["accepted"],
        }
    )
    after = every.reindex(
        pd.MultiIndex.from_arrays([at["prompt_id"], at["position"] + 1]), fill_value=0
    ).to_numpy()
    return frame.merge(
        at.assign(lost=np.minimum(1 + after, gamma - at["kept"])), on=["prompt_id", "position"]
    )


def worst(frame: pd.DataFrame, gamma: int, count: int = 3) -> pd.DataFrame:
    """The `count` most expensive rejections of each domain, one a text at most: most `lost` first
    (see `met`), among equals those where the target was surest of what the draft thought least
    likely: `shock` = p log(p / q) of the token, its part of KL(p‖q).
    """
    found = met(frame, gamma)
    found["shock"] = found["p_token"] * np.log(
        found["p_token"] / found["q_token"].clip(lower=np.finfo(np.float32).tiny)
    )
    found = found.sort_values(["lost", "shock"], ascending=False, kind="stable").drop_duplicates(
        "prompt_id"
    )
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
    texts = {name: rows.tolist() for name, rows in frame.groupby("prompt_id")["token"]}
    context = [
        "".join(strings[i] for i in (*prompt_tokens[name], *texts[name][:position]))[
            -tail:
        ].replace("\n", MARKS["\n"])
        + "▮"
        for name, position in zip(cases["prompt_id"], cases["position"], strict=True)
    ]
    shown = cases.assign(
        context=context,
        **{name: [marked(strings[i]) for i in cases[name]] for name in ("draft_top", "token")},
    )
    names = {
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
    return shown[list(names)].rename(columns=names)


def as_html(table: pd.DataFrame, digits: int = 3) -> str:
    """`as_text` as HTML: texts escaped, and in code elements so that no page takes a dollar sign
    for the start of a formula.
    """
    shown = dict.fromkeys(
        ("context", "draft proposed", "target wrote"),
        lambda text: f"<code>{html.escape(text)}</code>",
    )
    return table.assign(prompt=table["prompt"].map(html.escape)).to_html(
        escape=False,
        index=False,
        border=0,
        formatters=shown,
        float_format=f"{{:.{digits}f}}".format,
    )
