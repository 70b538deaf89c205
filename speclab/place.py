"""Where the kit is: a clone of its repository, or, in an installed package, the part that setup.py
copies there. Imports only the standard library.
"""

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[0]
IS_INSTALLED = (PACKAGE / "kit").is_dir()
ROOT = PACKAGE / "kit" if IS_INSTALLED else PACKAGE.parent
# where figures go unless SPECLAB_OUT names a folder, and runs unless SPECLAB_RUNS does; a package's
# folder may be read-only
OUT = Path() if IS_INSTALLED else ROOT
RUNS = Path("speclab-runs") if IS_INSTALLED else ROOT / "data" / "runs"


def folder_of(variable: str) -> Path | None:
    """The folder that an environment variable names, with `~` for the user's home; else None."""
    named = os.environ.get(variable)
    return Path(os.path.expanduser(named)) if named else None
