"""What the runs of a pair show about the claims: numbers with intervals over resampled prompts.

A claim is measured as published (the paper's procedure on greedy text), and exactly for a lossless
decoder: at T = 0 on greedy text, at T = 1 on text that was sampled at T = 1. At T = 1 `alpha` and
chains use drawn tokens (rejection rule), and the paper's tree uses the draft's best tokens
(point-mass rule). Exact numbers are measured on other prompts too (`prompt_sets`; at T = 1 without
recorded trees). claims.yaml says what is measured, in the words of `ROWS`, `estimators` and
`measure`. `speed` measures the claims about speed, and `other_notebooks` reads the claims that
another notebook answers.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd

from speclab import replay, score
from speclab.analysis import association, atlas, bins, prompt_sets, variance_components
from speclab.analysis.claims import (
    AT_0,
    AT_1,
    PUBLISHED,
    SOURCES,
    Claim,
    Evidence,
    attempt,
    from_draws,
    in_frame,
    rows_of,
)
from speclab.analysis.prompt_sets import OWN
from speclab.analysis.published import POSITION_BIN
from speclab.analysis.texts import Text
from speclab.analysis.token_kinds import token_kinds
from speclab.profiles import Profile, load_profile
from speclab.score import POOLED, Estimator, divide
from speclab.stats import jointly
from speclab.studies.paper_audit.other_notebooks import Tables, of_tables
from speclab.studies.paper_audit.speed import Grid, speed_claims
from speclab.tree import Tree, chain, static_tree

PAPER_TREE = static_tree(3, 2, 8)
Asked = tuple[pd.DataFrame, Estimator]


# ---- the texts of a pair -------------------------------------------------------------------------


@dataclass(frozen=True)
class PairTexts:
    """The recorded texts of a pair by prompt set: greedy, and sampled at T = 1."""

    profile: Profile
    greedy: Mapping[str, Text]
    sampled: Mapping[str, Text]


def recorded_texts(profile: Profile, strings: Sequence[str]) -> PairTexts:
    """The texts of a profile at T = 0 and at T = 1, the temperatures of the claims, whatever the
    profile's own temperature. They are read if recorded or shipped, else recorded now.

    strings: the text of each token (`pictures.strings_of`).
    """
    profile = profile.replace(temperature=1.0)
    temperatures = []
    for kind in ("greedy", "sampled"):
        texts = prompt_sets.texts(profile, Text.recorded(profile, kind))
        texts.pop(prompt_sets.ENGLISH, None)  # a part of the second set
        marked = {name: with_numbers(text, strings) for name, text in texts.items()}
        temperatures.append(marked)
    return PairTexts(profile, *temperatures)


def profiles_beside(profile: Profile, beside: Iterable[str]) -> dict[str, Profile]:
    """The profile and the profiles named in `beside`, by name, the profile itself first; a name
    that occurs twice counts once. The others are read as their files say, with the traces that the
    kit ships: changes of the notebook's own profile (fewer prompts, …) do not apply to them.
    """
    profiles = {profile.name: profile}
    for name in beside:
        if name not in profiles:
            profiles[name] = load_profile(name).replace(recorded=())
    return profiles


def fewest_prompts(rows: pd.DataFrame) -> int:
    """How many prompts the smallest domain has."""
    prompts = rows.groupby("domain")["prompt_id"]
    return int(prompts.nunique().min())


def with_numbers(text: Text, strings: Sequence[str]) -> Text:
    """The text, with the positions marked (`number`) at which the token is a number in math."""
    math = text.trace[text.trace["domain"] == "math"]
    kinds = token_kinds(math, strings)
    number = (kinds == "number").reindex(text.trace.index, fill_value=False)
    return text.with_columns(number=number)


# ---- what claims.yaml names ----------------------------------------------------------------------


def unsure_half(text: Text) -> pd.DataFrame:
    """The positions whose entropy is above the median of all domains."""
    entropy = text.trace["target_entropy"]
    return text.trace[entropy > entropy.median()]


def unsure_quarter(text: Text) -> pd.DataFrame:
    """The quarter of each domain's positions that has the highest target entropy."""
    domains = text.trace.groupby("domain", observed=True)
    edge = domains["target_entropy"].transform("quantile", 0.75)
    return text.trace[text.trace["target_entropy"] >= edge]


