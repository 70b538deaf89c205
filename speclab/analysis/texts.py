"""A recorded text of one temperature, and what is exact on it for a lossless decoder.

Every study asks its numbers of a `Text`, so that no estimator of one temperature is ever used on
text of another.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from speclab import replay, score
from speclab.profiles import Profile
from speclab.runs import Run, load_or_record
from speclab.score import Estimator

# at T = 0 and above: acceptance of one drafted token (a column of positions), rule of a tree's
# deterministic children, rule of a drafted chain
GREEDY = ("hit", "greedy", "greedy")
SAMPLED = ("overlap", "point-mass", "rejection")
PLACE = ["prompt_id", "seed", "position"]
SEEDS = ("sampled", "sampled-seed-1", "sampled-seed-2")  # kinds of run at T = 1


def kind_of(temperature: float) -> tuple[str, ...]:
    """Of texts of a temperature: name, label, value, rule and chain_rule of a `Text`."""
    name = f"T = {temperature:g}"
    if temperature == 0:
        return (name, f"greedy text ({name})", *GREEDY)
    return (name, f"sampled text ({name})", *SAMPLED)


@dataclass(frozen=True)
class Text:
    """Recorded texts of one temperature, one a prompt and seed.

    What is averaged are the positions that `where` kept (all at first), the nodes that hang there,
    and the visited blocks that begin there; the texts themselves stay whole, since a decoder walks
    through all of them. `cut` shortens the texts instead.

    value: acceptance of one drafted token, "hit" (T = 0) or "overlap" (T > 0: a drawn token), a
    column of `positions`. rule: of a tree's deterministic children; chain_rule: of drafted chains.
    trace: all positions, with `hit` and `seed`. nodes: the recorded trees, of the first run only
    (other seeds are recorded with one node a position). keep: bool (rows of trace,), or None.
    """

    name: str
    label: str
    value: str
    rule: str
    chain_rule: str
    trace: pd.DataFrame
    nodes: pd.DataFrame
    keep: np.ndarray | None = None

    @classmethod
    def of(cls, run: Run, *others: Run) -> "Text":
        """Of recorded runs of one temperature: the first with its trees, others (further
        seeds) with their texts.
        """
        temperatures, traces = set(), []
        for one in (run, *others):
            asked = one.manifest["profile"]
            temperatures.add(asked["temperature"])
            traces.append(one.trace.assign(seed=asked["seed"]))
        if len(temperatures) > 1:
            raise ValueError(
                f"texts of the temperatures {sorted(temperatures)}: a Text is of one"
            )
        trace = score.with_hits(pd.concat(traces, ignore_index=True))
        ratio = score.ratio(run.nodes)
        nodes = run.nodes.assign(ratio=ratio, seed=run.manifest["profile"]["seed"])
        return cls(*kind_of(temperatures.pop()), trace, nodes)

    @classmethod
    def recorded(cls, profile: Profile, *kinds: str) -> "Text":
        """Of a profile's runs of these kinds (`runs.KINDS`), which are recorded if not there."""
        greedy = profile.replace(temperature=0.0)
        return cls.of(*(load_or_record(greedy, kind) for kind in kinds))

    @property
    def acceptance(self) -> Estimator:
        """The exact acceptance of one drafted token: hit[1] at T = 0, alpha above."""
        return score.mean_of(
            self.value, {"hit": "hit[1]", "overlap": "alpha"}[self.value]
        )

    @property
    def deterministic(self) -> Estimator:
        """The exact acceptance of the draft's best token: hit[1] at T = 0, top_mass[1] at T = 1."""
        family = score.hit if self.rule == "greedy" else score.top_mass
        return score.member(family, 1)

    def with_columns(self, **columns: Callable | pd.Series) -> "Text":
        """More is known of each position (aligned with `trace`)."""
        return replace(self, trace=self.trace.assign(**columns))

    def where(self, keep: pd.Series) -> "Text":
        """Only the positions for which `keep` (aligned with `trace`) holds, of those kept."""
        kept = keep.to_numpy(bool)
        return replace(self, keep=kept if self.keep is None else kept & self.keep)

    def cut(self, tokens: int) -> "Text":
        """The texts as if they had ended after so many tokens; their blocks end there too."""
        short = self.trace["position"] < tokens
        keep = None if self.keep is None else self.keep[short]
        nodes = self.nodes[self.nodes["position"] < tokens]
        return replace(
            self, trace=self.trace[short].reset_index(drop=True), nodes=nodes, keep=keep
        )

    def kept(self, frame: pd.DataFrame, at: str = "position") -> pd.DataFrame:
        """The rows of a frame (nodes, blocks) that belong to the positions kept."""
        if self.keep is None:
            return frame
        places = pd.MultiIndex.from_frame(frame[["prompt_id", "seed", at]])
        return frame[places.isin(pd.MultiIndex.from_frame(self.positions[PLACE]))]

    @cached_property
    def positions(self) -> pd.DataFrame:
        """The positions kept, with `hit`."""
        return self.trace if self.keep is None else self.trace[self.keep]

    @cached_property
    def hung(self) -> pd.DataFrame:
        """The nodes that hang there, with `ratio`."""
        return self.kept(self.nodes)

    def blocks(self, shape: Any, starts: str = "visited") -> pd.DataFrame:
        """Blocks of a draft tree's shape, or of chains of so many tokens, that begin there."""
        drawn = isinstance(shape, int) and self.chain_rule == "rejection"
        walk = replay.replay_sampled if drawn else replay.replay
        of_seed = [
            walk(text, shape, starts).assign(seed=seed)
            for seed, text in self.trace.groupby("seed", sort=False)
        ]
        return self.kept(pd.concat(of_seed, ignore_index=True), "start")
