# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 12. What does the pair make of a prompt of your own?
#
# Averages hide what happens to one text. Here you type a prompt and see which tokens the draft
# guessed, and how many a pass of the target gave. The text is the one that the target alone would
# write.
#
# ![What was drafted in one block, and what each model thought of it](../figures/smollm/12/tree.png)
#
# *Runs on* any machine · *minutes* less than one on 2 cores · *reads* the pair of the profile ·
# *writes* `figures/<profile>/12/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"max_prompt_tokens": 900}
prompt: str = "How many apples are left if Tom has 12 apples and eats 5?"  # any
# above temperature 0: rejection, point-mass or without-replacement
rule: str = "greedy"  # one of greedy, rejection, point-mass, without-replacement
shape: str = "chain:4"  # any; as tree:3,2,8, dynamic:4,4,8, plain
temperature: float = 0.0  # 0 to 10
new_tokens: int = 64  # 1 to 65536; at most
seed: int = 0  # 0 to 4294967295; of a sampled text

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
from IPython.display import HTML, display

from speclab.models import pairs
from speclab.show import drawings, notebook, pictures
from speclab.analysis import try_it

RUNS = []

# %%
ctx = notebook.start("12_try_it", profile, overrides)
pair = pairs.load_pair(ctx.profile)
ctx.say(f"This notebook decodes in {notebook.formats(pair.facts)}.")
strings = pictures.strings_of(pair.tokenizer)
typed = {"prompt": prompt, "rule": rule, "shape": shape, "temperature": temperature}
typed |= {"new_tokens": new_tokens}
request = try_it.request(pair, ctx.profile, **typed)

# %% [markdown]
# ## 1. Type
# The tokens come a block at a time, a block being one pass of the target. Green ones were
# **accepted** from the draft; the last of a block is the target's own: **recovered** after a
# rejection, or a **bonus** where nothing was rejected. `block`: whose draft is drawn below, from 1;
# 0 takes one that tells much. `chain:4` drafts four tokens in a row, `tree:3,2,8` a tree of depth 3
# with 2 branches and at most 8 tokens, `dynamic:4,4,8` the 8 likeliest of a deeper one, `plain`
# nothing; at temperature 0 the rule is `greedy`. What runs too long, the kernel's interrupt stops.
# (The cell needs a kernel: in a page that was exported only section 2 is there.)

# %%
if notebook.is_open():
    display(try_it.prompt_cell(pair, ctx.profile, **typed, seed=seed))

# %% [markdown]
# ## 2. The same once, from the parameters

# %%
steps = list(try_it.blocks(pair, request, seed))
display(HTML(pictures.as_html(steps, strings)))

# %% [markdown]
# Plain decoding of the same prompt: the target alone, one token per pass.

# %%
text = try_it.tokens_in(steps)
plain = try_it.plain_text(pair, request, seed)
sampling = request["sampling"]
ctx.say(try_it.plain_in_words(sampling, text, plain))
if sampling.greedy and pair.is_exact:
    assert text == plain, "the text is the target's"

# %% [markdown]
# One of its blocks, drawn: what the draft proposed, and what each model thought of it. (At
# temperature 0 the probabilities are those at temperature 1.)

# %%
number = try_it.telling_block(steps)
picture, words = try_it.draw_block(pair, request, steps, number, strings)
ctx.draw(drawings.draw_tree, picture, "tree", caption=words)

# %%
per_pass = len(text) / len(steps)
ctx.answer(
    f"On `{ctx.profile.name}` the prompt of the parameters gives {per_pass:.2f} tokens per target "
    "pass (one prompt)."
)
ctx.record(block_efficiency=per_pass)

# %% [markdown]
# ## Try it
# Say beforehand what will happen, then look.
#
# 1. Ask the same with `chain:1`, `chain:4` and `chain:16`. Which needs the fewest target passes?
#
# <details><summary>What happens</summary>
# Never more passes with the longer chain on the same greedy text, but each block drafts all of its
# tokens, wanted or not: after the first rejection they are thrown away. So there is a length beyond
# which decoding gets slower. Notebook 02 finds it, notebook 10 measures it.</details>
#
# 2. Type the beginning of a list, as `1, 2, 3, 4,`, and then a sentence that nobody has written
#    before. Where is the draft better?
#
# <details><summary>What happens</summary>
# What repeats is easy to guess for the small model too: blocks become long. Where the text turns,
# the draft is wrong, and the target puts in its own token.</details>
#
# 3. Set the temperature to 1, the rule to `rejection`, and press Decode with a few seeds. Are there
#    more tokens per pass than at temperature 0, or fewer?
#
# <details><summary>What happens</summary>
# Mostly fewer: a drawn token is kept with probability min(1, p/q) only, and a sampled text falls
# into fewer loops. One text proves nothing; notebook 02 asks that of 200.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: the sentences above. Whatever is drafted, a lossless rule leaves the text the
#   target's.
# * What this does not show: an average, since one prompt is an example; and speed, which notebook
#   10 measures.
# * Next: notebook 02 asks how many tokens should be drafted, notebook 09 for whom how much.
