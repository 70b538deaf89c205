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

# %% tags=["bootstrap", "hide-input"] jupyter={"source_hidden": true}
# Colab and Kaggle: fetches the kit and installs what is missing. In a checkout it only moves to the
# repository's root.
import os, shutil, subprocess, sys
from pathlib import Path

here, kit, is_kit = (
    Path.cwd(),
    Path("speclab-kit").resolve(),
    "speclab/show/notebook.py",
)
root = next((p for p in (here, *here.parents, kit) if (p / is_kit).is_file()), None)
origin = "here already; remove it to fetch another"
if root is None:
    address, half = os.environ.get("SPECLAB_REPO"), Path("speclab-kit.half").resolve()
    attached = min(Path("/kaggle/input").rglob(is_kit), default=None)
    why = "set SPECLAB_REPO to the kit's git address, or attach the kit as a data set"
    shutil.rmtree(half, ignore_errors=True)
    if address:  # wins over what is attached
        os.environ["GIT_TERMINAL_PROMPT"], origin = "0", f"from {address}"
        git = ["git", "clone", "--depth", "1", address, str(half)]
        said = subprocess.run(git, capture_output=True, text=True).stderr
        said = said.partition("fatal: ")[2].split("\n")[0] or "no kit is there"
        why = f"SPECLAB_REPO={address}: {said}"
    elif attached:  # read-only; the copy is not
        origin = f"from {attached.parents[2]}"
        shutil.copytree(attached.parents[2], half, copy_function=shutil.copyfile)
        for folder, *_ in os.walk(half):
            os.chmod(folder, 0o755)
    if kit.exists():
        why = f"{kit} is in the way, remove it"
    if kit.exists() or not (half / is_kit).is_file():
        shutil.rmtree(half, ignore_errors=True)
        raise SystemExit(f"No kit here: {why}.")
    root = half.rename(kit)
os.chdir(root)
sys.path.insert(0, str(root))
if root == kit:
    from speclab.show.notebook import install_missing

    about = Path("pyproject.toml").read_text(encoding="utf-8")
    version = about.partition('version = "')[2].partition('"')[0]
    print(f"speclab {version} in {root}, {origin}")
    install_missing(root)

# %% jupyter={"source_hidden": true}
import numpy as np

from speclab import runs, stats
from speclab.analysis.texts import Text
from speclab.show import notebook
from speclab.show.estimates import Estimates

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
largest_gamma: int = 16  # 1 to 64; what is allowed comes first, then what it is

# %%
ctx = notebook.start("NN_name", profile, overrides)
at_0 = ctx.profile.replace(temperature=0.0)
text = Text.of(runs.load_or_record(at_0, "greedy"))

# %% [markdown]
# ## A sub-question
# One or two sentences: what is computed, on which records, and what would surprise us.

# %%
found = Estimates(stats.by_domain(text.positions, text.acceptance))
ctx.table(found.wide("estimator", "domain"), "acceptance")

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
