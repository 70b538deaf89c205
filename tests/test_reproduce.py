"""`make reproduce` on small repositories made by the tests: which notebooks run, which do not, and
what a failure or an interruption leaves.
"""

import errno
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import nbformat
import papermill
import psutil
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from same_process import use_no_kernel

from speclab.__main__ import main
from speclab.explore import page as explorer
from speclab.models.hub import ModelsMissing
from speclab.run import pages, parameters, reproduce
from speclab.study.profiles import ROOT, load_profile

FIGURE = """
import os, pathlib, sys
from IPython.display import Markdown, display
folder = pathlib.Path(os.environ["SPECLAB_OUT"], "figures", profile, "{number}")
folder.mkdir(parents=True, exist_ok=True)
(folder / "plot.png").write_bytes(b"not really a picture")
display(Markdown("**Answer.** It **is** so."))
(folder / "facts.csv").write_text(",".join([sys.executable, os.getcwd()]))
"""
PARAMETERS = """profile: str = "paper"
overrides: dict = {}  # of the profile
gamma: int = 4  # 1 to 64; tokens
rule: str = "greedy"  # one of greedy, sampled
costs: list = [0.1, 2.0]  # 0 to 10
place: str = ""  # any
timing: str = ""  # any
judged_prompts_per_domain: int = 0  # 0 to 100
"""
IN_ITS_PLACE = """
from IPython.display import Markdown, display, update_display
display(Markdown("*The answer is computed at the end.*"), display_id="answer")
update_display(Markdown("**Answer.** Its place."), display_id="answer")
"""
DONE, PICTURE = "done", b"not really a picture"
MODULES = (reproduce, pages, parameters)  # that know where the repository is


