"""The scripts' training loop on a linear layer: a killed training ends with the same weights."""

import pytest
import torch

from data.drafts.train import TrainConfig, optimise

CONFIG = TrainConfig(steps=8, checkpoint_every=4, warmup_steps=2)


def rows(step):
    """A batch of float32 [4, 3] that depends on its number alone."""
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(step))


def squares(model, batch, step):
    return model(batch).square().mean()


def run(folder, config=CONFIG, batch=rows, loss=squares, **more):
    """Train a layer; its log and its weights."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 3)
    log = optimise(model, batch, config, folder, loss, lambda _: {}, **more)
    return log, model.weight.tolist()


@pytest.fixture
def cut(tmp_path):
    """The folder of a training that was killed at its sixth step: a checkpoint of four."""

    def killed(step):
        if step == 5:
            raise KeyboardInterrupt
        return rows(step)

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, batch=killed)
    return tmp_path


def test_a_killed_training_resumes_to_the_same_weights(cut, tmp_path):
    resumed, whole = run(cut), run(tmp_path / "whole")
    assert [row["step"] for row in resumed[0]] == [3, 7]
    assert resumed[1] == whole[1]
    other = run(tmp_path / "other", batch=lambda step: rows(step + 1))
    assert other[1] != whole[1], "other batches give other weights"
