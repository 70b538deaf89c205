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
Passes = dict[str, tuple[Tensor, KVCache]]  # by prompt_id: the states that predict a text's tokens


@dataclass(frozen=True)
class Recorded:
    """Columns of `trace` and `nodes` for one prompt, without prompt_id and domain."""

    trace: Columns
    nodes: Columns


# ---- 1. the target's own text --------------------------------------------------------------------


def _read(
    model: LanguageModel, tokens: Sequence[int], features: Tensor | None = None
) -> tuple[Tensor, KVCache]:
    """Hidden states [n, d] of a text of n tokens from one pass, and its cache. features: the
    target's [1, n, taps x d], for a head.
    """
    model.check_ids(tokens)
    cache = model.cache(len(tokens))
    if features is not None:
        cache.take(features[0, :-1])
    return model.forward(torch.tensor([tokens]), cache)[0], cache


def _joined(model: LanguageModel, caches: Sequence[KVCache], room: int) -> KVCache:
    """One cache of several texts, a row of the batch each, with zeros after the shorter ones, and
    with `room` for further tokens. The caches are emptied.
    """
    if len(caches) == 1:
        return caches[0]
    joined = model.cache()
    joined.length = max(cache.length for cache in caches)
    slots = joined.length + room
    for layer in list(caches[0].layers):
        joined.layers[layer] = []
        keys_and_values = zip(*(cache.layers.pop(layer) for cache in caches), strict=True)
        for parts in keys_and_values:
            padded = [pad(part, (0, 0, 0, slots - part.shape[-2])) for part in parts]
            joined.layers[layer].append(torch.cat(padded))
    return joined


def generate(
    model: LanguageModel,
    prompts: Sequence[EncodedPrompt],
    max_new_tokens: int,
    stop_ids: frozenset[int],
    sampling: Sampling,
    seed: int,
    passes: Passes | None = None,
) -> list[tuple[int, ...]]:
    """Continuations of several prompts at once by the target alone, greedy or sampled. The stop
    token is included. passes: takes what `record_prompts` would otherwise compute again (not
    for a head, which needs the target's features).

    The uniforms depend only on (seed, prompt_id), so a sampled text does not depend on the other
    prompts of its batch. Raises NonFiniteProbability, and ValueError for prompt ids outside the
    shared vocabulary.
    """
    # one pass over each prompt; then all prompts in one cache
    longest_prompt = max(len(prompt.ids) for prompt in prompts)
    model.check_length(longest_prompt + max_new_tokens)
    passes_over_prompts = [_read(model, prompt.ids) for prompt in prompts]
    read, caches = zip(*passes_over_prompts, strict=True)
    hidden = torch.stack([state[-1:] for state in read])
    cache = _joined(model, caches, max_new_tokens)
    # a token sees its prompt and the text so far, which begins after the longest prompt
    device = model.device
    longest = cache.length
    lengths = torch.tensor([[len(prompt.ids)] for prompt in prompts], device=device)
    place = torch.arange(longest + max_new_tokens, device=device)
    seen = ((place < lengths) | (place >= longest))[:, None]
    coins = [uniforms(seed, prompt.prompt_id, max_new_tokens) for prompt in prompts]
    drawn = torch.tensor(np.stack(coins), device=device)
    stops = torch.tensor(sorted(stop_ids), device=device)
    # token by token, until every text has ended
    live = torch.ones(len(prompts), dtype=torch.bool, device=device)
    written, states = [], [hidden]
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
        states.append(hidden)
    rows = torch.stack(written, 1).tolist()
    texts = [tuple(token for token in row if token >= 0) for row in rows]
    # the states and caches that the recorder needs again, without other texts' places
    if passes is not None and not model.taps:
        for row, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
            own = cache.of_row(row)
            slots_of_text = range(longest, longest + len(text) - 1)
            own.keep(len(prompt.ids), [*slots_of_text])
            above = torch.cat(states[: len(text)], 1)
            passes[prompt.prompt_id] = above[row], own
    return texts


# ---- 2. reductions of vocabulary-sized rows ------------------------------------------------------


