"""README.md and GLOSSARY.md: numbers equal the measured files', paths exist, and commands are verbs
of the kit.
"""

import json
import re

import pytest
import readme
from conftest import committed

from speclab.cli.commands import cli
from speclab.study.profiles import ROOT, load_profile

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def values():
    return readme.values()


def test_its_numbers_are_the_measured_ones(values):
    if not committed("figures/*/*/numbers.json"):
        pytest.skip("the figures have changed: run `make readme` to write their numbers")
    marks = set()
    for page in readme.PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert readme.filled(text, values) == text, "call `make readme`"
        marks |= {match[1] for match in readme.MARKS.findall(text)}
    assert marks == set(readme.template().blocks)


def test_what_the_paper_published_is_the_mean_of_its_four_domains():
    alpha = (0.5650 + 0.5382 + 0.5181 + 0.5321) / 4
    length = (1.065 + 0.975 + 0.956 + 0.914) / 4
    assert list(readme.published().values()) == pytest.approx([alpha, length])


def test_every_path_verb_and_target_that_it_names_exists():
    names = set(re.findall(r"`((?:speclab|data|tests|notebooks|figures)/[\w./-]*)`", TEXT))
    names |= set(re.findall(r"\]\(((?!http)[^)#]+)", TEXT))
    # the user's own runs and figures; a pattern
    not_files = {"data/runs/", "figures/my_tickets/", "notebooks/NN_question.py"}
    assert [name for name in names - not_files if not (ROOT / name).exists()] == []
    verbs = set(re.findall(r"python -m speclab (\w+)", TEXT))
    assert verbs and verbs <= set(cli.commands)
    targets = set(re.findall(r"`make ([a-z-]+)", TEXT))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets and targets <= set(re.findall("^([a-z-]+):", makefile, re.MULTILINE))


def test_what_is_collected_of_a_finished_run(tmp_path):
    def write(name, facts):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(facts))

    write("notebooks/01_a.ipynb", {})
    write("build/tiny/01_a.json", {"status": "done", "seconds": 3.4})
    for number, rows in ((1, 9), (2, 2)):  # the second is a later try
        facts = {"time_s": 12.34, "rows": {"trace": rows}, "peak_bytes": {"process": 8}}
        write(f"data/runs/tiny-greedy-{number}/manifest.json", facts)
    recording = {"time_s": 12.3, "positions": 9, "peak_bytes": 8}
    kept = {"seconds": {"01_a": 3}, "recording": recording}
    assert readme.collect("tiny", tmp_path) == kept
    write("notebooks/02_b.ipynb", {})
    with pytest.raises(ValueError, match="02_b has no finished run"):
        readme.collect("tiny", tmp_path)


def test_your_own_study_is_a_profile(tmp_path):
    [lines] = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    (tmp_path / "my.yaml").write_text(lines)
    (tmp_path / "prompts.jsonl").touch()
    profile = load_profile(tmp_path / "my.yaml")
    assert profile.name == "my_tickets" and profile.prompts == str(tmp_path / "prompts.jsonl")
    assert (profile.sampled_temperature, profile.max_new_tokens, profile.others) == (0.7, 96, ())
