"""Notebook 01 in JupyterLab, in a real browser: a user opens it, runs it, types and clicks."""

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress

import pytest
from browser import chromium, needed

from speclab.decode import decode_prompt
from speclab.sampling import Sampling
from speclab.shapes import parse_shape
from speclab.show.pictures import marked, strings_of
from speclab.study.profiles import ROOT, load_profile
from speclab.study.prompts import Prompt, encode_prompts

NOTEBOOK = "01_load_models.ipynb"
TOKEN = "for-this-test-only"
PROMPT = "def fibonacci(n):"
WAIT = 120  # seconds: the machine may be busy
SETTINGS = {  # all cells are in the page, and nothing is downloaded
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}


FOLDERS = (
    *("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"),
    *("JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR"),
)
OPTIONS = (
    *("--ServerApp.ip=127.0.0.1", "--ServerApp.port_retries=0", "--ServerApp.allow_root=True"),
    *(f"--IdentityProvider.token={TOKEN}", "--ExtensionApp.open_browser=False"),
    "--LabApp.extension_manager=readonly",
)


def free_port():
    """A port of this machine that nobody listens to."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture
def checkout(tmp_path_factory):
    """The parts of this checkout that the notebook needs: saving it and its figures must not write
    to ours.
    """
    folder = tmp_path_factory.mktemp("checkout")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "speclab", folder / "speclab", ignore=ignored)
    shutil.copytree(ROOT / "notebooks" / "profiles", folder / "notebooks" / "profiles")
    text = (ROOT / "notebooks" / NOTEBOOK).read_text(encoding="utf-8")
    own = text.replace('= \\"smollm\\"', '= \\"tiny\\"')  # its weights are always there
    few = 'overrides: dict = {\\"prompts_per_domain\\": 1, \\"max_new_tokens\\": 16}'
    own = own.replace("overrides: dict = {}", few)
    (folder / "notebooks" / NOTEBOOK).write_text(own, encoding="utf-8")
    (folder / "data").symlink_to(ROOT / "data")
    return folder


@pytest.fixture
def lab(checkout, tmp_path, monkeypatch):
    """The address of a JupyterLab on that checkout, with settings of its own."""
    needed()
    pytest.importorskip("jupyterlab", reason="the extra `lab` is not installed")
    monkeypatch.delenv("SPECLAB_OUT", raising=False)
    monkeypatch.setenv("SPECLAB_RUNS", str(tmp_path / "runs"))
    for variable in FOLDERS:
        monkeypatch.setenv(variable, str(tmp_path))
    for plugin, settings in SETTINGS.items():
        file = tmp_path / "@jupyterlab" / f"{plugin}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(settings))
    port, log = free_port(), tmp_path / "log"
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={checkout}"]
    command += [f"--ServerApp.port={port}", *OPTIONS]
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output)
    address = f"http://127.0.0.1:{port}"
    try:
        wait_until_answered(f"{address}/api?token={TOKEN}", server, log)
        yield address
    finally:
        server.terminate()
        server.wait(30)


def wait_until_answered(address, server, log):
    """Until the server answers; its log where it ended or a minute was not enough."""
    for _ in range(240):
        with suppress(OSError):
            urllib.request.urlopen(address, timeout=5).close()
            return
        if server.poll() is not None:
            break
        time.sleep(0.25)
    pytest.fail(f"JupyterLab did not start:\n{log.read_text()[-3000:]}")


@pytest.fixture
def page(lab):
    """Notebook 01 with every cell run. `page.asked`: the requested addresses."""
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.set_default_timeout(1000 * WAIT)
        page.asked = []
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(f"{lab}/lab/tree/notebooks/{NOTEBOOK}?token={TOKEN}")
        page.get_by_text("| Idle").wait_for()  # before, it would ask for a kernel
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_text("Run All Cells", exact=True).click()
        page.locator(".widget-interact textarea").wait_for()
        page.get_by_text("| Idle").wait_for()
        yield page


def said(part, words):
    """Wait until a part of the page shows these words."""
    part.filter(has_text=words).wait_for()


def decoded(cell, new_tokens):
    """The field filled and left, the button pressed."""
    field = cell.get_by_label("new_tokens", exact=True)
    field.fill(str(new_tokens))
    field.press("Tab")
    cell.get_by_role("button", name="Decode", exact=True).click()


@pytest.mark.timeout(900)
def test_somebody_types_and_presses(page, lab, tiny_pair):
    """One test, since JupyterLab, browser and kernel take most of its time."""
    cell = page.locator(".widget-interact")
    cell.scroll_into_view_if_needed()
    cell.locator("textarea").fill(PROMPT)
    decoded(cell, new_tokens=24)
    cell.locator("table").wait_for()
    profile = load_profile("tiny")
    [read] = encode_prompts(
        tiny_pair.tokenizer, [Prompt("typed", "", PROMPT)], 512, profile.template
    )
    made = decode_prompt(tiny_pair, read, "greedy", parse_shape("chain:4"), Sampling(), 24)
    strings = strings_of(tiny_pair.tokenizer)
    boxes = cell.locator("span[title]").all_text_contents()
    assert boxes == [marked(strings[token]) for token in made.token_ids]
    said(cell, f"{len(made.token_ids) / made.target_passes:.2f} tokens per target pass")
    said(cell, "writes the same text")
    decoded(cell, new_tokens=1)
    said(cell, "1 token in 1 target pass")
    outside = {u for u in page.asked if not u.startswith((lab, "data:", "blob:"))}
    assert outside == set(), "nothing is asked of the network"
