"""Routing: which domain a prompt is of, without a GPU.

A `Router` classifies the prompt's text by hashed words, TF-IDF and logistic regression. A prompt of
which it is not sure is UNKNOWN and gets the default setting. Training reads text that is not in
this repository and keeps weights only: `python -m data.routing.prepare --data DIR`.
"""

import hashlib
import json
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
from speclab.prompts import DOMAINS

READS = ["data/routing"]
ROUTING = ROOT / READS[0]
FEATURES = 2**14  # hashed words and signs, and pairs of neighbours
TOKENS = r"\w+|[^\w\s]"


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
