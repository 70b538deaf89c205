"""What a pair needs, from its config.json alone: bytes on each device, work and traffic of a
recording, and the packing that fits.

The plan follows `record` stage by stage. It is an upper bound where an attention kernel may or may
not be fused, and leaves out what it cannot know (fragmentation). tests/bench_shapes.py holds it
against measurement.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from speclab.models.packing import KNOWN, LOGIT_BYTES, ROWS, SMALLEST, chunk_bytes
from speclab.profiles import ModelSpec, Profile

LOGIT_TRAFFIC = (
    150  # bytes that all reductions of a row read and write, per entry and model
)
CONTEXT_BYTES = (
    600_000_000  # CUDA context and library workspaces of a process on one GPU
)


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a decoder: `inner` is the MLP's width, `bits` None when the weights are not
    quantised (GPTQ with `group` otherwise).
    """

    layers: int
    width: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool
    biases: bool
    bits: int | None = None
    group: int = 128
    kept: int | None = None  # tokens that a trimmed head can say; None: all

    @property
    def projections(self) -> int:
        """Weights of all linear layers of the body: what GPTQ quantises and what every token is
        multiplied with.
        """
        attention = 2 * self.width * (self.heads + self.kv_heads) * self.head_dim
        return self.layers * (attention + 3 * self.width * self.inner)

    @property
    def parameters(self) -> int:
        """Parameters as if unquantised."""
        biases = (
            self.layers * (self.heads + 2 * self.kv_heads) * self.head_dim
            if self.biases
            else 0
        )
        norms = (2 * self.layers + 1) * self.width
        return (
            self.projections
            + biases
            + norms
            + (self.vocab + (0 if self.tied else self.said)) * self.width
        )

    @property
    def said(self) -> int:
        """Rows of the head."""
        return self.kept or self.vocab

    def weight_bytes(self, itemsize: int) -> int:
        """Bytes of the weights; of a GPTQ model packed integers, and per group and output a float16
        scale and a packed zero point.
        """
        if self.bits is None:
            return self.parameters * itemsize
        packed = self.projections * self.bits / 8 + self.projections / self.group * (
            2 + self.bits / 8
        )
        return int(packed) + (self.parameters - self.projections) * itemsize

    def kv_bytes(self, itemsize: int) -> int:
        """Bytes of one token's keys and values."""
        return 2 * self.layers * self.kv_heads * self.head_dim * itemsize

    def flops(self, tokens: int, context: float) -> float:
        """Floating-point operations of the body over `tokens`, each of which attends to `context`
        slots (masked ones are computed too).
        """
        return (
            2.0 * self.projections * tokens
            + 4.0 * self.layers * self.heads * self.head_dim * tokens * context
        )


def shape_of(config: Any) -> ModelShape:
    """The ModelShape of a config.json (dict) or of a Hugging Face config object.

    ValueError names the architecture or the entry that is missing.
    """
    config = config if isinstance(config, Mapping) else config.to_dict()
    kind = config.get("model_type")
    if kind not in KNOWN:
        raise ValueError(
            f"model_type={kind!r}: the memory plan knows {', '.join(KNOWN)}"
        )
    names = (
        "num_hidden_layers",
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "vocab_size",
    )
    missing = [name for name in names if name not in config]
    if missing:
        raise ValueError(
            f"config.json lacks {', '.join(missing)}: it is not that of a whole model; download "
            "it again"
        )
    quantised = config.get("quantization_config") or {}
    _check_numbers(config, names, ("num_key_value_heads", "head_dim", "kept_tokens"))
    if not isinstance(quantised, Mapping):
        raise ValueError(
            "config.json: quantization_config is no object; download it again"
        )
    _check_numbers(quantised, (), ("bits",))
    layers, width, inner, heads, vocab = (config[name] for name in names)
    group = quantised.get("group_size", 128)
    return ModelShape(
        layers=layers,
        width=width,
        inner=inner,
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or width // heads,
        vocab=vocab,
        tied=bool(config.get("tie_word_embeddings", False)),
        biases=bool(config.get("attention_bias", kind == "qwen2")),
        bits=quantised.get("bits"),
        group=group if isinstance(group, int) and group > 0 else width,
        kept=config.get("kept_tokens"),
    )


