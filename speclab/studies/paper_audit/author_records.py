"""The authors' public node records: fetched with their checksums, read, and asked what their trees
would have had accepted.

The files are `results/raw_records_20260411_*.csv` of the public repository saifmb0/tree-acceptance:
three short runs on HumanEval prompts in the schema of the published run, whose own records were not
released. They carry no licence, so they are fetched by whoever wants them and are not part of the
kit. SIZE and SHA-256 below are of the plain .csv bytes. They were computed from a copy of the three
files whose length agrees with the files at COMMIT in an index of public repositories, and whose
beginning and end were looked at beside them. That the address answers could not be tried where this
was written; a file that is not these bytes is refused.
"""

import argparse
import gzip
import hashlib
import http.client
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from speclab import score, stats
from speclab.analysis import association
from speclab.analysis.published import AuthorRecords, read_author_records
from speclab.profiles import ROOT

COMMIT = "aa679a3f8a1b7593afe5f858cc798fd7f826d4f6"
BASE = f"https://raw.githubusercontent.com/saifmb0/tree-acceptance/{COMMIT}/results/"
FOLDER, VARIABLE, TARGET = (
    ROOT / "data" / "runs" / "author-records",
    "SPECLAB_AUTHOR_RECORDS",
    "make author-records",
)
TREE = ["prompt_id", "position"]
CHUNK, TIMEOUT_S = 1 << 16, 30


class FetchError(RuntimeError):
    """A file could not be fetched, or is not the file it should be; the message says what to do."""


@dataclass(frozen=True)
class PublicFile:
    """One public file: its name under BASE, its length in bytes, and its SHA-256."""

    name: str
    size: int
    sha256: str

    @property
    def run(self) -> str:
        """The time of day that names the authors' run."""
        return run_name(self.name)


def run_name(name: str) -> str:
    """The authors' name of a run, six digits, from a file's name; ValueError if there is none."""
    found = re.search(r"(\d{6})\.csv(\.gz)?$", name)
    if not found:
        raise ValueError(
            f"{name!r} is no file of records: its name ends in the run's six digits and .csv or .csv.gz, as …_054105.csv"
        )
    return found[1]


FILES = tuple(PublicFile(f"raw_records_20260411_{run}.csv", size, digest) for run, size, digest in (
    ("054105", 249_349, "7076e6abb2a780bca29327c720bd9ad3c5a72ccdf74440274d28d678aa9bc88e"),
    ("055031", 124_232, "3cd4547e8ada3e8a3bdff844952cc314a3d19ad5ca518accb672f15b7a053139"),
    ("060835", 254_467, "1bdce5be9696adeb374d5b03cc1d65107eeb18c9eadae39310c05552f38f3d52"),
))  # fmt: skip


