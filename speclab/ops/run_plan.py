"""`python -m speclab plan`: which runs the notebooks of a profile ask for, why, and what each of
them takes where it is not here yet. Downloads nothing and loads no weights.

A notebook declares the kinds of run that it asks for: a list of plain texts called RUNS in its cell
of imports. The texts are kinds of `runs.kinds_of` and those of STANDING_FOR, which stand for the
kinds that depend on the profile.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from speclab import runs
from speclab.estimates import counted
from speclab.ops import pair, plan
from speclab.plain import Facts, near, read_json
from speclab.profiles import MODELS, ROOT, Profile
from speclab.prompts import HUB_SETS
from speclab.show import notebook as kit

FORMER = {"06_chat_paradox": "06_entropy_paradox"}  # notebooks by the names that they had
JUDGED = "judged_prompts_per_domain"  # a parameter of 08
# bytes of a row of a recorded table, and what the folder of a run takes in all: its tables and,
# as long as it is there, the parts that they are made of. Measured on the tiny pair
TRACE_BYTES, NODE_BYTES, WITH_PARTS = 165, 25, 2.2


def other_temperatures(profile: Profile) -> list[str]:
    """The kinds of run at the temperatures between 0 and 1, but not at the profile's own."""
    between = {0.3: "sampled-0.3", 0.7: "sampled-0.7"}
    return [kind for heat, kind in between.items() if heat != profile.sampled_temperature]


def of_others(profile: Profile, ending: str = "") -> list[str]:
    """The kinds of run over the other prompts that a profile names."""
    sets = runs.sets_asked(profile, runs.sizes_of(profile))
    return [f"{runs.kind_of_set(source)}{ending}" for source in sets]


# what a name in RUNS stands for that is no kind of run itself
STANDING_FOR: dict[str, Callable[[Profile], Iterable[str]]] = {
    "seeds": lambda _: ("sampled", *runs.OTHER_SEEDS),
    "other-format": lambda profile: filter(None, [runs.other_format(profile)]),
    "other-temperatures": other_temperatures,
    "others": of_others,
    "others-but-unwrapped": lambda profile: [k for k in of_others(profile) if k != "unwrapped"],
    "others-sampled": lambda profile: of_others(profile, "-sampled"),
}


@dataclass(frozen=True)
class PlannedRun:
    """A run that notebooks ask for: its `kind`, the profile as it is recorded, how many `prompts`
    it has, the numbers of the `notebooks` that read it, and the finished run where it is `here`.
    """

    kind: str
    profile: Profile
    prompts: int
    notebooks: list[str]
    here: runs.Run | None

    @property
    def tokens(self) -> int:
        """The most tokens that its texts can have."""
        return self.prompts * self.profile.max_new_tokens

    @property
    def bytes(self) -> int:
        """What its folder takes on the disk, at most."""
        per_token = TRACE_BYTES + NODE_BYTES * self.profile.tree.size
        return int(WITH_PARTS * self.tokens * per_token)


# ---- what is asked for ---------------------------------------------------------------------------


def chosen(wanted: Sequence[str], root: Path = ROOT) -> list[Path]:
    """The notebooks of these numbers or names, all without any. ValueError for one not there."""
    paths = sorted((root / "notebooks").glob("[0-9]*.ipynb"))
    if not paths:
        raise ValueError(
            f"no notebooks in {root}: an installed package has none; run this in a clone of the kit"
        )
    known = {name: path for path in paths for name in (path.stem, path.stem[:2])}
    stems = [Path(text).stem.zfill(2) for text in wanted]
    names = [FORMER.get(stem, stem) for stem in stems]
    for name in names:
        if name not in known:
            raise ValueError(f"no notebook {name!r}: {near(name, known)}")
    return sorted({known[name] for name in names}) or paths


def declared(notebook: Path) -> list[str] | None:
    """What a notebook's RUNS declares; None for one that has no such list, or no .py."""
    source = notebook.with_suffix(".py")
    text = source.read_text(encoding="utf-8") if source.is_file() else ""
    for node in ast.parse(text, source.name).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "RUNS":
            return [str(name) for name in ast.literal_eval(node.value)]
    return None


def kinds_named(profile: Profile, names: Iterable[str]) -> list[str]:
    """The kinds of run that the names of a list RUNS mean for a profile, each once."""
    kinds: list[str] = []
    for name in names:
        kinds += STANDING_FOR[name](profile) if name in STANDING_FOR else [name]
    return list(dict.fromkeys(kinds))


def runs_asked(profile: Profile, notebooks: Iterable[Path]) -> list[PlannedRun]:
    """The runs that these notebooks ask for, in the order in which they do."""
    readers: dict[str, list[str]] = {}
    for notebook in notebooks:
        for kind in kinds_named(profile, declared(notebook) or []):
            readers.setdefault(kind, []).append(notebook.stem[:2])
    is_told = can_be_told(profile)
    found = []
    for kind, numbers in readers.items():
        of_kind = runs.of_kind(profile, kind)
        prompts = sum(runs.sizes_of(of_kind).values())
        here = runs.recorded_run(profile, kind) if is_told else None
        found.append(PlannedRun(kind, of_kind, prompts, numbers, here))
    return found


def can_be_told(profile: Profile) -> bool:
    """Whether the runs of a profile can be looked for without a download: none of its prompts is a
    public set.
    """
    return not {profile.prompts, *profile.others} & {*HUB_SETS}


