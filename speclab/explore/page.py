"""One self-contained HTML file that replays recorded runs, assembled from the pieces in `assets`.

The file asks the network for nothing: its policy allows no request, and no script but its own. All
text of a run lies in one packed string and is written by the page as text, never as HTML.
"""

import base64
import hashlib
import html
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from speclab.explore.trace_data import Packed, pack_runs
from speclab.prompts import Prompt, load_prompts, prompts_digest
from speclab.runs import Run, tokenizer_of, written
from speclab.show import notebook, pictures

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = (  # each may use those before it
    "data.js",
    "replay.js",
    "cost.js",
    "rule.js",
    "model.js",
    "dom.js",
    "text_view.js",
    "details_view.js",
    "tree_view.js",
    "chart.js",
    "gamma_view.js",
    "machine_view.js",
    "bench_view.js",
    "controls.js",
    "main.js",
)
MARK = 'name="speclab-digest"'  # by which a page is known
PARTS = ("text", "tree", "gamma", "machine", "bench")
LEAD = (
    "A small model drafts, a large one checks. The large one wrote the texts below, and they were "
    "recorded once. Choose what is drafted: see which words the draft gets right, why one is "
    "rejected, and what drafting saves on your machine. No model runs here."
)
LARGEST = 4_000_000  # bytes of a page
HEIGHTS = {"text": 1150, "tree": 620, "gamma": 640, "machine": 1000, "bench": 640}


# ---- pieces --------------------------------------------------------------------------------------


def script() -> str:
    """All JavaScript as one: each file a function of its own that returns what it exports, kept
    under its name in `modules`.
    """
    return "\n\n".join(["const modules = {};", *map(_as_function, SCRIPTS)])


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _as_function(name: str) -> str:
    text = _asset(name)
    text = re.sub(
        r'^import (\{[^}]*\}) from "\./([\w.]+)";',
        r'const \1 = modules["\2"];',
        text,
        flags=re.MULTILINE,
    )
    exported = r"^export ((?:async )?function|const) (\w+)"
    names = [found[2] for found in re.finditer(exported, text, re.MULTILINE)]
    body = re.sub(exported, r"\1 \2", text, flags=re.MULTILINE).strip()
    return f'modules["{name}"] = (() => {{\n{body}\nreturn {{ {", ".join(names)} }};\n}})();'


def policy(code: str) -> str:
    """A content security policy: nothing from anywhere, and of scripts this one."""
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'"
    )


def in_script(value: object) -> str:
    """JSON that cannot end the script element that it stands in."""
    return json.dumps(value, sort_keys=True).replace("<", "\\u003c")


def pieces_digest() -> str:
    """The pieces and this package's code as one hash."""
    found = hashlib.sha256()
    for path in sorted([*ASSETS.iterdir(), *Path(__file__).parent.glob("*.py")]):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()[:16]


def page_digest(runs: Sequence[Run]) -> str:
    """What a page depends on: `pieces_digest`, and the runs' settings and tables."""
    names = ("key", "prompt_set", "files")
    known = [[run.manifest[name] for name in names] for run in in_order(runs)]
    found = hashlib.sha256(json.dumps(known, sort_keys=True).encode())
    return f"{pieces_digest()}-{found.hexdigest()[:16]}"


def in_order(runs: Sequence[Run]) -> list[Run]:
    """Runs by their temperature."""
    return sorted(runs, key=lambda run: run.manifest["profile"]["temperature"])


# ---- the page ------------------------------------------------------------------------------------


def assemble(
    packed: Packed | None,
    title: str,
    parts: Sequence[str] = PARTS,
    mark: str = "",
    notes: str = "",
    pair: str = "",
) -> str:
    """The HTML of packed runs (None: of the parts that need none).

    parts: of PARTS; all of them make the whole page with its head and foot. mark: what is written
    as its digest.
    """
    shown = [*parts, "whole"] if set(parts) == set(PARTS) else [*parts]
    code = script()
    words = {"digest": mark, "title": title, "lead": LEAD, "pair": pair, "notes": notes}
    fields = {name: html.escape(text) for name, text in words.items()} | {
        "policy": policy(f"\n{code}\n"),
        "config": in_script({"parts": shown}),
        "trace": packed.base64 if packed else "",
        "style": _asset("page.css"),
        "script": code,
    }
    return re.sub(r"\{(\w+)\}", lambda found: fields[found[1]], _asset("page.html"))


