"""Recorded runs as a few compact columns, for the page that replays them in a browser.

What the replay needs is kept exactly: draft ranks as integers, p and q of the text's tokens as the
float32 numbers that were recorded. What is only shown is rounded: other probabilities to 1/65535,
entropies to 0.001 nats. The layout is the reader's, `assets/data.js`: four bytes with the length
of a JSON header, the header (its offsets count from its own end, filled up to a multiple of 8),
then the columns, each at a multiple of 8; all of it little-endian, gzipped and in base64.
"""

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from speclab import replay
from speclab.runs import Run
from speclab.tree import Tree, static_tree

if TYPE_CHECKING:
    from speclab.prompts import Prompt

TOP = 5  # of the draft's best tokens, at every position
SHARES = 65535  # a probability is kept as so many parts of one
NATS = 1000  # an entropy as so many parts of a nat
ALIGNED = 8  # bytes
LONGEST = 200  # characters of a token's text


@dataclass(frozen=True)
class Packed:
    """Runs as one string, and what a page has to say of them."""

    base64: str
    prompts: int  # of each domain that are in it, the most
    recorded: int  # of each domain that were recorded, the most
    temperatures: tuple[float, ...]


@dataclass(frozen=True)
class _Text:
    """A run's rows in order: prompts as they first appear, positions from 0."""

    run: Run
    trace: pd.DataFrame
    prompt: list[str]
    domain: list[str]
    length: list[int]

    @property
    def temperature(self) -> float:
        return float(self.run.manifest["profile"]["temperature"])


def pack_runs(
    runs: Sequence[Run],
    strings: Mapping[int, str] | Sequence[str] | None = None,
    prompts: Sequence["Prompt"] = (),
    details: bool = True,
    per_domain: int | None = None,
) -> Packed:
    """One or two runs of a pair: of greedy text (T = 0), of text sampled at a temperature, or one
    of each.

    strings: the text of each token id (None: the page shows the ids). prompts: what was asked,
    where it is known. details: the texts, and what is shown of a token beside what the replay needs
    (the draft's best tokens, entropies, drawn trees). per_domain: only the first so many prompts
    of each domain. ValueError for other runs, of two pairs, or of a trace that cannot be replayed.
    """
    texts = [_in_order(run, per_domain) for run in runs]
    _check(texts)
    used = sorted(set().union(*map(_tokens, texts))) if details else []
    columns, nodes = {}, None
    for number, text in enumerate(texts):
        for name, values in _columns(text, used, details).items():
            columns[f"{number}.{name}"] = values
        found = _node_columns(text, used) if details else None
        if found:
            nodes = nodes or _recorded_shape(text.run)
            for name, values in found.items():
                columns[f"{number}.{name}"] = values
    asked = {prompt.prompt_id: prompt.text for prompt in prompts}
    shown = {prompt_id for text in texts for prompt_id in text.prompt}
    profile = texts[0].run.manifest["profile"]
    header = {
        "pair": profile["name"],
        "description": profile["description"] or "",
        "ids": used,
        "strings": [_string(strings, token) for token in used],
        "prompts": {name: text for name, text in asked.items() if name in shown},
        "top": TOP if details else 0,
        "tree": nodes,
        "runs": [
            {
                "temperature": text.temperature,
                "prompt": text.prompt,
                "domain": text.domain,
                "length": text.length,
            }
            for text in texts
        ],
    }
    raw = gzip.compress(_layout(header, columns), 9, mtime=0)
    return Packed(
        base64.b64encode(raw).decode(),
        max(_most(text.domain) for text in texts),
        max(_most_recorded(run) for run in runs),
        tuple(text.temperature for text in texts),
    )


# ---- rows ----------------------------------------------------------------------------------------


def _in_order(run: Run, per_domain: int | None) -> _Text:
    trace = run.trace
    replay.replay(trace, 1)  # its checks: columns, positions, ranks
    if run.manifest["profile"]["temperature"] > 0:
        replay.replay_sampled(trace, 1)
    firsts = trace.drop_duplicates("prompt_id")
    if per_domain is not None:
        place = firsts.groupby("domain", sort=False).cumcount()
        firsts = firsts[place < per_domain]
    number = pd.Series(range(len(firsts)), index=firsts["prompt_id"])
    rows = trace.assign(number=trace["prompt_id"].map(number)).dropna(subset=["number"])
    rows = rows.sort_values(["number", "position"]).reset_index(drop=True)
    length = np.bincount(rows["number"].astype(int)).tolist()
    prompt = firsts["prompt_id"].astype(str).tolist()
    return _Text(run, rows, prompt, firsts["domain"].astype(str).tolist(), length)


def _check(texts: Sequence[_Text]) -> None:
    temperatures = [text.temperature for text in texts]
    sampled = [t for t in temperatures if t > 0]
    if not texts or len(texts) > 2 or len(sampled) > 1 or len(texts) - len(sampled) > 1:
        raise ValueError(
            f"runs of temperature {temperatures}: give one run, or one of greedy text "
            "(temperature 0) and one of sampled text"
        )
    pairs = [
        [text.run.manifest["profile"][m] for m in ("target", "draft")] for text in texts
    ]
    if any(pair != pairs[0] for pair in pairs):
        raise ValueError(
            f"runs of two pairs: {texts[0].run.folder} and {texts[1].run.folder}; "
            "give two runs of one pair"
        )


def _most(domains: Sequence[str]) -> int:
    return max(np.unique(domains, return_counts=True)[1].tolist())


