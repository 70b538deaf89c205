"""Logs of other decoders: read by `readers`, checked, as `passes`, and as a folder.

What a log decides depends on its level. Counts per pass give `passes`. A histogram per request, or
shares by position, give the same rows without their order. Totals give the per-request sums only,
and means of settings stand for themselves. Nothing of a text is kept. `save` writes a log as a
folder of tables and a manifest, and `opened` reads such a folder or a log file.
"""

import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from speclab.estimates import counted
from speclab.logs import passes, readers
from speclab.logs.passes import HEURISTIC, Answer
from speclab.logs.readers import ABOUT, LINES, METHODS, NAMELESS, REQUESTS, SETTINGS, UNKNOWN
from speclab.plain import brief, sha256_of
from speclab.study.prompts import check_domain
from speclab.study.reading import near
from speclab.study.runs import RunError, read_facts, write_facts

HIDDEN = (
    "The server counts no passes without a draft. Accepted tokens past the end of an answer may "
    "hide some of them, so the tokens per target pass may be a little too high."
)
SEEN = "no line has SpecDecoding metrics, draft acceptance, Decode batch or spec_decode counters"
MIXED = "Each run is a domain, and the last number mixes them; --part names one run."
SCHEMA = "speclab log, 3"
FACTS = ["format", "about", "sources", "notes", "drafts"]  # of a log, in its manifest
MANIFEST, PASSES, TOTALS = "manifest.json", "passes.parquet", "sums.parquet"
AGAIN = "write the folder again with `python -m speclab log FILE --out FOLDER --force`"


@dataclass(frozen=True)
class Log:
    """A log as it was read: its format, what its entries are `about` (requests, lines, settings),
    `passes` (None: only totals), the sums of each request, the SHA-256 of each source by name, and
    `notes`, sentences about what was left out. drafts: what drafted ("draft model", "heads" or
    "copies"; "": the log does not say).

    sums: as of `passes.sums_by_request`, with context (tokens of the prompt, NaN if it is not
    said).
    """

    format: str
    about: str
    passes: pd.DataFrame | None
    sums: pd.DataFrame
    sources: dict[str, str]
    notes: list[str]
    drafts: str = ""

    @property
    def is_mixed(self) -> bool:
        """Whether each domain is a run, a model or a setting of its own."""
        return MIXED in self.notes or (self.about == SETTINGS and self.requests > 1)

    @property
    def has_names(self) -> bool:
        """Whether requests have names of their own, so that another file can name them."""
        return self.about == REQUESTS and self.format != NAMELESS

    @property
    def requests(self) -> int:
        """Number of requests. The turns of a conversation are one request."""
        return self.sums["prompt_id"].nunique()


