"""`python -m speclab plan`: the runs that the notebooks of a profile need, which notebooks read
them, and what recording the missing runs takes. Downloads nothing and loads no weights. (`doctor`
says whether weights and memory suffice.)

A notebook declares the kinds of run that it needs: a list of plain texts called RUNS in its cell of
imports. The texts are kinds of `runs.kinds_of` and the names of STANDING_FOR, which stand for kinds
that depend on the profile.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from speclab.estimates import counted
from speclab.models import hub
from speclab.models.folder import ModelFolder
from speclab.plain import Facts, say_once
from speclab.stats import MIN_PROMPTS
from speclab.study import runs, timing_runs
from speclab.study.pairs import check_pair
from speclab.study.profiles import MODELS, ROOT, Profile
from speclab.study.prompts import HUB_SETS
from speclab.study.reading import near

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


def other_sets(profile: Profile) -> list[str]:
    """The kinds of greedy run on the other prompt sets that a profile names."""
    return [*map(runs.kind_of_set, runs.sets_asked(profile, runs.sizes_of(profile)))]


STANDING_FOR: Facts = {  # functions of a profile, by names in RUNS
    "seeds": runs.seeds_of,
    "other-format": lambda profile: filter(None, [runs.other_format(profile)]),
    "other-temperatures": lambda profile: [
        f"sampled-{heat}" for heat in (0.3, 0.7) if heat != profile.sampled_temperature
    ],
    "others": other_sets,
    "others-but-unwrapped": lambda profile: [
        kind for kind in other_sets(profile) if kind != "unwrapped"
    ],
    "others-sampled": lambda profile: [f"{kind}-sampled" for kind in other_sets(profile)],
}


@dataclass(frozen=True)
class PlannedRun:
    """A run that notebooks need: its `kind`, the most `tokens` that its texts can have in total,
    the numbers of the `notebooks` that read it, the finished run if it is `here`, and why it cannot
    be recorded (`refused`; empty if it can).
    """

    kind: str
    tokens: int
    notebooks: list[str]
    here: runs.Run | None
    refused: str


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
        for name in (old, old[:2]) if new in known else ():
            known.setdefault(name, known[new])  # a number of today names today's notebook
    found = set()
    for text in wanted:
        stem = Path(text).stem.zfill(2)
        if stem not in known:
            raise ValueError(f"no notebook {stem!r}: {near(stem, [one.stem for one in paths])}")
        if stem in REUSED:
            say_once(f"notebook {stem} is {known[stem].stem}; before, this number named another")
        found.add(known[stem])
    return sorted(found) or paths


def declared(notebook: Path) -> list[str]:
    """What a notebook's RUNS declares, by its .py; nothing for one without such a list."""
    source = notebook.with_suffix(".py")
    text = source.read_text("utf-8") if source.is_file() else ""
    found = re.search(r"^RUNS = (\[[^]]*\])", text, re.MULTILINE)
    return ast.literal_eval(found[1]) if found else []


def kinds_named(profile: Profile, names: Iterable[str]) -> list[str]:
    """The kinds of run that the names in RUNS stand for in a profile, each once."""
    kinds = (STANDING_FOR[name](profile) if name in STANDING_FOR else [name] for name in names)
    return [*dict.fromkeys(chain.from_iterable(kinds))]


def runs_asked(profile: Profile, notebooks: Iterable[Path]) -> Iterator[PlannedRun]:
    """The runs that these notebooks need, in the order in which they name them: where each is, and
    if it is nowhere, why it cannot be recorded, by a config.json on this machine, or by a chat
    template that the tokenizer does not have. ValueError if the prompts cannot be read otherwise.
    """
    readers: dict[str, list[str]] = {}
    for notebook in notebooks:
        for kind in kinds_named(profile, declared(notebook)):
            readers.setdefault(kind, []).append(notebook.stem[:2])
    for kind, numbers in readers.items():
        asked, here, refused = runs.of_kind(profile, kind), None, ""
        tokens = sum(runs.sizes_of(asked).values()) * asked.max_new_tokens
        try:
            here = runs.recorded_run(profile, kind) if can_be_found(profile) else None
        except ValueError as error:
            if kind != runs.other_format(profile):
                raise
            refused = str(error)
        try:
            needed = [] if here else [getattr(asked, name) for name in MODELS]
            away = [spec.path for spec in needed if not ModelFolder.here(spec)]
            for path in away:
                hub.check_name(path)
            if needed and not away:
                check_pair(asked)
        except ValueError as error:
            refused = str(error)
        yield PlannedRun(kind, tokens, numbers, here, refused)


