"""What is published of `tiny`, computed again from the recorded files by loops over plain pandas,
without anything of speclab: hit, alpha, tokens per target pass, contrasts, intervals, verdicts.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[1]
TRACES, GOLDEN = ROOT / "data/traces/tiny", ROOT / "tests/golden"
DOMAINS = ("code", "math", "reasoning", "chat")
SAMPLED = ("sampled", "sampled-seed-1", "sampled-seed-2")


def trace(kind="greedy"):
    """The positions of a run, texts in order, with `hit`."""
    rows = pd.read_parquet(TRACES / kind / "trace.parquet").sort_values(["prompt_id", "position"])
    return rows.assign(hit=rows["draft_rank"] == 0)


def texts(rows):
    """(prompt_id, domain, rows) of each text."""
    for (name, domain), own in rows.groupby(["prompt_id", "domain"], sort=False):
        yield name, domain, own


def golden(table, **where):
    """The committed numbers of a table, rows with these values only."""
    rows = pd.read_csv(GOLDEN / f"{table}.csv")
    for column, value in where.items():
        rows = rows[rows[column] == value]
    assert len(rows)
    return rows


def check(found, rows):
    """That the estimates by domain are those of the table."""
    found, expected = dict(found), rows.set_index("domain")["estimate"]
    assert {*found} <= {*expected.index}
    for domain, value in found.items():
        assert value == pytest.approx(expected[domain], rel=1e-6), domain


def blocks_of(hits, gamma):
    """(start, drafted tokens accepted, tokens emitted) of each block of a greedy chain decoder."""
    start, found = 0, []
    while start < len(hits):
        accepted = 0
        while accepted < gamma and start + accepted < len(hits) and hits[start + accepted]:
            accepted += 1
        emitted = min(accepted + 1, len(hits) - start)
        found.append((start, accepted, emitted))
        start += emitted
    return found


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("greedy", "own prompts"),
        ("unwrapped", "without wrapper"),
        ("second", "second prompt set"),
    ],
)
def test_best_token_accepted(kind, name):
    found = trace(kind).groupby("domain")["hit"].mean()
    rows = golden("03/sets", set=name, estimator="hit[1]")
    check({domain: found[domain] for domain in rows["domain"] if domain in DOMAINS}, rows)


def test_sampled_token_accepted():
    """The overlap of both distributions, over the texts of three seeds."""
    rows = pd.concat(map(trace, SAMPLED))
    check(rows.groupby("domain")["overlap"].mean(), golden("03/ladder", name="alpha"))
    for kind, name in zip(SAMPLED, ("seed 42", "seed 1", "seed 2"), strict=True):
        mean = trace(kind).groupby("domain")["overlap"].mean()[[*DOMAINS]].mean()
        check({"all": mean}, golden("12/seeds", texts=name))


@pytest.mark.parametrize("gamma", [1, 3, 8])
def test_tokens_per_pass_of_a_chain(gamma):
    emitted = {domain: [] for domain in DOMAINS}
    for _, domain, own in texts(trace()):
        emitted[domain] += [n for *_, n in blocks_of(own["hit"].to_numpy(), gamma)]
    found = {domain: np.mean(numbers) for domain, numbers in emitted.items()}
    check(found, golden("02/block-efficiency", temperature="T = 0", gamma=gamma))


def test_tokens_per_pass_of_the_tree():
    """A walk through the recorded nodes: from the root to the child that has the text's token."""
    nodes = pd.read_parquet(TRACES / "greedy/nodes.parquet")
    nodes = dict(list(nodes.groupby(["prompt_id", "position"])))
    emitted = {domain: [] for domain in DOMAINS}
    for name, domain, own in texts(trace()):
        tokens, start = own["token"].to_numpy(), 0
        while start < len(tokens):
            drafted, node, place = nodes[name, start], 0, start
            while place < len(tokens):
                of_parent = drafted[drafted["parent"] == node]
                child = of_parent[of_parent["token"] == tokens[place]]
                if child.empty:
                    break
                node, place = child["node"].item(), place + 1
            emitted[domain].append(min(place + 1, len(tokens)) - start)
            start += emitted[domain][-1]
    found = {domain: np.mean(numbers) for domain, numbers in emitted.items()}
    check(found, golden("03/ladder", name="block_efficiency"))


