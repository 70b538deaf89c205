"""The decoder equals plain greedy text and the replay, makes one target pass per step, handles
every end of a text, and rolls its state back.
"""

import dataclasses
import json

import numpy as np
import pytest
import rejection_rule
import torch
from enumerate_rules import prefix_of
from pandas.testing import assert_frame_equal
from scipy.stats import chi2, chisquare, ncx2
from test_decode_file import write_texts
from toy import plain, recorded_tables, toy_pair

from speclab.__main__ import main
from speclab.cli.decode_file import plain_difference
from speclab.decode import LOSSLESS, decode, decode_prompt, prefill
from speclab.draft import propose
from speclab.lab import combined
from speclab.lab.combined import starts_of_trace
from speclab.lab.starts import replay_starts
from speclab.plain import EncodedPrompt
from speclab.record import generate
from speclab.replay import replay
from speclab.sampling import NonFiniteProbability, Sampling
from speclab.shapes import NO_DRAFT, Shape, parse_shape
from speclab.study.pairs import load_pair
from speclab.study.profiles import load_profile
from speclab.study.prompts import encode_prompts, load_prompts
from speclab.tree import Tree, chain, static_tree

GREEDY, WARM = Sampling(), Sampling(1.0)
SHAPES = [
    "plain",
    "chain:1",
    "chain:3",
    "chain:16",
    "tree:3,2,8",
    "tree:2,4",
    "tree:5,2,12",
    "dynamic:4,3,7",
    "dynamic:1,1,1",
    "chain:3+lookup:1",
    "chain:5+lookup:3",
    "lookup:2",
]
KEPT = (1, 2, 3, 5, 8)
GAPS = Tree.of_paths([[1], [3], [1, 0], [3, 2], [3, 2, 0]])
SAMPLED = [
    ("rejection", "chain:3", None),
    ("point-mass", "tree:3,2,8", None),
    ("point-mass", "dynamic:3,3,6", None),
    ("without-replacement", "tree:2,3", None),
    ("without-replacement", "tree:2,2", KEPT),
    ("rejection", "chain:2+lookup:2", None),
    ("point-mass", "chain:2+lookup:2", None),
    ("rejection", "lookup:1", None),
    ("block", "chain:3", None),
    ("block", "chain:3", KEPT),
    ("block", "chain:2+lookup:2", None),
    ("exact-match", "chain:3", None),
    ("exact-match", "tree:2,2", None),
    *((rule, "plain", None) for rule in LOSSLESS[1:]),
]
DRAWS = [500, pytest.param(4000, marks=pytest.mark.slow)]
TREES = [(3, 2, 8), (2, 4), (4, 2), (5, 2, 16)]


