"""Fuzz of the two files that people write: whatever stands in a profile or in a prompts file, it is
read, or refused in one line that names the file.
"""

import contextlib
import io
import json
import string
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from speclab.__main__ import main
from speclab.profiles import FOLDER, Profile, load_profile, parse_overrides
from speclab.prompts import DOMAINS, Prompt, read_prompts

FUZZ = settings(
    max_examples=150,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
LONGEST = 1500  # characters of the one line
TINY = yaml.safe_load((FOLDER / "tiny.yaml").read_text())
ROW = {"prompt_id": "a", "domain": "code", "prompt": "def f():"}
NAMES = [*Profile.__dataclass_fields__, "path", "dtype", "device", *ROW, "gama", "<<"]
# what stands for something else in some version of YAML or JSON
TEXTS = [
    *(
        "~",
        "null",
        "yes",
        "no",
        "on",
        "true",
        "1:30",
        "010",
        "0x1F",
        "0o7",
        "1_000",
        "1e5",
    ),
    *(
        ".5",
        "1.",
        ".inf",
        "-.INF",
        ".NaN",
        "NaN",
        "Infinity",
        "-0",
        "-0.0",
        "2020-01-01",
    ),
    *(
        "!!str",
        "!!python/none",
        "!x",
        "&a",
        "*a",
        "<<",
        "?",
        "-",
        ":",
        "|",
        ">",
        "[",
        "]",
    ),
    *("{", "}", ",", "#", "%", "@", "`", "'", '"', "\\", "\\ud800", "12:30:45"),
]
ENDS = ["\n", "\r\n", "\r", "\x85", "\u2028", "\ufeff", "\0", "\t", "\x1b[31m", ""]
texts = st.one_of(
    st.text(max_size=20),
    st.sampled_from([*TEXTS, *ENDS, *DOMAINS, "..", "/", "a/b", "x" * 300]),
    st.text(string.printable, max_size=8),
)
numbers = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([-1, 0, 2**63, 10**19, 10**400, -0.0, 1e-310, 1e308]),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(texts | st.sampled_from(NAMES), inner, max_size=3),
    ),
    max_leaves=6,
)


@st.composite
def changed(draw, whole: dict) -> dict:
    """An object with one to three of its fields changed, left out or added, also one level down."""
    whole = dict(whole)
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from([*whole, *NAMES]) | texts)
        if isinstance(whole.get(name), dict) and draw(st.booleans()):
            whole[name] = draw(changed(whole[name]))
        elif name in whole and draw(st.integers(0, 3)) == 0:
            del whole[name]
        else:
            whole[name] = draw(values)
    return whole


@st.composite
def cut_up(draw, content: bytes) -> bytes:
    """A file with one to four places where bytes are left out, repeated or put in."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        stop = min(len(content), start + draw(st.integers(0, 20)))
        put = draw(
            st.one_of(
                st.just(b""),
                st.just(content[start:stop] * 2),
                st.binary(max_size=4),
                texts.map(lambda text: text.encode("utf-8", "surrogatepass")),
                st.sampled_from([b"[" * 2000, b"{a: " * 500, b"9" * 5000, b"\xff\xfe"]),
            )
        )
        content = content[:start] + put + content[stop:]
    return content


def as_yaml(value: object) -> bytes:
    """A value as PyYAML writes it; a text that it cannot write as JSON."""
    try:
        return yaml.safe_dump(value, allow_unicode=True).encode()
    except (UnicodeEncodeError, yaml.YAMLError):
        return as_json(value)


def as_json(value: object) -> bytes:
    """A value as Python writes it, NaN and half characters too."""
    return json.dumps(value).encode()


def as_raw(value: object) -> bytes:
    """A value as Python writes it, with characters as they are, half ones too."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


writers = st.sampled_from([as_yaml, as_json, as_raw])
json_writers = st.sampled_from([as_json, as_raw])
written_profile = st.one_of(
    st.builds(lambda write, value: write(value), writers, changed(TINY)),
    st.builds(lambda write, value: write(value), writers, values),
    cut_up((FOLDER / "tiny.yaml").read_bytes()),
    cut_up((FOLDER / "smollm.yaml").read_bytes()),
    st.binary(max_size=60),
)
lines = st.one_of(
    st.builds(lambda write, value: write(value), json_writers, changed(ROW)),
    st.builds(lambda write, value: write(value), json_writers, values),
    cut_up(as_json(ROW)),
    cut_up(as_raw(ROW | {"prompt": "é\u2028ß"})),
    st.binary(max_size=40),
)
written_prompts = st.builds(
    lambda rows: b"".join(row + end.encode() for row, end in rows),
    st.lists(st.tuples(lines, st.sampled_from(ENDS)), max_size=3),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder for the files; the same for all examples."""
    return tmp_path_factory.mktemp("fuzz")


def check_line(said: str) -> None:
    """Assert that an error is one line, printable and of bounded length."""
    assert said and len(said.splitlines()) == 1, said
    assert said.isprintable() and len(said) <= LONGEST, said[:LONGEST]


def refusal(read, *given: object) -> str:
    """What a reader says of a file it refuses, one line; "" where it takes it."""
    try:
        read(*given)
    except ValueError as error:
        check_line(str(error))
        return str(error)
    return ""


@FUZZ
@given(content=written_profile)
def test_a_profile_is_read_or_refused_in_a_line(content, folder):
    path = folder / "profile.yaml"
    path.write_bytes(content)
    refusal(load_profile, path)


@FUZZ
@given(content=written_prompts)
def test_prompts_are_read_or_refused_in_a_line_that_names_the_file(content, folder):
    path = folder / "prompts.jsonl"
    path.write_bytes(content)
    said = refusal(read_prompts, path, ("domain",))
    assert not said or str(path) in said


@FUZZ
@given(name=st.sampled_from(NAMES) | texts, value=values, write=writers)
def test_a_change_on_the_command_line_is_taken_or_refused_in_a_line(name, value, write):
    item = f"{name}={write(value).decode('utf-8', 'surrogateescape')}"
    refusal(lambda: load_profile("tiny", parse_overrides([item])))


@settings(FUZZ, max_examples=40)
@given(profile=written_profile, prompts=written_prompts)
@example(profile=as_json(TINY), prompts=b"")
def test_the_command_line_says_the_same(profile, prompts, folder):
    """`main` ends with status 2 and one line: no prompt of these is good and no model is loaded."""
    (folder / "p.yaml").write_bytes(profile)
    (folder / "p.jsonl").write_bytes(prompts + b"\n{")
    files = ["--profile", str(folder / "p.yaml"), "--prompts", str(folder / "p.jsonl")]
    out, said = folder / "out.jsonl", io.StringIO()
    with contextlib.redirect_stderr(said):
        assert main(["decode", *files, "--out", str(out)]) == 2
    check_line(said.getvalue().rstrip("\n"))
    assert said.getvalue().startswith("speclab: ") and not out.exists()


@FUZZ
@given(rows=st.lists(st.text(max_size=30).filter(str.strip), min_size=1, max_size=4))
def test_what_json_can_say_comes_back(rows, folder):
    """Any text is a prompt, whatever separators it holds: nothing is cut and nothing is changed."""
    wanted = [Prompt(f"{n}", "code", text) for n, text in enumerate(rows)]
    path = Path(folder / "whole.jsonl")
    for write in (as_json, as_raw):
        content = [
            write(ROW | {"prompt_id": p.prompt_id, "prompt": p.text}) for p in wanted
        ]
        path.write_bytes(b"\n".join(content))
        assert read_prompts(path) == wanted
