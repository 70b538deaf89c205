"""What notebook 07 concludes: the surface of a text that is counted by hand, an answer that no cut
changes, means of the same domains, a sentence for every verdict. Also: cells of a notebook for the
tests of the next notebooks' conclusions.
"""

from dataclasses import replace
from functools import cache
from itertools import product
from types import SimpleNamespace

import jupytext
import numpy as np
import pandas as pd
import pytest

from speclab import replay, score, stats
from speclab.estimates import Estimates
from speclab.lab import prompt_sets
from speclab.show import notebook
from speclab.study.profiles import ROOT

KIT = {"np": np, "pd": pd, "replay": replay, "score": score, "stats": stats}
KIT |= {"Estimates": Estimates, "prompt_sets": prompt_sets, "ALL": "all", "POOLED": "pooled"}


@cache
def code_of(number):
    """The cells of a notebook, without the one that looks for the kit."""
    [source] = (ROOT / "notebooks").glob(f"{number}_*.py")
    cells = [cell for cell in jupytext.read(source).cells if cell.cell_type == "code"]
    return [cell.source for cell in cells if "bootstrap" not in cell.metadata.get("tags", ())]


def page():
    """A context that draws nothing and keeps the answers."""
    answers = []
    quiet = dict.fromkeys(("draw", "plot", "table", "export", "say"), lambda *_, **__: None)
    return SimpleNamespace(answers=answers, answer=answers.append, **quiet)


def run_cells(number, first, last, **names):
    """Run the cells from the one with the text `first` to the one with `last`; all their names."""
    cells = code_of(number)
    begin, end = (next(i for i, cell in enumerate(cells) if t in cell) for t in (first, last))
    names = KIT | {"ctx": page()} | names
    for cell in cells[begin : end + 1]:
        exec(cell, names)
    return names


def set_of(rows, *new, name="", is_part=False):
    """A set of prompts as a notebook has it."""
    return SimpleNamespace(
        trace=rows, new=new, in_words=f"the set {name}", is_part=is_part, name=name
    )


# ---- the surface ---------------------------------------------------------------------------------


@pytest.mark.parametrize("decides", ["confidence", "p_token"])
def test_the_surface_of_a_text_that_is_counted_by_hand(decides):
    """Twenty tokens, five in each cell. With a block as long as the text, every rejection is a
    target pass and the end is one more: 4 + 4 + 1 + 1 rejections are 11 passes.
    """
    cells = [(low, high) for low, high in product((0.1, 0.9), repeat=2) for _ in range(5)]
    text = pd.DataFrame(cells, columns=["confidence", "p_token"]).assign(position=range(20))
    place = text["position"] % 5
    text["draft_rank"] = np.where(text[decides] < 0.5, place < 4, place < 1).astype(int)
    texts = {f"p{i}": text.assign(domain="code") for i in range(5)}
    positions = pd.concat(texts, names=["prompt_id"]).reset_index("prompt_id", drop=False)
    positions = positions.reset_index(drop=True)
    positions["rejected"] = positions["draft_rank"] > 0
    unsure = {"draft unsure": "confidence", "target unsure": "p_token"}
    options = {"UNSURE": unsure, "cuts": [0.5], "gamma": 64, "smallest": 0.002}
    names = run_cells("07", "SHARES =", "def excesses", positions=positions, **options)
    names = run_cells("07", "def per_tenth", "def per_tenth", **names)
    found = names["surface"].set_index(["draft_from", "target_from"])["estimate"]
    unsure, sure = ((20 / (11 - right) - 20 / 8.5) / 2.5 for right in (4, 1))
    for (draft, target), value in found.items():
        level = draft if decides == "confidence" else target
        assert value == pytest.approx(sure if level else unsure)
    assert len(found) == 4


