"""Distillation: objectives against hand-written sums, what carries loss, kill and resume, reuse,
bad input, and losslessness after it.
"""

import copy
import dataclasses
import json
import math
import os
import shutil
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from speclab.decode import decode_prompt
from speclab.draft import parse_shape
from speclab.drafts import distil as drafts
from speclab.drafts.distil import (
    OBJECTIVES,
    Batches,
    collate,
    distil,
    distillation_loss,
)
from speclab.drafts.prompts import training_prompts
from speclab.drafts.texts import TextConfig, continuations
from speclab.drafts.train import TrainConfig
from speclab.models.pairs import load_pair, load_tokenizer
from speclab.profiles import ModelSpec, Profile
from speclab.prompts import encode_prompts
from speclab.record import generate
from speclab.runs import Damaged, RunError
from speclab.sampling import Sampling

CONFIG = TrainConfig(
    steps=4, batch=3, lr_matrix=1e-2, lr_other=1e-2, warmup_steps=1, checkpoint_every=2
)
TEXT = TextConfig(max_prompt_tokens=12, max_new_tokens=8, batch=4)
PROMPTS = training_prompts(3)
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


def float64(*rows):
    return [
        torch.tensor([row], dtype=torch.float64, requires_grad=i == 1)
        for i, row in enumerate(rows)
    ]


def softmax(row):
    total = sum(map(math.exp, row))
    return [math.exp(x) / total for x in row]


# ---- objectives ----------------------------------------------------------------------------------


def by_hand(objective, p, q, token):
    """(value, gradient by the draft's logits) from sums over the words; dq_i/dl_j = q_i (1[i = j] -
    q_j).
    """
    if objective == "sequence":
        return -math.log(q[token]), [q[i] - (i == token) for i in range(len(q))]
    if objective == "forward-kl":
        return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)), [
            b - a for a, b in zip(p, q, strict=True)
        ]
    if objective == "reverse-kl":
        value = sum(b * math.log(b / a) for a, b in zip(p, q, strict=True))
        return value, [b * (math.log(b / a) - value) for a, b in zip(p, q, strict=True)]
    sign = [0.5 * ((b > a) - (b < a)) for a, b in zip(p, q, strict=True)]
    mean = sum(b * s for b, s in zip(q, sign, strict=True))
    return sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2, [
        b * (s - mean) for b, s in zip(q, sign, strict=True)
    ]


@pytest.mark.parametrize("objective", OBJECTIVES)
@given(logits, logits, st.integers(0, 2))
def test_value_and_gradient_are_those_of_the_sums(objective, left, right, token):
    p, q = float64(left, right)
    value = OBJECTIVES[objective](p, q, torch.tensor([token]))
    (gradient,) = torch.autograd.grad(value.sum(), q)
    wanted, slope = by_hand(objective, softmax(left), softmax(right), token)
    assert value.item() == pytest.approx(wanted, abs=1e-12)
    if (
        objective != "total-variation"
        or min(abs(a - b) for a, b in zip(softmax(left), softmax(right), strict=True))
        > 1e-9
    ):
        assert gradient[0].tolist() == pytest.approx(slope, abs=1e-12)


@pytest.mark.parametrize("objective", ["forward-kl", "reverse-kl", "total-variation"])
def test_zero_where_the_draft_is_the_target_and_above_elsewhere(objective):
    p, q = float64([0.3, -1.0, 2.0], [0.3, -1.0, 2.0])
    token = torch.tensor([0])
    assert OBJECTIVES[objective](p, q, token).item() == pytest.approx(0, abs=1e-15)
    assert OBJECTIVES[objective](p, q.flip(-1), token).item() > 0.1


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_words_that_the_draft_cannot_say_have_no_infinite_loss(objective):
    """Of three words the draft says the first two."""
    p, q = [0.5, 0.2, 0.3], [0.3, 0.7]
    logits_p = torch.tensor([p], dtype=torch.float64).log()
    said = torch.tensor([q], dtype=torch.float64).log().requires_grad_(True)
    outside = torch.full((1, 1), -torch.inf, dtype=torch.float64)
    logits_q = torch.cat([said, outside], -1)
    value = OBJECTIVES[objective](logits_p, logits_q, torch.tensor([0]))
    (gradient,) = torch.autograd.grad(value.sum(), said)
    given_said = [0.5 / 0.7, 0.2 / 0.7]
    if objective == "total-variation":  # the whole vocabulary: 1 minus the overlap
        assert value.item() == pytest.approx(1 - (0.3 + 0.2), abs=1e-12)
        sign = [-0.5, 0.5]  # q is below p, then above
        mean = sum(b * s for b, s in zip(q, sign, strict=True))
        slope = [b * (s - mean) for b, s in zip(q, sign, strict=True)]
    else:
        wanted, slope = by_hand(objective, given_said, q, 0)
        assert value.item() == pytest.approx(wanted, abs=1e-12)
    assert gradient[0].tolist() == pytest.approx(slope, abs=1e-12)
    unsaid = OBJECTIVES[objective](logits_p, logits_q, torch.tensor([2]))
    (gradient,) = torch.autograd.grad(unsaid.sum(), said)
    assert gradient.isfinite().all() and unsaid.isfinite().all()
    if objective == "sequence":  # nothing to learn where it cannot say the token
        assert unsaid.item() == 0 and not gradient.any()


