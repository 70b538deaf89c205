"""`python -m speclab plan`: a study needs exactly the runs that its notebooks declare, and they
declare all runs that they need.
"""

import json
import re

import pytest
from conftest import write_rows

from speclab.__main__ import main
from speclab.cli.run_plan import FORMER, chosen, kinds_named, runs_asked
from speclab.cost import Costs
from speclab.models.folder import ModelFolder
from speclab.plain import say_once
from speclab.study import runs, timing_runs
from speclab.study.profiles import ROOT, load_profile
from speclab.study.runs import profile_prompts

# six kinds of ticket of unequal sizes, one of a single prompt
SIZES = {"delivery": 6, "счёт": 5, "returns": 3, "app": 2, "repairs": 2, "account": 1}


@pytest.fixture
def study(tmp_path, monkeypatch):
    """The YAML file of a user's study over SIZES. No hub is used, and runs are stored in its
    folder.
    """
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(runs, "RUNS", tmp_path / "runs")
    monkeypatch.delenv("SPECLAB_TRACES", raising=False)
    rows = [
        {"prompt_id": f"{name}-{i}", "domain": name, "prompt": f"My order {i} is late."}
        for name, size in SIZES.items()
        for i in range(size)
    ]
    write_rows(tmp_path / "mine.jsonl", rows)
    lines = [
        *("target: {path: data/pairs/tiny/target}", "draft: {path: data/pairs/tiny/draft}"),
        *("prompts: mine.jsonl", "max_new_tokens: 4", "temperature: 0.7"),
    ]
    path = tmp_path / "tickets.yaml"
    path.write_text("\n".join(lines))
    return path


def plan_of(capsys, *words):
    """What `plan` prints, and where each run is, by kind."""
    assert main(["plan", *map(str, words)]) == 0
    said = capsys.readouterr().out
    rows = [re.split(r"  +", line) for line in said.splitlines() if "  " in line]
    return said, {row[0]: row[1:] for row in rows}


def test_what_is_asked_for_and_what_is_left_out(study, capsys):
    every, _ = plan_of(capsys, "--profile", study)
    fixed = [*re.findall(r'^(\d\d)_.*NOTEBOOKS="(\d\d)"', every, re.MULTILINE)]
    assert fixed == [(number, number) for number in ("00", "13", "14")]
    assert "left out" not in plan_of(capsys, "--profile", study, "--notebook", "13")[0]
    said, table = plan_of(capsys, "--profile", study, "--notebook", "02", "--notebook", "11")
    assert [*table][1:5] == ["greedy", "sampled", "sampled-seed-1", "sampled-seed-2"]
    assert "19 prompts in 6 domains" in said and "T = 0 and T = 0.7" in said
    assert table["greedy"] == ["02", "to record: 76 tokens, time unknown before the first run"]
    assert re.search("11_paper_audit +left out needs the domains", said)
    assert "4 runs to record: 304 tokens" in said and "08 also runs other drafts" in every


def test_the_plan_says_what_is_decoded_and_how_long_that_takes(study, capsys):
    said, _ = plan_of(capsys, "--profile", study, "--notebook", "10")
    # six prompts plainly and with a chain, a tree and copies, six plainly and with four probes
    texts = 6 * 4 + 6 * 5
    begin = f"10 decodes up to {4 * texts} tokens, text by text: "
    assert f"{begin}time unknown until it has timed these models." in said
    weights = runs.identity_of(load_profile(study))["weights"]
    slow = Costs(10_000.0, (1, 4), (0.1, 0.1), (1.0, 1.0))
    timing_runs.write(weights, "float32 on the CPU", 2, [slow])
    assert f"{begin}at most 36 min." in plan_of(capsys, "--profile", study, "--notebook", "10")[0]
    shorter = "--profile", study, "--set", "notebooks={10: {new_tokens: 2}}"
    assert f"{2 * texts} tokens" in plan_of(capsys, *shorter)[0]


def test_a_path_that_is_no_folder_and_no_name_of_the_hub_is_said(study, capsys):
    _, table = plan_of(capsys, "--profile", study, "--set", "target=/no/such", "--notebook", "02")
    assert table["greedy"][1].startswith("cannot be recorded: /no/such is no folder")


def test_a_run_that_is_here_says_how_long_others_take(study, capsys):
    run = runs.load_or_record(load_profile(study), "greedy")
    _, table = plan_of(capsys, "--profile", study, "--notebook", "03")
    assert table["greedy"][1] == f"recorded: {run.folder.name}"
    minutes = 76 * run.manifest["time_s"] / run.manifest["rows"]["trace"] / 60
    assert table["sampled"][1] == f"to record: 76 tokens, about {minutes:.1f} min"
    few = ["--set", "prompts_per_domain=1", "--notebook", "07"]
    _, table = plan_of(capsys, "--profile", study, *few)
    assert "greedy" not in table, "07 needs more prompts"
    some = ["--set", "prompts_per_domain=5", "--notebook", "03"]
    _, table = plan_of(capsys, "--profile", study, *some)
    assert table["greedy"][1] == f"recorded: part of {run.folder.name}"


