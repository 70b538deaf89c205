# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 6. Is the domain with the highest entropy also accepted the most?
#
# In the paper the domain with the highest target entropy also has the highest mean of min(1, p/q),
# while within each domain acceptance falls as entropy rises (notebook 05). So the draft seems to do
# best where the target is most undecided. Is that so on this pair, by which number, and how much is
# left of it when entropy, kind of token or the draft's vocabulary is held fixed?
#
# ![Entropy and acceptance of each domain](../figures/smollm/06/entropy-and-acceptance.png)
#
# *Runs on* any machine · *minutes* less than one on 2 cores, once the runs are there · *reads* the
# runs `greedy` (temperature T = 0), `sampled`, `sampled-seed-1` and `sampled-seed-2` (the profile's
# temperature, by default 1; three seeds), the same prompts in the other format (`chat-template`;
# where the profile gives its prompts in the target's chat template, `plain-template`), and at both
# temperatures the other prompts that the profile names (`other_prompts`), recorded if they are not
# there · *writes* `figures/<profile>/06/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# the domain that is set against the mean of the others; "": the one of highest target entropy
domain: str = ""  # any
# quantile bins of target entropy and of token frequency when domains are matched
bins: int = 8  # 2 to 100

# %% tags=["bootstrap", "hide-input"] jupyter={"source_hidden": true}
# Goes to the root of the kit. If the kit is missing, it is cloned from SPECLAB_REPO.
# On Colab and Kaggle it installs missing packages: `python -m speclab hosted install`.
import os, pathlib, subprocess, sys

places = (here := pathlib.Path.cwd(), *here.parents, here / "speclab-kit")
kit = next((place for place in places if (place / "speclab/ops").is_dir()), places[-1])
if not kit.exists() and (address := os.environ.get("SPECLAB_REPO")):
    subprocess.run(["git", "clone", "--depth=1", address, kit])
if not (kit / "speclab/ops").is_dir():
    sys.exit(f"{kit} holds no kit: clone it, or set SPECLAB_REPO to its address")
sys.path.insert(0, str(kit))
from speclab.ops import hosted

hosted.prepare()

# %% jupyter={"source_hidden": true}
import numpy as np
import pandas as pd

from speclab import score, stats
from speclab.analysis import prompt_sets, published, significance
from speclab.analysis.texts import SEEDS, Text
from speclab.estimates import Estimates, named, without_interval
from speclab.models.folder import ModelFolder
from speclab.show import drawings, notebook, pictures
from speclab.studies import entropy_paradox as study

RUNS = ["greedy", "seeds", "other-format", "others", "others-sampled"]

# %%
ctx = notebook.start("06_entropy_paradox", profile, overrides)
own_format = ctx.profile.template
greedy = Text.recorded(ctx.profile, "greedy")
other, why_not = study.in_other_format(ctx.profile)
sampled = Text.recorded(ctx.profile, *SEEDS)
ctx.say(notebook.made_with(greedy.pair))

# %%
domains = list(score.domains_in(greedy.trace))
compared = stats.judged_domains(greedy.trace)
if few := [name for name in domains if name not in compared]:
    ctx.say(
        f"Not compared, since an interval needs at least {stats.MIN_PROMPTS} prompts: {named(few)}."
    )

# %%
# what compares domains is asked of these texts
cold, warm = (study.of_domains(text, compared) for text in (greedy, sampled))
chosen = "as the parameter says" if domain else "the domain of the highest target entropy"
domain = study.asked_domain(domain, cold)
others = [name for name in compared if name != domain]
if others:
    ctx.say(f"**{domain}** ({chosen}) is set against {named(others)}.")

# %%
ctx.say(
    f"The prompts of this profile are given {study.FORMATS[own_format]}. Texts at {sampled.name}: "
    f"{sampled.trace['seed'].nunique()} seeds."
)

# %% [markdown]
# ## 1. Is there a paradox on this pair at all?
# We call it a paradox if of all domains one has both the highest target entropy (in nats) and the
# highest acceptance. How far a domain stands from the others is one number, the **contrast**: its
# value minus the mean of the other domains' values.

