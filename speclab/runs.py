"""Recorded runs on disk: blocks as part files, resume after a kill, checksums, one manifest.

Notebooks ask for (profile, kind).
"""

import contextlib
import datetime
import hashlib
import json
import platform
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cache, cached_property, partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from filelock import FileLock, Timeout
from tqdm import tqdm

from speclab import traces
from speclab.files import (
    SCHEMA_VERSION,
    SCHEMAS,
    Damaged,
    RunError,
    cannot_write,
    make_folder,
    part_facts,
    part_file,
    sealed,
    sha256_of,
    write_part,
    written,
)
from speclab.plain import brief, read_json
from speclab.profiles import ROOT, ModelSpec, Profile
from speclab.prompts import Prompt, encode_prompts, load_prompts, prompts_digest

if TYPE_CHECKING:
    from speclab.record import Engine, Job

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
    "chain": {
        "depth": 8,
        "branches": 1,
        "budget": 8,
    },  # what the draft would go on with, for stopping rules
    # the same prompts in the other format than the profile's
    "chat-template": {"template": "chat"},
    "plain-template": {"template": "none"},
}
RUNS = ROOT / "data" / "runs"
SAME_TEXT = {
    "balanced": "greedy",
    "chain": "greedy",
}  # only the tree differs: the target's text is read from the other run, if there
NOT_IN_KEY = (
    "name",
    "description",
    "notes",
    "block_prompts",
    "max_packed_tokens",
    "position_bin",
    "traces",
    "recorded",
    "notebooks",
)
LIBRARIES = (
    "torch",
    "transformers",
    "gptqmodel",
    "numpy",
    "pandas",
    "pyarrow",
    "datasets",
)


@dataclass(frozen=True)
class Run:
    """A finished run: `folder`, its `manifest`, and the frames `trace` and `nodes` (read when first
    asked for).
    """

    folder: Path
    manifest: dict

    def table(self, name: str) -> pa.Table:
        """`trace` or `nodes` as it stands in its file. Damaged where it is not what was written."""
        path = self.folder / f"{name}.parquet"
        if not path.is_file():
            raise Damaged(f"{self.folder}: no {path.name}; {traces.MEND}")
        try:
            table = pq.read_table(path)
        except (pa.ArrowException, OSError) as error:
            said = " ".join(str(error).split())
            raise Damaged(f"{path} is damaged ({said}); {traces.MEND}") from None
        version = (table.schema.metadata or {}).get(b"speclab_schema", b"none").decode()
        if version != str(SCHEMA_VERSION):
            raise RunError(
                f"{path}: schema version {version}, this kit reads {SCHEMA_VERSION}; "
                "record this run again"
            )
        if table.num_rows != self.manifest["rows"][name]:
            raise Damaged(
                f"{path}: {table.num_rows} rows, the manifest says "
                f"{self.manifest['rows'][name]}; {traces.MEND}"
            )
        self._check_ids(path, table)
        return table

    def _check_ids(self, path: Path, table: pa.Table) -> None:
        """Damaged where a token is none of the pair's."""
        said = self.manifest["pair"]["shared_vocabulary"]
        for name in {"token", "target_top", "draft_top", "top_draft_ids"} & {
            *table.column_names
        }:
            column = table[name]
            ids = pc.list_flatten(column) if pa.types.is_list(column.type) else column
            ends = pc.min_max(ids).as_py()
            if len(ids) and not 0 <= ends["min"] <= ends["max"] < said:
                raise Damaged(
                    f"{path}: {name} has ids from {ends['min']} to {ends['max']}, the pair has "
                    f"0 to {said - 1}; {traces.MEND}"
                )

    @cached_property
    def trace(self) -> pd.DataFrame:
        """One row per (prompt, position)."""
        return self.table("trace").to_pandas()

    @cached_property
    def nodes(self) -> pd.DataFrame:
        """One row per drafted node."""
        return self.table("nodes").to_pandas()


def load_run(folder: str | Path) -> Run:
    """A finished run, or a packed trace, from its folder, its tables held against the checksums in
    its manifest. RunError when it is not finished, Damaged when it is not as it was written.
    """
    path = Path(folder) / "manifest.json"
    if not path.is_file():
        raise RunError(
            f"{folder}: no manifest.json, so no finished run; "
            f"record it (python -m speclab record --out {folder})"
        )
    manifest = traces.read_manifest(path.parent)
    traces.check_whole(path.parent, manifest)
    return Run(path.parent, manifest)


