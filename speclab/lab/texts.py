"""A recorded text at one temperature, and what is exact on it for a lossless decoder.

Every study computes its numbers from a `Text`, so no estimator for one temperature is ever used on
text at another.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from speclab import replay, score
from speclab.score import Estimator
from speclab.study.profiles import Profile
from speclab.study.runs import Run, load_or_record, seeds_of
from speclab.tree import Tree

PLACE = ["prompt_id", "seed", "position"]
CLOSING = "</think>"  # between what a reasoning model thinks and what it answers
THINKING, ANSWER = "thinking", "answer"


@dataclass(frozen=True)
class Text:
    """Recorded texts at one temperature, one per prompt and seed.

    trace: all positions, with `hit` and `seed`. nodes: the trees of the first run (other seeds are
    recorded with one node per position). pair: what the first run's manifest says about the models.
    """

    temperature: float
    trace: pd.DataFrame
    nodes: pd.DataFrame
    pair: dict = field(default_factory=dict)

    @classmethod
    def of(cls, *runs: Run) -> "Text":
        """From recorded runs at one temperature: the first with its trees, others (further seeds)
        with their texts. ValueError for runs at several temperatures, and for two runs with one
        seed, whose texts would count twice.
        """
        settings = [each.manifest["profile"] for each in runs]
        temperatures = {setting["temperature"] for setting in settings}
        seeds = [setting["seed"] for setting in settings]
        if len(temperatures) > 1 or len(set(seeds)) < len(seeds):
            raise ValueError(
                f"the runs have the temperatures {sorted(temperatures)} and the seeds {seeds}; a "
                "Text needs runs at one temperature with different seeds"
            )
        traces = [each.trace.assign(seed=seed) for each, seed in zip(runs, seeds, strict=True)]
        trace = score.with_hits(pd.concat(traces, ignore_index=True))
        nodes = runs[0].nodes.assign(seed=seeds[0])
        pair = runs[0].manifest.get("pair", {})
        return cls(temperatures.pop(), trace, nodes, pair)

    @classmethod
    def recorded(cls, profile: Profile, *kinds: str) -> "Text":
        """From a profile's runs of these kinds (`runs.kinds_of`), which are recorded if missing."""
        return cls.of(*(load_or_record(profile, kind) for kind in kinds))

    @classmethod
    def sampled(cls, profile: Profile) -> "Text":
        """A profile's text at its temperature above 0: from three seeds, which are recorded if
        missing, and from further seeds where they are recorded.
        """
        return cls.recorded(profile, *seeds_of(profile))

    @property
    def name(self) -> str:
        """'T = 0'."""
        return f"T = {self.temperature:g}"

    @property
    def token(self) -> str:
        """One drafted token in words, as `value` scores it: 'best token (T = 0)', 'drawn token
        (T = 1)'.
        """
        return f"{'drawn' if self.temperature else 'best'} token ({self.name})"

    @property
    def value(self) -> str:
        """The column of `trace` with the acceptance of one drafted token (T > 0: a drawn one)."""
        return "overlap" if self.temperature else "hit"

    @property
    def by_start(self) -> bool:
        """Whether the draft's probabilities depend on where its block began, as a head's do."""
        return "block_ranks" in self.trace

    @property
    def rule(self) -> str:
        """The acceptance rule for a tree whose children are the draft's best tokens."""
        return "point-mass" if self.temperature else "greedy"

    @property
    def acceptance(self) -> Estimator:
        """The exact acceptance of one drafted token: hit[1] at T = 0, alpha at T > 0."""
        return score.mean_of(self.value, "alpha" if self.temperature else "hit[1]")

    def chain(self, gamma: int) -> pd.DataFrame:
        """Blocks of drafted chains of `gamma` tokens: the columns of `replay.replay`, and `seed`.
        At T > 0 the tokens are drawn (the rejection rule).

        ValueError unless `gamma` is a whole number from 1 to 64.
        """
        walk = replay.replay_sampled if self.temperature else replay.replay
        return self._blocks(walk, gamma)

    def tree(self, tree: Tree) -> pd.DataFrame:
        """Blocks of a static tree: the columns of `replay.replay`, and `seed`. At T > 0 its
        children are the draft's best tokens (the point-mass rule).

        ValueError unless `tree` is a Tree.
        """
        if not isinstance(tree, Tree):
            raise ValueError(
                f"tree={tree!r} is not a Tree: replay a chain of drawn tokens with "
                "Text.chain(gamma), or make a tree with speclab.tree"
            )
        return self._blocks(replay.replay, tree)

    def _blocks(self, walk: Callable, shape: int | Tree) -> pd.DataFrame:
        seeds = self.trace.groupby("seed", sort=False)
        of_seed = [walk(text, shape).assign(seed=seed) for seed, text in seeds]
        return pd.concat(of_seed, ignore_index=True)


def segments(trace: pd.DataFrame, tokenizer: Any) -> pd.Series:
    """THINKING for each row of a trace (in any order) up to the first CLOSING in its text, whose
    tokens belong to it, and ANSWER for those that begin after it: a Series "segment".

    Missing for all rows of a text without CLOSING: it may have been cut while the target was
    thinking, or have no thinking. A prompt has one text, or one per `seed`. CLOSING may be a token
    or several; only the target's `tokenizer` can say.
    """
    ids = trace["token"].unique().tolist()
    strings = dict(zip(ids, tokenizer.batch_decode([[token] for token in ids]), strict=True))
    found = pd.Series(index=trace.index, dtype=object, name="segment")
    of_text = [name for name in ("prompt_id", "seed") if name in trace]
    for _, rows in trace.sort_values("position").groupby(of_text, sort=False, observed=True):
        pieces = rows["token"].map(strings)
        before, tag, _ = "".join(pieces).partition(CLOSING)
        if tag:
            begins = pieces.str.len().cumsum().shift(fill_value=0)  # in characters of the text
            is_after = begins >= len(before + tag)
            found[rows.index] = np.where(is_after, ANSWER, THINKING)
    return found
