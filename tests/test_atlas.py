"""The atlas: the shipped file gives the published numbers and its sources' own counts; Kendall's W
and the tests of tasks by hand, where they matter and where they do not.
"""

import gzip
import json

import numpy as np
import pandas as pd
import pytest

from data.atlas import prepare
from speclab import passes
from speclab.analysis import atlas, concordance, logs
from speclab.analysis.concordance import Orders, best_over_worst, kendalls_w
from speclab.estimates import Estimates
from speclab.profiles import ROOT
from speclab.show.notebook import too_long
from speclab.studies import atlas as study

SHARED = ROOT.parent / "shared" / "public_traces" / "atlas"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="needs the public runs in ../shared")
PER_PASS = study.PER_PASS


# ---- the shipped file ----------------------------------------------------------------------------


@pytest.mark.parametrize(("run", "expected"), [("eagle", 3.579), ("medusa", 2.306), ("sps", 2.278)])
def test_the_leaderboard_s_numbers(run, expected):
    rows = study.sums_of_run(run)
    assert len(rows) == 480
    assert PER_PASS(rows) == pytest.approx(expected, abs=0.0005)


def test_eagle_s_best_task_over_its_worst():
    rows = study.on_spec_bench({"EAGLE": "eagle"})["EAGLE"]
    by_task = rows.groupby("domain")[["emitted", "blocks"]].sum()
    per_pass = by_task["emitted"] / by_task["blocks"]
    assert len(per_pass) == 6
    assert per_pass.max() / per_pass.min() == pytest.approx(1.38, abs=0.005)


def test_the_heuristic_schedule_has_no_contradiction():
    frame = atlas.passes_of("sps")
    assert len(frame) == 40_632
    assert (frame["accepted"] <= frame["drafted"]).all()
    assert frame["drafted"].min() >= 1


def test_every_run_is_there_is_small_and_has_its_licence():
    table = atlas.runs()
    assert set(atlas.answers()["run"]) == set(table["run"])
    assert table["licence"].str.startswith("Apache-2.0").all()
    assert atlas.TABLE.stat().st_size < 2_000_000
    assert not {"turns", "texts", "prompt"} & set(atlas.answers())


@pytest.mark.parametrize("run", ["eagle", "recycling", "rest", "plain-c", "hydra-shop"])
def test_passes_and_sums_are_the_same_numbers(run):
    frame = atlas.passes_of(run)
    assert list(frame) == passes.COLUMNS
    by_prompt = frame.groupby("prompt_id")["emitted"].agg(["size", "sum"])
    sums = study.sums_of_run(run).set_index("prompt_id").loc[by_prompt.index]
    assert (by_prompt["size"] == sums["blocks"]).all()
    assert (by_prompt["sum"] <= sums["emitted"]).all()
    longest = atlas.runs().set_index("run").loc[run, "K"]
    assert frame["accepted"].max() == longest


def test_plain_runs_emit_one_token_per_pass():
    for run in ("plain-a", "plain-b", "plain-c", "plain-shop", "plain-v1.5"):
        assert PER_PASS(study.sums_of_run(run)) == 1, run


def test_runs_that_cannot_be_read_by_pass():
    with pytest.raises(ValueError, match="no run 'eagel': did you mean 'eagle'"):
        atlas.passes_of("eagel")
    with pytest.raises(ValueError, match="totals per answer for 'medusa-33b', no passes"):
        atlas.passes_of("medusa-33b")


# ---- the sources ---------------------------------------------------------------------------------


@needs_shared
def test_prepare_gives_the_shipped_rows():
    found = prepare.files_in(SHARED)
    here = [run for run in atlas.sources()["runs"] if set(run["files"].values()) <= set(found)]
    assert len(here) == 6
    for run in here:
        rows = prepare.answers_of(run, [found[digest] for digest in run["files"].values()])
        shipped = atlas.answers().query("run == @run['run']").reset_index(drop=True)
        for name in ("prompt_id", "domain", "turn", "tokens", "passes"):
            assert (rows[name] == shipped[name].astype(rows[name].dtype)).all(), name
        pairs = zip(rows["accepted"], shipped["accepted"], strict=True)
        assert all(list(one) == list(other) for one, other in pairs)


