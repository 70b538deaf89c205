"""What `python -m speclab log A B` prints: two logs of the same prompts, paired by prompt."""

from collections.abc import Mapping
from typing import Any

from speclab import score, stats
from speclab.estimates import cell
from speclab.logs.log_gammas import PER_PASS, own_gamma
from speclab.logs.log_summary import EVERY
from speclab.logs.logs import Log
from speclab.logs.passes import depth_counts
from speclab.logs.readers import REQUESTS
from speclab.score import POOLED

DEEPEST = 8  # the deepest depth that is compared
ACCEPTED = score.ratio_of("accepted", "reached", "acceptance")


def compared_lines(logs: Mapping[str, Log]) -> list[str]:
    """Both logs' tokens per target pass and acceptance by depth with the differences' intervals,
    over the prompts that both have; what differs by prompt, and in the settings. ValueError if the
    logs share no prompt.
    """
    first, second = logs
    sums = [log.sums.set_index("prompt_id") for log in logs.values()]
    shared = sums[0].index.intersection(sums[1].index)
    if shared.empty or {log.about for log in logs.values()} != {REQUESTS}:
        raise ValueError(
            f"{first} and {second} have no request of the same name; give the requests of both the "
            "same prompt_id"
        )
    lines = [f"{len(shared):,} prompts are in both logs: {first}, {second}, difference."]
    # a number of both logs from the same resampled prompts
    for depth in range(DEEPEST + 1):
        what, estimator = f"accepted at depth {depth}, if all above were", ACCEPTED
        frames: list[Any] = [log.passes for log in logs.values()]
        if depth == 0:
            what, estimator = "tokens per target pass", PER_PASS
            frames = [log.sums for log in logs.values()]
        elif any(frame is None or frame["accepted"].max() < depth for frame in frames):
            break
        else:
            frames = [depth_counts(frame, depth) for frame in frames]
        kept = [frame[frame["prompt_id"].isin(shared)].assign(domain=EVERY) for frame in frames]
        draws = stats.jointly(dict(enumerate(zip(kept, [estimator] * 2, strict=True))), same=False)
        one, other = draws[0][POOLED], draws[1][POOLED]
        row = draws.table({what: other - one}).frame.iloc[0]
        difference = cell(row.estimate, row.low, row.high, 2)
        lines.append(f"  {what}: {one[0]:.2f}, {other[0]:.2f}, {difference}")
    # by prompt
    tokens, others = (table["emitted"] / table["blocks"] for table in sums)
    gain = (others - tokens)[shared]
    far = gain.abs().idxmax()
    lines.append(
        f"{second} has more in {(gain > 0).sum()} prompts and less in {(gain < 0).sum()}. They "
        f"differ most in {far!r}: {tokens[far]:.2f}, {others[far]:.2f}."
    )
    for column, what in {"emitted": "answer", "context": "prompt"}.items():
        different = (sums[1][column] - sums[0][column])[shared].fillna(0) != 0
        lines.append(f"The length of the {what} differs in {different.sum()} prompts.")
    # the settings that a log shows
    for name, log in logs.items():
        length = log.passes is not None and own_gamma(log.passes)
        lines.append(f"{name}: format {log.format}, tokens per draft: {length or 'unknown'}")
    return lines
