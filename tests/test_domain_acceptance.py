"""Domains: sensitivity against shorter and longer recordings, shares of variance by hand, and the
words that the numbers get.
"""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.special import stdtrit
from test_power import MEAN, levels, texts
from test_score import make_run
from toy import record_block, toy_pair

from speclab import replay, score, stats
from speclab.analysis import loops
from speclab.prompts import EncodedPrompt
from speclab.sampling import Sampling
from speclab.studies.domain_acceptance import (
    certainty,
    ladder,
    loop_free,
    sensitivity,
    variance,
)
from speclab.tree import static_tree

# ---- the ladder ----------------------------------------------------------------------------------


def test_the_ladder_keeps_its_rungs_in_order_and_averages():
    run = make_run(prompts=6)
    rungs = ladder.rungs(ladder.whole_ladder(run, run))
    assert list(pd.unique(rungs.frame["name"])) == [*ladder.SHARES, *ladder.LENGTHS]
    values = ladder.point_table(rungs)
    assert list(values) == list(score.DOMAINS)
    code = run.trace[run.trace["domain"] == "code"]
    assert values.loc["alpha, T = 1", "code"] == pytest.approx(score.alpha(code))
    averages = ladder.averages(rungs).loc["alpha, T = 1"]
    assert averages["mean_of_domains"] == pytest.approx(
        values.loc["alpha, T = 1"].mean()
    )
    assert averages["pooled_over_rows"] == pytest.approx(score.alpha(run.trace))


# ---- certainty -----------------------------------------------------------------------------------


def test_design_effect_stands_beside_the_widths():
    run = make_run(prompts=6)
    rungs = ladder.rungs(ladder.whole_ladder(run, run), ("published_alpha, T = 0",))
    rows = rungs.at(domain=list(score.DOMAINS))
    table = certainty.effect_by_domain(run.nodes, rows)
    ratio = table["half_width_prompts"] / table["half_width_nodes"]
    spread = stdtrit(5, 0.975) / 1.96 * np.sqrt(6 / 5)  # of 6 prompts' intervals
    effect = table["design_effect"]
    assert effect.tolist() == pytest.approx(((ratio / spread) ** 2).tolist(), rel=0.3)
    assert ((table["low"] < effect) & (effect < table["high"])).all()
    both = certainty.both_intervals(rows, table)
    naive = both.at(interval=certainty.INDEPENDENT, domain="code").frame.iloc[0]
    code = run.nodes[run.nodes["domain"] == "code"]
    width = 2 * 1.96 * score.ratio(code).std(ddof=1) / np.sqrt(len(code))
    assert naive["high"] - naive["low"] == pytest.approx(width)


def test_redrawn_studies_have_the_power_of_the_design():
    frame = pd.concat([levels("code", 40, 0.6, 3), levels("chat", 40, 0.0, 4)])
    table = certainty.redrawn(
        frame, {"x": MEAN}, ("code", "chat"), 0.05, 1, repeats=40, n=99
    )
    assert table["prompts"].tolist() == list(certainty.PROMPTS)
    assert (table["found"] - table["formula"]).abs().max() < 0.2


# ---- what explains the acceptance of a node ------------------------------------------------------


def factorial() -> pd.DataFrame:
    """Every pair of rank and depth equally often, in 8 prompts."""
    rank, depth = np.tile([0, 0, 1, 1], 16), np.tile([1, 2, 1, 2], 16)
    frame = pd.DataFrame(
        {
            "prompt_id": np.repeat([f"p{i}" for i in range(8)], 8),
            "domain": "code",
            "rank": rank,
            "depth": depth,
        }
    )
    return frame.assign(ratio=2.0 * rank + depth, copy=rank)


def test_variance_shares_by_hand():
    """alpha = 2 rank + depth, balanced and independent: 4 parts in 5 and 1 in 5, in any order of
    entry.
    """
    shares = variance.variance_shares(
        factorial(), factors=("rank", "depth"), n=50
    ).set_index("factor")
    for column in ("alone", "last", "shapley", "low", "high"):
        np.testing.assert_allclose(shares[column], [0.8, 0.2, 1.0], atol=1e-6)


def test_variance_shares_split_what_two_factors_share():
    shares = variance.variance_shares(
        factorial(), factors=("rank", "copy", "depth"), n=50
    ).set_index("factor")
    np.testing.assert_allclose(shares["alone"], [0.8, 0.8, 0.2, 1.0], atol=1e-6)
    np.testing.assert_allclose(shares["last"], [0.0, 0.0, 0.2, 1.0], atol=1e-6)
    np.testing.assert_allclose(shares["shapley"], [0.4, 0.4, 0.2, 1.0], atol=1e-6)


