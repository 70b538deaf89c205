"""Routing: which domain a prompt is of, without a GPU.

Two classifiers of the prompt's text: `rules` (regular expressions) and `Router` (hashed words, TF-IDF, logistic regression). A prompt that
neither knows is UNKNOWN and gets the default setting. Judged frames as in `speclab.budgets`. (Routing without a text: `speclab.online`.)
Training reads text that is not in this repository and keeps weights only: `python -m speclab.routing --data DIR --out data/routing`.
"""

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from scipy.special import softmax
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.preprocessing import normalize

from speclab import corpus
from speclab.budgets import UNKNOWN, compare, cross_fit
from speclab.explain import calibration_error
from speclab.prompts import DOMAINS, MATH_PROMPT, REASONING_PROMPT

ROUTING = Path(__file__).resolve().parents[1] / "data" / "routing"
FEATURES, TOKENS = 2**14, r"\w+|[^\w\s]"  # hashed words and signs, and pairs of neighbours
CHATS = ("chat_justeval_outputs.jsonl.gz", "chat_oasst_en100.jsonl.gz", "chat_taskmaster4_quarter.jsonl", "chat_topical_chat.jsonl.gz")
MOST, MOST_OF_A_CHAT = 4000, 400  # training prompts of a domain; of one source of chat, so that none is most of it
KEPT = 0.95  # of held-out prompts the router is sure enough of: below the threshold is UNKNOWN
RULES = (
    ("code", r"(?m)^\s*(def|class|import|from|@\w+|#include|public|fn|func)\b"),
    ("code", r">>> |```|\w\(\)|\breturns?\b.*\b(list|string|tuple|dict|array|true|none)\b"),
    ("code", r"\b(write|implement|fix|debug|refactor)\b.{0,60}\b(function|method|class|program|script|code|regex|query)\b"),
    ("code", r"\b(python|javascript|java|sql|html|c\+\+|numpy|pandas|bash)\b"),
    ("math", r"\\(frac|sqrt|sum|cdot|pi|left|begin|angle)|\$[^$\n]*[=^\\+<>a-z][^$\n]*\$"),
    ("math", r"\b(solve|simplify|factor|expand|evaluate|compute|prove)\b.*[=^\d]"),
    ("math", r"\b(polynomial|equation|quadratic|triangle|integer|remainder|real number|slope|perimeter|vertex|function \$)"),
    ("reasoning", r"\d[\s\S]*\bhow (many|much|long|far|old|fast)\b[^?]*\?"),
    ("reasoning", r"\d[\s\S]*\b(each|every|per|twice|half|total|altogether|left|remaining|costs?)\b[\s\S]*\?"),
    ("chat", r"^\s*(hi|hey|hello|thanks|good (morning|evening))\b"),
    ("chat", r"\b(can|could|would|will) you\b|\bplease\b|\b(recommend|suggest|advice|tips)\b"),
    ("chat", r"^\s*(what|why|who|where|which|do|is|are|tell|explain|describe|write|give|how (do|can|should|to))\b"),
    ("chat", r"\b(i|i'm|my|me)\b"),
)


def rules(texts: Iterable[str]) -> list[str]:
    """The domain that most of its RULES fire for, the earlier one of equals; UNKNOWN where none fires."""
    votes = [[domain for domain, pattern in RULES if re.search(pattern, text, re.IGNORECASE)] for text in texts]
    return [max(DOMAINS, key=fired.count) if fired else UNKNOWN for fired in votes]


def strip_form(text: str) -> str:
    """A prompt without the form that gives its domain away: no instruction line or Q:/A:, of a function its description only."""
    for form in (MATH_PROMPT, REASONING_PROMPT):
        head, tail = form.split("{}")
        if text.startswith(head):
            return text.removeprefix(head).removesuffix(tail)
    described = re.search(r'^\s*(?:async )?def [\s\S]*?("""|\'\'\')([\s\S]*?)(\1|\Z)', text, re.MULTILINE)
    if not described:
        return text
    kept = re.split(r">>>|\b(?:Args|Parameters|Returns|Examples?|:param)\b", described[2])[0]
    return " ".join(kept.split()) or text


# ---- the trained router ----------------------------------------------------------------------------------------------


def _hashed(texts: Iterable[str]):
    """Counts of hashed words, signs and pairs of neighbours; sparse [texts, FEATURES]. Which word it was cannot be told."""
    words = HashingVectorizer(token_pattern=TOKENS, ngram_range=(1, 2), n_features=FEATURES, alternate_sign=False, norm=None)
    return words.transform(texts)