@needs_shared
def test_the_shipped_passes_are_those_of_another_reader():
    """Token Recycling apart: that reader takes decoding_steps as counted from 1."""
    expected = {}
    with gzip.open(SHARED / "accept_lengths.jsonl.gz", "rt") as lines:
        for line in map(json.loads, lines):
            key = line["repo"], line["method"].split(",")[0], line["bench"]
            expected.setdefault(key, {})[str(line["prompt"])] = line.get("turns")
    forks = "BrodskaiaIrina/cringebench", "BNukhkadiev/Spec-Bench", "yukiki-jc/Spec-Bench"
    names = {
        "eagle": (forks[2], "EAGLE", "spec_bench"),
        "sps": (forks[1], "SpS vicuna-68m", "spec_bench"),
        "medusa": (forks[0], "Medusa", "spec_bench"),
        "pld": (forks[0], "PLD", "spec_bench"),
        "lookahead": (forks[0], "Lookahead 5-7-7", "spec_bench"),
    }
    for run, key in names.items():
        frame = atlas.passes_of(run)
        for prompt, rows in frame.groupby("prompt_id"):
            whole = [length for turn in expected[key][prompt] for length in turn]
            assert len(whole) == len(rows)
            assert sum(whole) - rows["emitted"].sum() <= 2 * 5, (run, prompt)


def test_prepare_says_what_is_missing(tmp_path):
    with pytest.raises(ValueError, match="yukiki-jc/Spec-Bench: .*eagle.* is not there"):
        prepare.table(prepare.files_in(tmp_path))


def test_texts_become_numbers():
    rows = pd.DataFrame(
        {
            "run": ["eagle", "plain-a", "plain-b", "rest"],
            "target": ["a", "a", "a", "b"],
            "prompt_id": 81,
            "domain": "writing",
            "turn": 0,
            "tokens": 3,
            "passes": 2,
            "accepted": [[1, 0]] * 4,
            "text": ["Yes.", "No.", "Yes.", "No."],
        }
    )
    assert prepare.compact(rows)["text"].tolist() == [0, 1, 0, 0]
    assert not prepare.compact(rows).astype(str).isin(["Yes.", "No."]).any(axis=None)


def bench(**choice):
    """A line of a fork of Spec-Bench with two turns."""
    return {"question_id": 81, "category": "writing", "choices": [{"turns": ["", ""]} | choice]}


@pytest.mark.parametrize(
    "choice",
    [
        {"decoding_steps": [2, 1], "new_tokens": [4, 2], "accept_lengths": [3, 1, 2]},
        {"decoding_steps": [1, 0], "new_tokens": [4, 2], "accept_lengths": [3, 1, 2]},
        {"idxs": [1, 0], "new_tokens": [4, 2], "accept_lengths:": [2, 1, 1]},
        {"idxs": [1, 0], "new_tokens": [4, 2], "accept_lengths:": [3, 1, 2]},
    ],
    ids=["as documented", "Token Recycling", "REST", "REST, plain"],
)
def test_forks_that_count_in_other_ways_give_the_same_passes(choice, tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(bench(**choice)))
    frame = logs.read_log([path], "spec-bench").passes
    assert frame["accepted"].tolist() == [2, 0, 1]
    assert frame["emitted"].tolist() == [3, 1, 2]
    assert frame["turn"].tolist() == [0, 0, 1]


# ---- agreement -----------------------------------------------------------------------------------


def test_kendalls_w_by_hand():
    same = [[1, 2, 3, 4], [10, 20, 30, 40], [0, 1, 2, 9]]
    assert kendalls_w(np.array(same)) == pytest.approx(1)
    opposite = [[1, 2, 3, 4], [4, 3, 2, 1]]
    assert kendalls_w(np.array(opposite)) == 0
    # ranks 1 2 3, 1 3 2: sums 2 5 5 about 4, squares 4 + 1 + 1 = 6, of 2² (27 − 3) / 12 = 8
    assert kendalls_w(np.array([[1, 2, 3], [1, 3, 2]])) == pytest.approx(6 / 8)
    assert best_over_worst(np.array([2.0, 3.0, 1.5])) == 2


