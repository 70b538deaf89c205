"""Logs of other engines: each format's numbers by hand and published ones, and what is refused.

`data/logs` has a small file of each format. `numbers` says what is read from one.
"""

import gzip
import json
import os
from pathlib import Path

import pytest
from conftest import refuses
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from speclab.logs import logs, passes, readers

DATA = Path(__file__).parent / "data" / "logs"
SHARED = Path(__file__).resolve().parents[2] / "shared" / "public_logs"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/public_logs")


def read(folder, content, name="log.jsonl", **options):
    """The log of a file with this content: text or bytes."""
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return logs.read_log([folder / name], **options)


def changed(name, old="", new=""):
    """The text of an example file, with a part of it replaced."""
    text = (DATA / name).read_text(encoding="utf-8")
    assert old in text
    return text.replace(old, new)


def numbers(log):
    """What a log holds: format, requests, domain and name of the first one: tokens per passes,
    accepted/drafted, then accepted/reached of each depth.
    """
    first, sums = log.sums.iloc[0], log.sums[passes.SUMS].sum()
    shares = [(sums["emitted"], sums["blocks"]), (sums["accepted"], sums["drafted"])]
    for depth in range(1, 9 * (log.passes is not None)):
        counts = passes.depth_counts(log.passes, depth)
        shares.append((counts["accepted"].sum(), counts["reached"].sum()))
    said = " ".join(f"{part:.6g}/{whole:.6g}" for part, whole in shares if whole or part)
    return f"{log.format}, {log.requests}, {first['domain']}, {first['prompt_id']}: {said}"


def check_sums(log):
    """The passes, or the kinds of passes, are the same tokens as the totals."""
    if log.passes is not None:
        weight = log.passes.get("blocks", 1)
        for column in ("accepted", "emitted"):
            whole = log.sums[column].sum()
            assert (log.passes[column] * weight).sum() == pytest.approx(whole, rel=1e-4)


# ---- formats by hand -----------------------------------------------------------------------------

# three passes accept 2 of 3, 0 of 3 and 1 of 2; or ten passes accept 0 0 1 1 1 2 2 2 3 3 of 3
EXAMPLES = {
    # counts per pass
    "vllm.jsonl": "vllm, 1, unknown, a: 6/3 3/8 2/3 1/2 0/1",
    "aiperf.jsonl": "vllm, 1, coding, a: 6/3 3/8 2/3 1/2 0/1",
    "speclab.jsonl": "speclab, 1, code, code-1: 6/3 3/8 2/3 1/2 0/1",
    "spec-bench.jsonl": "spec-bench, 1, writing, 81: 6/3 3/0 2/3 1/2 0/1",
    "steps.csv": "passes, 2, unknown, steps.csv, line 2: 6/3 3/9 2/3 1/2 0/1",
    # histograms
    "vllm-summary.json": "vllm, 1, unknown, a: 6/3 3/8 2/3 1/2 0/1",
    "aiperf-sparse.jsonl": "vllm, 1, coding, a: 6/3 3/8 2/3 1/2 0/1",
    "sglang.json": "sglang, 1, unknown, a: 6/3 3/8 2/3 1/2 0/1",
    "tensorrt-llm.json": "tensorrt-llm, 1, unknown, a: 6/3 3/8 2/3 1/2 0/1",
    # totals; rounds are taken where they are said: mlx-vlm counts past the end of an answer
    "sglang-totals.json": "sglang, 1, unknown, a: 6/3 3/9",
    "eagle.jsonl": "eagle, 1, unknown, 81: 6/3 3/0",
    "mlx-vlm.json": "llamacpp, 2, unknown, a: 112/31 87/97",
    "inventivehq.json": "llamacpp, 12, code, code-0: 2877/774 2103/3844",
    # the server counted 505 drafts, so 6 passes had none
    "vukrosic.json": "llamacpp, 10, coding, coding-1: 613/511 102/1971",
    # an answer without counts took 10 plain passes; a run that never drafts is left out
    "runs.json": "llamacpp, 2, unknown, a: 20/16 4/6",
    # lines of a server; llama.cpp's 27 tokens begin with the prompt's own, so 11 passes gave 26
    "vllm.log": "vllm-log, 1, unknown, unknown, block of lines 1: 25/10 15/30 8/10 5/8 2/5",
    "vllm-older.log": "vllm-log, 1, unknown, unknown, block of lines 1: 25/10 15/30",
    "vllm-oldest.log": "vllm-totals, 1, unknown, unknown, block of lines 1: 25/10 15/30",
    "llamacpp.log": "llamacpp-log, 1, unknown, llamacpp.log, line 3: 26/11 15/30",
    "rates.log": "llamacpp-log, 1, unknown, rates.log, line 3: 26/11 15/30 8/10 5/8 2/5",
    "drafter.log": "llamacpp-totals, 1, mtp, mtp, block of lines 1: 25/10 15/30 8/10 5/8 2/5",
    "speculative.txt": "llamacpp-log, 1, unknown, speculative.txt, line 4: 25/10 15/30",
    # 2.00 tokens of one running request and 3.00 of three
    "sglang.log": "sglang-log, 2, unknown, unknown, block of lines 1: 11/4 7/0",
    "scrape.prom": "prometheus, 1, unknown, unknown, block of lines 1: 25/10 15/30 8/10 5/8 2/5",
    # settings
    "settings.json": "settings, 1, K = 3, draft, K = 3, draft: 25/10 15/30 8/10 5/8 2/5",
    "bench.txt": "settings, 1, bench.txt, line 5, bench.txt, line 5: 25/10 15/30",
    "means.csv": "settings, 2, K = 1, MTP, K = 1, MTP: 6.33/2 4.33/0",
    "means.yaml": "settings, 2, K = 1, m.on, K = 1, m.on: 4.34/2 2.34/0",
}


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_an_example_by_hand(name, ending, tmp_path):
    log = read(tmp_path, changed(name, "\n", ending), name)
    assert numbers(log) == EXAMPLES[name]
    check_sums(log)


