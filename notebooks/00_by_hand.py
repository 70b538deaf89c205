# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 0. What does speculative decoding do, step by step, on five words?
#
# **Answer.** A draft proposes words, the target keeps each with probability min(1, p/q), and where
# it refuses one, it draws another from what the draft left short, the residual. What comes out is
# distributed exactly as the target's own text, and one run of the target gives more than one word
# of it. The numbers for two models that fit on a page are computed below: how much is kept in
# section 2, that nothing is lost in section 4, words per run of the target in section 9.
#
# ![Draw from q, keep with min(1, p/q), after a rejection draw from the residual: together p](../figures/tiny/00_rule.png)
#
# *Runs on* any machine · *minutes* less than one on 2 cores · *reads* nothing: both models are
# tables in this notebook, the parameter `profile` only names the folder · *writes*
# `figures/<profile>/00_*`.

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
from types import SimpleNamespace

import numpy as np
import pandas as pd
import torch
from IPython.display import HTML, display
from scipy.stats import chisquare, entropy

from speclab import pictures as tokenview, cost, figures, notebook, score
from speclab.analysis import by_hand as byhand
from speclab.decode import Step, decode
from speclab.draft import parse_shape
from speclab.model import LanguageModel
from speclab.pairs import Pair
from speclab.sampling import Sampling
from speclab.tree import chain, static_tree
from speclab.verify import RULES, draw_children, verify

# %% tags=["parameters"]
profile: str = "tiny"  # not used here but for the name of the folder: no model is loaded
overrides: dict = {}  # parameters of the profile to change; none changes anything here
seed: int = 0  # of every random number that is not written out below
draws: int = 4000  # first words drawn under each rule in section 4
blocks_each: int = 500  # blocks decoded for each gamma in section 9, about

# %% [markdown]
# ## 1. Two models of five words
# A language model is, for our purpose, a table: given the text so far, the probability of each
# possible next token. Here a token is one of five words, and the next word depends on the last one
# only, so that each model is five rows of five numbers.
#
# The **target, p** is the large model whose text is wanted; p is also its distribution of the next
# token. The **draft, q** is the small, fast model that makes proposals. The text so far is the
# **context**. (The committed tokens are also called the **trunk**, when they stand in a real
# model's cache and proposals hang off them.)

# %%
ctx = notebook.start("00_by_hand", profile, overrides)
words = ["the", "cat", "dog", "sat", "."]
the, cat, dog, sat, stop = range(5)
p_table = np.array(
    [  # row: the last word, column: the next one
        [0.00, 0.50, 0.35, 0.05, 0.10],  # after "the"
        [0.05, 0.00, 0.05, 0.70, 0.20],  # after "cat"
        [0.30, 0.05, 0.00, 0.45, 0.20],  # after "dog"
        [0.25, 0.05, 0.05, 0.05, 0.60],  # after "sat"
        [0.60, 0.10, 0.20, 0.05, 0.05],  # after "."
    ]
)
q_table = np.array(
    [
        [0.05, 0.30, 0.55, 0.05, 0.05],
        [0.10, 0.05, 0.05, 0.45, 0.35],
        [0.05, 0.05, 0.00, 0.60, 0.30],
        [0.45, 0.00, 0.05, 0.10, 0.40],
        [0.75, 0.05, 0.05, 0.00, 0.15],
    ]
)
p_rows, q_rows, rng = (
    torch.from_numpy(p_table),
    torch.from_numpy(q_table),
    np.random.default_rng(seed),
)
assert np.allclose(p_table.sum(1), 1) and np.allclose(q_table.sum(1), 1)
pages = {
    name: pd.DataFrame(table, words, words)
    for name, table in (("p, target", p_table), ("q, draft", q_table))
}
ctx.table(pd.concat(pages, names=["model", "after"]), "models", 2)

# %% [markdown]
# ## 2. One word drafted, one word verified
# The context ends in "the". Drawing the next word from p would do, but p is what is dear to
# compute. So:
#
# 1. draw a word x from q;
# 2. ask the target for p, and keep x with probability min(1, p(x)/q(x)). Then x is an **accepted**
#    token;
# 3. else draw a word from the **residual**, norm(max(p - q, 0)): the words that q gives too little,
#    in proportion to what they lack. This is a **recovered** token.
#
# Why does it work? Word x comes out of step 2 with probability q(x) min(1, p(x)/q(x)) = min(p(x),
# q(x)). Summed over all words this is the **overlap** of the two models, the probability that the
# draft's word stays. What min(p, q) lacks of p is max(p - q, 0), and this is what step 3 adds, as
# often as step 2 fails. A procedure that emits text distributed as the target's own is called
# **lossless**.

