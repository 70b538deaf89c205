"""Decoding prompts into a file: what `python -m speclab decode` writes, how a call that was stopped
goes on, and how a text is compared with plain greedy decoding.

Beside the result OUT stands OUT.settings.json: everything that decides its texts. It is written
before the first line, so that a later call knows whether the lines are its own.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import torch
from filelock import FileLock, Timeout
from tqdm import tqdm

from speclab.decode import Decoded, decode_prompt
from speclab.draft import Shape
from speclab.models.packing import LOGIT_BYTES
from speclab.models.pairs import Pair, free_bytes
from speclab.plain import parse_json, read_json
from speclab.profiles import Profile
from speclab.prompts import EncodedPrompt, Prompt, encode_prompts, prompts_digest
from speclab.record import generate
from speclab.sampling import Sampling

ANEW = "choose another --out, or --force to write it anew"


# ---- what is there already -----------------------------------------------------------------------


def settings_file(out: Path) -> Path:
    """Where the settings of a result stand."""
    return out.with_name(f"{out.name}.settings.json")


def settings_of(
    profile: Profile,
    prompts: Sequence[Prompt],
    rule: str,
    drafted: str | dict,
    check: bool,
) -> dict[str, Any]:
    """Everything that decides the lines of a result but their times, as JSON has it.

    drafted: the shape as it was asked for, or what a policy file holds.
    """
    from speclab.runs import pair_digests  # pandas: plain_difference does without

    models = {}
    for name, weights in pair_digests(profile).items():
        spec = asdict(getattr(profile, name))
        if spec["device"] == "auto":
            spec["device"] = "cuda:0" if torch.cuda.is_available() else "cpu"
        held = {key: spec[key] for key in ("dtype", "device", "backend")}
        models |= {f"{name}.{key}": value for key, value in held.items()}
        models[f"{name}.weights"] = weights
    names = ["template", "max_prompt_tokens", "max_new_tokens", "temperature"]
    if profile.temperature > 0:
        names += ["top_k", "top_p", "seed"]
    asked = {name: getattr(profile, name) for name in names}
    given = {"rule": rule, "drafted": drafted, "check": check}
    return models | asked | given | {"prompts": prompts_digest(prompts)}


def refuse_inputs(out: Path, prompts: Path, others: Sequence[Path] = ()) -> None:
    """ValueError where the result, or the settings beside it, would be written over what is read:
    the prompts, files of their folder, or `others`; links are followed.
    """
    read = [prompts, *(prompts.glob("*.jsonl") if prompts.is_dir() else ()), *others]
    for path in (out, settings_file(out)):
        for given in read:
            if path.exists() and given.exists() and path.samefile(given):
                raise ValueError(
                    f"--out {out} would be written over {given}, which is read; choose another "
                    "--out"
                )
    inside = prompts.is_dir() and out.parent.exists() and out.parent.samefile(prompts)
    if inside and out.suffix == ".jsonl":
        raise ValueError(
            f"--out {out} would be read as prompts by the next call: it ends on .jsonl in the "
            "folder of --prompts; choose another --out"
        )


def lines_there(
    out: Path, settings: dict, prompts: Sequence[Prompt], force: bool
) -> list[bytes]:
    """The whole lines that an earlier call with these settings left in a result, in the order of
    the prompts; none without a result, or with `force`. Reads only.

    ValueError for a file that holds anything else.
    """
    beside = settings_file(out)
    above = next(folder for folder in out.absolute().parents if folder.exists())
    if not above.is_dir():
        raise ValueError(f"--out {out}: {above} is no folder; choose another --out")
    if beside.is_dir() or (out.exists() and not out.is_file()):
        taken = beside if beside.is_dir() else out
        raise ValueError(f"--out {out}: {taken} is no file; choose another --out")
    if force or not out.exists() or not out.stat().st_size:
        return []
    if not beside.is_file():
        raise ValueError(
            f"--out {out} is there already, without its {beside.name}; {ANEW}"
        )
    there = read_json(beside, ANEW)
    if misfit := _misfit(there, settings):
        raise ValueError(
            f"--out {out} holds texts of other settings ({misfit}); {ANEW}"
        )
    lines = out.read_bytes().split(b"\n")[:-1]  # behind the last newline: half a line
    if len(lines) > len(prompts):
        raise ValueError(f"--out {out} has more lines than there are prompts; {ANEW}")
    for number, (line, prompt) in enumerate(zip(lines, prompts, strict=False), 1):
        _check_line(f"{out}, line {number}", line, prompt.prompt_id)
    return lines


def _misfit(there: dict, settings: dict) -> str:
    """What a result has otherwise than asked, in words."""
    words = [
        f"{name} are others"
        if name == "prompts" or name.endswith("weights")
        else f"{name} is {there.get(name)} there, {value} is asked"
        for name, value in settings.items()
        if there.get(name) != value
    ]
    return "; ".join(words)


def _check_line(where: str, line: bytes, prompt_id: str) -> None:
    try:
        row = parse_json(line)
    except ValueError as error:
        raise ValueError(f"{where}: damaged (not JSON: {error}); {ANEW}") from None
    if not isinstance(row, dict) or row.get("prompt_id") != prompt_id:
        raise ValueError(f"{where}: not the text of prompt {prompt_id!r}; {ANEW}")


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """One call at a time writes a result; ValueError where another does."""
    lock = out.with_name(f".{out.name}.lock")
    try:
        with FileLock(lock, timeout=0):
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)
    except Timeout:
        raise ValueError(
            f"--out {out} is being written by another call; wait for it or choose another --out"
        ) from None


@contextmanager
def _opened(out: Path, settings: dict, there: list[bytes]) -> Iterator[BinaryIO]:
    """The result, open behind the lines that stay; a new one is emptied before its settings are
    written, so that no old line ever stands under new settings.
    """
    from speclab.files import written

    with out.open("r+b" if there else "wb") as result:
        result.truncate(result.seek(sum(len(line) + 1 for line in there)))
        if not there:
            text = json.dumps(settings, indent=1) + "\n"
            written(settings_file(out), lambda path: path.write_text(text), "Nothing")
        yield result


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

    shapes: one a prompt; where a policy chose them, a line says `drafted`, the most tokens a block.
    check: each greedy text is compared with plain greedy decoding, and a line says
    `plain_difference` (see `margin_at_difference`). force: starts anew, whatever is there. Returns
    how many texts differ; they are told on standard error as well. ValueError if the file cannot be
    written, holds something else or is being written; if a block does not fit in memory.
    """
    limit = profile.max_prompt_tokens
    encoded = encode_prompts(pair.tokenizer, prompts, limit, profile.template)
    for prompt in encoded:  # before anything is written
        pair.target.check_ids(prompt.ids)
    longest = max(len(prompt.ids) for prompt in encoded) + profile.max_new_tokens
    for shape in set(shapes):
        check_room(pair, shape, longest)
    if cut := sum(prompt.cut > 0 for prompt in encoded):
        _tell(f"{cut} of {len(encoded)} prompts were cut to max_prompt_tokens={limit}")
    by_policy = isinstance(settings["drafted"], dict)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with _locked(out):
            there = lines_there(out, settings, prompts, force)
            rows = [json.loads(line) for line in there]
            if there:
                _tell(f"{len(there)} of {len(encoded)} texts are in {out}: going on")
            left = list(zip(encoded, shapes, strict=True))[len(there) :]
            bar = tqdm(left, "decode", len(encoded), initial=len(there), unit="prompt")
            with _opened(out, settings, there) as result:
                for prompt, shape in bar:
                    row = decoded_row(pair, prompt, rule, shape, profile, check)
                    if by_policy:
                        row["drafted"] = shape.size
                    result.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
                    result.flush()
                    rows.append(row)
    except OSError as error:
        raise ValueError(
            f"cannot write {out}: {error.strerror or error}; finished texts are kept; free space "
            "or choose another --out, then run again"
        ) from error
    if not check:
        return 0
    differ = sum(row["plain_difference"] is not None for row in rows)
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


