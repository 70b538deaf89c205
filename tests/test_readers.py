"""Formats of logs: each by hand, published numbers, containers, what is refused, and bounds."""

import gzip
import json
import os
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from test_choose import trace_of
from test_logs import PER_STEP, SUMMARY, bench, vllm

from speclab import replay
from speclab.logs import logs, passes, readers
from speclab.logs.passes import HITS, MISSES

SHARED = Path(__file__).resolve().parents[2] / "shared" / "public_logs"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared/public_logs")


def read(folder, content, name="log.json", **options):
    """The log of a file with this content: text, bytes, or a JSON value."""
    path = folder / name
    if not isinstance(content, str | bytes):
        content = json.dumps(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return logs.read_log([path], **options)


def totals(log):
    """(passes, drafted, accepted, emitted) of a log."""
    sums = log.sums[["blocks", "drafted", "accepted", "emitted"]].sum(min_count=1)
    return tuple(None if pd.isna(value) else round(value, 3) for value in sums)


def rows(log):
    """{accepted tokens: passes} of a log without the order of the passes."""
    return log.passes.groupby("accepted")["blocks"].sum().round(6).to_dict()


# ---- published files -----------------------------------------------------------------------------

PUBLISHED = {
    "vllm_server_logs/manoj_server_20260707_081401.log": (22739, 113695, 37965, 60704),
    "prometheus/vllm_dspark_metrics.txt": (105, 630, 149, 254),
    "sglang_json/sglext_openai_response.json": (33, 231, 69, 102),
    "trtllm_json/choice_speculative_decoding.json": (20, 60, 30, 49),
    "vllm_json/summary_histogram_by_draft_length.json": (43, 129, 10, 53),
    "vllm_json/detailed_gguf_dflash7.json": (12, 84, 67, 79),
    "aiperf/record_vllm_doc.jsonl": (128, 640, 281, 409),
    "thc1006/qwen3.6_master_draft-max8_rep0.jsonl": (910, 3770, 1183, 2093),
    "csv_steps/zy-ning_steps.csv": (36064, 216384, 62511, 98575),
}


@needs_shared
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_file_has_its_published_counts(name):
    assert totals(logs.read_log([SHARED / name])) == PUBLISHED[name]


@needs_shared
def test_depths_of_published_files():
    log = logs.read_log([SHARED / "sglang_json/sglext_openai_response.json"])
    assert rows(log) == {0: 4, 1: 10, 2: 7, 3: 7, 4: 3, 5: 1, 7: 1}
    log = logs.read_log([SHARED / "prometheus/vllm_dspark_metrics.txt"])
    by_depth = [passes.depth_counts(log.passes, depth)["accepted"].sum() for depth in range(1, 7)]
    assert [round(count) for count in by_depth] == [84, 63, 1, 1, 0, 0]
    # from the rates per position, too
    log = logs.read_log([SHARED / "vllm_server_logs/manoj_server_20260707_081401.log"])
    tokens = (log.passes["accepted"] * log.passes["blocks"]).sum()
    assert 1 + tokens / log.passes["blocks"].sum() == pytest.approx(2.6696, abs=1e-4)
    assert log.about == readers.LINES and log.requests == 14


@needs_shared
@pytest.mark.parametrize(
    ("name", "part", "accepted", "drafted"),
    [
        (
            "llamacpp_timings/inventivehq_results.json",
            "records: backend: cuda, method: draft",
            2103,
            3844,
        ),
        (
            "llamacpp_timings/inventivehq_results_1080ti.json",
            "records: backend: cuda, method: draft",
            2096,
            3840,
        ),
        ("llamacpp_metrics/vukrosic_f16.json", "runs: repetition: 1", 102, 1971),
    ],
)
def test_the_runs_of_a_published_file_are_its_domains(name, part, accepted, drafted):
    log = logs.read_log([SHARED / name])
    whole = next(run for run in log.sums["domain"].unique() if run.startswith(part))
    of_run = log.sums[log.sums["domain"] == whole]
    assert of_run[["accepted", "drafted"]].sum().tolist() == [accepted, drafted]
    alone = logs.read_log([SHARED / name], part=whole)
    assert totals(alone)[1:3] == (drafted, accepted)
    assert {"code", "coding"} & {*alone.sums["domain"]}  # the categories of the file


# predicted, drafted and accepted tokens of a draft of 0.5B for Qwen2.5-Coder-7B, RTX 5060 Ti, CUDA:
# Local LLM benchmarks by InventiveHQ and contributors, speculative-decoding-consumer-gpus @451748f,
# CC BY 4.0
INVENTIVE = {
    "code": [(256, 237, 207), (256, 270, 201), (256, 365, 181)],
    "math": [(256, 248, 205), (256, 321, 190), (256, 270, 200)],
    "reasoning": [(256, 339, 185), (256, 345, 186)],
    "summarization": [(156, 200, 116), (173, 335, 107)],
    "chat": [(256, 448, 165), (256, 466, 160)],
}
# DFlash2 for Qwen3.8-27B, first repetition: vukrosic/speculative-decoding-research @6c04d6a, MIT
VUKROSIC = {
    "coding": [(1, 0, 0), (64, 234, 2)],
    "instruction": [(64, 186, 15), (64, 206, 9)],
    "structured": [(1, 0, 0), (47, 176, 2)],
    "reasoning": [(64, 211, 8), (64, 173, 18)],
    "math": [(64, 186, 14), (64, 167, 20)],
    "explanation": [(64, 218, 7), (64, 214, 7)],
}


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [(INVENTIVE, (774, 3844, 2103, 2877)), (VUKROSIC, (511, 1971, 102, 613))],
    ids=["InventiveHQ", "vukrosic"],
)
def test_the_users_own_cards(numbers, expected, tmp_path):
    names = ("predicted_n", "draft_n", "draft_n_accepted")
    records = [
        {"id": f"{category}-{i}", "category": category} | dict(zip(names, one, strict=True))
        for category, ones in numbers.items()
        for i, one in enumerate(ones)
    ]
    log = read(tmp_path, {"runs": [{"method": "draft", "records": records}]})
    assert totals(log) == expected and {*log.sums["domain"]} == {*numbers}
    if numbers is VUKROSIC:  # the server's own count: 505 drafts, so 6 passes had none
        assert expected[0] - 505 == 6


