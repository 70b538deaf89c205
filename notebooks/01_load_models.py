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
# Two language models over one vocabulary: a small one, the **draft**, proposes tokens, and a large
# one, the **target**, checks them all in a single pass. In greedy decoding it accepts the longest
# path of proposals that it would have written itself, and adds one token of its own: the text is
# the target's, in fewer passes. The picture is one such proposal, a tree.
#
# ![A drafted tree with both models' probabilities at every node](../figures/smollm/01/tree.png)
#
# *Runs on* any machine · *minutes* less than one on 2 cores, once the runs are there · *reads* the
# pair of the profile and its run `greedy` (recorded if it is not there) · *writes*
# `figures/<profile>/01/`.

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
# shown in tokens
sample_text: str = "Solving 7x - 15 for x is unbelievably simple."  # any
# draw the first tree of which the greedy target accepts so many tokens, and rejects the next
wanted: int = 2  # 0 to 16
# draw p and q at a position with about this overlap
wanted_overlap: float = 0.6  # 0 to 1

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
import pandas as pd
from IPython.display import HTML, display
from IPython.utils.capture import capture_output

from speclab import decode, prompts, runs, sampling, score
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
# Loading checks that both models have the same vocabulary (a proposal is a token id: it must mean
# the same to both), that a tree packed into one pass scores as its paths do, and that the memory is
# there. `kernel` is the class of the linear layers: with a quantised model it says which
# implementation was found for this machine. Where the profile's target has a 4-bit copy beside it,
# it is loaded the same way and stands in the same table. `kv_kb` is what one token of context keeps
# in memory: its keys and values in every layer.

# %%
with capture_output():  # the quantisation library's banner
    four_bit = study.four_bit_copy(settings.target)
ctx.table(study.models(pair, four_bit), "pair", digits=1)

# %%
size = {name: pair.facts[name]["parameters"] for name in ("target", "draft")}
said = pair.facts["draft"]["tokens_said"]
unsaid = (run.trace["draft_rank"] >= said).mean()
ctx.say(
    f"The target has **{size['target'] / size['draft']:.1f} times** the parameters of the draft; "
    f"both share {pair.vocab:,} token ids. The draft can output {said:,} of them. Outside these "
    f"are {unsaid:.1%} of the recorded tokens."
)

# %% [markdown]
# A **trimmed** draft says fewer tokens than it reads, those that the target writes often, which
# makes it faster. All others have q = 0: they are never drafted, and the text is the target's all
# the same, since the target puts in what is missing. (Of such a draft read `overlap`, not `kl`,
# which is infinite where q = 0 and p is not.)

# %% [markdown]
# ## 2. What the models read: tokens
# A tokenizer cuts text into pieces that have a number each; the models know only these numbers.
# Spaces and line ends are drawn as ␣ and ⏎; � is a part of a character that takes several tokens.
# Below, a short text.

# %%
ids = tokenizer(sample_text)["input_ids"]
ctx.say(
    f"`{sample_text}`: {len(sample_text)} characters, {len(ids)} tokens (with the mark that begins "
    f"a text, if there is one): {study.listed(tokenizer, ids)}"
)

# %% [markdown]
# A prompt is such a row of tokens too. With `template: chat` the target's own chat template stands
# around the user's words, with the marks that this model was trained on; with `none` a prompt is
# given as it is. This is the shortest of the first ones, as the models get it:

# %%
known = runs.encoded_prompts(settings)
encoded = {prompt.prompt_id: prompt for prompt in known}
firsts = prompts.load_prompts(settings.prompts, 1, settings.domains)

# %%
given = [encoded[prompt.prompt_id] for prompt in firsts]
shortest = min(given, key=lambda prompt: len(prompt.ids))
ctx.say(
    f"Template `{settings.template}`, prompt `{shortest.prompt_id}`, {len(shortest.ids)} tokens:"
    f"\n\n~~~~text\n{tokenizer.decode(shortest.ids)}\n~~~~"
)

# %% [markdown]
# ## 3. What the target writes
# The first prompt of each domain, continued by the target alone, greedily: the most likely token at
# every step (this is called temperature T = 0), until it writes its end mark or the limit is
# reached. Speculative decoding will write exactly this. One or two of the recorded texts are shown;
# ▌ stands between the end of what the user wrote and the continuation.

