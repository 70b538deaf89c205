"""Logs of other decoders: read by `readers`, checked, as `passes`, and as a folder.

What a log decides depends on its level. Counts per pass give `passes`. A histogram per request, or
shares by position, give the same rows without their order. Totals give the per-request sums only,
and means of settings stand for themselves. Nothing of a text is kept. `save` writes a log as a
folder of tables and a manifest, and `opened` reads such a folder or a log file.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from speclab.logs import passes, readers
from speclab.logs.passes import LONGEST
from speclab.logs.readers import LINES, REQUESTS, UNKNOWN, Entry
from speclab.plain import sha256_of
from speclab.stats import RESAMPLES
from speclab.study.prompts import check_domain
from speclab.study.runs import RunError, read_facts, write_facts

HEURISTIC = "heuristic"
SUMS = [*passes.REQUEST, *passes.SUMS, "spare", "context"]
SCHEMA = "speclab log, 2"
FACTS = ["format", "about", "sources", "notes"]  # of a log, in its manifest
MANIFEST, PASSES, TOTALS = "manifest.json", "passes.parquet", "sums.parquet"
AGAIN = "write the folder again with `python -m speclab log FILE --out FOLDER --force`"
SECOND = ("llama.cpp-statistics", "settings")  # formats that sum up what others have in detail


@dataclass(frozen=True)
class Log:
    """A log as it was read: its format, what its entries are `about` (requests, lines, settings),
    `passes` (None: only totals), the sums of each request, the SHA-256 of each source by name, and
    `notes`, sentences about what was left out.

    sums: as of `passes.sums_by_request`, with spare (further passes that are possible) and context
    (tokens of the prompt, NaN if it is not said).
    """

    format: str
    about: str
    passes: pd.DataFrame | None
    sums: pd.DataFrame
    sources: dict[str, str]
    notes: list[str]

    @property
    def requests(self) -> int:
        """Number of requests. The turns of a conversation are one request."""
        return self.sums["prompt_id"].nunique()


def resamples(log: Log) -> int:
    """How many resamples a log's intervals use: RESAMPLES, and fewer for very many requests, so
    that the weights fit into memory.
    """
    return min(RESAMPLES, max(10_000_000 // log.requests, 100))


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
    length = str(drafted)
    if not re.fullmatch(rf"({HEURISTIC}|[1-9]\d{{0,2}})?", length):
        raise ValueError(
            f"drafted={length!r}: a whole number from 1 to 999, or {HEURISTIC}, is needed"
        )
    entries: dict[str, list[Entry]] = {}
    unread = 0
    for one in readers.find_all(paths, length.removesuffix(HEURISTIC)):
        of_one = readers.entries_of(one) if one.format else []
        unread += not of_one
        for entry in of_one:
            entries.setdefault(one.format, []).extend([entry] * entry.has_passes)
    # one format: of several the one that the others only sum up
    kinds = [name for name in entries if entries[name] and name not in SECOND]
    kinds = [kind] if kind else kinds or [*entries]
    names = ", ".join(path.name for path in paths)
    if not kinds or not entries.get(kinds[0]):
        raise ValueError(
            f"{names}: no request with a target pass to read{' in the format ' * bool(kind)}{kind};"
            " if lines do not say how many passes drafted, --drafted may name the tokens of a draft"
        )
    if len(kinds) > 1:
        raise ValueError(
            f"{entries[kinds[1]][0].where}this is in the format {kinds[1]}, and other lines are in "
            f"the format {kinds[0]}: read the two apart, or name one with --format"
        )
    table = pd.DataFrame([vars(one) for one in entries[kinds[0]]])
    notes = [f"{unread:,} objects or lines do not say how many passes drafted (left out)."]
    notes *= unread > 0
    if length and readers.ABOUT.get(kinds[0]) != LINES:
        table["drafted"] = _drafted_by_pass(table, length)
    if domains is not None:
        table["domain"] = table["prompt_id"].map(domains)
    # of the runs in a file those that draft, or the named one
    every = table["part"].unique()
    is_drafting = table["drafted"].map(lambda drafted: drafted != 0)
    runs = [run for run in table.loc[is_drafting, "part"].unique() if part in ("", run)]
    if not runs:
        raise ValueError(
            f"{names}: nothing was drafted in {part or 'it'}. Its runs are {', '.join(every)}"
        )
    if len(runs) < len(every):
        notes.append(f"{len(runs)} of {len(every)} runs are read; the others do not draft.")
    table = table[table["part"].isin(runs)].reset_index(drop=True)
    if len(runs) > 1:
        notes.append("Each run is a domain, and the last number mixes them; --part names one run.")
        ids = table["part"] + ": " + table["prompt_id"]
        table = table.assign(domain=table["part"], prompt_id=ids)
    _check(table)
    return _log(kinds[0], table, {path.name: sha256_of(path) for path in paths}, notes)


def _drafted_by_pass(table: pd.DataFrame, drafted: str) -> list[Sequence[int]]:
    """The draft lengths of answers. ValueError: the log says them, or has totals."""
    if "blocks" in table or table["drafted"].notna().any():
        raise ValueError(
            "the log says how many tokens were drafted, or has totals only; leave --drafted out"
        )
    if drafted == HEURISTIC:
        return [passes.heuristic_drafted(one).tolist() for one in table["accepted"]]
    return [[int(drafted)] * len(accepted) for accepted in table["accepted"]]


def _check(table: pd.DataFrame) -> None:
    """ValueError for a request that comes twice or has no domain, or a domain that tables cannot
    show.
    """
    spelled: dict[str, str] = {}
    for row in table.drop_duplicates("domain").itertuples():
        where = row.where.removesuffix(": ")
        if pd.isna(row.domain):
            raise ValueError(f"{where}: request {row.prompt_id!r} is not among the prompts")
        if row.domain != UNKNOWN:
            check_domain(row.domain, spelled, where)
    twice = table[table.duplicated(["prompt_id", "turn"])]
    for row in twice.head(1).itertuples():
        first = table.loc[table["prompt_id"] == row.prompt_id, "where"].iloc[0].removesuffix(": ")
        raise ValueError(
            f"{row.where}request {row.prompt_id!r} was read before ({first}); the file was "
            "appended to, or holds several runs: keep one of them"
        )


def _log(kind: str, table: pd.DataFrame, sources: dict[str, str], notes: list[str]) -> Log:
    """What was read, as frames. ValueError for answers with and without counts per pass mixed."""
    about = readers.ABOUT.get(kind, REQUESTS)
    if about == LINES:  # neighbours are alike, so blocks of lines are what is resampled
        place = pd.Series(range(len(table))) // round(len(table) ** (1 / 3)) + 1
        table["prompt_id"] = table["domain"] + ", block of lines " + place.astype(str)
        table["turn"] = range(len(table))
    # if no request needs a pass without a draft, none is taken to have one
    table["spare"] *= (table["plain"] > 0).any()
    if "blocks" not in table:
        frame = passes.count_by_answer(table)
        sums = passes.sums_by_request(frame)
    elif "tokens" in table:
        row = table[table["blocks"].notna()].iloc[0]
        raise ValueError(
            f"{row['where']}request {row['prompt_id']!r} has totals only, and others have counts "
            "per pass: read the two kinds apart"
        )
    else:
        cells = table.assign(remaining=table["emitted"]).explode("rows").dropna(subset="rows")
        if 0 < cells["prompt_id"].nunique() < table["prompt_id"].nunique():
            notes = [*notes, "Some requests have no complete counts by depth."]
        rows = pd.DataFrame([*cells["rows"]], cells.index, ["drafted", "accepted", "blocks"])
        frame = cells.assign(**rows, emitted=rows["accepted"] + 1, step=0, start=0)
        frame = frame[[*passes.COLUMNS, "blocks"]].reset_index(drop=True)
        sums = passes.sums_by_request(table)
    more = table.groupby("prompt_id", sort=False).agg({"spare": "sum", "context": "max"})
    sums = sums.merge(more, on="prompt_id")
    return Log(kind, about, None if frame.empty else frame, sums, sources, notes)


# ---- folders -------------------------------------------------------------------------------------


def save(log: Log, folder: Path, force: bool = False) -> None:
    """Write a log as a folder: `sums.parquet`, `passes.parquet` (if it has them) and
    `manifest.json` with its format, sources and checksums. No text is written.

    The folder appears whole or not at all, and one that was there stays until then. ValueError if
    it exists, unless `force` is set and it holds a log or nothing.
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
        except BaseException:
            if before.exists():
                before.rename(folder)
            raise


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
    frame = tables.get(PASSES)
    if frame is not None and not (frame[["accepted", "drafted"]].max() <= LONGEST).all():
        raise RunError(f"{folder}: a pass has more than {LONGEST:,} tokens; {AGAIN}")
    return Log(passes=frame, sums=tables[TOTALS], **known)


