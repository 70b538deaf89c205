# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 7. Which rejections cost most, and where was the right token?

# %% tags=["parameters"]
profile: str = "smollm"  # the pair and its prompts: a name from notebooks/profiles, or a YAML file
overrides: dict = {}  # parameters of the profile to change, e.g. {"prompts_per_domain": 10}
gamma: int = 4  # 1 to 64; draft tokens in a row
# a model is sure if its best token has this probability: above 0.5 no other token can have as much
sure: float = 0.5  # 0.5 to 1
ngram: int = 3  # 1 to 16; tokens of the longest run that prompt lookup looks for
smallest: float = 0.005  # 0 to 1; the share of all positions that a class needs to be compared

# %% tags=["bootstrap", "hide-input"] jupyter={"source_hidden": true}
# Goes to the root of the kit: around this folder, or where this kernel has it. If the kit is
# missing, it is cloned from SPECLAB_REPO.
# On Colab and Kaggle it installs missing packages: `python -m speclab hosted install`.
import importlib.util, os, pathlib, subprocess, sys

places = [here := pathlib.Path.cwd(), *here.parents, here / "speclab-kit"]
if origin := getattr(importlib.util.find_spec("speclab"), "origin", None):
    places.append(pathlib.Path(origin).parents[1])
kit = next((place for place in places if (place / "speclab/study").is_dir()), places[-1])
if not kit.exists() and (address := os.environ.get("SPECLAB_REPO")):
    subprocess.run(["git", "clone", "--depth=1", address, kit])
if not (kit / "speclab/study").is_dir():
    sys.exit(f"{kit} holds no kit: clone it, or set SPECLAB_REPO to its address")
if str(kit) not in sys.path:
    sys.path.insert(0, str(kit))
from speclab.cli import hosted

hosted.prepare()

# %% jupyter={"source_hidden": true}
import numpy as np
import pandas as pd

from speclab import copying, replay, score, stats
from speclab.study import runs
from speclab.lab import bins, choose, prompt_sets, token_kinds
from speclab.lab.texts import Text
from speclab.estimates import Estimates
from speclab.models.folder import ModelFolder
from speclab.score import ALL, POOLED
from speclab.show import notebook, pictures

RUNS = ["greedy", "others"]

# %%
ctx = notebook.start("07_rejection_causes", profile, overrides)
text = Text.recorded(ctx.profile, "greedy")  # the target's own text, one row per position
domains = stats.judged_domains(text.trace)  # domains with at least five prompts
said = text.pair["draft"]["tokens_said"]  # size of the draft's vocabulary
tokenizer = ModelFolder.fetched(ctx.profile.target, weights=False).tokenizer
strings = pictures.strings_of(tokenizer)  # the text of each token

# %% [markdown]
# A rejection ends a block, and every token that was drafted after it is lost. Before we improve a
# draft, or stop it in time, we want to know where it fails: at numbers, at names, where it is
# unsure, or where its vocabulary lacks the token? A class with half of all positions has about half
# of the rejections. So we ask what it costs more than equally many positions at random.
#
# ## 1. Which classes of positions are there?
# A position is **rejected** if the draft's best token is not the target's best, that is, if the
# target's token has a `draft_rank` above 0. Every position, rejected or not, has
# * a **kind**: what its token is; a name is a word with a capital letter inside a sentence;
# * a **state**: which of the two models is sure of its best token (`sure`).
#
# Some tokens are outside the draft's vocabulary, so that they are always rejected.


# %%
def inside_sentence_with_capital(tokens):
    """Of each token of a text: whether it has a capital letter and a sentence goes on before it."""
    marks, before = [], ""
    for token in tokens:
        word, last = strings[token].strip(), before.rstrip()[-1:]
        begins_line = before.rstrip(" \t")[-1:] in ("", "\n")
        goes_on = not begins_line and (last.isalnum() or last in [*",&-/"])
        marks.append(goes_on and word[:1].isupper() and word != "I")
        before = (before + strings[token])[-token_kinds.BEFORE :]
    return marks


def with_classes(trace):
    """The positions, with their classes."""
    positions = bins.signals(trace[trace["domain"].isin(domains)]).reset_index(drop=True)
    kind = token_kinds.token_kinds(positions, strings).astype(str)
    tokens = positions.groupby("prompt_id", sort=False)["token"]
    capital = tokens.transform(inside_sentence_with_capital).astype(bool)
    target, draft = positions["p_token"] >= sure, positions["confidence"] >= sure
    names = ["both sure", "only target sure", "only draft sure"]
    return positions.assign(
        kind=kind.mask((kind == "word start") & capital, "name"),
        state=np.select([target & draft, target, draft], names, "both unsure"),
        rejected=positions["draft_rank"] > 0,
    )


