"""Who knows what of a prompt, and what that is worth: every policy on every prompt (notebooks 09,
section 3, and 14), and a policy's promise beside the clock (09, section 2).
"""

from collections.abc import Mapping, Sequence

import pandas as pd

from speclab import stats
from speclab.analysis import choose, policy
from speclab.analysis.choose import PLAIN, UNKNOWN, Choice, Prices, Settings
from speclab.analysis.texts import Text
from speclab.cost import Costs
from speclab.draft import parse_shape
from speclab.estimates import stack
from speclab.models import timing
from speclab.models.pairs import Pair
from speclab.prompts import EncodedPrompt, Prompt
from speclab.show import figures
from speclab.stats import Interval, bounds_of
from speclab.studies.budgets_and_routing import machines

NEVER = "never"
ALWAYS = "always"
ORACLE = "oracle"
PER_DOMAIN = "per-domain"
KEPT = {stats.WITHIN: "kept", stats.ABOVE: "not kept", stats.BELOW: "not kept"}


# ---- every policy --------------------------------------------------------------------------------


def judged_policies(
    prices: Prices, routes: Mapping[str, Mapping[str, str]] = {}
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


def elsewhere(chosen: Mapping[str, str], prices: Prices) -> dict[str, Choice]:
    """What a policy costs prompts that it was not made from, by NEVER, ALWAYS (its default for
    everybody) and PER_DOMAIN (its setting of each domain).

    chosen: domain or UNKNOWN -> setting (`choose.setting_by_domain`); prices: of the other prompts.
    """
    domain = prices.prompts.set_index("prompt_id")["domain"]
    of_each = domain.map(chosen).to_dict()
    settings = {NEVER: PLAIN, ALWAYS: chosen[UNKNOWN], PER_DOMAIN: of_each}
    return {name: Choice(prices.judged(one)) for name, one in settings.items()}


def sampled_prices(sampled: Text, settings: Settings, costs: Costs, max_new_tokens: int) -> Prices:
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
    """The encoded prompts decoded plainly and by what `plan` gives them, in swapped orders: the
    columns of `timing.decoded_speed` (methods "plain" and "policy"), and setting.
    """
    prompts = {prompt.prompt_id: prompt for prompt in known}
    ids = [one.prompt_id for one in encoded]
    setting = {name: policy.setting_for(plan, prompts[name]) for name in ids}
    parts = {}
    for name in dict.fromkeys(setting.values()):
        own = [one for one in encoded if setting[one.prompt_id] == name]
        shape = {"policy": parse_shape(name)}
        parts[name] = timing.decoded_speed(pair, own, shape, max_new_tokens, repeats)
    return stack(parts, "setting")


def with_promise(speeds: pd.DataFrame, prices: Prices) -> pd.DataFrame:
    """The prompts of `decoded`, medians of their repeats: prompt_id, domain, setting, tokens,
    blocks, policy_s, plain_s; promised: the plain tokens that the same blocks cost at the prices
    that the policy was made from, for each token of the text; and `differs`: the replay's blocks or
    tokens are not the decoder's.
    """
    each = timing.medians(speeds).query("method == 'policy'")
    each = each.drop(columns="method").rename(columns={"time_s": "policy_s"})
    chosen = speeds.drop_duplicates("prompt_id").set_index("prompt_id")["setting"]
    replayed = prices.judged(chosen.loc[each["prompt_id"]].to_dict())
    counts = replayed[["emitted", "target_passes"]].to_numpy()
    decoder = each[["tokens", "blocks"]].to_numpy()
    return each.assign(
        setting=replayed["setting"].to_numpy(),
        promised=replayed["cost"].to_numpy() / replayed["emitted"].to_numpy(),
        differs=(decoder != counts).any(axis=1),
    )


def promised_seconds(speeds: pd.DataFrame, each: pd.DataFrame) -> pd.DataFrame:
    """`decoded` with a third method, "promised": the seconds of plain decoding in each repeat times
    what `with_promise` found to be promised.
    """
    promised = each.set_index("prompt_id")["promised"]
    plain = speeds[speeds["method"] == "plain"]
    seconds = plain["time_s"] * plain["prompt_id"].map(promised)
    return pd.concat([speeds, plain.assign(method="promised", time_s=seconds)])


def interval_of(ratio: pd.Series, n_prompts: int) -> Interval:
    """A ratio of columns of `timing.drawn_seconds`, of so many prompts, with its 95 % interval."""
    low, high = bounds_of(ratio.to_numpy()[1:], n_prompts)
    return Interval(ratio.iloc[0], low, high, n_prompts)


def kept(ratio: Interval, margin: float, costs: Costs) -> str:
    """What became of a promise, from measured over promised speed: KEPT, by the interval's verdict
    on the margin around 1; `machines.REFUSED` where the prices are not trusted.
    """
    if not machines.is_trusted(costs):
        return machines.REFUSED
    side = stats.verdict(ratio.low, ratio.high, (1 - margin, 1 + margin))
    return KEPT.get(side, stats.INCONCLUSIVE)


def draw_check(each: pd.DataFrame) -> figures.Figure:
    """Measured against promised speed-up, a point a prompt. On the line: as promised."""
    figure, axes = figures.subplots(height=3.0)
    for domain, rows in each.groupby("domain", sort=False):
        look = figures.style_of(domain) | {"linestyle": "none", "label": domain}
        axes.plot(1 / rows["promised"], rows["plain_s"] / rows["policy_s"], **look)
    axes.axline((1, 1), slope=1, color="black", linewidth=0.8, zorder=1)
    axes.set(xlabel="predicted speed-up (T = 0)", ylabel="measured speed-up")
    figures.legend_above(figure, axes)
    return figure
