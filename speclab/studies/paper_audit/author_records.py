"""The authors' public node records: fetched with their checksums, read, and asked what they hold.

The files are `results/raw_records_20260411_*.csv` of the public repository saifmb0/tree-acceptance:
three short runs on HumanEval prompts in the schema of the published run, whose own records were not
released. They carry no licence, so they are fetched by whoever wants them and are not part of the
kit. SIZE and SHA-256 below are of the plain .csv bytes. They were computed from a copy of the three
files whose length agrees with the files at COMMIT in an index of public repositories, and whose
beginning and end were looked at beside them. That the address answers could not be tried where this
was written; a file that is not these bytes is refused.
"""

import gzip
import hashlib
import http.client
import os
import re
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from speclab import score
from speclab.analysis.published import AuthorRecords, read_author_records
from speclab.profiles import ROOT
from speclab.studies.paper_audit.growth import TREE, argmax_bounds

COMMIT = "aa679a3f8a1b7593afe5f858cc798fd7f826d4f6"
BASE = f"https://raw.githubusercontent.com/saifmb0/tree-acceptance/{COMMIT}/results/"
FOLDER = ROOT / "data" / "runs" / "author-records"
VARIABLE, TARGET = "SPECLAB_AUTHOR_RECORDS", "make author-records"
CHUNK, TIMEOUT_S = 1 << 16, 30


class FetchError(RuntimeError):
    """A file could not be fetched, or is not the file it should be; the message says what to do."""


@dataclass(frozen=True)
class PublicFile:
    """One public file: its name under BASE, its length in bytes, and its SHA-256."""

    name: str
    size: int
    sha256: str


FILES = (
    PublicFile(
        "raw_records_20260411_054105.csv",
        249_349,
        "7076e6abb2a780bca29327c720bd9ad3c5a72ccdf74440274d28d678aa9bc88e",
    ),
    PublicFile(
        "raw_records_20260411_055031.csv",
        124_232,
        "3cd4547e8ada3e8a3bdff844952cc314a3d19ad5ca518accb672f15b7a053139",
    ),
    PublicFile(
        "raw_records_20260411_060835.csv",
        254_467,
        "1bdce5be9696adeb374d5b03cc1d65107eeb18c9eadae39310c05552f38f3d52",
    ),
)


def run_name(name: str) -> str:
    """The authors' name of a run, six digits, from a file's name; ValueError if there is none."""
    found = re.search(r"(\d{6})\.csv(\.gz)?$", name)
    if not found:
        raise ValueError(
            f"{name!r} is no file of records: its name ends in the run's six digits and .csv or "
            ".csv.gz, as …_054105.csv"
        )
    return found[1]


def fetch(
    out: Path | str = FOLDER, base: str = BASE, files: tuple[PublicFile, ...] = FILES
) -> list[Path]:
    """Fetch the files into a folder; returns their paths.

    A file that is there and right is kept, a started one goes on where it stopped. Nothing appears
    under its own name before its length and SHA-256 are right. FetchError: no network, not found,
    other bytes.
    """
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    for file in files:
        path, part = out / file.name, out / f".{file.name}.part"
        if path.is_file() and _sha256(path.read_bytes()) == file.sha256:
            continue
        _download(base + file.name, part, file.size)
        _check(part, file)
        os.replace(part, path)
    return [out / file.name for file in files]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _download(url: str, part: Path, size: int) -> None:
    """Append what `part` lacks, or all of it where the server cannot go on in the middle."""
    start = part.stat().st_size if part.is_file() else 0
    if start == size:
        return
    headers = {"Range": f"bytes={start}-"} if 0 < start < size else {}
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            going_on = getattr(answer, "status", None) == 206
            with part.open("ab" if going_on else "wb") as file:
                while chunk := answer.read(CHUNK):
                    file.write(chunk)
    except (
        OSError,
        http.client.HTTPException,
    ) as error:  # also: not found, no answer in time
        raise FetchError(
            f"{url}: {error}. Is the repository still public? Without a network, copy the files "
            f"from another machine into a folder and set {VARIABLE}=folder; what was fetched is "
            f"kept, and `{TARGET}` goes on from there"
        ) from None


def _check(part: Path, file: PublicFile) -> None:
    """FetchError unless the bytes are the file's; a short one is kept to go on with, a wrong one
    removed.
    """
    content = part.read_bytes()
    if len(content) < file.size:
        raise FetchError(
            f"{file.name}: {len(content)} of {file.size} bytes came; the connection was cut. "
            f"Run `{TARGET}` again: it goes on"
        )
    if _sha256(content) != file.sha256:
        part.unlink()
        raise FetchError(
            f"{file.name}: {len(content)} bytes, SHA-256 {_sha256(content)}, but the file has "
            f"{file.size}, {file.sha256}: not the authors' file of that commit. It was removed; "
            "run again, or look at what answers at that address"
        )


