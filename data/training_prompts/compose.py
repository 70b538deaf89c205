"""Compose prompts on which drafts are trained or quantised drafts are calibrated.

A seeded generator composes them from phrases written for this project (phrases.yaml). They have the
four domains and the formats of the prompts on which drafts are tested (data/prompts), and share no
13 words in a row with them.

    python -m data.training_prompts.compose 1 --per-domain 100

writes seed-1.jsonl, which `prompts.training_prompts` reads.
"""

import json
import math
import random
import re
import textwrap
from collections.abc import Sequence

import click
import yaml

from speclab.plain import DOMAINS
from speclab.study.prompts import (
    MATH_PROMPT,
    PROJECT_PROMPTS,
    REASONING_PROMPT,
    TRAINING_PROMPTS,
    Prompt,
    read_prompts,
    strip_wrapper,
)

PHRASES = yaml.safe_load((TRAINING_PROMPTS / "phrases.yaml").read_text("utf-8"))
# <list>, <2..9>; with /a the value is saved and reused
SLOT = re.compile(r"<([a-z_]+|-?\d+\.\.\d+)(?:/(\w))?>")
# the wrapper of a domain's problems
AROUND = {"math": MATH_PROMPT, "reasoning": REASONING_PROMPT, "chat": "{}"}
NGRAM = 13  # words; a training row that shares such a sequence with a test row is excluded
TRIES = 200  # draws without a new prompt before a domain counts as exhausted

# ---- code: which items a function looks for, and what it does with them


NUMBERS = {
    "even": lambda n: n % 2 == 0,
    "odd": lambda n: n % 2 == 1,
    "negative": lambda n: n < 0,
    "positive": lambda n: n > 0,
    "two_digit": lambda n: 10 <= abs(n) <= 99,
    "small": lambda n: abs(n) < 10,
    "square": lambda n: n >= 0 and math.isqrt(n) ** 2 == n,
    "prime": lambda n: n > 1 and all(n % d for d in range(2, n)),
}
STRINGS = {
    "short": lambda word: len(word) < 5,
    "long": lambda word: len(word) > 5,
    "capital": lambda word: word[0].isupper(),
    "plural": lambda word: word.endswith("s"),
    "palindrome": lambda word: word.lower() == word.lower()[::-1],
    "vowel_first": lambda word: word[0].lower() in "aeiou",
}
ACTIONS = {  # result type and sentence of each are in PHRASES
    "count": len,
    "select": list,
    "last": lambda found: ([None] + found)[-1],
    "first": lambda found: (found + [None])[0],
    "sort": sorted,
    "any": bool,
    "largest": lambda found: max(found, default=None),
    "reverse": lambda found: found[::-1],
}


def fill(template: str, rng: random.Random) -> str:
    """A template with its slots filled. `<list>` becomes a word of this list, `<2..9>` a number.
    `<list/a>` gives the same value at each occurrence.
    """
    kept: dict[str, str] = {}

    def value(slot: re.Match) -> str:
        """The value of a slot."""
        source, label = slot.groups()
        if slot.group() in kept:
            return kept[slot.group()]
        if ".." in source:
            ends = map(int, source.split(".."))
            drawn = str(rng.randint(*ends))
        else:
            words = PHRASES["words"][source]
            fresh = [w for w in words if w not in kept.values()]
            drawn = rng.choice(fresh)
        if label:
            kept[slot.group()] = drawn
        return drawn

    return SLOT.sub(value, template)


def code_stub(rng: random.Random) -> str:
    """A Python function without its body: type hints, a docstring, one or two correct examples."""
    kind, table, noun = rng.choice([("int", NUMBERS, "numbers"), ("str", STRINGS, "words")])
    quality = rng.choice(list(table))
    action = rng.choice(list(ACTIONS))
    arg = fill(f"<{kind}_arg>", rng)
    said = PHRASES["functions"][action]
    pattern = rng.choice(PHRASES["function_names"])
    name = pattern.format(action=action, quality=quality, arg=arg, noun=noun)
    what = f"{quality.replace('_', '-')} {noun}"
    sentence = said["sentence"].format(what=what, arg=arg)
    lines = [sentence, ""]
    if rng.random() < 0.4:
        lines += [fill("<code_note>", rng), ""]
    item = "<-20..120>" if kind == "int" else "<token>"
    examples = rng.choice([1, 1, 2])
    for _ in range(examples):
        count = rng.randint(2, 6)
        items = [fill(item, rng) for _ in range(count)]
        if kind == "int":
            items = [int(number) for number in items]
        found = list(filter(table[quality], items))
        result = ACTIONS[action](found)
        call = f">>> {name}({items!r})"
        if result is None:
            lines += [f"{call} is None", "True"]
        else:
            lines += [call, repr(result)]
    docstring = textwrap.indent("\n".join(lines), "    ").lstrip()
    returned = said["result"].format(T=kind)
    head = f"def {name}({arg}: list[{kind}]) -> {returned}:"
    return f'{head}\n    """{docstring}\n    """\n'


def composed(domain: str, rng: random.Random) -> str:
    """A random prompt of a domain."""
    if domain == "code":
        return code_stub(rng)
    template = rng.choice(PHRASES[domain])
    return AROUND[domain].format(fill(template, rng))


def ngrams(text: str) -> set[tuple[str, ...]]:
    """The 13-word sequences of a text, lower-cased and without punctuation. A shorter text is a
    single sequence.
    """
    words = re.findall(r"[a-z0-9]+", text.lower())
    count = max(1, len(words) - NGRAM + 1)
    return {tuple(words[i : i + NGRAM]) for i in range(count)}


def shingles(text: str) -> set[tuple[str, ...]]:
    """`ngrams` of a prompt without its wrapper."""
    return ngrams(strip_wrapper(text))


def training_prompts(
    per_domain: int, seed: int = 0, domains: Sequence[str] = DOMAINS
) -> list[Prompt]:
    """`per_domain` different prompts of each domain, without 13 words in a row in common with a
    prompt of the kit. Ids are like `train-math-0-0007`.

    A larger `per_domain` adds prompts to those of a smaller one; another seed gives other prompts.
    Raises ValueError if the templates cannot give this many prompts.
    """
    project = read_prompts(PROJECT_PROMPTS)
    judged = set().union(*(shingles(p.text) for p in project))
    prompts = []
    for domain in domains:
        rng = random.Random(f"{seed} {domain}")
        texts = {}
        tries = 0
        while len(texts) < per_domain:
            text = composed(domain, rng)
            tries += 1
            if text not in texts and not shingles(text) & judged:
                name = f"train-{domain}-{seed}-{len(texts):04d}"
                texts[text] = Prompt(name, domain, text)
                tries = 0
            elif tries == TRIES:
                there = f"the templates give only {len(texts)} prompts of {domain}"
                raise ValueError(f"per_domain={per_domain}: {there}; choose a smaller number")
        prompts += texts.values()
    return prompts


@click.command()
@click.argument("seed", type=click.IntRange(min=0))
@click.option("--per-domain", default=600, show_default=True, help="Prompts per domain.")
@click.option("--chat", type=int, help="Prompts of chat (default: as the others).")
def main(seed: int, per_domain: int, chat: int | None) -> None:
    """Write seed-SEED.jsonl into the folder of this script."""
    lines = []
    for domain in DOMAINS:
        count = chat if chat and domain == "chat" else per_domain
        for prompt in training_prompts(count, seed, [domain]):
            row = {"prompt_id": prompt.prompt_id, "domain": domain, "prompt": prompt.text}
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    path = TRAINING_PROMPTS / f"seed-{seed}.jsonl"
    path.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
