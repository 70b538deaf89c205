# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 0. What does speculative decoding do, on five words?

# %% tags=["parameters"]
# names the folder of the figures; this notebook loads no model
profile: str = "smollm"
overrides: dict = {}  # parameters of the profile to change; none changes anything here
seed: int = 0  # 0 to 4294967295; decides every random number that is not written out below
draws: int = 4000  # 100 to 1000000; words drawn under each rule in section 4
blocks_each: int = 500  # 10 to 100000; blocks decoded for each gamma in section 7, roughly

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
from types import SimpleNamespace

import numpy as np
import pandas as pd
import torch
from IPython.display import HTML, display

from speclab.decode import Step, decode
from speclab.estimates import Estimates
from speclab.explore import page
from speclab.models.model import Network
from speclab.model import Pair
from speclab.sampling import Sampling
from speclab.shapes import Shape, parse_shape
from speclab.show import drawings, figures, notebook, pictures
from speclab.tree import chain, static_tree
from speclab.verify import RULES, verify

RUNS = []

# %%
ctx = notebook.start("00_by_hand", profile, overrides)
rng = np.random.default_rng(seed)

# %% [markdown]
# A large language model, the **target**, writes good text slowly. A small model, the **draft**,
# guesses the next words quickly. The target then checks all guesses in one run, a **target pass**,
# and accepts some of them. Does the text still follow the target's distribution? How many words
# does one target pass give? Here you can check every number by hand.
#
# (The other notebooks refer to two sources. **The paper** is [*Acceptance Dynamics Across Cognitive
# Domains in Speculative Decoding*](https://arxiv.org/abs/2604.14682). It reports how often a target
# accepts a draft's tokens in code, math, reasoning and chat. **The article** is *Speculative
# Decoding for Reasoning*, a guide with a rule of thumb for the speed-up.)
#
# ## 1. What is a model?
# A language model gives, for any text so far, the probability of each possible next token. A
# **token** is a word or a piece of a word. Here it is one of five words, and the next word depends
# only on the last one. So a model is a table. We write $p$ for the target's probabilities and $q$
# for the draft's.

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
tables = torch.from_numpy(p_table), torch.from_numpy(q_table)  # as the kit's functions take them
assert np.allclose(p_table.sum(axis=1), 1) and np.allclose(q_table.sum(axis=1), 1)

# %% [markdown]
# ## 2. The draft proposes one word, the target checks it
# The text ends in "the". We could draw the next word from $p$ directly, but $p$ is expensive.
# Instead we draw a word $x$ from $q$, compute $p$, and accept $x$ with probability
#
# $$\min\!\left(1, \frac{p(x)}{q(x)}\right).$$
#
# If $x$ is rejected, we draw another word from the **residual**, the words to which $q$ gives too
# little probability:
#
# $$r(x) = \frac{\max(p(x) - q(x),\, 0)}{\sum_y \max(p(y) - q(y),\, 0)} .$$
#
# The first word is then an **accepted** token, the second a **recovered** token. Word $x$ is
# drafted and accepted with probability $\min(p(x), q(x))$. So the probability that the target
# accepts is the **overlap** of the two models,
#
# $$\alpha = \sum_x \min(p(x), q(x)),$$
#
# and with probability $1 - \alpha$ the residual adds exactly what is missing from $p$.

# %% tags=["by-hand"]
p, q = p_table[the], q_table[the]
kept = np.minimum(1, p / q)  # the probability of accepting each word, once it is drafted
overlap = np.minimum(p, q).sum()
shortfall = np.maximum(p - q, 0)
residual = shortfall / shortfall.sum()
print(f"accepted with probability {overlap:.2f}, otherwise drawn from", residual.round(2))

# %% tags=["by-hand"]
rule = pd.DataFrame({"p": p, "q": q, "min(1, p/q)": kept, "residual": residual}, words)
rule["accepted"] = q * kept
rule["recovered"] = (1 - overlap) * residual
rule["emitted"] = rule["accepted"] + rule["recovered"]
assert np.allclose(rule["emitted"], p), "the rule is lossless"

