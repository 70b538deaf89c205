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
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pandas as pd

from speclab import cost, replay, score, stats
from speclab.analysis import (
    association,
    by_hand,
    choose,
    cost_sweep,
    loops,
    rungs,
    significance,
    sweep,
)
from speclab.score import POSITION_BIN, Estimator, column_of, divide, quotient, require
from speclab.studies.paper_audit.author_records import AuthorRecords
from speclab.studies.paper_audit.claims import (
    COLUMNS,
    PUBLISHED,
    RIGHT,
    Claim,
    exact,
    row_of,
)

PAPER_DEPTH, ARTICLE_GAMMA = 3, 4
GAMMAS = range(1, 17)  # where the best gamma is looked for
# names of the means of a column of nodes, of the trace
MEANS = {"alpha": "published_alpha", "overlap": "alpha"}
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

    outside: ask `greedy` of what lies outside loops only (`speclab.analysis.loops`): its positions,
    the nodes that hang there, and the visited blocks that begin there. rule: of deterministic
    children, "greedy" for greedy text; "point-mass" where `greedy` holds a run at T = 1.
    """

    greedy: object
    sampled: object | None = None
    c: float = 0.29
    article_c: float = 0.05
    self_draft: tuple[dict, ...] = ()
    outside: bool = False
    rule: str = "greedy"


# ---- estimators ----------------------------------------------------------------------------------


def _first_less_second(value: str, name: str, groups: Callable) -> Estimator:
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
    return _first_less_second(
        value,
        MEANS.get(value, value),
        lambda frame: [frame["domain"] == first, frame["domain"] == second],
    )


def late_minus_early(value: str, bin_size: int = POSITION_BIN) -> Estimator:
    """Mean of a column over positions from `bin_size` on less that over those before (the paper's
    bins 1 and 0, if no text is longer).
    """
    return _first_less_second(
        value,
        f"{MEANS.get(value, value)}, late - early",
        lambda frame: [frame["position"] >= bin_size, frame["position"] < bin_size],
    )


def shares_alone(frame: pd.DataFrame, value: str, factors: Iterable[str]) -> Estimator:
    """Share of the variance of a column between the levels that each factor has in `frame`: a
    family, in the order of the factors.
    """
    levels = {factor: np.sort(frame[factor].unique()) for factor in factors}

    def columns(rows: pd.DataFrame) -> np.ndarray:
        y, parts = column_of(rows, value)[:, None], []
        for factor, known in levels.items():
            member = rows[factor].to_numpy()[:, None] == known
            parts += [y * member, member]
        return np.hstack([*parts, np.ones_like(y), y, y * y])

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

    return Estimator(f"share of variance of {value}", columns, shares, scalar=False)


def share_gap(frame: pd.DataFrame, value: str, first: str, second: str) -> Estimator:
    """Share of the variance of a column between the levels of one factor less that of another."""
    shares = shares_alone(frame, value, [first, second])

    def difference(totals: np.ndarray) -> np.ndarray:
        both = shares.value(totals)
        return both[..., :1] - both[..., 1:]

    return Estimator(f"share of {first} - of {second}", shares.columns, difference)


def design_effect(value: str = "alpha") -> Estimator:
    """Variance of a mean with whole prompts as the unit over that with rows as the unit: so many
    rows are worth one. 1 = independent. On a `by_prompt` frame; both variances linearised: sum of
    (S_p - n_p m)^2 over sum of (y - m)^2.
    """

    def effect(totals: np.ndarray) -> np.ndarray:
        ss, sn, nn, s, n, q = np.moveaxis(totals, -1, 0)[..., None]
        mean = divide(s, n)
        return divide(ss - 2 * mean * sn + mean**2 * nn, q - n * mean**2)

    sums, name = ["ss", "sn", "nn", "s", "n", "q"], MEANS.get(value, value)
    return Estimator(
        f"design effect of {name}",
        lambda frame: frame[sums].to_numpy(np.float64),
        effect,
    )


def by_prompt(frame: pd.DataFrame, value: str = "alpha") -> pd.DataFrame:
    """One row a prompt for `design_effect`: prompt_id, domain, n (rows), s (sum), q (sum of
    squares), and the products ss, sn, nn.
    """
    y, who = column_of(frame, value), ["domain", "prompt_id"]
    rows = frame[who].assign(n=1.0, s=y, q=y * y)
    sums = rows.groupby(who, observed=True).sum().reset_index()
    return sums.assign(ss=sums["s"] ** 2, sn=sums["s"] * sums["n"], nn=sums["n"] ** 2)


# ---- measuring: lists of rows --------------------------------------------------------------------


def each_domain(frame: pd.DataFrame, estimator: Estimator) -> list[dict]:
    """One row a domain; one of fewer than 5 prompts has a point without interval, and says so."""
    point = score.point_estimates(frame, estimator).iloc[0]
    prompts = frame.groupby("domain")["prompt_id"].nunique()
    sure = frame[frame["domain"].map(prompts) >= stats.MIN_PROMPTS]
    found = (
        stats.by_domain(sure, estimator).set_index("domain") if len(sure) else point[:0]
    )
    rows = []
    for domain in score.domains_in(frame):
        if domain in found.index:
            numbers, note = found.loc[domain, ["estimate", "low", "high"]], ""
        else:
            numbers, note = (
                (point[domain], np.nan, np.nan),
                f"{prompts[domain]} prompts: no interval",
            )
        rows.append(row_of(estimator.name, domain, *numbers, note))
    return rows


def whole(frame: pd.DataFrame, estimator: Estimator, row: str) -> list[dict]:
    """One row over all domains together."""
    found = stats.bootstrap(frame, estimator)
    return [row_of(estimator.name, row, found.estimate, found.low, found.high)]


def gaps(
    frame: pd.DataFrame, value: str, pairs: Iterable[tuple[str, str]]
) -> list[dict]:
    """Differences of a column's mean between two domains. ValueError if a domain is missing."""
    rows = []
    for pair in pairs:
        score.domains_in(frame, pair)
        both = frame[frame["domain"].isin(pair)]
        rows += whole(both, gap(value, *pair), " - ".join(pair))
    return rows


