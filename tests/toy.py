"""A ten-word pair without transformers, whose logits are a fixed function of the last three visible
tokens, in order of position. Also: recording a block of prompts in one call.
"""

import hashlib
from types import SimpleNamespace

import pandas as pd
import torch

from speclab import record
from speclab.lab.enumeration import World
from speclab.model import Pair
from speclab.models.model import Network
from speclab.record import generate, record_prompts
from speclab.sampling import Sampling, probabilities
from speclab.tree import chain

WORDS = 10


class ToyBody:
    """Remembers (token, position) per cache slot; a hidden state is the context's last three
    visible tokens, oldest first.
    """

    def __call__(self, input_ids, attention_mask, position_ids, past_key_values, use_cache):
        new = torch.stack([input_ids, position_ids], -1).float()[:, None]  # (batch, 1 head, n, 2)
        slots, _ = past_key_values.update(new, new, 0)
        tokens, positions = slots[:, 0, None].unbind(-1)  # (batch, 1, slots)
        seen = attention_mask[:, 0] == 0
        place = torch.nn.functional.pad(positions.where(seen, -1.0), (2, 0), value=-1.0)
        word = torch.nn.functional.pad(tokens + 1, (2, 0)).expand_as(place)
        last, at = place.topk(3)
        hidden = word.gather(-1, at).where(last >= 0, 0.0).flip(-1)
        return SimpleNamespace(last_hidden_state=hidden)


def _draw(salt, context):
    seed = int.from_bytes(hashlib.sha256(f"{salt}{context}".encode()).digest()[:6], "big")
    return torch.randn(WORDS, generator=torch.Generator().manual_seed(seed))


class ToyHead:
    """Seeded logits of a context; `noise` moves the draft away from the target."""

    def __init__(self, seed, noise, scale):
        self.seed, self.noise, self.scale, self.table = seed, noise, scale, {}

    def _row(self, context):
        if context not in self.table:
            self.table[context] = self.scale * _draw(0, context) + self.noise * _draw(
                self.seed, context
            )
        return self.table[context]

    def __call__(self, hidden):
        flat = hidden.reshape(-1, 3)
        return torch.stack([self._row(tuple(int(x) for x in row)) for row in flat]).view(
            *hidden.shape[:-1], WORDS
        )


def toy_model(seed=0, noise=0.0, scale=2.0):
    """A toy with the interface of a Llama."""
    return Network(ToyBody(), ToyHead(seed, noise, scale), WORDS, torch.float32, "cpu", "toy")


class TrimmedToyHead:
    """A toy head that outputs only the words of `kept`, as its own list, like the kit's head."""

    def __init__(self, head, kept):
        self.head, self.kept = head, torch.tensor(kept)

    def kept_logits(self, hidden):
        return self.head(hidden)[..., self.kept]


def toy_pair(noise=1.0, stop=9, kept=None):
    """A target, and a draft that is the target with noise. The draft outputs all words, or only
    `kept`.
    """
    draft = toy_model(1, noise)
    if kept is not None:
        draft.head = TrimmedToyHead(draft.head, kept)
        draft.kept = draft.head.kept
    return Pair(toy_model(), draft, None, frozenset({stop}), {})


class PairWorld(World):
    """p and q after any prefix, as the models of a pair give them after a prompt, float64."""

    def __init__(self, pair, prompt, sampling):
        self.pair, self.prompt, self.sampling = pair, prompt, sampling
        self.vocab, self.kind, self.rows = WORDS, "pair", {}

    def _row(self, which, prefix):
        model = (self.pair.target, self.pair.draft)[which]
        hidden = model.forward(torch.tensor([[*self.prompt, *prefix]]), model.cache())
        row = probabilities(model.logits(hidden[0, -1]), self.sampling).double().numpy()
        return row / row.sum()


def record_block(pair, prompts, tree, sampling, max_new_tokens, seed, max_packed_tokens):
    """Generate the continuations of several prompts together, then record them together, from the
    passes that wrote them.
    """
    passes = {}
    limits = max_new_tokens, pair.stop_ids, sampling, seed
    texts = generate(pair.target, prompts, *limits, passes)
    recorded = record_prompts(pair, prompts, texts, tree, sampling, max_packed_tokens, passes)
    assert pair.draft.by_start or not passes, "used up"
    return recorded


def record_prompt(pair, prompt, text, *how):
    """The record of one prompt."""
    return record_prompts(pair, [prompt], [text], *how)[0]


def plain(pair, prompt, new):
    """The target's greedy text after a prompt."""
    return generate(pair.target, [prompt], new, pair.stop_ids, Sampling(), 0)[0]


def recorded_tables(pair, prompt, text, tree=None):
    """{"trace", "nodes"}: the record of a prompt over a greedy text, as a run's tables have it."""
    made = record_prompt(pair, prompt, text, tree or chain(1), Sampling())
    who = {"prompt_id": prompt.prompt_id, "domain": prompt.domain}
    both = {name: getattr(made, name) for name in ("trace", "nodes")}
    return {name: table_of(columns).assign(**who) for name, columns in both.items()}


def table_of(columns):
    """Recorded columns as a table."""
    return pd.DataFrame({name: list(values) for name, values in columns.items()})


def let_nodes_see_their_cousins(monkeypatch):
    """A wrong mask in the recorder, for negative controls: nodes see their siblings and cousins."""
    honest = record._visible

    def everything(tree, length, contexts, depth):
        visible = honest(tree, length, contexts, depth)
        visible[..., length:] = True
        return visible

    monkeypatch.setattr(record, "_visible", everything)
