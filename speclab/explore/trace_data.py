"""Recorded runs as a few compact columns, for the page that replays them in a browser.

The replay's numbers are exact: draft ranks are integers, and p and q of the text's tokens are the
recorded float32 numbers. Numbers that are only shown are rounded: other probabilities to 1/65535,
entropies to 0.001 nats. `assets/data.js` reads this layout: four bytes with the length of a JSON
header; the header, padded to a multiple of 8, whose offsets count from its own end; then the
columns, each at a multiple of 8. All of it is little-endian, gzipped and in base64.
"""

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from speclab import copying, replay, stats
from speclab.prompts import Prompt
from speclab.runs import Run
from speclab.tree import static_tree

TOP = 5  # of the draft's best tokens, at every position
MOST = 65535  # the largest number of two bytes: a probability is kept in parts of 1/65535
NATS = 1000  # an entropy is kept in parts of 1/1000 nat
# columns that are shown, and the number of parts of 1
DETAILS = {"overlap": MOST, "target_margin": MOST, "target_entropy": NATS, "draft_entropy": NATS}
ALIGNED = 8  # bytes


@dataclass(frozen=True)
class Packed:
    """Runs as one string, and how many prompts it has."""

    base64: str
    prompts: int  # packed prompts of the largest domain
    recorded: int  # recorded prompts of the largest domain


@dataclass(frozen=True)
class _Text:
    """A run's rows in order: prompts as they first appear, positions from 0. `deeper`: its nodes of
    depth 2 and more in the order of the rows, empty unless whole trees were recorded.
    """

    profile: dict
    trace: pd.DataFrame
    deeper: pd.DataFrame
    recorded: int  # prompts of the largest domain


def pack_runs(
    runs: Sequence[Run],
    strings: Mapping[int, str] | Sequence[str] | None = None,
    prompts: Sequence[Prompt] = (),
    details: bool = True,
    per_domain: int | None = None,
    encoded: Mapping[str, Sequence[int]] | None = None,
) -> Packed:
    """One or two runs of a pair: of greedy text (T = 0), of text sampled at a temperature, or one
    of each.

    strings: the text of each token id (None: the page shows the ids). prompts: those of the runs
    that are known. details: the texts, and facts of a token that the replay does not need
    (the draft's best tokens, entropies, drawn trees). per_domain: only this many first prompts
    of each domain. encoded: the token ids of each prompt, with which greedy text also says what a
    lookup would copy. ValueError for other runs, of two pairs or other prompts, or of a trace that
    cannot be replayed.
    """
    _check(runs)
    texts = [_in_order(run, per_domain) for run in runs]
    used = _token_ids(texts) if details else []
    shapes = [_shape(text.profile) for text in texts if details and len(text.deeper)]
    columns = {}
    for number, text in enumerate(texts):
        made = _columns(text, used, details)
        if encoded and text.profile["temperature"] == 0:
            made |= _copies(text.trace, encoded)
        for name, values in made.items():
            columns[f"{number}.{name}"] = values
    about = [_about(text) for text in texts]
    shown = {name for facts in about for name in facts["prompt"]}
    profile = texts[0].profile
    header = {"pair": profile["name"], "description": profile.get("description") or ""}
    header["ids"] = used
    header["strings"] = [strings[token] if strings else f"#{token}" for token in used]
    header["prompts"] = {p.prompt_id: p.text for p in prompts if p.prompt_id in shown}
    header["top"] = TOP if details else 0
    header["tree"] = shapes[-1] if shapes else None
    header["runs"] = about
    raw = gzip.compress(_layout(header, columns), 9, mtime=0)
    shown_prompts = max(_prompts_per_domain(text.trace) for text in texts)
    recorded = max(text.recorded for text in texts)
    return Packed(base64.b64encode(raw).decode(), shown_prompts, recorded)


# ---- rows ----------------------------------------------------------------------------------------


def _check(runs: Sequence[Run]) -> None:
    facts = [run.manifest for run in runs]
    sampled = {one["profile"]["temperature"] > 0 for one in facts}
    read = {str((one["weights"], one["prompt_set"])) for one in facts}
    if len(runs) != len(sampled) or len(read) != 1:
        folders = ", ".join(str(run.folder) for run in runs)
        raise ValueError(
            f"runs {folders}: give one run, or one of greedy text (temperature 0) and one of "
            "sampled text, both of one pair and of the same prompts"
        )


def _in_order(run: Run, per_domain: int | None) -> _Text:
    replay.replay(run.trace, 1)  # its checks: columns, positions, ranks
    firsts = run.trace.drop_duplicates("prompt_id")
    if per_domain is not None:
        firsts = firsts.groupby("domain").head(per_domain)
    order = pd.CategoricalDtype(firsts["prompt_id"], ordered=True)

    def ordered(rows: pd.DataFrame, *by: str) -> pd.DataFrame:
        known = rows.astype({"prompt_id": order}).dropna(subset=["prompt_id"])
        return known.sort_values(["prompt_id", "position", *by])

    rows = ordered(run.trace)
    nodes = ordered(run.nodes, "node")
    profile = run.manifest["profile"]
    *_, size = _shape(profile)
    whole = len(nodes) == len(rows) * size
    deeper = nodes[whole & (nodes["depth"] > 1)]
    return _Text(profile, rows, deeper, _prompts_per_domain(run.trace))


