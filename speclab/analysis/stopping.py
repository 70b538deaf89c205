"""Draft control at T = 0: how many tokens to draft in each block, by the draft's own confidence,
and what a perfect rule would gain.

A run of kind `chain` holds, at every position of the target's greedy text, the draft's own greedy
chain with its confidence and entropy and what the target says of it. So every rule that stops a
chain early is replayed exactly, without a model: `chains` reads the run; `fixed`, `stopped` and
`oracle` say what a rule drafts at each position; `blocks` are those that a decoder with this rule
would make. NumPy and pandas only. Dynamic gamma by a threshold: arXiv:2405.04304.

Cost of a block, in target passes: c per draft pass + v(drafted + 1) + overhead. A chain of k tokens
takes k draft passes; a rule that stops before its limit has made one more, the pass whose
distribution it looked at and refused.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd

from speclab.cost import Costs
from speclab.score import Estimator, divide, require
from speclab.stats import RESAMPLES, by_domain, fold_of

MEASURES = ("confidence", "entropy")  # as in speclab.draft.StopRule, which knows torch
THRESHOLDS = {
    "confidence": (
        0.0,
        *(round(0.05 * i, 2) for i in range(1, 20)),
    ),  # tried in the fit; the first never stops
    "entropy": (
        np.inf,
        6.0,
        5.0,
        4.0,
        3.5,
        3.0,
        2.5,
        2.0,
        1.75,
        1.5,
        1.25,
        1.0,
        0.75,
        0.5,
        0.25,
        0.1,
    ),
}
FIXED, ORACLE = "best fixed gamma", "oracle"
METHODS, QUANTITIES = (FIXED, *MEASURES, ORACLE), ("speed", "minus_fixed", "closed")
COLUMNS = [
    "prompt_id",
    "domain",
    "position",
    "node",
    "depth",
    "rank",
    "draft_prob",
    "draft_entropy",
    "target_rank",
]


@dataclass(frozen=True)
class Chains:
    """The draft's chains at every position of every text; arrays [prompts, longest text] are 0 past
    a text's end.

    left: tokens of the text from here on; room: most tokens that may be drafted; run: leading
    tokens that the target would accept, at most `left`. confidence, entropy (nats): of the
    distribution each token was taken from, float32 [prompts, longest, depth].
    """

    prompt_id: np.ndarray
    domain: np.ndarray
    left: np.ndarray
    room: np.ndarray
    run: np.ndarray
    confidence: np.ndarray
    entropy: np.ndarray

    @property
    def depth(self) -> int:
        """Tokens of the recorded chains: no rule drafts more."""
        return self.confidence.shape[-1]


@dataclass(frozen=True)
class Drafts:
    """What a rule does at each position: tokens `drafted` and draft `passes` made for them, int
    [prompts, longest].
    """

    drafted: np.ndarray
    passes: np.ndarray


def chains(nodes: pd.DataFrame, max_new_tokens: int | None = None) -> Chains:
    """The chains of a run of kind `chain` recorded at T = 0, prompts in order of first appearance.

    max_new_tokens: the limit of the decoder that is to be replayed; it drafts up to this limit,
    past an EOS it cannot foresee. None: nothing is drafted past the text's end, as in `replay`.
    ValueError: columns missing, nodes that are not one chain of the same depth at every position
    from 0 on, text that is not the target's greedy text, a limit below a text's length.
    """
    code, ids = pd.factorize(require(nodes, COLUMNS, "nodes")["prompt_id"])
    order, depth = np.lexsort((nodes["node"], nodes["position"], code)), int(nodes["depth"].max())
    rows = {name: nodes[name].to_numpy()[order] for name in COLUMNS} | {"code": code[order]}
    _check_chains(rows, depth)
    each = {name: values.reshape(-1, depth) for name, values in rows.items()}
    prompt, position = each["code"][:, 0], each["position"][:, 0]
    length = np.bincount(prompt)
    if max_new_tokens is not None and max_new_tokens < length.max():
        raise ValueError(
            f"max_new_tokens={max_new_tokens}: a text has {length.max()} tokens; give the limit it was recorded with, or more"
        )

    def grid(values: np.ndarray) -> np.ndarray:
        found = np.zeros((len(ids), length.max(), *values.shape[1:]), values.dtype)
        found[prompt, position] = values
        return found

    left, run = (
        grid(length[prompt] - position),
        grid((each["target_rank"] == 0).cumprod(axis=1).sum(axis=1)),
    )
    room = np.minimum(left if max_new_tokens is None else grid(max_new_tokens - position), depth)
    _check_greedy(run, left, np.asarray(ids))
    domain = each["domain"][position == 0, 0]
    return Chains(
        np.asarray(ids),
        domain,
        left,
        room,
        np.minimum(run, left),
        grid(each["draft_prob"]),
        grid(each["draft_entropy"]),
    )


def _check_chains(rows: dict[str, np.ndarray], depth: int) -> None:
    """ValueError unless sorted rows are whole chains at positions 0, 1, … of each prompt."""
    first = np.arange(len(code := rows["code"])) - np.searchsorted(
        code, code
    )  # row number within the prompt
    wrong = (
        (rows["position"] != first // depth)
        | (rows["node"] != first % depth + 1)
        | (np.bincount(code) % depth > 0)[code]
    )
    wrong |= (rows["depth"] != rows["node"]) | (rows["rank"] != 0)
    if wrong.any():
        at = ", ".join(
            f"{name} {rows[name][wrong.argmax()]}"
            for name in ("prompt_id", "position", "node", "rank")
        )
        raise ValueError(
            f"nodes are not one chain of {depth} at every position from 0 on ({at}): use a run of kind 'chain', whole prompts"
        )


def _check_greedy(run: np.ndarray, left: np.ndarray, ids: np.ndarray) -> None:
    """ValueError if the chains do not hang on greedy text: there a run of r accepted tokens leaves
    one of r - 1 at the next position.
    """
    broken = (run[:, 1:] < run[:, :-1] - 1) & (left[:, 1:] > 0)
    if (
        broken.sum() > 0.01 * (left > 0).sum()
    ):  # half precision may break a tie otherwise here and there
        raise ValueError(
            f"prompt {ids[broken.any(axis=1).argmax()]!r} is not the target's greedy text; chains need a run at temperature 0"
        )


def _check_limit(at: Chains, name: str, value: int) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | np.integer)
        or not 1 <= value <= at.depth
    ):
        raise ValueError(
            f"{name}={value!r}: allowed are whole numbers from 1 to {at.depth}, the depth of the recorded chains"
        )
    return int(value)


def fixed(at: Chains, gamma: int) -> Drafts:
    """Always `gamma` tokens, fewer only where the text's end leaves no room."""
    drafted = np.minimum(at.room, _check_limit(at, "gamma", gamma))
    return Drafts(drafted, drafted)


