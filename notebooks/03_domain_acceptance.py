# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 3. Does acceptance depend on the domain?
#
# A draft is good for speed if the target accepts what it proposes. The paper reports one number for
# that, alpha, by domain, and its domains hardly differ. But no lossless algorithm accepts tokens at
# that rate. We compare it with estimators that are exact for a decoder; both the level and the
# ranking of the domains can differ. A domain here is a set of prompts, so section 5 asks which of
# the findings hold on other prompts, where the profile names some.
#
# ![Each domain under each estimator, and its rank](../figures/smollm/03/ladder.png)
#
# *Runs on* any machine · *minutes* less than one on 2 cores · *reads* the run `greedy`
# (temperature T = 0), the runs `sampled`, `sampled-seed-1` and `sampled-seed-2` (the profile's
# temperature, by default 1), and at both temperatures those of the other prompts that the profile
# names (`other_prompts`), recorded if they are not there · *writes* `figures/<profile>/03/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# two domains differ significantly when Holm's p-value is below this
level: float = 0.05  # 0.0001 to 0.5

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
from dataclasses import replace

import numpy as np
import pandas as pd

from speclab import score, stats
from speclab.analysis import prompt_sets, published, significance, variance_components
from speclab.analysis.texts import SEEDS, Text
from speclab.estimates import Estimates, counted, named, stack, without_interval
from speclab.score import ALL, POOLED
from speclab.show import drawings, notebook
from speclab.studies import domain_acceptance as study

RUNS = ["greedy", "seeds", "others", "others-sampled"]

# %%
ctx = notebook.start("03_domain_acceptance", profile, overrides)
greedy = Text.recorded(ctx.profile, "greedy")
sampled = Text.recorded(ctx.profile, *SEEDS)
nodes, trace = greedy.nodes, greedy.trace
domains = list(score.domains_in(trace))
judged = stats.judged_domains(trace)  # with prompts enough to be compared
ctx.say(notebook.made_with(greedy.pair))

# %%
# the ladder of estimators, by domain: explained in section 2, used in the others
questions = study.questions(greedy, sampled, ctx.profile.tree)
rungs = study.ladder(questions)
by_domain = rungs.at(domain=domains)

# %% [markdown]
# ## 1. The paper's Tables I to III, on this pair
# A draft model proposes tokens and a target model checks them. At every position of the target's
# own text the recorder hung a small draft tree (at the paper's settings 2 + 4 + 2 nodes) and stored
# for each node the draft's probability q and the target's probability p of its token. The
# temperature T says how a model picks a token: T = 0 always takes the most likely one (greedy),
# above 0 it is drawn: at 1 with the model's own probabilities, below 1 the likely ones more often.
#
# The paper calls min(1, p/q) the acceptance of a node and averages it over all nodes of a domain
# (Table I). Table III multiplies the means of the depths, and Table II adds up the products (the
# paper's E[L]):

# %%
ratio = np.minimum(1, nodes["target_prob"].astype(float) / nodes["draft_prob"])
table_1 = ratio.groupby(nodes["domain"]).mean()

# %%
by_depth = ratio.groupby([nodes["domain"], nodes["depth"]]).mean().unstack("depth")
table_3 = by_depth.cumprod(axis=1)
table_2 = table_3.sum(axis=1)

# %%
for name in domains:
    own = nodes[nodes["domain"] == name]
    assert np.isclose(table_1[name], score.published_alpha(own))
    assert np.allclose(table_3.loc[name], score.published_chain(own))
    assert np.isclose(table_2[name], score.published_length(own))

# %% [markdown]
# The tables show this procedure on our pair and, as `corrected`, the estimator that is exact at the
# text's temperature (here T = 0): what a decoder gets accepted of one draft token (`hit[1]`), of a
# path, of a tree. Where the prompts have the paper's domains, its own numbers (Llama-2-7B and
# TinyLlama) are in the column `published`; the pairs differ, so the columns are not expected to
# agree in level. `all` is the mean of the domains, each of which counts once. Intervals are 95 %:
# whole prompts are drawn with replacement, as many as there are, 2,000 times (by hand in notebook
# 11). Table III is in `03/table-3.csv`.