# %%
p, q = p_table[the], q_table[the]
kept, left = byhand.chance(p, q), byhand.residual(p, q)
shared = np.minimum(p, q)
overlap = float(shared.sum())
out = {"accepted": q * kept, "recovered": (1 - overlap) * left}
rule = pd.DataFrame(
    {"p": p, "q": q, "min(1, p/q)": kept, "residual": left} | out,
    index=pd.Index(words, name="after the"),
)
ctx.table(rule.assign(emitted=out["accepted"] + out["recovered"]), "rule")
emitted = byhand.emitted(q, kept, left)
notebook.say(
    f'After "the" the target\'s favourite is "{words[p.argmax()]}" and the draft\'s is "{words[q.argmax()]}". The draft\'s word stays '
    f"with probability **{overlap:.2f}** (the overlap, which is 1 minus the total variation distance of p and q). With probability "
    f"{1 - overlap:.2f} it is rejected, and {' or '.join(f'`{w}`' for w in np.array(words)[left > 0])} is recovered. "
    f"The column `emitted` is p again: lossless.\n\n"
    f"Four more numbers describe such a row. **`kl`**, KL(p‖q), how much p's words surprise the draft: {entropy(p, q):.2f} nats. "
    f"**`target_entropy`**, how undecided the target is: {entropy(p):.2f} nats; **`draft_entropy`**: {entropy(q):.2f} nats. "
    f"**`target_margin`**, p of the target's best word minus p of its second: {np.diff(np.sort(p)[-2:])[0]:.2f}."
)
assert np.allclose(emitted, p) and np.isclose(overlap, 1 - byhand.total_variation(p, q))

# %%
fig, axes = figures.subplots(1, 3, height=2.7, sharey=True, width_ratios=[1.2, 1, 1.2])
looks, x = tokenview.LOOKS, np.arange(5)
green = {"color": looks["accepted"].face, "edgecolor": looks["accepted"].edge}
orange = {"color": looks["recovered"].face, "edgecolor": "black"}
axes[0].bar(x, shared, **green, label="kept: min(p, q)")
axes[0].bar(
    x,
    q - shared,
    bottom=shared,
    color="white",
    edgecolor="#444444",
    hatch="/////",
    label="rejected: the rest of q",
)
for place, (height, share) in enumerate(zip(np.maximum(p, q), kept, strict=True)):
    axes[0].annotate(
        f"{share:.0%}", (place, height), (0, 4), textcoords="offset points", ha="center"
    )
axes[0].text(4.5, 0.8, f"kept in all: {overlap:.2f}, the overlap", ha="right")
axes[1].bar(x, left, **orange)
axes[2].bar(x, shared, **green)
axes[2].bar(
    x,
    (1 - overlap) * left,
    bottom=shared,
    **orange,
    label=f"recovered: {1 - overlap:.2f} × residual",
)
for axis in axes[[0, 2]]:
    axis.plot(
        x, p, "_", color="black", markersize=24, markeredgewidth=2.2, label="p, what is wanted"
    )
for axis, title in zip(
    axes,
    ("1  Draw from q, keep with min(1, p/q)", "2  If rejected: residual", "3  What comes out: p"),
    strict=True,
):
    axis.set(title=title, ylim=(0, 0.9), xlabel='next word after "the"')
    axis.set_xticks(x, words)
axes[0].set_ylabel("probability")
keys = {
    text: handle
    for axis in axes
    for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)
}
fig.legend(keys.values(), keys.keys(), loc="outside lower center", ncols=4)
ctx.save(fig, "rule")
notebook.say(
    "*Bars: 1 the draft's words, above each the share that is kept; 2 the residual; 3 both together. Black: the target's p.*"
)

