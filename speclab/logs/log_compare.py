"""What `python -m speclab log A B` prints: two logs of the same prompts, paired by prompt."""

from collections.abc import Mapping

from speclab import stats
from speclab.estimates import cell
from speclab.logs.log_gammas import PER_PASS, own_gamma
from speclab.logs.log_summary import EVERY
from speclab.logs.logs import Log
from speclab.logs.passes import depth_counts
from speclab.logs.why import SHARE
from speclab.score import POOLED

DEEPEST = 8  # the deepest depth that is compared


def compared_lines(logs: Mapping[str, Log]) -> list[str]:
    """Both logs' tokens per target pass and acceptance by depth with the differences' intervals,
    over the prompts that both have; what differs by prompt, and in the settings. ValueError if the
    logs share no prompt.
    """
    first, second = logs
    one, other = (log.sums for log in logs.values())
    table = one.merge(other, on="prompt_id").set_index("prompt_id")  # columns end in _x and _y
    if not all(log.has_names for log in logs.values()):
        raise ValueError(
            f"{first} and {second} are compared by the names of their requests, and the text of a "
            "server has none; compare the responses that the servers sent (JSON), or read each log "
            "with --out and compare the summaries"
        )
    if table.empty:
        raise ValueError(
            f"{first} and {second} have no request of the same name; give the requests of both the "
            "same prompt_id"
        )
    lines = [f"{len(table):,} prompts are in both logs: {first}, {second}, difference."]
    # each number of both logs from the same resampled prompts
    known = [0 if log.passes is None else log.passes["accepted"].max() for log in logs.values()]
    for depth in range(min(DEEPEST, *known) + 1):
        what, questions = f"accepted at depth {depth}, if all above were", {}
        for name, log in logs.items():
            frame, estimator = log.sums, PER_PASS
            if depth:
                frame, estimator = depth_counts(log.passes, depth), SHARE
            is_shared = frame["prompt_id"].isin(table.index)
            questions[name] = frame[is_shared].assign(domain=EVERY), estimator
        draws = stats.jointly(questions, same=False)
        before, after = draws[first][POOLED], draws[second][POOLED]
        row = draws.table({what: after - before}).frame.iloc[0]
        difference = cell(row.estimate, row.low, row.high, 2)
        what = what if depth else "tokens per target pass"
        lines.append(f"  {what}: {before[0]:.2f}, {after[0]:.2f}, {difference}")
    # by prompt
    tokens, others = (table[f"emitted{end}"] / table[f"blocks{end}"] for end in ("_x", "_y"))
    gain = others - tokens
    far = gain.abs().idxmax()
    lines.append(
        f"{second} has more in {(gain > 0).sum()} prompts and less in {(gain < 0).sum()}. They "
        f"differ most in {far!r}: {tokens[far]:.2f}, {others[far]:.2f}."
    )
    for column, what in {"emitted": "answer", "context": "prompt"}.items():
        longer = table[f"{column}_y"] - table[f"{column}_x"]
        lines.append(f"The length of the {what} differs in {(longer.abs() > 0).sum()} prompts.")
    # the settings that a log shows
    for name, log in logs.items():
        length = log.passes is not None and own_gamma(log.passes)
        lines.append(f"{name}: format {log.format}, tokens per draft: {length or 'unknown'}")
    return lines
