"""The token view: every token once, with its kind; safe HTML."""

import html
import re

from speclab.decode import Step
from speclab.show import pictures

STRINGS = [
    " the",
    "cat",
    "\n",
    "<script>alert('x')</script>",
    '\t&"',
    "",
    "\u202eabc\x00",
    "日本",
    "x" * 200,
    ".",
]
STEPS = [
    Step((0, 1, 2), 2, 4, "recovered"),
    Step((3, 4), 1, 1, "bonus"),
    Step((5, 6, 7), 3, 4, "cut"),
    Step((8,), 0, 4, "recovered"),
    Step((9,), 1, 1, "cut"),
]


def test_every_token_has_its_kind_block_and_place():
    found = pictures.pieces(STEPS, STRINGS)
    assert [p.token for p in found] == list(range(10)) and [p.text for p in found] == STRINGS
    kinds = (
        ["accepted"] * 2
        + ["recovered", "accepted", "bonus"]
        + ["accepted"] * 3
        + ["recovered", "accepted"]
    )
    assert [p.kind for p in found] == kinds, "a cut step ends on an accepted token"
    spots = "0.0 0.1 0.2 1.0 1.1 2.0 2.1 2.2 3.0 4.0"
    assert [f"{p.block}.{p.place}" for p in found] == spots.split()
    assert pictures.counts(found) == {"accepted": 7, "recovered": 2, "bonus": 1}


def test_html_is_escaped_and_says_every_token():
    page = pictures.as_html(STEPS, STRINGS)
    assert set(re.findall(r"<(\w+)", page)) == {"div", "span", "br"}, "nothing is run"
    assert not any(mark in page for mark in ("://", "\u202e", "\x00"))
    read = html.unescape(re.sub(r"<[^>]*>", "", page))
    for said in ("␣the", "⏎", '⇥&"', "<script>alert('x')</script>", "accepted 7"):
        assert said in read
    assert "10 tokens in 5 target passes (2.00 tokens per pass)" in read
    titles = re.findall(r' title="([^"]*)"', page)
    assert titles[2] == "block 1, recovered; 2 of 4 drafted tokens accepted; id 2"
    assert len(titles) == 10
