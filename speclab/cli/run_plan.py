"""`python -m speclab plan`: the runs that the notebooks of a profile need, which notebooks read
them, and the cost of recording each missing run. Downloads nothing and loads no weights.

A notebook declares the kinds of run that it needs: a list of plain texts called RUNS in its cell of
imports. The texts are kinds of `runs.kinds_of` and the names of STANDING_FOR, which stand for kinds
that depend on the profile.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from speclab.cli import pair, plan
from speclab.estimates import counted
from speclab.plain import Facts, near, say_once
from speclab.show import notebook as kit
from speclab.study import runs
from speclab.study.profiles import MODELS, ROOT, Profile
from speclab.study.prompts import HUB_SETS

# notebooks by their former names; CHANGELOG.md has the table
FORMER = {
    "06_entropy_paradox": "06_chat_paradox",
    "12_try_it": "01_load_models",
    "13_how_sure": "12_how_sure",
    "14_serving": "10_wall_clock",
    "15_at_scale": "13_public_runs",
    "16_your_log": "14_your_log",
    "17_atlas": "13_public_runs",
    "18_trained_heads": "08_better_drafts",
}
REUSED = ("12", "13", "14")  # numbers that name another notebook than before
JUDGED = "judged_prompts_per_domain"  # a parameter of 08
# bytes per row of a recorded table, and the size of a run's folder as a multiple of its tables: the
# tables and the parts that they were made from. Measured on the tiny pair
TRACE_BYTES, NODE_BYTES, WITH_PARTS = 165, 25, 2.2


def other_temperatures(profile: Profile) -> list[str]:
    """The kinds of run at the temperatures between 0 and 1, but not at the profile's own."""
    between = {0.3: "sampled-0.3", 0.7: "sampled-0.7"}
    return [kind for heat, kind in between.items() if heat != profile.sampled_temperature]


def of_others(profile: Profile, ending: str = "") -> list[str]:
    """The kinds of run on the other prompt sets that a profile names."""
    sets = runs.sets_asked(profile, runs.sizes_of(profile))
    return [f"{runs.kind_of_set(source)}{ending}" for source in sets]


# names in RUNS that stand for kinds of run
STANDING_FOR: dict[str, Callable[[Profile], Iterable[str]]] = {
    "seeds": runs.seeds_of,
    "other-format": lambda profile: filter(None, [runs.other_format(profile)]),
    "other-temperatures": other_temperatures,
    "others": of_others,
    "others-but-unwrapped": lambda profile: [k for k in of_others(profile) if k != "unwrapped"],
    "others-sampled": lambda profile: of_others(profile, "-sampled"),
}


@dataclass(frozen=True)
class PlannedRun:
    """A run that notebooks need: its `kind`, the profile with its settings, the number of
    `prompts`, the numbers of the `notebooks` that read it, the finished run if it is `here`, and
    why it cannot be recorded (`refused`; empty if it can).
    """

    kind: str
    profile: Profile
    prompts: int
    notebooks: list[str]
    here: runs.Run | None
    refused: str

    @property
    def tokens(self) -> int:
        """The most tokens that its texts can have in total."""
        return self.prompts * self.profile.max_new_tokens

    @property
    def bytes(self) -> int:
        """The most bytes that its folder takes on the disk."""
        per_token = TRACE_BYTES + NODE_BYTES * self.profile.tree.size
        return int(WITH_PARTS * self.tokens * per_token)


# ---- what is needed ------------------------------------------------------------------------------


def chosen(wanted: Sequence[str], root: Path = ROOT) -> list[Path]:
    """The notebooks with these numbers or names; all if none is named. ValueError: unknown name."""
    paths = sorted((root / "notebooks").glob("[0-9]*.ipynb"))
    if not paths:
        raise ValueError(
            f"{root} has no notebooks, because an installed package has none; run this in a clone "
            "of the kit"
        )
    known = {name: path for path in paths for name in (path.stem, path.stem[:2])}
    for old, new in FORMER.items():
        if new in known:
            known = {old: known[new], old[:2]: known[new]} | known
    stems = [Path(text).stem.zfill(2) for text in wanted]
    for stem in stems:
        if stem not in known:
            raise ValueError(f"no notebook {stem!r}: {near(stem, known)}")
        if stem in REUSED:
            say_once(f"notebook {stem} is {known[stem].stem}; before, this number named another")
    return sorted({known[stem] for stem in stems}) or paths


