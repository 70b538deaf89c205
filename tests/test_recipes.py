"""Every recipe of notebooks/RECIPES.md runs as it stands."""

import re
from unittest.mock import patch

import pytest

from speclab import verify
from speclab.study.profiles import ROOT

PAGE = (ROOT / "notebooks" / "RECIPES.md").read_text(encoding="utf-8")
RECIPES = re.findall(r"^## \d\. (.*?)$.*?```python\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)
# what each prints
PRINTED = {
    "Decode": r"\n\d\.\d tokens per target pass",
    "An estimator": r"code \d\.\d+ \[\d\.\d+, \d\.\d+\]",
    "A tree": r"code \d\.\d+ \[.*math",
    "A rule": r"point-mass: 0\.00\ntypical: 0\.\d+\nconfident: 0\.[1-9]",
    "Two drafts": r"code −?\d\.\d+ \[.*all −?\d",
}


def test_the_page_has_no_other_code():
    assert len(RECIPES) == PAGE.count("```") / 2 == len(PRINTED)


@pytest.mark.parametrize(("title", "code"), RECIPES)
def test_a_recipe_runs(title, code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").symlink_to(ROOT / "data")
    with patch.dict(verify.RULES):
        exec(compile(code, title, "exec"), {"__name__": "recipe"})
    [words] = [PRINTED[begin] for begin in PRINTED if title.startswith(begin)]
    assert re.search(words, capsys.readouterr().out, re.DOTALL)
