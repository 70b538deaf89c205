"""Causes of rejections: labels against counted answers, shares that sum to 1, counterfactual
replays against blocks counted by hand.
"""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_replay import rates

from speclab import replay
from speclab.studies import rejection_causes as causes
from speclab.tree import static_tree

RANKS = [
    0,
    1,
    0,
    0,
    2,
    0,
    0,
    0,
    0,
    3,
]  # chain of 4: [0, 1*], [2, 3, 4*], [5 6 7 8, bonus 9]: 3 blocks, rejections met at 1 and 4


def trace_of(texts, domains=("chat",), copies=5, **columns) -> pd.DataFrame:
    """A trace with `copies` prompts of each (domain, text), all alike; a text is a list of draft
    ranks; other columns are lists too.
    """
    rows = []
    for domain in domains:
        for number, ranks in enumerate(texts):
            part = pd.DataFrame(
                {"domain": domain, "position": range(len(ranks)), "draft_rank": ranks}
                | columns
            )
            rows += [
                part.assign(prompt_id=f"{domain}-{number}-{i}") for i in range(copies)
            ]
    frame = pd.concat(rows, ignore_index=True)
    free = {
        "token": 0,
        "draft_top": 1,
        "p_token": 0.6,
        "q_token": 0.2,
        "target_entropy": 1.0,
        "draft_entropy": 1.0,
    }
    frame = frame.assign(
        **{name: value for name, value in free.items() if name not in frame}
    )
    frame["target_top"] = frame["token"]
    sure = frame.pop("sure") if "sure" in frame else pd.Series(0.4, frame.index)
    return frame.assign(
        top_draft_q=[np.array([q, 0.1]) for q in sure],
        top_draft_p=[np.array([0.3, 0.1])] * len(frame),
    )


def labelled(trace, strings=("a", "b"), prompt=(0,), **options) -> pd.DataFrame:
    return causes.label(
        trace, strings, dict.fromkeys(trace["prompt_id"], prompt), **options
    )


def pooled(found, quantity, domain="pooled") -> pd.Series:
    return found[
        (found["domain"] == domain) & (found["quantity"] == quantity)
    ].set_index("cause")["estimate"]


def random_trace(seed=0, prompts=12, longest=40) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    parts = []
    for i in range(prompts):
        size = int(rng.integers(5, longest))
        part = trace_of(
            [rng.geometric(0.6, size) - 1],
            copies=1,
            token=rng.integers(0, 6, size),
            p_token=rng.random(size),
            sure=rng.random(size),
        )
        parts.append(
            part.assign(prompt_id=f"p{i:02d}", domain="code" if i % 2 else "chat")
        )
    return pd.concat(parts, ignore_index=True)


WORDS = ("7", " =", "for", " the", "ly", "\n")


@pytest.fixture(scope="module")
def frame():
    return labelled(random_trace(), WORDS, prompt=(1, 2, 3))


# ---- what is refused -----------------------------------------------------------------------------


def run_of(trace, temperature=0.0):
    return SimpleNamespace(
        trace=trace, manifest={"profile": {"temperature": temperature}}
    )


def test_only_greedy_runs_are_taken_and_rows_are_put_in_order():
    trace = trace_of([RANKS])
    assert causes.greedy_trace(run_of(trace.sample(frac=1, random_state=0))).equals(
        causes.greedy_trace(run_of(trace))
    )
    with pytest.raises(
        ValueError, match=r"temperature=1: .* at T = 0 only; use runs.load_or_record"
    ):
        causes.greedy_trace(run_of(trace, 1.0))


# ---- labels --------------------------------------------------------------------------------------


def texts_to_labels(text, domain="chat"):
    strings = sorted(set(text))
    trace = trace_of(
        [[0] * len(text)], (domain,), 1, token=[strings.index(piece) for piece in text]
    )
    found = labelled(trace, strings)
    return list(found["kind"]), list(found["begins"])


def test_kinds_and_beginnings_of_prose():
    text = [
        "The",
        " cat",
        " met",
        " Ann",
        "a",
        ".",
        " Then",
        " I",
        " saw",
        " I",
        " Bob",
        ",",
        " Al",
        " said",
        '."',
        " \n",
        "He",
        " 3",
        ".",
        "5",
        "</s>",
    ]
    kind, begins = texts_to_labels(text)
    word, name = "word start", "name"
    assert kind == [
        word,
        word,
        word,
        name,
        "word inside",
        "punctuation",
        word,
        word,
        word,
        word,
        name,
        "punctuation",
        name,
        word,
        "punctuation",
        "white space",
        word,
        "number",
        "punctuation",
        "number",
        "end of text",
    ]
    assert [i for i, label in enumerate(begins) if label != "nothing"] == [0, 6, 16, 19]
    assert begins[0] == "text" and begins[6] == "sentence" and begins[16] == "line"


