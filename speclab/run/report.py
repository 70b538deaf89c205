"""The report, the first page of the site that a reader opens after `make reproduce`: findings, and
the state of each notebook. The findings are the headlines of the profile (`speclab.run.findings`) or,
for every other study, each notebook's question and answer.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2
import nbformat

from speclab.estimates import counted
from speclab.plain import Facts, brief, read_json
from speclab.run.findings import Headline, headlines_of
from speclab.run.pages import PAGE
from speclab.show.figure_files import COLUMN
from speclab.show.notebook import drawn_in
from speclab.study.profiles import ROOT, Profile, load_profile, profile_names
from speclab.study.runs import sizes_of

# how a notebook may end
DONE, FAILED = "done", "failed"
NEEDS_MODELS, NEEDS_FILES = "needs the models", "needs files"
LEFT_OUT = "left out"  # by the notebook itself: the study has too little for it
UNKNOWN = "From an earlier run, whose settings are not known here."
STALE = "Out of date: its inputs or its files have changed since this run."
OFF = {  # how notebooks ended that say less than they could
    FAILED: "failed",
    NEEDS_MODELS: "lacked models",
    NEEDS_FILES: "lacked files",
    STALE: "ran with other inputs than today's",
}
# findings that are not the profile's own
PICTURE = re.compile(r"!\[[^\]]*\]\(([^()\s]+\.png)\)")  # in Markdown
ELSEWHERE = {
    "00": "From a toy example with five words, not from this pair.",
    "13": "From public runs of other pairs, not from this pair.",
}


@dataclass(frozen=True)
class Reported:
    """What the report says of a notebook: its name, the question in its title, what it recorded
    (`numbers.json`), its pictures (first the one that shows its finding), their captions, how its
    run ended (None: not known), a remark, a finding ("": none), and whether a picture shows it.
    """

    name: str
    title: str
    numbers: Facts
    pictures: list[Path]
    captions: dict[str, str]
    outcome: Any = None
    remark: str = UNKNOWN
    finding: str = ""
    is_drawn: bool = True

    @property
    def number(self) -> str:
        """For example 02."""
        return self.name[:2]

    @property
    def has_page(self) -> bool:
        """Whether its last run wrote a page."""
        return self.outcome.status == DONE

    @property
    def state(self) -> str:
        """How its last run ended, if not well, and what differs, in words."""
        ended = "" if self.has_page else f"{self.outcome.status}: {self.outcome.error}"
        return " ".join(filter(None, [ended, self.remark]))

    @property
    def caption(self) -> str:
        """The caption of its first picture."""
        slug = self.pictures[0].stem
        return self.captions.get(slug, slug.replace("-", " "))


def write_report(
    build: Path,
    figures: Path,
    profile: Profile,
    outcomes: Sequence[Any],
    remarks: Mapping[str, str],
) -> Path:
    """Write the site of the notebooks that ran (`speclab.run.site`), with the report as its first
    page. Returns build/index.html, which leads to it.

    profile: what the head describes; outcomes: stamps; remarks: `remark` by notebook.
    """
    from speclab.run.site import write_site  # lazy: Sphinx takes a second

    # every notebook that a call, this or an earlier one, did something with
    notebooks = []
    for outcome in outcomes:
        source = ROOT / "notebooks" / f"{outcome.name}.ipynb"
        if source.is_file():
            found = reported(source, figures)
            notebooks.append(replace(found, outcome=outcome, remark=remarks[found.name]))
    headlines = headlines_of(profile.name) if is_as_shipped(profile, outcomes) else []
    counts = Counter(one.outcome.status for one in notebooks)
    counts[STALE] = sum(STALE in one.remark for one in notebooks)
    text = template().render(
        profile=profile,
        prompts=prompts_of(profile),
        explorer=(build / "explore.html").is_file() and (figures / "explore.png").is_file(),
        name=figures.name,
        notebooks=notebooks,
        findings=headlined(notebooks, headlines) or with_answers(notebooks),
        elsewhere=ELSEWHERE,
        off=[f"{counts[status]} {words}" for status, words in OFF.items() if counts[status]],
    )
    return write_site(build, figures, text, [one for one in notebooks if one.has_page])


def template() -> jinja2.Template:
    """`report.md.j2`."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    pages = jinja2.Environment(loader=loader, trim_blocks=True, lstrip_blocks=True)
    return pages.get_template("report.md.j2")


