"""`make readme`: every number of README.md, written between marks from measured files; a test holds
both equal.

* figures/PAIR/measured.json, for each pair of PAIRS: seconds of each notebook, of a call that ran
  all of them, and of one recording, collected here from build/ and data/runs (where a run or a
  trace of it is);
* figures/PAIR/03_ladder-values.csv and 03_loop-share.csv: what notebook 03 found on the pair;
* figures/tiny/bench.json: what `make bench` measured, collected here from build/bench.json.

GLOSSARY.md has one such block, other engines' names, from data/engines/names.yaml.
"""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from speclab.ops.report import CALL
from speclab.plain import read_json
from speclab.profiles import ROOT, load_profile, profile_names
from speclab.prompts import DOMAINS

PAIRS = ("smollm", "tiny")  # those whose figures are committed
ALONE = "from_traces"  # of measured.json: seconds where the models are not there
MARKS = re.compile(r"(<!-- (\w+): by `make readme` -->\n).*?(<!-- /\2 -->)", re.DOTALL)


# ---- collect -------------------------------------------------------------------------------------


def collect(root: Path = ROOT, profile: str = "tiny") -> dict[str, Any]:
    """What the last `make reproduce` of a profile measured: seconds by notebook and of the last
    call that ran all of them, and of the greedy recording seconds, positions and peak bytes.

    ValueError if a notebook has not been run, or failed.
    """
    build, do = root / "build" / profile, f"call `make reproduce PROFILE={profile}`"
    seconds = seconds_of(build)
    names = [path.stem for path in sorted((root / "notebooks").glob("[0-9]*.ipynb"))]
    for name in names:
        if name not in seconds:
            raise ValueError(f"{name} has no finished run: {do} first")
    return {
        "seconds": seconds,
        "call_s": call_seconds(build, names),
        "recording": _recording(root, profile),
    }


def call_seconds(build: Path, names: list[str]) -> int | None:
    """Seconds of the last call that ran just these notebooks; None where none did."""
    path = build / CALL
    if not path.is_file():
        return None
    facts = read_json(path, "call `make reproduce` again")
    return round(facts["seconds"]) if facts["notebooks"] == names else None


def seconds_of(build: Path) -> dict[str, int]:
    """Seconds of each notebook that is done, by name."""
    found = {}
    for path in sorted(build.glob("[0-9]*.json")):
        stamp = read_json(path, "call `make reproduce` again")
        if stamp["status"] == "done":
            found[path.stem] = round(stamp["seconds"])
    return found


def _recording(root: Path, profile: str) -> dict[str, Any]:
    own = (root / "data" / "runs").glob(f"{profile}-greedy-*/manifest.json")
    shipped = (root / "data" / "traces" / profile).glob("greedy/manifest.json")
    found = sorted([*own, *shipped], key=lambda path: path.stat().st_mtime)
    if not found:
        raise ValueError(
            f"no greedy run of {profile}: call `make reproduce PROFILE={profile}` first"
        )
    manifest = read_json(found[-1], "record this run again")
    return {
        "time_s": round(manifest["time_s"], 1),
        "positions": manifest["rows"]["trace"],
        "peak_bytes": manifest["peak_bytes"]["process"],
    }


# ---- the blocks ----------------------------------------------------------------------------------


def written_blocks(
    measured: Mapping[str, Any], bench: Mapping[str, Any], root: Path = ROOT
) -> dict[str, str]:
    """The text of every marked block, by name; `measured`: by pair."""
    recordings = {pair: found["recording"] for pair, found in measured.items()}
    return {
        "notebooks": notebooks_table(measured),
        "pairs": pairs_table(root),
        "recorder": recorder_table(bench["recorder"]),
        "decoder": decoder_table(bench["decoder"]),
        "bars": bars_table(bench["bars"]),
        "profiles": profiles_table(recordings),
    }


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def notebooks_table(measured: Mapping[str, Any]) -> str:
    """One row a notebook, with the question of its title and its seconds by pair, and a line with
    the sums.
    """
    columns = {
        "smollm": measured["smollm"]["seconds"],
        "alone": measured["smollm"].get(ALONE, {}),
        "tiny": measured["tiny"]["seconds"],
    }
    rows = []
    for name in columns["tiny"]:
        source = (ROOT / "notebooks" / f"{name}.py").read_text(encoding="utf-8")
        title = re.search(r"^# # \d+\. (.+)$", source, re.MULTILINE)[1]
        label = name.replace("_", " ")
        spent = [str(seconds.get(name, "")) for seconds in columns.values()]
        rows.append([f"[{label}](notebooks/{name}.ipynb)", title, *spent])
    calls = [
        f"{pair['call_s'] / 60:.0f} minutes on `{name}`"
        for name, pair in measured.items()
        if pair.get("call_s")
    ]
    header = ["notebook", "question", "`smollm`, s", "its traces alone, s", "`tiny`, s"]
    return (
        f"{markdown_table(header, rows)}\nAll of them in a first call, two at a time on 2 CPU "
        f"cores: {', '.join(calls)}; the seconds of a notebook hold what it waited for others.\n"
        "The first call on `smollm` also trains the drafts of notebook 08.\n"
    )