def fetch_models(profile: Profile, kinds: Iterable[str]) -> None:
    """Fetch the models of the hub that recording runs of these kinds needs, with a bar; nothing
    where all of the runs are here.
    """
    if can_be_told(profile) and all(runs.recorded_run(profile, kind) for kind in kinds):
        return
    pair.fetch_pair(profile)


# ---- what it takes -------------------------------------------------------------------------------


def manifests_of_pair(profile: Profile) -> list[Facts]:
    """The manifests of runs of the profile's models that were recorded on this machine."""
    found = []
    for path in runs.RUNS.glob("*/manifest.json"):
        with suppress(ValueError):  # a damaged one is said where it is asked for
            facts = read_json(path, runs.MEND)
            of_run = [facts["profile"][name]["path"] for name in MODELS]
            if of_run == [getattr(profile, name).path for name in MODELS]:
                found.append(facts)
    return found


def seconds_of(run: PlannedRun, known: Sequence[Facts]) -> float | None:
    """What recording a run takes at the speed of the longest one that is known, one with the same
    tree before others; None where none is.
    """
    shape = ("depth", "branches", "budget")

    def likeness(facts: Facts) -> tuple[bool, int]:
        same = all(facts["profile"][name] == getattr(run.profile, name) for name in shape)
        return same, facts["rows"]["trace"]

    if not known:
        return None
    nearest = max(known, key=likeness)
    return run.tokens * nearest["time_s"] / nearest["rows"]["trace"]


# ---- the page ------------------------------------------------------------------------------------


def lines_of_plan(profile: Profile, wanted: Sequence[str], gpus: int) -> Iterator[str]:
    """The lines of the plan for the notebooks of these numbers or names (none: all) on a machine
    with so many GPUs.
    """
    asked, left_out = [], []
    for notebook in chosen(wanted):
        judged = profile.notebooks.get(notebook.stem, {}).get(JUDGED, 0)
        if reason := kit.lacks(notebook.stem, profile, judged):
            left_out.append(f"left out: {notebook.stem} {reason}")
        else:
            asked.append(notebook)
            if declared(notebook) is None:
                left_out.append(f"not known: {notebook.stem} declares no RUNS among its imports")
    yield about(profile)
    known = manifests_of_pair(profile)
    planned_runs = runs_asked(profile, asked)
    yield from table_of(planned_runs, known)
    yield total(profile, [run for run in planned_runs if not run.here], known)
    yield from left_out
    yield from memory_lines(profile, gpus)


def about(profile: Profile) -> str:
    """The prompts and temperatures of a profile, in two sentences."""
    sizes = runs.sizes_of(profile)
    of_each = ", ".join(f"{name} {size}" for name, size in sizes.items())
    given = f"temperature: {profile.temperature:g}"
    return (
        f"{profile.name}: {sum(sizes.values())} prompts ({of_each}), up to "
        f"{profile.max_new_tokens} tokens each. Texts are studied at T = 0 and at "
        f"T = {profile.sampled_temperature:g} ({given})."
    )


def table_of(planned_runs: Sequence[PlannedRun], known: Sequence[Facts]) -> Iterator[str]:
    """A line for each run, in columns."""
    rows = [("run", "prompts", "T", "tokens", "read by", "where")]
    for run in planned_runs:
        heat, tokens = f"{run.profile.temperature:g}", f"{run.tokens:,}"
        read_by = " ".join(run.notebooks)
        rows.append((run.kind, str(run.prompts), heat, tokens, read_by, where(run, known)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def where(run: PlannedRun, known: Sequence[Facts]) -> str:
    """Where a run is, or what recording it takes."""
    if run.here is None:
        return f"to record: {takes([run], known)}"
    folder = run.here.folder
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    if folder.is_relative_to(runs.RUNS):
        return f"here, {size / 1e6:.1f} MB"
    return "shipped with the kit" if folder.is_relative_to(ROOT) else f"read from {folder}"


def takes(unrecorded: Sequence[PlannedRun], known: Sequence[Facts]) -> str:
    """The minutes, as far as they are known, and the bytes of runs that are to be recorded."""
    seconds = [seconds_of(run, known) for run in unrecorded]
    lasting = "time unknown"
    if None not in seconds:
        minutes = round(sum(filter(None, seconds)) / 60)
        lasting = f"about {counted(minutes, 'minute')}" if minutes else "less than a minute"
    return f"{lasting}, {sum(run.bytes for run in unrecorded) / 1e6:.1f} MB"


def total(profile: Profile, unrecorded: Sequence[PlannedRun], known: Sequence[Facts]) -> str:
    """What all runs take that are to be recorded."""
    if not unrecorded:
        return "Nothing is to be recorded."
    tokens = sum(run.tokens for run in unrecorded)
    said = f"In all {len(unrecorded)} to record: {tokens:,} tokens, {takes(unrecorded, known)}."
    if not can_be_told(profile):
        said += " Some may be here: that is known once the prompts are."
    if not known:
        said += " No run of this pair was recorded here so far, so minutes are not known."
    return said


def memory_lines(profile: Profile, gpus: int) -> Iterator[str]:
    """The memory that recording needs on each device."""
    try:
        needs: Mapping[str, int] = plan.planned_bytes(profile, plan.planned_pair(profile, gpus))
    except Exception as error:  # libraries raise whatever they like at a config of others
        yield f"Memory is not known: {error}."
        return
    for device, need in needs.items():
        yield f"Memory of {device}: at most {need / 1e9:.1f} GB (`doctor` says whether it is free)."