@pytest.mark.parametrize("name", [*EXAMPLES][:4])
def test_the_order_of_the_passes(name):
    frame = logs.read_log([DATA / name]).passes[["turn", "accepted", "emitted"]]
    last = name == "spec-bench.jsonl"
    assert frame.to_numpy().tolist() == [[0, 2, 3], [0, 0, 1], [last, 1, 2]]


CHANGED = [
    # two passes without a draft; then an answer that ends a token earlier
    ("vllm.jsonl", 'tokens": 7', 'tokens": 9', "8/5 3/8 2/3 1/2 0/1"),
    ("vllm-summary.json", 'tokens": 7', 'tokens": 9', "8/5 3/8 2/3 1/2 0/1"),
    ("vllm.jsonl", 'tokens": 7', 'tokens": 6', "5/3 3/8 2/3 1/1 0/1"),
    # a draft of 1 has no second token, to accept or to reach; a histogram that does not add up
    (
        "by-length.json",
        '"3": [1, 1, 1, 0]',
        '"3": [1, 0, 0, 0], "1": [0, 1, 1]',
        "6/3 3/8",
    ),
    (
        "by-length.json",
        '"3": [1, 1, 1, 0]',
        '"3": [1, 0, 1, 0], "1": [0, 1]',
        "6/3 3/8 2/3 1/1 0/1",
    ),
    ("vllm-summary.json", "  1,\n", "  5,\n", "6/3 3/8"),
    # before the mean counted the target's token; by the mean; shares that cannot be
    ("vllm.log", "2.50", "1.50", "25/10 15/30 8/10 5/8 2/5"),
    ("vllm.log", "Accepted thr", "Current speculative depth: 3, thr", "25/10 15/30 8/10 5/8 2/5"),
    ("vllm.log", "0.800, 0.500, 0.200", "0.500, 0.200", "25/10 15/30"),
    ("vllm.log", "0.500", "0.900", "25/10 15/30"),
    ("scrape.prom", "vllm:", "llamacpp:", "25/10 15/30 8/10 5/8 2/5"),
]


@pytest.mark.parametrize(("name", "old", "new", "expected"), CHANGED)
def test_a_changed_example_by_hand(name, old, new, expected, tmp_path):
    assert numbers(read(tmp_path, changed(name, old, new), name)).endswith(f": {expected}")


def test_two_scrapes_count_from_the_first_to_the_second(tmp_path):
    both = [DATA / "before.prom", DATA / "after.prom"]
    one_file = read(tmp_path, "".join(path.read_text() for path in both), "log.prom")
    for log in (logs.read_log(both), one_file):
        assert numbers(log).endswith(": 25/10 15/30 8/10 5/8 2/5")


