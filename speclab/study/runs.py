"""A run folder: what one pair did on one set of prompts, recorded once and read at any time.

It holds `trace.parquet` and `nodes.parquet` (SCHEMAS), and `manifest.json`, which is written last,
with all settings and the tables' SHA-256. A recording also has `settings.json` and `parts/`: two
tables and a marker per block, from which an interrupted run continues and a damaged run is
repaired. Runs are searched under data/runs, then among the shipped runs of a profile ('traces': the
same folder without parts, with a README). Each is found by its key: a hash of everything that
decides its numbers, without any path or name. Some prompts of a run are a run too (`Part`): as with
`block_prompts`, the other prompts of a batch change what is recorded of a prompt by rounding alone.
"""

import datetime
import json
import os
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property, partial
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

from speclab import place, score
from speclab.models.folder import ModelFolder
from speclab.plain import (
    EncodedPrompt,
    Facts,
    ModelSpec,
    Texts,
    checked,
    digest_of,
    near,
    notice,
    one_line,
    read_json,
    say_once,
    sha256_of,
)
from speclab.study.manifest import (
    KEY_VERSION,
    OF_BLOCKS,
    SCHEMA_VERSION,
    SCHEMAS,
    TABLES,
    Manifest,
    check_table,
    schema_of,
)
from speclab.study.pairs import left_out_in_words, pair_digests, read_by_target
from speclab.study.profiles import MODELS, ROOT, Profile
from speclab.study.prompts import (
    HUB_SETS,
    PER_DOMAIN,
    SETS,
    WITH_WORDS,
    Prompt,
    load_prompts,
    prompts_digest,
)

if TYPE_CHECKING:
    from speclab.model import Pair
    from speclab.record import Recorded
    from speclab.study.recording import Done, Engine, Job


ONE_NODE: Facts = {"depth": 1, "branches": 1, "budget": 1}
GREEDY: Facts = {"temperature": 0.0}
SAMPLED: Facts = {"temperature": None}  # None: the profile's own (`Profile.sampled_temperature`)
OWN_TEXTS: dict[str, Facts] = {"greedy": GREEDY, "sampled": SAMPLED}
OTHER_TEXTS: dict[str, Facts] = {
    # text at other temperatures and from other seeds: one drafted token per position, because a
    # replay of chains and trees needs only the draft's ranks along the text besides
    "sampled-0.3": {"temperature": 0.3} | ONE_NODE,
    "sampled-0.7": {"temperature": 0.7} | ONE_NODE,
    "sampled-seed-1": SAMPLED | ONE_NODE,
    "sampled-seed-2": SAMPLED | ONE_NODE,
    # of the kit's own pair alone; a study has three seeds
    "sampled-seed-3": SAMPLED | ONE_NODE,
    "sampled-seed-4": SAMPLED | ONE_NODE,
    "sampled-seed-5": SAMPLED | ONE_NODE,
}
OTHER_TREES: dict[str, Facts] = {
    # every level of the tree complete
    "balanced": GREEDY | {"budget": None},
    # the draft's continuation, for stopping rules
    "chain": GREEDY | {"depth": 8, "branches": 1, "budget": 8},
}
OTHER_PROMPTS: dict[str, Facts] = {
    # the same prompts in the format that the profile does not use
    "chat-template": GREEDY | {"template": "chat"},
    "plain-template": GREEDY | {"template": "none"},
    # texts LONGER times as long, for fewer prompts: do findings depend on the length of the texts?
    "long": GREEDY | {"max_new_tokens": None, "prompts_per_domain": 20} | ONE_NODE,
}
KINDS = OWN_TEXTS | OTHER_TEXTS | OTHER_TREES | OTHER_PROMPTS  # of every profile: `kinds_of`
LONGER = 3
# the settings that decide how a target reads prompts, and with those that choose them
READING = ("template", "max_prompt_tokens", "truncate")
SELECTION = ("prompts", "prompts_per_domain", "domains", *READING)
OTHER_SEEDS = ("sampled-seed-1", "sampled-seed-2")  # of every study; `of_kind` chooses the seeds
MORE_SEEDS = ("sampled-seed-3", "sampled-seed-4", "sampled-seed-5")  # read where they are recorded
# only the tree differs, so the target's text is read from the other run if it is recorded
SAME_TEXT = {"balanced": "greedy", "chain": "greedy"}
RUNS = (place.folder_of("SPECLAB_RUNS") or place.RUNS).absolute()
# environment variable: a folder with a shipped run for each kind, or a single shipped run
PLACE = "SPECLAB_TRACES"
BENCH = "combined_*.jsonl*"  # SpecDecode-Bench's files, which the folder may hold instead


