"""The training loop on a small model: it learns, resumes to the same weights, and stops at a loss
that is not finite.
"""

import dataclasses
import json
import resource
import signal

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from data.pairs.tiny.prepare import Stream, losses, next_token_loss
from speclab.drafts.train import TrainConfig, learning_rate_scale, optimise
from speclab.runs import RunError

CONFIG = TrainConfig(steps=8, batch=2, context=16, checkpoint_every=4, warmup_steps=2)
TOKENS = np.tile(np.arange(2, 30), 20).astype(np.uint16)


def fresh():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32,
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            tie_word_embeddings=True,
        )
    )


def next_tokens(model, rows, step):
    return next_token_loss(model, rows)


def run(folder, config=CONFIG, batch=None, loss=next_tokens, **changes):
    model, stream = fresh(), Stream(TOKENS, config)

    def measure(model):
        return losses(model, {"code": stream.batch(99)})

    log = optimise(
        model, batch or stream.batch, config, folder, loss, measure, **changes
    )
    return model, log


def test_the_loss_falls_and_the_log_has_one_row_a_checkpoint(tmp_path):
    _, log = run(
        tmp_path,
        TrainConfig(steps=60, batch=2, context=16, checkpoint_every=20, warmup_steps=2),
    )
    assert [row["step"] for row in log] == [19, 39, 59] and log[-1]["code"] < 0.8 * log[
        0
    ]["code"]
    assert json.loads((tmp_path / "log.json").read_text()) == log


def killed(folder):
    """Train in a folder and stop at the sixth step: there is a checkpoint of four."""
    stream = Stream(TOKENS, CONFIG)

    def killed_at_the_sixth_step(step):
        if step == 5:
            raise KeyboardInterrupt
        return stream.batch(step)

    with pytest.raises(KeyboardInterrupt):
        run(folder, batch=killed_at_the_sixth_step)


def test_a_killed_run_resumes_to_the_same_weights(tmp_path):
    whole, _ = run(tmp_path / "whole")
    killed(tmp_path / "cut")
    resumed, log = run(tmp_path / "cut")
    assert [row["step"] for row in log] == [3, 7]
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(
            resumed.state_dict()[name], value, rtol=0, atol=0, msg=name
        )


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_checkpoint(tmp_path):
    calls = []

    def broken(model, rows, step):
        calls.append(step)
        return next_token_loss(model, rows) * (float("nan") if len(calls) == 6 else 1)

    with pytest.raises(
        FloatingPointError,
        match="train: step 5, batch 5: loss nan; last good checkpoint in",
    ):
        run(tmp_path, loss=broken)
    assert all(
        torch.isfinite(v).all()
        for v in load_file(tmp_path / "checkpoint.safetensors").values()
    )


