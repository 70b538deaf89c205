"""Notebook 18's study: depth by hand, speed by hand, the experiment's tests and its sentences."""

import numpy as np
import pandas as pd
import pytest

from speclab import replay
from speclab.analysis.prompt_sets import OWN, SECOND, UNWRAPPED
from speclab.analysis.texts import Text
from speclab.cost import Costs
from speclab.estimates import Estimates
from speclab.profiles import load_profile
from speclab.runs import FilesMissing
from speclab.score import ALL
from speclab.show import notebook
from speclab.studies import trained_heads as study
from speclab.studies.trained_heads import DRAFT, FORM, HEAD, MIXED, OTHER

PROMPTS = [(f"{domain}-{number}", domain) for domain in ("code", "math") for number in range(6)]


def traced(length=6, seed=0, wrong=0.4):
    """A head's trace: ranks of every block drawn alone, so a block is no run along the text."""
    rng = np.random.default_rng(seed)
    rows = []
    for prompt, domain in PROMPTS:
        for position in range(length):
            ranks = (rng.random(length - position) < wrong).astype("int32")
            rows.append((prompt, domain, position, 7, ranks[0], ranks))
    columns = ["prompt_id", "domain", "position", "token", "draft_rank", "block_ranks"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.assign(hit=frame["draft_rank"] == 0, seed=0)


def text(**options):
    return Text(0.0, traced(**options), pd.DataFrame())


def test_acceptance_given_all_above_by_hand():
    """Of the starts with k tokens left whose first k - 1 were right: how many are right?"""
    own = text()
    draws = study.accepted_deep({DRAFT: {OWN: own}}, 3)[OWN, DRAFT]
    code = own.trace[own.trace["domain"] == "code"]
    for depth in (1, 2, 3):
        above = right = 0
        for ranks in code["block_ranks"]:
            if len(ranks) >= depth and not ranks[: depth - 1].any():
                above += 1
                right += ranks[depth - 1] == 0
        assert draws[depth]["code"].iloc[0] == pytest.approx(right / above)


def sets(seed):
    return {name: text(seed=seed + number) for number, name in enumerate((OWN, UNWRAPPED, SECOND))}


def test_the_best_gamma_and_its_speed_by_hand():
    texts = {DRAFT: sets(0), HEAD: sets(10)}
    costs = {DRAFT: Costs.assumed(0.1), HEAD: Costs.assumed(0.3)}
    draws = study.chains_by_gamma(texts, (1, 2, 3))
    best = study.best_speeds(draws, costs, (1, 2, 3))
    speeds = []
    for gamma in (1, 2, 3):
        sums = replay.prompt_sums(texts[HEAD][OWN].chain(gamma)).groupby("domain")
        tau = (sums["emitted"].sum() / sums["blocks"].sum()).mean()
        speeds.append(tau / (1 + 0.3 * gamma))
    assert best[OWN, HEAD].speed.iloc[0] == pytest.approx(max(speeds))
    assert best[OWN, HEAD].gamma == 1 + int(np.argmax(speeds))
    ratio = study.ratios_of_speed(best, draws).at(prompts=OWN).value
    assert ratio == pytest.approx(max(speeds) / best[OWN, DRAFT].speed.iloc[0])
    noisy = {d: [costs[d], *(Costs.assumed(c) for c in (0.05, 0.1, 0.4))] for d in costs}
    wider = study.best_speeds(draws, costs, (1, 2, 3), noisy)[OWN, HEAD].speed
    assert wider.iloc[0] == best[OWN, HEAD].speed.iloc[0]
    assert wider.iloc[1:].std() > 1.5 * best[OWN, HEAD].speed.iloc[1:].std()
    free = study.free_of_charge(draws, costs[HEAD], (1, 2, 3)).at(prompts=OWN)
    assert free.row.gamma == 3 and free.value > max(speeds)


def test_a_shift_of_one_domain_is_found_and_no_shift_is_not():
    """The mixed head is right wherever the other is, and in math everywhere: only then does the
    training set change the difference between the domains.
    """
    form, same = text(seed=1, length=40), text(seed=1, length=40)
    is_math = same.trace["domain"] == "math"
    shifted = same.with_columns(hit=same.trace["hit"] | is_math)
    for own, expected in ((shifted, -1), (same, 0)):
        texts = {DRAFT: {OWN: form}, HEAD: {OWN: own}, OTHER: {OWN: form}}
        tests = study.pairs_that_change(texts, OWN, HEAD, OTHER, 0.05)
        assert tests["sign"].tolist() == [expected]


def test_the_interaction_is_the_difference_of_two_differences():
    texts = {HEAD: {OWN: text(seed=1), SECOND: text(seed=2)}}
    texts |= {OTHER: {OWN: text(seed=3), SECOND: text(seed=4)}}
    table = study.interaction(texts, HEAD, OTHER)
    number = {on: table.at(on=on, domain=ALL).value for on in (OWN, SECOND, "interaction")}
    assert number["interaction"] == pytest.approx(number[SECOND] - number[OWN])
    mean = {d: texts[d][OWN].trace.groupby("domain")["hit"].mean().mean() for d in texts}
    assert number[OWN] == pytest.approx(mean[HEAD] - mean[OTHER])


def test_other_texts_are_refused_and_other_pairs_have_no_heads():
    one, other = text(), text()
    moved = other.with_columns(token=8)
    with pytest.raises(ValueError, match="head was recorded along other texts than the draft"):
        study._check_same({DRAFT: {OWN: one}, HEAD: {OWN: moved}})
    with pytest.raises(FilesMissing, match="only the pair smollm has recorded heads"):
        study.heads_of(load_profile("tiny"))


# ---- sentences -----------------------------------------------------------------------------------


def test_expectations_are_read_and_compared(tmp_path):
    page = tmp_path / "expected.md"
    page.write_text(
        "# t\n\n| what | draft | form | mixed |\n| --- | --- | --- | --- |\n"
        "| hit | 0.5 | 0.55 (0.50 to 0.60) | 0.40 |\n"
    )
    said = study.expected(page)
    assert said.loc[0, "form_high"] == 0.60 and said.loc[0, "mixed"] == 0.40
    for found, verdict, held in ((0.58, "in the range", 1), (0.61, "outside the range", 0)):
        table = study.beside_expected(said, pd.DataFrame([{"form": found, "mixed": 0.45}]))
        assert verdict in table["found - expected"][0]
        assert f"{held} of the 1 range that we wrote down" in study.hits_in_words(table)


def intervals(key, **bounds):
    rows = [(name, (low + high) / 2, low, high) for name, (low, high) in bounds.items()]
    frame = pd.DataFrame(rows, columns=[key, "estimate", "low", "high"])
    return Estimates(frame).in_units("points", 1)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [((0.01, 0.03), "help more"), ((-0.03, -0.01), "help less"), ((-0.01, 0.01), "equally")],
)
def test_the_interaction_in_words(bounds, words):
    said = study.help_in_words(intervals("on", interaction=bounds))
    assert words in said and "interaction" in said


