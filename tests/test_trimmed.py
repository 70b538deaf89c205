"""A draft that can say some tokens only: lossless by enumeration, recorded as the literal procedure
does, replayed as it decodes; what is refused.
"""

import json
import shutil
from collections import defaultdict
from functools import partial

import literal
import numpy as np
import pandas as pd
import pytest
import torch
from conftest import save_random_llama, save_trimmed_draft
from enumerate_rules import (
    STEPS,
    World,
    block,
    cuts,
    first_tokens,
    integrate,
    rows,
    target,
    token_tuples,
)
from safetensors.torch import load_file, save_file
from scipy.stats import chisquare
from test_record import assert_equal_records, prompts_of
from test_verify import kit_step
from toy import WORDS, record_block, toy_pair

from speclab.decode import decode, decode_prompt
from speclab.draft import Shape, parse_shape, propose
from speclab.models import trimmed
from speclab.models.lean import LeanBody
from speclab.models.pairs import ModelsMissing, load_model, load_pair, loaded_bytes
from speclab.profiles import ModelSpec, Profile
from speclab.record import generate, record_prompt
from speclab.replay import replay
from speclab.sampling import Sampling, probabilities
from speclab.tree import chain, static_tree
from speclab.verify import RULES, verify

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


class PairWorld(World):
    """p and q after any prefix as the models of a pair give them behind a prompt, float64."""

    def __init__(self, pair, prompt, sampling):
        self.pair, self.prompt, self.sampling = pair, prompt, sampling
        self.vocab, self.kind, self.rows = WORDS, "pair", {}

    def _row(self, which, prefix):
        model = (self.pair.target, self.pair.draft)[which]
        hidden = model.forward(torch.tensor([[*self.prompt, *prefix]]), model.cache())
        row = probabilities(model.logits(hidden[0, -1]), self.sampling).double().numpy()
        return row / row.sum()


def outside_best(pair, sampling):
    """A prompt behind which the target's best word is one that the draft cannot say."""
    for first in range(WORDS):
        p = PairWorld(pair, (first, 4), sampling).at("p", ())
        if p.argmax() not in KEPT and p.max() > 0.4:
            return first, 4
    raise AssertionError("no such prompt: take another seed")


def assert_lossless(rule, step, tree, world):
    emitted = block(rule, step, tree, world)
    for count in (1, 2, tree.max_depth + 1):
        found = first_tokens(emitted, world, count)
        np.testing.assert_allclose(found, target(world, count), rtol=0, atol=1e-12)


@pytest.mark.parametrize("sampling", [WARM, CUT], ids=["T=1", "top-p"])
@pytest.mark.parametrize(("rule", "shape"), CASES)
def test_a_block_has_exactly_the_targets_distribution(rule, shape, sampling):
    """Behind a prompt whose likeliest word is outside: it is emitted with its probability."""
    pair = toy_pair(kept=KEPT)
    world = PairWorld(pair, outside_best(pair, sampling), sampling)
    outside = np.delete(np.arange(WORDS), KEPT)
    assert (world.at("q", ())[outside] == 0).all()
    assert world.at("p", ()).argmax() in outside
    assert_lossless(rule, kit_step(rule), parse_shape(shape).tree, world)


@pytest.mark.parametrize(("rule", "shape"), CASES)
def test_a_verifier_that_takes_p_among_the_kept_words_fails(rule, shape):
    """Negative control: the target cut to the draft's words, as a draft is trained."""
    pair, said = toy_pair(kept=KEPT), np.isin(np.arange(WORDS), KEPT)
    honest = kit_step(rule)

    def step(p, q, tokens):
        return honest(p * said / (p * said).sum(), q, tokens)

    world = PairWorld(pair, outside_best(pair, WARM), WARM)
    with pytest.raises(AssertionError):
        assert_lossless(rule, step, parse_shape(shape).tree, world)


class Trimmed(World):
    """Random models of four words, whose last, the likeliest, the draft cannot say."""

    def _row(self, which, prefix):
        row = super()._row(which, prefix)
        row[-1] = 0 if which else 2 * row.max()
        return row / row.sum()


