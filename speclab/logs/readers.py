"""The formats of logs: what other engines write about acceptance, as `Answer`s.

A file holds JSON (one value per line, one value, lists in objects), a table, YAML, or the text of a
server. FORMATS says what the entries of a format are about, and how an object of it is recognised;
MARK does so for lines of text. What is found are facts under the engine's own names. `Counts` knows
these names, and `answers_of` makes `Answer`s of them. What the names count, and since
which version: `data/engines/README.md`.
"""

import gzip
import re
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from io import BytesIO, StringIO
from itertools import islice, pairwise
from json import JSONDecodeError
from math import isnan, nan, remainder
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
from pydantic import AliasChoices, AliasGenerator, BaseModel, ConfigDict, Field, ValidationError

from speclab.logs.passes import LONGEST, Answer
from speclab.plain import JSON, Array, Facts, brief, content_of
from speclab.study.prompts import LONGEST_NAME
from speclab.study.reading import parse_yaml

UNKNOWN = "unknown"  # the domain of a request that nothing assigns to one
PREFIX = re.compile(r"^(chat)?cmpl-")  # of vLLM's id of a response
MOST, MOST_TOKENS = 10**12, 10**7  # of a total, and of an answer
LONGEST_TEXT, LONGEST_LINE = 2**29, 10**5  # bytes of a file, and characters of a line
REQUESTS, LINES, SETTINGS = "request", "line block", "setting"  # what an entry is about
# what entries are about, and the names that make an object one of a format; the first counts
FORMATS = {
    REQUESTS: {
        "spec-bench": "accept_lengths accept_lengths:",
        "eagle": "idxs",
        "speclab": "accepted_per_step",
        "tensorrt-llm": "total_accepted_draft_tokens",
        "sglang": "spec_verify_ct",
        "vllm": "num_spec_steps",
        "llamacpp": "draft_n predicted_n",
        "passes": "per_step_accepted",
        "llamacpp-log": "",
    },
    LINES: {
        "vllm-log": "",
        "sglang-log": "",
        "prometheus": "",
        "vllm-totals": "",
        "llamacpp-totals": "",
    },
    SETTINGS: {
        "settings": "num_drafts spec_num_drafts spec_decode_num_drafts accepted_length_tau "
        "mean_acceptance_length acceptance_length accept_length tokens_per_pass",
    },
}
ABOUT = {name: about for about, formats in FORMATS.items() for name in formats}
SIGNS = {
    sign: name
    for formats in FORMATS.values()
    for name, signs in formats.items()
    for sign in signs.split()
}


class Found(NamedTuple):
    """Facts with their format (""; nothing was found), and where they stand: file and line, and the
    path in a JSON value. part: what the object around their list says, of a run for example.
    """

    format: str
    facts: Facts
    place: str
    path: str = ""
    part: str = ""


# ---- counts --------------------------------------------------------------------------------------

Count = Annotated[float, Field(ge=0, le=MOST, multiple_of=1)]
Number = Annotated[float, Field(ge=0, le=MOST)]
Tokens = Annotated[int, Field(ge=0, le=MOST_TOKENS)]
Length = Annotated[int, Field(ge=0, le=LONGEST)]
# the names that engines use, by our own name
NAMES = {
    "name": "prompt_id question_id x_request_id conversation_id request_id custom_id task_id tag "
    "id rid label run_id",
    "domain": "domain category source_kind",
    "drafts": "num_spec_steps spec_verify_ct draft_rounds num_drafts spec_num_drafts "
    "spec_decode_num_drafts #running-req",
    "accepted": "num_accepted_draft_tokens spec_num_correct_drafts spec_accepted_drafts "
    "spec_accept_token_num total_accepted_draft_tokens draft_n_accepted num_accepted_tokens "
    "spec_decode_accepted_tokens",
    "drafted": "num_draft_tokens spec_num_proposed_drafts spec_proposed_drafts "
    "spec_draft_token_num total_draft_tokens draft_n spec_decode_draft_tokens",
    "emitted": "emitted_tokens",
    "length": "num_spec_tokens num_speculative_tokens k gamma",
    "context": "prompt_tokens prompt_n",
    "tokens": "completion_tokens predicted_n",
    "mean": "accepted_length_tau tokens_per_pass spec_decode_acceptance_length "
    "mean_acceptance_length acceptance_length accept_length",
    "shares": "per_pos acceptance_per_pos spec_decode_per_position_acceptance_rates",
    "histogram": "acceptance_histogram spec_correct_drafts_histogram spec_accept_histogram",
    "by_length": "acceptance_histogram_by_draft_length",
    "steps": "per_step_accepted accepted_per_step",
    "tried": "per_step_drafted drafted_per_step",
    "lengths": "accept_lengths",
    "lengths_of_rest": "accept_lengths:",
    "passes": "idxs decoding_steps",
    "new_tokens": "new_tokens",
    "token_ids": "token_ids",
}


