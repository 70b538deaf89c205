"""Verification: which drafted tokens stay, and which token follows.

Pure functions of probabilities, tree and uniforms.

Every rule is one walk from the root: at a node try its children in rank order, descend into the
first that is accepted; when all are rejected emit a token from what is left of the target's
distribution (recovered), at a leaf one from the target itself (bonus). A rule is a step: p and q at
a node and its children's tokens in; each child's chance, given that those before it were rejected,
and then the residual out. estimators.md, section 5. No model is known here, no random number drawn.

Which tokens are to be drafted: for a `sampled` rule those of `draw_children`; for the others any
that do not depend on the target, as the draft's best. For a sampled rule a node's number of
children must not depend on the tokens drawn there.
"""

import difflib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from speclab.sampling import entropy, pick, rank_key
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
    # behind a leaf)
    kind: str
    tried: int  # drafted nodes that were examined

    @property
    def reason(self) -> str:
        """Why the walk ended: "rejected" (every child of the last node) or "all accepted" (it has
        no child).
        """
        return "rejected" if self.kind == "recovered" else "all accepted"


# ---- rules: p, q float64 [vocab] at a node, its children's tokens; yields each child's chance, in rank order, then the residual


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


def recursive_rejection(p: Tensor, q: Tensor, tokens: list[int]) -> Iterator[Tensor]:
    """Children drawn without replacement (Sequoia, arXiv:2402.12374; RSD, arXiv:2402.14160); one
    child: Leviathan, arXiv:2211.17192.
    """
    for rank, token in enumerate(tokens):
        left = remaining(q, torch.tensor(tokens[:rank], dtype=torch.int64, device=p.device))
        yield _chance(p[token], left[token])
        p = _normalised((p - left).clamp(min=0), p)
    yield p


def point_mass(p: Tensor, q: Tensor | None, tokens: list[int]) -> Iterator[Tensor]:
    """Deterministic children: each is accepted with its probability among the tokens that were not
    yet rejected.
    """
    for token in tokens:
        yield p[token]
        left = p.clone()
        left[token] = 0
        p = _normalised(left, p)
    yield p


def ratio(p: Tensor, q: Tensor, tokens: list[int]) -> Iterator[Tensor]:
    """NOT lossless: min(1, p/q) on deterministic children, as the published alpha presumes; a
    negative control.
    """
    for token in tokens:
        yield _chance(p[token], q[token])
    yield _normalised((p - q).clamp(min=0), p) if tokens else p


def typical(
    p: Tensor, q: Tensor | None, tokens: list[int], epsilon: float = 0.09, delta: float = 0.3
) -> Iterator[Tensor]:
    """NOT lossless, by design: accept p(x) > min(epsilon, delta exp(-H(p))), H in nats (Medusa,
    arXiv:2401.10774); else a sample of p.
    """
    if not (0 < epsilon < 1 and 0 < delta < 1):
        raise ValueError(
            f"epsilon={epsilon!r}, delta={delta!r}: allowed is above 0 and below 1 for both"
        )
    threshold = (delta * torch.exp(-entropy(p))).clamp(max=epsilon)
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
    settings: tuple[str, ...] = ()


RULES = {
    "greedy": Rule(None, lossless=True),
    "rejection": Rule(
        recursive_rejection, lossless=True, sampled=True, needs_q=True, chain_only=True
    ),
    "point-mass": Rule(point_mass, lossless=True),
    "without-replacement": Rule(recursive_rejection, lossless=True, sampled=True, needs_q=True),
    "ratio": Rule(ratio, lossless=False, needs_q=True),
    "typical": Rule(typical, lossless=False, settings=("epsilon", "delta")),
}


# ---- the walk ------------------------------------------------------------------------------------


def _walk(tree: Tree, uniforms: np.ndarray, step: Callable, emit: Callable) -> Verdict:
    """`step(node, children)` yields the children's chances and then what `emit(residual, uniform)`
    takes a token from.
    """
    coins, node, path, tried = iter(uniforms.tolist()), 0, [], 0
    while True:
        children = tree.children(node).tolist()
        outcomes = step(node, children)
        for child in children:
            tried += 1
            if next(coins) < float(next(outcomes)):
                node = child
                path.append(node)
                break
        else:
            return Verdict(
                tuple(path),
                emit(next(outcomes), next(coins)),
                "recovered" if children else "bonus",
                tried,
            )


