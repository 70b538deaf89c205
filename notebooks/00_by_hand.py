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
# A large language model, the **target**, writes good text slowly. A small model, the **draft**,
# guesses the next words quickly. The target then checks all guesses in one run, a **target pass**,
# and accepts some of them. Two questions decide whether this is useful. Does the output still
# follow the target's distribution? How many words does one target pass give? Here you can check
# every number by hand, with two models that fit on a page.
#
# ![Accepted and recovered words together follow p](../figures/smollm/00/rule.png)
#
# The other notebooks refer to two sources. **The paper** is *Acceptance Dynamics Across Cognitive
# Domains in Speculative Decoding* (arXiv:2604.14682). It reports how often a large model accepts
# the proposals of a small model in code, math, reasoning and chat. **The article** is *Speculative
# Decoding for Reasoning*, a guide with a rule of thumb for the speed-up.
#
# *Runs on* any machine · *time* under a minute on 2 cores · *reads* nothing (both models are
# tables in this notebook) · *writes* `figures/<profile>/00/`.

# %% tags=["parameters"]
# names the folder of the figures; this notebook loads no model
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change; none changes anything here
seed: int = 0  # 0 to 4294967295; decides every random number that is not written out below
draws: int = 4000  # 100 to 1000000; words drawn under each rule in section 4
blocks_each: int = 500  # 10 to 100000; blocks decoded for each gamma in section 8, roughly

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
import numpy as np
import pandas as pd
import torch
from IPython.display import HTML, display

from speclab import cost, score
from speclab.show import drawings, notebook, pictures, redraw
from speclab.analysis import rejection_rule
from speclab.decode import decode
from speclab.estimates import named
from speclab.shapes import parse_shape
from speclab.explore import page
from speclab.sampling import Sampling
from speclab.studies import by_hand as study
from speclab.tree import static_tree
from speclab.verify import RULES, verify

RUNS = []

# %% [markdown]
# ## 1. Two models with five words
# A language model gives, for any text so far, the probability of each possible next token. A
# **token** is a word or a piece of a word, and here it is one of five words. In our two models the
# next word depends only on the last word. So each model is a table with five rows and five columns.
#
# We write **p** for the target's probabilities and **q** for the draft's. The text so far is the
# **context**.

# %%
ctx = notebook.start("00_by_hand", profile, overrides)
rng = np.random.default_rng(seed)

# %% tags=["by-hand"]
words = ["the", "cat", "dog", "sat", "."]
the, cat, dog, sat, stop = range(5)
p_table = np.array(
    [  # row: the last word, column: the next word
        [0.00, 0.50, 0.35, 0.05, 0.10],  # after "the"
        [0.05, 0.00, 0.05, 0.70, 0.20],  # after "cat"
        [0.30, 0.05, 0.00, 0.45, 0.20],  # after "dog"
        [0.25, 0.05, 0.05, 0.05, 0.60],  # after "sat"
        [0.60, 0.10, 0.20, 0.05, 0.05],  # after "."
    ]
)

# %% tags=["by-hand"]
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
# ## 2. The draft proposes one word, the target checks it
# The context ends in "the". We could draw the next word from p directly, but p is expensive to
# compute. Instead we take three steps.
#
# 1. Draw a word x from q.
# 2. Compute p, and accept x with probability min(1, p(x)/q(x)). Then x is an **accepted** token.
# 3. If x is rejected, draw another word from the **residual**, max(p − q, 0) divided by its sum.
#    This word is a **recovered** token.
#
# The residual contains the words to which q gives too little probability. Step 2 outputs word x
# with probability q(x) · min(1, p(x)/q(x)) = min(p(x), q(x)). What is missing from p is p − min(p,
# q) = max(p − q, 0). Step 3 adds exactly this part. So the output follows p, and a procedure with
# this property is called **lossless**.
#
# The sum of min(p, q) over all words is the **overlap** of the two models. It is the probability
# that the target accepts the draft's word.

# %% tags=["by-hand"]
p, q = p_table[the], q_table[the]
kept = np.minimum(1, p / q)  # the probability of accepting each word, once it is drafted
overlap = np.minimum(p, q).sum()
rejected = 1 - overlap
shortfall = np.maximum(p - q, 0)
residual = shortfall / shortfall.sum()

