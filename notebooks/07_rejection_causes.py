# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 7. Which rejections cost more than equally many random positions?
#
# A rejection ends a block, and every token that was drafted after it is lost. Before we improve a
# draft (notebook 08) or stop it in time (09), we want to know where it fails. Is it at numbers, at
# the first word of a sentence, where the draft is unsure, or where its vocabulary lacks the token?
# A class that contains half of all positions has about half of the rejections, so it costs a lot
# simply because it is large. So we compare each class with equally many random positions.
#
# ![Cost of each class beyond equally many random positions](../figures/smollm/07/top-causes.png)
#
# *Runs on* any machine · *time* under a minute on 2 cores · *reads* the runs `greedy` (T = 0) and
# `sampled` (three seeds), the greedy run of each other prompt set, and the prompts. Missing runs
# are recorded first. · *writes* `figures/<profile>/07/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
gamma: int = 4  # 1 to 64; draft tokens in a row
# a model is sure if its best token has this probability: above 0.5 no other token can have as much
sure: float = 0.5  # 0.5 to 1
ngram: int = 3  # 1 to 16; longest run of tokens that prompt lookup looks for
# a class is compared in a prompt set if it is this share of the set's positions
smallest: float = 0.005  # 0 to 1

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

from speclab import replay, runs, score, stats
from speclab.analysis import prompt_sets
from speclab.analysis.texts import SEEDS, Text
from speclab.copying import repeats
from speclab.estimates import Estimates
from speclab.models.folder import ModelFolder
from speclab.score import ALL, POOLED
from speclab.show import drawings, notebook, pictures
from speclab.studies import rejection_causes as study

RUNS = ["greedy", "seeds", "others"]

# %%
ctx = notebook.start("07_rejection_causes", profile, overrides)
p = ctx.profile
greedy = Text.recorded(p, "greedy")
sampled = Text.recorded(p, *SEEDS)
can_say = greedy.pair["draft"]["tokens_said"]
ctx.say(notebook.made_with(greedy.pair))

# %%
tokenizer = ModelFolder.fetched(p.target, weights=False).tokenizer
strings = pictures.strings_of(tokenizer)

# %% [markdown]
# ## 1. Labels
# A position is **rejected** if the draft's best token is not the target's best (`draft_rank` above
# 0). Every position of the text, rejected or not, gets one label from each family below. A class is
# written `family: class`. Its share of all positions is its **base rate**. We compare it with the
# class's share of the rejections.
#
# | family | what the label says about a position |
# | --- | --- |
# | `kind` | what its token is (`token_kinds`); a `name` has a capital letter inside a sentence |
# | `begins` | whether its token is the first of the `text`, of a `line` or of a `sentence` |
# | `state` | which models are sure: whose best token has a probability of at least 0.5 (`sure`) |
# | `lookup` | whether prompt lookup proposes the `right` token, a `wrong` one or has `no match` |
# | `found` | the rank of the target's token under the draft, at rejected positions only |
#
# A draft with a trimmed output layer can never propose the tokens outside its vocabulary. There it
# is always rejected (`found: never`). **Prompt lookup** needs no model. It finds where the last
# three tokens (`ngram`), or fewer, occurred before in prompt and text, and proposes the token that
# followed.


# %%
def labelled(text, kind):
    """The labels of a text, whose prompts are those of runs of this kind."""
    encoded = runs.encoded_prompts(runs.of_kind(p, kind))
    prompt_tokens = {prompt.prompt_id: prompt.ids for prompt in encoded}
    return study.label(text, strings, prompt_tokens, can_say, sure, ngram)


# %%
frame = labelled(greedy, "greedy")
members = study.flags(frame)
often = study.frequencies(frame, members)
domains = list(score.domains_in(frame))

# %% [markdown]
# We first compute by hand how often a class is rejected, for the tokens that begin a word. The
# **rate ratio** is the rejection rate of the class divided by the rejection rate of all positions.
# It equals the class's share of the rejections divided by its base rate.

# %% tags=["by-hand"]
rejected = frame["draft_rank"] > 0  # frame has one row per position
is_word_start = frame["kind"] == "word start"
base_rate = is_word_start.mean()
share = is_word_start[rejected].mean()
rate_ratio = share / base_rate

# %%
if is_word_start.any() and rejected.any():  # else there is nothing to divide by
    kit = often.at(cause="kind: word start", domain=POOLED, quantity="ratio")
    assert np.isclose(kit.value, rate_ratio)
    ctx.say(
        f"Word starts are {100 * base_rate:.0f} % of the positions and {100 * share:.0f} % of the "
        f"rejections. Their rate ratio is {kit}."
    )

