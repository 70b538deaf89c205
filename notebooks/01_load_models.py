# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 1. What is a draft/target pair, and what would the target accept?
#
# A pair consists of two language models with one vocabulary. The small model, the **draft**,
# proposes tokens. The large model, the **target**, checks all of them in one pass. In greedy
# decoding the target accepts the longest path of proposals that it would have written itself, and
# adds one token of its own. The text is the same as without a draft, but it takes fewer target
# passes. The picture shows one proposal, a tree.
#
# ![A drafted tree with both models' probabilities at every node](../figures/smollm/01/tree.png)
#
# *Runs on* any machine · *time* under a minute on 2 cores, once the runs are recorded · *reads* the
# pair of the profile and its run `greedy` (recorded if it is missing) · *writes*
# `figures/<profile>/01/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# section 2 shows the tokens of this text
sample_text: str = "Solving 7x - 15 for x is unbelievably simple."  # any
wanted: int = 2  # 0 to 16; section 4 shows a tree with this number of accepted tokens
wanted_overlap: float = 0.6  # 0 to 1; section 5 shows a position with about this overlap

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
import pandas as pd
from IPython.display import HTML, display
from IPython.utils.capture import capture_output

from speclab import decode, prompts, runs, sampling, score
from speclab.estimates import counted
from speclab.shapes import Shape
from speclab.models import pairs
from speclab.show import drawings, notebook, pictures, redraw
from speclab.analysis import try_it
from speclab.explore import page
from speclab.studies import load_models as study

RUNS = ["greedy"]

# %%
ctx = notebook.start("01_load_models", profile, overrides)
pair = pairs.load_pair(ctx.profile)
run = runs.load_or_record(ctx.profile.replace(temperature=0.0), "greedy")
ctx.say(notebook.made_with(run.manifest["pair"], pair.facts))
settings, tokenizer = ctx.profile, pair.tokenizer
tree = settings.tree
texts = runs.texts_of(run)

# %% [markdown]
# ## 1. The two models
# A proposal is a token id, so both models must have the same vocabulary. Loading checks this. The
# column `kernel` is the class of the linear layers. The column `kv_kb` is the memory in kB that one
# token of context takes, for its keys and values in every layer.

# %%
with capture_output():  # the quantisation library's banner
    four_bit = study.four_bit_copy(settings.target)
ctx.table(study.models(pair, four_bit), "pair", digits=1)
if four_bit:
    ctx.say("The last row is a 4-bit copy of the target.")

# %%
size = {name: pair.facts[name]["parameters"] for name in ("target", "draft")}
output_ids = pair.facts["draft"]["tokens_said"]
outside = (run.trace["draft_rank"] >= output_ids).mean()
ctx.say(study.vocabulary_in_words(size, pair.vocab, output_ids, outside))

# %% [markdown]
# A **trimmed** draft reads all tokens but can propose only the tokens that the target writes often.
# This makes it faster. All other tokens have q = 0, so they are never drafted. The text does not
# change, since the target adds the missing tokens itself.

# %% [markdown]
# ## 2. What the models read: tokens
# A tokenizer divides text into pieces, and each piece has a number. The models see only these
# numbers. Below, ␣ stands for a space, ⏎ for a line end, and � for a part of a character that takes
# several tokens.

# %%
ids = tokenizer(sample_text)["input_ids"]
bare = tokenizer(sample_text, add_special_tokens=False)["input_ids"]
marks = ", with the marks that the tokenizer adds" if len(ids) > len(bare) else ""
ctx.say(
    f"`{sample_text}` has {len(sample_text)} characters and {counted(len(ids), 'token')}{marks}: "
    f"{study.listed(tokenizer, ids)}"
)

# %% [markdown]
# A prompt is a row of tokens too. With `template: chat` the target's own chat template surrounds
# the user's words, with the marks on which this model was trained. With `template: none` the models
# get the prompt unchanged. The shortest of the first prompts is shown below as the models get it.

# %%
known = runs.encoded_prompts(settings)
encoded = {prompt.prompt_id: prompt for prompt in known}
firsts = prompts.load_prompts(settings.prompts, 1, settings.domains)

