"""What notebook 05 concludes: a sentence for every verdict."""

import numpy as np
import pandas as pd
from cells import run_cells, set_of
from test_prose import too_long

from speclab.estimates import Estimates
from speclab.lab.prompt_sets import OWN


def answer_of(own, other, name="b"):
    """The answer at these AUCs with their intervals."""
    rows = [(OWN, *own), (name, *other)]
    table = pd.DataFrame(rows, columns=["set", "estimate", "low", "high"]).assign(domain="all")
    sets = {each: set_of(None, name=each) for each in (OWN, name)}
    whole, elsewhere = list(sets), Estimates(table)
    names = run_cells("05", "ANSWERS =", "ANSWERS =", sets=sets, whole=whole, elsewhere=elsewhere)
    [answer] = names["answers"]
    assert too_long(answer) == ""
    return answer


def test_a_sentence_for_every_verdict():
    high, low, open_ = (0.8, 0.7, 0.9), (0.3, 0.2, 0.4), (0.55, 0.45, 0.65)
    assert answer_of(high, high).endswith("80 times in 100, on the set b 80.")
    assert answer_of(high, open_).endswith("on the set b 55 (not clear).")
    assert answer_of(low, high).startswith("Yes, but the wrong way round.")
    assert answer_of(open_, high).startswith("It is not clear.")
    assert answer_of((0.8, np.nan, np.nan), high).startswith("It cannot be said here. Of")
    assert answer_of((np.nan,) * 3, high) == "It cannot be said here."
