"""Files that people write: what is read, and the one line that is said of what is not."""

import pytest

from speclab.plain import (
    MOST_BYTES,
    is_whole_text,
    parse_json,
    parse_yaml,
    read_json,
    read_text,
    read_yaml,
)

DO = "write it again"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("010", 10),  # 8 in YAML 1.1
        ("1:30", "1:30"),  # 90
        ("yes", "yes"),  # True
        ("1e-6", 1e-6),  # text
        ("2020-01-01", "2020-01-01"),  # a date
        ("+5", 5),
        ("3.", 3.0),
        ("-.5", -0.5),
        ("-.inf", float("-inf")),
        ("~", None),
        ("", None),
        ("[true, False, null]", [True, False, None]),
        ("{a: {b: [1]}}", {"a": {"b": [1]}}),
        ("{1: 2}", {"1": 2}),  # names are text
        ("&a [1]", [1]),
    ],
)
def test_yaml_has_the_scalars_of_its_version_1_2(text, value):
    assert parse_yaml(text) == value
    assert type(parse_yaml(text)) is type(value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2\na: 3", "line 3: 'a' comes twice"),
        ("a: &x [1]\nb: *x", "line 2: aliases are not read here"),
        ("1" * 20, "line 1: a number of 20 digits"),
        ("? [1]\n: 2", "line 1: a name is needed before the colon"),
        ("a: b: c", "line 1: mapping values are not allowed here"),
        ("!!python/object/apply:os.system [x]", "could not determine a constructor"),
        ("!!set {a}", "could not determine a constructor"),
        ("!!timestamp 2020-01-01", "could not determine a constructor"),
        ("[" * 5000, "nested too deeply"),
        ('"\\ud800"', "half a character (a lone surrogate) in '\\ud800'"),
        ("\x00", "special characters are not allowed"),
        ('{a: ["b\\0"]}', "a character that no text has (NUL)"),
    ],
)
def test_yaml_that_is_refused_says_where_in_one_line(text, words):
    with pytest.raises(ValueError) as error:
        parse_yaml(text)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1, "a": 2}', "'a' comes twice"),
        ('{"a": NaN}', "NaN is no JSON number"),
        ('["\\ud800"]', "half a character"),
        ("[" * 100_000, "nested too deeply"),
        ("{", "Expecting property name"),
        (b'{"a": "\xff"}', "it is not UTF-8"),
        ('{"a": ' + "1" * 5000 + "}", "limit"),
    ],
)
def test_json_that_is_refused_says_why(text, words):
    with pytest.raises(ValueError, match=r".*") as error:
        parse_json(text)
    assert words in str(error.value)
    assert type(error.value) in (ValueError, __import__("json").JSONDecodeError)


def test_files_are_named_with_what_to_do(tmp_path):
    cases = {
        "list.json": (read_json, b"[1]", "an object is needed, a list came"),
        "half.json": (read_json, b'{"a"', "is damaged (not JSON: "),
        "latin.json": (read_json, b"\xff\xfe", "is not text in UTF-8"),
        "half.yaml": (read_yaml, b"[1", "not valid YAML (line 1: "),
        "large.yaml": (read_yaml, b"#" * (MOST_BYTES + 1), f"at most {MOST_BYTES}"),
        "latin.yaml": (read_yaml, b"a: \xff", "is not text in UTF-8"),
    }
    for name, (read, content, words) in cases.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r".*") as error:
            read(path, DO)
        said = str(error.value)
        assert said.startswith(f"{path}") and words in said and said.endswith(DO)
    for read in (read_json, read_yaml):
        with pytest.raises(ValueError, match="Is a directory"):
            read(tmp_path, DO)
        with pytest.raises(ValueError, match="No such file"):
            read(tmp_path / "nowhere", DO)


def test_what_is_whole_is_read(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": "\xc3\xa4"}\r\n')
    assert read_json(path, DO) == {"a": "ä"}
    assert read_yaml(path, DO) == {"a": "ä"}
    assert read_text(path, DO).startswith("{")
    path.write_text("[1]")
    assert read_json(path, DO, list) == [1]


def test_half_a_character_is_known():
    assert is_whole_text("ä😀") and not is_whole_text("\ud83d")
