"""The paper and the article, claim by claim: what a run says for and against each, as numbers with
intervals.

Each claim's number (`speclab.studies.paper_audit.claims`) is measured twice, as published and by
the estimator that answers the question, on the same run, with prompt-clustered 95 % intervals
(`speclab.stats`). What needs no run (a formula, a log, pseudo-code) is exact: its interval is a
point. The authors' released records are asked the same by the same functions. Knows no model and no
figure.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from speclab import cost, replay, score, stats
from speclab.analysis import association, significance, sweep
from speclab.analysis import by_hand as byhand
from speclab.score import POSITION_BIN, Estimator, column_of, divide, quotient, require
from speclab.studies.paper_audit import author_records as authors
from speclab.studies.paper_audit.claims import COLUMNS, PUBLISHED, RIGHT, Claim, exact, row_of

PAPER_DEPTH, ARTICLE_GAMMA, GAMMAS = (
    3,
    4,
    range(1, 17),
)  # the last: where the best gamma is looked for
MEANS = {
    "alpha": "published_alpha",
    "overlap": "alpha",
}  # names of the means of a column of nodes, of the trace
PAPER_ORDER = ("chat", "code", "reasoning", "math")  # of Table I, highest first
# Three words that follow each other in a ring, so that every number can be checked by hand: overlap
# 0.7 after each.
P_TABLE = np.array([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5]])
Q_TABLE = np.array([[0.2, 0.5, 0.3], [0.3, 0.2, 0.5], [0.5, 0.3, 0.2]])


@dataclass(frozen=True)
class Material:
    """What there is to judge by: a run at T = 0 with .nodes and .trace, one at T = 1 (or None), c =
    draft pass / target pass for the paper's pair and for the article's example, and notebook 08's
    rows of an INT4 self-draft (`claims.self_draft`).
    """

    greedy: object
    sampled: object | None = None
    c: float = 0.29
    article_c: float = 0.05
    self_draft: tuple[dict, ...] = ()


# ---- estimators ----------------------------------------------------------------------------------


def change(family: Estimator) -> Estimator:
    """The family's last member less its first: from depth 1 to the deepest level."""
    return Estimator(
        f"change of {family.name}",
        family.columns,
        lambda t: family.value(t)[..., -1:] - family.value(t)[..., :1],
    )


def _split(value: str, members: Callable[[pd.DataFrame], list[np.ndarray]], name: str) -> Estimator:
    """Mean of `value` over the first group of rows less that over the second."""

    def columns(frame: pd.DataFrame) -> np.ndarray:
        groups, values = np.stack(members(frame), axis=1), column_of(frame, value)[:, None]
        return np.concatenate([np.where(groups, values, 0.0), groups], axis=1)

    return Estimator(
        name, columns, lambda totals: quotient(totals)[..., :1] - quotient(totals)[..., 1:]
    )


def gap(value: str, first: str, second: str) -> Estimator:
    """Mean of a column in one domain less that in another."""
    return _split(
        value,
        lambda frame: [(frame["domain"] == name).to_numpy() for name in (first, second)],
        MEANS.get(value, value),
    )


def late_minus_early(value: str, bin_size: int = POSITION_BIN) -> Estimator:
    """Mean of a column over positions bin_size..

    less that over 0..bin_size - 1 (the paper's bins 1 and 0, if no text is longer).
    """

    def members(frame: pd.DataFrame) -> list[np.ndarray]:
        late = require(frame, ["position"], "frame")["position"].to_numpy() >= bin_size
        return [late, ~late]

    return _split(value, members, f"{MEANS.get(value, value)}, late - early")