# %%
mean = score.mean_of("rejected")
rate = stats.by_domain(frame, mean).at(domain=domains).in_units("%")
ctx.say(
    f"The draft is rejected at {100 * rejected.mean():.0f} % of the {len(frame):,} positions. By "
    f"domain, the rejection rate is {rate.span()}. A text has at most {p.max_new_tokens} tokens."
)

# %% [markdown]
# ## 2. What does a class cost beyond its size?
# We answer this with a **counterfactual replay**. We replay the same text as if the draft had been
# right at every position of the class: the class is corrected, and nothing else changes. At T = 0
# this is exact, because the text does not depend on the draft. The **gain** is the number of tokens
# per target pass with this change minus the number without it.

# %% tags=["by-hand"]
ranks = frame["draft_rank"]  # 0: the draft's best token is the target's best
tokens = len(frame)
passes_before = len(replay.replay(frame, gamma))


def gain_of(corrected):
    """Tokens per target pass that are gained if the draft is right at these positions."""
    right = frame.assign(draft_rank=ranks.mask(corrected, 0))
    passes = len(replay.replay(right, gamma))
    return tokens / passes - tokens / passes_before


# %% [markdown]
# Being right at any set of positions gains something. So as a comparison we also correct equally
# many positions picked **at random**, rejected or not. We repeat this twenty times.

# %% tags=["by-hand"]
rng = np.random.default_rng(0)
at_random = [gain_of(rng.permutation(is_word_start)) for _ in range(20)]

# %% [markdown]
# The kit computes the random gain without drawing. If every position is corrected with the same
# probability, the expected number of blocks is known exactly. The **excess** of a class is its gain
# minus the gain of equally many random positions.

# %%
draws = study.costs(frame, gamma, members)
costs = study.in_one_table(draws)

# %%
word_start = costs.at(cause="kind: word start", domain=POOLED)
gain, random, _ = word_start.frame["estimate"]
assert np.isclose(gain, gain_of(is_word_start))
ctx.say(
    f"Correcting all word starts gains {gain:.2f} tokens per target pass. Correcting equally many "
    f"random positions gains {random:.2f}; the mean of the twenty draws is "
    f"{np.mean(at_random):.2f}. The excess of the word starts is "
    f"{word_start.at(quantity='excess')}."
)

# %% [markdown]
# For the 95 % intervals we **resample the prompts**, the same prompts for both gains. The table
# shows all prompts together; section 3 shows the mean of the domains, which can differ. The table
# leaves out `nothing`, `no match`, the ranks of `found`, and classes with a share of the positions
# below the parameter `smallest`. Gain and excess are in tokens per target pass. A class may be
# rejected often and still cost little, because it is rare.

# %%
causes = study.may_be_causes(often.at(quantity="positions"), smallest)
excess = costs.at(quantity="excess")
drawn = study.by_size(excess.at(domain=ALL, cause=list(causes["cause"])))
of_all = Estimates(pd.concat([often.frame, costs.frame], ignore_index=True))
ctx.export(of_all, "causes-values")

# %%
overall = of_all.at(domain=POOLED, cause=drawn)
notebook.show_table(study.overview(overall))

# %%
of_kinds = study.of_family(overall, "kind")
rates = of_kinds.at(quantity="rate").defined()
if len(rates.frame):
    (top,) = rates.highest("quantity").frame["name"]
    of_top = dict(of_kinds.at(name=top).groups("quantity"))
    ctx.say(
        f"The kind `{top}` is rejected most often, at {of_top['rate'].in_units('%')} of its "
        f"positions. This kind has {of_top['positions'].in_units('%', 1)} of all positions, and "
        f"its excess is {of_top['excess']} tokens per target pass."
    )

# %% [markdown]
# ## 3. Which class of a family costs most, in each domain?
# Over all prompts together, a class can look costly only because it is common in a hard domain,
# where any position gains more. So we compare the classes within each domain, with random positions
# of the same domain. `all` is the mean of the domains.

# %%
first = study.first_causes(draws["excess"], causes)
best = first.at(family="state", domain=ALL)

# %%
whole = ALL if len(domains) > 1 else domains[0]  # one domain is its own mean
ctx.draw(
    drawings.draw_causes,
    study.pictured(excess.at(domain=[*domains, whole]), causes, drawn),
    "top-causes",
    families=study.PICTURED,
    whole=whole,
    title=f"{study.cost_where(best.row)} (excess {best})",
    caption=f"Excess of the classes of each family shown, by domain (T = 0, gamma = {gamma}). The "
    "excess is the gain of a draft that is never wrong in the class, minus the gain from equally "
    "many random positions. Right of the line a class costs more than its size explains. "
    "Bars: 95 % intervals of the mean.",
)

