"""The page's replay equals the kit's for every recorded text of both pairs, in a real browser."""

import numpy as np
import pytest
import rejection_rule
from browser import chromium, opened
from frames import shipped, with_lists
from numpy.testing import assert_allclose

from speclab import replay, score, stats
from speclab.cost import Costs
from speclab.explore import page, trace_data
from speclab.lab import choose, combined
from speclab.study import runs
from speclab.tree import chain, static_tree

PAIRS = ("tiny", "smollm")
HEAD = "tiny with a head"  # the second draft of its page
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
    found = {pair: [shipped(pair, kind) for kind in KINDS] for pair in PAIRS}
    return found | {HEAD: [with_lists(run) for run in found["tiny"]]}


@pytest.fixture(scope="module")
def pages(recorded, tmp_path_factory):
    """A page of each pair, open in the browser."""
    folder = tmp_path_factory.mktemp("pages")
    with chromium() as browser:
        found = {}
        for pair, both in recorded.items():
            first, second = (recorded["tiny"], both) if pair == HEAD else (both, ())
            file = folder / f"{pair}.html"
            prompts = page.recorded_prompts(both[0])
            encoded = runs.encoded_again(both[0], prompts)
            packed = trace_data.pack_runs(first, encoded=encoded, second=second)
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


def place_of(pair, kind):
    """The number of a pair's run on its page; a head is the second draft of its page."""
    return KINDS.index(kind) + len(KINDS) * (pair == HEAD)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pair", [*PAIRS, HEAD])
def test_every_text_at_every_setting(pages, recorded, pair, kind):
    trace = recorded[pair][KINDS.index(kind)].trace
    found = pages[pair].evaluate(SUMS_OF_TEXTS, [place_of(pair, kind), SHAPES, SUMS])
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


