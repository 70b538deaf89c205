"""The recorder against the literal procedure, on a toy, a random Llama pair and the tiny pair;
plausibility and bad input.
"""

import literal
import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal
from scipy.stats import entropy
from toy import let_nodes_see_their_cousins, record_block, record_prompt, table_of, toy_pair

from speclab.plain import EncodedPrompt
from speclab.record import generate, record_prompts
from speclab.sampling import NonFiniteProbability, Sampling
from speclab.tree import PLAIN, chain, static_tree

pytestmark = pytest.mark.numeric

GREEDY = Sampling()


def prompts_of(*ids):
    return [EncodedPrompt(f"p{i}", "code", tuple(x), 0) for i, x in enumerate(ids)]


EXACT = ["position", "node", "parent", "depth", "rank", "token", "best_path"]
EXACT += ["target_rank"]
ROUNDED = ["draft_prob", "target_prob", "target_entropy", "draft_entropy"]


def assert_equal_records(pair, prompt, recorded, max_new_tokens, tree=(3, 2, 8)):
    records, text = literal.measure(
        pair.target, pair.draft, prompt.ids, max_new_tokens, pair.stop_ids, *tree
    )
    assert list(text) == recorded.trace["token"].tolist()
    theirs, ours = pd.DataFrame(records), table_of(recorded.nodes)
    assert_frame_equal(ours[EXACT], theirs[EXACT], check_dtype=False)
    np.testing.assert_allclose(ours[ROUNDED], theirs[ROUNDED], atol=1e-4)


@pytest.mark.parametrize("tree", [(3, 2, 8), (1, 1, 1), (4, 3, 20), (2, 5, 30)])
@pytest.mark.parametrize("packed", [1, 9, 4096])
def test_equals_the_literal_procedure_on_the_toy_whatever_the_packing(tree, packed):
    pair, prompts = toy_pair(), prompts_of([1, 2, 3, 4], [5])
    recorded = record_block(pair, prompts, static_tree(*tree), GREEDY, 9, 0, packed)
    for prompt, found in zip(prompts, recorded, strict=True):
        assert_equal_records(pair, prompt, found, 9, tree)


def test_passes_that_wrote_the_texts_give_what_another_reading_gives(random_pair):
    """Prompts of several lengths, of which one text ends early; a wrong pass must show."""
    prompts = prompts_of([4, 5, 6, 7, 8, 9], [3], [11, 12, 13])
    free = generate(random_pair.target, prompts, 12, (), GREEDY, 0)
    passes = {}
    texts = generate(random_pair.target, prompts, 12, {free[1][4]}, GREEDY, 0, passes)
    assert len({*map(len, texts)}) > 1
    how = random_pair, prompts, texts, static_tree(3, 2, 8), GREEDY, 4096
    again, kept = record_prompts(*how), record_prompts(*how, dict(passes))
    for one, other in zip(again, kept, strict=True):
        for name in ("trace", "nodes"):
            ours, theirs = (table_of(getattr(x, name)) for x in (one, other))
            assert_frame_equal(ours, theirs, atol=1e-5)
    passes["p0"], passes["p2"] = passes["p2"], passes["p0"]
    with pytest.raises((RuntimeError, AssertionError, ValueError)):
        wrong = record_prompts(*how, passes)
        assert_frame_equal(table_of(wrong[0].trace), table_of(again[0].trace), atol=1e-5)


@pytest.mark.parametrize("packed", [3, 4096])
def test_equals_the_literal_procedure_on_a_random_llama_pair_past_64_cached_positions(
    random_pair, packed
):
    rng = np.random.default_rng(0)
    prompts = prompts_of(rng.integers(2, 40, 90), rng.integers(2, 40, 3))
    recorded = record_block(random_pair, prompts, static_tree(3, 2, 8), GREEDY, 12, 0, packed)
    for prompt, found in zip(prompts, recorded, strict=True):
        assert_equal_records(random_pair, prompt, found, 12)


def test_a_wrong_mask_is_seen(random_pair, monkeypatch):
    """Negative control: the comparison above fails if nodes see their siblings and cousins."""
    let_nodes_see_their_cousins(monkeypatch)
    (prompt,) = prompts_of(range(2, 30))
    (recorded,) = record_block(random_pair, [prompt], static_tree(3, 2, 8), GREEDY, 6, 0, 4096)
    with pytest.raises(AssertionError):
        assert_equal_records(random_pair, prompt, recorded, 6)


