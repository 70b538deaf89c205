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


def test_every_token_has_its_kind_and_block_and_is_escaped():
    page = pictures.render_html(STEPS, STRINGS)
    titles = re.findall(r' title="block (\d), (\w+); (.*?); id (\d+)"', page)
    kinds = [kind for _, kind, _, _ in titles]
    assert kinds == (
        ["accepted"] * 2
        + ["recovered", "accepted", "bonus"]
        + ["accepted"] * 3
        + ["recovered", "accepted"]
    ), "a cut step ends on an accepted token"
    assert "".join(block for block, *_ in titles) == "1112233345"
    assert [int(token) for *_, token in titles] == list(range(10))
    assert titles[2][2] == "2 of 4 drafted tokens accepted"
    assert set(re.findall(r"<(\w+)", page)) == {"div", "span", "br"}, "nothing is run"
    assert not any(mark in page for mark in ("://", "\u202e", "\x00"))
    read = html.unescape(re.sub(r"<[^>]*>", "", page))
    for text in ("␣the", "⏎", '⇥&"', "<script>alert('x')</script>"):
        assert text in read
    assert "accepted 7 recovered 2 bonus 1" in read
    assert "10 tokens in 5 target passes · 2.00 tokens per target pass" in read
