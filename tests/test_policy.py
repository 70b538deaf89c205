"""The policy file: round trip, choices by the router, and every kind of invalid file."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from test_choose import priced, trace_of

from speclab.analysis import choose, policy
from speclab.analysis import router as routers
from speclab.analysis.policy import Policy
from speclab.cost import Costs
from speclab.prompts import DOMAINS, Prompt
from speclab.studies.budgets_and_routing import policies, recommendations
from speclab.tree import PLAIN, chain, static_tree

PAIR = {"target": "a" * 40, "draft": "b" * 40}
MADE = Policy(
    PAIR,
    "cpu",
    Costs(30.0, (1, 4), (0.3, 0.4), (1.0, 1.2), 0.1, 0.2),
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
    """A file with the policy's fields, changed without any check."""
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(asdict(MADE) | changes))
    return path


def test_a_prompt_says_its_domain():
    asked = {d: Prompt("p", d, "text") for d in (*DOMAINS, "")}
    found = {name: policy.setting_for(MADE, prompt) for name, prompt in asked.items()}
    assert found == MADE.domains | {"reasoning": "chain:2", "": "chain:2"}, (
        "a domain that the policy does not name, or no domain, is the default"
    )


def test_a_policy_names_any_domains(tmp_path):
    own = replace(MADE, domains={"refunds & returns": "chain:2", "配送": "plain"})
    path = tmp_path / "policy.json"
    policy.write_policy(own, path)
    assert policy.load(path) == own
    found = [policy.domain_of(own, Prompt("p", name, CODE)) for name in ("配送", "code")]
    assert found == ["配送", choose.UNKNOWN]


def test_the_classifier_sees_the_text_only():
    classified = replace(MADE, router="classifier")
    known = routers.load_router().routes([CODE, CHAT, "xyzzy"])
    assert known == ["code", "chat", routers.UNKNOWN], "what the cases below rest on"
    assert policy.setting_for(classified, Prompt("p", "chat", CODE)) == "chain:5", (
        "not what the prompt says of itself"
    )
    assert policy.setting_for(classified, Prompt("p", "code", CHAT)) == "plain"
    assert policy.setting_for(classified, Prompt("p", "code", "xyzzy")) == "chain:2"


def test_policies_by_hand():
    """Who knows the domain drafts for code alone, who asks the wrong router does the reverse."""
    known = {"plain": PLAIN, "chain:3": chain(3)}
    other = {"code": "chat", "chat": "code"}
    routes = {
        "lost": dict.fromkeys(TEXTS, routers.UNKNOWN),
        "wrong": {prompt: other[domain] for prompt, (domain, _) in TEXTS.items()},
    }
    by_prompt = priced(trace_of(TEXTS), known, Costs.assumed(0.1))
    found = policies.judged_policies(by_prompt, routes)
    means = {name: one.judged.groupby("domain")["cost"].mean() for name, one in found.items()}
    # three blocks, or twelve cut at the end
    code, chat = 3 * 1.3, 9 * 1.3 + 1.3 + 1.2 + 1.1
    wanted = {
        "never": [12, 12],
        "always": [chat, code],
        "per-domain": [12, code],
        "lost": [chat, code],
        "wrong": [chat, 12],
        "oracle": [12, code],
    }
    assert {name: mean.tolist() for name, mean in means.items()} == {
        name: pytest.approx(costs) for name, costs in wanted.items()
    }


@pytest.mark.parametrize(
    ("c", "v", "domain", "setting", "answer"),
    [
        (0.1, 1.0, "code", "chain:3", "yes"),
        (0.1, 1.0, "chat", "plain", "no"),
        (2.0, 1.0, "code", "plain", "no"),
        (0.1, 0.9, "code", "chain:3", recommendations.REFUSED),
    ],
)
def test_recommendations_by_hand(c, v, domain, setting, answer):
    """A cheap draft gets the longest chain, an expensive draft gets none, and a bad clock gives no
    recommendation.
    """
    known = {"plain": PLAIN, "chain:1": chain(1), "chain:3": chain(3)}
    known["tree:2,2,4"] = static_tree(2, 2, 4)
    costs = replace(Costs.assumed(c), verify=(1.0, v))
    by_prompt = priced(trace_of(TEXTS), known, costs)
    speeds = choose.speeds({"own": choose.fit(by_prompt)})
    advice = recommendations.recommend(by_prompt, costs, speeds).at(domain=domain)
    (row,) = advice.frame.to_dict("records")
    assert (row["setting"], row["speculate"]) == (setting, answer)
    speedup = 4 / (1 + 3 * c) if setting == "chain:3" else 1
    if answer != recommendations.REFUSED:
        numbers = [row[name] for name in ("estimate", "low", "high", "share_best")]
        assert numbers == pytest.approx([speedup] * 3 + [1])


def test_nothing_is_recommended_for_sure_from_few_prompts():
    """Chat alone, which plain decoding suits: of five prompts that is sure, of four it is not."""
    for size, answer, share in ((5, "no", 1.0), (4, "inconclusive", np.nan)):
        texts = {f"chat-{i}": TEXTS[f"chat-{i}"] for i in range(size)}
        by_prompt = priced(trace_of(texts), {"plain": PLAIN, "chain:3": chain(3)}, MADE.costs)
        speeds = choose.speeds({"own": choose.fit(by_prompt)})
        row = recommendations.recommend(by_prompt, MADE.costs, speeds).row
        assert (row.setting, row.speculate) == ("plain", answer)
        assert np.array_equal(row.share_best, share, equal_nan=True)


def test_a_policy_for_another_pair_says_which_model(tmp_path):
    said = f"made for another pair: its draft is {'b' * 12}…, this one's {'c' * 12}…"
    with pytest.raises(ValueError, match=said):
        policy.load(written(tmp_path), PAIR | {"draft": "c" * 40})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "version=2: Input should be 1"),
        ({"domains": {"pooled": "plain"}}, "domain='pooled': tables use this name"),
        ({"domains": {"Refunds": "plain", "refunds": "plain"}}, "differs from 'Refunds'"),
        ({"costs": {"c": 0.3}}, "missing field costs.target_ms; .*'costs.c'"),
        ({"costs": 0.3}, "costs=0.3: .*instance of Costs"),
        ({"costs": asdict(MADE.costs) | {"sizes": [4, 1]}}, "costs=.*ascending"),
        ({"costs": asdict(MADE.costs) | {"target_ms": float("nan")}}, "target_ms is nan"),
        ({"domains": {"code": "chain:0"}}, "domains.code=.*gamma=0"),
    ],
)
def test_bad_files(tmp_path, changes, message):
    path = written(tmp_path, **changes)
    with pytest.raises(ValueError, match=message) as error:
        policy.load(path)
    assert str(path) in str(error.value)
