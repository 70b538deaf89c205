"""A draft with a smaller vocabulary: lossless by enumeration, recorded as the literal procedure
does, replayed as it decodes, and rejected folders.
"""

import numpy as np
import pytest
import torch
from conftest import profile_of, refuses, save_trimmed_draft
from safetensors.torch import load_file, save_file
from test_decode import assert_equal_to_plain_and_replay, assert_plain
from test_record import assert_columns, assert_equal_records, prompts_of
from test_verify import assert_lossless
from toy import WORDS, PairWorld, record_block, record_prompt, toy_pair

from speclab.decode import decode
from speclab.lab.enumeration import step_of
from speclab.models import trimmed
from speclab.models.folder import ModelFolder
from speclab.models.lean import LeanBody
from speclab.models.pairs import load_model
from speclab.plain import ModelSpec
from speclab.sampling import Sampling
from speclab.shapes import parse_shape
from speclab.study.pairs import load_pair
from speclab.tree import static_tree

pytestmark = pytest.mark.numeric

GREEDY, WARM, CUT = Sampling(), Sampling(1.0), Sampling(1.0, top_p=0.8)
KEPT = (1, 2, 3, 5, 8)
CASES = [
    ("rejection", "chain:1"),
    ("rejection", "chain:3"),
    ("point-mass", "chain:2"),
    ("point-mass", "tree:2,2"),
    ("point-mass", "tree:1,3"),
    ("without-replacement", "tree:2,2"),
    ("without-replacement", "tree:1,3"),
]


# ---- lossless: the toy, enumerated ---------------------------------------------------------------


def outside_best(pair, sampling):
    """A prompt after which the target's top word is outside the draft's vocabulary."""
    prompts = [(first, 4) for first in range(WORDS)]
    tables = [PairWorld(pair, prompt, sampling).at("p", ()) for prompt in prompts]
    wanted = (p.argmax() not in KEPT and p.max() > 0.4 for p in tables)
    return next(prompt for prompt, fine in zip(prompts, wanted, strict=True) if fine)


@pytest.mark.parametrize("sampling", [WARM, CUT], ids=["T=1", "top-p"])
@pytest.mark.parametrize(("rule", "shape"), CASES)
def test_a_block_has_exactly_the_targets_distribution(rule, shape, sampling):
    """After a prompt whose most likely word is outside the vocabulary, it is emitted with its
    probability.
    """
    pair = toy_pair(kept=KEPT)
    world = PairWorld(pair, outside_best(pair, sampling), sampling)
    outside = np.delete(np.arange(WORDS), KEPT)
    assert (world.at("q", ())[outside] == 0).all()
    assert world.at("p", ()).argmax() in outside
    assert_lossless(rule, step_of(rule), parse_shape(shape).tree, world)


@pytest.mark.parametrize(("rule", "shape"), CASES)
def test_a_verifier_that_takes_p_among_the_kept_words_fails(rule, shape):
    """Negative control: the target restricted to the draft's words, as in the draft's training."""
    pair, said = toy_pair(kept=KEPT), np.isin(np.arange(WORDS), KEPT)
    honest = step_of(rule)

    def step(p, q, tokens):
        return honest(p * said / (p * said).sum(), q, tokens)

    world = PairWorld(pair, outside_best(pair, WARM), WARM)
    with pytest.raises(AssertionError):
        assert_lossless(rule, step, parse_shape(shape).tree, world)


# ---- recorded and replayed -----------------------------------------------------------------------


def test_replayed_as_it_decodes():
    pair = toy_pair(kept=KEPT, stop=-1)
    for prompt in prompts_of([1, 2, 3, 4], [5]):
        assert_equal_to_plain_and_replay(pair, prompt, (1, 4), [(3, 2, 8), (2, 5)], 40)


def test_more_branches_than_the_draft_has_words_are_refused():
    pair, (prompt,) = toy_pair(kept=KEPT), prompts_of([1, 2])
    words = "branches=6, but the draft outputs only 5 tokens; lower branches"
    with refuses(words):
        record_prompt(pair, prompt, (3, 4), static_tree(1, 6), GREEDY)
    with refuses(words):
        next(decode(pair, prompt.ids, "greedy", parse_shape("tree:1,6"), GREEDY, 4))
    # a dynamic tree takes what there is
    assert_plain(pair, prompt, parse_shape("dynamic:2,8,12"), 20)


# ---- a saved one, through the loader -------------------------------------------------------------

SAID = tuple(range(1, 40, 3))


@pytest.fixture
def draft(random_folders, tmp_path):
    """A random trimmed draft that uses the random target's embedding."""
    return save_trimmed_draft(tmp_path / "draft", random_folders[0], SAID)


@pytest.mark.parametrize(
    ("own", "dtype"), [(False, "float32"), (True, "float32"), (False, "float16")]
)
def test_a_saved_one_is_loaded_as_a_draft_like_any(random_folders, tmp_path, own, dtype):
    draft = save_trimmed_draft(tmp_path / "draft", random_folders[0], SAID, own)
    pair = load_pair(profile_of(random_folders[0], draft, dtype))
    assert pair.draft.tokens_said == pair.facts["draft"]["tokens_said"] == len(SAID)
    assert isinstance(pair.draft.body, LeanBody)
    tokens = torch.tensor([[2, 3, 4, 30]])
    logits = pair.draft.logits(pair.draft.forward(tokens, pair.draft.cache()))
    said = torch.isin(torch.arange(40), torch.tensor(SAID))
    assert torch.equal(logits.isfinite(), said.expand(1, 4, 40))
    if dtype == "float32":
        (prompt,) = prompts_of(range(2, 20))
        (found,) = record_block(pair, [prompt], static_tree(3, 2, 8), GREEDY, 10, 0, 64)
        assert_equal_records(pair, prompt, found, 10)
        assert_columns(pair, prompt, found, SAID)


def test_its_embedding_is_the_targets_times_the_map_and_its_own_where_it_speaks(
    random_folders, draft
):
    stored = load_file(draft / "model.safetensors")
    network = load_model(ModelSpec(str(draft), device="cpu")).network
    base = trimmed.base_embedding(ModelFolder(random_folders[0]))
    for token, found in enumerate(network.model.embed_tokens.weight):
        row = base[token].float() @ stored["embed_map"].float()
        if token in SAID:
            row = stored["embed_kept"][SAID.index(token)].float()
        torch.testing.assert_close(found, row)


@pytest.mark.parametrize(
    ("name", "part", "words"),
    [
        ("kept", torch.tensor([*SAID[:-1], 40]), "cannot be used"),
        ("embed_map", torch.zeros(31, 16), "cannot be used"),
    ],
)
def test_parts_that_do_not_fit_are_named_in_one_line(draft, name, part, words):
    path = draft / "model.safetensors"
    save_file(load_file(path) | {name: part}, path, {"format": "pt"})
    with refuses(words) as refused:
        load_model(ModelSpec(str(draft), device="cpu"))
    assert str(draft) in str(refused.value)