def declared(notebook: Path) -> list[str] | None:
    """What a notebook's RUNS declares; None for a notebook without such a list or without .py."""
    source = notebook.with_suffix(".py")
    text = source.read_text(encoding="utf-8") if source.is_file() else ""
    for node in ast.parse(text, source.name).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "RUNS":
            return [str(name) for name in ast.literal_eval(node.value)]
    return None


def kinds_named(profile: Profile, names: Iterable[str]) -> list[str]:
    """The kinds of run that the names in RUNS stand for in a profile, each once."""
    kinds: list[str] = []
    for name in names:
        kinds += STANDING_FOR[name](profile) if name in STANDING_FOR else [name]
    return list(dict.fromkeys(kinds))


def runs_asked(profile: Profile, notebooks: Iterable[Path]) -> list[PlannedRun]:
    """The runs that these notebooks need, in the order in which they name them."""
    readers: dict[str, list[str]] = {}
    for notebook in notebooks:
        for kind in kinds_named(profile, declared(notebook) or []):
            readers.setdefault(kind, []).append(notebook.stem[:2])
    is_told = can_be_told(profile)
    found = []
    for kind, numbers in readers.items():
        of_kind = runs.of_kind(profile, kind)
        prompts = sum(runs.sizes_of(of_kind).values())
        here, refused = looked_up(profile, kind) if is_told else (None, "")
        refused = "" if here else refused or refusal(of_kind)
        found.append(PlannedRun(kind, of_kind, prompts, numbers, here, refused))
    return found


def looked_up(profile: Profile, kind: str) -> tuple[runs.Run | None, str]:
    """The finished run of a kind, and why its prompts cannot be read in the profile's other format
    (as with a chat template that the tokenizer does not have).
    """
    try:
        return runs.recorded_run(profile, kind), ""
    except ValueError as error:
        if kind != runs.other_format(profile):
            raise
        return None, str(error)


def refusal(profile: Profile) -> str:
    """Why no run of this profile can be recorded, by the config.json of its models; empty if these
    do not say so or are unknown.
    """
    for which in MODELS:
        try:
            if plan.known_config(profile, which):
                plan.model_line(profile, which)
        except ValueError as error:
            return f"{which} {getattr(profile, which).path}: {error}"
    return ""


def can_be_told(profile: Profile) -> bool:
    """Whether the runs of a profile can be found without a download: none of its prompt sets is a
    public set.
    """
    return not {profile.prompts, *profile.others} & {*HUB_SETS}


def fetch_models(profile: Profile, kinds: Iterable[str]) -> None:
    """Download the models that recording runs of these kinds needs, with a progress bar; nothing
    if all of the runs are recorded, or cannot be.
    """
    if can_be_told(profile) and all(any(looked_up(profile, kind)) for kind in kinds):
        return
    pair.fetch_pair(profile)


# ---- what it costs -------------------------------------------------------------------------------


def manifests_of_pair(profile: Profile) -> list[Facts]:
    """The manifests of runs of the profile's models that were recorded on this machine."""
    found = []
    for path in runs.RUNS.glob("*/manifest.json"):
        facts = runs.manifest_of(path.parent)  # None is reported when its run is read
        paths = [facts["profile"][name]["path"] for name in MODELS] if facts else []
        if facts and paths == [getattr(profile, name).path for name in MODELS]:
            found.append(facts)
    return found