def test_kinds_and_beginnings_of_code():
    kind, begins = texts_to_labels(
        ["\n", "    ", "return", " Total", ".", " x", "\n", "x", " =", " 1"], "code"
    )
    assert kind == [
        "white space",
        "white space",
        "keyword",
        "identifier",
        "punctuation",
        "identifier",
        "white space",
        "identifier",
        "operator",
        "number",
    ], "no names in code"
    assert begins == [
        "text",
        "nothing",
        "line",
        "nothing",
        "nothing",
        "nothing",
        "nothing",
        "line",
        "nothing",
        "nothing",
    ]


def test_a_text_does_not_go_on_from_the_one_before():
    strings = ["Yes", ".", " So", "\n"]
    first, second = (
        trace_of([[0] * 2], copies=1, token=[0, 3]),
        trace_of([[0] * 2], copies=1, token=[2, 2]).assign(prompt_id="z"),
    )
    assert list(
        labelled(pd.concat([first, second], ignore_index=True), strings)["begins"]
    ) == [
        "text",
        "nothing",
        "text",
        "nothing",
    ]


def test_states_ranks_places_and_distances_by_hand():
    trace = trace_of(
        [[0, 1, 0, 2, 3, 4, 0, 8, 9, 64, 65]],
        copies=1,
        p_token=[0.5, 0.49, 0.9, 0.1] + [0.6] * 7,
        sure=[0.5, 0.9, 0.1, 0.49] + [0.4] * 7,
    )
    found = labelled(trace, prompt=[0] * 60)
    assert list(found["state"][:5]) == [
        "both sure",
        "only draft sure",
        "only target sure",
        "both unsure",
        "only target sure",
    ]
    assert list(found["found"].dropna()) == [
        "rank 1",
        "rank 2",
        "ranks 3-4",
        "ranks 3-4",
        "ranks 5-8",
        "ranks 9-64",
        "ranks 9-64",
        "beyond 64",
    ]
    assert found["found"].isna().tolist() == (found["draft_rank"] == 0).tolist()
    assert list(found["distance"]) == [0, 0, 1, 2, 1, 1, 1, 2, 1, 1, 1]
    assert list(found["since"][:5]) == [
        "none yet",
        "none yet",
        "right after",
        "2-3",
        "right after",
    ]
    assert list(found["place"]) == ["0"] + ["1-3"] * 3 + ["4-15"] * 7
    assert list(found["context"]) == ["under 64"] * 4 + ["64-127"] * 7
    assert list(labelled(trace, sure=0.95)["state"].unique()) == ["both unsure"]


@given(
    st.lists(st.lists(st.booleans(), min_size=1, max_size=12), min_size=1, max_size=4)
)
def test_distance_is_what_a_slow_count_says(texts):
    frame = pd.DataFrame(
        [(str(i), float(hit)) for i, text in enumerate(texts) for hit in text],
        columns=["prompt_id", "rejected"],
    )
    slow = []
    for text in texts:
        for t in range(len(text)):
            back = [d for d in range(1, t + 1) if text[t - d]]
            slow.append(back[0] if back else 0)
    assert causes.distance(frame).tolist() == slow


def test_lookup_reads_the_prompt_and_only_the_past():
    trace = trace_of([[1, 1, 1, 1]], copies=2, token=[1, 0, 2, 3])
    found = causes.lookup(trace, {"chat-0-0": [0, 1, 0], "chat-0-1": [9]}, 1)
    assert found.tolist() == ["right", "right", "wrong", "no match"] + ["no match"] * 4


@pytest.mark.parametrize("seed", range(3))
def test_every_family_is_a_partition(seed):
    members = causes.flags(labelled(random_trace(seed), WORDS, prompt=(1, 2, 3)))
    rejected = random_trace(seed)["draft_rank"].to_numpy() > 0
    for family in causes.FAMILIES:
        count = members.filter(regex=f"^{family}: ").sum(axis=1).to_numpy()
        assert (count == (rejected if family == "found" else 1)).all(), family


# ---- how often -----------------------------------------------------------------------------------


