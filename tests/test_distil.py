"""Distillation: objectives against hand-written sums, what carries loss, kill and resume, reuse,
bad input, and losslessness after it.
"""

import dataclasses
import math
import shutil

import numpy as np
import pytest
import torch
from conftest import save_trimmed_draft
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from speclab.decode import decode_prompt
from speclab.draft import Shape
from speclab.drafts import distil as drafts
from speclab.drafts.distil import (
    OBJECTIVES,
    collate,
    distil,
    distillation_loss,
    draws_of,
)
from speclab.drafts.prompts import training_prompts
from speclab.drafts.texts import TextConfig, continuations
from speclab.drafts.train import FILE, TrainConfig
from speclab.models.pairs import load_pair
from speclab.profiles import ModelSpec, Profile
from speclab.prompts import encode_prompts
from speclab.record import generate
from speclab.sampling import Sampling
from speclab.tree import chain

CONFIG = TrainConfig(
    steps=4, batch=3, lr_matrix=1e-2, lr_other=1e-2, warmup_steps=1, checkpoint_every=2
)
LONGER = dataclasses.replace(CONFIG, steps=16, checkpoint_every=8)
TEXT = TextConfig(max_prompt_tokens=12, max_new_tokens=8, batch=4)
PROMPTS = training_prompts(3)
FINISHED = "facts.json"
logits = st.lists(st.floats(-4, 4), min_size=3, max_size=3)


@pytest.fixture(scope="module")
def text(random_pair, tmp_path_factory):
    """Texts of the random target."""
    return continuations(random_pair, PROMPTS, TEXT, tmp_path_factory.mktemp("text"))


def with_rows(text, rows):
    """The text with other rows than its target writes."""
    other = dataclasses.replace(text)
    other.__dict__["rows"] = tuple(rows)
    return other


def float64(left, right):
    """p and q, of which q learns."""
    p, q = torch.tensor([left, right], dtype=torch.float64)[:, None]
    return p, q.clone().requires_grad_(True)


def softmax(row):
    total = sum(map(math.exp, row))
    return [math.exp(x) / total for x in row]


# ---- objectives ----------------------------------------------------------------------------------


def by_hand(objective, p, q, token):
    """(value, gradient by the draft's logits) from sums over the words; dq_i/dl_j = q_i (1[i = j] -
    q_j).
    """
    both = list(zip(p, q, strict=True))
    if objective == "sequence":
        return -math.log(q[token]), [q[i] - (i == token) for i in range(len(q))]
    if objective == "forward-kl":
        return sum(a * math.log(a / b) for a, b in both), [b - a for a, b in both]
    if objective == "reverse-kl":
        value = sum(b * math.log(b / a) for a, b in both)
        return value, [b * (math.log(b / a) - value) for a, b in both]
    sign = [0.5 * ((b > a) - (b < a)) for a, b in both]
    mean = sum(b * s for b, s in zip(q, sign, strict=True))
    slope = [b * (s - mean) for b, s in zip(q, sign, strict=True)]
    return sum(abs(a - b) for a, b in both) / 2, slope


