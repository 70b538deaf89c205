"""Traces as data: a finished run packed as a folder with a card, to be read where the models are
not.

Such a folder holds manifest.json (written last; it names the checksums of the two tables),
trace.parquet, nodes.parquet and README.md, the card.
"""

import json
import os
import shutil
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from speclab.files import (
    F32,
    SCHEMA_VERSION,
    SCHEMAS,
    Damaged,
    RunError,
    is_sealed,
    sealed,
    sha256_of,
    written,
)
from speclab.plain import brief, read_json
from speclab.profiles import ROOT, Profile, load_profile, profile_names

if TYPE_CHECKING:
    from speclab.runs import Run

# environment variable: a folder with a trace for each kind, or one trace
PLACE = "SPECLAB_TRACES"
CARD = "README.md"
TABLES = tuple(f"{name}.parquet" for name in SCHEMAS)
NAMES = {"manifest.json", CARD, *TABLES}
NEEDED = {"schema", "key", "profile", "rows", "prompts", "prompt_set"}
MEND = (
    "a run: record it again, it is mended from its parts; a trace: fetch its folder again, or "
    "remove it to record"
)


@cache
def say_once(line: str) -> None:
    """Print a line once a process, however often it is said."""
    print(line)


# ---- reading -------------------------------------------------------------------------------------


def read_manifest(folder: Path) -> dict:
    """The manifest of a run or trace; Damaged when it is none or not as it was written, RunError
    when it is another version's.
    """
    path = folder / "manifest.json"
    try:
        manifest = read_json(path, MEND)
    except ValueError as error:
        raise Damaged(error) from None
    if not set(manifest) >= NEEDED:
        names = ", ".join(sorted(NEEDED))
        raise Damaged(f"{path} is no manifest (needed are {names}); {MEND}")
    if manifest["schema"] != SCHEMA_VERSION:
        raise RunError(
            f"{path}: schema version {brief(manifest['schema'])}, this kit reads "
            f"{SCHEMA_VERSION}; use the kit that wrote it, or remove the folder to record"
        )
    if "seal" not in manifest:
        raise Damaged(f"{path} has no checksums (an older kit wrote it); {MEND}")
    if not is_sealed(manifest):
        raise Damaged(f"{path} is not as it was written (its seal is another); {MEND}")
    return manifest


def check_whole(folder: Path, manifest: dict) -> None:
    """Damaged unless the tables are those that the manifest names; a packed trace has its card."""
    if "licence" in manifest and not (folder / CARD).is_file():
        raise RunError(
            f"{folder}: no {CARD}, and a trace is not read without its card; {MEND}"
        )
    for name in TABLES:
        path = folder / name
        if not path.is_file():
            raise Damaged(f"{folder}: no {name}; {MEND}")
        if sha256_of(path) != manifest["files"].get(name):
            raise Damaged(
                f"{path} is damaged (its SHA-256 is not the one in manifest.json); {MEND}"
            )


def shipped(profile: Profile) -> list[Path]:
    """Folders of the traces that come with a profile, or of those under SPECLAB_TRACES.

    ValueError where SPECLAB_TRACES holds none.
    """
    if named := os.environ.get(PLACE):
        found = _traces_in(Path(named))
        if not found:
            raise ValueError(
                f"{PLACE}={named}: no trace there; name a folder with manifest.json, or one that "
                "holds such folders"
            )
        return found
    if not profile.traces:
        return []
    found = _traces_in(ROOT / profile.traces)
    if not found:
        say_once(f"traces={profile.traces!r}: no trace there")
    return found


def records_itself(profile: Profile, kind: str) -> bool:
    """Whether a machine records this kind of run itself, also where a trace is shipped. What
    SPECLAB_TRACES names is read all the same.
    """
    return kind in profile.recorded and not os.environ.get(PLACE)


def shipped_as(profile: Profile, key: str, kind: str) -> Path | None:
    """The shipped trace that is read as a profile's run of this key and kind; None without."""
    return None if records_itself(profile, kind) else find(shipped(profile), key, kind)


def _traces_in(place: Path) -> list[Path]:
    if (place / "manifest.json").is_file():
        return [place]
    return sorted(path.parent for path in place.glob("[!.]*/manifest.json"))


def find(folders: list[Path], key: str, kind: str) -> Path | None:
    """The trace with this key, whatever kind it was recorded as; that of the same kind is looked
    at first.
    """
    for folder in sorted(folders, key=lambda folder: folder.name != kind):
        if read_manifest(folder)["key"] == key:
            return folder
    return None


