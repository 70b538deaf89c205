"""Logs of other decoders: read, checked, as `passes`, and as a folder.

A format is a function from one JSON line to `Entry`s; `FORMATS` lists them in the order in which
they are recognised. A log with counts per pass gives `passes`; a log with totals per request gives
the same per-prompt sums and no passes. Nothing of a text is kept. `save` writes a log as a folder
of one table and a manifest, and `opened` reads such a folder or a log file.

Where the formats come from, and what their fields count: `data/engines/README.md`.
"""

import gzip
import os
import re
import tomllib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass as checked_dataclass

from speclab.logs import passes
from speclab.logs.passes import Answer
from speclab.logs.specdecode_bench import LIMIT
from speclab.plain import STRICT, Facts, brief, checked, near, parse_json, sha256_of
from speclab.score import require
from speclab.stats import RESAMPLES
from speclab.study.manifest import Count, Sha256, Text
from speclab.study.profiles import ROOT
from speclab.study.prompts import check_domain
from speclab.study.runs import Damaged, RunError, read_facts, write_facts

UNKNOWN = "unknown"  # the domain of a request that nothing assigns to one
HEURISTIC = "heuristic"
PREFIX = re.compile(r"^(chat)?cmpl-")  # of vLLM's id of a response
MOST = 10_000_000  # tokens or passes of an answer
SUMS = ["prompt_id", "domain", "blocks", "drafted", "accepted", "emitted"]
MOST_WEIGHTS, FEWEST_RESAMPLES = 20_000_000, 200  # of `resamples`
SCHEMA = "speclab log, 1"
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
    where: str = ""  # the file and the line, for messages

    @property
    def has_passes(self) -> bool:
        """Whether the answer took a target pass after the prompt's own."""
        return self.blocks > 0


Entry = Answer | Totals


@dataclass(frozen=True)
class Log:
    """A log as it was read: its format, `passes` (None: the log has totals only), the per-prompt
    `sums` of `replay.prompt_sums` (without survival columns where there are no passes), and the
    SHA-256 of each source by name.

    drafted: the draft length that the reader named ("": the log says it, or nobody does).
    left_out: answers without a target pass, whose only token came with the prompt's own pass.
    """

    format: str
    passes: pd.DataFrame | None
    sums: pd.DataFrame
    sources: dict[str, str]
    drafted: str = ""
    left_out: int = 0

    @property
    def requests(self) -> int:
        """Number of requests. The turns of a conversation are one request."""
        return self.sums["prompt_id"].nunique()