def greedy_path(tree: Tree, tokens: np.ndarray, best: np.ndarray) -> Verdict:
    """The greedy rule from the target's argmax ids alone: the longest path of argmaxes.

    best: int [N + 1], after each node. NumPy only.
    """
    tokens, best = _checked_tokens(tree, tokens), np.asarray(best)
    if best.shape != tokens.shape:
        raise ValueError(
            f"best has shape {best.shape}: {tokens.shape} is needed, one argmax id after each node, the root's first"
        )

    def step(node: int, children: list[int]) -> Iterator[int]:
        return iter([*(tokens[children] == best[node]), int(best[node])])

    return _walk(tree, np.zeros(tree.size + 1), step, lambda token, _coin: token)


def verify(
    rule: str,
    tree: Tree,
    tokens: np.ndarray,
    p: Tensor,
    q: Tensor | None,
    uniforms: np.ndarray | None,
    **settings: Any,
) -> Verdict:
    """Walk down the drafted `tree` by a rule of RULES; the host waits for the device a few times
    and once for each child tried.

    tokens: int [N + 1], the token of each node (the root's is not used). p: float32 or float64 [N +
    1, vocab], the target's distribution after each node (greedy: any scores with the same argmax,
    as logits). q: the draft's after each node, likewise; only rows of nodes that have children are
    read; None where the rule needs none (greedy, point-mass, typical). uniforms: [N + 1 or more] in
    [0, 1), consumed from the front: one for each child tried, in that order, the next for the
    emitted token (inverse CDF, `sampling.pick`); greedy: None. settings: epsilon, delta (typical
    only). Computed in float64 on p's device. Raises ValueError for an unknown rule or setting, a
    rule that does not fit the tree or the tokens, shapes that disagree, rows that are no
    distributions and uniforms that are too few or out of range.
    """
    chosen = _checked_rule(rule, tree, settings)
    ids = _checked_tokens(tree, tokens)
    if chosen.step is None:
        return greedy_path(tree, ids, _argmax(tree, p))
    _check_rows("p", p, tree, np.arange(tree.size + 1))
    if chosen.needs_q:
        _check_rows("q", q, tree, np.unique(tree.parent[1:]), p.shape[1])
    _check_drafted(rule, tree, ids, p.shape[1], q if chosen.sampled else None)

    def row(x: Tensor, node: int) -> Tensor:
        x = x[node].to(p.device).double()
        return x / x.sum()  # float32 rows sum to 1 within 1e-6 only

    def step(node: int, children: list[int]) -> Iterator[Tensor]:
        return chosen.step(
            row(p, node),
            row(q, node) if chosen.needs_q and children else None,
            ids[children].tolist(),
            **settings,
        )

    def emit(residual: Tensor, coin: float) -> int:
        return int(pick(residual, torch.tensor(coin, dtype=torch.float64, device=p.device)))

    return _walk(tree, _checked_uniforms(uniforms, tree.size + 1), step, emit)


def draw_children(q: Tensor, count: int, uniforms: np.ndarray | Tensor) -> Tensor:
    """Draw `count` different children of a node from q, in rank order (a sampled chain draws one);
    int64 [..., count] on q's device.

    q: [..., vocab], any leading axes (the nodes of a level at once). uniforms: [..., count] in [0,
    1), one a child, in rank order. Child r is drawn from q without the tokens of children 0..r-1,
    renormalised. Where q has no token left (fewer than `count` of nonzero mass, as after top-p) the
    rest is drawn uniformly from all other tokens: `verify` assumes the same, so shapes stay and
    nothing is lost. Raises ValueError if count is below 1 or over the vocabulary, or the uniforms
    are too few or outside [0, 1).
    """
    if not 1 <= count <= q.shape[-1]:
        raise ValueError(
            f"count={count}: allowed are 1 to {q.shape[-1]}, the vocabulary: children of a node are different tokens"
        )
    coins, shape = torch.as_tensor(uniforms, dtype=torch.float64), (*q.shape[:-1], count)
    if coins.shape != shape or not bool(((coins >= 0) & (coins < 1)).all()):
        raise ValueError(
            f"uniforms have shape {tuple(coins.shape)}: {shape} is needed, numbers from 0 up to, not including, 1"
        )
    coins, taken = (
        coins.to(q.device),
        torch.empty(*q.shape[:-1], 0, dtype=torch.int64, device=q.device),
    )
    for rank in range(count):
        token = pick(remaining(q.double(), taken), coins[..., rank])
        taken = torch.cat([taken, token[..., None]], -1)
    return taken


# ---- input ---------------------------------------------------------------------------------------


