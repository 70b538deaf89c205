"""One run under other engines' names: a run by hand, identities between the figures, and the real
decoder's counts.
"""

import numpy as np
import pytest
from test_choose import trace_of
from test_decode import tiny_prompts
from toy import plain, recorded_tables

from speclab import replay
from speclab.decode import decode_prompt
from speclab.draft import parse_shape
from speclab.ops import metrics
from speclab.plain import read_yaml
from speclab.profiles import ROOT
from speclab.sampling import Sampling

BY_HAND = trace_of({"a": ("a", [0, 0, 1, 0, 0, 0, 2, 0]), "b": ("b", [3, 3])})
SUMS = replay.prompt_sums(replay.replay(BY_HAND, 2))


def test_a_run_by_hand():
    # a: 2 accepted of 2, 2 of 2, 0 of 2, and 1 of 1 where the text ends; b: 0 of 2, 0 of 1
    expected = {
        "blocks": 6,
        "accepted": 5,
        "emitted": 10,
        "drafted": 10,
        "drafted_whole": 12,
        "truncated": 1,
        "accepted_by_depth": [3, 2],
        "blocks_by_accepted": [3, 1, 2],
        "mean_accepted": 5 / 6,
        "mean_accepted_and_bonus": 11 / 6,
        "block_efficiency": 10 / 6,
        "draft_utilisation": 5 / 10,
        "draft_utilisation_whole": 5 / 12,
        "accepted_per_verified": (5 + 6) / (12 + 6),
        "survival_by_depth": [3 / 6, 2 / 6],
        "accept_by_depth": [3 / 6, 2 / 3],
    }
    figures = metrics.figures(SUMS, 2)
    assert figures == {name: pytest.approx(value, abs=1e-6) for name, value in expected.items()}
    of_b = metrics.figures(SUMS[1:], 2)
    assert of_b["accept_by_depth"] == pytest.approx([0, np.nan], nan_ok=True)


@pytest.mark.parametrize(
    ("shape", "rule"),
    [
        ("chain:1", "greedy"),
        ("chain:4", "greedy"),
        ("chain:4", "rejection"),
        ("tree:3,2,8", "point-mass"),
    ],
)
def test_identities(shape, rule):
    rng, drafted = np.random.default_rng(0), parse_shape(shape)
    lengths = enumerate(rng.integers(1, 40, 12))
    trace = trace_of({f"p{i}": ("ab"[i % 2], rng.geometric(0.6, n) - 1) for i, n in lengths})
    p, q = rng.uniform(0.1, 1, len(trace)), rng.uniform(0, 1, len(trace))
    trace = trace.assign(p_token=p, q_token=q)
    if rule == "rejection":
        blocks = replay.replay_sampled(trace, drafted.size)
    else:
        blocks = replay.replay(trace, drafted.tree)
    sums = replay.prompt_sums(blocks)
    prompts = [rows for _, rows in sums.groupby("prompt_id")]
    for rows in (sums, sums[sums["domain"] == "a"], *prompts):
        part = metrics.figures(rows, drafted.size)
        blocks, accepted, survival = part["blocks"], part["accepted"], part["survival_by_depth"]
        histogram, with_bonus = part["blocks_by_accepted"], part["mean_accepted_and_bonus"]
        for one, other in (
            (with_bonus, 1 + accepted / blocks),
            (sum(survival), accepted / blocks),
            (np.cumprod(np.nan_to_num(part["accept_by_depth"])), survival),
            (sum(histogram), blocks),
            (np.dot(histogram, range(len(histogram))), accepted),
            (part["block_efficiency"], with_bonus - part["truncated"] / blocks),
            (part["drafted_whole"], drafted.size * blocks),
        ):
            assert one == pytest.approx(other, abs=1e-4)
        assert part["drafted"] <= part["drafted_whole"] + 1e-6


@pytest.mark.parametrize("new", [16, pytest.param(32, marks=pytest.mark.slow)])
@pytest.mark.parametrize("shape", ["chain:3", "tree:3,2,8"])
def test_the_counts_are_the_real_decoders(tiny_pair, shape, new):
    shape, greedy = parse_shape(shape), Sampling()
    for prompt in tiny_prompts(tiny_pair, 1):
        text = plain(tiny_pair, prompt, new)
        trace = recorded_tables(tiny_pair, prompt, text)["trace"]
        sums = replay.prompt_sums(replay.replay(trace, shape.tree))
        figures = metrics.figures(sums, shape.size)
        steps = decode_prompt(tiny_pair, prompt, "greedy", shape, greedy, new).steps
        accepted = [step.accepted for step in steps]
        counts = np.bincount(accepted, minlength=shape.tree.max_depth + 1)
        assert figures["blocks_by_accepted"] == counts.tolist()
        assert figures["emitted"] == len(text)
        assert figures["truncated"] == sum(step.kind == "cut" for step in steps)
        drafted = sum(step.drafted for step in steps)
        assert figures["drafted"] <= drafted <= figures["drafted_whole"]
        if len(text) == new:  # a text that stops by itself is drafted behind
            assert figures["drafted"] == drafted


def test_every_name_is_a_figure():
    known = metrics.figures(SUMS, 2)
    for group in read_yaml(ROOT / "data" / "engines" / "names.yaml", ""):
        for figure in filter(None, group["names"].values()):
            name, _, depth = figure.removesuffix(" %").partition("[")
            assert isinstance(known[name], list) or not depth, (group["engine"], figure)
        assert group["of"] in ("pooled", "interval", "request")
