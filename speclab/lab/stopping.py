"""Draft control at T = 0: how many tokens to draft in each block, by the draft's own confidence.

A run of kind `chain` holds the draft's greedy chain at every position of the target's greedy text,
with the draft's confidence and the target's verdict. So every rule that stops a chain early by its
confidence is replayed exactly, without a model. `chains` reads the run as `starts` (`lab.starts`).
`stopped` plans what a block drafts at each start, in the columns `drafted` (tokens) and
`draft_passes`. `totals` sums the blocks of a decoder with this plan, and `fit_rule` chooses a rule.
NumPy and pandas only. Source of dynamic gamma by a threshold: arXiv:2405.04304.

A chain of k tokens takes k draft passes. A rule that stops before its limit has made one more pass,
whose distribution it did not use.
"""

from itertools import product

import numpy as np
import pandas as pd

from speclab.cost import Costs
from speclab.lab.choose import PROMPT, SUMS, Choice, PromptCosts, fit
from speclab.lab.starts import NEEDED, replay_starts
from speclab.score import require

THRESHOLDS = [round(0.05 * i, 2) for i in range(20)]  # tried in the fit; 0 never stops
FIXED, CONFIDENCE = "best fixed gamma", "confidence"  # methods that are fitted
COLUMNS = [*PROMPT, "position", "node", "depth", "rank", "draft_prob", "target_rank"]


def chains(nodes: pd.DataFrame, max_new_tokens: int) -> pd.DataFrame:
    """The starts of a run of kind `chain` recorded at T = 0, prompts in order of first appearance.
    Further columns: `room`, the most tokens that may be drafted there, and confidence_1, …: by
    depth, the probability of each token of the chain under the draft.

    max_new_tokens: the limit of the replayed decoder, which drafts up to it, past an EOS that it
    cannot foresee. ValueError for missing columns, and for a limit below a text's length.
    """
    code, _ = pd.factorize(require(nodes, COLUMNS, "nodes")["prompt_id"])
    rows = nodes[COLUMNS].assign(code=code).sort_values(["code", "position", "node"])
    depth = int(rows["depth"].max())
    starts = rows.iloc[::depth][[*PROMPT, "position"]].reset_index(drop=True)
    starts = starts.astype({"position": int})
    tokens = starts.groupby("prompt_id", sort=False)["position"].transform("size")
    remaining = tokens - starts["position"]
    longest = remaining.max()
    if max_new_tokens < longest:
        raise ValueError(
            f"max_new_tokens={max_new_tokens}, but a text has {longest} tokens; give the limit of "
            "the recording, or more"
        )
    probability, rank = (rows[name].to_numpy().reshape(-1, depth) for name in COLUMNS[-2:])
    accepted = (rank == 0).cumprod(axis=1).sum(axis=1)
    measured = {f"confidence_{level}": each for level, each in enumerate(probability.T, 1)}
    room = max_new_tokens - starts["position"]
    return starts.assign(
        proposer="draft",
        accepted=np.minimum(accepted, remaining),
        remaining=remaining,
        limit=depth,
        room=np.minimum(room, depth),
        **measured,
    )


def stopped(starts: pd.DataFrame, threshold: float, limit: int) -> pd.DataFrame:
    """`Shape.stop` on a chain of `limit` tokens: stop before a token whose confidence is below the
    threshold.
    """
    most = starts["room"].clip(upper=limit)
    going = starts.filter(regex="^confidence_").to_numpy() >= threshold
    drafted = np.minimum(going.cumprod(axis=1).sum(axis=1), most)
    passes = np.minimum(drafted + 1, most)
    return starts[[*NEEDED, "room"]].assign(drafted=drafted, draft_passes=passes)


def totals(planned: pd.DataFrame, costs: Costs) -> pd.DataFrame:
    """Sums over the blocks that a decoder visits, by prompt_id and domain: emitted, cost (in target
    passes; plain decoding costs one per token), target_passes, draft_passes.

    planned: starts with `drafted` (up to the decoder's limit, past a text's end) and
    `draft_passes`.
    """
    cost = costs.of_chain(planned["drafted"], planned["draft_passes"])
    tried = planned.assign(cost=cost, target_passes=1)
    blocks = replay_starts(tried, planned["drafted"].to_numpy())
    return blocks.groupby(PROMPT, sort=False)[SUMS].sum()


# ---- fitted on other prompts ---------------------------------------------------------------------


def fit_rule(starts: pd.DataFrame, costs: Costs, method: str, folds: int = 5) -> Choice:
    """A method (FIXED or CONFIDENCE) on every prompt. Its rule is fitted on the
    prompts of the same domain in the other folds, and again in every resample (`choose.fit`). The
    `judged` frame also has the threshold (FIXED: 0, so nothing stops) and the limit.
    """
    tables = {}
    limits = range(1, starts["limit"].max() + 1)
    rules = product(limits, [0.0] if method == FIXED else THRESHOLDS)
    for number, (limit, threshold) in enumerate(rules):
        sums = totals(stopped(starts, threshold, limit), costs)
        tables[number] = sums.assign(threshold=threshold, limit=limit)
    return fit(PromptCosts(pd.concat(tables, names=["setting"])), folds=folds)
