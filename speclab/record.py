"""The recorder: target text once, then every position's draft tree scored from a cached trunk in a
few packed passes.

The context advances by the target's own tokens whatever is accepted, so the trajectory does not
depend on the trees (estimators.md, section 2). The literal step-by-step procedure is the reference
in tests/literal.py.
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from speclab.model import KVCache, LanguageModel
from speclab.pairs import Pair
from speclab.profiles import Profile
from speclab.prompts import EncodedPrompt
from speclab.sampling import Sampling, entropy, probabilities, rank_key, rank_of, sample, uniforms
from speclab.tree import Tree

TOP = 8  # draft tokens kept per trace row
ROWS = 256  # vocabulary-sized rows that are reduced at once


class NonFiniteProbability(FloatingPointError):
    """A model gave a probability that is not finite; nothing of it is recorded."""


@dataclass(frozen=True)
class Recorded:
    """Columns of `trace` and `nodes` of one prompt (without prompt_id and domain), and its
    continuation.
    """

    trace: dict[str, np.ndarray]
    nodes: dict[str, np.ndarray]
    continuation: tuple[int, ...]


# ---- 1. the target's own text --------------------------------------------------------------------


def _left_padded(prompts: list[EncodedPrompt], room: int) -> tuple[Tensor, Tensor, Tensor]:
    """tokens [B, L], positions [B, L], and who may be seen [B, L + room]: padding stands left and
    is seen by nobody.
    """
    longest = max(len(p.ids) for p in prompts)
    pads = torch.tensor([longest - len(p.ids) for p in prompts])
    tokens = torch.tensor(
        [[p.ids[0]] * int(pad) + list(p.ids) for p, pad in zip(prompts, pads, strict=True)]
    )
    positions = (torch.arange(longest) - pads[:, None]).clamp(min=0)
    return tokens, positions, torch.arange(longest + room) >= pads[:, None]


def generate(
    model: LanguageModel,
    prompts: list[EncodedPrompt],
    max_new_tokens: int,
    stop_ids: frozenset[int],
    sampling: Sampling,
    seed: int,
) -> list[tuple[int, ...]]:
    """Continuations of several prompts at once by the target alone, the stop token included; greedy
    or sampled.

    The uniforms belong to (seed, prompt_id), so a sampled text does not depend on the batch it was
    made in.
    """
    tokens, positions, seen = (x.to(model.device) for x in _left_padded(prompts, max_new_tokens))
    drawn = torch.tensor(
        np.stack([uniforms(seed, p.prompt_id, max_new_tokens) for p in prompts]),
        device=model.device,
    )
    length, cache = tokens.shape[1], model.cache(tokens.shape[1] + max_new_tokens)
    # a padding row sees itself alone: an empty row would be NaN in half precision
    visible = (
        torch.ones(length, length, device=model.device).tril().bool() & seen[:, None, :length]
    ) | torch.eye(length, device=model.device).bool()
    hidden, made, live = (
        model.forward(tokens, cache, positions, visible),
        [],
        torch.ones(len(prompts), dtype=torch.bool, device=model.device),
    )
    stops = torch.tensor(sorted(stop_ids), device=model.device)
    for step in range(max_new_tokens):
        logits = model.logits(hidden[:, -1])
        token = (
            rank_key(logits).argmax(-1)
            if sampling.greedy
            else sample(probabilities(logits, sampling), drawn[:, step])
        )
        made.append(torch.where(live, token, -1))
        live = live & ~torch.isin(token, stops)
        if not live.any() or step + 1 == max_new_tokens:
            break
        hidden = model.forward(
            token[:, None], cache, positions[:, -1:] + 1 + step, seen[:, None, : length + step + 1]
        )
    return [tuple(int(t) for t in row if t >= 0) for row in torch.stack(made, 1).cpu()]


# ---- 2. reductions of vocabulary-sized rows ------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """Which rows a hidden tensor holds, for error messages: `per` rows a position, the first at
    `position`.
    """

    prompt_id: str
    position: int = 0
    per: int = 1


def _checked(p: Tensor, which: str, rows: Rows, first: int) -> Tensor:
    bad = (~torch.isfinite(p).all(-1)).nonzero()
    if len(bad):
        position = rows.position + (first + int(bad[0])) // rows.per
        raise NonFiniteProbability(
            f"the {which} gave a non-finite probability: prompt {rows.prompt_id}, position {position}; nothing of this prompt is recorded. "
            "In half precision try dtype=float32 for that model"
        )
    return p


def _distributions(
    pair: Pair, hidden: tuple[Tensor, Tensor], part: slice, sampling: Sampling, rows: Rows
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(key_p, p, key_q, q) of some rows, [rows, vocab] each, all on the target's device."""
    l_p, l_q = (
        pair.target.logits(hidden[0][part]),
        pair.draft.logits(hidden[1][part]).to(pair.target.device),
    )
    p = _checked(probabilities(l_p, sampling), "target", rows, part.start)
    q = _checked(probabilities(l_q, sampling), "draft", rows, part.start)
    return rank_key(l_p), p, rank_key(l_q), q


