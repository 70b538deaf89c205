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
# Drafting saves time if the target accepts what the draft proposes. The paper reports one number
# for this (here `published_alpha`) by domain, and its domains hardly differ. But no lossless
# algorithm accepts tokens with these probabilities. We compare it with estimators that are exact
# for a decoder. Both the level and the order of the domains can depend on the definition. A domain
# here is a set of prompts, so section 5 asks which findings hold on other prompts, if the profile
# names any.
#
# ![Acceptance of each domain under each definition](../figures/smollm/03/ladder.png)
#
# *Runs on* any machine · *time* under a minute on 2 cores · *reads* the run `greedy`
# (temperature T = 0), the runs `sampled`, `sampled-seed-1` and `sampled-seed-2` (the profile's
# temperature, by default 1), and the runs of the profile's other prompts (`other_prompts`) at both
# temperatures, which are recorded if they are missing · *writes* `figures/<profile>/03/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, e.g. {"prompts_per_domain": 10}
# two domains differ significantly if Holm's p-value is below this
level: float = 0.05  # 0.0001 to 0.5

# %% tags=["bootstrap", "hide-input"] jupyter={"source_hidden": true}
# Goes to the root of the kit: around this folder, or where this kernel has it. If the kit is
# missing, it is cloned from SPECLAB_REPO.
# On Colab and Kaggle it installs missing packages: `python -m speclab hosted install`.
import importlib.util, os, pathlib, subprocess, sys

places = [here := pathlib.Path.cwd(), *here.parents, here / "speclab-kit"]
if origin := getattr(importlib.util.find_spec("speclab"), "origin", None):
    places.append(pathlib.Path(origin).parents[1])
kit = next((place for place in places if (place / "speclab/ops").is_dir()), places[-1])
if not kit.exists() and (address := os.environ.get("SPECLAB_REPO")):
    subprocess.run(["git", "clone", "--depth=1", address, kit])
if not (kit / "speclab/ops").is_dir():
    sys.exit(f"{kit} holds no kit: clone it, or set SPECLAB_REPO to its address")
if str(kit) not in sys.path:
    sys.path.insert(0, str(kit))
from speclab.ops import hosted

hosted.prepare()

# %% jupyter={"source_hidden": true}
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
judged = stats.judged_domains(trace)  # with enough prompts to be compared
ctx.say(notebook.made_with(greedy.pair))

# %%
# the definitions of acceptance by domain: explained in section 2, used in the others
questions = study.questions(greedy, sampled, ctx.profile.tree)
rungs = study.ladder(questions)
by_domain = rungs.at(domain=domains)

# %% [markdown]
# ## 1. The paper's Tables I to III, on this pair
# The recorder hung a small draft tree on every position of the target's own text. At the paper's
# settings the tree has 2 + 4 + 2 nodes. For each node we stored the draft's probability q and the
# target's probability p of its token. The temperature T says how a model picks a token. At T = 0 a
# model always takes its most likely token (greedy). Above 0 the token is drawn, and at T = 1 with
# the model's own probabilities.
#
# The paper calls min(1, p/q) the acceptance of a node. Table I averages it over all nodes of a
# domain. Table III multiplies the means of the depths, and Table II adds up these products (the
# paper's E[L]). (The notebook checks that the kit's functions agree with this calculation.)

# %% tags=["by-hand"]
p, q = nodes["target_prob"].astype(float), nodes["draft_prob"]
ratio = np.minimum(1, p / q)  # the paper's acceptance of a node
table_1 = ratio.groupby(nodes["domain"]).mean()

# %% tags=["by-hand"]
by_depth = ratio.groupby([nodes["domain"], nodes["depth"]]).mean().unstack("depth")
table_3 = by_depth.cumprod(axis=1)  # the product of the means down to each depth
table_2 = table_3.sum(axis=1)  # E[L]

# %%
for name in domains:
    own = nodes[nodes["domain"] == name]
    assert np.isclose(table_1[name], score.published_alpha(own))
    assert np.allclose(table_3.loc[name], score.published_chain(own))
    assert np.isclose(table_2[name], score.published_length(own))

