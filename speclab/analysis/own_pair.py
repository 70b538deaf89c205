"""Our own pair next to other people's methods: the greedy runs of its draft and of its trained head
that come with the kit.
"""

import pandas as pd

from speclab.estimates import named
from speclab.place import ROOT
from speclab.runs import load_run

READS = ["data/traces/smollm/greedy", "data/traces/smollm-head/greedy"]
DRAFTS = dict(zip(("our draft", "our head"), READS, strict=True))


def traces() -> dict[str, pd.DataFrame]:
    """The trace of each of DRAFTS whose run comes with the kit."""
    folders = {name: ROOT / folder for name, folder in DRAFTS.items()}
    is_there = {name: (folder / "manifest.json").is_file() for name, folder in folders.items()}
    return {name: load_run(folders[name]).trace for name in DRAFTS if is_there[name]}


def left_out(drafts: dict[str, pd.DataFrame]) -> str:
    """Which of DRAFTS are missing in `traces`, and why, as a sentence; "": none."""
    missing = [f"{name} (`{DRAFTS[name]}`)" for name in DRAFTS if name not in drafts]
    return f"Left out, because the kit has no such run here: {named(missing)}." if missing else ""
