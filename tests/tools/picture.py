"""`make picture`: take figures/smollm/explore.png for README.md, a screenshot of part of
explore.html in Debian's Chromium.
"""

from pathlib import Path

from tests.browser import chromium, opened

FOLDER = Path(__file__).resolve().parents[2] / "figures" / "smollm"
SHOWN = """() => {
  for (const part of document.querySelectorAll("header, footer, section, .more")) {
    part.hidden = part.id !== "text-section";
  }
  explore.act.select(6);
}"""


def main():
    """Open the page, select a rejected token, and save the picture."""
    with chromium() as browser:
        page, wrong = opened(
            browser, FOLDER / "explore.html", viewport={"width": 1180, "height": 900}
        )
        page.evaluate(SHOWN)
        page.screenshot(path=FOLDER / "explore.png", full_page=True)
        assert not wrong, wrong


if __name__ == "__main__":
    main()
