"""Notebook 02's study on hand-made texts: the gap and its parts, decoded beside replayed, and the
words that a number gets.
"""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from test_sweep import decoded, random_texts, texts
from toy import toy_pair

from speclab import replay
from speclab.prompts import EncodedPrompt
from speclab.record import generate, record_prompt
from speclab.sampling import Sampling
from speclab.studies import gamma_sweep as study
from speclab.tree import chain

BOTH = dict.fromkeys(study.RULES)


def greedy(trace):
    """A recorded greedy text, and its replay at gamma = 1..4."""
    recorded = {"T = 0": SimpleNamespace(trace=trace)}
    return study.replay_both(recorded, 4), recorded


# ---- every gamma ---------------------------------------------------------------------------------


def test_curves_are_of_the_domains_and_never_fall():
    frames, _ = greedy(random_texts())
    curves = study.sweep_curves(frames, 4, 0.1)
    assert curves.keys == study.KEYS and set(curves.frame["domain"]) == {"code"}
    assert curves.at(quantity="block_efficiency").never_falls("gamma")


def test_every_minus_visited_of_a_text_that_never_misses():
    """Every position of an all-accepted text of 3 with gamma 2: blocks of 3, 2 and 1 tokens; a
    decoder makes one of 3.
    """
    one = study.sweep.replayed(texts(*[[0, 0, 0]] * 6), 2, starts="every")
    other = study.sweep.replayed(texts(*[[0, 0, 0]] * 6), 2)
    frames = {(text, "every"): one for text in BOTH} | {
        (text, "visited"): other for text in BOTH
    }
    gap = study.every_minus_visited(frames, 2, 2)
    assert gap.keys == ["temperature", "domain"]
    assert gap.frame["estimate"].tolist() == pytest.approx([-1, -1])


# ---- decoded beside replayed ---------------------------------------------------------------------


def test_a_decoded_sweep_counts_what_the_replay_says():
    pair, starts = toy_pair(0.5), [(1, 2, 3), (5,), (3, 5), (8, 0), (6, 5), (0, 4)]
    prompts = [EncodedPrompt(f"p{i}", "code", ids, 0) for i, ids in enumerate(starts)]
    parts = []
    for prompt in prompts:
        (text,) = generate(pair.target, [prompt], 15, pair.stop_ids, Sampling(), 0)
        scored = record_prompt(pair, prompt, text, chain(1), Sampling()).trace
        rows = pd.DataFrame({name: list(values) for name, values in scored.items()})
        parts.append(rows.assign(prompt_id=prompt.prompt_id, domain="code"))
    trace, gammas = pd.concat(parts), [1, 4]
    counted = study.decoded_sweep(pair, prompts, gammas, "T = 0", 15)
    replayed = replay.chain_sums(trace, gammas)
    columns = ["gamma", "prompt_id", "domain", "blocks", "accepted", "emitted"]
    pd.testing.assert_frame_equal(
        counted[columns], replayed[columns], check_dtype=False
    )
    # a decoder drafts past an end that it cannot foresee
    assert (counted["drafted"] >= replayed["drafted"]).all()
    recorded = {"T = 0": SimpleNamespace(trace=trace)}
    table = study.decoded_beside_replayed(pair, prompts, recorded, gammas, 15, 0)
    assert table["temperature"].tolist() == ["T = 0"] * 2 and not table["unequal"].any()


def test_decoded_beside_replayed_counts_prompts_that_differ():
    trace = random_texts()
    replayed = replay.chain_sums(trace, [1, 3])
    same = study.decoded_beside(replayed.sample(frac=1, random_state=0), replayed)
    assert same["gamma"].tolist() == [1, 3]
    none = same[["difference", "difference_low", "difference_high", "unequal"]] == 0
    assert none.all(axis=None)
    assert same["decoded"].tolist() == pytest.approx(same["replayed"].tolist())
    assert (same["low"] < same["high"]).all()
    total = replayed[replayed["gamma"] == 3][["emitted", "blocks"]].sum()
    assert same["replayed"][1] == pytest.approx(total["emitted"] / total["blocks"])
    slower = replayed.copy()
    slower.loc[slower.index[0], "blocks"] += 2  # gamma 1, one prompt
    table = study.decoded_beside(slower, replayed)
    assert table["unequal"].tolist() == [1, 0]
    assert table["difference"][0] < 0 == table["difference"][1]
    assert table["difference_low"][0] < table["difference_high"][0] <= 0, (
        "in a resample without that prompt nothing differs"
    )


