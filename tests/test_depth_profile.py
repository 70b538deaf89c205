"""Notebook 04's study: the chain's shares against the estimators' own, the identity of a deeper
node and a new block's first node, mixtures by hand, and positions in the text.
"""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from frames import text_of
from test_score import make_run, tree_nodes

from speclab import score
from speclab.estimates import Estimates
from speclab.show import drawings, notebook, redraw, style
from speclab.stats import NUMBERS
from speclab.studies import depth_profile as study
from speclab.tree import chain


def warm_and_cold(positions=6):
    return text_of(make_run(positions=positions)), text_of(make_run(seed=1), 1.0)


def test_the_best_path_has_the_conditional_shares_of_the_ladder():
    texts = warm_and_cold()
    steps = study.along_best_path(texts)
    for text in texts:
        path = text.nodes[text.nodes["best_path"] & (text.nodes["domain"] == "chat")]
        ladder = score.tree_estimators(text.rule)["accept_by_depth"](path)
        own = steps.at(text=text.name, domain="chat")
        found = own.frame.pivot(index="depth", columns="name", values="estimate")
        assert found["accept_by_depth"].tolist() == pytest.approx(ladder.tolist())
    survival = steps.at(name="survival_by_depth").defined()
    by_domain = survival.frame.groupby(["text", "domain"])["estimate"]
    assert (by_domain.diff().dropna() <= 1e-12).all()


def node_columns(tree, p, q, last):
    """The columns of a `nodes` frame for a tree of the draft's best words after the word `last`."""
    order = np.argsort(-q, axis=-1, kind="stable")
    tokens = np.full(tree.size + 1, last)
    for node in range(1, tree.size + 1):
        tokens[node] = order[tokens[tree.parent[node]], tree.rank[node]]
    above, token = tokens[tree.parent[1:]], tokens[1:]
    ranks = np.argsort(np.argsort(-p, axis=-1, kind="stable"), axis=-1)
    columns = {"node": np.arange(1, tree.size + 1), "token": token}
    columns |= {name: getattr(tree, name)[1:] for name in ("parent", "depth", "rank", "best_path")}
    columns["draft_prob"], columns["target_prob"] = q[above, token], p[above, token]
    return columns | {"target_rank": ranks[above, token]}


def words_of_two_tables(temperature, deeper):
    """Texts of five words, each decided by the word before, and chains of three hung on each;
    `deeper`: what the target thinks of the drafted words below depth 1, times this.
    """
    rng = np.random.default_rng(6)
    p, noise = rng.dirichlet(np.ones(5), (2, 5))
    q = (p + noise) / 2
    order = np.argsort(-q, axis=1)
    nodes, rows = [], []
    for last in range(5):
        prompt = f"p{last}"
        for position in range(30):
            hung = pd.DataFrame(node_columns(chain(3), p, q, last))
            hung.loc[1:, "target_prob"] *= deeper
            hung.loc[1:, "target_rank"] += deeper < 1
            at = {"prompt_id": prompt, "domain": "code", "position": position}
            nodes.append(hung.assign(target_entropy=1.0, **at))
            word = rng.choice(5, p=p[last]) if temperature else p[last].argmax()
            rank = int(np.flatnonzero(order[last] == word)[0])
            rows.append(at | {"token": word, "draft_rank": rank, "overlap": 0.5})
            last = word
    run = SimpleNamespace(nodes=pd.concat(nodes), trace=pd.DataFrame(rows))
    return text_of(run, temperature)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_deeper_node_is_the_first_of_a_new_block(temperature):
    found = study.best_path(words_of_two_tables(temperature, 1.0))
    first = found[found["depth"] == 1].set_index(["prompt_id", "position"])
    for row in found.itertuples():
        ends = range(row.position, row.position + row.depth)
        above = [first["is_text"].get((row.prompt_id, at)) for at in ends]
        followed = None not in above and all(above[:-1])
        assert row.followed == followed
        new = first["own"].get((row.prompt_id, ends[-1]))
        assert row.new == (new if followed else 0)
    same = found[found["followed"] == 1]
    assert (same["depth"] > 1).sum() > 10
    np.testing.assert_allclose(same["own"], same["new"])
    same_text, worse_text = (words_of_two_tables(temperature, deeper) for deeper in (1.0, 0.5))
    same, worse = (study.own_states(t, 2).at(domain="code") for t in (same_text, worse_text))
    assert same.value == pytest.approx(0, abs=1e-9) and worse.value < -0.1
    worse = study.best_path(worse_text)
    worse = worse[(worse["followed"] == 1) & (worse["depth"] > 1)]
    assert worse["own"].mean() < worse["new"].mean(), (
        "a draft that depth itself makes worse is seen"
    )


def test_a_mixture_bends_though_nothing_depends_on_depth():
    """Nodes under the best path are worth 0.6, the others 0.4."""
    worth = np.where(tree_nodes(0, 0)["parent"].isin([0, 1, 3]), 0.6, 0.4)
    nodes = [tree_nodes(worth, 0, f"p{i}", 0, draft_prob=1.0) for i in range(5)]
    nodes = pd.concat(nodes, ignore_index=True)
    trace = make_run().trace
    text = text_of(SimpleNamespace(nodes=nodes, trace=trace))
    means = study.mixtures([text]).at(tree="2 + 4 + 2")
    assert means.at(name=study.BEST_PATH).span() == "0.60"
    others = means.at(name=study.OTHERS).frame
    assert others["depth"].tolist() == [2] and others["share"].tolist() == [0.5]
    every = means.at(name=study.ALL_NODES).frame["estimate"]
    assert every.tolist() == pytest.approx([0.6, 0.5, 0.6])


