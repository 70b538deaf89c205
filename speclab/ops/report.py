"""The report, index.html, which a reader opens after `make reproduce`: four numbers, ten findings
in order of importance, and what is to be known of each notebook. It needs no network and no other
file. A light copy, its pictures by link, lies beside the figures.
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

from speclab.estimates import counted, named
from speclab.ops.pages import CSS, PAGE, PICTURE, embedded, relative, sources
from speclab.plain import brief, read_json
from speclab.profiles import ROOT, Profile
from speclab.runs import sizes_of, written
from speclab.show.notebook import drawn_in

# how a notebook may end
DONE, FAILED = "done", "failed"
NEEDS_MODELS, NEEDS_FILES = "needs the models", "needs files"
UNKNOWN = "From an earlier run, whose settings are not known here."
STALE = "Out of date: its inputs or its files have changed since this run."
COMMITTED = "These figures come with the kit: what the notebook needs is not on this machine."
TEMPLATES = Path(__file__).parent
MOST_FINDINGS, MOST_NUMBERS = 10, 4
# findings in order of importance: the notebook whose answer it is, and the figure that shows it
FINDINGS = {
    "00": "rule",  # the text never changes
    "10": "speed",  # faster, but by less than tokens per pass suggest
    "03": "ladder",  # acceptance depends on the prompts and their wording; math is the easiest
    "06": "other-prompts",  # chat is the hardest here, not elsewhere
    "02": "block-efficiency",  # the best draft is short
    "09": "policies",  # one setting for all is as good
    "05": "reliability",  # the draft knows when it fails
    "04": "conditional",  # depth is selection
    "11": "claims",  # the paper's acceptance belongs to no lossless decoder
    "15": "together",  # at scale
}


@dataclass(frozen=True)
class Facts:
    """What the report says of a notebook: its name, the question in its title, what it recorded
    (`numbers.json`), its pictures, the one that shows its finding first, their captions, how its
    run ended (None: not known), and a remark.
    """

    name: str
    title: str
    numbers: dict[str, Any]
    pictures: list[Path]
    captions: dict[str, str]
    outcome: Any = None
    remark: str = UNKNOWN

    @property
    def number(self) -> str:
        """As 02."""
        return self.name[:2]

    @property
    def is_committed(self) -> bool:
        """Whether its figures come with the kit, since it could not run here."""
        return self.remark == COMMITTED

    @property
    def finding(self) -> str:
        """The first sentence of its answer; "": none."""
        return first_sentence(self.numbers.get("answer", ""))

    @property
    def caption(self) -> str:
        """What is seen on its first picture."""
        slug = self.pictures[0].stem
        return self.captions.get(slug, slug.replace("-", " "))


def write_report(
    build: Path,
    figures: Path,
    profile: Profile,
    outcomes: Sequence[Any],
    remarks: Mapping[str, str],
) -> Path:
    """Write build/index.html (`report.html.j2`) of the notebooks that ran there, and
    figures/index.html, the same of all notebooks with figures, by link, for whoever browses a
    clone.

    profile: what the head describes; outcomes: stamps; remarks: `remark` by notebook. Of a notebook
    without a remark nothing is known but its figures.
    """

    ran = {outcome.name: outcome for outcome in outcomes}
    known = [
        replace(facts, outcome=ran.get(facts.name), remark=remarks.get(facts.name, UNKNOWN))
        for facts in (facts_of(source, figures) for source in sources())
    ]
    here = [with_committed(facts, figures) for facts in known if facts.outcome]
    drawn = [facts for facts in known if facts.pictures]
    opening, explore = figures / "explore.png", figures / "explore.html"
    for folder, notebooks in ((build, here), (figures, drawn)):
        address = partial(relative, folder=folder)
        text = template().render(
            profile=profile,
            prompts=prompts_of(profile),
            explore=explore if explore.is_file() else None,
            opening=opening if opening.is_file() and explore.is_file() else None,
            name=figures.name,
            notebooks=notebooks,
            findings=in_order(notebooks)[:MOST_FINDINGS],
            numbers=headlines(notebooks),
            off=what_is_off(notebooks),
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


def facts_of(source: Path, figures: Path) -> Facts:
    """What a notebook and its folder of figures hold."""
    folder = drawn_in(figures, source.stem)
    text = nbformat.read(source, as_version=4).cells[0].source
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    leading = [Path(path).stem for _, path in PICTURE.findall(text)]
    slugs = [FINDINGS.get(source.stem[:2], ""), *leading]

    def rank(picture: Path) -> tuple[int, str]:
        return slugs.index(picture.stem) if picture.stem in slugs else len(slugs), picture.stem

    return Facts(
        source.stem,
        title[1] if title else source.stem,
        _read(folder / "numbers.json"),
        sorted(folder.glob("*.png"), key=rank),
        _read(folder / "captions.json"),
    )


def _read(path: Path) -> dict[str, Any]:
    return read_json(path, "run that notebook again") if path.is_file() else {}


def with_committed(facts: Facts, figures: Path) -> Facts:
    """Of a notebook that lacks models or files, the figures that come with the kit, labelled so."""
    if facts.outcome.status not in (NEEDS_MODELS, NEEDS_FILES):
        return facts
    shipped = facts
    if not facts.pictures:
        shipped = facts_of(
            ROOT / "notebooks" / f"{facts.name}.ipynb", ROOT / "figures" / figures.name
        )
    remark = COMMITTED if shipped.pictures else ""
    return replace(shipped, outcome=facts.outcome, remark=remark)


def in_order(notebooks: Sequence[Facts]) -> list[Facts]:
    """Notebooks that have an answer in order of importance, those of FINDINGS first."""
    places = {number: place for place, number in enumerate(FINDINGS)}
    answered = [facts for facts in notebooks if facts.finding]
    return sorted(answered, key=lambda facts: places.get(facts.number, len(places)))


def headlines(notebooks: Sequence[Facts]) -> list[str]:
    """The main numbers, each with what it is, as the notebooks recorded them: `headline`, such as
    '**1.5x** faster than plain decoding'.
    """
    said = [facts.numbers.get("headline", "") for facts in in_order(notebooks)]
    return [text for text in said if text][:MOST_NUMBERS]


def what_is_off(notebooks: Sequence[Facts]) -> str:
    """What is wrong with the report as a whole, in a sentence; "": nothing."""
    ended = [facts.outcome.status for facts in notebooks if facts.outcome]
    counts = {
        "failed": ended.count(FAILED),
        "lacked models": ended.count(NEEDS_MODELS),
        "lacked files": ended.count(NEEDS_FILES),
        "ran with other inputs than today's": sum(STALE in facts.remark for facts in notebooks),
    }
    parts = [f"{count} {what}" for what, count in counts.items() if count]
    return f"Of {len(notebooks)} notebooks {named(parts)}." if parts else ""


def page_of(facts: Facts, folder: Path) -> str:
    """The address, from the report in `folder`, of the page that tells of a notebook; "": none."""
    beside = [picture.with_name(PAGE) for picture in facts.pictures[:1]]
    there = [path for path in (folder / f"{facts.name}.html", *beside) if path.is_file()]
    return relative(there[0], folder) if there else ""


def first_sentence(answer: str) -> str:
    """The first sentence with a number of an answer, "" where there is none."""
    sentences = re.split(r"(?<=[.?]) (?=[A-Z`])", answer)
    return next((one for one in sentences if re.search(r"\d", one)), answer)


def remark(outcome: Any, described: Mapping[str, Any], is_stale: bool) -> str:
    """What a reader must know of a notebook's figures and answer beside the head, "" if nothing.

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
