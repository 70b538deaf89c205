"""The acceptance of a recorded run in the figures that other engines print.

What an engine calls them stands in data/engines/names.yaml. The figures are counts of a replay
(`speclab.replay`, visited blocks) and ratios of counts, pooled, by domain and by request (a
prompt). The mean of the requests' ratios is another number than the pooled ratio, which weights a
request by its blocks.

The end of a text: a block that it cuts counts with the tokens accepted inside the text. `drafted`
are the tokens drafted inside it, `drafted_whole` those of the whole shape in every block, which is
what an engine counts that drafts past the end (vLLM, SGLang). Such an engine also counts what it
accepts behind the end; no trace tells that, and only the `truncated` blocks can differ by it.
"""

import json
from typing import Any

import pandas as pd

from speclab import replay
from speclab.draft import Shape

EXACT = {
    "greedy": "exact: the counts of the greedy decoder on these prompts",
    "point-mass": "exact for these sampled texts, drafted by the draft's best tokens",
    "rejection": "an expectation: given these sampled texts, the mean over the decoder's random "
    "numbers; counts need not be whole",
}
COUNTS = ("blocks", "drafted", "drafted_whole", "accepted", "emitted", "truncated")


# ---- a run's figures -----------------------------------------------------------------------------


def counts_of(trace: pd.DataFrame, shape: Shape, rule: str) -> pd.DataFrame:
    """Counts over the visited blocks, a row a prompt (prompt_id, domain). `accepted_by_depth[d]`:
    blocks that accepted at least d tokens; `blocks_by_accepted[n]`: those that accepted exactly n.
    """
    if rule == "rejection":
        blocks = replay.replay_sampled(trace, shape.size)
    else:
        blocks = replay.replay(trace, shape.tree)
    sums = replay.prompt_sums(blocks).set_index(["prompt_id", "domain"])
    counts = sums.assign(drafted_whole=sums["blocks"] * shape.size)[[*COUNTS]]
    survival = [name for name in sums if str(name).startswith("survival_")]
    at_least = sums["blocks"]
    for depth, name in enumerate(survival, 1):
        counts[f"accepted_by_depth[{depth}]"] = sums[name]
        counts[f"blocks_by_accepted[{depth - 1}]"] = at_least - sums[name]
        at_least = sums[name]
    counts[f"blocks_by_accepted[{len(survival)}]"] = at_least
    return counts


def figures(counts: pd.DataFrame) -> pd.DataFrame:
    """Counts, of prompts or summed over prompts (a row each), and their ratios; NaN: nothing to
    divide by.
    """
    blocks, accepted = counts["blocks"], counts["accepted"]
    with_bonus = accepted + blocks
    found = counts.assign(
        mean_accepted=accepted / blocks,
        mean_accepted_and_bonus=with_bonus / blocks,
        block_efficiency=counts["emitted"] / blocks,
        draft_utilisation=accepted / counts["drafted"],
        draft_utilisation_whole=accepted / counts["drafted_whole"],
        accepted_per_verified=with_bonus / (counts["drafted_whole"] + blocks),
    )
    reached = blocks
    for name in [name for name in counts if name.startswith("accepted_by_depth")]:
        depth = name.removeprefix("accepted_by_depth")
        found[f"survival_by_depth{depth}"] = counts[name] / blocks
        found[f"accept_by_depth{depth}"] = counts[name] / reached
        reached = counts[name]
    return found


def summary(counts: pd.DataFrame) -> dict[str, Any]:
    """Figures of counts, as JSON takes them: `pooled`, `mean_of_requests` (of those where a figure
    is defined), both also `by_domain`, and `by_request`.
    """

    def over(prompts: pd.DataFrame) -> dict[str, dict]:
        pooled = figures(prompts.sum().to_frame().T)
        means = figures(prompts).mean().to_frame().T
        return {"pooled": rows(pooled)[0], "mean_of_requests": rows(means)[0]}

    domains = counts.groupby("domain", sort=False)
    return {
        **over(counts),
        "by_domain": {name: over(prompts) for name, prompts in domains},
        "by_request": rows(figures(counts).reset_index()),
    }


def rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """A frame's rows: 6 decimals, None where undefined."""
    return json.loads(frame.to_json(orient="records", double_precision=6))


# ---- the engines' names --------------------------------------------------------------------------


def value_of(found: dict[str, Any], figure: str | None) -> Any:
    """A figure as names.yaml writes it: its name, ` %` for percent, a list for one that has an
    entry a depth; None for none, or nothing to divide by.
    """
    if figure is None:
        return None
    name = figure.removesuffix(" %")
    if name not in found:
        return [found[each] for each in found if each.startswith(f"{name}[")]
    value = found[name]
    return round(value * 100, 6) if name != figure and value is not None else value
