"""Estimates: a table of numbers with intervals, and what a notebook does with one: pick, lay out,
compare, put into words.

Everything that a notebook computes and shows is an `Estimates`. It knows no model and no figure:
`speclab.stats` makes the numbers, `speclab.show.figures` draws them. An interval stands for 95 % of
resampled prompts.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from speclab.score import require
from speclab.stats import ABOVE, BELOW, INCONCLUSIVE, NUMBERS, UNDEFINED, UNITS, cell, verdict

WORDS = ("no", "one", "two", "three", "four", "five", "six")


@dataclass(frozen=True)
class Estimates:
    """One row a number: the columns before `estimate` are its keys (domain, gamma, …), then
    estimate, low, high, and what else is known.

    `digits` and `unit` (`stats.cell`) are those of cells and sentences; the frame itself is neither
    rounded nor scaled.
    """

    frame: pd.DataFrame
    digits: int = 2
    unit: str = ""

    def __post_init__(self) -> None:
        require(self.frame, NUMBERS, "estimates")

    @classmethod
    def stacked(
        cls, parts: "Mapping[str, Estimates | pd.DataFrame]", key: str, digits: int = 2
    ) -> "Estimates":
        """Several tables as one; the new first column `key` says which table a row came from."""
        frames = {name: getattr(part, "frame", part) for name, part in parts.items()}
        return cls(stack(frames, key), digits)

    @classmethod
    def exact(cls, key: str, lines: Mapping[str, Any], x: str, at: Any) -> "Estimates":
        """Curves without intervals: for each name in `lines` its values at the places `at` of `x`,
        distinguished by the new column `key`.
        """
        places = pd.DataFrame({x: at})
        curves = {name: without_interval(places, ys) for name, ys in lines.items()}
        return cls(stack(curves, key))

    @classmethod
    def of(cls, table: pd.DataFrame, name: str, keys: list[str], digits: int = 2) -> "Estimates":
        """The columns `name`, `name`_low and `name`_high of a table with one row for each value of
        `keys`.
        """
        columns = [*keys, name, f"{name}_low", f"{name}_high"]
        require(table, columns, "table")
        return cls(table[columns].set_axis([*keys, *NUMBERS], axis=1), digits)

    # ---- pick ------------------------------------------------------------------------------------

    @property
    def keys(self) -> list[str]:
        """Names of the columns that tell the numbers apart."""
        columns = list(self.frame.columns)
        return columns[: columns.index("estimate")]

    def at(self, **keys: Any) -> "Estimates":
        """The rows where every named column has the given value, or one of a list of values.

        ValueError if there are none.
        """
        is_kept = self._has(keys).all(axis=1)
        kept = self.frame[is_kept]
        if kept.empty:
            there = {name: list(self.frame[name].unique()[:8]) for name in keys}
            raise ValueError(f"no estimate at {keys}; there are {there}")
        return self._of_rows(kept)

    def without(self, **keys: Any) -> "Estimates":
        """The rows where no named column has the given value, or one of a list of values."""
        is_dropped = self._has(keys).any(axis=1)
        return self._of_rows(self.frame[~is_dropped])

    def _has(self, keys: Mapping[str, Any]) -> pd.DataFrame:
        """Whether each named column has the given value, or one of a list of values."""
        wanted = {}
        for name, value in keys.items():
            wanted[name] = list(value) if pd.api.types.is_list_like(value) else [value]
        return self.frame[[*keys]].isin(wanted)

    def _of_rows(self, rows: pd.DataFrame) -> "Estimates":
        return replace(self, frame=rows.reset_index(drop=True))

    @property
    def known(self) -> pd.DataFrame:
        """The rows whose estimate is a number; there may be none."""
        return self.frame.dropna(subset="estimate")

    def defined(self) -> "Estimates":
        """The rows whose estimate is a number. ValueError where there is none."""
        return self._of_rows(self.known)

    def groups(self, key: str) -> "Iterator[tuple[Any, Estimates]]":
        """(value, the rows that have it) for every value of a key, in order of appearance."""
        for value in pd.unique(self.frame[key]):
            yield value, self.at(**{key: value})

    def rows(self) -> Iterator[Any]:
        """The rows as named tuples."""
        rows: Iterator[Any] = self.frame.itertuples(index=False)
        return rows

    @property
    def row(self) -> Any:
        """The row of a table of one row. ValueError for more."""
        if len(self.frame) != 1:
            raise ValueError(
                f"{len(self.frame)} estimates where one is needed: "
                f"pick it with .at({', '.join(self.keys)}=…)"
            )
        return next(self.rows())

    @property
    def value(self) -> float:
        """The estimate of a table of one row."""
        return float(self.row.estimate)

    def verdict(self, null: float = 0.0) -> str:
        """What the interval of a table of one row says of `null` (`stats.verdict`)."""
        return str(verdict(self.row.low, self.row.high, null))

    # ---- lay out ---------------------------------------------------------------------------------

    def in_units(self, unit: str, digits: int | None = None) -> "Estimates":
        """The same numbers, shown in a unit of `stats.UNITS`: "%" and "points" (a difference of
        shares) by default without decimals, "x" (a ratio) with two.
        """
        usual = 2 if unit in ("", "x") else 0
        return replace(self, unit=unit, digits=usual if digits is None else digits)

    def wide(self, rows: str | list[str], columns: str) -> pd.DataFrame:
        """A table of cells '0.56 [0.55, 0.58]' ('undefined' where missing), rows and columns in
        order of appearance.
        """
        index = [rows] if isinstance(rows, str) else list(rows)
        cells = self.frame[[*index, columns]].astype(object)
        cells["cell"] = [self._cell(row) for row in self.rows()]
        table = cells.set_index([*index, columns])["cell"].unstack(sort=False)
        return table.rename_axis(columns=None).reset_index()

    def _cell(self, row: Any) -> str:
        return cell(row.estimate, row.low, row.high, self.digits, self.unit)

    # ---- put into words --------------------------------------------------------------------------

    def __str__(self) -> str:
        """A single number with its interval, several as a list by their first key that differs."""
        if len(self.frame) == 1:
            return self._cell(self.row)
        differing = [key for key in self.keys if self.frame[key].nunique() > 1]
        names, *_ = differing or self.keys
        return self.listed(names)

    def listed(self, names: str = "domain", within: str | None = None) -> str:
        """'code 0.56 [0.55, 0.58], math 0.61 [0.60, 0.63] and chat 0.43 [0.41, 0.45]'.

        within: a list for each value of this key, as 'T = 0: code …; T = 1: code …'.
        """
        if within:
            parts = self.groups(within)
            return "; ".join(f"{value}: {part.listed(names)}" for value, part in parts)
        members = [f"{getattr(row, names)} {self._cell(row)}" for row in self.rows()]
        return named(members)

    def span(self) -> str:
        """Least to greatest estimate: '0.43 to 0.62', in a unit '43 to 62 %'; '0.43' where both are
        this, 'undefined' where no estimate is defined.
        """
        known = self.frame["estimate"].dropna()
        if known.empty:
            return "undefined"
        ends = (known.min(), known.max())
        scale, after, sign = UNITS[self.unit]
        texts = [f"{scale * end:{sign}z.{self.digits}f}" for end in ends]
        span = " to ".join(dict.fromkeys(texts))
        return span.replace("-", "\N{MINUS SIGN}") + after

    def sentence(
        self,
        above: str = "higher in",
        below: str = "lower in",
        neither: str = "no significant difference in",
        names: str = "domain",
        than: float = 0.0,
        within: str | None = None,
    ) -> str:
        """What the intervals say, as 'falls in code and math; no interval for chat': each wording
        is followed by the names it holds for, or by 'all four domains'.

        `above` or `below`: the whole interval lies on that side of `than`; else `neither`. within:
        a sentence for each value of this key, as 'T = 0: falls in code. T = 1: …'.
        """
        if within:
            wording = (above, below, neither, names, than)
            parts = self.groups(within)
            sentences = [
                f"{starting(str(value))}: {part.sentence(*wording)}" for value, part in parts
            ]
            return ". ".join(sentences)
        words = {ABOVE: above, BELOW: below, INCONCLUSIVE: neither, UNDEFINED: "no interval for"}
        verdicts = verdict(self.frame["low"], self.frame["high"], than)
        sides = pd.Series(verdicts).map(words)
        sides[self.frame["estimate"].isna().to_numpy()] = "no estimate for"
        of_side = self.frame[names].astype(str).groupby(sides.to_numpy(), sort=False)
        members = of_side.agg(list)
        if names == "domain" and len(members) == 1 < len(self.frame):
            return f"{sides[0]} {whole('domain', len(self.frame))}"
        return "; ".join(f"{side} {named(members[side])}" for side in members.index)

    def tally(
        self, above: str, below: str, neither: str, noun: str = "domain", than: float = 0.0
    ) -> str:
        """How many rows each verb holds for, as a predicate: 'falls in all four domains', 'falls in
        3 and rises in 1 of 6 domains', 'does not change in any domain'; of one row the verb alone.
        """
        sides = list(verdict(self.frame["low"], self.frame["high"], than))
        counts = {above: sides.count(ABOVE), below: sides.count(BELOW)}
        verbs = {verb: count for verb, count in counts.items() if count}
        total = len(sides)
        if total == 1:
            return next(iter(verbs), neither)
        if not verbs:
            return f"{neither} in any {noun}"
        if total in verbs.values():
            return f"{next(iter(verbs))} in {whole(noun, total)}"
        parts = [f"{verb} in {count}" for verb, count in verbs.items()]
        return f"{' and '.join(parts)} of {total} {noun}s"

    # ---- compare ---------------------------------------------------------------------------------

    def lies_within(self, least: float, most: float) -> bool:
        """True where every defined estimate lies in this range (but for rounding)."""
        known = self.frame["estimate"].dropna()
        is_inside = known.between(least - 1e-9, most + 1e-9)
        return bool(is_inside.all())

    def highest(self, within: str = "domain") -> "Estimates":
        """The row of the largest estimate in each value of `within`."""
        groups = self.frame.groupby(within, sort=False, observed=True)
        best = groups["estimate"].idxmax()
        return self._of_rows(self.frame.loc[best])


def starting(text: str) -> str:
    """The text as a sentence begins: with a capital, or with an identifier set as code."""
    first, space, rest = text.partition(" ")
    if re.search(r"[\[_(=]", first):
        return f"`{first}`{space}{rest}"
    return text[:1].upper() + text[1:]


def named(names: Sequence[str]) -> str:
    """A list in a sentence: 'code', 'code and math', 'code, math and chat'; 'none' if empty."""
    *others, last = names or ["none"]
    return f"{', '.join(others)} and {last}" if others else last


def counted(count: int, noun: str) -> str:
    """'1 prompt', '8 prompts', '2 target passes'."""
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{count:,} {noun if count == 1 else plural}"


def whole(noun: str, count: int) -> str:
    """'the domain', 'both domains', 'all four domains'."""
    if count < 3:
        return f"both {noun}s" if count == 2 else f"the {noun}"
    number = WORDS[count] if count < len(WORDS) else count
    return f"all {number} {noun}s"


def yes_or_no(verdict: str) -> str:
    """A verdict as the answer to 'is it above?': 'yes', 'no' or 'inconclusive'."""
    return {ABOVE: "yes", BELOW: "no"}.get(verdict, INCONCLUSIVE)


def stack(parts: Mapping[Any, pd.DataFrame], key: str | list[str]) -> pd.DataFrame:
    """Several frames as one, rows renumbered; the new first column `key` holds their names
    (several columns where the names are tuples).
    """
    names = [key] if isinstance(key, str) else key
    rows = pd.concat(parts, names=names)
    return rows.reset_index(names).reset_index(drop=True)


def without_interval(frame: pd.DataFrame, values: Any) -> pd.DataFrame:
    """The rows with other numbers, of which no interval is known."""
    return frame.assign(estimate=values, low=np.nan, high=np.nan)
