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
# A draft proposes words, the target keeps each with probability min(1, p/q), and where it refuses
# one, it draws another from what the draft left short, the residual. Is what comes out really the
# target's own text, and how many words does one run of the target give? Here every number can be
# checked by hand, on two models that fit on a page.
#
# ![Draw from q, keep or replace: together p](../figures/smollm/00/rule.png)
#
# The kit studies two sources. The paper is *Acceptance Dynamics Across Cognitive Domains in
# Speculative Decoding* (arXiv:2604.14682): it publishes how often the drafts of a small model are
# accepted by a large one, for code, math, reasoning and chat. It measures on recorded text with
# trees of eight drafted tokens, and concludes that the kind of text decides what drafting is worth.
# The article is *Speculative Decoding for Reasoning*, a how-to with a rule of thumb for the
# speed-up, pseudo-code, and advice how many tokens to draft. The other notebooks only name them.
#
# *Runs on* any machine · *minutes* less than one on 2 cores · *reads* nothing: both models are
# tables in this notebook, the parameter `profile` only names the folder · *writes*
# `figures/<profile>/00/`.

# %% tags=["parameters"]
# not used here but for the name of the folder: no model is loaded
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change; none changes anything here
seed: int = 0  # 0 to 4294967295; of every random number that is not written out below
draws: int = 4000  # 100 to 1000000; first words drawn under each rule in section 4
# blocks decoded for each gamma in section 8, about
blocks_each: int = 500  # 10 to 100000

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
import torch
from IPython.display import HTML, display

from speclab import cost, score
from speclab.show import drawings, notebook, pictures, redraw
from speclab.analysis import rejection_rule
from speclab.decode import decode
from speclab.shapes import parse_shape
from speclab.explore import page
from speclab.sampling import Sampling
from speclab.studies import by_hand as study
from speclab.tree import static_tree
from speclab.verify import RULES, verify

RUNS = []

# %% [markdown]
# ## 1. Two models of five words
# A language model is, for our purpose, a table: given the text so far, the probability of each
# possible next token. Here a **token** is one of five words, and the next word depends on the last
# one only, so that each model is five rows of five numbers.
#
# The **target, p** is the large model whose text is wanted; p is also its distribution of the next
# token. The **draft, q** is the small, fast model that makes proposals. The text so far is the
# **context**. (The committed tokens are also called the **trunk**, when they stand in a real
# model's cache and proposals hang off them.)

# %%
ctx = notebook.start("00_by_hand", profile, overrides)
rng = np.random.default_rng(seed)
words = ["the", "cat", "dog", "sat", "."]
the, cat, dog, sat, stop = range(5)

# %%
p_table = np.array(
    [  # row: the last word, column: the next one
        [0.00, 0.50, 0.35, 0.05, 0.10],  # after "the"
        [0.05, 0.00, 0.05, 0.70, 0.20],  # after "cat"
        [0.30, 0.05, 0.00, 0.45, 0.20],  # after "dog"
        [0.25, 0.05, 0.05, 0.05, 0.60],  # after "sat"
        [0.60, 0.10, 0.20, 0.05, 0.05],  # after "."
    ]
)

# %%
q_table = np.array(
    [
        [0.05, 0.30, 0.55, 0.05, 0.05],
        [0.10, 0.05, 0.05, 0.45, 0.35],
        [0.05, 0.05, 0.00, 0.60, 0.30],
        [0.45, 0.00, 0.05, 0.10, 0.40],
        [0.75, 0.05, 0.05, 0.00, 0.15],
    ]
)

# %%
target, draft = (pd.DataFrame(table, words, words) for table in (p_table, q_table))
pages = pd.concat({"p, target": target, "q, draft": draft}, names=["model", "after"])
ctx.table(pages, "models", 2)
assert np.allclose(pages.sum(axis=1), 1)

# %% [markdown]
# ## 2. One word drafted, one word verified
# The context ends in "the". We could sample the next word from p directly, but p is expensive to
# compute. So:
#
# 1. draw a word x from q;
# 2. ask the target for p, and keep x with probability min(1, p(x)/q(x)). Then x is an **accepted**
#    token;
# 3. else draw a word from the **residual**, norm(max(p - q, 0)): the words that q gives too little,
#    in proportion to what they lack. (norm() divides by the sum, so that the numbers add up to 1.)
#    This is a **recovered** token.
#
# Why does it work? Word x comes out of step 2 with probability q(x) min(1, p(x)/q(x)) = min(p(x),
# q(x)). Summed over all words this is the **overlap** of the two models, the probability that the
# draft's word stays. p - min(p, q) = max(p - q, 0), and step 3 adds exactly this part whenever step
# 2 rejects. A procedure that emits text distributed as the target's own is called
# **lossless**.

