"""Where the kit stands, by the standard library alone: a clone of its repository, or, in an
installed package, the part of it that setup.py copies there.
"""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
IS_INSTALLED = (PACKAGE / "kit").is_dir()
ROOT = PACKAGE / "kit" if IS_INSTALLED else PACKAGE.parent
# where runs are recorded unless SPECLAB_RUNS names a folder; a package's own may not be writable
RUNS = Path("speclab-runs") if IS_INSTALLED else ROOT / "data" / "runs"