def is_log(folder: Path) -> bool:
    """Whether a folder looks like one that `save` wrote."""
    return any((folder / name).is_file() for name in (PASSES, TOTALS))


def opened(
    path: Path | str,
    kind: str = "",
    prompts: Path | str = "",
    drafted: int | str = "",
    part: str = "",
) -> Log:
    """The log in a folder of `python -m speclab log`, or in a log file that is read now.

    kind, drafted, part: as of `read_log`; prompts: a file for `domains_of`. All are for log files
    only; ValueError with a folder, which holds what was read with its own options.
    """
    place = Path(path)
    if not place.exists():
        raise ValueError(f"{path} does not exist; name a log file, or a folder of `speclab log`")
    if not place.is_dir():
        domains = domains_of(Path(prompts)) if str(prompts) else None
        return read_log([place], kind, domains, drafted, part)
    if kind or str(prompts) or str(drafted) or part:
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
    for where, value in readers.json_values(readers.text_of(path), path.name):
        for line in value if isinstance(value, list) else [value]:
            name, domain = readers.who(line if isinstance(line, dict) else {}, "")
            if not name or domain == UNKNOWN:
                raise ValueError(f"{where}: prompt_id and domain are needed")
            if found.setdefault(name, domain) != domain:
                raise ValueError(f"{where}: {name!r} has two domains; keep one")
    return found
