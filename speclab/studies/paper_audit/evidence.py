"""The paper and the article, claim by claim: what a pair's runs say for and against each, in
numbers with intervals.

A claim is asked as published (the paper's procedure on greedy text), and by what is exact for a
lossless decoder: at T = 0 `hit[1]`, accepted tokens and replayed chains on greedy text; at T = 1
on text that was sampled at T = 1 `alpha` and chains of drawn tokens (rejection rule), and of the
paper's tree, whose tokens are the draft's best, what the point-mass rule accepts. No
estimator of one temperature is used on text of another. Intervals are of resampled prompts
(`speclab.stats`). What needs no run stands in `formulas`, what depends on costs in `costs`. The
authors' records are asked the same by the same functions. Knows no model and no figure.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise

import numpy as np
import pandas as pd

from speclab import replay, score, stats
from speclab.analysis import association, levels, loops, rungs, significance
from speclab.analysis.power import by_prompt
from speclab.analysis.token_kinds import token_kinds
from speclab.prompts import Prompt
from speclab.runs import profile_prompts
from speclab.score import POSITION_BIN, Estimator
from speclab.show.estimates import Estimates
from speclab.studies.paper_audit import costs, formulas
from speclab.studies.paper_audit.author_records import AuthorRecords
from speclab.studies.paper_audit.claims import (
    AT_0,
    AT_1,
    COLUMNS,
    NUMBER,
    PUBLISHED,
    SOURCES,
    Claim,
    answer,
    row_of,
)
from speclab.studies.paper_audit.estimators import (
    MEANS,
    both_bins,
    by_depth_change,
    deeper_less_first,
    first_less_second,
    gap,
    late_minus_early,
    length_ratio,
    named_design_effect,
    named_mean,
    second_tokens,
    share_gap,
    sums_in_cells,
    tested,
)
from speclab.studies.paper_audit.side import PairRuns

BETWEEN = "0 < T < 1"  # a way to ask that one claim has: text at temperatures between
PAPER_DEPTH, ARTICLE_GAMMA, LONG_CHAIN = formulas.PAPER_DEPTH, formulas.ARTICLE_GAMMA, 8
PAPER_ORDER = ("chat", "code", "reasoning", "math")  # of Table I, highest first
NEIGHBOURS = list(pairwise(PAPER_ORDER))
CHAT_FIRST = [("chat", other) for other in PAPER_ORDER[1:]]
# a prompt with a digit, a word or a sign of code, or a formula is not taken for chat
RULE = re.compile(r"\d|\b(def|class|function|return|code|Python)\b|[{}\\=]")
UNDEFINED = "undefined here, or in over 5 % of the resamples: too few such rows"
# claims whose answer at T = 1 is read from trees, which a run of another seed does not have
OF_TREES = ("length", "eq3", "depth", "commitment")


@dataclass(frozen=True)
class Texts:
    """Recorded text of one temperature and what is exact on it.

    value: acceptance of one drafted token, a column of `positions`: "hit" (T = 0) or "overlap" (a
    drawn token, T = 1). rule: of the tree's deterministic children. chain_rule: of chains, whose
    tokens are drawn at T = 1 ("rejection"), as in notebook 02. outside: of what lies outside loops
    only (`speclab.analysis.loops`): its positions, the nodes that hang there, and the visited
    blocks that begin there; at T = 0.
    """

    trace: pd.DataFrame
    nodes: pd.DataFrame
    value: str = "hit"
    rule: str = "greedy"
    chain_rule: str = "greedy"
    outside: bool = False

    def kept(self, frame: pd.DataFrame, at: str = "position") -> pd.DataFrame:
        """The rows of a frame that count."""
        return loops.outside(frame, self.trace, at) if self.outside else frame

    @cached_property
    def positions(self) -> pd.DataFrame:
        """The positions, with `hit`."""
        return self.kept(score.with_hits(self.trace))

    @cached_property
    def hung(self) -> pd.DataFrame:
        """The nodes, with their `ratio`."""
        return self.kept(self.nodes.assign(ratio=score.ratio(self.nodes)))

    def chain(self, gamma: int) -> pd.DataFrame:
        """Visited blocks of a chain; under rejection expectations."""
        if self.chain_rule == "rejection":
            return replay.replay_sampled(self.trace, gamma)
        return self.kept(replay.replay(self.trace, gamma), "start")

    def best_path(self, depth: int) -> pd.DataFrame:
        """Visited blocks of the draft's best tokens alone, under `rule`."""
        return self.kept(replay.replay(self.trace, depth), "start")

    @cached_property
    def sums(self) -> pd.DataFrame:
        """Per-prompt sums of the visited blocks of chains of `costs.GAMMAS`."""
        if self.outside:
            return loops.outside_sums(self.trace, costs.GAMMAS)
        return replay.chain_sums(self.trace, costs.GAMMAS, self.chain_rule)

    @cached_property
    def chains(self) -> costs.ChainSpeeds:
        """Tokens per pass of those chains, of the sample and of its resamples."""
        return costs.ChainSpeeds.of(self.sums)


