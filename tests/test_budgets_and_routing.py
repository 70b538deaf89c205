"""Notebook 09's study: which settings are compared, when a timing is reliable, and whether the
predicted speed-up holds. (Serving, batches and routers: test_serving, test_router, test_policy.)
"""

import re

import numpy as np
import pandas as pd
import pytest
from test_choose import priced, trace_of
from test_sentences import BAD

from speclab.analysis import choose, prompt_sets
from speclab.analysis.prompt_sets import OWN, SECOND
from speclab.analysis.texts import Text
from speclab.cost import Costs
from speclab.estimates import Estimates
from speclab.models import timing
from speclab.shapes import parse_shape
from speclab.show.notebook import too_long
from speclab.stats import Interval, resampling_of
from speclab.studies.budgets_and_routing import policies, promise, recommendations, serving
from speclab.tree import PLAIN, chain, static_tree

SETTINGS = {"plain": PLAIN, "chain:1": chain(1)}


def of_five_prompts():
    """Texts of 12 tokens, five in a domain: of code all are the draft's first token (but in a few
    places, other ones in each text), of chat none.
    """
    texts = {f"code-{i}": ("code", [int(t % (5 + i) == 0) for t in range(12)]) for i in range(5)}
    return trace_of(texts | {f"chat-{i}": ("chat", [1] * 12) for i in range(5)})


@pytest.fixture
def by_prompt():
    return priced(of_five_prompts(), SETTINGS, Costs.assumed(0.5))


def test_settings_are_different_trees_and_named_as_they_parse():
    settings = recommendations.settings_up_to(3, 4)
    assert list(settings)[:4] == ["plain", "chain:1", "chain:2", "chain:3"]
    shapes = {(*shape.parent, *shape.rank) for shape in settings.values()}
    assert len(shapes) == len(settings)
    for name, shape in settings.items():
        assert parse_shape(name).tree.parent.tolist() == shape.parent.tolist()
        assert shape.size <= 4


# ---- the clock -----------------------------------------------------------------------------------


def test_a_clock_changes_the_resamples_and_not_the_estimate(by_prompt):
    """At half the costs every resample is twice as fast. Two clocks, drawn together for all
    choices, do not change the ratio of two choices.
    """
    choices = {name: choose.Choice(by_prompt.judged(name)) for name in SETTINGS}
    speeds = choose.speeds(choices)
    again = choose.PromptCosts(by_prompt.table.assign(cost=by_prompt.table["cost"] / 2))
    found = recommendations.with_clock(speeds, choices, [again])
    for name in choices:
        assert found[name].iloc[0].equals(speeds[name].iloc[0])
        assert np.allclose(found[name].iloc[1:], 2 * speeds[name].iloc[1:], atol=1e-8)
    mixed = recommendations.with_clock(speeds, choices, [by_prompt, again])
    before, after = (draws["chain:1"] / draws["plain"] for draws in (speeds, mixed))
    assert np.allclose(after, before, atol=1e-8)
    width = mixed["chain:1"]["pooled"].std() / speeds["chain:1"]["pooled"].std()
    assert width > 2, "the clock's spread is in the draws"


# ---- on other prompts ----------------------------------------------------------------------------


def test_a_policy_meets_other_prompts_as_it_is(by_prompt):
    """Nothing is chosen again: chat's own best there would be plain, the policy drafts."""
    assert choose.setting_by_domain(by_prompt)["chat"] == "plain"
    fixed = {"code": "plain", "chat": "chain:1", choose.UNKNOWN: "chain:1"}
    found = policies.elsewhere(fixed, by_prompt)
    judged = found["per-domain"].judged
    assert judged["setting"].tolist() == judged["domain"].map(fixed).tolist()
    speeds = choose.speeds(found)
    # chat: nothing is ever accepted, so each token costs 1.5
    assert speeds["always"]["chat"].iloc[0] == pytest.approx(1 / 1.5)
    assert (speeds["never"] == 1).all(axis=None)


# ---- a prediction and the clock ------------------------------------------------------------------


