"""Prompts to train a draft on: composed by a seeded generator from templates written for this
project, so they exist anywhere.

They have the four domains and the forms of the prompts that drafts are judged on (data/prompts) and
share no run of 13 words with those. A user's own file goes through `prompts.read_prompts` instead.
Knows no model.
"""

import math
import random
import re
from collections.abc import Sequence

from speclab.prompts import (
    DOMAINS,
    MATH_PROMPT,
    PROJECT_PROMPTS,
    REASONING_PROMPT,
    Prompt,
    read_prompts,
)

SLOT = re.compile(
    r"<([a-z_]+|-?\d+\.\.\d+)(?:/(\w))?>"
)  # <list>, <2..9>; with /a the value is kept and used again
NGRAM = 13  # words; a training row that shares one with a test row is left out
TRIES = 200  # drawings in a row that give nothing new before a domain counts as used up

WORDS = {  # by list, entries apart by "|"
    "name": "Aino|Bashir|Carmen|Dmitri|Elif|Femi|Greta|Hugo|Ines|Jamal|Katya|Leo|Mina|Noor|Oskar|Priya|Quinn|Rafael|Sana|Tariq|Uma|"
    "Vera|Wanda|Xavier|Yusuf|Zoe",
    "thing": "apples|postcards|marbles|candles|stickers|lemons|notebooks|shells|buttons|badges|cookies|plums|magazines|tickets|mugs|"
    "tiles|bricks|flowers|stamps|keys|ribbons|toys|chairs|lamps",
    "box": "boxes|bags|crates|baskets|shelves|drawers|jars|packets|trays|cartons",
    "place": "market|school fair|village shop|sports club|harbour|bakery|museum|orchard|station kiosk|theatre|workshop|camp site",
    "day": "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday",
    "job": "baker|teacher|nurse|carpenter|driver|painter|farmer|tailor|clerk|plumber",
    "x": "x|y|z|t|n|a|b|k|m|w",
    "f": "f|g|h|p|q",
    "int_arg": "numbers|values|scores|prices|ages|heights|readings|points|levels|sizes",
    "str_arg": "words|names|labels|tokens|titles|cities|parts|tags",
    "token": "level|Anna|trees|river|OSLO|civic|keys|apple|Umbrella|noon|paths|stone|Ivy|data|radar|orange|Bob|cats|window|eye|lamp|"
    "Zebra|books|iron|Kyiv|refer|tents",
    "code_note": "The input is not changed.|An empty list is allowed.|Raise ValueError if the argument is None.|Run in linear time.|"
    "Do not use any imports.|Equal items are all kept.|The items may come in any order.",
    "topic": "volcanoes|the Roman roads|honey bees|black holes|jazz|the water cycle|chess openings|coral reefs|the French Revolution|"
    "electric cars|glaciers|photosynthesis|inflation|the human heart|vaccines|earthquakes|opera|tides|bridges|sleep|"
    "recycling|solar panels|the stock market|dinosaurs|migration of birds|tea|neural networks|the moon|whales|democracy",
    "hobby": "gardening|photography|knitting|rock climbing|baking bread|playing the violin|astronomy|sailing|painting|"
    "learning Spanish|dancing|swimming|bird watching|woodworking|writing stories|cycling",
    "dish": "lentil soup|apple pie|a vegetable curry|pancakes|mushroom risotto|a potato salad|fish stew|tomato pasta|a chocolate cake",
    "city": "Lisbon|Prague|Kyoto|Toronto|Nairobi|Dublin|Athens|Seoul|Lima|Helsinki|Cairo|Naples",
    "trouble": "my printer only prints blank pages|I keep waking up at four|my plants get yellow leaves|my laptop is very slow|"
    "I cannot remember names|my bicycle chain falls off|my sister forgets my birthday|"
    "I argue with my flatmate about cleaning|I always run late|my dog barks at the postman|I spend too much on lunch|"
    "I lose my keys",
    "event": "a birthday party|a school trip|a wedding|a job interview|a book club|a farewell dinner|a charity run|moving house|an exam",
    "person": "my mother|a five-year-old|a colleague|my grandfather|a new neighbour|a class of teenagers|a friend|my boss",
    "tone": "short|funny|polite|clear|friendly|formal|simple|detailed|cheerful",
    "number": "three|four|five|six|ten",
    "hero": "a retired pirate|a shy robot|a talking cat|two brothers|a clockmaker|a girl who paints|a lost penguin|an old train",
}
MATH = (
    "Solve for $<x/a>$: $<2..12><x/a> + <3..40> = <1..2><x/a> + <41..95>$.",
    "What is the value of $<x/a>$ if $\\frac{<x/a>}{<2..9>} - <1..12> = <3..20>$?",
    "Let $<f/f>(<x/a>) = <2..9><x/a>^2 + <2..15><x/a> - <1..20>$. Compute $<f/f>(<2..7>)$.",
    "Find the sum of the solutions of $<x/a>^2 - <3..18><x/a> + <1..30> = 0$.",
    "Find the product of the roots of the equation $<2..7><x/a>^2 + <2..19><x/a> - <3..45> = 0$.",
    "Expand and simplify $(<2..9><x/a> - <1..9>)(<x/a> + <2..12>)$.",
    "Factor $<x/a>^2 - <4..144>$ over the integers, or show that it cannot be done.",
    "The points $(<0..5>, <1..9>)$ and $(<6..12>, <10..30>)$ lie on a line. What is its slope?",
    "Write an equation of the line with slope $<2..9>$ that passes through $(<1..8>, <1..15>)$ in the form $y = mx + b$.",
    "If $<x/a> + <x/b> = <12..40>$ and $<x/a> - <x/b> = <2..10>$, what is $<x/a><x/b>$?",
    "Solve the system $<2..7>x + y = <10..40>$ and $x - <2..5>y = <1..9>$ for $x$.",
    "Simplify $\\sqrt{<8..200>} + \\sqrt{<8..200>}$.",
    "Simplify $\\frac{<6..40><x/a>^<4..9>}{<2..5><x/a>^<2..3>}$.",
    "Evaluate $<2..9>^<2..3> - <2..6> \\cdot <3..14> + <1..30>$.",
    "Compute $\\left(<2..9> + <2..9>\\right)^2 - <2..5>^2$.",
    "An arithmetic sequence has first term $<1..20>$ and common difference $<2..11>$. What is its $<8..40>$th term?",
    "The first term of a geometric sequence is $<1..6>$ and its ratio is $<2..4>$. What is the sum of the first $<4..7>$ terms?",
    "A rectangle is $<2..12>$ units longer than it is wide, and its area is $<20..200>$ square units. Find its perimeter.",
    "The sum of <number> consecutive integers is $<15..120>$. What is the largest of them?",
    "How many integers $<x/a>$ satisfy $<2..9><x/a> + <1..9> < <40..99>$ and $<x/a> > <0..3>$?",
    "What is $<5..95>\\%$ of $<20..600>$?",
    "If $<x/a>$ is $<10..60>\\%$ larger than $<20..300>$, find $<x/a>$.",
    "Solve $|<x/a> - <2..30>| = <1..20>$ and list all solutions.",
    "If $<2..5>^{<x/a>} = <2..5>^{<6..12>} \\cdot <2..5>^<2..4>$, what is $<x/a>$?",
    "Let $<f/f>(<x/a>) = <2..9><x/a> - <1..9>$ and $<f/g>(<x/a>) = <x/a>^2 + <1..9>$. Find $<f/f>(<f/g>(<1..6>))$.",
    "Find the vertex of the parabola $y = x^2 - <2..16>x + <1..50>$.",
    "The ratio of $<x/a>$ to $<x/b>$ is $<2..5>:<6..9>$ and $<x/a> + <x/b> = <30..150>$. What is $<x/b>$?",
    "Find the distance between $(<0..9>, <0..9>)$ and $(<10..20>, <10..25>)$.",
    "What is the midpoint of the segment from $(<0..9>, <2..12>)$ to $(<10..24>, <14..30>)$?",
    "Rationalize the denominator of $\\frac{<2..15>}{\\sqrt{<2..11>}}$.",
    "Complete the square: write $<x/a>^2 + <2..20><x/a> + <1..60>$ as $(<x/a> + h)^2 + k$.",
    "<name/a> is <2..9> times as old as <name/b>. In <3..15> years they will be $<50..99>$ together. How old is the younger one?",
)
REASONING = (
    "<name/a> has <12..90> <thing/t>. She gives <2..9> of them to each of her <2..5> friends and buys <3..20> more at the <place>. "
    "How many <thing/t> does <name/a> have now?",
    "A <job> at the <place> works <3..9> hours a day and earns $<9..30> an hour. How much does the <job> earn in <2..6> weeks of "
    "five days?",
    "There are <3..12> <box/b> with <6..30> <thing/t> in each of them. <name> takes out <5..17> <thing/t>. How many are left?",
    "<name/a> buys <2..9> <thing/a> for $<2..8> each and <2..6> <thing/b> for $<3..12> each. She pays with $<100..150>. How much "
    "change does she get?",
    "<name/a> walks <2..9> kilometers every <day/d> and twice as far every <day/e>. How many kilometers is that in <3..12> weeks?",
    "The <place> sold <20..90> tickets on <day/d> and <2..4> times as many on <day/e>. Each ticket costs $<3..15>. How much money "
    "did it take in?",
    "<name/a> reads <10..40> pages a day. Her book has <200..600> pages, and she has read for <3..7> days. How many pages are "
    "left to read?",
    "In a class of <18..36> students, half play football and <2..8> play chess. The others do nothing. How many students do nothing?",
    "<name/a> saves $<5..40> every month, and <name/b> saves <2..4> times as much. How much have they saved together after <4..18> months?",
    "A tank holds <200..900> liters. <name> fills it with <8..25> liters a minute, but <2..6> liters a minute leak out. How full is "
    "it after <5..20> minutes?",
    "<name/a> is <3..12> years older than <name/b>, and <name/b> is twice as old as <name/c>. If <name/c> is <4..15>, how old is <name/a>?",
    "A <job> packs <thing/t> into <box/b> of <4..16>. There are <100..400> <thing/t>. How many <box/b> are full, and how many "
    "<thing/t> remain?",
    "The bus to the <place> takes <20..55> people. <60..190> people want to go. How many buses are needed, and how many seats stay empty?",
    "<name/a> baked <24..96> <thing/t> for the <place>. A third of them were sold before noon and <3..15> after noon. How many "
    "were not sold?",
    "<name/a> had $<60..200>. She spent $<10..30> on <thing/a> and half of what remained on <thing/b>. How much money does she have left?",
    "It takes <name/a> <4..12> minutes to make one <tone> card. How many hours does she need for <15..60> cards, with a break of "
    "<10..30> minutes?",
    "An empty crate weighs <2..9> kilograms. Each crate holds <5..20> <thing> of <1..3> kilograms each. What do <3..8> full "
    "ones weigh?",
    "A shop lowers the price of a lamp from $<40..120> by <10..50> percent. <name/a> buys <2..5> of these lamps. How much does she pay?",
    "<name/a> and <name/b> collect <thing/t>. <name/a> found <15..60>, which is <3..12> fewer than <name/b> found. How many did "
    "they find together?",
    "On <day> the <place> opens at <7..10> and closes at <16..21>. <2..9> guests come every hour. How many guests come that day?",
    "A garden has <4..15> rows of <6..20> plants. <name/a> waters each plant with <2..5> cups of water. How many cups does she "
    "need on <2..6> days?",
    "<name/a> runs a race of <5..20> laps. Each lap takes her <60..110> seconds. For how many minutes does she run?",
)
CHAT = (
    "Can you explain <topic> to <person>?",
    "Tell me an interesting fact about <topic>.",
    "I want to start with <hobby>. What do I need, and how much will it cost?",
    "How do I make <dish> for <number> people?",
    "I will be in <city> for <number> days. What should I see?",
    "What can I do if <trouble>?",
    "Help me, please: <trouble>, and I have tried everything. What would you advise?",
    "Write a <tone> invitation to <event> for <person>.",
    "Write a <tone> story about <hero> in <city>.",
    "Give me <number> tips for <hobby>.",
    "Give me <number> ideas for <event>.",
    "Why do people like <topic> so much?",
    "What are the advantages and disadvantages of living in <city>?",
    "How would you plan <event> with little money?",
    "Make a <tone> list of what I need for <event>.",
    "What do you think about <topic>?",
    "Is <hobby> hard to learn for <person>?",
    "I had a long day, and <trouble>. Cheer me up!",
    "Write a <tone> poem about <topic>.",
    "What is the difference between <topic/a> and <topic/b>?",
    "Hello! I am interested in <topic>. Where should I begin?",
    "Please write a <tone> letter to <person> about <event>.",
    "Who invented the things that we know about <topic>?",
    "Do you prefer <city/a> or <city/b>, and why?",
    "Describe <topic> in <number> sentences.",
    "Compare <hobby/a> with <hobby/b> as a way to relax.",
    "Ask me <number> questions about <topic> and tell me the answers.",
    "My friend says that <hobby> is boring. How do I convince <person> to try it?",
    "Summarize what is known about <topic> for <person>.",
    "What should I cook with rice, <thing> and an onion?",
)
# ---- code: a property of the items, and what to do with those that have it; the examples in a docstring are computed
NUMBERS = {
    "even": lambda n: n % 2 == 0,
    "odd": lambda n: n % 2 == 1,
    "negative": lambda n: n < 0,
    "positive": lambda n: n > 0,
    "two_digit": lambda n: 10 <= abs(n) <= 99,
    "small": lambda n: abs(n) < 10,
    "square": lambda n: n >= 0 and math.isqrt(n) ** 2 == n,
    "prime": lambda n: n > 1 and all(n % d for d in range(2, math.isqrt(n) + 1)),
}
STRINGS = {
    "short": lambda word: len(word) < 5,
    "long": lambda word: len(word) > 5,
    "capital": lambda word: word[0].isupper(),
    "plural": lambda word: word.endswith("s"),
    "palindrome": lambda word: word.lower() == word.lower()[::-1],
    "vowel_first": lambda word: word[0].lower() in "aeiou",
}
ACTIONS = {  # name: result type for items of type {T}, sentence, function of the chosen items
    "count": ("int", "Return how many {what} there are in {arg}.", len),
    "select": ("list[{T}]", "Return the {what} of {arg}, in their order.", list),
    "last": (
        "{T} | None",
        "Return the last of the {what} in {arg}, or None if there are none.",
        lambda found: ([None] + found)[-1],
    ),
    "first": (
        "{T} | None",
        "Find the first of the {what} in {arg}. The result is None without any.",
        lambda found: (found + [None])[0],
    ),
    "sort": (
        "list[{T}]",
        "Give back the {what} of {arg} from the smallest to the largest.",
        sorted,
    ),
    "any": ("bool", "Tell whether any {what} are in {arg}.", bool),
    "largest": (
        "{T} | None",
        "Find the largest of the {what} in {arg}.",
        lambda found: max(found, default=None),
    ),
    "reverse": (
        "list[{T}]",
        "Return the {what} of {arg}, the last one first.",
        lambda found: found[::-1],
    ),
}


