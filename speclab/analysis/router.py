"""Routing: which domain a prompt is of, without a GPU.

Two classifiers of the prompt's text: `rules` (regular expressions) and `Router` (hashed words,
TF-IDF, logistic regression). A prompt that neither knows is UNKNOWN and gets the default setting.
Judged frames as in `speclab.analysis.choose`. (Routing without a text:
`speclab.studies.budgets_and_routing.online`.) Training reads text that is not in this repository
and keeps weights only: `python -m data.routing.prepare --data DIR`.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from scipy.special import softmax
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.preprocessing import normalize

from speclab.analysis.choose import UNKNOWN
from speclab.profiles import ROOT
from speclab.prompts import DOMAINS, MATH_PROMPT, REASONING_PROMPT

ROUTING = ROOT / "data" / "routing"
FEATURES, TOKENS = 2**14, r"\w+|[^\w\s]"  # hashed words and signs, and pairs of neighbours
RULES = (
    ("code", r"(?m)^\s*(def|class|import|from|@\w+|#include|public|fn|func)\b"),
    ("code", r">>> |```|\w\(\)|\breturns?\b.*\b(list|string|tuple|dict|array|true|none)\b"),
    (
        "code",
        r"\b(write|implement|fix|debug|refactor)\b.{0,60}\b(function|method|class|program|script|code|regex|query)\b",
    ),
    ("code", r"\b(python|javascript|java|sql|html|c\+\+|numpy|pandas|bash)\b"),
    ("math", r"\\(frac|sqrt|sum|cdot|pi|left|begin|angle)|\$[^$\n]*[=^\\+<>a-z][^$\n]*\$"),
    ("math", r"\b(solve|simplify|factor|expand|evaluate|compute|prove)\b.*[=^\d]"),
    (
        "math",
        r"\b(polynomial|equation|quadratic|triangle|integer|remainder|real number|slope|perimeter|vertex|function \$)",
    ),
    ("reasoning", r"\d[\s\S]*\bhow (many|much|long|far|old|fast)\b[^?]*\?"),
    (
        "reasoning",
        r"\d[\s\S]*\b(each|every|per|twice|half|total|altogether|left|remaining|costs?)\b[\s\S]*\?",
    ),
    ("chat", r"^\s*(hi|hey|hello|thanks|good (morning|evening))\b"),
    ("chat", r"\b(can|could|would|will) you\b|\bplease\b|\b(recommend|suggest|advice|tips)\b"),
    (
        "chat",
        r"^\s*(what|why|who|where|which|do|is|are|tell|explain|describe|write|give|how (do|can|should|to))\b",
    ),
    ("chat", r"\b(i|i'm|my|me)\b"),
)


def rules(texts: Iterable[str]) -> list[str]:
    """The domain that most of its RULES fire for, the earlier one of equals; UNKNOWN where none
    fires.
    """
    votes = [
        [domain for domain, pattern in RULES if re.search(pattern, text, re.IGNORECASE)]
        for text in texts
    ]
    return [max(DOMAINS, key=fired.count) if fired else UNKNOWN for fired in votes]


def strip_form(text: str) -> str:
    """A prompt without the form that gives its domain away: no instruction line or Q:/A:, of a
    function its description only.
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


# ---- the trained router --------------------------------------------------------------------------


def _hashed(texts: Iterable[str]):
    """Counts of hashed words, signs and pairs of neighbours; sparse [texts, FEATURES].

    Which word it was cannot be told.
    """
    words = HashingVectorizer(
        token_pattern=TOKENS,
        ngram_range=(1, 2),
        n_features=FEATURES,
        alternate_sign=False,
        norm=None,
    )
    return words.transform(texts)


@dataclass(frozen=True)
class Router:
    """weight [domains, FEATURES], bias [domains], idf [FEATURES] (float32); threshold: least
    probability that is trusted; card: facts.
    """

    weight: np.ndarray
    bias: np.ndarray
    idf: np.ndarray
    threshold: float
    card: Mapping

    def probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """P(domain | text), [texts, DOMAINS]. ValueError for a single string or no text at all."""
        if isinstance(texts, str) or not len(texts):
            raise ValueError(f"texts is {texts!r}: a list of at least one text is needed")
        return softmax(
            normalize(_hashed(texts).multiply(self.idf)) @ self.weight.T + self.bias, axis=1
        )

    def routes(self, texts: Sequence[str], threshold: float | None = None) -> list[str]:
        """The most likely domain of each text; UNKNOWN where its probability is below the threshold
        (None: the router's own).
        """
        p, limit = self.probabilities(texts), self.threshold if threshold is None else threshold
        return [
            DOMAINS[best] if row[best] >= limit else UNKNOWN
            for best, row in zip(p.argmax(axis=1), p, strict=True)
        ]

    def save(self, folder: Path) -> None:
        """router.safetensors (float16, no text) and card.json with its SHA-256."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "router.safetensors"
        # save_file writes the buffer as it lies in memory: scikit-learn's is column by column
        save_file(
            {
                name: np.ascontiguousarray(getattr(self, name), np.float16)
                for name in ("weight", "bias", "idf")
            },
            path,
        )
        facts = {
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "threshold": self.threshold,
            **self.card,
        }
        (folder / "card.json").write_text(json.dumps(facts, indent=1) + "\n")


def load_router(folder: str | Path = ROUTING) -> Router:
    """The trained router of a folder, without pickle.

    ValueError if a file is missing or damaged, or does not fit this kit.
    """
    folder = Path(folder)
    path, again = (
        folder / "router.safetensors",
        "train it again (python -m data.routing.prepare --data DIR)",
    )
    try:
        card, found = json.loads((folder / "card.json").read_text()), load_file(path)
    except (OSError, ValueError, SafetensorError) as error:
        raise ValueError(
            f"no router can be read from {folder}: {error}; restore router.safetensors and card.json, or {again}"
        ) from None
    shapes = {name: values.shape for name, values in found.items()}
    if shapes != {"weight": (len(DOMAINS), FEATURES), "bias": (len(DOMAINS),), "idf": (FEATURES,)}:
        raise ValueError(f"{path}: tensors {shapes} are not those of this kit's router; {again}")
    if hashlib.sha256(path.read_bytes()).hexdigest() != card.get("sha256"):
        raise ValueError(
            f"{path} is damaged: its SHA-256 is not the one in card.json; restore it, or {again}"
        )
    return Router(
        **{name: found[name].astype(np.float32) for name in found},
        threshold=float(card["threshold"]),
        card=card,
    )


# ---- judged --------------------------------------------------------------------------------------


def routed(prompts: pd.DataFrame, router: Router) -> pd.DataFrame:
    """Prompts (prompt_id, domain, text) with guess (most likely domain), confidence (its
    probability), correct, route (UNKNOWN if unsure).

    The frame that `explain.calibration_error("confidence", "correct")`, `explain.auc` and
    `stats.bootstrap` take.
    """
    p, texts = router.probabilities(prompts["text"].tolist()), prompts["text"]
    guess, confidence = np.array(DOMAINS)[p.argmax(axis=1)], p.max(axis=1)
    route = np.where(confidence >= router.threshold, guess, UNKNOWN)
    return prompts.drop(columns="text").assign(
        guess=guess,
        confidence=confidence,
        correct=guess == prompts["domain"],
        route=route,
        characters=texts.str.len(),
    )
