"""Is it worth knowing the domain? Every policy of section 3 on every prompt, what a wrong route
costs, and how often a router is right.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from speclab.analysis import choose
from speclab.analysis.choose import PLAIN, UNKNOWN, Settings
from speclab.analysis.router import Router, routed, strip_form
from speclab.cost import Costs
from speclab.prompts import DOMAINS, Prompt
from speclab.score import POOLED, domains_in
from speclab.show import figures
from speclab.show.estimates import Estimates, direction
from speclab.studies.budgets_and_routing import machines, online, serving

ALWAYS = "always"
SAME = "in every resample the same as"


def text_frame(prompts: Sequence[Prompt], bare: bool = False) -> pd.DataFrame:
    """Prompts as prompt_id, domain, text; bare: without the form that gives the domain away."""
    frame = pd.DataFrame([(p.prompt_id, p.domain, p.text) for p in prompts])
    frame.columns = ["prompt_id", "domain", "text"]
    return frame.assign(text=frame["text"].map(strip_form)) if bare else frame


def judged_policies(
    trace: pd.DataFrame,
    counted: pd.DataFrame,
    settings: Settings,
    costs: Costs,
    routes: Mapping[str, Mapping[str, str]],
    max_new_tokens: int | None = None,
    blocks: int = 2,
) -> dict[str, pd.DataFrame]:
    """What every policy costs every prompt on a machine: a judged frame by policy, settings fitted
    on other prompts than they are judged on (but the oracle's).

    never (plain), always (one setting, the best for all prompts), per-domain (the true domain's),
    one for each of `routes` (a router's name -> prompt_id -> domain or UNKNOWN), online
    (`online.online`: `blocks` blocks by the best setting that drafts), oracle (each prompt's own
    best). counted: `choose.block_counts` of the trace and settings, plain among them.
    """
    prices = choose.price(counted, settings, costs)
    frames = {serving.NEVER: prices.judged(PLAIN)}
    for name, taken_for in _that_choose(prices, routes).items():
        frames[name] = choose.cross_fit(prices, taken_for)
    drafts = choose.price(counted, machines.that_draft(settings), costs)
    first = choose.setting_by_domain(drafts)[UNKNOWN]
    walks = online.text_walks(trace, settings, costs, max_new_tokens)
    frames["online"] = online.online(walks, first, blocks)
    frames["oracle"] = choose.with_hindsight(prices)
    return frames


def _that_choose(
    prices: choose.Prices, routes: Mapping[str, Mapping[str, str]]
) -> dict[str, Mapping[str, str] | None]:
    """What each policy that fits settings takes a prompt for (None: its own domain)."""
    for_all = dict.fromkeys(prices.prompts["prompt_id"], UNKNOWN)
    return {ALWAYS: for_all, "per-domain": None, **routes}


def chosen_again(
    counted: pd.DataFrame,
    settings: Settings,
    costs: Costs,
    routes: Mapping[str, Mapping[str, str]],
) -> dict[str, np.ndarray]:
    """`choose.refitted` of every policy of `judged_policies` that fits settings, by name."""
    prices = choose.price(counted, settings, costs)
    return {
        name: choose.refitted(prices, taken_for)
        for name, taken_for in _that_choose(prices, routes).items()
    }


def speeds(
    frames: Mapping[str, Mapping[str, pd.DataFrame]],
    baseline: str = ALWAYS,
    again: Mapping[str, Mapping[str, np.ndarray]] | None = None,
) -> Estimates:
    """`choose.paired_speeds` of judged frames by machine: machine, policy, quantity, domain.

    again: `chosen_again` by machine; without it every setting is held fixed in the resamples.
    """
    again = again or {}
    parts = {
        name: choose.paired_speeds(own, baseline, again=again.get(name))
        for name, own in frames.items()
    }
    return Estimates.stacked(parts, "machine", digits=3)


def pooled_changes(found: Estimates, **keys) -> Estimates:
    """The differences from the baseline, pooled over all prompts."""
    return found.at(quantity="minus_baseline", domain=POOLED, **keys)


def told_change(change, above: str, below: str) -> str:
    """`estimates.direction` of a policy's change; SAME where it is 0 in every resample (equal
    settings in each).
    """
    neither = SAME if change.low == change.high == 0 else "cannot be told apart from"
    return direction(change, above, below, neither)


def told_each(found: Estimates, names: str, than: str) -> str:
    """Which rows are faster or slower than `than`, in one phrase: each wording of `told_change`,
    and the names (values of the key `names`) it holds for, with their numbers.
    """
    said: dict[str, list[str]] = {}
    for row in found.rows():
        name = f"{getattr(row, names)} ({row.estimate:+.3f} [{row.low:+.3f}, {row.high:+.3f}])"
        said.setdefault(told_change(row, "faster than", "slower than"), []).append(name)
    return "; ".join(
        f"**{word}** {than}: {', '.join(who)}" for word, who in said.items()
    )


def oracle_is_bound(frames: Mapping[str, pd.DataFrame]) -> bool:
    """No prompt is cheaper under its domain's setting than under its own best."""
    own, best = (
        frames[name].sort_values("prompt_id")["cost"]
        for name in ("per-domain", "oracle")
    )
    return bool((best.to_numpy() <= own.to_numpy() + 1e-9).all())


def gap_numbers(gaps: Estimates) -> dict[str, float]:
    """The main differences from 'always' for ctx.record, as `oracle_minus_always`."""
    rows = gaps.at(policy=["per-domain", "classifier", "online", "oracle"]).rows()
    return {
        f"{row.policy}_minus_always".replace("-", "_"): row.estimate for row in rows
    }


def ahead(gaps: Estimates) -> Estimates:
    """The policies that draft, with short names of machines, for a figure."""
    rows = gaps.without(policy=[serving.NEVER, "rules"]).frame
    short = rows["machine"].str.replace(r"measured | \(.*", "", regex=True)
    return Estimates(rows.assign(machine=short), digits=3)


# ---- routers -------------------------------------------------------------------------------------


def router_table(router: Router, sets: Mapping[str, Sequence[Prompt]]) -> pd.DataFrame:
    """How often a router is right, and how often not sure enough, with and without the prompts'
    form: prompts, form, n, right, to_default.

    First what its card says of the prompts and of the technical prose (of no domain: right is
    undefined) held out of its training, then each of `sets`, judged now. Shares with Wilson's 95 %
    interval (one observation a prompt).
    """
    held_out, card = router.card["held_out"], router.card["text"]
    of_a_domain = sum(held_out.values()) - held_out.get(UNKNOWN, 0)
    rows = []
    for form, name in FORMS.items():
        facts = router.card[name]
        shares = facts["accuracy"], 1 - facts["kept"]
        rows.append(("held out of its training", form, of_a_domain, *shares))
    prose = held_out[UNKNOWN], np.nan, card["prose_refused"]
    rows.append(("technical prose, held out", "as it is", *prose))
    for title, prompts in sets.items():
        for form, name in FORMS.items():
            found = routed(text_frame(prompts, name == "bare"), router)
            shares = found["correct"].mean(), (found["route"] == UNKNOWN).mean()
            rows.append((title, form, len(found), *shares))
    table = pd.DataFrame(rows, columns=["prompts", "form", "n", "right", "to_default"])
    for share in ("right", "to_default"):
        table[share] = table[share].combine(table["n"], _share)
    return table


FORMS = {"as it is": "text", "removed": "bare"}  # as the router's card names them


def _share(share: float, n: int) -> str:
    """A share of n with its interval, as text."""
    if np.isnan(share):
        return "undefined"
    interval = binomtest(round(share * n), n).proportion_ci(method="wilson")
    return f"{share:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def confusion(found: pd.DataFrame) -> pd.DataFrame:
    """Prompts of a frame (domain, route): true domains down, routes across, UNKNOWN last."""
    table = pd.crosstab(found["domain"], found["route"])
    columns = [*DOMAINS, UNKNOWN]
    return table.reindex(index=domains_in(found), columns=columns, fill_value=0)


def wrong_routes(
    prices: choose.Prices, scale: float = 1.0, folds: int = 5
) -> Estimates:
    """What a wrong route changes: the speed-up (times `scale`) of prompts of `domain` that are
    taken for `taken_for` (each domain, and UNKNOWN) minus that of the right route; domain,
    taken_for.

    Positive: the other domain's setting happens to be faster on these prompts. Settings are chosen
    again in every resample.
    """
    ids, domains = prices.prompts["prompt_id"], domains_in(prices.prompts)
    labels = {label: dict.fromkeys(ids, label) for label in (*domains, UNKNOWN)}
    frames, again = {}, {}
    for name, routes in ({"right": None} | labels).items():
        frames[name] = choose.cross_fit(prices, routes, folds)
        again[name] = choose.refitted(prices, routes, folds)
    table = choose.paired_speeds(frames, "right", again=again)
    found = Estimates(table.rename(columns={"policy": "taken_for"}))
    rows = found.at(quantity="minus_baseline", domain=list(domains)).frame
    numbers = ["estimate", "low", "high"]
    rows[numbers] = (rows[numbers] * scale).round(6) + 0.0
    return Estimates(rows.drop(columns="quantity"), digits=3)


def square(lost: Estimates) -> pd.DataFrame:
    """`wrong_routes` as a table: true domains down, what they are taken for across."""
    rows, columns = (
        list(pd.unique(lost.frame[name])) for name in ("domain", "taken_for")
    )
    table = lost.frame.pivot(index="domain", columns="taken_for", values="estimate")
    return table.loc[rows, columns]


def draw_heat(
    tables: Mapping[str, pd.DataFrame], unit: str, digits: int
) -> figures.Figure:
    """Tables of true domain by route as heat maps below each other, by title."""
    figure, grid = figures.subplots(
        len(tables), 1, height=0.4 + 1.6 * len(tables), squeeze=False
    )
    for axes, (title, table) in zip(grid[:, 0], tables.items(), strict=True):
        figures.heatmap(table, axes, unit, digits)
        axes.set(title=title, xlabel="taken for", ylabel="domain")
    return figure
