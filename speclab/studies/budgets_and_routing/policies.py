"""Policies that know more or less of a prompt, and the speed of each on every prompt (notebooks 09,
section 3, and 14).
"""

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from speclab.analysis import choose
from speclab.analysis.choose import PLAIN_SETTING, UNKNOWN, Choice, PromptCosts, Settings
from speclab.analysis.texts import Text
from speclab.cost import Costs
from speclab.estimates import Estimates
from speclab.score import POOLED
from speclab.stats import ABOVE, BELOW, NUMBERS, Draws

NEVER = "never"
ALWAYS = "always"
ORACLE = "oracle"
PER_DOMAIN = "per-domain"
CLASSIFIER = "classifier"
IN_WORDS = {
    NEVER: "no drafting",
    ALWAYS: "one setting for all",
    PER_DOMAIN: "a setting per domain",
    CLASSIFIER: "the classifier",
    ORACLE: "the oracle",
}
EVERYONE = "all prompts"  # in figures


def judged_policies(
    by_prompt: PromptCosts, routes: Mapping[str, Mapping[str, str]] = {}
) -> dict[str, Choice]:
    """What every policy costs every prompt on a machine. Settings are fitted on other prompts than
    those that judge them, and chosen again in every resample (except the oracle's).

    NEVER (plain), ALWAYS (one setting, the best for all prompts), PER_DOMAIN (the best of the true
    domain), one policy for each of `routes` (a router's name -> prompt_id -> domain or UNKNOWN),
    ORACLE (each prompt's own best). by_prompt: of settings with plain.
    """
    for_all = dict.fromkeys(by_prompt.prompts["prompt_id"], UNKNOWN)
    choices = {NEVER: Choice(by_prompt.judged(PLAIN_SETTING))}
    for name, taken_for in {ALWAYS: for_all, PER_DOMAIN: None, **routes}.items():
        choices[name] = choose.fit(by_prompt, taken_for)
    choices[ORACLE] = Choice(choose.with_hindsight(by_prompt))
    return choices


def elsewhere(by_domain: Mapping[str, str], by_prompt: PromptCosts) -> dict[str, Choice]:
    """What a policy costs prompts that it was not made from, by NEVER, ALWAYS (its default for all
    prompts) and PER_DOMAIN (its setting of each domain).

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


# ---- one setting for all, or one per domain ------------------------------------------------------


def gains_over_always(speeds: Draws) -> Estimates:
    """By how much each policy is faster than ALWAYS, as a share: policy, domain, estimate, …"""
    always = speeds[ALWAYS]
    names = [name for name in speeds.values if name not in (NEVER, ALWAYS)]
    others = {name: speeds[name] / always - 1 for name in names}
    return speeds.table(others, "policy").in_units("%", 1)


def drawn_gains(gains: Estimates) -> Estimates:
    """`gains_over_always` as a figure shows them: in percent, with the names of the page, each
    domain and then all prompts together.
    """
    rows = with_names(gains.without(domain="all")).frame
    domains = rows["domain"].replace(POOLED, EVERYONE)
    percent = 100 * rows[NUMBERS]
    return Estimates(rows.assign(domain=domains, **percent))


def with_names(numbers: Estimates) -> Estimates:
    """The same numbers with the names that policies have on the page."""
    rows = numbers.frame
    return replace(numbers, frame=rows.assign(policy=rows["policy"].replace(IN_WORDS)))


def faster_or_slower(gain: Estimates) -> str:
    """The verdict on one of `gains_over_always`, before 'than'."""
    words = {ABOVE: "significantly faster", BELOW: "significantly slower"}
    return words.get(gain.verdict(), "not significantly faster")
