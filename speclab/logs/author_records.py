"""The node records that the paper's authors published: fetched, and checked by their git ids.

They have no licence, so they are no part of the kit: `make author-records` fetches them from the
public repository saifmb0/tree-acceptance. `git ls-tree` lists the blob ids below at COMMIT. We had
no access to the bytes of the final run, and could not try the address.
"""

from speclab.logs.fetch import Published
from speclab.study.runs import RUNS

COMMIT = "aa679a3f8a1b7593afe5f858cc798fd7f826d4f6"
FILES = {  # git blob ids: three short runs on HumanEval prompts, and the run of the paper
    "raw_records_20260411_054105.csv": "7d2036cdb94e6515892bc38181e4d4a251869fdd",
    "raw_records_20260411_055031.csv": "72a0f47e8797b9e0031b501be37ada05ea833fbf",
    "raw_records_20260411_060835.csv": "33575e4a2e23d3ed2ad16d2dca3adf0b58f9726f",
    "raw_records_20260411_061513.csv": "b2922ea18dcb04ed0aec5ce7e1ba4cdecfe7eea8",
}
SOURCE = Published(
    f"https://raw.githubusercontent.com/saifmb0/tree-acceptance/{COMMIT}/results/",
    FILES,
    RUNS / "author-records",
    "make author-records",
)
fetch = SOURCE.fetch
