"""Claims and defects that need no pair: formulas, the authors' code and log, the article's example
and pseudo-code. Each number is exact.
"""

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd

from speclab import cost
from speclab.analysis import by_hand, published
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
    kept, late = by_hand.chance(first_p, first_q), by_hand.chance(np.diag(p), first_q)
    # a rejected place is drafted anew, nothing comes of the residual
    anew = first_q * kept / (first_q * kept).sum()
    misread = by_hand.emitted(first_q, late, by_hand.residual(first_p, first_q))
    lost = by_hand.survival(np.minimum(p, q), 0, gamma)[-1]
    return {
        "residual": float(by_hand.total_variation(anew, first_p)),
        "positions": float(by_hand.total_variation(misread, first_p)),
        "bonus": float(lost),
        "prompt-blind": float(by_hand.total_variation(q.mean(axis=0), first_q)),
    }


def best_token_output(
    p: np.ndarray = P_TABLE[0], q: np.ndarray = Q_TABLE[0]
) -> np.ndarray:
    """Distribution of the word that comes out when the draft's best word is kept with min(1, p/q),
    as Eq. 1 has it, and else the word is drawn from the residual of the standard rule.
    """
    best = int(q.argmax())
    kept = by_hand.chance(p, q)[best]
    drawn = np.eye(len(q))[best]
    return kept * drawn + (1 - kept) * by_hand.residual(p, q)


def commitment(p: np.ndarray = P_TABLE, q: np.ndarray = Q_TABLE) -> float:
    """Acceptance of the second drafted token, the first one accepted, less that of a token drafted
    first at the same places (after the accepted words): all paths of two words.
    """
    kept = np.minimum(p, q)
    once, twice = by_hand.survival(kept, 0, 2)
    accepted = kept[0] / once  # which word was accepted
    return float(twice / once - accepted @ kept.sum(axis=1))


def necessary_length(c: float) -> float:
    """Accepted tokens per pass at which a draft of the paper's depth breaks even, v = 1."""
    return cost.break_even_block_efficiency(PAPER_DEPTH, c) - 1


def amplification() -> float:
    """The power with which a ratio of acceptances comes back in E[L], from the printed numbers of
    chat and math: log of the ratio of E[L] over log of the ratio of alpha.
    """
    first = published.published("I").query("quantity == 'alpha_mean'")
    alpha = first.set_index("domain")["published"]
    length = published.published("II").set_index("domain")["published"]
    gaps = [np.log(one["chat"] / one["math"]) for one in (length, alpha)]
    return float(gaps[0] / gaps[1])


def root_children() -> float:
    """Children of the root in the published run's trees, from its counts of nodes by depth: trees
    are the nodes over 8.
    """
    cells = pd.read_csv(published.DATA / "run_alpha_by_depth_task.csv")
    counts = cells.groupby("depth")["count"].sum()
    return float(counts.loc[1] / (counts.sum() / PAPER_NODES))


def rows_without_pair(claim: Claim) -> list[dict]:
    """The rows of a claim about sources. KeyError: none is measured here."""
    name, row, number = EXACT[claim.id]
    if claim.id == "threshold":
        return [exact(name, f"c {c:g}", number(c)) for c in COSTS]
    return [exact(name, row, number(claim.fact))]


def _ceiling(fact: Mapping) -> float:
    """Printed best case less the standard one: every drafted token accepted, and the bonus."""
    best = speedup_iid(1.0, ARTICLE_GAMMA, fact["c"])
    return float(np.divide(*fact["printed"]) - best)


def _flaw(name: str, words: str = "total variation") -> tuple:
    return words, "three words", lambda fact: pseudo_code()[name]


# numbers that are exact, some read off the authors' code or log, or off the article's example:
# estimator, row, number (of the claim's `fact`; of `threshold` by c)
EXACT: Mapping[str, tuple[str, str, Callable]] = {
    "threshold": (
        "accepted tokens at break-even - 1",
        "c",
        lambda c: necessary_length(c) - 1,
    ),
    "eq1": (
        "total variation from p",
        "three words",
        lambda fact: by_hand.total_variation(best_token_output(), P_TABLE[0]),
    ),
    "cubic": ("power of the gap in E[L]", "chat, math", lambda fact: amplification()),
    "commitment": (
        "accepted deeper - accepted first, same places",
        "three words",
        lambda fact: commitment(),
    ),
    "top-k": ("children of the root", "counts", lambda fact: root_children()),
    "nan": (
        "alpha of a node without a number",
        "Python",
        lambda fact: min(1.0, float("nan")),
    ),
    "residual": _flaw("residual"),
    "positions": _flaw("positions"),
    "bonus": _flaw("bonus", "words per pass lost"),
    "prompt-blind": _flaw("prompt-blind"),
    "entropy-kind": (
        "share of rank correlations in the authors' code",
        "code",
        lambda fact: fact["rank_share"],
    ),
    "sampled-prompts": (
        "share of prompts drawn at random in the authors' code",
        "code",
        lambda fact: fact["drawn_at_random"],
    ),
    "run-time": ("hours in the log", "log", lambda fact: fact["seconds"] / 3600),
    "devices": (
        "GB on the second GPU in the log",
        "log",
        lambda fact: fact["second_gpu_gb"],
    ),
    "example": (
        "printed - formula",
        "340/112",
        lambda fact: np.divide(*fact["printed"]) - speedup_article(*fact["rule"]),
    ),
    "best-case": ("printed - standard model", "400/120", _ceiling),
}


def speedup_iid(alpha, gamma, c):
    """Leviathan et al.'s speed-up (arXiv:2211.17192, Theorem 3.8): block_efficiency_iid / (gamma c
    + 1).
    """
    return cost.speedup_standard(cost.block_efficiency_iid(alpha, gamma), gamma, c)


def speedup_article(e, target_ms, draft_ms):
    """The article's rule ('Speculative Decoding for Reasoning'): (e T) / (t e + T), e = gamma or
    alpha * gamma tokens.

    Kept for comparison: it counts neither the bonus token nor the drafts that are thrown away.
    """
    cost.within("e", e, 0, strict=True)
    cost.within("target_ms", target_ms, 0, strict=True)
    cost.within("draft_ms", draft_ms, 0)
    return e * target_ms / (draft_ms * e + target_ms)


def break_even_cost(block_efficiency, gamma):
    """The c at which the speed-up is 1, where v = 1 and the loop costs nothing; a dearer draft
    slows decoding.
    """
    cost.within("block_efficiency", block_efficiency, 1)
    return (block_efficiency - cost.break_even_block_efficiency(gamma, 0.0)) / gamma
