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
# **Answer.** Two language models over one vocabulary: a small one, the **draft**, proposes tokens,
# and a large one, the **target**, checks them all in a single pass. In greedy decoding it accepts
# the longest path of proposals that it would have written itself, and adds one token of its own:
# the text is the target's, in fewer passes. The picture is one such proposal, a tree; how many
# tokens that pass gives is computed in section 4.
#
# ![A drafted tree with the probabilities of both models at every node and the accepted path](../figures/tiny/01_tree.png)
#
# *Runs on* any machine · *minutes* less than one on 2 cores · *reads* the pair of the profile and
# its run `greedy` (recorded if it is not there) · *writes* `figures/<profile>/01_*`.

# %% tags=["bootstrap", "hide-input"] jupyter={"source_hidden": true}
# Colab and Kaggle: fetches the kit and installs what is missing. In a checkout it only moves to the
# repository's root.
import os, shutil, subprocess, sys
from pathlib import Path

fetched, here = Path("speclab-kit").resolve(), Path.cwd()
root = next(
    (p for p in (here, *here.parents, fetched) if (p / "speclab" / "notebook.py").is_file()), None
)
if root is None:
    attached = next(
        Path("/kaggle/input").rglob("speclab/notebook.py"), None
    )  # the kit as an attached data set: read-only, so copied
    if attached:
        shutil.copytree(attached.parents[1], fetched)
    elif not os.environ.get("SPECLAB_REPO"):  # the kit has no public address yet
        raise SystemExit(
            "No checkout here: set SPECLAB_REPO to the kit's git address, or attach the kit as a data set."
        )
    else:
        subprocess.run(
            ["git", "clone", "--depth", "1", os.environ["SPECLAB_REPO"], str(fetched)], check=True
        )
    root = fetched
os.chdir(root)
sys.path.insert(0, str(root))
if root == fetched:
    from speclab.notebook import install_missing

    install_missing(root)

# %%
import dataclasses

import pandas as pd
from IPython.display import HTML, display
from IPython.utils.capture import capture_output

from speclab import (
    pictures as tokenview,
    decode,
    draft,
    figures,
    notebook,
    pairs,
    profiles,
    prompts,
    record,
    runs,
    sampling,
    score,
)

# %% tags=["parameters"]
# the pair, its prompts and limits: a name from notebooks/profiles, or a YAML file
profile: str = "tiny"
overrides: dict = {}  # parameters of the profile to change, as {"prompts_per_domain": 10}
sample_text: str = "Solving 7x - 15 for x is unbelievably simple."  # shown in tokens
# draw the first tree of which the greedy target accepts so many tokens, and rejects the next
wanted: int = 2

# %%
ctx = notebook.start("01_load_models", profile, overrides)
pair = pairs.load_pair(ctx.profile)
run = runs.load_or_record(ctx.profile.replace(temperature=0.0), "greedy")
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
facts = {name: (pair.facts[name], getattr(pair, name)) for name in ("target", "draft")}
small = ctx.profile.target.path + "-gptq"
if (profiles.ROOT / small / "config.json").is_file():
    spec = dataclasses.replace(ctx.profile.target, path=small)
    with capture_output():  # GPTQModel's banner
        copy = pairs.load_model(spec)
    facts["target, 4 bit"] = (pairs.model_facts(spec, copy), copy)
rows = {}
for name, (known, model) in facts.items():
    held = sum(t.nbytes for t in [*model.network.parameters(), *model.network.buffers()])
    config, cached = (
        model.network.config,
        2 * known["layers"] * known["width"] / known["heads"] * model.dtype.itemsize,
    )
    kept = ("layers", "width", "heads", "dtype", "device", "kernel")
    rows[name] = {"parameters": f"{known['parameters']:,}"} | {key: known[key] for key in kept}
    rows[name] |= {
        "disk_mb": known["weight_bytes"] / 1e6,
        "memory_mb": held / 1e6,
        "kv_kb": cached * config.num_key_value_heads / 1e3,
    }
models = pd.DataFrame(rows).T.rename_axis("model")
ctx.table(models, "pair", digits=1)
size = {name: known["parameters"] for name, (known, _) in facts.items()}
fourth = rows.get("target, 4 bit")
notebook.say(
    f"The target has **{size['target'] / size['draft']:.1f} times** the parameters of the draft; both share {pair.vocab:,} token ids. "
    + (
        f"The 4-bit copy's layers run as `{fourth['kernel']}`; in memory it takes {fourth['memory_mb'] / rows['target']['memory_mb']:.0%} "
        "of what the target takes."
        if fourth
        else f"There is no 4-bit copy of the target at `{small}`, so none is shown."
    )
)
assert pair.target.vocab == pair.draft.vocab == pair.vocab

