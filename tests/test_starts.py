"""Chains from records by start: against replay from ranks, by hand, and rejected input.
(tests/test_decode.py compares them with the decoder's counts.)
"""

import numpy as np
import pandas as pd
import pytest
from frames import shipped

from speclab import score
from speclab.lab.combined import starts_of_trace
from speclab.lab.starts import replay_starts, sums_of_starts
from speclab.replay import chain_sums, prompt_sums, replay


@pytest.fixture(params=["smollm", "tiny"], scope="module")
def trace(request):
    return shipped(request.param, "greedy").trace


def test_replay_from_starts_is_replay_from_ranks(trace):
    starts = starts_of_trace(trace, "draft")
    for gamma in (1, 2, 3, 5, 8, 16, 64):
        found = replay_starts(starts, gamma)
        pd.testing.assert_frame_equal(found, replay(trace, gamma))
    gammas = (1, 4)
    found = sums_of_starts(starts, gammas)
    pd.testing.assert_frame_equal(found, chain_sums(trace, gammas))


def starts_by_hand(accepted, first=0, **columns):
    """A text of one prompt, `accepted` from its first start on."""
    frame = pd.DataFrame({"accepted": accepted})
    known = {"prompt_id": "a", "domain": "code", "proposer": "head", "limit": 5}
    position = first + np.arange(len(accepted))
    remaining = np.arange(len(accepted), 0, -1)
    known |= {"position": position, "remaining": remaining} | columns
    return frame.assign(**known)


# Its draft reads what the last block left: from 1 three tokens are right, from 2 none.
HEAD = starts_by_hand([0, 3, 0, 1, 2, 2, 1, 0], first=1)


def test_a_draft_that_depends_on_where_the_block_began_by_hand():
    columns = ["start", "remaining", "drafted", "accepted", "emitted", "truncated"]
    assert replay_starts(HEAD, 3)[columns].to_numpy().tolist() == [
        [1, 8, 3, 0, 1, False],
        [2, 7, 3, 3, 4, False],
        [6, 3, 3, 2, 3, False],
    ]
    sums = prompt_sums(replay_starts(HEAD, 3))
    assert score.block_estimators()["block_efficiency"](sums) == 8 / 3
    end = replay_starts(starts_by_hand([5, 2, 1]), 4)
    assert end[columns].to_numpy().tolist() == [[0, 3, 3, 3, 3, True]]


@pytest.mark.parametrize(
    ("starts", "gamma", "complaint"),
    [
        (HEAD, 6, "blocks of 'head' were recorded up to 5 drafted tokens"),
        (HEAD, 65, "whole numbers from 1 to 64"),
        (HEAD.drop(columns="limit"), 2, "limit"),
        (HEAD.iloc[:0], 2, "empty"),
        (HEAD.drop(index=3), 2, "prompt 'a' .* after position 3"),
        (HEAD.iloc[:-1], 2, "after position 7"),
        (HEAD.sample(frac=1, random_state=0), 2, "filter whole prompts"),
        (pd.concat([HEAD, HEAD.assign(proposer="b")]), 2, "'head', 'b'"),
    ],
)
def test_what_would_be_a_wrong_number_is_refused(starts, gamma, complaint):
    with pytest.raises(ValueError, match=complaint):
        replay_starts(starts, gamma)
