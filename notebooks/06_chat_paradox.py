# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 6. Is chat really the easiest domain, although its entropy is highest?
#
# In the paper chat has the highest mean of min(1, p/q) *and* the highest target entropy, while
# within each domain acceptance falls as entropy rises (notebook 05): easiest where the target is
# most undecided. Is that so on this pair, by what number, and what is left of it when entropy, kind
# of token or the draft's vocabulary is held fixed?
#
# ![Entropy and acceptance of four domains](../figures/smollm/06/entropy-and-acceptance.png)
#
# *Runs on* any machine · *minutes* less than one on 2 cores, once the runs are there · *reads* the
# runs `greedy` (T = 0), `sampled`, `sampled-seed-1` and `sampled-seed-2` (T = 1) and the same
# prompts in the other format (`chat-template`; where the profile gives its prompts in the target's
# chat template, `plain-template`), and those of other prompts, recorded if they are not there ·
# *writes* `figures/<profile>/06/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# the domain that is set against the mean of the others
domain: str = "chat"  # one of code, math, reasoning, chat
# quantile bins of target entropy and of token frequency when domains are matched
bins: int = 8  # 2 to 100

# %% tags=["bootstrap", "hide-input"] jupyter={"source_hidden": true}
# Goes to the root of the kit, which it clones from SPECLAB_REPO where there is none.
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

from speclab import runs, score, stats
from speclab.analysis import prompt_sets, published, significance
from speclab.analysis.texts import SEEDS, Text
from speclab.estimates import Estimates, named, without_interval
from speclab.models.folder import ModelFolder
from speclab.show import notebook, pictures
from speclab.studies import chat_paradox as study

RUNS = ["greedy", "seeds", "other-format", "others", "others-sampled"]

# %%
ctx = notebook.start("06_chat_paradox", profile, overrides)
own_format = ctx.profile.template
greedy = Text.recorded(ctx.profile, "greedy")
other = Text.recorded(ctx.profile, study.OTHERWISE[own_format])
sampled = Text.recorded(ctx.profile, *SEEDS)
ctx.say(notebook.made_with(greedy.pair))

# %%
domains = list(score.domains_in(greedy.nodes, [domain]))
others = ", ".join(name for name in domains if name != domain)

# %%
ctx.say(
    f"{domain} is set against {others}. The prompts of this profile are given "
    f"{study.FORMATS[own_format]}. Texts at T = 1: {sampled.trace['seed'].nunique()} seeds."
)

# %% [markdown]
# ## 1. Is there a paradox on this pair at all?
# Two things make the paradox: of all domains this one has the highest target entropy (in nats), and
# the highest acceptance. How far a domain stands from the others is one number, the **contrast**:
# its value minus the mean of the other domains' values.

# %%
means = greedy.trace.groupby("domain")["hit"].mean()
by_hand = means[domain] - means.drop(domain).mean()

# %%
leads = study.leads([greedy, sampled], domain)
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
# target's greedy text (T = 0), `alpha` on sampled text (T = 1).

# %%
cells = leads.wide("view", "quantity")
shares = leads.frame["share_highest"].to_numpy().reshape(-1, 2)
cells[["highest in entropy", "in acceptance"]] = shares
cells["paradox"] = [study.is_highest(share) for share in shares.min(axis=1)]
ctx.table(cells, "paradox", 2)

# %%
table, table_sampled = (published.comparison("I", text, text.rule) for text in (greedy, sampled))
ctx.export(table.drop(columns=["depth", "bin"]), "table-1")

# %%
printed = table.pivot(index="domain", columns="quantity", values="published").loc[domains]
printed = printed.loc[domain] - printed.drop(index=domain).mean()

# %%
ctx.save(
    study.entropy_and_acceptance(table, table_sampled, domains, domain),
    "entropy-and-acceptance",
    caption="Entropy and acceptance of each domain, all on one scale, in the paper and on this "
    f"pair. In the paper {domain} has {printed['target_entropy_mean']:+.2f} nats and "
    f"{printed['alpha_mean']:+.3f} against the mean of the others; here {at_0} by hit[1] at T = 0 "
    f"and {at_1} by alpha at T = 1.",
)

# %% [markdown]
# ## 2. What kinds of token is each domain made of?
# A domain may be easy because of what it is made of: the second half of a word may be easier to
# guess than the first. Each token of the target's text gets a kind (`speclab.analysis.token_kinds`;
# what begins a word, a name or a keyword is one kind, so that code and prose can be compared), and
# a frequency: its share among the tokens of all *other* prompts. A draft whose output layer is
# trimmed **can never say** the tokens that it lacks (`draft_rank` is then the number of those that
# it has): there q = 0, and every such token is rejected. Kinds with rows of fewer than five prompts
# in a domain have no point.

