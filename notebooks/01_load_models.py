# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 1. What is a draft/target pair, and how does it write a text?

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
sample_text: str = "Solving 7x - 15 for x is unbelievably simple."  # any; shown in section 2
wanted: int = 2  # 0 to 16; section 3 shows a tree with this number of accepted tokens
# the rest is for section 6, which decodes a prompt of yours
prompt: str = "How many apples are left if Tom has 12 apples and eats 5?"  # any
# greedy for temperature 0; above it rejection, point-mass, without-replacement, block, exact-match
rule: str = "greedy"  # any; one of these names
shape: str = "chain:4"  # any; such as tree:3,2,8, dynamic:4,4,8 or plain
temperature: float = 0.0  # 0 to 10
new_tokens: int = 64  # 1 to 65536; at most this many tokens are written
seed: int = 0  # 0 to 4294967295; decides a sampled text
head: bool = False  # any; True: the pair's trained head drafts, if it has one

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
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
from IPython.display import HTML, display

from speclab.study import prompts, runs
from speclab import replay, score
from speclab.estimates import counted
from speclab.explore import page
from speclab.models import vocabularies
from speclab.models.folder import ModelFolder
from speclab.study.profiles import with_head
from speclab.show import drawings, notebook, pictures

RUNS = ["greedy"]

# %%
ctx = notebook.start("01_load_models", profile, overrides)
settings = ctx.profile
run = runs.load_or_record(settings.replace(temperature=0.0), "greedy")
tree = settings.tree  # the shape of what the draft proposes

# %% [markdown]
# A pair consists of two language models. The small one, the **draft**, proposes tokens. The large
# one, the **target**, checks all of them in one pass and adds one token of its own. The text is the
# one that the target would write alone, but it takes fewer target passes.
#
# ## 1. Which two models?
# Both models give, for any text so far, a probability of each possible next token: $q(x)$ is the
# draft's, $p(x)$ the target's. A proposal is the number of a token, so a draft can propose a token
# only if both models have it.

# %%
names = ["parameters", "layers", "width", "heads", "dtype", "device", "kernel"]
models = pd.DataFrame(run.manifest["pair"])[["target", "draft"]].T
pair = models.reindex(columns=names).rename_axis("model")
pair["parameters"] = [f"{count:,}" for count in models["parameters"]]
pair["disk_mb"] = models["weight_bytes"].astype(float) / 1e6
ctx.table(pair, "pair", digits=1, caption="The two models")

# %%
proposable = models["tokens_said"]["draft"]
shared = run.manifest["pair"]["shared_vocabulary"]
inside = (run.trace["draft_rank"] < proposable).mean()
ctx.say(
    f"The draft can propose {proposable:,} of {shared:,} tokens. These are {100 * inside:.1f} % of "
    "what the target wrote."
)

# %% [markdown]
# A draft that cannot propose every token is **trimmed**, which makes it faster, or has another
# vocabulary than the target. All other tokens have $q = 0$ and the target adds them itself, so the
# text stays the target's ([TLI](https://arxiv.org/abs/2502.05202)).
#
# ## 2. What do the models read?
# A tokenizer divides text into pieces, and each piece has a number. The models see only these
# numbers. Below, ␣ stands for a space, ⏎ for a line end, and � for a part of a character.

# %%
both_specs = settings.target, settings.draft
of_target, of_draft = (ModelFolder.fetched(spec) for spec in both_specs)
tokenizer = of_target.tokenizer


def pieces(ids, tokenizer=tokenizer):
    """Each token as a reader can see it."""
    return [pictures.visible(tokenizer.decode([int(token)])) for token in ids]


ids = tokenizer(sample_text)["input_ids"]
reading, spelling = {"token": pieces(ids), "number": ids}, None
if not of_draft.is_head:  # a trained head has its target's vocabulary
    own, sizes = of_draft.tokenizer, (of_target.text.vocab_size, of_draft.text.vocab_size)
    spelling = vocabularies.spelling_of(tokenizer, own, sizes)  # None: one vocabulary
