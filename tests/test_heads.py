"""A trained head as draft: loaded, recorded by start, replayed and decoded as the literal procedure
does; lossless.
"""

import dataclasses
from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from conftest import (
    change_weights,
    cut_file,
    edit_json,
    profile_of,
    random_network,
    refuses,
    save_random_head,
    save_random_llama,
    write_prompts,
)
from pandas.testing import assert_frame_equal
from safetensors.torch import load_file

from speclab.study.runs import Damaged

pytest.importorskip("speculators", reason="the extra `heads` is not installed")

from test_decode import DRAWS, SHAPES, TREES, assert_plain, assert_samples_the_target
from test_record import prompts_of
from toy import plain, record_prompt, table_of

from speclab import decode as decoding
from speclab.decode import decode_prompt, prefill
from speclab.models import head as heads
from speclab.models.folder import ModelFolder
from speclab.models.lean import LeanBody
from speclab.models.pairs import load_model
from speclab.plain import ModelSpec
from speclab.record import LONGEST, generate
from speclab.replay import replay, replay_sampled
from speclab.sampling import Sampling
from speclab.shapes import Shape, parse_shape
from speclab.study.manifest import OF_BLOCKS
from speclab.study.pairs import load_pair
from speclab.study.runs import record_run
from speclab.tree import PLAIN, chain, static_tree

GREEDY, WARM = Sampling(), Sampling(1.0)
SAID = tuple(range(1, 40, 2))
VARIANTS = {
    "plain": {},
    "fc_norm": {"fc_norm": True, "norm_before_residual": True},
    "norm_before_fc": {"norm_before_fc": True},
    "norm_output": {"norm_output": True, "fc_norm": True},
    "all tokens": {"said": range(40), "norm_before_residual": True},
}


@pytest.fixture(scope="session")
def target_folder(tmp_path_factory):
    """A random target of four layers."""
    return save_random_llama(tmp_path_factory.mktemp("of-heads") / "target", 1, layers=4)


@pytest.fixture(scope="session")
def pairs(target_folder, tmp_path_factory):
    """The random target with a head of each variant."""
    base = tmp_path_factory.mktemp("heads")
    folders = {
        name: save_random_head(base / name.replace(" ", "-"), target_folder, **changes)
        for name, changes in VARIANTS.items()
    }
    return {name: load_pair(profile_of(target_folder, path)) for name, path in folders.items()}


@pytest.fixture(params=VARIANTS)
def pair(pairs, request):
    return pairs[request.param]


# ---- the literal procedure -----------------------------------------------------------------------


