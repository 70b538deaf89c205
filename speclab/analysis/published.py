"""The paper's published numbers beside ours, and the authors' released records as a `nodes` frame.

Source: arXiv:2604.14682v1, Tables I-VI (facts, in data/paper). Published procedure and the right
estimator stand side by side.
"""

from collections.abc import Iterable
from dataclasses import dataclass
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
OURS = ["ours_as_published", "ours_low", "ours_high"]
COLUMNS = [
    "domain",
    "depth",
    "bin",
    "quantity",
    "published",
    *OURS,
    "estimator",
    "corrected",
    "low",
    "high",
]
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
PROBABILITIES = ["draft_prob", "target_prob", "target_entropy"]  # float32


def published(table: str) -> pd.DataFrame:
    """Published numbers of one table ('I' to 'VI'): domain, depth, bin (0 = positions 0-31),
    quantity, published.
    """
    if table not in TABLES:
        raise ValueError(f"table is {table!r}; the paper has {', '.join(TABLES)}")
    frame = pd.read_csv(DATA / "tables.csv", dtype={"depth": "Int64", "bin": "Int64"})
    return (
        frame[frame["table"] == table]
        .drop(columns="table")
        .rename(columns={"value": "published"})
        .reset_index(drop=True)
    )


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
    return {
        "I": [
            _Row(
                "nodes",
                Estimator("nodes", lambda nodes: np.ones((len(nodes), 1)), lambda totals: totals),
                whole=POOLED,
            ),
            _Row("alpha_mean", score.published_alpha, "trace", score.overlap_alpha),
            _Row("alpha_sd", rungs.alpha_sd, whole=POOLED),
            _Row(
                "target_entropy_mean",
                score.mean_of("target_entropy"),
                "trace",
                score.mean_of("target_entropy", "text_entropy"),
            ),
        ],
        "II": [
            _Row("expected_accepted_length", score.published_length, "nodes", tree["mean_accepted"])
        ],
        "III": [_Row("chain_accepted", score.published_chain, "nodes", tree["survival_by_depth"])],
        "IV": [_Row("alpha_mean", score.alpha_by_depth, "nodes", score.best_path_by_depth)],
        "V": [
            _Row(
                "alpha_mean", score.alpha_by_depth, "nodes", score.best_path_by_depth, whole=POOLED
            )
        ],
    }[table]


def comparison(
    table: str, run, rule: str = "greedy", n: int = stats.RESAMPLES, seed: int = 0
) -> pd.DataFrame:
    """One row a published number: COLUMNS.

    `run` has .nodes and .trace (None where it was not recorded).

    `ours_as_published` repeats the published procedure on the run (interval ours_low, ours_high);
    `corrected` is the estimator named in `estimator` (interval low, high): in Table I exact overlap
    acceptance and the text's own entropy; II, III what the same tree gets accepted under `rule`
    (see score.reach); IV, V alpha along the best path (rank held fixed); VI correlation of entropy
    and overlap. What the run cannot answer is missing. `all` is the mean of domains for Table I's
    means, pooled over rows elsewhere, as in the paper. ValueError: no nodes, a domain of the paper
    missing, fewer than 5 prompts in a domain, no position in a bin.
    """
    frame = published(table)
    score.require(run.nodes, ["domain", "prompt_id"], "nodes")
    score.domains_in(run.nodes, [d for d in frame["domain"].unique() if d != ALL])
    if table == "VI":
        return _correlation_table(frame, run, n, seed)
    bins = [int(b) for b in frame["bin"].dropna().unique()] or [None]
    ours = pd.concat([_computed(row, run, b, n, seed) for row in _rows(table, rule) for b in bins])
    return frame.merge(
        ours.astype({"depth": "Int64", "bin": "Int64"}),
        on=["domain", "depth", "bin", "quantity"],
        how="left",
    )[COLUMNS]


