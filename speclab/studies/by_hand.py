"""Notebook 00: speculative decoding on two models that fit on a page, word by word.

A model is a table: row = the last word, column = the next (`analysis.by_hand`). The rules that
decide are the kit's own (`speclab.verify`, `speclab.decode`); here their decisions are laid out.
"""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import numpy as np
import pandas as pd
import torch
from scipy.stats import chisquare

from speclab import score
from speclab.analysis import by_hand
from speclab.decode import Step, decode
from speclab.draft import Shape
from speclab.models.model import LanguageModel
from speclab.models.pairs import Pair
from speclab.sampling import Sampling
from speclab.show import figures
from speclab.show.estimates import Estimates, stack
from speclab.show.pictures import LOOKS
from speclab.tree import Tree, chain
from speclab.verify import RULES, Verdict, draw_children, verify

NAMES = ("rejection", "point-mass", "ratio", "typical")  # the rules of section 4
LINES = {  # looks of the formulas of section 9
    "with bonus": {"marker": "", "color": "#0072B2", "linestyle": "-"},
    "no bonus": {"marker": "", "color": "#D55E00", "linestyle": "--"},
    "no bonus, no recovered": {"marker": "", "color": "#444444", "linestyle": ":"},
    "counted": {"marker": "o", "color": "black"},
}


# ---- one word ------------------------------------------------------------------------------------


def rule_table(p: np.ndarray, q: np.ndarray, words: Sequence[str]) -> pd.DataFrame:
    """What becomes of one drafted word, a row a word: p, q, min(1, p/q), residual, accepted and
    recovered (probabilities of coming out so), and their sum, emitted.
    """
    kept, left = by_hand.chance(p, q), by_hand.residual(p, q)
    recovered = (1 - np.minimum(p, q).sum()) * left
    columns = {"p": p, "q": q, "min(1, p/q)": kept, "residual": left}
    columns |= {"accepted": q * kept, "recovered": recovered}
    return pd.DataFrame(columns, words).assign(emitted=q * kept + recovered)


def draw_rule(table: pd.DataFrame) -> figures.Figure:
    """`rule_table` as three panels: what is drawn from q and kept, the residual, what comes out."""
    green = {"color": LOOKS["accepted"].face, "edgecolor": LOOKS["accepted"].edge}
    orange = {"color": LOOKS["recovered"].face, "edgecolor": "black"}
    white = {"color": "white", "edgecolor": "#444444", "hatch": "/////"}
    wanted = {"markersize": 24, "markeredgewidth": 2.2, "label": "p, what is wanted"}
    kept, recovered = table["accepted"], table["recovered"]
    kept_bars = ("kept: min(p, q)", kept, green)
    panels = {
        "1  Draw from q, keep with min(1, p/q)": [
            kept_bars,
            ("rejected: the rest of q", table["q"] - kept, white),
        ],
        "2  If rejected: residual": [("_", table["residual"], orange)],
        "3  What comes out: p": [
            kept_bars,
            (f"recovered: {recovered.sum():.2f} × residual", recovered, orange),
        ],
    }
    figure, grid = figures.subplots(1, 3, height=2.7, sharey=True)
    for axes, (title, bars) in zip(grid, panels.items(), strict=True):
        bottom = 0
        for label, heights, look in bars:
            axes.bar(table.index, heights, bottom=bottom, label=label, **look)
            bottom = heights
        axes.set(title=title, ylim=(0, 0.9), xlabel="next word")
        if len(bars) > 1:
            axes.plot(table["p"], "k_", **wanted)
    grid[0].set_ylabel("probability")
    figures.legend_above(figure, *grid)
    return figure


# ---- blocks, coin by coin ------------------------------------------------------------------------


def rows_of(table: np.ndarray, tokens: np.ndarray) -> torch.Tensor:
    """The rows of a table after each of these words, as `verify` takes them."""
    return torch.from_numpy(table)[tokens]


def verified(
    p_table: np.ndarray,
    q_table: np.ndarray,
    last: int,
    drafted: Sequence[int],
    coins: Sequence[float],
) -> Verdict:
    """`verify` of a chain of words after the word `last`, with the coins written out."""
    tokens = np.array([last, *drafted])
    rows = (rows_of(table, tokens) for table in (p_table, q_table))
    return verify("rejection", chain(len(drafted)), tokens, *rows, np.array(coins))