def with_entropy(frame: pd.DataFrame, value: str, method: str) -> list[dict]:
    """Correlation of a column with target entropy in each domain."""
    found = association.correlations(frame, "target_entropy", value, methods=[method])
    name = f"{method.title()} of {value}"
    return [
        row_of(name, r.domain, r.estimate, r.low, r.high) for r in found.itertuples()
    ]


def chat_leads(frame: pd.DataFrame, acceptance: str) -> list[dict]:
    """chat less each other domain, in target entropy (nats) and in acceptance."""
    pairs = [("chat", other) for other in PAPER_ORDER[1:]]
    return gaps(frame, "target_entropy", pairs) + gaps(frame, acceptance, pairs)


def late_by_depth(nodes: pd.DataFrame, depths: Iterable[int] = (1, 3)) -> list[dict]:
    """`late_minus_early` of the nodes at each depth."""
    late, rows = late_minus_early("alpha"), []
    for depth in depths:
        rows += whole(nodes[nodes["depth"] == depth], late, str(depth))
    return rows


def same_prompts_late(trace: pd.DataFrame, bin_size: int = POSITION_BIN) -> list[dict]:
    """`late_minus_early` of `both_bins`."""
    return whole(
        both_bins(trace, bin_size),
        late_minus_early("overlap", bin_size),
        "same prompts",
    )


def both_bins(frame: pd.DataFrame, bin_size: int = POSITION_BIN) -> pd.DataFrame:
    """Rows of the prompts whose text reaches the second bin, so that early and late are the same
    prompts. ValueError if none does.
    """
    longest = frame.groupby("prompt_id")["position"].transform("max")
    name = f"positions from {bin_size} on, their prompts"
    return require(frame[longest >= bin_size], ["domain"], name)