# %%
rule = rule.rename_axis("word")
ctx.table(rule, "rule", digits=2, caption="One drafted word after `the`")

# %% [markdown]
# The column `emitted`, accepted plus recovered, equals `p`. A rule with this property is called
# **lossless**.

# %%
ACCEPTED, RECOVERED = (
    {"color": pictures.LOOKS[kind].face, "edgecolor": pictures.LOOKS[kind].edge}
    for kind in ("accepted", "recovered")
)
REJECTED = {"color": "white", "edgecolor": "#444444", "hatch": "/////"}


def draw_rule(frame):
    """Three panels of stacked bars, and p as a black mark."""
    accepted = ("accepted: min(p, q)", frame["accepted"], ACCEPTED)
    rejected = ("rejected: q − min(p, q)", frame["q"] - frame["accepted"], REJECTED)
    recovered = ("recovered", frame["recovered"], RECOVERED)
    panels = {
        "1  Accepted and rejected words": [accepted, rejected],
        "2  Residual": [("_", frame["residual"], RECOVERED)],
        "3  Output": [accepted, recovered],
    }
    figure, grid = figures.row_of_panels(3, 2.7, sharey=True)
    for axes, (title, bars) in zip(grid, panels.items(), strict=True):
        bottom = 0
        for label, heights, look in bars:
            axes.bar(frame.index, heights, bottom=bottom, label=label, **look)
            bottom = heights
        axes.set(title=title, ylim=(0, 0.9), xlabel="next word")
        if len(bars) > 1:
            mark = {"markersize": 24, "markeredgewidth": 2.2, "label": "p, the target"}
            axes.plot(frame.index, frame["p"], "k_", **mark)
    grid[0].set_ylabel("probability")
    return figure


# %%
ctx.draw(
    draw_rule,
    rule,
    "rule",
    "Panel 1 divides q into accepted and rejected words. A rejected word is replaced by one from "
    "the residual (panel 2). In panel 3 accepted and recovered words add up to p, the black marks.",
    "Accepted and recovered words after `the`",
)

# %%
# the same picture with sliders for p and q, in an open notebook
page.show("bench")

# %% [markdown]
# A word with $q = 0$ is never drafted, but it can still come out as a recovered token. So a draft
# need not know every word.
#
# ## 3. Three words at once
# The gain comes from this fact: **one target pass can check many words at once**. So the draft
# proposes a chain of $\gamma$ words. We check the chain from left to right. At the first rejection
# we draw a recovered token and throw away the rest of the chain. If the target accepts all words,
# it has already computed $p$ for the word after them, and we draw that word as well, the **bonus**
# token. One chain and its target pass are a **block**.
#
# Below are two blocks with $\gamma = 3$. Their words and their **coins**, random numbers from 0 to
# 1, are written out. A word is accepted if its coin is below $\min(1, p/q)$. The next coin picks
# the recovered or bonus token: the first word at which the sum of the probabilities exceeds the
# coin.

# %% tags=["by-hand"]
written = [  # the last word, the drafted words, the coins
    (stop, [the, dog, sat], [0.30, 0.80, 0.50, 0.90]),
    (cat, [sat, stop, the], [0.90, 0.60, 0.40, 0.70]),
]


def pick(distribution, coin):
    """The word that a coin picks (for an array of coins: a word each)."""
    return (distribution.cumsum() > np.expand_dims(coin, -1)).argmax(axis=-1)


# %% tags=["by-hand"]
rows, last_words = [], []
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
    last_words.append(pick(drawn_from, next(unused)))
print("the target adds", *(f"'{words[word]}'" for word in last_words))

# %%
columns = ["block", "after", "word", "p", "q", "min(1, p/q)", "coin", "accepted"]
table = pd.DataFrame(rows, columns=columns)
ctx.table(table, "chain", digits=2, caption="Each word that the target checks in two blocks")

# %% [markdown]
# The kit's function `verify` makes the same decisions. Each box is one word, and a bar stands
# before each block.