def test_the_two_divergences_are_not_the_same_number():
    p, q = float64([0.0, 1.0, 3.0], [2.0, 0.0, 0.5])
    forward, reverse = (
        OBJECTIVES[name](p, q, torch.tensor([0])).item()
        for name in ("forward-kl", "reverse-kl")
    )
    assert abs(forward - reverse) > 0.1


@given(logits, logits)
def test_one_minus_total_variation_is_the_overlap(left, right):
    p, q = float64(left, right)
    overlap = sum(min(a, b) for a, b in zip(softmax(left), softmax(right), strict=True))
    assert 1 - OBJECTIVES["total-variation"](
        p, q, torch.tensor([0])
    ).item() == pytest.approx(overlap, abs=1e-12)


def test_descent_on_total_variation_raises_the_overlap_at_every_step():
    p, q = float64([0.0, 1.0, 3.0], [2.0, 0.0, 0.5])
    overlaps = []
    while (
        not overlaps or overlaps[-1] < 0.95
    ):  # near 1 a step of this size jumps over the kink
        overlaps.append(torch.minimum(p.softmax(-1), q.softmax(-1)).sum().item())
        (gradient,) = torch.autograd.grad(
            OBJECTIVES["total-variation"](p, q, torch.tensor([0])).sum(), q
        )
        q = (q - 0.2 * gradient).detach().requires_grad_(True)
    assert (
        overlaps[0] < 0.4
        and len(overlaps) > 10
        and all(b > a for a, b in pairwise(overlaps))
    )


# ---- texts and batches ---------------------------------------------------------------------------


def test_texts_are_the_targets_own_and_the_states_give_its_distributions(
    random_pair, text
):
    encoded = {
        p.prompt_id: p.ids
        for p in encode_prompts(random_pair.tokenizer, PROMPTS, TEXT.max_prompt_tokens)
    }
    assert len(text.rows) == 2 * len(PROMPTS)
    for row in text.rows:
        ids = encoded[row.prompt_id]
        assert (
            tuple(row.tokens[: len(ids)]) == ids
            and row.first == len(ids) - 1
            and len(row.tokens) <= len(ids) + 8
        )
        own = random_pair.target.network(
            input_ids=torch.from_numpy(row.tokens[None].astype(np.int64))
        ).logits[0, row.first : -1]
        kept = random_pair.target.head(torch.from_numpy(row.hidden).float())
        torch.testing.assert_close(kept.softmax(-1), own.softmax(-1), rtol=0, atol=5e-3)
        assert (
            row.kind == "sampled"
            or own.argmax(-1).tolist() == row.tokens[row.first + 1 :].tolist()
        )
    greedy, sampled = (
        {r.tokens.tobytes() for r in text.rows if r.kind == kind}
        for kind in ("greedy", "sampled")
    )
    assert sampled - greedy


def alone(pair, row, objective, first):
    """Sum of the objective over a text by itself, from the whole networks, without batch, padding
    or cached states.
    """
    tokens = torch.from_numpy(row.tokens[None].astype(np.int64))
    p, q = (
        m.network(input_ids=tokens[:, :-1]).logits[0, first:]
        for m in (pair.target, pair.draft)
    )
    return OBJECTIVES[objective](p, q, tokens[0, first + 1 :]).sum().item()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_only_the_continuation_carries_loss_and_padding_none(
    random_pair, text, objective
):
    rows = [text.rows[0], text.rows[7], text.rows[-1]]
    assert len({len(r.tokens) for r in rows}) > 1, (
        "texts of one length would not show padding"
    )
    count = sum(len(r.tokens) - 1 - r.first for r in rows)
    found = distillation_loss(
        random_pair, random_pair.draft.network, collate(rows), objective
    ).item()
    assert found == pytest.approx(
        sum(alone(random_pair, r, objective, r.first) for r in rows) / count, abs=5e-3
    )