def at_0(pair: PairRuns, outside: bool = False) -> Texts:
    """A pair's greedy texts."""
    return Texts(pair.greedy.trace, pair.greedy.nodes, outside=outside)


def at_1(pair: PairRuns) -> Texts:
    """A pair's texts sampled at T = 1."""
    trace, nodes = pair.sampled.trace, pair.sampled.nodes
    return Texts(trace, nodes, "overlap", "point-mass", "rejection")


# ---- measuring: lists of rows --------------------------------------------------------------------


def each_domain(
    frame: pd.DataFrame, estimator: Estimator, method: str = stats.EXPANDED
) -> list[dict]:
    """One row a domain, intervals by `method` of `stats.by_domain`; one of fewer than 5 prompts has
    a point without interval, and says so.
    """
    point = score.point_estimates(frame, estimator).iloc[0]
    found = loops.by_known_domain(frame, estimator, method=method).set_index("domain")
    rows = []
    for domain in score.domains_in(frame):
        _, low, high, prompts = found.loc[domain]
        note = "" if np.isfinite(low) else UNDEFINED
        if prompts < stats.MIN_PROMPTS:
            note = f"{prompts:.0f} prompts: no interval"
        rows.append(row_of(estimator.name, domain, point[domain], low, high, note))
    return rows


def of_design(rows: pd.DataFrame, value: str = "ratio") -> list[dict]:
    """The design effect of a column's mean, one row a domain."""
    return each_domain(
        by_prompt(rows, value), named_design_effect(value), stats.BOOTSTRAP_T
    )


def whole(frame: pd.DataFrame, estimator: Estimator, row: str = "all") -> list[dict]:
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


def correlated(frame: pd.DataFrame, x: str, y: str, method: str) -> list[dict]:
    """Correlation of two columns in each domain."""
    found = association.correlations(frame, x, y, methods=[method])
    name = f"{method.title()} of {MEANS.get(y, y)} and {x}"
    return [
        row_of(name, r.domain, r.estimate, r.low, r.high) for r in found.itertuples()
    ]


def chat_leads(frame: pd.DataFrame, value: str) -> list[dict]:
    """chat less each other domain, in target entropy (nats) and in acceptance."""
    of_entropy = gaps(frame, "target_entropy", CHAT_FIRST)
    return of_entropy + gaps(frame, value, CHAT_FIRST)


def late_by_depth(nodes: pd.DataFrame, depths: Iterable[int] = (1, 3)) -> list[dict]:
    """`late_minus_early` of the nodes at each depth."""
    late, rows = late_minus_early("ratio"), []
    for depth in depths:
        rows += whole(nodes[nodes["depth"] == depth], late, f"depth {depth}")
    return rows


def same_prompts_late(frame: pd.DataFrame, value: str) -> list[dict]:
    """`late_minus_early` of `both_bins`."""
    return whole(both_bins(frame), late_minus_early(value), "same prompts")


def unsure_positions(frame: pd.DataFrame, share: float) -> pd.DataFrame:
    """The share of each domain's positions that has the highest target entropy."""
    of_domain = frame.groupby("domain", observed=True)["target_entropy"]
    return frame[frame["target_entropy"] >= of_domain.transform("quantile", 1 - share)]


def agreement_where_unsure(frame: pd.DataFrame, value: str) -> list[dict]:
    """chat less each other domain, of the positions whose entropy is above the median of all."""
    unsure = frame[frame["target_entropy"] > frame["target_entropy"].median()]
    return gaps(unsure, value, CHAT_FIRST)


def numbers_less_others(trace: pd.DataFrame, strings: Sequence[str]) -> list[dict]:
    """hit[1] of math's tokens that are numbers less that of its other tokens. On sampled text:
    of the draft's best token, under point-mass.
    """
    score.domains_in(trace, ["math"])
    rows = score.with_hits(trace[trace["domain"] == "math"])
    number = token_kinds(rows, strings) == "number"
    difference = first_less_second(
        "hit",
        "hit[1], numbers - others",
        lambda frame: [frame["number"], ~frame["number"]],
    )
    return whole(rows.assign(number=number.to_numpy()), difference, "math")