LINE = changed("vllm.log")
DOCKER = json.dumps({"log": LINE, "stream": "stdout"})
# requests (blocks of 4 lines of 64), notes, numbers
PARTS = {
    "16, 0 notes: 1600/640 960/1920 512/640 320/512 128/320": LINE * 64,
    # a line without its last rate has no depths, and one that is cut says nothing
    "2, 1 notes: 50/20 30/60 8/10 5/8 2/5": LINE + LINE.replace(", 0.200", ""),
    "1, 1 notes: 25/10 15/30 8/10 5/8 2/5": LINE + LINE[:150],
    # docker writes lines as JSON
    "2, 0 notes: 50/20 30/60 16/20 10/16 4/10": f"{DOCKER}\n{DOCKER}\n",
    # requests are not counted again with the sums of the drafter
    "1, 1 notes: 26/11 15/30 8/10 5/8 2/5": changed("rates.log") + changed("drafter.log"),
    # an answer without counts of drafts
    "1, 1 notes: 6/3 3/8 2/3 1/2 0/1": changed("vllm.jsonl") + '{"id": "b", "choices": []}',
}


@pytest.mark.parametrize("expected", PARTS)
def test_parts_of_a_log_by_hand(expected, tmp_path):
    log = read(tmp_path, PARTS[expected])
    said = numbers(log).partition(": ")[2]
    assert f"{log.requests}, {len(log.notes)} notes: {said}" == expected


def test_models_of_a_scrape_are_read_apart(tmp_path):
    one = changed("scrape.prom", "{", '{model_name="a/b",')
    log = read(tmp_path, one + one.replace("a/b", "c"), "log.prom")
    assert log.sums["domain"].tolist() == ["a/b", "c"] and log.is_mixed
    assert log.sums["emitted"].tolist() == pytest.approx([25, 25])


@pytest.mark.parametrize(
    ("name", "settings", "drafts"),
    [
        ("vllm.log", "speculative_config=SpeculativeConfig(method='eagle3', model='m')\n", "heads"),
        ("sglang.log", "--speculative-algorithm STANDALONE\n", "draft model"),
        ("drafter.log", "", "heads"),
        ("vllm.log", "speculative_config={'method': 'ngram'}\n", "copies"),
        ("vllm.log", "", ""),
        ("drafter.log", changed("drafter.log", "mtp", "draft"), ""),
        ("eagle.jsonl", "", "heads"),
    ],
)
def test_a_log_may_say_what_drafted(name, settings, drafts, tmp_path):
    assert read(tmp_path, settings + changed(name)).drafts == drafts


# ---- containers ----------------------------------------------------------------------------------

CONTAINERS = [
    "<1>\n\n<2>\n",
    "<1>\r\n<2>\r\n",
    "<1><2>",
    "[<1>, <2>]",
    "\ufeff[<1>, <2>]",
    '{"runs": [{"records": [{"response": <1>}, {"response": <2>}]}]}',
    '{"data": <1>}\n{"data": <2>}',
    "data: <1>\n\ndata: <2>\n\ndata: [DONE]\n",
]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("text", CONTAINERS)
def test_every_container_gives_the_same_log(text, indent, tmp_path):
    one = json.dumps(json.loads(changed("vllm.jsonl")), indent=indent)
    two = one.replace("cmpl-a", "cmpl-b")
    expected = read(tmp_path, f"{one}\n{two}").passes
    text = text.replace("<1>", one).replace("<2>", two).encode()
    for content in (text, gzip.compress(text), text.decode("utf-8-sig").encode("utf-16")):
        assert_frame_equal(read(tmp_path, content).passes, expected)
    assert expected["prompt_id"].unique().tolist() == ["a", "b"]


def test_objects_around_a_response_name_it(tmp_path):
    around = '{"prompt_id": "p", "category": "code", "response": {"choices": [], "data": %s}}'
    log = read(tmp_path, around % changed("vllm.jsonl"))
    names = log.sums[["prompt_id", "domain", "context"]]
    assert names.to_numpy().tolist() == [["p", "code", 500]]


# ---- what is refused -----------------------------------------------------------------------------