# %% [markdown]
# The largest of several numbers is the largest partly by chance. We call a class *first* only if
# its excess is significantly above 0 and above the excess of **every** other class of its family.

# %%
ctx.export(first, "first-causes")
notebook.show_table(study.kinds_and_states(first.without(domain=POOLED), "domain"))

# %% [markdown]
# **Which models are sure?** A better draft can be right in both *only target sure* and *both
# unsure*. At T = 0 the target's best token counts however small its lead, though a small lead is
# harder to learn. In *both sure* and *only draft sure* the draft is sure and wrong, so no rule that
# stops at low confidence can avoid these rejections. No training can fix `found: never`; only a
# larger output vocabulary can.
#
# Gains do not add up. Of two rejections close together, both must be corrected before a block
# grows, and classes of two families share rejections.

# %% [markdown]
# ## 4. Do other prompts give the same result?
# We repeat the comparison on other prompts (`other_prompts` in the profile, the study's settings
# file). The table has the mean of the domains; `first-on-other-prompts.csv` has each domain.

# %%
ctx.say(prompt_sets.described(p, is_sampled=False))
kind_of = {prompt_sets.set_name(source): runs.kind_of_set(source) for source in p.others}
kind_of[prompt_sets.ENGLISH] = "second"
others = prompt_sets.texts(p, greedy)
del others[prompt_sets.OWN]

# %%
first_of = {prompt_sets.OWN: first}
for name, text in others.items():
    rows = labelled(text, kind_of[name])
    if name == prompt_sets.UNWRAPPED:  # the others have the same prompts as before
        rows = rows[rows["domain"].isin(prompt_sets.WITH_WORDS)]
    classes = study.flags(rows)
    positions = study.frequencies(rows, classes).at(quantity="positions")
    candidates = study.may_be_causes(positions, smallest)
    of_set = study.costs(rows, gamma, classes)
    first_of[name] = study.first_causes(of_set["excess"], candidates)

# %%
elsewhere = None
if others:
    by_set = Estimates.stacked(first_of, "set")
    ctx.export(by_set, "first-on-other-prompts")
    of_means = by_set.at(domain=ALL)
    notebook.show_table(study.kinds_and_states(of_means, "set"))
    elsewhere = of_means.at(family="state").without(set=[prompt_sets.OWN, prompt_sets.ENGLISH])

# %% [markdown]
# ## 5. Where could the target's token have been found?
# If the draft's best token is wrong, the target's token may be the draft's second choice or its
# tenth: its **rank**. Or it may be outside the draft's vocabulary.

# %%
by_rank = study.of_family(often.at(quantity="share", domain=domains), "found").in_units("%")
never = by_rank.at(name="never")
has_never = never.frame["estimate"].gt(0).any()
vocabulary = "This draft's vocabulary has every token."
if has_never:
    lost = dict(costs.at(cause=study.NEVER, domain=ALL).groups("quantity"))
    vocabulary = (
        f"At {never.span()} of a domain's rejections the token is outside the draft's vocabulary "
        f"(never). A draft that is right there gains {lost['gain']} tokens per target pass (mean "
        "of the domains)."
    )

# %%
second = by_rank.at(name="rank 1")
ctx.plot(
    by_rank if has_never else by_rank.without(name="never"),
    x="name",
    kind="points",
    y="share of rejections",
    limits=(0, None),
    x_label="rank of the target's token under the draft",
    slug="rank-where-found",
    title=f"The draft's second choice is right at {second.span()} of the rejections",
    caption="Share of each domain's rejections by the rank of the target's token under the draft "
    f"(rank 1 is the second choice). {vocabulary} Bars: 95 % intervals.",
)

# %% [markdown]
# Prompt lookup is another place to look, and it needs no draft model. Any decoder could follow this
# rule: where the draft's confidence is below a threshold and lookup has a match, propose lookup's
# token. The confidence is q of the draft's best token. In a chain a proposal counts only if all
# before it were accepted. So lookup has seen the true text whenever its proposal counts, and
# the replay is exact.

# %%
right, matches = frame["lookup"] == "right", frame["lookup"] != "no match"
thresholds = np.round(np.arange(0.1, 1.01, 0.1), 1)
proposed = {  # what counts is whether the proposal is right (0) or wrong
    threshold: np.where(matches & (frame["confidence"] < threshold), ~right, ranks)
    for threshold in thresholds
}

# %%
mixed = study.gains_of_ranks(frame, gamma, proposed).table(key="cause").frame.drop(columns="note")
mixed = Estimates(mixed).at(domain=domains)
ctx.export(mixed, "lookup-where-unsure")

