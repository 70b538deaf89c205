"""`make readme`: every number of README.md and every name of GLOSSARY.md's last table, written
between marks (`tests/readme.md.j2` holds the blocks); a test holds the pages equal to the files
that were measured:

* figures/smollm/measured.json and data/measured/tiny.json: seconds of each notebook, of a call that
  ran all of them, and of one recording, collected here from build/ and data/runs (where a run or a
  trace of it is); that of `tiny`, whose figures are not committed, also holds the tables that
  README.md and notebook 11 read, line by line, and what `make bench` measured (build/bench.json);
* figures/smollm/03/ladder-values.csv and 13/loop-share.csv: what notebooks 03 and 13 found on that pair;
* data/engines/names.yaml: other engines' names.
"""

import argparse
import io
import json
import re
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from speclab.ops import metrics
from speclab.ops.report import CALL
from speclab.profiles import ROOT, load_profile, profile_names
from speclab.prompts import DOMAINS

MEASURED = {  # by pair, in the order of the columns
    "smollm": Path("figures", "smollm", "measured.json"),
    "tiny": Path("data", "measured", "tiny.json"),
}
LADDER, LOOPS = "03/ladder-values", "13/loop-share"
OF_PAPER = ("08/distillation", "08/self-drafts", "08/specialist", "10/pass-times")
PAGES = ("README.md", "GLOSSARY.md")
MARKS = re.compile(r"(<!-- (\w+): by `make readme` -->\n).*?(<!-- /\2 -->)", re.DOTALL)


# ---- collect -------------------------------------------------------------------------------------


def collect(pair: str, root: Path = ROOT) -> dict[str, Any]:
    """What the last `make reproduce` of a pair measured: seconds by notebook and of the last call
    that ran all of them, and of the greedy recording seconds, positions and peak bytes.

    ValueError if a notebook has not been run, or failed.
    """
    build = root / "build" / pair
    seconds = seconds_of(build)
    names = [path.stem for path in sorted((root / "notebooks").glob("[0-9]*.ipynb"))]
    if missing := [name for name in names if name not in seconds]:
        raise ValueError(
            f"{missing[0]} has no finished run: call `make reproduce PROFILE={pair}` first"
        )
    call = read(build / CALL) if (build / CALL).is_file() else {}
    ran_all = call.get("notebooks") == names
    return {
        "seconds": seconds,
        "call_s": round(call["seconds"]) if ran_all else None,
        "recording": recording(pair, root),
    }


def seconds_of(build: Path) -> dict[str, int]:
    """Seconds of each notebook that is done, by name."""
    stamps = {path.stem: read(path) for path in sorted(build.glob("[0-9]*.json"))}
    return {
        name: round(stamp["seconds"])
        for name, stamp in stamps.items()
        if stamp["status"] == "done"
    }


def recording(pair: str, root: Path) -> dict[str, Any]:
    """Seconds, positions and memory of the last greedy recording of a pair."""
    own = (root / "data" / "runs").glob(f"{pair}-greedy-*/manifest.json")
    shipped = (root / "data" / "traces" / pair).glob("greedy/manifest.json")
    found = sorted([*own, *shipped], key=lambda path: path.stat().st_mtime)
    if not found:
        raise ValueError(f"no greedy run: call `make reproduce PROFILE={pair}` first")
    manifest = read(found[-1])
    return {
        "time_s": round(manifest["time_s"], 1),
        "positions": manifest["rows"]["trace"],
        "peak_bytes": manifest["peak_bytes"]["process"],
    }


def lines_of(figures: Path) -> dict[str, list[str]]:
    """The exported tables that are read of a pair without committed figures, line by line; those
    for README.md with the mean of the domains alone.
    """
    found = {}
    for name in (LADDER, LOOPS, *OF_PAPER):
        head, *rows = (figures / f"{name}.csv").read_text("utf-8").splitlines()
        if name not in OF_PAPER:
            rows = [row for row in rows if ",all," in row]
        found[name] = [head, *rows]
    return found


