"""A policy's promise compared with the clock: its prompts decoded plainly and by the policy.

Notebook 09, sections 1 and 2. The only module of this study that decodes.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from speclab import stats
from speclab.analysis import policy
from speclab.analysis.choose import PromptCosts
from speclab.cost import Costs, disturbed
from speclab.estimates import stack
from speclab.models import timing
from speclab.models.pairs import Pair
from speclab.prompts import EncodedPrompt, Prompt
from speclab.shapes import parse_shape
from speclab.studies.budgets_and_routing.recommendations import REFUSED, is_trusted

KEPT = {stats.WITHIN: "kept", stats.ABOVE: "not kept", stats.BELOW: "not kept"}


def in_words(clock: timing.Measured) -> str:
    """The costs of both rounds together, with c and v(4) of each round, and whether they may be
    trusted.
    """
    costs = clock.costs
    rounds = [timing.costs_of(times) for times in clock.rounds]
    c = " and ".join(f"{one.c():.3f}" for one in rounds)
    v = " and ".join(f"{one.v(4):.2f}" for one in rounds)
    loop = f"o = {costs.overhead:.2f} for a chain and {costs.loop(False):.2f} for a tree"
    return (
        f"Measured here: c = {costs.c():.3f} (in the two rounds {c}), v(4) = {costs.v(4):.2f} "
        f"({v}), {loop}. "
        f"The price of a block is uncertain by {costs.drift:.0%}. {disturbed(costs)}"
    )


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
