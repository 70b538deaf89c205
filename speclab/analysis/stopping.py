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

from dataclasses import dataclass

import numpy as np
import pandas as pd

from speclab.analysis.choose import cross_fitted, fastest
from speclab.cost import Costs
from speclab.score import ratio_of, require
from speclab.show.estimates import stack
from speclab.stats import RESAMPLES, fold_of, jointly

MEASURES = ("confidence", "entropy")  # as in speclab.draft.StopRule, which knows torch
THRESHOLDS = {  # tried in the fit; the first never stops
    "confidence": [round(0.05 * i, 2) for i in range(20)],
    "entropy": [
        np.inf,
        6,
        5,
        4,
        3.5,
        3,
        2.5,
        2,
        1.75,
        1.5,
        1.25,
        1,
        0.75,
        0.5,
        0.25,
        0.1,
    ],
}
FIXED, ORACLE = "best fixed gamma", "oracle"
METHODS = (FIXED, *MEASURES, ORACLE)
COLUMNS = ["prompt_id", "domain", "position", "node", "depth", "rank"]
COLUMNS += ["draft_prob", "draft_entropy", "target_rank"]


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
    rows = nodes[COLUMNS].assign(code=code).sort_values(["code", "position", "node"])
    depth = int(rows["depth"].max())
    _check_chains(rows, depth)
    each = {
        name: rows[name].to_numpy().reshape(-1, depth) for name in rows
    }  # [positions, depth]
    prompt, position = each["code"][:, 0], each["position"][:, 0]
    length = np.bincount(prompt)
    limit = length[:, None] if max_new_tokens is None else max_new_tokens
    if np.any(limit < length[:, None]):
        raise ValueError(
            f"max_new_tokens={limit}: a text has {length.max()} tokens; "
            "give the limit it was recorded with, or more"
        )

    def grid(values: np.ndarray) -> np.ndarray:
        found = np.zeros((len(ids), length.max(), *values.shape[1:]), values.dtype)
        found[prompt, position] = values
        return found

    accepted = (each["target_rank"] == 0).cumprod(axis=1).sum(axis=1)
    left, run = grid(length[prompt] - position), grid(accepted)
    # tokens up to the limit, from each position on
    ahead = limit - np.arange(length.max())
    room = np.minimum(np.where(left > 0, ahead, 0), depth)
    _check_greedy(run, left)
    return Chains(
        prompt_id=np.asarray(ids),
        domain=each["domain"][position == 0, 0],
        left=left,
        room=room,
        run=np.minimum(run, left),
        confidence=grid(each["draft_prob"]),
        entropy=grid(each["draft_entropy"]),
    )


def _check_chains(rows: pd.DataFrame, depth: int) -> None:
    """ValueError unless sorted rows are whole chains at positions 0, 1, … of each prompt."""
    texts = rows.groupby("code")["code"]
    position, level = divmod(texts.cumcount(), depth)
    wrong = (rows["position"] != position) | (texts.transform("size") % depth > 0)
    wrong |= (rows[["node", "depth"]].sub(level + 1, axis=0) != 0).any(axis=1)
    wrong |= rows["rank"] != 0
    if wrong.any():
        raise ValueError(
            f"nodes of prompt {rows.loc[wrong, 'prompt_id'].iloc[0]!r} are not one chain of "
            f"{depth} at every position from 0 on: use a run of kind 'chain', whole prompts"
        )


def _check_greedy(run: np.ndarray, left: np.ndarray) -> None:
    """ValueError if the chains do not hang on greedy text: there a run of r accepted tokens leaves
    one of r - 1 at the next position (half precision may break a tie otherwise here and there).
    """
    broken = (run[:, 1:] < run[:, :-1] - 1) & (left[:, 1:] > 0)
    if broken.sum() > 0.01 * (left > 0).sum():
        raise ValueError(
            "the nodes do not hang on the target's greedy text: "
            "chains need a run at temperature 0"
        )