# %%
at_sure = thresholds[np.abs(thresholds - sure).argmin()]
of_lookup = mixed.at(cause=at_sure)
ctx.plot(
    mixed,
    x="cause",
    y="gain over the draft alone\n(tokens per target pass)",
    x_label="threshold of the draft's confidence",
    reference=0,
    reference_name="draft alone",
    slug="lookup-where-unsure",
    title=f"Where the draft's confidence is below {at_sure:g}, lookup "
    f"{of_lookup.tally(*study.HELPS)}",
    caption="Where the draft's confidence is below the threshold and lookup has a match, lookup's "
    "token is proposed. Shown: gain in tokens per target pass, by domain (T = 0, gamma = "
    f"{gamma}). At the threshold {at_sure:g} it is {of_lookup.span()}. Bands: 95 % intervals.",
)

# %% [markdown]
# ## 6. Outside loops, and on sampled text
# Greedy text runs into loops, and what a draft does in a loop says little about language (notebook
# 13). At a **repeated position** the token ends a run of four tokens that occurred before in the
# same text. All other positions lie *outside loops*. On sampled text (the profile's temperature,
# three seeds) a position counts as rejected if the sampled token is not the draft's best. This is
# the point-mass rule, exact for a drafted token that is not drawn at random.

# %%
outside = ~repeats(frame)
of_sampled = labelled(sampled, "sampled")
frames = {greedy.name: frame, f"{greedy.name}, outside loops": frame[outside]}
frames[sampled.name] = of_sampled
ratios = {text: study.frequencies(rows, study.flags(rows)) for text, rows in frames.items()}
ratios = Estimates.stacked(ratios, "text").at(quantity="ratio", domain=POOLED).in_units("x")

# %%
rates = {text: stats.by_domain(rows, mean).frame for text, rows in frames.items()}
rates = Estimates.stacked(rates, "text").at(domain=POOLED).in_units("%")
no_states = [name for name in drawn if not name.startswith("state: ")]

# %%
ctx.plot(
    ratios.at(cause=no_states),
    x="cause",
    hue="text",
    kind="bars",
    y="rate ratio",
    x_label="",
    height=0.25 * len(no_states),
    reference=1,
    reference_name="average position",
    slug="loops",
    title=study.most_rejected(ratios.at(cause=no_states)),
    caption="Rejection rate of each class divided by the rate of all positions, by class and text. "
    "Right of the line a class is rejected more often than the average position. The title is "
    f"about the kind that is rejected most often. All positions are rejected at {rates.span()}, "
    "depending on the text. Bars: 95 % intervals.",
)

# %%
in_loops = 100 * (1 - outside.mean())
ctx.say(
    f"At T = 0, {in_loops:.0f} % of the positions of all prompts together are repeated positions. "
    "(Notebook 13 gives the mean of the domains.)"
)

# %%
ctx.answer(study.cost_in_words(best, elsewhere))

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# 1. By hand: a text of ten tokens has the draft ranks 0 1 0 0 2 0 0 0 0 3. Which blocks does a
#    chain of gamma = 4 make, and how many tokens per target pass is that? What is gained if the
#    rank 1 were 0, or the rank 2, or the rank 3?
#
# <details><summary>What happens</summary>
# The blocks are (0, 1), (2, 3, 4) and (5, 6, 7, 8, 9): 10 tokens in 3 passes, 3.33 per pass. The
# last rank 3 is at the position of the bonus token and is never met. With position 1 corrected the
# blocks are (0 to 4) and (5 to 9), 5 tokens per pass: the rank 2 is now at a bonus token. With only
# position 4 corrected they are (0, 1), (2 to 6) and (7, 8, 9). These are 3 passes as before, so
# nothing is gained. Correcting position 9 gains nothing either.</details>
#
# 2. Make a class of 3,000 random positions: `members.assign(chance=rng.permutation(len(frame)) <
#    3000)`. What are its gain and its excess by `study.costs`?
#
# <details><summary>What happens</summary>
# The gain is large, about half a token per target pass on `smollm`, because a quarter of the
# rejections is corrected. The excess differs from 0 only by chance, so its interval should include
# 0.</details>

# %% [markdown]
# ## What this does not show, what is next
# * A cause in the strict sense, except for tokens outside the draft's vocabulary. Classes overlap:
#   a number often occurs where the target is unsure. The counterfactual draft is right at once and
#   at no cost; a real better draft changes everywhere. Kinds are judged by the tokens' text alone.
# * The cost of a class in sampled text, where a rejection is a matter of chance (`alpha`), and in
#   longer texts.
# * Certainty about every row. Each interval contains the true value in 95 % of cases, so some
#   of the many first places in the tables are first by chance. With few prompts per domain a lead
#   is seldom significant.
# * Next: notebook 08 makes better drafts. Notebook 09 stops drafting where the draft is not sure.
