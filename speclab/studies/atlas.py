"""What notebook 17 asks of the atlas (`speclab.analysis.atlas`), and its sentences.

A prompt is the unit: its turns count together, and the same prompts under several methods are
resampled together. Tokens per target pass are a ratio of sums over prompts.
"""

from collections.abc import Iterable, Mapping
from itertools import product

import pandas as pd

from speclab import passes, score, stats
from speclab.analysis import atlas
from speclab.analysis.association import correlation
from speclab.analysis.concordance import Orders
from speclab.analysis.own_pair import accepted_at_depths
from speclab.estimates import Estimates, counted, named, stack, whole
from speclab.score import ALL, POOLED
from speclab.stats import ABOVE, BELOW

PER_PASS = score.ratio_of("emitted", "blocks", "tokens per target pass")
METHODS = {  # on Vicuna-7B, all of Spec-Bench, one schedule each
    "EAGLE": "eagle",
    "Token Recycling": "recycling",
    "Medusa": "medusa",
    "SpS": "sps",
    "PLD": "pld",
    "Lookahead": "lookahead",
}
TARGETS = {  # one run per target, MT-Bench
    "EAGLE, Vicuna-7B": "eagle",
    "REST, Vicuna-7B v1.5": "rest",
    "Medusa, Vicuna-13B": "medusa-13b",
    "Medusa, Vicuna-33B": "medusa-33b",
    "EAGLE, Llama-2-70B": "eagle-70b",
}
SIZES = {"7B": "medusa-7b", "13B": "medusa-13b", "33B": "medusa-33b"}  # Medusa's own runs
COPYING = "PLD"  # proposes nothing but copies of the text
FIRST, DEEP = 1, 3  # depths that are compared
MACHINES, METHOD = "plain, two machines", "speculative and plain, one machine"
PAIRS = {  # runs whose texts are compared; the runs of a repository are from one machine
    MACHINES: [("plain-a", "plain-b"), ("plain-a", "plain-c"), ("plain-b", "plain-c")],
    METHOD: [
        ("eagle", "plain-a"),
        ("sps-confidence", "plain-a"),
        ("medusa", "plain-b"),
        ("pld", "plain-b"),
        ("lookahead", "plain-b"),
        ("recycling", "plain-b"),
        ("sps", "plain-c"),
    ],
}
MEAN, DIFFERENCE = "mean of the pairs", "difference"
PAPERS = {  # the paper's domains among Spec-Bench's categories; the others have too few prompts
    "writing": "chat",
    "roleplay": "chat",
    "stem": "chat",
    "humanities": "chat",
    "math": "math",
    "math_reasoning": "math",
}


# ---- frames --------------------------------------------------------------------------------------


def sums_of_run(run: str) -> pd.DataFrame:
    """Per-prompt sums of a run: prompt_id and domain as text, blocks, emitted, accepted."""
    rows = atlas.sums().query("run == @run").drop(columns="run")
    return rows.astype({"prompt_id": str, "domain": str}).reset_index(drop=True)


def on_spec_bench(named_runs: Mapping[str, str] = METHODS) -> dict[str, pd.DataFrame]:
    """The sums of runs on Spec-Bench, its six tasks as domains."""
    return {name: atlas.in_tasks(sums_of_run(run)) for name, run in named_runs.items()}


def on_mt_bench(named_runs: Mapping[str, str]) -> dict[str, pd.DataFrame]:
    """The sums of runs on MT-Bench's 80 prompts, its eight categories as domains."""
    categories = atlas.sources()["mt_bench"]["categories"]
    frames = {name: sums_of_run(run) for name, run in named_runs.items()}
    return {
        name: rows[rows["domain"].isin(categories)].reset_index(drop=True)
        for name, rows in frames.items()
    }


