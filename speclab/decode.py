"""Lossless speculative decoding: draft a chain or a tree, score it in one target pass, verify,
commit, roll both caches back.

Knows the pair only through `speclab.model` and the rules only through `speclab.verify`. Yields one
`Step` a target pass.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from tqdm import tqdm

from speclab.draft import Proposal, Shape, propose
from speclab.model import KVCache, wait_for
from speclab.pairs import Pair
from speclab.profiles import Profile
from speclab.prompts import EncodedPrompt, Prompt, encode_prompts
from speclab.record import generate
from speclab.sampling import Sampling, probabilities, rank_key
from speclab.tree import chain
from speclab.verify import RULES, Verdict, greedy_path, verify

SAMPLING_RULES = tuple(name for name, rule in RULES.items() if rule.lossless and rule.step)


@dataclass(frozen=True)
class Step:
    """What one target pass gave: the emitted tokens, of which the first `accepted` were drafted;
    `kind` of the last one.

    kind: recovered (after a rejection), bonus (all accepted), or cut (the text ended on an accepted
    token).
    """

    tokens: tuple[int, ...]
    accepted: int
    drafted: int
    kind: str


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
    if rule != "greedy" and rule not in SAMPLING_RULES:
        raise ValueError(f"rule={rule!r}: lossless rules are greedy, {', '.join(SAMPLING_RULES)}")
    if (rule == "greedy") != sampling.greedy:
        raise ValueError(
            f"rule={rule!r} at temperature {sampling.temperature}: greedy goes with temperature 0, "
            "the sampling rules with temperatures above 0"
        )
    if rule == "rejection" and not (shape.tree and shape.tree.is_chain):
        kind = "static" if shape.tree else "dynamic"
        raise ValueError(
            f"rule='rejection' takes a chain of sampled tokens (--shape chain:4), not a {kind} tree; "
            "for trees use point-mass or without-replacement"
        )
    if rule == "without-replacement" and shape.tree is None:
        raise ValueError(
            "rule='without-replacement' takes a static tree: a dynamic one is chosen by probability, not sampled; use point-mass"
        )


def _score(pair: Pair, cache: KVCache, context: list[int], proposal: Proposal) -> Tensor:
    """The target's logits after the root and after every drafted node, [N + 1, vocab], in one pass."""
    tree, start = proposal.tree, len(context) - 1
    tokens = torch.from_numpy(np.concatenate([[context[-1]], proposal.tokens[1:]]))[None]
    if tree.is_chain:
        return pair.target.logits(pair.target.forward(tokens, cache)[0])
    visible = torch.cat(
        [torch.ones(tree.size + 1, start, dtype=torch.bool), torch.from_numpy(tree.ancestors)], 1
    )
    return pair.target.logits(
        pair.target.forward(tokens, cache, torch.from_numpy(start + tree.depth), visible)[0]
    )


def _verdict(
    rule: str, proposal: Proposal, logits: Tensor, sampling: Sampling, rng: np.random.Generator
) -> Verdict:
    if rule == "greedy":
        return greedy_path(
            proposal.tree, proposal.tokens, rank_key(logits).argmax(-1).cpu().numpy()
        )
    return verify(
        rule,
        proposal.tree,
        proposal.tokens,
        probabilities(logits, sampling),
        proposal.q,
        rng.random(proposal.tree.size + 1),
    )


def _emitted(
    proposal: Proposal, verdict: Verdict, remaining: int, stop_ids: frozenset[int]
) -> Step:
    """Accepted tokens and the token after them, cut behind the first stop token and at `remaining`."""
    tokens = [int(proposal.tokens[n]) for n in verdict.path] + [verdict.token]
    stop = next((i + 1 for i, t in enumerate(tokens) if t in stop_ids), len(tokens))
    tokens = tokens[: min(stop, remaining)]
    accepted = min(len(verdict.path), len(tokens))
    return Step(
        tuple(tokens),
        accepted,
        proposal.tree.size,
        "cut" if accepted == len(tokens) else verdict.kind,
    )