def assert_columns(pair, prompt, recorded, kept=None):
    """Trace columns from plain softmaxes. `kept`: the output tokens of a trimmed draft."""
    trace, tokens = recorded.trace, np.array(recorded.trace["token"])
    context = [*prompt.ids, *tokens[:-1]]
    logits = [literal.full_logits(model, [context])[0] for model in (pair.target, pair.draft)]
    p, q = (rows[-len(tokens) :].double().softmax(-1).numpy() for rows in logits)
    kept = range(pair.vocab) if kept is None else kept
    is_said, place = np.isin(tokens, kept), np.arange(len(tokens))
    order = np.argsort(-q, axis=1, kind="stable")
    rank = (order == tokens[:, None]).argmax(1)
    top, best = order[:, : min(8, len(kept))], np.sort(p)
    expected = {
        "token": p.argmax(1),
        "target_top": tokens,
        "draft_rank": np.where(is_said, rank, len(kept)),
        "top_draft_ids": top,
        "top_draft_q": np.take_along_axis(q, top, 1),
        "top_draft_p": np.take_along_axis(p, top, 1),
        "p_token": p[place, tokens],
        "q_token": q[place, tokens],
        "overlap": np.minimum(p, q).sum(1),
        "kl": (p * np.log(p / np.maximum(q, np.float32(1e-45)))).sum(1),
        "target_entropy": entropy(p, axis=1),
        "draft_entropy": entropy(q, axis=1),
        "target_margin": best[:, -1] - best[:, -2],
    }
    for name, values in expected.items():
        np.testing.assert_allclose(trace[name], values, rtol=1e-3, atol=2e-4, err_msg=name)
    assert ((np.array(trace["q_token"]) == 0) == ~is_said).all()
    assert np.isin(recorded.nodes["token"], kept).all()


def test_trace_columns_are_what_their_definitions_say(random_pair):
    [prompt] = prompts_of(range(2, 20))
    tree = static_tree(2, 3)
    (found,) = record_block(random_pair, [prompt], tree, GREEDY, 10, 0, 4096)
    assert_columns(random_pair, prompt, found)
    nodes = pd.DataFrame(found.nodes)
    for t, best in enumerate(found.trace["top_draft_p"]):
        first = nodes[(nodes.position == t) & (nodes.depth == 1)]
        np.testing.assert_allclose(first.target_prob, best[:3], atol=1e-5)


def test_sampled_text_does_not_depend_on_the_batch_and_its_probabilities_are_processed(random_pair):
    prompts = prompts_of(range(2, 20), [7], range(3, 9))
    sampling = Sampling(0.8, top_k=5, top_p=0.9)

    def made(prompts, seed=3):
        return generate(random_pair.target, prompts, 12, {1}, sampling, seed)

    together = made(prompts)
    assert together == [made([prompt])[0] for prompt in prompts] != made(prompts, 4)
    found = record_prompt(random_pair, prompts[0], together[0], chain(2), sampling)
    assert (found.trace["p_token"] > 0).all()
    assert (found.trace["q_token"] == 0).any(), "some fall outside the draft's top-k"
    assert found.trace["top_draft_q"][:, 5:].max() == 0


def test_the_stop_token_ends_a_text_and_is_recorded(random_pair):
    [prompt], target = prompts_of(range(2, 20)), random_pair.target
    (free,) = generate(target, [prompt], 12, (), GREEDY, 0)
    (text,) = generate(target, [prompt], 12, {free[4]}, GREEDY, 0)
    assert text == free[: free.index(free[4]) + 1]
    found = record_prompt(random_pair, prompt, text, static_tree(3, 2, 8), GREEDY)
    assert len(found.trace["token"]) == len(text) == found.nodes["position"].max() + 1
    alone = record_prompt(random_pair, prompt, text, PLAIN, GREEDY)
    assert not any(map(len, alone.nodes.values()))
    for name, column in found.trace.items():
        np.testing.assert_array_equal(alone.trace[name], column)


def test_a_probability_that_is_not_finite_names_prompt_and_position(random_pair, monkeypatch):
    prompt = EncodedPrompt("math-07", "math", tuple(range(2, 30)), 0)
    (text,) = generate(random_pair.target, [prompt], 10, frozenset(), GREEDY, 0)
    honest = random_pair.draft.head

    def broken(hidden):
        logits = honest(hidden).clone()
        if len(logits) == 10:
            logits[6] = torch.nan
        return logits

    monkeypatch.setattr(random_pair.draft, "head", broken)
    with pytest.raises(NonFiniteProbability, match="the draft gave .* prompt math-07, position 6"):
        record_prompt(random_pair, prompt, text, static_tree(1, 1), GREEDY)
