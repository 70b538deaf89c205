"""Notebook 00: speculative decoding on two models that fit on a page, word by word.

A model is a table: row = the last word, column = the next word (`analysis.rejection_rule`). The
kit's own rules make the decisions (`speclab.verify`, `speclab.decode`). This module lays them out.
"""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import torch

from speclab.analysis import rejection_rule
from speclab.decode import Step, decode
from speclab.estimates import Estimates, counted, stack
from speclab.models.model import LanguageModel
from speclab.models.pairs import Pair
from speclab.sampling import Sampling
from speclab.shapes import Shape
from speclab.tree import Tree, chain
from speclab.verify import RULES, Verdict, draw_children, verify

NAMES = ("rejection", "point-mass", "ratio", "typical")  # the rules of section 4
SAMPLING_ERROR = "expected sampling error"
LOOKS = {  # of the lines of section 4: none has the colour of a recovered or a bonus token
    "rejection": {"color": "#0072B2"},
    "point-mass": {"color": "#009E73"},
    "ratio": {"color": "#882255"},
    "typical": {"color": "#8C6D1F"},
    SAMPLING_ERROR: {"color": "#AAAAAA", "linewidth": 3, "marker": "", "linestyle": "-"},
}


# ---- blocks, coin by coin ------------------------------------------------------------------------


def block(
    p_table: np.ndarray,
    q_table: np.ndarray,
    last: int,
    drafted: Sequence[int],
    coins: Sequence[float],
) -> Step:
    """What `verify` decides about a chain of words after the word `last`, with given coins."""
    tokens = np.array([last, *drafted])
    rows = (torch.from_numpy(table)[tokens] for table in (p_table, q_table))
    shape = chain(len(drafted))
    uniforms = np.array(coins)
    verdict = verify("rejection", shape, tokens, *rows, uniforms)
    count = len(verdict.path)
    emitted = (*drafted[:count], verdict.token)
    return Step(emitted, count, len(drafted), verdict.kind)


def block_in_words(number: int, step: Step) -> str:
    """How many words a block gives, and why."""
    return (
        f"Block {number}: the target accepts {step.accepted} of "
        f"{counted(step.drafted, 'drafted word')} and adds a {step.kind} word. The target pass "
        f"gives {counted(len(step.tokens), 'word')}."
    )


# ---- is nothing lost? ----------------------------------------------------------------------------