# ---- formats by hand -----------------------------------------------------------------------------

LINE = (
    "(APIServer pid=1) INFO 07-20 18:11:49 [metrics.py:101] SpecDecoding metrics: Mean acceptance "
    "length: 2.50, Accepted throughput: 9.40 tokens/s, Drafted throughput: 15.10 tokens/s, "
    "Accepted: 15 tokens, Drafted: 30 tokens, Per-position acceptance rate: 0.800, 0.500, 0.200, "
    "Avg Draft acceptance rate: 50.0%\n"
)
DEPTH = LINE.replace("Accepted throughput", "Current speculative depth: 3, Accepted throughput")
OLDER = (
    "SpecDecoding metrics: Draft acceptance rate: 50.0%, Accepted: 15 tokens, Drafted: 30 tokens"
)
OLDEST = (
    "Speculative metrics: Draft acceptance rate: 0.6, System efficiency: 0.625, Number of "
    "speculative tokens: 3, Number of accepted tokens: 18, Number of draft tokens: 30, Number of "
    "emitted tokens: 25.\n"
)
LLAMA = (
    "slot print_timing: id  1 | prompt eval time =     300.11 ms /    20 tokens ( 15.01 ms per)\n"
    "slot print_timing: id  1 |        eval time =    2296.72 ms /    27 tokens ( 8.97 ms per)\n"
    "slot print_timing: id  1 | draft acceptance = 0.50000 (   15 accepted /    30 generated)"
)
STATISTICS = (
    "statistics    draft-mtp: #calls(b,g,a) = 1 10 10, #gen drafts = 10, #acc drafts = 8, #gen "
    "tokens = 30, #acc tokens = 15, #mean acc len = 2.50, #acc rate/pos = (0.800, 0.500, 0.200)"
)
SERIES = 'vllm:spec_decode_num_{}_total{{engine="0",model_name="m"}} {}.0\n'
POSITION = 'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{}",engine="0"}} {}.0\n'


