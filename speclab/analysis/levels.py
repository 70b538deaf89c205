"""The levels of a variance: rows (nodes or positions), the prompts they come from, the domains.

A share of variance has a denominator. Of the variance of rows most is from one token to the next
inside a text, which no choice for a whole prompt can reach; who routes chooses for a prompt, and
asks what share of the variance *between prompts* the domain explains. Both, of one quantity:

* `domain_shares`, descriptive: omega squared (Hays 1963), with the prompts' mean square as error at
  both levels, because a domain's mean moves by chance as whole prompts do.
* `random_intercept`, a mixed model: value = fixed effects + prompt + row, by REML. Only the ratio
  of the two variances must be searched, and the sums of each prompt suffice, so that the fit is
  exact and quick for 100,000 rows and can be repeated on resampled prompts. (statsmodels' MixedLM,
  by Powell's method, is the reference of the tests; its default search takes seconds a fit at this
  size and does not always converge.)

Resampled prompts double the chance part of a share (that of the sample, and that of the resample).
Intervals of shares are therefore percentiles of the resamples moved back by their mean excess over
the estimate, and cut at 0. NumPy and pandas.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from speclab import score, stats
from speclab.analysis import loops
from speclab.profiles import Profile
from speclab.runs import profile_prompts
from speclab.score import column_of, domains_in
from speclab.show.estimates import NUMBERS, Estimates
from speclab.stats import RESAMPLES, resampling_of

ROWS, MEANS = "nodes, positions", "prompt means"
PROMPTS, GIVEN = "prompts", "prompts, covariates held"
LEVELS = (ROWS, MEANS, PROMPTS, GIVEN)
NOTHING, DOMAIN = "nothing", "domain"
COVARIATES, BOTH = "covariates", "covariates and domain"
MODELS = {  # has it the covariates, and the domain?
    NOTHING: (False, False),
    DOMAIN: (False, True),
    COVARIATES: (True, False),
    BOTH: (True, True),
}
LEVEL = "level of all"  # the fixed effect of a model without domains
PUBLISHED, AT_0, AT_1 = "published_alpha, T = 0", "hit[1], T = 0", "alpha, T = 1"
SHORT = {
    PUBLISHED: "published_alpha",
    AT_0: "hit",
    AT_1: "alpha",
}  # in recorded numbers
RIDGE = 1e-9  # of a column that is constant in a resample
OF_POSITION = ("target_entropy", "prompt length", "in a loop")  # covariates
CHARACTERS = 100  # a step of the covariate `prompt length`


def domain_shares(frame: pd.DataFrame, value: str, n: int = RESAMPLES) -> pd.DataFrame:
    """Share of the variance of a column between domains, over ROWS and over prompt MEANS (a mean
    counts as often as it has rows): level, estimate, low, high, uncorrected.

    `uncorrected` is the plain share (eta squared), too high by what prompts differ by chance.
    ValueError: one domain only, fewer than 5 prompts in one.
    """
    prompts = resampling_of(frame, n)
    if len(prompts.domains) < 2:
        raise ValueError(
            f"the frame has the domain {prompts.domains} only: a share between domains needs two"
        )
    y = column_of(frame, value)
    y = y - y.mean()
    count, total, square = prompts.totals(np.stack([np.ones_like(y), y, y * y], 1)).T
    of_prompt = [np.ones_like(count), count, total, square, total**2 / count]
    sums = prompts.resampled(np.stack(of_prompt, axis=1))
    sizes, rows, totals, squares, of_means = sums.sum(axis=1).T
    grand = totals**2 / rows
    of_domains = (sums[..., 2] ** 2 / sums[..., 1]).sum(axis=1)
    between, within = of_domains - grand, of_means - of_domains
    domains = len(prompts.domains)
    error = within / (sizes - domains)  # the mean square of prompts within domains
    whole = {ROWS: squares - grand, MEANS: between + within}
    found = []
    for level, variation in whole.items():
        share = (between - (domains - 1) * error) / (variation + error)
        uncorrected = between[0] / variation[0]
        found.append((level, *_moved_back(share, prompts.fewest), uncorrected))
    return pd.DataFrame(found, columns=["level", *NUMBERS, "uncorrected"])


def _moved_back(draws: np.ndarray, fewest: int) -> tuple[float, float, float]:
    """Estimate, low and high of a share from draws (1 + n,), within 0 and 1; `fewest` prompts in a
    domain.
    """
    excess = draws[1:].mean() - draws[0]
    low, high = stats.bounds_of(draws[1:] - excess, fewest)
    return tuple(float(np.clip(number, 0.0, 1.0)) for number in (draws[0], low, high))


# ---- the mixed model -----------------------------------------------------------------------------


@dataclass(frozen=True)
class RandomIntercept:
    """A fit on the sample (row 0) and on n resamples of its prompts.

    terms: the fixed effects; coefficients (1 + n, terms); prompt and residual: variances (1 + n,)
    of the prompts' effect and of a row within its prompt; fewest: prompts of the smallest domain.
    """

    terms: tuple[str, ...]
    coefficients: np.ndarray
    prompt: np.ndarray
    residual: np.ndarray
    fewest: int


def random_intercept(
    frame: pd.DataFrame,
    value: str,
    fixed: pd.DataFrame,
    n: int = RESAMPLES // 4,
) -> RandomIntercept:
    """value = fixed @ coefficients + effect of the prompt + row, by REML (Harville 1977).

    fixed: a numeric column a term, a row for each of `frame`, an intercept (or a column a domain)
    among them. ValueError as `stats.resampling_of`, and if the value is constant.
    """
    y = column_of(frame, value)
    if np.ptp(y) == 0:
        raise ValueError(f"column {value!r} is constant: it has no variance to part")
    prompts = resampling_of(frame, n)
    block = np.column_stack([fixed.to_numpy(np.float64), y])  # (rows, terms + 1)
    weights, size = prompts.weights, block.shape[1]
    count = np.bincount(prompts.rows).astype(np.float64)
    total = prompts.totals(block)
    own = [block[prompts.rows == number] for number in range(len(count))]
    inner = np.stack([rows.T @ rows for rows in own]).reshape(len(count), -1)
    outer = np.einsum("pi,pj->pij", total, total).reshape(len(count), -1)
    rows = weights @ count
    plain = weights @ inner
    ridge = RIDGE * rows[:, None, None] * np.eye(size)

    def moments(log_ratio: np.ndarray) -> np.ndarray:
        """Sums of squares and products (1 + n, size, size), each prompt's own part shrunk."""
        ratio = np.exp(log_ratio)[:, None]
        shrunk = plain - (weights * (ratio / (1 + ratio * count))) @ outer
        return shrunk.reshape(-1, size, size) + ridge

    def criterion(log_ratio: np.ndarray) -> np.ndarray:
        """-2 log REML likelihood but for a constant, the residual variance profiled out."""
        root = np.linalg.cholesky(moments(log_ratio))
        logs = 2 * np.log(np.diagonal(root, axis1=1, axis2=2))
        spread = (weights * np.log1p(np.exp(log_ratio)[:, None] * count)).sum(axis=1)
        return (rows - size + 1) * logs[:, -1] + logs[:, :-1].sum(axis=1) + spread

    best = _least(criterion, len(weights))
    found = moments(best)
    left, right = found[:, :-1, :-1], found[:, :-1, -1]
    coefficients = np.linalg.solve(left, right[..., None])[..., 0]
    unexplained = found[:, -1, -1] - (coefficients * right).sum(axis=1)
    residual = unexplained / (rows - size + 1)
    return RandomIntercept(
        tuple(fixed), coefficients, np.exp(best) * residual, residual, prompts.fewest
    )


