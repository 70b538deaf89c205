"""What notebook 16 reads from a log: tokens per target pass by domain and request, survival by
depth, drift along the log, and the gamma to try.

The unit is the request: its turns count together, and intervals resample requests. Requests are
taken to be independent of each other.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from speclab import passes, score, stats
from speclab.analysis import log_gammas, significance
from speclab.analysis.choose import PROMPT
from speclab.analysis.log_gammas import BEST, LOGGED, OPEN, PER_PASS, SLOWER, TIED, TOO_FEW
from speclab.analysis.log_summary import EVERY
from speclab.analysis.logs import UNKNOWN, Log
from speclab.cost import Costs
from speclab.estimates import WORDS, Estimates, counted, named, stack, starting, whole
from speclab.score import ALL, POOLED
from speclab.stats import MIN_PROMPTS

LEVEL = 0.05  # of Holm's adjusted p
MIX = 0.1  # from here on a change of the mix of domains is mentioned
MOST_LINES = 6  # domains in a figure with lines
MOST_DOTS = 300  # requests of a domain that are drawn
GIVEN, REACHED = "accepted, if all above were", "passes that accept this depth"
FIRST, LAST = "first third", "last third"
ENOUGH = 3 * MIN_PROMPTS  # requests of a log or a domain whose thirds are compared
VERDICTS = (BEST, OPEN, TIED, TOO_FEW, SLOWER)
ONE_GROUP = f"Fewer than two domains have {MIN_PROMPTS} requests, so no domains are compared."
TREND = ("rises", "falls", "does not change significantly")


def assumed_costs(c: float, v: Mapping[str, float]) -> Costs:
    """Costs from a draft pass over a target pass (c) and the cost of a target pass over n tokens,
    by n (v; {}: 1 for every n). ValueError: an n that is no whole number from 2.
    """
    if not v:
        return Costs.assumed(c)
    wrong = [n for n in v if not str(n).isdecimal() or int(n) < 2]
    if wrong:
        raise ValueError(f"v has n = {wrong[0]}: whole numbers from 2 are needed, and v(1) is 1")
    ratios = {1: 1.0} | {int(n): float(ratio) for n, ratio in v.items()}
    sizes = tuple(sorted(ratios))
    return Costs(1.0, sizes, (c,) * len(sizes), tuple(ratios[n] for n in sizes))


# ---- the log -------------------------------------------------------------------------------------


def thinned(log: Log, most: int) -> Log:
    """The log with at most `most` requests, evenly spaced over the log."""
    requests = log.sums["prompt_id"]
    if len(requests) <= most:
        return log
    rows = np.linspace(0, len(requests) - 1, most).astype(int)
    kept = requests.iloc[rows]
    sums = log.sums[requests.isin(kept)].reset_index(drop=True)
    if log.passes is None:
        return replace(log, sums=sums)
    is_kept = log.passes["prompt_id"].isin(kept)
    return replace(log, passes=log.passes[is_kept].reset_index(drop=True), sums=sums)


def log_in_words(log: Log, used: Log) -> str:
    """What a log holds, as sentences. used: the part of it that the page uses."""
    requests, passes = len(log.sums), int(log.sums["blocks"].sum())
    tokens = int(log.sums["emitted"].sum())
    said = (
        f"The log (format {log.format}) has {counted(requests, 'request')} with "
        f"{counted(passes, 'target pass')} and {counted(tokens, 'token')}."
    )
    if len(used.sums) < requests:
        said += f" This page uses {len(used.sums):,} of them, evenly spaced over the log."
    return f"{said} {domains_in_words(log.sums)}"


def domains_in_words(sums: pd.DataFrame) -> str:
    """How many domains the requests have, as a sentence."""
    domains = sums["domain"].value_counts(sort=False)
    if [*domains.index] == [UNKNOWN]:
        return "It names no domain, so all requests are one group (`prompts` can name domains)."
    if len(domains) == 1:
        return f"All requests are in the domain {domains.index[0]}."
    if len(domains) > MOST_LINES:
        return f"They are in {len(domains)} domains."
    return f"They are in {named([f'{name} ({count:,})' for name, count in domains.items()])}."


def grouped(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the domains that a figure with lines shows: of those with at least 5 requests,
    the MOST_LINES with the most. If no domain has 5 requests, all rows as the group EVERY.
    """
    judged = stats.judged_domains(frame)
    if not judged:
        return frame.assign(domain=EVERY)
    requests = frame.groupby("domain")["prompt_id"].nunique()
    largest = requests[judged].nlargest(MOST_LINES).index
    return frame[frame["domain"].isin(largest)]


