"""A pretended CUDA device: code for a GPU runs on a CPU, and operations that a GPU would reject
raise errors.

Its tensors report `cuda:N`, keep their numbers on the CPU, and cannot be mixed with tensors of
another device. Each time the host waits for the device is counted, with the line of the kit that
caused it. Kernels, memory and time of a GPU are not simulated.

    with pretended() as gpu:
        pair = load_pair(load_profile("tiny", {"device": "cuda:0"}))
    gpu.waits  # Counter: "copy speclab/draft.py:171" → 4

Only the thread that entered `pretended` sees the device. Leaving the context restores everything.
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

from speclab.study.profiles import ROOT

CPU = torch.device("cpu")
# these take indices on the CPU, and upload them
INDEXED = ("aten::index", "aten::index_put_", "aten::_index_put_impl_")
# these are given tensors of two devices on purpose
COPIES = ("aten::copy_", "aten::_to_copy", "aten::to")


class OnDevice(Tensor):
    """A tensor that reports `device` and keeps its numbers in `held`, a tensor on the CPU."""

    @staticmethod
    def __new__(cls, held, device):
        where = held.stride(), held.storage_offset()
        made = Tensor._make_wrapper_subclass(cls, held.shape, *where, dtype=held.dtype)
        made.held, made._at = held, device
        return made

    device = property(lambda self: self._at)
    is_cuda = property(lambda self: True)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        """Moves are made here: torch's own code takes the tensor for one on the CPU."""
        with torch._C.DisableTorchFunctionSubclass():
            if func in (Tensor.cpu, Tensor.tolist):
                moved = _moved(args[0], CPU)
                return moved if func is Tensor.cpu else moved.tolist()
            made = _moved if func is Tensor.to else func
            return made(*args, **kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"{func}: a tensor of a pretended device, outside `pretended`")


def _moved(tensor, *asked, **named):
    """`tensor.to(...)`: the tensor itself where nothing changes."""
    device, dtype, later, _ = torch._C._nn._parse_to(*asked, **named)
    device, dtype = _numbered(device or tensor.device), dtype or tensor.dtype
    if (device, dtype) == (tensor.device, tensor.dtype):
        return tensor
    return torch.ops.aten._to_copy(tensor, dtype=dtype, device=device, non_blocking=later)


def _numbered(device):
    """`cuda` is `cuda:0`."""
    device = torch.device(device)
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else device


def _held(value):
    """What the CPU computes with in the place of an argument."""
    if isinstance(value, torch.device) and value.type == "cuda":
        return CPU
    return value.held if isinstance(value, OnDevice) else value


def _wrapped(value, device):
    """A result on a device. A view of a normal tensor is a normal tensor in inference mode too."""
    if not isinstance(value, Tensor):
        return value
    with torch.inference_mode(value.is_inference()):
        return OnDevice(value, device)


def _line():
    """The innermost line of the kit or a test that is running, as `speclab/draft.py:171`."""
    frame = sys._getframe(1)
    while frame := frame.f_back:
        file = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
        if file.startswith(("speclab/", "tests/test_")):
            return f"{file}:{frame.f_lineno}"
    return "elsewhere"


class Device(TorchDispatchMode):
    """Runs every operation, and counts by line the `waits` of the host: for numbers, and for shapes
    that depend on them.
    """

    def __init__(self):
        super().__init__()
        self.waits = Counter()

    def wait(self, why):
        """Count one wait."""
        self.waits[f"{why} {_line()}"] += 1

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, func._schema.name
        flat = tree_leaves((args, kwargs))
        own = [x for x in flat if isinstance(x, OnDevice)]
        rest = [x for x in flat if isinstance(x, Tensor) and not isinstance(x, OnDevice)]
        asked = [x for x in flat if isinstance(x, torch.device)]
        first = args[:1] if name == "aten::copy_" else own
        home = _numbered((*asked, *(x.device for x in first), CPU)[0])
        if own and name not in COPIES:
            self._check(name, args, own, rest)
        if name in COPIES and own and home == CPU:
            self.wait("copy")
        if own and torch.Tag.data_dependent_output in func.tags:
            self.wait("number")
        by_mask = name not in INDEXED or any(x.dtype == torch.bool for x in own[1:])
        if own and by_mask and torch.Tag.dynamic_output_shape in func.tags:
            self.wait("shape")
        found = func(*tree_map(_held, args), **tree_map(_held, kwargs))
        if func._schema.is_mutable:  # in place, or into `out`
            return kwargs.get("out", args[0])
        return tree_map(lambda x: _wrapped(x, home), found) if home.type == "cuda" else found

    def _check(self, name, args, own, rest):
        """A RuntimeError for tensors of several devices. A single number of the CPU is taken."""
        if name in INDEXED and isinstance(args[0], OnDevice):
            rest = [x for x in tree_leaves(args[2:]) if isinstance(x, Tensor)]
        places = {str(x.device) for x in (*own, *(x for x in rest if x.dim()))}
        if len(places) > 1:
            raise RuntimeError(f"not on the same device: {places}, {name} at {_line()}")


def _placed(make):
    """torch.tensor or torch.as_tensor, which move the numbers where no mode sees it."""

    def made(data, *, device=None, **given):
        if device is None or torch.device(device).type != "cuda":
            return make(data, device=device, **given)
        return make(data, **given).to(device)

    return made


@contextmanager
def pretended(count=2, capability=(7, 5)):
    """`count` pretended CUDA devices of a compute capability (a T4's). Yields their `Device`."""
    device, (major, minor), room = Device(), capability, 15 * 10**9
    about = SimpleNamespace(name="pretended", major=major, minor=minor, total_memory=room)
    answers = {
        "_lazy_init": None,
        "device_count": count,
        "is_available": True,
        "mem_get_info": (room, room),
        "memory_reserved": 0,
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        "get_device_properties": about,
        "get_device_capability": capability,
    }
    _device_constructors()  # torch remembers its own functions, not those put in their place
    overwrite = torch.__future__.set_overwrite_module_params_on_conversion
    kept = torch.__future__.get_overwrite_module_params_on_conversion()
    with ExitStack() as stack:

        def put(owner, name, value):
            stack.enter_context(patch.object(owner, name, value))

        for name, answer in answers.items():
            put(torch.cuda, name, lambda *_, answer=answer: answer)
        put(torch.cuda, "synchronize", lambda *_: device.wait("synchronize"))
        put(torch, "tensor", _placed(torch.tensor))
        put(torch, "as_tensor", _placed(torch.as_tensor))
        # transformers would load weights in threads, which do not see the device
        stack.enter_context(patch.dict("os.environ", HF_DEACTIVATE_ASYNC_LOAD="1"))
        stack.callback(overwrite, kept)
        overwrite(True)
        yield stack.enter_context(device)