# %%
steps = []
for last, drafted, coins in written:
    tokens = np.array([last, *drafted])
    after = (table[tokens] for table in tables)  # p and q after each word
    verdict = verify("rejection", chain(3), tokens, *after, np.array(coins))
    count = len(verdict.path)
    steps.append(Step((*drafted[:count], verdict.token), count, 3, verdict.kind))
display(HTML(pictures.render_html(steps, words)))
assert table.groupby("block")["accepted"].sum().tolist() == [step.accepted for step in steps]
assert [step.tokens[-1] for step in steps] == last_words

# %% [markdown]
# ## 4. Is the output really p?
# We draft one word after "the", check it, record the result, and repeat. We compare the rule of
# section 2, called **`rejection`**, with three rules for the draft's single best word, which is not
# drawn at random.
#
# * **`point-mass`** accepts $x$ with probability $p(x)$. After a rejection it draws from $p$
#   without $x$. This rule is lossless too.
# * **`ratio`** accepts $x$ with probability $\min(1, p(x)/q(x))$, as if $x$ had been drawn.
# * **`typical`** accepts $x$ whenever $p(x)$ is above a threshold. Here that is at most 0.09, so it
#   always writes *dog*.

# %% tags=["by-hand"]
best = np.eye(5)[q.argmax()]  # all probability on the draft's best word
others = p * (1 - best)
seen = p[p > 0]
threshold = min(0.09, 0.3 * np.exp((seen * np.log(seen)).sum()))  # from the entropy of p
rules = {  # how x is drafted, the probability of accepting each x, where a recovered word is from
    "rejection": (q, kept, residual),
    "point-mass": (best, p, others / others.sum()),
    "ratio": (best, kept, residual),
    "typical": (best, (p > threshold).astype(float), p),
}

# %% tags=["by-hand"]
exact, drawn = {}, {}
for name, (drafted_from, chance, recovered_from) in rules.items():
    rejected = (drafted_from * (1 - chance)).sum()
    exact[name] = drafted_from * chance + rejected * recovered_from
    # the first coin drafts, the second accepts, the third recovers
    coins = rng.random((draws, 3 if RULES[name].sampled else 2))
    drafted = pick(drafted_from, coins[:, 0]) if RULES[name].sampled else q.argmax()
    is_accepted = coins[:, -2] < chance[drafted]
    drawn[name] = np.where(is_accepted, drafted, pick(recovered_from, coins[:, -1]))

# %% [markdown]
# The **total variation distance** between the shares $s$ of the words and $p$ is
#
# $$\frac{1}{2} \sum_x |s(x) - p(x)| .$$
#
# If $n$ words really follow $p$, it shrinks in proportion to $1/\sqrt{n}$.

# %% tags=["by-hand"]
n = 2 ** np.arange(3, draws.bit_length())  # 8, 16, 32, … words
lines = {}
for name, drawn_words in drawn.items():
    shares = np.eye(5)[drawn_words].cumsum(axis=0)[n - 1] / n[:, None]
    lines[name] = np.abs(shares - p).sum(axis=1) / 2
    print(f"{name}: after {n[-1]} words {lines[name][-1]:.3f}")
expected_gap = np.sqrt(2 * p * (1 - p) / np.pi).sum() / 2  # of one word that follows p
lines["expected sampling error"] = expected_gap / np.sqrt(n)

# %%
for name, (_, chance, recovered_from) in rules.items():
    assert np.allclose(exact[name], p) == RULES[name].lossless
    # the kit's rule, for the draft's best word
    its_chance, its_residual = RULES[name].step(tables[0][the], tables[1][the], [dog])
    assert np.isclose(its_chance, chance[dog]) and np.allclose(its_residual, recovered_from)

# %%
ctx.plot(
    Estimates.exact("rule", lines, "words drawn", n),
    "words drawn",
    "lossless",
    "The distance of a lossless rule keeps falling, as the sampling error does (grey). The others "
    "level off. Both axes are logarithmic.",
    title="Distance between the output and p, by words drawn",
    hue="rule",
    y="total variation distance to p",
    kind="log",
)