# %% tags=["by-hand"]
rule = pd.DataFrame({"p": p, "q": q, "min(1, p/q)": kept, "residual": residual}, words)
rule["accepted"] = q * kept
rule["recovered"] = rejected * residual
rule["emitted"] = rule["accepted"] + rule["recovered"]
assert np.allclose(rule["emitted"], p), "the rule is lossless"

# %%
rule = rule.rename_axis("word")
ctx.table(rule, "rule")
p_row, q_row = torch.from_numpy(p), torch.from_numpy(q)
for word in range(len(words)):
    chance, drawn_from = RULES["rejection"].step(p_row, q_row, [word])
    assert np.isclose(chance, kept[word]) and np.allclose(drawn_from, residual)

# %%
recovered = " or ".join(f"`{word}`" for word in rule.index[rule["residual"] > 0])
ctx.say(
    f"After the word `the`, the target accepts the draft's word with probability "
    f"**{overlap:.2f}**, the overlap. With probability {rejected:.2f} it rejects the word, and "
    f"{recovered} is recovered. The column `emitted` (accepted plus recovered) equals p, so the "
    "rule is lossless."
)

# %%
ctx.draw(
    drawings.draw_rule,
    rule,
    "rule",
    "Probability of each word after `the`. Panel 1 divides q into the part that the target accepts "
    f"({overlap:.2f} in total) and the rejected part. Panel 2 shows the residual, from which a "
    f"recovered word is drawn. Panel 3 scales it by {rejected:.2f}, the probability of a "
    "rejection. There accepted and recovered words add up to p (black marks).",
    f"Accepted words ({100 * overlap:.0f} %) and recovered words together follow p exactly",
)

# %%
# The same picture with sliders for p and q. (A headless run shows only the picture above.)
page.show("bench")

# %% [markdown]
# The **total variation distance** between two distributions is half the sum of their absolute
# differences. It is the largest possible error in the probability of an event. For p and q it is 1
# minus the overlap.

# %%
assert np.isclose(overlap, 1 - np.abs(p - q).sum() / 2)

# %% [markdown]
# A draft need not know every word. A **trimmed draft** proposes only common tokens, which makes it
# faster. A word with q = 0 is never drafted, but it can still come out as a recovered token. In our
# tables this happens to *cat* after *sat*.

# %% [markdown]
# ## 3. Three words at once
# So far each target pass yields one word, drafted or recovered. The gain comes from this fact:
# **one target pass can check many words at once**. So the draft proposes a chain of words, and
# **gamma** is the number of words in the chain.
#
# We check the chain from left to right with the rule of section 2. At the first rejection we
# replace the word by a recovered token and throw away the rest of the chain. If the target accepts
# all words, it has already computed p for the word after them. We draw this word as well, and it is
# called the **bonus** token. One chain, its target pass and the resulting words are a **block**.
#
# Below are two blocks with gamma = 3. Their drafted words and their **coins** are written out, so
# that you can check each decision. A coin is a random number between 0 and 1. A word is accepted if
# its coin is below min(1, p/q). The next unused coin picks the recovered or bonus token. Add up the
# probabilities of the words in the order of the table. The coin picks the first word at which this
# sum exceeds the coin.

# %% tags=["by-hand"]
written = [  # the last word, the drafted words, the coins
    (stop, [the, dog, sat], [0.30, 0.80, 0.50, 0.90]),
    (cat, [sat, stop, the], [0.90, 0.60, 0.40, 0.70]),
]

# %% tags=["by-hand"]
rows, picked = [], []
for block, (last, drafted, coins) in enumerate(written, 1):
    unused = iter(coins)
    for word in drafted:
        p_word, q_word = p_table[last, word], q_table[last, word]
        ratio, coin = min(1, p_word / q_word), next(unused)
        accepted = coin < ratio
        rows.append([block, words[last], words[word], p_word, q_word, ratio, coin, accepted])
        if not accepted:
            break  # the rest of the chain is thrown away
        last = word
    if accepted:  # all of them: the next word is a bonus token
        drawn_from = p_table[last]
    else:  # the next word is a recovered token
        shortfall = np.maximum(p_table[last] - q_table[last], 0)
        drawn_from = shortfall / shortfall.sum()
    exceeds = drawn_from.cumsum() > next(unused)
    picked.append(int(exceeds.argmax()))  # the first word at which the sum exceeds the coin

