"""Why is acceptance low? Each shape is named on a planted fault, and healthy logs are silent."""

import gzip
import json
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import permutations

import numpy as np
import pytest

from speclab import replay
from speclab.__main__ import main
from speclab.logs import atlas, logs, passes, why
from speclab.logs.why import BREAK, EXACT, FALL, FEW_TOKENS, LOW, NO_TOKEN, ONE_TOKEN, SMALL_K
from speclab.study.profiles import ROOT
from speclab.study.runs import load_run

LOG = ROOT / "data" / "logs" / "smollm.jsonl.gz"
TRACES = ROOT / "data" / "traces"
SHARED = ROOT.parent / "shared" / "public_logs"


def counts(frame, context=None):
    """Counts of passes; context: tokens of each prompt."""
    sums = passes.sums_by_request(frame)
    if context is not None:
        sums = sums.assign(context=sums["prompt_id"].map(context))
    return why.counts_of(logs.Log("speclab", frame, sums, {}))


@cache
def recorded(fault):
    """Counts of a log of `data.logs.plant_faults`, with its prompts' tokens."""
    file = LOG.parent / "faults" / f"{fault}.jsonl.gz"
    rows = map(json.loads, gzip.decompress(file.read_bytes()).splitlines())
    context = {row["prompt_id"]: row["prompt_tokens"] for row in rows}
    return counts(logs.opened(file).passes, context)


@cache
def trace_of(name):
    return load_run(TRACES / name).trace


def replayed(trace, gamma, context=None):
    return counts(passes.passes_of_replay(replay.replay(trace, gamma)), context)


def drawn(trace, chance, seed=0):
    """A sampled trace whose tokens are accepted with a chance."""
    is_miss = np.random.default_rng(seed).random(len(trace)) >= chance
    return trace.assign(draft_rank=9 * is_miss)


def by_rejection(trace):
    return drawn(trace, trace["q_token"] / trace["p_token"])


def shape_of(*given, **settings):
    """The shape that a log looks like."""
    shapes = why.explain(*given, **settings)
    fits = shapes.loc[shapes["verdict"] == why.FITS, "shape"].tolist()
    assert len(fits) <= 1
    return fits[0] if fits else None


# ---- planted faults ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "shape"),
    [
        ("healthy", None),
        ("other-vocabulary", NO_TOKEN),
        ("shifted-block", ONE_TOKEN),
        ("short-head", FEW_TOKENS),
        ("short-positions", BREAK),
        ("exact-match", None),
        ("layers-early", None),
    ],
)
def test_a_fault_that_one_log_shows(fault, shape):
    assert shape_of(recorded(fault)) == shape


@pytest.mark.parametrize(
    ("fault", "other", "is_cold", "shape"),
    [
        ("layers-early", "healthy", False, LOW),
        ("layers-late", "healthy", False, LOW),
        ("healthy", "layers-early", False, None),
        ("exact-match", "healthy", True, EXACT),
        ("short-head", "healthy", False, FEW_TOKENS),
    ],
)
def test_a_fault_that_two_logs_show(fault, other, is_cold, shape):
    assert shape_of(recorded(fault), recorded(other), is_cold=is_cold) == shape


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
    ],
)
def test_counters_of_a_server_are_one_request(accepted, shape):
    """accepted: how many passes accept 0, 1, 2 … of 4 drafted tokens."""
    each = np.repeat(range(len(accepted)), accepted)
    answer = passes.Answer("all", "unknown", each, [4] * len(each))
    log = counts(passes.count_by_answer([answer]))
    assert shape_of(log) == shape and shape_of(log, log) == shape


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
    names, random = trace["prompt_id"].unique(), np.random.default_rng(1)
    context = dict(zip(names, 100 * 2 ** random.uniform(0, 8, len(names)), strict=True))
    is_lost = random.random(len(trace)) < lost(trace["prompt_id"].map(context) + trace["position"])
    thinned = trace.assign(draft_rank=trace["draft_rank"].mask(is_lost, 9))
    assert shape_of(replayed(thinned, 4, context)) == shape
    assert shape_of(replayed(thinned, 4, dict.fromkeys(names, 100))) is None


# ---- what a log does not decide ------------------------------------------------------------------