def temperature_differences(sampled, greedy) -> list[dict]:
    """Accepted at T = 1 (run `sampled`) less at T = 0 (run `greedy`), by domain, prompts paired: of
    one drafted token, drawn at T = 1 (alpha) and the draft's best at T = 0 (hit[1]); per pass of
    the recorded tree, whose children are deterministic at either.
    """
    drawn = sampled.trace.assign(got=sampled.trace["overlap"], of=1)
    trees = []
    for run, rule in ((sampled, "point-mass"), (greedy, "greedy")):
        nodes = run.nodes
        trees.append(nodes.assign(got=score.reach(nodes, rule), of=nodes["node"] == 1))
    asked = {
        "alpha at T = 1 - hit[1] at T = 0": (drawn, hits(greedy.trace).assign(of=1)),
        "mean_accepted, T = 1 (point-mass rule) - T = 0": trees,
    }
    rows = []
    for name, frames in asked.items():
        mean = Estimator(
            name, lambda f: f[["got", "of"]].to_numpy(np.float64), quotient
        )
        for domain in score.domains_in(greedy.trace):
            parts = [frame[frame["domain"] == domain] for frame in frames]
            found = significance.paired_difference(*parts, mean, n=1)
            rows.append(row_of(name, domain, found.estimate, found.low, found.high))
    return rows


def hits(trace: pd.DataFrame) -> pd.DataFrame:
    """The trace with `got`: is the target's token the draft's best?"""
    return trace.assign(got=trace["draft_rank"] == 0)


def _positions(trace: pd.DataFrame, outside: bool) -> pd.DataFrame:
    return loops.outside(trace, trace) if outside else trace


def _blocks(trace: pd.DataFrame, gammas: Iterable[int], outside: bool) -> pd.DataFrame:
    """Per-prompt sums of a chain's visited blocks, all or those that begin outside loops."""
    return (loops.outside_sums if outside else replay.chain_sums)(trace, gammas)


def budget_gain(
    trace: pd.DataFrame,
    c: float,
    gammas: Iterable[int] = GAMMAS,
    folds: int = 5,
    seed: int = 0,
    outside: bool = False,
) -> list[dict]:
    """How much faster a gamma for each domain is than one for all (`cost_sweep.gain`), as one row.

    Cost of a text in target passes: blocks (gamma c + 1), from the replay at T = 0. outside: blocks
    that begin outside loops; they emit not quite as many tokens under every gamma, so their cost is
    taken for as many as under the first.
    """
    wide = _blocks(trace, gammas, outside).pivot(
        index=["prompt_id", "domain"], columns="gamma"
    )
    emitted = wide["emitted"]
    first = emitted.iloc[:, 0]
    parts = {
        f"chain:{gamma}": pd.DataFrame(
            {
                "emitted": first,
                "cost": blocks * (gamma * c + 1) * first / emitted[gamma],
            }
        )
        for gamma, blocks in wide["blocks"].items()
    }
    prices = choose.Prices(pd.concat(parts, names=["setting"]))
    found = cost_sweep.gain(prices, folds, seed)
    numbers = found.estimate, found.low, found.high
    return [row_of("gain of a gamma a domain", f"c {c:g}", *numbers)]


def chain_speedup(
    trace: pd.DataFrame, gamma: int, c: float, outside: bool = False
) -> list[dict]:
    """Replayed tokens per pass of a chain over gamma c + 1, by domain, at T = 0: the speed-up if a
    longer target pass cost nothing.
    """
    tau, name = (
        score.block_estimators()["block_efficiency"],
        f"speed-up, gamma {gamma}, c {c:g}",
    )
    speed = Estimator(
        name, tau.columns, lambda totals: tau.value(totals) / (gamma * c + 1)
    )
    return each_domain(_blocks(trace, [gamma], outside), speed)


