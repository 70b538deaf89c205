"""What notebook 15 measures on SpecDecode-Bench's traces: acceptance by set and depth, speed under
their cost model, and a draft and copies together.

**Their cost model** (arXiv:2601.11580), not ours, gives the time of a block with
Llama-3.1-8B-Instruct on an H100 at a batch size. A target pass takes a fixed time, and more for
each token and each cached token. EAGLE's draft is modelled in the same way, **whatever the number
of drafted tokens**: the model was fitted to whole drafts of one length, so the time of one more
token is unknown. We compute both extremes: "block" (theirs: the fixed time once per block) and
"token" (the fixed time for every drafted token). A head that runs once per drafted token lies
between them. "lookup" is their n-gram lookup, whose time is a share of the target pass. A batch is
one request repeated, the first token comes with the prompt's own pass, and every step adds the
loop's own time. Constants: `predictor.py` of the commit that `specdecode_bench` names.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd

from speclab import score, stats
from speclab.analysis import combined
from speclab.analysis import specdecode_bench as traces
from speclab.analysis.choose import PROMPT, SUMS, Choice, PromptCosts, fit
from speclab.copying import MOST
from speclab.estimates import Estimates, counted, named, stack
from speclab.replay import among, prompt_sums
from speclab.runs import FilesMissing
from speclab.score import Estimator
from speclab.starts import replay_starts, sums_of_starts
from speclab.stats import Draws

PAIR = "Llama-3.1-8B-Instruct"
FIRST_HIT = score.mean_of("hit", "hit[1]")
EVERYWHERE = "new block, all positions"
AFRESH = "new block, same positions"
DEEPER = "token at this depth"
# parts of a change of acceptance between two depths
CHANGE, SELECTION, COST = "depth 3 minus depth 1", "selection", "cost of depth"
CALLED = {  # the prompt sets in words
    "cnn": "summaries",
    "gsm8k": "school maths",
    "instructcoder": "code edits",
    "sharegpt": "chats",
}
# the ways of `combined.ways`, and what knows at each position which of the two gets further
ALONE, COPYING, TOGETHER = "EAGLE alone", "copying alone", "both together"
PERFECT = "perfect choice"
WAYS = {combined.DRAFT: ALONE, combined.COPIES: COPYING, combined.BOTH: TOGETHER}
BY_REQUEST, BY_TOKEN = "by request", "by token"
ENDED = "by token, without runaway texts"
LEASTS = (1, 2, 3, 4, 6, 8)  # tokens that must match, as tried by time
MOSTS = (1, 2, 4, 8, 16)  # tokens that are copied at most
DRAFT_COSTS = ("block", "token", "lookup")  # how a draft is paid
EAGLES = ("EAGLE once per block", "EAGLE once per token")
READINGS = {  # whose starts, and how its draft is paid
    EAGLES[0]: (traces.EAGLE, "block"),
    EAGLES[1]: (traces.EAGLE, "token"),
    "lookup": (traces.LOOKUP, "lookup"),
}
LOOP_S = 1.20683946e-3  # the loop's own time per step
LOOKUP_SHARE = 0.005875  # of the target pass that follows


def traces_here() -> traces.SpecDecodeBench:
    """The traces. FilesMissing, which says how to get them, if they are not here."""
    bench = traces.read_traces()
    if bench is None:
        raise FilesMissing(traces.ABSENT)
    return bench


Weighted = dict[tuple[str, str], tuple[pd.DataFrame, Estimator]]


def weighted(
    proposers: Mapping[str, pd.DataFrame],
    gammas: Sequence[int],
    over: str,
    ran_away: Collection[str],
    which: str = "visited",
) -> Weighted:
    """A column of the per-prompt sums of chains (`sums_of_starts`) divided by their blocks, by
    proposer and weight, as (rows, estimator). BY_REQUEST: the mean of the texts' own ratios.
    BY_TOKEN: the ratio of the sums. ENDED: this ratio without the prompts that `ran_away`.
    """
    per_text, per_block = score.mean_of("of_text"), score.ratio_of(over, "blocks")
    by_weight = {}
    for name, starts in proposers.items():
        sums = sums_of_starts(starts, gammas, which)
        of_text = sums.assign(of_text=sums[over] / sums["blocks"])
        has_ended = ~sums["prompt_id"].isin(ran_away)
        by_weight[name, BY_REQUEST] = of_text, per_text
        by_weight[name, BY_TOKEN] = sums, per_block
        by_weight[name, ENDED] = sums[has_ended], per_block
    return by_weight


def per_pass(
    proposers: Mapping[str, pd.DataFrame], ran_away: Collection[str], gammas: Sequence[int]
) -> Estimates:
    """Tokens per target pass of chains by proposer, weight, gamma and domain. proposers: the starts
    of each.
    """
    tables = {}
    for key, (sums, estimator) in weighted(proposers, gammas, "emitted", ran_away).items():
        by_gamma = {gamma: (rows, estimator) for gamma, rows in sums.groupby("gamma")}
        tables[key] = stats.jointly(by_gamma).table(key="gamma").frame
    return Estimates(stack(tables, ["proposer", "weight"]))


def next_accepted(starts: pd.DataFrame, deepest: int) -> dict[int, Draws]:
    """Acceptance by depth d. DEEPER: of the token at depth d, where the first d - 1 are accepted.
    AFRESH: of the first token of a block that begins at the same positions. EVERYWHERE: of a first
    token at all positions. starts: with the column `hit` (their first token is accepted).
    """
    by_depth = {}
    for above in range(deepest):
        is_reached = (starts["accepted"] >= above) & (starts["remaining"] > above)
        deeper = starts["accepted"] > above
        afresh = starts["hit"].shift(-above, fill_value=False)
        reached = starts.assign(deeper=deeper, afresh=afresh)[is_reached]
        measured = {
            EVERYWHERE: (starts, FIRST_HIT),
            AFRESH: (reached, score.mean_of("afresh")),
            DEEPER: (reached, score.mean_of("deeper")),
        }
        by_depth[above + 1] = stats.jointly(measured, same=False)
    return by_depth


# ---- their cost model ----------------------------------------------------------------------------


@dataclass(frozen=True)
class PassTime:
    """Seconds of a pass: a fixed time, and more for each token and for each cached token."""

    fixed_s: float
    token_s: float
    cached_s: float

    def __call__(self, tokens, cached):
        """Seconds of a pass over `tokens` with `cached` before them (of the whole batch)."""
        return self.fixed_s + self.token_s * tokens + self.cached_s * cached


TARGET = PassTime(5.88590713e-3, 2.10103129e-5, 3.92645679e-8)
EAGLE_DRAFT = PassTime(2.13526175e-3, 8.41429603e-7, 2.37768493e-9)


def block_s(
    drafted: pd.Series, cached: pd.Series, batch: int = 1, draft_cost: str = "block"
) -> pd.Series:
    """Seconds of blocks: `drafted` tokens each, `cached` tokens of one request before them.

    draft_cost: one of DRAFT_COSTS, else ValueError. As in their code, the draft runs the tokens of
    one request.
    """
    among("draft_cost", draft_cost, DRAFT_COSTS)
    in_batch = batch * cached
    verify = TARGET(batch * (drafted + 1), in_batch)
    draft = {
        "block": EAGLE_DRAFT(drafted + 1, in_batch),
        "token": drafted * EAGLE_DRAFT(1, in_batch),
        "lookup": LOOKUP_SHARE * verify * (drafted > 0),
    }
    return draft[draft_cost] + verify + LOOP_S


def plain_s(prompt_tokens: np.ndarray, tokens: np.ndarray, batch: int = 1) -> np.ndarray:
    """Seconds of plain decoding of texts: the prompt's pass, then one pass per further token."""
    passes = tokens - 1
    of_prompt = passes * (prompt_tokens + 1)
    of_text = passes * (passes - 1) / 2
    cached = of_prompt + of_text
    step_s = TARGET(batch, 0) + LOOP_S
    reading = TARGET.cached_s * batch * cached
    decoding = passes * step_s + reading
    return _prompt_s(prompt_tokens, batch) + decoding


