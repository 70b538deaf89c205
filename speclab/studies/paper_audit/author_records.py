"""The authors' public node records: fetched, checked by their git ids, and read as a `Text`, so
that the paper's numbers are measured on them as on a pair's trees.

The files are `results/raw_records_20260411_*.csv` of the public repository saifmb0/tree-acceptance:
three short runs on HumanEval prompts, and FINAL, the run of the paper. They have no licence, so
whoever wants them fetches them, and they are no part of the kit. `git ls-tree` lists the blob ids
below at COMMIT. A copy of the three short runs has these ids. We had no access to the final run's
bytes, and could not try the address. A file with another id is refused.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from speclab import score
from speclab.analysis.fetch import Published, content_of
from speclab.analysis.texts import Text
from speclab.place import folder_of
from speclab.runs import RUNS

READS = ["data/runs/author-records", "$SPECLAB_RUNS/author-records", "$SPECLAB_AUTHOR_RECORDS"]
FINAL = "061513"  # the run that the paper reports
COMMIT = "aa679a3f8a1b7593afe5f858cc798fd7f826d4f6"
FILES = {  # git blob ids (`blob_id`)
    "raw_records_20260411_054105.csv": "7d2036cdb94e6515892bc38181e4d4a251869fdd",
    "raw_records_20260411_055031.csv": "72a0f47e8797b9e0031b501be37ada05ea833fbf",
    "raw_records_20260411_060835.csv": "33575e4a2e23d3ed2ad16d2dca3adf0b58f9726f",
    "raw_records_20260411_061513.csv": "b2922ea18dcb04ed0aec5ce7e1ba4cdecfe7eea8",
}
SHOWN = """## 6. What do the authors' public records show?
Some probabilities in the authors' records are missing (NaN). Python's `min(1.0, nan)` is 1.0, so
the authors' averages count a missing number as an accepted token. We measure the other nodes as
published. The records hold neither the trace nor the target's ranks, so no exact number can be
computed from them."""


def blob_id(content: bytes) -> str:
    """The id that git gives a file: SHA-1 of 'blob', its length, a zero byte, and its bytes."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


SOURCE = Published(
    f"https://raw.githubusercontent.com/saifmb0/tree-acceptance/{COMMIT}/results/",
    FILES,
    blob_id,
    RUNS / "author-records",
    "make author-records",
    "SPECLAB_AUTHOR_RECORDS",
)
fetch = SOURCE.fetch

# ---- one file ------------------------------------------------------------------------------------

COLUMNS = {  # theirs: ours
    "sample_id": "prompt_id",
    "task_type": "domain",
    "token_position": "position",
    "node_id": "node",
    "tree_depth": "depth",
    "draft_prob": "draft_prob",
    "target_prob": "target_prob",
    "target_entropy": "target_entropy",
}


def read_file(path: Path | str) -> pd.DataFrame:
    """A run's node records in the schema of the authors' public files (csv or csv.gz), as the
    columns of `nodes` that the paper's procedure needs. A probability or an entropy may be NaN (for
    a NaN probability their code used a ratio of 1).

    Their node ids count from 0, ours from 1. ValueError: columns missing, or one node twice.
    """
    records = pd.read_csv(path, usecols=list(COLUMNS)).rename(columns=COLUMNS)
    if records.duplicated(["prompt_id", "position", "node"]).any():
        raise ValueError(
            "the same (sample_id, token_position, node_id) occurs twice: keep one run per file"
        )
    return records.assign(node=records["node"] + 1)


def usable(records: pd.DataFrame) -> pd.DataFrame:
    """The rows of `read_file` whose probability and entropy are numbers."""
    return records.dropna(subset=["target_prob", "target_entropy"])


def text_of(records: pd.DataFrame) -> Text:
    """The usable nodes as a greedy text without a trace, to be measured as published."""
    return Text(0.0, pd.DataFrame(), usable(records))


# ---- a folder ------------------------------------------------------------------------------------


def read(folder: Path | str = "") -> dict[str, pd.DataFrame]:
    """The authors' runs by name, from `folder`, else $SPECLAB_AUTHOR_RECORDS, else
    data/runs/author-records ({} if that folder does not exist).

    Reads .csv and .csv.gz; a run's name is the six digits before the ending. ValueError: a named
    folder holds no records, a file name has no such digits, or a file of FILES has other bytes.
    """
    place = Path(folder or folder_of(SOURCE.variable) or SOURCE.folder)
    paths = sorted([*place.glob("*.csv"), *place.glob("*.csv.gz")])
    if not paths and place != SOURCE.folder:
        raise ValueError(
            f"{place} holds no .csv or .csv.gz with the authors' records: name another folder, or "
            f"run `{SOURCE.again}`"
        )
    records = {}
    for path in paths:
        run = re.search(r"(\d{6})\.csv", path.name)
        if not run:
            raise ValueError(
                f"{path.name!r} is no file of records: its name has to end in the run's six digits "
                "and .csv or .csv.gz, as …_054105.csv; rename or remove it"
            )
        SOURCE.check(path, content_of(path), f"raw_records_20260411_{run[1]}.csv")
        records[run[1]] = read_file(path)
    return records


def facts(records: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """One row per run: run, domains, prompts, rows, nan_share; the mean of min(1, p/q) with NaN
    rows as accepted (p = q, as in the authors' code) and without them; E[L] as published.
    """
    rows = []
    for run, nodes in records.items():
        every = nodes.fillna({"target_prob": nodes["draft_prob"]})
        known = usable(nodes)
        missing = len(nodes) - len(known)
        row = {
            "run": run,
            "domains": nodes["domain"].nunique(),
            "prompts": nodes["prompt_id"].nunique(),
            "rows": len(nodes),
            "nan_share": missing / len(nodes),
            "nan_as_accepted": score.published_alpha(every),
            "without_nan": score.published_alpha(known),
            "published_length": score.published_length(every),
        }
        rows.append(row)
    return pd.DataFrame(rows)