# %%
tables = {
    name: published.comparison(name, greedy, tree=ctx.profile.tree) for name in ("I", "II", "III")
}
for name, table in tables.items():
    ctx.export(table.dropna(axis=1, how="all"), f"table-{len(name)}")

# %%
means = tables["I"][tables["I"]["quantity"] == "alpha_mean"]
notebook.show_table(published.in_cells(means))
notebook.show_table(published.in_cells(tables["II"]))

# %% [markdown]
# ## 2. The ladder of estimators
# Nothing is ever accepted in the published procedure: min(1, p/q) is the acceptance probability of
# a token that was *drawn* from q, and the tree's tokens were not drawn, they are the draft's two
# best. What would be accepted depends on the algorithm:
#
# | name | accepted share or number, exact for |
# | --- | --- |
# | `published_alpha` | no lossless algorithm: mean of min(1, p/q) over all nodes |
# | `best_path_ratio` | no lossless algorithm: the same mean over the draft's best tokens |
# | `hit[k]` | T = 0: the target's own token is among the draft's k best |
# | `alpha` | T > 0: one token drawn from the draft, sum over tokens of min(p, q) |
# | `top_mass[k]` | T > 0: the draft's k best tokens, as a tree has them (point-mass rule) |
# | `published_length` | no lossless algorithm: the paper's E[L] |
# | `block_efficiency` | tokens per target pass of the recorded tree, over the blocks it visits |
#
# The *greedy rule* (T = 0) accepts a token that is the target's most likely one, the *point-mass
# rule* (T > 0) a given token with the target's probability p of it. Each rule is shown on the text
# that it would meet: the T = 0 rows on the greedy texts, the others on three sampled texts per
# prompt (nodes were recorded along the first of them only, so `published_alpha` of sampled text
# comes from one seed). The three that are taught here, by hand:

# %%
hit_1 = (trace["draft_rank"] == 0).groupby(trace["domain"]).mean()
hit_2 = (trace["draft_rank"] < 2).groupby(trace["domain"]).mean()

# %%
alpha = sampled.trace["overlap"].astype(float).groupby(sampled.trace["domain"]).mean()

# %%
by_hand = {f"hit[{k}], {greedy.name}": own for k, own in ((1, hit_1), (2, hit_2))}
by_hand[f"alpha, {sampled.name}"] = alpha
for name, own in by_hand.items():
    assert np.allclose(own[domains], by_domain.at(name=name).frame["estimate"])
assert (hit_1 <= hit_2).all()  # two children never catch less than one

# %%
ctx.export(rungs.frame.drop(columns="name"), "ladder-values")
ctx.table(by_domain, "ladder-levels", rows=60, cells=by_domain.wide("name", "domain"))

# %% [markdown]
# ## 3. Which domains differ?
# For every pair of domains: the difference with its interval, and a *permutation test*: if the
# domain did not matter, any other way to share the same prompts out between the two would do as
# well, so the p-value is the share of such ways (10,000 at random) whose difference is as large.
# With several pairs, tests at 5 % each would give a false alarm more often than 5 %; *Holm's
# correction* raises the p-values so that the chance of any false alarm among the pairs stays at the
# chosen level, for each estimator. "Significantly different" refers to this test. Domains that do
# not differ significantly share a rank in the figure. A domain with fewer than 5 prompts is shown
# and not tested.

# %%
shares = replace(rungs.without(estimator=study.LENGTHS), digits=2)
levels = f"The level runs from {shares.span()}."
untested = [domain for domain in domains if domain not in judged]
if untested:
    levels += f" Not tested, with fewer than {stats.MIN_PROMPTS} prompts: {named(untested)}."
