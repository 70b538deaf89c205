"""What notebook 15 asks of SpecDecode-Bench's traces: acceptance by set and depth, speed under
their cost model, a draft and copies together.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd

from speclab import score, stats
from speclab.analysis import combined
from speclab.analysis import specdecode_bench as traces
from speclab.analysis import specdecode_cost as cost
from speclab.analysis.choose import PROMPT, SUMS, Choice, PromptCosts, fit
from speclab.copying import MOST
from speclab.estimates import Estimates, stack
from speclab.replay import prompt_sums
from speclab.runs import FilesMissing
from speclab.score import Estimator
from speclab.starts import replay_starts, sums_of_starts
from speclab.stats import Draws

PAIR = "Llama-3.1-8B-Instruct"
FIRST_HIT = score.mean_of("hit", "hit[1]")
EVERYWHERE = "a new block, every position"
AFRESH = "a new block, positions reached"
DEEPER = "this depth, positions reached"
BY_REQUEST, BY_TOKEN = "by request", "by token"
ENDED = "by token, without runaway texts"
LEASTS = (1, 2, 3, 4, 6, 8)  # tokens that must match, of those that are tried by time
MOSTS = (1, 2, 4, 8, 16)  # tokens that are copied
READINGS = {  # whose starts, at which price
    "EAGLE once per block": (traces.EAGLE, "block"),
    "EAGLE once per token": (traces.EAGLE, "token"),
    "lookup": (traces.LOOKUP, "lookup"),
}


def traces_here() -> traces.SpecDecodeBench:
    """The traces; FilesMissing, which says how to get them, where they are not here."""
    found = traces.read_traces()
    if found is None:
        raise FilesMissing(traces.ABSENT)
    return found


def weighted(
    sums: pd.DataFrame, over: str, ran_away: Collection[str]
) -> dict[str, tuple[pd.DataFrame, Estimator]]:
    """A column of per-prompt sums (`sums_of_starts`) per block, by weight, as (rows, estimator):
    BY_REQUEST, the mean of the texts' own ratios; BY_TOKEN, the ratio of the sums; ENDED, this
    ratio without the prompts that `ran_away`.
    """
    of_text = sums[over] / sums["blocks"]
    ended = sums[~sums["prompt_id"].isin(ran_away)]
    whole = score.ratio_of(over, "blocks")
    return {
        BY_REQUEST: (sums.assign(of_text=of_text), score.mean_of("of_text")),
        BY_TOKEN: (sums, whole),
        ENDED: (ended, whole),
    }


def per_pass(
    proposers: Mapping[str, pd.DataFrame], ran_away: Collection[str], gammas: Sequence[int]
) -> Estimates:
    """Tokens per target pass of chains, by proposer, weight, gamma and domain; the starts of each
    proposer are given.
    """
    found = {}
    for name, starts in proposers.items():
        sums = sums_of_starts(starts, gammas)
        for weight, (rows, per_block) in weighted(sums, "emitted", ran_away).items():
            asked = {gamma: (own, per_block) for gamma, own in rows.groupby("gamma")}
            found[name, weight] = stats.jointly(asked).table(key="gamma")
    return Estimates(stack(found, ["proposer", "weight"]))


def next_accepted(starts: pd.DataFrame, deepest: int) -> dict[int, Draws]:
    """By depth d, of the starts whose first d - 1 tokens are accepted: is the next one, too
    (DEEPER), would a block that begins there get it (AFRESH), and what does a block get at every
    position (EVERYWHERE)? starts: with `hit`, their first token is accepted.
    """
    found = {}
    for above in range(deepest):
        known = (starts["accepted"] >= above) & (starts["remaining"] > above)
        reached = starts.assign(
            deeper=starts["accepted"] > above, afresh=starts["hit"].shift(-above, fill_value=False)
        )[known]
        asked = {
            EVERYWHERE: (starts, FIRST_HIT),
            AFRESH: (reached, score.mean_of("afresh")),
            DEEPER: (reached, score.mean_of("deeper")),
        }
        found[above + 1] = stats.jointly(asked, same=False)
    return found


def speeds_by_gamma(
    bench: traces.SpecDecodeBench, gammas: Sequence[int], batches: Sequence[int]
) -> Estimates:
    """The mean speed-up of texts by batch size ('batch 8'), reading (of READINGS), gamma and
    domain.
    """
    found = {}
    for name, (proposer, price) in READINGS.items():
        starts = bench.of(proposer)
        chains = {gamma: replay_starts(starts, gamma) for gamma in gammas}
        for batch in batches:
            asked = {
                gamma: (cost.times(blocks, batch, price), score.mean_of("speedup"))
                for gamma, blocks in chains.items()
            }
            draws = stats.jointly(asked)
            found[f"batch {batch}", name] = draws.table(key="gamma")
    return Estimates(stack(found, ["batch", "reading"]))


# ---- two proposers -------------------------------------------------------------------------------


def beside_copies(starts: pd.DataFrame, texts: pd.DataFrame) -> pd.DataFrame:
    """`combined.with_copies` of the starts of these texts."""
    columns = ["prompt_id", "prompt_token_ids", "generated_token_ids"]
    tokens = {name: pair for name, *pair in texts[columns].itertuples(index=False)}
    own = starts[starts["prompt_id"].isin(tokens)]
    return combined.with_copies(own.reset_index(drop=True), tokens)


def best_of_both(both: pd.DataFrame, gamma: int) -> Choice:
    """Tokens per target pass of who knows at each position whether the draft or the copy gets
    further.
    """
    drafted = np.minimum(both["accepted"], gamma)
    better = both.assign(accepted=np.maximum(drafted, both["copied"]), limit=MOST)
    sums = prompt_sums(replay_starts(better, MOST))
    return Choice(sums.rename(columns={"blocks": "cost"}))


def time_prices(
    both: pd.DataFrame, gammas: Sequence[int], batches: Sequence[int]
) -> dict[tuple[str, int], PromptCosts]:
    """What every shape takes of each text under their cost model, by EAGLE's price and batch size:
    chains of `gammas`, copies (LEASTS, MOSTS), and both. `cost` is seconds, and in the place of a
    text's tokens (`emitted`) stand the seconds of plain decoding, so that speed-ups are ratios of
    time. A copy has the price of their lookup.
    """
    shapes = {f"chain:{gamma}": (gamma, combined.NEVER) for gamma in gammas}
    for gamma, least, most in product([0, *gammas], LEASTS, MOSTS):
        name = combined.setting(gamma, least)
        shapes[f"{name}, {most} copied"] = gamma, least, most
    names = {"plain_s": "emitted", "speculative_s": "cost", "blocks": "target_passes"}
    parts = {cell: {} for cell in product(("block", "token"), batches)}
    for shape, arguments in shapes.items():
        made = combined.blocks(both, *arguments)
        for price, batch in parts:
            texts = cost.times(made, batch, price).rename(columns=names)
            sums = texts.set_index(PROMPT).reindex(columns=SUMS)
            parts[price, batch][shape] = sums
    return {
        cell: PromptCosts(pd.concat(tables, names=["setting"])) for cell, tables in parts.items()
    }


def ways_in_time(prices: PromptCosts) -> dict[str, Choice]:
    """The fastest chain, the fastest copies and the fastest of all shapes of `time_prices`: each
    half of the prompts has that of the other half, chosen again in every resample.
    """
    without = {combined.DRAFT: "lookup", combined.COPIES: "chain", combined.BOTH: "?"}
    found = {}
    for name, word in without.items():
        kept = [setting for setting in prices.settings if word not in setting]
        found[name] = fit(PromptCosts(prices.table.loc[kept]), folds=2)
    return found