NONE: Any = Field(default_factory=list)  # faster than a list, which is copied


class Counts(BaseModel):
    """What engines say under NAMES. NaN or empty: it is not said."""

    model_config = ConfigDict(
        strict=True,
        allow_inf_nan=False,
        alias_generator=AliasGenerator(
            validation_alias=lambda field: AliasChoices(*NAMES[field].split())
        ),
    )

    name: Any = ""
    domain: Any = ""
    drafts: Count = nan
    accepted: Count = nan
    drafted: Count = nan
    emitted: Count = nan
    length: Count = nan
    context: Count = nan
    tokens: Annotated[Count, Field(le=MOST_TOKENS)] = nan
    mean: Number = nan
    shares: list[Number] = NONE
    histogram: list[Count] | dict[str, Count] = NONE
    by_length: dict[str, list[Count]] = {}
    steps: list[Length] = NONE
    tried: list[Length] = NONE
    # of all turns in a row
    lengths: list[Length] = NONE
    lengths_of_rest: list[Length] = NONE
    # by turn
    passes: list[Tokens] = NONE
    new_tokens: list[Tokens] = NONE
    token_ids: list[Any] = NONE


def read_counts(facts: Facts) -> Counts:
    """`Counts` of facts. ValueError names what came and what is allowed."""
    try:
        return Counts.model_validate(facts)
    except ValidationError as error:
        one = error.errors()[0]
        raise ValueError(f"{one['loc'][0]}={brief(one['input'])}: {one['msg']}") from None


def known(*values: float) -> float:
    """The first value that is said, NaN if none is."""
    return next((value for value in values if not isnan(value)), nan)


def drafts_of(counts: Counts) -> float:
    """How many drafts the counts of tokens stand for: by the length of a draft, if this fits the
    mean, else by the mean, which gives the tokens per pass within 0.005. NaN: nothing says it.
    """
    drafts = counts.drafted / (len(counts.shares) or counts.length or nan)
    # before vLLM #17908 the mean left the target's token out
    off = remainder(counts.accepted / (drafts or nan) - counts.mean, 1)
    if drafts % 1 == 0 and not abs(off) > 0.006:
        return drafts
    return counts.accepted / (counts.mean - 1) if counts.mean > 1 and counts.accepted else nan


def count_kinds(counts: Counts, drafts: float, accepted: float) -> Array:
    """Drafted tokens (NaN: not said), accepted tokens and number of each kind of pass, [3, kinds],
    from a histogram (dense, sparse, or for each length of a draft) or from shares by position. No
    kinds if there is neither, or if they do not add up to the totals. Drafts have one length if
    this explains all drafted tokens.
    """
    cells, slack = counts.histogram, 0.01
    if counts.shares:
        reached = [drafts, *(drafts * share for share in counts.shares), 0]
        cells = [one - after for one, after in pairwise(reached)]
        slack = 0.5 + 0.0006 * len(cells) * drafts  # of three decimals
    length = known(counts.length, len(cells) - 1)
    if abs(counts.drafted - length * drafts) > 0.5:
        length = nan
    kinds: list[Any] = []
    tables: dict[Any, Any] = {**counts.by_length} or {length: cells}
    for drafted, table in tables.items():
        pairs = table.items() if isinstance(table, dict) else enumerate(table)
        kinds += [(float(drafted), float(one), number) for one, number in pairs if number > 0]
    lengths, deep, passes = found = np.reshape(kinds, (-1, 3)).T
    is_right = np.allclose([passes.sum(), deep @ passes], [drafts, accepted], 0, slack)
    is_right &= not (deep > lengths).any()
    return found[:, : len(kinds) * is_right]