def coin_table(
    p_table: np.ndarray,
    q_table: np.ndarray,
    words: Sequence[str],
    written: Sequence[tuple[int, Sequence[int], Sequence[float]]],
) -> pd.DataFrame:
    """Each decision of the written blocks (last word, drafted words, coins), by hand: block, after,
    word, p, q, min(1, p/q), coin, outcome. The last line of a block is the recovered or
    bonus word that `verify` gives.
    """
    rows, names = [], dict(enumerate(words))
    for block, (last, drafted, coins) in enumerate(written, 1):
        verdict = verified(p_table, q_table, last, drafted, coins)
        after = [last, *drafted]
        for before, word, coin in zip(
            after, drafted[: verdict.tried], coins, strict=False
        ):
            p, q = p_table[before, word], q_table[before, word]
            outcome = "accepted" if coin < min(1, p / q) else "rejected"
            rows.append((block, before, word, p, q, min(1, p / q), coin, outcome))
        end = after[len(verdict.path)], verdict.token
        blank, coin = [np.nan] * 3, coins[verdict.tried]
        rows.append((block, *end, *blank, coin, verdict.kind))
    columns = ["block", "after", "word", "p", "q", "min(1, p/q)", "coin", "outcome"]
    return pd.DataFrame(rows, columns=columns).replace({"after": names, "word": names})


def as_step(verdict: Verdict, drafted: Sequence[int]) -> Step:
    """What a block emitted, for the token view."""
    count = len(verdict.path)
    return Step((*drafted[:count], verdict.token), count, len(drafted), verdict.kind)


# ---- is nothing lost? ----------------------------------------------------------------------------


def first_words(
    rule: str, p: np.ndarray, q: np.ndarray, count: int, rng: np.random.Generator
) -> np.ndarray:
    """Draft one word (drawn from q, or q's best where the rule takes no draws), verify it, note the
    word that comes out; `count` times.
    """
    p_rows, q_rows = (torch.from_numpy(np.stack([row, row])) for row in (p, q))
    child, came = int(q.argmax()), []
    for _ in range(count):
        if RULES[rule].sampled:
            child = int(draw_children(q_rows[0], 1, rng.random(1))[0])
        tokens = np.array([0, child])
        verdict = verify(rule, chain(1), tokens, p_rows, q_rows, rng.random(2))
        came.append(child if verdict.path else verdict.token)
    return np.array(came)


