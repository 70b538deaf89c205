"""What `python -m speclab log A B` prints: two logs of the same prompts, paired by prompt."""

from collections.abc import Mapping

from speclab import score, stats
from speclab.estimates import cell, counted
from speclab.logs import passes
from speclab.logs.log_gammas import PER_PASS, own_gamma
from speclab.logs.log_summary import EVERY, TOTALS
from speclab.logs.logs import Log
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
    sums = {name: log.sums.set_index("prompt_id") for name, log in logs.items()}
    shared = sums[first].index.intersection(sums[second].index)
    if shared.empty or {log.about for log in logs.values()} != {REQUESTS}:
        raise ValueError(
            f"{first} and {second} have no request of the same name; give the requests of both the "
            "same prompt_id"
        )
    # every number of both logs from the same resampled prompts; 0: tokens per target pass
    depths = [0 if log.passes is None else log.passes["accepted"].max() for log in logs.values()]
    asked = range(1 + min(DEEPEST, *depths))
    questions = {}
    for name, log in logs.items():
        for depth in asked:
            frame = passes.depth_counts(log.passes, depth) if depth else log.sums
            kept = frame[frame["prompt_id"].isin(shared)].assign(domain=EVERY)
            questions[name, depth] = kept, ACCEPTED if depth else PER_PASS
    draws = stats.jointly(questions, same=False)
    lines = [f"{counted(len(shared), 'prompt')} of both logs: {first}, {second}, difference."]
    for depth in asked:
        one, other = (draws[name, depth][POOLED] for name in logs)
        row = draws.table({depth: other - one}).frame.iloc[0]
        what = (
            f"accepted at depth {depth}, if all above were" if depth else "tokens per target pass"
        )
        difference = cell(row.estimate, row.low, row.high, 2)
        lines.append(f"  {what}: {one[0]:.2f}, {other[0]:.2f}, {difference}")
    lines += [TOTALS] * (len(asked) == 1)
    # by prompt
    counts = [sums[name].loc[shared] for name in logs]
    tokens = [table["emitted"] / table["blocks"] for table in counts]
    gain = tokens[1] - tokens[0]
    far = gain.abs().idxmax()
    lines.append(
        f"{second} has more for {(gain > 0).sum()} prompts and less for {(gain < 0).sum()}. The "
        f"largest difference is {far!r}: {tokens[0][far]:.2f}, {tokens[1][far]:.2f}."
    )
    for column, what in {"emitted": "answers", "context": "prompts"}.items():
        different = ((counts[1][column] - counts[0][column]).abs() > 0).sum()
        lines.append(f"The {what} differ in length for {counted(different, 'prompt')}.")
    # the settings that a log shows
    lengths = [log.passes is not None and own_gamma(log.passes) for log in logs.values()]
    drafted = [f"{length} tokens per draft" if length else "no fixed draft" for length in lengths]
    said = [f"{log.format}, {one}" for log, one in zip(logs.values(), drafted, strict=True)]
    return [*lines, f"Settings: {'; '.join(said)}."]
