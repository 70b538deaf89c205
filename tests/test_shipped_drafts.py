"""The drafts that come with the kit are those that notebook 08 asks for, whole, and count as its
input; `train` makes others.
"""

import dataclasses
import shutil
from types import SimpleNamespace

import pytest
from test_faults import turned

from data.drafts import prepare
from speclab.drafts import distil
from speclab.drafts.distil import SHIPPED
from speclab.ops import reproduce
from speclab.profiles import ROOT, load_profile
from speclab.runs import Damaged
from speclab.studies.better_drafts import candidates


@pytest.fixture(scope="module")
def profile():
    return load_profile("tiny", {"device": "cpu"}).replace(temperature=0.0)


@pytest.fixture
def no_text(monkeypatch):
    """No text is written, nothing trained."""
    monkeypatch.setattr("speclab.drafts.texts.generate", None)
    monkeypatch.setattr(distil, "optimise", None)


def tried_of(pair, profile):
    """`candidates.Tried` that only lists what is tried."""
    added = []
    return SimpleNamespace(pair=pair, profile=profile, added=added, add=added.append)


def test_the_notebooks_defaults_find_all_of_them(tiny_pair, profile, no_text):
    tried = tried_of(tiny_pair, profile)
    trained = candidates.trained_drafts(tried, prepare.asked(tiny_pair, profile))
    made = [one for family in trained.values() for one in family.values()]
    assert len(made) == len(tried.added) == 9
    assert {one.folder for one in made} == {
        p.parent for p in SHIPPED.glob("tiny/*/*.safetensors")
    }
    assert all(prepare.checked(one).facts["tokens"] > 20_000 for one in made)
    assert {one.weight_bytes for one in tried.added} == {1_838_424}
    card = (SHIPPED / "README.md").read_text(encoding="utf-8")
    assert prepare.card_table(made) in card, "python -m data.drafts.prepare"


def test_what_does_not_come_with_the_kit_is_left_out_or_trained(
    tiny_pair, profile, no_text, monkeypatch
):
    one = prepare.asked(tiny_pair, profile)[0]
    other = [one._replace(config=dataclasses.replace(one.config, steps=7))]
    tried = tried_of(tiny_pair, profile)
    assert candidates.trained_drafts(tried, other) == {} and not tried.added
    seen, asked = [], (one.text, one.objective, one.config)
    there = distil.shipped_draft(*asked, one.name)
    monkeypatch.setattr(
        distil, "distil", lambda *asked, **options: seen.append(asked) or there
    )
    candidates.trained_drafts(tried, [one], train=True)
    assert seen[0][2] == one.config, "trained, although it comes with the kit"


def test_a_damaged_one_is_refused_and_says_where_to_take_it(
    tiny_pair, profile, no_text, tmp_path
):
    one = prepare.asked(tiny_pair, profile)[0]
    asked = one.text, one.objective, one.config
    whole = distil.shipped_draft(*asked, one.name).folder
    copied = tmp_path / "drafts" / "tiny" / whole.name
    shutil.copytree(whole, copied)
    weights = copied / "model.safetensors"
    weights.write_bytes(turned(weights.read_bytes(), -1))
    with pytest.raises(Damaged, match=r"git checkout"):
        distil.shipped_draft(*asked, one.name, tmp_path / "drafts")


def test_they_are_an_input_of_notebook_08():
    def named(notebook):
        code = reproduce.notebook_of(ROOT / "notebooks" / f"{notebook}.ipynb", {}).code
        return SHIPPED in reproduce.data_named(code.values())

    assert named("08_better_drafts") and not named("00_by_hand")
