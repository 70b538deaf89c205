"""A synthetic pair whose texts, traces and trees are consistent. The target's and the draft's
next-token tables are random at every position and after every token, and everything else follows
from them. Tokens are 0 to 9.
"""

from types import SimpleNamespace

import numpy as np
import pandas as pd
from test_score import BEST, DEPTH, PARENT, RANK

from speclab.lab.texts import Text
from speclab.plain import DOMAINS

VOCAB = 10


def made_run(seed=0, sampled=False, prompts=6, length=40, tables=0):
    """A run of `prompts` texts in each of the four domains. Runs with the same `tables` share their
    next-token tables, whatever the seed of the drawn text and the temperature.
    """
    size = (4 * prompts, length + 3, VOCAB)  # room for three levels of the last tree
    rng = np.random.default_rng(tables)
    ease = rng.uniform(0.5, 2, (4 * prompts, 1, 1, 1))
    logits = rng.normal(0, 1.5, (*size, VOCAB))
    p = _softmax(logits)
    q = _softmax(logits + ease * rng.normal(0, 1, logits.shape))
    draw = np.random.default_rng(seed)
    who = np.arange(4 * prompts)
    text, last = np.zeros(size[:2], int), np.zeros((*size[:2], 2, VOCAB))
    before = np.zeros(4 * prompts, int)
    for t in range(size[1]):
        p_t, q_t = p[who, t, before], q[who, t, before]
        last[:, t] = np.stack([p_t, q_t], axis=1)
        before = p_t.argmax(1)
        if sampled:
            before = np.array([draw.choice(VOCAB, p=row) for row in p_t])
        text[:, t] = before
    domain = np.repeat(DOMAINS, prompts * length)
    names = np.repeat([f"p{i:03d}" for i in who], length)
    place = np.tile(np.arange(length), 4 * prompts)
    at = pd.DataFrame({"prompt_id": names, "domain": domain, "position": place})
    own = last[:, :length].reshape(-1, 2, VOCAB)
    token = text[:, :length].ravel()
    trace = at.assign(
        token=token,
        draft_rank=_rank(own[:, 1], token),
        p_token=own[np.arange(len(token)), 0, token],
        q_token=own[np.arange(len(token)), 1, token],
        overlap=own.min(axis=1).sum(axis=1),
        target_entropy=_entropy(own[:, 0]),
        draft_entropy=_entropy(own[:, 1]),
    )
    manifest = {"profile": {"temperature": 1.0 * sampled, "seed": seed}, "pair": {}}
    nodes = _trees(at, p, q, text[:, :length], length)
    return SimpleNamespace(trace=trace, nodes=nodes, manifest=manifest)


def _trees(at, p, q, text, length):
    """The paper's tree of 2 + 4 + 2 nodes at every position, in the order of `at`."""
    who = np.repeat(np.arange(len(text)), length)
    place = np.tile(np.arange(length), len(text))
    before = np.concatenate([np.zeros((len(text), 1), int), text[:, :-1]], axis=1)
    tokens, parts = {0: before.ravel()}, []
    for node, (parent, depth, rank) in enumerate(zip(PARENT, DEPTH, RANK, strict=True), 1):
        of_p, of_q = (t[who, place + depth - 1, tokens[parent]] for t in (p, q))
        token = np.argsort(-of_q, axis=1, kind="stable")[:, rank]
        tokens[node] = token
        row = np.arange(len(at))
        parts.append(
            at.assign(
                node=node,
                parent=parent,
                depth=depth,
                rank=rank,
                best_path=BEST[node - 1],
                target_prob=of_p[row, token],
                draft_prob=of_q[row, token],
                target_rank=_rank(of_p, token),
                target_entropy=_entropy(of_p),
            )
        )
    return pd.concat(parts).sort_values(["prompt_id", "position", "node"], ignore_index=True)


def _softmax(logits):
    raised = np.exp(logits)
    return raised / raised.sum(axis=-1, keepdims=True)


def _entropy(p):
    return -(p * np.log(p)).sum(axis=1)


def _rank(p, token):
    """Number of tokens that are more likely than the given token."""
    return (p > p[np.arange(len(p)), token][:, None]).sum(axis=1)


def made_text(*seeds, **made):
    """Texts of the synthetic pair, greedy or sampled with these seeds."""
    runs = [made_run(seed, True, **made) for seed in seeds] or [made_run(**made)]
    return Text.of(*runs)
