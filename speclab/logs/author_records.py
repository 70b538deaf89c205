"""The node records that the paper's authors published: fetched, checked by their git ids, and read
as the nodes of a pair's trees.

They have no licence, so they are no part of the kit: `make author-records` fetches them from the
public repository saifmb0/tree-acceptance. `git ls-tree` lists the blob ids below at COMMIT. We had
no access to the bytes of the final run, and could not try the address.
"""

from pathlib import Path

import pandas as pd

from speclab.logs.fetch import Published
from speclab.place import folder_of
from speclab.study.runs import RUNS

READS = ["data/runs/author-records", "$SPECLAB_RUNS/author-records", "$SPECLAB_AUTHOR_RECORDS"]
COMMIT = "aa679a3f8a1b7593afe5f858cc798fd7f826d4f6"
FILES = {  # git blob ids: three short runs on HumanEval prompts, and the run of the paper
    "raw_records_20260411_054105.csv": "7d2036cdb94e6515892bc38181e4d4a251869fdd",
    "raw_records_20260411_055031.csv": "72a0f47e8797b9e0031b501be37ada05ea833fbf",
    "raw_records_20260411_060835.csv": "33575e4a2e23d3ed2ad16d2dca3adf0b58f9726f",
    "raw_records_20260411_061513.csv": "b2922ea18dcb04ed0aec5ce7e1ba4cdecfe7eea8",
}
OURS = {  # their names of columns: ours
    "sample_id": "prompt_id",
    "task_type": "domain",
    "token_position": "position",
    "node_id": "node",
    "tree_depth": "depth",
}


SOURCE = Published(
    f"https://raw.githubusercontent.com/saifmb0/tree-acceptance/{COMMIT}/results/",
    FILES,
    RUNS / "author-records",
    "make author-records",
    "SPECLAB_AUTHOR_RECORDS",
)
fetch = SOURCE.fetch


def read_records(folder: str = "") -> dict[str, pd.DataFrame]:
    """The authors' runs by name (the file's last six digits), from `folder`, else
    $SPECLAB_AUTHOR_RECORDS, else data/runs/author-records; {} if there are none.

    A probability or an entropy may be NaN.
    """
    place = Path(folder or folder_of(SOURCE.variable) or SOURCE.folder)
    return {
        path.name.partition(".")[0][-6:]: pd.read_csv(path).rename(columns=OURS)
        for path in sorted(place.glob("*[0-9].csv*"))
    }
