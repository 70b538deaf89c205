"""The formats of logs: what other engines write about acceptance, as entries.

A file holds JSON (one value per line, one value, lists in objects), a table, YAML, or the text of a
server. Objects are searched for the names in SIGNS, and lines of text for MARK. What is found has a
format and facts, under the engine's own names; `Counts` knows these names. An entry comes from it:
an `Answer` with counts per pass, or `Totals` without. What the names count, and since which
version: `data/engines/README.md`.
"""

import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import islice, pairwise
from math import nan
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from speclab.logs.passes import LONGEST, MOST_TOKENS, Answer
from speclab.plain import JSON, Facts, brief
from speclab.study.prompts import LONGEST_NAME
from speclab.study.reading import parse_yaml

UNKNOWN = "unknown"  # the domain of a request that nothing assigns to one
PREFIX = re.compile(r"^(chat)?cmpl-")  # of vLLM's id of a response
MOST = 10**12  # of a total
LONGEST_TEXT, LONGEST_LINE = 2**29, 10**5  # characters of a file, and of a line of text
NESTED = (dict, list)
LONGEST_PATH = 500  # characters of the names of the objects around a record
REQUESTS, LINES, SETTINGS = "request", "line block", "setting"  # what an entry is about
# formats whose entries are about something else than requests
ABOUT = {"vllm-log": LINES, "sglang-log": LINES, "prometheus": LINES, "settings": SETTINGS}
ABOUT |= {"llama.cpp-statistics": LINES}
Rows = Sequence[tuple[float, int, float]]


@dataclass(frozen=True)
class Totals:
    """What a log says of one answer, some lines or one setting, without the order of its passes:
    target passes, draft tokens that were verified (NaN: not said) and accepted, emitted tokens.

    blocks are the fewest passes that the log allows, `plain` of them without a draft, and up to
    `spare` more are possible. rows: drafted tokens (NaN: not said), accepted tokens, and how many
    passes had both. context: tokens of the prompt.
    """

    prompt_id: str
    domain: str
    blocks: float
    accepted: float
    emitted: float
    drafted: float = nan
    turn: int = 0
    where: str = ""  # as of `Answer`
    part: str = ""
    plain: float = 0
    spare: float = 0
    context: float = nan
    rows: Rows = ()

    @property
    def has_passes(self) -> bool:
        """Whether the answer took a target pass after the prompt's own."""
        return self.blocks > 0


Entry = Answer | Totals


class Found(NamedTuple):
    """Facts with their format and place. part: what the object around their list says, of a run for
    example.
    """

    format: str
    facts: Facts
    where: str
    part: str = ""


# ---- counts --------------------------------------------------------------------------------------

Count = Annotated[float, Field(ge=0, le=MOST, multiple_of=1)]
Whole = Annotated[int, Field(ge=0, le=MOST)]
Digits = Annotated[str, Field(pattern=r"^\d{1,3}$")]


def field(names: str, default: Any = nan) -> Any:
    """A field that may be missing, under one of these names."""
    return Field(default, validation_alias=AliasChoices(*names.split()))