def whole_run(folder: Path) -> Run | None:
    """The finished run in a folder; None where there is none, and, said aloud, where it is damaged:
    `record_run` mends it from its parts.
    """
    if not (folder / "manifest.json").is_file():
        return None
    try:
        return load_run(folder)
    except Damaged as error:
        print(f"{error}: doing that now", file=sys.stderr)
        return None


# ---- keys ----------------------------------------------------------------------------------------


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
            state = file.stat()
            digests[file.name] = _file_digest(file, state.st_size, state.st_mtime_ns)
    total = hashlib.sha256()
    for name in sorted(digests):
        total.update(digests[name])
    return total.hexdigest()[:40]


def _promised_weights(folder: Path) -> dict[str, bytes]:
    """SHA-256 by name of the weights that the folder's source.json promises; {} without one."""
    source = folder / "source.json"
    if not source.is_file():
        return {}
    do = "take it from the repository again (git checkout)"
    facts = read_json(source, do)
    try:
        weights = facts["weights"].items()
        return {name: bytes.fromhex(made["sha256"]) for name, made in weights}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ValueError(f"{source} does not say which weights; {do}") from None


@cache
def _file_digest(file: Path, size: int, mtime_ns: int) -> bytes:
    """SHA-256 of a file; read once a process as long as it is not changed (4 GB take 10 s, and a
    key is asked for several times).
    """
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").digest()


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


def _settings(profile: Profile) -> dict:
    """The parameters that are part of the key."""
    return {
        name: value for name, value in asdict(profile).items() if name not in NOT_IN_KEY
    }


def run_key(profile: Profile, prompts: list[Prompt] | None = None) -> str:
    """Hash of everything that changes a run's numbers; `block_prompts` and `max_packed_tokens` do
    not. prompts: the profile's, where they are read already.
    """
    asked = prompts_digest(prompts or profile_prompts(profile))
    content = [SCHEMA_VERSION, _settings(profile), pair_digests(profile), asked]
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# ---- recording -----------------------------------------------------------------------------------


def _record_parts(
    job: "Job", folder: Path, engine: "Engine", progress: Callable | None
) -> list[dict]:
    """Facts of every block; those without a whole part file are recorded by the engine, each
    written as it is done.
    """
    names = [[p.prompt_id for p in block] for block in job.blocks]
    facts = [part_facts(folder, index) for index in range(len(names))]
    missing = [
        i for i, ids in enumerate(names) if not facts[i] or facts[i]["prompts"] != ids
    ]
    if not missing:
        return facts
    bar = partial(
        tqdm,
        desc=f"record {job.profile.name}",
        unit="block",
        total=len(names),
        initial=len(names) - len(missing),
    )
    for done in (progress or bar)(engine(job, missing)):
        facts[done.index] = {"prompts": names[done.index]} | done.facts
        write_part(
            folder, done.index, job.blocks[done.index], done.recorded, facts[done.index]
        )
    return facts


def _assemble(folder: Path, count: int) -> tuple[dict[str, int], dict[str, str]]:
    """All parts as one file each, row groups by block; returns rows by table, SHA-256 by file."""
    rows, files = {}, {}
    for name, schema in SCHEMAS.items():
        tables = [
            pq.read_table(part_file(folder, i, f"{name}.parquet")) for i in range(count)
        ]
        whole = pa.concat_tables(tables).replace_schema_metadata(schema.metadata)
        path = folder / f"{name}.parquet"
        written(path, lambda p, whole=whole: pq.write_table(whole, p))
        rows[name], files[path.name] = whole.num_rows, sha256_of(path)
    return rows, files