@pytest.mark.parametrize("objective", OBJECTIVES)
@given(logits, logits, st.integers(0, 2))
def test_value_and_gradient_are_those_of_the_sums(objective, left, right, token):
    p, q = float64(left, right)
    value = OBJECTIVES[objective](p, q, torch.tensor([token]))
    (gradient,) = torch.autograd.grad(value.sum(), q)
    left, right = softmax(left), softmax(right)
    wanted, slope = by_hand(objective, left, right, token)
    assert value.item() == pytest.approx(wanted, abs=1e-12)
    kink = min(abs(a - b) for a, b in zip(left, right, strict=True)) <= 1e-9
    if objective != "total-variation" or not kink:
        assert gradient[0].tolist() == pytest.approx(slope, abs=1e-12)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_words_that_the_draft_cannot_say_have_no_infinite_loss(objective):
    """Of three words the draft says the first two."""
    p, q = [0.5, 0.2, 0.3], [0.3, 0.7]
    logits_p = torch.tensor([p], dtype=torch.float64).log()
    said = torch.tensor([q], dtype=torch.float64).log().requires_grad_(True)
    logits_q = torch.nn.functional.pad(said, (0, 1), value=-torch.inf)
    value = OBJECTIVES[objective](logits_p, logits_q, torch.tensor([0]))
    (gradient,) = torch.autograd.grad(value.sum(), said, retain_graph=True)
    if objective == "total-variation":  # the whole vocabulary: 1 minus the overlap
        wanted = 1 - (0.3 + 0.2)
        _, slope = by_hand(objective, p[:2], q, 0)
    else:
        wanted, slope = by_hand(objective, [0.5 / 0.7, 0.2 / 0.7], q, 0)
    assert value.item() == pytest.approx(wanted, abs=1e-12)
    assert gradient[0].tolist() == pytest.approx(slope, abs=1e-12)
    unsaid = OBJECTIVES[objective](logits_p, logits_q, torch.tensor([2]))
    (gradient,) = torch.autograd.grad(unsaid.sum(), said)
    assert gradient.isfinite().all() and unsaid.isfinite().all()
    if objective == "sequence":  # nothing to learn where it cannot say the token
        assert unsaid.item() == 0 and not gradient.any()


# ---- texts and batches ---------------------------------------------------------------------------


def test_texts_are_the_targets_own_and_the_states_give_its_distributions(
    random_pair, text
):
    encoded = encode_prompts(random_pair.tokenizer, PROMPTS, TEXT.max_prompt_tokens)
    known = {p.prompt_id: p.ids for p in encoded}
    assert len(text.rows) == 2 * len(PROMPTS)
    for row in text.rows:
        ids = known[row.prompt_id]
        assert tuple(row.tokens[: len(ids)]) == ids and row.first == len(ids) - 1
        tokens = torch.from_numpy(row.tokens[None].astype(np.int64))
        own = random_pair.target.network(input_ids=tokens).logits[0, row.first : -1]
        kept = random_pair.target.head(torch.from_numpy(row.hidden).float())
        torch.testing.assert_close(kept.softmax(-1), own.softmax(-1), rtol=0, atol=5e-3)
        greedy = own.argmax(-1).tolist() == row.tokens[row.first + 1 :].tolist()
        assert row.kind == "sampled" or greedy
    assert len({r.tokens.tobytes() for r in text.rows}) > len(PROMPTS), "some are drawn"


def alone(pair, row, objective):
    """Sum of the objective over a text by itself, from the whole networks, without batch, padding
    or cached states.
    """
    tokens = torch.from_numpy(row.tokens[None].astype(np.int64))
    p, q = (
        model.network(input_ids=tokens[:, :-1]).logits[0, row.first :]
        for model in (pair.target, pair.draft)
    )
    return OBJECTIVES[objective](p, q, tokens[0, row.first + 1 :]).sum().item()


def loss_of(pair, rows, objective):
    return distillation_loss(pair, pair.draft.network, collate(rows), objective).item()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_only_the_continuation_carries_loss_and_padding_none(
    random_pair, text, objective
):
    rows = [text.rows[0], text.rows[7], text.rows[-1]]
    assert len({len(r.tokens) for r in rows}) > 1, "else padding would not be seen"
    total = sum(alone(random_pair, row, objective) for row in rows)
    mean = total / sum(len(row.tokens) - 1 - row.first for row in rows)
    assert loss_of(random_pair, rows, objective) == pytest.approx(mean, abs=5e-3)


def test_labels_one_place_off_would_be_seen(tiny_pair, tmp_path):
    """The negative control: with the tokens of the next place the trained draft's loss is that of
    text it has never seen.
    """
    config, prompts = TextConfig(samples=0), training_prompts(1, 0, ["math"])
    batch = collate(continuations(tiny_pair, prompts, config, tmp_path).rows)
    off = dataclasses.replace(batch, token=batch.token.roll(1))
    right, wrong = (
        distillation_loss(tiny_pair, tiny_pair.draft.network, one, "sequence").item()
        for one in (batch, off)
    )
    assert wrong > 2 * right


