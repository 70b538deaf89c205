"""Which draft?

Every candidate on the target's own text: what it weighs, what a pass costs, what is accepted, what
speed that makes.

All candidates are judged on the same texts of the same target, so that differences between them are
paired, prompt by prompt. Traces are kept under data/runs/drafts by everything that changes their
numbers: a second call reads them.
"""

import copy
import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from speclab import replay, runs, score, stats
from speclab.analysis import significance, timing
from speclab.analysis import stopping as control
from speclab.cost import Costs
from speclab.draft import Shape, StopRule
from speclab.model import KVCache, LanguageModel
from speclab.pairs import (
    Pair,
    check_vocabularies,
    load_model,
    load_tokenizer,
    model_facts,
    parameter_count,
)
from speclab.profiles import ROOT, ModelSpec, Profile
from speclab.tree import chain

WORK = ROOT / "data" / "runs" / "drafts"
# acceptance of the draft's best token at T = 0, and of a sampled one at T = 1
HIT = score.Estimator(
    "hit[1]",
    lambda rows: np.column_stack([rows["draft_rank"] == 0, np.ones(len(rows))]).astype(float),
    score.quotient,
)
ALPHA = score.overlap_alpha


@dataclass(frozen=True)
class Candidate:
    """A draft that is tried: the `pair` with it as draft, the `spec` its weights come from, and
    what it is stored as.

    bits: of a weight of its matrices (0: it has none); weight_bytes: what a pass has to read, in
    the form it is stored in. `name` is part of the name of its traces: give drafts that share a
    spec (prompt lookup, first layers) names that tell their settings.
    """

    name: str
    pair: Pair
    spec: ModelSpec
    bits: int
    weight_bytes: int


def candidate(
    name: str, pair: Pair, profile: Profile, path: Path | str, bits: int = 0, weight_bytes: int = 0
) -> Candidate:
    """The model in `path` as a draft of the pair's target; `bits` and `weight_bytes` default to its
    files'.

    Raises ValueError if its tokenizer is not the target's, or it lacks ids that the pair shares.
    """
    path = Path(path)
    path = (
        path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    )  # so that the keys of its runs are those of another machine
    spec = dataclasses.replace(profile.draft, path=str(path), revision=None)
    draft = load_model(spec, profile.max_prompt_tokens + profile.max_new_tokens + profile.depth)
    shared = check_vocabularies(
        pair.tokenizer, load_tokenizer(draft.folder), (pair.vocab, draft.vocab)
    )
    if shared < pair.vocab:
        raise ValueError(
            f"draft {name!r} has {shared} token ids, the pair shares {pair.vocab}: use a draft of the target's vocabulary"
        )
    draft.vocab, facts = shared, model_facts(spec, draft)
    size = weight_bytes or facts["weight_bytes"]
    found = dataclasses.replace(pair, draft=draft, facts=pair.facts | {"draft": facts})
    return Candidate(name, found, spec, bits or int(8 * size / facts["parameters"]), size)


def first_layers(pair: Pair, profile: Profile, layers: int) -> Candidate:
    """The target's own first layers, with its last norm and head, as a draft (early exit,
    untrained); nothing is loaded or copied.

    ValueError where the target's body is not `speclab.lean`'s, or has no layers to leave out.
    """
    body, config = copy.copy(pair.target.body), pair.target.network.config
    if not getattr(body, "lean", False) or not 1 <= layers < len(body.layers):
        raise ValueError(
            f"layers={layers}: a lean target of more layers than that is needed; this one has {config.num_hidden_layers}"
        )
    body.layers, target = body.layers[:layers], pair.target
    draft = LanguageModel(
        body, target.head, target.vocab, target.dtype, target.device, target.kernel
    )
    left_out = sum(
        p.numel() for layer in target.network.model.layers[layers:] for p in layer.parameters()
    )
    whole, facts = parameter_count(target.network), pair.facts["target"]
    size = round(facts["weight_bytes"] * (whole - left_out) / whole)
    facts = facts | {"layers": layers, "parameters": whole - left_out, "weight_bytes": size}
    found = dataclasses.replace(pair, draft=draft, facts=pair.facts | {"draft": facts})
    return Candidate(
        f"target's first {layers} layers",
        found,
        profile.target,
        int(8 * size / facts["parameters"]),
        size,
    )