# ---- why the i.i.d. formula misses ---------------------------------------------------------------


def test_gap_parts_by_hand():
    # all is accepted, and every text ends at once: one token a pass instead of two
    row = study.gap_parts(*greedy(texts(*[[0]] * 6)), 4, 1).iloc[0]
    found = row[["alpha", "gap", "from_text_end", "from_lag1", "rest"]].tolist()
    assert found == pytest.approx([1, -1, -1, 0, 0])


def test_gap_parts_add_up_and_see_the_text_end():
    chat = random_texts(2, 12, 200).assign(
        domain="chat", prompt_id=lambda t: "x" + t["prompt_id"]
    )
    trace = pd.concat([random_texts(1, 12, 6), chat])
    table = study.gap_parts(*greedy(trace), 4, 4).set_index("domain")
    assert table.index.tolist() == ["code", "chat"]
    parts = table[["from_text_end", "from_lag1", "rest"]].sum(axis=1)
    assert parts.tolist() == pytest.approx(table["gap"].tolist())
    assert (
        table.loc["code", "from_text_end"] < 5 * table.loc["chat", "from_text_end"] < 0
    ), "short texts end sooner"
    assert (
        (table["gap_low"] <= table["gap"]) & (table["gap"] <= table["gap_high"])
    ).all()


# ---- the best gamma ------------------------------------------------------------------------------


def test_best_gammas_and_the_articles_range():
    frames = {
        (text, "visited"): decoded([1.5, 1.9, 2.0], domain="math") for text in BOTH
    }
    share = study.best_shares(frames, 3, 0.1)
    best = study.best_by_domain(share, {"math": [2, 4], "chat": [1, 2]})
    assert best["temperature"].tolist() == ["T = 0", "T = 1"] and best[
        "best"
    ].tolist() == [2, 2]
    assert best["article"].tolist() == ["2-4"] * 2 and best[
        "share_in_article"
    ].tolist() == [1, 1]
    assert np.isnan(study.best_by_domain(share, {})["share_in_article"]).all()
    other = study.at_other_costs(frames, 3, [0.0, 9.0])
    assert other["best_at_c_0"].tolist() == ["3 (3-3)"] * 2, "a free draft: the longest"
    assert other["best_at_c_9"].tolist() == ["0 (0-0)"] * 2, "a dear one: none"


# ---- between T = 0 and T = 1, and other seeds ----------------------------------------------------


def warmer(*ranks, p=0.5, q=0.25, overlap=0.5, top=0.4):
    """`texts` with the columns of a sampled text, alike at every position."""
    rows = texts(*ranks, p_token=p, q_token=q, overlap=overlap)
    return rows.assign(top_draft_p=[[top, 0.1]] * len(rows), token=rows["position"])


def test_chains_by_what_is_drafted_by_hand():
    """T = 0: all accepted, four tokens are 4 / 3 blocks of gamma 2 (three tokens, then one). Warm:
    the best token never is the text's, a drawn one is accepted with q / p = 1 / 2.
    """
    made = {0.0: warmer(*[[0] * 3] * 6), 0.3: warmer(*[[1] * 3] * 6)}
    frames = study.steps_between(made, 2)
    assert list(frames) == [(d, T) for d in study.DRAFTS for T in (0.0, 0.3)]
    tau = study.tau_by_temperature(frames, 2).at(domain="code", gamma=1)
    by_hand = {
        ("drawn tokens", 0.0): 3 / 2,
        ("best tokens", 0.0): 3 / 2,
        # a first pass; from position 1 on: with chance 1/2 a block starts there, …
        ("drawn tokens", 0.3): 3 / (1 + 0.5 + 0.75),
        ("best tokens", 0.3): 1,
    }
    found = tau.frame.set_index(["draft", "T"])["estimate"].to_dict()
    assert found == pytest.approx(by_hand)


