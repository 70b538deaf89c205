"""Notebook 03: what a trace says about a draft at another temperature."""

import numpy as np
import pandas as pd
import pytest
from cells import functions_of

WORDS, KEPT = 60, 8


def softmax(logits):
    """Rows of probabilities."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("factor", [0, 0.25, 0.5, 0.9, 1, 1.1, 2])
@pytest.mark.parametrize("top_k", [WORDS, 20, 5])
def test_q_at_another_temperature_lies_in_its_bounds(factor, top_k):
    rng = np.random.default_rng(1)
    logits = np.sort(rng.normal(0, 2, (500, WORDS)))[:, ::-1]  # column: the draft's rank
    logits[:, top_k:] = -np.inf
    rank = rng.integers(0, min(top_k, 15), 500)
    row, q = np.arange(500), softmax(logits)
    trace = {"draft_rank": rank, "q_token": q[row, rank], "top_draft_q": [*q[:, :KEPT]]}
    low, high = functions_of("03")["q_bounds"](pd.DataFrame(trace), factor, WORDS - KEPT)
    true = (rank == 0).astype(float) if factor == 0 else softmax(logits / factor)[row, rank]
    assert (low <= true * (1 + 1e-9)).all() and (true <= high * (1 + 1e-9)).all()
    if factor in (0, 1) or top_k < KEPT:
        np.testing.assert_allclose(low, high, err_msg="nothing is unknown")
    elif factor < 1:
        assert (high / low).mean() < 1.2, "they say something"