def scrape(drafts, drafted, accepted, *positions):
    """One scrape of /metrics."""
    counts = {"drafts": drafts, "draft_tokens": drafted, "accepted_tokens": accepted}
    lines = "".join(SERIES.format(name, count) for name, count in counts.items())
    return lines + "".join(POSITION.format(place, count) for place, count in enumerate(positions))


COUNTS = (10, 30, 15, 25)
BY_ACCEPTED = {0: 2, 1: 3, 2: 3, 3: 2}
TEXTS = {
    "vllm": (LINE, "vllm-log", BY_ACCEPTED),
    "depth": (DEPTH, "vllm-log", BY_ACCEPTED),
    "older, with K in the settings": (
        "non-default args: {'num_speculative_tokens': 3}\n" + OLDER,
        "vllm-log",
        None,
    ),
    "without the bonus": (LINE.replace("2.50", "1.50"), "vllm-log", BY_ACCEPTED),
    "by the mean": (LINE.replace("0.200", "0.20").replace("0.800, ", ""), "vllm-log", None),
    "oldest": (OLDEST + OLDEST, "vllm-totals", None),
    "statistics": (f"{STATISTICS}\n{STATISTICS}", "llamacpp-totals", BY_ACCEPTED),
    "bench": (
        "Acceptance rate (%): 50.00\nAcceptance length:    2.50\nDrafts:      10\n"
        "Draft tokens:    30\nAccepted tokens:    15\n",
        "settings",
        None,
    ),
    "speculative": ("n_draft = 3\nn_predict = 26\nn_drafted = 30\nn_accept = 15\n", None, None),
    "one scrape": (scrape(10, 30, 15, 8, 5, 2), "prometheus", BY_ACCEPTED),
    "two scrapes": (
        scrape(5, 15, 7, 4, 2, 1) + scrape(15, 45, 22, 12, 7, 3),
        "prometheus",
        BY_ACCEPTED,
    ),
    "llama.cpp counters": (
        scrape(10, 30, 15, 8, 5, 2).replace("vllm:", "llamacpp:"),
        "prometheus",
        BY_ACCEPTED,
    ),
}


@pytest.mark.parametrize("case", TEXTS)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_text_log_by_hand(case, ending, tmp_path):
    text, kind, by_accepted = TEXTS[case]
    log = read(tmp_path, text.replace("\n", ending), "server.log")
    assert log.format == (kind or "llamacpp-log")
    assert totals(log) == COUNTS
    assert (log.passes is None) == (by_accepted is None)
    if by_accepted:
        assert rows(log) == by_accepted and (log.passes["drafted"] == 3).all()


def test_llama_cpp_counts_the_passes_by_the_length_of_the_answer(tmp_path):
    """26 tokens after the prompt's own: 15 accepted, so 11 passes, of which 10 had a draft."""
    alone = read(tmp_path, LLAMA, "server.log")
    assert totals(alone) == (11, 30, 15, 26) and alone.about == readers.REQUESTS
    rates = ", mean acceptance length =  2.50, acceptance rate per position = (0.800, 0.500, 0.200)"
    log = read(tmp_path, LLAMA + rates, "server.log")
    assert totals(log) == (11, 30, 15, 26)
    assert rows(log) == BY_ACCEPTED | {0: 3} and (log.passes["drafted"] == 0).sum() == 1
    # the requests themselves, not the sums of the drafter
    assert read(tmp_path, f"{LLAMA}{rates}\n{STATISTICS}", "server.log").format == "llamacpp-log"


