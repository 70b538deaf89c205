"""The site of a profile, build/<profile>/site: a page for each notebook that ran, and a first page,
the report. Sphinx makes it (myst-nb, sphinx-book-theme), and it needs no network.
build/<profile>/index.html leads to it.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from sphinx.application import Sphinx

from speclab.explore.page import add_links
from speclab.plain import Facts
from speclab.run.pages import page_of
from speclab.show.notebook import drawn_in

CONFIGURATION: Facts = {
    "extensions": ["myst_nb", "sphinx-mathjax-offline"],
    "html_theme": "sphinx_book_theme",
    "html_theme_options": {
        "navbar_persistent": [],
        "footer_content_items": [],
    },
    "smartquotes": False,  # names of a study are shown as they are
    "nb_execution_mode": "off",
    "nb_render_markdown_format": "myst",
    "myst_enable_extensions": ["dollarmath"],
}
LEADS_ON = """<!doctype html><meta charset="utf-8"><title>speclab</title>
<meta http-equiv="refresh" content="0; url=site/index.html"><a href="site/index.html">Results</a>
"""


def write_site(build: Path, figures: Path, first_page: str, names: Sequence[str]) -> None:
    """Write the site of a build folder, and build/index.html, which leads to it.

    figures: the folder of the profile's; first_page: in Markdown; names: notebooks with a page.
    """
    index, site = build / "index.html", build / "site"
    index.unlink(missing_ok=True)  # it comes last, because it vouches for the site
    shutil.rmtree(site, ignore_errors=True)
    links = {name: f"{name}.ipynb" for name in names}
    # the site's NN/ are the folders of figures
    folders = {str(drawn_in(figures, name).parent) for name in names}
    titles = {"html_title": f"speclab: {figures.name}", "html_extra_path": [*folders]}
    with TemporaryDirectory() as sources:
        for name, file in links.items():
            page = page_of(build / file, links, f"{name[:2]}/")
            nbformat.write(page, Path(sources, file))
        Path(sources, "index.md").write_text(first_page, encoding="utf-8")
        app = Sphinx(
            sources, None, site, f"{sources}/doctrees", "html", CONFIGURATION | titles, status=None
        )
        app.connect("html-page-context", _finish)
        app.build()
    if (figures / "explore.html").is_file():
        add_links(figures / "explore.html", site, names)
    index.write_text(LEADS_ON, encoding="utf-8")


def _finish(_app: Sphinx, _name: str, _template: str, page: Facts, _tree: object) -> None:
    """Say in a page that the heads of its tables are those of columns, and put captions where a
    small screen shows them.
    """
    text = page.get("body", "").replace("<th ", '<th scope="col" ')
    page["body"] = text.replace("<caption>", '<caption style="text-align: left">')
