"""`make readme`: the findings, numbers and tables of README.md and the guides (PAGES), written
between marks (`readme.md.j2` holds the blocks). A test holds the pages equal to what was measured:

* figures/smollm/measured.json and data/measured/tiny.json: seconds of each notebook and of one
  recording, collected here from build/ and data/runs (where a run or a trace of it is); that of
  `tiny`, whose figures are not committed, also holds its answers, what `make bench` measured
  (build/bench.json), and the seconds of `make test` (given by hand);
* figures/smollm/NN and figures/qwen-coder/NN: the notebooks' answers, and the numbers of
  notebooks/findings.yaml;
* figures/public/13: tokens per target pass of other pairs and methods;
* data/traces of both: estimates of acceptance, and what README.md's lines of Python print;
* data/engines/names.yaml: other engines' names.
"""

import argparse
import contextlib
import io
import json
import re
from pathlib import Path

import jinja2
import pandas as pd
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from speclab import score, stats
from speclab.lab.texts import Text
from speclab.models.folder import OF_HEAD, ModelFolder
from speclab.plain import DOMAINS
from speclab.replay import chain_sums, prompt_sums
from speclab.run.findings import headlines_of
from speclab.show.notebook import drawn_in
from speclab.study.profiles import MODELS, ROOT, load_profile, profile_names
from speclab.study.reading import read_yaml
from speclab.study.runs import load_run, seeds_of

MEASURED = {  # by pair, in the order of the columns
    "smollm": Path("figures", "smollm", "measured.json"),
    "tiny": Path("data", "measured", "tiny.json"),
}
# what figures/README.md calls the estimators
ALPHA, LENGTH = (
    "the paper's acceptance (`published_alpha`)",
    "the paper's E[L] (`published_length`)",
)
HIT, DRAWN = "best token accepted (`hit[1]`)", "one sampled token accepted (`alpha`)"
TREE = "tokens per target pass, tree of 2 + 4 + 2 (`block_efficiency`)"
CHAIN = "tokens per target pass, chain of 3 (`block_efficiency`)"
AT_0, AT_1 = " | 0", " | 1"  # with the temperature, as two cells
SETS = ("gsm8k", "cnn", "instructcoder", "sharegpt")
PAGES = (
    *("README.md", "data/engines/README.md", "figures/README.md"),
    *("notebooks/README.md", "tests/tools/README.md"),
)
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
TRACES = ROOT / "data" / "traces"
PAIRS = ("smollm", "qwen-coder")
MARKS = re.compile(r"(<!-- (\w+): by `make readme` -->\n).*?(<!-- /\2 -->)", re.DOTALL)


# ---- collect -------------------------------------------------------------------------------------


def seconds_of(build):
    """Seconds of each finished notebook, by name."""
    found = {}
    for path in sorted(build.glob("[0-9]*.json")):
        if read(path)["status"] == "done":
            about = read(path.with_suffix(".ipynb"))["metadata"]["papermill"]
            found[path.stem] = round(about["duration"])
    return found


def recording(pair):
    """Seconds, positions and memory of a pair's last greedy recording. Tests leave small runs in
    the same folder, so only the runs with the most positions count.
    """
    own = (ROOT / "data" / "runs").glob(f"{pair}-greedy-*/manifest.json")
    shipped = (ROOT / "data" / "traces" / pair).glob("greedy/manifest.json")
    newest_last = sorted([*shipped, *own], key=lambda path: path.stat().st_mtime)
    manifest = max(map(read, reversed(newest_last)), key=lambda one: one["rows"]["trace"])
    return {
        "time_s": round(manifest["time_s"], 1),
        "positions": manifest["rows"]["trace"],
        "peak_bytes": manifest["peak_bytes"]["process"],
    }


def read(path):
    """Read a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def measure(alone=None, tests_s=None):
    """Write the measured files of both pairs, after `make reproduce` of both.

    alone: the folder of a `make reproduce OUT=folder` without the models. tests_s: seconds of `make
    test`. What was not measured keeps its previous values.
    """
    builds, bench = ROOT / "build", ROOT / "build" / "bench.json"
    said = sorted((ROOT / "figures" / "tiny").glob("*/numbers.json"))
    new = {
        "smollm": {"from_traces": alone and seconds_of(alone / "build" / "smollm")},
        "tiny": {
            "bench": bench.is_file() and read(bench),
            "tests_s": tests_s,
            "answers": {path.parent.name: read(path)["answer"] for path in said},
        },
    }
    for pair, path in MEASURED.items():
        new[pair] |= {"seconds": seconds_of(builds / pair), "recording": recording(pair)}
        known = read(ROOT / path) | {name: value for name, value in new[pair].items() if value}
        text = json.dumps(known, indent=1, ensure_ascii=False)
        (ROOT / path).write_text(text + "\n", encoding="utf-8")


# ---- values of the blocks ------------------------------------------------------------------------


def values():
    """The template's values, from measured files."""
    measured = {pair: read(ROOT / path) for pair, path in MEASURED.items()}
    text_of = {pair: texts(pair) for pair in PAIRS}
    names = [path.stem for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))]
    return {
        **measured,
        "measured": measured,
        "bench": measured["tiny"]["bench"],
        "questions": {name: question(name) for name in names},
        "answers": {
            pair: {name: numbers(name, pair).get("answer", "") for name in names} for pair in PAIRS
        },
        "pages": {name: page_of(name) for name in names},
        "findings": {pair: findings(pair) for pair in PAIRS},
        "minutes": lambda seconds: f"{sum(seconds.values()) / 60:.0f}",
        "printed": printed(),
        "prompts": text_of["smollm"][0].trace["prompt_id"].nunique(),
        "estimates": {pair: estimates(*text_of[pair]) for pair in PAIRS},
        "paper": published(),
        "scale": at_scale(),
        "ran_away": numbers("13_public_runs")["ran_away"],
        "atlas": pd.read_csv(public("runs")),
        "sets": SETS,
        "profiles": [facts_of(name) for name in profile_names() if name != "reference"],
        "engines": read_yaml(ROOT / "data" / "engines" / "names.yaml", "fetch it again"),
    }


