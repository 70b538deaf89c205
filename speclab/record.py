"""The recorder. It first writes the target's text. It then scores the draft tree of every position
in a few packed passes over a cached trunk.

The context advances by the target's own tokens, whatever is accepted, so the text does not depend
on the trees. The reference is the literal step-by-step procedure in tests/literal.py.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import psutil
import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from speclab.model import KVCache, LanguageModel, Pair
from speclab.plain import Array, EncodedPrompt, Facts, notice
from speclab.sampling import (
    NonFiniteProbability,
    Sampling,
    check_finite,
    entropy,
    probabilities,
    rank_key,
    rank_of,
    sample,
    uniforms,
)
from speclab.study.pairs import load_pair
from speclab.study.profiles import MODELS, Profile
from speclab.tree import Tree, chain

TOP = 8  # draft tokens kept per trace row
ROWS = 256  # vocabulary-sized rows that are reduced at once
# logarithm of float32's smallest positive number, which a GPU may flush to 0
LEAST = -149 * np.log(2)
LONGEST = 16  # drafted tokens of a block that are recorded of a draft whose q depends on the start
SMALLEST = 8  # fewest packed tokens; if these do not fit into memory either, it is an error


Columns = dict[str, Array]


@dataclass(frozen=True)
class Recorded:
    """Columns of `trace` and `nodes` for one prompt, without prompt_id and domain."""

    trace: Columns
    nodes: Columns


# ---- 1. the target's own text --------------------------------------------------------------------


def _left_padded(prompts: Sequence[EncodedPrompt], room: int) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens [B, L], positions [B, L], and which positions may be attended to [B, L + room].
    Padding is on the left and is never attended to.
    """
    rows = [torch.tensor(prompt.ids) for prompt in prompts]
    tokens = pad_sequence(rows, True, padding_side="left")
    seen = pad_sequence([torch.ones_like(row) for row in rows], True, padding_side="left")
    positions = (seen.cumsum(1) - 1).clamp(min=0)
    return tokens, positions, pad(seen, (0, room), value=1).bool()


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
    for prompt in prompts:
        model.check_ids(prompt.ids)
        model.check_length(len(prompt.ids) + max_new_tokens)
    # prompts of different lengths end at the same column
    device = model.device
    padded = _left_padded(prompts, max_new_tokens)
    tokens, positions, seen = (part.to(device) for part in padded)
    coins = [uniforms(seed, prompt.prompt_id, max_new_tokens) for prompt in prompts]
    drawn = torch.tensor(np.stack(coins), device=device)
    stops = torch.tensor(sorted(stop_ids), device=device)
    length = tokens.shape[1]
    cache = model.cache(length + max_new_tokens)
    # a padding row attends to itself only: an empty row would be NaN in half precision
    itself = torch.eye(length, dtype=torch.bool, device=device)
    earlier = torch.ones_like(itself).tril()
    visible = earlier & seen[:, None, :length] | itself
    hidden = model.forward(tokens, cache, positions, visible)
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
        visible = seen[:, None, : length + step + 1]
        positions = positions[:, -1:] + 1
        hidden = model.forward(token[:, None], cache, positions, visible)
    texts = torch.stack(written, 1).tolist()
    return [tuple(token for token in text if token >= 0) for text in texts]


# ---- 2. reductions of vocabulary-sized rows ------------------------------------------------------


