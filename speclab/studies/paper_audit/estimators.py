"""Estimators that the audit's claims need beside those of `speclab.score`: differences between
groups of rows, shares of variance, design effects, and what a chain gets accepted by depth.

Each depends on a frame through sums over its rows, so that `speclab.stats` resamples prompts.
"""

from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd

from speclab import replay, score
from speclab.analysis import power, rungs
from speclab.score import POSITION_BIN, Estimator, column_of, divide, quotient, require

# names of the means of a column
MEANS = {"ratio": "published_alpha", "overlap": "alpha", "hit": "hit[1]"}


def first_less_second(value: str, name: str, groups: Callable) -> Estimator:
    """Mean of `value` over one group of rows less that over another; groups(frame): both masks."""

    def columns(frame: pd.DataFrame) -> np.ndarray:
        member = np.stack(groups(frame), axis=1)
        return np.hstack(
            [np.where(member, column_of(frame, value)[:, None], 0.0), member]
        )

    def difference(totals: np.ndarray) -> np.ndarray:
        means = quotient(totals)
        return means[..., :1] - means[..., 1:]

    return Estimator(name, columns, difference)


def gap(value: str, first: str, second: str) -> Estimator:
    """Mean of a column in one domain less that in another."""
    return first_less_second(
        value,
        MEANS.get(value, value),
        lambda frame: [frame["domain"] == first, frame["domain"] == second],
    )


def late_minus_early(value: str, bin_size: int = POSITION_BIN) -> Estimator:
    """Mean of a column over positions from `bin_size` on less that over those before (the paper's
    bins 1 and 0, if no text is longer).
    """
    return first_less_second(
        value,
        f"{MEANS.get(value, value)}, late - early",
        lambda frame: [frame["position"] >= bin_size, frame["position"] < bin_size],
    )


def sums_in_cells(
    frame: pd.DataFrame, value: str, factors: Iterable[str]
) -> pd.DataFrame:
    """The rows of a frame summed over the cells of a prompt in which every factor is the same:
    prompt_id, domain, the factors, count, total and squares (of the value). What depends on sums
    over rows alone is the same of both, and there are fewer cells.
    """
    y = column_of(frame, value)
    keys = list(dict.fromkeys(["prompt_id", "domain", *factors]))
    rows = frame[keys].assign(count=1.0, total=y, squares=y * y)
    return rows.groupby(keys, sort=False, observed=True).sum().reset_index()


def shares_alone(cells: pd.DataFrame, factors: Iterable[str]) -> Estimator:
    """Share of the variance of a value between the levels that each factor has in `cells`
    (`sums_in_cells`): a family, in the order of the factors.
    """
    levels = {factor: np.sort(cells[factor].unique()) for factor in factors}

    def columns(rows: pd.DataFrame) -> np.ndarray:
        sums, parts = rows[["count", "total", "squares"]].to_numpy(np.float64), []
        for factor, known in levels.items():
            member = rows[factor].to_numpy()[:, None] == known
            parts += [sums[:, 1:2] * member, sums[:, :1] * member]
        return np.hstack([*parts, sums])

    def shares(totals: np.ndarray) -> np.ndarray:
        count, total, squares = np.moveaxis(totals[..., -3:], -1, 0)
        mean_square, found, start = total**2 / count, [], 0
        for known in levels.values():
            end = start + 2 * len(known)
            sums, counts = np.split(totals[..., start:end], 2, axis=-1)
            between = np.nansum(divide(sums**2, counts), axis=-1) - mean_square
            found.append(divide(between, squares - mean_square))
            start = end
        return np.stack(found, axis=-1)

    return Estimator("share of variance", columns, shares, scalar=False)


def share_gap(cells: pd.DataFrame, first: str, second: str) -> Estimator:
    """Share of the variance of a value between the levels of one factor less that of another, from
    `sums_in_cells` of the two.
    """
    shares = shares_alone(cells, [first, second])

    def difference(totals: np.ndarray) -> np.ndarray:
        both = shares.value(totals)
        return both[..., :1] - both[..., 1:]

    return Estimator(f"share of {first} - of {second}", shares.columns, difference)


def named_design_effect(value: str = "ratio") -> Estimator:
    """`power.design_effect` under the name that the mean of a column has in GLOSSARY.md."""
    return power.design_effect(MEANS.get(value, value))


def both_bins(frame: pd.DataFrame, bin_size: int = POSITION_BIN) -> pd.DataFrame:
    """Rows of the prompts whose text reaches the second bin, so that early and late are the same
    prompts. ValueError if none does.
    """
    longest = frame.groupby("prompt_id")["position"].transform("max")
    name = f"positions from {bin_size} on, their prompts"
    return require(frame[longest >= bin_size], ["domain"], name)