def test_shares_by_hand():
    frame = labelled(trace_of([RANKS]))
    found = causes.shares(
        frame, pd.DataFrame({"first five": frame["position"] < 5, "none": False})
    )
    assert pooled(found, "share").tolist() == pytest.approx([2 / 3, 0])
    assert pooled(found, "positions").tolist() == pytest.approx([1 / 2, 0])
    assert pooled(found, "excess").tolist() == pytest.approx([2 / 3 - 1 / 2, 0])
    assert pooled(found, "rate")["first five"] == pytest.approx(2 / 5) and np.isnan(
        pooled(found, "rate")["none"]
    )
    assert (found["low"].dropna() == found["high"].dropna()).all(), (
        "prompts that are all alike leave no doubt"
    )


def test_shares_of_a_family_sum_to_one_and_rates_average_to_the_whole(frame):
    found = causes.shares(frame, causes.flags(frame))
    for domain in ("code", "chat", "pooled"):
        rows = frame if domain == "pooled" else frame[frame["domain"] == domain]
        share, positions, rate = (
            pooled(found, name, domain) for name in ("share", "positions", "rate")
        )
        for family in causes.FAMILIES:
            mine = share.index[share.index.str.startswith(f"{family}: ")]
            assert share[mine].sum() == pytest.approx(1)
            if family != "found":
                assert positions[mine].sum() == pytest.approx(1)
                assert (positions * rate.fillna(0))[mine].sum() == pytest.approx(
                    rows["rejected"].mean()
                )


def test_without_rejections_there_are_no_shares_and_no_gains():
    frame = labelled(trace_of([[0] * 10]))
    members = causes.flags(frame)
    assert not members.filter(like="found").to_numpy().any()
    found = causes.shares(frame, members)
    assert pooled(found, "share").isna().all() and set(
        pooled(found, "rate").dropna()
    ) == {0}
    assert (causes.gains(frame, members, 4, draws=2)["estimate"] == 0).all()


# ---- what it costs -------------------------------------------------------------------------------


def test_gains_by_hand():
    frame = labelled(trace_of([RANKS]))
    members = pd.DataFrame(
        {f"at {t}": frame["position"] == t for t in (0, 1, 4, 9)}
        | {"1 and 4": frame["position"].isin([1, 4])}
    )
    gain = pooled(causes.gains(frame, members, 4), "gain")
    # Right at 1: [0-3, bonus 4], [5-8, bonus 9]. Right at 4 alone: [0, 1*], [2-5, bonus 6], [7, 8,
    # 9*]: as many as before.
    assert gain.tolist() == pytest.approx([0, 10 / 2 - 10 / 3, 0, 0, 10 / 2 - 10 / 3])


def test_gains_do_not_add():
    frame = labelled(trace_of([[1, 1] * 5]))
    even = frame["position"] % 2 == 0
    gain = pooled(
        causes.gains(
            frame, pd.DataFrame({"even": even, "odd": ~even, "every": True}), 4
        ),
        "gain",
    )
    assert gain.tolist() == pytest.approx([1, 10 / 6 - 1, 4]), (
        "one token a pass; two; the first alone, then two; five"
    )


def test_nothing_repaired_is_the_replay_itself_and_everything_fills_every_block(frame):
    none, every = (
        causes.counterfactual(frame, np.full(len(frame), value))
        for value in (False, True)
    )
    assert replay.replay(none, 4).equals(replay.replay(frame, 4))
    assert every.drop(columns="draft_rank").equals(frame.drop(columns="draft_rank")), (
        "nothing else is touched"
    )
    blocks = replay.replay(every, 4)
    assert (blocks["emitted"] == np.minimum(5, blocks["remaining"])).all()
    texts = frame.groupby("prompt_id").size()
    gain = pooled(
        causes.gains(frame, pd.DataFrame({"every": np.full(len(frame), True)}), 4),
        "gain",
    )["every"]
    base = rates(replay.prompt_sums(replay.replay(frame, 4)))
    assert gain == pytest.approx(
        texts.sum() / np.ceil(texts / 5).sum()
        - base["emitted"].sum() / base["blocks"].sum()
    )


