"""Notebook 15's study on made-up starts, checked by hand: weights, acceptance by depth, a draft
with copies, and time. The test between sets is simulated on sets that are alike.
"""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from test_starts import starts_by_hand

from speclab.analysis import combined, significance
from speclab.analysis import specdecode_bench as traces
from speclab.runs import FilesMissing
from speclab.show import drawings, redraw, style
from speclab.studies import at_scale as study

ACCEPTED = [2, 0, 1, 3, 2, 1, 0]  # of a text of eight tokens, its first one by the prompt
TEXT = [7, 1, 2, 3, 1, 2, 3, 9]  # positions 5 and 6 copy what followed "1" and "1 2"


def starts_of(*texts, domain="code"):
    """Starts of EAGLE in as many prompts, and the texts."""
    names = [f"{domain}-{number}" for number in range(len(texts))]
    known = {"domain": domain, "proposer": traces.EAGLE, "limit": traces.LIMIT}
    known |= {"first": 1, "prompt_tokens": 10}
    parts = [
        starts_by_hand(accepted, prompt_id=name, **known)
        for name, accepted in zip(names, texts, strict=True)
    ]
    starts = pd.concat(parts, ignore_index=True)
    ids = {"prompt_token_ids": [np.array([5])], "generated_token_ids": [np.array(TEXT)]}
    columns = {name: values * len(names) for name, values in ids.items()}
    texts = pd.DataFrame({"prompt_id": names, "domain": domain} | columns)
    return starts.assign(hit=starts["accepted"] > 0), texts


@pytest.fixture
def alike():
    """Five prompts of the same text: every interval is a point."""
    return starts_of(*[ACCEPTED] * 5)


def test_tokens_per_pass_by_hand_by_request_and_by_token():
    """Two prompts of ACCEPTED and four longer ones, of which one ran away."""
    starts, _ = starts_of(*[ACCEPTED] * 2, *[[0] * 10] * 3, [1, 0] * 50)
    found = study.per_pass({"EAGLE": starts}, ["code-5"], [1, 2]).at(domain="code")
    # gamma 1: blocks of ACCEPTED at 1 (2 tokens), 3 (2), 5 (2), 7; gamma 2: at 1 (3), 4 (3), 7
    for gamma, short in ((1, 4), (2, 3)):
        own = found.at(gamma=gamma)
        by_request = (2 * 7 / short + 3 * 1 + 2) / 6
        assert own.at(weight=study.BY_REQUEST).value == pytest.approx(by_request)
        by_token = (14 + 30 + 100) / (2 * short + 30 + 50)
        assert own.at(weight=study.BY_TOKEN).value == pytest.approx(by_token)
        ended = (14 + 30) / (2 * short + 30)
        assert own.at(weight=study.ENDED).value == pytest.approx(ended)


def simulated(rng, rates, prompts=12):
    """Starts of sets with these numbers of prompts; each text has its own length and rate."""
    frames = []
    for number, rate in enumerate(rates):
        texts = [
            rng.binomial(1, rng.beta(20 * rate, 20 * (1 - rate)), rng.integers(8, 60))
            for _ in range(prompts)
        ]
        frames.append(starts_of(*texts, domain=f"set {number}")[0])
    return pd.concat(frames, ignore_index=True)


def significant_pairs(rates, seed):
    """By weight, the pairs of sets that notebook 15 calls significantly different in a simulated
    study.
    """
    starts = simulated(np.random.default_rng(seed), rates)
    firsts = study.weighted({"EAGLE": starts}, [1], "accepted", [], "every")
    pairs = {}
    for (_, weight), sums in firsts.items():
        tested = significance.differences(*sums, n=400, resamples=20)
        differ = tested[tested["p_holm"] < 0.05]
        pairs[weight] = set(zip(differ["first"], differ["second"], strict=True))
    return pairs


def test_four_sets_that_are_alike_rarely_differ():
    """No pair is significant in at least 90 % of the studies, at each weight."""
    found = [significant_pairs([0.7] * 4, seed) for seed in range(30)]
    none = [[not pairs for pairs in by_weight.values()] for by_weight in found]
    assert (np.mean(none, axis=0) >= 0.9).all(), np.mean(none, axis=0)


def test_a_set_that_differs_is_found():
    """The negative control: the last set's rate is higher, and only its pairs are significant."""
    rates = [0.55] * 3 + [0.9]
    found = [significant_pairs(rates, seed)[study.BY_REQUEST] for seed in range(10)]
    with_last = {(f"set {number}", "set 3") for number in range(3)}
    assert np.mean([with_last <= pairs for pairs in found]) >= 0.9
    assert np.mean([pairs <= with_last for pairs in found]) >= 0.9


