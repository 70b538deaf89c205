"""The result of `decode`: never written over what is read or over another's, and gone on with after
a stop as if there had been none.
"""

import json
import os
import re
import shutil
import signal
from dataclasses import replace

import pytest
from test_faults import forked

from speclab.__main__ import main
from speclab.draft import parse_shape
from speclab.models import pairs
from speclab.ops import decode_file as files
from speclab.ops.decode_file import decode_file, settings_of
from speclab.prompts import Prompt

PROMPTS = [Prompt(f"{place}-é", "", "a b c d e f"[: 1 + 2 * place]) for place in range(4)]
TIMES = ("time_s", "prefill_time_s")


@pytest.fixture
def decoded(random_pair, random_profile, tmp_path):
    """Decode PROMPTS with the random pair into a file of tmp_path; returns its rows."""

    def run(name="out", shape="chain:3", rule="greedy", check=False, force=False, **changes):
        profile = random_profile.replace(**({"max_new_tokens": 8} | changes))
        out = tmp_path / name
        settings = settings_of(profile, PROMPTS, rule, shape, check)
        shapes = [parse_shape(shape)] * len(PROMPTS)
        decode_file(random_pair, PROMPTS, profile, rule, shapes, out, settings, check, force)
        return rows_of(out)

    return run


def rows_of(out):
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    return [{k: v for k, v in row.items() if k not in TIMES} for row in rows]


@pytest.fixture
def command(tmp_path):
    """`decode` of two prompts with the tiny pair, and where it writes."""
    rows = [{"prompt_id": name, "prompt": "def f():"} for name in ("a", "b")]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    out = tmp_path / "out"
    named = ["--prompts", str(tmp_path / "prompts.jsonl"), "--out", str(out)]
    return ["decode", *named, "--profile", "tiny", "--set", "max_new_tokens=4"], out


def refuse(profile):
    raise ValueError("the pair was loaded")


@pytest.fixture
def no_models(monkeypatch):
    """Whoever loads a pair fails."""
    monkeypatch.setattr(pairs, "load_pair", refuse)


# ---- what is never written over ------------------------------------------------------------------


@pytest.mark.parametrize("link", ["itself", "symbolic", "settings"])
def test_the_prompts_are_never_written_over(link, command, tmp_path, no_models, capsys):
    arguments, out = command
    prompts = tmp_path / "prompts.jsonl"
    before = prompts.read_text()
    if link == "itself":
        out = prompts
    elif link == "symbolic":
        out.symlink_to(prompts)
    else:
        prompts = prompts.rename(tmp_path / "out.settings.json")
        arguments[2] = str(prompts)
    arguments[4] = str(out)
    assert main([*arguments, "--force"]) == 2
    assert f"--out {out} would be written over" in capsys.readouterr().err
    assert prompts.read_text() == before


def test_a_file_of_something_else_needs_force(command, no_models, capsys):
    arguments, out = command
    out.write_text("my notes\n")
    assert main(arguments) == 2
    assert "is there already, without its out.settings.json" in capsys.readouterr().err
    assert main([*arguments, "--force"]) == 2
    assert "the pair was loaded" in capsys.readouterr().err
    assert out.read_text() == "my notes\n", "nothing is emptied before the pair is loaded"


def test_a_result_of_other_settings_needs_force(decoded, tmp_path):
    whole = decoded()
    before = (tmp_path / "out").read_bytes()
    for changes, words in (
        ({"shape": "chain:2"}, "drafted"),
        ({"max_new_tokens": 9}, "max_new_tokens"),
        ({"check": True}, "check"),
    ):
        with pytest.raises(ValueError, match=rf"\({words}: .*--force to write it anew"):
            decoded(**changes)
    assert (tmp_path / "out").read_bytes() == before
    assert len(decoded(force=True, max_new_tokens=9)[0]["token_ids"]) == 9
    assert decoded(force=True) == whole


def test_prompts_weights_and_a_seed_that_is_drawn_by_are_settings(random_profile):
    def asked(prompts=PROMPTS, **changes):
        changed = random_profile.replace(**changes)
        return settings_of(changed, prompts, "rejection", "chain:3", False)

    assert asked(PROMPTS[:3])["encoded"] != asked()["encoded"]
    assert asked()["draft"] != asked()["target"]
    assert asked(seed=1) == asked(seed=2)
    assert asked(temperature=1.0, seed=1) != asked(temperature=1.0, seed=2)


def test_settings_know_how_prompts_are_read_and_no_path(random_profile, tmp_path):
    def asked(folder):
        target = replace(random_profile.target, path=str(folder))
        profile = random_profile.replace(target=target, template="chat")
        return settings_of(profile, PROMPTS, "greedy", "chain:3", False)

    def change(**changes):
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        shutil.copytree(random_profile.target.path, folder)
        for name, text in ({"chat_template.jinja": "{{ messages[0].content }}"} | changes).items():
            (folder / name).write_text(text)
        return asked(folder)

    first = change()
    assert change() == first
    other = change(**{"chat_template.jinja": "a {{ messages[0].content }}"})
    stops = change(**{"generation_config.json": '{"eos_token_id": 9}'})
    differ = [{name for name in first if one[name] != first[name]} for one in (other, stops)]
    assert differ == [{"encoded"}, {"stop_ids"}]