class RunError(RuntimeError):
    """A run could not be recorded or read. The message says what to do; finished parts are kept."""


class FilesMissing(RuntimeError):
    """A notebook needs files that are not on this machine. The message says how to get them."""


class Damaged(RunError):
    """A file of a finished run has changed. Recording again repairs the run from its parts."""


MEND = (
    "if it is a run, record it again (it is repaired from its parts); if it is a trace, get its "
    "folder again, or remove the folder to record"
)


# ---- files that appear whole, or not at all ------------------------------------------------------


def output_file(path: Path) -> Path:
    """The file that is written for `path`: the target, if it is a link. ValueError if something
    other than a file is there.
    """
    target = Path(os.path.realpath(path))
    if (path.exists() or target.is_symlink()) and not path.is_file():
        raise ValueError(f"{path} is not a regular file; name another")
    return target


def written(path: Path, write: Callable[[Path], Any]) -> None:
    """Write under a temporary name and rename, so that the file appears whole or not at all. A link
    is followed. ValueError as of `output_file`.

    Half a file is removed, because it would fill the space that the user has freed.
    """
    path = output_file(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)  # of a killed call; a link would lead to another file
    try:
        write(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time works in `folder` (created if needed); others wait for it."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        notice(f"{folder.name} is in use by another process: waiting")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def write_facts(path: Path, facts: Facts, tables: list[Path]) -> None:
    """Write facts as JSON, with `files`, the SHA-256 of the tables beside it, and `seal`, the
    SHA-256 of everything else. It is written last, so the files that it names are complete.
    """
    files = {table.name: sha256_of(table) for table in tables}
    facts = facts | {"files": files}
    sealed = facts | {"seal": digest_of(facts)}
    text = json.dumps(sealed, indent=1, default=str) + "\n"
    written(path, lambda place: place.write_text(text, encoding="utf-8"))


def read_facts(path: Path, do: str) -> Facts:
    """The facts that `write_facts` wrote. Damaged, with what to `do`, if the file or one of the
    tables has changed.
    """
    try:
        facts: Facts = read_json(path, do)
    except ValueError as error:
        raise Damaged(error) from None
    seal, files = facts.pop("seal", None), facts.get("files")
    if seal != digest_of(facts) or not isinstance(files, dict):
        raise Damaged(f"{path} has changed since it was written (its seal differs); {do}")
    for name, digest in files.items():
        table = path.parent / name
        if not table.is_file() or sha256_of(table) != digest:
            raise Damaged(f"{table} is damaged or missing (its checksum differs); {do}")
    return facts


# ---- parts: the blocks of a recording ------------------------------------------------------------


def part_file(folder: Path, index: int, name: str) -> Path:
    """The path of a block's `name` (json, trace.parquet, nodes.parquet)."""
    return folder / "parts" / f"{index:05d}.{name}"


def _table(name: str, prompts: Sequence[EncodedPrompt], recorded: Sequence["Recorded"]) -> pa.Table:
    tables = []
    for prompt, record in zip(prompts, recorded, strict=True):
        columns = getattr(record, name)
        count = len(columns["position"])
        who = {"prompt_id": [prompt.prompt_id] * count, "domain": [prompt.domain] * count}
        columns = columns | who
        # a column of lists is a matrix here, which Arrow reads row by row
        schema = schema_of(name, columns)
        rows = {column: list(columns[column]) for column in schema.names}
        tables.append(pa.table(rows, schema))
    return pa.concat_tables(tables)


def write_part(folder: Path, prompts: Sequence[EncodedPrompt], done: "Done") -> None:
    """Write one block: two Parquet files, then the marker with their checksums and the checksum of
    the run's settings. A block without its marker does not count.
    """
    paths = [part_file(folder, done.index, name) for name in TABLES]
    for name, path in zip(SCHEMAS, paths, strict=True):
        table = _table(name, prompts, done.recorded)
        written(path, partial(pq.write_table, table))
    facts = done.facts | {"settings": sha256_of(folder / "settings.json")}
    write_facts(part_file(folder, done.index, "json"), facts, paths)


def part_facts(folder: Path, index: int) -> Facts | None:
    """Facts of a complete part. None, so that it is recorded again, if it was never finished, or,
    with a notice, if it is damaged or belongs to another run.
    """
    marker = part_file(folder, index, "json")
    if not marker.is_file():
        return None
    try:
        facts = read_facts(marker, "recording it again")
        if facts.get("settings") != sha256_of(folder / "settings.json"):
            raise Damaged(f"{marker} belongs to another run; recording it again")
        return facts
    except Damaged as error:
        notice(f"part {index} in {folder}: {error}")
        return None


# ---- reading -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """A finished run: `folder`, its `manifest`, and the frames `trace` and `nodes` (read at first
    use).
    """

    folder: Path
    manifest: Facts

    @cached_property
    def trace(self) -> pd.DataFrame:
        """One row per (prompt, position), with `hit` (`score.with_hits`)."""
        return score.with_hits(self.table("trace").to_pandas())

    @cached_property
    def nodes(self) -> pd.DataFrame:
        """One row per drafted node."""
        return self.table("nodes").to_pandas()

    @property
    def by_start(self) -> bool:
        """Whether its draft is a trained head, whose tokens depend on where a block began."""
        return OF_BLOCKS.keys() <= {*self.trace}

    def table(self, name: str) -> pa.Table:
        """A table of SCHEMAS as it is stored. Damaged if `manifest.check_table` refuses it."""
        path = self.folder / f"{name}.parquet"
        try:
            table = pq.read_table(path)
            check_table(name, table, self.manifest)
        except (pa.ArrowException, ValueError) as error:
            raise Damaged(f"{path} is not a run's table ({one_line(error)}); {MEND}") from None
        return table


@dataclass(frozen=True)
class Part(Run):
    """Some prompts of a larger run, `whole`, in the order of `prompt_ids`. Its manifest describes
    these prompts; time, memory, versions and `files` are those of the whole recording.
    """

    whole: Run
    prompt_ids: tuple[str, ...]

    def table(self, name: str) -> pa.Table:
        """The rows of its prompts in a table of the larger run, which is checked as a whole."""
        table = self.whole.table(name)
        place = pc.index_in(table["prompt_id"], pa.array(self.prompt_ids))
        rows = pc.sort_indices(place)  # stable; rows of other prompts come last
        return table.take(rows[: len(rows) - place.null_count])


def load_run(folder: str | Path) -> Run:
    """A finished or shipped run from its folder, which is searched in the working folder, then in
    the repository; its tables are checked against the checksums in its manifest. RunError if it is
    not there, not finished or from another version, Damaged if it has changed.
    """
    path = _manifest_in(Path(folder))
    return Run(path.parent, _checked_manifest(read_facts(path, MEND), path))


def _manifest_in(folder: Path) -> Path:
    """The manifest in a run's folder. RunError, which says what is there instead."""
    folders = [root / folder for root in (Path(), ROOT)]
    for path in (one / "manifest.json" for one in folders):
        if path.is_file():
            return path
    if any((one / "settings.json").is_file() for one in folders):
        said = "is a recording that is not finished; repeat the command that began it: it continues"
    else:
        said = f"is no run in the working folder or in {ROOT}; name a folder with a manifest.json"
    raise RunError(f"{folder} {said}")