def _least(criterion, size: int) -> np.ndarray:
    """The log ratio of the variances at which a function of one peak is least, for each of `size`
    draws at once: thirds.
    """
    low, high = np.full(size, np.log(1e-6)), np.full(size, np.log(1e2))
    for _ in range(32):
        third = (high - low) / 3
        first, second = low + third, high - third
        nearer = criterion(first) < criterion(second)
        low, high = np.where(nearer, low, first), np.where(nearer, second, high)
    return (low + high) / 2


def fixed_effects(
    frame: pd.DataFrame, covariates: Sequence[str], domains: bool
) -> pd.DataFrame:
    """Columns of a model: LEVEL, or one a domain, then the covariates about their means (the levels
    are then those of a mean row); a covariate of words is a column for each value but the first,
    one that does not vary is left out.
    """
    of_row = frame["domain"] if domains else pd.Series(LEVEL, frame.index)
    names = domains_in(frame) if domains else [LEVEL]
    columns = pd.DataFrame({name: of_row == name for name in names}).astype(np.float64)
    varying = [name for name in covariates if frame[name].nunique() > 1]
    if not varying:
        return columns
    more = pd.get_dummies(frame[varying], "", "", drop_first=True, dtype=np.float64)
    return columns.join(more - more.mean())


# ---- what the notebooks ask ----------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """A column of a frame whose variance is parted, and the covariates of the mixed model."""

    frame: pd.DataFrame
    value: str
    covariates: tuple[str, ...]


def characters_of_prompts(profile: Profile) -> dict[str, int]:
    """Characters of each prompt of a profile, by prompt_id."""
    return {one.prompt_id: len(one.text) for one in profile_prompts(profile)}


def questions(greedy, sampled, lengths: Mapping[str, int]) -> dict[str, Question]:
    """By estimator: as published (min(1, p/q) of the nodes), and what is accepted of one drafted
    token at T = 0 (hit[1], 0 or 1) and at T = 1 (overlap; on sampled text).

    greedy, sampled: runs at T = 0 and T = 1. lengths: characters of each prompt, by prompt_id.
    """
    texts = [
        _with_covariates(run.trace, run.trace, lengths) for run in (greedy, sampled)
    ]
    hits = score.with_hits(texts[0])
    return {
        PUBLISHED: of_nodes(_with_covariates(greedy.nodes, greedy.trace, lengths)),
        AT_0: Question(hits, "hit", OF_POSITION),
        AT_1: Question(texts[1], "overlap", OF_POSITION),
    }


