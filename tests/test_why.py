"""Why is acceptance low? Each shape is named on a planted fault, and healthy logs are silent."""

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import permutations, product

import numpy as np
import pandas as pd
import pytest

from speclab import replay
from speclab.__main__ import main
from speclab.logs import atlas, logs, passes, why
from speclab.logs.why import BREAK, EXACT, FALL, FEW_TOKENS, LOW, NO_TOKEN, ONE_TOKEN, SMALL_K
from speclab.study.profiles import ROOT
from speclab.study.runs import load_run

LOG = ROOT / "data" / "logs" / "smollm.jsonl.gz"
TRACES = ROOT / "data" / "traces"
SAMPLED = ["sampled", "sampled-seed-1", "sampled-seed-2"]
SHARED = ROOT.parent / "shared" / "public_logs"


@cache
def recorded(fault):
    """Counts of a log of `data.logs.plant_faults`."""
    return why.counts_of(logs.opened(LOG.parent / "faults" / f"{fault}.jsonl.gz"))


def counts(frame, context=()):
    """Counts of passes. context: tokens of each prompt, by its name."""
    sums = passes.sums_by_request(frame)
    if len(context):
        sums["context"] = sums["prompt_id"].map(context)
    return why.counts_of(logs.Log("speclab", "request", frame, sums, {}, []))


@cache
def trace_of(name):
    return load_run(TRACES / name).trace


def replayed(trace, gamma, context=()):
    return counts(passes.passes_of_replay(replay.replay(trace, gamma)), context)


def shape_of(*given):
    """The shape that a log looks like."""
    shapes = why.explain(*given)
    return next(iter(shapes["shape"][shapes["fits"]]), None)


# ---- planted faults ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "second", "shape"),
    [
        ("healthy", None, None),
        ("other-vocabulary", None, NO_TOKEN),
        ("shifted-block", None, ONE_TOKEN),
        ("short-head", None, FEW_TOKENS),
        ("short-head", "healthy", FEW_TOKENS),
        ("layers-early", None, None),
        ("layers-early", "healthy", LOW),
        ("healthy", "layers-early", None),
        ("exact-match", None, None),
        ("exact-match", "healthy", EXACT),
    ],
)
def test_a_recorded_fault_is_named(fault, second, shape):
    """A few faults are seen only beside a second log."""
    other = second and recorded(second)
    assert shape_of(recorded(fault), other, fault == "exact-match") == shape


@pytest.mark.parametrize("name", ["smollm/greedy", "tiny/greedy", "smollm-head/greedy"])
def test_position_1_is_higher_at_a_smaller_k_which_is_no_fault(name):
    few, many = (replayed(trace_of(name), gamma) for gamma in (1, 8))
    assert shape_of(many, few) == SMALL_K and shape_of(few) is None


@pytest.mark.parametrize(
    ("accepted", "shape"),
    [
        ([211, 109], ONE_TOKEN),  # speculators #613: position 1 has 34 %
        ([21, 21, 62, 0, 1], FEW_TOKENS),  # MiaAI's counters: 84 63 1 1 of 105
        ([60, 30, 10, 5, 0], None),
        ([320], NO_TOKEN),
        ([50, 0, 50], None),  # of prompt lookup, and 900 passes without a draft
    ],
)
def test_counters_of_a_server_are_one_request(accepted, shape):
    """accepted: how many passes accept 0, 1, 2 … of 4 drafted tokens."""
    each = np.repeat(range(len(accepted)), accepted)
    answer = passes.Answer("all", "unknown", each, [4] * len(each), plain=max(1000 - len(each), 0))
    assert shape_of(counts(passes.count_by_answer([answer]))) == shape


@pytest.mark.parametrize(
    ("lost", "shape"),
    [
        (lambda context: 0.08 * np.log2(context / 100), FALL),
        (lambda context: 0.95 * (context > 2000), BREAK),
        (lambda context: 0 * context, None),
    ],
)
def test_long_contexts_fall_slowly_or_break(lost, shape):
    """lost: the share of hits that a context of so many tokens loses."""
    trace = trace_of("smollm/greedy")
    names = trace["prompt_id"].drop_duplicates().sample(frac=1, random_state=0)
    context = pd.Series(np.geomspace(100, 25_600, len(names)), names)
    chance = lost(trace["prompt_id"].map(context) + trace["position"])
    is_lost = np.random.default_rng(0).random(len(trace)) < chance
    thinned = trace.assign(draft_rank=trace["draft_rank"].mask(is_lost, 9))
    assert shape_of(replayed(thinned, 4, context)) == shape