def near(folders: list[Path], kind: str) -> Path | None:
    """The trace of this kind, with whatever settings."""
    for folder in folders:
        if read_manifest(folder).get("kind") == kind:
            return folder
    return None


def misfit_in_words(
    manifest: dict, settings: dict, weights: dict, prompt_set: str
) -> str:
    """What a trace has otherwise than asked, in words.

    settings: those in the run key, by the profile's names; weights: digests by model.
    """
    there, asked = _flat(manifest["profile"]), _flat(settings)
    words = [
        f"{name} is {there.get(name)} there, {value} is asked"
        for name, value in asked.items()
        if there.get(name) != value
    ]
    if words:
        return "; ".join(words)
    if manifest["prompt_set"] != prompt_set:
        return "the prompts are others"
    recorded = manifest.get("weights", {})
    models = [name for name in weights if recorded.get(name) != weights[name]]
    return f"the weights of {' and '.join(models) or 'a model'} are others"


def _flat(settings: dict) -> dict:
    """As a manifest has them (JSON), the models' own settings under `target.path` and the like."""
    flat = {}
    for name, value in json.loads(json.dumps(settings)).items():
        if name in ("target", "draft"):
            flat |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            flat[name] = value
    return flat


# ---- packing -------------------------------------------------------------------------------------


def pack(run: "Run", out: Path, kind: str, licence: str | None = None) -> Path:
    """Write a finished run as a trace of this `kind` into the folder `out`, which appears whole.

    licence: of the text, in a line; None takes `licence` of the profile's notes. RunError: `out`
    holds something else, the run is damaged, or it names folders of this machine (nobody else
    could ask for it). ValueError: no licence.
    """
    manifest = run.manifest
    _check_portable(run)
    text = licence or _licence_of(manifest["profile"])
    if not text.isprintable():
        raise ValueError(f"licence={brief(text)}: write it in one line")
    _check_free(out, manifest["key"])
    half = out.with_name(f".{out.name}.packing")
    try:
        shutil.rmtree(half, ignore_errors=True)
        files = {f"{name}.parquet": _packed(run, name, half) for name in SCHEMAS}
        profile = {
            k: v
            for k, v in manifest["profile"].items()
            if k not in ("traces", "recorded")
        }
        added = {"profile": profile, "kind": kind, "licence": text, "files": files}
        whole = manifest | added
        sizes = {name: (half / name).stat().st_size for name in files}
        page = card(whole, sizes)
        written(half / CARD, lambda path: path.write_text(page, encoding="utf-8"))
        content = json.dumps(sealed(whole), indent=1) + "\n"
        written(
            half / "manifest.json",
            lambda path: path.write_text(content, encoding="utf-8"),
        )
        if (out / "manifest.json").is_file():  # this very run, as was checked
            for name in (*TABLES, CARD, "manifest.json"):
                (half / name).replace(out / name)
        else:
            half.rename(out)
    except OSError as error:
        raise RunError(
            f"cannot write {out}: {error.strerror or error}; choose another folder (--out)"
        ) from error
    finally:
        shutil.rmtree(half, ignore_errors=True)
    return out


def _check_portable(run: "Run") -> None:
    profile = run.manifest["profile"]
    paths = [profile["target"]["path"], profile["draft"]["path"], profile["prompts"]]
    for path in paths:
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise RunError(
                f"{run.folder} was recorded with {path}, a place that others do not have: name "
                "it relative to the repository (models also by SPECLAB_MODELS), and record again"
            )


def _licence_of(profile: dict) -> str:
    """What the profile says of the text's licence, as it was recorded or as it stands now."""
    notes = profile["notes"]
    if "licence" not in notes and profile["name"] in profile_names():
        notes = load_profile(profile["name"]).notes
    if "licence" not in notes:
        raise ValueError(
            f"profile {profile['name']} does not say the licence of the text: add `licence` to "
            "its notes, or give --licence with a line about the prompts and the target's text"
        )
    return str(notes["licence"])


def _check_free(out: Path, key: str) -> None:
    """RunError unless a folder is new, empty, or holds a trace of this key and nothing else."""
    if not out.exists():
        return
    there = sorted(path.name for path in out.iterdir()) if out.is_dir() else [out.name]
    if out.is_dir() and not there:
        return
    packed = "manifest.json" in there and set(there) <= NAMES
    if packed and read_manifest(out)["key"] == key:
        return
    raise RunError(
        f"{out} holds something else ({', '.join(there[:3])}); choose a new folder (--out), or "
        "remove this one"
    )


