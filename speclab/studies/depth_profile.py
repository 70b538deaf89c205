"""Does acceptance rise with depth? Profiles by depth with the kind of node held fixed, what the cut
of a tree does to a mean, acceptance where the parent was accepted, and the place in the text.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from speclab import replay, score, stats
from speclab.analysis import published, rungs, significance
from speclab.score import ALL, POSITION_BIN, Estimator
from speclab.show import figures
from speclab.show.estimates import (
    NUMBERS,
    Estimates,
    direction,
    stack,
    without_interval,
)
from speclab.tree import static_tree

TREE = ["prompt_id", "position"]
BINS = "all domains, bins"
BIN_LOOK = {BINS: {"color": "black", "marker": "x", "markersize": 7, "zorder": 4}}
GAIN = "accept_by_depth - unconditional"
RULES = {"T = 0": "greedy", "T = 1": "point-mass"}
BEST_PATH = {text: f"accept_by_depth, best path, {text}" for text in RULES}
HYBRID = "T = 1 rule on greedy text"  # the acceptance of no decoder
WORDS = ("higher in", "lower in", "cannot be told apart in")


def shape(run) -> str:
    """Nodes of a run's tree by depth: '2 + 4 + 2'."""
    return " + ".join(map(str, run.nodes.groupby("depth")["node"].nunique()))


def long_texts(nodes: pd.DataFrame) -> pd.Series:
    """Prompts by domain whose text reaches the paper's second bin of positions."""
    late = nodes[nodes["position"] >= POSITION_BIN]
    return late.groupby("domain")["prompt_id"].nunique()


def enough(late: pd.Series) -> bool:
    """True where every domain that has long texts (`long_texts`) has enough for an interval."""
    return len(late) > 0 and late.min() >= stats.MIN_PROMPTS


# ---- profiles by depth ---------------------------------------------------------------------------

Question = tuple[pd.DataFrame, Estimator]


def kinds(cut, full, warm, depth: int, branches: int) -> dict[str, Question]:
    """Kinds of node by name, each as rows and a family of estimators by depth: of the paper's tree
    (`cut`), the complete one (`full`), and the paper's at T = 1 (`warm`). Names with HYBRID are
    min(1, p/q) on greedy text; `accept_by_depth` is under the rule of its own text.
    """
    tree, blocks = score.tree_estimators(), score.block_estimators()
    cold_path, warm_path = map(score.best_path_accept_by_depth, RULES.values())
    starts = replay.replay(warm.trace, static_tree(depth, branches), "every")
    complete = replay.prompt_sums(starts, "room")
    cut_shape, full_shape = shape(cut), shape(full)
    under_best = cut.nodes["parent"].isin(best_path(cut.nodes))
    second = cut.nodes[under_best & (cut.nodes["rank"] == 1)]
    accepted, name = f"accept_by_depth, {full_shape}", "accept_by_depth"
    return {
        f"published_alpha, {cut_shape}": (cut.nodes, score.ratio_by_depth),
        f"published_alpha, {full_shape}": (full.nodes, score.ratio_by_depth),
        BEST_PATH["T = 0"]: (cut.nodes, cold_path),
        BEST_PATH["T = 1"]: (warm.nodes, warm_path),
        f"best_path_ratio, {HYBRID}": (cut.nodes, score.best_path_ratio_by_depth),
        f"its second child, {HYBRID}": (second, score.ratio_by_depth),
        f"{accepted}, T = 0": (full.nodes, tree[name]),
        f"{accepted}, T = 1": (complete, blocks[name]),
    }


def best_path(nodes: pd.DataFrame) -> set[int]:
    """Numbers of the root and of the nodes on the best path."""
    return {0, *nodes.loc[nodes["best_path"], "node"]}


def by_depth(asked: dict[str, Question]) -> Estimates:
    """Estimates by name, domain and depth."""
    parts = {name: stats.by_domain(*question) for name, question in asked.items()}
    found = stack(parts, "name")
    found["depth"] = found["estimator"].str.extract(r"\[(\d+)\]")[0].astype(int)
    return Estimates(found[["name", "domain", "depth", *NUMBERS]], digits=3)


def change_by_kind(asked: dict[str, Question]) -> Estimates:
    """The deepest level less depth 1 by name and domain: every resample of prompts draws both, so
    the difference is paired.
    """
    parts = {
        name: stats.by_domain(frame, rungs.change(family))
        for name, (frame, family) in asked.items()
    }
    columns = ["name", "domain", *NUMBERS, "n_prompts"]
    return Estimates(stack(parts, "name")[columns], digits=3)