def stopped(at: Chains, measure: str, threshold: float, limit: int) -> Drafts:
    """`speclab.draft.StopRule` on a chain of `limit`: stop before the token whose confidence is
    below, or entropy above, the threshold.
    """
    if measure not in MEASURES:
        raise ValueError(f"measure={measure!r}: allowed are {', '.join(MEASURES)}")
    most = np.minimum(at.room, _check_limit(at, "limit", limit))
    going = at.confidence >= threshold if measure == "confidence" else at.entropy <= threshold
    drafted = np.minimum(going.cumprod(axis=-1).sum(axis=-1), most)
    return Drafts(drafted, np.minimum(drafted + 1, most))


def oracle(at: Chains, costs: Costs) -> Drafts:
    """The cheapest blocks that a rule which foresees the text can make: dynamic programming from
    each text's end, no rule is cheaper.

    With v = 1 and a draft pass cheaper than a block, it drafts exactly the run that is accepted
    (behind which the bonus token ends a text).
    """
    prompts, longest = at.run.shape
    price = block_cost(costs, *2 * [np.arange(at.depth + 1)])
    ahead, drafted, everyone = (
        np.zeros((prompts, longest + at.depth + 1)),
        np.zeros((prompts, longest), int),
        np.arange(prompts),
    )
    for t in range(longest - 1, -1, -1):
        k = np.arange(at.depth + 1)[:, None]
        following = t + np.minimum(np.minimum(k, at.run[:, t]) + 1, at.left[:, t])
        value = np.where(k <= at.room[:, t], price[:, None] + ahead[everyone, following], np.inf)
        drafted[:, t], ahead[:, t] = (
            value.argmin(axis=0),
            np.where(at.left[:, t] > 0, value.min(axis=0), 0.0),
        )
    return Drafts(drafted, drafted)


