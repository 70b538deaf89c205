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
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from io import BytesIO, StringIO
from itertools import islice, pairwise
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
LONGEST_TEXT, LONGEST_LINE = 2**29, 10**4  # bytes of a file, and characters of a line
REQUESTS, LINES, SETTINGS = "request", "line block", "setting"  # what an entry is about
NAMELESS = "llamacpp-log"  # requests that the server's text does not name
MODEL = "draft model"
# what drafts, by the names that engines give to ways of drafting
METHODS = {
    "heads": "eagle|mtp|medusa|nextn|dflash|dspark|mlp_speculator",
    "copies": "n-?gram|lookup|suffix",
    MODEL: "draft_model|draft-simple|standalone",
}
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
        NAMELESS: "",
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

Number = Annotated[float, Field(ge=0, le=MOST)]
Count = Annotated[Number, Field(multiple_of=1)]
Tokens = Annotated[int, Field(ge=0, le=MOST_TOKENS)]
Length = Annotated[int, Field(ge=0, le=LONGEST)]
# the names that engines use, by our own name
NAMES = {
    "name": "prompt_id question_id x_request_id conversation_id request_id custom_id task_id tag "
    "id rid label run_id",
    "domain": "domain category source_kind",
    "method": "method spec_method speculative_method speculative_algorithm",
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
    method: Any = ""
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
    by_length: dict[str, list[Count]] = NONE
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
    for value in values:  # faster than a generator, which 100,000 requests notice
        if not isnan(value):
            return value
    return nan


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


def count_kinds(counts: Counts, drafts: float, accepted: float) -> tuple[Array, str]:
    """Drafted tokens (NaN: not said), accepted tokens and number of each kind of pass, [3, kinds],
    from a histogram (dense, sparse, or for each length of a draft) or from shares by position. No
    kinds if there is neither, or if they do not add up to the totals; then also what they add up
    to. Drafts have one length if this explains all drafted tokens.
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
    tables: dict[Any, Any] = counts.by_length or {length: cells}
    for drafted, table in tables.items():
        pairs = table.items() if isinstance(table, dict) else enumerate(table)
        kinds += [(float(drafted), float(one), number) for one, number in pairs]
    found = np.reshape(kinds, (-1, 3)).T
    lengths, deep, passes = found = found[:, found[2] > 0]
    sums, totals = (passes.sum(), deep @ passes), (drafts, accepted)
    off = np.abs(np.subtract(sums, totals)).max()
    if not kinds or (off <= slack and not (deep > lengths).any()):
        return found, ""
    said = "{:,.6g} passes and {:,.6g} accepted tokens, and the totals say {:,.6g} and {:,.6g}"
    return found[:, :0], said.format(*sums, *totals)


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
        request = {
            "prompt_id": PREFIX.sub("", name),
            "domain": domain,
            "part": found.part,
            "where": f"{where}: ",
            "method": str(counts.method),
        }
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
        kinds, misfit = count_kinds(counts, drafts, accepted)
        if kinds.size and plain:
            kinds = np.c_[kinds, (0, 0, plain)]
        facts = {"drafted": kinds[0], "accepted": kinds[1], "blocks": kinds[2], "misfit": misfit}
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
# the objects and lists around a value from the outside, each after the name of the next one in it
Around = tuple[tuple[Any, Any], ...]


def find_objects(value: Any, place: str, around: Around = ()) -> Iterator[Found]:
    """What a JSON value holds: the outermost objects of a format."""
    is_object = isinstance(value, dict)
    if is_object and not SIGNS.keys().isdisjoint(value):
        yield found_in(value, place, around)
    elif len(around) < DEEPEST:
        for name, one in value.items() if is_object else enumerate(value):
            if isinstance(one, NESTED):
                yield from find_objects(one, place, (*around, (name, value)))


def found_in(value: Facts, place: str, around: Around) -> Found:
    """An object of a format with what the objects `around` it say."""
    facts: Facts = {}
    path = part = ""
    for name, holder in (*around, ("", value)):
        if isinstance(holder, list):
            path += f"[{name}]"
            continue
        said = {fact: one for fact, one in holder.items() if not isinstance(one, NESTED)}
        for one in (said, *map(holder.get, HOLDERS)):
            facts |= one if isinstance(one, dict) else {}
        if isinstance(one := holder.get(name), NESTED):
            path += f".{name}"
        if isinstance(one, list) and len(one) > 1:
            part = re.sub("[{}']", "", f"{name}: {said}")[:LONGEST_NAME].strip(" :,")
    facts = {fact: one for fact, one in (facts | value).items() if one is not None}
    kind = next(SIGNS[sign] for sign in SIGNS if sign in value)
    # llama.cpp leaves the counts out where nothing was drafted
    assumed = {"draft_n": 0, "draft_n_accepted": 0} if kind == "llamacpp" else {}
    return Found(kind, assumed | facts, place, path.removeprefix("."), part)


# ---- lines of text -------------------------------------------------------------------------------

# what a line says, under names of `Counts`; llama.cpp has some of it on the lines before
PATTERNS = {
    "num_accepted_tokens": r"Accepted: +(\d+) tokens|(?:Accepted |num_accepted_)tokens: +(\d+)"
    r"|\b(\d+) accepted +/|(?:n_accept|#acc tokens) *= *(\d+)",
    "num_draft_tokens": r"Drafted: +(\d+) tokens|[Dd]raft[ _]tokens: +(\d+)|\b(\d+) generated"
    r"|(?:n_drafted|#gen tokens) *= *(\d+)",
    "num_drafts": r"(?:Drafts|num_drafts):? +(\d+)|#gen drafts *= *(\d+)",
    "#running-req": r"#running-req: *(\d+)",
    "emitted_tokens": r"emitted tokens: *(\d+)",
    "accept_length": r"(?:[Aa]ccept(?:ance)? len(?:gth)?|mean len|mean acc len) *[:=] *([\d.]+)",
    "num_spec_tokens": r"(?:speculative tokens|speculative depth|n_draft|"
    r"num_spec(?:ulative)?_tokens\W?) *[:=] *(\d+)",
    "completion_tokens": r"(?<!prompt )eval time = *[\d.]+ ms */ *(\d+) tokens|n_predict *= *(\d+)",
    "per_pos": r"(?:er.position acceptance rate|rate per position|acc rate/pos) *[:=]"
    r" *\(?([\d., ]+)",
    "method": r"(?i)(?:method|speculative[_-]algorithm|spec-type)\W{1,6}"
    rf"((?:draft-)?(?:{'|'.join(METHODS.values())}))",
}
# what each of these lines has; the other lines of a long text are skipped
WORDS = re.compile("ccept|raft|peculative|num_spec|eval time|n_predict|#running|spec-type")
KEPT = ["num_spec_tokens", "method"]  # what the settings say, for all lines after them
# which line completes an entry, by format
MARK = re.compile(
    r"(?P<vllm_log>SpecDecoding metrics:)|(?P<sglang_log>Decode batch)"
    r"|(?P<llamacpp_log>\d accepted +/|n_accept *=)|(?P<vllm_totals>Speculative metrics:)"
    r"|(?P<settings>(?:Accepted |num_accepted_)tokens: +\d)"
    r"|(?P<llamacpp_totals>statistics +(?P<drafter>\S+):)"
)
NUMBER = re.compile(r"\d+(?:\.\d+)?")
SERIES = re.compile(
    r"(?m)^\w+?[:_]spec_decode_(num_drafts|num_draft_tokens|num_accepted_tokens)(?:_per_pos)?"
    r"(?:_total)?(?:\{(.*)\})? +([-+.\w]+)"
)
POSITION, MODEL_NAME = re.compile(r'position="(\d+)"'), re.compile(r'model_name="([^"]*)"')


def find_lines(text: str, name: str, length: str, part: str = "") -> Iterator[Found]:
    """What a server's log holds. length: tokens per draft, where the lines do not say it; part: as
    of `Found`.
    """
    seen: Facts = {"num_spec_tokens": float(length)} if length else {}
    totals = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not WORDS.search(line):
            continue
        line = line[:LONGEST_LINE]
        for field, pattern in PATTERNS.items():
            if found := re.search(pattern, line):
                said = found[found.lastindex or 0]
                numbers = [] if field == "method" else [*map(float, NUMBER.findall(said))]
                seen[field] = numbers if field == "per_pos" else [*numbers, said][0]
        mark = MARK.search(line)
        if mark is None:
            continue
        kind, drafter = str(mark.lastgroup).replace("_", "-"), mark["drafter"]
        needed = "accept_length" if kind == "sglang-log" else "num_draft_tokens"
        facts = seen if needed in seen else {}  # a line that is cut says nothing
        if drafter:
            facts = facts | {"domain": drafter, "method": drafter}
        one = Found(kind, facts, f"{name}, line {number}", part=part or drafter or "")
        if kind.endswith("totals"):  # since the server began: the last line counts
            totals[drafter] = one
        else:
            yield one
        seen = {field: seen[field] for field in KEPT if field in seen}
    yield from totals.values()


def find_scrapes(text: str, names: str) -> Iterator[Found]:
    """What Prometheus text counts of each model: since the server began, or from the first to the
    last of several scrapes. Engines count together.
    """
    series = defaultdict(list)
    for name, labels, value in SERIES.findall(text):
        series[name, labels].append(float(value))
    models: dict[str, Any] = defaultdict(partial(defaultdict, float))
    for (name, labels), values in series.items():
        position, served = POSITION.search(labels), MODEL_NAME.search(labels)
        total = models[served[1] if served else ""]
        before = values[0] if len(values) > 1 else 0
        total[position[1] if position else name] += values[-1] - before
    for model, total in models.items():
        if min(total.values()) < 0:
            raise ValueError(
                f"{names}: a counter fell, so the server began again between the scrapes"
            )
        if drafts := total["num_drafts"]:
            places = map(str, range(LONGEST))
            total["per_pos"] = [total[place] / drafts for place in places if place in total]
            yield Found("prometheus", total, names, part=model)


# ---- files ---------------------------------------------------------------------------------------

BETWEEN = re.compile(r"(?:\s|data:|\[DONE\])*")  # JSON values, in a stream too
IS_JSON = re.compile(r"(?:data:\s*)?(?:\{|\[\s*[\[{\"])")
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
        is_utf16 = content.startswith((BOM_UTF16_LE, BOM_UTF16_BE))  # as PowerShell redirects
        return content.decode("utf-16" if is_utf16 else "utf-8-sig")
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise ValueError(
            f"{path.name} cannot be read ({error}); a log is text in UTF-8 or UTF-16, plain or "
            "as .gz"
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
    elif IS_JSON.match(text.lstrip()):
        line, before, end = 1, 0, 0
        while (start := BETWEEN.match(text, end).end()) < len(text):
            line += text.count("\n", before, start)
            before, place = start, f"{name}, line {line}"
            try:
                value, end = JSON.raw_decode(text, start)
            except RecursionError:
                raise ValueError(f"{place}: the JSON is nested too deep") from None
            except ValueError as error:
                raise ValueError(
                    f"{place}: no JSON ({error}); get the file again, or correct it"
                ) from None
            yield place, value


def rows_of_table(text: str, name: str) -> Iterator[tuple[str, Facts]]:
    """(place, facts) of each row of a table, or of each answer if a row is a pass: it has
    `accepted` and `drafted`, or lengths that count the target's token, too; `step` rises within an
    answer. ValueError names the line.
    """
    table = pd.read_csv(StringIO(text), sep=None, engine="python")
    table.columns = [column.strip().lower().replace(" ", "_") for column in table]
    # as pandas calls a second `column`
    if {f"{column}.1" for column in table} & {*table} or not table.columns.is_unique:
        raise ValueError(f"{name}: two columns have the same name; keep one")
    lines = [number for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    table.index = lines[1 : len(table) + 1]
    counts = table.filter(["accept_length", "candidate_length"])
    own = counts.shape[1] == 2  # the target's token counts
    counts = counts if own else table.filter(["accepted", "drafted"])
    if counts.shape[1] == 2:
        counts = counts.apply(pd.to_numeric, errors="coerce") - own
        accepted, drafted = counts.T.to_numpy()
        for wrong in counts[~(accepted <= drafted)].itertuples():
            raise ValueError(
                f"{name}, line {wrong[0]}: {wrong[1]:g} of {wrong[2]:g} drafted tokens are "
                "accepted: both counts are needed, and at most all are accepted"
            )
        # the steps of an answer rise; its first line names it
        place = table.index.to_series()
        rises = pd.to_numeric(table.get("step", place), errors="coerce").diff() > 0
        counts.columns = ["per_step_accepted", "per_step_drafted"]
        table = counts.groupby(place.mask(rises).ffill().astype(int)).agg(list)
    for line, row in table.iterrows():
        facts = row.dropna().to_dict()
        words = [word for word in facts.values() if isinstance(word, str)]
        label = " ".join(words[::-1])  # the last columns say most
        yield f"{name}, line {line}", {"label": label} | facts


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
        part = path.name if len(paths) > 1 else ""
        lines = [] if is_read else [*find_lines(text, path.name, length, part)]
        rest += "" if is_read or lines else text
        yield from lines or others
    yield from find_scrapes(rest, ", ".join(path.name for path in paths))