def table_of_runs() -> Estimates:
    """Tokens per target pass of each run that speculates, pooled over its prompts: method, target,
    set, estimate, low, high, n_prompts.
    """
    facts = atlas.runs().query("method != 'plain'").set_index("run")
    rows = {}
    for run in facts.index:
        pooled = stats.by_domain(sums_of_run(run), PER_PASS).frame.query("domain == @POOLED")
        rows[tuple(facts.loc[run, ["method", "target", "set"]])] = pooled
    table = stack(rows, ["method", "target", "set"])
    return Estimates(table.drop(columns=["estimator", "domain"]))


def over_mean(orders: Orders, key: str = "method") -> Estimates:
    """Each domain's value over the mean of the domains, for each method."""
    draws = orders.draws
    parts = {name: rows.div(rows[ALL], axis=0) for name, rows in draws.values.items()}
    return draws.table(parts, key).without(domain=[ALL, POOLED])


# ---- depth ---------------------------------------------------------------------------------------


def accepted_by_depth(run: str, deepest: int) -> stats.Draws:
    """Acceptance at each depth, given that all tokens above were accepted, over the passes that
    could go so deep: their draft and the rest of the answer were long enough.

    Entries are depths, up to `deepest` or the run's K. The tasks of Spec-Bench are the domains of
    the resamples.
    """
    return accepted_at_depths(atlas.in_tasks(atlas.passes_of(run)), deepest)


def depth_tables(runs: Mapping[str, str], deepest: int) -> tuple[Estimates, Estimates]:
    """(acceptance by method and depth, its change from depth FIRST to depth DEEP by method), both
    pooled over prompts.
    """
    levels, changes = {}, {}
    for name, run in runs.items():
        draws = accepted_by_depth(run, deepest)
        levels[name] = draws.table(key="depth").frame
        change = (draws[DEEP] - draws[FIRST])[POOLED]
        changes[name] = draws.table({"change": change}, key="number").frame
    pooled = Estimates(stack(levels, ["method"])).at(domain=POOLED).in_units("%")
    return pooled, Estimates(stack(changes, ["method"])).in_units("points")


# ---- what is easy --------------------------------------------------------------------------------

EVERYWHERE, WITHIN = "all prompts", "within tasks"


def easy_for_both(frames: Mapping[str, pd.DataFrame], others: Iterable[str]) -> Estimates:
    """Spearman's correlation over prompts of two methods' tokens per target pass, for each pair
    (method, other): over all prompts, and over the prompts' ranks within their tasks.
    """
    rates = {name: rows["emitted"] / rows["blocks"] for name, rows in frames.items()}
    first = next(iter(frames.values()))
    table = first[["prompt_id", "domain"]].assign(**rates)
    ranks = table.groupby("domain")[[*rates]].rank(pct=True)
    scopes = {EVERYWHERE: table, WITHIN: table.assign(**ranks)}
    rows = []
    pairs = [(name, other) for name in frames for other in others if name != other]
    for (name, other), (scope, part) in product(pairs, scopes.items()):
        number = vars(correlation(part, name, other))
        rows.append({"method": name, "other": other, "over": scope} | number)
    return Estimates(pd.DataFrame(rows))


# ---- size ----------------------------------------------------------------------------------------


def by_target_size() -> tuple[Estimates, Estimates]:
    """(tokens per target pass of Medusa by size of the target and category, the differences between
    sizes pooled over the 80 prompts).
    """
    frames = on_mt_bench(SIZES)
    draws = stats.jointly({size: (rows, PER_PASS) for size, rows in frames.items()})
    small, *larger = SIZES
    steps = {size: (draws[size] - draws[small])[POOLED] for size in larger}
    return draws.table(key="target"), draws.table(steps, key="size")


# ---- texts ---------------------------------------------------------------------------------------


