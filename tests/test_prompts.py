"""Prompts: the kit's files, the paper's sets from a mirror, a user's file, digests, token ids."""

import json
import re
from collections import Counter
from dataclasses import asdict, replace

import pytest
from conftest import refuses, write_rows
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from data.training_prompts.compose import shingles
from speclab.plain import DOMAINS, EncodedPrompt
from speclab.study.profiles import ROOT, Profile, load_profile
from speclab.study.prompts import (
    MATH_PROMPT,
    MIRROR,
    MT_BENCH,
    PAPER_SETS,
    REASONING_PROMPT,
    Prompt,
    decoded_prompts,
    encode_prompts,
    load_prompts,
    prompts_digest,
    read_prompts,
    training_prompts,
)
from speclab.study.reading import checked
from speclab.study.runs import of_kind, profile_prompts

CHAT_TEMPLATE = (
    "{% for m in messages %}[U] {{ m['content'] }} [/U] {% endfor %}"
    "{% if add_generation_prompt %} [A]{% endif %}"
)


def line(prompt_id="a", domain="code", prompt="def f():", **more):
    return json.dumps({"prompt_id": prompt_id, "domain": domain, "prompt": prompt, **more})


def conversation(*roles, content="one"):
    turns = [{"role": role, "content": content} for role in roles]
    return json.dumps({"prompt_id": "x", "domain": "code", "messages": turns})