if spelling:
    ctx.say(
        "The draft has a vocabulary of its own. It reads a common token as one token, and any "
        "other token as its own tokens for the same bytes."
    )
    spelled, common = spelling
    reading["common"] = [token in common for token in ids]
    reading["the draft reads"] = [" ".join(pieces(spelled[token], own)) for token in ids]
    reading["its numbers"] = [", ".join(map(str, spelled[token])) for token in ids]
ctx.say(f"`{sample_text}` has {counted(len(ids), 'token')}:")
notebook.show_table(pd.DataFrame.from_dict(reading, "index").T)

# %% [markdown]
# The runs of this kit hold the target's own text for every prompt, and at every position a tree of
# tokens that the draft proposes there. We look at one text: the first with a tree of which the
# target accepts two tokens (the parameter `wanted`) and rejects the next. (Trees with tokens that
# are blank are hard to read, so we skip them.)

# %%
nodes = run.nodes.assign(accepted=score.reach(run.nodes) == 1)
drafted = nodes["token"].unique()
blank = [token for token in drafted if not tokenizer.decode([int(token)]).strip()]
trees = nodes.assign(last=nodes["node"] * nodes["accepted"], blank=nodes["token"].isin(blank))
trees = trees.groupby(["prompt_id", "position"], sort=False)
trees = trees.agg({"accepted": "sum", "last": "max", "blank": "any"})
rejects = trees["last"].isin(tree.parent)  # the last accepted node has children
fits = (trees["accepted"] == wanted) & rejects & ~trees["blank"]
where, at = fits.idxmax() if fits.any() else trees["accepted"].idxmax()  # else the longest

# %%
text = runs.texts_of(run)[where]
[read] = [one for one in runs.encoded_prompts(settings) if one.prompt_id == where]
beginning = tokenizer.decode(read.ids)[-600:]  # at most its last 600 characters
ctx.say(
    f"The target reads prompt `{where}` as {counted(len(read.ids), 'token')} (template "
    f"`{settings.template}`) and writes {counted(len(text), 'token')}, after the sign ▌.\n\n"
    f"~~~~text\n{beginning}▌{tokenizer.decode(text, skip_special_tokens=True)}\n~~~~"
)

# %% [markdown]
# At every step the target took its most likely token. This is called **greedy decoding**, or
# temperature $T = 0$.
#
# ## 3. What does the draft propose?
# Here the draft proposes a tree: its most likely next tokens, and after each of them again the most
# likely next tokens. One target pass gives $p$ at every node. A greedy target accepts the child
# that is its own best token, then a child of that one, and so on:
#
# $$x \text{ is accepted} \Leftrightarrow
#   x = \arg\max_y p(y) \text{ and its parent is accepted.}$$

# %% tags=["by-hand"]
one_tree = nodes[(nodes["prompt_id"] == where) & (nodes["position"] == at)]
path = [0]  # the root, which is the last token of the text so far
for node in one_tree.itertuples():
    if node.parent == path[-1] and node.target_rank == 0:  # the target's best token
        path.append(node.node)
print(
    "accepted:", *(repr(piece) for piece in pieces(one_tree["token"].iloc[n - 1] for n in path[1:]))
)
assert path[1:] == one_tree.loc[one_tree["accepted"], "node"].tolist()

# %%
context = tokenizer.decode([*read.ids, *text[:at]])
labels = [context, *(tokenizer.decode([token]) for token in one_tree["token"])]
odds = (np.append(1, one_tree[name]) for name in ("draft_prob", "target_prob"))
ctx.draw(
    drawings.draw_tree,
    drawings.tree_frame(tree, labels, *odds, [True, *one_tree["accepted"]]),
    "tree",
    "Each box shows a drafted token with its probabilities q and p. The accepted tokens are green.",
    "A drafted tree, checked in one target pass",
)

# %%
columns = {"text": "token", "draft_prob": "q", "target_prob": "p"}
table = one_tree.set_index("node").assign(
    ratio=score.ratio(one_tree), text=pieces(one_tree["token"])
)
table = table[["parent", "depth", "rank", *columns, "target_rank", "ratio", "accepted"]]
table = table.rename(columns=columns)
shown = table[["parent", "rank", "token", "q", "p", "target_rank", "accepted"]]
ctx.table(table, "tree-nodes", digits=2, cells=shown, caption="The nodes of the tree")

