# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 7. Which rejections cost more than as many random ones?
#
# A rejection ends a block, and every token that was drafted after it is lost. Before a draft is
# made better (notebook 08) or stopped in time (09), it is worth knowing where it fails: at numbers,
# at the first word of a sentence, where it is unsure of itself, where its vocabulary lacks the
# token? A class that holds half of all positions holds about half of the rejections too, and costs
# much for its size alone. So each class is compared with as many positions picked at random.
#
# ![What each class costs beyond as many random positions](../figures/smollm/07/top-causes.png)
#
# *Runs on* any machine · *minutes* less than one on 2 cores · *reads* the runs `greedy`
# (temperature T = 0), `sampled`, `sampled-seed-1` and `sampled-seed-2` (the profile's temperature,
# by default 1; three seeds), at T = 0 those of the other prompts that the profile names
# (`other_prompts`), recorded if they are not there, and their prompts · *writes*
# `figures/<profile>/07/`.

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

from speclab import replay, runs, score, stats
from speclab.analysis import prompt_sets
from speclab.analysis.texts import SEEDS, Text
from speclab.copying import repeats
from speclab.estimates import Estimates
from speclab.models.folder import ModelFolder
from speclab.score import ALL, POOLED
from speclab.show import notebook, pictures
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
# A position is **rejected** if the draft's best token is not the target's (`draft_rank` above 0;
# its share is 1 − `hit[1]`). Every position of the text gets one label of each family, rejected or
# not, so that the share of a class among the rejections can be compared with its share among all
# positions, the **base rate**. A class is written `family: class`.
#
# | family | the position's token … |
# | --- | --- |
# | `kind` | what it is (`token_kinds`); a `name` has a capital letter inside a sentence |
# | `begins` | the first of the continuation (`text`), or of a `line` or `sentence` (seen) |
# | `state` | which model gave its own best token a probability of `sure` or more |
# | `lookup` | what prompt lookup proposes: the `right` token, a `wrong` one, `no match` |
# | `found` | rank of the target's token under the draft, of rejected positions only |
#
# A draft with a trimmed output layer **can never propose** the tokens outside its vocabulary: there
# it is rejected for certain (`found: never`). Prompt lookup proposes what followed the latest
# occurrence of the last `ngram` tokens (or of fewer, if none matches) in prompt and text so far;
# it needs no model.


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
wholes = {ALL: "mean of\nthe sets"} if len(domains) > 1 else {}  # of one domain it is its own mean

# %% [markdown]
# How often a class is met, by hand for the tokens that begin a word: its base rate, its share of
# the rejections, and the **rate ratio**, its rejection rate over that of all positions. The ratio
# is the share over the base rate.

# %%
rejected = frame["draft_rank"] > 0
is_class = frame["kind"] == "word start"
base_rate, share = is_class.mean(), is_class[rejected].mean()
if is_class.any() and rejected.any():  # else there is nothing to divide by
    kit = often.at(cause="kind: word start", domain=POOLED, quantity="ratio")
    assert np.isclose(kit.value, share / base_rate)

# %%
mean = score.mean_of("rejected")
rate = stats.by_domain(frame, mean)
ctx.say(
    f"The draft's token is rejected at {rejected.sum():,} of {len(frame):,} positions. Share by "
    f"domain: {Estimates(rate).at(domain=domains).listed()}. A text has at most {p.max_new_tokens} "
    "tokens."
)

# %% [markdown]
# ## 2. What does a class cost beyond its size?
# What a class costs is a **counterfactual replay**: the same text once more, as if the draft had
# been right at every position of the class, and everything else unchanged. At T = 0 (the likeliest
# token is always taken) this is exact, since the text does not depend on the draft. The **gain** is
# `block_efficiency` (tokens per target pass, blocks as a decoder visits them) with this minus
# `block_efficiency` without it:

# %%
rank = frame["draft_rank"]
as_it_is = len(frame) / len(replay.replay(frame, gamma))


def gain_of(mended):
    """Tokens per target pass that are gained if the draft is right at these positions."""
    blocks = replay.replay(frame.assign(draft_rank=rank.mask(mended, 0)), gamma)
    return len(frame) / len(blocks) - as_it_is


