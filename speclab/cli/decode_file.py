"""Decode prompts into a file, as `python -m speclab decode` does, and compare a text with plain
greedy decoding.
"""

import json
from typing import Any

import torch
from filelock import FileLock
from tqdm import tqdm

from speclab.cli.decode_call import DecodeCall
from speclab.decode import Decoded, decode_prompt
from speclab.model import Pair
from speclab.plain import EncodedPrompt, notice
from speclab.record import generate
from speclab.sampling import Sampling


def decode_file(call: DecodeCall, pair: Pair) -> int:
    """Decode the prompts of a call that have no line yet, and write each line when it is done. Half
    a line of an earlier call is removed. Prints how many prompts were cut.

    A line holds the prompt's `domain` if it has one, `drafted`, the most tokens of a block,
    `drafted_per_step` and `accepted_per_step`, the drafted and the accepted tokens of each target
    pass, and `plain_difference` (see there) if texts are compared with plain greedy decoding.
    Returns how many texts differ, and prints it on standard error. ValueError if the file holds
    something else.
    """
    out = call.out
    is_checked = call.is_greedy and (call.check or not pair.is_exact)
    encoded = call.encoded
    for prompt in encoded:  # before anything is written
        pair.target.check_ids(prompt.ids)
    if cut := sum(prompt.cut > 0 for prompt in encoded):
        limit = call.profile.max_prompt_tokens
        notice(f"{cut} of {len(encoded)} prompts are cut to max_prompt_tokens={limit}")
    with FileLock(out.with_name(f".{out.name}.lock")):  # others wait
        lines = call.lines_there()
        rows = call.rows_of(lines)
        if done := len(rows):
            notice(f"{out} has {done} of {len(encoded)} texts: continuing")
        left = [prompt for prompt in encoded if prompt.prompt_id not in rows]
        with out.open("ab") as result:
            result.truncate(len(lines))
            for prompt in tqdm(left, "decode", len(encoded), initial=done, unit="prompt"):
                row = decoded_row(call, pair, prompt, is_checked)
                result.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
                result.flush()
                rows[prompt.prompt_id] = row
    if not is_checked:
        return 0
    differ = sum(row.get("plain_difference") is not None for row in rows.values())
    notice(
        f"{len(rows) - differ} of {len(rows)} texts equal plain greedy decoding in "
        f"{pair.facts['target']['dtype']} (plain_difference says where others differ)"
    )
    return differ


def decoded_row(
    call: DecodeCall, pair: Pair, prompt: EncodedPrompt, is_checked: bool
) -> dict[str, Any]:
    """Decode a prompt; returns its line of the file."""
    shape, asked = call.parsed_shape, call.profile
    new, rule = asked.max_new_tokens, call.rule_for(shape)
    decoded = decode_prompt(pair, prompt, rule, shape, asked.sampling, new, asked.seed)
    text = pair.tokenizer.decode(decoded.token_ids, skip_special_tokens=True)
    row = {
        "settings": call.digests[prompt.prompt_id],
        "prompt_id": decoded.prompt_id,
        "text": text,
        "token_ids": list(decoded.token_ids),
        "drafted": shape.size,
        "drafted_per_step": [step.drafted for step in decoded.steps],
        "accepted_per_step": [step.accepted for step in decoded.steps],
        "target_passes": decoded.target_passes,
        "draft_passes": decoded.draft_passes,
        "time_s": decoded.time_s,
        "prefill_time_s": decoded.prefill_time_s,
    }
    if prompt.domain:
        row["domain"] = prompt.domain
    if shape.lookup:
        row["copied_per_step"] = [step.copied for step in decoded.steps]
    if is_checked:
        row["plain_difference"] = plain_difference(pair, prompt, decoded, new)
    return row


def plain_difference(
    pair: Pair, prompt: EncodedPrompt, decoded: Decoded, max_new_tokens: int
) -> dict[str, float] | None:
    """Where a greedy text first differs from plain decoding: `position`, and `target_margin`, the
    target's p of its best token minus p of its second token there. None if the texts are equal.

    In half precision a pass over several tokens rounds differently from a pass over one token. A
    difference at a small margin is rounding; at a large margin it is a bug.
    """
    (plain,) = generate(pair.target, [prompt], max_new_tokens, pair.stop_ids, Sampling(), 0)
    if decoded.token_ids == plain:
        return None
    equal = [a == b for a, b in zip(decoded.token_ids, plain, strict=False)]
    position = [*equal, False].index(False)
    text = torch.tensor([[*prompt.ids, *plain[:position]]])
    hidden = pair.target.forward(text, pair.target.cache())
    p = torch.softmax(pair.target.logits(hidden[0, -1]), -1)
    best, second = p.topk(2).values
    return {"position": position, "target_margin": float(best - second)}