def test_one_token_is_exact_at_each_temperature():
    made = {0.0: warmer([0, 0, 0, 1], *[[0] * 4] * 4), 0.3: warmer(*[[0, 1]] * 5)}
    found = study.token_by_temperature(made).at(domain="code")
    numbers = found.frame.set_index(["draft", "T"])["estimate"].to_dict()
    assert numbers == pytest.approx(
        {
            ("drawn tokens", 0.0): 0.95,
            ("best tokens", 0.0): 0.95,
            (study.COUNTED, 0.0): 0.95,
            ("drawn tokens", 0.3): 0.5,  # overlap
            ("best tokens", 0.3): 0.4,  # p of the draft's best
            (study.COUNTED, 0.3): 0.5,  # hits
        }
    )


def test_steps_are_differences_of_neighbours_on_the_same_prompts():
    made = {
        0.0: warmer(*[[0] * 3] * 6),
        0.3: warmer(*[[1] * 3] * 6, overlap=0.25),
        1.0: warmer(*[[1] * 3] * 6, overlap=0.25, top=0.2),
    }
    found = study.steps(made, study.steps_between(made, 2), 2, 1)
    one = found.at(quantity=study.TOKEN, domain="code")
    assert one.frame["step"].tolist() == ["T = 0 to 0.3", "T = 0.3 to 1"] * 2
    changes = one.frame["estimate"].tolist()
    assert changes == pytest.approx([-0.75, 0, -0.6, -0.2])
    outside = found.at(quantity=study.TOKEN_OUTSIDE, domain="code")
    assert outside.frame["estimate"].tolist() == pytest.approx(changes), "none loops"


def test_seeds_beside_prompts():
    """Prompts that differ and texts that do not: more seeds leave the interval as wide. Texts that
    differ and prompts that do not: it shrinks with the root of their number.
    """
    rng = np.random.default_rng(0)

    def drawn(overlap):
        rows = warmer(*[[0] * 2] * 400)
        return rows.assign(overlap=np.repeat(overlap, 2))

    level = rng.random(400)
    names = ("a", "b", "c", "d")
    for traces, narrower in (
        ({name: drawn(level) for name in names}, 1.0),
        ({name: drawn(rng.random(400)) for name in names}, 0.5),
    ):
        table = study.seed_spread(traces, 1, 1)
        assert table["quantity"].unique().tolist() == ["alpha", "block_efficiency[1]"]
        row = table[table["domain"] == "code"].iloc[0]
        each = [traces[name]["overlap"].mean() for name in names]
        assert row[list(names)].tolist() == pytest.approx(each)
        assert row["pooled"] == pytest.approx(np.mean(each))
        assert row["spread"] == pytest.approx(max(each) - min(each))
        assert row["narrower"] == pytest.approx(narrower, rel=0.1)


# ---- loops ---------------------------------------------------------------------------------------


def looping(prompts=5):
    """Greedy texts whose draft is right in the loop only, and sampled ones without any loop."""
    ranks = [1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0]
    columns = {"p_token": 0.5, "q_token": 0.25, "overlap": 0.5}
    greedy = texts(*[ranks] * prompts, **columns)
    recorded = {}
    for text, token in (
        ("T = 0", greedy["position"] % 4),
        ("T = 1", greedy["position"]),
    ):
        recorded[text] = SimpleNamespace(trace=greedy.assign(token=token))
    return recorded


def test_outside_loops_the_loop_buys_nothing():
    recorded = looping()
    beside = study.chains_beside_loops(study.replay_both(recorded, 4), recorded, 4)
    numbers = study.loop_numbers(beside, 4, gamma=4, c=0.05)
    tau, best = (
        numbers[name].at(domain="code") for name in ("block_efficiency[4]", study.BEST)
    )
    # blocks: seven of one token, then the loop's five tokens in one block
    assert tau.at(text="T = 0").value == pytest.approx(12 / 8)
    assert tau.at(text="T = 0 outside loops").value == 1
    assert [best.at(text=text).value for text in ("T = 0", "T = 0 outside loops")] == [
        4,
        0,
    ]
    curves = study.loop_curves(beside, 4).at(text="T = 0 outside loops")
    assert curves.frame["estimate"].tolist() == [1, 1, 1, 1]