# %%
positions = with_classes(text.trace)
if not positions["rejected"].any():
    ctx.leave_out("needs rejections, and the draft is always right")
shown = ["position", "p_token", "confidence", "draft_rank", "kind", "state"]
notebook.show_table(positions[shown].head(2))

# %% [markdown]
# ## 2. What does a class cost beyond its size?
# We replay the text as if the draft had been right at every position of the class. This is exact
# for greedy text, because the text does not depend on the draft. A class $C$ then needs $B(C)$
# target passes for the $n$ tokens, and $C$ positions at random need $B(|C|)$ on average:
#
# $$\mathrm{excess}(C) = \frac{n}{B(C)} - \frac{n}{B(|C|)}
#   \quad \text{tokens per target pass.}$$

# %% tags=["by-hand"]
tokens = len(positions)


def tau_of(corrected):
    """Tokens per target pass if the draft is right at these positions."""
    ranks = positions["draft_rank"].mask(corrected, 0)
    return tokens / len(replay.replay(positions.assign(draft_rank=ranks), gamma))


rng = np.random.default_rng(0)
unsure = positions["state"] == "both unsure"
at_random = [tau_of(rng.permutation(unsure)) for _ in range(20)]
by_hand = tau_of(unsure) - np.mean(at_random)
print(f"as it is {tau_of([False] * tokens):.2f}, right where both are unsure {tau_of(unsure):.2f},")
print(f"right at as many random positions {np.mean(at_random):.2f}: excess {by_hand:.2f}")

# %% [markdown]
# The kit needs no random draws. If each position is corrected with the probability $s$, the
# expected number of passes is exact: a wrong draft is accepted with this probability. We compute it
# for 41 shares $s$ and interpolate.

# %%
SHARES = np.linspace(0, 1, 41)


def passes_at_random(positions):
    """Expected target passes of each prompt (prompts, shares)."""
    columns = []
    for share in SHARES:
        chance = np.where(positions["draft_rank"] > 0, share, 1.0)
        walked = replay.replay_sampled(positions.assign(p_token=1.0, q_token=chance), gamma)
        columns.append(walked.groupby("prompt_id", sort=False)["weight"].sum())
    return pd.concat(columns, axis=1)


def excess(sums):
    """From sums over prompts: tokens, positions of the class, passes, and passes at random."""
    tokens, inside, passes, at_random = np.split(sums, [1, 2, 3], axis=-1)
    place = inside / tokens * (len(SHARES) - 1)
    step = np.minimum(place.astype(int), len(SHARES) - 2)
    fewer, more = (np.take_along_axis(at_random, step + i, -1) for i in (0, 1))
    return tokens / passes - tokens / (fewer + (place - step) * (more - fewer))


# %%
def excesses(positions, classes):
    """The excess of each class in every resample of prompts."""
    at_random = passes_at_random(positions)
    prompts = positions.groupby("prompt_id", sort=False)["domain"].agg(["first", "size"])
    rows = prompts["first"].rename("domain").reset_index()
    questions = {}
    for name, inside in classes.items():
        right = positions.assign(draft_rank=positions["draft_rank"].mask(inside, 0))
        passes = replay.prompt_sums(replay.replay(right, gamma)).set_index("prompt_id")["blocks"]
        count = inside.groupby(positions["prompt_id"], sort=False).sum()
        sums = pd.concat([prompts["size"], count, passes, at_random], axis=1).loc[prompts.index]
        columns = sums.to_numpy(float)
        questions[name] = rows, score.Estimator("excess", lambda _, to=columns: to, excess)
    return stats.jointly(questions)


# %% [markdown]
# The table and the figure have the mean of the domains; `causes.csv` has each of them. A class may
# have more than its share of the rejections and still cost little, because it is rare.

# %%
classes = pd.get_dummies(positions[["kind", "state"]], prefix_sep=": ", dtype=bool)
lacking = positions["draft_rank"] >= said
if lacking.any():
    classes["vocabulary: lacks the token"] = lacking