# ---- the pairs side by side ----------------------------------------------------------------------

SIDE_BY_SIDE = (  # rows of notebook 03's ladder: estimator, text
    ("published_alpha", "T = 0"),
    ("hit[1]", "T = 0"),
    ("hit[2]", "T = 0"),
    ("alpha", "T = 1"),
    ("published_length", "T = 0"),
    ("block_efficiency", "T = 0"),
    ("block_efficiency", "T = 1"),
)


def pairs_table(root: Path = ROOT) -> str:
    """The main estimators of each pair with committed figures, and what the paper published."""
    found = {pair: _ladder(root / "figures" / pair) for pair in PAIRS}
    paper = _paper(root)
    rows = []
    for estimator, text in SIDE_BY_SIDE:
        cells = [found[pair][(estimator, text)] for pair in PAIRS]
        said = paper.get((estimator, text), "")
        rows.append([f"`{estimator}`, {text}", *cells, said])
    loops = [_loops(root / "figures" / pair) for pair in PAIRS]
    rows.append(["positions in loops, T = 0", *loops, ""])
    names = [f"`{pair}`" for pair in PAIRS]
    return markdown_table(["mean of the domains", *names, "paper"], rows)


def _cell(row: Any) -> str:
    return f"{row.estimate:.3f} [{row.low:.3f}, {row.high:.3f}]"


def _ladder(figures: Path) -> dict[tuple[str, str], str]:
    """Estimate and interval by (estimator, text): the mean of the domains."""
    values = pd.read_csv(figures / "03_ladder-values.csv")
    rows = values[values["domain"] == "all"].itertuples()
    return {(row.estimator, row.text): _cell(row) for row in rows}


def _loops(figures: Path) -> str:
    shares = pd.read_csv(figures / "03_loop-share.csv")
    greedy = shares[shares["temperature"] == "T = 0"]
    [row] = greedy[greedy["domain"] == "all"].itertuples()
    return _cell(row)


def _paper(root: Path) -> dict[tuple[str, str], str]:
    """Means of the paper's four domains: its alpha (Table I) and length (Table II)."""
    values = pd.read_csv(root / "data" / "paper" / "tables.csv")
    domains = values[values["domain"].isin(DOMAINS) & values["depth"].isna()]
    means = domains.groupby(["table", "quantity"])["value"].mean()
    return {
        ("published_alpha", "T = 0"): f"{means['I', 'alpha_mean']:.3f}",
        ("published_length", "T = 0"): f"{means['II', 'expected_accepted_length']:.3f}",
    }


def recorder_table(cases: list[Mapping[str, Any]]) -> str:
    """The recorder against the literal procedure."""
    rows = []
    for case in cases:
        ratio = case["recorder_nodes_per_s"] / case["literal_nodes_per_s"]
        rows.append(
            [
                str(case["new_tokens"]),
                str(case["prompt_tokens"]),
                f"{case['literal_nodes_per_s']:.1f}",
                f"{case['recorder_nodes_per_s']:.0f}",
                f"{ratio:.0f}x",
            ]
        )
    return markdown_table(
        [
            "new tokens",
            "prompt tokens",
            "literal, nodes/s",
            "recorder, nodes/s",
            "ratio",
        ],
        rows,
    )


def decoder_table(pairs: Mapping[str, list[Mapping[str, Any]]]) -> str:
    """Every method on every benchmarked pair."""
    rows = []
    for pair, methods in pairs.items():
        for method in methods:
            efficiency, share = (
                method.get("block_efficiency"),
                method.get("share_reached"),
            )
            rows.append(
                [
                    pair,
                    method["method"],
                    f"{method['tokens_per_s']:.0f}",
                    f"{method['ratio_to_plain']:.2f}",
                    f"{efficiency:.2f}" if efficiency else "",
                    f"{share:.2f}" if share else "",
                ]
            )
    header = [
        "pair",
        "method",
        "tokens/s",
        "ratio to own plain",
        "block_efficiency",
        "share of what its passes predict",
    ]
    return markdown_table(header, rows)