def test_totals_decide_the_first_token_only():
    log = logs.opened(LOG)
    totals = why.counts_of(replace(log, passes=None))
    without = why.counts_of(replace(log, passes=log.passes.assign(drafted=np.nan)))
    for given in (totals, without):
        shapes = why.explain(given, recorded("healthy"))
        assert shapes.loc[shapes["verdict"] != why.OPEN, "shape"].tolist() == [NO_TOKEN]


def test_passes_without_a_draft_are_no_fault():
    """As of prompt lookup: 5 drafts in 200 passes, half of their tokens accepted."""
    answers = [
        passes.Answer(f"p{i}", "code", [2] * 5, [4] * 5, tokens=211, before=1, plain=195)
        for i in range(6)
    ]
    frame = passes.count_by_answer(answers)
    none = frame.assign(drafted=0, accepted=0, emitted=1)
    assert shape_of(counts(frame)) is shape_of(counts(none)) is None


def test_logs_of_other_prompts_are_not_compared():
    log = recorded("layers-early")
    other = [rows.assign(prompt_id="p") for rows in recorded("healthy")]
    assert shape_of(log, other) is None


def test_the_command_says_what_the_log_looks_like(tmp_path, capsys):
    for name, said in {"short-head": "AEON-7 #6", "healthy": "no known shape"}.items():
        file = LOG.parent / "faults" / f"{name}.jsonl.gz"
        assert main(["log", str(file), "--out", str(tmp_path / name), "--explain"]) == 0
        assert said in capsys.readouterr().out


# ---- false alarms --------------------------------------------------------------------------------


def healthy_logs():
    """(source, counts, …): shipped logs, public runs, windows and replays of shipped traces."""
    own = logs.opened(LOG).passes
    for _, window in own.groupby(own["prompt_id"].factorize()[0] // 20):
        yield "our decoder, windows of 20 requests", counts(window)
    for run in atlas.runs().itertuples():
        if run.has_passes and run.K != 0:
            yield "public runs (atlas)", counts(atlas.passes_of(run.run))
    for folder in sorted(TRACES.glob("*/*")):
        trace = load_run(folder).trace
        if "sampled" in folder.name:
            if "block_q" in trace:
                continue  # a head's chances depend on the start
            trace = by_rejection(trace)
        for gamma in (1, 2, 4, 8, 16):
            yield "replays of traces", replayed(trace, gamma)
        for _, window in trace.groupby(trace["prompt_id"].factorize()[0] // 20):
            yield "replays of traces, windows of 20 requests", replayed(window, 4)


def healthy_pairs():
    """(source, counts, other counts, is_cold) of the same prompts, without a fault."""
    for pair in ("smollm", "tiny"):
        for gamma in (2, 4, 8):
            cold, *warm = (
                replayed(by_rejection(trace) if "sampled" in kind else trace, gamma)
                for kind in ("greedy", "sampled", "sampled-seed-1", "sampled-seed-2", "sampled-0.7")
                for trace in [trace_of(f"{pair}/{kind}")]
            )
            for one, other in permutations(warm[:3], 2):
                yield "two seeds", one, other, False
            for one in warm:
                yield "two temperatures", one, cold, True


@pytest.mark.slow
def test_the_table_of_false_alarms_is_what_the_rules_say():
    """The table in `data/logs/README.md`, recomputed."""
    logs_of, alarms = Counter(), Counter()
    for source, *given in (*healthy_logs(), *healthy_pairs()):
        logs_of[source] += 1
        alarms[source] += shape_of(*given) is not None
    text = (ROOT / "data" / "logs" / "README.md").read_text(encoding="utf-8")
    for source, number in logs_of.items():
        assert f"| {source} | {number} | {alarms[source]} |" in text, (logs_of, alarms)


@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the public logs in ../shared")
def test_public_logs_look_like_the_one_shape_that_was_reported():
    """As far as they are read: a head of two tokens with K = 6, and no false alarm."""
    found = {}
    for path in sorted(SHARED.glob("*/*")):
        with suppress(ValueError):
            found[path.name] = shape_of(why.counts_of(logs.opened(path)))
    alarms = {name: shape for name, shape in found.items() if shape}
    assert found and alarms.items() <= {"vllm_dspark_metrics.txt": FEW_TOKENS}.items()