def _manifest(
    profile: Profile,
    key: str,
    prompts: list[Prompt],
    cuts: list[int],
    parts: list[dict],
    rows: dict[str, int],
    files: dict[str, str],
) -> dict:
    """What a run says of itself; cuts: tokens cut from the prompts that were too long."""
    times = [part["time_s"] for part in parts]
    peaks = [part["peak_bytes"] for part in parts]
    return {
        "schema": SCHEMA_VERSION,
        "key": key,
        "profile": asdict(profile),
        "pair": parts[0]["pair"],
        "weights": pair_digests(profile),
        "rows": rows,
        "files": files,
        "prompts": len(prompts),
        "prompts_cut": len(cuts),
        "tokens_cut": sum(cuts),
        "prompt_set": prompts_digest(prompts),
        "time_s": sum(times),
        "block_time_s": times,
        "peak_bytes": {
            name: max(peak.get(name, 0) for peak in peaks) for name in peaks[0]
        },
        "max_packed_tokens": min(part["max_packed_tokens"] for part in parts),
        # gptqmodel is an extra
        "libraries": {name: version(name) for name in LIBRARIES if find_spec(name)},
        "python": platform.python_version(),
        "machine": platform.machine(),
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def record_run(
    profile: Profile,
    folder: Path,
    pair=None,
    progress: Callable | None = None,
    texts: dict | None = None,
    engine: "Engine | None" = None,
    prompts: list[Prompt] | None = None,
    wait: bool = False,
) -> Run:
    """Record a profile into a folder, block by block; goes on where an earlier call stopped and
    ends with the same bytes.

    pair: loaded already, for the default engine (this process). progress: wraps the iterator of
    blocks (default: a progress bar). texts: continuations by prompt_id, of an earlier run of the
    same target over the same prompts; None generates them. engine: who runs the blocks, see
    speclab.ops.engines. prompts: the profile's, where they are read already. wait: for another
    process that records into the folder, and take what it made. RunError: folder in use, not
    writable, or holding another run. NonFiniteProbability: a model broke down.
    """
    import torch

    from speclab.models.pairs import load_tokenizer, model_folder
    from speclab.record import Job, in_process

    folder, prompts = Path(folder), prompts or profile_prompts(profile)
    key = run_key(profile, prompts)
    tokenizer = load_tokenizer(model_folder(profile.target))
    encoded = encode_prompts(
        tokenizer, prompts, profile.max_prompt_tokens, profile.template
    )
    cuts = [prompt.cut for prompt in encoded if prompt.cut]
    size = profile.block_prompts
    blocks = tuple(tuple(encoded[i : i + size]) for i in range(0, len(encoded), size))
    job = Job(profile, blocks, texts, torch.get_num_threads())
    _check_same_run(folder, key, profile)  # before anything is written there
    was_there = (folder / "manifest.json").is_file()  # then it is damaged: to be mended
    with _alone(folder, wait):
        if wait and not was_there and (folder / "manifest.json").is_file():
            return load_run(folder)  # another process has just finished it
        _check_same_run(folder, key, profile)
        told = _told(key, profile)
        written(folder / "settings.json", lambda path: path.write_text(told))
        if cuts:
            print(
                f"{len(cuts)} of {len(encoded)} prompts were cut to "
                f"max_prompt_tokens={profile.max_prompt_tokens}",
                file=sys.stderr,
            )
        parts = _record_parts(
            job, folder, engine or partial(in_process, pair=pair), progress
        )
        rows, files = _assemble(folder, len(blocks))
        manifest = _manifest(profile, key, prompts, cuts, parts, rows, files)
        text = json.dumps(sealed(manifest), indent=1, default=str)
        written(folder / "manifest.json", lambda path: path.write_text(text))
    return load_run(folder)


@contextlib.contextmanager
def _alone(folder: Path, wait: bool) -> Iterator[None]:
    """No other process records into the folder meanwhile. One that does is waited for, or else is a
    RunError.
    """
    make_folder(folder, "choose another folder (--out)")
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if not wait:
            raise RunError(
                f"{folder} is being written by another run; wait for it or choose another folder "
                "(--out)"
            ) from None
        print(f"{folder.name} is being recorded: waiting for it", file=sys.stderr)
        lock.acquire()
    except OSError as error:
        raise cannot_write(folder, error) from error
    try:
        yield
    finally:
        lock.release()


def _check_same_run(folder: Path, key: str, profile: Profile) -> None:
    """RunError when the folder holds a run with other settings."""
    path = folder / "settings.json"
    if not path.is_file() or path.read_bytes() == _told(key, profile).encode():
        return
    do = "choose another folder (--out) or remove this one"
    try:
        read_json(path, do)
    except ValueError as error:
        raise Damaged(error) from None
    raise RunError(f"{folder} holds a run with other settings; {do}")


def _told(key: str, profile: Profile) -> str:
    """The settings file of a run."""
    import torch

    settings = {"key": key, "block_prompts": profile.block_prompts}
    # `auto` is float16 on a GPU, float32 on a CPU, under one key: parts of both never share a
    # folder (a finished run may be read anywhere)
    for name in ("target", "draft"):
        if getattr(profile, name).device == "auto" and torch.cuda.is_available():
            settings[name] = "cuda"
    return json.dumps(settings)


def of_kind(profile: Profile, kind: str) -> Profile:
    """The profile as a run of this kind is recorded; ValueError for a kind that is not in KINDS."""
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}: allowed are {', '.join(KINDS)}")
    return profile.replace(**KINDS[kind])