@pytest.mark.parametrize("changes", [{"prompts_per_domain": 10}, {"domains": ["chat", "math"]}])
@pytest.mark.parametrize("name", ["smollm", "qwen-coder"])
def test_some_prompts_of_the_shipped_runs_are_read_by_every_notebook(
    name, changes, tmp_path, monkeypatch
):
    """No weights are here, so nothing could be recorded."""
    monkeypatch.setattr(runs, "RUNS", tmp_path)
    monkeypatch.setattr(ModelFolder, "whole", lambda spec: None)
    profile = load_profile(name, changes)
    read = {run.kind: run.here for run in runs_asked(profile, chosen([]))}
    shipped = [kind for kind in read if (ROOT / profile.traces / kind).is_dir()]
    assert len(shipped) >= 8 and isinstance(read["greedy"], runs.Part)
    for kind in shipped:
        wanted = [prompt.prompt_id for prompt in profile_prompts(runs.of_kind(profile, kind))]
        assert read[kind].table("trace")["prompt_id"].unique().to_pylist() == wanted


def test_the_kits_runs_are_shipped_and_other_prompts_are_those_that_are_named(study, capsys):
    said, table = plan_of(capsys, "--profile", "smollm", "--notebook", "12_how_sure")
    assert {"unwrapped", "second"} < {*table} and "to record" not in said
    assert table["second"][1] == "shipped: second"
    others = (study.parent / "mine.jsonl").read_text().replace('"prompt": "', '"prompt": "Again: ')
    (study.parent / "again.jsonl").write_text(others)
    asked = ["--set", "other_prompts=[again.jsonl]", "--notebook", "12_how_sure"]
    _, table = plan_of(capsys, "--profile", study, *asked)
    assert "other-again" in table and not {"unwrapped", "second"} & {*table}


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ("{03_domains: {}}", "no notebook '03_domains': did you mean '03_domain_acceptance'"),
        ("{'03': {boots: 5}}", "03_domain_acceptance: unknown parameter 'boots'"),
        (
            "{'02': {largest_gamma: 0}}",
            "largest_gamma=0: Input should be greater than",
        ),
    ],
)
def test_a_notebook_and_a_parameter_that_do_not_exist_are_refused(study, block, words, capsys):
    study.write_text(f"{study.read_text()}\nnotebooks: {block}")
    assert main(["plan", "--profile", str(study)]) == 2
    said = capsys.readouterr().err
    assert words in said and said.count("\n") == 1


@pytest.mark.parametrize("words", ["plan --notebook 14_your_log", "reproduce --notebook 03"])
@pytest.mark.parametrize("named", ["copy", "part", "twice"])
def test_the_same_prompts_under_another_name_are_no_other_prompts(study, named, words, capsys):
    """Findings would be confirmed by themselves."""
    folder = study.parent
    own = (folder / "mine.jsonl").read_text()
    new = own.replace('"prompt": "', '"prompt": "Again: ')
    others = {
        "copy": {"again.jsonl": own + "\n"},
        "part": {"again.jsonl": "\n".join(own.splitlines()[:1:-1])},
        "twice": {"first.jsonl": new, "again.jsonl": new},
    }[named]
    for name, text in others.items():
        (folder / name).write_text(text)
    words = [*words.split(), "--profile", str(study), "--set", f"other_prompts={[*others]}"]
    assert main(words) == 2
    said = capsys.readouterr()
    assert "again.jsonl has no prompt that" in said.err
    assert said.err.count("\n") == 1 and not said.out
    assert not runs.RUNS.exists()


def test_a_file_with_one_new_prompt_is_another_set(study):
    own = (study.parent / "mine.jsonl").read_text()
    more = {"prompt_id": "new", "domain": "app", "prompt": "New."}
    (study.parent / "again.jsonl").write_text(f"{own}\n{json.dumps(more)}")
    words = ["--profile", str(study), "--set", "other_prompts=[again.jsonl]", "--notebook", "03"]
    assert main(["plan", *words]) == 0


def test_a_public_set_is_planned_without_a_look_at_it(capsys, monkeypatch):
    monkeypatch.setattr("datasets.load_dataset", None)
    said, table = plan_of(capsys, "--profile", "paper", "--notebook", "02")
    assert "12,800 tokens" in table["greedy"][1] and "Some may be recorded already" in said


def test_a_notebook_that_was_renamed_is_found_by_its_former_name():
    for old, new in FORMER.items():
        (path,) = chosen([old])
        assert path.stem == new
    assert chosen(["18", "15"]) == chosen(["08", "13"])


def test_a_number_that_names_another_notebook_now_is_printed_with_its_name(capsys):
    say_once.cache_clear()
    (path,) = chosen(["12"])
    assert path.stem in capsys.readouterr().out


def test_what_a_profile_cannot_or_need_not_record_is_not_planned(tmp_path):
    turns = {"prompt_id": "p", "domain": "tax", "messages": [{"role": "user", "content": "Hi."}]}
    (tmp_path / "mine.jsonl").write_text(json.dumps(turns))
    own = {"prompts": str(tmp_path / "mine.jsonl"), "template": "chat", "temperature": 0.7}
    asked = ["other-format", "other-temperatures"]
    assert kinds_named(load_profile("tiny", own), asked) == ["sampled-0.3"]
    of_kit = ["chat-template", "sampled-0.3", "sampled-0.7"]
    assert kinds_named(load_profile("tiny"), asked) == of_kit