# %% [markdown]
# ## 3. A chain of three, with the coins in hand
# Asking the target about one word gains nothing yet: it ran once and gave one word. But one run of
# the target can score many words at once. So the draft proposes **gamma** words in a row (a chain),
# the target scores all of them in one pass, and we go through them from the left: each is kept by
# the rule above, p and q being the rows after the word before it. The first rejection ends it: its
# place gets a recovered token, and what was drafted behind it is thrown away. If all are kept, the
# target has already computed p behind the last one, and a word drawn from it comes for free: the
# **bonus** token. One draft, one target pass and what comes of them is a **block**.
#
# Below are two blocks of gamma = 3 whose drafted words and coins (numbers between 0 and 1, drawn
# uniformly) are written out, so that each decision can be checked: a word is kept when its coin is
# below min(1, p/q). The last coin of a block picks the recovered or bonus token.

# %%
written = [
    (stop, [the, dog, sat], [0.30, 0.80, 0.50, 0.0]),
    (cat, [sat, stop, the], [0.90, 0.60, 0.40, 0.70]),
]
rows, steps = [], []
for block, (last, drafted, coins) in enumerate(written, 1):
    tokens = np.array([last, *drafted])
    verdict = verify("rejection", chain(3), tokens, p_rows[tokens], q_rows[tokens], np.array(coins))
    for before, word, coin in zip(tokens[: verdict.tried], drafted, coins, strict=False):
        p_x, q_x = p_table[before, word], q_table[before, word]
        chance = min(1, p_x / q_x)
        rows.append(
            (
                block,
                words[before],
                words[word],
                p_x,
                q_x,
                chance,
                coin,
                "accepted" if coin < chance else "rejected",
            )
        )
    ending = words[tokens[len(verdict.path)]], words[verdict.token]
    rows.append((block, ending[0], ending[1], None, None, None, coins[verdict.tried], verdict.kind))
    steps.append(
        Step((*drafted[: len(verdict.path)], verdict.token), len(verdict.path), 3, verdict.kind)
    )
table = pd.DataFrame(
    rows, columns=["block", "after", "word", "p", "q", "min(1, p/q)", "coin", "outcome"]
)
ctx.table(table, "chain", 2)
display(HTML(tokenview.as_html(steps, words)))
notebook.say(
    f"Block 1 keeps {steps[0].accepted} word of 3, recovers one and throws the rest away; block 2 keeps all {steps[1].accepted} and gets "
    f"a bonus. Two target passes gave {sum(len(s.tokens) for s in steps)} words. The coins decide as in the table; `verify` agrees."
)
assert (
    [(table.query("block == @b")["outcome"] == "accepted").sum() for b in (1, 2)]
    == [s.accepted for s in steps]
    == [1, 3]
)
assert [s.kind for s in steps] == ["recovered", "bonus"]

# %% [markdown]
# ## 4. Is nothing lost?
# Let us not believe the algebra but watch it: draft one word after "the", verify it, note what
# comes out, many times. The shares must tend to p. Beside the rule above (`rejection`) three
# others, all with the draft's single best word instead of a drawn one:
#
# * `point-mass` keeps x with probability p(x), and after a rejection draws from p without x. This
#   is lossless too.
# * `ratio` keeps x with min(1, p(x)/q(x)), as if x had been drawn from q. It was not, and the rule
#   is **not** lossless.
# * `typical` keeps x whenever p(x) is above a threshold. Fast, and not lossless by design.
#
# How far the shares are from p is measured by their total variation: half the sum of the absolute
# differences. For shares of n words that really come from p it shrinks as 1/√n (grey line). For
# each rule the limit is also known exactly, from its own formulas.


# %%
def first_word(rule: str) -> int:
    """Draft one word after "the", verify it by a rule, and return the first word that comes out."""
    child = (
        int(draw_children(q_rows[the], 1, rng.random(1))[0])
        if RULES[rule].sampled
        else int(q.argmax())
    )
    tokens = np.array([the, child])
    verdict = verify(rule, chain(1), tokens, p_rows[tokens], q_rows[tokens], rng.random(2))
    return child if verdict.path else verdict.token


def limit(rule: str) -> np.ndarray:
    """Distribution of that word: exact, without a draw."""
    children, found = (
        (np.flatnonzero(q), q)
        if RULES[rule].sampled
        else ([int(q.argmax())], np.eye(5)[q.argmax()])
    )
    steps = {
        int(x): [t.numpy() for t in RULES[rule].step(p_rows[the], q_rows[the], [int(x)])]
        for x in children
    }
    return sum(
        found[x] * byhand.emitted(np.eye(5)[x], np.full(5, chance), rest)
        for x, (chance, rest) in steps.items()
    )


