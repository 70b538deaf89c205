"""A recorded text of one temperature, and what is exact on it for a lossless decoder.

Every study asks its numbers of a `Text`, so that no estimator of one temperature is ever used on
text of another.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pandas as pd

from speclab import replay, score
from speclab.profiles import Profile
from speclab.runs import Run, load_or_record
from speclab.score import Estimator
from speclab.tree import Tree

PLACE = ["prompt_id", "seed", "position"]
SEEDS = ("sampled", "sampled-seed-1", "sampled-seed-2")  # kinds of run of sampled text


@dataclass(frozen=True)
class Text:
    """Recorded texts of one temperature, one a prompt and seed; `cut` shortens them.

    trace: all positions, with `hit` and `seed`. nodes: the recorded trees, of the first run only
    (other seeds are recorded with one node a position). pair: what the first run's manifest says of
    the models.
    """

    temperature: float
    trace: pd.DataFrame
    nodes: pd.DataFrame
    pair: dict = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run, *others: Run) -> "Text":
        """Of recorded runs of one temperature: the first with its trees, others (further
        seeds) with their texts. ValueError for runs of several temperatures, or of the same seed:
        these would be counted as one text, twice.
        """
        runs = (run, *others)
        settings = [each.manifest["profile"] for each in runs]
        temperatures = {setting["temperature"] for setting in settings}
        if len(temperatures) > 1:
            raise ValueError(
                f"runs of the temperatures {sorted(temperatures)}: a Text has one temperature; "
                "make a Text of each"
            )
        seeds = [setting["seed"] for setting in settings]
        if len(set(seeds)) < len(seeds):
            raise ValueError(
                f"runs of the seeds {seeds}: the seeds of a Text must differ; record one of the "
                "runs with another seed"
            )
        traces = [each.trace.assign(seed=seed) for each, seed in zip(runs, seeds, strict=True)]
        trace = score.with_hits(pd.concat(traces, ignore_index=True))
        nodes = run.nodes.assign(ratio=score.ratio(run.nodes), seed=seeds[0])
        pair = run.manifest.get("pair", {})
        return cls(temperatures.pop(), trace, nodes, pair)

    @classmethod
    def recorded(cls, profile: Profile, *kinds: str) -> "Text":
        """Of a profile's runs of these kinds (`runs.kinds_of`), which are recorded if not there."""
        return cls.of(*(load_or_record(profile, kind) for kind in kinds))

    @property
    def name(self) -> str:
        """'T = 0'."""
        return f"T = {self.temperature:g}"

    @property
    def label(self) -> str:
        """'greedy text (T = 0)', 'sampled text (T = 1)'."""
        return f"{'sampled' if self.temperature else 'greedy'} text ({self.name})"

    @property
    def value(self) -> str:
        """The column of `trace` with the acceptance of one drafted token (T > 0: a drawn one)."""
        return "overlap" if self.temperature else "hit"

    @property
    def rule(self) -> str:
        """The acceptance rule of a tree's deterministic children."""
        return "point-mass" if self.temperature else "greedy"

    @property
    def chain_rule(self) -> str:
        """The acceptance rule of drafted chains."""
        return "rejection" if self.temperature else "greedy"

    @property
    def acceptance(self) -> Estimator:
        """The exact acceptance of one drafted token: hit[1] at T = 0, alpha above."""
        return score.mean_of(self.value, "alpha" if self.temperature else "hit[1]")

    def accepted(self) -> tuple[pd.DataFrame, Estimator]:
        """The question how much of one drafted token is accepted: rows, estimator."""
        return self.trace, self.acceptance

    def with_columns(self, **columns: Callable | pd.Series) -> "Text":
        """More is known of each position (aligned with `trace`)."""
        return replace(self, trace=self.trace.assign(**columns))

    def cut(self, tokens: int) -> "Text":
        """The texts as if they had ended after so many tokens; their blocks end there too."""
        trace = self.trace[self.trace["position"] < tokens]
        nodes = self.nodes[self.nodes["position"] < tokens]
        return replace(self, trace=trace.reset_index(drop=True), nodes=nodes)

    def chain(self, gamma: int, starts: str = "visited") -> pd.DataFrame:
        """Blocks of drafted chains of `gamma` tokens: the columns of `replay.replay`, and `seed`.
        At T > 0 the tokens are drawn (the rejection rule).

        ValueError unless `gamma` is a whole number from 1 to 64.
        """
        if isinstance(gamma, Tree):
            raise ValueError("gamma is a Tree: replay it with Text.tree(tree)")
        walk = replay.replay_sampled if self.temperature else replay.replay
        return self._blocks(walk, gamma, starts)

    def tree(self, tree: Tree, starts: str = "visited") -> pd.DataFrame:
        """Blocks of a static tree: the columns of `replay.replay`, and `seed`. At T > 0 its
        children are the draft's best tokens (the point-mass rule).

        ValueError unless `tree` is a Tree.
        """
        if not isinstance(tree, Tree):
            raise ValueError(
                f"tree={tree!r} is not a Tree: replay a chain of drawn tokens with "
                "Text.chain(gamma), or make a tree with speclab.tree"
            )
        return self._blocks(replay.replay, tree, starts)

    def _blocks(self, walk: Callable, shape: int | Tree, starts: str) -> pd.DataFrame:
        seeds = self.trace.groupby("seed", sort=False)
        of_seed = [walk(text, shape, starts).assign(seed=seed) for seed, text in seeds]
        return pd.concat(of_seed, ignore_index=True)