def can_be_found(profile: Profile) -> bool:
    """Whether the runs of a profile can be found without a download: none of its prompt sets is a
    public set.
    """
    return not {profile.prompts, *profile.others} & {*HUB_SETS}


# ---- the page ------------------------------------------------------------------------------------


def recording_rate(profile: Profile) -> float:
    """The seconds per token of the longest run of the profile's models that was recorded on this
    machine; 0 if there is no such run.
    """
    wanted = [getattr(profile, name).path for name in MODELS]
    known = [(1, 0.0)]
    for path in runs.RUNS.glob("*/manifest.json"):
        with suppress(ValueError, runs.RunError):  # it is reported when its run is read
            facts = runs.manifest_of(path.parent)
            if [facts["profile"][name]["path"] for name in MODELS] == wanted:
                known.append((facts["rows"]["trace"], facts["time_s"]))
    tokens, seconds = max(known)
    return seconds / tokens


def cost(tokens: int, rate: float) -> str:
    """The tokens of recordings, and about their minutes."""
    minutes = f"about {tokens * rate / 60:.1f} min" if rate else "time unknown before the first run"
    return f"{tokens:,} tokens, {minutes}"


def where(run: PlannedRun, rate: float) -> str:
    """Where a run is, or what recording it takes."""
    if run.refused and not run.here:
        return f"cannot be recorded: {run.refused}"
    if not run.here:
        return f"to record: {cost(run.tokens, rate)}"
    place = "recorded" if run.here.folder.is_relative_to(runs.RUNS) else "shipped"
    return f"{place}: {'part of ' * isinstance(run.here, runs.Part)}{run.here.folder.name}"


def decoding(profile: Profile, its: Any) -> str:
    """What notebook 10 decodes, and at most how long that takes at the speed of plain decoding in
    the timing runs of the profile's models. its: values of its parameters.
    """
    kinds = kinds_named(profile, ["greedy", "others-but-unwrapped"])
    domains = [len(runs.sizes_of(runs.of_kind(profile, kind))) for kind in kinds]
    # timed prompts, five at least, plainly and with chains, a tree and copies; then the probes
    least = -(-MIN_PROMPTS // len(kinds))
    timed = sum(max(its.prompts_per_domain_timed * count, least) for count in domains)
    probed = max(its.probe_prompts * domains[0], 4)
    texts = timed * its.repeats * (len(its.gammas) + 3) + probed * (len(its.probes) + 1)
    tokens = texts * min(its.new_tokens, profile.max_new_tokens)
    known, _ = timing_runs.timing_runs(runs.identity_of(profile, fetch=False)["weights"])
    minutes = f"at most {tokens * known['target_ms'].mean() / 60_000:.0f} min"
    if known.empty:
        minutes = "time unknown until it has timed these models"
    return f"10 decodes up to {tokens:,} tokens, text by text: {minutes}."


def lines_of_plan(profile: Profile, notebooks: Mapping[Path, Any]) -> Iterator[str]:
    """The lines of the plan for these notebooks, each with the values of its parameters."""
    planned, sizes = [*runs_asked(profile, notebooks)], runs.sizes_of(profile)
    yield (
        f"{profile.name}: {sum(sizes.values())} prompts in {counted(len(sizes), 'domain')}, up to "
        f"{profile.max_new_tokens} tokens each, at T = 0 and {profile.sampled_as}."
    )

    # the runs, and what the missing ones take together
    rate = recording_rate(profile)
    for run in planned:
        yield f"{run.kind:<24}  {' '.join(run.notebooks):<35}  {where(run, rate)}"
    missing = [run.tokens for run in planned if not (run.here or run.refused)]
    if missing:
        yield f"{counted(len(missing), 'run')} to record: {cost(sum(missing), rate)}."
    for path, values in notebooks.items():
        if path.stem.startswith("10_"):
            yield decoding(profile, values)
        if path.stem.startswith("08_"):
            yield "08 also runs other drafts over these texts, which is not in these numbers."
    if not can_be_found(profile):
        yield "Some may be recorded already; this is unknown until the prompts are downloaded."
