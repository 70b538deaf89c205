"""The authors' public node records: fetched, checked by their git ids, and read as a `Text`, so
that what the paper measures is measured on them as on a pair's trees.

The files are `results/raw_records_20260411_*.csv` of the public repository saifmb0/tree-acceptance:
three short runs on HumanEval prompts, and FINAL, the run of the paper. They carry no licence, so
they are fetched by whoever wants them and are not part of the kit. `git ls-tree` lists the blob ids
below at COMMIT. A copy of the three short runs has these ids; the bytes of the final run could not
be had where this was written, nor could the address be tried. A file of another id is refused.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from speclab import score
from speclab.analysis.fetch import Published, content_of
from speclab.analysis.texts import Text
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
    """A run's node records in the schema of the authors' public files (csv or csv.gz), as those
    columns of `nodes` that the paper's procedure needs; a probability or an entropy may be NaN
    (where the probability is, their code took the ratio as 1).

    Their node ids count from 0, ours from 1. ValueError: columns missing, one node twice.
    """
    records = pd.read_csv(path, usecols=list(COLUMNS)).rename(columns=COLUMNS)
    if records.duplicated(["prompt_id", "position", "node"]).any():
        raise ValueError(
            "the same (sample_id, token_position, node_id) occurs twice: keep one run a file"
        )
    return records.assign(node=records["node"] + 1)


def usable(records: pd.DataFrame) -> pd.DataFrame:
    """The rows of `read_file` whose probability and entropy are numbers."""
    return records.dropna(subset=["target_prob", "target_entropy"])


def text_of(records: pd.DataFrame) -> Text:
    """The usable nodes as a greedy text that can be measured as published; it has no trace."""
    return Text(0.0, pd.DataFrame(), usable(records))


# ---- a folder ------------------------------------------------------------------------------------


def read(folder: Path | str = "") -> dict[str, pd.DataFrame]:
    """The authors' runs by name, from `folder`, else $SPECLAB_AUTHOR_RECORDS, else
    data/runs/author-records: {} if that is not there.

    .csv and .csv.gz are read; a run's name is the six digits before. ValueError: a folder that was
    named holds no records, or a file without such digits; a run of FILES that is not that file.
    """
    place = Path(folder or os.environ.get(SOURCE.variable) or SOURCE.folder)
    paths = sorted([*place.glob("*.csv"), *place.glob("*.csv.gz")])
    if not paths and place != SOURCE.folder:
        raise ValueError(
            f"{place} holds no .csv or .csv.gz of the authors' records: name another folder, or "
            f"run `{SOURCE.again}`"
        )
    records = {}
    for path in paths:
        run = re.search(r"(\d{6})\.csv", path.name)
        if not run:
            raise ValueError(
                f"{path.name!r} is no file of records: its name ends in the run's six digits and "
                ".csv or .csv.gz, as …_054105.csv"
            )
        SOURCE.check(path, content_of(path), f"raw_records_20260411_{run[1]}.csv")
        records[run[1]] = read_file(path)
    return records


def facts(records: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """One row a run: run, domains, prompts, rows, nan_share; the mean of min(1, p/q) with NaN rows
    as accepted (p = q, as the authors' code averaged them) and without; E[L] as published.
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
