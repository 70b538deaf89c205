"""Token classes by hand, on whole lines of code and prose, and as properties."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speclab.analysis.token_kinds import CLASSES, classify, token_class

SHORT = {
    "K": "keyword",
    "I": "identifier",
    "i": "word_inside",
    "w": "word_start",
    "#": "number",
    "o": "operator",
    "p": "punctuation",
    "n": "newline",
    "s": "space",
    "S": "special",
    "?": "other",
}

LINES = [
    (
        "code",
        [
            ("def", "K"),
            (" add", "I"),
            ("_two", "i"),
            ("(", "p"),
            ("x", "I"),
            ("2", "i"),
            (",", "p"),
            (" _", "I"),
            ("y", "i"),
            (")", "p"),
            (" ->", "o"),
            (" int", "I"),
            (":", "p"),
            ("\n    ", "n"),
            ("return", "K"),
            (" ", "s"),
            ("x", "I"),
            ("2", "i"),
            (" **", "o"),
            (" -", "o"),
            ("1", "#"),
            ("e", "#"),
            ("5", "#"),
            (" if", "K"),
            (" not", "K"),
            (" self", "I"),
            (".", "p"),
            ("is", "K"),
            ("<|endoftext|>", "S"),
        ],
    ),
    (
        "code",
        [
            (" for", "I"),
            ("mat", "i"),
            ("(", "p"),
            ("for", "K"),
            (" in", "I"),
            ("dex", "i"),
            (" in", "K"),
            (" range", "I"),
            ("((", "p"),
            ("0", "#"),
            ("x1F", "#"),
            (" !=", "o"),
            (" None", "K"),
            ("):\n", "p"),
            ("\t\t", "s"),
            ("'", "p"),
            ("t", "I"),
            ("'", "p"),
        ],
    ),
    (
        "chat",
        [
            ("I", "w"),
            (" don", "w"),
            ("'t", "i"),
            (" think", "w"),
            ("ing", "i"),
            (" for", "w"),
            (" a", "w"),
            (" well", "w"),
            ("-", "p"),
            ("known", "w"),
            (" 3", "#"),
            ("rd", "w"),
            ("!", "p"),
            (" *", "p"),
            (" and", "w"),
            ("/", "p"),
            ("or", "w"),
            ("\n\n", "n"),
            ("-", "p"),
            (" $", "p"),
            ("5", "#"),
            ("\N{SLIGHTLY SMILING FACE}", "?"),
            ("\ufffd", "?"),
            ("", "?"),
            ("</s>", "S"),
        ],
    ),
    (
        "math",
        [
            ("2", "#"),
            ("x", "w"),
            (" -", "o"),
            (" 3", "#"),
            (" =", "o"),
            (" -", "o"),
            ("7", "#"),
            (" so", "w"),
            (" two", "w"),
            ("-", "p"),
            ("step", "w"),
            (" \\", "p"),
            ("frac", "w"),
            ("{", "p"),
            ("1", "#"),
            ("}{", "p"),
            ("2", "#"),
            ("}", "p"),
            (" *", "o"),
            (" x", "w"),
            ("^", "o"),
            ("2", "#"),
            (" \N{LESS-THAN OR EQUAL TO}", "o"),
            (" \N{MINUS SIGN}", "o"),
            ("\u00bd", "#"),
        ],
    ),
]


def trace_of(lines) -> tuple[pd.DataFrame, list[str]]:
    strings = sorted({text for _, line in lines for text, _ in line})
    parts = [
        pd.DataFrame(
            {
                "prompt_id": f"p{i}",
                "domain": domain,
                "position": range(len(line)),
                "token": [strings.index(text) for text, _ in line],
            }
        )
        for i, (domain, line) in enumerate(lines)
    ]
    return pd.concat(parts, ignore_index=True), strings


def test_whole_lines_by_hand():
    trace, strings = trace_of(LINES)
    found = classify(trace, strings)
    expected = [SHORT[mark] for _, line in LINES for _, mark in line]
    wrong = [
        (strings[t], got, want)
        for t, got, want in zip(trace["token"], found, expected, strict=True)
        if got != want
    ]
    assert not wrong
    assert (
        set(found) == set(CLASSES)
        and tuple(found.cat.categories) == CLASSES
        and found.name == "token_class"
    )


def test_domain_decides():
    for text, previous, expected in [
        ("in", " ", "K w w"),
        (" -", "x", "o o p"),
        ("%", "5", "o p p"),
        ("_", "a", "i p p"),
        ("2", "x", "i # #"),
        (" =", "x", "o o o"),
        ("'s", "f", "p i i"),
        (" self", "x", "I w w"),
    ]:
        found = [token_class(text, previous, domain=domain) for domain in ("code", "math", "chat")]
        assert found == [SHORT[mark] for mark in expected.split()], text


def test_context_decides():
    assert (
        token_class("ing")
        == token_class("ing", "think ")
        == token_class(" ing", "think")
        == "word_start"
    )
    assert token_class("ing", "think") == "word_inside"
    assert token_class(" in", "x", "put", domain="code") == "identifier"
    assert (
        token_class(" in", "x", " put", domain="code")
        == token_class(" in ", "x", "put", domain="code")
        == "keyword"
    )
    assert token_class("'s", "dog") == "word_inside" and token_class("'s", "dog ") == "punctuation"
    assert (
        token_class("s", "dog'") == "word_inside"
        and token_class("dog", "the '") == token_class("dog", "'") == "word_start"
    )


def test_rows_in_any_order_keep_their_index():
    trace, strings = trace_of(LINES)
    trace.index = np.arange(len(trace)) * 2 + 1
    shuffled = trace.sample(frac=1, random_state=0)
    pd.testing.assert_series_equal(
        classify(shuffled, strings), classify(trace, strings).loc[shuffled.index]
    )


def test_texts_do_not_leak_into_each_other():
    alone, joined = (
        [("chat", [("think", "w")])],
        [("chat", [("think", "w")]), ("chat", [("ing", "w")])],
    )
    assert classify(*trace_of(joined)).tolist() == ["word_start"] * 2 and classify(
        *trace_of(alone)
    ).tolist() == ["word_start"]
    code = [("code", [(" in", "K")]), ("code", [("put", "I")])]
    assert classify(*trace_of(code)).tolist() == ["keyword", "identifier"]


def test_sentencepiece_pieces():
    trace = pd.DataFrame(
        {"prompt_id": "a", "domain": "chat", "position": range(5), "token": range(5)}
    )
    found = classify(trace, ["\u2581think", "ing", "<0x0A>", "\u2581the", "<0xF0>"])
    assert found.tolist() == ["word_start", "word_inside", "newline", "word_start", "other"]


@settings(deadline=None, max_examples=200)
@given(
    st.text(max_size=6),
    st.text(max_size=6),
    st.text(max_size=3),
    st.sampled_from(["code", "math", "chat", ""]),
)
def test_every_string_has_one_class(text, previous, following, domain):
    found = token_class(text, previous, following, domain)
    assert found in CLASSES
    assert (found in ("newline", "space")) == (text != "" and not text.strip())
    assert found not in ("keyword", "identifier") or domain == "code"
    assert found != "word_start" or domain != "code"
    if not text[:1].isspace():  # what stands before a space does not make a word go on
        assert token_class(" " + text, previous, following, domain) != "word_inside"


def test_bad_input():
    trace, strings = trace_of(LINES)
    for call, message in [
        (lambda: classify(trace.iloc[:0], strings), "trace is empty"),
        (lambda: classify(trace.drop(columns="token"), strings), r"lacks the columns \['token'\]"),
        (lambda: classify(trace, strings[:3]), "token_strings has 3 entries: give one per id"),
        (lambda: classify(trace, [*strings[:-1], None]), "must hold one str per token id"),
        (
            lambda: classify(trace, ["\u0120" + text for text in strings]),
            "raw byte-level pieces; decode them",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