# %%
tokenizer = ModelFolder.fetched(ctx.profile.target).tokenizer
strings = pictures.strings_of(tokenizer)

# %%
run = runs.load_or_record(ctx.profile.replace(temperature=0.0), "greedy")
can_say = run.manifest["pair"]["draft"]["tokens_said"]
greedy, sampled = (study.with_tokens(text, strings, can_say, bins) for text in (greedy, sampled))

# %%
kinds, kinds_at_1 = study.by_kind(greedy), study.by_kind(sampled)
ctx.export(kinds, "token-kinds-values")
ctx.export(kinds_at_1, "token-kinds-values-sampled")

# %%
of_domains = kinds.without(domain=score.POOLED).frame
panels = {
    "hit[1] (T = 0)": of_domains,
    "alpha (T = 1)": kinds_at_1.without(domain=score.POOLED),
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
    caption="Acceptance of one draft token by kind of token, at T = 0 (greedy text) and T = 1 "
    "(sampled text), and how often the greedy text meets a kind. The most frequent kind in "
    f"{domain} is {most['kind']}: {most['share']:.0%} of the positions.",
)

# %%
positions = greedy.trace.eval("never = 1 - said\nrejected = ~hit")

# %%
asked = {"frequency elsewhere": score.mean_of("frequency")}
if positions["never"].any():
    asked["never said, of the tokens"] = score.mean_of("never")
    asked["never said, of the rejections"] = score.ratio_of("never", "rejected")

# %%
draws = stats.jointly({name: (positions, of) for name, of in asked.items()})
tokens = Estimates(draws.table(), digits=3).at(domain=domains)
ctx.table(tokens.wide("domain", "name"), "tokens")

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
in_bins = positions.groupby(["domain", "entropy_bin"])["hit"].mean().unstack()
how_often = positions["entropy_bin"].value_counts(normalize=True)
fixed = (in_bins * how_often).sum(axis=1, skipna=False)  # at the same mix of entropies

# %%
by_hand = fixed[domain] - fixed.drop(domain).mean()

# %%
tests = study.held_fixed(greedy, sampled, bins)
found = study.explanations(tests, domain)
ctx.export(found, "explanations-values")

# %%
at_equal = found.at(estimator="hit[1]", held_fixed="entropy")
before, after = (at_equal.at(stage=stage).value for stage in ("before", "after"))
if np.isclose(before, at_0.value):  # every domain has all bins
    assert np.isclose(by_hand, after)

# %% [markdown]
# `before` and `after` are contrasts, `change` is their difference on the same resamples. Something
# explains the contrast in part if holding it fixed moves it towards 0.

# %%
ctx.table(found.wide(["estimator", "held_fixed"], "stage"), "explanations", rows=20)
change = found.at(stage="change")
for row in change.rows():
    if row.note:
        ctx.say(f"* {row.estimator}, {row.held_fixed}: {row.note}")

# %%
if change.frame["estimate"].notna().any():
    ctx.plot(
        change.defined(),
        x="held_fixed",
        hue="estimator",
        kind="bars",
        y=f"change of the contrast of {domain} (acceptance)",
        x_label="held fixed",
        height=2.6,
        reference=0,
        slug="explanations",
        caption=f"How the contrast of {domain} changes when one thing is held fixed. Before, it is "
        f"{as_published} by `published_alpha`, {at_0} by `hit[1]` and "
        f"{at_1} by `alpha`. A bar on the other side of 0 takes a part of it away.",
    )

# %% [markdown]
# ## 4. The same prompts in the other format
# The paper gave a chat-tuned target its prompts as plain text. The same prompts in the target's
# chat template make another text, and the draft was trained on only one of the two formats. The
# difference is template minus plain, paired by prompt; its interval resamples the pairs.

# %%
plain, template = (greedy, other) if own_format == "none" else (other, greedy)
frames = {
    "published_alpha": (template.nodes, plain.nodes, score.published_alpha),
    "hit[1]": (template.trace, plain.trace, plain.acceptance),
}

# %%
paired = {name: significance.paired_by_domain(*one) for name, one in frames.items()}
formats = Estimates.stacked(paired, "estimator").without(domain=score.POOLED)
ctx.export(formats, "template")

