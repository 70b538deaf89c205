"""A finished run as a trace: a folder to give away, with a card, and half as large."""

import html
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from jinja2 import Environment

from speclab.manifest import TABLES
from speclab.plain import Facts, checked, shown
from speclab.profiles import Profile
from speclab.runs import KINDS, Run, RunError, of_kind, write_facts

PAGE = """\
# Trace: {{ profile.name }}, {{ kind }}

{{ profile.description or profile.name }}.
What the draft gives the text that the target wrote, position by position: recorded once with
speclab, to be studied without the models.
This card is written from `manifest.json`, which has every setting, by `python -m speclab pack`.

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
| prompts recorded, of them cut | {{ prompts }}, {{ prompts_cut }} |
{% if not_argmax is not none -%}
| positions where the greedy token is not the argmax (rounding) | {{ not_argmax }} |
{% endif -%}
| prompt set (SHA-256) | {{ prompt_set }} |
| run key | {{ key }} |
| recorded | {{ finished }} |
| with | {% for name in libraries %}{{ name }} {{ libraries[name] }} {% endfor %}|

| file | a row is | rows |
| --- | --- | --- |
| `trace.parquet` | a position of a text: the target's token and how the draft ranks it \
| {{ rows.trace }} |
| `nodes.parquet` | a node of the draft tree that hangs on each position | {{ rows.nodes }} |

Columns as in the kit's GLOSSARY.md (schema version {{ schema }}); Parquet, zstd.
Licence of the text: {{ licence }}

Read it with `speclab.runs.load_run("FOLDER")`, which checks the checksums, or with any reader of
Parquet. `make reproduce` reads it where the run key is the one above: from the folder that a
profile names as `traces`, or with `SPECLAB_TRACES=FOLDER`.
"""


def pack(run: Run, out: Path, kind: str | None = None, licence: str | None = None) -> Path:
    """Write a finished run as a trace into the new folder `out`, which appears whole or not at all.

    kind: one of `runs.kinds_of`; None takes the one that it was recorded as. licence: of the text,
    in a line; None takes `licence` of the profile's notes. RunError: `out` holds anything.
    ValueError: no licence, or no run of this kind.
    """
    profile = run.manifest["profile"] | {"traces": None, "recorded": []}
    recorded_as = run.manifest["kind"]
    kind = kind or recorded_as
    if kind is None or (kind != recorded_as and not _is_of(profile, kind)):
        raise ValueError(
            f"{run.folder} is no run of kind {kind!r}; give --kind with one of {', '.join(KINDS)}"
        )
    licence = licence or profile["notes"].get("licence")
    if not str(licence or "").strip():
        raise ValueError(
            f"profile {profile['name']} does not say the licence of the text: add `licence` to "
            "its notes, or give --licence with a line about the prompts and the target's text"
        )
    if out.exists() and any(out.iterdir()):
        raise RunError(f"{out} is not empty; choose a new folder (--out)")
    tables = {name: run.table(name.partition(".")[0]) for name in TABLES}  # checked
    manifest = run.manifest | {"profile": profile, "kind": kind, "licence": licence}
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as place:
        folder = Path(place, "trace")
        folder.mkdir()
        for name, table in tables.items():
            _pack_table(run.folder / name, table, folder / name)
        (folder / "README.md").write_text(card(manifest), encoding="utf-8")
        write_facts(folder / "manifest.json", manifest, [folder / name for name in TABLES])
        if out.exists():
            out.rmdir()
        folder.rename(out)
    return out


def _is_of(profile: Facts, kind: str) -> bool:
    """Whether a run with these settings is one of this kind."""
    settings = checked(Profile, profile, "its profile", of_json=True)
    try:
        return of_kind(settings, kind) == settings
    except ValueError:
        return False


def card(manifest: dict[str, Any]) -> str:
    """README.md of a trace: PAGE with the values of its manifest, which stand there as text and
    never as Markdown or HTML.
    """
    pages = Environment(keep_trailing_newline=True, finalize=_as_text)
    return pages.from_string(PAGE).render(manifest)


def _as_text(value: object) -> str:
    """A value as Markdown that shows its characters, in one cell of a table."""
    text = html.escape(shown(value), quote=False)
    return re.sub(r"[\\`*\[\]|~#$]|\b_|_\b", r"\\\g<0>", text)


def _pack_table(path: Path, table: pa.Table, packed: Path) -> None:
    """Write the table of a run that stands at `path` again, smaller and with the same values.

    Bytes of float32 columns are stored by their place in the number, which packs 40 % better.
    """
    columns = list(pq.ParquetFile(path).schema)
    floats = [column.path for column in columns if column.physical_type == "FLOAT"]
    others = [column.path for column in columns if column.path not in floats]
    pq.write_table(
        table,
        packed,
        compression="zstd",
        compression_level=19,
        use_dictionary=others,
        use_byte_stream_split=floats,
    )
