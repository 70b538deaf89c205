"""Drafts that come with the kit, in data/drafts: which of them belong to a pair.

The scripts in data/drafts made them once. A folder data/drafts/NAME holds the drafts of one pair
and, of trained ones, `drafts.json`, their index: the digests of the target that wrote their text
and of the draft they started from, and name, family and folder of each. The name of a draft's
folder ends with a hash of all that made its weights. The folder of a recorded draft holds what it
proposes along the recorded texts instead of its weights.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from speclab.model import Pair
from speclab.plain import digest_of
from speclab.study.profiles import MODELS, ROOT
from speclab.study.runs import read_facts

SHIPPED = ROOT / "data" / "drafts"
INDEX = "drafts.json"
FACTS = "facts.json"
REPAIR = "git checkout brings it back"


@dataclass(frozen=True)
class TrainedDraft:
    """A trained draft on disk.

    family: its objective, or the specialist. folder: Hugging Face layout. facts: what made it,
    `texts` (how many it learned from) and `minutes` of training.
    """

    name: str
    family: str
    folder: Path
    facts: dict


def pair_of(pair: Pair) -> dict[str, str]:
    """Digests of the target and of the draft that trained drafts belong to."""
    return {name: getattr(pair, name).folder.digest for name in MODELS}


def name_of(label: str, *facts: Any) -> str:
    """The name of a folder or file: a label in small letters and hyphens, then 16 hexadecimal
    digits that depend on all facts.
    """
    words = "-".join(re.findall(r"[a-z0-9]+", label.lower()))
    return f"{words}-{digest_of(facts)[:16]}"


def shipped_drafts(pair: Pair, base: Path = SHIPPED) -> list[TrainedDraft]:
    """The trained drafts of a pair in `base`, in the order of their index; none for other weights.

    Damaged: a file is not as it was written.
    """
    drafts = []
    wanted = pair_of(pair)
    for index in sorted(base.glob(f"*/{INDEX}")):
        listed = read_facts(index, REPAIR)
        if listed["pair"] != wanted:
            continue
        for row in listed["drafts"]:
            folder = index.parent / row["folder"]
            facts = read_facts(folder / FACTS, REPAIR)
            drafts.append(TrainedDraft(row["name"], row["family"], folder, facts))
    return drafts


@dataclass(frozen=True)
class RecordedDraft:
    """A recorded draft: the size of its stored weights, and its traces along the texts of runs, by
    kind of run.
    """

    weight_bytes: int
    traces: dict[str, pd.DataFrame]


def recorded_draft(label: str, made_of: list, base: Path = SHIPPED) -> RecordedDraft | None:
    """The recorded draft in `base` that was made from exactly this; None where it is missing.

    Damaged: a file is not as it was written.
    """
    for folder in base.glob(f"*/{name_of(label, *made_of)}"):
        facts = read_facts(folder / FACTS, REPAIR)
        tables = {name: pd.read_parquet(folder / name) for name in facts["files"]}
        traces = {name.removesuffix(".parquet"): table for name, table in tables.items()}
        return RecordedDraft(facts["weight_bytes"], traces)
    return None