def fixed(at: Chains, gamma: int) -> Drafts:
    """Always `gamma` tokens (1 to the chains' depth), fewer only where the text's end leaves no
    room.
    """
    assert 1 <= gamma <= at.depth, f"the recorded chains have {at.depth} tokens"
    drafted = np.minimum(at.room, gamma)
    return Drafts(drafted, drafted)


def stopped(at: Chains, measure: str, threshold: float, limit: int) -> Drafts:
    """`speclab.draft.StopRule` on a chain of `limit`: stop before the token whose confidence is
    below, or entropy above, the threshold.
    """
    most = fixed(at, limit).drafted
    going = {
        "confidence": at.confidence >= threshold,
        "entropy": at.entropy <= threshold,
    }[measure]
    drafted = np.minimum(going.cumprod(axis=-1).sum(axis=-1), most)
    return Drafts(drafted, np.minimum(drafted + 1, most))


def oracle(at: Chains, costs: Costs) -> Drafts:
    """The cheapest blocks that a rule which foresees the text can make: dynamic programming from
    each text's end, no rule is cheaper.

    With v = 1 and a draft pass cheaper than a block, it drafts exactly the run that is accepted
    (behind which the bonus token ends a text).
    """
    prompts, longest = at.run.shape
    k = np.arange(at.depth + 1)[:, None]  # tokens to draft
    price = block_cost(costs, k, k)
    # the cheapest cost from each position on
    ahead = np.zeros((prompts, longest + at.depth + 1))
    drafted, everyone = np.zeros((prompts, longest), int), np.arange(prompts)
    for t in range(longest - 1, -1, -1):
        emitted = np.minimum(np.minimum(k, at.run[:, t]) + 1, at.left[:, t])
        cost = price + ahead[everyone, t + emitted]
        value = np.where(k <= at.room[:, t], cost, np.inf)
        drafted[:, t] = value.argmin(axis=0)
        ahead[:, t] = np.where(at.left[:, t] > 0, value.min(axis=0), 0.0)
    return Drafts(drafted, drafted)


# ---- blocks and their cost -----------------------------------------------------------------------


def block_cost(costs: Costs, drafted: np.ndarray, passes: np.ndarray) -> np.ndarray:
    """Target passes that a block costs, elementwise: passes * c + v(drafted + 1) + overhead."""
    verify = np.array([costs.v(k + 1) for k in range(np.max(drafted) + 1)])
    return passes * costs.c() + verify[drafted] + costs.overhead


def _visited(at: Chains, drafts: Drafts) -> np.ndarray:
    """True where a block starts when each emits its accepted tokens and one more, while the text
    lasts; [prompts, longest].
    """
    emitted = np.minimum(np.minimum(at.run, drafts.drafted) + 1, at.left)
    seen, following = np.zeros(emitted.shape, bool), np.zeros(len(emitted), int)
    for t in range(emitted.shape[1]):
        seen[:, t] = (following == t) & (at.left[:, t] > 0)
        following += np.where(seen[:, t], emitted[:, t], 0)
    return seen


def prompt_costs(at: Chains, drafts: Drafts, costs: Costs) -> np.ndarray:
    """Target passes that each text costs under a rule, float64 [prompts]; plain decoding costs as
    many as the text has tokens.
    """
    each = block_cost(costs, drafts.drafted, drafts.passes)
    return np.where(_visited(at, drafts), each, 0.0).sum(axis=1)


def blocks(at: Chains, drafts: Drafts) -> pd.DataFrame:
    """The blocks that a decoder visits, one row each: prompt_id, domain, start, drafted, passes,
    accepted, emitted.
    """
    visited = _visited(at, drafts)
    prompt, start = np.nonzero(visited)
    accepted = np.minimum(at.run, drafts.drafted)
    return pd.DataFrame(
        {
            "prompt_id": at.prompt_id[prompt],
            "domain": at.domain[prompt],
            "start": start,
            "drafted": drafts.drafted[visited],
            "passes": drafts.passes[visited],
            "accepted": accepted[visited],
            "emitted": np.minimum(accepted + 1, at.left)[visited],
        }
    )