# %%
p, q = p_table[the], q_table[the]
kept = np.minimum(1, p / q)  # of each word that the draft may say
residual = np.maximum(p - q, 0)
residual = residual / residual.sum()
rejected = 1 - np.minimum(p, q).sum()

# %%
columns = {"p": p, "q": q, "min(1, p/q)": kept, "residual": residual}
columns |= {"accepted": q * kept, "recovered": rejected * residual}
rule = pd.DataFrame(columns, words)
rule["emitted"] = rule["accepted"] + rule["recovered"]
rule = rule.rename_axis("word")
ctx.table(rule, "rule")
assert np.allclose(rule["emitted"], p), "lossless"

# %% [markdown]
# The kit's own rule, `speclab.verify`, says the same of each drafted word: the probability that it
# is kept, and what is drawn from after a rejection.

# %%
p_row, q_row = torch.from_numpy(p), torch.from_numpy(q)
for word in range(len(words)):
    chance, drawn_from = RULES["rejection"].step(p_row, q_row, [word])
    assert np.isclose(chance, kept[word]) and np.allclose(drawn_from, residual)

# %%
overlap = float(np.minimum(p, q).sum())
recovered = " or ".join(f"`{word}`" for word in rule.index[rule["residual"] > 0])
ctx.say(
    f'After "the" the draft\'s word stays with probability **{overlap:.2f}**, the overlap. With '
    f"probability {1 - overlap:.2f} it is rejected, and {recovered} is recovered. The column "
    "`emitted` is p again: lossless."
)

# %%
ctx.draw(
    drawings.draw_rule,
    rule,
    "rule",
    f"One word after 'the': 1 the draft's words and what is kept of them ({overlap:.2f} in all, "
    "the overlap); 2 the residual; 3 both together are the target's p (black).",
)

# %%
# The same picture, alive: give p and q other values. (A headless run shows the one above only.)
page.show("bench")

# %% [markdown]
# The **total variation** distance of two distributions is half the sum of their absolute
# differences: the largest error that one makes about the probability of any event. The overlap is
# 1 minus it.

# %%
assert np.isclose(overlap, 1 - np.abs(p - q).sum() / 2)

# %% [markdown]
# A draft need not be able to say every word: a **trimmed draft** says the commonest tokens only,
# because that makes it faster. (Notebook 01 tells whether yours is one.) A word with q = 0 is never
# drafted, and comes out all the same, as a recovered one: above, *cat* after *sat*, where p - q is
# all of p.

# %% [markdown]
# ## 3. A chain of three, with the coins in hand
# Asking the target about one word gains nothing yet: it ran once and gave one word. But one run of
# the target can score many words at once. So the draft proposes **gamma** words in a row (a chain),
# the target scores all of them in one pass, and we go through them from the left: each is kept by
# the rule above, p and q being the rows after the word before it. The first rejection ends it: its
# place gets a recovered token, and what was drafted after it is thrown away. If all are kept, the
# target has already computed p after the last one, and a word drawn from it comes for free: the
# **bonus** token. One draft, one target pass and what comes of them is a **block**.
#
# Below are two blocks of gamma = 3 whose drafted words and coins (numbers between 0 and 1, drawn
# uniformly) are written out, so that each decision can be checked: a word is kept when its coin is
# below min(1, p/q). The **next unused coin** picks the recovered or bonus token: the first word up
# to which the probabilities sum to more than the coin. After a rejection the other coins stay
# unused.

# %%
written = [  # the last word, the drafted words, the coins
    (stop, [the, dog, sat], [0.30, 0.80, 0.50, 0.90]),
    (cat, [sat, stop, the], [0.90, 0.60, 0.40, 0.70]),
]

# %%
rows, picked = [], []
for block, (last, drafted, coins) in enumerate(written, 1):
    unused = iter(coins)
    for word in drafted:
        p_word, q_word, coin = p_table[last, word], q_table[last, word], next(unused)
        ratio = min(1, p_word / q_word)
        place = block, words[last], words[word]
        rows.append([*place, p_word, q_word, ratio, coin, coin < ratio])
        if coin >= ratio:
            lacking = np.maximum(p_table[last] - q_table[last], 0)
            drawn_from = lacking / lacking.sum()
            break  # what was drafted after it is thrown away
        last = word
    else:
        drawn_from = p_table[last]
    below = drawn_from.cumsum()
    picked.append(int((below > next(unused)).argmax()))
