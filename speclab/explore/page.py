"""One self-contained HTML file that replays recorded runs, assembled from the pieces in `assets`.

The file never uses the network: its policy allows no request, and no script but its own. All text
of a run is in one packed string, and the page writes it as text, never as HTML.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

from speclab.cost import Costs
from speclab.estimates import counted
from speclab.explore.trace_data import Packed, check_second, draft_names, pack_runs
from speclab.plain import notice
from speclab.show import notebook, pictures
from speclab.study import timing_runs
from speclab.study.profiles import ROOT, Profile, with_head
from speclab.study.prompts import HUB_SETS, HubPrompts, Prompt, prompts_digest
from speclab.study.runs import (
    Run,
    RunError,
    encoded_again,
    load_run,
    profile_of,
    profile_prompts,
    recorded_run,
    tokenizer_of,
    written,
)

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = (  # each may use those before it
    "data.js",
    "chance.js",
    "replay.js",
    "cost.js",
    "rule.js",
    "model.js",
    "machine.js",
    "address.js",
    "dom.js",
    "text_view.js",
    "details_view.js",
    "tree_view.js",
    "chart.js",
    "gamma_view.js",
    "machine_view.js",
    "clock_view.js",
    "bench_view.js",
    "draws_view.js",
    "tour.js",
    "controls.js",
    "main.js",
)
# nothing from anywhere, and of scripts this one
POLICY = "default-src 'none'; script-src 'sha256-{}'; style-src 'unsafe-inline'"
MARK = 'name="speclab-digest"'  # every page has it
KINDS = ("greedy", "sampled")  # of runs that a profile's page shows
LARGEST = 8_000_000  # bytes of a page
# parts of the page, and how high each is in a notebook
PARTS = {"text": 1150, "tree": 620, "gamma": 680, "machine": 1150, "bench": 1080}


# ---- pieces --------------------------------------------------------------------------------------


def script() -> str:
    """All JavaScript as one: each file a function of its own that returns what it exports, kept
    under its name in `modules`.
    """
    return "\n\n".join(["const modules = {};", *map(_as_function, SCRIPTS)])


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _as_function(name: str) -> str:
    imported = r'^import (\{[^}]*\}) from "\./([\w.]+)";'
    text = re.sub(imported, r'const \1 = modules["\2"];', _asset(name), flags=re.M)
    exported = r"^export ((?:async )?function|const) (\w+)"
    names = [found[2] for found in re.finditer(exported, text, re.M)]
    body = re.sub(exported, r"\1 \2", text, flags=re.M).strip()
    return f'modules["{name}"] = (() => {{\n{body}\nreturn {{ {", ".join(names)} }};\n}})();'


def escape_script(value: object) -> str:
    """JSON that cannot end the script element that contains it."""
    return json.dumps(value, sort_keys=True).replace("<", "\\u003c")


def page_digest(runs: Sequence[Run], measured: Costs | None, second: Sequence[Run] = ()) -> str:
    """A digest of what a page depends on: its pieces, this package's code, the runs' settings and
    tables, and the measured costs. A page that was written without the tokenizer has no such
    digest, and is written again at every call.
    """
    of_runs = [[run.manifest["profile"], run.manifest["files"]] for run in [*runs, *second]]
    known = escape_script([of_runs, measured and asdict(measured)])
    found = hashlib.sha256(known.encode())
    for path in sorted([*ASSETS.iterdir(), *Path(__file__).parent.glob("*.py")]):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()[:32]


# ---- the page ------------------------------------------------------------------------------------


def assemble(
    packed: Packed | None,
    parts: Collection[str] = PARTS,
    measured: Costs | None = None,
    **words: str,
) -> str:
    """The HTML of packed runs (None: of the parts that need none).

    parts: of PARTS; all of them make the whole page with its head and foot. measured: the costs
    of timing runs. words: the page's `title`, the `pair`, `notes` in the foot, and its
    `digest`.
    """
    shown = [*parts]
    if {*parts} == {*PARTS}:
        shown.append("whole")
    code = script()
    digest = hashlib.sha256(f"\n{code}\n".encode()).digest()
    fields = {name: html.escape(text) for name, text in words.items()}
    fields |= {"script": code, "style": _asset("page.css")}
    fields["policy"] = POLICY.format(base64.b64encode(digest).decode())
    fields["config"] = escape_script({"parts": shown, "measured": measured and asdict(measured)})
    fields["trace"] = packed.base64 if packed else ""
    template = _asset("page.html")
    return re.sub(r"\{(\w+)\}", lambda name: fields.get(name[1], ""), template)


def page(
    runs: Sequence[Run],
    parts: Collection[str] = PARTS,
    per_domain: int | None = None,
    measured: Costs | None = None,
    second: Sequence[Run] = (),
) -> str:
    """The page of one run, or of a greedy and then a sampled run of a pair, in at most LARGEST
    bytes: with all prompts where they fit, else the first half of each domain's, and so on.

    per_domain: only this many first prompts of each domain, for a small page. measured: as of
    `assemble`. second: runs of a second draft over the same texts. ValueError as
    `trace_data.pack_runs`, and where not even one prompt of each domain fits.
    """
    # what the page shows of the runs' prompts and tokens
    tokenizer = tokenizer_of(runs[0])
    strings = tokenizer and pictures.strings_of(tokenizer)
    prompts = recorded_prompts(runs[0])
    encoded = encoded_again(runs[0], prompts) if tokenizer and prompts else {}
    pack = partial(pack_runs, runs, strings, prompts, encoded=encoded, second=second)
    # as many prompts as have room beside the page itself, its title and its notes
    without_runs = assemble(None, parts).encode()
    room = LARGEST - len(without_runs) - 4096
    packed = pack(per_domain)
    while len(packed.base64) > room:
        if packed.prompts == 1:
            raise ValueError(
                f"one prompt of each domain takes more than {LARGEST / 1e6:g} MB; "
                "record shorter texts (max_new_tokens)"
            )
        packed = pack(packed.prompts // 2)
    profile = runs[0].manifest["profile"]
    about = ": ".join(filter(None, (profile["name"], profile.get("description"))))
    words = {"title": f"speclab: explore {profile['name']}", "pair": f"The pair {about}."}
    words["digest"] = page_digest(runs, measured, second) if tokenizer else ""
    return assemble(packed, parts, measured, notes=_notes(packed, runs, second), **words)


def _notes(packed: Packed, runs: Sequence[Run], second: Sequence[Run]) -> str:
    profiles = [profile_of(run) for run in runs]
    drawn = [one.sampled_as if one.temperature else "T = 0" for one in profiles]
    notes = (
        f"The texts were recorded at {' and '.join(drawn)}, with at most "
        f"{counted(packed.prompts, 'prompt')} per domain."
    )
    if second:
        notes += f" A second draft, {draft_names(runs, second)[-1]}, was recorded over these texts."
    if packed.prompts < packed.recorded:
        notes += (
            f" The run has up to {packed.recorded} prompts per domain. This page holds the first "
            f"{packed.prompts} of each domain, so that it has at most {LARGEST / 1e6:g} MB. All "
            "numbers on this page are for these prompts, and differ from those of the notebooks."
        )
    if tokenizer_of(runs[0]) is None:
        notes += " The target's tokenizer of that time is missing, so tokens are shown as ids."
    return notes


def recorded_prompts(run: Run) -> Sequence[Prompt]:
    """The prompts of a run; none where they are not on this machine or have changed."""
    profile = profile_of(run)
    if isinstance(profile.prompts, HubPrompts) or profile.prompts in HUB_SETS:  # to be fetched
        return ()
    try:
        found = profile_prompts(profile)
    except ValueError:
        return ()
    return found if prompts_digest(found) == run.manifest["prompt_set"] else ()


# ---- files and notebooks -------------------------------------------------------------------------


def runs_there(profile: Profile) -> list[Run]:
    """The recorded greedy and sampled runs of a profile; nothing is recorded here. RunError if
    there is neither, or if one is damaged.
    """
    runs = [run for kind in KINDS if (run := recorded_run(profile, kind))]
    if not runs:
        raise RunError(
            f"{profile.name}: neither its greedy nor its sampled run with these settings is "
            "recorded here; record one first (python -m speclab record --profile …)"
        )
    return runs


def heads_there(profile: Profile, runs: Sequence[Run]) -> list[Run]:
    """The shipped runs of the pair's trained head over the texts of these runs. None, with a
    notice, over other texts, as those of a changed profile.
    """
    traces = getattr(with_head(profile), "traces", None)
    if traces is None:
        return []
    folders = [ROOT / traces / kind for kind in KINDS]
    heads = [load_run(folder) for folder in folders if folder.is_dir()]
    try:
        check_second(runs, heads)
    except ValueError as error:
        notice(f"the explorer shows no head: {error}")
        return []
    return heads


def measured_for(run: Run) -> Costs | None:
    """The costs of the run's pair from its timing runs; None if there are none."""
    found = timing_runs.costs_for(run)
    return found.costs if found.runs else None