def _prompts_per_domain(trace: pd.DataFrame) -> int:
    """Prompts of the domain that has most."""
    return int(trace.groupby("domain")["prompt_id"].nunique().max())


def _shape(profile: dict) -> list[int]:
    """Depth, branches and size of the recorded trees."""
    depth, branches = profile["depth"], profile["branches"]
    tree = static_tree(depth, branches, profile["budget"])
    return [depth, branches, tree.size]


def _about(text: _Text) -> dict[str, Any]:
    """What the page is told of a run."""
    prompts = text.trace.groupby("prompt_id", observed=True)
    domains = prompts["domain"].first()
    sizes = domains.value_counts(sort=False)
    return {
        "temperature": float(text.profile["temperature"]),
        "prompt": list(prompts.groups),
        "domain": domains.tolist(),
        "length": prompts.size().tolist(),
        # of an interval, by domain; null where there are too few prompts
        "levels": {name: _levels(size) for name, size in sizes.items()},
    }


def _levels(prompts: int) -> list[float] | None:
    return stats.levels_of(prompts).tolist() if prompts >= stats.MIN_PROMPTS else None


# ---- columns -------------------------------------------------------------------------------------


def _token_ids(texts: Sequence[_Text]) -> list[int]:
    """Every token id that a page can show of the runs, in order."""
    columns = []
    for text in texts:
        columns += [text.trace["token"], text.trace["target_top"], text.deeper["token"]]
        columns.append(_padded(text.trace["top_draft_ids"], -1))
    ids = np.unique(np.concatenate(columns)).astype(int)
    return ids[ids >= 0].tolist()


def _columns(text: _Text, used: list[int], details: bool) -> dict[str, np.ndarray]:
    trace = text.trace
    deeper = text.deeper
    columns = {"draft_rank": _whole(trace["draft_rank"])}
    if text.profile["temperature"] > 0 or details:
        for name in ("p_token", "q_token"):
            columns[name] = trace[name].to_numpy(np.float32)
    if not details:
        return columns
    for name in ("token", "target_top"):
        columns[name] = _whole(np.searchsorted(used, trace[name]))
    for name, of_one in DETAILS.items():
        columns[name] = _parts(trace[name], of_one)
    best = _padded(trace["top_draft_ids"], -1)
    places = np.searchsorted(used, best)
    # one more than there are where the draft can say fewer
    columns["top_draft_ids"] = _whole(np.where(best < 0, len(used), places))
    for name in ("top_draft_q", "top_draft_p"):
        columns[name] = _parts(_padded(trace[name], 0.0))
    # the first level of the trees is among the draft's best tokens
    if len(deeper):
        columns["node_token"] = _whole(np.searchsorted(used, deeper["token"]))
        columns["node_q"] = _parts(deeper["draft_prob"])
        columns["node_p"] = _parts(deeper["target_prob"])
    return columns


def _copies(trace: pd.DataFrame, encoded: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """At each position, how many of the last tokens stood before, and how many copied tokens are
    the text's (`copying.replayed`).
    """
    texts = trace.groupby("prompt_id", observed=True)["token"]
    found = [copying.replayed(encoded[prompt], tokens) for prompt, tokens in texts]
    matched, copied = (np.concatenate(column) for column in zip(*found, strict=True))
    return {"matched": _whole(matched), "copied": _whole(copied)}


def _whole(values: ArrayLike) -> np.ndarray:
    """Integers from 0 in two bytes, or in four where one does not fit."""
    numbers = np.asarray(values, np.int64)
    kind = np.uint16 if numbers.max() <= MOST else np.uint32
    return numbers.astype(kind)


def _parts(values: ArrayLike, of_one: int = MOST) -> np.ndarray:
    """Numbers as whole parts of one, in two bytes."""
    parts = np.rint(np.asarray(values, float) * of_one)
    return np.clip(np.nan_to_num(parts), 0, MOST).astype(np.uint16)


def _padded(lists: pd.Series, fill: float) -> np.ndarray:
    """The first TOP of each list, one list after the other."""
    table = pd.DataFrame(lists.tolist()).reindex(columns=range(TOP))
    return table.fillna(fill).to_numpy().ravel()


# ---- bytes ---------------------------------------------------------------------------------------


def _layout(header: dict, columns: Mapping[str, np.ndarray]) -> bytes:
    places = {}
    body = b""
    for name, values in columns.items():
        content = values.astype(values.dtype.newbyteorder("<")).tobytes()
        places[name] = [str(values.dtype), len(body), len(values)]
        body += content + b"\0" * (-len(content) % ALIGNED)
    text = json.dumps(header | {"columns": places}, separators=(",", ":"))
    text += " " * (-(len(text) + 4) % ALIGNED)
    return len(text).to_bytes(4, "little") + text.encode("ascii") + body
