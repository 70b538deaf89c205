"""The atlas: the shipped file gives the published numbers and its sources' own counts."""

import json

import pandas as pd
import pytest

from data.atlas import prepare
from speclab.logs import atlas, logs, passes
from speclab.study.profiles import ROOT

SHARED = ROOT.parent / "shared" / "public_traces" / "atlas"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="needs the public runs in ../shared")


# ---- the shipped file ----------------------------------------------------------------------------


@pytest.mark.parametrize(("run", "expected"), [("eagle", 3.579), ("medusa", 2.306), ("sps", 2.278)])
def test_the_leaderboard_s_numbers(run, expected):
    rows = atlas.answers().query("run == @run")
    assert rows["prompt_id"].nunique() == 480
    assert rows["tokens"].sum() / rows["passes"].sum() == pytest.approx(expected, abs=0.0005)


def test_every_run_is_there_is_small_and_has_its_licence():
    table = atlas.runs()
    assert set(atlas.answers()["run"]) == set(table["run"])
    assert table["licence"].str.startswith("Apache-2.0").all()
    assert atlas.TABLE.stat().st_size < 2_000_000
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
    for run in ("plain-a", "plain-b", "plain-c", "plain-shop", "plain-v1.5"):
        rows = atlas.answers().query("run == @run")
        assert (rows["tokens"] == rows["passes"]).all(), run


def test_runs_that_cannot_be_read_by_pass():
    with pytest.raises(ValueError, match="no run 'eagel': did you mean 'eagle'"):
        atlas.passes_of("eagel")
    with pytest.raises(ValueError, match="totals per answer for 'medusa-33b', no passes"):
        atlas.passes_of("medusa-33b")


# ---- the sources ---------------------------------------------------------------------------------


@needs_shared
def test_prepare_gives_the_shipped_rows():
    found = prepare.files_in(SHARED)
    here = [run for run in atlas.sources()["runs"] if set(run["files"].values()) <= set(found)]
    assert len(here) == 6
    for run in here:
        rows = prepare.answers_of(run, [found[digest] for digest in run["files"].values()])
        shipped = atlas.answers().query("run == @run['run']").reset_index(drop=True)
        for name in ("prompt_id", "domain", "turn", "tokens", "passes"):
            assert (rows[name] == shipped[name].astype(rows[name].dtype)).all(), name
        pairs = zip(rows["accepted"], shipped["accepted"], strict=True)
        assert all(list(one) == list(other) for one, other in pairs)


def test_prepare_says_what_is_missing(tmp_path):
    with pytest.raises(ValueError, match="yukiki-jc/Spec-Bench: .*eagle.* is not there"):
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