# %%
means = cold.trace.groupby("domain")["hit"].mean()
by_hand = means[domain] - means.drop(domain).mean()

# %%
if ctx.compares(compared):
    leads = study.leads([cold, warm], domain)
    acceptance = leads.at(quantity="acceptance")
    as_published, at_0, at_1 = (part for _, part in acceptance.groups("view"))
    assert np.isclose(by_hand, at_0.value)

# %% [markdown]
# Its 95 % interval, as every interval here, **resamples prompts**: as many prompts of each domain
# as there are get drawn again, some twice and some never, 2,000 times. There is a paradox if the
# domain is highest in both, entropy and acceptance, in more than 97.5 % of these resamples. There
# is none if it is highest in one of them in fewer than 2.5 %. Otherwise the result is inconclusive.
#
# Acceptance is asked in three ways: by the paper's procedure over all nodes of the draft trees
# (`published_alpha`, no decoder's acceptance), and exactly, of one draft token: `hit[1]` on the
# target's greedy text (T = 0), `alpha` on sampled text (the profile's temperature).

# %%
if others:
    cells = leads.wide("view", "quantity")
    shares = leads.frame["share_highest"].to_numpy().reshape(-1, 2)
    cells[["highest in entropy", "in acceptance"]] = shares
    cells["paradox"] = [study.is_highest(share) for share in shares.min(axis=1)]
    ctx.table(leads, "paradox", 2, cells=cells)

# %%
tables = [published.comparison("I", text, text.rule) for text in (greedy, sampled)]
in_paper = tables[0]["published"].notna().any()
ctx.export(tables[0].dropna(axis=1, how="all"), "table-1")

# %%
drawn = "Entropy and acceptance of each domain, all on one scale"
if others:
    drawn += (
        f". The contrast of {domain} in acceptance: {at_0} by {greedy.acceptance.name} at "
        f"{greedy.name} and {at_1} by {sampled.acceptance.name} at {sampled.name}"
    )
if others and in_paper:
    printed = tables[0].pivot(index="domain", columns="quantity", values="published")
    printed = printed.loc[compared]
    printed = printed.loc[domain] - printed.drop(index=domain).mean()
    drawn += (
        f". In the paper it is {printed['alpha_mean']:+.3f}, and in entropy "
        f"{printed['target_entropy_mean']:+.2f} nats"
    )

# %%
ctx.draw(
    drawings.draw_entropy_and_acceptance,
    study.entropy_and_acceptance(*tables, [greedy, sampled]),
    "entropy-and-acceptance",
    domain=domain,
    caption=f"{drawn}.",
)

# %% [markdown]
# ## 2. What kinds of token is each domain made of?
# A domain may be easy because of what it is made of: the second half of a word may be easier to
# guess than the first. Each token of the target's text gets a kind (`speclab.analysis.token_kinds`;
# what begins a word, a name or a keyword is one kind, so that programs and prose can be compared),
# and a frequency: its share among the tokens of all *other* prompts. A draft whose output layer is
# trimmed **can never say** the tokens that it lacks (`draft_rank` is then the number of those that
# it has): there q = 0, and every such token is rejected. Kinds with rows of fewer than five prompts
# in a domain have no point.

# %%
tokenizer = ModelFolder.fetched(ctx.profile.target, weights=False).tokenizer
strings = pictures.strings_of(tokenizer)

# %%
can_say = greedy.pair["draft"]["tokens_said"]
greedy, sampled = (study.with_tokens(text, strings, can_say, bins) for text in (greedy, sampled))
cold, warm = (study.of_domains(text, compared) for text in (greedy, sampled))

# %%
kinds, kinds_sampled = study.by_kind(greedy), study.by_kind(sampled)
ctx.export(kinds, "token-kinds-values")
ctx.export(kinds_sampled, "token-kinds-values-sampled")

# %%
of_domains = kinds.without(domain=score.POOLED).frame
panels = {
    f"{greedy.acceptance.name} ({greedy.name})": of_domains,
    f"{sampled.acceptance.name} ({sampled.name})": kinds_sampled.without(domain=score.POOLED),
    "share of positions": without_interval(of_domains, of_domains["share"]),
}
most = of_domains.query("domain == @domain").nlargest(1, "share").iloc[0]