def decoded_row(
    pair: Pair,
    prompt: EncodedPrompt,
    rule: str,
    shape: Shape,
    profile: Profile,
    check: bool,
) -> dict:
    """Decode a prompt; what the file says of it."""
    sampling = Sampling(profile.temperature, profile.top_k, profile.top_p)
    new = profile.max_new_tokens
    found = decode_prompt(pair, prompt, rule, shape, sampling, new, profile.seed)
    row = as_row(found, pair.tokenizer)
    if check:
        row["plain_difference"] = plain_difference(pair, prompt, found, new)
    return row


def check_room(pair: Pair, shape: Shape, text: int) -> None:
    """ValueError unless the pair can draft a block of this shape, and score it, in the memory that
    is free beside its weights; text: tokens of the longest prompt with its new ones.
    """
    if shape.tree is not None:
        pair.draft.check_branches(int(shape.tree.width.max()))
    target, free = pair.target, free_bytes(pair.target.device)
    heads = getattr(target.network.config, "num_attention_heads", 1)
    slot = heads * (4 + target.dtype.itemsize)  # mask and scores of what a node sees

    def need(drafted: int) -> int:
        return (drafted + 1) * (LOGIT_BYTES * target.vocab + slot * (text + drafted))

    largest = max(shape.size, shape.branches)
    if need(largest) > free:
        fit = max((n for n in range(largest) if need(n) <= free), default=0)
        raise ValueError(
            f"{target.device}: {largest} tokens in a pass need {need(largest) / 1e9:.2f} GB beside "
            f"the weights, {free / 1e9:.2f} GB are free; at most {fit} fit: lower the budget"
        )


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
