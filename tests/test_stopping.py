"""Stop rules: hand-made cases, the decoder and the replay as references, fits on other prompts, and
bad input.
"""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from test_record import prompts_of
from toy import recorded_tables, toy_pair

from speclab.cost import Costs
from speclab.decode import decode_prompt
from speclab.lab import stopping
from speclab.lab.starts import replay_starts
from speclab.record import generate
from speclab.replay import replay
from speclab.sampling import Sampling
from speclab.shapes import Shape
from speclab.tree import chain

GREEDY, NEW = Sampling(), 15
COSTS = Costs(10.0, (1, 2, 4, 8, 16), (0.2, 0.2, 0.22, 0.3, 0.5), (1.0, 1.02, 1.1, 1.3, 1.8), 0.1)
FLAT = Costs(10.0, (1, 16), (0.25, 0.25), (1.0, 1.0), 0.5)  # powers of two: sums are exact


def nodes_of(texts):
    """Nodes of kind `chain` from {prompt_id: (domain, [(accepted, confidences) of each
    position])}.
    """
    rows = [
        (name, domain, t, d, d, 0, sureness, int(d > accepted))
        for name, (domain, positions) in texts.items()
        for t, (accepted, confidence) in enumerate(positions)
        for d, sureness in enumerate(confidence, 1)
    ]
    nodes = pd.DataFrame(rows, columns=stopping.COLUMNS)
    return nodes.astype(dict.fromkeys(["position", "depth", "rank"], "int16"))  # as recorded


def sure(run, depth=4):
    """A position whose draft is confident exactly as far as it is right."""
    return run, [0.9] * run + [0.1] * (depth - run)


# ten tokens: three accepted, a miss, then two accepted, a miss, then two accepted and the end
TEN = {"a": ("code", [*map(sure, [3, 2, 1, 0, 2, 1, 0, 4, 4, 4])])}


def walked(planned, *names):
    """Columns of the visited blocks, one row each; drafted: up to the limit, past a text's end."""
    tokens = planned["drafted"].to_numpy()
    blocks = replay_starts(planned.assign(planned=tokens), tokens)
    blocks["drafted"] = blocks["planned"]
    return blocks[list(names)].to_numpy().tolist()


def cost_of(planned, costs):
    return stopping.totals(planned, costs)["cost"].to_numpy()


def test_a_stopping_rule_by_hand_pays_the_pass_that_stopped_it():
    at = stopping.chains(nodes_of(TEN), 10)
    rule = stopping.stopped(at, 0.5, 4)
    assert walked(rule, "start", "drafted", "draft_passes", "accepted", "emitted") == [
        [0, 3, 4, 3, 4],
        [4, 2, 3, 2, 3],
        [7, 3, 3, 3, 3],
    ]
    short = stopping.stopped(at, 0.5, 2)
    assert walked(short, "start", "drafted", "draft_passes") == [
        [0, 2, 2],
        [3, 0, 1],
        [4, 2, 2],
        [7, 2, 2],
    ]
    # 3 + 2 + 3 drafted tokens, 4 + 3 + 3 passes of 0.25, three target passes with 0.5 overhead each
    assert cost_of(rule, FLAT).tolist() == [10 * 0.25 + 3 * 1.5]


def test_the_threshold_itself_does_not_stop():
    starts = stopping.chains(nodes_of({"a": ("code", [(2, [0.5, 0.25])] * 3)}), 3)
    planned = [stopping.stopped(starts, value, 2) for value in (0.25, 0.26, 0.5, 0.51)]
    assert [rows["drafted"].iloc[0] for rows in planned] == [2, 1, 1, 0]


# ---- the decoder and the replay as references ----------------------------------------------------


@cache
def recorded(noise):
    """The toy pair, its prompts and greedy texts, and the recorded chains and trace."""
    pair = toy_pair(noise)
    starts = [(1, 2, 3), (5,), (3, 5), (8, 0), (6, 5), (0, 4), (3, 3, 7)]
    prompts = prompts_of(*starts)
    texts = generate(pair.target, prompts, NEW, pair.stop_ids, GREEDY, 0)
    both = [
        recorded_tables(pair, prompt, text, chain(8))
        for prompt, text in zip(prompts, texts, strict=True)
    ]
    frames = {name: pd.concat([one[name] for one in both]) for name in both[0]}
    return pair, prompts, texts, frames


@pytest.mark.parametrize("noise", [0.5, 1.5])
@pytest.mark.parametrize("threshold", [0.3, 0.6, 1.1])
@pytest.mark.parametrize("limit", [1, 8])
def test_stopping_rules_equal_the_decoder(noise, threshold, limit):
    pair, prompts, texts, frames = recorded(noise)
    starts = stopping.chains(frames["nodes"], NEW)
    shape = Shape(chain(limit), threshold)
    for prompt, text in zip(prompts, texts, strict=True):
        decoded = decode_prompt(pair, prompt, "greedy", shape, GREEDY, NEW)
        assert decoded.token_ids == text
        own = starts[starts["prompt_id"] == prompt.prompt_id].reset_index(drop=True)
        planned = stopping.stopped(own, threshold, limit)
        steps = [[s.drafted, s.accepted, len(s.tokens)] for s in decoded.steps]
        assert steps == walked(planned, "drafted", "accepted", "emitted")
        assert decoded.draft_passes == np.sum(walked(planned, "draft_passes"))


@pytest.mark.parametrize("noise", [0.5, 1.5])
@pytest.mark.parametrize("gamma", [1, 5])
def test_fixed_gamma_equals_the_replay(noise, gamma):
    frames = recorded(noise)[3]
    starts = stopping.chains(frames["nodes"], NEW)
    names = ["prompt_id", "start", "accepted", "emitted"]
    fixed = stopping.stopped(starts, 0.0, gamma)
    assert walked(fixed, *names) == replay(frames["trace"], gamma)[names].to_numpy().tolist()
    assert (fixed["draft_passes"] == fixed["drafted"]).all()


# ---- fits ----------------------------------------------------------------------------------------


def many():
    """Code drafts are right and sure; chat drafts wrong and unsure, but for every third token."""
    texts = {}
    for i in range(10):
        length = range(12 + i)
        runs = [min(4, length[-1] + 1 - t) for t in length]
        texts[f"code-{i}"] = ("code", [*map(sure, runs)])
        texts[f"chat-{i}"] = ("chat", [sure(int(t % 3 == 0)) for t in length])
    return stopping.chains(nodes_of(texts), 22)


def test_rules_are_fitted_and_cost_less_than_a_fixed_gamma(monkeypatch):
    """(`choose.fit` fits on other prompts: see there.)"""
    monkeypatch.setattr(stopping, "THRESHOLDS", [0.0, 0.5, 0.95])
    starts = many()
    names = "confidence", stopping.FIXED
    rules = [stopping.fit_rule(starts, COSTS, name).judged for name in names]
    cost = [rule["cost"].sum() for rule in rules]
    assert cost[0] < cost[1]
    row = rules[0].iloc[0]
    text = starts[starts["prompt_id"] == row["prompt_id"]]
    planned = stopping.stopped(text, row["threshold"], row["limit"])
    assert cost_of(planned, COSTS).item() == row["cost"]


def test_a_limit_below_a_text_is_refused():
    with pytest.raises(ValueError, match="max_new_tokens=9, but a text has 10 tokens"):
        stopping.chains(nodes_of(TEN), 9)