def read_log(
    paths: Sequence[Path],
    kind: str = "",
    domains: Mapping[str, str] | None = None,
    drafted: int | str = "",
    part: str = "",
) -> Log:
    """Read files of one format, `kind` (default: what is found in them).

    domains: the domain of each prompt_id, in place of what the file says. drafted: tokens per
    draft, where the format does not say it: a number, or HEURISTIC for transformers' schedule.
    part: one run of a file with several; without it each run is a domain. ValueError names the file
    and the line: no format fits, several do, an answer that comes twice, counts that do not fit
    each other, nothing to read. Nothing is half read.
    """
    if kind and kind not in ABOUT:
        raise ValueError(f"format {kind!r} is unknown: {near(kind, ABOUT)}")
    length = str(drafted)
    if not re.fullmatch(rf"({HEURISTIC}|[1-9]\d{{0,2}})?", length):
        raise ValueError(
            f"drafted={length!r}: a whole number from 1 to 999, or {HEURISTIC}, is needed"
        )
    names, seen = ", ".join(path.name for path in paths), SEEN
    found: dict[str, list[Answer]] = defaultdict(list)
    unread = 0
    for one in readers.find_all(paths, length.removesuffix(HEURISTIC)):
        answers = readers.answers_of(one) if one.format else []
        if not answers:
            unread += 1
            seen = f"{one.place} has {'no counts' if one.format else brief([*one.facts])}"
        found[one.format] += answers
    # requests, or else lines, or else settings, which may sum up the same
    kinds = [name for name in ABOUT if found[name] and kind in ("", name)]
    if not kinds:
        raise ValueError(
            f"{names}: no counts of drafts to read; {seen}. If lines do not say how many passes "
            "drafted, --drafted may name the tokens of a draft"
        )
    kind, *others = kinds
    about = ABOUT[kind]
    for other in others:
        if ABOUT[other] == about:
            raise ValueError(
                f"{found[other][0].where}this is in the format {other}, and other lines are in the "
                f"format {kind}: read the two apart, or name one with --format"
            )
    answers, notes = found[kind], []
    if unread:
        notes.append(f"The kit left out {counted(unread, 'record')} without counts of drafts.")
    table = pd.DataFrame([vars(one) for one in answers])
    if domains is not None and (about != REQUESTS or kind == NAMELESS):
        raise ValueError(
            f"{names}: --prompts finds the domain of requests by their names, and {kind} has none; "
            "leave --prompts out, or read the responses that the server sent (JSON)"
        )
    if length and about != LINES:
        if table["totals"].any() or table["drafted"].notna().any():
            raise ValueError(
                "the log says how many tokens were drafted, or has totals only; leave --drafted out"
            )
        table["drafted"] = passes.drafted_of(table["accepted"], length)
    if domains is not None:
        table["domain"] = table["prompt_id"].map(domains).fillna("")
    # runs that do not draft are left out
    is_drafting = table["totals"].str[1] != 0
    runs = [run for run in table["part"][is_drafting].unique() if part in ("", run)]
    if not runs:
        every = ", ".join(table["part"].unique())
        reason = "nothing was drafted"
        if part and part not in {*table["part"]}:
            reason = f"there is no run {part!r}"
        raise ValueError(f"{names}: {reason}; runs: {every}")
    table = table[table["part"].isin(runs)].reset_index(drop=True)
    if len(runs) > 1:
        notes.append(MIXED)
        table["domain"] = table["part"]
        table["prompt_id"] = table["part"] + ": " + table["prompt_id"]
    if table["plain"].any():
        notes.append(HIDDEN)
    if about == LINES:  # neighbours are alike, so blocks of lines are what is resampled
        size = round(len(table) ** (1 / 3))
        block = table.index // size + 1
        table["prompt_id"] = table["domain"] + ", block of lines " + block.astype(str)
        table["turn"] = table.index
    _check(table)
    log = _log(kind, table, {path.name: sha256_of(path) for path in paths}, notes)
    # what drafted, if all entries say it
    methods = [f"{kind} {method}" for method in table["method"].unique()]
    for name, words in METHODS.items():
        if all(re.search(words, method, re.I) for method in methods):
            log = replace(log, drafts=name)
    return log


def _check(answers: pd.DataFrame) -> None:
    """ValueError for a request that comes twice or has no domain, or a domain that tables cannot
    show.
    """
    spelled: dict[str, str] = {}
    seen: dict[tuple[str, int], str] = {}
    columns = ["prompt_id", "domain", "turn", "where"]
    for one in answers[columns].astype(object).itertuples():
        request, key = f"{one.where}request {one.prompt_id!r}", (one.prompt_id, one.turn)
        if not one.domain:
            raise ValueError(f"{request} is not among the prompts")
        if key in seen:
            raise ValueError(
                f"{request} was read before ({seen[key].strip(': ')}); the file was appended to, "
                "or holds several runs: keep one of them"
            )
        seen[key] = one.where
        if one.domain != UNKNOWN:
            check_domain(one.domain, spelled, one.where.strip(": "))


