"""Domains: the ladder, ties in an order, and the width of an interval."""

import re

import numpy as np
import pandas as pd
import pytest
from test_score import make_run

from speclab import replay, score
from speclab.analysis.texts import Text, kind_of
from speclab.show.estimates import NUMBERS, Estimates
from speclab.studies import domain_acceptance as study
from speclab.tree import static_tree

TREE = static_tree(3, 2, 8)


def text_of(temperature=0.0, prompts=6, seeds=(0,)):
    """A made-up run as a text."""
    run = make_run(prompts=prompts)
    trace = pd.concat(
        [run.trace.assign(seed=seed) for seed in seeds], ignore_index=True
    )
    nodes = run.nodes.assign(ratio=score.ratio(run.nodes), seed=seeds[0])
    return Text(*kind_of(temperature), score.with_hits(trace), nodes)


def test_the_ladder_names_estimator_and_text():
    at_0, at_1 = text_of(), text_of(1.0, seeds=(0, 1))
    asked = study.shares_of_tokens(at_0, at_1)
    rungs = study.ladder(asked)
    assert list(pd.unique(rungs.frame["name"])) == list(asked)
    row = rungs.at(name="alpha, T = 1", domain="code")
    assert row.frame[["estimator", "text"]].iloc[0].tolist() == ["alpha", "T = 1"]
    code = at_1.trace[at_1.trace["domain"] == "code"]
    assert row.value == pytest.approx(code["overlap"].mean())


def test_tokens_per_pass_are_of_the_blocks_that_a_decoder_visits():
    at_0 = text_of()
    frame, estimator = study.numbers_of_tokens(at_0, at_0, TREE)[
        "block_efficiency, T = 0"
    ]
    blocks = replay.replay(at_0.trace, TREE)
    assert estimator(frame) == pytest.approx(blocks["emitted"].sum() / len(blocks))
    every = replay.replay(at_0.trace, TREE, "every")
    assert estimator(frame) != pytest.approx(every["emitted"].mean())


# ---- ties ----------------------------------------------------------------------------------------


def verdicts(**rungs):
    """rung = {(first, second): (difference, Holm's p)}, at a level of 0.05."""
    rows = [
        (name, first, second, difference, p)
        for name, pairs in rungs.items()
        for (first, second), (difference, p) in pairs.items()
    ]
    columns = ["name", "first", "second", "difference", "p_holm"]
    return study.with_verdicts(pd.DataFrame(rows, columns=columns), 0.05)


SURE = {("a", "b"): (0.2, 0.001), ("a", "c"): (0.3, 0.001), ("b", "c"): (0.1, 0.01)}
TIE = SURE | {("a", "b"): (-0.01, 0.9)}  # b above a by a hair
AGAINST = SURE | {("a", "b"): (-0.2, 0.001)}


def test_places_are_shared_where_nothing_is_told_apart():
    place = study.shared_places(verdicts(sure=SURE, tie=TIE))
    assert place.loc["sure"].tolist() == [1, 2, 3]
    assert place.loc["tie"].tolist() == [1.5, 1.5, 3]


def test_a_tie_is_no_other_order():
    found = verdicts(sure=SURE, tie=TIE)
    signs = study.sure_signs(found)
    assert "contradict" in study.conflict(signs) and "above" not in study.conflict(
        signs
    )
    assert study.order({"a": 3, "b": 2, "c": 1}, dict(signs.loc["sure"])) == "a > b > c"
    assert study.order({"a": 2, "b": 3, "c": 1}, dict(signs.loc["tie"])) == "a ≈ b > c"
    against = study.sure_signs(verdicts(sure=SURE, against=AGAINST))
    assert "a − b (`sure` above 0, `against` below)" in study.conflict(against)


# ---- how sure, prompts ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratios", "said"),
    [
        ({"code": (0, 1) * 50, "chat": (0, 2) * 50}, "up to 2.0 times .* code"),
        ({"code": (1,) * 100, "chat": (1,) * 100}, "nothing varies"),
    ],
)
def test_the_widest_interval_over_prompts_is_named(ratios, said):
    """100 nodes of sd 0.5 give 1.96 x 0.05, half of the interval over prompts; of sd 1, all."""
    nodes = pd.DataFrame(ratios).melt(var_name="domain", value_name="ratio")
    half = 1.96 * 0.1 * np.sqrt(100 / 99) if "up to" in said else 0
    rows = [(domain, 1.0, 1 - half, 1 + half) for domain in ratios]
    rows = Estimates(pd.DataFrame(rows, columns=["domain", *NUMBERS]))
    assert re.search(said, study.wider_in_words(nodes, rows))


def test_a_prompt_is_the_mean_of_all_its_texts():
    text = text_of(1.0, seeds=(0, 1))
    text = text.with_columns(overlap=text.trace["seed"].astype(float))
    found = study.prompt_means(text)
    assert len(found) == 24 and (found["value"] == 0.5).all()
