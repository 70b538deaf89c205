"""Power and sensitivity: hand cases, statsmodels and simulation as references, exact identities
against shorter and longer recordings.
"""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.power import NormalIndPower
from test_score import make_run
from toy import toy_pair

from speclab import replay, score, stats
from speclab.analysis import power
from speclab.analysis.power import Design
from speclab.prompts import EncodedPrompt
from speclab.record import record_block
from speclab.runs import Run, RunError
from speclab.sampling import Sampling
from speclab.tree import static_tree

MEAN = score.mean_of("x")


def texts(domain, values, rows=1) -> pd.DataFrame:
    """One prompt a value; each of its rows is that value."""
    ids = np.repeat([f"{domain}-{i:03d}" for i in range(len(values))], rows)
    return pd.DataFrame(
        {"prompt_id": ids, "domain": domain, "x": np.repeat(np.asarray(values, float), rows)}
    )


def levels(domain, prompts, mean, seed, rows=8) -> pd.DataFrame:
    """Prompts of different lengths and levels, rows with noise of their own: a ratio of sums that
    is no mean of prompt means.
    """
    rng = np.random.default_rng(seed)
    frame = texts(domain, rng.normal(mean, 1, prompts), rows)
    frame["x"] += rng.normal(0, 0.5, len(frame))
    return frame[np.arange(len(frame)) % rows < np.repeat(rng.integers(2, rows + 1, prompts), rows)]


TWO = pd.concat(
    [texts("code", [0, 1, 2, 3, 4]), texts("chat", [0, 0, 0, 0, 5])]
)  # sample variances 2.5 and 5


def test_influence_by_hand():
    """Sums 1, 2, 3, 4, 10 over 1, 1, 2, 2, 4 rows: the mean is 2, rows per prompt 2, influence (sum
    - 2 rows) / 2.
    """
    frame = pd.concat(
        [
            texts("code", [s / n], n).assign(prompt_id=f"p{s:02d}")
            for s, n in ((1, 1), (2, 1), (3, 2), (4, 2), (10, 4))
        ]
    )
    found = power.influence(frame, MEAN)
    assert found["influence"].to_numpy() == pytest.approx([-0.5, 0, -0.5, 0, 1], abs=1e-6)
    assert list(found["prompt_id"]) == ["p01", "p02", "p03", "p04", "p10"]


def test_influence_gives_the_standard_error_that_the_bootstrap_finds():
    run = make_run(prompts=30)
    for estimator in (
        score.published_alpha,
        score.published_length,
        score.tree_estimators()["block_efficiency"],
    ):
        found = power.influence(run.nodes, estimator).groupby("domain")[
            "influence"
        ].std() / np.sqrt(30)
        rows = stats.by_domain(run.nodes, estimator).set_index("domain").loc[found.index]
        assert ((rows["high"] - rows["low"]) / (2 * 1.96)).to_numpy() == pytest.approx(
            found.to_numpy(), rel=0.15
        )


def test_closed_form_by_hand_and_by_statsmodels():
    design = power.between(TWO, MEAN, "code", "chat")
    assert (
        design.sd == pytest.approx(np.sqrt(7.5))
        and design.n_prompts == 5
        and design.low < design.sd
    )
    found = design.detectable(50)
    assert found.estimate == pytest.approx((1.959964 + 0.841621) * np.sqrt(7.5 / 50), rel=1e-6)
    assert found.high / found.estimate == pytest.approx(design.high / design.sd)
    reference = NormalIndPower().solve_power(None, nobs1=50, alpha=0.05 / 6, power=0.9) * np.sqrt(
        7.5 / 2
    )
    assert design.detectable(50, 0.9, comparisons=6).estimate == pytest.approx(reference, rel=1e-5)
    assert design.power(1.0, 30) == pytest.approx(
        NormalIndPower().power(1 / np.sqrt(7.5 / 2), 30, 0.05), rel=1e-9
    )
    assert design.prompts_needed(1.0) == 59  # (1.959964 + 0.841621)^2 * 7.5 = 58.87
    assert design.power(0.0, 30) == pytest.approx(0.05), (
        "without a difference, the rate of false alarms"
    )


@given(
    st.floats(0.01, 10), st.floats(0.05, 5), st.sampled_from([0.5, 0.8, 0.95]), st.integers(1, 10)
)
def test_the_prompts_needed_are_enough_and_no_fewer_are(sd, difference, wanted, comparisons):
    design = Design(sd, sd, sd, 50)
    needed = design.prompts_needed(difference, wanted, comparisons=comparisons)
    assert design.power(difference, needed, comparisons=comparisons) >= wanted - 1e-9
    if needed > 5:
        assert (
            design.power(difference, needed - 1, comparisons=comparisons) < wanted + 1e-3
        )  # a wrong-sided finding counts too
    assert design.detectable(needed, wanted, comparisons=comparisons).estimate <= difference * (
        1 + 1e-9
    )


