"""The acceptance of a recorded run under the names that other engines print, and their numbers
beside it.

What an engine calls what stands in data/engines/names.yaml: a name is bound to one of the figures
below, so no engine has code of its own. The figures are counts of a replay (`speclab.replay`,
visited blocks) and the RATIOS of counts, pooled, by domain and by request (a prompt). The mean of
the requests' ratios is another number than the pooled ratio, which weights a request by its blocks.

The end of a text: a block that it cuts counts with the tokens accepted inside the text. `drafted`
are the tokens drafted inside it, `drafted_whole` those of the whole shape in every block, which is
what an engine counts that drafts past the end (vLLM, SGLang). Such an engine also counts what it
accepts behind the end; no trace tells that, and only the `truncated` blocks can differ by it.
"""

import csv
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from speclab import replay
from speclab.decode import check_rule
from speclab.draft import Shape, parse_shape
from speclab.profiles import ROOT
from speclab.runs import Run
from speclab.sampling import Sampling
from speclab.score import divide

NAMES = ROOT / "data" / "engines" / "names.yaml"
RATIOS = {  # each figure that is a quotient of counts: its parts
    "mean_accepted": ("accepted", "blocks"),
    "mean_accepted_and_bonus": ("accepted_and_bonus", "blocks"),
    "block_efficiency": ("emitted", "blocks"),
    "draft_utilisation": ("accepted", "drafted"),
    "draft_utilisation_whole": ("accepted", "drafted_whole"),
    "accepted_per_verified": ("accepted_and_bonus", "verified"),
    "survival_by_depth": ("accepted_by_depth", "blocks"),
    "accept_by_depth": ("accepted_by_depth", "reached_by_depth"),
}
EXACT = {
    "greedy": "exact: the counts of the greedy decoder on these prompts",
    "point-mass": "exact for these sampled texts, drafted by the draft's best tokens",
    "rejection": "an expectation: given these sampled texts, the mean over the decoder's random "
    "numbers; counts need not be whole",
}
SAYS = {
    "text_end": "a block cut by the text's end (`truncated`) has no bonus and counts with what it "
    "accepts inside the text; `drafted` ends there too, `drafted_whole` counts the whole shape, as "
    "vLLM and SGLang do, which also count what they accept behind the end: no trace tells that",
    "text_start": "the first block drafts the text's first token; a server takes that token from "
    "the prefill and drafts behind it",
    "by_depth": "entry d - 1 is depth d (of a tree: its level); survival_by_depth is joint, "
    "accept_by_depth conditional",
    "requests": "pooled: sums over all prompts before dividing; mean_of_requests: of the prompts' "
    "own figures, each prompt counting the same",
}
NUMBER = r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?"
SEVERAL = rf"{NUMBER}(?:,\s*{NUMBER})*"

Figures = dict[str, Any]  # by name: a number, or an array by depth


# ---- a run's figures -----------------------------------------------------------------------------


def metrics_of(
    run: Run, shape: str, rule: str | None = None, beside: Path | None = None
) -> dict[str, Any]:
    """What `python -m speclab metrics` prints: a run's figures for a shape, pooled, by domain and
    by request, under each engine's names, and a file's numbers beside them.

    rule: greedy, rejection or point-mass; None takes the one that goes with the run's temperature.
    ValueError for what does not go together and for a file of no known kind.
    """
    drafted, temperature = parse_shape(shape), run.manifest["profile"]["temperature"]
    rule = rule_for(drafted, temperature, rule)
    theirs = read_beside(beside) if beside else None
    sums = sums_of(run.trace, drafted, rule)
    found = summary(sums)
    head = {
        "run": run.folder.name,
        "temperature": temperature,
        "shape": shape,
        "rule": rule,
        "says": {"exact": EXACT[rule], **SAYS},
    }
    if theirs:
        head["beside"] = [set_beside(group, found) for group in theirs]
    return plain(head | {"engines": under_their_names(found)} | found)