# ---- answers -------------------------------------------------------------------------------------


def answers_of(found: Found) -> list[Answer]:
    """The answers of what was found: none if nothing was drafted, or if the number of passes is not
    said. ValueError names the place.
    """
    where = f"{found.place}, {found.path}".removesuffix(", ")
    try:
        counts = read_counts(found.facts)
        name = str(counts.name or f"{found.path}, {found.place}".removeprefix(", "))
        domain = str(counts.domain or UNKNOWN)
        if ABOUT[found.format] == SETTINGS:
            if counts.mean < 1 or counts.mean > counts.length + 1:
                raise ValueError(
                    f"{counts.mean:g} tokens per pass: it is at least 1, and at most K + 1"
                )
            name = f"K = {counts.length:.0f}, {name}".removeprefix("K = nan, ")
            name = domain = name[:LONGEST_NAME]
        request = {"prompt_id": PREFIX.sub("", name), "domain": domain}
        request |= {"part": found.part, "where": f"{where}: "}
        read = read_turns if counts.passes else read_request
        return [*read(counts, request)]
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def read_request(counts: Counts, request: Facts) -> Iterator[Answer]:
    """The answer of one request, some lines or one setting.

    The prompt's own pass gives an answer's first token (not in this kit, which keeps token_ids).
    vLLM counts no pass without a draft, so tokens that are left came one by one. llama.cpp gives no
    number of passes: each gave one token more than it accepted.
    """
    steps, before = counts.steps, 1
    if steps:
        if not counts.tried:
            raise ValueError(
                "it has no drafted_per_step, because an earlier version of the kit decoded it: "
                "decode the prompts again (decode --force)"
            )
        totals = len(steps), sum(steps), sum(counts.tried)
        said = counts.drafts, counts.accepted, counts.drafted
        if said not in (totals, (nan, nan, nan)):
            raise ValueError("per_step_accepted and per_step_drafted do not add up to the totals")
        counts.drafts, counts.accepted, counts.drafted = totals
    if counts.token_ids:
        before, counts.tokens = 0, len(counts.token_ids)
    emitted = known(counts.emitted, max(counts.tokens - before, 0))
    drafts = known(counts.drafts, drafts_of(counts))
    by_mean = known(drafts, 1) * (counts.mean - 1)
    accepted = known(counts.accepted, max(emitted - drafts, 0), by_mean)
    # a mean alone stands for one pass
    drafts = known(drafts, emitted - accepted, 1 if isnan(counts.accepted) else nan)
    emitted = known(emitted, accepted + drafts)
    if accepted > counts.drafted:
        raise ValueError(
            f"{accepted:,.0f} of {counts.drafted:,.0f} drafted tokens are accepted: at most all are"
        )
    if not accepted + drafts + emitted > 0:
        return
    most = known(counts.drafted, accepted)
    if not (accepted > 0) <= drafts <= emitted + 1 or not accepted <= most <= LONGEST * drafts:
        raise ValueError(
            f"{accepted:,.0f} of {most:,.0f} drafted tokens are accepted, in {drafts:,.0f} passes "
            f"and {emitted:,.0f} tokens: no more are accepted than drafted, a pass gives a token, "
            f"and a draft has {LONGEST:,} at most"
        )
    plain = max(emitted - accepted - drafts, 0)
    if steps:
        tokens = int(emitted) + before
        facts = {"accepted": steps, "drafted": counts.tried, "tokens": tokens, "before": before}
    else:
        kinds = count_kinds(counts, drafts, accepted)
        if kinds.size and plain:
            kinds = np.c_[kinds, (0, 0, plain)]
        facts = dict(zip(("drafted", "accepted", "blocks"), kinds, strict=True))
        facts["totals"] = drafts + plain, counts.drafted, accepted, emitted
    yield Answer(plain=int(plain), context=counts.context, **request, **facts)