def printed_profile(domains: Sequence[str]) -> Estimates:
    """The paper's own Table IV by domain and depth, as published_alpha without intervals."""
    table = published.published("IV").astype({"depth": int}).set_index("domain")
    table = table.loc[list(domains)].reset_index()
    table = without_interval(table, table["published"])
    return Estimates(table[["domain", "depth", *NUMBERS]], digits=3)


def printed_change(printed: Estimates) -> Estimates:
    """Depth 3 less depth 1 of the paper's profile, by domain."""
    last, first = (printed.at(depth=depth).frame for depth in (3, 1))
    change = last.assign(estimate=last["estimate"] - first["estimate"])
    return Estimates(change.drop(columns="depth"), digits=3)


def beside_the_paper(
    ours: Estimates, theirs: Estimates, names: Sequence[str]
) -> Estimates:
    """The paper's rows, then ours of the given names and the paper's domains, a `panel` each."""
    domains = list(pd.unique(theirs.frame["domain"]))
    parts = {"published_alpha, the paper": theirs.frame}
    for name in names:
        rows = ours.at(name=name, domain=domains).defined()
        parts[name] = rows.frame.drop(columns="name")
    two_lines = {name.replace(", ", ",\n", 1): rows for name, rows in parts.items()}
    return Estimates.stacked(two_lines, "panel", ours.digits)


def change_said(found: Estimates) -> str:
    """One line a name: in which domains it is higher or lower, and the mean of domains."""
    lines = []
    for name, rows in found.groups("name"):
        words = rows.without(domain=[ALL, score.POOLED]).sentence(*WORDS)
        lines.append(f"* `{name}`: {words}; mean of domains {rows.at(domain=ALL)}.")
    return "\n".join(lines)


# ---- what the cut does to the mean ---------------------------------------------------------------


def mixtures(cut, full) -> Estimates:
    """The mean of domains by name and depth: of nodes under the best path, of those under other
    branches, and of all nodes of either tree (without interval).
    """
    inside = full.nodes["parent"].isin(best_path(cut.nodes))
    mixed = {
        "under the best path": full.nodes[inside],
        "under other branches": full.nodes[~inside],
        f"all nodes, {shape(cut)}": cut.nodes,
        f"all nodes, {shape(full)}": full.nodes,
    }
    asked = {
        name: (rows, score.ratio_by_depth) for name, rows in mixed.items() if len(rows)
    }
    means = by_depth(asked).at(domain=ALL).defined()
    whole = means.frame["name"].str.startswith("all nodes")
    means.frame.loc[whole, ["low", "high"]] = np.nan
    return means


def mixture_table(means: Estimates, cut, full) -> pd.DataFrame:
    """By depth: the share of nodes under other branches in either tree, and the means."""
    on_path, shares = best_path(cut.nodes), {}
    for run in (cut, full):
        other = ~run.nodes["parent"].isin(on_path)
        share = other.groupby(run.nodes["depth"]).mean()
        shares[f"other branches, {shape(run)}"] = share
    curves = means.frame.pivot(index="depth", columns="name", values="estimate")
    return pd.DataFrame(shares).join(curves)


def mixing_error(table: pd.DataFrame, name: str) -> float:
    """How far the mean over all nodes of a tree ('2 + 4 + 2') is from the mixture of its parts."""
    weight = table[f"other branches, {name}"]
    other = table.get("under other branches", 0 * weight).fillna(0.0)
    mixed = (1 - weight) * table["under the best path"] + weight * other
    return float((mixed - table[f"all nodes, {name}"]).abs().max())


def cut_at_the_end(cut, full) -> significance.Difference:
    """published_alpha of the deepest level: the complete tree less the cut one, the same texts."""
    deepest = cut.nodes["depth"].max()
    parts = [run.nodes[run.nodes["depth"] == deepest] for run in (full, cut)]
    return significance.paired_difference(*parts, score.published_alpha)


def cut_said(gap: stats.Interval) -> str:
    """What the cut does to the number at the deepest level."""
    return direction(gap, "lowers", "raises", "cannot be seen to move")


def course(means: Estimates) -> str:
    """'under the best path 0.622 → 0.646 → 0.650, under other branches …', by name."""
    digits = f"{{:.{means.digits}f}}".format
    parts = [
        f"{name} {' → '.join(rows.frame['estimate'].map(digits))}"
        for name, rows in means.groups("name")
    ]
    return ", ".join(parts)


# ---- where the parent was accepted ---------------------------------------------------------------