# %% [markdown]
# Any set of as many positions would gain something. To see how much, mend as many positions picked
# **at random**, rejected or not, a few times:

# %%
rng = np.random.default_rng(0)
at_random = [gain_of(rng.permutation(is_class)) for _ in range(20)]

# %% [markdown]
# The kit needs no draw. If every position is mended with the same probability, a decoder meets a
# wrong token and goes on with just that probability, so the expected number of blocks is that of a
# sampled chain. The **excess** is the gain of a class minus this random gain:

# %%
draws = study.costs(frame, gamma, members)
costs = study.in_one_table(draws)

# %%
word_start = costs.at(cause="kind: word start", domain=POOLED)
gain, random, _ = word_start.frame["estimate"]
assert np.isclose(gain, gain_of(is_class))
ctx.say(
    f"Mending all tokens that begin a word gains {gain:.2f} tokens per target pass. As many random "
    f"positions gain {np.mean(at_random):.2f} (drawn) or {random:.2f} (exact). The excess is "
    f"{word_start.at(quantity='excess')}: the class holds {share:.0%} of the rejections, but also "
    f"{base_rate:.0%} of the positions."
)

# %% [markdown]
# Intervals (95 %) **resample prompts**, the same ones for both gains. All classes, over all prompts
# together, with the base rate, rejection rate and rate ratio of each:

# %%
causes = study.may_be_causes(often.at(quantity="positions"), smallest)
excess = costs.at(quantity="excess")
drawn = study.by_size(excess.at(domain=ALL, cause=list(causes["cause"])))
of_all = Estimates(pd.concat([often.frame, costs.frame], ignore_index=True))
ctx.export(of_all, "causes-values")

# %%
overall = of_all.at(domain=POOLED, cause=drawn)
notebook.show_table(overall.wide("cause", "quantity"))

# %%
of_kinds = study.of_family(overall, "kind")
rates = of_kinds.at(quantity="rate").defined()
if len(rates.frame):
    (top,) = rates.highest("quantity").frame["name"]
    of_top = dict(of_kinds.at(name=top).groups("quantity"))
    ctx.say(
        f"The kind with the highest rate is `{top}`: it is rejected at {of_top['rate']} of its "
        f"positions, {of_top['ratio']} times the average. But it is {of_top['positions']} of the "
        f"positions, and its excess is {of_top['excess']}."
    )

# %% [markdown]
# ## 3. Which class of a family costs most, in each prompt set?
# Over all prompts together a class would also be credited for being common in a hard set (there any
# position gains more). So the classes are compared within each prompt set, with random positions of
# the same set; `all` is the mean of the sets.

# %%
pictured = [name for name in drawn if not name.startswith(("begins", "lookup"))]
panels = len(wholes) + len(domains)  # of more than six there is no room side by side
parts = [*wholes, *domains] if panels < 7 else [*domains, *wholes]
order = pd.MultiIndex.from_product([parts, pictured], names=["domain", "cause"])
rows = excess.frame.merge(causes).set_index(order.names)
rows = rows.reindex(order).dropna(subset="quantity").reset_index()

# %%
first = study.first_causes(draws["excess"], causes)
kinds, states = (first.at(family=name) for name in ("kind", "state"))

# %%
beside = {"hue": "quantity", "columns": "domain"} if panels < 7 else {"hue": "domain"}
ctx.plot(
    Estimates(rows.replace({"domain": wholes})),
    x="cause",
    **beside,
    kind="bars",
    y="gain minus the gain of as many random positions, tokens per target pass",
    x_label=" ",
    height=0.22 * len(pictured) if panels < 7 else 7,
    reference=0,
    slug="top-causes",
    caption="Tokens per target pass gained if the draft were never wrong in a class, minus the "
    f"gain of as many random positions of the same set (T = 0, gamma = {gamma}). Of the kinds of "
    f"token {study.first_in_words(kinds.at(domain=domains))}. Of the classes of certainty "
    f"{study.first_in_words(states.at(domain=domains))}.",
)

# %% [markdown]
# The largest of several numbers is the largest partly by chance. A class is called *first* only if
# the interval of its lead over **every** other class of its family is positive, on the same
# resampled prompts, and its excess is:

