"""What notebook 08 concludes: from prompts that chose nothing, and comparing like with like."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from cells import functions_of

from speclab.plain import read_json
from speclab.score import with_hits
from speclab.study.profiles import ROOT
from speclab.study.runs import load_run

HEAD = ROOT / "data/pairs/smollm/head"


def by_prompt(trace):
    """Tokens and accepted first tokens by prompt of a recorded run."""
    rows = with_hits(load_run(ROOT / "data/traces" / trace).trace)
    sums = rows.groupby(["domain", "prompt_id"], sort=False)["hit"].agg(["size", "sum"])
    return sums.set_axis(["tokens", "accepted"], axis=1).reset_index()


def chose(rows):
    """Whether a prompt is among the first eight of its domain."""
    return rows.groupby("domain").cumcount() < 8


def accepted(rows):
    """In points, the mean of the domains."""
    sums = rows.groupby("domain")[["accepted", "tokens"]].sum()
    return 100 * (sums["accepted"] / sums["tokens"]).mean()


@pytest.mark.parametrize(("size", "number", "first"), [(50, 8, 8), (50, 0, 0), (10, 8, 5)])
def test_the_first_prompts_of_a_domain_are_left_out(size, number, first):
    asked = [SimpleNamespace(domain=d, number=i) for i in range(size) for d in ("code", "chat")]
    left = functions_of("08")["others"](asked, number)
    assert [prompt.number for prompt in left] == [*range(first, size)] * 2


def test_the_prompts_that_chose_the_training_are_easier_and_not_in_the_headline():
    rows = by_prompt("smollm/greedy")
    first, others = rows[chose(rows)], rows[~chose(rows)]
    curve = read_json(ROOT / "data/pairs/smollm/card.json", "")["training"]["distil"]
    assert accepted(first) == pytest.approx(100 * curve[-1]["hit"], abs=0.1), "the curve's prompts"
    assert len(others) == 168 and accepted(others) == pytest.approx(56.8, abs=0.05)


def gains(kind, head, trace):
    """Of the seeds 0, 1 and 2 of a head minus the draft, in points."""
    draft = by_prompt(f"smollm/{kind}")
    draft = draft if kind == "second" else draft[~chose(draft)]
    later = pd.read_csv(HEAD / "seeds.csv").query("kind == @kind and head == @head")
    every = [by_prompt(f"{trace}/{kind}"), *(rows for _, rows in later.groupby("seed"))]
    every = [rows[rows["prompt_id"].isin(draft["prompt_id"])] for rows in every]
    return [accepted(rows) - accepted(draft) for rows in every]


def test_like_with_like_a_head_gains_and_the_forecast_of_the_interaction_failed():
    kinds, said = ("greedy", "second"), (HEAD / "expected.md").read_text("utf-8")
    form = np.array([gains(kind, "form", "smollm-head-other") for kind in kinds])
    assert form == pytest.approx(np.array([[4.7, 4.9, 5.8], [5.8, 5.5, 5.3]]), abs=0.05)
    mixed = np.array([gains(kind, "mixed", "smollm-head") for kind in kinds])
    on_own, on_second = (mixed - form).mean(axis=1)
    card = read_json(HEAD / "card.json", "")
    least, most = card["expected"]["interaction"]
    assert f"clearly above zero, {least} to {most} points" in said
    assert on_second - on_own == pytest.approx(2.2, abs=0.05) and least > 2.3
    steps = [how["steps"] for how in card["trained"].values()]
    assert steps == [1140, 360, 360], "they were not trained equally"
