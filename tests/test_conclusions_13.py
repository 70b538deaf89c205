"""Notebook 13: what holds on each pair; Kendall's W and its null hypothesis."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from cells import code_of, functions_of, run_cells
from frames import shipped

from speclab.plain import DOMAINS
from speclab.score import with_hits
from speclab.study import runs
from speclab.study.profiles import ROOT

NOTEBOOK = functions_of("13")
METHODS, TASKS, PROMPTS, RESAMPLES = 5, 6, 20, 200


def measured(rng, effect, common=0.0):
    """Values (1 + n, methods, tasks) of methods with unrelated orders of the tasks (and `common`,
    an effect that they share), on the same prompts; then of n resamples of the prompts.
    """
    prompts = rng.normal(size=(TASKS, PROMPTS))
    own = 0.5 * rng.normal(size=(METHODS, TASKS, PROMPTS))
    effects = effect * rng.normal(size=(METHODS, TASKS)) + common * rng.normal(size=TASKS)
    rows = prompts + own + effects[..., None]
    drawn = rng.multinomial(PROMPTS, np.full(PROMPTS, 1 / PROMPTS), (RESAMPLES, TASKS)) / PROMPTS
    return np.concatenate([rows.mean(axis=-1)[None], np.einsum("btn,mtn->bmt", drawn, rows)])


def rejected(null, studies=400, **effects):
    """The share of studies in which W is significant at 5 % against a null."""
    rng, count = np.random.default_rng(0), 0
    for _ in range(studies):
        values = measured(rng, **effects)
        by_chance = NOTEBOOK["kendalls_w"](null(values, rng))
        count += NOTEBOOK["share_as_high"](NOTEBOOK["kendalls_w"](values[0]), by_chance) <= 0.05
    return count / studies


def random_orders(values, rng):
    """The null in which no task matters for any method."""
    return rng.random(values[1:].shape)


def test_w_has_its_level_where_tasks_matter_and_prompts_are_shared():
    level = rejected(NOTEBOOK["unrelated_orders"], effect=0.6)
    assert 0.02 <= level <= 0.085
    # negative control: against random orders the shared prompts alone are "one order"
    assert rejected(random_orders, effect=0.6) > 0.12
    shared = rejected(NOTEBOOK["unrelated_orders"], studies=100, effect=0.6, common=1.5)
    assert shared > 0.9, "an order that there is is found"


def test_w_by_hand():
    """The sums of three orders are 5, 6 and 7: squares of 2, of at most 9 * 24 / 12."""
    orders = np.array([[1, 2, 3], [1, 2, 3], [3, 2, 1]])
    assert NOTEBOOK["kendalls_w"](orders) == pytest.approx(1 / 9)


# ---- pairs side by side --------------------------------------------------------------------------

LENGTH = 32
STREAKS = "1111111100000000"  # whether the draft's best token is right, from the start of a text


def pair_of(surer=1, is_deep=True, prompts=10, **patterns):
    """A planted run: in each domain texts with one pattern, STREAKS if it is not given. surer: of
    the accepted tokens (1), of the rejected ones (-1), or of all equally (0). is_deep: whether
    tokens at depth 3 are accepted as in a new block there, or never.
    """
    texts = []
    for domain in DOMAINS:
        pattern = patterns.get(domain, STREAKS)
        hit = np.array([pattern[t % len(pattern)] == "1" for t in range(LENGTH)])
        sure = 0.5 + surer * np.where(hit, 0.3, -0.3)
        text = pd.DataFrame({"position": range(LENGTH), "draft_rank": 9 * ~hit, "domain": domain})
        text["top_draft_q"] = text["top_draft_p"] = sure[:, None].tolist()
        text["third"] = np.append(hit[2:], [0, 0])  # the first token of a block that begins there
        texts += [text.assign(prompt_id=f"{domain}-{i}") for i in range(prompts)]
    trace = pd.concat(texts, ignore_index=True).assign(draft_entropy=1.0, target_entropy=1.0)
    nodes = trace[["prompt_id", "domain", "position"]].assign(depth=3, best_path=True)
    nodes["target_rank"] = np.where(is_deep & (trace.pop("third") == 1), 0, 1)
    limit = {"profile": {"max_new_tokens": LENGTH}}
    return SimpleNamespace(trace=with_hits(trace), nodes=nodes, manifest=limit)


def side_by_side(**recorded):
    """What the cells of section 1 make of these runs."""
    return run_cells("13", "PLACE = [", "findings = judged", **NOTEBOOK | {"recorded": recorded})


PLANTED = {  # runs in which a finding holds, and in which it does not
    "math is easier than chat": ({"math": "1110", "chat": "10"}, {"math": "10", "chat": "1110"}),
    "the draft knows when it fails": ({"surer": 1}, {"surer": 0}),
    "acceptance rises with depth": ({}, dict.fromkeys(DOMAINS, "110")),
    "depth is not the cause": ({}, {"is_deep": False}),
    "one setting is enough": ({}, {"math": "1", "chat": "0"}),
}


@pytest.mark.parametrize("finding", PLANTED)
def test_a_finding_may_hold_on_one_pair_and_not_on_the_other(finding):
    one, other = (pair_of(**given) for given in PLANTED[finding])
    names = side_by_side(one=one, other=other)
    assert [*names["findings"].query("finding == @finding")["verdict"]] == ["holds", "not"]
    page = names["page"].droplevel("holds if")
    assert page.loc[finding, "one"].endswith(", holds")
    assert page.loc[finding, "other"].endswith(", not")
    assert page["holds on all"].any() and not page.loc[finding, "holds on all"]


def test_too_few_prompts_leave_every_finding_open():
    names = side_by_side(few=pair_of(prompts=4))
    assert len(names["findings"]) == 5 and {*names["findings"]["verdict"]} == {"open"}
    assert "page" not in side_by_side(), "without a run nothing is shown"


def test_a_verdict_needs_the_whole_interval():
    judged = side_by_side()["judged"]
    found = judged.__globals__["FINDINGS"]
    [[_, number, domain, _, least, most, *_]] = [row for row in found if row[4] == -0.01]
    cases = {
        "holds": [(least, most), (0, 0)],
        "not": [(-0.03, -0.02), (0.011, 0.03)],
        "open": [(-0.02, 0), (0, 0.02), (-0.02, 0.02), (np.nan, np.nan)],
    }
    for verdict, intervals in cases.items():
        rows = pd.DataFrame(intervals, columns=["low", "high"])
        rows = rows.assign(number=number, domain=domain, pair="one", estimate=0.0)
        assert {*judged(SimpleNamespace(frame=rows))["verdict"]} == {verdict}


def test_the_gain_of_a_setting_per_domain_by_hand():
    """Of 32 tokens, with a draft that is always right in math and never in chat. The best chain of
    math drafts 7 tokens in each of 4 blocks. Chat does best without a draft. The best chain for
    both drafts 2: in math in 11 blocks, in chat in 32, of which the last has room for one.
    """
    speed = side_by_side()["speeds_of"](pair_of(math="1", chat="0", code="1", reasoning="0"))
    each, one = (speed[name].loc[0, ["math", "chat"]].tolist() for name in ("each", "one"))
    assert each == pytest.approx([32 / (4 * 1.7), 1])
    assert one == pytest.approx([32 / (11 * 1.2), 32 / (31 * 1.2 + 1.1)])


def test_the_numbers_are_those_of_the_other_notebooks():
    """With their intervals, on `tiny`, whose tables are committed."""

    def golden(table, **where):
        rows = pd.read_csv(ROOT / f"tests/golden/{table}.csv").set_index("domain")
        return rows[(rows[[*where]] == pd.Series(where)).all(axis=1)][["estimate", "low", "high"]]

    names = side_by_side()
    found = names["measured"](shipped("tiny", "greedy")).set_index(["number", "domain"])
    for name, rows in {
        "TOKENS": golden("02/block-efficiency", temperature="T = 0", gamma=4),
        "SURER": golden("05/auc", signal="draft's confidence"),
        "RISE": golden("04/steps", set="own prompts", step="1 to 3"),
    }.items():
        same = found.loc[names[name]].loc[rows.index, [*rows]]
        assert len(rows) >= 4 and np.allclose(same, rows, rtol=1e-6), name
    tokens = found.loc[names["TOKENS"], "estimate"]
    assert tokens[names["LEAD"]] == pytest.approx(tokens["math"] - tokens["chat"])
    deep, new = (
        golden("04/depth-or-place", line=line, depth=3)["estimate"]
        for line in ("token at this depth", "first token of a new block there")
    )
    loss = found.loc[names["SAME"], "estimate"]
    assert np.allclose(loss[deep.index], deep - new, atol=1e-9)


def test_on_a_trained_head_depth_is_the_cause():
    """The negative control on recorded texts."""
    names = side_by_side(draft=shipped("smollm", "greedy"), head=shipped("smollm-head", "greedy"))
    cause = names["findings"].query("finding == 'depth is not the cause'")
    assert dict(zip(cause["pair"], cause["verdict"], strict=True)) == {
        "draft": "holds",
        "head": "not",
    }


def test_a_pair_without_runs_is_left_out_with_a_line():
    [cell] = [cell for cell in code_of("13") if cell.startswith("recorded = {}")]
    said = []
    ctx = SimpleNamespace(say=said.append)
    names = {"ctx": ctx, "runs": runs, "ROOT": ROOT, "pairs": ["nowhere", "smollm"]}
    exec(cell, names)
    assert [*names["recorded"]] == ["smollm"]
    assert [line.partition(":")[0] for line in said] == ["`nowhere` is left out"]
