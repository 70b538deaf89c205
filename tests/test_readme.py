"""README.md and the guides: numbers equal the measured files', paths and headings exist, commands
are verbs of the kit, and headlines are true. README is short.
"""

import re

import pytest
import readme
from conftest import committed

from speclab.cli.commands import cli
from speclab.run.findings import MISSING, headlines_of, value_of
from speclab.show.notebook import drawn_in
from speclab.study.profiles import ROOT, load_profile

README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDES = (
    "GLOSSARY.md",
    "CONTRIBUTING.md",
    "speclab/README.md",
    "notebooks/RECIPES.md",
    *readme.PAGES,
)


def test_its_numbers_are_the_measured_ones():
    if not committed("figures/*/*/numbers.json"):
        pytest.skip("the figures have changed: run `make readme` to write their numbers")
    values, marks = readme.values(), set()
    for page in readme.PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert readme.filled(text, values) == text, "call `make readme`"
        marks |= {match[1] for match in readme.MARKS.findall(text)}
    assert marks == set(readme.template().blocks)


HEADLINES = [(pair, one) for pair in ("smollm", "qwen-coder") for one in headlines_of(pair)]


@pytest.mark.parametrize(("pair", "headline"), HEADLINES)
def test_a_headline_is_true_of_the_committed_tables(pair, headline):
    if not committed("figures/*/*/numbers.json"):
        pytest.skip("the figures have changed")
    folder = drawn_in(ROOT / "figures" / pair, headline.notebook)
    assert headline.told(folder), f"not true any more: {headline.when}"
    assert not headline.figure or (folder / f"{headline.figure}.png").is_file()


@pytest.mark.parametrize(
    "slot",
    [
        {"table": "none"},
        {"column": "none"},
        {"row": {"none": 1}},
        {"row": {"domain": "none"}},
        {"row": {"domain": "none"}, "of": "count"},
        {"row": {}},
        {"of": "unknown"},
        {"row": {"domain": "chat"}},
    ],
)
def test_a_number_that_a_headline_lacks_is_an_error(tmp_path, slot):
    (tmp_path / "t.csv").write_text("domain,low\nmath,2.5\nchat,\n")
    good = {"table": "t", "row": {"domain": "math"}, "column": "low"}
    assert value_of(tmp_path, **good, times=2) == 5
    assert value_of(tmp_path, **good | {"row": {}, "of": "max"}) == 2.5
    with pytest.raises(MISSING):
        value_of(tmp_path, **good | slot)


@pytest.mark.parametrize("page", GUIDES)
def test_every_path_verb_and_target_that_a_guide_names_exists(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    names = re.findall(r"`((?:speclab|data|tests|notebooks|figures)/[\w./-]*)`", text)
    # the user's own runs and figures; a pattern
    not_files = {"data/runs/", "figures/my_tickets/", "notebooks/NN_question.py"}
    assert [name for name in {*names} - not_files if not (ROOT / name).exists()] == []
    assert {*re.findall(r"python -m speclab ([a-z]+)", text)} <= {*cli.commands}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {*re.findall("^([a-z-]+):", makefile, re.MULTILINE)}
    assert {*re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)} <= targets


def broken(page, text):
    """The links of a page that lead to no file, or to no heading of it."""
    found = []
    for link in re.findall(r"(?:\]\(|^\[\w+\]: )((?!http)[^)\s]+)", text, re.MULTILINE):
        name, _, heading = link.partition("#")
        file = (page.parent / name).resolve() if name else page
        is_there = file.exists() and file.is_relative_to(ROOT)
        if not is_there or (heading and heading not in headings(file)):
            found.append(link)
    return found


def headings(page):
    """The addresses of a page's headings, as code hosts make them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles]


@pytest.mark.parametrize("page", GUIDES)
def test_every_link_of_a_guide_leads_somewhere(page):
    assert broken(ROOT / page, (ROOT / page).read_text(encoding="utf-8")) == []


def test_a_broken_link_is_found():
    """The negative control."""
    text = "[a](GLOSSARY.md#the-records) [b](GLOSSARY.md#none) [c](none.md)\n[00]: none/00.md"
    assert broken(ROOT / "README.md", text) == ["GLOSSARY.md#none", "none.md", "none/00.md"]


def test_readme_is_short():
    assert len(README) <= 6_000


def test_your_own_study_is_a_profile(tmp_path):
    guide = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    [lines] = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    (tmp_path / "my.yaml").write_text(lines)
    (tmp_path / "prompts.jsonl").touch()
    profile = load_profile(tmp_path / "my.yaml")
    assert profile.name == "my_tickets" and profile.prompts == str(tmp_path / "prompts.jsonl")
    assert (profile.sampled_temperature, profile.max_new_tokens, profile.others) == (0.7, 96, ())