# %% [markdown]
# Tables I and II follow, and Table III is in `03/table-3.csv`. The column `ours, as published`
# repeats the paper's procedure on our pair. The column `corrected` is what a decoder accepts at
# T = 0, for one drafted token (`hit[1]`) or for a tree (`mean_accepted`). The column `published`
# has the paper's numbers (Llama-2-7B and TinyLlama), if the prompts have the paper's domains. The
# pairs differ, so the levels need not agree.
#
# The row `all` is the mean of the domains, in which every domain counts once. The 95 % intervals
# resample whole prompts 2,000 times. Notebook 11 computes such an interval by hand.

# %%
tables = {
    name: published.comparison(name, greedy, tree=ctx.profile.tree) for name in ("I", "II", "III")
}
for name, table in tables.items():
    ctx.export(table.dropna(axis=1, how="all"), f"table-{len(name)}")

# %%
means = tables["I"][tables["I"]["quantity"] == "alpha_mean"]
for table in (means, tables["II"]):
    notebook.show_table(published.in_cells(table).drop(columns="estimator"))

# %% [markdown]
# ## 2. What acceptance can mean
# The published procedure never accepts or rejects a token. min(1, p/q) is the acceptance
# probability of a token that was *drawn* from q. The tree's tokens were not drawn, because they are
# the draft's two best. What a decoder accepts depends on its verification rule and on what it
# drafts:
#
# | name | in the figure | meaning |
# | --- | --- | --- |
# | `hit[k]` | k best tokens, T = 0 | exact: the target's token is among the draft's k best |
# | `alpha` | drawn token, T > 0 | exact for a token drawn from the draft: sum of min(p, q) |
# | `top_mass[k]` | k best tokens, T > 0 | exact for the draft's k best tokens: sum of their p |
# | `block_efficiency` | recorded tree | exact: tokens per target pass of a decoder with this tree |
# | `published_alpha` | all nodes of the tree | no decoder: mean of min(1, p/q) |
# | `best_path_ratio` | best path of the tree | no decoder: the same over the best path (ours) |
# | `published_length` | expected length E[L] | no decoder: the paper's Table II |
#
# At T = 0 the *greedy rule* accepts a token if it is the target's most likely token. At T > 0 the
# *point-mass rule* accepts a given token with the target's probability p of it. Each number comes
# from the text that a decoder meets at that temperature: the greedy texts, or three sampled texts
# per prompt. Trees were recorded along the first sampled text only, so `published_alpha` at T > 0
# comes from one seed. Three of the definitions are easy to compute by hand.

# %% tags=["by-hand"]
is_best = trace["draft_rank"] == 0  # the target's token is the draft's best
in_best_two = trace["draft_rank"] < 2
hit_1 = is_best.groupby(trace["domain"]).mean()
hit_2 = in_best_two.groupby(trace["domain"]).mean()

# %% tags=["by-hand"]
overlap = sampled.trace["overlap"].astype(float)  # sum of min(p, q) at each position
alpha = overlap.groupby(sampled.trace["domain"]).mean()

# %%
by_hand = {f"hit[{k}], {greedy.name}": own for k, own in ((1, hit_1), (2, hit_2))}
by_hand[f"alpha, {sampled.name}"] = alpha
for name, own in by_hand.items():
    assert np.allclose(own[domains], by_domain.at(name=name).frame["estimate"])
assert (hit_1 <= hit_2).all()  # two best tokens never accept less than one

# %%
ctx.export(rungs.frame.drop(columns="name"), "ladder-values")
ctx.table(by_domain, "ladder-levels", most=60, cells=by_domain.wide("name", "domain"))

# %% [markdown]
# ## 3. Which domains differ?
# For every pair of domains we compute the difference, its interval, and a *permutation test*. If
# the domain did not matter, any other split of the same prompts into two groups would do as well.
# The p-value is the share of such splits (10,000 at random) with a difference at least as large.
# With several pairs, tests at 5 % each would give a false alarm more often than 5 %. *Holm's
# correction* raises the p-values, so that the probability of any false alarm among the pairs stays
# at the chosen level. It is applied for each definition. "Significantly different" refers to this
# test. Domains with fewer than 5 prompts are shown and not tested.