compared = ctx.compares(judged)
if compared:
    tested = {name: significance.differences(*question) for name, question in questions.items()}
    tested = significance.with_signs(stack(tested, "name"), level)
    ctx.export(tested, "differences-tested")
    signs = study.wide_signs(tested)
    orders = study.orders(by_domain.at(domain=judged), signs)
    conflict = study.conflict(signs)

# %%
if compared:
    ctx.draw(
        drawings.draw_ladder,
        study.with_ranks(by_domain, study.shared_ranks(tested)),
        "ladder",
        last=study.LENGTHS,
        grey=study.OF_NO_LOSSLESS,
        caption=f"Acceptance of {counted(len(domains), 'domain')} under each estimator, with 95 % "
        "intervals (left), and their ranks (right). Domains that do not differ significantly share "
        f"a rank. {levels} {conflict}",
    )
else:
    ctx.plot(
        by_domain.without(estimator=study.LENGTHS),
        x="name",
        kind="bars",
        limits=(0, 1),
        x_label="",
        y="share of tokens",
        slug="ladder",
        caption=f"Acceptance under each estimator, with 95 % intervals. {levels}",
    )

# %%
if compared:
    groups = orders.groupby(orders, sort=False).groups
    listed = [f"**{text}** (`{'`, `'.join(names)}`)" for text, names in groups.items()]
    ctx.say(f"**Order** (`≈`: no significant difference): {'; '.join(listed)}. {conflict}")

# %%
if compared:
    main = study.main_rungs(tested)
    significant = main.groupby("name")["sign"].agg(np.count_nonzero)
    counts = [str(count) for count in sorted(set(significant))]
    every, drawn = main["pair"].nunique(), study.widest_pairs(main)
    verdicts = drawn.rename(columns={"difference": "estimate"})
    verdicts["verdict"] = np.where(drawn["sign"] != 0, "significant", "not significant")
    verdicts = Estimates(verdicts[["name", "pair", "verdict", "estimate", "low", "high"]], 3)

# %%
if compared:
    shown = drawn["pair"].nunique()
    left_out = f" Drawn: the {shown} pairs that differ most under `hit[1]`." * (shown < every)
    ctx.plot(
        verdicts,
        x="pair",
        hue="verdict",
        columns="name",
        kind="bars",
        share_y=False,
        reference=0,
        height=max(2.4, 0.2 * shown),
        x_label="",
        y="difference",
        slug="differences",
        caption="Difference of each pair of domains under four estimators (shares of tokens; "
        "tokens per target pass on the right) with 95 % intervals. Significant pairs per "
        f"estimator: {named(counts)} of {every}.{left_out}",
    )

# %% [markdown]
# A table of thousands of nodes invites an interval for independent nodes, mean ± 1.96 sd/√n. But
# the nodes of one text share its difficulty, so the unit of an interval has to be the prompt:

# %%
ends = by_domain.at(name=f"published_alpha, {greedy.name}").frame.set_index("domain")
over_prompts = (ends["high"] - ends["low"]) / 2
over_nodes = 1.96 * ratio.groupby(nodes["domain"]).sem()
wider = (over_prompts / over_nodes).max()
ctx.say(
    f"Resampling prompts gives an interval up to {wider:.1f} times as wide as the interval for "
    "independent nodes."
)

# %% [markdown]
# ## 4. How much do prompts of one domain differ?
# A domain's mean says little about one of its prompts. One dot is one prompt: at T = 0 the share of
# its text that the draft's best token hits, above T = 0 the `alpha` of its three sampled texts.

# %%
panels, names = {}, [f"{text.acceptance.name}, {text.name}" for text in (greedy, sampled)]
for name, text in zip(names, (greedy, sampled), strict=True):
    dots = text.trace.groupby(["domain", "prompt_id"], observed=True, sort=False)[text.value]
    dots = dots.mean().astype(float).rename("value").reset_index()
    panels[text.label] = dots, by_domain.at(name=name).frame

# %%
ctx.strips(
    panels,
    "value",
    "acceptance of one drafted token",
    "prompts",
    caption="Acceptance of one drafted token in each prompt (hit[1] on the left, alpha on the "
    "right). Dark: the domain's own number with its 95 % interval.",
)

