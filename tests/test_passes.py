"""Passes: a decoder's log and a replay's blocks are one frame; bounds for other gammas."""

from itertools import pairwise

import pandas as pd
import pytest
from conftest import refuses, write_rows
from frames import shipped
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from test_choose import trace_of
from test_log_gammas import without_order

from speclab import replay
from speclab.__main__ import main
from speclab.logs import logs, passes
from speclab.logs.passes import HITS, MISSES, Answer
from speclab.study.prompts import load_prompts


def test_tokens_after_the_end_are_cut_by_hand():
    answer = Answer("a", "code", [2, 0, 3], [3, 3, 3], tokens=6, before=1)
    frame = passes.count_by_answer([answer])[["start", "remaining", "accepted", "emitted"]]
    assert frame.to_numpy().tolist() == [[1, 5, 2, 3], [4, 2, 0, 1], [5, 1, 1, 1]]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"drafted": [3, 3]}, "'a': 3 passes by its accepted tokens and 2 by its drafted"),
        ({"accepted": [], "drafted": []}, "'a': 0 passes"),
        ({"accepted": [2, 4, 0]}, "'a': pass 1 accepts 4 of 3 drafted"),
        ({"tokens": 4}, "'a': pass 2 .* begins at token 4 of 4"),
    ],
)
def test_answers_that_do_not_fit_are_named(changed, message):
    facts = {"accepted": [2, 0, 3], "drafted": [3, 3, 3], "tokens": 6} | changed
    with refuses(message):
        passes.count_by_answer([Answer("a", "code", **facts)])


def test_a_decoder_s_log_and_a_replay_s_blocks_are_the_same_passes(tmp_path):
    rows = [
        {"prompt_id": one.prompt_id, "domain": one.domain, "prompt": one.text}
        for one in load_prompts("project", 2)
    ]
    prompts = write_rows(tmp_path / "prompts.jsonl", rows)
    words = ["decode", "--profile=tiny", "--set=device=cpu", "--shape=chain:3"]
    words += [
        "--prompts",
        str(prompts),
        "--out",
        str(tmp_path / "log.jsonl"),
    ]
    assert main(words) == 0
    decoded = logs.opened(tmp_path / "log.jsonl").passes
    trace = shipped("tiny", "greedy").trace
    blocks = replay.replay(trace[trace["prompt_id"].isin(decoded["prompt_id"])], 3)
    replayed = passes.passes_of_replay(blocks)
    # the decoder cannot know where a text ends, and drafts beyond it
    cut = decoded.assign(drafted=decoded[["drafted", "remaining"]].min(axis=1))
    assert_frame_equal(cut, replayed, check_dtype=False)
    assert (decoded["drafted"] >= replayed["drafted"]).all()


RANKS = st.lists(st.integers(0, 1), min_size=2, max_size=30)


@settings(max_examples=80, deadline=None)
@given(st.lists(RANKS, min_size=1, max_size=3), st.integers(1, 6), st.integers(1, 9))
def test_the_truth_of_another_gamma_lies_in_the_bounds(texts, gamma, other):
    """Also without the order of the passes, where the bounds are as wide or wider."""
    whole = trace_of({f"p{i}": ("code", ranks) for i, ranks in enumerate(texts)})
    log = passes.passes_of_replay(replay.replay(whole, gamma))
    kinds = without_order(log)
    ends = [(kinds, HITS), (log, HITS), (log, MISSES), (kinds, MISSES)]
    sums = [passes.sums_at(one, [other], unknown) for one, unknown in ends]
    sums.insert(2, replay.chain_sums(whole, [other]))
    blocks = [one.set_index("prompt_id")["blocks"] for one in sums]
    for fewer, more in pairwise(blocks):
        assert (fewer <= more).all()
    if other == gamma:  # its own gamma is known exactly
        assert (blocks[1] == blocks[3]).all()
    if (log["accepted"] + 1 == log["emitted"]).all():  # the end cuts no pass
        assert (blocks[3] == blocks[4]).all()
        if (gamma + 1) % (other + 1) == 0 and (log["drafted"] == gamma).all():
            assert (blocks[0] == blocks[4]).all(), "blocks end where the log's own do"


def test_bounds_at_a_long_draft_are_tight_and_turns_are_one_prompt():
    ranks = [0, 0, 1, 0, 1, 1, 0, 0, 0]
    whole = trace_of({"p": ("code", ranks)})
    log = passes.passes_of_replay(replay.replay(whole, 9))
    two = pd.concat([log, log.assign(turn=1)], ignore_index=True)
    for unknown in (HITS, MISSES):
        sums = passes.sums_at(two, [2], unknown)
        assert sums["blocks"].tolist() == (2 * replay.chain_sums(whole, [2])["blocks"]).tolist()


def test_the_heuristic_schedule_by_hand():
    drafted = passes.heuristic_drafted([5, 7, *[0] * 10])
    assert drafted == [5, 7, 9, 8, 7, 6, 5, 4, 3, 2, 1, 1]
    with refuses("pass 1 accepts 5 tokens where .* drafts 4"):
        passes.heuristic_drafted([0, 5])
