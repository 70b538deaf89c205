"""Train the prompt router: `python -m data.routing.prepare --data DIR` (half a minute). DIR
contains train/ and hub_mirror/.
"""

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors.numpy import save_file
from sklearn.metrics import log_loss, roc_auc_score

from data import corpus
from data.training_prompts.compose import ngrams
from speclab.analysis.choose import UNKNOWN
from speclab.analysis.router import FEATURES, ROUTING, Router, classifier, weights_of
from speclab.prompts import DOMAINS, MATH_PROMPT, REASONING_PROMPT

CHATS = (
    "chat_justeval_outputs.jsonl.gz",
    "chat_oasst_en100.jsonl.gz",
    "chat_taskmaster4_quarter.jsonl",
    "chat_topical_chat.jsonl.gz",
)
MOST = 4000  # most training prompts per domain,
MOST_OF_A_CHAT = 400  # and per source of chat, so that no source dominates
KEPT = 0.95  # share of held-out prompts above the threshold; the others are UNKNOWN


def training_prompts(data: str | Path, seed: int = 0) -> pd.DataFrame:
    """Prompts from the training text in DATA (train/, hub_mirror/), with and without their format:
    prompt_id, domain, text, bare, held_out.

    Rows that share 13 words with a benchmark's test row are excluded. At most MOST prompts per
    domain are drawn at random. 10 % are held out, by a hash of the text. Paragraphs of technical
    prose without code have the domain UNKNOWN and are not used for training.
    """
    folder, seen = (Path(data) / "train", corpus.benchmark_ngrams(Path(data) / "hub_mirror"))
    rows, rng = [], np.random.default_rng(seed)
    for domain, most, texts in _sources(folder):
        texts = list(dict.fromkeys(texts))
        for text in (texts[i] for i in sorted(rng.permutation(len(texts))[:most])):
            bare = strip_form(text)
            if not ngrams(bare) & seen:
                held_out = int(hashlib.sha256(bare.encode()).hexdigest(), 16) % 10 == 0
                rows.append((f"{domain}-train-{len(rows)}", domain, text, bare, held_out))
    return pd.DataFrame(rows, columns=["prompt_id", "domain", "text", "bare", "held_out"])


def _sources(folder: Path) -> Iterator[tuple[str, int, Iterable[str]]]:
    """(domain, most prompts, texts) of each source. A conversation gives its first message, a
    document a few paragraphs.
    """
    for domain, source in (
        ("code", corpus.code_rows),
        ("math", corpus.math_rows),
        ("reasoning", corpus.reasoning_rows),
    ):
        yield domain, MOST, (prompt for _, prompt, _ in source(folder))
    for name in CHATS:
        yield (
            "chat",
            MOST_OF_A_CHAT,
            (
                row["messages"][0]["content"].strip()
                for row in corpus.read_jsonl(folder / name, messages=list)
            ),
        )
    prose = (
        part
        for row in corpus.read_jsonl(folder / "prose_technical.jsonl.gz", text=str)
        for part in row["text"].split("\n\n")[:40]
    )
    yield (
        UNKNOWN,
        MOST,
        (
            part
            for part in prose
            if len(part) > 80 and not re.search(r"(?m)[`=(){}<>|_]|::|^[\s#*-]", part)
        ),
    )


def strip_form(text: str) -> str:
    """A prompt without the format that reveals its domain: without instruction line and Q:/A:, and
    of a function only its description.
    """
    for form in (MATH_PROMPT, REASONING_PROMPT):
        head, tail = form.split("{}")
        if text.startswith(head):
            return text.removeprefix(head).removesuffix(tail)
    described = re.search(
        r'^\s*(?:async )?def [\s\S]*?("""|\'\'\')([\s\S]*?)(\1|\Z)', text, re.MULTILINE
    )
    if not described:
        return text
    kept = re.split(r">>>|\b(?:Args|Parameters|Returns|Examples?|:param)\b", described[2])[0]
    return " ".join(kept.split()) or text


