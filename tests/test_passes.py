"""Passes: a decoder's steps, a replay's blocks and a log are one frame; bounds for other gammas."""

import json

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from test_choose import trace_of

from speclab import replay
from speclab.__main__ import main
from speclab.decode import decode_prompt
from speclab.logs import logs, passes
from speclab.logs.passes import HITS, MISSES, Answer
from speclab.sampling import Sampling
from speclab.shapes import Shape
from speclab.study.profiles import ROOT
from speclab.study.prompts import encode_prompts, load_prompts
from speclab.study.runs import load_run
from speclab.tree import chain


def test_tokens_after_the_end_are_cut_by_hand():
    answer = Answer("a", "code", [2, 0, 3], [3, 3, 3], tokens=6, before=1)
    frame = passes.count_by_answer([answer])
    assert frame["start"].tolist() == [1, 4, 5]
    assert frame["remaining"].tolist() == [5, 2, 1]
    assert frame["accepted"].tolist() == [2, 0, 1]
    assert frame["emitted"].tolist() == [3, 1, 1]


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
    with pytest.raises(ValueError, match=message):
        passes.count_by_answer([Answer("a", "code", **facts)])


def test_a_decoder_s_steps_a_replay_s_blocks_and_both_logs_are_the_same_passes(tiny_pair, tmp_path):
    gamma, shipped = 3, ROOT / "data" / "traces" / "tiny" / "greedy"
    prompts = load_prompts("project", 2)
    names = [prompt.prompt_id for prompt in prompts]
    trace = load_run(shipped).trace
    blocks = replay.replay(trace[trace["prompt_id"].isin(names)], gamma)
    replayed = passes.passes_of_replay(blocks)

    steps = []
    for prompt in encode_prompts(tiny_pair.tokenizer, prompts, 512):
        shape = Shape(chain(gamma))
        text = decode_prompt(tiny_pair, prompt, "greedy", shape, Sampling(), 64)
        drafted = [step.drafted for step in text.steps]
        accepted = [step.accepted for step in text.steps]
        steps.append(
            Answer(prompt.prompt_id, prompt.domain, accepted, drafted, len(text.token_ids))
        )
    decoded = passes.count_by_answer(steps)

    lines = "".join(f"{prompt_line(prompt)}\n" for prompt in prompts)
    (tmp_path / "prompts.jsonl").write_text(lines, encoding="utf-8")
    words = f"decode --profile tiny --set device=cpu --shape chain:{gamma}".split()
    places = ["--prompts", str(tmp_path / "prompts.jsonl"), "--out", str(tmp_path / "log.jsonl")]
    assert main([*words, *places]) == 0
    written = logs.opened(tmp_path / "log.jsonl").passes
    logs.save(logs.opened(tmp_path / "log.jsonl"), tmp_path / "folder")
    kept = logs.read_folder(tmp_path / "folder").passes

    assert_frame_equal(written, decoded)
    assert_frame_equal(kept, decoded)
    # the decoder cannot know where a text ends, and drafts beyond it
    cut = decoded.assign(drafted=decoded[["drafted", "remaining"]].min(axis=1))
    assert_frame_equal(cut, replayed, check_dtype=False)
    assert (decoded["drafted"] >= replayed["drafted"]).all()


def prompt_line(prompt):
    """A prompt as a line of a prompts file."""
    facts = {"prompt_id": prompt.prompt_id, "domain": prompt.domain, "prompt": prompt.text}
    return json.dumps(facts)


def test_sums_are_those_of_the_replay():
    whole = trace_of(
        {"a": ("code", [0, 0, 1, 0, 0, 0]), "b": ("code", [1, 1]), "c": ("code", [0] * 9)}
    )
    blocks = replay.replay(whole, 3)
    sums = passes.sums_by_request(passes.passes_of_replay(blocks))
    assert_frame_equal(sums, replay.prompt_sums(blocks)[[*sums]], check_dtype=False)


RANKS = st.lists(st.integers(0, 1), min_size=2, max_size=30)


@settings(max_examples=60, deadline=None)
@given(st.lists(RANKS, min_size=1, max_size=3), st.integers(1, 6), st.integers(1, 9))
def test_the_truth_of_another_gamma_lies_in_the_bounds(texts, gamma, other):
    whole = trace_of({f"p{i}": ("code", ranks) for i, ranks in enumerate(texts)})
    log = passes.passes_of_replay(replay.replay(whole, gamma))
    truth = replay.chain_sums(whole, [other]).set_index("prompt_id")["blocks"]
    least, most = (
        passes.sums_at(log, [other], unknown).set_index("prompt_id")["blocks"]
        for unknown in (HITS, MISSES)
    )
    assert ((least <= truth) & (truth <= most)).all()
    if other == gamma:  # its own gamma is known exactly
        assert (least == most).all()


def test_bounds_at_a_long_draft_are_tight_and_turns_are_one_prompt():
    ranks = [0, 0, 1, 0, 1, 1, 0, 0, 0]
    whole = trace_of({"p": ("code", ranks)})
    log = passes.passes_of_replay(replay.replay(whole, 9))
    two = pd.concat([log, log.assign(turn=1)], ignore_index=True)
    for unknown in (HITS, MISSES):
        sums = passes.sums_at(two, [2], unknown)
        assert sums["blocks"].tolist() == (2 * replay.chain_sums(whole, [2])["blocks"]).tolist()


def test_the_heuristic_schedule_by_hand():
    assert passes.heuristic_drafted([5, 7, 0, 3]).tolist() == [5, 7, 9, 8]
    assert passes.heuristic_drafted([0] * 7).tolist() == [5, 4, 3, 2, 1, 1, 1]
    with pytest.raises(ValueError, match="pass 1 accepts 5 tokens where .* drafts 4"):
        passes.heuristic_drafted([0, 5])
