"""A policy of speculation as a small JSON file: what to draft for which domain, and the pair and machine that this was found for."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from speclab import budgets, explain, online, routing, stream
from speclab.budgets import PLAIN, UNKNOWN, Settings, best_setting, compare, cross_fit, price
from speclab.cost import Costs
from speclab.draft import Shape, parse_shape
from speclab.parts import written
from speclab.profiles import Profile
from speclab.prompts import DOMAINS, Prompt
from speclab.score import POOLED
from speclab.stats import RESAMPLES

VERSION, ROUTERS = 1, ("none", "rules", "classifier")
RECOMMENDED = ["machine", "domain", "setting", "share_best", "gamma", "tree", "speculate", "speedup", "low", "high"]


@dataclass(frozen=True)
class Policy:
    """What to draft: `domains` (domain -> setting) and the `default` for every other prompt; a setting is "plain" or a shape's string.

    pair: digests of both models' weights, by "target" and "draft" (`identity`); costs: the machine it was chosen for (`summary`); router:
    how a prompt's domain is found: "none" (it says so itself), "rules" or "classifier" (`speclab.routing`); run: key of the
    recorded run it was made from. ValueError for unknown domains, routers and versions and for shapes that `parse_shape` refuses.
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
            raise ValueError(f"version is {self.version!r}; this kit reads policies of version {VERSION}: make it again with notebook 09")
        if self.router not in ROUTERS:
            raise ValueError(f"router is {self.router!r}; allowed are {', '.join(ROUTERS)}")
        for name, kind in (("pair", dict), ("costs", dict), ("domains", dict), ("run", str)):
            if not isinstance(getattr(self, name), kind):
                raise ValueError(f"{name} is {getattr(self, name)!r}; a policy holds a {'mapping' if kind is dict else 'string'} there")
        if unknown := sorted(set(self.domains) - set(DOMAINS)):
            raise ValueError(f"domains: {unknown} unknown; allowed are {', '.join(DOMAINS)}")
        for name, setting in {"default": self.default, **self.domains}.items():
            try:
                parse_setting(setting)
            except ValueError as error:
                raise ValueError(f"{name}: {error}, or {PLAIN!r}") from None


def parse_setting(setting: str) -> Shape | None:
    """The shape of a setting, None for plain decoding. ValueError as `parse_shape`."""
    return None if setting == PLAIN else parse_shape(str(setting))