def _prompt_s(prompt_tokens: np.ndarray, batch: int) -> np.ndarray:
    return TARGET(batch * prompt_tokens, 0) + LOOP_S


def times(blocks: pd.DataFrame, batch: int = 1, draft_cost: str = "block") -> pd.DataFrame:
    """One row per text: prompt_id, domain, tokens (with the first one, which the prompt's pass
    emits), blocks, plain_s, speculative_s, speedup.

    blocks: visited blocks from position 1 on, as `replay_starts` gives them, with prompt_tokens. If
    they have a column `is_copied`, a copied block has the cost "lookup". Every token in `drafted`
    is paid for. The mean of `speedup` over texts is the number that they publish.
    """
    cached = blocks["prompt_tokens"] + blocks["start"]
    step_s = block_s(blocks["drafted"], cached, batch, draft_cost)
    if "is_copied" in blocks:
        copy_s = block_s(blocks["drafted"], cached, batch, "lookup")
        step_s = step_s.mask(blocks["is_copied"], copy_s)
    timed = blocks.assign(step_s=step_s, blocks=1)
    texts = timed.groupby(PROMPT, sort=False)
    total = texts[["emitted", "blocks", "step_s"]].sum()
    prompt_tokens = texts["prompt_tokens"].first()
    total["tokens"] = total.pop("emitted") + 1
    total["plain_s"] = plain_s(prompt_tokens, total["tokens"], batch)
    total["speculative_s"] = _prompt_s(prompt_tokens, batch) + total.pop("step_s")
    total["speedup"] = total["plain_s"] / total["speculative_s"]
    return total.reset_index()