# %% [markdown]
# ## 2. What the models read: tokens
# A tokenizer cuts text into pieces that have a number each; the models know only these numbers.
# Spaces and line ends are drawn as ␣ and ⏎. Below, a short text; then how many tokens the prompts
# of each domain have.

# %%
ids = tokenizer(sample_text)["input_ids"]
notebook.show_table(
    pd.DataFrame(
        [ids, [figures.visible(tokenizer.decode([i])) for i in ids]], index=["id", "piece"]
    ).rename_axis("token")
)
every = prompts.load_prompts(
    ctx.profile.prompts, ctx.profile.prompts_per_domain, ctx.profile.domains
)
encoded = {
    p.prompt_id: p
    for p in prompts.encode_prompts(
        tokenizer, every, ctx.profile.max_prompt_tokens, ctx.profile.template
    )
}
lengths = pd.DataFrame(
    [
        (p.domain, len(p.text), len(encoded[p.prompt_id].ids), encoded[p.prompt_id].cut > 0)
        for p in every
    ]
)
lengths = lengths.set_axis(["domain", "characters", "tokens", "cut"], axis=1).groupby(
    "domain", sort=False
)
counts = lengths.agg(
    prompts=("tokens", "size"),
    shortest=("tokens", "min"),
    longest=("tokens", "max"),
    prompts_cut=("cut", "sum"),
)
counts["characters_per_token"] = lengths["characters"].sum() / lengths["tokens"].sum()
ctx.table(counts, "prompts", digits=2)
notebook.say(
    f"`{sample_text}`: {len(sample_text)} characters, {len(ids)} tokens (with the mark that begins a text, if there is one)."
)

# %% [markdown]
# ## 3. What the target writes
# The first prompt of each domain, continued by the target alone, greedily: the most likely token at
# every step, until it writes its end mark or the limit is reached. ▌ stands between the end of the
# prompt and the continuation. Speculative decoding will write exactly this.

# %%
firsts = [encoded[p.prompt_id] for p in {p.domain: p for p in reversed(every)}.values()][::-1]
texts = record.generate(
    pair.target,
    firsts,
    ctx.profile.max_new_tokens,
    pair.stop_ids,
    sampling.Sampling(),
    ctx.profile.seed,
)
recorded = {name: tuple(rows["token"]) for name, rows in run.trace.groupby("prompt_id", sort=False)}
for prompt, text in zip(firsts, texts, strict=True):
    end = "ended by the target" if text[-1] in pair.stop_ids else "stopped at the limit"
    notebook.say(
        f"**{prompt.domain}**, prompt `{prompt.prompt_id}` of {len(prompt.ids)} tokens; {len(text)} new tokens, {end}\n\n~~~~text\n"
        f"{tokenizer.decode(prompt.ids)[-400:]}▌{tokenizer.decode(text, skip_special_tokens=True)}\n~~~~"
    )
    assert len(text) == ctx.profile.max_new_tokens or text[-1] in pair.stop_ids
