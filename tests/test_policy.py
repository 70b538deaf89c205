"""The policy file: round trip, choices by router, and every way in which a file can be wrong."""

import json
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
from test_choose import trace_of

from speclab.analysis import choose, policy
from speclab.analysis import router as routers
from speclab.analysis.policy import Policy
from speclab.draft import PLAIN, parse_shape
from speclab.prompts import DOMAINS, Prompt
from speclab.studies.budgets_and_routing import batches, machines, policies
from speclab.tree import PLAIN as NOTHING
from speclab.tree import chain, static_tree

PAIR = {"target": "a" * 40, "draft": "b" * 40}
MADE = Policy(
    PAIR,
    {"c": 0.3},
    "chain:2",
    {"code": "chain:5", "math": "tree:3,2,8", "chat": "plain"},
    "none",
    "0123456789abcdef",
)
CODE = "def add(a, b):\n    # write a python function that returns the sum"
CHAT = "Hello! Can you recommend me a nice place for my holiday, please?"


# code is always accepted, chat never
TEXTS = {
    f"{domain}-{i}": (domain, [rank] * 12)
    for domain, rank in (("code", 0), ("chat", 9))
    for i in range(5)
}


def written(tmp_path, **changes):
    """A file with the policy's fields, changed (None: left out) without any check."""
    values = {
        name: value
        for name, value in (asdict(MADE) | changes).items()
        if value is not None
    }
    (tmp_path / "policy.json").write_text(json.dumps(values))
    return tmp_path / "policy.json"


def test_round_trip(tmp_path):
    path = tmp_path / "deep" / "policy.json"
    policy.write_policy(MADE, path)
    assert policy.load(path) == policy.load(path, PAIR) == MADE
    assert [p.name for p in path.parent.iterdir()] == ["policy.json"], (
        "no part file is left"
    )


def test_a_prompt_says_its_domain():
    found = {d: policy.shape_for(MADE, Prompt("p", d, "text")) for d in (*DOMAINS, "")}
    sizes = {name: shape.tree.size for name, shape in found.items()}
    assert sizes == {"code": 5, "math": 8, "reasoning": 2, "chat": 0, "": 2}, (
        "a domain that the policy does not name, or no domain, is the default"
    )
    assert (
        found["math"].tree.parent.tolist()
        == parse_shape("tree:3,2,8").tree.parent.tolist()
    )


def test_rules_see_the_text_only():
    by_rules = replace(MADE, router="rules")
    assert routers.rules([CODE, CHAT, "xyzzy"]) == ["code", "chat", routers.UNKNOWN], (
        "what the cases below rest on"
    )
    assert policy.setting_for(by_rules, Prompt("p", "chat", CODE)) == "chain:5", (
        "not what the prompt says of itself"
    )
    assert policy.shape_for(by_rules, Prompt("p", "code", CHAT)) == PLAIN
    assert policy.setting_for(by_rules, Prompt("p", "code", "xyzzy")) == "chain:2"


def test_the_classifier_decides_or_leaves_it_to_the_default(monkeypatch):
    weight = np.zeros((len(DOMAINS), routers.FEATURES), np.float32)
    for sure, setting in (
        (50.0, "chain:5"),
        (0.0, "chain:2"),
    ):  # all prompts are code, or no domain is more likely
        bias = np.array([sure, 0, 0, 0], np.float32)
        router = routers.Router(
            weight, bias, np.ones(routers.FEATURES, np.float32), 0.5, {}
        )
        monkeypatch.setattr(policy, "_classifier", lambda router=router: router)
        assert (
            policy.setting_for(
                replace(MADE, router="classifier"), Prompt("p", "chat", CHAT)
            )
            == setting
        )


