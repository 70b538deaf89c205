"""The report, index.html, which a reader opens after `make reproduce`: four numbers, findings, and
the state of each notebook. The findings are the headlines of the profile (`speclab.run.findings`)
or, for every other study, each notebook's question and answer. It needs no network and no other
file. A light copy, which links to its pictures, lies beside the figures.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
import nbformat
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

from speclab.estimates import counted
from speclab.plain import Facts, brief, read_json
from speclab.run.findings import Headline, headlines_of
from speclab.run.pages import CSS, PAGE, PICTURE, TEMPLATES, embedded, relative
from speclab.show.figure_files import COLUMN
from speclab.show.notebook import drawn_in
from speclab.study.profiles import ROOT, Profile, load_profile, profile_names
from speclab.study.runs import sizes_of, written

# how a notebook may end
DONE, FAILED = "done", "failed"
NEEDS_MODELS, NEEDS_FILES = "needs the models", "needs files"
LEFT_OUT = "left out"  # by the notebook itself: the study has too little for it
UNKNOWN = "From an earlier run, whose settings are not known here."
STALE = "Out of date: its inputs or its files have changed since this run."
COMMITTED = "These figures come with the kit: what the notebook needs is not on this machine."
# findings that are not the profile's own
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
    def caption(self) -> str:
        """The caption of its first picture."""
        slug = self.pictures[0].stem
        return self.captions.get(slug, slug.replace("-", " "))


def write_index(
    build: Path,
    figures: Path,
    profile: Profile,
    outcomes: Sequence[Any],
    remarks: Mapping[str, str],
) -> Path:
    """Write build/index.html (`report.html.j2`) of the notebooks that ran there, and
    figures/index.html of all notebooks with figures, for whoever browses a clone.

    profile: what the head describes; outcomes: stamps; remarks: `remark` by notebook. For a
    notebook without a remark only its figures are known.
    """
    # every notebook, with what this call or an earlier one did with it
    ran = {outcome.name: outcome for outcome in outcomes}
    known = []
    for source in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        found = reported(source, figures)
        remark = remarks.get(found.name, UNKNOWN)
        known.append(replace(found, outcome=ran.get(found.name), remark=remark))
    here = [with_committed(one, figures) for one in known if one.outcome]
    drawn = [one for one in known if one.pictures]
    headlines = headlines_of(profile.name) if is_as_shipped(profile, outcomes) else []
    opening, explore = figures / "explore.png", figures / "explore.html"
    for folder, notebooks in ((build, here), (figures, drawn)):
        address = partial(relative, folder=folder)
        copied = folder / explore.name  # with links to the pages beside it
        explorer = copied if copied.is_file() else explore
        text = template().render(
            profile=profile,
            prompts=prompts_of(profile),
            explore=explorer if explorer.is_file() else None,
            opening=opening if opening.is_file() and explore.is_file() else None,
            name=figures.name,
            notebooks=notebooks,
            findings=headlined(notebooks, headlines) or with_answers(notebooks),
            elsewhere=ELSEWHERE,
            stale=STALE,
            committed=COMMITTED,
            address=address,
            shown=embedded if folder == build else address,
            page=partial(page_of, folder=folder),
            css=CSS,
        )
        written(folder / "index.html", lambda path, text=text: path.write_text(text, "utf-8"))
    return build / "index.html"


def template() -> jinja2.Template:
    """`report.html.j2`."""
    loader = jinja2.FileSystemLoader(TEMPLATES)
    pages = jinja2.Environment(loader=loader, trim_blocks=True, lstrip_blocks=True, autoescape=True)
    pages.filters["inline"] = inline
    return pages.get_template("report.html.j2")


def reported(source: Path, figures: Path) -> Reported:
    """What a notebook and its folder of figures hold."""
    folder = drawn_in(figures, source.stem)
    text = nbformat.read(source, as_version=4).cells[0].source
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    page = folder / PAGE
    shown = PICTURE.findall(page.read_text(encoding="utf-8")) if page.is_file() else []
    order = [Path(path).stem for _, path in shown]  # as its page shows them
    every = sorted(folder.glob("*.png"), key=lambda path: path.stem)
    pictures = [path for path in every if not path.stem.endswith(COLUMN)]
    pictures.sort(key=lambda path: [path.stem != slug for slug in order])
    numbers, captions = (_read(folder / f"{name}.json") for name in ("numbers", "captions"))
    return Reported(source.stem, title[1] if title else source.stem, numbers, pictures, captions)


def _read(path: Path) -> Facts:
    return read_json(path, "run that notebook again") if path.is_file() else {}


def with_committed(found: Reported, figures: Path) -> Reported:
    """For a notebook that lacks models or files: the figures that come with the kit, labelled."""
    if found.outcome.status not in (NEEDS_MODELS, NEEDS_FILES):
        return found
    source = ROOT / "notebooks" / f"{found.name}.ipynb"
    shipped = found if found.pictures else reported(source, ROOT / "figures" / figures.name)
    return replace(shipped, outcome=found.outcome, remark=COMMITTED if shipped.pictures else "")


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


def page_of(found: Reported, folder: Path) -> str:
    """The address, from the report in `folder`, of a notebook's page; "": none."""
    beside = [picture.with_name(PAGE) for picture in found.pictures[:1]]
    there = [path for path in (folder / f"{found.name}.html", *beside) if path.is_file()]
    return relative(there[0], folder) if there else ""


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


def inline(markdown: str) -> str:
    """A paragraph of Markdown as HTML, its own HTML shown as text."""
    return MarkdownWithMath(renderer=IPythonRenderer(escape=True)).render(markdown)
