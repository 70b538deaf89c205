"""What the runs of a pair say to the claims, in numbers with intervals over resampled prompts.

A claim is asked as published (the paper's procedure on greedy text), and by what is exact for a
lossless decoder: at T = 0 on greedy text, at T = 1 on text of three seeds that was sampled at
T = 1: `alpha` and chains of drawn tokens (rejection rule), and of the paper's tree, whose tokens
are the draft's best, what the point-mass rule accepts. What is exact is asked of other prompts too
(`prompt_sets`; at T = 1 of one seed, and without recorded trees).
`evaluate` answers what claims.yaml says in data; the functions after it are the claims that need
more. Claims about speed are asked at every c, a draft pass in target passes, and every slope of
v(n) = 1 + slope (n - 1): both are the machine's and the pair's, and the paper names neither (0.29,
often quoted for its models, is of both in f16, where its target is in 4 bit).
"""

import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from speclab import replay, score, stats
from speclab.analysis import association, bins, choose, prompt_sets, variance_components
from speclab.analysis.claims import (
    AT_0,
    AT_1,
    PUBLISHED,
    SOURCES,
    Claim,
    in_frame,
    not_measured,
    row_of,
    rows_of,
)
from speclab.analysis.prompt_sets import OWN
from speclab.analysis.texts import SEEDS, Text
from speclab.analysis.token_kinds import token_kinds
from speclab.cost import LEAST_V
from speclab.plain import read_json
from speclab.profiles import ROOT, Profile, load_profile
from speclab.prompts import DOMAINS
from speclab.score import POOLED, POSITION_BIN, Estimator, divide
from speclab.stats import Draws, jointly
from speclab.studies.paper_audit.formulas import (
    ARTICLE_GAMMA,
    PAPER_DEPTH,
    PAPER_NODES,
    rows_without_pair,
)
from speclab.tree import Tree, chain, static_tree

PAPER_TREE = static_tree(PAPER_DEPTH, 2, PAPER_NODES)
GAMMAS = range(1, 17)  # where the best gamma is looked for
Answer = Callable[[], list[dict]]


# ---- the texts of a pair -------------------------------------------------------------------------


@dataclass(frozen=True)
class PairTexts:
    """The recorded texts of a pair by prompt set: greedy, and sampled at T = 1 (its own prompts
    with three seeds).
    """

    profile: Profile
    greedy: Mapping[str, Text]
    sampled: Mapping[str, Text]

    @property
    def smallest_domain(self) -> int:
        """Prompts of it, in the pair's own prompt set."""
        of_domain = self.greedy[OWN].trace.groupby("domain")["prompt_id"]
        return int(of_domain.nunique().min())

    def with_numbers(self, strings: Sequence[str]) -> "PairTexts":
        """The pair with `with_numbers` of every text."""
        greedy, sampled = (
            {name: with_numbers(text, strings) for name, text in texts.items()}
            for texts in (self.greedy, self.sampled)
        )
        return replace(self, greedy=greedy, sampled=sampled)


def recorded_texts(profile: Profile) -> PairTexts:
    """The texts of a profile: read where they are recorded or shipped, else recorded now."""
    found = []
    for kinds in (["greedy"], SEEDS):
        own = Text.recorded(profile, *kinds)
        texts = prompt_sets.texts(profile, own)
        del texts[prompt_sets.ENGLISH]  # a part of the second set
        found.append(texts)
    return PairTexts(profile, *found)


def pairs_beside(profile: Profile, beside: Iterable[str] = ()) -> dict[str, PairTexts]:
    """`recorded_texts` of the profile and of each named in `beside`, by name, the profile's own
    first; one that is named twice counts once. `beside` stands as its files say: changes of the
    notebook's own profile (fewer prompts, …) are not theirs; what is shipped of it is read.
    """
    found = {profile.name: recorded_texts(profile)}
    for name in beside:
        if name not in found:
            shipped = _as_shipped(load_profile(name))
            found[name] = recorded_texts(shipped)
    return found


def _as_shipped(profile: Profile) -> Profile:
    """The profile with the traces that the kit ships of it, also where it records its own."""
    shipped = f"data/traces/{profile.name}"
    if not profile.traces and (ROOT / shipped).is_dir():
        profile = profile.replace(traces=shipped)
    return profile.replace(recorded=())


