"""Acceptance at each depth of drafted chains, and our own pair next to other people's methods: the
greedy runs of its draft and of its trained head that come with the kit.
"""

import pandas as pd

from speclab import passes, replay, score, stats
from speclab.estimates import Estimates, named, stack
from speclab.place import ROOT
from speclab.runs import load_run

READS = ["data/traces/smollm/greedy", "data/traces/smollm-head/greedy"]
DRAFTS = dict(zip(("our draft", "our head"), READS, strict=True))


def accepted_at_depths(rows: pd.DataFrame, deepest: int) -> stats.Draws:
    """Acceptance at each depth of `passes`, given that all tokens above were accepted, over the
    passes that could go so deep: their draft and the rest of the answer were long enough.

    Entries are depths, up to `deepest` or the longest draft.
    """
    depths = range(1, min(deepest, int(rows["drafted"].max())) + 1)
    share = score.ratio_of("accepted", "reached")
    return stats.jointly({depth: (passes.depth_counts(rows, depth), share) for depth in depths})


def traces() -> dict[str, pd.DataFrame]:
    """The trace of each of DRAFTS whose run comes with the kit."""
    folders = {name: ROOT / folder for name, folder in DRAFTS.items()}
    is_there = {name: (folder / "manifest.json").is_file() for name, folder in folders.items()}
    return {name: load_run(folders[name]).trace for name in DRAFTS if is_there[name]}


def left_out(drafts: dict[str, pd.DataFrame]) -> str:
    """Which of DRAFTS are missing in `traces`, and why, as a sentence; "": none."""
    missing = [f"{name} (`{DRAFTS[name]}`)" for name in DRAFTS if name not in drafts]
    return f"Left out, because the kit has no such run here: {named(missing)}." if missing else ""


def at_depths(drafts: dict[str, pd.DataFrame], deepest: int, starts: str) -> Estimates:
    """`accepted_at_depths` of chains of `deepest` tokens, replayed on `traces`: draft, depth,
    domain, estimate, low, high. starts: as in `replay.replay`.
    """
    tables = {}
    for name, trace in drafts.items():
        rows = passes.of_replay(replay.replay(trace, deepest, starts))
        tables[name] = accepted_at_depths(rows, deepest).table(key="depth").frame
    return Estimates(stack(tables, "draft")).in_units("%")
