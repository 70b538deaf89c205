"""What `python -m speclab log` prints about a log: its size, tokens per target pass, what it lacks,
and what to do next.
"""

import shlex
from pathlib import Path

import pandas as pd

from speclab.analysis import logs
from speclab.analysis.choose import of_all_prompts
from speclab.analysis.logs import Log
from speclab.estimates import counted
from speclab.score import POOLED, block_estimators, domains_in
from speclab.stats import by_domain, cell

ALL_REQUESTS = "all requests"


def summary_lines(log: Log, folder: Path) -> list[str]:
    """The summary of a log that was saved in `folder`."""
    blocks = int(log.sums["blocks"].sum())
    size = f"{counted(log.requests, 'request')}, {counted(blocks, 'target pass')}"
    lines = [f"{folder} holds a log in the format {log.format}: {size}."]
    if log.left_out:
        answers = counted(log.left_out, "answer")
        lines.append(f"{answers} took no target pass (one token at most): left out.")
    lines.append("Tokens per target pass, with 95 % intervals over requests:")
    lines += [f"  {row}" for row in tokens_per_pass(log)]
    if log.passes is None:
        lines.append("The log has totals per request only, so nothing is known by depth.")
    elif log.passes["drafted"].isna().any():
        lines.append("The log does not say how long the drafts were; name it with --drafted.")
    place, page = shlex.quote(f"log={folder.resolve()}"), shlex.quote(f"{folder}-page")
    study = f"python -m speclab reproduce --notebook 16 --parameter {place} --out {page}"
    return [*lines, f"To study the log, run `{study}`."]


def tokens_per_pass(log: Log) -> list[str]:
    """A line for each domain if there are several, and one for all requests."""
    sums = log.sums
    domains = domains_in(sums)
    by_name = _estimates(log, sums).set_index("domain")
    lines = [_line(name, by_name.loc[name]) for name in domains if len(domains) > 1]
    together = _estimates(log, of_all_prompts(sums)).set_index("domain")
    return [*lines, _line(ALL_REQUESTS, together.loc[POOLED])]


def _estimates(log: Log, sums: pd.DataFrame) -> pd.DataFrame:
    """Tokens per target pass with intervals, from per-prompt sums."""
    return by_domain(sums, block_estimators()["block_efficiency"], logs.resamples(log))


def _line(name: str, row: pd.Series) -> str:
    """A number with its interval and its requests."""
    number = cell(row["estimate"], row["low"], row["high"], 2)
    return f"{name}: {number} ({counted(row['n_prompts'], 'request')})"