def read(path: Path) -> Any:
    """A JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def measure(alone: Path | None = None) -> None:
    """Write the measured files of both pairs.

    alone: the folder that `make reproduce PROFILE=smollm OUT=folder` wrote where the models were
    not there; None keeps the seconds of the last one.
    """
    known = {pair: read(ROOT / path) for pair, path in MEASURED.items()}
    found = {pair: collect(pair) for pair in MEASURED}
    seconds = seconds_of(alone / "build" / "smollm") if alone else {}
    found["smollm"]["from_traces"] = seconds or known["smollm"]["from_traces"]
    bench = ROOT / "build" / "bench.json"
    found["tiny"]["bench"] = read(bench) if bench.is_file() else known["tiny"]["bench"]
    found["tiny"]["tables"] = lines_of(ROOT / "figures" / "tiny")
    for pair, path in MEASURED.items():
        text = json.dumps(found[pair], indent=1, ensure_ascii=False)
        (ROOT / path).write_text(text + "\n", encoding="utf-8")


# ---- what the blocks say -------------------------------------------------------------------------


def values() -> dict[str, Any]:
    """What the template reads, from measured files."""
    measured = {pair: read(ROOT / path) for pair, path in MEASURED.items()}
    tables = measured["tiny"]["tables"]
    exported = {
        "smollm": [ROOT / "figures" / "smollm" / f"{n}.csv" for n in (LADDER, LOOPS)],
        "tiny": [io.StringIO("\n".join(tables[name])) for name in (LADDER, LOOPS)],
    }
    return {
        **measured,
        "measured": measured,
        "bench": measured["tiny"]["bench"],
        "questions": {name: question(name) for name in measured["tiny"]["seconds"]},
        "ladder": {pair: estimates(*files) for pair, files in exported.items()},
        "paper": published(),
        "profiles": [facts_of(name) for name in profile_names()],
        "engines": metrics.groups(),
    }


def question(notebook: str) -> str:
    """The question in a notebook's title."""
    source = (ROOT / "notebooks" / f"{notebook}.py").read_text(encoding="utf-8")
    return re.search(r"^# # \d+\. (.+)$", source, re.MULTILINE)[1]


def estimates(ladder: Any, loops: Any) -> dict[str, Any]:
    """Rows of notebook 03, the mean of the domains, by 'estimator, text'."""
    values, shares = pd.read_csv(ladder), pd.read_csv(loops)
    shares = shares.assign(estimator="loops", text=shares["temperature"])
    rows = pd.concat([values, shares]).query("domain == 'all'")
    return {f"{row.estimator}, {row.text}": row for row in rows.itertuples()}


def published() -> dict[str, float]:
    """Means of the paper's four domains: its alpha (Table I) and length (Table II)."""
    values = pd.read_csv(ROOT / "data" / "paper" / "tables.csv")
    domains = values[values["domain"].isin(DOMAINS) & values["depth"].isna()]
    means = domains.groupby(["table", "quantity"])["value"].mean()
    return {
        "published_alpha, T = 0": means["I", "alpha_mean"],
        "published_length, T = 0": means["II", "expected_accepted_length"],
    }


def facts_of(name: str) -> dict[str, Any]:
    """A profile's name and description, and what is planned for a T4 where none measured it."""
    profile = load_profile(name)
    facts = {"name": name, "description": profile.description}
    return facts if name in MEASURED else facts | planned(profile)


def planned(profile: Any) -> dict[str, Any]:
    """Minutes of a recording, for short and for long prompts, and bytes by device."""
    from speclab.ops import plan

    pair = plan.planned_pair(profile)
    peaks = plan.planned_bytes(profile, pair).values()
    return {"minutes": plan.planned_minutes(profile, pair), "peaks": list(peaks)}


# ---- README.md, GLOSSARY.md ----------------------------------------------------------------------


def template() -> jinja2.Template:
    """The blocks of both pages."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    settings = {"trim_blocks": True, "lstrip_blocks": True, "autoescape": False}
    return jinja2.Environment(loader=loader, **settings).get_template("readme.md.j2")


def filled(text: str, values: dict[str, Any]) -> str:
    """A page with every marked block written anew; KeyError for a mark without a block."""
    blocks, context = template().blocks, template().new_context(values)
    return MARKS.sub(lambda m: m[1] + "".join(blocks[m[2]](context)) + m[3], text)


def main(arguments: list[str] | None = None) -> None:
    """Collect what was measured and write the blocks of both pages."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    said = "OUT of a `make reproduce PROFILE=smollm` without the models: its seconds"
    parser.add_argument("--alone", type=Path, metavar="FOLDER", help=said)
    measure(parser.parse_args(arguments).alone)
    for page in PAGES:
        text = filled((ROOT / page).read_text(encoding="utf-8"), values())
        (ROOT / page).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
