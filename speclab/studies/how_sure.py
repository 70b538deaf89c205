"""How far an interval can be trusted, how many prompts would be enough, and what the numbers owe to
the seed, the temperature, the length of the texts, and prompts that the draft has seen.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from speclab import replay, runs, score, stats
from speclab.analysis import power
from speclab.analysis.texts import Text
from speclab.drafts.prompts import training_prompts, without_wrapper
from speclab.profiles import ROOT, Profile
from speclab.prompts import Prompt
from speclab.score import Estimator
from speclab.show import figures
from speclab.show.estimates import Estimates
from speclab.stats import Draws
from speclab.tree import Tree

RISES = ("rises in", "falls in", "cannot be told from 0 in")
HIT_MORE = ("is hit more often in", "is hit less often in", "cannot be told from 0 in")

# ---- coverage: simulated once, by data/coverage/prepare.py -------------------------------------

TABLE = ROOT / "data" / "coverage" / "coverage.csv"
EFFECT = "design effect"
ELSEWHERE = "smollm"  # whose simulation stands in for a pair that has none of its own


def coverage_of(pair: str) -> tuple[str, pd.DataFrame]:
    """The pair whose prompts were simulated, `pair` itself where it was, and its coverage:
    estimator, n_prompts (a domain), method, coverage with its 95 % Monte-Carlo interval (low,
    high), width (mean over domains of the median width), studies, used: is it the kit's method?
    """
    found = pd.read_csv(TABLE, float_precision="round_trip")
    shown = pair if (found["pair"] == pair).any() else ELSEWHERE
    rows = found[found["pair"] == shown]
    return shown, rows.drop(columns="pair").reset_index(drop=True)


# ---- power ---------------------------------------------------------------------------------------


def redrawn(
    asked: Mapping[str, tuple[pd.DataFrame, Estimator]],
    prompts: Iterable[int],
    level: float,
    family: int,
    repeats: int = 100,
    n: int = 1999,
) -> pd.DataFrame:
    """The test of two domains on studies redrawn from a run's prompts, at the run's own difference:
    estimator, first, second, prompts, difference, found (its power), formula (the power it should
    have). For each of `asked` the two domains whose difference here is nearest to what the middle
    one of `prompts` detects: larger ones are always found.
    """
    rows, sizes = [], sorted(prompts)
    middle = sizes[len(sizes) // 2]
    for name, (frame, estimator) in asked.items():
        here = score.point_estimates(frame, estimator).iloc[0]
        here = here.drop([score.ALL, score.POOLED])
        plans = power.every_pair(frame, estimator, here, middle, level=level)
        nearest = (plans["difference"].abs() - plans["detectable"]).abs().idxmin()
        first, second = plans.loc[nearest, ["first", "second"]]
        difference = abs(plans.loc[nearest, "difference"])
        design = power.between(frame, estimator, first, second)
        both = frame[frame["domain"].isin([first, second])]
        for size in sizes:
            again = {"level": level / family, "repeats": repeats, "n": n}
            found = power.simulated_power(both, estimator, size, **again)
            formula = float(design.power(difference, size, level, family))
            rows.append((name, first, second, size, difference, found, formula))
    columns = ["estimator", "first", "second", "prompts", "difference", "found"]
    return pd.DataFrame(rows, columns=[*columns, "formula"])


def power_picture(
    asked: Mapping[str, tuple[pd.DataFrame, Estimator]],
    studies: pd.DataFrame,
    plans: pd.DataFrame,
    level: float,
    family: int,
) -> figures.Figure:
    """Power by true difference for the prompts of `redrawn` studies, a panel for each of `asked`
    (by estimator): curves of the formula, the redrawn studies as circles; dotted lines stand at the
    paper's differences (`plans`).
    """
    figure, panels = figures.subplots(1, len(asked), height=2.9, squeeze=False)
    shades = "#9ecae1", "#3182bd", "#08306b"
    for axes, (name, question) in zip(panels[0], asked.items(), strict=True):
        own = studies[studies["estimator"] == name]
        design = power.between(*question, *own[["first", "second"]].iloc[0])
        gaps = plans.loc[plans["estimator"] == name, "difference"].abs()
        widest = 1.1 * max(own["difference"].max(), gaps.max())
        grid = np.linspace(0, widest, 200)
        for shade, dot in zip(shades, own.itertuples(), strict=True):
            line = design.power(grid, dot.prompts, level, family)
            axes.plot(grid, line, color=shade, label=f"{dot.prompts} prompts")
            style = {"color": shade, "markeredgecolor": "black", "clip_on": False}
            axes.plot(dot.difference, dot.found, "o", zorder=3, **style)
        for number, gap in enumerate(gaps):
            label = "the paper's differences" if number == 0 else None
            axes.axvline(gap, color="black", linestyle=":", linewidth=0.8, label=label)
        axes.set(xlabel=f"true difference in {name}", ylim=(0, 1.02), xlim=(0, widest))
    panels[0, 0].set_ylabel("power (circles: the test itself,\non redrawn studies)")
    figures.legend_above(figure, panels[0, 0])
    return figure


# ---- texts of several kinds, prompts paired ------------------------------------------------------


def visited_blocks(text: Text, shape: Any) -> tuple[pd.DataFrame, Estimator]:
    """What `stats.jointly` asks for block_efficiency of a chain of so many tokens, or of a tree,
    over the visited blocks.
    """
    blocks = replay.prompt_sums(text.blocks(shape))
    return blocks, score.block_estimators()["block_efficiency"]


def by_text(
    texts: Mapping[str, Text], gamma: int, key: str
) -> tuple[dict[str, Draws], Estimates]:
    """Acceptance of one drafted token and tokens per pass at gamma of several texts of the same
    prompts: the draws of each quantity, by quantity, and both as estimates: quantity, `key`,
    domain.
    """
    asked = {
        "acceptance": {name: (t.positions, t.acceptance) for name, t in texts.items()},
        f"tokens per pass, gamma {gamma}": {
            name: visited_blocks(text, gamma) for name, text in texts.items()
        },
    }
    draws = {name: stats.jointly(one) for name, one in asked.items()}
    tables = {name: one.table(key=key) for name, one in draws.items()}
    return draws, Estimates.stacked(tables, "quantity", digits=3)


# ---- the end of the texts ------------------------------------------------------------------------


def uncut(text: Text, tree: Tree) -> pd.DataFrame:
    """Sums over each prompt's visited blocks of a recorded tree (T = 0) as if its text went on:
    what the text's end cuts off is known, because the recorded trees look past it.
    """
    reached = text.nodes.assign(walked=score.reach(text.nodes))
    trees = reached.groupby(["prompt_id", "position"])
    walked = trees["walked"].sum()
    blocks = text.blocks(tree)
    accepted = blocks.join(walked, on=["prompt_id", "start"])["walked"]
    whole = ~blocks["truncated"]
    if (accepted[whole] != blocks["accepted"][whole]).any():
        raise ValueError("the nodes are not those of this tree along this greedy text")
    return replay.prompt_sums(blocks.assign(accepted=accepted, emitted=accepted + 1))


# ---- prompts that the draft has seen -------------------------------------------------------------


def trigrams(text: str) -> set[tuple[str, ...]]:
    """Runs of three words of a prompt, without the words around every problem of its domain."""
    bare = without_wrapper(text).lower()
    words = re.findall(r"[a-z0-9]+", bare)
    starts = range(max(1, len(words) - 2))
    return {tuple(words[i : i + 3]) for i in starts}


def composed_prompts(profile: Profile) -> list[Prompt]:
    """The composed prompts that the profile's draft was trained on, made again: as many of each
    domain, and of the seed, as its notes say under `trained_on`; none where they say nothing.
    """
    known = profile.notes.get("trained_on", {"composed": {}})
    return [
        prompt
        for domain, count in known["composed"].items()
        for prompt in training_prompts(count, known["seed"], [domain])
    ]


def seen(profile: Profile, trained_on: Iterable[Prompt]) -> pd.DataFrame:
    """How much of each prompt of a profile one training prompt holds: prompt_id, domain, seen (the
    largest share of its trigrams of words), nearest (that training prompt's id).
    """
    known = {prompt.prompt_id: trigrams(prompt.text) for prompt in trained_on}
    rows = []
    for prompt in runs.profile_prompts(profile):
        own = trigrams(prompt.text)
        shared = {name: len(own & one) for name, one in known.items()}
        nearest = max(shared, key=shared.get)
        share = shared[nearest] / len(own)
        rows.append((prompt.prompt_id, prompt.domain, share, nearest))
    return pd.DataFrame(rows, columns=["prompt_id", "domain", "seen", "nearest"])