# %%
for prompt in firsts[1:3] or firsts:
    text = texts[prompt.prompt_id]
    words = prompt.text[-400:]  # the end of what the user wrote
    reply = tokenizer.decode(text, skip_special_tokens=True)
    ctx.say(
        f"**{prompt.domain}**, prompt `{prompt.prompt_id}`; {len(text)} new tokens\n\n"
        f"~~~~text\n{words}▌{reply}\n~~~~"
    )

# %% [markdown]
# ## 4. One drafted tree
# Instead of one token the draft proposes a tree: its most likely next tokens, and below them the
# most likely ones after those. **rank** is a token's place in the draft's order among its siblings
# (0 = the draft's favourite, drawn on top), **depth** the number of drafted tokens from the context
# to it. At every node stand **q**, the probability that the draft gives that token there, and
# **p**, the target's. The target gets all the p of a tree from one pass.
#
# A greedy target accepts a node if the node is its own most likely token (`target_rank` 0) and so
# is every node above it. The tree drawn is the first of the recorded run in which the target
# accepts `wanted` tokens and then rejects what the draft put below them (white space apart: its
# trees are hard to read); where a run has no such tree, the first with the most accepted tokens.

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
path = path[: len(text) - at]  # where a text ends, so does its last block
emitted = list(text[at : at + len(path) + 1])
context = tokenizer.decode([*encoded[where].ids, *text[:at]])

# %%
trunk = {"text": context, "draft_prob": 1, "target_prob": 1, "accepted": True}
drawn = pd.concat([pd.DataFrame([trunk]), one_tree])
picture = redraw.tree_frame(tree, *(drawn[name] for name in trunk))
caption = f"One drafted tree: of its {tree.size} tokens the greedy target accepts {len(path)}."
ctx.draw(drawings.draw_tree, picture, "tree", caption)

# %%
ctx.table(study.node_table(one_tree), "tree-nodes")

# %%
kept, own = (study.listed(tokenizer, tokens) for tokens in (path, emitted[len(path) :]))
own = f"adds its own: {own}" if len(emitted) > len(path) else "the text ends there"
ctx.say(
    f"This is position {at} of prompt `{where}`. The greedy target accepts **{len(path)}** of the "
    f"{tree.size} drafted tokens ({kept}) and {own}. **Tokens from this pass: {len(emitted)}**, "
    "where a pass of plain decoding gives one."
)
assert emitted[: len(path)] == path or run.manifest["not_argmax"], "the target's own tokens"

# %% [markdown]
# ## 5. p, q, alpha, overlap
# Acceptance at temperature T = 0 asks one thing of p: which token is its largest? When text is
# sampled (T = 1: a token is drawn from p as it is), the comparison with q counts too. A token that
# was **drawn** from q is kept with probability min(1, p/q): surely where the target likes it at
# least as much as the draft does, less often where the draft is too sure of it. The mean of that
# over the tokens that q may draw is the **overlap** of the two distributions, the sum over all
# tokens of min(p, q): 1 if they are the same, 0 if they share nothing.
#
# The column `ratio` above is min(1, p/q) of each node. Mind the names: the paper averages this
# column over all nodes and calls it acceptance (`published_alpha` in this kit). But a tree's tokens
# are not drawn from q, they are its favourites: nothing accepts them with that probability. The
# exact acceptance of one drawn token is the overlap; the mean of that over positions is the
# estimator `alpha`.

# %% [markdown]
# Here is a position of a recorded text at which the two overlap about as much as `wanted_overlap`
# says, with both models' distributions of its next token as they were recorded:

# %%
row = study.near_overlap(run.trace, wanted_overlap)
favourites = study.favourites(row, tokenizer)
here, at_token, overlap = row[["prompt_id", "position", "overlap"]]

# %%
ctx.draw(
    drawings.draw_overlap,
    favourites,
    "overlap",
    caption=f"The token at position {at_token} of prompt {here}. Grey: probability that both "
    f"models assign (the overlap, {overlap:.2f} in total). Blue: the draft's excess "
    f"({1 - overlap:.2f}), which is rejected. Orange: the draft's shortfall (as much), which is "
    "recovered instead.",
)