# %%
columns = ["block", "after", "word", "p", "q", "min(1, p/q)", "coin", "accepted"]
table = pd.DataFrame(rows, columns=columns)
ctx.table(table, "chain", 2)

# %% [markdown]
# The kit's function `verify` makes the same decisions. Each box below is one word, and a bar stands
# before each block.

# %%
steps = [study.block(p_table, q_table, *block) for block in written]
display(HTML(pictures.as_html(steps, words)))

# %%
for number, step in enumerate(steps, 1):
    ctx.say(study.block_in_words(number, step))
kept_words = table.groupby("block")["accepted"].sum()
assert kept_words.tolist() == [step.accepted for step in steps]
assert [step.tokens[-1] for step in steps] == picked

# %% [markdown]
# ## 4. Is the output really p?
# Let us check this by simulation. We draft one word after "the", verify it, record the result, and
# repeat. The shares of the words must approach p. The rule of section 2 is called **`rejection`**.
# We compare it with three rules that take the draft's single best word instead of a drawn word.
#
# * **`point-mass`** accepts x with probability p(x). After a rejection it draws from p without x.
#   This rule is lossless too.
# * **`ratio`** accepts x with probability min(1, p(x)/q(x)), as if x had been drawn from q. But x
#   was not drawn, so this rule is **not** lossless.
# * **`typical`** accepts x whenever p(x) is above a threshold. This rule is fast and not lossless.

# %%
came = {name: study.first_words(name, p, q, draws, rng) for name in study.NAMES}

# %% [markdown]
# The total variation distance measures how far the shares are from p. If n words really follow p,
# the distance shrinks in proportion to 1/√n.

# %%
limits = {name: study.exact_limit(name, p, q) for name in study.NAMES}
off = {name: rejection_rule.total_variation(limit, p) for name, limit in limits.items()}
exact = pd.Series(off, name="exact limit").rename_axis("rule")
lossy = list(exact.index[exact > 1e-9])

# %%
away = named([f"`{name}` at {exact[name]:.2f}" for name in lossy])
ctx.plot(
    study.distances(came, p),
    "words drawn",
    "lossless",
    "Total variation distance between the output and p, by number of words drawn. For lossless "
    f"rules the distance keeps falling. The others level off, {away}. Both axes are logarithmic. "
    "Grey line: the expected sampling error.",
    title=f"Lossless rules approach p, and {named(lossy)} do not",
    hue="rule",
    y="total variation distance to p",
    log=True,
    looks=study.LOOKS,
)

# %%
assert lossy == [name for name in study.NAMES if not RULES[name].lossless]

# %% [markdown]
# ## 5. A tree instead of a chain
# A target pass can also check several words for the same position. A **draft tree** contains such
# alternatives. Each drafted word is a **node**. The **root** is the last word of the context, which
# is not drafted. A chain is a tree with one branch.
#
# * The **depth** of a node is the number of drafted words from the root to the node.
# * The **rank** of a node is the position of its word in the draft's order, 0 for the most likely.
# * The **best path** consists of the nodes with rank 0 at every step.
#
# Here each node gets the draft's two best words as children. They are not drawn at random, so we
# use the rule **`point-mass`**. It accepts the first child with probability p(x). If it rejects the
# first child, it removes that word from p, divides p by its new sum, and tries the second child.

# %%
tree = static_tree(2, 2)
tokens = study.best_tokens(tree, q_table, stop)
nodes = study.node_columns(tree, p_table, q_table, stop)

# %% tags=["by-hand"]
coins = [0.30, 0.50, 0.40, 0.60, 0, 0, 0]
above, rows, unused = 0, [], iter(coins)
while len(children := tree.children(above)):
    left = 1.0  # probability of the words that are not yet rejected
    for node in children:
        p_node, coin = p_table[tokens[above], tokens[node]], next(unused)
        chance = p_node / left
        accepted = coin < chance
        rows.append([node, tree.rank[node], p_node, chance, coin, accepted])
        if accepted:
            break
        left -= p_node
    if not accepted:
        break  # no child was accepted
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
labels, on_path = np.array(words)[tokens], np.isin(np.arange(7), verdict.path)
assert list(verdict.path) == rows.loc[rows["accepted"], "node"].tolist()