def test_a_heads_lists_matter(pages):
    """Negative control: its first ranks are the other draft's, and its counts are not."""
    one, two = pages[HEAD].evaluate(
        """(shapes) => [0, 2].map((number) => shapes.map((shape) => {
          const { domainSums } = explore.modules["model.js"];
          return domainSums(explore.view.trace.runs[number], null, shape).blocks;
        }))""",
        [CHAINS[0], CHAINS[1], CHAINS[3]],
    )
    assert one[0] == two[0] and one[1:] != two[1:]


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
  const { speedup } = explore.modules["cost.js"];
  const run = explore.view.trace.runs[number];
  return domainsOf(run).map((domain) => shapes.map((shape) =>
    speedup(domainSums(run, domain, shape), treeOf(shape), machine)));
}"""
SIZES = (1, 2, 5, 9, 17, 40, 64)
MEASURED = {
    "draft": (0.07, 0.08, 0.1, 0.12, 0.15, 0.3, 0.36),
    "verify": (1.0, 1.03, 1.05, 1.4, 1.8, 3.9, 5.4),
}
ASSUMED = {"batch": 1, "draft": None, "verify": None, "treeLoop": None}
MACHINES = [
    {**ASSUMED, "c": 0.1, "knee": 64, "o": 0.05},
    {**ASSUMED, "c": 0.37, "knee": 3, "o": 0.2},
    {
        **{name: {"sizes": SIZES, "ratios": ratios} for name, ratios in MEASURED.items()},
        "c": 0.07, "knee": 3, "o": 0.18, "treeLoop": 0.25, "batch": 1,
    },
]  # fmt: skip


def costs_of(machine):
    knee = machine["knee"]
    if machine["verify"] is None:
        sizes = (1, knee, 32 * knee)
        return Costs(1.0, sizes, (machine["c"],) * 3, (1.0, 1.0, 32.0), machine["o"])
    return Costs(1.0, SIZES, *MEASURED.values(), machine["o"], machine["treeLoop"])


@pytest.mark.parametrize("machine", MACHINES, ids=("accelerator", "processor", "measured"))
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
        assert_allclose(found[:, place], sums["emitted"] / sums["cost"], rtol=1e-12)


LOOKUPS = """([shapes, machine]) => {
  const { hasCopies, textSums, treeOf } = explore.modules["model.js"];
  const { blockPrices, costOf } = explore.modules["cost.js"];
  const [greedy, sampled] = explore.view.trace.runs;
  if (hasCopies(sampled)) throw new Error("copies are replayed at T = 0");
  return shapes.map((shape) => greedy.length.map((_, text) => {
    const sums = textSums(greedy, text, shape);
    return [sums.emitted, costOf(sums, blockPrices(treeOf(shape), machine)), sums.blocks];
  }));
}"""


@pytest.mark.parametrize("pair", PAIRS)
def test_lookups_are_the_kits(pages, recorded, pair):
    """Tokens, cost and target passes of every text, with and without a draft beside the copies."""
    greedy = recorded[pair][0]
    encoded = runs.encoded_again(greedy, page.recorded_prompts(greedy))
    texts = runs.texts_of(greedy)
    tokens = {name: (ids, texts[name]) for name, ids in encoded.items()}
    starts = combined.starts_of_trace(greedy.trace, "draft")
    both = combined.add_copies(starts, tokens)
    for gamma in (0, 4):
        leasts = [1, 3, 8]
        shapes = [{"kind": "lookup", "least": least, "gamma": gamma} for least in leasts]
        machine = MACHINES[2]
        found = pages[pair].evaluate(LOOKUPS, [shapes, machine])
        costs = combined.settings_cost(both, gamma, costs_of(machine)).table
        for least, sums in zip(leasts, found, strict=True):
            of_setting = costs.loc[combined.setting(gamma, least)].reset_index()
            rows = of_setting.set_index("prompt_id").loc[list(encoded)]
            assert_allclose(sums, rows[["emitted", "cost", "target_passes"]], rtol=1e-12)


@pytest.mark.parametrize("batch", [2, 4])
@pytest.mark.parametrize("machine", MACHINES, ids=("accelerator", "processor", "measured"))
def test_a_batch_is_priced_as_in_notebook_10(pages, machine, batch):
    """Each pass carries the tokens of all requests, and its time is divided by a plain pass's."""
    shapes = [CHAINS[7], SHAPES[22]]
    found = pages["tiny"].evaluate(
        """([shapes, machine]) => shapes.map((shape) => {
          const { blockPrices } = explore.modules["cost.js"];
          return blockPrices(explore.modules["model.js"].treeOf(shape), machine);
        })""",
        [shapes, {**machine, "batch": batch}],
    )
    wide, sizes = costs_of(machine), np.arange(1, 10)
    one = wide.v(batch)
    ratios = ([*ratio(sizes * batch) / one] for ratio in (wide.c, wide.v))
    costs = Costs(one, (*sizes,), *ratios, wide.loop(True) / one, wide.loop(False) / one)
    for prices, shape in zip(found, shapes, strict=True):
        assert_allclose(prices, choose.costs_by_levels(tree_of(shape), costs), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_intervals_are_the_kits(pages, recorded, kind):
    """Both resample prompts within their domain, 1,000 and 2,000 times: equal but for chance."""
    number = KINDS.index(kind)
    trace = recorded["smollm"][number].trace
    found = pages["smollm"].evaluate(
        """(number) => {
          const { domainInterval, domainsOf } = explore.modules["model.js"];
          const run = explore.view.trace.runs[number];
          const shape = { kind: "chain", gamma: 4 };
          return domainsOf(run).map((domain) => domainInterval(run, domain, shape));
        }""",
        number,
    )
    made = replay.replay_sampled if kind == "sampled" else replay.replay
    sums = replay.prompt_sums(made(trace, 4)).reset_index()
    table = stats.by_domain(sums, score.ratio_of("emitted", "blocks")).frame.set_index("domain")
    expected = table.loc[list(trace["domain"].unique()), ["low", "high"]]
    assert_allclose(found, expected, atol=0.03)


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


@pytest.mark.parametrize("is_lossless", [True, False])
def test_drawn_words_tend_to_the_exact_limit(pages, is_lossless):
    """The limit is p. If q's best word is checked as if it were drawn, it is another. The shares
    of 20,000 words lie near it.
    """
    p, q = np.array([0, 0.5, 0.35, 0.05, 0.1]), np.array([0.05, 0.3, 0.55, 0.05, 0.05])
    limit, shares, repeated = pages["tiny"].evaluate(
        """([p, q, isLossless]) => {
          const { drawnWord, limitOf, split } = explore.modules["rule.js"];
          const { random } = explore.modules["chance.js"];
          const source = { p, q, kept: split(p, q).kept, best: 2 };
          const drawn = (seed) => {
            const next = random(seed);
            const counts = p.map(() => 0);
            for (let i = 0; i < 20000; i++) counts[drawnWord(source, isLossless, next)] += 1;
            return counts.map((count) => count / 20000);
          };
          return [limitOf(source, isLossless), drawn(3), String(drawn(3)) === String(drawn(3))];
        }""",
        [p.tolist(), q.tolist(), is_lossless],
    )
    kept, otherwise = rejection_rule.chance(p, q), rejection_rule.residual(p, q)
    flawed = rejection_rule.emitted(np.eye(5)[q.argmax()], kept, otherwise)
    assert_allclose(limit, p if is_lossless else flawed, atol=1e-12)
    assert_allclose(shares, limit, atol=0.015)
    assert repeated, "the same seed draws the same words"


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


# ---- what is shown of a token --------------------------------------------------------------------


TOPS = ("top_draft_ids", "top_draft_q", "top_draft_p")


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
    for prompt, position, token, rank, p, q, *shown, top, best in found:
        row = by_place.loc[(prompt, position)]
        expected = row[["token", "draft_rank", "p_token", "q_token", "target_top"]]
        assert [token, rank, p, q, top] == expected.tolist()
        names = ["overlap", "target_entropy", "draft_entropy"]
        assert_allclose(shown, row[names].astype(float), atol=6e-4)
        for column, values in zip(TOPS, zip(*best, strict=True), strict=True):
            assert_allclose(values, row[column][:5], atol=1e-5)


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