names = ["rejection", "point-mass", "ratio", "typical"]
came = {name: np.array([first_word(name) for _ in range(draws)]) for name in names}
errors = pd.DataFrame(
    {name: byhand.running_error(found, p) for name, found in came.items()},
    index=np.arange(1, draws + 1),
)
exact = {name: float(byhand.total_variation(limit(name), p)) for name in names}
by_chance = np.sqrt(2 * p * (1 - p) / np.pi).sum() / 2 / np.sqrt(errors.index.to_numpy())
table = pd.DataFrame(
    {
        "observed": errors.iloc[-1],
        "expected of words from p": by_chance[-1],
        "exact limit": pd.Series(exact),
    }
)
table["chi-square p-value"] = [
    chisquare(np.bincount(w, minlength=5)[p > 0], draws * p[p > 0]).pvalue for w in came.values()
]
lossy = [name for name in names if exact[name] > 1e-9]

# %%
fig, axes = figures.subplots(1, 3, height=2.6, width_ratios=[1, 1, 1.5])
for axis, name in zip(axes, ("rejection", "ratio"), strict=False):
    for i, n in enumerate((max(1, draws // 200), max(1, draws // 20), draws)):
        shares = np.bincount(came[name][:n], minlength=5) / n
        axis.bar(
            x + (i - 1) * 0.27,
            shares,
            0.27,
            color=str(0.95 - 0.2 * i),
            edgecolor="black",
            linewidth=0.5,
            label=f"{n} words",
        )
    axis.plot(x, p, "_", color="black", markersize=21, markeredgewidth=2.2, label="p")
    axis.set(
        title=f"{name}{'' if RULES[name].lossless else ' (not lossless)'}",
        xlabel='first word after "the"',
        ylim=(0, 0.9),
    )
    axis.set_xticks(x, words)
axes[0].set_ylabel("share of the words that came out")
axes[0].legend(loc="upper right")
for i, name in enumerate(names):
    style = figures.style_of(name, i) | {"marker": ""}
    axes[2].plot(errors.index, errors[name], **style)
    axes[2].annotate(
        name,
        (draws, errors[name].iloc[-1]),
        (4, 0),
        textcoords="offset points",
        va="center",
        color=style["color"],
    )
axes[2].plot(errors.index, by_chance, color="#AAAAAA", linewidth=3, zorder=0)
axes[2].text(
    0.03, 0.05, "grey: expected of\nwords from p", transform=axes[2].transAxes, color="#777777"
)
axes[2].set(
    xscale="log",
    yscale="log",
    xlim=(5, draws * 9),
    ylim=(0.001, 1),
    xlabel="words drawn",
    ylabel="total variation to p",
)
ctx.save(fig, "lossless")
notebook.say(
    "*Left, middle: shares after more and more words, black: p. Right: distance to p; a lossless rule follows the grey line.*"
)
ctx.table(table.rename_axis("rule"), "lossless", 4)
notebook.say(
    f"The exact limit of {', '.join(f'`{n}`' for n in names if n not in lossy)} is p, and what was drawn agrees with it (chi-square test). "
    f"{' and '.join(f'`{n}` stays {exact[n]:.2f} away' for n in lossy)}, however many words are drawn."
)
assert (
    lossy
    == [n for n in names if not RULES[n].lossless]
    == list(table.index[table["chi-square p-value"] < 1e-4])
)

# %% [markdown]
# ## 5. A tree by hand
# Why propose one word for a place, when the target can score several in the same pass? A **draft
# tree** proposes alternatives: each drafted word is a **node**, the **root** is the last word of
# the context and is not drafted. The **depth** of a node is the number of drafted words from the
# root down to it, its own included; its **rank** is its word's place among the draft's choices
# after the node above, 0 = most likely; the **best path** is where every rank is 0 (the chain that
# the draft alone would write at temperature 0). A chain is a tree of one branch.
#
# The children below are not drawn: they are the draft's two best words. So the rule is
# `point-mass`: the first child is kept with probability p(x); if it is rejected, p loses that word,
# is renormalised, and the second child is tried. (Children that are drawn from q, without
# replacement, have a rule of their own: `without-replacement`.)

# %%
tree, coins = static_tree(2, 2), [0.30, 0.50, 0.40, 0.60, 0, 0, 0]
tokens = byhand.best_tokens(tree, q_table, stop)
verdict = verify("point-mass", tree, tokens, p_rows[tokens], None, np.array(coins))
above = tokens[tree.parent[1:]]
p_node, q_node = (np.append(1, table[above, tokens[1:]]) for table in (p_table, q_table))
rows, gone = [], 0.0
for coin, node in zip(coins, (1, 3, 4), strict=False):  # the nodes that are tried, in order
    gone = p_node[node - 1] if tree.rank[node] else 0.0  # p of the rejected sibling
    chance = p_node[node] / (1 - gone)
    places = node, words[tokens[tree.parent[node]]], words[tokens[node]], tree.rank[node]
    rows.append((*places, p_node[node], chance, coin, "accepted" if coin < chance else "rejected"))
columns = ["node", "after", "word", "rank", "p", "p among the words left", "coin", "outcome"]
ctx.table(pd.DataFrame(rows, columns=columns), "tree", 2)
fig = figures.draw_tree(
    tree, [words[t] for t in tokens], q_node, p_node, np.isin(np.arange(7), verdict.path)
)
ctx.save(fig, "tree")
notebook.say(
    f"Accepted: *{' '.join(words[tokens[n]] for n in verdict.path)}*; the path ends at a leaf, so a {verdict.kind} word follows: "
    f"*{words[verdict.token]}*. The chain of the best path would have stopped at its second word."
)
assert verdict.path == tuple(row[0] for row in rows if row[-1] == "accepted") == (
    1,
    4,
) and verdict.tried == len(rows)

# %% [markdown]
# ## 6. Which number is "the acceptance"?
# There are many, they answer different questions, and they must not be mixed up. Here is every one
# that the kit uses, with the paper's tree (2 + 4 + 2 nodes) hung once on each of the five words. (A
# text does not visit its words equally often, and a decoder does not start a block at each:
# averages over **every position** and over **visited blocks** can differ. Here it is every
# position, each word once.)
#
# * **`published_alpha`**: mean of min(1, p/q) over all nodes; **`published_length`**: its running
#   products by depth, added up; **`best_path_alpha`**: the mean over the best path only. No
#   algorithm accepts with these probabilities.
# * **`alpha`**: mean `overlap`, exact for one drawn word. **`top_mass[k]`**: the p of the draft's k
#   best words, exact for k children under `point-mass`. **`hit[k]`**: how often the target's own
#   word (at temperature 0 its best, section 7) is among the draft's k best.
# * For the tree and a rule: **`survival_by_depth[d]`**, the probability that at least d words are
#   accepted; **`accept_by_depth[d]`**, that the d-th is, given that d - 1 were;
#   **`mean_accepted`**, the sum of the survivals; **`block_efficiency`** (**tau**), words per
#   target pass, which is one more; **`draft_utilisation`**, accepted over drafted.

# %%
paper_tree, order = static_tree(3, 2, 8), np.argsort(-q_table, axis=1, kind="stable")
hung = [
    pd.DataFrame(byhand.node_columns(paper_tree, p_table, q_table, word)).assign(position=word)
    for word in range(5)
]
nodes = pd.concat(hung, ignore_index=True).assign(prompt_id="five words")
trace = pd.DataFrame(
    {
        "overlap": np.minimum(p_table, q_table).sum(1),
        "top_draft_p": list(np.take_along_axis(p_table, order, 1)),
    }
)
trace["draft_rank"] = np.argmax(
    order == p_table.argmax(1)[:, None], axis=1
)  # of the target's best word
plain = {
    e.name: e(nodes) for e in (score.published_alpha, score.published_length, score.best_path_alpha)
}
plain |= {"alpha": score.overlap_alpha(trace)} | {
    f"{e.name}[{k}]": e(trace, k) for e in (score.top_mass, score.hit) for k in (1, 2)
}
ctx.table(pd.Series(plain, name="value").rename_axis("estimator").to_frame(), "estimators")
trees = {}
for rule in ("greedy", "point-mass"):
    values = {e: np.atleast_1d(e(nodes)) for e in score.tree_estimators(rule).values()}
    trees[f"{rule} rule"] = {
        label: value
        for e, found in values.items()
        for label, value in zip(e.labels(len(found)), found, strict=True)
    }
ctx.table(pd.DataFrame(trees).rename_axis("of the tree"), "tree-estimators")
tau = {rule: row["block_efficiency"] for rule, row in trees.items()}
notebook.say(
    f"The very same trees: `published_length` is {plain['published_length']:.2f}, but {tau['greedy rule'] - 1:.2f} words of a tree are "
    f"accepted at temperature 0 and {tau['point-mass rule'] - 1:.2f} at temperature 1 (`mean_accepted`), and each pass gives one more."
)
assert all(1 <= value <= 4 for value in tau.values())
assert plain["hit[1]"] <= plain["hit[2]"] and plain["top_mass[1]"] <= plain["top_mass[2]"]

# %% [markdown]
# ## 7. Temperature 0, and the token view
# At temperature 0 the target writes its best word each time, and so the rule becomes simple
# (`greedy`): a drafted word is kept when it *is* the target's best; at the first that is not, the
# target's best takes its place. Lossless now means: the same text, word for word.
#
# The kit's real decoder, the one that runs Llamas, takes our tables for models. It must write what
# the target alone would write. The boxes show where each word came from; a bar is the start of a
# block, that is, one target pass. Then the same at temperature 1, with a chain of three drawn
# words.


# %%
def table_model(table: np.ndarray) -> LanguageModel:
    """A table behind the interface of a language model: the logits after a word are the logarithms
    of its row.
    """
    rows = torch.from_numpy(table).log().float()
    body = lambda input_ids, **_: SimpleNamespace(last_hidden_state=rows[input_ids])  # noqa: E731
    return LanguageModel(body, lambda hidden: hidden, 5, torch.float32, "cpu")


pair, alone, length = (
    Pair(table_model(p_table), table_model(q_table), None, frozenset(), {}),
    [stop],
    24,
)
for _ in range(length):
    alone.append(int(p_table[alone[-1]].argmax()))
passes = {}
for shape in ("chain:3", "tree:2,2"):
    steps = list(decode(pair, (stop,), "greedy", parse_shape(shape), Sampling(), length))
    passes[shape] = len(steps)
    notebook.say(f"**Temperature 0, `{shape}`**")
    display(HTML(tokenview.as_html(steps, words)))
    assert [t for s in steps for t in s.tokens] == alone[1:], (
        "speculation must not change a greedy text"
    )
told = ", ".join(f"{count} with `{shape}`" for shape, count in passes.items())
notebook.say(
    f"The same {length} words as the target alone, which needs {length} passes: {told}.\n\n**Temperature 1, `chain:3`**"
)
sampled = list(decode(pair, (stop,), "rejection", parse_shape("chain:3"), Sampling(1.0), 60, rng))
display(HTML(tokenview.as_html(sampled, words)))
ctx.save(figures.draw_tokens(tokenview.layout(sampled, words)), "tokens")
notebook.say("*The same continuation as a picture for a paper.*")

# %% [markdown]
# ## 8. What the article's pseudo-code lacks
# The article *Speculative Decoding for Reasoning* gives pseudo-code whose idea is right: draft
# gamma tokens, score them in one target pass, keep them from the left with min(1, p/q), go on.
# Three things are missing from it:
#
# 1. **No residual.** After a rejection nothing is drawn from the residual. Either the place stays
#    empty and is drafted anew, or one takes a word from p, as one might think right. Both change
#    the text.
# 2. **No bonus.** The word behind a chain that was kept whole is not taken. The text is right, but
#    words that were paid for are left.
# 3. **Logits read at the wrong positions.** The target's output at a place is its distribution of
#    the *next* word. Compare a drafted word with p from its own place instead of the place before,
#    and it is judged by what should follow it (here: one place late; exercise 4 has it early).
#
# Each is computed exactly, after "the": the distribution of the first word that comes out, its
# distance from p, and words per target pass at gamma = 3.

# %%
late = np.tile(np.diag(p_table), (5, 1))  # p of x, read after x instead of before it
common, wrong = np.minimum(p_table, q_table), np.minimum(late, q_table)
right_chain, wrong_chain = byhand.survival(common, the, 3), byhand.survival(wrong, the, 3)
tau, wrong_kept = 1 + right_chain.sum(), byhand.chance(late[the], q)
variants = {
    "as it should be": (byhand.emitted(q, kept, left), tau),
    "no residual: drafted anew": (q * kept / (q * kept).sum(), tau - 1 + right_chain[-1]),
    "no residual: drawn from p": (byhand.emitted(q, kept, p), tau),
    "no bonus": (byhand.emitted(q, kept, left), tau - right_chain[-1]),
    "p read one position late": (
        byhand.emitted(q, wrong_kept, byhand.residual(p_table, q)),
        1 + wrong_chain.sum(),
    ),
    "all three": (q * wrong_kept / (q * wrong_kept).sum(), wrong_chain.sum()),
}
flaws = pd.DataFrame({name: out for name, (out, _) in variants.items()}, index=words).T.rename_axis(
    "procedure"
)
flaws["total variation"] = [float(byhand.total_variation(out, p)) for out, _ in variants.values()]
flaws["words per pass"] = [float(count) for _, count in variants.values()]
ctx.table(flaws, "flaws")
off = flaws["total variation"] > 1e-9
notebook.say(
    f"p is {', '.join(f'{w} {v:.2f}' for w, v in zip(words, p, strict=True))}. "
    f"Another text than the target's comes from: {'; '.join(flaws.index[off])}. "
    f"Fewer words per pass than {tau:.2f}: {'; '.join(flaws.index[flaws['words per pass'] < tau - 1e-9])}. With all three "
    f"a pass gives {flaws.loc['all three', 'words per pass']:.2f} words; plain decoding, without any draft, gives 1."
)
assert list(flaws.index[~off]) == ["as it should be", "no bonus"]

# %% [markdown]
# ## 9. How many words does a target pass give?
# If each drafted word is accepted with probability a, whatever happened before, then at least d
# words are accepted with probability a^d, and with the recovered or bonus word `block_efficiency`
# is 1 + a + a² + … + a^gamma = (1 - a^(gamma+1)) / (1 - a). Our tables were made so that the
# overlap is the same after each word; for them the formula is exact with a = `alpha`. The dots are
# the decoder's own counts, with 95 % intervals (blocks are independent here; in real texts they are
# not, and the unit is the prompt: **prompt-clustered interval**, notebook 02 on).

# %%
gammas, alpha, found = np.arange(1, 9), plain["alpha"], []
formula = cost.block_efficiency_iid(alpha, gammas)
for gamma in (1, 2, 3, 4, 6, 8):
    steps = decode(
        pair,
        (stop,),
        "rejection",
        parse_shape(f"chain:{gamma}"),
        Sampling(1.0),
        int(blocks_each * formula[gamma - 1]),
        rng,
    )
    sizes = np.array(
        [len(s.tokens) for s in steps][:-1]
    )  # the last block is cut by the end of the text
    found.append((gamma, sizes.mean(), sizes.std(ddof=1) / np.sqrt(len(sizes)), len(sizes)))
counted = pd.DataFrame(found, columns=["gamma", "counted", "standard error", "blocks"]).set_index(
    "gamma"
)
counted["formula"] = formula[counted.index - 1]
ctx.table(counted, "words-per-pass")
fig, ax = figures.subplots(width=figures.ONE_COLUMN, height=2.6)
ax.errorbar(
    counted.index,
    counted["counted"],
    1.96 * counted["standard error"],
    fmt="o",
    color="black",
    capsize=2,
    zorder=3,
)
curves = {
    "with bonus": (formula, "-", "#0072B2", 3),
    "no bonus": (formula - alpha**gammas, "--", "#D55E00", -7),
    "no bonus,\nno recovered": (formula - 1, ":", "#444444", 0),
}
for name, (line, dashes, colour, lift) in curves.items():
    ax.plot(gammas, line, dashes, color=colour)
    ax.annotate(
        name, (8, line[-1]), (5, lift), textcoords="offset points", va="center", color=colour
    )
ax.axhline(1 / (1 - alpha), color="#AAAAAA", linewidth=0.8)
ax.text(1, 1 / (1 - alpha) + 0.06, "1 / (1 - alpha): no gamma goes beyond", color="#777777")
ax.set(
    xlabel="gamma, drafted words in a block",
    ylabel="block_efficiency (words per target pass)",
    xticks=gammas,
)
ax.set(xlim=(0.6, 11.2), ylim=(0, 4.5))
ctx.save(fig, "words-per-pass")
assert np.allclose(formula, [1 + byhand.survival(common, stop, g).sum() for g in gammas])
assert (abs(counted["counted"] - counted["formula"]) < 4.5 * counted["standard error"]).all()

# %%
free = cost.break_even_cost(formula[2], 3)
inside = (counted["counted"] - counted["formula"]).abs() < 1.96 * counted["standard error"]
notebook.say(
    f"The formula lies within the 95 % interval of the count at {inside.sum()} of {len(inside)} gammas. With a = {alpha:.2f} no gamma "
    f"gives more than 1/(1 - a) = {1 / (1 - alpha):.1f} words per pass (grey line), and each further drafted word adds less but "
    f"costs a draft pass.\n\nWords per pass are not yet speed. That takes three measured costs: **c**, the time of a draft pass over that "
    f"of a target pass; **v(n)**, the time of a target pass over n tokens over that of one over 1; **o**, the loop's own time per block, "
    f"in target passes. The speed-up is `block_efficiency` / (gamma c + v(gamma + 1) + o). If v were 1 and o were 0, gamma = 3 would beat "
    f"plain decoding as long as a draft pass takes less than {free:.2f} of the time of a target pass."
)
shown = {
    "alpha": alpha,
    "published_length": plain["published_length"],
    "overlap_after_the": overlap,
}
counts = {
    "words_per_pass_gamma_3": float(formula[2]),
    "counted_gamma_3": float(counted.loc[3, "counted"]),
}
ctx.record(
    **shown,
    **counts,
    **{f"total_variation_{name.replace('-', '_')}": round(exact[name], 9) for name in names},
)

# %% [markdown]
# ## Try it
# Say first what will happen, then change the cell and run it.
#
# 1. Section 3: change the second coin of block 1 from 0.80 to 0.60. What does the block give?
#
# <details><summary>What happens</summary>
# min(1, p/q) of <i>dog</i> after <i>the</i> is 0.35/0.55 = 0.64. The coin 0.60 is below it:
# <i>dog</i> is accepted. Next comes <i>sat</i> after <i>dog</i>, 0.45/0.60 = 0.75, with the coin
# 0.50: accepted. All three are kept, and the coin 0.0 picks the bonus token from p after
# <i>sat</i>: its first word, <i>the</i>. Four words from one pass. (The assertions of the cell were
# written for the old coins; they now fail, as they should.)
# </details>
#
# 2. In a new cell make the draft a copy of the target: `1 + byhand.survival(np.minimum(p_table,
#    p_table), stop, 3).sum()`. How many words does a pass give at gamma = 3, and what is
#    `byhand.residual(p_table, p_table)` good for?
#
# <details><summary>What happens</summary>
# 4 words, gamma + 1: min(1, p/q) is 1 for every word that can be drafted, nothing is ever rejected,
# and the residual is never used (the function returns p). It is the most that can be had, and worth
# nothing if the draft is as slow as the target.
# </details>
#
# 3. Keep the mean overlap, but make it unequal: `other = q_table.copy()`, then `other[the] =
#    p_table[the]` (overlap 1) and `other[sat] = [0.60, 0.10, 0.10, 0.10, 0.10]` (overlap 0.50). Is
#    the formula of section 9 still right? Compare `cost.block_efficiency_iid(0.75, 3)` with `1 +
#    byhand.survival(np.minimum(p_table, other), stop, 3).sum()`.
#
# <details><summary>What happens</summary>
# The mean over the five words stays 0.75, but a block that begins after "." now gives 2.99 words
# and one after "sat" (`sat` instead of `stop`) 2.25; the formula says 2.73 for both. It needs an
# acceptance that does not depend on what came before. In real texts it does: notebook 02 sets the
# formula beside the count.
# </details>
#
# 4. Section 8: read p one position too <i>early</i> instead, so that a drafted word is compared
#    with the row that the word before it was judged by. For the first word after "the", when the
#    word before "the" was ".", what is the probability that <i>cat</i> is kept?
#
# <details><summary>What happens</summary>
# p(<i>cat</i>) is read after ".": 0.10 instead of 0.50. So <i>cat</i> is kept with 0.10/0.30 = 0.33
# instead of always. The text is not the target's either, and a chain's words are accepted less
# often.
# </details>

# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: a rule with two cases, kept or drawn from the residual, whose output is p exactly;
#   two rules that look similar and are not lossless; a block of a chain and of a tree, checked coin
#   by coin; what each flaw of the article's pseudo-code costs; and words per pass as the formula
#   says where acceptance does not depend on the context.
# * What this does not show: a real model. There, p and q depend on the whole context, acceptance
#   comes in runs, and time is what counts, not passes.
# * Next: [01](01_load_models.ipynb) loads a real pair and draws one of its trees;
#   [02](02_gamma_sweep.ipynb) asks how many tokens should be drafted.