def exact_limit(rule: str, p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Distribution of that word: exact, without a draw."""
    words = np.eye(len(p))
    drawn = q if RULES[rule].sampled else words[q.argmax()]
    limit = np.zeros(len(p))
    for child in np.flatnonzero(drawn):
        step = RULES[rule].step(torch.from_numpy(p), torch.from_numpy(q), [int(child)])
        chance, rest = (values.numpy() for values in step)
        kept = np.full(len(p), chance)
        limit += drawn[child] * by_hand.emitted(words[child], kept, rest)
    return limit


def expected_error(p: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Mean total variation between p and the shares of `count` words drawn from p, for many."""
    return np.sqrt(2 * p * (1 - p) / np.pi).sum() / 2 / np.sqrt(count)


def running_error(tokens: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Total variation between p and the shares of the first n of `tokens`, for n = 1, 2, …: float64
    [len(tokens)].
    """
    shares = np.eye(len(p))[tokens].cumsum(0) / np.arange(1, len(tokens) + 1)[:, None]
    return by_hand.total_variation(shares, p)


def lossless_table(
    came: Mapping[str, np.ndarray], p: np.ndarray, q: np.ndarray
) -> pd.DataFrame:
    """How far the words that came out under each rule are from p: observed, expected of words from
    p, exact limit (total variation), and a chi-square test against p.
    """
    rows = {}
    for rule, words in came.items():
        counts = np.bincount(words, minlength=len(p))[p > 0]
        rows[rule] = {
            "observed": running_error(words, p)[-1],
            "expected of words from p": expected_error(p, len(words)),
            "exact limit": float(by_hand.total_variation(exact_limit(rule, p, q), p)),
            "chi-square p-value": chisquare(counts, len(words) * p[p > 0]).pvalue,
        }
    return pd.DataFrame(rows).T.rename_axis("rule")


def distances(came: Mapping[str, np.ndarray], p: np.ndarray) -> Estimates:
    """Total variation between p and the shares of the first n words, at n = 8, 16, 32, …, by rule;
    and what is expected of words that come from p.
    """
    draws = len(next(iter(came.values())))
    n = 2 ** np.arange(3, draws.bit_length())
    lines = {rule: running_error(words, p)[n - 1] for rule, words in came.items()}
    lines["expected of words from p"] = expected_error(p, n)
    return Estimates.exact("rule", lines, "words drawn", n)


# ---- a tree --------------------------------------------------------------------------------------


def best_tokens(tree: Tree, q: np.ndarray, last: int) -> np.ndarray:
    """The draft's best tokens on a tree after the word `last`: the child of rank r is its parent's
    r-th best; int64 [N + 1], root first.
    """
    order = np.argsort(-q, axis=-1, kind="stable")  # of equal ones the lower id first
    tokens = np.full(tree.size + 1, last)
    for node in range(1, tree.size + 1):
        tokens[node] = order[tokens[tree.parent[node]], tree.rank[node]]
    return tokens


def node_columns(
    tree: Tree, p: np.ndarray, q: np.ndarray, last: int
) -> dict[str, np.ndarray]:
    """The columns of a `nodes` frame for a tree of the draft's best tokens after the word `last`:
    each [N], the root left out.
    """
    tokens = best_tokens(tree, q, last)
    above, token = tokens[tree.parent[1:]], tokens[1:]
    ranks = np.argsort(np.argsort(-p, axis=-1, kind="stable"), axis=-1)
    names = ("parent", "depth", "rank", "best_path")
    return {
        "node": np.arange(1, tree.size + 1),
        **{name: getattr(tree, name)[1:] for name in names},
        "token": token,
        "draft_prob": q[above, token],
        "target_prob": p[above, token],
        "target_rank": ranks[above, token],
    }


def coins_of_tree(
    tree: Tree,
    nodes: Mapping[str, np.ndarray],
    words: Sequence[str],
    last: int,
    tried: Sequence[int],
    coins: Sequence[float],
) -> pd.DataFrame:
    """The nodes that the point-mass rule tries, in order, each with its coin: node, after, word,
    rank, p, p among the words left (those of rejected siblings are gone), coin, outcome.
    """
    at = np.array(tried)
    above = np.array([last, *nodes["token"]])[tree.parent[at]]
    table = pd.DataFrame({"node": at, "after": above, "word": nodes["token"][at - 1]})
    names = dict(enumerate(words))
    table = table.replace({"after": names, "word": names})
    table["rank"], table["p"] = tree.rank[at], nodes["target_prob"][at - 1]
    siblings = table.groupby(tree.parent[at])["p"]
    gone = siblings.transform(lambda p: p.shift(fill_value=0.0).cumsum())
    table["p among the words left"] = table["p"] / (1 - gone)
    table["coin"] = coins[: len(at)]
    kept = table["coin"] < table["p among the words left"]
    return table.assign(outcome=np.where(kept, "accepted", "rejected"))


# ---- estimators ----------------------------------------------------------------------------------


def records(
    tree: Tree, p_table: np.ndarray, q_table: np.ndarray
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The frames `nodes` and `trace` of the tree hung once on each word, at temperature 0."""
    parts = {
        word: pd.DataFrame(node_columns(tree, p_table, q_table, word))
        for word in range(len(p_table))
    }
    order = np.argsort(-q_table, axis=1, kind="stable")
    best = p_table.argmax(1)[:, None]
    trace = {
        "overlap": np.minimum(p_table, q_table).sum(1),
        "top_draft_p": list(np.take_along_axis(p_table, order, 1)),
        "draft_rank": np.argmax(order == best, axis=1),
    }
    nodes = stack(parts, "position").assign(prompt_id="five words")
    return nodes, pd.DataFrame(trace)


def acceptances(nodes: pd.DataFrame, trace: pd.DataFrame) -> pd.Series:
    """Every estimator of acceptance that needs no walk through the tree, by name."""
    of_nodes = (score.published_alpha, score.published_length, score.best_path_ratio)
    families = (score.top_mass, score.hit)
    members = [score.member(family, k) for family in families for k in (1, 2)]
    values = {estimator.name: estimator(nodes) for estimator in of_nodes}
    values |= {one.name: one(trace) for one in (score.alpha, *members)}
    return pd.Series(values, name="value").rename_axis("estimator")


def tree_acceptances(nodes: pd.DataFrame) -> pd.DataFrame:
    """The estimators of the tree by walking it, a column a rule (greedy: temperature 0; point-mass:
    temperature 1).
    """
    columns = {}
    for rule in ("greedy", "point-mass"):
        labelled = {}
        for estimator in score.tree_estimators(rule).values():
            values = np.atleast_1d(estimator(nodes))
            labelled |= dict(zip(estimator.labels(len(values)), values, strict=True))
        columns[f"{rule} rule"] = labelled
    return pd.DataFrame(columns).rename_axis("of the tree")


# ---- the kit's decoder on tables -----------------------------------------------------------------


def table_pair(p_table: np.ndarray, q_table: np.ndarray) -> Pair:
    """Two tables behind the interface of a pair of language models: the logits after a word are the
    logarithms of its row.
    """

    def model(table: np.ndarray) -> LanguageModel:
        rows = torch.from_numpy(table).log().float()

        def body(input_ids: torch.Tensor, **_) -> SimpleNamespace:
            return SimpleNamespace(last_hidden_state=rows[input_ids])

        return LanguageModel(
            body, lambda hidden: hidden, len(table), torch.float32, "cpu"
        )

    return Pair(model(p_table), model(q_table), None, frozenset(), {})


def greedy_text(p_table: np.ndarray, last: int, length: int) -> list[int]:
    """What the target alone writes at temperature 0 after the word `last`."""
    text = []
    for _ in range(length):
        last = int(p_table[last].argmax())
        text.append(last)
    return text


def counted_blocks(
    pair: Pair, last: int, blocks: Mapping[int, int], rng: np.random.Generator
) -> pd.DataFrame:
    """Words per target pass as the decoder counts them at temperature 1, index gamma: counted,
    standard error, blocks. `blocks`: words to decode with each gamma.
    """
    rows, warm = {}, Sampling(1.0)
    for gamma, length in blocks.items():
        shape = Shape(chain(gamma))
        steps = decode(pair, (last,), "rejection", shape, warm, length, rng)
        whole = pd.Series([len(step.tokens) for step in steps][:-1])  # the last is cut
        rows[gamma] = (whole.mean(), whole.sem(), len(whole))
    table = pd.DataFrame(rows, index=["counted", "standard error", "blocks"]).T
    return table.astype({"blocks": int}).rename_axis("gamma")


def words_per_pass(
    counted: pd.DataFrame, formula: np.ndarray, alpha: float
) -> Estimates:
    """The formula at gamma = 1, 2, … with and without bonus and recovered words, and the counts
    with 95 % intervals, by the key `what`.
    """
    gamma = np.arange(1, len(formula) + 1)
    lines = {
        "with bonus": formula,
        "no bonus": formula - alpha**gamma,
        "no bonus, no recovered": formula - 1,
    }
    mean, reach = counted["counted"], 1.96 * counted["standard error"]
    count = pd.DataFrame({"estimate": mean, "low": mean - reach, "high": mean + reach})
    curves = Estimates.exact("what", lines, "gamma", gamma).frame
    return Estimates(pd.concat([curves, count.reset_index().assign(what="counted")]))


# ---- what the article's pseudo-code lacks --------------------------------------------------------


def flaws(
    p_table: np.ndarray,
    q_table: np.ndarray,
    last: int,
    gamma: int,
    words: Sequence[str],
) -> pd.DataFrame:
    """The first word that comes out after `last` under each flawed procedure, exact: its
    distribution, total variation to p, and words per target pass.
    """
    p, q = p_table[last], q_table[last]
    after_itself = np.diag(p_table)  # p of x, read after x instead of before it
    late = np.broadcast_to(after_itself, p_table.shape)
    left, missing = by_hand.residual(p, q), by_hand.residual(p_table, q)
    kept, wrong = by_hand.chance(p, q), by_hand.chance(after_itself, q)
    right_chain, wrong_chain = (
        by_hand.survival(np.minimum(table, q_table), last, gamma)
        for table in (p_table, late)
    )
    tau, whole = 1 + right_chain.sum(), right_chain[-1]  # whole: no draft rejected
    variants = {
        "as it should be": (by_hand.emitted(q, kept, left), tau),
        "no residual: drafted anew": (q * kept / (q * kept).sum(), tau - 1 + whole),
        "no residual: drawn from p": (by_hand.emitted(q, kept, p), tau),
        "no bonus": (by_hand.emitted(q, kept, left), tau - whole),
        "p read one position late": (
            by_hand.emitted(q, wrong, missing),
            1 + wrong_chain.sum(),
        ),
        "all three": (q * wrong / (q * wrong).sum(), wrong_chain.sum()),
    }
    outs = np.stack([out for out, _ in variants.values()])
    names = pd.Index(variants, name="procedure")
    table = pd.DataFrame(outs, names, words)
    table["total variation"] = by_hand.total_variation(outs, p)
    return table.assign(**{"words per pass": [count for _, count in variants.values()]})