def _computed(row: _Row, run, which_bin: int | None, n: int, seed: int) -> pd.DataFrame:
    """Both estimates of a quantity, by domain and depth, in one position bin (None: all positions)."""
    ours = _estimates(row.as_published, run.nodes, which_bin, n, seed)
    ours = _ours(ours).drop(columns="estimator")
    frame = getattr(run, row.source, None)
    if row.corrected is None or not _answers(row.corrected, frame):
        right = ours[["domain", "depth"]].assign(
            estimator=None, corrected=np.nan, low=np.nan, high=np.nan
        )
    else:
        right = _estimates(row.corrected, frame, which_bin, n, seed).rename(
            columns={"estimate": "corrected"}
        )
    both = ours.merge(right, on=["domain", "depth"]).assign(
        quantity=row.quantity, bin=pd.NA if which_bin is None else which_bin
    )
    unused = POOLED if row.whole == ALL else ALL
    return both[both["domain"] != unused].replace({"domain": {row.whole: ALL}})


def _ours(values: pd.DataFrame) -> pd.DataFrame:
    return values.rename(columns=dict(zip(["estimate", "low", "high"], OURS, strict=True)))


def _answers(estimator: Estimator, frame: pd.DataFrame | None) -> bool:
    """Has the run what the estimator needs?

    (The authors' records have no trace and no target ranks.)
    """
    return frame is not None and (
        estimator.name not in score.tree_estimators() or "target_rank" in frame
    )