@pytest.mark.parametrize(
    ("rule", "shape"),
    [
        ("rejection", "chain:1"),
        ("rejection", "chain:2"),
        ("point-mass", "tree:1,2"),
        ("without-replacement", "tree:1,2"),
    ],
)
def test_verify_integrated_over_its_uniforms_is_the_target(rule, shape):
    tree, world = parse_shape(shape).tree, Trimmed(5, 4, 1.0)
    emitted = defaultdict(float)
    for tokens, weight in token_tuples(rule, tree, world):
        assert 3 not in tokens[1:]
        p, q = rows(tree, tokens, world)
        black_box = partial(
            verify, rule, tree, tokens, torch.tensor(p), torch.tensor(q)
        )
        breaks = cuts(rule, tree, tokens, p, q)
        for verdict, volume in integrate(black_box, breaks, tree.size + 1):
            path = tokens[list(verdict.path)].tolist()
            emitted[(*path, verdict.token)] += weight * volume
    for count in (1, 2):
        np.testing.assert_allclose(
            first_tokens(emitted, world, count),
            target(world, count),
            rtol=0,
            atol=1e-12,
        )


@pytest.mark.parametrize("shape", ["chain:3", "tree:3,2,8", "dynamic:4,3,7"])
def test_greedy_text_is_the_plain_text_and_nothing_outside_is_accepted(shape):
    pair = toy_pair(kept=KEPT, stop=-1)
    said = 0
    for ids in ((1, 2, 3, 4), (5,), (3, 3, 7), (8, 0), outside_best(pair, GREEDY)):
        (prompt,) = prompts_of(ids)
        (plain,) = generate(pair.target, [prompt], 30, pair.stop_ids, GREEDY, 0)
        made = decode_prompt(pair, prompt, "greedy", parse_shape(shape), GREEDY, 30)
        assert made.token_ids == plain
        for step in made.steps:
            assert set(step.tokens[: step.accepted]) <= set(KEPT)
            said += step.accepted
    assert said and set(plain) - set(KEPT), "both happen: accepted, and outside"


@pytest.mark.parametrize("sampling", [WARM, CUT], ids=["T=1", "top-p"])
@pytest.mark.parametrize(
    ("rule", "shape"),
    [
        ("rejection", "chain:4"),
        ("without-replacement", "tree:2,5"),
        ("point-mass", "tree:2,5"),
    ],
)
def test_a_word_outside_is_never_drafted_while_the_draft_has_others(
    rule, shape, sampling
):
    """Under top-p the draft may run out of words; what is then drawn is verified as drawn."""
    pair, rng = toy_pair(kept=KEPT), np.random.default_rng(0)
    for ids in ([1, 2, 3], [4, 4], [7, 0, 6]):
        proposal = propose(
            pair.draft,
            pair.draft.cache(),
            ids,
            parse_shape(shape),
            9,
            rule,
            sampling,
            rng,
        )
        if sampling is WARM or not RULES[rule].sampled:
            assert set(proposal.tokens[1:].tolist()) <= set(KEPT)
        if proposal.q is not None:
            inner = np.flatnonzero(proposal.tree.width)
            outside = np.delete(np.arange(WORDS), KEPT)
            assert (proposal.q[inner][:, outside] == 0).all()