class Repository:
    """A repository, and helpers that call its profile `tiny` and write inside it."""

    def __init__(self, root):
        self.root = root
        self.build, self.figures = (root / kind / "tiny" for kind in ("build", "figures"))

    def write(self, name, body=None, title="# A question?", tags=()):
        """Write a notebook in the house format, as far as the runner needs it, and return its path.
        body: of its last cell, which has the tags (default: it draws a figure).
        """
        body = FIGURE.format(number=name[:2]) if body is None else body
        cells = [
            new_markdown_cell(title),
            new_code_cell(PARAMETERS, metadata={"tags": ["parameters"]}),
            new_code_cell(body, metadata={"tags": list(tags)}),
        ]
        kernel = {"name": "python3", "language": "python", "display_name": "x"}
        path = self.root / "notebooks" / f"{name}.ipynb"
        path.parent.mkdir(exist_ok=True)
        nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
        return path

    def run(self, *arguments):
        """The command with its output folder inside the repository."""
        return main(["reproduce", "--profile", "tiny", "--out", str(self.root), *arguments])

    def stamps(self):
        """Stamps by the notebook's number."""
        files = sorted(self.build.glob("[0-9]*.json"))
        return {path.name[:2]: json.loads(path.read_text()) for path in files}

    def drawn(self):
        """All files in the notebooks' figure folders except their pages."""
        files = [path for path in self.figures.glob("*/*") if path.name != pages.PAGE]
        return {str(path.relative_to(self.figures)): path.read_bytes() for path in files}

    def has_run(self, *arguments):
        """The numbers of the notebooks that a call runs."""

        def times():
            files = sorted(self.build.glob("[0-9]*.json"))
            return {path.name[:2]: path.stat().st_mtime_ns for path in files}

        before = times()
        assert self.run(*arguments) == 0
        return [number for number, time in times().items() if before.get(number) != time]


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A repository without notebooks, on a machine with four cores and no GPU, whose profile `tiny`
    names no notebook of the kit.
    """

    def of_no_notebook(name, *changes):
        profile = load_profile(name, *changes)
        return profile.replace(notebooks={}) if name == "tiny" else profile

    monkeypatch.setattr(reproduce, "load_profile", of_no_notebook)
    for module in MODULES:
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(reproduce.kit, "cores_of_this_process", lambda: 4)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(reproduce, "LEAST_MEMORY", 0)
    monkeypatch.setattr(explorer, "recorded_run", lambda *_: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    for variable in ("SPECLAB_TRACES", "SPECLAB_STYLE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    return Repository(tmp_path)


@pytest.fixture
def repository(empty):
    """Two notebooks that draw a figure each."""
    empty.write("01_good")
    empty.write("02_also_good")
    return empty


@pytest.fixture
def light(monkeypatch):
    """The runner without kernels: the cells run in copies of this process."""
    use_no_kernel(monkeypatch)


def test_results_are_in_place_and_made_by_this_interpreter(repository, capsys):
    os.environ |= {"JUPYTER_DATA_DIR": str(repository.root), "JUPYTER_PREFER_ENV_PATH": "0"}
    wrong = {"argv": ["false"], "display_name": "x", "language": "python"}
    (repository.root / "kernels" / "python3").mkdir(parents=True)
    (repository.root / "kernels" / "python3" / "kernel.json").write_text(json.dumps(wrong))
    repository.write("02_also_good", IN_ITS_PLACE)
    assert repository.run() == 0
    said = capsys.readouterr().out
    assert "01_good                    begins" in said, "a log has a line at the start"
    assert said.count(" done ") == 2
    facts = (repository.figures / "01" / "facts.csv").read_text()
    assert facts == f"{sys.executable},{os.getcwd()}"
    site = repository.build / "site"
    assert "It <strong>is</strong>" in (site / "index.html").read_text()
    page = (site / "02_also_good.html").read_text()
    assert "Its place." in page.partition("<blockquote>")[2][:99], "the kernel puts it there"


@pytest.mark.usefixtures("light")
def test_only_what_changed_runs_again(repository, capsys):
    again = repository.has_run
    assert again() == ["01", "02"]
    page = repository.build / "index.html"
    before = page.stat().st_mtime_ns
    assert again() == [] and page.stat().st_mtime_ns == before, "no page is written in vain"
    assert "up to date: done" in capsys.readouterr().out
    page.unlink()
    assert again() == [] and page.is_file()
    repository.write("02_also_good", FIGURE.format(number="02") + "\nmore = 1")
    assert again() == ["02"]
    shutil.rmtree(repository.figures / "01")
    assert again() == ["01"]
    assert again("--parameter", "gamma=8", "--notebook", "01") == ["01"]
    for _ in range(2):  # measures once more at each call
        assert again("--parameter", "timing=new", "--notebook", "01") == ["01"]


@pytest.mark.usefixtures("light")
def test_a_notebook_runs_again_if_another_profile_has_drawn_its_shared_figures(empty):
    shared = FIGURE.format(number="13").replace("profile, ", "'public', ")
    empty.write("13_public", shared)
    plot = empty.root / "figures" / "public" / "13" / "plot.png"
    other = ["--set", "name=other"]
    assert empty.has_run() == ["13"] and empty.has_run() == []
    assert empty.run(*other) == 0 and empty.has_run() == [], "it drew the same"
    plot.write_bytes(b"of another pair")
    assert empty.has_run() == ["13"] and plot.read_bytes() == PICTURE


# ---- what an outcome depends on ------------------------------------------------------------------

KIT = {  # code, data, and what a profile names; the last ones change no outcome
    "speclab/score.py": "def chain():\n    return 1\n",
    "speclab/cli/hosted.py": "",
    "data/paper/table.csv": "1\n",
    "data/engines/names.yaml": "{}\n",
    "data/measured/smollm.csv": "1\n",
    "data/traces/tiny/greedy/manifest.json": "{}",
    "weights/target/config.json": "{}",
    "weights/target/model.safetensors": "1",
    "weights/draft/config.json": "{}",
    "weights/draft/tokenizer_config.json": "{}",
    "requirements.lock": "",
    "mine.csv": "1",
    "data/runs/timing/2026.csv": "1\n",
    "data/pairs/other/.lock": "",
}
IGNORED = [*KIT][-3:]


@pytest.fixture
def kit(empty):
    """A repository with KIT, which its notebook 01 reads."""
    for name, text in KIT.items():
        (empty.root / name).parent.mkdir(parents=True, exist_ok=True)
        (empty.root / name).write_text(text)
    empty.write("01_good", "x = 1")
    empty.write("10_timed", "x = 1", tags=["timed"])
    return empty


def pairs(values):
    """Values of parameters, as on the command line."""
    return [
        f"{name}={value if isinstance(value, str) else json.dumps(value)}"
        for name, value in values.items()
    ]


def digests_of(kit, given=None, **changes):
    """The digests of the kit's notebooks for a profile whose models and prompts are in the kit."""
    models = {f"{n}.path": str(kit.root / "weights" / n) for n in ("target", "draft")}
    of_profile = models | {"prompts": "project", "traces": "data/traces/tiny"} | changes
    call = reproduce.open_run("tiny", [], of_profile, pairs(given or {}), kit.root)
    return [notebook.stamp["digest"] for notebook in call.notebooks]


