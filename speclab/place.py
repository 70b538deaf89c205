"""Where the kit is: a clone of its repository, or, in an installed package, the part that setup.py
copies there. Imports only the standard library.
"""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
IS_INSTALLED = (PACKAGE / "kit").is_dir()
ROOT = PACKAGE / "kit" if IS_INSTALLED else PACKAGE.parent
# where runs are recorded unless SPECLAB_RUNS names a folder; a package's folder may be read-only
RUNS = Path("speclab-runs") if IS_INSTALLED else ROOT / "data" / "runs"