def test_a_result_goes_on_with_the_library_that_it_began_with(decoded, tmp_path, monkeypatch):
    decoded()
    beside = tmp_path / "out.settings.json"
    facts = json.loads(beside.read_text())
    assert facts["few_rows"] == {"target": None, "draft": None}, "too small to choose"
    beside.write_text(json.dumps(facts | {"few_rows": {"target": "oneDNN", "draft": "MKL"}}))
    cut = (tmp_path / "out").read_bytes()
    (tmp_path / "out").write_bytes(cut[: cut.index(b"\n") + 1])
    obeyed = []
    monkeypatch.setattr(files, "fix_few_rows", lambda _, found: obeyed.append(found))
    decoded()
    assert obeyed == [{"target": "oneDNN", "draft": "MKL"}]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda lines: [lines[0], "{", *lines[2:]], "a line is damaged"),
        (lambda lines: [lines[1], lines[0]], "not the text of its prompt"),
        (lambda lines: [re.sub('"text"', '"none"', lines[0])], "a line is damaged"),
    ],
)
def test_a_damaged_result_is_not_gone_on_with(damage, words, decoded, tmp_path):
    decoded()
    out = tmp_path / "out"
    damaged = damage(out.read_text().splitlines())
    out.write_text("".join(f"{line}\n" for line in damaged))
    with pytest.raises(ValueError, match=words):
        decoded()
    (tmp_path / "out.settings.json").write_text('{"rule"')
    with pytest.raises(ValueError, match=r"out\.settings\.json is damaged.*--force"):
        decoded()


def test_a_line_without_its_comparison_is_refused_where_all_are_compared(
    decoded, random_profile, tmp_path
):
    """Half precision compares without being asked, so the settings do not say so."""
    decoded()
    profile = random_profile.replace(max_new_tokens=8)
    asked = settings_of(profile, PROMPTS, "greedy", "chain:3", False)
    assert len(files.lines_there(tmp_path / "out", asked, PROMPTS, False, False)) == 4
    with pytest.raises(ValueError, match="a line is damaged"):
        files.lines_there(tmp_path / "out", asked, PROMPTS, False, True)


def test_a_line_says_which_blocks_were_copied(decoded):
    rows = decoded(shape="chain:3+lookup:1", check=True, max_new_tokens=40)
    for row in rows:
        assert len(row["copied_per_step"]) == row["target_passes"]
        assert row["plain_difference"] is None
    assert {copied for row in rows for copied in row["copied_per_step"]} == {True, False}
    assert "copied_per_step" not in decoded("other")[0]


# ---- going on ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["greedy", "point-mass"])
def test_cut_anywhere_it_ends_as_if_it_had_not_been(rule, decoded, tmp_path, capsys):
    is_greedy = rule == "greedy"
    asked = {"rule": rule, "check": is_greedy, "temperature": 0.0 if is_greedy else 1.0}
    whole, out = decoded(**asked), tmp_path / "out"
    content = out.read_bytes()
    ends = [place + 1 for place, byte in enumerate(content) if byte == ord("\n")]
    first = content.index("é".encode())
    for place in (0, 1, first + 1, ends[0] - 1, ends[0], ends[2] + 9, ends[-1] - 1):
        out.write_bytes(content[:place])
        kept = content[: max(end for end in (0, *ends) if end <= place)]
        assert decoded(**asked) == whole, place
        assert out.read_bytes().startswith(kept), "finished lines stay, times and all"
        assert ("4 of 4 equal" in capsys.readouterr().err) == is_greedy
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [".out.lock", "out", "out.settings.json"]


@pytest.mark.parametrize("at", [0, 3])
def test_killed_it_goes_on(at, decoded, tmp_path, monkeypatch):
    whole, real, calls = decoded("whole"), files.decode_prompt, []

    def killed(*given):
        if len(calls) == at:
            os.kill(os.getpid(), signal.SIGKILL)
        calls.append(given)
        return real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(files, "decode_prompt", killed)
        _, status = os.waitpid(forked(decoded), 0)
    assert os.WIFSIGNALED(status)
    assert rows_of(tmp_path / "out") == whole[:at]
    monkeypatch.setattr(files, "decode_prompt", lambda *g: calls.append(g) or real(*g))
    assert decoded() == whole and len(calls) == len(whole) - at


def test_a_whole_result_needs_no_models(command, monkeypatch, capsys):
    arguments, out = command
    assert main(arguments) == 0
    content = out.read_bytes()
    monkeypatch.setattr(pairs, "load_pair", refuse)
    assert main(arguments) == 0 and out.read_bytes() == content
    assert f"2 texts in {out}: all of an earlier call" in capsys.readouterr().out