def long_texts(text: Text) -> pd.DataFrame:
    """The positions of prompts whose texts reach the second bin, so that early and late positions
    come from the same prompts. ValueError if no text does.
    """
    longest = text.trace.groupby("prompt_id")["position"].transform("max")
    rows = text.trace[longest >= POSITION_BIN]
    return score.require(rows, ["domain"], f"positions from {POSITION_BIN} on, their prompts")


def with_trees(text: Text) -> pd.DataFrame:
    """The nodes of a text's trees. ValueError if it was recorded with one node per position."""
    if text.nodes["node"].max() == 1:
        raise ValueError("these texts were recorded without draft trees")
    return text.nodes


def tested_tokens(text: Text) -> pd.DataFrame:
    """`tested_in` chains of the paper's depth (T > 0: of the draft's best tokens)."""
    return tested_in(text.tree(chain(PAPER_TREE.max_depth)))


def tested_in(blocks: pd.DataFrame) -> pd.DataFrame:
    """One row for each drafted token, down to the depth of the paper's tree, that a decoder tests
    because all tokens before it were accepted: prompt_id, domain, depth, kept, …. blocks: also
    `passes`.
    """
    most = blocks[["drafted", "remaining"]].min(axis=1).clip(upper=PAPER_TREE.max_depth)
    tested = np.minimum(blocks["accepted"] + 1, most).astype(int)
    rows = blocks.loc[blocks.index.repeat(tested)]
    depth = rows.groupby(level=0).cumcount() + 1
    return rows.assign(depth=depth, kept=rows["accepted"] >= depth)


ROWS: Mapping[str, Callable[[Text], pd.DataFrame]] = {
    "positions": lambda text: text.trace,
    "math": lambda text: text.trace.query("domain == 'math'"),
    "long texts": long_texts,
    "unsure half": unsure_half,
    "unsure quarter": unsure_quarter,
    "nodes": with_trees,
    "tested tokens": tested_tokens,
    "chain of 8": lambda text: replay.prompt_sums(text.chain(8), ends="room"),
}


def rows_named(text: Text, of: str, tree: Tree) -> pd.DataFrame:
    """The rows of a text that claims.yaml names: a name in ROWS, "nodes at depth 1" (2, 3), or
    "blocks" (of a decoder with a tree).
    """
    if of == "blocks":
        blocks = text.tree(tree)
        return replay.prompt_sums(blocks)
    rows, at, depth = of.partition(" at depth ")
    return text.nodes[text.nodes["depth"] == int(depth)] if at else ROWS[rows](text)


def estimators(text: Text) -> dict[str, Estimator]:
    """The estimators by the names that claims.yaml gives them, for a text's temperature."""
    of_blocks = score.block_estimators()
    best_path = score.best_path_accept_by_depth(text.rule)
    return {
        "published_alpha": score.published_alpha,
        "published_length": score.published_length,
        "target_entropy": score.mean_of("target_entropy", "target_entropy"),
        "acceptance": text.acceptance,
        "mean_accepted": of_blocks["mean_accepted"],
        "change of ratio_by_depth": score.change(score.ratio_by_depth),
        "change along the best path": score.change(best_path),
        "change along the chain": score.change(of_blocks["accept_by_depth"]),
    }


# contrasts of positions: the rows of the first side
FIRST_SIDE = {"late - early": f"position >= {POSITION_BIN}", "numbers - others": "number"}