# %%
q, p, _ = favourites.iloc[0]
ratio = min(1, p / q)
ctx.say(
    f"The draft's favourite has q = {q:.2f} and p = {p:.2f}. If it is what was drawn, "
    f"it is kept with probability min(1, p/q) = {ratio:.2f}. Over all that could be drawn, a token "
    f"is kept with probability **{overlap:.2f}**. (How a rejected token is replaced, so that the "
    "text stays the target's: notebook 00.)"
)

# %% [markdown]
# ## 6. The whole text, as a decoder makes it
# Tree after tree, the decoder writes the continuation of the prompt of section 4. A bar stands
# before each target pass. Coloured are the tokens that were **accepted** from the draft,
# **recovered** by the target after a rejection, or added as a **bonus** when a whole path was
# accepted.

# %%
shape, limit = Shape(tree), settings.max_new_tokens
decoded = decode.decode_prompt(pair, encoded[where], "greedy", shape, sampling.Sampling(), limit)
strings = pictures.strings_of(tokenizer)
display(HTML(pictures.as_html(decoded.steps, strings)))

# %%
# The first recorded texts, replayed under any draft: choose a token, and see why it was kept or
# rejected. (A headless run shows the text above only.)
page.show("text", "tree", runs=[run], per_domain=2)

# %%
equal = decoded.token_ids == text
ctx.say(f"The decoder's text {'equals' if equal else 'differs from'} the recorded text.")
assert equal or not pair.is_exact

# %% [markdown]
# And a text of your own: type, and press Decode. (It needs a kernel: where this notebook is run
# headless or read as a page, the text above stands for it. Notebook 12 asks more of it.)

# %%
if notebook.is_open():
    display(try_it.prompt_cell(pair, settings, sample_text))

# %% [markdown]
# Every position of every continuation got such a tree: this is the run that the notebooks read, and
# what they ask of it needs no model any more.

# %%
ends = "adds one" if len(emitted) > len(path) else "ends the text"
tokens, passes = len(decoded.token_ids), len(decoded.steps)
ctx.answer(
    f"On `{settings.name}` a draft of {size['draft'] / 1e6:.1f} million parameters works for a "
    f"target of {size['target'] / 1e6:.1f} million. In the example tree the greedy target accepts "
    f"{len(path)} of {tree.size} drafted tokens and {ends}. The whole text of {tokens} tokens "
    f"takes {passes} target passes: {tokens / passes:.2f} tokens per target pass."
)

# %% [markdown]
# ## Try it
# Say beforehand what will happen, then look.
#
# 1. By hand: at the root, a draft has q = 0.6 and 0.3 for its two favourites A and B, and the
#    target p = 0.3 and 0.5. What does a greedy target accept? What is `ratio` of each node? And the
#    overlap, if all other tokens have q = 0.1 and p = 0.2 together, each with p above q?
#
# <details><summary>What happens</summary>
# B, the draft's second choice: 0.5 is the largest p. A chain, which holds A alone, would have got
# nothing. min(1, p/q) of A is 0.3/0.6 = 0.5, of B it is 1. The overlap is 0.3 + 0.3 + 0.1 = 0.7. So
# rank 0 is rejected here and rank 1 accepted, although A is what the draft is surest of.</details>
#
# 2. Set `wanted` to 0, then to the depth of the tree. What do p and q look like in each picture?
#
# <details><summary>What happens</summary>
# With 0, every proposal at depth 1 misses the target's best token: the pass gives one token, as
# plain decoding would, and the draft's work was in vain. A tree that is accepted down to its last
# level has nothing below to reject, so that the notebook falls back to the first tree with the most
# accepted tokens. A high q is no sign of acceptance, and a low one none of rejection: look for
# nodes where q and p disagree.</details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: a pair, its tokens and its texts; one tree, what a greedy target accepts of it, and
#   two numbers (min(1, p/q) of a node, and the overlap of two distributions) that are both called
#   acceptance and are not the same.
# * What this does not show: anything general. One tree at one position was drawn, chosen by what
#   was accepted of it.
# * Next: notebook 02 asks how many tokens to draft; notebook 03 what acceptance is, domain by
#   domain.