columns = ["block", "after", "word", "p", "q", "min(1, p/q)", "coin", "accepted"]
table = pd.DataFrame(rows, columns=columns)
ctx.table(table, "chain", 2)

# %% [markdown]
# `verify` decides as the coins do, and draws the last word of the block with the next unused coin.
# (In block 1 the coin that was written last would have picked another word.)

# %%
steps = [study.block(p_table, q_table, *block) for block in written]
display(HTML(pictures.as_html(steps, words)))

# %%
for step in steps:
    ctx.say(
        f"{step.accepted} of {step.drafted} drafted words are kept, then a {step.kind} word: "
        f"{len(step.tokens)} words from one target pass."
    )
kept_words = table.groupby("block")["accepted"].sum()
assert kept_words.tolist() == [step.accepted for step in steps]
assert [step.tokens[-1] for step in steps] == picked

# %% [markdown]
# ## 4. Is nothing lost?
# Let us check this by simulation: draft one word after "the", verify it, record the result, and
# repeat. The shares must tend to p. Besides the rule above (**`rejection`**) there are three
# others, all with the draft's single best word instead of a drawn one:
#
# * **`point-mass`** keeps x with probability p(x), and after a rejection draws from p without x.
#   This is lossless too.
# * **`ratio`** keeps x with min(1, p(x)/q(x)), as if x had been drawn from q. It was not, and the
#   rule is **not** lossless.
# * **`typical`** keeps x whenever p(x) is above a threshold. Fast, and not lossless by design.

# %%
came = {name: study.first_words(name, p, q, draws, rng) for name in study.NAMES}

# %% [markdown]
# How far the shares are from p is measured by their total variation. For shares of n words that
# really come from p it shrinks as 1/√n. For each rule the limit is also known exactly, from its own
# formulas.

# %%
limits = {name: study.exact_limit(name, p, q) for name in study.NAMES}
off = {name: rejection_rule.total_variation(limit, p) for name, limit in limits.items()}
exact = pd.Series(off, name="exact limit").rename_axis("rule")
lossy = list(exact.index[exact > 1e-9])

# %%
away = " and ".join(f"`{name}` stays {exact[name]:.2f} away" for name in lossy)
ctx.plot(
    study.distances(came, p),
    "words drawn",
    "lossless",
    "Total variation distance between the output and p, by number of words drawn. For a lossless "
    f"rule it keeps falling; {away}.",
    hue="rule",
    y="total variation to p",
    log=True,
    looks={"expected of words from p": {"color": "#AAAAAA", "linewidth": 3, "marker": ""}},
)

# %%
assert lossy == [name for name in study.NAMES if not RULES[name].lossless]

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
# **`point-mass`**: the first child is kept with probability p(x); if it is rejected, p loses that
# word,
# is renormalised, and the second child is tried. (Children that are drawn from q, without
# replacement, have a rule of their own:
# **`without-replacement`**.)

# %%
tree = static_tree(2, 2)
coins = [0.30, 0.50, 0.40, 0.60, 0, 0, 0]
tokens = study.best_tokens(tree, q_table, stop)
nodes = study.node_columns(tree, p_table, q_table, stop)

# %%
above, rows, coin = 0, [], iter(coins)
while len(children := tree.children(above)):
    left = 1.0  # of p, after the words that were rejected here
    for node in children:
        p_node = p_table[tokens[above], tokens[node]]
        toss, chance = next(coin), p_node / left
        rows.append([node, tree.rank[node], p_node, chance, toss, toss < chance])
        if toss < chance:
            break
        left -= p_node
    else:
        break  # no child was kept
    above = node

# %%
columns = ["node", "rank", "p", "p among the words left", "coin", "accepted"]
rows = pd.DataFrame(rows, columns=columns)
for name, of in (("word", rows["node"]), ("after", tree.parent[rows["node"]])):
    rows.insert(1, name, [words[token] for token in tokens[of]])
ctx.table(rows, "tree-nodes", 2)

# %%
p_rows = torch.from_numpy(p_table)[tokens]
verdict = verify("point-mass", tree, tokens, p_rows, None, np.array(coins))
accepted = " ".join(words[tokens[node]] for node in verdict.path)
labels, on_path = np.array(words)[tokens], np.isin(np.arange(7), verdict.path)

# %%
odds = (np.append(1, nodes[name]) for name in ("draft_prob", "target_prob"))
ctx.draw(
    drawings.draw_tree,
    redraw.tree_frame(tree, labels, *odds, on_path),
    "tree",
    f"The draft's two best words at every place after '.'; accepted: {accepted}.",
)

