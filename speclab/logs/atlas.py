"""The atlas: what verification accepted in public runs of other decoders. `data/atlas` holds the
numbers and their sources.

A run is one method on one target and prompt set. An answer is a row: run, prompt_id, domain (the
category of its source), turn, tokens, passes, drafted (in all; missing where the source does not
say it), accepted (a list with one count per pass; missing where the source has totals only) and
text (answers of a target to the same prompt with the same number have the same text; no text is
kept).
"""

from functools import lru_cache
from typing import Any

import pandas as pd

from speclab.logs import passes
from speclab.place import ROOT
from speclab.study.reading import near, read_yaml

FOLDER = ROOT / "data" / "atlas"
TABLE, SOURCES = FOLDER / "atlas.parquet", FOLDER / "sources.yaml"
FACTS = ["run", "method", "target", "set", "K", "temperature", "repository", "commit", "licence"]
TASKS = {  # Spec-Bench's five tasks of one category each; the sixth has MT-Bench's eight
    "translation": "translation",
    "summarization": "summaries",
    "qa": "questions",
    "math_reasoning": "math",
    "rag": "retrieval",
}
CONVERSATION = "chat"  # the task with MT-Bench's categories


@lru_cache
def sources() -> dict[str, Any]:
    """`sources.yaml`: repositories, mt_bench, runs, left_out. ValueError if it is damaged."""
    return read_yaml(SOURCES, "restore it from the repository", dict)


def runs() -> pd.DataFrame:
    """One row per run: FACTS, hardware, trap, and `has_passes` (counts per pass, not totals)."""
    facts = sources()
    rows = [run | facts["repositories"][run["repository"]] for run in facts["runs"]]
    table = pd.DataFrame(rows)[[*FACTS, "hardware", "trap", "format"]]
    return table.assign(has_passes=table.pop("format") == "spec-bench")


@lru_cache
def answers() -> pd.DataFrame:
    """All answers of all runs."""
    return pd.read_parquet(TABLE)


def passes_of(run: str) -> pd.DataFrame:
    """The `passes` of a run (`logs.passes`), with prompt_id as text. `drafted` is NaN where K is
    unknown. ValueError for an unknown run, or for one with totals only.
    """
    table = runs().set_index("run")
    if run not in table.index:
        raise ValueError(f"the atlas has no run {run!r}: {near(run, table.index)}")
    if not table.loc[run, "has_passes"]:
        raise ValueError(f"the atlas has totals per answer for {run!r}, no passes")
    rows = answers().query("run == @run").assign(drafted=None, before=0, plain=0, where="")
    longest = table.loc[run, "K"]
    if longest != "unknown":
        rows["drafted"] = passes.drafted_of(rows["accepted"], longest)
    rows = rows.astype({"prompt_id": str, "domain": str})
    return passes.count_by_answer(rows.reset_index(drop=True))


def group_tasks(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame of Spec-Bench with its six tasks as domains, MT-Bench's categories as one."""
    return frame.assign(domain=frame["domain"].map(TASKS).fillna(CONVERSATION))
