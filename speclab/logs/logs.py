"""Logs of other decoders: read, checked, as `passes`, and as a folder.

A format is a function from one JSON line to `Entry`s; `FORMATS` lists them, and `MARKS` how they
are recognised. A log with counts per pass gives `passes`; a log with totals per request gives the
same per-prompt sums and no passes. Nothing of a text is kept. `save` writes a log as a folder of
one table and a manifest, and `opened` reads such a folder or a log file.

Where the formats come from, and what their fields count: `data/engines/README.md`.
"""

import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from operator import getitem
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from speclab.logs import passes
from speclab.logs.passes import Answer
from speclab.plain import brief, parse_json, sha256_of
from speclab.stats import RESAMPLES
from speclab.study.prompts import check_domain
from speclab.study.reading import near
from speclab.study.runs import RunError, read_facts, write_facts

UNKNOWN = "unknown"  # the domain of a request that nothing assigns to one
HEURISTIC = "heuristic"
PREFIX = re.compile(r"^(chat)?cmpl-")  # of vLLM's id of a response
MOST = 10_000_000  # tokens or passes of an answer
SUMS = [*passes.REQUEST, *passes.SUMS]
SCHEMA = "speclab log, 1"
FACTS = ["format", "sources"]  # of a log, in its manifest
MANIFEST, PASSES, TOTALS = "manifest.json", "passes.parquet", "sums.parquet"
AGAIN = "write the folder again with `python -m speclab log FILE --out FOLDER --force`"


@dataclass(frozen=True)
class Totals:
    """What a log says of one answer that has no counts per pass: target passes, draft tokens that
    were verified (None: not said) and accepted, and emitted tokens.
    """

    prompt_id: str
    domain: str
    blocks: int
    accepted: int
    emitted: int
    drafted: int | None = None
    turn: int = 0
    where: str = ""  # as of `Answer`

    @property
    def has_passes(self) -> bool:
        """Whether the answer took a target pass after the prompt's own."""
        return self.blocks > 0


Entry = Answer | Totals


@dataclass(frozen=True)
class Log:
    """A log as it was read: its format, `passes` (None: the log has totals only), the per-prompt
    `sums` of `passes.sums_by_request`, and the SHA-256 of each source by name.
    """

    format: str
    passes: pd.DataFrame | None
    sums: pd.DataFrame
    sources: dict[str, str]

    @property
    def requests(self) -> int:
        """Number of requests. The turns of a conversation are one request."""
        return self.sums["prompt_id"].nunique()