def _check_numbers(
    config: Mapping, needed: tuple[str, ...], optional: tuple[str, ...]
) -> None:
    """ValueError for an entry that is no whole number from 1; an optional one may be null."""
    for name in (*needed, *optional):
        value = config.get(name)
        if value is None and name in optional:
            continue
        if not isinstance(value, int) or value < 1:
            raise ValueError(
                f"config.json: {name} is {value!r}, a whole number from 1 is needed; download it "
                "again"
            )


@dataclass(frozen=True)
class Held:
    """A model as a profile holds it: shape, bytes of a number, device, and whether its kernel
    unpacks 4-bit weights at every pass.
    """

    shape: ModelShape
    itemsize: int
    device: str
    unpacks: bool = False

    @property
    def weights(self) -> int:
        """Bytes of the weights. On a CPU in float32 those of all products are held twice, the
        second time as `model.Projection` lays them out.
        """
        shape = self.shape
        again = 0
        if self.device == "cpu" and self.itemsize == 4 and shape.bits is None:
            again = 4 * (shape.projections + shape.said * shape.width)
        return shape.weight_bytes(self.itemsize) + again

    @property
    def pass_bytes(self) -> int:
        """Bytes of weights that a pass reads; unpacking also writes every projection in full
        precision and reads it again.
        """
        unpacked = (
            2 * self.shape.projections * self.itemsize
            if self.unpacks and self.shape.bits
            else 0
        )
        return self.shape.weight_bytes(self.itemsize) + unpacked


def held(spec: ModelSpec, config: Any, gpus: int) -> Held:
    """How a profile's model is held on a machine with that many GPUs (`auto`: the first GPU, else
    the CPU in float32).
    """
    device = ("cuda:0" if gpus else "cpu") if spec.device == "auto" else spec.device
    device = "cuda:0" if device == "cuda" else device
    dtype = (
        ("float32" if device == "cpu" else "float16")
        if spec.dtype == "auto"
        else spec.dtype
    )
    return Held(
        shape_of(config),
        4 if dtype == "float32" else 2,
        device,
        spec.backend in ("torch", "triton"),
    )


# ---- 1. memory -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Need:
    """Bytes that one stage holds on one device, by part: weights, KV cache, activations (with
    masks), logits, context.
    """

    device: str
    stage: str
    parts: dict[str, int]

    @property
    def total(self) -> int:
        """All parts."""
        return sum(self.parts.values())


def _pass(model: Held, batch: int, n: int, past: int) -> int:
    """Activations of one pass over [batch, n] tokens behind `past`: residual stream, the larger of
    attention and MLP, masks, scores.
    """
    s, i = model.shape, model.itemsize
    stream = s.width * (3 * i + 8)  # the norm is computed in float32
    widest = max(
        3 * (s.heads + 2 * s.kv_heads) * s.head_dim * i, 4 * s.inner * i
    )  # rotated copies; gate, up and their product
    pairs = n * (past + n)
    unpacked = (
        2 * s.width * s.inner * i if s.bits else 0
    )  # one projection in full precision
    return (
        batch * (n * (stream + widest) + pairs * (3 + i) + pairs * s.heads * (4 + i))
        + unpacked
    )


def _grown(asked: int, first: int) -> int:
    """Slots of a KVCache that was asked for `asked` and first written to `first`: it grows to
    powers of two.
    """
    return max(asked, 1 << (first - 1).bit_length())