def fill(template: str, rng: random.Random) -> str:
    """A template with its slots drawn: `<list>` an entry of WORDS, `<2..9>` a number; with `/a` the
    same again at the next `<list/a>`.
    """
    kept: dict[str, str] = {}

    def value(slot: re.Match) -> str:
        """What a slot becomes."""
        source, label = slot.groups()
        if slot.group() in kept:
            return kept[slot.group()]
        if ".." in source:
            drawn = str(rng.randint(*map(int, source.split(".."))))
        else:
            drawn = rng.choice(
                [word for word in WORDS[source].split("|") if word not in kept.values()]
            )
        if label:
            kept[slot.group()] = drawn
        return drawn

    return SLOT.sub(value, template)


def code_stub(rng: random.Random) -> str:
    """A Python function without its body: type hints, a docstring, one or two examples that are
    true.
    """
    kind, table, noun = rng.choice([("int", NUMBERS, "numbers"), ("str", STRINGS, "words")])
    quality, action, arg = (
        rng.choice(list(table)),
        rng.choice(list(ACTIONS)),
        fill(f"<{kind}_arg>", rng),
    )
    result, sentence, function = ACTIONS[action]
    name = rng.choice(
        [
            f"{action}_{quality}",
            f"{action}_of_{quality}_{arg}",
            f"{quality}_{action}",
            f"{action}_{quality}_{noun}",
        ]
    )
    lines = [sentence.format(what=f"{quality.replace('_', '-')} {noun}", arg=arg), ""]
    if rng.random() < 0.4:
        lines += [fill("<code_note>", rng), ""]
    for _ in range(rng.choice([1, 1, 2])):
        items = [
            rng.randint(-20, 120) if kind == "int" else fill("<token>", rng)
            for _ in range(rng.randint(2, 6))
        ]
        found = function([item for item in items if table[quality](item)])
        lines += [
            f">>> {name}({items!r}){' is None' if found is None else ''}",
            repr(found is None or found),
        ]
    body = "\n".join(f"    {line}".rstrip() for line in lines).lstrip()
    return f'def {name}({arg}: list[{kind}]) -> {result.format(T=kind)}:\n    """{body}\n    """\n'