STEPS = '"per_step_accepted": [2, 0, 1]'
WRONG = [
    ("vllm-summary.json", 'steps": 3', 'steps": NaN', "num_spec_steps=nan: .* finite"),
    ("vllm-summary.json", 'draft_tokens": 8', 'draft_tokens": Infinity', "num_draft_tokens=inf"),
    ("vllm-summary.json", 'draft_tokens": 8', 'draft_tokens": 2', "3 of 2 drafted tokens are acc"),
    ("vllm-summary.json", 'draft_tokens": 8', 'draft_tokens": -8', "greater than or equal to 0"),
    ("vllm-summary.json", 'draft_tokens": 8', 'draft_tokens": 3001', "a draft has 1,000 at most"),
    ("vllm-summary.json", 'steps": 3', 'steps": "3"', "num_spec_steps='3': .* valid number"),
    ("vllm-summary.json", 'steps": 3', 'steps": true', "num_spec_steps=True: .* valid number"),
    ("vllm-summary.json", 'steps": 3', 'steps": 3.5', "num_spec_steps=3.5: .* multiple of 1"),
    (
        "vllm-summary.json",
        'tokens": 7',
        'tokens": 1e11',
        "completion_tokens=100000000000.0: .* less",
    ),
    ("vllm.jsonl", "[3, 3, 2]", "[3000000000, 3, 2]", "per_step_drafted=3000000000: .* less than"),
    ("vllm.jsonl", "[2, 0, 1]", "[100000, 0, 1]", "per_step_accepted=100000: .* or equal to 1000"),
    ("vllm.jsonl", "[2, 0, 1]", "[4, -1, 0]", "per_step_accepted=-1: .* greater than or equal"),
    ("vllm.jsonl", "[3, 3, 2]", "[3, 3]", "per_step_accepted and .* do not add up"),
    ("vllm.jsonl", "[2, 0, 1]", "[2, 1]", "do not add up to the totals"),
    ("by-length.json", '"3": [', '"x": [', "could not convert string to float: 'x'"),
    ("mlx-vlm.json", 'rounds": 30', 'rounds": 130', r"\[0\].timings: 81 of 90 .* in 130 passes"),
    ("spec-bench.jsonl", "[2, 1]", "[2, 2]", "line 1, choices.0.: .* adds up to 4 in 2 turns"),
    ("spec-bench.jsonl", "[3, 1, 2]", "[3, 0, 2]", "accept_lengths has 0: each length counts"),
    ("spec-bench.jsonl", "writing", "pooled", "domain='pooled': allowed .* choose another name"),
    ("speclab.jsonl", "drafted_per_step", "other", "it has no drafted_per_step, .* decode the"),
    ("vllm.log", " 15 tokens", " 99 tokens", "line 1: 99 of 30 drafted tokens are"),
    ("vllm-older.log", ": 3", "", "--drafted may name the tokens of a draft"),
    ("scrape.prom", "10.0", "NaN", "num_drafts=nan: .* finite"),
]
ONE = changed("vllm.jsonl")
HOSTILE = {
    "nested": ("[" * 100_000, "line 1: the JSON is nested"),
    "nested objects": ('{"a":' * 50_000, "line 1: the JSON is nested"),
    "deep": ("[" * 900 + ONE + "]" * 900, "no counts of drafts to read"),
    "cut": (f"[{ONE}, {ONE}"[:-30], "line 1: no JSON"),
    "cut line": (ONE + ONE[:40], "line 2: no JSON"),
    "text between": (f"{ONE}hello", "line 2: no JSON"),
    "digits": ('{"draft_n": ' + "9" * 5000 + "}", "line 1: no JSON"),
    "twice a name": ('{"a": 1, "a": 2}', "'a' occurs twice"),
    "twice a request": (ONE * 2, r"line 2, .*: request 'a' was read before \(log.jsonl, line 1, "),
    "two engines": (
        ONE + changed("spec-bench.jsonl"),
        "line 1, .*: this is in the format vllm, and other lines are in the format spec-bench",
    ),
    "two servers": (LINE + changed("sglang.log"), "line 2: this is in the format sglang-log, and"),
    "two kinds": (
        ONE + changed("vllm-summary.json", "cmpl-a", "b"),
        "line 2, .*: request 'b' has totals only, and others have",
    ),
    "counters that fell": (
        changed("after.prom") + changed("before.prom"),
        "a counter fell",
    ),
    "scalar": ("42", "to read; no line has SpecDecoding metrics"),
    "object": ('{"text": "hello"}', r"to read; log.jsonl, line 1 has \['text'\]"),
    "text": ("hello world", "no counts of drafts to read; no line has SpecDecoding"),
    "Markdown": ("| K | accepted |\n| --- | --- |\n| 3 | 15 |\n", "no line has SpecDecoding"),
    "empty": (" \n", "is empty"),
    "accepted above generated": (
        "draft acceptance = 1.50000 (   90 accepted /    60 generated)\n",
        "90 of 60 drafted tokens are accepted",
    ),
    "binary": (b"\x00\x01\x02", "no line has SpecDecoding"),
    "bytes": (b"\xff{}", "cannot be read"),
    "cut gzip": (gzip.compress(b"{}" * 999)[:-9], "cannot be read"),
    "two bytes of gzip": (b"\x1f\x8b", "cannot be read"),
}