# %%
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
both = {"plain text": plain, "the template": template}
questions = {name: text.accepted() for name, text in both.items()}
in_format = study.contrasts(questions, domain, "format")
ctx.say(f"The contrast of {domain} in `hit[1]`: {in_format.listed('format')}.")

# %% [markdown]
# ## 5. Other prompts
# The same contrasts on the project's problems **without wrapper**, without the words around each
# problem of math and reasoning (the draft of `smollm` was trained with them), and on a **second
# prompt set**, written as people write (`data/second_prompts`; its chat is writing, roleplay,
# extraction, humanities and other languages; once more without the last). `hit[1]` and entropy are
# measured at T = 0, `alpha` at T = 1, there with one text per prompt on every set, all of one seed.
# One domain may lead the others by far, so `hit[1]` is compared once more without the domain that
# is the highest of them on our own prompts.

# %%
cold, warm = (prompt_sets.texts(ctx.profile, own) for own in (greedy, sampled))
easiest = means.drop(domain).idxmax()
rest = [name for name in domains if name not in (domain, easiest)]
beside = f"hit[1], without {easiest}"
questions = {
    "hit[1]": (cold, greedy.acceptance, ""),
    beside: (cold, greedy.acceptance, easiest),
    "alpha": (warm, sampled.acceptance, ""),
    "entropy (nats)": (cold, score.mean_of("target_entropy"), ""),
}

# %%
parts = []
for quantity, (sets, number, but) in questions.items():
    asked = {(name, quantity): (text.trace, number) for name, text in sets.items()}
    found = study.contrasts(asked, domain, ["set", "quantity"], but)
    parts.append(found.frame)

# %%
elsewhere = pd.concat(parts).rename(columns={"share_highest": "highest"}).assign(domain=domain)
elsewhere = Estimates(elsewhere.reset_index(drop=True), digits=3)
ctx.export(elsewhere, "other-prompts")
second = cold[prompt_sets.SECOND].trace.groupby("domain")["prompt_id"].nunique()
notebook.few_prompts(dict(second), f", {prompt_sets.SECOND}")

# %%
ctx.plot(
    elsewhere.defined(),
    x="set",
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
both = elsewhere.at(quantity=["hit[1]", "entropy (nats)"]).frame
least = both.groupby("set", sort=False)["highest"].min().map(study.is_highest)
said = {
    "yes": "There is a paradox",
    "no": "There is no paradox",
    "inconclusive": "Whether there is a paradox is inconclusive",
}
parts = [f"{said[name]} on {named(list(own.index))}" for name, own in least.groupby(least)]
ctx.say(f"{'. '.join(parts)}.")

# %%
points = 100 * at_0.frame[["estimate", "low", "high"]]
english = elsewhere.at(set=prompt_sets.ENGLISH, quantity=beside)
words = {stats.ABOVE: "easier than", stats.BELOW: "harder than"}

# %%
fixed = change.at(estimator="hit[1]").defined().frame["held_fixed"]
changes = {what: study.staged(tests["hit[1]", what], domain)[1]["change"] for what in fixed}
changes = pd.DataFrame(changes)
most = study.moves_most(changes, draws.prompts.fewest)

# %% [markdown]
# Is what changes `hit[1]` most significantly ahead of the others? We take the difference between
# two changes in every resample of the prompts:

# %%
if len(changes.columns) > 1:
    sizes = changes * np.sign(changes.iloc[0])
    ahead = sizes.iloc[0].idxmax()
    lead = sizes.drop(columns=ahead).rsub(sizes[ahead], axis=0).sort_values(0, axis=1)
    lead = Estimates(draws.table(dict(lead), "held_fixed"), 3)
    ctx.say(f"The change by {ahead} minus the change by {lead.listed('held_fixed')}.")

# %%
verdict = study.is_highest(at_0.row.share_highest).capitalize()
in_english = ""
if rest:
    easier = words.get(english.verdict(), "not significantly different from")
    in_english = f"On the second set's English prompts {domain} is {easier} {named(rest)}. "
ctx.answer(
    f"{verdict}: {domain}'s acceptance minus the others' mean is {Estimates(points, 0)} points "
    f"(T = 0). {in_english}{most}"
)

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
# 2. Run the notebook with `domain = "code"`. Is there a "code paradox"?
#
# <details><summary>What happens</summary>
# The sentences are the same with other numbers: a contrast can be asked of any domain. The four
# contrasts of one estimator add up to 0, so some domain is always above and another below; an
# interval says whether that means anything.</details>
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