def rule_error(
    trace: pd.DataFrame, gamma: int, c: float, outside: bool = False
) -> list[dict]:
    """The article's S = e / (e c + 1), e = gamma hit[1], over the replayed speed-up of the same
    chain, by domain, at T = 0.
    """
    rows = _positions(trace, outside)
    rows = rows.assign(hits=rows["draft_rank"] == 0, positions=1)
    of_texts = rows.groupby("prompt_id")[["hits", "positions"]].sum()
    sums = _blocks(trace, [gamma], outside).merge(of_texts, on="prompt_id")

    def error(totals: np.ndarray) -> np.ndarray:
        emitted, blocks, hit, positions = np.moveaxis(totals, -1, 0)[..., None]
        e = gamma * divide(hit, positions)
        return divide(e / (e * c + 1), divide(emitted, blocks) / (gamma * c + 1))

    names = ["emitted", "blocks", "hits", "positions"]
    name = f"rule / replay, gamma {gamma}"
    return each_domain(
        sums, Estimator(name, lambda f: f[names].to_numpy(np.float64), error)
    )


def fastest_gammas(
    trace: pd.DataFrame, c: float, outside: bool = False
) -> pd.DataFrame:
    """The fastest of GAMMAS in each domain at cost c (v = 1), at T = 0: c, domain, best, the
    central 95 % of the resamples' choices, the gammas that are as good, and the speed-up.
    """
    rows = _positions(trace, outside)
    frame = sweep.per_prompt(_blocks(trace, GAMMAS, outside), sweep.positions(rows))
    best = sweep.best_gamma(frame, sweep.estimators(max(GAMMAS), c)["speedup"])
    columns = [
        "best",
        "best_low",
        "best_high",
        "as_good_low",
        "as_good_high",
        "speedup",
    ]
    return sweep.choices(best).assign(c=c)[["c", "domain", *columns]]


def best_gamma_in(
    trace: pd.DataFrame, c: float, domain: str, outside: bool = False
) -> list[dict]:
    """`fastest_gammas` in one domain."""
    score.domains_in(trace, [domain])
    found = fastest_gammas(trace, c, outside).set_index("domain").loc[domain]
    numbers = found[["best", "best_low", "best_high"]]
    return [row_of(f"best gamma, c {c:g}", domain, *numbers)]


def pseudo_code(
    p: np.ndarray = P_TABLE,
    q: np.ndarray = Q_TABLE,
    last: int = 0,
    gamma: int = PAPER_DEPTH,
) -> dict[str, float]:
    """What the article's three flaws cost on tables of next-word probabilities, exact: `residual`
    and `positions`, the total variation between what comes out and p; `bonus`, words per pass that
    are lost.
    """
    kept, late = by_hand.chance(p[last], q[last]), by_hand.chance(np.diag(p), q[last])
    # a rejected place is drafted anew, nothing comes of the residual
    anew = q[last] * kept / (q[last] * kept).sum()
    misread = by_hand.emitted(q[last], late, by_hand.residual(p[last], q[last]))
    lost = by_hand.survival(np.minimum(p, q), last, gamma)[-1]
    return {
        "residual": float(by_hand.total_variation(anew, p[last])),
        "positions": float(by_hand.total_variation(misread, p[last])),
        "bonus": float(lost),
    }


def necessary_length(c: float, depth: int = PAPER_DEPTH) -> float:
    """Accepted tokens per pass at which a draft of `depth` passes breaks even, v = 1: depth c."""
    return cost.break_even_block_efficiency(depth, c) - 1


def threshold(*cs: float) -> list[dict]:
    """How far the break-even is from 1 accepted token, at each cost."""
    name = "accepted tokens at break-even - 1"
    return [exact(name, f"c {c:g}", necessary_length(c) - 1) for c in cs]