# ---- traces --------------------------------------------------------------------------------------


class Remembered:
    """A target that runs each whole text once and remembers its hidden states, for drafts that are
    judged one after another.
    """

    def __init__(self, model: LanguageModel):
        self._model, self._kept = model, {}

    def __getattr__(self, name: str):
        return getattr(self._model, name)

    def forward(
        self,
        tokens: Tensor,
        cache: KVCache,
        positions: Tensor | None = None,
        visible: Tensor | None = None,
    ) -> Tensor:
        """As the model's, for whole texts only: behind a cache, or with a mask, ValueError."""
        if cache.length or positions is not None or visible is not None:
            raise ValueError(
                "a remembered target runs whole texts only: record with a chain of one token, or take the model itself"
            )
        key = tuple(tokens.flatten().tolist())
        if key not in self._kept:
            self._kept[key] = self._model.forward(tokens, cache).to("cpu")
        return self._kept[key].to(self._model.device)


def recorded(
    tried: Candidate, profile: Profile, kind: str, texts: Mapping[str, tuple[int, ...]] | None, label: str = "",
    target: Any = None, gamma: int = 1,
) -> runs.Run:  # fmt: skip
    """The candidate's run over the target's texts of a run of `kind` (`runs.texts_of`): its trace,
    and chains of gamma. Recorded once.

    texts None: the candidate's target writes them. label: says so where they are not its own.
    target: it as `Remembered`, which is faster and does for chains of one token.
    """
    small = profile.replace(**runs.KINDS[kind]).replace(
        draft=tried.spec, depth=gamma, branches=1, budget=gamma
    )
    folder = WORK / f"{_slug(f'{tried.name} {label} {kind}')}-{runs.run_key(small)}"
    if (folder / "manifest.json").is_file():
        return runs.load_run(folder)
    pair = dataclasses.replace(tried.pair, target=target or tried.pair.target)
    return runs.record_run(small, folder, pair=pair, progress=iter, texts=texts)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def acceptance(
    traces: Mapping[str, pd.DataFrame], estimator: score.Estimator = HIT, **options
) -> pd.DataFrame:
    """`stats.by_domain` of every draft's trace, with a column `draft` before."""
    parts = [
        stats.by_domain(rows, estimator, **options).assign(draft=name)
        for name, rows in traces.items()
    ]
    return pd.concat(parts, ignore_index=True)[
        ["draft", "estimator", "domain", "estimate", "low", "high", "n_prompts"]
    ]


def against(
    traces: Mapping[str, pd.DataFrame],
    base: pd.DataFrame,
    estimator: score.Estimator = HIT,
    same_text: bool = True,
    **options,
) -> pd.DataFrame:
    """Each trace minus `base` on the same prompts, per domain and pooled: draft, domain, estimate,
    low, high, n_prompts, p_value.

    ValueError if the texts differ where they should not: the difference would not be the draft's.
    """
    parts = []
    for name, rows in traces.items():
        if same_text and rows["token"].tolist() != base["token"].tolist():
            raise ValueError(
                f"draft {name!r} was judged on other texts than the base: record both on the texts of one run"
            )
        for domain in (*score.domains_in(rows), score.POOLED):
            mine, its = (
                frame if domain == score.POOLED else frame[frame["domain"] == domain]
                for frame in (rows, base)
            )
            parts.append(
                {"draft": name, "domain": domain}
                | vars(significance.paired_difference(mine, its, estimator, **options))
            )
    return pd.DataFrame(parts)


# ---- costs and speed -----------------------------------------------------------------------------


