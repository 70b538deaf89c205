"""Replay: the blocks that a speculative decoder would have made of a recorded text. No model runs.

A lossless decoder emits exactly the target's own text. So the trace, which has one row per
position, decides what the target accepts of every draft.

* `replay` follows a chain or a static rank-indexed tree along the draft ranks of the target's own
  tokens. It is exact at T = 0. It is also exact at T > 0 for deterministic children under the
  point-mass rule or exact match, where a token of the sampled text is accepted if it is among the
  children.
* `replay_sampled` is for the sampled chain (T > 0). Let y be the text after the start of a block,
  and L the number of accepted tokens. Then P(L >= i) given y is
  - `rejection`: prod_{j<=i} min(1, q(y_j)/p(y_j)) (Leviathan et al., arXiv:2211.17192). If y_j was
    not accepted, it is the recovered token.
  - `block`: min_{k<=i} prod_{j<=k} q(y_j)/p(y_j), and at most 1. In `verify.block_chances`, y_1 ..
    y_i are drafted and accepted with probability q(y_1 .. y_i) w_i, whatever the draft would say
    off the text. The target writes them with probability p(y_1 .. y_i). The quotient follows from
    (1). It is at least that of `rejection`.
  - `exact-match`: prod_{j<=i} q(y_j), since the text is what the target draws.

  The starts of the blocks in a text are a Markov chain, whose visiting probabilities are computed
  exactly. Which tokens were drafted off the text is not in a trace and not needed.

A trained head's ranks and probabilities depend on where the block began. Its trace has them for a
block that begins at each position (`block_ranks`, `block_q`: lists over the text's next tokens).
The same walks then follow these lists.

Block starts: "visited" means the blocks of a decoder. Its first block starts at position 0, and
each next block starts where the last block ended. "every" means each position once, as a possible
start. The two differ, because after a rejection the next block starts in a difficult region.

End of a text: the last row of a text is EOS or the token number max_new_tokens, and the counts are
the same for both. A pass emits accepted + 1 tokens, but never more than `remaining`, the number of
tokens from its start to the end. The decoder drafts no token after the end, so `drafted` counts
nodes of depth <= remaining. (A decoder that cannot know EOS in advance drafts a few more tokens,
which are wasted.) A block is `truncated` if it accepts every remaining token. Then no bonus token
follows, and emitted = accepted = remaining. (A decoder that drafts one token less there emits the
same.) In all other blocks emitted = accepted + 1. So block_efficiency = emitted / blocks = 1 +
mean_accepted - truncated_share.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
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
DRAWN = ("rejection", "block", "exact-match")  # rules for a sampled chain
RULES = ("greedy", "point-mass", *DRAWN)
COUNTS = ("drafted", "accepted", "emitted", "truncated")


@dataclass(frozen=True)
class _Texts:
    """The texts of a trace as a table, with prompts in the order of their first appearance."""

    prompt_id: Array  # [prompts]
    domain: Array  # [prompts]
    length: Array  # [prompts] tokens
    # [prompts, longest] what is replayed, `fill` after the end of a text; of a head [..., limit]
    value: Array
    fill: float

    @property
    def is_inside(self) -> Array:
        """Whether a position is inside its text, bool [prompts, longest]."""
        inside: Array = np.arange(self.length.max()) < self.length[:, None]
        return inside

    def ahead(self, depth: int) -> Array:
        """The value of the next `depth` tokens, [prompts, longest, depth], for a block that begins
        at each position. ValueError if a head's blocks were recorded for fewer tokens.
        """
        if self.value.ndim == 3:
            limit = self.value.shape[2]
            if depth > limit and self.length.max() > limit:
                raise ValueError(
                    f"a block of {depth} tokens: this head was recorded for blocks of up to "
                    f"{limit}; give at most {limit}"
                )
            beyond = (0, 0), (0, 0), (0, max(0, depth - limit))
            padded = np.pad(self.value, beyond, constant_values=self.fill)
            start = np.arange(self.value.shape[1])
            place = start[:, None] + np.arange(depth)
            is_inside = place < self.length[:, None, None]  # a text may have been cut
            values: Array = np.where(is_inside, padded[..., :depth], self.fill)
            return values
        beyond_end = (0, 0), (0, depth - 1)
        padded = np.pad(self.value, beyond_end, constant_values=self.fill)
        return sliding_window_view(padded, depth, axis=1)


def replay(trace: pd.DataFrame, shape: Any, starts: str = "visited") -> pd.DataFrame:
    """Blocks of a chain (`shape` = gamma) or of a static tree (`shape` = speclab.tree.Tree) over
    the recorded text.

    `trace` needs prompt_id, domain, position (0..n-1 in each prompt, rows in any order) and
    draft_rank. Returns one row per block: prompt_id, domain, start, remaining, weight (1.0),
    drafted, accepted, emitted (int), truncated (bool) and survival_1 .. survival_depth (1.0 if at
    least that many tokens were accepted, else 0.0). Raises ValueError for gamma outside 1..64, an
    empty trace, missing columns, and missing or repeated positions (with the prompt's name).
    """
    tree = shape if isinstance(shape, Tree) else chain(shape)
    if tree.size < 1:
        raise ValueError("shape is a tree without draft nodes; it needs at least one")
    texts = _texts(trace, _ranks(trace), fill=-1)
    survival = _walk(texts.ahead(tree.max_depth), tree)
    nodes_to_depth = np.bincount(tree.depth)[1:].cumsum()
    blocks = _blocks(texts, survival, nodes_to_depth, starts)
    return blocks.astype({"accepted": "int64", "emitted": "int64", "truncated": bool})


def replay_sampled(
    trace: pd.DataFrame, gamma: int, starts: str = "visited", rule: str = "rejection"
) -> pd.DataFrame:
    """Expected blocks of the sampled chain of `gamma` draft tokens by a rule of DRAWN, for a text
    that was sampled from p.

    `trace` needs prompt_id, domain, position, p_token and q_token (both after temperature, top-k,
    top-p). The columns are those of `replay`, as expectations. weight is the probability that a
    block starts here (1 for "every"). accepted, emitted and survival_i are means, if a block starts
    here. truncated is a probability. A start with probability 0 has no row. No random number is
    drawn, since the average over a decoder's blocks is exact. Raises ValueError as `replay` does,
    for greedy text, which is not a sample from p, and for another rule.
    """
    check_limit("gamma", gamma)
    among("rule", rule, DRAWN)
    p, q = _chances(trace)
    texts = _texts(trace, q, fill=0.0)
    # P(L >= i) given the text, see the top of this module
    ratio = texts.ahead(gamma)
    if rule != "exact-match":
        ratio = ratio / _texts(trace, p, fill=1.0).ahead(gamma)
    if rule != "block":  # then the product never rises, and the minimum changes nothing
        ratio = np.minimum(1.0, ratio)
    product = ratio.cumprod(axis=-1)
    survival = np.minimum.accumulate(product, axis=-1).clip(max=1.0)
    return _blocks(texts, survival, np.arange(1, gamma + 1), starts)


def prompt_sums(blocks: pd.DataFrame, ends: str = "all") -> pd.DataFrame:
    """Sums over blocks for each prompt, as numerators and denominators for ratios of sums and for a
    bootstrap of prompts.

    Columns prompt_id, domain, blocks (target passes), drafted, accepted, emitted, truncated,
    survival_1 .. survival_depth, all of them weighted sums. `ends`: "all" counts as a decoder does.
    "room" counts only starts with more than `depth` tokens left, where the end of the text cannot
    shorten a block. (To leave out the shortened blocks themselves would give a value that is too
    low, because only long blocks are shortened.) A prompt without such a start has a row of zeros.
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
    """`prompt_sums` of a chain's blocks for each gamma, without the survival columns. The first
    column is gamma.
    """
    sums = {gamma: prompt_sums(blocks_of(gamma)).filter(regex="^(?!survival_)") for gamma in gammas}
    return pd.concat(sums, names=["gamma"]).reset_index("gamma").reset_index(drop=True)


def chain_sums(
    trace: pd.DataFrame,
    gammas: Iterable[int] = range(1, 17),
    rule: str = "greedy",
    starts: str = "visited",
) -> pd.DataFrame:
    """Sums of a chain for each gamma and prompt: columns gamma, prompt_id, domain, blocks, drafted,
    accepted, emitted, truncated.

    `rule`: "greedy" or "point-mass" (the same walk, for T = 0 or sampled text), or one of DRAWN
    (sampled chain, expectations). The sums are those of `prompt_sums`, without the survival
    columns. Raises ValueError as `replay` and `replay_sampled` do.
    """
    is_drawn = among("rule", rule, RULES) in DRAWN
    walk = partial(replay_sampled, rule=rule) if is_drawn else replay
    return sums_by_gamma(lambda gamma: walk(trace, gamma, starts), gammas)


def ranks_ahead(trace: pd.DataFrame, gamma: int) -> Array:
    """The draft ranks of the next `gamma` tokens if a block begins at a position, int [positions,
    gamma]; -1 after the end of the text. The texts follow each other as in the trace, and in each
    the positions are in order, as blocks are for starts="every". ValueError as in `replay`.
    """
    texts = _texts(trace, _ranks(trace), fill=-1)
    ahead: Array = texts.ahead(check_limit("gamma", gamma))[texts.is_inside]
    return ahead


def _walk(draft_rank: Array, tree: Tree) -> Array:
    """survival[prompt, start, d - 1] in {0., 1.}. From each start the walk goes to the child whose
    rank is the draft rank of the text's next token, draft_rank [prompts, starts, depth].
    """
    width = tree.width.max()
    child = np.full((tree.size + 1, width + 1), -1)  # the last column stays -1, no such child
    child[tree.parent[1:], tree.rank[1:]] = np.arange(1, tree.size + 1)
    is_drafted = (draft_rank >= 0) & (draft_rank < width)
    column = np.where(is_drafted, draft_rank, width)
    node: Array = np.zeros(draft_rank.shape[:2], dtype=int)
    survival = np.zeros(draft_rank.shape)
    for depth in range(tree.max_depth):
        below = child[node, column[..., depth]]
        node = np.where(node >= 0, below, -1)
        survival[..., depth] = node >= 0
    return survival


def _visits(survival: Array) -> Array:
    """P(a block starts at t), [prompts, longest]: v(0) = 1, v(t + k + 1) += v(t) P(L = k | start
    t). The values after the end of a text have no meaning.
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
    """The frame of `replay`. nodes_to_depth[d - 1]: the number of draft nodes of depth <= d."""
    among("starts", starts, STARTS)
    depth = survival.shape[-1]
    weights = np.ones(survival.shape[:2])
    if starts == "visited":
        weights = _visits(survival)
    # one row per start inside a text: what was accepted there
    prompt, start = np.nonzero(texts.is_inside & (weights > 0))
    weight = weights[prompt, start]
    survival = survival[prompt, start]
    remaining = texts.length[prompt] - start
    # the text may end inside the block: then it has no bonus token
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
    levels = {f"survival_{d}": level for d, level in enumerate(survival.T, 1)}
    return pd.DataFrame(columns | levels)


def _texts(trace: pd.DataFrame, value: Array, fill: float) -> _Texts:
    """The texts of the trace, one row per prompt. Checks that each prompt has each position 0..n-1
    once and one domain.
    """
    if trace[["prompt_id", "domain"]].isna().any(axis=None):
        raise ValueError("trace has rows without a prompt_id or domain: every row needs both")
    # positions must be 0..n-1 in each text, or a block would continue in another place
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
    # texts of different lengths in one array, filled up after their ends
    length = np.bincount(code)
    shape = len(prompts), length.max(), *value.shape[1:]
    grid = np.full(shape, fill)
    grid[code, trace["position"].astype(int)] = value
    return _Texts(np.asarray(prompts), np.asarray(domain), length, grid, fill)


def _columns(trace: pd.DataFrame, *names: str) -> list[Array]:
    require(trace, ["prompt_id", "domain", "position", *names], "trace")
    return [trace[name].to_numpy(float) for name in names]


def _of_blocks(trace: pd.DataFrame, name: str, fill: float) -> Array:
    """A head's lists as a matrix [rows, limit], `fill` after the end of a text."""
    lengths = trace[name].map(len).to_numpy()
    matrix = np.full((len(trace), lengths.max()), fill)
    is_inside = np.arange(lengths.max()) < lengths[:, None]
    matrix[is_inside] = np.concatenate([*trace[name]])
    return matrix


def _ranks(trace: pd.DataFrame) -> Array:
    (rank,) = _columns(trace, "draft_rank")
    is_rank = (rank >= 0) & (rank == np.floor(rank))
    _refuse(trace, ~is_rank, rank, "draft_rank", "an integer >= 0")
    if "block_ranks" in trace:
        return _of_blocks(trace, "block_ranks", -1).astype(int)
    return rank.astype(int)


def _chances(trace: pd.DataFrame) -> tuple[Array, Array]:
    """p and q of the text's tokens; of a head, q [rows, limit]. A token that was sampled from p has
    p > 0.
    """
    p, q = _columns(trace, "p_token", "q_token")
    is_chance = (p > 0) & (q >= 0)
    _refuse(trace, ~is_chance, p, "p_token", "above 0, and q_token not negative")
    # A sampled text differs from the argmax with probability 1 - p at each position. A greedy text
    # differs only where rounding decides (in half precision at a few positions per thousand).
    if {"token", "target_top"} <= set(trace):
        is_top = (trace["token"] == trace["target_top"]).to_numpy()
        expected = (1 - p[is_top]).sum()
        if poisson.cdf((~is_top).sum(), expected) < 1e-6:
            raise ValueError(
                f"trace holds greedy text ({is_top.mean():.1%} of the tokens are target_top); a "
                "sampled chain needs text sampled from the target: use a run of kind 'sampled', or "
                "replay(...) for T = 0"
            )
    if "block_q" in trace:
        q = _of_blocks(trace, "block_q", 0.0)
    return p, q


def _refuse(trace: pd.DataFrame, bad: Array, value: Array, name: str, allowed: str) -> None:
    if bad.any():
        row = bad.argmax()
        prompt = trace["prompt_id"].iloc[row]
        position = trace["position"].iloc[row]
        raise ValueError(
            f"trace: {name} = {value[row]} at prompt {prompt!r}, position {position}; "
            f"it must be {allowed}"
        )


def among(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """The value of the argument `name`. Raises ValueError if it is not `allowed`."""
    if value not in allowed:
        raise ValueError(f"{name} = {value!r} is unknown; allowed: {', '.join(allowed)}")
    return value
