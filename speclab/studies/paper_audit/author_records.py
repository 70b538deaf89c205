"""The authors' public node records: fetched, checked by their git ids, read, and asked what they
hold.

The files are `results/raw_records_20260411_*.csv` of the public repository saifmb0/tree-acceptance:
three short runs on HumanEval prompts, and FINAL, the run of the paper. They carry no licence, so
they are fetched by whoever wants them and are not part of the kit. `git ls-tree` lists the blob ids
below at COMMIT. A copy of the three short runs has these ids; the bytes of the final run could not
be had where this was written, nor could the address be tried. A file of another id is refused.
"""

import gzip
import hashlib
import http.client
import os
import re
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from speclab import score, stats
from speclab.analysis.published import AuthorRecords, read_author_records
from speclab.profiles import ROOT
from speclab.prompts import DOMAINS
from speclab.runs import written
from speclab.studies.paper_audit.growth import TREE, argmax_bounds

COMMIT = "aa679a3f8a1b7593afe5f858cc798fd7f826d4f6"
BASE = f"https://raw.githubusercontent.com/saifmb0/tree-acceptance/{COMMIT}/results/"
FOLDER = ROOT / "data" / "runs" / "author-records"
VARIABLE, TARGET = "SPECLAB_AUTHOR_RECORDS", "make author-records"
TIMEOUT_S = 30


class FetchError(RuntimeError):
    """A file could not be fetched, or is not the file it should be; the message says what to do."""


FINAL = "061513"  # the run that the paper reports
FILES = {  # git blob ids (`blob_id`) by name under BASE
    "raw_records_20260411_054105.csv": "7d2036cdb94e6515892bc38181e4d4a251869fdd",
    "raw_records_20260411_055031.csv": "72a0f47e8797b9e0031b501be37ada05ea833fbf",
    "raw_records_20260411_060835.csv": "33575e4a2e23d3ed2ad16d2dca3adf0b58f9726f",
    "raw_records_20260411_061513.csv": "b2922ea18dcb04ed0aec5ce7e1ba4cdecfe7eea8",
}


def run_name(name: str) -> str:
    """The authors' name of a run, six digits, from a file's name; ValueError if there is none."""
    found = re.search(r"(\d{6})\.csv(\.gz)?$", name)
    if not found:
        raise ValueError(
            f"{name!r} is no file of records: its name ends in the run's six digits and .csv or "
            ".csv.gz, as …_054105.csv"
        )
    return found[1]