# %%
untested = [domain for domain in domains if domain not in judged]
compared = ctx.compares(judged)
if compared:
    tested = {name: significance.differences(*question) for name, question in questions.items()}
    tested = significance.with_signs(stack(tested, "name"), level)
    ctx.export(tested, "differences-tested")
    signs = study.wide_signs(tested)
    orders = study.orders(by_domain.at(domain=judged), signs)

# %%
of_one = by_domain.at(domain=domains[0]).without(estimator=study.LENGTHS).in_units("%").span()
ctx.draw(
    drawings.draw_blocks,
    study.in_blocks(by_domain),
    "ladder",
    title=f"In {domains[0]} acceptance is {of_one}, depending on its definition",
    percent=list(study.SHARES),
    limits={axis: [0, 1] for axis in study.SHARES} | {axis: [0, None] for axis in study.TOKENS},
    caption=f"Acceptance of {counted(len(domains), 'domain')} under the definitions of section 2, "
    f"at {greedy.name} and {sampled.name}. The title is about shares of tokens. Bars: 95 % "
    "intervals."
    + (f" We do not test {named(untested)} (fewer than 5 prompts)." if untested else ""),
)

# %%
if compared:
    counts = orders.value_counts(sort=False)
    notebook.show_table(counts.rename_axis("order").rename("definitions").reset_index())
    ctx.say(
        "In the table, A > B means that A is significantly higher than B. A ≈ B means that the "
        f"difference is not significant. {study.conflict(signs)}"
    )

# %%
if compared:
    main = study.main_rungs(tested)
    drawn = study.widest_pairs(main).rename(columns={"difference": "estimate"})
    verdict = np.where(drawn["sign"] != 0, "significant", "not significant")
    drawn = drawn.assign(verdict=verdict, name=study.in_figures(drawn["name"]))
    drawn = Estimates(drawn[["name", "pair", "verdict", "estimate", "low", "high"]], 3)

# %%
if compared:
    every, shown = main["pair"].nunique(), drawn.frame["pair"].nunique()
    left_out = f" Only the {shown} pairs that differ most by `hit[1]` are drawn." * (shown < every)
    ctx.plot(
        drawn,
        x="pair",
        hue="verdict",
        columns="name",
        kind="bars",
        share_y=False,
        reference=0,
        reference_name="no difference",
        height=max(2.4, 0.2 * shown),
        x_label="",
        y="difference",
        slug="differences",
        title=study.how_many_differ(main),
        caption="First domain minus second, under four definitions. Panels 1 to 3 have shares of "
        "tokens, panel 4 tokens per target pass. Bars: 95 % intervals. Colours: the permutation "
        f"test with Holm's correction.{left_out}",
    )

# %% [markdown]
# Why are our intervals so wide, with thousands of nodes? An interval for independent nodes would be
# the mean ± 1.96 sd/√n. But the nodes of one text share its difficulty, so the unit of an interval
# has to be the prompt.

# %% tags=["by-hand"]
of_prompts = by_domain.at(name=f"published_alpha, {greedy.name}").frame.set_index("domain")
over_prompts = (of_prompts["high"] - of_prompts["low"]) / 2  # half the width of our interval
over_nodes = 1.96 * ratio.groupby(nodes["domain"]).sem()  # as if nodes were independent
wider = (over_prompts / over_nodes).max()

# %%
ctx.say(
    f"An interval over prompts is up to {wider:.1f} times as wide as the interval for independent "
    "nodes."
)

# %% [markdown]
# ## 4. How much do prompts of one domain differ?
# A domain's mean says little about one of its prompts. At T = 0 we measure a prompt by `hit[1]`,
# the share of its text that the draft's best token hits. Above T = 0 we use the `alpha` of its
# three sampled texts.

# %%
panels, names = {}, [f"{text.acceptance.name}, {text.name}" for text in (greedy, sampled)]
for name, text in zip(names, (greedy, sampled), strict=True):
    dots = text.trace.groupby(["domain", "prompt_id"], observed=True, sort=False)[text.value]
    dots = dots.mean().astype(float).rename("value").reset_index()
    panels[text.name] = dots, by_domain.at(name=name).frame