def shown_in_words(frame: pd.DataFrame) -> str:
    """Which domains `grouped` keeps, as a sentence of a caption; "": all."""
    domains, shown = frame["domain"].nunique(), grouped(frame)["domain"]
    if shown.nunique() == domains:
        return ""
    if shown.iloc[0] == EVERY:
        return " All requests are drawn together."
    if shown.nunique() == 1:
        return f" Only the largest of {domains} domains is drawn."
    return f" Only the largest {shown.nunique()} of {domains} domains are drawn."


# ---- tokens per target pass ----------------------------------------------------------------------


def dots(sums: pd.DataFrame) -> pd.DataFrame:
    """Requests with their tokens per target pass (`of_request`), at most MOST_DOTS of a domain,
    drawn at random.
    """
    own = sums[PROMPT].assign(of_request=sums["emitted"] / sums["blocks"])
    mixed = own.sample(frac=1, random_state=0)
    is_drawn = mixed.groupby("domain").cumcount() < MOST_DOTS
    return mixed[is_drawn].sort_index()


def spread_in_words(sums: pd.DataFrame) -> str:
    """How far the requests differ, as a sentence."""
    if len(sums) == 1:
        return "One request shows no spread between requests"
    quarters = (sums["emitted"] / sums["blocks"]).quantile([0.25, 0.75])
    low, high = quarters
    return f"The middle half of the requests emit {low:.1f} to {high:.1f} tokens per target pass"


def differences_in_words(tests: pd.DataFrame) -> str:
    """Which domains differ, as a sentence. tests: of `significance.differences`, with `pair` and
    `sign`.
    """
    significant = tests[tests["sign"] != 0]
    pairs = counted(len(tests), "pair")
    if significant.empty:
        return f"No domains differ significantly ({pairs} tested)."
    row = significant.loc[significant["difference"].abs().idxmax()]
    higher, lower = (row["first"], row["second"])
    if row["difference"] < 0:
        higher, lower = lower, higher
    said = (
        f"{starting(higher)} emits {abs(row['difference']):.2f} more tokens per target pass than "
        f"{lower}."
    )
    if len(tests) == 1:
        return f"{said} The difference is significant."
    return f"{said} {len(significant)} of {pairs} of domains differ significantly (Holm)."


# ---- survival by depth ---------------------------------------------------------------------------


def acceptance_by_depth(log: pd.DataFrame, deepest: int) -> stats.Draws:
    """Draws named (GIVEN, depth): the share of tokens accepted, if all above were, and
    (REACHED, depth): the share of all passes that accept this many tokens. Depths go up to the
    deepest accepted token, and to `deepest`.
    """
    questions = {}
    for depth in range(1, min(deepest, max(log["accepted"].max(), 1)) + 1):
        counts = passes.depth_counts(log, depth)
        questions[GIVEN, depth] = counts, score.ratio_of("accepted", "reached")
        questions[REACHED, depth] = counts, score.ratio_of("accepted", "passes")
    return stats.jointly(questions)


def depths_table(draws: stats.Draws) -> Estimates:
    """The draws of `acceptance_by_depth` as estimates: panel, depth, domain. Where some have an
    interval, the others are left out, since too few passes reach their depth.
    """
    parts = {}
    for key, shares in draws.values.items():
        parts[key] = draws.table({"": shares}).frame.drop(columns="name")
    return with_intervals(stack(parts, ["panel", "depth"]))


def with_intervals(table: pd.DataFrame) -> Estimates:
    """The rows with an interval; all rows if no row has one."""
    known = table.dropna(subset="low")
    return Estimates(table if known.empty else known.reset_index(drop=True))


def depth_change(draws: stats.Draws) -> Estimates:
    """Acceptance, if all above was accepted, at the deepest level minus at depth 1, by depth (the
    deepest) and domain, in points.
    """
    deepest = max(key[1] for key in draws.values)
    change = draws[GIVEN, deepest] - draws[GIVEN, 1]
    table = draws.table({deepest: change}, "depth").frame
    of_domains = table[~table["domain"].isin([ALL, POOLED])]
    return with_intervals(of_domains).in_units("points")


