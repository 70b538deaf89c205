"""Whether findings about the domains of one prompt set hold on others: by hand, and without any
difference to find.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from frames import text_of
from scipy.stats import nct
from scipy.stats import t as student
from test_score import make_run

from speclab import runs, score
from speclab.analysis import prompt_sets
from speclab.analysis.prompt_sets import ENGLISH, OWN, SECOND, UNWRAPPED
from speclab.analysis.texts import Text
from speclab.profiles import load_profile

MEAN = score.mean_of("x")


def rows_of(means, prompts=20, spread=0.02, seed=0):
    """Two rows a prompt, each prompt's value near its domain's mean."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        [
            {"prompt_id": f"s-{domain}-{i:02d}", "domain": domain, "x": mean + value}
            for domain, mean in means.items()
            for i in range(prompts)
            for value in 2 * [spread * rng.standard_normal()]
        ]
    )


def asked(rows):
    return rows, MEAN


FOUR = {"code": 0.5, "math": 0.9, "reasoning": 0.6, "chat": 0.1}
TURNED = FOUR | {"math": 0.2, "chat": 0.8}


def test_the_first_sets_order_is_asked_of_every_set():
    """By hand: 0.9 - (0.5 + 0.6 + 0.1) / 3 = 0.5, 0.9 - 0.1 = 0.8, (0.5 + 0.6) / 2 - 0.1 = 0.45;
    where math and chat are turned, by the same names: 0.2 - 1.9 / 3, -0.6, -0.25.
    """
    sets = {OWN: rows_of(FOUR, spread=0), SECOND: rows_of(TURNED, 6, spread=0)}
    found = prompt_sets.contrasts_by_set(sets, asked).frame
    assert found["contrast"].tolist()[:3] == [
        "math − the others",
        "math − chat",
        "reasoning and code − chat",
    ]
    own, there = np.split(found["estimate"].to_numpy(), 2)
    assert own == pytest.approx([0.5, 0.8, 0.45])
    assert there == pytest.approx([0.2 - 1.9 / 3, -0.6, -0.25])
    assert found["change"].to_numpy() == pytest.approx([*np.zeros(3), *(there - own)])
    assert found["highest"].tolist() == ["math"] * 3 + ["chat"] * 3


def test_a_change_is_paired_on_the_same_problems_only():
    """All prompts lose 0.1 of math. Paired prompts have no spread; unpaired prompts have the spread
    of two samples.
    """
    own = rows_of(FOUR, spread=0.2)
    less = own.assign(x=own["x"] - 0.1 * (own["domain"] == "math"))
    sets = {OWN: own, UNWRAPPED: less, SECOND: less}
    found = prompt_sets.contrasts_by_set(sets, asked).at(role="lead").frame
    width = (found["change_high"] - found["change_low"]).to_numpy()
    assert found["change"].tolist() == pytest.approx([0, -0.1, -0.1])
    assert (found["power"] > 0.99).all()
    assert width[:2] == pytest.approx([0, 0])
    own_width, *_ = found["high"] - found["low"]
    assert width[2] == pytest.approx(2**0.5 * own_width, rel=0.1)


def test_power_is_that_of_students_test_of_the_smaller_side():
    """Sides of 8 and 30 prompts, by the noncentral t distribution."""
    sides = [rows_of({name: 0.0}, n, 0.5) for name, n in (("code", 8), ("chat", 30))]
    levels = [side.groupby("prompt_id")["x"].first() for side in sides]
    error = np.sqrt(sum(level.var() / len(level) for level in levels))
    limit = student.isf(0.025, 14)
    tails = nct.sf(limit, 14, 0.55 / error), nct.cdf(-limit, 14, 0.55 / error)
    weights = pd.DataFrame({"difference": {"code": 1, "chat": -1}})
    for difference, wanted in ((0.55, sum(tails)), (0, 0.05)):
        found = prompt_sets.power_of(np.array([difference]), weights, pd.concat(sides), MEAN)
        assert found == pytest.approx([wanted])


def test_texts_that_are_the_same_on_two_sets_never_agree():
    """All pairs differ on each set; unwrapped code and chat are the first set's texts, so of six
    pairs five count there, and of the English set those with its chat.
    """
    far = rows_of(FOUR)
    sets = {OWN: far, UNWRAPPED: far, SECOND: rows_of(TURNED, seed=3), ENGLISH: far}
    pairs = prompt_sets.pairs_of_domains(sets, asked, 0.05)
    assert not ((pairs["set"] == UNWRAPPED) & (pairs["pair"] == "code − chat")).any()
    found = prompt_sets.carried(pairs)
    counts = found[["compared", "same", "reversed"]].to_numpy().tolist()
    assert counts == [[6, 6, 0], [5, 5, 0], [6, 1, 5], [3, 3, 0]], "code and reasoning stay"
    assert found["expected"].tolist() == pytest.approx(found["compared"].tolist())
    nothing = prompt_sets.carried(pairs.assign(sign_own=0))
    assert not nothing.drop(columns="set").to_numpy().any()
    draws = prompt_sets.asked(sets, asked)
    shown = prompt_sets.by_set(draws).frame.groupby("set")["domain"].agg(list)
    assert shown[UNWRAPPED] == ["math", "reasoning"] and shown[ENGLISH] == ["chat"]