class Counts(BaseModel):
    """The counts of engines by their names; NaN and None are not said. `shares` are, by position,
    of all drafts.
    """

    model_config = ConfigDict(strict=True, allow_inf_nan=False)
    drafts: Count = field(
        "num_spec_steps spec_verify_ct draft_rounds num_drafts spec_num_drafts "
        "spec_decode_num_drafts running"
    )
    accepted: Count = field(
        "num_accepted_draft_tokens spec_num_correct_drafts spec_accepted_drafts "
        "spec_accept_token_num total_accepted_draft_tokens draft_n_accepted num_accepted_tokens "
        "spec_decode_accepted_tokens"
    )
    drafted: Count = field(
        "num_draft_tokens spec_num_proposed_drafts spec_proposed_drafts spec_draft_token_num "
        "total_draft_tokens draft_n spec_decode_draft_tokens"
    )
    length: Count = field("num_spec_tokens num_speculative_tokens k gamma")
    tokens: Annotated[Count, Field(le=MOST_TOKENS)] = field("completion_tokens predicted_n")
    context: Count = field("prompt_tokens prompt_n")
    emitted: Count = nan
    mean: Annotated[float, Field(ge=0, le=MOST)] = field(
        "accepted_length_tau tokens_per_pass spec_decode_acceptance_length mean_acceptance_length "
        "acceptance_length accept_length"
    )
    histogram: list[Count] | dict[Digits, Count] = field(
        "acceptance_histogram spec_correct_drafts_histogram spec_accept_histogram", ()
    )
    by_length: dict[Digits, list[Count]] = field("acceptance_histogram_by_draft_length", ())
    shares: list[Annotated[float, Field(ge=0, le=1)]] = field(
        "per_pos acceptance_per_pos spec_decode_per_position_acceptance_rates", ()
    )
    steps: list[Whole] | None = field("per_step_accepted accepted_per_step", None)
    tried: list[Whole] | None = field("per_step_drafted drafted_per_step", None)
    # of Spec-Bench and EAGLE, by turn; lengths: of the turns in a row
    passes: list[Whole] = field("idxs decoding_steps", ())
    new_tokens: list[Whole] = ()  # type: ignore[assignment]
    lengths: list[Whole] = field("accept_lengths", ())
    lengths_of_rest: list[Whole] = field("accept_lengths:", ())
    token_ids: list[Any] | None = None


def counts_of(default: Facts, facts: Facts) -> Counts:
    """The counts among facts. ValueError names the field, what came and what is allowed."""
    try:
        return Counts.model_validate(default | {k: v for k, v in facts.items() if v is not None})
    except ValidationError as error:
        one = error.errors()[0]
        raise ValueError(f"{one['loc'][0]}={brief(one['input'])}: {one['msg']}") from None


def known(*values: float) -> float:
    """The first value that is said, NaN if none is."""
    return next((value for value in values if value == value), nan)


def rows_of(counts: Counts, drafts: float, accepted: float) -> Rows:
    """The `rows` of a histogram (dense, sparse, or for each length of a draft) or of shares by
    position; empty if the log has neither, or if they do not add up to the totals. Drafts have one
    length where this explains all drafted tokens.
    """
    shares = [1.0, *counts.shares, 0.0] if counts.shares else ()
    cells = counts.histogram or [drafts * (one - after) for one, after in pairwise(shares)]
    length = known(counts.length, len(cells) - 1)
    is_whole = abs(counts.drafted - length * drafts) < 0.5
    tables: Facts = counts.by_length or {length if is_whole else nan: cells}  # type: ignore
    rows = [
        (float(k), int(a), n)
        for k, table in tables.items()
        for a, n in (table.items() if isinstance(table, dict) else enumerate(table))
        if n
    ]
    totals = sum(n for *_, n in rows), sum(a * n for _, a, n in rows)
    slack = 0.5 + 0.0006 * len(shares) * drafts if counts.shares else 0.01  # of three decimals
    fits = all(n > 0 and not a > min(LONGEST, k) for k, a, n in rows)
    return rows if rows and fits and np.allclose(totals, (drafts, accepted), 0, slack) else ()


def drafts_of(counts: Counts) -> float:
    """How many drafts a line of text counts: by their length, if this fits the printed mean, else
    by the mean, which gives the tokens per pass within 0.005. NaN: the line does not say it.
    """
    drafts = counts.drafted / (len(counts.shares) or counts.length or nan)
    each = counts.accepted / (drafts or nan)
    # before vLLM #17908 the mean left the target's token out
    off = min(abs(each - counts.mean), abs(1 + each - counts.mean))
    if drafts.is_integer() and not off > 0.006:
        return drafts
    return counts.accepted / (counts.mean - 1) if counts.mean > 1 and counts.accepted else nan