def flaw(name: str) -> list[dict]:
    """A flaw of `pseudo_code`."""
    words = (
        "words per pass lost, gamma 3" if name == "bonus" else "total variation from p"
    )
    return [exact(words, "three words", pseudo_code()[name])]


# ---- evidence ------------------------------------------------------------------------------------

# claims that numbers of the authors' code or log, or of the article's example, decide
FACTS = {
    "entropy-kind": (
        PUBLISHED,
        "share of rank correlations in the authors' code",
        lambda fact: fact["rank_share"],
    ),
    "run-time": (PUBLISHED, "hours in the log", lambda fact: fact["seconds"] / 3600),
    "devices": (
        PUBLISHED,
        "GB on the second GPU in the log",
        lambda fact: fact["second_gpu_gb"],
    ),
    "example": (
        RIGHT,
        "printed - formula",
        lambda fact: np.divide(*fact["printed"]) - cost.speedup_article(*fact["rule"]),
    ),
}


def measures(m: Material) -> dict[str, dict[str, tuple]]:
    """How each other claim is measured: by claim and view, a function that makes rows and its
    arguments.
    """
    texts, nodes = m.greedy.trace, m.greedy.nodes
    trace = _positions(texts, m.outside)
    nodes = loops.outside(nodes, texts) if m.outside else nodes
    nodes = nodes.assign(alpha=score.alpha(nodes))
    neighbours, outer = list(pairwise(PAPER_ORDER)), [("chat", "math")]
    entropy = {
        PUBLISHED: (
            with_entropy,
            nodes,
            "alpha",
            "pearson",
        ),  # as the authors' code does
        RIGHT: (with_entropy, trace, "overlap", "spearman"),
    }
    accepted = score.tree_estimators(m.rule)["mean_accepted"]
    best = nodes[nodes["best_path"]]
    not_chat = texts[texts["domain"] != "chat"]
    asked = {
        "level": {
            PUBLISHED: (each_domain, nodes, score.published_alpha),
            RIGHT: (each_domain, trace, score.overlap_alpha),
        },
        "gap": {
            PUBLISHED: (gaps, nodes, "alpha", outer),
            RIGHT: (gaps, trace, "overlap", outer),
        },
        "order": {
            PUBLISHED: (gaps, nodes, "alpha", neighbours),
            RIGHT: (gaps, trace, "overlap", neighbours),
        },
        "length": {
            PUBLISHED: (each_domain, nodes, score.published_length),
            RIGHT: (each_domain, nodes, accepted),
        },
        "threshold": {RIGHT: (threshold, m.article_c, m.c)},
        "depth": {
            PUBLISHED: (each_domain, nodes, rungs.change(score.alpha_by_depth)),
            RIGHT: (each_domain, nodes, rungs.change(score.best_path_by_depth)),
        },
        "position": {
            PUBLISHED: (late_by_depth, nodes),
            RIGHT: (same_prompts_late, trace),
        },
        "entropy-sign": entropy,
        "entropy-weak": entropy,
        "paradox": {
            PUBLISHED: (chat_leads, nodes, "alpha"),
            RIGHT: (chat_leads, trace, "overlap"),
        },
        "task-depth": {
            PUBLISHED: (
                whole,
                nodes,
                share_gap(nodes, "alpha", "domain", "depth"),
                "all",
            ),
            RIGHT: (whole, best, share_gap(best, "alpha", "domain", "depth"), "all"),
        },
        "task-first": {
            RIGHT: (whole, nodes, share_gap(nodes, "alpha", "domain", "rank"), "all")
        },
        "independence": {RIGHT: (each_domain, by_prompt(nodes), design_effect())},
        "budgets": {RIGHT: (partial(budget_gain, outside=m.outside), texts, m.c)},
        "routing": {RIGHT: (chain_speedup, not_chat, PAPER_DEPTH, m.c, m.outside)},
        "gamma-proofs": {RIGHT: (best_gamma_in, texts, m.article_c, "math", m.outside)},
        "gamma-open": {RIGHT: (best_gamma_in, texts, m.article_c, "chat", m.outside)},
        "self-draft": {RIGHT: (list, m.self_draft)},
        "rule": {RIGHT: (rule_error, texts, ARTICLE_GAMMA, m.article_c, m.outside)},
        "residual": {RIGHT: (flaw, "residual")},
        "positions": {RIGHT: (flaw, "positions")},
        "bonus": {RIGHT: (flaw, "bonus")},
        "temperature": {},
        "small-draft": {},
    }
    if m.sampled is not None:
        greedy = SimpleNamespace(trace=trace, nodes=nodes)
        asked["temperature"] = {RIGHT: (temperature_differences, m.sampled, greedy)}
        asked["small-draft"] = {RIGHT: (small_draft, m.sampled.trace, trace)}
    return asked