# %%
ctx.plot(
    Estimates.stacked(panels, "panel"),
    x="kind",
    rows="panel",
    kind="points",
    y="",
    share_y=False,
    height=1.7,
    slug="token-kinds",
    caption=f"Acceptance of one draft token by kind of token, at {greedy.name} (greedy text) and "
    f"{sampled.name} (sampled text), and how often the greedy text meets a kind. The most frequent "
    f"kind in {domain} is {most['kind']}: {most['share']:.0%} of the positions.",
)

# %%
greedy, cold = (
    text.with_columns(never=1 - text.trace["said"], rejected=~text.trace["hit"])
    for text in (greedy, cold)
)

# %%
asked = {"frequency elsewhere": score.mean_of("frequency")}
if greedy.trace["never"].any():
    asked["never said, of the tokens"] = score.mean_of("never")
    asked["never said, of the rejections"] = score.ratio_of("never", "rejected")

# %%
draws = stats.jointly({name: (greedy.trace, of) for name, of in asked.items()})
tokens = Estimates(draws.table(), digits=3).at(domain=domains)
ctx.table(tokens, "tokens", rows=60, cells=tokens.wide("domain", "name"))

# %% [markdown]
# ## 3. What explains the contrast? One thing at a time held fixed
# | held fixed | how |
# | --- | --- |
# | estimator | `hit[1]` instead of `published_alpha` (T = 0) |
# | rank 0 only | `published_alpha` over the draft's best children only |
# | entropy, token kind, token frequency | *direct standardisation*, below |
# | tokens never said | accepted tokens per token *that the draft can say* |
#
# **Direct standardisation** asks what a domain's mean would be if it had another mix: its mean in
# each bin of entropy, say, weighted not by how often the domain meets that bin but by how often all
# domains together do. Then the domains differ in the means within bins only. Bins are *quantile
# bins*: they hold equally many positions. Matching needs levels that every domain has (rows of five
# prompts or more); `before` is computed on the same rows, so that a change is not one of rows. By
# hand, for entropy:

# %%
in_bins = cold.trace.groupby(["domain", "entropy_bin"])["hit"].mean().unstack()
how_often = cold.trace["entropy_bin"].value_counts(normalize=True)
fixed = (in_bins * how_often).sum(axis=1, skipna=False)  # at the same mix of entropies

# %%
by_hand = fixed[domain] - fixed.drop(domain).mean()

# %%
if ctx.compares(compared):
    tests = study.held_fixed(cold, warm, bins)
    found = study.explanations(tests, domain)
    at_equal = found.at(estimator=cold.acceptance.name, held_fixed="entropy")
    before, after = (at_equal.at(stage=stage).value for stage in ("before", "after"))
    if np.isclose(before, at_0.value):  # every domain has all bins
        assert np.isclose(by_hand, after)

# %% [markdown]
# `before` and `after` are contrasts, `change` is their difference on the same resamples. Something
# explains the contrast in part if holding it fixed moves it towards 0.

# %%
if others:
    ctx.table(
        found, "explanations", rows=60, cells=found.wide(["estimator", "held_fixed"], "stage")
    )
    change = found.at(stage="change")
    for row in change.rows():
        if row.note:
            ctx.say(f"* {row.estimator}, {row.held_fixed}: {row.note}")

# %%
held_fixed = [*change.known["held_fixed"].unique()] if others else []
if held_fixed:
    ctx.plot(
        found,
        x="held_fixed",
        only={"stage": ["change"], "held_fixed": held_fixed},
        hue="estimator",
        kind="bars",
        y=f"change of the contrast of {domain} (acceptance)",
        x_label="held fixed",
        height=2.6,
        reference=0,
        slug="explanations",
        caption=f"How the contrast of {domain} changes when one thing is held fixed. Before, it is "
        f"{as_published} by `published_alpha`, {at_0} by `{greedy.acceptance.name}` and "
        f"{at_1} by `{sampled.acceptance.name}`. A bar on the other side of 0 takes a part of it "
        "away.",
    )

