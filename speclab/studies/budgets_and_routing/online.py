"""Online routing: what to draft for a text from what its own first blocks accepted, without a
classifier; replayed exactly on a trace.

It drafts with a default setting, looks at what the first blocks accepted, and then takes the
setting that is best for such texts, by a line fitted on the other folds' prompts. Judged frames as
in `speclab.analysis.choose`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from speclab import replay
from speclab.analysis.choose import UNKNOWN, Settings, block_prices, fastest, levels_at
from speclab.cost import Costs
from speclab.stats import fold_of


@dataclass(frozen=True)
class Walks:
    """Every setting from every position of every text: tokens `emitted` by a block that starts
    there, int [settings, prompts, longest], and `to_go`, target passes from there to the text's
    end, float64 [settings, prompts, longest + 1] (0 at the end and behind it).
    """

    prompt_id: np.ndarray
    domain: np.ndarray
    length: np.ndarray
    settings: tuple[str, ...]
    emitted: np.ndarray
    to_go: np.ndarray


def walks(
    trace: pd.DataFrame, settings: Settings, costs: Costs, max_new_tokens: int | None = None
) -> Walks:
    """Replay settings from every position (T = 0, or sampled text under the point-mass rule);
    arguments as `budgets.prompt_table`.
    """
    texts = replay.replay(trace, 1, starts="every")
    code, ids = pd.factorize(texts["prompt_id"])
    start, length, prices = (
        texts["start"].to_numpy(),
        np.bincount(code),
        block_prices(settings, costs),
    )
    emitted, to_go = (
        np.zeros((len(settings), len(ids), length.max()), int),
        np.zeros((len(settings), len(ids), length.max() + 1)),
    )
    for s, (name, tree) in enumerate(settings.items()):
        emitted[s, code, start], to_go[s, code, start] = 1, 1.0
        if tree.size:
            blocks = replay.replay(trace, tree, starts="every")  # rows in the order of `texts`
            emitted[s, code, start] = blocks["emitted"]
            to_go[s, code, start] = prices[name][levels_at(blocks, tree, max_new_tokens)]
    rows, columns = np.ogrid[: len(settings), : len(ids)]
    for t in range(length.max() - 1, -1, -1):
        to_go[:, :, t] += to_go[rows, columns, t + emitted[:, :, t]] * (t < length)
    return Walks(
        np.asarray(ids),
        texts["domain"].to_numpy()[start == 0],
        length,
        tuple(settings),
        emitted,
        to_go,
    )


def first_blocks(at: Walks, setting: int, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Each text's first `blocks` blocks of one setting: where they end, int [prompts], and their
    mean accepted tokens, float [prompts].
    """
    place, accepted, seen = (
        np.zeros(len(at.length), int),
        np.zeros(len(at.length)),
        np.zeros(len(at.length)),
    )
    everyone = np.arange(len(at.length))
    for _ in range(blocks):
        live = place < at.length
        emitted = np.where(live, at.emitted[setting, everyone, np.minimum(place, at.length - 1)], 0)
        place, accepted, seen = place + emitted, accepted + emitted - live, seen + live
    return place, accepted / seen


def online(
    at: Walks,
    default: str | None = None,
    blocks: int = 2,
    routes: Mapping[str, str] | None = None,
    folds: int = 5,
    seed: int = 0,
) -> pd.DataFrame:
    """A judged frame of the online policy: `blocks` blocks of `default`, then the setting whose
    predicted cost per token is least.

    The prediction is a least-squares line, one a setting, of the cost per remaining token on the
    mean accepted tokens of the first blocks, fitted on the other folds' prompts: an estimate shrunk
    towards those prompts as far as they say. default: a setting that drafts, or there is nothing to
    see; None: the best of those for the other folds' prompts. routes (prompt_id -> domain or
    UNKNOWN) gives each domain a line of its own height: classifier and acceptance together.
    Changing the setting costs nothing: both caches stay.
    """
    if isinstance(blocks, bool) or blocks < 1:
        raise ValueError(f"blocks={blocks!r}: at least 1 is needed to see anything")
    drafting, fold = _drafting(at, default), fold_of(at.domain, folds, seed)
    heights = [np.ones((len(at.length), 1))] * 2
    if routes is not None:
        taken = pd.Series(at.prompt_id).map(dict(routes)).fillna("nothing")
        heights = [_heights(label, at.domain) for label in (pd.Series(at.domain), taken)]
    chosen, cost = np.zeros(len(at.length), int), np.zeros(len(at.length))
    for k in range(folds):
        look = drafting[fastest(1 / at.to_go[drafting][:, fold != k, 0].sum(axis=1))]
        picked, paid = _decided(at, look, blocks, fold != k, heights)
        chosen[fold == k], cost[fold == k] = picked[fold == k], paid[fold == k]
    return pd.DataFrame(
        {
            "prompt_id": at.prompt_id,
            "domain": at.domain,
            "setting": np.array(at.settings)[chosen],
            "emitted": at.length.astype(float),
            "cost": cost,
            "fold": fold,
        }
    )


def _drafting(at: Walks, default: str | None) -> np.ndarray:
    """Numbers of the settings to look with: the default, or (None) all that draft."""
    if default is not None and default not in at.settings:
        raise ValueError(f"default={default!r} is not among the settings {list(at.settings)}")
    found = [
        s
        for s, name in enumerate(at.settings)
        if default in (None, name) and (at.emitted[s] > 1).any()
    ]
    if not found:
        raise ValueError(
            f"default={default!r}: nothing that it drafts is accepted, so there is nothing to see; choose a chain or a tree"
        )
    return np.array(found)


def _decided(
    at: Walks, look: int, blocks: int, fit: np.ndarray, heights: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Setting and cost of every prompt when the first blocks are of setting `look` and the lines
    are fitted on the prompts `fit`.

    heights: which domain the prompts are of, and which they are taken for, float [prompts, k] each.
    """
    everyone, (place, seen) = np.arange(len(at.length)), first_blocks(at, look, blocks)
    left = at.length - place
    rate, weight = (at.to_go[:, everyone, place] / np.maximum(left, 1)).T, np.sqrt(left)[:, None]
    design, told = (np.column_stack([height, seen]) for height in heights)
    fit = fit & (left > 0)
    line = np.linalg.lstsq((design * weight)[fit], (rate * weight)[fit])[0]
    chosen = np.where(left > 0, (told @ line).argmin(axis=1), look)
    return chosen, at.to_go[look, everyone, 0] - at.to_go[look, everyone, place] + at.to_go[
        chosen, everyone, place
    ]


def _heights(label: pd.Series, domain: np.ndarray) -> np.ndarray:
    """Which domain each prompt is taken for, [prompts, domains]: 1 at its own, the same everywhere
    where it is UNKNOWN.
    """
    domains = pd.unique(domain)
    wrong = label[~label.isin([*domains, UNKNOWN])]
    if len(wrong):
        raise ValueError(
            f"routes give {wrong.iloc[0]!r}; give every prompt one of {', '.join(domains)}, or {UNKNOWN!r} for none"
        )
    one = (label.to_numpy()[:, None] == domains).astype(float)
    return np.where(one.any(axis=1, keepdims=True), one, 1 / len(domains))