def _most_recorded(run: Run) -> int:
    return _most(run.trace.drop_duplicates("prompt_id")["domain"].tolist())


# ---- columns -------------------------------------------------------------------------------------


def _tokens(text: _Text) -> set[int]:
    """Every token id that a page can show of a run."""
    found = set(text.trace["token"].tolist()) | set(text.trace["target_top"].tolist())
    for ids in text.trace["top_draft_ids"]:
        found |= set(ids[:TOP].tolist())
    deeper = _deeper_nodes(text)
    return found if deeper is None else found | set(deeper["token"].tolist())


def _columns(text: _Text, used: list[int], details: bool) -> dict[str, np.ndarray]:
    trace = text.trace
    columns = {"draft_rank": _whole(trace["draft_rank"])}
    if text.temperature > 0 or details:
        columns["p_token"] = trace["p_token"].to_numpy(np.float32)
        columns["q_token"] = trace["q_token"].to_numpy(np.float32)
    if not details:
        return columns
    columns["token"] = _numbers(trace["token"], used)
    columns["target_top"] = _numbers(trace["target_top"], used)
    columns["overlap"] = _shares(trace["overlap"])
    columns["target_margin"] = _shares(trace["target_margin"])
    columns["target_entropy"] = _nats(trace["target_entropy"])
    columns["draft_entropy"] = _nats(trace["draft_entropy"])
    none = len(used)  # where the draft can say fewer
    best = _padded(trace["top_draft_ids"], -1)
    known = best >= 0
    numbered = _numbers(np.where(known, best, used[0]).ravel(), used).reshape(
        best.shape
    )
    columns["top_draft_ids"] = _whole(np.where(known, numbered, none)).ravel()
    columns["top_draft_q"] = _shares(_padded(trace["top_draft_q"], 0.0)).ravel()
    columns["top_draft_p"] = _shares(_padded(trace["top_draft_p"], 0.0)).ravel()
    return columns


def _node_columns(text: _Text, used: list[int]) -> dict[str, np.ndarray] | None:
    """The recorded trees below their first level, which is among the draft's best tokens."""
    deeper = _deeper_nodes(text)
    if deeper is None:
        return None
    return {
        "node_token": _numbers(deeper["token"], used),
        "node_q": _shares(deeper["draft_prob"]),
        "node_p": _shares(deeper["target_prob"]),
    }


def _recorded_shape(run: Run) -> list[int]:
    tree = _recorded_tree(run)
    profile = run.manifest["profile"]
    return [profile["depth"], profile["branches"], tree.size]


def _recorded_tree(run: Run) -> Tree:
    profile = run.manifest["profile"]
    return static_tree(profile["depth"], profile["branches"], profile["budget"])


def _deeper_nodes(text: _Text) -> pd.DataFrame | None:
    """Nodes of depth 2 and more, in the order of the trace's rows; None where none were recorded,
    or not the tree that the profile names.
    """
    tree, nodes = _recorded_tree(text.run), text.run.nodes
    number = pd.Series(range(len(text.prompt)), index=text.prompt)
    rows = nodes.assign(number=nodes["prompt_id"].map(number)).dropna(subset=["number"])
    rows = rows.sort_values(["number", "position", "node"])
    whole = len(rows) == len(text.trace) * tree.size
    if tree.max_depth < 2 or not whole:
        return None
    shape = rows[["parent", "rank"]].to_numpy().reshape(-1, tree.size, 2)
    if not (shape == np.stack([tree.parent[1:], tree.rank[1:]], axis=-1)).all():
        return None
    return rows[rows["depth"] > 1]


def _whole(values) -> np.ndarray:
    """Integers from 0 in two bytes, or in four where one does not fit."""
    numbers = np.asarray(values, np.int64)
    return numbers.astype(np.uint16 if numbers.max() < 1 << 16 else np.uint32)


def _numbers(tokens, used: list[int]) -> np.ndarray:
    """Places of token ids in `used`."""
    return _whole(np.searchsorted(used, np.asarray(tokens)))


def _shares(values) -> np.ndarray:
    parts = np.rint(np.asarray(values, float) * SHARES)
    return np.clip(np.nan_to_num(parts), 0, SHARES).astype(np.uint16)


def _nats(values) -> np.ndarray:
    parts = np.rint(np.asarray(values, float) * NATS)
    return np.clip(np.nan_to_num(parts), 0, SHARES).astype(np.uint16)


def _padded(lists: pd.Series, fill: float) -> np.ndarray:
    """The first TOP of each list, [positions, TOP]."""
    table = np.full((len(lists), TOP), fill)
    for row, values in zip(table, lists, strict=True):
        row[: min(TOP, len(values))] = values[:TOP]
    return table


def _string(strings: Mapping[int, str] | Sequence[str] | None, token: int) -> str:
    if strings is None:
        return f"#{token}"
    text = strings[token]
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


# ---- bytes ---------------------------------------------------------------------------------------


def _layout(header: dict, columns: Mapping[str, np.ndarray]) -> bytes:
    places, parts, offset = {}, [], 0
    for name, values in columns.items():
        content = np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes()
        places[name] = [str(values.dtype), offset, len(values)]
        filled = content + b"\0" * (-len(content) % ALIGNED)
        parts.append(filled)
        offset += len(filled)
    text = json.dumps(header | {"columns": places}, separators=(",", ":")).encode(
        "ascii"
    )
    text += b" " * (-(len(text) + 4) % ALIGNED)
    return len(text).to_bytes(4, "little") + text + b"".join(parts)
