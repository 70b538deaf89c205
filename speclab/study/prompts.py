"""Prompts by domain, and their token ids: the project's own four domains, public sets of the hub,
or a user's file with categories of any names.

Uses only a tokenizer's call and its chat template, and no model. `datasets` is imported only when a
public set is read.
"""

import inspect
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass as checked_dataclass

from speclab.place import ROOT as REPOSITORY
from speclab.place import folder_of
from speclab.plain import DOMAINS as DOMAINS
from speclab.plain import (
    STRICT,
    EncodedPrompt,
    Facts,
    brief,
    content_of,
    digest_of,
    one_line,
    parse_json,
    say_once,
)
from speclab.study.reading import checked, near

# names in tables: the mean over domains, all rows together, and prompts without a known domain
RESERVED = ("all", "pooled", "unknown")
LONGEST_NAME = 60  # characters of a domain's name
MATH_PROMPT = "Solve as a math problem. Show all intermediate steps.\nProblem: {}\nSolution:"
REASONING_PROMPT = "Show your reasoning step by step.\nQ: {}\nA:"
# the words around every problem of these domains; code and chat have none
WRAPPERS = (MATH_PROMPT, REASONING_PROMPT)
WITH_WORDS = ("math", "reasoning")
PROJECT_PROMPTS, SECOND_PROMPTS, TRAINING_PROMPTS = (
    REPOSITORY / "data" / name for name in ("prompts", "second_prompts", "training_prompts")
)
# "unwrapped": the project's prompts without the words around their problems
OWN_SETS = {"project": PROJECT_PROMPTS, "unwrapped": PROJECT_PROMPTS, "second": SECOND_PROMPTS}
# the domain of each category of MT-Bench
DOMAIN_OF = {
    "coding": "code",
    "math": "math",
    "reasoning": "reasoning",
    **dict.fromkeys(("writing", "roleplay", "extraction", "humanities", "stem"), "chat"),
}
# for templates that write a date, so that texts do not depend on the day: as the variable that
# some read, and as the function that others call. (transformers takes no function from us.)
TODAY = date(2024, 7, 26)
DATE = "26 Jul 2024"
DATE_PARTS = "".join(f"|replace('%{c}', '{TODAY.strftime(f'%{c}')}')" for c in "aAbBdjmyYHIMSp")
STRFTIME = (
    "{%- macro strftime_now(format) -%}"
    f"{{{{ format|replace('%-', '%'){DATE_PARTS} }}}}"
    "{%- endmacro %}\n"
)
# environment variable: a folder with copies of the hub sets, <folder>/<owner>/<name>
MIRROR = "SPECLAB_DATASETS"


@dataclass(frozen=True)
class Prompt:
    """One prompt: an id that is unique in its set, the name of its domain, and the exact text for
    the tokenizer.

    messages: (role, content) of each turn of a conversation; `text` is then the text of the last
    turn, which is the user's or a tool's answer.
    """

    prompt_id: str
    domain: str
    text: str
    messages: tuple[tuple[str, str], ...] = ()


_Words = Annotated[str, Field(pattern=r"\S")]