def speeds_by_gamma(
    bench: traces.SpecDecodeBench, gammas: Sequence[int], batches: Sequence[int]
) -> Estimates:
    """The mean speed-up of texts by batch size ('batch 8'), reading (READINGS), gamma, domain."""
    speedup = score.mean_of("speedup")
    tables = {}
    for name, (proposer, draft_cost) in READINGS.items():
        starts = bench.of(proposer)
        chains = {gamma: replay_starts(starts, gamma) for gamma in gammas}
        for batch in batches:
            texts = {g: times(blocks, batch, draft_cost) for g, blocks in chains.items()}
            draws = stats.jointly({gamma: (rows, speedup) for gamma, rows in texts.items()})
            tables[f"batch {batch}", name] = draws.table(key="gamma").frame
    return Estimates(stack(tables, ["batch", "reading"]))


# ---- two proposers -------------------------------------------------------------------------------


def beside_copies(starts: pd.DataFrame, texts: pd.DataFrame) -> pd.DataFrame:
    """`combined.with_copies` of the starts of these texts."""
    columns = ["prompt_id", "prompt_token_ids", "generated_token_ids"]
    tokens = {name: pair for name, *pair in texts[columns].itertuples(index=False)}
    known = starts[starts["prompt_id"].isin(tokens)]
    return combined.with_copies(known.reset_index(drop=True), tokens)


def best_of_both(both: pd.DataFrame, gamma: int) -> Choice:
    """Tokens per target pass of the perfect choice: it knows at each position whether the draft or
    the copy gets further.
    """
    drafted = np.minimum(both["accepted"], gamma)
    better = both.assign(accepted=np.maximum(drafted, both["copied"]), limit=MOST)
    sums = prompt_sums(replay_starts(better, MOST))
    return Choice(sums.rename(columns={"blocks": "cost"}))


def seconds_of_settings(
    both: pd.DataFrame, gammas: Sequence[int], batches: Sequence[int]
) -> dict[tuple[str, int], PromptCosts]:
    """The seconds of every shape on each text under their cost model, by EAGLE's price and batch
    size. The shapes are chains of `gammas`, copies (LEASTS, MOSTS), and both. `cost` is seconds,
    and `emitted` holds the seconds of plain decoding, so that speed-ups are ratios of time. A copy
    has the cost of their lookup.
    """
    shapes: dict[str, tuple[int, ...]] = {
        f"chain:{gamma}": (gamma, combined.NEVER) for gamma in gammas
    }
    for gamma, least, most in product([0, *gammas], LEASTS, MOSTS):
        name = combined.setting(gamma, least)
        shapes[f"{name}, {most} copied"] = gamma, least, most
    names = {"plain_s": "emitted", "speculative_s": "cost", "blocks": "target_passes"}
    tables: dict[tuple, dict] = {cell: {} for cell in product(("block", "token"), batches)}
    for shape, arguments in shapes.items():
        planned = combined.planned(both, *arguments)
        blocks = replay_starts(planned, planned["drafted"].to_numpy())
        for draft_cost, batch in tables:
            texts = times(blocks, batch, draft_cost).rename(columns=names)
            sums = texts.set_index(PROMPT).reindex(columns=SUMS)
            tables[draft_cost, batch][shape] = sums
    return {
        cell: PromptCosts(pd.concat(of_shapes, names=["setting"]))
        for cell, of_shapes in tables.items()
    }


