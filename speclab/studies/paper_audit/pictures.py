"""The picture of the audit: data of a few claims that are drawn large."""

from collections.abc import Mapping
from itertools import chain

import pandas as pd

from speclab.analysis.claims import KEYS, SIGNS, Claim
from speclab.analysis.published import published
from speclab.stats import NUMBERS


def printed() -> pd.DataFrame:
    """The paper's own numbers of its claims, as printed or their differences: claim, row,
    estimate.
    """
    alpha = published("I").query("quantity == 'alpha_mean' and domain != 'all'")
    alpha = alpha.set_index("domain")["published"]
    length = published("II").set_index("domain")["published"]
    depth = published("IV").pivot(index="domain", columns="depth", values="published")
    rho = published("VI").set_index("domain")["published"]
    numbers = {
        "level": alpha,
        "gap": pd.Series({"chat - math": alpha["chat"] - alpha["math"]}),
        "length": length,
        "depth": depth[3] - depth[1],
        "entropy-sign": rho,
    }
    rows = pd.concat(numbers, names=["claim", "row"])
    return rows.rename("estimate").reset_index()


def large(evidence: pd.DataFrame, verdicts: pd.DataFrame) -> pd.DataFrame:
    """The paper's own numbers (`printed`), and those of each pair and way to measure: claim, line
    (whose number it is, with the verdict's sign), row, estimate, low, high.
    """
    measured = evidence.merge(verdicts[[*KEYS, "verdict"]], on=KEYS)
    signs = measured["verdict"].map(SIGNS)
    line = measured["pair"] + ", " + measured["asked"] + " " + signs
    rows = pd.concat([printed().assign(line="the paper"), measured.assign(line=line)])
    return rows[["claim", "line", "row", *NUMBERS]].reset_index(drop=True)


def regions(listed: Mapping[str, Claim]) -> dict[str, tuple[bool, list[float | None]]]:
    """By claim, whether it holds in one region for all rows, and the edges of its regions."""
    found = {}
    for name, claim in listed.items():
        region = claim.region
        is_one = not isinstance(region, Mapping)
        edges = region if is_one else chain(*region.values())
        found[name] = is_one, list(edges)
    return found
