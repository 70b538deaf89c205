"""The study of notebook 09: which settings, which clock is believed, whether a promise was kept.
(Serving, batches and routers: test_serving, test_router, test_policy.)
"""

import numpy as np
import pandas as pd
import pytest

from speclab.analysis import choose
from speclab.analysis.texts import Text, kind_of
from speclab.cost import Costs
from speclab.draft import parse_shape
from speclab.models import timing
from speclab.stats import Interval
from speclab.studies.budgets_and_routing import machines, policies
from speclab.tree import PLAIN, chain, static_tree


def test_settings_are_different_trees_and_named_as_they_parse():
    settings = machines.settings_up_to(3, 4)
    assert list(settings)[:4] == ["plain", "chain:1", "chain:2", "chain:3"]
    shapes = [(*shape.parent, *shape.rank) for shape in settings.values()]
    assert len(set(shapes)) == len(shapes)
    assert "tree:2,2,2" in settings and "tree:3,2,2" not in settings, (
        "the same two nodes"
    )
    for name, shape in settings.items():
        assert parse_shape(name).tree.parent.tolist() == shape.parent.tolist()
        assert shape.size <= 4
    assert list(choose.that_draft(settings)) == list(settings)[1:]


# ---- the clock -----------------------------------------------------------------------------------


def passes(v=1.2, spread=0.0):
    """Times of passes over one and two tokens: c = 0.25, v(2) = v, quartiles `spread` apart."""
    medians = {
        ("target", 1): 4.0,
        ("target", 2): 4.0 * v,
        ("draft", 1): 1.0,
        ("draft", 2): 1.0,
    }
    rows = [
        (*case, repeat, ms * (1 + spread * (repeat - 2)))
        for case, ms in medians.items()
        for repeat in range(5)
    ]
    return pd.DataFrame(rows, columns=["model", "n", "repeat", "ms"])


@pytest.mark.parametrize(
    ("measured", "rounds", "kept"),
    [
        ([passes()], 1, 0),
        ([passes(v=0.5), passes()], 2, 1),
        (
            [passes(spread=0.6), passes(v=0.5, spread=0.1), passes(v=0.5, spread=0.2)],
            3,
            1,
        ),
    ],
)
def test_passes_are_timed_again_while_the_clock_is_disturbed(
    monkeypatch, measured, rounds, kept
):
    left = iter(measured)
    monkeypatch.setattr(timing, "pass_times", lambda *arguments: next(left))
    found = machines.timed_passes(None, 10, 5, tries=3)
    assert found[0] is measured[kept] and found[1] == rounds


# ---- a promise beside the clock ------------------------------------------------------------------


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
    prices = choose.price(counted, settings, Costs.on_a_line(0.5))
    made = {"code": ("chain:1", 5), "chat": ("plain", 10)}
    decoded = [(name, *made[domain], 10, 0.01) for name, domain in texts]
    names = "prompt_id setting blocks tokens plain_s"
    decoded = pd.DataFrame(decoded, columns=names.split())
    each = policies.with_promise(decoded, prices)
    assert not each["differs"].any()
    assert each["promised_s"].tolist() == pytest.approx([0.0075] * 6 + [0.010] * 6)
    wrong = decoded.assign(blocks=decoded["blocks"] + 1)
    assert policies.with_promise(wrong, prices)["differs"].all()


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
    assert policies.kept(ratio, 0.1, Costs.on_a_line(0.5)) == verdict
    disturbed = Costs(1.0, (1, 2), (0.5, 0.5), (1.0, 0.96))
    assert policies.kept(ratio, 0.1, disturbed) == machines.REFUSED


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
    text = Text(*kind_of(1.0), seeds, trace.iloc[:0])
    warm = policies.sampled_prices(text, settings, Costs.on_a_line(0.5), 12)
    assert list(warm.settings) == list(settings)
    once = np.tile([12.0, 4 * 2.0, 4 * 2.0], (10, 1))
    assert warm.cost == pytest.approx(2 * once)
    assert warm.prompts["emitted"].tolist() == [24.0] * 10