# %% [markdown]
# Why do texts differ? For three reasons, whose variances add up:
#
# * **domain**: the domains have different levels;
# * **prompt**: prompts differ from the level of their domain;
# * **draw**: another sampled text of the same prompt is accepted more or less often.
#
# Three texts per prompt show the draw. A prompt's mean still holds a third of it, so this is
# subtracted from the variance between prompts. A domain's level is a mean of a few prompts, so the
# levels differ a little by chance (`noise`), and this is subtracted from the variance between
# domains. Every domain counts equally, however many prompts it has. The domains are just these, no
# sample of others, so the variance of their levels is their mean squared distance from the mean
# (divided by the number of domains, not by one less, which would give the domain a larger share).
# Domains with fewer than 5 prompts are left out.

# %%
rows = sampled.trace[sampled.trace["domain"].isin(judged)]
keys = [rows[name] for name in ("domain", "prompt_id", "seed")]
texts = rows["overlap"].astype(float).groupby(keys).mean().unstack()  # a row per prompt
draw = texts.var(axis=1).groupby("domain").mean()

# %%
prompts = texts.mean(axis=1).groupby("domain")
within = prompts.var() - draw / texts.shape[1]
noise = prompts.var() / prompts.size()
between = prompts.mean().var() - noise.mean()
between *= (1 - 1 / len(judged)) / (1 - 1 / len(texts))  # of just these domains

# %%
by_hand = {"domain": between, "prompt": within.mean(), "draw": draw.mean()}
all_three = sum(by_hand.values())
if ctx.compares(judged):
    of_texts = variance_components.shares(sampled.trace, "overlap")
    for name, variance in by_hand.items():
        if all_three > 0 and name in of_texts:
            assert np.isclose(np.clip(variance / all_three, 0, 1), of_texts[name].estimate)

# %% [markdown]
# On each set of prompts (section 5 says which there are): a text at T = 0 is always the same, so
# nothing is drawn. Of sampled text only our own prompts have three each. The other sets have one,
# so there the draw counts as the prompt's; our own prompts with the one text of the same seed are
# in the table too.

# %%
at_each = {text.name: prompt_sets.texts(ctx.profile, text) for text in (greedy, sampled)}
sets = dict(zip(names, at_each.values(), strict=True))
others = [which for which in sets[names[0]] if which != prompt_sets.OWN]
three_texts = f"{prompt_sets.OWN}, three texts"

# %%
if compared:
    parts = {
        (text.name, which): variance_components.shares(rows, text.value)
        for text in (greedy, sampled)
        for which, (rows, _) in prompt_sets.comparable(at_each[text.name], Text.accepted).items()
    }
    parts[sampled.name, three_texts] = of_texts
    parts = {key: pd.DataFrame(map(vars, part.values()), [*part]) for key, part in parts.items()}
    parts = stack(parts, ["temperature", "set", "part"])
    reasons = Estimates(parts.drop(columns="n_prompts"))
    ctx.table(
        reasons, "why-texts-differ", rows=60, cells=reasons.wide(["temperature", "set"], "part")
    )

# %%
in_dots = draw.mean() / texts.shape[1]  # of the mean of three texts
by_chance = in_dots / (in_dots + max(within.mean(), 0)) if in_dots else 0
ctx.say(
    "In a dot of the figure, the mean of three texts, the draw makes "
    f"{by_chance:.0%} of what differs within a domain at {sampled.name}."
)

# %%
if compared:
    of_three = reasons.at(temperature=sampled.name, set=three_texts).listed("part")
    of_greedy = reasons.at(temperature=greedy.name, part="domain").listed("set")
    ctx.say(
        f"**What differs between texts at {sampled.name}** (shares of the variance): {of_three}. "
        f"The domain's share at {greedy.name}: {of_greedy}."
    )

# %% [markdown]
# ## 5. Does this hold on other prompts?
# Prompts have a form, and a draft may have been trained on it. If a finding belongs to the
# *domain*, it should appear again on other prompts of the same domains. The profile names such sets
# (`other_prompts`):

