"""A draft that can say only some of the tokens: q is 0 elsewhere, which every lossless rule allows.

A small draft's time is mostly its head, so the head is cut to the tokens that the target really
writes (FR-Spec, arXiv:2502.14856; EAGLE-3, arXiv:2503.01840). Its folder holds a config.json with
`kept_tokens` (how many) and, where its embedding is made from another model's, `embedding_of` (that
model's folder, relative to this one), and a model.safetensors with the network's weights and

    kept        int [K], ascending: the token id of each row of the head
    embed_map   [width of the other model, width]: a token is read as the other's row times it, but
    embed_kept  [K, width]: the kept ones, which have rows of their own

or the whole `model.embed_tokens.weight` instead of the last two.
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
    """An output layer with a row for each token of `kept`; logits [..., out_features], -inf where
    it has none.
    """

    def __init__(self, weight: Tensor, kept: Tensor, vocab: int):
        super().__init__()
        self.weight = torch.nn.Parameter(weight, requires_grad=False)
        self.register_buffer("kept", kept)
        self.out_features = vocab

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits of hidden states [..., width]."""
        return self.spread(linear(hidden, self.weight))

    def spread(self, said: Tensor) -> Tensor:
        """Logits of the kept tokens [..., K] among those of all."""
        logits = said.new_full((*said.shape[:-1], self.out_features), -torch.inf)
        return logits.index_copy_(-1, self.kept, said)


class FrozenHead:
    """A trimmed head whose weights stay as they are: the same logits, faster."""

    def __init__(self, head: TrimmedHead):
        self.kept, self.out_features = head.kept, head.out_features
        self._spread, self.product = head.spread, Projection(head.weight)

    def __call__(self, hidden: Tensor) -> Tensor:
        return self._spread(self.product(hidden))


def load_network(folder: ModelFolder, dtype: torch.dtype) -> Any:
    """The network of a trimmed draft, on the CPU."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder.path, trust_remote_code=False)
    weights, kept = trimmed_weights(folder)
    check_kept(folder, kept, config.vocab_size)
    network = AutoModelForCausalLM.from_config(config)
    head = TrimmedHead(weights[HEAD], kept, config.vocab_size)
    network.set_output_embeddings(head)
    network.load_state_dict(weights | {"lm_head.kept": kept})
    for parameter in network.parameters():  # buffers, as the rotary frequencies, stay float32
        parameter.data = parameter.data.to(dtype)
    return network


def trimmed_weights(folder: ModelFolder) -> tuple[dict[str, Tensor], Tensor]:
    """The weights of a trimmed draft's network by name, and the kept ids [K].

    An embedding that is made from another model's is joined in float32: its rows times the map,
    the kept tokens' own rows in their places. (The network then holds all weights in the number
    format of config.json, so the joined rows are rounded to it once.)
    """
    weights = load_file(folder.path / "model.safetensors")
    kept = weights.pop("kept").long()
    if folder.base:
        rows = base_embedding(folder.base)
        embedding = rows.float() @ weights.pop("embed_map").float()
        embedding[kept] = weights.pop("embed_kept").float()
        weights[EMBEDDING] = embedding
    return weights, kept


def check_kept(folder: ModelFolder, kept: Tensor, vocab: int) -> None:
    """ValueError unless `kept` names different tokens of a vocabulary, in ascending order."""
    if kept.min() < 0 or kept.max() >= vocab:
        wrong = kept[(kept < 0) | (kept >= vocab)][:3].tolist()
        raise ValueError(
            f"{folder.path}: `kept` names token ids that the target does not have, as {wrong} "
            f"(it has {vocab}); use the draft of this target"
        )
    if (kept.diff() <= 0).any():
        raise ValueError(f"{folder.path}: `kept` is not ascending, or names a token twice")


def base_embedding(folder: ModelFolder) -> Tensor:
    """The embedding of a model folder, without its other weights."""
    with safe_open(folder.path / "model.safetensors", "pt") as opened:
        return opened.get_tensor(EMBEDDING)
