"""One `Text` and one resampling of prompts: against `stats.by_domain`, per seed, and by hand."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from frames import shipped

from speclab import replay, score, stats
from speclab.lab.texts import Text
from speclab.tree import chain

recorded = partial(shipped, "smollm")


@pytest.fixture(scope="module")
def greedy():
    return Text.of(recorded("greedy"))


@pytest.fixture(scope="module")
def sampled():
    kinds = ("sampled", "sampled-seed-1", "sampled-seed-2")
    return Text.of(*map(recorded, kinds))


def test_a_missing_prompt_is_said(greedy):
    short = greedy.trace[greedy.trace["prompt_id"] != "math-00"]
    assert len(short) < len(greedy.trace)
    asked = {"whole": (greedy.trace, greedy.acceptance), "short": (short, greedy.acceptance)}
    with pytest.raises(ValueError, match="short: 1 prompts are missing"):
        stats.jointly(asked, n=10)
    apart = stats.jointly(asked, same=False, n=10)
    left = short.groupby("domain")["hit"].mean()
    assert apart["short"].loc[0, "math"] == pytest.approx(left["math"])


def test_what_cannot_be_had_is_missing_and_says_why(greedy):
    nothing = score.ratio_of("zero", "zero")
    frame = greedy.trace.assign(zero=0.0)
    row = stats.jointly({"none": (frame, nothing)}, n=10).table().frame.iloc[0]
    assert np.isnan(row["estimate"]) and row["note"] == stats.NO_INTERVAL
    lost = stats.jointly({"none": (frame.drop(columns="hit"), greedy.acceptance)}, n=10)
    assert "no column ['hit']" in lost.notes["none"]
    assert lost.table().frame["note"].eq(lost.notes["none"]).all()


def test_seeds_are_texts_of_one_prompt(sampled):
    assert sampled.trace["seed"].nunique() == 3
    run = recorded("sampled-seed-1")
    _, blocks, _ = (rows for _, rows in sampled.chain(3).groupby("seed", sort=False))
    found = blocks.drop(columns="seed").reset_index(drop=True)
    pd.testing.assert_frame_equal(found, replay.replay_sampled(run.trace, 3))


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (("greedy", "sampled"), r"temperatures \[0.0, 1.0\]"),
        (("sampled", "sampled-seed-1", "sampled"), r"seeds \[42, 1, 42\]"),
    ],
)
def test_texts_that_would_be_mixed_are_refused(kinds, said):
    with pytest.raises(ValueError, match=said) as refused:
        Text.of(*map(recorded, kinds))
    assert "\n" not in str(refused.value)


def test_a_chain_is_the_same_whatever_whole_number_asks_for_it(sampled):
    """A chain of drawn tokens follows the rejection rule, a tree of one branch the point-mass rule:
    two numbers.
    """
    short = sampled.cut(8)
    drawn = short.chain(4)
    pd.testing.assert_frame_equal(short.chain(np.int64(4)), drawn)
    assert drawn["emitted"].sum() != short.tree(chain(4))["emitted"].sum()


@pytest.mark.parametrize(
    ("method", "shape"),
    [("chain", 4.0), ("chain", True), ("chain", "4"), ("tree", 4)],
)
def test_a_shape_that_the_rule_is_not_for_is_refused(greedy, method, shape):
    with pytest.raises(ValueError, match=r"gamma|tree=") as refused:
        getattr(greedy.cut(4), method)(shape)
    assert "\n" not in str(refused.value)