class _Distributions:
    """Rows of both models: logits `l_p` [rows, vocab] and `l_q` [rows, m], probabilities `p` and
    `q`, keys of ranks, and entropies.

    kept: the token ids of the draft's columns, if it is trimmed; a last column then stands for all
    tokens that it cannot output.
    """

    def __init__(self, l_p: Tensor, l_q: Tensor, kept: Tensor | None, sampling: Sampling):
        if kept is not None:
            l_q = pad(l_q, (0, 1), value=-torch.inf)
        self.p = probabilities(l_p, sampling)
        self.q = probabilities(l_q, sampling)
        self.key_p = rank_key(l_p)
        self.key_q = rank_key(l_q)
        # logarithms of at least LEAST, so that 0 log 0 = 0
        log_p = self.p.log().clamp_(min=LEAST)
        self.log_q = self.q.log().clamp_(min=LEAST)
        self.p_log_p = _dot(self.p, log_p)
        entropy = -_dot(self.q, self.log_q)
        self.entropies = {"target_entropy": -self.p_log_p, "draft_entropy": entropy}
        self.kept = kept

    def best_of_draft(self, count: int) -> tuple[Tensor, Tensor]:
        """The draft's `count` best tokens [rows, count]: their columns, and their ids."""
        columns = self.key_q.topk(count).indices
        return columns, columns if self.kept is None else self.kept[columns]

    def children(self, width: int) -> Rows:
        """Columns of `nodes` for the draft's `width` best tokens, [rows, width] each."""
        columns, token = self.best_of_draft(width)
        ranks = [rank_of(self.key_p, of_rank) for of_rank in token.unbind(1)]
        shared = {name: value[:, None].expand(-1, width) for name, value in self.entropies.items()}
        return {
            "token": token,
            "draft_prob": self.q.gather(-1, columns),
            "target_prob": self.p.gather(-1, token),
            "target_rank": torch.stack(ranks, 1),
        } | shared

    def trace(self, token: Tensor, top: int) -> Rows:
        """Columns of `trace` for the text's tokens [rows]."""
        best = self.key_p.topk(2).indices
        margin = self.p.gather(-1, best)
        columns, top_ids = self.best_of_draft(top)
        p, column = self.p, token
        if self.kept is not None:  # in the draft's columns, with all other tokens as the last
            is_kept = torch.isin(token, self.kept)
            column = torch.searchsorted(self.kept, token).where(is_kept, len(self.kept))
            p = p[:, self.kept]
            rest = self.p.sum(-1, keepdim=True)
            rest -= p.sum(-1, keepdim=True)
            p = torch.cat([p, rest.clamp(min=0)], 1)
        p_token = self.p.gather(-1, token[:, None])
        q_token = self.q.gather(-1, column[:, None])
        overlap = torch.minimum(p, self.q).sum(-1)
        # KL(p||q): a token that q excludes adds 103 nats times its p
        kl = self.p_log_p - _dot(p, self.log_q)
        return {
            "token": token,
            "draft_rank": rank_of(self.key_q, column),
            "p_token": p_token[:, 0],
            "q_token": q_token[:, 0],
            "overlap": overlap.clamp(max=1),
            "kl": kl.clamp(min=0),
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
) -> Iterator[tuple[_Distributions, Tensor]]:
    """A few rows of hidden states at a time, with their tokens, on the target's device."""
    device = hidden[0].device
    kept = None if pair.draft.kept is None else pair.draft.kept.to(device)
    for above, below, word in zip(*(torch.split(x, ROWS) for x in (*hidden, token)), strict=True):
        l_p = pair.target.logits(above)
        l_q = pair.draft.kept_logits(below)
        few = ROWS if l_p.is_cuda else max(1, CACHED // l_p.shape[1])
        together = l_p, l_q.to(device), word.to(device)
        for p, q, words in zip(*(torch.split(x, few) for x in together), strict=True):
            yield _Distributions(p, q, kept, sampling), words


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


def _visible(tree: Tree, trunk_length: int, contexts: Tensor, depth: int) -> Tensor:
    """Attention mask, bool [b, m * k, trunk + nodes so far], for `contexts` [b, m]. Each parent at
    a depth attends to the trunk up to its own position, and to its own ancestors.
    """
    batch, count = contexts.shape
    level = tree.levels[depth]
    passes = tree.levels[1 : depth + 1]  # one per level
    sizes = [len(run.parents) for run in passes]
    sees = torch.from_numpy(level.sees)
    position = torch.eye(count, dtype=torch.bool)
    ancestors = [torch.kron(position, block) for block in torch.split(sees, sizes, 1)]
    own = torch.cat(ancestors, 1).expand(batch, -1, -1)
    prefix = torch.arange(trunk_length) < contexts[..., None]
    of_parents = prefix.repeat_interleave(len(level.parents), 1)
    return torch.cat([of_parents, own], 2)


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
    models = pair.target, pair.draft
    trunk_length = caches[0].length
    columns = {name: values[:, :0] for name, values in roots.items()}
    children = roots
    for depth, level in enumerate(tree.levels):
        k = len(level.parents)
        if depth:
            # one pass of each model over the parents of this depth, of all trees
            of_parents = columns["token"][:, level.parents - 1]
            tokens = of_parents.view(len(contexts), -1)
            positions = (contexts + depth - 1).repeat_interleave(k, 1)
            visible = _visible(tree, trunk_length, contexts, depth).squeeze(0)
            hidden = []
            for model, cache in zip(models, caches, strict=True):
                states = model.forward(tokens, cache, positions, visible)
                hidden.append(states.flatten(0, 1))
            width = int(level.widths.max())
            rows = _rows(pair, hidden, tokens.flatten(), sampling)
            children = _stacked([part.children(width) for part, _ in rows])
        # each parent's children, as many as its tree has
        for name, values in children.items():
            by_tree = torch.unflatten(values, 0, (-1, k))
            of_level = by_tree[:, level.row, level.rank]
            columns[name] = torch.cat([columns[name], of_level], 1)
    for cache in caches:
        cache.crop(trunk_length)
    return columns


def _block_rows(
    draft: LanguageModel, cache: KVCache, trace: Rows, sampling: Sampling, few: int
) -> Rows:
    """Rank and probability of the text's next LONGEST tokens under a draft whose block begins at
    each position and follows the text, [n, LONGEST] each, `few` blocks at a time. Entries after the
    text's end have no meaning.
    """
    text = trace["token"].to(draft.device)
    trunk_length = cache.length
    chunks = []
    for place in torch.split(torch.arange(len(text)), few):  # of the blocks' first tokens
        contexts = trunk_length + 1 - len(text) + place
        # the first token of each block is in the trace; the others are drafted one by one
        token = text[place]
        ranks = [trace["draft_rank"][place]]
        chances = [trace["q_token"][place]]
        for depth in range(1, LONGEST):
            visible = _visible(chain(LONGEST), trunk_length, contexts[None], depth)[0]
            states = draft.forward(token[None], cache, contexts + depth - 1, visible)
            logits = draft.logits(states[0])
            following = (place + depth).clamp(max=len(text) - 1)
            token = text[following]
            ranks.append(rank_of(rank_key(logits), token).cpu())
            chance = probabilities(logits, sampling).gather(-1, token[:, None])
            chances.append(chance[:, 0].cpu())
        cache.crop(trunk_length)
        chunks.append({"block_ranks": torch.stack(ranks, 1), "block_q": torch.stack(chances, 1)})
    return _stacked(chunks)


def record_prompts(
    pair: Pair,
    prompts: Sequence[EncodedPrompt],
    texts: Sequence[tuple[int, ...]],
    tree: Tree,
    sampling: Sampling,
    max_packed_tokens: int = 2048,
    passes: Passes | None = None,
) -> list[Recorded]:
    """Trace (one row per position) and nodes (one row per drafted node; no rows for `tree.PLAIN`)
    of prompts over given continuations. GLOSSARY.md defines the columns.

    For a head (`LanguageModel.by_start`) the trace also has block_ranks and block_q. passes: of
    texts that `generate` has just written; used up here.

    Memory: the weights, both caches of the prompts that share a pass, and one packed chunk of at
    most `max_packed_tokens` nodes. The result does not depend on the chunk size. Raises
    NonFiniteProbability (with prompt and position). Raises ValueError if a node has more children
    than the draft has output tokens, or for ids outside the shared vocabulary.
    """
    models = pair.target, pair.draft
    pair.draft.check_branches(int(tree.width.max()))
    lengths = [len(text) for text in texts]
    has_children = tree.width[1:] > 0
    inner = max(1, int(has_children.sum()))
    trees = max(1, max_packed_tokens // inner)  # in one pass
    # how many prompts share their passes
    size = 1 if pair.draft.alone else max(1, trees // max(lengths))
    if size < len(prompts):
        how = tree, sampling, max_packed_tokens, passes
        recorded: list[Recorded] = []
        for start in range(0, len(prompts), size):
            some = slice(start, start + size)
            recorded += record_prompts(pair, prompts[some], texts[some], *how)
        return recorded
    # one pass of each model over each text; the last states predict its tokens
    known = passes or {}
    read = []
    for prompt, text in zip(prompts, texts, strict=True):
        tokens = (*prompt.ids, *text[:-1])
        of_text = slice(-len(text), None)
        if prompt.prompt_id in known:
            above, of_target = known.pop(prompt.prompt_id)
        else:
            above, of_target = _read(pair.target, tokens)
        below, of_draft = _read(pair.draft, tokens, pair.target.features)
        read.append((above[of_text], below[of_text], of_target, of_draft))
    above_all, below_all, *caches = zip(*read, strict=True)
    # what the trace says of each position, and the first level of its tree
    words = torch.tensor([token for text in texts for token in text])
    top = min(TOP, pair.draft.tokens_said)
    width = max(1, int(tree.width[0]))
    hidden = [torch.cat(above_all), torch.cat(below_all)]
    rows = [
        (part.trace(token, top), part.children(width))
        for part, token in _rows(pair, hidden, words, sampling)
    ]
    trace, roots = (_stacked([*parts]) for parts in zip(*rows, strict=True))
    if pair.draft.by_start:
        trace |= _block_rows(pair.draft, caches[1][0], trace, sampling, max_packed_tokens)
    # a tree at each position, several trees in a pass. Shorter texts are padded with the last row
    own_rows = [*torch.split(torch.arange(len(words)), lengths)]
    row = pad_sequence(own_rows, True, padding_value=-1)
    few = max(1, trees // len(prompts))
    joined = [_joined(model, of, few * inner) for model, of in zip(models, caches, strict=True)]
    begins = torch.tensor([[len(prompt.ids)] for prompt in prompts])
    contexts = begins + torch.arange(max(lengths))
    contexts = contexts.clamp(max=joined[0].length)
    chunks = []
    for some, after in zip(*(torch.split(x, few, 1) for x in (row, contexts)), strict=True):
        own = {name: values[some.flatten()] for name, values in roots.items()}
        chunk = _tree_rows(pair, tree, joined, own, after, sampling)
        for name, value in chunk.items():
            chunk[name] = torch.unflatten(value, 0, some.shape)
        chunks.append(chunk)
    nodes = {}
    for name in roots:
        padded = torch.cat([chunk[name] for chunk in chunks], 1)
        nodes[name] = padded[row >= 0]
    # one record per prompt
    ends = np.cumsum(lengths)
    return [
        _recorded(prompt.prompt_id, tree, trace, nodes, slice(end - n, end))
        for prompt, end, n in zip(prompts, ends, lengths, strict=True)
    ]


def _recorded(prompt_id: str, tree: Tree, trace: Rows, nodes: Rows, rows: slice) -> Recorded:
    """The record of one prompt, with the columns that the tree and the positions decide."""
    columns = {name: values[rows].numpy() for name, values in trace.items()}
    place = np.arange(len(columns["token"]))
    columns["position"] = place
    for name in columns.keys() & {"block_ranks", "block_q"}:  # as far as the text goes
        lists = [values[: len(place) - at] for at, values in enumerate(columns[name])]
        as_objects = np.array([*lists, None], dtype=object)
        columns[name] = as_objects[:-1]
    drafted = {name: values[rows].flatten().numpy() for name, values in nodes.items()}
    drafted["position"] = np.repeat(place, tree.size)
    number = np.arange(1, tree.size + 1)
    drafted["node"] = np.tile(number, len(place))
    for name in ("parent", "depth", "rank", "best_path"):
        of_nodes = getattr(tree, name)[1:]
        drafted[name] = np.tile(of_nodes, len(place))
    for table in (columns, drafted):
        _check_finite(table, prompt_id)
    return Recorded(columns, drafted)