def test_lines_of_sglang_weigh_by_the_running_requests(tmp_path):
    lines = "[2026] Decode batch, #running-req: {}, accept len: {:.2f}, accept rate: 0.5, x: 1\n"
    log = read(tmp_path, lines.format(1, 2) + lines.format(3, 3), "server.log")
    assert log.sums["emitted"].sum() / log.sums["blocks"].sum() == pytest.approx((2 + 3 * 3) / 4)


def test_blocks_of_lines_are_resampled(tmp_path):
    log = read(tmp_path, LINE * 64, "server.log")
    assert log.requests == 16 and (log.sums["blocks"] == 40).all()


JSONS = {
    "aiperf": {
        "metadata": {"x_request_id": "a", "source_kind": "coding"},
        "spec_decode_acceptance": SUMMARY | {"completion_tokens": 7},
    },
    "sglang": {
        "meta_info": {
            "id": "a",
            "completion_tokens": 7,
            "spec_verify_ct": 3,
            "spec_accept_histogram": [1, 1, 1, 0],
            "spec_num_correct_drafts": 3,
            "spec_num_proposed_drafts": 8,
        }
    },
    "tensorrt-llm": {
        "id": "a",
        "usage": {"completion_tokens": 7},
        "choices": [
            {
                "index": 0,
                "speculative_decoding": {
                    "num_spec_steps": 3,
                    "total_accepted_draft_tokens": 3,
                    "total_draft_tokens": 8,
                    "acceptance_histogram": {"0": 1, "1": 1, "2": 1},
                    "num_spec_tokens": None,
                },
            }
        ],
    },
    "vllm": vllm(SUMMARY, name="a"),
}


@pytest.mark.parametrize("kind", JSONS)
def test_a_histogram_gives_the_depths(kind, tmp_path):
    log = read(tmp_path, JSONS[kind])
    assert log.format == kind.replace("aiperf", "vllm")
    assert totals(log) == (3, 8, 3, 6)
    assert rows(log) == {0: 1, 1: 1, 2: 1}
    assert log.sums["prompt_id"].tolist() == ["a"]
    assert (log.sums["domain"] == ("coding" if kind == "aiperf" else "unknown")).all()


def test_a_histogram_by_length_and_one_that_does_not_add_up(tmp_path):
    tables = {"3": [1, 0, 1, 0], "2": [0, 1]}
    log = read(tmp_path, vllm(SUMMARY | {"acceptance_histogram_by_draft_length": tables}))
    drafted = log.passes.set_index("accepted")["drafted"].to_dict()
    assert drafted == {0: 3, 2: 3, 1: 2}
    off = read(tmp_path, vllm(SUMMARY | {"acceptance_histogram": [5, 5, 5]}))
    assert off.passes is None and totals(off) == (3, 8, 3, 6)


def test_rounds_are_taken_where_they_are_said(tmp_path):
    """mlx-vlm counts accepted tokens past the end of an answer."""
    rounds = {"draft_rounds": 30, "draft_n": 90, "draft_n_accepted": 81}
    ones = [{"id": "a", "timings": {"predicted_n": 112} | rounds}]
    ones += [{"id": "b", "timings": {"predicted_n": 2, "draft_n": 7, "draft_n_accepted": 6}}]
    ones[1]["timings"]["draft_rounds"] = 1
    assert totals(read(tmp_path, ones)) == (31, 97, 87, 112)
    with pytest.raises(ValueError, match=r"\[0\].timings: 81 of 90 .* in 130 passes"):
        read(
            tmp_path,
            [{"id": "a", "timings": {"predicted_n": 112} | rounds | {"draft_rounds": 130}}],
        )


def test_an_answer_without_counts_took_plain_passes_if_others_of_its_run_drafted(tmp_path):
    drafted = {"id": "a", "predicted_n": 11, "draft_n": 6, "draft_n_accepted": 4}
    plain = {"id": "b", "predicted_n": 11, "draft_n": None, "draft_n_accepted": None}
    log = read(tmp_path, {"method": "n-gram", "records": [drafted, plain]})
    assert totals(log) == (6 + 10, 6, 4, 20)
    other = plain | {"id": "c"}
    runs = [{"method": "none", "records": [plain, other]}]
    runs += [{"method": "n-gram", "records": [drafted, other]}]
    log = read(tmp_path, {"runs": runs})
    assert log.requests == 2 and log.notes == []
    with pytest.raises(ValueError, match="nothing was drafted in records: method: none; runs: "):
        read(tmp_path, {"runs": runs}, part="records: method: none")


