"""The recorder against the literal procedure, on a toy, a random Llama pair and the tiny pair;
sanity and bad input.
"""

import dataclasses

import literal
import numpy as np
import pandas as pd
import pytest
import torch
from toy import let_nodes_see_their_cousins, record_block, toy_pair

from speclab.models.packing import packed_tokens_for
from speclab.prompts import EncodedPrompt, encode_prompts, load_prompts
from speclab.record import NonFiniteProbability, generate, record_prompt
from speclab.sampling import Sampling
from speclab.tree import chain, static_tree

GREEDY = Sampling()


def prompts_of(*ids):
    return [EncodedPrompt(f"p{i}", "code", tuple(x), 0) for i, x in enumerate(ids)]


def assert_equal_records(
    pair, prompt, recorded, max_new_tokens, tree=(3, 2, 8), tolerance=1e-4
):
    records, text = literal.measure(
        pair.target, pair.draft, prompt.ids, max_new_tokens, pair.stop_ids, *tree
    )
    assert tuple(text) == recorded.continuation
    reference = pd.DataFrame(records)
    ours = pd.DataFrame(recorded.nodes)
    assert len(ours) == len(reference)
    for column in (
        "position",
        "node",
        "parent",
        "depth",
        "rank",
        "token",
        "best_path",
        "target_rank",
    ):
        assert (ours[column].to_numpy() == reference[column].to_numpy()).all(), column
    for column in ("draft_prob", "target_prob", "target_entropy", "draft_entropy"):
        np.testing.assert_allclose(
            ours[column], reference[column], atol=tolerance, err_msg=column
        )


@pytest.mark.parametrize("tree", [(3, 2, 8), (1, 1, 1), (4, 3, 20), (2, 5, 30)])
@pytest.mark.parametrize("packed", [1, 9, 4096])
def test_equals_the_literal_procedure_on_the_toy_whatever_the_packing(tree, packed):
    pair, prompts = toy_pair(), prompts_of([1, 2, 3, 4], [5])
    for prompt, recorded in zip(
        prompts,
        record_block(pair, prompts, static_tree(*tree), GREEDY, 9, 0, packed),
        strict=True,
    ):
        assert_equal_records(pair, prompt, recorded, 9, tree)


@pytest.mark.parametrize("packed", [3, 4096])
def test_equals_the_literal_procedure_on_a_random_llama_pair_past_64_cached_positions(
    random_pair, packed
):
    rng = np.random.default_rng(0)
    prompts = prompts_of(rng.integers(2, 40, 90), rng.integers(2, 40, 3))
    recorded = record_block(
        random_pair, prompts, static_tree(3, 2, 8), GREEDY, 12, 0, packed
    )
    for prompt, found in zip(prompts, recorded, strict=True):
        assert_equal_records(random_pair, prompt, found, 12)


def test_a_wrong_mask_is_seen(random_pair, monkeypatch):
    """Negative control: were nodes to see their siblings and cousins, the comparison above would
    fail.
    """
    let_nodes_see_their_cousins(monkeypatch)
    (prompt,) = prompts_of(range(2, 30))
    (recorded,) = record_block(
        random_pair, [prompt], static_tree(3, 2, 8), GREEDY, 6, 0, 4096
    )
    with pytest.raises(AssertionError):
        assert_equal_records(random_pair, prompt, recorded, 6)