@checked_dataclass(config=STRICT)
class _Message:
    """A turn of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: _Words


@checked_dataclass(config=STRICT)
class _Row:
    """A line of a file of prompts: a `prompt`, or `messages` that end with the turn of the user or
    of a tool.
    """

    prompt_id: Annotated[str, Field(min_length=1)]
    prompt: _Words | None = None
    messages: Annotated[list[_Message], Field(min_length=1)] | None = None
    domain: str = ""

    def __post_init__(self) -> None:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("needs exactly one of prompt and messages")
        if self.messages and self.messages[-1].role not in ("user", "tool"):
            raise ValueError(
                f"messages end with role {self.messages[-1].role!r}, but the last turn must be "
                "user or tool, because the target answers it"
            )


@checked_dataclass(config=STRICT)
class _Question:
    """A line of MT-Bench's or Spec-Bench's own file."""

    question_id: int
    category: Annotated[str, Field(min_length=1)]
    turns: Annotated[list[str], Field(min_length=1)]
    reference: list[str] = Field(default_factory=list)


@dataclass(frozen=True)
class HubSet:
    """The source of one domain of a set, as `datasets` names it; `text` makes a prompt of a row, ""
    of a row without one.
    """

    hub: str
    config: str | None
    split: str
    revision: str
    text: Callable[[Facts], str]
    streaming: bool = False


@checked_dataclass(frozen=True, config=STRICT)
class HubPrompts:
    """Prompts that a profile takes from a set of the hub: the rows of one split at one commit.

    column: their texts. domain: the column with the name of each row's domain; None: one domain,
    with the name of the set.
    """

    hub: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")]
    revision: str
    split: _Words
    column: _Words
    config: _Words | None = None
    domain: _Words | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9a-f]{40}", self.revision):
            raise ValueError(
                f"revision={self.revision!r}: a commit with its 40 hexadecimal digits is needed, "
                "because a branch or a tag may change; copy it from the history of the set's page"
            )

    def __str__(self) -> str:
        return self.hub


def _first_user_message(row: Facts) -> str:
    """The first message of the user; "" if it has fewer than ten characters."""
    for message in row["messages"]:
        if message["role"] == "user":
            text = message["content"].strip()
            return text if len(text) >= 10 else ""
    return ""


def _first_turn(domain: str) -> Callable[[Facts], str]:
    """How a row of MT-Bench becomes a prompt of this domain."""
    return lambda row: row["prompt"][0] if DOMAIN_OF[row["category"]] == domain else ""


# Source: arXiv:2604.14682 and the authors' loaders; rows in the order of the set. UltraChat has
# 200,000 rows and we need the first ones, so it is streamed. The paper names no revisions; these
# are pinned in many public lock files and were current in 2025.
PAPER_SETS = {
    "code": HubSet(
        "openai/openai_humaneval",
        "openai_humaneval",
        "test",
        "7dce6050a7d6d172f3cc5c32aa97f52fa1a2e544",
        lambda row: row["prompt"],
    ),
    "math": HubSet(
        "EleutherAI/hendrycks_math",
        "algebra",
        "test",
        "21a5633873b6a120296cce3e2df9d5550074f4a3",
        lambda row: MATH_PROMPT.format(row["problem"]),
    ),
    "reasoning": HubSet(
        "openai/gsm8k",
        "main",
        "test",
        "740312add88f781978c0658806c59bc2815b9866",
        lambda row: REASONING_PROMPT.format(row["question"]),
    ),
    "chat": HubSet(
        "HuggingFaceH4/ultrachat_200k",
        None,
        "train_sft",
        "8049631c405ae6576f93f445c6b8166f76f5505a",
        _first_user_message,
        streaming=True,
    ),
}
MT_BENCH = {
    domain: HubSet(
        "HuggingFaceH4/mt_bench_prompts",
        None,
        "train",
        "e3a795c5e9a82ee40611c416b8a7786c73198991",
        _first_turn(domain),
    )
    for domain in DOMAINS
}
GSM8K = replace(PAPER_SETS["reasoning"], text=lambda row: row["question"])
# public sets by name: the source of each domain, without the paper's wrapper
HUB_SETS: dict[str, dict[str, HubSet]] = {
    "paper": PAPER_SETS,
    "humaneval": {"code": PAPER_SETS["code"]},
    "gsm8k": {"reasoning": GSM8K},
    "mt-bench": MT_BENCH,
}
SETS = (*OWN_SETS, *HUB_SETS)
PER_DOMAIN = 50  # default number of prompts per domain of a public set, as in the paper


def read_prompts(path: Path | str, needs_domain: bool = True) -> list[Prompt]:
    """Prompts of a .jsonl file, or of every .jsonl file of a folder in order of name.

    A line is an object with exactly `prompt_id`, `domain` (any name, see `check_domain`) and
    either `prompt` or `messages` (`role`, `content`). Lines of MT-Bench's and Spec-Bench's own
    files are read too (`question_id`, `category`, `turns`, whose first turn is used). Blank lines
    are skipped. ValueError, with file and line, for broken JSON, a missing, unknown or empty field,
    a name that cannot be a domain, or an id that occurs twice.
    needs_domain: False allows lines without a domain (it is "" then).
    """
    path = Path(path)
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files or not os.path.exists(files[0]):
        raise ValueError(
            f"no prompts at {path}, beside the profile or in the working folder; use "
            f"{', '.join(SETS)}, an existing .jsonl file, or a folder with such files"
        )
    prompts: dict[str, Prompt] = {}
    spelled: dict[str, str] = {}  # each domain as it was written first
    for file in files:
        for number, line in enumerate(content_of(file).splitlines(), start=1):
            if not line.strip():
                continue
            where = f"{file}, line {number}"
            try:
                values = parse_json(line)
            except ValueError as error:
                raise ValueError(f"{where}: not valid JSON ({error}); correct the line") from None
            if isinstance(values, dict) and "turns" in values:  # a line of MT-Bench or Spec-Bench
                asked = checked(_Question, values, where)
                name = f"{asked.category}-{asked.question_id}"
                values = {"prompt_id": name, "domain": asked.category, "prompt": asked.turns[0]}
            # what a single line cannot show: names and ids of the whole set
            row = checked(_Row, values, where, of_json=True)
            if row.domain or needs_domain:
                check_domain(row.domain, spelled, where)
            if row.prompt_id in prompts:
                raise ValueError(f"{where}: prompt_id {row.prompt_id!r} occurs twice; rename one")
            messages = row.messages or ()
            turns = tuple((one.role, one.content) for one in messages)
            text = row.prompt or turns[-1][1]
            prompts[row.prompt_id] = Prompt(row.prompt_id, row.domain, text, turns)
    return list(prompts.values())


def check_domain(name: str, spelled: dict[str, str], where: str) -> None:
    """ValueError for a name that a table cannot show: missing, too long, not printable, in
    RESERVED, or different from an earlier name in case or spaces only.
    """
    folded = " ".join(name.casefold().split())
    is_shown = folded and len(name) <= LONGEST_NAME and name.isprintable()
    if not is_shown or folded in RESERVED:
        raise ValueError(
            f"{where}: domain={brief(name)}: allowed are 1 to {LONGEST_NAME} printable characters, "
            f"and not {', '.join(RESERVED)} (tables use these for totals); choose another name"
        )
    first = spelled.setdefault(folded, name)
    if first != name:
        raise ValueError(
            f"{where}: domain={brief(name)}: it differs from {first!r} in case or spaces only; use "
            "one spelling"
        )


def strip_wrapper(text: str) -> str:
    """A prompt without the wrapper, the words around every problem of its domain."""
    for wrapper in WRAPPERS:
        head, tail = wrapper.split("{}")
        text = text.removeprefix(head).removesuffix(tail)
    return text


def _hub_prompts(hub_set: HubSet, domain: str) -> Iterator[Prompt]:
    """A public set's prompts of a domain, in order, from the hub, or only from the mirror if one is
    named. Ids are as `code-HumanEval/0`, `math-0`, `chat-writing-0`: the set's own ids, or category
    and row, counted from 0.
    """
    with _set_of_hub(hub_set) as load:
        for index, row in enumerate(load(streaming=hub_set.streaming)):
            if text := hub_set.text(row):
                place = f"{row['category']}-{index}" if "category" in row else index
                yield Prompt(f"{domain}-{row.get('task_id', place)}", domain, text)


@contextmanager
def _set_of_hub(source: HubSet | HubPrompts) -> Iterator[Callable[..., Any]]:
    """How to load a set from the hub, or only from the mirror if one is named. ValueError, with
    what to do, if reading it fails inside the context.
    """
    from datasets import load_dataset

    name = location = source.hub
    pinned: str | None = source.revision
    if mirror := folder_of(MIRROR):
        location, pinned = str(mirror.absolute() / name), None
    elif os.path.exists(name):  # it would be read instead, whatever the commit
        raise ValueError(f"{name} is also a file or folder here; work in another folder")
    try:
        yield partial(load_dataset, location, source.config, split=source.split, revision=pinned)
    # the hub client has many kinds of errors; none of them says what to do
    except Exception as error:
        said = one_line(f"{type(error).__name__}: {error}").rstrip(".")
        raise ValueError(
            f"{name} cannot be read from {location}: {said}. Check config, split, revision and the "
            f"network, or set {MIRROR} to a folder with copies, <folder>/<owner>/<name>"
        ) from error


@lru_cache(maxsize=8)  # each kind of run asks for them
def _named_prompts(source: HubPrompts, mirror: Path | None) -> list[Prompt]:
    """All prompts of a set that a profile names, in order, with ids as `chat-7` (domain and row,
    from 0). Rows without text are left out. mirror: where MIRROR is. ValueError if it cannot be
    read, for a cell that is no text, and for a name that cannot be a domain.
    """
    columns = [source.column, *filter(None, [source.domain])]
    with _set_of_hub(source) as load:
        rows = load().select_columns(columns)
    prompts, spelled = [], dict[str, str]()
    for index, row in enumerate(rows):
        where = f"{source}, row {index}"
        text = row[source.column] or ""
        domain = row[source.domain] if source.domain else source.hub.partition("/")[2]
        if not (isinstance(text, str) and isinstance(domain, str)):
            raise ValueError(f"{where}: {brief(row)} is no text; name columns of texts")
        check_domain(domain, spelled, where)
        if text.strip():
            prompts.append(Prompt(f"{domain}-{index}", domain, text))
    return prompts


def load_prompts(
    source: str | Path | HubPrompts,
    per_domain: int | None = None,
    domains: Sequence[str] | None = None,
) -> list[Prompt]:
    """The first `per_domain` prompts, at most, of each of `domains`, domain by domain.

    source: one of SETS: "project" (data/prompts), "unwrapped" (the same `strip_wrapper`),
    "second" (data/second_prompts), "paper" (the four hub sets of arXiv:2604.14682, exact text and
    order) and the other HUB_SETS, read from the hub, or from the folder that SPECLAB_DATASETS
    names; HubPrompts, read in the same way; or a .jsonl file or folder for `read_prompts`, relative
    to the repository. per_domain: None takes all (from the hub PER_DOMAIN). domains: None takes
    all, in order of appearance (those of SETS in the order of DOMAINS). Raises ValueError if a set
    cannot be read, holds no prompt, or lacks one of `domains`.
    """
    # the prompts that the source holds, by domain in order
    hub_sets = HUB_SETS.get(str(source), {})
    offered: dict[str, Iterable[Prompt]] = {
        domain: _hub_prompts(hub_set, domain) for domain, hub_set in hub_sets.items()
    }
    if hub_sets or isinstance(source, HubPrompts):
        per_domain = per_domain or PER_DOMAIN
    if not hub_sets:
        if isinstance(source, HubPrompts):
            known = _named_prompts(source, folder_of(MIRROR))
        else:
            known = read_prompts(OWN_SETS.get(str(source), REPOSITORY / source))
        if source == "unwrapped":
            known = [replace(prompt, text=strip_wrapper(prompt.text)) for prompt in known]
        names = dict.fromkeys(prompt.domain for prompt in known)
        here = sorted(names, key=DOMAINS.index) if source in SETS else names
        offered = {name: [one for one in known if one.domain == name] for name in here}
    if not offered:
        raise ValueError(f"prompts {str(source)!r} hold no prompt; add one JSON line per prompt")
    # the first prompts of each domain that is asked for
    chosen: list[Prompt] = []
    for domain in offered if domains is None else domains:
        if domain not in offered:
            raise ValueError(
                f"prompts {str(source)!r} have no domain {domain!r}: {near(domain, offered)}"
            )
        chosen += islice(offered[domain], per_domain)
    return chosen


def training_prompts(
    per_domain: int, seed: int = 0, domains: Sequence[str] = DOMAINS
) -> list[Prompt]:
    """The first `per_domain` composed prompts of a seed (data/training_prompts), on which drafts
    were trained or are calibrated. `python -m data.training_prompts.compose SEED` writes others.
    """
    return load_prompts(TRAINING_PROMPTS / f"seed-{seed}.jsonl", per_domain, domains)


def decoded_prompts(
    prompts: Sequence[Any], per_domain: int, first: int = 0, least: int = 0
) -> list[Any]:
    """The prompts (anything with a `domain`) that are decoded for real if not all are: `per_domain`
    of each domain, evenly spaced over its prompts from number `first` (from 0), with domains in
    order of appearance. A domain with fewer prompts gives its last ones. If that is fewer than
    `least` in total, each domain gives more, until there are `least`, or all.
    """
    of_domain: dict[str, list[Any]] = {}
    for prompt in prompts:
        of_domain.setdefault(prompt.domain, []).append(prompt)
    sizes = [*map(len, of_domain.values())]
    while sum(min(size, per_domain) for size in sizes) < min(least, len(prompts)):
        per_domain += 1
    chosen = []
    for known in of_domain.values():
        count = min(per_domain, len(known))
        start = min(first, len(known) - count)
        left = known[start:]
        size = len(left)
        middles = [(2 * k + 1) * size // (2 * count) for k in range(count)]  # of equal parts
        chosen += [left[middle] for middle in middles]
    return chosen


def prompts_digest(prompts: Iterable[Prompt]) -> str:
    """SHA-256 (hex) of ids, domains, texts and messages in order, for manifests and run keys: equal
    exactly if the prompt sets are equal.
    """
    rows = [[p.prompt_id, p.domain, p.text, *filter(None, [p.messages])] for p in prompts]
    return digest_of(rows)


def encode_prompts(
    tokenizer: Any,
    prompts: Iterable[Prompt],
    max_tokens: int,
    template: str = "none",
    truncate: bool = False,
    system: str | None = None,
    arguments: Facts | None = None,
) -> list[EncodedPrompt]:
    """Token ids of each prompt, at most `max_tokens` of them.

    template: "none" = the unchanged text, with the special tokens that the tokenizer adds (as in
    the paper); "chat" = the tokenizer's chat template around the text as one user message, or
    around the prompt's messages, ready for the answer. A longer prompt without a template keeps its
    first `max_tokens` tokens, like the authors' right truncation. With a template it is refused,
    or, with `truncate`, its last message is cut at the end. `cut` counts the removed tokens.
    system: a system message before every prompt. arguments: further variables of the template.
    ValueError for a tokenizer without a chat template, a template that fails, messages without a
    template, a prompt without tokens, a second system message, or what the template ignores.
    """
    arguments = arguments or {}
    of_call = {*inspect.signature(tokenizer.apply_chat_template).parameters, "messages"}
    if taken := arguments.keys() & of_call - {"tools", "documents"}:
        raise ValueError(
            f"template_arguments: {', '.join(sorted(taken))}: the kit or transformers sets this, "
            "and no template; omit it"
        )
    if system is not None:
        prompts = [_with_system(prompt, system) for prompt in prompts]
    encoded, read = [], []
    for prompt in prompts:
        try:
            kept = ids = _ids(tokenizer, prompt, template, arguments)
        # a template is a program, which can raise any error
        except Exception as error:
            raise ValueError(
                f"{tokenizer.name_or_path}: template {template!r} fails on prompt "
                f"{prompt.prompt_id!r} ({type(error).__name__}: {error}); correct the "
                "chat_template or the prompt, or set another template (none, chat)"
            ) from error
        # a cut end of a template would be another prompt, so a message is shortened instead
        if template == "chat" and len(ids) > max_tokens:
            if not truncate:
                raise ValueError(
                    f"prompt {prompt.prompt_id!r} has {len(ids)} tokens with the chat template, "
                    f"but max_prompt_tokens is {max_tokens}; raise it, shorten the prompt, or set "
                    "truncate: true, which cuts the end of the message"
                )
            kept = _shortened(tokenizer, prompt, max_tokens, arguments)
        kept = kept[:max_tokens]
        cut = len(ids) - len(kept)
        encoded.append(EncodedPrompt(prompt.prompt_id, prompt.domain, tuple(kept), cut))
        read.append((prompt, ids))
    if template == "chat":
        _check_read(tokenizer, read, arguments)
    # a text may hold what is added as well, as a template or its beginning
    special = tuple(tokenizer.all_special_tokens)
    twice = [
        prompt.prompt_id
        for prompt, ids in read
        if prompt.text.startswith(special) and (template == "chat" or ids[:1] == ids[1:2])
    ]
    if twice:
        say_once(
            f"{len(twice)} of {len(encoded)} prompts, such as {twice[0]!r}, begin with a "
            "special token, and get another before it; unless you mean this, remove it, or set "
            "template: none for prompts that hold the template"
        )
    return encoded


def _with_system(prompt: Prompt, words: str) -> Prompt:
    """A prompt after this system message. ValueError if it has one of its own."""
    turns = prompt.messages or (("user", prompt.text),)
    if "system" in dict(turns):
        raise ValueError(
            f"prompt {prompt.prompt_id!r} has a system message of its own; remove that message, or "
            "omit `system`"
        )
    return replace(prompt, messages=(("system", words), *turns))


def _check_read(tokenizer: Any, read: Sequence[tuple[Prompt, list[int]]], given: Facts) -> None:
    """ValueError for a role or an argument that the chat template ignores: no prompt changes with
    it. read: prompts with their token ids.
    """

    def is_same(ids: list[int], prompt: Prompt, arguments: Facts) -> bool:
        """Whether a prompt has these token ids; a template that fails has read something."""
        with suppress(Exception):
            return _ids(tokenizer, prompt, "chat", arguments) == ids
        return False

    others: dict[str, list[Any]] = {}  # what `is_same` takes, by what may be ignored
    for role in ("system", "tool"):  # each prompt with other words of this role
        for prompt, ids in read:
            if role in dict(prompt.messages):
                turns = tuple((one, words + "." * (one == role)) for one, words in prompt.messages)
                changed = replace(prompt, messages=turns)
                others.setdefault(f"messages of role {role}", []).append((ids, changed, given))
    for name in given:  # each prompt without this argument
        fewer = {other: value for other, value in given.items() if other != name}
        others[f"template_arguments: {name}"] = [(ids, prompt, fewer) for prompt, ids in read]
    for what, variants in others.items():
        if all(is_same(*variant) for variant in variants):
            raise ValueError(
                f"{tokenizer.name_or_path}: its chat template ignores {what} (no prompt's tokens "
                "change with it); omit it"
            )


def _ids(tokenizer: Any, prompt: Prompt, template: str, arguments: Facts) -> list[int]:
    """Token ids of a prompt. ValueError if there are none, for a tokenizer without a chat template,
    and for messages without a template.
    """
    ids: list[int]
    turns = prompt.messages or (("user", prompt.text),)
    if template == "chat":
        messages = [{"role": role, "content": content} for role, content in turns]
        given = {"add_generation_prompt": True, "date_string": DATE} | arguments
        written = tokenizer.get_chat_template(tools=given.get("tools"))
        if "strftime_now" in written:
            given["chat_template"] = STRFTIME + written
        ids = tokenizer.apply_chat_template(messages, return_dict=False, **given)
    elif prompt.messages:
        raise ValueError("only a chat template can join its messages; set template: chat")
    else:
        ids = tokenizer(prompt.text)["input_ids"]
    if not ids:
        raise ValueError("the prompt has no tokens")
    return ids


def _shortened(tokenizer: Any, prompt: Prompt, max_tokens: int, arguments: Facts) -> list[int]:
    """Token ids of a prompt with its chat template, whose last message is cut at the end so that
    the number of tokens is at or just below the limit. ValueError if the rest alone is longer.
    """
    *before, (role, words) = prompt.messages or (("user", prompt.text),)

    def ids(count: int) -> list[int]:
        """Token ids with this many characters of the last message."""
        turns = (*before, (role, words[:count]))
        return _ids(tokenizer, replace(prompt, messages=turns), "chat", arguments)

    # by bisection: of 1 to len(words) - 1 characters, how many fit
    counts = range(1, len(words))
    fitting = bisect_right(counts, max_tokens, key=lambda count: len(ids(count)))
    if not fitting:
        raise ValueError(
            f"prompt {prompt.prompt_id!r} does not fit into max_prompt_tokens={max_tokens}, even "
            "without its last message; raise max_prompt_tokens"
        )
    return ids(fitting)