def share_between_prompts(rows: pd.DataFrame, value: str) -> list[dict]:
    """Share of the variance of the prompts' means that lies between domains (omega squared)."""
    shares = levels.domain_shares(rows, value).set_index("level")
    numbers = shares.loc[levels.MEANS, ["estimate", "low", "high"]]
    name = f"omega squared of the domain, prompts' {MEANS.get(value, value)}"
    return [row_of(name, "all", *numbers)]


def domain_less_depth(rows: pd.DataFrame, value: str) -> list[dict]:
    """Share of the variance of a column between domains less that between depths."""
    cells = sums_in_cells(rows, value, ["domain", "depth"])
    return whole(cells, share_gap(cells, "domain", "depth"))


def change_by_depth(texts: Texts, gamma: int) -> list[dict]:
    """Acceptance of the last drafted token of a chain, its predecessors accepted, less that of the
    first, by domain.
    """
    return each_domain(*by_depth_change(texts.chain(gamma)))


def under_rule(rule: str, measure: Callable[[], list[dict]]) -> list[dict]:
    """The rows of a measure of chains, whose estimator then names the rule."""
    return [
        row | {"estimator": f"{row['estimator']}, {rule} rule"} for row in measure()
    ]


def warmer_less_greedy(
    pair: PairRuns, sampled: Mapping[float, pd.DataFrame]
) -> list[dict]:
    """Accepted tokens per target pass of the paper's tree on sampled text (by temperature) less on
    greedy text, by domain, prompts paired: visited blocks, the tree's children under point-mass.
    """
    tree, accepted = pair.profile.tree, score.block_estimators()["mean_accepted"]
    cold = replay.prompt_sums(replay.replay(pair.greedy.trace, tree))
    rows = []
    for temperature, trace in sampled.items():
        warm = replay.prompt_sums(replay.replay(trace, tree))
        found = significance.paired_by_domain(warm, cold, accepted, n=1)
        name = f"mean_accepted, T = {temperature:g} - T = 0"
        rows += [
            row_of(name, row.domain, row.estimate, row.low, row.high)
            for row in found.itertuples()
            if row.domain != score.POOLED
        ]
    return rows


def told_by_rule(prompts: Sequence[Prompt]) -> list[dict]:
    """Share of the prompts of chat that RULE takes for chat, and of the others that it does not."""
    rows = pd.DataFrame(
        {
            "prompt_id": [prompt.prompt_id for prompt in prompts],
            "chat": [prompt.domain == "chat" for prompt in prompts],
            "taken": [RULE.search(prompt.text) is None for prompt in prompts],
        }
    )
    right = score.mean_of("right", "share told right")
    rows = rows.assign(right=rows["chat"] == rows["taken"])
    of_chat, others = rows[rows["chat"]], rows[~rows["chat"]]
    return whole(of_chat, right, "chat") + whole(others, right, "the others")


# ---- which claim is asked what -------------------------------------------------------------------


def as_published(pair: PairRuns) -> dict[str, partial]:
    """The paper's own procedure, on the trees of greedy text."""
    nodes = at_0(pair).hung
    entropy = partial(correlated, nodes, "target_entropy", "ratio", "pearson")
    return {
        "level": partial(each_domain, nodes, score.published_alpha),
        "gap": partial(gaps, nodes, "ratio", [("chat", "math")]),
        "order": partial(gaps, nodes, "ratio", NEIGHBOURS),
        "paradox": partial(chat_leads, nodes, "ratio"),
        "length": partial(each_domain, nodes, score.published_length),
        "depth": partial(each_domain, nodes, rungs.change(score.ratio_by_depth)),
        "position": partial(late_by_depth, nodes),
        "depth-2": partial(late_by_depth, nodes, [2]),
        "entropy-sign": entropy,
        "entropy-weak": entropy,
        "task-depth": partial(domain_less_depth, nodes, "ratio"),
        "independence": partial(of_design, nodes),
    }