def resamples(log: Log) -> int:
    """How many resamples a log's intervals use: RESAMPLES, and fewer for very many requests, so
    that the weights fit into memory.
    """
    return min(RESAMPLES, max(20_000_000 // log.requests, 200))


# ---- formats -------------------------------------------------------------------------------------


def whole_number(facts: Mapping[str, Any], name: str) -> int:
    """A whole number from 0 to MOST of a line. ValueError for anything else."""
    value = facts.get(name)
    if type(value) is not int or not 0 <= value <= MOST:
        raise ValueError(f"{name}={brief(value)}: a whole number from 0 to {MOST:,} is needed")
    return value


def counts(facts: Mapping[str, Any], name: str) -> list[int]:
    """A list of whole numbers from 0 to MOST of a line. ValueError for anything else."""
    values = facts.get(name)
    if not isinstance(values, list):
        raise ValueError(f"{name}={brief(values)}: a list of whole numbers is needed")
    for value in values:
        whole_number({name: value}, name)
    return values


def _identity(*names: Any) -> str:
    """The first known name of a request. ValueError if no name is known."""
    known = [str(name) for name in names if name not in (None, "")]
    if not known:
        raise ValueError("the request has no id")
    return known[0]


def _per_step(facts: Mapping[str, Any], tokens: int | None, who: tuple[str, str]) -> Entry:
    """One answer of vLLM's statistics, also as AIPerf keeps them; tokens: its completion tokens.

    The prompt's pass gives the first token. vLLM counts no pass without a draft, so tokens that are
    left came one by one. Without arrays (level `summary`) there are totals only.
    """
    blocks = whole_number(facts, "num_spec_steps")
    accepted = whole_number(facts, "num_accepted_draft_tokens")
    drafted = whole_number(facts, "num_draft_tokens")
    if facts.get("per_step_accepted") is None:
        emitted = accepted + blocks
        if tokens is not None:
            blocks += max(tokens - 1 - emitted, 0)
            emitted = max(tokens - 1, 0)
        return Totals(*who, blocks=blocks, accepted=accepted, emitted=emitted, drafted=drafted)
    steps, tried = counts(facts, "per_step_accepted"), counts(facts, "per_step_drafted")
    if (len(steps), sum(steps), sum(tried)) != (blocks, accepted, drafted):
        raise ValueError("per_step_accepted and per_step_drafted do not add up to the totals")
    plain = 0 if tokens is None else max(tokens - 1 - accepted - blocks, 0)
    return Answer(*who, steps, tried, tokens=tokens, before=1, plain=plain)


def _vllm(line: Mapping[str, Any]) -> Iterator[Entry]:
    """A response of vLLM with --per-request-spec-decode-metrics, or its last streamed chunk. The
    request's own id follows a PREFIX.
    """
    facts = line["metrics"]["speculative_decoding"]
    if facts is None:
        raise ValueError(
            "metrics.speculative_decoding is null: vLLM reports it for requests with n=1 only"
        )
    usage = line.get("usage") or {}
    tokens = whole_number(usage, "completion_tokens") if "completion_tokens" in usage else None
    name = PREFIX.sub("", _identity(line.get("id")))
    yield _per_step(facts, tokens, (name, UNKNOWN))


def _aiperf(line: Mapping[str, Any]) -> Iterator[Entry]:
    """A record of AIPerf's profile_export.jsonl."""
    facts, known = line["spec_decode_acceptance"], line.get("metadata") or {}
    names = (known.get("x_request_id"), known.get("conversation_id"), facts.get("request_id"))
    tokens = None
    if facts.get("completion_tokens") is not None:
        tokens = whole_number(facts, "completion_tokens")
    yield _per_step(facts, tokens, (_identity(*names), UNKNOWN))


def _sglang(line: Mapping[str, Any]) -> Iterator[Entry]:
    """A response of SGLang: meta_info with totals, the prompt's own token among its completion
    tokens.
    """
    facts = line["meta_info"]
    blocks, tokens = whole_number(facts, "spec_verify_ct"), whole_number(facts, "completion_tokens")
    emitted = max(tokens - 1, 0)
    accepted, drafted = max(emitted - blocks, 0), None
    if "spec_num_correct_drafts" in facts:
        accepted = whole_number(facts, "spec_num_correct_drafts")
    if "spec_num_proposed_drafts" in facts:
        drafted = whole_number(facts, "spec_num_proposed_drafts")
    name = _identity(facts.get("id"), line.get("id"))
    yield Totals(name, UNKNOWN, blocks, accepted, emitted, drafted)


def _spec_bench(line: Mapping[str, Any]) -> Iterator[Entry]:
    """A line of Spec-Bench or a fork: accept_lengths of all turns in a row, cut by decoding_steps;
    each length counts the target's own token. REST writes a colon into the name.
    """
    who = _identity(line["question_id"]), str(line.get("category", UNKNOWN))
    for choice in line["choices"]:
        is_usual = "accept_lengths" in choice
        lengths = counts(choice, "accept_lengths" if is_usual else "accept_lengths:")
        steps, tokens = _steps_of_turns(choice, len(lengths)), counts(choice, "new_tokens")
        if sum(steps) != len(lengths) or len(steps) != len(tokens):
            raise ValueError(
                f"decoding_steps adds up to {sum(steps)} in {len(steps)} turns, and "
                f"accept_lengths has {len(lengths)} entries, new_tokens {len(tokens)}"
            )
        first = 0
        for turn, (count, emitted) in enumerate(zip(steps, tokens, strict=True)):
            of_turn = lengths[first : first + count]
            first += count
            if count and sum(of_turn) == emitted - 1 and not is_usual:
                of_turn[0] += 1  # REST's first length leaves one token out
            if 0 in of_turn:
                raise ValueError("accept_lengths has 0: each length counts the target's own token")
            accepted = [length - 1 for length in of_turn]
            yield Answer(*who, accepted, None, tokens=emitted, turn=turn)


def _steps_of_turns(choice: Mapping[str, Any], lengths: int) -> list[int]:
    """Passes of each turn, of `lengths` in all: decoding_steps, or idxs where a fork keeps these
    (REST). Some methods count both from 0 (REST, Token Recycling).
    """
    steps = counts(choice, "idxs" if "idxs" in choice else "decoding_steps")
    is_from_0 = sum(steps) + len(steps) == lengths
    return [count + 1 for count in steps] if is_from_0 else steps


def _eagle(line: Mapping[str, Any]) -> Iterator[Entry]:
    """A line of EAGLE's or Medusa's answers: tokens and passes per turn; `idxs` counts the passes
    from 0.
    """
    who = _identity(line["question_id"]), str(line.get("category", UNKNOWN))
    for choice in line["choices"]:
        last, tokens = counts(choice, "idxs"), counts(choice, "new_tokens")
        if len(last) != len(tokens):
            raise ValueError(f"idxs has {len(last)} turns and new_tokens {len(tokens)}")
        for turn, (index, emitted) in enumerate(zip(last, tokens, strict=True)):
            accepted = max(emitted - index - 1, 0)
            yield Totals(*who, index + 1, accepted, emitted, turn=turn)


def _speclab(line: Mapping[str, Any]) -> Iterator[Entry]:
    """A line of `python -m speclab decode`."""
    if "drafted_per_step" not in line:
        raise ValueError(
            "it has no drafted_per_step, because an earlier version of the kit decoded it: decode "
            "the prompts again (decode --force)"
        )
    accepted, drafted, ids = (
        counts(line, name) for name in ("accepted_per_step", "drafted_per_step", "token_ids")
    )
    who = _identity(line.get("prompt_id")), str(line.get("domain", UNKNOWN))
    yield Answer(*who, accepted, drafted, tokens=len(ids))


FORMATS: dict[str, Callable[[Mapping[str, Any]], Iterator[Entry]]] = {
    "vllm": _vllm,
    "aiperf": _aiperf,
    "sglang": _sglang,
    "spec-bench": _spec_bench,
    "eagle": _eagle,
    "speclab": _speclab,
}
# where a line has a field that no format above has, and the name of its format
MARKS: list[tuple[Any, ...]] = [
    ("metrics", "speculative_decoding", "vllm"),
    ("spec_decode_acceptance", "aiperf"),
    ("meta_info", "spec_verify_ct", "sglang"),
    ("choices", 0, "accept_lengths", "spec-bench"),
    ("choices", 0, "accept_lengths:", "spec-bench"),
    ("choices", 0, "idxs", "eagle"),
    ("accepted_per_step", "speclab"),
]


# ---- files ---------------------------------------------------------------------------------------


def lines_of(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(where, what) of each line of a file with one JSON object per line, plain or .gz, or with one
    array of objects. ValueError names file and line.
    """
    opener: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig") as lines:
            for number, text in enumerate(lines, 1):
                if text.strip():
                    yield from _values_of(text, f"{path.name}, line {number}")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name} is damaged or cannot be read ({error})") from None


def _values_of(text: str, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A line's object, or each object of its array. ValueError names the line."""
    try:
        values = parse_json(text)
    except ValueError as error:
        raise ValueError(f"{where} is cut or no JSON ({error}); get the file again") from None
    if isinstance(values, list):
        yield from ((f"{where}, entry {i}", one) for i, one in enumerate(values))
    else:
        yield where, values


def recognised(line: Any, where: str) -> str:
    """The format of a line. ValueError where none fits."""
    for *path, name in MARKS:
        with suppress(LookupError, TypeError):
            reduce(getitem, path, line)
            return str(name)
    fields = brief([*line] if isinstance(line, dict) else line)
    raise ValueError(
        f"{where}: no format fits; the line has {fields}. Formats are {', '.join(FORMATS)}"
    )


def read_log(
    paths: Sequence[Path],
    kind: str = "",
    domains: Mapping[str, str] | None = None,
    drafted: int | str = "",
) -> Log:
    """Read files of one format, `kind` (default: recognised by the first line).

    domains: the domain of each prompt_id, in place of what the file says. drafted: tokens per
    draft, where the format does not say it: a number, or HEURISTIC for transformers' schedule.
    ValueError names the file and the line: no format fits, a line of another format, an answer that
    comes twice, counts that do not fit each other, nothing to read. Nothing is half read.
    """
    if kind and kind not in FORMATS:
        raise ValueError(f"format {kind!r} is unknown: {near(kind, FORMATS)}")
    length = str(drafted)
    if not re.fullmatch(rf"({HEURISTIC}|[1-9]\d*)?", length):
        raise ValueError(f"drafted={length!r}: a whole number from 1, or {HEURISTIC}, is needed")
    sources = {path.name: sha256_of(path) for path in paths}
    # every line of every file, in the format of the first that is recognised
    entries: list[Entry] = []
    seen: dict[tuple[str, int], str] = {}
    spelled: dict[str, str] = {}
    for path in paths:
        for where, line in lines_of(path):
            kind = kind or recognised(line, where)
            for entry in _entries(line, kind, where, domains, length):
                key = (entry.prompt_id, entry.turn)
                if key in seen:
                    raise ValueError(
                        f"{where}: request {entry.prompt_id!r} was read before ({seen[key]}); the "
                        "file was appended to, or holds several runs: keep one of them"
                    )
                seen[key] = where
                if entry.domain not in (UNKNOWN, *spelled.values()):
                    check_domain(entry.domain, spelled, where)
                if entry.has_passes:
                    entries.append(entry)
    if not entries:
        raise ValueError(f"{', '.join(sources)}: no request with a target pass to read")
    return _log(kind, entries, sources)


def _entries(
    line: Any, kind: str, where: str, domains: Mapping[str, str] | None, drafted: str
) -> Iterator[Entry]:
    """The answers of a line, each with its domain, its place, and its draft lengths where the
    format does not say them. ValueError names the line.
    """
    try:
        for entry in FORMATS[kind](line):
            domain = entry.domain if domains is None else domains.get(entry.prompt_id)
            if domain is None:
                raise ValueError(f"request {entry.prompt_id!r} is not among the prompts")
            entry = replace(entry, domain=domain, where=f"{where}: ")
            yield _with_drafted(entry, drafted) if drafted else entry
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"{where}: a field is not as in the format {kind} ({error!r})") from None


def _with_drafted(entry: Entry, drafted: str) -> Entry:
    """The same answer with its draft lengths. ValueError: its format says them, or has totals."""
    if isinstance(entry, Totals) or entry.drafted is not None:
        raise ValueError(
            "the log says how many tokens were drafted, or has totals only; leave --drafted out"
        )
    if drafted == HEURISTIC:
        return replace(entry, drafted=passes.heuristic_drafted(entry.accepted))
    return replace(entry, drafted=[int(drafted)] * len(entry.accepted))


def _log(kind: str, entries: Sequence[Entry], sources: dict[str, str]) -> Log:
    """What was read, as frames. ValueError for answers with and without counts per pass mixed."""
    answers = [entry for entry in entries if isinstance(entry, Answer)]
    if answers and len(answers) < len(entries):
        one = next(entry for entry in entries if isinstance(entry, Totals))
        raise ValueError(
            f"{one.where}request {one.prompt_id!r} has totals only, and {len(answers)} of "
            f"{len(entries)} requests have counts per pass: read the two kinds apart"
        )
    if answers:
        frame = passes.count_by_answer(answers)
        return Log(kind, frame, passes.sums_by_request(frame), sources)
    rows = [(t.prompt_id, t.domain, t.blocks, t.drafted, t.accepted, t.emitted) for t in entries]
    totals = pd.DataFrame(rows, columns=SUMS).astype({"drafted": float})
    return Log(kind, None, passes.sums_by_request(totals), sources)


# ---- folders -------------------------------------------------------------------------------------


def save(log: Log, folder: Path, force: bool = False) -> None:
    """Write a log as a folder: `passes.parquet` (`sums.parquet` where it has totals only) and
    `manifest.json` with its format, options, sources and checksums. No text is written.

    The folder appears whole or not at all. ValueError if it exists, unless `force` is set and it
    holds a log or nothing.
    """
    folder = Path(os.path.realpath(folder))  # a link stays
    refuse_folder(folder, force)
    name, table = (TOTALS, log.sums) if log.passes is None else (PASSES, log.passes)
    manifest = {"schema": SCHEMA} | {fact: getattr(log, fact) for fact in FACTS}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as place:
        made = Path(place, "log")
        made.mkdir()
        table.to_parquet(made / name, index=False, compression="zstd")
        write_facts(made / MANIFEST, manifest, [made / name])
        if folder.exists():
            folder.rename(Path(place, "before"))
        made.rename(folder)


def refuse_folder(folder: Path, force: bool) -> None:
    """ValueError if `save` may not write this folder."""
    if not os.path.lexists(os.path.realpath(folder)):
        return
    if not force:
        raise ValueError(f"{folder} exists already; name another --out, or replace it with --force")
    if not folder.is_dir() or {path.name for path in folder.iterdir()} - {MANIFEST, PASSES, TOTALS}:
        raise ValueError(f"{folder} holds something other than a log; name another --out")


def read_folder(folder: Path) -> Log:
    """The log of a folder that `save` wrote. Damaged if a file has changed since, RunError if the
    folder holds no log.
    """
    path = folder / MANIFEST
    facts = read_facts(path, AGAIN) if path.is_file() else {}
    if facts.get("schema") != SCHEMA:
        raise RunError(f"{folder} holds no log that this version of the kit reads; {AGAIN}")
    known = {fact: facts[fact] for fact in FACTS}
    (name,) = facts["files"]
    table = pd.read_parquet(folder / name)
    if name == TOTALS:
        return Log(passes=None, sums=table, **known)
    return Log(passes=table, sums=passes.sums_by_request(table), **known)


def is_log(folder: Path) -> bool:
    """Whether a folder looks like one that `save` wrote."""
    return any((folder / name).is_file() for name in (PASSES, TOTALS))


def opened(
    path: Path | str, kind: str = "", prompts: Path | str = "", drafted: int | str = ""
) -> Log:
    """The log in a folder of `python -m speclab log`, or in a log file that is read now.

    kind, drafted: as of `read_log`; prompts: a file for `domains_of`. All three are for log files
    only; ValueError with a folder, which holds what was read with its own options.
    """
    place = Path(path)
    if not place.exists():
        raise ValueError(f"{path} does not exist; name a log file, or a folder of `speclab log`")
    if not place.is_dir():
        domains = domains_of(Path(prompts)) if str(prompts) else None
        return read_log([place], kind, domains, drafted)
    if kind or str(prompts) or str(drafted):
        raise ValueError(
            f"{path} is a folder, which was read with its own options; leave out the format, the "
            "prompts and the draft length, or name the log file"
        )
    return read_folder(place)


def domains_of(path: Path) -> dict[str, str]:
    """The domain of each request, from JSON lines with prompt_id and domain, or with question_id
    and category (Spec-Bench, MT-Bench). A vLLM id may have its PREFIX. Other fields are not read.
    ValueError names the line.
    """
    found: dict[str, str] = {}
    for where, line in lines_of(path):
        facts = line if isinstance(line, dict) else {}
        name = facts.get("prompt_id", facts.get("question_id"))
        domain = facts.get("domain", facts.get("category"))
        if name is None or not isinstance(domain, str) or not domain:
            raise ValueError(f"{where}: prompt_id and domain are needed")
        request = PREFIX.sub("", str(name))
        if found.setdefault(request, domain) != domain:
            raise ValueError(f"{where}: {request!r} has two domains; keep one")
    return found