def same_texts() -> Estimates:
    """The share of prompts whose first answer is the same text in two runs, by kind (MACHINES,
    METHOD) and pair; then the MEAN of each kind's pairs, and the DIFFERENCE of METHOD and MACHINES.
    """
    first = atlas.in_tasks(atlas.answers().query("turn == 0 and text.notna()"))
    texts = first.pivot(index=["prompt_id", "domain"], columns="run", values="text")
    pairs = {(kind, pair): pair for kind, kinds in PAIRS.items() for pair in kinds}
    questions = {}
    for key, (one, other) in pairs.items():
        both = texts[[one, other]].dropna()
        same = both[one] == both[other]
        questions[key] = (same.rename("same").reset_index(), score.mean_of("same"))
    draws = stats.jointly(questions)
    numbers = {(kind, two_runs_in_words(*pair)): draws[kind, pair][POOLED] for kind, pair in pairs}
    means = {}
    for kind, kinds in PAIRS.items():
        of_kind = [draws[kind, pair][POOLED] for pair in kinds]
        means[kind] = numbers[kind, MEAN] = sum(of_kind) / len(of_kind)
    numbers[DIFFERENCE, DIFFERENCE] = means[METHOD] - means[MACHINES]
    parts = {key: draws.table({"same": number}, "share").frame for key, number in numbers.items()}
    return Estimates(stack(parts, ["kind", "runs"]).drop(columns="share")).in_units("%")


def two_runs_in_words(one: str, other: str) -> str:
    """Two runs as 'EAGLE and plain A'; A, B and C are the machines of the plain runs."""
    methods = atlas.runs().set_index("run")["method"]
    names = [f"plain {run[-1].upper()}" if "plain" in run else methods[run] for run in (one, other)]
    return named(names)


# ---- the paper's claims --------------------------------------------------------------------------


def evidence_of(run: str) -> dict[str, pd.DataFrame]:
    """Evidence on the paper's claims from a run, in chat and math (PAPERS): tables with domain and
    numbers by claim. Acceptance is the share of passes that accept at least one token.
    """
    rows = atlas.passes_of(run)
    rows = rows.assign(domain=rows["domain"].map(PAPERS), first=rows["accepted"] > 0)
    rows = rows.dropna(subset=["domain"])
    deep = passes.depth_counts(rows, DEEP)
    draws = stats.jointly(
        {
            "level": (rows, score.mean_of("first")),
            "length": (rows, score.mean_of("accepted")),
            "deep": (deep, score.ratio_of("accepted", "reached")),
        }
    )
    level = draws["level"]
    numbers = {
        "level": level,
        "gap": (level["chat"] - level["math"]).to_frame("chat - math"),
        "length": draws["length"],
        "depth": draws["deep"] - level,
    }
    table = draws.table(numbers, "claim").frame
    known = table[~table["domain"].isin([ALL, POOLED])]
    return dict(list(known.groupby("claim", sort=False)))


# ---- sentences -----------------------------------------------------------------------------------


def methods_in_words(spreads: pd.DataFrame) -> str:
    """For which methods the tasks differ significantly, as a subject: 'all six methods'."""
    is_found = spreads["p_holm"] < 0.05
    if is_found.all():
        return whole("method", len(spreads))
    return named(list(spreads.loc[is_found, "method"])) if is_found.any() else "no method"


def shared_order_in_words(agreement: Mapping[str, float]) -> str:
    """Whether the methods agree on an order, and whether shared prompts explain it: a sentence."""
    number = stats.cell(agreement["estimate"], agreement["low"], agreement["high"], 2)
    if agreement["p_value"] >= 0.05:
        return f"The methods do not significantly agree on an order (Kendall's W {number})."
    explained = "which shared prompts alone could explain"
    if agreement["p_shared"] < 0.05:
        explained = "more than shared prompts alone explain"
    return f"They partly share an order (Kendall's W {number}), {explained}."


def tasks_in_words(spreads: pd.DataFrame, agreement: Mapping[str, float]) -> str:
    """The notebook's answer. spreads, agreement: of `Orders`."""
    found = spreads[spreads["p_holm"] < 0.05].sort_values("estimate")
    order = shared_order_in_words(agreement)
    if found.empty:
        return f"Inconclusive: the tasks do not differ significantly with any method. {order}"
    ends = found.iloc[[0, -1]].drop_duplicates("method")
    parts = [f"{row.estimate:.2f}x ({row.method})" for row in ends.itertuples()]
    return (
        f"Yes, for {methods_in_words(spreads)}. The best task emits {' to '.join(parts)} the "
        f"tokens per target pass of the worst task. {order}"
    )