# %%
ctx.export(first, "first-causes")
notebook.show_table(study.kinds_and_states(first, "domain"))

# %%
word_starts = often.at(cause="kind: word start", quantity="ratio", domain=domains)
ctx.say(f"The rate ratio of tokens that begin a word is {word_starts.listed()}.")

# %% [markdown]
# **Who was sure?** The line between sure and unsure is `sure`: from a probability of 0.5 on no
# other token can have more. A better draft can fix both *only target sure* and *both unsure*: at
# T = 0 the target's favourite counts, however slight its lead, though a slight lead is harder to
# learn. In *both sure* and *only draft sure* the draft is sure and wrong, which no rule that stops
# at low confidence can see coming. No training can fix `found: never`; only a larger output
# vocabulary can. Gains do not add: two rejections near each other must both be mended before a
# block grows, and classes of two families share rejections.

# %% [markdown]
# ## 4. Do other prompts say the same?
# The same question on the other prompts that the profile names (`other_prompts`):

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
elsewhere = "No other prompts were tested."
if others:
    by_set = Estimates.stacked(first_of, "set")
    ctx.export(by_set, "first-on-other-prompts")
    new = by_set.without(domain=POOLED, set=prompt_sets.OWN)
    notebook.show_table(study.kinds_and_states(new, "set", "domain"))
    of_sets = new.at(family="state", domain=ALL).without(set=prompt_sets.ENGLISH)
    firsts = study.first_in_words(of_sets, "set")
    ctx.say(f"Of the classes of certainty, in the mean of the domains, {firsts}.")
    elsewhere = f"Of these classes on other prompts, {firsts}."

# %% [markdown]
# ## 5. Where would the target's token have been found?
# If the draft's best token is wrong, the target's may be its second, or its tenth: the **rank**. Or
# it is a token outside the draft's vocabulary.

# %%
by_rank = study.of_family(often.at(quantity="share", domain=domains), "found")
never = by_rank.at(name="never")
has_never = never.frame["estimate"].gt(0).any()
vocabulary = "This draft's vocabulary has every token"
if has_never:
    lost = dict(costs.at(cause=study.NEVER, domain=ALL).groups("quantity"))
    vocabulary = (
        f"Never: {never.listed()}. Mending these gains {lost['gain']} tokens per target pass, "
        f"{lost['excess']} more than as many random positions"
    )

# %%
ctx.plot(
    by_rank if has_never else by_rank.without(name="never"),
    x="name",
    kind="points",
    y="share of the\nset's rejections",
    x_label="found at",
    slug="rank-where-found",
    caption="Rank of the target's token under the draft, of rejected positions. The draft's second "
    f"choice: {by_rank.at(name='rank 1').listed()}. {vocabulary}.",
)

# %% [markdown]
# Another place to look is the prompt and the text so far, which costs no draft model at all: prompt
# lookup. A rule that any decoder could follow: where the draft's confidence (q of its best token)
# is under a threshold and lookup has a match, propose what lookup found. (In a chain a proposal
# counts only if all before it were accepted, so lookup sees the text as it is, and the replay is
# exact.)

# %%
right, matches = frame["lookup"] == "right", frame["lookup"] != "no match"
thresholds = np.round(np.arange(0.1, 1.01, 0.1), 1)
ranks = {  # what counts is whether the proposal is right (0) or wrong
    threshold: np.where(matches & (frame["confidence"] < threshold), ~right, rank)
    for threshold in thresholds
}

# %%
mixed = study.gains_of_ranks(frame, gamma, ranks).table(key="cause").drop(columns="note")
mixed = Estimates(mixed).at(domain=domains)
ctx.export(mixed, "lookup-where-unsure")

# %%
at_sure = thresholds[np.abs(thresholds - sure).argmin()]
ctx.plot(
    mixed,
    x="cause",
    y="gain on the draft alone,\ntokens per target pass",
    x_label="lookup's token where the draft's confidence is under",
    reference=0,
    slug="lookup-where-unsure",
    caption="Draft plus lookup where the draft is unsure, minus the draft alone (gamma = "
    f"{gamma}). At a threshold of {at_sure:g}: {mixed.at(cause=at_sure).listed()}.",
)