def test_variance_shares_see_a_curve_and_add_up():
    nodes = make_run(prompts=8).nodes
    nodes["curve"] = np.random.default_rng(0).uniform(-1, 1, len(nodes))
    nodes["ratio"] = nodes["curve"] ** 2 + 0.1 * nodes["rank"]
    shares = variance.variance_shares(
        nodes, factors=("rank", "domain", "position", "curve"), n=50
    ).set_index("factor")
    assert shares.loc["curve", "shapley"] > 0.8  # a straight line explains none of it
    assert shares["shapley"].iloc[:-1].sum() == pytest.approx(
        shares.loc["all factors", "shapley"]
    )


def test_shares_of_a_constant_are_refused():
    with pytest.raises(ValueError, match=r"factor \['depth'\] is constant"):
        variance.variance_shares(factorial().assign(depth=1), factors=("rank", "depth"))


def test_the_papers_own_shares_are_small():
    alone = variance.alone_in_paper()
    assert alone["domain"] == pytest.approx(0.0014, abs=1e-4)
    assert alone["depth"] == pytest.approx(0.00018, abs=1e-5)


# ---- sensitivity ---------------------------------------------------------------------------------


def test_compare_pairs_the_variants():
    base = pd.concat([levels("code", 12, 0.0, 8), levels("chat", 12, 0.0, 9)])
    found = sensitivity.compare_variants(
        {"base": base, "one more": base.assign(x=base["x"] + 1)}, MEAN, "base"
    ).set_index(["variant", "domain"])
    changes = ["change", "change_low", "change_high"]
    assert found.loc["base", changes].to_numpy() == pytest.approx(0)
    assert found.loc["one more", changes].to_numpy() == pytest.approx(1), (
        "the same resamples: no prompt's own level is left in the change"
    )
    reference = stats.by_domain(base, MEAN).set_index("domain")
    assert found.loc["base", ["estimate", "low", "high"]].to_numpy() == pytest.approx(
        reference[["estimate", "low", "high"]].to_numpy()
    )


