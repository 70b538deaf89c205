"""SpecDecode-Bench's files: made-up files are downloaded, read and rejected; their cost model is
checked by hand; the real files give tokens per pass. (Notebook 15 asserts their eight published
speed-ups.)
"""

import gzip
import hashlib
import json
import os
import re
from dataclasses import replace

import pandas as pd
import pytest

from speclab.analysis import specdecode_bench as bench
from speclab.profiles import ROOT
from speclab.starts import sums_of_starts
from speclab.studies import at_scale as study

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
    assert bench.one_entry_late(eagle)["accepted"].tolist() == [0, 2, 0, 1, 1]
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


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (changed()[:-9], "is cut or not JSON"),
        (changed(acc_ngram={"acc_len": [1] * 5}), "5 entries for a text of 4 tokens"),
        (changed(acc_eagle={"acc_len": [1, 0]}), "acc_eagle.acc_len.1=0"),
        (changed(acc_eagle={"acc_len": [1, 22]}), "acc_eagle.acc_len.1=22"),
        (changed(acc_eagle={}), "acc_eagle"),
        (json.dumps({"id": "1"}).encode(), "missing field prompt_token_ids"),
    ],
)
def test_a_bad_line_is_named(published, line, complaint):
    folder = published(changed(), line)
    with pytest.raises(ValueError, match=f"{NAME}, line 2.*{complaint}"):
        bench.read_traces(folder)


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


def test_fetched_files_get_their_card(published, tmp_path):
    base = published(changed()).as_uri()
    file, card = bench.fetch(tmp_path / "new", base)
    assert file.read_bytes() == changed()
    (digest,) = bench.SOURCE.files.values()
    assert {digest, bench.COMMIT} <= set(re.findall(r"[0-9a-f]{40,}", card.read_text()))


# ---- the cost model ------------------------------------------------------------------------------

BLOCKS = pd.DataFrame({"start": [1, 2], "drafted": [3, 2], "emitted": [1, 2]})
BLOCKS = BLOCKS.assign(prompt_id="a", domain="code", prompt_tokens=10)


def target_ms(tokens, cached):
    return 5.88590713 + 0.0210103129 * tokens + 3.92645679e-5 * cached


def test_times_of_a_batch_of_eight_by_hand():
    loop = 1.20683946
    prompt = target_ms(80, 0) + loop
    plain = prompt + sum(target_ms(8, 8 * cached) + loop for cached in (11, 12, 13))
    drafts = 2 * 2.13526175 + 8.41429603e-4 * (4 + 3) + 2.37768493e-6 * 8 * (11 + 12)
    passes = target_ms(8 * 4, 8 * 11) + target_ms(8 * 3, 8 * 12) + 2 * loop
    (row,) = study.times(BLOCKS, batch=8).to_dict("records")
    assert (row["tokens"], row["blocks"]) == (4, 2)
    assert row["plain_s"] * 1000 == pytest.approx(plain)
    assert row["speculative_s"] * 1000 == pytest.approx(prompt + drafts + passes)
    assert row["speedup"] == row["plain_s"] / row["speculative_s"]


def test_other_prices_by_hand_and_a_block_s_own():
    block, token, lookup = (1000 * study.block_s(3, 10, 1, price) for price in study.DRAFT_COSTS)
    assert token - block == pytest.approx(2 * (2.13526175 + 2.37768493e-5) - 8.41e-4)
    assert lookup == pytest.approx(1.005875 * target_ms(4, 10) + 1.20683946)
    made = [study.times(BLOCKS, draft_cost=name) for name in study.DRAFT_COSTS]
    made.append(study.times(BLOCKS.assign(is_copied=[False, True])))
    block, token, lookup, own = (table["speculative_s"][0] for table in made)
    assert lookup < own < block < token
    with pytest.raises(ValueError, match="draft_cost = 'eagle' is unknown"):
        study.times(BLOCKS, draft_cost="eagle")


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
