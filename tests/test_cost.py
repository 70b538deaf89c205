"""Cost model against worked numbers."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import refuses

from speclab import cost, tree

COSTS = cost.Costs(10.0, (1, 2, 4, 8), (0.2, 0.2, 0.22, 0.3), (1, 1.02, 1.1, 1.3), 0.1, 0.4)


def test_every_block_costs_its_passes_and_the_loop():
    assert COSTS.of_block(tree.chain(4)) == pytest.approx(4 * 0.2 + COSTS.v(5) + 0.1)
    drafted, passes = np.array([[0, 1], [3, 7]]), np.array([[1, 1], [4, 0]])
    chains = COSTS.of_chain(drafted, passes)  # a rule looked at one more token; the last is a copy
    first, second = [0.2 + 1 + 0.1, 0.2 + 1.02 + 0.1], [4 * 0.2 + 1.1 + 0.1, 1.3 + 0.1]
    np.testing.assert_allclose(chains, [first, second])
    assert COSTS.of_chain(drafted)[1, 1] == pytest.approx(7 * 0.2 + 1.3 + 0.1)
    static = COSTS.of_block(tree.static_tree(2, 2, 4))  # a pass over the root, one over two nodes
    assert static == pytest.approx(0.2 + 0.2 + COSTS.v(5) + 0.4)


def test_a_request_in_a_batch_pays_its_share_of_the_batch():
    """Passes are b times as wide, the loop is made once, and the unit is a pass over b tokens."""
    of_4 = replace(COSTS, batch=4)
    assert of_4.of_chain(1) == pytest.approx((0.22 + 1.3 + 0.1) / 1.1)


def test_leviathans_example_and_its_ceiling():
    """alpha 0.85 and c = 0.05 (arXiv:2211.17192): a chain of 4 is 3.09 times as fast."""
    block = cost.Costs.assumed(0.05).of_chain(4)
    assert sum(0.85**i for i in range(5)) / block == pytest.approx(3.09, abs=5e-3)
    assert 5 / block == pytest.approx(5 / 1.2), "all accepted"


def test_bad_input_is_named():
    with refuses("9 tokens was not measured: sizes run from 1 to 8"):
        COSTS.v(np.array([2, 9]))
    for wrong in ({"draft": (float("nan"),) * 4}, {"sizes": (1, 4, 2, 8)}, {"target_ms": 0.0}):
        with refuses("ratios from 0, and ascending sizes from 1"):
            replace(COSTS, **wrong)


@pytest.mark.parametrize(
    ("draft", "verify", "drift", "words"),
    [
        (0.1, (1.0, 0.97, 1.4), 0.15, ""),
        (0.1, (1.0, 0.96, 0.92), 0.0, "be 8 % faster than"),
        (0.1, (1.0, 1.2, 1.4), 0.16, "uncertain by 16 %"),
        (0.139, (1.0, 1.2, 1.4), 0.0, "28 % faster"),
    ],
)
def test_a_disturbed_clock_carries_no_verdict(draft, verify, drift, words):
    """Too cheap a pass over several tokens, or two rounds that disagree, in whichever direction."""
    costs = cost.Costs(1.0, (1, 2, 4), (draft, 0.1, 0.1), verify, drift=drift)
    said = cost.disturbed(costs)
    assert words in said and bool(said) == bool(words)