def _trace_rows(
    key_p: Tensor, p: Tensor, key_q: Tensor, q: Tensor, token: Tensor
) -> dict[str, Tensor]:
    top_p, top_q = key_p.topk(2).indices, key_q.topk(min(TOP, q.shape[-1])).indices
    best = p.gather(-1, top_p)
    # KL(p||q), q floored at the smallest float32: a token that q excludes costs 103 nats times its
    # p, not infinity
    kl = (p * (p.clamp(min=1e-45).log() - q.clamp(min=1e-45).log())).sum(-1).clamp(min=0)
    return {
        "token": token,
        "draft_rank": rank_of(key_q, token),
        "p_token": p.gather(-1, token[:, None])[:, 0],
        "q_token": q.gather(-1, token[:, None])[:, 0],
        "overlap": torch.minimum(p, q).sum(-1).clamp(max=1),
        "kl": kl,
        "target_entropy": entropy(p),
        "draft_entropy": entropy(q),
        "target_top": top_p[:, 0],
        "draft_top": top_q[:, 0],
        "target_margin": best[:, 0] - best[:, 1],
        "top_draft_ids": top_q,
        "top_draft_q": q.gather(-1, top_q),
        "top_draft_p": p.gather(-1, top_q),
    }


def _child_rows(
    key_p: Tensor, p: Tensor, key_q: Tensor, q: Tensor, width: int
) -> dict[str, Tensor]:
    """The draft's `width` best tokens of every row and what both models say of them; [rows, width],
    entropies [rows, 1].
    """
    token = key_q.topk(width).indices
    return {
        "token": token,
        "draft_prob": q.gather(-1, token),
        "target_prob": p.gather(-1, token),
        "target_rank": torch.stack([rank_of(key_p, token[:, k]) for k in range(width)], 1),
        "target_entropy": entropy(p)[:, None].expand(token.shape),
        "draft_entropy": entropy(q)[:, None].expand(token.shape),
    }


def _reduced(rows: int, reduce, size: int = ROWS) -> dict[str, Tensor]:
    """`reduce(slice)` over all rows, a chunk at a time, concatenated on the CPU."""
    parts = [reduce(slice(i, i + size)) for i in range(0, rows, size)]
    return {name: torch.cat([part[name].cpu() for part in parts]) for name in parts[0]}


# ---- 3. the trees of all positions, level by level -----------------------------------------------


@dataclass(frozen=True)
class Trunk:
    """Both models after prompt + continuation: caches, and the hidden rows that predict each
    continuation token.
    """

    caches: tuple[KVCache, KVCache]
    hidden: tuple[Tensor, Tensor]
    prompt_length: int


def _trunk(pair: Pair, ids: tuple[int, ...], continuation: tuple[int, ...]) -> Trunk:
    tokens = torch.tensor([[*ids, *continuation[:-1]]])
    caches = tuple(m.cache(2 * tokens.shape[1]) for m in (pair.target, pair.draft))
    hidden = tuple(
        m.forward(tokens, c)[0, len(ids) - 1 :]
        for m, c in zip((pair.target, pair.draft), caches, strict=True)
    )
    return Trunk(caches, hidden, len(ids))


def _visible(tree: Tree, trunk_length: int, contexts: Tensor, levels: list[np.ndarray]) -> Tensor:
    """bool [m * k, trunk + nodes so far]: each node of the last level sees its position's trunk
    prefix and its own ancestors.
    """
    own = torch.eye(len(contexts), dtype=torch.bool)
    prefix = (torch.arange(trunk_length) < contexts[:, None]).repeat_interleave(len(levels[-1]), 0)
    blocks = [
        torch.kron(own, torch.from_numpy(tree.ancestors[np.ix_(levels[-1], level)]))
        for level in levels
    ]
    return torch.cat([prefix, *(b.bool() for b in blocks)], 1)


def _children(
    pair: Pair, hidden: tuple[Tensor, Tensor], rows: Rows, width: int, sampling: Sampling
) -> dict[str, Tensor]:
    """`_child_rows` of all hidden rows, a chunk at a time."""
    return _reduced(
        len(hidden[0]),
        lambda part: _child_rows(*_distributions(pair, hidden, part, sampling, rows), width),
    )


