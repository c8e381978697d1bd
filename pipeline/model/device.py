"""Device selection and transfers.

A model is moved to its device by `prepare`. Batches are assembled on the CPU and moved one at a
time to the model that reads them.
"""

import ctypes
import os
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from veriloop.data.counts import counted
from veriloop.pipeline.errors import RecipeError

CPU = torch.device("cpu")
BFLOAT16 = (8, 0)  # least compute capability
Record = TypeVar("Record")
_last_settings: list[str] = []  # of torch's allocator, one at most
_own_gpu = 0  # that `auto` and `cuda` mean in this process


def take_gpu(number: int) -> torch.device:
    """The GPU of a rank, which `auto` and `cuda` mean in this process from now on; see
    `choose_device`."""
    global _own_gpu
    chosen = choose_device(f"cuda:{number}")
    _own_gpu = number
    return chosen


def choose_device(name: str) -> torch.device:
    """The device for `trainer.device`, which becomes CUDA's current device; see `find_device`."""
    device = find_device(name, "trainer.device")
    if device != CPU:
        torch.cuda.set_device(device.index)
    return device


def find_device(name: str, setting: str) -> torch.device:
    """The device of a setting: `auto` is the first GPU, or that of `take_gpu`, else the CPU. Raises
    RecipeError for a GPU that torch does not see."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "cpu" or (name == "auto" and not gpus):
        return CPU
    index = int(name.partition(":")[2] or _own_gpu)
    if index >= gpus:
        raise RecipeError(f"{setting}={name}: {_available(gpus)}; auto and cpu are available")
    return torch.device("cuda", index)


def describe(device: torch.device) -> str:
    """The device for display."""
    if device.type == "cpu":
        return f"CPU, {counted(torch.get_num_threads(), 'thread')}"
    gpu = torch.cuda.get_device_properties(device)
    return f"{device} ({gpu.name}, {gpu.total_memory / 2**30:.0f} GiB)"


def set_expandable_segments(on: bool) -> None:
    """Let the allocator grow its segments, which rows of many lengths would fragment.

    Memory pools, with which vLLM sleeps, need it off. A user's own setting stays.
    """
    own = _users_settings()
    if "expandable_segments" not in own:
        settings = [*filter(None, [own]), f"expandable_segments:{on}"]  # others would be reset
        set_allocator_settings(",".join(settings))


def allocator_settings() -> str:
    """Those that `set_allocator_settings` set last, else the user's. Torch before 2.12 cannot be
    asked for them."""
    return _last_settings[-1] if _last_settings else _users_settings()


def set_allocator_settings(settings: str) -> None:
    """Replace all settings of torch's allocator."""
    torch._C._accelerator_setAllocatorSettings(settings)
    _last_settings[:] = [settings]


def _users_settings() -> str:
    return os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF") or ""


def require_bfloat16(device: torch.device, setting: str = "trainer.compute") -> None:
    """Raise RecipeError for a GPU that cannot compute in bfloat16."""
    if device.type != "cuda":
        return
    capability = torch.cuda.get_device_capability(device)
    if capability < BFLOAT16:
        raise RecipeError(
            f"{setting}=bfloat16: {describe(device)} has compute capability "
            f"{capability[0]}.{capability[1]}, bfloat16 needs {BFLOAT16[0]}.{BFLOAT16[1]}; set "
            "float32"
        )


def require_wide_product(device: torch.device) -> None:
    """Raise RecipeError where torch lacks the output head's product."""
    ones = torch.ones(16, 16, dtype=torch.bfloat16, device=device)
    try:
        torch.mm(ones, ones, out_dtype=torch.float32)
    except RuntimeError as failure:
        raise RecipeError(
            f"trainer.compute=bfloat16: torch {torch.__version__} has no product of bfloat16 "
            f"matrices in float32 (mm with out_dtype) on {describe(device)}; set float32"
        ) from failure


def device_of(model: Any) -> torch.device:
    """The device of a model's weights."""
    return next(model.parameters()).device


def brought(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on `device`; to a GPU asynchronously through pinned memory."""
    if tensor.device == device:
        return tensor
    if tensor.device == CPU:
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def onto(record: Record, device: torch.device) -> Record:
    """A copy of a dataclass with its tensors on `device`."""
    values = {f.name: getattr(record, f.name) for f in fields(record)}  # type: ignore[arg-type]
    moved = {
        name: brought(value, device)
        for name, value in values.items()
        if isinstance(value, Tensor) and value.device != device
    }
    return replace(record, **moved) if moved else record  # type: ignore[type-var]


def synchronize(device: torch.device) -> None:
    """Wait for the work of a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def give_back_unused() -> None:
    """Release this process's cached GPU memory to other processes."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def trim_heap() -> None:
    """Return the free pages of this process's heap to the system, where its C library is glibc.

    Blocks of varying sizes that come and go leave free pages between those in use.
    """
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def _available(gpus: int) -> str:
    if torch.version.cuda is None:
        return f"this torch ({torch.__version__}) is built without CUDA"
    if not gpus:
        return f"torch is built for CUDA {torch.version.cuda} and sees no GPU"
    names = ", ".join(f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(gpus))
    return f"torch sees {names}"