def test_the_prompt_carries_loss_when_asked(random_pair, tmp_path):
    text = continuations(
        random_pair,
        PROMPTS[:2],
        dataclasses.replace(TEXT, prompt_loss=True, samples=0),
        tmp_path,
    )
    row = text.rows[0]
    assert row.first == 0 and len(row.hidden) == len(row.tokens) - 1
    found = distillation_loss(
        random_pair, random_pair.draft.network, collate([row]), "forward-kl"
    ).item()
    assert found == pytest.approx(
        alone(random_pair, row, "forward-kl", 0) / len(row.hidden), abs=5e-3
    )


def test_labels_one_place_off_would_be_seen(tiny_pair, tmp_path):
    """The negative control: with the tokens of the next place the trained draft's loss is that of
    text it has never seen.
    """
    row = continuations(
        tiny_pair,
        training_prompts(1, 0, ["math"]),
        TextConfig(max_new_tokens=32, samples=0),
        tmp_path,
    ).rows[0]
    batch = collate([row])
    right = distillation_loss(
        tiny_pair, tiny_pair.draft.network, batch, "sequence"
    ).item()
    off = dataclasses.replace(batch, token=batch.token.roll(1))
    assert (
        distillation_loss(tiny_pair, tiny_pair.draft.network, off, "sequence").item()
        > 2 * right
    )


def test_held_out_prompts_are_never_trained_on_and_do_not_depend_on_the_order(text):
    trained, held_out = text.split()
    assert {r.prompt_id for r in held_out}.isdisjoint(
        r.prompt_id for r in trained
    ) and len(trained) + len(held_out) == len(text.rows)
    assert {r.domain for r in held_out} == {"code", "math", "reasoning", "chat"}
    again = with_rows(text, text.rows[::-1]).split()[1]
    assert {r.prompt_id for r in again} == {r.prompt_id for r in held_out}


def test_every_text_comes_once_an_epoch_in_an_order_of_the_seed(text):
    batches = Batches(text.rows, 5, 1)
    first, second = (
        [
            i
            for s in range(e * batches.per_epoch, (e + 1) * batches.per_epoch)
            for i in batches.indices(s)
        ]
        for e in (0, 1)
    )
    assert (
        sorted(first) == sorted(second) == list(range(len(text.rows)))
        and first != second
    )
    assert [list(Batches(text.rows, 5, 1).indices(s)) for s in range(3)] == [
        list(batches.indices(s)) for s in range(3)
    ]
    assert [list(Batches(text.rows, 5, 2).indices(s)) for s in range(3)] != [
        list(batches.indices(s)) for s in range(3)
    ]


def test_texts_are_made_once_and_a_killed_call_goes_on(
    random_pair, text, tmp_path, monkeypatch
):
    calls = []

    def killed_at_the_third(*args):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return generate(*args)

    monkeypatch.setattr("speclab.drafts.texts.generate", killed_at_the_third)
    lazy = continuations(random_pair, PROMPTS, TEXT, tmp_path)
    assert lazy.key == text.key and not calls and not list(tmp_path.iterdir()), (
        "nothing is written for the key"
    )
    with pytest.raises(KeyboardInterrupt):
        lazy.rows  # noqa: B018
    went_on = continuations(random_pair, PROMPTS, TEXT, tmp_path).rows
    assert len(calls) == 1 + 6
    assert [r.tokens.tolist() for r in went_on] == [
        r.tokens.tolist() for r in text.rows
    ]
    monkeypatch.setattr("speclab.drafts.texts.generate", None)
    again = continuations(random_pair, PROMPTS, TEXT, tmp_path)
    assert all(
        np.array_equal(a.hidden, b.hidden)
        for a, b in zip(again.rows, text.rows, strict=True)
    )
    other = continuations(
        random_pair, PROMPTS, dataclasses.replace(TEXT, seed=1), tmp_path
    )
    with pytest.raises(TypeError):
        other.rows  # noqa: B018
    assert other.key != text.key


