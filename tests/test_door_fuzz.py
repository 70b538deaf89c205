"""Fuzzing of the two files that users write: any profile or prompts file is either read, or
rejected by a ValueError that names the file.
"""

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from speclab.plain import DOMAINS
from speclab.study.profiles import FOLDER, Profile, load_profile
from speclab.study.prompts import read_prompts

TINY = yaml.safe_load((FOLDER / "tiny.yaml").read_text())
ROW = {"prompt_id": "a", "domain": "code", "prompt": "def f():"}
TEXTS = st.text(max_size=9) | st.sampled_from(["yes", "010", "1:30", ".nan", *DOMAINS])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner),
    max_leaves=5,
)


def changes(*names):
    """A few values under the names of fields, or under other names."""
    return st.dictionaries(st.sampled_from(names) | TEXTS, VALUES, max_size=3)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A name without an ending for the files of all examples."""
    return tmp_path_factory.mktemp("fuzz") / "file"


def refusal(read, path):
    """The error message of a reader for a rejected file; the file's name for a valid one."""
    try:
        read(path)
    except ValueError as error:
        return str(error)
    return path.name


REST = st.text("?:-[]{}&*!|>'\"%#<~\\ \n1a", max_size=20).map("\nrest: {}".format) | st.just("")


@given(changed=changes(*Profile.__dataclass_fields__), rest=REST, write=st.booleans())
def test_a_profile_is_read_or_refused_by_name(changed, rest, write, file):
    """Also one that is hardly YAML."""
    path = file.with_suffix(".yaml")
    values = TINY | changed
    path.write_text((yaml.safe_dump(values) if write else json.dumps(values)) + rest)
    assert path.name in refusal(load_profile, path)


@given(changed=changes(*ROW), rest=st.binary(max_size=9))
def test_prompts_are_read_or_refused_by_name(changed, rest, file):
    path = file.with_suffix(".jsonl")
    path.write_bytes(json.dumps(ROW | changed).encode() + b"\n" + rest)
    assert path.name in refusal(read_prompts, path)
