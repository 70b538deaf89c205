"""Install the packages that an environment lacks, as that of Colab or Kaggle, without changing
those that it has.

A notebook's bootstrap cell calls `prepare`; `install` is a verb of the command line. The top of
this module imports only the standard library, because the cell imports it before anything is
installed.
"""

import os
import re
import subprocess
import sys
import tomllib
from contextlib import suppress
from importlib import invalidate_caches, metadata
from pathlib import Path
from platform import python_version
from tempfile import TemporaryDirectory
from typing import Any

from speclab.place import IS_INSTALLED, ROOT

# never installed in another version: a running kernel has loaded them, and other packages are
# compiled for exactly these
KEPT = ("torch", "numpy", "pandas", "pyarrow", "ipykernel", "ipython", "ipywidgets")
# packages that most users do not need, and the option of `hosted install` that installs them
EXTRAS = {"gptqmodel": "gptq"} | dict.fromkeys(("speculators", "hs_connectors", "openai"), "heads")
EXTRAS |= dict.fromkeys(("papermill", "jupytext", "nbconvert", "nbformat"), "reproduce")
LAST_LINES = 12  # of pip's output, printed if it fails


def prepare() -> None:
    """Go to the root of the kit, which an installed package has not. With SPECLAB_REPO, from which
    the cell clones the kit, also install missing packages. SystemExit: it failed.
    """
    if not IS_INSTALLED:
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
    needs = lacking() + lacking("reproduce") * reproduce
    alone = lacking("gptq") * gptq
    for need in lacking("heads") * heads:
        (alone if need.startswith("speculators") else needs).append(need)
    if not needs + alone:
        return f"no package is missing in {sys.prefix}"
    there = versions()
    upgraded = {package_of(need): need for need in needs if package_of(need) in there}
    for name in upgraded.keys() & {*KEPT}:
        need = upgraded[name]
        raise ValueError(
            f"{name} {there[name]} is installed, speclab needs {need}, and this command never "
            f"moves {name}; run `pip install '{need}'`, or `make env` for an environment of its "
            "own (on Kaggle and Colab: choose another version of the image or of speclab)"
        )
    print(f"pip installs {', '.join(needs + alone)} in {sys.prefix}", flush=True)
    with TemporaryDirectory() as folder:
        # pip fails rather than give a package another version than it has here
        constraints = Path(folder, "constraints.txt")
        kept = there.keys() - upgraded.keys()
        constraints.write_text("\n".join(f"{name}=={there[name]}" for name in kept))
        if needs:
            _pip(needs, "--constraint", str(constraints))
        if alone:
            _pip(alone, "--no-deps")
    if upgraded:
        return f"upgraded: {', '.join(sorted(upgraded))}; restart the session if one was imported"
    return "installed; all other packages are unchanged"


def project() -> dict[str, Any]:
    """The project table of the kit's pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["project"]


def lacking(extra: str = "") -> list[str]:
    """The requirements of the kit, or of one of its extras, that no installed package satisfies."""
    needs = project()["optional-dependencies"][extra] if extra else project()["dependencies"]
    return [need for need in needs if not in_range(need)]


def in_range(need: str) -> bool:
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
    name = re.split("[<>=]", need)[0]
    return re.sub("[-_.]+", "-", name).lower()


def versions() -> dict[str, str]:
    """The version of each installed package, by its name as of `package_of`."""
    from packaging.version import InvalidVersion, Version

    found: dict[str, str] = {}
    for package in metadata.distributions():  # the first on sys.path is the one that is imported
        with suppress(InvalidVersion, TypeError):  # of half an installation
            found.setdefault(package_of(package.metadata["Name"]), str(Version(package.version)))
    return found


def missing_package(error: ImportError) -> str:
    """What to do about an import that failed, in one line."""
    name = (error.name or "").partition(".")[0]
    if name in EXTRAS:
        return f"{error}; run `python -m speclab hosted install --{EXTRAS[name]}`"
    return (
        f"{error}. The kit needs the packages of requirements.lock and Python 3.11 to 3.13 (this "
        f"is {python_version()}): run `make env` to install them in .venv, or `pip install -e .` "
        "for the active environment"
    )


def _pip(needs: list[str], *options: str) -> None:
    """Install packages. ValueError, after pip's last lines, if that fails."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", *needs, *options]
    done = subprocess.run(command, capture_output=True, text=True)
    invalidate_caches()  # of what can be imported
    if done.returncode:
        print(*done.stderr.splitlines()[-LAST_LINES:], sep="\n")
        mend = "pip's last lines, above, say why"
        if "pcre2" in done.stderr:
            mend = "PyPcre is compiled here; first run `apt-get install libpcre2-dev`"
        raise ValueError(f"pip could not install {', '.join(needs)}; {mend}")