# ---- entries -------------------------------------------------------------------------------------


def read_counts(counts: Counts, request: Facts) -> Iterator[Entry]:
    """The entry of one request, some lines or one setting; none if nothing was drafted, or if the
    number of passes is not said.

    The prompt's own pass gives an answer's first token. vLLM counts no pass without a draft, so
    tokens that are left came one by one. It counts accepted tokens past the end, too, which hide as
    many of these passes (`spare`). llama.cpp gives no number of passes: each gave one token more
    than it accepted.
    """
    emitted = known(counts.emitted, max(counts.tokens - 1, 0))
    drafts = known(counts.drafts, drafts_of(counts))
    by_mean = known(drafts, 1) * (counts.mean - 1)
    accepted = known(counts.accepted, max(emitted - drafts, 0), by_mean)
    # a mean alone stands for one pass
    drafts = known(drafts, emitted - accepted, 1 if counts.accepted != counts.accepted else nan)
    emitted = known(emitted, accepted + drafts)
    if not accepted + drafts >= 0:
        return
    most = known(counts.drafted, accepted)
    if not (accepted > 0) <= drafts <= emitted + 1 or not accepted <= most <= LONGEST * drafts:
        raise ValueError(
            f"{accepted:,.0f} of {counts.drafted:,.0f} drafted tokens are accepted, in "
            f"{drafts:,.0f} passes and {emitted + 1:,.0f} tokens: no more are accepted than "
            f"drafted, a pass gives a token, and a draft has {LONGEST:,} at most"
        )
    left = emitted - accepted - drafts
    plain = max(left, 0)
    # the last pass may go past the end, if the engine counts passes, and tokens up to the end
    past = counts.steps[-1] if counts.steps else known(counts.length, accepted)
    spare = max(past + min(left, 0), 0) if counts.drafts + counts.tokens >= 0 else 0
    request |= {"plain": int(plain), "spare": spare, "context": counts.context}
    if counts.steps is None:
        rows = rows_of(counts, drafts, accepted)
        rows = [*rows, (0, 0, plain)] if rows and plain else rows
        totals = {"accepted": accepted, "emitted": emitted, "drafted": counts.drafted}
        yield Totals(blocks=drafts + plain, rows=rows, **totals, **request)
        return
    tried = counts.tried or []
    if (len(counts.steps), sum(counts.steps), sum(tried)) != (drafts, accepted, counts.drafted):
        raise ValueError("per_step_accepted and per_step_drafted do not add up to the totals")
    tokens = int(emitted) + 1
    yield Answer(accepted=counts.steps, drafted=tried, tokens=tokens, before=1, **request)


def read_spec_bench(counts: Counts, request: Facts) -> Iterator[Entry]:
    """Spec-Bench and its forks: accept_lengths of all turns in a row, cut by decoding_steps; each
    length counts the target's own token. REST writes a colon into the name, and `idxs` for the
    steps. Some methods count the steps from 0 (REST, Token Recycling).
    """
    lengths = counts.lengths_of_rest or counts.lengths
    is_from_0 = sum(counts.passes) + len(counts.passes) == len(lengths)
    steps, tokens = [count + is_from_0 for count in counts.passes], counts.new_tokens
    if sum(steps) != len(lengths) or len(steps) != len(tokens):
        raise ValueError(
            f"decoding_steps adds up to {sum(steps)} in {len(steps)} turns, and accept_lengths has "
            f"{len(lengths)} entries, new_tokens {len(tokens)}"
        )
    rest = iter(lengths)
    for turn, (count, emitted) in enumerate(zip(steps, tokens, strict=True)):
        of_turn = list(islice(rest, count))
        if counts.lengths_of_rest and count and sum(of_turn) == emitted - 1:
            of_turn[0] += 1  # REST's first length leaves one token out
        if 0 in of_turn:
            raise ValueError("accept_lengths has 0: each length counts the target's own token")
        accepted = [length - 1 for length in of_turn]
        yield Answer(accepted=accepted, drafted=None, tokens=emitted, **request | {"turn": turn})


