"""Notebook 01's study: which tree is drawn, the content of its tables, and the sentences about the
pair.
"""

import numpy as np
import pandas as pd
import pytest

from speclab.studies import load_models as study
from speclab.tree import static_tree

TREE = static_tree(2, 2)  # nodes 1, 2 at depth 1; 3, 4 below 1; 5, 6 below 2


def test_the_bytes_of_keys_and_values_are_those_of_the_cache(random_pair):
    heads, width, layers = 2, 8, 2
    found = study.models(random_pair).loc["target", "kv_kb"]
    assert found == 2 * layers * heads * width * 4 / 1000


class Tokenizer:
    """Token i is the word wi."""

    def decode(self, ids):
        return "".join(f"w{i}" for i in ids)


def nodes_of(*trees):
    """One tree a position of prompt `a`: (accepted nodes, tokens of all nodes)."""
    parts = [
        pd.DataFrame(
            {
                "prompt_id": "a",
                "position": position,
                "node": np.arange(1, TREE.size + 1),
                "token": tokens,
                "accepted": np.isin(np.arange(1, TREE.size + 1), accepted).astype(int),
            }
        )
        for position, (accepted, tokens) in enumerate(trees)
    ]
    return pd.concat(parts, ignore_index=True)


def test_the_tree_drawn_rejects_below_what_it_accepts():
    full, one, none = [1, 3], [1], []
    words, spaces = range(1, 7), [1, 2, 0, 3, 4, 5]
    nodes = nodes_of((none, words), (full, words), (one, spaces), (one, words))
    assert study.wanted_tree(nodes, TREE, 1, blank=[0]) == ("a", 3), "no white space"
    assert study.wanted_tree(nodes, TREE, 1, blank=[]) == ("a", 2)
    assert study.wanted_tree(nodes, TREE, 0, blank=[0]) == ("a", 0)
    assert study.wanted_tree(nodes, TREE, 2, blank=[0]) == ("a", 1), "nothing below to reject"


def trace_of(overlap, q, p):
    """Positions of a trace: the draft's best tokens are 0, 1, …"""
    ids = [list(range(len(row))) for row in q]
    columns = {"overlap": overlap, "top_draft_ids": ids, "top_draft_q": q, "top_draft_p": p}
    return pd.DataFrame({"prompt_id": "a", "position": range(len(q))} | columns)


def test_favourites_and_all_others_sum_to_the_whole():
    trace = trace_of([0.7], [[0.6, 0.3]], [[0.3, 0.5]])
    table = study.favourites(trace.iloc[0], Tokenizer())
    assert list(table.index) == ["w0", "w1", "all others"]
    assert table["shared"].tolist() == pytest.approx([0.3, 0.3, 0.1])
    few = trace_of([0.7], [[0.9, 0.001, 0.001, 0.002]], [[0.3, 0.5, 0.001, 0.1]])
    assert list(study.favourites(few.iloc[0], Tokenizer()).index) == [
        "w0",
        "w1",
        "w3",
        "all others",
    ]
    assert table[["p", "q"]].sum().tolist() == pytest.approx([1, 1])


def test_the_position_of_an_overlap_shares_the_second_choice():
    q = [[0.6, second] for second in (0.1, 0.3, 0.4)]
    trace = trace_of([0.59, 0.61, 0.9], q, q)
    assert study.near_overlap(trace, 0.6)["position"] == 1
    assert study.near_overlap(trace, 1.0)["position"] == 2, "else the nearest one"
