"""What notebook 06 concludes: the highest of several domains is tested, and a sentence for every
verdict, sign and size.
"""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from cells import BOUNDS, run_cells, set_of
from test_prose import too_long

from speclab.estimates import counted
from speclab.lab.prompt_sets import OWN

COLUMNS = {"entropy": "target_entropy", "hit": "hit"}
ASKED = [(name, of) for name in COLUMNS for of in ("mean", "highest")]


def answer_of(at, elsewhere=None, sets=(OWN,), domain="b", has_others=True):
    """The answer from contrasts by name, and those of other sets."""
    sets = {name: set_of(None, name=name, is_part=name == "part") for name in sets}
    options = {"sets": sets, "elsewhere": elsewhere, "domain": domain, "has_others": has_others}
    options |= {"COLUMNS": COLUMNS, "counted": counted, "at": at}
    [answer] = run_cells("06", "def compared", "level, lead =", **options)["answers"]
    assert too_long(answer) == ""
    return answer


def contrasts(entropy, hit, size=0.3):
    """Contrasts with these verdicts: (against the mean, against the highest)."""
    at = {}
    for (name, of), verdict in zip(ASKED, (*entropy, *hit), strict=True):
        low, high = BOUNDS[verdict]
        row = SimpleNamespace(estimate=size, low=low, high=high)
        at[f"{name} minus the {of} of the others"] = row
    return at


UP, DOWN, OPEN, NONE = ((word,) * 2 for word in ("above", "below", "inconclusive", "undefined"))


@pytest.mark.parametrize(
    ("entropy", "hit", "size", "said"),
    [
        (UP, UP, 0.3, "Yes. B has the highest entropy. Its acceptance is 30 points above the"),
        (UP, DOWN, -0.3, "No. B has the highest entropy. Its acceptance is 30 points below the"),
        (UP, OPEN, 0.01, "It is open. B has the highest entropy. Its acceptance is 1 point above"),
        (OPEN, OPEN, -0.001, "It is open. B may have the highest entropy. Its acceptance is less"),
        (DOWN, UP, 0.3, "No. B does not have the highest entropy. Its acceptance is 30 points"),
        (NONE, NONE, 0.3, "There are too few prompts to say."),
    ],
)
def test_a_sentence_for_every_verdict(entropy, hit, size, said):
    answer = answer_of(contrasts(entropy, hit, size))
    assert answer.startswith(said)
    assert ("not clear" in answer) == (hit == OPEN)


def asked_of(rng, lead=0.0):
    """The answer on four domains of 25 prompts, of which one has a lead in entropy."""
    domains = ["a", "b", "c", "d"]
    names = [(f"{domain}{i}", domain) for domain in domains for i in range(25)]
    trace = pd.DataFrame(names, columns=["prompt_id", "domain"])
    entropy = rng.normal(1 + lead * (trace["domain"] == "b"), 0.3)
    trace = trace.assign(target_entropy=entropy, hit=rng.random(len(trace)))
    options = {"domain": "", "domains": domains, "has_others": False}
    options["notebook"] = SimpleNamespace(show_table=lambda *_, **__: None)
    names = run_cells("06", "by_hand = means", "def contrasts_of", trace=trace, **options)
    return answer_of(names["at"], domain=names["domain"])


def test_the_highest_of_equal_domains_is_not_said_to_be_the_highest():
    """It always is the highest of its sample. The negative control is a domain that truly leads."""
    rng = np.random.default_rng(0)
    equal = ["has the highest" in asked_of(rng) for _ in range(40)]
    assert sum(equal) <= 4
    assert all("has the highest" in asked_of(rng, lead=1.0) for _ in range(5))