def test_a_table_of_passes_and_a_table_of_means(tmp_path):
    text = "Step,Accept Rate,Candidate Length,Accept Length\n1,0.1,4,3\n2,0.1,4,1\n1,0.1,4,2\n"
    log = read(tmp_path, text, "steps.csv")
    assert log.requests == 2 and log.passes["accepted"].tolist() == [2, 0, 1]
    assert (log.passes["drafted"] == 3).all()
    log = read(tmp_path, "method;k;tokens_per_pass\nMTP;1;1.83\nMTP;8;4.5\n", "means.csv")
    assert log.sums["domain"].tolist() == ["K = 1, MTP", "K = 8, MTP"]
    assert log.sums["emitted"].tolist() == [1.83, 4.5] and log.passes is None
    log = read(tmp_path, "model:\n  thinking_on:\n    1: 1.84\n    2: 2.5\n", "golden.yaml")
    names = [f"K = {k}, model.thinking_on" for k in (1, 2)]
    assert log.sums["domain"].tolist() == names


def test_counters_of_settings_have_depths(tmp_path):
    setting = {"label": "draft", "k": 3, "num_drafts": 10.0, "num_accepted_tokens": 15}
    setting |= {"num_draft_tokens": 30, "per_pos": [0.8, 0.5, 0.2]}
    log = read(tmp_path, {"rows": [setting]})
    assert totals(log) == COUNTS and rows(log) == BY_ACCEPTED
    assert log.sums["domain"].tolist() == ["K = 3, draft"]


# ---- containers ----------------------------------------------------------------------------------

ONE, TWO = vllm(), vllm(name="b")
CONTAINERS = {
    "lines": f"{json.dumps(ONE)}\n\n{json.dumps(TWO)}\n",
    "crlf": f"{json.dumps(ONE)}\r\n{json.dumps(TWO)}\r\n",
    "array": json.dumps([ONE, TWO]),
    "pretty": json.dumps([ONE, TWO], indent=2),
    "pretty values": json.dumps(ONE, indent=2) + json.dumps(TWO, indent=2),
    "nested": json.dumps({"runs": [{"records": [{"response": ONE}, {"response": TWO}]}]}),
    "data": "\n".join(json.dumps({"data": one}) for one in (ONE, TWO)),
    "stream": f"data: {json.dumps(ONE)}\n\ndata: {json.dumps(TWO)}\n\ndata: [DONE]\n",
    "gzip": gzip.compress(json.dumps([ONE, TWO]).encode()),
    "bom": b"\xef\xbb\xbf" + json.dumps([ONE, TWO]).encode(),
}


@pytest.mark.parametrize("case", CONTAINERS)
def test_every_container_gives_the_same_log(case, tmp_path):
    log = read(tmp_path, CONTAINERS[case])
    assert_frame_equal(log.passes, read(tmp_path, [ONE, TWO]).passes)
    assert log.sums["prompt_id"].tolist() == ["1", "b"] and log.format == "vllm"


def test_objects_around_a_response_name_it(tmp_path):
    around = {"prompt_id": "p", "category": "code", "response": {"choices": [], "data": ONE}}
    log = read(tmp_path, around)
    assert log.sums[["prompt_id", "domain"]].to_numpy().tolist() == [["p", "code"]]
    context = ONE | {"usage": {"completion_tokens": 7, "prompt_tokens": 500}}
    assert read(tmp_path, context).sums["context"].tolist() == [500]


