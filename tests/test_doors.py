"""Every door of the kit, tried with what does not fit: exit status 2 and one line that says what is
wrong, no traceback, no model loaded, nothing written.

A door has a table, a row of it an id, what is given, and a phrase of the line that is said. Wrong
files are made by a recipe: their text or bytes, FOLDER, DANGLING, LOOP, GONE, or a function of the
right file's bytes. Some rows stand for a kind of mistake at one door only: the readers are shared.
"""

import contextlib
import io
import json
import shlex
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import save_random_llama

from speclab import runs, traces
from speclab.__main__ import main
from speclab.models import pairs
from speclab.ops import engines, hosted, pair, probe, reproduce
from speclab.ops.plan import Speed
from speclab.profiles import ROOT, load_profile, parse_overrides
from speclab.prompts import HUB_SETS, read_prompts
from speclab.show import notebook

FOLDER, DANGLING, LOOP, GONE = "a folder", "a dangling link", "a link loop", "nothing"
LONGEST = 1500  # characters of the one line
FEW = "prompts_per_domain=1 domains=[code] max_new_tokens=4"
PROMPT = '{"prompt_id": "a", "domain": "code", "prompt": "def f():"}\n'
PROFILE = """\
target: {path: data/pairs/tiny/target}
draft: {path: data/pairs/tiny/draft}
prompts_per_domain: 1
domains: [code]
max_prompt_tokens: 64
max_new_tokens: 4
"""

# ---- recipes -------------------------------------------------------------------------------------


def made(path: Path, recipe: str | bytes | Callable) -> Path:
    """What a recipe asks for, at a path."""
    if callable(recipe):
        recipe = recipe(path.read_bytes())
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    if recipe is FOLDER:
        path.mkdir()
    elif recipe is DANGLING:
        path.symlink_to("nowhere-at-all")
    elif recipe is LOOP:
        path.symlink_to(path.name)
    elif isinstance(recipe, bytes):
        path.write_bytes(recipe)
    elif recipe is not GONE:
        path.write_bytes(recipe.encode("utf-8", "surrogatepass"))
    return path


