"""What notebook 11 may conclude: only directions are counted, and a better number is no
failure.
"""

import re

import numpy as np
import pandas as pd
from cells import run_cells
from test_claims import CLAIMS, NOTEBOOK, SOURCE, rows


def test_a_self_draft_that_is_accepted_more_often_does_not_fail():
    better = (0.985, 0.995)
    judged = [
        NOTEBOOK["judge"](rows(better, region=region))
        for region in (CLAIMS["self-draft"]["region"], [0.88, 0.98])
    ]
    assert judged == ["holds", "fails"], "the second is the region that it had"


def test_only_directions_are_counted_and_every_claim_has_one_way_to_be_decided():
    counted = [name for name, claim in CLAIMS.items() if claim.get("kind") == "direction"]
    assert len(counted) == 8
    for name in counted:
        assert {*CLAIMS[name]["region"]} in ({0, np.inf}, {-np.inf, 0}), "a side, not a level"
    (measured,) = re.findall(r"def measured.*?return \{(.*?)\n    \}", SOURCE, re.DOTALL)
    ids = " ".join(re.findall(r'^        "(.*?)":', measured, re.MULTILINE)).split()
    exact = [name for name, claim in CLAIMS.items() if "values" in claim]
    untested = [name for name, claim in CLAIMS.items() if "untested" in claim]
    assert sorted([*ids, *exact, *untested]) == sorted(CLAIMS)
    assert all("kind" in CLAIMS[name] for name in [*ids, *exact])


def test_only_a_change_from_one_verdict_to_another_turned_it():
    said = {"turned": ["fails", "holds only here"], "same": ["holds on own prompts only", "agrees"]}
    said |= {"renamed": ["fails", "defect"], "given up": ["holds", "not tested"]}
    changes = [{"said": name, "changed": [[29, "", *words]]} for name, words in said.items()]
    found = run_cells("11", "ORDER =", "ORDER =", listed=pd.DataFrame(changes))
    assert found["turned"]["claim"].tolist() == ["turned"] and len(found["changes"]) == 4
