"""The recorder. It first writes the target's text. It then scores the draft tree of every position,
those of several prompts in a few packed passes over their cached texts.

The context advances by the target's own tokens, whatever is accepted, so the text does not depend
on the trees. The reference is the literal step-by-step procedure in tests/literal.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from speclab.model import KVCache, LanguageModel, Pair
from speclab.plain import Array, EncodedPrompt
from speclab.sampling import (
    NonFiniteProbability,
    Sampling,
    check_finite,
    probabilities,
    rank_key,
    rank_of,
    sample,
    uniforms,
)
from speclab.tree import Tree, chain

TOP = 8  # draft tokens kept per trace row
ROWS = 256  # vocabulary-sized rows whose logits are computed at once
CACHED = 2**20  # logits that a CPU reduces at once: further sweeps over them stay in its caches
# logarithm of float32's smallest positive number, which a GPU may flush to 0
LEAST = -149 * np.log(2)
LONGEST = 16  # drafted tokens of a block that are recorded of a draft whose q depends on the start


Columns = dict[str, Array]
Rows = dict[str, Tensor]  # values by column, one row each per position or node


@dataclass(frozen=True)
class Recorded:
    """Columns of `trace` and `nodes` for one prompt, without prompt_id and domain."""

    trace: Columns
    nodes: Columns


# ---- 1. the target's own text --------------------------------------------------------------------


def _joined(model: LanguageModel, caches: Sequence[KVCache], room: int) -> KVCache:
    """One cache of several texts, a row of the batch each, with zeros after the shorter ones, and
    with `room` for further tokens. The caches are emptied.
    """
    if len(caches) == 1:
        return caches[0]
    longest = max(cache.length for cache in caches)
    joined = model.cache(longest + room)
    for layer in list(caches[0].layers):
        buffers = [(cache.length, cache.layers.pop(layer)) for cache in caches]
        joined.layers[layer] = [
            torch.cat(
                [
                    pad(both[which][..., :length, :], (0, 0, 0, longest + room - length))
                    for length, both in buffers
                ]
            )
            for which in (0, 1)
        ]
    joined.length = longest
    return joined


def generate(
    model: LanguageModel,
    prompts: Sequence[EncodedPrompt],
    max_new_tokens: int,
    stop_ids: frozenset[int],
    sampling: Sampling,
    seed: int,
) -> list[tuple[int, ...]]:
    """Continuations of several prompts at once by the target alone, greedy or sampled. The stop
    token is included.

    The uniforms depend only on (seed, prompt_id), so a sampled text does not depend on the other
    prompts of its batch. Raises NonFiniteProbability, and ValueError for prompt ids outside the
    shared vocabulary.
    """
    # one pass over each prompt; then all prompts in one cache
    caches, states = [], []
    for prompt in prompts:
        model.check_ids(prompt.ids)
        model.check_length(len(prompt.ids) + max_new_tokens)
        caches.append(model.cache(len(prompt.ids)))
        states.append(model.forward(torch.tensor([prompt.ids]), caches[-1])[:, -1:])
    cache, hidden = _joined(model, caches, max_new_tokens), torch.cat(states)
    # a token sees its prompt and the text so far, which begins after the longest prompt
    device, longest = model.device, cache.length
    lengths = torch.tensor([[len(prompt.ids)] for prompt in prompts], device=device)
    place = torch.arange(longest + max_new_tokens, device=device)
    seen = ((place < lengths) | (place >= longest))[:, None]
    coins = [uniforms(seed, prompt.prompt_id, max_new_tokens) for prompt in prompts]
    drawn = torch.tensor(np.stack(coins), device=device)
    stops = torch.tensor(sorted(stop_ids), device=device)
    # token by token, until every text has ended
    live = torch.ones(len(prompts), dtype=torch.bool, device=device)
    written = []
    for step in range(max_new_tokens):
        logits = model.logits(hidden[:, -1])
        check_finite(logits, "target")
        if sampling.greedy:
            token = rank_key(logits).argmax(-1)
        else:
            token = sample(probabilities(logits, sampling), drawn[:, step])
        written.append(torch.where(live, token, -1))
        live = live & ~torch.isin(token, stops)
        if not live.any() or step + 1 == max_new_tokens:
            break
        visible = seen[..., : longest + step + 1]
        hidden = model.forward(token[:, None], cache, lengths + step, visible)
    texts = torch.stack(written, 1).tolist()
    return [tuple(token for token in text if token >= 0) for text in texts]


# ---- 2. reductions of vocabulary-sized rows ------------------------------------------------------


class _Distributions:
    """Rows of both models: logits `l_p` [rows, vocab] and `l_q` [rows, m], probabilities `p` and
    `q`, keys of ranks, and entropies.

    said: the token ids of the draft's columns, if it is trimmed; a last column then stands for all
    tokens that it cannot output.
    """

    def __init__(self, l_p: Tensor, l_q: Tensor, said: Tensor | None, sampling: Sampling):
        self.p, self.q = probabilities(l_p, sampling), probabilities(l_q, sampling)
        self.key_p, self.key_q = rank_key(l_p), rank_key(l_q)
        # logarithms of at least LEAST, so that 0 log 0 = 0
        log_p, self.log_q = (x.log().clamp_(min=LEAST) for x in (self.p, self.q))
        self.p_log_p = _dot(self.p, log_p)
        entropy = -_dot(self.q, self.log_q)
        self.entropies = {"target_entropy": -self.p_log_p, "draft_entropy": entropy}
        self.said = said

    def best_of_draft(self, count: int) -> tuple[Tensor, Tensor]:
        """The draft's `count` best tokens [rows, count]: their columns, and their ids."""
        columns = self.key_q.topk(count).indices
        return columns, columns if self.said is None else self.said[columns]

    def children(self, width: int) -> Rows:
        """Columns of `nodes` for the draft's `width` best tokens, [rows, width] each."""
        columns, token = self.best_of_draft(width)
        rank = torch.empty_like(token)
        for place in range(width):
            rank[:, place] = rank_of(self.key_p, token[:, place])
        return {
            "token": token,
            "draft_prob": self.q.gather(-1, columns),
            "target_prob": self.p.gather(-1, token),
            "target_rank": rank,
        } | {name: value[:, None].expand(-1, width) for name, value in self.entropies.items()}

    def trace(self, token: Tensor, column: Tensor, top: int) -> Rows:
        """Columns of `trace` for the text's tokens [rows], which the draft has at `column`."""
        best = self.key_p.topk(2).indices
        margin = self.p.gather(-1, best)
        columns, top_ids = self.best_of_draft(top)
        p = self.p
        if self.said is not None:  # in the draft's columns, with all other tokens as the last
            p = p[:, self.said]
            others = self.p.sum(-1, keepdim=True) - p.sum(-1, keepdim=True)
            p = torch.cat([p, others.clamp(min=0)], 1)
        return {
            "token": token,
            "draft_rank": rank_of(self.key_q, column),
            "p_token": self.p.gather(-1, token[:, None])[:, 0],
            "q_token": self.q.gather(-1, column[:, None])[:, 0],
            "overlap": torch.minimum(p, self.q).sum(-1).clamp(max=1),
            # KL(p||q): a token that q excludes adds 103 nats times its p
            "kl": (self.p_log_p - _dot(p, self.log_q)).clamp(min=0),
            "target_top": best[:, 0],
            "draft_top": top_ids[:, 0],
            "target_margin": margin[:, 0] - margin[:, 1],
            "top_draft_ids": top_ids,
            "top_draft_q": self.q.gather(-1, columns),
            "top_draft_p": self.p.gather(-1, top_ids),
        } | self.entropies


