"""The report, the first page of the site that a reader opens after `make reproduce`: findings, and
what is off. The findings are the headlines of the profile (`speclab.run.findings`) or, for every
other study, each notebook's question and answer.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import jinja2

from speclab.plain import Facts
from speclab.run import DONE
from speclab.run.findings import MISSING, Headline, headlines_of
from speclab.run.pages import PAGE
from speclab.show.notebook import ANSWERED, drawn_in
from speclab.study.profiles import Profile

# parts of a page in Markdown
HEAD = re.compile(rf"^# (.+)\n+(?:> {re.escape(ANSWERED)}(.+))?", re.MULTILINE)
PICTURE = re.compile(r'<img src="([\w-]+)\.png" alt="(.*?)"')


def write_report(build: Path, figures: Path, profile: Profile, outcomes: Sequence[Any]) -> None:
    """Write the site of the notebooks that ran (`speclab.run.site`), with the report as its first
    page.

    figures: the folder of the profile's; profile: what the report's head describes; outcomes: the
    stamps of all notebooks that this call or an earlier one ran, in order.
    """
    from speclab.run.site import write_site  # lazy: Sphinx takes a second

    # what the report says of a notebook that ran: `folder` of its figures, the question in its
    # `title`, its `answer`, `pictures` (texts by name, in the order of its page), and `changed`
    # (values of parameters)
    done = {}
    for one in outcomes:
        if one.status == DONE:
            folder = drawn_in(figures, one.name)
            page = (folder / PAGE).read_text(encoding="utf-8")
            [(title, answer), *_] = HEAD.findall(page)
            done[one.name[:2]] = {
                "name": one.name,
                "folder": folder,
                "title": title,
                "answer": answer,
                "pictures": dict(PICTURE.findall(page)),
                "changed": one.given["overrides"] | one.given["changes"],
            }
    # headlines are about a profile of the kit (one that a name stood for), its settings unchanged
    shipped = {"profile": profile.name, "overrides": {}, "changes": {}}
    is_shipped = all(one.given == shipped for one in outcomes)
    headlines = headlines_of(profile.name) if is_shipped else []
    template = Path(__file__).with_name("report.md.j2").read_text(encoding="utf-8")
    text = jinja2.Template(template, trim_blocks=True, lstrip_blocks=True).render(
        profile=profile,
        has_explorer=(figures / "explore.html").is_file(),
        done=done.values(),
        off=[one for one in outcomes if one.status != DONE],
        findings=headlined(done, headlines),
    )
    write_site(build, figures, text, [one["name"] for one in done.values()])


def headlined(notebooks: Mapping[str, Facts], headlines: Sequence[Headline]) -> list[Facts]:
    """For each headline that is true here: its notebook, with the `finding` and the `picture` that
    shows it ("": none). notebooks: by number.
    """
    found = []
    for headline in headlines:
        with suppress(*MISSING):  # no such notebook, or its tables lack a number
            one = notebooks[headline.notebook]
            if said := headline.told(one["folder"]):
                found.append(one | {"finding": said, "picture": headline.figure})
    return found
