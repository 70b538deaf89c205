"""The page's replay is the kit's: every recorded text of both pairs, in a real browser."""

import numpy as np
import pytest
from browser import chromium, opened
from frames import shipped
from numpy.testing import assert_allclose

from speclab import replay
from speclab.analysis import choose, rejection_rule
from speclab.cost import Costs
from speclab.explore import page, trace_data
from speclab.studies import gamma_sweep
from speclab.tree import chain, static_tree

PAIRS = ("tiny", "smollm")
KINDS = ("greedy", "sampled")
CHAINS = [{"kind": "chain", "gamma": gamma} for gamma in range(1, 17)]
TREES = [  # depth, branches, budget
    (1, 2, 2), (1, 16, 16), (2, 2, 3), (2, 2, 6), (2, 16, 272), (3, 2, 5), (3, 2, 8), (3, 4, 20),
    (3, 1000, 1000), (4, 3, 40), (5, 2, 62), (5, 5, 33), (6, 3, 7), (8, 3, 64), (16, 2, 31),
]  # fmt: skip
SHAPES = CHAINS + [{"kind": "tree", "depth": d, "branches": b, "budget": n} for d, b, n in TREES]
SUMS = ["blocks", "drafted", "accepted", "emitted", "truncated"]


def tree_of(shape):
    if shape["kind"] == "chain":
        return chain(shape["gamma"])
    return static_tree(shape["depth"], shape["branches"], shape["budget"])


def rule_of(kind, shape):
    if kind == "greedy":
        return "greedy"
    return "rejection" if shape["kind"] == "chain" else "point-mass"


@pytest.fixture(scope="module")
def recorded():
    return {pair: [shipped(pair, kind) for kind in KINDS] for pair in PAIRS}


@pytest.fixture(scope="module")
def pages(recorded, tmp_path_factory):
    """A page of each pair, open in the browser."""
    folder = tmp_path_factory.mktemp("pages")
    with chromium() as browser:
        found = {}
        for pair, both in recorded.items():
            file = folder / f"{pair}.html"
            packed = trace_data.pack_runs(both)
            file.write_text(page.assemble(packed, title=pair), encoding="utf-8")
            found[pair], wrong = opened(browser, file)
            assert not wrong
        yield found