def exact_at(
    texts: Texts, strings: Sequence[str], grid: costs.Grid
) -> dict[str, partial]:
    """What is exact for a lossless decoder at the temperature of these texts."""
    value, rows, nodes = texts.value, texts.positions, texts.hung
    mean, accepted = (
        named_mean(value),
        score.tree_estimators(texts.rule)["mean_accepted"],
    )
    by_depth = score.best_path_accept_by_depth(texts.rule)
    steps = tested(texts.best_path(PAPER_DEPTH))
    unsure = unsure_positions(rows, 0.25)
    one_token = partial(each_domain, rows, mean)
    entropy = partial(correlated, rows, "target_entropy", value, "spearman")
    deeper = partial(deeper_less_first, texts.nodes, texts.trace, texts.rule)
    of_chains = partial(partial, under_rule, texts.chain_rule)
    return {
        "level": one_token,
        "gap": partial(gaps, rows, value, [("chat", "math")]),
        "order": partial(gaps, rows, value, NEIGHBOURS),
        "paradox": partial(chat_leads, rows, value),
        "lexical": partial(agreement_where_unsure, rows, value),
        "numeric": partial(numbers_less_others, texts.trace, strings),
        "orthogonal": partial(
            correlated, rows, "target_entropy", "draft_entropy", "spearman"
        ),
        "task-depth": partial(domain_less_depth, steps, "kept"),
        "task-first": partial(share_between_prompts, rows, value),
        "independence": partial(of_design, rows, value),
        "length": partial(each_domain, nodes, accepted),
        "eq3": partial(each_domain, nodes, length_ratio(texts.rule)),
        "depth": partial(each_domain, nodes, rungs.change(by_depth)),
        "commitment": lambda: each_domain(
            deeper(), score.mean_of("more", "accepted deeper - accepted first")
        ),
        "position": partial(same_prompts_late, rows, value),
        "depth-2": lambda: same_prompts_late(second_tokens(rows), "hit"),
        "entropy-sign": entropy,
        "entropy-weak": entropy,
        "entropy-needed": partial(each_domain, unsure, mean),
        "budgets": of_chains(lambda: costs.budget_gains(texts.sums, grid)),
        "routing": of_chains(
            lambda: costs.speed_ups(texts.sums, PAPER_DEPTH, ["math", "code"], grid)
        ),
        "deeper-chat": of_chains(
            lambda: costs.gamma_contrast(texts.chains, "chat", "math", grid)
        ),
        "gamma-contrast": of_chains(
            lambda: costs.gamma_contrast(texts.chains, "math", "chat", grid)
        ),
        "gamma-proofs": of_chains(
            lambda: costs.best_gamma_rows(texts.chains, "math", grid)
        ),
        "gamma-open": of_chains(
            lambda: costs.best_gamma_rows(texts.chains, "chat", grid)
        ),
        "long-chains": of_chains(lambda: change_by_depth(texts, LONG_CHAIN)),
        "small-draft": one_token,
        "rule": of_chains(
            lambda: costs.rule_error(texts.sums, rows, value, ARTICLE_GAMMA, grid)
        ),
    }


def measures(
    pair: PairRuns, strings: Sequence[str], grid: costs.Grid
) -> dict[tuple[str, str], Callable[[], list[dict]]]:
    """How each claim about a pair is measured from its runs: by claim and way to ask, a function
    that makes rows.
    """
    warm = {t: run.trace for t, run in pair.warmer.items()}
    asked = {
        PUBLISHED: as_published(pair),
        AT_0: exact_at(at_0(pair), strings, grid)
        | {"rules-route": lambda: told_by_rule(profile_prompts(pair.profile))},
        AT_1: exact_at(at_1(pair), strings, grid)
        | {"temperature": partial(warmer_less_greedy, pair, {1.0: pair.sampled.trace})},
        BETWEEN: {"temperature": partial(warmer_less_greedy, pair, warm)},
    }
    return {
        (claim, way): measure
        for way, of_way in asked.items()
        for claim, measure in of_way.items()
    }


def evidence(
    pair: PairRuns,
    name: str,
    listed: Mapping[str, Claim],
    strings: Sequence[str],
    grid: costs.Grid,
    others: Mapping[tuple[str, str], list[dict]] | None = None,
) -> pd.DataFrame:
    """Every row of the claims about a pair: COLUMNS, in the order of the claims.

    strings: the text of each token (`pictures.strings_of`). others: rows that runs do not give
    (`tables.rows`), by claim and way to ask. Where a run cannot answer (a domain missing, short
    texts, a constant column) the row is empty and its `note` says why.
    """
    given = {key: partial(list, rows) for key, rows in (others or {}).items()}
    return in_frame(listed, name, measures(pair, strings, grid) | given)