def rule_for(shape: Shape, temperature: float, rule: str | None = None) -> str:
    """The rule that is replayed; ValueError unless shape, temperature and rule go together."""
    if shape.tree is None or not shape.size:
        raise ValueError(
            "a trace tells what a chain or a static tree accepts: allowed are chain:GAMMA and "
            "tree:DEPTH,BRANCHES[,BUDGET], not plain or dynamic shapes"
        )
    if rule is None:
        warm = "rejection" if shape.is_chain else "point-mass"
        rule = "greedy" if temperature == 0 else warm
    if rule not in replay.RULES:
        raise ValueError(
            f"rule={rule!r}: allowed are {', '.join(replay.RULES)}; no trace tells what another "
            "rule accepts"
        )
    check_rule(rule, shape, Sampling(temperature))
    return rule


def sums_of(trace: pd.DataFrame, shape: Shape, rule: str) -> pd.DataFrame:
    """Per-prompt sums of the visited blocks, with `drafted_whole`."""
    if rule == "rejection":
        blocks = replay.replay_sampled(trace, shape.size)
    else:
        blocks = replay.replay(trace, shape.tree)
    sums = replay.prompt_sums(blocks)
    return sums.assign(drafted_whole=sums["blocks"] * shape.size)


def summary(sums: pd.DataFrame) -> dict[str, Any]:
    """Figures of per-prompt sums: `pooled`, `mean_of_requests`, `by_domain`, `by_request`."""
    by_request = [figures(run_counts(sums.iloc[[row]])) for row in range(len(sums))]
    who = sums[["prompt_id", "domain"]].to_dict("records")
    by_domain = {}
    for domain, rows in sums.groupby("domain", sort=False, observed=True):
        of_domain = [by_request[row] for row in rows.index]
        by_domain[domain] = _both(rows, of_domain)
    return {
        **_both(sums, by_request),
        "by_domain": by_domain,
        "by_request": [
            name | found for name, found in zip(who, by_request, strict=True)
        ],
    }


def _both(sums: pd.DataFrame, by_request: list[Figures]) -> dict[str, Figures]:
    return {
        "pooled": figures(run_counts(sums)),
        "mean_of_requests": mean_figures(by_request),
    }


def run_counts(sums: pd.DataFrame) -> Figures:
    """Counts over prompts. `accepted_by_depth`: blocks that accepted at least d tokens;
    `blocks_by_accepted`: blocks that accepted exactly 0, 1, … tokens.
    """
    names = ["blocks", "drafted", "drafted_whole", "accepted", "emitted", "truncated"]
    total = {name: float(sums[name].sum()) for name in names}
    survival = [name for name in sums if str(name).startswith("survival_")]
    by_depth = sums[survival].sum().to_numpy(float)
    at_least = np.concatenate([[total["blocks"]], by_depth, [0.0]])
    return {
        **total,
        "accepted_by_depth": by_depth,
        "blocks_by_accepted": -np.diff(at_least),
    }


def figures(known: Mapping[str, Any]) -> Figures:
    """Known counts and the RATIOS that follow from them; NaN: nothing to divide by."""
    parts, blocks = dict(known), known.get("blocks")
    if blocks is not None and "accepted" in known:
        parts["accepted_and_bonus"] = known["accepted"] + blocks
    if blocks is not None and "drafted_whole" in known:
        parts["verified"] = known["drafted_whole"] + blocks
    if blocks is not None and "accepted_by_depth" in known:
        reached = np.append(blocks, known["accepted_by_depth"])
        parts["reached_by_depth"] = reached[:-1]
    ratios = {
        name: divide(parts[above], parts[below])
        for name, (above, below) in RATIOS.items()
        if above in parts and below in parts
    }
    return {**known, **ratios}


