"""The pairs side by side: which runs are read of which, with a loader that only notes it."""

from types import SimpleNamespace

import pandas as pd
import pytest

from speclab import runs
from speclab.profiles import ROOT, load_profile
from speclab.studies.paper_audit import side

KINDS = ["greedy", "balanced", "sampled", *side.WARMER.values(), *side.SEEDS]


@pytest.fixture
def loaded(monkeypatch):
    """What was asked for: (profile's name, kind, temperature, prompts), in order."""
    asked = []

    def note(profile, kind):
        prompts = profile.prompts_per_domain
        asked.append((profile.name, kind, profile.temperature, prompts))
        return f"{profile.name} {kind}"

    monkeypatch.setattr(side.runs, "load_or_record", note)
    return asked


def test_each_run_of_a_pair_is_in_its_place(loaded):
    pair = side.runs_of(load_profile("tiny"))
    assert (pair.greedy, pair.balanced) == ("tiny greedy", "tiny balanced")
    assert [kind for _, kind, _, _ in loaded] == KINDS


def test_the_profiles_own_pair_comes_first_and_once(loaded):
    pairs = side.of_pairs(load_profile("smollm"), ["tiny", "smollm", "tiny"])
    assert list(pairs) == ["smollm", "tiny"]
    assert len(loaded) == 2 * len(KINDS)
    assert list(side.of_pairs(load_profile("tiny"))) == ["tiny"]


def test_the_smallest_domain_counts():
    trace = pd.DataFrame(
        {"domain": ["chat", "chat", "math"], "prompt_id": ["a", "b", "c"]}
    )
    both = pd.concat([trace, trace])
    pairs = {"made": SimpleNamespace(greedy=SimpleNamespace(trace=both))}
    assert side.smallest_domains(pairs) == {"made": 1}


def test_what_stands_beside_is_read_from_what_the_kit_ships(monkeypatch, tmp_path):
    monkeypatch.setattr(runs, "RUNS", tmp_path)
    monkeypatch.setattr(runs, "record_run", lambda *_, **__: pytest.fail("recorded"))
    pairs = side.of_pairs(load_profile("smollm"), ["tiny"])
    for name, pair in pairs.items():
        read = [pair.greedy, pair.balanced, pair.sampled, *pair.warmer.values()]
        for run in [*read, *pair.seeds]:
            assert run.folder.parent == ROOT / "data" / "traces" / name
            assert run.trace["prompt_id"].nunique() == 200