def test_a_checkpoint_that_cannot_be_written_says_so_and_the_last_good_one_stays(
    tmp_path,
):
    """A limit on the size of files stands for a full disk: the file system itself refuses, in the
    middle of a file.
    """
    killed(tmp_path)
    good, old = (
        (tmp_path / "checkpoint.safetensors").read_bytes(),
        resource.getrlimit(resource.RLIMIT_FSIZE),
    )
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(good) // 2, old[1]))
    try:
        with pytest.raises(
            RunError,
            match=r"cannot write .*checkpoint of step 7, the last good one stays; free space",
        ):
            run(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == good and not list(
        tmp_path.glob("*.tmp")
    )
    assert [row["step"] for row in run(tmp_path)[1]] == [3, 7]


def test_a_call_killed_between_the_two_files_of_a_checkpoint_resumes_from_the_weights_it_finds(
    tmp_path,
):
    whole, log = run(tmp_path / "whole")
    run(
        tmp_path / "cut",
        TrainConfig(steps=8, batch=2, context=16, checkpoint_every=4, warmup_steps=2),
    )
    (tmp_path / "cut" / "log.json").write_text(json.dumps(log[:1]))
    resumed, again = run(tmp_path / "cut")
    assert [row["step"] for row in again] == [3, 7]
    torch.testing.assert_close(resumed.state_dict(), whole.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("changes", "about", "words"),
    [
        ({"seed": 1}, None, "seed is 0 there, 1 is asked"),
        ({"steps": 4}, None, "steps is 8 there, 4 is asked"),
        (
            {"lr_other": 1e-3, "batch": 3},
            None,
            "batch is 2 there, 3 is asked; lr_other",
        ),
        ({}, {"text": "new"}, "text is None there, new is asked"),
    ],
)
def test_a_checkpoint_of_another_training_is_not_gone_on_from(
    tmp_path, changes, about, words
):
    killed(tmp_path)
    before = (tmp_path / "checkpoint.safetensors").read_bytes()
    with pytest.raises(RunError, match=f"is of another training .{words}") as refused:
        run(tmp_path, dataclasses.replace(CONFIG, **changes), about=about)
    assert str(tmp_path) in str(refused.value) and "\n" not in str(refused.value)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == before
    more_often = dataclasses.replace(CONFIG, checkpoint_every=2)
    assert [row["step"] for row in run(tmp_path, more_often)[1]] == [3, 5, 7]


def test_a_checkpoint_that_does_not_say_its_settings_is_said(tmp_path, capsys):
    """Those of older kits."""
    killed(tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    with safe_open(path, "pt") as opened:
        facts = {k: v for k, v in opened.metadata().items() if k != "settings"}
    save_file(load_file(path), path, facts)
    assert [row["step"] for row in run(tmp_path)[1]] == [3, 7]
    assert "does not say its settings: going on from it" in capsys.readouterr().err


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def other_tensors(path):
    save_file({"x": torch.zeros(1)}, path, {"step": "3"})


def other_model(path):
    with safe_open(path, "pt") as opened:
        save_file({"x": torch.zeros(1)}, path, opened.metadata())


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (cut, "is damaged or cut"),
        (lambda path: path.write_bytes(b""), "is damaged or cut"),
        (other_tensors, "is no checkpoint"),
        (other_model, "is of another model"),
    ],
)
def test_a_damaged_checkpoint_is_named_in_one_line(tmp_path, spoil, words):
    killed(tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    spoil(path)
    with pytest.raises(ValueError, match="remove its folder to start anew") as refused:
        run(tmp_path)
    said = str(refused.value)
    assert words in said and str(path) in said and "\n" not in said


def test_scaled_gradients_train_to_the_same_weights_and_resume(tmp_path):
    plain, _ = run(tmp_path / "plain")
    scaled, _ = run(tmp_path / "scaled", scaled=True)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(
            scaled.state_dict()[name], value, rtol=1e-3, atol=1e-3, msg=name
        )
    with safe_open(tmp_path / "scaled" / "checkpoint.safetensors", "pt") as opened:
        assert json.loads(opened.metadata()["scale"])["_growth_tracker"] == CONFIG.steps


def test_every_row_comes_once_an_epoch_and_depends_on_seed_and_step_alone():
    config = TrainConfig(steps=1, batch=1, context=16)
    stream = Stream(TOKENS, config)
    rows = [tuple(stream.batch(step)[0].tolist()) for step in range(stream.rows)]
    wanted = [tuple(TOKENS[i * 16 : i * 16 + 17].tolist()) for i in range(stream.rows)]
    assert sorted(rows) == sorted(wanted) and rows != wanted
    other = Stream(TOKENS, TrainConfig(steps=1, batch=1, context=16, seed=1))
    assert [tuple(other.batch(step)[0].tolist()) for step in range(other.rows)] != rows


def test_the_learning_rate_warms_up_stays_and_decays_to_zero():
    config = TrainConfig(steps=100, warmup_steps=10, decay_share=0.4)
    assert [
        learning_rate_scale(s, config) for s in (0, 9, 59, 80, 100)
    ] == pytest.approx([0.1, 1, 1, 0.5, 0])


def test_ignored_labels_carry_no_loss():
    model, rows = fresh(), torch.randint(0, 32, (2, 9))
    ignored = torch.zeros(2, 8, dtype=torch.bool)
    ignored[0] = True
    torch.testing.assert_close(
        next_token_loss(model, rows, ignored),
        next_token_loss(model, rows[1:]),
        rtol=1e-2,
        atol=1e-2,
    )


def test_too_little_text_and_bad_settings_are_named():
    with pytest.raises(
        ValueError, match="training set of 5 tokens: at least 17 are needed"
    ):
        Stream(TOKENS[:5], CONFIG)
    with pytest.raises(ValueError, match="batch=0: allowed are whole numbers from 1"):
        TrainConfig(steps=1, batch=0)
    with pytest.raises(ValueError, match="seed=-1: allowed are whole numbers from 0"):
        TrainConfig(steps=1, seed=-1)
