# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 3. Does acceptance depend on the domain?

# %% tags=["parameters"]
# the pair and its prompts: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, e.g. {"prompts_per_domain": 10}
# the domains differ significantly if the p-value of their test is below this
level: float = 0.05  # 0.0001 to 0.5

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
from scipy.stats import alexandergovern

from speclab import replay, score, stats
from speclab.lab import prompt_sets, published
from speclab.lab.texts import SEEDS, Text
from speclab.estimates import Estimates
from speclab.score import ALL, POOLED
from speclab.show import notebook

RUNS = ["greedy", "seeds", "others"]

# %%
ctx = notebook.start("03_domain_acceptance", profile, overrides)
greedy = Text.recorded(ctx.profile, "greedy")  # T = 0: always the target's most likely token
sampled = Text.recorded(ctx.profile, *SEEDS)  # tokens drawn at a temperature T, three texts each
sets = prompt_sets.read(ctx.profile, greedy)  # the profile's own prompts, then its other sets
domains = stats.judged_domains(greedy.trace)  # domains with at least five prompts

# %% [markdown]
# The [paper](https://arxiv.org/abs/2604.14682) says that a draft is accepted more often in some
# domains than in others. A domain comes with its prompts: a draft may be good at arithmetic, or
# only at prompts like those it was trained on. So we repeat the measurement on other prompts of the
# same domains.
#
# ## 1. The domains on several prompt sets
# We look at texts that the target wrote while it always took its most likely token (greedy text).
# The record of these texts is called **trace**. It has one row per position. `hit` says whether the
# draft's best token is the target's.

# %%
columns = ["prompt_id", "domain", "position", "token", "draft_rank", "hit"]
notebook.show_table(greedy.trace[columns].head(3))

# %% [markdown]
# A greedy decoder accepts the draft's best token where it is the target's best. With $p_t$ the
# target's and $q_t$ the draft's distribution at position $t$ of a text, the share of such positions
# is called `hit[1]`:
#
# $$\mathrm{hit}[1] = \frac{1}{n} \sum_{t=1}^{n} \mathbf{1}
#   \left[\arg\max_x q_t(x) = \arg\max_x p_t(x)\right].$$
#
# Every position counts once. A decoder starts most blocks right after a rejection, where the text
# is hard, so its first drafted tokens are accepted less often ([04](04_depth_profile.ipynb)).

# %% tags=["by-hand"]
is_best = greedy.trace["draft_rank"] == 0  # the draft's rank of the target's own token
by_hand = is_best.groupby(greedy.trace["domain"], sort=False).mean()
print(by_hand.round(2).to_string())

# %% [markdown]
# An interval says how much a number would change with other prompts of the same kind: we draw as
# many prompts as there are, with replacement, 2,000 times ([12](12_how_sure.ipynb)).

# %%
ctx.say(prompt_sets.described(ctx.profile, is_sampled=False))
HIT = score.mean_of("hit", "hit[1]")
by_set = {name: each.shown(stats.by_domain(each.trace, HIT)) for name, each in sets.items()}
by_set = Estimates.stacked(by_set, "set")
own = by_set.at(set=prompt_sets.OWN).frame.set_index("domain")["estimate"]
assert np.allclose(own, by_hand[own.index])
ctx.plot(
    by_set,
    x="set",
    kind="bars",
    percent=True,
    limits=(0, 1),
    x_label="",
    y="best token accepted (%)",
    slug="sets",
    title="Best token accepted, by domain and prompt set",
    caption="Share of positions where the draft's best token is the target's. Bars: intervals over "
    "prompts.",
)

# %% [markdown]
# The table has the number of prompts behind each bar.

# %%
sizes = by_set.frame.set_index(["domain", "set"])["n_prompts"].unstack(sort=False)
notebook.show_table(sizes.reset_index(), 0)

# %% [markdown]
# ## 2. How large is the difference?
# First the question whether there is any: `p_value` belongs to the hypothesis that all domains of a
# set have the same mean (Alexander and Govern's test over prompts; variances may differ). Then its
# size, for the two domains that are the highest and the lowest **on the own prompts**. They were
# chosen there, so there the difference tends to be too large, the more so the more domains there
# are and the fewer prompts. A set that has the same texts in some domains shares this.


# %%
def spread_of(trace):
    """The highest minus the lowest domain of the own prompts, and the p-value of all domains."""
    per_prompt = trace.groupby(["domain", "prompt_id"], sort=False)["hit"].mean()
    test = alexandergovern(*(per_prompt[domain] for domain in domains))
    draws = stats.jointly({"hit": (trace, HIT)})
    difference = draws["hit"][best] - draws["hit"][worst]
    table = draws.table({f"{best} minus {worst}": difference})
    return table.frame.assign(p_value=test.pvalue)