def _packed(run: "Run", name: str, folder: Path) -> str:
    """Write one table of a run, smaller and with the same values; returns its SHA-256.

    Bytes of float32 columns are stored by their place in the number, which packs 40 % better.
    """
    table, path = run.table(name), folder / f"{name}.parquet"
    stored = dict(_stored(field) for field in table.schema)
    floats = [column for column in stored if stored[column] == F32]
    others = [column for column in stored if column not in floats]
    written(
        path,
        lambda place: pq.write_table(
            table,
            place,
            compression="zstd",
            compression_level=19,
            use_dictionary=others,
            use_byte_stream_split=floats,
        ),
        "The run itself is kept",
    )
    return sha256_of(path)


def _stored(field: pa.Field) -> tuple[str, pa.DataType]:
    """Name and type of a column as Parquet stores it: of a list, its elements."""
    if pa.types.is_list(field.type):
        return f"{field.name}.list.element", field.type.value_type
    return field.name, field.type


# ---- the card ------------------------------------------------------------------------------------

PAGE = """# Trace: {name}, {kind}

{description}.
What the draft gives the text that the target wrote, position by position: recorded once with
speclab, to be studied without the models.
This card is written from `manifest.json`, which has every setting, by `python -m speclab pack`.

## Pair
| | target | draft |
| --- | --- | --- |
{pair}

## Settings
| | |
| --- | --- |
{settings}

## Files
| file | what a row is | rows | MB | SHA-256 |
| --- | --- | --- | --- | --- |
{files}

Columns as in the kit's GLOSSARY.md (schema version {schema}); Parquet, zstd.

## Licence of the text
{licence}

## How to read it
```python
from speclab.runs import load_run

run = load_run("FOLDER")  # where this card is; checks the checksums
run.trace, run.nodes, run.manifest
```
Any reader of Parquet opens the tables.
`make reproduce` reads them where the run key is `{key}`: from the folder that a profile names as
`traces`, or with `SPECLAB_TRACES=FOLDER`.
"""
OF_MODELS = (
    "path",
    "revision",
    "architecture",
    "parameters",
    "layers",
    "width",
    "dtype",
)
NO_SETTINGS = (
    *("name", "description", "notes", "target", "draft"),
    *("position_bin", "block_prompts", "max_packed_tokens", "notebooks"),
)
ROWS = {
    "trace": "a position of a text: the target's token and how the draft ranks it",
    "nodes": "a node of the draft tree that hangs on each position",
}


def card(manifest: dict, sizes: dict[str, int]) -> str:
    """The page that says what a trace is, from its manifest; sizes: bytes of its tables."""
    profile, models = manifest["profile"], manifest["pair"]
    pair = [
        (fact, *(models[m].get(fact) for m in ("target", "draft")))
        for fact in OF_MODELS
    ]
    if weights := manifest.get("weights"):
        pair.append(("weights (digest)", weights["target"], weights["draft"]))
    settings = [(n, v) for n, v in profile.items() if n not in NO_SETTINGS]
    libraries = manifest["libraries"].items()
    settings += [
        ("ids that both models share", models["shared_vocabulary"]),
        ("prompts recorded", manifest["prompts"]),
        ("prompts cut at their end", manifest["prompts_cut"]),
        ("prompt set (SHA-256)", manifest["prompt_set"]),
        ("run key", manifest["key"]),
        ("recorded", manifest["finished"]),
        ("with", ", ".join(f"{name} {version}" for name, version in libraries)),
    ]
    files = [
        (
            f"`{name}.parquet`",
            what,
            manifest["rows"][name],
            f"{sizes[f'{name}.parquet'] / 1e6:.2f}",
            manifest["files"][f"{name}.parquet"],
        )
        for name, what in ROWS.items()
    ]
    about = profile["description"].rstrip(".") or profile["name"]
    return PAGE.format(
        name=profile["name"],
        kind=manifest["kind"],
        description=about[:1].upper() + about[1:],
        pair=_rows(pair),
        settings=_rows(settings),
        files=_rows(files),
        schema=manifest["schema"],
        licence=manifest["licence"],
        key=manifest["key"],
    )


def _rows(rows: list[tuple]) -> str:
    """Rows of a Markdown table; lists with commas, what is not there as a dash."""
    return "\n".join(f"| {' | '.join(map(_cell, row))} |" for row in rows)


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "–" if value is None else str(value).replace("|", "\\|")
