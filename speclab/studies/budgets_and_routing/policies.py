"""Who knows what of a prompt, and what that is worth: every policy on every prompt (notebooks 09,
section 3, and 14), and a policy's promise compared with the clock (09, section 2).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from speclab import stats
from speclab.analysis import choose, policy
from speclab.analysis.choose import PLAIN_SETTING, UNKNOWN, Choice, PromptCosts, Settings
from speclab.analysis.texts import Text
from speclab.cost import Costs
from speclab.estimates import stack
from speclab.models import timing
from speclab.models.pairs import Pair
from speclab.prompts import EncodedPrompt, Prompt
from speclab.shapes import parse_shape
from speclab.show import figures
from speclab.studies.budgets_and_routing.recommendations import REFUSED, is_trusted

NEVER = "never"
ALWAYS = "always"
ORACLE = "oracle"
PER_DOMAIN = "per-domain"
KEPT = {stats.WITHIN: "kept", stats.ABOVE: "not kept", stats.BELOW: "not kept"}


# ---- every policy --------------------------------------------------------------------------------


def judged_policies(
    by_prompt: PromptCosts, routes: Mapping[str, Mapping[str, str]] = {}
) -> dict[str, Choice]:
    """What every policy costs every prompt on a machine, settings fitted on other prompts than they
    are judged on and chosen again in every resample (but the oracle's).

    NEVER (plain), ALWAYS (one setting, the best for all prompts), PER_DOMAIN (the true domain's),
    one for each of `routes` (a router's name -> prompt_id -> domain or UNKNOWN), ORACLE (each
    prompt's own best). by_prompt: of settings with plain.
    """
    for_all = dict.fromkeys(by_prompt.prompts["prompt_id"], UNKNOWN)
    choices = {NEVER: Choice(by_prompt.judged(PLAIN_SETTING))}
    for name, taken_for in {ALWAYS: for_all, PER_DOMAIN: None, **routes}.items():
        choices[name] = choose.fit(by_prompt, taken_for)
    choices[ORACLE] = Choice(choose.with_hindsight(by_prompt))
    return choices


def elsewhere(by_domain: Mapping[str, str], by_prompt: PromptCosts) -> dict[str, Choice]:
    """What a policy costs prompts that it was not made from, by NEVER, ALWAYS (its default for
    everybody) and PER_DOMAIN (its setting of each domain).

    by_domain: domain or UNKNOWN -> setting (`choose.setting_by_domain`); by_prompt: of the other
    prompts.
    """
    domain = by_prompt.prompts.set_index("prompt_id")["domain"]
    own = domain.map(by_domain).to_dict()
    settings = {NEVER: PLAIN_SETTING, ALWAYS: by_domain[UNKNOWN], PER_DOMAIN: own}
    return {name: Choice(by_prompt.judged(fixed)) for name, fixed in settings.items()}


def sampled_costs(
    sampled: Text, settings: Settings, costs: Costs, max_new_tokens: int
) -> PromptCosts:
    """Costs on sampled texts, the seeds of a prompt together: chains by the rejection rule, trees
    by point mass.
    """
    counted = []
    for _, text in sampled.trace.groupby("seed"):
        for name, shape in settings.items():
            rule = sampled.chain_rule if shape.is_chain else sampled.rule
            counted.append(choose.block_counts(text, {name: shape}, rule, max_new_tokens))
    return choose.prompt_costs(pd.concat(counted, ignore_index=True), settings, costs)


# ---- a promise and the clock ---------------------------------------------------------------------


def decoded_by(
    pair: Pair,
    plan: policy.Policy,
    known: Sequence[Prompt],
    encoded: Sequence[EncodedPrompt],
    max_new_tokens: int,
    repeats: int,
) -> pd.DataFrame:
    """The encoded prompts decoded plainly and by what `plan` gives them, in swapped orders: the
    columns of `timing.decoded` (methods "plain" and "policy"), and setting.
    """
    prompts = {prompt.prompt_id: prompt for prompt in known}
    by_setting: dict[str, list[EncodedPrompt]] = {}
    for prompt in encoded:
        setting = policy.setting_for(plan, prompts[prompt.prompt_id])
        by_setting.setdefault(setting, []).append(prompt)
    parts = {}
    for setting, own in by_setting.items():
        shapes = {"policy": parse_shape(setting)}
        parts[setting] = timing.decoded_speed(pair, own, shapes, max_new_tokens, repeats)
    return stack(parts, "setting")


def with_promise(speeds: pd.DataFrame, by_prompt: PromptCosts) -> pd.DataFrame:
    """The prompts of `decoded_by`, medians of their repeats: prompt_id, domain, setting, tokens,
    blocks, policy_s, plain_s; promised: the plain tokens that the same blocks cost on the machine
    that the policy was made for, for each token of the text; and `differs`: the replay's blocks or
    tokens are not the decoder's.
    """
    each = timing.medians(speeds).query("method == 'policy'")
    each = each.drop(columns="method").rename(columns={"time_s": "policy_s"})
    chosen = speeds.drop_duplicates("prompt_id").set_index("prompt_id")["setting"]
    replayed = by_prompt.judged(chosen.loc[each["prompt_id"]].to_dict())
    counts = replayed[["emitted", "target_passes"]].to_numpy()
    decoder = each[["tokens", "blocks"]].to_numpy()
    promised = replayed["cost"] / replayed["emitted"]
    return each.assign(
        setting=replayed["setting"].to_numpy(),
        promised=promised.to_numpy(),
        differs=(decoder != counts).any(axis=1),
    )


def promised_seconds(speeds: pd.DataFrame, each: pd.DataFrame) -> pd.DataFrame:
    """`decoded_by` with a third method, "promised": the seconds of plain decoding in each repeat
    times what `with_promise` found to be promised.
    """
    promised = each.set_index("prompt_id")["promised"]
    plain = speeds[speeds["method"] == "plain"]
    seconds = plain["time_s"] * plain["prompt_id"].map(promised)
    return pd.concat([speeds, plain.assign(method="promised", time_s=seconds)])


def kept(ratio: Any, margin: float, costs: Costs) -> str:
    """What became of a promise, from measured over promised speed (anything with .low and .high):
    KEPT, by the interval's verdict on the margin around 1; REFUSED where the costs are not trusted.
    """
    if not is_trusted(costs):
        return REFUSED
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
