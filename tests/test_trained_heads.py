"""Notebook 18's study: depth by hand, speed by hand, the experiment's tests and its sentences."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from speclab import replay, stats
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

HEADS = study.NAMES.values()
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


def counts(*heads):
    """The accepted first tokens of heads by prompt: (seed, head, prompts, text)."""
    rows = [
        study.accepted_by_seed({d: {prompts: own} for d in (HEAD, OTHER)}, HEAD, OTHER)
        .query("seed == 0 and head == @head")
        .assign(seed=seed)
        for seed, head, prompts, own in heads
    ]
    return pd.concat(rows, ignore_index=True)


def test_a_shift_of_one_domain_is_found_and_no_shift_is_not():
    """The mixed head is right wherever the other is, and in math everywhere: only then does the
    training set change the difference between the domains.
    """
    form, same = text(seed=1, length=40), text(seed=1, length=40)
    is_math = same.trace["domain"] == "math"
    shifted = same.with_columns(hit=same.trace["hit"] | is_math)
    for own, expected in ((shifted, -1), (same, 0)):
        heads = [
            (seed, *head) for seed in (0, 1) for head in ((MIXED, OWN, own), (FORM, OWN, form))
        ]
        tests = study.pairs_that_change(counts(*heads), OWN, 0.05)
        assert tests["sign"].tolist() == [expected]


def of_seeds(*shifts):
    """Both heads of several seeds. With seed k the mixed head is right at a share `shifts[k]` of
    the second set's positions, and the other head nowhere; both are alike on own prompts.
    """
    own, second = text(seed=1), text(seed=2, length=50)
    place = second.trace["position"]
    heads = []
    for seed, shift in enumerate(shifts):
        right = second.with_columns(hit=place < 50 * shift)
        heads += [(seed, name, OWN, own) for name in (MIXED, FORM)]
        heads += [(seed, MIXED, SECOND, right)]
        heads += [(seed, FORM, SECOND, second.with_columns(hit=False))]
    return counts(*heads)


def test_the_interaction_is_the_difference_of_two_differences():
    accepted = counts(
        *((0, MIXED, name, text(seed=k)) for k, name in ((1, OWN), (2, SECOND))),
        *((0, FORM, name, text(seed=k)) for k, name in ((3, OWN), (4, SECOND))),
    )
    changes = study.changes_by_seed(accepted)
    assert changes[0].frame.equals(changes[study.MEAN].frame), "one seed is its own mean"
    number = {on: changes[0].at(on=on, domain=ALL).value for on in (OWN, SECOND, "interaction")}
    assert number["interaction"] == pytest.approx(number[SECOND] - number[OWN])
    mean = {k: text(seed=k).trace.groupby("domain")["hit"].mean().mean() for k in (1, 3)}
    assert number[OWN] == pytest.approx(mean[1] - mean[3])


def test_the_mean_over_seeds_has_the_t_interval_of_two_samples():
    """All prompts are alike, so the interval comes from the seeds alone: Student's t of two heads
    with three seeds each.
    """
    shifts = [0.1, 0.2, 0.36]
    changes = study.changes_by_seed(of_seeds(*shifts))
    for seed, shift in enumerate(shifts):
        row = changes[seed].at(on="interaction", domain=ALL).row
        assert (row.estimate, row.low, row.high) == pytest.approx((shift,) * 3)
    row = changes[study.MEAN].at(on=SECOND, domain=ALL).row
    test = scipy.stats.ttest_ind(shifts, [0.0, 0.0, 0.0])
    level = stats.levels_of(6)  # wider than 2.5 %, for six prompts per domain
    by_hand = test.confidence_interval(1 - 2 * float(level[0]))
    assert row.estimate == pytest.approx(np.mean(shifts))
    assert (row.low, row.high) == pytest.approx((by_hand.low, by_hand.high), abs=0.015)
    said = study.seeds_in_words(study.seed_table(changes))
    assert "with 3 seeds" in said and "+10.0 points" in said
    hits = study.hits_by_seed(of_seeds(*shifts)).set_index(["prompts", "head"])
    assert hits.loc[(SECOND, MIXED), "seed 2"] == pytest.approx(36)


def test_numbers_of_further_seeds_are_held_against_their_ranges(tmp_path):
    accepted = of_seeds(0.1, 0.2)
    table = study.seed_table(study.changes_by_seed(accepted))
    hits = study.hits_by_seed(accepted)
    page = tmp_path / "expected.md"
    for ranges, held in ((("-1.0 to 1.0", "19.0 to 21.0"), 5), (("1.0 to 2.0", "0.0 to 1.0"), 3)):
        own, second = ranges
        lines = [
            f"| x | 0 | 0.5 ({each}) |" for each in (own, second, second, "0.0 to 0.0", second)
        ]
        page.write_text("\n".join(["| what | 0 | 1 |", "| --- | --- | --- |", *lines]))
        said = study.seeds_expected_in_words(hits, table, page)
        assert f"Of the 7 numbers of the further seeds {held} lie" in said


def test_further_seeds_are_read_and_missing_ones_are_named(tmp_path):
    rows = study.further_seeds()
    assert set(rows["head"]) == {FORM, MIXED} and 0 not in set(rows["seed"])
    assert set(rows["prompts"]) == {OWN, UNWRAPPED, SECOND}
    assert (rows["accepted"] <= rows["tokens"]).all()
    with pytest.raises(FilesMissing, match="seeds.csv is missing"):
        study.further_seeds(tmp_path / "seeds.csv")


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


def test_what_was_known_of_the_draft_is_what_is_found_now():
    """So both sides of the comparison average in the same way."""
    profile = load_profile("smollm")
    texts = {name: Text.recorded(profile, kind) for name, kind in study.KINDS.items()}
    sets = {DRAFT: texts}
    hits, chains = study.first_tokens(sets), study.chains_by_gamma(sets, [4])
    found = study.came(hits, chains, 4, DRAFT, DRAFT)
    assert found["draft"].to_numpy() == pytest.approx(study.expected()["draft"], abs=0.006)


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
    assert "+1.5 points" in said and f"faster on the {SECOND}" in said
    assert f"slower on our {OWN}" in said and "rest" not in said
    assert not notebook.too_long(said)
    ratios = intervals("prompts", **{OWN: (0.9, 0.95), UNWRAPPED: (0.9, 1.1), SECOND: (0.9, 1.1)})
    said = study.answer(first, ratios)
    assert said.endswith(f"it is slower on our {OWN}, inconclusive on the rest.")
    assert not notebook.too_long(said)
    faster = intervals("prompts", **{OWN: (1.1, 1.2), SECOND: (1.1, 1.2)})
    assert study.faster_in_words(faster) == "faster than the draft on all prompt sets"


def test_the_costs_of_the_card_have_one_v():
    own = {"target_ms": 1.0, "sizes": [1, 9], "draft": [0.1, 0.1]}
    card = {"costs": {d: own | {"verify": [1.0, v]} for d, v in ((DRAFT, 3.0), (HEAD, 2.0))}}
    both = study.costs_of_card(card)
    assert both[DRAFT].v(9) == both[HEAD].v(9) == 2.5
    table = study.cost_table(both, 8).set_index("drafter")
    assert table.loc[HEAD, "block, chain of 8"] == pytest.approx(8 * 0.1 + 2.5)


@pytest.mark.parametrize(
    ("sign", "words"),
    [(0, "changes no difference"), (1, "0 of 1 on our own prompts and 1 of 1 on")],
)
def test_the_order_of_the_domains_in_words(sign, words):
    orders = pd.DataFrame(
        [(prompts, f"head, {own}", "math > code") for prompts in (OWN, SECOND) for own in HEADS],
        columns=["prompts", "drafter", "order"],
    )
    tests = pd.DataFrame({"prompts": [OWN, SECOND], "pair": "code − math", "sign": [0, sign]})
    said = study.follow_in_words(orders, tests)
    assert "the same order" in said and words in said
    orders.loc[0, "order"] = "code > math"
    assert "differently on our own prompts." in study.follow_in_words(orders, tests)


def test_the_names_of_both_heads():
    assert study.in_words({MIXED: HEAD, FORM: OTHER}) == {
        HEAD: "head, mixed prompts",
        OTHER: "head, kit's format",
    }