ids, rejected = positions[["prompt_id", "domain"]], positions["rejected"]
frames = {
    name: ids.assign(inside=inside, rejected=rejected, both=inside & rejected)
    for name, inside in classes.items()
}
asked = {
    "share of positions": score.mean_of("inside"),
    "share of rejections": score.ratio_of("both", "rejected"),
}
draws = {
    name: stats.jointly({which: (rows, number) for which, rows in frames.items()})
    for name, number in asked.items()
}
draws["excess"] = excesses(positions, classes)
causes = Estimates.stacked({k: each.table(key="class") for k, each in draws.items()}, "quantity")
if unsure.any():  # the draws by hand differ by chance
    kit = causes.at(quantity="excess", domain=POOLED, **{"class": "state: both unsure"})
    assert np.isclose(by_hand, kit.value, atol=max(np.ptp(at_random), 0.01))

# %%
means = causes.at(domain=ALL)
sizes = means.at(quantity="share of positions").frame
large = means.at(**{"class": sizes.loc[sizes["estimate"] >= smallest, "class"]})
excess_of = large.at(quantity="excess")
shares = large.at(quantity=[*asked]).in_units("%").wide("class", "quantity")
cells = shares.merge(excess_of.wide("class", "quantity"), on="class")
ctx.table(
    causes,
    "causes",
    cells=cells,
    most=20,
    caption="Positions, acceptance and excess cost by class of position",
)

# %%
drawn = excess_of.frame.assign(family=excess_of.frame["class"].str.split(":").str[0])
ctx.plot(
    drawn.sort_values(["family", "estimate"]),
    x="class",
    hue="family",
    kind="bars",
    apart=False,
    x_label="",
    y="excess (tokens per target pass)",
    reference=0,
    reference_name="as many random positions",
    slug="excess",
    title="What the rejections of each class cost beyond its size",
    caption="Mean of the domains, greedy text. Right of the line a class costs more than equally "
    "many random positions. Bars: intervals over prompts.",
)

# %% [markdown]
# **How to read the states.** Where both are sure, or only the draft, it is sure and wrong: no rule
# that stops at low confidence avoids these rejections. A better draft can be right where it is
# unsure now. No training gives it a token that its vocabulary lacks. Excesses do not add up: of two
# rejections close together both must be corrected before a block grows.
#
# ## 3. Do other prompts give the same result?
# The excess of each state on each set, in the mean of the domains in which the set has new texts.

# %%
ctx.say(prompt_sets.described(ctx.profile, is_sampled=False))
sets = prompt_sets.read(ctx.profile, text)
states = {}
for name, each in sets.items():
    new = each.trace[each.trace["domain"].isin([*{*each.new} & {*domains}])]
    if len(new) and not each.is_part:
        rows = with_classes(new)
        states[name] = excesses(rows, pd.get_dummies(rows["state"], dtype=bool))
tables = {name: of_set.table(key="state") for name, of_set in states.items()}
by_set = Estimates.stacked(tables, "set").at(domain=ALL)
ctx.table(
    by_set,
    "other-prompts",
    rows="set",
    columns="state",
    caption="Excess cost by state of the draft, by prompt set",
)

# %% [markdown]
# ## 4. Where was the right token?
# If the draft's best token is wrong, the target's token may be the draft's second choice or its
# tenth. Its **rank** is 0 for the draft's best token and 1 for its second choice.

# %%
RANKS = ["1", "2", "3 to 4", "5 to 8", "9 to 64", "above 64"]
wrong = positions[positions["rejected"]]
rank = pd.cut(wrong["draft_rank"], [0, 1, 2, 4, 8, 64, np.inf], labels=RANKS).astype(object)
rank = rank.mask(wrong["draft_rank"] >= said, "never")
choices = pd.get_dummies(rank)[[name for name in [*RANKS, "never"] if (rank == name).any()]]
rows = wrong.assign(**choices)
found = stats.jointly({name: (rows, score.mean_of(name)) for name in choices}).table(key="rank")
ctx.plot(
    found.at(domain=domains),
    x="rank",
    kind="points",
    limits=(0, None),
    percent=True,
    y="share of the rejections (%)",
    x_label="rank of the right token under the draft",
    slug="rank-where-found",
    title="Where the right token was at a rejection",
    caption="Share of each domain's rejections by the rank of the target's token. Never: the "
    "draft's vocabulary lacks the token. Bars: intervals over prompts.",
)

