"""The output file of `decode`: it never overwrites an input or another result, and an interrupted
call continues as if it had not stopped.
"""

import json
import os
import shutil
import signal
from dataclasses import replace
from unittest.mock import Mock

import pytest
from conftest import refuses, write_rows
from test_faults import forked

from speclab.__main__ import main
from speclab.cli import decode_file as files
from speclab.lab.enumeration import distance_of
from speclab.study import pairs

TEXTS = {f"{place}-é": "a b c d e f"[: 1 + 2 * place] for place in range(4)}
TIMES = ("time_s", "prefill_time_s")


def write_texts(path, texts):
    """A file of prompts, by id."""
    rows = [{"prompt_id": name, "prompt": text} for name, text in texts.items()]
    return write_rows(path, rows)


@pytest.fixture
def call_of(random_profile, tmp_path_factory):
    """A call of `decode` that asks the random pair for TEXTS."""
    folder = tmp_path_factory.mktemp("prompts")

    def made(out, shape="chain:3", rule="greedy", **changes):
        flags = {name: changes.pop(name, False) for name in ("check", "force", "allow_lossy")}
        prompts = write_texts(folder / "prompts.jsonl", changes.pop("texts", TEXTS))
        profile = random_profile.replace(**({"max_new_tokens": 8} | changes))
        return files.open_call(profile, prompts, out, rule, shape, **flags)

    return made


@pytest.fixture
def decoded(random_pair, call_of, tmp_path):
    """Decode TEXTS into a file of tmp_path; returns its rows."""

    def run(name="out", **options):
        call = call_of(tmp_path / name, **options)
        files.decode_file(call, random_pair)
        return rows_of(call.out)

    return run


def rows_of(out):
    """The rows of a result without their times."""
    rows = map(json.loads, out.read_text(encoding="utf-8").splitlines())
    return [{k: v for k, v in row.items() if k not in TIMES} for row in rows]


# ---- what is never written over ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"mine", "is no result of decode; choose another --out"),
        (b'{"prompt_id": "a", "prompt": "b"}', "is no result of decode; choose another --out"),
        (b'{"settings": "0", "prompt_id"\n', "line 1 is damaged.*start over with --force"),
        (b'{"settings": "0"}\n', "line 1 is damaged.*start over with --force"),
        (b'{"settings": "0", "prompt_id": []}\n', "line 1 is damaged.*start over with --force"),
        (b'{"settings": "0", "prompt_id": "0-\xc3\xa9"}\n', "line 1.* other settings.*--force"),
        (b'{"settings": "0", "prompt_id": "other"}\n', "line 1.* other settings.*--force"),
    ],
)
def test_a_file_of_something_else_is_refused(content, words, decoded, tmp_path):
    """--force replaces an earlier result only, so no input is ever written over."""
    (tmp_path / "out").write_bytes(content)
    with refuses(words):
        decoded()
    assert (tmp_path / "out").read_bytes() == content
    if "no result" in words:
        with refuses(words):
            decoded(force=True)
    else:
        assert len(decoded(force=True)) == len(TEXTS)


def test_models_are_loaded_only_for_what_is_left_and_before_anything_is_emptied(
    tmp_path, monkeypatch, capsys
):
    refuse = Mock(side_effect=ValueError("the pair was loaded"))
    prompts = write_texts(tmp_path / "prompts.jsonl", dict.fromkeys("ab", "def f():"))
    out = tmp_path / "out"
    places = f"--profile tiny --prompts {prompts} --out {out}"
    words = f"decode {places} --set max_new_tokens=4".split()
    assert main(words) == 0
    content = out.read_bytes()
    monkeypatch.setattr(pairs, "load_pair", refuse)
    assert main(words) == 0
    assert f"2 texts in {out}" in capsys.readouterr().out
    assert main([*words, "--force"]) == 2
    assert "the pair was loaded" in capsys.readouterr().err
    assert out.read_bytes() == content


def test_a_result_of_other_settings_needs_force(decoded, tmp_path):
    whole = decoded()
    before = (tmp_path / "out").read_bytes()
    for changes in ({"shape": "chain:2"}, {"check": True}):
        with refuses(r"line 1 .*decoded with other settings.*--force"):
            decoded(**changes)
    assert (tmp_path / "out").read_bytes() == before
    assert len(decoded(force=True, max_new_tokens=9)[0]["token_ids"]) == 9
    assert decoded(force=True) == whole


WARM = {"rule": "rejection", "temperature": 1.0}


@pytest.mark.parametrize(
    ("options", "changes", "files", "is_other"),
    [
        ({}, {}, {}, False),  # in another folder
        ({}, {"seed": 2}, {}, False),
        (WARM, {"seed": 2}, {}, True),
        (WARM, {"min_p": 0.1}, {}, True),
        ({}, {"system": "b"}, {}, True),
        ({}, {"texts": TEXTS | {"0-é": "b"}}, {}, True),
        ({}, {}, {"chat_template.jinja": "a {{ messages[0].content }}"}, True),
        ({}, {}, {"generation_config.json": '{"eos_token_id": 9}'}, True),
        ({}, {}, {"generation_config.json": '{"eos_token_id": 1, "min_length": 9}'}, True),
    ],
)
def test_a_digest_is_of_all_that_decides_a_text_and_of_no_path(
    options, changes, files, is_other, call_of, random_profile, tmp_path
):
    def digest(name, changes, files):
        """Of the first prompt, for a target in another folder, with some files written."""
        target = shutil.copytree(random_profile.target.path, tmp_path / name)
        for file, text in ({"chat_template.jinja": "{{ messages[0].content }}"} | files).items():
            (target / file).write_text(text)
        model = replace(random_profile.target, path=str(target))
        changed = {"target": model, "template": "chat"} | options | changes
        return next(iter(call_of(tmp_path / "out", **changed).prompts))

    assert (digest("one", {}, {}) != digest("two", changes, files)) == is_other