def depth_in_title(change: Estimates) -> str:
    """How acceptance changes with depth, as a title. change: of `depth_change`."""
    depth = change.frame["depth"].iloc[0]
    if depth == 1:
        return "No pass of the log accepts more than one token"
    if change.frame["low"].isna().all():
        return f"From depth 1 to {depth} acceptance changes by {change.span()} (no interval)"
    return f"From depth 1 to {depth} acceptance {change.tally(*TREND)} ({change.span()})"


def drafted_in_words(log: pd.DataFrame) -> str:
    """How many tokens the passes drafted, as a sentence."""
    if log["drafted"].isna().any():
        return (
            "The log does not say how many tokens each pass drafted. So every pass counts as "
            "having a token at every depth."
        )
    if fixed := log_gammas.own_gamma(log):
        return f"Every draft has {counted(fixed, 'token')}, fewer only where the answer ends."
    ends = log["drafted"].agg(["min", "max"])
    return (
        f"The passes drafted {ends['min']} to {ends['max']} tokens. Acceptance at a depth counts "
        "the passes whose draft reaches it."
    )


# ---- drift along the log -------------------------------------------------------------------------


def in_parts(count: int, parts: int) -> np.ndarray:
    """The part, 1 to `parts`, of each of `count` requests in log order, int [count]."""
    return np.arange(count) * parts // count + 1


