"""Notebook 08 judges drafts on prompts that did not choose their training."""

from types import SimpleNamespace

import pytest
from cells import functions_of

from speclab.plain import read_json
from speclab.score import with_hits
from speclab.study.profiles import ROOT
from speclab.study.runs import load_run


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