def best_path_chain(nodes: pd.DataFrame, rule: str) -> pd.DataFrame:
    """The best path's nodes with `own` (accepted as if its parent were), `accepted` (with all
    above it), `reached` (all above it) and `one`.
    """
    chain = nodes[nodes["best_path"]].assign(one=1.0)
    greedy = rule == "greedy"
    chain["own"] = chain["target_rank"] == 0 if greedy else chain["target_prob"]
    chain["accepted"] = score.reach(chain, rule)
    chain["reached"] = chain.groupby(TREE)["accepted"].shift(fill_value=1.0)
    return chain


def _given_less_always(totals: np.ndarray) -> np.ndarray:
    accepted, reached, own, one = np.split(totals, 4, axis=-1)
    return score.divide(accepted, reached) - score.divide(own, one)


def _sums(*names: str) -> Estimator:
    value = score.quotient if len(names) == 2 else _given_less_always
    return Estimator(names[0], lambda rows: rows[list(names)].to_numpy(float), value)


ALONG = {
    "unconditional": score.mean_of("own"),
    "accept_by_depth": _sums("accepted", "reached"),
    "survival_by_depth": score.mean_of("accepted"),
    GAIN: _sums("accepted", "reached", "own", "one"),
}


def along_best_path(cut, warm) -> Estimates:
    """ALONG by text (T = 0, greedy rule; T = 1, point-mass rule), name, depth and domain."""
    parts = {}
    for (text, rule), run in zip(RULES.items(), (cut, warm), strict=True):
        levels = best_path_chain(run.nodes, rule).groupby("depth")
        for name, estimator in ALONG.items():
            for depth, rows in levels:
                parts[text, name, depth] = stats.by_domain(rows, estimator)
    keys = ["text", "name", "depth"]
    frame = stack(parts, keys)[[*keys, "domain", *NUMBERS]]
    return Estimates(frame).without(domain=[ALL, score.POOLED])


def gains_said(steps: Estimates) -> str:
    """Acceptance where the parent was accepted beside acceptance everywhere, below depth 1."""
    gain = steps.at(name=GAIN).without(depth=1).frame
    where = gain["text"] + ", depth " + gain["depth"].astype(str)
    return Estimates(gain.assign(where=where)).sentence(*WORDS, within="where")


# ---- depth and position --------------------------------------------------------------------------