def test_acceptance_by_depth():
    """Of the blocks of a chain of three that came so far, and that no text's end cut short."""
    counts = {(domain, depth): [0, 0] for domain in DOMAINS for depth in (1, 2, 3)}
    for _, domain, own in texts(trace()):
        for start, accepted, _ in blocks_of(own["hit"].to_numpy(), 3):
            for depth in (1, 2, 3):
                if accepted >= depth - 1 and start + 3 < len(own):
                    counts[domain, depth][0] += accepted >= depth
                    counts[domain, depth][1] += 1
    rates = {key: right / of for key, (right, of) in counts.items()}
    for step, (low, high) in {"1 to 2": (1, 2), "2 to 3": (2, 3), "1 to 3": (1, 3)}.items():
        changes = {domain: rates[domain, high] - rates[domain, low] for domain in DOMAINS}
        rows = golden("04/steps", set="own prompts", step=step)
        check(changes | {"all": np.mean([*changes.values()])}, rows)


def test_the_draft_is_surer_of_accepted_tokens():
    """Every pair of an accepted and a rejected token of one text; ties count half."""
    surer = {domain: [] for domain in DOMAINS}
    for _, domain, own in texts(trace()):
        sure = own["top_draft_q"].map(max).to_numpy()
        for right in sure[own["hit"]]:
            wrong = sure[~own["hit"]]
            surer[domain] += [*((right > wrong) + (right == wrong) / 2)]
    found = {domain: np.mean(pairs) for domain, pairs in surer.items()}
    check(found, golden("05/auc", signal="draft's confidence"))


def contrasts():
    """Chat minus the mean of the others, and math minus chat, of `hit`; for some prompts."""
    of_prompts = trace().groupby(["domain", "prompt_id"])["hit"].agg(["sum", "size"])

    def of(drawn):
        sums = pd.DataFrame({domain: drawn(of_prompts.loc[domain]).sum() for domain in DOMAINS})
        level = sums.loc["sum"] / sums.loc["size"]
        others = level.drop("chat").mean()
        return level["chat"] - others, level["math"] - level["chat"]

    return of


def test_contrasts_and_their_intervals():
    """The estimates are equal. Intervals of other resamples, at the quantiles that notebook 12
    explains (50 prompts per domain), agree within a tenth of their width, and so do verdicts.
    """
    of, rng = contrasts(), np.random.default_rng(7)
    tables = [
        golden("06/contrasts", name="hit minus the mean of the others").iloc[0],
        golden("03/spreads", set="own prompts", name="math minus chat").iloc[0],
    ]
    draws = np.array(
        [of(lambda own: own.sample(frac=1, replace=True, random_state=rng)) for _ in range(1000)]
    )
    for row, estimate, values in zip(tables, of(lambda own: own), draws.T, strict=True):
        assert estimate == pytest.approx(row["estimate"], rel=1e-6)
        low, high = np.quantile(values, [0.022, 0.978])
        room = (row["high"] - row["low"]) / 10
        assert (low, high) == pytest.approx((row["low"], row["high"]), abs=room)
        assert np.sign(low) == np.sign(high) == np.sign(row["estimate"]), "both are clear"


def test_verdicts_follow_from_the_evidence():
    """A claim holds only where every interval lies in its region, and fails only where an interval
    and its region have nothing in common.
    """
    keys = ["claim", "pair", "prompts"]
    verdicts = pd.read_csv(GOLDEN / "11/verdicts.csv").set_index(keys)["verdict"]
    seen = []
    for key, own in pd.read_csv(GOLDEN / "11/evidence.csv").groupby(keys):
        inside = (own["least"] <= own["low"]) & (own["high"] <= own["most"])
        outside = (own["high"] < own["least"]) | (own["low"] > own["most"])
        verdict = verdicts.get(key, "no claim")
        seen.append(verdict)
        if verdict in ("holds", "agrees"):
            assert inside.all(), key
        elif verdict in ("fails", "differs", "defect"):
            assert outside.any(), key
        elif verdict == "inconclusive":
            assert not inside.all(), key
    assert {"holds", "fails", "inconclusive"} <= {*seen}