def blob_id(content: bytes) -> str:
    """The id that git gives a file: SHA-1 of 'blob', its length, a zero byte, and its bytes."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def fetch(
    out: Path | str = FOLDER, base: str = BASE, files: Mapping[str, str] = FILES
) -> list[Path]:
    """Fetch the files (git ids by name) into a folder; returns their paths.

    A file that is there and right is kept; nothing appears under its own name before its git id is
    right. RunError: a folder that cannot be made. FetchError: no network, not found, other bytes.
    """
    out = Path(out)
    for name, blob in files.items():
        path = out / name
        if path.is_file() and blob_id(path.read_bytes()) == blob:
            continue
        content = _download(f"{base.rstrip('/')}/{name}")
        if blob_id(content) != blob:
            raise FetchError(
                f"{name}: {len(content)} bytes of git id {blob_id(content)}, but the file has "
                f"{blob}: not the authors' file of that commit, or not all of it; "
                f"run `{TARGET}` again, or look at what answers at that address"
            )
        written(path, lambda part, content=content: part.write_bytes(content))
    return [out / name for name in files]


def _download(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            return answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise FetchError(
            f"{url}: {error}. Is the repository still public? Without a network, copy the files "
            f"from another machine into a folder and set {VARIABLE}=folder; what was fetched is "
            f"kept, and `{TARGET}` goes on from there"
        ) from None


def read(
    folder: Path | str | None = None, files: Mapping[str, str] = FILES
) -> dict[str, AuthorRecords]:
    """The authors' runs by name, from `folder`, else $SPECLAB_AUTHOR_RECORDS, else
    data/runs/author-records: {} if that is not there.

    .csv and .csv.gz are read. ValueError: a folder that was named holds no records; a run that
    bears the name of one of `files` and is not that file.
    """
    named = folder or os.environ.get(VARIABLE)
    where = Path(named or FOLDER)
    paths = sorted([*where.glob("*.csv"), *where.glob("*.csv.gz")])
    if named and not paths:
        raise ValueError(
            f"{where} holds no .csv or .csv.gz of the authors' records: name another folder, or "
            f"run `{TARGET}`"
        )
    known = {run_name(name): blob for name, blob in files.items()}
    records = {}
    for path in paths:
        run, content = run_name(path.name), path.read_bytes()
        found = blob_id(gzip.decompress(content) if path.suffix == ".gz" else content)
        if found != known.get(run, found):
            raise ValueError(
                f"{path} is not the authors' public file of run {run} (git id {found}): fetch "
                "it, or rename it"
            )
        records[run] = read_author_records(path)
    return records


def whole_runs(records: Mapping[str, AuthorRecords]) -> dict[str, AuthorRecords]:
    """The runs that hold all four domains, each with prompts enough for an interval."""
    found = {}
    for run, one in records.items():
        prompts = one.nodes.groupby("domain")["prompt_id"].nunique()
        if (prompts.reindex(DOMAINS, fill_value=0) >= stats.MIN_PROMPTS).all():
            found[run] = one
    return found


# ---- what the records can tell -------------------------------------------------------------------


def whole_trees(records: AuthorRecords) -> pd.DataFrame:
    """The nodes of trees without a NaN row: only they can be walked.

    ValueError if every tree has one.
    """
    broken = pd.MultiIndex.from_frame(records.nan_rows[TREE])
    kept = records.nodes[~pd.MultiIndex.from_frame(records.nodes[TREE]).isin(broken)]
    return score.require(kept.reset_index(drop=True), [], "trees without a NaN row")


def run_facts(records: Mapping[str, AuthorRecords]) -> pd.DataFrame:
    """One row a run: run, levels (nodes by depth), domains, prompts, rows, nan_rows, their share;
    the mean of min(1, p/q) with NaN rows as accepted (as the authors' code did) and without; ranks
    0 and 1; E[L] as published; and the accepted tokens of the greedy walk: nan_rejected (all trees,
    certain only, NaN rows not accepted), and accepted_low, accepted_high over trees without a NaN
    row.
    """
    walked, rows = score.tree_estimators()["mean_accepted"], []
    for run, one in records.items():
        every, key = one.with_nan_as_accepted, [*TREE, "node"]
        low, high = argmax_bounds(whole_trees(one))
        certain = argmax_bounds(one.nodes)[0][[*key, "target_rank"]]
        by_rank = score.ratio_by_rank(one.nodes)
        rows.append(
            {
                "run": run,
                "levels": "+".join(map(str, every.groupby("depth")["node"].nunique())),
                "domains": every["domain"].nunique(),
                "prompts": every["prompt_id"].nunique(),
                "rows": len(every),
                "nan_rows": len(one.nan_rows),
                "nan_share": len(one.nan_rows) / len(every),
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
    nan, short = 100 * facts["nan_share"], facts[facts["domains"] < len(DOMAINS)]
    worst = facts.loc[nan.idxmax()]
    ranked = facts.sort_values("published_length", ascending=False)
    lengths = ", ".join(ranked["published_length"].map("{:.2f}".format))
    walked = ", ".join(ranked["nan_rejected"].map("{:.2f}".format))
    said = (
        f"NaN rows: {nan.min():.1f} to {nan.max():.1f} %. In run {worst['run']} the mean of "
        f"min(1, p/q) is {worst['alpha_nan_as_accepted']:.3f} with them as accepted and "
        f"{worst['alpha_without_nan']:.3f} without. Trees of {', '.join(ranked['levels'])} nodes: "
        f"E[L] {lengths}; the greedy walk accepts {walked} tokens per target pass."
    )
    if short.empty:
        return said
    least, most = short["prompts"].min(), short["prompts"].max()
    return (
        f"{said} {', '.join(short['run'])}: {least} to {most} prompts, not all domains: "
        "directions, not levels."
    )
