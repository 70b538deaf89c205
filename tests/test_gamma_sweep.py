"""Notebook 02's study: hand-made texts, and the decoder compared with the replay."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_choose import trace_of

from speclab import replay, score
from speclab.analysis import association
from speclab.analysis.texts import Text
from speclab.prompts import EncodedPrompt
from speclab.studies import gamma_sweep as study


def text_of(*ranks, seeds=1, **columns):
    """A text with one prompt per list of draft ranks, the same for every seed; sampled if `columns`
    has p_token.
    """
    made = {f"code-{i}": ("code", own) for i, own in enumerate(ranks)}
    trace = trace_of(made).assign(**columns)
    trace = pd.concat([trace.assign(seed=seed) for seed in range(seeds)])
    trace = score.with_hits(trace.reset_index(drop=True))
    return Text(float("p_token" in columns), trace, None)


def random_text(seed=0, prompts=8, length=30, miss=0.35):
    rng = np.random.default_rng(seed)
    return text_of(*(rng.random((prompts, length)) < miss).astype(int))


def counted(tau, prompts=6):
    """Counts as a decoder would give them: tau[gamma - 1] tokens per pass in each prompt."""
    rows = [
        (gamma, f"code-{i}", "code", 100, 100 * tokens)
        for gamma, tokens in enumerate(tau, 1)
        for i in range(prompts)
    ]
    return pd.DataFrame(rows, columns=["gamma", "prompt_id", "domain", "blocks", "emitted"])


# ---- every gamma ---------------------------------------------------------------------------------


def test_counts_by_hand():
    """gamma 1: accept, bonus | reject, own token | accept (cut): 4 tokens in 3 passes; gamma 2:
    accept, accept, bonus | accept (cut): 2.
    """
    counts = study.chain_counts(text_of(*[[0, 0, 1, 0]] * 5, seeds=3), [1, 2])
    assert len(counts) == 2 * 5 * 3
    for estimator, wanted in ((study.TAU, [4 / 3, 2]), (study.UTILISATION, [2 / 3, 1])):
        found = study.curves({"T = 0": study.by_gamma(counts, estimator)})
        assert found.keys == ["temperature", "gamma", "domain"]
        assert found.frame["estimate"].tolist() == pytest.approx(wanted)
    every = study.chain_counts(text_of([0, 0, 0]), [2], "every")
    assert study.TAU(every) == pytest.approx((3 + 2 + 1) / 3), "a decoder gets 3"


# ---- decoding compared with replay ---------------------------------------------------------------


def test_decoded_beside_replayed():
    replayed = study.chain_counts(random_text(), [1, 3])
    same = study.beside(replayed.sample(frac=1, random_state=0), replayed)
    gap = same[same["made"] == "difference"]
    assert gap["gamma"].tolist() == [1, 3]
    assert (gap[["estimate", "low", "high"]] == 0).all(axis=None)
    slower = replayed.copy()
    slower.loc[slower.index[0], "blocks"] += 2  # gamma 1, one prompt
    table = study.beside(slower, replayed).set_index(["gamma", "made"])
    gap = table.loc[(1, "difference")]
    # in a resample without that prompt nothing differs
    assert gap["low"] < gap["estimate"] < 0 == gap["high"]
    with pytest.raises(ValueError, match="1 prompts are missing"):
        study.beside(replayed[replayed["prompt_id"] != "code-0"], replayed)


@pytest.mark.parametrize(
    ("sizes", "per_domain", "wanted"),
    [
        ({"a": 9, "b": 9, "c": 9}, 2, ["a0", "a1", "b0", "b1", "c0", "c1"]),
        ({"a": 9}, 2, ["a0", "a1", "a2", "a3", "a4"]),
        ({"a": 6, "b": 1}, 2, ["a0", "a1", "a2", "a3", "b0"]),
        ({"a": 2, "b": 1}, 1, ["a0", "a1", "b0"]),
    ],
)
def test_a_few_of_each_domain_are_decoded_and_five_at_least(sizes, per_domain, wanted):
    known = [
        EncodedPrompt(f"{of}{i}", of, (1,), 0) for of, size in sizes.items() for i in range(size)
    ]
    chosen = study.first_prompts(known, per_domain)
    assert [prompt.prompt_id for prompt in chosen] == wanted


# ---- neighbours ----------------------------------------------------------------------------------

COLUMNS = ["before", "after", "both"]


def test_neighbours_by_hand():
    found = study.neighbours(text_of([0, 0, 1, 0], [3], seeds=2))
    assert set(found["prompt_id"]) == {"code-0"}, "a text of one token has none"
    of_a_text = [[1, 1, 1], [1, 0, 0], [0, 1, 0]]
    assert found[COLUMNS].to_numpy().tolist() == of_a_text * 2
    two = text_of([0, 0, 1, 0], [0, 1])
    names = {"code-0": "web", "code-1": "app"}
    of = two.trace["prompt_id"]
    trace = two.trace.assign(domain=of.map(names), prompt_id=of.map({"code-0": "2", "code-1": "1"}))
    two = replace(two, trace=trace)
    assert study.neighbours(two)["domain"].tolist() == ["web"] * 3 + ["app"]
    # accepted with 1/2, 1, 1/4
    sampled = text_of([9] * 3, p_token=[0.5, 0.4, 0.8], q_token=[0.25, 0.8, 0.2])
    found = study.neighbours(sampled)[COLUMNS].to_numpy()
    assert found.tolist() == [[0.5, 1, 0.5], [1, 0.25, 0.25]]


def test_lag1_is_pearsons_correlation_of_neighbours():
    text = random_text()
    pairs = study.neighbours(text)
    pairs = pairs.astype({"before": bool, "after": bool})
    theirs = association.correlations(pairs, "before", "after", "pearson")
    drawn = study.one_token(text)
    ours = drawn.table({"lag1": study.lag1(drawn)}).frame
    numbers = ["estimate", "low", "high"]
    assert ours[numbers].iloc[0].tolist() == pytest.approx(theirs[numbers].iloc[0].tolist())
    by_hand = study.one_token(text_of(*[[0, 0, 1, 0]] * 5, [3]))
    assert study.lag1(by_hand).loc[0, "code"] == pytest.approx(-0.5)
    assert by_hand["alpha"].loc[0, "code"] == 15 / 21, "the text of one token too"


@pytest.mark.parametrize("rank", [0, 1])
def test_without_spread_lag1_is_undefined(rank):
    drawn = study.one_token(text_of(*[[rank] * 12] * 5))
    assert study.lag1(drawn).isna().all(axis=None)


# ---- the best gamma ------------------------------------------------------------------------------


def test_best_gamma_of_equal_prompts_is_certain():
    tau = study.by_gamma(counted([1.5, 1.9, 2.0]), study.TAU)
    table = study.best_shares(tau, study.speed_ups(tau, [1, 2, 3], 0.1))
    speed = [1, 1.5 / 1.1, 1.9 / 1.2, 2 / 1.3]
    assert table["speedup"].tolist() == pytest.approx(speed)
    assert table["share_best"].tolist() == [0, 0, 1, 0]
    (chosen,) = study.choices(table).to_numpy().tolist()
    assert chosen == ["code", 2, 2, 2, 2, 2]


def test_the_best_gamma_of_few_prompts_has_no_range():
    tau = {"T = 0": study.by_gamma(counted([1.5, 1.9, 2.0], prompts=4), study.TAU)}
    best = study.best_by_cost(tau, [1, 2, 3], [0.1]).iloc[0]
    assert best["best"] == 2 and best[3:][1:].isna().all()


def test_the_best_gamma_moves_with_the_cost():
    tau = {"T = 0": study.by_gamma(counted([1.5, 1.9, 2.0]), study.TAU)}
    best = study.best_by_cost(tau, [1, 2, 3], [0.0, 0.1, 9.0])
    assert best["best"].tolist() == [3, 2, 0], "free: the longest; too expensive: none"
    useless = {"T = 0": study.by_gamma(counted([1.0, 1.0]), study.TAU)}
    free = study.best_by_cost(useless, [1, 2], [0.0]).iloc[0]
    assert free[["best", "as_good_low", "as_good_high"]].tolist() == [0, 0, 2], (
        "of equals the smallest"
    )


def test_the_text_to_show_is_the_middle_one_of_the_longest():
    trace = text_of([0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1], [0, 0]).trace
    assert study.middle_text(replay.replay(trace, 4)) == "code-2"
