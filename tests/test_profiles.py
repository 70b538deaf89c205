"""Profiles: every shipped profile is valid, overrides work, and errors name what is allowed."""

import re
from dataclasses import fields

import pytest
from conftest import refuses

from speclab.plain import ModelSpec
from speclab.study import runs
from speclab.study.profiles import (
    FOLDER,
    ROOT,
    Notes,
    Profile,
    load_profile,
    parse_overrides,
    profile_names,
    with_head,
)
from speclab.study.reading import parse_yaml, read_yaml

OWN = (
    "qwen-coder",
    "tiny",
    "smollm",
    "smollm-head",
    "reference",
)  # pairs whose weights are here or are made here
HUB = [name for name in profile_names() if name not in OWN]
UNPINNED = {("reasoning", "target")}  # its commit is unknown; the file contains 'fill in'


def models(profile):
    return {"target": profile.target, "draft": profile.draft}


def test_the_head_of_a_pair_is_the_draft_of_its_profile():
    own = load_profile("smollm", {"prompts_per_domain": 3})
    of_head = with_head(own)
    assert (of_head.draft, of_head.traces) == (
        load_profile("smollm-head").draft,
        "data/traces/smollm-head",
    )
    assert (of_head.target, of_head.prompts_per_domain) == (own.target, 3)
    assert with_head(load_profile("tiny")) is None


@pytest.mark.parametrize("name", HUB)
def test_models_are_hub_ids_with_a_pinned_commit(name):
    for which, spec in models(load_profile(name)).items():
        assert re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", spec.path)
        pinned = re.fullmatch(r"[0-9a-f]{40}", spec.revision or "")
        assert pinned or (name, which) in UNPINNED


def test_overrides_reach_one_model_or_both():
    both = load_profile("tiny", {"device": "cpu", "max_new_tokens": 7})
    one = load_profile("tiny", {"target.dtype": "float16"})
    assert (both.target.device, both.draft.device) == ("cpu", "cpu")
    assert both.max_new_tokens == 7
    assert (one.target.dtype, one.draft.dtype) == ("float16", "auto")
    domains = load_profile("tiny", {"temperature": 1, "domains": ["math"]}).domains
    assert domains == ("math",)


def test_files_are_looked_for_beside_the_profile_then_here_then_in_the_kit(tmp_path, monkeypatch):
    beside, here = tmp_path / "beside", tmp_path / "here"
    for folder in (beside, here):
        (folder / "models").mkdir(parents=True)
        (folder / "both.jsonl").touch()
    (here / "here.jsonl").touch()
    monkeypatch.chdir(here)
    text = "target: models\ndraft: {path: data/pairs/tiny/draft}\nprompts: both.jsonl\n"
    (beside / "my.yaml").write_text(text + "other_prompts: [here.jsonl, second, who/knows]\n")
    profile = load_profile(beside / "my.yaml")
    assert profile.target.path == str(beside / "models")
    assert profile.draft.path == "data/pairs/tiny/draft", "as the kit's manifests name it"
    assert profile.prompts == str(beside / "both.jsonl")
    assert profile.others == (str(here / "here.jsonl"), "second", "who/knows")
    assert load_profile(beside / "my.yaml", {"prompts": "here.jsonl"}).prompts.startswith(str(here))


@pytest.mark.parametrize(
    ("changes", "others"),
    [
        ({}, ("unwrapped", "second")),
        ({"prompts": "paper"}, ("second",)),
        ({"prompts": "second"}, ()),
        ({"prompts": "mine.jsonl"}, ()),
        ({"other_prompts": []}, ()),
    ],
)
def test_other_prompts_are_those_that_the_profile_names(changes, others):
    assert load_profile("tiny", changes).others == others


OLD = sorted((ROOT / "tests" / "old_profiles").glob("*.yaml"))
# a profile may now have further settings for notebooks and further facts about a pair
MAY_DIFFER = ("notebooks", "notes", "description")


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_a_profile_of_an_earlier_kit_means_the_same(path):
    then, now = load_profile(path), load_profile(path.stem)
    same = {name: getattr(now, name) for name in MAY_DIFFER}
    assert then.replace(**same) == now
    assert runs.kinds_of(then) == runs.kinds_of(now)


# ---- reference.yaml: every key, its default, what is allowed -------------------------------------

REFERENCE = FOLDER / "reference.yaml"
KEY = re.compile(r"( *)(\w+):(?: [^#]*)?#([^;]*);")  # `key: default  # what is allowed; …`
PARTS = {"target": ModelSpec, "draft": ModelSpec, "notes": Notes}