def _dot(x: Tensor, y: Tensor) -> Tensor:
    """Sums [rows] of the products of two [rows, columns]. torch's sum adds in pairs; its matrix
    product adds one by one, which loses three digits over 50,000 columns.
    """
    return (x * y).sum(-1)


def _rows(
    pair: Pair, hidden: list[Tensor], token: Tensor, sampling: Sampling
) -> Iterator[tuple[_Distributions, Tensor, Tensor]]:
    """A few rows of hidden states at a time, with their tokens, and the tokens' columns among the
    draft's logits. All are on the target's device.
    """
    device = hidden[0].device
    kept = None if pair.draft.kept is None else pair.draft.kept.to(device)
    for start in range(0, len(token), ROWS):
        part = slice(start, start + ROWS)
        wanted = column = token[part].to(device)
        l_p = pair.target.logits(hidden[0][part])
        l_q = pair.draft.kept_logits(hidden[1][part]).to(device)
        if kept is not None:  # a last column stands for all tokens that the draft cannot output
            place = torch.searchsorted(kept, wanted).clamp(max=len(kept) - 1)
            column = place.where(kept[place] == wanted, len(kept))
            l_q = pad(l_q, (0, 1), value=-torch.inf)
        few = ROWS if l_p.is_cuda else max(1, CACHED // l_p.shape[1])
        together = l_p, l_q, wanted, column
        for p, q, word, place in zip(*(torch.split(rows, few) for rows in together), strict=True):
            yield _Distributions(p, q, kept, sampling), word, place


def _stacked(parts: list[Rows]) -> Rows:
    """Columns of several parts as one table on the CPU."""
    return {name: torch.cat([part[name].cpu() for part in parts]) for name in parts[0]}


def _check_finite(columns: Columns, prompt_id: str) -> None:
    """Raise NonFiniteProbability if an entropy is not finite, which follows from any probability of
    the row that is not finite.
    """
    for which in ("target", "draft"):
        bad = ~np.isfinite(columns[f"{which}_entropy"])
        if bad.any():
            raise NonFiniteProbability(
                f"the {which} gave a non-finite probability at prompt {prompt_id}, "
                f"position {columns['position'][bad.argmax()]}, so this prompt is not "
                "recorded. In half precision, try dtype=float32 for this model"
            )


# ---- 3. the trees of all positions, level by level -----------------------------------------------


def _read(
    pair: Pair, prompt: EncodedPrompt, text: tuple[int, ...]
) -> tuple[Tensor, Tensor, KVCache, KVCache]:
    """Hidden states [n, d] of target and draft that predict the n tokens of a text, and both
    caches, from one pass of each over prompt and text.
    """
    pair.target.check_ids(prompt.ids)
    tokens = torch.tensor([[*prompt.ids, *text[:-1]]])
    target, draft = (model.cache(tokens.shape[1]) for model in (pair.target, pair.draft))
    above = pair.target.forward(tokens, target)[0]
    if pair.target.features is not None:  # a head reads the text with them
        draft.take(pair.target.features[0, :-1])
    below = pair.draft.forward(tokens, draft)[0]
    return above[-len(text) :], below[-len(text) :], target, draft


def _visible(tree: Tree, trunk_length: int, contexts: Tensor, depth: int) -> Tensor:
    """Attention mask, bool [b, m * k, trunk + nodes so far], for `contexts` [b, m]. Each parent at
    a depth attends to the trunk up to its own position, and to its own ancestors.
    """
    level, (batch, count) = tree.levels[depth], contexts.shape
    sizes = [len(run.parents) for run in tree.levels[1 : depth + 1]]  # one pass per level
    sees = torch.from_numpy(level.sees)
    position = torch.eye(count, dtype=torch.bool)
    ancestors = [torch.kron(position, block).bool() for block in torch.split(sees, sizes, 1)]
    own = torch.cat(ancestors, 1).expand(batch, -1, -1)
    prefix = torch.arange(trunk_length) < contexts[..., None]
    return torch.cat([prefix.repeat_interleave(len(level.parents), 1), own], 2)


def _tree_rows(
    pair: Pair,
    tree: Tree,
    caches: list[KVCache],
    roots: Rows,
    contexts: Tensor,
    sampling: Sampling,
) -> Rows:
    """Records of all nodes of the trees after `contexts` [b, m] tokens of b texts; columns
    [b * m, N]. roots: of the roots' children.
    """
    batch, count = contexts.shape
    trunk_length, models = caches[0].length, (pair.target, pair.draft)
    columns: Rows = {}
    children = roots
    for depth, level in enumerate(tree.levels):
        k = len(level.parents)
        if depth:
            # one pass of each model over the parents of this depth, of all trees
            tokens = columns["token"][:, level.parents - 1].view(batch, count * k)
            positions = (contexts + depth - 1).repeat_interleave(k, 1)
            visible = _visible(tree, trunk_length, contexts, depth).squeeze(0)
            hidden = [
                model.forward(tokens, cache, positions, visible).flatten(0, 1)
                for model, cache in zip(models, caches, strict=True)
            ]
            width = int(level.widths.max())
            rows = _rows(pair, hidden, tokens.flatten(), sampling)
            children = _stacked([part.children(width) for part, _, _ in rows])
        for name, values in children.items():
            empty = torch.empty(batch * count, tree.size, dtype=values.dtype)
            of_level = values.view(batch * count, k, -1)[:, level.row, level.rank]
            columns.setdefault(name, empty)[:, level.children - 1] = of_level
    for cache in caches:
        cache.crop(trunk_length)
    return columns


def _block_rows(
    draft: LanguageModel, cache: KVCache, hidden: Tensor, text: Tensor, sampling: Sampling, few: int
) -> Rows:
    """Rank and probability of the text's next LONGEST tokens under a draft whose block begins at
    each position and follows the text, [n, LONGEST] each, `few` blocks at a time. hidden: the
    draft's states [n, d] that predict the text [n]. Entries after its end have no meaning.
    """
    trunk_length, n = cache.length, len(text)
    chunks = []
    for place in torch.split(torch.arange(n), few):  # of the blocks' first tokens
        contexts = trunk_length + 1 - n + place
        states = hidden[place[0] : place[-1] + 1]
        tokens = [text[(place + depth).clamp(max=n - 1)] for depth in range(LONGEST)]
        steps = []
        for depth, token in enumerate(tokens):
            if depth:
                visible = _visible(chain(LONGEST), trunk_length, contexts[None], depth)[0]
                before = tokens[depth - 1][None]
                states = draft.forward(before, cache, contexts + depth - 1, visible)[0]
            logits = draft.logits(states)
            chance = probabilities(logits, sampling).gather(-1, token[:, None])[:, 0]
            steps.append({"block_ranks": rank_of(rank_key(logits), token), "block_q": chance})
        cache.crop(trunk_length)
        chunks.append({name: torch.stack([step[name] for step in steps], 1) for name in steps[0]})
    return _stacked(chunks)


def record_prompt(
    pair: Pair,
    prompt: EncodedPrompt,
    continuation: tuple[int, ...],
    tree: Tree,
    sampling: Sampling,
    max_packed_tokens: int = 2048,
) -> Recorded:
    """`record_prompts` of one prompt."""
    return record_prompts(pair, [prompt], [continuation], tree, sampling, max_packed_tokens)[0]


def record_prompts(
    pair: Pair,
    prompts: Sequence[EncodedPrompt],
    texts: Sequence[tuple[int, ...]],
    tree: Tree,
    sampling: Sampling,
    max_packed_tokens: int = 2048,
) -> list[Recorded]:
    """Trace (one row per position) and nodes (one row per drafted node; no rows for `tree.PLAIN`)
    of prompts over given continuations. GLOSSARY.md defines the columns.

    For a head (`LanguageModel.by_start`) the trace also has block_ranks and block_q.

    Memory: the weights, both caches of the prompts that share a pass, and one packed chunk of at
    most `max_packed_tokens` nodes. The result does not depend on the chunk size. Raises
    NonFiniteProbability (with prompt and position). Raises ValueError if a node has more children
    than the draft has output tokens, or for ids outside the shared vocabulary.
    """
    models = pair.target, pair.draft
    pair.draft.check_branches(int(tree.width.max()))
    lengths = [len(text) for text in texts]
    inner = max(1, int((tree.width[1:] > 0).sum()))
    trees = max(1, max_packed_tokens // inner)  # in one pass
    # how many prompts share their passes; a head runs over one text at a time
    size = 1 if pair.draft.by_start else max(1, trees // max(lengths))
    if size < len(prompts):
        starts = range(0, len(prompts), size)
        parts = [(prompts[at : at + size], texts[at : at + size]) for at in starts]
        each = [record_prompts(pair, *part, tree, sampling, max_packed_tokens) for part in parts]
        return [recorded for part in each for recorded in part]
    # one pass of each model over each text
    read = [_read(pair, *both) for both in zip(prompts, texts, strict=True)]
    above, below, *caches = zip(*read, strict=True)
    hidden = [torch.cat(above), torch.cat(below)]
    # what the trace says of each position, and the first level of its tree
    tokens = torch.tensor([token for text in texts for token in text])
    top, width = min(TOP, pair.draft.tokens_said), int(tree.width[0])
    rows = [
        (part.trace(token, column, top), part.children(width))
        for part, token, column in _rows(pair, hidden, tokens, sampling)
    ]
    trace, roots = (_stacked([*parts]) for parts in zip(*rows, strict=True))
    if pair.draft.by_start:
        text = tokens.to(pair.draft.device)
        blocks = _block_rows(pair.draft, caches[1][0], hidden[1], text, sampling, max_packed_tokens)
        # the same numbers, from a pass of another shape
        blocks["block_ranks"][:, 0], blocks["block_q"][:, 0] = trace["draft_rank"], trace["q_token"]
        trace |= blocks
    # a tree at each position, several trees in a pass. Shorter texts are padded with the last row
    own_rows = [*torch.split(torch.arange(len(tokens)), lengths)]
    row = pad_sequence(own_rows, True, padding_value=-1)
    texts_so_far = [torch.arange(n) + len(one.ids) for one, n in zip(prompts, lengths, strict=True)]
    contexts = pad_sequence(texts_so_far, True, padding_value=1)
    few = max(1, trees // len(prompts))
    joined = [_joined(model, of, few * inner) for model, of in zip(models, caches, strict=True)]
    chunks = []
    for some, after in zip(*(torch.split(x, few, 1) for x in (row, contexts)), strict=True):
        own = {name: values[some.flatten()] for name, values in roots.items()}
        chunk = _tree_rows(pair, tree, joined, own, after, sampling)
        chunks.append({name: value.view(*some.shape, -1) for name, value in chunk.items()})
    nodes = {name: torch.cat([chunk[name] for chunk in chunks], 1)[row >= 0] for name in chunks[0]}
    # one record per prompt
    begins = np.cumsum([0, *lengths])
    return [
        _recorded(prompt.prompt_id, tree, *(_part(rows, at, n) for rows in (trace, nodes)))
        for prompt, at, n in zip(prompts, begins[:-1], lengths, strict=True)
    ]


def _part(rows: Rows, start: int, count: int) -> Columns:
    """Some rows of a table as arrays."""
    return {name: values[start : start + count].numpy() for name, values in rows.items()}


def _recorded(prompt_id: str, tree: Tree, trace: Columns, nodes: Columns) -> Recorded:
    """The record of one prompt, with the columns that the tree and the positions decide."""
    n = len(trace["token"])
    trace["position"] = np.arange(n)
    _check_finite(trace, prompt_id)
    for name in ("block_ranks", "block_q"):
        if name in trace:  # as far as the text goes
            lists = [row[: n - at] for at, row in enumerate(trace[name])]
            trace[name] = np.array([*lists, None], dtype=object)[:-1]
    nodes = {name: values.flatten() for name, values in nodes.items()}
    nodes["position"] = np.repeat(np.arange(n), tree.size)
    nodes["node"] = np.tile(np.arange(1, tree.size + 1), n)
    for name in ("parent", "depth", "rank", "best_path"):
        nodes[name] = np.tile(getattr(tree, name)[1:], n)
    if tree.size:
        _check_finite(nodes, prompt_id)
    return Recorded(trace, nodes)
