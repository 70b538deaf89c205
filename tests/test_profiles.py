"""Profiles: every one that comes with the kit is valid; overrides reach where they should; errors
name what is allowed.
"""

import re

import pytest

from speclab import runs
from speclab.ops.plan import planned_pair
from speclab.profiles import ROOT, load_profile, parse_overrides, profile_names

OWN = ("tiny", "smollm")  # pairs whose weights are here or are made here
HUB = [name for name in profile_names() if name not in OWN]
T4 = ("t4", "paper", "qwen", "reasoning")  # those that name a GPU: written for T4s
UNPINNED = {("reasoning", "target")}  # its commit could not be looked up; the file says 'fill in'
PARAMETERS = {  # as the hub's model cards have them, quantised weights counted one by one
    "t4": (6_738_415_616, 1_100_048_384),
    "paper": (6_738_415_616, 1_100_048_384),
    "qwen": (7_615_616_512, 494_032_768),
    "reasoning": (7_615_616_512, 1_777_088_000),
    "small": (361_821_120, 134_515_008),
}


def models(profile):
    return {"target": profile.target, "draft": profile.draft}


@pytest.mark.parametrize("name", HUB)
def test_models_are_hub_ids_with_a_pinned_commit(name):
    for which, spec in models(load_profile(name)).items():
        assert re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", spec.path)
        pinned = re.fullmatch(r"[0-9a-f]{40}", spec.revision or "")
        assert pinned or (name, which) in UNPINNED


@pytest.mark.parametrize("name", HUB)
def test_notes_hold_the_published_configurations(name):
    profile = load_profile(name)
    configs = [profile.notes.target_config, profile.notes.draft_config]
    pair = planned_pair(profile)
    sizes = tuple(model.parameters for model in pair)
    assert sizes == PARAMETERS[name]
    context = profile.max_prompt_tokens + profile.max_new_tokens + profile.depth
    assert all(context <= c["max_position_embeddings"] for c in configs)
    assert ("quantization_config" in configs[0]) == (name in T4)


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
# what a profile says of its notebooks, and what is known of a pair, may be more today
MAY_DIFFER = ("notebooks", "notes", "description")


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_a_profile_of_an_earlier_kit_means_the_same(path):
    then, now = load_profile(path), load_profile(path.stem)
    same = {name: getattr(now, name) for name in MAY_DIFFER}
    assert then.replace(**same) == now
    assert runs.kinds_of(then) == runs.kinds_of(now)


def test_overrides_are_read_from_the_command_line():
    found = parse_overrides(["gamma=4", "dtype=float32", "budget=null"])
    assert found == {"gamma": 4, "dtype": "float32", "budget": None}
    with pytest.raises(ValueError, match="--set =3"):
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
        ({"seed": -1, "top_k": -1}, ["seed=-1", "top_k=-1"]),  # each is said
    ],
)
def test_what_came_and_what_is_allowed_is_said_in_a_line(overrides, words):
    with pytest.raises(ValueError, match=r"^tiny\.yaml: ") as error:
        load_profile("tiny", overrides)
    said = str(error.value)
    assert all(word in said for word in words) and "\n" not in said


def test_a_draft_is_not_judged_on_prompts_that_it_was_trained_on():
    with pytest.raises(ValueError, match="were among its training prompts"):
        load_profile("smollm", {"prompts": "paper"})
    assert load_profile("tiny", {"prompts": "paper"}).prompts == "paper"


@pytest.mark.parametrize("text", ["a: [", "- 1", "target: x", "target: !!set {a}"])
def test_a_broken_file_is_named(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match="mine.yaml"):
        load_profile(path)
