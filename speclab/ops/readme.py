"""`make readme`: every number of README.md, written between marks from measured files; a test holds
both equal.

* figures/tiny/measured.json: seconds of each notebook and of one recording, collected here from
  build/ and data/runs;
* figures/tiny/bench.json: what `make bench` measured, collected here from build/bench.json.
"""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speclab.profiles import ROOT, load_profile, profile_names

MARKS = re.compile(r"(<!-- (\w+): by `make readme` -->\n).*?(<!-- /\2 -->)", re.DOTALL)
SHORT, LONG = 150, 512  # prompt tokens of the planned minutes


# ---- collect -------------------------------------------------------------------------------------


def collect(root: Path = ROOT, profile: str = "tiny") -> dict[str, Any]:
    """What the last `make reproduce` measured: seconds by notebook, and of the greedy recording
    seconds, positions and peak bytes.

    ValueError if a notebook has not been run, or failed.
    """
    seconds = {}
    for notebook in sorted((root / "notebooks").glob("[0-9]*.ipynb")):
        stamp = root / "build" / profile / f"{notebook.stem}.json"
        facts = json.loads(stamp.read_text(encoding="utf-8")) if stamp.is_file() else {}
        if facts.get("status") != "done":
            raise ValueError(
                f"{notebook.stem} has no finished run: call `make reproduce` first"
            )
        seconds[notebook.stem] = round(facts["seconds"])
    return {"seconds": seconds, "recording": _recording(root, profile)}


def _recording(root: Path, profile: str) -> dict[str, Any]:
    found = sorted((root / "data" / "runs").glob(f"{profile}-greedy-*/manifest.json"))
    if not found:
        raise ValueError(
            f"data/runs holds no greedy run of {profile}: call `make reproduce` first"
        )
    newest = max(found, key=lambda path: path.stat().st_mtime)
    manifest = json.loads(newest.read_text(encoding="utf-8"))
    return {
        "time_s": round(manifest["time_s"], 1),
        "positions": manifest["rows"]["trace"],
        "peak_bytes": manifest["peak_bytes"]["process"],
    }


# ---- the blocks ----------------------------------------------------------------------------------


def written_blocks(
    measured: Mapping[str, Any], bench: Mapping[str, Any]
) -> dict[str, str]:
    """The text of every marked block, by name."""
    return {
        "notebooks": notebooks_table(measured["seconds"]),
        "recorder": recorder_table(bench["recorder"]),
        "decoder": decoder_table(bench["decoder"]),
        "profiles": profiles_table(measured["recording"]),
    }


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def notebooks_table(seconds: Mapping[str, int]) -> str:
    """One row a notebook, with the question of its title, and a line with the sum."""
    rows = []
    for name, spent in seconds.items():
        source = (ROOT / "notebooks" / f"{name}.py").read_text(encoding="utf-8")
        title = re.search(r"^# # \d+\. (.+)$", source, re.MULTILINE)[1]
        label = name.replace("_", " ")
        rows.append([f"[{label}](notebooks/{name}.ipynb)", title, str(spent)])
    minutes = round(sum(seconds.values()) / 60)
    body = markdown_table(["notebook", "question", "seconds"], rows)
    machine = "recording and training included (2 CPU cores, profile `tiny`)"
    return f"{body}\nAll of them: {minutes} minutes, {machine}.\n"


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


def profiles_table(recording: Mapping[str, Any]) -> str:
    """One row a profile: what it is, and the minutes and memory of its greedy recording, measured
    for `tiny`, else planned for a T4.
    """
    names = sorted(profile_names(), key=lambda name: name != "tiny")
    return markdown_table(
        ["profile", "pair", "greedy recording", "memory"],
        [_profile_row(name, recording) for name in names],
    )


def _profile_row(name: str, recording: Mapping[str, Any]) -> list[str]:
    from speclab.ops import plan

    profile = load_profile(name)
    if name == "tiny":
        minutes = f"{recording['time_s'] / 60:.1f} min (measured, 2 cores)"
        memory = f"{recording['peak_bytes'] / 1e9:.2f} GB (measured)"
        return [f"`{name}` (default)", profile.description, minutes, memory]
    specs = {"target": profile.target, "draft": profile.draft}
    models = [
        plan.held(spec, profile.notes[f"{which}_config"], 2)
        for which, spec in specs.items()
    ]
    least, most = (
        plan.seconds(profile, *models, prompt_tokens=length) / 60
        for length in (SHORT, LONG)
    )
    needs = plan.peaks(plan.plan(profile, *models))
    memory = " + ".join(f"{need.total / 1e9:.0f}" for need in needs.values())
    return [
        f"`{name}`",
        profile.description,
        f"{least:.1f} to {most:.1f} min (planned)",
        f"{memory} GB (planned)",
    ]


# ---- README.md -----------------------------------------------------------------------------------


def filled(text: str, written: Mapping[str, str]) -> str:
    """README.md with every marked block written anew.

    ValueError if a block has no mark, or a mark no block.
    """
    marked = {match[1] for match in MARKS.findall(text)}
    if marked != set(written):
        raise ValueError(
            f"README.md marks {sorted(marked)}, the blocks are {sorted(written)}"
        )
    return MARKS.sub(lambda match: f"{match[1]}{written[match[2]]}{match[3]}", text)


def measured_file(name: str, root: Path = ROOT) -> dict[str, Any]:
    """A measured file of the committed figures."""
    return json.loads(
        (root / "figures" / "tiny" / f"{name}.json").read_text(encoding="utf-8")
    )


def write(root: Path = ROOT) -> None:
    """Collect what was measured and write README.md's blocks."""
    figures = root / "figures" / "tiny"
    measured = json.dumps(collect(root), indent=1) + "\n"
    (figures / "measured.json").write_text(measured, encoding="utf-8")
    bench = root / "build" / "bench.json"
    if bench.is_file():
        shutil.copyfile(bench, figures / "bench.json")
    readme = root / "README.md"
    text = filled(
        readme.read_text(encoding="utf-8"),
        written_blocks(measured_file("measured", root), measured_file("bench", root)),
    )
    readme.write_text(text, encoding="utf-8")
