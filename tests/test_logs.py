"""Logs: what may be said of a file, folders that hold a log, and the verb."""

from pathlib import Path

import pytest
from conftest import cut_file, refuses
from pandas.testing import assert_frame_equal
from test_readers import DATA, changed

from speclab.__main__ import main
from speclab.logs import log_summary, logs
from speclab.study import runs
from speclab.study.profiles import ROOT

BENCH = DATA / "spec-bench.jsonl"
PASSES, TOTALS = logs.opened(DATA / "vllm.jsonl"), logs.opened(DATA / "eagle.jsonl")


# ---- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("vllm.jsonl", {"kind": "vlm"}, "format 'vlm' is unknown"),
        ("vllm.jsonl", {"drafted": 4}, "has totals only; leave --drafted out"),
        ("sglang.json", {"drafted": 4}, "has totals only; leave --drafted out"),
        *(
            ("spec-bench.jsonl", {"drafted": drafted}, "a whole number from 1 to 999, or heuristic")
            for drafted in ("0", "four", "1000")
        ),
        (
            "runs.json",
            {"part": "records: method: none"},
            "nothing was drafted; runs: records",
        ),
        (
            "vllm.log",
            {"prompts": BENCH},
            "vllm-log has none; leave --prompts out, or read the resp",
        ),
        ("llamacpp.log", {"prompts": BENCH}, "llamacpp-log has none; leave --prompts out"),
        ("vllm.jsonl", {"prompts": BENCH}, "line 1, .*: request 'a' is not among the prompts"),
        ("absent", {}, "does not exist; name a log file"),
    ],
)
def test_options_that_do_not_fit(name, options, message):
    with refuses(message):
        logs.opened(DATA / name, **options)


def test_the_length_of_a_draft_may_be_named(tmp_path):
    for drafted, expected in {"4": [4, 4, 4], "heuristic": [5, 4, 5]}.items():
        assert logs.opened(BENCH, drafted=drafted).passes["drafted"].tolist() == expected
    path = tmp_path / "server.log"
    path.write_text(changed("vllm-older.log", "num_spec", "x"))
    assert logs.opened(path, drafted=3).sums["blocks"].tolist() == [10]