# %%
ctx.say(prompt_sets.described(ctx.profile))

# %%
# `Text.accepted` asks for `hit[1]` at T = 0 and for `alpha` of sampled text
if others:
    draws = {name: prompt_sets.asked(texts, Text.accepted) for name, texts in sets.items()}
    by_set = {name: prompt_sets.by_set(each) for name, each in draws.items()}
    by_set = Estimates.stacked(by_set, "name")
    for which, rows in by_set.at(name=names[0]).without(set=prompt_sets.OWN).groups("set"):
        sizes = rows.frame.set_index("domain")["n_prompts"]
        notebook.few_prompts(sizes.to_dict(), f", {which}")

# %%
if others:
    levels = "; ".join(f"{name}: {part.span()}" for name, part in by_set.groups("name"))
    ctx.plot(
        by_set,
        x="set",
        columns="name",
        kind="bars",
        height=min(max(2.4, 0.12 * len(domains) * len(by_set.frame["set"].unique())), 7),
        x_label="",
        y="accepted (share of tokens)",
        slug="other-prompts",
        caption="Acceptance by domain on each set of prompts, where its texts are new, with 95 % "
        f"intervals. {levels}.",
    )

# %% [markdown]
# ### The order, in three differences
# On our own prompts the domains have an order. It says three differences: the highest domain minus
# the mean of the others (`lead`), the highest minus the lowest (`spread`), and the mean of those
# between minus the lowest (`last`); of two domains there is one difference. At each temperature the
# domains are named once, on our own prompts, and then asked of every set that has all of them. (A
# maximum minus a minimum would be chosen again in every resample, and could never be 0.) `change`
# is the difference minus our own prompts' difference. `power` is the probability that a test on a
# set's prompts, with their spread, finds a difference as large as on our own prompts. In a mean of
# domains each domain counts once.

# %%
if ctx.compares(judged):
    contrasts = {
        name: prompt_sets.contrasts_by_set(texts, Text.accepted) for name, texts in sets.items()
    }
    contrasts = Estimates.stacked(contrasts, "name", digits=3)
    ctx.export(contrasts, "contrasts")

# %%
if compared:
    first, *middle, last = hit_1[judged].sort_values(ascending=False)
    by_hand = {prompt_sets.SPREAD: first - last}
    if middle:
        by_hand[prompt_sets.LEAD] = first - np.mean([*middle, last])
        by_hand[prompt_sets.LAST] = np.mean(middle) - last
    for role, difference in by_hand.items():
        own = contrasts.at(name=names[0], set=prompt_sets.OWN, role=role)
        assert np.isclose(difference, own.value)

# %%
if compared:
    keys = ["name", "contrast"]
    numbers = {"difference": contrasts}
    if others:
        numbers["change"] = Estimates.of(contrasts.frame, "change", [*keys, "set"], digits=3)
        power = without_interval(contrasts.frame, contrasts.frame["power"])
        numbers["power"] = Estimates(power)
    numbers = Estimates.stacked(numbers, "number", digits=3)
    wide = numbers.wide(["number", *keys], "set")
    ctx.table(numbers, "other-contrasts", rows=18, cells=wide)

# %% [markdown]
# Where there are other prompts, a table has each pair of domains by the permutation test of section
# 3 on each set. Of the pairs that differ significantly on our own prompts, `compared` have new
# texts in the set, `same` are significant there in the same direction and `reversed` in the
# opposite one. `expected` is how many the set's tests find on average if its differences are as
# large as on our own prompts.

# %%
if others and compared:
    pairs = {
        name: prompt_sets.pairs_of_domains(texts, Text.accepted, level)
        for name, texts in sets.items()
    }
    carried = stack({name: prompt_sets.carried(tests) for name, tests in pairs.items()}, "name")
    ctx.export(stack(pairs, "acceptance"), "other-differences")
    ctx.table(carried, "other-orders", 1)

