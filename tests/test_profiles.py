"""Profiles: every one that comes with the kit is valid; overrides reach where they should; errors name what is allowed."""

import pytest

from speclab.profiles import load_profile, parse_overrides, profile_names


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_loads_and_describes_itself(name):
    profile = load_profile(name)
    assert profile.name == name and profile.description and profile.tree.size >= 1


def test_the_paper_profile_has_the_papers_settings():
    paper = load_profile("paper")
    assert (paper.max_prompt_tokens, paper.max_new_tokens, paper.prompts_per_domain, paper.seed, paper.template) == (
        512,
        64,
        50,
        42,
        "none",
    )
    assert paper.prompts == "paper" and paper.tree.depth.tolist() == [0, 1, 1, 2, 2, 2, 2, 3, 3]
    assert (paper.target.device, paper.draft.device) == ("cuda:0", "cuda:1")


def test_overrides_reach_one_model_or_both():
    both = load_profile("tiny", {"device": "cpu", "max_new_tokens": 7})
    one = load_profile("tiny", {"target.dtype": "float16"})
    assert (both.target.device, both.draft.device, both.max_new_tokens) == ("cpu", "cpu", 7)
    assert (one.target.dtype, one.draft.dtype) == ("float16", "auto")
    assert load_profile("tiny", {"temperature": 1, "domains": ["math"]}).domains == ("math",)


def test_overrides_are_read_from_the_command_line():
    assert parse_overrides(["gamma=4", "dtype=float32", "budget=null"]) == {"gamma": 4, "dtype": "float32", "budget": None}
    with pytest.raises(ValueError, match="KEY=VALUE"):
        parse_overrides(["gamma"])


@pytest.mark.parametrize(
    ("name", "overrides", "words"),
    [
        ("tyni", {}, "did you mean 'tiny'"),
        ("tiny", {"max_new_token": 3}, "did you mean 'max_new_tokens'"),
        ("tiny", {"max_new_tokens": 0}, "max_new_tokens=0: allowed are numbers from 1"),
        ("tiny", {"max_new_tokens": 2.5}, "a whole number is needed"),
        ("tiny", {"budget": 0}, "budget=0"),
        ("tiny", {"branches": 0}, "branches=0"),
        ("tiny", {"template": "chatt"}, "did you mean 'chat'"),
        ("tiny", {"domains": ["maths"]}, "did you mean 'math'"),
        ("tiny", {"target.pathh": "x"}, "unknown parameter 'pathh'"),
        ("tiny", {"dtype": "int8"}, "allowed are auto, float32"),
        ("tiny", {"device": "tpu"}, "allowed are auto, cpu, cuda"),
        ("tiny", {"temperature": -1}, "temperature=-1"),
    ],
)
def test_bad_values_are_named(name, overrides, words):
    with pytest.raises(ValueError, match=words):
        load_profile(name, overrides)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "not valid YAML"),
        ("- 1", "at least `target` and `draft`"),
        ("target: x", "at least"),
        ("target: !!python/object/apply:os.getcwd []\ndraft: x", "not valid YAML"),
    ],
)
def test_a_broken_file_is_named(tmp_path, text, words):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        load_profile(path)