# ---- no cut --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pages():
    """The names of the whole notebook by cut, on six prompts per domain of tiny."""
    parameters, imports, start, *_ = code_of("07")
    names = {}
    exec(f"{parameters}\n{imports}", names)
    names |= {"profile": "tiny", "overrides": {"other_prompts": [], "recorded": []}}
    exec(start, names)
    text, profile = names["text"], names["ctx"].profile
    ids = text.trace.groupby("domain")["prompt_id"].unique().map(lambda known: known[:6])
    few = text.trace[text.trace["prompt_id"].isin(np.concatenate([*ids]))]
    names["text"] = replace(text, trace=few)
    found = {}
    for cut in (0.4, 0.6, 0.9):
        quiet = page()
        quiet.profile = profile
        found[cut] = run_cells(
            "07", "def positions_of", "COST =", **names | {"ctx": quiet, "cuts": [cut]}
        )
    return found


def test_the_answer_does_not_depend_on_a_cut(pages):
    answers = {names["ctx"].answers[0] for names in pages.values()}
    assert len(answers) == 1 and "unsure" in answers.pop()
    # the negative control: of classes that the cut makes, another one costs most
    largest = {}
    for cut, names in pages.items():
        positions, excesses = names["positions"], names["excesses"]
        target, draft = positions["p_token"] >= cut, positions["confidence"] >= cut
        states = pd.DataFrame({"only target": target & ~draft, "neither": ~target & ~draft})
        found = excesses(positions, states).table().at(domain="all").frame
        largest[cut] = found.set_index("name")["estimate"].idxmax()
    assert {*largest.values()} == {"only target", "neither"}


# ---- means of the same domains -------------------------------------------------------------------


def test_a_class_that_a_domain_lacks_has_no_mean(pages):
    names = pages[0.4]
    positions, excesses = names["positions"], names["excesses"]
    is_odd = positions["position"] % 2 == 1
    only = ((positions["domain"] == "code") & is_odd).rename("in code").to_frame()
    assert names["large"](positions, only) == []
    table = excesses(positions, only).table()
    known = table.known.set_index("domain")["estimate"]
    assert {*known.index} == {"code", "pooled"} and known["code"] != 0


# ---- the answer ----------------------------------------------------------------------------------

INTERVALS = {"above": (0.1, 0.3), "below": (-0.3, -0.1), "inconclusive": (-0.1, 0.1)}
INTERVALS |= {"undefined": (np.nan, np.nan)}


def answer_of(own, other, second=0.31, never=0.07):
    """The answer at these verdicts and shares."""
    rows = [("own prompts", *INTERVALS[own]), ("b", *INTERVALS[other])]
    contrasts = pd.DataFrame(rows, columns=["set", "low", "high"]).assign(domain="all", estimate=0)
    shares = {"second choice": second, "never": never}
    parts = [(name, where, shares[where]) for name in ("own prompts", "b") for where in shares]
    ranks = pd.DataFrame(parts, columns=["set", "where", "estimate"])
    names = {"contrasts": Estimates(contrasts), "whole": ["own prompts", "b"]}
    names["ranks"] = Estimates(ranks.assign(domain="all", low=0, high=1))
    sets = {name: set_of(None, name=name) for name in ("own prompts", "b")}
    [answer] = run_cells("07", "COST =", "COST =", sets=sets, **names)["ctx"].answers
    assert notebook.too_long(answer) == ""
    return answer


def test_a_sentence_for_every_verdict():
    assert answer_of("above", "above").startswith("Rejections cost more where the draft is unsure")
    assert answer_of("below", "below").startswith("Rejections cost more where the target is")
    for pair in (("above", "inconclusive"), ("above", "below"), ("inconclusive",) * 2):
        assert answer_of(*pair).startswith("It is unclear")
    assert "too few" in answer_of("undefined", "undefined")
    assert answer_of("above", "undefined") == answer_of("above", "above")
    bare = answer_of("above", "above", np.nan, np.nan)
    assert "second choice" not in bare and "vocabulary" not in bare