def test_a_format_may_be_named(tmp_path):
    path = tmp_path / "both.jsonl"
    path.write_text(changed("vllm.jsonl") + BENCH.read_text())
    for kind in ("vllm", "spec-bench"):
        assert logs.opened(path, kind=kind).format == kind


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ('{"prompt_id": "a", "domain": "x"}\n{"prompt_id": "b", "domain": "y"}', "x"),
        # an id of vLLM; one array; a number as a name
        ('{"question_id": "cmpl-a", "category": "x"}', "x"),
        ('[{"task_id": 7, "domain": "math"}, {"id": "a", "category": "code"}]', "code"),
        ('{"prompt_id": "a"}', "line 1: prompt_id and domain are needed"),
        ('["a", "code"]', "line 1: prompt_id and domain are needed"),
        (
            '{"id": 1, "domain": "a"}\n{"id": "1", "domain": "b"}',
            "line 2: '1' has two domains; keep one",
        ),
    ],
)
def test_prompts_name_the_domain(text, domain, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(text)
    try:
        log = logs.opened(DATA / "vllm.jsonl", prompts=prompts)
    except ValueError as error:
        assert domain in str(error)
    else:
        assert log.passes["domain"].unique().tolist() == [domain]


# ---- folders -------------------------------------------------------------------------------------


def equal(one, other):
    """Whether two logs hold the same."""
    assert_frame_equal(one.sums, other.sums)
    if one.passes is not None:
        assert_frame_equal(one.passes, other.passes)
    return (one.format, one.sources, one.notes) == (other.format, other.sources, other.notes)


@pytest.mark.parametrize("log", [PASSES, TOTALS, logs.opened(BENCH)])
def test_a_folder_gives_the_log_back_and_holds_no_text(log, tmp_path):
    folder = tmp_path / "new" / "log"
    logs.save(log, folder)
    assert equal(logs.opened(folder), log)
    assert [path.name for path in folder.parent.iterdir()] == ["log"]
    assert b"not kept" not in b"".join(path.read_bytes() for path in folder.iterdir())


def test_a_folder_is_replaced_only_if_asked_and_only_if_it_is_a_log(tmp_path):
    log, other, folder = PASSES, TOTALS, tmp_path / "log"
    logs.save(log, folder)
    with refuses("exists already; name another --out, or .* --force"):
        logs.save(other, folder)
    assert equal(logs.opened(folder), log)
    logs.save(other, folder, force=True)
    assert equal(logs.opened(folder), other)
    (tmp_path / "kept.txt").write_text("mine")
    for path in (tmp_path, tmp_path / "kept.txt"):
        with refuses("holds something other than a log"):
            logs.save(log, path, force=True)


def test_a_call_that_is_killed_leaves_no_half_folder(tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(logs, "write_facts", killed)
    with pytest.raises(KeyboardInterrupt):
        logs.save(PASSES, tmp_path / "log")
    assert not [*tmp_path.iterdir()]


def test_an_earlier_log_is_back_if_the_new_one_cannot_take_its_place(tmp_path, monkeypatch):
    folder, rename = tmp_path / "log", Path.rename
    logs.save(PASSES, folder)

    def stopped(path, target):
        return rename(path, target) if path.name != "log" or path == folder else 1 / 0

    with monkeypatch.context() as during:
        during.setattr(Path, "rename", stopped)
        with pytest.raises(ZeroDivisionError):
            logs.save(TOTALS, folder, force=True)
    assert equal(logs.opened(folder), PASSES)


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
    logs.save(PASSES, folder)
    damage(folder)
    with pytest.raises(runs.RunError, match=f"{DAMAGE[damage]}.*speclab log FILE"):
        logs.opened(folder)


def test_a_folder_takes_no_options_and_must_hold_a_log(tmp_path):
    logs.save(PASSES, tmp_path / "log")
    for options in ({"kind": "vllm"}, {"prompts": BENCH}, {"drafted": 4}):
        with refuses("is a folder, which was read with its own options"):
            logs.opened(tmp_path / "log", **options)
    with pytest.raises(runs.RunError, match="holds no log that this version"):
        logs.opened(ROOT / "data" / "traces" / "tiny" / "greedy")


# ---- the verb ------------------------------------------------------------------------------------

SIX = "".join(BENCH.read_text().replace("81", str(name)) for name in range(6))
OTHER = changed("inventivehq.json", 'draft"', 'other"')
RUNS = "[" + changed("inventivehq.json") + "," + OTHER + "]"
LEVELS = [log_summary.NO_LENGTHS, log_summary.NO_ORDER, log_summary.TOTALS, logs.HIDDEN]
NO_LENGTHS, NO_ORDER, SUMS, HIDDEN = LEVELS
SAID = [
    (SIX, "", "all requests: 2.00 [2.00, 2.00] (6 requests)", NO_LENGTHS),
    (SIX, "--drafted=4", "(6 requests; 18 of 72 drafted tokens accepted)", ""),
    (changed("sglang.json"), "", "2.00 (1 request; 3 of 8 drafted tokens accepted)", NO_ORDER),
    (changed("eagle.jsonl"), "", "all requests: 2.00 (1 request)", SUMS),
    # an answer that has more tokens than its drafts explain
    (changed("vllm.jsonl", 'tokens": 7', 'tokens": 9'), "", "1.60 (1 request; 3 of 8", HIDDEN),
    (
        changed("vllm-summary.json", "  1,\n", "  5,\n"),
        "",
        "The counts by depth of 1 request are left out: they do not add up. log.jsonl, line 1, "
        "metrics.speculative_decoding: 15 passes and 15 accepted tokens, and the totals say 3",
        SUMS,
    ),
    (changed("sglang.log"), "", "sglang-log: 2 line blocks, 4 running requests.", SUMS),
    (changed("vllm.log") * 27, "", "9 line blocks, 270 target passes", NO_ORDER),
    ('{"label": "m", "k": 2, "accept_length": 2.5}', "", "  K = 2, m: 2.50 (1 setting)", SUMS),
    (RUNS, "", "  records: method: other: 3.72 [", SUMS),
    (RUNS, "--part=records: method: other", "(12 requests; 2,103 of 3,844", SUMS),
]


@pytest.mark.parametrize(("text", "option", "expected", "level"), SAID)
def test_the_verb_saves_a_log_and_says_what_it_decides(
    text, option, expected, level, tmp_path, capsys
):
    path, out = tmp_path / "log.jsonl", tmp_path / "it's a log"
    path.write_text(text)
    words = ["log", str(path), "--out", str(out), *filter(None, [option])]
    assert main(words) == main([*words, "--force"]) == 0
    said = capsys.readouterr().out
    assert expected in said and "it'\"'\"'s a log" in said and " --set name=it-s-a-log " in said
    assert [words for words in LEVELS if words in said] == [*filter(None, [level])]
