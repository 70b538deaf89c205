"""Claims and defects that need no pair, computed: formulas, and the article's pseudo-code. Each
number is exact. What is read off code, logs and tables stands in claims.yaml.
"""

import numpy as np

from speclab import cost
from speclab.analysis import rejection_rule
from speclab.analysis.claims import Claim, exact

PAPER_DEPTH, PAPER_NODES, ARTICLE_GAMMA = 3, 8, 4
COSTS = (0.02, 0.05, 0.1, 0.2, 0.29, 0.5, 1.0)  # c at which `threshold` is asked
# Three words that follow each other in a ring, so that every number can be checked by hand: overlap
# 0.7 after each.
P_TABLE = np.array([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5]])
Q_TABLE = np.array([[0.2, 0.5, 0.3], [0.3, 0.2, 0.5], [0.5, 0.3, 0.2]])


def pseudo_code(
    p: np.ndarray = P_TABLE, q: np.ndarray = Q_TABLE, gamma: int = PAPER_DEPTH
) -> dict[str, float]:
    """What the flaws of the article's pseudo-code cost on tables of next-word probabilities, exact:
    `residual` and `positions`, the total variation between what comes out and p; `bonus`, words per
    pass that are lost; `prompt-blind`, the total variation between q after the prompt's last word
    and q of a draft that sees no prompt (the mean of its rows: any word may have been the last).
    """
    first_p, first_q = p[0], q[0]  # of the word that follows word 0
    kept, late = rejection_rule.chance(first_p, first_q), rejection_rule.chance(np.diag(p), first_q)
    # a rejected place is drafted anew, nothing comes of the residual
    anew = first_q * kept / (first_q * kept).sum()
    misread = rejection_rule.emitted(first_q, late, rejection_rule.residual(first_p, first_q))
    lost = rejection_rule.survival(np.minimum(p, q), 0, gamma)[-1]
    return {
        "residual": float(rejection_rule.total_variation(anew, first_p)),
        "positions": float(rejection_rule.total_variation(misread, first_p)),
        "bonus": float(lost),
        "prompt-blind": float(rejection_rule.total_variation(q.mean(axis=0), first_q)),
    }


def best_token_output(p: np.ndarray = P_TABLE[0], q: np.ndarray = Q_TABLE[0]) -> np.ndarray:
    """Distribution of the word that comes out when the draft's best word is kept with min(1, p/q),
    as Eq. 1 has it, and else the word is drawn from the residual of the standard rule.
    """
    best = int(q.argmax())
    kept = rejection_rule.chance(p, q)[best]
    drawn = np.eye(len(q))[best]
    return kept * drawn + (1 - kept) * rejection_rule.residual(p, q)


def commitment(p: np.ndarray = P_TABLE, q: np.ndarray = Q_TABLE) -> float:
    """Acceptance of the second drafted token, the first one accepted, less that of a token drafted
    first at the same places (after the accepted words): all paths of two words.
    """
    kept = np.minimum(p, q)
    once, twice = rejection_rule.survival(kept, 0, 2)
    accepted = kept[0] / once  # which word was accepted
    return float(twice / once - accepted @ kept.sum(axis=1))


def necessary_length(c: float) -> float:
    """Accepted tokens per pass at which a draft of the paper's depth breaks even, v = 1."""
    return cost.block_cost(PAPER_DEPTH, c) - 1


def rows_without_pair(claim: Claim) -> list[dict]:
    """The rows of a claim about sources. KeyError: none is measured here."""
    if claim.value:
        return [exact(*claim.value)]
    if claim.id == "threshold":
        name = "accepted tokens at break-even - 1"
        return [exact(name, f"c {c:g}", necessary_length(c) - 1) for c in COSTS]
    away = rejection_rule.total_variation(best_token_output(), P_TABLE[0])
    numbers = pseudo_code() | {"eq1": away, "commitment": commitment()}
    # what the number of a defect is, its entry says
    name = claim.number if claim.decides == "defect" else "difference from the claim"
    return [exact(name, "three words", numbers[claim.id])]