def test_the_check_by_hand():
    """Twelve texts of ten tokens, 1 ms a plain token: code drafts by a chain that takes 5 blocks,
    chat decodes plainly.
    """
    domains = ["code"] * 6 + ["chat"] * 6
    texts = pd.DataFrame({"prompt_id": range(12), "domain": domains, "emitted": 10.0})
    kinds = {"plain": (0, 10), "chain:1": (1, 5)}
    counts = [texts.assign(setting=name, levels=n, blocks=b) for name, (n, b) in kinds.items()]
    # the machine that promised: a block of the chain costs 0.5 + 1
    by_prompt = choose.prompt_costs(pd.concat(counts), SETTINGS, Costs.assumed(0.5))
    setting = texts["domain"].map({"code": "chain:1", "chat": "plain"})
    plain = texts.assign(setting=setting, tokens=10, method="plain", blocks=10, time_s=0.01)
    blocks = texts["domain"].map({"code": 5, "chat": 10})
    both = pd.concat([plain, plain.assign(method="policy", blocks=blocks, time_s=0.006)])
    decoded = pd.concat([both.assign(repeat=repeat) for repeat in (0, 1)])
    each = promise.with_promise(decoded, by_prompt)
    assert not each["differs"].any()
    assert each["promised"].tolist() == pytest.approx([0.75] * 6 + [1.0] * 6)
    seconds = timing.drawn_seconds(promise.promised_seconds(decoded, each))
    wanted = {"plain": 0.12, "policy": 0.072, "promised": 0.105}
    assert seconds.iloc[0].to_dict() == pytest.approx(wanted)
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
    """A wide interval that includes 1 does not confirm the prediction, and a wrong clock gives no
    result.
    """
    ratio = Interval(1.0, *ends, 12)
    assert promise.kept(ratio, 0.1, Costs.assumed(0.5)) == verdict
    disturbed = Costs(1.0, (1, 2), (0.5, 0.5), (1.0, 0.96))
    assert promise.kept(ratio, 0.1, disturbed) == recommendations.REFUSED
    assert promise.outcome_in_words(verdict, 0.1).count("10 %") == 1
    assert "no verdict" in promise.outcome_in_words(recommendations.REFUSED, 0.1)


# ---- in words ------------------------------------------------------------------------------------

UP, DOWN, TIED = (1.02, 1.01, 1.03), (0.98, 0.97, 0.99), (1.0, 0.9, 1.1)
MISSING = (1.02, np.nan, np.nan)
KINDS = UP, DOWN, TIED, MISSING
OUTCOMES = *promise.OUTCOMES.values(), "inconclusive"
OTHERS = None, SECOND, "again"


def reads_well(said):
    return not too_long(said) and not [bad for bad in BAD if re.search(bad, said)]


def by_set(other, *numbers, less=0.0, **keys):
    """The same number for the own prompts and for another set."""
    names = [OWN, *([other] if other else [])]
    rows = pd.DataFrame([numbers] * len(names), columns=["estimate", "low", "high"]) - less
    return Estimates(pd.concat([pd.DataFrame({"set": names} | keys), rows], axis=1))


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("numbers", KINDS)
def test_the_answer_of_policies_is_short(other, outcome, numbers):
    speeds = by_set(other, *numbers).in_units("x")
    gains = by_set(other, *numbers, less=1).in_units("%", 1)
    agreement = promise.outcome_in_words(outcome, 0.1)
    said = promise.policy_in_words(speeds.at(set=OWN), 1.45, 8, agreement)
    assert reads_well(said + recommendations.note_on_few(stats_of_few())), said
    assert reads_well(said + promise.gain_in_words(gains, other)), said


@pytest.mark.parametrize("here", KINDS[:3])
@pytest.mark.parametrize("there", KINDS)
def test_a_setting_per_domain_here_and_there(here, there):
    rows = [by_set(None, *here, less=1).frame, by_set(SECOND, *there, less=1).frame.iloc[1:]]
    said = promise.gain_in_words(Estimates(pd.concat(rows, ignore_index=True)), SECOND)
    is_other = there not in (here, MISSING)
    assert said.endswith("on the second prompt set." if is_other else "than one setting."), said
    first = promise.policy_in_words(by_set(None, *UP), 1.45, 8, "Whether both agree is open.")
    assert reads_well(f"{first}{said}"), said