def test_a_notebook_depends_on_its_prose_its_profile_and_its_parameters(kit):
    found = [digests_of(kit), digests_of(kit, {"gamma": 5}), digests_of(kit, depth=2)]
    kit.write("01_good", "x = 1", "# Another question?")
    assert len({first for first, _ in [*found, digests_of(kit)]}) == 4


def test_two_files_that_are_exchanged_are_a_change(kit):
    one, other = (kit.root / f"data/measured/{name}.csv" for name in "ab")
    found = []
    for path in (one, other):
        one.write_text("1"), other.write_text("1"), path.write_text("2")
        found.append(digests_of(kit))
    assert found[0] != found[1]


NAMED = [  # by an environment variable, a profile or a parameter
    ("SPECLAB_TRACES", {}, {}, "greedy/manifest.json"),
    ("", {}, {"place": "notes"}, "notes/mine.txt"),
    ("", {"traces": "shipped"}, {}, "shipped/greedy/manifest.json"),
]


@pytest.mark.parametrize(
    ("variable", "of_profile", "given", "file"),
    [*(("", {}, {}, file) for file in KIT), *NAMED],
)
def test_a_notebook_depends_on_all_code_and_data_and_on_what_is_named(
    kit, tmp_path_factory, monkeypatch, variable, of_profile, given, file
):
    folder = tmp_path_factory.mktemp("elsewhere") if variable else kit.root
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(KIT.get(file, "{}"))
    monkeypatch.chdir(folder.parent)
    if variable:
        os.environ[variable] = folder.name
    before = digests_of(kit, given, **of_profile)
    with path.open("a") as held:
        held.write("\n")
    assert (digests_of(kit, given, **of_profile) == before) is (file in IGNORED)


def test_a_style_file_is_an_input_of_all_but_what_measures_time(kit, tmp_path, capsys):
    style = tmp_path / "paper.mplstyle"
    os.environ["SPECLAB_STYLE"] = str(style)
    assert kit.run() == 2 and "paper.mplstyle" in capsys.readouterr().err
    assert not kit.build.exists()
    found = []
    for size in (9, 8):
        style.write_text(f"font.size: {size}")
        found.append(digests_of(kit))
    (one, timed), (other, still) = found
    assert one != other and timed == still


def test_only_notebook_10_measures_time_and_parameters_say_what_is_allowed():
    for notebook in reproduce.open_run("tiny", [], {}, []).notebooks:
        source = notebook.path.with_suffix(".py").read_text("utf-8")
        measures = "stopwatch.measured(" in source or "stopwatch.decoded_speed(" in source
        assert notebook.is_timed is notebook.path.name.startswith("10")
        is_asked_for = "\nmeasure: bool = False" in source  # 08, where a reader wants it
        assert measures is (notebook.is_timed or is_asked_for)
        for _, source, _ in parameters.cells_of(notebook.path):
            for name, _, allowed in parameters.LINE.findall(source):
                assert re.match(r"any$|one of .|[0-9.]+ to [0-9.]+$", allowed), name


# ---- how it ends ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("light")
def test_a_failed_notebook_is_kept_and_the_others_run(repository, capsys):
    assert repository.run("--notebook", "01") == 0
    before = repository.drawn()
    old = repository.build / "new" / "figures" / "tiny"
    old.mkdir(parents=True, exist_ok=True)
    (repository.figures / "01").rename(old / "01.old")  # as a call leaves it that was killed
    body = "(folder / 'plot.png').write_text('half')\nassert 1 == 2, 'one is not two'"
    repository.write("01_good", FIGURE.format(number="01") + body)
    for _ in range(2):  # it is never up to date
        assert repository.run() == 1
        out = capsys.readouterr().out
        assert "failed cell [3]: AssertionError: one is not two" in out
    assert out.endswith("index.html: 1 failed\n")
    failed, page = (repository.build / f"{where}01_good.ipynb" for where in ("new/", ""))
    assert "one is not two" in failed.read_text() and "one is not two" not in page.read_text()
    assert repository.drawn().items() >= before.items(), "figures stay as they were"
    repository.write("01_good")
    assert repository.run() == 0


