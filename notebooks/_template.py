# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # NN. Which question does this notebook answer?

# %% tags=["parameters"]
profile: str = "smollm"  # the pair and its prompts: a name from notebooks/profiles, or a YAML file
overrides: dict = {}  # parameters of the profile to change, e.g. {"prompts_per_domain": 10}
largest_gamma: int = 16  # 1 to 64: the allowed values come first, then the meaning

# %% tags=["bootstrap", "hide-input"] jupyter={"source_hidden": true}
# The kit is around this folder or in the environment, else SPECLAB_REPO is cloned and installed.
import importlib.util, os, subprocess, sys

kit = next((p for p in (".", "..") if os.path.isdir(f"{p}/speclab/cli")), "speclab-kit")
if not os.path.exists(kit) and not importlib.util.find_spec("speclab"):
    subprocess.run(["git", "clone", "--depth=1", os.environ["SPECLAB_REPO"], kit], check=True)
sys.path.insert(0, os.path.abspath(kit))
from speclab.cli import hosted

hosted.prepare()

# %% jupyter={"source_hidden": true}
import numpy as np

from speclab import score, stats
from speclab.lab import prompt_sets
from speclab.lab.texts import Text
from speclab.estimates import Estimates
from speclab.score import POOLED
from speclab.show import notebook

RUNS = ["greedy", "others"]  # the kinds of run that the cells read (speclab/cli/run_plan.py)

# %%
ctx = notebook.start("NN_name", profile, overrides)
text = Text.recorded(ctx.profile, "greedy")  # the target's own text, with a draft tree per position
domains = stats.judged_domains(text.trace)  # domains with at least five prompts
if not domains:
    ctx.leave_out("needs a domain with five prompts or more")

# %% [markdown]
# Two or three sentences say why we ask. A notion that is new here has its formula:
#
# $$\mathrm{hit}[1] = \frac{1}{n} \sum_{t=1}^{n} \mathbf{1}
#   \left[\arg\max_x q_t(x) = \arg\max_x p_t(x)\right].$$
#
# ## 1. The heading of a cell says what it answers
# A cell with the tag `by-hand` computes a number step by step and prints it. It comes before the
# kit's own call.

# %% tags=["by-hand"]
by_hand = (text.trace["draft_rank"] == 0).groupby(text.trace["domain"]).mean()
by_hand.round(2)

# %%
hits = stats.by_domain(text.trace, score.mean_of("hit")).without(domain=POOLED)
kit = hits.frame.set_index("domain")["estimate"]
assert np.allclose(kit[domains], by_hand[domains])
ctx.plot(
    hits.at(domain=domains),
    x="domain",
    kind="points",
    y="best token accepted (%)",
    slug="hits",
    title="Best token accepted, by domain",
    caption="How to read the figure, and what to see. Bars: intervals over prompts.",
)

# %% [markdown]
# ## 2. Does it hold on other prompts?

# %%
ctx.say(prompt_sets.described(ctx.profile))
sets = prompt_sets.read(ctx.profile, text)
rows = {}
for name, each in sets.items():
    numbers = stats.by_domain(each.trace, score.mean_of("hit"))
    rows[name] = each.shown(numbers)  # without domains whose texts are those of another set
elsewhere = Estimates.stacked(rows, "set").in_units("%")
caption = "The best token accepted, by prompt set"
ctx.table(elsewhere, "other-prompts", rows="set", columns="domain", caption=caption)

# %%
# The verdict decides which of the written sentences is printed.
size = hits.at(domain=score.ALL)
ctx.answer(f"The target accepts the draft's best token {100 * size.value:.0f} times in 100.")

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# <details><summary>Answer</summary>
# The answer, and why.</details>
#
# ## What this does not show
# One paragraph. The last sentence names the notebook that goes on from here.