def shares_alone(frame: pd.DataFrame, value: str, factors: Iterable[str]) -> Estimator:
    """Share of the variance of a column between the levels that each factor has in `frame`: a
    family, in the order of the factors.
    """
    levels = {
        factor: sorted(require(frame, [factor], "frame")[factor].unique()) for factor in factors
    }
    ends = np.cumsum([0, *(2 * len(found) for found in levels.values())])

    def columns(rows: pd.DataFrame) -> np.ndarray:
        y = column_of(rows, value)[:, None]
        member = [
            rows[factor].to_numpy()[:, None] == np.asarray(found)
            for factor, found in levels.items()
        ]
        return np.concatenate(
            [part for one in member for part in (y * one, one)] + [np.ones_like(y), y, y * y],
            axis=1,
        )

    def of(totals: np.ndarray) -> np.ndarray:
        count, total, squares = np.moveaxis(totals[..., -3:], -1, 0)
        spread = squares - total**2 / count
        parts = [np.split(totals[..., a:b], 2, axis=-1) for a, b in pairwise(ends)]
        between = [
            np.nansum(divide(sums**2, counts), axis=-1) - total**2 / count for sums, counts in parts
        ]
        return np.stack([divide(one, spread) for one in between], axis=-1)

    return Estimator(f"share of variance of {value}", columns, of, scalar=False)


def design_effect(value: str = "alpha") -> Estimator:
    """Variance of a mean with whole prompts as the unit over that with rows as the unit: so many
    rows are worth one. 1 = independent. On a `by_prompt` frame; both variances linearised: sum of
    (S_p - n_p m)^2 over sum of (y - m)^2.
    """

    def of(totals: np.ndarray) -> np.ndarray:
        ss, sn, nn, s, n, q = np.moveaxis(totals, -1, 0)[..., None]
        mean = divide(s, n)
        return divide(ss - 2 * mean * sn + mean**2 * nn, q - n * mean**2)

    sums = ["ss", "sn", "nn", "s", "n", "q"]
    return Estimator(
        f"design effect of {MEANS.get(value, value)}",
        lambda frame: frame[sums].to_numpy(np.float64),
        of,
    )


def by_prompt(frame: pd.DataFrame, value: str = "alpha") -> pd.DataFrame:
    """One row a prompt for `design_effect`: prompt_id, domain, n (rows), s (sum), q (sum of
    squares), and the products ss, sn, nn.
    """
    y = column_of(frame, value)
    sums = (
        frame[["prompt_id", "domain"]]
        .assign(n=1.0, s=y, q=y * y)
        .groupby(["domain", "prompt_id"], observed=True)
        .sum()
        .reset_index()
    )
    return sums.assign(ss=sums["s"] ** 2, sn=sums["s"] * sums["n"], nn=sums["n"] ** 2)


# ---- measuring -----------------------------------------------------------------------------------


def by_domain(frame: pd.DataFrame, estimator: Estimator) -> list[dict]:
    """One row a domain; a domain of fewer than 5 prompts has a point without interval, and says so."""
    rows = score.point_estimates(frame, estimator).iloc[0]
    prompts = frame.groupby("domain")["prompt_id"].nunique()
    enough = [domain for domain in score.domains_in(frame) if prompts[domain] >= stats.MIN_PROMPTS]
    sure = (
        stats.by_domain(frame[frame["domain"].isin(enough)], estimator).set_index("domain")
        if enough
        else None
    )
    return [
        row_of(
            estimator.name,
            d,
            *(
                sure.loc[d, ["estimate", "low", "high"]]
                if d in enough
                else (rows[d], np.nan, np.nan)
            ),
            "" if d in enough else f"{prompts[d]} prompts: no interval",
        )
        for d in score.domains_in(frame)
    ]


def whole(frame: pd.DataFrame, estimator: Estimator, row: str) -> dict:
    """One row over all domains together."""
    found = stats.bootstrap(frame, estimator)
    return row_of(estimator.name, row, found.estimate, found.low, found.high)


def gaps(frame: pd.DataFrame, value: str, pairs: Iterable[tuple[str, str]]) -> list[dict]:
    """Differences of a column's mean between two domains. ValueError if a domain is missing."""
    pairs = list(pairs)
    score.domains_in(frame, [name for pair in pairs for name in pair])
    return [
        whole(frame[frame["domain"].isin(pair)], gap(value, *pair), " - ".join(pair))
        for pair in pairs
    ]


