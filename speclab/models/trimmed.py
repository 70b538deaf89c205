"""A draft with a smaller output vocabulary. q is 0 for all other tokens, which every lossless rule
allows.

Most of a small draft's time is its output layer (head). The head is therefore cut to the tokens
that the target actually writes (FR-Spec, arXiv:2502.14856; EAGLE-3, arXiv:2503.01840). The draft's
folder has a config.json and a model.safetensors. config.json contains `kept_tokens` (the number K
of output tokens). If the draft's embedding is computed from another model's, it also contains
`embedding_of` (that model's folder, relative to this folder). model.safetensors contains the
network's weights and

    kept        int [K], ascending: the token id of each row of the head
    embed_map   [width of the other model, width]: maps the other model's embedding to this one
    embed_kept  [K, width]: embeddings of the kept tokens, used instead of mapped ones

or a full `model.embed_tokens.weight` in place of the last two.
"""

from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import linear

from speclab.models.folder import ModelFolder
from speclab.models.model import Projection

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


class TrimmedHead(torch.nn.Module):
    """An output layer with one row per token of `kept`. Logits [..., out_features] are -inf for all
    other tokens. `product`: a faster form of its product, for fixed weights.
    """

    product: Projection | None = None

    def __init__(self, weight: Tensor, kept: Tensor, vocab: int):
        super().__init__()
        self.weight = torch.nn.Parameter(weight, requires_grad=False)
        self.register_buffer("kept", kept)
        self.out_features = vocab

    def kept_logits(self, hidden: Tensor) -> Tensor:
        """Logits of the kept tokens [..., K]."""
        return self.product(hidden) if self.product else linear(hidden, self.weight)

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits of hidden states [..., width]."""
        said = self.kept_logits(hidden)
        shape = *said.shape[:-1], self.out_features
        logits = said.new_full(shape, -torch.inf)
        return logits.index_copy_(-1, self.kept, said)


def load_network(folder: ModelFolder, dtype: torch.dtype) -> Any:
    """Load the network of a trimmed draft on the CPU."""
    from transformers import AutoModelForCausalLM

    weights, kept = trimmed_weights(folder)
    network = AutoModelForCausalLM.from_config(folder.text)
    head = TrimmedHead(weights[HEAD], kept, folder.text.vocab_size)
    network.set_output_embeddings(head)
    weights["lm_head.kept"] = kept
    network.load_state_dict(weights)
    for parameter in network.parameters():  # buffers (such as rotary frequencies) stay float32
        parameter.data = parameter.data.to(dtype)
    return network


def trimmed_weights(folder: ModelFolder) -> tuple[dict[str, Tensor], Tensor]:
    """The weights of a trimmed draft's network by name, and the kept ids [K].

    If the embedding is computed from another model's, this is done in float32: the other model's
    rows times the map, with the kept tokens' own rows inserted. The network then stores all weights
    in the number format of config.json, so the result is rounded once.
    """
    weights = load_file(folder.path / "model.safetensors")
    kept = weights.pop("kept").long()
    if folder.base:
        rows = base_embedding(folder.base)
        embedding = rows.float() @ weights.pop("embed_map").float()
        embedding[kept] = weights.pop("embed_kept").float()
        weights[EMBEDDING] = embedding
    return weights, kept


def base_embedding(folder: ModelFolder) -> Tensor:
    """Read the embedding of a model folder without its other weights."""
    with safe_open(folder.path / "model.safetensors", "pt") as opened:
        return opened.get_tensor(EMBEDDING)
