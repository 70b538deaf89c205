"""A finished run as a trace: a folder for others, with a README, and half as large."""

import html
import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from jinja2 import Environment

from speclab.plain import shown
from speclab.study.manifest import TABLES
from speclab.study.profiles import Profile
from speclab.study.reading import checked
from speclab.study.runs import KINDS, Run, RunError, of_kind, write_facts

PAGE = """\
# Trace: {{ profile.name }}, {{ kind }}

{{ profile.description or profile.name }}.
The draft's predictions on the text that the target wrote, position by position. They were recorded
once with speclab, and can be studied without the models.
`python -m speclab pack` wrote this card from `manifest.json`, which has every setting.

| | target | draft |
| --- | --- | --- |
{% for fact in ("path", "revision", "architecture", "parameters", "layers", "width", "dtype",
                "kernel", "device", "gpu") -%}
| {{ fact }} | {{ pair.target[fact] }} | {{ pair.draft[fact] }} |
{% endfor -%}
| weights (digest) | {{ weights.target }} | {{ weights.draft }} |

| setting | |
| --- | --- |
| domains | {{ profile.domains | join(", ") if profile.domains else "all of the prompts" }} |
{% for name in ("template", "prompts", "prompts_per_domain", "max_prompt_tokens", "max_new_tokens",
                "depth", "branches", "budget", "temperature", "top_k", "top_p", "seed") -%}
| {{ name }} | {{ profile[name] }} |
{% endfor -%}
| prompts recorded, prompts cut | {{ prompts }}, {{ prompts_cut }} |
{% if not_argmax is not none -%}
| positions where the greedy token is not the argmax (rounding) | {{ not_argmax }} |
{% endif -%}
{% if left_out -%}
| left out of the target's own settings of generation | {{ left_out }} |
{% endif -%}
| prompt set (SHA-256) | {{ prompt_set }} |
| run key | {{ key }} |
| recorded | {{ finished }} |
| with | {% for name in libraries %}{{ name }} {{ libraries[name] }} {% endfor %}|

| file | one row per | rows |
| --- | --- | --- |
| `trace.parquet` | position of a text: the target's token and its rank under the draft \
| {{ rows.trace }} |
| `nodes.parquet` | node of the draft tree at each position | {{ rows.nodes }} |

The kit's GLOSSARY.md explains the columns (schema version {{ schema }}). Format: Parquet, zstd.
Licence of the text: {{ licence }}

Read it with `speclab.load_run("FOLDER")`, which verifies the checksums, or with any Parquet
reader. `make reproduce` reads it for a study with the same run key, from the folder that a profile
names as `traces`, or from `SPECLAB_TRACES=FOLDER`.
"""


def pack(run: Run, out: Path, kind: str | None = None, licence: str | None = None) -> Path:
    """Write a finished run as a trace into the new folder `out`, which appears whole or not at all.

    kind: one of `runs.kinds_of`; None takes the run's own kind. licence: of the text, in one line;
    None takes `licence` of the profile's notes. RunError: `out` exists. ValueError: no licence, or
    no run of this kind.
    """
    profile = run.manifest["profile"] | {"traces": None, "recorded": [], "drafts": []}
    settings = checked(Profile, profile, "its profile", of_json=True)
    # what the trace says of itself: its kind and the licence of its text
    kind = kind or run.manifest["kind"]
    if kind is None or (kind != run.manifest["kind"] and of_kind(settings, kind) != settings):
        raise ValueError(
            f"{run.folder} is no run of kind {kind!r}; name its kind with --kind, one of "
            f"{', '.join(KINDS)}"
        )
    licence = licence or profile["notes"].get("licence")
    if not str(licence or "").strip():
        raise ValueError(
            f"{run.folder} does not name the licence of its text; give it in one line: --licence "
            "'prompts: MIT; text: Apache-2.0, as its model'. A later run of this study has it if "
            "its YAML file says so before recording: notes: {licence: …}"
        )
    if os.path.lexists(out):
        raise RunError(f"{out} exists; choose a new folder (--out)")
    # checked tables first, then all files in a folder beside the new one
    tables = {name: run.table(name.partition(".")[0]) for name in TABLES}
    manifest = run.manifest | {"profile": profile, "kind": kind, "licence": licence}
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as temporary:
        folder = Path(temporary, "trace")
        folder.mkdir()
        for name, table in tables.items():
            _pack_table(run.folder / name, table, folder / name)
        (folder / "README.md").write_text(card(manifest), encoding="utf-8")
        write_facts(folder / "manifest.json", manifest, [folder / name for name in TABLES])
        folder.rename(out)
    return out


def card(manifest: dict[str, Any]) -> str:
    """README.md of a trace: PAGE with the values of its manifest, escaped so that they are shown as
    text and never read as Markdown or HTML.
    """
    pages = Environment(keep_trailing_newline=True, finalize=_as_text)
    return pages.from_string(PAGE).render(manifest)


def _as_text(value: object) -> str:
    """A value as Markdown that shows its characters, in one cell of a table."""
    text = html.escape(shown(value), quote=False)
    return re.sub(r"[\\`*\[\]|~#$]|\b_|_\b", r"\\\g<0>", text)


def _pack_table(path: Path, table: pa.Table, packed: Path) -> None:
    """Write the table of a run at `path` again, smaller and with the same values.

    The bytes of float32 columns are grouped by their position in the number, which compresses 40 %
    better.
    """
    types = {column.path: column.physical_type for column in pq.ParquetFile(path).schema}
    floats = [name for name, kind in types.items() if kind == "FLOAT"]
    pq.write_table(
        table,
        packed,
        compression="zstd",
        compression_level=19,
        use_dictionary=[*types.keys() - floats],
        use_byte_stream_split=floats,
    )
