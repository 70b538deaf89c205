"""The audit's own estimators against hand-computed numbers and literal procedures."""

import numpy as np
import pandas as pd
import pytest
from made_pair import made_run
from test_score import hand_nodes

from speclab import replay, score
from speclab.analysis import power, rungs
from speclab.studies.paper_audit import estimators


def small() -> pd.DataFrame:
    """Two domains, two prompts each of two rows: code 1, 3 | 5, 7; chat 0, 0 | 2, 2; positions 0
    and 40.
    """
    names = np.repeat(["a", "b", "c", "d"], 2)
    return pd.DataFrame(
        {
            "prompt_id": names,
            "domain": ["code"] * 4 + ["chat"] * 4,
            "position": [0, 40] * 4,
            "y": [1.0, 3, 5, 7, 0, 0, 2, 2],
            "half": [0, 1] * 4,
        }
    )


def text(*ranks, prompt="p", domain="code") -> pd.DataFrame:
    """A trace of one text, from the draft's rank of each token."""
    at = pd.DataFrame({"draft_rank": ranks}).assign(prompt_id=prompt, domain=domain)
    return at.assign(position=range(len(ranks)))


# ---- differences ---------------------------------------------------------------------------------


def test_change_gap_and_late_minus_early_by_hand():
    nodes = hand_nodes()
    assert rungs.change(score.ratio_by_depth)(nodes) == pytest.approx(0.5 - 0.75)
    assert rungs.change(score.best_path_ratio_by_depth)(nodes) == pytest.approx(
        1.0 - 0.5
    )
    assert estimators.gap("y", "code", "chat")(small()) == pytest.approx(4 - 1)
    assert estimators.gap("y", "chat", "code")(small()) == pytest.approx(1 - 4)
    assert estimators.late_minus_early("y")(small()) == pytest.approx(3 - 2)
    assert np.isnan(estimators.late_minus_early("y", 41)(small())), "no late row"


def test_both_bins_keeps_the_prompts_that_get_that_far():
    frame = small().assign(position=[0, 40, 0, 31, 0, 31, 0, 32])
    assert estimators.both_bins(frame)["prompt_id"].tolist() == ["a", "a", "d", "d"]
    with pytest.raises(ValueError, match="positions from 41 on"):
        estimators.both_bins(frame, 41)


# ---- variance ------------------------------------------------------------------------------------


def test_shares_by_hand_and_their_gap():
    factors = ["domain", "half", "prompt_id"]
    cells = estimators.sums_in_cells(small(), "y", factors)
    shares = estimators.shares_alone(cells, factors)(cells)
    # sum of squares 92, mean 2.5: total 42; domains 4 (1.5)^2 2 = 18; halves 8 (0.5)^2 = 2; prompts
    # 2 (0.25 + 12.25 + 6.25 + 0.25) = 38
    np.testing.assert_allclose(shares, [18 / 42, 2 / 42, 38 / 42])
    between = estimators.share_gap(cells, "domain", "half")
    assert between(cells) == pytest.approx(16 / 42)


def test_shares_are_the_variance_of_group_means():
    rng = np.random.default_rng(0)
    groups = {"f": rng.integers(0, 5, 200), "g": rng.choice(["u", "v"], 200)}
    prompts = {"prompt_id": rng.integers(0, 9, 200), "domain": "code"}
    frame = pd.DataFrame({"y": rng.random(200)} | groups | prompts)
    slow = [
        frame.groupby(name)["y"].transform("mean").var() / frame["y"].var()
        for name in groups
    ]
    cells = estimators.sums_in_cells(frame, "y", groups)
    assert len(cells) < len(frame) == cells["count"].sum()
    found = estimators.shares_alone(cells, groups)(cells)
    np.testing.assert_allclose(found, slow)


def test_a_level_that_a_resample_lacks_counts_nothing():
    cells = estimators.sums_in_cells(small(), "y", ["domain"])
    estimator = estimators.shares_alone(cells, ["domain"])
    one = cells[cells["domain"] == "code"]
    assert estimator(one).iloc[0] == pytest.approx(0.0)


def test_design_effect_is_1_for_single_rows_and_their_number_for_equal_rows():
    values = np.random.default_rng(1).random(30)
    single = pd.DataFrame({"prompt_id": np.arange(30), "domain": "code", "y": values})
    effect = estimators.named_design_effect("y")
    for times in (1, 7):
        repeated = single.loc[np.repeat(np.arange(30), times)]
        sums = power.by_prompt(repeated, "y")
        assert effect(sums) == pytest.approx(times)