class LiteralHead:
    """A head of one decoder layer, token by token, from the numbers in its folder and the target's
    network: no library, no packing. `keys` and `values` are its cache.
    """

    def __init__(self, pair):
        folder = pair.draft.folder
        self.weights, self.facts = load_file(folder.path / "model.safetensors"), folder.config
        self.target, self.layer = pair.target.network, self.facts["transformer_layer_config"]
        self.keys, self.values = [], []

    def norm(self, name, x):
        """RMS norm of a vector."""
        scale = (x.square().mean() + self.layer["rms_norm_eps"]).rsqrt()
        return x * scale * self.weights[f"{name}.weight"]

    def times(self, name, x):
        """A weight of the layer times a vector."""
        return self.weights[f"layers.0.{name}_proj.weight"] @ x

    def features(self, context):
        """Features of every token of a context, after `fc`."""
        states = self.target(input_ids=torch.tensor([context]), output_hidden_states=True)
        taps = self.facts["eagle_aux_hidden_state_layer_ids"]
        found = []
        for at in range(len(context)):
            parts = [states.hidden_states[tap][0, at] for tap in taps]
            if self.facts["fc_norm"]:
                parts = [self.norm(f"fc_norm.{i}", part) for i, part in enumerate(parts)]
            whole = torch.cat(parts)
            if self.facts["norm_before_fc"]:
                whole = self.norm("input_norm", whole)
            found.append(self.weights["fc.weight"] @ whole)
        return found

    def turned(self, heads, place):
        """Rotary positions of vectors [heads, d]."""
        half = heads.shape[1] // 2
        rates = self.layer["rope_parameters"]["rope_theta"] ** (-torch.arange(half) / half)
        cos, sin = (place * rates).cos(), (place * rates).sin()
        first, second = heads[:, :half], heads[:, half:]
        return torch.cat([first * cos - second * sin, second * cos + first * sin], 1)

    def run(self, token, before, place):
        """State of one token after the layer."""
        count = self.layer["num_attention_heads"]
        groups = count // self.layer["num_key_value_heads"]
        own = self.norm("layers.0.hidden_norm", before)
        embedded = self.target.get_input_embeddings().weight[token]
        read = torch.cat([self.norm("layers.0.input_layernorm", embedded), own])
        query = self.turned(self.times("self_attn.q", read).view(count, -1), place)
        key = self.times("self_attn.k", read).view(count // groups, -1)
        self.keys.append(self.turned(key, place))
        self.values.append(self.times("self_attn.v", read).view(count // groups, -1))
        keys, values = torch.stack(self.keys), torch.stack(self.values)
        parts = []
        for head in range(count):
            scores = keys[:, head // groups] @ query[head] / query.shape[1] ** 0.5
            parts.append(scores.softmax(0) @ values[:, head // groups])
        state = own if self.facts["norm_before_residual"] else before
        state = state + self.times("self_attn.o", torch.cat(parts))
        normed = self.norm("layers.0.post_attention_layernorm", state)
        gate = torch.nn.functional.silu(self.times("mlp.gate", normed))
        return state + self.times("mlp.down", gate * self.times("mlp.up", normed))

    @torch.inference_mode()
    def block(self, context, text, steps, temperature=1.0):
        """q of the block that begins after a context, [steps, vocab], if its tokens are `text`."""
        self.keys, self.values = [], []
        features = self.features(context)
        for place in range(1, len(context)):
            state = self.run(context[place], features[place - 1], place)
        if len(context) == 1:  # its only token reads no features, and no later token sees it
            state = self.run(context[0], torch.zeros_like(features[0]), 0)
            self.keys, self.values = [], []
        rows = []
        for step in range(steps):
            if step:
                state = self.run(text[step - 1], state, len(context) + step - 1)
            read = self.norm("norm", state)
            if self.facts["norm_output"]:
                state = read
            rows.append(self.distribution(self.weights["lm_head.weight"] @ read / temperature))
        return torch.stack(rows)

    def distribution(self, logits):
        """Probabilities of the target's tokens from logits of the head's own."""
        q = torch.zeros(self.layer["vocab_size"])
        d2t = self.weights.get("d2t", torch.zeros(len(logits), dtype=int))
        q[torch.arange(len(logits)) + d2t] = logits.softmax(0)
        return q


def rank_in(q, token):
    """How many tokens are better, the lower id first among equals; a token that the head lacks has
    the number of its tokens.
    """
    if q[token] == 0:
        return int((q > 0).sum())
    ids = torch.arange(len(q))
    return int(((q > q[token]) | ((q == q[token]) & (ids < token))).sum())


# ---- the network ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "is_lean"), [("Llama", True), ("Qwen2", True), ("Qwen3", False)])
def test_features_are_the_hidden_states_that_transformers_names(tmp_path, kind, is_lean):
    """Of every pass: its own tokens, after these layers (0: the embedding)."""
    folder = save_random_llama(tmp_path / "target", 1, layers=4)
    random_network(kind, 3, num_hidden_layers=4).save_pretrained(folder)
    model = load_model(ModelSpec(str(folder), device="cpu"))
    assert isinstance(model.body, LeanBody) == is_lean
    model.taps, cache = (0, 2, 3), model.cache()
    tokens = torch.randint(2, 40, (1, 20))
    states = model.network(input_ids=tokens, output_hidden_states=True).hidden_states
    wanted = torch.cat([states[tap] for tap in model.taps], -1)
    for start, end in ((0, 13), (13, 14), (14, 20)):
        model.forward(tokens[:, start:end], cache)
        torch.testing.assert_close(model.features, wanted[:, start:end], atol=1e-4, rtol=1e-4)


# ---- recorded by start ---------------------------------------------------------------------------


def recorded(pair, prompt, text, sampling=WARM, tree=PLAIN, packed=2048):
    return record_prompt(pair, prompt, text, tree, sampling, packed)


@pytest.fixture(scope="session")
def written(pairs):
    """Prompts of one, two and thirty tokens, and the target's greedy texts."""
    prompts = prompts_of([5], [4, 9], np.random.default_rng(3).integers(2, 40, 30).tolist())
    return [(prompt, plain(pairs["plain"], prompt, 24)) for prompt in prompts]


def assert_record(trace, position, depth, q, token):
    """The record of a block's token is its rank and probability in q [vocab]."""
    assert trace["block_ranks"][position][depth] == rank_in(q, token)
    found = trace["block_q"][position][depth]
    np.testing.assert_allclose(found, float(q[token]), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_record_is_the_literal_procedure_block_by_block(pairs, written, name):
    """Also of a prompt of one token, where a head has no features to read."""
    pair = pairs[name]
    by_hand = LiteralHead(pair)
    for prompt, text in written:
        trace = recorded(pair, prompt, text).trace
        lengths = [min(LONGEST, len(text) - at) for at in range(len(text))]
        for column in ("block_ranks", "block_q"):
            assert [len(row) for row in trace[column]] == lengths
        for position in (0, 1, 7, len(text) - 3):
            ahead = text[position : position + LONGEST]
            rows = by_hand.block([*prompt.ids, *text[:position]], ahead, len(ahead))
            for depth, (q, token) in enumerate(zip(rows, ahead, strict=True)):
                assert_record(trace, position, depth, q, token)


def test_the_literal_procedure_notices_a_wrong_feature(pairs, written, monkeypatch):
    """Negative control: features of the token before."""
    pair, (prompt, text) = pairs["plain"], written[2]
    by_hand = LiteralHead(pair)
    honest = by_hand.features
    monkeypatch.setattr(by_hand, "features", lambda ids: [honest(ids)[0], *honest(ids)[:-1]])
    trace = recorded(pair, prompt, text).trace
    with pytest.raises(AssertionError):
        for depth, q in enumerate(by_hand.block(list(prompt.ids), text, 4)):
            assert_record(trace, 0, depth, q, text[depth])


def test_a_record_does_not_depend_on_the_packing(pair, written):
    prompt, text = written[2]
    tree = static_tree(3, 2, 8)
    whole = recorded(pair, prompt, text, tree=tree)
    for packed in (1, 7):
        found = recorded(pair, prompt, text, tree=tree, packed=packed)
        for table in ("trace", "nodes"):
            both = (table_of(getattr(one, table)) for one in (found, whole))
            assert_frame_equal(*both, rtol=2e-3, atol=1e-5)


# ---- replayed as it decodes ----------------------------------------------------------------------


CHAINS = [chain(gamma) for gamma in (1, 2, 3, 5, 16)]
STATIC = CHAINS + [static_tree(*tree) for tree in TREES]


def of_a_prompt(pair, prompt, text, sampling):
    """The trace of one text."""
    trace = table_of(recorded(pair, prompt, text, sampling).trace)
    return trace.assign(prompt_id="p", domain="code")


def test_greedy_counts_are_replayed(pairs, written):
    """The steps of a decoded text are those that its record replays."""
    accepted = 0
    for number, pair in enumerate(pairs.values()):
        for prompt, text in written:
            trace = of_a_prompt(pair, prompt, text, GREEDY)
            for tree in STATIC[number % 4 :: 4]:
                made = decode_prompt(pair, prompt, "greedy", Shape(tree), GREEDY, 24)
                blocks = replay(trace, tree)
                assert made.token_ids == text
                assert [step.accepted for step in made.steps] == blocks["accepted"].tolist()
                assert [len(step.tokens) for step in made.steps] == blocks["emitted"].tolist()
                accepted += blocks["accepted"].sum()
    assert accepted > 0


def test_the_rejection_rules_survival_is_the_product_of_its_lists(pairs):
    pair, gamma = pairs["plain"], 4
    (prompt,) = prompts_of(range(2, 12))
    (text,) = generate(pair.target, [prompt], 20, (), WARM, 0)
    trace = of_a_prompt(pair, prompt, text, WARM)
    blocks = replay_sampled(trace, gamma, starts="every").set_index("start")
    for start in (0, 3, 11):
        ratio = trace["block_q"][start][:gamma] / trace["p_token"][start : start + gamma]
        found = blocks.loc[start, [f"survival_{depth}" for depth in range(1, gamma + 1)]]
        np.testing.assert_allclose(found, ratio.clip(upper=1).cumprod())


# ---- lossless ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_greedy_text_is_the_targets_own(pairs, written, shape):
    """Also in a second call with the same caches."""
    shape, pair = parse_shape(shape), pairs["norm_output"]
    for prompt, _ in written[:2]:
        made = assert_plain(pair, prompt, shape, 16)
        caches = prefill(pair, prompt.ids, 16 + shape.room)
        for _ in range(2):
            again = decode_prompt(pair, prompt, "greedy", shape, GREEDY, 16, caches=caches)
            assert again.steps == made.steps


RULES = [
    ("rejection", "chain:3"),
    ("point-mass", "dynamic:3,2,4"),
    ("without-replacement", "tree:2,2"),
    ("rejection", "chain:2+lookup:2"),
]


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """A target of eight tokens that never stops, with a head that outputs five of them."""
    base = tmp_path_factory.mktemp("small")
    target = save_random_llama(base / "target", 1, vocab=8, layers=4, words=5)
    head = save_random_head(base / "head", target, (1, 2, 3, 5, 6))
    return dataclasses.replace(load_pair(profile_of(target, head)), stop_ids=frozenset())


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize(("rule", "shape"), RULES)
def test_sampled_first_tokens_have_the_targets_distribution(small, rule, shape, draws):
    ids = (2, 3, 4, 2, 3) if "lookup" in shape else (2, 3, 4)
    assert_samples_the_target(small, ids, rule, shape, draws)


def test_the_verifier_gets_the_literal_q(pairs, monkeypatch):
    """Block after block, of the tokens that were drafted, whatever was accepted before."""
    pair, (prompt,), given = pairs["fc_norm"], prompts_of([4, 9, 7]), []
    honest = decoding.verify

    def seen(rule, tree, tokens, p, q, coins):
        given.append((tokens[1:], q))
        return honest(rule, tree, tokens, p, q, coins)

    monkeypatch.setattr(decoding, "verify", seen)
    found, context = LiteralHead(pair), list(prompt.ids)
    made = decode_prompt(pair, prompt, "rejection", Shape(chain(3)), Sampling(2.0), 16)
    assert sum(step.accepted for step in made.steps) > 0
    for step, (tokens, q) in zip(made.steps, given, strict=True):
        wanted = found.block(context, tokens.tolist(), len(tokens), temperature=2.0)
        torch.testing.assert_close(q[: len(tokens)], wanted, atol=1e-4, rtol=1e-3)
        context += step.tokens


# ---- runs, and what replay refuses ---------------------------------------------------------------


@pytest.fixture(scope="session")
def head_run(pairs, tmp_path_factory):
    """A run of two domains, recorded with a head."""
    base = tmp_path_factory.mktemp("head-run")
    pair = pairs["plain"]
    profile = profile_of(pair.target.folder.path, pair.draft.folder.path).replace(
        prompts=str(write_prompts(base, 2)),
        prompts_per_domain=2,
        domains=("code", "chat"),
        block_prompts=2,
        max_new_tokens=20,
    )
    return record_run(profile, base / "run", pair)


def test_a_run_holds_the_lists_and_replays_them(head_run):
    trace = head_run.trace
    left = trace.groupby("prompt_id")["position"].transform("size") - trace["position"]
    for name in OF_BLOCKS:
        assert trace[name].map(len).tolist() == left.clip(upper=LONGEST).tolist()
    first = trace["block_ranks"].map(lambda ranks: ranks[0])
    assert first.tolist() == trace["draft_rank"].tolist()
    assert replay(trace, LONGEST)["emitted"].sum() == len(trace)


def damaged(run, monkeypatch, change):
    """The run with another trace table."""
    table = change(pq.read_table(run.folder / "trace.parquet"))
    monkeypatch.setattr(pq, "read_table", lambda _path: table)
    return run.table("trace")


def test_a_damaged_table_is_refused(head_run, monkeypatch):
    with pytest.raises(Damaged, match="has the columns"):
        damaged(head_run, monkeypatch, lambda table: table.drop(["block_q"]))


# ---- loading -------------------------------------------------------------------------------------


def test_borrowed_weights_are_the_targets_and_are_not_counted(target_folder, tmp_path):
    """The embedding, and the output layer where the head's file has none."""
    folder = save_random_head(tmp_path / "head", target_folder, SAID)
    change_weights(folder, "lm_head")
    weights = load_file(folder / "model.safetensors")
    of_target = load_file(target_folder / "model.safetensors")
    pair = load_pair(profile_of(target_folder, folder))
    network = pair.draft.network
    assert torch.equal(network.embed_tokens.weight, of_target["model.embed_tokens.weight"])
    assert torch.equal(network.lm_head.weight, of_target["lm_head.weight"][list(SAID)])
    own = {name: value for name, value in weights.items() if name not in ("d2t", "t2d")}
    assert pair.facts["draft"]["parameters"] == sum(value.numel() for value in own.values())
    assert pair.facts["draft"]["tokens_said"] == len(SAID)


def set_layer(folder, **changes):
    """Change the settings of a head's own layer."""
    layer = ModelFolder(folder).config["transformer_layer_config"] | changes
    edit_json(folder / "config.json", transformer_layer_config=layer)


def name_layers(named, folder):
    """Change the layers of the target that a head reads."""
    edit_json(folder / "config.json", eagle_aux_hidden_state_layer_ids=named)


BAD = {
    "another kind": (
        lambda folder: edit_json(folder / "config.json", speculators_model_type="dflash"),
        "is a head of the kind 'dflash'; the kit reads 'eagle3' heads",
    ),
    "width": (
        partial(set_layer, hidden_size=64),
        "target of width 64 .* but this target has width 32, .* a head that was trained",
    ),
    "vocabulary": (
        partial(set_layer, vocab_size=48),
        "vocabulary 48, .* but this target has width 32, vocabulary 40",
    ),
    "layer": (
        partial(name_layers, [1, 2, 9]),
        r"after the layers \[1, 2, 9\], but this target has .* 4 layers",
    ),
    "missing": (
        lambda folder: change_weights(folder, "fc.weight"),
        r"1 weights are missing, .* as \['fc.weight'\]",
    ),
    "shape": (
        lambda folder: change_weights(folder, **{"norm.weight": torch.ones(31)}),
        "size mismatch for norm.weight",
    ),
    "cut": (lambda folder: cut_file(folder / "model.safetensors"), "is damaged or cut"),
    "not finite": (
        lambda folder: change_weights(folder, **{"fc.weight": torch.full((32, 96), np.nan)}),
        "packed tree and its paths differ by nan",
    ),
} | {
    f"layers {named}": (partial(name_layers, named), "reads it after the layers ")
    for named in ([-1, 2, 3], [], [True, 2, 3], [1.0, 2, 3], ["1", "2", "3"])
}


@pytest.mark.parametrize("name", BAD)
def test_a_head_that_does_not_fit_is_refused_in_one_line(target_folder, tmp_path, name):
    folder = save_random_head(tmp_path / "head", target_folder, SAID)
    spoil, words = BAD[name]
    spoil(folder)
    with refuses(words) as refused:
        load_pair(profile_of(target_folder, folder))
    assert str(folder) in str(refused.value)


def test_without_the_library_the_message_says_how_to_install_it(pairs, monkeypatch):
    pair = pairs["plain"]
    monkeypatch.setattr(heads.importlib.util, "find_spec", lambda _name: None)
    with refuses("is not installed; run `python -m speclab hosted install"):
        load_pair(profile_of(pair.target.folder.path, pair.draft.folder.path))
