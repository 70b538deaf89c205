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
from speclab.models.folder import ModelFolder, model_digest
from speclab.plain import (
    EncodedPrompt,
    Facts,
    ModelSpec,
    Texts,
    digest_of,
    notice,
    one_line,
    read_json,
    say_once,
    sha256_of,
)
from speclab.study.manifest import (
    KEY_VERSION,
    SCHEMA_VERSION,
    SCHEMAS,
    TABLES,
    Manifest,
    schema_of,
)
from speclab.study.pairs import check_pair, say_left_out
from speclab.study.profiles import MODELS, ROOT, Profile
from speclab.study.prompts import (
    HUB_SETS,
    PER_DOMAIN,
    SETS,
    WITH_WORDS,
    Prompt,
    encode_prompts,
    load_prompts,
    prompts_digest,
)
from speclab.study.reading import checked, near

if TYPE_CHECKING:
    from speclab.model import Pair
    from speclab.study.recording import Done, Engine


ONE_NODE: Facts = {"depth": 1, "branches": 1, "budget": 1}
GREEDY: Facts = {"temperature": 0.0}
SAMPLED: Facts = {"temperature": None}  # None: the profile's own (`Profile.sampled_temperature`)
SEEDS = tuple(f"sampled-seed-{number}" for number in range(1, 6))
KINDS: dict[str, Facts] = {  # of every profile: `kinds_of`
    "greedy": GREEDY,
    "sampled": SAMPLED,
    # text at other temperatures and from other seeds: one drafted token per position, because a
    # replay of chains and trees needs only the draft's ranks along the text besides
    "sampled-0.3": {"temperature": 0.3} | ONE_NODE,
    "sampled-0.7": {"temperature": 0.7} | ONE_NODE,
    **dict.fromkeys(SEEDS, SAMPLED | ONE_NODE),
    # every level of the tree complete
    "balanced": GREEDY | {"budget": None},
    # the draft's continuation, for stopping rules
    "chain": GREEDY | {"depth": 8, "branches": 1, "budget": 8},
    # the same prompts in the format that the profile does not use
    "chat-template": GREEDY | {"template": "chat"},
    "plain-template": GREEDY | {"template": "none", "system": None, "template_arguments": {}},
    # texts LONGER times as long, for fewer prompts: does acceptance change along an answer?
    "long": GREEDY | {"max_new_tokens": None, "prompts_per_domain": 25} | ONE_NODE,
}
LONGER = 4
# the settings that decide how a target reads prompts, and with those that choose them
READING = ("template", "system", "template_arguments", "max_prompt_tokens", "truncate")
STUDY_SEEDS = 2  # the first of SEEDS, of every study; the others are read where they are recorded
# only the tree differs, so the target's text is read from the greedy run if it is recorded
OTHER_TREES = ("balanced", "chain")
RUNS = (place.folder_of("SPECLAB_RUNS") or place.RUNS).absolute()
# environment variable: a folder with a shipped run for each kind, or a single shipped run
PLACE = "SPECLAB_TRACES"


class RunError(RuntimeError):
    """A run could not be recorded or read. The message says what to do; finished parts are kept."""


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
    is_sealed = facts.pop("seal", None) == digest_of(facts)
    files = {path.parent / name: digest for name, digest in facts.get("files", {}).items()}
    wrong = [file for file in files if not file.is_file() or sha256_of(file) != files[file]]
    for file in wrong if is_sealed else [path]:
        raise Damaged(
            f"{file} has changed since it was written, or is missing (its checksum differs); {do}"
        )
    return facts


# ---- parts: the blocks of a recording ------------------------------------------------------------


def part_file(folder: Path, index: int, name: str) -> Path:
    """The path of a block's `name` (json, trace.parquet, nodes.parquet)."""
    return folder / "parts" / f"{index:05d}.{name}"


def write_part(folder: Path, prompts: Sequence[EncodedPrompt], done: "Done", settings: str) -> None:
    """Write one block: two Parquet files, then the marker with their checksums and that of the
    run's `settings`. A block without its marker does not count.
    """
    paths = [part_file(folder, done.index, name) for name in TABLES]
    for name, path in zip(SCHEMAS, paths, strict=True):
        tables = []
        for prompt, record in zip(prompts, done.recorded, strict=True):
            columns = getattr(record, name)
            count = len(columns["position"])
            who = {"prompt_id": [prompt.prompt_id] * count, "domain": [prompt.domain] * count}
            # a column of lists is a matrix here, which Arrow reads row by row
            rows = {column: list(values) for column, values in (columns | who).items()}
            tables.append(pa.table(rows, schema_of(name, rows)))
        written(path, partial(pq.write_table, pa.concat_tables(tables)))
    marker = part_file(folder, done.index, "json")
    write_facts(marker, done.facts | {"settings": settings}, paths)