# %%
given = [encoded[prompt.prompt_id] for prompt in firsts]
shortest = min(given, key=lambda prompt: len(prompt.ids))
ctx.say(
    f"Prompt `{shortest.prompt_id}` with template `{settings.template}` has "
    f"{counted(len(shortest.ids), 'token')}.\n\n~~~~text\n{tokenizer.decode(shortest.ids)}\n~~~~"
)

# %% [markdown]
# ## 3. What the target writes
# Without a draft, the target continues one or two of the prompts. At every step it takes its most
# likely token. This is called greedy decoding, or temperature T = 0. It stops at its end mark or at
# the limit. Speculative decoding will write exactly the same text. The sign ▌ separates the prompt
# from the continuation.

# %%
for prompt in firsts[1:3] or firsts:
    text = texts[prompt.prompt_id]
    words = prompt.text[-400:]  # the end of what the user wrote
    reply = tokenizer.decode(text, skip_special_tokens=True)
    ctx.say(
        f"The target continues prompt `{prompt.prompt_id}` ({prompt.domain}) with "
        f"{counted(len(text), 'token')}.\n\n"
        f"~~~~text\n{words}▌{reply}\n~~~~"
    )

# %% [markdown]
# ## 4. One drafted tree
# The draft proposes a tree. It consists of the draft's most likely next tokens, and after each of
# these tokens again the most likely next tokens. The profile limits the number of nodes, which can
# cut the deepest level. The **rank** of a node is the position of its token in the draft's order (0
# is the draft's best token). The **depth** is the number of drafted tokens from the context to the
# node. Each node shows the draft's probability **q** and the target's probability **p**. One target
# pass gives all p of the tree.
#
# A greedy target accepts a node if it is the target's most likely token (`target_rank` 0) and all
# nodes before it are accepted. We show the first recorded tree in which the target accepts `wanted`
# tokens and rejects the next. We skip trees with whitespace tokens, which are hard to read. If
# there is no such tree, we show the first tree with the most accepted tokens.

# %%
nodes = run.nodes.assign(accepted=score.reach(run.nodes))
drafted = nodes["token"].unique()
blank = [token for token in drafted if not tokenizer.decode([int(token)]).strip()]
where, at = study.wanted_tree(nodes, tree, wanted, blank)

# %%
text = texts[where]
one_tree = nodes[(nodes["prompt_id"] == where) & (nodes["position"] == at)]
one_tree = one_tree.assign(
    accepted=one_tree["accepted"] == 1,
    ratio=score.ratio(one_tree),
    text=[tokenizer.decode([token]) for token in one_tree["token"]],
)

# %%
path = one_tree.loc[one_tree["accepted"], "token"].tolist()
path = path[: len(text) - at]  # the last block ends with the text
emitted = list(text[at : at + len(path) + 1])
context = tokenizer.decode([*encoded[where].ids, *text[:at]])

# %%
trunk = {"text": context, "draft_prob": 1, "target_prob": 1, "accepted": True}
drawn = pd.concat([pd.DataFrame([trunk]), one_tree])
picture = redraw.tree_frame(tree, *(drawn[name] for name in trunk))
ctx.draw(
    drawings.draw_tree,
    picture,
    "tree",
    f"The draft tree at position {at} of the target's text for prompt {where}. Each box shows a "
    "drafted token with its probabilities q and p. The accepted tokens are green.",
    f"The target accepts {len(path)} of the {tree.size} tokens of this tree",
)

# %%
ctx.table(study.node_table(one_tree), "tree-nodes")

# %%
kept, own = (study.listed(tokenizer, tokens) for tokens in (path, emitted[len(path) :]))
ctx.say(study.tree_in_words(len(path), tree.size, kept, own if len(emitted) > len(path) else ""))
assert emitted[: len(path)] == path or run.manifest["not_argmax"], (
    "these are the target's own tokens"
)

# %% [markdown]
# ## 5. Two of the numbers that are called acceptance
# At T = 0 only one question matters: which token has the largest p? At T = 1 each token is drawn
# from p, and q matters too. A token that was **drawn** from q is accepted with probability min(1,
# p/q). This is 1 if p ≥ q, and it is smaller the more q exceeds p. The mean over all tokens that q
# may draw is the **overlap** of the two distributions, the sum of min(p, q). It is 1 if they are
# the same and 0 if they share nothing. The mean overlap over positions is the estimator `alpha`.
#
# The paper averages something else, the column `ratio` of the table above (min(1, p/q) of each
# node). This kit calls the paper's measure `published_alpha`. But the tokens of a tree are the
# draft's best tokens and are not drawn from q. So no lossless decoder accepts them with these
# probabilities.
#
# The figure shows the next token at a recorded position with about the overlap `wanted_overlap`.