# %% [markdown]
# ## 6. Outside loops, and in sampled text
# Greedy text runs into loops, and what a draft does there says little about language (notebook 13).
# A position lies *outside loops* unless its token ends a run of four tokens that the same text has
# had before. In sampled text (the profile's temperature, three seeds) a position counts as rejected
# where the sampled token is not the draft's best: the point-mass rule, exact for a drafted token
# that is not drawn. A ratio above 1 means: rejected more often than the average position of these
# texts.

# %%
outside = ~repeats(frame)
of_sampled = labelled(sampled, "sampled")
frames = {greedy.name: frame, f"{greedy.name} outside loops": frame[outside]}
frames[sampled.name] = of_sampled
ratios = {text: study.frequencies(rows, study.flags(rows)) for text, rows in frames.items()}
ratios = Estimates.stacked(ratios, "text").at(quantity="ratio", domain=POOLED)

# %%
rates = {text: stats.by_domain(rows, mean) for text, rows in frames.items()}
rates = Estimates.stacked(rates, "text").at(domain=POOLED)
no_states = [name for name in drawn if not name.startswith("state: ")]

# %%
ctx.plot(
    ratios.at(cause=no_states),
    x="cause",
    hue="text",
    kind="bars",
    y="rejection rate over that of all positions",
    x_label=" ",
    height=0.25 * len(no_states),
    reference=1,
    slug="loops",
    caption="Rejection rate of each class over the rate of all positions, in the greedy texts, "
    f"outside loops there, and in sampled texts. Share of positions rejected: "
    f"{rates.listed('text')}. {1 - outside.mean():.0%} of the greedy positions are in loops (texts "
    f"of at most {p.max_new_tokens} tokens).",
)

# %%
best = states.at(domain=ALL)
(state,) = best.frame["cause"]
found = (
    f"being right where `{study.alone(state)}` gains {best} more tokens per target pass than at as "
    "many random positions"
)
if best.verdict() != stats.ABOVE:
    found = (
        "being right in no class of certainty gains significantly more than at as many random "
        f"positions. The most is {best} tokens per target pass (`{study.alone(state)}`)"
    )
ctx.answer(f"On `{p.name}`, {found}. {elsewhere}")

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# 1. By hand: a text of ten tokens has the draft ranks 0 1 0 0 2 0 0 0 0 3. Which blocks does a
#    chain of gamma = 4 make, how many tokens per target pass is that, and what is gained if the
#    rank 1 were 0, or the rank 2, or the rank 3?
#
# <details><summary>What happens</summary>
# Blocks (0, 1), (2, 3, 4) and (5, 6, 7, 8, 9): 10 tokens in 3 passes, 3.33; the last rank 3 stands
# where the bonus token does and is never met. With position 1 mended the blocks are (0 to 4) and (5
# to 9), 5 tokens per pass: the rank 2 has become a bonus token's. With position 4 mended alone they
# are (0, 1), (2 to 6), (7, 8, 9): 3 passes as before, nothing is gained. Position 9:
# nothing.</details>
#
# 2. Make a class of 3,000 random positions: `members.assign(chance=rng.permutation(len(frame)) <
#    3000)`. What is its gain by `study.costs`, and what its excess?
#
# <details><summary>What happens</summary>
# The gain is large, about half a token per target pass on `smollm`: a quarter of the rejections
# is mended. The excess is 0 but for chance, and its interval includes 0 unless the draw was
# unlucky.</details>
# %% [markdown]
# ## What this does not show, what is next
# * A cause in the strict sense, except for tokens outside the draft's vocabulary. Classes overlap
#   (a number is often where the target is unsure), and gains of overlapping classes do not add. The
#   counterfactual draft is right at once and for nothing; a real better draft changes everywhere.
#   Kinds are told from the tokens' text alone.
# * What a class costs in sampled text, where a rejection is a matter of chance (`alpha`), and in
#   longer texts. Intervals are 95 % each: of the many first places in the tables some are first by
#   chance. In a set of few prompts per domain a lead is seldom significant.
# * Next: notebook 08 makes better drafts; notebook 09 stops drafting where the draft is not sure.