same = sum(recorded[prompt.prompt_id] == text for prompt, text in zip(firsts, texts, strict=True))
notebook.say(
    f"{same} of these {len(firsts)} continuations are, token for token, those of the recorded run."
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
# trees are hard to read); where a run has no such tree, the first with the most accepted tokens. It
# is scored here anew.

# %%
nodes = run.nodes.assign(accepted=score.reach(run.nodes))
blank = [token for token in nodes["token"].unique() if not tokenizer.decode([int(token)]).strip()]
trees = nodes.assign(last=nodes["node"] * nodes["accepted"], blank=nodes["token"].isin(blank))
trees = (
    trees.groupby(["prompt_id", "position"], sort=False)
    .agg({"accepted": "sum", "last": "max", "blank": "any"})
    .reset_index()
)
found = trees[
    (trees["accepted"] == wanted) & trees["last"].isin(tree.parent) & ~trees["blank"]
]  # there was something below to reject
found = found if len(found) else trees[trees["accepted"] == trees["accepted"].max()]
where, at = found.iloc[0][["prompt_id", "position"]]
again = record.record_prompt(
    pair, encoded[where], tuple(int(t) for t in recorded[where]), tree, sampling.Sampling()
)
drawn = pd.DataFrame(again.nodes).query("position == @at").reset_index(drop=True)
stored = nodes[(nodes["prompt_id"] == where) & (nodes["position"] == at)]
drawn["accepted"], drawn["alpha"] = stored["accepted"].to_numpy() == 1, score.alpha(drawn)
drawn["text"] = [tokenizer.decode([t]) for t in drawn["token"]]
gap = max(abs(drawn[c] - stored[c].to_numpy()).max() for c in ("draft_prob", "target_prob"))
assert (drawn["token"].to_numpy() == stored["token"].to_numpy()).all() and gap < (
    1e-4 if "float32" in str(pair.target.dtype) else 0.05
)

# %%
context = tokenizer.decode([*encoded[where].ids, *recorded[where][:at]])
columns = [
    [root, *drawn[name]]
    for root, name in ((context, "text"), (1, "draft_prob"), (1, "target_prob"), (True, "accepted"))
]
fig = figures.draw_tree(tree, *columns)
ctx.save(fig, "tree")

# %%
shown = drawn[
    [
        "node",
        "parent",
        "depth",
        "rank",
        "text",
        "draft_prob",
        "target_prob",
        "target_rank",
        "alpha",
        "accepted",
    ]
]
shown = shown.assign(text=shown["text"].map(figures.visible)).rename(
    columns={"text": "token", "draft_prob": "q", "target_prob": "p"}
)
ctx.table(shown.set_index("node"), "tree-nodes")


def seen(tokens) -> str:
    """Tokens as a reader can see them."""
    return ", ".join(f"`{figures.visible(tokenizer.decode([int(t)]))}`" for t in tokens) or "none"


path = drawn.loc[drawn["accepted"], "token"].tolist()
emitted = list(recorded[where][at : at + len(path) + 1])
own = (
    f"adds its own token {seen(emitted[-1:])}"
    if len(emitted) > len(path)
    else "adds none, for the text ends there"
)
notebook.say(
    f"This is position {at} of prompt `{where}`. The greedy target accepts **{len(path)}** of the {tree.size} drafted tokens "
    f"({seen(path)}) and {own}. **This pass gives {len(emitted)} tokens**, where a pass of plain decoding gives one."
)
assert emitted[: len(path)] == path and 1 <= len(emitted) <= tree.max_depth + 1

# %% [markdown]
# ## 5. p, q, alpha, overlap
# Acceptance at temperature T = 0 asks one thing of p: which token is its largest? When text is
# sampled (T = 1), the comparison with q counts too. A token that was **drawn** from q is kept with
# probability min(1, p/q): surely where the target likes it at least as much as the draft does, less
# often where the draft is too sure of it. The mean of that over the tokens that q may draw is the
# **overlap** of the two distributions, the sum over all tokens of min(p, q): 1 if they are the
# same, 0 if they share nothing.
#
# The column `alpha` above is min(1, p/q) of each node. Mind the names: the paper averages this
# column over all nodes and calls it acceptance (`published_alpha` in this kit). But a tree's tokens
# are not drawn from q, they are its favourites: nothing accepts them with that probability. The
# exact acceptance of one drawn token is the overlap; the mean of that over positions is the
# estimator `alpha`.

# %%
row = run.trace[(run.trace["prompt_id"] == where) & (run.trace["position"] == at)].iloc[0]
top = pd.DataFrame({"q": row["top_draft_q"], "p": row["top_draft_p"]})
top["smaller"] = top.min(axis=1)
names = [figures.visible(tokenizer.decode([int(t)])) for t in row["top_draft_ids"]] + ["all others"]
top.loc[len(top)] = [1 - top["q"].sum(), 1 - top["p"].sum(), row["overlap"] - top["smaller"].sum()]
top = top.clip(lower=0)
fig, ax = figures.subplots(width=figures.ONE_COLUMN, height=2.9)
for name, side, colour in (
    ("q", -0.19, figures.OTHER_COLOURS[2]),
    ("p", 0.19, figures.OTHER_COLOURS[1]),
):
    ax.barh(
        [i + side for i in top.index],
        top[name],
        height=0.36,
        color=colour,
        label=f"{name} ({'draft' if name == 'q' else 'target'})",
    )
    ax.barh(
        [i + side for i in top.index],
        top["smaller"],
        height=0.36,
        facecolor="none",
        edgecolor="black",
        hatch="//////",
        linewidth=0,
    )
ax.barh(
    [0], [0], facecolor="none", edgecolor="black", hatch="//////", linewidth=0, label="min(p, q)"
)
ax.set(
    yticks=top.index,
    ylabel="the draft's favourites, best on top",
    xlabel="probability of the next token (depth 1)",
)
ax.set_title(f"hatched: the overlap, {row['overlap']:.3f} in all")
ax.set_yticklabels(names, family="DejaVu Sans Mono")
ax.invert_yaxis()
ax.grid(axis="y", visible=False)
ax.legend(loc="center right")
ctx.save(fig, "overlap")

# %%
first = drawn[drawn["depth"] == 1].iloc[0]
word, share = seen([first["token"]]), row["overlap"]
relation = "at least as high as" if first["target_prob"] >= first["draft_prob"] else "lower than"
notebook.say(
    f"**At depth 1 of this tree.** The draft's favourite is {word}: q = {first['draft_prob']:.3f}, and p = {first['target_prob']:.3f} is "
    f"{relation} that. If {word} is what was drawn, it is kept with probability min(1, p/q) = {first['alpha']:.3f}. Over all that "
    f"could be drawn, a token is kept with probability **{share:.3f}**: the overlap, of which {top['smaller'].iloc[:-1].sum():.3f} comes "
    f"from the {len(top) - 1} tokens shown and the rest from the other {pair.vocab - len(top) + 1:,}. (How a rejected token is replaced, "
    "so that the text stays the target's: notebook 00.)"
)
notebook.say(
    f"**Over the whole tree.** The mean of `alpha` is {drawn['alpha'].mean():.3f} over all {tree.size} nodes, "
    + ", ".join(
        f"{rows['alpha'].mean():.3f} at rank {rank}" for rank, rows in drawn.groupby("rank")
    )
    + f"; the greedy target accepted {len(path)} of {tree.size}. One tree proves nothing: notebook 03 compares them over all positions."
)
assert (
    abs(top["smaller"].sum() - share) < 1e-4
    and (top["smaller"] <= top[["p", "q"]].min(axis=1) + 1e-4).all()
)
assert (
    abs(first["target_prob"] - top["p"][0]) < 1e-3 and abs(first["draft_prob"] - top["q"][0]) < 1e-3
)

# %% [markdown]
# ## 6. The whole text, as a decoder makes it
# Tree after tree, the decoder writes the continuation of this prompt. A bar stands before each
# target pass. Coloured are the tokens that were **accepted** from the draft, **recovered** by the
# target after a rejection, or added as a **bonus** when a whole path was accepted.

# %%
steps = []
for step in decode.decode(
    pair,
    encoded[where].ids,
    "greedy",
    draft.Shape(tree),
    sampling.Sampling(),
    ctx.profile.max_new_tokens,
):
    steps.append(
        step
    )  # one target pass; in an open notebook this is where text could be shown as it comes
pieces = [tokenizer.decode([i]) for i in range(pair.vocab)]
display(HTML(tokenview.as_html(steps, pieces)))
ctx.save(figures.draw_tokens(tokenview.layout(steps, pieces)), "tokens")
written, kinds = (
    tuple(t for s in steps for t in s.tokens),
    tokenview.counts(tokenview.pieces(steps, pieces)),
)
notebook.say(
    f"**{len(steps)} target passes wrote {len(written)} tokens**, {len(written) / len(steps):.2f} a pass: "
    + ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    + f". Token for token the recorded text: {'yes' if written == recorded[where] else 'no'}."
)
assert written == recorded[where] or (str(pair.target.dtype), pair.target.device.type) != (
    "torch.float32",
    "cpu",
)

# %% [markdown]
# ## 7. What was recorded
# Every position of every continuation got such a tree. This is the run that notebooks 02 to 06
# read; they need no model any more.

# %%
m = run.manifest
manifest = pd.Series(
    {
        "prompts": f"{m['prompts']} ({m['prompts_cut']} cut to {ctx.profile.max_prompt_tokens} tokens)",
        "template": m["profile"]["template"],
        "positions (rows of trace)": f"{m['rows']['trace']:,}",
        "drafted nodes (rows of nodes)": f"{m['rows']['nodes']:,}",
        "tree": " + ".join(str(len(tree.level(d))) for d in range(1, tree.max_depth + 1))
        + " nodes",
        "seconds": f"{m['time_s']:.0f}",
        "nodes per second": f"{m['rows']['nodes'] / m['time_s']:,.0f}",
        "peak memory (MB)": ", ".join(
            f"{name} {size / 1e6:,.0f}" for name, size in m["peak_bytes"].items()
        ),
        "weights in memory (MB)": f"target {rows['target']['memory_mb']:.1f}, draft {rows['draft']['memory_mb']:.1f}",
        "libraries": ", ".join(
            f"{name} {m['libraries'][name]}" for name in ("torch", "transformers")
        ),
        "key": m["key"],
    },
    name="value",
).rename_axis("fact")
ctx.table(manifest.to_frame(), "manifest")
assert m["rows"]["nodes"] == m["rows"]["trace"] * tree.size and m["prompts"] == len(every)

# %%
ctx.record(
    parameters_target=size["target"],
    parameters_draft=size["draft"],
    prompt_id=str(where),
    position=int(at),
    accepted=len(path),
    tokens_in_this_pass=len(emitted),
    overlap_at_depth_1=float(share),
    mean_alpha_of_the_tree=float(drawn["alpha"].mean()),
    positions=m["rows"]["trace"],
    nodes=m["rows"]["nodes"],
)

# %% [markdown]
# ## Try it
# Say beforehand what will happen, then look.
#
# 1. By hand: at the root, a draft has q = 0.6 and 0.3 for its two favourites A and B, and the
#    target p = 0.3 and 0.5. What does a greedy target accept? What is `alpha` of each node? And the
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