def recorded(max_new_tokens, prompts=20, tree=(3, 2, 8)) -> SimpleNamespace:
    """Greedy runs of the toy pair; the texts of 8 new tokens are the beginnings of those of 16."""
    ids = [
        EncodedPrompt(
            f"p{i:02d}", "code" if i % 2 else "chat", (1 + i % 9, i // 9 + 1, 3), 0
        )
        for i in range(prompts)
    ]
    found = record_block(
        toy_pair(0.6), ids, static_tree(*tree), Sampling(), max_new_tokens, 0, 4096
    )
    frames = {"trace": [], "nodes": []}
    for prompt, one in zip(ids, found, strict=True):
        for name, parts in frames.items():
            columns = {
                column: list(values) for column, values in getattr(one, name).items()
            }
            parts.append(
                pd.DataFrame(columns).assign(
                    prompt_id=prompt.prompt_id, domain=prompt.domain
                )
            )
    return SimpleNamespace(
        **{name: pd.concat(parts, ignore_index=True) for name, parts in frames.items()}
    )


@pytest.fixture(scope="module")
def short():
    return recorded(8)


@pytest.fixture(scope="module")
def long():
    return recorded(16)


@pytest.mark.parametrize("name", ["trace", "nodes"])
def test_a_cut_text_is_exactly_the_run_of_fewer_new_tokens(short, long, name):
    cut = sensitivity.cut_texts(getattr(long, name), [8])["8 tokens"].reset_index(
        drop=True
    )
    columns = [c for c in cut if cut[c].dtype != object]
    pd.testing.assert_frame_equal(
        cut[columns], getattr(short, name)[columns], atol=1e-6
    )
    assert len(cut) < len(getattr(long, name)), (
        "some texts do go on, else this shows nothing"
    )


def test_text_ends_by_hand():
    """Ranks 0 0 0 0, chain of 2, limit 4: a block of 3 tokens, one of 1, which the end cut."""
    trace = pd.DataFrame(
        {"prompt_id": "p", "domain": "code", "position": range(4), "draft_rank": 0}
    )
    found = {
        name: rows.iloc[0] for name, rows in sensitivity.text_ends(trace, 2, 4).items()
    }
    assert {name: (row["emitted"], row["blocks"]) for name, row in found.items()} == {
        "counted": (4, 2),
        "left out": (3, 1),
        "extended, least": (5, 2),
        "extended, most": (6, 2),
    }
    ended = sensitivity.text_ends(
        trace, 2, 64
    )  # the same text, ended by its EOS: nothing is there to extend
    assert all(
        (ended[name]["emitted"] == 4).all()
        for name in ("counted", "extended, least", "extended, most")
    )


def test_an_extended_block_is_the_block_of_the_longer_text(short, long):
    """Starts of the short texts lie in the long ones too: there the cut block goes on."""
    tree = static_tree(3, 2, 8)
    blocks = replay.replay(short.trace, tree)
    cut = blocks[blocks["truncated"] & (blocks["start"] + blocks["remaining"] == 8)]
    later = replay.replay(long.trace, tree, "every").set_index(["prompt_id", "start"])
    later = later[~later["truncated"]]
    sums = {
        name: rows.set_index("prompt_id")
        for name, rows in sensitivity.text_ends(
            short.trace, tree, 8, short.nodes
        ).items()
    }
    seen = 0
    for prompt, start in cut[["prompt_id", "start"]].itertuples(index=False):
        if (prompt, start) in later.index:
            more = (
                later.loc[(prompt, start), "emitted"]
                - blocks.set_index(["prompt_id", "start"]).loc[
                    (prompt, start), "emitted"
                ]
            )
            assert (
                sums["extended"].loc[prompt, "emitted"]
                - sums["counted"].loc[prompt, "emitted"]
                == more
            )
            seen += more > 1
    assert seen, "an extension beyond the bonus token occurs, else this shows nothing"
    for low, high in (
        ("counted", "extended, least"),
        ("extended, least", "extended"),
        ("extended", "extended, most"),
    ):
        assert (sums[low]["emitted"] <= sums[high]["emitted"]).all()


def test_thirds_by_hand():
    frame = texts("code", range(15))
    thirds = sensitivity.by_length(frame, {f"code-{i:03d}": 100 - i for i in range(15)})
    assert [sorted(rows["x"]) for rows in thirds.values()] == [
        [10, 11, 12, 13, 14],
        [5, 6, 7, 8, 9],
        [0, 1, 2, 3, 4],
    ]


def test_sensitivity_of_a_run(long):
    twice = {}
    for name, frame in vars(long).items():
        again = frame.assign(prompt_id="q" + frame["prompt_id"])
        twice[name] = pd.concat([frame, again], ignore_index=True)
    run = SimpleNamespace(**twice)
    lengths = {p: i % 7 for i, p in enumerate(run.trace["prompt_id"].unique())}
    tree = static_tree(3, 2, 8)
    found = sensitivity.sensitivity(run, lengths, tree, 16, limits=(4, 8))
    assert set(found["setting"]) == {"new tokens", "prompt length", "last block"}
    found = found[found["domain"] == "pooled"].set_index(["variant", "estimator"])
    at = found["estimate"]
    published = score.published_alpha(run.nodes)
    assert at["all tokens", "published_alpha"] == pytest.approx(published)
    chain = replay.replay(run.trace[run.trace["position"] < 8], 4)
    emitted = at["8 tokens", "block_efficiency, chain of 4, visited"]
    assert emitted == pytest.approx(chain["emitted"].sum() / len(chain))


def test_settings_that_cannot_be_asked_are_refused():
    with pytest.raises(ValueError, match=r"limits=\[0\]"):
        sensitivity.cut_texts(make_run().trace, [0])


# ---- loops ---------------------------------------------------------------------------------------


def with_tokens(run, period):
    """The run with a text that goes round after `period` tokens."""
    return SimpleNamespace(
        trace=run.trace.assign(token=run.trace["position"] % period), nodes=run.nodes
    )


def test_outside_loops_are_the_positions_before_the_text_goes_round():
    run = make_run(prompts=6, positions=8)
    run = with_tokens(run, period=2)  # from position 5 on it repeats
    asked = loop_free.main_estimators(run, run)
    found = loop_free.three_estimates(asked)
    early = [frame[frame["position"] < 5] for frame in (run.trace, run.nodes)]
    expected = dict(zip(("hit[1]", "block_efficiency"), early, strict=True))
    for name, frame in expected.items():
        code = found[name].at(domain="code", text=loops.OUTSIDE).value
        own = asked[name][loops.OUTSIDE][1](frame[frame["domain"] == "code"])
        assert code == pytest.approx(own)
    whole = found["hit[1]"].at(domain="code", text=loops.WHOLE).value
    assert whole == found["hit[1]"].at(domain="code", text=loops.SAMPLED).value
    assert "alpha" not in asked, "of no decoder on greedy text"


def test_domains_of_few_prompts_cannot_be_told():
    run = with_tokens(make_run(prompts=6), period=100)
    few = [
        frame[(frame["domain"] != "math") | (frame["prompt_id"] == "math-0")]
        for frame in (run.trace, run.nodes)
    ]
    run = SimpleNamespace(trace=few[0], nodes=few[1])
    hit = {"hit[1]": loop_free.main_estimators(run, run)["hit[1]"]}
    found = loop_free.pairs_told_apart(hit, 0.05).set_index("pair")["verdict"]
    of_math = found[found.index.str.contains("math")]
    assert (of_math == loop_free.UNTOLD).all() and (found != loop_free.UNTOLD).any()
    assert len(found) == 3 * 6
