"""A headless Chromium for the tests of pages: Debian's, driven by Playwright."""

import shutil
from contextlib import contextmanager

import pytest

CHROMIUM = shutil.which("chromium")
READY = "body[data-ready=yes]"


def needed():
    """Skip the tests that need a browser if there is none."""
    pytest.importorskip("playwright", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine (apt-get install chromium)")


@contextmanager
def chromium():
    """A running browser. Skips the test if there is none."""
    needed()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield browser
        browser.close()


def opened(browser, file, **options):
    """A page of the browser that shows a file and is ready, and what went wrong on it so far: a
    list of errors, and of requests for anything but the file.
    """
    page = browser.new_page(**options)
    wrong = []
    page.on("pageerror", lambda error: wrong.append(f"error: {error}"))
    page.on("console", lambda line: line.type == "error" and wrong.append(line.text))
    page.on("request", lambda r: r.url == file.as_uri() or wrong.append(f"asked for {r.url}"))
    page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    page.goto(file.as_uri())
    page.wait_for_selector(READY)
    return page, wrong