def bars_table(bars: Sequence[Mapping[str, Any]]) -> str:
    """What `make bench` found beside what the kit wants to reach."""
    rows = [
        [
            bar["pair"],
            bar["what"],
            f"{bar['measured']:.2f}",
            f"{bar['bar']:.2f}",
            "yes" if bar["is_reached"] else "no",
        ]
        for bar in bars
    ]
    return markdown_table(["pair", "what", "measured", "wanted", "reached"], rows)


def profiles_table(recordings: Mapping[str, Any]) -> str:
    """One row a profile: what it is, and the minutes and memory of its greedy recording, measured
    for the pairs of PAIRS, else planned for a T4.
    """
    names = sorted(profile_names(), key=lambda name: name not in recordings)
    return markdown_table(
        ["profile", "pair", "greedy recording", "memory"],
        [_profile_row(name, recordings.get(name)) for name in names],
    )


def _profile_row(name: str, recording: Mapping[str, Any] | None) -> list[str]:
    from speclab.ops import plan

    profile = load_profile(name)
    if recording:
        minutes = f"{recording['time_s'] / 60:.1f} min (measured, 2 cores)"
        memory = f"{recording['peak_bytes'] / 1e9:.2f} GB (measured)"
        label = f"`{name}` (default)" if name == "tiny" else f"`{name}`"
        return [label, profile.description, minutes, memory]
    pair = plan.planned_pair(profile)
    least, most = plan.planned_minutes(profile, pair)
    needs = plan.planned_bytes(profile, pair).values()
    memory = " + ".join(f"{need / 1e9:.0f}" for need in needs)
    return [
        f"`{name}`",
        profile.description,
        f"{least:.1f} to {most:.1f} min (planned)",
        f"{memory} GB (planned)",
    ]


def engines_table() -> str:
    """One row a place where another engine prints: its names and the figures of ours that they
    are, what they are taken over, the source and the trap.
    """
    from speclab.ops import metrics

    rows = []
    for group in metrics.groups():
        names = [
            f"`{name}`: {f'`{figure}`' if figure else 'not computed here'}"
            for name, figure in group["names"].items()
        ]
        place = [group["engine"], group["where"], group["of"]]
        said = ["; ".join(names), group.get("note", ""), group["source"]]
        rows.append(place + said)
    header = ["engine", "where", "of", "its name: ours", "trap", "source"]
    return markdown_table(header, rows)


# ---- README.md, GLOSSARY.md ----------------------------------------------------------------------


def filled(text: str, written: Mapping[str, str]) -> str:
    """README.md (or GLOSSARY.md) with every marked block written anew.

    ValueError if a block has no mark, or a mark no block.
    """
    marked = {match[1] for match in MARKS.findall(text)}
    if marked != set(written):
        raise ValueError(
            f"README.md marks {sorted(marked)}, the blocks are {sorted(written)}"
        )
    return MARKS.sub(lambda match: f"{match[1]}{written[match[2]]}{match[3]}", text)


def measured_file(name: str, root: Path = ROOT, pair: str = "tiny") -> dict[str, Any]:
    """A measured file of the committed figures of a pair."""
    path = root / "figures" / pair / f"{name}.json"
    return read_json(path, "take the committed one")


def measured_pairs(root: Path = ROOT) -> dict[str, Any]:
    """measured.json of every pair of PAIRS."""
    return {pair: measured_file("measured", root, pair) for pair in PAIRS}


def write(root: Path = ROOT, alone: Path | None = None) -> None:
    """Collect what was measured and write README.md's blocks.

    alone: the folder that `make reproduce PROFILE=smollm OUT=folder` wrote where the models were
    not there; None keeps the seconds of the last one.
    """
    if alone and not (alone / "build" / "smollm").is_dir():
        raise ValueError(
            f"--alone {alone}: no build/smollm in it; name the OUT of `make reproduce`"
        )
    found = {pair: collect(root, pair) for pair in PAIRS}
    for pair, measured in found.items():
        path = root / "figures" / pair / "measured.json"
        if pair == "smollm":
            known = measured_file("measured", root, pair) if path.is_file() else {}
            build = alone / "build" / pair if alone else None
            measured[ALONE] = seconds_of(build) if build else known.get(ALONE, {})
        path.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    bench = root / "build" / "bench.json"
    if bench.is_file():
        shutil.copyfile(bench, root / "figures" / "tiny" / "bench.json")
    page = root / "README.md"
    blocks = written_blocks(measured_pairs(root), measured_file("bench", root), root)
    text = filled(page.read_text(encoding="utf-8"), blocks)
    page.write_text(text, encoding="utf-8")
    glossary = root / "GLOSSARY.md"
    text = filled(glossary.read_text("utf-8"), {"engines": engines_table()})
    glossary.write_text(text, encoding="utf-8")