# %%
if prompt_sets.UNWRAPPED in others:
    # what the words around a problem do: with them minus without, on the same problems
    words = prompt_sets.effect_of_words(sets[names[0]], Text.accepted)
    ctx.export(words, "words-around")
    ctx.say(
        f"The words around a problem change `hit[1]` (T = 0, paired by prompt): {words.listed()}."
    )

# %%
if prompt_sets.SECOND in others:
    second = sets[names[0]][prompt_sets.SECOND]
    rows = second.trace.assign(domain=prompt_sets.category_of(second.trace))
    categories = Estimates(stats.by_domain(rows, second.acceptance), 3)
    categories = categories.without(domain=[ALL, POOLED])
    ctx.export(categories, "categories")
    ctx.say(f"`hit[1]` in the categories of the second prompt set: {categories.listed()}.")

# %%
elsewhere = "No other prompts were tested."
if others and compared:
    turned = int(carried["reversed"].sum())
    how_many = counted(turned, "significant difference") if turned else "No significant difference"
    elsewhere = f"{how_many} {'are' if turned > 1 else 'is'} reversed."
    if contrasts.frame["set"].nunique() == 1:
        elsewhere = "No other prompt set has all these domains."

# %%
if compared:
    headline = f"{study.on_other_prompts(contrasts.frame)} {elsewhere}"
    ctx.record(on_other_prompts=headline)
    differs = tested[tested["name"] == names[0]]["sign"].any()
    ctx.answer(f"{'Yes' if differs else 'No significant difference'}. {headline}")
else:
    levels = [by_domain.at(name=name, domain=judged) for name in names]
    ctx.answer(
        f"Only one domain has prompts enough, {judged[0]}: nothing to compare. "
        f"`{names[0]}` is {levels[0]}, `{names[1]}` is {levels[1]}."
    )

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# 1. By hand: the draft's two best tokens have q = 0.5 and 0.4, the target gives them p = 0.6 and
#    0.3. What is `published_alpha` of these two nodes, what is accepted at T = 0, and what at T = 1
#    when both are offered as children?
#
# <details><summary>What happens</summary>
# min(1, 0.6/0.5) = 1 and min(1, 0.3/0.4) = 0.75, so the mean is 0.875. At T = 0 the target's best
# token is among the two for certain (no other token can have more than 0.1), so one of them is
# accepted. At T = 1 two children catch top_mass[2] = 0.6 + 0.3 = 0.9. Three numbers, one
# tree.</details>
#
# 2. Record nothing new, only count every node twice: `twice = pd.concat([nodes, nodes])`. What
#    happens to the interval by nodes, and what to `stats.by_domain(twice, score.published_alpha)`?
#
# <details><summary>What happens</summary>
# The interval by nodes shrinks by √2, as if the copies were news. The interval by prompts stays
# the same: its unit is the prompt, and there are no more prompts than before.</details>
#
# 3. In section 4, leave out the last text of each prompt: `rows = sampled.trace`, then
#    `rows[rows["seed"] != rows["seed"].iloc[-1]]`. What happens to the three shares?
#
# <details><summary>What happens</summary>
# `variance_components.shares` subtracts the draw whatever the number of texts, so both estimate the
# same three shares. Two texts say less about the draw than three, so the shares move, within what
# their intervals allow.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: the sentences above. The level of 'acceptance' belongs to an estimator, and so does
#   what can be said of the domains; intervals belong to prompts, not to nodes. A set's order of
#   the domains need not hold on other prompts: the differences of section 5 say what does.
# * What this does not show: other pairs, and nothing of a domain at large, which other authors
#   would ask in other words; longer texts; speed, which needs measured costs (notebook 10). Rows of
#   different temperatures come from different texts, so what lies between them is not the effect of
#   a rule alone.
# * Next: notebook 04 asks whether acceptance rises with depth, notebook 06 takes up the domain with
#   the highest entropy, and notebook 13 asks how sure all this is: power, coverage, loops, seeds,
#   lengths.
