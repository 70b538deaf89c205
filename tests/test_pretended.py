"""The kit on a pretended CUDA device: devices are never mixed, texts and records equal the CPU's,
and the host waits a bounded number of times per block. The pretended device detects planted
mistakes.
"""

import numpy as np
import pytest
import torch
from pretended import pretended
from toy import record_prompt

from speclab import draft, record, verify
from speclab.decode import decode_prompt
from speclab.model import KVCache
from speclab.models import timing
from speclab.models.model import Network
from speclab.sampling import Sampling
from speclab.shapes import Shape, StopRule, parse_shape
from speclab.study.pairs import load_pair
from speclab.study.profiles import load_profile
from speclab.study.prompts import encode_prompts, load_prompts
from speclab.tree import chain, static_tree

GREEDY, WARM, CUT = Sampling(), Sampling(1.0), Sampling(0.7, 20, 0.9)
# every lossless rule with the shapes that it takes, and the most host waits per block
CASES = [
    ("greedy", "plain", GREEDY, 2),
    ("greedy", "chain:4", GREEDY, 10),
    ("greedy", "tree:3,2,8", GREEDY, 10),
    ("greedy", "dynamic:4,4,8", GREEDY, 10),
    ("greedy", "chain:4+lookup:2", GREEDY, 10),
    ("greedy", "lookup:1", GREEDY, 2),
    # one per level, four for checks, one for each child tried, and one for the last token
    ("rejection", "chain:4", WARM, 4 + 4 + 4 + 1),
    ("rejection", "chain:4+lookup:2", WARM, 4 + 4 + 10 + 1),  # a copy has up to 10 tokens
    ("point-mass", "tree:3,2,8", CUT, 3 + 2 + 6 + 1),
    ("point-mass", "dynamic:4,4,8", WARM, 4 + 2 + 8 + 1),
    ("without-replacement", "tree:3,2,8", WARM, 3 + 4 + 6 + 1),
    # one per level, four for checks, and block's ratios, chances and token
    ("block", "chain:4", CUT, 4 + 4 + 3),
    ("exact-match", "chain:4", WARM, 4 + 2 + 1),
]
PLACES = [("cuda:0", "cuda:0"), ("cuda:0", "cuda:1"), ("cuda:0", "cpu"), ("cpu", "cuda:0")]
TOLERANCE = 1e-4  # the GPU's path rounds otherwise than the CPU's (seen: 2e-5)


def pair_on(target, drafter):
    """The tiny pair in float32."""
    where = {"target.device": target, "draft.device": drafter, "dtype": "float32"}
    return load_pair(load_profile("tiny", where))


@pytest.fixture(scope="module")
def prompts(tiny_pair):
    return encode_prompts(tiny_pair.tokenizer, load_prompts("project", 1), 48)


def decoded(pair, prompt, cases, gpu=None):
    """The steps of a text for each case; bounded waits where a device is given."""
    found = []
    for rule, shape, sampling, most in cases:
        before = gpu and gpu.waits.total()
        found.append(decode_prompt(pair, prompt, rule, parse_shape(shape), sampling, 8).steps)
        # two more: the prefill is waited for
        assert not gpu or gpu.waits.total() - before <= most * len(found[-1]) + 2, shape
    return found


@pytest.mark.parametrize(("target", "drafter"), PLACES)
def test_texts_and_records_are_those_of_the_cpu(target, drafter, tiny_pair, prompts):
    cases = CASES if target == drafter else CASES[1::3]

    def made(pair, gpu=None):
        given = pair.target, prompts[:2], 6, pair.stop_ids
        texts = [record.generate(*given, sampling, 3) for sampling in (GREEDY, CUT)]
        records = [
            record_prompt(pair, prompts[0], texts[0][0], static_tree(3, 2, 8), s, 16)
            for s in (GREEDY, WARM, CUT)
        ]
        return texts, decoded(pair, prompts[0], cases, gpu), records

    *expected, records = made(tiny_pair)
    with pretended() as gpu:
        pair = pair_on(target, drafter)
        *found, ours = made(pair, gpu)
    assert found == expected
    for one, other in zip(ours, records, strict=True):
        for name, values in (one.trace | one.nodes).items():
            theirs = (other.trace | other.nodes)[name]
            np.testing.assert_allclose(values, theirs, rtol=0, atol=TOLERANCE)
    assert [pair.facts[which]["device"] for which in ("target", "draft")] == [target, drafter]


def test_a_stop_rule_and_timing_run_on_the_device(tiny_pair, prompts):
    def stopped(pair):
        shapes = [Shape(chain(4), StopRule(measure, 0.4)) for measure in ("confidence", "entropy")]
        return [decode_prompt(pair, prompts[0], "greedy", s, GREEDY, 8).steps for s in shapes]

    shapes = {name: parse_shape(name) for name in ("chain:2", "tree:2,2,3")}
    with pretended() as gpu:
        pair = pair_on("cuda:0", "cuda:1")
        assert stopped(pair) == stopped(tiny_pair)
        gpu.waits.clear()
        timing.pass_times(pair, (1, 2), 4, 2)
        assert gpu.waits.total() == 2 + 2 * 8  # of two contexts, and around each of eight passes
        timing.measured(pair, prompts[:1], shapes, 4, (1, 2, 3, 4), 4, 2)


# what is left on the CPU, or read from the device without a copy
BUGS = {
    "index": (
        KVCache,
        "keep",
        lambda self, *_: self.layers[0][0].index_select(-2, torch.tensor([0])),
    ),
    "mask": (Network, "_mask", lambda *_: torch.zeros(1)),
    "uniform": (verify, "sample", lambda p, _: p <= torch.zeros(1)),
    "numpy": (draft, "fetched", lambda logits, which, found: found.numpy()),
    "draft's logits": (
        record,
        "_rows",
        lambda pair, hidden, *_: pair.target.logits(hidden[0]) + pair.draft.logits(hidden[1]),
    ),
}


@pytest.mark.parametrize("bug", [None, *BUGS])
def test_each_planted_bug_is_found_and_nothing_else(bug, monkeypatch, prompts):
    with pretended():
        pair = pair_on("cuda:0", "cuda:1")
        if bug:
            monkeypatch.setattr(*BUGS[bug])
        try:
            decoded(pair, prompts[0], (CASES[2], CASES[-1]))
            record_prompt(pair, prompts[0], (5, 6), chain(2), GREEDY)
        except RuntimeError as error:
            assert bug and ("same device" in str(error) or bug in str(error))
        else:
            assert not bug