def _generate(model: Held, profile: Profile, prompt_tokens: int) -> dict[str, int]:
    batch = min(
        profile.block_prompts, profile.prompts_per_domain * len(profile.domains)
    )
    slots = _grown(prompt_tokens + profile.max_new_tokens, prompt_tokens)
    return {
        "weights": model.weights,
        "KV cache": batch * slots * model.shape.kv_bytes(model.itemsize),
        "activations": _pass(model, batch, prompt_tokens, 0),
    }


def _record(
    model: Held, profile: Profile, prompt_tokens: int, packed: int, logit_bytes: int
) -> dict[str, int]:
    shape = model.shape
    config = SimpleNamespace(
        num_hidden_layers=shape.layers,
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        vocab_size=shape.vocab,
    )
    asked = profile.replace(max_prompt_tokens=prompt_tokens)
    parts = chunk_bytes(
        config, model.itemsize, asked, packed, logit_bytes, bool(shape.bits)
    )
    return {"weights": model.weights} | parts


def plan(
    profile: Profile,
    target: Held,
    draft: Held,
    packed: int | None = None,
    prompt_tokens: int | None = None,
) -> list[Need]:
    """What `record` holds on each device in its two stages, `generate` (the target's texts) and
    `record` (both models).

    packed: max_packed_tokens (default: the profile's). prompt_tokens: length of every prompt
    (default: the longest allowed).
    """
    length = prompt_tokens or profile.max_prompt_tokens
    both = [
        (target, LOGIT_BYTES),
        (draft, draft.itemsize + 4 if draft.device != target.device else 0),
    ]
    found: dict[tuple[str, str], dict[str, int]] = {}
    for model, logits in both:
        for stage in ("generate", "record"):
            if stage == "record":
                parts = _record(
                    model, profile, length, packed or profile.max_packed_tokens, logits
                )
            else:
                parts = (
                    _generate(model, profile, length)
                    if model is target
                    else {"weights": model.weights}
                )
            total = found.setdefault(
                (model.device, stage),
                {"context": CONTEXT_BYTES} if model.device != "cpu" else {},
            )
            for name, size in parts.items():
                total[name] = total.get(name, 0) + size
    return [Need(device, stage, parts) for (device, stage), parts in found.items()]


def peaks(needs: list[Need]) -> dict[str, Need]:
    """The stage that needs most, by device."""
    found: dict[str, Need] = {}
    for need in needs:
        found[need.device] = max(
            found.get(need.device, need), need, key=lambda n: n.total
        )
    return found


def packed_tokens_that_fit(
    profile: Profile, target: Held, draft: Held, free: dict[str, int]
) -> int:
    """The largest of max_packed_tokens, a half, a quarter, … whose `record` stage fits what is free
    on each device with the weights loaded.

    The profile's value is the upper limit. ValueError when not even SMALLEST tokens fit.
    """
    packed = profile.max_packed_tokens
    while True:
        needs = [n for n in plan(profile, target, draft, packed) if n.stage == "record"]
        short = [
            (n, n.total - n.parts["weights"] - n.parts.get("context", 0)) for n in needs
        ]
        short = [
            (n.device, need) for n, need in short if need > free.get(n.device, math.inf)
        ]
        if not short:
            return packed
        if packed // 2 < SMALLEST:
            device, need = short[0]
            raise ValueError(
                f"{device}: recording needs {need / 1e9:.2f} GB beside the weights even with "
                f"max_packed_tokens={packed}, "
                f"{free[device] / 1e9:.2f} GB are free; lower max_prompt_tokens or "
                "max_new_tokens, or use another device"
            )
        packed //= 2


# ---- 2. time -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Speed:
    """What a device sustains: floating-point operations and bytes per second, and the host's
    seconds to launch one layer of a pass.
    """

    flops_per_s: float
    bytes_per_s: float
    layer_s: float = 0.8e-3


