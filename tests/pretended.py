"""A pretended CUDA device: code for a GPU runs on a CPU, and what a GPU would refuse is refused.

Its tensors say `cuda:N`, hold their numbers on the CPU, and refuse to be mixed with tensors of
another device. Each wait of the host for the device is counted, with the line of the kit that
caused it. Kernels, memory and time of a GPU are not pretended.

    with pretended() as gpu:
        pair = load_pair(load_profile("tiny", {"device": "cuda:0"}))
    gpu.waits  # Counter: "copy speclab/draft.py:171" → 4

Only the thread that entered `pretended` sees the device, and all is as before when it is left.
"""

import sys
from collections import Counter
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from speclab.profiles import ROOT

CPU = torch.device("cpu")
GB = 10**9
ELSEWHERE = "Expected all tensors to be on the same device"
# these take indices on the CPU, and upload them
INDEXED = ("aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_")
# these are given tensors of two devices on purpose
COPIES = ("aten::copy_", "aten::_to_copy", "aten::to")


class OnDevice(Tensor):
    """A tensor that says `device` and holds its numbers in `held`, a tensor on the CPU."""

    @staticmethod
    def __new__(cls, held, device):
        layout = {"strides": held.stride(), "storage_offset": held.storage_offset()}
        made = Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype, **layout)
        made.held, made._at = held, device
        return made

    device = property(lambda self: self._at)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        """Moves are made here: torch's own code takes the tensor for one on the CPU."""
        with torch._C.DisableTorchFunctionSubclass():
            if func is Tensor.tolist:
                return _moved(args[0], "cpu").tolist()
            if func in (Tensor.to, Tensor.cpu, Tensor.cuda):
                asked = {Tensor.cpu: ("cpu",), Tensor.cuda: ("cuda",)}.get(func, args[1:])
                return _moved(args[0], *asked, **kwargs or {})
            return func(*args, **kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"{func}: a tensor of a pretended device, outside `pretended`")


def _moved(tensor, *asked, **named):
    """`tensor.to(...)`: itself where nothing changes."""
    if asked and isinstance(asked[0], Tensor):
        asked = asked[0].device, asked[0].dtype
    device, dtype, later, _ = torch._C._nn._parse_to(*asked, **named)
    device, dtype = _numbered(device or tensor.device), dtype or tensor.dtype
    if (device, dtype) == (tensor.device, tensor.dtype):
        return tensor
    return torch.ops.aten._to_copy(tensor, dtype=dtype, device=device, non_blocking=later)


def _numbered(device):
    """`cuda` is `cuda:0`."""
    device = torch.device(device)
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else device


def _wrapped(held, device):
    """`held` as a tensor of a device; a view of a normal tensor is one in inference mode too."""
    with torch.inference_mode(held.is_inference()):
        return OnDevice(held, device)


def _held(value):
    """What the CPU computes with in the place of an argument."""
    if isinstance(value, OnDevice):
        return value.held
    return CPU if isinstance(value, torch.device) and value.type == "cuda" else value


def _line():
    """The innermost line of the kit or a test that is running, as `speclab/draft.py:171`."""
    frame = sys._getframe(1)
    while frame:
        file = frame.f_code.co_filename
        if file.startswith(str(ROOT)) and file != __file__ and "site-packages" not in file:
            return f"{file[len(str(ROOT)) + 1 :]}:{frame.f_lineno}"
        frame = frame.f_back
    return "elsewhere"


