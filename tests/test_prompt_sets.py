"""The prompt sets on which a question is asked: their texts and names."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from frames import text_of
from test_score import make_run

from speclab.lab import prompt_sets
from speclab.lab.prompt_sets import ENGLISH, OWN, SECOND
from speclab.lab.texts import Text
from speclab.study import runs
from speclab.study.profiles import load_profile


def test_at_t1_every_set_has_one_seed(monkeypatch):
    profile = load_profile("smollm")
    run = make_run(prompts=5)
    traces = [run.trace.assign(seed=seed) for seed in (42, 43, 44)]
    text = text_of(run, 1.0)
    own = replace(text, trace=pd.concat(traces, ignore_index=True))
    monkeypatch.setattr(Text, "recorded", lambda *_: text)
    sets = prompt_sets.texts(profile, own)
    assert sets[OWN].trace["seed"].unique().tolist() == [42]
    assert len(sets[OWN].trace) == len(run.trace)


def written(path):
    """A file of one prompt."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"prompt_id": "a", "domain": "code", "prompt": str(path)}))
    return str(path)


@pytest.mark.parametrize("changes", [{}, {"other_prompts": []}])
def test_pages_say_which_prompts_chose_the_training(changes):
    words = "of which the first 8 decided when"
    assert words in prompt_sets.described(load_profile("smollm", changes))
    assert words not in prompt_sets.described(load_profile("tiny", changes))


@pytest.mark.parametrize(
    ("theirs", "error"),
    [
        ({"set/again.jsonl": ["chat", "code"], "set/part.jsonl": ["math", "new"]}, ""),
        ({"set/again.jsonl": ["old", "new"]}, "has the domains old and new and none of code"),
        ({"one/again.jsonl": ["code"], "two/again.jsonl": ["code"]}, "two sets have the name"),
    ],
)
def test_texts_are_those_of_the_sets_that_a_profile_names(tmp_path, monkeypatch, theirs, error):
    """In the domains that the profile's own prompts have; sets that lack one are not compared."""
    sources = {written(tmp_path / name): domains for name, domains in theirs.items()}
    run = make_run(prompts=5)
    made = {}
    for source, domains in sources.items():
        other = make_run(prompts=5)
        for name in ("trace", "nodes"):
            rows = getattr(other, name)
            names = dict(zip(["code", "math"], domains, strict=False))
            setattr(other, name, rows[rows["domain"].isin([*names])].replace({"domain": names}))
        made[f"other-{Path(source).stem}"] = text_of(other)

    def recorded(profile, kind):
        assert kind in runs.kinds_of(profile)
        return made[kind]

    monkeypatch.setattr(Text, "recorded", recorded)
    profile = load_profile("tiny", {"other_prompts": list(sources)})
    if error:
        with pytest.raises(ValueError, match=error):
            prompt_sets.texts(profile, text_of(run))
        return
    sets = prompt_sets.texts(profile, text_of(run))
    assert list(sets) == [OWN, "again", "part"]
    assert set(sets["again"].trace["domain"]) == {"chat", "code"}
    assert set(sets["part"].trace["domain"]) == set(sets["part"].nodes["domain"]) == {"math"}


def test_means_are_of_sets_that_have_every_domain():
    names = {OWN: "ab", "part": "a", SECOND: "ba", ENGLISH: "ab"}
    rows = {name: pd.DataFrame({"domain": [*own]}) for name, own in names.items()}
    sets = {name: Text(0.0, own, own.iloc[:0]) for name, own in rows.items()}
    kept = prompt_sets.complete_sets(sets)
    assert list(kept) == [OWN, SECOND, ENGLISH]
