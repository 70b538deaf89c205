"""The sixty-line loop equals the kit's decoder: the same text and passes from the same uniforms."""

import ast
import dataclasses

import numpy as np
import pytest
import sixty_lines
from test_decode import prompt_of

from speclab.decode import decode_prompt
from speclab.sampling import Sampling
from speclab.shapes import Shape
from speclab.study.profiles import ROOT
from speclab.tree import chain

SOURCE = ROOT / "tests" / "sixty_lines.py"


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("gamma", [1, 4])
def test_it_is_the_kits_decoder(random_pair, gamma, temperature):
    rule = "rejection" if temperature else "greedy"
    rng = np.random.default_rng(gamma)
    networks = random_pair.target.network, random_pair.draft.network
    accepted = []
    for number, length in enumerate((1, 7, 30)):
        prompt = prompt_of(rng.integers(2, 40, length).tolist(), f"p{number}")
        sampling, seed = Sampling(temperature), [0, *prompt.prompt_id.encode()]
        stop = frozenset()
        for _ in range(2):
            pair = dataclasses.replace(random_pair, stop_ids=stop)
            kits = decode_prompt(pair, prompt, rule, Shape(chain(gamma)), sampling, 25)
            text, passes = sixty_lines.decode(
                *networks, prompt.ids, gamma, 25, stop, temperature, seed
            )
            assert (tuple(text), passes) == (kits.token_ids, kits.target_passes)
            accepted += [step.accepted for step in kits.steps]
            stop = frozenset(text[6:7])  # the second time it ends there, or before
    assert 0 < np.mean(accepted) < gamma, "both cases are seen"


def test_it_may_be_copied_as_it_is():
    source = SOURCE.read_text("utf-8")
    imported = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    assert len(source.splitlines()) <= 60
    assert [node.module for node in imported] == ["transformers"]