def read_turns(counts: Counts, request: Facts) -> Iterator[Answer]:
    """The answers of a question of Spec-Bench or a fork: accept_lengths of all turns in a row, cut
    by decoding_steps; each length counts the target's own token. REST writes a colon into the name,
    and `idxs` for the steps. EAGLE and Medusa have no lengths. Several methods count the steps from
    0 (EAGLE, REST, Token Recycling).
    """
    lengths = counts.lengths_of_rest or counts.lengths
    is_from_0 = not lengths or sum(counts.passes) + len(counts.passes) == len(lengths)
    steps = [count + is_from_0 for count in counts.passes]
    if len(steps) != len(counts.new_tokens) or (lengths and sum(steps) != len(lengths)):
        raise ValueError(
            f"decoding_steps (or idxs) adds up to {sum(steps)} in {len(steps)} turns, and "
            f"accept_lengths has {len(lengths)} entries, new_tokens {len(counts.new_tokens)}"
        )
    if 0 in lengths:
        raise ValueError("accept_lengths has 0: each length counts the target's own token")
    rest = iter(lengths)
    for turn, (count, emitted) in enumerate(zip(steps, counts.new_tokens, strict=True)):
        accepted = [length - 1 for length in islice(rest, count)]
        facts = request | {"turn": turn, "accepted": accepted, "tokens": emitted}
        if not lengths:
            facts["totals"] = count, nan, max(emitted - count, 0), emitted
        elif counts.lengths_of_rest and sum(accepted) + count == emitted - 1:
            accepted[0] += 1  # REST's first length leaves one token out
        if count:
            yield Answer(**facts)


# ---- objects -------------------------------------------------------------------------------------

HOLDERS = ["usage", "timings", "metadata", "meta_info"]  # objects that speak of the record
NESTED = (dict, list)
DEEPEST = 50  # objects around what is found


def find_objects(
    value: Any, place: str, path: str = "", outer: Facts | None = None, part: str = ""
) -> Iterator[Found]:
    """What a JSON value holds: the outermost objects of a format. outer: what the objects around it
    say; path, part: as of `Found`.
    """
    if path.count("[") + path.count(".") > DEEPEST:
        return
    outer, said = outer or {}, {}
    items: Any = enumerate(value)
    if isinstance(value, dict):
        items = value.items()
        said = {name: one for name, one in items if not isinstance(one, NESTED)}
        outer = outer | said
        for held in map(value.get, HOLDERS):
            outer |= held if isinstance(held, dict) else {}
        if not SIGNS.keys().isdisjoint(value):
            kind = next(SIGNS[sign] for sign in SIGNS if sign in value)
            # llama.cpp leaves the counts out where nothing was drafted
            assumed = {"draft_n": 0, "draft_n_accepted": 0} if kind == "llamacpp" else {}
            facts = {name: one for name, one in (outer | value).items() if one is not None}
            yield Found(kind, assumed | facts, place, path, part)
            return
    for name, one in items:
        inside, run = f"{path}[{name}]", part
        if isinstance(value, dict):
            inside = f"{path}.{name}".removeprefix(".")
            if isinstance(one, list) and len(one) > 1:
                run = re.sub("[{}']", "", f"{name}: {said}")[:LONGEST_NAME].strip(" :,")
        if isinstance(one, NESTED):
            yield from find_objects(one, place, inside, outer, run)


# ---- lines of text -------------------------------------------------------------------------------