def groups(sums: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """EVERY with all requests, then each domain with its own if there are several; those with
    ENOUGH requests, in log order.
    """
    every = {EVERY: sums}
    if sums["domain"].nunique() > 1:
        every |= {domain: sums[sums["domain"] == domain] for domain in score.domains_in(sums)}
    for name, rows in every.items():
        if len(rows) >= ENOUGH:
            yield name, rows


def drift(sums: pd.DataFrame, n: int = 2000) -> pd.DataFrame:
    """Tokens per target pass of the last third of the requests minus the first third, by `groups`:
    name, difference, low, high, p_value (requests permuted n times), p_holm (over the domains; of
    all requests p_value). No row: the log is too short.
    """
    tests = {}
    for name, rows in groups(sums):
        third = in_parts(len(rows), 3)
        ends = [rows[third == 3].assign(domain=LAST), rows[third == 1].assign(domain=FIRST)]
        tests[name] = significance.differences(pd.concat(ends), PER_PASS, n)
    if not tests:
        return pd.DataFrame(columns=["name", "difference", "low", "high", "p_value", "p_holm"])
    table = stack(tests, "name").drop(columns=["first", "second"])
    of_domains = table["name"] != EVERY
    if of_domains.any():
        table.loc[of_domains, "p_holm"] = significance.holm(table.loc[of_domains, "p_value"])
    return table


def mix_change(sums: pd.DataFrame) -> float:
    """The share of the requests in which the mix of domains differs between the first and the last
    third of a log: 0 (the same mix) to 1 (no domain in common).
    """
    third = in_parts(len(sums), 3)
    shares = pd.crosstab(sums["domain"], third, normalize="columns")
    return float((shares[3] - shares[1]).abs().sum() / 2)


def bands(sums: pd.DataFrame, parts: int) -> pd.DataFrame:
    """Tokens per target pass along the log by `groups`: panel, group, place (% of the requests, the
    middle of the part), estimate, low, high. Only the domains of `grouped` have rows. A group has
    fewer parts where they would hold fewer than 5 requests.
    """
    tables = {}
    drawn = {EVERY, *grouped(sums)["domain"]}
    for name, rows in groups(sums):
        if name not in drawn:
            continue
        count = min(parts, len(rows) // MIN_PROMPTS)
        number = in_parts(len(rows), count)
        table = stats.by_domain(rows.assign(domain=number.astype(str)), PER_PASS).frame
        table = table[~table["domain"].isin([ALL, POOLED])]
        place = (table["domain"].astype(int) - 0.5) * 100 / count
        panel = EVERY if name == EVERY else "each domain's own requests"
        tables[panel, name] = table.assign(place=place).drop(columns=["estimator", "domain"])
    rows = stack(tables, ["panel", "group"])
    return rows[["panel", "group", "place", *stats.NUMBERS]]


def too_short(requests: int) -> str:
    """That a log is too short for drift, as sentences."""
    return (
        f"**Too few requests for drift.** The log has {counted(requests, 'request')}, and two "
        f"thirds with intervals need {ENOUGH}."
    )


def drift_in_title(tests: pd.DataFrame) -> str:
    """Whether the last third differs from the first, as a title. tests: of `drift`."""
    row, of_domains = tests.iloc[0], tests.iloc[1:]
    if row["p_holm"] >= LEVEL:
        return "The last third of the requests does not differ significantly from the first"
    more = "more" if row["difference"] > 0 else "fewer"
    said = f"The last third emits {abs(row['difference']):.2f} {more} tokens per pass"
    is_mix = len(of_domains) > 0 and (of_domains["p_holm"] >= LEVEL).all()
    return f"{said}, but no domain changes significantly" if is_mix else f"{said} than the first"


def drift_in_words(tests: pd.DataFrame, mix: float) -> str:
    """Drift of all requests and within the domains, as sentences. mix: of `mix_change`."""
    row, of_domains = tests.iloc[0], tests.iloc[1:]
    number = stats.cell(row["difference"], row["low"], row["high"], 2)
    is_drift = row["p_holm"] < LEVEL
    differs = "differs significantly" if is_drift else "does not differ significantly"
    said = (
        f"The last third of the requests {differs} from the first ({number} tokens per target "
        f"pass, p = {row['p_holm']:.2g})."
    )
    if of_domains.empty:
        return said
    if is_drift and mix > MIX:
        said += f" But {100 * mix:.0f} % of the mix of domains differs too, which may be the cause."
    changed = of_domains.loc[of_domains["p_holm"] < LEVEL, "name"]
    if changed.empty:
        tested = whole("tested domain", len(of_domains))
        return f"{said} Within {tested} there is no significant change (Holm)."
    return f"{said} Within a domain, the change is significant in {named([*changed])} (Holm)."


# ---- the gamma to try ----------------------------------------------------------------------------


def gammas_covered(gammas: Sequence[int], log: pd.DataFrame, costs: Costs) -> list[int]:
    """The gammas to compare, ascending, with the log's own: those whose target pass has a cost.
    ValueError if the costs do not reach the log's longest draft.
    """
    longest, largest = log["drafted"].max(), costs.sizes[-1]
    if longest >= largest:
        raise ValueError(
            f"v reaches {counted(largest, 'token')}, and the log's longest draft needs "
            f"{longest + 1}: add a larger n to v"
        )
    own = log_gammas.own_gamma(log)
    every = {*gammas, own or gammas[0]}
    return sorted(gamma for gamma in every if gamma < largest)


def gammas_in_use(gammas: Sequence[int], tried: Sequence[int], own: int | None) -> str:
    """The log's own gamma, and which gammas have no cost, as sentences. tried: of
    `gammas_covered`.
    """
    said = f"The log's own gamma is {own}." if own else "The log's drafts have no fixed length."
    without = sorted({*gammas} - {*tried})
    return f"{said} There is no v for {gammas_in_words(without)}." if without else said


def without_draft_in_words(log: Log) -> str:
    """That a server does not say when its passes without a draft were, as sentences; "": there are
    none, or the log is our own decoder's, which says it.
    """
    count = 0 if log.passes is None else int((log.passes["drafted"] == 0).sum())
    if not count or log.format == "speclab":
        return ""
    had = f"{counted(count, 'target pass')} had no draft"
    return (
        f" {had}. The log does not say when, so their tokens count at the end of the answer, and "
        "the bounds are approximate."
    )


def best_of(table: pd.DataFrame) -> pd.Series:
    """The row of the gamma with the highest lower bound. table: of `log_gammas.bounds`."""
    return table[table["verdict"] == BEST].iloc[0]


def undecided(table: pd.DataFrame) -> list[int | str]:
    """The gammas that may be faster than the best, since the bounds overlap."""
    return table.loc[table["verdict"] == OPEN, "gamma"].tolist()


def gammas_in_words(gammas: Sequence[int | str]) -> str:
    """'gamma 3', 'gammas 5 and 6', '8 gammas from 5 to 20'; 0 is 'plain decoding', and LOGGED
    'drafting as logged'.
    """
    special = {0: "plain decoding", LOGGED: f"drafting {LOGGED}"}
    parts = [special[gamma] for gamma in gammas if gamma in special]
    numbers = [gamma for gamma in gammas if gamma not in special]
    if len(numbers) > 3:
        parts.append(f"{len(numbers)} gammas from {numbers[0]} to {numbers[-1]}")
    elif numbers:
        noun = "gamma" if len(numbers) == 1 else "gammas"
        parts.append(f"{noun} {named([*map(str, numbers)])}")
    return named(parts)


def gamma_in_words(row: pd.Series) -> str:
    """The lower bound of a speed-up: '1.76x [1.72, 1.80]' if the log decides it exactly, else 'at
    least 1.76x [1.72, 1.80]'.
    """
    least = stats.cell(row["least"], row["low"], row["least_high"], 2, "x")
    return least if np.isclose(row["least"], row["most"]) else f"at least {least}"


def bounds_in_title(table: pd.DataFrame) -> str:
    """The gamma to try, as a title."""
    row, others = best_of(table), undecided(table)
    setting = starting(gammas_in_words([row["gamma"]]))
    if row["gamma"] != 0:
        said = f"{setting} gives {gamma_in_words(row)}"
        more = f"; {gammas_in_words(others)} may be faster"
        return said + (more if others else ", and no other gamma tried is faster")
    if not others:
        return f"{setting} is the fastest on these requests"
    return f"No gamma is certain to be faster; {gammas_in_words(others)} may be"


def by_domain_table(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The gamma to try by domain, one row each: domain, gamma, its lower bound with the interval,
    its upper bound, and the gammas that the log cannot rule out.
    """
    rows = []
    for domain, table in tables.items():
        row = best_of(table)
        least = stats.cell(row["least"], row["low"], row["least_high"], 2, "x")
        ends = least, f"{row['most']:.2f}x"
        others = ", ".join(map(str, undecided(table))) or "none"
        rows.append((domain, str(row["gamma"]), *ends, others))
    names = ["domain", "gamma to try", "at least", "at most", "may be faster"]
    return pd.DataFrame(rows, columns=names)


def gamma_to_set(table: pd.DataFrame | None) -> int:
    """The gamma that a server's options name; 0: none (plain decoding, drafts of varying length, or
    no `log_gammas.bounds`).
    """
    gamma = 0 if table is None else best_of(table)["gamma"]
    return 0 if gamma == LOGGED else int(gamma)


def options_in_words(table: pd.DataFrame | None) -> str:
    """What to tell the server, as a sentence. table: as of `gamma_to_set`."""
    if table is None:
        return "The log decides no gamma, so there are no options to print."
    gamma = best_of(table)["gamma"]
    if gamma == LOGGED:
        return "Keep the options with which the log was made."
    if not gamma:
        return "Start the server without a draft model."
    return f"Draft {counted(gamma, 'token')} per target pass."


def answer_in_words(per_pass: Estimates, c: float, table: pd.DataFrame | None) -> str:
    """The notebook's answer. per_pass: of all requests, one row; table: of `log_gammas.bounds`, or
    None where the log decides nothing about another gamma.
    """
    said = f"The log's requests emit {per_pass} tokens per target pass."
    if table is None:
        return f"{said} The log cannot say which other gamma would be faster."
    row, others = best_of(table), undecided(table)
    said += f" If a draft pass costs {100 * c:g} % of a target pass,"
    setting = gammas_in_words([row["gamma"]])
    if row["gamma"] == 0:
        none = "no gamma is certain to beat plain decoding"
        said += f" {none if others else 'plain decoding is the fastest here'}."
    else:
        verb = "keep" if row["gamma"] == LOGGED else "try"
        said += f" {verb} {setting} (estimated speed-up {gamma_in_words(row)})."
    if others:
        return f"{said} {undecided_in_words(others)} may be faster: the log cannot decide."
    return said if row["gamma"] == 0 else f"{said} No other gamma tried is faster here."


def undecided_in_words(others: Sequence[int | str]) -> str:
    """'One other setting', 'Three other settings' or 'More than six other settings'."""
    number = WORDS[len(others)] if len(others) < len(WORDS) else f"more than {WORDS[-1]}"
    noun = "setting" if len(others) == 1 else "settings"
    return starting(f"{number} other {noun}")
