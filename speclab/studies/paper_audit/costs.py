"""Claims about speed: what a chain of drafted tokens is worth at every cost of a draft pass.

c is a draft pass in target passes; a target pass over n tokens costs v(n) = 1 + slope (n - 1). Both
are the machine's and the pair's, and the paper names neither (0.29, often quoted for TinyLlama and
Llama-2-7B, is of two models in f16, where the paper's target is in 4 bit): so nothing is judged at
one c, each number is asked at every c and slope of a grid. Replayed: on greedy text, and at T = 1
on sampled text for drawn tokens under the rejection rule.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from speclab import stats
from speclab.analysis import choose, cost_sweep
from speclab.score import Estimator, divide, domains_in, quotient, ratio_of
from speclab.stats import Interval, Resampling, resampling_of
from speclab.studies.paper_audit.claims import row_of

GAMMAS = tuple(range(1, 17))  # where the best gamma is looked for
CS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.29, 0.4, 0.5, 0.7, 1.0)
SLOPES = (0.0, 0.1)


@dataclass(frozen=True)
class Grid:
    """The costs that are asked: c, and the slope of v."""

    cs: tuple[float, ...] = CS
    slopes: tuple[float, ...] = SLOPES

    def each(self) -> Iterable[tuple[float, float]]:
        """(c, slope), one after the other."""
        return ((c, slope) for slope in self.slopes for c in self.cs)

    def rows(
        self, name: str, found: Callable[[float, float], Mapping[str, Interval]]
    ) -> list[dict]:
        """Rows of evidence of what is found at each c and slope, by row (a domain)."""
        return [
            {"c": c, "slope": slope}
            | row_of(name, row, of_row.estimate, of_row.low, of_row.high)
            for c, slope in self.each()
            for row, of_row in found(c, slope).items()
        ]


def chain_block_cost(gammas: np.ndarray, c: float, slope: float) -> np.ndarray:
    """Target passes that a block of gamma drafted tokens costs: gamma c + v(gamma + 1)."""
    return gammas * c + 1 + slope * gammas


def speed_ups(
    sums: pd.DataFrame, gamma: int, domains: Iterable[str], grid: Grid
) -> list[dict]:
    """Speed-up of a chain of `gamma` over plain decoding, by domain and cost. sums: per prompt, as
    of `replay.chain_sums`.
    """
    domains_in(sums, list(domains))
    found = stats.by_domain(sums[sums["gamma"] == gamma], ratio_of("emitted", "blocks"))
    tau = found.set_index("domain")[["estimate", "low", "high"]]

    def at(c: float, slope: float) -> dict[str, pd.Series]:
        speeds = tau / chain_block_cost(gamma, c, slope)
        return {domain: speeds.loc[domain] for domain in domains}

    return grid.rows(f"speed-up, chain of {gamma}", at)


def rule_error(
    sums: pd.DataFrame, positions: pd.DataFrame, value: str, gamma: int, grid: Grid
) -> list[dict]:
    """The article's S = e / (e c + 1), e = gamma alpha, over the replayed speed-up of the same
    chain, by domain and cost. value: column of `positions` with the acceptance of one drafted
    token, whose mean is that alpha.
    """
    counted = positions[["prompt_id"]].assign(one=positions[value], positions=1.0)
    of_prompts = counted.astype({"one": float}).groupby("prompt_id").sum()
    of_gamma = sums[sums["gamma"] == gamma].merge(of_prompts, on="prompt_id")
    names = ["emitted", "blocks", "one", "positions"]
    asked = list(grid.each())
    c, slope = np.array(asked).T
    price = chain_block_cost(gamma, c, slope)

    def error(totals: np.ndarray) -> np.ndarray:
        emitted, blocks, one, positions = np.moveaxis(totals, -1, 0)[..., None]
        e = gamma * divide(one, positions)
        return divide(e / (e * c + 1), divide(emitted, blocks) / price)

    name = f"rule / replay, chain of {gamma}"
    off = Estimator(
        name, lambda frame: frame[names].to_numpy(np.float64), error, scalar=False
    )
    found = stats.by_domain(of_gamma, off)
    at = {domain: found[found["domain"] == domain] for domain in domains_in(of_gamma)}
    return grid.rows(
        name,
        lambda *cost: {name: rows.iloc[asked.index(cost)] for name, rows in at.items()},
    )


# ---- the best gamma ------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChainSpeeds:
    """Tokens per pass of every gamma in each domain: `tau` [1 + n, domains, gammas], of the sample,
    then of each resample of its prompts; gamma 0 (plain) is 1.
    """

    domains: tuple[str, ...]
    gammas: np.ndarray
    tau: np.ndarray
    prompts: Resampling

    @classmethod
    def of(cls, sums: pd.DataFrame) -> "ChainSpeeds":
        """From per-prompt sums (`replay.chain_sums`)."""
        wide = sums.pivot(index=["prompt_id", "domain"], columns="gamma")
        both = wide[["emitted", "blocks"]].to_numpy()
        prompts = resampling_of(wide.index.to_frame(index=False))
        tau = quotient(prompts.resampled(prompts.totals(both)))
        with_plain = np.insert(tau, 0, 1.0, axis=-1)
        gammas = np.array([0, *wide["blocks"].columns])
        return cls(prompts.domains, gammas, with_plain, prompts)

    def best(self, domain: str, c: float, slope: float) -> np.ndarray:
        """The fastest gamma in a domain [1 + n]: chosen again in every resample. ValueError if the
        domain is missing.
        """
        if domain not in self.domains:
            known = list(self.domains)
            raise ValueError(
                f"domain [{domain!r}] has no rows; the texts have {known}: record its prompts"
            )
        price = chain_block_cost(self.gammas, c, slope)
        speed = self.tau[:, self.domains.index(domain)] / price
        return self.gammas[choose.fastest(speed)]

    def interval(self, draws: np.ndarray) -> Interval:
        """The interval of gammas chosen [1 + n]."""
        return Interval.of(draws, self.prompts, "best gamma")


def best_gamma_rows(chains: ChainSpeeds, domain: str, grid: Grid) -> list[dict]:
    """The fastest gamma in a domain, by cost."""
    return grid.rows(
        "best gamma",
        lambda *cost: {domain: chains.interval(chains.best(domain, *cost))},
    )


def gamma_contrast(
    chains: ChainSpeeds, first: str, second: str, grid: Grid
) -> list[dict]:
    """The fastest gamma in one domain less that in another, by cost."""

    def at(*cost: float) -> dict[str, Interval]:
        draws = chains.best(first, *cost) - chains.best(second, *cost)
        return {f"{first} - {second}": chains.interval(draws)}

    return grid.rows("best gamma, difference", at)


def best_gamma_table(chains: ChainSpeeds, grid: Grid) -> pd.DataFrame:
    """`best_gamma_rows` of every domain: c, slope, domain, estimate, low, high."""
    rows = [
        row for name in chains.domains for row in best_gamma_rows(chains, name, grid)
    ]
    columns = ["c", "slope", "row", "estimate", "low", "high"]
    return pd.DataFrame(rows)[columns].rename(columns={"row": "domain"})


# ---- a gamma for each domain ---------------------------------------------------------------------


def budget_gains(sums: pd.DataFrame, grid: Grid) -> list[dict]:
    """How much faster a gamma for each domain is than one for all, as a share, by cost
    (`cost_sweep.gain`: cross-fitted, and chosen again in every resample).

    Sums of part of the blocks (outside loops) emit not quite as many tokens under every gamma:
    their cost is taken for as many as under the first.
    """
    chains = sums.sort_values(["gamma", "prompt_id"])
    first = chains[chains["gamma"] == chains["gamma"].iloc[0]]
    first = first.set_index("prompt_id")["emitted"]
    chains = chains.assign(
        setting="chain:" + chains["gamma"].astype(str),
        as_many=chains["prompt_id"].map(first),
    ).set_index(["setting", "prompt_id", "domain"])

    def at(c: float, slope: float) -> dict[str, Interval]:
        price = chains["blocks"] * chain_block_cost(chains["gamma"], c, slope)
        cost = price * chains["as_many"] / chains["emitted"]
        table = pd.DataFrame({"emitted": chains["as_many"], "cost": cost})
        return {"all": cost_sweep.gain(choose.Prices(table))}

    return grid.rows("gain of a gamma a domain", at)