def prefill(pair: Pair, prompt_ids: tuple[int, ...], room: int) -> tuple[KVCache, KVCache]:
    """Both models' caches over the prompt but its last token, which is the first block's root."""
    caches = tuple(m.cache(len(prompt_ids) + room) for m in (pair.target, pair.draft))
    if len(prompt_ids) > 1:
        for model, cache in zip((pair.target, pair.draft), caches, strict=True):
            model.forward(torch.tensor([prompt_ids[:-1]]), cache)
    return caches


def decode(
    pair: Pair, prompt_ids: tuple[int, ...], rule: str, shape: Shape, sampling: Sampling, max_new_tokens: int,
    rng: np.random.Generator | None = None,
    caches: tuple[KVCache, KVCache] | None = None,
) -> Iterator[Step]:  # fmt: skip
    """Decode one prompt, a step at a time; the text's distribution is the target's own whatever
    draft, shape and lossless rule.

    shape: see speclab.draft. rng: source of uniforms, needed above temperature 0. caches: of
    `prefill`, else made here. Raises ValueError for what does not go together.
    """
    check_rule(rule, shape, sampling)
    if not prompt_ids or max_new_tokens < 1:
        raise ValueError(
            f"{len(prompt_ids)} prompt tokens, max_new_tokens={max_new_tokens}: at least one of each is needed"
        )
    if rng is None and not sampling.greedy:
        raise ValueError("rng: sampling needs a numpy Generator")
    context, left = list(prompt_ids), max_new_tokens
    target, draft = caches or prefill(pair, prompt_ids, max_new_tokens + shape.room)
    while left:
        proposal = propose(pair.draft, draft, context, shape, left, rule, sampling, rng)
        verdict = _verdict(rule, proposal, _score(pair, target, context, proposal), sampling, rng)
        step = _emitted(proposal, verdict, left, pair.stop_ids)
        target.keep(len(context), [len(context) - 1 + n for n in verdict.path[: step.accepted]])
        draft.keep(
            len(context),
            [
                int(proposal.slots[n])
                for n in verdict.path[: step.accepted]
                if proposal.slots[n] >= 0
            ],
        )
        context += step.tokens
        left -= len(step.tokens)
        yield step
        if step.tokens[-1] in pair.stop_ids:
            return


def decode_prompt(
    pair: Pair,
    prompt: EncodedPrompt,
    rule: str,
    shape: Shape,
    sampling: Sampling,
    max_new_tokens: int,
    seed: int = 0,
) -> Decoded:
    """One prompt to its end, timed; the random numbers belong to (seed, prompt_id)."""
    rng = np.random.default_rng([seed, *prompt.prompt_id.encode()])
    check_rule(rule, shape, sampling)
    began = time.perf_counter()
    caches = prefill(pair, prompt.ids, max_new_tokens + shape.room)
    for model in (pair.target, pair.draft):
        wait_for(
            model.device
        )  # else a GPU still works on the prompt, and the first block is charged for it
    before, ready = pair.draft.passes, time.perf_counter()
    steps = tuple(decode(pair, prompt.ids, rule, shape, sampling, max_new_tokens, rng, caches))
    done = time.perf_counter()
    return Decoded(
        prompt.prompt_id,
        tuple(t for s in steps for t in s.tokens),
        steps,
        pair.draft.passes - before,
        done - began,
        ready - began,
    )


def sweep(
    pair: Pair,
    prompts: list[EncodedPrompt],
    gammas: Iterable[int],
    rule: str,
    sampling: Sampling,
    max_new_tokens: int,
    seed: int = 0,
) -> pd.DataFrame:
    """Counts of real decoding with chains, one row a gamma and prompt: gamma, prompt_id, domain,
    blocks, drafted, accepted, emitted.

    The columns of `replay.chain_sums`, counted instead of replayed.
    """
    rows = []
    for gamma in gammas:
        for prompt in prompts:
            steps = decode_prompt(
                pair, prompt, rule, Shape(chain(gamma)), sampling, max_new_tokens, seed
            ).steps
            sums = (
                sum(s.drafted for s in steps),
                sum(s.accepted for s in steps),
                sum(len(s.tokens) for s in steps),
            )
            rows.append((gamma, prompt.prompt_id, prompt.domain, len(steps), *sums))
    return pd.DataFrame(
        rows, columns=["gamma", "prompt_id", "domain", "blocks", "drafted", "accepted", "emitted"]
    )