def _chunk_nodes(
    pair: Pair, tree: Tree, trunk: Trunk, positions: range, sampling: Sampling, name: str
) -> dict[str, np.ndarray]:
    """Records of all nodes of the trees at `positions`; columns [positions, N]."""
    m, start = len(positions), trunk.caches[0].length
    columns: dict[str, Tensor] = {}
    contexts = trunk.prompt_length + torch.tensor(positions)
    hidden = tuple(h[positions.start : positions.stop] for h in trunk.hidden)
    parents, levels = np.array([0]), []
    for depth in range(1, tree.max_depth + 1):
        width = int(tree.width[parents].max())
        found = _children(pair, hidden, Rows(name, positions.start, len(parents)), width, sampling)
        nodes = tree.level(depth)
        row = np.searchsorted(parents, tree.parent[nodes])
        for column, values in found.items():
            columns.setdefault(column, torch.empty(m, tree.size, dtype=values.dtype))[
                :, nodes - 1
            ] = values.view(m, len(parents), width)[:, row, tree.rank[nodes]]
        parents = nodes[tree.width[nodes] > 0]
        if len(parents):
            levels.append(parents)
            tokens = columns["token"][:, parents - 1].reshape(1, -1)
            places = (contexts[:, None] + depth - 1).expand(m, len(parents)).reshape(-1)
            visible = _visible(tree, start, contexts, levels)
            hidden = tuple(
                mod.forward(tokens, c, places, visible)[0]
                for mod, c in zip((pair.target, pair.draft), trunk.caches, strict=True)
            )
    for cache in trunk.caches:
        cache.crop(start)
    return {name: values.numpy() for name, values in columns.items()}


