"""Whether so many prompts are enough, for each spread at hand: made runs, and the authors' own."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from test_published import RECORDS, released

from speclab import score
from speclab.analysis import power
from speclab.analysis.levels import AT_0, AT_1, PUBLISHED
from speclab.studies.paper_audit import author_records, enough_prompts

PRINTED = pd.Series({"code": 0.54, "math": 0.52, "reasoning": 0.53, "chat": 0.57})
PROMPTS = 50


def of_spread(sd, prompts=50, domains=tuple(PRINTED.index), rows=4) -> pd.DataFrame:
    """Nodes, and positions, whose acceptance is 0.5 and differs between prompts by exactly `sd`."""
    level = np.linspace(-1, 1, prompts)
    level = 0.5 + sd * level / level.std(ddof=1)
    parts = [
        pd.DataFrame(
            {
                "prompt_id": np.repeat([f"{name}-{i}" for i in range(prompts)], rows),
                "domain": name,
                "target_prob": np.repeat(level, rows),
            }
        )
        for name in domains
    ]
    frame = pd.concat(parts, ignore_index=True)
    return frame.assign(draft_prob=1.0, overlap=frame["target_prob"], draft_rank=0)


def pair_of(sd) -> SimpleNamespace:
    frame = of_spread(sd)
    ranked = frame.assign(draft_rank=np.arange(len(frame)) % 7 % 2)
    return SimpleNamespace(
        greedy=SimpleNamespace(nodes=frame, trace=ranked),
        sampled=SimpleNamespace(trace=frame),
    )


def records_of(*frames) -> dict:
    return {f"{i:06d}": SimpleNamespace(nodes=one) for i, one in enumerate(frames)}


def test_every_source_and_estimator_has_every_pair_of_domains():
    pairs = {"a": pair_of(0.02), "b": pair_of(0.1)}
    whole, alone = of_spread(0.05), of_spread(0.05, prompts=5, domains=["code"])
    one_prompt = of_spread(0.05, prompts=6, domains=["code"]).query(
        "prompt_id == 'code-0'"
    )
    records = records_of(whole, alone, one_prompt)
    plans = enough_prompts.spreads(pairs, records, PRINTED, PROMPTS)
    asked = plans[["source", "estimator"]].drop_duplicates().to_numpy().tolist()
    of_pair = [PUBLISHED, AT_0, AT_1]
    assert asked == [
        *(["a", name] for name in of_pair),
        *(["b", name] for name in of_pair),
        ["authors' 000000", PUBLISHED],
        ["authors' 000001", PUBLISHED],
    ], "a run of one prompt has no spread"
    assert (plans.groupby(["source", "estimator"]).size() == 6).all()
    shown = plans[plans["estimator"] == PUBLISHED].groupby("source")["spread"].mean()
    assert shown.to_dict() == pytest.approx(
        {"a": 0.02, "b": 0.1, "authors' 000000": 0.05, "authors' 000001": 0.05},
        rel=1e-3,
    )


def test_verdicts_follow_from_the_interval_of_the_spread():
    """At 50 prompts a difference of 0.05 is found up to a spread of 0.0718 (six pairs, Holm)."""
    pairs = {"narrow": pair_of(0.05), "wide": pair_of(0.1), "near": pair_of(0.07)}
    rows = enough_prompts.of_claim(enough_prompts.spreads(pairs, {}, PRINTED, PROMPTS))
    np.testing.assert_allclose(rows["difference"], -0.05)
    most = enough_prompts.limit(rows, PROMPTS)
    assert most == pytest.approx(0.0718, abs=1e-4)
    edge = power.Design(np.full(3, 2**0.5 * most))
    assert edge.power(0.05, PROMPTS, comparisons=6) == pytest.approx(0.8, abs=1e-3)
    named = rows[rows["estimator"] == PUBLISHED].set_index("source")
    assert named["verdict"].to_dict() == {
        "narrow": enough_prompts.YES,
        "wide": enough_prompts.NO,
        "near": enough_prompts.UNSURE,
    }
    found = enough_prompts.detectable(rows)
    assert found.keys == ["source", "estimator"]
    narrow = found.at(source="narrow", estimator=PUBLISHED).value
    assert narrow == pytest.approx(0.05 * 0.05 / most, rel=1e-3)


@released
def test_the_authors_run_of_five_prompts_cannot_tell():
    records = author_records.read(RECORDS)
    plans = enough_prompts.spreads({}, records, PRINTED, PROMPTS)
    assert set(plans["source"]) == {"authors' 055031"}
    row = enough_prompts.of_claim(plans).iloc[0]
    assert row["spread"] == pytest.approx(0.043, abs=5e-4)
    assert row["needed"] <= PROMPTS < row["needed_high"], (
        "enough at the spread itself, which five prompts do not settle"
    )
    assert row["verdict"] == enough_prompts.UNSURE
    assert set(score.domains_in(records["055031"].nodes)) == {"code"}
