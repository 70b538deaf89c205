"""Timing runs: what the passes of a pair cost on one machine in one hour, as notebook 10 measures
them. The kit ships those of its own pairs (data/measured/*.csv). Those of a reader lie beside the
recorded runs. Of both, a timing run is used where the digests of both models are those of a run.
"""

import datetime
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from speclab.cost import Costs
from speclab.estimates import counted
from speclab.study import runs
from speclab.study.profiles import ROOT
from speclab.study.runs import Run, written

SHIPPED = ROOT / "data" / "measured"
FOLDER = "timing"  # beside the recorded runs
ASSUMED_C = 0.1
LEAST_RUNS = 3  # with fewer timing runs there is no verdict on speed
KEYS = ["when", "machine", "threads", "device", "target", "draft"]
COLUMNS = [*KEYS, "round", "n", "target_ms", "c", "v", "o_chain", "o_tree"]


@dataclass(frozen=True)
class PairCosts:
    """What a block of a pair costs: the means over its timing runs, and each of them.

    runs: empty if the costs are assumed; source: where they come from, as a sentence.
    """

    costs: Costs
    runs: tuple[Costs, ...]
    source: str


def this_machine() -> str:
    """The kind of this machine."""
    return f"{platform.machine()}, {os.cpu_count()} CPUs"


def write(weights: Mapping[str, str], device: str, threads: int, rounds: Sequence[Costs]) -> Path:
    """Write a timing run beside the recorded runs; the file appears whole or not at all.

    weights: digests of both models, by "target" and "draft"; device: number formats, kernels and
    devices (`notebook.formats`); rounds: the costs of each round.
    """
    when = datetime.datetime.now().strftime("%Y-%m-%dT%H:%M")
    facts = [when, this_machine(), threads, device, weights["target"], weights["draft"]]
    rows = [
        (*facts, number, n, costs.target_ms, c, v, costs.loop(True), costs.loop(False))
        for number, costs in enumerate(rounds, start=1)
        for n, c, v in zip(costs.sizes, costs.draft, costs.verify, strict=True)
    ]
    table = pd.DataFrame(rows, columns=COLUMNS)
    path = runs.RUNS / FOLDER / f"{when.replace(':', '')}-{weights['draft'][:8]}.csv"
    written(path, lambda part: table.to_csv(part, index=False, lineterminator="\n"))
    return path


def read_file(path: Path) -> pd.DataFrame:
    """A file of timing runs. ValueError for any other file."""
    rows = pd.read_csv(path, dtype=dict.fromkeys(KEYS, str))
    if list(rows) != COLUMNS or rows.empty or rows.isna().any(axis=None):
        raise ValueError(f"{path} holds no timing run; notebook 10 writes one")
    return rows


def mean_costs(rows: pd.DataFrame) -> Costs:
    """The mean costs of rounds or of timing runs."""
    by_size = rows.groupby("n")[["c", "v"]].mean()
    target_ms, o_chain, o_tree = rows[["target_ms", "o_chain", "o_tree"]].mean()
    sizes, draft, verify = map(tuple, (by_size.index, by_size["c"], by_size["v"]))
    return Costs(target_ms, sizes, draft, verify, o_chain, o_tree)


def timing_runs(weights: Mapping[str, str]) -> tuple[pd.DataFrame, bool]:
    """All timing runs of two models, and whether the kit ships them: those that the kit ships, else
    a reader's own on this kind of machine, with the device of the latest. No rows if there are
    none.
    """
    for folder in (SHIPPED, runs.RUNS / FOLDER):
        files = map(read_file, sorted(folder.glob("*.csv")))
        rows = pd.concat([pd.DataFrame(columns=COLUMNS), *files], ignore_index=True)
        rows = rows.query("target == @weights['target'] and draft == @weights['draft']")
        if folder != SHIPPED:
            rows = rows[rows["machine"] == this_machine()]
            latest = rows.sort_values("when")["device"].tail(1)
            rows = rows[rows["device"].isin(latest)]
        if len(rows):
            break
    return rows, folder == SHIPPED


def costs_for(run: Run, c: float | None = None) -> PairCosts:
    """The costs for the pair of a run: those of a given c with v = 1 and o = 0; without it, those
    of its timing runs; else those of c = ASSUMED_C.
    """
    if c is not None:
        source = f"those of c = {c:.3g}, with v = 1 and o = 0."
        return PairCosts(Costs.assumed(c), (), source)
    rows, is_shipped = timing_runs(run.manifest["weights"])
    if rows.empty:
        source = (
            f"assumed: c = {ASSUMED_C}, v = 1 and o = 0. Notebook 10 measures them on an idle "
            "machine."
        )
        return PairCosts(Costs.assumed(ASSUMED_C), (), source)
    each = tuple(mean_costs(own) for _, own in rows.groupby("when"))
    costs = mean_costs(rows)
    ends = rows["when"].str[:10].agg(["min", "max"])
    days = " to ".join(ends.unique())
    where = "that the kit ships" if is_shipped else "on this machine"
    n = min(5, costs.sizes[-1])
    source = (
        f"the means of {counted(len(each), 'timing run')} {where} ({rows['machine'].iloc[0]}, "
        f"{rows['device'].iloc[0]}, {days}). c = {costs.c():.3f}, v({n}) = {costs.v(n):.2f}, and "
        f"o = {costs.loop(True):.2f} for a chain."
    )
    return PairCosts(costs, each, source)