# the likeliest word is one that the draft never says: 400 draws see a rule that cannot say it
@pytest.mark.parametrize("draws", [400, pytest.param(800, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("rule", "shape"),
    [
        ("rejection", "chain:3"),
        ("point-mass", "tree:2,2"),
        ("without-replacement", "tree:2,2"),
    ],
)
def test_sampled_first_words_have_the_targets_distribution_end_to_end(
    rule, shape, draws
):
    pair = toy_pair(kept=KEPT, stop=-1)
    ids = outside_best(pair, WARM)
    counts, rng = np.zeros((WORDS, WORDS)), np.random.default_rng(5)
    for _ in range(draws):
        steps = decode(pair, ids, rule, parse_shape(shape), WARM, 2, rng)
        counts[tuple(token for step in steps for token in step.tokens)] += 1
    expected = draws * target(PairWorld(pair, ids, WARM), 2)
    big = expected > 5
    observed = [*counts[big], counts[~big].sum()]
    wanted = [*expected[big], expected[~big].sum()]
    assert chisquare(observed, wanted).pvalue > 1e-3
    outside = counts.sum(1)[np.delete(np.arange(WORDS), KEPT)].sum()
    assert outside > 0.4 * draws, "the likeliest word was one of them"


# ---- recorded and replayed -----------------------------------------------------------------------


@pytest.mark.parametrize("tree", [(3, 2, 8), (2, 5, 30)])
@pytest.mark.parametrize("packed", [3, 4096])
def test_recorded_as_the_literal_procedure_does(tree, packed):
    pair = toy_pair(kept=KEPT, stop=-1)
    prompts = prompts_of([1, 2, 3, 4], [5], outside_best(pair, GREEDY))
    found = record_block(pair, prompts, static_tree(*tree), GREEDY, 12, 0, packed)
    for prompt, recorded in zip(prompts, found, strict=True):
        assert_equal_records(pair, prompt, recorded, 12, tree)
        assert_columns(pair, prompt, recorded, KEPT)


def assert_columns(pair, prompt, recorded, kept):
    """Trace columns from plain softmaxes, and what is special of tokens outside."""
    trace, context = recorded.trace, list(prompt.ids)
    for t, token in enumerate(recorded.continuation):
        p, q = (
            literal.full_logits(m, [context])[0, -1].double().softmax(-1).numpy()
            for m in (pair.target, pair.draft)
        )
        inside = token in kept
        order = np.argsort(-q, kind="stable")
        rank = list(order).index(token) if inside else len(kept)
        assert trace["draft_rank"][t] == rank
        assert trace["q_token"][t] == 0 if not inside else q[token] > 0
        top = min(8, len(kept))
        assert trace["top_draft_ids"][t].tolist() == order[:top].tolist()
        assert (trace["top_draft_q"][t] > 0).all()
        floor = np.maximum(q, np.float32(1e-45))
        expected = {
            "p_token": p[token],
            "q_token": q[token],
            "overlap": np.minimum(p, q).sum(),
            "draft_entropy": -(q[q > 0] * np.log(q[q > 0])).sum(),
            "kl": (p * np.log(p / floor)).sum(),
        }
        for name, value in expected.items():
            assert np.isfinite(trace[name][t])
            assert trace[name][t] == pytest.approx(value, rel=1e-3, abs=2e-4), name
        context.append(token)
    assert np.isin(recorded.nodes["token"], kept).all()


@pytest.mark.parametrize("shape", ["chain:1", "chain:4", "tree:3,2,8", "tree:2,5"])
def test_replayed_as_it_decodes(shape):
    pair, tree = toy_pair(kept=KEPT, stop=-1), parse_shape(shape).tree
    for prompt in prompts_of([1, 2, 3, 4], [5], [3, 3, 7]):
        (plain,) = generate(pair.target, [prompt], 40, pair.stop_ids, GREEDY, 0)
        trace = record_prompt(pair, prompt, plain, chain(1), GREEDY).trace
        wanted = ("position", "draft_rank")
        frame = pd.DataFrame({name: trace[name] for name in wanted})
        blocks = replay(frame.assign(prompt_id="p", domain="code"), tree)
        made = decode_prompt(pair, prompt, "greedy", Shape(tree), GREEDY, 40)
        assert [s.accepted for s in made.steps] == blocks.accepted.tolist()
        assert [len(s.tokens) for s in made.steps] == blocks.emitted.tolist()


def test_more_branches_than_the_draft_has_words_are_refused():
    pair, (prompt,) = toy_pair(kept=KEPT), prompts_of([1, 2])
    words = "branches=6: the draft can say 5 tokens; lower branches"
    with pytest.raises(ValueError, match=words):
        record_prompt(pair, prompt, (3, 4), static_tree(1, 6), GREEDY)
    for rule, sampling in (("greedy", GREEDY), ("without-replacement", WARM)):
        rng = np.random.default_rng(0)
        with pytest.raises(ValueError, match=words):
            shape = parse_shape("tree:1,6")
            next(decode(pair, prompt.ids, rule, shape, sampling, 4, rng))
    wide = parse_shape("dynamic:2,8,12")  # a dynamic tree takes what there is
    made = decode_prompt(pair, prompt, "greedy", wide, GREEDY, 20)
    (plain,) = generate(pair.target, [prompt], 20, pair.stop_ids, GREEDY, 0)
    assert made.token_ids == plain


# ---- a saved one, through the loader -------------------------------------------------------------

SAID = tuple(range(1, 40, 3))


def profile_of(target_folder, draft_folder, dtype="auto"):
    specs = [
        ModelSpec(str(f), device="cpu", dtype=dtype)
        for f in (target_folder, draft_folder)
    ]
    return Profile("trimmed", *specs, max_prompt_tokens=128, max_new_tokens=12)


@pytest.mark.parametrize(
    "own", [False, True], ids=["reads by the target", "own embedding"]
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_saved_one_is_loaded_as_a_draft_like_any(
    random_folders, tmp_path, own, dtype
):
    draft = save_trimmed_draft(tmp_path / "draft", random_folders[0], SAID, own)
    pair = load_pair(profile_of(random_folders[0], draft, dtype))
    assert pair.draft.tokens_said == pair.facts["draft"]["tokens_said"] == len(SAID)
    assert pair.target.tokens_said == pair.facts["target"]["tokens_said"] == 40
    assert isinstance(pair.draft.body, LeanBody)
    tokens = torch.tensor([[2, 3, 4, 30]])
    logits = pair.draft.logits(pair.draft.forward(tokens, pair.draft.cache()))
    said = torch.isin(torch.arange(40), torch.tensor(SAID))
    assert logits.shape == (1, 4, 40) and logits[..., said].isfinite().all()
    assert logits[..., ~said].isneginf().all()
    if dtype == "float32":
        (prompt,) = prompts_of(range(2, 20))
        (found,) = record_block(pair, [prompt], static_tree(3, 2, 8), GREEDY, 10, 0, 64)
        assert_equal_records(pair, prompt, found, 10)
        assert_columns(pair, prompt, found, SAID)


def test_its_embedding_is_the_targets_times_the_map_and_its_own_where_it_speaks(
    random_folders, tmp_path
):
    draft = save_trimmed_draft(tmp_path / "draft", random_folders[0], SAID)
    stored = load_file(draft / "model.safetensors")
    found = load_model(
        ModelSpec(str(draft), device="cpu")
    ).network.model.embed_tokens.weight
    base = trimmed.base_embedding(random_folders[0])
    for token in range(40):
        row = base[token].float() @ stored["embed_map"].float()
        if token in SAID:
            row = stored["embed_kept"][SAID.index(token)].float()
        torch.testing.assert_close(found[token], row)


def test_bytes_are_counted_in_the_dtype_that_they_are_loaded_in(
    random_folders, tmp_path
):
    single = loaded_bytes(random_folders[0], torch.float32)
    size = (random_folders[0] / "model.safetensors").stat().st_size
    assert single == size and loaded_bytes(random_folders[0], torch.float16) == size / 2
    draft = save_trimmed_draft(
        tmp_path / "draft", random_folders[0], SAID, dtype=torch.float32
    )
    joined = load_model(ModelSpec(str(draft), device="cpu")).network
    held = sum(p.nbytes for p in joined.parameters())
    assert (
        held < loaded_bytes(draft, torch.float32) < held + 12_000
    )  # map, rows, header


def changed(folder, **parts):
    """The folder with parts of its weights in another form; None takes one out."""
    weights = load_file(folder / "model.safetensors") | parts
    kept = {name: part for name, part in weights.items() if part is not None}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})


def ids(*found):
    return torch.tensor(found, dtype=torch.int32)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (
            {"kept": None},
            r"kept is missing, config.json asks for \(13,\); fetch it again",
        ),
        ({"kept": ids(*SAID[:-1])}, r"kept is \(12,\), config.json asks for \(13,\)"),
        (
            {"kept": ids(*SAID[:-1], 40)},
            r"names token ids that the target does not have, as \[40\]",
        ),
        ({"kept": ids(-1, *SAID[1:])}, r"does not have, as \[-1\]"),
        ({"kept": ids(4, 1, *SAID[2:])}, "not ascending, or names a token twice"),
        ({"kept": ids(1, 1, *SAID[2:])}, "not ascending, or names a token twice"),
        ({"lm_head.weight": None}, "lm_head.weight is missing, config.json asks for"),
        ({"lm_head.weight": torch.zeros(40, 16)}, r"lm_head.weight is \(40, 16\)"),
        ({"embed_map": torch.zeros(31, 16)}, r"embed_map is \(31, 16\), .* \(32, 16\)"),
        ({"embed_kept": None}, "embed_kept is missing"),
        ({"model.norm.weight": None}, 'Missing key.*"model.norm.weight"'),
        ({"model.norm.weight": torch.zeros(3)}, "size mismatch for model.norm.weight"),
        ({"more": torch.zeros(3)}, 'Unexpected key.*"more"'),
    ],
)
def test_parts_that_do_not_fit_are_named_in_one_line(
    random_folders, tmp_path, parts, words
):
    draft = save_trimmed_draft(tmp_path / "draft", random_folders[0], SAID)
    changed(draft, **parts)
    with pytest.raises(ValueError, match=words) as refused:
        load_model(ModelSpec(str(draft), device="cpu"))
    assert "\n" not in str(refused.value) and str(draft) in str(refused.value)