def manifest_of(folder: Path) -> Facts | None:
    """The manifest of a run that this version can read, else None. Neither its seal nor the tables
    are checked, which takes a hundred times as long.
    """
    path = folder / "manifest.json"
    with suppress(ValueError, RunError):
        return _checked_manifest(read_json(path, MEND), path)
    return None


def _checked_manifest(manifest: Facts, path: Path) -> Facts:
    """All entries of a manifest. RunError for another version, Damaged for a wrong form."""
    manifest.pop("seal", None)
    versions = manifest.get("schema"), manifest.get("key_version", 1)
    if versions != (SCHEMA_VERSION, KEY_VERSION):
        raise RunError(
            f"{path} was recorded by another version of the kit (columns and key {versions}, but "
            f"this version reads {(SCHEMA_VERSION, KEY_VERSION)}); record it again, or use the "
            "kit that recorded it"
        )
    try:
        manifest = asdict(checked(Manifest, manifest, str(path), of_json=True))
    except ValueError as error:
        raise Damaged(f"{error}; {MEND}") from None
    if manifest["key"] != _key(manifest):
        raise Damaged(f"{path}: its key does not match its content; {MEND}")
    return manifest


def texts_of(run: Run) -> Texts:
    """The target's continuations of a run, token ids by prompt_id."""
    rows = run.trace.sort_values("position")
    texts = rows.groupby("prompt_id")["token"]
    return {prompt: tuple(tokens.tolist()) for prompt, tokens in texts}


