"""A run folder: what one pair did over one set of prompts, recorded once, to be read for ever.

It holds `trace.parquet` and `nodes.parquet` (SCHEMAS), `manifest.json`, written last, with all
settings and the tables' SHA-256, and, of a recording, `settings.json` and `parts/`: two tables and
a marker a block, from which an interrupted run goes on and a damaged one is mended. Runs are looked
for under data/runs, then among those that are shipped with a profile ('traces': the same folder
without parts, and with a card), each by its key: a hash of all that changes its numbers.
"""

import datetime
import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, cached_property, partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout
from tqdm import tqdm

from speclab.plain import read_json
from speclab.profiles import ROOT, ModelSpec, Profile
from speclab.prompts import (
    EncodedPrompt,
    Prompt,
    encode_prompts,
    load_prompts,
    prompts_digest,
)

if TYPE_CHECKING:
    from speclab.record import Engine, Job, Recorded

ONE_NODE = {"depth": 1, "branches": 1, "budget": 1}
KINDS = {
    "greedy": {},  # the profile as it stands
    "sampled": {"temperature": 1.0},
    # text at other temperatures and of other seeds: one drafted token a position, which is all that
    # a replay of chains and trees needs beside the draft's ranks along the text
    "sampled-0.3": {"temperature": 0.3} | ONE_NODE,
    "sampled-0.7": {"temperature": 0.7} | ONE_NODE,
    "sampled-seed-1": {"temperature": 1.0, "seed": 1} | ONE_NODE,
    "sampled-seed-2": {"temperature": 1.0, "seed": 2} | ONE_NODE,
    "balanced": {"budget": None},  # every level of the tree complete
    # what the draft would go on with, for stopping rules
    "chain": {"depth": 8, "branches": 1, "budget": 8},
    # the same prompts in the other format than the profile's
    "chat-template": {"template": "chat"},
    "plain-template": {"template": "none"},
    # three times as long, of fewer prompts: what a study learns from the length of its texts
    "long": {"max_new_tokens": 192, "prompts_per_domain": 20} | ONE_NODE,
    # the project's prompts without the words around their problems; the second set, all of it
    "unwrapped": {"prompts": "unwrapped"},
    "second": {"prompts": "second", "prompts_per_domain": 75},
    "unwrapped-sampled": {"prompts": "unwrapped", "temperature": 1.0} | ONE_NODE,
    "second-sampled": {
        "prompts": "second",
        "prompts_per_domain": 75,
        "temperature": 1.0,
    }
    | ONE_NODE,
}
# only the tree differs: the target's text is read from the other run, if there
SAME_TEXT = {"balanced": "greedy", "chain": "greedy"}
RUNS = ROOT / "data" / "runs"
# environment variable: a folder with a shipped run for each kind, or one such run
PLACE = "SPECLAB_TRACES"
BENCH = "combined_*.jsonl*"  # SpecDecode-Bench's files, which it may hold instead

SCHEMA_VERSION = 1
I32, F32 = pa.int32(), pa.float32()
IDS, PROBS = pa.list_(I32), pa.list_(F32)
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
META = {"speclab_schema": str(SCHEMA_VERSION)}
SCHEMAS = {"trace": pa.schema(TRACE, META), "nodes": pa.schema(NODES, META)}
TABLES = [f"{name}.parquet" for name in SCHEMAS]


class RunError(RuntimeError):
    """A run could not be recorded or read; the message says what to do, and what was recorded is
    kept.
    """


class Damaged(RunError):
    """A file of a finished run is not what was written; recording again mends it from its parts."""


MEND = (
    "a run: record it again, it is mended from its parts; a trace: fetch its folder again, or "
    "remove it to record"
)


# ---- files that appear whole, or not at all ------------------------------------------------------