def test_design_effect_by_hand():
    effect = estimators.named_design_effect("y")
    frame = small()[small()["domain"] == "code"]
    # mean 4: prompts' sums of deviations -4, 4; squares 9 + 1 + 1 + 9
    assert effect(power.by_prompt(frame, "y")) == pytest.approx(32 / 20)


# ---- lengths -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["greedy", "point-mass"])
def test_length_ratio_is_the_ratio_of_its_two_parts(rule):
    found = estimators.length_ratio(rule)
    accepted = score.tree_estimators(rule)["mean_accepted"]
    for nodes in (hand_nodes(), made_run(prompts=1, length=9).nodes):
        expected = score.published_length(nodes) / accepted(nodes)
        assert found(nodes) == pytest.approx(expected)


# ---- by depth ------------------------------------------------------------------------------------


def test_tested_tokens_by_hand():
    """Blocks from 0 (one kept, the next rejected), 2 (the first rejected, so that the second is not
    tested), 3 (both kept) and 6 (the text's last token).
    """
    found = estimators.tested(replay.replay(text(0, 1, 1, 0, 0, 0, 0), 2))
    assert found.query("depth == 1")["kept"].tolist() == [1, 0, 1, 1]
    assert found.query("depth == 2")["kept"].tolist() == [0, 1]


def test_a_second_token_is_one_after_a_kept_one_of_the_same_text():
    parts = [text(0, 1, 0, 0, 0), text(0, 0, prompt="a"), text(0, prompt="z")]
    both = pd.concat(parts, ignore_index=True)
    found = estimators.second_tokens(both.sample(frac=1, random_state=0))
    at = found.set_index("prompt_id")
    assert at.loc["p", "position"].tolist() == [0, 2, 3]
    assert at.loc["p", "hit"].tolist() == [0, 1, 1]
    assert at.loc[["a"], "hit"].tolist() == [1]
    assert "z" not in at.index


def test_blocks_that_the_texts_end_cuts_do_not_count_as_short():
    """Without room for the last block (from 3, all kept) depth 2 would seem worse."""
    sums, change = estimators.by_depth_change(replay.replay(text(0, 0, 0, 0), 2))
    assert change(sums) == pytest.approx(0.0)


# ---- context commitment --------------------------------------------------------------------------


def test_a_token_drafted_deeper_is_the_one_that_would_come_first_there():
    run = made_run(prompts=2, length=20)
    found = estimators.deeper_less_first(run.nodes, run.trace, "greedy")
    assert (found["more"] == 0).all()
    hit = (run.trace["draft_rank"] == 0).to_numpy().reshape(-1, 20)
    kept = {2: hit[:, :-1].sum(), 3: (hit[:, :-2] & hit[:, 1:-1]).sum()}
    assert found["depth"].value_counts().to_dict() == kept
    drawn = made_run(seed=1, sampled=True, prompts=2, length=20)
    found = estimators.deeper_less_first(drawn.nodes, drawn.trace, "point-mass")
    assert (found["more"] == 0).all() and len(found) > 10


def test_a_deeper_node_that_is_another_token_is_seen():
    """The negative control: one node at depth 2, under an accepted one, is made another token."""
    run = made_run(prompts=2, length=20)
    nodes, hit = run.nodes, run.trace["draft_rank"] == 0
    deep = nodes["best_path"] & (nodes["depth"] == 2) & (nodes["position"] < 19)
    places = pd.MultiIndex.from_frame(run.trace[hit][["prompt_id", "position"]])
    of_node = pd.MultiIndex.from_frame(nodes[["prompt_id", "position"]])
    row = nodes.index[deep & of_node.isin(places)][0]
    was_kept = nodes.loc[row, "target_rank"] == 0
    nodes.loc[row, "target_rank"] = 1 if was_kept else 0
    found = estimators.deeper_less_first(nodes, run.trace, "greedy")
    wrong = found[found["more"] != 0]
    assert wrong["more"].tolist() == [-1.0 if was_kept else 1.0]
    assert wrong["depth"].tolist() == [2]


def test_a_node_under_a_rejected_one_is_not_tested():
    """It may be any token: no decoder gets there."""
    run = made_run(prompts=2, length=20)
    nodes, missed = run.nodes, run.trace[run.trace["draft_rank"] != 0]
    places = pd.MultiIndex.from_frame(missed[["prompt_id", "position"]])
    under = pd.MultiIndex.from_frame(nodes[["prompt_id", "position"]]).isin(places)
    nodes.loc[under & (nodes["depth"] > 1), "target_rank"] = 9
    found = estimators.deeper_less_first(nodes, run.trace, "greedy")
    assert (found["more"] == 0).all()