def kind_of(run: Run, named: str | None = None) -> str:
    """The kind that a run was recorded as: as `named`, else a trace says it, and of a folder under
    data/runs it is in the name. ValueError where it is not told, or the settings are another's.
    """
    profile, key = run.manifest["profile"], run.manifest["key"]
    own = {_name(profile["name"], kind, key): kind for kind in KINDS}
    kind = named or run.manifest.get("kind") or own.get(run.folder.resolve().name)
    if kind not in KINDS:
        raise ValueError(
            f"{run.folder}: kind={kind!r}; give --kind with one of {', '.join(KINDS)}"
        )
    for name, value in KINDS[kind].items():
        if profile[name] != value:
            raise ValueError(
                f"{run.folder}: a run of kind {kind} has {name}={value}, this one has "
                f"{profile[name]}; give another --kind"
            )
    return kind


def load_or_record(
    profile: Profile, kind: str = "greedy", engine: "Engine | None" = None
) -> Run:
    """The recorded run of (profile, kind): from data/runs, else from a shipped trace of its key,
    else recorded now by `engine` (with a progress bar).

    A recorded run that is damaged is said and mended from its parts; RunError for a trace that is
    damaged. ModelsMissing where it has to be recorded and the models are not there.
    """
    prompts = profile_prompts(profile)
    found = _recorded(profile, kind, prompts)
    if found:
        return found
    asked = of_kind(profile, kind)
    folder = RUNS / _name(profile.name, kind, run_key(asked, prompts))
    misfit = _misfit(asked, kind, prompts)
    if not (folder / "parts").is_dir():
        _check_models(asked, kind, misfit)
    if misfit:
        traces.say_once(f"{misfit}: recording")
    same = kind in SAME_TEXT and _recorded(profile, SAME_TEXT[kind], prompts)
    texts = texts_of(same) if same else None
    return record_run(
        asked, folder, texts=texts, engine=engine, prompts=prompts, wait=True
    )


def _name(profile: str, kind: str, key: str) -> str:
    return f"{profile}-{kind}-{key}"


def recorded_run(profile: Profile, kind: str) -> Run | None:
    """The finished run, or shipped trace, of (profile, kind); None where it is yet to be recorded.

    RunError for a trace that is damaged. ModelsMissing where the models' key is not to be had.
    """
    return _recorded(profile, kind, profile_prompts(profile))


def check_kinds(profile: Profile) -> None:
    """A ValueError where the profile names kinds of run that there are not."""
    wrong = [kind for kind in profile.recorded if kind not in KINDS]
    if wrong:
        raise ValueError(
            f"recorded={list(profile.recorded)}: {brief(wrong[0])} is no kind of run; allowed are "
            f"{', '.join(KINDS)}"
        )


def _recorded(profile: Profile, kind: str, prompts: list[Prompt]) -> Run | None:
    """A finished run or a trace of this key, whatever kind it was recorded as; None without."""
    check_kinds(profile)
    key = run_key(of_kind(profile, kind), prompts)
    for name in (kind, *KINDS):
        folder = RUNS / _name(profile.name, name, key)
        if (folder / "manifest.json").is_file():
            return whole_run(folder)
    folder = traces.shipped_as(profile, key, kind)
    if folder is None:
        return None
    run = load_run(folder)
    traces.say_once(
        f"read from {_short(folder)} (recorded {run.manifest['finished'][:10]})"
    )
    return run


def _misfit(asked: Profile, kind: str, prompts: list[Prompt]) -> str:
    """What the shipped trace of this kind has otherwise than asked; "" where none is shipped."""
    if traces.records_itself(asked, kind):
        return ""
    shipped = traces.shipped(asked)
    if not shipped and asked.traces:
        return f"no trace in {asked.traces}, which {asked.name} names"
    folder = traces.near(shipped, kind)
    if folder is None:
        return ""
    digest = prompts_digest(prompts)
    words = traces.misfit_in_words(
        traces.read_manifest(folder), _settings(asked), pair_digests(asked), digest
    )
    return f"{_short(folder)} is another run ({words})"


def _check_models(asked: Profile, kind: str, misfit: str) -> None:
    """ModelsMissing, with what is there and what is asked, where weights are not here."""
    from speclab.models.pairs import ModelsMissing, model_folder, weight_bytes

    try:
        for spec in (asked.target, asked.draft):
            weight_bytes(model_folder(spec))
    except ModelsMissing as error:
        there = misfit or f"no run or trace of {asked.name}, {kind}, has these settings"
        raise ModelsMissing(f"{there}; to record it: {error}") from None


def _short(folder: Path) -> str:
    """A folder as it is named from the repository."""
    return str(folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder)


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