@pytest.mark.parametrize("shape", [1, 4, static_tree(3, 2, 8)])
def test_gains_are_the_difference_of_two_summaries(frame, shape):
    members = causes.flags(frame)[["kind: number", "state: both unsure"]]
    found = causes.gains(frame, members, shape)
    for cause in members:
        after, before = (
            rates(replay.prompt_sums(replay.replay(rows, shape))).set_index("domain")[
                "block_efficiency"
            ]
            for rows in (causes.counterfactual(frame, members[cause].to_numpy()), frame)
        )
        mine = found[found["cause"] == cause].set_index("domain")["estimate"]
        for domain in ("code", "chat"):
            assert mine[domain] == pytest.approx(after[domain] - before[domain])


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.booleans(), st.booleans()),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 6),
)
def test_repairing_more_never_costs_a_chain_a_block(rows, gamma):
    ranks, first, second = (np.array(column) for column in zip(*rows, strict=True))
    trace = trace_of([ranks], copies=1)
    blocks = [
        len(replay.replay(causes.counterfactual(trace, where), gamma))
        for where in (first & False, first, first | second)
    ]
    assert blocks[0] >= blocks[1] >= blocks[2]
    one = np.arange(len(ranks)) == np.argmax(ranks > 0)
    assert blocks[0] - len(replay.replay(causes.counterfactual(trace, one), gamma)) in (
        0,
        1,
    ), "one rejection costs a pass at most"


def test_a_class_of_accepted_positions_costs_nothing_and_all_rejections_are_no_random_pick(
    frame,
):
    rejected = frame["rejected"] > 0
    found = causes.gains(
        frame,
        pd.DataFrame(
            {
                "accepted": ~rejected,
                "rejected": rejected,
                "code": rejected & (frame["domain"] == "code"),
            }
        ),
        4,
        draws=3,
    )
    assert pooled(found, "gain")["accepted"] == pooled(found, "random")["accepted"] == 0
    assert pooled(found, "random")["rejected"] == pooled(found, "gain")["rejected"] > 0
    assert pooled(found, "surplus").abs().max() == 0, (
        "the pick is of the same domain, so all of a domain's rejections are no choice"
    )


def test_rejections_in_a_row_cost_more_than_as_many_at_random():
    burst = labelled(
        trace_of([[1] * 8 + [0, 0, 0, 0, 1] * 8])
    )  # the lone ones stand where the bonus token does, and cost nothing
    members = pd.DataFrame(
        {"in a row": burst["position"] < 8, "alone": burst["position"] >= 8}
    )
    found = causes.gains(burst, members, 4, draws=5)
    assert (
        pooled(found, "surplus")["in a row"] > 0.1
        and pooled(found, "surplus")["alone"] < -0.1
    )
    assert pooled(found, "gain")["alone"] == 0
    both = found.pivot(index=["cause", "domain"], columns="quantity", values="estimate")
    assert (both["gain"] - both["random"] - both["surplus"]).abs().max() < 1e-12


# ---- wider trees ---------------------------------------------------------------------------------


def test_comb_is_the_best_path_with_siblings():
    tree = causes.comb(2, 3)
    assert tree.parent.tolist() == [-1, 0, 0, 0, 1, 1, 1] and tree.rank.tolist() == [
        0,
        0,
        1,
        2,
        0,
        1,
        2,
    ]
    assert (
        causes.comb(1, 4).parent.tolist() == static_tree(1, 4).parent.tolist()
        and causes.comb(5, 1).is_chain
    )


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=30),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_siblings_save_one_rejection_a_block(ranks, gamma, width):
    blocks = replay.replay(
        trace_of([ranks], copies=1), causes.comb(gamma, width), "every"
    )
    for start, accepted in zip(blocks["start"], blocks["accepted"], strict=True):
        run = next(
            (i for i, rank in enumerate(ranks[start : start + gamma]) if rank),
            len(ranks[start : start + gamma]),
        )
        saved = run < gamma and start + run < len(ranks) and ranks[start + run] < width
        assert accepted == run + saved


def test_wider_trees_by_hand(frame):
    found = causes.wider(labelled(trace_of([[1] * 10])), 4, (1, 2)).frame
    rows = found[found["domain"] == "pooled"].set_index(["shape", "width"])["estimate"]
    assert rows.to_dict() == {
        ("siblings", 1): 0,
        ("siblings", 2): 1,
        ("full", 1): 0,
        ("full", 2): 4,
    }
    # A full tree really is what the shortened chain says it is.
    tree = replay.replay(frame, static_tree(3, 2))
    assert (
        tree["accepted"].tolist()
        == replay.replay(causes.counterfactual(frame, frame["draft_rank"] < 2), 3)[
            "accepted"
        ].tolist()
    )


# ---- burstiness ----------------------------------------------------------------------------------


def test_hazard_of_a_regular_text():
    found = causes.hazard(labelled(trace_of([[0, 0, 1] * 6])), 8).frame
    rows = found[found["domain"] == "pooled"].set_index("distance")
    assert rows["estimate"].to_dict() == {1: 0, 2: 0, 3: 1} and rows[
        "geometric"
    ].unique() == pytest.approx([5 / 15])
    assert rows.loc[1, "shuffled"] > 0.2, "a shuffled text is not regular"


