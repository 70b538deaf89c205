"""Verification: which drafted tokens stay, and which token follows.

Pure functions of probabilities, tree and uniforms.

Every rule is one walk from the root: at a node try its children in rank order, descend into the
first that is accepted; when all are rejected emit a token from what is left of the target's
distribution (recovered), at a leaf one from the target itself (bonus). A rule is a step: p and q at
a node and its children's tokens in; each child's chance, given that those before it were rejected,
and then the residual out. No model is known here, no random number drawn.

Which tokens are to be drafted: for a `sampled` rule those of `draw_children`; for the others any
that do not depend on the target, as the draft's best. For a sampled rule a node's number of
children must not depend on the tokens drawn there.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from speclab.plain import Array
from speclab.sampling import entropy, rank_key, sample
from speclab.tree import Tree

SUM_TOLERANCE = 1e-4  # a float32 softmax over 150,000 tokens stays well within


@dataclass(frozen=True)
class Verdict:
    """What one target pass decided: it emits the tokens of `path` and then `token`, len(path) + 1
    in all.
    """

    path: tuple[int, ...]  # accepted nodes, root excluded, from the top
    token: int
    # where `token` comes from: "recovered" (residual, after a rejection) or "bonus" (the target,
    # after a leaf)
    kind: str
    tried: int  # drafted nodes that were examined


# ---- rules: p, q float64 [vocab] at a node, its children's tokens in rank order ------------------
# each yields every child's chance and then the residual


def _chance(p: Tensor, q: Tensor) -> Tensor:
    """min(1, p/q)."""
    return (p / q.clamp(min=1e-300)).clamp(max=1)


def _normalised(weights: Tensor, otherwise: Tensor) -> Tensor:
    """`weights` over their sum; `otherwise` where rounding left none (such a residual is reached
    with a chance of 1e-16).
    """
    total = weights.sum(-1, keepdim=True)
    return torch.where(total > 0, weights / total, otherwise)


def remaining(q: Tensor, taken: Tensor) -> Tensor:
    """q [..., vocab] without the tokens `taken` [..., k], renormalised; uniform over all other
    tokens once q has none left.
    """
    if not taken.shape[-1]:
        return q
    free = torch.ones_like(q).scatter(-1, taken, 0.0)
    return _normalised(q * free, free / free.sum(-1, keepdim=True))


def rejection_step(p: Tensor, q: Tensor, tokens: list[int]) -> Iterator[Tensor]:
    """Children drawn without replacement (Sequoia, arXiv:2402.12374; RSD, arXiv:2402.14160); one
    child: Leviathan, arXiv:2211.17192.
    """
    drawn = torch.tensor(tokens, dtype=torch.int64, device=p.device)
    for rank, token in enumerate(tokens):
        left = remaining(q, drawn[:rank])
        yield _chance(p[token], left[token])
        p = _normalised((p - left).clamp(min=0), p)
    yield p


def point_mass_step(p: Tensor, q: Tensor | None, tokens: list[int]) -> Iterator[Tensor]:
    """Deterministic children: each is accepted with its probability among the tokens that were not
    yet rejected.
    """
    for token in tokens:
        yield p[token]
        left = p.clone()
        left[token] = 0
        p = _normalised(left, p)
    yield p


def ratio_step(p: Tensor, q: Tensor, tokens: list[int]) -> Iterator[Tensor]:
    """NOT lossless: min(1, p/q) on deterministic children, as the published alpha presumes; a
    negative control.
    """
    for token in tokens:
        yield _chance(p[token], q[token])
    yield _normalised((p - q).clamp(min=0), p) if tokens else p


def typical_step(p: Tensor, q: Tensor | None, tokens: list[int]) -> Iterator[Tensor]:
    """NOT lossless, by design: accept p(x) > min(0.09, 0.3 exp(-H(p))), H in nats (Medusa,
    arXiv:2401.10774, with its epsilon and delta); else a sample of p.
    """
    threshold = (0.3 * torch.exp(-entropy(p))).clamp(max=0.09)
    for token in tokens:
        yield (p[token] > threshold).double()
    yield p


@dataclass(frozen=True)
class Rule:
    """A rule's step (None: greedy, which needs no probabilities) and what it asks of draft and
    shape.
    """

    step: Callable[..., Iterator[Tensor]] | None
    lossless: bool
    sampled: bool = False  # children are drawn from q by `draw_children`; else deterministic
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
    """The greedy rule from the target's argmax ids alone: the longest path of argmaxes.

    tokens, best: int [N + 1], each node's token and the argmax after it. NumPy only.
    """
    if not len(tokens) == len(best) == tree.size + 1:
        raise ValueError("one token and one argmax a node")
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
    """Walk down the drafted `tree` by a rule of RULES; the host waits for the device once for every
    child that is tried, and at most four times more.

    tokens: int [N + 1], the token of each node (the root's is not used). p: float32 or float64 [N +
    1, vocab], the target's distribution after each node (greedy: any scores with the same argmax,
    as logits). q: the draft's after each node, likewise; only rows of nodes that have children are
    read; None where the rule needs none (greedy, point-mass, typical). uniforms: [N + 1 or more] in
    [0, 1), consumed from the front: one for each child tried, in that order, the next for the
    emitted token (inverse CDF, `sampling.sample`); greedy: None. Computed in float64 on p's device.
    What does not fit together is a ValueError.
    """
    chosen, tokens = RULES[rule], np.asarray(tokens)
    if chosen.chain_only and not tree.is_chain:
        raise ValueError(f"rule {rule!r} verifies a chain")
    if not len(tokens) == len(p) == tree.size + 1:
        raise ValueError("one token and one row of p a node, root first")
    if chosen.step is None:
        if p.isnan().any():
            raise ValueError("greedy takes scores without NaN")
        return greedy_path(tree, tokens, rank_key(p).argmax(-1).cpu().numpy())
    _check_rows("p", p)
    if chosen.needs_q:
        if q is None or q.shape != p.shape:
            raise ValueError(f"rule {rule!r} needs q, of p's shape")
        _check_rows("q", q[tree.parent[1:]])
        # the root's token may be anything
        given = (q[tree.parent, tokens * (tree.depth > 0)] > 0).cpu().numpy()
    coins = np.asarray(uniforms, dtype=np.float64)
    _check_uniforms(coins)

    def row(x: Tensor, node: int) -> Tensor:
        x = x[node].to(p.device).double()
        return x / x.sum()  # float32 rows sum to 1 within 1e-6 only

    coins = iter(coins.tolist())
    node, path, tried = 0, [], 0
    while True:
        children = tree.children(node).tolist()
        ids = tokens[children].tolist()
        if len(set(ids)) < len(ids) or min(ids, default=0) < 0:
            raise ValueError(f"{ids}: not different tokens")
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
    """Draw `count` different children of a node from q, in rank order (a sampled chain draws one);
    int64 [..., count] on q's device.

    q: [..., vocab], any leading axes (the nodes of a level at once). uniforms: [..., count] in [0,
    1), one a child, in rank order. Child r is drawn from q without the tokens of children 0..r-1,
    renormalised. Where q has no token left (fewer than `count` of nonzero mass, as after top-p) the
    rest is drawn uniformly from all other tokens: `verify` assumes the same, so shapes stay and
    nothing is lost.
    """
    if not 1 <= count <= q.shape[-1]:
        raise ValueError(f"count={count}: allowed are 1 to the vocabulary's size")
    coins = torch.as_tensor(uniforms, dtype=torch.float64)
    if coins.shape != (*q.shape[:-1], count):
        raise ValueError(f"uniforms {tuple(coins.shape)}: one a child")
    _check_uniforms(coins)
    q = q.double()
    taken = torch.empty(*q.shape[:-1], 0, dtype=torch.int64, device=q.device)
    for rank in range(count):
        token = sample(remaining(q, taken), coins[..., rank])
        taken = torch.cat([taken, token[..., None]], -1)
    return taken


# ---- what would give wrong tokens without a word -------------------------------------------------


def _check_rows(name: str, rows: Tensor) -> None:
    fine = (rows >= 0).all() & ((rows.sum(-1) - 1).abs() < SUM_TOLERANCE).all()
    wide = rows.dtype.itemsize >= 4
    if not (wide and fine):
        raise ValueError(f"{name}: each row must be float32 or float64, from 0, of sum 1")


def _check_uniforms(uniforms: Array | Tensor) -> None:
    fine = (uniforms >= 0) & (uniforms < 1)
    if not fine.all():
        raise ValueError("uniforms: from 0 up to, not including, 1")


def _check_drawn(q: Tensor, tokens: list[int]) -> None:
    """`draw_children` gives tokens that have mass in q first, others after all that has."""
    first = q[tokens][: (q > 0).sum()]
    if not (first > 0).all():
        raise ValueError(f"tokens {tokens}: q gives 0 to one of them")