def measure(
    text: Text,
    of: str,
    number: str,
    contrast: str | Sequence[Sequence[str]] = "each domain",
    over: Sequence[str] = (),
    correlation: Sequence[str] = (),
    shares: Sequence[str] = (),
    tree: Tree = PAPER_TREE,
) -> pd.DataFrame:
    """Evidence (`claims.Evidence`) from one entry of a claim's `published` or `exact`.

    of: the rows (`rows_named`; tree: what a decoder drafts). number: one of `estimators`. contrast:
    each domain; pairs of domains (first minus second); or one of FIRST_SIDE (its rows minus the
    others), over all domains together. over: the (rows, number) by which it is divided. Or number
    is a column, or "acceptance". correlation: (method, with which column) in each domain. shares:
    the share of the column's variance between the levels of the first factor, minus the same share
    for the second; "texts": `variance_components`. ValueError if the text cannot answer.
    """
    rows = rows_named(text, of, tree)
    column = text.value if number == "acceptance" else number
    if correlation:
        method, other = correlation
        table = association.correlations(rows, other, column, method)
        return rows_of(f"{method.title()} of {number} and {other}", table)
    if shares == "texts":
        return shares_of_texts(rows, column, text.acceptance.name)
    if shares:
        return difference_of_shares(rows, column, *shares)
    named = estimators(text)
    estimator = named[number]
    if over:
        other, under = over
        below = rows_named(text, other, tree), named[under]
        draws = jointly({number: (rows, estimator), under: below})
        return from_draws(f"{number} / {under}", draws, draws[number] / draws[under])
    if contrast == "each domain":
        draws = jointly({number: (rows, estimator)})
        return from_draws(estimator.name, draws, draws[number])
    if isinstance(contrast, str):
        first = rows.eval(FIRST_SIDE[contrast])
        sides = (rows[first], estimator), (rows[~first], estimator)
        return difference(f"{estimator.name}, {contrast}", of, *sides)
    return pd.concat([gap(rows, estimator, *domains) for domains in contrast])


def difference(name: str, row: str, first: Asked, second: Asked) -> pd.DataFrame:
    """A number over all domains together minus another number."""
    draws = jointly({"first": first, "second": second}, same=False)
    change = draws["first"] - draws["second"]
    return from_draws(name, draws, {row: change[POOLED]})


def gap(rows: pd.DataFrame, estimator: Estimator, *domains: str) -> pd.DataFrame:
    """A number in one domain minus that number in another. ValueError if a domain is missing."""
    score.domains_in(rows, domains)
    sides = [(rows[rows["domain"] == domain], estimator) for domain in domains]
    return difference(estimator.name, " - ".join(domains), *sides)


# ---- variance ------------------------------------------------------------------------------------


def difference_of_shares(rows: pd.DataFrame, column: str, first: str, second: str) -> pd.DataFrame:
    """Share of a column's variance between the levels of one factor, minus the same share for
    another factor. ValueError: one domain only.
    """
    if rows["domain"].nunique() < 2:
        raise ValueError("one domain only: a share of variance between domains needs two")
    shares = [(rows, share_between(rows, column, factor)) for factor in (first, second)]
    return difference(f"share of {first} - share of {second}", "all", *shares)


def shares_of_texts(rows: pd.DataFrame, column: str, name: str) -> pd.DataFrame:
    """Shares of the variance of a column between texts (`variance_components`)."""
    found = variance_components.shares(rows, column)
    table = pd.DataFrame(map(vars, found.values())).assign(domain=list(found))
    return rows_of(f"share of the variance between texts, {name}", table)


def share_between(rows: pd.DataFrame, value: str, factor: str) -> Estimator:
    """Share of the variance of a column between the levels that a factor has in `rows`."""
    in_each = bins.in_levels(value, factor, sorted(rows[factor].unique()))

    def columns(frame: pd.DataFrame) -> np.ndarray:
        squares = score.column_of(frame, value) ** 2
        return np.column_stack([in_each(frame), squares])

    def share(totals: np.ndarray) -> np.ndarray:
        sums, counts = np.split(totals[..., :-1], 2, axis=-1)
        of_mean = divide(sums.sum(-1) ** 2, counts.sum(-1))
        of_levels = np.nansum(divide(sums**2, counts), axis=-1)
        whole = totals[..., -1] - of_mean
        return divide(of_levels - of_mean, whole)[..., None]

    return Estimator(f"share of {factor}", columns, share)


# ---- every claim ---------------------------------------------------------------------------------