def tokenizer_of(run: Run) -> Any:
    """The tokenizer of a run's target; None if the target is not on this machine or has changed."""
    folder = ModelFolder.whole(ModelSpec(**run.manifest["profile"]["target"]))
    if folder is None or folder.digest != run.manifest["weights"]["target"]:
        return None
    return folder.tokenizer


# ---- keys ----------------------------------------------------------------------------------------


def drafts_by_head(profile: Profile) -> bool:
    """Whether the draft of a profile, as far as it is on this machine, is a trained head."""
    folder = ModelFolder.here(profile.draft)
    return folder is not None and folder.is_head


def profile_prompts(profile: Profile) -> list[Prompt]:
    """The prompts of a profile."""
    return load_prompts(profile.prompts, profile.prompts_per_domain, profile.domains)


def sizes_of(profile: Profile) -> dict[str, int]:
    """How many prompts each domain of a profile has, in order. For a public set it is the requested
    number, because counting would download the set.
    """
    if hub_set := HUB_SETS.get(profile.prompts):
        return dict.fromkeys(profile.domains or hub_set, profile.prompts_per_domain or PER_DOMAIN)
    return dict(Counter(prompt.domain for prompt in profile_prompts(profile)))


def encoded_prompts(profile: Profile) -> tuple[EncodedPrompt, ...]:
    """The prompts of a profile as token ids of its target."""
    return read_by_target(profile, profile_prompts(profile)).prompts


def encoded_again(run: Run, prompts: Sequence[Prompt]) -> dict[str, tuple[int, ...]]:
    """The token ids of a run's prompts by prompt_id; empty where the target would read them
    otherwise by now.
    """
    settings = run.manifest["profile"]
    known: Facts = {name: ModelSpec(**settings[name]) for name in MODELS}
    known |= {name: settings[name] for name in READING}
    read = read_by_target(Profile(settings["name"], **known), prompts)
    if read.facts["encoded"] != run.manifest["encoded"]:
        return {}
    return {prompt.prompt_id: prompt.ids for prompt in read.prompts}


def decisive(settings: Facts) -> Facts:
    """The settings of a profile (as a dict) that decide a run, besides models and prompts. Greedy
    text and its probabilities do not depend on seed, top_k and top_p.
    """
    names = ["max_new_tokens", "depth", "branches", "budget", "temperature"]
    if settings["temperature"] > 0:
        names += ["top_k", "top_p", "seed"]
    decided = {name: settings[name] for name in names}
    for name in MODELS:
        spec = ModelSpec(**settings[name])
        decided[f"{name}.dtype"] = spec.dtype_on(spec.device)
        decided[f"{name}.backend"] = spec.backend
    return decided


def _key(facts: Facts) -> str:
    """The key of a run from its manifest."""
    decided = decisive(facts["profile"])
    names = ("schema", "key_version", "weights", "encoded", "stop_ids")
    held = [facts[name] for name in names]
    if left_out := facts.get("left_out"):  # most targets ask for nothing that is left out
        held.append(left_out)
    return digest_of([decided, *held])[:16]


def identity_of(profile: Profile, fetch: bool = True) -> Facts:
    """The part of a manifest that decides a run, with the run's key. ModelsMissing if a model is
    neither on this machine nor available from the hub.

    fetch: False downloads nothing. Without the target or transformers on this machine, entries that
    need the target's tokenizer are left out; without both models, the key is. The weights of a
    model are "" if nothing on this machine names them.
    """
    prompts = profile_prompts(profile)
    prompt_set = prompts_digest(prompts)
    reads = fetch or find_spec("transformers")
    here = [fetch or (reads and ModelFolder.whole(getattr(profile, name))) for name in MODELS]
    facts = {
        "schema": SCHEMA_VERSION,
        "key_version": KEY_VERSION,
        "profile": asdict(profile),
        "weights": pair_digests(profile, fetch),
        "prompt_set": prompt_set,
    }
    if here[0]:
        facts |= read_by_target(profile, prompts).facts
    return facts | {"key": _key(facts)} if all(here) else facts


