"""Claims about speed at every c: hand-made texts whose replay, best gamma and gain are known."""

import numpy as np
import pandas as pd
import pytest

from speclab import replay
from speclab.studies.paper_audit import claims, costs
from speclab.studies.paper_audit.claims import FAILS, HOLDS, TURNS, UNKNOWN
from speclab.studies.paper_audit.costs import Grid


def texts(easy=5, hard=5, length=10) -> pd.DataFrame:
    """A trace: in math every draft token is the target's, in chat none; all texts of `length`
    tokens.
    """
    prompts = [("math", f"m{i}", 0) for i in range(easy)]
    prompts += [("chat", f"c{i}", 1) for i in range(hard)]
    return pd.DataFrame(
        [(*prompt, position) for prompt in prompts for position in range(length)],
        columns=["domain", "prompt_id", "draft_rank", "position"],
    )


def sums(trace: pd.DataFrame, gammas=costs.GAMMAS) -> pd.DataFrame:
    return replay.chain_sums(trace, gammas)


def hits(trace: pd.DataFrame) -> pd.DataFrame:
    return trace.assign(hit=trace["draft_rank"] == 0)


def same(row: dict, value: float) -> None:
    """Equal prompts: the interval is a point."""
    found = [row[name] for name in ("estimate", "low", "high")]
    assert found == pytest.approx([value] * 3)


def verdict(rows: list[dict], of: str) -> str:
    """The verdict on a listed claim of these rows."""
    claim = claims.claims()[of]
    edges = [claim.bounds(row["row"]) for row in rows]
    least, most = zip(*edges, strict=True)
    return claims.verdict(claim, pd.DataFrame(rows).assign(least=least, most=most))


# ---- speed-ups and the article's rule ------------------------------------------------------------


def test_speed_ups_by_hand():
    """math: 10 tokens in 3 blocks (4, 4, 2); chat: in 10."""
    grid = Grid((0.29,), (0.0, 0.1))
    rows = costs.speed_ups(sums(texts()), 3, ["math", "chat"], grid)
    assert [(row["slope"], row["row"]) for row in rows] == [
        (0.0, "math"), (0.0, "chat"), (0.1, "math"), (0.1, "chat"),
    ]  # fmt: skip
    for row, price in zip(rows, (1.87, 1.87, 2.17, 2.17), strict=True):
        same(row, (10 / 3 if row["row"] == "math" else 1) / price)


def test_the_rule_over_the_replay_at_the_same_cost_by_hand():
    grid = Grid((0.05,), (0.0, 0.1))
    rows = costs.rule_error(sums(texts()), hits(texts()), "hit", 4, grid)
    math, chat, steep, _ = rows
    # 2 blocks of 5 tokens at 1.2 or 1.6 target passes; the rule has 4 tokens for 1.2
    same(math, (4 / 1.2) / (5 / 1.2))
    same(chat, 0.0)  # no hit: no token that the rule counts
    same(steep, (4 / 1.2) / (5 / 1.6))


# ---- the best gamma ------------------------------------------------------------------------------


def test_best_gammas_by_hand():
    chains = costs.ChainSpeeds.of(sums(texts(length=16)))
    assert chains.gammas.tolist() == list(range(17))
    grid = Grid((0.05, 5.0), (0.0,))
    cheap, dear = costs.best_gamma_rows(chains, "math", grid)
    same(cheap, 15)  # one block of 16 tokens at 1.75 target passes
    same(dear, 0)  # a draft pass costs more than it could save
    for row in costs.best_gamma_rows(chains, "chat", grid):
        same(row, 0)  # nothing is accepted: plain decoding
    with pytest.raises(ValueError, match=r"domain \['poetry'\] has no rows"):
        costs.best_gamma_rows(chains, "poetry", grid)


def test_the_best_gamma_of_a_free_draft_is_the_first_of_equals():
    """One block from gamma 9 on, of 10 tokens: what is longer is no faster."""
    chains = costs.ChainSpeeds.of(sums(texts()))
    assert (chains.best("math", 0.0, 0.0) == 9).all()
    assert chains.best("math", 0.0, 0.0).shape == (chains.tau.shape[0],)


def test_the_contrast_of_gammas_by_hand_and_its_verdict():
    chains = costs.ChainSpeeds.of(sums(texts(length=16)))
    grid = Grid((0.05, 5.0), (0.0,))
    rows = costs.gamma_contrast(chains, "math", "chat", grid)
    same(rows[0], 15)
    same(rows[1], 0)
    assert rows[0]["row"] == "math - chat"
    assert verdict(rows, "gamma-contrast") == TURNS
    assert verdict(rows[:1], "gamma-contrast") == HOLDS
    assert verdict(rows[1:], "gamma-contrast") == FAILS
    other = costs.gamma_contrast(chains, "chat", "math", grid)
    same(other[0], -15)
    assert verdict(other[:1], "deeper-chat") == FAILS


def test_gammas_that_the_prompts_do_not_agree_on_cannot_be_told():
    """Half of the texts want long chains, half plain decoding."""
    trace = texts(20, 20, length=12)
    number = trace["prompt_id"].str[1:].astype(int)
    trace["draft_rank"] = (number % 2 == 0) * 1
    chains = costs.ChainSpeeds.of(sums(trace))
    rows = costs.gamma_contrast(chains, "math", "chat", Grid((0.2,), (0.0,)))
    assert verdict(rows, "gamma-contrast") == UNKNOWN


# ---- a gamma for each domain ---------------------------------------------------------------------


def test_budget_gains_by_hand():
    # gamma 1, c 0.25: math 5 blocks of 1.25, chat 10; gamma 4: math 2 blocks of 2, chat 10. One
    # gamma: 1 (6.25 + 12.5 against 4 + 20), in every resample of so many prompts
    two = sums(texts(20, 20), (1, 4))
    (row,) = costs.budget_gains(two, Grid((0.25,), (0.0,)))
    assert row["estimate"] == pytest.approx(18.75 / 16.5 - 1)
    assert row["low"] <= row["estimate"] <= row["high"]
    (free,) = costs.budget_gains(two, Grid((0.0,), (0.0,)))
    same(free, 0.0)  # drafts that cost nothing: 4 for everybody
    assert (free["c"], free["slope"]) == (0.0, 0.0)


def test_a_gain_is_not_fitted_on_the_prompts_it_is_counted_on():
    """Of equal domains a gamma each is noise: fitted on the same prompts it could only gain."""
    rng, gains = np.random.default_rng(3), []
    for _ in range(6):
        trace = texts(8, 8, 30)
        trace["draft_rank"] = (rng.random(len(trace)) < 0.3).astype(int)
        (row,) = costs.budget_gains(sums(trace), Grid((0.1,), (0.0,)))
        gains.append(row["estimate"])
    assert min(gains) < 0 and np.mean(gains) < 0.005


def test_gains_of_part_of_the_blocks_are_those_of_as_many_tokens():
    """gamma 1 kept 2 tokens in 1 block a prompt, gamma 4 all 10 in 2: for 2 tokens, 0.4 blocks."""
    two = sums(texts(5, 5), (1, 4))
    math = two["domain"] == "math"
    part = math & (two["gamma"] == 1)
    two.loc[part, ["emitted", "blocks"]] = [2, 1]
    (row,) = costs.budget_gains(two, Grid((0.25,), (0.0,)))
    # one gamma: 1 (1.25 + 12.5 against 0.8 + 20); each: 4 for math
    assert row["estimate"] == pytest.approx(13.75 / 13.3 - 1)
