"""The paper's published numbers, compared with ours.

Source: arXiv:2604.14682v1, Tables I-VI (facts, in data/paper). Each table has the published
procedure on our run and the estimator that is exact for a decoder.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from speclab import replay, score, stats
from speclab.plain import DOMAINS, Array
from speclab.score import ALL, POOLED, Estimator
from speclab.study.profiles import ROOT
from speclab.tree import Tree

DATA = ROOT / "data" / "paper"
POSITION_BIN = 32  # tokens; the paper's bin 0 is positions 0-31, half of its texts
KEYS = ["domain", "depth", "bin", "quantity"]
OURS = ["ours_as_published", "ours_low", "ours_high"]
CORRECTED = ["corrected", "low", "high"]
COLUMNS = [*KEYS, "published", *OURS, "estimator", *CORRECTED]


def published(table: str) -> pd.DataFrame:
    """Published numbers of one table ('I' to 'VI'): domain, depth, bin (0 = positions 0-31),
    quantity, published.
    """
    frame = pd.read_csv(DATA / "tables.csv", dtype={"depth": "Int64", "bin": "Int64"})
    rows = frame[frame["table"] == table].rename(columns={"value": "published"})
    return rows.drop(columns="table").reset_index(drop=True)


def comparison(
    table: str,
    run: Any,
    rule: str = "greedy",
    tree: Tree | None = None,
    half: int = POSITION_BIN,
) -> pd.DataFrame:
    """One row for each published number of Tables I (its means) to V, and for the same numbers of
    domains that the paper does not have: COLUMNS.

    `run` has .nodes and .trace; for Tables II and III it is a Text, on which `tree` is replayed.
    `rule` has to fit the run's temperature, or `corrected` is not the acceptance of any decoder:
    'greedy' for text of T = 0, 'point-mass' for text sampled at T = 1 (see score.reach).

    `ours_as_published` repeats the published procedure on the run (interval ours_low, ours_high).
    `corrected` is the estimator named in `estimator` (interval low, high). In Table I this is the
    exact acceptance of one draft token (greedy: hit[1]; point-mass: alpha) and the text's own
    entropy. In II and III it is what a decoder of the same tree accepts in the blocks that it
    visits, in IV and V accept_by_depth along the best path (VI: notebook 05). Numbers that the run
    cannot give are missing.

    `all` is the mean of domains, in Table V pooled over rows, as in the paper. If the run lacks
    some of the paper's domains, only its own domains have rows, and `all` has none. A run with a
    domain that the paper does not have is another study, and `published` is missing in all its
    rows. Table V has `all` only, so `published` is missing if the run lacks a domain of the paper.
    half: tokens of a position bin of Table V. ValueError: no nodes, or no position in a bin.
    """
    frame = published(table)
    domains = score.domains_in(run.nodes)
    if set(domains) < set(DOMAINS):
        frame = frame[frame["domain"] != ALL]  # the paper's is a mean of other domains
    if frame.empty or not set(domains) <= set(DOMAINS):
        frame = _unpublished(published(table), domains)
    rows = run.nodes if table in ("IV", "V") else run.trace
    if table in ("II", "III"):
        rows = replay.prompt_sums(run.tree(tree))
    in_table = partial(_estimates, half=half, unused=ALL if table == "V" else POOLED)
    ours, right = [], []
    for position_bin in frame["bin"].unique():
        for quantity, as_published, exact in _estimators(table, rule):
            ours.append(in_table(run.nodes, as_published, quantity, position_bin))
            right.append(in_table(rows, exact, quantity, position_bin))
    as_in_paper = pd.concat(ours).drop(columns="estimator")
    as_in_paper = as_in_paper.set_axis([*KEYS, *OURS], axis=1)
    corrected = pd.concat(right).set_axis([*KEYS, "estimator", *CORRECTED], axis=1)
    both = frame.merge(as_in_paper, on=KEYS).merge(corrected, on=KEYS, how="left")
    return both[COLUMNS]


def _unpublished(frame: pd.DataFrame, domains: Sequence[str]) -> pd.DataFrame:
    """The rows of a published table for these domains, and for ALL if the table has such a row,
    without the published numbers.
    """
    printed = {*frame["domain"]}
    names = [*domains, *({ALL} & printed)]
    if printed == {ALL}:
        names = [ALL]
    rows = frame.drop(columns=["domain", "published"]).drop_duplicates()
    of_domains = pd.DataFrame({"domain": names}).merge(rows, how="cross")
    return of_domains.assign(published=np.nan)


def _estimators(table: str, rule: str) -> list[tuple[str, Estimator, Estimator]]:
    """Each quantity of a table: its name, the estimator that computes it as published, and the
    estimator that answers the question for which the quantity is used.
    """
    if table == "I":
        one_token = score.mean_of("hit", "hit[1]") if rule == "greedy" else score.alpha
        entropy = score.mean_of("target_entropy")
        of_text = score.mean_of("target_entropy", "text_entropy")
        alphas = ("alpha_mean", score.published_alpha, one_token)
        return [alphas, ("target_entropy_mean", entropy, of_text)]
    of_blocks = score.block_estimators()
    if table == "II":
        accepted = of_blocks["mean_accepted"]
        return [("expected_accepted_length", score.published_length, accepted)]
    if table == "III":
        return [("chain_accepted", score.published_chain, of_blocks["survival_by_depth"])]
    best_path = best_path_accept_by_depth(rule)
    return [("alpha_mean", score.ratio_by_depth, best_path)]


def best_path_accept_by_depth(rule: str = "greedy") -> Estimator:
    """accept_by_depth of the recorded trees' best path: how often the draft's best token is
    accepted, given that its ancestors were. It takes all `nodes`. rule: as in `score.reach`, which
    also says when the result is exact.

    Every position counts as a possible start of a block, as if the text continued after its end. No
    replay is needed.
    """

    def columns(nodes: pd.DataFrame) -> Array:
        of_path = nodes["best_path"].to_numpy(bool)[:, None]
        depth = nodes["depth"].to_numpy()[:, None]
        is_at = depth == np.arange(1, depth.max() + 1)
        survived = score.reach(nodes, rule)[:, None] * is_at
        before = np.column_stack([nodes["node"] == 1, survived[:, :-1]])
        return np.hstack([survived, before]) * of_path

    return Estimator("accept_by_depth, best path", columns, score.quotient, scalar=False)


def _estimates(
    rows: pd.DataFrame,
    estimator: Estimator,
    quantity: str,
    position_bin: int,
    half: int,
    unused: str,
) -> pd.DataFrame:
    """KEYS, estimator, estimate, low, high in one position bin of `half` tokens (NA: all
    positions). `unused`: the row of `stats.by_domain` that is not the paper's `all`.
    """
    if pd.notna(position_bin):
        rows = rows[rows["position"] // half == position_bin]
    values = stats.by_domain(rows, estimator).without(domain=unused).frame
    values = values.replace({"domain": {POOLED: ALL}})
    depth = values["estimator"].str.extract(r"\[(\d+)\]", expand=False).astype("Int64")
    values["depth"] = pd.NA if estimator.scalar else depth
    values = values.assign(bin=position_bin, quantity=quantity, estimator=estimator.name)
    values = values.astype({"depth": "Int64", "bin": "Int64"})
    return values[[*KEYS, "estimator", "estimate", "low", "high"]]


def cells_of_table(table: pd.DataFrame) -> pd.DataFrame:
    """A `comparison` with few columns, to be shown: its keys, published, and both estimates with
    their intervals as one text, '0.64 [0.61, 0.66]'. Missing numbers are blank. If the paper does
    not have these domains, there is no column `published`.
    """
    keys = [key for key in KEYS if table[key].nunique() > 1]
    shown = table[[*keys, "published"]].dropna(axis=1, how="all")
    for name, numbers in {"ours, as published": OURS, "corrected": CORRECTED}.items():
        cells = [stats.cell(*row, digits=2) for row in table[numbers].to_numpy()]
        shown[name] = np.where(table[numbers[0]].isna(), "", cells)
    return shown.assign(estimator=table["estimator"]).reset_index(drop=True)
