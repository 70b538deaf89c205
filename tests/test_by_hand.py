"""The rule by hand: hand-computed numbers, the same as speclab.verify says, and a wrong rule is
seen.
"""

import re

import numpy as np
import pytest
import torch

from speclab.analysis import by_hand as byhand
from speclab.cost import block_efficiency_iid
from speclab.profiles import ROOT
from speclab.tree import chain, static_tree
from speclab.verify import RULES

P = np.array([0.0, 0.5, 0.35, 0.05, 0.1])
Q = np.array([0.05, 0.3, 0.55, 0.05, 0.05])


def rows(seed, count=5):
    """`count` random distributions over as many words, some of them with zeros."""
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.full(count, 0.6), size=count) * (
        rng.random((count, count)) < 0.8
    ) + 1e-3 * np.eye(count)
    return table / table.sum(1, keepdims=True)


def test_one_row_by_hand():
    np.testing.assert_allclose(byhand.chance(P, Q), [0, 1, 7 / 11, 1, 1])
    np.testing.assert_allclose(byhand.residual(P, Q), [0, 0.8, 0, 0, 0.2])
    np.testing.assert_allclose(
        byhand.emitted(Q, byhand.chance(P, Q), byhand.residual(P, Q)), P, atol=1e-15
    )
    np.testing.assert_allclose(
        byhand.emitted(Q, byhand.chance(P, Q), P), [0, 0.425, 0.4375, 0.0625, 0.075]
    )
    assert byhand.total_variation(P, Q) == pytest.approx(0.25)


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_rule_of_verify_and_keeps_p(seed):
    p, q = rows(seed)[0], rows(seed + 100)[0]
    for token in np.flatnonzero(q):
        kept, left = RULES["rejection"].step(torch.from_numpy(p), torch.from_numpy(q), [int(token)])
        assert byhand.chance(p, q)[token] == pytest.approx(float(kept), abs=1e-12)
        np.testing.assert_allclose(byhand.residual(p, q), left.numpy(), atol=1e-12)
    np.testing.assert_allclose(
        byhand.emitted(q, byhand.chance(p, q), byhand.residual(p, q)), p, atol=1e-12
    )
    assert byhand.total_variation(byhand.emitted(q, byhand.chance(p, q), p), p) > 1e-3, (
        "the negative control: no residual"
    )


def test_equal_models_and_words_that_are_never_drafted():
    np.testing.assert_allclose(byhand.residual(P, P), P)
    one = np.array([1.0, 0, 0, 0, 0])
    np.testing.assert_allclose(byhand.chance(P, one), [0, 1, 1, 1, 1])
    np.testing.assert_allclose(
        byhand.residual(np.stack([P, one]), np.stack([Q, one])), [[0, 0.8, 0, 0, 0.2], one]
    )


def test_a_replacement_may_depend_on_the_rejected_word():
    q, kept = np.array([0.25, 0.75]), np.array([1.0, 0.0])
    np.testing.assert_allclose(byhand.emitted(q, kept, np.array([[0.0, 1.0], [1.0, 0.0]])), [1, 0])
    np.testing.assert_allclose(byhand.emitted(q, kept, np.array([0.5, 0.5])), [0.625, 0.375])


def test_running_error_by_hand():
    p = np.array([0.5, 0.5])
    np.testing.assert_allclose(
        byhand.running_error(np.array([0, 1, 1, 1]), p), [0.5, 0, 1 / 6, 0.25]
    )


def test_survival_is_a_sum_over_paths():
    p, q = rows(1), rows(2)
    both = np.minimum(p, q)
    found = byhand.survival(both, 3, 3)
    paths = [
        both[3, a] * both[a, b] * both[b, c] for a in range(5) for b in range(5) for c in range(5)
    ]
    assert found[0] == pytest.approx(both[3].sum()) and found[2] == pytest.approx(sum(paths))
    assert (np.diff(found) <= 0).all()
    same = np.tile(np.minimum(P, Q), (5, 1))
    assert 1 + byhand.survival(same, 0, 4).sum() == pytest.approx(block_efficiency_iid(0.75, 4)), (
        "equal overlaps: the i.i.d. formula"
    )


def test_best_tokens_follow_the_ranks():
    q = np.array([[0.1, 0.6, 0.3], [0.4, 0.2, 0.4], [0.2, 0.3, 0.5]])
    assert byhand.best_tokens(chain(3), q, 0).tolist() == [0, 1, 0, 1]
    assert byhand.best_tokens(static_tree(2, 2), q, 0).tolist() == [0, 1, 2, 0, 2, 2, 1], (
        "equal ones: the lower id first"
    )


def test_node_columns_of_a_tree():
    p, q = np.array([[0.2, 0.8], [0.5, 0.5]]), np.array([[0.9, 0.1], [0.3, 0.7]])
    found = byhand.node_columns(static_tree(2, 2, 3), p, q, 0)
    wanted = {
        "node": [1, 2, 3], "parent": [0, 0, 1], "depth": [1, 1, 2], "rank": [0, 1, 0], "best_path": [True, False, True],
        "token": [0, 1, 0], "draft_prob": [0.9, 0.1, 0.9], "target_prob": [0.2, 0.8, 0.2], "target_rank": [1, 0, 1],
    }  # fmt: skip
    assert {name: column.tolist() for name, column in found.items()} == wanted
    assert byhand.node_columns(chain(1), p, q, 1)["target_rank"].tolist() == [1], (
        "of equal ones the lower id ranks first"
    )


def test_the_notebook_introduces_every_term_of_the_glossary():
    terms = re.findall(
        r"\*\*(.+?)\*\*|`(.+?)`",
        "\n".join(
            line.split("|")[1]
            for line in (ROOT / "GLOSSARY.md").read_text(encoding="utf-8").splitlines()
            if line.startswith("|")
        ),
    )
    terms = ["".join(term) for term in terms]
    assert len(terms) > 30, "the glossary's tables were not read"
    text = (ROOT / "notebooks" / "00_by_hand.py").read_text(encoding="utf-8")
    bold = (
        " ".join(re.findall(r"\*\*(.+?)\*\*", re.sub(r"\n# ", " ", text))).lower().replace("`", "")
    )
    missing = [
        term for term in terms if not re.search(rf"(?<!\w){re.escape(term.lower())}(?!\w)", bold)
    ]
    assert not missing, f"introduce these in bold where they first appear in notebook 00: {missing}"