@pytest.mark.parametrize("case", [*HOSTILE, *WRONG])
def test_a_hostile_file_is_refused_in_one_line(case, tmp_path):
    if case in HOSTILE:
        content, message = HOSTILE[case]
    else:
        content, message = changed(*case[:3]), case[3]
    with refuses(message) as error:
        read(tmp_path, content)
    assert "log.jsonl" in str(error.value)


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ("0,9,3\n", "line 3: 9 of 3 drafted tokens are accepted"),
        ("\n\n0,,3", "line 5: nan of 3"),
        ("0,x,3", "line 3: nan of 3"),
        ("x,9,3", "line 3: 9 of 3"),
    ],
)
def test_a_wrong_pass_is_named_by_its_line(new, message, tmp_path):
    with refuses(f"log.csv, {message}"):
        read(tmp_path, f"step,accepted,drafted\n0,1,2\n{new}", "log.csv")


@pytest.mark.parametrize("second", ["accepted", " Accepted"])
def test_two_columns_of_one_name_are_refused(second, tmp_path):
    with refuses("log.csv: two columns have the same name; keep one"):
        read(tmp_path, f"step,accepted,drafted,{second}\n0,1,2,0\n", "log.csv")


def test_a_gzip_bomb_is_not_unpacked(tmp_path, monkeypatch):
    """A gigabyte in a megabyte; reading stops at the limit."""
    monkeypatch.setattr(readers, "LONGEST_TEXT", 2**20)
    with refuses("log.jsonl cannot be read .*more than 1,048,576 bytes"):
        read(tmp_path, gzip.compress(bytes(2**20)) * 1024)


def test_a_pipe_and_a_folder_are_refused_and_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with refuses("is not a regular file; save it as one"):
            logs.read_log([path])


@pytest.mark.parametrize("name", [name for name in EXAMPLES if ".json" in name])
@given(
    st.dictionaries(
        st.sampled_from(["metrics", "usage", "choices", "meta_info", "metadata", "token_ids"]),
        st.recursive(
            st.none() | st.integers() | st.text(max_size=2),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
            max_leaves=4,
        ),
        max_size=2,
    )
)
@settings(max_examples=30, deadline=None, suppress_health_check=[*HealthCheck])
def test_any_line_is_read_or_refused_by_its_place(name, tmp_path, values):
    line = json.loads(changed(name))
    line = [line, values] if isinstance(line, list) else line | values
    try:
        read(tmp_path, json.dumps(line))
    except ValueError as error:
        assert "log.jsonl" in str(error)


# ---- published files -----------------------------------------------------------------------------

PUBLISHED = {
    # 2.6696 tokens per pass: by counts, and (`check_sums`) by rates
    "vllm_server_logs/manoj_server_20260707_081401.log": ": 60704/22739 37965/113695 ",
    "prometheus/vllm_dspark_metrics.txt": ": 254/105 149/630 84/105 63/84 1/63 1/1 0/1",
    # 4 10 7 7 3 1 0 1 passes
    "sglang_json/sglext_openai_response.json": ": 102/33 69/231 29/33 19/29 12/19 5/12 2/5 1/2 1/1",
    "trtllm_json/choice_speculative_decoding.json": ": 49/20 30/60 12/20 12/12 6/12",
    "vllm_json/summary_histogram_by_draft_length.json": ": 53/43 10/129 4/43 3/4 3/3",
    "vllm_json/detailed_gguf_dflash7.json": ": 79/12 67/84 12/12 11/12 11/11 10/11 9/10 7/9 7/7",
    "aiperf/record_vllm_doc.jsonl": ": 409/128 281/640",
    "thc1006/qwen3.6_master_draft-max8_rep0.jsonl": ": 2093/910 1183/3770",
    "csv_steps/zy-ning_steps.csv": ": 98575/36064 62511/216384 ",
}
RUNS = {
    "llamacpp_timings/inventivehq_results.json": ("backend: cuda, method: draft", 2103, 3844),
    "llamacpp_timings/inventivehq_results_1080ti.json": ("cuda, method: draft", 2096, 3840),
    "llamacpp_metrics/vukrosic_f16.json": ("runs: repetition: 1", 102, 1971),
}


@needs_shared
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_file_has_its_published_counts(name):
    log = logs.read_log([SHARED / name])
    assert PUBLISHED[name] in numbers(log)
    check_sums(log)


@needs_shared
@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_a_published_file(name):
    run, accepted, drafted = RUNS[name]
    every = logs.read_log([SHARED / name]).sums
    of_run = every[every["domain"].str.contains(run)]
    alone = logs.read_log([SHARED / name], part=of_run["domain"].iloc[0])
    for sums in (of_run, alone.sums):
        assert sums[["accepted", "drafted"]].sum().tolist() == [accepted, drafted]
