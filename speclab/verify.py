"""Verification: which drafted tokens are accepted, and which token follows.

All functions are pure functions of probabilities, a tree and uniform random numbers. They know no
model and draw no random number.

Most rules are one walk from the root. At each node the walk tries the children in rank order and
moves to the first accepted child. If it rejects all children, it emits a recovered token from the
residual of the target's distribution. At a leaf it emits a bonus token from the target's
distribution itself. Such a rule is a step function. It gets p and q at a node and the tokens of its
children. It yields the probability of accepting each child after the previous children were
rejected, and finally the residual.

Three rules have no step. `greedy` and `exact-match` follow the target's own tokens, its argmax or
its draws (`matching_path`). `block` decides about a whole chain at once (`block_chances`).

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
    tried: int  # drafted nodes that were examined (by `block` the whole chain)


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


def block_chances(p: Tensor, q: Tensor, tokens: Array) -> tuple[Tensor, Tensor]:
    """Block verification of a drawn chain x_1 .. x_n (Sun et al., arXiv:2403.10444, Algorithm 2).

    p: float64 [n + 1, vocab], the target's distribution after 0 .. n of the tokens. q: [n, vocab],
    the distributions from which the tokens were drawn. tokens: int [n], each with q > 0. Returns
    h [n + 1] and r [n + 1, vocab]. The longest beginning x_1 .. x_i whose coin is below h_i is
    accepted (h_0 = 1), and the next token is drawn from r_i.

        w_i = min(1, w_(i-1) p(x_i) / q(x_i)), w_0 = 1                          (1)
        e_i(x) = max(w_i p(x) - q(x), 0), where q = 0 after x_n                 (2)
        h_i = sum_x e_i(x) / (sum_x e_i(x) + 1 - w_i)                           (3)
        r_i(x) = e_i(x) / sum_y e_i(y)                                          (4)

    Why it is lossless: let x_1 .. x_i be drafted. By (1) and (2), x then follows as an accepted
    token with probability q(x) w_(i+1) = min(q(x), w_i p(x)). So more than i tokens are accepted
    with probability w_i - sum_x e_i(x), and by (3) at least i tokens with probability w_i. By (4),
    x follows as a drawn token with probability e_i(x). Both together are w_i p(x).
    """
    place = np.arange(len(tokens)), tokens
    w = [1.0]
    for ratio in (p[place] / q[place]).tolist():
        w.append(min(1.0, w[-1] * ratio))  # (1)
    weights = torch.tensor(w, dtype=p.dtype, device=p.device)
    excess = weights[:, None] * p
    excess[:-1] -= q
    excess = excess.clamp(min=0)  # (2)
    total = excess.sum(-1)
    # 0/0 if more tokens are accepted anyway
    chances = (total / (total + 1 - weights)).nan_to_num(1.0)  # (3)
    return chances, _normalised(excess, p)  # (4)


@dataclass(frozen=True)
class Rule:
    """A rule's step (None if the rule is no walk by steps) and its requirements for draft and
    shape.
    """

    step: Callable[..., Iterator[Tensor]] | None = None
    lossless: bool = True
    sampled: bool = False  # `draw_children` draws the children from q (else deterministic)
    needs_q: bool = False
    chain_only: bool = False


RULES = {
    "greedy": Rule(),
    "rejection": Rule(rejection_step, sampled=True, needs_q=True, chain_only=True),
    "point-mass": Rule(point_mass_step),
    "without-replacement": Rule(rejection_step, sampled=True, needs_q=True),
    "block": Rule(sampled=True, needs_q=True, chain_only=True),
    "exact-match": Rule(sampled=True),
    "ratio": Rule(ratio_step, lossless=False, needs_q=True),
    "typical": Rule(typical_step, lossless=False),
}


# ---- the walk ------------------------------------------------------------------------------------


def matching_path(tree: Tree, tokens: Array, own: Array) -> Verdict:
    """The longest path of the target's own tokens: its argmax ids (greedy), or tokens that it drew
    (exact match, which accepts a drafted token if the target draws the same).

    tokens, own: int [N + 1], each node's token and the target's own token after it. Needs NumPy
    only.
    """
    node, tried = 0, 0
    path: list[int] = []
    while True:
        children = tree.children(node)
        hits = np.flatnonzero(tokens[children] == own[node])
        if not len(hits):
            kind = "recovered" if len(children) else "bonus"
            return Verdict(tuple(path), int(own[node]), kind, tried + len(children))
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
    """Verify the drafted `tree` by a rule of RULES. The host waits for the device once for every
    child that is tried, and at most four more times.

    tokens: int [N + 1], the token of each node (the root's token is not used).
    p: float32 or float64 [N + 1, vocab], the target's distribution after each node. For greedy any
    scores with the same argmax are enough, such as logits.
    q: the draft's distribution after each node, of the same shape. Only rows of nodes with children
    are read. None if the rule does not need q (greedy, exact-match, point-mass, typical).
    uniforms: [N + 1 or more] in [0, 1). Each child that is tried uses the next number, and the
    emitted token uses the number after them (inverse CDF, `sampling.sample`). For exact-match and
    block each node has one number. With it, exact-match draws the target's token after the node.
    Block draws the emitted token with the root's number. None for greedy.

    Computes in float64 on p's device. Raises ValueError for arguments that do not fit together.
    """
    chosen, tokens = RULES[rule], np.asarray(tokens)
    if chosen.chain_only and not tree.is_chain:
        raise ValueError(f"rule {rule!r} verifies chains only")
    if not len(tokens) == len(p) == tree.size + 1:
        raise ValueError("tokens, p: each node needs one token and one row of p, root first")
    if rule == "greedy":
        if p.isnan().any():
            raise ValueError("p: greedy needs scores without NaN")
        return matching_path(tree, tokens, rank_key(p).argmax(-1).cpu().numpy())
    _check_rows("p", p)
    coins = np.asarray(uniforms, dtype=np.float64)
    _check_uniforms(coins)
    if rule == "exact-match":
        drawn = sample(p, torch.from_numpy(coins[: len(p)]))
        return matching_path(tree, tokens, drawn.cpu().numpy())

    def exact(x: Tensor) -> Tensor:
        x = x.to(p.device).double()
        return x / x.sum(-1, keepdim=True)  # float32 rows sum to 1 only within 1e-6

    # any token may stand at the root
    parents, ids = tree.parent[1:], tokens[1:]
    if len({*zip(parents, ids, strict=True)}) < tree.size or (ids < 0).any():
        raise ValueError(f"tokens {ids.tolist()}: the children of a node need different tokens")
    if chosen.needs_q:
        if q is None or q.shape != p.shape:
            raise ValueError(f"rule {rule!r} needs q with the shape of p")
        _check_rows("q", q[parents])
        never = (q[parents, ids] == 0).cpu().numpy()
        for node in parents[never & chosen.sampled]:
            family = tokens[tree.children(node)]
            # `draw_children` first gives the tokens with a positive probability, then others
            if not (q[node][family[: (q[node] > 0).sum()]] > 0).all():
                raise ValueError(f"tokens {family.tolist()}: one of them has q = 0")
        if rule == "block":
            chances, rests = block_chances(exact(p), exact(q[:-1]), ids)
            # the last node whose number is below its chance
            count = np.flatnonzero(coins[: len(p)] < chances.cpu().numpy())[-1]
            token = int(sample(rests[count], coins[0]))
            kind = "recovered" if count < tree.size else "bonus"
            return Verdict(tuple(range(1, count + 1)), token, kind, tree.size)
    assert chosen.step, "every other rule is a walk by its steps"
    unused = iter(coins.tolist())
    node, path, tried = 0, [], 0
    while True:
        children = tree.children(node).tolist()
        left = exact(q[node]) if q is not None and chosen.needs_q and children else None
        outcomes = chosen.step(exact(p[node]), left, tokens[children].tolist())
        for child in children:
            tried += 1
            if next(unused) < next(outcomes):
                node = child
                path.append(node)
                break
        else:
            token = int(sample(next(outcomes), next(unused)))
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
