"""Lossless speculative decoding: draft a chain or a tree, or copy one, score it in one target pass,
verify, commit, roll both caches back.

Knows the pair only through `speclab.models.model` and the rules only through `speclab.verify`.
Yields one `Step` a target pass.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from speclab.draft import Proposal, propose
from speclab.models.model import KVCache, over_trunk, wait_for
from speclab.models.model import LanguageModel as LanguageModel
from speclab.models.pairs import Pair as Pair
from speclab.plain import Array
from speclab.prompts import EncodedPrompt
from speclab.sampling import Sampling, check_finite, probabilities, rank_key
from speclab.shapes import Shape
from speclab.tree import Tree
from speclab.verify import RULES, Verdict, greedy_path, verify

LOSSLESS = tuple(name for name, rule in RULES.items() if rule.lossless)


@dataclass(frozen=True)
class Drafted:
    """A block's draft: its tree, the token of each node (int64 [N + 1], entry 0 unused), and the
    nodes that were accepted, from the top.
    """

    tree: Tree
    tokens: Array
    path: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """What one target pass gave: the emitted tokens, of which the first `accepted` were drafted;
    `kind` of the last one.

    kind: recovered (after a rejection), bonus (all accepted), or cut (the text ended on an accepted
    token). copied: from the text so far, not the draft model's. draft: the tree that was drafted;
    None where a step is replayed, not decoded.
    """

    tokens: tuple[int, ...]
    accepted: int
    drafted: int
    kind: str
    copied: bool = False
    draft: Drafted | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Decoded:
    """A finished text: its token ids (the stop token included), its steps, counted passes and wall
    times in seconds.

    `time_s` includes the prefill.
    """

    prompt_id: str
    token_ids: tuple[int, ...]
    steps: tuple[Step, ...]
    draft_passes: int
    time_s: float
    prefill_time_s: float

    @property
    def target_passes(self) -> int:
        """Target passes after the prefill: one a step."""
        return len(self.steps)

    @property
    def block_efficiency(self) -> float:
        """Emitted tokens per target pass."""
        return len(self.token_ids) / len(self.steps)


def check_rule(rule: str, shape: Shape, sampling: Sampling) -> None:
    """A ValueError unless rule, shape and temperature go together."""
    if rule not in LOSSLESS:
        raise ValueError(f"rule={rule!r}: lossless rules are {', '.join(LOSSLESS)}")
    if (rule == "greedy") != sampling.greedy:
        raise ValueError(
            f"rule={rule!r} at temperature {sampling.temperature}: greedy goes with temperature 0, "
            "the sampling rules with temperatures above 0"
        )
    if RULES[rule].chain_only and not shape.is_chain:
        raise ValueError(
            f"rule={rule!r} takes a chain of sampled tokens (as chain:4), not a tree; "
            "for trees use point-mass or without-replacement"
        )
    if RULES[rule].sampled and not shape.tree:
        raise ValueError(
            f"rule={rule!r} takes a static tree: a dynamic one is chosen by probability, "
            "not sampled; use point-mass"
        )


def decode(
    pair: Pair,
    prompt_ids: tuple[int, ...],
    rule: str,
    shape: Shape,
    sampling: Sampling,
    max_new_tokens: int,
    rng: np.random.Generator | None = None,
    caches: tuple[KVCache, KVCache] | None = None,
) -> Iterator[Step]:
    """Decode one prompt, a step at a time; the text's distribution is the target's own whatever
    draft, shape and lossless rule.

    shape: see speclab.draft. rng: source of uniforms, needed above temperature 0. caches: of
    `prefill`, else made here. Raises ValueError for what does not go together or a prompt with ids
    that are not shared, NonFiniteProbability for a model that breaks down.
    """
    check_rule(rule, shape, sampling)
    if shape.tree is not None:
        pair.draft.check_branches(int(shape.tree.width.max()))
    if not prompt_ids or max_new_tokens < 1:
        raise ValueError("at least one prompt token and one new token")
    if not sampling.greedy and rng is None:
        raise ValueError("rng: sampling needs a numpy Generator")
    target, draft = caches or prefill(pair, prompt_ids, max_new_tokens + shape.room)
    context = list(prompt_ids)
    left = max_new_tokens
    while left:
        proposal = propose(pair.draft, draft, context, shape, left, rule, sampling, rng)
        drafted = proposal.tree, proposal.tokens
        logits = score_tree(pair.target, target, context, *drafted)
        check_finite(logits, "target")
        if sampling.greedy or rng is None:
            best = rank_key(logits).argmax(-1)
            verdict = greedy_path(*drafted, best.cpu().numpy())
        else:
            by = "point-mass" if proposal.copied else rule
            p, coins = probabilities(logits, sampling), rng.random(len(logits))
            verdict = verify(by, *drafted, p, proposal.q, coins)
        step = _emitted(proposal, verdict, left, pair.stop_ids)
        path, trunk = verdict.path[: step.accepted], len(context)
        target.keep(trunk, [trunk - 1 + node for node in path])
        if proposal.run:  # else the draft has not seen the root
            seen = [trunk - 1 + at for at, node in enumerate(proposal.run) if node in path]
            draft.keep(trunk, seen)
        context += step.tokens
        left -= len(step.tokens)
        yield step
        if step.tokens[-1] in pair.stop_ids:
            return


def prefill(pair: Pair, prompt_ids: tuple[int, ...], room: int) -> tuple[KVCache, KVCache]:
    """Both models' caches over the prompt but its last token, which is the first block's root.
    A GPU is waited for, so that the first block is not charged for the prompt.
    """
    pair.target.check_ids(prompt_ids)
    models = pair.target, pair.draft
    target, draft = (model.cache(len(prompt_ids) + room) for model in models)
    if len(prompt_ids) > 1:
        trunk = torch.tensor([prompt_ids[:-1]])
        for model, cache in zip(models, (target, draft), strict=True):
            model.forward(trunk, cache)
            wait_for(model.device)
    return target, draft


def score_tree(
    model: LanguageModel, cache: KVCache, context: list[int], tree: Tree, tokens: Array
) -> Tensor:
    """A model's logits after the root and every drafted node, [N + 1, vocab], in one pass.

    cache: of all the context but its last token, the root; its nodes are left there. tokens: each
    node's, int64 [N + 1], entry 0 unused.
    """
    trunk = len(context) - 1
    rows = torch.from_numpy(np.append(context[-1], tokens[1:]))[None]
    positions = visible = None
    if not tree.is_chain:
        positions = torch.from_numpy(trunk + tree.depth)
        visible = over_trunk(trunk, torch.from_numpy(tree.ancestors))
    return model.logits(model.forward(rows, cache, positions, visible)[0])


def _emitted(
    proposal: Proposal, verdict: Verdict, remaining: int, stop_ids: frozenset[int]
) -> Step:
    """Accepted tokens and the one after them, cut after the first stop token, at `remaining`."""
    tokens = [*proposal.tokens[list(verdict.path)].tolist(), verdict.token][:remaining]
    for place, token in enumerate(tokens):
        if token in stop_ids:
            tokens = tokens[: place + 1]
            break
    accepted = min(len(verdict.path), len(tokens))
    kind = "cut" if accepted == len(tokens) else verdict.kind
    tree = proposal.tree
    draft = Drafted(tree, proposal.tokens, verdict.path[:accepted])
    return Step(tuple(tokens), accepted, tree.size, kind, proposal.copied, draft)


def decode_prompt(
    pair: Pair,
    prompt: EncodedPrompt,
    rule: str,
    shape: Shape,
    sampling: Sampling,
    max_new_tokens: int,
    seed: int = 0,
    caches: tuple[KVCache, KVCache] | None = None,
) -> Decoded:
    """One prompt to its end, timed; the random numbers belong to (seed, prompt_id).

    caches: of `prefill` over this prompt, for texts that begin alike (what was decoded after the
    prompt is forgotten); else made here.
    """
    rng = np.random.default_rng([seed, *prompt.prompt_id.encode()])
    began = time.perf_counter()
    caches = caches or prefill(pair, prompt.ids, max_new_tokens + shape.room)
    for cache in caches:
        cache.crop(len(prompt.ids) - 1)
    ready, before = time.perf_counter(), pair.draft.passes
    steps = tuple(decode(pair, prompt.ids, rule, shape, sampling, max_new_tokens, rng, caches))
    done = time.perf_counter()
    token_ids = tuple(token for step in steps for token in step.tokens)
    passes = pair.draft.passes - before
    return Decoded(prompt.prompt_id, token_ids, steps, passes, done - began, ready - began)
