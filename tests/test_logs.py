"""Logs of other decoders: each format by hand, what is wrong by file and line, and folders."""

import gzip
import json

import pytest
from conftest import cut_file
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from speclab.__main__ import main
from speclab.logs import log_summary, logs
from speclab.study import runs
from speclab.study.profiles import ROOT

PER_STEP = {
    "mean_acceptance_length": 2.0,
    "draft_acceptance_rate": 1 / 3,
    "acceptance_histogram": [1, 1, 1, 0],
    "num_spec_steps": 3,
    "num_accepted_draft_tokens": 3,
    "num_draft_tokens": 8,
    "num_spec_tokens": 3,
    "per_step_accepted": [2, 0, 1],
    "per_step_drafted": [3, 3, 2],
}
SUMMARY = {name: value for name, value in PER_STEP.items() if not name.startswith("per_step")}
TURNS = {"index": 0, "turns": ["not kept"] * 2, "wall_time": [1.0, 1.0]}


def vllm(facts=PER_STEP, tokens=7, name="chatcmpl-1"):
    """A response of vLLM."""
    return {
        "id": name,
        "usage": {"completion_tokens": tokens},
        "metrics": {"speculative_decoding": facts},
    }


def bench(name=81, **choice):
    """A line of Spec-Bench: two turns, of 2 passes and of 1."""
    facts = {"decoding_steps": [2, 1], "new_tokens": [4, 2], "accept_lengths": [3, 1, 2]} | choice
    return {"question_id": name, "category": "writing", "choices": [TURNS | facts]}


LINES = {
    "vllm": vllm(),
    "aiperf": {
        "metadata": {"x_request_id": "chatcmpl-1"},
        "metrics": {},
        "spec_decode_acceptance": PER_STEP | {"engine": "vllm", "completion_tokens": 7},
    },
    "spec-bench": bench(),
    "speclab": {
        "prompt_id": "code-1",
        "domain": "code",
        "token_ids": [5] * 6,
        "accepted_per_step": [2, 0, 1],
        "drafted_per_step": [3, 3, 2],
        "target_passes": 3,
    },
}
TOTALS = {
    "sglang": (
        {
            "meta_info": {
                "id": "a",
                "spec_verify_ct": 3,
                "completion_tokens": 7,
                "spec_num_correct_drafts": 3,
                "spec_num_proposed_drafts": 9,
            }
        },
        (3, 9, 3, 6),
    ),
    "eagle": (
        {"question_id": 81, "choices": [{"idxs": [1, 0], "new_tokens": [4, 2]}]},
        (3, None, 3, 6),
    ),
}


def write(folder, *lines, name="log.jsonl"):
    path = folder / name
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", LINES)
def test_a_format_with_counts_per_pass_by_hand(kind, tmp_path):
    log = logs.read_log([write(tmp_path, LINES[kind])])
    assert log.format == kind.replace("aiperf", "vllm") and [*log.sources] == ["log.jsonl"]
    assert log.passes["accepted"].tolist() == [2, 0, 1]
    assert log.passes["emitted"].tolist() == [3, 1, 2]
    sums = log.sums.iloc[0]
    assert (sums["blocks"], sums["accepted"], sums["emitted"]) == (3, 3, 6)
    if kind != "spec-bench":
        assert log.passes["drafted"].tolist() == [3, 3, 2]
        assert log.passes["turn"].tolist() == [0, 0, 0]
    else:
        assert log.passes["drafted"].isna().all() and log.passes["turn"].tolist() == [0, 0, 1]
        assert log.passes["domain"].unique().tolist() == ["writing"]


@pytest.mark.parametrize("kind", TOTALS)
def test_a_format_with_totals_by_hand(kind, tmp_path):
    line, (blocks, drafted, accepted, emitted) = TOTALS[kind]
    log = logs.read_log([write(tmp_path, line)])
    assert log.passes is None and log.format == kind
    sums = log.sums.iloc[0]
    assert (sums["blocks"], sums["accepted"], sums["emitted"]) == (blocks, accepted, emitted)
    assert sums["drafted"] == drafted if drafted else sums.isna()["drafted"]


def test_passes_without_a_draft_are_counted(tmp_path):
    log = logs.read_log([write(tmp_path, vllm(tokens=9))])
    assert log.passes["accepted"].tolist() == [2, 0, 1, 0, 0]
    assert log.passes["drafted"].tolist() == [3, 3, 2, 0, 0]
    assert log.sums["emitted"].tolist() == [8] and log.sums["blocks"].tolist() == [5]
    total = logs.read_log([write(tmp_path, vllm(SUMMARY, tokens=9))])
    assert total.sums["emitted"].tolist() == [8] and total.sums["blocks"].tolist() == [5]