def test_pairs_show_what_independent_prompts_cannot():
    first = levels("code", 40, 0.0, 1)
    second = first.assign(
        x=first["x"]
        + 0.1
        + np.repeat(np.random.default_rng(2).normal(0, 0.05, 40), first.groupby("prompt_id").size())
    )
    pairs, apart = (
        power.paired(first, second, MEAN),
        power.between(
            pd.concat([first, second.assign(domain="chat", prompt_id="x" + second["prompt_id"])]),
            MEAN,
            "code",
            "chat",
        ),
    )
    assert pairs.sd < 0.1 < apart.sd
    assert pairs.prompts_needed(0.1) <= 6 < 500 < apart.prompts_needed(0.1)


def test_paired_spread_by_hand():
    first, second = (
        texts("code", [1, 2, 3, 4, 5]),
        texts("code", [1, 2, 3, 4, 0]),
    )  # differences 0, 0, 0, 0, 5: variance 5
    assert power.paired(first, second, MEAN).sd == pytest.approx(np.sqrt(5))


@pytest.mark.parametrize(("mean", "prompts"), [(0.6, 12), (0.6, 40)])
def test_the_closed_form_agrees_with_the_tests_themselves(mean, prompts):
    first, second = levels("code", 60, mean, 3), levels("chat", 60, 0.0, 4)
    frame = pd.concat([first, second])
    design, values = (
        power.between(frame, MEAN, "code", "chat"),
        score.point_estimates(frame, MEAN).iloc[0],
    )
    expected = design.power(values["code"] - values["chat"], prompts)
    found = power.simulated(first, second, MEAN, prompts, repeats=100, n=199)
    assert found.by_test == pytest.approx(
        expected, abs=0.12
    ) and found.by_interval == pytest.approx(expected, abs=0.14)
    rows = Design(
        float(np.sqrt(2 * frame["x"].var() / 8)), 0, 0, 60
    )  # negative control: rows taken for prompts
    assert (
        abs(
            rows.power(values["code"] - values["chat"], 12)
            - design.power(values["code"] - values["chat"], 12)
        )
        > 0.3
    )


def test_the_paired_closed_form_agrees_too():
    first = levels("code", 40, 0.0, 5)
    shift = np.repeat(
        np.random.default_rng(6).normal(0.15, 0.4, 40), first.groupby("prompt_id").size()
    )
    second = first.assign(x=first["x"] - shift)
    difference = MEAN(first) - MEAN(second)
    found = power.simulated(first, second, MEAN, 30, paired=True, repeats=100, n=199)
    assert found.by_test == pytest.approx(
        power.paired(first, second, MEAN).power(difference, 30), abs=0.12
    )


@pytest.mark.parametrize("paired", [False, True])
def test_false_alarms_are_as_rare_as_promised(paired):
    first, second = levels("code", 60, 2.0, 7), levels("code" if paired else "chat", 60, 0.0, 7)
    found = power.simulated(first, second, MEAN, 30, paired, null=True, repeats=120, n=199)
    assert found.by_test <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 120) and found.repeats == 120
    assert power.simulated(first, second, MEAN, 30, paired, repeats=20, n=99).by_test == 1.0, (
        "and a large difference is always found"
    )


def test_plan_lists_every_pair_and_takes_published_values():
    frame = pd.concat([TWO, texts("math", [1, 2, 3, 4, 5])])
    own = power.plan(frame, MEAN)
    assert [tuple(pair) for pair in own[["first", "second"]].to_numpy()] == [
        ("code", "math"),
        ("code", "chat"),
        ("math", "chat"),
    ]
    assert own["difference"].tolist() == pytest.approx([-1, 1, 2])
    design = power.between(frame, MEAN, "code", "chat")
    assert own["detectable"][1] == pytest.approx(design.detectable(50, comparisons=3).estimate), (
        "Holm's first step: level / 3"
    )
    assert (
        own["needed"][1] == design.prompts_needed(1, comparisons=3)
        and own["needed_low"][1] < own["needed"][1] < own["needed_high"][1]
    )
    for values in ({"code": 0.5, "chat": 0.5}, pd.Series({"code": 0.5, "chat": 0.5})):
        published = power.plan(frame, MEAN, values)
        assert len(published) == 1 and published["needed"].isna().all(), (
            "no number of prompts shows a difference of 0"
        )