# %%
ctx.say(
    f"Accepted: *{accepted}*; then a {verdict.kind} word follows: *{words[verdict.token]}*. The "
    "chain of the best path would have stopped at its second word."
)
assert list(verdict.path) == rows.loc[rows["accepted"], "node"].tolist()

# %% [markdown]
# ## 6. Which number is "the acceptance"?
# There are many, they answer different questions, and they must not be mixed up. Here are five,
# with the paper's tree (2 + 4 + 2 nodes) hung once on each of the five words; GLOSSARY.md has the
# rest.
#
# * **`published_alpha`**, the paper's: mean of min(1, p/q) over all nodes. No algorithm accepts
#   with these probabilities: a tree's words are the draft's best and were not drawn from q.
# * **`alpha`**: mean overlap, exact for one drawn word.
# * **`top_mass[1]`**: mean p of the draft's best word, exact for that word under `point-mass`.
# * **`hit[1]`**: how often the draft's best word is the target's best, exact at temperature 0.
# * **`block_efficiency`**: words per target pass, here of the tree at temperature 0.
#
# **Temperature**, T: the target's probabilities are raised to the power 1/T and normalised before a
# word is drawn. At T = 1 they stay as they are; towards T = 0 the best word takes all.

# %%
hung, trace = study.records(static_tree(3, 2, 8), p_table, q_table)
best = q_table.argmax(axis=1)
ratio = np.minimum(1, hung["target_prob"] / hung["draft_prob"])
alpha = np.minimum(p_table, q_table).sum(axis=1).mean()

# %%
five = {
    "published_alpha": ratio.mean(),
    "alpha": alpha,
    "top_mass[1]": p_table[range(5), best].mean(),
    "hit[1]": (best == p_table.argmax(axis=1)).mean(),
}

# %%
kits = [score.published_alpha(hung), score.alpha(trace)]
kits += [score.member(family, 1)(trace) for family in (score.top_mass, score.hit)]
assert np.allclose(list(five.values()), kits)
tau = score.tree_estimators("greedy")["block_efficiency"](hung)
five["block_efficiency"] = tau
estimators = pd.Series(five, name="value").rename_axis("estimator")
ctx.table(estimators.to_frame(), "estimators")

# %%
ctx.say(
    f"For the same trees, the paper's measure reports an acceptance of "
    f"{five['published_alpha']:.2f}. A greedy target accepts {tau - 1:.2f} of the 8 drafted words "
    "and adds one of its own."
)

# %% [markdown]
# ## 7. Temperature 0, and the token view
# At temperature 0 the target writes its best word each time, and so the rule becomes simple
# (**`greedy`**): a drafted word is kept when it *is* the target's best; at the first that is not,
# the target's best takes its place. Lossless now means: the same text, word for word.
#
# The kit's real decoder, the one that runs Llamas, takes our tables for models. The boxes show
# where each word came from; a bar is the start of a block, that is, one target pass.

# %%
length, alone = 24, [stop]
while len(alone) <= length:  # what the target writes by itself
    alone.append(int(p_table[alone[-1]].argmax()))

# %%
pair = study.table_pair(p_table, q_table)
for shape in ("chain:3", "tree:2,2"):
    drafted = parse_shape(shape)
    steps = list(decode(pair, (stop,), "greedy", drafted, Sampling(), length))
    ctx.say(
        f"**Temperature 0, `{shape}`**: {len(steps)} passes for the {length} words that the target "
        f"alone writes in {length}."
    )
    display(HTML(pictures.as_html(steps, words)))
    written = [token for step in steps for token in step.tokens]
    assert written == alone[1:], "the text must not change"

# %% [markdown]
# ## 8. How many words does a target pass give?
# If each drafted word is accepted with probability a, whatever happened before (**i.i.d.**:
# independent and identically distributed), then at least d words are accepted with probability a^d,
# and with the recovered or bonus word `block_efficiency` is 1 + a + a² + … + a^gamma = (1 -
# a^(gamma+1)) / (1 - a). Our tables were made so that the overlap is the same after each word; for
# them the formula is exact with a = `alpha`.

# %%
gammas, both = np.arange(1, 9), np.minimum(p_table, q_table)
alpha = both.sum(axis=1).mean()
formula = (1 - alpha ** (gammas + 1)) / (1 - alpha)
survival = rejection_rule.survival(both, stop, 8)  # P(at least 1, 2, ... words are accepted)
assert np.allclose(formula, 1 + survival.cumsum())
assert np.allclose(formula, cost.block_efficiency_iid(alpha, gammas))