def test_the_key_changes_with_all_that_makes_the_text(random_pair, text, tmp_path):
    def key(prompts=PROMPTS, **changes):
        config = dataclasses.replace(TEXT, **changes)
        return continuations(random_pair, prompts, config, tmp_path).key

    swapped = dataclasses.replace(
        random_pair, target=random_pair.draft, draft=random_pair.target
    )
    ways = [
        key(),
        key(PROMPTS[:-1]),
        key(samples=2),
        key(max_new_tokens=7),
        text.only(["math"]).key,
        text.only(["code", "math"]).key,
        continuations(swapped, PROMPTS, TEXT, tmp_path).key,
    ]
    assert len(set(ways)) == len(ways) and ways[0] == text.key
    assert text.only(["math", "code"]).key == ways[5]
    assert not list(tmp_path.iterdir())


def test_a_sample_is_of_all_lengths_and_as_the_whole_text_has_it(
    random_pair, text, tmp_path
):
    greedy = [row for row in text.rows if row.kind == "greedy"]
    wanted = greedy[:: len(greedy) // 5][:5]
    part = dataclasses.replace(text, base=tmp_path).sample(5)
    assert [row.tokens.tolist() for row in part.rows] == [
        row.tokens.tolist() for row in wanted
    ]
    assert part.key != text.key and len(text.sample(99).prompts) == len(PROMPTS)


# ---- training ------------------------------------------------------------------------------------


def weights(draft):
    return (draft.folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_falls_on_the_texts_trained_on(
    random_pair, text, tmp_path, objective
):
    config = dataclasses.replace(CONFIG, steps=40, checkpoint_every=20)
    trained = distil(random_pair, text, objective, config, tmp_path)
    assert (
        trained.curve["step"].tolist() == [0, 20, 40]
        and trained.curve["loss"].iloc[-1] < 0.9 * trained.curve["loss"].iloc[1]
    )
    batch = collate(text.split()[0])
    after = load_pair_with(random_pair, trained)
    before = distillation_loss(
        random_pair, random_pair.draft.network, batch, objective
    ).item()
    assert (
        distillation_loss(after, after.draft.network, batch, objective).item()
        < 0.9 * before
    )


def load_pair_with(pair, trained):
    """The pair with a trained draft, through the real loader."""
    target, draft = (
        ModelSpec(str(pair.target.folder), device="cpu"),
        ModelSpec(str(trained.folder), device="cpu"),
    )
    return load_pair(Profile("trained", target, draft, max_prompt_tokens=128))


def test_a_killed_training_goes_on_to_the_same_bytes_and_a_finished_one_is_used_again(
    random_pair, text, tmp_path, monkeypatch
):
    whole = distil(random_pair, text, "forward-kl", CONFIG, tmp_path / "whole")
    calls, real = [], drafts.collate

    # batches: before training (two kinds of text, four domains), two steps, a checkpoint, and one
    # step more
    stop = 8 + 2 + 8 + 2

    def killed(rows):
        calls.append(1)
        if len(calls) == stop:
            raise KeyboardInterrupt
        return real(rows)

    monkeypatch.setattr(drafts, "collate", killed)
    with pytest.raises(KeyboardInterrupt):
        distil(random_pair, text, "forward-kl", CONFIG, tmp_path / "cut")
    assert list((tmp_path / "cut").rglob("checkpoint.safetensors")) and not list(
        (tmp_path / "cut").rglob("facts.json")
    )
    cut = distil(random_pair, text, "forward-kl", CONFIG, tmp_path / "cut")
    assert weights(cut) == weights(whole) and cut.curve["step"].tolist() == [0, 2, 4]
    assert not (cut.folder / "checkpoint").exists()
    monkeypatch.setattr(drafts, "optimise", None)
    assert (
        distil(random_pair, text, "forward-kl", CONFIG, tmp_path / "cut").facts
        == cut.facts
    )
    # the same below a folder of shipped drafts; nothing is written for it, and no text is asked for
    shipped = tmp_path / "shipped" / "any-profile"
    shutil.copytree(cut.folder, shipped / cut.folder.name)
    lazy = continuations(random_pair, PROMPTS, TEXT, tmp_path / "no text")
    read = distil(
        random_pair,
        lazy,
        "forward-kl",
        CONFIG,
        tmp_path / "none",
        shipped=shipped.parent,
    )
    assert read.facts == cut.facts and read.folder.parent == shipped
    assert not (tmp_path / "none").exists() and not (tmp_path / "no text").exists()
    with pytest.raises(TypeError):
        distil(
            random_pair,
            text,
            "forward-kl",
            dataclasses.replace(CONFIG, seed=1),
            tmp_path / "cut",
        )


def test_the_folder_changes_with_all_that_changes_the_weights(
    random_pair, text, tmp_path
):
    def folder(objective="sequence", texts=text, **changes):
        return distil(
            random_pair,
            texts,
            objective,
            dataclasses.replace(CONFIG, steps=1, **changes),
            tmp_path,
        ).folder

    ways = [
        folder(),
        folder("forward-kl"),
        folder(seed=1),
        folder(lr_other=1e-3),
        folder(batch=2),
        folder(texts=text.only(["math"])),
    ]
    assert len(set(ways)) == len(ways) and folder() == ways[0]


def test_texts_of_some_domains_train_on_those_only(random_pair, text, tmp_path):
    trained = distil(
        random_pair, text.only(["math", "reasoning"]), "sequence", CONFIG, tmp_path
    )
    assert {c.split()[0] for c in trained.curve.columns if " " in c} == {
        "math",
        "reasoning",
    }
    assert trained.facts["texts"] == sum(
        r.domain in ("math", "reasoning") for r in text.split()[0]
    )


def test_two_batches_a_step_are_one_of_twice_the_size(random_pair, text, tmp_path):
    rows = [r for r in text.split()[0] if len(r.hidden) == 8]
    even = with_rows(text, rows + rows)
    assert len({len(r.tokens) for r in rows}) >= 1
    one = distil(
        random_pair,
        even,
        "sequence",
        dataclasses.replace(CONFIG, steps=1, batch=2 * len(rows)),
        tmp_path,
    )
    two = distil(
        random_pair,
        even,
        "sequence",
        dataclasses.replace(CONFIG, steps=1, batch=len(rows), accumulate=2),
        tmp_path,
    )
    assert one.facts["config"] != two.facts["config"]
    a, b = (
        load_pair_with(random_pair, d).draft.network.state_dict() for d in (one, two)
    )
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=0, atol=2e-3, msg=name)


def test_gradient_checkpointing_changes_no_number(random_pair, text, tmp_path):
    plain = distil(random_pair, text, "forward-kl", CONFIG, tmp_path / "plain")
    saving = distil(
        random_pair,
        text,
        "forward-kl",
        CONFIG,
        tmp_path / "saving",
        gradient_checkpointing=True,
    )
    assert weights(plain) == weights(saving)


def test_the_tiny_draft_trained_for_two_steps_still_decodes_the_targets_text(
    tiny_pair, tmp_path
):
    text = continuations(
        tiny_pair, training_prompts(2), TextConfig(max_new_tokens=16), tmp_path
    )
    before = tiny_pair.draft.network.state_dict()["model.norm.weight"].clone()
    trained = distil(
        tiny_pair,
        text,
        "total-variation",
        TrainConfig(steps=2, batch=4, warmup_steps=1),
        tmp_path,
    )
    assert torch.equal(
        before, tiny_pair.draft.network.state_dict()["model.norm.weight"]
    ), "the pair's own draft stays as it is"
    pair = load_pair_with(tiny_pair, trained)
    assert not torch.equal(before, pair.draft.network.state_dict()["model.norm.weight"])
    for prompt in encode_prompts(pair.tokenizer, training_prompts(1, 5), 128):
        (plain,) = generate(pair.target, [prompt], 24, pair.stop_ids, Sampling(), 0)
        for shape in ("chain:4", "tree:3,2,8"):
            assert (
                decode_prompt(
                    pair, prompt, "greedy", parse_shape(shape), Sampling(), 24
                ).token_ids
                == plain
            )


@pytest.mark.parametrize(
    ("native", "dtype"), [(True, torch.bfloat16), (False, torch.float16)]
)
def test_a_gpu_that_only_emulates_bfloat16_trains_in_float16(
    monkeypatch, native, dtype
):
    monkeypatch.setattr(
        torch.cuda,
        "is_bf16_supported",
        lambda including_emulation=True: native or including_emulation,
    )
    with drafts.autocast(torch.device("cuda")):
        assert torch.get_autocast_dtype("cuda") == dtype
    with drafts.autocast(torch.device("cpu")):
        assert not torch.is_autocast_enabled("cpu"), (
            "the project's numbers on a CPU are float32"
        )


# ---- a trimmed vocabulary ------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["joined", "own"])
def trimmed_pair(request, random_folders, tmp_path_factory):
    """The random pair, whose draft says every other word; its embedding joined with the target's,
    or its own.
    """
    target, draft = random_folders
    folder = tmp_path_factory.mktemp("trimmed") / "draft"
    folder.mkdir()
    weights = load_file(draft / "model.safetensors")
    kept = torch.arange(0, 40, 2)
    weights["lm_head.weight"] = weights["lm_head.weight"][kept].contiguous()
    config = json.loads((draft / "config.json").read_text()) | {"kept_tokens": 20}
    if request.param == "joined":
        embedding = weights.pop("model.embed_tokens.weight")
        weights["embed_kept"] = embedding[kept].contiguous()
        weights["embed_map"] = 0.3 * torch.eye(32)
        config["embedding_of"] = os.path.relpath(target, folder)
    else:
        load_tokenizer(draft).save_pretrained(folder)
    save_file(weights | {"kept": kept}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    specs = [ModelSpec(str(path), device="cpu") for path in (target, folder)]
    return load_pair(Profile("trimmed", *specs, max_prompt_tokens=128))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_trimmed_draft_is_trained_and_stays_one(
    trimmed_pair, text, tmp_path, objective
):
    config = dataclasses.replace(CONFIG, steps=40, checkpoint_every=20)
    trained = distil(trimmed_pair, text, objective, config, tmp_path)
    assert np.isfinite(trained.curve["objective"]).all()
    batch = collate(text.split()[0])
    after = load_pair_with(trimmed_pair, trained)
    old, new = trimmed_pair.draft.network, after.draft.network
    before, now = (
        distillation_loss(pair, pair.draft.network, batch, objective).item()
        for pair in (trimmed_pair, after)
    )
    assert now < 0.95 * before
    assert torch.equal(new.lm_head.kept, old.lm_head.kept)
    folders = trimmed_pair.draft.folder, trained.folder
    names = [set(load_file(f / "model.safetensors")) for f in folders]
    assert names[0] == names[1], "the same form"
    rows, was = (n.get_input_embeddings().weight for n in (new, old))
    said = torch.zeros(40, dtype=torch.bool).index_fill_(0, old.lm_head.kept, True)
    assert not torch.allclose(rows[said], was[said], atol=1e-3)
    if "embed_map" in names[0]:  # the others are the target's, and are not stored
        assert torch.allclose(rows[~said], was[~said], atol=1e-6)
    for prompt in encode_prompts(after.tokenizer, training_prompts(1, 5), 32):
        (plain,) = generate(after.target, [prompt], 16, after.stop_ids, Sampling(), 0)
        shape = parse_shape("chain:3")
        made = decode_prompt(after, prompt, "greedy", shape, Sampling(), 16)
        assert made.token_ids == plain


# ---- what is there is what was written -----------------------------------------------------------


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "facts.json"])
def test_a_damaged_draft_is_refused_by_name(random_pair, text, tmp_path, name):
    config = dataclasses.replace(CONFIG, steps=1)
    made = distil(random_pair, text, "sequence", config, tmp_path)
    path = made.folder / name
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"0", b"1", 1))
    with pytest.raises(Damaged, match=rf"{name} is .*; remove it, and it is trained"):
        distil(random_pair, text, "sequence", config, tmp_path)
    path.unlink()
    if name != "facts.json":
        with pytest.raises(Damaged, match=rf"{name} is missing"):
            distil(random_pair, text, "sequence", config, tmp_path)


