"""Draft control at T = 0: how many tokens to draft in each block, by the draft's own confidence,
and what a perfect rule would gain.

A run of kind `chain` holds, at every position of the target's greedy text, the draft's own greedy
chain with its confidence and entropy and what the target says of it. So every rule that stops a
chain early is replayed exactly, without a model: `chains` reads the run; `fixed`, `stopped` and
`oracle` say what a rule drafts at each position; `totals` sums the blocks that a decoder with this
rule would make; `fit_rule` chooses a rule. NumPy and pandas only. Dynamic gamma by a threshold:
arXiv:2405.04304.

Cost of a block, in target passes: c per draft pass + v(drafted + 1) + overhead. A chain of k tokens
takes k draft passes; a rule that stops before its limit has made one more, the pass whose
distribution it looked at and refused.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from speclab import starts
from speclab.analysis import choose
from speclab.analysis.choose import PROMPT, Choice, PromptCosts, fastest
from speclab.cost import Costs
from speclab.score import require
from speclab.stats import RESAMPLES

MEASURES = ("confidence", "entropy")  # as in speclab.draft.StopRule, which knows torch
THRESHOLDS = {  # tried in the fit; the first never stops
    "confidence": [round(0.05 * i, 2) for i in range(20)],
    "entropy": [np.inf, 6, 5, 4, 3.5, 3, 2.5, 2, 1.75, 1.5, 1.25, 1, 0.75, 0.5, 0.25, 0.1],
}
FIXED = "best fixed gamma"
ORACLE = "oracle"
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


def chains(nodes: pd.DataFrame, max_new_tokens: int) -> Chains:
    """The chains of a run of kind `chain` recorded at T = 0, prompts in order of first appearance.

    max_new_tokens: the limit of the decoder that is to be replayed; it drafts up to this limit,
    past an EOS it cannot foresee. ValueError: columns missing, nodes that are not one chain of the
    same depth at every position from 0 on, text that is not the target's greedy text, a limit below
    a text's length.
    """
    known = require(nodes, COLUMNS, "nodes")
    code, ids = pd.factorize(known["prompt_id"])
    rows = nodes[COLUMNS].assign(code=code).sort_values(["code", "position", "node"])
    depth = int(rows["depth"].max())
    not_chains = ValueError(
        f"the nodes are not one chain of {depth} at every position from 0 on: use a run of kind "
        "'chain', whole prompts"
    )
    if len(rows) % depth:
        raise not_chains
    each = {name: rows[name].to_numpy().reshape(-1, depth) for name in rows}
    prompt = each["code"][:, 0]
    position = each["position"][:, 0]
    in_order = position == pd.Series(prompt).groupby(prompt).cumcount()
    in_levels = (each["depth"] == np.arange(1, depth + 1)) & (each["rank"] == 0)
    if not (in_order.all() and in_levels.all()):
        raise not_chains
    length = np.bincount(prompt)
    if max_new_tokens < length.max():
        raise ValueError(
            f"max_new_tokens={max_new_tokens}: a text has {length.max()} tokens; "
            "give the limit it was recorded with, or more"
        )

    def grid(values: np.ndarray) -> np.ndarray:
        shape = (len(ids), length.max(), *values.shape[1:])
        found = np.zeros(shape, values.dtype)
        found[prompt, position] = values
        return found

    accepted = (each["target_rank"] == 0).cumprod(axis=1).sum(axis=1)
    left = grid(length[prompt] - position)
    run = grid(accepted)
    # greedy text: a run of r accepted tokens leaves one of r - 1 at the next position (half
    # precision may break a tie otherwise here and there)
    shorter = run[:, 1:] < run[:, :-1] - 1
    broken = shorter & (left[:, 1:] > 0)
    if broken.sum() > 0.01 * len(position):
        raise ValueError(
            "the nodes do not hang on the target's greedy text: chains need a run at temperature 0"
        )
    return Chains(
        prompt_id=np.asarray(ids),
        domain=each["domain"][position == 0, 0],
        left=left,
        room=np.minimum(grid(max_new_tokens - position), depth),
        run=np.minimum(run, left),
        confidence=grid(each["draft_prob"]),
        entropy=grid(each["draft_entropy"]),
    )


def fixed(at: Chains, gamma: int) -> Drafts:
    """Always `gamma` tokens (1 to the chains' depth), fewer only where the limit leaves no room."""
    drafted = np.minimum(at.room, gamma)
    return Drafts(drafted, drafted)


def stopped(at: Chains, measure: str, threshold: float, limit: int) -> Drafts:
    """`speclab.draft.StopRule` on a chain of `limit`: stop before the token whose confidence is
    below, or entropy above, the threshold.
    """
    most = fixed(at, limit).drafted
    going = {"confidence": at.confidence >= threshold, "entropy": at.entropy <= threshold}[measure]
    sure = going.cumprod(axis=-1).sum(axis=-1)
    drafted = np.minimum(sure, most)
    return Drafts(drafted, np.minimum(drafted + 1, most))


def oracle(at: Chains, costs: Costs) -> Drafts:
    """The cheapest blocks that a rule which foresees the text can make: dynamic programming from
    each text's end, no rule is cheaper.

    With v = 1 and a draft pass cheaper than a block, it drafts exactly the run that is accepted
    (behind which the bonus token ends a text).
    """
    prompts, longest = at.run.shape
    k = np.arange(at.depth + 1)[:, None]  # tokens to draft
    price = costs.of_chain(k)
    # the cheapest cost from each position on
    ahead = np.zeros((prompts, longest + at.depth + 1))
    drafted = np.zeros((prompts, longest), int)
    everyone = np.arange(prompts)
    for t in range(longest - 1, -1, -1):
        accepted = np.minimum(k, at.run[:, t])
        emitted = np.minimum(accepted + 1, at.left[:, t])
        cost = price + ahead[everyone, t + emitted]
        value = np.where(k <= at.room[:, t], cost, np.inf)
        drafted[:, t] = value.argmin(axis=0)
        ahead[:, t] = np.where(at.left[:, t] > 0, value.min(axis=0), 0.0)
    return Drafts(drafted, drafted)


# ---- blocks and their cost -----------------------------------------------------------------------


def block_starts(at: Chains, emitted: np.ndarray) -> np.ndarray:
    """True where a block starts when each emits so many tokens, while the text lasts; [prompts,
    longest].
    """
    inside = at.left > 0
    seen = np.zeros(inside.shape, bool)
    seen[inside] = starts.visited(emitted[inside], at.left[inside])
    return seen


def totals(at: Chains, drafts: Drafts, costs: Costs) -> pd.DataFrame:
    """Sums over the blocks that a decoder visits, one row a prompt: prompt_id, domain, blocks,
    drafted, passes, accepted, emitted, and cost in target passes (plain decoding costs as many as
    the text has tokens).
    """
    accepted = np.minimum(at.run, drafts.drafted)
    emitted = np.minimum(accepted + 1, at.left)
    seen = block_starts(at, emitted)
    of_block = {
        "blocks": seen,
        "drafted": drafts.drafted,
        "passes": drafts.passes,
        "accepted": accepted,
        "emitted": emitted,
        "cost": costs.of_chain(drafts.drafted, drafts.passes),
    }
    sums = {name: (seen * each).sum(axis=1) for name, each in of_block.items()}
    return pd.DataFrame({"prompt_id": at.prompt_id, "domain": at.domain} | sums)


# ---- fitted on other prompts ---------------------------------------------------------------------


def candidates(at: Chains, costs: Costs, method: str) -> list[tuple[float, int, Drafts]]:
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


def fitted(at: Chains, costs: Costs, method: str, group: np.ndarray) -> tuple[float, int, Drafts]:
    """(threshold, limit, drafts) of a method that is the fastest on a group of prompts (a mask)."""
    tried = candidates(at, costs, method)
    cost = [totals(at, drafts, costs)["cost"][group].sum() for *_, drafts in tried]
    best = fastest(1 / np.array(cost))
    return tried[best]


def fit_rule(at: Chains, costs: Costs, method: str, folds: int = 5, n: int = RESAMPLES) -> Choice:
    """A method (of METHODS) on every prompt, its rule fitted on the other folds' prompts of the
    same domain and again in every resample: `choose.fit`.

    Its `judged` frame has the threshold, the limit, and the sums of `totals` too.
    """
    tried = candidates(at, costs, method)
    priced = [
        totals(at, drafts, costs).assign(setting=s, threshold=threshold, limit=limit)
        for s, (threshold, limit, drafts) in enumerate(tried)
    ]
    table = pd.concat(priced).set_index(["setting", *PROMPT])
    return choose.fit(PromptCosts(table), folds=folds, n=n)