def rises_in_words(changes: Estimates) -> str:
    """For which methods acceptance rises with depth, and for which it falls, as a sentence."""
    words = "rises for", "falls for", "does not change significantly for"
    clauses = changes.sentence(*words, names="method")
    return f"From depth {FIRST} to depth {DEEP}, acceptance given all tokens above {clauses}."


def texts_in_words(same: Estimates) -> str:
    """How many texts agree, and whether the method matters more than the machine, as sentences."""
    means = same.at(runs=MEAN)
    difference = same.at(kind=DIFFERENCE).in_units("points", 1)
    outcome = {ABOVE: "more often than", BELOW: "less often than"}
    how = outcome.get(difference.verdict())
    verdict = f"agree significantly {how}" if how else "do not differ significantly from"
    return (
        f"Plain decoding on two machines gives the same text for {means.at(kind=MACHINES)} of the "
        f"prompts, speculative and plain decoding on one machine for {means.at(kind=METHOD)}. "
        f"Speculative texts {verdict} texts of another machine ({difference})."
    )


def chance_in_words(agreement: Mapping[str, float]) -> str:
    """How an agreement compares with both kinds of chance, as sentences."""
    above = {True: "significantly above", False: "not significantly above"}
    of_orders = above[agreement["p_value"] < 0.05]
    of_prompts = above[agreement["p_shared"] < 0.05]
    return (
        f"W is {of_orders} the mean of unrelated orders ({agreement['unrelated']:.2f}). It is "
        f"{of_prompts} the mean of methods that share only the prompts ({agreement['shared']:.2f})."
    )


def p_in_words(p_value: float) -> str:
    """A p-value, as 'p = 0.012'."""
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


def depth_title(changes: Estimates) -> str:
    """For how many methods acceptance rises, and for how many it falls, as a title."""
    verdicts = list(stats.verdict(changes.frame["low"], changes.frame["high"]))
    rises, falls = verdicts.count(ABOVE), verdicts.count(BELOW)
    total = counted(len(verdicts), "method")
    what = f"rises for {rises} and falls for {falls} of {total}"
    return f"From depth {FIRST} to {DEEP}, acceptance {what}"


def texts_title(same: Estimates) -> str:
    """How often texts agree between machines, and between methods, as a title."""
    means = same.at(runs=MEAN).frame.set_index("kind")["estimate"]
    plain, method = (f"{100 * means[kind]:.0f} %" for kind in (MACHINES, METHOD))
    return f"Two machines agree on {plain} of plain texts, two methods on one machine on {method}"


def gap_in_words(gaps: Estimates) -> str:
    """For which methods acceptance is higher in chat than in math, as a sentence; the paper says
    higher.
    """
    words = "higher in chat for", "lower in chat for", "not significantly different for"
    clauses = gaps.sentence(*words, names="method")
    return f"Compared with math, acceptance is {clauses} (chat minus math: {gaps.span()})."


def headline(spreads: pd.DataFrame) -> str:
    """The report's number: the ratio of best to worst task for the first method."""
    row = spreads.iloc[0]
    return (
        f"Public runs, {row['method']} on Vicuna-7B: **{row['estimate']:.2f}x** the tokens per "
        "target pass on the best task, compared with the worst"
    )


def target_sizes_in_words(steps: Estimates) -> str:
    """Whether Medusa emits more tokens per target pass on larger targets, as a sentence."""
    words = "rise significantly at", "fall significantly at", "do not change significantly at"
    clauses = steps.sentence(*words, names="size")
    least = next(iter(SIZES))
    return f"Compared with {least}, Medusa's tokens per target pass {clauses} ({steps})."