# %% [markdown]
# **Prompt lookup** is another place to look, and it needs no model. It finds where the last tokens
# (at most `ngram`) occurred before in prompt and text, and proposes the token that followed. Any
# decoder could follow this rule: where the draft's confidence is below a threshold and lookup has a
# match, propose lookup's token. A proposal counts only if all before it were accepted, so lookup
# has then seen the true text, and the replay is exact.

# %%
encoded = runs.encoded_prompts(runs.of_kind(ctx.profile, "greedy"))
prompts = {prompt.prompt_id: prompt.ids for prompt in encoded}
copies = [
    copying.replayed(prompts[name], tokens, ngram, most=1)
    for name, tokens in positions.groupby("prompt_id", sort=False)["token"]
]
has_match, is_right = (np.concatenate(each) > 0 for each in zip(*copies, strict=True))


def gain(sums):
    """Tokens per target pass minus those of the draft alone, from sums over prompts."""
    tokens, passes, passes_before = np.split(sums, 3, axis=-1)
    return tokens / passes - tokens / passes_before


# %%
columns = ["emitted", "blocks", "before"]
number = score.Estimator("gain", lambda sums: sums[columns].to_numpy(float), gain)
before = replay.prompt_sums(replay.replay(positions, gamma))["blocks"]
questions = {}
for threshold in np.round(np.arange(0.1, 1.01, 0.1), 1):
    is_copied = has_match & (positions["confidence"] < threshold)
    ranks = positions["draft_rank"].mask(is_copied, (~is_right).astype(int))  # 0 is right
    sums = replay.prompt_sums(replay.replay(positions.assign(draft_rank=ranks), gamma))
    questions[threshold] = sums.assign(before=before), number
mixed = stats.jointly(questions).table(key="threshold").at(domain=domains)
ctx.plot(
    mixed,
    x="threshold",
    y="gain over the draft alone\n(tokens per target pass)",
    x_label="threshold of the draft's confidence",
    reference=0,
    reference_name="draft alone",
    slug="lookup-where-unsure",
    title="What lookup gains where the draft is unsure",
    caption="Lookup's token is proposed where the draft's confidence is below the threshold and "
    "lookup has a match. Bands: intervals over prompts.",
)

# %%
WHERE = {
    "both sure": "both models are sure",
    "only target sure": "only the target is sure",
    "only draft sure": "only the draft is sure",
    "both unsure": "both models are unsure",
}


def most_expensive(of_set):
    """The state with the largest excess; clear if it leads all others and is above 0."""
    means = pd.DataFrame({state: values[ALL] for state, values in of_set.values.items()})
    best, tied = choose.best_and_tied(means, of_set.prompts.fewest)
    is_above = of_set.table({best: means[best]}).verdict() == stats.ABOVE
    return f"where {WHERE[best]}{'' if is_above and tied == [] else ' (not clear)'}."


# %%
answer = f"Rejections cost most {most_expensive(states[prompt_sets.OWN])}"
*_, last = states
if last != prompt_sets.OWN:
    answer += f" On {sets[last].in_words} they cost most {most_expensive(states[last])}"
second = found.at(domain=ALL, rank="1")
answer += f" At {100 * second.value:.0f} % of the rejections the draft's second choice was right."
ctx.answer(answer)

# %% [markdown]
# ## Try it
# A text of ten tokens has the draft ranks 0 1 0 0 2 0 0 0 0 3. Which blocks does a chain of 4 make,
# and how many tokens per target pass is that? What is gained if the rank 1 were 0, or the rank 2,
# or the rank 3?
#
# <details><summary>What happens</summary>
# The blocks are (0, 1), (2, 3, 4) and (5, 6, 7, 8, 9): 10 tokens in 3 passes, 3.33 per pass. With
# position 1 corrected the blocks are (0 to 4) and (5 to 9), 5 tokens per pass: the rank 2 is now at
# a bonus token. With only position 4 corrected they are (0, 1), (2 to 6) and (7, 8, 9), so nothing
# is gained. Position 9 is a bonus token and never met: correcting it gains nothing.</details>

# %% [markdown]
# ## What this does not show
# A cause in the strict sense, except for tokens outside the draft's vocabulary: a number often
# stands where the target is unsure. The states depend on the threshold `sure`. The corrected draft
# is right at once and at no cost; a real better draft changes everywhere. Next:
# [08](08_better_drafts.ipynb), better drafts.
