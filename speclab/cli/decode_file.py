"""Decode prompts into a file, as `python -m speclab decode` does, and compare a text with plain
greedy decoding.

Each line of the file holds a digest of everything that decides it, so that a later call knows its
own lines and continues after them.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from filelock import FileLock
from tqdm import tqdm

from speclab.decode import Decoded, check_rule, decode_prompt
from speclab.model import Pair
from speclab.models.pairs import device_of
from speclab.plain import EncodedPrompt, Facts, digest_of, notice
from speclab.record import generate
from speclab.sampling import Sampling
from speclab.shapes import Shape, parse_shape
from speclab.study.pairs import pair_digests, read_by_target
from speclab.study.profiles import Profile
from speclab.study.prompts import read_prompts
from speclab.study.runs import output_file

BEGIN = b'{"settings": "'  # of every line
# the parameters of a profile that decide what is decoded
READS = (
    "target",
    "draft",
    "dtype",
    "device",
    "backend",
    "template",
    "max_prompt_tokens",
    "truncate",
    "max_new_tokens",
    "temperature",
    "top_k",
    "top_p",
    "seed",
)


@dataclass(frozen=True)
class DecodeCall:
    """What a call of `decode` does. Loads no weights.

    prompts: as the target reads them, by the digest of their lines. force: start over.
    """

    profile: Profile
    out: Path
    prompts: dict[str, EncodedPrompt]
    rule: str
    shape: Shape
    check: bool
    force: bool


def open_call(
    profile: Profile,
    prompts: Path,
    out: Path,
    rule: str | None = None,
    shape: str = "chain:4",
    check: bool = False,
    force: bool = False,
) -> DecodeCall:
    """The call with these options of the command line. ValueError for options that exclude each
    other, for prompts that cannot be read, and for an `out` that is no file.
    """
    output_file(out)
    # the named rule, else the lossless rule for shape and temperature
    sampling, drafted = profile.sampling, parse_shape(shape)
    warm_rule = "rejection" if drafted.is_chain else "point-mass"
    rule = rule or ("greedy" if sampling.greedy else warm_rule)
    check_rule(rule, drafted, sampling)
    if check and not sampling.greedy:
        raise ValueError(
            f"--check compares greedy texts only, and T = {profile.temperature:g} is not greedy; "
            "omit it"
        )
    read, facts = read_by_target(profile, read_prompts(prompts, needs_domain=False))
    # everything that decides a line, except its prompt; no path
    specs = profile.target, profile.draft
    settings = [
        pair_digests(profile),
        [[spec.dtype, str(device_of(spec)), spec.backend] for spec in specs],
        [profile.max_new_tokens, sampling, not sampling.greedy and profile.seed],
        [rule, shape, check, facts["stop_ids"], facts["left_out"] or None],
    ]
    encoded = {
        digest_of([settings, prompt.prompt_id, prompt.domain, prompt.ids])[:16]: prompt
        for prompt in read
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    return DecodeCall(profile, out, encoded, rule, drafted, check, force)


def finished_lines(call: DecodeCall) -> tuple[int, set[str]]:
    """How many bytes of the file are whole lines of an earlier call, and the digests of these
    lines; nothing with --force. Half a line at the end is left out. ValueError for a file of
    something else, and for a line with another digest than this call's.
    """
    content = call.out.read_bytes() if call.out.exists() else b""
    if not BEGIN.startswith(content[: len(BEGIN)]):
        raise ValueError(
            f"--out {call.out} exists already and is no result of decode; choose another --out"
        )
    if call.force:
        return 0, set()
    *lines, half = content.split(b"\n")
    done = [line[len(BEGIN) :][:16].decode(errors="replace") for line in lines]
    for number, digest in enumerate(done, 1):
        if digest not in call.prompts:
            raise ValueError(
                f"--out {call.out}, line {number} is damaged, or was decoded with other settings, "
                "models or prompts; choose another --out, or start over with --force"
            )
    return len(content) - len(half), {*done}


def decode_file(call: DecodeCall, pair: Pair) -> None:
    """Decode the prompts of a call that have no line yet, and write each line when it is done. Half
    a line of an earlier call is removed. Prints how many prompts were cut, and how many texts
    differ from plain greedy decoding if they are compared with it.

    A line holds the prompt's `domain` if it has one, `drafted`, the most tokens of a block,
    `drafted_per_step` and `accepted_per_step`, the drafted and the accepted tokens of each target
    pass, and `plain_difference` (see there). ValueError as of `finished_lines`.
    """
    out, count = call.out, len(call.prompts)
    if cut := sum(prompt.cut > 0 for prompt in call.prompts.values()):
        limit = call.profile.max_prompt_tokens
        notice(f"{cut} of {count} prompts are cut to max_prompt_tokens={limit}")
    for prompt in call.prompts.values():  # before anything is written
        pair.target.check_ids(prompt.ids)
    with FileLock(out.with_name(f".{out.name}.lock")):  # other calls wait
        size, done = finished_lines(call)
        rows, left = [], [digest for digest in call.prompts if digest not in done]
        with out.open("ab") as result:
            result.truncate(size)
            for digest in tqdm(left, "decode", count, initial=len(done), unit="prompt"):
                row = {"settings": digest} | decoded_row(call, pair, call.prompts[digest])
                result.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
                result.flush()
                rows.append(row)
    compared = [row["plain_difference"] for row in rows if "plain_difference" in row]
    if compared:
        notice(
            f"{compared.count(None)} of {len(compared)} texts equal plain greedy decoding in "
            f"{pair.facts['target']['dtype']} (plain_difference says where others differ)"
        )


def decoded_row(call: DecodeCall, pair: Pair, prompt: EncodedPrompt) -> Facts:
    """Decode a prompt; returns its line of the file, but for the digest."""
    profile, shape = call.profile, call.shape
    new, sampling = profile.max_new_tokens, profile.sampling
    decoded = decode_prompt(pair, prompt, call.rule, shape, sampling, new, profile.seed)
    row = {
        "prompt_id": prompt.prompt_id,
        "text": pair.tokenizer.decode(decoded.token_ids, skip_special_tokens=True),
        "token_ids": decoded.token_ids,
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
    if sampling.greedy and (call.check or not pair.is_exact):
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
    best, second = torch.softmax(pair.target.logits(hidden[0, -1]), -1).topk(2).values
    return {"position": position, "target_margin": float(best - second)}