def write(folder, *lines, name="mine.jsonl"):
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def make_tokenizer(chat_template=None, **more):
    words = ["[BOS]", "[UNK]", "[U]", "[/U]", "[A]", "one", "two", "three", "four"]
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.post_processor = processors.TemplateProcessing(
        single="[BOS] $A", special_tokens=[("[BOS]", 0)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="[BOS]",
        unk_token="[UNK]",
        chat_template=chat_template,
        **more,
    )


# ---------------------------------------------------------------- the project's own prompts


@pytest.fixture(scope="module")
def project():
    return load_prompts("project", 50)


def test_project_has_fifty_prompts_a_domain_in_order_and_no_more(project):
    assert [p.prompt_id for p in project] == [
        f"{domain}-{i:02d}" for domain in DOMAINS for i in range(50)
    ]
    assert all(p.domain == p.prompt_id.split("-")[0] for p in project)
    assert load_prompts("project", 51) == load_prompts("project") == project, "a most"


def test_project_prompts_differ(project):
    counts = Counter(shingle for prompt in project for shingle in shingles(prompt.text))
    assert set(counts.values()) == {1}


def test_unwrapped_are_the_same_problems_without_the_papers_words(project):
    around = {"math": MATH_PROMPT, "reasoning": REASONING_PROMPT}
    again = [
        replace(p, text=around.get(p.domain, "{}").format(p.text))
        for p in load_prompts("unwrapped", 50)
    ]
    assert again == project


def test_no_prompt_of_the_second_set_is_in_a_form_of_the_drafts_training(monkeypatch):
    """The share of a prompt's runs of three words that one training prompt has, too."""
    monkeypatch.setattr("data.training_prompts.compose.NGRAM", 3)
    profile, largest = load_profile("smollm"), {}
    composed = profile.notes.trained_on["composed"].items()
    known = [shingles(p.text) for name, n in composed for p in training_prompts(n, 0, [name])]
    for kind in ("second", "greedy"):
        for prompt in profile_prompts(of_kind(profile, kind)):
            own = shingles(prompt.text)
            seen = max(len(own & others) for others in known) / len(own)
            largest[kind, prompt.domain] = max(largest.get((kind, prompt.domain), 0), seen)
    # a tenth is the threshold that its card names; the project's own prompts are in such forms
    assert all((seen <= 0.1) == (kind == "second") for (kind, _), seen in largest.items())


# ---------------------------------------------------------------- a user's file or folder


def test_files_are_read_in_order_and_ids_are_unique_across_them(tmp_path):
    write(tmp_path, line("b", "chat", "Grüß dich\u2028du"), "", line("a"), name="1.jsonl")
    write(tmp_path, line("c"), name="2.jsonl")
    (tmp_path / "README.md").write_text("not prompts")
    first, *_ = read_prompts(tmp_path / "1.jsonl")
    assert first == Prompt("b", "chat", "Grüß dich\u2028du")
    assert [p.prompt_id for p in load_prompts(tmp_path, 2, ["code"])] == ["a", "c"]
    assert [p.prompt_id for p in load_prompts(str(tmp_path), 1, ("chat", "code"))] == ["b", "a"]
    write(tmp_path, line("z"), line("a"), name="3.jsonl")
    with refuses(r"3\.jsonl, line 2: prompt_id 'a' occurs twice"):
        read_prompts(tmp_path)


@pytest.mark.parametrize(
    "bad, message",
    [
        ('{"prompt_id": "x",', "not valid JSON"),
        ('{"prompt_id": "x", "prompt": "y"}', "domain='': allowed are 1 to 60"),
        (line("x", "  "), "domain='  '"),
        ('{"domain": "code", "prompt": "y"}', "missing field prompt_id"),
        (line("x", answer="7"), "answer"),
        (line("x", prompt=" \n"), "prompt=' .n'"),
        (line("x", "Code"), "domain='Code': it differs from 'code' in case or spaces"),
        (line("x", "code "), "it differs from 'code' in case or spaces"),
        (line("x", "n" * 200), "domain='nnn.*1 to 60 printable characters"),
        (line("x", "a\nb"), "printable"),
        (line("x", "Pooled"), "domain='Pooled'.*choose another"),
        (
            line("x", messages=[{"role": "user", "content": "y"}]),
            "exactly one of prompt and messages",
        ),
        (conversation("user", "assistant"), "end with role 'assistant'"),
        (conversation("user", "function"), "messages.1.role='function'"),
        (conversation(), "messages"),
        (line("a"), "'a' occurs twice"),
        ('{"prompt_id": "x", "prompt_id": "y"}', "'prompt_id' occurs twice"),
        ('{"prompt": "\xff"}', "not valid JSON"),
    ],
)
def test_a_broken_line_is_named_with_its_file_and_number(tmp_path, bad, message):
    path = write(tmp_path, line("a"), line("b"))
    path.write_bytes(path.read_bytes() + bad.encode("latin-1"))
    with refuses(rf"mine\.jsonl, line 3: .*{message}"):
        read_prompts(path)


def test_categories_have_any_names_and_sizes_and_keep_their_order(tmp_path):
    names = ["über uns", "回答", "תשובה", "a-b_c", "über uns"]
    path = write(tmp_path, *(line(f"{i}", name) for i, name in enumerate(names)))
    assert [p.prompt_id for p in load_prompts(path)] == ["0", "4", "1", "2", "3"]
    assert [p.prompt_id for p in load_prompts(path, 1, ["回答", "über uns"])] == ["1", "0"]
    with refuses("no domain 'chat'.*allowed are über uns, 回答"):
        load_prompts(path, 1, ["chat"])


def test_a_file_of_mt_bench_or_spec_bench_gives_its_first_turns(tmp_path):
    row = {"question_id": 81, "category": "writing", "turns": ["Draw a map.", "Again."]}
    rows = [row, row | {"question_id": 5, "category": "coding", "reference": ["x"]}]
    path = write(tmp_path, *map(json.dumps, rows))
    assert read_prompts(path) == [
        Prompt("writing-81", "writing", "Draw a map."),
        Prompt("coding-5", "coding", "Draw a map."),
    ]
    write(tmp_path, json.dumps(row | {"turns": []}))
    with refuses(r"mine\.jsonl, line 1: .*turns"):
        read_prompts(path)


def test_arguments_are_checked(tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "none").mkdir()
    for source, count, domain, words in (
        ("projct", 1, "code", "no prompts at .*project, .*mt-bench"),
        (tmp_path / "none", 1, "code", "no prompts at .*project, .*mt-bench"),
        ("gsm8k", 1, "math", "no domain 'math': allowed are reasoning"),
        ("project", 1, "reason", "did you mean 'reasoning'"),
        (tmp_path / "empty.jsonl", None, "chat", r"empty.jsonl' hold no prompt"),
    ):
        with refuses(words):
            load_prompts(source, count, [domain])
    with refuses(r"no prompts at .*seed-7.jsonl"):
        training_prompts(1, seed=7)


# ---------------------------------------------------------------- the paper's sets


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """`datasets` keeps its copies in a folder of the test, and the mirror is not set."""
    import datasets

    monkeypatch.delenv(MIRROR, raising=False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    return monkeypatch


def make_mirror(root):
    """A small mirror with one row a set, and with three rows of chat of which the first is too
    short.
    """
    system = {"role": "system", "content": "be kind"}
    chats = [
        {"messages": [system, {"role": "user", "content": text}]}
        for text in ("   hi there  ", "  ten chars ", "0123456789")
    ]
    rows = {
        "code": [{"task_id": "HumanEval/0", "prompt": "def f():\n"}],
        "math": [{"problem": r"Find $\frac{a}{2}$."}],
        "reasoning": [{"question": "How many?"}],
        "chat": chats,
        "mt-bench": [
            {"prompt": ["Sing.", "Louder."], "category": "writing", "prompt_id": 7},
            {"prompt": ["Sort."], "category": "coding", "prompt_id": 8},
        ],
    }
    for domain, hub_set in (PAPER_SETS | {"mt-bench": MT_BENCH["chat"]}).items():
        folder = root / hub_set.hub
        folder.mkdir(parents=True)
        write_rows(folder / "rows.jsonl", rows[domain])
        head = (
            f"configs:\n- config_name: {hub_set.config or 'default'}\n"
            f"  data_files:\n  - split: {hub_set.split}\n    path: rows.jsonl\n"
        )
        (folder / "README.md").write_text(f"---\n{head}---\n")
    return root


def test_paper_prompts_have_the_papers_text_and_documented_ids(cache, tmp_path):
    cache.setenv(MIRROR, str(make_mirror(tmp_path / "mirror")))
    assert load_prompts("paper", 1) == [
        Prompt("code-HumanEval/0", "code", "def f():\n"),
        Prompt(
            "math-0",
            "math",
            "Solve as a math problem. Show all intermediate steps.\n"
            "Problem: Find $\\frac{a}{2}$.\nSolution:",
        ),
        Prompt("reasoning-0", "reasoning", "Show your reasoning step by step.\nQ: How many?\nA:"),
        Prompt(
            "chat-2", "chat", "0123456789"
        ),  # rows 0 and 1 have 8 and 9 characters once stripped
    ]
    assert len(load_prompts("paper", 2, ["chat"])) == 1, "a most"


def test_public_sets_by_name_have_no_words_around_them(cache, tmp_path):
    cache.setenv(MIRROR, str(make_mirror(tmp_path / "mirror")))
    (question,) = load_prompts("gsm8k", 1, ["reasoning"])
    assert question.text == "How many?"
    assert load_prompts("mt-bench", 10, ["code", "chat"]) == [
        Prompt("code-coding-1", "code", "Sort."),
        Prompt("chat-writing-0", "chat", "Sing."),
    ]


def test_a_mirror_without_the_set_or_its_rows_is_named(cache, tmp_path):
    root = make_mirror(tmp_path / "mirror")
    (root / "openai/gsm8k/rows.jsonl").unlink()
    for mirror in (root, tmp_path):
        cache.setenv(MIRROR, str(mirror))
        with refuses(f"{mirror}/openai/gsm8k: FileNotFound"):
            load_prompts("paper", 1, ["reasoning"])


# ---------------------------------------------------------------- a set that a profile names

OF_HUB = {
    "hub": "someone/questions",
    "revision": "0123456789abcdef0123456789abcdef01234567",
    "split": "test",
    "column": "question",
}


@pytest.fixture
def named(cache, tmp_path):
    """The prompts of a profile that names a set, which a mirror has as a Parquet file."""
    from datasets import Dataset

    rows = {
        "question": ["Why?", None, "How  much?", "Who?"],
        "subject": ["law", "law", "sums", "law"],
        "answers": [["a"], [], [], []],
    }
    mirror = tmp_path / "mirror"
    Dataset.from_dict(rows).to_parquet(mirror / OF_HUB["hub"] / "test.parquet")
    cache.setenv(MIRROR, str(mirror))
    study = tmp_path / "study.yaml"

    def of(**changes):
        prompts = OF_HUB | changes
        facts = {name: f"data/pairs/tiny/{name}" for name in ("target", "draft")}
        study.write_text(json.dumps(facts | {"prompts": prompts}))
        return load_profile(study)

    return of


def test_a_set_of_the_hub_is_read_by_its_columns(named):
    profile = named(domain="subject")
    asked = profile_prompts(profile.replace(prompts_per_domain=1, domains=("sums", "law")))
    assert asked == [Prompt("sums-2", "sums", "How  much?"), Prompt("law-0", "law", "Why?")]
    assert [prompt.prompt_id for prompt in profile_prompts(named())] == [
        f"questions-{row}" for row in (0, 2, 3)
    ]
    of_manifest = json.loads(json.dumps(asdict(profile)))
    assert checked(Profile, of_manifest, "", of_json=True) == profile


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"revision": "main"}, "revision='main': a commit with its 40"),
        ({"hub": "../questions"}, "hub='../questions'"),
        ({"colum": "x"}, "did you mean 'column'"),
        ({"column": "questions"}, "'questions'.*not in the dataset.*'question'"),
        ({"column": "answers"}, r"row 0: {'answers': \['a'\]} is no text"),
        ({"split": "dev"}, "dev.*Should be one of.*test.*Check config, split"),
        ({"hub": "someone/else"}, "someone/else cannot be read.*someone/else"),
    ],
)
def test_a_set_of_the_hub_that_cannot_be_read_says_why_in_a_line(named, changes, words):
    with refuses(words):
        profile_prompts(named(**changes))