# ---- what a log does not decide ------------------------------------------------------------------


def test_a_log_without_draft_lengths_has_no_positions():
    log = logs.opened(LOG)
    for frame in (None, log.passes.assign(drafted=np.nan)):
        shapes = why.explain(why.counts_of(replace(log, passes=frame)))
        assert shapes.loc[shapes["estimate"].notna(), "shape"].tolist() == [NO_TOKEN]


def test_logs_of_other_prompts_are_not_compared():
    other = [rows.assign(prompt_id="p") for rows in recorded("healthy")]
    assert shape_of(recorded("layers-early"), other) is None


def test_the_command_says_what_the_log_looks_like(tmp_path, capsys):
    file = LOG.parent / "faults" / "short-head.jsonl.gz"
    assert main(["log", str(file), "--out", str(tmp_path / "log"), "--explain"]) == 0
    assert FEW_TOKENS in capsys.readouterr().out
    runs = str(ROOT / "tests" / "data" / "logs" / "means.csv")
    assert main(["log", runs, "--out", str(tmp_path / "runs"), "--explain"]) == 0
    assert "Each setting is one number, which has no shape." in capsys.readouterr().out
    mixed = replace(logs.opened(file), notes=[logs.MIXED])
    assert "--part names one run" in why.explain_log(mixed)[0]


# ---- false alarms --------------------------------------------------------------------------------


def replays(folder, kind, gamma, size=10**6):
    """Counts of replays of a shipped trace, in windows of `size` prompts."""
    trace = trace_of(f"{folder}/{kind}")
    if "sampled" in kind:
        chance = trace["q_token"] / trace["p_token"]  # the rejection rule
        is_miss = np.random.default_rng(0).random(len(trace)) >= chance
        trace = trace.assign(draft_rank=9 * is_miss)
    windows = trace.groupby(trace["prompt_id"].factorize()[0] // size)
    return [replayed(window, gamma) for _, window in windows]


def healthy_logs():
    """(source, what `explain` is given): logs without a fault."""
    for run in atlas.runs().itertuples():
        if run.has_passes and run.K != 0:
            yield "public runs (atlas)", counts(atlas.passes_of(run.run))
    for manifest in sorted(TRACES.glob("*/*/manifest.json")):
        pair, kind = manifest.parts[-3:-1]
        if "sampled" in kind and "block_q" in trace_of(f"{pair}/{kind}"):
            continue  # a head's chances depend on where the block began
        for gamma in (1, 4, 16):
            yield "replays of traces", *replays(pair, kind, gamma)
            for log in replays(pair, kind, gamma, size=20):
                yield "replays of 20 prompts", log
    for pair, gamma in product(("smollm", "tiny"), (2, 8)):
        warm = [log for kind in SAMPLED for log in replays(pair, kind, gamma)]
        yield from (("two seeds", *both) for both in permutations(warm, 2))
        (cold,) = replays(pair, "greedy", gamma)
        yield from (("two temperatures", log, cold, True) for log in warm)


@pytest.mark.slow
def test_the_table_of_false_alarms_is_what_the_rules_say():
    """The table in `data/logs/README.md`, recomputed."""
    logs_of, alarms = Counter(), Counter()
    for source, *given in healthy_logs():
        logs_of[source] += 1
        alarms[source] += shape_of(*given) is not None
    text = (ROOT / "data" / "logs" / "README.md").read_text(encoding="utf-8")
    for source, number in logs_of.items():
        assert f"| {source} | {number} | {alarms[source]} |" in text, (logs_of, alarms)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the public logs in ../shared")
def test_public_logs_look_like_the_one_shape_that_was_reported():
    """As far as they are read: a head of two tokens with K = 6, and no false alarm."""
    for path in SHARED.glob("*/*"):
        with suppress(ValueError):
            log = logs.opened(path)
            shape = FEW_TOKENS if path.name == "vllm_dspark_metrics.txt" else None
            assert shape_of(why.counts_of(log)) == shape, path.name