def part_facts(folder: Path, index: int, settings: str) -> Facts:
    """Facts of a complete part. Empty, so that it is recorded again, if it was never finished, or,
    with a notice, if it is damaged or belongs to a run with other `settings` (their checksum).
    """
    marker = part_file(folder, index, "json")
    if marker.is_file():
        try:
            facts = read_facts(marker, "recording it again")
            if facts.get("settings") == settings:
                return facts
            notice(f"part {index} in {folder}: it belongs to another run; recording it again")
        except Damaged as error:
            notice(f"part {index} in {folder}: {error}")
    return {}


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
        return "block_ranks" in self.trace

    def table(self, name: str) -> pa.Table:
        """A table of SCHEMAS as it is stored. Damaged unless it has their columns and the
        manifest's number of rows.
        """
        path = self.folder / f"{name}.parquet"
        try:
            table = pq.read_table(path)
        except (pa.ArrowException, OSError) as error:
            raise Damaged(f"{path} is not a run's table ({one_line(error)}); {MEND}") from None
        wanted, rows = schema_of(name, table.schema.names), self.manifest["rows"][name]
        if not table.schema.equals(wanted) or table.num_rows != rows:
            raise Damaged(
                f"{path} has the columns {table.schema.names} and {table.num_rows} rows, instead "
                f"of {wanted.names} with the kit's types and {rows} rows; {MEND}"
            )
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
        names = table["prompt_id"]
        return pa.concat_tables([table.filter(pc.equal(names, name)) for name in self.prompt_ids])


def load_run(folder: str | Path) -> Run:
    """A finished or shipped run from its folder, which is searched in the working folder, then in
    the repository; its tables are checked against the checksums in its manifest. RunError if it is
    not there, not finished or from another version, Damaged if it has changed.
    """
    for path in (Path(folder), ROOT / folder):
        if (path / "manifest.json").is_file():
            return Run(path, manifest_of(path, is_sealed=True))
    raise RunError(
        f"{folder} is no finished run in the working folder or in {ROOT}; name a folder with a "
        "manifest.json, or, if its recording was stopped, repeat the command that began it"
    )


def manifest_of(folder: Path, is_sealed: bool = False) -> Facts:
    """All entries of the manifest in a folder. is_sealed: its seal and the tables are checked too,
    which takes a hundred times as long. RunError for another version, Damaged or ValueError for a
    damaged file.
    """
    path = folder / "manifest.json"
    manifest = read_facts(path, MEND) if is_sealed else read_json(path, MEND)
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
    tokens = run.trace.sort_values("position").groupby("prompt_id")["token"]
    texts: Texts = tokens.agg(tuple).to_dict()
    return texts


def profile_of(run: Run) -> Profile:
    """The profile with which a run was recorded."""
    return checked(Profile, run.manifest["profile"], str(run.folder), of_json=True)


def tokenizer_of(run: Run) -> Any:
    """The tokenizer of a run's target; None if the target, or transformers, is not on this machine,
    or if the target has changed.
    """
    folder = ModelFolder.whole(profile_of(run).target)
    if folder and folder.digest == run.manifest["weights"]["target"]:
        with suppress(ModuleNotFoundError):  # an environment that only reads traces
            return folder.tokenizer
    return None


# ---- keys ----------------------------------------------------------------------------------------


def profile_prompts(profile: Profile) -> list[Prompt]:
    """The prompts of a profile."""
    return load_prompts(profile.prompts, profile.prompts_per_domain, profile.domains)


def sizes_of(profile: Profile) -> dict[str, int]:
    """How many prompts each domain of a profile has, in order. For a public set it is the requested
    number, because counting would download the set.
    """
    if hub_set := HUB_SETS.get(str(profile.prompts)):
        return dict.fromkeys(profile.domains or hub_set, profile.prompts_per_domain or PER_DOMAIN)
    return dict(Counter(prompt.domain for prompt in profile_prompts(profile)))


