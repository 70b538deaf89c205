"""The distillation scripts: objectives against hand-written sums, positions with loss, killed
trainings, bad input, and decoding that stays lossless.
"""

import dataclasses

import numpy as np
import pytest
import torch
from conftest import interrupted
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from data.drafts import distil as scripts
from data.drafts.distil import OBJECTIVES, collate, distil, distillation_loss
from data.drafts.texts import TextConfig, continuations
from data.drafts.train import FILE, TrainConfig
from speclab.study.prompts import training_prompts

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


def by_hand(objective, p, q, token):
    """The value from sums over the words."""
    p, q = np.array(p), np.array(q)
    return {
        "sequence": -np.log(q[token]),
        "forward-kl": sum(p * np.log(p / q)),
        "reverse-kl": sum(q * np.log(q / p)),
        "total-variation": sum(abs(p - q)) / 2,
    }[objective]


@pytest.mark.parametrize("objective", OBJECTIVES)
@given(logits, logits, st.integers(0, 2))
def test_an_objective_is_the_sum_by_hand(objective, left, right, token):
    p, q = torch.tensor([left, right], dtype=torch.float64)[:, None]
    value = OBJECTIVES[objective](p, q, torch.tensor([token]))
    wanted = by_hand(objective, softmax(left), softmax(right), token)
    assert value.item() == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_tokens_that_the_draft_cannot_output_have_no_infinite_loss(objective):
    """Of three tokens the draft outputs the first two."""
    p = torch.tensor([[0.5, 0.2, 0.3]], dtype=torch.float64).log()
    known = torch.tensor([[0.3, 0.7]], dtype=torch.float64).log().requires_grad_(True)
    q = torch.nn.functional.pad(known, (0, 1), value=-torch.inf)
    value, outside = (OBJECTIVES[objective](p, q, torch.tensor([token])) for token in (0, 2))
    wanted = by_hand(objective, [0.5 / 0.7, 0.2 / 0.7], [0.3, 0.7], 0)
    if objective == "total-variation":  # over the whole vocabulary: 1 minus the overlap
        wanted = 1 - (0.3 + 0.2)
    assert value.item() == pytest.approx(wanted, abs=1e-12)
    (gradient,) = torch.autograd.grad(outside.sum(), known)
    assert gradient.isfinite().all() and outside.isfinite().all()


# ---- texts and batches ---------------------------------------------------------------------------


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
def test_only_the_continuation_carries_loss_and_padding_none(random_pair, text, objective):
    rows = [text.rows[0], text.rows[7], text.rows[-1]]
    assert len({len(r.tokens) for r in rows}) > 1, "else padding would not be seen"
    total = sum(alone(random_pair, row, objective) for row in rows)
    mean = total / sum(len(row.tokens) - 1 - row.first for row in rows)
    assert loss_of(random_pair, rows, objective) == pytest.approx(mean, abs=5e-3)


# ---- training ------------------------------------------------------------------------------------


def weights(draft):
    return (draft.folder / "model.safetensors").read_bytes()


def test_a_killed_training_goes_on_to_the_same_bytes_and_a_finished_draft_is_read(
    text, tmp_path, monkeypatch
):
    def trained(base="cut", config=CONFIG):
        return distil(text, "forward-kl", config, "it", tmp_path / base)

    whole = trained("whole")
    # batches: before training, two steps, a checkpoint, and one step more
    interrupted(monkeypatch, scripts, "collate", at=1 + 2 + 1 + 2)
    with pytest.raises(KeyboardInterrupt):
        trained()
    assert list((tmp_path / "cut").rglob(FILE))
    assert not list((tmp_path / "cut").rglob("facts.json"))
    cut = trained()
    assert weights(cut) == weights(whole) and cut.curve["step"].tolist() == [0, 2, 4]
    assert not (cut.folder / "checkpoint").exists()
    monkeypatch.setattr(scripts, "optimise", None)
    assert trained().facts == cut.facts
    with pytest.raises(TypeError):
        trained(config=dataclasses.replace(CONFIG, seed=1))
