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
from pathlib import PurePath
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from speclab import copying, replay, stats
from speclab.study.prompts import Prompt
from speclab.study.runs import Run
from speclab.tree import static_tree

TOP = 5  # of the draft's best tokens, at every position
LONGEST = 16  # drafted tokens of the page's longest block
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


def pack_runs(
    runs: Sequence[Run],
    strings: Mapping[int, str] | Sequence[str] | None = None,
    prompts: Sequence[Prompt] = (),
    per_domain: int | None = None,
    encoded: Mapping[str, Sequence[int]] | None = None,
    second: Sequence[Run] = (),
) -> Packed:
    """One or two runs of a pair: of greedy text (T = 0), of text sampled at a temperature, or one
    of each.

    strings: the text of each token id (None: the page shows the ids). prompts: those of the runs
    that are known. per_domain: only this many first prompts of each domain. encoded: the token ids
    of each prompt, with which greedy text also says what a lookup would copy. second: runs of
    another draft over the same texts. ValueError for other runs, of two pairs or other prompts, or
    of a trace that cannot be replayed, and for a second draft's run over other texts.
    """
    _check(runs)
    check_second(runs, second)
    texts = [_in_order(run, per_domain) for run in [*runs, *second]]
    names = draft_names(runs, second)
    used = _token_ids(texts)
    columns: dict[str, np.ndarray] = {}
    for number, text in enumerate(texts):
        made = _columns(text, used)
        if encoded and text.profile["temperature"] == 0:
            made |= _copies(text.trace, encoded)
        columns |= {f"{number}.{name}": made[name] for name in made}
    # what the page says of the runs, their prompts and their tokens
    about = [_about(text, name) for text, name in zip(texts, names, strict=True)]
    shown = {name for facts in about for name in facts["prompt"]}
    words = {one.prompt_id: one.text for one in prompts if one.prompt_id in shown}
    said = [f"#{token}" for token in used]
    if strings:
        said = [strings[token] for token in used]
    sizes = [_largest_domain(one.trace) for one in (texts[0], runs[0])]
    header = {
        "ids": used,
        "strings": said,
        "prompts": words,
        "top": TOP,
        "runs": about,
        "shown": sizes[0],
        "recorded": sizes[1],
    }
    raw = gzip.compress(_layout(header, columns), 9, mtime=0)
    return Packed(base64.b64encode(raw).decode(), *sizes)


# ---- rows ----------------------------------------------------------------------------------------


def _largest_domain(trace: pd.DataFrame) -> int:
    """How many prompts the domain with most prompts has."""
    prompts = trace.groupby("domain")["prompt_id"].nunique()
    return int(prompts.max())


def _check(runs: Sequence[Run]) -> None:
    sampled = {run.manifest["profile"]["temperature"] > 0 for run in runs}
    pairs = {str((run.manifest["weights"], run.manifest["prompt_set"])) for run in runs}
    if len(runs) != len(sampled) or len(pairs) != 1:
        folders = ", ".join(str(run.folder) for run in runs)
        raise ValueError(
            f"runs {folders}: give one run, or one of greedy text (temperature 0) and one of "
            "sampled text, both of one pair and of the same prompts"
        )


def draft_names(runs: Sequence[Run], second: Sequence[Run]) -> list[str]:
    """The name of each run's draft, the last part of its path; with the number of the draft where
    two drafts have one name.
    """
    drafts = [run.manifest["profile"]["draft"]["path"] for run in [*runs, *second]]
    names = [PurePath(path).name for path in drafts]
    if not second or names[0] != names[-1]:
        return names
    numbers = [1] * len(runs) + [2] * len(second)
    return [f"{names[0]} {number}" for number in numbers]


def check_second(runs: Sequence[Run], second: Sequence[Run]) -> None:
    """ValueError unless each run of `second` has another draft, and the target, prompts and token
    ids of the run at its temperature.
    """
    firsts = {run.manifest["profile"]["temperature"]: run for run in runs}
    for run in second:
        first = firsts.pop(run.manifest["profile"]["temperature"], None)
        if first is None or not _is_second_draft(first, run):
            raise ValueError(
                f"second draft, run {run.folder}: it needs another draft, and the target, the "
                "prompts and the very texts of a run of the page at its temperature. Record it "
                "with the settings of that run"
            )


def _is_second_draft(first: Run, run: Run) -> bool:
    own, its = (one.manifest["weights"] for one in (first, run))
    if own["target"] != its["target"] or own["draft"] == its["draft"]:
        return False
    if first.manifest["prompt_set"] != run.manifest["prompt_set"]:
        return False
    by = ["prompt_id", "position"]
    texts, others = (one.trace[[*by, "token"]].sort_values(by) for one in (first, run))
    return np.array_equal(texts.to_numpy(), others.to_numpy())


def _in_order(run: Run, per_domain: int | None) -> _Text:
    replay.replay(run.trace, LONGEST)  # its checks: columns, positions, ranks
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
    is_whole = len(nodes) == len(rows) * size
    deeper = nodes[is_whole & (nodes["depth"] > 1)]
    return _Text(profile, rows, deeper)