def _estimates(
    estimator: Estimator, frame: pd.DataFrame, which_bin: int | None, n: int, seed: int
) -> pd.DataFrame:
    part = frame if which_bin is None else frame[frame["position"] // POSITION_BIN == which_bin]
    score.require(part, [], f"position bin {which_bin} of this run")
    values = stats.by_domain(part, estimator, n, seed)[
        ["estimator", "domain", "estimate", "low", "high"]
    ]
    depth = values["estimator"].str.extract(r"\[(\d+)\]")[0].astype("Int64")
    return values.assign(depth=depth, estimator=estimator.name)


def _correlation_table(frame: pd.DataFrame, run, n: int, seed: int) -> pd.DataFrame:
    """Table VI.

    The paper says Spearman, the authors' code computes Pearson: our Pearson rows have no published
    number of their own.
    """
    ours = association.correlations(run.nodes, "target_entropy", "alpha", n=n, seed=seed)
    right = ours[["domain", "method"]].assign(
        estimator=None, estimate=np.nan, low=np.nan, high=np.nan
    )
    if getattr(run, "trace", None) is not None:
        right = association.correlations(
            run.trace, "target_entropy", "overlap", n=n, seed=seed
        ).assign(estimator="overlap instead of alpha")
    result = _ours(ours).merge(
        right.rename(columns={"estimate": "corrected"}), on=["domain", "method"]
    )
    result["quantity"] = result.pop("method") + "_entropy_alpha"
    merged = result.merge(frame, on=["domain", "quantity"], how="left")
    return merged.sort_values("quantity", ascending=False, kind="stable").reset_index(drop=True)[
        COLUMNS
    ]


@dataclass(frozen=True)
class AuthorRecords:
    """A run as the authors released it: usable nodes, no trace, and the rows left out because their
    probability is NaN.
    """

    nodes: pd.DataFrame
    nan_rows: pd.DataFrame
    trace: None = None

    @property
    def nan_count(self) -> int:
        """Rows whose target probability is not finite; the authors' code took their alpha as 1."""
        return len(self.nan_rows)

    @property
    def with_nan_as_accepted(self) -> pd.DataFrame:
        """All rows, as the authors averaged them: NaN rows as accepted (p = q, so alpha is 1),
        their entropy left NaN.
        """
        filled = self.nan_rows.assign(target_prob=self.nan_rows["draft_prob"])
        return (
            pd.concat([self.nodes, filled])
            .sort_values(["prompt_id", "position", "node"], kind="stable")
            .reset_index(drop=True)
        )


def read_author_records(*paths: Path | str) -> AuthorRecords:
    """Node records in the schema of the authors' public files (csv or csv.gz, of one run) as a
    `nodes` frame.

    Their node ids count from 0 and a root child's parent is -1; ours count from 1 and the root is
    0. `rank` and `best_path` follow from the order of siblings. `target_rank` and `draft_entropy`
    are not in their records and are left out. Rows whose target_prob is NaN are returned by name in
    `nan_rows`, never in `nodes`. ValueError: columns missing, files of different schema, one node
    twice.
    """
    frames = {str(path): pd.read_csv(path) for path in paths}
    if not frames:
        raise ValueError("paths is empty: name at least one file of the authors' records")
    for path, frame in frames.items():
        score.require(frame, list(AUTHOR_COLUMNS), f"{path} (the authors' records)")
    schemas = {tuple(sorted(frame)) for frame in frames.values()}
    if len(schemas) > 1:
        odd = sorted(set.union(*map(set, schemas)) - set.intersection(*map(set, schemas)))
        raise ValueError(
            f"the files are of different schema versions ({odd} not in all of them): read the files of one run at a time"
        )
    records = pd.concat(frames.values(), ignore_index=True)[list(AUTHOR_COLUMNS)].rename(
        columns=AUTHOR_COLUMNS
    )
    return _split(_with_rank(records))


def _with_rank(records: pd.DataFrame) -> pd.DataFrame:
    records[["node", "parent"]] += 1
    tree = ["prompt_id", "position"]
    if records.duplicated([*tree, "node"]).any():
        raise ValueError(
            "the same (sample_id, token_position, node_id) occurs twice: read the files of one run at a time"
        )
    score.domains_in(records)
    records = records.sort_values([*tree, "node"], kind="stable", ignore_index=True)
    records["rank"] = (
        records.groupby([*tree, "parent"], sort=False)["draft_prob"]
        .rank(method="first", ascending=False)
        .astype("int32")
        - 1
    )
    # a best path is a chain of best children: score.reach walks any indicator of that form
    records["best_path"] = score.reach(records.assign(target_rank=records["rank"])) == 1
    types = dict.fromkeys(NODES[2:], "int32") | dict.fromkeys(PROBABILITIES, "float32")
    return records.astype(types)[[*NODES, *PROBABILITIES, "best_path"]]


def _split(records: pd.DataFrame) -> AuthorRecords:
    usable = np.isfinite(records["target_prob"]) & np.isfinite(records["target_entropy"])
    return AuthorRecords(
        records[usable].reset_index(drop=True), records[~usable].reset_index(drop=True)
    )


# ---- regimes -------------------------------------------------------------------------------------


def regimes(
    cs: Iterable[float] = (0.05, 0.1, 0.29, 0.5),
    verify: float = 1.0,
    overhead: float = 0.0,
    margin: float = 0.05,
) -> pd.DataFrame:
    """The paper's regimes (its E[L] around 1) beside the standard break-even for its own numbers
    (Tables II and III), by domain and c.

    published_length, paper_regime; at the paper's depth 3: break_even_c, speedup, regime;
    best_gamma of 1..3 with best_speedup and best_regime. A value within `margin` (ours) of 1 is
    marginal. The published acceptance is not that of any algorithm (README): this is what its
    numbers would mean if they were, not a prediction for its pair. c = 0.29: TinyLlama ->
    Llama-2-7B in llama.cpp (issue 8499).
    """
    lengths = published("II").set_index("domain")["published"]
    survival = published("III").pivot(index="domain", columns="depth", values="published")
    gammas, rows = survival.columns.to_numpy(int), []
    for domain in DOMAINS:
        tau = 1 + survival.loc[domain].to_numpy(float).cumsum()
        even = break_even_cost(tau[-1], gammas[-1], verify, overhead)
        for c in cs:
            speed = speedup_standard(tau, gammas, c, verify, overhead)
            best = int(speed.argmax())
            rows.append(
                (
                    domain,
                    c,
                    lengths[domain],
                    _regime(lengths[domain], margin),
                    even,
                    speed[-1],
                    _regime(speed[-1], margin),
                    gammas[best],
                    speed[best],
                    _regime(speed[best], margin),
                )
            )
    return pd.DataFrame(
        rows,
        columns=[
            "domain",
            "c",
            "published_length",
            "paper_regime",
            "break_even_c",
            "speedup",
            "regime",
            "best_gamma",
            "best_speedup",
            "best_regime",
        ],
    )


def _regime(value: float, margin: float) -> str:
    return "marginal" if abs(value - 1) <= margin else "positive" if value > 1 else "negative"
