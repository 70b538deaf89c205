"""Budgets: hand-made cases, a slow reference walk, limits of c, and choices that never use their
own prompts.
"""

from itertools import combinations, product

import numpy as np
import pandas as pd
import pytest
from test_stopping import COSTS

from speclab import stats
from speclab.lab import choose
from speclab.lab.choose import PLAIN_SETTING, UNKNOWN, Choice, PromptCosts, fold_of
from speclab.replay import ranks_ahead, replay
from speclab.tree import PLAIN, Tree, chain, static_tree

SETTINGS = (
    {PLAIN_SETTING: PLAIN}
    | {f"chain:{g}": chain(g) for g in (1, 2, 4)}
    | {"tree:3,2,8": static_tree(3, 2, 8)}
)


def trace_of(texts):
    """A trace from {prompt_id: (domain, draft ranks)}."""
    rows = [
        (name, domain, t, rank)
        for name, (domain, ranks) in texts.items()
        for t, rank in enumerate(ranks)
    ]
    return pd.DataFrame(rows, columns=["prompt_id", "domain", "position", "draft_rank"])


def random_trace(seed=0, prompts=12, length=40):
    """Code is accepted twice as often as chat."""
    rng = np.random.default_rng(seed)
    texts = {}
    for domain, share in (("code", 0.8), ("chat", 0.4)):
        for i in range(prompts):
            ranks = np.where(rng.random(length) < share, 0, rng.integers(1, 5, length))
            texts[f"{domain}-{i}"] = domain, ranks
    return trace_of(texts)


def table_of(costs, emitted=10.0):
    """PromptCosts from {prompt_id: (domain, {setting: cost})}."""
    names = next(iter(costs.values()))[1]
    rows = [
        (name, prompt, domain, emitted, own[name], own[name], own[name])
        for name in names
        for prompt, (domain, own) in costs.items()
    ]
    table = pd.DataFrame(rows, columns=["setting", *choose.PROMPT, *choose.SUMS])
    return PromptCosts(table.set_index(["setting", *choose.PROMPT]))


def priced(trace, settings, costs, rule="greedy", max_new_tokens=None):
    """PromptCosts of a trace."""
    counted = choose.block_counts(trace, settings, rule, max_new_tokens)
    return choose.prompt_costs(counted, settings, costs)


def pooled(judged):
    """Speed-up of a judged frame over all its prompts."""
    return judged["emitted"].sum() / judged["cost"].sum()


# three texts of 12 tokens: uniform is a (26 passes against 36 and 38), chat alone is best left
# plain, p1 alone is best under b
THREE = {
    "p1": ("code", {PLAIN_SETTING: 12.0, "a": 8.0, "b": 6.0}),
    "p2": ("code", {PLAIN_SETTING: 12.0, "a": 6.0, "b": 14.0}),
    "p3": ("chat", {PLAIN_SETTING: 12.0, "a": 14.0, "b": 18.0}),
}
COPIES = {f"{name}-{i}": row for name, row in THREE.items() for i in range(5)}


# ---- replayed and priced -------------------------------------------------------------------------


def test_blocks_and_costs_by_hand():
    trace = trace_of({"a": ("code", [0, 0, 0, 1, 0, 0, 2, 0, 0, 0])})
    by_prompt = priced(trace, SETTINGS, COSTS)
    assert by_prompt.table["target_passes"].tolist() == [10, 6, 4, 3, 3]
    assert by_prompt.table["draft_passes"].tolist()[:4] == [0, 6, 8, 11]
    # 3 + 1, 2 + 1, and the last three tokens of the text: three levels are drafted there, not four
    chain_4 = by_prompt.cost[0, list(SETTINGS).index("chain:4")]
    assert chain_4 == pytest.approx(2 * (4 * 0.2 + 1.15 + 0.1) + (3 * 0.2 + 1.1 + 0.1))
    # a decoder that may write two tokens more drafts four levels there, too
    [past_the_end] = priced(trace, {"it": chain(4)}, COSTS, max_new_tokens=12).cost[0]
    assert past_the_end == pytest.approx(3 * (4 * 0.2 + 1.15 + 0.1))


# ---- choices -------------------------------------------------------------------------------------


