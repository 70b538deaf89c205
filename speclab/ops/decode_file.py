"""Decoding prompts into a file: what `python -m speclab decode` writes, and how it is compared with
plain greedy decoding.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from speclab.decode import Decoded, decode_prompt
from speclab.draft import Shape
from speclab.pairs import Pair
from speclab.profiles import Profile
from speclab.prompts import EncodedPrompt, Prompt, encode_prompts
from speclab.record import generate
from speclab.sampling import Sampling


def decode_file(
    pair: Pair,
    prompts: list[Prompt],
    profile: Profile,
    rule: str,
    shape: Shape,
    seed: int,
    out: Path,
    check: bool = False,
    shape_of: Callable[[Prompt], Shape] | None = None,
) -> int:
    """Decode prompts one after another into a JSON-lines file, each line written as it is done;
    says prompts that were cut.

    shape_of: a shape for each prompt (a policy's) in place of `shape`; its line then says
    `drafted`, the most tokens a block. check: each greedy text is compared with plain greedy
    decoding, and a line says `plain_difference` (see `margin_at_difference`). Returns how many
    texts differ; they are told on standard error as well. ValueError if the file cannot be written.
    """
    sampling = Sampling(profile.temperature, profile.top_k, profile.top_p)
    limit, new = profile.max_prompt_tokens, profile.max_new_tokens
    encoded = encode_prompts(pair.tokenizer, prompts, limit, profile.template)
    if cut := sum(prompt.cut > 0 for prompt in encoded):
        _tell(f"{cut} of {len(encoded)} prompts were cut to max_prompt_tokens={limit}")
    differ = 0
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("w", encoding="utf-8") as lines:
            for given, prompt in zip(
                prompts, tqdm(encoded, "decode", unit="prompt"), strict=True
            ):
                shape = shape_of(given) if shape_of else shape
                found = decode_prompt(pair, prompt, rule, shape, sampling, new, seed)
                row = as_row(found, pair.tokenizer)
                if shape_of:
                    row["drafted"] = shape.size
                if check:
                    row["plain_difference"] = plain_difference(pair, prompt, found, new)
                    differ += row["plain_difference"] is not None
                lines.write(json.dumps(row, ensure_ascii=False) + "\n")
                lines.flush()
    except OSError as error:
        raise ValueError(
            f"cannot write {out}: {error.strerror or error}; lines already written are kept; "
            "choose another --out"
        ) from error
    if check:
        where = (
            ", the others say where and at which margin (plain_difference)"
            if differ
            else ""
        )
        _tell(
            f"compared with plain greedy decoding in {pair.facts['target']['dtype']}: "
            f"{len(encoded) - differ} of {len(encoded)} equal{where}"
        )
    return differ


def _tell(text: str) -> None:
    print(text, file=sys.stderr)


def as_row(decoded: Decoded, tokenizer: Any) -> dict:
    """What the file says of a text."""
    return {
        "prompt_id": decoded.prompt_id,
        "text": tokenizer.decode(decoded.token_ids, skip_special_tokens=True),
        "token_ids": list(decoded.token_ids),
        "accepted_per_step": [step.accepted for step in decoded.steps],
        "target_passes": decoded.target_passes,
        "draft_passes": decoded.draft_passes,
        "time_s": decoded.time_s,
        "prefill_time_s": decoded.prefill_time_s,
    }


def plain_difference(
    pair: Pair, prompt: EncodedPrompt, found: Decoded, max_new_tokens: int
) -> dict | None:
    """Where a greedy text leaves the plain one: `position`, and the target's margin there; None
    where they are equal.
    """
    (plain,) = generate(
        pair.target, [prompt], max_new_tokens, pair.stop_ids, Sampling(), 0
    )
    return margin_at_difference(pair, prompt, found.token_ids, plain)


def margin_at_difference(
    pair: Pair,
    prompt: EncodedPrompt,
    token_ids: tuple[int, ...],
    plain: tuple[int, ...],
) -> dict | None:
    """Where a speculative text leaves the plain one: `position`, and `target_margin`, the target's
    p of the best token minus p of the second there; None when they are equal.

    In half precision a packed pass rounds otherwise than a single one: a difference at a small
    margin is rounding, at a large one a bug.
    """
    if token_ids == plain:
        return None
    equal = [a == b for a, b in zip(token_ids, plain, strict=False)]
    position = [*equal, False].index(False)
    text = torch.tensor([[*prompt.ids, *plain[:position]]])
    hidden = pair.target.forward(text, pair.target.cache())
    best = torch.softmax(pair.target.logits(hidden[0, -1]), -1).topk(2).values
    return {"position": position, "target_margin": float(best[0] - best[1])}
