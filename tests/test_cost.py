"""Cost model against worked numbers."""

import numpy as np
import pytest

from speclab import cost


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


def test_standard_model_counts_verify_and_overhead():
    assert cost.speedup_standard(3.0, 4, 0.1) == pytest.approx(3 / 1.4)
    assert cost.speedup_standard(3.0, 4, 0.1, verify=1.5, overhead=0.1) == pytest.approx(3 / 2.0)
    np.testing.assert_allclose(
        cost.speedup_standard(np.array([2.0, 3.0]), np.array([1, 2]), 0.5), [2 / 1.5, 3 / 2]
    )


def test_break_even_points_give_speedup_one():
    need = cost.break_even_block_efficiency(4, 0.29, verify=1.2, overhead=0.05)
    assert need == pytest.approx(4 * 0.29 + 1.25)
    assert cost.speedup_standard(need, 4, 0.29, 1.2, 0.05) == pytest.approx(1)


def test_the_papers_condition_is_not_one():
    """E[L] = 0.9 accepted (tokens per pass 1.9) is faster with a cheap draft; 1.1 accepted is
    slower with a dear one.
    """
    assert cost.speedup_standard(1.9, 3, 0.05) > 1
    assert cost.speedup_standard(2.1, 3, 0.5) < 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: cost.speedup_standard(2, 2, float("nan")), ["c is nan"]),
        (lambda: cost.block_efficiency_iid(1.2, 4), ["alpha is 1.2", "at most 1"]),
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
        ((1.0, 0.96, 0.92), 0.0, "took 0.92 of one"),
        ((1.0, 1.2, 1.4), 0.16, "uncertain by 16%"),
    ],
)
def test_a_disturbed_clock_carries_no_verdict(verify, drift, words):
    """Too cheap a pass over several tokens, or two rounds that disagree, in whichever direction."""
    costs = cost.Costs(1.0, (1, 2, 4), (0.1,) * 3, verify, drift=drift)
    said = cost.disturbed(costs)
    assert words in said and bool(said) == bool(words)