def recommend(
    counts: pd.DataFrame, settings: Settings, machines: Mapping[str, Costs], folds: int = 5, n: int = RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """What to draft, by machine and domain, from `budgets.counts` of settings that include "plain".

    machine, domain, setting (the fastest of all), share_best (of the resamples of prompts in which it is), gamma of the fastest chain and
    name of the fastest tree (0 and "none" where no chain, no tree is faster than plain), speculate ("yes", "no", "cannot be told": where
    the interval lies to 1), and speedup, low, high, each prompt judged by the setting that was fastest on other prompts of its domain.
    """
    rows = []
    for machine, costs in machines.items():
        table = price(counts, settings, costs)
        best = best_setting(table, n, seed).sort_values("speedup", ascending=False, kind="stable")
        judged = compare({"own": cross_fit(table, None, folds, seed)}, "own", n, seed).set_index("domain")
        for domain in (d for d in pd.unique(table["domain"]) if d != POOLED):
            own = best[best["domain"] == domain]
            faster = [(name, settings[name]) for name, speed in own[["setting", "speedup"]].to_numpy() if speed > 1 and settings[name]]
            gamma = next((tree.size for _, tree in faster if tree.is_chain), 0)
            tree = next((name for name, tree in faster if not tree.is_chain), "none")
            top, found = own.iloc[0], judged.loc[domain]
            verdict = "no" if top["setting"] == PLAIN or found["high"] < 1 else "yes" if found["low"] > 1 else "cannot be told"
            rows.append((machine, domain, top["setting"], top["share_best"], gamma, tree, verdict, *found[["estimate", "low", "high"]]))
    return pd.DataFrame(rows, columns=RECOMMENDED)


def judged(
    trace: pd.DataFrame, counts: pd.DataFrame, settings: Settings, costs: Costs, mix: Mapping[str, float],
    routes: Mapping[str, Mapping[str, str]], max_new_tokens: int | None = None, blocks: int = 2,
) -> dict[str, pd.DataFrame]:  # fmt: skip
    """What every policy costs every prompt on a machine, by name: judged frames with passes, as `stream.simulate` serves them.

    never (plain), always (one setting, the best for the mix), per-domain (the true domain's), one for each of `routes` (a router's name ->
    prompt_id -> domain or UNKNOWN), online (`online.online`: `blocks` blocks by the best setting that drafts), oracle (each prompt's own
    cheapest setting). counts: `budgets.counts` of the settings, "plain" among them. Settings are fitted on other prompts, but the oracle's.
    """
    table = price(counts, settings, costs)
    frames = {stream.NEVER: budgets.judge(table, PLAIN), "always": stream.always(table, mix), "per-domain": cross_fit(table)}
    frames |= {name: cross_fit(table, taken) for name, taken in routes.items()} | {"oracle": budgets.oracle(table)}
    frames = {name: stream.with_passes(frame, counts) for name, frame in frames.items()}
    first, at = budgets.choose(table[table["setting"] != PLAIN])[UNKNOWN], online.walks(trace, settings, costs, max_new_tokens)
    watched = stream.online_passes(online.online(at, first, blocks), at, settings, first, blocks, max_new_tokens)
    return {name: frame for name, frame in frames.items() if name != "oracle"} | {"online": watched, "oracle": frames["oracle"]}


def told(change, above: str, below: str) -> str:
    """`explain.direction` of a policy's change against another; "does the same as" where it is 0 in every resample (equal settings)."""
    return explain.direction(change, above, below, "does the same as" if change.low == change.high == 0 else "cannot be told apart from")


@dataclass(frozen=True)
class Turning:
    """Up to which batch drafting pays and from which it slows, each holding at every batch before or after too (None: at none); steady: as
    batches grow, it never turns from losing to undecided or paying, nor from undecided to paying."""

    pays_to: int | None
    off_from: int | None
    steady: bool


def turning(rows: pd.DataFrame) -> Turning:
    """Where drafting must stop, from speed-ups by batch (batch, low, high): an interval wholly above 1 pays, one wholly below 1 slows."""
    rows = rows.sort_values("batch")
    pays, slows = (rows["low"] > 1).to_numpy(), (rows["high"] < 1).to_numpy()
    first, last = np.logical_and.accumulate(pays), np.logical_and.accumulate(slows[::-1])[::-1]
    batch, verdict = rows["batch"].to_numpy(), pays.astype(int) - slows
    pays_to, off_from = (int(b[end]) if len(b) else None for b, end in ((batch[first], -1), (batch[last], 0)))
    return Turning(pays_to, off_from, bool((np.diff(verdict) <= 0).all()))


def router_table(router: routing.Router, sets: Mapping[str, Sequence[Prompt]]) -> pd.DataFrame:
    """How often a router is right, and how often not sure enough, with and without the prompts' form: prompts, form, n, right, to_default.

    First what its card says of the prompts and of the technical prose (of no domain: right is undefined) held out of its training, then
    each of `sets`, judged now. Shares with Wilson's 95 % interval (one observation a prompt).
    """
    rows, held = [], router.card["held_out"]
    inside = sum(n for name, n in held.items() if name != UNKNOWN)
    for form, name in (("as it is", "text"), ("removed", "bare")):
        facts = router.card[name]
        rows.append(("held out of its training", form, inside, facts["accuracy"], 1 - facts["kept"]))
        for title, prompts in sets.items():
            texts = [p.text if name == "text" else routing.strip_form(p.text) for p in prompts]
            frame = pd.DataFrame({"prompt_id": [p.prompt_id for p in prompts], "domain": [p.domain for p in prompts], "text": texts})
            found = routing.routed(frame, router)
            rows.append((title, form, len(found), found["correct"].mean(), (found["route"] == UNKNOWN).mean()))
    rows.append(("technical prose, held out", "as it is", held[UNKNOWN], np.nan, router.card["text"]["prose_refused"]))
    rows.sort(key=lambda row: ["held out of its training", "technical prose, held out", *sets].index(row[0]))
    table = pd.DataFrame(rows, columns=["prompts", "form", "n", "right", "to_default"])
    return table.assign(**{name: [_share(p, n) for p, n in zip(table[name], table["n"], strict=True)] for name in ("right", "to_default")})


def _share(share: float, n: int) -> str:
    """A share of n with its interval, as text."""
    if np.isnan(share):
        return "undefined"
    interval = binomtest(round(share * n), n).proportion_ci(method="wilson")
    return f"{share:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def identity(profile: Profile) -> dict[str, str]:
    """Digests of the weights of a profile's pair: what a policy is bound to."""
    from speclab.pairs import model_folder
    from speclab.runs import weights_digest

    return {name: weights_digest(model_folder(spec)) for name, spec in (("target", profile.target), ("draft", profile.draft))}


def summary(costs: Costs, device: str) -> dict[str, float | str]:
    """The machine that a policy was chosen for: its device, and the measured costs that decide."""
    known = {"target_ms": costs.target_ms, "c": costs.c(), "overhead": costs.overhead}
    known |= {f"v({n})": costs.v(n) for n in (2, 4, 8, 16) if n <= costs.sizes[-1]}
    return {"device": device, **{name: float(f"{value:.4g}") for name, value in known.items()}}


def save(policy: Policy, path: Path) -> None:
    """Write a policy as JSON; the file appears whole or not at all."""
    written(path, lambda p: p.write_text(json.dumps(asdict(policy), indent=1) + "\n", encoding="utf-8"))


def load(path: str | Path, pair: Mapping[str, str] | None = None) -> Policy:
    """The policy of a file; `pair`, the `identity` of the pair it is meant for, is compared with the one it was made for.

    ValueError naming the file: not there, not JSON, fields missing or unknown, made for another pair (says which model), see Policy.
    """
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"no policy can be read from {path}: {error}; notebook 09 writes one") from None
    wanted = {field.name for field in fields(Policy)}
    if not isinstance(values, dict) or set(values) != wanted:
        came = sorted(values) if isinstance(values, dict) else type(values).__name__
        raise ValueError(f"{path}: a policy is an object with exactly {sorted(wanted)}; this has {came}")
    try:
        policy = Policy(**values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    for name, digest in (pair or {}).items():
        if policy.pair.get(name) != digest:
            made = str(policy.pair.get(name))[:12]
            raise ValueError(f"{path} was made for another pair: its {name} is {made}…, this one's {digest[:12]}…; acceptance is a pair's "
                             "own, so take the profile it was made for, or make a policy for this one (notebook 09)")
    return policy


def choose(policy: Policy, prompt: Prompt) -> Shape | None:
    """What to draft for a prompt; None: nothing, the target decodes alone. A router, where the policy has one, sees the text only."""
    return parse_setting(setting_for(policy, prompt))


def setting_for(policy: Policy, prompt: Prompt) -> str:
    """The setting of a prompt: of its domain as the policy's router finds it, the default where that is unknown."""
    domain = prompt.domain
    if policy.router != "none":
        (domain,) = routing.rules([prompt.text]) if policy.router == "rules" else _router().routes([prompt.text])
    return policy.domains.get(domain, policy.default)


_router = cache(routing.load_router)
