"""Who knows what of a prompt, and what that is worth: every policy on every prompt (notebooks 09,
section 3, and 14).
"""

from collections.abc import Mapping

import pandas as pd

from speclab.analysis import choose
from speclab.analysis.choose import PLAIN_SETTING, UNKNOWN, Choice, PromptCosts, Settings
from speclab.analysis.texts import Text
from speclab.cost import Costs

NEVER = "never"
ALWAYS = "always"
ORACLE = "oracle"
PER_DOMAIN = "per-domain"


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