def pass_costs(
    tried: Iterable[Candidate], context: int = 128, repeats: int = 15
) -> dict[str, float]:
    """c of each candidate on this machine: median draft pass over median target pass, both measured
    in one run in random orders.

    Drafts of one architecture do the same work, whatever their weights: the first is measured for
    all, so that noise ranks none of them.
    """
    measured: dict[tuple, float] = {}
    found = {}
    for one in tried:
        facts = one.pair.facts["draft"]
        same_work = (
            facts["parameters"],
            facts["layers"],
            facts["heads"],
            str(one.pair.draft.dtype),
            one.pair.draft.kernel,
        )
        if same_work not in measured:
            measured[same_work] = timing.costs_of(
                timing.pass_times(one.pair, (1,), context, repeats)
            ).c()
        found[one.name] = measured[same_work]
    return found


def with_c(costs: Costs, c: float) -> Costs:
    """The costs of the same target with another draft."""
    return dataclasses.replace(costs, draft=(c,) * len(costs.sizes))


def by_bytes(tried: Candidate) -> Costs:
    """A machine on which a pass costs the bytes of its weights: c = their ratio, v = 1, o = 0.

    A bound, not a measurement.
    """
    sizes = (1, 64)
    return Costs(
        1.0,
        sizes,
        (tried.weight_bytes / tried.pair.facts["target"]["weight_bytes"],) * 2,
        (1.0, 1.0),
    )


def best_chain(
    rows: pd.DataFrame, costs: Costs, gammas: Iterable[int] = range(1, 17)
) -> dict[str, float | int]:
    """The chain of a trace at T = 0 that `costs` predict to be fastest: gamma, block_efficiency,
    speedup, each with low and high.

    Visited blocks of all texts. Intervals resample prompts within domains; gamma and costs stand.
    """
    sums = replay.chain_sums(rows, gammas)
    price = {gamma: costs.of_block(chain(gamma)) for gamma in sums["gamma"].unique()}
    return _fastest(sums.assign(cost=sums["blocks"] * sums["gamma"].map(price)), "gamma")


def stopped_chain(
    nodes: pd.DataFrame,
    costs: Costs,
    max_new_tokens: int,
    threshold: float = 0.5,
    limits: Iterable[int] | None = None,
) -> dict[str, float | int]:
    """As `best_chain`, for chains that stop where the draft's confidence is below a threshold; from
    `nodes` of a run of chains.

    limits: the longest chain a block may have, each is tried (None: up to the recorded length); the
    best one is `gamma`.
    """
    at = control.chains(nodes, max_new_tokens)
    limits = limits or range(1, at.depth + 1)
    sums = [
        control.totals(at, control.stopped(at, "confidence", threshold, limit), costs).assign(
            gamma=limit
        )
        for limit in limits
    ]
    return _fastest(pd.concat(sums), "gamma")


def _fastest(sums: pd.DataFrame, setting: str) -> dict[str, float | int]:
    """From per-prompt emitted, blocks and cost of each setting."""
    total = sums.groupby(setting)[["emitted", "cost"]].sum()
    best = (total["emitted"] / total["cost"]).idxmax()
    rows, found = sums[sums[setting] == best], {setting: int(best)}
    for name, under in (("block_efficiency", "blocks"), ("speedup", "cost")):
        ratio = stats.bootstrap(
            rows,
            score.Estimator(
                name, lambda f, under=under: f[["emitted", under]].to_numpy(float), score.quotient
            ),
        )
        found |= {name: ratio.estimate, f"{name}_low": ratio.low, f"{name}_high": ratio.high}
    return found


def measured_speed(
    tried: Candidate,
    prompts: list,
    gamma: int,
    new_tokens: int,
    repeats: int = 2,
    stop: StopRule | None = None,
) -> dict:
    """Speed-up over plain decoding of a chain of gamma on a few prompts, for real: speedup, low,
    high (medians of the repeats).
    """
    times = timing.decoded_speed(
        tried.pair, prompts, {"chain": Shape(chain(gamma), stop)}, new_tokens, repeats
    )
    each = times.groupby(["method", "prompt_id"])["time_s"].median().unstack("method").reset_index()
    ratio = stats.bootstrap(
        each,
        score.Estimator("speedup", lambda f: f[["plain", "chain"]].to_numpy(float), score.quotient),
    )
    return {"measured": ratio.estimate, "measured_low": ratio.low, "measured_high": ratio.high}


