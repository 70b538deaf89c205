"""Replay: the blocks that a speculative decoder would have made of a recorded text, without running
a model.

A lossless decoder emits exactly the target's own text, so the trace (one row per position) decides
what every shape of draft accepts:

* `replay` walks a chain or any static rank-indexed tree with the draft ranks of the target's own
  tokens. Exact at T = 0, and at T > 0 for deterministic children under the point-mass rule (there a
  token of the sampled text is accepted iff it is among the children).
* `replay_sampled` is the sampled chain (rejection rule, T > 0). Given the text y, position j of a
  block is accepted with probability min(1, q(y_j)/p(y_j)) and otherwise y_j is the recovered token,
  so that P(L >= i) = E_{y~p} prod_{j<=i} min(1, q/p) (Leviathan et al., arXiv:2211.17192), and the
  starts of the blocks within a text are a Markov chain whose visiting probabilities follow exactly.

Block starts: "visited" = the blocks of a decoder (the first starts at position 0, each next one
where the last ended); "every" = each position once, as a possible start. They differ: after a
rejection the next block starts inside the hard region.

The end of a text (its last row is EOS, or the max_new_tokens-th token; the counts are the same): a
pass emits accepted + 1 tokens, but never more than `remaining`, the tokens left from its start. The
decoder drafts no token past the end: `drafted` counts nodes of depth <= remaining (a decoder that
cannot foresee EOS drafts a few more, in vain). A block is `truncated` iff it accepts every
remaining token: then no bonus token follows and emitted = accepted = remaining. (A decoder that
drafts one token less there emits the same.) Everywhere else emitted = accepted + 1. Hence
block_efficiency = emitted / blocks = 1 + mean_accepted - truncated_share.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.lib.stride_tricks import sliding_window_view
from scipy.stats import poisson

from speclab.plain import Array
from speclab.score import require
from speclab.tree import Tree, chain, check_limit

STARTS = ("visited", "every")
ENDS = ("all", "room")
RULES = ("greedy", "point-mass", "rejection")
COUNTS = ("drafted", "accepted", "emitted", "truncated")


@dataclass(frozen=True)
class _Texts:
    """The texts of a trace side by side, prompts in order of first appearance."""

    prompt_id: Array  # [prompts]
    domain: Array  # [prompts]
    length: Array  # [prompts] tokens
    value: Array  # [prompts, longest] what is replayed; `fill` past the end of a text


def replay(trace: pd.DataFrame, shape: Any, starts: str = "visited") -> pd.DataFrame:
    """Blocks of a chain (`shape` = gamma) or of a static tree (`shape` = speclab.tree.Tree) over
    the recorded text.

    `trace` needs prompt_id, domain, position (0..n-1 in each prompt, rows in any order) and
    draft_rank. Returns one row a block: prompt_id, domain, start, remaining, weight (1.0), drafted,
    accepted, emitted (int), truncated (bool) and survival_1 .. survival_depth (1.0 if at least that
    many were accepted, else 0.0). Raises ValueError for gamma outside 1..64, an empty trace,
    missing columns, and missing or repeated positions (naming the prompt).
    """
    tree = _tree(shape)
    texts = _texts(trace, _ranks(trace), fill=-1)
    survival = _walk(texts.value, tree)
    nodes_to_depth = np.bincount(tree.depth)[1:].cumsum()
    blocks = _blocks(texts, survival, nodes_to_depth, starts)
    return blocks.astype({"accepted": "int64", "emitted": "int64", "truncated": bool})


def replay_sampled(trace: pd.DataFrame, gamma: int, starts: str = "visited") -> pd.DataFrame:
    """Expected blocks of the sampled chain (rejection rule) of `gamma` draft tokens, given a text
    that was sampled from p.

    `trace` needs prompt_id, domain, position, p_token and q_token (both after temperature, top-k,
    top-p). Columns as in `replay`, but expectations: weight = P(a block starts here) ("every": 1);
    accepted, emitted and survival_i are means given that one does; truncated is a probability; a
    start of probability 0 has no row. No random numbers: a decoder's blocks are averaged exactly.
    Raises ValueError as `replay`, and for greedy text, which is no sample of p.
    """
    check_limit("gamma", gamma)
    texts = _texts(trace, _ratios(trace), fill=0.0)
    ahead = np.pad(texts.value, ((0, 0), (0, gamma - 1)))
    survival = sliding_window_view(ahead, gamma, axis=1).cumprod(axis=-1)
    return _blocks(texts, survival, np.arange(1, gamma + 1), starts)


def prompt_sums(blocks: pd.DataFrame, ends: str = "all") -> pd.DataFrame:
    """Per-prompt sums over blocks: numerators and denominators for ratios of sums and for a
    bootstrap of prompts.

    Columns prompt_id, domain, blocks (target passes), drafted, accepted, emitted, truncated,
    survival_1 .. survival_depth: weighted sums. `ends`: "all" = as a decoder counts; "room" = only
    starts with more than `depth` tokens left, where nothing can be cut (to leave out the blocks
    that are cut would be biased low: only long ones are). A prompt without such a start keeps a row
    of zeros.
    """
    survival = [name for name in blocks if str(name).startswith("survival_")]
    weight = blocks["weight"].astype(float)
    if among("ends", ends, ENDS) == "room":
        weight = weight * (blocks["remaining"] > len(survival))
    counts = blocks[[*COUNTS, *survival]].astype(float)
    counts.insert(0, "blocks", 1.0)
    weighted = counts.mul(weight, axis=0)
    prompts = weighted.groupby([blocks["prompt_id"], blocks["domain"]], sort=False, observed=True)
    return prompts.sum().reset_index()


def sums_by_gamma(blocks_of: Callable[[int], pd.DataFrame], gammas: Iterable[int]) -> pd.DataFrame:
    """`prompt_sums` of a chain's blocks for each gamma, without the survival columns; a column
    gamma first.
    """
    sums = {gamma: prompt_sums(blocks_of(gamma)).filter(regex="^(?!survival_)") for gamma in gammas}
    return pd.concat(sums, names=["gamma"]).reset_index("gamma").reset_index(drop=True)


def chain_sums(
    trace: pd.DataFrame,
    gammas: Iterable[int] = range(1, 17),
    rule: str = "greedy",
    starts: str = "visited",
) -> pd.DataFrame:
    """Per-prompt sums of a chain for each gamma: columns gamma, prompt_id, domain, blocks, drafted,
    accepted, emitted, truncated.

    `rule`: "greedy" or "point-mass" (the same walk; T = 0 or sampled text) or "rejection" (sampled
    chain; expectations). The sums of `prompt_sums`, without the survival columns. Errors as in
    `replay` and `replay_sampled`; no gamma at all is a ValueError.
    """
    gammas = [check_limit("gamma", gamma) for gamma in gammas]
    if not gammas:
        raise ValueError(
            "gammas is empty: give at least one number of draft tokens, for instance range(1, 17)"
        )
    is_drawn = among("rule", rule, RULES) == "rejection"
    walk = replay_sampled if is_drawn else replay
    return sums_by_gamma(lambda gamma: walk(trace, gamma, starts), gammas)


def _walk(draft_rank: Array, tree: Tree) -> Array:
    """survival[prompt, start, d - 1] in {0., 1.}: from each start go to the child whose rank is the
    draft rank of the text's next token.
    """
    width = tree.width.max()
    child = np.full((tree.size + 1, width + 1), -1)  # the last column stays -1: no such child
    child[tree.parent[1:], tree.rank[1:]] = np.arange(1, tree.size + 1)
    is_drafted = (draft_rank >= 0) & (draft_rank < width)
    column = np.where(is_drafted, draft_rank, width)
    column = np.pad(column, ((0, 0), (0, tree.max_depth)), constant_values=width)
    node: Array = np.zeros(draft_rank.shape, dtype=int)
    survival = np.zeros((*draft_rank.shape, tree.max_depth))
    for depth in range(tree.max_depth):
        ahead = column[:, depth : depth + draft_rank.shape[1]]
        node = np.where(node >= 0, child[node, ahead], -1)
        survival[..., depth] = node >= 0
    return survival


def _visits(survival: Array) -> Array:
    """P(a block starts at t), [prompts, longest]: v(0) = 1, v(t + k + 1) += v(t) P(L = k | start
    t). Past a text's end: no meaning.
    """
    prompts, longest, depth = survival.shape
    length_pmf = -np.diff(survival, axis=-1, prepend=1.0, append=0.0)
    visits = np.zeros((prompts, longest + depth + 1))
    visits[:, 0] = 1.0
    for t in range(longest):
        reached = visits[:, t, None] * length_pmf[:, t]
        visits[:, t + 1 : t + depth + 2] += reached
    return visits[:, :longest]


def _blocks(texts: _Texts, survival: Array, nodes_to_depth: Array, starts: str) -> pd.DataFrame:
    """The frame of `replay`; nodes_to_depth[d - 1] = nodes of depth <= d in the draft."""
    among("starts", starts, STARTS)
    weights = _visits(survival) if starts == "visited" else np.ones(texts.value.shape)
    is_inside = np.arange(texts.value.shape[1]) < texts.length[:, None]
    prompt, start = np.nonzero(is_inside & (weights > 0))
    weight = weights[prompt, start]
    survival = survival[prompt, start]
    remaining = texts.length[prompt] - start
    depth = survival.shape[-1]
    last = np.minimum(remaining, depth) - 1
    reaches_end = remaining <= depth
    truncated = survival[np.arange(len(start)), last] * reaches_end
    accepted = survival.sum(axis=1)
    emitted = accepted + 1 - truncated
    columns = {
        "prompt_id": texts.prompt_id[prompt],
        "domain": texts.domain[prompt],
        "start": start,
        "remaining": remaining,
        "weight": weight,
        "drafted": nodes_to_depth[last],
        "accepted": accepted,
        "emitted": emitted,
        "truncated": truncated,
    }
    levels = {f"survival_{d + 1}": level for d, level in enumerate(survival.T)}
    return pd.DataFrame(columns | levels)


def _texts(trace: pd.DataFrame, value: Array, fill: float) -> _Texts:
    """The columns of the trace as one row per prompt, after checking that each prompt has positions
    0..n-1 once and one domain.
    """
    if trace[["prompt_id", "domain"]].isna().any(axis=None):
        raise ValueError("trace has rows without a prompt_id or domain: every row needs both")
    code, prompts = pd.factorize(trace["prompt_id"])
    rows = trace[["prompt_id", "domain", "position"]].assign(code=code)
    rows = rows.sort_values(["code", "position"], kind="stable", ignore_index=True)
    texts = rows.groupby("code")
    expected = texts.cumcount()
    wrong = rows["position"] != expected
    if wrong.any():
        row = rows.loc[wrong.idxmax()]
        raise ValueError(
            f"trace: prompt {row['prompt_id']!r} has position {row['position']}, "
            f"not {expected[wrong.idxmax()]}; "
            "each prompt needs 0..n-1, each once: filter whole prompts, not rows"
        )
    domain = texts["domain"].first()
    several = texts["domain"].nunique() > 1
    if several.any():
        prompt = prompts[several.idxmax()]
        raise ValueError(f"trace: prompt {prompt!r} has two domains; make prompt_id unique")
    length = np.bincount(code)
    grid = np.full((len(prompts), length.max()), fill)
    grid[code, trace["position"].astype(int)] = value
    return _Texts(np.asarray(prompts), np.asarray(domain), length, grid)


def _columns(trace: pd.DataFrame, *names: str) -> list[Array]:
    require(trace, ["prompt_id", "domain", "position", *names], "trace")
    return [trace[name].to_numpy(float) for name in names]


def _ranks(trace: pd.DataFrame) -> Array:
    (rank,) = _columns(trace, "draft_rank")
    is_rank = (rank >= 0) & (rank == np.floor(rank))
    _refuse(trace, ~is_rank, rank, "draft_rank", "an integer >= 0")
    return rank.astype(int)


def _ratios(trace: pd.DataFrame) -> Array:
    """min(1, q/p) of the text's tokens. A token that was sampled from p has p > 0."""
    p, q = _columns(trace, "p_token", "q_token")
    _refuse(trace, ~((p > 0) & (p <= 1.001)), p, "p_token", "in (0, 1]")
    _refuse(trace, ~((q >= 0) & (q <= 1.001)), q, "q_token", "in [0, 1]")
    # A sampled text leaves the argmax with probability 1 - p at each position. A greedy one does so
    # only where rounding decides (in half precision at some positions in a thousand).
    if {"token", "target_top"} <= set(trace):
        is_top = (trace["token"] == trace["target_top"]).to_numpy()
        expected = (1 - p[is_top]).sum()
        if poisson.cdf((~is_top).sum(), expected) < 1e-6:
            raise ValueError(
                f"trace holds greedy text ({is_top.mean():.1%} of the tokens are target_top); the "
                "rejection rule needs text sampled from the target: use a run of kind 'sampled', "
                "or replay(...) for T = 0"
            )
    ratio: Array = np.minimum(1.0, q / p)
    return ratio


def _refuse(trace: pd.DataFrame, bad: Array, value: Array, name: str, allowed: str) -> None:
    if bad.any():
        row = bad.argmax()
        prompt, position = trace["prompt_id"].iloc[row], trace["position"].iloc[row]
        raise ValueError(
            f"trace: {name} = {value[row]} at prompt {prompt!r}, position {position}; "
            f"it must be {allowed}"
        )


def _tree(shape: Any) -> Tree:
    tree = shape if isinstance(shape, Tree) else chain(shape)
    if tree.size < 1:
        raise ValueError("shape is a tree without draft nodes; it needs at least one")
    return tree


def among(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """The value of the argument `name`. ValueError if it is not one of those `allowed`."""
    if value not in allowed:
        raise ValueError(f"{name} = {value!r} is unknown; allowed: {', '.join(allowed)}")
    return value
