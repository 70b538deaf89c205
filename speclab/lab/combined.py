"""A draft and copies together at T = 0: blocks that are copied where enough of the last tokens
occurred before (`speclab.copying`), else drafted as a chain; replayed exactly, without a model.

`add_copies` adds what copying does at each position to the draft's own `starts`; `planned` is then
what a decoder drafts with the shape `chain:GAMMA+lookup:LEAST`, for any gamma and least. With gamma
0 it copies or drafts nothing, with NEVER it never copies. `ways` chooses `least` on other prompts
than the prompts that judge it.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from speclab import copying
from speclab.cost import Costs
from speclab.lab import stopping
from speclab.lab.choose import Choice, PromptCosts, fit
from speclab.lab.starts import NEEDED
from speclab.replay import replay
from speclab.tree import LIMITS

NEVER = copying.LONGEST + 1  # matching tokens that no block has
PASSES = Costs.assumed(0.0)  # a block costs one target pass: speed-ups are tokens per pass
DRAFT = "draft alone"
COPIES = "copies alone"
BOTH = "both"
Tokens = Mapping[str, tuple[Sequence[int], Sequence[int]]]


def add_copies(starts: pd.DataFrame, tokens: Tokens) -> pd.DataFrame:
    """The starts of one proposer (`speclab.lab.starts`) with what copying does there: matched (how
    many of the last tokens occurred before) and copied (how many copied tokens are accepted).

    tokens: of each prompt_id the token ids of its prompt and of its greedy text.
    """
    found = []
    for prompt_id, rows in starts.groupby("prompt_id", sort=False):
        each = copying.replayed(*tokens[prompt_id])
        at = rows["position"]
        matched, copied = (column[at] for column in each)
        found.append(rows.assign(matched=matched, copied=copied))
    return pd.concat(found, ignore_index=True)


def planned(both: pd.DataFrame, gamma: int, least: int, most: int = copying.MOST) -> pd.DataFrame:
    """The starts where a block copies if `least` tokens or more match, else drafts a chain of
    `gamma`, as `stopping.totals` takes them: with is_copied, drafted and draft_passes.

    both: of `add_copies`; most: tokens of a copy, 1 to MOST. Nothing is drafted past a text's end.
    """
    is_copied = both["matched"] >= least
    wanted = np.where(is_copied, most, gamma)
    drafted = both["remaining"].clip(upper=wanted)
    accepted = both["accepted"].mask(is_copied, both["copied"])
    limit = both["limit"].mask(is_copied, copying.MOST)
    draft_passes = drafted.mask(is_copied, 0)
    return both.assign(
        is_copied=is_copied,
        limit=limit,
        accepted=accepted,
        drafted=drafted,
        draft_passes=draft_passes,
    )


def setting(gamma: int, least: int) -> str:
    """The shape that `planned` plans, as `shapes.parse_shape` reads it."""
    if least == NEVER:
        return f"chain:{gamma}"
    return f"chain:{gamma}+lookup:{least}" if gamma else f"lookup:{least}"


def settings_cost(both: pd.DataFrame, gamma: int, costs: Costs = PASSES) -> PromptCosts:
    """What each `least` costs on each prompt, 1 to LONGEST and (with a draft) NEVER, by `setting`.

    With `costs` a copy takes no draft pass, and what the draft reads in its first pass after a
    copy is not charged.
    """
    tables = {}
    for least in range(1, NEVER + (gamma > 0)):
        plan = planned(both, gamma, least)
        tables[setting(gamma, least)] = stopping.totals(plan, costs)
    return PromptCosts(pd.concat(tables, names=["setting"]))


def ways(
    both: pd.DataFrame, gamma: int, costs: Costs = PASSES, folds: int = 5
) -> dict[str, Choice]:
    """The cost of each prompt with a chain alone, with copies alone and with both. For the two
    that copy, the setting of `settings_cost` is fitted on the other folds' prompts of the same
    domain, and again in every resample (`choose.fit`).
    """
    copies = settings_cost(both, 0, costs)
    mixed = settings_cost(both, gamma, costs)
    of_draft = mixed.judged(setting(gamma, NEVER))
    return {
        DRAFT: Choice(of_draft),
        COPIES: fit(copies, folds=folds),
        BOTH: fit(mixed, folds=folds),
    }


def longest_chain(trace: pd.DataFrame) -> int:
    """The largest gamma that can be replayed on a trace: that of `tree.LIMITS`, or the number of
    tokens that were recorded of a head's blocks, if texts are longer.
    """
    most = LIMITS["gamma"][1]
    if "block_ranks" not in trace:
        return most
    recorded = int(trace["block_ranks"].map(len).max())
    return recorded if recorded <= trace["position"].max() else most


def starts_of_trace(trace: pd.DataFrame, proposer: str) -> pd.DataFrame:
    """The starts of a recorded run under its draft, in a chain: the run of draft_rank == 0 from
    each position, `longest_chain` tokens at most; without prompt_tokens, which a trace does not
    hold.

    Exact where `replay` of a chain is: at T = 0, and for the draft's best tokens on sampled text.
    ValueError as in `replay`.
    """
    limit = longest_chain(trace)
    blocks = replay(trace, limit, starts="every").rename(columns={"start": "position"})
    return blocks.assign(proposer=proposer, limit=limit)[NEEDED]