def half(content: bytes) -> bytes:
    """The first half of a file."""
    return content[: len(content) // 2]


def flipped(content: bytes) -> bytes:
    """A file with one bit of its middle byte turned."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]


def with_nul(content: bytes) -> bytes:
    """A file with a NUL byte behind it."""
    return content + b"\0"


def utf16(content: bytes) -> bytes:
    """A text in the encoding that Windows calls Unicode."""
    return content.decode().encode("utf-16")


def field(name: str, value: object) -> Callable[[bytes], bytes]:
    """A JSON file with one field changed (`a.b`: of the object `a`); ... leaves it out."""

    def changed(content: bytes) -> bytes:
        inside = whole = json.loads(content)
        *outer, last = name.split(".")
        for step in outer:
            inside = inside[step]
        inside[last] = value
        if value is ...:
            del inside[last]
        return json.dumps(whole).encode()

    return changed


def twice(name: str) -> Callable[[bytes], bytes]:
    """A JSON file whose field `name` comes a second time, before the first."""
    quoted = f'"{name}":'.encode()
    return lambda content: content.replace(quoted, quoted + b' "x", ' + quoted, 1)


def profile_with(lines: str) -> str:
    """The right profile with these lines in place of its own of the same names."""
    names = {line.split(":")[0] for line in lines.splitlines()}
    kept = [line for line in PROFILE.splitlines() if line.split(":")[0] not in names]
    return "\n".join([*kept, lines, ""])


def bomb(levels: int) -> str:
    """Lines of YAML of which each names the last one ten times."""
    lines = ["  a0: &a0 [x]"]
    for level in range(1, levels):
        ten = ", ".join([f"*a{level - 1}"] * 10)
        lines.append(f"  a{level}: &a{level} [{ten}]")
    return "notes:\n" + "\n".join(lines)


DEEP = "[" * 100_000
LATIN = b'{"a": "caf\xe9"}'
NAN = float("nan")

# ---- the trial -----------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, object]:
    """What is below a folder, by name: a file's bytes, where a link leads, None of a folder."""
    found = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = str(path.readlink())
        else:
            found[name] = path.read_bytes() if path.is_file() else None
    return found


def tried(arguments: list[str], folder: Path) -> tuple[int, str, str, set[str]]:
    """Exit status of a command, what it printed and said, and the names that it changed."""
    before, printed, said = contents(folder), io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
        status = main(arguments)
    after = contents(folder)
    changed = {p for p in before | after if before.get(p, 0) != after.get(p, 0)}
    return status, printed.getvalue(), said.getvalue().strip(), changed


def check_refused(command: str, phrase: str, folder: Path) -> None:
    """Assert that a command ends with status 2 and one line with the phrase, and writes nothing."""
    status, printed, said, changed = tried(shlex.split(command), folder)
    assert status == 2, said
    assert "Traceback" not in printed + said
    assert said.startswith("speclab: ") and len(said.splitlines()) == 1, said
    assert said.isprintable() and len(said) <= LONGEST, said[:LONGEST]
    assert phrase in said
    assert not changed


def rows(*table: tuple) -> list:
    """A table as pytest takes it; the first entry of a row is its id."""
    names = [row[0] for row in table]
    assert len(set(names)) == len(names), "an id comes twice"
    return [pytest.param(*row[1:], id=row[0]) for row in table]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working folder with a right profile and right prompts, where recordings go too; no variable
    of the kit is set, no hub is asked, and work that begins (a network, a notebook) is a failure.
    """

    def begun(*_, **__):
        raise AssertionError("work begins before what was given is checked")

    for loader in ("_load_plain", "_load_trimmed", "_load_quantised"):
        monkeypatch.setattr(pairs, loader, begun)
    monkeypatch.setattr(engines, "on_devices", begun)
    monkeypatch.setattr(engines, "on_ray", begun)
    monkeypatch.setattr(reproduce, "execute", begun)
    for name in ("TRACES", "DATASETS", "MODELS", "OUT", "REPO", "AUTHOR_RECORDS"):
        monkeypatch.delenv(f"SPECLAB_{name}", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(runs, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(hosted.keep, "__defaults__", (tmp_path / "runs",))
    monkeypatch.setattr(hosted.restore, "__defaults__", (tmp_path, tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    made(tmp_path / "profile.yaml", PROFILE)
    made(tmp_path / "prompts.jsonl", PROMPT)
    return tmp_path


@pytest.fixture
def things(place):
    """What the rows of the command line name: an empty folder, links, another run."""
    made(place / "empty", FOLDER)
    made(place / "folder.yaml", FOLDER)
    made(place / "loop", LOOP)
    made(place / "loop.yaml", LOOP)
    made(place / "other" / "settings.json", '{"key": "another"}')
    made(place / "results.jsonl", '{"prompt_id": "z"}\n')
    (place / "link").symlink_to("prompts.jsonl")
    (place / "hard").hardlink_to(place / "prompts.jsonl")
    return place


# ---- the command line ----------------------------------------------------------------------------

# fmt: off
VERBS = rows(
    ("no such verb", "nonsense", "No such command"),
    ("no such option", "doctor --nonsense", "No such option"),
    ("more than is asked", "doctor tiny", "unexpected extra argument"),
    ("option without value", "decode --prompts prompts.jsonl --out", "requires an argument"),
    ("decode without out", "decode --prompts prompts.jsonl", "Missing option '--out'"),
    ("decode without prompts", "decode --out new", "Missing option '--prompts'"),
    ("pair: profile", "pair --profile tyni", "did you mean 'tiny'"),
    ("pair: profile empty", "pair --profile ''", "profile=''"),
    ("doctor: profile", "doctor --profile tyni", "did you mean 'tiny'"),
    ("doctor: set", "doctor --set gama=3", "unknown parameter 'gama'"),
    ("readme: alone", "readme --alone nowhere", "nowhere"),
    ("authors: base a word", "authors --base foo --out new", "foo"),
    ("authors: base empty", "authors --base '' --out new", "base=''"),
    ("authors: base gopher", "authors --base gopher://x/ --out new", "gopher://x/"),
    ("authors: base nobody", "authors --base http://127.0.0.1:1/ --out new", "refused"),
    ("authors: base bracket", "authors --base 'http://[::1/' --out new", "http://[::1/"),
    ("authors: base blank", "authors --base 'http://127.0.0.1:1/a b/' --out new", "a b"),
    ("authors: out a file", "authors --out prompts.jsonl", "prompts.jsonl"),
    ("authors: out below a file", "authors --out prompts.jsonl/x", "prompts.jsonl/x"),
    ("authors: out empty", "authors --out ''", "--out"),
    ("restore: gone", "hosted restore nowhere", "nowhere: no such folder"),
    ("restore: a file", "hosted restore prompts.jsonl", "prompts.jsonl: no such folder"),
    ("restore: empty name", "hosted restore ''", "FOLDER"),
    ("keep: empty name", "hosted keep ''", "FOLDER"),
    ("keep: a file", "hosted keep prompts.jsonl", "prompts.jsonl"),
    ("keep: below a file", "hosted keep prompts.jsonl/x", "prompts.jsonl/x"),
    ("keep: loop", "hosted keep loop", "loop"),
)
DECODE = rows(
    ("seed -1", "--seed -1", "allowed are whole numbers from 0"),
    ("seed 1.5", "--seed 1.5", "'1.5' is not a valid integer"),
    ("seed nan", "--seed nan", "'nan' is not a valid integer"),
    ("seed huge", "--seed 99999999999999999999", "allowed are whole numbers from 0"),
    ("temperature nan", "--temperature nan --rule rejection", "temperature=nan"),
    ("temperature inf", "--temperature inf --rule rejection", "temperature=inf"),
    ("temperature 400 digits", "--temperature " + "9" * 400, "temperature=inf"),
    ("temperature empty", "--temperature ''", "not a valid float"),
    ("temperature and greedy", "--temperature 0.7", "greedy goes with temperature 0"),
    ("temperature -0", "--temperature -0.0 --rule rejection", "temperatures above 0"),
    ("temperature in two places", "--temperature 0.7 --rule rejection --set temperature=0.5",
     "temperature"),
    ("rule empty", "--rule ''", "rule=''"),
    ("rule in capitals", "--rule GREEDY", "rule='GREEDY'"),
    ("rule and cold", "--rule rejection", "temperatures above 0"),
    ("rule and tree", "--rule rejection --temperature 1 --shape tree:3,2,8", "takes a chain"),
    ("rule and dynamic", "--rule rejection --temperature 1 --shape dynamic:3,2,8",
     "takes a chain"),
    ("check and sampling", "--check --rule rejection --temperature 1", "--check compares greedy"),
    ("shape empty", "--shape ''", "allowed are plain, chain:GAMMA"),
    ("shape word", "--shape chain", "shape='chain'"),
    ("chain 0", "--shape chain:0", "gamma=0"),
    ("chain -1", "--shape chain:-1", "shape='chain:-1'"),
    ("chain 65", "--shape chain:65", "gamma=65"),
    ("chain 1.5", "--shape chain:1.5", "shape='chain:1.5'"),
    ("chain superscript", "--shape chain:²", "chain:²"),
    ("chain Arabic digit", "--shape chain:٣", "allowed are plain"),
    ("chain two numbers", "--shape chain:4,4", "shape='chain:4,4'"),
    ("chain blank within", "--shape 'chain:1 2'", "chain:1 2"),
    ("chain newline", "--shape 'chain:4\n'", "chain:4"),
    ("chain 5000 digits", "--shape chain:" + "9" * 5000, "allowed are plain"),
    ("chain escape", "--shape 'chain:\x1b[31m'", "allowed are plain"),
    ("chain nul", "--shape 'chain:\0'", "allowed are plain"),
    ("tree one number", "--shape tree:3", "shape='tree:3'"),
    ("tree four numbers", "--shape tree:3,2,8,9", "shape='tree:3,2,8,9'"),
    ("tree depth 0", "--shape tree:0,2,8", "depth=0"),
    ("tree without end", "--shape tree:64,2", "name a budget"),
    ("tree too large", "--shape tree:64,1024,65536", "65536"),
    ("dynamic too large", "--shape dynamic:64,1024,65536", "65536"),
    ("dynamic two numbers", "--shape dynamic:4,4", "shape='dynamic:4,4'"),
    ("shape long", "--shape " + "x" * 100_000, "allowed are plain"),
    ("policy and shape", "--policy policy.json --shape chain:9", "--shape"),
    ("policy gone", "--policy nowhere.json", "nowhere.json"),
    ("policy empty name", "--policy ''", "--policy"),
    ("prompts gone", "--prompts nowhere.jsonl", "no prompts at nowhere.jsonl"),
    ("prompts empty name", "--prompts ''", "--prompts"),
    ("prompts empty folder", "--prompts empty", "no prompts at empty"),
    ("prompts loop", "--prompts loop", "loop"),
    ("prompts nul", "--prompts 'a\0b'", "prompts"),
    ("prompts long name", "--prompts " + "x" * 300, "xxx"),
    ("prompts below a file", "--prompts prompts.jsonl/x.jsonl", "prompts.jsonl/x.jsonl"),
    ("prompts device", "--prompts /dev/null", "/dev/null"),
    ("out empty name", "--out ''", "--out"),
    ("out a folder", "--out empty", "empty"),
    ("out below a file", "--out prompts.jsonl/x", "prompts.jsonl/x"),
    ("out is the prompts", "--out prompts.jsonl", "prompts.jsonl"),
    ("out is the prompts by another way", "--out empty/../prompts.jsonl", "prompts.jsonl"),
    ("out links to the prompts", "--out link", "link"),
    ("out shares the prompts' bytes", "--out hard", "hard"),
    ("out is the profile", "--out profile.yaml", "profile.yaml"),
    ("out is the policy", "--policy policy.json --out policy.json", "policy.json"),
    ("out holds something", "--out results.jsonl", "--force"),
    ("out loop", "--out loop", "loop"),
    ("out nul", "--out 'a\0b'", "out"),
    ("out long name", "--out " + "x" * 300, "xxx"),
    ("profile gone", "--profile nowhere.yaml", "profile='nowhere.yaml'"),
    ("profile empty name", "--profile ''", "profile=''"),
    ("profile a folder", "--profile folder.yaml", "folder.yaml"),
    ("profile loop", "--profile loop.yaml", "loop.yaml"),
    ("profile nul", "--profile 'a\0b.yaml'", "or a YAML file"),
    ("profile long name", "--profile " + "x" * 5000, "xxx"),
    ("profile not YAML", "--profile prompts.jsonl", "or a YAML file"),
)
SET = rows(
    ("nothing", "", "--set"),
    ("no value", "max_new_tokens", "write KEY=VALUE"),
    ("no key", "=3", "write KEY=VALUE"),
    ("blank key", "' =3'", "write KEY=VALUE"),
    ("unknown", "gama=3", "unknown parameter 'gama'"),
    ("twice", "max_new_tokens=3 max_new_tokens=4", "comes twice"),
    ("null", "max_new_tokens=", "max_new_tokens=None: a whole number"),
    ("0", "max_new_tokens=0", "allowed are numbers from 1"),
    ("exponent", "max_new_tokens=1e1", "a whole number is needed"),
    ("true", "max_new_tokens=true", "a whole number is needed"),
    ("yes", "max_new_tokens=yes", "a whole number is needed"),
    ("sexagesimal", "max_new_tokens=1:30", "a whole number is needed"),
    ("hexadecimal", "max_new_tokens=0x10", "a whole number is needed"),
    ("underscore", "max_new_tokens=1_0", "a whole number is needed"),
    ("quoted", "'max_new_tokens=\"4\"'", "a whole number is needed"),
    ("date", "max_new_tokens=2020-01-01", "a whole number is needed"),
    ("date of no calendar", "max_new_tokens=2020-13-41", "a whole number is needed"),
    ("5000 digits", "max_new_tokens=" + "9" * 5000, "5000 digits"),
    ("tag of Python", "'seed=!!python/object/apply:os.getcwd []'", "not YAML"),
    ("tag of time", "'temperature=!!timestamp abc'", "not YAML"),
    ("tag of bytes", "'temperature=!!binary MC41'", "not YAML"),
    ("int of nothing", "'temperature=!!int abc'", "not YAML"),
    ("float of nothing", "'temperature=!!float abc'", "not YAML"),
    ("nan", "temperature=.nan", "temperature=nan"),
    ("-inf", "temperature=-.inf", "temperature=-inf"),
    ("within itself", "'domains=&a [*a]'", "not YAML"),
    ("unknown anchor", "domains=*a", "not YAML"),
    ("list as a key", "'target={[1]: x}'", "not YAML"),
    ("two documents", "'seed=--- 1\n--- 2'", "not YAML"),
    ("deep", "domains=" + "[" * 1200, "nested"),
    ("nul", "'prompts=\0'", "not YAML"),
    ("model alone, then its type", "target=data/pairs/tiny/target target.dtype=float8", "dtype"),
    ("model null, then device", "target= device=cpu", "path=None"),
    ("model a number", "target=5", "path=5"),
    ("model unknown", "target.foo=1", "unknown parameter 'foo'"),
    ("model blank", "'target.path=\"  \"'", "path="),
    ("model the root", "target.path=/", "'/'"),
    ("model loop", "target.path=loop", "'loop'"),
    ("model long", "target.path=" + "x" * 5000, "xxx"),
    ("model an address", "target.path=https://x/y/z", "https://x/y/z"),
    ("model of a fifth column", "target.revision=5", "revision=5"),
    ("dtype", "dtype=float8", "did you mean 'float32'"),
    ("device", "device=gpu", "allowed are auto, cpu, cuda"),
    ("device newline", "'device=\"cpu\\n\"'", "allowed are auto, cpu, cuda"),
    ("device Arabic digit", "device=cuda:٣", "allowed are auto, cpu, cuda"),
    ("device that is not here", "device=cuda:99", "cuda:99"),
    ("backend", "backend=fast", "allowed are auto, torch, triton, marlin"),
    ("domains empty", "domains=[]", "domains=[]"),
    ("domains twice", "domains=[code,code]", "write each once"),
    ("domains a number", "domains=[1]", "domains: 1"),
    ("domains a word", "domains=code", "write a list"),
    ("prompts null", "prompts=", "prompts=None"),
    ("notes", "notes=5", "notes=5"),
    ("traces", "traces=5", "traces=5"),
    ("top_p 0", "top_p=0", "top_p=0"),
    ("top_p true", "top_p=true", "a number is needed"),
    ("seed in two places", "seed=5 --seed 3", "seed"),
    ("depth, which --shape gives", "depth=2", "depth"),
    ("prompts, which --prompts gives", "prompts=paper", "prompts"),
)
RECORD = rows(
    ("kind", "--kind greddy", "kind='greddy'"),
    ("kind empty", "--kind ''", "kind=''"),
    ("engine", "--engine spark", "allowed are local and ray"),
    ("device", "--devices cpu:x", "device='cpu:x'"),
    ("device empty", "--devices ''", "device=''"),
    ("device that is not here", "--devices cuda:99", "cuda:99"),
    ("devices and ray", "--engine ray --devices cpu", "--devices goes with --engine local"),
    ("workers and local", "--workers 2", "--workers with --engine ray"),
    ("workers 0", "--engine ray --workers 0", "workers=0"),
    ("workers 1.5", "--engine ray --workers 1.5", "'1.5' is not a valid integer"),
    ("kind has a temperature", "--kind sampled --set temperature=0.5", "temperature"),
    ("kind has a depth", "--kind chain --set depth=3", "depth"),
    ("kind has a budget", "--kind balanced --set budget=5", "budget"),
    ("kind has a seed", "--kind sampled-seed-1 --set seed=3", "seed"),
    ("kind has a template", "--kind chat-template --set template=none", "template"),
    ("kind's tree without end", "--kind balanced --set depth=20 branches=4", "depth=20"),
    ("tree too large", "--set budget=65536 depth=64 branches=1024", "65536"),
    ("out empty name", "--out ''", "--out"),
    ("out a file", "--out prompts.jsonl", "prompts.jsonl"),
    ("out below a file", "--out prompts.jsonl/x", "prompts.jsonl/x"),
    ("out loop", "--out loop", "loop"),
    ("out another run", "--out other", "other"),
    ("name above", "--set name=../../x", "name='../../x'"),
    ("name of the root", "--set name=/tmp/x", "name='/tmp/x'"),
    ("name empty", "--set 'name=\"\"'", "name=''"),
    ("name dots", "--set name=..", "name='..'"),
    ("name long", "--set name=" + "x" * 300, "name="),
    ("name blank within", "--set 'name=a b'", "name='a b'"),
    ("name an option", "--set name=-x", "name='-x'"),
    ("name of two lines", "--set 'name=\"a\\nb\"'", "name="),
    ("name umlaut", "--set name=ä", "name="),
    ("more prompts than there are", "--set prompts_per_domain=100000", "asked for 100000"),
    ("no such domain", "--set domains=[maths]", "did you mean 'math'"),
    ("profile", "--profile tyni", "did you mean 'tiny'"),
)
REPRODUCE = rows(
    ("notebook 99", "--notebook 99", "notebook '99'"),
    ("notebook empty", "--notebook ''", "notebook ''"),
    ("notebook word", "--notebook gamma", "notebook 'gamma'"),
    ("notebook superscript", "--notebook ²", "²"),
    ("notebook -1", "--notebook -1", "notebook '-1'"),
    ("notebook 5000 digits", "--notebook " + "9" * 5000, "there are 00_by_hand"),
    ("parameter unknown", "--parameter gama=3", "did you mean 'gamma'"),
    ("parameter of another type", "--parameter gammas=3", "needed is list"),
    ("parameter without value", "--parameter gammas", "--parameter"),
    ("parameter null", "--parameter gammas=", "needed is list"),
    ("parameter profile", "--parameter profile=smollm", "profile"),
    ("parameter overrides", "--parameter 'overrides={seed: 1}'", "overrides"),
    ("parameter of words", "--parameter gammas=[a]", "gammas"),
    ("parameter of nothing", "--parameter gammas=[]", "gammas=[]"),
    ("parameter of another notebook", "--notebook 00 --parameter gammas=[1]", "'gammas'"),
    ("parameter tag", "--parameter 'gammas=!!python/name:os.system'", "not YAML"),
    ("set unknown", "--set gama=3", "unknown parameter 'gama'"),
    ("set name", "--set name=../x", "name='../x'"),
    ("too few prompts for it", "--notebook 03 --set prompts_per_domain=4", "5"),
    ("out a file", "--out prompts.jsonl", "prompts.jsonl"),
    ("out below a file", "--out prompts.jsonl/x", "prompts.jsonl/x"),
    ("out loop", "--out loop", "loop"),
    ("out empty name", "--out ''", "--out"),
    ("profile", "--profile tyni", "did you mean 'tiny'"),
    ("profile of unknown notebooks", "--profile unknown.yaml", "99_nothing"),
    ("profile of unknown parameters", "--profile gama.yaml", "'gama'"),
)
KAGGLE = rows(
    ("no kit", "--notebook 02 --user a", "how shall the notebook get the kit"),
    ("notebook 99", "--notebook 99 --user a --repo https://x/y", "notebook='99'"),
    ("notebook empty", "--notebook '' --user a --repo https://x/y", "notebook=''"),
    ("notebook superscript", "--notebook ² --user a --repo https://x/y", "²"),
    ("user", "--notebook 02 --user 'A B' --repo https://x/y", "user='A B'"),
    ("user newline", "--notebook 02 --user 'a\n' --repo https://x/y", "user="),
    ("repo an option", "--notebook 02 --user a --repo=--upload-pack=x", "--upload-pack=x"),
    ("repo blank", "--notebook 02 --user a --repo ' '", "--repo"),
    ("dataset", "--notebook 02 --user a --dataset speclab", "write owner/name"),
    ("dataset of three", "--notebook 02 --user a --dataset a/b/c", "write owner/name"),
    ("model", "--notebook 02 --user a --repo https://x/y --model a/b", "owner/model"),
    ("kernel", "--notebook 02 --user a --repo https://x/y --kernel a", "write owner/name"),
    ("no internet", "--notebook 02 --user a --repo https://x/y --no-internet", "internet"),
    ("set", "--notebook 02 --user a --repo https://x/y --set gama=3", "'gama'"),
    ("out a file", "--notebook 02 --user a --repo https://x/y --out prompts.jsonl",
     "prompts.jsonl"),
    ("out empty name", "--notebook 02 --user a --repo https://x/y --out ''", "--out"),
)
# fmt: on


@pytest.mark.parametrize(("command", "phrase"), VERBS)
def test_verbs(command, phrase, things):
    check_refused(command, phrase, things)


@pytest.mark.parametrize(("options", "phrase"), DECODE)
def test_decode(options, phrase, things):
    shutil.copy(ROOT / "figures/tiny/09_policy.json", things / "policy.json")
    usual = "decode --profile profile.yaml --prompts prompts.jsonl --out new.jsonl"
    check_refused(f"{usual} {options}", phrase, things)


@pytest.mark.parametrize(("changes", "phrase"), SET)
def test_set(changes, phrase, things):
    usual = "decode --profile profile.yaml --prompts prompts.jsonl --out new.jsonl"
    check_refused(f"{usual} --set {changes}", phrase, things)


@pytest.mark.parametrize(("options", "phrase"), RECORD)
def test_record(options, phrase, things):
    check_refused(f"record --profile profile.yaml --out new {options}", phrase, things)


@pytest.mark.parametrize(("options", "phrase"), REPRODUCE)
def test_reproduce(options, phrase, things):
    unknown, gama = "{99_nothing: {a: 1}}", "{02_gamma_sweep: {gama: 1}}"
    made(things / "unknown.yaml", profile_with(f"notebooks: {unknown}"))
    made(things / "gama.yaml", profile_with(f"notebooks: {gama}"))
    check_refused(f"reproduce --out new {options}", phrase, things)


@pytest.mark.parametrize(("options", "phrase"), KAGGLE)
def test_kaggle(options, phrase, things):
    check_refused(f"hosted kaggle --out new {options}", phrase, things)


# ---- profiles and prompts ------------------------------------------------------------------------

# fmt: off
LINES = rows(
    ("name number", "name: 5", "name=5"),
    ("name above", "name: ../../..", "name='../../..'"),
    ("name of the root", "name: /tmp/x", "name='/tmp/x'"),
    ("name long", "name: " + "x" * 300, "302 characters"),
    ("name null", "name:", "name=None"),
    ("unknown", "gama: 3", "unknown parameter 'gama'"),
    ("unknown null", "null: 3", "unknown parameter 'null'"),
    ("unknown list", "? [a, b]\n: 3", "a name is needed"),
    ("twice", "seed: 1\nseed: 2", "'seed' comes twice"),
    ("twice in a model", "target: {path: a, path: b}", "'path' comes twice"),
    ("domains numbers", "domains: [1]", "domains: 1"),
    ("domains null", "domains:", "domains=None"),
    ("domains nested", "domains: [[code]]", "domains: ['code']"),
    ("domains a set", "domains: !!set {code, math}", "not valid YAML"),
    ("prompts null", "prompts:", "prompts=None"),
    ("prompts number", "prompts: 5", "prompts=5"),
    ("prompts list", "prompts: [a, b]", "prompts=['a', 'b']"),
    ("prompts empty", "prompts: ''", "prompts=''"),
    ("prompts gone", "prompts: nowhere.jsonl", "nowhere.jsonl"),
    ("prompts nul", 'prompts: "a\\0b"', "NUL"),
    ("prompts long", "prompts: " + "x" * 5000, "xxx"),
    ("prompts the root", "prompts: /", "no prompts at /"),
    ("count yes", "prompts_per_domain: yes", "a whole number is needed"),
    ("count text", "prompts_per_domain: '1'", "a whole number is needed"),
    ("count 1.0", "prompts_per_domain: 1.0", "a whole number is needed"),
    ("count sexagesimal", "prompts_per_domain: 1:30", "a whole number is needed"),
    ("count time", "prompts_per_domain: 2020-01-01 10:00:00", "a whole number is needed"),
    ("count 400 digits", "prompts_per_domain: " + "9" * 400, "400 digits"),
    ("temperature 400 digits", "temperature: " + "9" * 400, "400 digits"),
    ("temperature nan", "temperature: .nan", "temperature=nan"),
    ("temperature 1e999", "temperature: 1.0e+999", "temperature=inf"),
    ("temperature true", "temperature: true", "a number is needed"),
    ("temperature text", "temperature: '0.5'", "a number is needed"),
    ("temperature bytes", "temperature: !!binary MC41", "not valid YAML"),
    ("temperature below 0", "temperature: -0.1", "temperature=-0.1"),
    ("depth true", "depth: true", "a whole number is needed"),
    ("budget over", "budget: 65537", "budget=65537"),
    ("tree without end", "budget: null\ndepth: 64", "depth=64"),
    ("seed huge", "seed: 4294967296", "seed=4294967296"),
    ("template no", "template: no", "template='no'"),
    ("target gone", "target: nowhere/at/all", "nowhere/at/all"),
    ("target null", "target:", "path=None"),
    ("target list", "target: [data/pairs/tiny/target]", "path=["),
    ("target empty", "target: {}", "`path` is missing"),
    ("target device null", "target: {path: data/pairs/tiny/target, device: }", "device=None"),
    ("target in itself", "target: &a {path: *a}", "aliases"),
    ("notebooks null", "notebooks:", "notebooks=None"),
    ("notebooks of lists", "notebooks: {02_gamma_sweep: [a]}", "notebooks=['a']"),
    ("traces empty", "traces: ''", "traces=''"),
    ("description list", "description: [a]", "description=['a']"),
)
PROFILES = rows(
    ("empty", "", "needs at least `target` and `draft`"),
    ("comment", "# nothing", "needs at least"),
    ("word", "tiny", "needs at least"),
    ("list", "- target\n- draft", "needs at least"),
    ("no draft", "target: data/pairs/tiny/target", "needs at least"),
    ("half a list", "target: [", "not valid YAML"),
    ("tab", "target:\n\tpath: x", "not valid YAML"),
    ("tag of Python", PROFILE + "notes: !!python/object/apply:os.getcwd []", "not valid YAML"),
    ("tag of nobody", PROFILE + "notes: !mine {a: 1}", "not valid YAML"),
    ("two documents", PROFILE + "---\n" + PROFILE, "another document"),
    ("alias", PROFILE + "notes: {a: &b 1, c: *b}", "aliases"),
    ("alias bomb", PROFILE + bomb(30), "aliases"),
    ("merge key", "<<: &b {seed: 1}\n" + PROFILE, "'<<'"),
    ("deep", PROFILE + "notes: " + "{a: " * 2000 + "}" * 2000, "nested"),
    ("deep lists", "[" * 3000, "nested"),
    ("Latin-1", PROFILE.encode() + b"description: caf\xe9", "UTF-8"),
    ("UTF-16", PROFILE.encode("utf-16"), "UTF-8"),
    ("UTF-16 without mark", PROFILE.encode("utf-16-le"), "not valid YAML"),
    ("nul", PROFILE.encode() + b"\0", "not valid YAML"),
    ("bell", PROFILE.encode() + b"description: \x07", "not valid YAML"),
    ("half a character", PROFILE + 'description: "\\ud800"', "surrogate"),
    ("zip", b"PK\x03\x04" + bytes(range(256)), "UTF-8"),
    ("folder", FOLDER, "profile.yaml"),
    ("dangling link", DANGLING, "profile.yaml"),
    ("JSON twice", '{"target": "a", "target": "b", "draft": "c"}', "'target' comes twice"),
    ("long line", PROFILE + "seed: " + "x" * 300_000, "seed="),
    ("a megabyte", PROFILE + "# " + "x" * 1_000_000, "bytes"),
)
PROMPTS = rows(
    ("empty", "", "no prompt in it"),
    ("blank lines", "\n\n \n", "no prompt in it"),
    ("no JSON", "def f():", "line 1: not valid JSON"),
    ("cut", PROMPT[:20], "line 1: not valid JSON"),
    ("second line cut", PROMPT + PROMPT[:20], "line 2: not valid JSON"),
    ("list", "[1, 2]", "a list came"),
    ("null", "null", "line 1"),
    ("array of all", "[" + PROMPT.strip() + "]", "a list came"),
    ("over several lines", json.dumps(json.loads(PROMPT), indent=1), "one object"),
    ("two on a line", PROMPT.strip() + PROMPT, "Extra data"),
    ("comment", "// x\n" + PROMPT, "line 1: not valid JSON"),
    ("no id", '{"prompt": "a"}', "missing field prompt_id"),
    ("unknown field", '{"prompt_id": "a", "prompt": "b", "text": "c"}', "unknown field text"),
    ("field twice", '{"prompt_id": "a", "prompt": "b", "prompt": "c"}', "'prompt' comes twice"),
    ("id number", '{"prompt_id": 5, "prompt": "b"}', "prompt_id is 5"),
    ("id empty", '{"prompt_id": "", "prompt": "b"}', "not empty"),
    ("id taken", PROMPT * 2, "prompt_id 'a' is taken"),
    ("id long", '{"prompt_id": "%s", "prompt": "b"}\n' % ("x" * 100_000) * 2, "is taken"),
    ("id half a character", '{"prompt_id": "a\\udfff", "prompt": "b"}', "surrogate"),
    ("prompt blank", '{"prompt_id": "a", "prompt": " \\n\\t"}', "not empty"),
    ("prompt nan", '{"prompt_id": "a", "prompt": NaN}', "NaN"),
    ("prompt infinity", '{"prompt_id": "a", "prompt": -Infinity}', "-Infinity"),
    ("prompt true", '{"prompt_id": "a", "prompt": true}', "prompt is True"),
    ("prompt 5000 digits", '{"prompt_id": "a", "prompt": %s}' % ("9" * 5000), "line 1"),
    ("half a character", '{"prompt_id": "a", "prompt": "b\\ud800"}', "surrogate"),
    ("half a character as bytes", '{"prompt_id": "a", "prompt": "b\ud800"}', "UTF-8"),
    ("domain", '{"prompt_id": "a", "domain": "maths", "prompt": "b"}', "did you mean 'math'"),
    ("domain null", '{"prompt_id": "a", "domain": null, "prompt": "b"}', "domain is None"),
    ("deep", DEEP, "nested"),
    ("Latin-1", PROMPT.replace("f()", "é").encode("latin-1"), "UTF-8"),
    ("UTF-16", PROMPT.encode("utf-16"), "UTF-8"),
    ("nul", with_nul(PROMPT.encode()), "line 2: not valid JSON"),
    ("zip", b"PK\x03\x04" + bytes(range(256)), "line 1"),
    ("folder", FOLDER, "no prompts at prompts.jsonl"),
    ("dangling link", DANGLING, "prompts.jsonl"),
)
GOOD = rows(
    ("byte order mark", lambda content: b"\xef\xbb\xbf" + content),
    ("lines of Windows", lambda content: content.replace(b"\n", b"\r\n")),
    ("no last line end", lambda content: content.rstrip()),
    ("blank lines", lambda content: b"\n\n" + content + b"\n \n"),
)
# fmt: on


@pytest.mark.parametrize(("lines", "phrase"), LINES)
def test_a_line_of_a_profile(lines, phrase, place):
    made(place / "profile.yaml", profile_with(lines))
    check_refused("record --profile profile.yaml --out new", phrase, place)


@pytest.mark.parametrize(("recipe", "phrase"), PROFILES)
def test_profile(recipe, phrase, place):
    made(place / "profile.yaml", recipe)
    check_refused("record --profile profile.yaml --out new", phrase, place)


@pytest.mark.parametrize(("recipe", "phrase"), PROMPTS)
def test_prompts(recipe, phrase, place):
    made(place / "prompts.jsonl", recipe)
    usual = "decode --profile profile.yaml --prompts prompts.jsonl --out new.jsonl"
    check_refused(usual, phrase, place)


@pytest.mark.parametrize("recipe", GOOD)
def test_what_an_editor_does_to_a_text_changes_nothing(recipe, place):
    profile, prompts = load_profile("profile.yaml"), read_prompts("prompts.jsonl")
    made(place / "profile.yaml", recipe)
    made(place / "prompts.jsonl", recipe)
    assert load_profile("profile.yaml") == profile
    assert read_prompts("prompts.jsonl") == prompts


# ---- runs, traces, policies ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A folder with a `run` of the tiny pair, one prompt, and the `trace` packed of it."""
    folder = tmp_path_factory.mktemp("recorded")
    profile = load_profile("tiny", parse_overrides([*FEW.split(), "device=cpu"]))
    run = runs.record_run(profile, folder / "run", progress=iter)
    traces.pack(run, folder / "trace", "greedy", "free")
    return folder


PACK = "pack run --kind greedy --licence free --out new"
AGAIN = f"record --profile tiny --set {FEW} device=cpu --out run"

# fmt: off
RUNS = rows(
    ("manifest gone", "metrics run", "manifest.json", GONE, "no manifest.json"),
    ("manifest empty", "metrics run", "manifest.json", "", "run/manifest.json"),
    ("manifest cut", "metrics run", "manifest.json", half, "run/manifest.json"),
    ("manifest null", "metrics run", "manifest.json", "null", "run/manifest.json"),
    ("manifest a folder", "metrics run", "manifest.json", FOLDER, "manifest.json"),
    ("manifest a dangling link", "metrics run", "manifest.json", DANGLING, "manifest.json"),
    ("manifest deep", "metrics run", "manifest.json", DEEP, "run/manifest.json"),
    ("manifest Latin-1", "metrics run", "manifest.json", LATIN, "run/manifest.json"),
    ("manifest UTF-16", "metrics run", "manifest.json", utf16, "run/manifest.json"),
    ("manifest nul", "metrics run", "manifest.json", with_nul, "run/manifest.json"),
    ("manifest key twice", "metrics run", "manifest.json", twice("key"), "run/manifest.json"),
    ("schema 2", "metrics run", "manifest.json", field("schema", 2), "schema version 2"),
    ("schema text", "metrics run", "manifest.json", field("schema", "1"), "schema"),
    ("no rows", "metrics run", "manifest.json", field("rows", ...), "rows"),
    ("rows a number", PACK, "manifest.json", field("rows", 5), "run/manifest.json"),
    ("rows of another run", PACK, "manifest.json", field("rows.trace", 5), "run/manifest.json"),
    ("profile a number", "metrics run", "manifest.json", field("profile", 5), "run/manifest.json"),
    ("no temperature", "metrics run", "manifest.json", field("profile.temperature", ...),
     "run/manifest.json"),
    ("temperature text", "metrics run", "manifest.json", field("profile.temperature", "hot"),
     "run/manifest.json"),
    ("pair a number", PACK, "manifest.json", field("pair", 5), "run/manifest.json"),
    ("no libraries", PACK, "manifest.json", field("libraries", ...), "run/manifest.json"),
    ("model a number", PACK, "manifest.json", field("profile.target.path", 5),
     "run/manifest.json"),
    ("model of this machine", PACK, "manifest.json", field("profile.target.path", "/a/b"),
     "run/manifest.json"),
    ("trace gone", "metrics run", "trace.parquet", GONE, "trace.parquet"),
    ("trace empty", "metrics run", "trace.parquet", "", "run/trace.parquet"),
    ("trace cut", "metrics run", "trace.parquet", half, "run/trace.parquet"),
    ("trace one bit", "metrics run", "trace.parquet", flipped, "run/trace.parquet"),
    ("trace longer", "metrics run", "trace.parquet", with_nul, "run/trace.parquet"),
    ("trace a folder", "metrics run", "trace.parquet", FOLDER, "trace.parquet"),
    ("trace a loop", "metrics run", "trace.parquet", LOOP, "trace.parquet"),
    ("trace of text", "metrics run", "trace.parquet", "token\n1\n", "run/trace.parquet"),
    ("nodes gone", PACK, "nodes.parquet", GONE, "nodes.parquet"),
    ("nodes cut", PACK, "nodes.parquet", half, "run/nodes.parquet"),
    ("nodes one bit", PACK, "nodes.parquet", flipped, "run/nodes.parquet"),
    ("settings null", AGAIN, "settings.json", "null", "run"),
    ("settings cut", AGAIN, "settings.json", half, "run"),
    ("settings a folder", AGAIN, "settings.json", FOLDER, "run/settings.json"),
    ("settings Latin-1", AGAIN, "settings.json", LATIN, "run"),
    ("other settings", f"{AGAIN} --set seed=7", "x", "", "other settings"),
)
OF_RUNS = rows(
    ("metrics: gone", "metrics nowhere", "nowhere"),
    ("metrics: a file", "metrics prompts.jsonl", "prompts.jsonl"),
    ("metrics: empty name", "metrics ''", "'RUN'"),
    ("metrics: nul", "metrics 'a\0b'", "'RUN'"),
    ("metrics: long name", "metrics " + "x" * 5000, "xxx"),
    ("metrics: plain", "metrics run --shape plain", "allowed are chain:GAMMA"),
    ("metrics: dynamic", "metrics run --shape dynamic:2,2,2", "allowed are chain:GAMMA"),
    ("metrics: two numbers", "metrics run --shape 'chain:1 2'", "chain:1 2"),
    ("metrics: rule", "metrics run --rule best", "rule='best'"),
    ("metrics: warm rule", "metrics run --rule rejection", "temperatures above 0"),
    ("metrics: beside gone", "metrics run --beside nowhere", "nowhere"),
    ("metrics: beside a folder", "metrics run --beside empty", "empty"),
    ("metrics: beside a loop", "metrics run --beside loop", "loop"),
    ("metrics: beside another thing", "metrics run --beside prompts.jsonl", "of no known kind"),
    ("metrics: beside bytes", "metrics run --beside run/trace.parquet", "of no known kind"),
    ("explore: gone", "explore nowhere --out new.html", "nowhere"),
    ("explore: a file", "explore prompts.jsonl --out new.html", "prompts.jsonl"),
    ("explore: no run", "explore --out new.html", "RUN"),
    ("explore: greedy twice", "explore run run --out new.html", "one of greedy text"),
    ("explore: no out", "explore run", "--out"),
    ("explore: out a folder", "explore run --out empty", "empty"),
    ("explore: out another file", "explore run --out prompts.jsonl", "prompts.jsonl"),
    ("explore: out empty name", "explore run --out ''", "out"),
    ("explore: out a loop", "explore run --out loop", "loop"),
    ("pack: no kind", "pack run --licence free --out new", "give --kind"),
    ("pack: kind", "pack run --kind greddy --licence free --out new", "'greddy'"),
    ("pack: another kind", "pack run --kind chain --licence free --out new", "depth=8"),
    ("pack: no licence", "pack run --kind greedy --out new", "--licence"),
    ("pack: licence of lines", "pack run --kind greedy --licence 'a\nb' --out new", "licence"),
    ("pack: out another", "pack run --kind greedy --licence free --out other", "other"),
    ("pack: out the run", "pack run --kind greedy --licence free --out run", "run"),
    ("pack: out a file", "pack run --kind greedy --licence free --out prompts.jsonl",
     "prompts.jsonl"),
    ("pack: out empty name", "pack run --kind greedy --licence free --out ''", "out"),
    ("pack: out a loop", "pack run --kind greedy --licence free --out loop", "loop"),
)
TRACES = rows(
    ("manifest empty", "manifest.json", "", "manifest.json"),
    ("manifest cut", "manifest.json", half, "manifest.json"),
    ("manifest a folder", "manifest.json", FOLDER, "manifest.json"),
    ("manifest a dangling link", "manifest.json", DANGLING, "no trace there"),
    ("no checksums", "manifest.json", field("files", ...), "manifest.json"),
    ("checksums null", "manifest.json", field("files", None), "manifest.json"),
    ("checksums a list", "manifest.json", field("files", []), "manifest.json"),
    ("schema", "manifest.json", field("schema", 2), "schema version 2"),
    ("profile a number", "manifest.json", field("profile", 5), "manifest.json"),
    ("date a number", "manifest.json", field("finished", 5), "manifest.json"),
    ("no date", "manifest.json", field("finished", ...), "manifest.json"),
    ("card gone", "README.md", GONE, "README.md"),
    ("trace gone", "trace.parquet", GONE, "trace.parquet"),
    ("trace one bit", "trace.parquet", flipped, "SHA-256"),
    ("nodes a folder", "nodes.parquet", FOLDER, "nodes.parquet"),
    ("nodes one bit", "nodes.parquet", flipped, "SHA-256"),
)
POLICY = rows(
    ("empty", "", "policy.json"),
    ("cut", half, "policy.json"),
    ("null", "null", "policy.json"),
    ("list", "[]", "policy.json"),
    ("folder", FOLDER, "policy.json"),
    ("dangling link", DANGLING, "policy.json"),
    ("loop", LOOP, "policy.json"),
    ("nul", with_nul, "policy.json"),
    ("Latin-1", LATIN, "policy.json"),
    ("UTF-16", utf16, "policy.json"),
    ("deep", DEEP, "policy.json"),
    ("unknown field", field("gama", 3), "gama"),
    ("no default", field("default", ...), "default"),
    ("default a number", field("default", 4), "default"),
    ("default of no shape", field("default", "chain:99"), "gamma=99"),
    ("default of two numbers", field("default", "chain:1 2"), "chain:1 2"),
    ("default too large", field("default", "dynamic:64,1024,65536"), "65536"),
    ("default long", field("default", "x" * 100_000), "default"),
    ("default twice", twice("default"), "default"),
    ("domain", field("domains.maths", "plain"), "maths"),
    ("domain null", field("domains.code", None), "domains.code"),
    ("router", field("router", "oracle"), "router"),
    ("version 2", field("version", 2), "version"),
    ("another pair", field("pair.target", "0" * 40), "another pair"),
    ("no pair", field("pair", {}), "another pair"),
    ("cost nan", field("costs.c", NAN), "policy.json"),
    ("cost true", field("costs.c", True), "costs.c"),
)
# fmt: on


@pytest.mark.parametrize(("command", "file", "recipe", "phrase"), RUNS)
def test_run_folder(command, file, recipe, phrase, recorded, place):
    shutil.copytree(recorded / "run", place / "run")
    made(place / "run" / file, recipe)
    check_refused(command, phrase, place)


@pytest.mark.parametrize(("command", "phrase"), OF_RUNS)
def test_verbs_of_runs(command, phrase, recorded, things):
    shutil.copytree(recorded / "run", things / "run")
    check_refused(command, phrase, things)


@pytest.mark.parametrize(("file", "recipe", "phrase"), TRACES)
def test_trace_folder(file, recipe, phrase, recorded, place, monkeypatch):
    shutil.copytree(recorded / "trace", place / "traces" / "greedy")
    made(place / "traces" / "greedy" / file, recipe)
    monkeypatch.setenv("SPECLAB_TRACES", "traces")
    check_refused(f"record --profile tiny --set {FEW} device=cpu", phrase, place)


@pytest.mark.parametrize(("recipe", "phrase"), POLICY)
def test_policy(recipe, phrase, place):
    shutil.copy(ROOT / "figures/tiny/09_policy.json", place / "policy.json")
    made(place / "policy.json", recipe)
    usual = "decode --profile profile.yaml --prompts prompts.jsonl --out new.jsonl"
    check_refused(f"{usual} --policy policy.json", phrase, place)


# ---- model folders -------------------------------------------------------------------------------

# fmt: off
MODELS = rows(
    ("config gone", "config.json", GONE, "no config.json"),
    ("config empty", "config.json", "", "config.json"),
    ("config cut", "config.json", half, "config.json"),
    ("config null", "config.json", "null", "config.json"),
    ("config list", "config.json", "[]", "config.json"),
    ("config a folder", "config.json", FOLDER, "config.json"),
    ("config Latin-1", "config.json", LATIN, "config.json"),
    ("config deep", "config.json", DEEP, "config.json"),
    ("config twice", "config.json", twice("vocab_size"), "config.json"),
    ("type unknown", "config.json", field("model_type", "nonsense"), "nonsense"),
    ("no type", "config.json", field("model_type", ...), "model_type"),
    ("width 33", "config.json", field("hidden_size", 33), "target"),
    ("width text", "config.json", field("hidden_size", "32"), "target"),
    ("width null", "config.json", field("hidden_size", None), "target"),
    ("heads 0", "config.json", field("num_attention_heads", 0), "target"),
    ("heads 3", "config.json", field("num_attention_heads", 3), "target"),
    ("layers -1", "config.json", field("num_hidden_layers", -1), "target"),
    ("a layer more", "config.json", field("num_hidden_layers", 3), "weights are missing"),
    ("a layer less", "config.json", field("num_hidden_layers", 1), "layers.1"),
    ("vocabulary 41", "config.json", field("vocab_size", 41), "weights are missing"),
    ("vocabulary -1", "config.json", field("vocab_size", -1), "target"),
    ("number format", "config.json", field("dtype", "float7"), "float7"),
    ("number format 32", "config.json", field("dtype", 32), "dtype"),
    ("number format nn", "config.json", field("dtype", "nn"), "config.json"),
    ("4 positions", "config.json", field("max_position_embeddings", 4), "takes 4 positions"),
    ("positions text", "config.json", field("max_position_embeddings", "4"), "target"),
    ("activation", "config.json", field("hidden_act", "nonsense"), "nonsense"),
    ("code of its own", "config.json",
     lambda b: field("auto_map", {"AutoConfig": "m.C"})(field("model_type", "mine")(b)), "code"),
    ("kept tokens", "config.json", field("kept_tokens", 5), "kept is missing"),
    ("quantised by a number", "config.json", field("quantization_config", 5), "target"),
    ("tokenizer gone", "tokenizer.json", GONE, "tokenizer"),
    ("tokenizer empty", "tokenizer.json", "", "tokenizer"),
    ("tokenizer cut", "tokenizer.json", half, "tokenizer"),
    ("tokenizer null", "tokenizer.json", "null", "tokenizer"),
    ("tokenizer a folder", "tokenizer.json", FOLDER, "tokenizer"),
    ("tokenizer without model", "tokenizer.json", field("model", ...), "tokenizer"),
    ("tokenizer Latin-1", "tokenizer.json", LATIN, "tokenizer"),
    ("its settings cut", "tokenizer_config.json", half, "tokenizer"),
    ("its settings null", "tokenizer_config.json", "null", "tokenizer"),
    ("generation null", "generation_config.json", "null", "target"),
    ("weights gone", "model.safetensors", GONE, "no *.safetensors"),
    ("weights empty", "model.safetensors", "", "target"),
    ("weights cut", "model.safetensors", half, "target"),
    ("weights of text", "model.safetensors", "not weights", "target"),
    ("weights a folder", "model.safetensors", FOLDER, "target"),
    ("weights a dangling link", "model.safetensors", DANGLING, "target"),
    ("weights of another header", "model.safetensors", lambda b: b"\xff" * 8 + b[8:], "target"),
    ("weights not finite", "model.safetensors", lambda b: b[:-4096] + b"\xff" * 4096, "target"),
)
SOURCES = rows(
    ("broken", "pair", "{", "source.json"),
    ("null", "pair", "null", "source.json"),
    ("list", "pair", "[]", "source.json"),
    ("empty", "pair", "{}", "source.json"),
    ("Latin-1", "pair", LATIN, "source.json"),
    ("wheel a number", "pair", field("wheel", 5), "source.json"),
    ("wheel without version", "pair", field("wheel", "x"), "source.json"),
    ("wheel an option", "pair", field("wheel", "--index-url==x"), "source.json"),
    ("weights null", "pair", field("weights", None), "source.json"),
    ("weights above", "pair", field("weights", {"../x": {"sha256": "0" * 64, "bytes": 1}}),
     "source.json"),
    ("checksum a word", "pair", field("weights", {"x.safetensors": {"sha256": "z", "bytes": 1}}),
     "source.json"),
    ("record: broken", "record --out new", "{", "source.json"),
    ("record: null", "record --out new", "null", "source.json"),
    ("record: weights null", "record --out new", field("weights", None), "source.json"),
)
# fmt: on


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder with a random `target` and `draft`."""
    folder = tmp_path_factory.mktemp("models")
    save_random_llama(folder / "target", 1)
    save_random_llama(folder / "draft", 2, layers=1, kv_heads=1)
    return folder


@pytest.mark.parametrize(("file", "recipe", "phrase"), MODELS)
def test_model_folder(file, recipe, phrase, models, tmp_path):
    shutil.copytree(models, tmp_path, dirs_exist_ok=True)
    made(tmp_path / "target" / file, recipe)
    made(tmp_path / "prompts.jsonl", PROMPT)
    lines = [f"{m}: {{path: {tmp_path / m}, device: cpu}}" for m in ("target", "draft")]
    made(tmp_path / "profile.yaml", profile_with("\n".join(lines)))
    usual = (
        "decode --profile {0}/profile.yaml --prompts {0}/prompts.jsonl --out {0}/new"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_refused(usual.format(tmp_path), phrase, tmp_path)


@pytest.mark.parametrize(("verb", "recipe", "phrase"), SOURCES)
def test_source_of_weights(verb, recipe, phrase, models, place, monkeypatch):
    """Of a folder whose weights are to be fetched."""
    monkeypatch.setattr(pair, "_download", lambda _: pytest.fail("it is fetched"))
    monkeypatch.setattr(pair, "_check_machine", lambda _: None)
    shutil.copytree(models / "target", place / "target")
    made(place / "target" / "model.safetensors", GONE)
    shutil.copy(ROOT / "data/pairs/smollm/target/source.json", place / "target")
    made(place / "target" / "source.json", recipe)
    lines = f"target: {place / 'target'}\ndraft: {models / 'draft'}"
    made(place / "profile.yaml", profile_with(lines))
    check_refused(f"{verb} --profile profile.yaml", phrase, place)


# ---- environment variables, and what the doctor says ---------------------------------------------

TINY = f"record --profile tiny --set {FEW}"
PAPER = "record --set prompts=paper --out new"
HUB = "record --set target.path=a/b --out new"

# fmt: off
ENVIRONMENT = rows(
    ("traces gone", "SPECLAB_TRACES=nowhere", TINY, "SPECLAB_TRACES=nowhere"),
    ("traces a file", "SPECLAB_TRACES=prompts.jsonl", TINY, "SPECLAB_TRACES=prompts.jsonl"),
    ("traces empty", "SPECLAB_TRACES=empty", TINY, "SPECLAB_TRACES=empty"),
    ("traces a loop", "SPECLAB_TRACES=loop", TINY, "SPECLAB_TRACES=loop"),
    ("traces long", "SPECLAB_TRACES=" + "x" * 5000, TINY, "xxx"),
    ("data sets gone", "SPECLAB_DATASETS=nowhere", PAPER, "SPECLAB_DATASETS=nowhere"),
    ("data sets a file", "SPECLAB_DATASETS=prompts.jsonl", PAPER, "SPECLAB_DATASETS"),
    ("data sets hollow", "SPECLAB_DATASETS=hollow", PAPER, "SPECLAB_DATASETS"),
    ("data sets a loop", "SPECLAB_DATASETS=loop", PAPER, "SPECLAB_DATASETS"),
    ("models gone", "SPECLAB_MODELS=nowhere", HUB, "SPECLAB_MODELS"),
    ("models a file", "SPECLAB_MODELS=prompts.jsonl", HUB, "SPECLAB_MODELS"),
    ("models hollow", "SPECLAB_MODELS=hollow", HUB, "a/b"),
    ("models long", "SPECLAB_MODELS=" + "x" * 5000, HUB, "xxx"),
    ("threads a word", "OMP_NUM_THREADS=abc", "reproduce --out new", "OMP_NUM_THREADS"),
    ("threads 0", "OMP_NUM_THREADS=0", "reproduce --out new", "OMP_NUM_THREADS"),
    ("threads -3", "OMP_NUM_THREADS=-3", "doctor", "OMP_NUM_THREADS"),
    ("Ray at no address", "RAY_ADDRESS=nonsense", "record --engine ray --out new", "RAY_ADDRESS"),
    ("Ray at an odd port", "RAY_ADDRESS=127.0.0.1:x", "record --engine ray --out new",
     "RAY_ADDRESS"),
)
DOCTOR = rows(
    ("prompts broken", "--profile broken.yaml", "prompts"),
    ("prompts too few", "--set prompts_per_domain=100000", "100000"),
    ("prompts gone", "--set prompts=nowhere.jsonl", "nowhere.jsonl"),
    ("weights cut", "--profile cut.yaml", "cut"),
    ("config cut", "--profile config.yaml", "config.json"),
    ("device", "--set device=cuda:99", "cuda:99"),
    ("model gone", "--set target.path=nowhere/at/all", "nowhere/at/all"),
)
# fmt: on


@pytest.mark.parametrize(("setting", "command", "phrase"), ENVIRONMENT)
def test_environment(setting, command, phrase, things, monkeypatch):
    for hub_set in HUB_SETS.values():
        made(things / "hollow" / hub_set.name, FOLDER)
    made(things / "hollow" / "a" / "b", FOLDER)
    monkeypatch.setattr(probe, "measured_speed", lambda *_: Speed(1e11, 1e10, 2e-4))
    monkeypatch.setenv(*setting.split("=", 1))
    check_refused(command, phrase, things)


@pytest.mark.parametrize(("options", "phrase"), DOCTOR)
def test_doctor(options, phrase, models, place, monkeypatch):
    """It says what is to be done, with status 1."""
    monkeypatch.setattr(probe, "measured_speed", lambda *_: Speed(1e11, 1e10, 2e-4))
    for name, file in (("cut", "model.safetensors"), ("config", "config.json")):
        shutil.copytree(models / "target", place / name)
        made(place / name / file, half)
        made(place / f"{name}.yaml", profile_with(f"target: {place / name}"))
    made(place / "broken.jsonl", PROMPT[:20])
    made(place / "broken.yaml", profile_with(f"prompts: {place / 'broken.jsonl'}"))
    status, printed, said, changed = tried(["doctor", *shlex.split(options)], place)
    assert status == 1 and not said and not changed
    todo = [line for line in printed.split("\n") if line.startswith("do  ")]
    assert todo and phrase in printed.replace("\n", " ")


def test_out_that_is_a_file_is_refused_as_a_notebook_starts(place, monkeypatch):
    monkeypatch.setenv("SPECLAB_OUT", "prompts.jsonl")
    with pytest.raises(ValueError, match="SPECLAB_OUT"):
        notebook.start("02_gamma_sweep", "tiny")