def test_the_tokenizer_of_a_draft_of_the_kit_is_named_not_copied(tiny_pair, tmp_path):
    drafts._export(copy.deepcopy(tiny_pair.draft.network), tiny_pair, tmp_path)
    assert not (tmp_path / "tokenizer.json").exists()
    made, own = (load_tokenizer(f) for f in (tmp_path, tiny_pair.draft.folder))
    assert made.get_vocab() == own.get_vocab()
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"tokenizer_of": 3}))
    with pytest.raises(ValueError, match=r"config.json: tokenizer_of is 3; fetch"):
        load_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config | {"tokenizer_of": "no"}))
    with pytest.raises(ValueError, match=r"no: its tokenizer cannot be used"):
        load_tokenizer(tmp_path)


# ---- LoRA ----------------------------------------------------------------------------------------


def test_adapters_alone_are_trained_and_merged(random_pair, text, tmp_path):
    pytest.importorskip("peft", reason="the extra `lora` is not installed")
    trained = distil(
        random_pair,
        text,
        "sequence",
        dataclasses.replace(CONFIG, steps=20, checkpoint_every=20),
        tmp_path,
        lora_rank=2,
    )
    own, new = (
        random_pair.draft.network.state_dict(),
        load_pair_with(random_pair, trained).draft.network.state_dict(),
    )
    assert own.keys() == new.keys()
    changed = {
        name for name in own if not torch.allclose(own[name], new[name], atol=2e-3)
    }
    assert changed and all("proj" in name for name in changed)
    for name in changed:
        assert torch.linalg.matrix_rank(new[name] - own[name], atol=5e-3) <= 2