# %%
differences = {}
if len(domains) > 1:
    best, worst = own[domains].idxmax(), own[domains].idxmin()
    for name, each in prompt_sets.with_all_domains(sets).items():
        if (each.prompts[domains] >= stats.MIN_PROMPTS).all():
            differences[name] = spread_of(each.trace[each.trace["domain"].isin(domains)])
    spreads = Estimates.stacked(differences, "set").in_units("points")
    shown = spreads.wide("set", "name").assign(p_value=spreads.frame["p_value"])
    ctx.table(
        spreads, "spreads", cells=shown, caption="Highest minus lowest domain on each prompt set"
    )
else:
    ctx.say("There are no two domains with five prompts or more, so there is nothing to compare.")

# %% [markdown]
# ## 3. What does "acceptance" mean?
# Six quantities are called acceptance or stand for it. Three average $\min(1, p/q)$ over the nodes
# of a draft tree, as the paper does. That rule is lossless for tokens **drawn** from $q$. The nodes
# are the draft's **best** tokens, so no lossless decoder accepts them this way
# ([00](00_by_hand.ipynb)). *Exact* means that it is the acceptance of a lossless decoder.
#
# | name | what | exact |
# | --- | --- | --- |
# | `published_alpha` | mean of $\min(1, p/q)$ over all nodes of the tree | no |
# | `best_path_ratio` | the same over the draft's best path | no |
# | `published_length` | the paper's expected length (Eq. 3) | no |
# | `hit[1]` | best token accepted, greedy text | yes |
# | `alpha` | a drawn token accepted, $\sum_x \min(p, q)$ | yes |
# | `block_efficiency` | tokens per target pass with this tree, greedy text | yes |

# %%
tree = replay.prompt_sums(greedy.tree(ctx.profile.tree))
SIX = {
    "published_alpha": (greedy.nodes, score.published_alpha),
    "best_path_ratio": (greedy.nodes, score.best_path_ratio),
    "published_length": (greedy.nodes, score.published_length),
    "hit[1]": (greedy.trace, HIT),
    "alpha": (sampled.trace, score.alpha),
    "block_efficiency": (tree, score.ratio_of("emitted", "blocks")),
}
ladder = {name: stats.by_domain(*question) for name, question in SIX.items()}
ladder = Estimates.stacked(ladder, "name").without(domain=[ALL, POOLED])
ctx.table(
    ladder,
    "ladder",
    rows="name",
    columns="domain",
    caption="Six definitions of acceptance by domain",
)

# %% [markdown]
# ## 4. The paper's Table I
# `published` has the numbers of the paper's pair, if the prompts have the paper's domains. `ours,
# as published` is the same procedure on this pair. `corrected` is `hit[1]`, and the entropy over
# the positions of the text instead of the nodes of the tree. Tables II and III are in `table-2.csv`
# and `table-3.csv`.

# %%
for number, slug in {"I": "table-1", "II": "table-2", "III": "table-3"}.items():
    table = published.comparison(number, greedy, tree=ctx.profile.tree)
    ctx.export(
        table.dropna(axis=1, how="all"),
        slug,
        cells=published.in_cells(table),
        caption="Tables of the paper, and the same quantities of this pair",
    )
    if number == "I":
        notebook.show_table(published.in_cells(table).drop(columns="estimator"))

# %%
answer = "We cannot compare: fewer than two domains have five prompts or more."
if differences:
    p_value = differences[prompt_sets.OWN]["p_value"].iloc[0]
    points = {name: 100 * each["estimate"].iloc[0] for name, each in differences.items()}
    answer = "No difference between the domains was found."
    if np.isnan(p_value):
        answer = "It cannot be tested on these prompts."
    elif p_value < level:
        answer = f"Yes. {best.capitalize()} is {points[prompt_sets.OWN]:.0f} points above {worst}"
        last = prompt_sets.last(sets)
        is_other = last.name != prompt_sets.OWN and last.name in points
        there = f", on {last.in_words} {points[last.name]:.0f}".replace("-", "\N{MINUS SIGN}")
        answer += f"{there if is_other else ''}."
right = 100 * own.mean()
ctx.record(headline=f"**{right:.0f} %** of the draft's best tokens are accepted")
ctx.answer(answer)

# %% [markdown]
# ## Try it
# By hand: the draft's two best tokens have $q$ = 0.5 and 0.4, and the target gives them $p$ = 0.6
# and 0.3. What is `published_alpha` of these two nodes? How likely is it that a decoder at T = 0
# accepts one of them, and at T = 1?
#
# <details><summary>Answer</summary>
# $\min(1, 0.6/0.5) = 1$ and $\min(1, 0.3/0.4) = 0.75$, so the mean is 0.875. At T = 0 the target's
# best token is one of the two, so one of them is accepted. At T = 1 one of the two is accepted with
# probability 0.6 + 0.3 = 0.9. One tree gives three different numbers.</details>
#
# ## What this does not show
# Why other prompts differ: they have other texts, another form, and no draft was trained on their
# form. Only a set that takes the wrapper away changes the form alone. Other pairs are in
# [13](13_public_runs.ipynb), and a prompt of your own may lie far from its domain's mean
# ([12](12_how_sure.ipynb)).