def as_row(decoded: Decoded, tokenizer: Any) -> dict:
    """What the command line writes for a text."""
    return {
        "prompt_id": decoded.prompt_id,
        "text": tokenizer.decode(decoded.token_ids, skip_special_tokens=True),
        "token_ids": list(decoded.token_ids),
        "accepted_per_step": [s.accepted for s in decoded.steps],
        "target_passes": decoded.target_passes,
        "draft_passes": decoded.draft_passes,
        "time_s": decoded.time_s, "prefill_time_s": decoded.prefill_time_s,
    }  # fmt: skip


def decode_file(
    pair: Pair, prompts: list[Prompt], profile: Profile, rule: str, shape: Shape, sampling: Sampling, seed: int, out: Path,
    check: bool = False, shape_of: Callable[[Prompt], Shape] | None = None,
) -> int:  # fmt: skip
    """Decode prompts one after another into a JSON-lines file, each line written as it is done;
    says prompts that were cut.

    shape_of: a shape for each prompt (a policy's) in place of `shape`; its line then says
    `drafted`, the most tokens a block. check: each greedy text is compared with plain greedy
    decoding, and a line says `plain_difference` (see `difference_row`). Returns how many texts
    differ; they are told on standard error as well.
    """
    encoded, differ = (
        encode_prompts(pair.tokenizer, prompts, profile.max_prompt_tokens, profile.template),
        0,
    )
    if cut := sum(1 for p in encoded if p.cut):
        print(
            f"{cut} of {len(encoded)} prompts were cut to max_prompt_tokens={profile.max_prompt_tokens}",
            file=sys.stderr,
        )
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("w", encoding="utf-8") as lines:
            for text, prompt in zip(
                prompts, tqdm(encoded, desc="decode", unit="prompt"), strict=True
            ):
                own = shape_of(text) if shape_of else shape
                found = decode_prompt(
                    pair, prompt, rule, own, sampling, profile.max_new_tokens, seed
                )
                row = as_row(found, pair.tokenizer) | (
                    {"drafted": own.tree.size if own.tree else own.budget} if shape_of else {}
                )
                row |= difference_row(pair, prompt, found, profile.max_new_tokens) if check else {}
                differ += bool(row.get("plain_difference"))
                lines.write(json.dumps(row, ensure_ascii=False) + "\n")
                lines.flush()
    except OSError as error:
        raise ValueError(
            f"cannot write {out}: {error.strerror or error}; lines already written are kept; choose another --out"
        ) from error
    if check:
        kept = f"compared with plain greedy decoding in {pair.facts['target']['dtype']}: {len(encoded) - differ} of {len(encoded)} equal"
        print(
            kept
            + (", the others say where and at which margin (plain_difference)" if differ else ""),
            file=sys.stderr,
        )
    return differ


def difference_row(pair: Pair, prompt: EncodedPrompt, found: Decoded, max_new_tokens: int) -> dict:
    """`plain_difference`: None where a greedy text is the plain one, else the first position that
    differs and the target's margin.
    """
    (plain,) = generate(pair.target, [prompt], max_new_tokens, pair.stop_ids, Sampling(), 0)
    difference = margin_at_difference(pair, prompt, found.token_ids, plain)
    return {
        "plain_difference": difference
        and {"position": difference[0], "target_margin": difference[1]}
    }


def margin_at_difference(
    pair: Pair, prompt: EncodedPrompt, token_ids: tuple[int, ...], plain: tuple[int, ...]
) -> tuple[int, float] | None:
    """Where a speculative text leaves the plain one, and the target's margin there (p of the best
    token minus p of the second).

    None when they are equal. In half precision a packed pass rounds otherwise than a single one: a
    difference at a small margin is rounding, at a large one a bug.
    """
    at = next(
        (i for i, (a, b) in enumerate(zip(token_ids, plain, strict=False)) if a != b),
        min(len(token_ids), len(plain)),
    )
    if at == len(token_ids) == len(plain):
        return None
    hidden = pair.target.forward(torch.tensor([[*prompt.ids, *plain[:at]]]), pair.target.cache())
    best = torch.softmax(pair.target.logits(hidden[0, -1]), -1).topk(2).values
    return at, float(best[0] - best[1])