def read(folder: Path | str | None = None) -> dict[str, AuthorRecords]:
    """The authors' runs by name, from `folder`, else $SPECLAB_AUTHOR_RECORDS, else
    data/runs/author-records: {} if that is not there.

    .csv and .csv.gz are read. ValueError: a folder that was named holds no records; a run's bytes
    are not the authors' public file.
    """
    named = folder or os.environ.get(VARIABLE)
    where = Path(named or FOLDER)
    paths = sorted([*where.glob("*.csv"), *where.glob("*.csv.gz")])
    if named and not paths:
        raise ValueError(
            f"{where} holds no .csv or .csv.gz of the authors' records: name another folder, or "
            f"run `{TARGET}`"
        )
    known = {run_name(file.name): file.sha256 for file in FILES}
    records = {}
    for path in paths:
        run, content = run_name(path.name), path.read_bytes()
        digest = _sha256(gzip.decompress(content) if path.suffix == ".gz" else content)
        if digest != known.get(run, digest):
            raise ValueError(
                f"{path} is not the authors' public file of run {run} (SHA-256 {digest}): fetch "
                "it, or rename it"
            )
        records[run] = read_author_records(path)
    return records


# ---- what the records can tell -------------------------------------------------------------------


def whole_trees(records: AuthorRecords) -> pd.DataFrame:
    """The nodes of trees without a NaN row: only they can be walked.

    ValueError if every tree has one.
    """
    broken = pd.MultiIndex.from_frame(records.nan_rows[TREE])
    kept = records.nodes[~pd.MultiIndex.from_frame(records.nodes[TREE]).isin(broken)]
    return score.require(kept.reset_index(drop=True), [], "trees without a NaN row")


def run_facts(records: Mapping[str, AuthorRecords]) -> pd.DataFrame:
    """One row a run: run, levels (nodes by depth), prompts, rows, nan_rows, their share; the mean
    of min(1, p/q) with NaN rows as accepted (as the authors' code did) and without; ranks 0 and 1;
    E[L] as published; and the accepted tokens of the greedy walk: nan_rejected (all trees, certain
    only, NaN rows not accepted), and accepted_low, accepted_high over trees without a NaN row.
    """
    walked, rows = score.tree_estimators()["mean_accepted"], []
    for run, one in records.items():
        every, key = one.with_nan_as_accepted, [*TREE, "node"]
        low, high = argmax_bounds(whole_trees(one))
        certain = argmax_bounds(one.nodes)[0][[*key, "target_rank"]]
        by_rank = score.alpha_by_rank(one.nodes)
        rows.append(
            {
                "run": run,
                "levels": "+".join(map(str, every.groupby("depth")["node"].nunique())),
                "prompts": every["prompt_id"].nunique(),
                "rows": len(every),
                "nan_rows": one.nan_count,
                "nan_share": one.nan_count / len(every),
                "alpha_nan_as_accepted": score.published_alpha(every),
                "alpha_without_nan": score.published_alpha(one.nodes),
                "rank_0": by_rank[0],
                "rank_1": by_rank[1],
                "published_length": score.published_length(every),
                "nan_rejected": walked(
                    every.merge(certain, "left", key).fillna({"target_rank": 1})
                ),
                "accepted_low": walked(low),
                "accepted_high": walked(high),
            }
        )
    return pd.DataFrame(rows)


def facts_said(facts: pd.DataFrame) -> str:
    """What `run_facts` shows: the share of NaN rows and what they did, E[L] against the walk."""
    nan, prompts = 100 * facts["nan_share"], facts["prompts"]
    worst = facts.loc[nan.idxmax()]
    ranked = facts.sort_values("published_length", ascending=False)
    lengths = ", ".join(f"{value:.2f}" for value in ranked["published_length"])
    walked = ", ".join(f"{value:.2f}" for value in ranked["nan_rejected"])
    return (
        f"NaN rows: {nan.min():.1f} to {nan.max():.1f} %. In run {worst['run']} the mean of "
        f"min(1, p/q) is {worst['alpha_nan_as_accepted']:.3f} with them as accepted and "
        f"{worst['alpha_without_nan']:.3f} without. Trees of {', '.join(ranked['levels'])} nodes: "
        f"E[L] {lengths}; the greedy walk accepts {walked} tokens per target pass. Each of these "
        f"runs holds {prompts.min()} to {prompts.max()} prompts: directions, not levels."
    )
