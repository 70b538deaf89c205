"""figures/<profile>/explore.html: the page to explore a profile's recorded runs, made again where a
run or a piece of the page changed.
"""

from pathlib import Path

from speclab import runs
from speclab.explore import page
from speclab.profiles import Profile
from speclab.runs import Run, RunError

NAME = "explore.html"
KINDS = ("greedy", "sampled")


def runs_there(profile: Profile) -> list[Run]:
    """The greedy and the sampled run of a profile that are there; nothing is recorded."""
    from speclab.models.pairs import ModelsMissing

    try:
        found = [runs.recorded_run(profile, kind) for kind in KINDS]
    except (ModelsMissing, RunError, ValueError):
        return []  # its key is not to be had, or it is damaged: the notebooks have said so
    return [run for run in found if run]


def bring_up_to_date(profile: Profile, figures: Path) -> str:
    """Write the page into the folder `figures` where it is not up to date; what was done, in words,
    "" where nothing was recorded.
    """
    found = runs_there(profile)
    if not found:
        return ""
    return "done" if page.write_page(found, figures / NAME) else "up to date"