# %%
odds = (np.append(1, nodes[name]) for name in ("draft_prob", "target_prob"))
ctx.draw(
    drawings.draw_tree,
    redraw.tree_frame(tree, labels, *odds, on_path),
    "tree",
    "A draft tree after the word '.', with the draft's two best words at each node. Each box shows "
    "a drafted word with its probabilities q and p. The accepted words are green.",
    f"The target accepts {len(verdict.path)} of the {tree.size} words of the tree in one pass",
)

# %%
ctx.say(study.verdict_in_words(tree, verdict, labels, words))

# %% [markdown]
# ## 6. Five numbers that are called "acceptance"
# Several different numbers are called acceptance. They answer different questions. Here are five of
# them. We draft the paper's tree, which has 2, 4 and 2 nodes at depths 1, 2 and 3, once after each
# of the five words. GLOSSARY.md lists the other numbers.
#
# The **temperature** T changes a distribution before a word is drawn. The probabilities are raised
# to the power 1/T and divided by their sum. T = 1 changes nothing, and a smaller T makes likely
# words more likely. At T = 0 the best word is always chosen.
#
# * **`published_alpha`** is the paper's measure, the mean of min(1, p/q) over all nodes. No
#   lossless rule accepts words with these probabilities, because the tree's words were not drawn
#   from q.
# * **`alpha`** is the mean overlap. It is the exact acceptance of one word drawn from q.
# * **`top_mass[1]`** is the mean of p for the draft's best word. It is the exact acceptance of that
#   word under `point-mass`.
# * **`hit[1]`** is the share of positions at which the draft's best word is also the target's best
#   word. It is the exact acceptance at temperature 0.
# * **`block_efficiency`** is the number of words per target pass, here for the tree at temperature
#   0.

# %%
hung, trace = study.records(static_tree(3, 2, 8), p_table, q_table)

# %% tags=["by-hand"]
ratio = np.minimum(1, hung["target_prob"] / hung["draft_prob"])  # of each node
alpha = np.minimum(p_table, q_table).sum(axis=1).mean()
draft_best, target_best = q_table.argmax(axis=1), p_table.argmax(axis=1)
five = {
    "published_alpha": ratio.mean(),
    "alpha": alpha,
    "top_mass[1]": p_table[range(5), draft_best].mean(),
    "hit[1]": (draft_best == target_best).mean(),
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
    f"Over the nodes of the five trees the paper's measure (`published_alpha`) is "
    f"{five['published_alpha']:.2f}. At temperature 0 the target accepts on average {tau - 1:.2g} "
    f"of the 8 drafted words and adds one of its own, so a pass gives {tau:.2g} words."
)

# %% [markdown]
# ## 7. Temperature 0
# At temperature 0 the target always writes its best word, and the rule becomes simple. A drafted
# word is accepted if it *is* the target's best word. At the first mismatch the target's best word
# takes its place. This rule is called **`greedy`**. Lossless now means that the text does not
# change at all.
#
# The kit's decoder, which also runs real models, can run our two tables. The boxes show where each
# word came from. A bar marks the start of a block, which is one target pass. We decode with chains
# of 3 words (`chain:3`), then with trees of depth 2 and two children per node (`tree:2,2`).

# %% tags=["by-hand"]
length, alone = 24, [stop]
while len(alone) <= length:  # the text that the target writes alone
    best_word = p_table[alone[-1]].argmax()
    alone.append(int(best_word))

# %%
pair = study.table_pair(p_table, q_table)
for shape in ("chain:3", "tree:2,2"):
    drafted = parse_shape(shape)
    steps = list(decode(pair, (stop,), "greedy", drafted, Sampling(), length))
    ctx.say(f"With `{shape}`, {length} words take {len(steps)} target passes instead of {length}.")
    display(HTML(pictures.as_html(steps, words)))
    decoded = [token for step in steps for token in step.tokens]
    assert decoded == alone[1:], "the text must not change"

# %% [markdown]
# ## 8. How many words does a target pass give?
# Assume that the target accepts each drafted word with the same probability a, whatever happened
# before. Such events are **independent and identically distributed (i.i.d.)**. Then it accepts at
# least d words with probability a^d. With the recovered or bonus word, a target pass gives 1 + a +
# a² + … + a^gamma = (1 − a^(gamma+1)) / (1 − a) words. In our tables the overlap is the same after
# each word, so this formula is exact with a = `alpha`.

# %% tags=["by-hand"]
gammas = np.arange(1, 9)
formula = (1 - alpha ** (gammas + 1)) / (1 - alpha)