def bin_size(nodes: pd.DataFrame, smallest: int) -> int:
    """Tokens a bin, so that there are four bins at most."""
    longest = int(nodes["position"].max()) + 1
    return max(smallest, -(-longest // 4))


def heat_map(nodes: pd.DataFrame, size: int) -> pd.DataFrame:
    """Mean of min(1, p/q) of all nodes, and share accepted on the best path where the parent was
    (T = 0, greedy rule): estimator, depth, domain (`all`: pooled), bin, mean (missing where there
    is no such node).
    """
    levels = {
        "depth": range(1, int(nodes["depth"].max()) + 1),
        "domain": [*score.domains_in(nodes), ALL],
        "bin": range(int(nodes["position"].max()) // size + 1),
    }
    every = pd.MultiIndex.from_product(levels.values(), names=levels)
    path = best_path_chain(nodes, "greedy")
    asked = {
        "published_alpha": nodes.assign(mean=score.ratio(nodes)),
        BEST_PATH["T = 0"]: path.assign(mean=path["accepted"])[path["reached"] == 1],
    }
    parts = {}
    for name, rows in asked.items():
        rows = rows.assign(bin=rows["position"] // size)
        cells = pd.concat([rows, rows.assign(domain=ALL)]).groupby([*levels])["mean"]
        parts[name] = cells.mean().reindex(every).reset_index()
    return stack(parts, "estimator")


def heat_map_picture(cells: pd.DataFrame, size: int) -> figures.Figure:
    """One map an estimator, on one colour scale: depth by domain and tokens of the text."""
    maps = list(cells.groupby("estimator", sort=False))
    low, high = cells["mean"].min(), cells["mean"].max()
    figure, panels = figures.subplots(len(maps), 1, height=3.6)
    for axes, (name, rows) in zip(panels, maps, strict=True):
        tokens = [f"{size * one + 1}-{size * (one + 1)}" for one in rows["bin"]]
        label = rows["domain"] + "\n" + tokens
        rows = rows.assign(label=label)
        wide = rows.pivot(index="depth", columns="label", values="mean")
        figures.heatmap(wide[pd.unique(label)], axes, name, 3, low, high)
        axes.set(xlabel="", ylabel="depth")
    return figure


def largest_step(cells: pd.DataFrame) -> pd.Series:
    """By estimator: the largest difference between depth 1 and the deepest level in any one bin."""
    deepest = cells["depth"].max()
    wide = cells.set_index(["estimator", "domain", "bin", "depth"])["mean"].unstack()
    return (wide[deepest] - wide[1]).abs().groupby("estimator", sort=False).max()


# ---- along the text ------------------------------------------------------------------------------


def asked_of_texts(cut, warm) -> dict[str, Question]:
    """Three estimators of one number, each with its rows: the published one and hit[1] on greedy
    text (`cut`), alpha on sampled text (`warm`).
    """
    trace = score.with_hits(cut.trace)
    return {
        "published_alpha": (cut.nodes, score.published_alpha),
        "hit[1], T = 0": (trace, score.mean_of("hit")),
        "alpha, T = 1": (warm.trace, score.alpha),
    }


def smooth(
    frame: pd.DataFrame, estimator: Estimator, bandwidth: float, step: int = 4
) -> pd.DataFrame:
    """A mean over rows in a normal window around every fourth token (standard deviation `bandwidth`
    tokens): domain, token (from 1), estimate, low, high, as far as five texts of the domain go on.
    """
    grid = np.arange(0, int(frame["position"].max()) + 1, step)

    def columns(rows: pd.DataFrame) -> np.ndarray:
        distance = rows["position"].to_numpy()[:, None] - grid
        window = np.exp(-(distance**2) / (2 * bandwidth**2))
        return np.hstack([window * estimator.columns(rows)[:, :1], window])

    mean = Estimator("mean", columns, score.quotient, scalar=False)
    found = stats.by_domain(frame, mean)
    found["token"] = np.tile(grid, len(found) // len(grid)) + 1
    ends = frame.groupby(["domain", "prompt_id"])["position"].max()
    ends = ends.groupby("domain").nlargest(stats.MIN_PROMPTS).groupby(level=0).min()
    kept = found[found["token"] - 1 <= found["domain"].map(ends)]
    return kept[["domain", "token", *NUMBERS]]


def along_text(asked: dict[str, Question], bandwidth: float, size: int) -> Estimates:
    """`smooth` by name, domain and token, with the means of the bins of all domains as BINS."""
    parts = {}
    for name, (frame, estimator) in asked.items():
        groups = frame.groupby(frame["position"] // size)
        bins = {int((place + 0.5) * size): estimator(rows) for place, rows in groups}
        means = Estimates.exact("domain", {BINS: [*bins.values()]}, "token", [*bins])
        parts[name] = pd.concat([smooth(frame, estimator, bandwidth), means.frame])
    return Estimates.stacked(parts, "name", digits=3)


def position_effects(asked: dict[str, Question]) -> pd.DataFrame:
    """Tokens 33-64 less tokens 1-32 of the same prompts, for each estimator and each domain with
    enough long texts: estimator, domain, fields of `significance.Difference`, p_holm. No columns
    where there is none.
    """
    rows = []
    for name, (frame, estimator) in asked.items():
        half = frame["position"] // POSITION_BIN
        for domain in score.domains_in(frame):
            late = frame[(half == 1) & (frame["domain"] == domain)]
            early = frame[(half == 0) & frame["prompt_id"].isin(late["prompt_id"])]
            if late["prompt_id"].nunique() >= stats.MIN_PROMPTS:
                found = significance.paired_difference(late, early, estimator)
                rows.append({"estimator": name, "domain": domain} | vars(found))
    effects = pd.DataFrame(rows)
    if rows:
        effects["p_holm"] = significance.holm(effects["p_value"].to_numpy())
    return effects


def effects_found(effects: pd.DataFrame, level: float) -> pd.DataFrame:
    """The effects whose p-value after Holm is below `level`."""
    return effects[effects["p_holm"] < level] if len(effects) else effects


def effects_said(found: pd.DataFrame, tests: int) -> str:
    """'`alpha` rises in math: +0.012 [+0.002, +0.022]; …' of the effects found by so many tests,
    or that there is none.
    """
    if not tests:
        return (
            f"nothing to test, no domain has {stats.MIN_PROMPTS} texts that are so long"
        )
    said = []
    for row in found.itertuples():
        verb = "rises" if row.estimate > 0 else "falls"
        interval = f"[{row.low:+.3f}, {row.high:+.3f}]"
        said.append(
            f"`{row.estimator}` {verb} in {row.domain}: {row.estimate:+.3f} {interval}"
        )
    return "; ".join(said) or "no position effect can be told from 0"
