"""What is said where a package, or the repository around this one, is missing. Needs Python alone:
whatever else is imported here could be what is missing.
"""

import re
import sys
import textwrap
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NEEDED = ROOT / "notebooks" / "profiles"
WIDTH = 60  # a phone held upright


@dataclass(frozen=True)
class Line:
    """One answer; `do` says what has to be done, and is empty when all is well."""

    subject: str
    text: str
    do: str = ""

    def __str__(self) -> str:
        head = textwrap.fill(
            f"{'do' if self.do else 'ok'}  {self.subject}: {self.text}",
            WIDTH,
            subsequent_indent=" " * 4,
        )
        return head + (
            "\n"
            + textwrap.fill(
                f"-> {self.do}",
                WIDTH,
                initial_indent=" " * 4,
                subsequent_indent=" " * 7,
            )
            if self.do
            else ""
        )


def check_checkout() -> None:
    """ValueError where the package stands alone, as `pip install --target` puts it: profiles, data
    and notebooks are the repository's.
    """
    if not NEEDED.is_dir():
        raise ValueError(
            f"{ROOT} holds the package alone; profiles, data and notebooks are in the repository: "
            "clone it, and run `make` or `python -m speclab` in its folder (`pip install -e .` "
            "there makes it importable anywhere)"
        )


def python_line(version: tuple[int, int]) -> Line:
    """Python 3.11 to 3.13."""
    good = (3, 11) <= version <= (3, 13)
    do = "" if good else "use Python 3.11, 3.12 or 3.13"
    return Line("Python", ".".join(map(str, version)), do)


def absent() -> list[Line]:
    """A line for each package that pyproject.toml asks for and that is not installed."""
    import tomllib  # not in Python 3.10

    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lines = []
    for need in tomllib.loads(text)["project"]["dependencies"]:
        name = re.match(r"[\w.-]+", need)[0]
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            lines.append(Line(name, "missing", f"pip install '{need}'"))
    return lines


def without(profile: str, error: Exception) -> tuple[str, int]:
    """What the doctor says, and of how many lines something is to be done, where it cannot look
    further because of this `error` of an import.
    """
    python = python_line(sys.version_info[:2])
    lines = [] if python.do else absent()
    if not lines and not python.do:
        name = (getattr(error, "name", None) or "a package").partition(".")[0]
        said = f"cannot be used ({type(error).__name__}: {error})"
        lines = [Line(name, said, f"pip install --force-reinstall {name}")]
    lines = [python, *lines]
    todo = sum(1 for line in lines if line.do)
    text = "\n".join(map(str, lines))
    return f"{text}\n\n{profile}: {todo} to do; the rest is looked at after that", todo