# %% [markdown]
# The **rank** of a node is the position of its token in the draft's order, `target_rank` the
# position in the target's. 0 is the best.
#
# ## 4. How many passes does the whole text take?
# Tree after tree, until the text ends. A block begins where the last one ended, so the tree of
# section 3 may belong to no block. After an accepted path the target adds one token itself: a
# **recovered** token if it rejected the next drafted ones, a **bonus** token if the path was
# complete.

# %% tags=["by-hand"]
of_text = trees.loc[where]  # accepted nodes of the tree at each position, and the last of them
start, blocks = 0, []
while start < len(text):
    left = len(text) - start
    accepted = min(of_text["accepted"][start], left)
    tokens = text[start : start + accepted + 1]
    kind = "recovered" if of_text["last"][start] in tree.parent else "bonus"
    kind = "cut" if accepted == len(tokens) else kind  # the text ended with an accepted token
    block = {"tokens": tokens, "accepted": accepted, "drafted": tree.upto(left).size, "kind": kind}
    blocks.append(SimpleNamespace(**block))
    start += len(tokens)
emitted = [len(block.tokens) for block in blocks]
print(f"{len(text)} tokens in {len(emitted)} passes:", *emitted)

# %%
is_exact = not run.manifest["not_argmax"]  # no token of the text was decided by rounding
replayed = replay.replay(run.trace[run.trace["prompt_id"] == where], tree)["emitted"].tolist()
assert emitted == replayed or not is_exact
strings = pictures.strings_of(tokenizer)
display(HTML(pictures.render_html(blocks, strings)))

# %%
ctx.answer(
    "A draft proposes tokens, and a target checks them. With trees of "
    f"{counted(tree.size, 'token')}, a text of {counted(len(text), 'token')} takes "
    f"{counted(len(blocks), 'target pass')} instead of one per token. It stays the target's own."
)

# %% [markdown]
# ## 5. Why was a token rejected?
# In an open notebook you can choose any token of this text below. All recorded texts are in the
# explorer, a page for your browser: `explore.html` beside the figures.

# %%
this_text = runs.Part(run.folder, run.manifest, run, (where,))
page.show("text", "tree", runs=[this_text], per_domain=1)

# %% [markdown]
# ## 6. Your own prompt
# This needs the weights of both models. Change the prompt and the other parameters at the top, or,
# in an open notebook, fill in the fields below.

# %%
if head and with_head(settings) is None:
    ctx.say("This pair has no trained head, so its draft proposes.")
study = (head and with_head(settings)) or settings
try:
    import torch

    from speclab.decode import LOSSLESS, decode_prompt
    from speclab.study.pairs import load_pair
    from speclab.sampling import probabilities
    from speclab.shapes import NO_DRAFT, parse_shape

    both = load_pair(study)
except (ImportError, ValueError) as missing:
    both = None
    ctx.say(f"The models cannot be loaded here, so no prompt is decoded: {missing}")


# %%
def rejected_tokens(read, steps, sampling):
    """A row per rejection: the text before it, the draft's first choice there and the target's own
    token, with their probabilities.
    """
    rows, written = [], list(read)
    for number, step in enumerate(steps, 1):
        if step.kind == "recovered":
            last = [0, *step.draft.path][-1]  # the last accepted node
            first_choice = step.draft.tokens[step.draft.tree.children(last)[0]]
            rows.append((number, len(written) + step.accepted, first_choice, step.tokens[-1]))
        written += step.tokens
    if not rows:
        ctx.say("No drafted token was rejected.")
        return pd.DataFrame()
    block, places, drafted, own = np.array(rows).T

    def probabilities_of(model, tokens):
        """Of tokens at those places, from one pass over the whole text."""
        hidden = model.forward(torch.tensor([written[:-1]]), model.cache(len(written)))[0]
        table = probabilities(model.logits(hidden[places - 1]), sampling)
        return table[range(len(tokens)), tokens].tolist()

    after = [pictures.visible(tokenizer.decode(written[max(0, n - 6) : n])) for n in places]
    table = pd.DataFrame({"block": block, "after": after, "drafted": pieces(drafted)})
    if not both.draft.by_start:  # a head's q depends on where its block began
        table["q"] = probabilities_of(both.draft, drafted)
    table["p"] = probabilities_of(both.target, drafted)
    table["target's own"] = pieces(own)
    return table.assign(**{"p of it": probabilities_of(both.target, own)})