# %%
of_prompts = panels[greedy.name][0].groupby("domain")["value"].agg(["min", "max"])
widest = (of_prompts["max"] - of_prompts["min"]).idxmax()
least, most = 100 * of_prompts.loc[widest]
ctx.strips(
    panels,
    "value",
    "share of tokens accepted",
    "prompts",
    title=f"Within {widest}, prompts have an acceptance of {least:.0f} to {most:.0f} % (T = 0)",
    caption="Each dot is the acceptance of one drafted token for one prompt (`hit[1]` at T = 0, "
    f"`alpha` at {sampled.name}). Dark: the domain's number with its 95 % interval.",
)

# %% [markdown]
# Why do texts differ? For three reasons, whose variances add up.
#
# * **domain**: domains have different levels.
# * **prompt**: prompts differ from the level of their domain.
# * **draw**: two sampled texts of the same prompt differ by chance.
#
# The three texts of each prompt show the variance of the draw. The mean of a prompt still contains
# a third of it, so we subtract a third from the variance between prompts. The level of a domain is
# a mean of few prompts, so the levels also differ by chance (`noise`), which we subtract, too.
# Every domain counts equally, however many prompts it has. We study these n domains and not a
# sample of domains, so we divide by n, not by n − 1. Domains with fewer than 5 prompts are left
# out.

# %% tags=["by-hand"]
rows = sampled.trace[sampled.trace["domain"].isin(judged)]
keys = [rows[name] for name in ("domain", "prompt_id", "seed")]
texts = rows["overlap"].astype(float).groupby(keys).mean().unstack()  # a row is a prompt
draw = texts.var(axis=1).groupby("domain").mean()

# %% tags=["by-hand"]
prompts = texts.mean(axis=1).groupby("domain")
within = prompts.var() - draw / texts.shape[1]
noise = prompts.var() / prompts.size()
between = prompts.mean().var() - noise.mean()
between *= (1 - 1 / len(judged)) / (1 - 1 / len(texts))  # these domains are all there are

# %%
by_hand = {"domain": between, "prompt": within.mean(), "draw": draw.mean()}
all_three = sum(by_hand.values())
if compared:
    of_texts = variance_components.shares(sampled.trace, "overlap")
    for name, variance in by_hand.items():
        if all_three > 0 and name in of_texts:
            assert np.isclose(np.clip(variance / all_three, 0, 1), of_texts[name].estimate)

# %% [markdown]
# The table has the shares of the variance on each set of prompts (section 5 describes the sets). At
# T = 0 a prompt always has the same text, so there is no draw. Only our own prompts have three
# sampled texts each. With one text per prompt the draw counts as `prompt`, so the table also has
# our own prompts with one text.

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
    reasons = Estimates(parts.drop(columns="n_prompts")).in_units("%")
    ctx.table(
        reasons, "why-texts-differ", most=60, cells=reasons.wide(["temperature", "set"], "part")
    )

# %%
if compared:
    of_domain = reasons.at(part="domain", set=[prompt_sets.OWN, three_texts])
    cold, hot = of_domain.at(temperature=greedy.name), of_domain.at(set=three_texts)
    ctx.say(
        f"The domain explains {cold} of the variance between texts at {greedy.name}, and {hot} at "
        f"{sampled.name} (our own prompts)."
    )

# %%
in_dots = draw.mean() / texts.shape[1]  # of the mean of three texts
by_chance = in_dots / (in_dots + max(within.mean(), 0)) if in_dots else 0
ctx.say(
    f"A dot of the figure at {sampled.name} is the mean of three texts. Within a domain, "
    f"{100 * by_chance:.0f} % of the variance between these dots comes from the draw, and the rest "
    "from the prompts."
)

# %% [markdown]
# ## 5. Does this hold on other prompts?
# Prompts have a format, and a draft may have been trained on it. If a finding belongs to the
# *domain*, it should appear again on other prompts of the same domains. The profile names such sets
# (`other_prompts`).

