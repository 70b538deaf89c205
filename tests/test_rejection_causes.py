"""Notebook 07's study: labels against counted answers, shares that sum to 1, counterfactual replays
against blocks counted by hand.
"""

import itertools

import numpy as np
import pandas as pd
import pytest

from speclab import replay, score, stats
from speclab.analysis.texts import Text
from speclab.estimates import Estimates
from speclab.show.drawings import draw_causes
from speclab.studies import rejection_causes as causes

# chain of 4: [0, 1*], [2, 3, 4*], [5 6 7 8, bonus 9]: 3 blocks, rejections met at 1 and 4
RANKS = [0, 1, 0, 0, 2, 0, 0, 0, 0, 3]
SAID = 100  # tokens in the draft's vocabulary
WORDS = ("7", " =", "for", " the", "ly", "\n")


def trace_of(*texts, copies=5, **columns):
    """A trace with `copies` identical prompts per text of chat. A text is a list of draft ranks;
    other columns are lists too.
    """
    free = {"token": 0, "draft_top": 1, "p_token": 0.6, "q_token": 0.2, "sure": 0.4}
    free |= {"target_entropy": 1.0, "draft_entropy": 1.0, "seed": 42, "domain": "chat"}
    names = {f"chat-{n}-{i}": ranks for n, ranks in enumerate(texts) for i in range(copies)}
    parts = [
        pd.DataFrame(free | columns | {"position": range(len(ranks)), "draft_rank": ranks})
        for ranks in names.values()
    ]
    frame = pd.concat(parts, keys=names, names=["prompt_id", None])
    frame = frame.reset_index("prompt_id").reset_index(drop=True)
    return frame.assign(
        top_draft_q=[np.array([q, 0.1]) for q in frame.pop("sure")],
        top_draft_p=[np.array([0.3, 0.1])] * len(frame),
    )


def labelled(trace, strings=("a", "b"), prompt=(0,), **options):
    text = Text(0.0, score.with_hits(trace), nodes=pd.DataFrame())
    given = dict.fromkeys(trace["prompt_id"], prompt)
    return causes.label(text, strings, given, SAID, **options)


def pooled(found, quantity="gain"):
    rows = found.at(domain="pooled", quantity=quantity).frame
    return rows.set_index("cause")["estimate"]


def random_trace(seed=0, prompts=12, longest=40):
    rng = np.random.default_rng(seed)
    parts = []
    for i in range(prompts):
        size = int(rng.integers(5, longest))
        part = trace_of(
            rng.choice([0, 1, 2, 5, SAID], size, p=[0.6, 0.2, 0.1, 0.05, 0.05]),
            copies=1,
            token=rng.integers(0, 6, size),
            p_token=rng.random(size),
            sure=rng.random(size),
        )
        parts.append(part.assign(prompt_id=f"p{i:02d}", domain=("chat", "code")[i % 2]))
    return pd.concat(parts, ignore_index=True)


# ---- labels --------------------------------------------------------------------------------------


def texts_to_labels(text, domain="chat"):
    """Kinds of a text's tokens (¦ between them), and those that begin something, by place."""
    pieces = text.split("¦")
    strings = sorted(set(pieces))
    tokens = [strings.index(piece) for piece in pieces]
    trace = trace_of([0] * len(pieces), copies=1, token=tokens, domain=domain)
    found = labelled(trace, strings)
    begins = found.loc[found["begins"] != "nothing", "begins"]
    return "¦".join(found["kind"]), begins.to_dict()


def test_kinds_and_beginnings_of_prose():
    text = 'The¦ cat¦ met¦ Ann¦a¦.¦ Then¦ I¦ saw¦ I¦ Bob¦,¦ Al¦ said¦."¦ \n¦He¦ 3¦.¦5¦</s>'
    kind, begins = texts_to_labels(text)
    assert kind == (
        "word start¦word start¦word start¦name¦word inside¦punctuation¦word start¦word start¦"
        "word start¦word start¦name¦punctuation¦name¦word start¦punctuation¦white space¦"
        "word start¦number¦punctuation¦number¦end of text"
    )
    assert begins == {0: "text", 6: "sentence", 16: "line", 19: "sentence"}


def test_kinds_and_beginnings_of_code():
    kind, begins = texts_to_labels("\n¦    ¦return¦ Total¦.¦ x¦\n¦x¦ =¦ 1", "code")
    assert kind == (
        "white space¦white space¦keyword¦identifier¦punctuation¦identifier¦white space¦"
        "identifier¦operator¦number"
    ), "no names in code"
    assert begins == {0: "text", 2: "line", 7: "line"}


@pytest.mark.parametrize("apart", [{"prompt_id": "z"}, {"seed": 43}])
def test_a_text_does_not_go_on_from_the_one_before(apart):
    first, second = (trace_of([0] * 2, copies=1, token=pair) for pair in ([0, 3], [2, 2]))
    both = pd.concat([first, second.assign(**apart)], ignore_index=True)
    found = labelled(both.sample(frac=1, random_state=0), ["Yes", ".", " So", "\n"])
    assert list(found["begins"]) == ["text", "nothing", "text", "nothing"]