def made(seed, levels, prompts=20, shared=0.0):
    """Sums of two methods on the same prompts: tokens of 100 passes around the level of the
    domain, with noise of which methods share a part.
    """
    rng = np.random.default_rng(seed)
    domain = np.repeat(list(levels), prompts)
    ease = rng.normal(0, shared, len(domain))
    frames = {}
    for name in ("one", "other"):
        noise = ease + rng.normal(0, 20, len(domain))
        emitted = 300 + np.array([levels[d] for d in domain]) + noise
        ids = [f"{number:03d}" for number in range(len(domain))]
        columns = {"prompt_id": ids, "domain": domain, "emitted": emitted, "blocks": 100.0}
        frames[name] = pd.DataFrame(columns)
    return frames


def test_tasks_that_matter_are_found_and_share_an_order():
    orders = Orders.of(made(0, {"a": 0, "b": 60, "c": 120, "d": 180, "e": 240}), PER_PASS, 400)
    spreads = orders.spreads()
    assert spreads["highest"].tolist() == ["e", "e"] and spreads["lowest"].tolist() == ["a", "a"]
    assert (spreads["p_holm"] < 0.01).all()
    assert (spreads["estimate"] > spreads["by_chance"]).all()
    agreement = orders.agreement()
    assert agreement["estimate"] == 1 and agreement["p_value"] < 0.05
    assert agreement["unrelated"] == pytest.approx(0.5, abs=0.02)  # of 2 methods: 1 / 2


def test_tasks_that_do_not_matter_are_found_in_one_of_twenty():
    levels = dict.fromkeys("abcde", 0)
    p_values = [Orders.of(made(s, levels), PER_PASS, 99).spreads()["p_value"] for s in range(60)]
    assert 0.01 <= np.mean(np.array(p_values) < 0.05) <= 0.12
    assert np.mean(p_values) == pytest.approx(0.5, abs=0.1)


def test_prompts_that_are_easy_for_all_make_an_order_without_tasks():
    """The methods agree more than unrelated orders, and not more than shared prompts explain."""
    shared = [
        Orders.of(made(s, dict.fromkeys("abcde", 0), shared=80), PER_PASS, 99).agreement()
        for s in range(20)
    ]
    table = pd.DataFrame(shared)
    assert (table["shared"] > table["unrelated"] + 0.3).all()
    assert (table["p_shared"] < 0.05).mean() <= 0.2


def test_methods_with_other_prompts_are_refused():
    frames = made(0, {"a": 0, "b": 60})
    frames["other"] = frames["other"].iloc[:-1]
    with pytest.raises(ValueError, match="other: 1 prompts are missing"):
        Orders.of(frames, PER_PASS, 9)


def test_the_sample_counts_in_a_permutation_test():
    assert concordance.share_as_high(3.0, np.array([1.0, 2.0, 3.0])) == 2 / 4
    assert concordance.share_as_high(9.0, np.zeros(99)) == 1 / 100


# ---- what notebook 17 asks -----------------------------------------------------------------------


def test_acceptance_by_depth_counts_passes_that_could_go_so_deep():
    frame = atlas.passes_of("medusa")
    reached = (frame["accepted"] >= 1) & (frame["remaining"] >= 2)
    by_hand = (frame["accepted"] >= 2).sum() / reached.sum()
    draws = study.accepted_by_depth("medusa", 8)
    assert list(draws.values) == [1, 2, 3, 4]  # as deep as its tree
    assert draws[2]["pooled"].iloc[0] == pytest.approx(by_hand)


def test_a_method_is_as_easy_as_itself():
    frames = study.on_spec_bench({"PLD": "pld", "PLD again": "pld"})
    easy = study.easy_for_both(frames, ["PLD again"])
    assert easy.frame["over"].tolist() == [study.EVERYWHERE, study.WITHIN]
    assert easy.frame["estimate"].to_numpy() == pytest.approx([1, 1])