def test_a_dead_kernel_is_a_failed_notebook_and_leaves_the_other_alone(repository):
    repository.write("01_good", "import os\nos._exit(3)")
    assert repository.run() == 1
    dead, other = repository.stamps().values()
    assert dead["error"].startswith("Kernel died") and other["status"] == DONE


@pytest.fixture
def changed(repository):
    """A repository after a run that a second run would change."""
    assert repository.run() == 0
    repository.write("01_good", FIGURE.format(number="01") + "\nmore = 1")
    return repository


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.usefixtures("light")
def test_a_figure_that_is_no_longer_written_goes(changed):
    changed.write("01_good", "pass")
    assert changed.run("--notebook", "1") == 0
    there = {path.name for path in (changed.figures / "01").iterdir()}
    assert there == {pages.PAGE}


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize(
    ("owner", "name", "error"),
    [
        (papermill, "execute_notebook", FULL),
        (Path, "write_text", FULL),
        (Path, "rename", FULL),
        (Path, "rename", KeyboardInterrupt()),
    ],
)
def test_however_a_run_ends_figures_are_as_they_were(changed, monkeypatch, owner, name, error):
    before, stamps = changed.drawn(), changed.stamps()

    def fails(*_, **__):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, fails)
        assert changed.run() == (2 if error is FULL else 130)
    assert changed.drawn() == before and changed.stamps() == stamps
    assert changed.has_run() == ["01"] and changed.drawn() == before, "it draws the same"


ASKS = """
class {error}(Exception): pass
if not pathlib.Path(place).exists():
    (folder / "plot.png").write_bytes(b"half")
    raise {error}("fetch <them>")
"""


@pytest.mark.usefixtures("light")
@pytest.mark.parametrize("error", ["ModelsMissing", "LeftOut"])
def test_a_notebook_that_lacks_something_is_no_failure_and_runs_when_it_comes(
    kit, capsys, monkeypatch, error
):
    place, said = kit.root / "later.csv", reproduce.NEEDS[error]
    missing = ["weights"]
    monkeypatch.setattr(reproduce.pair, "missing", lambda profile: missing)
    kit.write("01_good", FIGURE.format(number="01") + ASKS.format(error=error))
    plot = kit.figures / "01" / "plot.png"
    plot.parent.mkdir(parents=True)
    plot.write_bytes(b"as committed")
    words = ["--notebook", "01", "--parameter", f"place={place}"]
    for again in (["01"], []):  # not run in vain
        assert kit.has_run(*words) == again
        out = capsys.readouterr().out
        assert f"{said} fetch <them>" in out
        assert plot.read_bytes() == b"as committed"
    place.write_text("1")
    missing.clear()
    assert kit.has_run(*words) == ["01"] and plot.read_bytes() == PICTURE


# ---- runs that are recorded first ----------------------------------------------------------------


def recorded(profile, kind):
    """What takes the place of recording, in a process of its own."""
    if kind == "greedy":
        raise ModelsMissing("no weights")
    time.sleep(1)
    print(f"records {kind}", flush=True)


@pytest.mark.usefixtures("light")
def test_missing_runs_are_recorded_before_any_notebook_and_errors_stop_none(
    repository, monkeypatch, capfd
):
    facts = [
        ("greedy", None, ""),
        ("sampled", "run", ""),
        ("chain", None, "no"),
        ("long", None, ""),
    ]
    asked = [SimpleNamespace(kind=kind, here=here, refused=no) for kind, here, no in facts]
    monkeypatch.setattr(reproduce, "runs_asked", lambda profile, paths: paths and asked)

    monkeypatch.setattr(reproduce.runs, "load_or_record", recorded)
    assert repository.run() == 0 and repository.run() == 0
    said = capfd.readouterr().out
    assert said.count("no weights. Notebooks that only read") == said.count("records ") == 1
    assert said.index("no weights") < said.index("records long") < said.index(" begins")


