"""Decoding by a policy: a shape that drafts nothing, and a shape for each prompt."""

import json

import numpy as np
import pytest
from scipy.stats import chisquare
from test_decode import assert_plain, next_p, prompt_of
from toy import toy_pair

from speclab.__main__ import main
from speclab.analysis import policy
from speclab.cost import Costs
from speclab.decode import LOSSLESS, decode
from speclab.profiles import load_profile
from speclab.runs import pair_digests
from speclab.sampling import Sampling
from speclab.shapes import NO_DRAFT


def test_drafting_nothing_is_plain_greedy_decoding():
    pair = toy_pair()
    for seed in range(5):
        ids = np.random.default_rng(seed).integers(0, 9, 4).tolist()
        found = assert_plain(pair, prompt_of(ids), NO_DRAFT, 20)
        assert found.draft_passes == 0 and found.target_passes == len(found.token_ids)


# 600 draws see half of the words drawn from the draft (0.2 of total variation) in 999 of 1,000
# studies
@pytest.mark.parametrize("draws", [600, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rule", [rule for rule in LOSSLESS if rule != "greedy"])
def test_drafting_nothing_samples_the_target(rule, draws):
    pair, ids = toy_pair(), (3, 1, 4)
    p = next_p(pair, ids)
    counts = np.zeros(len(p))
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        step = next(decode(pair, ids, rule, NO_DRAFT, Sampling(1.0), 3, rng))
        counts[step.tokens[0]] += 1
    assert chisquare(counts, draws * p).pvalue > 1e-3
    assert chisquare(counts, draws * np.roll(p, 1)).pvalue < 1e-3, "it can fail"
    assert pair.draft.passes == draws, "the prefill's, one each"


def test_decode_by_policy(tmp_path, capsys):
    rows = [
        {"prompt_id": name, "domain": name, "prompt": "def add(a, b):\n    return"}
        for name in ("code", "chat")
    ]
    rows.append({"prompt_id": "?", "prompt": "One"})
    prompts, file, out = (tmp_path / name for name in ("p.jsonl", "policy.json", "o"))
    prompts.write_text("\n".join(map(json.dumps, rows)))

    def decoded(pair, domains):
        made = policy.Policy(pair, "cpu", Costs.assumed(0.1), "chain:1", domains, "none", "k")
        policy.write_policy(made, file)
        places = ["--policy", file, "--prompts", prompts, "--out", out]
        settings = ["--profile", "tiny", "--set", "max_new_tokens=12", "--check"]
        return main(["decode", *map(str, places), *settings])

    own = pair_digests(load_profile("tiny"))
    assert decoded(own, {"code": "chain:3", "chat": "plain"}) == 0
    found = list(map(json.loads, out.read_text().splitlines()))
    assert [row["drafted"] for row in found] == [3, 0, 1]
    assert found[1]["draft_passes"] == 0
    said = capsys.readouterr().err
    assert (
        "1 of 3 prompts have no domain that the policy knows; they get its default, chain:1" in said
    )
    assert all(row["plain_difference"] is None for row in found)
    assert decoded({"target": "x", "draft": "y"}, {}) == 2
    assert "made for another pair" in capsys.readouterr().err