def train(prompts: pd.DataFrame, cs: Sequence[float] = (1.0, 10.0, 100.0)) -> Router:
    """Train a router on the prompts of `training_prompts` that are not held out, each with and
    without its format.

    The inverse regularisation is the value in `cs` with the smallest log loss on the held-out
    prompts. A share of KEPT of them passes the confidence threshold. Raises ValueError if a domain
    has no prompt to fit on or to hold out.
    """
    known = prompts[prompts["domain"] != UNKNOWN]
    forms = [known.assign(text=known[name]) for name in ("text", "bare")]
    both = pd.concat(forms).drop_duplicates(["prompt_id", "text"])
    fit, held = both[~both["held_out"]], both[both["held_out"]]
    for part, use in ((fit, "fit on"), (held, "hold out")):
        if missing := sorted(set(DOMAINS) - set(part["domain"])):
            raise ValueError(f"no prompt of {missing} to {use} among {len(prompts)}: add more")
    tried = []
    for c in cs:
        model = classifier(c).fit(fit["text"], _codes(fit))
        p = model.predict_proba(held["text"])
        threshold = float(np.quantile(p.max(axis=1), 1 - KEPT))
        router = Router(model, DOMAINS, threshold, {"C": c})
        tried.append((log_loss(_codes(held), p), c, router))
    *_, best = min(tried, key=lambda one: one[:2])
    return best


def _codes(prompts: pd.DataFrame) -> np.ndarray:
    return pd.Categorical(prompts["domain"], DOMAINS).codes


def main(argv: list[str] | None = None) -> int:
    """Train the router on DATA, test it on the held-out prompts, and write it with its card."""
    command = argparse.ArgumentParser("data.routing.prepare", description=main.__doc__)
    command.add_argument(
        "--data", type=Path, required=True, help="folder with train/ and hub_mirror/"
    )
    command.add_argument("--out", type=Path, default=ROUTING)
    args = command.parse_args(argv)
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        router = judged(training_prompts(args.data))
        save(router, args.out)
    except (ValueError, OSError) as error:
        print(f"speclab: {error}", file=sys.stderr)
        return 2
    print((args.out / "card.json").read_text(), end="")
    return 0


def save(router: Router, folder: Path) -> None:
    """Write router.safetensors (float16, no text) and card.json with its SHA-256."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "router.safetensors"
    # save_file writes the buffer in memory order, and scikit-learn's is column by column
    weights = weights_of(router.model)
    tensors = {name: np.ascontiguousarray(part, np.float16) for name, part in weights.items()}
    save_file(tensors, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    facts = {"sha256": digest, "threshold": router.threshold, "domains": router.domains}
    facts = facts | router.card | facts  # in this order
    (folder / "card.json").write_text(json.dumps(facts, indent=1) + "\n")


def routed(prompts: pd.DataFrame, router: Router) -> pd.DataFrame:
    """Prompts (prompt_id, domain, text) without their text, with the router's guess, confidence,
    route, and `correct` (whether the guess is the domain).
    """
    guesses = router.guesses(prompts["text"].tolist()).set_index(prompts.index)
    found = prompts.drop(columns="text").join(guesses)
    return found.assign(correct=found["guess"] == found["domain"])


def calibration_error(known: pd.DataFrame, bins: int = 10) -> float:
    """Expected calibration error of `routed` prompts: the mean distance between confidence and the
    share of correct guesses, over equal bins of 0 to 1.
    """
    part = np.minimum((known["confidence"] * bins).astype(int), bins - 1)
    gaps = (known["correct"] - known["confidence"]).groupby(part).sum()
    return float(gaps.abs().sum() / len(known))


def judged(prompts: pd.DataFrame) -> Router:
    """A router from `training_prompts`, with a card of its results on the held-out prompts."""
    router = train(prompts)
    held = prompts[prompts["held_out"]]
    sizes = prompts[["domain", "held_out"]].value_counts().unstack()
    inside = held["domain"] != UNKNOWN
    if inside.all():
        raise ValueError("no prose to hold out: add more to prose_technical.jsonl.gz")
    facts = {
        "command": "python -m data.routing.prepare --data DIR",
        "date": date.today().isoformat(),
        "features": FEATURES,
        "fitted_on": sizes[False].drop(UNKNOWN, errors="ignore").to_dict(),
        "held_out": sizes[True].to_dict(),
    }
    for form in ("text", "bare"):
        found = routed(held[["prompt_id", "domain"]].assign(text=held[form]), router)
        known, sure = found[inside], found["route"] != UNKNOWN
        facts[form] = {
            "accuracy": known["correct"].mean(),
            "calibration_error": calibration_error(known),
            "kept": sure[inside].mean(),
            "prose_refused": 1 - sure[~inside].mean(),
            "auc_of_prose": roc_auc_score(inside, found["confidence"]),
        }
    return replace(router, card=dict(router.card) | facts)


if __name__ == "__main__":
    sys.exit(main())
