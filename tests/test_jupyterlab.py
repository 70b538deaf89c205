"""Notebook 12 in JupyterLab, in a real browser: somebody opens it, runs it, types, presses."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from speclab.profiles import ROOT

NOTEBOOK = "12_try_it.ipynb"
TOKEN = "for-this-test-only"
SETTINGS = {  # all cells are in the page, and nothing is asked of the network
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
CHROMIUM = shutil.which("chromium")
pytest.importorskip("jupyterlab", reason="the extra `lab` is not installed")
playwright = pytest.importorskip(
    "playwright.sync_api", reason="Playwright (extra `test`) is not installed"
)
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here"),
    pytest.mark.timeout(600),
]


def free_port() -> int:
    """A port of this machine that nobody listens to."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """The parts of this checkout that the notebook needs: saving it and its figures must not write
    to ours.
    """
    folder = tmp_path_factory.mktemp("checkout")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "speclab", folder / "speclab", ignore=ignored)
    shutil.copytree(ROOT / "notebooks" / "profiles", folder / "notebooks" / "profiles")
    shutil.copy(ROOT / "notebooks" / NOTEBOOK, folder / "notebooks" / NOTEBOOK)
    (folder / "data").symlink_to(ROOT / "data")
    return folder


@pytest.fixture(scope="module")
def lab(checkout, tmp_path_factory):
    """The address of a JupyterLab on that checkout, with settings of its own."""
    own, port = tmp_path_factory.mktemp("jupyter"), free_port()
    places = ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR")
    environment = {k: v for k, v in os.environ.items() if k != "SPECLAB_OUT"}
    environment |= {f"JUPYTER_{name}": str(own / name) for name in places}
    environment |= {"JUPYTERLAB_SETTINGS_DIR": str(own), "IPYTHONDIR": str(own)}
    environment |= {"JUPYTERLAB_WORKSPACES_DIR": str(own)}
    for plugin, settings in SETTINGS.items():
        file = own / "@jupyterlab" / f"{plugin}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(settings))
    options = {
        "ServerApp.root_dir": checkout,
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "ServerApp.allow_root": True,
        "IdentityProvider.token": TOKEN,
        "ExtensionApp.open_browser": False,
        "LabApp.extension_manager": "readonly",
    }
    command = [sys.executable, "-m", "jupyterlab"]
    command += [f"--{name}={value}" for name, value in options.items()]
    with (own / "log").open("wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until_answered(f"{address}/api?token={TOKEN}", server, own / "log")
        yield address
    finally:
        server.terminate()
        server.wait(30)


def wait_until_answered(address: str, server: subprocess.Popen, log: Path) -> None:
    """Until the server answers; its log where it ended or a minute was not enough."""
    for _ in range(240):
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            if server.poll() is not None:
                break
            time.sleep(0.25)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text()[-3000:]}")


@pytest.fixture(scope="module")
def page(lab):
    """Notebook 12, every cell run."""
    with playwright.sync_playwright() as p:
        options = ["--no-sandbox", "--disable-gpu"]
        browser = p.chromium.launch(executable_path=CHROMIUM, args=options)
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.set_default_timeout(120_000)
        page.goto(f"{lab}/lab/tree/notebooks/{NOTEBOOK}?token={TOKEN}")
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        page.get_by_text("| Idle").wait_for()  # before, it would ask for a kernel
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_text("Run All Cells", exact=True).click()
        try:
            page.wait_for_selector(".speclab-cell textarea", timeout=60000)
        except Exception:
            shot(page, "failed")
            raise
        yield page
        browser.close()


def shot(page, name: str) -> None:
    """A picture of the cell, for whoever names a folder to look at it (SPECLAB_SHOTS)."""
    if folder := os.environ.get("SPECLAB_SHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png")


def test_all(page):
    cell = page.locator(".speclab-cell")
    cell.scroll_into_view_if_needed()
    shot(page, "start")
    cell.locator("textarea").fill("Count: one, two, three, four,")
    cell.get_by_role("button", name="Decode").click()
    cell.locator(".speclab-token").first.wait_for()
    shot(page, "during")
    playwright.expect(
        cell.get_by_text("tokens per pass", exact=False).first
    ).to_be_visible()
    cell.locator("img").wait_for()
    shot(page, "done")