def read_eagle(counts: Counts, request: Facts) -> Iterator[Entry]:
    """EAGLE and Medusa: tokens and passes per turn; `idxs` counts the passes from 0."""
    last, tokens = counts.passes, counts.new_tokens
    if len(last) != len(tokens):
        raise ValueError(f"idxs has {len(last)} turns and new_tokens {len(tokens)}")
    for turn, (index, emitted) in enumerate(zip(last, tokens, strict=True)):
        accepted = max(emitted - index - 1, 0)
        of_turn = request | {"turn": turn, "blocks": index + 1}
        yield Totals(accepted=accepted, emitted=emitted, **of_turn)


def read_steps(counts: Counts, request: Facts) -> Iterator[Entry]:
    """A line of `python -m speclab decode`, or an answer of a table of passes."""
    if counts.tried is None:
        raise ValueError(
            "it has no drafted_per_step, because an earlier version of the kit decoded it: decode "
            "the prompts again (decode --force)"
        )
    tokens = None if counts.token_ids is None else len(counts.token_ids)
    yield Answer(accepted=counts.steps or [], drafted=counts.tried, tokens=tokens, **request)


READERS: dict[str, Callable[[Counts, Facts], Iterator[Entry]]] = {
    "spec-bench": read_spec_bench,
    "eagle": read_eagle,
    "speclab": read_steps,
    "passes": read_steps,
}
# llama.cpp leaves the counts out of an answer for which nothing was drafted
DEFAULTS: dict[str, Facts] = {"llama.cpp": {"draft_n": 0, "draft_n_accepted": 0}}
IDS = [
    *("prompt_id", "question_id", "x_request_id", "conversation_id", "request_id", "custom_id"),
    *("task_id", "tag", "id", "rid", "label", "run_id"),
]
DOMAINS = ["domain", "category", "source_kind"]


def who(facts: Mapping[str, Any], where: str) -> tuple[str, str]:
    """The id of a request without PREFIX (`where` if it has none), and its domain."""
    name, domain = (
        next((str(facts[one]) for one in names if facts.get(one) not in (None, "")), default)
        for names, default in ((IDS, where), (DOMAINS, UNKNOWN))
    )
    return PREFIX.sub("", name), domain


def entries_of(found: Found) -> list[Entry]:
    """The entries of what was found. ValueError names the place."""
    name, domain = who(found.facts, found.where)
    try:
        counts = counts_of(DEFAULTS.get(found.format, {}), found.facts)
        if found.format == "settings":
            k = f", K = {counts.length:.0f}".removesuffix(", K = nan")
            domain = name = name[10 - LONGEST_NAME :] + k
        request = {"prompt_id": name, "domain": domain, "where": f"{found.where}: "}
        read = READERS.get(found.format, read_counts)
        return [*read(counts, request | {"part": found.part})]
    except ValueError as error:
        raise ValueError(f"{found.where}: {error}") from None


# ---- objects -------------------------------------------------------------------------------------

# the names that make an object one of a format; of several the first
SIGNS = {
    "spec-bench": "accept_lengths accept_lengths:",
    "eagle": "idxs",
    "speclab": "accepted_per_step",
    "sglang": "spec_verify_ct",
    "vllm": "num_spec_steps",
    "llama.cpp": "draft_n predicted_n",
    "passes": "per_step_accepted",
    "settings": "num_drafts spec_num_drafts spec_decode_num_drafts accepted_length_tau "
    "mean_acceptance_length acceptance_length accept_length tokens_per_pass",
}
FORMATS = {name: kind for kind, names in SIGNS.items() for name in names.split()}
# where another engine has vLLM's names
AROUND = {"spec_decode_acceptance": "aiperf", "choices.speculative_decoding": "tensorrt-llm"}
HOLDERS = ["usage", "timings", "metadata", "meta_info"]  # objects that speak of the record
OUTER = [*IDS, *DOMAINS, "completion_tokens", "prompt_tokens", "num_speculative_tokens"]