def mean_figures(requests: list[Figures]) -> Figures:
    """The mean of each figure over the requests where it is defined."""
    found = {}
    for name in requests[0]:
        values = np.stack([request[name] for request in requests])
        defined = ~np.isnan(values)
        found[name] = divide(np.where(defined, values, 0).sum(0), defined.sum(0))
    return found


# ---- the engines' names --------------------------------------------------------------------------


def groups() -> list[dict[str, Any]]:
    """The groups of data/engines/names.yaml, in its order."""
    return yaml.safe_load(NAMES.read_text(encoding="utf-8"))


def value_of(found: Figures, figure: str | None) -> Any:
    """A figure as names.yaml writes it: `name`, `name[d]` (from 1), either with ` %`; None where
    it is not known.
    """
    name, index, percent = re.fullmatch(
        r"(\w+)(?:\[(\d+)\])?( %)?", figure or "none"
    ).groups()
    value = found.get(name)
    if value is None:
        return None
    if index:
        value = value[int(index) - 1]
    return value * 100 if percent else value


def ours_for(group: Mapping[str, Any], found: Mapping[str, Any]) -> Figures:
    """Our figures that a group's are: pooled, or for requests the mean of requests."""
    return found["mean_of_requests" if group["of"] == "request" else "pooled"]


def under_their_names(found: Mapping[str, Any]) -> dict[str, dict]:
    """The run's figures by engine, place and its name there."""
    named: dict[str, dict] = {}
    for group in groups():
        place = f"{group['where']} ({group['of']})"
        named.setdefault(group["engine"], {})[place] = {
            name: value_of(ours_for(group, found), figure)
            for name, figure in group["names"].items()
        }
    return named


# ---- beside: numbers of other engines ------------------------------------------------------------


def read_beside(file: Path) -> list[dict[str, Any]]:
    """The groups of names.yaml that a file holds, each with `theirs`, {its name: number or array}.

    ValueError, in a line, when it holds none, or none with numbers.
    """
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ValueError(
            f"--beside {file} cannot be read ({error.strerror or error}); name a log, an export or "
            "a result file of another engine"
        ) from None
    known = [group for group in groups() if "mark" in group]
    marked = [group for group in known if group["mark"] in text]
    if not marked:
        kinds = sorted({f"{group['engine']} {group['mark']!r}" for group in known})
        raise ValueError(
            f"{file}: of no known kind; allowed are files that hold one of these words: "
            f"{', '.join(kinds)}"
        )
    try:
        read = [
            group | {"theirs": READERS[group["read"]](text, group)} for group in marked
        ]
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        RecursionError,
    ) as error:
        kind = f"{marked[0]['engine']}, {marked[0]['where']}"
        reason = f"{type(error).__name__}: {error}"
        raise ValueError(f"{file} looks like {kind}, but is broken: {reason}") from None
    full = [group for group in read if group["theirs"]]
    if not full:
        names = ", ".join(name for group in marked for name in group["names"])
        raise ValueError(f"{file}: no number behind any of the names {names}")
    return [group | {"lines": text.count(group["mark"])} for group in full]


def read_log(text: str, group: Mapping[str, Any]) -> Figures:
    """Numbers behind (`name: 1.5`, `name = (0.5, 0.2)`) or before (`7 name`) each name, in the last
    line that holds the mark.
    """
    line = [line for line in text.splitlines() if group["mark"] in line][-1]
    found = {}
    for name in group["names"]:
        word = re.escape(name)
        match = re.search(rf"{word}\s*[:=]\s*\(?\s*({SEVERAL})", line)
        match = match or re.search(rf"({NUMBER})\s+{word}\b", line)
        if match:
            found[name] = _numbers(match[1])
    return found


def _numbers(text: str) -> float | np.ndarray:
    values = [float(number) for number in text.split(",")]
    return values[0] if len(values) == 1 else np.array(values)