def small_draft(drawn: pd.DataFrame, trace: pd.DataFrame) -> list[dict]:
    """One drafted token: alpha on text drawn at T = 1, hit[1] on the greedy text."""
    hit = score.mean_of("got", "hit[1]")
    return each_domain(drawn, score.overlap_alpha) + each_domain(hits(trace), hit)


def evidence(material: Material, claims: Mapping[str, Claim]) -> pd.DataFrame:
    """Every claim's rows: COLUMNS.

    Where a run cannot answer (a domain missing, short texts, a constant column) the row is empty
    and its `note` says why. ValueError: a claim that nothing measures.
    """
    asked = (
        measures(material)
        if any(claim.fact is None for claim in claims.values())
        else {}
    )
    rows = []
    for claim in claims.values():
        if claim.fact is not None:
            view, name, number = FACTS[claim.id]
            row = "340/112" if claim.id == "example" else "all"
            found = {view: [exact(name, row, number(claim.fact))]}
        elif claim.id not in asked:
            raise ValueError(
                f"claim {claim.id!r} is measured nowhere: say how in `measures`"
            )
        else:
            found = {
                view: _answer(*question) for view, question in asked[claim.id].items()
            }
        for view, answers in found.items():
            for row in answers:
                least, most = claim.bounds(row["row"])
                region = {"least": least, "most": most}
                rows.append({"claim": claim.id, "view": view} | row | region)
    return pd.DataFrame(rows, columns=COLUMNS)


def _answer(measure: Callable[..., list[dict]], *arguments) -> list[dict]:
    try:
        return measure(*arguments)
    except ValueError as error:
        return [row_of("", "", np.nan, np.nan, np.nan, str(error))]


def record_evidence(records: Mapping[str, AuthorRecords]) -> pd.DataFrame:
    """What the authors' runs (usable rows only) say to the claims that nodes of one domain can
    answer: claim, row (their run), estimator, estimate, low, high, note. An interval only where a
    run has 5 prompts or more.
    """
    rows = []
    for run, one in records.items():
        nodes = one.nodes.assign(alpha=score.alpha(one.nodes))
        found = {
            "level": each_domain(nodes, score.published_alpha),
            "length": each_domain(nodes, score.published_length),
            "depth": each_domain(nodes, rungs.change(score.alpha_by_depth))
            + each_domain(nodes, rungs.change(score.best_path_by_depth)),
        }
        if nodes["position"].max() >= POSITION_BIN:
            found["position"] = each_domain(nodes, late_minus_early("alpha"))
        if nodes["prompt_id"].nunique() >= stats.MIN_PROMPTS:
            pearson = with_entropy(nodes, "alpha", "pearson")
            found |= {"entropy-sign": pearson, "entropy-weak": pearson}
            found["independence"] = each_domain(by_prompt(nodes), design_effect())
        for claim, answers in found.items():
            rows += [{"claim": claim} | row | {"row": run} for row in answers]
    columns = ["claim", "estimator", "row", "estimate", "low", "high", "note"]
    return pd.DataFrame(rows, columns=columns)
