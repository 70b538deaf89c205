"""The study of notebook 09: which settings, which clock is believed, whether a promise was kept.
(Serving, batches and routers: test_serving, test_router, test_policy.)
"""

import numpy as np
import pandas as pd
import pytest

from speclab.analysis import choose
from speclab.analysis.texts import Text
from speclab.cost import Costs
from speclab.models import timing
from speclab.shapes import parse_shape
from speclab.stats import Interval
from speclab.studies.budgets_and_routing import policies, promise, recommendations
from speclab.tree import PLAIN, chain, static_tree

SETTINGS = {"plain": PLAIN, "chain:1": chain(1)}


def of_five_prompts():
    """Texts of 12 tokens, five in a domain: of code all are the draft's first token (but in a few
    places, other ones in each text), of chat none.
    """
    rows = [
        (f"{domain}-{i}", domain, t, rank if t % (5 + i) else 1)
        for domain, rank in (("code", 0), ("chat", 1))
        for i in range(5)
        for t in range(12)
    ]
    return pd.DataFrame(rows, columns=["prompt_id", "domain", "position", "draft_rank"])


def test_settings_are_different_trees_and_named_as_they_parse():
    settings = recommendations.settings_up_to(3, 4)
    assert list(settings)[:4] == ["plain", "chain:1", "chain:2", "chain:3"]
    shapes = [(*shape.parent, *shape.rank) for shape in settings.values()]
    assert len(set(shapes)) == len(shapes)
    assert "tree:2,2,2" in settings and "tree:3,2,2" not in settings, "the same two nodes"
    for name, shape in settings.items():
        assert parse_shape(name).tree.parent.tolist() == shape.parent.tolist()
        assert shape.size <= 4


# ---- the clock -----------------------------------------------------------------------------------


def test_a_clock_changes_the_resamples_and_not_the_estimate():
    """At half the costs every resample is twice as fast; two clocks, drawn for all choices
    alike, leave their difference at what the prompts make of it.
    """
    counted = choose.block_counts(of_five_prompts(), SETTINGS)
    by_prompt = choose.prompt_costs(counted, SETTINGS, Costs.assumed(0.5))
    made = {"chain:1": 0.0, "plain": 0.0}
    choices = {name: choose.Choice(by_prompt.judged(name)) for name in made}
    speeds = choose.speeds(choices)
    again = choose.PromptCosts(by_prompt.table.assign(cost=by_prompt.table["cost"] / 2))
    found = recommendations.with_clock(speeds, choices, [again])
    for name in choices:
        assert found[name].iloc[0].equals(speeds[name].iloc[0])
        assert np.allclose(found[name].iloc[1:], 2 * speeds[name].iloc[1:], atol=1e-8)
    mixed = recommendations.with_clock(speeds, choices, [by_prompt, again])
    share = mixed["chain:1"] / mixed["plain"]
    assert np.allclose(share, speeds["chain:1"] / speeds["plain"], atol=1e-8)
    width = mixed["chain:1"]["pooled"].std() / speeds["chain:1"]["pooled"].std()
    assert width > 2, "the clock's spread is in the draws"


# ---- on other prompts ----------------------------------------------------------------------------


def test_a_policy_meets_other_prompts_as_it_is():
    """Nothing is chosen again: chat's own best there would be plain, the policy drafts."""
    counted = choose.block_counts(of_five_prompts(), SETTINGS)
    by_prompt = choose.prompt_costs(counted, SETTINGS, Costs.assumed(0.5))
    assert choose.setting_by_domain(by_prompt)["chat"] == "plain"
    fixed = {"code": "plain", "chat": "chain:1", choose.UNKNOWN: "chain:1"}
    found = policies.elsewhere(fixed, by_prompt)
    each = found["per-domain"].judged
    assert each.groupby("domain")["setting"].unique().str[0].to_dict() == {
        "code": "plain",
        "chat": "chain:1",
    }
    speeds = choose.speeds(found)
    assert speeds["per-domain"]["code"].iloc[0] == 1
    # chat: nothing is ever accepted, so each token costs 1.5
    assert speeds["always"]["chat"].iloc[0] == pytest.approx(1 / 1.5)
    assert (speeds["never"] == 1).all(axis=None)


