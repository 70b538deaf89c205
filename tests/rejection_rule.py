"""The rule of speculative decoding in plain NumPy, for a vocabulary that fits on a page: the tests
hold the decoder, the explorer and the claims to it.

A model is a table: its row is the last word, its column the next word. So p and q after a drafted
token are rows.
"""

import numpy as np


def chance(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Probability that a token drawn from q is kept: min(1, p/q) for each token. It is 1 where
    q = 0, because such a token is never drawn.
    """
    always = np.ones_like(p, dtype=float)
    ratio = np.divide(p, q, out=always, where=q > 0)
    return np.minimum(1.0, ratio)


def residual(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """norm(max(p - q, 0)), from which a token is drawn after a rejection; [..., vocab]. It is p
    itself where p = q, because nothing is rejected there.
    """
    excess = np.maximum(p - q, 0.0)
    total = excess.sum(-1, keepdims=True)
    never = total == 0
    share = excess / np.where(never, 1.0, total)
    return np.where(never, p, share)


def emitted(q: np.ndarray, kept: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    """Distribution of the output when x is drawn from q, kept with probability kept[x], and
    replaced by a draw from `otherwise` if it is rejected. `otherwise` is [vocab], or [vocab, vocab]
    if the replacement depends on x (row x).
    """
    rejected = q * (1 - kept)
    replaced = np.broadcast_to(otherwise, (len(q), len(q)))
    recovered = rejected @ replaced
    return q * kept + recovered


def total_variation(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Half the summed absolute difference of two distributions over the last axis. It is the
    largest difference in the probability of any event.
    """
    apart = np.abs(a - b)
    return apart.sum(-1) / 2


def survival(kept: np.ndarray, last: int, gamma: int) -> np.ndarray:
    """`survival_by_depth` of a drafted chain after the word `last`: P(at least d accepted) for d =
    1..gamma, exact.

    kept[y, x]: probability that x is drawn after y and kept; for the rejection rule it is min(p,
    q). A path's probability is a product of these, and the sum over all paths of one length is a
    power of the matrix.
    """
    reached = np.eye(len(kept))[last]
    found = []
    for _ in range(gamma):
        # [vocab]: P(all accepted so far, and the last one is this word)
        reached = reached @ kept
        found.append(reached.sum())
    return np.array(found)