def run_key(profile: Profile) -> str:
    """Hash of everything that decides a run's numbers, and of nothing else: settings, weights, the
    prompts' token ids, the stop ids, and what is left out. ModelsMissing as of `identity_of`.
    """
    return str(identity_of(profile)["key"])


def what_differs(run: Facts, wanted: Facts) -> list[str]:
    """The names of decisive entries that differ between a manifest and `wanted`, an `identity_of`;
    [] for the same run. A model that is not on this machine is compared by its commit, or, without
    a commit, by its path in the profile. Prompts are then compared by text, not by token ids.
    """
    is_read = "encoded" in wanted  # else the settings that decide how the target reads are compared
    names = ("encoded", "stop_ids", "left_out") if is_read else READING
    its, ours = (
        decisive(facts["profile"])
        | {name: (facts if is_read else facts["profile"]).get(name, {}) for name in names}
        | {"prompts": facts["prompt_set"]}
        for facts in (run, wanted)
    )
    differ = [name for name in its | ours if its.get(name) != ours.get(name)]
    if "prompts" in differ:  # so their token ids differ too
        differ = [name for name in differ if name != "encoded"]
    for name in MODELS:
        model, named = run["profile"][name], wanted["weights"][name]
        is_known = named in (run["weights"][name], model["revision"])
        is_called_so = not named and _may_be(model["path"], wanted["profile"][name]["path"])
        if not (is_known or is_called_so):
            differ.append(f"{name} weights")
    return differ


def _may_be(path: str, name: str) -> bool:
    """Whether a folder on another machine, which a run names by its full path, may be the folder
    with this name: the last two parts of the paths are compared.
    """
    there, here = Path(path).parts, Path(name).parts[-2:]
    return there[-len(here) :] == here


def kind_of_set(source: str) -> str:
    """The kind of the runs on another prompt set at T = 0: the name of the set; for a file or
    folder, `other-` and its name.
    """
    return source if source in SETS else f"other-{Path(source).stem}"


def sets_asked(profile: Profile, domains: Iterable[str]) -> list[str]:
    """The other prompt sets of a profile; `unwrapped` only if one of its domains has a wrapper that
    can be removed. ValueError for a file without a new prompt: a finding that is tested again on
    the same prompts, under another name, is not tested.
    """
    known: set[tuple[object, ...]] = set()
    for source in (profile.prompts, *profile.others):
        if source not in HUB_SETS:  # reading one would download it
            here = {(prompt.text, prompt.messages) for prompt in load_prompts(source)}
            if here <= known:
                raise ValueError(
                    f"other_prompts: {source} has no prompt that the profile's other files lack; "
                    "name a file with other prompts, or leave it out"
                )
            known |= here
    has_words = bool(set(WITH_WORDS) & set(domains))
    return [source for source in profile.others if has_words or source != "unwrapped"]


def kinds_of(profile: Profile) -> dict[str, Facts]:
    """The settings that each kind of run changes in the profile: KINDS, and for each other prompt
    set a greedy and a sampled kind. The unwrapped set has as many prompts as the profile's own set;
    other sets keep all their prompts. ValueError for two files with the same name.
    """
    kinds = dict(KINDS)
    for source in profile.others:
        kind = kind_of_set(source)
        if kind in kinds:
            raise ValueError(
                f"other_prompts: two sets have the name {kind!r}; rename one of the files"
            )
        prompts: Facts = {"prompts": source}
        if source != "unwrapped":
            prompts["prompts_per_domain"] = None
        kinds[kind] = GREEDY | prompts
        kinds[f"{kind}-sampled"] = SAMPLED | prompts | ONE_NODE
    return kinds


def other_format(profile: Profile) -> str | None:
    """The kind of run with a profile's prompts in the format that it does not use; None for
    conversations, because only a chat template can join them.
    """
    if profile.template == "none":
        return "chat-template"
    prompts = () if profile.prompts in HUB_SETS else profile_prompts(profile)
    return None if any(prompt.messages for prompt in prompts) else "plain-template"