def test_curve_rises_with_prompts_and_difference():
    frame = power.curve(Design(1.0, 1.0, 1.0, 50), [0.1, 0.2, 0.4], [10, 50, 200])
    table = frame.pivot(index="prompts", columns="difference", values="power")
    assert (
        table.shape == (3, 3)
        and (table.diff().dropna() > 0).all().all()
        and (table.diff(axis=1).iloc[:, 1:] > 0).all().all()
    )
    assert table.loc[50, 0.4] == pytest.approx(Design(1.0, 1.0, 1.0, 50).power(0.4, 50))


def test_compare_pairs_the_variants():
    base = pd.concat([levels("code", 12, 0.0, 8), levels("chat", 12, 0.0, 9)])
    found = power.compare(
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
    part = base[base["prompt_id"].str[-1] < "6"]
    alone = power.compare({"base": base, "part": part}, MEAN, "base").set_index(
        ["variant", "domain"]
    )
    assert alone.loc[("part", "code"), "estimate"] == pytest.approx(
        MEAN(part[part["domain"] == "code"])
    )


def recorded(max_new_tokens, prompts=20, tree=(3, 2, 8)) -> SimpleNamespace:
    """Greedy runs of the toy pair; the texts of 8 new tokens are the beginnings of those of 16."""
    ids = [
        EncodedPrompt(f"p{i:02d}", "code" if i % 2 else "chat", (1 + i % 9, i // 9 + 1, 3), 0)
        for i in range(prompts)
    ]
    found = record_block(
        toy_pair(0.6), ids, static_tree(*tree), Sampling(), max_new_tokens, 0, 4096
    )
    frames = {"trace": [], "nodes": []}
    for prompt, one in zip(ids, found, strict=True):
        for name, parts in frames.items():
            columns = {column: list(values) for column, values in getattr(one, name).items()}
            parts.append(
                pd.DataFrame(columns).assign(prompt_id=prompt.prompt_id, domain=prompt.domain)
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
    cut = power.cut_texts(getattr(long, name), [8])["8 tokens"].reset_index(drop=True)
    columns = [c for c in cut if cut[c].dtype != object]
    pd.testing.assert_frame_equal(cut[columns], getattr(short, name)[columns], atol=1e-6)
    assert len(cut) < len(getattr(long, name)), "some texts do go on, else this shows nothing"


def test_text_ends_by_hand():
    """Ranks 0 0 0 0, chain of 2, limit 4: blocks of 3 tokens and of the last 1, which the end cut."""
    trace = pd.DataFrame(
        {"prompt_id": "p", "domain": "code", "position": range(4), "draft_rank": 0}
    )
    found = {name: rows.iloc[0] for name, rows in power.text_ends(trace, 2, 4).items()}
    assert {name: (row["emitted"], row["blocks"]) for name, row in found.items()} == {
        "counted": (4, 2),
        "left out": (3, 1),
        "extended, least": (5, 2),
        "extended, most": (6, 2),
    }
    ended = power.text_ends(
        trace, 2, 64
    )  # the same text, ended by its EOS: nothing is there to extend
    assert all(
        (ended[name]["emitted"] == 4).all()
        for name in ("counted", "extended, least", "extended, most")
    )


def test_an_extended_block_is_the_block_of_the_longer_text(short, long):
    """Starts of the short texts lie in the long ones too: there the block that the end cut goes on."""
    tree = static_tree(3, 2, 8)
    blocks = replay.replay(short.trace, tree)
    cut = blocks[blocks["truncated"] & (blocks["start"] + blocks["remaining"] == 8)]
    later = replay.replay(long.trace, tree, "every").set_index(["prompt_id", "start"])
    later = later[~later["truncated"]]
    sums = {
        name: rows.set_index("prompt_id")
        for name, rows in power.text_ends(short.trace, tree, 8, short.nodes).items()
    }
    seen = 0
    for prompt, start in cut[["prompt_id", "start"]].itertuples(index=False):
        if (prompt, start) in later.index:
            more = (
                later.loc[(prompt, start), "emitted"]
                - blocks.set_index(["prompt_id", "start"]).loc[(prompt, start), "emitted"]
            )
            assert (
                sums["extended"].loc[prompt, "emitted"] - sums["counted"].loc[prompt, "emitted"]
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
    thirds = power.by_length(frame, {f"code-{i:03d}": 100 - i for i in range(15)})
    assert [sorted(rows["x"]) for rows in thirds.values()] == [
        [10, 11, 12, 13, 14],
        [5, 6, 7, 8, 9],
        [0, 1, 2, 3, 4],
    ]


def test_sensitivity_of_a_run(long):
    run = SimpleNamespace(
        **{
            name: pd.concat(
                [
                    getattr(long, name),
                    getattr(long, name).assign(prompt_id="q" + getattr(long, name)["prompt_id"]),
                ],
                ignore_index=True,
            )
            for name in ("trace", "nodes")
        }
    )
    lengths = {prompt: number % 7 for number, prompt in enumerate(run.trace["prompt_id"].unique())}
    found = power.sensitivity(run, lengths, static_tree(3, 2, 8), 16, limits=(4, 8))
    assert (
        set(found["setting"]) == {"new tokens", "prompt length", "last block"}
        and found["estimator"].nunique() == 6
    )
    whole = found[(found["variant"] == "all tokens") & (found["domain"] == "pooled")].set_index(
        "estimator"
    )["estimate"]
    assert whole["published_alpha"] == pytest.approx(score.published_alpha(run.nodes))
    assert whole["hit[1]"] == pytest.approx((run.trace["draft_rank"] == 0).mean())
    assert set(power.sensitivity(run, None, static_tree(3, 2, 8), 16, limits=[1])["setting"]) == {
        "new tokens",
        "last block",
    }
    chain = replay.replay(run.trace[run.trace["position"] < 8], 4)
    eight = found[(found["variant"] == "8 tokens") & (found["domain"] == "pooled")].set_index(
        "estimator"
    )["estimate"]
    assert eight["block_efficiency, chain of 4, visited"] == pytest.approx(
        chain["emitted"].sum() / len(chain)
    )


FLAT = texts("code", [1, 1, 1, 1, 1])


@pytest.mark.parametrize(("call", "words"), [
    (lambda: power.between(TWO, MEAN, "code", "math"), r"domain \['math'\] has no rows; the frame has \['chat', 'code'\]"),
    (lambda: power.between(pd.concat([TWO, texts("math", [1, 2, 3])]), MEAN, "code", "math"), "'math' has 3 prompts; .* record 2 more"),
    (lambda: power.paired(FLAT, FLAT.assign(x=2.0), MEAN), "same in every prompt"),
    (lambda: power.paired(FLAT, texts("code", range(6)), MEAN), "1 prompts are in one frame only, such as 'code-005'"),
    (lambda: power.between(TWO, score.hit, "code", "chat"), "no column"),
    (lambda: power.influence(make_run().trace, score.hit), "hit is a family.*pick"),
    (lambda: power.plan(FLAT, MEAN), "a difference needs two"),
    (lambda: power.plan(TWO, MEAN, {"code": 1.0, "math": 2.0}), r"domain \['math'\] has no rows"),
    (lambda: Design(1, 1, 1, 9).detectable(4), "prompts=4: an interval needs at least 5"),
    (lambda: Design(1, 1, 1, 9).detectable(50, power=0.01), "0 < level < power < 1"),
    (lambda: Design(1, 1, 1, 9).power(1, 50, comparisons=0), "comparisons=0"),
    (lambda: Design(1, 1, 1, 9).prompts_needed(0), "difference=0: no number of prompts"),
    (lambda: power.simulated(FLAT, FLAT, MEAN, 3), "prompts=3"),
    (lambda: power.compare({"a": TWO}, MEAN, "b"), "base='b': the variants are a"),
    (lambda: power.cut_texts(make_run().trace, [0]), r"limits=\[0\]"),
    (lambda: power.by_length(texts("code", range(9)), {f"code-{i:03d}": i for i in range(9)}), "9 prompts; thirds need 15: record 6 more"),
    (lambda: power.by_length(texts("code", range(15)), {f"code-{i:03d}": 7 for i in range(15)}), "'code' are all of one length .constant"),
    (lambda: power.by_length(FLAT, {}), "lengths has no prompt 'code-000'"),
    (lambda: power.sensitivity(SimpleNamespace(nodes=None, trace=None), {}, 2, 8), "this run has no nodes frame"),
])  # fmt: skip
def test_bad_input_says_what_to_do(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_run_folder_without_nodes_says_so(tmp_path):
    with pytest.raises(RunError, match=r"no nodes.parquet; record this run again"):
        power.sensitivity(Run(tmp_path, {}), {}, 2, 8)


def test_an_estimator_that_is_undefined_in_a_domain_is_named():
    nodes = make_run().nodes
    nodes["best_path"] = nodes["best_path"] & (nodes["domain"] != "math")
    with pytest.raises(ValueError, match=r"best_path_alpha is undefined in \['math'\]"):
        power.influence(nodes, score.best_path_alpha)