def test_adapters_without_peft_say_what_to_install(
    random_pair, text, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(
        ImportError,
        match="lora_rank=2 needs peft: pip install peft, or take lora_rank=0",
    ):
        distil(random_pair, text, "sequence", CONFIG, tmp_path, lora_rank=2)


# ---- bad input -----------------------------------------------------------------------------------


def test_bad_input_is_named(random_pair, text, tmp_path):
    with pytest.raises(
        ValueError,
        match="objective='kl': allowed are sequence, forward-kl, reverse-kl, total-variation",
    ):
        distil(random_pair, text, "kl", CONFIG, tmp_path)
    with pytest.raises(ValueError, match="training set of no rows: no prompts came"):
        continuations(random_pair, [], TEXT, tmp_path)
    with pytest.raises(
        ValueError, match="training set of no rows: give more prompts, or other domains"
    ):
        distil(random_pair, text.only([]), "sequence", CONFIG, tmp_path)
    with pytest.raises(ValueError, match="another target wrote it"):
        other = dataclasses.replace(random_pair, target=random_pair.draft)
        distil(random_pair, continuations(other, PROMPTS, TEXT), "sequence", CONFIG)
    with pytest.raises(
        ValueError,
        match="max_prompt_tokens [+] max_new_tokens = 520: the pair takes 512 positions; lower one",
    ):
        continuations(
            random_pair,
            PROMPTS,
            dataclasses.replace(TEXT, max_prompt_tokens=512),
            tmp_path,
        )
    with pytest.raises(
        ValueError, match=r"samples=0.*greedy text, samples from 1, or both"
    ):
        TextConfig(greedy=False, samples=0)
    assert not list(tmp_path.iterdir()), "nothing is left of a refused call"


def test_a_draft_of_another_tokenizer_is_refused(random_profile, tmp_path):
    from conftest import save_random_llama

    other = save_random_llama(tmp_path / "other", 3, words=20)
    with pytest.raises(
        ValueError, match="target and draft have different vocabularies"
    ):
        load_pair(random_profile.replace(draft=ModelSpec(str(other), device="cpu")))


def test_a_loss_that_is_not_finite_names_step_and_batch_and_the_last_checkpoint_stays(
    random_pair, text, tmp_path, monkeypatch
):
    real, calls = drafts.distillation_loss, []

    def broken(*args):
        calls.append(1)
        return real(*args) * (math.nan if len(calls) == 4 else 1)

    monkeypatch.setattr(drafts, "distillation_loss", broken)
    with pytest.raises(
        FloatingPointError,
        match="sequence: step 3, batch 3: loss nan; last good checkpoint in",
    ):
        distil(random_pair, text, "sequence", CONFIG, tmp_path)
    assert list(tmp_path.rglob("checkpoint.safetensors")) and not list(
        tmp_path.rglob("facts.json")
    )
    monkeypatch.undo()
    assert (
        distil(random_pair, text, "sequence", CONFIG, tmp_path).facts["curve"][-1][
            "step"
        ]
        == 4
    )


def test_no_space_for_the_result_says_so_and_keeps_the_checkpoint(
    random_pair, text, tmp_path, monkeypatch
):
    from transformers import LlamaForCausalLM

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(LlamaForCausalLM, "save_pretrained", full)
    with pytest.raises(
        RunError,
        match=r"No space left on device. The last checkpoint is kept; free space, then run again",
    ):
        distil(random_pair, text, "sequence", CONFIG, tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(
        drafts, "distillation_loss", None
    )  # the training is done: only the export is left
    assert weights(distil(random_pair, text, "sequence", CONFIG, tmp_path))