def test_by_depth_a_new_block_is_asked_at_the_same_places(alike):
    found = study.next_accepted(alike[0], 3)
    # first token accepted at 1, 3, 4, 5, 6; the text continues after all of them
    second = found[2]
    assert second[study.EVERYWHERE]["code"][0] == 5 / 7
    assert second[study.DEEPER]["code"][0] == 3 / 5  # at 1, 4, 5
    assert second[study.AFRESH]["code"][0] == 3 / 5  # at 4, 5, 6; not at 2, 7
    third = found[3]  # of 1, 4, 5: the third of 4 only; new blocks at 3, 6, not at 7
    assert third[study.DEEPER]["code"][0] == 1 / 3
    assert third[study.AFRESH]["code"][0] == 2 / 3


def test_the_oracle_takes_the_better_one_at_each_place(alike):
    both = study.beside_copies(*alike)
    one = both[both["prompt_id"] == "code-0"]
    assert one["copied"].tolist() == [0, 0, 0, 0, 2, 1, 0]
    judged = study.best_of_both(both, 1).judged
    # blocks at 1 (2 tokens), 3 (2), 5 (a copy of 2, and one more)
    assert judged["emitted"].tolist() == [7] * 5 and judged["cost"].tolist() == [3] * 5


def test_time_prices_are_those_of_the_blocks(alike):
    both = study.beside_copies(*alike)
    prices = study.seconds_of_settings(both, [1, 2], [8])
    # positions 1 and 3 are drafted; a copy at 5 is no longer than what remains
    columns = {"start": [1, 3, 5], "drafted": [1, 1, 3], "emitted": [2, 2, 3]}
    blocks = pd.DataFrame(columns | {"is_copied": [False, False, True]})
    blocks = blocks.assign(prompt_id="code-0", domain="code", prompt_tokens=10)
    for price in ("block", "token"):
        (wanted,) = study.times(blocks, 8, price).to_dict("records")
        row = prices[price, 8].judged("chain:1+lookup:1, 16 copied").iloc[0]
        assert row["cost"] == wanted["speculative_s"]
        assert row["emitted"] == wanted["plain_s"]
        assert row["target_passes"] == 3
    short = prices["token", 8].judged("lookup:1, 1 copied").iloc[0]
    assert short["target_passes"] == 6, "the copy at 5 gets one token, and one more"


def test_each_way_has_the_fastest_of_its_own_shapes(alike):
    """All prompts are one text, so the fitted setting is the cheapest of its kind, gamma too."""
    prices = study.seconds_of_settings(study.beside_copies(*alike), [1, 2], [8])["token", 8]
    cost_of = pd.Series(prices.cost[0], prices.settings)
    kinds = {combined.DRAFT: "^chain:[12]$", combined.COPIES: "^lookup", combined.BOTH: ""}
    for name, choice in study.fitted_in_time(prices).items():
        own = cost_of[cost_of.index.str.contains(kinds[name])]
        assert choice.judged["cost"].tolist() == pytest.approx([own.min()] * 5)
    assert cost_of.size == 2 + 3 * len(study.LEASTS) * len(study.MOSTS)


def test_significant_differences_are_named_and_have_a_star():
    tested = pd.DataFrame(
        [("EAGLE", "a", "b", 0.5, 0.4, 0.6, True), ("EAGLE", "a", "c", -0.1, -0.3, 0.1, False)],
        columns=["proposer", "first", "second", "difference", "low", "high", "significant"],
    )
    of_a, of_c = (study.beaten_by(tested, best) for best in "ac")
    assert (of_a, of_c) == ({"b": True, "c": False}, {"a": False})
    clause = "significantly more than on b and not significantly more than on c"
    assert study.more_than(of_a) == clause
    cells = study.in_pairs(tested).to_numpy().tolist()
    assert cells == [["a − b", "0.50 [0.40, 0.60] *"], ["a − c", "−0.10 [−0.30, 0.10]"]]


@pytest.mark.parametrize("width", [style.ONE_COLUMN, style.TWO_COLUMNS])
def test_the_cost_of_depth_is_the_gap_that_is_drawn(alike, width):
    tables = {
        ("EAGLE", depth): draws.table().frame
        for depth, draws in study.next_accepted(alike[0], 3).items()
    }
    frame = study.stack(tables, ["proposer", "depth"])
    names = [study.EVERYWHERE, study.AFRESH, study.DEEPER]
    figure = redraw.draw_styled(partial(drawings.draw_depth, frame, ["code"], names), width)
    (axes,) = figure.axes
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    assert lines[study.AFRESH] == pytest.approx([500 / 7, 60, 200 / 3])
    assert lines[study.DEEPER] == pytest.approx([500 / 7, 60, 100 / 3])
    (gap,) = [band for band in axes.collections if band.get_label() == study.COST]
    corners = {tuple(corner) for corner in gap.get_paths()[0].vertices.round(6)}
    assert {(3.0, 66.666667), (3.0, 33.333333)} <= corners


def test_without_the_files_one_line_says_how_to_get_them(monkeypatch):
    monkeypatch.setattr(traces, "read_traces", lambda: None)
    with pytest.raises(FilesMissing, match="python -m speclab fetch specdecode-bench") as error:
        study.traces_here()
    assert "\n" not in str(error.value)