# %% [markdown]
# Beside it the decoder's own counts, with their standard errors. (Blocks are independent here. In
# real texts they are not, and the unit is the prompt: notebook 02.)

# %%
lengths = {gamma: int(blocks_each * formula[gamma - 1]) for gamma in (1, 2, 3, 4, 6, 8)}
counted = study.counted_blocks(study.table_pair(p_table, q_table), stop, lengths, rng)
counted["formula"] = formula[counted.index - 1]
ctx.table(counted, "words-per-pass")

# %%
gap = (counted["counted"] - counted["formula"]).abs() / counted["standard error"]
ctx.say(
    f"The formula lies within 1.96 standard errors of the count at {(gap < 1.96).sum()} of "
    f"{len(gap)} gammas. With a = {alpha:.2f} no gamma gives more than 1/(1 - a) = "
    f"{1 / (1 - alpha):.1f} words per pass, and each further drafted word adds less but costs a "
    "draft pass."
)
assert blocks_each < 100 or (gap < 4.5).all()  # of a few blocks the error is unknown

# %% [markdown]
# Words per pass are not yet speed. That takes three measured costs: **c**, the time of a draft pass
# divided by that of a target pass; **v(n)**, the time of a target pass over n tokens divided by the
# time of a pass over one token; **o**, the loop's own time per block, in target passes. The
# speed-up is `block_efficiency` / (gamma c + v(gamma + 1) + o). (On an accelerator v stays near 1
# up to some number of tokens, its **knee**.)

# %%
ctx.answer(
    f"The target keeps {overlap:.2f} of the draft's words, and the output follows the target's "
    f"distribution (total variation {exact['rejection']:.2f}). With gamma = 3 one target pass "
    f"yields {formula[2]:.2f} words (counted: {counted['counted'][3]:.2f}, standard error "
    f"{counted['standard error'][3]:.2f}). If the draft's best word is kept with min(1, p/q), the "
    f"output is off by {exact['ratio']:.2f}."
)

# %% [markdown]
# ## Try it
# Predict the result first, then change the cell and run it.
#
# 1. Section 3: change the second coin of block 1 from 0.80 to 0.60. What does the block give?
#
# <details><summary>What happens</summary>
# min(1, p/q) of <i>dog</i> after <i>the</i> is 0.35/0.55 = 0.64. The coin 0.60 is below it:
# <i>dog</i> is accepted. Next comes <i>sat</i> after <i>dog</i>, 0.45/0.60 = 0.75, with the coin
# 0.50: accepted. All three are kept, and the coin 0.90 picks the bonus token from p after
# <i>sat</i>: its last word, the full stop, since the words before it sum to 0.40 only. Four words
# from one pass, as the sentence below the table then says.
# </details>
#
# 2. In a new cell make the draft a copy of the target: `1 +
#    rejection_rule.survival(np.minimum(p_table, p_table), stop, 3).sum()`. How many words does a
#    pass give at gamma = 3, and what is `rejection_rule.residual(p_table, p_table)` good for?
#
# <details><summary>What happens</summary>
# 4 words, gamma + 1: min(1, p/q) is 1 for every word that can be drafted, nothing is ever rejected,
# and the residual is never used (the function returns p). It is the most that can be had, and worth
# nothing if the draft is as slow as the target.
# </details>
#
# 3. Keep the mean overlap, but make it unequal: `other = q_table.copy()`, then `other[the] =
#    p_table[the]` (overlap 1) and `other[sat] = [0.60, 0.10, 0.10, 0.10, 0.10]` (overlap 0.50). Is
#    the formula of section 8 still right? Compare `cost.block_efficiency_iid(0.75, 3)` with `1 +
#    rejection_rule.survival(np.minimum(p_table, other), stop, 3).sum()`.
#
# <details><summary>What happens</summary>
# The mean over the five words stays 0.75, but a block that begins after "." now gives 2.99 words
# and one after "sat" (`sat` instead of `stop`) 2.25; the formula says 2.73 for both. It needs an
# acceptance that does not depend on what came before. In real texts it does: notebook 02 sets the
# formula beside the count.
# </details>
#
# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: a rule with two cases, kept or drawn from the residual, whose output is p exactly;
#   two rules that look similar and are not lossless; a block of a chain and of a tree, checked coin
#   by coin; and words per pass as the formula says where acceptance does not depend on the context.
# * What this does not show: a real model. There, p and q depend on the whole context, acceptance
#   comes in runs, and time is what counts, not passes.
# * Next: [01](01_load_models.ipynb) loads a real pair and draws one of its trees;
#   [02](02_gamma_sweep.ipynb) asks how many tokens should be drafted.
