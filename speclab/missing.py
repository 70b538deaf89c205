"""What is said where a package is missing. Needs Python alone: whatever else is imported here could
be what is missing.
"""

import platform


def line(error: ImportError) -> str:
    """What to do about an import that failed, in one line."""
    return (
        f"{error}; Python 3.11 to 3.13 with the packages of requirements.lock is needed, and this "
        f"is Python {platform.python_version()}: `make env` installs them, "
        "then run .venv/bin/python -m speclab"
    )