def find_facts(
    value: Any, where: str, path: str = "", outer: Facts | None = None, part: str = ""
) -> Iterator[Found]:
    """What a JSON value holds: the outermost objects with a name of SIGNS. path: its place in the
    line; outer: what the objects around it say; part: as of `Found`.
    """
    if len(path) > LONGEST_PATH:
        return
    if isinstance(value, list) and value and isinstance(value[0], NESTED):
        for index, one in enumerate(value):
            # the choices of a response are no list of requests
            inside = path if path.endswith("choices") else f"{path}[{index}]"
            yield from find_facts(one, where, inside, outer, part)
    if not isinstance(value, dict):
        return
    outer = (outer or {}) | {name: value[name] for name in OUTER if name in value}
    for held in map(value.get, HOLDERS):
        outer |= held if isinstance(held, dict) else {}
    kind = next((FORMATS[name] for name in FORMATS if name in value), "")
    kind = next((name for end, name in AROUND.items() if kind and path.endswith(end)), kind)
    place = f"{where}, {path}".removesuffix(", ")
    points = [value] if kind else points_of(value)
    yield from (Found(kind or "settings", outer | one, place, part) for one in points)
    for name, one in value.items() if not points else ():
        of_list = part
        if isinstance(one, list) and name != "choices":
            said = [f"{k} {v}" for k, v in value.items() if isinstance(v, str | int)]
            of_list = f"{name}: {' '.join(said)}"[:LONGEST_NAME].strip(": ")
        if isinstance(one, NESTED):
            inside = f"{path}.{name}".removeprefix(".")
            yield from find_facts(one, where, inside, outer, of_list)


def points_of(value: Facts) -> list[Facts]:
    """The settings of an object that gives the mean tokens per pass by K; none if it does not."""
    is_curve = all(
        name.isdigit() and isinstance(mean, float) and 1 <= mean <= LONGEST
        for name, mean in value.items()
    )
    return [{"k": int(k), "accept_length": mean} for k, mean in value.items() if is_curve]


# ---- lines of text -------------------------------------------------------------------------------

# what a line says, under names of `Counts`; llama.cpp has some of it on the lines before
PATTERNS = {
    "num_accepted_tokens": r"Accepted: +(\d+) tokens|(?:Accepted |num_accepted_)tokens: +(\d+)"
    r"|(\d+) accepted +/|(?:n_accept|#acc tokens) *= *(\d+)",
    "num_draft_tokens": r"Drafted: +(\d+) tokens|[Dd]raft[ _]tokens: +(\d+)|(\d+) generated"
    r"|(?:n_drafted|#gen tokens) *= *(\d+)",
    "num_drafts": r"(?:Drafts|num_drafts):? +(\d+)|#gen drafts *= *(\d+)",
    "running": r"#running-req: *(\d+)",
    "emitted": r"emitted tokens: *(\d+)",
    "accept_length": r"(?:[Aa]ccept(?:ance)? len(?:gth)?|mean len|mean acc len) *[:=] *([\d.]+)",
    "num_spec_tokens": r"(?:speculative tokens|speculative depth|n_draft|"
    r"num_spec(?:ulative)?_tokens\W?) *[:=] *(\d+)",
    "completion_tokens": r"(?<!prompt )eval time =.*?/ *(\d+) tokens|n_predict *= *(\d+)",
    "per_pos": r"(?:er.position acceptance rate|rate per position|acc rate/pos) *[:=]"
    r" *\(?([\d., ]+)",
}
# which line completes an entry, by format; the counters of the last two add up
MARK = re.compile(
    r"(?P<vllm>SpecDecoding metrics:)|(?P<sglang>Decode batch.*accept len)"
    r"|(?P<llama>\d accepted +/|n_accept *=)|(?P<bench>(?:Accepted |num_accepted_)tokens: +\d)"
    r"|(?P<old>Speculative metrics:)|statistics +(?P<statistics>\S+):"
)
NUMBER = re.compile(r"\d+(?:\.\d+)?")
FORMAT_OF = {"vllm": "vllm-log", "old": "vllm-log", "sglang": "sglang-log", "bench": "settings"}
FORMAT_OF |= {"llama": "llama.cpp-log", "statistics": "llama.cpp-statistics"}
SERIES = re.compile(
    r"(?m)^(\w+?)[:_]spec_decode_(num_drafts|num_draft_tokens|num_accepted_tokens)(?:_per_pos)?"
    r"(?:_total)?(?:\{(.*)\})? +([-+.\w]+)"
)