def test_tokens_after_the_end_are_cut(tmp_path):
    log = logs.read_log([write(tmp_path, vllm(tokens=6))])
    assert log.passes["emitted"].tolist() == [3, 1, 1] and log.sums["emitted"].tolist() == [5]


def test_an_answer_of_one_token_takes_no_pass_and_is_counted(tmp_path):
    none = {"num_spec_steps": 0, "num_accepted_draft_tokens": 0, "num_draft_tokens": 0}
    none |= {"per_step_accepted": [], "per_step_drafted": []}
    log = logs.read_log([write(tmp_path, vllm(), vllm(PER_STEP | none, 1, "b"))])
    assert log.requests == 1 and len(log.passes) == 3


WRONG = {
    "cut": ('{"id": "a", "met', "line 2: no JSON"),
    "other format": (
        bench(),
        "line 1, .*: this is in the format vllm, and other lines are in the format spec-bench",
    ),
    "unequal": (
        vllm(PER_STEP | {"per_step_drafted": [3, 3]}, name="b"),
        "line 2, .*: per_step_accepted and .* do not add up",
    ),
    "fewer steps": (
        vllm(PER_STEP | {"per_step_accepted": [2, 1]}, name="b"),
        "line 2, .* do not add up to the totals",
    ),
    "negative": (
        vllm(PER_STEP | {"per_step_accepted": [4, -1, 0]}, name="b"),
        "line 2, .*: per_step_accepted=-1: .* greater than or equal to 0",
    ),
    "text": (
        vllm(PER_STEP | {"num_spec_steps": "3"}, name="b"),
        "line 2, .*: num_spec_steps='3': .* valid number",
    ),
    "twice": (vllm(), r"line 2, .*: request '1' was read before \(log.jsonl, line 1, "),
    "mixed": (vllm(SUMMARY, name="b"), "line 2, .*: request 'b' has totals only, and others have"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named_by_file_and_line(case, tmp_path):
    line, message = WRONG[case]
    path = write(tmp_path, vllm())
    with path.open("a") as file:
        file.write(line if isinstance(line, str) else json.dumps(line))
    with pytest.raises(ValueError, match=message) as error:
        logs.read_log([path])
    assert "Traceback" not in str(error.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            bench(decoding_steps=[2, 2]),
            "line 1, choices.0.: decoding_steps .* adds up to 4 in 2 turns",
        ),
        (bench(accept_lengths=[3, 0, 2]), "accept_lengths has 0: each length counts the target"),
        (bench() | {"category": "pooled"}, "domain='pooled': allowed .* choose another name"),
        (
            {k: v for k, v in LINES["speclab"].items() if k != "drafted_per_step"},
            "line 1: it has no drafted_per_step, .* decode the prompts again",
        ),
    ],
)
def test_a_first_line_that_does_not_fit(line, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        logs.read_log([write(tmp_path, line)])


def test_a_request_without_an_id_or_a_draft(tmp_path):
    """vLLM reports nothing for requests with n above 1."""
    log = logs.read_log([write(tmp_path, vllm(name=None), vllm(None, name="b"))])
    assert log.sums["prompt_id"].tolist() == ["metrics.speculative_decoding, log.jsonl, line 1"]
    assert log.notes == ["The kit left out 1 record without counts of drafts."]


@pytest.mark.parametrize("kind", [*LINES, "sglang", "eagle"])
@given(
    values=st.dictionaries(
        st.sampled_from(["metrics", "usage", "choices", "meta_info", "metadata", "token_ids"]),
        st.recursive(
            st.none() | st.integers() | st.text(max_size=2),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
            max_leaves=4,
        ),
        min_size=1,
        max_size=2,
    )
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
def test_any_line_is_read_or_refused_by_its_place(kind, values, folder):
    line = LINES[kind] if kind in LINES else TOTALS[kind][0]
    path = write(folder, line | values)
    try:
        logs.read_log([path])
    except ValueError as error:
        assert "log.jsonl" in str(error)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder for the files of all examples."""
    return tmp_path_factory.mktemp("fuzz")


DAMAGED = {
    "cut": gzip.compress(b"{}" * 999, mtime=0)[:-9],
    "two bytes": b"\x1f\x8b",
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=[*DAMAGED])
def test_a_damaged_file_is_named(content, tmp_path):
    path = tmp_path / "log.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="log.jsonl.gz is damaged or cannot be read"):
        logs.read_log([path])
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\xff{}")
    with pytest.raises(ValueError, match="log.jsonl is damaged or cannot be read"):
        logs.read_log([path])


def test_a_request_of_vllm_is_found_by_its_own_id_and_by_the_response_s(tmp_path):
    path = write(tmp_path, vllm(), vllm(name="cmpl-b"))
    rows = [{"prompt_id": "chatcmpl-1", "domain": "x"}, {"prompt_id": "b", "domain": "y"}]
    log = logs.opened(path, prompts=write(tmp_path, *rows, name="prompts.jsonl"))
    assert log.sums["prompt_id"].tolist() == ["1", "b"]
    assert log.sums["domain"].tolist() == ["x", "y"]


def test_calls_that_do_not_fit(tmp_path):
    path = write(tmp_path, vllm())
    with pytest.raises(ValueError, match="format 'vlm' is unknown"):
        logs.read_log([path], "vlm")
    both = write(tmp_path, vllm(), bench(), name="both.jsonl")
    assert logs.read_log([both], "vllm").format == "vllm"
    with pytest.raises(ValueError, match="line 1, .*: request '1' is not among the prompts"):
        logs.read_log([path], domains={"a": "code"})
    for one in (path, write(tmp_path, vllm(SUMMARY), name="sums.jsonl")):
        with pytest.raises(ValueError, match="has totals only; leave --drafted out"):
            logs.read_log([one], drafted=4)
    with pytest.raises(ValueError, match="sums.jsonl: nothing was drafted in other"):
        logs.read_log([tmp_path / "sums.jsonl"], part="other")


# ---- folders -------------------------------------------------------------------------------------


def read(folder, kind):
    """A log of one request, with totals only or with passes."""
    line = TOTALS[kind][0] if kind == "eagle" else LINES[kind]
    return logs.read_log([write(folder, line)], drafted=3 if kind == "spec-bench" else "")


def equal(one, other):
    """Whether two logs hold the same."""
    assert_frame_equal(one.sums, other.sums)
    if one.passes is not None:
        assert_frame_equal(one.passes, other.passes)
    return (one.format, one.sources) == (other.format, other.sources)


@pytest.mark.parametrize("kind", ["vllm", "spec-bench", "eagle"])
def test_a_folder_gives_the_log_back_and_holds_no_text(kind, tmp_path):
    log = read(tmp_path, kind)
    folder = tmp_path / "new" / "log"
    logs.save(log, folder)
    assert equal(logs.read_folder(folder), log) and equal(logs.opened(folder), log)
    tables = ["sums.parquet"] if kind == "eagle" else ["passes.parquet", "sums.parquet"]
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", *tables]
    assert [path.name for path in folder.parent.iterdir()] == ["log"]
    assert b"not kept" not in b"".join(path.read_bytes() for path in folder.iterdir())


def test_a_folder_that_exists_is_replaced_only_if_asked_and_only_if_it_is_a_log(tmp_path):
    log, other = read(tmp_path, "vllm"), read(tmp_path, "eagle")
    folder = tmp_path / "log"
    logs.save(log, folder)
    with pytest.raises(ValueError, match="exists already; name another --out, or .* --force"):
        logs.save(other, folder)
    assert equal(logs.read_folder(folder), log)
    logs.save(other, folder, force=True)
    assert equal(logs.read_folder(folder), other)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "kept.txt").write_text("mine")
    for path in (tmp_path / "notes", tmp_path / "log.jsonl"):
        with pytest.raises(ValueError, match="holds something other than a log"):
            logs.save(log, path, force=True)


def test_a_call_that_is_killed_leaves_no_half_folder(tmp_path, monkeypatch):
    log, folder = read(tmp_path, "vllm"), tmp_path / "log"

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(logs, "write_facts", killed)
        logs.save(log, folder)
    assert not folder.exists() and [*tmp_path.iterdir()] == [tmp_path / "log.jsonl"]
    logs.save(log, folder)


def changed_manifest(folder):
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"vllm"', '"aiperf"'))


DAMAGE = {
    lambda folder: cut_file(folder / "passes.parquet"): r"\(its checksum differs\)",
    changed_manifest: "has changed since it was written",
    lambda folder: (folder / "manifest.json").unlink(): "holds no log that this version",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_folder_that_has_changed_is_refused(damage, tmp_path):
    folder = tmp_path / "log"
    logs.save(read(tmp_path, "vllm"), folder)
    damage(folder)
    with pytest.raises(runs.RunError, match=f"{DAMAGE[damage]}.*speclab log FILE"):
        logs.read_folder(folder)


def test_a_log_is_opened_from_a_file_with_options_or_from_a_folder_without(tmp_path):
    path = write(tmp_path, bench())
    prompts = write(tmp_path, {"question_id": 81, "category": "letters"}, name="prompts.jsonl")
    log = logs.opened(path, prompts=prompts, drafted="heuristic")
    assert logs.opened(path, drafted="4").passes["drafted"].tolist() == [4, 4, 4]
    assert log.passes["domain"].unique().tolist() == ["letters"]
    assert log.passes["drafted"].tolist() == [5, 4, 5]
    logs.save(log, tmp_path / "log")
    for options in ({"kind": "vllm"}, {"prompts": prompts}, {"drafted": 4}):
        with pytest.raises(ValueError, match="is a folder, which was read with its own options"):
            logs.opened(tmp_path / "log", **options)
    with pytest.raises(ValueError, match="does not exist; name a log file"):
        logs.opened(tmp_path / "absent")
    with pytest.raises(runs.RunError, match="holds no log that this version"):
        logs.opened(ROOT / "data" / "traces" / "tiny" / "greedy")
    for drafted in ("0", "four", "-1", "1000"):
        with pytest.raises(
            ValueError, match="a whole number from 1 to 999, or heuristic, is needed"
        ):
            logs.opened(path, drafted=drafted)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([{"prompt_id": "a"}], "line 1: prompt_id and domain are needed"),
        ([["a", "code"]], "line 1: prompt_id and domain are needed"),
        (
            [{"prompt_id": 1, "domain": "a"}, {"prompt_id": "1", "domain": "b"}],
            "line 2: '1' has two domains; keep one",
        ),
    ],
)
def test_prompts_that_do_not_fit_are_named_by_line(lines, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        logs.domains_of(write(tmp_path, *lines))


def test_prompts_may_be_one_array_with_categories(tmp_path):
    rows = [{"id": "a", "category": "code"}, {"task_id": 7, "domain": "math"}]
    assert logs.domains_of(write(tmp_path, rows)) == {"a": "code", "7": "math"}


# ---- the verb ------------------------------------------------------------------------------------


def test_the_verb_saves_a_log_and_says_what_it_holds(tmp_path, capsys):
    lines = [bench(name) for name in range(6)]
    path, out = write(tmp_path, *lines), tmp_path / "it's a log"
    assert main(["log", str(path), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "6 requests, 18 target passes" in said and "all requests: 2.00 [2.00, 2.00]" in said
    assert "name it with --drafted" in said and "it'\"'\"'s a log" in said
    words = ["--out", str(out), "--force", "--drafted", "4", "--format", "spec-bench"]
    assert main(["log", str(path), *words]) == 0
    assert "--drafted" not in capsys.readouterr().out
    assert (logs.read_folder(out).passes["drafted"] == 4).all()


def test_the_verb_says_what_intervals_are_about_and_what_a_log_decides(tmp_path, capsys):
    def summary(*lines, **options):
        words = [f"--{name}={value}" for name, value in options.items()]
        path = write(tmp_path, *lines) if isinstance(lines[0], dict) else tmp_path / "server.log"
        if isinstance(lines[0], str):
            path.write_text("".join(lines), encoding="utf-8")
        assert main(["log", str(path), "--out", str(tmp_path / "log"), "--force", *words]) == 0
        return capsys.readouterr().out

    said = summary(*(vllm(SUMMARY, name=f"r{i}") for i in range(6)))
    assert "all requests: 2.00 [2.00, 2.00] (6 requests; 18 of 48 drafted tokens accepted)" in said
    assert log_summary.NO_ORDER in said and logs.HIDDEN not in said
    # one request needs two passes without a draft, and so the others may have some
    said = summary(*(vllm(name=f"r{i}", tokens=9 if i == 0 else 7) for i in range(6)))
    assert "all requests: 1.90 [" in said and logs.HIDDEN in said
    said = summary(TOTALS["eagle"][0])
    assert log_summary.TOTALS in said and "of 0 drafted" not in said
    line = "SpecDecoding metrics: Mean acceptance length: 2.50, Accepted: 15 tokens, Drafted: 30 "
    said = summary(*[line + "tokens, Per-position acceptance rate: 0.800, 0.500, 0.200\n"] * 27)
    assert "9 line blocks, 270 target passes" in said and "which are not requests" in said
    runs_of_file = {"runs": [{"k": k, "rows": [vllm(), vllm(name="a")]} for k in (1, 2)]}
    assert "  rows: k: 1: 2.00 (2 requests; 6 of 16 drafted" in summary(runs_of_file)
    assert "rows: k: 1" not in summary(runs_of_file, part="rows: k: 2")
    said = summary({"label": "m", "k": 2, "accept_length": 2.5})
    assert "  K = 2, m: 2.50 (1 setting)" in said
    assert "all requests" not in said
