"""What notebook 07 concludes: the surface of a text that is counted by hand, a sentence for
every verdict.
"""

from itertools import pairwise, product

import numpy as np
import pandas as pd
import pytest
from cells import BOUNDS, run_cells, set_of
from test_prose import too_long

from speclab.estimates import Estimates
from speclab.lab.prompt_sets import OWN


@pytest.mark.parametrize("decides", ["confidence", "p_token"])
def test_the_surface_of_a_text_that_is_counted_by_hand(decides):
    """Twenty tokens, five in each cell. With a block as long as the text, every rejection is a
    target pass and the end is one more: 4 + 4 + 1 + 1 rejections are 11 passes.
    """
    columns = ["prompt_id", "confidence", "p_token", "place"]
    rows = pd.DataFrame(product("vwxyz", (0.1, 0.9), (0.1, 0.9), range(5)), columns=columns)
    rows["rejected"] = rows["place"] < np.where(rows[decides] < 0.5, 4, 1)
    rows = rows.assign(domain="code", position=rows.groupby("prompt_id").cumcount())
    options = {"UNSURE": {"d": "confidence", "t": "p_token"}, "cuts": [0.5], "positions": rows}
    options |= {"pairwise": pairwise, "product": product}
    names = run_cells("07", "SHARES =", "def excesses", gamma=64, smallest=0.002, **options)
    found = run_cells("07", "def per_tenth", "def per_tenth", **names)["surface"]
    unsure, sure = ((20 / (11 - right) - 20 / (11 - 10 / 4)) / 2.5 for right in (4, 1))
    is_unsure = found["draft" if decides == "confidence" else "target"].str.endswith("0 to 0.5")
    assert found["estimate"].to_numpy() == pytest.approx(np.where(is_unsure, unsure, sure))
    assert len(found) == 4


def answer_of(own, other, second=0.31, never=0.07):
    """The answer at these verdicts and shares."""
    bounds = pd.DataFrame([BOUNDS[own], BOUNDS[other]], columns=["low", "high"])
    both = bounds.assign(set=[OWN, "b"], domain="all", estimate=second)
    ranks = [both.assign(where="second choice"), both.assign(where="never", estimate=never)]
    names = {"contrasts": Estimates(both), "ranks": Estimates(pd.concat(ranks))}
    names |= {"whole": [OWN, "b"], "sets": {"b": set_of(None, name="b")}}
    [answer] = run_cells("07", "COST =", "COST =", **names)["answers"]
    assert too_long(answer) == ""
    return answer


def test_a_sentence_for_every_verdict():
    assert answer_of("above", "above") == (
        "In all, rejections cost more where the draft is unsure than where the target is. At 31 % "
        "the draft's second choice was right (31 % on the set b). At 7 % its vocabulary lacks the "
        "token."
    )
    assert "cost more where the target is" in answer_of("below", "below")
    for pair in (("above", "inconclusive"), ("above", "below"), ("inconclusive",) * 2):
        assert answer_of(*pair).startswith("It is unclear")
    assert answer_of("undefined", "undefined").startswith("There are too few prompts")
    assert answer_of("above", "undefined", np.nan, np.nan).endswith("than where the target is.")
