"""What is said where a package is missing. Needs Python alone: whatever else is imported here could
be what is missing.
"""

import platform

# options of `hosted install` that bring a package, where it is of no use to most users
OPTIONS = {"gptqmodel": "--gptq"} | dict.fromkeys(
    ("papermill", "jupytext", "nbconvert", "nbformat"), "--reproduce"
)


def line(error: ImportError) -> str:
    """What to do about an import that failed, in one line."""
    if option := OPTIONS.get((error.name or "").partition(".")[0]):
        return f"{error}; run `python -m speclab hosted install {option}`"
    return (
        f"{error}; Python 3.11 to 3.13 with the packages of requirements.lock is needed, and this "
        f"is Python {platform.python_version()}: `make env` installs them in .venv, "
        "`pip install -e .` in the active environment"
    )