def thinned(make: Callable[[int | None], Packed], largest: int = LARGEST) -> Packed:
    """All prompts where they fit into `largest` bytes, else the most first prompts of each domain
    that do. ValueError where not even one of each does.
    """
    whole = make(None)
    if len(whole.base64) <= largest:
        return whole
    counts = range(1, whole.prompts)
    fitting = bisect_right(counts, largest, key=lambda n: len(make(n).base64))
    if not fitting:
        raise ValueError(
            f"one prompt of each domain takes more than {largest / 1e6:g} MB; "
            "record shorter texts (max_new_tokens)"
        )
    return make(fitting)


def page(
    runs: Sequence[Run],
    parts: Sequence[str] = PARTS,
    largest: int = LARGEST,
    per_domain: int | None = None,
) -> str:
    """The page of one run, or of a greedy and a sampled run of a pair, in at most `largest` bytes.

    per_domain: only the first so many prompts of each domain, for a small page. ValueError as
    `trace_data.pack_runs`.
    """
    runs = in_order(runs)
    strings, prompts = _strings(runs[0]), _prompts(runs[0])
    details = bool({"text", "tree"} & set(parts))
    make = partial(pack_runs, runs, strings, prompts, details)
    frame = assemble(None, "", parts)
    room = largest - len(frame.encode()) - 4096  # title, lead and notes
    packed = make(per_domain) if per_domain else thinned(make, room)
    profile = runs[0].manifest["profile"]
    pair, about = profile["name"], profile.get("description")
    return assemble(
        packed,
        f"speclab: explore {pair}",
        parts,
        page_digest(runs),
        _notes(packed, strings is None, largest),
        f"The pair {pair}: {about}." if about else f"The pair {pair}.",
    )


def _notes(packed: Packed, nameless: bool, largest: int) -> str:
    temperatures = " and ".join(f"T = {t:g}" for t in packed.temperatures)
    said = f"Recorded text at {temperatures}, {packed.prompts} prompts of each domain."
    if packed.prompts < packed.recorded:
        said += (
            f" The run holds {packed.recorded} prompts of each domain; in this page are the first "
            f"{packed.prompts} of each, so that it has at most {largest / 1e6:g} MB, and every "
            "number on it is of these."
        )
    if nameless:
        said += " The pair's tokenizer was not there: tokens are shown as their ids."
    return said


def _strings(run: Run) -> Sequence[str] | None:
    """The text of every token id; None where the pair's tokenizer is not on this machine."""
    tokenizer = tokenizer_of(run)
    return None if tokenizer is None else pictures.strings_of(tokenizer)


def _prompts(run: Run) -> Sequence[Prompt]:
    """What the recorded prompts ask; nothing where they are not here, or are others now."""
    profile = run.manifest["profile"]
    if profile["prompts"] == "paper":  # would be fetched
        return ()
    count, domains = profile["prompts_per_domain"], tuple(profile["domains"])
    try:
        found = load_prompts(profile["prompts"], count, domains)
    except ValueError:
        return ()
    return found if prompts_digest(found) == run.manifest["prompt_set"] else ()


# ---- files and notebooks -------------------------------------------------------------------------


def has_these_pieces(path: Path) -> bool:
    """Whether the page at `path` was made by these pieces, of whatever runs."""
    return f'content="{pieces_digest()}-' in _head(path)


def is_page_of(path: Path, runs: Sequence[Run]) -> bool:
    """Whether the page at `path` was made of these runs by these pieces."""
    return f'content="{page_digest(runs)}"' in _head(path)


def _head(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open(encoding="utf-8", errors="replace") as content:
        return content.read(4096)


def write_page(runs: Sequence[Run], path: Path, largest: int = LARGEST) -> bool:
    """Write the whole page where what it depends on changed; whether it was written.

    ValueError where something that is no such page is in its place.
    """
    if path.exists() and MARK not in _head(path):
        raise ValueError(f"--out {path} is something else; name a new file")
    if is_page_of(path, runs):
        return False
    content = page(runs, largest=largest).encode()
    written(path, lambda place: place.write_bytes(content))
    return True


def show(*parts: str, runs: Sequence[Run] = (), per_domain: int | None = None) -> None:
    """Show parts of the page (PARTS) below a notebook's cell, in a frame that holds all it needs:
    it works without a kernel, and in the notebook's exported HTML. A headless run
    shows nothing: there the figures stand for it.

    runs: as of `page`; none is needed for "bench". per_domain: as of `page`.
    """
    from IPython.display import HTML, display

    if not notebook.is_open():
        return
    small = assemble(None, "speclab", parts)
    content = page(runs, parts, per_domain=per_domain) if runs else small
    height = sum(HEIGHTS[part] for part in parts)
    display(
        HTML(
            f'<div><iframe srcdoc="{html.escape(content)}" '
            f'title="explore: {", ".join(parts)}" '
            f'style="width:100%;height:{height}px;border:0"></iframe></div>'
        )
    )