def test_held_out_prompts_are_never_trained_on_and_do_not_depend_on_the_order(text):
    trained, held_out = text.split()
    ids = {row.prompt_id for row in held_out}
    assert ids.isdisjoint(row.prompt_id for row in trained)
    assert len(trained) + len(held_out) == len(text.rows)
    assert {row.domain for row in held_out} == {"code", "math", "reasoning", "chat"}
    again = with_rows(text, text.rows[::-1]).split()[1]
    assert {row.prompt_id for row in again} == ids


def test_every_text_comes_once_an_epoch_in_an_order_of_the_seed(text):
    lengths = [len(row.tokens) for row in text.rows]
    steps = -(-len(lengths) // 5)

    def epoch(number, seed=1):
        first = number * steps
        made = [draws_of(first + i, lengths, 5, seed) for i in range(steps)]
        return np.concatenate(made).tolist()

    assert sorted(epoch(0)) == sorted(epoch(1)) == list(range(len(lengths)))
    assert epoch(0) == epoch(0) != epoch(1) and epoch(0) != epoch(0, seed=2)


def tokens_of(text):
    return [row.tokens.tolist() for row in text.rows]


def test_texts_are_made_once_and_a_killed_call_goes_on(
    random_pair, text, tmp_path, monkeypatch
):
    calls, expected = [], tokens_of(text)

    def killed_at_the_third(*args):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return generate(*args)

    monkeypatch.setattr("speclab.drafts.texts.generate", killed_at_the_third)
    lazy = continuations(random_pair, PROMPTS, TEXT, tmp_path)
    assert lazy.key == text.key
    assert not calls and not list(tmp_path.iterdir()), "nothing is written for the key"
    with pytest.raises(KeyboardInterrupt):
        lazy.rows  # noqa: B018
    went_on = continuations(random_pair, PROMPTS, TEXT, tmp_path)
    assert tokens_of(went_on) == expected and len(calls) == 1 + 6
    monkeypatch.setattr("speclab.drafts.texts.generate", None)
    again = continuations(random_pair, PROMPTS, TEXT, tmp_path)
    for a, b in zip(again.rows, text.rows, strict=True):
        assert np.array_equal(a.hidden, b.hidden)


def test_the_key_changes_with_all_that_makes_the_text(random_pair, text):
    other = dataclasses.replace(random_pair, target=random_pair.draft)
    longer = dataclasses.replace(TEXT, max_new_tokens=9)
    changed = [
        continuations(random_pair, PROMPTS[:-1], TEXT),
        continuations(random_pair, PROMPTS, longer),
        continuations(other, PROMPTS, TEXT),
        text.only(["math"]),
    ]
    assert len({text.key, *(one.key for one in changed)}) == 5


# ---- training ------------------------------------------------------------------------------------


def weights(draft):
    return (draft.folder / "model.safetensors").read_bytes()


def load_pair_with(pair, draft):
    """The pair with another draft, through the real loader."""
    folders = pair.target.folder, draft
    specs = [ModelSpec(str(folder), device="cpu") for folder in folders]
    return load_pair(Profile("trained", *specs, max_prompt_tokens=128))


def assert_lossless(pair):
    shape = Shape(chain(3))
    for prompt in encode_prompts(pair.tokenizer, training_prompts(1, 5), 32):
        (plain,) = generate(pair.target, [prompt], 16, pair.stop_ids, Sampling(), 0)
        made = decode_prompt(pair, prompt, "greedy", shape, Sampling(), 16)
        assert made.token_ids == plain


def test_a_killed_training_goes_on_to_the_same_bytes_and_a_finished_one_is_used_again(
    random_pair, text, tmp_path, monkeypatch
):
    def trained(base="cut", config=CONFIG):
        return distil(text, "forward-kl", config, "it", tmp_path / base)

    # batches: before training, two steps, a checkpoint, and one step more
    whole, calls, stop = trained("whole"), [], 1 + 2 + 1 + 2

    def killed(rows):
        calls.append(1)
        if len(calls) == stop:
            raise KeyboardInterrupt
        return collate(rows)

    monkeypatch.setattr(drafts, "collate", killed)
    with pytest.raises(KeyboardInterrupt):
        trained()
    assert list((tmp_path / "cut").rglob(FILE))
    assert not list((tmp_path / "cut").rglob(FINISHED))
    cut = trained()
    assert weights(cut) == weights(whole) and cut.curve["step"].tolist() == [0, 2, 4]
    assert not (cut.folder / "checkpoint").exists()
    monkeypatch.setattr(drafts, "optimise", None)
    assert trained().facts == cut.facts
    # the same among the shipped drafts; no text is asked for
    place = tmp_path / "shipped" / "any-profile" / cut.folder.name
    shutil.copytree(cut.folder, place)
    lazy = continuations(random_pair, PROMPTS, TEXT, tmp_path / "no text")
    read = drafts.shipped_draft(lazy, "forward-kl", CONFIG, "it", tmp_path / "shipped")
    assert read.facts == cut.facts and read.folder == place
    assert not (tmp_path / "no text").exists()
    with pytest.raises(TypeError):
        trained(config=dataclasses.replace(CONFIG, seed=1))


# ---- a trimmed vocabulary ------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["joined", "own"])
def trimmed_pair(request, random_pair, tmp_path_factory):
    """The random target and a draft that says every other word; its embedding joined with the
    target's, or its own.
    """
    target, own = random_pair.target.folder, request.param == "own"
    folder = tmp_path_factory.mktemp("trimmed") / "draft"
    kept = tuple(range(0, 40, 2))
    save_trimmed_draft(folder, target, kept, own)
    return load_pair_with(random_pair, folder)


@pytest.mark.parametrize("objective", ["forward-kl", "total-variation"])
def test_a_trimmed_draft_is_trained_and_stays_one(
    trimmed_pair, text, tmp_path, objective
):
    of_pair = dataclasses.replace(text, pair=trimmed_pair)
    trained = distil(of_pair, objective, LONGER, objective, tmp_path)
    assert np.isfinite(trained.curve["objective"]).all()
    after, rows = load_pair_with(trimmed_pair, trained.folder), text.split()[0]
    before = loss_of(trimmed_pair, rows, objective)
    assert loss_of(after, rows, objective) < 0.95 * before
    old, new = trimmed_pair.draft, after.draft
    assert torch.equal(new.network.lm_head.kept, old.network.lm_head.kept)
    was, now = (load_file(one.folder / "model.safetensors") for one in (old, new))
    assert was.keys() == now.keys(), "the same form"
    if (
        "embed_map" in was
    ):  # words that it does not say are the target's, and are not stored
        was, now = (one.network.get_input_embeddings().weight for one in (old, new))
        assert torch.allclose(now[1::2], was[1::2], atol=1e-6)
    assert_lossless(after)


# ---- bad input -----------------------------------------------------------------------------------


def test_bad_input_is_named_and_nothing_is_left_of_it(random_pair, text, tmp_path):
    with pytest.raises(ValueError, match="objective='kl': allowed are sequence, forw"):
        distil(text, "kl", CONFIG, "it", tmp_path)
    with pytest.raises(ValueError, match="no rows: give more prompts, or other"):
        distil(text.only([]), "sequence", CONFIG, "it", tmp_path / "out")
    long = dataclasses.replace(TEXT, max_prompt_tokens=512)
    with pytest.raises(ValueError, match="= 520: the pair takes 512 positions"):
        continuations(random_pair, PROMPTS, long, tmp_path)
    assert not (tmp_path / "out").exists()
