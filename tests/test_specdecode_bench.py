"""SpecDecode-Bench's files: made-up files are downloaded, read and rejected; the real files give
tokens per pass.
"""

import gzip
import hashlib
import json
import os
from dataclasses import replace

import pytest

from speclab.lab.starts import sums_of_starts
from speclab.logs import specdecode_bench as bench
from speclab.study.profiles import ROOT

SHARED = ROOT.parent / "shared" / "public_traces" / "specdecode_bench"
NAME = "combined_gsm8k.jsonl"
LINE = {
    "id": "7",
    "prompt_token_ids": [5, 6],
    "generated_token_ids": [1, 2, 3, 4],
    "acc_eagle": {"acc_len": [1, 3, 1, 2, 2, 1]},
    "acc_ngram": {"acc_len": [1, 1, 21, 2]},
}


def changed(**changes):
    return json.dumps(LINE | changes).encode()


@pytest.fixture
def published(monkeypatch, tmp_path):
    """Writes a made-up file in place of the published ones and returns its folder."""
    monkeypatch.delenv("SPECLAB_TRACES", raising=False)

    def write(*lines):
        content = b"\n".join(lines)
        files = {NAME: hashlib.sha256(content).hexdigest()}
        there = replace(bench.SOURCE, files=files, folder=tmp_path / "none")
        monkeypatch.setattr(bench, "SOURCE", there)
        (tmp_path / NAME).write_bytes(content)
        return tmp_path

    return write


def test_a_line_becomes_starts_behind_the_first_token(published):
    found = bench.read_traces(published(changed()))
    columns = ["position", "accepted", "remaining", "prompt_tokens", "limit"]
    eagle, lookup = found.of("eagle"), found.of("n-gram")
    assert eagle[columns].to_numpy().tolist() == [  # its own run is longer
        [1, 2, 5, 2, 20],
        [2, 0, 4, 2, 20],
        [3, 1, 3, 2, 20],
        [4, 1, 2, 2, 20],
        [5, 0, 1, 2, 20],
    ]
    assert lookup["accepted"].tolist() == [0, 2, 1], "no more than remain"
    (text,) = found.texts.to_dict("records")
    assert text["prompt_id"] == "gsm8k-7" and not text["same_length"]
    assert not text["ran_away"]
    assert text["generated_token_ids"].tolist() == [1, 2, 3, 4]


def test_a_text_ran_away_where_it_or_eagles_list_was_stopped(published):
    most = bench.TEXT_LIMIT
    short = changed(id="1", acc_eagle={"acc_len": [1] * (most - 1)})
    listed = changed(id="2", acc_eagle={"acc_len": [1] * most})
    text = {"generated_token_ids": [1] * most, "acc_ngram": {"acc_len": [1] * most}}
    found = bench.read_traces(published(short, listed, changed(id="3", **text)))
    assert found.texts["ran_away"].tolist() == [False, True, True]


def test_a_folder_that_is_named_is_read_and_held_against_the_published_files(
    published, monkeypatch
):
    folder = published(changed())
    assert bench.read_traces() is None
    monkeypatch.setenv("SPECLAB_TRACES", str(folder))
    packed = gzip.compress((folder / NAME).read_bytes())
    (folder / NAME).rename(folder / "aside")
    file = folder / f"{NAME}.gz"
    file.write_bytes(packed)
    assert len(bench.read_traces().texts) == 1
    for content, complaint in (
        (packed[:-9], "gz is damaged or cut"),
        (gzip.compress(changed(id="9")), f"not the published file {NAME}"),
    ):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=complaint):
            bench.read_traces()


# ---- the real files ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real():
    for place in (SHARED, os.environ.get("SPECLAB_TRACES")):
        if place and (found := bench.read_traces(place)):
            return found
    pytest.skip("needs SpecDecode-Bench's files: " + bench.ABSENT)


TOKENS_A_PASS = {  # with the prompt's pass counted as a block
    "eagle": {
        "gsm8k": [1.69, 2.38, 2.65, 2.77],
        "cnn": [1.67, 2.32, 2.57, 2.72],
        "instructcoder": [1.68, 2.34, 2.62, 2.79],
        "sharegpt": [1.66, 2.25, 2.48, 2.61],
    },
    "n-gram": {
        "gsm8k": [1.16, 1.18, 1.19],
        "cnn": [1.33, 1.40, 1.42],
        "instructcoder": [2.03, 2.50, 2.76],
        "sharegpt": [1.39, 1.49, 1.53],
    },
}


@pytest.mark.parametrize(("proposer", "gammas"), [("eagle", (1, 3, 5, 8)), ("n-gram", (3, 8, 20))])
def test_tokens_a_pass_on_the_four_sets(real, proposer, gammas):
    sums = sums_of_starts(real.of(proposer), gammas)
    total = sums.groupby(["domain", "gamma"])[["emitted", "blocks"]].sum()
    prompts = sums.groupby(["domain", "gamma"]).size()
    found = (total["emitted"] + prompts) / (total["blocks"] + prompts)
    for domain, wanted in TOKENS_A_PASS[proposer].items():
        assert found[domain].to_numpy() == pytest.approx(wanted, abs=0.0051)