def of_kind(profile: Profile, kind: str) -> Profile:
    """The profile with the settings of a run of this kind. ValueError for a kind that is not in
    `kinds_of`.

    Kinds with other seeds have the first seeds, counted from 1, that differ from the profile's.
    """
    kinds = kinds_of(profile)
    if kind not in kinds:
        raise ValueError(f"kind={kind!r}: {near(kind, kinds)}")
    changes = dict(kinds[kind])
    if changes["temperature"] is None:
        changes["temperature"] = profile.sampled_temperature
    seeds = (*OTHER_SEEDS, *MORE_SEEDS)
    if kind in seeds:
        others = [seed for seed in range(1, len(seeds) + 2) if seed != profile.seed]
        changes["seed"] = others[seeds.index(kind)]
    if kind == "long":
        changes["max_new_tokens"] = min(LONGER * profile.max_new_tokens, 65_536)
    return profile.replace(**changes)


def seeds_of(profile: Profile) -> list[str]:
    """The kinds of run with a profile's sampled texts: of three seeds, and of each further seed
    that is recorded. For a public set there are three: what is recorded of it cannot be said
    without a download.
    """
    more = () if profile.prompts in HUB_SETS else MORE_SEEDS
    return ["sampled", *OTHER_SEEDS, *(kind for kind in more if recorded_run(profile, kind))]


# ---- finding: data/runs, then what is shipped ----------------------------------------------------


def shipped(profile: Profile, kind: str) -> list[Path]:
    """Folders of the traces that may be read for a kind of run, the same kind first. They come from
    SPECLAB_TRACES, then from the profile, except for kinds that each machine records itself.

    ValueError if SPECLAB_TRACES holds no trace and no file of SpecDecode-Bench.
    """
    named = place.folder_of(PLACE)
    manifests = sorted(named.rglob("manifest.json")) if named else []
    if named and not manifests and not any(named.glob(BENCH)):
        raise ValueError(f"{PLACE}={named} holds no trace; name a folder that holds some")
    if profile.traces and kind not in profile.recorded:
        manifests += sorted((ROOT / profile.traces).rglob("manifest.json"))
    folders = [manifest.parent for manifest in manifests]
    return sorted(folders, key=lambda folder: folder.name != kind)


def recorded_run(profile: Profile, kind: str) -> Run | None:
    """The finished run of (profile, kind), else the shipped trace with its key, else the `Part` of
    a larger run or trace with the same settings and models. None if it is not recorded yet, or,
    with a notice, if the run is damaged (`record_run` repairs it).

    RunError for a damaged trace, and for a run of an older kit.
    """
    return _search(of_kind(profile, kind), kind)[0]


def _search(asked: Profile, kind: str) -> tuple[Run | None, str]:
    """`recorded_run`, and how the shipped trace of this kind differs, if it is another run. Folders
    whose manifest cannot be read are passed over, unless they are named as the requested run.
    """
    for name in asked.recorded:
        of_kind(asked, name)  # a mistyped kind would be ignored
    wanted = identity_of(asked, fetch=False)
    key, misfit = f"-{wanted.get('key', 'unknown')}", ""
    larger: dict[Path, Facts] = {}
    own = [path.parent for path in sorted(RUNS.glob("*/manifest.json"))]
    own.sort(key=lambda folder: not folder.name.endswith(key))
    traces = shipped(asked, kind)
    for folder in [*own, *traces]:
        is_trace, manifest = folder in traces, manifest_of(folder)
        differ = what_differs(manifest, wanted) if manifest else ["manifest"]
        is_named = folder.name == kind if is_trace else folder.name.endswith(key)
        if not differ or (is_named and not manifest):
            if run := _whole(folder, is_trace):
                return run, ""
        elif manifest and is_trace and manifest["kind"] == kind:
            misfit = f"{_short(folder)} is another run ({', '.join(differ)})"
        if manifest and differ == ["prompts"]:
            larger[folder] = manifest
    # a run that differs in its prompts only may hold the requested ones
    for folder, manifest in larger.items():
        if _holds(manifest, asked) and (run := _whole(folder, folder in traces)):
            return _part(run, asked, wanted), ""
    return None, misfit


def _whole(folder: Path, is_trace: bool) -> Run | None:
    """The run in a folder. If it is damaged: Damaged for a trace, else a notice and None, because
    recording it again repairs it.
    """
    try:
        return load_run(folder)
    except Damaged as error:
        if is_trace:
            raise
        notice(error)
    return None


