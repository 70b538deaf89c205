"""Decoding prompts into a file: what `python -m speclab decode` writes, how a call that was stopped
goes on, and how a text is compared with plain greedy decoding.

Beside the result OUT stands OUT.settings.json: everything that decides its texts. It is written
before the first line, so that a later call knows whether the lines are its own.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from tqdm import tqdm

from speclab.decode import Decoded, decode_prompt
from speclab.draft import Shape
from speclab.models.pairs import Pair, device_of, fix_few_rows
from speclab.plain import notice, read_json
from speclab.profiles import MODELS, Profile
from speclab.prompts import EncodedPrompt, Prompt, encode_prompts
from speclab.record import generate
from speclab.sampling import Sampling

ANEW = "choose another --out, or --force to write it anew"


# ---- what is there already -----------------------------------------------------------------------


def settings_file(out: Path) -> Path:
    """Where the settings of a result stand."""
    return out.with_name(f"{out.name}.settings.json")


def settings_of(
    profile: Profile, prompts: Sequence[Prompt], rule: str, drafted: str | dict, check: bool
) -> dict[str, Any]:
    """Everything that decides the lines of a result but their times, as JSON has it; no path and
    no name.

    drafted: the shape as it was asked for, or what a policy file holds.
    """
    from speclab.runs import pair_digests, read_by_target  # pandas: the rest does without

    models = {}
    for name, weights in pair_digests(profile).items():
        spec = getattr(profile, name)
        models[name] = {
            "dtype": spec.dtype,
            "device": str(device_of(spec)),
            "backend": spec.backend,
            "weights": weights,
        }
    names = ["max_new_tokens", "temperature"]
    if profile.temperature > 0:
        names += ["top_k", "top_p", "seed"]
    asked = {name: getattr(profile, name) for name in names}
    given = {"rule": rule, "drafted": drafted, "check": check}
    return models | asked | given | read_by_target(profile, prompts).facts


def refuse_inputs(out: Path, read: Sequence[Path]) -> None:
    """ValueError where the result, or the settings beside it, would be written over what is read;
    links are followed.
    """
    for path in (out, settings_file(out)):
        for given in read:
            if path.exists() and given.exists() and path.samefile(given):
                raise ValueError(
                    f"--out {out} would be written over {given}, which is read; choose another "
                    "--out"
                )


def lines_there(
    out: Path, settings: dict, prompts: Sequence[Prompt], force: bool, check: bool
) -> list[bytes]:
    """The whole lines that an earlier call with these settings left in a result, in the order of
    the prompts; none without a result, or with `force`. check: each must hold its comparison with
    plain text. Reads only.

    ValueError for a file that holds anything else.
    """
    if force or not out.exists() or not out.stat().st_size:
        return []
    beside = settings_file(out)
    if not beside.is_file():
        raise ValueError(f"--out {out} is there already, without its {beside.name}; {ANEW}")
    there = read_json(beside, ANEW)
    others = [name for name in settings if there.get(name) != settings[name]]
    if others:
        raise ValueError(
            f"--out {out} holds texts of other settings ({', '.join(others)}: see "
            f"{beside.name}); {ANEW}"
        )
    lines = out.read_bytes().split(b"\n")[:-1]  # behind the last newline: half a line
    found = [_prompt_of(line, check) for line in lines]
    if found != [prompt.prompt_id for prompt in prompts][: len(found)]:
        raise ValueError(f"--out {out}: a line is damaged, or not the text of its prompt; {ANEW}")
    return lines


def _prompt_of(line: bytes, is_checked: bool) -> str | None:
    """Whose text a line holds; None for a line that is damaged or lacks a part."""
    try:
        row = json.loads(line)
        parts = {"token_ids", "text", *["plain_difference"] * is_checked}
        return row["prompt_id"] if parts <= {*row} else None
    except (ValueError, LookupError, TypeError):
        return None


# ---- decoding ------------------------------------------------------------------------------------


def decode_file(
    pair: Pair,
    prompts: Sequence[Prompt],
    profile: Profile,
    rule: str,
    shapes: Sequence[Shape],
    out: Path,
    settings: dict,
    check: bool = False,
    force: bool = False,
) -> int:
    """Decode prompts one after another into a JSON-lines file, each line written as it is done;
    goes on behind the lines of an earlier call with the same `settings` (of `settings_of`), cuts
    half a line, and says which prompts were cut.

    shapes: one a prompt; a line says `drafted`, the most tokens of a block.
    check: each greedy text is compared with plain greedy decoding, and a line says
    `plain_difference` (see there). force: starts anew, whatever is there. Returns
    how many texts differ; they are told on standard error as well. ValueError if the file holds
    something else.
    """
    limit = profile.max_prompt_tokens
    encoded = encode_prompts(pair.tokenizer, prompts, limit, profile.template)
    for prompt in encoded:  # before anything is written
        pair.target.check_ids(prompt.ids)
    if cut := sum(prompt.cut > 0 for prompt in encoded):
        notice(f"{cut} of {len(encoded)} prompts were cut to max_prompt_tokens={limit}")
    out.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(out.with_name(f".{out.name}.lock")):  # others wait
        lines = lines_there(out, settings, prompts, force, check)
        done = len(lines)
        if done:
            notice(f"{done} of {len(encoded)} texts are in {out}: going on")
        left = list(zip(encoded, shapes, strict=True))[done:]
        with out.open("ab") as result:
            result.truncate(sum(len(line) + 1 for line in lines))
            there = read_json(settings_file(out), ANEW) if done else {}
            fix_few_rows(pair, there.get("few_rows", {}))
            if not done:  # emptied first: no old line ever stands under new settings
                made_by = {name: pair.facts[name].get("few_rows") for name in MODELS}
                text = json.dumps(settings | {"few_rows": made_by}, indent=1)
                settings_file(out).write_text(text + "\n")
            bar = tqdm(left, "decode", len(encoded), initial=done, unit="prompt")
            for prompt, shape in bar:
                row = decoded_row(pair, prompt, rule, shape, profile, check)
                lines.append(json.dumps(row, ensure_ascii=False).encode())
                result.write(lines[-1] + b"\n")
                result.flush()
    if not check:
        return 0
    differ = sum(json.loads(line)["plain_difference"] is not None for line in lines)
    notice(
        f"compared with plain greedy decoding in {pair.facts['target']['dtype']}: "
        f"{len(lines) - differ} of {len(lines)} equal (plain_difference: where, at which margin)"
    )
    return differ


def decoded_row(
    pair: Pair, prompt: EncodedPrompt, rule: str, shape: Shape, profile: Profile, check: bool
) -> dict:
    """Decode a prompt; what the file says of it."""
    sampling = Sampling(profile.temperature, profile.top_k, profile.top_p)
    new = profile.max_new_tokens
    found = decode_prompt(pair, prompt, rule, shape, sampling, new, profile.seed)
    text = pair.tokenizer.decode(found.token_ids, skip_special_tokens=True)
    row = {
        "prompt_id": found.prompt_id,
        "text": text,
        "token_ids": list(found.token_ids),
        "drafted": shape.size,
        "accepted_per_step": [step.accepted for step in found.steps],
        "target_passes": found.target_passes,
        "draft_passes": found.draft_passes,
        "time_s": found.time_s,
        "prefill_time_s": found.prefill_time_s,
    }
    if shape.lookup:
        row["copied_per_step"] = [step.copied for step in found.steps]
    if check:
        row["plain_difference"] = plain_difference(pair, prompt, found, new)
    return row


def plain_difference(
    pair: Pair, prompt: EncodedPrompt, found: Decoded, max_new_tokens: int
) -> dict | None:
    """Where a greedy text leaves the plain one: `position`, and `target_margin`, the target's p of
    the best token minus p of the second there; None where they are equal.

    In half precision a packed pass rounds otherwise than a single one: a difference at a small
    margin is rounding, at a large one a bug.
    """
    (plain,) = generate(pair.target, [prompt], max_new_tokens, pair.stop_ids, Sampling(), 0)
    if found.token_ids == plain:
        return None
    equal = [a == b for a, b in zip(found.token_ids, plain, strict=False)]
    position = [*equal, False].index(False)
    text = torch.tensor([[*prompt.ids, *plain[:position]]])
    hidden = pair.target.forward(text, pair.target.cache())
    best = torch.softmax(pair.target.logits(hidden[0, -1]), -1).topk(2).values
    return {"position": position, "target_margin": float(best[0] - best[1])}