@pytest.mark.parametrize("new", [4, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("domain", ["code", "math", "reasoning", "chat"])
def test_equals_the_literal_procedure_on_the_tiny_pair(tiny_pair, domain, new):
    prompts = encode_prompts(
        tiny_pair.tokenizer, load_prompts("project", 2, (domain,)), 512, "none"
    )
    tree = static_tree(3, 2, 8)
    recorded = record_block(tiny_pair, prompts, tree, GREEDY, new, 0, 64)
    assert_equal_records(tiny_pair, prompts[1], recorded[1], new)


def test_trace_columns_are_what_their_definitions_say(random_pair):
    prompt = prompts_of(range(2, 20))[0]
    (found,) = record_block(
        random_pair, [prompt], static_tree(2, 3), GREEDY, 10, 0, 4096
    )
    trace, nodes = found.trace, pd.DataFrame(found.nodes)
    context = list(prompt.ids)
    for t, token in enumerate(found.continuation):
        p, q = (
            literal.full_logits(m, [context])[0, -1].double().softmax(-1).numpy()
            for m in (random_pair.target, random_pair.draft)
        )
        assert trace["token"][t] == token == p.argmax() == trace["target_top"][t]
        order = np.argsort(-q)
        assert (
            trace["draft_rank"][t] == list(order).index(token)
            and trace["top_draft_ids"][t].tolist() == order[:8].tolist()
        )
        np.testing.assert_allclose(trace["top_draft_q"][t], q[order[:8]], atol=1e-5)
        np.testing.assert_allclose(trace["top_draft_p"][t], p[order[:8]], atol=1e-5)
        expected = {
            "p_token": p[token],
            "q_token": q[token],
            "overlap": np.minimum(p, q).sum(),
            "kl": (p * np.log(p / q)).sum(),
            "target_entropy": -(p * np.log(p)).sum(),
            "draft_entropy": -(q * np.log(q)).sum(),
            "target_margin": np.sort(p)[-1] - np.sort(p)[-2],
        }
        for name, value in expected.items():
            assert trace[name][t] == pytest.approx(value, abs=2e-4), name
        first = nodes[(nodes.position == t) & (nodes.depth == 1)]
        np.testing.assert_allclose(
            first.target_prob, trace["top_draft_p"][t][:3], atol=1e-5
        )
        context.append(token)


def test_sampled_text_does_not_depend_on_the_batch_and_its_probabilities_are_processed(
    random_pair,
):
    prompts, sampling = (
        prompts_of(range(2, 20), [7], range(3, 9)),
        Sampling(0.8, top_k=5, top_p=0.9),
    )
    together = generate(random_pair.target, prompts, 12, frozenset({1}), sampling, 3)
    assert together == [
        generate(random_pair.target, [p], 12, frozenset({1}), sampling, 3)[0]
        for p in prompts
    ]
    assert together != generate(
        random_pair.target, prompts, 12, frozenset({1}), sampling, 4
    )
    found = record_prompt(random_pair, prompts[0], together[0], chain(2), sampling)
    assert (found.trace["p_token"] > 0).all() and (
        found.trace["q_token"] == 0
    ).any()  # some tokens fall outside the draft's top-k
    assert found.trace["top_draft_q"][:, 5:].max() == 0


def test_the_stop_token_ends_a_text_and_is_recorded(random_pair):
    prompt = prompts_of(range(2, 20))[0]
    (free,) = generate(random_pair.target, [prompt], 12, frozenset(), GREEDY, 0)
    stop = free[4]
    (text,) = generate(random_pair.target, [prompt], 12, frozenset({stop}), GREEDY, 0)
    assert text == free[: free.index(stop) + 1]
    found = record_prompt(random_pair, prompt, text, static_tree(3, 2, 8), GREEDY)
    assert (
        len(found.trace["token"]) == len(text)
        and found.nodes["position"].max() == len(text) - 1
    )


def test_a_probability_that_is_not_finite_names_prompt_and_position(
    random_pair, monkeypatch
):
    prompt = EncodedPrompt("math-07", "math", tuple(range(2, 30)), 0)
    (text,) = generate(random_pair.target, [prompt], 10, frozenset(), GREEDY, 0)
    honest = random_pair.draft.head

    class Broken(torch.nn.Module):
        def forward(self, hidden):
            logits = honest(hidden).clone()
            if logits.shape[0] == 10:
                logits[6] = torch.nan
            return logits

    monkeypatch.setattr(random_pair.draft, "head", Broken())
    with pytest.raises(
        NonFiniteProbability, match="the draft gave .* prompt math-07, position 6"
    ):
        record_prompt(random_pair, prompt, text, static_tree(1, 1), GREEDY)


def test_a_node_with_more_children_than_tokens_is_refused():
    pair, (prompt,) = toy_pair(), prompts_of([1, 2])
    with pytest.raises(ValueError, match="branches=11: the draft can say 10 tokens"):
        record_prompt(pair, prompt, (3, 4), static_tree(1, 11), GREEDY)


def test_a_loaded_pair_gets_the_profiles_packing_where_memory_is_ample(
    random_pair, random_profile, monkeypatch
):
    import psutil

    assert packed_tokens_for(random_pair, random_profile) == 2048
    assert packed_tokens_for(toy_pair(), random_profile) == 2048, (
        "an architecture that the plan does not know"
    )
    monkeypatch.setattr(
        psutil,
        "virtual_memory",
        lambda: dataclasses.make_dataclass("M", ["available"])(30_000_000),
    )
    wide = random_profile.replace(max_new_tokens=300)
    assert packed_tokens_for(random_pair, wide) == 512, (
        "0.051 GB for all 300 positions at once, 0.022 GB for a third"
    )
    monkeypatch.setattr(
        psutil,
        "virtual_memory",
        lambda: dataclasses.make_dataclass("M", ["available"])(10_000),
    )
    with pytest.raises(
        ValueError, match=r"cpu: recording needs 0\.\d+ GB beside the weights .* free"
    ):
        packed_tokens_for(random_pair, wide)