def totals(at: Chains, drafts: Drafts, costs: Costs) -> pd.DataFrame:
    """One row a prompt: prompt_id, domain, drafted, passes, accepted, emitted, blocks, cost
    (`prompt_costs`), summed over its blocks.
    """
    walked = blocks(at, drafts).drop(columns="start").assign(blocks=1)
    sums = walked.groupby(["prompt_id", "domain"], sort=False).sum().reset_index()
    return sums.assign(cost=prompt_costs(at, drafts, costs))


# ---- fitted on other prompts ---------------------------------------------------------------------


def candidates(
    at: Chains, costs: Costs, method: str
) -> list[tuple[float, int, Drafts]]:
    """(threshold, limit, drafts) of the rules to choose from: limits from 1 to the depth of the
    chains, thresholds from THRESHOLDS (a fixed gamma is a limit without one: NaN); the oracle is
    the only one of its kind.
    """
    if method == ORACLE:
        return [(np.nan, at.depth, oracle(at, costs))]
    limits = range(1, at.depth + 1)
    if method == FIXED:
        return [(np.nan, limit, fixed(at, limit)) for limit in limits]
    return [
        (threshold, limit, stopped(at, method, threshold, limit))
        for limit in limits
        for threshold in THRESHOLDS[method]
    ]


def _prices(
    at: Chains, costs: Costs, tried: list[tuple[float, int, Drafts]]
) -> np.ndarray:
    """What each text costs under each candidate, [prompts, candidates]."""
    return np.stack([prompt_costs(at, drafts, costs) for *_, drafts in tried], axis=1)


def fitted(
    at: Chains, costs: Costs, method: str, group: np.ndarray
) -> tuple[float, int, Drafts]:
    """(threshold, limit, drafts) of a method that is the fastest on a group of prompts (a mask)."""
    tried = candidates(at, costs, method)
    return tried[fastest(1 / _prices(at, costs, tried)[group].sum(axis=0))]


def compare_rules(at: Chains, costs: Costs, folds: int = 5) -> pd.DataFrame:
    """Every method on every prompt, its setting fitted on the other folds' prompts of the same
    domain (the oracle needs no fit).

    One row a method (METHODS) and prompt: method, prompt_id, domain, fold, threshold, limit, sums
    over its blocks (blocks, drafted, passes, accepted, emitted), and cost in target passes. Speed
    relative to plain decoding is emitted / cost.
    """
    fold, parts = fold_of(at.domain, folds), []
    for method in METHODS:
        tried = candidates(at, costs, method)
        chosen = cross_fitted(_prices(at, costs, tried), at.domain, fold)
        rows = []
        for number in np.unique(chosen):
            threshold, limit, drafts = tried[number]
            judged = totals(at, drafts, costs).assign(method=method, fold=fold)
            rule = judged.assign(threshold=threshold, limit=limit)
            rows.append(rule[chosen == number])
        parts.append(pd.concat(rows).sort_index())
    return pd.concat(parts, ignore_index=True)


def speeds_of_rules(compared: pd.DataFrame, n: int = RESAMPLES) -> pd.DataFrame:
    """Speeds of `compare_rules` with prompt-clustered intervals, all from the same resamples:
    quantity, method, domain, estimate, low, high, n_prompts, note.

    quantity: speed (relative to plain), minus_fixed (paired difference to the best fixed gamma).
    Settings are not fitted anew in a resample.
    """
    asked = {
        method: (compared[compared["method"] == method], ratio_of("emitted", "cost"))
        for method in METHODS
    }
    speed = jointly(asked, n=n)
    gain = {method: speed[method] - speed[FIXED] for method in METHODS[1:]}
    parts = {
        "speed": speed.table(key="method"),
        "minus_fixed": speed.table(gain, "method"),
    }
    return stack(parts, "quantity")
