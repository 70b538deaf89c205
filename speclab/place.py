"""Where the kit stands, by the standard library alone: a clone of its repository, or, in an
installed package, the part of it that setup.py copies there.
"""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
IS_CLONE = (PACKAGE.parent / "notebooks" / "profiles").is_dir()
ROOT = PACKAGE.parent if IS_CLONE else PACKAGE / "kit"
# where runs are recorded unless SPECLAB_RUNS names a folder; a package's own may not be writable
RUNS = ROOT / "data" / "runs" if IS_CLONE else Path("speclab-runs")