Read = tuple[tuple[EncodedPrompt, ...], Facts]
# what was read, by the model's files and what it was given: each kind of run asks
ENCODED: dict[Any, Read] = {}


def read_by_target(profile: Profile, prompts: Sequence[Prompt]) -> Read:
    """Prompts as token ids of the profile's target, whose tokenizer is downloaded if needed, and
    facts: `encoded`, a SHA-256 of their ids, domains and token ids, `stop_ids`, the ids that end
    the target's texts, `prompts_cut`, the number of prompts that are cut, and `left_out`
    (`ModelFolder`).
    """
    folder = ModelFolder.fetched(profile.target)
    limits = profile.max_prompt_tokens, profile.template, profile.truncate
    given = profile.system, profile.template_arguments
    left_out = folder.left_out(profile.temperature > 0)
    asked = folder.stamps, tuple(prompts), limits, str(given)  # a dict has no hash
    if asked not in ENCODED:
        tokenizer = folder.tokenizer
        stops = sorted(folder.stop_ids(tokenizer), key=str)
        encoded = tuple(encode_prompts(tokenizer, prompts, *limits, *given))
        rows = [(prompt.prompt_id, prompt.domain, prompt.ids) for prompt in encoded]
        cut = sum(prompt.cut > 0 for prompt in encoded)
        read = {"encoded": digest_of(rows), "stop_ids": stops, "prompts_cut": cut}
        ENCODED[asked] = encoded, read
    encoded, facts = ENCODED[asked]
    return encoded, facts | {"left_out": left_out}


def encoded_prompts(profile: Profile) -> tuple[EncodedPrompt, ...]:
    """The prompts of a profile as token ids of its target."""
    return read_by_target(profile, profile_prompts(profile))[0]


def encoded_again(run: Run, prompts: Sequence[Prompt]) -> dict[str, tuple[int, ...]]:
    """The token ids of a run's prompts by prompt_id; empty where the target would read them
    otherwise by now.
    """
    encoded, facts = read_by_target(profile_of(run), prompts)
    if facts["encoded"] != run.manifest["encoded"]:
        return {}
    return {prompt.prompt_id: prompt.ids for prompt in encoded}


def decisive(settings: Facts) -> Facts:
    """The settings of a profile (as a dict) that decide a run, besides models and prompts. Greedy
    text and its probabilities do not depend on seed, top_k, top_p and min_p.
    """
    names = ["max_new_tokens", "depth", "branches", "budget", "temperature"]
    if settings["temperature"] > 0:
        names += ["top_k", "top_p", "seed", *["min_p"] * (settings["min_p"] > 0)]
    decided = {name: settings[name] for name in names}
    for name in MODELS:
        spec = ModelSpec(**settings[name])
        decided[f"{name}.dtype"] = spec.dtype_on(spec.device)
        decided[f"{name}.backend"] = spec.backend
    return decided


def _key(facts: Facts) -> str:
    """The key of a run from its manifest."""
    names = ("schema", "key_version", "weights", "encoded", "stop_ids")
    # most targets ask for nothing that is left out
    left_out = filter(None, [facts.get("left_out")])
    return digest_of([decisive(facts["profile"]), *map(facts.get, names), *left_out])[:16]


def identity_of(profile: Profile, fetch: bool = True) -> Facts:
    """The part of a manifest that decides a run, with the run's key. ModelsMissing if a model is
    neither on this machine nor available from the hub.

    fetch: False downloads nothing. Without the target or transformers on this machine, the key and
    entries that need the target's tokenizer are left out. The weights of a model are "" if nothing
    on this machine names them.
    """
    prompts = profile_prompts(profile)
    facts: Facts = {
        "schema": SCHEMA_VERSION,
        "key_version": KEY_VERSION,
        "profile": asdict(profile),
        "prompt_set": prompts_digest(prompts),
        "prompts": len(prompts),
        "weights": {name: model_digest(getattr(profile, name), fetch) for name in MODELS},
    }
    if fetch or (find_spec("transformers") and ModelFolder.whole(profile.target)):
        facts |= read_by_target(profile, prompts)[1]
        facts["key"] = _key(facts)
    return facts