# %%
survival = rejection_rule.survival(np.minimum(p_table, q_table), stop, 8)
assert np.allclose(formula, 1 + survival.cumsum())
assert np.allclose(formula, cost.block_efficiency_iid(alpha, gammas))

# %% [markdown]
# The table compares the formula with a simulation, the decoder at temperature 1. Blocks are
# independent here, so we can give standard errors per block. In real texts blocks are not
# independent, and the following notebooks compute intervals over prompts instead.

# %%
lengths = {gamma: int(blocks_each * formula[gamma - 1]) for gamma in (1, 2, 3, 4, 6, 8)}
simulated = study.simulated_blocks(study.table_pair(p_table, q_table), stop, lengths, rng)
simulated["formula"] = formula[simulated.index - 1]
ctx.table(simulated, "words-per-pass")

# %%
gap = (simulated["simulated"] - simulated["formula"]).abs() / simulated["standard error"]
ctx.say(
    f"{study.formula_in_words((gap < 1.96).sum(), len(gap))} With a = {alpha:.2f} no gamma gives "
    f"more than 1/(1 − a) = {1 / (1 - alpha):.2g} words per target pass. Each further drafted word "
    "adds less and costs one more draft pass."
)
assert blocks_each < 100 or (gap < 4.5).all()  # of a few blocks the error is unknown

# %% [markdown]
# Fewer target passes alone do not mean less time. The speed-up also depends on three costs, all in
# units of one target pass over one token.
#
# * **c** is the time of one draft pass.
# * **v(n)** is the time of a target pass over n tokens.
# * **o** is the time that the loop itself takes per block.
#
# The speed-up is the number of words per target pass divided by gamma · c + v(gamma + 1) + o.

# %%
ctx.answer(study.rule_in_words(overlap, formula[2], simulated.loc[3, "simulated"]))

# %% [markdown]
# ## Try it
# Predict the result first, then change the cell and run it.
#
# 1. In section 3, change the second coin of block 1 from 0.80 to 0.60. What does the block give?
#
# <details><summary>What happens</summary>
# For <i>dog</i> after <i>the</i>, min(1, p/q) is 0.35/0.55 = 0.64. The coin 0.60 is below it, so
# <i>dog</i> is accepted. For <i>sat</i> after <i>dog</i> it is 0.45/0.60 = 0.75. The coin 0.50 is
# below it, so <i>sat</i> is accepted too. Now all three words are accepted. The coin 0.90 picks the
# bonus token from p after <i>sat</i>. The probabilities of the first four words sum to only
# 0.40, so it picks the full stop. One target pass gives four words.
# </details>
#
# 2. Make the draft a copy of the target. In a new cell compute `1 +
#    rejection_rule.survival(np.minimum(p_table, p_table), stop, 3).sum()`. How many words does a
#    target pass give at gamma = 3?
#
# <details><summary>What happens</summary>
# It gives four words, gamma + 1. The ratio min(1, p/q) is 1 for every word that can be drafted, so
# the target rejects nothing. No draft can do better. But a draft as slow as the target saves no
# time.
# </details>
#
# 3. Keep the mean overlap, but make it unequal. Set `other = q_table.copy()`, then `other[the] =
#    p_table[the]` (overlap 1) and `other[sat] = [0.60, 0.10, 0.10, 0.10, 0.10]` (overlap 0.50). Is
#    the formula of section 8 still right? Compare `cost.block_efficiency_iid(0.75, 3)` with `1 +
#    rejection_rule.survival(np.minimum(p_table, other), stop, 3).sum()`.
#
# <details><summary>What happens</summary>
# The mean overlap stays 0.75. But a block that begins after "." now gives 2.99 words. A block that
# begins after "sat" gives 2.25 words (replace `stop` by `sat`). The formula says 2.73 for both. It
# holds only if acceptance does not depend on the context. In real texts it does depend on the
# context, as notebook 02 shows.
# </details>
#
# %% [markdown]
# ## What we saw, what this does not show, what is next
# * What we saw: accepting with min(1, p/q) and drawing from the residual gives exactly p. Two
#   similar rules are not lossless. One target pass gives several words.
# * What this does not show: real models, whose p and q depend on the whole context. The notebook
#   measures no time.
# * Next: [01](01_load_models.ipynb) loads a real pair and draws one of its trees.
#   [02](02_gamma_sweep.ipynb) asks how many tokens to draft.