# %%
ctx.say(prompt_sets.described(ctx.profile))

# %% [markdown]
# ### The order of the domains, in three differences
# On our own prompts the domains have an order. Three differences describe it:
#
# * the highest domain minus the mean of the others
# * the highest domain minus the lowest
# * the mean of the domains in between minus the lowest
#
# At each temperature our own prompts decide which domain is the highest and which the lowest. We
# then test the same differences on every set that has all of these domains. (If every resample
# chose its own maximum and minimum, their difference could never be 0.)

# %% tags=["by-hand"]
if compared:
    first, *middle, last = hit_1[judged].sort_values(ascending=False)
    by_hand = {prompt_sets.SPREAD: first - last}
    if middle:
        by_hand[prompt_sets.LEAD] = first - np.mean([*middle, last])
        by_hand[prompt_sets.LAST] = np.mean(middle) - last

# %%
if compared:
    contrasts = {
        name: prompt_sets.contrasts_by_set(texts, Text.accepted) for name, texts in sets.items()
    }
    contrasts = Estimates.stacked(contrasts, "name", digits=3)
    ctx.export(contrasts, "contrasts")
    for role, difference in by_hand.items():
        own = contrasts.at(name=names[0], set=prompt_sets.OWN, role=role)
        assert np.isclose(difference, own.value)

# %%
# `Text.accepted` gives `hit[1]` at T = 0 and `alpha` of sampled text
if others:
    draws = {name: prompt_sets.asked(texts, Text.accepted) for name, texts in sets.items()}
    by_set = {name: prompt_sets.by_set(each) for name, each in draws.items()}
    by_set = Estimates.stacked(by_set, "name")
    for which, rows in by_set.at(name=names[0]).without(set=prompt_sets.OWN).groups("set"):
        sizes = rows.frame.set_index("domain")["n_prompts"]
        notebook.few_prompts(sizes.to_dict(), f", {which}")

# %%
if others:
    each = len(domains) * by_set.frame["set"].nunique()
    ctx.plot(
        by_set.frame.assign(name=study.in_figures(by_set.frame["name"])),
        x="set",
        columns="name",
        kind="bars",
        height=min(max(2.4, 0.12 * each), 7),
        percent=True,
        limits=(0, None),
        x_label="",
        y="tokens accepted (%)",
        slug="other-prompts",
        title=study.widest_gap(contrasts.at(name=names[0])) if compared else "",
        caption=f"Acceptance of one drafted token (`hit[1]` at T = 0, `alpha` at {sampled.name}), "
        "by prompt set. Domains whose prompts are the same as in a row above are left out. Bars: "
        "95 % intervals.",
    )

# %%
if compared:
    keys = ["name", "contrast"]
    numbers = {"difference": contrasts}
    if others:
        numbers["change"] = Estimates.of(contrasts.frame, "change", [*keys, "set"])
        power = without_interval(contrasts.frame, contrasts.frame["power"])
        numbers["power"] = Estimates(power)
    numbers = Estimates.stacked(numbers, "number").in_units("points")
    shown = numbers.at(number="difference")
    ctx.table(numbers, "other-contrasts", cells=shown.wide(keys, "set"))

# %%
if compared:
    ctx.say(study.on_other_prompts(contrasts))
if compared and others:
    likely = 100 * contrasts.without(set=prompt_sets.OWN).frame["power"].min()
    ctx.say(
        "On the other sets, our tests would find each difference that is as large as on our own "
        f"prompts with a probability of at least {min(likely, 99):.0f} %."
    )

# %% [markdown]
# ### Each pair of domains
# If there are other prompts, the next table repeats the permutation test of section 3 on each set.
# Holm's correction covers all pairs, so these tests find less than the tests above. The table
# counts the pairs of domains that differ significantly on our own prompts:
#
# * `compared`: pairs with new texts in the set
# * `same`: pairs that are significant in the same direction
# * `reversed`: pairs that are significant in the opposite direction
# * `expected`: pairs that the set's tests would find on average, if its differences were as large
#   as on our own prompts

