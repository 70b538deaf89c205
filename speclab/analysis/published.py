"""The paper's published numbers beside ours, and the authors' public records as a `nodes` frame.

Source: arXiv:2604.14682v1, Tables I-VI (facts, in data/paper). Published procedure and the right
estimator stand side by side.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from speclab import score, stats
from speclab.analysis import association, rungs
from speclab.cost import break_even_cost, speedup_standard
from speclab.profiles import ROOT
from speclab.prompts import DOMAINS
from speclab.score import ALL, POOLED, POSITION_BIN, Estimator

DATA = ROOT / "data" / "paper"
TABLES = ("I", "II", "III", "IV", "V", "VI")
KEYS = ["domain", "depth", "bin", "quantity"]
OURS = ["ours_as_published", "ours_low", "ours_high"]
AS_OURS = dict(zip(["estimate", "low", "high"], OURS, strict=True))
COLUMNS = [*KEYS, "published", *OURS, "estimator", "corrected", "low", "high"]
AUTHOR_COLUMNS = {  # theirs: ours
    "sample_id": "prompt_id",
    "task_type": "domain",
    "token_position": "position",
    "node_id": "node",
    "parent_id": "parent",
    "tree_depth": "depth",
    "token_id": "token",
    "draft_prob": "draft_prob",
    "target_prob": "target_prob",
    "target_entropy": "target_entropy",
}
NODES = [
    "prompt_id",
    "domain",
    "position",
    "node",
    "parent",
    "depth",
    "rank",
    "token",
]  # then the floats, then best_path
MARGIN = 0.05  # around 1, where a regime is marginal; ours
PROBABILITIES = ["draft_prob", "target_prob", "target_entropy"]  # float32


def published(table: str) -> pd.DataFrame:
    """Published numbers of one table ('I' to 'VI'): domain, depth, bin (0 = positions 0-31),
    quantity, published.
    """
    frame = pd.read_csv(DATA / "tables.csv", dtype={"depth": "Int64", "bin": "Int64"})
    rows = frame[frame["table"] == table].rename(columns={"value": "published"})
    return rows.drop(columns="table").reset_index(drop=True)


@dataclass(frozen=True)
class _Row:
    """How a table's quantity is computed as published, and by the estimator that answers the
    question it is used for.
    """

    quantity: str
    as_published: Estimator
    source: str = "nodes"
    corrected: Estimator | None = None
    whole: str = ALL  # how the paper's row `all` comes about: mean of domains, or pooled over rows


def _rows(table: str, rule: str) -> list[_Row]:
    tree = score.tree_estimators(rule)
    path = score.best_path_accept_by_depth(rule)
    one_token = score.member(score.hit, 1) if rule == "greedy" else score.alpha
    return {
        "I": [
            _Row(
                "nodes",
                Estimator(
                    "nodes",
                    lambda nodes: np.ones((len(nodes), 1)),
                    lambda totals: totals,
                ),
                whole=POOLED,
            ),
            _Row("alpha_mean", score.published_alpha, "trace", one_token),
            _Row("alpha_sd", rungs.alpha_sd, whole=POOLED),
            _Row(
                "target_entropy_mean",
                score.mean_of("target_entropy"),
                "trace",
                score.mean_of("target_entropy", "text_entropy"),
            ),
        ],
        "II": [
            _Row(
                "expected_accepted_length",
                score.published_length,
                "nodes",
                tree["mean_accepted"],
            )
        ],
        "III": [
            _Row(
                "chain_accepted",
                score.published_chain,
                "nodes",
                tree["survival_by_depth"],
            )
        ],
        "IV": [_Row("alpha_mean", score.ratio_by_depth, "nodes", path)],
        "V": [_Row("alpha_mean", score.ratio_by_depth, "nodes", path, whole=POOLED)],
    }[table]


def comparison(
    table: str, run, rule: str = "greedy", n: int = stats.RESAMPLES
) -> pd.DataFrame:
    """One row a published number: COLUMNS.

    `run` has .nodes and .trace (None where it was not recorded). `rule` is that of the run's own
    temperature, else `corrected` is the acceptance of no decoder: 'greedy' for text of T = 0,
    'point-mass' for text sampled at T = 1 (see score.reach).

    `ours_as_published` repeats the published procedure on the run (interval ours_low, ours_high);
    `corrected` is the estimator named in `estimator` (interval low, high): in Table I the exact
    acceptance of one draft token (greedy: hit[1]; point-mass: alpha) and the text's own entropy;
    II, III what the same tree gets accepted; IV, V accept_by_depth along the best path; VI
    correlation of entropy and hit (greedy) or overlap (point-mass). What the run cannot answer is
    missing. `all` is the mean of domains for Table I's means, pooled over rows elsewhere, as in
    the paper. ValueError: no nodes, a domain of the paper missing, fewer than 5 prompts in a
    domain, no position in a bin.
    """
    frame = published(table)
    score.require(run.nodes, ["domain", "prompt_id"], "nodes")
    score.domains_in(run.nodes, [d for d in frame["domain"].unique() if d != ALL])
    if table == "VI":
        return _correlation_table(frame, run, rule, n)
    ours, right = [], []
    for which_bin, row in product(frame["bin"].drop_duplicates(), _rows(table, rule)):
        ours.append(_estimates(row, row.as_published, run.nodes, which_bin, n))
        source = getattr(run, row.source)
        if row.corrected is not None and _answers(row.source, source):
            right.append(_estimates(row, row.corrected, source, which_bin, n))
    ours = pd.concat(ours).drop(columns="estimator").rename(columns=AS_OURS)
    both = frame.merge(ours, on=KEYS, how="left")
    if right:
        corrected = pd.concat(right).rename(columns={"estimate": "corrected"})
        both = both.merge(corrected, on=KEYS, how="left")
    return both.reindex(columns=COLUMNS)


def in_cells(table: pd.DataFrame) -> pd.DataFrame:
    """A `comparison` with few columns, to be shown: its keys, published, and either estimate with
    its interval as one text, '0.637 [0.612, 0.663]'; what is missing is blank.
    """
    keys = [key for key in KEYS if table[key].nunique() > 1]
    columns = {
        "ours, as published": OURS,
        "corrected": ["corrected", "low", "high"],
    }
    shown = table[[*keys, "published"]].copy()
    for name, numbers in columns.items():
        shown[name] = [
            "" if pd.isna(row[0]) else str(stats.Interval(*row, 0))
            for row in table[numbers].itertuples(index=False)
        ]
    return shown.assign(estimator=table["estimator"]).reset_index(drop=True)


def _answers(source: str, frame: pd.DataFrame | None) -> bool:
    """Has the run what a corrected estimator of its `source` needs?

    (The authors' records have no trace and no target ranks.)
    """
    return frame is not None and (source == "trace" or "target_rank" in frame)


def _estimates(
    row: _Row,
    estimator: Estimator,
    frame: pd.DataFrame,
    which_bin: int,
    n: int,
) -> pd.DataFrame:
    """KEYS, estimator, estimate, low, high in one position bin (NA: all positions)."""
    if pd.notna(which_bin):
        frame = frame[frame["position"] // POSITION_BIN == which_bin]
    score.require(frame, [], f"position bin {which_bin} of this run")
    values = stats.by_domain(frame, estimator, n)
    unused = POOLED if row.whole == ALL else ALL
    values = values[values["domain"] != unused].replace({"domain": {row.whole: ALL}})
    number = values["estimator"].str.extract(r"\[(\d+)\]")[0].astype("Int64")
    values = values.assign(
        depth=number.where(
            values["estimator"] != estimator.name
        ),  # not of hit[1] alone
        bin=pd.array([which_bin] * len(values), "Int64"),
        quantity=row.quantity,
        estimator=estimator.name,
    )
    return values[[*KEYS, "estimator", "estimate", "low", "high"]]


def _correlation_table(frame: pd.DataFrame, run, rule: str, n: int) -> pd.DataFrame:
    """Table VI.

    The paper says Spearman, the authors' code computes Pearson: our Pearson rows have no published
    number of their own.
    """
    by = ["domain", "method"]
    ours = association.correlations(run.nodes, "target_entropy", "ratio", n=n)
    both = ours.rename(columns=AS_OURS)
    if run.trace is not None:
        right = _exact_correlations(run.trace, rule, n)
        both = both.merge(right.rename(columns={"estimate": "corrected"}), on=by)
    both["quantity"] = both["method"] + "_entropy_alpha"
    merged = both.merge(frame, on=["domain", "quantity"], how="left")
    merged = merged.sort_values(
        "quantity", ascending=False, kind="stable", ignore_index=True
    )
    return merged.reindex(columns=COLUMNS)


def _exact_correlations(trace: pd.DataFrame, rule: str, n: int) -> pd.DataFrame:
    """Entropy with the exact acceptance of one draft token, by domain and method: missing in a
    domain where that is constant.
    """
    outcome, name = ("hit", "hit[1]") if rule == "greedy" else ("overlap", "overlap")
    trace = score.with_hits(trace)
    found = association.correlations(trace, "target_entropy", outcome, n=n)
    return found.assign(estimator=f"{name} instead of min(1, p/q)")


@dataclass(frozen=True)
class AuthorRecords:
    """A run as the authors published it: usable nodes, no trace, and the rows left out because
    their probability or entropy is NaN (where the probability is, the authors' code took their
    alpha as 1).
    """

    nodes: pd.DataFrame
    nan_rows: pd.DataFrame
    trace: None = None

    @property
    def with_nan_as_accepted(self) -> pd.DataFrame:
        """All rows, as the authors averaged them: a NaN probability as accepted (p = q, so alpha is
        1), a NaN entropy left NaN.
        """
        p, q = self.nan_rows["target_prob"], self.nan_rows["draft_prob"]
        rows = pd.concat([self.nodes, self.nan_rows.assign(target_prob=p.fillna(q))])
        place = ["prompt_id", "position", "node"]
        return rows.sort_values(place, kind="stable", ignore_index=True)


def read_author_records(*paths: Path | str) -> AuthorRecords:
    """Node records in the schema of the authors' public files (csv or csv.gz, of one run) as a
    `nodes` frame.

    Their node ids count from 0 and a root child's parent is -1; ours count from 1 and the root is
    0. `rank` and `best_path` follow from the order of siblings. `target_rank` and `draft_entropy`
    are not in their records and are left out. Rows whose target_prob or target_entropy is NaN are
    returned by name in `nan_rows`, never in `nodes`. ValueError: columns missing, one node twice.
    """
    names = list(AUTHOR_COLUMNS)
    records = pd.concat(
        [pd.read_csv(path, usecols=names)[names] for path in paths], ignore_index=True
    )
    records = _with_rank(records.rename(columns=AUTHOR_COLUMNS))
    usable = np.isfinite(records[["target_prob", "target_entropy"]]).all(axis=1)
    parts = [records[kept].reset_index(drop=True) for kept in (usable, ~usable)]
    return AuthorRecords(*parts)


def _with_rank(records: pd.DataFrame) -> pd.DataFrame:
    records[["node", "parent"]] += 1
    tree = ["prompt_id", "position"]
    if records.duplicated([*tree, "node"]).any():
        raise ValueError(
            "the same (sample_id, token_position, node_id) occurs twice: read the files of one "
            "run at a time"
        )
    score.domains_in(records)
    records = records.sort_values([*tree, "node"], kind="stable", ignore_index=True)
    siblings = records.groupby([*tree, "parent"], sort=False)["draft_prob"]
    records["rank"] = siblings.rank(method="first", ascending=False).astype("int32") - 1
    # a best path is a chain of best children: score.reach walks any indicator of that form
    records["best_path"] = score.reach(records.assign(target_rank=records["rank"])) == 1
    types = dict.fromkeys(NODES[2:], "int32") | dict.fromkeys(PROBABILITIES, "float32")
    return records.astype(types)[[*NODES, *PROBABILITIES, "best_path"]]


# ---- regimes -------------------------------------------------------------------------------------


def regimes(
    cs: Iterable[float] = (0.05, 0.1, 0.29, 0.5),
) -> pd.DataFrame:
    """The paper's regimes (its E[L] around 1) beside the standard break-even for its own numbers
    (Tables II and III), by domain and c.

    published_length, paper_regime; at the paper's depth 3: break_even_c, speedup, regime;
    best_gamma of 1..3 with best_speedup and best_regime. A value within MARGIN of 1 is
    marginal. The published acceptance is not that of any lossless algorithm (GLOSSARY): this is
    what its numbers would mean if they were, not a prediction for its pair. c = 0.29: TinyLlama ->
    Llama-2-7B in llama.cpp (issue 8499).
    """
    lengths = published("II").set_index("domain")["published"]
    survival = published("III").pivot(
        index="domain", columns="depth", values="published"
    )
    gammas, rows = survival.columns.to_numpy(int), []
    for domain, c in product(DOMAINS, cs):
        tau = 1 + survival.loc[domain].to_numpy(float).cumsum()
        speed = speedup_standard(tau, gammas, c)
        best = int(speed.argmax())
        rows.append(
            {
                "domain": domain,
                "c": c,
                "published_length": lengths[domain],
                "paper_regime": _regime(lengths[domain]),
                "break_even_c": break_even_cost(tau[-1], gammas[-1]),
                "speedup": speed[-1],
                "regime": _regime(speed[-1]),
                "best_gamma": gammas[best],
                "best_speedup": speed[best],
                "best_regime": _regime(speed[best]),
            }
        )
    return pd.DataFrame(rows)


def _regime(value: float) -> str:
    if abs(value - 1) <= MARGIN:
        return "marginal"
    return "positive" if value > 1 else "negative"
