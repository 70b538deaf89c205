"""What pyproject.toml cannot say: an installed package has a part of the repository in speclab/kit
(see speclab/place.py), so that verbs which need no notebook need no clone, and a notebook
that is opened beside a study of one's own finds what it reads.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

KIT = (
    *("notebooks/profiles", "data/prompts", "data/second_prompts", "data/training_prompts"),
    *("data/atlas", "data/coverage", "data/logs", "data/paper"),
    "data/traces/smollm/greedy",  # which README's eight lines read
)


class WithKit(build_py):
    """Also copies KIT and pyproject.toml, but not for an editable install, which is a clone."""

    def run(self):
        super().run()
        if self.editable_mode:
            return
        kit = Path(self.build_lib, "speclab", "kit")
        for folder in KIT:
            shutil.copytree(folder, kit / folder, dirs_exist_ok=True)
        shutil.copy("pyproject.toml", kit)


setup(cmdclass={"build_py": WithKit})
