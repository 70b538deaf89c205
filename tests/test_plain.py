"""Files that users write: valid content is read, and errors name the broken part."""

import ast

import pytest
from conftest import refuses

from speclab.plain import parse_json, read_json, shown
from speclab.study.reading import parse_yaml, read_yaml

DO = "write it again"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("+5", 5),
        ("010", 10.0),  # 8 in YAML 1.1; a float, so no whole number is read wrongly
        ("1:30", "1:30"),  # 90
        ("yes", "yes"),  # True
        ("1e-6", 1e-6),  # text
        ("2020-01-01", "2020-01-01"),  # a date
        ("-.5", -0.5),
        ("-.inf", float("-inf")),
        ("", None),
        ("[true, False, null, ~]", [True, False, None, None]),
        ("{1: {b: [1]}}", {"1": {"b": [1]}}),  # names are text
        (b"\xef\xbb\xbf5", 5),
        ("1e400", "1e400"),  # infinity
    ],
)
def test_yaml_guesses_nothing(text, value):
    assert parse_yaml(text) == value
    assert type(parse_yaml(text)) is type(value)


@pytest.mark.parametrize(
    ("parse", "text", "word"),
    [
        (parse_yaml, "a: b: c", "line 1"),
        (parse_yaml, "!!python/object/apply:os.system [x]", "tags .*line 1"),
        (parse_json, '{"b": {"a": 1, "a": 2}}', "'a' occurs twice"),
        (parse_json, "{", "line 1"),
        (parse_json, "[" * 100_000, "recursion"),
        (parse_yaml, "[" * 2_000, "recursion"),
    ],
)
def test_what_could_be_read_wrongly_is_refused(parse, text, word):
    with refuses(word):
        parse(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\n? [1]: 2", "scalar .*line 2, column 3"),
        ("a:\n  {b: 1}: 2", "scalar .*line 2, column 3"),
        ("a: {b: 1, b: 2}", "'b' occurs twice .*line 1, column 11"),
        ("a: !!bool abc", "tags .*line 1, column 4"),
        ("a: 1\n---\nb: 2", "another document .*line 2, column 1"),
        ("a: &a [1]\nb: [*a, *a]", "aliases .*line 2, column 5"),
        (b"a: \xff", "position 3"),
        ("a: \0", "position 3"),
        (r'a: "\UFFFFFFFF"', "too large"),
    ],
    ids=range(9),
)
def test_yaml_that_is_no_plain_value_is_refused_with_its_place(text, words):
    with refuses(words):
        parse_yaml(text)


@pytest.mark.parametrize("content", [b"[1", b'{"a": "\xff"}', b"{'a'"])
def test_a_broken_file_is_named_with_what_to_do(content, tmp_path):
    path = tmp_path / "a.file"
    path.write_bytes(content)
    for read in (read_json, read_yaml):
        with refuses(rf"a\.file.*{DO}"):
            read(path, DO)
    path.write_text("[1]")
    assert read_json(path, DO, list) == [1]
    for wrong in (path, tmp_path, tmp_path / "nowhere"):
        with refuses(DO):
            read_json(wrong, DO)


@pytest.mark.parametrize(
    "text",
    ["\x1b[31mred", "\x1b]0;title\x07", "a\r\nb", "\x9b2J", "\u202eabc", "\udc80", "\u2028", "\0"],
)
def test_a_terminal_prints_a_text_of_others_and_obeys_nothing(text):
    seen = shown(f"größe\xa0名 {text}")
    assert seen.startswith("größe\xa0名 ") and seen.replace("\xa0", "").isprintable()
    assert ast.literal_eval(f"'{seen}'").endswith(text)
