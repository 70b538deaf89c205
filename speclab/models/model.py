"""Networks as language models: their passes, and faster products with fixed weights.

Data is sent to a GPU with `non_blocking`, so that the host does not wait for
the GPU's queue.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, pad

from speclab.model import KVCache, LanguageModel
from speclab.models.folder import ModelFolder
from speclab.models.support import limits


class Projection:
    """x [..., in] times weight [out, in], plus bias, as torch's `linear`, for fixed weights; on a
    CPU several times as fast for the few tokens of a decoding step.

    On a CPU it keeps a copy of float32 weights in oneDNN's layout, for three rows and more. One or
    two rows go through MKL as `weight @ x.T` (with at least two columns, because one column takes
    longer). oneDNN prepares for each new number of rows; therefore many rows are padded to a
    multiple of STEP. (torch has oneDNN's functions for compiled models, hence their underscores.)
    """

    STEP = 32
    _copy: Tensor | None = None

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        self.weight, self.bias = weight, bias
        is_plain = weight.device.type == "cpu" and weight.dtype == torch.float32
        if is_plain and torch.backends.mkldnn.is_available():
            self._copy = torch.ops.mkldnn._reorder_linear_weight(weight.detach())

    def __call__(self, x: Tensor) -> Tensor:
        if self._copy is None or x.dtype != torch.float32:
            return linear(x, self.weight, self.bias)
        rows = x.reshape(-1, x.shape[-1])
        found = self._few(rows) if len(rows) <= 2 else self._many(rows)
        return found.view(*x.shape[:-1], -1)

    def _few(self, x: Tensor) -> Tensor:
        two = x.expand(2, -1).contiguous()
        found = (self.weight @ two.T).T[: len(x)]
        if self.bias is None:
            return found.contiguous()
        return found + self.bias

    def _many(self, x: Tensor) -> Tensor:
        count = len(x)
        if count > self.STEP:
            x = pad(x, (0, 0, 0, -count % self.STEP))
        library = torch.ops.mkldnn
        found = library._linear_pointwise(x, self._copy, self.bias, "none", [], "")
        return found[:count]


@dataclass(eq=False)
class Network(LanguageModel):
    """A language model with Hugging Face's calling convention for its body,
    `body(input_ids, attention_mask, position_ids, past_key_values).last_hidden_state`, and a
    `head(hidden)`.

    network, folder: its source (None: not from a folder). borrowed: how many parameters of its
    network are the target's.
    """

    body: Any
    head: Any
    vocab: int
    dtype: torch.dtype
    device: torch.device
    kernel: str = "Linear"
    network: Any = None
    folder: ModelFolder | None = None
    borrowed: int = 0

    def __post_init__(self):
        self.device = torch.device(self.device)
        self.kept = getattr(self.head, "kept", None)
        self.quantised = self.folder is not None and self.folder.quantised
        if self.network:
            self.positions = min(limits(self.config).values(), default=self.positions)

    @property
    def computes(self) -> torch.dtype:
        """The number format of its products. On a CPU the kernels of packed weights round to
        bfloat16, whatever the format of the activations; how, depends on the processor.
        """
        if self.quantised and self.device.type == "cpu":
            return torch.bfloat16
        return self.dtype

    @property
    def config(self) -> Any:
        """The settings of its text network."""
        return self.network.config.get_text_config()

    @torch.inference_mode()
    def forward(
        self,
        tokens: Tensor,
        cache: KVCache,
        positions: Tensor | None = None,
        visible: Tensor | None = None,
    ) -> Tensor:
        """Hidden states [batch, n, d] of tokens (`LanguageModel.forward`)."""
        past = cache.length
        n = tokens.shape[1]
        tokens = tokens.to(self.device, non_blocking=True)
        if positions is None:
            positions = torch.arange(past, past + n, device=self.device)
        positions = positions.to(self.device, non_blocking=True)
        extra = {"output_hidden_states": True} if self.taps else {}
        out = self.body(
            input_ids=tokens,
            attention_mask=self._mask(visible, n, past),
            past_key_values=cache,
            use_cache=True,
            position_ids=positions.expand(tokens.shape),
            **extra,
        )
        if self.taps:  # what a trained head reads
            self.features = torch.cat([out.hidden_states[tap] for tap in self.taps], -1)
        cache.length = past + n
        self.passes += 1
        return out.last_hidden_state

    def _mask(self, visible: Tensor | None, n: int, past: int) -> Tensor | None:
        """The additive, finite mask [batch or 1, 1, n, past + n]. (A bool mask is silently wrong in
        eager attention, and -inf gives NaN in half precision.)
        """
        if visible is None and n == 1 and getattr(self.body, "lean", False):
            return None
        if visible is None:  # causal
            visible = torch.ones(n, past + n, dtype=torch.bool).tril(past)
        mask = torch.zeros(visible.shape, dtype=self.dtype, device=self.device)
        sees = visible.to(self.device, non_blocking=True)
        mask.masked_fill_(~sees, torch.finfo(self.dtype).min)
        return mask.view(-1, 1, n, past + n)

    @torch.inference_mode()
    def kept_logits(self, hidden: Tensor) -> Tensor:
        """float32 logits [..., K] of hidden states [..., d] (`LanguageModel.kept_logits`)."""
        if self.kept is None:
            return self.head(hidden)[..., : self.vocab].float()
        return self.head.kept_logits(hidden).float()
