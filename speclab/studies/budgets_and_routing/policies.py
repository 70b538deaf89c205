"""Notebook 09: what every policy costs every prompt, what to recommend, where drafting must stop,
and how often a router is right.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from speclab import estimates as explain
from speclab.analysis import choose as budgets
from speclab.analysis import router as routing
from speclab.analysis.choose import (
    PLAIN,
    UNKNOWN,
    Settings,
    best_setting,
    compare,
    cross_fit,
    price,
)
from speclab.cost import Costs
from speclab.prompts import DOMAINS, Prompt
from speclab.score import POOLED
from speclab.stats import RESAMPLES
from speclab.studies.budgets_and_routing import online
from speclab.studies.budgets_and_routing import serving as stream

RECOMMENDED = [
    "machine",
    "domain",
    "setting",
    "share_best",
    "gamma",
    "tree",
    "speculate",
    "speedup",
    "low",
    "high",
]


def recommend(
    counts: pd.DataFrame,
    settings: Settings,
    machines: Mapping[str, Costs],
    folds: int = 5,
    n: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """What to draft, by machine and domain, from `budgets.counts` of settings that include "plain".

    machine, domain, setting (the fastest of all), share_best (of the resamples of prompts in which
    it is), gamma of the fastest chain and name of the fastest tree (0 and "none" where no chain, no
    tree is faster than plain), speculate ("yes", "no", "cannot be told": where the interval lies to
    1), and speedup, low, high, each prompt judged by the setting that was fastest on other prompts
    of its domain.
    """
    rows = []
    for machine, costs in machines.items():
        table = price(counts, settings, costs)
        best = best_setting(table, n, seed).sort_values("speedup", ascending=False, kind="stable")
        judged = compare({"own": cross_fit(table, None, folds, seed)}, "own", n, seed).set_index(
            "domain"
        )
        for domain in (d for d in pd.unique(table["domain"]) if d != POOLED):
            own = best[best["domain"] == domain]
            faster = [
                (name, settings[name])
                for name, speed in own[["setting", "speedup"]].to_numpy()
                if speed > 1 and settings[name].size
            ]
            gamma = next((tree.size for _, tree in faster if tree.is_chain), 0)
            tree = next((name for name, tree in faster if not tree.is_chain), "none")
            top, found = own.iloc[0], judged.loc[domain]
            verdict = (
                "no"
                if top["setting"] == PLAIN or found["high"] < 1
                else "yes"
                if found["low"] > 1
                else "cannot be told"
            )
            rows.append(
                (
                    machine,
                    domain,
                    top["setting"],
                    top["share_best"],
                    gamma,
                    tree,
                    verdict,
                    *found[["estimate", "low", "high"]],
                )
            )
    return pd.DataFrame(rows, columns=RECOMMENDED)


def judged(
    trace: pd.DataFrame, counts: pd.DataFrame, settings: Settings, costs: Costs, mix: Mapping[str, float],
    routes: Mapping[str, Mapping[str, str]], max_new_tokens: int | None = None, blocks: int = 2,
) -> dict[str, pd.DataFrame]:  # fmt: skip
    """What every policy costs every prompt on a machine, by name: judged frames with passes, as
    `stream.simulate` serves them.

    never (plain), always (one setting, the best for the mix), per-domain (the true domain's), one
    for each of `routes` (a router's name -> prompt_id -> domain or UNKNOWN), online
    (`online.online`: `blocks` blocks by the best setting that drafts), oracle (each prompt's own
    cheapest setting). counts: `budgets.counts` of the settings, "plain" among them. Settings are
    fitted on other prompts, but the oracle's.
    """
    table = price(counts, settings, costs)
    frames = {
        stream.NEVER: budgets.judge(table, PLAIN),
        "always": stream.always(table, mix),
        "per-domain": cross_fit(table),
    }
    frames |= {name: cross_fit(table, taken) for name, taken in routes.items()} | {
        "oracle": budgets.oracle(table)
    }
    frames = {name: stream.with_passes(frame, counts) for name, frame in frames.items()}
    first, at = (
        budgets.choose(table[table["setting"] != PLAIN])[UNKNOWN],
        online.walks(trace, settings, costs, max_new_tokens),
    )
    watched = stream.online_passes(
        online.online(at, first, blocks), at, settings, first, blocks, max_new_tokens
    )
    return {name: frame for name, frame in frames.items() if name != "oracle"} | {
        "online": watched,
        "oracle": frames["oracle"],
    }


def told(change, above: str, below: str) -> str:
    """`explain.direction` of a policy's change against another; "does the same as" where it is 0 in
    every resample (equal settings).
    """
    return explain.direction(
        change,
        above,
        below,
        "does the same as" if change.low == change.high == 0 else "cannot be told apart from",
    )


@dataclass(frozen=True)
class Turning:
    """Up to which batch drafting pays and from which it slows, each holding at every batch before
    or after too (None: at none); steady: as batches grow, it never turns from losing to undecided
    or paying, nor from undecided to paying.
    """

    pays_to: int | None
    off_from: int | None
    steady: bool


def turning(rows: pd.DataFrame) -> Turning:
    """Where drafting must stop, from speed-ups by batch (batch, low, high): an interval wholly
    above 1 pays, one wholly below 1 slows.
    """
    rows = rows.sort_values("batch")
    pays, slows = (rows["low"] > 1).to_numpy(), (rows["high"] < 1).to_numpy()
    first, last = np.logical_and.accumulate(pays), np.logical_and.accumulate(slows[::-1])[::-1]
    batch, verdict = rows["batch"].to_numpy(), pays.astype(int) - slows
    pays_to, off_from = (
        int(b[end]) if len(b) else None for b, end in ((batch[first], -1), (batch[last], 0))
    )
    return Turning(pays_to, off_from, bool((np.diff(verdict) <= 0).all()))


def router_table(router: routing.Router, sets: Mapping[str, Sequence[Prompt]]) -> pd.DataFrame:
    """How often a router is right, and how often not sure enough, with and without the prompts'
    form: prompts, form, n, right, to_default.

    First what its card says of the prompts and of the technical prose (of no domain: right is
    undefined) held out of its training, then each of `sets`, judged now. Shares with Wilson's 95 %
    interval (one observation a prompt).
    """
    rows, held = [], router.card["held_out"]
    inside = sum(n for name, n in held.items() if name != UNKNOWN)
    for form, name in (("as it is", "text"), ("removed", "bare")):
        facts = router.card[name]
        rows.append(
            ("held out of its training", form, inside, facts["accuracy"], 1 - facts["kept"])
        )
        for title, prompts in sets.items():
            texts = [p.text if name == "text" else routing.strip_form(p.text) for p in prompts]
            frame = pd.DataFrame(
                {
                    "prompt_id": [p.prompt_id for p in prompts],
                    "domain": [p.domain for p in prompts],
                    "text": texts,
                }
            )
            found = routing.routed(frame, router)
            rows.append(
                (
                    title,
                    form,
                    len(found),
                    found["correct"].mean(),
                    (found["route"] == UNKNOWN).mean(),
                )
            )
    rows.append(
        (
            "technical prose, held out",
            "as it is",
            held[UNKNOWN],
            np.nan,
            router.card["text"]["prose_refused"],
        )
    )
    rows.sort(
        key=lambda row: ["held out of its training", "technical prose, held out", *sets].index(
            row[0]
        )
    )
    table = pd.DataFrame(rows, columns=["prompts", "form", "n", "right", "to_default"])
    return table.assign(
        **{
            name: [_share(p, n) for p, n in zip(table[name], table["n"], strict=True)]
            for name in ("right", "to_default")
        }
    )


def _share(share: float, n: int) -> str:
    """A share of n with its interval, as text."""
    if np.isnan(share):
        return "undefined"
    interval = binomtest(round(share * n), n).proportion_ci(method="wilson")
    return f"{share:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def confusion(domain: Sequence[str], route: Sequence[str]) -> pd.DataFrame:
    """Prompts by true domain (rows) and route (columns, UNKNOWN last)."""
    table = pd.crosstab(
        pd.Series(domain, name="domain").to_numpy(), pd.Series(route, name="route").to_numpy()
    )
    rows = [d for d in (*DOMAINS, *sorted(set(domain) - set(DOMAINS))) if d in set(domain)]
    return table.reindex(index=rows, columns=[*DOMAINS, UNKNOWN], fill_value=0).rename_axis(
        index="domain", columns="route"
    )


def wrong_routes(table: pd.DataFrame, folds: int = 5, seed: int = 0) -> pd.DataFrame:
    """What a wrong route costs: `compare` of sending everyone to one label (each domain, and
    UNKNOWN) with the right route (`right`).

    Read by domain: row (policy, domain) is what happens to prompts of `domain` that are taken for
    `policy`.
    """
    labels = [d for d in DOMAINS if d in set(table["domain"])] + [UNKNOWN]
    taken = {
        label: cross_fit(table, dict.fromkeys(table["prompt_id"], label), folds, seed)
        for label in labels
    }
    return compare({"right": cross_fit(table, None, folds, seed)} | taken, "right", seed=seed)