def test_without_a_network_a_set_of_the_hub_says_what_to_do(named, cache, tmp_path):
    cache.delenv(MIRROR)
    cache.chdir(tmp_path)
    for module in ("huggingface_hub.constants", "datasets.config"):
        cache.setattr(f"{module}.HF_HUB_OFFLINE", True)
    profile = named()
    with refuses(f"cannot be read from .*network, or set {MIRROR}"):
        profile_prompts(profile)
    (tmp_path / OF_HUB["hub"]).mkdir(parents=True)
    with refuses("is also a file or folder here"):
        profile_prompts(profile)


# ---------------------------------------------------------------- prompts_digest

PROMPTS = st.lists(
    st.builds(
        Prompt,
        st.text(max_size=3),
        st.sampled_from(DOMAINS),
        st.text(max_size=3),
        st.sampled_from([(), (("system", "x"), ("user", "y"))]),
    ),
    max_size=3,
)


@given(PROMPTS, PROMPTS)
def test_digests_are_equal_exactly_when_the_prompts_are(one, other):
    assert (prompts_digest(one) == prompts_digest(other)) == (one == other)
    assert re.fullmatch("[0-9a-f]{64}", prompts_digest(one))


# ---------------------------------------------------------------- token ids


@pytest.mark.parametrize(
    ("template", "text", "ids"),
    [
        ("none", "one three", (0, 5, 7)),  # with the tokenizer's special tokens
        ("chat", "two", (2, 6, 3, 4)),  # [U] two [/U] [A], no [BOS] in addition to the template's
    ],
)
def test_text_is_encoded_as_it_is_or_inside_the_template(template, text, ids):
    asked = [Prompt("a", "chat", text)]
    encoded = encode_prompts(make_tokenizer(CHAT_TEMPLATE), asked, 9, template)
    assert encoded == [EncodedPrompt("a", "chat", ids, 0)]