def test_states_and_ranks_by_hand():
    trace = trace_of(
        [0, 1, 0, 2, 3, 4, 0, 8, 9, 64, 65, SAID],
        copies=1,
        p_token=[0.5, 0.49, 0.9, 0.1] + [0.6] * 8,
        sure=[0.5, 0.9, 0.1, 0.49] + [0.4] * 8,
    )
    found = labelled(trace)
    states = "both sure¦only draft sure¦only target sure¦both unsure¦only target sure"
    assert "¦".join(found["state"][:5]) == states
    assert "¦".join(found["found"].dropna()) == (
        "rank 1¦rank 2¦ranks 3-4¦ranks 3-4¦ranks 5-8¦ranks 9-64¦ranks 9-64¦beyond 64¦never"
    )
    assert found["found"].isna().tolist() == (found["draft_rank"] == 0).tolist()
    assert list(labelled(trace, sure=0.95)["state"].unique()) == ["both unsure"]


def test_lookup_reads_the_prompt_and_only_the_past():
    trace = trace_of([1, 1, 1, 1], copies=2, token=[1, 0, 2, 3])
    found = causes.lookup(trace, {"chat-0-0": [0, 1, 0], "chat-0-1": [9]}, 1)
    assert found.tolist() == ["right", "right", "wrong", "no match"] + ["no match"] * 4


@pytest.mark.parametrize("seed", range(3))
def test_every_family_is_a_partition(seed):
    found = labelled(random_trace(seed), WORDS, prompt=(1, 2, 3))
    members, rejected = causes.flags(found), found["rejected"].to_numpy()
    for family in causes.FAMILIES:
        count = members.filter(regex=f"^{family}: ").sum(axis=1).to_numpy()
        assert (count == (rejected if family == "found" else 1)).all(), family


# ---- how often -----------------------------------------------------------------------------------


def test_shares_by_hand():
    frame = labelled(trace_of(RANKS))
    members = pd.DataFrame({"first five": frame["position"] < 5, "none": False})
    found = causes.frequencies(frame, members)
    by_hand = {"share": [2 / 3, 0], "positions": [1 / 2, 0]}
    by_hand |= {"rate": [2 / 5, np.nan], "ratio": [4 / 3, np.nan]}
    for quantity, numbers in by_hand.items():
        np.testing.assert_allclose(pooled(found, quantity), numbers)


def test_without_rejections_there_are_no_shares_and_no_gains():
    frame = labelled(trace_of([0] * 10))
    members = causes.flags(frame)
    found = causes.frequencies(frame, members)
    assert pooled(found, "share").isna().all()
    assert set(pooled(found, "rate").dropna()) == {0}
    assert costs(frame, members).lies_within(0, 0)


# ---- what it costs -------------------------------------------------------------------------------


def costs(frame, members, gamma=4):
    return causes.in_one_table(causes.costs(frame, gamma, members))


def test_gains_by_hand():
    frame = labelled(trace_of(RANKS))
    at = {f"at {t}": frame["position"] == t for t in (0, 1, 4, 9)}
    at["1 and 4"] = frame["position"].isin([1, 4])
    gain = pooled(costs(frame, pd.DataFrame(at)))
    # Right at 1: [0-3, bonus 4], [5-8, bonus 9]. Right at 4 alone: [0, 1*], [2-5, bonus 6], [7, 8,
    # 9*]: as many as before.
    assert gain.tolist() == pytest.approx([0, 10 / 2 - 10 / 3, 0, 0, 10 / 2 - 10 / 3])


def test_other_ranks_may_lose_what_they_do_not_gain():
    frame = labelled(trace_of(RANKS))
    ranks = {"worse": np.ones(len(frame), int), "as it is": frame["draft_rank"].to_numpy()}
    gain = causes.gains_of_ranks(frame, 4, ranks).table().frame
    gain = gain[gain["domain"] == "pooled"].set_index("name")["estimate"]
    assert gain.to_dict() == pytest.approx({"worse": 1 - 10 / 3, "as it is": 0})


def test_a_random_correction_is_the_mean_over_every_correction():
    ranks = np.array([0, 1, 1, 0, 2, 0, 3, 0])
    trace = trace_of(ranks, copies=1)
    share, expected = 0.3, 0.0
    for corrected in itertools.product([False, True], repeat=len(ranks)):
        chance = np.prod(np.where(corrected, share, 1 - share))
        rows = trace.assign(draft_rank=np.where(corrected, 0, ranks))
        expected += chance * len(replay.replay(rows, 3))
    found = causes.corrected_at_random(trace, 3, share)
    assert found.tolist() == pytest.approx([expected])


