# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 12. How does the pair decode a prompt of yours?
#
# Averages hide what happens in one text. Here you type a prompt and see which tokens the draft
# predicted and how many tokens one target pass gave. The text is the same that the target alone
# would write.
#
# ![The draft of one block with the probabilities of both models](../figures/smollm/12/tree.png)
#
# *Runs on* any machine · *time* under a minute on 2 cores · *reads* the pair of the profile ·
# *writes* `figures/<profile>/12/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"max_prompt_tokens": 900}
prompt: str = "How many apples are left if Tom has 12 apples and eats 5?"  # any
# greedy for temperature 0, one of the others above it
rule: str = "greedy"  # one of greedy, rejection, point-mass, without-replacement
shape: str = "chain:4"  # any; such as tree:3,2,8, dynamic:4,4,8 or plain
temperature: float = 0.0  # 0 to 10
new_tokens: int = 64  # 1 to 65536; at most this many tokens are written
seed: int = 0  # 0 to 4294967295; decides a sampled text

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
# The cell needs an open notebook. In an exported page only section 2 is there. The tokens appear
# block by block, and each block is one target pass. In an open notebook the tokens
# **accepted** from the draft are green.
# The last token of a block is the target's own. It is **recovered** after a rejection, or a
# **bonus** if nothing was rejected.
#
# | field | meaning |
# | --- | --- |
# | `block` | the block whose draft is drawn, counted from 1 (0: the notebook chooses one) |
# | `chain:4` | four tokens in a row |
# | `tree:3,2,8` | a tree of depth 3 with 2 branches per node and at most 8 tokens |
# | `dynamic:4,4,8` | the 8 most likely tokens of a deeper tree |
# | `plain` | no draft |
#
# At temperature 0 the rule is `greedy`. To stop a long text, interrupt the
# kernel.

# %%
if notebook.is_open():
    display(try_it.prompt_cell(pair, ctx.profile, **typed, seed=seed))

# %% [markdown]
# ## 2. The example prompt
# The pair decodes the prompt that the parameters at the top of the notebook name.

# %%
ctx.say(f"The prompt is: `{prompt}`")
steps = list(try_it.blocks(pair, request, seed))
display(HTML(pictures.as_html(steps, strings)))

# %% [markdown]
# In plain decoding the target writes alone, one token per pass. We compare its text with the text
# above.

# %%
text = try_it.tokens_in(steps)
plain = try_it.plain_text(pair, request, seed)
sampling = request["sampling"]
ctx.say(try_it.plain_in_words(sampling, text, plain))
if sampling.greedy and pair.is_exact:
    assert text == plain, "the text is the target's"

# %% [markdown]
# The figure shows the draft of one block with the probabilities of both models. (At temperature 0
# it shows the probabilities at temperature 1.)

# %%
number = try_it.telling_block(steps)
picture, title, result = try_it.draw_block(pair, request, steps, number, strings)
ctx.draw(
    drawings.draw_tree,
    picture,
    "tree",
    "Each box shows a drafted token with the draft's probability q and the target's probability p. "
    f"Accepted tokens and the context are filled, and ␣ is a space. {result}",
    title,
)

# %%
ctx.answer(try_it.passes_in_words(len(text), len(steps)))
ctx.record(block_efficiency=len(text) / len(steps))

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# 1. Decode the same prompt with `chain:1`, `chain:4` and `chain:16`. Which chain needs the fewest
#    target passes?
#
# <details><summary>What happens</summary>
# A longer chain never needs more passes for the same greedy text. But each block drafts all of its
# tokens, and the tokens after the first rejection are thrown away. So decoding becomes slower
# beyond some length. Notebook 02 estimates this length, and notebook 10 measures it.</details>
#
# 2. Type the beginning of a list, such as `1, 2, 3, 4,`. Then type a sentence that nobody has
#    written before. Where is the draft better?
#
# <details><summary>What happens</summary>
# Repetition is easy to predict for a small model too, so the blocks become long. Where the text
# takes a turn, the draft is wrong, and the target adds its own token.</details>
#
# 3. Set the temperature to 1 and the rule to `rejection`, and press Decode with a few seeds. Does
#    one target pass give more tokens than at temperature 0, or fewer?
#
# <details><summary>What happens</summary>
# Mostly fewer. A drawn token is accepted only with probability min(1, p/q), and a sampled text
# repeats itself less. One text proves nothing. Notebook 02 studies many prompts.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: the tokens of one text, block by block. A lossless rule does not change the text,
#   whatever the draft proposes.
# * What this does not show: an average, since one prompt is an example. It does not show speed,
#   which notebook 10 measures.
# * Next: notebook 02 asks how many tokens to draft. Notebook 09 asks which prompts should get which
#   draft.