@pytest.mark.parametrize("limit, ids, cut", [(3, (0, 5, 6), 2), (5, (0, 5, 6, 7, 8), 0)])
def test_a_long_prompt_keeps_its_first_tokens_like_the_authors_and_the_rest_is_counted(
    limit, ids, cut
):
    text, tokenizer = "one two three four", make_tokenizer()
    (encoded,) = encode_prompts(tokenizer, [Prompt("a", "code", text)], limit)
    assert (encoded.ids, encoded.cut) == (ids, cut)
    assert list(encoded.ids) == tokenizer(text, truncation=True, max_length=limit)["input_ids"]


TURNS = (("system", "one"), ("user", "two"))


def test_a_conversation_is_joined_by_the_template_alone():
    tokenizer = make_tokenizer(CHAT_TEMPLATE + "{% if thinking is false %} three{% endif %}")
    asked = [Prompt("a", "chat", "two", TURNS)]
    (encoded,) = encode_prompts(tokenizer, asked, 9, "chat")
    assert encoded.ids == (2, 5, 3, 2, 6, 3, 4)  # [U] one [/U] [U] two [/U] [A]
    told = [replace(asked[0], messages=turns) for turns in ((), TURNS[1:])]
    assert encode_prompts(tokenizer, told, 9, "chat", system="one") == [encoded] * 2
    long, more = [Prompt("a", "chat", "two three four")], {"thinking": False}
    (cut,) = encode_prompts(tokenizer, long, 8, "chat", True, "one", more)
    assert (cut.ids, cut.cut) == ((*encoded.ids, 7), 2)
    with refuses("prompt 'a' .*messages; set template: chat"):
        encode_prompts(tokenizer, asked, 9)