def correlation(frame: pd.DataFrame, value: str, method: str) -> list[dict]:
    """Correlation of a column with target entropy in each domain."""
    found = association.correlations(frame, "target_entropy", value, methods=[method])
    return [
        row_of(f"{method.title()} of {value}", r.domain, r.estimate, r.low, r.high)
        for r in found.itertuples()
    ]


def both_bins(frame: pd.DataFrame, bin_size: int = POSITION_BIN) -> pd.DataFrame:
    """Rows of the prompts whose text reaches the second bin, so that early and late are the same
    prompts. ValueError if none does.
    """
    longest = frame.groupby("prompt_id")["position"].transform("max")
    return require(
        frame[longest >= bin_size], ["domain"], f"positions from {bin_size} on, their prompts"
    )


def temperature_differences(sampled, greedy) -> list[dict]:
    """Accepted at T = 1 (run `sampled`) less at T = 0 (run `greedy`), by domain, prompts paired: of
    one drafted token, drawn at T = 1 (alpha) and the draft's best at T = 0 (hit[1]); per pass of
    the recorded tree, whose children are deterministic at either.
    """
    texts, trees = (
        (sampled.trace.assign(got=sampled.trace["overlap"]), _hits(greedy.trace)),
        ((sampled, "point-mass"), (greedy, "greedy")),
    )
    asked = {"alpha at T = 1 - hit[1] at T = 0": [trace.assign(of=1) for trace in texts],
             "mean_accepted, T = 1 (point-mass rule) - T = 0": [
                 run.nodes.assign(got=score.reach(run.nodes, rule), of=run.nodes["node"] == 1) for run, rule in trees]}  # fmt: skip
    rows = []
    for name, frames in asked.items():
        mean = Estimator(name, lambda f: f[["got", "of"]].to_numpy(np.float64), quotient)
        for domain in score.domains_in(greedy.trace):
            found = significance.paired_difference(
                *(frame[frame["domain"] == domain] for frame in frames), mean, n=1
            )
            rows.append(row_of(name, domain, found.estimate, found.low, found.high))
    return rows


def budget_gain(
    trace: pd.DataFrame, c: float, gammas: Iterable[int] = GAMMAS, folds: int = 5, seed: int = 0
) -> dict:
    """How much faster a gamma for each domain is than one for all, both fitted on the other folds'
    prompts, as a row.

    Cost of a text in target passes: blocks (gamma c + 1), from the replay at T = 0; the gain is
    cost of one / cost of each - 1.
    """
    blocks = replay.chain_sums(trace, gammas).pivot(
        index=["prompt_id", "domain"], columns="gamma", values="blocks"
    )
    costs, domain = (
        blocks.to_numpy() * (np.asarray(blocks.columns) * c + 1),
        blocks.index.get_level_values("domain").to_numpy(),
    )
    fold, one, own = stats.fold_of(domain, folds, seed), np.zeros(len(costs)), np.zeros(len(costs))
    for held in range(folds):
        here = fold == held
        one[here] = costs[here, costs[~here].sum(axis=0).argmin()]
        for name in np.unique(domain):
            mine = here & (domain == name)
            own[mine] = costs[mine, costs[~here & (domain == name)].sum(axis=0).argmin()]
    frame = blocks.index.to_frame(index=False).assign(one=one, own=own)
    gain = Estimator(
        "gain of a gamma a domain",
        lambda f: f[["one", "own"]].to_numpy(np.float64),
        lambda t: quotient(t) - 1,
    )
    return whole(frame, gain, f"c {c:g}")


