"""Who knows what of a prompt, and what that is worth: every policy on every prompt (notebooks 09,
section 3, and 14), and a policy's promise beside the clock (09, section 2).
"""

from collections.abc import Mapping, Sequence

import pandas as pd

from speclab.analysis import choose, policy
from speclab.analysis.choose import PLAIN, UNKNOWN, Choice, Prices, Settings
from speclab.analysis.texts import Text
from speclab.cost import Costs
from speclab.draft import parse_shape
from speclab.models import timing
from speclab.models.pairs import Pair
from speclab.prompts import EncodedPrompt, Prompt
from speclab.show import figures
from speclab.show.estimates import stack
from speclab.stats import Interval
from speclab.studies.budgets_and_routing import machines

NEVER = "never"
ALWAYS = "always"
ORACLE = "oracle"
PER_DOMAIN = "per-domain"
OPEN = "inconclusive"


# ---- every policy --------------------------------------------------------------------------------


def judged_policies(
    prices: Prices,
    routes: Mapping[str, Mapping[str, str]] = {},
) -> dict[str, Choice]:
    """What every policy costs every prompt on a machine, settings fitted on other prompts than they
    are judged on and chosen again in every resample (but the oracle's).

    NEVER (plain), ALWAYS (one setting, the best for all prompts), PER_DOMAIN (the true domain's),
    one for each of `routes` (a router's name -> prompt_id -> domain or UNKNOWN), ORACLE (each
    prompt's own best). prices: of settings with plain.
    """
    for_all = dict.fromkeys(prices.prompts["prompt_id"], UNKNOWN)
    found = {NEVER: Choice(prices.judged(PLAIN))}
    for name, taken_for in {ALWAYS: for_all, PER_DOMAIN: None, **routes}.items():
        found[name] = choose.fit(prices, taken_for)
    found[ORACLE] = Choice(choose.with_hindsight(prices))
    return found


def sampled_prices(
    sampled: Text, settings: Settings, costs: Costs, max_new_tokens: int
) -> Prices:
    """Prices on sampled texts, a prompt's seeds together: chains by the rejection rule, trees by
    point mass.
    """
    chains = {name: shape for name, shape in settings.items() if shape.is_chain}
    trees = {name: shape for name, shape in settings.items() if not shape.is_chain}
    kinds = (chains, sampled.chain_rule), (trees, sampled.rule)
    counted = [
        choose.block_counts(text, shapes, rule, max_new_tokens)
        for _, text in sampled.trace.groupby("seed")
        for shapes, rule in kinds
    ]
    return choose.price(pd.concat(counted, ignore_index=True), settings, costs)


# ---- a promise beside the clock ------------------------------------------------------------------


def decoded(
    pair: Pair,
    plan: policy.Policy,
    known: Sequence[Prompt],
    encoded: Sequence[EncodedPrompt],
    max_new_tokens: int,
    repeats: int,
) -> pd.DataFrame:
    """The encoded prompts decoded plainly and by what `plan` gives them, in swapped orders, medians
    of the repeats: prompt_id, domain, setting, tokens, blocks, policy_s, plain_s.
    """
    prompts = {prompt.prompt_id: prompt for prompt in known}
    ids = [one.prompt_id for one in encoded]
    setting = {name: policy.setting_for(plan, prompts[name]) for name in ids}
    parts = {}
    for name in dict.fromkeys(setting.values()):
        own = [one for one in encoded if setting[one.prompt_id] == name]
        shape = {"policy": parse_shape(name)}
        speeds = timing.decoded_speed(pair, own, shape, max_new_tokens, repeats)
        parts[name] = timing.medians(speeds).query("method == 'policy'")
    every = stack(parts, "setting").drop(columns="method")
    every = every.rename(columns={"time_s": "policy_s"})
    return every.set_index("prompt_id").loc[ids].reset_index()


def with_promise(each: pd.DataFrame, prices: Prices) -> pd.DataFrame:
    """`decoded` with the seconds that the same blocks take at the prices the policy was made from
    (promised_s, in units of the prompt's own plain tokens), and `differs`: the replay's blocks or
    tokens are not the decoder's.
    """
    setting = dict(zip(each["prompt_id"], each["setting"], strict=True))
    replayed = prices.judged(setting)
    counts = replayed[["emitted", "target_passes"]].to_numpy()
    decoder = each[["tokens", "blocks"]].to_numpy()
    token_s = each["plain_s"] / each["tokens"]
    return each.assign(
        promised_s=token_s * replayed["cost"].to_numpy(),
        differs=(decoder != counts).any(axis=1),
    )


def kept(ratio: Interval, margin: float, costs: Costs) -> str:
    """What became of a promise, from measured over promised speed: 'kept' if all of the interval
    lies within the margin around 1, 'not kept' if all of it lies outside, on one side, else OPEN;
    `machines.REFUSED` where the prices are not trusted.
    """
    if not machines.is_trusted(costs):
        return machines.REFUSED
    least = 1 - margin
    most = 1 + margin
    if least <= ratio.low and ratio.high <= most:
        return "kept"
    return "not kept" if ratio.high < least or ratio.low > most else OPEN


def draw_check(each: pd.DataFrame) -> figures.Figure:
    """Measured against promised speed-up, a point a prompt. On the line: as promised."""
    figure, axes = figures.subplots(height=3.0)
    for domain, rows in each.groupby("domain", sort=False):
        look = figures.style_of(domain) | {"linestyle": "none", "label": domain}
        promised = rows["plain_s"] / rows["promised_s"]
        measured = rows["plain_s"] / rows["policy_s"]
        axes.plot(promised, measured, **look)
    axes.axline((1, 1), slope=1, color="black", linewidth=0.8, zorder=1)
    axes.set(xlabel="promised speed-up (T = 0)", ylabel="measured speed-up")
    figures.legend_above(figure, axes)
    return figure