# NVIDIA's data sheet: 65 TFLOP/s in float16 with tensor cores, 320 GB/s. Sustained is less: at its
# 70 W a T4 multiplies 4096 x 4096 matrices at 24 TFLOP/s (forums.developer.nvidia.com, topic
# 264462), a share of 0.37, and copies at about 0.69 of the 320 GB/s (arXiv:1903.07486). What stands
# between the products costs about a quarter more (as measured on a CPU, tests/bench_shapes.py), and
# a T4 is no better there: 0.28 and 0.55 are taken. A layer of a transformers model is about 15
# kernels of 50 microseconds in Python on a hosted CPU: 0.8 ms.
T4 = Speed(0.28 * 65e12, 0.55 * 320e9)


@dataclass(frozen=True)
class Stage:
    """One kind of pass over a whole run: floating-point operations, bytes read and written, passes
    and their layers.
    """

    name: str
    model: str
    passes: int
    tokens: int
    flops: float
    bytes: float
    layers: int

    def seconds(self, speed: Speed) -> float:
        """Arithmetic and traffic one after the other (nothing overlaps), or the host's launches
        where those take longer.
        """
        return max(
            self.flops / speed.flops_per_s + self.bytes / speed.bytes_per_s,
            self.passes * self.layers * speed.layer_s,
        )


def _stage(
    name: str,
    which: str,
    model: Held,
    passes: int,
    tokens: int,
    context: float,
    cached: float = 0.0,
) -> Stage:
    """`cached`: tokens of KV cache that are read over all passes."""
    size = passes * model.pass_bytes + cached * model.shape.kv_bytes(model.itemsize)
    return Stage(
        name,
        which,
        passes,
        tokens,
        model.shape.flops(tokens, context),
        size,
        model.shape.layers,
    )


def stages(
    profile: Profile, target: Held, draft: Held, prompt_tokens: float | None = None
) -> list[Stage]:
    """All passes of a greedy recording in which every text has its full length: an upper bound, as
    texts may end early.

    prompt_tokens: mean length of the prompts (default: the longest allowed).
    """
    length, new = prompt_tokens or profile.max_prompt_tokens, profile.max_new_tokens
    prompts = profile.prompts_per_domain * len(profile.domains)
    blocks, tree = math.ceil(prompts / profile.block_prompts), profile.tree
    levels = [
        int((tree.width[tree.level(d)] > 0).sum()) for d in range(1, tree.max_depth)
    ]
    chunks = math.ceil(new / max(1, profile.max_packed_tokens // max(1, sum(levels))))
    trunk, steps = length + new - 1, prompts * (new - 1)
    found = [
        _stage("prefill", "target", target, blocks, round(prompts * length), length),
        _stage(
            "decode",
            "target",
            target,
            blocks * (new - 1),
            steps,
            length + new / 2,
            steps * (length + new / 2),
        ),
    ]
    for which, model in (("target", target), ("draft", draft)):
        passes, s = prompts * chunks * len(levels), model.shape
        found.append(
            _stage("trunk", which, model, prompts, round(prompts * trunk), trunk)
        )
        found.append(
            _stage(
                "tree",
                which,
                model,
                passes,
                prompts * new * sum(levels),
                trunk + new * sum(levels),
                passes * trunk,
            )
        )
        rows = (
            prompts * new * (2 + sum(levels))
        )  # trace, depth 1, and the children of every parent
        traffic = (
            rows * s.vocab * LOGIT_TRAFFIC
            + rows / ROWS * s.said * s.width * model.itemsize
        )
        found.append(
            Stage(
                "logits",
                which,
                math.ceil(rows / ROWS),
                rows,
                2.0 * rows * s.width * s.said,
                traffic,
                0,
            )
        )
    return found


def seconds(
    profile: Profile,
    target: Held,
    draft: Held,
    speed: Speed = T4,
    prompt_tokens: float | None = None,
) -> float:
    """Estimated time of a whole recording on devices of one `speed`, loading left out: one pass
    after the other, also on two devices.
    """
    return sum(
        stage.seconds(speed) for stage in stages(profile, target, draft, prompt_tokens)
    )