def in_frame(
    listed: Mapping[str, Claim],
    pair: str,
    asked: Mapping[tuple[str, str], Callable[[], list[dict]]],
) -> pd.DataFrame:
    """The answers as one frame: COLUMNS, by claim in the order of `listed`. A measure that several
    claims share is asked once.
    """
    rows, known = [], {}
    for claim in listed.values():
        for (name, way), measure in asked.items():
            if name == claim.id:
                head = {"claim": name, "pair": pair, "asked": way}
                if id(measure) not in known:
                    known[id(measure)] = answer(measure)
                rows += [head | row for row in known[id(measure)]]
    frame = pd.DataFrame(rows, columns=COLUMNS[:-2])
    edges = [
        listed[claim].bounds(row)
        for claim, row in zip(frame["claim"], frame["row"], strict=True)
    ]
    least, most = np.array(edges, np.float64).reshape(-1, 2).T
    return frame.assign(least=least, most=most)


def of_sources(listed: Mapping[str, Claim]) -> pd.DataFrame:
    """The rows of the claims that need no pair (`formulas`): COLUMNS."""
    asked = {
        (claim.id, SOURCES): partial(formulas.rows_without_pair, claim)
        for claim in listed.values()
        if claim.about == SOURCES
    }
    return in_frame(listed, SOURCES, asked)


def best_gammas(pairs: Mapping[str, PairRuns], grid: costs.Grid) -> Estimates:
    """The fastest gamma by cost: pair, T, c, slope, domain, estimate, low, high."""
    parts = []
    for name, pair in pairs.items():
        for way, texts in ((AT_0, at_0(pair)), (AT_1, at_1(pair))):
            table = costs.best_gamma_table(texts.chains, grid)
            parts.append(table.assign(pair=name, T=way))
    keys = ["pair", "T", "c", "slope", "domain"]
    frame = pd.concat(parts, ignore_index=True)[[*keys, "estimate", "low", "high"]]
    return Estimates(frame, digits=0)


# ---- the same asked of other texts ---------------------------------------------------------------


def outside_loops(
    pair: PairRuns,
    name: str,
    listed: Mapping[str, Claim],
    strings: Sequence[str],
    grid: costs.Grid,
) -> pd.DataFrame:
    """The claims that greedy text decides at T = 0, asked of what lies outside its loops."""
    texts = exact_at(at_0(pair, outside=True), strings, grid)
    return in_frame(listed, name, {(claim, AT_0): ask for claim, ask in texts.items()})


def other_seeds(
    pair: PairRuns,
    name: str,
    listed: Mapping[str, Claim],
    strings: Sequence[str],
    grid: costs.Grid,
) -> list[pd.DataFrame]:
    """For each further run at T = 1 the claims that its trace can answer, as `evidence` gives them
    for the first.
    """
    frames = []
    for run in pair.seeds:
        of_seed = replace(pair, sampled=run)
        asked = {
            key: ask
            for key, ask in measures(of_seed, strings, grid).items()
            if key[1] == AT_1 and key[0] not in OF_TREES
        }
        frames.append(in_frame(listed, name, asked))
    return frames


# ---- the authors' records ------------------------------------------------------------------------


def record_evidence(records: Mapping[str, AuthorRecords]) -> pd.DataFrame:
    """What the authors' runs (usable rows only) say to the claims that nodes of one domain can
    answer: claim, row (their run), estimator, estimate, low, high, note. An interval only where a
    run has 5 prompts or more.
    """
    rows = []
    for run, one in records.items():
        nodes = one.nodes.assign(ratio=score.ratio(one.nodes))
        found = {
            "level": each_domain(nodes, score.published_alpha),
            "length": each_domain(nodes, score.published_length),
            "depth": each_domain(nodes, rungs.change(score.ratio_by_depth)),
        }
        if nodes["position"].max() >= POSITION_BIN:
            found["position"] = each_domain(nodes, late_minus_early("ratio"))
        if nodes["prompt_id"].nunique() >= stats.MIN_PROMPTS:
            pearson = correlated(nodes, "target_entropy", "ratio", "pearson")
            found |= {"entropy-sign": pearson, "entropy-weak": pearson}
            found["independence"] = of_design(nodes)
        for claim, answers in found.items():
            rows += [{"claim": claim} | row | {"row": run} for row in answers]
    return pd.DataFrame(rows, columns=["claim", *NUMBER])