def test_choices_and_regret_by_hand():
    by_prompt = table_of(THREE, 12.0)
    best = choose.setting_by_domain(by_prompt)
    assert best == {"code": "a", "chat": PLAIN_SETTING, UNKNOWN: "a"}
    assert choose.choose_in_hindsight(by_prompt)["setting"].tolist() == ["b", "a", PLAIN_SETTING]
    by_prompt = table_of(COPIES, 12.0)
    own = {name: best[domain] for name, (domain, _) in COPIES.items()}
    judged = [by_prompt.judged(setting) for setting in (PLAIN_SETTING, best[UNKNOWN], own)]
    judged.append(choose.choose_in_hindsight(by_prompt))
    found = choose.speeds(dict(enumerate(map(Choice, judged))), n=50)
    speeds = [found[policy].loc[0, "pooled"] for policy in range(4)]
    assert speeds == pytest.approx([1, 36 / 28, 36 / 26, 36 / 24])
    chat = found[2]["chat"] - found[1]["chat"]
    assert chat[0] == pytest.approx(1 - 12 / 14)


def test_policies_are_compared_on_the_same_resamples():
    """Prompts that differ ten times in length, one policy always 10 % cheaper: the speeds are
    uncertain, their ratio is not.
    """
    costs = np.random.default_rng(3).uniform(2, 20, 30)
    table = table_of({f"p{i}": ("code", {"a": c, "b": 0.9 * c}) for i, c in enumerate(costs)})
    turned = table.judged("b").iloc[::-1]  # rows in any order
    found = choose.speeds({"a": Choice(table.judged("a")), "b": Choice(turned)})
    assert found["a"]["code"].std() > 0.01
    assert np.allclose(found["b"] / found["a"], 1 / 0.9, atol=1e-8)


def test_the_definition_of_the_fastest_setting():
    """The highest speed-up, the first of equals; how often it is that, and how far others are."""
    speeds = np.array([[1.0, 2.0, 2.0], [3.0, 1.0, 2.0]])
    assert choose.fastest(speeds).tolist() == [1, 0]
    drawn = np.array([[1, 1.5, 1.4], [1, 1.6, 1.2], [1, 1.3, 1.3], [1, 1.2, 1.5]])
    texts = pd.DataFrame({"prompt_id": range(9), "domain": "code"})
    prompts = stats.resampling_of(texts, 3)
    found = choose.how_sure(np.stack([drawn] * 2, 1), ["plain", "a", "b"], prompts)
    assert found["share_best"].tolist() == pytest.approx([0, 2 / 3, 1 / 3] * 2)
    levels = stats.levels_of(9)
    behind = found.loc[2, ["behind", "behind_low", "behind_high"]].tolist()
    assert behind == pytest.approx([0.1, *np.quantile([0.4, 0, -0.3], levels)])


def planted(fold):
    """Setting `s_k` is cheap on fold k and expensive elsewhere. A choice that uses its own test
    prompts is misled by it.
    """
    cost = {
        0: {PLAIN_SETTING: 10.0, "s_0": 1.0, "s_1": 10.5},
        1: {PLAIN_SETTING: 10.0, "s_0": 10.5, "s_1": 1.0},
    }
    return table_of({f"p{i}": ("code", cost[f]) for i, f in enumerate(fold)})


def test_cross_fit_never_sees_its_own_prompts():
    fold = fold_of(np.array(["code"] * 10), 2)
    table = planted(fold)
    leaky = table.judged(choose.setting_by_domain(table)["code"])
    assert pooled(leaky) > 1.5, "the negative control: chosen and judged on the same prompts"
    honest = choose.fit(table, folds=2, n=1).judged
    assert honest["cost"].tolist() == [10.5] * 10
    assert honest["setting"].tolist() == [f"s_{1 - f}" for f in fold]