COMPOSE = {
    "code": code_stub,
    "math": lambda rng: MATH_PROMPT.format(fill(rng.choice(MATH), rng)),
    "reasoning": lambda rng: REASONING_PROMPT.format(fill(rng.choice(REASONING), rng)),
    "chat": lambda rng: fill(rng.choice(CHAT), rng),
}


def shingles(text: str) -> set[tuple[str, ...]]:
    """`corpus.ngrams` of a prompt without the words around the problem that all prompts of a domain
    share.
    """
    for wrapper in (MATH_PROMPT, REASONING_PROMPT):
        head, tail = wrapper.split("{}")
        if text.startswith(head) and text.endswith(tail):
            text = text[len(head) : -len(tail)]
    return ngrams(text)


def training_prompts(
    per_domain: int, seed: int = 0, domains: Sequence[str] = DOMAINS
) -> list[Prompt]:
    """`per_domain` prompts of each domain, all different, none sharing 13 words in a row with a
    project prompt; ids `train-math-0-0007`.

    A larger `per_domain` keeps the prompts of a smaller one; another seed gives others. ValueError
    for a number below 1, an unknown domain, or more prompts than the templates can give.
    """
    if per_domain < 1:
        raise ValueError(f"per_domain={per_domain}: allowed are whole numbers from 1")
    if unknown := set(domains) - set(DOMAINS):
        raise ValueError(
            f"domains: {', '.join(sorted(unknown))} unknown; use some of {', '.join(DOMAINS)}"
        )
    judged = set().union(*(shingles(p.text) for p in read_prompts(PROJECT_PROMPTS)))
    found = []
    for domain in domains:
        rng, texts = random.Random(f"{seed} {domain}"), {}
        while len(texts) < per_domain:
            fresh = (COMPOSE[domain](rng) for _ in range(TRIES))
            text = next((t for t in fresh if t not in texts and not shingles(t) & judged), None)
            if text is None:
                raise ValueError(
                    f"per_domain={per_domain}: the templates give only {len(texts)} prompts of {domain}; ask for fewer"
                )
            texts[text] = Prompt(f"train-{domain}-{seed}-{len(texts):04d}", domain, text)
        found += texts.values()
    return found


def ngrams(text: str) -> set[tuple[str, ...]]:
    """The 13-word shingles of a text, lower-cased, punctuation dropped (a shorter text is one
    shingle).
    """
    words = re.findall(r"[a-z0-9]+", text.lower())
    return {tuple(words[i : i + NGRAM]) for i in range(max(1, len(words) - NGRAM + 1))}