def _checked_rule(rule: str, tree: Tree, settings: dict[str, Any]) -> Rule:
    if rule not in RULES:
        near = difflib.get_close_matches(str(rule), RULES, 1)
        raise ValueError(
            f"rule={rule!r}: {f'did you mean {near[0]!r}? ' if near else ''}allowed are {', '.join(RULES)}"
        )
    chosen = RULES[rule]
    if unknown := set(settings) - set(chosen.settings):
        raise ValueError(
            f"rule {rule!r} has no setting {', '.join(sorted(unknown))}: allowed are {', '.join(chosen.settings) or 'none'}"
        )
    if chosen.chain_only and len(np.unique(tree.parent)) < len(tree.parent):
        other = "take 'without-replacement' (sampled children) or 'point-mass' (the draft's best)"
        raise ValueError(f"rule {rule!r} verifies a chain and this tree branches: {other}")
    return chosen


def _checked_tokens(tree: Tree, tokens: np.ndarray) -> np.ndarray:
    ids = np.asarray(tokens)
    if ids.shape != (tree.size + 1,) or not np.issubdtype(ids.dtype, np.integer):
        raise ValueError(
            f"tokens are {ids.dtype} of shape {ids.shape}: whole numbers of shape ({tree.size + 1},) are needed, root first"
        )
    return ids.astype(np.int64)


def _checked_uniforms(uniforms: np.ndarray | None, needed: int) -> np.ndarray:
    coins = np.asarray([] if uniforms is None else uniforms, dtype=np.float64)
    if coins.ndim != 1 or len(coins) < needed:
        raise ValueError(
            f"uniforms have shape {coins.shape}: at least {needed} are needed, one for each drafted node and one to emit"
        )
    if not ((coins >= 0) & (coins < 1)).all():
        raise ValueError("uniforms: allowed are numbers from 0 up to, not including, 1")
    return coins


def _check_rows(
    name: str, rows: Tensor | None, tree: Tree, used: np.ndarray, vocab: int | None = None
) -> None:
    """ValueError unless the rows `used` are distributions and the shape is [N + 1, vocab]."""
    shape, wanted = tuple(getattr(rows, "shape", ())), f"({tree.size + 1}, {vocab or 'vocabulary'})"
    if (
        len(shape) != 2
        or shape[0] != tree.size + 1
        or shape[1] != (vocab or shape[1])
        or rows.dtype not in (torch.float32, torch.float64)
    ):
        came = (
            "None"
            if rows is None
            else f"{getattr(rows, 'dtype', type(rows).__name__)} of shape {shape}"
        )
        raise ValueError(
            f"{name} is {came}: a float32 or float64 tensor of shape {wanted} is needed"
        )
    fine = (
        ((rows.amin(-1) >= 0) & ((rows.sum(-1) - 1).abs() < SUM_TOLERANCE)).cpu().numpy()[used]
    )  # false for NaN and infinity too
    if not fine.all():
        node = int(used[fine.argmin()])
        low, total = float(rows[node].min()), float(rows[node].double().sum())
        raise ValueError(
            f"{name} after node {node} has least {low:g} and sum {total:g}: finite numbers from 0 that sum to 1 are needed"
        )


def _check_drafted(rule: str, tree: Tree, ids: np.ndarray, vocab: int, q: Tensor | None) -> None:
    """ValueError unless the tokens exist, siblings differ and (given q) each could have been drawn
    from it.
    """
    parent, token = tree.parent[1:], ids[1:]
    if len(token) and (token.min() < 0 or token.max() >= vocab):
        raise ValueError(
            f"tokens run from {token.min()} to {token.max()}: allowed are 0 to {vocab - 1}"
        )
    if len(np.unique(parent * vocab + token)) < len(token):
        raise ValueError(
            f"tokens {token.tolist()} of nodes with parents {parent.tolist()}: children of a node must be different tokens"
        )
    if q is None or not len(token):
        return
    massive = (
        (q[torch.as_tensor(parent, device=q.device), torch.as_tensor(token, device=q.device)] > 0)
        .cpu()
        .numpy()
    )
    for node in 1 + np.flatnonzero(
        ~massive
    ):  # fine only if the better siblings had taken all that q allows
        above = (parent == tree.parent[node]) & (tree.rank[1:] < tree.rank[node])
        if int((q[tree.parent[node]] > 0).sum()) > massive[above].sum():
            came = f"node {node} has token {ids[node]}, to which q after node {tree.parent[node]} gives 0"
            raise ValueError(
                f"rule {rule!r}: {came}; draw children from it (draw_children), or take rule 'point-mass' for chosen ones"
            )


def _argmax(tree: Tree, scores: Tensor) -> np.ndarray:
    if scores.ndim != 2 or len(scores) != tree.size + 1 or bool(torch.isnan(scores).any()):
        raise ValueError(
            f"p has shape {tuple(scores.shape)}: scores without NaN of shape ({tree.size + 1}, vocabulary) are needed"
        )
    return rank_key(scores).argmax(-1).cpu().numpy()