# %% [markdown]
# ## 4. The same prompts in the other format
# The paper gave an instruction-tuned target plain text. The same prompts in the target's
# chat template make another text, and a draft that was trained on only one of the two formats may
# do better there. The difference is template minus plain, paired by prompt; its interval resamples
# the pairs.

# %%
if other is None:
    in_other = study.FORMATS["chat" if own_format == "none" else "none"]
    ctx.say(f"These prompts cannot be given {in_other}: {why_not}.")
else:
    plain, template = (greedy, other) if own_format == "none" else (other, greedy)
    frames = {
        "published_alpha": (template.nodes, plain.nodes, score.published_alpha),
        "hit[1]": (template.trace, plain.trace, plain.acceptance),
    }
    paired = {name: significance.paired_by_domain(*one) for name, one in frames.items()}
    formats = Estimates.stacked(paired, "estimator").without(domain=score.POOLED)
    ctx.export(formats, "template")

# %%
if other:
    ctx.plot(
        formats,
        x="domain",
        hue="estimator",
        kind="points",
        y="acceptance,\nchat template − plain text",
        reference=0,
        slug="template",
        caption="What the chat template changes at T = 0, paired by prompt. "
        f"{formats.sentence(within='estimator')}.",
    )

# %%
if other and others:
    both = {"plain text": plain, "the template": template}
    questions = {name: study.of_domains(text, compared).accepted() for name, text in both.items()}
    in_format = study.contrasts(questions, domain, "format")
    ctx.say(f"The contrast of {domain} in `hit[1]`: {in_format.listed('format')}.")

# %% [markdown]
# ## 5. Other prompts
# The same contrasts on the other prompts that the profile names (`other_prompts`). `hit[1]` and
# entropy are measured at T = 0, `alpha` at the profile's temperature. One domain may lead the
# others by far, so `hit[1]` is compared once more without the domain that is the highest of them on
# our own prompts.

# %%
ctx.say(prompt_sets.described(ctx.profile))
of_greedy, of_sampled = (prompt_sets.texts(ctx.profile, own) for own in (cold, warm))
sets = [name for name in of_greedy if name != prompt_sets.OWN]
for name in sets:
    prompts = of_greedy[name].trace.groupby("domain", sort=False)["prompt_id"].nunique()
    notebook.few_prompts(prompts, f", {name}")

# %%
rest = others
questions = {"hit[1]": (of_greedy, greedy.acceptance, "")}
if len(others) > 1:
    easiest = means.drop(domain).idxmax()
    rest = [name for name in others if name != easiest]
    questions[f"hit[1], without {easiest}"] = (of_greedy, greedy.acceptance, easiest)
questions["alpha"] = (of_sampled, sampled.acceptance, "")
questions["entropy (nats)"] = (of_greedy, score.mean_of("target_entropy"), "")

# %%
if others and sets:
    elsewhere = study.on_sets(questions, domain)
    ctx.export(elsewhere, "other-prompts")

# %%
if others and sets:
    ctx.plot(
        elsewhere,
        x="set",
        only={"set": [*elsewhere.known["set"].unique()]},
        columns="quantity",
        kind="bars",
        x_label="",
        y=f"contrast of {domain}",
        share_y=False,
        height=1.6,
        reference=0,
        slug="other-prompts",
        caption=f"{domain} minus the mean of the other domains on each set of prompts, with 95 % "
        f"intervals. By hit[1]: {elsewhere.at(quantity='hit[1]').listed('set')}.",
    )

# %%
said = {
    "yes": "There is a paradox",
    "no": "There is no paradox",
    "inconclusive": "Whether there is a paradox is inconclusive",
}
if others and sets:
    both = elsewhere.at(quantity=["hit[1]", "entropy (nats)"]).frame
    least = both.groupby("set", sort=False)["highest"].min().map(study.is_highest)
    parts = [f"{said[name]} on {named(list(own.index))}" for name, own in least.groupby(least)]
    ctx.say(f"{'. '.join(parts)}.")

# %% [markdown]
# Is what changes `hit[1]` most significantly ahead of the others? We take the difference between
# two changes in every resample of the prompts:

# %%
if others:
    hit = greedy.acceptance.name
    fixed = change.at(estimator=hit).known["held_fixed"]
    changes = {what: study.staged(tests[hit, what], domain)[1]["change"] for what in fixed}
    changes = pd.DataFrame(changes)
    of_hits = stats.jointly({hit: cold.accepted()})
    most = study.moves_most(changes, of_hits.prompts.fewest)

# %%
if others and len(changes.columns) > 1:
    sizes = changes * np.sign(changes.iloc[0])
    ahead = sizes.iloc[0].idxmax()
    lead = sizes.drop(columns=ahead).rsub(sizes[ahead], axis=0).sort_values(0, axis=1)
    lead = Estimates(of_hits.table(dict(lead), "held_fixed"), 3)
    ctx.say(f"The change by {ahead} minus the change by {lead.listed('held_fixed')}.")

# %%
words = {stats.ABOVE: "easier than", stats.BELOW: "harder than"}
there = "No other prompts were tested. "
if others and sets:
    there = "No other set has prompts enough. "
    *_, asked = (name for name in questions if name.startswith("hit[1]"))
    for row in elsewhere.at(quantity=asked).without(set=prompt_sets.OWN).rows():
        easier = words.get(stats.verdict(row.low, row.high), "not significantly different from")
        there = f"On other prompts ({row.set}) {domain} is {easier} {named(rest)}. "

# %%
if others:
    verdict = study.is_highest(at_0.row.share_highest).capitalize()
    points = Estimates(100 * at_0.frame[["estimate", "low", "high"]], digits=0)
    ctx.answer(
        f"{verdict}: acceptance in {domain} minus the mean of the others is {points} points "
        f"({greedy.name}). {there}{most}"
    )
else:
    one = f"these prompts have one domain, {domain}"
    only = one if len(domains) == 1 else f"only {domain} has {stats.MIN_PROMPTS} prompts or more"
    changed = ""
    if other:
        of_domain = formats.at(estimator="hit[1]", domain=domain)
        changed = f" The chat template changes its `hit[1]` by {of_domain} ({greedy.name})."
    ctx.answer(f"There is nothing to compare: {only}.{changed}")

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# 1. By hand: domain A has 3 sure positions with overlap 0.9 and 1 unsure one with 0.5; domain B has
#    1 sure one with 0.8 and 3 unsure ones with 0.4. Which domain is easier, by how much, and what
#    is left if both had half of each?
#
# <details><summary>What happens</summary>
# A: (3 · 0.9 + 0.5)/4 = 0.8; B: (0.8 + 3 · 0.4)/4 = 0.5; A leads by 0.3. At equal halves A has 0.7
# and B 0.6: a lead of 0.1. Two thirds of the lead was the mix of entropies, one third is something
# else.</details>
#
# 2. Run the notebook with another of your domains, as `domain = "…"`. Is it a paradox too?
#
# <details><summary>What happens</summary>
# The sentences are the same with other numbers: a contrast can be asked of any domain. The
# contrasts of one estimator add up to 0 over the domains, so some domain is always above and
# another below. An interval says whether that means anything.</details>
#
# 3. Match on entropy with `bins = 2`, then with `bins = 20`. What happens to `after`?
#
# <details><summary>What happens</summary>
# Two bins match little: within a half, domains still differ in entropy, so `after` mostly stays
# nearer to `before`. Twenty match closely, but bins that a domain lacks drop out, with their rows.
# That is the price of matching.</details>

# %% [markdown]
# ## What this does not show, what is next
# * A cause. Things are held fixed one at a time; entropy, kind and frequency of a token go
#   together, so their changes must not be added. The target's own text decides both entropy and
#   token: matching on them also removes what the domain does *through* them. Only the tokens never
#   said are rejected for certain because of the draft's head.
# * A domain. These are prompt sets; sections 4 and 5 show how much the form and the prompts move.
#   Intervals are 95 % each, not all at once.
# * Next: notebook 07 looks at single rejections and their causes; notebook 11 takes the paper's
#   claims one by one.
