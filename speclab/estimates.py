"""Tables of estimates with intervals: select rows, format cells, compare, and write sentences.

Every number that a notebook computes and shows is in an `Estimates`. This module uses no model and
no figure. `speclab.stats` computes the numbers. Intervals are over resampled prompts (95 %, or
the study's `level`).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from speclab.score import require

NUMBERS = ["estimate", "low", "high"]
# results of `verdict`
ABOVE, BELOW, WITHIN = "above", "below", "within"
INCONCLUSIVE, UNDEFINED = "inconclusive", "undefined"
# units of `cell`: (scale, suffix, format of the sign)
UNITS = {"": (1, "", ""), "x": (1, "x", ""), "%": (100, " %", ""), "points": (100, " points", "+")}


def verdict(low: Any, high: Any, null: float | tuple[float, float] = 0.0) -> Any:
    """Compare an interval with a null value.

    ABOVE or BELOW if the whole interval lies on that side of the null value, UNDEFINED if a bound
    is missing, else INCONCLUSIVE. If `null` is a region (least, most), WITHIN if the interval lies
    inside it. Returns a str for numbers and an array of str for columns.
    """
    low = np.asarray(low, float)
    high = np.asarray(high, float)
    least, most = np.broadcast_to(null, 2)
    is_inside = (least <= low) & (high <= most)
    cases = {
        UNDEFINED: np.isnan(low + high),
        ABOVE: low > most,
        BELOW: high < least,
        WITHIN: (least < most) & is_inside,
    }
    words = np.select(list(cases.values()), list(cases), INCONCLUSIVE)
    return words if words.ndim else str(words)


def cell(estimate: float, low: float, high: float, digits: int = 3, unit: str = "") -> str:
    """A number and its interval as text: '0.565 [0.551, 0.579]', or '0.565' without an interval.
    'undefined' if the estimate is missing.

    unit: a key of UNITS. '72 % [70, 74]', '+6 points [5, 8]' and '1.35x [1.32, 1.37]' need 0, 0 and
    2 digits. Shares and differences of shares are given as fractions of 1. If an end would round to
    no effect (0, or 1 for "x") without being it, all three have one digit more.
    """
    if np.isnan(estimate):
        return UNDEFINED
    scale, after, sign = UNITS[unit]
    # one digit more if an end would round to no effect
    effects = scale * np.array([low, high]) - (unit == "x")
    is_lost = (effects != 0) & (effects.round(digits) == 0)
    digits += bool(is_lost.any())
    number = f"{scale * estimate:{sign}z.{digits}f}"  # z: no minus before a zero
    is_one = unit == "points" and number in ("+1", "-1")
    number += after.removesuffix("s") if is_one else after
    text = number
    if not np.isnan(low):
        least, most = (f"{scale * end:z.{digits}f}" for end in (low, high))
        text += f" [{least}, {most}]"
    return text.replace("-", "\N{MINUS SIGN}")


@dataclass(frozen=True)
class Estimates:
    """A table with one row per number. The columns before `estimate` are its keys (domain, gamma,
    ...), followed by estimate, low, high and further columns.

    `digits` and `unit` (`stats.cell`) apply to cells and sentences. The frame itself is neither
    rounded nor scaled.
    """

    frame: pd.DataFrame
    digits: int = 2
    unit: str = ""

    def __post_init__(self) -> None:
        require(self.frame, NUMBERS, "estimates")

    @classmethod
    def stacked(cls, parts: "Mapping[str, Estimates | pd.DataFrame]", key: str) -> "Estimates":
        """Several tables as one. The new first column `key` names the table of each row."""
        frames = {name: getattr(part, "frame", part) for name, part in parts.items()}
        return cls(stack(frames, key))

    @classmethod
    def exact(cls, key: str, lines: Mapping[str, Any], x: str, at: Any) -> "Estimates":
        """Curves without intervals. `lines` maps a name to its values at the values `at` of the
        column `x`. The new first column `key` holds the name.
        """
        curves = {
            name: pd.DataFrame({x: at, "estimate": ys, "low": np.nan, "high": np.nan})
            for name, ys in lines.items()
        }
        return cls(stack(curves, key))

    # ---- select ----------------------------------------------------------------------------------

    def at(self, **keys: Any) -> "Estimates":
        """The rows where every named column has the given value, or one of a list of values. Raises
        ValueError if no row matches.
        """
        is_kept = self._has(keys).all(axis=1)
        kept = self.frame[is_kept]
        if kept.empty:
            there = {name: list(self.frame[name].unique()[:8]) for name in keys}
            raise ValueError(f"no estimate at {keys}; the table has {there}")
        return self._of_rows(kept)

    def without(self, **keys: Any) -> "Estimates":
        """Drop the rows where any named column has the given value, or one of a list of values."""
        is_dropped = self._has(keys).any(axis=1)
        return self._of_rows(self.frame[~is_dropped])

    def _has(self, keys: Mapping[str, Any]) -> pd.DataFrame:
        """For each named column: whether it has the given value, or one of a list of values."""
        wanted = {}
        for name, value in keys.items():
            wanted[name] = list(value) if pd.api.types.is_list_like(value) else [value]
        return self.frame[[*keys]].isin(wanted)

    def _of_rows(self, rows: pd.DataFrame) -> "Estimates":
        return replace(self, frame=rows.reset_index(drop=True))

    @property
    def known(self) -> pd.DataFrame:
        """The rows whose estimate is a number; possibly no rows."""
        return self.frame.dropna(subset="estimate")

    def rows(self) -> Iterator[Any]:
        """The rows as named tuples."""
        rows: Iterator[Any] = self.frame.itertuples(index=False)
        return rows

    @property
    def row(self) -> Any:
        """The only row of the table. Raises ValueError for more or fewer rows."""
        if len(self.frame) != 1:
            raise ValueError(f"{len(self.frame)} estimates instead of one: select one with .at(…)")
        return next(self.rows())

    @property
    def value(self) -> float:
        """The estimate of a table with one row."""
        return float(self.row.estimate)

    def verdict(self, null: float = 0.0) -> str:
        """The verdict of `stats.verdict` on the interval of a table with one row."""
        return str(verdict(self.row.low, self.row.high, null))

    # ---- format ----------------------------------------------------------------------------------

    def in_units(self, unit: str, digits: int | None = None) -> "Estimates":
        """The same numbers, shown in a unit of UNITS: "%" for shares, "points" for
        differences of shares, "x" for ratios. Default digits: 0 for "%" and "points", else 2.
        """
        usual = 2 if unit in ("", "x") else 0
        return replace(self, unit=unit, digits=usual if digits is None else digits)

    def wide(
        self, rows: str | list[str], columns: str, intervals: Collection[str] | None = None
    ) -> pd.DataFrame:
        """A table of cells '0.56 [0.55, 0.58]' ('undefined' if missing). Rows and columns keep
        their order of appearance. intervals: the columns that show them (default: all).
        """
        index = [rows] if isinstance(rows, str) else list(rows)
        cells = self.frame[[*index, columns]].astype(object)
        shown = self.frame
        if intervals is not None:
            hidden = ~shown[columns].isin(intervals)
            bounds = shown[["low", "high"]].mask(hidden)
            shown = shown.assign(low=bounds["low"], high=bounds["high"])
        cells["cell"] = [self._cell(row) for row in shown.itertuples(index=False)]
        table = cells.set_index([*index, columns])["cell"].unstack(sort=False)
        return table.rename_axis(columns=None).reset_index()

    def _cell(self, row: Any) -> str:
        return cell(row.estimate, row.low, row.high, self.digits, self.unit)

    # ---- sentences -------------------------------------------------------------------------------

    def __str__(self) -> str:
        """The number of a table with one row, with its interval."""
        return self._cell(self.row)

    def listed(self, names: str = "domain") -> str:
        """A list such as 'code 0.56 [0.55, 0.58], math 0.61 [0.60, 0.63] and chat 0.43 [0.41,
        0.45]'.
        """
        members = [f"{getattr(row, names)} {self._cell(row)}" for row in self.rows()]
        return named(members)


def named(names: Sequence[str]) -> str:
    """A list in a sentence: 'code', 'code and math', 'code, math and chat'; 'none' if empty."""
    *others, last = names or ["none"]
    if not others:
        return last
    return f"{', '.join(others)} and {last}"


def counted(count: int, noun: str) -> str:
    """'1 prompt', '8 prompts', '2 target passes'."""
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{count:,} {noun if count == 1 else plural}"


def stack(parts: Mapping[Any, pd.DataFrame], key: str | list[str]) -> pd.DataFrame:
    """Several frames as one, with rows renumbered. The new first column `key` holds the frames'
    names (several columns if the names are tuples).
    """
    names = [key] if isinstance(key, str) else key
    rows = pd.concat(parts, names=names)
    return rows.reset_index(names).reset_index(drop=True)