# %% [markdown]
# ## 5. A tree instead of a chain
# A target pass can also check several words for the same position. A **draft tree** contains such
# alternatives. Each drafted word is a **node**, and the **root** is the last word of the text.
#
# * The **depth** of a node is the number of drafted words from the root to the node.
# * The **rank** of a node is the position of its word in the draft's order, 0 for the most likely.
#
# Here each node gets the draft's two best words as children. They are not drawn at random, so we
# use `point-mass`: if the first child is rejected, its word is removed from $p$, the rest is
# divided by its sum, and the second child is tried.

# %% tags=["by-hand"]
tree = static_tree(2, 2)  # depth 2, two children per node
order = np.argsort(-q_table, axis=1, kind="stable")  # the draft's words, best first
tokens = np.full(tree.size + 1, stop)  # of each node; node 0 is the root
for node in range(1, tree.size + 1):
    tokens[node] = order[tokens[tree.parent[node]], tree.rank[node]]

# %% tags=["by-hand"]
coins = [0.30, 0.50, 0.40, 0.60, 0, 0, 0]
above, rows, unused = 0, [], iter(coins)
while len(children := tree.children(above)):
    left = 1.0  # probability of the words that are not yet rejected
    for node in children:
        p_node, coin = p_table[tokens[above], tokens[node]], next(unused)
        accepted = coin < p_node / left
        pair_of_words = words[tokens[above]], words[tokens[node]]
        rows.append([node, *pair_of_words, tree.rank[node], p_node, p_node / left, coin, accepted])
        if accepted:
            break
        left -= p_node
    if not accepted:
        break  # no child was accepted
    above = node

# %%
columns = ["node", "after", "word", "rank", "p", "p among the words left", "coin", "accepted"]
rows = pd.DataFrame(rows, columns=columns)
ctx.table(rows, "tree-nodes", digits=2, caption="Each node that the target checks")
verdict = verify("point-mass", tree, tokens, tables[0][tokens], None, np.array(coins))
assert list(verdict.path) == rows.loc[rows["accepted"], "node"].tolist()

# %%
before = tokens[tree.parent[1:]], tokens[1:]  # the last word and the drafted word
odds = (np.append(1, table[before]) for table in (q_table, p_table))
on_path = np.isin(np.arange(tree.size + 1), verdict.path)
ctx.draw(
    drawings.draw_tree,
    drawings.tree_frame(tree, np.array(words)[tokens], *odds, on_path),
    "tree",
    "Each box shows a drafted word with its probabilities q and p. The accepted words are green. "
    "A chain of the draft's best words would have ended at the first of them that is not green.",
    "A draft tree after the word '.', checked in one target pass",
)

# %% [markdown]
# ## 6. Temperature 0
# The **temperature** $T$ changes a distribution before a word is drawn: the probabilities are
# raised to the power $1/T$ and divided by their sum. At $T = 0$ the best word is always chosen, and
# the rule becomes simple. A drafted word is accepted if it *is* the target's best word. At the
# first mismatch the target's best word takes its place. This rule is called **`greedy`**. Lossless
# now means that the text does not change at all.

# %% tags=["by-hand"]
length, alone = 24, [stop]
while len(alone) <= length:  # the text that the target writes alone
    alone.append(int(p_table[alone[-1]].argmax()))
print(*(words[token] for token in alone[1:]))


# %% [markdown]
# The kit's decoder, which also runs real models, can run our two tables: the logits after a word
# are the logarithms of its row. `chain:3` is a chain of three words, `tree:2,2` a tree of depth 2
# with two children per node.


# %%
def as_model(table):
    """A table as one of the kit's language models."""
    logits = table.log().float()

    def body(input_ids, **_):
        return SimpleNamespace(last_hidden_state=logits[input_ids])

    return Network(body, lambda hidden: hidden, len(words), torch.float32, "cpu")


pair = Pair(*map(as_model, tables), None, frozenset(), {})
for shape in ("chain:3", "tree:2,2"):
    steps = list(decode(pair, (stop,), "greedy", parse_shape(shape), Sampling(), length))
    ctx.say(f"With `{shape}`, {length} words take {len(steps)} target passes instead of {length}.")
    display(HTML(pictures.render_html(steps, words)))
    assert [token for step in steps for token in step.tokens] == alone[1:], "the same text"

