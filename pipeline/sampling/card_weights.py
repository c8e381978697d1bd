"""Weights for an engine in another process on the same GPU, one at a time through CUDA IPC.

One piece of the GPU's memory is opened by both processes, and each weight is copied into it and out
of it. It is as large as the largest weight and lives as long as the transfer.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.multiprocessing  # ForkingPickler then pickles tensors by their place
from torch import Tensor

from veriloop.pipeline.model.device import (
    allocator_settings,
    set_allocator_settings,
    synchronize,
)

LEAST = 2**26  # bytes of the shared memory
ON, OFF = "expandable_segments:True", "expandable_segments:False"


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A weight in the shared memory."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    size: int  # bytes
    memory: bytes | None  # pickled, if it is not that of the weight before


def staged(weights: Iterable[tuple[str, Tensor]]) -> Iterator[Staged]:
    """Copy each weight into the shared memory. The next one overwrites it."""
    memory: Tensor | None = None
    for name, weight in weights:
        size, pickled = weight.numel() * weight.element_size(), None
        if memory is None or len(memory) < size:
            memory = None  # released before more is taken
            memory = allocated(max(size, LEAST), weight.device)
            pickled = bytes(ForkingPickler.dumps(memory))
        memory[:size].copy_(weight.detach().reshape(-1).view(torch.uint8))
        synchronize(memory.device)
        shape, dtype = tuple(weight.shape), weight.dtype
        del weight  # before the next is computed
        yield Staged(name=name, dtype=dtype, shape=shape, size=size, memory=pickled)


def received(next_one: Callable[[], Staged | None]) -> Iterator[tuple[str, Tensor]]:
    """In the other process: a copy of each weight, as an engine may keep those of a layer until the
    layer is complete. `next_one` lets the first process overwrite the memory."""
    memory: Any = None
    while (part := next_one()) is not None:
        if part.memory is not None:
            memory = None
            memory = pickle.loads(part.memory)
        weight = memory[: part.size].clone().view(part.dtype).view(part.shape)
        synchronize(memory.device)
        yield part.name, weight
        del weight


def peeked(
    weights: Iterable[tuple[str, Tensor]],
) -> tuple[torch.device | None, Iterator[tuple[str, Tensor]]]:
    """The device of the first weight, and all of them; none is held here."""
    rest = iter(weights)
    first = [pair for pair in (next(rest, None),) if pair is not None]
    device = first[0][1].device if first else None

    def all_of() -> Iterator[tuple[str, Tensor]]:
        while first:
            yield first.pop()
        yield from rest

    return device, all_of()


def release() -> None:
    """Release memory that the other process has closed."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.ipc_collect()


def allocated(size: int, device: torch.device) -> Tensor:
    with _ordinary_segments(device):
        return torch.empty(size, dtype=torch.uint8, device=device)


@contextmanager
def _ordinary_segments(device: torch.device) -> Iterator[None]:
    """Memory of expandable segments is opened by the rights of a debugger, which a child process
    often lacks; the allocator avoids it while they are off."""
    settings = allocator_settings() if device.type == "cuda" else ""
    if ON not in settings:
        yield
        return
    set_allocator_settings(settings.replace(ON, OFF))
    try:
        yield
    finally:
        set_allocator_settings(settings)