def allowed():
    """Allowed values in the comments of reference.yaml, by key (target.dtype, …)."""
    found, part = {}, ""
    for line in REFERENCE.read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"(target|draft|notes):", line):
            part = f"{heading[1]}."
        elif match := KEY.match(line):
            indent, name, words = match.groups()
            found[(part if indent else "") + name] = words.strip()
    return found


def accepts(key, value):
    """Whether the profile takes this value."""
    part, _, name = key.rpartition(".")
    changes = {"notes": {name: value}} if part == "notes" else {key: value}
    try:
        load_profile("reference", changes)
    except ValueError as error:
        assert name in str(error)
        return False
    return True


def test_the_reference_has_every_key_with_its_default():
    written = read_yaml(REFERENCE, "")
    assert {*written} == {field.name for field in fields(Profile)}
    for part, kind in PARTS.items():
        assert {*written[part]} == {field.name for field in fields(kind)}
    pair = [ModelSpec(f"data/pairs/tiny/{name}") for name in ("target", "draft")]
    reference = load_profile("reference")
    assert reference == Profile("reference", *pair) and reference.notes == Notes()
    keys = {*written, *(f"{part}.{key}" for part in PARTS for key in written[part])}
    assert keys - {*allowed()} == {*PARTS}, "a comment begins with what is allowed"


@pytest.mark.parametrize("key", allowed())
def test_the_reference_says_what_is_allowed(key):
    words = allowed()[key]
    if ends := re.fullmatch(r"(\S+) to (\S+)", words):
        low, high = map(parse_yaml, ends.groups())
        step = 1 if isinstance(low, int) and isinstance(high, int) else 1e-7
        assert accepts(key, low) and accepts(key, high)
        assert not accepts(key, low - step) and not accepts(key, high + step)
    elif words.startswith("one of "):
        values = map(parse_yaml, words.removeprefix("one of ").split(", "))
        assert all(accepts(key, value) for value in values)
        assert not accepts(key, "nonsense")
    elif key == "name":
        assert accepts(key, "a" * 64) and not accepts(key, "a" * 65) and not accepts(key, "a/b")
    else:
        assert words == "any"


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ("gamma=4", 4),
        ("dtype=float32", "float32"),
        ("budget=null", None),
        ("domains=[code, 'a #b']", ["code", "a #b"]),
        ("target={path: x}", {"path": "x"}),
        ("target.path=[x] #1", "[x] #1"),
        ("draft=/m #5", "/m #5"),
        ("font=null", None),
        ("target.revision=0123", "0123"),
        ("prompts=true", "true"),
        ("traces=null", None),
        ("description=", ""),
        ("system=Be: kind", "Be: kind"),
        ("template_arguments={enable_thinking: false}", {"enable_thinking": False}),
    ],
)
def test_overrides_are_read_from_the_command_line(item, value):
    (found,) = parse_overrides([item]).values()
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("overrides", [{"seed": 3}, '{"seed": 3}', "seed: 3"])
def test_overrides_may_be_a_text_as_papermill_hands_it_on(overrides):
    assert load_profile("tiny", overrides).seed == 3


@pytest.mark.parametrize("overrides", ["[1]", "seed", "{seed: [", [1], {1: 2}])
def test_overrides_that_name_nothing_are_refused(overrides):
    with refuses("overrides=.*names with values"):
        load_profile("tiny", overrides)


def test_an_override_without_a_value_is_refused():
    with refuses("--set =3"):
        parse_overrides(["=3"])


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"max_new_tokens": 0}, ["max_new_tokens=0", "1"]),
        ({"top_p": float("nan")}, ["top_p=nan", "finite"]),
        ({"budget": 0}, ["budget=0"]),
        ({"domains": [7]}, ["domains.0=7"]),
        ({"domains": []}, ["domains=[]"]),
        ({"domains": ["code", "math", "code"]}, ["code", "twice"]),
        ({"seed": -1, "top_k": -1}, ["seed=-1", "top_k=-1"]),  # each is reported
        ({"system": "Be kind."}, ["system", "template='none'", "set template: chat"]),
        ({"template_arguments": {"a": 1}}, ["template_arguments", "set template: chat"]),
    ],
)
def test_what_came_and_what_is_allowed_is_said_in_a_line(overrides, words):
    with refuses(r"^tiny\.yaml: ") as error:
        load_profile("tiny", overrides)
    assert all(word in str(error.value) for word in words)


def test_a_draft_is_not_judged_on_prompts_that_it_was_trained_on():
    with refuses("was trained on prompts of this set"):
        load_profile("smollm", {"prompts": "paper"})
    assert load_profile("tiny", {"prompts": "paper"}).prompts == "paper"