def named_mean(value: str) -> Estimator:
    """Mean of a column under the name that it has in GLOSSARY.md."""
    return score.mean_of(value, MEANS.get(value, value))


def length_ratio(rule: str) -> Estimator:
    """The paper's E[L] over what the same tree gets accepted under `rule`, from `nodes`."""
    accepted = score.tree_estimators(rule)["mean_accepted"]

    def columns(nodes: pd.DataFrame) -> np.ndarray:
        parts = score.published_length.columns(nodes), accepted.columns(nodes)
        return np.hstack(parts)

    def ratio(totals: np.ndarray) -> np.ndarray:
        depths = (totals.shape[-1] - 4) // 3  # 2 columns a depth, then 1 and four more
        published = score.published_length.value(totals[..., : 2 * depths])
        return divide(published, accepted.value(totals[..., 2 * depths :]))

    return Estimator("published_length / mean_accepted", columns, ratio)


def tested(blocks: pd.DataFrame) -> pd.DataFrame:
    """One row for each drafted token of a chain's blocks (`replay.replay`) whose predecessors were
    all accepted, which is when a decoder tests it: prompt_id, domain, depth, kept.
    """
    levels = [name for name in blocks if str(name).startswith("survival_")]
    parts, before = [], np.ones(len(blocks))
    for depth, name in enumerate(levels, 1):
        asked = (before == 1) & (blocks["remaining"] >= depth)
        rows = blocks.loc[asked, ["prompt_id", "domain"]]
        parts.append(rows.assign(depth=depth, kept=blocks.loc[asked, name]))
        before = blocks[name]
    return pd.concat(parts, ignore_index=True)


def second_tokens(trace: pd.DataFrame) -> pd.DataFrame:
    """Positions whose own token was accepted and that have a next one: prompt_id, domain,
    position, and `hit` of the next, which is the token at depth 2 of a chain that starts there.
    """
    rows = score.with_hits(trace).sort_values(["prompt_id", "position"])
    after = rows.shift(-1)
    follows = (rows["prompt_id"] == after["prompt_id"]) & (
        after["position"] == rows["position"] + 1
    )
    kept = rows[rows["hit"] & follows]
    names = ["prompt_id", "domain", "position"]
    return kept[names].assign(hit=after.loc[kept.index, "hit"].astype(float))


def deeper_less_first(
    nodes: pd.DataFrame, trace: pd.DataFrame, rule: str
) -> pd.DataFrame:
    """Nodes of the best path at depth 2 and more that a lossless decoder tests (their ancestors are
    the text itself), beside the first drafted token at the same place of the text: prompt_id,
    domain, depth, and `more`, the acceptance of the deeper one less that of the first.

    Acceptance: 0 or 1 at T = 0 (rule "greedy"), at T > 0 ("point-mass") the token's p (recorded in
    float32, so `more` is rounded to 6 decimals).
    """
    value = (
        nodes["target_rank"] == 0 if rule == "greedy" else nodes["target_prob"]
    ).astype(float)
    path = nodes.assign(value=value)[nodes["best_path"]]
    first = path[path["depth"] == 1].set_index(["prompt_id", "position"])["value"]
    hits = score.with_hits(trace).set_index(["prompt_id", "position"])["hit"]
    parts = []
    for depth in range(2, int(path["depth"].max()) + 1):
        rows = path[path["depth"] == depth]
        for back in range(depth - 1):
            rows = rows[_at(hits, rows, back) == True]  # noqa: E712  (missing past the end)
        more = rows["value"] - _at(first, rows, depth - 1).astype(float)
        parts.append(rows[["prompt_id", "domain", "depth"]].assign(more=more.round(6)))
    return pd.concat(parts, ignore_index=True).dropna(ignore_index=True)


def _at(values: pd.Series, rows: pd.DataFrame, later: int) -> np.ndarray:
    """The value at each row's prompt and its position + `later`; missing past a text's end."""
    places = [rows["prompt_id"], rows["position"] + later]
    return values.reindex(pd.MultiIndex.from_arrays(places)).to_numpy()


def by_depth_change(blocks: pd.DataFrame) -> tuple[pd.DataFrame, Estimator]:
    """Per-prompt sums of the blocks that have room to the text's end, and the estimator of
    `accept_by_depth` at the last depth less at the first on them.
    """
    sums = replay.prompt_sums(blocks, ends="room")
    family = score.block_estimators()["accept_by_depth"]
    return sums, rungs.change(family)