def test_small_domains_choose_by_the_other_prompts_there_are():
    """The setting for each of three prompts is chosen on the other two; for a domain's only prompt,
    on all other prompts.
    """
    cheap = {"a": {"plain": 3.0, "x": 1.0}, "b": {"plain": 1.0, "x": 3.0}}
    texts = {f"a-{i}": ("a", cheap["a"]) for i in range(3)} | {"b-0": ("b", cheap["b"])}
    found = choose.fit(table_of(texts), n=4)
    assert found.settings == dict.fromkeys(texts, "x")
    draws = choose.speeds({"own": found}, n=4)["own"].iloc[0]
    assert draws[["a", "b"]].tolist() == pytest.approx([10.0, 10 / 3])


# ---- chosen again in every resample --------------------------------------------------------------


def noisy(seed, prompts):
    """Two domains and two settings."""
    rng, texts = np.random.default_rng(seed), {}
    for domain in ("code", "chat"):
        for i in range(prompts):
            costs = 10 + rng.normal(0, 1, 2)
            texts[f"{domain}-{i}"] = (domain, dict(zip("ab", costs, strict=True)))
    return table_of(texts)


OTHER = {"code": "chat", "chat": "code"}


@pytest.mark.parametrize(
    "taken_for",
    [lambda domain: domain, lambda domain: UNKNOWN, OTHER.get],
    ids=["own", "unknown", "crossed"],
)
def test_every_resample_is_a_cross_fitted_choice_of_its_own_prompts(taken_for):
    """The same prompt by prompt, from lists that hold each drawn prompt as often as it was
    drawn.
    """
    by_prompt = noisy(2, prompts=8)
    ids, domain = (by_prompt.prompts[name].to_numpy() for name in choose.PROMPT)
    label = [taken_for(name) for name in domain]
    found = choose.fit(by_prompt, dict(zip(ids, label, strict=True)), n=6)
    weights = stats.resampling_of(by_prompt.prompts, 6).weights
    weights = weights[:, stats.resampling_of(by_prompt.prompts, 6).rows].astype(int)
    assert (weights[1:] != 1).any(axis=1).all()
    fold = fold_of(domain, 5)
    for row, (spent, weight) in enumerate(zip(found.cost, weights, strict=True)):
        own, chosen = {"code": 0.0, "chat": 0.0}, []
        for i, times in enumerate(weight):
            others = (fold != fold[i]) & (np.isin(domain, label[i]) | (label[i] == UNKNOWN))
            drawn = np.repeat(by_prompt.cost[others], weight[others], axis=0)
            chosen.append(choose.fastest(1 / drawn.sum(axis=0)))
            own[domain[i]] += times * by_prompt.cost[i, chosen[-1]]
        assert spent.tolist() == pytest.approx([own["code"], own["chat"]])
        if row == 0:
            assert found.judged["setting"].tolist() == by_prompt.settings[chosen].tolist()


# ---- the best tree -------------------------------------------------------------------------------


def test_the_most_frequent_paths_are_accepted_most_often_of_all_trees():
    """All trees of three nodes, by the replay: no other has more accepted tokens."""
    rng = np.random.default_rng(5)
    trace = trace_of({f"p{i}": ("code", rng.geometric(0.5, 30) - 1) for i in range(4)})
    trace["draft_rank"] = trace["draft_rank"].clip(upper=2)
    paths = [path for n in (1, 2, 3) for path in product(range(3), repeat=n)]
    trees = []
    for chosen in combinations(paths, 3):
        if all(path[:-1] in ((), *chosen) for path in chosen):
            trees.append(Tree.of_paths(chosen))
    found = Tree.of_paths(choose._most_frequent(ranks_ahead(trace, 3), 3))
    accepted = [replay(trace, tree, "every")["accepted"].sum() for tree in trees]
    assert len(trees) == 55  # ternary trees with four nodes, the root among them
    assert replay(trace, found, "every")["accepted"].sum() == max(accepted) > min(accepted)


def test_the_best_tree_by_hand():
    """The draft's second token is right after its best token, and its best token after that."""
    trees = choose.best_trees(trace_of({"x": ("code", [0, 1, 0] * 5)}), 3, 3)
    chains = "[[0]]", "[[0], [0, 1]]", "[[0], [0, 1], [0, 1, 0]]"
    assert {*trees} == {*chains, "[[0], [1]]"}, "one level, then two and three"
    with pytest.raises(ValueError, match="budget=0: allowed are whole numbers"):
        choose.best_trees(random_trace(), 0, 3)