# ---- a prediction and the clock ------------------------------------------------------------------


def test_the_check_by_hand():
    """Twelve texts of ten tokens, 1 ms a plain token: code drafts by a chain that takes 5 blocks,
    chat decodes plainly.
    """
    texts = [(f"{domain}-{i}", domain) for domain in ("code", "chat") for i in range(6)]
    kinds = (("plain", 0, 10.0), ("chain:1", 1, 5.0))
    rows = [(name, *text, *own, 10.0) for name, *own in kinds for text in texts]
    names = "setting prompt_id domain levels blocks emitted"
    counted = pd.DataFrame(rows, columns=names.split())
    settings = {"plain": PLAIN, "chain:1": chain(1)}
    # the machine that promised: a block of the chain costs 0.5 + 1
    by_prompt = choose.prompt_costs(counted, settings, Costs.assumed(0.5))
    made = {"code": ("chain:1", 5), "chat": ("plain", 10)}
    decoded = [
        (made[domain][0], method, repeat, name, domain, blocks, 10, seconds)
        for name, domain in texts
        for repeat in (0, 1)
        for method, blocks, seconds in (("plain", 10, 0.01), ("policy", made[domain][1], 0.006))
    ]
    names = "setting method repeat prompt_id domain blocks tokens time_s"
    decoded = pd.DataFrame(decoded, columns=names.split())
    each = promise.with_promise(decoded, by_prompt)
    assert not each["differs"].any()
    assert each["promised"].tolist() == pytest.approx([0.75] * 6 + [1.0] * 6)
    seconds = timing.drawn_seconds(promise.promised_seconds(decoded, each))
    assert seconds.iloc[0].to_dict() == pytest.approx(
        {"plain": 0.12, "policy": 0.072, "promised": 0.105}
    )
    ratio = pd.DataFrame({"measured": seconds["plain"] / seconds["policy"]})
    (found,) = timing.intervals(ratio, "of", 12).rows()
    assert (found.estimate, found.low, found.high) == pytest.approx((5 / 3,) * 3)
    wrong = decoded.assign(blocks=decoded["blocks"] + 1)
    assert promise.with_promise(wrong, by_prompt)["differs"].all()


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [
        ((0.95, 1.05), "kept"),
        ((0.8, 0.89), "not kept"),
        ((1.11, 1.3), "not kept"),
        ((0.85, 0.95), "inconclusive"),
        ((0.5, 2.0), "inconclusive"),
    ],
)
def test_a_promise_is_kept_within_a_margin_only(ends, verdict):
    """A wide interval that holds 1 keeps no promise; a clock that ran wrong tells nothing."""
    ratio = Interval(1.0, *ends, 12)
    assert promise.kept(ratio, 0.1, Costs.assumed(0.5)) == verdict
    disturbed = Costs(1.0, (1, 2), (0.5, 0.5), (1.0, 0.96))
    assert promise.kept(ratio, 0.1, disturbed) == recommendations.REFUSED


# ---- at another temperature ----------------------------------------------------------------------


def test_sampled_text_is_priced_by_the_rule_of_each_shape_and_seeds_are_added():
    """The draft is the target and its first choice the text: all is accepted, by either rule."""
    rows = [
        (f"{domain}-{i}", domain, t, 0, 0.5, 0.5)
        for domain in ("code", "chat")
        for i in range(5)
        for t in range(12)
    ]
    names = ["prompt_id", "domain", "position", "draft_rank", "p_token", "q_token"]
    trace = pd.DataFrame(rows, columns=names)
    settings = {"plain": PLAIN, "chain:2": chain(2), "tree:2,2,4": static_tree(2, 2, 4)}
    seeds = pd.concat([trace.assign(seed=seed) for seed in (42, 1)])
    text = Text(1.0, seeds, trace.iloc[:0])
    warm = policies.sampled_costs(text, settings, Costs.assumed(0.5), 12)
    assert list(warm.settings) == list(settings)
    once = np.tile([12.0, 4 * 2.0, 4 * 2.0], (10, 1))
    assert warm.cost == pytest.approx(2 * once)
    assert warm.prompts["emitted"].tolist() == [24.0] * 10
