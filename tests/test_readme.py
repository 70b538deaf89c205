"""README.md: its numbers are the measured files', its paths exist, its commands are verbs."""

import json
import re

import pytest

from speclab.__main__ import cli
from speclab.ops import readme
from speclab.profiles import ROOT

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def test_its_numbers_are_the_measured_ones():
    written = readme.written_blocks(
        readme.measured_pairs(), readme.measured_file("bench")
    )
    assert readme.filled(TEXT, written) == TEXT, "call `make readme`"


def test_another_measurement_is_another_page():
    measured = readme.measured_pairs()
    tiny = measured["tiny"]["seconds"]
    measured["tiny"]["seconds"] = {name: spent + 7 for name, spent in tiny.items()}
    other = readme.written_blocks(measured, readme.measured_file("bench"))
    assert readme.filled(TEXT, other) != TEXT


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


def test_one_sentence_a_line():
    prose = [line for line in TEXT.splitlines() if re.match(r"[A-Z*]", line)]
    assert [line for line in prose if re.search(r"[a-z)`]\. [A-Z]", line)] == []


def test_a_block_without_a_mark_is_an_error():
    with pytest.raises(ValueError, match="README.md marks"):
        readme.filled("# nothing", {"notebooks": ""})


def test_collect_wants_finished_runs(tmp_path):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "01_a.ipynb").write_text("{}")
    with pytest.raises(ValueError, match="01_a has no finished run"):
        readme.collect(tmp_path)
    (tmp_path / "build" / "tiny").mkdir(parents=True)
    stamp = {"status": "done", "seconds": 3.4}
    (tmp_path / "build" / "tiny" / "01_a.json").write_text(json.dumps(stamp))
    with pytest.raises(ValueError, match="no greedy run"):
        readme.collect(tmp_path)
    run = tmp_path / "data" / "runs" / "tiny-greedy-1"
    run.mkdir(parents=True)
    facts = {"time_s": 12.34, "rows": {"trace": 9}, "peak_bytes": {"process": 8}}
    (run / "manifest.json").write_text(json.dumps(facts))
    recording = {"time_s": 12.3, "positions": 9, "peak_bytes": 8}
    kept, called = {"seconds": {"01_a": 3}, "recording": recording}, tmp_path / "build"
    assert readme.collect(tmp_path) == kept | {"call_s": None}
    for name, seconds in (("00_other", None), ("01_a", 3)):
        call = {"seconds": 2.6, "notebooks": [name]}
        (called / "tiny" / "call.json").write_text(json.dumps(call))
        assert readme.collect(tmp_path) == kept | {"call_s": seconds}


def test_pairs_stand_side_by_side_with_what_the_paper_published(tmp_path):
    """One row an estimator; the paper's means are of its four domains, by hand from its tables."""
    for pair, shift in zip(readme.PAIRS, (0.0, 0.1), strict=True):
        folder = tmp_path / "figures" / pair
        folder.mkdir(parents=True)
        header = "estimator,domain,estimate,low,high,text"
        rows = [
            f"{name},{domain},{0.5 + shift},{0.4 + shift},{0.6 + shift},{text}"
            for name, text in readme.SIDE_BY_SIDE
            for domain in ("all", "code")
        ]
        (folder / "03_ladder-values.csv").write_text("\n".join([header, *rows]))
        loops = "temperature,domain,estimate,low,high\nT = 0,all,0.2,0.1,0.3\nT = 1,all,9,9,9\n"
        (folder / "03_loop-share.csv").write_text(loops)
    paper = tmp_path / "data" / "paper"
    paper.mkdir(parents=True)
    (paper / "tables.csv").write_bytes(
        (ROOT / "data" / "paper" / "tables.csv").read_bytes()
    )
    lines = readme.pairs_table(tmp_path).splitlines()
    first, second = "0.500 [0.400, 0.600]", "0.600 [0.500, 0.700]"
    alpha = (0.5650 + 0.5382 + 0.5181 + 0.5321) / 4
    length = (1.065 + 0.975 + 0.956 + 0.914) / 4
    assert f"| `published_alpha`, T = 0 | {first} | {second} | {alpha:.3f} |" in lines
    assert f"| `published_length`, T = 0 | {first} | {second} | {length:.3f} |" in lines
    assert f"| `alpha`, T = 1 | {first} | {second} |  |" in lines
    loops = "0.200 [0.100, 0.300]"
    assert lines[-1] == f"| positions in loops, T = 0 | {loops} | {loops} |  |"