# ---- blocks and their cost -----------------------------------------------------------------------


def block_cost(costs: Costs, drafted: np.ndarray, passes: np.ndarray) -> np.ndarray:
    """Target passes that a block costs, elementwise: passes * c + v(drafted + 1) + overhead."""
    verify = np.array([costs.v(k + 1) for k in range(int(np.max(drafted, initial=0)) + 1)])
    return passes * costs.c() + verify[drafted] + costs.overhead


def _visited(at: Chains, drafts: Drafts) -> np.ndarray:
    """True where a block starts when each emits its accepted tokens and one more, while the text
    lasts; [prompts, longest].
    """
    emitted, length = np.minimum(np.minimum(at.run, drafts.drafted) + 1, at.left), at.left[:, 0]
    seen, place, live = (
        np.zeros(emitted.shape, bool),
        np.zeros(len(length), int),
        np.arange(len(length)),
    )
    while len(live):
        seen[live, place[live]] = True
        place[live] += emitted[live, place[live]]
        live = live[place[live] < length[live]]
    return seen


def prompt_costs(at: Chains, drafts: Drafts, costs: Costs) -> np.ndarray:
    """Target passes that each text costs under a rule, float64 [prompts]; plain decoding costs as
    many as the text has tokens.
    """
    return np.where(
        _visited(at, drafts), block_cost(costs, drafts.drafted, drafts.passes), 0.0
    ).sum(axis=1)


def blocks(at: Chains, drafts: Drafts) -> pd.DataFrame:
    """The blocks that a decoder visits, one row each: prompt_id, domain, start, drafted, passes,
    accepted, emitted.
    """
    prompt, start = np.nonzero(_visited(at, drafts))
    accepted = np.minimum(at.run, drafts.drafted)
    counts = {
        "drafted": drafts.drafted,
        "passes": drafts.passes,
        "accepted": accepted,
        "emitted": np.minimum(accepted + 1, at.left),
    }
    who = {"prompt_id": at.prompt_id[prompt], "domain": at.domain[prompt], "start": start}
    return pd.DataFrame(
        who | {name: values[prompt, start].astype(int) for name, values in counts.items()}
    )


def totals(at: Chains, drafts: Drafts, costs: Costs) -> pd.DataFrame:
    """One row a prompt: prompt_id, domain, drafted, passes, accepted, emitted, blocks, cost
    (`prompt_costs`), summed over its blocks.
    """
    walked = blocks(at, drafts).drop(columns="start").assign(blocks=1)
    return (
        walked.groupby(["prompt_id", "domain"], sort=False)
        .sum()
        .reset_index()
        .assign(cost=prompt_costs(at, drafts, costs))
    )


# ---- fitted on other prompts ---------------------------------------------------------------------


def _candidates(at: Chains, method: str) -> Iterator[tuple[float, int, Drafts]]:
    """(threshold, limit, drafts) of the rules to choose from; a fixed gamma is a limit without a
    threshold (NaN).
    """
    for limit in range(1, at.depth + 1):
        for threshold in THRESHOLDS.get(method, (np.nan,)):
            yield (
                threshold,
                limit,
                fixed(at, limit) if method == FIXED else stopped(at, method, threshold, limit),
            )


def fit(
    at: Chains, costs: Costs, method: str, groups: Sequence[np.ndarray]
) -> list[tuple[float, int, Drafts]]:
    """For each group of prompts (masks or indices) the (threshold, limit, drafts) of a method that
    is fastest on them; the first of equals.

    Fixed gammas and limits run from 1 to the depth of the chains, thresholds through THRESHOLDS.
    """
    tried = list(_candidates(at, method))
    prices = np.stack([prompt_costs(at, drafts, costs) for *_, drafts in tried])
    return [tried[int(prices[:, group].sum(axis=1).argmin())] for group in groups]


