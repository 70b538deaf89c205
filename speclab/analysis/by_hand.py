"""The rule of speculative decoding in plain NumPy, for a vocabulary that fits on a page: what
notebook 00 computes by hand.

A model is a table: row = the last word, column = the next, so that p and q after a drafted token
are rows. The real thing, with all checks, is `speclab.verify`; the notebook and the tests hold both
against each other.
"""

import numpy as np

from speclab.tree import Tree


def chance(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Probability that a token drawn from q is kept: min(1, p/q) for each token; 1 where q = 0,
    which is never drawn.
    """
    return np.minimum(1.0, np.divide(p, q, out=np.ones_like(p, dtype=float), where=q > 0))


def residual(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """norm(max(p - q, 0)): where a token is drawn from after a rejection; p itself where p = q,
    which is never rejected. [..., vocab]
    """
    excess = np.maximum(p - q, 0.0)
    total = excess.sum(-1, keepdims=True)
    return np.where(total > 0, excess / np.where(total > 0, total, 1.0), p)


def emitted(q: np.ndarray, kept: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Distribution of the token that comes out when x is drawn from q, kept with probability
    kept[x], else replaced by a draw from `otherwise`, [vocab], or [vocab, vocab] where the
    replacement depends on x (row x).
    """
    return q * kept + (q * (1 - kept)) @ np.broadcast_to(otherwise, (len(q), len(q)))


def total_variation(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Half the summed absolute difference of two distributions over the last axis: the largest
    error of any event's probability.
    """
    return np.abs(a - b).sum(-1) / 2


def running_error(tokens: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Total variation between p and the shares of the first n of `tokens`, for n = 1, 2, …: float64
    [len(tokens)].
    """
    shares = np.eye(len(p))[tokens].cumsum(0) / np.arange(1, len(tokens) + 1)[:, None]
    return total_variation(shares, p)


def survival(kept: np.ndarray, last: int, gamma: int) -> np.ndarray:
    """`survival_by_depth` of a drafted chain after the word `last`: P(at least d accepted) for d =
    1..gamma, exact.

    kept[y, x]: probability that x is drawn after y and kept, which is min(p, q) for the rejection
    rule. A path's chance is a product of these, and the sum over all paths of a length a power of
    the matrix.
    """
    reached, found = np.eye(len(kept))[last], []
    for _ in range(gamma):
        reached = reached @ kept
        found.append(reached.sum())
    return np.array(found)


def best_tokens(tree: Tree, q: np.ndarray, last: int) -> np.ndarray:
    """The draft's best tokens on a tree after the word `last`: the child of rank r is its parent's
    r-th best; int64 [N + 1], root first.
    """
    order = np.argsort(-q, axis=-1, kind="stable")  # of equal ones the lower id first
    tokens = np.full(tree.size + 1, last)
    for node in range(1, tree.size + 1):
        tokens[node] = order[tokens[tree.parent[node]], tree.rank[node]]
    return tokens


def node_columns(tree: Tree, p: np.ndarray, q: np.ndarray, last: int) -> dict[str, np.ndarray]:
    """The columns of a `nodes` frame for a tree of the draft's best tokens after the word `last`:
    each [N], the root left out.
    """
    tokens = best_tokens(tree, q, last)
    above, token = tokens[tree.parent[1:]], tokens[1:]
    ranks = np.argsort(np.argsort(-p, axis=-1, kind="stable"), axis=-1)
    columns = {"node": np.arange(1, tree.size + 1)} | {
        name: getattr(tree, name)[1:] for name in ("parent", "depth", "rank", "best_path")
    }
    return columns | {
        "token": token,
        "draft_prob": q[above, token],
        "target_prob": p[above, token],
        "target_rank": ranks[above, token],
    }