# %% [markdown]
# ## 7. How many words does a target pass give?
# Assume that the target accepts each drafted word with the same probability $\alpha$, whatever
# happened before. Then it accepts at least $d$ words with probability $\alpha^d$. With the
# recovered or bonus word, the number of words per target pass is
#
# $$\tau(\gamma) = 1 + \alpha + \alpha^2 + \dots + \alpha^\gamma
#   = \frac{1 - \alpha^{\gamma + 1}}{1 - \alpha} .$$
#
# In our tables the overlap is the same after each word, so this formula is exact. In general one
# follows every path of accepted words.


# %% tags=["by-hand"]
def words_per_pass(p_table, q_table, last, gamma):
    """The exact number of words that a target pass gives after the word `last`."""
    both = np.minimum(p_table, q_table)  # a word is drafted and accepted
    reached, total = np.eye(5)[last], 1.0
    for _ in range(gamma):
        reached = reached @ both  # all words so far are accepted, and the last one is this
        total += reached.sum()
    return total


gammas = np.arange(1, 9)
alpha = np.minimum(p_table, q_table).sum(axis=1).mean()
formula = (1 - alpha ** (gammas + 1)) / (1 - alpha)
assert np.allclose(formula, [words_per_pass(p_table, q_table, stop, g) for g in gammas])
assert np.allclose(formula, [sum(alpha**i for i in range(gamma + 1)) for gamma in gammas])
print(f"alpha = {alpha:.2f}, at most {1 / (1 - alpha):.1f} words per pass")

# %% [markdown]
# The decoder at temperature 1 should give these numbers. Its last block is cut, so we leave it out.

# %%
rows = {}
for gamma in (1, 2, 3, 4, 6, 8):
    length = int(blocks_each * formula[gamma - 1])
    draft = Shape(chain(gamma))
    steps = decode(pair, (stop,), "rejection", draft, Sampling(1.0), length, rng)
    whole = pd.Series([len(step.tokens) for step in steps][:-1])
    rows[gamma] = [whole.mean(), whole.sem(), len(whole), formula[gamma - 1]]
columns = ["simulated", "standard error", "blocks", "formula"]
simulated = pd.DataFrame(rows, columns).T.rename_axis("gamma").astype({"blocks": int})
ctx.export(simulated, "words-per-pass", digits=2, caption="Words per target pass")
three = simulated.loc[3]
ctx.say(
    f"With three drafted words, {three['blocks']:.0f} blocks gave {three['simulated']:.2f} words "
    f"per target pass (standard error {three['standard error']:.2f}). The formula says "
    f"{three['formula']:.2f}."
)

# %%
gap = (simulated["simulated"] - simulated["formula"]).abs() / simulated["standard error"]
assert blocks_each < 100 or (gap < 4.5).all()  # of a few blocks the error is unknown

# %% [markdown]
# ## 8. Is there a better rule?
# The rule of section 2 looks at one word at a time. A chain $x_1 \dots x_i$ is drafted with
# probability $q(x_1 \dots x_i)$, and the rule accepts it with the product of $\min(p, q)$ over its
# words. How much could any lossless rule accept? Let $a(x_1 \dots x_i)$ be the probability that the
# chain is drafted and accepted. It is at most $q(x_1 \dots x_i)$. The word after an accepted chain
# must follow $p$, so it is also at most $a(x_1 \dots x_{i-1})\, p(x_i)$. **Block verification**
# (Sun et al., [arXiv:2403.10444](https://arxiv.org/abs/2403.10444)) reaches both limits:
#
# $$a(x_1 \dots x_i) = \min\bigl(q(x_1 \dots x_i),\; a(x_1 \dots x_{i-1})\, p(x_i)\bigr) .$$
#
# So a word to which $q$ gives too much can be made up for by a later word to which it gives too
# little. No lossless rule for a drawn chain accepts more. We sum $a$ over all chains.


