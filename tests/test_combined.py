"""A draft combined with copies, by hand: blocks, their cost, and a rule fitted on other prompts.
(`test_decode` compares the blocks with the decoder's.)
"""

import pandas as pd
import pytest
from test_starts import starts_by_hand

from speclab.copying import MOST
from speclab.cost import Costs
from speclab.lab import combined
from speclab.lab.starts import replay_starts

# `5 6 7` is in the prompt, and recurs after `8`
BACK = {"a": ([5, 6, 7, 9], [8, 5, 6, 7, 9, 4])}


@pytest.mark.parametrize(
    ("least", "blocks"),
    [
        (combined.NEVER, [[0, False, 2, 1, 2], [2, False, 2, 1, 2], [4, False, 2, 1, 2]]),
        # 8 and 5 by the draft; after 5 the copy is right three times; the end leaves 6 - 2 tokens
        (1, [[0, False, 2, 1, 2], [2, True, 4, 3, 4]]),
        # two must match: position 2 is drafted, then 4 is copied
        (2, [[0, False, 2, 1, 2], [2, False, 2, 1, 2], [4, True, 2, 1, 2]]),
    ],
)
def test_by_hand(least, blocks):
    both = combined.add_copies(starts_by_hand([1, 0, 1, 1, 1, 0]), BACK)
    assert both["matched"].tolist() == [0, 0, 1, 2, 3, 4]
    assert both["copied"].tolist() == [0, 0, 3, 2, 1, 0]
    planned = combined.planned(both, 2, least)
    found = replay_starts(planned, planned["drafted"].to_numpy())
    columns = ["start", "is_copied", "drafted", "accepted", "emitted"]
    assert found[columns].to_numpy().tolist() == blocks


def test_a_copy_is_priced_by_its_tokens_and_without_draft_passes():
    both = combined.add_copies(starts_by_hand([1, 0, 1, 1, 1, 0]), BACK)
    costs = Costs(10.0, (1, MOST + 1), (0.25, 0.25), (1.0, 2.0), 0.5)
    found = combined.settings_cost(both, 2, costs).judged("chain:2+lookup:1").iloc[0]
    drafted, copy = 2 * 0.25 + costs.v(3) + 0.5, costs.v(5) + 0.5
    assert found["cost"] == pytest.approx(drafted + copy)
    assert (found["target_passes"], found["draft_passes"]) == (2, 2)


def test_the_rule_is_fitted_on_other_prompts():
    """Copies help every prompt but one, whose own best rule is never to copy: it gets the others'
    rule, and they keep it.
    """
    useless = ([7, 6, 5, 4, 3, 2, 1, 0], [1, 2, 1, 3, 1, 4, 1, 5])
    texts = [useless, *[([0] * 8, [1, 2, 3, 4, 1, 2, 3, 4])] * 9]
    starts = [starts_by_hand(right, prompt_id=f"p{n}") for n, (right, _) in enumerate(texts)]
    tokens = {f"p{n}": ([9], text) for n, (_, text) in enumerate(texts)}
    both = combined.add_copies(pd.concat(starts), tokens)
    found = combined.ways(both, 4)
    rule, never = found[combined.BOTH].judged, found[combined.DRAFT].judged
    assert (rule["setting"] == "chain:4+lookup:1").all()
    more = rule["target_passes"] - never["target_passes"]
    assert more.tolist() == [1, *[-2] * 9]
