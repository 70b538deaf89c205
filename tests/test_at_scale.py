"""Notebook 15's study: acceptance by depth, tokens of texts, a draft and copies together, and time,
by hand on made-up starts.
"""

import numpy as np
import pandas as pd
import pytest

from speclab.analysis import combined
from speclab.analysis import specdecode_bench as traces
from speclab.analysis import specdecode_cost as cost
from speclab.runs import FilesMissing
from speclab.studies import at_scale as study

ACCEPTED = [
    2,
    0,
    1,
    3,
    2,
    1,
    0,
]  # of a text of eight tokens, its first one by the prompt
TEXT = [7, 1, 2, 3, 1, 2, 3, 9]  # positions 5 and 6 copy what followed "1" and "1 2"


def starts_of(*accepted, domain="code"):
    """Starts of EAGLE in as many prompts, and the texts."""
    frames, texts = [], []
    for number, one in enumerate(accepted):
        size = len(one)
        name = f"{domain}-{number}"
        columns = {
            "prompt_id": name,
            "domain": domain,
            "position": range(1, size + 1),
            "proposer": traces.EAGLE,
            "accepted": one,
            "remaining": range(size, 0, -1),
            "limit": traces.LIMIT,
            "prompt_tokens": 10,
        }
        frames.append(pd.DataFrame(columns))
        texts.append((name, domain, np.array([5]), np.array(TEXT)))
    columns = ["prompt_id", "domain", "prompt_token_ids", "generated_token_ids"]
    starts = pd.concat(frames, ignore_index=True)
    return starts.assign(hit=starts["accepted"] > 0), pd.DataFrame(
        texts, columns=columns
    )


@pytest.fixture
def alike():
    """Five prompts of the same text: every interval is a point."""
    return starts_of(*[ACCEPTED] * 5)


def test_tokens_a_pass_by_hand(alike):
    found = study.per_pass({"EAGLE": alike[0]}, [1, 2]).at(domain="code")
    # gamma 1: blocks at 1 (2 tokens), 3 (2), 5 (2), 7; gamma 2: at 1 (3), 4 (3), 7
    assert found.at(gamma=1).value == 7 / 4 and found.at(gamma=2).value == 7 / 3


def test_by_depth_a_new_block_is_asked_at_the_same_places(alike):
    found = study.next_accepted(alike[0], 3)
    # first token accepted at 1, 3, 4, 5, 6; the text goes on behind all of them
    second = found[2]
    assert second[study.EVERYWHERE]["code"][0] == 5 / 7
    assert second[study.DEEPER]["code"][0] == 3 / 5  # at 1, 4, 5
    assert second[study.AFRESH]["code"][0] == 3 / 5  # at 4, 5, 6; not at 2, 7
    third = found[3]  # of 1, 4, 5: the third of 4 only; new blocks at 3, 6, not at 7
    assert third[study.DEEPER]["code"][0] == 1 / 3
    assert third[study.AFRESH]["code"][0] == 2 / 3


def test_tokens_of_texts_are_counted_from_0_in_each(alike):
    rows = study.tokens_of(alike[1])
    assert rows["token"].tolist() == TEXT * 5
    assert rows["position"].tolist() == list(range(8)) * 5


def test_the_oracle_takes_the_better_one_at_each_place(alike):
    both = study.beside_copies(*alike)
    one = both[both["prompt_id"] == "code-0"]
    assert one["copied"].tolist() == [0, 0, 0, 0, 2, 1, 0]
    judged = study.best_of_both(both, 1).judged
    # blocks at 1 (2 tokens), 3 (2), 5 (a copy of 2, and one more)
    assert judged["emitted"].tolist() == [7] * 5 and judged["cost"].tolist() == [3] * 5


def test_time_prices_are_those_of_the_blocks(alike):
    both = study.beside_copies(*alike)
    prices = study.time_prices(both, 1, 8, "token")
    row = prices.judged("chain:1+lookup:1").iloc[0]
    blocks = pd.DataFrame(
        {
            "prompt_id": "code-0",
            "domain": "code",
            "start": [1, 3, 5],
            "drafted": [1, 1, 3],  # a copy is no longer than what remains
            "emitted": [2, 2, 3],
            "prompt_tokens": 10,
            "price": ["token", "token", "lookup"],
        }
    )
    (wanted,) = cost.times(blocks, 8).to_dict("records")
    assert (
        row["cost"] == wanted["speculative_s"] and row["emitted"] == wanted["plain_s"]
    )
    assert row["target_passes"] == 3
    ways = study.ways_in_time(both, 1, 8, "token")
    assert set(ways[combined.BOTH].judged["setting"]) == {"chain:1+lookup:1"}


def test_without_the_files_one_line_says_how_to_get_them(monkeypatch):
    monkeypatch.setattr(traces, "read_traces", lambda: None)
    with pytest.raises(
        FilesMissing, match="python -m speclab fetch specdecode-bench"
    ) as error:
        study.traces_here()
    assert "\n" not in str(error.value)