def sha256_of(path: Path) -> str:
    """SHA-256 (hex) of a file's content."""
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def written(path: Path, write: Callable[[Path], Any]) -> None:
    """Write under a temporary name and rename: the file appears whole, or not at all.

    Half a file is removed: it would take the room that the user makes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    try:
        write(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time works in `folder`, which is made if need be; others wait for it."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"{folder.name} is in use: waiting for it", file=sys.stderr)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _hash(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def write_facts(path: Path, facts: dict, tables: list[Path]) -> None:
    """Write facts as JSON, with `files`, the SHA-256 of the tables beside it, and `seal`, that of
    all the rest. It is written last: what it names is whole.
    """
    files = {table.name: sha256_of(table) for table in tables}
    facts = facts | {"files": files}
    sealed = facts | {"seal": _hash(facts)}
    text = json.dumps(sealed, indent=1, default=str) + "\n"
    written(path, lambda place: place.write_text(text, encoding="utf-8"))


def read_facts(path: Path, do: str) -> dict:
    """What `write_facts` wrote; Damaged, with what to `do`, where a bit of it, or of the tables, is
    another.
    """
    try:
        facts = read_json(path, do)
    except ValueError as error:
        raise Damaged(error) from None
    seal = facts.pop("seal", None)
    if seal != _hash(facts) or "files" not in facts:
        raise Damaged(f"{path} is not as it was written (its seal is another); {do}")
    for name, digest in facts["files"].items():
        table = path.parent / name
        if not table.is_file() or sha256_of(table) != digest:
            raise Damaged(f"{table} is damaged or missing (its checksum differs); {do}")
    return facts


# ---- parts: the blocks of a recording ------------------------------------------------------------


def part_file(folder: Path, index: int, name: str) -> Path:
    """Where a block's `name` (json, trace.parquet, nodes.parquet) stands."""
    return folder / "parts" / f"{index:05d}.{name}"


def _table(
    name: str, prompts: Sequence[EncodedPrompt], recorded: Sequence["Recorded"]
) -> pa.Table:
    tables = []
    for prompt, one in zip(prompts, recorded, strict=True):
        columns = getattr(one, name)
        count = len(columns["position"])
        ids, domains = [prompt.prompt_id] * count, [prompt.domain] * count
        found = columns | {"prompt_id": ids, "domain": domains}
        # a column of lists comes as a matrix, which Arrow takes row by row
        rows = {column: list(found[column]) for column in SCHEMAS[name].names}
        tables.append(pa.table(rows, SCHEMAS[name]))
    return pa.concat_tables(tables)


def write_part(
    folder: Path,
    index: int,
    prompts: Sequence[EncodedPrompt],
    recorded: Sequence["Recorded"],
    facts: dict,
) -> None:
    """One block: two Parquet files, then the marker with their checksums; without the marker the
    block does not count.
    """
    paths = [part_file(folder, index, name) for name in TABLES]
    for name, path in zip(SCHEMAS, paths, strict=True):
        written(path, partial(pq.write_table, _table(name, prompts, recorded)))
    write_facts(part_file(folder, index, "json"), facts, paths)


def part_facts(folder: Path, index: int) -> dict | None:
    """Facts of a whole part; None when it was never finished; said aloud when it is damaged (it is
    then recorded again).
    """
    marker = part_file(folder, index, "json")
    if not marker.is_file():
        return None
    try:
        return read_facts(marker, "recording it again")
    except Damaged as error:
        print(f"part {index} in {folder}: {error}", file=sys.stderr)
        return None


# ---- reading -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """A finished run: `folder`, its `manifest`, and the frames `trace` and `nodes` (read when first
    asked for).
    """

    folder: Path
    manifest: dict

    @cached_property
    def trace(self) -> pd.DataFrame:
        """One row per (prompt, position)."""
        return pq.read_table(self.folder / "trace.parquet").to_pandas()

    @cached_property
    def nodes(self) -> pd.DataFrame:
        """One row per drafted node."""
        return pq.read_table(self.folder / "nodes.parquet").to_pandas()


def load_run(folder: str | Path) -> Run:
    """A finished run, or a shipped one, from its folder, its tables held against the checksums in
    its manifest. RunError when it is not finished or another version's, Damaged when it is not as
    it was written.
    """
    path = Path(folder) / "manifest.json"
    if not path.is_file():
        raise RunError(
            f"{folder}: no manifest.json, so no finished run; "
            f"record it (python -m speclab record --out {folder})"
        )
    manifest = read_facts(path, MEND)
    if manifest["schema"] != SCHEMA_VERSION:
        raise RunError(
            f"{path}: schema version {manifest['schema']}, this kit reads {SCHEMA_VERSION}; use "
            "the kit that wrote it, or remove the folder to record"
        )
    return Run(path.parent, manifest)


def texts_of(run: Run) -> dict[str, tuple[int, ...]]:
    """The target's continuations of a run, token ids by prompt_id."""
    rows = run.trace.sort_values("position")
    return {
        prompt: tuple(tokens.tolist())
        for prompt, tokens in rows.groupby("prompt_id")["token"]
    }


