"""A policy of speculation as a small JSON file: what to draft for which domain, and the pair and
machine that this was found for.
"""

import datetime
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict
from pydantic.dataclasses import dataclass

from speclab.analysis import router
from speclab.analysis.choose import UNKNOWN
from speclab.cost import Costs, disturbed
from speclab.plain import checked, read_json
from speclab.profiles import ROOT
from speclab.prompts import Prompt, check_domain
from speclab.runs import Run, written
from speclab.shapes import parse_shape


def _checked(setting: str) -> str:
    parse_shape(setting)
    return setting


def _named(domains: dict[str, str]) -> dict[str, str]:
    spelled: dict[str, str] = {}
    for name in domains:
        check_domain(name, spelled, "domains")
    return domains


READS = ["09/policy.json"]  # in the folder of a profile's figures
BY_NOTEBOOK = READS[0]
Setting = Annotated[str, AfterValidator(_checked)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Policy:
    """What to draft: `domains` (domain -> setting; domains may have any names) and the `default`
    for every other prompt; a setting is what `shapes.parse_shape` reads.

    pair: digests of both models' weights, by "target" and "draft" (`runs.pair_digests`); device:
    number formats, kernels and devices that it was measured with (`notebook.formats`), and the
    costs measured there; router: how a prompt's domain is found: "none" (the prompt names it) or
    "classifier" (`speclab.analysis.router`); run: key of the recorded run it was made from; made:
    day and kind of machine of its writing. ValueError (pydantic's) that names each wrong field,
    what is allowed and what came.
    """

    pair: dict[str, str]
    device: str
    costs: Costs
    default: Setting
    domains: Annotated[dict[str, Setting], AfterValidator(_named)]
    router: Literal["none", "classifier"]
    run: str
    version: Literal[1] = 1
    made: str = field(default="on a machine and a day that it does not name", compare=False)


def costs_for(run: Run, c: float | None = None, figures: Path | None = None) -> tuple[Costs, str]:
    """The costs for the pair of a run, and sentences that say where they come from (and whether
    timing was unreliable). They are the given c with v = 1 and o = 0; without a given c, those that
    notebook 09 measured and wrote into its policy; without a policy, an assumed c, the draft's
    share of the target's bytes.

    figures: of the profile that is studied; None: those of the profile that the run was recorded
    with. ValueError where the policy is another pair's.
    """
    pair = run.manifest["pair"]
    figures = figures or ROOT / "figures" / run.manifest["profile"]["name"]
    found = None if c is not None else measured_for(run, figures)
    if found:
        costs = found.costs
        of_this = "this kind of machine" if this_machine() in found.made else "another machine"
        source = (
            f"from notebook 09, measured {found.made} on {of_this}, in {found.device}. They are "
            f"kept in figures/{figures.name}/{BY_NOTEBOOK}. Other machines have other costs: run "
            "notebook 09 there."
        )
        passes = (
            f"A target pass over one token takes {costs.target_ms:.3g} ms, c = {costs.c():.2f} and "
            f"v(4) = {costs.v(4):.2f}."
        )
        loop = f"o is {costs.loop(True):.2f} for a chain and {costs.loop(False):.2f} for a tree."
        return costs, f"{source} {passes} The loop's {loop} {disturbed(costs)}".strip()
    if c is None:
        c = pair["draft"]["weight_bytes"] / pair["target"]["weight_bytes"]
    return Costs.assumed(c), (
        f"assumed: c = {c:.3g}, v = 1 and o = 0. Notebook 09 measures the costs of a machine; --c "
        "sets another c."
    )


def measured_for(run: Run, figures: Path) -> Policy | None:
    """The policy that notebook 09 wrote for the pair of a run, with the costs that it measured;
    None: the notebook was not run. ValueError where the policy is another pair's.
    """
    file = figures / BY_NOTEBOOK
    return load(file, run.manifest["weights"]) if file.is_file() else None


def write_policy(policy: Policy, path: Path) -> None:
    """Write a policy as JSON, with the day and the kind of machine; the file appears whole or not
    at all.
    """
    policy = replace(policy, made=f"on {datetime.date.today()} ({this_machine()})")
    text = json.dumps(asdict(policy), indent=1) + "\n"
    written(path, lambda part: part.write_text(text, encoding="utf-8"))


def this_machine() -> str:
    """The kind of this machine, as a policy names it."""
    return f"{platform.machine()}, {os.cpu_count()} CPUs"


def load(path: str | Path, pair: Mapping[str, str] | None = None) -> Policy:
    """The policy of a file; `pair`, the digests of the pair it is meant for, is compared with
    the one it was made for.

    ValueError naming the file: not there, no policy (says which field is wrong), made for another
    pair (says which model).
    """
    content = read_json(path, "notebook 09 writes a policy")
    policy = checked(Policy, content, f"{path} is no policy (notebook 09 writes one)")
    for name, digest in (pair or {}).items():
        made_for = policy.pair.get(name, "none")
        if made_for != digest:
            raise ValueError(
                f"{path} was made for another pair: its {name} is {made_for[:12]}…, this one's "
                f"{digest[:12]}…; take the profile it was made for, or make a policy for this one "
                "(notebook 09)"
            )
    return policy


def setting_for(policy: Policy, prompt: Prompt) -> str:
    """The setting of a prompt: that of its domain, the default where it has none (`domain_of`)."""
    return policy.domains.get(domain_of(policy, prompt), policy.default)


def domain_of(policy: Policy, prompt: Prompt) -> str:
    """A prompt's domain as the policy's router finds it, if the policy names it, else UNKNOWN. A
    router sees the prompt's text only.
    """
    domain = prompt.domain
    if policy.router == "classifier":
        (domain,) = classifier().routes([prompt.text])
    return domain if domain in policy.domains else UNKNOWN


classifier = cache(router.load_router)  # the kit's, read once