def _holds(manifest: Facts, asked: Profile) -> bool:
    """Whether a run that differs from the requested one in its prompts only (`what_differs`) holds
    all requested prompts. Its own prompts are read from the file or set that its manifest names, or
    from the requested one.
    """
    settings = manifest["profile"]
    if any(settings[name] != getattr(asked, name) for name in READING):
        return False
    of_run = {name: settings[name] for name in ("prompts_per_domain", "domains")}
    for source in (settings["prompts"], asked.prompts):
        if source in HUB_SETS and source != asked.prompts:
            continue  # it would be downloaded
        with suppress(ValueError, OSError):
            whole = asked.replace(prompts=source, **of_run)
            is_run = not what_differs(manifest, identity_of(whole, fetch=False))
            if is_run and {*profile_prompts(asked)} <= {*profile_prompts(whole)}:
                return True
    return False


def _part(run: Run, asked: Profile, wanted: Facts) -> Part:
    """The requested run as a part of a larger one that holds its prompts."""
    prompts, of_prompts = profile_prompts(asked), {name: getattr(asked, name) for name in SELECTION}
    manifest = run.manifest | {
        "profile": run.manifest["profile"] | of_prompts,
        "prompt_set": wanted["prompt_set"],
        # without the target's tokenizer the texts' digest stands for that of the token ids
        "encoded": wanted.get("encoded", wanted["prompt_set"]),
        "prompts": len(prompts),
    }
    if "encoded" in wanted:
        manifest["prompts_cut"] = sum(prompt.cut > 0 for prompt in encoded_prompts(asked))
    manifest["key"] = _key(manifest)
    part = Part(run.folder, manifest, run, tuple(prompt.prompt_id for prompt in prompts))
    trace, rows = part.trace, run.manifest["rows"]
    # every position has equally many nodes
    manifest["rows"] = {name: rows[name] * len(trace) // rows["trace"] for name in rows}
    if manifest["not_argmax"] is not None:
        manifest["not_argmax"] = (trace["token"] != trace["target_top"]).mean()
    return part


def load_or_record(profile: Profile, kind: str = "greedy", engine: "Engine | None" = None) -> Run:
    """The run of (profile, kind): from data/runs, else from a shipped trace with its key, else read
    from a larger run that holds its prompts, else recorded now by `engine` (with a progress bar).

    A damaged run is repaired from its parts, with a notice; RunError for a damaged trace.
    ModelsMissing if it has to be recorded without the models.
    """
    asked = of_kind(profile, kind)
    run, misfit = _search(asked, kind)
    if run:
        part = ""
        if isinstance(run, Part):
            part = f": {run.manifest['prompts']} of its {run.whole.manifest['prompts']} prompts"
        if part or not run.folder.is_relative_to(RUNS):
            day = run.manifest["finished"][:10]
            say_once(f"read from {_short(run.folder)}{part} (recorded {day})")
        return run
    if misfit:
        say_once(f"{misfit}: recording")
    same = kind in SAME_TEXT and recorded_run(profile, SAME_TEXT[kind])
    texts = texts_of(same) if same else None
    folder = RUNS / f"{profile.name}-{kind}-{run_key(asked)}"
    return record_run(asked, folder, texts=texts, engine=engine, kind=kind)


def _short(folder: Path) -> Path:
    """A folder relative to the repository, if it is in it."""
    return folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder


# ---- recording -----------------------------------------------------------------------------------

LIBRARIES = ("torch", "transformers", "gptqmodel", "numpy", "pandas", "pyarrow", "datasets")


def record_run(
    profile: Profile,
    folder: Path,
    pair: "Pair | None" = None,
    texts: Texts | None = None,
    engine: "Engine | None" = None,
    kind: str | None = None,
) -> Run:
    """Record a profile into a folder, block by block. A later call continues where an earlier call
    stopped, and ends with the same bytes.

    pair: already loaded, for the default engine (this process). texts: continuations by prompt_id
    from an earlier run of the same target on the same prompts; None generates them. engine: runs
    the blocks (speclab.cli.workers). kind: its name in the manifest. If another process records the
    same run into the folder, its result is used. RunError: the folder holds another run or other
    files. NonFiniteProbability: a model returned numbers that are not finite.
    """
    from speclab.models.pairs import device_of
    from speclab.study.pairs import check_pair
    from speclab.study.recording import in_process

    folder = Path(folder)
    finished = folder / "manifest.json"
    was_there = finished.is_file()  # then its parts are checked, and damaged ones repaired
    if not (pair or was_there):
        check_pair(profile)
    identity = identity_of(profile)
    with locked(folder):
        if not was_there and finished.is_file():  # another process has just finished it
            run = load_run(folder)
            if run.manifest["key"] == identity["key"]:
                return run
        job = _job(profile, texts)
        # numbers of a CPU and a GPU differ in the last digits, so parts of both never share a
        # folder (a finished run may be read anywhere)
        devices = {name: device_of(getattr(profile, name)).type for name in MODELS}
        settings = {"key": identity["key"], "block_prompts": profile.block_prompts}
        _claim(folder, settings | devices)
        parts = _record_parts(job, folder, engine or partial(in_process, pair=pair))
        manifest = identity | {"kind": kind} | _facts(job, parts)
        manifest["rows"] = _assemble(folder, len(parts))
        if not profile.temperature:
            text = pd.read_parquet(folder / "trace.parquet")
            manifest["not_argmax"] = (text["token"] != text["target_top"]).mean()
        write_facts(finished, manifest, [folder / name for name in TABLES])
    return load_run(folder)


def _claim(folder: Path, settings: Facts) -> None:
    """Write the settings of a run into its folder. RunError if the folder holds a run with other
    settings, or tables or parts that no recording in this folder wrote.
    """
    content = json.dumps(settings).encode()
    path = folder / "settings.json"
    if path.is_file():
        if path.read_bytes() == content:
            return
        raise RunError(
            f"{folder} holds a run with other settings (models, prompts, template, parameters or "
            "devices); choose another folder (--out) or remove this one"
        )
    for pattern in ("*.parquet", "manifest.json", "parts/*"):
        for foreign in folder.glob(pattern):
            raise RunError(
                f"{folder} holds {foreign.name} without settings.json, so no recording wrote it; "
                "choose another folder (--out)"
            )
    written(path, lambda part: part.write_bytes(content))


def _job(profile: Profile, texts: Texts | None) -> "Job":
    """The work of a recording; prints how many prompts are cut, and what the kit leaves out of the
    target's own settings of generation.
    """
    import torch

    from speclab.study.recording import Job

    encoded = encoded_prompts(profile)
    if cut := sum(prompt.cut > 0 for prompt in encoded):
        notice(f"{cut} of {len(encoded)} prompts are cut to {profile.max_prompt_tokens} tokens")
    if line := left_out_in_words(profile):
        say_once(line)
    size = profile.block_prompts
    starts = range(0, len(encoded), size)
    blocks = tuple(encoded[start : start + size] for start in starts)
    return Job(profile, blocks, texts, torch.get_num_threads())


def _record_parts(job: "Job", folder: Path, engine: "Engine") -> list[Facts]:
    """Facts of every block. The engine records blocks without a complete part, and each is written
    when it is done.
    """
    known = {index: part_facts(folder, index) for index in range(len(job.blocks))}
    facts = {index: part for index, part in known.items() if part}
    missing = [index for index in known if index not in facts]
    if missing:
        blocks = engine(job, missing)
        bar = {"desc": f"record {job.profile.name}", "unit": "block", "disable": None}
        for done in tqdm(blocks, total=len(missing), **bar):
            facts[done.index] = done.facts
            write_part(folder, job.blocks[done.index], done)
    return [facts[index] for index in known]


def _assemble(folder: Path, count: int) -> dict[str, int]:
    """Join the parts of each table into one file, a row group per block; returns rows by table."""
    rows = {}
    for name, file in zip(SCHEMAS, TABLES, strict=True):
        parts = [pq.read_table(part_file(folder, index, file)) for index in range(count)]
        whole = pa.concat_tables(parts)
        written(folder / file, partial(pq.write_table, whole))
        rows[name] = whole.num_rows
    return rows


def _facts(job: "Job", parts: list[Facts]) -> Facts:
    """The facts of a run besides its key; parts: the facts of its blocks."""
    cuts = [prompt.cut for block in job.blocks for prompt in block]
    peaks = pd.DataFrame([part["peak_bytes"] for part in parts]).max()
    packed = [part["max_packed_tokens"] for part in parts]
    # gptqmodel is an extra
    libraries = {name: version(name) for name in LIBRARIES if find_spec(name)}
    now = datetime.datetime.now(datetime.UTC)
    return {
        "pair": parts[0]["pair"],
        "prompts": len(cuts),
        "prompts_cut": sum(cut > 0 for cut in cuts),
        "time_s": sum(part["time_s"] for part in parts),
        "peak_bytes": peaks.astype(int).to_dict(),
        "max_packed_tokens": min(packed),
        "libraries": libraries,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "finished": now.isoformat(timespec="seconds"),
    }