@dataclass(frozen=True)
class Router:
    """weight [domains, FEATURES], bias [domains], idf [FEATURES] (float32); threshold: least probability that is trusted; card: facts."""

    weight: np.ndarray
    bias: np.ndarray
    idf: np.ndarray
    threshold: float
    card: Mapping

    def probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """P(domain | text), [texts, DOMAINS]. ValueError for a single string or no text at all."""
        if isinstance(texts, str) or not len(texts):
            raise ValueError(f"texts is {texts!r}: a list of at least one text is needed")
        return softmax(normalize(_hashed(texts).multiply(self.idf)) @ self.weight.T + self.bias, axis=1)

    def routes(self, texts: Sequence[str], threshold: float | None = None) -> list[str]:
        """The most likely domain of each text; UNKNOWN where its probability is below the threshold (None: the router's own)."""
        p, limit = self.probabilities(texts), self.threshold if threshold is None else threshold
        return [DOMAINS[best] if row[best] >= limit else UNKNOWN for best, row in zip(p.argmax(axis=1), p, strict=True)]

    def save(self, folder: Path) -> None:
        """router.safetensors (float16, no text) and card.json with its SHA-256."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "router.safetensors"
        # save_file writes the buffer as it lies in memory: scikit-learn's is column by column
        save_file({name: np.ascontiguousarray(getattr(self, name), np.float16) for name in ("weight", "bias", "idf")}, path)
        facts = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "threshold": self.threshold, **self.card}
        (folder / "card.json").write_text(json.dumps(facts, indent=1) + "\n")


def load_router(folder: str | Path = ROUTING) -> Router:
    """The trained router of a folder, without pickle. ValueError if a file is missing or damaged, or does not fit this kit."""
    folder = Path(folder)
    path, again = folder / "router.safetensors", "train it again (python -m speclab.routing --data DIR)"
    try:
        card, found = json.loads((folder / "card.json").read_text()), load_file(path)
    except (OSError, ValueError, SafetensorError) as error:
        raise ValueError(f"no router can be read from {folder}: {error}; restore router.safetensors and card.json, or {again}") from None
    shapes = {name: values.shape for name, values in found.items()}
    if shapes != {"weight": (len(DOMAINS), FEATURES), "bias": (len(DOMAINS),), "idf": (FEATURES,)}:
        raise ValueError(f"{path}: tensors {shapes} are not those of this kit's router; {again}")
    if hashlib.sha256(path.read_bytes()).hexdigest() != card.get("sha256"):
        raise ValueError(f"{path} is damaged: its SHA-256 is not the one in card.json; restore it, or {again}")
    return Router(**{name: found[name].astype(np.float32) for name in found}, threshold=float(card["threshold"]), card=card)


# ---- judged ----------------------------------------------------------------------------------------------------------


def routed(prompts: pd.DataFrame, router: Router) -> pd.DataFrame:
    """Prompts (prompt_id, domain, text) with guess (most likely domain), confidence (its probability), correct, route (UNKNOWN if unsure).

    The frame that `explain.calibration_error("confidence", "correct")`, `explain.auc` and `stats.cluster_mean` take.
    """
    p, texts = router.probabilities(prompts["text"].tolist()), prompts["text"]
    guess, confidence = np.array(DOMAINS)[p.argmax(axis=1)], p.max(axis=1)
    route = np.where(confidence >= router.threshold, guess, UNKNOWN)
    return prompts.drop(columns="text").assign(guess=guess, confidence=confidence, correct=guess == prompts["domain"], route=route,
                                               characters=texts.str.len())


def confusion(domain: Sequence[str], route: Sequence[str]) -> pd.DataFrame:
    """Prompts by true domain (rows) and route (columns, UNKNOWN last)."""
    table = pd.crosstab(pd.Series(domain, name="domain").to_numpy(), pd.Series(route, name="route").to_numpy())
    rows = [d for d in (*DOMAINS, *sorted(set(domain) - set(DOMAINS))) if d in set(domain)]
    return table.reindex(index=rows, columns=[*DOMAINS, UNKNOWN], fill_value=0).rename_axis(index="domain", columns="route")


def wrong_routes(table: pd.DataFrame, folds: int = 5, seed: int = 0) -> pd.DataFrame:
    """What a wrong route costs: `compare` of sending everyone to one label (each domain, and UNKNOWN) with the right route (`right`).

    Read by domain: row (policy, domain) is what happens to prompts of `domain` that are taken for `policy`.
    """
    labels = [d for d in DOMAINS if d in set(table["domain"])] + [UNKNOWN]
    taken = {label: cross_fit(table, dict.fromkeys(table["prompt_id"], label), folds, seed) for label in labels}
    return compare({"right": cross_fit(table, None, folds, seed)} | taken, "right", seed=seed)


# ---- training --------------------------------------------------------------------------------------------------------


def training_prompts(data: str | Path, seed: int = 0) -> pd.DataFrame:
    """Prompts of the training text of DATA (train/, hub_mirror/) with and without their form: prompt_id, domain, text, bare, held_out.

    Rows that share 13 words with a benchmark's test row are left out; at most MOST a domain are drawn at random; 10 %, by a hash of the
    text, are held out. Paragraphs of technical prose without any code come as domain UNKNOWN, and are not trained on.
    """
    folder, seen = Path(data) / "train", corpus.benchmark_ngrams(Path(data) / "hub_mirror")
    rows, rng = [], np.random.default_rng(seed)
    for domain, most, texts in _sources(folder):
        texts = list(dict.fromkeys(texts))
        for text in (texts[i] for i in sorted(rng.permutation(len(texts))[:most])):
            bare = strip_form(text)
            if not corpus.ngrams(bare) & seen:
                held_out = int(hashlib.sha256(bare.encode()).hexdigest(), 16) % 10 == 0
                rows.append((f"{domain}-train-{len(rows)}", domain, text, bare, held_out))
    return pd.DataFrame(rows, columns=["prompt_id", "domain", "text", "bare", "held_out"])


def _sources(folder: Path) -> Iterator[tuple[str, int, Iterable[str]]]:
    """(domain, most prompts, their texts) of each source; a conversation gives its first message, a document a few of its paragraphs."""
    for domain, source in (("code", corpus.code_rows), ("math", corpus.math_rows), ("reasoning", corpus.reasoning_rows)):
        yield domain, MOST, (prompt for _, prompt, _ in source(folder))
    for name in CHATS:
        yield "chat", MOST_OF_A_CHAT, (row["messages"][0]["content"].strip() for row in corpus.read_jsonl(folder / name))
    prose = (part for row in corpus.read_jsonl(folder / "prose_technical.jsonl.gz") for part in row["text"].split("\n\n")[:40])
    yield UNKNOWN, MOST, (part for part in prose if len(part) > 80 and not re.search(r"(?m)[`=(){}<>|_]|::|^[\s#*-]", part))


def train(prompts: pd.DataFrame, cs: Sequence[float] = (1.0, 10.0, 100.0)) -> Router:
    """A router from `training_prompts`: fitted on what is not held out, each prompt with and without its form.

    The inverse regularisation is the one of `cs` with the least log loss on the held-out prompts; KEPT of those pass the threshold.
    ValueError if a domain has no prompt to fit on or to hold out.
    """
    known = prompts[prompts["domain"] != UNKNOWN]
    both = pd.concat([known.assign(text=known[name]) for name in ("text", "bare")]).drop_duplicates(["prompt_id", "text"])
    fit, held = both[~both["held_out"]], both[both["held_out"]]
    for part in (fit, held):
        if missing := set(DOMAINS) - set(part["domain"]):
            raise ValueError(f"no prompt of {sorted(missing)} to {'fit on' if part is fit else 'hold out'}: {len(prompts)} came; give more")
    idf = TfidfTransformer().fit(_hashed(fit["text"])).idf_
    x, codes = normalize(_hashed(fit["text"]).multiply(idf)), pd.Categorical(fit["domain"], DOMAINS).codes
    tried = []
    for c in cs:
        model = LogisticRegression(C=c, class_weight="balanced", max_iter=2000).fit(x, codes)
        router = Router(model.coef_, model.intercept_, idf, 0.0, {"C": c})
        p = router.probabilities(held["text"].tolist())
        tried.append((log_loss(pd.Categorical(held["domain"], DOMAINS).codes, p), c, router, p.max(axis=1)))
    _, _, best, confidence = min(tried, key=lambda found: found[:2])
    return replace(best, threshold=float(np.quantile(confidence, 1 - KEPT)))


def main(argv: list[str] | None = None) -> int:
    """Train the router from DATA, judge it on the held-out prompts, write it with its card."""
    command = argparse.ArgumentParser("speclab.routing", description=main.__doc__)
    command.add_argument("--data", type=Path, required=True, help="folder with train/ and hub_mirror/")
    command.add_argument("--out", type=Path, default=ROUTING)
    args = command.parse_args(argv)
    try:
        prompts = training_prompts(args.data)
    except (ValueError, OSError) as error:
        print(f"speclab: {error}", file=sys.stderr)
        return 2
    router = train(prompts)
    held, sizes = prompts[prompts["held_out"]], prompts[["domain", "held_out"]].value_counts().unstack()
    inside = held["domain"] != UNKNOWN
    facts = {"command": "python -m speclab.routing --data DIR", "date": date.today().isoformat(), "features": FEATURES,
             "fitted_on": sizes[False].drop(UNKNOWN).to_dict(), "held_out": sizes[True].to_dict()}
    for form in ("text", "bare"):
        found = routed(held[["prompt_id", "domain"]].assign(text=held[form]), router)
        known, sure = found[inside], found["route"] != UNKNOWN
        facts[form] = {"accuracy": known["correct"].mean(), "calibration_error": calibration_error("confidence", "correct")(known),
                       "kept": sure[inside].mean(), "prose_refused": 1 - sure[~inside].mean(),
                       "auc_of_prose": roc_auc_score(inside, found["confidence"])}
    replace(router, card=dict(router.card) | facts).save(args.out)
    print((args.out / "card.json").read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