def test_near_ties_are_neither_the_same_nor_reversed():
    near = rows_of(dict.fromkeys(FOUR, 0.5), spread=0.2, seed=5)
    pairs = prompt_sets.pairs_of_domains({OWN: rows_of(FOUR), SECOND: near}, asked, 0.05)
    (_, own), (_, second) = prompt_sets.carried(pairs).iterrows()
    assert own["same"] == 6 and second[["same", "reversed"]].tolist() == [0, 0]


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


def written(folder, name, **sizes):
    """A file of prompts: domain = how many."""
    rows = [
        {"prompt_id": f"{domain}-{i}", "domain": domain, "prompt": f"{name}: {domain} {i}"}
        for domain, size in sizes.items()
        for i in range(size)
    ]
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({}, "names no other prompts"),
        (
            {"again.jsonl": {"app": 7, "web": 5}},
            "**again**: prompts of `again.jsonl` (web 5 and app 7).",
        ),
        ({"part.jsonl": {"app": 7, "more": 1}}, "(app 7). It lacks web, so"),
    ],
)
def test_other_sets_are_described_by_what_is_in_them(tmp_path, others, words):
    changes = {"prompts": written(tmp_path, "own.jsonl", web=2, app=1)}
    changes["other_prompts"] = [written(tmp_path, name, **sizes) for name, sizes in others.items()]
    said = prompt_sets.described(load_profile("tiny", changes))
    assert words in said and str(tmp_path) not in said
    assert "math" not in said, "nothing of the kit's own sets"


def test_the_kits_own_sets_are_described():
    said = prompt_sets.described(load_profile("tiny"))
    assert all(f"**{name.capitalize()}**" in said for name in (UNWRAPPED, SECOND))


@pytest.mark.parametrize(
    ("theirs", "error"),
    [
        ({"set/again.jsonl": ["chat", "code"], "set/part.jsonl": ["math", "new"]}, ""),
        ({"set/again.jsonl": ["old", "new"]}, "has the domains old and new and none of code"),
        ({"one/again.jsonl": ["code"], "two/again.jsonl": ["code"]}, "two sets have the name"),
        ({"set/own prompts.jsonl": ["code"]}, "tables call another set 'own prompts'"),
    ],
)
def test_texts_are_those_of_the_sets_that_a_profile_names(tmp_path, monkeypatch, theirs, error):
    """In the domains that the profile's own prompts have; sets that lack one are not compared."""
    sources = {written(tmp_path, name, code=1): domains for name, domains in theirs.items()}
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
    assert list(prompt_sets.comparable(sets, Text.accepted)) == [OWN]


def test_sets_are_compared_in_the_order_of_ones_own_domains_where_prompts_are_enough():
    """The other file has its domains in another order. One domain has few prompts in `tiny`, and
    one of our own domains is in no other set.
    """
    own = {"web": 0.5, "app": 0.9, "repairs": 0.1}
    turned = rows_of(dict(reversed(own.items())), 6, seed=1)
    few = pd.concat([rows_of({"web": 0.5}, 6), rows_of({"app": 0.9}, 2)])
    ours = pd.concat([rows_of({"web": 0.5, "app": 0.9}, 6), rows_of({"repairs": 0.1}, 3)])
    sets = {OWN: ours, "turned": turned, "tiny": few}
    found = prompt_sets.contrasts_by_set(sets, asked).frame
    assert (
        found["contrast"].tolist() == ["app − web"] * 2 and found["role"].tolist() == ["spread"] * 2
    )
    assert (found["low"] > 0.3).all()
    pairs = prompt_sets.pairs_of_domains(sets, asked, 0.05)
    assert pairs[["set", "pair"]].to_numpy().tolist() == [
        [OWN, "web − app"],
        ["turned", "web − app"],
    ]
    assert prompt_sets.carried(pairs)["same"].tolist() == [1, 1]


def test_means_are_of_sets_that_have_every_domain():
    names = {OWN: "ab", "part": "a", SECOND: "ba", ENGLISH: "ab"}
    rows = {name: rows_of(dict.fromkeys(own, 0.5), 1) for name, own in names.items()}
    sets = {name: Text(0.0, own, own.iloc[:0]) for name, own in rows.items()}
    kept = prompt_sets.with_all_domains(sets)
    assert list(kept) == [OWN, SECOND, ENGLISH]
    assert prompt_sets.farthest(kept) == SECOND and prompt_sets.farthest([OWN]) is None


def test_the_words_effect_is_paired_by_prompt():
    own = rows_of({"code": 0.5, "math": 0.9, "reasoning": 0.6}, spread=0.3)
    alone = own.assign(x=own["x"] - 0.2 * (own["domain"] == "math"))
    found = prompt_sets.effect_of_words({OWN: own, UNWRAPPED: alone}, asked).frame
    assert found["domain"].tolist() == ["math", "reasoning"]
    numbers = found[["estimate", "low", "high"]]
    assert np.allclose(numbers.T, [0.2, 0]), "prompts differ by 0.3, pairs by 0"
