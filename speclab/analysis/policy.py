"""A policy of speculation as a small JSON file: what to draft for which domain, and the pair and
machine that this was found for.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path

from speclab.analysis import router as routing
from speclab.cost import Costs
from speclab.draft import Shape, parse_shape
from speclab.files import written
from speclab.profiles import Profile
from speclab.prompts import DOMAINS, Prompt

VERSION, ROUTERS = 1, ("none", "rules", "classifier")


@dataclass(frozen=True)
class Policy:
    """What to draft: `domains` (domain -> setting) and the `default` for every other prompt; a
    setting is "plain" or a shape's string.

    pair: digests of both models' weights, by "target" and "draft" (`identity`); costs: the machine
    it was chosen for (`summary`); router: how a prompt's domain is found: "none" (it says so
    itself), "rules" or "classifier" (`speclab.analysis.router`); run: key of the recorded run it
    was made from. ValueError for unknown domains, routers and versions and for shapes that
    `parse_shape` refuses.
    """

    pair: Mapping[str, str]
    costs: Mapping[str, float]
    default: str
    domains: Mapping[str, str]
    router: str
    run: str
    version: int = VERSION

    def __post_init__(self):
        if self.version != VERSION:
            raise ValueError(
                f"version is {self.version!r}; this kit reads policies of version {VERSION}: make it again with notebook 09"
            )
        if self.router not in ROUTERS:
            raise ValueError(f"router is {self.router!r}; allowed are {', '.join(ROUTERS)}")
        for name, kind in (("pair", dict), ("costs", dict), ("domains", dict), ("run", str)):
            if not isinstance(getattr(self, name), kind):
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; a policy holds a {'mapping' if kind is dict else 'string'} there"
                )
        if unknown := sorted(set(self.domains) - set(DOMAINS)):
            raise ValueError(f"domains: {unknown} unknown; allowed are {', '.join(DOMAINS)}")
        for name, setting in {"default": self.default, **self.domains}.items():
            try:
                parse_shape(str(setting))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None


def identity(profile: Profile) -> dict[str, str]:
    """Digests of the weights of a profile's pair: what a policy is bound to."""
    from speclab.pairs import model_folder
    from speclab.runs import weights_digest

    return {
        name: weights_digest(model_folder(spec))
        for name, spec in (("target", profile.target), ("draft", profile.draft))
    }


def summary(costs: Costs, device: str) -> dict[str, float | str]:
    """The machine that a policy was chosen for: its device, and the measured costs that decide."""
    known = {"target_ms": costs.target_ms, "c": costs.c(), "overhead": costs.overhead}
    known |= {f"v({n})": costs.v(n) for n in (2, 4, 8, 16) if n <= costs.sizes[-1]}
    return {"device": device, **{name: float(f"{value:.4g}") for name, value in known.items()}}


def save(policy: Policy, path: Path) -> None:
    """Write a policy as JSON; the file appears whole or not at all."""
    written(
        path, lambda p: p.write_text(json.dumps(asdict(policy), indent=1) + "\n", encoding="utf-8")
    )


def load(path: str | Path, pair: Mapping[str, str] | None = None) -> Policy:
    """The policy of a file; `pair`, the `identity` of the pair it is meant for, is compared with
    the one it was made for.

    ValueError naming the file: not there, not JSON, fields missing or unknown, made for another
    pair (says which model), see Policy.
    """
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"no policy can be read from {path}: {error}; notebook 09 writes one"
        ) from None
    wanted = {field.name for field in fields(Policy)}
    if not isinstance(values, dict) or set(values) != wanted:
        came = sorted(values) if isinstance(values, dict) else type(values).__name__
        raise ValueError(
            f"{path}: a policy is an object with exactly {sorted(wanted)}; this has {came}"
        )
    try:
        policy = Policy(**values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    for name, digest in (pair or {}).items():
        if policy.pair.get(name) != digest:
            made = str(policy.pair.get(name))[:12]
            raise ValueError(
                f"{path} was made for another pair: its {name} is {made}…, this one's {digest[:12]}…; acceptance is a pair's "
                "own, so take the profile it was made for, or make a policy for this one (notebook 09)"
            )
    return policy


def choose(policy: Policy, prompt: Prompt) -> Shape:
    """What to draft for a prompt.

    A router, where the policy has one, sees the text only.
    """
    return parse_shape(setting_for(policy, prompt))


def setting_for(policy: Policy, prompt: Prompt) -> str:
    """The setting of a prompt: of its domain as the policy's router finds it, the default where
    that is unknown.
    """
    domain = prompt.domain
    if policy.router != "none":
        (domain,) = (
            routing.rules([prompt.text])
            if policy.router == "rules"
            else _router().routes([prompt.text])
        )
    return policy.domains.get(domain, policy.default)


_router = cache(routing.load_router)