def _shape(profile: dict) -> list[int]:
    """Depth, branches and size of the recorded trees."""
    depth, branches = profile["depth"], profile["branches"]
    tree = static_tree(depth, branches, profile["budget"])
    return [depth, branches, tree.size]


def _about(text: _Text, draft: str) -> dict[str, Any]:
    """What the page is told of a run. `ahead`: tokens of a head's lists, 0 without lists. `tree`:
    the shape of its trees; null unless whole trees were recorded.
    """
    prompts = text.trace.groupby("prompt_id", observed=True)
    domains = prompts["domain"].first()
    # quantiles of an interval, by domain; null where there are too few prompts
    levels = {
        name: stats.levels_of(size).tolist() if size >= stats.MIN_PROMPTS else None
        for name, size in domains.value_counts(sort=False).items()
    }
    return {
        "draft": draft,
        "ahead": _ahead(text.trace),
        "tree": _shape(text.profile) if len(text.deeper) else None,
        "temperature": float(text.profile["temperature"]),
        "prompt": list(prompts.groups),
        "domain": domains.tolist(),
        "length": prompts.size().tolist(),
        "levels": levels,
    }


def _ahead(trace: pd.DataFrame) -> int:
    if "block_ranks" not in trace:
        return 0
    lengths = trace["block_ranks"].map(len)
    return int(lengths.max())


# ---- columns -------------------------------------------------------------------------------------


def _token_ids(texts: Sequence[_Text]) -> list[int]:
    """Every token id that a page can show of the runs, in order."""
    columns = [_padded(text.trace["top_draft_ids"], -1) for text in texts]
    for text in texts:
        columns += [text.trace["token"], text.trace["target_top"], text.deeper["token"]]
    ids = np.unique(np.concatenate(columns)).astype(int)
    return ids[ids >= 0].tolist()


def _columns(text: _Text, used: list[int]) -> dict[str, np.ndarray]:
    """The columns of a run: what the replay needs exactly, then what is only shown."""
    trace, deeper = text.trace, text.deeper
    columns = {"draft_rank": _whole(trace["draft_rank"])}
    for name in ("p_token", "q_token"):
        columns[name] = trace[name].to_numpy(np.float32)
    if ahead := _ahead(trace):
        columns["block_ranks"] = _whole(_padded(trace["block_ranks"], 0, ahead))
        q = _padded(trace["block_q"], 0.0, ahead)
        if text.profile["temperature"] > 0:
            columns["block_q"] = q.astype(np.float32)
        else:  # only shown; 0 only where the draft cannot say the token
            columns["block_q"] = np.maximum(_parts(q), q > 0)
    for name in ("token", "target_top"):
        columns[name] = _whole(np.searchsorted(used, trace[name]))
    for name, of_one in DETAILS.items():
        columns[name] = _parts(trace[name], of_one)
    # one more than there are where the draft can say fewer
    best = _padded(trace["top_draft_ids"], -1)
    places = np.searchsorted(used, best)
    places[best < 0] = len(used)
    columns["top_draft_ids"] = _whole(places)
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
    columns = map(np.concatenate, zip(*found, strict=True))
    return dict(zip(("matched", "copied"), map(_whole, columns), strict=True))


def _whole(values: ArrayLike) -> np.ndarray:
    """Integers from 0 in two bytes, or in four where one does not fit."""
    numbers = np.asarray(values, np.int64)
    kind = np.uint16 if numbers.max() <= MOST else np.uint32
    return numbers.astype(kind)


def _parts(values: ArrayLike, of_one: int = MOST) -> np.ndarray:
    """Numbers as whole parts of one, in two bytes."""
    parts = np.rint(np.asarray(values, float) * of_one)
    return np.clip(np.nan_to_num(parts), 0, MOST).astype(np.uint16)


def _padded(lists: pd.Series, fill: float, count: int = TOP) -> np.ndarray:
    """The first `count` of each list, one list after the other."""
    table = pd.DataFrame(lists.tolist()).reindex(columns=range(count))
    return table.fillna(fill).to_numpy().ravel()


# ---- bytes ---------------------------------------------------------------------------------------


def _layout(header: dict, columns: Mapping[str, np.ndarray]) -> bytes:
    places = {}
    offsets: dict[bytes, int] = {}  # runs over the same texts share columns
    body = b""
    for name, values in columns.items():
        content = values.tobytes()
        if content not in offsets:
            offsets[content] = len(body)
            filling = -len(content) % ALIGNED
            body += content + b"\0" * filling
        places[name] = [str(values.dtype), offsets[content], len(values)]
    text = json.dumps(header | {"columns": places}, separators=(",", ":"))
    filling = -(len(text) + 4) % ALIGNED
    text += " " * filling
    length = len(text).to_bytes(4, "little")
    return length + text.encode("ascii") + body
