"""The atlas: the shipped file gives the published numbers and its sources' own counts."""

import json

import pandas as pd
import pytest
from conftest import refuses

from data.atlas import prepare
from speclab.logs import atlas, logs, passes
from speclab.study.profiles import ROOT

SHARED = ROOT.parent / "shared"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="needs the public runs in ../shared")


# ---- the shipped file ----------------------------------------------------------------------------


@pytest.mark.parametrize(("run", "expected"), [("eagle", 3.579), ("medusa", 2.306), ("sps", 2.278)])
def test_the_leaderboard_s_numbers(run, expected):
    rows = atlas.answers().query("run == @run")
    assert rows["prompt_id"].nunique() == 480
    assert rows["tokens"].sum() / rows["passes"].sum() == pytest.approx(expected, abs=0.0005)


def test_every_run_is_there_and_has_its_licence():
    table = atlas.runs()
    assert set(atlas.answers()["run"]) == set(table["run"])
    assert table["licence"].str.match(r"(Apache-2\.0|MIT|CC BY 4\.0) \(").all()
    assert not {"turns", "texts", "prompt"} & set(atlas.answers())


@pytest.mark.parametrize("run", ["eagle", "recycling", "rest", "plain-c", "hydra-shop"])
def test_passes_and_sums_are_the_same_numbers(run):
    frame = atlas.passes_of(run)
    assert list(frame) == passes.COLUMNS
    by_prompt = frame.groupby("prompt_id")["emitted"].agg(["size", "sum"])
    answers = atlas.answers().query("run == @run").astype({"prompt_id": str})
    sums = answers.groupby("prompt_id")[["tokens", "passes"]].sum().loc[by_prompt.index]
    assert (by_prompt["size"] == sums["passes"]).all()
    assert (by_prompt["sum"] <= sums["tokens"]).all()
    longest = atlas.runs().set_index("run").loc[run, "K"]
    assert frame["accepted"].max() == longest


def test_plain_runs_emit_one_token_per_pass():
    rows = atlas.answers().merge(atlas.runs().query("method == 'plain'")[["run"]])
    assert rows["run"].nunique() == 9 and (rows["tokens"] == rows["passes"]).all()


def test_runs_that_cannot_be_read_by_pass():
    with refuses("no run 'eagel': did you mean 'eagle'"):
        atlas.passes_of("eagel")
    with refuses("totals per answer for 'medusa-33b', no passes"):
        atlas.passes_of("medusa-33b")


# ---- users' own cards: totals of llama.cpp -------------------------------------------------------

POOLED = {  # accepted and drafted tokens that the source counts
    "coder-5060ti": [2103, 3844],
    "coder-1080ti": [2096, 3840],
    "coder-m3-max": [2098, 3968],
    "dflash-f16": [102, 1971],
    "dflash-q4km": [103, 1967],
}


def test_the_pooled_numbers_of_users_own_cards():
    rows = atlas.answers().query("turn == 0 and drafted > 0").astype({"run": str})
    rows["accepted"] = rows["tokens"] - rows["passes"]
    sums = rows.groupby("run")[["accepted", "drafted"]].sum()
    assert sums.T.to_dict("list") == POOLED


def test_passes_after_the_prompt_s_are_those_that_the_server_counted():
    """llama.cpp's n_decode_total is 547 in each repetition, of which 36 are for the prompts."""
    assert atlas.answers().query("run == 'dflash-f16'")["passes"].sum() == 3 * (547 - 36)


# ---- the sources ---------------------------------------------------------------------------------


@needs_shared
def test_prepare_gives_the_shipped_rows():
    traces, logs_here = SHARED / "public_traces/atlas", SHARED / "public_logs"
    found = prepare.files_in(traces) | prepare.files_in(logs_here)
    here = [run for run in atlas.sources()["runs"] if set(run["files"].values()) <= set(found)]
    assert len(here) == 15
    for run in here:
        rows = prepare.answers_of(run, [found[digest] for digest in run["files"].values()])
        shipped = atlas.answers().query("run == @run['run']").reset_index(drop=True)
        rows = prepare.compact(rows).drop(columns="text")  # numbers its texts among other runs'
        pd.testing.assert_frame_equal(rows, shipped[[*rows]], check_categorical=False)


def test_prepare_says_what_is_missing(tmp_path):
    with refuses("yukiki-jc/Spec-Bench: .*eagle.* is not there"):
        prepare.table(prepare.files_in(tmp_path))


def test_texts_become_numbers():
    rows = pd.DataFrame(
        {
            "run": ["eagle", "plain-a", "plain-b", "rest"],
            "target": ["a", "a", "a", "b"],
            "prompt_id": 81,
            "domain": "writing",
            "turn": 0,
            "tokens": 3,
            "passes": 2,
            "accepted": [[1, 0]] * 4,
            "text": ["Yes.", "No.", "Yes.", "No."],
        }
    )
    assert prepare.compact(rows)["text"].tolist() == [0, 1, 0, 0]
    assert not prepare.compact(rows).astype(str).isin(["Yes.", "No."]).any(axis=None)


def bench(**choice):
    """A line of a fork of Spec-Bench with two turns."""
    return {"question_id": 81, "category": "writing", "choices": [{"turns": ["", ""]} | choice]}


@pytest.mark.parametrize(
    "choice",
    [
        {"decoding_steps": [2, 1], "new_tokens": [4, 2], "accept_lengths": [3, 1, 2]},
        {"decoding_steps": [1, 0], "new_tokens": [4, 2], "accept_lengths": [3, 1, 2]},
        {"idxs": [1, 0], "new_tokens": [4, 2], "accept_lengths:": [2, 1, 1]},
        {"idxs": [1, 0], "new_tokens": [4, 2], "accept_lengths:": [3, 1, 2]},
    ],
    ids=["as documented", "Token Recycling", "REST", "REST, plain"],
)
def test_forks_that_count_in_other_ways_give_the_same_passes(choice, tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(bench(**choice)))
    frame = logs.read_log([path], "spec-bench").passes
    assert frame["accepted"].tolist() == [2, 0, 1]
    assert frame["emitted"].tolist() == [3, 1, 2]
    assert frame["turn"].tolist() == [0, 0, 1]
