"""Notebook 00's study: hand-computed numbers equal speclab.verify's; a wrong rule is detected."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from speclab import score
from speclab.analysis.rejection_rule import (
    chance,
    emitted,
    residual,
    survival,
    total_variation,
)
from speclab.cost import block_efficiency_iid
from speclab.studies import by_hand as study
from speclab.tree import chain, static_tree
from speclab.verify import RULES, Verdict

P = np.array([0.0, 0.5, 0.35, 0.05, 0.1])
Q = np.array([0.05, 0.3, 0.55, 0.05, 0.05])


def rows(seed, count=5):
    """`count` random distributions over as many words, some of them with zeros."""
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.full(count, 0.6), size=count)
    table = table * (rng.random((count, count)) < 0.8) + 1e-3 * np.eye(count)
    return table / table.sum(1, keepdims=True)


def test_one_row_by_hand():
    kept, left = chance(P, Q), residual(P, Q)
    assert_allclose(kept, [0, 1, 7 / 11, 1, 1])
    assert_allclose(left, [0, 0.8, 0, 0, 0.2])
    assert_allclose(emitted(Q, kept, left), P, atol=1e-15)
    assert_allclose(emitted(Q, kept, P), [0, 0.425, 0.4375, 0.0625, 0.075])
    assert total_variation(P, Q) == pytest.approx(0.25)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_rule_of_verify_and_keeps_p(seed):
    p, q = rows(seed)[0], rows(seed + 100)[0]
    kept, left = chance(p, q), residual(p, q)
    both = torch.from_numpy(p), torch.from_numpy(q)
    for token in np.flatnonzero(q):
        its_chance, its_residual = RULES["rejection"].step(*both, [int(token)])
        assert kept[token] == pytest.approx(float(its_chance), abs=1e-12)
        assert_allclose(left, its_residual.numpy(), atol=1e-12)
    assert_allclose(emitted(q, kept, left), p, atol=1e-12)
    assert total_variation(emitted(q, kept, p), p) > 1e-3, "the control: no residual"


def test_equal_models_and_words_that_are_never_drafted():
    one = np.array([1.0, 0, 0, 0, 0])
    assert_allclose(chance(P, one), [0, 1, 1, 1, 1])
    wanted = [P, [0, 0.8, 0, 0, 0.2], one]
    assert_allclose(residual(np.stack([P, P, one]), np.stack([P, Q, one])), wanted)


def test_a_replacement_may_depend_on_the_rejected_word():
    q, kept = np.array([0.25, 0.75]), np.array([1.0, 0.0])
    assert_allclose(emitted(q, kept, np.array([[0.0, 1.0], [1.0, 0.0]])), [1, 0])
    assert_allclose(emitted(q, kept, np.array([0.5, 0.5])), [0.625, 0.375])


def test_survival_is_a_sum_over_paths():
    both = np.minimum(rows(1), rows(2))
    first, _, third = survival(both, 3, 3)
    assert first == pytest.approx(both[3].sum())
    assert third == pytest.approx(np.einsum("a,ab,bc->", both[3], both, both))
    same = np.tile(np.minimum(P, Q), (5, 1))
    iid = block_efficiency_iid(0.75, 4)
    assert 1 + survival(same, 0, 4).sum() == pytest.approx(iid), "equal overlaps"


def test_node_columns_of_a_tree():
    p, q = np.array([[0.2, 0.8], [0.5, 0.5]]), np.array([[0.9, 0.1], [0.3, 0.7]])
    found = study.node_columns(static_tree(2, 2, 3), p, q, 0)
    wanted = {
        "node": [1, 2, 3],
        "parent": [0, 0, 1],
        "depth": [1, 1, 2],
        "rank": [0, 1, 0],
        "best_path": [True, False, True],
        "token": [0, 1, 0],
        "draft_prob": [0.9, 0.1, 0.9],
        "target_prob": [0.2, 0.8, 0.2],
        "target_rank": [1, 0, 1],
    }
    assert {name: column.tolist() for name, column in found.items()} == wanted
    assert study.node_columns(chain(1), p, q, 1)["target_rank"].tolist() == [1], (
        "of equal ones the lower id ranks first"
    )


# ---- what notebook 00 lays out -------------------------------------------------------------------

P_TABLE, Q_TABLE = np.tile(P, (5, 1)), np.tile(Q, (5, 1))


def test_verify_decides_as_the_coins_do():
    written = [
        (4, [0, 2, 3], [0.3, 0.0, 0.5, 0.0]),  # p is 0 after any word
        (1, [1, 2, 3], [0.9, 0.6, 0.9, 0.2]),  # 0.6 < 7/11
        (1, [1, 2, 3], [0.9, 0.65, 0.9, 0.2]),
    ]
    steps = [study.block(P_TABLE, Q_TABLE, *one) for one in written]
    assert [(s.accepted, s.drafted, s.kind, len(s.tokens)) for s in steps] == [
        (0, 3, "recovered", 1),
        (3, 3, "bonus", 4),
        (1, 3, "recovered", 2),
    ]
    # rejected by the second coin: the third picks from 1 (0.8) and 4 (0.2), the last does not
    for third, last, word in ((0.5, 0.9, 1), (0.9, 0.5, 4)):
        step = study.block(P_TABLE, Q_TABLE, 1, [1, 2, 3], [0.9, 0.65, third, last])
        assert step.tokens == (1, word)


@pytest.mark.parametrize("name", study.NAMES)
def test_the_exact_limit_of_each_rule(name):
    limit = study.exact_limit(name, P, Q)
    assert limit.sum() == pytest.approx(1)
    assert np.allclose(limit, P) == RULES[name].lossless
    came = study.first_words(name, P, Q, 2000, np.random.default_rng(0))
    shares = np.bincount(came, minlength=5) / 2000
    assert total_variation(shares, limit) < 0.05


def test_what_a_tree_gives_is_said_in_words():
    """The best path, another path, and no path at all."""
    tree, words = static_tree(2, 2), list("abcd")
    labels = ["a", "b", "c", "d", "a", "b", "c"]
    texts = [
        study.verdict_in_words(tree, Verdict(path, 3, kind, 2), labels, words)
        for path, kind in (((1, 3), "bonus"), ((1, 4), "bonus"), ((), "recovered"))
    ]
    begins = [text.partition(". ")[0] for text in texts]
    assert begins == [
        "The target accepts *b d* and adds the bonus word *d*",
        "The target accepts *b a* and adds the bonus word *d*",
        "The target accepts no drafted word and adds the recovered word *d*",
    ]
    ends = [text.rpartition("would give ")[2] for text in texts]
    assert ends == ["3 words.", "2 words.", "1 word."]


def test_records_of_a_tree_hung_on_every_word():
    nodes, trace = study.records(static_tree(3, 2, 8), P_TABLE, Q_TABLE)
    assert len(nodes) == 5 * 8 and len(trace) == 5
    assert score.alpha(trace) == pytest.approx(0.75)
    assert score.hit(trace).head(2).tolist() == [0, 1]
    assert score.top_mass(trace)[1] == pytest.approx(0.35)
    # the target's best word is the draft's second, three deep: 2 + 4 + 2 nodes hold it at depth 2
    tree = score.tree_estimators("greedy")
    assert tree["survival_by_depth"](nodes)[1] == 1
    assert tree["block_efficiency"](nodes) == 3