def resamples(log: Log) -> int:
    """How many resamples a log's intervals use: RESAMPLES, and fewer for very many requests, so
    that the weights fit into memory.
    """
    return min(RESAMPLES, max(MOST_WEIGHTS // log.requests, FEWEST_RESAMPLES))


# ---- formats -------------------------------------------------------------------------------------


class Wrong(ValueError):
    """What a line says does not fit; the message names the field."""


def whole_number(facts: Mapping[str, Any], name: str) -> int:
    """A whole number from 0 to MOST of a line. Wrong for anything else."""
    value = facts.get(name)
    if type(value) is not int or not 0 <= value <= MOST:
        raise Wrong(f"{name}={brief(value)}: a whole number from 0 to {MOST:,} is needed")
    return value


def counts(facts: Mapping[str, Any], name: str) -> list[int]:
    """A list of whole numbers from 0 to MOST of a line. Wrong for anything else."""
    values = facts.get(name)
    if not isinstance(values, list):
        raise Wrong(f"{name}={brief(values)}: a list of whole numbers is needed")
    is_whole = {*map(type, values)} <= {int}
    if values and not (is_whole and min(values) >= 0 and max(values) <= MOST):
        wrong = next(v for v in values if type(v) is not int or not 0 <= v <= MOST)
        raise Wrong(f"{name} has {brief(wrong)}: whole numbers from 0 to {MOST:,} are needed")
    return values


def _identity(*names: Any) -> str:
    """The first known name of a request. Wrong if no name is known."""
    known = [str(name) for name in names if name not in (None, "")]
    if not known:
        raise Wrong("the request has no id")
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
    for name, total, stated in (
        ("per_step_accepted has", len(steps), blocks),
        ("per_step_accepted adds up to", sum(steps), accepted),
        ("per_step_drafted adds up to", sum(tried), drafted),
    ):
        if total != stated:
            raise Wrong(f"{name} {total}, and the line's total is {stated}")
    plain = 0 if tokens is None else max(tokens - 1 - accepted - blocks, 0)
    return Answer(*who, steps, tried, tokens=tokens, before=1, plain=plain)


def _vllm(line: Mapping[str, Any]) -> Iterator[Entry] | None:
    """A response of vLLM with --per-request-spec-decode-metrics, or its last streamed chunk. The
    request's own id follows a PREFIX.
    """
    metrics = line.get("metrics")
    if not isinstance(metrics, dict) or "speculative_decoding" not in metrics:
        return None
    facts = metrics["speculative_decoding"]
    if facts is None:
        raise Wrong(
            "metrics.speculative_decoding is null: vLLM reports it for requests with n=1 only"
        )
    usage = line.get("usage") or {}
    tokens = whole_number(usage, "completion_tokens") if "completion_tokens" in usage else None
    name = PREFIX.sub("", _identity(line.get("id")))
    return iter([_per_step(facts, tokens, (name, UNKNOWN))])


def _aiperf(line: Mapping[str, Any]) -> Iterator[Entry] | None:
    """A record of AIPerf's profile_export.jsonl."""
    facts = line.get("spec_decode_acceptance")
    if not isinstance(facts, dict):
        return None
    known = line.get("metadata") or {}
    names = (known.get("x_request_id"), known.get("conversation_id"), facts.get("request_id"))
    tokens = None
    if facts.get("completion_tokens") is not None:
        tokens = whole_number(facts, "completion_tokens")
    return iter([_per_step(facts, tokens, (_identity(*names), UNKNOWN))])


def _sglang(line: Mapping[str, Any]) -> Iterator[Entry] | None:
    """A response of SGLang: meta_info with totals, the prompt's own token among its completion
    tokens.
    """
    facts = line.get("meta_info")
    if not isinstance(facts, dict) or "spec_verify_ct" not in facts:
        return None
    blocks, tokens = whole_number(facts, "spec_verify_ct"), whole_number(facts, "completion_tokens")
    emitted = max(tokens - 1, 0)
    if "spec_num_correct_drafts" in facts:
        accepted = whole_number(facts, "spec_num_correct_drafts")
    else:
        accepted = max(emitted - blocks, 0)
    drafted = None
    if "spec_num_proposed_drafts" in facts:
        drafted = whole_number(facts, "spec_num_proposed_drafts")
    name = _identity(facts.get("id"), line.get("id"))
    return iter([Totals(name, UNKNOWN, blocks, accepted, emitted, drafted)])


def _spec_bench(line: Mapping[str, Any]) -> Iterator[Entry] | None:
    """A line of Spec-Bench or a fork: accept_lengths of all turns in a row, cut by decoding_steps;
    each length counts the target's own token.
    """
    choices = line.get("choices")
    if not isinstance(choices, list) or "question_id" not in line or not choices:
        return None
    if not isinstance(choices[0], dict) or not _lengths_name(choices[0]):
        return None
    return _spec_bench_answers(line, choices)


def _lengths_name(choice: Mapping[str, Any]) -> str:
    """How a choice spells its accept lengths (REST writes a colon into the name); "": it has
    none.
    """
    return next((name for name in ("accept_lengths", "accept_lengths:") if name in choice), "")


def _spec_bench_answers(
    line: Mapping[str, Any], choices: Sequence[Mapping[str, Any]]
) -> Iterator[Entry]:
    who = _identity(line["question_id"]), str(line.get("category", UNKNOWN))
    for choice in choices:
        lengths = counts(choice, _lengths_name(choice))
        steps, tokens = _steps_of_turns(choice, len(lengths)), counts(choice, "new_tokens")
        if sum(steps) != len(lengths) or len(steps) != len(tokens):
            raise Wrong(
                f"decoding_steps adds up to {sum(steps)} in {len(steps)} turns, and "
                f"accept_lengths has {len(lengths)} entries, new_tokens {len(tokens)}"
            )
        first = 0
        for turn, (count, emitted) in enumerate(zip(steps, tokens, strict=True)):
            of_turn = lengths[first : first + count]
            first += count
            if count and sum(of_turn) == emitted - 1 and "accept_lengths" not in choice:
                of_turn[0] += 1  # REST's first length leaves one token out
            if 0 in of_turn:
                raise Wrong("accept_lengths has 0: each length counts the target's own token")
            accepted = [length - 1 for length in of_turn]
            yield Answer(*who, accepted, None, tokens=emitted, turn=turn)


def _steps_of_turns(choice: Mapping[str, Any], lengths: int) -> list[int]:
    """Passes of each turn, of `lengths` in all: decoding_steps, or idxs where a fork keeps these
    (REST). Some methods count both from 0 (REST, Token Recycling).
    """
    steps = counts(choice, "idxs" if "idxs" in choice else "decoding_steps")
    is_from_0 = sum(steps) + len(steps) == lengths
    return [count + 1 for count in steps] if is_from_0 else steps


def _eagle(line: Mapping[str, Any]) -> Iterator[Entry] | None:
    """A line of EAGLE's or Medusa's answers: tokens and passes per turn; `idxs` counts the passes
    from 0.
    """
    choices = line.get("choices")
    if not isinstance(choices, list) or not choices or "question_id" not in line:
        return None
    if not isinstance(choices[0], dict) or "idxs" not in choices[0]:
        return None
    who = _identity(line["question_id"]), str(line.get("category", UNKNOWN))

    def answers() -> Iterator[Entry]:
        for choice in choices:
            last, tokens = counts(choice, "idxs"), counts(choice, "new_tokens")
            if len(last) != len(tokens):
                raise Wrong(f"idxs has {len(last)} turns and new_tokens {len(tokens)}")
            for turn, (index, emitted) in enumerate(zip(last, tokens, strict=True)):
                blocks = index + 1
                accepted = max(emitted - blocks, 0)
                yield Totals(*who, blocks, accepted, emitted, turn=turn)

    return answers()


def _speclab(line: Mapping[str, Any]) -> Iterator[Entry] | None:
    """A line of `python -m speclab decode`."""
    if "accepted_per_step" not in line or "target_passes" not in line:
        return None
    if "drafted_per_step" not in line:
        raise Wrong(
            "it has no drafted_per_step, because an earlier version of the kit decoded it: decode "
            "the prompts again (decode --force)"
        )
    accepted = counts(line, "accepted_per_step")
    drafted = counts(line, "drafted_per_step")
    tokens = len(counts(line, "token_ids"))
    who = _identity(line.get("prompt_id")), str(line.get("domain", UNKNOWN))
    return iter([Answer(*who, accepted, drafted, tokens=tokens)])


def _specdecode(field: str) -> "Reader":
    """The reader of SpecDecode-Bench's traces for one proposer. Entry i of `acc_len` is what a
    block emits that begins at token i. The passes are the blocks that a decoder visits, from token
    1 on, because the first token comes with the prompt's own pass.
    """

    def reader(line: Mapping[str, Any]) -> Iterator[Entry] | None:
        facts = line.get(field)
        if not isinstance(facts, dict) or "acc_len" not in facts:
            return None
        emitted = counts(facts, "acc_len")
        if 0 in emitted:
            raise Wrong("acc_len has 0: each entry counts the target's own token")
        accepted, at = [], 1
        while at < len(emitted):
            accepted.append(emitted[at] - 1)
            at += emitted[at]
        drafted = [LIMIT] * len(accepted)
        name = _identity(line.get("id"))
        return iter([Answer(name, UNKNOWN, accepted, drafted, tokens=len(emitted), before=1)])

    return reader


Reader = Callable[[Mapping[str, Any]], Iterator[Entry] | None]
FORMATS: dict[str, Reader] = {
    "vllm": _vllm,
    "aiperf": _aiperf,
    "sglang": _sglang,
    "spec-bench": _spec_bench,
    "eagle": _eagle,
    "speclab": _speclab,
}
# a line of SpecDecode-Bench has two proposers, so the format has to be named
RECOGNISED = tuple(FORMATS)
FORMATS |= {"specdecode-eagle": _specdecode("acc_eagle")}
FORMATS |= {"specdecode-ngram": _specdecode("acc_ngram")}


# ---- files ---------------------------------------------------------------------------------------


def lines_of(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(where, what) of each line of a file with one JSON object per line, plain or .gz, or with one
    array of objects. ValueError names file and line.
    """
    for number, text in enumerate(_texts_of(path), 1):
        where = f"{path.name}, line {number}"
        if not text.strip():
            continue
        try:
            values = parse_json(text)
        except ValueError as error:
            raise ValueError(f"{where} is cut or no JSON ({error}); get the file again") from None
        if isinstance(values, list):
            yield from ((f"{where}, entry {i}", one) for i, one in enumerate(values))
        else:
            yield where, values


def _texts_of(path: Path) -> Iterator[str]:
    """The lines of a file, plain or .gz. ValueError if it is damaged or cannot be read."""
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig") as lines:
            yield from lines
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name} is damaged or cannot be read ({error})") from None


def recognised(line: Any, where: str) -> str:
    """The format of a line. ValueError where none fits."""
    for name in RECOGNISED:
        try:
            entries = FORMATS[name](line) if isinstance(line, dict) else None
        except (Wrong, AttributeError, LookupError, TypeError):
            return name
        if entries is not None:
            return name
    fields = ", ".join(line) if isinstance(line, dict) else type(line).__name__
    raise ValueError(
        f"{where}: no format fits; the line has {brief(fields)}. Formats are {', '.join(FORMATS)}; "
        "name one with --format"
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
    if kind:
        _known_format(kind)
    length = _draft_length(drafted)
    sources = {path.name: sha256_of(path) for path in paths}
    if len(sources) < len(paths):
        raise ValueError("two of the files have the same name; rename one of them")
    # every line of every file, in the format of the first that is recognised
    entries: list[Entry] = []
    seen: dict[tuple[str, int], str] = {}
    spelled: dict[str, str] = {}
    for path in paths:
        for where, line in lines_of(path):
            kind = kind or recognised(line, where)
            for entry in _entries(line, kind, where, domains):
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
                    entries.append(_with_drafted(entry, length))
    if not entries:
        raise ValueError(f"{', '.join(sources)}: no request with a target pass to read")
    log = _log(kind, entries, sources)
    return replace(log, drafted=str(drafted), left_out=len(seen) - len(entries))


def _draft_length(drafted: int | str) -> int | str:
    """The draft length that the reader names: a number, HEURISTIC, or "". ValueError for anything
    else.
    """
    text = str(drafted)
    if text in ("", HEURISTIC):
        return text
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"drafted={text!r}: a whole number from 1, or {HEURISTIC}, is needed")
    return int(text)


def _entries(
    line: Any, kind: str, where: str, domains: Mapping[str, str] | None
) -> Iterator[Entry]:
    """The answers of a line, each with its domain and its place. ValueError names the line."""
    try:
        found = FORMATS[kind](line) if isinstance(line, dict) else None
        if found is None:
            raise Wrong(f"it is no line of the format {kind}")
        for entry in found:
            domain = entry.domain if domains is None else domains.get(entry.prompt_id)
            if domain is None:
                raise Wrong(f"request {entry.prompt_id!r} is not among the prompts of --prompts")
            yield replace(entry, domain=domain, where=where)
    except Wrong as error:
        raise ValueError(f"{where}: {error}") from None
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"{where}: a field is not as in the format {kind} ({error!r})") from None


def _with_drafted(entry: Entry, drafted: int | str) -> Entry:
    """The same answer with its draft lengths, where the format does not say them."""
    if not drafted:
        return entry
    if not isinstance(entry, Answer):
        raise ValueError(f"{entry.where}: the log has totals only; leave --drafted out")
    if entry.drafted is not None:
        raise ValueError(
            f"{entry.where}: the log says how many tokens were drafted; leave --drafted out"
        )
    if isinstance(drafted, int):
        return replace(entry, drafted=[drafted] * len(entry.accepted))
    try:
        return replace(entry, drafted=passes.heuristic_drafted(entry.accepted))
    except ValueError as error:
        raise ValueError(f"{entry.name}, {error}") from None


def _log(kind: str, entries: Sequence[Entry], sources: dict[str, str]) -> Log:
    """What was read, as frames. ValueError for answers with and without counts per pass mixed."""
    answers = [entry for entry in entries if isinstance(entry, Answer)]
    if answers and len(answers) < len(entries):
        one = next(entry for entry in entries if isinstance(entry, Totals))
        raise ValueError(
            f"{one.where}: request {one.prompt_id!r} has totals only, and {len(answers)} of "
            f"{len(entries)} requests have counts per pass: read the two kinds apart"
        )
    if answers:
        frame = passes.of_answers(answers)
        return Log(kind, frame, passes.sums_by_request(frame), sources)
    rows = [(t.prompt_id, t.domain, t.blocks, t.drafted, t.accepted, t.emitted) for t in entries]
    totals = pd.DataFrame(rows, columns=SUMS).astype({"drafted": float})
    by = totals.groupby(["prompt_id", "domain"], sort=False)
    return Log(kind, None, by.sum(min_count=1).reset_index(), sources)


# ---- folders -------------------------------------------------------------------------------------


Table = Literal["passes.parquet", "sums.parquet"]


def _known_format(name: str) -> str:
    """The name of a format. ValueError for another name."""
    if name not in FORMATS:
        raise ValueError(f"format {name!r} is unknown: {near(name, FORMATS)}")
    return name


@checked_dataclass(frozen=True, config=STRICT)
class _Manifest:
    """What manifest.json says of a log, except its seal."""

    schema: Literal["speclab log, 1"]
    version: Text  # of the kit
    format: Annotated[Text, AfterValidator(_known_format)]
    sources: Annotated[dict[Text, Sha256], Field(min_length=1)]
    drafted: Text
    left_out: Count
    files: Annotated[dict[Table, Sha256], Field(min_length=1, max_length=1)]


def save(log: Log, folder: Path, force: bool = False) -> None:
    """Write a log as a folder: `passes.parquet` (`sums.parquet` where it has totals only) and
    `manifest.json` with its format, options, sources and checksums. No text is written.

    The folder appears whole or not at all. ValueError if it exists, unless `force` is set and it
    holds a log or nothing.
    """
    folder = Path(os.path.realpath(folder))  # a link stays
    refuse_folder(folder, force)
    name, table = (TOTALS, log.sums) if log.passes is None else (PASSES, log.passes)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    manifest: Facts = {"schema": SCHEMA, "version": version, "format": log.format}
    manifest |= {"sources": log.sources, "drafted": log.drafted, "left_out": log.left_out}
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
    if not path.is_file():
        raise RunError(f"{folder} has no {MANIFEST}, so it holds no log; {AGAIN}")
    facts = read_facts(path, AGAIN)
    if facts.get("schema") != SCHEMA:
        raise RunError(f"{folder} holds no log that this version of the kit reads; {AGAIN}")
    try:
        facts = asdict(checked(_Manifest, facts, str(path), of_json=True))
        (name,) = facts.pop("files")
        table = pd.read_parquet(folder / name)
        known = {key: facts[key] for key in ("format", "sources", "drafted", "left_out")}
        if name == TOTALS:
            return Log(passes=None, sums=_checked_table(table, SUMS, name), **known)
        _checked_table(table, passes.COLUMNS, name)
        return Log(passes=table, sums=passes.sums_by_request(table), **known)
    except (ValueError, OSError) as error:
        raise Damaged(f"{path}: {error}; {AGAIN}") from None


def _checked_table(table: pd.DataFrame, columns: list[str], name: str) -> pd.DataFrame:
    """The table. ValueError unless it has rows, all columns, and counts from 0."""
    for column in require(table, columns, name).columns.difference(["prompt_id", "domain"]):
        is_number = pd.api.types.is_numeric_dtype(table[column])
        if not is_number or (table[column] < 0).any():
            raise ValueError(f"{name}: {column} must hold numbers from 0")
    return table


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