def tokenizer_of(run: Run) -> Any:
    """The tokenizer of a run's target; None where it is not on this machine."""
    from speclab.models.pairs import load_tokenizer, local_folder

    folder = local_folder(ModelSpec(**run.manifest["profile"]["target"]))
    if folder is None or not (folder / "tokenizer.json").is_file():
        return None
    return load_tokenizer(folder)


# ---- keys ----------------------------------------------------------------------------------------

NOT_IN_KEY = (
    "name",
    "description",
    "notes",
    "block_prompts",
    "max_packed_tokens",
    "traces",
    "recorded",
    "notebooks",
)


def weights_digest(folder: Path) -> str:
    """The hub's commit for a snapshot, else a hash of weights, configuration and tokenizer. Weights
    that are to be made from a `source.json` and are not there yet count by the hash it names.
    """
    if re.fullmatch(r"[0-9a-f]{40}", folder.name):
        return folder.name
    digests = _promised_weights(folder)
    settings = [folder / "config.json", folder / "tokenizer.json"]
    for file in [*folder.glob("*.safetensors"), *settings]:
        if file.is_file():
            digests[file.name] = _file_digest(file, file.stat().st_mtime_ns)
    inner = "".join(digests[name] for name in sorted(digests))
    return hashlib.sha256(bytes.fromhex(inner)).hexdigest()[:40]


def _promised_weights(folder: Path) -> dict[str, str]:
    """SHA-256 by name of the weights that the folder's source.json promises; {} without one."""
    source = folder / "source.json"
    if not source.is_file():
        return {}
    facts = read_json(source, "take it from the repository again (git checkout)")
    return {name: made["sha256"] for name, made in facts["weights"].items()}


@cache
def _file_digest(file: Path, mtime_ns: int) -> str:
    """SHA-256 of a file; read once a process as long as it is not changed (4 GB take 10 s, and a
    key is asked for several times).
    """
    return sha256_of(file)


def profile_prompts(profile: Profile) -> list[Prompt]:
    """The prompts that a profile asks for."""
    return load_prompts(profile.prompts, profile.prompts_per_domain, profile.domains)


def model_digest(spec: ModelSpec) -> str:
    """What names a model's weights: a commit of the hub that is asked for (nothing is fetched for
    that), else `weights_digest` of its folder.
    """
    from speclab.models.pairs import local_folder, model_folder

    pinned = re.fullmatch(r"[0-9a-f]{40}", spec.revision or "")
    if pinned and local_folder(spec) is None:
        return spec.revision
    return weights_digest(model_folder(spec))


def pair_digests(profile: Profile) -> dict[str, str]:
    """`model_digest` of the target and of the draft."""
    return {name: model_digest(getattr(profile, name)) for name in ("target", "draft")}


def _identity(profile: Profile, prompts: list[Prompt]) -> dict:
    """All that changes a run's numbers, by its names in a manifest."""
    settings = asdict(profile)
    for name in NOT_IN_KEY:
        del settings[name]
    return {
        "schema": SCHEMA_VERSION,
        "profile": settings,
        "weights": pair_digests(profile),
        "prompt_set": prompts_digest(prompts),
    }


def run_key(profile: Profile, prompts: list[Prompt] | None = None) -> str:
    """Hash of everything that changes a run's numbers; `block_prompts` and `max_packed_tokens` do
    not. prompts: the profile's, where they are read already.
    """
    content = _identity(profile, prompts or profile_prompts(profile))
    return _hash(list(content.values()))[:16]


def of_kind(profile: Profile, kind: str) -> Profile:
    """The profile as a run of this kind is recorded; ValueError for a kind that is not in KINDS."""
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}: allowed are {', '.join(KINDS)}")
    changes = dict(KINDS[kind])
    if "seed" in changes:  # the two smallest from 1 on that are not the profile's
        others = [seed for seed in (1, 2, 3) if seed != profile.seed]
        changes["seed"] = others[changes["seed"] - 1]
    return profile.replace(**changes)


# ---- finding: data/runs, then what is shipped ----------------------------------------------------


@cache
def say_once(line: str) -> None:
    """Print a line once a process, however often it is said."""
    print(line)