def chain_speedup(trace: pd.DataFrame, gamma: int, c: float) -> list[dict]:
    """Replayed tokens per pass of a chain over gamma c + 1, by domain, at T = 0: the speed-up if a
    longer target pass cost nothing.
    """
    tau = score.block_estimators()["block_efficiency"]
    speed = Estimator(
        f"speed-up, gamma {gamma}, c {c:g}",
        tau.columns,
        lambda totals: tau.value(totals) / (gamma * c + 1),
    )
    return by_domain(replay.prompt_sums(replay.replay(trace, gamma)), speed)


def rule_error(trace: pd.DataFrame, gamma: int, c: float) -> list[dict]:
    """The article's S = e / (e c + 1), e = gamma hit[1], over the replayed speed-up of the same
    chain, by domain, at T = 0.
    """
    hits = (
        trace.assign(hits=trace["draft_rank"] == 0, positions=1)
        .groupby("prompt_id")[["hits", "positions"]]
        .sum()
    )
    sums = replay.prompt_sums(replay.replay(trace, gamma)).merge(hits, on="prompt_id")

    def of(totals: np.ndarray) -> np.ndarray:
        emitted, blocks, hit, positions = np.moveaxis(totals, -1, 0)[..., None]
        e = gamma * divide(hit, positions)
        return divide(e / (e * c + 1), divide(emitted, blocks) / (gamma * c + 1))

    names = ["emitted", "blocks", "hits", "positions"]
    return by_domain(
        sums,
        Estimator(f"rule / replay, gamma {gamma}", lambda f: f[names].to_numpy(np.float64), of),
    )


def best_gammas(trace: pd.DataFrame, c: float, domain: str) -> list[dict]:
    """The fastest gamma of 1 to 16 in one domain at cost c (v = 1), with the central 95 % of the
    resamples' choices.
    """
    score.domains_in(trace, [domain])
    frame = sweep.per_prompt(replay.chain_sums(trace, GAMMAS), sweep.positions(trace))
    found = (
        sweep.choices(sweep.best_gamma(frame, sweep.estimators(max(GAMMAS), c)["speedup"]))
        .set_index("domain")
        .loc[domain]
    )
    return [
        row_of(f"best gamma, c {c:g}", domain, found["best"], found["best_low"], found["best_high"])
    ]


def pseudo_code(
    p: np.ndarray = P_TABLE, q: np.ndarray = Q_TABLE, last: int = 0, gamma: int = PAPER_DEPTH
) -> dict[str, float]:
    """What the article's three flaws cost on tables of next-word probabilities, exact: `residual`
    and `positions`, the total variation between what comes out and p; `bonus`, words per pass that
    are lost.
    """
    kept, late = byhand.chance(p[last], q[last]), byhand.chance(np.diag(p), q[last])
    anew = (
        q[last] * kept / (q[last] * kept).sum()
    )  # a rejected place is drafted anew, nothing comes of the residual
    misread = byhand.emitted(q[last], late, byhand.residual(p[last], q[last]))
    lost = byhand.survival(np.minimum(p, q), last, gamma)[-1]
    return {
        "residual": float(byhand.total_variation(anew, p[last])),
        "positions": float(byhand.total_variation(misread, p[last])),
        "bonus": float(lost),
    }


def necessary_length(c: float, depth: int = PAPER_DEPTH) -> float:
    """Accepted tokens per pass at which a draft of `depth` passes breaks even, v = 1: depth c."""
    return cost.break_even_block_efficiency(depth, c) - 1


# ---- evidence ------------------------------------------------------------------------------------


def _nodes(run) -> pd.DataFrame:
    return require(run.nodes, ["domain"], "nodes").assign(alpha=score.alpha(run.nodes))


def _hits(trace: pd.DataFrame) -> pd.DataFrame:
    return trace.assign(got=trace["draft_rank"] == 0)


def _share_gap(frame: pd.DataFrame, than: str) -> list[dict]:
    shares = shares_alone(frame, "alpha", ["domain", than])
    less = Estimator(
        f"share of domain - of {than}",
        shares.columns,
        lambda t: shares.value(t)[..., :1] - shares.value(t)[..., 1:],
    )
    return [whole(frame, less, "all")]


