"""The decoder: equal to plain greedy text and to the replay, one target pass a step, every end of a
text, state that rolls back.
"""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from toy import toy_pair

from speclab.__main__ import main
from speclab.analysis import by_hand
from speclab.decode import Decoded, decode, decode_prompt
from speclab.draft import Shape, StopRule, parse_shape, propose
from speclab.ops.decode_file import margin_at_difference, plain_difference
from speclab.prompts import EncodedPrompt, encode_prompts, load_prompts
from speclab.record import generate, record_prompt
from speclab.replay import prompt_sums, replay
from speclab.sampling import NonFiniteProbability, Sampling
from speclab.tree import Tree, chain, static_tree

GREEDY, WARM = Sampling(), Sampling(1.0)
SHAPES = [
    "chain:1",
    "chain:3",
    "chain:16",
    "tree:3,2,8",
    "tree:2,4",
    "tree:5,2,12",
    "dynamic:4,3,7",
    "dynamic:1,1,1",
]
SAMPLED = [
    ("rejection", "chain:3"),
    ("point-mass", "tree:3,2,8"),
    ("point-mass", "dynamic:3,3,6"),
    ("without-replacement", "tree:2,3"),
]
DRAWS = [1000, pytest.param(4000, marks=pytest.mark.slow)]


def prompt_of(ids, name="p"):
    return EncodedPrompt(name, "code", tuple(ids), 0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("new", [1, 2, 5, 30])
def test_greedy_text_is_the_plain_text_on_the_toy_with_every_end(shape, new):
    pair = toy_pair()
    for ids in ((1, 2, 3, 4), (5,), (3, 3, 7), (8, 0)):
        (plain,) = generate(
            pair.target, [prompt_of(ids)], new, pair.stop_ids, GREEDY, 0
        )
        assert (
            decode_prompt(
                pair, prompt_of(ids), "greedy", parse_shape(shape), GREEDY, new
            ).token_ids
            == plain
        )


@pytest.mark.parametrize("shape", [*SHAPES, "stop"])
def test_greedy_text_is_the_plain_text_on_a_random_llama(random_pair, shape):
    shape = (
        Shape(chain(6), StopRule("entropy", 2.5))
        if shape == "stop"
        else parse_shape(shape)
    )
    rng = np.random.default_rng(1)
    for length in (1, 2, 80):
        prompt = prompt_of(rng.integers(2, 40, length))
        (plain,) = generate(
            random_pair.target, [prompt], 40, random_pair.stop_ids, GREEDY, 0
        )
        assert (
            decode_prompt(random_pair, prompt, "greedy", shape, GREEDY, 40).token_ids
            == plain
        )


def tiny_prompts(pair, count):
    return encode_prompts(pair.tokenizer, load_prompts("project", count), 512, "none")


def assert_equal_to_plain_and_replay(pair, prompt, gammas, trees, new=48):
    (plain,) = generate(pair.target, [prompt], new, pair.stop_ids, GREEDY, 0)
    trace = pd.DataFrame(
        {
            k: list(v)
            for k, v in record_prompt(
                pair, prompt, plain, chain(1), GREEDY
            ).trace.items()
        }
    ).assign(prompt_id=prompt.prompt_id, domain=prompt.domain)
    for tree in [*(chain(g) for g in gammas), *(static_tree(*t) for t in trees)]:
        found = decode_prompt(pair, prompt, "greedy", Shape(tree), GREEDY, new)
        assert found.token_ids == plain, (
            prompt.prompt_id,
            margin_at_difference(pair, prompt, found.token_ids, plain),
        )
        blocks = replay(trace, tree)
        assert [s.accepted for s in found.steps] == blocks.accepted.tolist() and [
            len(s.tokens) for s in found.steps
        ] == blocks.emitted.tolist()
        assert found.block_efficiency == pytest.approx(
            prompt_sums(blocks).emitted.sum() / prompt_sums(blocks).blocks.sum()
        )


def test_on_the_tiny_pair_text_and_counts_equal_plain_text_and_replay(tiny_pair):
    """Four project prompts a domain, each with one gamma of 1-16, one a domain with a tree as well;
    all prompts in all combinations in the slow test below.
    """
    trees = {0: [(3, 2, 8)], 4: [(2, 4)], 8: [(4, 2)], 12: [(5, 2, 16)]}
    prompts = tiny_prompts(tiny_pair, 4)
    assert len(prompts) == 16 and len({p.domain for p in prompts}) == 4
    for i, prompt in enumerate(prompts):
        assert_equal_to_plain_and_replay(
            tiny_pair, prompt, [1 + i], trees.get(i, []), new=32
        )


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_on_the_tiny_pair_every_prompt_with_every_gamma_and_several_trees(tiny_pair):
    for prompt in tiny_prompts(tiny_pair, 50):
        assert_equal_to_plain_and_replay(
            tiny_pair, prompt, range(1, 17), [(3, 2, 8), (2, 4), (4, 2), (5, 2, 16)]
        )


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize(("rule", "shape"), SAMPLED)
def test_sampled_first_tokens_have_the_targets_distribution(rule, shape, draws):
    """End to end through drafting, packing and caches: a chi-square of the first two tokens against
    exact enumeration.
    """
    from scipy.stats import chisquare

    pair, ids = toy_pair(noise=1.5, stop=-1), (1, 2, 3)
    counts = np.zeros((10, 10))
    rng = np.random.default_rng(5)
    for _ in range(draws):
        tokens = [
            t
            for s in decode(pair, ids, rule, parse_shape(shape), WARM, 2, rng)
            for t in s.tokens
        ]
        counts[tuple(tokens)] += 1
    first = _next(pair, ids)
    expected = draws * np.stack([first[a] * _next(pair, (*ids, a)) for a in range(10)])
    big = expected > 5
    observed, wanted = (
        [*counts[big], counts[~big].sum()],
        [*expected[big], expected[~big].sum()],
    )
    assert chisquare(observed, wanted).pvalue > 1e-3


def test_so_many_draws_see_a_rule_that_forgets_the_residual():
    """The power of the test above: tokens drawn from p after a rejection are seen in more than 99
    of 100 studies, also when all its cells are counted and only the first token is wrong.
    """
    from scipy.stats import chi2, ncx2

    pair, ids = toy_pair(noise=1.5, stop=-1), (1, 2, 3)
    p = _next(pair, ids)
    draft = pair.draft.forward(torch.tensor([ids]), pair.draft.cache())
    q = pair.draft.logits(draft[0, -1]).double().softmax(-1).numpy()
    wrong = by_hand.emitted(q, by_hand.chance(p, q), p)
    cells, away = 30, DRAWS[0] * ((wrong - p) ** 2 / p).sum()
    assert ncx2.sf(chi2.isf(1e-3, cells), cells, away) > 0.99


def _next(pair, ids):
    hidden = pair.target.forward(torch.tensor([ids]), pair.target.cache())
    return pair.target.logits(hidden[0, -1]).double().softmax(-1).numpy()


def test_one_target_pass_a_step_and_one_draft_pass_a_level(random_pair):
    prompt = prompt_of(range(2, 30))
    before = random_pair.target.passes
    found = decode_prompt(
        random_pair, prompt, "greedy", Shape(static_tree(3, 2, 8)), GREEDY, 30
    )
    assert (
        random_pair.target.passes - before == 1 + found.target_passes
    )  # the prefill and one a step
    assert 2 * found.target_passes < found.draft_passes <= 3 * found.target_passes


def test_drafts_that_all_fail_and_drafts_that_all_succeed():
    pair = toy_pair(noise=0.0, stop=-1)
    same = decode_prompt(pair, prompt_of((1, 2)), "greedy", Shape(chain(4)), GREEDY, 20)
    assert [s.accepted for s in same.steps] == [4, 4, 4, 4] and {
        s.kind for s in same.steps
    } == {"bonus"}
    honest = pair.draft.head
    pair.draft.head = lambda hidden: (
        -honest(hidden)
    )  # the target's worst token comes first
    worst = decode_prompt(
        pair, prompt_of((1, 2)), "greedy", Shape(chain(4)), GREEDY, 20
    )
    assert (
        {s.accepted for s in worst.steps} == {0}
        and worst.target_passes == 20
        and worst.token_ids == same.token_ids
    )


def test_the_stop_token_inside_a_block_ends_the_text():
    pair = toy_pair(noise=0.0, stop=-1)
    (free,) = generate(pair.target, [prompt_of((1, 2))], 8, frozenset(), GREEDY, 0)
    stopped = Decoded("p", *_decoded(pair, free[2]), 0, 0.0, 0.0)
    assert (
        stopped.token_ids == free[: free.index(free[2]) + 1]
        and stopped.steps[-1].kind == "cut"
    )


def _decoded(pair, stop):
    import dataclasses

    steps = tuple(
        decode(
            dataclasses.replace(pair, stop_ids=frozenset({stop})),
            (1, 2),
            "greedy",
            Shape(chain(7)),
            GREEDY,
            8,
        )
    )
    return tuple(t for s in steps for t in s.tokens), steps


def test_prompts_one_after_another_leak_no_state(random_pair):
    rng = np.random.default_rng(2)
    prompts = [prompt_of(rng.integers(2, 40, n), f"p{n}") for n in (40, 3, 70)]

    def run(prompt):
        shape = parse_shape("tree:3,2,8")
        made = decode_prompt(
            random_pair, prompt, "without-replacement", shape, WARM, 20, seed=4
        )
        return made.token_ids

    assert [run(p) for p in prompts] == [run(p) for p in reversed(prompts)][::-1]


def test_steps_can_be_streamed(random_pair):
    steps = decode(random_pair, (2, 3, 4), "greedy", Shape(chain(2)), GREEDY, 30)
    first = next(steps)
    assert (
        1 <= len(first.tokens) <= 3 and first.drafted == 2 and next(steps) is not None
    )


def test_dynamic_gamma_drafts_less_and_never_changes_the_text(random_pair):
    prompt = prompt_of(range(2, 20))
    full, timid, never = (
        decode_prompt(random_pair, prompt, "greedy", Shape(chain(5), stop), GREEDY, 30)
        for stop in (None, StopRule("confidence", 0.3), StopRule("confidence", 1.1))
    )
    assert full.token_ids == timid.token_ids == never.token_ids
    assert {s.drafted for s in never.steps} == {0} and sum(
        s.drafted for s in timid.steps
    ) < sum(s.drafted for s in full.steps)


def test_a_dynamic_tree_holds_the_best_nodes_by_cumulated_probability():
    from itertools import product

    pair = toy_pair()
    proposal = propose(
        pair.draft,
        pair.draft.cache(),
        [1, 2, 3],
        parse_shape("dynamic:2,10,12"),
        9,
        "greedy",
        GREEDY,
        None,
    )

    def q(ids):
        return pair.draft.logits(
            pair.draft.forward(torch.tensor([ids]), pair.draft.cache())[0, -1]
        ).softmax(-1)

    first = q([1, 2, 3])
    scores = {(a,): float(first[a]) for a in range(10)} | {
        (a, b): float(first[a] * q([1, 2, 3, a])[b])
        for a, b in product(range(10), range(10))
    }
    best = sorted(scores, key=lambda path: -scores[path])[:12]
    tree, paths = proposal.tree, [()]
    for node in range(1, tree.size + 1):
        paths.append((*paths[tree.parent[node]], int(proposal.tokens[node])))
    assert isinstance(tree, Tree) and set(paths[1:]) == set(best)


def test_a_difference_is_reported_with_position_and_margin(random_pair):
    prompt = prompt_of(range(2, 20))
    (plain,) = generate(random_pair.target, [prompt], 10, frozenset(), GREEDY, 0)
    assert margin_at_difference(random_pair, prompt, plain, plain) is None
    said = margin_at_difference(random_pair, prompt, (*plain[:4], plain[4] + 1), plain)
    assert said["position"] == 4 and 0 < said["target_margin"] < 1
    assert margin_at_difference(random_pair, prompt, plain[:4], plain)["position"] == 4


@pytest.mark.parametrize(
    ("rule", "shape", "sampling", "words"),
    [
        ("rejection", "tree:3,2,8", WARM, "takes a chain"),
        ("rejection", "dynamic:3,2,8", WARM, "takes a chain"),
        ("without-replacement", "dynamic:3,2,8", WARM, "takes a static tree"),
        (
            "rejection",
            "chain:3",
            GREEDY,
            "temperature 0.0: greedy goes with temperature 0",
        ),
        ("greedy", "chain:3", WARM, "temperature 1.0: greedy goes with"),
        ("typical", "chain:3", WARM, "lossless rules are greedy, rejection"),
        ("greedy", "chain:0", GREEDY, "gamma=0"),
        ("greedy", "chain:04", GREEDY, "chain:GAMMA"),
        ("greedy", "tree:3,2,0", GREEDY, "budget=0"),
        ("greedy", "dynamic:3,2", GREEDY, "dynamic:DEPTH,BRANCHES,BUDGET"),
        ("greedy", "dynamic:0,2,2", GREEDY, "depth=0"),
    ],
)
def test_what_does_not_go_together_is_named(rule, shape, sampling, words):
    with pytest.raises(ValueError, match=words):
        list(
            decode(
                toy_pair(),
                (1, 2),
                rule,
                parse_shape(shape),
                sampling,
                4,
                np.random.default_rng(0),
            )
        )


def test_empty_prompts_and_missing_randomness_are_named():
    with pytest.raises(ValueError, match="at least one prompt token"):
        next(decode(toy_pair(), (), "greedy", Shape(chain(1)), GREEDY, 4))
    with pytest.raises(ValueError, match="needs a numpy Generator"):
        next(decode(toy_pair(), (1,), "rejection", Shape(chain(1)), WARM, 4))


def test_the_command_line_writes_a_line_a_prompt(tmp_path, capsys):
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "out.jsonl"
    prompts.write_text(
        '{"prompt_id": "a", "prompt": "def add(a, b):\\n"}\n{"prompt_id": "b", "prompt": "Hello"}\n'
    )
    base = [
        "decode",
        "--profile",
        "tiny",
        "--prompts",
        str(prompts),
        "--out",
        str(out),
        "--set",
        "max_new_tokens=12",
        "dtype=float32",
        "device=cpu",
    ]
    assert main([*base, "--rule", "greedy", "--shape", "chain:4"]) == 0
    greedy = [json.loads(line) for line in out.read_text().splitlines()]
    assert [r["prompt_id"] for r in greedy] == ["a", "b"] and set(greedy[0]) == {
        "prompt_id",
        "text",
        "token_ids",
        "accepted_per_step",
        "target_passes",
        "draft_passes",
        "time_s",
        "prefill_time_s",
    }
    assert all(
        len(r["accepted_per_step"]) == r["target_passes"]
        and r["time_s"] > r["prefill_time_s"] > 0
        for r in greedy
    )
    assert (
        main(
            [
                *base,
                "--rule",
                "point-mass",
                "--shape",
                "tree:3,2,8",
                "--temperature",
                "0.7",
                "--seed",
                "1",
                "--force",
            ]
        )
        == 0
    )
    assert (
        main(
            [
                *base,
                "--rule",
                "rejection",
                "--shape",
                "tree:3,2,8",
                "--temperature",
                "0.7",
            ]
        )
        == 2
    )
    assert "takes a chain" in capsys.readouterr().err
    prompts.write_text('{"prompt_id": "a"}\n')
    assert main(base) == 2 and "line 1: missing field prompt" in capsys.readouterr().err


@pytest.mark.parametrize("new", [16, pytest.param(40, marks=pytest.mark.slow)])
def test_in_half_precision_a_difference_is_reported_and_never_hidden(
    tmp_path, capsys, new
):
    from speclab.models.pairs import load_pair
    from speclab.profiles import load_profile

    settings = {"max_new_tokens": new, "dtype": "bfloat16", "device": "cpu"}
    known, out = load_prompts("project", 3), tmp_path / "out.jsonl"
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(
        "".join(
            json.dumps({"prompt_id": p.prompt_id, "prompt": p.text}) + "\n"
            for p in known
        )
    )
    base = [
        "decode",
        "--shape",
        "tree:3,2,8",
        "--prompts",
        str(prompts),
        "--out",
        str(out),
    ]
    assert main([*base, "--set", *(f"{k}={v}" for k, v in settings.items())]) == 0
    rows, pair = (
        [json.loads(line) for line in out.read_text().splitlines()],
        load_pair(load_profile("tiny", settings)),
    )
    encoded = encode_prompts(pair.tokenizer, known, 512, "none")
    for row, prompt in zip(rows, encoded, strict=True):
        (plain,) = generate(pair.target, [prompt], new, pair.stop_ids, GREEDY, 0)
        said = row["plain_difference"]
        assert (said is None) == (tuple(row["token_ids"]) == plain)
        if said:
            at = said["position"]
            assert (
                tuple(row["token_ids"][:at]) == plain[:at]
                and row["token_ids"][at] != plain[at]
                and 0 <= said["target_margin"] < 0.1
            )
    differ = sum(r["plain_difference"] is not None for r in rows)
    assert (
        f"in bfloat16: {len(rows) - differ} of {len(rows)} equal"
        in capsys.readouterr().err
    )
    assert (
        main([*base, "--force", "--check", "--set", "max_new_tokens=8", "device=cpu"])
        == 0
    )  # float32: only when asked
    assert {
        json.loads(line)["plain_difference"] for line in out.read_text().splitlines()
    } == {None}


def test_a_difference_that_is_there_is_found(random_pair):
    found = decode_prompt(
        random_pair, prompt_of(range(2, 20)), "greedy", Shape(chain(2)), GREEDY, 10
    )
    assert plain_difference(random_pair, prompt_of(range(2, 20)), found, 10) is None
    other = Decoded(
        "p",
        (*found.token_ids[:6], found.token_ids[6] + 1, *found.token_ids[7:]),
        found.steps,
        0,
        0.0,
        0.0,
    )
    said = plain_difference(random_pair, prompt_of(range(2, 20)), other, 10)
    assert said["position"] == 6 and 0 < said["target_margin"] < 1


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("which", ["target", "draft"])
def test_logits_that_are_not_finite_are_one_error_greedy_and_sampled(which, bad):
    """An argmax of NaN is token 0, and equal to the plain text's token 0."""
    pair = toy_pair()
    broken = getattr(pair, which)
    honest = broken.head
    broken.head = lambda hidden: honest(hidden).index_fill(-1, torch.tensor([4]), bad)
    for rule, sampling in (("greedy", GREEDY), ("point-mass", WARM)):
        with pytest.raises(
            NonFiniteProbability, match=f"the {which} gave a non-finite"
        ):
            decode_prompt(
                pair, prompt_of((1, 2)), rule, parse_shape("tree:2,2"), sampling, 4
            )
        if which == "target":
            with pytest.raises(NonFiniteProbability, match="the target gave"):
                generate(pair.target, [prompt_of((1, 2))], 4, {9}, sampling, 0)