def stats_of_few():
    ids = pd.DataFrame({"prompt_id": ["a", "b"], "domain": ["one", "one"]})
    return resampling_of(ids, 2)


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("numbers", KINDS)
@pytest.mark.parametrize("is_trusted", [True, False])
@pytest.mark.parametrize("is_measured", [True, False])
def test_the_answer_of_a_server_is_short(other, numbers, is_trusted, is_measured):
    place = f"on {prompt_sets.after_on(other or OWN)}"
    ratio = by_set(None, *numbers)
    few = recommendations.note_on_few(stats_of_few())
    for per_domain in (ratio, None):
        for batches in ("drafting makes no domain faster from batch 16 on", ""):
            asked = ratio, per_domain, place, batches, is_measured, is_trusted
            said = serving.server_in_words(*asked)
            assert reads_well(said if batches or per_domain else said + few), said


@pytest.mark.parametrize(
    ("code", "chat", "said"),
    [
        ([UP, UP, TIED], [UP, DOWN, DOWN], "drafting makes no domain faster from batch 3 on"),
        ([UP, TIED, UP], [UP, DOWN, UP], "drafting still helps a domain at batch 3"),
        ([UP, TIED, TIED], [DOWN, DOWN, DOWN], "drafting makes no domain faster from batch 2 on"),
        ([TIED] * 3, [TIED] * 3, "drafting makes no domain faster from batch 1 on"),
        ([MISSING] * 3, [MISSING] * 3, "the speed-up of drafting has no interval"),
    ],
)
def test_batches_at_which_drafting_helps(code, chat, said):
    rows = pd.DataFrame([*code, *chat], columns=["estimate", "low", "high"])
    keys = pd.DataFrame({"batch": [1, 2, 3] * 2, "domain": ["code"] * 3 + ["chat"] * 3})
    found = serving.batches_in_words(Estimates(pd.concat([keys, rows], axis=1)))
    assert found == said and not [bad for bad in BAD if re.search(bad, found)]


def test_gains_are_over_one_setting_for_all(by_prompt):
    speeds = choose.speeds(policies.judged_policies(by_prompt))
    gains = policies.gains_over_always(speeds)
    assert gains.frame["policy"].unique().tolist() == ["per-domain", "oracle"]
    whole = gains.at(policy="oracle", domain="pooled")
    ratio = (speeds["oracle"] / speeds["always"])["pooled"].iloc[0]
    assert whole.value == pytest.approx(ratio - 1)
    drawn = policies.drawn_gains(gains).at(policy="the oracle", domain="all prompts")
    assert drawn.value == pytest.approx(100 * (ratio - 1))
    words = [policies.faster_or_slower(by_set(None, *numbers, less=1)) for numbers in KINDS]
    neither = "not significantly faster"
    assert words == ["significantly faster", "significantly slower", neither, neither]


# ---- at another temperature ----------------------------------------------------------------------


def test_sampled_text_is_priced_by_the_rule_of_each_shape_and_seeds_are_added():
    """The draft is the target and its first choice the text: all is accepted, by either rule."""
    texts = {f"{d}-{i}": (d, [0] * 12) for d in ("code", "chat") for i in range(5)}
    trace = trace_of(texts).assign(p_token=0.5, q_token=0.5)
    seeds = pd.concat([trace.assign(seed=seed) for seed in (42, 1)])
    settings = {"plain": PLAIN, "chain:2": chain(2), "tree:2,2,4": static_tree(2, 2, 4)}
    text = Text(1.0, seeds, trace.iloc[:0])
    warm = policies.sampled_costs(text, settings, Costs.assumed(0.5), 12)
    assert list(warm.settings) == list(settings)
    assert warm.cost == pytest.approx(2 * np.tile([12.0, 4 * 2.0, 4 * 2.0], (10, 1)))
    assert warm.prompts["emitted"].tolist() == [24.0] * 10
