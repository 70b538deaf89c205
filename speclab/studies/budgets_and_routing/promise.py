"""A policy's predicted speed-up compared with real decoding, plainly and by the policy.

Notebook 09, sections 1 and 2. The only module of this study that decodes.
"""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from speclab import stats
from speclab.analysis import policy, prompt_sets
from speclab.analysis.choose import PromptCosts
from speclab.cost import Costs
from speclab.estimates import Estimates, stack
from speclab.models import timing
from speclab.models.pairs import Pair
from speclab.prompts import EncodedPrompt, Prompt
from speclab.shapes import parse_shape
from speclab.studies.budgets_and_routing import policies
from speclab.studies.budgets_and_routing.recommendations import REFUSED, is_trusted

KEPT, NOT_KEPT = "kept", "not kept"
OUTCOMES = {stats.WITHIN: KEPT, stats.ABOVE: NOT_KEPT, stats.BELOW: NOT_KEPT}


def in_rounds(clock: timing.Measured) -> pd.DataFrame:
    """c and v(4) of each round of timed passes and of both rounds together."""
    rounds = {f"round {n}": timing.costs_of(times) for n, times in enumerate(clock.rounds, 1)}
    rounds["both rounds"] = clock.costs
    rows = [(name, costs.c(), costs.v(4)) for name, costs in rounds.items()]
    return pd.DataFrame(rows, columns=["timed passes", "c", "v(4)"])


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
    blocks, policy_s, plain_s; promised: the predicted cost of the same blocks per token of the
    text, in plainly decoded tokens on the machine that the policy was made for; and `differs`: the
    replay's blocks or tokens are not the decoder's.
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
    """`decoded_by` with a third method, "promised": the seconds of plain decoding in each repeat,
    times the predicted cost per token of `with_promise`.
    """
    promised = each.set_index("prompt_id")["promised"]
    plain = speeds[speeds["method"] == "plain"]
    seconds = plain["time_s"] * plain["prompt_id"].map(promised)
    return pd.concat([speeds, plain.assign(method="promised", time_s=seconds)])


def kept(ratio: Any, margin: float, costs: Costs) -> str:
    """Whether a prediction holds, from measured over predicted speed (anything with .low and
    .high): one of OUTCOMES by the interval's verdict on the margin around 1, or inconclusive;
    REFUSED where timing is unreliable.
    """
    if not is_trusted(costs):
        return REFUSED
    side = stats.verdict(ratio.low, ratio.high, (1 - margin, 1 + margin))
    return OUTCOMES.get(side, stats.INCONCLUSIVE)


def outcome_in_words(outcome: str, margin: float) -> str:
    """What `kept` says of the measured and the predicted speed-up, as a sentence."""
    within = f"within {100 * margin:.0f} %"
    sentences = {
        KEPT: f"Both agree {within}.",
        NOT_KEPT: f"They do not agree {within}.",
        REFUSED: "Timing was unreliable, so there is no verdict on speed.",
    }
    return sentences.get(outcome, f"Whether both agree {within} is open.")


def policy_in_words(measured: Estimates, promised: float, prompts: int, agreement: str) -> str:
    """The measured and the predicted speed-up of the checked prompts, as an answer's first
    sentences; agreement: of `outcome_in_words`.
    """
    return (
        f"On {prompts} prompts a setting per domain decodes {measured.in_units('')} times as fast "
        f"as plain decoding (predicted: {promised:.2f}x). {agreement}"
    )


def gain_in_words(gains: Estimates, other: str | None) -> str:
    """Whether a setting per domain is faster than one for all, as an answer's last sentence;
    other: the set that is named beside the own prompts.
    """
    own = gains.at(set=prompt_sets.OWN)
    there = gains.at(set=other) if other else own
    said = f" Such settings are {policies.faster_or_slower(own)} than one setting"
    if there.verdict() in (own.verdict(), stats.UNDEFINED):
        return f"{said}."
    place = prompt_sets.after_on(other)
    return f"{said}, and {policies.faster_or_slower(there)} on {place}."