def read_prometheus(text: str, group: Mapping[str, Any]) -> Figures:
    """Counters, summed over all labels but `position`, whose values stand in its order."""
    found: dict[str, Any] = {}
    for line in text.splitlines():
        match = re.fullmatch(rf"([\w:]+?)(?:_total)?(\{{.*\}})?\s+({NUMBER})", line)
        if not match or match[1] not in group["names"]:
            continue
        name, labels, value = match[1], match[2] or "", float(match[3])
        position = re.search(r'position="(\d+)"', labels)
        if position:
            place = int(position[1])
            by_position = found.setdefault(name, {})
            by_position[place] = by_position.get(place, 0.0) + value
        else:
            found[name] = found.get(name, 0.0) + value
    return {
        name: _in_order(value) if isinstance(value, dict) else value
        for name, value in found.items()
    }


def _in_order(values: Mapping[Any, float]) -> np.ndarray:
    """{0: a, 2: b} as [a, 0, b]."""
    by_place = {int(place): float(value) for place, value in values.items()}
    return np.array([by_place.get(place, 0.0) for place in range(max(by_place) + 1)])


def read_export(text: str, group: Mapping[str, Any]) -> Figures:
    """Of each metric its `avg`, or of a histogram its counts."""
    data, found = json.loads(text), {}
    for name in group["names"]:
        value = data.get(name)
        if isinstance(value, dict) and "avg" in value:
            found[name] = float(value["avg"])
        elif isinstance(value, dict) and value:
            found[name] = _in_order(value)
    return found


def read_csv(text: str, group: Mapping[str, Any]) -> Figures:
    """The first number of each metric's row: `avg`, or the only one."""
    rows = {row[0]: row[1] for row in csv.reader(text.splitlines()) if len(row) > 1}
    return {name: float(rows[name]) for name in group["names"] if rows.get(name)}


def read_lengths(text: str, group: Mapping[str, Any]) -> Figures:
    """The mean of `accept_lengths` over all steps of the first choices of JSON lines."""
    answers = [json.loads(line) for line in text.splitlines() if line.strip()]
    lengths = [
        float(length)
        for answer in answers
        for length in answer["choices"][0]["accept_lengths"]
    ]
    return {name: float(np.mean(lengths)) for name in group["names"] if lengths}


READERS: dict[str, Callable[[str, Mapping[str, Any]], Figures]] = {
    "log": read_log,
    "prometheus": read_prometheus,
    "json": read_export,
    "csv": read_csv,
    "lengths": read_lengths,
}


def set_beside(group: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """One group of a file: each of its names with the figure it is, theirs and ours; of pooled
    counts also the ratios that follow.
    """
    ours, theirs, names = ours_for(group, found), group["theirs"], group["names"]
    rows = {
        name: {
            "is": names[name],
            "theirs": value,
            "ours": value_of(ours, names[name]),
        }
        for name, value in theirs.items()
    }
    read = {names[name]: value for name, value in theirs.items()}
    if group["of"] != "request":
        rows |= {
            figure: {"is": figure, "theirs": value, "ours": ours[figure]}
            for figure, value in figures(read).items()
            if figure in RATIOS and figure not in read
        }
    place = {key: group[key] for key in ("engine", "where", "of")}
    if group["read"] == "log":
        place["read"] = f"the last of {group['lines']} such lines"
    missing = [name for name in names if name not in theirs]
    return {**place, "figures": rows, "not_in_file": missing}


def plain(value: Any) -> Any:
    """The same as JSON takes it: arrays as lists, 6 decimals, null where undefined."""
    if isinstance(value, dict):
        return {str(key): plain(inside) for key, inside in value.items()}
    if isinstance(value, list | np.ndarray) and np.ndim(value):
        return [plain(inside) for inside in value]
    if isinstance(value, int | float | np.number | np.ndarray):
        number = float(value)
        if np.isnan(number):
            return None
        return int(number) if number.is_integer() else round(number, 6)
    return value