def test_texts_that_differ_look_bursty_and_the_shuffle_knows_it():
    ranks = (
        np.random.default_rng(0).random((20, 200)) < np.repeat([0.7, 0.1], 10)[:, None]
    )  # independent within each text
    found = causes.hazard(
        labelled(trace_of(ranks.astype(int).tolist(), copies=1)), longest=4
    ).frame
    rows = found[found["domain"] == "pooled"].set_index("distance")
    assert rows.loc[1, "estimate"] > rows.loc[1, "geometric"] + 0.1
    assert rows["estimate"].to_numpy() == pytest.approx(
        rows["shuffled"].to_numpy(), abs=0.06
    )


# ---- single cases --------------------------------------------------------------------------------


def test_met_rejections_and_what_they_lose_by_hand():
    found = causes.met(labelled(trace_of([RANKS], copies=1)), 4)
    assert found[["position", "kept", "lost"]].to_numpy().tolist() == [
        [1, 1, 3],
        [4, 2, 2],
    ], "position 9 is the bonus token's"


def test_met_rejections_are_the_blocks_that_were_cut(frame):
    for gamma in (1, 3, 8):
        found, blocks = causes.met(frame, gamma), replay.replay(frame, gamma)
        assert (
            len(found)
            == (blocks["accepted"] < np.minimum(gamma, blocks["remaining"])).sum()
        )
        assert (
            found["rejected"].all()
            and found["lost"].between(1, gamma - found["kept"]).all()
        )
        after = replay.replay(
            causes.counterfactual(frame, frame["rejected"] < 2), gamma
        )  # what could be kept at most
        assert found["lost"].max() <= after["accepted"].max()


def test_cases_are_shown_as_text_and_escaped():
    strings = ["<b>", "$x", "\n", " y"]
    frame = labelled(
        trace_of([[0, 1, 0]], copies=1, token=[2, 1, 3], draft_top=3).assign(
            prompt_id="<p>"
        ),
        strings,
        prompt=(0, 1),
    )
    table = causes.as_text(
        causes.worst(frame, 4), frame, strings, {"<p>": (0, 1)}, tail=4
    )
    row = table.iloc[0]
    assert (
        row["context"],
        row["draft proposed"],
        row["target wrote"],
        row["position"],
        row["lost"],
    ) == (">$x⏎▮", "␣y", "$x", 1, 2)
    page = causes.cases_as_html(table)
    assert (
        "<code>&gt;$x⏎▮</code>" in page
        and "&lt;p&gt;" in page
        and "<b>" not in page
        and "<p>" not in page
    )


# ---- which causes --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found(frame):
    members = causes.flags(frame)
    whole = members.assign(every=True)
    often = causes.shares(frame, members)
    chain = causes.gains(frame, whole, 4, draws=2)
    return causes.causes_of(often, chain, causes.gains(frame, whole, static_tree(2, 2)))


# ---- loops ---------------------------------------------------------------------------------------

LOOP = [1, 2, 3, 4, 1, 2, 3, 4, 1]  # positions 7 and 8 repeat


def test_gains_outside_loops_count_blocks_that_begin_outside():
    trace = trace_of([[1, 0, 0, 0, 0, 0, 1, 1, 1]], token=LOOP)
    frame = labelled(trace, "abcdefghi")
    at_0 = pd.DataFrame(
        {"first": frame["position"] == 0, "last": frame["position"] > 6}
    )
    found = causes.gains_outside(frame, at_0, gamma=2)
    gain = pooled(found, "gain")
    # now (0) (1 2 3) (4 5 6) (7) (8): 7 tokens in 3 blocks begin outside
    # first: (0 1 2) (3 4 5) (6) (7) (8): 7 in 3; last: (0) (1 2 3) (4 5 6) (7 8): 7 in 3
    assert gain.tolist() == [0, 0]
    whole = pooled(causes.gains(frame, at_0, 2), "gain")
    assert whole["last"] == pytest.approx(9 / 4 - 9 / 5), (
        "the loop's blocks count there"
    )


def test_outside_loops_is_all_of_a_text_without_any(frame):
    ranked = frame.assign(token=np.arange(len(frame)))  # no token occurs twice
    members = causes.flags(ranked)[["kind: number", "since: right after"]]
    pd.testing.assert_frame_equal(
        causes.gains_outside(ranked, members, 4),
        causes.gains(ranked, members, 4),
    )