OF_USERS = CHAT_TEMPLATE.replace("messages %", "messages if m.role == 'user' %")


@pytest.mark.parametrize(
    ("template", "turns", "given", "words"),
    [
        (CHAT_TEMPLATE, (), (None, {"thinking": 0}), "ignores template_arguments: thinking"),
        (CHAT_TEMPLATE, (), (None, {"tokenize": 0}), "tokenize.*omit it"),
        (OF_USERS, (), ("one",), "ignores messages of role system"),
        (OF_USERS, (*TURNS[1:], ("tool", "one")), (), "ignores messages of role tool"),
        (CHAT_TEMPLATE, TURNS, ("one",), "'a' has a system message of its own"),
    ],
)
def test_what_a_template_ignores_is_refused(template, turns, given, words):
    asked = [Prompt("a", "chat", "two", turns), Prompt("b", "chat", "two")]
    with refuses(words):
        encode_prompts(make_tokenizer(template), asked, 99, "chat", False, *given)


def test_an_argument_that_one_prompt_needs_is_read(tmp_path):
    """Without it the template fails on that prompt alone, which ends with a tool's answer."""
    tokenizer = make_tokenizer(CHAT_TEMPLATE + "{% if messages[1] %}{{ 1 + extra }}{% endif %}")
    asked = read_prompts(write(tmp_path, line(), conversation("user", "assistant", "tool")))
    assert encode_prompts(tokenizer, asked, 99, "chat", arguments={"extra": 2})


@pytest.mark.parametrize("before", [(), TURNS[:1]])
def test_a_prompt_that_is_too_long_for_its_template_is_refused_or_its_message_is_cut(before):
    words = "two three four one"
    turns = (*before, ("user", words)) if before else ()
    asked, tokenizer = [Prompt("a", "chat", words, turns)], make_tokenizer(CHAT_TEMPLATE)
    most = 5 + 3 * len(before)
    with refuses(rf"'a' has {most + 2} tokens .* is {most}; .*truncate"):
        encode_prompts(tokenizer, asked, most, "chat")
    (encoded,) = encode_prompts(tokenizer, asked, most, "chat", truncate=True)
    assert encoded.ids[-5:] == (2, 6, 7, 3, 4) and encoded.cut == 2  # [U] two three [/U] [A]
    with refuses("even without its last message"):
        encode_prompts(tokenizer, asked, 3, "chat", truncate=True)