def write_page(runs: Sequence[Run], path: Path, second: Sequence[Run] = ()) -> bool:
    """Write the whole page, its runs by temperature, if anything that it depends on has changed.
    Returns whether it was written. Measured costs are those of `measured_for`.

    second: as of `page`. ValueError if `path` is a file of another kind.
    """
    head = ""
    if path.is_file():
        head = path.read_bytes()[:4096].decode(errors="replace")
    if path.exists() and MARK not in head:
        raise ValueError(f"--out {path} is not a page of this kit; name a new file")
    runs, second = (
        sorted(some, key=lambda run: run.manifest["profile"]["temperature"])
        for some in (runs, second)
    )
    measured = measured_for(runs[0])
    digest = page_digest(runs, measured, second)
    if f'content="{digest}"' in head:
        return False
    html = page(runs, measured=measured, second=second).encode()
    written(path, lambda place: place.write_bytes(html))
    return True


def add_links(path: Path, folder: Path, notebooks: Iterable[str]) -> None:
    """Copy a page into a folder, with links to the pages of these notebooks in the site. The report
    is always there.
    """
    text = path.read_text(encoding="utf-8")
    for name in [*notebooks, "index"]:
        place = f'<a data-page="{name.partition("_")[0]}"'
        text = text.replace(f"{place}>", f'{place} href="{name}.html">')
    written(folder / path.name, lambda there: there.write_text(text, encoding="utf-8"))


def show(*parts: str, runs: Sequence[Run] = (), per_domain: int | None = None) -> None:
    """Show parts of the page (PARTS) below a notebook's cell, in a frame that works without a
    kernel and in the notebook's exported HTML. A headless run shows nothing.

    runs, per_domain: as of `page`; no run is needed for "bench".
    """
    from IPython.display import HTML, display

    if not notebook.is_open():
        return
    content = page(runs, parts, per_domain) if runs else assemble(None, parts, title="speclab")
    title = f"explore: {', '.join(parts)}"
    height = sum(PARTS[part] for part in parts)
    frame = (
        f'<div><iframe srcdoc="{html.escape(content)}" title="{title}" '
        f'style="width:100%;height:{height}px;border:0"></iframe></div>'
    )
    display(HTML(frame))