# ---- the table -----------------------------------------------------------------------------------


def facts(tried: Iterable[Candidate]) -> pd.DataFrame:
    """What the article asks of a draft: draft, parameters, layers, heads, bits, weight_bytes, and
    both as shares of the target's.
    """
    rows = []
    for one in tried:
        draft, target = one.pair.facts["draft"], one.pair.facts["target"]
        rows.append(
            {"draft": one.name}
            | {name: draft[name] for name in ("parameters", "layers", "heads")}
            | {
                "bits": one.bits,
                "weight_bytes": one.weight_bytes,
                "of_target_parameters": draft["parameters"] / target["parameters"],
                "of_target_bytes": one.weight_bytes / target["weight_bytes"],
            }
        )
    return pd.DataFrame(rows)


def compared(
    tried: Iterable[Candidate], greedy: Mapping[str, runs.Run], sampled: Mapping[str, runs.Run], price: Mapping[str, float], costs: Costs,
    gammas: Iterable[int] = range(1, 17),
) -> pd.DataFrame:  # fmt: skip
    """The selection table, a row a draft: `facts`, c (from `price`), hit[1] and alpha with low and
    high, `best_chain` at the measured costs and at `by_bytes` (names end so), and `front`: not
    beaten in both c and hit[1].

    greedy, sampled: runs over the same texts at T = 0 and T = 1, by draft. Acceptance is pooled
    over positions of all domains.
    """
    tried, gammas, rows = list(tried), list(gammas), []
    for one in tried:
        row = {"draft": one.name, "c": price[one.name]}
        for kind, estimator in ((greedy, HIT), (sampled, ALPHA)):
            found = stats.bootstrap(kind[one.name].trace, estimator)
            row |= {
                estimator.name: found.estimate,
                f"{estimator.name}_low": found.low,
                f"{estimator.name}_high": found.high,
            }
        bound = best_chain(greedy[one.name].trace, by_bytes(one), gammas)
        row |= best_chain(greedy[one.name].trace, with_c(costs, price[one.name]), gammas)
        rows.append(row | {f"{name}_by_bytes": value for name, value in bound.items()})
    table = facts(tried).merge(pd.DataFrame(rows), on="draft")
    return table.assign(front=pareto(table["c"], table[HIT.name]))


def pareto(cost: np.ndarray, value: np.ndarray) -> np.ndarray:
    """bool: True where no other point costs less or as much and is worth more or as much, one of
    the two strictly.
    """
    cost, value = np.asarray(cost, float), np.asarray(value, float)
    if cost.shape != value.shape or not (np.isfinite(cost).all() and np.isfinite(value).all()):
        raise ValueError(
            f"cost {cost.shape} and value {value.shape}: as many finite numbers of each are needed"
        )
    no_worse = (cost[:, None] <= cost) & (value[:, None] >= value)
    return ~(no_worse & ((cost[:, None] < cost) | (value[:, None] > value))).any(axis=0)


def lossless(
    tried: Iterable[Candidate],
    prompts: list,
    texts: Mapping[str, tuple[int, ...]],
    shapes: Mapping[str, Shape],
    new: int,
) -> pd.DataFrame:
    """Greedy decoding with every candidate and shape against the target's own texts: draft, shape,
    texts, equal, block_efficiency.
    """
    from speclab.decode import decode_prompt
    from speclab.sampling import Sampling

    rows = []
    for one in tried:
        for name, shape in shapes.items():
            made = [decode_prompt(one.pair, p, "greedy", shape, Sampling(), new) for p in prompts]
            equal = sum(m.token_ids == texts[m.prompt_id][:new] for m in made)
            tau = sum(len(m.token_ids) for m in made) / sum(m.target_passes for m in made)
            rows.append(
                {
                    "draft": one.name,
                    "shape": name,
                    "texts": len(made),
                    "equal": equal,
                    "block_efficiency": tau,
                }
            )
    return pd.DataFrame(rows)
