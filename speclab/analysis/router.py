"""Routing: which domain a prompt is of, without a GPU.

Two classifiers of the prompt's text: `rules` (regular expressions) and `Router` (hashed words,
TF-IDF, logistic regression). A prompt that neither knows is UNKNOWN and gets the default setting.
Judged frames as in `speclab.analysis.choose`. Training reads text that is not in this repository
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
from safetensors.numpy import load_file
from scipy.special import softmax
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.preprocessing import normalize

from speclab.analysis.choose import UNKNOWN
from speclab.profiles import ROOT
from speclab.prompts import DOMAINS, MATH_PROMPT, REASONING_PROMPT, Prompt

ROUTING = ROOT / "data" / "routing"
FEATURES, TOKENS = (
    2**14,
    r"\w+|[^\w\s]",
)  # hashed words and signs, and pairs of neighbours
RULES = (
    ("code", r"(?m)^\s*(def|class|import|from|@\w+|#include|public|fn|func)\b"),
    (
        "code",
        r">>> |```|\w\(\)|\breturns?\b.*\b(list|string|tuple|dict|array|true|none)\b",
    ),
    (
        "code",
        r"\b(write|implement|fix|debug|refactor)\b.{0,60}"
        r"\b(function|method|class|program|script|code|regex|query)\b",
    ),
    ("code", r"\b(python|javascript|java|sql|html|c\+\+|numpy|pandas|bash)\b"),
    (
        "math",
        r"\\(frac|sqrt|sum|cdot|pi|left|begin|angle)|\$[^$\n]*[=^\\+<>a-z][^$\n]*\$",
    ),
    ("math", r"\b(solve|simplify|factor|expand|evaluate|compute|prove)\b.*[=^\d]"),
    (
        "math",
        r"\b(polynomial|equation|quadratic|triangle|integer|remainder|real number|slope|perimeter"
        r"|vertex|function \$)",
    ),
    ("reasoning", r"\d[\s\S]*\bhow (many|much|long|far|old|fast)\b[^?]*\?"),
    (
        "reasoning",
        r"\d[\s\S]*\b(each|every|per|twice|half|total|altogether|left|remaining|costs?)\b[\s\S]*\?",
    ),
    ("chat", r"^\s*(hi|hey|hello|thanks|good (morning|evening))\b"),
    (
        "chat",
        r"\b(can|could|would|will) you\b|\bplease\b|\b(recommend|suggest|advice|tips)\b",
    ),
    (
        "chat",
        r"^\s*(what|why|who|where|which|do|is|are|tell|explain|describe|write|give"
        r"|how (do|can|should|to))\b",
    ),
    ("chat", r"\b(i|i'm|my|me)\b"),
)


def rules(texts: Iterable[str]) -> list[str]:
    """The domain that most of its RULES fire for, the earlier one of equals; UNKNOWN where none
    fires.
    """
    routes = []
    for text in texts:
        votes = [
            domain
            for domain, pattern in RULES
            if re.search(pattern, text, re.IGNORECASE)
        ]
        routes.append(max(DOMAINS, key=votes.count) if votes else UNKNOWN)
    return routes


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
    kept = re.split(
        r">>>|\b(?:Args|Parameters|Returns|Examples?|:param)\b", described[2]
    )[0]
    return " ".join(kept.split()) or text


# ---- the trained router --------------------------------------------------------------------------


def hashed(texts: Iterable[str]):
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
        """P(domain | text), [texts, DOMAINS]: the softmax of a linear function of the text's TF-IDF
        vector (counts of its words, rare words weighing more, scaled to length 1).
        """
        features = normalize(hashed(texts).multiply(self.idf))
        return softmax(features @ self.weight.T + self.bias, axis=1)

    def guesses(self, texts: Sequence[str]) -> pd.DataFrame:
        """Of each text: guess (its most likely domain), confidence (that one's probability) and
        route (the guess; UNKNOWN where the confidence is below the threshold).
        """
        p = self.probabilities(texts)
        guess, confidence = np.array(DOMAINS)[p.argmax(axis=1)], p.max(axis=1)
        route = np.where(confidence >= self.threshold, guess, UNKNOWN)
        return pd.DataFrame({"guess": guess, "confidence": confidence, "route": route})

    def routes(self, texts: Sequence[str]) -> list[str]:
        """The route of each text."""
        return self.guesses(texts)["route"].tolist()


def load_router(folder: str | Path = ROUTING) -> Router:
    """The trained router of a folder, without pickle.

    ValueError if its weights are damaged.
    """
    path = Path(folder) / "router.safetensors"
    card = json.loads((Path(folder) / "card.json").read_text())
    if hashlib.sha256(path.read_bytes()).hexdigest() != card["sha256"]:
        raise ValueError(
            f"{path} is damaged: its SHA-256 is not the one in card.json; restore it, or train it "
            "again (python -m data.routing.prepare --data DIR)"
        )
    weights = {name: part.astype(np.float32) for name, part in load_file(path).items()}
    return Router(**weights, threshold=card["threshold"], card=card)


def routed(prompts: pd.DataFrame, router: Router) -> pd.DataFrame:
    """Prompts (prompt_id, domain, text) with the router's guess, confidence and route, and
    `correct` (the guess is the domain), without their text.
    """
    guesses = router.guesses(prompts["text"].tolist()).set_index(prompts.index)
    found = prompts.drop(columns="text").join(guesses)
    return found.assign(correct=found["guess"] == found["domain"])


def text_frame(prompts: Sequence[Prompt], bare: bool = False) -> pd.DataFrame:
    """Prompts as prompt_id, domain, text; bare: without the form that gives the domain away."""
    frame = pd.DataFrame([(p.prompt_id, p.domain, p.text) for p in prompts])
    frame.columns = ["prompt_id", "domain", "text"]
    return frame.assign(text=frame["text"].map(strip_form)) if bare else frame