def test_a_line_says_what_every_pass_drafted_copied_and_accepted(decoded):
    rows = decoded(shape="chain:3+lookup:1", check=True, max_new_tokens=40)
    for row in rows:
        drafted, accepted = row["drafted_per_step"], row["accepted_per_step"]
        assert len(drafted) == len(accepted) == len(row["copied_per_step"]) == row["target_passes"]
        assert 3 <= max(drafted) <= row["drafted"]
        assert all(a <= d for a, d in zip(accepted, drafted, strict=True))
        assert row["plain_difference"] is None and "domain" not in row
    assert {copied for row in rows for copied in row["copied_per_step"]} == {True, False}


# ---- going on ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["greedy", "point-mass"])
def test_cut_anywhere_it_ends_as_if_it_had_not_been(rule, decoded, tmp_path, capsys):
    is_greedy = rule == "greedy"
    options = {"rule": rule, "check": is_greedy, "temperature": 0.0 if is_greedy else 1.0}
    whole, out = decoded(**options), tmp_path / "out"
    content = out.read_bytes()
    first, end = content.index("é".encode()), content.index(b"\n")
    for place in (0, 1, first + 1, end, end + 1, len(content) - 200, len(content) - 1):
        out.write_bytes(content[:place])
        kept = content[: content.rfind(b"\n", 0, place) + 1]
        assert decoded(**options) == whole, place
        assert out.read_bytes().startswith(kept), "finished lines stay, times and all"
        assert ("texts equal" in capsys.readouterr().err) == is_greedy
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [".out.lock", "out"]


def test_prompts_that_are_new_are_decoded_and_no_others(decoded, monkeypatch):
    """Lines may stand in any order, and one is missing."""
    whole, real, asked = decoded("whole"), files.decode_prompt, []
    monkeypatch.setattr(files, "decode_prompt", lambda *g, **k: asked.append(g[1]) or real(*g, **k))
    some = dict(list(TEXTS.items())[2:0:-1])
    decoded(texts=some)
    found = decoded()
    assert sorted(prompt.prompt_id for prompt in asked) == sorted(TEXTS)
    assert sorted(found, key=lambda row: row["prompt_id"]) == whole


@pytest.mark.parametrize(
    ("temperature", "shape", "rule"),
    [
        (0.0, "tree:2,2,4", "greedy"),
        (0.7, "chain:3", "rejection"),
        (0.7, "tree:2,2,4", "point-mass"),
        (0.7, "chain:2+lookup:1", "rejection"),
    ],
)
def test_a_rule_that_is_not_named_is_the_lossless_one(temperature, shape, rule, call_of, tmp_path):
    """A call without a rule also continues the result of a call that named the rule."""
    options = {"temperature": temperature, "shape": shape}
    named, unnamed = (call_of(tmp_path / "out", rule=one, **options) for one in (rule, None))
    assert unnamed.rule == rule and unnamed.prompts == named.prompts


PATHS = "[[1], [2], [2, 0], [2, 0, 3]]"  # ranks may be left out


@pytest.fixture
def paths(tmp_path):
    """Writes a file of paths, as JSON or YAML; returns the shape that names it."""

    def write(text, name="paths.json"):
        (tmp_path / name).write_text(text)
        return f"paths:{tmp_path / name}"

    return write


def test_a_tree_of_paths_is_decoded_and_known_by_its_nodes(decoded, paths):
    """Not by the file's name or form. The texts are the target's own."""
    rows = decoded(shape=paths(PATHS), check=True)
    assert {(row["drafted"], row["plain_difference"]) for row in rows} == {(4, None)}
    same = paths("- [2]\n- [1]\n- [2, 0]\n- [2, 0, 3]", "other.yaml")
    assert decoded(shape=same, check=True) == rows
    with refuses("other settings"):
        decoded(shape=paths("[[1], [0], [1, 0]]"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[0], [1, 0]]", r"path \[1, 0\] is there without \[1\]"),
        ("{a: 1}", "paths.json holds a dict instead of a list; it needs a list of lists"),
        ("[[0], [!!python/name:os.system x]]", "paths.json is damaged .*tags"),
        ("[[0], [1", "paths.json is damaged"),
        ("&a [*a]", "paths.json is damaged .*aliases"),
    ],
)
def test_a_file_that_holds_no_paths_is_named(text, words, decoded, paths):
    with refuses(words):
        decoded(shape=paths(text))


def test_a_lossy_rule_needs_the_word_and_says_its_distance(decoded, capsys):
    options = {"rule": "typical", "temperature": 1.0}
    with refuses("--allow-lossy"):
        decoded(**options)
    assert len(decoded(**options, allow_lossy=True)) == len(TEXTS)
    said = capsys.readouterr().err
    assert "typical is not lossless" in said and f"up to {distance_of('typical'):.2f} from" in said


@pytest.mark.parametrize("at", [0, 3])
def test_killed_it_goes_on(at, decoded, tmp_path, monkeypatch):
    whole, real, calls = decoded("whole"), files.decode_prompt, []

    def killed(*given, **more):
        if len(calls) == at:
            os.kill(os.getpid(), signal.SIGKILL)
        calls.append(given)
        return real(*given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(files, "decode_prompt", killed)
        _, status = os.waitpid(forked(decoded), 0)
    assert os.WIFSIGNALED(status)
    assert rows_of(tmp_path / "out") == whole[:at]
    monkeypatch.setattr(files, "decode_prompt", lambda *g, **k: calls.append(g) or real(*g, **k))
    assert decoded() == whole and len(calls) == len(whole) - at