# %%
row = study.near_overlap(run.trace, wanted_overlap)
favourites = study.favourites(row, tokenizer)
here, at_token, overlap = row[["prompt_id", "position", "overlap"]]

# %%
ctx.draw(
    drawings.draw_overlap,
    favourites,
    "overlap",
    f"Next token at position {at_token} of the text for prompt {here}. Green plus hatched is q, "
    f"and green plus orange is p. Green is min(p, q), in total {overlap:.2f} (the overlap). "
    f"Hatched (rejected) and orange (recovered) each sum to {1 - overlap:.2f}.",
    f"At this position the target accepts {100 * overlap:.0f} % of the tokens that the draft draws",
)

# %% tags=["by-hand"]
q, p, _ = favourites.iloc[0]  # of the draft's best token
ratio = min(1, p / q)

# %%
ctx.say(
    f"The draft's best token has q = {q:.2f} and p = {p:.2f}. If the draft draws this token, it is "
    f"accepted with probability min(1, p/q) = {ratio:.2f}. Averaged over the tokens that the draft "
    f"may draw, the probability of acceptance is **{overlap:.2f}**, the overlap."
)

# %% [markdown]
# ## 6. The whole text
# The decoder writes the continuation of the prompt of section 4, tree after tree. A bar stands
# before each target pass. The colours show the **accepted** tokens of the draft, the **recovered**
# tokens of the target after a rejection, and the **bonus** tokens after a fully accepted path.

# %%
shape, limit = Shape(tree), settings.max_new_tokens
decoded = decode.decode_prompt(pair, encoded[where], "greedy", shape, sampling.Sampling(), limit)
strings = pictures.strings_of(tokenizer)
display(HTML(pictures.as_html(decoded.steps, strings)))

# %%
# The first recorded texts with any gamma or tree: choose a token to see why it was accepted or
# rejected. (A headless run shows only the text above.)
page.show("text", "tree", runs=[run], per_domain=2)

# %%
equal = decoded.token_ids == text
ctx.say(f"The decoder's text {'equals' if equal else 'differs from'} the recorded text.")
assert equal or not pair.is_exact

# %% [markdown]
# In an open notebook you can type a text of your own here and press Decode. Notebook 12 shows more
# of this.

# %%
if notebook.is_open():
    display(try_it.prompt_cell(pair, settings, sample_text))

# %% [markdown]
# The recorded run has a tree as in section 4 for every position of every text. The other notebooks
# read this run, and most of their questions need no model any more.

# %%
ctx.answer(
    study.pair_in_words(size, len(path), tree.size, len(decoded.token_ids), len(decoded.steps))
)

# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# 1. By hand: at the root a draft has q = 0.6 and 0.3 for its two best tokens A and B. The target
#    has p = 0.3 and 0.5. What does a greedy target accept? What is `ratio` of each node? What is
#    the overlap, if all other tokens together have q = 0.1 and p = 0.2, each with p above q?
#
# <details><summary>What happens</summary>
# The target accepts B, the draft's second choice, because 0.5 is the largest p. A chain with A
# alone would have gained nothing. min(1, p/q) is 0.3/0.6 = 0.5 for A and 1 for B. The overlap is
# 0.3 + 0.3 + 0.1 = 0.7. So the target rejects rank 0 here and accepts rank 1.</details>
#
# 2. Set `wanted` to 0, then to the depth of the tree. What do p and q look like in each picture?
#
# <details><summary>What happens</summary>
# With 0, every proposal at depth 1 misses the target's best token. The pass gives one token, as
# plain decoding would, and the draft's work is wasted. If `wanted` is the depth, the target can
# reject nothing after it. So the notebook shows the first tree with the most accepted tokens. A
# high q does not guarantee acceptance, and a low q does not exclude it.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: a pair, its tokens and its texts. One tree, and the part that a greedy target
#   accepts. Two different numbers that are both called acceptance.
# * What this does not show: anything general. We chose one tree at one position by its result.
# * Next: notebook 02 asks how many tokens to draft. Notebook 03 asks what acceptance is, domain by
#   domain.