def reported(source: Path, figures: Path) -> Reported:
    """What a notebook and its folder of figures hold."""
    folder = drawn_in(figures, source.stem)
    text = nbformat.read(source, as_version=4).cells[0].source
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    page = folder / PAGE
    shown = PICTURE.findall(page.read_text(encoding="utf-8")) if page.is_file() else []
    order = [Path(path).stem for path in shown]  # as its page shows them
    every = sorted(folder.glob("*.png"), key=lambda path: path.stem)
    pictures = [path for path in every if not path.stem.endswith(COLUMN)]
    pictures.sort(key=lambda path: [path.stem != slug for slug in order])
    numbers, captions = (_read(folder / f"{name}.json") for name in ("numbers", "captions"))
    return Reported(source.stem, title[1] if title else source.stem, numbers, pictures, captions)


def _read(path: Path) -> Facts:
    return read_json(path, "run that notebook again") if path.is_file() else {}


def is_as_shipped(profile: Profile, outcomes: Sequence[Any]) -> bool:
    """Whether a report is about a profile of the kit, its prompts and its settings unchanged."""
    given = [outcome.given for outcome in outcomes]
    is_changed = any(facts.get("overrides") or facts.get("changes") for facts in given)
    shipped = profile.name in profile_names() and load_profile(profile.name)
    return profile == shipped and not is_changed


def headlined(notebooks: Sequence[Reported], headlines: Sequence[Headline]) -> list[Reported]:
    """For each headline that is true here: its notebook, with the figure that shows it first."""
    by_number = {one.number: one for one in notebooks if one.pictures}
    found = []
    for headline in headlines:
        one = by_number.get(headline.notebook)
        said = one and _told(headline, one.pictures[0].parent)
        if one and said:
            first = [picture for picture in one.pictures if picture.stem == headline.figure]
            pictures = list(dict.fromkeys(first + one.pictures))
            is_drawn = bool(headline.figure)
            found.append(replace(one, finding=said, pictures=pictures, is_drawn=is_drawn))
    return found


def _told(headline: Headline, folder: Path) -> str:
    """A headline with its numbers; "" if it is not true here, or if its tables are not there."""
    try:
        return headline.told(folder)
    except ValueError:
        return ""


def with_answers(notebooks: Sequence[Reported]) -> list[Reported]:
    """The notebooks that have an answer, with it."""
    found = [replace(one, finding=one.numbers.get("answer", "")) for one in notebooks]
    return [one for one in found if one.finding]


def remark(outcome: Any, described: Mapping[str, Any], is_stale: bool) -> str:
    """How a notebook's figures and answer differ from what the head describes; "": not at all.

    outcome: its stamp; described: what the head describes, by name; is_stale: whether the same call
    would run the notebook again.
    """
    if outcome.status != DONE:
        return UNKNOWN
    given = {"profile": outcome.given["profile"]}
    given |= outcome.given["overrides"] | outcome.given["changes"]
    differs = [item for item in given.items() if item not in described.items()]
    settings = ", ".join(f"{name}={brief(value)}" for name, value in differs)
    sentences = [f"Run with {settings}."] if settings else []
    return " ".join([*sentences, STALE] if is_stale else sentences)


def prompts_of(profile: Profile) -> str:
    """How many prompts a profile has, in words."""
    try:
        counts = sizes_of(profile)
    except ValueError:
        return "Prompts that cannot be read here"
    return f"{counted(sum(counts.values()), 'prompt')} in {counted(len(counts), 'domain')}"
