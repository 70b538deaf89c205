"""Online routing: what to draft for a text from what its own first blocks accepted, without a
classifier; replayed exactly on a trace (notebooks 09, section 3, and 14).

It drafts with a first setting, looks at what the first blocks accepted, and then takes the setting
that is cheapest for such texts, by a line fitted on the other folds' prompts.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from speclab import replay
from speclab.analysis import choose
from speclab.analysis.choose import Settings
from speclab.cost import Costs
from speclab.stats import fold_of


@dataclass(frozen=True)
class Walks:
    """Every setting from every position of every text.

    emitted: tokens of a block that starts there, int [settings, prompts, longest]; to_go: what it
    costs from there to the text's end, float [settings, prompts, longest + 1] (0 at the end and
    behind it).
    """

    prompt_id: np.ndarray
    domain: np.ndarray
    length: np.ndarray
    settings: tuple[str, ...]
    emitted: np.ndarray
    to_go: np.ndarray


def text_walks(
    trace: pd.DataFrame,
    settings: Settings,
    costs: Costs,
    max_new_tokens: int | None = None,
) -> Walks:
    """Replay settings from every position (T = 0, or sampled text under the point-mass rule);
    arguments as of `choose.block_counts`.
    """
    texts = replay.replay(trace, 1, starts="every")
    code, ids = pd.factorize(texts["prompt_id"])
    start, length = texts["start"].to_numpy(), np.bincount(code)
    emitted = np.zeros((len(settings), len(ids), length.max()), int)
    to_go = np.zeros((len(settings), len(ids), length.max() + 1))
    for s, shape in enumerate(settings.values()):
        blocks = choose.blocks_of(
            trace, shape, max_new_tokens=max_new_tokens, starts="every"
        )
        levels = blocks["levels"].to_numpy()  # rows in the order of `texts`
        emitted[s, code, start] = blocks["emitted"]
        to_go[s, code, start] = choose.block_prices(shape, costs)[levels]
    s, p = np.ogrid[: len(settings), : len(ids)]
    for t in range(length.max() - 1, -1, -1):  # a block, and what follows it
        to_go[:, :, t] += to_go[s, p, t + emitted[:, :, t]] * (t < length)
    domain = texts["domain"].to_numpy()[start == 0]
    return Walks(np.asarray(ids), domain, length, tuple(settings), emitted, to_go)


def first_blocks(at: Walks, setting: int, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Each text's first `blocks` blocks of one setting: where they end, int [prompts], and their
    mean accepted tokens, float [prompts].
    """
    everyone = np.arange(len(at.length))
    place, seen = np.zeros((2, len(at.length)), int)
    for _ in range(blocks):
        live = place < at.length
        inside = np.minimum(place, at.length - 1)
        place = place + at.emitted[setting, everyone, inside] * live
        seen = seen + live
    return place, (place - seen) / seen  # a block emits one token more than it accepts


def online(at: Walks, first: str, blocks: int = 2, folds: int = 5) -> pd.DataFrame:
    """A judged frame of the online policy: `blocks` blocks of the setting `first`, then the one
    whose predicted cost per token is least.

    The prediction is a least-squares line, one a setting, of the cost per remaining token on the
    mean accepted tokens of the first blocks, fitted on the other folds' prompts: an estimate shrunk
    towards those prompts as far as they say. `first` must draft, or there is nothing to see.
    Changing the setting costs nothing: both caches stay.
    """
    fold = fold_of(at.domain, folds)
    look = at.settings.index(first)
    place, seen = first_blocks(at, look, blocks)
    chosen = np.full(len(at.length), look)
    for held_out in range(folds):
        best = _cheapest(at, place, seen, fold != held_out)
        here = (fold == held_out) & (place < at.length)
        chosen[here] = best[here]
    everyone = np.arange(len(at.length))
    before = at.to_go[look, everyone, 0] - at.to_go[look, everyone, place]
    return pd.DataFrame(
        {
            "prompt_id": at.prompt_id,
            "domain": at.domain,
            "setting": np.array(at.settings)[chosen],
            "emitted": at.length.astype(float),
            "cost": before + at.to_go[chosen, everyone, place],
        }
    )


def _cheapest(
    at: Walks, place: np.ndarray, seen: np.ndarray, fit: np.ndarray
) -> np.ndarray:
    """The setting of least predicted cost for each prompt, int [prompts], when its first blocks end
    at `place` and accepted `seen`; the lines are fitted on the prompts `fit`.
    """
    left = at.length - place
    to_go = at.to_go[:, np.arange(len(left)), place]
    rate = (to_go / np.maximum(left, 1)).T
    design = np.column_stack([np.ones(len(left)), seen])
    weight = np.sqrt(left)[
        :, None
    ]  # a text counts by its tokens, none once it has ended
    line, *_ = np.linalg.lstsq((design * weight)[fit], (rate * weight)[fit])
    return (design @ line).argmin(axis=1)