def run_key(profile: Profile) -> str:
    """Hash of everything that decides a run's numbers, and of nothing else: settings, weights, the
    prompts' token ids, the stop ids, and what is left out. ModelsMissing as of `identity_of`.
    """
    return str(identity_of(profile)["key"])


def what_differs(run: Facts, wanted: Facts) -> list[str]:
    """The names of decisive entries that differ between a manifest and `wanted`, an `identity_of`;
    [] for the same run. A model that is not on this machine is compared by its commit, or, without
    a commit, by the last two parts of its path. Prompts are then compared by text, not by token
    ids.
    """
    is_read = "encoded" in wanted  # else the settings that decide how the target reads are compared
    names = ("stop_ids", "left_out") if is_read else READING
    its, ours = (
        decisive(facts["profile"])
        | {name: (facts if is_read else facts["profile"]).get(name, {}) for name in names}
        | {"prompts": (facts["prompt_set"], is_read and facts["encoded"])}
        for facts in (run, wanted)
    )
    differ = [name for name, value in its.items() if value != ours.get(name)]
    for name in MODELS:
        model, digest = run["profile"][name], wanted["weights"][name]
        # another machine may name the same folder by its full path
        end = Path(wanted["profile"][name]["path"]).parts[-2:]
        is_called_so = not digest and Path(model["path"]).parts[-len(end) :] == end
        if not (is_called_so or digest in (run["weights"][name], model["revision"])):
            differ.append(f"{name} weights")
    return differ


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
    known = set[Any]()
    for source in (profile.prompts, *profile.others):
        if source not in HUB_SETS:  # reading one would download it
            here = {(prompt.text, prompt.messages) for prompt in load_prompts(source)}
            if here <= known:
                raise ValueError(
                    f"other_prompts: {source} has no prompt that the profile's other files lack; "
                    "name a file with other prompts, or leave it out"
                )
            known |= here
    has_words = {*WITH_WORDS} & {*domains}
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
    conversations and with a system message, because only a chat template can join them.
    """
    if profile.template == "none":
        return "chat-template"
    prompts = () if profile.prompts in HUB_SETS else profile_prompts(profile)
    is_joined = profile.system is not None or any(prompt.messages for prompt in prompts)
    return None if is_joined else "plain-template"


def of_kind(profile: Profile, kind: str) -> Profile:
    """The profile with the settings of a run of this kind. ValueError for a kind that is not in
    `kinds_of`, and for such a kind in the profile's `recorded`, which would be ignored.

    Kinds with other seeds have the first seeds, counted from 1, that differ from the profile's.
    """
    kinds = kinds_of(profile)
    for name in (kind, *profile.recorded):
        if name not in kinds:
            raise ValueError(f"kind={name!r}: {near(name, kinds)}")
    changes = dict(kinds[kind])
    if changes["temperature"] is None:
        changes["temperature"] = profile.sampled_temperature
    if kind in SEEDS:
        others = [seed for seed in range(1, len(SEEDS) + 2) if seed != profile.seed]
        changes["seed"] = others[SEEDS.index(kind)]
    if kind == "long":
        changes["max_new_tokens"] = min(LONGER * profile.max_new_tokens, 65_536)
    return profile.replace(**changes)


def seeds_of(profile: Profile) -> list[str]:
    """The kinds of run with a profile's sampled texts: of three seeds, and of each further seed
    that is recorded. For a public set there are three: what is recorded of it cannot be said
    without a download.
    """
    more = () if profile.prompts in HUB_SETS else SEEDS[STUDY_SEEDS:]
    known = [kind for kind in more if recorded_run(profile, kind)]
    return ["sampled", *SEEDS[:STUDY_SEEDS], *known]


# ---- finding: data/runs, then what is shipped ----------------------------------------------------


def recorded_run(profile: Profile, kind: str, say: bool = False) -> Run | None:
    """The finished run of (profile, kind), else the shipped trace with its key, else the `Part` of
    a larger run or trace with the same settings and models. None if it is not recorded yet, or,
    with a notice, if the run is damaged (`record_run` repairs it).

    Traces are those of SPECLAB_TRACES (ValueError if it names no folder), then those of the
    profile, except for kinds that each machine records itself. Folders whose manifest cannot be
    read are passed over, unless they are named as the requested run. say: if nothing is found,
    print how the traces of this kind differ. RunError for a damaged trace, and for a run of an
    older kit.
    """
    # the folders that may hold it
    asked = of_kind(profile, kind)
    named = place.folder_of(PLACE)
    if named and not named.is_dir():
        raise ValueError(f"{PLACE}={named} is no folder; name a folder that holds traces")
    places = [named] if named else []
    if asked.traces and kind not in asked.recorded:
        places.append(ROOT / asked.traces)
    own = [path.parent for path in sorted(RUNS.glob("*/manifest.json"))]
    traces = [path.parent for root in places for path in sorted(root.rglob("manifest.json"))]

    def whole(folder: Path) -> Run | None:
        """The run in a folder; None, with a notice, for a damaged run, which recording it again
        repairs, but not for a damaged trace.
        """
        try:
            return load_run(folder)
        except Damaged as error:
            if folder in traces:
                raise
            notice(error)
            return None

    # a run with the same settings, models and prompts
    wanted, prompts, larger, others = (
        identity_of(asked, fetch=False),
        profile_prompts(asked),
        [],
        [],
    )
    names = (kind, f"{asked.name}-{kind}-{wanted.get('key')}")
    for folder in [*own, *traces]:
        manifest: Facts = {}
        with suppress(ValueError, RunError):
            manifest = manifest_of(folder)
        if not manifest and folder.name not in names:
            continue
        differ = what_differs(manifest, wanted) if manifest else []
        if not differ and (run := whole(folder)):
            return run
        if differ == ["prompts"]:
            larger.append((folder, manifest))
        if differ and folder in traces and manifest["kind"] == kind:
            others.append(f"{_short(folder)} is another run ({', '.join(differ)}): recording")
    # a run with more prompts of the same set
    for folder, manifest in larger:
        chosen = {name: manifest["profile"][name] for name in ("prompts_per_domain", "domains")}
        with suppress(ValueError):  # of a set that lacks one of its domains
            more = asked.replace(**chosen)
            is_run = not what_differs(manifest, identity_of(more, fetch=False))
            is_larger = is_run and {*prompts} <= {*profile_prompts(more)}
            if is_larger and (run := whole(folder)):
                # without the target's tokenizer the texts' digest stands for that of the token ids
                facts = run.manifest | {"encoded": wanted["prompt_set"]} | wanted
                facts["weights"] = run.manifest["weights"]
                facts["key"] = _key(facts)
                part = Part(run.folder, facts, run, tuple(one.prompt_id for one in prompts))
                facts |= _counts({name: part.table(name) for name in SCHEMAS}, facts["profile"])
                return part
    for line in others if say else ():
        say_once(line)
    return None


def _counts(tables: dict[str, pa.Table], settings: Facts) -> Facts:
    """The facts of a manifest that are counted in its tables."""
    trace = tables["trace"]
    turned = pc.mean(pc.not_equal(trace["token"], trace["target_top"])).as_py()
    return {
        "rows": {name: table.num_rows for name, table in tables.items()},
        "not_argmax": None if settings["temperature"] else turned,
    }


def load_or_record(profile: Profile, kind: str = "greedy", engine: "Engine | None" = None) -> Run:
    """The run of (profile, kind): from data/runs, else from a shipped trace with its key, else read
    from a larger run that holds its prompts, else recorded now by `engine` (with a progress bar).

    A damaged run is repaired from its parts, with a notice; RunError for a damaged trace.
    ModelsMissing if it has to be recorded without the models.
    """
    if run := recorded_run(profile, kind, say=True):
        part = ""
        if isinstance(run, Part):
            part = f": {run.manifest['prompts']} of its {run.whole.manifest['prompts']} prompts"
        if part or not run.folder.is_relative_to(RUNS):
            day = run.manifest["finished"][:10]
            say_once(f"read from {_short(run.folder)}{part} (recorded {day})")
        return run
    texts = None
    if kind in OTHER_TREES and (same := recorded_run(profile, "greedy")):
        texts = texts_of(same)
    return record_run(of_kind(profile, kind), texts=texts, engine=engine, kind=kind)


def _short(folder: Path) -> Path:
    """A folder relative to the repository, if it is in it."""
    return folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder


# ---- recording -----------------------------------------------------------------------------------

LIBRARIES = ("torch", "transformers", "gptqmodel", "numpy", "pandas", "pyarrow", "datasets")


def record_run(
    profile: Profile,
    folder: Path | None = None,
    pair: "Pair | None" = None,
    texts: Texts | None = None,
    engine: "Engine | None" = None,
    kind: str | None = None,
) -> Run:
    """Record a profile into a folder, block by block. A later call continues where an earlier call
    stopped, and ends with the same bytes.

    folder: None names it in RUNS by profile, kind and key. pair: already loaded, for the default
    engine (this process). texts: continuations by prompt_id from an earlier run of the same target
    on the same prompts; None generates them. engine: runs the blocks (speclab.cli.workers). kind:
    its name in the manifest. If another process records the same run into the folder, its result is
    used. RunError: the folder holds another run or other files. NonFiniteProbability: a model
    returned numbers that are not finite.
    """
    from speclab.models.pairs import device_of
    from speclab.study.recording import Job, Worker

    if not pair:
        check_pair(profile)
    devices = {name: device_of(getattr(profile, name)).type for name in MODELS}
    identity = identity_of(profile)
    folder = Path(folder or RUNS / f"{profile.name}-{kind}-{identity['key']}")
    finished = folder / "manifest.json"
    was_there = finished.is_file()  # then its parts are checked, and damaged ones repaired
    with locked(folder):
        # the folder is empty, or holds this run. Numbers of a CPU and a GPU differ in the last
        # digits, so parts of both never share a folder (a finished run may be read anywhere)
        settings = {"key": identity["key"], "block_prompts": profile.block_prompts}
        content, path = json.dumps(settings | devices).encode(), folder / "settings.json"
        if not path.is_file() or path.read_bytes() != content:
            if names := [file.name for file in folder.iterdir() if file.name[0] != "."]:
                raise RunError(
                    f"{folder} holds {min(names)}, of a run with other settings (models, prompts, "
                    "template, parameters or devices) or of something else; choose another folder "
                    "(--out) or remove this one"
                )
            written(path, lambda part: part.write_bytes(content))
        if finished.is_file() and not was_there:  # another process has just finished it
            return load_run(folder)
        say_left_out(profile.target.path, identity["left_out"])
        if cut := identity["prompts_cut"]:
            limit = profile.max_prompt_tokens
            notice(f"{cut} of {identity['prompts']} prompts are cut to {limit} tokens")
        # the engine records blocks without a complete part, and each is written when it is done
        encoded, size = encoded_prompts(profile), profile.block_prompts
        blocks = tuple(encoded[start : start + size] for start in range(0, len(encoded), size))
        digest = sha256_of(path)
        known = {index: part_facts(folder, index, digest) for index in range(len(blocks))}
        if missing := [index for index, facts in known.items() if not facts]:
            job = Job(profile, blocks, texts)
            here = Worker(job, pair=pair, ahead=True).record
            work = engine(job, missing) if engine else map(here, missing)
            bar = {"desc": f"record {profile.name}", "unit": "block", "disable": None}
            for done in (shown := tqdm(work, total=len(missing), **bar)):
                known[done.index] = done.facts
                write_part(folder, blocks[done.index], done, digest)
                if shown.disable:  # a log has no bar
                    finished_blocks = sum(map(bool, known.values()))
                    notice(f"{folder.name}: block {finished_blocks} of {len(blocks)}")
        parts = [*known.values()]
        # join the parts of each table into one file, a row group per block
        tables = {}
        for name, file in zip(SCHEMAS, TABLES, strict=True):
            read = [pq.read_table(part_file(folder, index, file)) for index in known]
            tables[name] = pa.concat_tables(read)
            written(folder / file, partial(pq.write_table, tables[name]))
        # the manifest vouches for all of it, so it comes last
        peaks = pd.DataFrame([part["peak_bytes"] for part in parts]).max()
        now = datetime.datetime.now(datetime.UTC)
        of_run = {
            "kind": kind,
            "pair": parts[0]["pair"],
            "time_s": sum(part["time_s"] for part in parts),
            "peak_bytes": peaks.astype(int).to_dict(),
            "max_packed_tokens": min(part["max_packed_tokens"] for part in parts),
            # gptqmodel is an extra
            "libraries": {name: version(name) for name in LIBRARIES if find_spec(name)},
            "python": platform.python_version(),
            "machine": platform.machine(),
            "finished": now.isoformat(timespec="seconds"),
        }
        manifest = identity | of_run | _counts(tables, identity["profile"])
        write_facts(finished, manifest, [folder / name for name in TABLES])
    return load_run(folder)
