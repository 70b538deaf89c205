"""Decoding by a policy: a shape that drafts nothing, and a shape for each prompt."""

import json

import numpy as np
import pytest
from toy import toy_pair

from speclab.__main__ import main
from speclab.decode import LOSSLESS, decode, decode_prompt
from speclab.draft import PLAIN
from speclab.prompts import EncodedPrompt
from speclab.record import generate
from speclab.sampling import Sampling


def test_drafting_nothing_is_plain_greedy_decoding():
    pair = toy_pair()
    for seed in range(5):
        prompt = EncodedPrompt(
            "p",
            "code",
            tuple(np.random.default_rng(seed).integers(0, 9, 4).tolist()),
            0,
        )
        found = decode_prompt(pair, prompt, "greedy", PLAIN, Sampling(), 20)
        assert (
            found.token_ids
            == generate(pair.target, [prompt], 20, pair.stop_ids, Sampling(), 0)[0]
        )
        assert found.draft_passes == 0 and found.target_passes == len(found.token_ids)


# 600 draws see half of the words drawn from the draft (0.2 of total variation) in 999 of 1,000
# studies
@pytest.mark.parametrize("draws", [600, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rule", [rule for rule in LOSSLESS if rule != "greedy"])
def test_drafting_nothing_samples_the_target(rule, draws):
    import torch
    from scipy.stats import chisquare

    from speclab.sampling import probabilities

    pair, ids = toy_pair(), (3, 1, 4)
    p = (
        probabilities(
            pair.target.logits(
                pair.target.forward(torch.tensor([ids]), pair.target.cache(8))[0, -1]
            ),
            Sampling(1.0),
        )
        .double()
        .numpy()
    )
    first = [
        next(
            decode(
                pair, ids, rule, PLAIN, Sampling(1.0), 3, np.random.default_rng(seed)
            )
        ).tokens[0]
        for seed in range(draws)
    ]
    counts, p = np.bincount(first, minlength=len(p)), p / p.sum()
    assert chisquare(counts, draws * p).pvalue > 1e-3
    assert chisquare(counts, draws * np.roll(p, 1)).pvalue < 1e-3, "it can fail"
    assert pair.draft.passes == draws, "the prefill's, one each"


def test_decode_by_policy(tmp_path, capsys):
    from speclab.analysis import policy
    from speclab.profiles import load_profile

    rows = [
        {"prompt_id": d, "domain": d, "prompt": "def add(a, b):\n    return"}
        for d in ("code", "chat")
    ] + [{"prompt_id": "?", "prompt": "One"}]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, rows)))
    made = policy.Policy(
        policy.identity(load_profile("tiny")),
        {},
        "chain:1",
        {"code": "chain:3", "chat": "plain"},
        "none",
        "k",
    )
    policy.write_policy(made, tmp_path / "policy.json")
    command = [
        "decode",
        "--policy",
        str(tmp_path / "policy.json"),
        "--prompts",
        str(tmp_path / "p.jsonl"),
        "--out",
        str(tmp_path / "o"),
        "--set",
        "max_new_tokens=12",
    ]
    assert main([*command, "--check"]) == 0, capsys.readouterr().err
    out = {
        r["prompt_id"]: r
        for r in map(json.loads, (tmp_path / "o").read_text().splitlines())
    }
    assert [out[name]["drafted"] for name in ("code", "chat", "?")] == [
        3,
        0,
        1,
    ] and out["chat"]["draft_passes"] == 0
    assert all(r["plain_difference"] is None for r in out.values())
    made = policy.Policy({"target": "x", "draft": "y"}, {}, "chain:1", {}, "none", "k")
    policy.write_policy(made, tmp_path / "policy.json")
    assert main(command) == 2 and "made for another pair" in capsys.readouterr().err
