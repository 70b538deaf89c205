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
        sampling = Sampling(temperature)
        kits = decode_prompt(random_pair, prompt, rule, Shape(chain(gamma)), sampling, 25)
        seed = [0, *prompt.prompt_id.encode()]
        stop = random_pair.stop_ids
        text, passes = sixty_lines.decode(*networks, prompt.ids, gamma, 25, stop, temperature, seed)
        assert (tuple(text), passes) == (kits.token_ids, kits.target_passes)
        accepted += [step.accepted for step in kits.steps]
    assert 0 < np.mean(accepted) < gamma, "both cases are seen"


def test_it_stops_where_the_kit_does(random_pair):
    networks = random_pair.target.network, random_pair.draft.network
    prompt = prompt_of((5, 9, 3))
    text, _ = sixty_lines.decode(*networks, prompt.ids, 3, 20)
    pair = dataclasses.replace(random_pair, stop_ids=frozenset({text[6]}))
    stopped, passes = sixty_lines.decode(*networks, prompt.ids, 3, 20, pair.stop_ids)
    kits = decode_prompt(pair, prompt, "greedy", Shape(chain(3)), Sampling(), 20)
    assert (tuple(stopped), passes) == (kits.token_ids, kits.target_passes)


def test_it_may_be_copied_as_it_is():
    source = SOURCE.read_text("utf-8")
    imported = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    assert len(source.splitlines()) <= 60
    assert [node.module for node in imported] == ["transformers"]