SUMS_OF_TEXTS = """([number, shapes, names]) => {
  const { textSums } = explore.modules["model.js"];
  const run = explore.view.trace.runs[number];
  return shapes.map((shape) => run.length.map((_, text) => {
    const sums = textSums(run, text, shape);
    return names.map((name) => sums[name]);
  }));
}"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pair", PAIRS)
def test_every_text_at_every_setting(pages, recorded, pair, kind):
    number = KINDS.index(kind)
    trace = recorded[pair][number].trace
    found = pages[pair].evaluate(SUMS_OF_TEXTS, [number, SHAPES, SUMS])
    assert len(found) == len(SHAPES)
    assert len(found[0]) == trace["prompt_id"].nunique()
    for shape, sums in zip(SHAPES, found, strict=True):
        if rule_of(kind, shape) == "rejection":
            blocks = replay.replay_sampled(trace, shape["gamma"])
        else:
            blocks = replay.replay(trace, tree_of(shape))
        expected = replay.prompt_sums(blocks)[SUMS].to_numpy()
        exact = rule_of(kind, shape) != "rejection"
        assert_allclose(sums, expected, rtol=0, atol=0 if exact else 1e-9, err_msg=str(shape))


ENDINGS = """([number, shape]) => {
  const { cutOf } = explore.modules["model.js"];
  const run = explore.view.trace.runs[number];
  return run.length.map((_, text) => cutOf(run, text, shape, 1).tokens.map((t) => t.kind));
}"""


def kinds_by_hand(ranks, tree):
    """Kind of every token of a text by the words of the glossary: walk down the drafted tree."""
    kinds, start = [], 0
    while start < len(ranks):
        drafted = tree.upto(len(ranks) - start)
        node = 0
        while start < len(ranks):
            children = drafted.children(node)
            child = [c for c in children if drafted.rank[c] == ranks[start]]
            start += 1
            if not child:
                kinds.append("recovered" if len(children) else "bonus")
                break
            kinds.append("accepted")
            node = child[0]
    return kinds


@pytest.mark.parametrize("shape", [CHAINS[3], SHAPES[22]], ids=str)
def test_kind_of_every_token(pages, recorded, shape):
    trace = recorded["tiny"][0].trace
    found = pages["tiny"].evaluate(ENDINGS, [0, shape])
    texts = [rows.to_numpy() for _, rows in trace.groupby("prompt_id", sort=False)["draft_rank"]]
    assert found == [kinds_by_hand(ranks, tree_of(shape)) for ranks in texts]


# ---- costs ---------------------------------------------------------------------------------------

SPEEDS = """([number, shapes, machine]) => {
  const { domainSums, domainsOf, treeOf } = explore.modules["model.js"];
  const { speedup, breakEvenCost } = explore.modules["cost.js"];
  const run = explore.view.trace.runs[number];
  return domainsOf(run).map((domain) => shapes.map((shape) => {
    const sums = domainSums(run, domain, shape);
    return [speedup(sums, treeOf(shape), machine), breakEvenCost(sums, treeOf(shape), machine)];
  }));
}"""
MACHINES = [{"c": 0.1, "knee": 64, "o": 0.05}, {"c": 0.37, "knee": 3, "o": 0.2}]


def costs_of(machine, c=None):
    knee, c = machine["knee"], machine["c"] if c is None else c
    return Costs(1.0, (1, knee, 32 * knee), (c, c, c), (1.0, 1.0, 32.0), machine["o"])


@pytest.mark.parametrize("machine", MACHINES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_speed_ups_are_the_kits(pages, recorded, kind, machine):
    number, shapes = KINDS.index(kind), [*CHAINS[::3], SHAPES[19], SHAPES[22]]
    trace = recorded["smollm"][number].trace
    found = np.array(pages["smollm"].evaluate(SPEEDS, [number, shapes, machine]))
    for place, shape in enumerate(shapes):
        settings = {"it": tree_of(shape)}
        counted = choose.block_counts(trace, settings, rule_of(kind, shape))
        table = choose.prompt_costs(counted, settings, costs_of(machine)).table
        sums = table.groupby("domain", sort=False).sum()
        expected = sums["emitted"] / sums["cost"]
        assert_allclose(found[:, place, 0], expected, rtol=1e-12)
        # at the c where it stops paying, the price of the tokens is their number
        for row, domain in enumerate(expected.index):
            c = found[row, place, 1]
            if c <= 0 or row != place % len(expected):
                continue
            there = choose.prompt_costs(counted, settings, costs_of(machine, c)).table
            own = there.groupby("domain", sort=False).sum().loc[domain]
            assert own["emitted"] / own["cost"] == pytest.approx(1, abs=1e-9)


# ---- the rule, and draws -------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_the_rule_on_five_words(pages, seed):
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.ones(5), 2)
    p[seed] = 0
    p /= p.sum()
    overlap, residual, emitted, none = pages["tiny"].evaluate(
        """([p, q]) => { const r = explore.modules["rule.js"];
          return [r.overlap(p, q), r.residual(p, q), r.emitted(p, q), r.residual(p, p)]; }""",
        [p.tolist(), q.tolist()],
    )
    assert overlap == pytest.approx(np.minimum(p, q).sum(), abs=1e-12)
    assert_allclose(residual, rejection_rule.residual(p, q), atol=1e-12)
    assert_allclose(emitted, p, atol=1e-12)
    assert_allclose(none, p, atol=1e-12)


def test_draws_average_to_the_expectation(pages):
    """5,000 seeds: the mean number of passes, and its standard error, against the expectation."""
    mean, error, expected, repeated = pages["smollm"].evaluate("""() => {
      const { cutOf, textSums } = explore.modules["model.js"];
      const run = explore.view.trace.runs[1];
      const shape = { kind: "chain", gamma: 4 };
      const passes = Array.from({ length: 5000 }, (_, s) => cutOf(run, 7, shape, s).blocks.length);
      const mean = passes.reduce((a, b) => a + b) / passes.length;
      const spread = passes.reduce((a, b) => a + (b - mean) ** 2, 0) / passes.length;
      const again = cutOf(run, 7, shape, 3).blocks.length === passes[3];
      return [mean, Math.sqrt(spread / passes.length), textSums(run, 7, shape).blocks, again];
    }""")
    assert repeated and error < 0.1
    assert abs(mean - expected) < 4 * error


def test_the_text_in_the_middle_is_the_notebooks(pages, recorded):
    trace = recorded["smollm"][0].trace
    for gamma in (1, 4, 9):
        got = pages["smollm"].evaluate(
            """(gamma) => { const run = explore.view.trace.runs[0];
              const { middleText } = explore.modules["model.js"];
              return run.prompt[middleText(run, null, { kind: "chain", gamma })]; }""",
            gamma,
        )
        assert got == gamma_sweep.middle_text(replay.replay(trace, gamma))


# ---- what is shown of a token --------------------------------------------------------------------


def test_details_are_the_recorded_ones(pages, recorded):
    """Of every 37th position: ids exactly, probabilities to the figures that are shown."""
    trace = recorded["smollm"][1].trace
    found = pages["smollm"].evaluate("""() => {
      explore.act.toRun(1);
      const { factsAt } = explore.modules["details_view.js"];
      const { view } = explore;
      const rows = [];
      view.run.length.forEach((length, text) => {
        view.state.text = text;
        for (let i = text % 37; i < length; i += 37) {
          const f = factsAt(view, i);
          const ids = view.trace.ids;
          rows.push([view.run.prompt[text], i, ids[f.token], f.rank, f.p, f.q, f.overlap,
            f.targetEntropy, f.draftEntropy, ids[f.targetTop],
            f.best.map((b) => [ids[b.token], b.q, b.p])]);
        }
      });
      explore.act.toRun(0);
      return rows;
    }""")
    assert len(found) > 200
    by_place = trace.set_index(["prompt_id", "position"])
    for prompt, i, token, rank, p, q, overlap, target, draft, top, best in found:
        row = by_place.loc[(prompt, i)]
        assert [token, rank, top] == [row["token"], row["draft_rank"], row["target_top"]]
        assert (p, q) == (row["p_token"], row["q_token"])
        assert overlap == pytest.approx(row["overlap"], abs=1e-5)
        assert target == pytest.approx(row["target_entropy"], abs=6e-4)
        assert draft == pytest.approx(row["draft_entropy"], abs=6e-4)
        ids, some_q, some_p = zip(*best, strict=True)
        assert list(ids) == row["top_draft_ids"][:5].tolist()
        assert_allclose(some_q, row["top_draft_q"][:5], atol=1e-5)
        assert_allclose(some_p, row["top_draft_p"][:5], atol=1e-5)


def test_a_drawn_tree_is_the_recorded_one(pages, recorded):
    """The shape that was recorded: tokens, q and p of all its nodes, of several texts."""
    nodes = recorded["tiny"][0].nodes.set_index(["prompt_id", "position"])
    found = pages["tiny"].evaluate("""() => {
      const { nodesOf } = explore.modules["tree_view.js"];
      const rows = [];
      for (const text of [0, 60, 120, 180]) {
        const shape = { kind: "tree", depth: 3, branches: 2, budget: 8 };
        explore.act.change({ text, shape, position: 0 });
        for (const block of explore.view.cut.blocks) {
          const drafted = nodesOf(explore.view, block).filter((n) => n.path.length);
          rows.push([explore.view.run.prompt[text], block.start,
            drafted.map((n) => [n.path.length, explore.view.trace.ids[n.token], n.q, n.p])]);
        }
      }
      return rows;
    }""")
    assert len(found) > 40
    for prompt, start, drafted in found:
        rows = nodes.loc[(prompt, start)].iloc[: len(drafted)]
        depth, token, q, p = zip(*drafted, strict=True)
        assert list(depth) == rows["depth"].tolist()
        assert list(token) == rows["token"].tolist()
        assert_allclose(q, rows["draft_prob"], atol=2e-4)
        assert_allclose(p, rows["target_prob"], atol=2e-4)
