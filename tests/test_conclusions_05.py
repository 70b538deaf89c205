"""What notebook 05 concludes: a sentence for every verdict, means of the same domains."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
from cells import run_cells, set_of
from sklearn.metrics import roc_auc_score

from speclab import score, stats
from speclab.estimates import Estimates
from speclab.lab.prompt_sets import OWN
from speclab.show import notebook


def answer_of(own, other, name="b"):
    """The answer at these AUCs with their intervals."""
    rows = [(OWN, *own), (name, *other)]
    table = pd.DataFrame(rows, columns=["set", "estimate", "low", "high"]).assign(domain="all")
    sets = {each: set_of(None, name=each) for each in (OWN, name)}
    whole, elsewhere = list(sets), Estimates(table)
    names = run_cells("05", "ANSWERS =", "ANSWERS =", sets=sets, whole=whole, elsewhere=elsewhere)
    [answer] = names["answers"]
    assert notebook.too_long(answer) == ""
    return answer


def test_a_sentence_for_every_verdict():
    high, low, open_ = (0.8, 0.7, 0.9), (0.3, 0.2, 0.4), (0.55, 0.45, 0.65)
    assert answer_of(high, high).endswith("80 times in 100, on the set b 80.")
    assert answer_of(high, open_).endswith("on the set b 55 (not clear).")
    assert answer_of(low, high).startswith("Yes, but the wrong way round.")
    assert answer_of(open_, high).startswith("It is not clear.")
    assert answer_of((0.8, np.nan, np.nan), high).startswith("It cannot be said here. Of")
    assert answer_of((np.nan,) * 3, high) == "It cannot be said here."


def rows_of(*domains):
    """Six texts per domain, in which the signals rank all positions right."""
    texts = [
        (f"{domain}{i}", domain, hit) for domain in domains for i in range(6) for hit in (0, 1)
    ]
    rows = pd.DataFrame(texts, columns=["prompt_id", "domain", "hit"])
    signals = ("confidence", "draft_certainty", "target_certainty")
    return rows.assign(**dict.fromkeys(signals, rows["hit"]))


def test_a_set_that_lacks_a_domain_has_no_mean_of_the_domains():
    few = rows_of("a")
    sets = {OWN: set_of(rows_of("a", "b"), "a", "b"), "few": set_of(few, "a")}
    sets |= {"other": set_of(rows_of("c"), "c"), "same": set_of(rows_of("a", "b"), "a", "b")}
    sets["part"] = set_of(rows_of("a", "b"), "a", "b", is_part=True)
    prompts = SimpleNamespace(OWN=OWN, described=lambda *_, **__: "", read=lambda *_: sets)
    options = {"prompt_sets": prompts, "domains": ["a", "b"], "greedy": None}
    signals = SimpleNamespace(signals=lambda rows: rows)
    options |= {"bins": signals, "roc_auc_score": roc_auc_score, "positions": rows_of("a", "b")}
    names = run_cells("05", "def pairs_in_texts", "def pairs_in_texts", **options)
    names = run_cells("05", "prompt_sets.read(", "prompt_sets.read(", **names)
    found = names["elsewhere"].frame.groupby("set")["domain"].agg(list).to_dict()
    every = ["a", "b", "all"]
    assert found == {OWN: every, "few": ["a"], "same": every, "part": ["a", "b"]}
    assert names["whole"] == [OWN, "same"]
    # the negative control: the table itself has a mean, of one domain
    table = stats.by_domain(names["pairs_in_texts"](few), score.ratio_of("confidence", "pairs"))
    assert "all" in [*table.frame["domain"]]
