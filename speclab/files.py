"""Files of a run: schemas, atomic writing, checksums.

A block counts once its marker stands beside its two Parquet files. Markers and manifests are
sealed: they hold the checksums of the tables and one of themselves, so that no changed bit is read.
"""

import contextlib
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock

from speclab.plain import read_json
from speclab.prompts import EncodedPrompt

SCHEMA_VERSION = 1
I32, F32, IDS, PROBS = (
    pa.int32(),
    pa.float32(),
    pa.list_(pa.int32()),
    pa.list_(pa.float32()),
)
WHO = {"prompt_id": pa.string(), "domain": pa.string(), "position": I32}
TRACE = WHO | {
    "token": I32,
    "draft_rank": I32,
    "p_token": F32,
    "q_token": F32,
    "overlap": F32,
    "kl": F32,
    "target_entropy": F32,
    "draft_entropy": F32,
    "target_top": I32,
    "draft_top": I32,
    "target_margin": F32,
    "top_draft_ids": IDS,
    "top_draft_q": PROBS,
    "top_draft_p": PROBS,
}
NODES = WHO | {
    "node": I32,
    "parent": I32,
    "depth": I32,
    "rank": I32,
    "token": I32,
    "draft_prob": F32,
    "target_prob": F32,
    "target_entropy": F32,
    "draft_entropy": F32,
    "target_rank": I32,
    "best_path": pa.bool_(),
}
# markers of kits before 0.2, which were not sealed
UNSEALED = {"prompts", "time_s", "pair", "peak_bytes", "max_packed_tokens", "sha256"}
META = {"speclab_schema": str(SCHEMA_VERSION)}
SCHEMAS = {"trace": pa.schema(TRACE, META), "nodes": pa.schema(NODES, META)}


class RunError(RuntimeError):
    """A run could not be recorded or read; the message says what to do, and what was recorded is
    kept.
    """


class Damaged(RunError):
    """A file of a finished run is not what was written; recording again mends it from its parts."""


def sha256_of(path: Path) -> str:
    """SHA-256 (hex) of a file's content."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def sealed(facts: dict) -> dict:
    """Facts with `seal`, the SHA-256 of the others as JSON."""
    plain = {name: value for name, value in facts.items() if name != "seal"}
    text = json.dumps(plain, sort_keys=True, default=str)
    return plain | {"seal": hashlib.sha256(text.encode()).hexdigest()}


def is_sealed(facts: dict) -> bool:
    """Whether sealed facts are those that were written."""
    return facts.get("seal") == sealed(facts)["seal"]


def make_folder(folder: Path, do: str = "choose another folder") -> None:
    """Make a folder where there is none; RunError, with what to `do`, when it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"cannot write {folder}: {error.strerror or error}; {do}"
        ) from error


def cannot_write(
    place: Path, error: OSError, kept: str = "Finished blocks are kept"
) -> RunError:
    """What to do where a file or folder cannot be written."""
    return RunError(
        f"cannot write {place}: {error.strerror or error}. {kept}; "
        "free space or choose another folder (--out), then run again"
    )


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time works in `folder`, which is made if need be; others wait.

    RunError when it cannot be made.
    """
    make_folder(folder)
    with FileLock(folder / ".lock"):
        yield


def written(
    path: Path, write: Callable[[Path], None], kept: str = "Finished blocks are kept"
) -> None:
    """Write under a temporary name and rename; an error names the folder and says what is not lost.

    Half a file is removed: it would take the room that the user makes.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise cannot_write(path, error, kept) from error


def _table(
    name: str, prompts: Sequence[EncodedPrompt], columns: list[dict]
) -> pa.Table:
    tables = []
    for prompt, found in zip(prompts, columns, strict=True):
        count = len(found["position"])
        found = {
            "prompt_id": [prompt.prompt_id] * count,
            "domain": [prompt.domain] * count,
        } | found
        # a column of lists comes as a matrix, which Arrow takes row by row
        arrays = [
            pa.array(list(found[field.name]), field.type)
            if pa.types.is_list(field.type)
            else pa.array(found[field.name], field.type)
            for field in SCHEMAS[name]
        ]
        tables.append(pa.table(arrays, schema=SCHEMAS[name]))
    return pa.concat_tables(tables)


def part_file(folder: Path, index: int, name: str) -> Path:
    """Where a block's `name` (json, trace.parquet, nodes.parquet) stands."""
    return folder / "parts" / f"{index:05d}.{name}"


def _hashes(folder: Path, index: int) -> dict[str, str]:
    files = {name: part_file(folder, index, f"{name}.parquet") for name in SCHEMAS}
    return {name: sha256_of(file) for name, file in files.items()}


def write_part(
    folder: Path,
    index: int,
    prompts: Sequence[EncodedPrompt],
    recorded: list,
    facts: dict,
) -> None:
    """One block: two Parquet files, then the marker with their checksums; without the marker the
    block does not count.
    """
    for name in SCHEMAS:
        table = _table(name, prompts, [getattr(r, name) for r in recorded])
        path = part_file(folder, index, f"{name}.parquet")
        written(path, lambda p, table=table: pq.write_table(table, p))
    text = json.dumps(sealed(facts | {"sha256": _hashes(folder, index)}))
    written(part_file(folder, index, "json"), lambda p: p.write_text(text))


def part_facts(folder: Path, index: int) -> dict | None:
    """Facts of a whole part; None when it was never finished; said aloud when it is damaged (it is
    then recorded again).
    """
    marker = part_file(folder, index, "json")
    if not marker.is_file():
        return None
    reason = "a checksum differs"
    try:
        facts = read_json(marker, "remove it")
        whole = is_sealed(facts) or set(facts) == UNSEALED
        if whole and facts["sha256"] == _hashes(folder, index):
            return facts
    except (OSError, ValueError, KeyError) as error:
        reason = f"{type(error).__name__}: {error}"
    print(
        f"part {index} in {folder} is damaged ({reason}): recording it again",
        file=sys.stderr,
    )
    return None


def export(
    frame: pd.DataFrame, folder: Path | str, name: str, digits: int = 3
) -> tuple[Path, Path]:
    """Write name.csv (full precision) and name.tex (booktabs, `digits` decimals, missing as a
    dash); returns both paths.

    Files are byte-stable and appear whole. ValueError if the frame is empty.
    """
    if frame.empty:
        raise ValueError(f"table {name!r} is empty: nothing to write")
    table, page = Path(folder) / f"{name}.csv", Path(folder) / f"{name}.tex"
    named = frame if isinstance(frame.index, pd.RangeIndex) else frame.reset_index()
    plain = named.astype(object).where(named.notna(), None)
    latex = plain.rename(columns=lambda column: str(column).replace("_", " "))
    latex = latex.to_latex(
        index=False, escape=True, na_rep="--", float_format=f"%.{digits}f"
    )
    for path, text in (
        (table, named.to_csv(index=False, lineterminator="\n")),
        (page, latex),
    ):
        content = text.encode()
        written(
            path,
            lambda p, content=content: p.write_bytes(content),
            "Other tables are kept",
        )
    return table, page
