"""The acceptance of a recorded run under the names that other engines print.

What an engine calls what stands in data/engines/names.yaml: a name is bound to one of the figures
below, so no engine has code of its own. The figures are counts of a replay (`speclab.replay`,
visited blocks) and the RATIOS of counts, pooled, by domain and by request (a prompt). The mean of
the requests' ratios is another number than the pooled ratio, which weights a request by its blocks.

The end of a text: a block that it cuts counts with the tokens accepted inside the text. `drafted`
are the tokens drafted inside it, `drafted_whole` those of the whole shape in every block, which is
what an engine counts that drafts past the end (vLLM, SGLang). Such an engine also counts what it
accepts behind the end; no trace tells that, and only the `truncated` blocks can differ by it.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import yaml

from speclab import replay
from speclab.decode import check_rule
from speclab.draft import Shape, parse_shape
from speclab.profiles import ROOT
from speclab.runs import Run
from speclab.sampling import Sampling
from speclab.score import divide

NAMES = ROOT / "data" / "engines" / "names.yaml"
RATIOS = {  # each figure that is a quotient of counts: its parts
    "mean_accepted": ("accepted", "blocks"),
    "mean_accepted_and_bonus": ("accepted_and_bonus", "blocks"),
    "block_efficiency": ("emitted", "blocks"),
    "draft_utilisation": ("accepted", "drafted"),
    "draft_utilisation_whole": ("accepted", "drafted_whole"),
    "accepted_per_verified": ("accepted_and_bonus", "verified"),
    "survival_by_depth": ("accepted_by_depth", "blocks"),
    "accept_by_depth": ("accepted_by_depth", "reached_by_depth"),
}
EXACT = {
    "greedy": "exact: the counts of the greedy decoder on these prompts",
    "point-mass": "exact for these sampled texts, drafted by the draft's best tokens",
    "rejection": "an expectation: given these sampled texts, the mean over the decoder's random "
    "numbers; counts need not be whole",
}
SAYS = {
    "text_end": "a block cut by the text's end (`truncated`) has no bonus and counts with what it "
    "accepts inside the text; `drafted` ends there too, `drafted_whole` counts the whole shape, as "
    "vLLM and SGLang do, which also count what they accept behind the end: no trace tells that",
    "text_start": "the first block drafts the text's first token; a server takes that token from "
    "the prefill and drafts behind it",
    "by_depth": "entry d - 1 is depth d (of a tree: its level); survival_by_depth is joint, "
    "accept_by_depth conditional",
    "requests": "pooled: sums over all prompts before dividing; mean_of_requests: of the prompts' "
    "own figures, each prompt counting the same",
}
COUNTS = ("blocks", "drafted", "drafted_whole", "accepted", "emitted", "truncated")

Figures = dict[
    str, Any
]  # by name: a number; by depth, by prompt: an array (depths, prompts)


# ---- a run's figures -----------------------------------------------------------------------------


def metrics_of(run: Run, shape: str, rule: str | None = None) -> dict[str, Any]:
    """What `python -m speclab metrics` prints: a run's figures for a shape, pooled, by domain and
    by request, and under each engine's names.

    rule: greedy, rejection or point-mass; None takes the one that goes with the run's temperature.
    ValueError for what does not go together.
    """
    drafted, temperature = parse_shape(shape), run.manifest["profile"]["temperature"]
    rule = rule_for(drafted, temperature, rule)
    found = summary(sums_of(run.trace, drafted, rule))
    head = {
        "run": run.folder.name,
        "temperature": temperature,
        "shape": shape,
        "rule": rule,
        "says": {"exact": EXACT[rule], **SAYS},
        "engines": under_their_names(found),
    }
    return plain(head | found)


def rule_for(shape: Shape, temperature: float, rule: str | None = None) -> str:
    """The rule that is replayed; ValueError unless shape, temperature and rule go together."""
    if shape.tree is None or not shape.size:
        raise ValueError(
            "a trace tells what a chain or a static tree accepts: allowed are chain:GAMMA and "
            "tree:DEPTH,BRANCHES[,BUDGET], not plain or dynamic shapes"
        )
    if rule is None:
        warm = "rejection" if shape.is_chain else "point-mass"
        rule = "greedy" if temperature == 0 else warm
    if rule not in replay.RULES:
        raise ValueError(
            f"rule={rule!r}: allowed are {', '.join(replay.RULES)}; no trace tells what another "
            "rule accepts"
        )
    check_rule(rule, shape, Sampling(temperature))
    return rule


def sums_of(trace: pd.DataFrame, shape: Shape, rule: str) -> pd.DataFrame:
    """Per-prompt sums of the visited blocks, with `drafted_whole`."""
    if rule == "rejection":
        blocks = replay.replay_sampled(trace, shape.size)
    else:
        blocks = replay.replay(trace, shape.tree)
    sums = replay.prompt_sums(blocks)
    return sums.assign(drafted_whole=sums["blocks"] * shape.size)


def summary(sums: pd.DataFrame) -> dict[str, Any]:
    """Figures of per-prompt sums: `pooled`, `mean_of_requests`, `by_domain`, `by_request`."""
    counted = counted_figures(sums)
    requests = figures(counted)

    def over(prompts: np.ndarray) -> dict[str, Figures]:
        pooled = {name: each[..., prompts].sum(-1) for name, each in counted.items()}
        means = {name: mean(each[..., prompts]) for name, each in requests.items()}
        return {"pooled": figures(pooled), "mean_of_requests": means}

    who = sums[["prompt_id", "domain"]].to_dict("records")
    domains = sums["domain"].to_numpy()
    return {
        **over(np.full(len(sums), True)),
        "by_domain": {name: over(domains == name) for name in dict.fromkeys(domains)},
        "by_request": [
            person | {name: each[..., place] for name, each in requests.items()}
            for place, person in enumerate(who)
        ],
    }


def counted_figures(sums: pd.DataFrame) -> Figures:
    """Counts by prompt. `accepted_by_depth`: blocks that accepted at least d tokens;
    `blocks_by_accepted`: blocks that accepted exactly 0, 1, … tokens.
    """
    found = {name: sums[name].to_numpy(float) for name in COUNTS}
    survival = [name for name in sums if str(name).startswith("survival_")]
    by_depth = sums[survival].to_numpy(float).T
    at_least = np.vstack([found["blocks"], by_depth, np.zeros(len(sums))])
    exactly = -np.diff(at_least, axis=0)
    return {**found, "accepted_by_depth": by_depth, "blocks_by_accepted": exactly}


def figures(counted: Mapping[str, Any]) -> Figures:
    """Counts, of a prompt or of many, and their RATIOS; NaN: nothing to divide by."""
    blocks, by_depth = counted["blocks"], counted["accepted_by_depth"]
    parts = {
        **counted,
        "accepted_and_bonus": counted["accepted"] + blocks,
        "verified": counted["drafted_whole"] + blocks,
        "reached_by_depth": np.concatenate([blocks[None], by_depth[:-1]]),
    }
    ratios = {
        name: divide(parts[above], parts[below])
        for name, (above, below) in RATIOS.items()
    }
    return {**counted, **ratios}


def mean(by_prompt: np.ndarray) -> np.ndarray:
    """The mean over the prompts where a figure is defined."""
    return divide(np.nansum(by_prompt, -1), (~np.isnan(by_prompt)).sum(-1))


# ---- the engines' names --------------------------------------------------------------------------


def groups() -> list[dict[str, Any]]:
    """The groups of data/engines/names.yaml, in its order."""
    return yaml.safe_load(NAMES.read_text(encoding="utf-8"))


def value_of(found: Figures, figure: str | None) -> Any:
    """A figure as names.yaml writes it: `name`, `name[d]` (from 1), either with ` %`; None for
    none.
    """
    if figure is None:
        return None
    name, depth, percent = re.fullmatch(r"(\w+)(?:\[(\d+)\])?( %)?", figure).groups()
    value = found[name][int(depth) - 1] if depth else found[name]
    return value * 100 if percent else value


def under_their_names(found: Mapping[str, Any]) -> dict[str, dict]:
    """The run's figures by engine, place and its name there: pooled, or of an engine that prints
    each request the mean of requests.
    """
    named: dict[str, dict] = {}
    for group in groups():
        ours = found["mean_of_requests" if group["of"] == "request" else "pooled"]
        place = f"{group['where']} ({group['of']})"
        named.setdefault(group["engine"], {})[place] = {
            name: value_of(ours, figure) for name, figure in group["names"].items()
        }
    return named


def plain(value: Any) -> Any:
    """The same as JSON takes it: arrays as lists, 6 decimals, null where undefined."""
    if isinstance(value, dict):
        return {name: plain(inside) for name, inside in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list):
        return [plain(inside) for inside in value]
    if isinstance(value, float):
        if np.isnan(value):
            return None
        return int(value) if value.is_integer() else round(value, 6)
    return value