WRITES_THE_DATE = {  # as Llama-3, gpt-oss, SmolLM3 and others
    "{% if not date_string %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
    "{{ date_string }}": "26 Jul 2024",
    "{{ strftime_now('%Y-%m-%d') }}": "2024-07-26",
    "\n{%- if strftime_now is defined %}\n {{ strftime_now('%d %B %Y') }}{% endif %}": (
        " 26 July 2024"
    ),
    "{% macro of(x) %}{{ strftime_now('%A, %-d %b') }}{{ x }}{% endmacro %}{{ of(' two') }}": (
        "Friday, 26 Jul two"
    ),
    "\n one\n{% set at = strftime_now('%H:%M') %}\n{{ at }} ": "\n one\n00:00 ",
}


@pytest.mark.parametrize("template", WRITES_THE_DATE)
def test_a_template_that_writes_the_date_writes_the_same_every_day(template):
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "data/pairs/tiny/target")
    tokenizer.chat_template = template
    (encoded,) = encode_prompts(tokenizer, [Prompt("a", "chat", "x")], 99, "chat")
    assert tokenizer.decode(encoded.ids) == WRITES_THE_DATE[template]


@pytest.mark.parametrize(
    "template",
    [
        "{{ raise_exception('two\\nlines') }}",
        "{% for %}",
        "{{ 1 / messages[0]['content'] }}",
        "{# nothing #}",
        {"other": "{{ messages }}"},
    ],
)
def test_a_template_that_fails_is_named_with_its_prompt(template):
    asked = [Prompt("the-prompt", "chat", "two")]
    with pytest.raises(ValueError, match=r"(?s)the/model.*correct") as error:
        encode_prompts(make_tokenizer(template, name_or_path="the/model"), asked, 9, "chat")
    assert "'the-prompt'" in str(error.value)
    with refuses("chat_template is not set"):
        encode_prompts(make_tokenizer(), asked, 9, "chat")


@pytest.mark.parametrize("template", ["none", "chat"])
def test_a_beginning_that_is_added_as_well_is_said(template, capsys):
    asked = [Prompt(text, "chat", text) for text in ("one", f"[BOS] {template}", "one [BOS]")]
    encode_prompts(make_tokenizer(CHAT_TEMPLATE), asked, 9, template)
    assert f"1 of 3 prompts, such as '[BOS] {template}'," in capsys.readouterr().out


def test_of_few_domains_more_prompts_are_decoded():
    sizes = {"a": 9, "b": 1, "c": 3}
    known = [Prompt(f"{d}{i}", d, "x") for d, size in sizes.items() for i in range(size)]

    def count(*given):
        return len(decoded_prompts(known, *given))

    assert [count(1, 0, least) for least in (0, 3, 5, 7, 99)] == [3, 3, 5, 7, 13]


@pytest.mark.parametrize(
    ("recorded", "per_domain", "first", "numbers"),
    [
        (20, 3, 8, [10, 14, 18]),  # the middles of 8-11, 12-15 and 16-19
        (20, 12, 8, range(8, 20)),
        (20, 15, 8, range(5, 20)),  # too few are left: the last ones
        (20, 99, 8, range(20)),
        (20, 2, 0, [5, 15]),
        (20, 0, 8, []),
        (3, 2, 8, [1, 2]),
    ],
)
def test_decoded_prompts_are_spread_evenly_after_those_that_chose_the_draft(
    recorded, per_domain, first, numbers
):
    domains = "code", "chat"
    prompts = [Prompt(f"{d}-{i}", d, "") for i in range(recorded) for d in domains]
    chosen = decoded_prompts(prompts, per_domain, first)
    assert [p.prompt_id for p in chosen] == [f"{d}-{i}" for d in domains for i in numbers]
