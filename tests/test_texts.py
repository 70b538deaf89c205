"""One `Text` and one resampling of prompts: against `stats.by_domain`, per seed, and by hand."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from cells import run_cells
from conftest import refuses
from frames import shipped

from speclab import replay, score, stats
from speclab.lab.texts import ANSWER, CLOSING, THINKING, Text, segments
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
    with refuses("short: 1 prompts are missing"):
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
    with refuses(said):
        Text.of(*map(recorded, kinds))


def test_a_chain_is_the_same_whatever_whole_number_asks_for_it(sampled):
    """A chain of drawn tokens follows the rejection rule, a tree of one branch the point-mass rule:
    two numbers.
    """
    drawn = sampled.chain(4)
    pd.testing.assert_frame_equal(sampled.chain(np.int64(4)), drawn)
    assert drawn["emitted"].sum() != sampled.tree(chain(4))["emitted"].sum()


@pytest.mark.parametrize(
    ("method", "shape"),
    [("chain", 4.0), ("chain", True), ("chain", "4"), ("tree", 4)],
)
def test_a_shape_that_the_rule_is_not_for_is_refused(greedy, method, shape):
    with refuses(r"gamma|tree="):
        getattr(greedy, method)(shape)


class Spelled:
    """A tokenizer of these strings, by id."""

    def __init__(self, *strings):
        self.strings = strings

    def batch_decode(self, many):
        return ["".join(self.strings[i] for i in ids) for ids in many]


def test_thinking_ends_with_the_closing_tag_whether_it_is_one_token_or_several():
    tokenizer = Spelled("so", "</think>", "</", "think", ">\n", "42", " </think")
    texts = {
        "one token": [0, 0, 1, 5, 5],
        "pieces": [2, 0, 2, 3, 4, 5],
        "cut while thinking": [0, 0, 2],
        "twice": [1, 5, 1, 5],
        "not the tag": [6, 5],
    }
    rows = [(n, p, t) for n, text in texts.items() for p, t in enumerate(text)]
    trace = pd.DataFrame(rows, columns=["prompt_id", "position", "token"])
    shuffled = trace.sample(frac=1, random_state=0)
    trace["segment"] = segments(shuffled, tokenizer)  # by the index
    found = trace.groupby("prompt_id")["segment"].agg(list).to_dict()
    assert {name: [str(one)[0] for one in each] for name, each in found.items()} == {
        "one token": [*"tttaa"],
        "pieces": [*"ttttta"],
        "cut while thinking": [*"nnn"],  # missing
        "twice": [*"taaa"],
        "not the tag": [*"nn"],
    }


def test_notebook_04_compares_both_parts_of_the_same_texts():
    """Six texts with an answer, whose tokens are right more often, and one that was cut."""
    texts = {f"p{i}": [0, 0, 1, 0, 0] for i in range(6)} | {"cut": [0] * 5}
    trace = pd.DataFrame(texts).melt(var_name="prompt_id", value_name="token", ignore_index=False)
    trace = trace.rename_axis("position").reset_index().assign(domain="math")
    trace["draft_rank"] = [0, 1, 1, 0, 0] * 3 + [0, 0, 1, 0, 1] * 3 + [0] * 5
    names = {"ANSWER": ANSWER, "CLOSING": CLOSING, "THINKING": THINKING, "segments": segments}
    names["runs"] = SimpleNamespace(tokenizer_of=lambda _: Spelled("so", "</think>"))
    names = run_cells(
        "04", "read = found", "read = found", found=SimpleNamespace(trace=trace), **names
    )
    of_parts, more = (names[name].at(domain="math") for name in ("numbers", "more"))
    assert of_parts.frame["estimate"].tolist() == pytest.approx([1 / 2, 3 / 4])
    assert more.value == pytest.approx(1 / 4) and more.row.low < 1 / 4 < more.row.high
