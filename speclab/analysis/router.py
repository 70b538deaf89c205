"""Routing: which domain a prompt belongs to, without a GPU.

A `Router` classifies the prompt's text by hashed words, TF-IDF and logistic regression. Where the
router is not sure, the domain is UNKNOWN and the prompt gets the default setting. Training reads
text that is not in this repository and keeps weights only:
`python -m data.routing.prepare --data DIR`.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors.numpy import load_file
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline

from speclab.analysis.choose import UNKNOWN
from speclab.profiles import ROOT

READS = ["data/routing"]
ROUTING = ROOT / READS[0]
FEATURES = 2**14  # hashed words and signs, and pairs of neighbours
TOKENS = r"\w+|[^\w\s]"


def classifier(c: float = 1.0) -> Pipeline:
    """The untrained estimator: counts of hashed words, signs and pairs of neighbours (the words
    cannot be recovered from them), TF-IDF (rare words weigh more), and logistic regression with the
    inverse regularisation c; its classes are the numbers of the router's domains.
    """
    words = HashingVectorizer(
        token_pattern=TOKENS,
        ngram_range=(1, 2),
        n_features=FEATURES,
        alternate_sign=False,
        norm=None,
    )
    regression = LogisticRegression(C=c, class_weight="balanced", max_iter=2000)
    return Pipeline([("words", words), ("tfidf", TfidfTransformer()), ("regression", regression)])


@dataclass(frozen=True)
class Router:
    """A trained `classifier`; domains: the names of its classes; threshold: the least probability
    that is trusted; card: facts.
    """

    model: Pipeline
    domains: tuple[str, ...]
    threshold: float
    card: Mapping

    def guesses(self, texts: Sequence[str]) -> pd.DataFrame:
        """For each text: guess (its most likely domain), confidence (the probability of the guess)
        and route (the guess; UNKNOWN where the confidence is below the threshold).
        """
        p = self.model.predict_proba(texts)
        guess, confidence = np.array(self.domains)[p.argmax(axis=1)], p.max(axis=1)
        route = np.where(confidence >= self.threshold, guess, UNKNOWN)
        return pd.DataFrame({"guess": guess, "confidence": confidence, "route": route})

    def routes(self, texts: Sequence[str]) -> list[str]:
        """The route of each text."""
        return self.guesses(texts)["route"].tolist()


def weights_of(model: Pipeline) -> dict[str, np.ndarray]:
    """What a trained classifier has learned: weight [domains, FEATURES], bias [domains] and idf
    [FEATURES].
    """
    regression = model["regression"]
    idf = model["tfidf"].idf_
    return {"weight": regression.coef_, "bias": regression.intercept_, "idf": idf}


def with_weights(weights: Mapping[str, np.ndarray]) -> Pipeline:
    """The classifier that has learned this."""
    model = classifier()
    regression = model["regression"]
    regression.coef_, regression.intercept_ = weights["weight"], weights["bias"]
    regression.classes_ = np.arange(len(weights["bias"]))
    model["tfidf"].idf_ = weights["idf"]
    return model


def load_router(folder: str | Path = ROUTING) -> Router:
    """The trained router of a folder, without pickle; its card names the domains.

    ValueError if its weights are damaged, or its card names another number of domains.
    """
    path = Path(folder) / "router.safetensors"
    card = json.loads((Path(folder) / "card.json").read_text())
    if hashlib.sha256(path.read_bytes()).hexdigest() != card["sha256"]:
        raise ValueError(
            f"{path} is damaged: its SHA-256 is not the one in card.json; restore it, or train it "
            "again (python -m data.routing.prepare --data DIR)"
        )
    weights = {name: part.astype(np.float32) for name, part in load_file(path).items()}
    domains = tuple(card["domains"])
    if len(domains) != len(weights["bias"]):
        raise ValueError(
            f"{path} has {len(weights['bias'])} domains, and its card.json names {len(domains)} "
            f"({', '.join(domains)}); restore both"
        )
    return Router(with_weights(weights), domains, card["threshold"], card)