def with_numbers(text: Text, strings: Sequence[str]) -> Text:
    """The text, its positions marked where the token is a number of mathematics (`number`).

    strings: the text of each token (`pictures.strings_of`).
    """
    math = text.trace[text.trace["domain"] == "math"]
    number = pd.Series(False, text.trace.index)
    for _, rows in math.groupby("seed"):
        kinds = token_kinds(rows, strings)
        number[rows.index] = kinds == "number"
    return text.with_columns(number=number)


# ---- what claims.yaml names ----------------------------------------------------------------------


def unsure_quarter(positions: pd.DataFrame) -> pd.DataFrame:
    """The quarter of each domain's positions that has the highest target entropy."""
    of_domain = positions.groupby("domain", observed=True)["target_entropy"]
    edge = of_domain.transform("quantile", 0.75)
    return positions[positions["target_entropy"] >= edge]


def unsure_half(positions: pd.DataFrame) -> pd.DataFrame:
    """The positions whose entropy is above the median of all domains."""
    entropy = positions["target_entropy"]
    return positions[entropy > entropy.median()]


def of_long_texts(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of the prompts whose texts reach the second bin, so that early and late are the same
    prompts. ValueError if none does.
    """
    longest = frame.groupby("prompt_id")["position"].transform("max")
    long = frame[longest >= POSITION_BIN]
    name = f"positions from {POSITION_BIN} on, their prompts"
    return score.require(long, ["domain"], name)


def with_trees(text: Text) -> pd.DataFrame:
    """The nodes of a text's trees. ValueError if it was recorded with one node per position."""
    if text.nodes["node"].max() == 1:
        raise ValueError("recorded without trees: nothing to ask of their nodes")
    return text.nodes


ROWS: Mapping[str, Callable[[Text], pd.DataFrame]] = {
    "nodes": with_trees,
    "nodes at depth 1": lambda text: text.nodes[text.nodes["depth"] == 1],
    "nodes at depth 2": lambda text: text.nodes[text.nodes["depth"] == 2],
    "nodes at depth 3": lambda text: text.nodes[text.nodes["depth"] == 3],
    "positions": lambda text: text.trace,
    "long texts": lambda text: of_long_texts(text.trace),
    "unsure half": lambda text: unsure_half(text.trace),
    "unsure quarter": lambda text: unsure_quarter(text.trace),
    "math": lambda text: text.trace[text.trace["domain"] == "math"],
    "chain of 8": lambda text: replay.prompt_sums(text.chain(8), ends="room"),
}


def numbers_of(text: Text) -> dict[str, Estimator]:
    """The estimators by the names that claims.yaml gives them, for a text's temperature."""
    of_blocks = score.block_estimators()
    along_path = score.best_path_accept_by_depth(text.rule)
    return {
        "published_alpha": score.published_alpha,
        "published_length": score.published_length,
        "target_entropy": score.mean_of("target_entropy", "target_entropy"),
        "acceptance": text.acceptance,
        "mean_accepted": of_blocks["mean_accepted"],
        "change of ratio_by_depth": score.change(score.ratio_by_depth),
        "change along the best path": score.change(along_path),
        "change along the chain": score.change(of_blocks["accept_by_depth"]),
    }


# the first side's rows
CONTRASTS: Mapping[str, Callable[[pd.DataFrame], pd.Series]] = {
    "late - early": lambda rows: rows["position"] >= POSITION_BIN,
    "numbers - others": lambda rows: rows["number"],
}


def evaluate(
    text: Text,
    of: str,
    number: str,
    contrast: str | Sequence[Sequence[str]] = "each domain",
    over: Sequence[str] = (),
    correlation: Sequence[str] = (),
    tree: Tree = PAPER_TREE,
) -> list[dict]:
    """Rows of evidence for one entry of a claim's `published` or `exact`.

    of: the rows, a name of ROWS. number: the estimator, of `numbers_of`. contrast: each domain;
    pairs of domains (first less second); or one of CONTRASTS, over all domains together. over: the
    (rows, number) by which it is divided. correlation: (method, with which column) in each domain
    instead. tree: of the rows "blocks", those that a decoder visits. ValueError where the text
    cannot answer.
    """

    def rows_of_text(of: str) -> pd.DataFrame:
        return replay.prompt_sums(text.tree(tree)) if of == "blocks" else ROWS[of](text)

    rows = rows_of_text(of)
    if correlation:
        return correlated(rows, text, number, *correlation)
    named = numbers_of(text)
    estimator = named[number]
    if over:
        other, under = over
        below = rows_of_text(other), named[under]
        draws = jointly({"number": (rows, estimator), "over": below})
        ratio = draws["number"] / draws["over"]
        return evidence_rows(f"{number} / {under}", draws, ratio)
    if contrast == "each domain":
        draws = jointly({"number": (rows, estimator)})
        return evidence_rows(estimator.name, draws, draws["number"])
    if isinstance(contrast, str):
        first = CONTRASTS[contrast](rows)
        sides = {"first": (rows[first], estimator), "second": (rows[~first], estimator)}
        draws = jointly(sides, same=False)
        change = draws["first"][POOLED] - draws["second"][POOLED]
        name = f"{estimator.name}, {contrast}"
        return evidence_rows(name, draws, {of: change})
    return [row for pair in contrast for row in gap(rows, estimator, pair)]


def gap(rows: pd.DataFrame, estimator: Estimator, pair: Sequence[str]) -> list[dict]:
    """A number of one domain less that of another. ValueError if a domain is missing."""
    score.domains_in(rows, pair)
    own = rows[rows["domain"].isin(pair)]
    draws = jointly({"number": (own, estimator)})
    first, second = pair
    numbers = draws["number"]
    difference = {" - ".join(pair): numbers[first] - numbers[second]}
    return evidence_rows(estimator.name, draws, difference)


def correlated(rows: pd.DataFrame, text: Text, number: str, method: str, other: str) -> list[dict]:
    """Correlation of a number's column with another column, in each domain."""
    column = text.value if number == "acceptance" else number
    found = association.correlations(rows, other, column, method)
    return rows_of(f"{method.title()} of {number} and {other}", found)


def evidence_rows(
    estimator: str, draws: Draws, found: pd.DataFrame | Mapping[str, pd.Series]
) -> list[dict]:
    """Rows of evidence of what was made of draws: by domain (a frame), or by name."""
    if isinstance(found, pd.DataFrame):
        own = found[list(draws.prompts.domains)]
        by_domain = draws.table({"": own})
        return rows_of(estimator, by_domain)
    by_name = draws.table(found, key="row")
    return rows_of(estimator, by_name, "row")


# ---- claims that need more -----------------------------------------------------------------------


def share_between(rows: pd.DataFrame, value: str, factor: str) -> Estimator:
    """Share of the variance of a column between the levels that a factor has in `rows`."""
    known = np.sort(rows[factor].unique())
    in_each = bins.in_levels(value, factor, known)

    def columns(frame: pd.DataFrame) -> np.ndarray:
        y = score.column_of(frame, value)[:, None]
        return np.hstack([in_each(frame), y * y])

    def share(totals: np.ndarray) -> np.ndarray:
        sums, counts, squares = np.split(totals, [len(known), 2 * len(known)], axis=-1)
        of_mean = divide(sums.sum(-1) ** 2, counts.sum(-1))
        of_levels = divide(sums**2, counts)
        between = np.nansum(of_levels, axis=-1) - of_mean
        whole = squares[..., 0] - of_mean
        return divide(between, whole)[..., None]

    return Estimator(f"share of {factor}", columns, share)


def domain_less_depth(rows: pd.DataFrame, value: str) -> list[dict]:
    """Share of the variance of a column between domains less that between depths."""
    if rows["domain"].nunique() < 2:
        raise ValueError("one domain only: a share between domains needs two")
    factors = ("domain", "depth")
    shares = {name: (rows, share_between(rows, value, name)) for name in factors}
    draws = jointly(shares)
    difference = draws["domain"][POOLED] - draws["depth"][POOLED]
    return evidence_rows("share of domain - of depth", draws, {"all": difference})


def tested(blocks: pd.DataFrame) -> pd.DataFrame:
    """One row for each drafted token of a chain's blocks (`replay.replay`) whose predecessors were
    all accepted, which is when a decoder tests it: prompt_id, domain, depth, kept.
    """
    parts = []
    for depth in range(1, PAPER_DEPTH + 1):
        before_kept = blocks["accepted"] >= depth - 1
        in_text = blocks["remaining"] >= depth
        own = blocks[before_kept & in_text]
        rows = own[["prompt_id", "domain"]]
        kept = own["accepted"] >= depth
        parts.append(rows.assign(depth=depth, kept=kept))
    return pd.concat(parts, ignore_index=True)


def share_between_texts(text: Text) -> list[dict]:
    """Shares of the variance of the texts' acceptance: of the domain, the prompt and, where prompts
    have several texts, the draw (`variance_components.shares`).
    """
    found = variance_components.shares(text.trace, text.value)
    name = f"share of what texts differ in, {text.acceptance.name}"
    return [row_of(name, part, one.estimate, one.low, one.high) for part, one in found.items()]


def warmer_less_greedy(tree: Tree, greedy: Text, warm: Text) -> list[dict]:
    """Accepted tokens per target pass of a tree on sampled texts less on greedy text, by domain,
    prompts paired: the tree's children under point-mass.
    """
    accepted = score.block_estimators()["mean_accepted"]
    sums = {
        name: (replay.prompt_sums(text.tree(tree)), accepted)
        for name, text in (("cold", greedy), ("warm", warm))
    }
    draws = jointly(sums)
    name = f"mean_accepted, {warm.name} - {greedy.name}"
    return evidence_rows(name, draws, draws["warm"] - draws["cold"])


# ---- claims about speed --------------------------------------------------------------------------


def chain_cost(gamma: int, c: float, slope: float) -> float:
    """Target passes that a block of gamma drafted tokens costs: gamma c + v(gamma + 1)."""
    return gamma * c + 1 + slope * gamma


def sums_of_chains(text: Text) -> pd.DataFrame:
    """Per-prompt sums of the blocks of chains of GAMMAS, of all seeds: gamma, prompt_id, domain,
    blocks, emitted, ….
    """
    sums = {gamma: replay.prompt_sums(text.chain(gamma)) for gamma in GAMMAS}
    return pd.concat(sums, names=["gamma"]).reset_index("gamma")


def speed_claims(text: Text, grid: Sequence[tuple[float, float]]) -> dict[str, Answer]:
    """The claims that depend on c, by id, each with its rows at every (c, slope) of the grid:
    replayed chains, the best gamma chosen again in every resample.
    """
    sums = sums_of_chains(text)
    per_pass = score.ratio_of("emitted", "blocks")
    asked = {gamma: (sums[sums["gamma"] == gamma], per_pass) for gamma in GAMMAS}
    draws = jointly(asked | {"acceptance": (text.trace, text.acceptance)})
    rows = defaultdict(list)
    for c, slope in grid:
        numbers = _at_cost(draws, c, slope)
        for claim, (name, found) in numbers.items():
            said = f"{name}, {text.chain_rule} rule"
            of_cost = evidence_rows(said, draws, found)
            rows[claim] += [{"c": c, "slope": slope} | row for row in of_cost]
    answers = {claim: partial(list, found) for claim, found in rows.items()}
    answers["budgets"] = partial(budget_gains, sums, grid, text.chain_rule)
    return answers


def _at_cost(draws: Draws, c: float, slope: float) -> dict[str, tuple]:
    """By claim at one cost: what its number is, and the number's draws."""
    speed = {gamma: draws[gamma] / chain_cost(gamma, c, slope) for gamma in GAMMAS}

    plain = np.ones(len(draws[1]))

    def best(domain: str) -> pd.Series:
        every = [plain, *(own[domain] for own in speed.values())]
        gamma = choose.fastest(np.stack(every, axis=1))
        return pd.Series(gamma)

    math = best("math")
    chat = best("chat")
    pays = speed[PAPER_DEPTH][["math", "code"]].to_dict("series")
    counted = ARTICLE_GAMMA * draws["acceptance"]
    by_rule = counted / (counted * c + 1)
    off = by_rule / speed[ARTICLE_GAMMA]
    return {
        "routing": (f"speed-up, chain of {PAPER_DEPTH}", pays),
        "gamma-contrast": ("best gamma, difference", {"math - chat": math - chat}),
        "gamma-proofs": ("best gamma", {"math": math}),
        "gamma-open": ("best gamma", {"chat": chat}),
        "rule": (f"rule / replay, chain of {ARTICLE_GAMMA}", off),
    }


def budget_gains(sums: pd.DataFrame, grid: Sequence[tuple[float, float]], rule: str) -> list[dict]:
    """How much faster a gamma for each domain is than one for all, as a share, by cost
    (`choose.gain`: cross-fitted, and chosen again in every resample).
    """
    chains = sums.rename(columns={"gamma": "setting"})
    chains = chains.set_index(["setting", "prompt_id", "domain"]).sort_index()
    gamma = chains.index.get_level_values("setting")
    rows = []
    for c, slope in grid:
        of_block = chain_cost(gamma, c, slope)
        cost = chains["blocks"] * of_block
        table = pd.DataFrame({"emitted": chains["emitted"], "cost": cost})
        prices = choose.PromptCosts(table)
        gain = choose.gain(prices)
        name = f"gain of a gamma a domain, {rule} rule"
        row = row_of(name, "all", gain.estimate, gain.low, gain.high)
        rows.append({"c": c, "slope": slope} | row)
    return rows


# ---- every claim ---------------------------------------------------------------------------------


def _answers(
    way: str, asked: Mapping[str, Sequence[Mapping]], more: Mapping, **of: Any
) -> dict[tuple[str, str], Answer]:
    """By claim and way to ask: what is asked in data (`evaluate` of these arguments), and the
    claims that need more.
    """

    known: dict[str, list[dict]] = {}  # claims that ask the same ask once

    def answer(entries: Sequence[Mapping]) -> list[dict]:
        for entry in entries:
            if str(entry) not in known:
                known[str(entry)] = evaluate(**of, **entry)
        return [row for entry in entries for row in known[str(entry)]]

    of_data = {name: partial(answer, each) for name, each in asked.items() if each}
    every = of_data | more
    return {(name, way): ask for name, ask in every.items()}


def as_published(text: Text, listed: Mapping[str, Claim]) -> dict[tuple[str, str], Answer]:
    """The paper's own procedure, on the trees of greedy text, by claim and way to ask; also the
    authors' own.
    """
    more = {"task-depth": lambda: domain_less_depth(text.nodes, "ratio")}
    asked = {name: claim.published for name, claim in listed.items()}
    return _answers(PUBLISHED, asked, more, text=text)


def exact_at(
    text: Text, listed: Mapping[str, Claim], grid: Sequence[tuple[float, float]], tree: Tree
) -> dict[tuple[str, str], Answer]:
    """What is exact for a lossless decoder at the temperature of these texts, by claim and way to
    ask (AT_0 or AT_1, the name of the text). tree: the one that the pair's nodes have.
    """
    blocks = text.tree(chain(PAPER_DEPTH))
    kept = tested(blocks)
    more = {
        "task-depth": lambda: domain_less_depth(kept, "kept"),
        "task-first": lambda: share_between_texts(text),
    }
    more |= speed_claims(text, grid)
    asked = {name: claim.exact for name, claim in listed.items()}
    return _answers(text.name, asked, more, text=text, tree=tree)


def evidence(
    pair: PairTexts,
    listed: Mapping[str, Claim],
    grid: Sequence[tuple[float, float]],
    others: Mapping[tuple[str, str], list[dict]],
) -> pd.DataFrame:
    """Every row of the claims about a pair: `claims.COLUMNS`, by prompt set in the order of the
    claims.

    others: rows that runs do not give (`exported`), by claim and way to ask. Where a run cannot
    answer (a domain missing, short texts, a constant column) the row is empty and its `note` says
    why.
    """
    tree = pair.profile.tree
    own = as_published(pair.greedy[OWN], listed)
    own |= {key: partial(list, rows) for key, rows in others.items()}
    parts = []
    for prompts, greedy in pair.greedy.items():
        sampled = pair.sampled[prompts]
        asked = own if prompts == OWN else {}
        asked = asked | exact_at(greedy, listed, grid, tree)
        asked |= exact_at(sampled, listed, grid, tree)
        warmer = partial(warmer_less_greedy, tree, greedy, sampled)
        asked["temperature", AT_1] = warmer
        parts.append(in_frame(listed, pair.profile.name, asked, prompts))
    return pd.concat(parts, ignore_index=True)


def of_sources(listed: Mapping[str, Claim]) -> pd.DataFrame:
    """The rows of the claims that need no pair (`formulas`): `claims.COLUMNS`."""
    about = [claim for claim in listed.values() if claim.about == SOURCES]
    asked = {(one.id, SOURCES): partial(rows_without_pair, one) for one in about}
    return in_frame(listed, SOURCES, asked)


# ---- tables of notebooks 08 and 10 ---------------------------------------------------------------

WAYS = {"hit[1]": AT_0, "alpha": AT_1}  # an exported estimator: the way it is asked
READS = [
    "data/measured",
    "08/distillation.csv",
    "08/self-drafts.csv",
    "08/specialist.csv",
    "10/pass-times.csv",
]
SHIPPED = ROOT / READS[0]  # tables of pairs without committed figures
VERIFIED = 5  # tokens of a pass that verifies four drafted ones
DRAFTS = {  # claim: table, what its number is, of which rows
    "self-draft": ("08/self-drafts", "", {"draft": ["INT4 self-draft"], "domain": DOMAINS}),
    "own-outputs": ("08/distillation", ", distilled - before", {"domain": [score.ALL]}),
    "maths-draft": ("08/specialist", ", specialist - all domains", {"domain": ["math"]}),
}


def places_of(pair: str, figures: Path) -> list[Path]:
    """Where a pair's exported tables may be: the session's own, then what is committed."""
    return [figures / pair, ROOT / "figures" / pair, SHIPPED / f"{pair}.json"]


def exported(places: Sequence[Path]) -> dict[tuple[str, str], list[dict]]:
    """By claim and way to ask, from the first of `places` (folders, or files of SHIPPED) that has a
    table; where none has it, or it judged too few prompts for a verdict, a row that says so.
    """
    tables = {name: _table(places, name) for name, *_ in DRAFTS.values()}
    every = [pd.DataFrame({"n_prompts": [np.inf]}), *tables.values()]
    judged = pd.concat(every)["n_prompts"].min()
    why = "notebook 08 has not run for this pair, or has no such draft"
    if judged < stats.FEW_PROMPTS:
        tables = {}
        why = f"notebook 08 judged {judged:.0f} prompts a domain"
    pass_times = _table(places, "10/pass-times")
    found = {("one-pass", AT_0): _one_pass(pass_times)}
    for claim, (name, suffix, of) in DRAFTS.items():
        for estimator, way in WAYS.items():
            asked = {"estimator": [estimator]} | of
            rows = _of_draft(tables.get(name), estimator + suffix, asked)
            found[claim, way] = rows or [not_measured(why)]
    return found


def _table(places: Iterable[Path], name: str) -> pd.DataFrame | None:
    for place in places:
        file = place / f"{name}.csv"
        if file.is_file():
            return pd.read_csv(file)
        if place.suffix == ".json" and place.is_file():
            held = read_json(place, "take the committed one")["tables"]
            if name in held:
                lines = "\n".join(held[name])
                return pd.read_csv(io.StringIO(lines))
    return None


def _of_draft(table: pd.DataFrame | None, name: str, asked: Mapping[str, Sequence]) -> list[dict]:
    """The rows that have one of the values asked for, by domain, or by draft over all domains."""
    if table is None:
        return []
    own = table[table[[*asked]].isin(asked).all(axis=1)]
    row = "draft" if score.ALL in asked["domain"] else "domain"
    return rows_of(name, own.rename(columns={"difference": "estimate"}), row)


def _one_pass(table: pd.DataFrame | None) -> list[dict]:
    """v(5) with the range that its two measured times allow."""
    if table is None or VERIFIED not in set(table["n"]):
        return [not_measured("notebook 10 has not measured a pass over 5 tokens here")]
    cheapest = table["v(n)"].min()
    if cheapest < LEAST_V:
        of_one = f"was measured at {cheapest:.2f} of one over one"
        return [not_measured(f"refused: a pass over several tokens {of_one}")]
    by_size = table.set_index("n")
    one, five = by_size.loc[[1, VERIFIED]].to_dict("records")
    low = five["target_low"] / one["target_high"]
    high = five["target_high"] / one["target_low"]
    return [row_of("v(5)", "this machine", five["v(n)"], low, high)]
