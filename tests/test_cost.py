"""Cost model against worked numbers."""

import numpy as np
import pytest

from speclab import cost, tree


def test_leviathan_worked_numbers():
    assert cost.block_efficiency_iid(0.85, 4) == pytest.approx(3.71, abs=5e-3)
    iid = cost.speedup_standard(cost.block_efficiency_iid(0.85, 4), 4, 0.05)
    assert iid == pytest.approx(3.09, abs=5e-3)
    assert cost.speedup_standard(5, 4, 0.05) == pytest.approx(5 / 1.2)  # the ceiling: all accepted


def test_iid_block_efficiency_is_the_geometric_sum():
    for alpha in (0.0, 0.3, 0.999, 1.0):
        assert cost.block_efficiency_iid(alpha, 6) == pytest.approx(sum(alpha**i for i in range(7)))
    both = cost.block_efficiency_iid(np.array([0.5, 1.0]), np.array([1, 3]))
    np.testing.assert_allclose(both, [1.5, 4.0])


def test_standard_model_broadcasts():
    np.testing.assert_allclose(
        cost.speedup_standard(np.array([2.0, 3.0]), np.array([1, 2]), 0.5), [2 / 1.5, 3 / 2]
    )


def test_break_even_points_give_speedup_one():
    need = cost.block_cost(4, 0.29, verify=1.2, overhead=0.05)
    assert need == pytest.approx(4 * 0.29 + 1.25)
    standard = cost.block_cost(4, 0.29)
    assert cost.speedup_standard(standard, 4, 0.29) == pytest.approx(1)


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


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: cost.speedup_standard(2, 2, float("nan")), ["c is nan"]),
        (lambda: cost.block_efficiency_iid(1.2, 4), ["alpha is 1.2", "at most 1"]),
        (lambda: COSTS.v(np.array([2, 9])), ["9 tokens was not measured", "from 1 to 8"]),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize(
    ("verify", "drift", "words"),
    [
        ((1.0, 0.97, 1.4), 0.15, ""),
        ((1.0, 0.96, 0.92), 0.0, "be 8 % faster than"),
        ((1.0, 1.2, 1.4), 0.16, "uncertain by 16 %"),
    ],
)
def test_a_disturbed_clock_carries_no_verdict(verify, drift, words):
    """Too cheap a pass over several tokens, or two rounds that disagree, in whichever direction."""
    costs = cost.Costs(1.0, (1, 2, 4), (0.1,) * 3, verify, drift=drift)
    said = cost.disturbed(costs)
    assert words in said and bool(said) == bool(words)