def fitted_in_time(seconds: PromptCosts) -> dict[str, Choice]:
    """The fastest chain, the fastest copies and the fastest of all shapes of `seconds_of_settings`.
    Each half of the prompts gets the setting that is fastest on the other half, chosen again in
    every resample.
    """
    without = {combined.DRAFT: "lookup", combined.COPIES: "chain", combined.BOTH: "?"}
    choices = {}
    for name, word in without.items():
        kept = [setting for setting in seconds.settings if word not in setting]
        choices[name] = fit(PromptCosts(seconds.table.loc[kept]), folds=2)
    return choices


# ---- what a reader sees --------------------------------------------------------------------------


def predicted(names: Iterable[str]) -> dict[str, dict]:
    """Looks of series that are predicted: hollow."""
    return {name: {"markerfacecolor": "white"} for name in names}


def in_pairs(tested: pd.DataFrame) -> pd.DataFrame:
    """The differences between sets as cells, a star where they are significant: a row for each pair
    of sets, a column for each proposer.
    """
    numbers = tested[["difference", "low", "high"]].itertuples(index=False)
    cells = [stats.cell(*number, 2) for number in numbers]
    stars = tested["significant"].map({True: " *", False: ""})
    pair = tested["first"] + " \N{MINUS SIGN} " + tested["second"]
    table = tested.assign(pair=pair, cell=cells + stars)
    wide = table.pivot(index="pair", columns="proposer", values="cell")
    return wide.rename_axis(columns=None).reset_index()


def ran_away_in_words(of_set: pd.Series, share: pd.Series, texts: int) -> str:
    """How many texts ran away, as a sentence. of_set: their number by set; share: their share of
    the tokens of EAGLE's run; texts: of all sets.
    """
    parts = [f"{count} of {name}" for name, count in of_set.items() if count]
    return (
        f"**{of_set.sum()} of {texts:,} texts ran away**: {named(parts)}. On {share.idxmax()}, "
        f"texts that ran away contain {100 * share.max():.0f} % of the tokens of EAGLE's run."
    )


def fitted_leasts(settings: Iterable[str]) -> str:
    """The fitted m of settings: '4 and 3'; 'never copy' for a setting that only drafts."""
    leasts = [name.partition("lookup:")[2] or "never copy" for name in settings]
    return named(list(dict.fromkeys(leasts)))


def beaten_by(tested: pd.DataFrame, best: str) -> dict[str, bool]:
    """The other sets, and whether each differs significantly from `best`. tested: one row per pair
    of sets (first, second, significant).
    """
    rows = tested[tested[["first", "second"]].eq(best).any(axis=1)]
    others = rows["first"].mask(rows["first"] == best, rows["second"])
    return dict(zip(others, rows["significant"], strict=True))


def more_than(others: Mapping[str, bool]) -> str:
    """Of which sets the best one is significantly ahead, as a clause. others: of `beaten_by`."""
    words = {True: "significantly more than on", False: "not significantly more than on"}
    names = {found: [name for name in others if others[name] == found] for found in words}
    return " and ".join(f"{words[found]} {named(own)}" for found, own in names.items() if own)


def proposers_in_words(eagle: Estimates, others: Mapping[str, bool], faster: pd.Series) -> str:
    """The notebook's answer. eagle: tokens per target pass on its best set; others: of `beaten_by`;
    faster: in which cases both together are faster.
    """
    is_first = all(others.values())
    beaten = "all other sets" if is_first else counted(sum(others.values()), "other set")
    return (
        f"With EAGLE as draft (gamma 3), Llama-3.1-8B emits {eagle.value:.2f} tokens per target "
        f"pass on {CALLED[eagle.row.domain]}, significantly more than on {beaten} (by request). "
        f"EAGLE with copying is predicted to beat either alone in {faster.sum()} of "
        f"{len(faster)} cases (set, batch size, draft cost)."
    )
