"""Notebook 01's study: which tree is drawn, what its tables hold, and the words about the pair."""

import numpy as np
import pandas as pd
import pytest

from speclab.prompts import EncodedPrompt, Prompt
from speclab.studies import load_models as study
from speclab.tree import static_tree

TREE = static_tree(2, 2)  # nodes 1, 2 at depth 1; 3, 4 below 1; 5, 6 below 2


class Tokenizer:
    """Token 0 is a space, token i the word wi."""

    def decode(self, ids, skip_special_tokens=False):
        return "".join(" " if i == 0 else f"w{i}" for i in ids)

    def __call__(self, text):
        return {"input_ids": list(text[::2])}


def nodes_of(*trees) -> pd.DataFrame:
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
    assert study.wanted_tree(nodes, TREE, 2, blank=[0]) == ("a", 1), (
        "nothing below to reject"
    )


def test_lengths_of_prompts_by_hand():
    prompts = [Prompt("a", "chat", "four"), Prompt("b", "chat", "sixsix")]
    encoded = [
        EncodedPrompt("a", "chat", (1, 2), 0),
        EncodedPrompt("b", "chat", (1, 2, 3), 4),
    ]
    row = study.lengths_by_domain(Tokenizer(), prompts, encoded).loc["chat"]
    assert row.tolist() == [2, 2, 3, 1, 2.0], "2 + 3 tokens of the user's words"
    templated = [
        EncodedPrompt(one.prompt_id, "chat", (*range(9), *one.ids), 0)
        for one in encoded
    ]
    row = study.lengths_by_domain(Tokenizer(), prompts, templated).loc["chat"]
    assert row.tolist() == [2, 11, 12, 0, 2.0], "a template is no word of the user's"


def test_distributions_sum_to_one_and_to_the_overlap():
    position = pd.Series(
        {
            "top_draft_q": np.array([0.6, 0.3]),
            "top_draft_p": np.array([0.3, 0.5]),
            "top_draft_ids": np.array([1, 2]),
            "overlap": 0.7,
        }
    )
    table = study.distributions(position, Tokenizer())
    assert list(table.index) == ["w1", "w2", "all others"]
    assert table["smaller"].tolist() == pytest.approx([0.3, 0.3, 0.1])
    assert table[["p", "q"]].sum().tolist() == pytest.approx([1, 1])
