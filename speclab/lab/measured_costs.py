"""What notebook 10 measured a block to cost, kept beside its figures for notebook 09 and for
`python -m speclab export`.
"""

import datetime
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from speclab.cost import Costs, disturbed
from speclab.plain import checked, read_json
from speclab.study.profiles import ROOT
from speclab.study.runs import Run, written

READS = ["10/costs.json"]  # in the folder of a profile's figures
BY_NOTEBOOK = READS[0]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class MeasuredCosts:
    """The costs of a pair on one machine: of all rounds of timing together, and of each round.

    pair: digests of both models' weights, by "target" and "draft" (`runs.pair_digests`); device:
    number formats, kernels and devices (`notebook.formats`); made: day and kind of machine.
    """

    pair: dict[str, str]
    device: str
    costs: Costs
    rounds: tuple[Costs, ...]
    made: str


def this_machine() -> str:
    """The kind of this machine."""
    return f"{platform.machine()}, {os.cpu_count()} CPUs"


def write(
    path: Path, pair: Mapping[str, str], device: str, costs: Costs, rounds: tuple[Costs, ...]
) -> None:
    """Write costs as JSON with the day and the kind of machine; the file appears whole or not at
    all.
    """
    made = f"on {datetime.date.today()} ({this_machine()})"
    measured = MeasuredCosts(dict(pair), device, costs, rounds, made)
    text = json.dumps(asdict(measured), indent=1) + "\n"
    written(path, lambda part: part.write_text(text, encoding="utf-8"))


def measured_for(run: Run, figures: Path) -> MeasuredCosts | None:
    """The costs that notebook 10 measured for the pair of a run; None: the notebook was not run
    there. ValueError for a file that holds no costs, or those of another pair.
    """
    path = figures / BY_NOTEBOOK
    if not path.is_file():
        return None
    again = "run notebook 10 again"
    measured = checked(MeasuredCosts, read_json(path, again), f"{path} holds no costs; {again}")
    for name, digest in run.manifest["weights"].items():
        if measured.pair.get(name) != digest:
            raise ValueError(f"{path} was measured with another {name}; {again}")
    return measured


def costs_for(run: Run, c: float | None = None, figures: Path | None = None) -> tuple[Costs, str]:
    """The costs for the pair of a run, and sentences that say where they come from. They are the
    given c with v = 1 and o = 0; without it, what notebook 10 measured; else an assumed c, the
    draft's share of the target's bytes.

    figures: of the profile that is studied; None: those of the profile that the run was recorded
    with.
    """
    pair = run.manifest["pair"]
    figures = figures or ROOT / "figures" / run.manifest["profile"]["name"]
    found = None if c is not None else measured_for(run, figures)
    if found:
        costs = found.costs
        of_this = "this kind of machine" if this_machine() in found.made else "another machine"
        source = (
            f"from notebook 10, measured {found.made} on {of_this}, in {found.device}. They are "
            f"kept in figures/{figures.name}/{BY_NOTEBOOK}. Other machines have other costs: run "
            "notebook 10 there."
        )
        numbers = (
            f"A target pass over one token takes {costs.target_ms:.3g} ms, c = {costs.c():.2f} and "
            f"v(4) = {costs.v(4):.2f}. The loop's o is {costs.loop(True):.2f} for a chain and "
            f"{costs.loop(False):.2f} for a tree."
        )
        return costs, f"{source} {numbers} {disturbed(costs)}".strip()
    if c is None:
        c = pair["draft"]["weight_bytes"] / pair["target"]["weight_bytes"]
    return Costs.assumed(c), (
        f"assumed: c = {c:.3g}, v = 1 and o = 0. Notebook 10 measures the costs of a machine; --c "
        "sets another c."
    )
