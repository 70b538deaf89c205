"""What a person reads: no private idioms, answers that fit one look."""

import json
import re

import pytest
from conftest import committed

from speclab.plain import read_json
from speclab.study.profiles import ROOT

IDIOMS = re.compile(
    r"told\s+apart|cannot\s+be\s+told|not\s+to\s+be\s+told|tokens\s+a\s+(?:target\s+)?pass\b"
    r"|\bdear(?:er|est)?\b|foretell|hold\s+the\s+truth|\bless\s+that\b|\banew\b|\bso\s+many\b"
    r"|\bbehind\s+(?:a|an|the|its|it)\b|\bis\s+none\b|\bof\s+one\s+seed\b|\bfor\s+ever\b"
    r"|\b(?:row|cell|dot|line|text|prompt)\s+a\s+(?:token|prompt|position|node|domain|pass)\b"
)
READ = ("*.md", "data/**/*.md", "notebooks/*.py", "speclab/**/*.py", "speclab/**/*.j2")
GUIDES = ("notebooks/*.md", "notebooks/*.yaml", "speclab/*.md", "figures/*.md", "tests/tools/*.md")
PAGE = ("speclab/**/*.html", "speclab/**/*.js")
ANSWERS = {
    path.relative_to(ROOT / "figures").parent.as_posix(): read_json(path, "")["answer"]
    for path in committed("figures/*/*/numbers.json")
}
TINY = json.loads((ROOT / "data" / "measured" / "tiny.json").read_text("utf-8"))
ANSWERS |= {f"tiny/{number}": answer for number, answer in TINY["answers"].items()}


def idioms_in(text):
    """The private idioms of a text whose lines may be comments."""
    return IDIOMS.findall(re.sub(r"\n\s*#? ?", " ", text))


def test_idioms_are_found():
    assert idioms_in("# they cannot\n# be told apart") == ["cannot be told"]
    assert idioms_in("one row a node; the dearest draft") == ["row a node", "dearest"]
    assert idioms_in("one row per node; the most expensive draft") == []


ANSWER_WORDS, ANSWER_NUMBERS = 40, 4  # at most, in an answer
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


def too_long(answer: str) -> str:
    """What an answer has too much of, as '48 words where 44 are allowed'; "": nothing."""
    words, numbers = len(answer.split()), len(NUMBER.findall(answer))
    limits = (("words", words, ANSWER_WORDS), ("numbers", numbers, ANSWER_NUMBERS))
    over = [f"{n} {what} where {most} are allowed" for what, n, most in limits if n > most]
    return ", ".join(over)


def test_nothing_that_is_read_has_private_idioms():
    paths = [path for pattern in (*READ, *GUIDES, *PAGE) for path in ROOT.glob(pattern)]
    found = {path: idioms_in(path.read_text(encoding="utf-8")) for path in paths}
    assert {path.name: idioms for path, idioms in found.items() if idioms} == {}


def test_an_answer_that_is_too_long_is_known():
    assert too_long("word " * 40) == ""
    assert too_long("word " * 41) == "41 words where 40 are allowed"
    assert too_long("1.5 [−1, 2] 8,000") == ""
    assert too_long("1 2 3 4 5") == "5 numbers where 4 are allowed"


@pytest.mark.parametrize("where", ANSWERS)
def test_answers_are_short(where):
    assert too_long(ANSWERS[where]) == ""