def of_nodes(nodes: pd.DataFrame) -> Question:
    """min(1, p/q) of nodes, with rank, depth, and those of OF_POSITION that they hold."""
    frame = nodes.assign(
        ratio=score.ratio(nodes),
        rank="rank " + nodes["rank"].astype(str),
        depth="depth " + nodes["depth"].astype(str),
    )
    there = [name for name in OF_POSITION if name in nodes]
    return Question(frame, "ratio", ("rank", "depth", *there))


def _with_covariates(
    frame: pd.DataFrame, trace: pd.DataFrame, lengths: Mapping[str, int]
) -> pd.DataFrame:
    length = frame["prompt_id"].astype(str).map(dict(lengths)) / CHARACTERS
    assert length.notna().all()
    in_loop = loops.repeated_at(frame, loops.marks(trace)).astype(np.float64)
    return frame.assign(**{"prompt length": length, "in a loop": in_loop})


@dataclass(frozen=True)
class Measured:
    """`domain_shares` (ROWS, MEANS) and the mixed models' (PROMPTS, GIVEN) of several questions.

    shares: estimator, level, estimate, low, high, uncorrected. variances: estimator, model,
    quantity (variance of the prompts' effect, of a row, ICC). coefficients, of the model BOTH:
    estimator, term.
    """

    shares: Estimates
    variances: Estimates
    coefficients: Estimates

    @classmethod
    def stacked(cls, parts: "Mapping[str, Measured]", key: str) -> "Measured":
        """Several as one; the new first column `key` holds their names."""

        def of(table: str, digits: int = 3) -> Estimates:
            named = {name: getattr(one, table) for name, one in parts.items()}
            return Estimates.stacked(named, key, digits)

        return cls(of("shares"), of("variances", 4), of("coefficients"))


def measure(asked: Mapping[str, Question], n: int = RESAMPLES // 4) -> Measured:
    """Every question's shares, variances and coefficients, prompts resampled."""
    return Measured.stacked(
        {name: _measured(one, n) for name, one in asked.items()}, "estimator"
    )


def _measured(asked: Question, n: int) -> Measured:
    shares = domain_shares(asked.frame, asked.value)
    fits, variances = {}, {}
    for model, (with_covariates, with_domain) in MODELS.items():
        covariates = asked.covariates if with_covariates else ()
        fixed = fixed_effects(asked.frame, covariates, with_domain)
        fits[model] = fit = random_intercept(asked.frame, asked.value, fixed, n)
        variances[model, "prompts"] = fit.prompt
        variances[model, "rows"] = fit.residual
        # the intraclass correlation: the prompts' share of the two
        variances[model, "ICC"] = fit.prompt / (fit.prompt + fit.residual)
    full = fits[BOTH]
    coefficients = dict(zip(full.terms, full.coefficients.T, strict=True))
    return Measured(
        Estimates(pd.concat([shares, _explained(fits)], ignore_index=True)),
        _with_intervals(variances, ["model", "quantity"], full.fewest),
        _with_intervals(coefficients, ["term"], full.fewest),
    )


def _explained(fits: Mapping[str, RandomIntercept]) -> pd.DataFrame:
    """By what part the variance of the prompts' effect shrinks when the domain joins the model, as
    it stands (PROMPTS) and with the covariates in it already (GIVEN): level, estimate, low, high.
    """
    rows = []
    joins = {PROMPTS: (NOTHING, DOMAIN), GIVEN: (COVARIATES, BOTH)}
    for level, (without, joined) in joins.items():
        draws = 1 - fits[joined].prompt / fits[without].prompt
        rows.append((level, *_moved_back(draws, fits[joined].fewest)))
    return pd.DataFrame(rows, columns=["level", *NUMBERS])


def _with_intervals(
    draws: Mapping[Any, np.ndarray], keys: list[str], fewest: int
) -> Estimates:
    """Numbers by name, each (1 + n,): itself and its resamples."""
    every = np.stack(list(draws.values()), axis=1)
    numbers = np.stack([every[0], *stats.bounds_of(every[1:], fewest)], axis=1)
    names = pd.DataFrame(list(draws), columns=keys)
    return Estimates(names.join(pd.DataFrame(numbers, columns=NUMBERS)))


def percent(found: Estimates, digits: int = 1) -> Estimates:
    """The same times 100."""
    scaled = 100 * found.frame[NUMBERS]
    return Estimates(found.frame.assign(**scaled), digits)


def shares_said(shares: Estimates) -> str:
    """What the domain explains at each level, a line an estimator: 'of the variance of nodes …'."""
    lines = []
    for name, rows in percent(shares).groups("estimator"):
        of = {level: str(rows.at(level=level)) for level in LEVELS}
        unit = "nodes" if name == PUBLISHED else "positions"
        lines.append(
            f"* `{name}`: the domain explains {of[ROWS]} % of the variance of {unit}, "
            f"{of[MEANS]} % of that of prompt means, and **{of[PROMPTS]} %** of that between "
            f"prompts ({of[GIVEN]} % with the covariates held)."
        )
    return "\n".join(lines)
