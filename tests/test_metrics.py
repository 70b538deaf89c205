"""One run under other engines' names: identities between the figures, a run by hand and the real
decoder's counts.
"""

import numpy as np
import pytest
from test_choose import trace_of
from test_decode import tiny_prompts
from toy import plain, recorded_tables

from speclab import replay, score
from speclab.decode import decode_prompt
from speclab.draft import parse_shape
from speclab.ops import metrics
from speclab.plain import read_yaml
from speclab.profiles import ROOT
from speclab.sampling import Sampling

NAMES = ROOT / "data" / "engines" / "names.yaml"


def random_trace():
    """Texts of unequal lengths, with the ratios of a sampled text beside the ranks."""
    rng = np.random.default_rng(0)
    lengths = enumerate(rng.integers(1, 40, 12))
    ranks = {f"p{i}": ("ab"[i % 2], rng.geometric(0.6, n) - 1) for i, n in lengths}
    trace = trace_of(ranks)
    p, q = rng.uniform(0.1, 1, len(trace)), rng.uniform(0, 1, len(trace))
    return trace.assign(p_token=p, q_token=q)


def summary_of(trace, shape="chain:2", rule="greedy"):
    return metrics.summary(metrics.counts_of(trace, parse_shape(shape), rule))


def by_depth(part, name):
    """The entries of a figure that has one a depth."""
    return np.array(metrics.value_of(part, name), float)


BY_HAND = trace_of({"a": ("a", [0, 0, 1, 0, 0, 0, 2, 0]), "b": ("b", [3, 3])})


def test_a_run_by_hand():
    # a: 2 accepted of 2, 2 of 2, 0 of 2, and 1 of 1 where the text ends; b: 0 of 2, 0 of 1
    expected = {
        "blocks": 6,
        "accepted": 5,
        "emitted": 10,
        "drafted": 10,
        "drafted_whole": 12,
        "truncated": 1,
        "accepted_by_depth[1]": 3,
        "accepted_by_depth[2]": 2,
        "blocks_by_accepted[0]": 3,
        "blocks_by_accepted[1]": 1,
        "blocks_by_accepted[2]": 2,
        "mean_accepted": 5 / 6,
        "mean_accepted_and_bonus": 11 / 6,
        "block_efficiency": 10 / 6,
        "draft_utilisation": 5 / 10,
        "draft_utilisation_whole": 5 / 12,
        "accepted_per_verified": (5 + 6) / (12 + 6),
        "survival_by_depth[1]": 3 / 6,
        "survival_by_depth[2]": 2 / 6,
        "accept_by_depth[1]": 3 / 6,
        "accept_by_depth[2]": 2 / 3,
    }
    pooled = summary_of(BY_HAND)["pooled"]
    assert pooled == pytest.approx(expected, abs=1e-6)
    sums = replay.prompt_sums(replay.replay(BY_HAND, 2))
    for name, estimator in score.block_estimators().items():
        scored = np.squeeze(estimator(sums))
        assert metrics.value_of(pooled, name) == pytest.approx(scored, abs=1e-6)


def test_the_mean_of_requests_is_another_number_than_the_pooled_one():
    found = summary_of(BY_HAND)
    requests = found["mean_of_requests"]
    assert requests["mean_accepted"] == (5 / 4 + 0) / 2 != 5 / 6
    assert requests["blocks"] == 3
    # b never reaches depth 2: the mean is a's alone
    found_by_depth = by_depth(requests, "accept_by_depth")
    assert found_by_depth == pytest.approx([(3 / 4 + 0) / 2, 2 / 3], abs=1e-6)
    assert found["by_domain"]["b"]["pooled"]["mean_accepted"] == 0
    assert [row["prompt_id"] for row in found["by_request"]] == ["a", "b"]
    assert found["by_request"][1]["accept_by_depth[2]"] is None


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
    drafted = parse_shape(shape)
    counts = metrics.counts_of(random_trace(), drafted, rule)
    found = metrics.summary(counts)
    of_requests = found["by_request"]
    for part in (found["pooled"], found["by_domain"]["a"]["pooled"], *of_requests):
        blocks, accepted = part["blocks"], part["accepted"]
        joint = by_depth(part, "survival_by_depth")
        conditional = by_depth(part, "accept_by_depth")
        histogram = by_depth(part, "blocks_by_accepted")
        close = {"abs": 1e-4}
        with_bonus = part["mean_accepted_and_bonus"]
        assert with_bonus == pytest.approx(1 + accepted / blocks, **close)
        assert joint.sum() == pytest.approx(accepted / blocks, **close)
        assert np.cumprod(np.nan_to_num(conditional)) == pytest.approx(joint, **close)
        assert histogram.sum() == pytest.approx(blocks, **close)
        whole = histogram @ np.arange(len(histogram))
        assert whole == pytest.approx(accepted, **close)
        cut = part["truncated"] / blocks
        assert part["block_efficiency"] == pytest.approx(with_bonus - cut, **close)
        assert part["drafted"] <= part["drafted_whole"] + 1e-6
        assert part["drafted_whole"] == pytest.approx(drafted.size * blocks, **close)


@pytest.mark.parametrize("new", [16, pytest.param(32, marks=pytest.mark.slow)])
@pytest.mark.parametrize("shape", ["chain:3", "tree:3,2,8"])
def test_the_counts_are_the_real_decoders(tiny_pair, shape, new):
    shape, greedy = parse_shape(shape), Sampling()
    for prompt in tiny_prompts(tiny_pair, 1):
        text = plain(tiny_pair, prompt, new)
        trace = recorded_tables(tiny_pair, prompt, text)["trace"]
        found = metrics.summary(metrics.counts_of(trace, shape, "greedy"))["pooled"]
        steps = decode_prompt(tiny_pair, prompt, "greedy", shape, greedy, new).steps
        accepted = np.bincount(
            [step.accepted for step in steps], minlength=shape.tree.max_depth + 1
        )
        assert metrics.value_of(found, "blocks_by_accepted") == accepted.tolist()
        assert found["emitted"] == len(text)
        assert found["truncated"] == sum(step.kind == "cut" for step in steps)
        drafted = sum(step.drafted for step in steps)
        assert found["drafted"] <= drafted <= found["drafted_whole"]
        if len(text) == new:  # a text that stops by itself is drafted behind
            assert found["drafted"] == drafted


# ---- names ---------------------------------------------------------------------------------------


def test_every_name_is_a_figure():
    known = summary_of(BY_HAND)["pooled"]
    for group in read_yaml(NAMES, ""):
        for name, figure in group["names"].items():
            value = metrics.value_of(known, figure)
            assert (value is None) == (figure is None), (group["engine"], name, figure)
        assert group["of"] in ("pooled", "interval", "request")