# what a line says, under names of `Counts`; llama.cpp has some of it on the lines before
PATTERNS = {
    "num_accepted_tokens": r"Accepted: +(\d+) tokens|(?:Accepted |num_accepted_)tokens: +(\d+)"
    r"|(\d+) accepted +/|(?:n_accept|#acc tokens) *= *(\d+)",
    "num_draft_tokens": r"Drafted: +(\d+) tokens|[Dd]raft[ _]tokens: +(\d+)|(\d+) generated"
    r"|(?:n_drafted|#gen tokens) *= *(\d+)",
    "num_drafts": r"(?:Drafts|num_drafts):? +(\d+)|#gen drafts *= *(\d+)",
    "#running-req": r"#running-req: *(\d+)",
    "emitted_tokens": r"emitted tokens: *(\d+)",
    "accept_length": r"(?:[Aa]ccept(?:ance)? len(?:gth)?|mean len|mean acc len) *[:=] *([\d.]+)",
    "num_spec_tokens": r"(?:speculative tokens|speculative depth|n_draft|"
    r"num_spec(?:ulative)?_tokens\W?) *[:=] *(\d+)",
    "completion_tokens": r"(?<!prompt )eval time =.*?/ *(\d+) tokens|n_predict *= *(\d+)",
    "per_pos": r"(?:er.position acceptance rate|rate per position|acc rate/pos) *[:=]"
    r" *\(?([\d., ]+)",
}
# which line completes an entry, by format
MARK = re.compile(
    r"(?P<vllm_log>SpecDecoding metrics:)|(?P<sglang_log>Decode batch.*accept len)"
    r"|(?P<llamacpp_log>\d accepted +/|n_accept *=)|(?P<vllm_totals>Speculative metrics:)"
    r"|(?P<settings>(?:Accepted |num_accepted_)tokens: +\d)"
    r"|(?P<llamacpp_totals>statistics +(?P<drafter>\S+):)"
)
NUMBER = re.compile(r"\d+(?:\.\d+)?")
SERIES = re.compile(
    r"(?m)^\w+?[:_]spec_decode_(num_drafts|num_draft_tokens|num_accepted_tokens)(?:_per_pos)?"
    r'(?:_total)?(?:\{((?:.*position="(\d+)")?.*)\})? +([-+.\w]+)'
)


def find_lines(text: str, name: str, length: str) -> Iterator[Found]:
    """What a server's log holds. length: tokens per draft, where the lines do not say it."""
    seen: Facts = {"num_spec_tokens": float(length)} if length else {}
    totals = {}
    for number, line in enumerate(text.split("\n"), 1):
        line = line[:LONGEST_LINE]
        for field, pattern in PATTERNS.items():
            if found := re.search(pattern, line):
                numbers = [float(one) for one in NUMBER.findall(found[found.lastindex or 0])]
                seen[field] = numbers if field == "per_pos" else numbers[0]
        mark = MARK.search(line)
        if mark is None:
            continue
        kind = str(mark.lastgroup).replace("_", "-")
        if kind != "sglang-log" and "num_draft_tokens" not in seen:
            seen = {}  # a line that is cut
        one = Found(kind, seen | {"domain": mark["drafter"] or ""}, f"{name}, line {number}")
        if kind.endswith("totals"):  # since the server began: the last line counts
            totals[mark["drafter"]] = one
        else:
            yield one
        seen = {field: one for field, one in seen.items() if field == "num_spec_tokens"}
    yield from totals.values()


def find_scrapes(text: str, names: str) -> Iterator[Found]:
    """What Prometheus text counts: since the server began, or from the first to the last of several
    scrapes. Models and engines count together.
    """
    series = defaultdict(list)
    for name, labels, position, value in SERIES.findall(text):
        series[position or name, labels].append(float(value))
    total: dict[str, Any] = defaultdict(float)
    for (name, _), values in series.items():
        before = values[0] if len(values) > 1 else 0
        total[name] += values[-1] - before
    if any(number < 0 for number in total.values()):
        raise ValueError(f"{names}: a counter fell, so the server began again between the scrapes")
    if total["num_drafts"]:
        drafts = total["num_drafts"]
        positions = [place for place in map(str, range(LONGEST)) if place in total]
        total["per_pos"] = [total[place] / drafts for place in positions]
        yield Found("prometheus", total, names)


# ---- files ---------------------------------------------------------------------------------------

BETWEEN = re.compile(r"(?:\s|data:|\[DONE\])*")  # JSON values, in a stream too
IS_JSON = re.compile(r"\s*(?:data:)?\s*(?:\{|\[\s*[\[{\"])")
TABLES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")


