"""What needs no pair, against enumeration, the printed tables and numbers by hand."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest

from speclab import cost
from speclab.analysis import claims, published, rejection_rule
from speclab.analysis.claims import NO_CONDITION, SOURCES
from speclab.studies.paper_audit import formulas, measures

LISTED = claims.claims()
SOURCE_CLAIMS = {name: one for name, one in LISTED.items() if one.about == SOURCES}


def verdict_of(name, **changes):
    """The verdict on a claim as it is listed, or changed."""
    listed = {name: replace(LISTED[name], **changes)}
    return claims.verdict(listed[name], measures.of_sources(listed))


# ---- the article's pseudo-code -------------------------------------------------------------------


def test_pseudo_code_by_hand():
    found = formulas.pseudo_code()
    # after word 0: p = .5 .3 .2, q = .2 .5 .3, kept .2 .3 .2 of it
    expected = (0.5 - 2 / 7 + 3 / 7 - 0.3 + 2 / 7 - 0.2) / 2
    assert found["residual"] == pytest.approx(expected)
    # every word has p = 0.5 in its own place: all are kept, q comes out
    assert found["positions"] == pytest.approx(0.3)
    assert found["bonus"] == pytest.approx(0.7**3)
    # the rows of q are each other's rotations, so that their mean is 1/3: .2 .5 .3 is away by 1/6
    assert found["prompt-blind"] == pytest.approx(1 / 6)


def test_the_right_procedure_has_none_of_the_flaws():
    """The negative control: a draft equal to its target loses nothing but the bonus token."""
    found = formulas.pseudo_code(formulas.P_TABLE, formulas.P_TABLE, gamma=2)
    assert (found["residual"], found["bonus"]) == pytest.approx((0.0, 1.0))


# ---- Eq. 1 on the best token ---------------------------------------------------------------------


def test_what_comes_out_of_the_best_token_by_hand():
    """q's best word is 1 (p 0.3, q 0.5): kept in 0.6; else the residual, which is word 0 alone."""
    np.testing.assert_allclose(formulas.best_token_output(), [0.4, 0.6, 0.0])
    assert verdict_of("eq1") == "does not hold"
    (row,) = formulas.rows_without_pair(LISTED["eq1"])
    assert row["estimate"] == pytest.approx((0.1 + 0.3 + 0.2) / 2)


def test_a_drawn_token_gives_the_targets_distribution_where_the_best_does_not():
    """All outcomes one by one: the word drawn from q, or q's best; kept, or replaced."""
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(4), 2)
    kept, other = np.minimum(1, p / q), np.maximum(p - q, 0)
    other = other / other.sum()
    for drawn, expected in ((q, p), (np.eye(4)[q.argmax()], formulas.best_token_output(p, q))):
        came = np.zeros(4)
        for word, instead in product(range(4), repeat=2):
            chance = drawn[word] * other[instead]
            came[word] += chance * kept[word]
            came[instead] += chance * (1 - kept[word])
        np.testing.assert_allclose(came, expected)
    assert rejection_rule.total_variation(formulas.best_token_output(p, q), p) > 0.01


# ---- context commitment --------------------------------------------------------------------------


def test_a_token_drafted_deeper_is_accepted_as_often_as_one_drafted_first_there():
    """Any tables: 0. A draft that knew at depth 2 what it had drafted would not be this one."""
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(5), (2, 5))
    assert formulas.commitment(p, q) == pytest.approx(0.0)
    kept = np.minimum(p, q)
    paths = {pair: kept[0, pair[0]] * kept[pair] for pair in product(range(5), repeat=2)}
    once = kept[0] @ kept.sum(axis=1) / kept[0].sum()
    given = sum(paths.values()) / kept[0].sum()
    deeper = given - once
    assert deeper == pytest.approx(0.0) and given != pytest.approx(kept[0].sum())
    assert verdict_of("commitment") == "does not hold"


# ---- lengths, thresholds, counts -----------------------------------------------------------------


def test_what_breaks_even_depends_on_the_cost():
    assert formulas.necessary_length(0.29) == pytest.approx(0.87)
    assert formulas.necessary_length(0.05) == pytest.approx(0.15)
    rows = formulas.rows_without_pair(LISTED["threshold"])
    for row, c in zip(rows, formulas.COSTS, strict=True):
        assert row["estimate"] == pytest.approx(3 * c - 1)
        block = cost.speedup_standard(row["estimate"] + 2, 3, c)
        assert block == pytest.approx(1.0), "no gain and no loss there"
    assert verdict_of("threshold") == NO_CONDITION


# ---- what is read off ----------------------------------------------------------------------------


def test_the_numbers_that_are_read_off_follow_from_tables_logs_and_the_example():
    """By claim: the number that claims.yaml states, from its sources."""
    alpha = published.published("I").query("quantity == 'alpha_mean'")
    alpha, length = (
        rows.set_index("domain")["published"] for rows in (alpha, published.published("II"))
    )
    gaps = [np.log(one["chat"] / one["math"]) for one in (length, alpha)]
    cells = pd.read_csv(published.DATA / "run_alpha_by_depth_task.csv")
    counts = cells.groupby("depth")["count"].sum()
    e, target_ms, draft_ms = 0.85 * 4, 100, 5
    rule = e * target_ms / (draft_ms * e + target_ms)
    best = cost.speedup_standard(5.0, 4, draft_ms / target_ms)
    numbers = {
        "cubic": gaps[0] / gaps[1],
        "top-k": counts.loc[1] / (counts.sum() / formulas.PAPER_NODES),
        "nan": min(1.0, float("nan")),
        "run-time": 11027 / 3600,
        "example": 340 / 112 - rule,
        "best-case": 400 / 120 - best,
    } | dict.fromkeys(["entropy-kind", "sampled-prompts", "devices"], 0)
    stated = {name: one.value[2] for name, one in LISTED.items() if one.value}
    assert stated == pytest.approx(numbers, abs=5e-4)
    assert verdict_of("cubic") == verdict_of("top-k") == "does not hold"
    assert verdict_of("top-k", region=(1.5, 2.5)) == "holds"


def test_every_claim_of_sources_is_measured_and_exact():
    assert len(SOURCE_CLAIMS) > 10
    for one in SOURCE_CLAIMS.values():
        for row in formulas.rows_without_pair(one):
            assert row["estimate"] == row["low"] == row["high"], one.id
    with pytest.raises(KeyError, match="gap"):
        formulas.rows_without_pair(LISTED["gap"])