def _leads(frame: pd.DataFrame, acceptance: str) -> list[dict]:
    """chat less each other domain, in target entropy (nats) and in acceptance."""
    return [
        row
        for name in ("target_entropy", acceptance)
        for row in gaps(frame, name, [("chat", other) for other in PAPER_ORDER[1:]])
    ]


_NEIGHBOURS = list(pairwise(PAPER_ORDER))
# as the authors' code does
_ENTROPY = {PUBLISHED: lambda m: correlation(_nodes(m.greedy), "alpha", "pearson"),
            RIGHT: lambda m: correlation(m.greedy.trace, "overlap", "spearman")}  # fmt: skip
_TREE = score.tree_estimators()["mean_accepted"]
# each asks the material, or the claim's fact where there is one
EVIDENCE: dict[str, dict[str, Callable[..., list[dict]]]] = {
    "level": {PUBLISHED: lambda m: by_domain(m.greedy.nodes, score.published_alpha),
              RIGHT: lambda m: by_domain(m.greedy.trace, score.overlap_alpha)},
    "gap": {PUBLISHED: lambda m: gaps(_nodes(m.greedy), "alpha", [("chat", "math")]),
            RIGHT: lambda m: gaps(m.greedy.trace, "overlap", [("chat", "math")])},
    "order": {PUBLISHED: lambda m: gaps(_nodes(m.greedy), "alpha", _NEIGHBOURS),
              RIGHT: lambda m: gaps(m.greedy.trace, "overlap", _NEIGHBOURS)},
    "length": {PUBLISHED: lambda m: by_domain(m.greedy.nodes, score.published_length), RIGHT: lambda m: by_domain(m.greedy.nodes, _TREE)},
    "threshold": {RIGHT: lambda m: [exact("accepted tokens at break-even - 1", f"c {c:g}", necessary_length(c) - 1)
                                    for c in (m.article_c, m.c)]},
    "depth": {PUBLISHED: lambda m: by_domain(m.greedy.nodes, change(score.alpha_by_depth)),
              RIGHT: lambda m: by_domain(m.greedy.nodes, change(score.best_path_by_depth))},
    "position": {PUBLISHED: lambda m: [whole(_nodes(m.greedy).query(f"depth == {d}"), late_minus_early("alpha"), str(d)) for d in (1, 3)],
                 RIGHT: lambda m: [whole(both_bins(m.greedy.trace), late_minus_early("overlap"), "same prompts")]},
    "entropy-kind": {PUBLISHED: lambda fact: [exact("share of rank correlations in the authors' code", "all", fact["rank_share"])]},
    "entropy-sign": _ENTROPY,
    "entropy-weak": _ENTROPY,
    "paradox": {PUBLISHED: lambda m: _leads(_nodes(m.greedy), "alpha"), RIGHT: lambda m: _leads(m.greedy.trace, "overlap")},
    "task-depth": {PUBLISHED: lambda m: _share_gap(_nodes(m.greedy), "depth"),
                   RIGHT: lambda m: _share_gap(_nodes(m.greedy).query("best_path"), "depth")},
    "task-first": {RIGHT: lambda m: _share_gap(_nodes(m.greedy), "rank")},
    "independence": {RIGHT: lambda m: by_domain(by_prompt(_nodes(m.greedy)), design_effect())},
    "temperature": {RIGHT: lambda m: [] if m.sampled is None else temperature_differences(m.sampled, m.greedy)},
    "budgets": {RIGHT: lambda m: [budget_gain(m.greedy.trace, m.c)]},
    "routing": {RIGHT: lambda m: [r for r in chain_speedup(m.greedy.trace, PAPER_DEPTH, m.c) if r["row"] != "chat"]},
    "run-time": {PUBLISHED: lambda fact: [exact("hours in the log", "all", fact["seconds"] / 3600)]},
    "devices": {PUBLISHED: lambda fact: [exact("GB on the second GPU in the log", "all", fact["second_gpu_gb"])]},
    "gamma-proofs": {RIGHT: lambda m: best_gammas(m.greedy.trace, m.article_c, "math")},
    "gamma-open": {RIGHT: lambda m: best_gammas(m.greedy.trace, m.article_c, "chat")},
    "self-draft": {RIGHT: lambda m: [row_of(**row) for row in m.self_draft]},
    "small-draft": {RIGHT: lambda m: [] if m.sampled is None else [
        *by_domain(m.sampled.trace, score.overlap_alpha), *by_domain(_hits(m.greedy.trace), score.mean_of("got", "hit[1]"))]},
    "rule": {RIGHT: lambda m: rule_error(m.greedy.trace, ARTICLE_GAMMA, m.article_c)},
    "example": {RIGHT: lambda f: [exact("printed - formula", "340/112", np.divide(*f["printed"]) - cost.speedup_article(*f["rule"]))]},
    "residual": {RIGHT: lambda m: [exact("total variation from p", "three words", pseudo_code()["residual"])]},
    "positions": {RIGHT: lambda m: [exact("total variation from p", "three words", pseudo_code()["positions"])]},
    "bonus": {RIGHT: lambda m: [exact("words per pass lost, gamma 3", "three words", pseudo_code()["bonus"])]},
}  # fmt: skip