# ---- what is refused before anything runs --------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--parameter gama=3", "parameter 'gama': did you mean 'gamma'?"),
        ("--parameter level=0.9", "parameter 'level': notebooks no longer have it (see CHANGELOG"),
        ("--parameter gamma=three", "01_good: gamma='three': Input should be a valid integer"),
        ("--parameter gamma=true", "gamma=True: Input should be a valid integer"),
        ("--parameter gamma=65", "gamma=65: Input should be less than or equal to 64"),
        ("--parameter rule=gredy", "rule='gredy': Input should be 'greedy' or 'sampled'"),
        ("--parameter costs=[0.1,-1]", "costs.1=-1: Input should be greater than or equal to 0"),
        ("--parameter costs=[]", "costs=[]: List should have at least 1 item"),
        ("--parameter costs=1", "costs=1: Input should be a valid list"),
        ("--parameter profile=paper", "parameter 'profile': "),
        ("--set prompts=nowhere.jsonl", "no prompts at"),
        ("--set domains=[maths]", "no domain 'maths': did you mean 'math'?"),
        ("--notebook 07", "no notebook '07'"),
        ("--notebook 02_also_god", "did you mean '02_also_good'?"),
        ("--notebook 03", "03_damaged.ipynb is damaged"),
        ("--notebook 02 --set prompts_per_domain=3", "no notebook is left to run"),
    ],
)
def test_bad_input_is_an_error_before_anything_runs(repository, capsys, arguments, message):
    if "03" in arguments:
        (repository.root / "notebooks" / "03_damaged.ipynb").write_text("{")
    assert repository.run(*shlex.split(arguments)) == 2
    assert message in capsys.readouterr().err
    assert not repository.build.exists()


def test_a_profile_sets_parameters_of_one_notebook_and_the_call_wins(repository, capsys):
    path = repository.root / "own.yaml"
    repository.write("06_chat_paradox", "pass")
    pair = {name: f"data/pairs/tiny/{name}" for name in ("target", "draft")}

    def gammas(notebooks, **changes):
        """The gammas of a call for a profile file that sets parameters of single notebooks."""
        path.write_text(json.dumps(pair | {"notebooks": notebooks}))
        call = reproduce.open_run(str(path), ["1", "2", "06_entropy_paradox"], {}, pairs(changes))
        return [notebook.changed.get("gamma", 4) for notebook in call.notebooks]

    old = {"01": {"gamma": 2, "level": 0.9}, "06_entropy_paradox": {"gamma": 3}}
    assert gammas(old) == [2, 4, 3] and gammas(old, gamma=7) == [7, 7, 7]
    assert "01_good: 'level' is ignored: notebooks" in capsys.readouterr().err
    for wrong, said in (("01_good", "did you mean 'gamma'"), ("03_c", "notebook '03_c'")):
        with pytest.raises(ValueError, match=said):
            gammas({wrong: {"gama": 2}})


# ---- at once, and stopped ------------------------------------------------------------------------

SPAN = """
import os, pathlib, time
began = time.time()
time.sleep({seconds})
with pathlib.Path("{folder}/{name}.span").open("a") as file:
    file.write(f"{{began}} {{time.time()}} {{os.environ['OMP_NUM_THREADS']}}\\n")
"""


def write_span(repository, name, seconds, more="", tags=()):
    body = SPAN.format(name=name, seconds=seconds, folder=repository.root)
    repository.write(name, body + more, tags=tags)


def spans(repository):
    """Start, end and threads of each notebook of SPAN."""
    files = repository.root.glob("*.span")
    return {file.stem[:2]: [*map(float, file.read_text().split())] for file in files}


def test_what_is_measured_runs_alone_and_first_then_two_at_once(empty, monkeypatch):
    os.environ["OMP_NUM_THREADS"] = "3"
    for name in ("02_a", "03_b"):
        write_span(empty, name, 2)
    write_span(empty, "10_timed", 2, "assert 0", ["timed"])
    assert empty.run() == 1
    times = spans(empty)
    _, ended, threads = times.pop("10")
    assert ended < min(times["02"][0], times["03"][0]) and threads == 3
    assert max(one[0] for one in times.values()) < min(one[1] for one in times.values())
    assert [one[2] for one in times.values()] == [1, 1]
    # with little memory one at a time, with all threads
    os.environ["OMP_NUM_THREADS"] = "3"
    monkeypatch.setattr(reproduce, "LEAST_MEMORY", float("inf"))
    empty.run("--notebook", "02", "--parameter", "gamma=2")
    assert spans(empty)["02"][-1] == 3