def seconds_of(run: PlannedRun, known: Sequence[Facts]) -> float | None:
    """The seconds to record a run, at the speed of the longest known run, with the same tree if
    there is one; None without a known run.
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
    """The lines of the plan for the notebooks with these numbers or names (none: all) on a machine
    with this many GPUs.
    """
    asked, left_out = [], []
    for notebook in chosen(wanted):
        judged = profile.notebooks.get(notebook.stem, {}).get(JUDGED, 0)
        if reason := kit.lacks(notebook.stem, profile, judged):
            left_out.append(f"Left out: {notebook.stem} {reason}")
        else:
            asked.append(notebook)
            if declared(notebook) is None:
                left_out.append(f"Unknown: {notebook.stem} declares no RUNS among its imports")
    yield about(profile)
    known = manifests_of_pair(profile)
    planned_runs = runs_asked(profile, asked)
    yield from table_of(planned_runs, known)
    refused: dict[str, list[str]] = {}
    for run in planned_runs:
        refused.setdefault(run.refused, []).append(run.kind)
    able = {*refused.pop("", [])}
    if able or not refused:
        missing = [run for run in planned_runs if run.kind in able and not run.here]
        yield total(profile, missing, known)
    for reason, kinds in refused.items():
        yield f"Cannot record {', '.join(kinds)}: {reason}."
    yield from left_out
    yield from model_lines(profile)
    yield from memory_lines(profile, gpus)


def about(profile: Profile) -> str:
    """The prompts and temperatures of a profile, in two sentences."""
    sizes = runs.sizes_of(profile)
    of_each = ", ".join(f"{name} {size}" for name, size in sizes.items())
    given = f"temperature: {profile.temperature:g}"
    return (
        f"{profile.name}: {sum(sizes.values())} prompts ({of_each}), up to "
        f"{profile.max_new_tokens} tokens each. Studies use T = 0 and "
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
    """Where a run is, or the cost of recording it."""
    if run.refused:
        return "cannot be recorded"
    if run.here is None:
        return f"to record: {takes([run], known)}"
    folder = run.here.folder
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    if folder.is_relative_to(runs.RUNS):
        return f"recorded, {size / 1e6:.1f} MB"
    return "shipped with the kit" if folder.is_relative_to(ROOT) else f"read from {folder}"


def takes(unrecorded: Sequence[PlannedRun], known: Sequence[Facts]) -> str:
    """The minutes, if they are known, and the bytes of runs that are not recorded yet."""
    seconds = [seconds_of(run, known) for run in unrecorded]
    lasting = "time unknown"
    if None not in seconds:
        minutes = round(sum(filter(None, seconds)) / 60)
        lasting = f"about {counted(minutes, 'minute')}" if minutes else "less than a minute"
    return f"{lasting}, {sum(run.bytes for run in unrecorded) / 1e6:.1f} MB"


def total(profile: Profile, unrecorded: Sequence[PlannedRun], known: Sequence[Facts]) -> str:
    """The cost of all runs that are not recorded yet."""
    if not unrecorded:
        return "All runs are available."
    tokens = sum(run.tokens for run in unrecorded)
    runs_left = counted(len(unrecorded), "run")
    said = f"{runs_left} to record: {tokens:,} tokens, {takes(unrecorded, known)}."
    if not can_be_told(profile):
        said += " Some may be recorded already; this is unknown until the prompts are downloaded."
    if not known:
        said += " The time is unknown until a first run of this pair is recorded on this machine."
    return said


def model_lines(profile: Profile) -> Iterator[str]:
    """What target and draft are, as far as their config.json is known and can be used."""
    for which in MODELS:
        with suppress(ValueError):
            yield f"{which}: {plan.model_line(profile, which)}."


def memory_lines(profile: Profile, gpus: int) -> Iterator[str]:
    """The memory that recording needs on each device."""
    try:
        needs: Mapping[str, int] = plan.planned_bytes(profile, plan.planned_pair(profile, gpus))
    except Exception as error:  # libraries raise whatever they like at a config of others
        yield f"Memory is unknown: {error}."
        return
    for device, need in needs.items():
        yield f"Memory on {device}: at most {need / 1e9:.1f} GB (`doctor` checks what is free)."