def find_lines(text: str, name: str, length: str) -> Iterator[Found]:
    """What a server's log holds. length: tokens per draft, where the lines do not say it."""
    seen: Facts = {"num_spec_tokens": float(length)} if length else {}
    totals = {}
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > LONGEST_LINE:
            continue
        for field, pattern in PATTERNS.items():
            if found := re.search(pattern, line):
                numbers = [float(one) for one in NUMBER.findall(found[found.lastindex or 0])]
                seen[field] = numbers if field == "per_pos" else numbers[0]
        mark = MARK.search(line)
        if mark is None:
            continue
        kind, where = str(mark.lastgroup), f"{name}, line {number}"
        is_said = "num_draft_tokens" in seen and {"num_accepted_tokens", "emitted"} & {*seen}
        if kind != "sglang" and not is_said:
            raise ValueError(f"{where} does not say how many tokens were accepted and drafted")
        drafter = mark["statistics"] or kind
        one = Found(FORMAT_OF[kind], seen | {"domain": mark["statistics"]}, where)
        if kind in ("old", "statistics"):
            totals[drafter] = one  # counters that add up: the last line counts
        else:
            yield one
        seen = {field: seen[field] for field in seen if field == "num_spec_tokens"}
    yield from totals.values()


def find_scrapes(texts: Mapping[str, str]) -> Iterator[Found]:
    """What Prometheus text counts: since the server began, or from the first to the last of several
    scrapes, in one file or in several. Models count together, engines apart.
    """
    series: dict[tuple[str, ...], list[float]] = {}
    for *key, value in SERIES.findall("\n".join(texts.values())):
        series.setdefault(tuple(key), []).append(float(value))
    for engine in dict.fromkeys(engine for engine, *_ in series):
        total: dict[str, float] = {}
        for (of_engine, name, labels), values in series.items():
            place = re.search(r'position="(\d+)"', labels)
            key = f"position {int(place[1]):03}" if place else name
            more = values[-1] - (values[0] if values[1:] else 0)
            total[key] = total.get(key, 0) + more * (of_engine == engine)
        drafts = total.get("num_drafts") or nan
        shares = [total[key] / drafts for key in sorted(total) if key.startswith("position")]
        facts = total | {"per_pos": shares, "domain": engine}
        yield Found("prometheus", facts, f"{', '.join(texts)}, {engine}")


# ---- files ---------------------------------------------------------------------------------------

BETWEEN = re.compile(r"(?:\s|data:|\[DONE\])*")  # JSON values, in a stream too
NO_MARK = (
    "text without SpecDecoding metrics, draft acceptance, Decode batch or spec_decode counters"
)