def on_text(
    text: Text, way: str, entries: Mapping[str, Sequence[Mapping]], tree: Tree = PAPER_TREE
) -> Evidence:
    """What claims.yaml measures on a text in one way. entries: by claim (`measure`)."""

    @cache  # several claims measure the same number
    def rows_of_entry(entry: str) -> pd.DataFrame:
        return measure(text, tree=tree, **json.loads(entry))

    def rows_of_claim(claim: str) -> pd.DataFrame:
        return pd.concat([rows_of_entry(json.dumps(entry)) for entry in entries[claim]])

    return {(claim, way): attempt(rows_of_claim, claim) for claim in entries if entries[claim]}


def as_published(text: Text, listed: Mapping[str, Claim]) -> Evidence:
    """The paper's own procedure, on the trees of greedy text (also the authors' own trees)."""
    return on_text(text, PUBLISHED, {name: claim.published for name, claim in listed.items()})


def warmer_less_greedy(tree: Tree, greedy: Text, warm: Text) -> pd.DataFrame:
    """Accepted tokens per target pass of a tree on sampled text minus on greedy text, by domain,
    with paired prompts; the tree's children are verified by the point-mass rule.
    """
    accepted = score.block_estimators()["mean_accepted"]
    texts = {text.name: rows_named(text, "blocks", tree) for text in (greedy, warm)}
    draws = jointly({name: (rows, accepted) for name, rows in texts.items()})
    change = draws[warm.name] - draws[greedy.name]
    return from_draws(f"mean_accepted, {warm.name} - {greedy.name}", draws, change)


def of_pair(
    pair: PairTexts, listed: Mapping[str, Claim], grid: Grid, tables: Tables
) -> pd.DataFrame:
    """Every row of the claims about a pair: `claims.COLUMNS`, by prompt set in the order of the
    claims. grid: costs (`speed.speed_claims`); tables: of other notebooks (`tables_of`).

    If a run cannot answer (a missing domain, short texts, a constant column), the row is empty and
    its `note` says why.
    """
    tree = pair.profile.tree
    exact = {name: claim.exact for name, claim in listed.items()}
    parts = []
    for prompts, greedy in pair.greedy.items():
        sampled = pair.sampled[prompts]
        evidence = {}
        if prompts == OWN:
            evidence = as_published(greedy, listed) | of_tables(listed, tables)
        for text in (greedy, sampled):
            evidence |= on_text(text, text.name, exact, tree) | speed_claims(text, grid)
        warmer = attempt(warmer_less_greedy, tree, greedy, sampled)
        evidence["temperature", AT_1] = warmer
        parts.append(in_frame(listed, pair.profile.name, evidence, prompts))
    return pd.concat(parts, ignore_index=True)


def on_public_runs(runs: Mapping[str, str], listed: Mapping[str, Claim]) -> pd.DataFrame:
    """The claims about the spread between tasks on runs of the atlas (name -> run), whose tasks are
    Spec-Bench's: `claims.COLUMNS`. A text is measured by its emitted tokens per target pass.
    ValueError for a run without passes.
    """
    parts = []
    for name, run in runs.items():
        log = atlas.in_tasks(atlas.passes_of(run))
        by_depth = attempt(difference_of_shares, tested_in(log), "kept", "domain", "depth")
        of_texts = attempt(shares_of_texts, log, "emitted", "tokens per target pass")
        of_tasks = of_texts[of_texts["row"] != "prompt"]
        evidence = {("task-depth", AT_0): by_depth, ("task-first", AT_0): of_tasks}
        parts.append(in_frame(listed, name, evidence))
    return pd.concat(parts, ignore_index=True)


def exact_rows(claim: Claim) -> pd.DataFrame:
    """Evidence without sampling: its intervals are points."""
    table = pd.DataFrame(claim.values, columns=["estimator", "row", "estimate"])
    return table.assign(low=table["estimate"], high=table["estimate"])


def of_sources(listed: Mapping[str, Claim]) -> pd.DataFrame:
    """The rows of the claims that need no pair, as claims.yaml has them: `claims.COLUMNS`."""
    evidence = {(claim.id, SOURCES): exact_rows(claim) for claim in listed.values() if claim.values}
    return in_frame(listed, SOURCES, evidence)