def test_the_answer_in_words():
    first = intervals("prompts", **{OWN: (0.01, 0.02), SECOND: (-0.02, -0.01)})
    ratios = intervals("prompts", **{OWN: (0.9, 0.95), SECOND: (1.1, 1.2)})
    said = study.answer(first, ratios)
    assert "+1.5 points" in said and f"faster on {SECOND}" in said
    assert f"slower on {OWN}" in said
    assert not notebook.too_long(said)
    faster = intervals("prompts", **{OWN: (1.1, 1.2), SECOND: (1.1, 1.2)})
    assert study.faster_in_words(faster) == "faster than the draft on all prompt sets"


def test_one_target_has_one_v():
    slow, fast = (Costs(1.0, (1, 9), (0.1, 0.1), (1.0, v)) for v in (3.0, 2.0))
    both = study.with_one_target({DRAFT: slow, HEAD: fast})
    assert both[DRAFT].v(9) == both[HEAD].v(9) == 2.5
    table = study.cost_table(both, 8).set_index("drafter")
    assert table.loc[HEAD, "block, chain of 8"] == pytest.approx(8 * 0.1 + 2.5)


@pytest.mark.parametrize(("sign", "words"), [(0, "no difference"), (1, "code − math by +5.0")])
def test_the_order_of_the_domains_in_words(sign, words):
    orders = pd.DataFrame(
        [(prompts, d, "math > code") for prompts in (OWN, SECOND) for d in (OTHER, HEAD)],
        columns=["prompts", "drafter", "order"],
    )
    tests = pd.DataFrame(
        {"prompts": [OWN, SECOND], "pair": "code − math", "difference": 0.05, "sign": [0, sign]}
        | {"low": 0.01, "high": 0.09}
    )
    said = study.follow_in_words(orders, tests, OTHER, HEAD)
    assert "alike" in said and words in said
    orders.loc[0, "order"] = "code > math"
    assert f"differently on {OWN}" in study.follow_in_words(orders, tests, OTHER, HEAD)


def test_the_names_of_both_heads():
    assert study.in_words({MIXED: HEAD, FORM: OTHER}) == {
        HEAD: "head, mixed prompts",
        OTHER: "head, kit's format",
    }