def fetch(
    out: Path | str = FOLDER, base: str = BASE, files: tuple[PublicFile, ...] = FILES
) -> list[Path]:
    """Fetch the files into a folder; returns their paths.

    A file that is there and right is kept, a started one goes on where it stopped.

    Nothing appears under its own name before its length and SHA-256 are right. FetchError: no
    network, not found, other bytes.
    """
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    for file in files:
        path, part = out / file.name, out / f".{file.name}.part"
        if path.is_file() and _sha256(path.read_bytes()) == file.sha256:
            continue
        _download(base + file.name, part, file.size)
        _verified(part, file)
        os.replace(part, path)
    return [out / file.name for file in files]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _download(url: str, part: Path, size: int) -> None:
    """Append what `part` lacks, or all of it where the server cannot go on in the middle of a file."""
    start = part.stat().st_size if part.is_file() else 0
    if start == size:
        return
    request = urllib.request.Request(
        url, headers={"Range": f"bytes={start}-"} if 0 < start < size else {}
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            going_on = getattr(answer, "status", None) == 206
            with part.open("ab" if going_on else "wb") as file:
                while chunk := answer.read(CHUNK):
                    file.write(chunk)
    except urllib.error.HTTPError as error:
        raise FetchError(
            f"{url}: the server says {error.code} {error.reason}; is the repository still public? Its files may be put into a "
            f"folder by hand: {VARIABLE}=folder"
        ) from None
    except (OSError, http.client.HTTPException) as error:  # URLError and timeouts are OSErrors
        raise FetchError(
            f"{url}: {getattr(error, 'reason', error)}. Without a network, copy the files from another machine into a folder "
            f"and set {VARIABLE}=folder; what was fetched is kept, and `{TARGET}` goes on from there"
        ) from None


def _verified(part: Path, file: PublicFile) -> None:
    """FetchError unless the bytes are the file's; a short one is kept to go on with, a wrong one
    removed.
    """
    content = part.read_bytes()
    if len(content) < file.size:
        raise FetchError(
            f"{file.name}: {len(content)} of {file.size} bytes came; the connection was cut. Run `{TARGET}` again: it goes on"
        )
    if len(content) > file.size or _sha256(content) != file.sha256:
        part.unlink()
        raise FetchError(
            f"{file.name}: {len(content)} bytes, SHA-256 {_sha256(content)}, but the file has {file.size}, {file.sha256}: "
            "not the authors' file of that commit. It was removed; run again, or look at what answers at that address"
        )


def read(folder: Path | str | None = None) -> dict[str, AuthorRecords]:
    """The authors' runs by name, from `folder`, else $SPECLAB_AUTHOR_RECORDS, else
    data/runs/author-records: {} if that is not there.

    .csv and .csv.gz are read. ValueError: a folder that was named holds no records; a run's bytes
    are not the authors' public file.
    """
    named = folder or os.environ.get(VARIABLE)
    where = Path(named or FOLDER)
    paths = {
        run_name(path.name): path
        for path in sorted([*where.glob("*.csv"), *where.glob("*.csv.gz")])
    }
    if named and not paths:
        raise ValueError(
            f"{where} holds no .csv or .csv.gz of the authors' records: name another folder, or run `{TARGET}`"
        )
    known = {file.run: file for file in FILES}
    for run, path in paths.items():
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        if run in known and _sha256(content) != known[run].sha256:
            raise ValueError(
                f"{path} is not the authors' public file of run {run} (SHA-256 {_sha256(content)}): fetch it, or rename it"
            )
    return {run: read_author_records(path) for run, path in paths.items()}


# ---- what the records can tell -------------------------------------------------------------------


def whole_trees(records: AuthorRecords) -> pd.DataFrame:
    """The nodes of trees without a NaN row: only they can be walked.

    ValueError if every tree has one.
    """
    broken = pd.MultiIndex.from_frame(records.nan_rows[TREE])
    kept = records.nodes[~pd.MultiIndex.from_frame(records.nodes[TREE]).isin(broken)]
    return score.require(kept.reset_index(drop=True), [], "trees without a NaN row")


def argmax_bounds(nodes: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """`nodes` twice with a `target_rank` of 0 or 1: nodes that are the target's argmax for certain,
    and nodes that can be.

    The records do not hold the target's argmax. A node is it for certain if its p exceeds its
    siblings' and the mass that no sibling has; it cannot be it if a sibling's p is larger, or if p
    < exp(-entropy), which no largest probability is (half-precision: 1 % is allowed).
    """
    score.require(nodes, [*TREE, "parent", "target_prob", "target_entropy"], "nodes")
    p = nodes["target_prob"].to_numpy(np.float64)
    siblings = nodes.assign(p=p).groupby([*TREE, "parent"])["p"]
    largest = p == siblings.transform("max").to_numpy()
    certain = largest & (p > 1 - siblings.transform("sum").to_numpy())
    possible = largest & (p >= 0.99 * np.exp(-nodes["target_entropy"].to_numpy(np.float64)))
    return tuple(
        nodes.assign(target_rank=np.where(found, 0, 1)) for found in (certain, possible | certain)
    )


def prune(nodes: pd.DataFrame, branches: int) -> pd.DataFrame:
    """The same trees with at most `branches` children a node: rows whose own and ancestors' ranks
    are below it. Smaller trees are nested in larger ones. ValueError: branches below 1.
    """
    if branches < 1:
        raise ValueError(f"branches is {branches}; at least 1 is needed")
    score.require(nodes, [*TREE, "node", "parent", "depth", "rank"], "nodes")
    return nodes[score.reach(nodes.assign(target_rank=nodes["rank"] // branches)) == 1].reset_index(
        drop=True
    )


def facts(records: Mapping[str, AuthorRecords]) -> pd.DataFrame:
    """One row a run: run, levels (nodes by depth), prompts, rows, nan_rows, their share; the mean
    of min(1, p/q) with NaN rows as accepted (as the authors' code did) and without; ranks 0 and 1;
    E[L] as published; and the accepted tokens of the greedy walk: nan_rejected (all trees, certain
    only, NaN rows not accepted), and accepted_low, accepted_high over trees without a NaN row.
    """
    walked, rows = score.tree_estimators()["mean_accepted"], []
    for run, one in records.items():
        all_rows, (low, high) = one.with_nan_as_accepted, argmax_bounds(whole_trees(one))
        by_rank = score.alpha_by_rank(one.nodes)
        certain = argmax_bounds(one.nodes)[0]
        known = all_rows.merge(
            certain[[*TREE, "node", "target_rank"]], "left", [*TREE, "node"]
        ).fillna({"target_rank": 1})
        rows.append({
            "run": run, "levels": "+".join(map(str, all_rows.groupby("depth")["node"].nunique())),
            "prompts": all_rows["prompt_id"].nunique(), "rows": len(all_rows), "nan_rows": one.nan_count,
            "nan_share": one.nan_count / len(all_rows), "alpha_nan_as_accepted": score.published_alpha(all_rows),
            "alpha_without_nan": score.published_alpha(one.nodes), "rank_0": by_rank[0], "rank_1": by_rank[1],
            "published_length": score.published_length(all_rows), "nan_rejected": walked(known),
            "accepted_low": walked(low), "accepted_high": walked(high),
        })  # fmt: skip
    return pd.DataFrame(rows)


def rank_correlations(nodes: pd.DataFrame) -> pd.DataFrame:
    """Spearman of min(1, p/q) and target entropy over all nodes and within each rank: rank ('all',
    0, 1, …), estimate, low, high; from fewer than 5 prompts a point without interval.
    """
    nodes, rows = nodes.assign(alpha=score.alpha(nodes)), []
    for rank, part in [("all", nodes), *nodes.groupby("rank")]:
        if part["prompt_id"].nunique() < stats.MIN_PROMPTS:
            rows.append(
                (rank, part["alpha"].corr(part["target_entropy"], "spearman"), np.nan, np.nan)
            )
        else:
            found = association.correlation(part, "target_entropy", "alpha")
            rows.append((rank, found.estimate, found.low, found.high))
    return pd.DataFrame(rows, columns=["rank", "estimate", "low", "high"])


def growing_trees(nodes: pd.DataFrame) -> pd.DataFrame:
    """What becomes of trees cut to 1, 2, … children a node: branches, nodes (a tree),
    published_length, accepted_low, accepted_high.

    `nodes` holds whole trees; where it has the target's own ranks, low and high are the same
    number. Nested trees: the accepted tokens of the greedy walk cannot fall from row to row.
    """
    bounds = (nodes, nodes) if "target_rank" in nodes else argmax_bounds(nodes)
    walked, trees, rows = score.tree_estimators()["mean_accepted"], nodes.groupby(TREE).ngroups, []
    for branches in range(1, int(nodes["rank"].max()) + 2):
        low, high = (prune(bound, branches) for bound in bounds)
        rows.append(
            (branches, len(low) / trees, score.published_length(low), walked(low), walked(high))
        )
    return pd.DataFrame(
        rows, columns=["branches", "nodes", "published_length", "accepted_low", "accepted_high"]
    )


def root_trees(trace: pd.DataFrame) -> tuple[score.Estimator, score.Estimator]:
    """Of trees of depth 1 with the draft's k = 1, 2, … best tokens, as families by k: the paper's
    E[L] (mean of min(1, p/q) over the k tokens) and what is accepted at T = 0 (`hit`, which cannot
    fall). ValueError: a trace without the draft's best tokens.
    """
    score.require(trace, ["top_draft_p", "top_draft_q", "draft_rank"], "trace")

    def columns(rows: pd.DataFrame) -> np.ndarray:
        p, q = (
            np.stack(rows[name].to_numpy()).astype(np.float64)
            for name in ("top_draft_p", "top_draft_q")
        )
        alpha = np.cumsum(np.minimum(1.0, score.divide(p, q)), axis=1)
        return np.concatenate(
            [alpha, np.ones_like(alpha) * np.arange(1, alpha.shape[1] + 1)], axis=1
        )

    return score.Estimator("published_length", columns, score.quotient, scalar=False), score.hit


def published_shares(cells: pd.DataFrame, factor: str) -> float:
    """Share of alpha's variance between the levels of a factor, from the published run's cells:
    count, alpha_mean, alpha_std (n - 1).
    """
    score.require(cells, [factor, "count", "alpha_mean", "alpha_std"], "cells")
    n, mean, sd = (
        cells[name].to_numpy(np.float64) for name in ("count", "alpha_mean", "alpha_std")
    )
    grand, levels = (
        np.average(mean, weights=n),
        cells.assign(total=n * mean).groupby(factor)[["total", "count"]].sum(),
    )
    between = (levels["count"] * (levels["total"] / levels["count"] - grand) ** 2).sum()
    return float(between / ((n - 1) * sd**2 + n * (mean - grand) ** 2).sum())


def main(argv: list[str] | None = None) -> int:
    """`python -m speclab.studies.paper_audit.author_records --out FOLDER`: 0 done, 2 an error the
    user can mend.
    """
    parser = argparse.ArgumentParser(
        prog="python -m speclab.studies.paper_audit.author_records",
        description="Fetch the authors' public node records (about 0.6 MB).",
    )
    parser.add_argument("--out", default=str(FOLDER), help="folder (default: %(default)s)")
    parser.add_argument(
        "--base", default=BASE, help="address of the files' folder (default: %(default)s)"
    )
    arguments = parser.parse_args(argv)
    try:
        for path in fetch(arguments.out, arguments.base):
            print(path)
    except FetchError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