def text_of(path: Path) -> str:
    """The text of a file, plain or gzip. ValueError if it is no regular file, damaged, or has
    more than LONGEST_TEXT bytes.
    """
    try:
        content = content_of(path)
        if content.startswith(b"\x1f\x8b"):
            content = gzip.GzipFile(fileobj=BytesIO(content)).read(LONGEST_TEXT)
        if len(content) >= LONGEST_TEXT:
            raise ValueError(f"it has more than {LONGEST_TEXT:,} bytes")
        return content.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise ValueError(
            f"{path.name} cannot be read ({error}); a log is text in UTF-8, plain or as .gz"
        ) from None


def parse_text(text: str, name: str) -> Iterator[tuple[str, Any]]:
    """(place, value) of what a text holds: YAML, rows of a table, or JSON values, one per line or
    over several lines; nothing for other text. ValueError names the line.
    """
    if name.endswith((".yaml", ".yml")):  # mean tokens per pass by K
        for path, mean in pd.json_normalize({"": parse_yaml(text)}).T[0].items():
            label, _, k = path.strip(".").rpartition(".")
            if k.isdigit():
                yield name, {"label": label, "k": int(k), "accept_length": mean}
    elif name.endswith(TABLES):
        yield from rows_of_table(text, name)
    elif IS_JSON.match(text):
        line, before, end = 1, 0, 0
        while (start := BETWEEN.match(text, end).end()) < len(text):
            line += text.count("\n", before, start)
            before, place = start, f"{name}, line {line}"
            try:
                value, end = JSON.raw_decode(text, start)
            except JSONDecodeError as error:
                raise ValueError(f"{place}: no JSON ({error}); get the file again") from None
            except RecursionError:
                raise ValueError(f"{place}: the JSON is nested too deep") from None
            except ValueError as error:
                raise ValueError(f"{place}: no JSON ({error})") from None
            yield place, value


def rows_of_table(text: str, name: str) -> Iterator[tuple[str, Facts]]:
    """(place, facts) of each row of a table, or of each answer if a row is a pass: it has
    `accepted` and `drafted`, or lengths that count the target's token, too; `step` rises within an
    answer.
    """
    table = pd.read_csv(StringIO(text), sep=None, engine="python")
    table.columns = [column.strip().lower().replace(" ", "_") for column in table]
    lengths = table.filter(["accept_length", "candidate_length"]) - 1
    if lengths.shape[1] == 2:
        table = table.assign(accepted=lengths["accept_length"], drafted=lengths["candidate_length"])
    if "accepted" in table and "drafted" in table:
        is_missing = table[["accepted", "drafted"]].isna().any(axis=1)
        if is_missing.any():
            raise ValueError(f"{name}, row {is_missing.idxmax() + 1}: a count is missing")
        # the steps of an answer rise
        answer = (table.get("step", table.index.to_series()).diff() <= 0).cumsum()
        table = table.groupby(answer)[["accepted", "drafted"]].agg(list).add_prefix("per_step_")
    for number, row in table.iterrows():
        facts = row.dropna().to_dict()
        words = [word for word in facts.values() if isinstance(word, str)]
        label = " ".join(words[::-1])  # the last columns say most
        yield f"{name}, row {number + 1}", {"label": label} | facts


def find_all(paths: Sequence[Path], length: str = "") -> Iterator[Found]:
    """What files hold; a JSON value that holds nothing has the format "", and its own facts."""
    rest = ""
    for path in paths:
        text = text_of(path)
        if not text.strip():
            raise ValueError(f"{path.name} is empty")
        is_read, others = False, []
        for place, value in parse_text(text, path.name):
            objects = [*find_objects(value, place)] if isinstance(value, NESTED) else []
            if objects:
                is_read = True
                yield from objects
            else:
                names = value if isinstance(value, dict) else {type(value).__name__: value}
                others.append(Found("", names, place))
        lines = [] if is_read else [*find_lines(text, path.name, length)]
        rest += "" if is_read or lines else text
        yield from lines or others
    yield from find_scrapes(rest, ", ".join(path.name for path in paths))
