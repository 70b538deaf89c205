"""Verification: which drafted tokens are accepted, and which token follows.

All functions are pure functions of probabilities, a tree and uniform random numbers. They know no
model and draw no random number.

Every rule is one walk from the root. At each node the walk tries the children in rank order and
moves to the first accepted child. If it rejects all children, it emits a recovered token from the
residual of the target's distribution. At a leaf it emits a bonus token from the target's
distribution itself. A rule is a step function. It gets p and q at a node and the tokens of its
children. It yields the probability of accepting each child after the previous children were
rejected, and finally the residual.

Which tokens may be drafted? For a `sampled` rule they must come from `draw_children`, and a node's
number of children must not depend on the tokens drawn there. For the other rules they may be any
tokens that do not depend on the target, such as the draft's best tokens.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from speclab.plain import Array
from speclab.sampling import entropy, rank_key, sample
from speclab.tree import Tree

SUM_TOLERANCE = 1e-4  # a float32 softmax over 150,000 tokens is much more exact


@dataclass(frozen=True)
class Verdict:
    """The result of one target pass. It emits the tokens of `path` and then `token`, which are
    len(path) + 1 tokens.
    """

    path: tuple[int, ...]  # accepted nodes without the root, by depth
    token: int
    # the origin of `token`: "recovered" (from the residual, after a rejection) or "bonus" (from the
    # target, after a leaf)
    kind: str
    tried: int  # drafted nodes that were examined


# ---- rules: p, q float64 [vocab] at a node, its children's tokens in rank order ------------------
# each yields the probability of accepting every child, and then the residual


def _chance(p: Tensor, q: Tensor) -> Tensor:
    """min(1, p/q)."""
    return (p / q.clamp(min=1e-300)).clamp(max=1)


def _normalised(weights: Tensor, otherwise: Tensor) -> Tensor:
    """`weights` divided by their sum, or `otherwise` if rounding made the sum 0 (the walk reaches
    such a residual with a probability of 1e-16).
    """
    total = weights.sum(-1, keepdim=True)
    return torch.where(total > 0, weights / total, otherwise)


def remaining(q: Tensor, taken: Tensor) -> Tensor:
    """q [..., vocab] without the tokens `taken` [..., k], renormalised. It is uniform over all
    other tokens if q gives them no probability.
    """
    if not taken.shape[-1]:
        return q
    free = torch.ones_like(q).scatter(-1, taken, 0.0)
    return _normalised(q * free, free / free.sum(-1, keepdim=True))


def rejection_step(p: Tensor, q: Tensor, tokens: list[int]) -> Iterator[Tensor]:
    """Children drawn without replacement (Sequoia, arXiv:2402.12374; RSD, arXiv:2402.14160). With
    one child it is the rule of Leviathan et al., arXiv:2211.17192.
    """
    drawn = torch.tensor(tokens, dtype=torch.int64, device=p.device)
    for rank, token in enumerate(tokens):
        left = remaining(q, drawn[:rank])
        yield _chance(p[token], left[token])
        p = _normalised((p - left).clamp(min=0), p)
    yield p


def point_mass_step(p: Tensor, q: Tensor | None, tokens: list[int]) -> Iterator[Tensor]:
    """Deterministic children. Each is accepted with its probability among the tokens that are not
    yet rejected.
    """
    for token in tokens:
        yield p[token]
        left = p.clone()
        left[token] = 0
        p = _normalised(left, p)
    yield p


def ratio_step(p: Tensor, q: Tensor, tokens: list[int]) -> Iterator[Tensor]:
    """NOT lossless: min(1, p/q) for deterministic children, as the published alpha assumes. This
    rule is a negative control.
    """
    for token in tokens:
        yield _chance(p[token], q[token])
    yield _normalised((p - q).clamp(min=0), p) if tokens else p


def typical_step(p: Tensor, q: Tensor | None, tokens: list[int]) -> Iterator[Tensor]:
    """NOT lossless, by design: accept x if p(x) > min(0.09, 0.3 exp(-H(p))), with the entropy H in
    nats (Medusa, arXiv:2401.10774, with its epsilon and delta). Otherwise sample from p.
    """
    threshold = (0.3 * torch.exp(-entropy(p))).clamp(max=0.09)
    for token in tokens:
        yield (p[token] > threshold).double()
    yield p


@dataclass(frozen=True)
class Rule:
    """A rule's step (None for greedy, which needs no probabilities) and its requirements for draft
    and shape.
    """

    step: Callable[..., Iterator[Tensor]] | None
    lossless: bool
    sampled: bool = False  # `draw_children` draws the children from q (else deterministic)
    needs_q: bool = False
    chain_only: bool = False


RULES = {
    "greedy": Rule(None, lossless=True),
    "rejection": Rule(rejection_step, lossless=True, sampled=True, needs_q=True, chain_only=True),
    "point-mass": Rule(point_mass_step, lossless=True),
    "without-replacement": Rule(rejection_step, lossless=True, sampled=True, needs_q=True),
    "ratio": Rule(ratio_step, lossless=False, needs_q=True),
    "typical": Rule(typical_step, lossless=False),
}


# ---- the walk ------------------------------------------------------------------------------------


def greedy_path(tree: Tree, tokens: Array, best: Array) -> Verdict:
    """The greedy rule, from the target's argmax ids alone: the longest path of argmax tokens.

    tokens, best: int [N + 1], each node's token and the argmax after it. Needs NumPy only.
    """
    if not len(tokens) == len(best) == tree.size + 1:
        raise ValueError("tokens, best: each node needs one token and one argmax")
    node, tried = 0, 0
    path: list[int] = []
    while True:
        children = tree.children(node)
        hits = np.flatnonzero(tokens[children] == best[node])
        if not len(hits):
            kind = "recovered" if len(children) else "bonus"
            return Verdict(tuple(path), int(best[node]), kind, tried + len(children))
        tried += int(hits[0]) + 1
        node = int(children[hits[0]])
        path.append(node)


def verify(
    rule: str,
    tree: Tree,
    tokens: Array,
    p: Tensor,
    q: Tensor | None,
    uniforms: Array | None,
) -> Verdict:
    """Walk through the drafted `tree` by a rule of RULES. The host waits for the device once for
    every child that is tried, and at most four more times.

    tokens: int [N + 1], the token of each node (the root's token is not used).
    p: float32 or float64 [N + 1, vocab], the target's distribution after each node. For greedy any
    scores with the same argmax are enough, such as logits.
    q: the draft's distribution after each node, of the same shape. Only rows of nodes with children
    are read. None if the rule does not need q (greedy, point-mass, typical).
    uniforms: [N + 1 or more] in [0, 1). Each child that is tried uses the next number, and the
    emitted token uses the number after them (inverse CDF, `sampling.sample`). None for greedy.

    Computes in float64 on p's device. Raises ValueError for arguments that do not fit together.
    """
    chosen, tokens = RULES[rule], np.asarray(tokens)
    if chosen.chain_only and not tree.is_chain:
        raise ValueError(f"rule {rule!r} verifies chains only")
    if not len(tokens) == len(p) == tree.size + 1:
        raise ValueError("tokens, p: each node needs one token and one row of p, root first")
    if chosen.step is None:
        if p.isnan().any():
            raise ValueError("p: greedy needs scores without NaN")
        return greedy_path(tree, tokens, rank_key(p).argmax(-1).cpu().numpy())
    _check_rows("p", p)
    if chosen.needs_q:
        if q is None or q.shape != p.shape:
            raise ValueError(f"rule {rule!r} needs q with the shape of p")
        _check_rows("q", q[tree.parent[1:]])
        # any token may stand at the root
        given = (q[tree.parent, tokens * (tree.depth > 0)] > 0).cpu().numpy()
    coins = np.asarray(uniforms, dtype=np.float64)
    _check_uniforms(coins)

    def row(x: Tensor, node: int) -> Tensor:
        x = x[node].to(p.device).double()
        return x / x.sum()  # float32 rows sum to 1 only within 1e-6

    coins = iter(coins.tolist())
    node, path, tried = 0, [], 0
    while True:
        children = tree.children(node).tolist()
        ids = tokens[children].tolist()
        if len(set(ids)) < len(ids) or min(ids, default=0) < 0:
            raise ValueError(f"tokens {ids}: the children of a node need different tokens")
        left = row(q, node) if q is not None and chosen.needs_q and children else None
        if left is not None and chosen.sampled and not given[children].all():
            _check_drawn(left, ids)
        outcomes = chosen.step(row(p, node), left, ids)
        for child in children:
            tried += 1
            if next(coins) < next(outcomes):
                node = child
                path.append(node)
                break
        else:
            token = int(sample(next(outcomes), next(coins)))
            return Verdict(tuple(path), token, "recovered" if children else "bonus", tried)


def draw_children(q: Tensor, count: int, uniforms: Array | Tensor) -> Tensor:
    """Draw `count` different children of a node from q, in rank order (a sampled chain draws one).
    Returns int64 [..., count] on q's device.

    q: [..., vocab], with any leading axes (such as the nodes of a level). uniforms: [..., count] in
    [0, 1), one per child, in rank order. Child r is drawn from q without the tokens of children
    0..r-1, renormalised. If fewer than `count` tokens have a positive probability (as after top-p),
    the other children are drawn uniformly from all other tokens. `verify` assumes the same, so the
    shape stays and the rule stays lossless.
    """
    if not 1 <= count <= q.shape[-1]:
        raise ValueError(f"count={count}: allowed are 1 to the size of the vocabulary")
    coins = torch.as_tensor(uniforms, dtype=torch.float64)
    if coins.shape != (*q.shape[:-1], count):
        raise ValueError(f"uniforms {tuple(coins.shape)}: each child needs one")
    _check_uniforms(coins)
    q = q.double()
    taken = torch.empty(*q.shape[:-1], 0, dtype=torch.int64, device=q.device)
    for rank in range(count):
        token = sample(remaining(q, taken), coins[..., rank])
        taken = torch.cat([taken, token[..., None]], -1)
    return taken


# ---- checks of what would give wrong tokens silently ---------------------------------------------


def _check_rows(name: str, rows: Tensor) -> None:
    fine = (rows >= 0).all() & ((rows.sum(-1) - 1).abs() < SUM_TOLERANCE).all()
    wide = rows.dtype.itemsize >= 4
    if not (wide and fine):
        raise ValueError(f"{name}: each row must be float32 or float64, not negative, with sum 1")


def _check_uniforms(uniforms: Array | Tensor) -> None:
    fine = (uniforms >= 0) & (uniforms < 1)
    if not fine.all():
        raise ValueError("uniforms: each must be at least 0 and less than 1")


def _check_drawn(q: Tensor, tokens: list[int]) -> None:
    """`draw_children` first gives tokens with a positive probability, then other tokens."""
    first = q[tokens][: (q > 0).sum()]
    if not (first > 0).all():
        raise ValueError(f"tokens {tokens}: one of them has q = 0")