@pytest.mark.parametrize("width", [style.ONE_COLUMN, style.TWO_COLUMNS])
def test_a_mixture_is_drawn_between_its_two_groups(width):
    rows = [
        ("2 + 4", name, depth, value, 0.5)
        for name, depth, value in (
            ("a", 1, 0.6),
            ("all", 1, 0.6),
            ("a", 2, 0.6),
            ("b", 2, 0.4),
            ("all", 2, 0.5),
        )
    ]
    frame = pd.DataFrame(rows, columns=["tree", "name", "depth", "estimate", "share"])
    figure = redraw.draw_styled(lambda: drawings.draw_mixture(frame, "all", "b"), width)
    (axes,) = figure.axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert drawn["all"] == pytest.approx([0, -0.1])
    assert [text.get_text() for text in axes.texts] == ["50 %"]
    without = frame[frame["name"] != "b"]
    redraw.draw_styled(lambda: drawings.draw_mixture(without, "all", "b"), width)


def long_texts(last):
    """Six prompts a domain, of `last` tokens; of chat, four. Accepted: the first 8, and from 33."""
    rows = [
        (f"{domain}{i}", domain, t, t < 8 or t >= 32)
        for domain, long in (("code", 6), ("chat", 4))
        for i in range(6)
        for t in range(last if i < long else 10)
    ]
    frame = pd.DataFrame(rows, columns=["prompt_id", "domain", "position", "hit"])
    trace = frame.assign(draft_rank=np.where(frame.pop("hit"), 0, 1))
    return SimpleNamespace(nodes=make_run().nodes, trace=trace)


def test_acceptance_along_the_text_has_the_first_tokens_apart():
    along = study.along_text([text_of(long_texts(64))])
    code = along.at(domain="code").frame
    assert code["tokens"].tolist() == ["1-8", "9-16", "17-32", "33-64"]
    assert code["estimate"].tolist() == [1, 0, 0, 1]
    assert set(along.frame["domain"]) == {"code"}, "chat has four long texts only"


@pytest.mark.parametrize(
    ("last", "bins"),
    [(24, ["1-3", "4-6", "7-12", "13-24"]), (17, ["1-3", "4-5", "6-9", "10-17"])],
)
def test_bins_along_the_text_follow_its_length(last, bins):
    along = study.along_text([text_of(long_texts(last))])
    assert along.at(domain="code").frame["tokens"].tolist() == bins


def test_kinds_are_named_by_the_temperature_and_own_domains_have_no_panel_of_the_paper():
    cold, warm = text_of(make_run()), text_of(make_run(seed=1), 0.7)
    kinds = study.kinds(cold, cold, warm, 3, 2)
    assert study.best_path_name(warm) in kinds and "T = 0.7" in study.best_path_name(warm)
    profiles = study.by_depth(kinds)
    named = {"code": "tax", "math": "law", "reasoning": "art", "chat": "war"}
    own = Estimates(profiles.frame.replace({"domain": named}))
    for numbers, rows in ((profiles, 2), (own, 1)):
        shown = study.beside_the_paper(numbers, [study.best_path_name(warm)])
        assert shown.frame["row"].nunique() == rows


def test_acceptance_along_the_text_is_a_title():
    ends = {"a": 0.2, "b": 0.9, "c": np.nan}
    rows = [(name, *[at] * 3) for name, end in ends.items() for at in (0.5, end)]
    title = study.along_in_title(Estimates(pd.DataFrame(rows, columns=["domain", *NUMBERS])))
    assert title == "Acceptance is lower at the end of the text in 1 of 3 domains (T = 0)"


def test_kinds_have_names_in_words():
    names = "published_alpha, 2 + 4 + 2", "accept_by_depth, best path, T = 0"
    assert [*map(study.kind_in_words, names)] == ["all nodes, 2 + 4 + 2", "best path, T = 0"]
    assert study.kind_in_words("accept_by_depth, 2 + 4, T = 1") == "any branch of 2 + 4, T = 1"


# ---- the answer ----------------------------------------------------------------------------------


def change(*numbers):
    rows = pd.DataFrame([numbers], columns=NUMBERS, dtype=float)
    return Estimates(rows.assign(domain="all")[["domain", *NUMBERS]])


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ((0.063, 0.045, 0.078), ("Yes.", "by +6.3 points [4.5, 7.8] from depth 1 to 3")),
        ((-0.063, -0.078, -0.045), ("No.", "by −6.3 points")),
        ((0.017, -0.18, 0.179), ("Inconclusive.", "by +1.7 points")),
        ((0.087, np.nan, np.nan), ("Inconclusive.", "by +8.7 points from")),
    ],
)
def test_the_answer_is_short_in_every_branch(numbers, said):
    rows = pd.DataFrame([(0.1, 0.05, 0.2), (0.1, -0.1, 0.2)], columns=NUMBERS)
    for sets in (rows, rows[:1], rows.assign(low=np.nan), rows[:0]):
        numbered = change(*numbers).in_units("points", 1)
        for by_start in (True, False):
            answer = study.rise_with_depth(numbered, 3, sets, by_start)
            assert answer.startswith(said[0]) and said[1] in answer
            assert ("the head's own states" in answer) == by_start
            assert not notebook.too_long(answer), answer
    assert answer.endswith("No other prompts were tested.")
