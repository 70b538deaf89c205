"""The authors' public node records: fetched, checked by their git ids, and read as a `Text`, so
that they are asked what a pair's trees are asked.

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
from speclab.profiles import ROOT

FINAL = "061513"  # the run that the paper reports
COMMIT = "aa679a3f8a1b7593afe5f858cc798fd7f826d4f6"
FILES = {  # git blob ids (`blob_id`)
    "raw_records_20260411_054105.csv": "7d2036cdb94e6515892bc38181e4d4a251869fdd",
    "raw_records_20260411_055031.csv": "72a0f47e8797b9e0031b501be37ada05ea833fbf",
    "raw_records_20260411_060835.csv": "33575e4a2e23d3ed2ad16d2dca3adf0b58f9726f",
    "raw_records_20260411_061513.csv": "b2922ea18dcb04ed0aec5ce7e1ba4cdecfe7eea8",
}
TARGET = "make author-records"


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


READS = ["data/runs/author-records", "$SPECLAB_AUTHOR_RECORDS"]
SOURCE = Published(
    f"https://raw.githubusercontent.com/saifmb0/tree-acceptance/{COMMIT}/results/",
    FILES,
    blob_id,
    ROOT / READS[0],
    TARGET,
    "SPECLAB_AUTHOR_RECORDS",
)
fetch = SOURCE.fetch


# ---- one file ------------------------------------------------------------------------------------

TREE = ["prompt_id", "position"]
COLUMNS = {  # theirs: ours
    "sample_id": "prompt_id",
    "task_type": "domain",
    "token_position": "position",
    "node_id": "node",
    "parent_id": "parent",
    "tree_depth": "depth",
    "token_id": "token",
    "draft_prob": "draft_prob",
    "target_prob": "target_prob",
    "target_entropy": "target_entropy",
}


def usable(records: pd.DataFrame) -> pd.DataFrame:
    """The rows of `read_file` whose probability and entropy are numbers."""
    known = records.dropna(subset=["target_prob", "target_entropy"])
    return known.reset_index(drop=True)


def with_nan_as_accepted(records: pd.DataFrame) -> pd.DataFrame:
    """All rows, as the authors averaged them: a NaN probability as accepted (p = q, so the ratio is
    1), a NaN entropy left NaN.
    """
    p = records["target_prob"].fillna(records["draft_prob"])
    return records.assign(target_prob=p)


def text_of(records: pd.DataFrame) -> Text:
    """The usable nodes as a text that can be asked as published; it has no trace."""
    nodes = usable(records)
    nodes = nodes.assign(ratio=score.ratio(nodes), seed=0)
    return Text(0.0, pd.DataFrame(), nodes)


def read_file(path: Path | str) -> pd.DataFrame:
    """A run's node records in the schema of the authors' public files (csv or csv.gz), as nodes; a
    probability or an entropy may be NaN (where the probability is, their code took the ratio as 1).

    Their node ids count from 0 and a root child's parent is -1; ours count from 1 and the root is
    0. `rank` and `best_path` follow from the order of siblings. `target_rank` and `draft_entropy`
    are not in their records and are left out. ValueError: columns missing, one node twice.
    """
    records = pd.read_csv(path, usecols=list(COLUMNS))[list(COLUMNS)]
    records = records.rename(columns=COLUMNS)
    records[["node", "parent"]] += 1
    if records.duplicated([*TREE, "node"]).any():
        raise ValueError(
            "the same (sample_id, token_position, node_id) occurs twice: keep one run a file"
        )
    records = records.sort_values([*TREE, "node"], kind="stable", ignore_index=True)
    siblings = records.groupby([*TREE, "parent"], sort=False)["draft_prob"]
    records["rank"] = siblings.rank(method="first", ascending=False).astype("int32") - 1
    # a best path is a chain of best children: score.reach walks any indicator of that form
    records["best_path"] = score.reach(records.assign(target_rank=records["rank"])) == 1
    return records


# ---- a folder ------------------------------------------------------------------------------------


def read(folder: Path | str | None = None, source: Published = SOURCE) -> dict[str, pd.DataFrame]:
    """The authors' runs by name, from `folder`, else $SPECLAB_AUTHOR_RECORDS, else
    data/runs/author-records: {} if that is not there.

    .csv and .csv.gz are read. ValueError: a folder that was named holds no records; a run that
    bears the name of one of the source's files and is not that file.
    """
    named = folder or os.environ.get(source.variable)
    where = Path(named or source.folder)
    paths = sorted([*where.glob("*.csv"), *where.glob("*.csv.gz")])
    if named and not paths:
        raise ValueError(
            f"{where} holds no .csv or .csv.gz of the authors' records: name another folder, or "
            f"run `{source.again}`"
        )
    published = {run_name(name): name for name in source.files}
    records = {}
    for path in paths:
        run = run_name(path.name)
        source.check(path, content_of(path), published.get(run, path.name))
        records[run] = read_file(path)
    return records


def facts(records: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """One row a run: run, domains, prompts, rows, nan_share; the mean of min(1, p/q) with NaN rows
    as accepted (as the authors' code did) and without; E[L] as published.
    """
    rows = []
    for run, one in records.items():
        every = with_nan_as_accepted(one)
        nodes = usable(one)
        facts = {
            "run": run,
            "domains": one["domain"].nunique(),
            "prompts": one["prompt_id"].nunique(),
            "rows": len(one),
            "nan_share": (len(one) - len(nodes)) / len(one),
            "nan_as_accepted": score.published_alpha(every),
            "without_nan": score.published_alpha(nodes),
            "published_length": score.published_length(every),
        }
        rows.append(facts)
    return pd.DataFrame(rows)