# %%
def decoded(prompt, rule, shape, temperature, new_tokens, seed):
    """Show the text of a prompt in blocks, compare it with plain decoding, and return the rejected
    tokens.
    """
    typed = [prompts.Prompt("typed", "", prompt)]
    [read], _ = runs.read_by_target(settings, typed)
    sampling = replace(settings.sampling, temperature=temperature)
    made, plain = (
        decode_prompt(both, read, rule, drafted, sampling, new_tokens, seed)
        for drafted in (parse_shape(shape), NO_DRAFT)
    )
    display(HTML(pictures.render_html(made.steps, strings)))
    if sampling.greedy:
        same = made.token_ids == plain.token_ids
        assert same or not both.is_exact, "the text is the target's"
        ctx.say(f"Without a draft the target writes {'the same' if same else 'another'} text.")
    return rejected_tokens(read.ids, made.steps, sampling)


# %%
if both:
    ctx.say(f"The prompt is: `{prompt}`")
    rejected = decoded(prompt, rule, shape, temperature, new_tokens, seed)
if both and len(rejected):
    ctx.table(rejected, "rejected", digits=2, most=8, caption="Rejected tokens")

# %% [markdown]
# The table shows where a drafted token was rejected. At $T = 0$ the reason is that the target gave
# more probability to its own token: compare the two $p$. (They are the probabilities at $T = 1$.)
# Above $T = 0$ a drawn token is accepted with probability $\min(1, p/q)$, so the reason is a $q$
# that is too high, and chance ([00](00_by_hand.ipynb)).

# %%
if both and notebook.is_open():
    from ipywidgets import BoundedFloatText, BoundedIntText, Dropdown, Textarea, interact_manual

    fields = {
        "prompt": Textarea(prompt, rows=3),
        "rule": Dropdown(options=LOSSLESS, value=rule),
        "temperature": BoundedFloatText(temperature, min=0, max=10, step=0.1),
        "new_tokens": BoundedIntText(new_tokens, min=1, max=256),
        "seed": BoundedIntText(seed, min=0, max=2**31 - 1),
    }

    @interact_manual.options(manual_name="Decode")(**fields, shape=shape)
    def decode_typed(**typed):
        notebook.show_table(decoded(**typed).head(20), 2)


# %% [markdown]
# ## Try it
# Predict the result first, then run the cell.
#
# 1. At the root a draft has $q$ = 0.6 and 0.3 for its two best tokens A and B, and the target has
#    $p$ = 0.3 and 0.5. What does a greedy target accept?
#
# <details><summary>Answer</summary>
# It accepts B, the draft's second choice, because 0.5 is the largest p. A chain with A alone would
# have gained nothing.</details>
#
# 2. Decode your prompt with `chain:1`, `chain:4` and `chain:16`. Which needs the fewest target
#    passes?
#
# <details><summary>Answer</summary>
# A longer chain never needs more passes for the same greedy text. But each block drafts all of its
# tokens, and the tokens after the first rejection are thrown away.</details>
#
# 3. Type the beginning of a list, such as `1, 2, 3, 4,`, then a sentence that nobody has written.
#
# <details><summary>Answer</summary>
# Repetition is easy for a small model too, so the blocks become long. Where the text takes a turn,
# the draft is wrong.</details>
#
# ## What this does not show
# Anything general: we chose this text and its tree by their result. Next:
# [02](02_gamma_sweep.ipynb), how many tokens to draft, over all prompts.