def compare(at: Chains, costs: Costs, folds: int = 5, seed: int = 0) -> pd.DataFrame:
    """Every method on every prompt, its setting fitted on the other folds' prompts of the same
    domain (the oracle needs no fit).

    One row a method (METHODS) and prompt: method, prompt_id, domain, fold, threshold, limit, sums
    over its blocks (blocks, drafted, passes, accepted, emitted), and cost in target passes. Speed
    relative to plain decoding is emitted / cost.
    """
    fold, parts = fold_of(at.domain, folds, seed), []
    cells = [(name, number) for name in pd.unique(at.domain) for number in range(folds)]
    for method in METHODS[:-1]:
        chosen = fit(
            at, costs, method, [(at.domain == name) & (fold != number) for name, number in cells]
        )
        for (name, number), (threshold, limit, drafts) in zip(cells, chosen, strict=True):
            judged = totals(at, drafts, costs).assign(
                method=method, fold=fold, threshold=threshold, limit=limit
            )
            parts.append(judged[(at.domain == name) & (fold == number)])
    parts.append(
        totals(at, oracle(at, costs), costs).assign(
            method=ORACLE, fold=fold, threshold=np.nan, limit=at.depth
        )
    )
    return pd.concat(parts, ignore_index=True)


def _quantity(sums: np.ndarray, method: int, name: str) -> np.ndarray:
    """From sums (..., 1 + methods): emitted, then each method's cost.

    speed; minus_fixed; closed (share of the oracle's gap).
    """
    speed = divide(sums[..., :1], sums[..., 1:])
    gain, gap = speed - speed[..., :1], speed[..., -1:] - speed[..., :1]
    value = {
        "speed": speed,
        "minus_fixed": gain,
        "closed": divide(gain, np.where(gap > 1e-9, gap, 0.0)),
    }[name]
    return value[..., method : method + 1]


def intervals(compared: pd.DataFrame, n: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """Speeds of `compare` with prompt-clustered intervals, all from the same resamples: quantity,
    method, domain, estimate, low, high.

    quantity: speed (relative to plain), minus_fixed (paired difference to the best fixed gamma),
    closed (share of the gap from the best fixed gamma to the oracle; NaN where there is no gap).
    Settings are not fitted anew in a resample.
    """
    wide = compared.pivot(
        index=["prompt_id", "domain", "emitted"], columns="method", values="cost"
    ).reset_index()
    parts = []
    for number, method in enumerate(METHODS):
        for name in QUANTITIES[: 1 if method == FIXED else 2 if method == ORACLE else 3]:
            found = Estimator(
                name,
                lambda f: f[["emitted", *METHODS]].to_numpy(np.float64),
                partial(_quantity, method=number, name=name),
            )
            parts.append(
                by_domain(wide, found, n, seed)
                .rename(columns={"estimator": "quantity"})
                .assign(method=method)
            )
    return pd.concat(parts, ignore_index=True)[
        ["quantity", "method", "domain", "estimate", "low", "high", "n_prompts"]
    ]


def dynamic_tree_cost(costs: Costs, depth: int, branches: int, budget: int) -> float:
    """Target passes that a block of a dynamic tree (EAGLE-2's, `speclab.draft.Shape`) costs: a
    root, then levels of width `branches`.
    """
    return costs.c() + (depth - 1) * costs.c(branches) + costs.v(budget + 1) + costs.overhead


def counterfactuals(costs: Costs) -> dict[str, Costs]:
    """The measured costs, and the same with one term of the model made ideal: c = 0, v = 1, o = 0,
    then all three.
    """
    free, flat, none = (
        {"draft": (0.0,) * len(costs.sizes)},
        {"verify": (1.0,) * len(costs.sizes)},
        {"overhead": 0.0},
    )
    changes = {
        "free draft (c = 0)": free,
        "free verification (v = 1)": flat,
        "lean loop (o = 0)": none,
        "all three": free | flat | none,
    }
    return {"as measured": costs} | {
        name: replace(costs, **change) for name, change in changes.items()
    }
