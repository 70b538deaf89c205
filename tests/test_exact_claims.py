"""The exact numbers of claims.yaml, each recomputed by enumeration, from the printed tables, or
from the article's example.
"""

from itertools import product

import numpy as np
import pandas as pd
import pytest
import rejection_rule
import yaml

from speclab import cost
from speclab.lab import published

CLAIMS = yaml.safe_load((published.DATA / "claims.yaml").read_text("utf-8"))
VALUES = {claim["id"]: claim["values"] for claim in CLAIMS if "values" in claim}
STATED = {name: [value for *_, value in values] for name, values in VALUES.items()}
# Three words that follow each other in a ring, so that every number can be checked by hand: overlap
# 0.7 after each.
P = np.array([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5]])
Q = np.array([[0.2, 0.5, 0.3], [0.3, 0.2, 0.5], [0.5, 0.3, 0.2]])


def flaws(p, q):
    """What the flaws of the article's pseudo-code cost: total variation between what comes out and
    p, without a residual draw and with p read one place late; words per pass that are lost without
    the bonus; total variation between q and q of a draft that sees no prompt (any word may have
    been the last); and between what comes out and p, if q's best word is checked as if it were
    drawn.
    """
    first_p, first_q = p[0], q[0]  # of the word that follows word 0
    own = rejection_rule.chance(first_p, first_q)
    kept = first_q * own
    late = rejection_rule.chance(np.diag(p), first_q)
    residual = rejection_rule.residual(first_p, first_q)
    misread = rejection_rule.emitted(first_q, late, residual)
    best = np.eye(len(q))[first_q.argmax()]
    checked = rejection_rule.emitted(best, own, residual)
    return {
        "residual": rejection_rule.total_variation(kept / kept.sum(), first_p),
        "positions": rejection_rule.total_variation(misread, first_p),
        "bonus": rejection_rule.survival(np.minimum(p, q), 0, 3)[-1],
        "prompt-blind": rejection_rule.total_variation(q.mean(axis=0), first_q),
        "eq1": rejection_rule.total_variation(checked, first_p),
    }


def test_flaws_of_the_pseudo_code():
    for name, number in flaws(P, Q).items():
        assert STATED[name] == [pytest.approx(number)]
    right = flaws(P, P)
    assert (right["residual"], right["bonus"]) == pytest.approx((0, 1)), "the negative control"


@pytest.mark.parametrize("tables", [(P, Q), np.random.default_rng(0).dirichlet(np.ones(5), (2, 5))])
def test_a_token_drafted_deeper_is_accepted_as_often_as_one_drafted_first_there(tables):
    """All paths of two words: acceptance of the second word given the first, minus acceptance of a
    word that is drafted first after the accepted words.
    """
    kept = np.minimum(*tables)
    words = range(len(kept))
    paths = [kept[0, one] * kept[one, two] for one, two in product(words, words)]
    accepted = kept[0] / kept[0].sum()
    deeper = sum(paths) / kept[0].sum()
    assert STATED["commitment"] == [pytest.approx(deeper - accepted @ kept.sum(axis=1), abs=1e-12)]


def test_what_breaks_even_depends_on_the_cost():
    for what, row, stated in VALUES["threshold"]:
        c = float(row.removeprefix("c "))
        block = cost.Costs.assumed(c).of_chain(3)
        assert stated + 1 == pytest.approx(block), f"{what} at {row}: no gain and no loss"


def test_what_is_read_off_follows_from_tables_logs_and_the_example():
    alpha = published.published("I").query("quantity == 'alpha_mean'")
    printed = [alpha, published.published("II")]
    tables = [rows.set_index("domain")["published"] for rows in printed]
    of_alpha, of_length = (np.log(table["chat"] / table["math"]) for table in tables)
    cells = pd.read_csv(published.DATA / "run_alpha_by_depth_task.csv")
    nodes = cells.groupby("depth")["count"].sum()
    accepted, target_ms, draft_ms = 0.85 * 4, 100, 5
    rule = accepted * target_ms / (draft_ms * accepted + target_ms)
    numbers = {
        "cubic": of_length / of_alpha,
        "top-k": nodes[1] / (nodes.sum() / 8),
        "missing": min(1.0, float("nan")),
        "run-time": 11027 / 3600,
        "example": 340 / 112 - rule,
        "best-case": 400 / 120 - 5 / cost.Costs.assumed(draft_ms / target_ms).of_chain(4),
    } | dict.fromkeys(["entropy-kind", "sampled-prompts", "devices"], 0)
    for name, number in numbers.items():
        assert STATED[name] == [pytest.approx(number, abs=5e-4)], name
    elsewhere = {*flaws(P, Q), "commitment", "threshold"}
    assert {*numbers, *elsewhere} == {*STATED}, "each is computed here"
