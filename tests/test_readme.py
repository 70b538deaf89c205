"""README.md and GLOSSARY.md: numbers are the measured files', paths exist, commands are verbs."""

import json
import re

import pytest
import readme

from speclab.__main__ import cli
from speclab.profiles import ROOT

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def values():
    return readme.values()


def test_its_numbers_are_the_measured_ones(values):
    marks = set()
    for page in readme.PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert readme.filled(text, values) == text, "call `make readme`"
        marks |= {match[1] for match in readme.MARKS.findall(text)}
    assert marks == set(readme.template().blocks)


def test_another_measurement_is_another_page(values):
    seconds = {name: spent + 7 for name, spent in values["tiny"]["seconds"].items()}
    tiny = values["tiny"] | {"seconds": seconds}
    assert readme.filled(TEXT, values | {"tiny": tiny}) != TEXT


def test_what_the_paper_published_is_the_mean_of_its_four_domains():
    alpha = (0.5650 + 0.5382 + 0.5181 + 0.5321) / 4
    length = (1.065 + 0.975 + 0.956 + 0.914) / 4
    assert list(readme.published().values()) == pytest.approx([alpha, length])


def test_every_path_that_it_names_exists():
    names = set(
        re.findall(r"`((?:speclab|data|tests|notebooks|figures)/[\w./-]*)`", TEXT)
    )
    names |= set(re.findall(r"\]\(((?!http)[^)]+)\)", TEXT))
    not_files = {
        "data/runs/",
        "notebooks/NN_question.py",
    }  # the user's own runs; a pattern
    wanted = sorted(names - not_files)
    assert [name for name in wanted if not (ROOT / name).exists()] == []


def test_every_verb_that_it_names_exists():
    verbs = set(re.findall(r"python -m speclab (\w+)", TEXT))
    assert verbs and verbs <= set(cli.commands)


def test_every_target_that_it_names_exists():
    targets = set(re.findall(r"`make ([a-z-]+)", TEXT))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert (
        targets
        and [t for t in targets if not re.search(rf"^{t}:", makefile, re.MULTILINE)]
        == []
    )


def test_collect_wants_finished_runs(tmp_path):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "01_a.ipynb").write_text("{}")
    with pytest.raises(ValueError, match="01_a has no finished run"):
        readme.collect("tiny", tmp_path)
    (tmp_path / "build" / "tiny").mkdir(parents=True)
    stamp = {"status": "done", "seconds": 3.4}
    (tmp_path / "build" / "tiny" / "01_a.json").write_text(json.dumps(stamp))
    with pytest.raises(ValueError, match="no greedy run"):
        readme.collect("tiny", tmp_path)
    run = tmp_path / "data" / "runs" / "tiny-greedy-1"
    run.mkdir(parents=True)
    facts = {"time_s": 12.34, "rows": {"trace": 9}, "peak_bytes": {"process": 8}}
    (run / "manifest.json").write_text(json.dumps(facts))
    recording = {"time_s": 12.3, "positions": 9, "peak_bytes": 8}
    for name, seconds in (("00_other", None), ("01_a", 3)):
        call = {"seconds": 2.6, "notebooks": [name]}
        (tmp_path / "build" / "tiny" / "call.json").write_text(json.dumps(call))
        kept = {"seconds": {"01_a": 3}, "call_s": seconds, "recording": recording}
        assert readme.collect("tiny", tmp_path) == kept
