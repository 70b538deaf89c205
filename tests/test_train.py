"""The training loop on a small model: it learns, resumes to the same weights, and stops at a loss
that is not finite.
"""

import dataclasses
import resource
import signal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from data.drafts.train import FILE, TrainConfig, learning_rate_scale, optimise
from data.pairs.tiny.prepare import Stream, losses, next_token_loss
from speclab.runs import RunError

CONFIG = TrainConfig(steps=8, batch=2, context=16, checkpoint_every=4, warmup_steps=2)
TOKENS = np.tile(np.arange(2, 30), 20).astype(np.uint16)


def fresh():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    shape |= {"vocab_size": 32, "num_attention_heads": 2, "tie_word_embeddings": True}
    return LlamaForCausalLM(LlamaConfig(**shape))


def next_tokens(model, rows, step):
    return next_token_loss(model, rows)


def run(folder, config=CONFIG, batch=None, loss=next_tokens, **changes):
    model, stream = fresh(), Stream(TOKENS, config)

    def measure(model):
        return losses(model, {"code": stream.batch(99)})

    made = batch or stream.batch
    return model, optimise(model, made, config, folder, loss, measure, **changes)


def same_weights(one, other, tolerance=0):
    weights = one.state_dict(), other.state_dict()
    torch.testing.assert_close(*weights, rtol=tolerance, atol=tolerance)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A model that was trained without a pause."""
    return run(tmp_path_factory.mktemp("whole"))[0]


@pytest.fixture
def cut(tmp_path):
    """The folder of a training that was killed at its sixth step: a checkpoint of four."""
    stream = Stream(TOKENS, CONFIG)

    def killed_at_the_sixth_step(step):
        if step == 5:
            raise KeyboardInterrupt
        return stream.batch(step)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, batch=killed_at_the_sixth_step)
    return tmp_path


def test_the_loss_falls_and_the_log_has_one_row_a_checkpoint(tmp_path):
    config = dataclasses.replace(CONFIG, steps=60, checkpoint_every=20)
    _, log = run(tmp_path, config)
    assert [row["step"] for row in log] == [19, 39, 59]
    assert log[-1]["code"] < 0.8 * log[0]["code"]


def test_a_killed_run_resumes_to_the_same_weights(cut, whole):
    resumed, log = run(cut)
    assert [row["step"] for row in log] == [3, 7]
    same_weights(resumed, whole)


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_good_checkpoint(tmp_path):
    def broken(model, rows, step):
        return next_token_loss(model, rows) * (float("nan") if step == 5 else 1)

    with pytest.raises(FloatingPointError, match="step 5: loss nan"):
        run(tmp_path, loss=broken)
    kept = load_file(tmp_path / FILE)
    assert all(torch.isfinite(weights).all() for weights in kept.values())


def test_a_checkpoint_that_cannot_be_written_says_so_and_the_last_good_one_stays(cut):
    """A limit on the size of files stands for a full disk: the file system itself refuses, in the
    middle of a file.
    """
    good, old = (cut / FILE).read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(good) // 2, old[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            run(cut)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert (cut / FILE).read_bytes() == good and not list(cut.glob("*.tmp"))
    assert [row["step"] for row in run(cut)[1]] == [3, 7]


@pytest.mark.parametrize(
    ("changes", "about", "words"),
    [({"lr_other": 1e-3, "seed": 1}, None, "lr_other, seed"), ({}, {"text": "new"}, "text")],
)  # fmt: skip
def test_a_checkpoint_of_another_training_is_not_gone_on_from(
    cut, changes, about, words
):
    before = (cut / FILE).read_bytes()
    with pytest.raises(RunError, match=f"belongs to a training with another {words}; "):
        run(cut, dataclasses.replace(CONFIG, **changes), about=about)
    assert (cut / FILE).read_bytes() == before
    more_often = dataclasses.replace(CONFIG, checkpoint_every=2)
    assert [row["step"] for row in run(cut, more_often)[1]] == [3, 5, 7]


def test_a_damaged_checkpoint_is_named(cut):
    path = cut / FILE
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=f"{path} is damaged or cut"):
        run(cut)


def test_the_learning_rate_warms_up_stays_and_decays_to_zero():
    config = TrainConfig(steps=100, warmup_steps=10, decay_share=0.4)
    scales = [learning_rate_scale(step, config) for step in (0, 9, 59, 80, 100)]
    assert scales == pytest.approx([0.1, 1, 1, 0.5, 0])
