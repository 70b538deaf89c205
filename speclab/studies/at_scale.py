"""What notebook 15 asks of SpecDecode-Bench's traces: acceptance by set and depth, speed under
their cost model, a draft and copies together.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from speclab import score, stats
from speclab.analysis import combined
from speclab.analysis import specdecode_bench as traces
from speclab.analysis import specdecode_cost as cost
from speclab.analysis.choose import PROMPT, SUMS, Choice, Prices, fit
from speclab.copying import MOST
from speclab.runs import FilesMissing
from speclab.show.estimates import Estimates, stack
from speclab.starts import replay_starts, sums_of_starts
from speclab.stats import Draws

PAIR = "Llama-3.1-8B-Instruct"
PER_PASS = score.block_estimators()["block_efficiency"]
FIRST_HIT = score.mean_of("hit", "hit[1]")
EVERYWHERE, AFRESH, DEEPER = "every place", "there, a new block", "there, deeper"
PLACES = ["1-8", "9-32", "33-128", "129-512", "513 on"]  # of a text, from 1
EDGES = [1, 9, 33, 129, 513, np.inf]
READINGS = {  # whose starts, at which price
    "EAGLE once a block": (traces.EAGLE, "block"),
    "EAGLE once a token": (traces.EAGLE, "token"),
    "lookup": (traces.LOOKUP, "lookup"),
}
Proposers = Mapping[str, pd.DataFrame]  # starts by proposer


def traces_here() -> traces.SpecDecodeBench:
    """The traces; FilesMissing, which says how to get them, where they are not here."""
    found = traces.read_traces()
    if found is None:
        raise FilesMissing(traces.ABSENT)
    return found


def per_pass(proposers: Proposers, gammas: Sequence[int]) -> Estimates:
    """Tokens a target pass of chains, by proposer, gamma and domain."""
    found = {}
    for name, starts in proposers.items():
        sums = sums_of_starts(starts, gammas)
        asked = {gamma: (own, PER_PASS) for gamma, own in sums.groupby("gamma")}
        found[name] = stats.jointly(asked).table(key="gamma")
    return Estimates.stacked(found, "proposer")


def down_to(proposers: Proposers, deepest: int) -> Estimates:
    """`next_accepted` by proposer, depth, name and domain."""
    found = {
        (name, depth): draws.table()
        for name, starts in proposers.items()
        for depth, draws in next_accepted(starts, deepest).items()
    }
    return Estimates(stack(found, ["proposer", "depth"]))


def next_accepted(starts: pd.DataFrame, deepest: int) -> dict[int, Draws]:
    """By depth d, of the starts whose first d - 1 tokens are accepted: is the next one, too
    (DEEPER), would a block that begins there get it (AFRESH), and what does a block get at every
    place (EVERYWHERE)? starts: with `hit`, their first token is accepted.
    """
    found = {}
    for above in range(deepest):
        both = starts.assign(
            deeper=starts["accepted"] > above,
            afresh=starts["hit"].shift(-above, fill_value=False),
        )
        known = (starts["accepted"] >= above) & (starts["remaining"] > above)
        asked = {
            EVERYWHERE: (starts, FIRST_HIT),
            AFRESH: (both[known], score.mean_of("afresh")),
            DEEPER: (both[known], score.mean_of("deeper")),
        }
        found[above + 1] = stats.jointly(asked, same=False)
    return found


def tokens_of(texts: pd.DataFrame) -> pd.DataFrame:
    """prompt_id, domain, position, token of every text, as `loops.repeats` wants them."""
    rows = texts.rename(columns={"generated_token_ids": "token"})
    rows = rows[[*PROMPT, "token"]].explode("token", ignore_index=True)
    place = rows.groupby("prompt_id", sort=False).cumcount()
    return rows.assign(position=place, token=rows["token"].astype(int))


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
    """Tokens a pass of who knows at each place whether the draft or the copy gets further."""
    drafted = np.minimum(both["accepted"], gamma)
    better = both.assign(accepted=np.maximum(drafted, both["copied"]), limit=MOST)
    made = replay_starts(better, MOST).assign(cost=1)
    sums = made.groupby(PROMPT, sort=False)[["emitted", "cost"]].sum()
    return Choice(sums.reset_index())


def time_prices(
    both: pd.DataFrame, gamma: int, batch: int, price: str = "lookup"
) -> Prices:
    """`combined.prices` under their cost model: `cost` is what a text takes in seconds, and in the
    place of its tokens (`emitted`) stands what plain decoding takes, so that speed-ups are ratios
    of time. price: of a drafted block; a copy has that of their lookup.
    """
    prompt_tokens = both.groupby("prompt_id")["prompt_tokens"].first()
    names = {"plain_s": "emitted", "speculative_s": "cost", "blocks": "target_passes"}
    parts = {}
    for least in range(1, combined.NEVER + (gamma > 0)):
        made = combined.blocks(both, gamma, least)
        made["prompt_tokens"] = made["prompt_id"].map(prompt_tokens)
        made["price"] = np.where(made["is_copied"], "lookup", price)
        texts = cost.times(made, batch).rename(columns=names).set_index(PROMPT)
        parts[combined.setting(gamma, least)] = texts.reindex(columns=SUMS)
    return Prices(pd.concat(parts, names=["setting"]))


def ways_in_time(
    both: pd.DataFrame, gamma: int, batch: int, price: str
) -> Mapping[str, Choice]:
    """`combined.ways` by time: each half of the prompts has the setting of the other half."""
    mixed = time_prices(both, gamma, batch, price)
    return {
        combined.DRAFT: Choice(mixed.judged(combined.setting(gamma, combined.NEVER))),
        combined.COPIES: fit(time_prices(both, 0, batch), folds=2),
        combined.BOTH: fit(mixed, folds=2),
    }