def test_what_counts_nothing_is_left_out_and_said(tmp_path):
    log = read(tmp_path, f"{json.dumps({'id': 'a', 'choices': []})}\n{json.dumps(vllm())}")
    assert log.notes == ["The kit left out 1 record without counts of drafts."]


def test_a_log_of_docker_is_read_as_text(tmp_path):
    line = json.dumps({"log": LINE, "stream": "stdout"})
    assert totals(read(tmp_path, f"{line}\n{line}\n")) == (20, 60, 30, 50)


# ---- what is refused -----------------------------------------------------------------------------

REFUSED = {
    "nested": ("[" * 100_000, "line 1: no JSON"),
    "nested objects": ('{"a":' * 50_000, "line 1: no JSON"),
    "deep": ("[" * 900 + json.dumps(ONE) + "]" * 900, "no counts of drafts to read"),
    "cut": (json.dumps([ONE, TWO], indent=1)[:-30], "line 1: no JSON"),
    "cut line": (f"{json.dumps(ONE)}\n{json.dumps(TWO)[:40]}", "line 2: no JSON"),
    "no JSON": (f"{json.dumps(ONE)}\nhello", "line 2: no JSON"),
    "NaN": (vllm(SUMMARY | {"num_spec_steps": float("nan")}), "num_spec_steps=nan: .* finite"),
    "Infinity": (vllm(SUMMARY | {"num_draft_tokens": float("inf")}), "num_draft_tokens=inf"),
    "above": (vllm(SUMMARY | {"num_draft_tokens": 2}), "3 of 2 drafted tokens are accepted"),
    "negative": (vllm(SUMMARY | {"num_draft_tokens": -8}), "greater than or equal to 0"),
    "text": (vllm(SUMMARY | {"num_spec_steps": "3"}), "num_spec_steps='3': .* valid number"),
    "true": (vllm(SUMMARY | {"num_spec_steps": True}), "num_spec_steps=True: .* valid number"),
    "half": (vllm(SUMMARY | {"num_spec_steps": 3.5}), "num_spec_steps=3.5: .* multiple of 1"),
    "huge": (vllm(SUMMARY | {"num_draft_tokens": 3 * 10**9}), "a draft has 1,000 at most"),
    "huge pass": (
        vllm(PER_STEP | {"per_step_drafted": [3 * 10**9, 3, 2], "num_draft_tokens": 3 * 10**9 + 5}),
        "per_step_drafted=3000000000: .* less than or equal to 1000",
    ),
    "100,000": (
        vllm(
            {
                "per_step_accepted": [100_000],
                "per_step_drafted": [100_000],
                "num_spec_steps": 1,
                "num_accepted_draft_tokens": 100_000,
                "num_draft_tokens": 100_000,
            },
            100_002,
        ),
        "per_step_accepted=100000: .* less than or equal to 1000",
    ),
    "answer": (vllm(SUMMARY, 10**11), "completion_tokens=100000000000: .* less than or equal"),
    "digits": ('{"draft_n": ' + "9" * 5000 + "}", "line 1: no JSON"),
    "length": (
        vllm(SUMMARY | {"acceptance_histogram_by_draft_length": {"x": [1]}}),
        "could not convert string to float: 'x'",
    ),
    "twice a name": ('{"a": 1, "a": 2}', "'a' occurs twice"),
    "two engines": (
        f"{json.dumps(ONE)}\n{json.dumps(bench())}",
        "line 1.* in the format vllm, and other lines are in the format spec-b",
    ),
    "scalar": ("42", "to read; no line has SpecDecoding metrics"),
    "object": ({"text": "hello"}, r"to read; log.json, line 1 has \['text'\]"),
    "empty": (" \n", "no line has SpecDecoding"),
    "binary": (b"\x00\x01\x02", "no line has SpecDecoding"),
    "bytes": (b"\xff{}", "damaged or cannot be read"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_hostile_file_is_refused_in_one_line(case, tmp_path):
    content, message = REFUSED[case]
    with pytest.raises(ValueError, match=message) as error:
        read(tmp_path, content)
    assert "log.json" in str(error.value) and "\n" not in str(error.value)


REFUSED_TEXTS = {
    "no mark": ("hello world", "server.log: no counts of drafts to read; no line has SpecDecoding"),
    "two engines": (
        f"{LINE}Decode batch, #running-req: 1, accept len: 2.85,",
        "line 2: this is in the format sglang-log, and other lines are in the format vllm-log",
    ),
    "above": (LINE.replace(" 15 tokens", " 99 tokens"), "line 1: 99 of 30 drafted tokens are"),
    "no K": (OLDER, "--drafted may name the tokens of a draft"),
    "fell": (scrape(9, 27, 5) + scrape(5, 15, 4), "num_drafts=-4.0: .* greater than or equal"),
    "no number": (scrape(9, 27, 5).replace("9.0", "NaN"), "num_drafts=nan: .* finite"),
}


@pytest.mark.parametrize("case", REFUSED_TEXTS)
def test_a_hostile_text_is_refused_in_one_line(case, tmp_path):
    text, message = REFUSED_TEXTS[case]
    with pytest.raises(ValueError, match=message):
        read(tmp_path, text, "server.log")


def test_the_length_of_a_draft_may_be_named_for_lines(tmp_path):
    assert totals(read(tmp_path, OLDER, "server.log", drafted=3)) == COUNTS


def test_a_line_with_a_part_of_its_rates_has_counts_and_no_depth(tmp_path):
    end = LINE.index(", 0.200")
    log = read(tmp_path, LINE + LINE[:end], "server.log")
    assert totals(log) == (20, 60, 30, 50) and log.passes["blocks"].sum() == pytest.approx(10)
    assert log.notes == ["Some requests have no complete counts by depth."]
    cut = read(tmp_path, LINE + LINE[:150], "server.log")
    assert totals(cut) == COUNTS and "left out 1 record without counts" in cut.notes[0]
    rising = read(tmp_path, LINE.replace("0.500", "0.900"), "server.log")
    assert rising.passes is None and totals(rising) == COUNTS


def test_a_pipe_is_refused_and_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(ValueError, match="is not a regular file; save it as one"):
            logs.read_log([path])


# ---- what a log does not determine ---------------------------------------------------------------


RANKS = st.lists(st.integers(0, 1), min_size=2, max_size=30)


@settings(max_examples=80, deadline=None)
@given(st.lists(RANKS, min_size=1, max_size=3), st.integers(1, 6), st.integers(1, 9))
def test_the_truth_of_another_gamma_lies_in_the_bounds_without_the_order(texts, gamma, other):
    whole = trace_of({f"p{i}": ("code", ranks) for i, ranks in enumerate(texts)})
    ordered = passes.passes_of_replay(replay.replay(whole, gamma))
    tokens = ordered.groupby("prompt_id")["emitted"].transform("sum")
    by = ["prompt_id", "domain", "turn", "remaining", "drafted", "accepted", "emitted"]
    mixed = ordered.assign(remaining=tokens).groupby(by, as_index=False).size()
    mixed = mixed.rename(columns={"size": "blocks"})
    truth = replay.chain_sums(whole, [other]).set_index("prompt_id")["blocks"]
    least, most = (
        passes.sums_at(mixed, [other], unknown).set_index("prompt_id")["blocks"]
        for unknown in (HITS, MISSES)
    )
    assert ((least <= truth) & (truth <= most)).all()
    # with the order the bounds are as narrow, or narrower
    with_order = {
        unknown: passes.sums_at(ordered, [other], unknown).set_index("prompt_id")["blocks"]
        for unknown in (HITS, MISSES)
    }
    assert (least <= with_order[HITS]).all() and (most >= with_order[MISSES]).all()
    if (ordered["accepted"] + 1 == ordered["emitted"]).all():  # the end cuts no pass
        assert (most == with_order[MISSES]).all()
        if (gamma + 1) % (other + 1) == 0 and (ordered["drafted"] == gamma).all():
            assert (least == most).all(), "blocks end where the log's own do"
