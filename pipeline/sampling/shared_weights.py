"""Weights in anonymous memory that two processes map: a sync is one copy, without files."""

import mmap
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

ALIGNED = mmap.ALLOCATIONGRANULARITY  # bytes; every slot is mapped by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSlot:
    """The position of one weight in the shared memory."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int  # bytes
    size: int  # bytes

    @property
    def end(self) -> int:
        """Where the next slot begins."""
        return self.offset + -(-self.size // ALIGNED) * ALIGNED


class SharedWeights:
    """The memory in the writing process; the reading process maps `fd`. It grows as weights are
    written, so that no more than one of them is in this process's memory at a time."""

    def __init__(self) -> None:
        self.layout: list[TensorSlot] = []
        self.fd = anonymous_file()
        self._views: list[Tensor] = []

    @torch.no_grad()
    def write(self, weights: Iterable[tuple[str, Tensor]]) -> bool:
        """Copy the weights in from any device, one after the other; whether the layout is new."""
        previous, count = list(self.layout), 0
        for name, weight in weights:
            self._view(count, name, weight).copy_(weight)
            count += 1
            del weight  # before the next is computed
        self._truncate(count)
        return self.layout != previous

    def close(self) -> None:
        self._views = []
        os.close(self.fd)

    def _view(self, index: int, name: str, weight: Tensor) -> Tensor:
        """The memory of weight `index`. If it is not laid out for this weight, it and all later
        ones are laid out again."""
        slot = TensorSlot(
            name=name,
            dtype=weight.dtype,
            shape=tuple(weight.shape),
            offset=self.layout[index - 1].end if index else 0,
            size=weight.numel() * weight.element_size(),
        )
        if self.layout[index : index + 1] != [slot]:
            self._truncate(index)
            os.ftruncate(self.fd, slot.end or 1)
            self.layout.append(slot)
            self._views.append(_mapped_slot(self.fd, slot))
        return self._views[index]

    def _truncate(self, count: int) -> None:
        del self.layout[count:], self._views[count:]


def mapped(fd: int, layout: Sequence[TensorSlot]) -> list[tuple[str, Tensor]]:
    """The weights in `fd`, by name, as views that change when the other process writes."""
    return [(slot.name, _mapped_slot(fd, slot)) for slot in layout]


def anonymous_file() -> int:
    """The descriptor of a new file in memory, which nothing but descriptors names."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("weights")
    with tempfile.TemporaryFile() as file:  # macOS: a file without a name
        return os.dup(file.fileno())


def _mapped_slot(fd: int, slot: TensorSlot) -> Tensor:
    if not slot.size:
        return torch.empty(slot.shape, dtype=slot.dtype)
    memory = mmap.mmap(fd, slot.size, offset=slot.offset)
    return torch.frombuffer(memory, dtype=slot.dtype).view(slot.shape)
