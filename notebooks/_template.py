# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # NN. Which question does this notebook answer?
#
# One paragraph: why this is asked, and under which estimator (a name from GLOSSARY.md). The answer
# itself is computed: `ctx.answer` in the last code cell fills the first output.
#
# ![The figure that carries the answer](../figures/smollm/NN/slug.png)
#
# *Runs on* any machine · *minutes* less than one on 2 cores · *reads* the run `greedy` of the
# profile (recorded if it is not there) · *writes* `figures/<profile>/NN/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
largest_gamma: int = 16  # 1 to 64; what is allowed comes first, then what it is

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

from speclab import runs, stats
from speclab.analysis.texts import Text
from speclab.estimates import Estimates
from speclab.show import notebook

# Declare here which kinds of run the cells ask for (speclab/runs.py, and run_plan.py in
# speclab/ops for `seeds`, `others` and the like), so that `python -m speclab plan` knows them:
RUNS = ["greedy"]
# And which files the cells read, of data/ and of other notebooks' tables:
# READS = ["data/paper", "08/self-drafts.csv"]

# %%
ctx = notebook.start("NN_name", profile, overrides)
at_0 = ctx.profile.replace(temperature=0.0)
text = Text.of(runs.load_or_record(at_0, "greedy"))

# %% [markdown]
# ## A sub-question
# One or two sentences: what is computed, on which records, and what would surprise us.

# %%
found = Estimates(stats.by_domain(text.trace, text.acceptance))
ctx.table(found, "acceptance", cells=found.wide("estimator", "domain"))

# %% [markdown]
# The formula that is taught, by hand:

# %%
each = found.at(domain=list(ctx.profile.domains))
trace = text.trace
by_hand = (trace["draft_rank"] == 0).groupby(trace["domain"]).mean()
assert np.allclose(by_hand[each.frame["domain"]], each.frame["estimate"])

# %%
ctx.plot(
    each,
    x="domain",
    kind="points",
    y="hit[1] (T = 0)",
    slug="slug",
    caption=f"hit[1] by domain: {each.span()}.",
)

# %%
ctx.record(largest_hit=float(each.frame["estimate"].max()))
ctx.answer(
    f"On {ctx.profile.name} the draft's best token is accepted (`hit[1]`, T = 0) in "
    f"{each.listed()}."
)

# %% [markdown]
# ## Try it
# Change one thing and say beforehand what will happen.
#
# <details><summary>What happens</summary>The answer, and why.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: the sentences above.
# * What this does not show: …
# * Next: the notebook that goes on from here.