def question(notebook):
    """The question in a notebook's title."""
    source = (ROOT / "notebooks" / f"{notebook}.py").read_text(encoding="utf-8")
    return re.search(r"^# # \d+\. (.+)$", source, re.MULTILINE)[1]


def numbers(notebook, pair="smollm"):
    """What the notebook last recorded on a pair; {} where it has not."""
    path = drawn_in(ROOT / "figures" / pair, notebook) / "numbers.json"
    return read(path) if path.is_file() else {}


def page_of(notebook):
    """The page that shows an executed notebook."""
    folder = drawn_in(Path("figures", "smollm"), notebook)
    return (folder / "README.md").as_posix()


def findings(pair):
    """The headlines of a pair that are true of its figures, each after its notebook's number."""
    figures = ROOT / "figures" / pair
    found = [
        (one.notebook, one.told(drawn_in(figures, one.notebook))) for one in headlines_of(pair)
    ]
    return [(number, said) for number, said in found if said]


def printed():
    """The output of README.md's Python code."""
    [lines] = PYTHON.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.chdir(ROOT):
        exec(lines, {})
    return said.getvalue().strip()


def texts(pair):
    """The shipped texts of a pair: greedy, and at T = 1 with all seeds."""
    seeds = seeds_of(load_profile(pair))
    sampled = Text.of(*(load_run(TRACES / pair / kind) for kind in seeds))
    return Text.of(load_run(TRACES / pair / "greedy")), sampled


def estimates(greedy, sampled):
    """Means of the domains with their intervals, by name and temperature."""
    tree = load_profile("smollm").tree
    per_pass = score.block_estimators()["block_efficiency"]
    found = stats.jointly(
        {
            ALPHA + AT_0: (greedy.nodes, score.published_alpha),
            HIT + AT_0: (greedy.trace, score.mean_of("hit", "hit[1]")),
            DRAWN + AT_1: (sampled.trace, sampled.acceptance),
            LENGTH + AT_0: (greedy.nodes, score.published_length),
            TREE + AT_0: (prompt_sums(greedy.tree(tree)), per_pass),
            TREE + AT_1: (prompt_sums(sampled.tree(tree)), per_pass),
            CHAIN + AT_0: (chain_sums(greedy.trace, [3]), per_pass),
        }
    )
    table = found.table().frame.query("domain == 'all'")
    return {row.name: row for row in table.itertuples(index=False)}


def public(slug):
    """A table of notebook 13."""
    return drawn_in(ROOT / "figures" / "smollm", "13") / f"{slug}.csv"


def at_scale():
    """What notebook 13 found for another pair at T = 0: proposer, weight (by request, by token),
    name (as in `estimates`), domain, estimate, low, high.
    """
    chains = pd.read_csv(public("llama-tokens-per-pass")).query("gamma == 3")
    return chains.assign(name=CHAIN + AT_0)


def published():
    """Means of the paper's four domains: its alpha (Table I) and length (Table II)."""
    values = pd.read_csv(ROOT / "data" / "paper" / "tables.csv")
    domains = values[values["domain"].isin(DOMAINS) & values["depth"].isna()]
    means = domains.groupby(["table", "quantity"])["value"].mean()
    return {
        ALPHA + AT_0: means["I", "alpha_mean"],
        LENGTH + AT_0: means["II", "expected_accepted_length"],
    }


def facts_of(name):
    """A profile's name and description. For a profile that was not measured, also the parameters
    of its models (not of a head).
    """
    profile = load_profile(name)
    facts = {"name": name, "description": profile.description}
    if name in MEASURED:
        return facts
    configs = []
    for which in MODELS:
        folder = ModelFolder.local(getattr(profile, which))
        configs.append(folder.config if folder else getattr(profile.notes, f"{which}_config"))
    return facts | {
        "parameters": [parameters_of(config) for config in configs if OF_HEAD not in config]
    }


def parameters_of(config):
    """The parameters of a model by its config.json, counted on torch's meta device, where a network
    has shapes without memory.
    """
    settings = {name: value for name, value in config.items() if name != "quantization_config"}
    with torch.device("meta"):
        shape = AutoConfig.for_model(**settings)
        return AutoModelForCausalLM.from_config(shape).num_parameters()


# ---- the pages -----------------------------------------------------------------------------------


def template():
    """The template with the blocks of the pages."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    settings = {"trim_blocks": True, "lstrip_blocks": True, "autoescape": False}
    return jinja2.Environment(loader=loader, **settings).get_template("readme.md.j2")


def filled(text, values):
    """The page with every marked block rewritten. Raises KeyError for a mark without a block."""
    blocks, context = template().blocks, template().new_context(values)
    return MARKS.sub(lambda m: m[1] + "".join(blocks[m[2]](context)) + m[3], text)


def main(arguments=None):
    """Collect the measurements and write the blocks of the pages."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    said = "OUT of a `make reproduce PROFILE=smollm` without the models; its seconds are read"
    parser.add_argument("--alone", type=Path, metavar="FOLDER", help=said)
    parser.add_argument("--tests", type=float, help="seconds of `make test`")
    given = parser.parse_args(arguments)
    measure(given.alone, given.tests)
    for page in PAGES:
        text = filled((ROOT / page).read_text(encoding="utf-8"), values())
        (ROOT / page).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
