"""The paper's published numbers beside ours.

Source: arXiv:2604.14682v1, Tables I-VI (facts, in data/paper). Published procedure and the right
estimator stand side by side.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd

from speclab import replay, score, stats
from speclab.analysis.texts import Text
from speclab.profiles import ROOT
from speclab.score import ALL, POOLED, POSITION_BIN, Estimator
from speclab.tree import Tree

READS = ["data/paper"]
DATA = ROOT / READS[0]
TRACE, NODES = map(attrgetter, ("trace", "nodes"))  # rows of a run
TABLES = ("I", "II", "III", "IV", "V", "VI")
KEYS = ["domain", "depth", "bin", "quantity"]
OURS = ["ours_as_published", "ours_low", "ours_high"]
AS_OURS = dict(zip(["estimate", "low", "high"], OURS, strict=True))
COLUMNS = [*KEYS, "published", *OURS, "estimator", "corrected", "low", "high"]


def published(table: str) -> pd.DataFrame:
    """Published numbers of one table ('I' to 'VI'): domain, depth, bin (0 = positions 0-31),
    quantity, published.
    """
    frame = pd.read_csv(DATA / "tables.csv", dtype={"depth": "Int64", "bin": "Int64"})
    rows = frame[frame["table"] == table].rename(columns={"value": "published"})
    return rows.drop(columns="table").reset_index(drop=True)


def visited_blocks(text: Text) -> pd.DataFrame:
    """`replay.prompt_sums` of the blocks that a decoder visits with the tree of a text's nodes."""
    whole = text.nodes["node"].eq(1).cumsum() == 1  # the first tree
    columns = text.nodes.loc[whole, ["parent", "rank", "depth"]]
    root = [[-1], [0], [0]]
    tree = Tree(*np.hstack([root, columns.T]))
    return replay.prompt_sums(text.tree(tree))


@dataclass(frozen=True)
class _Row:
    """How a table's quantity is computed as published, and by the estimator that answers the
    question it is used for, from these rows of a run.
    """

    quantity: str
    as_published: Estimator
    source: Callable[[Any], pd.DataFrame]
    corrected: Estimator
    whole: str = ALL  # how the paper's row `all` comes about: mean of domains, or pooled over rows


def _rows(table: str, rule: str) -> list[_Row]:
    visited = score.block_estimators()
    path = score.best_path_accept_by_depth(rule)
    one_token = score.member(score.hit, 1) if rule == "greedy" else score.alpha
    return {
        "I": [
            _Row("alpha_mean", score.published_alpha, TRACE, one_token),
            _Row(
                "target_entropy_mean",
                score.mean_of("target_entropy"),
                TRACE,
                score.mean_of("target_entropy", "text_entropy"),
            ),
        ],
        "II": [
            _Row(
                "expected_accepted_length",
                score.published_length,
                visited_blocks,
                visited["mean_accepted"],
            )
        ],
        "III": [
            _Row(
                "chain_accepted",
                score.published_chain,
                visited_blocks,
                visited["survival_by_depth"],
            )
        ],
        "IV": [_Row("alpha_mean", score.ratio_by_depth, NODES, path)],
        "V": [_Row("alpha_mean", score.ratio_by_depth, NODES, path, whole=POOLED)],
    }[table]


def comparison(table: str, run, rule: str = "greedy") -> pd.DataFrame:
    """One row a published number of Tables I (its means) to V: COLUMNS.

    `run` has .nodes and .trace; for II and III it is a Text, on which its tree is replayed. `rule`
    is that of the run's own temperature, else `corrected` is the acceptance of no decoder: 'greedy'
    for text of T = 0, 'point-mass' for text sampled at T = 1 (see score.reach).

    `ours_as_published` repeats the published procedure on the run (interval ours_low, ours_high);
    `corrected` is the estimator named in `estimator` (interval low, high): in Table I the exact
    acceptance of one draft token (greedy: hit[1]; point-mass: alpha) and the text's own entropy;
    II, III what the same tree gets accepted in the blocks that a decoder visits; IV, V
    accept_by_depth along the best path (VI: notebook 05). What the run cannot answer is missing.
    `all` is the mean of domains, in Table V pooled over rows, as in the paper. Of a run without
    some domains of the paper only the others have rows, and `all` has none. ValueError: no nodes,
    fewer than 5 prompts in a domain, no
    position in a bin.
    """
    frame = published(table)
    score.require(run.nodes, ["domain", "prompt_id"], "nodes")
    if not {ALL, *run.nodes["domain"]} >= set(frame["domain"]):
        frame = frame[frame["domain"] != ALL]  # the paper's is a mean of other domains
    ours, right = [], []
    for which_bin, row in product(frame["bin"].drop_duplicates(), _rows(table, rule)):
        ours.append(_estimates(row, row.as_published, run.nodes, which_bin))
        rows = row.source(run)
        right.append(_estimates(row, row.corrected, rows, which_bin))
    ours = pd.concat(ours).drop(columns="estimator").rename(columns=AS_OURS)
    right = pd.concat(right).rename(columns={"estimate": "corrected"})
    return frame.merge(ours, on=KEYS).merge(right, on=KEYS, how="left")[COLUMNS]


def in_cells(table: pd.DataFrame) -> pd.DataFrame:
    """A `comparison` with few columns, to be shown: its keys, published, and either estimate with
    its interval as one text, '0.637 [0.612, 0.663]'; what is missing is blank.
    """
    keys = [key for key in KEYS if table[key].nunique() > 1]
    columns = {"ours, as published": OURS, "corrected": ["corrected", "low", "high"]}
    shown = table[[*keys, "published"]].copy()
    for name, numbers in columns.items():
        shown[name] = [
            "" if pd.isna(row[0]) else str(stats.Interval(*row, 0))
            for row in table[numbers].itertuples(index=False)
        ]
    return shown.assign(estimator=table["estimator"]).reset_index(drop=True)


def _estimates(
    row: _Row, estimator: Estimator, frame: pd.DataFrame, which_bin: int
) -> pd.DataFrame:
    """KEYS, estimator, estimate, low, high in one position bin (NA: all positions)."""
    if pd.notna(which_bin):
        frame = frame[frame["position"] // POSITION_BIN == which_bin]
    score.require(frame, [], f"position bin {which_bin} of this run")
    values = stats.by_domain(frame, estimator)
    unused = POOLED if row.whole == ALL else ALL
    values = values[values["domain"] != unused].replace({"domain": {row.whole: ALL}})
    number = values["estimator"].str.extract(r"\[(\d+)\]")[0].astype("Int64")
    values = values.assign(
        depth=number.where(values["estimator"] != estimator.name),  # not of hit[1] alone
        bin=pd.array([which_bin] * len(values), "Int64"),
        quantity=row.quantity,
        estimator=estimator.name,
    )
    return values[[*KEYS, "estimator", "estimate", "low", "high"]]
