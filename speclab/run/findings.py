"""Headlines: what was found on one profile, in sentences that a person wrote
(`notebooks/findings.yaml`). Their numbers and their conditions are read from the notebooks' tables.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import pandas as pd

from speclab.plain import Facts
from speclab.study.profiles import ROOT
from speclab.study.reading import read_yaml

# the errors of a table, a row, a column or a summary that is not there
MISSING = (OSError, KeyError, ValueError, AttributeError)


@dataclass(frozen=True)
class Headline:
    """A sentence with places for numbers, the number of the notebook whose tables have them, its
    figure that shows the finding ("": none), and the condition under which the sentence is true.
    """

    notebook: str
    figure: str
    says: str
    values: dict[str, Facts]
    when: str

    def told(self, folder: Path) -> str:
        """The sentence with the numbers of the notebook's tables in `folder`; "" where the
        condition fails. Raises one of MISSING if a table, a row or a column is missing.
        """
        values = {name: value_of(folder, **slot) for name, slot in self.values.items()}
        holds = pd.DataFrame([values]).eval(self.when, engine="python").item()
        return self.says.format_map(values) if holds else ""


def headlines_of(profile: str) -> Sequence[Headline]:
    """The headlines of a profile, in order of importance; most profiles have none."""
    known = read_yaml(ROOT / "notebooks" / "findings.yaml", "see the comment at its top", dict)
    return [Headline(**facts) for facts in known.get(profile, [])]


def value_of(
    folder: Path, table: str, row: Facts, column: str, of: str = "", times: float = 1
) -> float:
    """A number of a table: of the one row whose cells are those of `row`, or a summary (`of`: min,
    max, mean or count) of several such rows, times a factor. One of MISSING if there is no such
    number.
    """
    frame = pd.read_csv(folder / f"{table}.csv")
    for name, wanted in row.items():
        frame = frame[frame[name] == wanted]
    cells = frame[column]
    found = float(cells.agg(of) if of and len(cells) else cells.item())
    if not isfinite(found):
        raise ValueError(f"{table}.csv: the number in column {column!r} is missing")
    return found * times