def test_a_class_of_random_positions_has_no_excess_and_a_planted_one_has():
    frame = labelled(random_trace(3, prompts=40), WORDS, prompt=(1, 2, 3))
    rng = np.random.default_rng(0)
    members = pd.DataFrame({n: rng.random(len(frame)) < 0.4 for n in range(40)})
    often = np.where(frame["rejected"] > 0, 0.6, 0.2)
    members["planted"] = rng.random(len(frame)) < often
    members["every"] = True
    found = costs(frame, members)
    excess = found.at(quantity="excess", domain="pooled").frame.set_index("cause")
    assert excess["low"]["planted"] > 0 and abs(excess["estimate"]["every"]) < 1e-12
    random = excess.drop(index=["planted", "every"])
    assert (pooled(found, "gain")[random.index] > 0.2).all(), "size alone gains"
    assert abs(random["estimate"].mean()) < 0.01
    covered = (random["low"] < 0) & (random["high"] > 0)
    assert covered.mean() >= 0.85


@pytest.mark.parametrize(("ahead", "least", "most"), [(0, 0, 0.08), (1.5, 0.9, 1)])
def test_the_largest_of_several_is_first_only_where_its_lead_is_real(ahead, least, most):
    rng = np.random.default_rng(1)
    candidates = pd.DataFrame({"cause": ["state: a", "state: b", "state: c"]})
    candidates = candidates.assign(domain="pooled", family="state")
    first = []
    for _ in range(150):
        rows = pd.DataFrame(rng.normal(0, 1, (25, 3)), columns=candidates["cause"])
        rows = rows.assign(prompt_id=range(25))
        rows["state: b"] += ahead
        asked = {name: (rows, score.mean_of(name)) for name in candidates["cause"]}
        found = causes.first_causes(stats.jointly(asked, n=400), candidates)
        first.append(found.frame["first"][0] == "yes")
    assert least <= np.mean(first) <= most


def test_a_lead_in_a_domain_goes_by_its_own_prompts():
    """A domain of three prompts takes no lead from one of thirty."""
    rng = np.random.default_rng(0)
    domain = ["many"] * 30 + ["few"] * 3
    rows = pd.DataFrame({"prompt_id": range(33), "domain": domain, "a": 0.0})
    rows["b"] = rng.normal(2, 0.1, 33)
    candidates = pd.DataFrame({"domain": ["many", "few"], "family": "state"})
    candidates = candidates.merge(pd.DataFrame({"cause": ["a", "b"]}), how="cross")
    draws = stats.jointly({name: (rows, score.mean_of(name)) for name in "ab"})
    found = causes.first_causes(draws, candidates).frame.set_index("domain")
    assert found["first"].to_dict() == {"many": "yes", "few": "no"}
    assert found["lead"].to_dict() == {"many": "all others", "few": "no interval"}


def test_labels_keep_the_order_of_the_prompts():
    trace = trace_of([0, 1], [1, 0], copies=1).iloc[::-1]
    assert labelled(trace)["prompt_id"].tolist() == ["chat-1-0"] * 2 + ["chat-0-0"] * 2
    assert labelled(trace)["position"].tolist() == [0, 1, 0, 1]


# ---- sentences -----------------------------------------------------------------------------------


def test_the_answer_counts_the_sets_on_which_this_or_another_state_is_first():
    rows = pd.DataFrame({"cause": ["state: both sure", "state: both unsure", "state: both sure"]})
    rows = rows.assign(estimate=0.3, low=0.2, high=0.4, first=["yes", "yes", "no"])
    said = causes.cost_in_words(Estimates(rows[:1]), Estimates(rows))
    assert said.endswith("The other prompt sets differ in where rejections cost most.")
    said = causes.cost_in_words(Estimates(rows[:1]), Estimates(rows[::2]))
    assert said.endswith("On other prompts rejections may cost most where both models are sure.")
    assert "0.30 [0.20, 0.40] tokens per target pass" in said
    assert causes.cost_where(rows.iloc[2]).startswith("Rejections may cost most where both")


def test_the_title_has_the_kind_that_is_rejected_most_often():
    numbers = [("kind: name", 2.0), ("kind: name", 1.5), ("kind: number", 0.5), ("found: never", 3)]
    rows = pd.DataFrame(numbers, columns=["cause", "estimate"]).assign(low=np.nan, high=np.nan)
    said = causes.most_rejected(Estimates(rows).in_units("x"))
    assert said == "The kind 'name' is rejected at 1.50 to 2.00x the average rate, by text"


# ---- the figure ----------------------------------------------------------------------------------


def test_the_figure_has_the_same_height_for_any_number_of_domains():
    classes = {"state": ["state: both sure", "state: both unsure"], "found": [causes.NEVER]}
    of = [(family, cause) for family, names in classes.items() for cause in names]
    heights = set()
    for count in (1, 12):
        domains = [f"d{i}" for i in range(count)] + ["all"]
        rows = [(domain, family, cause) for domain in domains for family, cause in of]
        known = pd.DataFrame(rows, columns=["domain", "family", "cause"])
        numbers = known.drop(columns="family").assign(estimate=0.1, low=0.0, high=0.2)
        order = ["state: both unsure", "state: both sure", causes.NEVER]
        shown = causes.pictured(Estimates(numbers), known, order).frame
        figure = draw_causes(shown, causes.PICTURED, "all")
        names = [[tick.get_text() for tick in axes.get_yticklabels()] for axes in figure.axes]
        assert names == [["both unsure", "both sure"], ["never"]]
        heights.add(figure.get_figheight())
    assert len(heights) == 1