def test_an_id_that_only_a_larger_target_has_is_named(random_folders, tmp_path):
    """The draft has ids for 48 tokens, the pair shares 40."""
    larger = save_random_llama(tmp_path / "larger", 3, vocab=48)
    draft = save_trimmed_draft(tmp_path / "draft", larger, (*SAID, 45), vocab=48)
    with pytest.raises(
        ValueError, match=r"the target does not have, as \[45\] \(it has 40\)"
    ):
        load_pair(profile_of(random_folders[0], draft))


def test_what_it_reads_by_must_be_there_and_of_its_vocabulary(random_folders, tmp_path):
    base = tmp_path / "target"
    shutil.copytree(random_folders[0], base)
    draft = save_trimmed_draft(tmp_path / "draft", base, SAID)
    spec = ModelSpec(str(draft), device="cpu")
    weights = base / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:500])
    with pytest.raises(ValueError, match="target.model.safetensors is damaged or cut"):
        load_model(spec)
    weights.unlink()
    with pytest.raises(ValueError, match="target: no .*safetensors"):
        load_model(spec)
    (base / "source.json").write_text("{}")
    with pytest.raises(ModelsMissing, match=f"{base} has no weights yet; `make pair"):
        load_model(spec)
    weights.write_bytes(whole)
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(config | {"vocab_size": 48}))
    with pytest.raises(
        ValueError, match=r"draft has 40 tokens, .*target, which it reads by, 48"
    ):
        load_model(spec)
    shutil.rmtree(base)
    with pytest.raises(ModelsMissing, match="target, which is not there; put it there"):
        load_model(spec)


def test_cut_weights_are_named(random_folders, tmp_path):
    draft = save_trimmed_draft(tmp_path / "draft", random_folders[0], SAID)
    weights = draft / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ValueError, match="draft.model.safetensors is damaged or cut"):
        load_model(ModelSpec(str(draft), device="cpu"))


def test_the_enumerators_steps_are_those_of_the_papers():
    """The kit's step and the definition agree on a q with zeros, wherever it can be drawn from."""
    world = Trimmed(9, 4)
    p, q = world.at("p", ()), world.at("q", ())
    for tokens in ((0,), (0, 1), (2, 0, 1)):
        chances, left = kit_step("without-replacement")(p, q, tokens)
        wanted, residual = STEPS["without-replacement"](p, q, tokens)
        assert chances == pytest.approx(wanted) and left == pytest.approx(residual)
        assert left[3] > 0
