"""The pairs that the audit shows side by side, and the runs of each that it reads."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from speclab import runs
from speclab.profiles import ROOT, Profile, load_profile
from speclab.runs import Run

WARMER = {0.3: "sampled-0.3", 0.7: "sampled-0.7"}  # kinds of run by temperature
SEEDS = ("sampled-seed-1", "sampled-seed-2")  # kinds of run at T = 1, of other seeds


@dataclass(frozen=True)
class PairRuns:
    """The recorded runs of one pair.

    greedy, balanced: at T = 0, the profile's tree and the one with every level complete. sampled:
    at T = 1. warmer: by temperature between the two; seeds: at T = 1, drawn with other seeds (both
    with one drafted node a position: what is replayed comes from their traces).
    """

    profile: Profile
    greedy: Run
    balanced: Run
    sampled: Run
    warmer: dict[float, Run]
    seeds: tuple[Run, ...]


def runs_of(profile: Profile) -> PairRuns:
    """The runs of a profile: read where they are recorded or shipped, else recorded now."""
    at_0 = profile.replace(temperature=0.0)
    return PairRuns(
        profile,
        greedy=runs.load_or_record(at_0, "greedy"),
        balanced=runs.load_or_record(at_0, "balanced"),
        sampled=runs.load_or_record(profile, "sampled"),
        warmer={
            temperature: runs.load_or_record(profile, kind)
            for temperature, kind in WARMER.items()
        },
        seeds=tuple(runs.load_or_record(profile, kind) for kind in SEEDS),
    )


def of_pairs(profile: Profile, beside: Iterable[str] = ()) -> dict[str, PairRuns]:
    """`runs_of` the profile and of each profile named in `beside`, by name, the profile's own
    first; one that is named twice counts once. `beside` stands as its files say: changes of the
    notebook's own profile (fewer prompts, …) are not theirs; what is shipped of it is read.
    """
    found = {profile.name: runs_of(profile)}
    for name in beside:
        if name not in found:
            found[name] = runs_of(_as_shipped(load_profile(name)))
    return found


def _as_shipped(profile: Profile) -> Profile:
    """The profile with the traces that the kit ships of it, also where it records its own."""
    shipped = f"data/traces/{profile.name}"
    if not profile.traces and (ROOT / shipped).is_dir():
        profile = profile.replace(traces=shipped)
    return profile.replace(recorded=())


def smallest_domains(pairs: Mapping[str, PairRuns]) -> dict[str, int]:
    """Prompts of the smallest domain of each pair."""
    return {
        name: int(pair.greedy.trace.groupby("domain")["prompt_id"].nunique().min())
        for name, pair in pairs.items()
    }


def caveat(pairs: Mapping[str, PairRuns]) -> str:
    """What pictures of these pairs are not about, in one sentence without its full stop."""
    if "paper" in pairs:
        return "Each number is of the pair that it is drawn for"
    return (
        f"Measured on {' and '.join(pairs)} only; nothing here is of the paper's pair, "
        "Llama-2-7B-Chat with TinyLlama"
    )
