"""What `python -m speclab log` prints about a log: its size, tokens per target pass, what it lacks,
and what to do next.
"""

import re
import shlex
from pathlib import Path

import pandas as pd

from speclab import stats
from speclab.estimates import Estimates, cell, counted
from speclab.lab.choose import choose_for_all
from speclab.logs.log_gammas import PER_PASS
from speclab.logs.logs import Log
from speclab.logs.readers import LINES, REQUESTS, SETTINGS
from speclab.score import ALL, POOLED
from speclab.stats import RESAMPLES, by_domain

EVERY = "all requests"
# what the intervals of a log, with its {level} in per cent, are about
INTERVALS = {
    REQUESTS: "Tokens per target pass, with {level:g} % intervals over requests:",
    LINES: "Tokens per target pass with a draft. The {level:g} % intervals are over blocks of "
    "neighbouring lines, which are not requests:",
    SETTINGS: "Tokens per target pass of each setting, without intervals:",
}
NO_ORDER = (
    "The log has no order of the passes. It decides acceptance by depth, and bounds for another "
    "gamma where the lengths of the drafts are known. It says nothing along an answer."
)
TOTALS = "The log has totals only, so nothing is known by depth."
NO_LENGTHS = "The log does not say how long the drafts were; name it with --drafted."


def summary_lines(log: Log, folder: Path) -> list[str]:
    """The summary of a log that was saved in `folder`."""
    lines = [f"{folder} holds a log in the format {log.format}: {size_of(log)}."]
    if log.drafts:
        lines.append(f"It says what drafted: {log.drafts}.")
    lines += [*log.notes, INTERVALS[log.about].format(level=100 * stats.LEVEL)]
    counts = log.sums.groupby("domain")[["accepted", "drafted"]].sum()
    counts.loc[EVERY] = counts.sum()
    # fewer resamples for very many requests, so that the weights fit into memory
    n = min(RESAMPLES, max(10_000_000 // log.requests, 100))
    rows = tokens_per_pass(log.sums, n).frame
    if log.about == SETTINGS:
        rows = rows.head(-1)
    elif len(rows) == 2:  # of one domain only EVERY
        rows = rows.tail(1)
    for row in rows.itertuples():
        number = cell(row.estimate, row.low, row.high, 2)
        accepted, drafted = counts.loc[row.domain]
        share = f"; {accepted:,.0f} of {drafted:,.0f} drafted tokens accepted" if drafted else ""
        lines.append(f"  {row.domain}: {number} ({counted(row.n_prompts, log.about)}{share})")
    if log.passes is None:
        lines.append(TOTALS)
    elif "blocks" in log.passes:
        lines.append(NO_ORDER)
    elif log.passes["drafted"].isna().any():
        lines.append(NO_LENGTHS)
    place, page = shlex.quote(f"log={folder.resolve()}"), shlex.quote(f"{folder}-page")
    # the page is named after the log, and not after a pair
    name = re.sub(r"[^A-Za-z0-9._-]", "-", folder.resolve().name).lstrip("._-")[:60] or "log"
    study = f"python -m speclab reproduce --notebook 14_your_log --set name={name} --set "
    study += f"'description=The log {name}.' --parameter {place} --out {page}"
    return [*lines, f"To study the log, run `{study}`."]


def size_of(log: Log) -> str:
    """The size of a log, in words. SGLang's text counts no passes."""
    size, blocks = counted(log.requests, log.about), int(log.sums["blocks"].sum())
    weight = "running request" if log.format == "sglang-log" else "target pass"
    return size if log.about == SETTINGS else f"{size}, {counted(blocks, weight)}"


def tokens_per_pass(sums: pd.DataFrame, n: int = RESAMPLES) -> Estimates:
    """Tokens per target pass of each domain, then of all requests (EVERY), from n resamples."""
    of_domains = by_domain(sums, PER_PASS, n).frame
    of_domains = of_domains[~of_domains["domain"].isin([ALL, POOLED])]
    of_all = by_domain(choose_for_all(sums), PER_PASS, n).frame
    row = of_all[of_all["domain"] == POOLED].assign(domain=EVERY)
    table = pd.concat([of_domains, row], ignore_index=True)
    return Estimates(table.assign(estimator="tokens per target pass"))