def first_words(
    rule: str, p: np.ndarray, q: np.ndarray, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Draft one word, verify it and record the resulting word, `count` times. The word is drawn
    from q, or it is q's best word if the rule takes no drawn words.
    """
    rows = [torch.from_numpy(np.stack([row, row])) for row in (p, q)]
    child = int(q.argmax())
    came = []
    for _ in range(count):
        if RULES[rule].sampled:
            children = draw_children(rows[1][0], 1, rng.random(1))
            child = int(children[0])
        tokens = np.array([0, child])
        verdict = verify(rule, chain(1), tokens, *rows, rng.random(2))
        came.append(child if verdict.path else verdict.token)
    return np.array(came)


def exact_limit(rule: str, p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The exact distribution of the word that `first_words` records."""
    words = np.eye(len(p))
    limit = np.zeros(len(p))
    drawn = q if RULES[rule].sampled else words[q.argmax()]
    rows = torch.from_numpy(p), torch.from_numpy(q)
    for child in np.flatnonzero(drawn):
        kept, rest = RULES[rule].step(*rows, [int(child)])
        emitted = kept * words[child] + (1 - kept) * rest
        limit += drawn[child] * emitted.numpy()
    return limit


def distances(came: Mapping[str, np.ndarray], p: np.ndarray) -> Estimates:
    """Total variation distance between p and the shares of the first n words, at n = 8, 16, 32, …,
    by rule. SAMPLING_ERROR is the expected distance of words that follow p.
    """
    draws = len(next(iter(came.values())))
    n = 2 ** np.arange(3, draws.bit_length())
    lines = {}
    for rule, words in came.items():
        counts = np.eye(len(p))[words].cumsum(axis=0)[n - 1]
        shares = counts / n[:, None]
        lines[rule] = rejection_rule.total_variation(shares, p)
    # the expected |share - p| of many words
    variance = p * (1 - p)
    apart = np.sqrt(2 * variance / np.pi).sum() / 2
    lines[SAMPLING_ERROR] = apart / np.sqrt(n)
    return Estimates.exact("rule", lines, "words drawn", n)


# ---- a tree --------------------------------------------------------------------------------------


def best_tokens(tree: Tree, q: np.ndarray, last: int) -> np.ndarray:
    """The draft's best tokens on a tree after the word `last`; int64 [N + 1], root first. The child
    of rank r gets the r-th best word after its parent.
    """
    order = np.argsort(-q, axis=-1, kind="stable")  # of equal words the lower id first
    tokens = np.full(tree.size + 1, last)
    for node in range(1, tree.size + 1):
        above = tokens[tree.parent[node]]
        tokens[node] = order[above, tree.rank[node]]
    return tokens


def node_columns(tree: Tree, p: np.ndarray, q: np.ndarray, last: int) -> dict[str, np.ndarray]:
    """The columns of a `nodes` frame for a tree of the draft's best tokens after the word `last`:
    each [N], the root left out.
    """
    tokens = best_tokens(tree, q, last)
    above = tokens[tree.parent[1:]]
    token = tokens[1:]
    order = np.argsort(-p, axis=-1, kind="stable")
    ranks = np.argsort(order, axis=-1)
    columns: dict[str, Any] = {"node": np.arange(1, tree.size + 1)}
    for name in ("parent", "depth", "rank", "best_path"):
        columns[name] = getattr(tree, name)[1:]
    columns["token"] = token
    columns["draft_prob"] = q[above, token]
    columns["target_prob"] = p[above, token]
    columns["target_rank"] = ranks[above, token]
    return columns


def verdict_in_words(
    tree: Tree, verdict: Verdict, labels: Sequence[str], words: Sequence[str]
) -> str:
    """Which words of a tree the target accepts, and how many words the chain along the best path
    would give; labels: the word of each node.
    """
    path = list(verdict.path)
    accepted = f"*{' '.join(labels[node] for node in path)}*" if path else "no drafted word"
    on_best = int(tree.best_path[path].sum())
    return (
        f"The target accepts {accepted} and adds the {verdict.kind} word "
        f"*{words[verdict.token]}*. So this pass gives {counted(len(path) + 1, 'word')}. A chain "
        f"along the best path would give {counted(on_best + 1, 'word')}."
    )


# ---- estimators ----------------------------------------------------------------------------------


def records(
    tree: Tree, p_table: np.ndarray, q_table: np.ndarray
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The frames `nodes` and `trace` of a tree that is drafted once after each word, at temperature
    0.
    """
    hung = {
        word: pd.DataFrame(node_columns(tree, p_table, q_table, word))
        for word in range(len(p_table))
    }
    nodes = stack(hung, "position")
    order = np.argsort(-q_table, axis=1, kind="stable")
    targets_best = p_table.argmax(1)[:, None]
    shared = np.minimum(p_table, q_table)
    p_of_best = np.take_along_axis(p_table, order, 1)
    trace = {
        "overlap": shared.sum(1),
        "top_draft_p": list(p_of_best),
        "draft_rank": np.argmax(order == targets_best, axis=1),
    }
    return nodes.assign(prompt_id="five words"), pd.DataFrame(trace)


# ---- the kit's decoder on tables -----------------------------------------------------------------


def table_pair(p_table: np.ndarray, q_table: np.ndarray) -> Pair:
    """Two tables as a pair of language models. The logits after a word are the logarithms of its
    row.
    """

    def model(table: np.ndarray) -> LanguageModel:
        rows = torch.from_numpy(table).log().float()

        def body(input_ids: torch.Tensor, **_) -> SimpleNamespace:
            return SimpleNamespace(last_hidden_state=rows[input_ids])

        return LanguageModel(body, lambda hidden: hidden, len(table), torch.float32, "cpu")

    return Pair(model(p_table), model(q_table), None, frozenset(), {})


def simulated_blocks(
    pair: Pair, last: int, lengths: Mapping[int, int], rng: np.random.Generator
) -> pd.DataFrame:
    """Words per target pass as the decoder counts them at temperature 1, index gamma: simulated,
    standard error, blocks. lengths: how many words to decode with each gamma.
    """
    warm = Sampling(1.0)
    rows = []
    for gamma, length in lengths.items():
        shape = Shape(chain(gamma))
        steps = decode(pair, (last,), "rejection", shape, warm, length, rng)
        words = [len(step.tokens) for step in steps]
        whole = pd.Series(words[:-1])  # the last block is cut
        rows.append((gamma, whole.mean(), whole.sem(), len(whole)))
    columns = ["gamma", "simulated", "standard error", "blocks"]
    return pd.DataFrame(rows, columns=columns).set_index("gamma")


def formula_in_words(inside: int, total: int) -> str:
    """For how many of `total` values of gamma the formula agrees with the simulation."""
    return (
        f"For {inside} of {total} values of gamma, the formula's value lies in the 95 % interval "
        "of the simulated words per target pass."
    )


def rule_in_words(overlap: float, predicted: float, simulated: float) -> str:
    """The answer of notebook 00; predicted, simulated: words per target pass at gamma = 3."""
    return (
        f"The target's test accepts {100 * overlap:.0f} % of the draft's words, and the output "
        "follows the target's distribution exactly. With gamma = 3, a target pass gives "
        f"{predicted:.2f} words (simulated: {simulated:.2f}). The test is exact only if the draft "
        "draws its words at random."
    )
