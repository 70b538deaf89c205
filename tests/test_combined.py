"""A draft and copies together: by hand, the decoder and a draft alone as references, and a rule
that is fitted on other prompts.
"""

import numpy as np
import pandas as pd
import pytest
from test_decode import prompt_of, tiny_prompts
from toy import toy_pair

from speclab.analysis import combined
from speclab.copying import MOST
from speclab.cost import Costs
from speclab.decode import decode_prompt
from speclab.draft import Shape
from speclab.record import generate, record_prompt
from speclab.replay import chain_sums
from speclab.sampling import Sampling
from speclab.starts import starts_of_trace
from speclab.tree import PLAIN, chain

GREEDY = Sampling()


def recorded(pair, prompts, new):
    """The trace of greedy texts, and what `blocks` reads of them."""
    texts = generate(pair.target, prompts, new, pair.stop_ids, GREEDY, 0)
    frames, tokens = [], {}
    for prompt, text in zip(prompts, texts, strict=True):
        found = record_prompt(pair, prompt, text, chain(1), GREEDY).trace
        frame = pd.DataFrame({name: list(rows) for name, rows in found.items()})
        frames.append(frame.assign(prompt_id=prompt.prompt_id, domain=prompt.domain))
        tokens[prompt.prompt_id] = prompt.ids, text
    trace = pd.concat(frames, ignore_index=True)
    return trace, combined.with_copies(starts_of_trace(trace, "draft"), tokens)


def assert_decoded_as_replayed(pair, prompts, gamma, least, new):
    """Returns how many blocks are copied and how many are not."""
    trace, both = recorded(pair, prompts, new)
    shape = Shape(chain(gamma) if gamma else PLAIN, lookup=least)
    replayed = combined.blocks(both, gamma, least)
    for prompt in prompts:
        made = decode_prompt(pair, prompt, "greedy", shape, GREEDY, new)
        rows = replayed[replayed["prompt_id"] == prompt.prompt_id]
        assert [s.copied for s in made.steps] == rows["is_copied"].tolist()
        assert [s.accepted for s in made.steps] == rows["accepted"].tolist()
        assert [len(s.tokens) for s in made.steps] == rows["emitted"].tolist()
        if (
            len(made.token_ids) == new
        ):  # else it drafts past an end that it cannot foresee
            assert [s.drafted for s in made.steps] == rows["drafted"].tolist()
        (trace_tokens,) = (trace.query("prompt_id == @prompt.prompt_id")["token"],)
        assert made.token_ids == tuple(trace_tokens)
    return replayed["is_copied"].sum(), (~replayed["is_copied"]).sum()


@pytest.mark.parametrize(("gamma", "least"), [(1, 1), (3, 2), (5, 3), (0, 1)])
def test_on_the_toy_the_decoders_blocks_are_the_replayed_ones(gamma, least):
    starts = [(1, 2, 3, 4, 1, 2, 3), (5,), (3, 3, 7), (8, 0), (6, 5, 6)]
    prompts = [prompt_of(ids, f"p{place}") for place, ids in enumerate(starts)]
    for stop in (9, -1):
        copies, others = assert_decoded_as_replayed(
            toy_pair(stop=stop), prompts, gamma, least, 40
        )
        assert copies and others


def test_on_the_tiny_pair_the_decoders_blocks_are_the_replayed_ones(tiny_pair):
    copies, others = assert_decoded_as_replayed(
        tiny_pair, tiny_prompts(tiny_pair, 1), 4, 2, 32
    )
    assert copies and others


def made_starts(accepted, prompt_id="a", domain="code"):
    """Starts of a text from what the draft gets accepted at each position."""
    remaining = np.arange(len(accepted), 0, -1)
    rows = {"position": range(len(accepted)), "accepted": accepted}
    who = {"prompt_id": prompt_id, "domain": domain, "proposer": "draft"}
    return pd.DataFrame(rows).assign(**who, remaining=remaining, limit=64)


# `5 6 7` stands in the prompt, and comes back behind `8`
BACK = {"a": ([5, 6, 7, 9], [8, 5, 6, 7, 9, 4])}


def test_by_hand():
    both = combined.with_copies(made_starts([1, 0, 1, 1, 1, 0]), BACK)
    assert both["matched"].tolist() == [0, 0, 1, 2, 3, 4]
    assert both["copied"].tolist() == [0, 0, 3, 2, 1, 0]
    columns = ["start", "is_copied", "drafted", "accepted", "emitted"]
    # 8 and 5 by the draft; behind 5 the copy is right thrice; the end leaves 6 - 2 tokens
    found = combined.blocks(both, 2, 1)[columns].to_numpy().tolist()
    assert found == [[0, False, 2, 1, 2], [2, True, 4, 3, 4]]
    # two must match: position 2 is drafted, then 4 is copied
    found = combined.blocks(both, 2, 2)[columns].to_numpy().tolist()
    assert found == [[0, False, 2, 1, 2], [2, False, 2, 1, 2], [4, True, 2, 1, 2]]


def test_where_nothing_is_copied_it_is_the_draft_alone(tiny_pair):
    trace, both = recorded(tiny_pair, tiny_prompts(tiny_pair, 1), 32)
    table = combined.prices(both, 4).judged("chain:4")
    alone = chain_sums(trace, [4])
    assert table["target_passes"].tolist() == alone["blocks"].tolist()
    assert table["emitted"].tolist() == alone["emitted"].tolist()


def test_a_copy_is_priced_by_its_tokens_and_without_draft_passes():
    both = combined.with_copies(made_starts([1, 0, 1, 1, 1, 0]), BACK)
    costs = Costs(10.0, (1, MOST + 1), (0.25, 0.25), (1.0, 2.0), 0.5)
    found = combined.prices(both, 2, costs).judged("chain:2+lookup:1").iloc[0]
    drafted, copy = 2 * 0.25 + costs.v(3) + 0.5, costs.v(5) + 0.5
    assert found["cost"] == pytest.approx(drafted + copy)
    assert (found["target_passes"], found["draft_passes"]) == (2, 2)


def test_the_rule_is_fitted_on_other_prompts():
    """Copies help every prompt but one, whose own best rule is never to copy: it gets the others'
    rule, and they keep it.
    """
    frames, tokens = [], {}
    for place in range(10):
        name, useless = f"p{place}", place == 0
        text = [1, 2, 1, 3, 1, 4, 1, 5] if useless else [1, 2, 3, 4, 1, 2, 3, 4]
        frames.append(
            made_starts([7, 6, 5, 4, 3, 2, 1, 0] if useless else [0] * 8, name)
        )
        tokens[name] = [9], text
    both = combined.with_copies(pd.concat(frames), tokens)
    found = combined.ways(both, 4, n=20)
    rule, never = found[combined.BOTH].judged, found[combined.DRAFT].judged
    assert (rule["setting"] == "chain:4+lookup:1").all()
    more = rule["target_passes"] - never["target_passes"]
    assert more.tolist() == [1, *[-2] * 9]
    # of the blocks that begin at the first three positions only
    first = combined.counted_only(found, both, 4, both["position"] < 3)
    blocks = {name: one.judged["target_passes"].tolist() for name, one in first.items()}
    assert blocks[combined.DRAFT] == [1, *[3] * 9]
    assert blocks[combined.COPIES] == [3] * 10