def test_policies_by_hand():
    """Who knows the domain drafts for code alone, who asks the wrong router does the reverse."""
    trace = trace_of(TEXTS)
    known, costs = {"plain": NOTHING, "chain:3": chain(3)}, machines.assumed(0.1)
    routes = {
        "lost": dict.fromkeys(TEXTS, routers.UNKNOWN),
        "wrong": {p: "chat" if d == "code" else "code" for p, (d, _) in TEXTS.items()},
    }
    found = policies.judged_policies(
        trace,
        choose.block_counts(trace, known),
        known,
        costs,
        routes,
    )
    sums = pd.concat(found, names=["policy"]).groupby(["policy", "domain"])
    means = sums[["target_passes", "draft_passes"]].mean()
    passes = means["target_passes"].unstack()[["code", "chat"]].T.to_dict("list")
    plain = {"never": [12, 12], "wrong": [12, 12]}
    assert passes == {name: [3, 12] for name in found} | plain
    drafts = means["draft_passes"].unstack()[["code", "chat"]].T.to_dict("list")
    assert drafts["per-domain"] == [9, 0]
    assert drafts["online"] == [9, 6], "it looks at two blocks first"
    assert drafts["always"] == [9, 9 * 3 + 3 + 2 + 1]
    assert drafts["wrong"] == [0, 9 * 3 + 3 + 2 + 1]


def test_recommendations_by_hand():
    """With a cheap draft the longest chain against none at all."""
    trace = trace_of(TEXTS)
    known = {
        "plain": NOTHING,
        "chain:1": chain(1),
        "chain:3": chain(3),
        "tree:2,2,4": static_tree(2, 2, 4),
    }
    found = machines.recommend(
        choose.block_counts(trace, known),
        known,
        {"cheap": machines.assumed(0.1), "dear": machines.assumed(2.0)},
    )
    found = found.set_index(["machine", "domain"])
    said = found[["setting", "gamma", "tree", "speculate"]]
    drafted = ["chain:3", 3, "tree:2,2,4", "yes"]
    assert said.loc["cheap", "code"].tolist() == drafted
    assert said.loc["cheap", "chat"].tolist() == ["plain", 0, "none", "no"]
    assert said.loc["dear", "code"].tolist() == ["plain", 0, "none", "no"]
    code = found.loc["cheap", "code"]
    assert code["speedup"] == pytest.approx(4 / 1.3) and code["share_best"] == 1
    assert (found.loc["dear", ["speedup", "low", "high"]] == 1).all(axis=None)


def test_a_policy_for_another_pair_says_which_model(tmp_path, name="draft"):
    with pytest.raises(
        ValueError,
        match=f"made for another pair: its {name} is {PAIR[name][:12]}…, this one's {'c' * 12}…",
    ):
        policy.load(written(tmp_path), PAIR | {name: "c" * 40})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "version=2: Input should be 1"),
        ({"domains": {"prose": "plain"}}, "domains.prose"),
        ({"domains": {"code": "chain:0"}}, "domains.code=.*gamma=0"),
        ({"router": None}, "missing field router"),
    ],
)
def test_bad_files(tmp_path, changes, message):
    path = written(tmp_path, **changes)
    with pytest.raises(ValueError, match=message) as error:
        policy.load(path)
    assert str(path) in str(error.value)


def verdicts_of(*verdicts):
    """Rows of batches 1, 2, 4, ...: "+" pays, "0" cannot be told, "-" slows; in another order than
    the batches'.
    """
    ends = {"+": (1.1, 1.3), "0": (0.9, 1.1), "-": (0.7, 0.9)}
    return pd.DataFrame(
        [(2**i, *ends[v]) for i, v in enumerate(verdicts)],
        columns=["batch", "low", "high"],
    )[::-1]


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ("++0-", (2, 8, True)),
        ("+++", (4, None, True)),
        ("--", (None, 1, True)),
        ("+0+-", (1, 8, False)),
        ("+-0-", (1, 8, False)),
    ],
)
def test_where_drafting_stops_holds_at_every_batch_before_or_after(verdicts, expected):
    assert batches.turning(verdicts_of(*verdicts)) == expected