def _chunks(count: int, tree: Tree, max_packed_tokens: int) -> Iterator[range]:
    size = max(1, max_packed_tokens // max(1, int((tree.width[1:] > 0).sum())))
    return (range(i, min(count, i + size)) for i in range(0, count, size))


def record_prompt(
    pair: Pair,
    prompt: EncodedPrompt,
    continuation: tuple[int, ...],
    tree: Tree,
    sampling: Sampling,
    max_packed_tokens: int = 2048,
) -> Recorded:
    """Trace and nodes of one prompt over a given continuation (estimators.md, sections 1 and 2).

    Memory: weights + both KV caches + one packed chunk of at most `max_packed_tokens` nodes; the
    result does not depend on the chunk. Raises NonFiniteProbability (named prompt and position) and
    ValueError (tree wider than the vocabulary).
    """
    if tree.width.max() > pair.vocab:
        raise ValueError(
            f"branches={int(tree.width.max())}: the vocabulary has {pair.vocab} tokens; lower branches"
        )
    trunk, n = _trunk(pair, prompt.ids, continuation), len(continuation)
    token = torch.tensor(continuation, device=pair.target.device)
    rows = Rows(prompt.prompt_id)
    trace = _reduced(
        n,
        lambda part: _trace_rows(
            *_distributions(pair, trunk.hidden, part, sampling, rows), token[part]
        ),
    )
    chunks = [
        _chunk_nodes(pair, tree, trunk, c, sampling, prompt.prompt_id)
        for c in _chunks(n, tree, max_packed_tokens)
    ]
    nodes = {name: np.concatenate([c[name] for c in chunks]).reshape(-1) for name in chunks[0]}
    topology = {
        "node": np.arange(1, tree.size + 1),
        "parent": tree.parent[1:],
        "depth": tree.depth[1:],
        "rank": tree.rank[1:],
        "best_path": tree.best_path[1:],
    }
    nodes |= {name: np.tile(values, n) for name, values in topology.items()} | {
        "position": np.repeat(np.arange(n), tree.size)
    }
    return Recorded(
        {"position": np.arange(n)} | {k: v.numpy() for k, v in trace.items()}, nodes, continuation
    )


def record_block(
    pair: Pair,
    prompts: list[EncodedPrompt],
    tree: Tree,
    sampling: Sampling,
    max_new_tokens: int,
    seed: int,
    max_packed_tokens: int,
    texts: dict[str, tuple[int, ...]] | None = None,
) -> list[Recorded]:
    """The unit of work, checkpoint and distribution: generate the block's continuations together,
    then record each prompt.

    texts: continuations by prompt_id that an earlier run of the same target holds; None generates
    them.
    """
    if texts is None:
        texts = generate(pair.target, prompts, max_new_tokens, pair.stop_ids, sampling, seed)
    else:
        texts = [texts[p.prompt_id] for p in prompts]
    return [
        record_prompt(pair, p, text, tree, sampling, max_packed_tokens)
        for p, text in zip(prompts, texts, strict=True)
    ]


@dataclass(frozen=True)
class Done:
    """A finished block: its number, the records of its prompts, and facts for the manifest."""

    index: int
    recorded: list
    facts: dict


@dataclass(frozen=True)
class Job:
    """What a worker needs: the profile, the blocks of encoded prompts, texts that another run holds
    (by prompt_id) or None, and the threads of a worker (None: as it finds them).
    """

    profile: Profile
    blocks: tuple[tuple[EncodedPrompt, ...], ...]
    texts: dict | None = None
    threads: int | None = None

    def load(self, device: str | None = None) -> Any:
        """The pair of the profile, both models on `device` if one is given."""
        import torch

        from speclab.pairs import load_pair

        if self.threads:
            torch.set_num_threads(self.threads)
        models = (
            {
                name: replace(getattr(self.profile, name), device=device)
                for name in ("target", "draft")
            }
            if device
            else {}
        )
        return load_pair(self.profile.replace(**models))

    def record(self, pair: Any, index: int, packed: int | None = None) -> Done:
        """Record one block, `packed` nodes at a time (None: as the profile says; an earlier block
        may have had to go lower).
        """
        began, profile = time.perf_counter(), self.profile
        sampling = Sampling(profile.temperature, profile.top_k, profile.top_p)
        packed = packed or profile.max_packed_tokens
        recorded, packed = record_or_halve(
            pair, list(self.blocks[index]), profile, sampling, self.texts, packed
        )
        facts = {
            "time_s": time.perf_counter() - began,
            "pair": pair.facts,
            "peak_bytes": peak_bytes(),
            "max_packed_tokens": packed,
        }
        return Done(index, recorded, facts)


def record_or_halve(
    pair: Any,
    block: list[EncodedPrompt],
    profile: Profile,
    sampling: Any,
    texts: dict | None,
    packed: int,
) -> tuple[list, int]:
    """`record_block` and the packing it ran with; out of memory halves the packing, says so and
    goes on.

    So does writing the texts with the prompts that are written together: a text does not depend on
    its neighbours.
    """
    import torch

    texts = texts if texts is not None else _texts_or_halve(pair, block, profile, sampling)
    while True:
        try:
            made = record_block(
                pair,
                block,
                profile.tree,
                sampling,
                profile.max_new_tokens,
                profile.seed,
                packed,
                texts,
            )
            return made, packed
        except torch.OutOfMemoryError:
            if packed <= 8:
                raise
            packed //= 2
        # after the except block: the error holds the tensors that did not fit
        torch.cuda.empty_cache()
        print(f"out of memory: going on with max_packed_tokens={packed}", file=sys.stderr)


def _texts_or_halve(
    pair: Any, block: list[EncodedPrompt], profile: Profile, sampling: Any
) -> dict[str, tuple[int, ...]]:
    import torch

    try:
        made = generate(
            pair.target, block, profile.max_new_tokens, pair.stop_ids, sampling, profile.seed
        )
        return {p.prompt_id: text for p, text in zip(block, made, strict=True)}
    except torch.OutOfMemoryError:
        if len(block) == 1:
            raise
    torch.cuda.empty_cache()
    half = len(block) // 2
    print(
        f"out of memory: going on with {half} prompts at once (block_prompts={half} says so from the start)",
        file=sys.stderr,
    )
    return _texts_or_halve(pair, block[:half], profile, sampling) | _texts_or_halve(
        pair, block[half:], profile, sampling
    )


def peak_bytes() -> dict[str, int]:
    """Most memory this process has held, and its models on each GPU."""
    import resource

    import torch

    peaks = {
        f"cuda:{i}": torch.cuda.max_memory_allocated(i) for i in range(torch.cuda.device_count())
    }
    return {
        "process": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        * (1 if sys.platform == "darwin" else 1024)
    } | peaks


class Worker:
    """Holds a job and, from its first block on, the pair.

    As a Ray actor a killed one is started again and its block done anew.
    """

    def __init__(self, job: Job, device: str | None = None, pair: Any = None):
        self.job, self.device, self.pair, self.packed = job, device, pair, None

    def record(self, index: int) -> Done:
        """One block."""
        self.pair = self.pair or self.job.load(self.device)
        from speclab.ops.plan import packed_tokens_for

        self.packed = self.packed or packed_tokens_for(self.pair, self.job.profile)
        done = self.job.record(self.pair, index, self.packed)
        self.packed = done.facts["max_packed_tokens"]
        return done


Engine = Callable[[Job, list[int]], Iterator[Done]]


def worker_threads() -> int | None:
    """Threads of this process, for workers that should compute as it does; None where torch is not
    loaded.
    """
    return sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None


def in_process(job: Job, indices: list[int], pair: Any = None) -> Iterator[Done]:
    """One block after another with one pair, loaded here if it is not given."""
    worker = Worker(job, pair=pair)
    yield from map(worker.record, indices)
