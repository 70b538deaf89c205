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
import pandas as pd
from IPython.display import HTML, display
from IPython.utils.capture import capture_output

from speclab import decode, draft, prompts, record, runs, score
from speclab.models import pairs
from speclab.show import figures, notebook, pictures
from speclab.analysis import try_it
from speclab.explore import page
from speclab.studies import load_models as study

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

# %%
ctx = notebook.start("01_load_models", profile, overrides)
pair = pairs.load_pair(ctx.profile)
run = runs.load_or_record(ctx.profile.replace(temperature=0.0), "greedy")
ctx.say(notebook.made_with(run.manifest["pair"], pair.facts))
tree, tokenizer = ctx.profile.tree, pair.tokenizer

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
    four_bit = study.four_bit_copy(ctx.profile.target)
models = study.models(pair, four_bit)
ctx.table(models, "pair", digits=1)

# %%
size = {name: pair.facts[name]["parameters"] for name in ("target", "draft")}
said = pair.facts["draft"]["tokens_said"]
unsaid = (run.trace["draft_rank"] >= said).mean()
ctx.say(
    f"The target has **{size['target'] / size['draft']:.1f} times** the parameters of the draft; "
    f"both share {pair.vocab:,} token ids. The draft can output {said:,} of them. Outside these "
    f"are {unsaid:.1%} of the recorded tokens."
)
assert pair.target.vocab == pair.draft.vocab == pair.vocab

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
settings = ctx.profile
every = runs.profile_prompts(settings)
encoded = prompts.encode_prompts(tokenizer, every, settings.max_prompt_tokens, settings.template)
firsts = [next(one for one in encoded if one.domain == at) for at in settings.domains]

# %%
shortest = min(firsts, key=lambda prompt: len(prompt.ids))
ctx.say(
    f"Template `{settings.template}`, prompt `{shortest.prompt_id}`, {len(shortest.ids)} tokens:"
    f"\n\n~~~~text\n{tokenizer.decode(shortest.ids)}\n~~~~"
)

# %% [markdown]
# ## 3. What the target writes
# The first prompt of each domain, continued by the target alone, greedily: the most likely token at
# every step (this is called temperature T = 0), until it writes its end mark or the limit is
# reached. Speculative decoding will write exactly this. Two of them are shown; ▌ stands
# between the end of what the user wrote and the continuation.

# %%
limits = settings.max_new_tokens, pair.stop_ids, study.GREEDY, settings.seed
texts = record.generate(pair.target, firsts, *limits)
written = list(zip(firsts, texts, strict=True))

# %%
asked = {prompt.prompt_id: prompt for prompt in every}
for prompt, text in written[1:-1] or written:
    words = asked[prompt.prompt_id].text[-400:]  # the end of what the user wrote
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
prompt = next(prompt for prompt in encoded if prompt.prompt_id == where)
recorded = runs.texts_of(run)
text = recorded[where]
one = nodes[(nodes["prompt_id"] == where) & (nodes["position"] == at)]
one = one.assign(
    accepted=one["accepted"] == 1,
    ratio=score.ratio(one),
    text=[tokenizer.decode([token]) for token in one["token"]],
)

# %%
path = one.loc[one["accepted"], "token"].tolist()
path = path[: len(text) - at]  # where a text ends, so does its last block
emitted = list(text[at : at + len(path) + 1])
context = tokenizer.decode([*prompt.ids, *text[:at]])

# %%
trunk = {"text": context, "draft_prob": 1, "target_prob": 1, "accepted": True}
drawn = pd.concat([pd.DataFrame([trunk]), one])
picture = figures.draw_tree(tree, *(drawn[name] for name in trunk))
caption = f"One drafted tree: of its {tree.size} tokens the greedy target accepts {len(path)}."
ctx.save(picture, "tree", caption)

# %%
ctx.table(study.node_table(one), "tree-nodes")

# %%
kept, own = (study.listed(tokenizer, tokens) for tokens in (path, emitted[len(path) :]))
own = f"adds its own: {own}" if len(emitted) > len(path) else "the text ends there"
ctx.say(
    f"This is position {at} of prompt `{where}`. The greedy target accepts **{len(path)}** of the "
    f"{tree.size} drafted tokens ({kept}) and {own}. **Tokens from this pass: {len(emitted)}**, "
    "where a pass of plain decoding gives one."
)
assert 1 <= len(emitted) <= tree.max_depth + 1
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
# says. Both models read the same tokens and give their distributions of the next one:

# %%
here, at_token = study.place_of_overlap(run.trace, wanted_overlap)
before = next(one for one in encoded if one.prompt_id == here).ids
before = [*before, *recorded[here][:at_token]]
p, q = (study.next_token(model, before) for model in (pair.target, pair.draft))

# %%
overlap = np.minimum(p, q).sum()
said = q > 0
kept = np.minimum(1, p[said] / q[said])  # of each token that can be drawn
assert np.isclose((q[said] * kept).sum(), overlap), "the mean of what is kept"
stored = run.trace.query("prompt_id == @here and position == @at_token")
assert abs(stored["overlap"].item() - overlap) < (1e-4 if pair.is_exact else 0.05)

# %%
ctx.save(
    study.overlap_figure(study.favourites(p, q, tokenizer)),
    "overlap",
    caption=f"The token at position {at_token} of prompt {here}. Grey: probability that both "
    f"models assign (the overlap, {overlap:.2f} in total). Blue: the draft's excess "
    f"({1 - overlap:.2f}), which is rejected. Orange: the draft's shortfall (as much), which is "
    "recovered instead.",
)

# %%
best = q.argmax()
ratio = min(1, p[best] / q[best])
ctx.say(
    f"The draft's favourite has q = {q[best]:.2f} and p = {p[best]:.2f}. If it is what was drawn, "
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
steps = []
shape, limit = draft.Shape(tree), ctx.profile.max_new_tokens
for step in decode.decode(pair, prompt.ids, "greedy", shape, study.GREEDY, limit):
    steps.append(step)  # one target pass: here text could be shown as it comes

# %%
strings = pictures.strings_of(tokenizer)
written = tuple(token for step in steps for token in step.tokens)
display(HTML(pictures.as_html(steps, strings)))

# %%
# The first recorded texts, replayed under any draft: choose a token, and see why it was kept or
# rejected. (A headless run shows the text above only.)
page.show("text", "tree", runs=[run], per_domain=2)

# %%
equal = written == recorded[where]
ctx.say(f"The decoder's text {'equals' if equal else 'differs from'} the recorded text.")
assert equal or not pair.is_exact

# %% [markdown]
# And a text of your own: type, and press Decode. (It needs a kernel: where this notebook is run
# headless or read as a page, the text above stands for it. Notebook 12 asks more of it.)

# %%
if notebook.is_open():
    display(try_it.prompt_cell(pair, ctx.profile, sample_text))

# %% [markdown]
# Every position of every continuation got such a tree: this is the run that the notebooks read, and
# what they ask of it needs no model any more.

# %%
millions = {name: f"{count / 1e6:.1f} million" for name, count in size.items()}
ctx.answer(
    f"On `{settings.name}` a draft of {millions['draft']} parameters works for a target of "
    f"{millions['target']}. In the example tree the greedy target accepts {len(path)} of "
    f"{tree.size} drafted tokens and {'adds one' if len(emitted) > len(path) else 'ends the text'}"
    f". The whole text of {len(written)} tokens takes {len(steps)} target passes: "
    f"{len(written) / len(steps):.2f} tokens per target pass."
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
