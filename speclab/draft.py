"""Drafting. A block is a chain, a static tree or a dynamic tree from the draft model, over its
rolled-back cache. With prompt lookup it is a copy from the text so far if enough of the last tokens
occurred before.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from speclab.copying import MOST, copied
from speclab.model import KVCache, LanguageModel, over_trunk
from speclab.plain import Array
from speclab.sampling import Sampling, fetched, probabilities, rank_key
from speclab.shapes import Shape
from speclab.tree import Tree, chain
from speclab.verify import RULES, draw_children


@dataclass(frozen=True)
class Proposal:
    """Drafted tokens: `tree`, `tokens` int64 [N + 1] (entry 0 unused), and `q` [N + 1, vocab] for
    rules that need it.

    run: the nodes over which the draft ran, in the order of its cache. The root (the context's last
    token) comes first; -1 is a node that is not in the tree. The list is empty if the draft did not
    run. copied: the tokens are a copy from the context, not drafted by the model.
    """

    tree: Tree
    tokens: Array
    q: Tensor | None
    run: list[int]
    copied: bool = False


def propose(
    draft: LanguageModel,
    cache: KVCache,
    context: list[int],
    shape: Shape,
    remaining: int,
    rule: str,
    sampling: Sampling,
    rng: np.random.Generator | None,
) -> Proposal:
    """Draft one block after the context, at most `remaining` tokens deep. The drafted nodes stay in
    the draft's cache. A copy leaves this cache unchanged; the next block from the draft model then
    runs the tokens that the cache lacks.
    """
    if shape.lookup:
        tokens = copied(context, shape.lookup, min(MOST, remaining))
        if len(tokens):
            return Proposal(chain(len(tokens)), np.append(0, tokens), None, [], copied=True)
    text = _Text(draft, cache, context)
    if shape.tree is None:
        return _dynamic(text, shape, min(shape.depth, remaining), sampling)
    source = rng if RULES[rule].sampled else None
    return _static(text, shape.tree.upto(remaining), shape.stop, sampling, source)


@dataclass(frozen=True)
class _Text:
    """A text, and the draft model that continues it."""

    draft: LanguageModel
    cache: KVCache
    context: list[int]

    def logits_after(self, tokens: Array, sees: Array) -> Tensor:
        """Logits [k, vocab] after the nodes of one level.

        sees: bool [k, nodes]: which of the nodes run so far (and of this level) each node may
        attend to. If no node was run yet, the logits are those after the root.
        """
        positions = visible = None
        if not sees.size:
            tokens = np.array(self.context[self.cache.length :])
        elif not sees.all():
            depth = int(sees[0].sum())
            above = len(self.context) - 1 + depth
            positions = torch.full(tokens.shape, above)
            visible = over_trunk(len(self.context), torch.from_numpy(sees))
        new = torch.from_numpy(tokens)[None]
        hidden = self.draft.forward(new, self.cache, positions, visible)
        return self.draft.logits(hidden[0, -len(sees) :])


def _static(
    text: _Text,
    tree: Tree,
    stop: float,
    sampling: Sampling,
    rng: np.random.Generator | None,
) -> Proposal:
    """The tokens of a static tree: the draft's best tokens, or drawn from its distributions with
    `rng`.
    """
    tokens = np.zeros(tree.size + 1, dtype=np.int64)
    q = None
    if rng is not None:
        shape = tree.size + 1, text.draft.vocab
        q = torch.zeros(shape, device=text.draft.device)
    run: list[int] = []
    for depth, level in enumerate(tree.levels):
        run += level.parents.tolist()
        logits = text.logits_after(tokens[level.parents], level.sees)
        if stop and probabilities(logits[0], sampling).max() < stop:
            tree = tree.upto(depth)
            break
        widest = int(level.widths.max())
        if rng is None or q is None:
            children = rank_key(logits).topk(widest).indices
        else:  # a parent with fewer children uses the first drawn tokens
            coins = np.zeros((len(level.widths), widest))
            is_used = np.arange(widest) < level.widths[:, None]
            coins[is_used] = rng.random(level.widths.sum())
            rows = probabilities(logits, sampling)
            q[level.parents.tolist()] = rows
            children = draw_children(rows, widest, coins)
        words = fetched(logits, "draft", children)
        tokens[level.children] = words[level.row, level.rank]
    kept = tree.size + 1
    if q is not None:
        q = q[:kept]
    return Proposal(tree, tokens[:kept], q, run)


def _dynamic(text: _Text, shape: Shape, depth: int, sampling: Sampling) -> Proposal:
    """EAGLE-2's expansion and reranking (arXiv:2406.16858), with the draft's own probabilities as
    confidence.

    A node's score is the log probability of its path. The tree grows level by level, and the best
    `budget` nodes are kept. A child never scores above its parent, so the kept nodes form a tree.
    """
    width = min(shape.branches, text.draft.tokens_said)
    # the root: parent, rank, depth and token, and its score
    root = [[-1], [0], [0], [0]]
    levels = [np.array(root)]
    scores = [np.zeros(1)]
    kept = frontier = np.array([0])
    count = 1
    run: list[int] = []
    sees: Array = np.zeros((1, 0), dtype=bool)
    for level in range(1, depth + 1):
        run += frontier.tolist()
        logits = text.logits_after(levels[-1][3, kept], sees)
        best = rank_key(logits).topk(width).indices  # [frontier, width]
        log_q = probabilities(logits, sampling).gather(-1, best).log()
        both = fetched(logits, "draft", torch.hstack([best, log_q.double()]))
        words, gain = np.hsplit(both, 2)
        family, rank = np.divmod(np.arange(gain.size), width)
        deep = np.full_like(rank, level)
        tokens = words.ravel().astype(np.int64)
        levels.append(np.stack((frontier[family], rank, deep, tokens)))
        score_above = scores[-1][kept]
        scores.append(score_above[family] + gain.ravel())
        kept = _best(scores[-1], shape.branches)
        itself = np.eye(len(kept), dtype=bool)
        sees = np.hstack([sees[family[kept]], itself])
        frontier = count + kept
        count += gain.size
    # the best nodes of all levels become the tree
    best_nodes = _best(np.hstack(scores[1:]), shape.budget)
    order = np.append(0, 1 + best_nodes)
    parent, rank, deep, tokens = np.hstack(levels)[:, order]
    parents = np.searchsorted(order, parent[1:])
    tree = Tree(np.append(-1, parents), rank, deep)
    is_kept = np.isin(run, order)
    places = np.where(is_kept, np.searchsorted(order, run), -1)
    return Proposal(tree, tokens, None, places.tolist())


def _best(score: Array, count: int) -> Array:
    """Indices of the `count` highest scores, in ascending order. Among equal scores the earlier
    index wins.
    """
    order = np.argsort(-score, kind="stable")
    return np.sort(order[:count])
