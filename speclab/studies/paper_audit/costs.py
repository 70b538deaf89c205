"""Claims about speed: what a chain of drafted tokens is worth at every cost of a draft pass.

c is a draft pass in target passes; a target pass over n tokens costs v(n) = 1 + slope (n - 1). Both
are the machine's and the pair's, and the paper names neither (0.29, often quoted for TinyLlama and
Llama-2-7B, is of two models in f16, where the paper's target is in 4 bit): so nothing is judged at
one c, each number is asked at every c and slope of a grid. Replayed: on greedy text, and at T = 1
on sampled text for drawn tokens under the rejection rule.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from speclab import stats
from speclab.analysis import choose, cost_sweep
from speclab.score import Estimator, divide, domains_in, quotient
from speclab.stats import Interval, Prompts, prompts_of
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


def chain_block_cost(gammas: np.ndarray, c: float, slope: float) -> np.ndarray:
    """Target passes that a block of gamma drafted tokens costs: gamma c + v(gamma + 1)."""
    return gammas * c + 1 + slope * gammas


def at_cost(row: dict, c: float, slope: float) -> dict:
    """A row of evidence with its costs."""
    return {"c": c, "slope": slope} | row


def speed_ups(
    sums: pd.DataFrame, gamma: int, domains: Iterable[str], grid: Grid
) -> list[dict]:
    """Speed-up of a chain of `gamma` over plain decoding, by domain and cost. sums: per prompt, as
    of `replay.chain_sums`.
    """
    tau = Estimator(
        "block_efficiency",
        lambda frame: frame[["emitted", "blocks"]].to_numpy(np.float64),
        quotient,
    )
    of_gamma = sums[sums["gamma"] == gamma]
    found = stats.by_domain(of_gamma, tau).set_index("domain")
    domains_in(sums, list(domains))
    rows = []
    for c, slope in grid.each():
        price = chain_block_cost(np.array(gamma), c, slope)
        for domain in domains:
            numbers = found.loc[domain, ["estimate", "low", "high"]] / price
            row = row_of(f"speed-up, chain of {gamma}", domain, *numbers)
            rows.append(at_cost(row, c, slope))
    return rows


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
    c, slope = np.array(list(grid.each())).T
    price = chain_block_cost(np.array(gamma), c, slope)

    def error(totals: np.ndarray) -> np.ndarray:
        emitted, blocks, one, positions = np.moveaxis(totals, -1, 0)[..., None]
        e = gamma * divide(one, positions)
        return divide(e / (e * c + 1), divide(emitted, blocks) / price)

    off = Estimator(
        f"rule / replay, chain of {gamma}",
        lambda frame: frame[names].to_numpy(np.float64),
        error,
        scalar=False,
    )
    found = stats.by_domain(of_gamma, off)
    at = {domain: found[found["domain"] == domain] for domain in domains_in(of_gamma)}
    rows = []
    for place, cost in enumerate(grid.each()):
        for domain, of_domain in at.items():
            numbers = of_domain.iloc[place][["estimate", "low", "high"]]
            rows.append(at_cost(row_of(off.name, domain, *numbers), *cost))
    return rows


# ---- the best gamma ------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChainSpeeds:
    """Tokens per pass of every gamma in each domain: `tau` [1 + n, domains, gammas], of the sample,
    then of each resample of its prompts; gamma 0 (plain) is 1.
    """

    domains: tuple[str, ...]
    gammas: np.ndarray
    tau: np.ndarray
    prompts: Prompts

    @classmethod
    def of(cls, sums: pd.DataFrame) -> "ChainSpeeds":
        """From per-prompt sums (`replay.chain_sums`)."""
        wide = sums.pivot(index=["prompt_id", "domain"], columns="gamma")
        emitted, blocks = wide["emitted"], wide["blocks"]
        prompts = prompts_of(wide.index.to_frame(index=False))
        both = np.hstack([emitted.to_numpy(), blocks.to_numpy()])
        tau = quotient(prompts.resampled(prompts.totals(both)))
        plain = np.ones((*tau.shape[:2], 1))
        gammas = np.array([0, *blocks.columns])
        return cls(
            prompts.domains,
            gammas,
            np.concatenate([plain, tau], axis=-1),
            prompts,
        )

    def best(self, domain: str, c: float, slope: float) -> np.ndarray:
        """The fastest gamma in a domain [1 + n]: chosen again in every resample. ValueError if the
        domain is missing.
        """
        if domain not in self.domains:
            known = list(self.domains)
            raise ValueError(
                f"domain [{domain!r}] has no rows; the texts have {known}: record its prompts"
            )
        speed = self.tau[:, self.domains.index(domain)] / chain_block_cost(
            self.gammas, c, slope
        )
        return self.gammas[choose.fastest(speed)]


def best_gamma_rows(chains: ChainSpeeds, domain: str, grid: Grid) -> list[dict]:
    """The fastest gamma in a domain, by cost."""
    rows = []
    for c, slope in grid.each():
        found = Interval.of(chains.best(domain, c, slope), chains.prompts, "best gamma")
        row = row_of("best gamma", domain, found.estimate, found.low, found.high)
        rows.append(at_cost(row, c, slope))
    return rows


def gamma_contrast(
    chains: ChainSpeeds, first: str, second: str, grid: Grid
) -> list[dict]:
    """The fastest gamma in one domain less that in another, by cost."""
    rows = []
    for c, slope in grid.each():
        draws = chains.best(first, c, slope) - chains.best(second, c, slope)
        found = Interval.of(draws, chains.prompts, "difference of best gammas")
        numbers = (found.estimate, found.low, found.high)
        row = row_of("best gamma, difference", f"{first} - {second}", *numbers)
        rows.append(at_cost(row, c, slope))
    return rows


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
    wide = sums.pivot(index=["prompt_id", "domain"], columns="gamma")
    blocks, emitted = wide["blocks"], wide["emitted"]
    first = emitted.iloc[:, 0]
    rows = []
    for c, slope in grid.each():
        costs = blocks * chain_block_cost(blocks.columns.to_numpy(), c, slope)
        costs = costs.mul(first, axis=0) / emitted
        parts = {
            f"chain:{gamma}": pd.DataFrame({"emitted": first, "cost": costs[gamma]})
            for gamma in costs
        }
        found = cost_sweep.gain(choose.Prices(pd.concat(parts, names=["setting"])))
        numbers = found.estimate, found.low, found.high
        row = row_of("gain of a gamma a domain", "all", *numbers)
        rows.append(at_cost(row, c, slope))
    return rows