# a job started in the background of a shell inherits an ignored SIGINT
IN_A_PROCESS = """
import pathlib, signal, sys
from speclab.__main__ import main
from speclab.explore import page as explorer
from speclab.models.hub import ModelsMissing
from speclab.explore import page
from speclab.run import pages, parameters, reproduce
signal.signal(signal.SIGINT, signal.default_int_handler)
reproduce.kit.cores_of_this_process = lambda: 4
reproduce.shutil.which = lambda name: None
reproduce.LEAST_MEMORY = 0
for module in (pages, parameters, reproduce):
    module.ROOT = pathlib.Path(sys.argv[1])
page.recorded_run = lambda *_: None
known = reproduce.load_profile
reproduce.load_profile = lambda *names: known(*names).replace(notebooks={})
sys.exit(main(["reproduce", "--profile", "tiny", "--out", sys.argv[1], "--workers", "2"]))
"""


def started(repository):
    """`reproduce` on a repository in its own process, as from a terminal."""
    return subprocess.Popen(
        [sys.executable, "-c", IN_A_PROCESS, str(repository.root)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )


def wait_for(what, seconds=200):
    """Wait until `what()` is true."""
    deadline = time.monotonic() + seconds
    while not what() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert what()


def kernels(repository):
    """Processes of the notebooks that sleep."""
    return [int(path.stem) for path in repository.build.glob("new/*.pid")]


def is_running(process_id):
    try:
        return psutil.Process(process_id).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


SLEEPS = """
import time
(folder.parents[2] / f"{os.getpid()}.pid").touch()
time.sleep(120)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_stopped_nothing_runs_on_and_the_next_call_goes_on(empty, how, monkeypatch):
    empty.write("00_first")
    for number in ("02", "03"):
        empty.write(f"{number}_sleeps", FIGURE.format(number=number) + SLEEPS)
    plot = empty.figures / "02" / "plot.png"
    plot.parent.mkdir(parents=True)
    plot.write_bytes(b"as committed")
    process = started(empty)
    wait_for(lambda: len(kernels(empty)) == 2)
    sleeping = kernels(empty)
    # Ctrl-C reaches every process of the group
    os.killpg(process.pid, how) if how == signal.SIGINT else process.send_signal(how)
    process.communicate(timeout=100)
    wait_for(lambda: not any(map(is_running, sleeping)), 20)
    assert process.returncode == (130 if how != signal.SIGKILL else -how)
    assert [*empty.stamps()] == ["00"]
    assert plot.read_bytes() == b"as committed"
    assert {name[:3] for name in empty.drawn()} == {"00/", "02/"}, "nothing half is left"
    use_no_kernel(monkeypatch)
    for name in ("02_sleeps", "03_sleeps"):
        empty.write(name)
    assert empty.has_run() == ["02", "03"]


INTERRUPTED = """
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from speclab.run.reproduce import stopping
lock = get_context("spawn").Lock()  # starts Python's own resource tracker
with stopping(ThreadPoolExecutor(1)):
    raise KeyboardInterrupt
"""


def test_an_interruption_leaves_pythons_own_helper_to_end_by_itself():
    command = [sys.executable, "-c", INTERRUPTED]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stderr
    assert said.strip().endswith("KeyboardInterrupt"), "no warning of the helper follows"


def test_a_second_call_waits_for_the_first_and_finds_its_work_done(empty, capsys):
    write_span(empty, "02_a", 3)
    first = started(empty)
    wait_for((empty.build / "new" / "02_a.ipynb").is_file)
    assert empty.run() == 0 and "up to date" in capsys.readouterr().out
    assert " done" in first.communicate(timeout=100)[0]
    assert len(spans(empty)["02"]) == 3, "it ran once"


@pytest.mark.parametrize("name", ["SET", "PARAMETERS", "STYLE"])
def test_make_hands_values_on_as_they_are_written(name, tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$SPECLAB_STYLE" "$@"\n')
    python.chmod(0o700)
    value = "depth=1 'log=/it is/a $HOME \"#5%' domains=[math,code] x=`no`;$(no) y=it's C:\\x"
    call = ["make", "reproduce", "VENV=", f"PYTHON={python}", f"{name}={value}", "OUT=a b"]
    words = subprocess.check_output(call, cwd=ROOT, text=True).splitlines()
    assert words[words.index("--out") + 1] == "a b"
    assert value in words and (name == "STYLE" or words[words.index(value) - 1] == f"--{name}")