def text_of(path: Path) -> str:
    """The text of a file, plain or gzip. ValueError if it is no regular file, damaged, binary,
    empty, or has more than LONGEST_TEXT characters.
    """
    if not path.is_file():
        raise ValueError(f"{path.name} is not a regular file; save it as one")
    try:
        with path.open("rb") as file:
            head = file.read(2)
        opener: Callable[..., Any] = gzip.open if head == b"\x1f\x8b" else open
        # Windows writes UTF-16 where a log goes through its shell
        encoding = "utf-16" if head in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
        with opener(path, "rt", encoding=encoding) as file:
            text: str = file.read(LONGEST_TEXT)
    except (OSError, EOFError, zlib.error, UnicodeError) as error:
        raise ValueError(f"{path.name} is damaged or cannot be read ({error})") from None
    if not text.strip() or "\0" in text or len(text) == LONGEST_TEXT:
        said = "binary" if "\0" in text else f"empty, or has more than {LONGEST_TEXT:,} characters"
        raise ValueError(f"{path.name} is {said}")
    return text


def json_values(text: str, name: str) -> Iterator[tuple[str, Any]]:
    """(where, value) of what a text holds: YAML, rows of a table, or JSON values, one per line or
    over several lines; nothing for other text. ValueError names the line.
    """
    suffix = name.lower().removesuffix(".gz").rpartition(".")[2]
    if suffix in ("yaml", "yml"):
        yield name, parse_yaml(text)
    elif suffix in ("csv", "tsv"):
        yield from rows_of_table(text, name)
    is_json = text.lstrip().startswith(("{", "[", "data:"))
    end, line = 0 if is_json else len(text), 1
    while between := BETWEEN.match(text, end):
        at = between.end()
        line += text.count("\n", end, at)
        if at == len(text):
            return
        try:
            value, end = JSON.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            is_cut = "Unterminated" in str(error) or getattr(error, "pos", 0) >= len(text.rstrip())
            said = "JSON that is cut" if is_cut else f"JSON that cannot be read ({error})"
            raise ValueError(f"{name}, line {line}: {said}; get the file again") from None
        yield f"{name}, line {line}", value
        line += text.count("\n", at, end)


def rows_of_table(text: str, name: str) -> Iterator[tuple[str, Facts]]:
    """(where, facts) of each row of a table, or of each answer if a row is a pass: it has
    `accepted` and `drafted`, or lengths that count the target's token, too; `step` rises within an
    answer.
    """
    table = pd.read_csv(StringIO(text), sep=None, engine="python")
    table.columns = [re.sub(r"\W+", "_", column.strip()).lower() for column in table]
    lengths = {"accept_length": "accepted", "candidate_length": "drafted"}
    if {*lengths} <= {*table}:
        table = table.assign(**{new: table[old] - 1 for old, new in lengths.items()})
    if not {*lengths.values()} <= {*table}:
        for number, row in enumerate(table.to_dict("records"), 2):
            facts = {k: one for k, one in row.items() if one == one}
            label = " ".join(one for one in facts.values() if isinstance(one, str))
            yield f"{name}, line {number}", {"label": label} | facts
        return
    step = table.get("step", pd.Series(range(len(table))))
    for _, rows in table.groupby((step.diff() <= 0).cumsum()):
        facts = {f"per_step_{new}": rows[new].tolist() for new in lengths.values()}
        yield f"{name}, line {rows.index[0] + 2}", facts


def find_all(paths: Sequence[Path], length: str = "") -> Iterator[Found]:
    """What files hold; a JSON value that holds nothing has the format "". ValueError says what was
    seen in a file that holds nothing.
    """
    others, problem = {}, ""
    for path in paths:
        text, said, is_read = text_of(path), NO_MARK, False
        try:
            for where, value in json_values(text, path.name):
                found = [*find_facts(value, where)]
                yield from found or [Found("", {}, where)] * isinstance(value, dict)
                said = f"{where} has {brief([*value] if isinstance(value, dict) else value)}"
                is_read |= bool(found)
        except ValueError as error:
            if is_read:
                raise
            said = str(error)
        for one in find_lines(text, path.name, length) if not is_read else ():
            yield one
            is_read = True
        if not is_read:
            others[path.name] = text
            problem = problem or f"{path.name}: no format fits; {said}"
    found = [*find_scrapes(others)] if others else []
    yield from found
    if others and not found:
        raise ValueError(problem)