# %%
elsewhere = "No other prompts were tested."
if others and compared:
    pairs = {
        name: prompt_sets.pairs_of_domains(texts, Text.accepted, level)
        for name, texts in sets.items()
    }
    carried = stack({name: prompt_sets.carried(tests) for name, tests in pairs.items()}, "name")
    ctx.export(stack(pairs, "acceptance"), "other-differences")
    ctx.table(carried, "other-orders", 1)
    elsewhere = study.carried_in_words(carried[carried["name"] == names[0]])

# %%
if prompt_sets.UNWRAPPED in others:
    words = prompt_sets.effect_of_words(sets[names[0]], Text.accepted)
    ctx.export(words, "words-around")
    ctx.say(
        f"The wrapper around a problem changes `hit[1]`: {words.in_units('points')} "
        f"({greedy.name}, the same problems with and without it)."
    )

# %%
if prompt_sets.SECOND in others:
    second = sets[names[0]][prompt_sets.SECOND]
    rows = second.trace.assign(domain=prompt_sets.category_of(second.trace))
    categories = stats.by_domain(rows, second.acceptance).in_units("%")
    categories = categories.without(domain=[ALL, POOLED])
    ctx.say(
        f"In the categories of the second prompt set `hit[1]` runs from {categories.span()} "
        f"({greedy.name})."
    )
    ctx.table(categories, "categories", cells=categories.wide("estimator", "domain"))

# %%
right = 100 * by_domain.at(name=names[0]).frame["estimate"].mean()
ctx.record(headline=f"**{right:.0f} %** of the draft's best tokens are accepted")
if compared:
    tests = tested[tested["name"] == names[0]]
    ctx.answer(study.order_in_words(tests, elsewhere))
else:
    cold = by_domain.at(name=names[0], domain=judged).in_units("%")
    ctx.answer(
        f"We cannot compare, because only {judged[0]} has {stats.MIN_PROMPTS} prompts or more. The "
        f"target accepts {cold} of its draft's best tokens at {greedy.name}."
    )

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# 1. By hand: the draft's two best tokens have q = 0.5 and 0.4, and the target gives them p = 0.6
#    and 0.3. What is `published_alpha` of these two nodes? Both are children of one node. How
#    likely is it that one of them is accepted at T = 0, and at T = 1?
#
# <details><summary>What happens</summary>
# min(1, 0.6/0.5) = 1 and min(1, 0.3/0.4) = 0.75, so the mean is 0.875. At T = 0 the target's best
# token is one of the two (no other token can have more than 0.1), so one of them is accepted. At
# T = 1 one of the two is accepted with probability top_mass[2] = 0.6 + 0.3 = 0.9. One tree gives
# three different numbers.</details>
#
# 2. Record nothing new, but count every node twice: `twice = pd.concat([nodes, nodes])`. What
#    happens to the interval for independent nodes, and what to `stats.by_domain(twice,
#    score.published_alpha)`?
#
# <details><summary>What happens</summary>
# The interval for independent nodes shrinks by √2, as if the copies were new data. The interval
# over prompts stays the same, because there are no more prompts than before.</details>
#
# 3. In section 4, leave out the last text of each prompt: `rows = sampled.trace`, then
#    `rows[rows["seed"] != rows["seed"].iloc[-1]]`. What happens to the three shares?
#
# <details><summary>What happens</summary>
# `variance_components.shares` subtracts the draw for any number of texts, so both calls estimate
# the same three shares. Two texts say less about the draw than three, so the shares move within
# their intervals.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: the level of 'acceptance' depends on its definition, and so does the number of
#   domains that differ significantly. The unit of an interval is the prompt, not the node.
# * What this does not show: other pairs, other prompts of a domain, longer texts, or speed, which
#   needs measured costs (notebook 10). Numbers at different temperatures come from different texts,
#   so their difference is not the effect of a rule alone.
# * Next: [04](04_depth_profile.ipynb) asks whether acceptance rises with depth.
#   [06](06_entropy_paradox.ipynb) studies the domain with the highest entropy.
#   [13](13_how_sure.ipynb) asks how sure these numbers are.