class Device(TorchDispatchMode):
    """Runs every operation, and counts by line: `waits` of the host (numbers, and shapes that
    depend on them), and `uploads`, copies to the device, for which the host waits as well unless
    they are `non_blocking`.
    """

    def __init__(self):
        super().__init__()
        self.waits, self.uploads = Counter(), Counter()

    def wait(self, why):
        """Count one wait."""
        self.waits[f"{why} {_line()}"] += 1

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name, flat = func._schema.name, tree_leaves((args, kwargs))
        own = [x for x in flat if isinstance(x, OnDevice)]
        rest = [x for x in flat if isinstance(x, Tensor) and not isinstance(x, OnDevice)]
        if own and name not in COPIES:
            self._check(func, args, own, [x for x in rest if x.dim()])
        asked = next((x for x in flat if isinstance(x, torch.device)), None)
        home = args[0].device if name == "aten::copy_" else own[0].device if own else CPU
        home = _numbered(asked or home)
        self._count(func, kwargs, own, rest, home)
        found = func(*tree_map(_held, args), **tree_map(_held, kwargs))
        if func._schema.is_mutable:  # in place, or into `out`
            return kwargs.get("out", args[0] if args else found)
        if home.type != "cuda":
            return found
        return tree_map(lambda x: _wrapped(x, home) if isinstance(x, Tensor) else x, found)

    def _check(self, func, args, own, others):
        """A RuntimeError for tensors of several devices (a number of the CPU alone is taken)."""
        places = {str(x.device) for x in (*own, *others)}
        if func._schema.name in INDEXED and isinstance(args[0], OnDevice):
            given = [x for x in tree_leaves(args[2:]) if isinstance(x, Tensor) and x.dim()]
            places = {str(x.device) for x in (*own, *given)}
        if len(places) > 1:
            raise RuntimeError(f"{ELSEWHERE}: {sorted(places)}, {func} at {_line()}")

    def _count(self, func, kwargs, own, rest, home):
        """Waits and uploads of one operation."""
        copy = func._schema.name in COPIES
        if copy and own and home.type == "cpu":
            self.wait("copy")
        if own and torch.Tag.data_dependent_output in func.tags:
            self.wait("number")
        if own and torch.Tag.dynamic_output_shape in func.tags:
            indexed = func._schema.name in INDEXED
            if not indexed or any(x.dtype == torch.bool for x in (*own[1:], *rest)):
                self.wait("shape")
        moved = copy and func._schema.name != "aten::copy_"
        if home.type == "cuda" and any(x.numel() if x.dim() else moved for x in rest):
            self.uploads[_line()] += not kwargs.get("non_blocking", False)


def _properties(capability):
    """A Tesla T4, or the like of another compute capability."""
    major, minor = capability
    return SimpleNamespace(
        name="pretended", major=major, minor=minor, total_memory=15 * GB, multi_processor_count=40
    )


@contextmanager
def pretended(count=2, capability=(7, 5)):
    """`count` pretended CUDA devices of a compute capability; yields their `Device`, which counts
    waits and uploads.
    """
    device, tensor, as_tensor = Device(), torch.tensor, torch.as_tensor

    def placed(make):
        """torch.tensor and torch.as_tensor move the numbers where no mode sees it."""

        def made(data, *, device=None, **given):
            if device is None or torch.device(device).type != "cuda":
                return make(data, device=device, **given)
            return make(data, **given).to(device)

        return made

    def synchronize(of=None):
        device.wait("synchronize")

    about = _properties(capability)
    always = {
        "device_count": count,
        "is_available": True,
        "current_device": 0,
        "mem_get_info": (about.total_memory, about.total_memory),
        "get_device_properties": about,
        "get_device_capability": capability,
        "get_device_name": about.name,
        "is_bf16_supported": capability >= (8, 0),
    }
    nothing = ("_lazy_init", "empty_cache", "reset_peak_memory_stats")
    _device_constructors()  # torch remembers its own functions here, not those put in their place
    kept = torch.__future__.get_overwrite_module_params_on_conversion()
    with ExitStack() as stack:
        answers = always | dict.fromkeys(nothing)
        for name in ("memory_reserved", "memory_allocated", "max_memory_allocated"):
            answers[name] = 0
        for name, answer in answers.items():
            give = lambda *_, answer=answer, **__: answer
            stack.enter_context(patch.object(torch.cuda, name, give))
        stack.enter_context(patch.object(torch.cuda, "synchronize", synchronize))
        stack.enter_context(patch.object(torch, "tensor", placed(tensor)))
        stack.enter_context(patch.object(torch, "as_tensor", placed(as_tensor)))
        # transformers would load weights in threads, which do not see the device
        stack.enter_context(patch.dict("os.environ", HF_DEACTIVATE_ASYNC_LOAD="1"))
        stack.callback(torch.__future__.set_overwrite_module_params_on_conversion, kept)
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        stack.enter_context(device)
        yield device