# %% tags=["by-hand"]
def words_by_block(last, gamma):
    """Words per target pass after the word `last` with block verification, from all chains."""
    ends, drafted, accepted, total = [last], np.ones(1), np.ones(1), 1.0
    for _ in range(gamma):  # every chain gets each of the five words as its next word
        drafted = (drafted[:, None] * q_table[ends]).ravel()
        accepted = np.minimum(drafted, (accepted[:, None] * p_table[ends]).ravel())
        ends = np.tile(np.arange(5), len(ends))  # the last word of each chain
        total += accepted.sum()
    return total


# %% [markdown]
# Some servers use a simpler rule, **exact match**. The target draws its own word, and a drafted
# word is accepted if it is the same. This is lossless too, because every word is the target's own
# draw. A word $x$ is drawn by both with probability $q(x)\,p(x)$. If the draft proposes its best
# word instead of a drawn one, that word is accepted with its $p$. The rule `point-mass` accepts a
# best word as often. At $T = 0$ exact match is `greedy`.

# %% tags=["by-hand"]
best_p, best_q = (np.eye(5)[table.argmax(axis=1)] for table in (p_table, q_table))
accepted = {  # row: the last word, column: a word is drafted and accepted
    "rejection": np.minimum(p_table, q_table),
    "exact match, drawn words": p_table * q_table,
    "exact match, best words": p_table * best_q,
    "greedy (T = 0)": best_p * best_q,
}


def words_by_matrix(table, gamma):
    """Words per target pass after the full stop, if each word is accepted by itself."""
    return sum(np.linalg.matrix_power(table, depth)[stop].sum() for depth in range(gamma + 1))


# %%
by_rule = {"block": [words_by_block(stop, gamma) for gamma in simulated.index]}
for name, table in accepted.items():
    by_rule[name] = [words_by_matrix(table, gamma) for gamma in simulated.index]
by_rule = pd.DataFrame(by_rule, simulated.index)
assert np.allclose(by_rule["rejection"], simulated["formula"])
gain = by_rule["block"] - by_rule["rejection"]
assert np.isclose(gain[1], 0) and (gain[1:] > 0).all()
ctx.table(
    by_rule,
    "rules",
    digits=2,
    caption="Words per target pass of a block that begins after the full stop, by rule",
)

# %%
ctx.answer(
    "It gives text that follows the target's distribution exactly, in fewer target passes. In this "
    f"example a pass gives {formula[2]:.2f} words instead of one, if the draft proposes three."
)

# %% [markdown]
# Each further drafted word adds less and costs one more draft pass. Fewer target passes alone do
# not mean less time: [02](02_gamma_sweep.ipynb) weighs both.
#
# ## Try it
# Predict the result first, then change the cell and run it.
#
# 1. In section 3, change the second coin of block 1 from 0.80 to 0.60. What does the block give?
#
# <details><summary>Answer</summary>
# For <i>dog</i> after <i>the</i>, min(1, p/q) is 0.35/0.55 = 0.64, so <i>dog</i> is accepted. For
# <i>sat</i> after <i>dog</i> it is 0.45/0.60 = 0.75, so <i>sat</i> is accepted too. The coin 0.90
# picks the bonus token from p after <i>sat</i>, the full stop. One target pass gives four words.
# </details>
#
# 2. Keep the mean overlap, but make it unequal. Set `other = q_table.copy()`, then `other[the] =
#    p_table[the]` (overlap 1) and `other[sat] = [0.60, 0.10, 0.10, 0.10, 0.10]` (overlap 0.50).
#    Compare `words_per_pass(p_table, other, stop, 3)` with the formula.
#
# <details><summary>Answer</summary>
# A block that begins after "." gives 2.99 words, a block that begins after "sat" gives 2.25. The
# formula says 2.73 for both. It holds only if acceptance does not depend on the text so far. In
# real texts it does.</details>
#
# ## What this does not show
# Real models, whose $p$ and $q$ depend on the whole text, and time. Next:
# [01](01_load_models.ipynb), a real pair of models and one of its texts.