def _log(kind: str, answers: pd.DataFrame, sources: dict[str, str], notes: list[str]) -> Log:
    """What was read, as frames. ValueError for answers with and without counts per pass mixed."""
    has_totals = answers["totals"].str.len() > 0
    if not has_totals.any():
        frame = passes.count_by_answer(answers)
        sums = passes.sums_by_request(frame)
    elif not has_totals.all():
        first = answers[has_totals].iloc[0]
        raise ValueError(
            f"{first['where']}request {first.prompt_id!r} has totals only, and others have counts "
            "per pass: read the two kinds apart"
        )
    else:
        totals = pd.DataFrame(answers["totals"].tolist(), columns=passes.SUMS, dtype=float)
        sums = passes.sums_by_request(answers[passes.REQUEST].join(totals))
        answers = answers.assign(remaining=totals["emitted"], step=0, start=0)
        # a row per kind of pass
        cells = answers.explode(["drafted", "accepted", "blocks"]).dropna(subset="blocks")
        cells = cells.astype({"drafted": float, "accepted": int, "blocks": float})
        misfits = answers[answers["misfit"] != ""]
        if len(misfits):
            first = misfits.iloc[0]
            said = f"{first['where']}{first['misfit']}."
            what = counted(len(misfits), ABOUT[kind].split()[0])
            said = f"The counts by depth of {what} are left out: they do not add up. {said}"
            notes = [*notes, said]
        elif 0 < cells["prompt_id"].nunique() < answers["prompt_id"].nunique():
            notes = [*notes, "Some requests have no complete counts by depth."]
        tokens = cells["accepted"] + 1
        whole = (tokens * cells["blocks"]).groupby(level=0).transform("sum")
        cells["emitted"] = tokens * cells["remaining"] / whole
        frame = cells[[*passes.COLUMNS, "blocks"]].reset_index(drop=True)
    context = dict(zip(answers["prompt_id"], answers["context"], strict=True))
    sums["context"] = sums["prompt_id"].map(context)
    return Log(kind, ABOUT[kind], None if frame.empty else frame, sums, sources, notes)


# ---- folders -------------------------------------------------------------------------------------


def save(log: Log, folder: Path, force: bool = False) -> None:
    """Write a log as a folder: `sums.parquet`, `passes.parquet` (if it has them) and
    `manifest.json` with its format, sources and checksums. No text is written.

    The folder appears whole or not at all. ValueError if it exists, unless `force` is set and it
    holds a log or nothing.
    """
    folder = Path(os.path.realpath(folder))  # a link stays
    refuse_folder(folder, force)
    tables = {TOTALS: log.sums} | ({} if log.passes is None else {PASSES: log.passes})
    manifest = {"schema": SCHEMA} | {fact: getattr(log, fact) for fact in FACTS}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as place:
        made = Path(place, "log")
        made.mkdir()
        for name, table in tables.items():
            table.to_parquet(made / name, index=False, compression="zstd")
        write_facts(made / MANIFEST, manifest, [made / name for name in tables])
        before = Path(place, "before")
        if folder.exists():
            folder.rename(before)
        try:
            made.rename(folder)
        finally:  # after an error the earlier log is back
            if before.exists() and not folder.exists():
                before.rename(folder)


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
    tables = {name: pd.read_parquet(folder / name) for name in facts["files"]}
    return Log(passes=tables.get(PASSES), sums=tables[TOTALS], **known)


def is_log(folder: Path) -> bool:
    """Whether a folder looks like one that `save` wrote."""
    return any((folder / name).is_file() for name in (PASSES, TOTALS))


def opened(path: Path | str, prompts: Path | str = "", **options: Any) -> Log:
    """The log in a folder of `python -m speclab log`, or in a log file that is read now.

    prompts: a file for `domains_of`; options: kind, drafted and part of `read_log`. All are for log
    files only; ValueError with a folder, which holds what was read with its own options.
    """
    place = Path(path)
    if not place.exists():
        raise ValueError(f"{path} does not exist; name a log file, or a folder of `speclab log`")
    if not place.is_dir():
        domains = domains_of(Path(prompts)) if str(prompts) else None
        return read_log([place], domains=domains, **options)
    if any([prompts, *options.values()]):
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
    for where, value in readers.parse_text(readers.text_of(path), path.name):
        for line in value if isinstance(value, list) else [value]:
            facts = readers.read_counts(line if isinstance(line, dict) else {})
            name, domain = readers.PREFIX.sub("", str(facts.name)), str(facts.domain)
            if not name or not domain:
                raise ValueError(f"{where}: prompt_id and domain are needed")
            if found.setdefault(name, domain) != domain:
                raise ValueError(f"{where}: {name!r} has two domains; keep one")
    return found