def evidence(material: Material, claims: Mapping[str, Claim]) -> pd.DataFrame:
    """Every claim's rows: COLUMNS.

    Where a run cannot answer (a domain missing, short texts, a constant column) the row is empty
    and its `note` says why. ValueError: a claim that nothing measures.
    """
    rows = []
    for claim in claims.values():
        if claim.id not in EVIDENCE:
            raise ValueError(
                f"claim {claim.id!r} has no entry in EVIDENCE: say in speclab.studies.paper_audit.evidence how it is measured"
            )
        for view, measure in EVIDENCE[claim.id].items():
            try:
                found = measure(material if claim.fact is None else claim.fact)
            except ValueError as error:
                found = [row_of("", "", np.nan, np.nan, np.nan, str(error))]
            rows += [
                {
                    "claim": claim.id,
                    "view": view,
                    **row,
                    **dict(zip(("least", "most"), claim.bounds(row["row"]), strict=True)),
                }
                for row in found
            ]
    return pd.DataFrame(rows, columns=COLUMNS)


def record_evidence(records: Mapping[str, authors.AuthorRecords]) -> pd.DataFrame:
    """What the authors' runs (usable rows only) say to the claims that nodes of one domain can
    answer: claim, row (their run), estimator, estimate, low, high, note. An interval only where a
    run has 5 prompts or more.
    """
    by_depth = (change(score.alpha_by_depth), change(score.best_path_by_depth))
    rows = []
    for run, one in records.items():
        nodes = one.nodes.assign(alpha=score.alpha(one.nodes))
        asked = {
            "level": [score.published_alpha],
            "length": [score.published_length],
            "depth": by_depth,
        }
        if nodes["position"].max() >= POSITION_BIN:
            asked["position"] = [late_minus_early("alpha")]
        found = [
            (claim, row)
            for claim, family in asked.items()
            for estimator in family
            for row in by_domain(nodes, estimator)
        ]
        if nodes["prompt_id"].nunique() >= stats.MIN_PROMPTS:
            found += [
                (claim, row)
                for claim in ("entropy-sign", "entropy-weak")
                for row in correlation(nodes, "alpha", "pearson")
            ]
            found += [("independence", row) for row in by_domain(by_prompt(nodes), design_effect())]
        rows += [{"claim": claim} | row | {"row": run} for claim, row in found]
    return pd.DataFrame(
        rows, columns=["claim", "estimator", "row", "estimate", "low", "high", "note"]
    )
