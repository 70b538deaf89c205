"""Install the packages that an environment lacks, as that of Colab or Kaggle, without changing
those that it has.

A notebook's bootstrap cell calls `prepare`; `install` is a verb of the command line. The top of
this module imports only the standard library, because the cell imports it before anything is
installed.
"""

import os
import shlex
import subprocess
import sys
import tomllib
from importlib import invalidate_caches, metadata
from pathlib import Path
from platform import python_version
from tempfile import TemporaryDirectory

from speclab.place import IS_INSTALLED, ROOT

# never installed in another version: a running kernel has loaded them, and other packages are
# compiled for exactly these
KEPT = ("torch", "numpy", "pandas", "pyarrow", "ipykernel", "ipython", "ipywidgets")
LAST = 1500  # characters of pip's output, printed if it fails


def prepare() -> None:
    """Go to the root of the kit, which an installed package has not; under `make reproduce`, stay
    in its folder, as a study may name files there. With SPECLAB_REPO, from which the cell clones
    the kit, also install missing packages. SystemExit: it failed.
    """
    if not (IS_INSTALLED or os.environ.get("SPECLAB_OUT")):
        os.chdir(ROOT)
    if os.environ.get("SPECLAB_REPO"):
        try:
            print(install())
        except ValueError as error:
            sys.exit(str(error))
        print("For a model in 4 bit run `!python -m speclab hosted install --gptq`, then restart.")


def install(gptq: bool = False, heads: bool = False, reproduce: bool = False) -> str:
    """Install the packages of pyproject.toml that the active environment lacks. Only a package that
    is out of its range gets another version, and none of KEPT.

    gptq: also GPTQModel and the packages that it imports. They are installed without their own
    requirements, because GPTQModel requires one exact numpy and newer releases of packages that it
    does not import. heads: also speculators, for trained heads, in the same way, because it
    requires older releases of transformers and datasets. reproduce: also the packages that run
    notebooks from the command line. Returns what was done, in a line. ValueError: a package of KEPT
    is out of range, or pip fails.
    """
    needs = lacking() + lacking("models") + lacking("reproduce") * reproduce
    alone = lacking("gptq") * gptq
    for need in lacking("heads") * heads:
        (alone if need.startswith("speculators") else needs).append(need)
    if not needs + alone:
        return f"no package is missing in {sys.prefix}"
    print(f"pip installs {', '.join(needs + alone)} in {sys.prefix}", flush=True)
    # pip fails rather than give a package another version than it has here
    moved = {package_of(need) for need in needs} - {*KEPT}
    there = _pip("list", "--format=freeze").splitlines()
    with TemporaryDirectory() as folder:
        file = Path(folder, "constraints.txt")
        file.write_text("\n".join(line for line in there if package_of(line) not in moved))
        if needs:
            _pip("install", "--quiet", "--constraint", str(file), *needs)
    if alone:
        _pip("install", "--quiet", "--no-deps", *alone)
    invalidate_caches()  # of what can be imported
    return "installed; restart the session if a package was imported that is now newer"


def lacking(extra: str = "") -> list[str]:
    """The requirements of the kit, or of one of its extras, that no installed package satisfies."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    project = tomllib.loads(text)["project"]
    needs = project["optional-dependencies"][extra] if extra else project["dependencies"]
    return [need for need in needs if not satisfies(need)]


def satisfies(need: str) -> bool:
    """Whether an installed package satisfies a requirement, as `torch>=2`."""
    from packaging.requirements import Requirement

    wanted = Requirement(need)
    try:
        version = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        return False
    return wanted.specifier.contains(version, prereleases=True)


def package_of(need: str) -> str:
    """The name in a requirement, in lower case with dashes."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    return canonicalize_name(Requirement(need).name)


def missing_package(error: ImportError) -> str:
    """What to do about an import that failed, in one line."""
    return (
        f"{error}. The kit needs Python 3.11 to 3.13 (this is {python_version()}) and the packages "
        "of requirements.lock: run `make env` to install them in .venv, or `pip install -e "
        "'.[models]'` for the active environment. For packages that few verbs need, run `python -m "
        "speclab hosted install` with --gptq (4-bit models), --heads (trained heads) or "
        "--reproduce (papermill), or `pip install 'ray>=2.60,<3'`"
    )


def _pip(*words: str) -> str:
    """What pip prints. ValueError, after its last lines, if it fails."""
    command = [sys.executable, "-m", "pip", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr[-LAST:])
        raise ValueError(
            f"`pip {shlex.join(words)}` failed; its last lines, above, say why. A package that is "
            f"here gets no other version if it is one of {', '.join(KEPT)}: choose another version "
            "of the image or of speclab, or run `make env` for an environment of its own. If "
            "pcre2.h is missing, run `apt-get install libpcre2-dev`"
        )
    return done.stdout