def prompt_of(ids, name="p"):
    return EncodedPrompt(name, "code", tuple(ids), 0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("new", [1, 2, 5, 30])
def test_greedy_text_is_the_plain_text_on_the_toy_with_every_end(shape, new):
    for ids in ((1, 2, 3, 4), (5,), (3, 3, 7), (8, 0)):
        assert_plain(toy_pair(), prompt_of(ids), parse_shape(shape), new)


def assert_plain(pair, prompt, shape, new):
    made = decode_prompt(pair, prompt, "greedy", shape, GREEDY, new)
    assert made.token_ids == plain(pair, prompt, new)
    return made


@pytest.mark.numeric
@pytest.mark.parametrize("shape", [*SHAPES, "stop"])
def test_greedy_text_is_the_plain_text_on_a_random_llama(random_pair, shape):
    stop = Shape(chain(6), 0.05)
    shape = stop if shape == "stop" else parse_shape(shape)
    rng = np.random.default_rng(1)
    for length in (1, 2, 80):
        assert_plain(random_pair, prompt_of(rng.integers(2, 40, length)), shape, 40)


def tiny_prompts(pair, count):
    return encode_prompts(pair.tokenizer, load_prompts("project", count), 512, "none")


def assert_equal_to_plain_and_replay(pair, prompt, gammas, trees, new=48):
    text = plain(pair, prompt, new)
    trace = recorded_tables(pair, prompt, text)["trace"]
    for tree in [*(chain(g) for g in gammas), *(static_tree(*t) for t in trees)]:
        found, blocks = (assert_plain(pair, prompt, Shape(tree), new), replay(trace, tree))
        assert [s.accepted for s in found.steps] == blocks.accepted.tolist()
        assert [len(s.tokens) for s in found.steps] == blocks.emitted.tolist()
        if tree.is_chain:
            starts = starts_of_trace(trace, "draft")
            assert_frame_equal(replay_starts(starts, tree.max_depth), blocks)
            both = combined.add_copies(starts, {prompt.prompt_id: (prompt.ids, text)})
            assert_copies_are_replayed(pair, prompt, both, tree.max_depth, new)


def assert_copies_are_replayed(pair, prompt, both, gamma, new):
    """Copies and a chain together, and copies alone."""
    for drafted, least in ((gamma, 1 + gamma % 3), (0, 1)):
        shape = parse_shape(combined.setting(drafted, least))
        steps = assert_plain(pair, prompt, shape, new).steps
        planned = combined.planned(both, drafted, least)
        blocks = replay_starts(planned, planned["drafted"].to_numpy())
        found = [(s.copied, s.drafted, s.accepted, len(s.tokens)) for s in steps]
        replayed = blocks[["is_copied", "drafted", "accepted", "emitted"]]
        wanted = list(replayed.itertuples(index=False, name=None))
        is_whole = blocks["emitted"].sum() == new  # else more is drafted, past a stop token
        assert found == wanted if is_whole else counts(found) == counts(wanted)
        assert {*blocks["is_copied"]} == {False, True}, "or nothing is shown"


def counts(blocks):
    """(copied, accepted, emitted) of blocks, without drafted."""
    return [(copied, accepted, emitted) for copied, _, accepted, emitted in blocks]


REPEATING = prompt_of((1, 2, 3, 4, 1, 2, 3)), (1, 3, 5), [], 40


@pytest.mark.parametrize("stop", [-1, 9])
def test_on_the_toy_copies_are_replayed(stop):
    assert_equal_to_plain_and_replay(toy_pair(stop=stop), *REPEATING)


def test_a_draft_that_never_reads_copies_is_noticed(monkeypatch):
    def forgetful(*given):
        made = propose(*given)
        return dataclasses.replace(made, run=made.run or [0])

    monkeypatch.setattr("speclab.decode.propose", forgetful)
    with pytest.raises(AssertionError):
        assert_equal_to_plain_and_replay(toy_pair(stop=-1), *REPEATING)


@pytest.mark.numeric
def test_on_the_tiny_pair_text_and_counts_equal_plain_text_and_replay(tiny_pair):
    """Two of the kit's prompts per domain, with one gamma of 1 to 15 each and one tree per domain.
    The slow test below has all prompts in all combinations.
    """
    prompts = tiny_prompts(tiny_pair, 2)
    assert len(prompts) == 8 and len({p.domain for p in prompts}) == 4
    for i, prompt in enumerate(prompts):
        trees = [] if i % 2 else [TREES[i // 2]]
        assert_equal_to_plain_and_replay(tiny_pair, prompt, [1 + 2 * i], trees, 20)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_on_the_tiny_pair_every_prompt_with_every_gamma_and_several_trees(tiny_pair):
    for prompt in tiny_prompts(tiny_pair, 50):
        assert_equal_to_plain_and_replay(tiny_pair, prompt, range(1, 17), TREES)


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize(("rule", "shape", "kept"), SAMPLED)
def test_sampled_first_tokens_have_the_targets_distribution(rule, shape, kept, draws):
    """End to end through drafting, packing and caches: a chi-square test of the first two tokens
    against exact enumeration, also for a draft with a smaller vocabulary.
    """
    ids = (1, 2, 3, 1, 2) if "lookup" in shape else (1, 2, 3)
    assert_samples_the_target(toy_pair(noise=3.0, stop=-1, kept=kept), ids, rule, shape, draws)


def assert_samples_the_target(pair, ids, rule, shape, draws):
    """The first two tokens of so many texts, each of a seed of its own, have the target's
    distribution.
    """
    prompt, shape, counts = prompt_of(ids), parse_shape(shape), np.zeros((pair.vocab, pair.vocab))
    caches = prefill(pair, ids, 2 + shape.room)
    for seed in range(draws):
        made = decode_prompt(pair, prompt, rule, shape, WARM, 2, seed, caches=caches)
        counts[made.token_ids] += 1
    first = next_p(pair, ids)
    expected = draws * np.stack([p * next_p(pair, (*ids, a)) for a, p in enumerate(first)])
    big = expected > 5
    observed = [*counts[big], counts[~big].sum()]
    wanted = [*expected[big], expected[~big].sum()]
    assert chisquare(observed, wanted).pvalue > 1e-3


def test_so_many_draws_see_a_rule_that_forgets_the_residual():
    """The power of the test above: more than 99 of 100 studies detect tokens that are drawn from p
    after a rejection, even if all cells are counted and only the first token is wrong.
    """
    pair, ids = toy_pair(noise=3.0, stop=-1), (1, 2, 3)
    p, q = next_p(pair, ids), next_p(pair, ids, "draft")
    wrong = rejection_rule.emitted(q, rejection_rule.chance(p, q), p)
    cells, away = 30, DRAWS[0] * ((wrong - p) ** 2 / p).sum()
    assert ncx2.sf(chi2.isf(1e-3, cells), cells, away) > 0.99


def next_p(pair, ids, which="target"):
    model = getattr(pair, which)
    hidden = model.forward(torch.tensor([ids]), model.cache())
    return model.logits(hidden[0, -1]).double().softmax(-1).numpy()


def test_one_target_pass_a_step_and_one_draft_pass_a_level(random_pair):
    prompt, before = prompt_of(range(2, 30)), random_pair.target.passes
    shape = Shape(static_tree(3, 2, 8))
    found = decode_prompt(random_pair, prompt, "greedy", shape, GREEDY, 30)
    prefills = 1
    assert random_pair.target.passes - before == prefills + found.target_passes
    assert 2 * found.target_passes < found.draft_passes <= 3 * found.target_passes
    alone = decode_prompt(random_pair, prompt, "greedy", NO_DRAFT, GREEDY, 30)
    assert (alone.target_passes, alone.draft_passes) == (len(alone.token_ids), 0)


def test_a_dynamic_tree_holds_the_best_nodes_by_cumulated_probability():
    pair, ids, shape = toy_pair(), [1, 2, 3], parse_shape("dynamic:2,10,12")
    found = propose(pair.draft, pair.draft.cache(), ids, shape, 9, "greedy", GREEDY, None)
    first, scores = next_p(pair, ids, "draft"), {}
    for a in range(10):
        second = next_p(pair, [*ids, a], "draft")
        scores |= {(a,): first[a]} | {(a, b): first[a] * second[b] for b in range(10)}
    best = sorted(scores, key=scores.get)[-12:]
    assert {prefix_of(found.tree, found.tokens, node) for node in range(1, 13)} == {*best}


def test_a_difference_is_reported_with_position_and_margin(random_pair):
    prompt = prompt_of(range(2, 20))
    found = decode_prompt(random_pair, prompt, "greedy", Shape(chain(2)), GREEDY, 10)
    assert plain_difference(random_pair, prompt, found, 10) is None
    ids = found.token_ids
    for other in ((*ids[:6], ids[6] + 1, *ids[7:]), ids[:6]):
        made = dataclasses.replace(found, token_ids=other)
        said = plain_difference(random_pair, prompt, made, 10)
        assert said["position"] == 6 and 0 < said["target_margin"] < 1


@pytest.mark.parametrize(
    ("rule", "shape", "sampling", "words"),
    [
        ("block", "tree:3,2,8", WARM, "rejection and block need a chain"),
        ("without-replacement", "dynamic:3,2,8", WARM, "and exact-match a static tree"),
        ("rejection", "chain:3", GREEDY, "temperature 0.0: greedy needs"),
        ("exact-match", "chain:3", GREEDY, "temperature 0.0: greedy needs"),
        ("typical", "chain:3", WARM, "lossless rules are greedy, rejection"),
        ("ratio", "chain:3", WARM, "--allow-lossy .* allows all of greedy"),
        ("greedy", "dynamic:3,2", GREEDY, "dynamic:DEPTH,BRANCHES,BUDGET"),
        ("without-replacement", Shape(GAPS), WARM, "leaves out a rank; add the missing path"),
    ],
)
def test_what_does_not_go_together_is_named(rule, shape, sampling, words):
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=words):
        drafted = parse_shape(shape) if isinstance(shape, str) else shape
        next(decode(toy_pair(), (1, 2), rule, drafted, sampling, 4, rng))


@pytest.mark.numeric
@pytest.mark.parametrize("new", [12, pytest.param(40, marks=pytest.mark.slow)])
def test_in_half_precision_a_difference_is_reported_and_never_hidden(tmp_path, capsys, new):
    given, out = tmp_path / "prompts.jsonl", tmp_path / "out.jsonl"
    write_texts(given, {p.prompt_id: p.text for p in load_prompts("project", 1)})
    changes = f"--set max_new_tokens={new} --set dtype=bfloat16 --set device=cpu"
    places = f"--profile tiny --prompts {given} --out {out}"
    assert main(f"decode {places} --shape tree:3,2,8 {changes}".split()) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    pair, equal = load_pair(load_profile("tiny", {"dtype": "bfloat16", "device": "cpu"})), 0
    for row, prompt in zip(rows, tiny_prompts(pair, 1), strict=True):
        own = plain(pair, prompt, new)
        said, text = row["plain_difference"], tuple(row["token_ids"])
        if text == own:
            assert said is None
            equal += 1
        else:
            at = said["position"]
            assert text[:at] == own[:at] and text[at] != own[at]
            assert 0 <= said["target_margin"] < 0.1
    assert f"{equal} of 4 texts equal plain greedy decoding in bfloat16" in capsys.readouterr().err


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("which", ["target", "draft"])
def test_logits_that_are_not_finite_are_one_error_greedy_and_sampled(which, bad):
    """The argmax of NaN is token 0, and so equals the plain text's token 0."""
    pair, prompt, shape = toy_pair(), prompt_of((1, 2)), parse_shape("tree:2,2")
    broken, place = getattr(pair, which), torch.tensor([4])
    honest = broken.head
    broken.head = lambda hidden: honest(hidden).index_fill(-1, place, bad)
    for rule, sampling in (("greedy", GREEDY), ("point-mass", WARM)):
        with pytest.raises(NonFiniteProbability, match=f"the {which} gave a non-finite"):
            decode_prompt(pair, prompt, rule, shape, sampling, 4)
        if which == "target":
            with pytest.raises(NonFiniteProbability, match="the target gave"):
                generate(pair.target, [prompt], 4, {9}, sampling, 0)