def test_texts_by_hand():
    same = study.same_texts()
    answers = atlas.answers().query("turn == 0").set_index(["domain", "prompt_id"])
    texts = {run: answers.query("run == @run")["text"] for run in ("plain-a", "plain-b")}
    by_hand = (texts["plain-a"] == texts["plain-b"]).mean()
    assert same.at(runs="plain A and plain B").value == pytest.approx(by_hand)
    means = same.at(runs=study.MEAN).frame.set_index("kind")["estimate"]
    difference = means[study.METHOD] - means[study.MACHINES]
    assert same.at(runs=study.DIFFERENCE).value == pytest.approx(difference)


def test_the_gap_between_chat_and_math_by_hand():
    frame = atlas.passes_of("eagle")
    frame["domain"] = frame["domain"].map(study.PAPERS)
    is_kept = frame.assign(kept=frame["accepted"] > 0).groupby("domain")["kept"].mean()
    gap = study.evidence_of("eagle")["gap"]["estimate"].item()
    assert gap == pytest.approx(is_kept["chat"] - is_kept["math"])


# ---- sentences -----------------------------------------------------------------------------------


def spread(*p_values):
    names = list(study.METHODS)[: len(p_values)]
    ratios = 1.2 + 0.1 * np.arange(len(p_values))
    return pd.DataFrame({"method": names, "estimate": ratios, "p_holm": p_values})


def agreed(p_value, p_shared):
    numbers = {"estimate": 0.5, "low": 0.4, "high": 0.68, "unrelated": 0.17, "shared": 0.55}
    return numbers | {"p_value": p_value, "p_shared": p_shared}


def numbers(*rows, key="method"):
    names = list(study.METHODS)[: len(rows)]
    table = pd.DataFrame(rows, columns=["estimate", "low", "high"])
    table.insert(0, key, names)
    return Estimates(table).in_units("points")


@pytest.mark.parametrize(
    ("p_values", "begins"),
    [
        ([0.001] * 6, "Yes, for all six methods. The best task emits 1.20x (EAGLE) to 1.70x (Look"),
        ([0.001, 0.9], "Yes, for EAGLE. The best task emits 1.20x (EAGLE) the tokens"),
        ([0.2, 0.9], "Inconclusive: the tasks do not differ significantly with any method."),
    ],
)
@pytest.mark.parametrize(
    ("chances", "ends"),
    [
        ((0.001, 0.001), "more than shared prompts alone explain."),
        ((0.001, 0.6), "which shared prompts alone could explain."),
        ((0.3, 0.6), "do not significantly agree on an order (Kendall's W 0.50 [0.40, 0.68])."),
    ],
)
def test_the_answer(p_values, begins, chances, ends):
    answer = study.tasks_in_words(spread(*p_values), agreed(*chances))
    assert answer.startswith(begins) and answer.endswith(ends)
    assert too_long(answer) == ""
    assert len(answer.split(". ")[0].split()) <= 25


def test_other_sentences_in_their_branches():
    rises, falls, nothing = (0.1, 0.05, 0.2), (-0.1, -0.2, -0.05), (0.0, -0.1, 0.1)
    mixed = study.rises_in_words(numbers(rises, falls, nothing))
    assert "falls for Token Recycling" in mixed and "not change significantly for Medusa" in mixed
    title = study.depth_title(numbers(rises, falls, nothing))
    assert title == "From depth 1 to 3, acceptance rises for 1 and falls for 1 of 3 methods"
    assert "lower in chat for EAGLE" in study.gap_in_words(numbers(falls))
    assert study.chance_in_words(agreed(0.3, 0.6)).count("not significantly above") == 2
    assert "not" not in study.chance_in_words(agreed(0.001, 0.001))
    assert "rise significantly at EAGLE" in study.target_sizes_in_words(numbers(rises, key="size"))
    assert study.methods_in_words(spread(0.5)) == "no method"