def shipped(profile: Profile, kind: str) -> list[Path]:
    """Folders of the traces that may be read for a kind of run, that of the same kind first: those
    under SPECLAB_TRACES, else (it is not set, or holds SpecDecode-Bench's files only) those that
    come with the profile, but not for a kind that each machine records itself.

    ValueError where SPECLAB_TRACES holds neither.
    """
    named = os.environ.get(PLACE)
    found = list(Path(named).rglob("manifest.json")) if named else []
    if named and not found and not any(Path(named).glob(BENCH)):
        raise ValueError(
            f"{PLACE}={named}: no trace there; name a folder that has some"
        )
    if not found and profile.traces and kind not in profile.recorded:
        found = (ROOT / profile.traces).rglob("manifest.json")
    folders = [manifest.parent for manifest in found]
    return sorted(folders, key=lambda folder: (folder.name != kind, folder))


def recorded_run(profile: Profile, kind: str) -> Run | None:
    """The finished run of (profile, kind), or else the shipped trace of its key; None where it is
    yet to be recorded, and, said aloud, where the run is damaged: `record_run` mends it.

    RunError for a trace that is damaged. ModelsMissing where the models' key is not to be had.
    """
    for name in profile.recorded:
        of_kind(profile, name)  # one that is mistyped would be passed over
    key = run_key(of_kind(profile, kind))
    for name in (kind, *KINDS):  # the same settings may be another kind's
        folder = RUNS / f"{profile.name}-{name}-{key}"
        if (folder / "manifest.json").is_file():
            try:
                return load_run(folder)
            except Damaged as error:
                print(f"{error}: doing that now", file=sys.stderr)
                return None
    traces = map(load_run, shipped(profile, kind))
    return next((trace for trace in traces if trace.manifest["key"] == key), None)


def load_or_record(
    profile: Profile, kind: str = "greedy", engine: "Engine | None" = None
) -> Run:
    """The recorded run of (profile, kind): from data/runs, else from a shipped trace of its key,
    else recorded now by `engine` (with a progress bar).

    A recorded run that is damaged is said and mended from its parts; RunError for a trace that is
    damaged. ModelsMissing where it has to be recorded and the models are not there.
    """
    found = recorded_run(profile, kind)
    if found:
        if not found.folder.is_relative_to(RUNS):
            day = found.manifest["finished"][:10]
            say_once(f"read from {_short(found.folder)} (recorded {day})")
        return found
    asked = of_kind(profile, kind)
    folder = RUNS / f"{profile.name}-{kind}-{run_key(asked)}"
    _say_misfit(asked, kind)
    same = kind in SAME_TEXT and recorded_run(profile, SAME_TEXT[kind])
    texts = texts_of(same) if same else None
    return record_run(asked, folder, texts=texts, engine=engine, kind=kind)


def _say_misfit(asked: Profile, kind: str) -> None:
    """Say what the shipped trace of this kind has otherwise than asked, if there is one."""
    wanted = json.loads(json.dumps(_identity(asked, profile_prompts(asked))))
    wanted |= wanted.pop("profile")
    for trace in map(load_run, shipped(asked, kind)):
        there = trace.manifest | trace.manifest["profile"]
        if there.get("kind") == kind:
            differ = [name for name in wanted if there.get(name) != wanted[name]]
            said = f"{_short(trace.folder)} is another run ({', '.join(differ)})"
            say_once(f"{said}: recording")


def _short(folder: Path) -> Path:
    """A folder as it is named from the repository."""
    return folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder


# ---- recording -----------------------------------------------------------------------------------

LIBRARIES = (
    "torch",
    "transformers",
    "gptqmodel",
    "numpy",
    "pandas",
    "pyarrow",
    "datasets",
)