def _distributions(
    pair: Pair, hidden: list[Tensor], part: slice, sampling: Sampling
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(key_p, p, key_q, q) of a slice of rows, [rows, vocab] each, all on the target's device."""
    l_p = pair.target.logits(hidden[0][part])
    l_q = pair.draft.logits(hidden[1][part]).to(pair.target.device)
    p, q = probabilities(l_p, sampling), probabilities(l_q, sampling)
    return rank_key(l_p), p, rank_key(l_q), q


def _trace_rows(
    key_p: Tensor, p: Tensor, key_q: Tensor, q: Tensor, token: Tensor, top: int
) -> dict[str, Tensor]:
    best_ids = key_p.topk(2).indices
    top_ids = key_q.topk(top).indices
    best = p.gather(-1, best_ids)
    token_column = token[:, None]
    # KL(p||q) with logarithms of at least LEAST: a token that q excludes adds 103 nats times its p
    log_p, log_q = (x.log().clamp(min=LEAST) for x in (p, q))
    kl = (p * (log_p - log_q)).sum(-1)
    overlap = torch.minimum(p, q).sum(-1)
    of_token = {
        "token": token,
        "draft_rank": rank_of(key_q, token),
        "p_token": p.gather(-1, token_column)[:, 0],
        "q_token": q.gather(-1, token_column)[:, 0],
    }
    of_position = {
        "overlap": overlap.clamp(max=1),
        "kl": kl.clamp(min=0),
        "target_entropy": entropy(p),
        "draft_entropy": entropy(q),
        "target_top": best_ids[:, 0],
        "draft_top": top_ids[:, 0],
        "target_margin": best[:, 0] - best[:, 1],
    }
    of_top = {
        "top_draft_ids": top_ids,
        "top_draft_q": q.gather(-1, top_ids),
        "top_draft_p": p.gather(-1, top_ids),
    }
    return of_token | of_position | of_top


def _child_rows(
    key_p: Tensor, p: Tensor, key_q: Tensor, q: Tensor, width: int
) -> dict[str, Tensor]:
    """The draft's `width` best tokens of each row, with probabilities and entropies under both
    models, [rows, width] each.
    """
    token = key_q.topk(width).indices
    ranks = [rank_of(key_p, child) for child in token.unbind(1)]
    target_entropy, draft_entropy = entropy(p), entropy(q)
    return {
        "token": token,
        "draft_prob": q.gather(-1, token),
        "target_prob": p.gather(-1, token),
        "target_rank": torch.stack(ranks, 1),
        "target_entropy": target_entropy[:, None].expand(token.shape),
        "draft_entropy": draft_entropy[:, None].expand(token.shape),
    }


def reduced(rows: int, reduce: Callable[[slice], dict[str, Tensor]]) -> dict[str, Tensor]:
    """Apply `reduce(slice)` to all rows, ROWS at a time, and concatenate the results on the CPU."""
    starts = range(0, rows, ROWS)
    parts = [reduce(slice(start, start + ROWS)) for start in starts]
    return {name: torch.cat([part[name].cpu() for part in parts]) for name in parts[0]}


def _finite(columns: Columns, prompt_id: str) -> None:
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


def _hidden(pair: Pair, caches: list[KVCache], tokens: Tensor, *where: Tensor) -> list[Tensor]:
    """Hidden states [n, d] of both models for tokens [n], which are appended to their caches."""
    hidden = []
    for model, cache in zip((pair.target, pair.draft), caches, strict=True):
        states = model.forward(tokens[None], cache, *where)
        hidden.append(states[0])
        if model.features is not None and not where:  # a head then reads the text with them
            caches[1].take(model.features[0, :-1])
    return hidden


def _visible(tree: Tree, trunk_length: int, contexts: Tensor, depth: int) -> Tensor:
    """Attention mask, bool [m * k, trunk + nodes so far]. Each parent at a depth attends to the
    trunk up to its own position, and to its own ancestors.
    """
    level = tree.levels[depth]
    sizes = [len(run.parents) for run in tree.levels[1 : depth + 1]]  # one pass per level
    sees = torch.from_numpy(level.sees)
    position = torch.eye(len(contexts), dtype=torch.bool)
    ancestors = [torch.kron(position, block).bool() for block in torch.split(sees, sizes, 1)]
    prefix = torch.arange(trunk_length) < contexts[:, None]
    prefixes = prefix.repeat_interleave(len(level.parents), 0)
    return torch.cat([prefixes, *ancestors], 1)


def _chunk_nodes(
    pair: Pair,
    tree: Tree,
    caches: list[KVCache],
    hidden: list[Tensor],
    contexts: Tensor,
    sampling: Sampling,
) -> dict[str, Tensor]:
    """Records of all nodes of the trees after `contexts` [m] trunk tokens; columns [m, N]. hidden:
    the hidden states at these positions.
    """
    m, trunk_length = len(contexts), caches[0].length
    columns: dict[str, Tensor] = {}
    for depth, level in enumerate(tree.levels):
        k, width = len(level.parents), int(level.widths.max())
        if depth:
            tokens = columns["token"][:, level.parents - 1].flatten()
            positions = (contexts + depth - 1).repeat_interleave(k)
            visible = _visible(tree, trunk_length, contexts, depth)
            hidden = _hidden(pair, caches, tokens, positions, visible)

        def children(
            part: slice, hidden: list[Tensor] = hidden, width: int = width
        ) -> dict[str, Tensor]:
            """Records of the children of a slice of rows."""
            return _child_rows(*_distributions(pair, hidden, part, sampling), width)

        for name, values in reduced(len(hidden[0]), children).items():
            empty = torch.empty(m, tree.size, dtype=values.dtype)
            of_level = values.view(m, k, width)[:, level.row, level.rank]
            columns.setdefault(name, empty)[:, level.children - 1] = of_level
    for cache in caches:
        cache.crop(trunk_length)
    return columns


def _chunk_blocks(
    draft: LanguageModel,
    cache: KVCache,
    hidden: Tensor,
    contexts: Tensor,
    text: Tensor,
    sampling: Sampling,
) -> dict[str, Tensor]:
    """Rank and probability of the text's next LONGEST tokens under a draft whose block begins after
    `contexts` [m] trunk tokens, and follows the text; [m, LONGEST] each. hidden: its hidden states
    at these positions. text: the continuation on the draft's device. Entries after the end of the
    text have no meaning.
    """
    trunk_length = cache.length
    place = contexts - (trunk_length + 1 - len(text))  # of the block's first token
    ranks, chances = [], []
    for depth in range(LONGEST):
        if depth:
            token = text[(place + depth - 1).clamp(max=len(text) - 1)]
            visible = _visible(chain(LONGEST), trunk_length, contexts, depth)
            hidden = draft.forward(token[None], cache, contexts + depth - 1, visible)[0]
        wanted = text[(place + depth).clamp(max=len(text) - 1)]

        def of_token(
            part: slice, hidden: Tensor = hidden, wanted: Tensor = wanted
        ) -> dict[str, Tensor]:
            """Rank and probability of the text's tokens in a slice of rows."""
            logits, token = draft.logits(hidden[part]), wanted[part]
            chance = probabilities(logits, sampling).gather(-1, token[:, None])[:, 0]
            return {"rank": rank_of(rank_key(logits), token), "q": chance}

        rows = reduced(len(contexts), of_token)
        ranks.append(rows["rank"])
        chances.append(rows["q"])
    cache.crop(trunk_length)
    return {"block_ranks": torch.stack(ranks, 1), "block_q": torch.stack(chances, 1)}


def _of_blocks(
    draft: LanguageModel,
    cache: KVCache,
    hidden: Tensor,
    text: Tensor,
    sampling: Sampling,
    together: int,
    firsts: dict[str, Array],
) -> Columns:
    """`block_ranks` and `block_q` of every position, as far as the text goes, `together` positions
    at a time. firsts: of both, the values of the first token, known from the trace.
    """
    n = len(text)
    chunks = []
    for positions in torch.split(torch.arange(n), together):
        above = hidden[positions[0] : positions[-1] + 1]
        contexts = cache.length + 1 - n + positions
        chunks.append(_chunk_blocks(draft, cache, above, contexts, text, sampling))
    columns = {}
    for name, first in firsts.items():
        rows = torch.cat([chunk[name] for chunk in chunks]).numpy()
        rows[:, 0] = first  # the same numbers, from a pass of another shape
        lists = [row[: n - at] for at, row in enumerate(rows)]
        columns[name] = np.array([*lists, None], dtype=object)[:-1]
    return columns


def record_prompt(
    pair: Pair,
    prompt: EncodedPrompt,
    continuation: tuple[int, ...],
    tree: Tree,
    sampling: Sampling,
    max_packed_tokens: int = 2048,
) -> Recorded:
    """Trace (one row per position) and nodes (one row per drafted node; no rows for `tree.PLAIN`)
    of one prompt over a given continuation. GLOSSARY.md defines the columns.

    For a head (`LanguageModel.by_start`) the trace also has block_ranks and block_q.

    Memory: the weights, both KV caches, and one packed chunk of at most `max_packed_tokens` nodes.
    The result does not depend on the chunk size. Raises NonFiniteProbability (with prompt and
    position). Raises ValueError if a node has more children than the draft has output tokens, or
    for ids outside the shared vocabulary.
    """
    pair.target.check_ids(prompt.ids)
    pair.draft.check_branches(int(tree.width.max()))
    n, start = len(continuation), len(prompt.ids)
    for model in (pair.target, pair.draft):
        model.check_length(start + n)
    # one pass of each model over the whole text
    trunk = torch.tensor([*prompt.ids, *continuation[:-1]])
    caches = [model.cache(2 * len(trunk)) for model in (pair.target, pair.draft)]
    # hidden states that predict the tokens of the continuation
    hidden = [rows[start - 1 :] for rows in _hidden(pair, caches, trunk)]
    text = torch.tensor(continuation, device=pair.target.device)
    top = min(TOP, pair.draft.tokens_said)

    def along_text(part: slice) -> dict[str, Tensor]:
        """Records of a slice of positions."""
        return _trace_rows(*_distributions(pair, hidden, part, sampling), text[part], top)

    # what the trace says of each position
    rows = reduced(n, along_text)
    trace: Columns = {"position": np.arange(n)} | {name: rows[name].numpy() for name in rows}
    _finite(trace, prompt.prompt_id)
    if pair.draft.by_start:
        words = text.to(pair.draft.device)
        firsts = {"block_ranks": trace["draft_rank"], "block_q": trace["q_token"]}
        trace |= _of_blocks(
            pair.draft, caches[1], hidden[1], words, sampling, max_packed_tokens, firsts
        )
    # a tree at each position, several trees in a pass
    inner = int((tree.width[1:] > 0).sum())
    together = max(1, max_packed_tokens // max(1, inner))
    chunks = []
    for positions in torch.split(torch.arange(n), together):
        above = [states[positions[0] : positions[-1] + 1] for states in hidden]
        contexts = start + positions
        chunks.append(_chunk_nodes(pair, tree, caches, above, contexts, sampling))
    whole = {name: torch.cat([chunk[name] for chunk in chunks]) for name in chunks[0]}
    nodes: Columns = {name: values.flatten().numpy() for name, values in whole.items()}
    nodes["position"] = np.repeat(np.arange(n), tree.size)
    nodes["node"] = np.tile(np.arange(1, tree.size + 1), n)
    for name in ("parent", "depth", "rank", "best_path"):
        nodes[name] = np.tile(getattr(tree, name)[1:], n)
    if tree.size:
        _finite(nodes, prompt.prompt_id)
    return Recorded(trace, nodes)


# ---- 4. blocks of prompts: the unit of work, checkpoint and distribution -------------------------


@dataclass(frozen=True)
class Done:
    """A finished block: its number, the records of its prompts, and facts for the manifest."""

    index: int
    recorded: list[Recorded]
    facts: Facts


@dataclass(frozen=True)
class Job:
    """The input of a worker.

    blocks: encoded prompts. texts: continuations from another run, by prompt_id, or None. threads:
    of a worker; None keeps the current number.
    """

    profile: Profile
    blocks: tuple[tuple[EncodedPrompt, ...], ...]
    texts: dict[str, tuple[int, ...]] | None = None
    threads: int | None = None


def peak_bytes() -> dict[str, int]:
    """Peak memory of this process, and of its models on each GPU, in bytes."""
    if sys.platform == "win32":
        peak = psutil.Process().memory_info().peak_wset
    else:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        peak = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gpus = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    return {"process": peak} | {gpu: torch.cuda.max_memory_allocated(gpu) for gpu in gpus}


class Worker:
    """Holds a job and, from its first block on, the pair (both models on `device`, if given).

    As a Ray actor, a killed worker is restarted and repeats its block.
    """

    def __init__(self, job: Job, device: str | None = None, pair: Pair | None = None):
        self.job, self.device, self.pair = job, device, pair
        profile = job.profile
        # nodes and prompts at a time; halved when memory runs out
        self.packed = profile.max_packed_tokens
        self.together = max(map(len, job.blocks))
        self.sampling = profile.sampling

    def _load(self) -> Pair:
        if self.job.threads:
            torch.set_num_threads(self.job.threads)
        profile = self.job.profile
        if self.device:
            for name in MODELS:
                moved = replace(getattr(profile, name), device=self.device)
                profile = profile.replace(**{name: moved})
        return load_pair(profile)

    def _texts(self, pair: Pair, block: Sequence[EncodedPrompt]) -> list[tuple[int, ...]]:
        """Continuations of a block: from the job, or generated here, `together` prompts at a time.
        A text does not depend on the other prompts of its batch.
        """
        if self.job.texts is not None:
            return [self.job.texts[prompt.prompt_id] for prompt in block]
        profile = self.job.profile
        texts = []
        for start in range(0, len(block), self.together):
            prompts = block[start : start + self.together]
            limits = profile.max_new_tokens, pair.stop_ids, self.sampling, profile.seed
            texts += generate(pair.target, prompts, *limits)
        return texts

    def _recorded(self, pair: Pair, block: Sequence[EncodedPrompt]) -> list[Recorded]:
        """The texts of a block, then the records of each prompt. When memory runs out, both batch
        sizes are halved, a notice is printed, and the block starts again.
        """
        tree = self.job.profile.tree
        while True:
            try:
                texts = self._texts(pair, block)
                return [
                    record_prompt(pair, prompt, text, tree, self.sampling, self.packed)
                    for prompt, text in zip(block, texts, strict=True)
                ]
            except torch.OutOfMemoryError:
                if self.packed <= SMALLEST and self.together == 1:
                    raise
            # after the except block, because the error keeps the tensors in memory
            torch.cuda.empty_cache()
            self.packed = max(self.packed // 2, SMALLEST)
            self.together = max(self.together // 2, 1)
            notice(
                f"out of memory: continuing with max_packed_tokens={self.packed}, "
                f"block_prompts={self.together}"
            )

    def record(self, index: int) -> Done:
        """Record one block: its texts, then the records of each prompt."""
        self.pair = self.pair or self._load()
        began = time.perf_counter()
        recorded = self._recorded(self.pair, self.job.blocks[index])
        facts = {
            "time_s": time.perf_counter() - began,
            "pair": self.pair.facts,
            "peak_bytes": peak_bytes(),
            "max_packed_tokens": self.packed,
        }
        return Done(index, recorded, facts)


Engine = Callable[[Job, list[int]], Iterator[Done]]


def in_process(job: Job, indices: list[int], pair: Pair | None = None) -> Iterator[Done]:
    """Record the blocks one after another in this process. The pair is loaded here unless it is
    given.
    """
    return map(Worker(job, pair=pair).record, indices)
