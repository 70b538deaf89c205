"""Lossless speculative decoding. Each block is drafted (a chain, a tree or a copy), scored in one
target pass, verified and committed; then both caches are rolled back.

This module reaches the pair only through `speclab.model`, and the rules only through
`speclab.verify`. It yields one `Step` per target pass.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from speclab.draft import Proposal, propose
from speclab.model import KVCache, LanguageModel, Pair, over_trunk, wait_for
from speclab.plain import Array, EncodedPrompt
from speclab.sampling import Sampling, check_finite, probabilities, rank_key
from speclab.shapes import Shape
from speclab.tree import Tree
from speclab.verify import RULES, Verdict, matching_path, verify

LOSSLESS = tuple(name for name, rule in RULES.items() if rule.lossless)


@dataclass(frozen=True)
class Drafted:
    """The draft of a block: its tree, the token of each node (int64 [N + 1], entry 0 unused), and
    the accepted nodes from the root down.
    """

    tree: Tree
    tokens: Array
    path: tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """The outcome of one target pass: the emitted tokens, of which the first `accepted` were
    drafted, and the kind of the last token.

    kind: "recovered" (after a rejection), "bonus" (after all were accepted) or "cut" (the text
    ended with an accepted token). copied: the block was copied from the text so far, not drafted by
    the model. draft: the drafted tree; None if the step was replayed, not decoded.
    """

    tokens: tuple[int, ...]
    accepted: int
    drafted: int
    kind: str
    copied: bool = False
    draft: Drafted | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Decoded:
    """A finished text: its token ids (including the stop token), its steps, the number of draft
    passes, and wall times in seconds. `time_s` includes the prefill.
    """

    prompt_id: str
    token_ids: tuple[int, ...]
    steps: tuple[Step, ...]
    draft_passes: int
    time_s: float
    prefill_time_s: float

    @property
    def target_passes(self) -> int:
        """Target passes after the prefill: one per step."""
        return len(self.steps)


def check_rule(rule: str, shape: Shape, sampling: Sampling, allow_lossy: bool) -> None:
    """Raise a ValueError unless rule, shape and temperature fit together. allow_lossy: also a rule
    that is not lossless.
    """
    if rule not in (RULES if allow_lossy else LOSSLESS):
        raise ValueError(
            f"rule={rule!r}: the lossless rules are {', '.join(LOSSLESS)}; --allow-lossy "
            f"(allow_lossy=True) allows all of {', '.join(RULES)}"
        )
    if (rule == "greedy") != sampling.greedy:
        raise ValueError(
            f"rule={rule!r} at temperature {sampling.temperature}: greedy needs temperature 0, "
            "the other rules need a temperature above 0"
        )
    needs = RULES[rule]
    reads_q = needs.sampled or needs.needs_q
    if (needs.chain_only and not shape.is_chain) or (reads_q and not shape.tree):
        raise ValueError(
            f"rule={rule!r} draws the draft's tokens: rejection and block need a chain (such as "
            "chain:4), without-replacement and exact-match a static tree; use point-mass for any "
            "tree"
        )
    # else a rank that is drawn and left out would change the distribution of the next rank
    if needs.sampled and needs.needs_q and shape.tree and shape.tree.has_gaps:
        raise ValueError(
            f"rule={rule!r} needs siblings of the ranks 0, 1, 2, …, and this tree leaves out a "
            "rank; add the missing path, or use point-mass or exact-match"
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
    allow_lossy: bool = False,
) -> Iterator[Step]:
    """Decode one prompt and yield one `Step` per target pass. The text follows the target's
    distribution, whatever the draft, shape and lossless rule; a rule that is not lossless needs
    allow_lossy.

    shape: see `speclab.shapes`. rng: source of uniforms, needed above temperature 0. caches: from
    `prefill`; created here by default. Raises ValueError for arguments that do not fit together and
    for prompt ids outside the shared vocabulary. Raises NonFiniteProbability if a model outputs NaN
    or infinity.
    """
    check_rule(rule, shape, sampling, allow_lossy)
    if shape.tree is not None:
        pair.draft.check_branches(int(shape.tree.width.max()))
    if not prompt_ids or max_new_tokens < 1:
        raise ValueError("decode needs at least one prompt token and one new token")
    if not sampling.greedy and rng is None:
        raise ValueError("sampling needs a numpy Generator: pass rng")
    target, draft = caches or prefill(pair, prompt_ids, max_new_tokens + shape.room)
    context = list(prompt_ids)
    left = max_new_tokens
    while left:
        # draft, then one pass of the target over the drafted tokens
        proposal = propose(pair.draft, draft, context, shape, left, rule, sampling, rng)
        drafted = proposal.tree, proposal.tokens
        logits = score_tree(pair.target, target, context, *drafted)
        check_finite(logits, "target")
        # which of them the target accepts
        if sampling.greedy or rng is None:
            best = rank_key(logits).argmax(-1)  # `verify` would wait for a device once more
            verdict = matching_path(*drafted, best.cpu().numpy())
        else:
            by = "point-mass" if proposal.copied else rule
            p = probabilities(logits, sampling)
            coins = rng.random(len(logits))
            verdict = verify(by, *drafted, p, proposal.q, coins)
        # both caches keep the accepted tokens only
        step = _emitted(proposal, verdict, left, pair.stop_ids)
        trunk = len(context)
        path = verdict.path[: step.accepted]
        target.keep(trunk, [trunk - 1 + node for node in path])
        if proposal.run:  # else the draft has not seen the root
            seen = [trunk - 1 + at for at, node in enumerate(proposal.run) if node in path]
            draft.keep(trunk, seen)
        if pair.target.features is not None:
            draft.take(pair.target.features[0, [0, *path]])
        context += step.tokens
        left -= len(step.tokens)
        yield step
        if step.tokens[-1] in pair.stop_ids:
            return


def prefill(pair: Pair, prompt_ids: tuple[int, ...], room: int) -> tuple[KVCache, KVCache]:
    """The caches of both models over the prompt without its last token, which is the root of the
    first block. Waits for a GPU, so that the time of the first block does not include the prompt.
    """
    pair.target.check_ids(prompt_ids)
    models = pair.target, pair.draft
    target, draft = (model.cache(len(prompt_ids) + room) for model in models)
    if len(prompt_ids) > 1:
        trunk = torch.tensor([prompt_ids[:-1]])
        for model, cache in zip(models, (target, draft), strict=True):
            model.forward(trunk, cache)
            if model.features is not None:
                draft.take(model.features[0])
            wait_for(model.device)
    return target, draft


def score_tree(
    model: LanguageModel, cache: KVCache, context: list[int], tree: Tree, tokens: Array
) -> Tensor:
    """A model's logits after the root and every drafted node, [N + 1, vocab], in one pass.

    cache: holds the context without its last token, the root. The nodes are added to it. tokens:
    the token of each node, int64 [N + 1], entry 0 unused.
    """
    trunk = len(context) - 1
    rooted = np.append(context[-1], tokens[1:])
    rows = torch.from_numpy(rooted)[None]
    positions = visible = None
    if not tree.is_chain:
        positions = torch.from_numpy(trunk + tree.depth)
        visible = over_trunk(trunk, torch.from_numpy(tree.ancestors))
    hidden = model.forward(rows, cache, positions, visible)
    return model.logits(hidden[0])


def _emitted(
    proposal: Proposal, verdict: Verdict, remaining: int, stop_ids: frozenset[int]
) -> Step:
    """The accepted tokens and the next token, cut after the first stop token and after `remaining`
    tokens.
    """
    path = list(verdict.path)
    tokens = [*proposal.tokens[path].tolist(), verdict.token]
    tokens = tokens[:remaining]
    for place, token in enumerate(tokens):
        if token in stop_ids:
            tokens = tokens[: place + 1]
            break
    accepted = min(len(path), len(tokens))
    kind = "cut" if accepted == len(tokens) else verdict.kind
    draft = Drafted(proposal.tree, proposal.tokens, verdict.path[:accepted])
    return Step(tuple(tokens), accepted, proposal.tree.size, kind, proposal.copied, draft)


def decode_prompt(
    pair: Pair,
    prompt: EncodedPrompt,
    rule: str,
    shape: Shape,
    sampling: Sampling,
    max_new_tokens: int,
    seed: int = 0,
    caches: tuple[KVCache, KVCache] | None = None,
    allow_lossy: bool = False,
) -> Decoded:
    """Decode one prompt to its end and time it. The random numbers depend only on (seed,
    prompt_id).

    caches: from `prefill` over this prompt, reused for texts with the same prompt (everything after
    the prompt is removed first); created here by default. allow_lossy: as of `decode`.
    """
    for model in (pair.target, pair.draft):
        model.check_length(len(prompt.ids) + max_new_tokens)
    rng = np.random.default_rng([seed, *prompt.prompt_id.encode()])
    began = time.perf_counter()
    caches = caches or prefill(pair, prompt.ids, max_new_tokens + shape.room)
    for cache in caches:
        cache.crop(len(prompt.ids) - 1)
    ready, before = time.perf_counter(), pair.draft.passes
    how = rule, shape, sampling, max_new_tokens, rng, caches, allow_lossy
    steps = tuple(decode(pair, prompt.ids, *how))
    done = time.perf_counter()
    token_ids = tuple(token for step in steps for token in step.tokens)
    passes = pair.draft.passes - before
    return Decoded(prompt.prompt_id, token_ids, steps, passes, done - began, ready - began)