def record_run(
    profile: Profile,
    folder: Path,
    pair=None,
    texts: dict | None = None,
    engine: "Engine | None" = None,
    kind: str | None = None,
) -> Run:
    """Record a profile into a folder, block by block; goes on where an earlier call stopped and
    ends with the same bytes.

    pair: loaded already, for the default engine (this process). texts: continuations by prompt_id,
    of an earlier run of the same target over the same prompts; None generates them. engine: who
    runs the blocks, see speclab.ops.engines. kind: what the manifest calls it. Where another
    process records into the folder, what it made is taken. RunError: the folder holds another run.
    NonFiniteProbability: a model broke down.
    """
    from speclab.record import in_process

    folder, prompts = Path(folder), profile_prompts(profile)
    key = run_key(profile, prompts)
    finished = folder / "manifest.json"
    was_there = finished.is_file()  # then it is damaged: to be mended
    with locked(folder):
        if not was_there and finished.is_file():
            return load_run(folder)  # another process has just finished it
        _write_settings(folder / "settings.json", key, profile)
        job = _job(profile, prompts, texts)
        if cut := sum(prompt.cut > 0 for block in job.blocks for prompt in block):
            longest = profile.max_prompt_tokens
            print(f"{cut} prompts are cut to {longest} tokens", file=sys.stderr)
        engine = engine or partial(in_process, pair=pair)
        parts = _record_parts(job, folder, engine)
        manifest = _identity(profile, prompts) | {"key": key, "kind": kind}
        manifest |= _facts(job, parts) | {"rows": _assemble(folder, len(parts))}
        write_facts(finished, manifest, [folder / name for name in TABLES])
    return load_run(folder)


def _write_settings(path: Path, key: str, profile: Profile) -> None:
    """Write the settings of a run; RunError where the folder holds a run with others."""
    import torch

    settings = {"key": key, "block_prompts": profile.block_prompts}
    # `auto` is float16 on a GPU, float32 on a CPU, under one key: parts of both never share a
    # folder (a finished run may be read anywhere)
    for name in ("target", "draft"):
        if getattr(profile, name).device == "auto" and torch.cuda.is_available():
            settings[name] = "cuda"
    content = json.dumps(settings).encode()
    if path.is_file() and path.read_bytes() != content:
        raise RunError(
            f"{path.parent} holds a run with other settings; choose another folder (--out) or "
            "remove this one"
        )
    written(path, lambda place: place.write_bytes(content))


def _job(profile: Profile, prompts: list[Prompt], texts: dict | None) -> "Job":
    """The work of a recording."""
    import torch

    from speclab.models.pairs import load_tokenizer, model_folder
    from speclab.record import Job

    tokenizer = load_tokenizer(model_folder(profile.target))
    longest = profile.max_prompt_tokens
    encoded = encode_prompts(tokenizer, prompts, longest, profile.template)
    size = profile.block_prompts
    blocks = tuple(tuple(encoded[i : i + size]) for i in range(0, len(encoded), size))
    return Job(profile, blocks, texts, torch.get_num_threads())


def _record_parts(job: "Job", folder: Path, engine: "Engine") -> list[dict]:
    """Facts of every block; those without a whole part file are recorded by the engine, each
    written as it is done.
    """
    facts = [part_facts(folder, index) for index in range(len(job.blocks))]
    missing = [index for index, known in enumerate(facts) if known is None]
    if not missing:
        return facts
    said, count = f"record {job.profile.name}", len(missing)
    for done in tqdm(engine(job, missing), said, count, unit="block"):
        facts[done.index] = done.facts
        block = job.blocks[done.index]
        write_part(folder, done.index, block, done.recorded, done.facts)
    return facts


def _assemble(folder: Path, count: int) -> dict[str, int]:
    """All parts as one file each, row groups by block; returns the rows by table."""
    rows = {}
    for name in SCHEMAS:
        file = f"{name}.parquet"
        parts = [pq.read_table(part_file(folder, i, file)) for i in range(count)]
        whole = pa.concat_tables(parts)
        written(folder / file, partial(pq.write_table, whole))
        rows[name] = whole.num_rows
    return rows


def _facts(job: "Job", parts: list[dict]) -> dict:
    """What a run says of itself beside its key; parts: the facts of its blocks."""
    cuts = [prompt.cut for block in job.blocks for prompt in block]
    peaks = pd.DataFrame([part["peak_bytes"] for part in parts]).max()
    return {
        "profile": asdict(job.profile),
        "pair": parts[0]["pair"],
        "prompts": len(cuts),
        "prompts_cut": sum(cut > 0 for cut in cuts),
        "time_s": sum(part["time_s"] for part in parts),
        "peak_bytes": peaks.astype(int).to_dict(),
        "max_packed_tokens": min(part["max_packed_tokens"] for part in parts),
        # gptqmodel is an extra
        "libraries": {name: version(name) for name in LIBRARIES if find_spec(name)},
        "python": platform.python_version(),
        "machine": platform.machine(),
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
